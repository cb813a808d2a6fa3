//! `lifeformd lifeforms`, `start`, `stop`, `top-up` and `status`: lifeforms, their state and their nutrients.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::{harmless, say};
use crate::config::Config;

/// The choice of a lifeform.
#[derive(Args)]
pub(super) struct Which {
    /// The lifeform, by name or id (default: the first).
    #[arg(long, global = true)]
    pub(super) lifeform: Option<String>,
}

/// The form of the output.
#[derive(Args, Clone, Copy)]
pub(super) struct Form {
    /// Prints the answer of the API as JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

impl Form {
    /// Prints an answer as JSON, or else the lines.
    pub(super) fn show(self, answer: &Value, lines: impl FnOnce(&Value) -> Vec<String>) -> ExitCode {
        match self.json {
            true => say(&serde_json::to_string_pretty(answer).unwrap_or_default()),
            false => lines(answer).iter().for_each(|line| say(&harmless(line))),
        }
        ExitCode::SUCCESS
    }
}

/// Returns a text member; empty if there is none.
pub(super) fn text<'v>(of: &'v Value, member: &str) -> &'v str {
    of[member].as_str().unwrap_or_default()
}

pub(super) async fn list(config: Config, form: Form) -> anyhow::Result<ExitCode> {
    let all = Client::new(&config)?.lifeforms().await?;
    Ok(form.show(&json!({"lifeforms": all}), |answer| {
        let all = answer["lifeforms"].as_array().map_or(&[][..], Vec::as_slice);
        match all {
            [] => vec!["no lifeform lives there yet".to_owned()],
            all => all.iter().map(line).collect(),
        }
    }))
}

fn line(lifeform: &Value) -> String {
    let nutrients = &lifeform["nutrients"];
    format!(
        "{}  {}  {}, {}  {} tokens",
        text(lifeform, "id"),
        text(lifeform, "name"),
        text(lifeform, "status"),
        text(lifeform, "mode"),
        nutrients["available"]["tokens"]
            .as_i64()
            .or_else(|| nutrients["balance"]["tokens"].as_i64())
            .unwrap_or_default()
    )
}

/// Starts or stops a lifeform.
pub(super) async fn act(config: Config, which: Option<String>, action: &str, form: Form) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.as_deref()).await?;
    let answer = client.ask(Method::POST, &format!("/v1/lifeforms/{id}/{action}"), Some(&json!({}))).await?;
    Ok(form.show(&answer, |answer| vec![line(answer)]))
}

/// Credits a lifeform with tokens.
pub(super) async fn top_up(
    config: Config,
    which: Which,
    tokens: i64,
    memo: Option<String>,
    form: Form,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    let body = json!({"amount": tokens, "currency": "tokens", "memo": memo.unwrap_or_else(|| "by hand".to_owned())});
    let path = format!("/v1/lifeforms/{id}/resources/transactions");
    let answer = client.ask(Method::POST, &path, Some(&body)).await?;
    Ok(form.show(&answer, |answer| vec![format!("{} tokens", answer["balance"]["tokens"])]))
}

/// Prints the health of the daemon, its lifeforms, and what waits for a decision.
pub(super) async fn status(config: Config, form: Form) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let health = client.ask(Method::GET, "/health", None).await?;
    let me = client.ask(Method::GET, "/v1/me", None).await?;
    let lifeforms = client.lifeforms().await?;
    let waiting = client.ask(Method::GET, "/v1/approvals", None).await?;
    let answer = json!({
        "address": client.base, "health": health, "me": me, "lifeforms": lifeforms, "approvals": waiting["approvals"],
    });
    Ok(form.show(&answer, |answer| {
        let mut lines = vec![format!(
            "{}: {}, as {}",
            client.base,
            text(&answer["health"], "status"),
            text(&answer["me"], "principal")
        )];
        for (part, state) in answer["health"]["parts"].as_object().into_iter().flatten() {
            lines.push(format!("  {part}: {}", state.as_str().map_or_else(|| state.to_string(), str::to_owned)));
        }
        lines.extend(answer["lifeforms"].as_array().into_iter().flatten().map(line));
        let waits = answer["approvals"].as_array().map_or(0, Vec::len);
        if waits > 0 {
            lines.push(format!("{waits} wait for a decision: lifeformd approvals"));
        }
        lines
    }))
}
