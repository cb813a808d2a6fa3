//! `lifeformd memory` and `forget`: what a lifeform remembers, and a request to forget some of it.

use std::process::ExitCode;

use anyhow::bail;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::lifeforms::{Form, Which, text};
use crate::config::Config;

/// The maximum number of statements that are shown.
const SHOWN_MAX: usize = 100;

const OF: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.author == $who && ?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT 100"#;
const ALL: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT 100"#;
const ABOUT: &str = r#"SEARCH CONCEPT $words WITH TYPE "Fact" LIMIT 100"#;

/// Prints the statements that a lifeform remembers, as far as the token may see them: about a subject, of a person, or all.
pub(super) async fn show(
    config: Config,
    which: Which,
    about: Option<String>,
    of: Option<String>,
    form: Form,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    let (command, parameters) = match (&about, &of) {
        (Some(_), Some(_)) => bail!("memory shows what is about a subject, or of a person: give one of them"),
        (Some(words), None) => (ABOUT, json!({"words": words})),
        (None, Some(who)) => (OF, json!({"who": who})),
        (None, None) => (ALL, json!({})),
    };
    let body = json!({"command": command, "parameters": parameters, "readonly": true});
    let answer = client.ask(Method::POST, &format!("/v1/lifeforms/{id}/kip"), Some(&body)).await?;
    if let Some(error) = answer.get("error") {
        bail!("{}", error["message"].as_str().unwrap_or("the mind refused the question"));
    }
    let facts: Vec<Value> = answer["result"].as_array().into_iter().flatten().take(SHOWN_MAX).map(fact).collect();
    Ok(form.show(&json!({"statements": facts}), |answer| {
        let all = answer["statements"].as_array().map_or(&[][..], Vec::as_slice);
        match all {
            [] => vec!["nothing of it is remembered, or shown to you".to_owned()],
            all => all
                .iter()
                .map(|fact| format!("{}  {}  {}", text(fact, "stated_at"), text(fact, "by"), text(fact, "statement")))
                .collect(),
        }
    }))
}

fn fact(concept: &Value) -> Value {
    let (attributes, metadata) = (&concept["attributes"], &concept["metadata"]);
    json!({
        "id": concept["id"], "statement": attributes["statement"], "by": metadata["author"],
        "stated_at": attributes["stated_at"], "status": metadata["status"], "source": metadata["source"],
    })
}

/// Asks a lifeform in its chat to forget something, as any message does, and prints its answer.
pub(super) async fn forget(config: Config, which: Which, what: String, form: Form) -> anyhow::Result<ExitCode> {
    if what.trim().trim_matches('.').is_empty() {
        bail!("say what is to be forgotten");
    }
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    let listed = client.ask(Method::GET, &format!("/v1/lifeforms/{id}/canvases"), None).await?;
    let Some(base) = listed["canvases"][0]["api"]["rest_base_path"].as_str() else {
        bail!("this lifeform has no chat canvas")
    };
    let topic = super::chat::choose_topic(&client, base, None).await?;
    let path = format!("{base}/topics/{topic}/messages");
    let content = format!("Forget {}.", what.trim().trim_end_matches('.'));
    let said = client.ask(Method::POST, &path, Some(&json!({"content": content}))).await?;
    let answer = super::chat::answer_to(&client, &path, text(&said, "id"), &format!("lifeform:{id}")).await?;
    Ok(form.show(&answer, |answer| vec![text(answer, "content").to_owned()]))
}
