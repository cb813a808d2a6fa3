//! `lifeformd token`

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::client::Client;
use super::say;
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Token {
    /// Makes a token for a principal, such as user:ada, and prints it.
    Add {
        /// For whom.
        principal: String,
        /// `operator`, `participant`, `observer`, or `lifeform` for one that lives elsewhere.
        #[arg(long, default_value = "participant")]
        role: String,
    },
    /// Lists who has a token.
    List,
    /// Takes every token of a principal back.
    Revoke {
        /// Whose.
        principal: String,
    },
}

pub(super) async fn run(config: Config, command: Token) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    match command {
        Token::Add { principal, role } => {
            let made =
                client.ask(Method::POST, "/v1/tokens", Some(&json!({"principal": principal, "role": role}))).await?;
            say(made["token"].as_str().unwrap_or_default());
        }
        Token::List => {
            let listed = client.ask(Method::GET, "/v1/tokens", None).await?;
            for one in listed["principals"].as_array().into_iter().flatten() {
                say(&format!("{}\t{}", one["id"].as_str().unwrap_or_default(), one["roles"]));
            }
        }
        Token::Revoke { principal } => {
            client.ask(Method::DELETE, &format!("/v1/tokens/{principal}"), None).await?;
            say(&format!("{principal} has no token any more"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
