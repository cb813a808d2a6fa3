//! Fascicles that neurons call as tools. Each call is a job that is named after the call, so a repetition after a crash
//! is the same job. The job belongs to the principal that the neuron works for, is paid by the same account, and ends
//! with its caller.

use std::sync::Arc;

use async_trait::async_trait;
use neurons::tools::{Assembled, EffectScope, FascicleCall, FascicleRunner};
use serde_json::Value;
use store::{Cause, Event, Hash, Principal, json};

use crate::assembled;
use crate::catalogue::Built;
use crate::fascicles::{Fascicles, JobOrder, WeakFascicles};
use crate::graph::{Graph, Plan};
use crate::run::{Fact, Status};
use crate::{FascicleId, JobId};

/// The runner of fascicles. It holds a weak handle, so it does not keep them alive.
pub(crate) struct Runner(pub(crate) WeakFascicles);

/// The time in seconds after a call in one fascicle during which the same call in another needs an approval: a day.
const ECHOES_S: u32 = 86_400;

/// The roles of the events by which a lifeform orders its own jobs. A call of a tool brings none.
const ORDERS: [&str; 3] = ["perception", "errand", "compaction"];

/// Returns the events of an input: the roles and contents of `{events: [{role, content}]}`, any other value as one
/// event of the user. An input with an event in a role that only the daemon gives is one event of the user, too.
fn events_of(input: Value, cause: &Cause) -> Vec<Event> {
    let events = input.get("events").and_then(Value::as_array).map(|events| {
        let event = |event: &Value| {
            let role = event["role"].as_str().filter(|role| !ORDERS.contains(role))?;
            Some(Event::json(role, event.get("content")?.clone(), cause.clone()))
        };
        events.iter().map(event).collect::<Option<Vec<Event>>>()
    });
    events.flatten().unwrap_or_else(|| vec![Event::json("user", input, cause.clone())])
}

/// Cancels a job when it is dropped, because its caller no longer waits.
struct Orphan {
    fascicles: Fascicles,
    job: Option<JobId>,
}

impl Drop for Orphan {
    fn drop(&mut self) {
        // Outside of the runtime the daemon is stopping, and the job continues after its restart.
        if let (Some(job), Ok(runtime)) = (self.job.take(), tokio::runtime::Handle::try_current()) {
            let fascicles = self.fascicles.clone();
            runtime.spawn(async move { fascicles.cancel(&Principal::system(), &job).await });
        }
    }
}

#[async_trait]
impl FascicleRunner for Runner {
    async fn description(&self, fascicle: &FascicleId) -> Option<String> {
        let found = self.0.upgrade()?.get(fascicle).await.ok()?;
        Some(found.value.description)
    }

    async fn run(&self, call: FascicleCall) -> Result<Value, String> {
        self.ended(call, None).await
    }

    async fn run_assembled(&self, written: Assembled, call: FascicleCall) -> Result<Value, String> {
        let plan = assembled::assembled(written, &call.input).map_err(|why| format!("not run: {why}"))?;
        self.ended(FascicleCall { fascicle: assembled::ID.into(), ..call }, Some(plan)).await
    }

    async fn cancel(&self, parent: &str) {
        if let Some(fascicles) = self.0.upgrade() {
            fascicles.inner.cancel_within(parent).await;
        }
    }
}

impl Runner {
    /// Runs a fascicle as a job, the stored one or one with this plan, and returns its output.
    async fn ended(&self, call: FascicleCall, plan: Option<(Plan, Arc<Graph>)>) -> Result<Value, String> {
        let fascicles = self.0.upgrade().ok_or("the daemon is stopping")?;
        let toolbox = fascicles.toolbox(&call.caller.owner).map_err(|error| error.to_string())?;
        let job: JobId = format!("job_{}", &Hash::of(&json(&call.key)).hex()[..32]).into();
        // Another fascicle, or the same with another input, is another piece of work.
        let within = &Hash::of(&json(&(&call.fascicle, &call.input))).hex()[..16];
        // The same call in both is asked about, because a model may have asked for the same in other words.
        let work = |scope: EffectScope| EffectScope {
            work: format!("{}/{within}", scope.work).into(),
            echoes_s: scope.echoes_s.max(ECHOES_S),
            ..scope
        };
        let scope = call.caller.scope.clone().map(work);
        let events = events_of(call.input, &call.origin.cause);
        let untrusted = call.caller.is_untrusted();
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle: call.fascicle,
            owner: call.caller.owner,
            account: call.account,
            events,
            deadline_s: Some(call.deadline_s),
            depth: call.caller.depth,
            untrusted,
            authors: call.caller.authors,
            parent: Some(call.parent.clone()),
            scope,
            root: call.caller.root,
            ..JobOrder::default()
        };
        let in_words = |error: crate::FascicleError| error.to_string();
        // A calling job continues the called job after a restart. An invocation of a client does not survive its
        // caller.
        let of_job = call.parent.contains('/');
        let mut orphan = Orphan { fascicles: fascicles.clone(), job: (!of_job).then(|| job.clone()) };
        let built = match plan {
            Some((plan, graph)) => Built::once(&plan, graph),
            None => fascicles.built(&order.fascicle).await.map_err(in_words)?,
        };
        fascicles.start_built(&call.origin, order, built, toolbox, |batch| batch).await.map_err(in_words)?;
        let mut follow = fascicles.follow(&job);
        loop {
            let entry = follow.next().await.map_err(|error| error.to_string())?;
            if let Ok(Fact::Ended { .. }) = entry.decode::<Fact>() {
                let head = fascicles.job(&job).await.map_err(in_words)?;
                // A failed job that was retried continues.
                if head.status.is_final() {
                    orphan.job = None;
                    let why = || head.error.unwrap_or_else(|| "it was cancelled".into());
                    return if head.status == Status::Completed { Ok(head.output) } else { Err(why()) };
                }
            }
        }
    }
}
