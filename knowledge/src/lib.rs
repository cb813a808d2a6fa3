//! Knowledge records: learned content in the commons, for the principals who may see it (MISSION R1–R4, H1–H5, P1–P4).
//!
//! A record is one concept of type `Knowledge`, and no part of it is stored twice. [`Knowledge`] reads records from the
//! graph and writes them by KIP. The rules are part of the writer of the commons, so they apply on every route.

mod audience;
mod copies;
mod dates;
mod draft;
mod evolve;
pub mod exchange;
mod feedback;
mod fields;
mod history;
mod identity;
mod learn;
mod likeness;
mod links;
mod list;
mod materials;
mod model_assist;
mod promotion;
mod prompt_context;
mod pulse;
pub mod rank;
mod record;
mod record_type;
mod reputation;
mod resource;
mod scope;
mod seal;
mod search;
pub mod skill;
mod slim;
mod statement_patterns;
mod tools;
pub mod unit;
mod unit_ids;
mod write;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use governor::clock::MonotonicClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use model_assist::Thinker;
use neurons::Neurons;
use nexus::kip::datum::Sym;
use nexus::kip::graph::{ElementId, ElementRef, GraphRead};
use nexus::{COMMONS, Nexus, NexusError, NexusId};
use serde_json::Value;
use store::{Directory, NoDirectory, Origin, Store, StoreError};
use tokio::sync::Mutex;
use unit::versions::{Schemas, VersionError};

pub use audience::{Audience, Audiences};
pub use copies::{Deleted, adds_nothing, is_copy, says_the_same};
pub use dates::{Dates, dates, month_named, weekday_named};
pub use draft::{Body, CONTENT_CHARS_MAX, Draft, TASK_CHARS_MAX};
pub use feedback::{Judged, Judgement};
pub use fields::Fault;
pub use history::RecordVersion;
pub use identity::Proof;
pub use learn::{Learned, Lesson, is_borne_out, is_confided, without_told};
pub use likeness::{is_other_version, names_others, telling_words, words_the_same};
pub use list::{Listed, Which};
pub use materials::{Source, without_secrets};
pub use promotion::{GoalOutcome, Promoted, TracedCall, TracedStep, is_trace};
pub use prompt_context::as_told;
pub use pulse::{Contribution, Units, UnitsWanted};
pub use record::{CONFIDENCE, Eval, KIND, Record, SCORE, Status, Type};
pub use reputation::{Provider, Reputation};
pub use resource::{Resource, ResourceDraft};
pub use scope::{Visibility, check as check_scope, check_owner};
pub use seal::{KeyRing, SealError, try_keys};
pub use search::{Explained, FLOOR, Found, Hit, Query, Router, TOP_K_MAX};
pub use slim::{Merged, SlimReport, SlimRules, Slimmed, THRESHOLD};
pub use statement_patterns::{CATEGORIES, Cue, cues, sentences, verdict};
pub use tools::tools;
pub use write::{Change, Saved};

/// The reason why a request was refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// The request is malformed.
    #[error("{}", said(.0))]
    Invalid(Vec<Fault>),
    /// The record does not exist, or the caller may not see it. The error does not reveal which.
    #[error("there is no {0}")]
    NotFound(String),
    /// The resource does not exist, or the caller may not see it.
    #[error("there is no resource {0}")]
    NoResource(String),
    /// The caller lacks the right for this request.
    #[error("{0}")]
    Forbidden(String),
    /// The request conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// The record was changed meanwhile.
    #[error("{0}")]
    Stale(String),
    /// The idempotency key was used for a different request before.
    #[error("this key was used for something else")]
    KeyReused,
    /// The caller exceeded a rate limit or a limit of concurrent requests.
    #[error("{0}")]
    TooMany(String),
    /// The validity of the requested content has expired.
    #[error("{0}")]
    Gone(String),
    /// A secret cannot be sealed or opened.
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// No supported version of the unit protocol matches the request.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The commons refused a KIP command that this crate generated.
    #[error("{0}")]
    Refused(String),
    /// The commons could not be read or written.
    #[error(transparent)]
    Nexus(#[from] NexusError),
}

impl From<StoreError> for KnowledgeError {
    fn from(error: StoreError) -> Self {
        Self::Nexus(error.into())
    }
}

impl From<Vec<Fault>> for KnowledgeError {
    fn from(faults: Vec<Fault>) -> Self {
        Self::Invalid(faults)
    }
}

impl KnowledgeError {
    /// Creates a [`KnowledgeError::Invalid`] with one fault.
    pub fn invalid(path: &str, what: impl Into<String>) -> Self {
        Self::Invalid(vec![Fault { path: path.to_owned(), what: what.into() }])
    }
}

fn said(faults: &[Fault]) -> String {
    let all: Vec<String> = faults.iter().map(|fault| format!("{} {}", fault.path, fault.what)).collect();
    all.join("; ")
}

/// The handle of this crate; clones are cheap.
#[derive(Clone)]
pub struct Knowledge {
    nexus: Nexus,
    store: Store,
    /// The model for optional assistance; `None` disables it.
    thinker: Option<Thinker>,
    /// The keys of sealed secrets.
    keys: KeyRing,
    audiences: Arc<OnceLock<Arc<dyn Audiences>>>,
    /// The versions of the unit protocol.
    schemas: Arc<Schemas>,
    /// Serializes work that must happen once although it could run under different names.
    once: Arc<Mutex<()>>,
    /// Serializes imported records.
    taking: Arc<Mutex<()>>,
    /// Locks that serialize changes of one record or resource. Several ids share a lock.
    changing: Arc<[Mutex<()>; CHANGED_AT_ONCE]>,
    /// Permits for callers that wait for their records to be merged.
    slims: store::Shares,
    /// Permits for exports.
    exports: store::Shares,
    /// Serializes merges: the records of one caller at a time.
    slimming: Arc<Mutex<()>>,
    /// The rate limit of reveals.
    reveals: Arc<Reveals>,
    /// The scopes of principals other than the caller.
    directory: Arc<dyn Directory>,
    /// The cache of people's profiles.
    profiles: Arc<std::sync::Mutex<prompt_context::Profiles>>,
    /// `true` if all lifeforms may use statements that a person made to one of them.
    opens_profiles: bool,
}

/// The maximum number of callers that wait for a merge; each caller has at most one place.
const SLIMS_MAX: usize = 16;
/// The maximum number of concurrent exports, with at most one per participant.
const EXPORTS_MAX: usize = 4;
/// The maximum number of records and resources that change at the same time.
const CHANGED_AT_ONCE: usize = 64;

/// A rate limiter per principal.
type Reveals = RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, MonotonicClock, NoOpMiddleware<std::time::Instant>>;

/// The maximum number of secrets revealed to one principal per minute.
const REVEALS_A_MINUTE: NonZeroU32 = NonZeroU32::new(60).unwrap();

impl Knowledge {
    /// Creates the handle for the records in the commons of `nexus`.
    pub fn new(store: Store, nexus: Nexus) -> Self {
        let reveals = RateLimiter::hashmap_with_clock(Quota::per_minute(REVEALS_A_MINUTE), MonotonicClock);
        let (keys, schemas) = (KeyRing::default(), Arc::default());
        let (once, taking) = (Arc::default(), Arc::default());
        let changing = Arc::new(std::array::from_fn(|_| Mutex::default()));
        let (reveals, profiles) = (Arc::new(reveals), Arc::default());
        let directory: Arc<dyn Directory> = Arc::new(NoDirectory);
        Self {
            nexus,
            store,
            thinker: None,
            keys,
            audiences: Arc::default(),
            schemas,
            once,
            taking,
            changing,
            slims: store::Shares::new(SLIMS_MAX, 1),
            exports: store::Shares::new(EXPORTS_MAX, 1),
            slimming: Arc::default(),
            reveals,
            directory,
            profiles,
            opens_profiles: false,
        }
    }

    /// Sets the directory of principals. Without a directory, principals see public records and their own records.
    #[must_use]
    pub fn with_directory(self, directory: Arc<dyn Directory>) -> Self {
        Self { directory, ..self }
    }

    /// Sets whether people's profiles are open to all lifeforms of the daemon. If not, only the lifeform that heard a
    /// statement may retrieve it.
    #[must_use]
    pub fn with_open_profiles(self, opens_profiles: bool) -> Self {
        Self { opens_profiles, ..self }
    }

    /// Returns `true` if `agent` may retrieve a record unasked: no conversation was its source, or the agent took part
    /// in that conversation.
    pub fn may_come_to_mind(&self, record: &Record, agent: &str) -> bool {
        self.opens_profiles || !record.is_of_other_talks_than(agent)
    }

    /// Returns `true` if all of these people may see a record, so a prompt whose answer they all read may contain it.
    pub fn may_be_told<'p>(&self, record: &Record, mut people: impl Iterator<Item = &'p str>) -> bool {
        people.all(|person| scope::is_shown(record, &self.directory.principal(person)))
    }

    /// The directory of the present rights of principals.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// Sets the models that assist with selection and writing, paid from the house account.
    #[must_use]
    pub fn with_neurons(self, neurons: Neurons) -> Self {
        Self { thinker: Some(Thinker::new(neurons)), ..self }
    }

    /// Replaces the shipped versions of the unit protocol.
    #[must_use]
    pub fn with_schemas(self, schemas: Schemas) -> Self {
        Self { schemas: Arc::new(schemas), ..self }
    }

    /// Returns the versions of the unit protocol.
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// Sets the keys that seal secrets. Without keys, secrets cannot be sealed or opened; everything else works.
    #[must_use]
    pub fn with_keys(self, keys: KeyRing) -> Self {
        Self { keys, ..self }
    }

    /// Sets the models, and the account that pays for them.
    #[must_use]
    pub fn paid_by(&self, account: Arc<str>) -> Self {
        Self { thinker: self.thinker.clone().map(|thinker| thinker.paid_by(account)), ..self.clone() }
    }

    /// Returns the lock of changes of a record or a resource.
    fn changing(&self, id: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        &self.changing[hasher.finish() as usize % CHANGED_AT_ONCE]
    }

    /// Returns a record that the caller may see, with its newest cases.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::NotFound`] if it does not exist or the caller may not see it.
    pub async fn get(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        let mut record = self.seen(id, origin).await?;
        self.add_cases(&mut record).await?;
        for resource in &record.resource_ids {
            if let Err(KnowledgeError::NoResource(gone)) = self.resource(resource, origin).await {
                record.missing_resource_ids.push(gone);
            }
        }
        Ok(record)
    }

    /// Returns an active record that the caller may see, without its cases.
    async fn seen(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        let record = self.any(id, origin).await?;
        match record.status {
            Status::Active => Ok(record),
            _ => Err(KnowledgeError::NotFound(id.to_owned())),
        }
    }

    /// Returns a record that the caller may see, even if it was deleted or merged.
    async fn any(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let found = sight.look(|graph| read(graph, graph.concept(Sym::new(KIND), id)?))?;
        found.ok_or_else(|| KnowledgeError::NotFound(id.to_owned()))
    }
}

/// The warning for an unchanged text whose secret was removed or sealed before.
const SECRETS_STAY: &str = "a secret in it was left out, or sealed, before: that stays as it is";

fn commons() -> NexusId {
    COMMONS.into()
}

/// Reads an element as a record; `None` if it is no record.
fn read(graph: &dyn GraphRead, el: ElementId) -> Option<Record> {
    let mut found = None;
    graph.look(el, &mut |look| {
        if let ElementRef::Concept(concept) = look
            && concept.kind.as_str() == KIND
        {
            found = Some(Record::of(concept));
        }
    });
    found
}

/// Returns the warnings in a KIP answer.
fn warned(answer: &Value) -> Vec<String> {
    answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the result in a KIP answer, or its error as an error of this crate.
fn outcome(answer: &Value, id: &str) -> Result<Value, KnowledgeError> {
    let Some(error) = answer.get("error") else { return Ok(answer["result"].clone()) };
    let message = error["message"].as_str().unwrap_or("refused").to_owned();
    Err(match error["code"].as_str() {
        Some("KIP_4003") => KnowledgeError::Forbidden(message),
        Some("KIP_3005") => KnowledgeError::Stale(message),
        Some("KIP_3002") => KnowledgeError::NotFound(id.to_owned()),
        _ => KnowledgeError::Refused(message),
    })
}
