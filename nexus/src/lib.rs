//! The Cognitive Nexus: KIP v1.0-draft7 over a resident graph (MISSION rows K1–K13).
//!
//! [`Nexus`] is the only entry point for KIP. Each nexus has one writer, which applies a command, makes it durable,
//! publishes the new snapshot and only then answers. Readers work on snapshots. The first reader after a series of
//! writes without readers waits until the batches in flight are durable.

mod blocking;
mod cache;
mod capsules;
mod command;
mod commons;
mod disk_graph;
mod embeddings;
mod forgotten;
mod identity;
mod journal;
mod mind;
mod portable;
mod provenance;
mod seq_counter;
mod shipped;
mod trial;
mod view;
mod writer;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kip::datum::Sym;
use kip::exec;
use kip::{Answer, Call, ErrorKind, KipError, Options, bind_and, envelope};
use serde_json::{Value, json};
use store::principal::Origin;
use store::{Key, Kind, Op, Store, StoreError, Stream, Turns, Wants};
use tokio::sync::oneshot;

use cache::{LoadedNexus, NexusCache};
use command::Command;
use embeddings::{EmbeddingIndex, Found};
use seq_counter::SeqCounter;
use writer::{Task, Write};

pub use kip;

pub use capsules::Export;
pub use command::WriteAuthority;
pub use commons::{
    COMMONS, HAS_SECRET_KEY, OWNER_KEY, RECORD_TYPES, SEAL_KEY, SHARED, SecretPolicy, Version, versions_stream,
};
pub use disk_graph::SpillConfig;
pub use embeddings::{EmbedError, Embedder, UNKNOWN_SCRIPT, is_latin};
pub use forgotten::{Forgotten, Outbox};
pub use identity::{IDENTITIES, Identities, Identity};
pub use kip::Request;
pub use mind::Mind;
pub use portable::{Portable, check_element};
pub use provenance::{OUTSIDE, PROVENANCE_KEY, Provenance};
use view::{ScopedView, as_of, may_share};
pub use view::{View, is_shown, may_write};
pub use writer::Snapshot;

/// The id of a nexus: a lifeform's id, or `commons`.
pub type NexusId = Arc<str>;

/// The reason why a command did not run. A command that was parsed and refused is an answer, not an error of this
/// type.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NexusError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A shipped capsule fails: the build is broken.
    #[error("capsule {name}: {reason}")]
    Capsule {
        /// The name.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// A command of the daemon itself was refused.
    #[error("the command was refused: {0}")]
    Refused(String),
    /// The evaluation of a query panicked.
    #[error("the query failed: {0}")]
    Panicked(String),
}

/// A cheap handle to all nexuses of a daemon.
#[derive(Clone)]
pub struct Nexus {
    store: Store,
    cache: Arc<Mutex<NexusCache>>,
    shelves: Option<SpillConfig>,
    open_files: Arc<disk_graph::Open>,
    seq_counter: Arc<SeqCounter>,
    embedding_index: Option<EmbeddingIndex>,
    secrets: SecretPolicy,
    outbox: Outbox,
    identities: Option<Arc<dyn Identities>>,
    /// The queries of participants that run at once. They take turns, whatever door they come by.
    reads: Turns<()>,
}

/// The maximum number of participants' queries that run at once. They use the processor, so more of them do not finish
/// sooner, and each may hold the memory that one query may have.
const READS_AT_ONCE: usize = 4;

/// Removes secrets that the caller put in the wrong place from an answer.
fn redact_messages(mut answer: Value) -> Value {
    for part in ["error", "warnings"] {
        if let Some(part) = answer.get_mut(part) {
            store::secrets::clean(part);
        }
    }
    answer
}

impl Nexus {
    /// Returns a handle to the nexuses in `store`.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            cache: Arc::default(),
            shelves: None,
            open_files: Arc::default(),
            seq_counter: Arc::default(),
            embedding_index: None,
            secrets: SecretPolicy::default(),
            outbox: Outbox::default(),
            identities: None,
            reads: Turns::new(READS_AT_ONCE),
        }
    }

    /// The outbox of deleted facts that may have copies: a [`Forgotten`] for each fact that was removed from a mind
    /// or is no longer valid.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Returns the policy for secrets in writes to the commons.
    pub fn secrets(&self) -> SecretPolicy {
        self.secrets
    }

    /// Sets the policy for secrets in writes to the commons.
    #[must_use]
    pub fn with_secrets(self, secrets: SecretPolicy) -> Self {
        Self { secrets, ..self }
    }

    /// Moves minds that outgrow their memory budget to shelves. Without shelves, all minds stay in memory.
    #[must_use]
    pub fn with_shelves(self, shelves: SpillConfig) -> Self {
        Self { shelves: Some(shelves), ..self }
    }

    /// Runs a request and returns the KIP envelope: `{result}` or `{error}`; for a batch, `{result: [envelope, …]}`.
    ///
    /// # Errors
    /// Errors of the store only; a wrong command is an answer.
    pub async fn execute(&self, nexus: &NexusId, request: Request, origin: &Origin) -> Result<Value, NexusError> {
        let (calls, batch) = match request.calls() {
            Ok(calls) => calls,
            Err(error) => return Ok(json!({"error": error.to_json("")})),
        };
        let mut answers = Vec::with_capacity(calls.len());
        let (begun, mut bytes) = (Instant::now(), 0);
        for call in calls {
            if begun.elapsed() > BATCH_TIME_MAX || bytes > BATCH_BYTES_MAX {
                answers.push(json!({"error": batch_ends().to_json(&call.command)}));
                break;
            }
            let writes = kip::lang::parser::seems_to_write(&call.command);
            let answer = if writes {
                self.write(nexus, call, &request, origin).await?
            } else {
                self.read(nexus, call, &request, origin).await?
            };
            let answer = redact_messages(answer);
            // A write that fails at run time ends the batch; failed reads and syntax errors do not (superset 14).
            let stop = writes && answer.get("error").is_some_and(|error| error["kind"] != "syntax");
            if batch {
                bytes += exec::json_size(&answer);
                // Between the commands, other requests take their turn.
                tokio::task::yield_now().await;
            }
            answers.push(answer);
            if stop {
                break;
            }
        }
        Ok(if batch { json!({"result": answers}) } else { answers.pop().unwrap_or_default() })
    }

    async fn write(
        &self,
        nexus: &NexusId,
        call: Call,
        request: &Request,
        origin: &Origin,
    ) -> Result<Value, NexusError> {
        let refusal = if request.readonly {
            Some(kip::read_only())
        } else {
            (!may_write(&origin.principal, nexus) && !may_share(&origin.principal, nexus)).then(writer::no_right)
        };
        if let Some(refusal) = refusal {
            return Ok(json!({"error": refusal.to_json(&call.command)}));
        }
        let command = Command::of(call, request.dialect);
        if request.dry_run {
            return self.answer_tried(nexus, &command, origin).await;
        }
        self.perform(nexus, command, origin).await
    }

    /// Sends a command to the writer of a nexus and waits for the answer.
    async fn perform(&self, nexus: &NexusId, command: Command, origin: &Origin) -> Result<Value, NexusError> {
        let (commons, origin) = (self.commons_of(nexus).await?, origin.clone());
        self.hand_over(nexus, |reply| Task::Write(Write { command, origin, commons, reply })).await
    }

    /// Returns the commons, which every other nexus includes; `None` for the commons itself.
    async fn commons_of(&self, nexus: &NexusId) -> Result<Option<Arc<LoadedNexus>>, NexusError> {
        if &**nexus == COMMONS { Ok(None) } else { self.wake(&COMMONS.into()).await.map(Some) }
    }

    /// Evicts a nexus whose shelf, or the commons' shelf, could not be read. Both are loaded again with new shelves.
    fn evict_unreadable(&self, nexus: &NexusId) {
        for id in [nexus, &COMMONS.into()] {
            let faulty = self.loaded_now(id).filter(|loaded| loaded.is_faulty());
            if let (Some(loaded), Some(shelves)) = (faulty, &self.shelves) {
                self.evict_instance(id, &loaded);
                self.open_files.discard_unreadable(&shelves.file(id));
            }
        }
    }

    /// Returns consistent snapshots of a nexus and of the commons.
    async fn both(
        &self,
        nexus: &NexusId,
        own: &LoadedNexus,
    ) -> Result<(Arc<Snapshot>, Option<Arc<Snapshot>>), NexusError> {
        let Some(commons) = self.commons_of(nexus).await? else { return Ok((own.snapshot().await?, None)) };
        loop {
            let count = self.seq_counter.count();
            let both = (own.snapshot().await?, Some(commons.snapshot().await?));
            if count.is_multiple_of(2) && self.seq_counter.count() == count {
                return Ok(both);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn read(&self, nexus: &NexusId, call: Call, request: &Request, origin: &Origin) -> Result<Value, NexusError> {
        let loaded = self.wake(nexus).await?;
        let (mut own, commons) = self.both(nexus, &loaded).await?;
        match as_of(&call) {
            Ok(None) => {}
            // An element that was public then may be restricted now, and a removed element may have been restricted
            // then.
            Ok(Some(_)) if !may_write(&origin.principal, nexus) => {
                let error = KipError::new(ErrorKind::Execution, "only an operator or the lifeform itself looks back");
                return Ok(json!({"error": error.code("KIP_4003").to_json(&call.command)}));
            }
            Ok(Some(seq)) => match self.step_back(nexus, &own, seq).await? {
                Ok(earlier) => own = Arc::new(earlier),
                Err(error) => return Ok(json!({"error": error.to_json(&call.command)})),
            },
            Err(error) => return Ok(json!({"error": error.to_json(&call.command)})),
        }
        let found = if request.dry_run {
            Found::default()
        } else {
            self.meant(nexus, &call, origin, &own, commons.as_ref()).await?
        };
        let seen = ScopedView::by(&origin.principal, nexus, &loaded, own, commons);
        let (options, dry_run) = (request.options(), request.dry_run);
        // A participant's query may be costly on any graph: a few elements have many combinations.
        let bound = origin.participant().cloned();
        let large = bound.is_some() || seen.is_large();
        let _turn = match bound {
            Some(who) => Some(self.reads.take(Wants { class: (), who, is_bound: true }).await),
            None => None,
        };
        let work = move || {
            let semantic = found.near.as_ref().map(|near| near as &dyn exec::Semantic);
            let options = Options { semantic, ..options };
            let answered = bind_and(&call, |command| {
                seen.view(|view| match dry_run {
                    true => exec::check(command, view).map(|()| Answer::of(json!({}))),
                    false => exec::read(command, view, &options),
                })
            });
            seen.check()?;
            let answered = answered.map(|mut answer| {
                answer.warnings.extend(found.warnings);
                answer
            });
            let wants = answered.as_ref().map_or_else(|_| Vec::new(), |answer| answer.wants.clone());
            Ok((envelope(answered, &call.command), wants))
        };
        let worked: Result<_, StoreError> = if large {
            tokio::task::spawn_blocking(work).await.map_err(|panic| NexusError::Panicked(panic.to_string()))?
        } else {
            work()
        };
        let (answer, wants) = match worked {
            Ok(worked) => worked,
            Err(fault) => {
                self.evict_unreadable(nexus);
                return Err(fault.into());
            }
        };
        self.request_orders(nexus, &loaded, wants).await?;
        Ok(answer)
    }

    /// Asks the writers for the orders by an attribute that a query lacked: a type and a key each.
    async fn request_orders(
        &self,
        nexus: &NexusId,
        loaded: &LoadedNexus,
        wants: Vec<(Sym, Sym)>,
    ) -> Result<(), NexusError> {
        for (kind, key) in wants {
            let shared = SHARED.contains(&kind.as_str());
            let writer = match self.commons_of(nexus).await? {
                Some(commons) if shared => commons.writer.clone(),
                _ => loaded.writer.clone(),
            };
            // Best effort: if the writer is busy, the next such query asks again.
            let _ = writer.try_send(Task::SortBy(kind, key));
        }
        Ok(())
    }

    /// Returns `true` if semantic search is available.
    pub fn has_embedder(&self) -> bool {
        self.embedding_index.is_some()
    }

    /// Runs one write command with an authority for which the caller is responsible, and commits the given additional
    /// operations with it unless it changes nothing. Returns the KIP envelope.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn write_with(
        &self,
        nexus: &NexusId,
        call: Call,
        origin: &Origin,
        right: WriteAuthority,
        beside: Vec<Op>,
    ) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) && !may_share(&origin.principal, nexus) {
            return Ok(json!({"error": writer::no_right().to_json(&call.command)}));
        }
        let command = Command { right, beside, ..Command::of(call, kip::Dialect::default()) };
        Ok(redact_messages(self.perform(nexus, command, origin).await?))
    }

    /// Returns the vectors for a semantic search, if the call is one and there is an embedder.
    async fn meant(
        &self,
        nexus: &NexusId,
        call: &Call,
        origin: &Origin,
        own: &Arc<Snapshot>,
        commons: Option<&Arc<Snapshot>>,
    ) -> Result<Found, NexusError> {
        match embeddings::term_of(call) {
            Some(term) => self.near_to(&term, nexus, origin, own, commons).await,
            None => Ok(Found::default()),
        }
    }

    async fn near_to(
        &self,
        term: &str,
        nexus: &NexusId,
        origin: &Origin,
        own: &Arc<Snapshot>,
        commons: Option<&Arc<Snapshot>>,
    ) -> Result<Found, NexusError> {
        let Some(embedding_index) = &self.embedding_index else { return Ok(Found::default()) };
        let shared = NexusId::from(COMMONS);
        let loaded = self.wake(nexus).await?;
        let commons = match commons {
            Some(snapshot) => Some((self.wake(&shared).await?, snapshot)),
            None => None,
        };
        let beside = commons.as_ref().map(|(loaded, snapshot)| (&shared, loaded, *snapshot));
        Ok(embedding_index.find(&self.store, term, origin, (nexus, &loaded, own), beside).await?)
    }

    /// Returns the journal of a nexus after entry `after`: author, change, time, cause and inverse of each write.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn journal(&self, nexus: &NexusId, after: u64, limit: usize) -> Result<Vec<Value>, NexusError> {
        let entries = self.store.entries(&journal_stream(nexus), after, limit).await?;
        Ok(entries.iter().map(store::Entry::to_json).collect())
    }

    /// Returns the current graph of `nexus`.
    ///
    /// # Errors
    /// Fails when the nexus cannot be loaded.
    pub async fn snapshot(&self, nexus: &NexusId) -> Result<Arc<Snapshot>, NexusError> {
        Ok(self.wake(nexus).await?.snapshot().await?)
    }

    /// Returns `true` if a nexus of this name exists.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn exists(&self, nexus: &NexusId) -> Result<bool, NexusError> {
        // The commons always exists; it is stored when it is first used.
        if &**nexus == COMMONS {
            return Ok(true);
        }
        let head = self.store.document::<cache::Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        Ok(head.is_some())
    }

    async fn hand_over(
        &self,
        nexus: &NexusId,
        task: impl FnOnce(oneshot::Sender<Result<Value, StoreError>>) -> Task,
    ) -> Result<Value, NexusError> {
        let loaded = self.wake(nexus).await?;
        let (reply, answer) = oneshot::channel();
        // The writer lost its lease to another writer; the next caller loads the nexus again.
        let gone = |_| {
            self.evict_instance(nexus, &loaded);
            StoreError::Closed
        };
        loaded.writer.send(task(reply)).await.map_err(|_| gone(()))?;
        Ok(answer.await.map_err(|_| gone(()))??)
    }
}

/// Returns the stream of the journal of a nexus.
pub fn journal_stream(nexus: &NexusId) -> Stream {
    format!("nexus:{nexus}").into()
}

/// The longest time that the commands of one request take, and the largest size of their answers in bytes. Further
/// commands are not run. One command has bounds of its own.
const BATCH_TIME_MAX: Duration = Duration::from_secs(15);
const BATCH_BYTES_MAX: usize = 8 << 20;

fn batch_ends() -> KipError {
    let why = format!(
        "the commands of one request take at most {} s and answer at most {} MiB: send the rest in another one",
        BATCH_TIME_MAX.as_secs(),
        BATCH_BYTES_MAX >> 20
    );
    KipError::new(ErrorKind::Execution, why).code("KIP_4002")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::{Cause, ManualClock, Principal, PrincipalKind, Role};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn queries_of_one_participant_wait_for_each_other_alone() {
        let nexus = Nexus::new(Store::in_memory(Arc::new(ManualClock::default())).await);
        let asked = |id: &str| {
            let asks = Principal::new(id, PrincipalKind::User, Role::Participant);
            (nexus.clone(), Origin::new(asks, Cause::of("test")))
        };
        let query = |(nexus, origin): (Nexus, Origin)| async move {
            let answer = nexus.execute(&COMMONS.into(), Request::new("DESCRIBE DOMAINS"), &origin).await.unwrap();
            assert!(answer.get("result").is_some(), "{answer}");
        };
        query(asked("user:ada")).await;
        let turn = || nexus.reads.take(Wants { class: (), who: "user:ada".into(), is_bound: true });
        let held = [turn().await, turn().await, turn().await];
        let mut waits = Box::pin(query(asked("user:ada")));
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut waits).await.is_err(), "it waits for a turn");
        query(asked("user:bob")).await;
        drop(held);
        waits.await;
    }
}
