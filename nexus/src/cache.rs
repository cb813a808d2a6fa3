//! The cache of loaded nexuses: loads a nexus from its rows, initializes a new one with the shipped capsules, and
//! evicts idle ones.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kip::graph::{Builder, ElementId, Graph, GraphWrite, Numbering, Record};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use store::clock::Timestamp;
use store::{Key, Kind, PAGE_ELEMENTS, StoreError};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::disk_graph::{DiskGraph, State};
use super::embeddings::Meaning;
use super::identity::Identity;
use super::mind::Mind;
use super::shipped::missing_capsules;
use super::writer::{self, Loan, STEPS_BACK_MAX, Shared, Snapshot, Task, Writer};
use super::{Nexus, NexusError, NexusId, journal_stream};

/// The nexuses that are loaded or loading.
#[derive(Default)]
pub(super) struct NexusCache {
    slots: HashMap<NexusId, Slot>,
    /// The time of the last eviction of idle nexuses.
    swept: Timestamp,
}

/// A slot of the cache: the lock for loading, and the time of the last use.
struct Slot {
    loaded: Arc<OnceCell<Arc<LoadedNexus>>>,
    used: Timestamp,
}

/// A loaded nexus.
pub(super) struct LoadedNexus {
    shared: Arc<Shared>,
    pub(super) writer: mpsc::Sender<Task>,
    readers: mpsc::Sender<oneshot::Sender<Arc<Snapshot>>>,
    /// The embeddings; empty until a search uses them.
    pub(super) meaning: Meaning,
    /// The identity of the lifeform to which the mind belongs.
    pub(super) identity: Option<Identity>,
}

/// The stored data of a nexus apart from its elements.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of the next concept.
    pub(super) concepts: u32,
    /// The number of the next link.
    pub(super) links: u32,
    /// The estimated memory of the graph, in bytes.
    #[serde(default)]
    pub(super) weight: usize,
    /// The numbering, which maps element numbers to ids.
    #[serde(default)]
    pub(super) numbering: Numbering,
}

impl Head {
    pub(super) fn of(mind: &Mind) -> Self {
        let (concepts, links) = mind.next();
        Self { concepts, links, weight: mind.weight(), numbering: mind.numbering() }
    }
}

/// A range of elements of a graph, and the page where the next range begins.
type PageRange = (Vec<(ElementId, Record)>, Option<u64>);

/// The maximum number of queued commands per nexus; beyond it, callers wait.
const TASKS_MAX: usize = 256;
/// The number of pages per read while a nexus loads.
const PAGES_AT_ONCE: usize = 256;
/// The time without use after which a nexus is evicted.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The maximum number of loaded minds; beyond it, nexuses are evicted sooner.
const CROWDED_ABOVE: usize = 1_024;
const IDLE_OF_MANY: Duration = Duration::from_secs(60);

impl Nexus {
    /// Evicts a nexus from memory; its rows remain in the store.
    pub fn forget(&self, nexus: &NexusId) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).slots.remove(nexus);
    }

    /// Evicts a nexus if the cache still holds this loaded instance.
    pub(super) fn evict_instance(&self, nexus: &NexusId, loaded: &Arc<LoadedNexus>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |bed: &Slot| bed.loaded.get().is_some_and(|here| Arc::ptr_eq(here, loaded));
        if cache.slots.get(nexus).is_some_and(same) {
            cache.slots.remove(nexus);
        }
    }

    /// Returns a nexus if it is loaded.
    pub(super) fn loaded_now(&self, nexus: &NexusId) -> Option<Arc<LoadedNexus>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.slots.get(nexus)?.loaded.get().cloned()
    }

    /// Returns the number of nexuses in memory.
    pub fn loaded_count(&self) -> usize {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).slots.len()
    }

    /// Loads a nexus: builds the graph from its rows. A new nexus is initialized with the shipped capsules.
    pub(super) async fn wake(&self, nexus: &NexusId) -> Result<Arc<LoadedNexus>, NexusError> {
        let cell = {
            let now = self.store.clock().now();
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            let since = |then: Timestamp| Duration::try_from(now.duration_since(then)).unwrap_or_default();
            let idle = if cache.slots.len() > CROWDED_ABOVE { IDLE_OF_MANY } else { IDLE };
            if since(cache.swept) > idle / 2 {
                cache.swept = now;
                // A user of a nexus holds its slot. A slot that is unused and was not used recently is evicted.
                cache.slots.retain(|id, bed| {
                    let held = bed.loaded.get().is_some_and(|loaded| Arc::strong_count(loaded) > 1);
                    id == nexus || since(bed.used) <= idle || held || Arc::strong_count(&bed.loaded) > 1
                });
            }
            // A writer that ended leaves a slot that must be loaded again.
            if cache
                .slots
                .get(nexus)
                .is_some_and(|bed| bed.loaded.get().is_some_and(|loaded| loaded.writer.is_closed()))
            {
                cache.slots.remove(nexus);
            }
            let bed = cache.slots.entry(nexus.clone()).or_insert_with(|| Slot { loaded: Arc::default(), used: now });
            bed.used = now;
            bed.loaded.clone()
        };
        Ok(cell.get_or_try_init(|| self.load(nexus.clone())).await?.clone())
    }

    /// Starts reading a range of a graph in a separate task.
    fn read_range(&self, nexus: &NexusId, from: u64) -> JoinHandle<Result<PageRange, StoreError>> {
        let (store, nexus) = (self.store.clone(), nexus.clone());
        tokio::spawn(async move {
            let (rows, next) = store.elements(&nexus, from, PAGES_AT_ONCE).await?;
            let unpack = |(no, body): &(u64, Bytes)| writer::unpack(&nexus, *no, body);
            Ok((rows.iter().map(unpack).collect::<Result<_, _>>()?, next))
        })
    }

    async fn load(&self, nexus: NexusId) -> Result<Arc<LoadedNexus>, NexusError> {
        let head = self.store.document::<Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        let outgrown = |weight| self.shelves.as_ref().filter(|shelves| weight > shelves.memory);
        let (mut mind, version) = match &head {
            None => {
                let mut mind = Mind::Resident(Box::new(Graph::new()));
                mind.set_numbering(Numbering::keyed(rand::rng().random(), mind.next()));
                let version = self.initialize(&nexus, &mut mind).await?;
                (mind, version)
            }
            Some(head) if outgrown(head.value.weight).is_some() => match self.on_shelf(&nexus, &head.value).await {
                Ok(shelved) => (Mind::DiskGraph(Box::new(shelved)), head.version),
                // If the disk fails, the nexus is loaded into memory, as it would also stay in memory at run time.
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
            // A nexus from before keys existed hides the numbers of later elements; its next write stores the key.
            if head.value.numbering.is_plain() {
                mind.set_numbering(Numbering::keyed(rand::rng().random(), mind.next()));
            }
        }
        let identity = self.identify(&nexus).await?;
        let missing_capsules = if head.is_some() { missing_capsules(&nexus, &mind) } else { Vec::new() };
        let seq = self.store.head(&journal_stream(&nexus)).await?;
        let (writer, inbox) = mpsc::channel(TASKS_MAX);
        let (readers, reading) = mpsc::channel(TASKS_MAX);
        let shelves = self.shelves.clone().map(|shelves| (shelves, self.open_files.clone()));
        let (store, seq_counter) = (self.store.clone(), self.seq_counter.clone());
        let secrets = self.secrets;
        let outbox = self.outbox.clone();
        let place =
            writer::WriterContext { store, nexus, shelves, seq_counter, secrets, outbox, inbox, readers: reading };
        let (owner, shared) = Writer::new(place, mind, version, seq);
        tokio::spawn(store::vital("nexus", owner.run()));
        let loaded = Arc::new(LoadedNexus { shared, writer, readers, meaning: Meaning::default(), identity });
        for command in missing_capsules {
            loaded.learn(command).await?;
        }
        Ok(loaded)
    }

    /// Loads the graph of a nexus into memory.
    async fn in_memory(&self, nexus: &NexusId, head: &Head) -> Result<Mind, NexusError> {
        let mut builder = Builder::default();
        self.each_range(nexus, |elements| {
            elements.into_iter().for_each(|(el, record)| builder.push(el, record));
            Ok(())
        })
        .await?;
        let mut graph = crate::blocking::block_in_place_if(true, || builder.finish());
        graph.next_concept = graph.next_concept.max(head.concepts);
        graph.next_link = graph.next_link.max(head.links);
        // The graph can answer queries at once; only a search waits for the full-text index.
        let whole = graph.clone();
        tokio::task::spawn_blocking(move || whole.ready_words());
        Ok(Mind::Resident(Box::new(graph)))
    }

    /// Passes all elements of a nexus to `take`, in order.
    async fn each_range(
        &self,
        nexus: &NexusId,
        mut take: impl FnMut(Vec<(ElementId, Record)>) -> Result<(), StoreError>,
    ) -> Result<(), NexusError> {
        // The next range is read and unpacked while this one is processed.
        let mut ahead = Some(self.read_range(nexus, 0));
        while let Some(read_range) = ahead.take() {
            let (records, next) = read_range.await.map_err(|_| StoreError::Closed)??;
            ahead = next.map(|from| self.read_range(nexus, from));
            take(records)?;
        }
        Ok(())
    }

    /// Opens the shelf of a nexus and updates it to the state of the store. Rebuilds a shelf that cannot be updated.
    async fn on_shelf(&self, nexus: &NexusId, head: &Head) -> Result<DiskGraph, NexusError> {
        let Some(shelves) = &self.shelves else { return Err(StoreError::Closed.into()) };
        let file = shelves.file(nexus);
        match self.bring_up(nexus, &file, (head.concepts, head.links)).await {
            Err(NexusError::Store(StoreError::Io(error))) => {
                tracing::warn!(%nexus, error, "a shelf that cannot be read is made again");
                self.open_files.discard_unreadable(&file);
                self.bring_up(nexus, &file, (head.concepts, head.links)).await
            }
            brought => brought,
        }
    }

    async fn bring_up(&self, nexus: &NexusId, file: &Path, next: (u32, u32)) -> Result<DiskGraph, NexusError> {
        let shelf = self.open_files.open(file).await?;
        let (mut shelved, state) = crate::blocking::block_in_place_if(true, || DiskGraph::open(shelf, next))?;
        let seq = self.store.head(&journal_stream(nexus)).await?;
        match state {
            Some(state) if self.is_behind(nexus, &state, seq).await? => {
                let missed = writer::read_journal(&self.store, nexus, state.seq, seq).await?;
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
                let touched: HashSet<ElementId> = missed.iter().flat_map(|(_, entry)| entry.touched()).collect();
                let mut now: HashMap<ElementId, Record> = HashMap::new();
                for page in pages {
                    let (rows, _) = self.store.elements(nexus, page, 1).await?;
                    for (no, body) in rows {
                        let (el, record) = writer::unpack(nexus, no, &body)?;
                        now.insert(el, record);
                    }
                }
                crate::blocking::block_in_place_if(true, || {
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
                crate::blocking::block_in_place_if(true, || shelved.clear())?;
                self.each_range(nexus, |records| crate::blocking::block_in_place_if(true, || shelved.take_in(records)))
                    .await?;
                shelved.go_on_at(next);
            }
        }
        let entry = writer::entry_hash(&self.store, nexus, seq).await?;
        crate::blocking::block_in_place_if(true, || shelved.file_away(Some(State::at(seq, entry))))?;
        shelved.check()?;
        Ok(shelved)
    }

    /// Returns `true` if a shelf holds an earlier state of this nexus that is recent enough to update.
    async fn is_behind(&self, nexus: &NexusId, state: &State, seq: u64) -> Result<bool, NexusError> {
        Ok(state.seq <= seq
            && seq - state.seq <= STEPS_BACK_MAX
            && state.entry == writer::entry_hash(&self.store, nexus, state.seq).await?)
    }
}

impl LoadedNexus {
    /// Borrows the graph of the commons, with the right to write to it, until the loan is returned.
    pub(super) async fn borrow(&self) -> Result<Loan, StoreError> {
        let (lend, loan) = oneshot::channel();
        self.writer.send(Task::Lend(lend)).await.map_err(|_| StoreError::Closed)?;
        loan.await.map_err(|_| StoreError::Closed)
    }

    /// Returns `true` if a read of the shelf failed.
    pub(super) fn is_faulty(&self) -> bool {
        self.shared.is_faulty()
    }

    /// Returns a snapshot with every durable change.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, StoreError> {
        if let Some(fresh) = self.shared.fresh() {
            return Ok(fresh);
        }
        let (reply, answer) = oneshot::channel();
        self.readers.send(reply).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)
    }
}
