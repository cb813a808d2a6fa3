//! `lifeformd tools`: lists the tools, and gives them to lifeforms.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::say;
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Tools {
    /// Lists the named tools with their single tools, and the hosts and MCP servers that tools may reach.
    List,
    /// Shows the tools of an MCP server whose definitions are new or were changed, and accepts them.
    Accept {
        /// The name of the server.
        server: String,
        /// The name of a single tool at the server.
        tool: Option<String>,
        /// Only shows them.
        #[arg(long)]
        dry_run: bool,
    },
    /// Gives a lifeform a named tool.
    Give {
        /// The id of the tool.
        tool: String,
        /// The id of the lifeform (default: the first).
        #[arg(long)]
        lifeform: Option<String>,
    },
    /// Takes a named tool from a lifeform.
    Take {
        /// The id of the tool.
        tool: String,
        /// The id of the lifeform (default: the first).
        #[arg(long)]
        lifeform: Option<String>,
    },
    /// Lists what the calls of a lifeform did outside.
    Effects {
        /// The id of the lifeform (default: the first).
        #[arg(long)]
        lifeform: Option<String>,
    },
}

pub(super) async fn run(config: Config, command: Tools) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    match command {
        Tools::List => list(&client.ask(Method::GET, "/v1/tools", None).await?),
        Tools::Accept { server, tool, dry_run } => accept(&client, &server, tool.as_deref(), dry_run).await?,
        Tools::Give { tool, lifeform } => {
            let life = of(&client, lifeform).await?;
            let mut tools = given(&client, &life).await?;
            if !tools.iter().any(|used| used["use"] == *tool) {
                tools.push(json!({"use": tool}));
            }
            set(&client, &life, tools).await?;
        }
        Tools::Take { tool, lifeform } => {
            let life = of(&client, lifeform).await?;
            let mut tools = given(&client, &life).await?;
            let before = tools.len();
            tools.retain(|used| used["use"] != *tool);
            if tools.len() == before {
                bail!("{life} was not given {tool}");
            }
            set(&client, &life, tools).await?;
        }
        Tools::Effects { lifeform } => effects(&client, &of(&client, lifeform).await?).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what is not accepted of a server, and accepts it as it was shown.
async fn accept(client: &Client, server: &str, only: Option<&str>, dry_run: bool) -> anyhow::Result<()> {
    let shown = client.ask(Method::GET, "/v1/tools", None).await?;
    let found = shown["servers"].as_array().into_iter().flatten().find(|known| known["name"] == *server);
    let Some(found) = found else { bail!("there is no MCP server {server}") };
    if let Some(error) = found["error"].as_str() {
        bail!("{error}");
    }
    let mut count = 0;
    for tool in found["tools"].as_array().into_iter().flatten() {
        let [name, state, hash] = ["name", "state", "hash"].map(|key| tool[key].as_str().unwrap_or_default());
        if state == "accepted" || only.is_some_and(|only| only != name) {
            continue;
        }
        count += 1;
        say(&format!("{name} ({state})"));
        if !tool["accepted"].is_null() {
            say(&format!("    was: {}", tool["accepted"]));
        }
        say(&format!("    is:  {} {}", tool["description"], tool["parameters"]));
        if !dry_run {
            let body = json!({"server": server, "tool": name, "hash": hash});
            client.ask(Method::POST, "/v1/tools/pins", Some(&body)).await?;
            say("    accepted");
        }
    }
    if count == 0 {
        say("every definition is accepted");
    }
    Ok(())
}

/// Returns the id of the named lifeform, or of the first.
async fn of(client: &Client, lifeform: Option<String>) -> anyhow::Result<String> {
    if let Some(id) = lifeform {
        return Ok(id);
    }
    let page = client.ask(Method::GET, "/v1/lifeforms?limit=1", None).await?;
    match page["lifeforms"][0]["id"].as_str() {
        Some(id) => Ok(id.to_owned()),
        None => bail!("there is no lifeform"),
    }
}

/// Returns the tools of a lifeform, without what a model sees of them now.
async fn given(client: &Client, life: &str) -> anyhow::Result<Vec<Value>> {
    let mut shown = client.ask(Method::GET, &format!("/v1/lifeforms/{life}/tools"), None).await?;
    let Value::Array(mut tools) = shown["tools"].take() else { return Ok(Vec::new()) };
    for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
        tool.remove("now");
    }
    Ok(tools)
}

async fn set(client: &Client, life: &str, tools: Vec<Value>) -> anyhow::Result<()> {
    let body = json!({"tools": tools});
    let shown = client.ask(Method::PUT, &format!("/v1/lifeforms/{life}/tools"), Some(&body)).await?;
    for tool in shown["tools"].as_array().into_iter().flatten() {
        say(&format!("{life} has {}", tool["use"].as_str().unwrap_or_default()));
        single(&tool["now"]);
    }
    if shown["tools"].as_array().is_none_or(Vec::is_empty) {
        say(&format!("{life} has no tools"));
    }
    Ok(())
}

/// Prints the single tools of a named one, or the reason why there are none.
fn single(shown: &Value) {
    for tool in shown["tools"].as_array().into_iter().flatten() {
        let text = |key: &str| tool[key].as_str().unwrap_or_default();
        let description = text("description").lines().next().unwrap_or_default();
        let state = if text("state") == "accepted" { String::new() } else { format!("  ({})", text("state")) };
        say(&format!("    {}  {}{state}  {description}", text("name"), text("effect")));
    }
    if let Some(error) = shown["error"].as_str() {
        say(&format!("    {error}"));
    }
}

/// Returns an approval rule in words.
fn asks(approval: &Value) -> &'static str {
    match approval.as_str() {
        Some("never") => "asks never",
        Some("always") => "asks before each call",
        _ => "asks before writes",
    }
}

fn list(shown: &Value) {
    for tool in shown["named"].as_array().into_iter().flatten() {
        let definition = &tool["definition"];
        let place = match (tool["is_configured"] == true, tool["is_shipped"] == true) {
            (true, _) => "in the configuration",
            (_, true) => "shipped",
            _ => "over the API",
        };
        let price = definition["price_micro_usd"]
            .as_u64()
            .map(|price| format!(", {price} micro-dollars a call"))
            .unwrap_or_default();
        let asks = asks(&definition["approval"]);
        say(&format!("{}  {asks}; defined {place}{price}", tool["id"].as_str().unwrap_or_default()));
        single(tool);
    }
    for server in shown["servers"].as_array().into_iter().flatten() {
        say(&format!("MCP server {}  {}", server["name"].as_str().unwrap_or_default(), asks(&server["approval"])));
        single(server);
    }
    for host in shown["hosts"].as_array().into_iter().flatten() {
        say(&format!("host {}", host.as_str().unwrap_or_default()));
    }
    if shown["named"].as_array().is_none_or(Vec::is_empty) {
        say("there are no named tools: [tools.named] in the configuration, or PUT /v1/tools/{id}, defines one");
    }
}

async fn effects(client: &Client, life: &str) -> anyhow::Result<()> {
    let (mut after, mut lines) = (String::new(), Vec::new());
    loop {
        let page = client.ask(Method::GET, &format!("/v1/lifeforms/{life}/effects?after={after}"), None).await?;
        for effect in page["effects"].as_array().into_iter().flatten() {
            let text = |key: &str| effect[key].as_str().unwrap_or_default();
            let [at, state, tool, arguments, place, key, work] =
                ["at", "state", "tool", "arguments", "place", "id", "work"].map(text);
            let more = effect["result"].as_str().or(effect["why"].as_str()).unwrap_or_default();
            let (key, more) = (key.get(..12).unwrap_or(key), more.replace('\n', " "));
            lines.push(format!("{at}  {state}  {tool} {arguments} at {place} for {work}  {key}  {more}"));
        }
        match &page["next"] {
            Value::String(next) => next.clone_into(&mut after),
            _ => break,
        }
    }
    // The time comes first in a line.
    lines.sort();
    lines.iter().for_each(|line| say(line));
    if lines.is_empty() {
        say("no effects");
    }
    Ok(())
}
