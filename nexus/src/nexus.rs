//! `Nexus`: the one door for KIP. Each nexus has one owner, which validates a statement against its
//! resident graph, commits it, publishes the new snapshot and only then answers. Readers never wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::exec::{self, Draft};
use crate::graph::{Element, Graph, GraphRead, View};
use crate::kip::{self, Command, ErrorKind, KipError};
use crate::principal::{Origin, Principal, Role};
use crate::store::{Batch, Expect, Key, Kind, Op, Store, StoreError, json as to_bytes};

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

/// One call of `execute_kip` (K7, draft7 §6.1).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The whole command, unchanged.
    pub command: String,
    /// Values for its placeholders.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Checks syntax and logic and writes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Refuses whatever could write.
    #[serde(default)]
    pub readonly: bool,
}

impl Request {
    /// A command with values for its placeholders.
    pub fn new(command: impl Into<String>, parameters: Value) -> Self {
        let parameters = if let Value::Object(parameters) = parameters { parameters } else { Map::new() };
        Self { command: command.into(), parameters, ..Self::default() }
    }
}

/// The knowledge every nexus is born with, in order (K3).
const CAPSULES: [(&str, &str); 5] = [
    ("genesis", include_str!("../../config/capsules/genesis.kip")),
    ("person", include_str!("../../config/capsules/person.kip")),
    ("self", include_str!("../../config/capsules/self.kip")),
    ("system", include_str!("../../config/capsules/system.kip")),
    ("memory", include_str!("../../config/capsules/memory.kip")),
];

/// The handle: cheap to clone, one for all nexuses of a daemon.
#[derive(Clone)]
pub struct Nexus {
    store: Store,
    awake: Arc<Mutex<HashMap<NexusId, Arc<OnceCell<Awake>>>>>,
}

/// A nexus in memory.
#[derive(Clone)]
struct Awake {
    snapshot: Arc<RwLock<Arc<Graph>>>,
    writer: mpsc::Sender<Write>,
}

struct Write {
    request: Request,
    command: Command,
    origin: Origin,
    reply: oneshot::Sender<Result<Value, StoreError>>,
}

/// Statements that may wait for one nexus before callers are held back.
const WRITES_MAX: usize = 256;

impl Nexus {
    /// A handle on the nexuses kept in `store`.
    pub fn new(store: Store) -> Self {
        Self { store, awake: Arc::default() }
    }

    /// Runs one command and answers the KIP envelope, `{result}` or `{error}`.
    ///
    /// # Errors
    /// Only when the store fails; a wrong command is an answer.
    pub async fn execute(&self, nexus: &NexusId, request: Request, origin: &Origin) -> Result<Value, NexusError> {
        let command = match prepare(&request) {
            Ok(command) => command,
            Err(error) => return Ok(json!({"error": error.to_json(&request.command)})),
        };
        if command.writes() {
            let principal = &origin.principal;
            let refusal = if request.readonly {
                Some("this request is read-only")
            } else if !(principal.may(Role::Operator) || is_self(principal, nexus)) {
                Some("only an operator or the lifeform itself may write here")
            } else {
                None
            };
            if let Some(refusal) = refusal {
                return Ok(json!({"error": KipError::new(ErrorKind::Execution, refusal).to_json(&request.command)}));
            }
        }
        let awake = self.wake(nexus).await?;
        if command.writes() && !request.dry_run {
            return Ok(awake.write(request, command, origin.clone()).await?);
        }
        let graph = awake.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone();
        let view = View::new(graph, &origin.principal, is_self(&origin.principal, nexus));
        let now = self.store.clock().now();
        let answered = match &command {
            _ if request.dry_run && command.writes() => {
                run_write(&command, &mut Draft::new(view.graph(), now, false)).map(|_| json!({}))
            }
            Command::Find(find) => exec::find(find, &view),
            Command::Describe(what) => exec::describe(what, &view),
            Command::Search(search) => exec::search(search, &view),
            Command::Upsert(_) | Command::Delete(_) => Ok(Value::Null),
        };
        Ok(envelope(answered, &request.command, &[]))
    }

    /// The graph of `nexus` as `origin` may see it.
    ///
    /// # Errors
    /// When it cannot be woken.
    pub async fn view(&self, nexus: &NexusId, origin: &Origin) -> Result<View, NexusError> {
        let awake = self.wake(nexus).await?;
        let graph = awake.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(View::new(graph, &origin.principal, is_self(&origin.principal, nexus)))
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
        self.awake.lock().unwrap_or_else(PoisonError::into_inner).remove(nexus);
    }

    /// Wakes a nexus: its rows become a graph, and an empty one is born with the shipped capsules.
    async fn wake(&self, nexus: &NexusId) -> Result<Awake, NexusError> {
        let cell = self.awake.lock().unwrap_or_else(PoisonError::into_inner).entry(nexus.clone()).or_default().clone();
        let awake = cell.get_or_try_init(|| self.load(nexus.clone())).await?;
        Ok(awake.clone())
    }

    async fn load(&self, nexus: NexusId) -> Result<Awake, NexusError> {
        let mut graph = Graph::new();
        for (no, body) in self.store.elements(&nexus).await? {
            let element: Element = serde_json::from_slice(&body)
                .map_err(|error| StoreError::Corrupt(format!("element {no} of nexus {nexus}: {error}")))?;
            graph.put(no, element);
        }
        let head = self.store.document::<Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        graph.next = graph.next.max(head.as_ref().map_or(1, |head| head.value.next));
        let mut head = head.map_or(0, |head| head.version);
        if head == 0 {
            head = self.bear(&nexus, &mut graph).await?;
        }
        let graph = Arc::new(graph);
        let snapshot = Arc::new(RwLock::new(graph.clone()));
        let (writer, inbox) = mpsc::channel(WRITES_MAX);
        let owner = Owner { store: self.store.clone(), nexus, graph, head, snapshot: snapshot.clone(), inbox };
        tokio::spawn(owner.run());
        Ok(Awake { snapshot, writer })
    }

    /// Gives a new nexus the shipped capsules, all in one commit: it is born whole or not at all.
    async fn bear(&self, nexus: &NexusId, graph: &mut Graph) -> Result<u64, NexusError> {
        let mut draft = Draft::new(graph, self.store.clock().now(), true);
        let mut entries = Vec::new();
        for (name, text) in CAPSULES {
            let request = Request { command: text.to_owned(), ..Request::default() };
            let broken = |error: KipError| NexusError::Capsule { name, reason: error.to_json(text).to_string() };
            let command = prepare(&request).map_err(broken)?;
            let result = run_write(&command, &mut draft).map_err(broken)?;
            entries.push(json!({"capsule": name, "result": result}));
        }
        let origin = Origin::system("birth of a nexus");
        let batch = entries.iter().fold(commit_of(nexus, &origin, &draft, 0), |batch, entry| {
            batch.append(format!("nexus:{nexus}"), "capsule", entry)
        });
        let version = self.store.commit(batch).await?.versions[0];
        *graph = draft.graph;
        Ok(version)
    }
}

/// Whether `principal` is the lifeform whose mind this is; another lifeform is a visitor (K11).
fn is_self(principal: &Principal, nexus: &NexusId) -> bool {
    principal.roles.contains(&Role::Lifeform) && principal.id.0.strip_prefix("lifeform:") == Some(&**nexus)
}

/// The batch that makes a draft durable; its first change is the head, at the version it must have.
fn commit_of(nexus: &NexusId, origin: &Origin, draft: &Draft, head: u64) -> Batch {
    let key = Key::new(Kind::Nexus, nexus.clone());
    let mut batch = Batch::new(origin).put_expecting(key, Expect::Version(head), &Head { next: draft.graph.next });
    for (no, written) in &draft.changed {
        let nexus = nexus.clone();
        let op = match draft.graph.element(*no) {
            Some(element) if *written => Op::PutElement { nexus, no: *no, body: to_bytes(&*element) },
            _ => Op::DeleteElement { nexus, no: *no },
        };
        batch.push(op);
    }
    batch
}

impl Awake {
    async fn write(&self, request: Request, command: Command, origin: Origin) -> Result<Value, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.writer.send(Write { request, command, origin, reply }).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

fn prepare(request: &Request) -> Result<Command, KipError> {
    let mut command = kip::parse(&request.command)?;
    kip::bind(&mut command, &request.parameters)?;
    Ok(command)
}

fn envelope(answered: Result<Value, KipError>, command: &str, warnings: &[String]) -> Value {
    match answered {
        Ok(result) if warnings.is_empty() => json!({"result": result}),
        Ok(result) => json!({"result": result, "warnings": warnings}),
        Err(error) => json!({"error": error.to_json(command)}),
    }
}

fn run_write(command: &Command, draft: &mut Draft) -> Result<Value, KipError> {
    match command {
        Command::Upsert(statements) => exec::upsert(statements, draft),
        Command::Delete(delete) => exec::delete(delete, draft),
        _ => Ok(Value::Null),
    }
}

/// What must be known about a nexus besides its elements.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The number of its next element.
    next: u64,
}

/// The single writer of one nexus.
struct Owner {
    store: Store,
    nexus: NexusId,
    graph: Arc<Graph>,
    /// The version of the head document; a commit that names another one is refused.
    head: u64,
    snapshot: Arc<RwLock<Arc<Graph>>>,
    inbox: mpsc::Receiver<Write>,
}

impl Owner {
    async fn run(mut self) {
        while let Some(write) = self.inbox.recv().await {
            let answer = self.write(&write).await;
            let _ = write.reply.send(answer);
        }
    }

    async fn write(&mut self, write: &Write) -> Result<Value, StoreError> {
        let mut draft = Draft::new(&self.graph, self.store.clock().now(), false);
        let result = match run_write(&write.command, &mut draft) {
            Ok(result) => result,
            Err(error) => return Ok(json!({"error": error.to_json(&write.request.command)})),
        };
        if !draft.changed.is_empty() {
            let entry =
                json!({"command": write.request.command, "parameters": write.request.parameters, "result": result});
            let batch = commit_of(&self.nexus, &write.origin, &draft, self.head);
            let batch = batch.append(format!("nexus:{}", self.nexus), "kml", &entry);
            self.head = self.store.commit(batch).await?.versions[0];
            self.graph = Arc::new(draft.graph);
            *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = self.graph.clone();
        }
        Ok(envelope(Ok(result), &write.request.command, &draft.warnings))
    }
}
