//! The daemon. Its parts are built from left to right and stopped from right to left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::knowledge::unit::versions::Schemas;
use ::knowledge::{KeyRing, Knowledge, SealError, try_keys};
use anyhow::{Context, anyhow};
use axum_server::accept::NoDelayAcceptor;
use fascicles::{FascicleSpec, Fascicles, Toolbox};
use lifeform::{LifeformHead, LifeformSpec, Lifeforms, Status};
use neurons::llm::Meaning;
use neurons::tools::{Builtins, Tools, Vault};
use neurons::{HOUSE, Models, Neurons};
use nexus::{IDENTITIES, Nexus};
use store::ledger::{AccountOp, Amount, share_of};
use store::surreal::Surreal;
use store::{
    Backend, Batch, Cause, Clock, Key, Kind, Origin, Principal, PrincipalKind, Role, Store, StoreError, SystemClock,
    Timestamp,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::{self, App};
use crate::collector::Collector;
use crate::config::{Config, FASCICLES, LIFEFORMS};
use crate::connections::{self, Bounded};
use crate::default_toolbox::{self, House};
use crate::privacy;
use crate::tokens::Tokens;

/// The time limit for the head of the first request on a new connection.
const FIRST_HEAD_MAX: Duration = Duration::from_secs(30);
/// The time limit for the head of each further request, from the previous response. It exceeds the usual idle timeout
/// of clients.
const HEAD_MAX: Duration = Duration::from_secs(150);
/// The maximum number of requests that one connection of HTTP/2 makes at once, and the maximum of its answers that wait
/// to be sent, in bytes.
const STREAMS_MAX: u32 = 100;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The time limit for pending responses and open connections when the daemon stops.
const DRAIN: Duration = Duration::from_secs(10);

/// A running daemon.
pub struct Daemon {
    /// The address of the API.
    pub address: SocketAddr,
    /// The operator's token.
    pub token: String,
    /// `true` if the token was generated at this start.
    pub token_is_new: bool,
    /// The reason for which no sealed secret can be opened; `None` if they can.
    pub locked: Option<SealError>,
    /// The lifeform that the start created or found, if one was requested.
    pub lifeform: Option<LifeformHead>,
    /// The parts of the daemon.
    pub app: App,
    stop: watch::Sender<bool>,
    door: axum_server::Handle<SocketAddr>,
    server: JoinHandle<std::io::Result<()>>,
    keeper: JoinHandle<((), (), ())>,
    /// The task that sends spans to a collector, if one is configured.
    telling: Option<JoinHandle<()>>,
}

/// The dependencies of a daemon besides its settings. Tests supply their own.
pub struct Parts {
    /// The storage medium.
    pub backend: Arc<dyn Backend>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The models.
    pub models: Models,
    /// The definition of the lifeform to create and start before the API opens, if there is none yet.
    pub first: Option<LifeformSpec>,
    /// The supported versions of the unit protocol.
    pub schemas: Schemas,
}

impl Parts {
    /// Creates the real dependencies: SurrealDB in the data folder, and the system clock.
    ///
    /// # Errors
    /// If the data folder cannot be created.
    pub fn real(config: &Config, models: Models) -> anyhow::Result<Self> {
        if config.has_lost_its_store() && !config.accept_loss {
            anyhow::bail!(
                "{} has keys and no store: {} is missing. Put it back from a backup; to begin with an empty store, start with \
                 --accept-loss",
                config.data.display(),
                config.store().display()
            );
        }
        if let Some(owner) = config.other_owner() {
            anyhow::bail!("{} belongs to user {owner}: run the daemon as that user", config.store().display());
        }
        // The folder contains minds, so only its owner may enter it.
        privacy::create_private();
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private.recursive(true).create(&config.data).with_context(|| {
            format!("the data folder {} cannot be made: choose another with --data", config.data.display())
        })?;
        privacy::make_private(&config.data)
            .with_context(|| format!("the data folder {} cannot be made private", config.data.display()))?;
        Ok(Self {
            backend: Arc::new(Surreal::embedded(config.store())?.accepting_loss(config.accept_loss)),
            clock: Arc::new(SystemClock),
            models,
            first: None,
            schemas: Schemas::default(),
        })
    }
}

impl Daemon {
    /// Opens all parts and serves the API.
    ///
    /// # Errors
    /// A port in use, a store that is locked or damaged, or a folder that is not writable. Each error says what to do.
    pub async fn start(config: &Config, parts: Parts) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.listen).await.with_context(|| {
            format!(
                "{} cannot be listened on: another program has it; choose another with --listen, or stop that one",
                config.listen
            )
        })?;
        let address = listener.local_addr()?;
        let store = Box::pin(Store::open(parts.backend, parts.clock)).await?;
        // The database chooses the modes of its folders itself.
        privacy::make_private(&config.data)
            .with_context(|| format!("the data folder {} cannot be made private", config.data.display()))?;
        let store = store.with_bytes_a_day(config.person_disk_mb << 20);
        let house = Amount { tokens: config.house_tokens, micro_usd: config.house_micro_usd };
        store.commit(Batch::new(&Origin::system("start")).account(HOUSE, AccountOp::Open(house), "house")).await?;
        // The configuration sets the total budget, so a changed budget adjusts the balance.
        let account = store.account(HOUSE).await?.unwrap_or_default();
        let raised = house.minus(account.balance.plus(account.spent));
        if raised != Amount::default() {
            let origin = Origin::system("configuration");
            store.commit(Batch::new(&origin).account(HOUSE, AccountOp::Credit(raised), "ceiling")).await?;
        }
        let share = share_of(config.person_share).map_err(anyhow::Error::msg)?;
        if account.share() != share {
            let origin = Origin::system("configuration");
            store.commit(Batch::new(&origin).account(HOUSE, AccountOp::Share(share), "share")).await?;
        }
        let tokens = Tokens::open(store.clone()).await?;
        let tokens = if config.knowledge.anonymous { tokens.with_anybody() } else { tokens };
        let (token, token_is_new) = tokens.operator(config).await?;
        let sealed = store.documents::<serde_json::Value>(Kind::Sealed, "", 1).await?;
        let identities = store.documents::<serde_json::Value>(Kind::Meta, IDENTITIES, 1).await?;
        let depends_on_keys =
            !sealed.is_empty() || identities.first().is_some_and(|(id, _)| id.starts_with(IDENTITIES));
        let (keys, locked) = key_ring(config, depends_on_keys);
        let (opening, missing) = try_keys(&store, &keys).await?;
        let locked = locked.or_else(|| missing.first().map(|key| SealError::NoKey(key.clone())));
        // If the key ring opens no sealed secret, it belongs to another daemon. Secrets sealed with it could not be
        // opened with the correct ring, so the daemon uses an empty one.
        let keys = if locked.is_some() && opening == 0 { KeyRing::default() } else { keys };
        let mut nexus = Nexus::new(store.clone()).with_shelves(config.shelves()).with_secrets(config.knowledge.secrets);
        nexus = nexus.with_identities(Arc::new(keys.clone()));
        if let Ok(model) = parts.models.embedder() {
            let meaning = Arc::new(Meaning::new(store.clone(), model.clone()));
            nexus = nexus.with_embedder(meaning, Some(&config.vectors()));
            if let Some(model) = parts.models.multilingual_embedder() {
                nexus = nexus.with_multilingual_embedder(Arc::new(Meaning::new(store.clone(), model.clone())));
            }
        }
        let tools = Tools::new(nexus.clone(), &config.reach()?)?;
        if let Some(at) = restored_at(&store, config.restored).await? {
            tools.restored(at);
        }
        let neurons = Neurons::open(store.clone(), tools, parts.models)
            .await?
            .with_directory(Arc::new(tokens.clone()))
            .with_definitions_max(config.person_definitions);
        let knowledge = Knowledge::new(store.clone(), nexus.clone())
            .with_neurons(neurons.clone())
            .with_keys(keys)
            .with_open_profiles(config.knowledge.open_profiles)
            .with_directory(Arc::new(tokens.clone()))
            .with_schemas(parts.schemas);
        if let Some(error) = &locked {
            let file = config.key_file();
            tracing::error!(%error, file = %file.display(), ?missing, "not all that is sealed opens: put the file of its keys back");
        }
        // The tools must exist before a job resumes that may use them.
        let (own, vault): (Arc<dyn Builtins>, Arc<dyn Vault>) =
            (Arc::new(knowledge.clone()), Arc::new(knowledge.clone()));
        neurons.tools().add(&own);
        neurons.tools().keep_secrets_in(vault);
        let shipped = shipped_fascicles()?;
        let fascicles =
            Box::pin(Fascicles::open(store.clone(), neurons.clone(), shipped, default_toolbox::tools())).await?;
        // Must subscribe before jobs resume, so that their spans are sent too.
        let (collector, ended) = (Collector::new(&config.telemetry)?, fascicles.ended());
        let (minds, thoughts) = (nexus.clone(), fascicles.clone());
        let opened = Lifeforms::open(store.clone(), minds, thoughts, knowledge.clone(), config.canvas, config.guard);
        let lifeforms = Box::pin(opened).await?;
        let telling = collector.map(|collector| tokio::spawn(collector.run(lifeforms.clone(), ended)));
        let lifeform = match parts.first {
            Some(definition) => Some(Box::pin(first_lifeform(&lifeforms, &knowledge, definition)).await?),
            None => None,
        };
        let house: Arc<dyn Toolbox> = Arc::new(House { nexus: nexus.clone(), knowledge: knowledge.clone() });
        fascicles.resume(HOUSE, &house).await?;
        let (stop, stopping) = watch::channel(false);
        let connections_max = connections::places_within(connections::raise_limit());
        let app = App::new(
            store,
            nexus,
            neurons,
            fascicles,
            lifeforms,
            knowledge,
            tokens,
            house,
            address,
            config.data.clone(),
            config.hosts.clone(),
            stopping,
            connections_max,
        );
        let retention = crate::retention::run(
            config.keep.clone(),
            app.store().clock().clone(),
            app.neurons.clone(),
            app.fascicles.clone(),
        );
        let files = crate::file_check::run(app.store().clone());
        let evictions = crate::retention::evict(app.store().clock().clone(), app.lifeforms.clone());
        let upkeep = async { tokio::join!(retention, files, evictions) };
        let keeper = tokio::spawn(store::vital("upkeep", upkeep));
        // The service is built once. A bare router would be rebuilt for each connection.
        let service = api::router(app.clone()).into_make_service();
        let door = axum_server::Handle::new();
        let mut server = axum_server::Server::<SocketAddr>::from_listener(listener)
            .acceptor(Bounded::new(NoDelayAcceptor::new(), connections_max))
            .first_request_timeout(FIRST_HEAD_MAX)
            .handle(door.clone());
        server.http_builder().http1().header_read_timeout(HEAD_MAX);
        // WebSockets over HTTP/2 (RFC 8441).
        let mut http2 = server.http_builder().http2();
        http2.enable_connect_protocol().keep_alive_interval(HEAD_MAX);
        // Answers that a client does not read wait here, for each of its streams.
        http2.max_concurrent_streams(STREAMS_MAX).max_send_buf_size(SEND_BUFFER_BYTES);
        let server = tokio::spawn(server.serve(service));
        Ok(Self { address, token, token_is_new, locked, lifeform, app, stop, door, server, keeper, telling })
    }

    /// Stops accepting requests, ends the open ones, halts the lifeforms, and closes the store.
    ///
    /// # Errors
    /// If the store cannot write its last checkpoint. No acknowledged write is lost.
    pub async fn stop(self) -> anyhow::Result<()> {
        let drained = tokio::time::Instant::now() + DRAIN;
        let _ = self.stop.send(true);
        self.door.graceful_shutdown(None);
        self.keeper.abort();
        // Answers in progress are completed, up to a time limit.
        let answered = async {
            while self.app.fascicles.busy() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = tokio::time::timeout_at(drained, answered).await;
        self.app.lifeforms.halt().await;
        self.app.fascicles.halt_all().await;
        self.telling.iter().for_each(JoinHandle::abort);
        let mut server = self.server;
        if tokio::time::timeout_at(drained, &mut server).await.is_err() {
            tracing::warn!("connections are still open, closing them");
            self.door.shutdown();
        }
        self.app.neurons.tools().close().await;
        self.app.store.close().await.map_err(|error| anyhow!(error))
    }
}

/// Returns the moment at which the store was restored to an earlier state last, which is now with `is_now`; `None` if it never was.
async fn restored_at(store: &Store, is_now: bool) -> Result<Option<Timestamp>, StoreError> {
    let key = Key::new(Kind::Meta, "restored-at");
    if is_now {
        let now = store.clock().now();
        store.commit(Batch::new(&Origin::system("restored")).put(key, &now)).await?;
        return Ok(Some(now));
    }
    Ok(store.document::<Timestamp>(&key).await?.map(|known| known.value))
}

/// Returns the oldest lifeform of the first page, or creates and starts a first one.
async fn first_lifeform(
    lifeforms: &Lifeforms,
    knowledge: &Knowledge,
    definition: LifeformSpec,
) -> anyhow::Result<LifeformHead> {
    let (known, _) = lifeforms.page("", lifeform::lifeforms::PAGE_MAX).await?;
    if let Some(known) = known.into_iter().min_by_key(|known| known.created_at) {
        // A lifeform that was created but never started comes from an interrupted first start.
        let unborn = known.status == Status::Created;
        return Ok(if unborn { lifeforms.start(&known.id).await? } else { lifeforms.get(&known.id).await? });
    }
    for skill in crate::config::SKILLS {
        knowledge.contribute_skill(skill, None, &Origin::system("up")).await?;
    }
    let operator = Principal::new("user:operator", PrincipalKind::User, Role::Operator);
    let origin = Origin::new(operator, Cause::of("up"));
    let born = Box::pin(lifeforms.create(&origin, definition, None)).await?;
    Ok(lifeforms.start(&born.id).await?)
}

/// Opens the keys for sealed secrets. Without keys, returns the reason: sealed secrets stay closed, and everything else
/// works.
fn key_ring(config: &Config, something_is_sealed: bool) -> (KeyRing, Option<SealError>) {
    match KeyRing::open(&config.key_file(), something_is_sealed) {
        Ok(ring) => (ring, None),
        Err(error) => (KeyRing::default(), Some(error)),
    }
}

/// Returns a shipped definition by its name.
pub fn shipped_lifeform(name: &str) -> Option<LifeformSpec> {
    LIFEFORMS.iter().find(|(known, _)| *known == name).and_then(|(_, text)| toml::from_str(text).ok())
}

/// Returns the shipped fascicles.
///
/// # Errors
/// If one of them is invalid.
pub fn shipped_fascicles() -> anyhow::Result<Vec<FascicleSpec>> {
    FASCICLES.iter().map(|text| toml::from_str(text).context("a shipped fascicle does not load")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_refuses_a_folder_with_keys_but_without_a_store() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("keys")).unwrap();
        let flags = [("data", folder.path().display().to_string())];
        let config = Config::load(None, &flags).unwrap();
        let refused = Parts::real(&config, Models::default()).err().unwrap().to_string();
        assert!(refused.contains("store is missing") && refused.contains("--accept-loss"), "{refused}");
        assert!(Parts::real(&Config { accept_loss: true, ..config }, Models::default()).is_ok());
    }
}
