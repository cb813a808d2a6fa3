//! `lifeformd up`: the main job.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use neurons::llm::LlmProvider;

use super::models::{known, places, prepare};
use super::{say, say_error};
use crate::config::Config;
use crate::daemon::{Daemon, Parts, models, shipped_lifeform};
use crate::{signal, telemetry};

pub(super) async fn run(config: Config) -> anyhow::Result<ExitCode> {
    telemetry::start(&config.log, config.log_json)?;
    let (embedded, why_not) = embedded(&config).await;
    if let Some(why) = &why_not {
        say_error(&format!("there is no embedded model: {why}"));
        let remote = !config.tiers.is_empty();
        say_error(if remote {
            "remote models answer; everything works"
        } else {
            "what works: the API, canvases, KIP, the ledger; what does not: answering, learning and invoking neurons, until a model is there"
        });
    }
    let models = models(
        &config,
        embedded,
        why_not.as_deref().unwrap_or("models.embedded is \"none\" and no tier is configured"),
    )?;
    let first = shipped_lifeform("first").context("the shipped definition does not load")?;
    let daemon = Daemon::start(&config, Parts { first: Some(first), ..Parts::real(&config, models)? }).await?;
    if let Some(lifeform) = &daemon.lifeform {
        greet(&daemon, lifeform, &config);
    }
    signal::stop().await;
    say_error("stopping");
    daemon.stop().await?;
    Ok(ExitCode::SUCCESS)
}

/// The embedded model, or why there is none.
async fn embedded(config: &Config) -> (Option<Arc<dyn LlmProvider>>, Option<String>) {
    if config.models.embedded == "none" {
        return (None, None);
    }
    match load(config).await {
        Ok(provider) => (Some(provider), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    }
}

#[cfg(feature = "embedded")]
async fn load(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    let weights = known(&config.models.embedded)?;
    let path = prepare(weights, &places(config)).await?;
    let name = weights.name;
    let shown = path.display().to_string();
    let loaded = tokio::task::spawn_blocking(move || neurons::llm::embedded::Embedded::load(name, &path)).await?;
    Ok(loaded.with_context(|| format!("remove {shown} and start again to fetch it anew"))?.provider()?)
}

#[cfg(not(feature = "embedded"))]
async fn load(config: &Config) -> anyhow::Result<Arc<dyn LlmProvider>> {
    let weights = known(&config.models.embedded)?;
    prepare(weights, &places(config)).await.and_then(|_| anyhow::bail!("it is not built in"))
}

fn greet(daemon: &Daemon, lifeform: &lifeform::LifeformHead, config: &Config) {
    let base = format!("http://{}", daemon.address);
    let file = config.token_file();
    let (token, page) = match (daemon.token_is_new, config.token.is_empty()) {
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
