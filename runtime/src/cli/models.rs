//! `lifeformd models`, and the pull that the first start does by itself.

use std::process::ExitCode;
use std::sync::Mutex;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use neurons::llm::weights::{Places, Progress, SMOLLM2, Weights};

use super::{say, say_error};
use crate::config::Config;

#[derive(Subcommand)]
pub(super) enum Models {
    /// Fetches the embedded model's weights, checks them and makes them ready.
    Pull,
}

/// The embedded model of that name.
pub(super) fn known(name: &str) -> anyhow::Result<Weights> {
    if name == SMOLLM2.name {
        Ok(SMOLLM2)
    } else {
        anyhow::bail!("models.embedded names \"{name}\"; there are \"{}\" and \"none\"", SMOLLM2.name)
    }
}

pub(super) fn places(config: &Config) -> Places {
    Places { cache: config.models.folder.clone(), offline: config.offline, hub: config.models.hub.clone() }
}

pub(super) async fn run(config: Config, command: Models) -> anyhow::Result<ExitCode> {
    let Models::Pull = command;
    let weights = known(if config.models.embedded == "none" { SMOLLM2.name } else { &config.models.embedded })?;
    let path = prepare(weights, &places(&config)).await?;
    say(&format!("{} is ready: {}", weights.name, path.display()));
    Ok(ExitCode::SUCCESS)
}

/// Makes the weights ready, showing how it goes.
#[cfg(feature = "embedded")]
pub(super) async fn prepare(weights: Weights, places: &Places) -> anyhow::Result<std::path::PathBuf> {
    let bar: Mutex<Option<ProgressBar>> = Mutex::new(None);
    let show = |progress: Progress| {
        let mut bar = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match progress {
            Progress::Asking(source) => say_error(&format!(
                "fetching {} ({} MB, {}) from {source}",
                weights.name,
                weights.bytes / 1_000_000,
                weights.licence
            )),
            Progress::Working(what) => say_error(&format!("{}: {what}", weights.name)),
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
pub(super) async fn prepare(_: Weights, _: &Places) -> anyhow::Result<std::path::PathBuf> {
    anyhow::bail!("this lifeformd was built without the embedded model")
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
