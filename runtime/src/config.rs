//! Settings: defaults, then a file, then environment variables, then flags. No other module reads the environment.

mod models;
mod telemetry;
mod tools;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use http::{HeaderName, HeaderValue};
pub use models::{Embedded, Provider, TierModel};
use neurons::Tier;
use neurons::tools::Reach;
use nexus::SecretPolicy;
use serde::Deserialize;
use store::ledger::share_of;
pub use telemetry::Telemetry;
pub use tools::{Host, Server, Tools};

/// The shipped defaults. This file also documents each key.
pub const DEFAULTS: &str = include_str!("../../config/lifeformd.toml");

/// The shipped skills, which the first start writes into the commons.
pub const SKILLS: [&str; 1] = [include_str!("../../config/skills/research.md")];

/// The shipped lifeform definitions by name.
pub const LIFEFORMS: [(&str, &str); 1] = [("first", include_str!("../../config/lifeforms/first.toml"))];

/// The shipped named tools by id.
pub const TOOLS: [(&str, &str); 1] = [("lookup", include_str!("../../config/tools/lookup.toml"))];

/// The shipped fascicle definitions.
pub const FASCICLES: [&str; 32] = [
    include_str!("../../config/fascicles/answer_with_memory.toml"),
    include_str!("../../config/fascicles/co_author.toml"),
    include_str!("../../config/fascicles/compact.toml"),
    include_str!("../../config/fascicles/compact_by_extract.toml"),
    include_str!("../../config/fascicles/draft_and_review.toml"),
    include_str!("../../config/fascicles/inhibit.toml"),
    include_str!("../../config/fascicles/intent_analysis.toml"),
    include_str!("../../config/fascicles/heed.toml"),
    include_str!("../../config/fascicles/homeostasis.toml"),
    include_str!("../../config/fascicles/pursue_with_tools.toml"),
    include_str!("../../config/fascicles/do_step.toml"),
    include_str!("../../config/fascicles/look_into.toml"),
    include_str!("../../config/fascicles/look_up.toml"),
    include_str!("../../config/fascicles/maintenance.toml"),
    include_str!("../../config/fascicles/muse.toml"),
    include_str!("../../config/fascicles/perceive.toml"),
    include_str!("../../config/fascicles/reflect.toml"),
    include_str!("../../config/fascicles/describe.toml"),
    include_str!("../../config/fascicles/describe_person.toml"),
    include_str!("../../config/fascicles/form.toml"),
    include_str!("../../config/fascicles/promise.toml"),
    include_str!("../../config/fascicles/pursue.toml"),
    include_str!("../../config/fascicles/look_back.toml"),
    include_str!("../../config/fascicles/supplement.toml"),
    include_str!("../../config/fascicles/read_question.toml"),
    include_str!("../../config/fascicles/reply.toml"),
    include_str!("../../config/fascicles/reply_in_short.toml"),
    include_str!("../../config/fascicles/reply_with_care.toml"),
    include_str!("../../config/fascicles/reply_with_tools.toml"),
    include_str!("../../config/fascicles/research.toml"),
    include_str!("../../config/fascicles/review_and_repair.toml"),
    include_str!("../../config/fascicles/summarise_many.toml"),
];

/// All settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// `true` if a store that lost commits at the end of its log may open without them (default `false`). This is the
    /// flag `--accept-loss` of `up`, not a key of the file.
    #[serde(skip)]
    pub accept_loss: bool,
    /// `true` if the data is a copy of an earlier moment (default `false`). This is the flag `--restored` of `up`.
    #[serde(skip)]
    pub restored: bool,
    /// The address of the API.
    pub listen: SocketAddr,
    /// The host names of the daemon, besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// The token of the operator; empty means that the daemon generates one.
    pub token: String,
    /// The tracing directives.
    pub log: String,
    /// `true` for logs in JSON.
    pub log_json: bool,
    /// `true` if the daemon must not download model weights.
    pub offline: bool,
    /// The total token budget of the house account, including spent tokens. A change adjusts the balance.
    pub house_tokens: i64,
    /// The total budget of the house account in micro-dollars, including spent money.
    pub house_micro_usd: i64,
    /// The share of the house account's free balance that a participant may use per hour, from 0 to 1.
    pub person_share: f64,
    /// The data that a participant may write per day, in MiB; 0 means no limit.
    pub person_disk_mb: u64,
    /// The definitions of neurons and fascicles that a participant may have stored; 0 means no limit.
    pub person_definitions: u64,
    /// The collector that receives the spans of lifeforms.
    pub telemetry: Telemetry,
    /// The retention.
    pub keep: Keep,
    /// The limits of canvases, and the retention of their logs.
    pub canvas: lifeform::Limits,
    /// The limits of lifeforms' guards.
    pub guard: lifeform::GuardLimits,
    /// The minds.
    pub nexus: Minds,
    /// The settings of the shared knowledge.
    pub knowledge: Shared,
    /// The embedded model.
    pub models: Embedded,
    /// The remote model providers by name.
    pub providers: BTreeMap<String, Provider>,
    /// The reach of tools.
    pub tools: Tools,
    /// The models by tier.
    pub tiers: BTreeMap<Tier, TierModel>,
    /// The remote embedding model; `None` means the embedded one.
    #[serde(default)]
    pub embeddings: Option<TierModel>,
}

/// The retention of records in days; 0 means no limit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The number of days for which invocations are kept after they end.
    pub invocations_days: u32,
    /// The number of days for which jobs are kept after they end.
    pub jobs_days: u32,
}

/// The settings of the knowledge that lifeforms and people share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The treatment of secrets in ordinary text.
    pub secrets: SecretPolicy,
    /// The file with the keys for secrets; empty means a file in the data folder.
    pub key_file: PathBuf,
    /// `true` if clients without a token may read public units and skills.
    pub anonymous: bool,
    /// `true` if all lifeforms may use the statements that a person makes about itself to one lifeform.
    pub open_profiles: bool,
}

/// The settings of the minds in this process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Minds {
    /// The memory limit of one mind, in MiB.
    pub memory_mb: usize,
}

/// The text that stands for a secret.
const NOT_SHOWN: &str = "(set, not shown)";
/// The beginning of an error in the configuration.
const WRONG: &str = "the configuration is not right; config/lifeformd.toml lists every key";
/// The environment variables of this program that are not settings.
const NOT_SETTINGS: [&str; 2] = ["LIFEFORMD_CONFIG", "LIFEFORMD_URL"];

/// The name of the configuration file in the data folder, which every command reads if no other is given.
pub const OWN_FILE: &str = "lifeformd.toml";

/// Returns the configuration file in the data folder that the flags, the environment or the defaults name, if it exists.
fn own_file(flags: &[(&str, String)]) -> Option<PathBuf> {
    let by_flag = flags.iter().find(|(key, _)| *key == "data").map(|(_, data)| PathBuf::from(data));
    let by_environment = || std::env::var_os("LIFEFORMD_DATA").filter(|data| !data.is_empty()).map(PathBuf::from);
    let by_default =
        || directories::ProjectDirs::from("", "", "lifeformd").map(|folders| folders.data_dir().to_path_buf());
    let folder = by_flag.or_else(by_environment).or_else(by_default)?;
    Some(folder.join(OWN_FILE)).filter(|file| file.is_file())
}

impl Config {
    /// Loads the settings: the shipped defaults, then `file`, then the environment, then `flags` as `(key, value)`.
    /// Without a file, it is [`OWN_FILE`] in the data folder, if there is one.
    ///
    /// # Errors
    /// An unknown key or a value of the wrong type, with its name and its source.
    pub fn load(file: Option<&Path>, flags: &[(&str, String)]) -> anyhow::Result<Self> {
        let mut config: Self = Self::gathered(file, flags)?.try_deserialize().context(WRONG)?;
        config.fill_in()?;
        share_of(config.person_share).map_err(anyhow::Error::msg)?;
        config.canvas.check().map_err(anyhow::Error::msg)?;
        config.guard.check().map_err(anyhow::Error::msg)?;
        Ok(config)
    }

    /// Returns the settings of [`Config::load`] as TOML, with the folders that apply and without the token, the environment of tool
    /// servers, and the users and queries of addresses.
    ///
    /// # Errors
    /// The errors of [`Config::load`].
    pub fn shown(file: Option<&Path>, flags: &[(&str, String)]) -> anyhow::Result<String> {
        let config = Self::load(file, flags)?;
        let mut all: toml::Table = Self::gathered(file, flags)?.try_deserialize().context(WRONG)?;
        all.insert("data".to_owned(), config.data.display().to_string().into());
        if let Some(models) = all.get_mut("models").and_then(toml::Value::as_table_mut) {
            models.insert("folder".to_owned(), config.models.folder.display().to_string().into());
        }
        if !config.token.is_empty() {
            all.insert("token".to_owned(), NOT_SHOWN.into());
        }
        all.iter_mut().for_each(|(name, value)| hide(name, value));
        Ok(toml::to_string_pretty(&all)?)
    }

    /// Returns the settings of all sources.
    fn gathered(file: Option<&Path>, flags: &[(&str, String)]) -> anyhow::Result<config::Config> {
        let mut builder =
            config::Config::builder().add_source(config::File::from_str(DEFAULTS, config::FileFormat::Toml));
        let own = file.is_none().then(|| own_file(flags)).flatten();
        if let Some(file) = file.or(own.as_deref()) {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("the configuration file {} cannot be read", file.display()))?;
            let is_own = own.as_deref() == Some(file);
            if is_own && text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("data")) {
                bail!("{} lies in the data folder, so it cannot name another one: remove `data`", file.display());
            }
            builder = builder.add_source(config::File::from_str(&text, config::FileFormat::Toml));
        }
        let environment = std::env::vars()
            .filter(|(name, value)| {
                name.starts_with("LIFEFORMD_") && !NOT_SETTINGS.contains(&name.as_str()) && !value.is_empty()
            })
            .collect();
        let environment = config::Environment::with_prefix("LIFEFORMD")
            .prefix_separator("_")
            .separator("__")
            .try_parsing(true)
            .list_separator(",")
            .with_list_parse_key("hosts")
            .source(Some(environment));
        builder = builder.add_source(environment);
        for (key, value) in flags {
            builder = builder.set_override(*key, value.clone())?;
        }
        builder.build().context(WRONG)
    }

    fn fill_in(&mut self) -> anyhow::Result<()> {
        let folders =
            directories::ProjectDirs::from("", "", "lifeformd").context("this user has no home folder: give --data")?;
        if self.data.as_os_str().is_empty() {
            self.data = folders.data_dir().to_path_buf();
        }
        if self.models.folder.as_os_str().is_empty() {
            self.models.folder = folders.cache_dir().join("models");
        }
        let tiers = self.tiers.iter().map(|(tier, model)| Ok((serde_json::to_string(tier)?.replace('"', ""), model)));
        let mut named: Vec<(String, &TierModel)> = tiers.collect::<anyhow::Result<_>>()?;
        named.iter_mut().for_each(|(name, _)| name.insert_str(0, "tiers."));
        named.extend(self.embeddings.iter().map(|model| ("embeddings".to_owned(), model)));
        let with_fall_backs = named.into_iter().flat_map(|(place, model)| {
            std::iter::once((place.clone(), model))
                .chain(model.fall_back.iter().map(move |model| (place.clone(), model)))
        });
        for (place, TierModel { provider, .. }) in with_fall_backs {
            if !self.providers.contains_key(provider) {
                bail!("{place} names the provider \"{provider}\", and there is no [providers.{provider}]");
            }
        }
        let is_name = |host: &&String| {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            !host.is_empty() && host.len() <= 253 && host.chars().all(legal)
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_name(host)) {
            bail!("hosts holds \"{host}\": a host is a name without scheme, port or path, as \"life.example.org\"");
        }
        Ok(())
    }

    /// Returns the configured tool servers.
    ///
    /// # Errors
    /// If a secret is missing, or a server definition is invalid.
    pub fn reach(&self) -> anyhow::Result<Reach> {
        self.tools.reach()
    }

    /// Returns the folder of the database.
    pub fn store(&self) -> PathBuf {
        self.data.join("store")
    }

    /// Returns the user to whom the store belongs, if it is another than the one that runs this process. Files that this
    /// process writes could then not be read by the owner.
    pub(crate) fn other_owner(&self) -> Option<u32> {
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(self.store()).ok()?);
        (owner != rustix::process::geteuid().as_raw()).then_some(owner)
    }

    /// Returns `true` if the data folder has keys but no store. The store was lost, and a new empty store would hide
    /// the loss.
    pub fn has_lost_its_store(&self) -> bool {
        let is_empty = |folder: PathBuf| std::fs::read_dir(folder).map_or(true, |mut files| files.next().is_none());
        self.data.join("keys").exists() && is_empty(self.store())
    }

    /// Returns the folder and the memory limit of large minds.
    pub fn shelves(&self) -> nexus::SpillConfig {
        nexus::SpillConfig::new(self.data.join("shelves"), self.nexus.memory_mb << 20)
    }

    /// Returns the file of cached embedding vectors.
    pub fn vectors(&self) -> PathBuf {
        self.data.join("vectors.redb")
    }

    /// Returns the file with the keys for secrets.
    pub fn key_file(&self) -> PathBuf {
        match self.knowledge.key_file.as_os_str().is_empty() {
            true => self.data.join("keys").join("master.key"),
            false => self.knowledge.key_file.clone(),
        }
    }

    /// Returns the file with the operator's token.
    pub fn token_file(&self) -> PathBuf {
        self.data.join("operator.token")
    }
}

/// Replaces what may be a secret in a setting.
fn hide(name: &str, value: &mut toml::Value) {
    match value {
        toml::Value::Table(table) if name == "environment" => {
            table.iter_mut().for_each(|(_, value)| *value = NOT_SHOWN.into());
        }
        toml::Value::Table(table) => table.iter_mut().for_each(|(name, value)| hide(name, value)),
        toml::Value::Array(values) => values.iter_mut().for_each(|value| hide(name, value)),
        toml::Value::String(text) => {
            let user_info =
                text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next()?.rsplit_once('@'));
            if let Some((user_info, _)) = user_info {
                *text = text.replacen(user_info, "***", 1);
            }
            if let Some((address, _)) = text.split_once('?').filter(|(address, _)| address.contains("://")) {
                *text = format!("{address}?***");
            }
        }
        _ => {}
    }
}

/// Returns a header with a secret, if one is configured; `authorization: Bearer …` unless another header is named.
fn secret(
    key_env: &Option<String>,
    key_file: &Option<PathBuf>,
    header: &Option<String>,
) -> anyhow::Result<Option<(HeaderName, HeaderValue)>> {
    if key_env.is_none() && key_file.is_none() {
        return if header.is_none() { Ok(None) } else { bail!("header is of a secret: give key_env or key_file") };
    }
    let key = key(key_env, key_file)?;
    let name = match header {
        None => http::header::AUTHORIZATION,
        Some(name) => HeaderName::try_from(name).with_context(|| format!("header \"{name}\""))?,
    };
    let text = if name == http::header::AUTHORIZATION { format!("Bearer {key}") } else { key };
    // Neither the header value nor an error may show the secret.
    let Ok(mut value) = HeaderValue::try_from(text) else { bail!("the secret cannot stand in a header") };
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// Returns a secret from an environment variable or a file; empty if neither is configured.
pub(crate) fn key(env: &Option<String>, file: &Option<PathBuf>) -> anyhow::Result<String> {
    let key = match (env, file) {
        (Some(name), _) => std::env::var(name).with_context(|| format!("the environment has no {name}"))?,
        (None, Some(file)) => {
            std::fs::read_to_string(file).with_context(|| format!("the key file {} cannot be read", file.display()))?
        }
        (None, None) => String::new(),
    };
    Ok(key.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_defaults_load_and_flags_win() {
        let config = Config::load(None, &[("listen", "127.0.0.1:9".into())]).unwrap();
        assert_eq!(config.listen.port(), 9);
        assert_eq!(config.models.embedded, "smollm2-135m");
        assert!(config.store().ends_with("store"));
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        std::fs::write(&file, "lisen = \"127.0.0.1:1\"\n").unwrap();
        let error = format!("{:#}", Config::load(Some(&file), &[]).unwrap_err());
        assert!(error.contains("lisen"), "{error}");
        std::fs::write(&file, "[tiers.high]\nprovider = \"nobody\"\nmodel = \"m\"\n").unwrap();
        let error = format!("{:#}", Config::load(Some(&file), &[]).unwrap_err());
        assert!(error.contains("tiers.high") && error.contains("nobody"), "{error}");
        std::fs::write(&file, "[tools.hosts.\"api.example.com\"]\nprivate = true\n[tools.servers.x]\nurl = \"http://a/\"\ncommand = [\"x\"]\n").unwrap();
        let config = Config::load(Some(&file), &[]).unwrap();
        assert!(config.tools.hosts["api.example.com"].private);
        let error = format!("{:#}", config.reach().unwrap_err());
        assert!(error.contains("tools.servers.x") && error.contains("either"), "{error}");
        std::fs::write(&file, "[embeddings]\nprovider = \"nobody\"\nmodel = \"m\"\n").unwrap();
        let error = format!("{:#}", Config::load(Some(&file), &[]).unwrap_err());
        assert!(error.contains("embeddings names") && error.contains("nobody"), "{error}");
    }
}
