//! The single writer of one nexus. It applies a command to its own graph, hands the batch to the store and
//! takes up the next one; what is durable is published and answered, in order. Should a batch fail, it and
//! everything applied after it is taken back.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use kip::capsule::Header;
use kip::datum::Sym;
use kip::exec::{self, Change, Draft};
use kip::graph::{El, Graph, Record};
use kip::{Answer, Call, Dialect, ErrorKind, KipError, Options, bind_and, envelope};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::NexusId;
use super::journal::Written;
use super::wake::Head;
use crate::principal::{Origin, Role};
use crate::store::{Batch, Expect, Key, Kind, Op, PAGE_MAX, Receipt, Store, StoreError};

/// A graph that will not change any more, and the journal entry after which it stands so.
#[derive(Clone)]
pub struct Snapshot {
    /// The graph.
    pub graph: Graph,
    /// The number of the last entry of `nexus:{id}` in it.
    pub seq: u64,
}

/// What readers share with the writer.
pub(super) struct Shared {
    published: RwLock<Arc<Snapshot>>,
    /// The entry up to which everything is durable; a snapshot before it is stale.
    durable: AtomicU64,
    /// Snapshots taken; while nobody takes any, none are made.
    taken: AtomicU64,
}

impl Shared {
    /// The published snapshot, unless something durable is missing in it.
    pub(super) fn fresh(&self) -> Option<Arc<Snapshot>> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let published = self.published.read().unwrap_or_else(PoisonError::into_inner).clone();
        (published.seq >= self.durable.load(Ordering::Acquire)).then_some(published)
    }
}

/// Something for the writer to do.
pub(super) enum Task {
    /// Runs a command that writes.
    Write(Write),
    /// Takes an entry back.
    Undo { seq: u64, origin: Origin, reply: Reply },
    /// Builds an index that a query would have used.
    SortBy(Sym, Sym),
}

/// A command that writes.
pub(super) struct Write {
    pub(super) call: Call,
    pub(super) dialect: Dialect,
    /// An operator's capsule may write what is protected (R28).
    pub(super) privileged: bool,
    pub(super) capsule: Option<Header>,
    pub(super) origin: Origin,
    pub(super) reply: Reply,
}

type Reply = oneshot::Sender<Result<Value, StoreError>>;
type Durable = Pin<Box<dyn Future<Output = Result<Receipt, StoreError>> + Send>>;

/// A batch on its way to the disk.
struct Flight {
    changes: Vec<Change>,
    next: (u32, u32),
    /// The graph with it and nothing later; made only once something later is applied.
    snapshot: Option<Graph>,
    durable: Durable,
    answer: Value,
    reply: Reply,
}

/// Entries that an undo or a look back goes over at most.
pub(super) const STEPS_BACK_MAX: u64 = 20_000;
/// Batches on their way at once.
const FLIGHTS_MAX: usize = 64;
/// Writes after the last look of a reader for which a snapshot is still made at once.
const UNREAD_MAX: u64 = 8;

pub(super) struct Owner {
    store: Store,
    nexus: NexusId,
    graph: Graph,
    /// The version the head document will have once everything on its way is durable.
    head: u64,
    /// The number of the last durable entry.
    seq: u64,
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<Task>,
    readers: mpsc::Receiver<oneshot::Sender<Arc<Snapshot>>>,
    /// Set when somebody else wrote this nexus: it must be woken anew.
    broken: bool,
    flights: VecDeque<Flight>,
    waiting: Vec<oneshot::Sender<Arc<Snapshot>>>,
    /// `taken` when a snapshot was last made, and the writes since.
    seen: u64,
    unread: u64,
}

impl Owner {
    pub(super) fn new(
        store: Store,
        nexus: NexusId,
        graph: Graph,
        head: u64,
        seq: u64,
        inbox: mpsc::Receiver<Task>,
        readers: mpsc::Receiver<oneshot::Sender<Arc<Snapshot>>>,
    ) -> (Self, Arc<Shared>) {
        let published = RwLock::new(Arc::new(Snapshot { graph: graph.clone(), seq }));
        let shared = Arc::new(Shared { published, durable: AtomicU64::new(seq), taken: AtomicU64::new(0) });
        let owner = Self {
            store,
            nexus,
            graph,
            head,
            seq,
            shared: shared.clone(),
            inbox,
            readers,
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
            let has_room = self.flights.len() < FLIGHTS_MAX;
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
                    Err(failure) => self.take_back(failure).await,
                },
                // Readers do not queue behind writers.
                Some(reader) = self.readers.recv() => {
                    self.waiting.push(reader);
                    if self.flights.is_empty() {
                        self.publish(self.graph.clone());
                    }
                }
                task = self.inbox.recv(), if has_room => match task {
                    Some(task) => self.take_up(task).await,
                    // Nobody is left to ask; what is on its way is still seen home.
                    None => {
                        while let Some(flight) = self.flights.front_mut() {
                            match (&mut flight.durable).await {
                                Ok(receipt) => self.landed(&receipt),
                                Err(failure) => self.take_back(failure).await,
                            }
                        }
                        return;
                    }
                },
            }
        }
    }

    async fn take_up(&mut self, task: Task) {
        match task {
            Task::Write(write) => self.write(write).await,
            Task::Undo { seq, origin, reply } => self.undo(seq, origin, reply).await,
            Task::SortBy(kind, key) => {
                self.graph.sort_by(kind, key);
                // Nothing changed that could be read, so the index is shown at once.
                if self.flights.is_empty() {
                    self.publish(self.graph.clone());
                }
            }
        }
    }

    fn now(&self) -> i64 {
        self.store.clock().now().as_microsecond()
    }

    async fn write(&mut self, write: Write) {
        self.keep_before();
        let Write { call, dialect, privileged, capsule, origin, reply } = write;
        let (now, next) = (self.now(), (self.graph.next_concept, self.graph.next_link));
        let options = Options { dialect, ..Options::default() };
        let graph = &mut self.graph;
        let ran = beside(graph.len(), || {
            bind_and(&call, |command| {
                let mut draft = Draft::new(graph, now, privileged);
                match exec::write(command, &mut draft, &options) {
                    Ok(result) => {
                        let (changes, warnings) = draft.finish();
                        Ok((changes, Answer { result, warnings, ..Answer::default() }))
                    }
                    Err(error) => {
                        draft.undo();
                        Err(error)
                    }
                }
            })
        });
        match ran {
            Ok((changes, answer)) => {
                let written = Written { capsule, ..Written::of(&call.command, &call.parameters, &changes) };
                let answer = envelope(Ok(answer), &call.command);
                let kind = if written.capsule.is_some() { "capsule" } else { "kml" };
                self.submit(changes, next, kind, &written, &origin, answer, reply).await;
            }
            Err(error) => drop(reply.send(Ok(json!({"error": error.to_json(&call.command)})))),
        }
    }

    /// Takes an entry back. What is on its way is seen home first, so that the journal tells everything that
    /// came after the entry.
    async fn undo(&mut self, seq: u64, origin: Origin, reply: Reply) {
        while let Some(flight) = self.flights.front_mut() {
            match (&mut flight.durable).await {
                Ok(receipt) => self.landed(&receipt),
                Err(failure) => self.take_back(failure).await,
            }
        }
        if self.seq.saturating_sub(seq) > STEPS_BACK_MAX {
            let error = KipError::new(
                ErrorKind::Execution,
                format!("entry {seq} lies more than {STEPS_BACK_MAX} entries back"),
            );
            return drop(reply.send(Ok(json!({"error": error.code("KIP_4002").to_json("")}))));
        }
        let mut entries = match read_journal(&self.store, &self.nexus, seq.saturating_sub(1), self.seq).await {
            Ok(entries) => entries.into_iter(),
            Err(failure) => return drop(reply.send(Err(failure))),
        };
        let refused = |error: KipError| json!({"error": error.to_json("")});
        let Some((_, written)) = entries.next().filter(|(no, _)| *no == seq) else {
            let error = KipError::new(ErrorKind::NotFound, format!("the journal has no entry {seq}"));
            return drop(reply.send(Ok(refused(error))));
        };
        let later: Vec<(u64, Written)> = entries.collect();
        let (now, next) = (self.now(), (self.graph.next_concept, self.graph.next_link));
        let privileged = origin.principal.may(Role::Operator);
        let undone = written.inverse(seq, &later, &self.graph).and_then(|steps| {
            let mut draft = Draft::new(&mut self.graph, now, privileged);
            match steps.into_iter().try_for_each(|(el, record)| draft.restore(el, record)) {
                Ok(()) => Ok(draft.finish().0),
                Err(error) => {
                    draft.undo();
                    Err(error)
                }
            }
        });
        match undone {
            Ok(changes) => {
                let undo = Written { undoes: Some(seq), ..Written::of("", &serde_json::Map::new(), &changes) };
                let answer = json!({"result": {"undone": seq, "elements": changes.len()}});
                self.submit(changes, next, "undo", &undo, &origin, answer, reply).await;
            }
            Err(error) => drop(reply.send(Ok(refused(error)))),
        }
    }

    /// Before the graph goes on: what the last batch on its way left, for readers who wait for that.
    fn keep_before(&mut self) {
        if let Some(last) = self.flights.back_mut()
            && last.snapshot.is_none()
        {
            last.snapshot = Some(self.graph.clone());
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call for each of the two sorts of write")]
    async fn submit(
        &mut self,
        changes: Vec<Change>,
        next: (u32, u32),
        kind: &str,
        written: &Written,
        origin: &Origin,
        answer: Value,
        reply: Reply,
    ) {
        if changes.is_empty() {
            // Nothing to write; but what was read may still be on its way, so it is answered in order.
            match self.flights.is_empty() {
                true => drop(reply.send(Ok(answer))),
                false => self.flights.push_back(Flight {
                    changes,
                    next,
                    snapshot: None,
                    durable: Box::pin(std::future::ready(Ok(Receipt::default()))),
                    answer,
                    reply,
                }),
            }
            return;
        }
        let batch = batch_of(&self.nexus, origin, &self.graph, &changes, self.head).append(
            format!("nexus:{}", self.nexus),
            kind,
            written,
        );
        self.head += 1;
        let durable: Durable = Box::pin(self.store.submit(batch).await);
        self.flights.push_back(Flight { changes, next, snapshot: None, durable, answer, reply });
    }

    /// The first batch on its way is durable.
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
            let graph = flight.snapshot.unwrap_or_else(|| self.graph.clone());
            self.publish(graph);
        } else {
            // Readers are told that theirs is old before the writer is told that it is done.
            self.shared.durable.store(self.seq, Ordering::Release);
        }
        let _ = flight.reply.send(Ok(flight.answer));
    }

    fn publish(&mut self, graph: Graph) {
        let snapshot = Arc::new(Snapshot { graph, seq: self.seq });
        *self.shared.published.write().unwrap_or_else(PoisonError::into_inner) = snapshot.clone();
        self.shared.durable.store(self.seq, Ordering::Release);
        for reply in self.waiting.drain(..) {
            let _ = reply.send(snapshot.clone());
        }
    }

    /// A batch failed: nothing behind it can have gone through, since each names the head it expects.
    async fn take_back(&mut self, failure: StoreError) {
        self.broken = matches!(failure, StoreError::Conflict { .. });
        let mut failed: Vec<Flight> = self.flights.drain(..).collect();
        for flight in failed.iter_mut().skip(1).filter(|flight| !flight.changes.is_empty()) {
            let _ = (&mut flight.durable).await;
        }
        for flight in failed.into_iter().rev() {
            if !flight.changes.is_empty() {
                self.head -= 1;
            }
            for change in flight.changes.into_iter().rev() {
                match change.before {
                    Some(record) => drop(self.graph.put(change.el, record)),
                    None => drop(self.graph.remove(change.el)),
                }
            }
            (self.graph.next_concept, self.graph.next_link) = flight.next;
            let _ = flight.reply.send(Err(failure.clone()));
        }
        if !self.waiting.is_empty() {
            self.publish(self.graph.clone());
        }
    }
}

/// From so many elements on, a command is long enough to be kept off the runtime's other work.
const LARGE: usize = 20_000;

/// Runs long work on a thread that other tasks have been moved away from, where the runtime has several.
pub(super) fn beside<R>((concepts, links): (usize, usize), work: impl FnOnce() -> R) -> R {
    let several = tokio::runtime::Handle::current().runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread;
    if several && concepts + links >= LARGE { tokio::task::block_in_place(work) } else { work() }
}

/// The entries of a nexus after `after` up to `upto`, by number.
///
/// # Errors
/// The store's own.
pub(super) async fn read_journal(
    store: &Store,
    nexus: &NexusId,
    after: u64,
    upto: u64,
) -> Result<Vec<(u64, Written)>, StoreError> {
    let stream = format!("nexus:{nexus}").into();
    let (mut read, mut after) = (Vec::new(), after);
    while after < upto {
        let entries = store.entries(&stream, after, PAGE_MAX).await?;
        let Some(last) = entries.last() else { break };
        after = last.seq;
        for entry in entries.into_iter().filter(|entry| entry.seq <= upto) {
            read.push((entry.seq, entry.decode()?));
        }
    }
    Ok(read)
}

/// The batch that makes changes durable; its first change is the head, at the version it must have.
pub(super) fn batch_of(nexus: &NexusId, origin: &Origin, graph: &Graph, changes: &[Change], head: u64) -> Batch {
    let key = Key::new(Kind::Nexus, nexus.clone());
    let next = Head { concepts: graph.next_concept, links: graph.next_link };
    let mut batch = Batch::new(origin).put_expecting(key, Expect::Version(head), &next);
    let rows = changes.iter().map(|change| (u64::from(change.el.0), change.after.as_ref().map(pack))).collect();
    batch.push(Op::Elements { nexus: nexus.clone(), rows });
    batch
}

/// A record as the store keeps it.
pub(super) fn pack(record: &Record) -> Bytes {
    rmp_serde::to_vec(record).map(Bytes::from).unwrap_or_else(|error| unreachable!("plain data serializes: {error}"))
}

/// A record of the store.
///
/// # Errors
/// [`StoreError::Corrupt`] when it is none.
pub(super) fn unpack(nexus: &NexusId, no: u64, body: &[u8]) -> Result<(El, Record), StoreError> {
    let el = u32::try_from(no).map(El).map_err(|_| StoreError::Corrupt(format!("element {no} of nexus {nexus}")))?;
    let record = rmp_serde::from_slice(body)
        .map_err(|error| StoreError::Corrupt(format!("element {el} of nexus {nexus}: {error}")))?;
    Ok((el, record))
}

/// What somebody without the right to write is told.
pub(super) fn no_right() -> KipError {
    KipError::new(ErrorKind::Execution, "only an operator or the lifeform itself may write here").code("KIP_4003")
}
