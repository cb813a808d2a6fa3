//! `lifeformd check`: tests each part separately, and prints how to fix faults.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use knowledge::{KeyRing, try_keys};
use neurons::LlmError;
use neurons::llm::weights::{Kept, Task};
use reqwest::Method;
use store::surreal::Surreal;
use store::{Backend as _, Store, StoreError, SystemClock};
use tokio::net::TcpListener;

use super::client::Client;
use super::models::{known, places};
use super::say;
use crate::config::Config;
use crate::models::Local;

pub(super) async fn run(loaded: anyhow::Result<Config>, deep: bool) -> anyhow::Result<ExitCode> {
    let mut report = Report { sound: true };
    let config = match loaded {
        Ok(config) => {
            report.good("configuration", "every key is known");
            config
        }
        Err(error) => {
            report.bad("configuration", &format!("{error:#}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    // A server that accepts the token of this folder is its daemon, which rightly holds the store and the port.
    let running = match Client::new(&config) {
        Ok(client) => client.ask(Method::GET, "/v1/lifeforms", None).await.is_ok(),
        Err(_) => false,
    };
    if running {
        Box::pin(keys(&mut report, &config, None)).await?;
        report.good("daemon", &format!("it runs at {} and holds its store", config.listen));
        if deep {
            report.bad("store", "the daemon holds it: stop the daemon to read the store whole");
        }
    } else {
        store(&mut report, &config, deep).await;
    }
    privacy(&mut report, &config);
    model(&mut report, &config);
    providers(&mut report, &config).await;
    super::models::name_servers(&config, |line| report.note("server", line)).await;
    match TcpListener::bind(config.listen).await {
        _ if running => {}
        Ok(_) => report.good("port", &format!("{} is free", config.listen)),
        Err(error) => report.bad(
            "port",
            &format!("{}: {error}; if that is not lifeformd itself, choose another with --listen", config.listen),
        ),
    }
    if !config.listen.ip().is_loopback() {
        report.note(
            "network",
            &format!(
                "{} is not loopback: everyone who reaches it and has a token comes in, unencrypted",
                config.listen
            ),
        );
    }
    Ok(if report.sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Report {
    sound: bool,
}

impl Report {
    fn good(&self, what: &str, detail: &str) {
        say(&format!("ok    {what:<14} {detail}"));
    }

    fn note(&self, what: &str, detail: &str) {
        say(&format!("note  {what:<14} {detail}"));
    }

    fn bad(&mut self, what: &str, detail: &str) {
        self.sound = false;
        say(&format!("BAD   {what:<14} {detail}"));
    }
}

/// Reports whether other users may read the data folder.
fn privacy(report: &mut Report, config: &Config) {
    match crate::privacy::open_to_others(&config.data) {
        // A private folder protects its content, whatever permissions the content has.
        Ok(open) if open.iter().any(|(path, _)| *path == config.data) => report.note(
            "privacy",
            &format!(
                "other users may enter {}, in which {} files and folders are open to them; the next start makes them private",
                config.data.display(),
                open.len() - 1
            ),
        ),
        Ok(_) if !config.data.exists() => {
            report.note("privacy", &format!("{} is not there yet; the first start makes it", config.data.display()));
        }
        Ok(_) => report.good("privacy", "the data folder is its owner's alone"),
        Err(error) => report.bad("privacy", &format!("{}: {error}", config.data.display())),
    }
}

async fn store(report: &mut Report, config: &Config, deep: bool) {
    if config.has_lost_its_store() {
        let what = "is missing, and the folder has keys: put it back from a backup, or start with `up --accept-loss`";
        return report.bad("store", &format!("{} {what}", config.store().display()));
    }
    if !config.store().exists() {
        report.note("store", &format!("{} is not there yet; the first start makes it", config.store().display()));
        let read = keys(report, config, None).await;
        return read.unwrap_or_else(|error| report.bad("keys", &error.to_string()));
    }
    if let Some(owner) = config.other_owner() {
        let whose = format!("{} belongs to user {owner}: check it as that user", config.store().display());
        return report.bad("store", &whose);
    }
    let opened = async {
        let backend = Arc::new(Surreal::embedded(config.store())?);
        let store = Store::open(backend.clone(), Arc::new(SystemClock)).await?;
        keys(report, config, Some(&store)).await?;
        let mut projected = Ok(());
        let read = match deep {
            true => {
                // The checkpoint writes the log to the database, so that the verification covers it.
                projected = store.checkpoint().await;
                for file in backend.damaged_files().await? {
                    report.bad("store", &format!("{file} is damaged: put it back from a backup that has it"));
                }
                Some(backend.verify().await)
            }
            false => None,
        };
        store.close().await.and(projected).map_or_else(|error| report.bad("store", &error.to_string()), |()| ());
        read.transpose()
    };
    match Box::pin(opened).await {
        Ok(None) => report.good("store", &format!("{} opens", config.store().display())),
        Ok(Some(read)) => {
            let counted = format!("{} rows are whole, {} have no checksum yet", read.whole, read.unchecked);
            if read.damaged == 0 {
                report.good("store", &counted);
            } else {
                report.bad("store", &format!("{counted}, {} are damaged:", read.damaged));
                read.named.iter().for_each(|row| report.bad("store", row));
            }
        }
        Err(error) => report.bad("store", &error.to_string()),
    }
}

/// Checks that the key ring has the key of each sealed secret.
async fn keys(report: &mut Report, config: &Config, store: Option<&Store>) -> Result<(), StoreError> {
    let file = config.key_file();
    let read = match KeyRing::read(&file) {
        Ok(read) => read,
        Err(error) => {
            report.bad("keys", &error.to_string());
            return Ok(());
        }
    };
    let ring = read.clone().unwrap_or_default();
    let missing = match store {
        Some(store) => try_keys(store, &ring).await?.1,
        None => BTreeSet::new(),
    };
    let place = file.display();
    if let Some(key) = missing.first() {
        let others = match missing.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        report.bad("keys", &format!("secrets are sealed with {key}{others}, not in {place}: put that file back"));
    } else if read.is_some() {
        report.good("keys", &format!("{place} is whole; {} seals", ring.current()));
    } else {
        report.note("keys", &format!("{place} is not there yet; the next start makes it"));
    }
    Ok(())
}

fn model(report: &mut Report, config: &Config) {
    for (name, task, what) in [
        (&config.models.embedded, Task::Chat, "model"),
        (&config.models.embedder, Task::Embeddings, "embedder"),
        (&config.models.multilingual_embedder, Task::Embeddings, "multilingual embedder"),
    ] {
        if name == "none" {
            report.note(what, "there is none in this process");
            continue;
        }
        match known(name, task) {
            Err(error) => report.bad(what, &error.to_string()),
            Ok(weights) if weights.kept(&places(config)) == Kept::Absent => {
                report.note(what, &format!("{name} is not here yet; `lifeformd models pull` fetches it"));
            }
            Ok(weights) => match weights.verify(&places(config)) {
                Ok(()) => report.good(what, &format!("{name} is here and whole")),
                Err(error) => report.bad(what, &error.to_string()),
            },
        }
    }
}

async fn providers(report: &mut Report, config: &Config) {
    if config.providers.is_empty() {
        return;
    }
    match tried(config).await {
        Err(error) => report.bad("providers", &format!("{error:#}")),
        Ok(tried) => {
            for (name, answer) in tried {
                match answer {
                    Ok(()) => report.good("provider", &format!("{name} answers")),
                    Err(error) => report.bad("provider", &format!("{name}: {error}")),
                }
            }
        }
    }
}

/// Lists the models of each configured remote provider. This costs nothing, and fails for a wrong address or a refused
/// key.
///
/// # Errors
/// If the configuration names no remote provider.
pub(super) async fn tried(config: &Config) -> anyhow::Result<Vec<(String, Result<(), LlmError>)>> {
    let models = crate::models::models(config, Local::default())?;
    let tiers = models.describe().into_iter().map(|(tier, name)| (name, models.pick(tier)));
    let remote = config.embeddings.as_ref();
    let embedder = remote.map(|remote| (format!("{}/{}", remote.provider, remote.model), models.embedder()));
    let mut tried = Vec::new();
    for (name, model) in tiers.chain(embedder) {
        let answer = match model {
            Ok(model) => model.provider.models().await.map(drop),
            Err(error) => Err(error),
        };
        tried.push((name, answer));
    }
    Ok(tried)
}
