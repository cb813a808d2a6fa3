//! `lifeformd models`, and the download at the first start.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use neurons::llm::JsonMode;
use neurons::llm::weights::{KNOWN, Kept, Places, Progress, Task, Weights};

use super::{say, say_error};
use crate::config::{Config, Embedded};
use crate::local_servers;

/// The maximum number of models of a server that are printed.
const SHOWN_MAX: usize = 8;

#[derive(Subcommand)]
pub(super) enum Models {
    /// Downloads the weights of a model and verifies them (default: the configured models).
    Pull {
        /// The model.
        name: Option<String>,
    },
    /// Lists the known models, and marks the downloaded ones.
    List,
    /// Verifies the downloaded weights against their pinned hashes.
    Verify {
        /// The model (default: all downloaded ones).
        name: Option<String>,
    },
    /// Uses a model of a server for answers: tries it, and writes it into lifeformd.toml in the data folder.
    Use {
        /// The name of the model at the server.
        name: String,
        /// The base URL of the server, including /v1 (default: the server on this machine that has the model).
        #[arg(long)]
        url: Option<String>,
        /// The environment variable that contains the API key, for a server that needs one.
        #[arg(long)]
        key_env: Option<String>,
        /// The tier: economy, standard or high. A tier without a model uses the nearest one.
        #[arg(long, default_value = "standard")]
        tier: String,
    },
    /// Removes the weights of a model.
    Rm {
        /// The model.
        name: String,
    },
}

fn named(name: &str) -> anyhow::Result<Weights> {
    let known: Vec<&str> = KNOWN.iter().map(|weights| weights.name).collect();
    Weights::named(name).with_context(|| format!("there is no model \"{name}\"; there are {}", known.join(", ")))
}

/// Returns the model with this name, if it supports the task.
pub(super) fn known(name: &str, task: Task) -> anyhow::Result<Weights> {
    let fit: Vec<String> =
        KNOWN.iter().filter(|known| known.task == task).map(|known| format!("\"{}\"", known.name)).collect();
    let key = if task == Task::Chat { "embedded" } else { "embedder" };
    Weights::named(name)
        .filter(|weights| weights.task == task)
        .with_context(|| format!("models.{key} names \"{name}\"; there are {} and \"none\"", fit.join(", ")))
}

pub(super) fn places(config: &Config) -> Places {
    Places { cache: config.models.folder.clone(), offline: config.offline, hub: config.models.hub.clone() }
}

pub(super) async fn run(config: Config, command: Models) -> anyhow::Result<ExitCode> {
    let places = places(&config);
    match command {
        Models::Pull { name: Some(name) } => pull(named(&name)?, &places).await?,
        Models::Pull { name: None } => {
            let Embedded { embedded, embedder, multilingual_embedder, .. } = &config.models;
            let embedders = [(embedder, Task::Embeddings), (multilingual_embedder, Task::Embeddings)];
            for (name, task) in [(embedded, Task::Chat)].into_iter().chain(embedders) {
                if name != "none" {
                    pull(known(name, task)?, &places).await?;
                }
            }
        }
        Models::List => list(&config, &places),
        Models::Verify { name } => {
            let asked = match &name {
                Some(name) => vec![named(name)?],
                None => KNOWN.into_iter().filter(|weights| weights.kept(&places) == Kept::Pulled).collect(),
            };
            if asked.is_empty() {
                say("no model is here yet: lifeformd models pull fetches those of the configuration");
            }
            let mut whole = true;
            for weights in asked {
                match weights.verify(&places) {
                    Ok(()) => say(&format!("ok   {}", weights.name)),
                    Err(error) => {
                        whole = false;
                        say(&format!("BAD  {}: {error}", weights.name));
                    }
                }
            }
            return Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Models::Use { name, url, key_env, tier } => use_model(&config, &name, url, key_env, &tier).await?,
        Models::Rm { name } => {
            let freed = named(&name)?.remove(&places)?;
            say(&format!("{name} is gone; {} MB are free again", freed / 1_000_000));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Tries a model of a server, and writes it into the configuration file of the data folder.
async fn use_model(
    config: &Config,
    name: &str,
    url: Option<String>,
    key_env: Option<String>,
    tier: &str,
) -> anyhow::Result<()> {
    let tier: neurons::Tier = serde_json::from_value(tier.into())
        .with_context(|| format!("there is no tier \"{tier}\"; there are economy, standard and high"))?;
    let url = match url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None if config.offline => anyhow::bail!("offline is set, so no server is looked for: give --url"),
        None => {
            let found = local_servers::find().await;
            let has_it = |server: &&local_servers::LocalServer| server.models.iter().any(|model| model == name);
            let server = found.iter().find(has_it);
            let seen: Vec<String> =
                found.iter().map(|server| format!("{}: {}", server.base_url, server.models.join(", "))).collect();
            let none = || match seen.is_empty() {
                true => "no model server answers on this machine; give --url".to_owned(),
                false => format!("no server on this machine has \"{name}\" ({})", seen.join("; ")),
            };
            server.with_context(none)?.base_url.clone()
        }
    };
    let key = crate::config::key(&key_env, &None)?;
    say(&format!("trying {name} at {url} (a tool to call, and JSON to answer) …"));
    let tried = local_servers::try_model(&url, name, &key).await?;
    let file = config.data.join(crate::config::OWN_FILE);
    std::fs::create_dir_all(&config.data)?;
    let text = if file.is_file() { std::fs::read_to_string(&file)? } else { String::new() };
    let text = with_model(&text, &url, key_env.as_deref(), tier, name, &tried)?;
    // The file is complete or as it was.
    let fresh = file.with_extension("toml.new");
    std::fs::write(&fresh, &text)?;
    Config::load(Some(&fresh), &[]).context("the configuration would not load, so it was not changed")?;
    std::fs::rename(&fresh, &file)?;
    let can = if tried.tools { "calls tools" } else { "does not call tools, so it answers without them" };
    say(&format!("{name} answers: {} tokens of context; it {can}", tried.context_tokens));
    say(&format!("written to {}; `lifeformd up` without --config uses it from the next start", file.display()));
    Ok(())
}

/// Returns a configuration in which a tier has a model. Comments and other settings stay.
fn with_model(
    text: &str,
    url: &str,
    key_env: Option<&str>,
    tier: neurons::Tier,
    name: &str,
    tried: &local_servers::Tried,
) -> anyhow::Result<String> {
    use toml_edit::{DocumentMut, Item, Table, value};
    let mut document: DocumentMut = text.parse().context("the configuration file is no TOML")?;
    let tier = serde_json::to_value(tier)?.as_str().unwrap_or_default().to_owned();
    let provider = format!("{tier}_server");
    let table = |document: &mut DocumentMut, outer: &str, inner: &str| {
        let outer = document.entry(outer).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        // Settings of the table that are not asked for here stay, such as a price.
        if !outer.get(inner).is_some_and(Item::is_table) {
            outer[inner] = Item::Table(Table::new());
        }
    };
    table(&mut document, "providers", &provider);
    let of_provider = &mut document["providers"][&provider];
    of_provider["base_url"] = value(url);
    match (key_env, of_provider.as_table_mut()) {
        (Some(variable), _) => of_provider["key_env"] = value(variable),
        (None, Some(table)) => drop(table.remove("key_env")),
        (None, None) => {}
    }
    let json = match tried.json {
        JsonMode::Schema => "schema",
        JsonMode::Object => "object",
        JsonMode::Prompt => "prompt",
    };
    let mut can = toml_edit::InlineTable::new();
    can.insert("json", json.into());
    can.insert("tools", tried.tools.into());
    of_provider["can"] = value(can);
    table(&mut document, "tiers", &tier);
    let of_tier = &mut document["tiers"][&tier];
    of_tier["provider"] = value(provider);
    of_tier["model"] = value(name);
    of_tier["context_tokens"] = value(i64::try_from(tried.context_tokens)?);
    of_tier["small"] = value(tried.small);
    Ok(document.to_string())
}

/// Prints the model servers on this machine, and the command that uses one of their models.
pub(super) async fn name_servers(config: &Config, mut print: impl FnMut(&str)) {
    if config.offline || !config.tiers.is_empty() {
        return;
    }
    for server in local_servers::find().await {
        let shown: Vec<&str> = server.models.iter().take(SHOWN_MAX).map(String::as_str).collect();
        let more = server.models.len().saturating_sub(SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let Some(first) = shown.first() else { continue };
        print(&format!("a model server answers at {}: {}{more}", server.base_url, shown.join(", ")));
        print(&format!("to answer with it: lifeformd models use {first} --data {}", config.data.display()));
    }
}

async fn pull(weights: Weights, places: &Places) -> anyhow::Result<()> {
    for path in prepare(weights, places).await? {
        say(&format!("{} is ready: {}", weights.name, path.display()));
    }
    Ok(())
}

fn list(config: &Config, places: &Places) {
    for weights in KNOWN {
        let Embedded { embedded, embedder, multilingual_embedder, .. } = &config.models;
        let used = [embedded, embedder, multilingual_embedder].into_iter().any(|name| name == weights.name);
        let task = if weights.task == Task::Chat { "chat" } else { "embeddings" };
        let state = if weights.kept(places) == Kept::Pulled { "here" } else { "not here" };
        let megabytes = weights.bytes() / 1_000_000;
        let used = if used { ", in the configuration" } else { "" };
        let untried = if weights.tried { "" } else { ", download not tried" };
        say(&format!(
            "{:<20} {task:<11} {megabytes:>5} MB  {state}{used}{untried}  ({})",
            weights.name, weights.licence
        ));
    }
}

/// Downloads and prepares the weights, and shows the progress.
#[cfg(feature = "embedded")]
pub(super) async fn prepare(weights: Weights, places: &Places) -> anyhow::Result<Vec<PathBuf>> {
    let bar: Mutex<Option<ProgressBar>> = Mutex::new(None);
    // A message that repeats for each file is printed once.
    let said: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let once = |line: String| {
        let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !said.contains(&line) {
            say_error(&line);
            said.push(line);
        }
    };
    let show = |progress: Progress| {
        let mut bar = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match progress {
            Progress::Asking(source) => {
                let (name, megabytes, licence) = (weights.name, weights.bytes() / 1_000_000, weights.licence);
                once(format!("fetching {name} ({megabytes} MB in all, {licence})"));
                once(format!("{name}: from {source}"));
            }
            Progress::Working(what) => once(format!("{}: {what}", weights.name)),
            Progress::Bytes(here, all) => {
                bar.get_or_insert_with(|| ProgressBar::new(all).with_style(style())).set_position(here)
            }
        }
    };
    let ready = weights.prepare(places, &show).await;
    if let Some(bar) = bar.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        bar.finish_and_clear();
    }
    Ok(ready?)
}

#[cfg(not(feature = "embedded"))]
pub(super) async fn prepare(_: Weights, _: &Places) -> anyhow::Result<Vec<PathBuf>> {
    anyhow::bail!("this lifeformd was built without the embedded model")
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_written_beside_what_stands_in_the_file() {
        let tried = local_servers::Tried { context_tokens: 4_096, small: false, tools: true, json: JsonMode::Schema };
        let before = "# mine\nlisten = \"127.0.0.1:9\" # here\n[tiers.high]\nprovider = \"x\"\nmodel = \"y\"\n[providers.x]\nbase_url = \"http://a/v1\"\n";
        let text =
            with_model(before, "http://127.0.0.1:11434/v1", None, neurons::Tier::Standard, "m:8b", &tried).unwrap();
        for part in ["# mine", "# here", "[tiers.high]", "[tiers.standard]", "model = \"m:8b\"", "tools = true"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(crate::config::OWN_FILE), &text).unwrap();
        let config = Config::load(None, &[("data", folder.path().display().to_string())]).unwrap();
        assert_eq!(config.tiers[&neurons::Tier::Standard].context_tokens, 4_096);
        assert_eq!(config.listen.port(), 9, "every command reads it");
        // Another model takes the place of the first.
        let again = with_model(&text, "http://b/v1", Some("KEY"), neurons::Tier::Standard, "n", &tried).unwrap();
        assert!(
            again.contains("model = \"n\"") && !again.contains("m:8b") && again.contains("key_env = \"KEY\""),
            "{again}"
        );
        std::fs::write(folder.path().join(crate::config::OWN_FILE), "data = \"/elsewhere\"\n").unwrap();
        let error = Config::load(None, &[("data", folder.path().display().to_string())]).unwrap_err();
        assert!(format!("{error:#}").contains("remove `data`"), "{error:#}");
    }
}
