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
    let limit = SHOWN_MAX.to_string();
    let asked = [("limit", Some(&limit)), ("about", about.as_ref()), ("by", of.as_ref())];
    let query: Vec<(&str, &str)> =
        asked.into_iter().filter_map(|(name, value)| Some((name, value?.as_str()))).collect();
    let answer = client.get_text(&format!("/v1/lifeforms/{id}/memory"), &query).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    Ok(form.show(&answer, |answer| {
        let all = answer["statements"].as_array().map_or(&[][..], Vec::as_slice);
        match all {
            [] => vec!["nothing of it is remembered, or shown to you".to_owned()],
            all => all
                .iter()
                .map(|fact| {
                    let of = ["id", "stated_at", "by", "statement"].map(|member| text(fact, member));
                    of.join("  ")
                })
                .collect(),
        }
    }))
}

/// Has a lifeform forget a statement by its id, or asks it in its chat to forget what is named in words, and prints what it forgot, or its
/// answer.
pub(super) async fn forget(config: Config, which: Which, what: String, form: Form) -> anyhow::Result<ExitCode> {
    if is_id(&what) {
        let client = Client::new(&config)?;
        let id = client.lifeform_id(which.lifeform.as_deref()).await?;
        let body = json!({"facts": [what]});
        let path = format!("/v1/lifeforms/{id}/memory/forget");
        let answer = client.ask(Method::POST, &path, Some(&body)).await?;
        return Ok(form.show(&answer, |answer| {
            let gone = answer["forgotten"].as_array().map_or(&[][..], Vec::as_slice);
            match gone {
                [] => vec!["it was forgotten before".to_owned()],
                gone => gone.iter().map(|one| format!("forgotten: {}", text(one, "statement"))).collect(),
            }
        }));
    }
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

/// Returns `true` for the id of a concept, such as `C:snpjbln`.
fn is_id(what: &str) -> bool {
    what.strip_prefix("C:").is_some_and(|id| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric()))
}
