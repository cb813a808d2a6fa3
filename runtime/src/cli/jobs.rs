//! `lifeformd jobs`: jobs, with their state, their output and what they wait for.

use std::process::ExitCode;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};
use store::Timestamp;

use super::client::Client;
use super::lifeforms::{Form, text};
use crate::config::Config;

/// The maximum number of pages that a list reads.
const PAGES_MAX: usize = 25;

#[derive(Subcommand)]
pub(super) enum Jobs {
    /// Lists jobs, the latest change first.
    List {
        /// Only jobs with this status: pending, running, waiting_for_tools, waiting_for_approval, completed, failed or cancelled.
        #[arg(long)]
        status: Option<String>,
        /// The maximum number of jobs.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Shows a job.
    Show {
        /// The id.
        id: String,
    },
    /// Cancels a job.
    Cancel {
        /// The id.
        id: String,
    },
    /// Runs a failed job again from the step that failed.
    Retry {
        /// The id.
        id: String,
    },
}

pub(super) async fn run(config: Config, command: Option<Jobs>, form: Form) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let (id, method, act) = match command {
        None => return list(&client, None, 20, form).await,
        Some(Jobs::List { status, limit }) => return list(&client, status.as_deref(), limit, form).await,
        Some(Jobs::Show { id }) => (id, Method::GET, ""),
        Some(Jobs::Cancel { id }) => (id, Method::POST, "/cancel"),
        Some(Jobs::Retry { id }) => (id, Method::POST, "/retry"),
    };
    let body = json!({});
    let answer =
        client.ask(method.clone(), &format!("/v1/jobs/{id}{act}"), (method == Method::POST).then_some(&body)).await?;
    Ok(form.show(&answer, shown))
}

async fn list(client: &Client, status: Option<&str>, limit: usize, form: Form) -> anyhow::Result<ExitCode> {
    let (mut all, mut after) = (Vec::new(), String::new());
    let status = status.map(|status| format!("&status={status}")).unwrap_or_default();
    for _ in 0..PAGES_MAX {
        let page = client.ask(Method::GET, &format!("/v1/jobs?limit=200&after={after}{status}"), None).await?;
        all.extend(page["jobs"].as_array().cloned().unwrap_or_default());
        match &page["next"] {
            Value::String(next) => next.clone_into(&mut after),
            _ => {
                after.clear();
                break;
            }
        }
    }
    let updated = |job: &Value| text(job, "updated_at").parse::<Timestamp>().ok();
    all.sort_by_key(|job| std::cmp::Reverse(updated(job)));
    all.truncate(limit);
    let answer = json!({"jobs": all, "is_cut": !after.is_empty()});
    Ok(form.show(&answer, |answer| {
        let mut lines: Vec<String> = answer["jobs"].as_array().into_iter().flatten().map(line).collect();
        if lines.is_empty() {
            lines.push("there are no jobs".to_owned());
        }
        if answer["is_cut"] == true {
            lines.push(format!("only the first {} jobs by id were read: give --status", PAGES_MAX * 200));
        }
        lines
    }))
}

fn line(job: &Value) -> String {
    let error = job["error"].as_str().map(|error| format!("  {error}")).unwrap_or_default();
    format!(
        "{}  {}  {}  {}{error}",
        text(job, "updated_at"),
        text(job, "job_id"),
        text(job, "fascicle"),
        text(job, "status")
    )
}

fn shown(job: &Value) -> Vec<String> {
    let mut lines = vec![line(job)];
    lines.extend(
        job["events"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|event| format!("  {} {}: {}", text(event, "stage"), text(event, "type"), text(event, "message"))),
    );
    lines.extend(
        job["waits"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|wait| format!("  {} waits: lifeformd approvals", text(wait, "step"))),
    );
    if !job["output"].is_null() {
        lines.push(format!(
            "  output: {}",
            job["output"].as_str().map_or_else(|| job["output"].to_string(), str::to_owned)
        ));
    }
    lines
}
