//! `Nexus`: the one door for KIP. Each nexus has one writer, which applies a command, makes it durable,
//! publishes the new snapshot and only then answers. Readers work on snapshots; the first one after a stretch
//! of writes that nobody watched waits until what is on its way is durable.

mod journal;
mod owner;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kip::capsule::{self, Header};
use kip::exec::{self, Draft};
use kip::graph::{El, Graph, GraphRead, Record, Scoped};
use kip::lang::COMMAND_BYTES_MAX;
use kip::lang::ast::{Find, Lit};
use kip::{Answer, CAPSULES, Call, Command, Dialect, ErrorKind, KipError, Options, bind_and, envelope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::clock::Timestamp;
use crate::principal::{Origin, Principal, Role};
use crate::store::{Key, Kind, Store, StoreError, Stream};
use journal::Written;
use owner::{Owner, Shared, Task, Write};

pub use kip::Request;
pub use owner::Snapshot;

/// Names a nexus: a lifeform's id, or `commons`.
pub type NexusId = Arc<str>;

/// Why a command was not run at all. A command that was read and refused is an answer, not this.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NexusError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A shipped capsule does not run: the build is broken.
    #[error("capsule {name}: {reason}")]
    Capsule {
        /// Which one.
        name: &'static str,
        /// What it said.
        reason: String,
    },
}

/// The handle: cheap to clone, one for all nexuses of a daemon.
#[derive(Clone)]
pub struct Nexus {
    store: Store,
    dormitory: Arc<Mutex<Dormitory>>,
}

/// The nexuses that are awake or waking.
#[derive(Default)]
struct Dormitory {
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
struct Awake {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Task>,
    readers: mpsc::Sender<oneshot::Sender<Arc<Snapshot>>>,
}

/// What must be known about a nexus besides its elements.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The number of its next concept.
    concepts: u32,
    /// The number of its next link.
    links: u32,
}

/// Elements of a graph, and the page where the next ones begin.
type Stretch = (Vec<(El, Record)>, Option<u64>);

/// Commands that may wait for one nexus before callers are held back.
const TASKS_MAX: usize = 256;
/// Pages of a graph that are read at once when it wakes.
const PAGES_AT_ONCE: usize = 256;
/// A nexus nobody came to for so long is let go from memory.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Entries that one `AS OF SEQ` goes back at most.
const STEPS_BACK_MAX: u64 = 20_000;
/// How many links away from what matches a capsule may reach.
const HOPS_MAX: usize = 64;
/// From so many elements on, a query is run beside the runtime's own threads.
const LARGE: usize = 20_000;

impl Nexus {
    /// A handle on the nexuses kept in `store`.
    pub fn new(store: Store) -> Self {
        Self { store, dormitory: Arc::default() }
    }

    /// Runs a request and answers the KIP envelope: `{result}` or `{error}`, for a batch `{result: [envelope, …]}`.
    ///
    /// # Errors
    /// Only when the store fails; a wrong command is an answer.
    pub async fn execute(&self, nexus: &NexusId, request: Request, origin: &Origin) -> Result<Value, NexusError> {
        let (calls, batch) = match request.calls() {
            Ok(calls) => calls,
            Err(error) => return Ok(json!({"error": error.to_json("")})),
        };
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let writes = kip::lang::parser::seems_to_write(&call.command);
            let answer = if writes {
                self.write(nexus, call, &request, origin).await?
            } else {
                self.read(nexus, call, &request, origin).await?
            };
            // A write that fails in running ends the batch; reads and texts that do not parse do not (superset 14).
            let stop = writes && answer.get("error").is_some_and(|error| error["kind"] != "syntax");
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
            (!may_write(&origin.principal, nexus)).then(owner::no_right)
        };
        if let Some(refusal) = refusal {
            return Ok(json!({"error": refusal.to_json(&call.command)}));
        }
        if request.dry_run {
            let tried = self.try_out(nexus, &call, request.dialect, false).await?;
            let tried =
                tried.map(|tried| Answer { result: tried.receipt, warnings: tried.warnings, ..Answer::default() });
            return Ok(envelope(tried, &call.command));
        }
        self.hand_over(nexus, |reply| {
            Task::Write(Write {
                call,
                dialect: request.dialect,
                privileged: false,
                capsule: None,
                origin: origin.clone(),
                reply,
            })
        })
        .await
    }

    async fn read(&self, nexus: &NexusId, call: Call, request: &Request, origin: &Origin) -> Result<Value, NexusError> {
        let awake = self.wake(nexus).await?;
        let mut snapshot = awake.snapshot().await?;
        match as_of(&call) {
            Ok(None) => {}
            // What was seen by all may be hidden by now, and what is gone may have been hidden then.
            Ok(Some(_)) if !may_write(&origin.principal, nexus) => {
                let error = KipError::new(ErrorKind::Execution, "only an operator or the lifeform itself looks back");
                return Ok(json!({"error": error.code("KIP_4003").to_json(&call.command)}));
            }
            Ok(Some(seq)) => match self.step_back(nexus, &snapshot, seq).await? {
                Ok(earlier) => snapshot = Arc::new(earlier),
                Err(error) => return Ok(json!({"error": error.to_json(&call.command)})),
            },
            Err(error) => return Ok(json!({"error": error.to_json(&call.command)})),
        }
        let scopes = scopes(&origin.principal, nexus);
        let (options, dry_run) = (request.options(), request.dry_run);
        let (concepts, links) = snapshot.graph.len();
        let work = move || {
            let answered = bind_and(&call, |command| {
                let view = Scoped::new(&snapshot.graph, scopes.as_ref());
                if dry_run {
                    exec::check(command, &view).map(|()| Answer::of(json!({})))
                } else {
                    exec::read(command, &view, &options)
                }
            });
            let wants = answered.as_ref().map_or_else(|_| Vec::new(), |answer| answer.wants.clone());
            (envelope(answered, &call.command), wants)
        };
        let (answer, wants) = if concepts + links < LARGE {
            work()
        } else {
            tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
        };
        for (kind, key) in wants {
            // Best effort: a busy writer is asked again by the next such query.
            let _ = awake.writer.try_send(Task::SortBy(kind, key));
        }
        Ok(answer)
    }

    /// Imports a capsule as one transaction. Its header, if it has one, is checked; an operator's may write
    /// what is protected (R28). With `dry_run` nothing is written and the answer is the difference it would make.
    ///
    /// # Errors
    /// Only when the store fails.
    pub async fn import(
        &self,
        nexus: &NexusId,
        text: &str,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<Value, NexusError> {
        let header = match capsule::open(text) {
            Ok(header) => header.unwrap_or_else(|| Header {
                name: "unnamed".into(),
                version: "0".into(),
                sha256: crate::store::Hash::of(text.as_bytes()).hex(),
            }),
            Err(error) => return Ok(json!({"error": error.to_json(text)})),
        };
        if !may_write(&origin.principal, nexus) {
            return Ok(json!({"error": owner::no_right().to_json(text)}));
        }
        let call = Call { command: text.to_owned(), parameters: Map::new() };
        let upserts = bind_and(&call, |command| match command {
            Command::Upsert(_) => Ok(()),
            _ => Err(KipError::new(ErrorKind::Syntax, "a capsule holds UPSERT statements and nothing else")),
        });
        if let Err(error) = upserts {
            return Ok(json!({"error": error.to_json(text)}));
        }
        let privileged = origin.principal.may(Role::Operator);
        if dry_run {
            let tried = self.try_out(nexus, &call, Dialect::Draft7, privileged).await?;
            let tried = tried.map(|tried| Answer {
                result: json!({"capsule": header, "diff": tried.diff}),
                warnings: tried.warnings,
                ..Answer::default()
            });
            return Ok(envelope(tried, text));
        }
        self.hand_over(nexus, |reply| {
            Task::Write(Write {
                call,
                dialect: Dialect::Draft7,
                privileged,
                capsule: Some(header),
                origin: origin.clone(),
                reply,
            })
        })
        .await
    }

    /// The neighbourhood of what a WHERE block names, as a capsule with its header: `{result: {capsule, …}}`.
    ///
    /// # Errors
    /// Only when the store fails.
    pub async fn export(&self, nexus: &NexusId, query: &Export, origin: &Origin) -> Result<Value, NexusError> {
        let plain = |text: &str| {
            (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if !plain(&query.name) || !plain(&query.version) || query.hops > HOPS_MAX {
            let message =
                format!("a capsule's name and version are letters, digits and ._- , and hops at most {HOPS_MAX}");
            return Ok(json!({"error": KipError::new(ErrorKind::Parameter, message).to_json("")}));
        }
        let command = format!("EXPORT ?{} {}", query.target.trim_start_matches('?'), query.pattern);
        let call = Call { command, parameters: query.parameters.clone() };
        let snapshot = self.wake(nexus).await?.snapshot().await?;
        let scopes = scopes(&origin.principal, nexus);
        let answered = owner::beside(snapshot.graph.len(), || {
            bind_and(&call, |command| match command {
                Command::Export(export) => {
                    let view = Scoped::new(&snapshot.graph, scopes.as_ref());
                    let mut answer = exec::neighbourhood(export, query.hops, &view, &Options::default())?;
                    let text = answer.result["capsule"].as_str().unwrap_or_default().to_owned();
                    if text.len() + 256 > COMMAND_BYTES_MAX {
                        let message = format!("a capsule of {} bytes could not be imported again", text.len());
                        return Err(KipError::new(ErrorKind::Execution, message)
                            .code("KIP_4002")
                            .hint("narrow the pattern, or take EXPORT … LIMIT n page by page"));
                    }
                    answer.result["capsule"] = capsule::seal(&query.name, &query.version, &text).into();
                    Ok(answer)
                }
                _ => Err(KipError::new(ErrorKind::Syntax, "the pattern is WHERE {…}")),
            })
        });
        Ok(envelope(answered, &call.command))
    }

    /// Takes journal entry `seq` back, unless something later stands on it.
    ///
    /// # Errors
    /// Only when the store fails.
    pub async fn undo(&self, nexus: &NexusId, seq: u64, origin: &Origin) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) {
            return Ok(json!({"error": owner::no_right().to_json("")}));
        }
        if seq <= CAPSULES.len() as u64 {
            let error = KipError::new(ErrorKind::Immutable, format!("entry {seq} is the birth of this mind"));
            return Ok(json!({"error": error.to_json("")}));
        }
        self.hand_over(nexus, |reply| Task::Undo { seq, origin: origin.clone(), reply }).await
    }

    /// The journal of a nexus after entry `after`: who wrote what, when and why, and the inverse.
    ///
    /// # Errors
    /// Only when the store fails.
    pub async fn journal(&self, nexus: &NexusId, after: u64, limit: usize) -> Result<Vec<Value>, NexusError> {
        let entries = self.store.entries(&stream(nexus), after, limit).await?;
        Ok(entries.iter().map(crate::store::Entry::to_json).collect())
    }

    /// The graph of `nexus` as it is.
    ///
    /// # Errors
    /// When it cannot be woken.
    pub async fn snapshot(&self, nexus: &NexusId) -> Result<Arc<Snapshot>, NexusError> {
        self.wake(nexus).await?.snapshot().await
    }

    /// Whether anybody was born with this nexus.
    ///
    /// # Errors
    /// The store's own.
    pub async fn exists(&self, nexus: &NexusId) -> Result<bool, NexusError> {
        let head = self.store.document::<Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        Ok(head.is_some())
    }

    /// Lets a nexus go from memory; its rows stay.
    pub fn forget(&self, nexus: &NexusId) {
        self.dormitory.lock().unwrap_or_else(PoisonError::into_inner).beds.remove(nexus);
    }

    /// How many nexuses are in memory.
    pub fn awake(&self) -> usize {
        self.dormitory.lock().unwrap_or_else(PoisonError::into_inner).beds.len()
    }

    /// Runs a command on a copy.
    async fn try_out(
        &self,
        nexus: &NexusId,
        call: &Call,
        dialect: Dialect,
        privileged: bool,
    ) -> Result<Result<Tried, KipError>, NexusError> {
        let snapshot = self.wake(nexus).await?.snapshot().await?;
        let now = self.store.clock().now().as_microsecond();
        Ok(owner::beside(snapshot.graph.len(), || {
            bind_and(call, |command| {
                let mut copy = snapshot.graph.clone();
                let mut draft = Draft::new(&mut copy, now, privileged);
                let receipt = exec::write(command, &mut draft, &Options { dialect, ..Options::default() })?;
                let (changes, warnings) = draft.finish();
                Ok(Tried { receipt, diff: journal::diff(&changes), warnings })
            })
        }))
    }

    async fn hand_over(
        &self,
        nexus: &NexusId,
        task: impl FnOnce(oneshot::Sender<Result<Value, StoreError>>) -> Task,
    ) -> Result<Value, NexusError> {
        let awake = self.wake(nexus).await?;
        let (reply, answer) = oneshot::channel();
        // A writer that is gone met another one; the next caller wakes the nexus anew.
        let gone = |_| {
            self.forget(nexus);
            StoreError::Closed
        };
        awake.writer.send(task(reply)).await.map_err(|_| gone(()))?;
        Ok(answer.await.map_err(|_| gone(()))??)
    }

    /// A snapshot as it stood after entry `seq`.
    async fn step_back(
        &self,
        nexus: &NexusId,
        snapshot: &Snapshot,
        seq: u64,
    ) -> Result<Result<Snapshot, KipError>, NexusError> {
        let wrong = |kind, what: String| Ok(Err(KipError::new(kind, what)));
        if seq > snapshot.seq {
            return wrong(ErrorKind::NotFound, format!("the journal ends with entry {}", snapshot.seq));
        }
        if snapshot.seq - seq > STEPS_BACK_MAX {
            return wrong(ErrorKind::Execution, format!("entry {seq} lies more than {STEPS_BACK_MAX} entries back"));
        }
        let later = owner::read_journal(&self.store, nexus, seq, snapshot.seq).await?;
        let graph = owner::beside(snapshot.graph.len(), || {
            let mut graph = snapshot.graph.clone();
            later.iter().rev().for_each(|(_, written)| written.step_back(&mut graph));
            graph
        });
        Ok(Ok(Snapshot { graph, seq }))
    }

    /// Wakes a nexus: its rows become a graph, and an empty one is born with the shipped capsules.
    async fn wake(&self, nexus: &NexusId) -> Result<Arc<Awake>, NexusError> {
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

/// What a command would have done.
struct Tried {
    receipt: Value,
    diff: Value,
    warnings: Vec<String>,
}

/// What to export as a capsule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The variable of the pattern whose elements are exported.
    pub target: String,
    /// `WHERE {…}`.
    pub pattern: String,
    /// Values for its placeholders.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// How many links away from them it reaches.
    #[serde(default)]
    pub hops: usize,
    /// What the capsule is called.
    #[serde(default = "unnamed")]
    pub name: String,
    /// Which version it is.
    #[serde(default = "first")]
    pub version: String,
}

fn unnamed() -> String {
    "export".into()
}

fn first() -> String {
    "1.0.0".into()
}

impl Awake {
    /// The graph with everything durable in it.
    async fn snapshot(&self) -> Result<Arc<Snapshot>, NexusError> {
        if let Some(fresh) = self.shared.fresh() {
            return Ok(fresh);
        }
        let (reply, answer) = oneshot::channel();
        self.readers.send(reply).await.map_err(|_| StoreError::Closed)?;
        Ok(answer.await.map_err(|_| StoreError::Closed)?)
    }
}

fn stream(nexus: &NexusId) -> Stream {
    format!("nexus:{nexus}").into()
}

/// Whether `principal` is the lifeform whose mind this is; another lifeform is a visitor (K11).
fn is_self(principal: &Principal, nexus: &NexusId) -> bool {
    principal.roles.contains(&Role::Lifeform) && principal.id.0.strip_prefix("lifeform:") == Some(&**nexus)
}

/// Whether a principal may write into a nexus, and see its journal.
pub fn may_write(principal: &Principal, nexus: &NexusId) -> bool {
    principal.may(Role::Operator) || is_self(principal, nexus)
}

/// The scopes that limit what a principal sees; an operator, and a lifeform in its own mind, sees everything.
fn scopes(principal: &Principal, nexus: &NexusId) -> Option<BTreeSet<Arc<str>>> {
    (!may_write(principal, nexus)).then(|| principal.scopes.iter().map(|scope| scope.0.clone()).collect())
}

/// The entry that a FIND asks about the graph after.
fn as_of(call: &Call) -> Result<Option<u64>, KipError> {
    if !call.command.to_ascii_uppercase().contains("SEQ") {
        return Ok(None);
    }
    bind_and(call, |command| match command {
        Command::Find(Find { as_of: Some((lit, span)), .. })
        | Command::Explain(Find { as_of: Some((lit, span)), .. }) => match lit {
            Lit::Int(seq) if *seq >= 0 => Ok(Some(*seq as u64)),
            other => {
                Err(KipError::new(ErrorKind::Parameter, format!("an entry is a whole number, not {}", other.to_json()))
                    .at(*span))
            }
        },
        _ => Ok(None),
    })
}
