//! `lifeformd up`: runs the daemon.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use neurons::Tier;
use neurons::llm::LlmProvider;
use neurons::llm::weights::Task;

#[cfg(feature = "embedded")]
use super::models::prepare;
use super::models::{known, places};
use super::{say, say_error};
use crate::config::Config;
use crate::daemon::{Daemon, Parts, shipped_lifeform};
use crate::models::{Local, models};
use crate::{example, signal, telemetry};

/// The message about the abilities of a daemon without a model.
const WITHOUT: &str = "what works: the API, canvases, KIP, the ledger; what does not: answering, learning and invoking neurons, until a model is there";

pub(super) async fn run(mut config: Config, with_example: Option<SocketAddr>) -> anyhow::Result<ExitCode> {
    telemetry::start(&config.log, config.log_json)?;
    if let Some(address) = with_example {
        let listener = example::listen(address).await?;
        let address = listener.local_addr()?;
        example::add_tools(&mut config, address)?;
        tokio::spawn(example::serve(listener));
        say(&format!(
            "the example world is at http://{address}; its tools are lookup, trains, book, booking and cancel"
        ));
    }
    signal::outlive_file_size_limits();
    let models = models(&config, local(&config).await)?;
    let thinks = models.pick(Tier::Standard).is_ok();
    let first = shipped_lifeform("first").context("the shipped definition does not load")?;
    let daemon = Daemon::start(&config, Parts { first: Some(first), ..Parts::real(&config, models)? }).await?;
    if let Some(lifeform) = &daemon.lifeform {
        greet(&daemon, lifeform, &config);
    }
    if !thinks && config.models.embedded == "none" {
        say_error(&format!("no model is configured, and none in this process: {WITHOUT}"));
    }
    super::models::name_servers(&config, say_error).await;
    if let Some(why) = &daemon.locked {
        say_error(&format!("what is sealed does not open: {why}"));
    }
    if !config.providers.is_empty() {
        let config = config.clone();
        tokio::spawn(async move {
            for (name, answer) in super::check::tried(&config).await.unwrap_or_default() {
                if let Err(error) = answer {
                    say_error(&format!("{name} does not answer: {error}; what needs it fails until that is mended"));
                }
            }
        });
    }
    signal::stop().await;
    say_error("stopping");
    daemon.stop().await?;
    Ok(ExitCode::SUCCESS)
}

/// Loads the models in this process, and prints the reason for a missing one.
async fn local(config: &Config) -> Local {
    let mut local = Local::default();
    if config.models.embedded != "none" {
        match chat(config).await {
            Ok(provider) => local.chat = Some(provider),
            Err(error) => {
                let why = format!("{error:#}");
                say_error(&format!("there is no embedded model: {why}"));
                say_error(if config.tiers.is_empty() { WITHOUT } else { "remote models answer; everything works" });
                local.missing = Some(why);
            }
        }
    }
    if config.models.embedder != "none" && config.embeddings.is_none() {
        match embedder(config).await {
            Ok(provider) => local.embedder = Some(provider),
            Err(error) => {
                say_error(&format!("there is no embedder: {error:#}"));
                say_error("what does not work: search by meaning; routes are chosen by the language model");
            }
        }
        if config.models.multilingual_embedder != "none" && local.embedder.is_some() {
            match multilingual_embedder(config).await {
                Ok(provider) => local.multilingual_embedder = Some(provider),
                Err(error) => {
                    say_error(&format!("there is no multilingual embedder: {error:#}"));
                    say_error("what does not work: search by meaning in scripts that are not Latin");
                }
            }
        }
    }
    local
}

#[cfg(feature = "embedded")]
async fn chat(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    let weights = known(&config.models.embedded, Task::Chat)?;
    let files = prepare(weights, &places(config)).await?;
    let load = move || neurons::llm::embedded::Embedded::load(weights.name, &files[0]);
    let loaded = tokio::task::spawn_blocking(load).await?;
    Ok(loaded.with_context(|| again(weights.name))?.provider()?)
}

#[cfg(feature = "embedded")]
async fn embedder(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    let weights = known(&config.models.embedder, Task::Embeddings)?;
    let files = prepare(weights, &places(config)).await?;
    let load = move || neurons::llm::embedded::Embedder::load(weights.name, &files);
    let loaded = tokio::task::spawn_blocking(load).await?;
    Ok(loaded.with_context(|| again(weights.name))?.provider()?)
}

#[cfg(feature = "embedded")]
async fn multilingual_embedder(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    let weights = known(&config.models.multilingual_embedder, Task::Embeddings)?;
    let files = prepare(weights, &places(config)).await?;
    Ok(neurons::llm::embedded::Embedder::load_on_demand(weights.name, files)?.provider()?)
}

#[cfg(feature = "embedded")]
fn again(name: &str) -> String {
    format!("`lifeformd models rm {name}` and start again to fetch it again")
}

#[cfg(not(feature = "embedded"))]
async fn chat(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    known(&config.models.embedded, Task::Chat)?;
    anyhow::bail!("this lifeformd was built without embedded models")
}

#[cfg(not(feature = "embedded"))]
async fn multilingual_embedder(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    embedder(config).await
}

#[cfg(not(feature = "embedded"))]
async fn embedder(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    known(&config.models.embedder, Task::Embeddings)?;
    anyhow::bail!("this lifeformd was built without embedded models")
}

fn greet(daemon: &Daemon, lifeform: &lifeform::LifeformHead, config: &Config) {
    let base = format!("http://{}", daemon.address);
    let file = config.token_file();
    // Standard output may be a journal or a file with other readers, so the token is printed only on a terminal.
    let is_shown = daemon.token_is_new && std::io::IsTerminal::is_terminal(&std::io::stdout());
    let (token, page) = match (is_shown, config.token.is_empty()) {
        (true, _) => (daemon.token.clone(), format!("{base}/#token={}", daemon.token)),
        (false, true) => (format!("$(cat {})", file.display()), format!("{base}/  (token: {})", file.display())),
        (false, false) => ("$LIFEFORMD_TOKEN".into(), format!("{base}/  (token: the configured one)")),
    };
    let canvas = format!("{base}/v1/lifeforms/{}/canvases/{}", lifeform.id, lifeform::canvas::CHAT);
    say(&format!("\n{} ({}) is here. Talk to it:\n", lifeform.definition.name, lifeform.id));
    say(&format!("  in a browser     {page}"));
    say(&format!("  in a terminal    lifeformd chat --data {} --listen {}", config.data.display(), daemon.address));
    say(&format!("  with curl        TOKEN={token}"));
    say(&format!(
        "                   curl -sH \"authorization: Bearer $TOKEN\" -H \"idempotency-key: hello\" --json '{{\"title\":\"hello\",\"id\":\"hello\"}}' {canvas}/topics"
    ));
    say(&format!(
        "                   curl -sH \"authorization: Bearer $TOKEN\" --json '{{\"content\":\"Hello!\"}}' {canvas}/topics/hello/messages"
    ));
    say(&format!("                   curl -sH \"authorization: Bearer $TOKEN\" {canvas}/topics/hello/messages\n"));
}
