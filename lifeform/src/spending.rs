//! The spending of nutrients by model, neuron, fascicle, person, goal and day. The source is the journal of calls. A
//! report adds new calls to the previous report, so a repeated request costs only the new part.

use std::collections::BTreeMap;
use std::sync::Arc;

use fascicles::Fascicles;
use neurons::llm::paid::calls_stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::ledger::Amount;
use store::{Batch, Entry, Expect, Key, Kind, Origin, Store, StoreError};

/// The maximum number of names in one dimension. Further names are counted as `other`.
const NAMES_MAX: usize = 1_000;
/// The name under which the spending of further names is counted.
pub(crate) const OTHER: &str = "other";
/// The number of pages between two writes of the report.
const PAGES: usize = 16;

/// A number of calls with their total charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Tally {
    /// The number of model calls.
    pub calls: u64,
    /// The total charge.
    pub charged: Amount,
}

impl Tally {
    fn add(&mut self, charged: Amount) {
        self.calls += 1;
        self.charged = self.charged.plus(charged);
    }
}

/// The spending report of one account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Spending {
    /// The number of the last call entry in the report.
    pub upto: u64,
    /// The total.
    pub total: Tally,
    /// The spending by `model`, `neuron`, `fascicle`, `person`, `goal` and `day`, and then by name.
    pub by: BTreeMap<String, BTreeMap<String, Tally>>,
}

impl Spending {
    fn add(&mut self, dimension: &str, name: &str, charged: Amount) {
        let names = self.by.entry(dimension.to_owned()).or_default();
        // The oldest goal makes room. If it goes on, it is counted from zero.
        if dimension == "goal" && names.len() >= NAMES_MAX && !names.contains_key(name) {
            let number = |name: &String| name.strip_prefix('g').and_then(|number| number.parse::<u64>().ok());
            let oldest = names.keys().filter_map(|name| Some((number(name)?, name.clone()))).min();
            if let Some(gone) = oldest.and_then(|(_, oldest)| names.remove(&oldest)) {
                let other = names.entry(OTHER.to_owned()).or_default();
                (other.calls, other.charged) = (other.calls + gone.calls, other.charged.plus(gone.charged));
            }
        }
        let room = names.len() < NAMES_MAX || names.contains_key(name);
        names.entry(if room { name } else { OTHER }.to_owned()).or_default().add(charged);
    }
}

/// Returns the spending report of `account`.
///
/// # Errors
/// A store error.
pub(crate) async fn report(store: &Store, fascicles: &Fascicles, account: &str) -> Result<Spending, StoreError> {
    let key = Key::new(Kind::Spending, account);
    let stream = calls_stream(account);
    loop {
        let kept = store.document::<Spending>(&key).await?;
        let (version, mut report) = kept.map_or((0, Spending::default()), |kept| (kept.version, kept.value));
        let (from, mut pages) = (report.upto, 0);
        let mut whole = false;
        while pages < PAGES && !whole {
            let page = store.entries(&stream, report.upto, usize::MAX).await?;
            whole = page.is_empty();
            for entry in page {
                report.upto = entry.seq;
                fold(store, fascicles, &mut report, &entry).await?;
            }
            pages += 1;
        }
        if report.upto == from {
            return Ok(report);
        }
        let keep = Batch::new(&Origin::system("report")).put_expecting(key.clone(), Expect::Version(version), &report);
        match store.commit(keep).await {
            Ok(_) if whole => return Ok(report),
            // A concurrent request stored a report. The next one continues from it.
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

async fn fold(store: &Store, fascicles: &Fascicles, report: &mut Spending, entry: &Entry) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct Settled {
        #[serde(default)]
        model: Option<String>,
        charged: Amount,
        /// The principal for whom the daemon settled a call.
        #[serde(default)]
        asked_by: Option<String>,
    }
    let Ok(Settled { model, charged, asked_by }) = serde_json::from_slice::<Settled>(&entry.data) else {
        return Ok(());
    };
    report.total.add(charged);
    report.add("model", model.as_deref().unwrap_or("unknown"), charged);
    report.add("day", &entry.at.to_string()[..10], charged);
    let refs = &entry.cause.0;
    let last = |prefix: &str| refs.iter().rev().find_map(|reference| reference.strip_prefix(prefix));
    if let Some((job, step)) = last("job:").and_then(|at| at.rsplit_once('/').or(Some((at, "")))) {
        let (job, step) = innermost(job, step);
        let head = fascicles.job(&Arc::from(job)).await.ok();
        report.add("fascicle", head.as_ref().map_or("gone", |head| &*head.fascicle), charged);
        report.add("neuron", &step, charged);
    } else if let Some(neuron) = last("neuron:") {
        report.add("neuron", neuron, charged);
    }
    if let Some(goal) = last("goal:") {
        report.add("goal", goal, charged);
    } else if let Some(errand) = last("schedule:").or_else(|| last("errand:")) {
        report.add("goal", errand, charged);
    }
    let person = match refs.iter().find(|reference| reference.starts_with("canvas:")) {
        Some(reference) => who_wrote(store, reference).await?,
        None => asked_by.unwrap_or_else(|| entry.by.to_string()),
    };
    report.add("person", &person, charged);
    Ok(())
}

/// Returns the job and the step in `job:{job}/{step}`. A nested step contains slashes; a job's name does not.
fn innermost(job: &str, step: &str) -> (String, String) {
    match job.split_once('/') {
        Some((job, outer)) => (job.to_owned(), format!("{outer}/{step}")),
        None => (job.to_owned(), step.to_owned()),
    }
}

/// Returns the author of the canvas entry that a reference names.
async fn who_wrote(store: &Store, reference: &str) -> Result<String, StoreError> {
    let place = reference.rsplit_once('@').and_then(|(stream, rev)| Some((stream, rev.parse::<u64>().ok()?)));
    let Some((stream, rev)) = place.filter(|(_, rev)| *rev > 0) else { return Ok("unknown".into()) };
    let found = store.entries(&stream.into(), rev - 1, 1).await?;
    Ok(found.first().filter(|entry| entry.seq == rev).map_or("unknown".into(), |entry| entry.by.to_string()))
}

/// The report in the form of the API.
impl From<Spending> for Value {
    fn from(report: Spending) -> Self {
        serde_json::to_value(report).unwrap_or_default()
    }
}
