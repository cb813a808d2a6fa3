//! `lifeformd goal` and `remind`: the goals of a lifeform, and its reminders.

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::lifeforms::{Form, Which, text};
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Goal {
    /// Lists the goals with their subgoals.
    List,
    /// Adds a goal.
    Add {
        /// The title, one line.
        title: String,
        /// A longer description.
        #[arg(long)]
        description: Option<String>,
        /// The time at which the lifeform pursues it, for example 2026-12-01T09:00:00Z (default: now).
        #[arg(long)]
        at: Option<String>,
        /// The deadline.
        #[arg(long)]
        deadline: Option<String>,
    },
    /// Marks a goal as reached.
    Done {
        /// The id, as listed.
        id: String,
    },
    /// Removes a goal.
    Remove {
        /// The id, as listed.
        id: String,
    },
}

pub(super) async fn goal(config: Config, which: Which, goal: Option<Goal>, form: Form) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    let path = format!("/v1/lifeforms/{id}/goals");
    let one = |goal: &Value| vec![format!("{}  {}  {}", text(goal, "id"), text(goal, "status"), text(goal, "title"))];
    Ok(match goal.unwrap_or(Goal::List) {
        Goal::List => {
            let answer = client.ask(Method::GET, &path, None).await?;
            form.show(&answer, |answer| {
                let mut lines = Vec::new();
                tree(&answer["goals"], 0, &mut lines);
                if lines.is_empty() {
                    lines.push("there are no goals".to_owned());
                }
                lines
            })
        }
        Goal::Add { title, description, at, deadline } => {
            let mut body = json!({"title": title});
            for (member, value) in [("description", description), ("at", at), ("deadline", deadline)] {
                if let Some(value) = value {
                    body[member] = value.into();
                }
            }
            form.show(&client.ask(Method::POST, &path, Some(&body)).await?, one)
        }
        Goal::Done { id } => {
            let body = json!({"status": "done"});
            form.show(&client.ask(Method::PATCH, &format!("{path}/{id}"), Some(&body)).await?, one)
        }
        Goal::Remove { id } => {
            let answer = client.ask(Method::DELETE, &format!("{path}/{id}"), None).await?;
            form.show(&answer, |_| vec![format!("{id} is removed")])
        }
    })
}

fn tree(goals: &Value, depth: usize, lines: &mut Vec<String>) {
    for goal in goals.as_array().into_iter().flatten() {
        lines.push(format!(
            "{}{}  {}  {}",
            "  ".repeat(depth),
            text(goal, "id"),
            text(goal, "status"),
            text(goal, "title")
        ));
        tree(&goal["subgoals"], depth + 1, lines);
    }
}

/// Sets a reminder, or lists the schedules and reminders without a text.
pub(super) async fn remind(
    config: Config,
    which: Which,
    what: Option<String>,
    [at, cron, zone]: [Option<String>; 3],
    form: Form,
) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    let path = format!("/v1/lifeforms/{id}/schedules");
    let line = |schedule: &Value| {
        let next = schedule["next"].as_str().or_else(|| schedule["at"].as_str()).unwrap_or_default();
        format!("{}  {next}  {}", text(schedule, "id"), text(schedule, "what"))
    };
    let Some(what) = what else {
        let answer = client.ask(Method::GET, &path, None).await?;
        return Ok(form.show(&answer, |answer| {
            let all: Vec<String> = answer["schedules"].as_array().into_iter().flatten().map(line).collect();
            if all.is_empty() { vec!["there are no reminders".to_owned()] } else { all }
        }));
    };
    let mut body = json!({"what": what, "remind": true});
    for (member, value) in [("at", at), ("cron", cron), ("zone", zone)] {
        if let Some(value) = value {
            body[member] = value.into();
        }
    }
    let answer = client.ask(Method::POST, &path, Some(&body)).await?;
    Ok(form.show(&answer, |answer| vec![line(answer)]))
}
