//! The cache of loaded nexuses: loads one from its rows, gives a new one its first knowledge, and evicts idle ones.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kip::capsule::Header;
use kip::exec::{self, Draft};
use kip::graph::{Builder, El, Graph, GraphWrite, Numbering, Record};
use kip::{CAPSULES, Call, Options, bind_and};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use store::clock::Timestamp;
use store::principal::Origin;
use store::{Batch, Key, Kind, PAGE_ELEMENTS, StoreError};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::command::Command;
use super::commons::COMMONS;
use super::journal::Written;
use super::meaning::Meaning;
use super::mind::Mind;
use super::owner::{self, Loan, Owner, STEPS_BACK_MAX, Shared, Snapshot, Task};
use super::shelf::{Shelved, State};
use super::{Nexus, NexusError, NexusId, journal_stream};

/// The nexuses that are awake or waking.
#[derive(Default)]
pub(super) struct Dormitory {
    beds: HashMap<NexusId, Bed>,
    /// The time of the last eviction of idle ones.
    swept: Timestamp,
}

/// A slot of the cache: the lock of loading, and the time of the last use.
struct Bed {
    awake: Arc<OnceCell<Arc<Awake>>>,
    used: Timestamp,
}

/// A nexus in memory.
pub(super) struct Awake {
    shared: Arc<Shared>,
    pub(super) writer: mpsc::Sender<Task>,
    readers: mpsc::Sender<oneshot::Sender<Arc<Snapshot>>>,
    /// The embeddings, once a search used them.
    pub(super) meaning: Meaning,
}

/// The facts about a nexus besides its elements.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of its next concept.
    pub(super) concepts: u32,
    /// The number of its next link.
    pub(super) links: u32,
    /// About how many bytes it takes up in memory.
    #[serde(default)]
    pub(super) weight: usize,
    /// The ids of its elements.
    #[serde(default)]
    pub(super) numbering: Numbering,
}

/// The capsules a nexus is born with.
fn capsules_of(nexus: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    CAPSULES.into_iter().chain((nexus == COMMONS).then_some(KNOWLEDGE))
}

/// Returns the number of journal entries that the creation of a nexus takes.
pub(super) fn birth_of(nexus: &str) -> usize {
    capsules_of(nexus).count()
}

impl Head {
    pub(super) fn of(mind: &Mind) -> Self {
        let (concepts, links) = mind.next();
        Self { concepts, links, weight: mind.weight(), numbering: mind.numbering() }
    }
}

/// The types of what all share, which only the commons is born with.
const KNOWLEDGE: (&str, &str) = ("knowledge", include_str!("../../config/capsules/knowledge.kip"));

/// Elements of a graph, and the page where the next ones begin.
type Stretch = (Vec<(El, Record)>, Option<u64>);

/// Commands that may wait for one nexus before callers are held back.
const TASKS_MAX: usize = 256;
/// Pages of a graph that are read at once when it wakes.
const PAGES_AT_ONCE: usize = 256;
/// A nexus nobody came to for so long is let go from memory.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Minds in memory, past which one is let go sooner.
const BEDS_MAX: usize = 1_024;
const IDLE_OF_MANY: Duration = Duration::from_secs(60);

impl Nexus {
    /// Lets a nexus go from memory; its rows stay.
    pub fn forget(&self, nexus: &NexusId) {
        self.dormitory.lock().unwrap_or_else(PoisonError::into_inner).beds.remove(nexus);
    }

    /// Lets a nexus go if it is still awake as it was.
    pub(super) fn forget_this(&self, nexus: &NexusId, awake: &Arc<Awake>) {
        let mut dormitory = self.dormitory.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |bed: &Bed| bed.awake.get().is_some_and(|here| Arc::ptr_eq(here, awake));
        if dormitory.beds.get(nexus).is_some_and(same) {
            dormitory.beds.remove(nexus);
        }
    }

    /// A nexus that is in memory.
    pub(super) fn awake_now(&self, nexus: &NexusId) -> Option<Arc<Awake>> {
        let dormitory = self.dormitory.lock().unwrap_or_else(PoisonError::into_inner);
        dormitory.beds.get(nexus)?.awake.get().cloned()
    }

    /// Returns the number of nexuses in memory.
    pub fn awake(&self) -> usize {
        self.dormitory.lock().unwrap_or_else(PoisonError::into_inner).beds.len()
    }

    /// Wakes a nexus: its rows become a graph, and an empty one is born with the shipped capsules.
    pub(super) async fn wake(&self, nexus: &NexusId) -> Result<Arc<Awake>, NexusError> {
        let cell = {
            let now = self.store.clock().now();
            let mut dormitory = self.dormitory.lock().unwrap_or_else(PoisonError::into_inner);
            let since = |then: Timestamp| Duration::try_from(now.duration_since(then)).unwrap_or_default();
            let idle = if dormitory.beds.len() > BEDS_MAX { IDLE_OF_MANY } else { IDLE };
            if since(dormitory.swept) > idle / 2 {
                dormitory.swept = now;
                // Whoever uses a nexus holds its bed; one that nobody holds or came to lately is let go.
                dormitory.beds.retain(|id, bed| {
                    let held = bed.awake.get().is_some_and(|awake| Arc::strong_count(awake) > 1);
                    id == nexus || since(bed.used) <= idle || held || Arc::strong_count(&bed.awake) > 1
                });
            }
            // A writer that is gone leaves an empty bed.
            if dormitory
                .beds
                .get(nexus)
                .is_some_and(|bed| bed.awake.get().is_some_and(|awake| awake.writer.is_closed()))
            {
                dormitory.beds.remove(nexus);
            }
            let bed = dormitory.beds.entry(nexus.clone()).or_insert_with(|| Bed { awake: Arc::default(), used: now });
            bed.used = now;
            bed.awake.clone()
        };
        Ok(cell.get_or_try_init(|| self.load(nexus.clone())).await?.clone())
    }

    /// Reads a stretch of a graph beside whatever else goes on.
    fn stretch(&self, nexus: &NexusId, from: u64) -> JoinHandle<Result<Stretch, StoreError>> {
        let (store, nexus) = (self.store.clone(), nexus.clone());
        tokio::spawn(async move {
            let (rows, next) = store.elements(&nexus, from, PAGES_AT_ONCE).await?;
            let unpack = |(no, body): &(u64, Bytes)| owner::unpack(&nexus, *no, body);
            Ok((rows.iter().map(unpack).collect::<Result<_, _>>()?, next))
        })
    }

    async fn load(&self, nexus: NexusId) -> Result<Arc<Awake>, NexusError> {
        let head = self.store.document::<Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        let outgrown = |weight| self.shelves.as_ref().filter(|shelves| weight > shelves.memory);
        let (mut mind, version) = match &head {
            None => {
                let mut mind = Mind::Resident(Box::new(Graph::new()));
                mind.set_numbering(Numbering::keyed(rand::rng().random(), mind.next()));
                let version = self.bear(&nexus, &mut mind).await?;
                (mind, version)
            }
            Some(head) if outgrown(head.value.weight).is_some() => match self.on_shelf(&nexus, &head.value).await {
                Ok(shelved) => (Mind::Shelved(Box::new(shelved)), head.version),
                // Without a disk for it, it wakes in memory, as it would stay there.
                Err(NexusError::Store(error @ (StoreError::Io(_) | StoreError::Locked(_)))) => {
                    tracing::warn!(%nexus, %error, "a mind over its budget wakes in memory: its shelf cannot be used");
                    (self.in_memory(&nexus, &head.value).await?, head.version)
                }
                Err(error) => return Err(error),
            },
            Some(head) => (self.in_memory(&nexus, &head.value).await?, head.version),
        };
        if let Some(head) = &head {
            mind.set_numbering(head.value.numbering);
            // One from before there were keys hides what is created from now on: its next write keeps the key.
            if head.value.numbering.is_plain() {
                mind.set_numbering(Numbering::keyed(rand::rng().random(), mind.next()));
            }
        }
        let unlearned = if head.is_some() { unlearned(&nexus, &mind) } else { Vec::new() };
        let seq = self.store.head(&journal_stream(&nexus)).await?;
        let (writer, inbox) = mpsc::channel(TASKS_MAX);
        let (readers, reading) = mpsc::channel(TASKS_MAX);
        let shelves = self.shelves.clone().map(|shelves| (shelves, self.open_shelves.clone()));
        let (store, joint) = (self.store.clone(), self.joint.clone());
        let secrets = self.secrets;
        let outbox = self.outbox.clone();
        let place = owner::Place { store, nexus, shelves, joint, secrets, outbox, inbox, readers: reading };
        let (owner, shared) = Owner::new(place, mind, version, seq);
        tokio::spawn(store::vital("nexus", owner.run()));
        let awake = Arc::new(Awake { shared, writer, readers, meaning: Meaning::default() });
        for command in unlearned {
            awake.learn(command).await?;
        }
        Ok(awake)
    }

    /// The graph of a nexus, in memory.
    async fn in_memory(&self, nexus: &NexusId, head: &Head) -> Result<Mind, NexusError> {
        let mut builder = Builder::default();
        self.each_stretch(nexus, |elements| {
            elements.into_iter().for_each(|(el, record)| builder.push(el, record));
            Ok(())
        })
        .await?;
        let mut graph = owner::beside(true, || builder.finish());
        graph.next_concept = graph.next_concept.max(head.concepts);
        graph.next_link = graph.next_link.max(head.links);
        // It can be asked at once; only a search waits for the words.
        let whole = graph.clone();
        tokio::task::spawn_blocking(move || whole.ready_words());
        Ok(Mind::Resident(Box::new(graph)))
    }

    /// Hands over all elements of a nexus, in order.
    async fn each_stretch(
        &self,
        nexus: &NexusId,
        mut take: impl FnMut(Vec<(El, Record)>) -> Result<(), StoreError>,
    ) -> Result<(), NexusError> {
        // The next stretch is read and unpacked while this one is taken up.
        let mut ahead = Some(self.stretch(nexus, 0));
        while let Some(stretch) = ahead.take() {
            let (records, next) = stretch.await.map_err(|_| StoreError::Closed)??;
            ahead = next.map(|from| self.stretch(nexus, from));
            take(records)?;
        }
        Ok(())
    }

    /// The shelf of a nexus, brought up to what the store holds; one that cannot be is made again.
    async fn on_shelf(&self, nexus: &NexusId, head: &Head) -> Result<Shelved, NexusError> {
        let Some(shelves) = &self.shelves else { return Err(StoreError::Closed.into()) };
        let file = shelves.file(nexus);
        match self.bring_up(nexus, &file, (head.concepts, head.links)).await {
            Err(NexusError::Store(StoreError::Io(error))) => {
                tracing::warn!(%nexus, error, "a shelf that cannot be read is made again");
                self.open_shelves.condemn(&file);
                self.bring_up(nexus, &file, (head.concepts, head.links)).await
            }
            brought => brought,
        }
    }

    async fn bring_up(&self, nexus: &NexusId, file: &Path, next: (u32, u32)) -> Result<Shelved, NexusError> {
        let shelf = self.open_shelves.open(file).await?;
        let (mut shelved, state) = owner::beside(true, || Shelved::open(shelf, next))?;
        let seq = self.store.head(&journal_stream(nexus)).await?;
        match state {
            Some(state) if self.is_behind(nexus, &state, seq).await? => {
                let missed = owner::read_journal(&self.store, nexus, state.seq, seq).await?;
                if missed.is_empty() {
                    return Ok(shelved);
                }
                let mut pages: Vec<u64> = missed
                    .iter()
                    .flat_map(|(_, entry)| entry.touched())
                    .map(|el| u64::from(el.0) / PAGE_ELEMENTS)
                    .collect();
                pages.sort_unstable();
                pages.dedup();
                let touched: HashSet<El> = missed.iter().flat_map(|(_, entry)| entry.touched()).collect();
                let mut now: HashMap<El, Record> = HashMap::new();
                for page in pages {
                    let (rows, _) = self.store.elements(nexus, page, 1).await?;
                    for (no, body) in rows {
                        let (el, record) = owner::unpack(nexus, no, &body)?;
                        now.insert(el, record);
                    }
                }
                owner::beside(true, || {
                    for el in touched {
                        match now.remove(&el) {
                            Some(record) => shelved.put(el, record),
                            None => shelved.remove(el),
                        }
                    }
                });
            }
            _ => {
                tracing::info!(%nexus, "a mind over its memory budget is put on a shelf");
                owner::beside(true, || shelved.clear())?;
                self.each_stretch(nexus, |records| owner::beside(true, || shelved.take_in(records))).await?;
                shelved.go_on_at(next);
            }
        }
        let entry = owner::entry_hash(&self.store, nexus, seq).await?;
        owner::beside(true, || shelved.file_away(Some(State::at(seq, entry))))?;
        shelved.check()?;
        Ok(shelved)
    }

    /// Returns `true` if a shelf holds an earlier state of this very nexus, and not too old a one.
    async fn is_behind(&self, nexus: &NexusId, state: &State, seq: u64) -> Result<bool, NexusError> {
        Ok(state.seq <= seq
            && seq - state.seq <= STEPS_BACK_MAX
            && state.entry == owner::entry_hash(&self.store, nexus, state.seq).await?)
    }

    /// Gives a new nexus the shipped capsules, all in one commit: it is born whole or not at all.
    async fn bear(&self, nexus: &NexusId, mind: &mut Mind) -> Result<u64, NexusError> {
        let now = self.store.clock().now().as_microsecond();
        let origin = Origin::system("birth of a nexus");
        let (mut all, mut entries) = (Vec::new(), Vec::new());
        for (name, text) in capsules_of(nexus) {
            let call = Call { command: text.to_owned(), parameters: Map::new() };
            let changes = bind_and(&call, |command| {
                let mut draft = Draft::new(mind.write(), now, true);
                exec::write(command, &mut draft, &Options::default())?;
                Ok(draft.finish().0)
            })
            .map_err(|error| NexusError::Capsule { name, reason: error.to_json(text).to_string() })?;
            entries.push(Written { capsule: Some(header_of(name, text)), ..Written::of(text, &Map::new(), &changes) });
            all.extend(changes);
        }
        // An element that a later capsule touched again is written as it is in the end.
        all.iter_mut().for_each(|change| change.after = mind.read().record(change.el));
        let batch = owner::batch_of(Batch::new(&origin), nexus, Head::of(mind), &all, 0);
        let batch = entries.iter().fold(batch, |batch, entry| batch.append(journal_stream(nexus), "capsule", entry));
        Ok(self.store.commit(batch).await?.versions[0])
    }
}

/// The shipped capsules that define what a commons born earlier does not know.
fn unlearned(nexus: &NexusId, mind: &Mind) -> Vec<Command> {
    let mut unlearned = Vec::new();
    for (name, text) in capsules_of(nexus).filter(|_| &**nexus == COMMONS) {
        let (mut copy, call) = (mind.clone(), Call { command: text.to_owned(), parameters: Map::new() });
        let adds = bind_and(&call, |command| {
            let mut draft = Draft::new(copy.write(), 0, true);
            exec::write(command, &mut draft, &Options::default())?;
            Ok(draft.finish().0.iter().any(|change| change.before.is_none()))
        });
        if let Err(error) = &adds {
            tracing::error!(capsule = name, error = %error.to_json(text), "a shipped capsule does not go with this commons");
        }
        if adds.unwrap_or_default() {
            let capsule = Some(header_of(name, text));
            unlearned.push(Command { privileged: true, capsule, ..Command::of(call, kip::Dialect::default()) });
        }
    }
    unlearned
}

fn header_of(name: &str, text: &str) -> Header {
    Header {
        name: name.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        sha256: store::Hash::of(text.as_bytes()).hex(),
    }
}

impl Awake {
    /// Has a shipped capsule written by the daemon.
    async fn learn(&self, command: Command) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let origin = Origin::system("a newer capsule");
        let write = owner::Write { command, origin, commons: None, reply };
        self.writer.send(Task::Write(write)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)??;
        Ok(())
    }

    /// The graph of the commons with the right to write it, until it is given back.
    pub(super) async fn borrow(&self) -> Result<Loan, StoreError> {
        let (lend, loan) = oneshot::channel();
        self.writer.send(Task::Lend(lend)).await.map_err(|_| StoreError::Closed)?;
        loan.await.map_err(|_| StoreError::Closed)
    }

    /// Returns `true` if the shelf could not be read.
    pub(super) fn is_faulty(&self) -> bool {
        self.shared.is_faulty()
    }

    /// The graph with everything durable in it.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, StoreError> {
        if let Some(fresh) = self.shared.fresh() {
            return Ok(fresh);
        }
        let (reply, answer) = oneshot::channel();
        self.readers.send(reply).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)
    }
}
