//! `lifeformd token`: manages access tokens.

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::client::Client;
use super::say;
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Token {
    /// Creates a token for a principal, such as user:ada, and prints it.
    Add {
        /// The principal.
        principal: String,
        /// The role: `operator`, `participant`, `observer`, or `lifeform` for a lifeform of another daemon.
        #[arg(long, default_value = "participant")]
        role: String,
        /// A scope besides the principal's own, such as org:acme; may be repeated. All tokens of a principal have the
        /// same scopes.
        #[arg(long = "scope")]
        scopes: Vec<String>,
    },
    /// Sets the scopes of a principal, and removes all others; its tokens stay.
    Scopes {
        /// The principal.
        principal: String,
        /// The scopes, such as org:acme and team:red.
        scopes: Vec<String>,
    },
    /// Lists the tokens with their names, principals, roles and scopes.
    List,
    /// Revokes the tokens of a principal.
    Revoke {
        /// The principal.
        principal: String,
        /// The name of a single token, as shown by `list`.
        #[arg(long)]
        token: Option<String>,
    },
}

pub(super) async fn run(config: Config, command: Token) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    match command {
        Token::Add { principal, role, scopes } => {
            let body = json!({"principal": principal, "role": role, "scopes": scopes});
            let made = client.ask(Method::POST, "/v1/tokens", Some(&body)).await?;
            say(made["token"].as_str().unwrap_or_default());
        }
        Token::Scopes { principal, scopes } => {
            let body = json!({"scopes": scopes});
            let changed = client.ask(Method::PATCH, &format!("/v1/tokens/{principal}"), Some(&body)).await?;
            say(&format!("{principal} is in {}", changed["scopes"]));
        }
        Token::List => {
            let listed = client.ask(Method::GET, "/v1/tokens", None).await?;
            for one in listed["principals"].as_array().into_iter().flatten() {
                let [token, id] = ["token", "id"].map(|key| one[key].as_str().unwrap_or_default());
                say(&format!("{token}\t{id}\t{}\t{}", one["roles"], one["scopes"]));
            }
        }
        Token::Revoke { principal, token } => {
            let only = token.as_ref().map(|token| format!("?token={token}")).unwrap_or_default();
            client.ask(Method::DELETE, &format!("/v1/tokens/{principal}{only}"), None).await?;
            match token {
                Some(token) => say(&format!("{token} of {principal} is taken back")),
                None => say(&format!("{principal} has no token any more")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
