//! The catalogue of definitions: shipped ones, and those created over the API, with their versions (F2).

mod history;
mod named;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use neurons::{NeuronError, NeuronId, NeuronSpec};
use store::{
    Batch, Expect, Hash, Key, Kind, Origin, Principal, PrincipalId, Receipt, Role, StoreError, Versioned, json,
};

use crate::FascicleError;
use crate::fascicles::Fascicles;
use crate::fault::{Fault, Faults};
use crate::graph::{DEPTH_MAX, Graph, Plan};
use crate::spec::{FascicleId, FascicleSpec, NodeRun};
pub use history::Version;
use history::noted;
pub(crate) use named::Named;
use named::called_in;

/// The maximum number of built plans in the cache.
const PLANS_MAX: usize = 1024;
/// The number of definitions per read.
const STRETCH: usize = 256;
/// The version of every shipped definition.
const SHIPPED_VERSION: u64 = 1;

/// A plan that was built.
#[derive(Clone)]
pub(crate) struct Built {
    pub(crate) graph: Arc<Graph>,
    /// The stored form of the plan, and its hash.
    pub(crate) plan: bytes::Bytes,
    pub(crate) hash: Hash,
    /// The count of definition changes at the time of building.
    generation: u64,
}

impl Built {
    /// Returns a plan that is built for one job.
    pub(crate) fn once(plan: &Plan, graph: Arc<Graph>) -> Self {
        let plan = json(plan);
        Self { graph, hash: Hash::of(&plan), plan, generation: 0 }
    }
}

/// The cache of definitions.
pub(crate) struct Catalogue {
    pub(crate) shipped: BTreeMap<FascicleId, FascicleSpec>,
    pub(crate) tools: BTreeSet<Arc<str>>,
    built: std::sync::Mutex<BTreeMap<FascicleId, Built>>,
    graphs: std::sync::Mutex<BTreeMap<String, Arc<Graph>>>,
    changes: AtomicU64,
}

impl Catalogue {
    pub(crate) fn new(shipped: Vec<FascicleSpec>, tools: BTreeSet<Arc<str>>) -> Self {
        let shipped = shipped.into_iter().map(|spec| (spec.id.clone(), spec)).collect();
        Self { shipped, tools, built: Default::default(), graphs: Default::default(), changes: AtomicU64::new(0) }
    }
}

/// The version of a new definition.
const FIRST_VERSION: u64 = 1;

/// Definitions of fascicles and stored neurons, by id.
#[derive(Default)]
pub struct Definitions {
    /// The fascicles.
    pub fascicles: BTreeMap<FascicleId, FascicleSpec>,
    /// The neurons.
    pub neurons: BTreeMap<NeuronId, NeuronSpec>,
}

/// The id that the route of the JSON schema of fascicles has.
const SCHEMA: &str = "schema";

/// Returns the error of a neuron that exists and cannot be read.
fn unreadable(error: NeuronError) -> FascicleError {
    match error {
        NeuronError::Store(error) => error.into(),
        other => FascicleError::Died(other.to_string()),
    }
}

impl Fascicles {
    /// Returns the definitions of the given fascicles, of all nested fascicles, and of the stored neurons that they
    /// name. Definitions in `brought` take precedence over stored ones.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`] if one of `ids` does not exist.
    pub async fn needed_by<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a FascicleId>,
        brought: &Definitions,
    ) -> Result<Definitions, FascicleError> {
        let (mut fascicles, mut neurons) = (BTreeMap::new(), BTreeMap::new());
        let mut wanted: Vec<(FascicleId, bool)> = ids.into_iter().map(|id| (id.clone(), true)).collect();
        while let Some((id, must)) = wanted.pop() {
            if fascicles.contains_key(&id) {
                continue;
            }
            let found = match brought.fascicles.get(&id) {
                Some(found) => Ok(found.clone()),
                None => self.get(&id).await.map(|found| found.value),
            };
            let found = match found {
                Ok(found) => found,
                // A fascicle that is only called as a tool may be missing.
                Err(FascicleError::NotFound(_)) if !must => continue,
                Err(error) => return Err(error),
            };
            let mut named = Named::of(&found);
            let text = serde_json::to_value(&found).unwrap_or_default();
            called_in(&text, &mut named);
            fascicles.insert(id, found);
            let mut stored: Vec<NeuronId> = std::mem::take(&mut named.neurons).into_iter().collect();
            while let Some(neuron) = stored.pop() {
                if neurons.contains_key(&neuron) {
                    continue;
                }
                let spec = match brought.neurons.get(&neuron) {
                    Some(spec) => spec.clone(),
                    None => match self.inner.neurons.get(&neuron).await {
                        Ok(found) => found.value,
                        Err(NeuronError::NotFound(_)) => continue,
                        Err(error) => return Err(unreadable(error)),
                    },
                };
                let mut more = Named::default();
                called_in(&serde_json::to_value(&spec).unwrap_or_default(), &mut more);
                neurons.insert(neuron, spec);
                stored.extend(more.neurons);
                named.fascicles.extend(more.fascicles);
            }
            wanted.extend(named.fascicles.into_iter().map(|id| (id, false)));
        }
        Ok(Definitions { fascicles, neurons })
    }

    fn catalogue(&self) -> &Catalogue {
        &self.inner.catalogue
    }

    /// Checks a definition without storing it. Everything that it names must exist.
    ///
    /// # Errors
    /// Returns [`FascicleError::Invalid`] with all faults.
    pub async fn check(&self, spec: &FascicleSpec) -> Result<(), FascicleError> {
        let plan = self.plan(spec.clone(), None).await?;
        Graph::build(&plan, Some(&self.catalogue().tools)).map(drop).map_err(FascicleError::Invalid)
    }

    /// Checks a definition as one that `origin` wants to store, without storing it: also whether it may give the tools and name the
    /// approvers in it.
    ///
    /// # Errors
    /// Returns [`FascicleError::Invalid`] with all faults, or the refusal of a tool or of an approver.
    pub async fn check_by(&self, origin: &Origin, spec: &FascicleSpec) -> Result<(), FascicleError> {
        names_approvers(spec, origin)?;
        self.check_tools(spec, origin)?;
        self.check(spec).await
    }

    /// Stores a new fascicle.
    ///
    /// # Errors
    /// Returns [`FascicleError::Invalid`], [`FascicleError::Exists`] if the id is taken, or
    /// [`FascicleError::TooManyDefinitions`] if the quota of the principal is used up.
    pub async fn create(
        &self,
        origin: &Origin,
        mut spec: FascicleSpec,
    ) -> Result<Versioned<FascicleSpec>, FascicleError> {
        if spec.id.is_empty() {
            spec.id = format!("fasc_{}", uuid::Uuid::now_v7().simple()).into();
        }
        self.may_define(origin)?;
        self.check_by(origin, &spec).await?;
        if self.catalogue().shipped.contains_key(&spec.id) {
            return Err(FascicleError::Shipped(spec.id));
        }
        if *spec.id == *SCHEMA {
            return Err(FascicleError::Exists(spec.id));
        }
        let id = spec.id.clone();
        let batch = Batch::new(origin).create(Key::new(Kind::Fascicle, id.clone()), &spec);
        let (batch, _turn) = self.inner.neurons.quota().add(batch, &origin.principal).await?;
        match self.commit_definition(noted(batch, &id, FIRST_VERSION, Some(&spec))).await {
            Ok(receipt) => Ok(Versioned { version: receipt.versions[0], value: spec }),
            Err(StoreError::Conflict { .. }) => Err(FascicleError::Exists(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks the tools of a definition by `origin`: see [`neurons::Neurons::check_tools`].
    fn check_tools(&self, spec: &FascicleSpec, origin: &Origin) -> Result<(), FascicleError> {
        let checked = self.inner.neurons.check_tools(named::tools_in(spec).into_iter(), origin);
        let fault = |reason| {
            let cure = "GET /v1/tools lists the tools".into();
            FascicleError::Invalid(Faults(vec![Fault { path: "nodes".into(), reason, cure }]))
        };
        checked.map_err(fault)
    }

    fn may_define(&self, origin: &Origin) -> Result<(), FascicleError> {
        let by = &origin.principal.id;
        let is_whole = self.inner.neurons.may_define(origin);
        is_whole.then_some(()).ok_or_else(|| FascicleError::LesserToken(by.clone()))
    }

    /// Commits a change of definitions and increments the change counter, which invalidates the plans that were built
    /// before.
    async fn commit_definition(&self, batch: Batch) -> Result<Receipt, StoreError> {
        let inner = self.inner.clone();
        self.inner
            .store
            .commit_then(batch, move || {
                inner.catalogue.changes.fetch_add(1, Ordering::SeqCst);
            })
            .await
    }

    /// Returns a definition.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`].
    pub async fn get(&self, id: &FascicleId) -> Result<Versioned<FascicleSpec>, FascicleError> {
        if let Some(spec) = self.catalogue().shipped.get(id) {
            return Ok(Versioned { version: SHIPPED_VERSION, value: spec.clone() });
        }
        let found = self.inner.store.document(&Key::new(Kind::Fascicle, id.clone())).await?;
        found.ok_or_else(|| FascicleError::NotFound(id.clone()))
    }

    /// Returns a definition that `origin` may change: its own, or any for an operator.
    async fn changeable(&self, origin: &Origin, id: &FascicleId) -> Result<Versioned<FascicleSpec>, FascicleError> {
        let found = self.get(id).await?;
        if origin.principal.may(Role::Operator) {
            return Ok(found);
        }
        let owner = self.owner(id).await?;
        if origin.principal.answers_for(&owner.0) { Ok(found) } else { Err(FascicleError::NotOwner(id.clone(), owner)) }
    }

    /// Returns the owner of a definition: the principal that wrote its first version, or the daemon.
    async fn owner(&self, id: &FascicleId) -> Result<PrincipalId, FascicleError> {
        let (mut owner, mut after) = (None, 0);
        loop {
            let (versions, next) = self.versions(id, after, STRETCH).await?;
            if versions.is_empty() {
                break;
            }
            let first = versions.iter().rfind(|known| known.version == FIRST_VERSION && known.spec.is_some());
            (owner, after) = (first.map(|first| first.by.clone()).or(owner), next);
        }
        Ok(owner.unwrap_or_else(|| Principal::system().id))
    }

    /// Returns `true` for a shipped fascicle, which cannot be changed.
    pub fn is_shipped(&self, id: &FascicleId) -> bool {
        self.catalogue().shipped.contains_key(id)
    }

    /// Returns at most `limit` definitions with ids after `after`, ordered by id.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(FascicleId, Versioned<FascicleSpec>)>, FascicleError> {
        let mut found: Vec<(FascicleId, Versioned<FascicleSpec>)> =
            self.inner.store.documents(Kind::Fascicle, after, limit).await?;
        let shipped = self.catalogue().shipped.iter().filter(|(id, _)| &***id > after);
        let versioned = |spec: &FascicleSpec| Versioned { version: SHIPPED_VERSION, value: spec.clone() };
        found.extend(shipped.map(|(id, spec)| (id.clone(), versioned(spec))));
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.truncate(limit);
        Ok(found)
    }

    /// Replaces a definition. Running jobs keep the version that they started with.
    ///
    /// # Errors
    /// Returns [`FascicleError::Invalid`], [`FascicleError::NotFound`], [`FascicleError::Shipped`], or a conflict if
    /// `expect` is not the current version.
    pub async fn update(
        &self,
        origin: &Origin,
        id: &FascicleId,
        mut spec: FascicleSpec,
        expect: Option<u64>,
    ) -> Result<Versioned<FascicleSpec>, FascicleError> {
        if self.is_shipped(id) {
            return Err(FascicleError::Shipped(id.clone()));
        }
        spec.id = id.clone();
        self.may_define(origin)?;
        let found = self.changeable(origin, id).await?.version;
        names_approvers(&spec, origin)?;
        self.check_tools(&spec, origin)?;
        self.check(&spec).await?;
        let expect = expect.unwrap_or(found);
        let key = Key::new(Kind::Fascicle, id.clone());
        let batch = Batch::new(origin).put_expecting(key, Expect::Version(expect), &spec);
        let receipt = self.commit_definition(noted(batch, id, expect + 1, Some(&spec))).await?;
        Ok(Versioned { version: receipt.versions[0], value: spec })
    }

    /// Deletes a definition. A definition that others use is deleted only if `forced`; the others then cannot be
    /// executed.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`], [`FascicleError::Shipped`] or [`FascicleError::InUse`].
    pub async fn delete(&self, origin: &Origin, id: &FascicleId, forced: bool) -> Result<(), FascicleError> {
        if self.is_shipped(id) {
            return Err(FascicleError::Shipped(id.clone()));
        }
        let found = self.changeable(origin, id).await?.version;
        let users = self.users(|named| named.fascicles.contains(id)).await?;
        if !forced && !users.is_empty() {
            return Err(FascicleError::InUse(id.clone(), users));
        }
        let batch = Batch::new(origin).delete(Key::new(Kind::Fascicle, id.clone()), Expect::Version(found));
        let (batch, _turn) = self.inner.neurons.quota().remove(batch, &self.owner(id).await?).await?;
        self.commit_definition(noted(batch, id, found, None)).await?;
        Ok(())
    }

    /// Returns the fascicles that use a stored neuron.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn users_of_neuron(&self, id: &NeuronId) -> Result<Vec<FascicleId>, FascicleError> {
        self.users(|named| named.neurons.contains(id)).await
    }

    async fn users(&self, uses: impl Fn(&Named) -> bool) -> Result<Vec<FascicleId>, FascicleError> {
        let (mut users, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.list(&after, STRETCH).await?;
            let Some((last, _)) = page.last() else { return Ok(users) };
            after = last.to_string();
            users.extend(page.into_iter().filter(|(_, spec)| uses(&Named::of(&spec.value))).map(|(id, _)| id));
        }
    }

    /// Collects a definition and everything that it names. Missing definitions are left out; the build of the graph
    /// reports them. `author` is the author of the root definition.
    pub(crate) async fn plan(&self, root: FascicleSpec, author: Option<PrincipalId>) -> Result<Plan, FascicleError> {
        let mut plan = Plan { root, ..Plan::default() };
        plan.authors.extend(author.map(|author| (format!("fascicle:{}", plan.root.id), author)));
        let mut level = vec![Named::of(&plan.root)];
        for _ in 0..=DEPTH_MAX {
            let mut below = Vec::new();
            for named in std::mem::take(&mut level) {
                for id in named.neurons {
                    match self.inner.neurons.written(&id).await {
                        Ok((found, author)) => {
                            plan.authors.extend(author.map(|author| (format!("neuron:{id}"), author)));
                            plan.neurons.insert(id, found.value);
                        }
                        Err(NeuronError::NotFound(_)) => {}
                        Err(error) => return Err(unreadable(error)),
                    }
                }
                for id in named.fascicles {
                    if plan.fascicles.contains_key(&id) {
                        continue;
                    }
                    match self.written(&id).await {
                        Ok((found, author)) => {
                            plan.authors.extend(author.map(|author| (format!("fascicle:{id}"), author)));
                            below.push(Named::of(&found.value));
                            plan.fascicles.insert(id, found.value);
                        }
                        Err(FascicleError::NotFound(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            level = below;
        }
        Ok(plan)
    }

    /// Returns the built plan of a fascicle's current definition.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`], or [`FascicleError::Invalid`] if a definition that it names is missing.
    pub(crate) async fn built(&self, id: &FascicleId) -> Result<Built, FascicleError> {
        let generation = self.catalogue().changes.load(Ordering::SeqCst) + self.inner.neurons.changes();
        let known = locked(&self.catalogue().built).get(id).cloned();
        if let Some(known) = known.filter(|known| known.generation == generation) {
            return Ok(known);
        }
        let (found, author) = self.written(id).await?;
        let plan = self.plan(found.value, author).await?;
        let graph = Graph::build(&plan, Some(&self.catalogue().tools)).map_err(FascicleError::Invalid)?;
        let built = Built { generation, ..Built::once(&plan, graph) };
        keep(&self.catalogue().built, id.clone(), built.clone());
        Ok(built)
    }

    /// Returns the owner's tools that a fascicle and its nested fascicles call.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`] or [`FascicleError::Invalid`].
    pub async fn tools_of(&self, id: &FascicleId) -> Result<BTreeSet<Arc<str>>, FascicleError> {
        let mut tools = BTreeSet::new();
        self.built(id).await?.graph.tools(&mut tools);
        Ok(tools)
    }

    /// Returns the graph of the plan that a job started with.
    ///
    /// # Errors
    /// Returns the store's error.
    pub(crate) async fn graph_of(&self, hash: &str) -> Result<Arc<Graph>, FascicleError> {
        if let Some(known) = locked(&self.catalogue().graphs).get(hash).cloned() {
            return Ok(known);
        }
        let missing = || StoreError::Corrupt(format!("the plan {hash} of a job is not there"));
        let body = match Hash::parse(hash) {
            Some(hash) => self.inner.store.payload(&hash).await?,
            None => None,
        };
        let plan: Plan = serde_json::from_slice(&body.ok_or_else(missing)?)
            .map_err(|error| StoreError::Corrupt(format!("the plan {hash} of a job: {error}")))?;
        let graph = Graph::build(&plan, None).map_err(FascicleError::Invalid)?;
        keep(&self.catalogue().graphs, hash.to_owned(), graph.clone());
        Ok(graph)
    }
}

/// Refuses a definition that names approvers, unless an operator writes it and all approvers are principals.
fn names_approvers(spec: &FascicleSpec, origin: &Origin) -> Result<(), FascicleError> {
    let mut faults = Vec::new();
    for (place, node) in spec.nodes.iter().enumerate() {
        let NodeRun::Approve(approve) = &node.run else { continue };
        let path = format!("nodes[{place}].run.approve.by");
        if !approve.by.is_empty() && !origin.principal.may(Role::Operator) {
            let (reason, cure) = ("only an operator names who may approve", "leave it out: operators approve");
            faults.push(Fault { path: path.clone(), reason: reason.into(), cure: cure.into() });
        }
        for (at, by) in approve.by.iter().enumerate() {
            if let Err(reason) = Principal::parse_id(by) {
                faults.push(Fault {
                    path: format!("{path}[{at}]"),
                    reason,
                    cure: "name a principal, as user:ada".into(),
                });
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(FascicleError::Invalid(Faults(faults))) }
}

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn keep<K: Ord, V>(kept: &std::sync::Mutex<BTreeMap<K, V>>, key: K, value: V) {
    let mut kept = locked(kept);
    if kept.len() >= PLANS_MAX {
        kept.clear();
    }
    kept.insert(key, value);
}

/// Returns the JSON Schema (2020-12) of a definition.
pub fn schema() -> serde_json::Value {
    use utoipa::{PartialSchema, ToSchema};
    let mut parts = Vec::new();
    FascicleSpec::schemas(&mut parts);
    let definitions: BTreeMap<String, serde_json::Value> =
        parts.into_iter().map(|(name, part)| (name, serde_json::json!(part))).collect();
    let mut schema = serde_json::json!(FascicleSpec::schema());
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "FascicleSpec".into();
    schema["$defs"] = serde_json::json!(definitions);
    let text = schema.to_string().replace("#/components/schemas/", "#/$defs/");
    serde_json::from_str(&text).unwrap_or(schema)
}

/// Parses a definition in TOML or JSON.
///
/// # Errors
/// Returns the fault and its place.
pub fn read(text: &str) -> Result<FascicleSpec, Fault> {
    let json = text.trim_start().starts_with('{');
    let read = if json {
        serde_json::from_str(text).map_err(|error| (format!("line {}", error.line()), error.to_string()))
    } else {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
            (format!("line {line}"), error.message().to_owned())
        })
    };
    let cure = "`lifeformd fascicle schema` prints what a definition may hold".to_owned();
    read.map_err(|(path, reason)| Fault { path, reason, cure })
}
