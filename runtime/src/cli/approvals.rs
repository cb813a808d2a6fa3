//! `lifeformd approvals`: lists what waits for a decision, and decides it.

use std::process::ExitCode;

use clap::Subcommand;
use neurons::tools::Form;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use super::say;
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Approvals {
    /// Approves what waits under an id. A call whose outcome is unknown was not done, and is made again.
    Approve {
        /// The id, as listed.
        id: String,
    },
    /// Refuses what waits under an id. A call whose outcome is unknown is left at that.
    Refuse {
        /// The id, as listed.
        id: String,
        /// The reason, for the model.
        reason: Option<String>,
    },
    /// Answers the form that a server asks.
    Answer {
        /// The id, as listed.
        id: String,
        /// The answers: `field=value`, each.
        #[arg(required = true)]
        answers: Vec<String>,
    },
    /// Says that the calls whose outcome is unknown were done.
    Done {
        /// The id, as listed.
        id: String,
        /// The result, for the model.
        result: Option<String>,
    },
}

pub(super) async fn run(config: Config, command: Option<Approvals>) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let (id, decision, comment) = match command {
        None => {
            list(&client).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Approvals::Answer { id, answers }) => return answer(&client, &id, &answers).await,
        Some(Approvals::Approve { id }) => (id, "approve", None),
        Some(Approvals::Refuse { id, reason }) => (id, "refuse", reason),
        Some(Approvals::Done { id, result }) => (id, "done", result),
    };
    let body = json!({"decision": decision, "comment": comment});
    let decided = client.ask(Method::POST, &format!("/v1/approvals/{id}"), Some(&body)).await?;
    say(&format!("{id}: {decision}; {} goes on", decided["job"].as_str().unwrap_or_default()));
    Ok(ExitCode::SUCCESS)
}

/// Answers a form with values as they are written on a command line.
async fn answer(client: &Client, id: &str, answers: &[String]) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/approvals/{id}");
    let waits = client.ask(Method::GET, &path, None).await?;
    let form = waits["calls"].as_array().into_iter().flatten().find_map(|call| Form::deserialize(&call["form"]).ok());
    let form = form.ok_or_else(|| anyhow::anyhow!("{id} asks for no answers: approve or refuse"))?;
    let read = form.read(&answers.join("\n"));
    let read = read.ok_or_else(|| anyhow::anyhow!("answers are written field=value, with the fields of the form"))?;
    let body = json!({"decision": "answer", "answers": read});
    let decided = client.ask(Method::POST, &path, Some(&body)).await?;
    say(&format!("{id}: answered; {} goes on", decided["job"].as_str().unwrap_or_default()));
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client) -> anyhow::Result<()> {
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let page = client.ask(Method::GET, &format!("/v1/approvals?after={after}"), None).await?;
        for approval in page["approvals"].as_array().into_iter().flatten() {
            count += 1;
            let text = |key: &str| approval[key].as_str().unwrap_or_default();
            let asked = approval["participant"].as_str().map(|who| format!(", for {who}")).unwrap_or_default();
            say(&format!("{}  in {}{asked}, since {}", text("id"), text("root"), text("since")));
            for call in approval["calls"].as_array().into_iter().flatten() {
                let why = call["why"].as_str().map(|why| format!("  ({why})")).unwrap_or_default();
                let doubt = if call["unsure"] == true { "  nobody knows whether it was done" } else { "" };
                say(&format!("    {} {}{why}{doubt}", call["tool"].as_str().unwrap_or_default(), call["arguments"]));
                if let Ok(form) = Form::deserialize(&call["form"]) {
                    say(&format!("      the server {} asks: {}", form.server, form.message));
                    for (field, about) in form.fields() {
                        say(&format!("        {field}: {about}"));
                    }
                }
                for (argument, step) in call["takes"].as_object().into_iter().flatten() {
                    say(&format!("      {argument}: what this step finds: {}", step.as_str().unwrap_or_default()));
                }
            }
            if let Some(message) = approval["message"].as_str() {
                say(&format!("    {message}"));
            }
        }
        match &page["next"] {
            Value::String(next) => next.clone_into(&mut after),
            _ => break,
        }
    }
    if count == 0 {
        say("nothing waits for an approval");
    }
    Ok(())
}
