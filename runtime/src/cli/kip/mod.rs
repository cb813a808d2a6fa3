//! `lifeformd kip`: runs a command, a file, a shell, or JSON requests by line.

mod jsonl;
mod shell;
mod table;

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use nexus::kip::lang::parser::seems_to_write;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::{say, say_error};
use crate::config::Config;

/// The options of `lifeformd kip`.
#[derive(Args)]
pub(super) struct Kip {
    /// The lifeform (default: the first).
    #[arg(long)]
    lifeform: Option<String>,
    /// Uses the commons, which all lifeforms share, instead of a lifeform's own mind.
    #[arg(long, conflicts_with = "lifeform")]
    commons: bool,
    /// The values of placeholders, as a JSON object.
    #[arg(long, default_value = "{}")]
    parameters: String,
    /// Checks the command without writing.
    #[arg(long)]
    dry_run: bool,
    /// Refuses commands that could write.
    #[arg(long)]
    readonly: bool,
    /// Prints rows as a table.
    #[arg(long)]
    table: bool,
    /// Reads one JSON request per line from standard input, and writes one JSON response per line. Uses a new nexus in
    /// memory and needs no daemon; {"reset": true} starts over.
    #[arg(long, conflicts_with_all = ["lifeform", "commons"])]
    jsonl: bool,
    /// The command, or a file that contains one; "-" reads it from standard input. Without it, a terminal opens a
    /// shell, and a pipe is read as one command.
    command: Option<String>,
}

/// The target of commands.
struct Door {
    client: Client,
    path: String,
    parameters: Value,
    dry_run: bool,
    readonly: bool,
}

impl Door {
    async fn ask(&self, command: &str) -> anyhow::Result<Value> {
        let request = json!({
            "command": command,
            "parameters": self.parameters,
            "dry_run": self.dry_run,
            "readonly": self.readonly,
        });
        self.client.ask(Method::POST, &self.path, Some(&request)).await
    }
}

pub(super) async fn run(settings: &super::Settings, kip: Kip) -> anyhow::Result<ExitCode> {
    if kip.jsonl {
        return jsonl::run();
    }
    let config: Config = settings.load()?;
    let parameters: Value = serde_json::from_str(&kip.parameters).context("--parameters is a JSON object")?;
    anyhow::ensure!(parameters.is_object(), "--parameters is a JSON object");
    let client = Client::new(&config)?;
    let nexus = if kip.commons {
        "commons".to_owned()
    } else {
        client.lifeform(kip.lifeform.as_deref()).await?["id"].as_str().unwrap_or_default().to_owned()
    };
    let door = Door {
        client,
        path: format!("/v1/nexus/{nexus}/kip"),
        parameters,
        dry_run: kip.dry_run,
        readonly: kip.readonly,
    };
    let command = match kip.command.as_deref() {
        None if std::io::stdin().is_terminal() => return shell::run(door, &config).await,
        None | Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        Some(file) if Path::new(file).is_file() => {
            std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))?
        }
        Some(file) if file.ends_with(".kip") => anyhow::bail!("there is no file {file}"),
        Some(command) => command.to_owned(),
    };
    let answer = door.ask(&command).await?;
    match table::of(&command, &answer).filter(|_| kip.table) {
        Some(table) => say(&table),
        None => say(&serde_json::to_string_pretty(&answer)?),
    }
    if kip.dry_run && seems_to_write(&command) {
        say_error("nothing was written: this was a dry run");
    }
    Ok(if answer.get("error").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
