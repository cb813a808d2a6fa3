//! `lifeformd models`, and the download at the first start.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use neurons::llm::weights::{KNOWN, Kept, Places, Progress, Task, Weights};

use super::{say, say_error};
use crate::config::Config;

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
            for (name, task) in [(&config.models.embedded, Task::Chat), (&config.models.embedder, Task::Embeddings)] {
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
        Models::Rm { name } => {
            let freed = named(&name)?.remove(&places)?;
            say(&format!("{name} is gone; {} MB are free again", freed / 1_000_000));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn pull(weights: Weights, places: &Places) -> anyhow::Result<()> {
    for path in prepare(weights, places).await? {
        say(&format!("{} is ready: {}", weights.name, path.display()));
    }
    Ok(())
}

fn list(config: &Config, places: &Places) {
    for weights in KNOWN {
        let used = [&config.models.embedded, &config.models.embedder].into_iter().any(|name| name == weights.name);
        let task = if weights.task == Task::Chat { "chat" } else { "embeddings" };
        let state = if weights.kept(places) == Kept::Pulled { "here" } else { "not here" };
        let megabytes = weights.bytes() / 1_000_000;
        let used = if used { ", in the configuration" } else { "" };
        say(&format!("{:<20} {task:<11} {megabytes:>5} MB  {state}{used}  ({})", weights.name, weights.licence));
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
