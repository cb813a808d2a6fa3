//! The single writer of one nexus. It applies a command to its own graph, hands the batch to the store and takes the
//! next command. It publishes durable batches and answers them in order. If a batch fails, the writer rolls back this
//! batch and everything applied after it.

mod both;
mod entries;
mod undo;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use kip::datum::Sym;
use kip::exec::Change;
use kip::{ErrorKind, KipError, envelope};
use serde_json::{Value, json};
use store::principal::{Origin, Role};
use store::{Batch, Op, Receipt, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::NexusId;
use super::blocking::block_in_place_if;
use super::cache::{Head, LoadedNexus};
use super::command::{Command, RunOutcome, WriteAuthority, WriteTargets, run};
use super::commons::{self, COMMONS, SecretPolicy};
use super::disk_graph::{self, DiskGraph, SpillConfig, State};
use super::forgotten::Outbox;
use super::mind::Mind;
use super::provenance::check_provenance;
use super::seq_counter::SeqCounter;
use entries::is_note;
pub(super) use entries::{batch_of, entry_hash, pack, read_journal, unpack};

/// An immutable graph, with the number of its last journal entry.
#[derive(Clone)]
pub struct Snapshot {
    /// The graph.
    pub mind: Mind,
    /// The number of the last entry of `nexus:{id}` in the graph.
    pub seq: u64,
}

/// The state that the writer shares with readers.
pub(super) struct Shared {
    published: RwLock<Arc<Snapshot>>,
    /// The last durable entry; a snapshot before it is stale.
    durable: AtomicU64,
    /// The number of snapshots that readers took. The writer makes no snapshots while there are no readers.
    taken: AtomicU64,
}

impl Shared {
    /// Returns the published snapshot, unless it lacks a durable entry.
    pub(super) fn fresh(&self) -> Option<Arc<Snapshot>> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let published = self.published.read().unwrap_or_else(PoisonError::into_inner).clone();
        (published.seq >= self.durable.load(Ordering::Acquire)).then_some(published)
    }

    /// Returns `true` if a read of the published graph failed.
    pub(super) fn is_faulty(&self) -> bool {
        self.published.read().unwrap_or_else(PoisonError::into_inner).mind.check().is_err()
    }

    fn publish(&self, mind: Mind, seq: u64) -> Arc<Snapshot> {
        let snapshot = Arc::new(Snapshot { mind, seq });
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = snapshot.clone();
        self.durable.store(seq, Ordering::Release);
        snapshot
    }
}

/// A task for the writer.
pub(super) enum Task {
    /// Runs a command that writes.
    Write(Write),
    /// Reverts a journal entry.
    Undo { seq: u64, origin: Origin, reply: Reply },
    /// Builds an index that a query would have used.
    SortBy(Sym, Sym),
    /// Lends the graph, with the right to write to it, to the writer of another nexus.
    Lend(oneshot::Sender<Loan>),
}

/// A graph on loan; its writer waits for its return.
pub(super) struct Loan {
    mind: Mind,
    /// The version of the head document.
    head: u64,
    shared: Arc<Shared>,
    back: oneshot::Sender<Returned>,
}

/// The returned graph, all of it durable, with the number of the written entry, if there is one.
struct Returned {
    mind: Mind,
    seq: Option<u64>,
}

/// A write request.
pub(super) struct Write {
    pub(super) command: Command,
    pub(super) origin: Origin,
    /// The commons, which is written together with this mind; `None` if this nexus is the commons.
    pub(super) commons: Option<Arc<LoadedNexus>>,
    pub(super) reply: Reply,
}

type Reply = oneshot::Sender<Result<Value, StoreError>>;
type Durable = Pin<Box<dyn Future<Output = Result<Receipt, StoreError>> + Send>>;

/// A batch in flight.
struct InFlight {
    changes: Vec<Change>,
    /// The graph up to this batch; made only when a later batch is applied.
    snapshot: Option<Mind>,
    durable: Durable,
    answer: Value,
    reply: Reply,
    /// `true` if the batch contains notes about deleted facts.
    has_notes: bool,
}

/// The maximum number of entries that an undo or a query `AS OF SEQ` steps back.
pub(super) const STEPS_BACK_MAX: u64 = 20_000;
/// The number of entries after which a failed flush to a shelf is retried.
const ENTRIES_UNTIL_RETRY: u64 = 256;
/// The maximum number of batches in flight.
const FLIGHTS_MAX: usize = 64;
/// The number of writes since the last read for which the writer still makes a snapshot at once.
const UNREAD_MAX: u64 = 8;

/// The context of a writer.
pub(super) struct WriterContext {
    pub(super) store: Store,
    pub(super) nexus: NexusId,
    pub(super) shelves: Option<(SpillConfig, Arc<disk_graph::Open>)>,
    pub(super) seq_counter: Arc<SeqCounter>,
    pub(super) secrets: SecretPolicy,
    pub(super) outbox: Outbox,
    pub(super) inbox: mpsc::Receiver<Task>,
    pub(super) readers: mpsc::Receiver<oneshot::Sender<Arc<Snapshot>>>,
}

pub(super) struct Writer {
    place: WriterContext,
    mind: Mind,
    /// The version that the head document will have when every batch in flight is durable.
    head: u64,
    /// The number of the last durable entry.
    seq: u64,
    shared: Arc<Shared>,
    /// The entry after which the writer retries a failed flush to a shelf.
    file_after: u64,
    /// Set when another process wrote this nexus, or when its shelf is unreadable. The nexus must be loaded again.
    broken: bool,
    flights: VecDeque<InFlight>,
    waiting: Vec<oneshot::Sender<Arc<Snapshot>>>,
    /// The value of `taken` when a snapshot was last made, and the number of writes since.
    seen: u64,
    unread: u64,
}

impl Writer {
    pub(super) fn new(place: WriterContext, mind: Mind, head: u64, seq: u64) -> (Self, Arc<Shared>) {
        let published = RwLock::new(Arc::new(Snapshot { mind: mind.clone(), seq }));
        let shared = Arc::new(Shared { published, durable: AtomicU64::new(seq), taken: AtomicU64::new(0) });
        let owner = Self {
            place,
            mind,
            head,
            seq,
            shared: shared.clone(),
            file_after: 0,
            broken: false,
            flights: VecDeque::new(),
            waiting: Vec::new(),
            seen: 0,
            unread: 0,
        };
        (owner, shared)
    }

    pub(super) async fn run(mut self) {
        while !self.broken {
            if self.flights.is_empty() {
                self.keep_within_memory().await;
            }
            let has_room = self.flights.len() < FLIGHTS_MAX && !self.must_drain();
            let durable = async {
                match self.flights.front_mut() {
                    Some(flight) => (&mut flight.durable).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = durable => match done {
                    Ok(receipt) => self.landed(&receipt),
                    Err(failure) => self.roll_back(failure).await,
                },
                // Readers do not queue behind write commands.
                Some(reader) = self.place.readers.recv() => {
                    self.waiting.push(reader);
                    if self.flights.is_empty() {
                        self.publish(self.mind.clone());
                    }
                }
                task = self.place.inbox.recv(), if has_room => match task {
                    Some(task) => self.take_up(task).await,
                    // All handles are dropped; the batches in flight are still completed.
                    None => return self.drain_in_flight().await,
                },
            }
        }
    }

    /// Drains the batches in flight.
    async fn drain_in_flight(&mut self) {
        while let Some(flight) = self.flights.front_mut() {
            match (&mut flight.durable).await {
                Ok(receipt) => self.landed(&receipt),
                Err(failure) => self.roll_back(failure).await,
            }
        }
    }

    async fn take_up(&mut self, task: Task) {
        match task {
            Task::Write(write) => self.write(write).await,
            Task::Undo { seq, origin, reply } => self.undo(seq, origin, reply).await,
            Task::SortBy(kind, key) => {
                if let Err(error) = block_in_place_if(self.mind.is_large(), || self.mind.sort_by(kind, key)) {
                    tracing::warn!(nexus = %self.place.nexus, %error, "an index could not be built");
                }
                // No readable data changed, so the writer publishes the index at once.
                if self.flights.is_empty() {
                    self.publish(self.mind.clone());
                }
            }
            Task::Lend(to) => self.lend(to).await,
        }
    }

    /// Lends the graph and waits for its return. A borrower that does not return it may have written, so the nexus is
    /// then loaded again.
    async fn lend(&mut self, to: oneshot::Sender<Loan>) {
        self.drain_in_flight().await;
        if self.broken {
            return;
        }
        let (back, returned) = oneshot::channel();
        if to.send(Loan { mind: self.mind.clone(), head: self.head, shared: self.shared.clone(), back }).is_err() {
            return;
        }
        match returned.await {
            Ok(Returned { mind, seq: Some(seq) }) => {
                self.mind = mind;
                self.head += 1;
                self.seq = seq;
                self.publish(self.mind.clone());
            }
            Ok(Returned { seq: None, .. }) => {}
            Err(_) => self.broken = true,
        }
    }

    // ---- memory ----

    /// Returns `true` if so many unflushed elements are in memory that they must be flushed before the next write.
    fn must_drain(&self) -> bool {
        match (&self.mind, &self.place.shelves) {
            (Mind::DiskGraph(shelved), Some((shelves, _))) => {
                let behind = self.seq < self.file_after;
                shelved.unfiled() >= 2 * shelves.unfiled && !behind && !self.flights.is_empty()
            }
            _ => false,
        }
    }

    /// Moves a mind that has outgrown its budget to a shelf, and flushes the resident elements of a mind that has
    /// one. No batch is in flight.
    async fn keep_within_memory(&mut self) {
        let Some((shelves, open)) = &self.place.shelves else { return };
        let due = match &self.mind {
            Mind::Resident(graph) => graph.weight() > shelves.memory,
            Mind::DiskGraph(shelved) => shelved.unfiled() >= shelves.unfiled,
        };
        if !due || self.seq < self.file_after {
            return;
        }
        let (shelves, open) = (shelves.clone(), open.clone());
        match self.file(&shelves, &open).await {
            Ok(()) => self.publish(self.mind.clone()),
            // The mind stays in memory; the disk may have space later.
            Err(error) => {
                tracing::warn!(nexus = %self.place.nexus, %error, "a shelf cannot be written");
                self.file_after = self.seq + ENTRIES_UNTIL_RETRY;
            }
        }
    }

    async fn file(&mut self, shelves: &SpillConfig, open: &disk_graph::Open) -> Result<(), StoreError> {
        let state = State::at(self.seq, entry_hash(&self.place.store, &self.place.nexus, self.seq).await?);
        if let Mind::DiskGraph(shelved) = &mut self.mind {
            return block_in_place_if(true, || shelved.file_away(Some(state)));
        }
        let file = open.open(&shelves.file(&self.place.nexus)).await?;
        let Mind::Resident(graph) = &self.mind else { return Ok(()) };
        tracing::info!(nexus = %self.place.nexus, bytes = graph.weight(), budget = shelves.memory,
            "a mind has outgrown its memory budget and is put on a shelf");
        let shelved = block_in_place_if(true, || {
            let (mut shelved, _) = DiskGraph::open(file, (1, 1))?;
            shelved.set_numbering(graph.numbering);
            shelved.clear()?;
            shelved.take_in(graph.records())?;
            shelved.go_on_at((graph.next_concept, graph.next_link));
            shelved.file_away(Some(state))?;
            Ok::<_, StoreError>(shelved)
        })?;
        self.mind = Mind::DiskGraph(Box::new(shelved));
        Ok(())
    }

    fn now(&self) -> i64 {
        self.place.store.clock().now().as_microsecond()
    }

    async fn write(&mut self, mut write: Write) {
        self.snapshot_before_write();
        let mut commons = match &write.commons {
            None => None,
            Some(loaded) => match loaded.snapshot().await {
                Ok(snapshot) => Some(snapshot.mind.clone()),
                Err(failure) => return drop(write.reply.send(Err(failure))),
            },
        };
        let now = self.now();
        let large = self.mind.is_large() || commons.as_ref().is_some_and(Mind::is_large);
        let ran = block_in_place_if(large, || {
            let targets = match commons.as_mut() {
                Some(commons) => WriteTargets::Over { own: &mut self.mind, commons, both: false },
                None => WriteTargets::Commons(&mut self.mind),
            };
            run(&write.command, targets, &write.origin.principal, now)
        });
        if let Err(fault) = self.mind.check().and_then(|()| commons.as_ref().map_or(Ok(()), Mind::check)) {
            if let Ok(RunOutcome::Done(changes, _)) = ran {
                self.revert(changes);
            }
            self.give_up(fault.clone()).await;
            return drop(write.reply.send(Err(fault)));
        }
        match ran {
            Ok(RunOutcome::Done(mut changes, mut answer)) => {
                let cleaned = self.check_rights(&mut changes, &write).and_then(|()| self.clean(&mut changes));
                let warnings = match cleaned {
                    Ok(warnings) => warnings,
                    Err(error) => {
                        self.revert(changes);
                        let refused = json!({"error": error.to_json(&write.command.call.command)});
                        return drop(write.reply.send(Ok(refused)));
                    }
                };
                let is_secret = self.is_commons() && (!warnings.is_empty() || write.command.holds_a_secret());
                answer.warnings.extend(warnings);
                let answer = envelope(Ok(answer), &write.command.call.command);
                let mut batch = Batch::new(&write.origin);
                let notes = self.notes(&write, &changes);
                let has_notes = !notes.is_empty() || write.command.beside.iter().any(is_note);
                write.command.beside.drain(..).chain(notes).for_each(|op| batch.push(op));
                let batch = self.batch(batch, &changes);
                let batch = write.command.entry(batch, &self.place.nexus, &changes, is_secret);
                self.submit(changes, batch, answer, write.reply, has_notes).await;
            }
            Ok(RunOutcome::WritesCommons) => match write.commons.take() {
                Some(commons) => self.write_both(write, &commons).await,
                None => unreachable!("only with the commons beside it can a mind write there"),
            },
            Err(error) => drop(write.reply.send(Ok(json!({"error": error.to_json(&write.command.call.command)})))),
        }
    }

    /// Adds the operations that make `changes` durable to `batch`.
    fn batch(&self, batch: Batch, changes: &[Change]) -> Batch {
        let batch = if self.is_commons() { commons::versions_of(batch, changes).0 } else { batch };
        batch_of(batch, &self.place.nexus, Head::of(&self.mind), changes, self.head)
    }

    /// Returns notes of the facts that a write removes from the mind, unless the lifeform's own memory component does
    /// so. A command of the lifeform itself, which a model may have written at anybody's request, reaches only the
    /// copies of the participant on whose behalf it runs, if there is one.
    fn notes(&self, write: &Write, changes: &[Change]) -> Vec<Op> {
        let by = &write.origin.principal;
        let outbox = &self.place.outbox;
        match write.command.right {
            WriteAuthority::Memory => Vec::new(),
            WriteAuthority::Own if by.may(Role::Lifeform) && !by.may(Role::Operator) => {
                let of = write.origin.participant().map(|person| &**person).filter(|person| **person != *by.id.0);
                outbox.notes_of(&self.place.nexus, self.head, changes, of)
            }
            _ => outbox.notes_of(&self.place.nexus, self.head, changes, None),
        }
    }

    fn is_commons(&self) -> bool {
        &*self.place.nexus == COMMONS
    }

    /// Applies the secret policy to changes of the commons.
    fn clean(&mut self, changes: &mut [Change]) -> Result<Vec<String>, KipError> {
        if self.is_commons() { commons::clean(&mut self.mind, changes, self.place.secrets) } else { Ok(Vec::new()) }
    }

    /// Checks the principal's rights on these changes, and marks those whose provenance is unknown. Other changes of
    /// its own mind need no check.
    fn check_rights(&mut self, changes: &mut [Change], write: &Write) -> Result<(), KipError> {
        let (by, right) = (&write.origin.principal, write.command.right);
        if self.is_commons() {
            commons::check_rights(self.mind.read(), changes, by, right)?;
        }
        check_provenance(&mut self.mind, changes, by, right)
    }

    async fn submit(&mut self, changes: Vec<Change>, batch: Batch, answer: Value, reply: Reply, has_notes: bool) {
        if changes.is_empty() {
            // The batch is empty, but the data that the command read may still be in flight, so the answer keeps its
            // order.
            match self.flights.is_empty() {
                true => drop(reply.send(Ok(answer))),
                false => self.flights.push_back(InFlight {
                    changes,
                    snapshot: None,
                    durable: Box::pin(std::future::ready(Ok(Receipt::default()))),
                    answer,
                    reply,
                    has_notes,
                }),
            }
            return;
        }
        self.head += 1;
        let durable: Durable = Box::pin(self.place.store.submit(batch).await);
        self.flights.push_back(InFlight { changes, snapshot: None, durable, answer, reply, has_notes });
    }

    /// Handles the durability of the first batch in flight.
    fn landed(&mut self, receipt: &Receipt) {
        let Some(flight) = self.flights.pop_front() else { return };
        if let Some(seq) = receipt.versions.last() {
            self.seq = *seq;
            self.unread += 1;
            let taken = self.shared.taken.load(Ordering::Relaxed);
            if taken != self.seen {
                (self.seen, self.unread) = (taken, 0);
            }
        }
        if self.unread < UNREAD_MAX || !self.waiting.is_empty() {
            let mind = flight.snapshot.unwrap_or_else(|| self.mind.clone());
            self.publish(mind);
        } else {
            // Readers learn that their snapshot is stale before the caller learns that the write is done.
            self.shared.durable.store(self.seq, Ordering::Release);
        }
        if flight.has_notes {
            self.place.outbox.signal();
        }
        let _ = flight.reply.send(Ok(flight.answer));
    }

    fn publish(&mut self, mind: Mind) {
        let snapshot = self.shared.publish(mind, self.seq);
        for reply in self.waiting.drain(..) {
            let _ = reply.send(snapshot.clone());
        }
    }
}

/// Returns the refusal for a principal without the right to write.
pub(super) fn no_right() -> KipError {
    KipError::new(ErrorKind::Execution, "only an operator or the lifeform itself may write here").code("KIP_4003")
}
