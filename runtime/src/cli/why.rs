//! `lifeformd why`: the causes of an answer or of another entry, back to the root.

use std::process::ExitCode;

use anyhow::Context;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::lifeforms::{Form, Which, text};
use crate::config::Config;

pub(super) async fn run(
    config: Config,
    which: Which,
    reference: Option<String>,
    form: Form,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    let (from, rests_on) = match reference {
        Some(reference) => (reference, json!([])),
        None => last_answer(&client, &id).await?,
    };
    let walk = walk(&client, &id, &from, rests_on).await?;
    Ok(form.show(&walk, lines_of))
}

/// Returns the causes of an answer as lines. `message` is the path of the answer.
pub(super) async fn of_message(client: &Client, id: &str, message: &str) -> anyhow::Result<Vec<String>> {
    let (from, rests_on) = evidence_of(client, message).await?;
    Ok(lines_of(&walk(client, id, &from, rests_on).await?))
}

/// Returns the walk from an entry to its causes, with what it rests on.
async fn walk(client: &Client, id: &str, from: &str, rests_on: Value) -> anyhow::Result<Value> {
    let walk = client.get_text(&format!("/v1/lifeforms/{id}/trace"), &[("from", from)]).await?;
    let mut walk: Value = serde_json::from_str(&walk)?;
    walk["rests_on"] = rests_on;
    Ok(walk)
}

fn lines_of(walk: &Value) -> Vec<String> {
    let mut lines = vec![line(&walk["from"])];
    for concept in walk["rests_on"].as_array().into_iter().flatten() {
        let statement = concept["concept"]["attributes"]["statement"].as_str();
        let what = statement.or_else(|| concept["record"]["content"].as_str()).unwrap_or_else(|| text(concept, "id"));
        lines.push(format!("  rests on: {what}"));
    }
    lines.extend(walk["back"].as_array().into_iter().flatten().map(|step| format!("  because of {}", line(step))));
    let roots = walk["roots"].as_array().into_iter().flatten();
    lines.extend(roots.map(|root| format!("  from {}", root.as_str().unwrap_or_default())));
    if walk["more"] == true {
        lines.push("  … there is more: lifeformd why <reference>".to_owned());
    }
    lines
}

/// Returns the reference of an answer, and what it rests on.
async fn evidence_of(client: &Client, message: &str) -> anyhow::Result<(String, Value)> {
    let evidence = client.ask(Method::GET, &format!("{message}/evidence"), None).await?;
    Ok((text(&evidence, "trace").to_owned(), evidence["rests_on"].clone()))
}

/// Returns the reference of the newest answer of a lifeform, and what it rests on.
async fn last_answer(client: &Client, id: &str) -> anyhow::Result<(String, Value)> {
    let listed = client.ask(Method::GET, &format!("/v1/lifeforms/{id}/canvases"), None).await?;
    let base = listed["canvases"][0]["api"]["rest_base_path"].as_str().context("this lifeform has no chat canvas")?;
    let author = format!("lifeform:{id}");
    let topics = client.ask(Method::GET, &format!("{base}/topics"), None).await?;
    let mut newest: Option<(String, String)> = None;
    for topic in topics["topics"].as_array().into_iter().flatten() {
        let path = format!("{base}/topics/{}/messages", text(topic, "id"));
        let page = client.ask(Method::GET, &format!("{path}?limit=50"), None).await?;
        let own =
            page["messages"].as_array().into_iter().flatten().filter(|message| message["sender"] == author.as_str());
        for message in own {
            let at = message["at"].as_str().or_else(|| message["created_at"].as_str()).unwrap_or_default().to_owned();
            if newest.as_ref().is_none_or(|(known, _)| at > *known) {
                newest = Some((at, format!("{path}/{}", text(message, "id"))));
            }
        }
    }
    let (_, message) = newest.context("it has not answered yet: give the reference of an entry")?;
    evidence_of(client, &message).await
}

fn line(step: &Value) -> String {
    let data = &step["data"];
    let what = [&data["fact"], &data["what"], &step["kind"]].into_iter().find_map(Value::as_str).unwrap_or_default();
    let place = data["step"].as_str().map(|step| format!(" {step}")).unwrap_or_default();
    format!("{}  {}  {what}{place}  by {}", text(step, "at"), text(step, "ref"), text(step, "by"))
}
