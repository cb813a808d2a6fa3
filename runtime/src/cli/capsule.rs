//! `lifeformd capsule`: imports and exports knowledge as files.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::say;
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Capsule {
    /// Imports a .kip file as one transaction.
    Import {
        /// The lifeform, or "commons" (default: the first lifeform).
        #[arg(long)]
        lifeform: Option<String>,
        /// Shows the resulting changes without writing.
        #[arg(long)]
        dry_run: bool,
        /// The file.
        file: PathBuf,
    },
    /// Exports the elements that a pattern matches, with their definitions, as a .kip file.
    Export {
        /// The lifeform, or "commons" (default: the first lifeform).
        #[arg(long)]
        lifeform: Option<String>,
        /// The name of the capsule.
        #[arg(long, default_value = "export")]
        name: String,
        /// The version of the capsule.
        #[arg(long, default_value = "1.0.0")]
        version: String,
        /// The distance around the matches to include, in links.
        #[arg(long, default_value_t = 0)]
        hops: usize,
        /// The file to write (default: standard output).
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// The variable of the pattern to export, such as ?x.
        target: String,
        /// The pattern, for example: WHERE { ?x {type: "Fact"} }
        pattern: String,
    },
}

pub(super) async fn run(config: Config, command: Capsule) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let of = |lifeform: Option<String>| {
        let client = &client;
        async move {
            if lifeform.as_deref() == Some("commons") {
                return Ok("/v1/nexus/commons".to_owned());
            }
            let found = client.lifeform(lifeform.as_deref()).await?;
            anyhow::Ok(format!("/v1/nexus/{}", found["id"].as_str().unwrap_or_default()))
        }
    };
    let answer: Value = match command {
        Capsule::Import { lifeform, dry_run, file } => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            client.send_text(&format!("{}/capsules?dry_run={dry_run}", of(lifeform).await?), text).await?
        }
        Capsule::Export { lifeform, name, version, hops, output, target, pattern } => {
            let query = json!({"target": target, "pattern": pattern, "hops": hops, "name": name, "version": version});
            let answer = client.ask(Method::POST, &format!("{}/export", of(lifeform).await?), Some(&query)).await?;
            if let Some(text) = answer["result"]["capsule"].as_str() {
                match &output {
                    Some(file) => {
                        std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))?
                    }
                    None => {
                        say(text.trim_end());
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                json!({
                    "written": output,
                    "concepts": answer["result"]["concepts"],
                    "propositions": answer["result"]["propositions"],
                })
            } else {
                answer
            }
        }
    };
    say(&serde_json::to_string_pretty(&answer)?);
    Ok(if answer.get("error").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
