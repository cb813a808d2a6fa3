//! Which nexuses are in memory: waking one from its rows, giving a new one its first knowledge, and letting go
//! of those that nobody comes to.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kip::capsule::Header;
use kip::exec::{self, Draft};
use kip::graph::{El, Graph, GraphRead, Record};
use kip::{CAPSULES, Call, Options, bind_and};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::journal::Written;
use super::owner::{self, Owner, Shared, Snapshot, Task};
use super::{Nexus, NexusError, NexusId, stream};
use crate::clock::Timestamp;
use crate::principal::Origin;
use crate::store::{Key, Kind, StoreError};

/// The nexuses that are awake or waking.
#[derive(Default)]
pub(super) struct Dormitory {
    beds: HashMap<NexusId, Bed>,
    /// When the idle ones were last let go.
    swept: Timestamp,
}

/// Where a nexus wakes, and when somebody last came.
struct Bed {
    awake: Arc<OnceCell<Arc<Awake>>>,
    used: Timestamp,
}

/// A nexus in memory.
pub(super) struct Awake {
    shared: Arc<Shared>,
    pub(super) writer: mpsc::Sender<Task>,
    readers: mpsc::Sender<oneshot::Sender<Arc<Snapshot>>>,
}

/// What must be known about a nexus besides its elements.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of its next concept.
    pub(super) concepts: u32,
    /// The number of its next link.
    pub(super) links: u32,
}

/// Elements of a graph, and the page where the next ones begin.
type Stretch = (Vec<(El, Record)>, Option<u64>);

/// Commands that may wait for one nexus before callers are held back.
const TASKS_MAX: usize = 256;
/// Pages of a graph that are read at once when it wakes.
const PAGES_AT_ONCE: usize = 256;
/// A nexus nobody came to for so long is let go from memory.
const IDLE: Duration = Duration::from_secs(30 * 60);

impl Nexus {
    /// Lets a nexus go from memory; its rows stay.
    pub fn forget(&self, nexus: &NexusId) {
        self.dormitory.lock().unwrap_or_else(PoisonError::into_inner).beds.remove(nexus);
    }

    /// How many nexuses are in memory.
    pub fn awake(&self) -> usize {
        self.dormitory.lock().unwrap_or_else(PoisonError::into_inner).beds.len()
    }

    /// Wakes a nexus: its rows become a graph, and an empty one is born with the shipped capsules.
    pub(super) async fn wake(&self, nexus: &NexusId) -> Result<Arc<Awake>, NexusError> {
        let cell = {
            let now = self.store.clock().now();
            let mut dormitory = self.dormitory.lock().unwrap_or_else(PoisonError::into_inner);
            let since = |then: Timestamp| Duration::try_from(now.duration_since(then)).unwrap_or_default();
            if since(dormitory.swept) > IDLE / 2 {
                dormitory.swept = now;
                // Whoever uses a nexus holds its bed; one that nobody holds or came to lately is let go.
                dormitory.beds.retain(|id, bed| {
                    let held = bed.awake.get().is_some_and(|awake| Arc::strong_count(awake) > 1);
                    id == nexus || since(bed.used) <= IDLE || held || Arc::strong_count(&bed.awake) > 1
                });
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
            let records = rows.iter().map(|(no, body)| owner::unpack(&nexus, *no, body)).collect::<Result<_, _>>()?;
            Ok((records, next))
        })
    }

    async fn load(&self, nexus: NexusId) -> Result<Arc<Awake>, NexusError> {
        let mut graph = Graph::new();
        // The next stretch is read and unpacked while this one becomes a graph.
        let mut ahead = Some(self.stretch(&nexus, 0));
        while let Some(stretch) = ahead.take() {
            let (records, next) = stretch.await.map_err(|_| StoreError::Closed)??;
            ahead = next.map(|from| self.stretch(&nexus, from));
            for (el, record) in records {
                graph.put(el, record);
            }
        }
        let head = self.store.document::<Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        let mut version = 0;
        if let Some(head) = head {
            version = head.version;
            graph.next_concept = graph.next_concept.max(head.value.concepts);
            graph.next_link = graph.next_link.max(head.value.links);
        }
        if version == 0 {
            version = self.bear(&nexus, &mut graph).await?;
        }
        let seq = self.store.head(&stream(&nexus)).await?;
        let (writer, inbox) = mpsc::channel(TASKS_MAX);
        let (readers, reading) = mpsc::channel(TASKS_MAX);
        let (owner, shared) = Owner::new(self.store.clone(), nexus, graph, version, seq, inbox, reading);
        tokio::spawn(owner.run());
        Ok(Arc::new(Awake { shared, writer, readers }))
    }

    /// Gives a new nexus the shipped capsules, all in one commit: it is born whole or not at all.
    async fn bear(&self, nexus: &NexusId, graph: &mut Graph) -> Result<u64, NexusError> {
        let now = self.store.clock().now().as_microsecond();
        let origin = Origin::system("birth of a nexus");
        let (mut all, mut entries) = (Vec::new(), Vec::new());
        for (name, text) in CAPSULES {
            let call = Call { command: text.to_owned(), parameters: Map::new() };
            let changes = bind_and(&call, |command| {
                let mut draft = Draft::new(graph, now, true);
                exec::write(command, &mut draft, &Options::default())?;
                Ok(draft.finish().0)
            })
            .map_err(|error| NexusError::Capsule { name, reason: error.to_json(text).to_string() })?;
            let header = Header {
                name: name.into(),
                version: env!("CARGO_PKG_VERSION").into(),
                sha256: crate::store::Hash::of(text.as_bytes()).hex(),
            };
            entries.push(Written { capsule: Some(header), ..Written::of(text, &Map::new(), &changes) });
            all.extend(changes);
        }
        // An element that a later capsule touched again is written as it is in the end.
        all.iter_mut().for_each(|change| change.after = graph.record(change.el));
        let batch = owner::batch_of(nexus, &origin, graph, &all, 0);
        let batch = entries.iter().fold(batch, |batch, entry| batch.append(stream(nexus), "capsule", entry));
        Ok(self.store.commit(batch).await?.versions[0])
    }
}

impl Awake {
    /// The graph with everything durable in it.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, NexusError> {
        if let Some(fresh) = self.shared.fresh() {
            return Ok(fresh);
        }
        let (reply, answer) = oneshot::channel();
        self.readers.send(reply).await.map_err(|_| StoreError::Closed)?;
        Ok(answer.await.map_err(|_| StoreError::Closed)?)
    }
}
