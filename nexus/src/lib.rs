//! The Cognitive Nexus: KIP v1.0-draft7 over a resident graph (MISSION rows K1–K13).
//!
//! [`Nexus`] is the one door for KIP. Each nexus has one writer, which applies a command, makes it durable,
//! publishes the new snapshot and only then answers. Readers work on snapshots; the first one after a stretch
//! of writes that nobody watched waits until what is on its way is durable.

mod capsules;
mod command;
mod commons;
mod forgotten;
mod journal;
mod meaning;
mod mind;
mod owner;
mod portable;
mod shelf;
mod wake;

use std::sync::{Arc, Mutex};

use kip::exec;
use kip::graph::GraphRead;
use kip::lang::ast::{Find, Lit};
use kip::{Answer, Call, Command as Kip, ErrorKind, KipError, Options, bind_and, envelope};
use serde_json::{Value, json};
use store::principal::{Origin, Principal, Role};
use store::{Key, Kind, Op, Store, StoreError, Stream};
use tokio::sync::oneshot;

use command::{Command, Hands, Ran, run};
use meaning::{Found, Meanings};
use owner::{Joint, STEPS_BACK_MAX, Task, Write};
use wake::{Awake, Dormitory};

pub use kip;

pub use capsules::Export;
pub use command::Right;
pub use commons::{
    COMMONS, HAS_SECRET_KEY, OWNER_KEY, RECORD_TYPES, SEAL_KEY, SHARED, SecretPolicy, Version, versions_stream,
};
pub use forgotten::{Forgotten, Outbox};
pub use kip::Request;
pub use meaning::{EmbedError, Embedder};
pub use mind::Mind;
pub use owner::Snapshot;
pub use portable::{Portable, check_element};
pub use shelf::Shelves;

/// Names a nexus: a lifeform's id, or `commons`.
pub type NexusId = Arc<str>;

/// The reason why a command did not run. A command that was read and refused is an answer, not this.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NexusError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A shipped capsule does not run: the build is broken.
    #[error("capsule {name}: {reason}")]
    Capsule {
        /// The name.
        name: &'static str,
        /// The reason.
        reason: String,
    },
}

/// The handle: cheap to clone, one for all nexuses of a daemon.
#[derive(Clone)]
pub struct Nexus {
    store: Store,
    dormitory: Arc<Mutex<Dormitory>>,
    shelves: Option<Shelves>,
    open_shelves: Arc<shelf::Open>,
    joint: Arc<Joint>,
    meanings: Option<Meanings>,
    secrets: SecretPolicy,
    outbox: Outbox,
}

/// An answer that tells nobody a secret that he sent in the wrong place.
fn discreet(mut answer: Value) -> Value {
    for told in ["error", "warnings"] {
        if let Some(told) = answer.get_mut(told) {
            store::secrets::clean(told);
        }
    }
    answer
}

impl Nexus {
    /// A handle on the nexuses kept in `store`.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            dormitory: Arc::default(),
            shelves: None,
            open_shelves: Arc::default(),
            joint: Arc::default(),
            meanings: None,
            secrets: SecretPolicy::default(),
            outbox: Outbox::default(),
        }
    }

    /// The notes of what was deleted and may have copies: a [`Forgotten`] of each fact that was taken out of a mind, or
    /// does not hold any more.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Returns the treatment of secrets that are written into the commons.
    pub fn secrets(&self) -> SecretPolicy {
        self.secrets
    }

    /// Does so with secrets that are written into the commons.
    #[must_use]
    pub fn with_secrets(self, secrets: SecretPolicy) -> Self {
        Self { secrets, ..self }
    }

    /// Puts minds that outgrow their memory budget on shelves; without, all stay in memory.
    #[must_use]
    pub fn with_shelves(self, shelves: Shelves) -> Self {
        Self { shelves: Some(shelves), ..self }
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
            let answer = discreet(answer);
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
            (!may_write(&origin.principal, nexus) && !may_share(&origin.principal, nexus)).then(owner::no_right)
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

    /// Has a command run by the writer of a nexus.
    async fn perform(&self, nexus: &NexusId, command: Command, origin: &Origin) -> Result<Value, NexusError> {
        let (commons, origin) = (self.commons_of(nexus).await?, origin.clone());
        self.hand_over(nexus, |reply| Task::Write(Write { command, origin, commons, reply })).await
    }

    /// The commons, seen together with every nexus but itself.
    async fn commons_of(&self, nexus: &NexusId) -> Result<Option<Arc<Awake>>, NexusError> {
        if &**nexus == COMMONS { Ok(None) } else { self.wake(&COMMONS.into()).await.map(Some) }
    }

    /// Drops a nexus whose shelf, or that of the commons, could not be read. Both are loaded again with new shelves.
    fn let_go_of_shelves(&self, nexus: &NexusId) {
        for id in [nexus, &COMMONS.into()] {
            let faulty = self.awake_now(id).filter(|awake| awake.is_faulty());
            if let (Some(awake), Some(shelves)) = (faulty, &self.shelves) {
                self.forget_this(id, &awake);
                self.open_shelves.condemn(&shelves.file(id));
            }
        }
    }

    /// The graph of a nexus and that of the commons, as they stand together.
    async fn both(&self, nexus: &NexusId, own: &Awake) -> Result<(Arc<Snapshot>, Option<Arc<Snapshot>>), NexusError> {
        let Some(commons) = self.commons_of(nexus).await? else { return Ok((own.snapshot().await?, None)) };
        loop {
            let count = self.joint.count();
            let both = (own.snapshot().await?, Some(commons.snapshot().await?));
            if count.is_multiple_of(2) && self.joint.count() == count {
                return Ok(both);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn read(&self, nexus: &NexusId, call: Call, request: &Request, origin: &Origin) -> Result<Value, NexusError> {
        let awake = self.wake(nexus).await?;
        let (mut own, commons) = self.both(nexus, &awake).await?;
        match as_of(&call) {
            Ok(None) => {}
            // What was seen by all may be hidden by now, and what is gone may have been hidden then.
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
        let seen = Seen::by(&origin.principal, nexus, own, commons);
        let (options, dry_run) = (request.options(), request.dry_run);
        let large = seen.is_large();
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
        let worked: Result<_, StoreError> =
            if large { tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)? } else { work() };
        let (answer, wants) = match worked {
            Ok(worked) => worked,
            Err(fault) => {
                self.let_go_of_shelves(nexus);
                return Err(fault.into());
            }
        };
        for (kind, key) in wants {
            let shared = SHARED.contains(&kind.as_str());
            let writer = match self.commons_of(nexus).await? {
                Some(commons) if shared => commons.writer.clone(),
                _ => awake.writer.clone(),
            };
            // Best effort: a busy writer is asked again by the next such query.
            let _ = writer.try_send(Task::SortBy(kind, key));
        }
        Ok(answer)
    }

    /// Returns a principal's view of a nexus; with a term and an embedder, also the elements near to it in meaning.
    ///
    /// # Errors
    /// If the nexus cannot be loaded.
    pub async fn sight(&self, nexus: &NexusId, origin: &Origin, term: Option<&str>) -> Result<Sight, NexusError> {
        let awake = self.wake(nexus).await?;
        let (own, commons) = self.both(nexus, &awake).await?;
        let found = match term {
            Some(term) => self.near_to(term, nexus, origin, &own, commons.as_ref()).await?,
            None => Found::default(),
        };
        let seen = Seen::by(&origin.principal, nexus, own, commons);
        Ok(Sight { seen, near: found.near, warnings: found.warnings })
    }

    /// Returns `true` if searches can use meaning.
    pub fn has_embedder(&self) -> bool {
        self.meanings.is_some()
    }

    /// Runs one command that writes, in a right that the caller of this vouches for, and commits what is beside it with
    /// it unless it changes nothing. Answers the KIP envelope.
    ///
    /// # Errors
    /// Only when the store fails.
    pub async fn write_with(
        &self,
        nexus: &NexusId,
        call: Call,
        origin: &Origin,
        right: Right,
        beside: Vec<Op>,
    ) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) && !may_share(&origin.principal, nexus) {
            return Ok(json!({"error": owner::no_right().to_json(&call.command)}));
        }
        let command = Command { right, beside, ..Command::of(call, kip::Dialect::default()) };
        Ok(discreet(self.perform(nexus, command, origin).await?))
    }

    /// Returns the answer that [`Self::write_with`] would give; nothing is written.
    ///
    /// # Errors
    /// Only if the store fails.
    pub async fn rehearse(
        &self,
        nexus: &NexusId,
        call: Call,
        origin: &Origin,
        right: Right,
    ) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) && !may_share(&origin.principal, nexus) {
            return Ok(json!({"error": owner::no_right().to_json(&call.command)}));
        }
        let command = Command { right, ..Command::of(call, kip::Dialect::default()) };
        self.answer_tried(nexus, &command, origin).await
    }

    async fn answer_tried(&self, nexus: &NexusId, command: &Command, origin: &Origin) -> Result<Value, NexusError> {
        let tried = self.try_out(nexus, command, origin).await?;
        let tried = tried.map(|tried| Answer { result: tried.receipt, warnings: tried.warnings, ..Answer::default() });
        Ok(envelope(tried, &command.call.command))
    }

    /// Returns the vectors for a search by meaning, if the call is one and there is an embedder.
    async fn meant(
        &self,
        nexus: &NexusId,
        call: &Call,
        origin: &Origin,
        own: &Arc<Snapshot>,
        commons: Option<&Arc<Snapshot>>,
    ) -> Result<Found, NexusError> {
        match meaning::term_of(call) {
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
        let Some(meanings) = &self.meanings else { return Ok(Found::default()) };
        let shared = NexusId::from(COMMONS);
        let awake = self.wake(nexus).await?;
        let commons = match commons {
            Some(snapshot) => Some((self.wake(&shared).await?, snapshot)),
            None => None,
        };
        let beside = commons.as_ref().map(|(awake, snapshot)| (&shared, awake, *snapshot));
        Ok(meanings.find(&self.store, term, origin, (nexus, &awake, own), beside).await?)
    }

    /// Reverts journal entry `seq`, unless a later entry depends on it.
    ///
    /// # Errors
    /// Only if the store fails.
    pub async fn undo(&self, nexus: &NexusId, seq: u64, origin: &Origin) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) {
            return Ok(json!({"error": owner::no_right().to_json("")}));
        }
        if seq <= wake::birth_of(nexus) as u64 {
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
        Ok(entries.iter().map(store::Entry::to_json).collect())
    }

    /// The graph of `nexus` as it is.
    ///
    /// # Errors
    /// When it cannot be woken.
    pub async fn snapshot(&self, nexus: &NexusId) -> Result<Arc<Snapshot>, NexusError> {
        Ok(self.wake(nexus).await?.snapshot().await?)
    }

    /// Returns `true` if a nexus of this name was created.
    ///
    /// # Errors
    /// The store's own.
    pub async fn exists(&self, nexus: &NexusId) -> Result<bool, NexusError> {
        // The commons are there from the beginning, and are written down when they are first asked for.
        if &**nexus == COMMONS {
            return Ok(true);
        }
        let head = self.store.document::<wake::Head>(&Key::new(Kind::Nexus, nexus.clone())).await?;
        Ok(head.is_some())
    }

    /// Runs a command on copies.
    async fn try_out(
        &self,
        nexus: &NexusId,
        command: &Command,
        origin: &Origin,
    ) -> Result<Result<Tried, KipError>, NexusError> {
        let awake = self.wake(nexus).await?;
        let (own, commons) = self.both(nexus, &awake).await?;
        let (mut own, mut commons) = (own.mind.clone(), commons.map(|commons| commons.mind.clone()));
        let now = self.store.clock().now().as_microsecond();
        let large = own.is_large() || commons.as_ref().is_some_and(Mind::is_large);
        let is_commons = &**nexus == COMMONS;
        let ids = commons::ids(&own, commons.as_ref());
        let tried = owner::beside(large, || {
            let hands = match commons.as_mut() {
                Some(commons) => Hands::Over { own: &mut own, commons, both: true },
                None => Hands::Commons(&mut own),
            };
            match run(command, hands, &origin.principal, now)? {
                Ran::WritesCommons => unreachable!("the copy of the commons may be written"),
                Ran::Done(changes, answer) => {
                    let diff = journal::diff(&changes, &ids);
                    let (shared, written) = match &mut commons {
                        Some(commons) => (Some(commons::split(changes).1), commons),
                        None => (is_commons.then_some(changes), &mut own),
                    };
                    let mut warnings = answer.warnings;
                    if let Some(mut shared) = shared {
                        commons::check_rights(written.read(), &shared, &origin.principal, command.right)?;
                        warnings.extend(commons::clean(written, &mut shared, self.secrets)?);
                    }
                    Ok(Tried { receipt: answer.result, diff, warnings })
                }
            }
        });
        let checked = own.check().and_then(|()| commons.as_ref().map_or(Ok(()), Mind::check));
        checked.inspect_err(|_| self.let_go_of_shelves(nexus))?;
        Ok(tried)
    }

    async fn hand_over(
        &self,
        nexus: &NexusId,
        task: impl FnOnce(oneshot::Sender<Result<Value, StoreError>>) -> Task,
    ) -> Result<Value, NexusError> {
        let awake = self.wake(nexus).await?;
        let (reply, answer) = oneshot::channel();
        // The writer lost its lease to another one; the next caller loads the nexus again.
        let gone = |_| {
            self.forget_this(nexus, &awake);
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
        let mind = owner::beside(snapshot.mind.is_large(), || {
            let mut mind = snapshot.mind.clone();
            later.iter().rev().for_each(|(_, written)| written.step_back(mind.write()));
            mind
        });
        Ok(Ok(Snapshot { mind, seq }))
    }
}

/// A principal's view of a nexus, with the elements near to a search term.
pub struct Sight {
    seen: Seen,
    near: Option<meaning::Near>,
    /// Warnings for the principal: vectors are missing.
    pub warnings: Vec<String>,
}

impl Sight {
    /// Lends the graph; off the runtime's other work where it is large.
    ///
    /// # Errors
    /// When a shelf cannot be read.
    pub fn look<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> Result<R, NexusError> {
        let looked = owner::beside(self.seen.is_large(), || self.seen.view(then));
        self.seen.check()?;
        Ok(looked)
    }

    /// Returns the elements near in meaning, if there is an embedder and it answered.
    pub fn near(&self) -> Option<&dyn exec::Semantic> {
        self.near.as_ref().map(|near| near as &dyn exec::Semantic)
    }
}

/// A principal's view of a nexus: its own graph, and the commons beside it, each filtered by scopes.
struct Seen {
    own: Arc<Snapshot>,
    scopes: commons::Scopes,
    commons: Option<(Arc<Snapshot>, commons::Scopes)>,
}

impl Seen {
    fn by(somebody: &Principal, nexus: &NexusId, own: Arc<Snapshot>, commons: Option<Arc<Snapshot>>) -> Self {
        let commons = commons.map(|commons| (commons, scopes(somebody, &COMMONS.into())));
        Self { own, scopes: scopes(somebody, nexus), commons }
    }

    fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R {
        let commons = self.commons.as_ref().map(|(snapshot, scopes)| (&snapshot.mind, scopes));
        commons::view((&self.own.mind, &self.scopes), commons, then)
    }

    fn is_large(&self) -> bool {
        self.own.mind.is_large() || self.commons.as_ref().is_some_and(|(snapshot, _)| snapshot.mind.is_large())
    }

    /// Checks that every read succeeded.
    fn check(&self) -> Result<(), StoreError> {
        self.own.mind.check()?;
        self.commons.as_ref().map_or(Ok(()), |(snapshot, _)| snapshot.mind.check())
    }
}

/// The outcome of a dry run.
struct Tried {
    receipt: Value,
    diff: Value,
    warnings: Vec<String>,
}

fn stream(nexus: &NexusId) -> Stream {
    format!("nexus:{nexus}").into()
}

/// Returns `true` if `principal` is the lifeform whose mind this is. Another lifeform is a visitor.
fn is_self(principal: &Principal, nexus: &NexusId) -> bool {
    let id = principal.id.0.strip_prefix("lifeform:");
    // What a lifeform defined and another principal runs is not the lifeform itself.
    principal.roles.contains(&Role::Lifeform) && id == Some(&**nexus) && principal.answers_for(&principal.id.0)
}

/// Returns `true` if a principal may write into a nexus and see its journal.
pub fn may_write(principal: &Principal, nexus: &NexusId) -> bool {
    principal.may(Role::Operator) || is_self(principal, nexus)
}

/// Returns `true` if a principal may write its own elements in a nexus: in the commons, every participant.
fn may_share(principal: &Principal, nexus: &NexusId) -> bool {
    &**nexus == COMMONS && (principal.may(Role::Participant) || principal.may(Role::Lifeform))
}

/// The scopes that limit what a principal sees; an operator, and a lifeform in its own mind, sees everything.
fn scopes(principal: &Principal, nexus: &NexusId) -> commons::Scopes {
    (!may_write(principal, nexus)).then(|| principal.scopes.iter().map(|scope| scope.0.clone()).collect())
}

/// The entry that a FIND asks about the graph after.
fn as_of(call: &Call) -> Result<Option<u64>, KipError> {
    if !call.command.to_ascii_uppercase().contains("SEQ") {
        return Ok(None);
    }
    bind_and(call, |command| match command {
        Kip::Find(Find { as_of: Some((lit, span)), .. }) | Kip::Explain(Find { as_of: Some((lit, span)), .. }) => {
            match lit {
                Lit::Int(seq) if *seq >= 0 => Ok(Some(*seq as u64)),
                other => Err(KipError::new(
                    ErrorKind::Parameter,
                    format!("an entry is a whole number, not {}", other.to_json()),
                )
                .at(*span)),
            }
        }
        _ => Ok(None),
    })
}
