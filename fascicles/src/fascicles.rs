//! `Fascicles`: the handle. Definitions, jobs, and their resumption after a restart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use neurons::llm::Usage;
use neurons::{Neurons, Tier};
use nexus::ledger::Amount;
use nexus::store::{Key, Kind, Stream};
use nexus::{Batch, Event, Origin, Store};
use ractor::ActorCell;
use serde_json::Value;

use crate::graph::Graph;
use crate::job::{Handle, Head, JobArgs, commit_of, plant};
use crate::run::{Fact, Observed, Run, Start};
use crate::spec::{FascicleId, FascicleSpec, NodeId, NodeRun};
use crate::toolbox::Toolbox;
use crate::{FascicleError, JobId};

/// Jobs that may run at once.
const JOBS_MAX: usize = 1024;

/// A cheap handle; clones share one supervisor.
#[derive(Clone)]
pub struct Fascicles {
    inner: Arc<Inner>,
    supervisor: ActorCell,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) neurons: Neurons,
    specs: HashMap<FascicleId, (FascicleSpec, Graph)>,
    running: Mutex<HashMap<JobId, Handle>>,
}

impl Inner {
    pub(crate) fn node_run(&self, fascicle: &FascicleId, node: &NodeId) -> Option<NodeRun> {
        self.specs.get(fascicle)?.1.node(node).map(|node| node.run.clone())
    }

    pub(crate) fn forget(&self, job: &JobId) {
        self.running().remove(job);
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Handle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a job is started.
pub struct JobOrder {
    /// The job's name; the same order twice is one job.
    pub id: JobId,
    /// What it runs.
    pub fascicle: FascicleId,
    /// Whose tools it uses.
    pub owner: Arc<str>,
    /// Who pays.
    pub account: Arc<str>,
    /// What it works on.
    pub events: Vec<Event>,
    /// A tier that overrides the neurons' own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neurons' own.
    pub output_tokens_max: Option<u32>,
}

pub(crate) fn job_stream(id: &JobId) -> Stream {
    format!("job:{id}").into()
}

impl Fascicles {
    /// A handle on the shipped fascicles.
    ///
    /// # Errors
    /// [`FascicleError`] when one of them is not well made.
    pub async fn open(store: Store, neurons: Neurons, shipped: Vec<FascicleSpec>) -> Result<Self, FascicleError> {
        let mut specs = HashMap::new();
        for spec in shipped {
            let graph = Graph::build(&spec)?;
            specs.insert(spec.id.clone(), (spec, graph));
        }
        let inner = Inner { store, neurons, specs, running: Mutex::default() };
        Ok(Self { inner: Arc::new(inner), supervisor: plant().await? })
    }

    /// All fascicles, by name.
    pub fn list(&self) -> Vec<FascicleSpec> {
        let mut specs: Vec<FascicleSpec> = self.inner.specs.values().map(|(spec, _)| spec.clone()).collect();
        specs.sort_by(|a, b| a.id.cmp(&b.id));
        specs
    }

    /// One fascicle.
    ///
    /// # Errors
    /// [`FascicleError::NotFound`].
    pub fn get(&self, id: &FascicleId) -> Result<FascicleSpec, FascicleError> {
        self.inner.specs.get(id).map(|(spec, _)| spec.clone()).ok_or_else(|| FascicleError::NotFound(id.clone()))
    }

    /// Starts a job. Its acceptance and its first steps are durable when this returns; `with` is
    /// committed together with them, or not at all. The same order again changes nothing.
    ///
    /// # Errors
    /// [`FascicleError::NotFound`], [`FascicleError::Overloaded`], or the store's own.
    pub async fn start(
        &self,
        origin: &Origin,
        order: JobOrder,
        toolbox: Arc<dyn Toolbox>,
        with: impl FnOnce(Batch) -> Batch,
    ) -> Result<(), FascicleError> {
        if self.inner.running().len() >= JOBS_MAX {
            return Err(FascicleError::Overloaded);
        }
        let graph = self
            .inner
            .specs
            .get(&order.fascicle)
            .map(|(_, graph)| graph.clone())
            .ok_or_else(|| FascicleError::NotFound(order.fascicle.clone()))?;
        let mut head = Head {
            id: order.id,
            fascicle: order.fascicle,
            owner: order.owner,
            account: order.account,
            origin: origin.clone(),
            status: crate::run::Status::Pending,
            current_stage: None,
            output: Value::Null,
            error: None,
            tier: order.tier,
            output_tokens_max: order.output_tokens_max,
        };
        let mut run = Run::new(graph);
        let (facts, starts) = run.on(Fact::Accepted { events: order.events });
        // The head must not exist yet: the commit refuses a job that was started before.
        let mut batch =
            Batch::new(origin).create(Key::new(Kind::Running, format!("{}/{}", head.owner, head.id)), &head.id);
        batch = batch.put_expecting(Key::new(Kind::Job, head.id.clone()), nexus::store::Expect::Version(0), &head);
        batch.ops.extend(commit_of(&mut head, &run, &facts).ops);
        match self.inner.store.commit(with(batch)).await {
            Ok(_) => self.spawn(head, run, toolbox, starts, false).await,
            Err(nexus::StoreError::Conflict { what, .. })
                if what.starts_with("job:") || what.starts_with("running:") =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn spawn(
        &self,
        head: Head,
        run: Run,
        toolbox: Arc<dyn Toolbox>,
        starts: Vec<Start>,
        resumed: bool,
    ) -> Result<(), FascicleError> {
        let id = head.id.clone();
        let args = JobArgs { inner: self.inner.clone(), head, run, toolbox, starts, resumed };
        let handle = Handle::spawn(args, self.supervisor.clone()).await?;
        // A quick job may be over by now; what has ended is not put down as running.
        let mut running = self.inner.running();
        if !handle.has_ended() {
            running.insert(id, handle);
        }
        Ok(())
    }

    /// Takes up every unfinished job of `owner`; answers how many there were.
    ///
    /// # Errors
    /// The store's own.
    pub async fn resume(&self, owner: &str, toolbox: &Arc<dyn Toolbox>) -> Result<usize, FascicleError> {
        let prefix = format!("{owner}/");
        let marks = self.inner.store.documents::<JobId>(Kind::Running, &prefix, JOBS_MAX).await?;
        let mut count = 0;
        for (mark, job) in marks {
            if !mark.starts_with(&prefix) {
                break;
            }
            let already = self.inner.running().contains_key(&job.value);
            let head = self.inner.store.document::<Head>(&Key::new(Kind::Job, job.value.clone())).await?;
            let (false, Some(head)) = (already, head) else { continue };
            let Some((_, graph)) = self.inner.specs.get(&head.value.fascicle) else { continue };
            let mut run = Run::new(graph.clone());
            for fact in self.facts(&job.value).await? {
                run.apply(&fact);
            }
            self.spawn(head.value, run, toolbox.clone(), Vec::new(), true).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Stops jobs where they are, and waits until they have; they go on when their owner is taken up again.
    pub async fn halt(&self, jobs: &[JobId]) {
        let handles: Vec<Handle> = jobs.iter().filter_map(|job| self.inner.running().get(job).cloned()).collect();
        for handle in handles {
            handle.halt().await;
        }
    }

    /// How many jobs are under way.
    pub fn running(&self) -> usize {
        self.inner.running().len()
    }

    /// What a call of `tier` with that usage costs at most; tokens alone when no model answers.
    pub fn price(&self, tier: Tier, usage: Usage) -> Amount {
        match self.inner.neurons.models().pick(tier) {
            Ok(model) => model.price.of(usage),
            Err(_) => Amount::tokens((usage.prompt_tokens + usage.completion_tokens) as i64),
        }
    }

    /// Stops a job for good.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`].
    pub async fn cancel(&self, job: &JobId) -> Result<(), FascicleError> {
        let handle = self.inner.running().get(job).cloned();
        match handle {
            Some(handle) => handle.cancel().await,
            None => drop(self.job(job).await?),
        }
        Ok(())
    }

    /// The head of a job.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`].
    pub async fn job(&self, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.inner.store.document::<Head>(&Key::new(Kind::Job, id.clone())).await?;
        head.map(|head| head.value).ok_or_else(|| FascicleError::JobNotFound(id.clone()))
    }

    /// What the world was told about a job, in order.
    ///
    /// # Errors
    /// The store's own.
    pub async fn observed(&self, id: &JobId) -> Result<Vec<Observed>, FascicleError> {
        let facts = self.facts(id).await?;
        Ok(facts
            .into_iter()
            .filter_map(|fact| if let Fact::Observed(observed) = fact { Some(observed) } else { None })
            .collect())
    }

    async fn facts(&self, id: &JobId) -> Result<Vec<Fact>, FascicleError> {
        let (stream, mut facts, mut after) = (job_stream(id), Vec::new(), 0);
        loop {
            let page = self.inner.store.entries(&stream, after, usize::MAX).await?;
            let Some(last) = page.last() else { return Ok(facts) };
            after = last.seq;
            for entry in &page {
                facts.push(entry.decode()?);
            }
        }
    }
}
