//! `Nexus`: the one door for KIP. Each nexus has one writer, which applies a command, makes it durable,
//! publishes the new snapshot and only then answers. Readers work on snapshots; the first one after a stretch
//! of writes that nobody watched waits until what is on its way is durable.

mod capsules;
mod journal;
mod owner;
mod wake;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kip::exec::{self, Draft};
use kip::graph::Scoped;
use kip::lang::ast::{Find, Lit};
use kip::{Answer, CAPSULES, Call, Command, Dialect, ErrorKind, KipError, Options, bind_and, envelope};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::principal::{Origin, Principal, Role};
use crate::store::{Key, Kind, Store, StoreError, Stream};
use owner::{STEPS_BACK_MAX, Task, Write};
use wake::Dormitory;

pub use capsules::Export;
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
        let head = self.store.document::<wake::Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        Ok(head.is_some())
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
}

/// What a command would have done.
struct Tried {
    receipt: Value,
    diff: Value,
    warnings: Vec<String>,
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
