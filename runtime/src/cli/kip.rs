//! `lifeformd kip`

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::say;
use crate::config::Config;

pub(super) async fn run(
    config: Config,
    lifeform: Option<String>,
    parameters: &str,
    dry_run: bool,
    command: String,
) -> anyhow::Result<ExitCode> {
    let parameters: Value = serde_json::from_str(parameters).context("--parameters is a JSON object")?;
    let command = if command == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        command
    };
    let client = Client::new(&config)?;
    let lifeform = client.lifeform(lifeform.as_deref()).await?;
    let path = format!("/v1/lifeforms/{}/kip", lifeform["id"].as_str().unwrap_or_default());
    let answer = client
        .ask(Method::POST, &path, Some(&json!({"command": command, "parameters": parameters, "dry_run": dry_run})))
        .await?;
    say(&serde_json::to_string_pretty(&answer)?);
    Ok(if answer.get("error").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
