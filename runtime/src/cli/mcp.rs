//! `lifeformd mcp`: MCP over standard input and output, for clients that start their servers. Each message is forwarded
//! to the `/mcp` route of the running daemon, so both have the same memory.

use std::process::ExitCode;

use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::client::Client;
use super::{say, say_error};
use crate::config::Config;

/// The error code for a message that could not be delivered to the daemon (JSON-RPC 2.0 §5.1).
const INTERNAL_ERROR: i64 = -32603;
const PARSE_ERROR: i64 = -32700;

pub(super) async fn run(config: Config) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    // The client may start this before the daemon and send its first message later. The error tells the user why there
    // is no response.
    if let Err(error) = client.ask(Method::GET, "/health", None).await {
        say_error(&format!("{error:#}"));
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut version: Option<String> = None;
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            refuse(&Value::Null, PARSE_ERROR, "this is no JSON");
            continue;
        };
        match forward(&client, line, version.as_deref()).await {
            Ok(answers) => {
                for answer in answers {
                    // The agreed version is sent with each later message.
                    if let Some(agreed) = answer["result"]["protocolVersion"].as_str() {
                        version = Some(agreed.to_owned());
                    }
                    say(&answer.to_string());
                }
            }
            Err(error) => match message.get("id") {
                Some(id) => refuse(id, INTERNAL_ERROR, &format!("{error:#}")),
                None => say_error(&format!("{error:#}")),
            },
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse(id: &Value, code: i64, message: &str) {
    say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string());
}

/// Forwards a message and returns the responses; none for a notification.
async fn forward(client: &Client, message: String, version: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let mut request = client.post("/mcp").header(ACCEPT, "application/json, text/event-stream");
    if let Some(version) = version {
        request = request.header("mcp-protocol-version", version);
    }
    let response = request.header(CONTENT_TYPE, "application/json").body(message).send().await?;
    let status = response.status();
    let text = response.text().await?;
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let mut answers: Vec<Value> = match read(&text) {
        Some(answer) => vec![answer],
        None => text.lines().filter_map(|line| read(line.strip_prefix("data:")?.trim())).collect(),
    };
    answers.retain(|answer| answer["jsonrpc"] == "2.0");
    if !status.is_success() && answers.is_empty() {
        anyhow::bail!("{status}: {text}");
    }
    Ok(answers)
}
