//! The causes and effects of an entry. Each journal entry names its causes, nearest last. A walk back reads the entries
//! that an entry names. A walk forward reads the later entries and selects those that name the entry.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fascicles::run::Fact;
use neurons::llm::paid::calls_stream;
use serde_json::{Value, json};
use store::{Entry, Store, StoreError, Stream, Timestamp};

/// The maximum number of entries that a walk returns per direction.
const STEPS_MAX: usize = 200;
/// The maximum number of entries of one job that an exporter receives.
const KEPT_MAX: usize = 10_000;
/// The maximum number of entries of one stream that a walk forward reads.
const LOOKED_AT_MAX: usize = 5_000;
/// The maximum number of jobs whose journals a walk forward reads.
const JOBS_MAX: usize = 32;
/// The maximum length of a text within an entry that a walk shows, in characters.
const TEXT_CHARS: usize = 400;

/// An entry of a walk.
#[derive(Clone, Debug)]
pub struct Step {
    /// The reference of the entry, `{stream}@{number}`.
    pub reference: Arc<str>,
    /// The entry.
    pub entry: Entry,
}

/// The causes and effects of an entry.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The entry.
    pub from: Step,
    /// The causes, nearest first.
    pub back: Vec<Step>,
    /// The references to entries that do not exist, for example a request, or an entry before a cut of the log.
    pub roots: Vec<Arc<str>>,
    /// The effects, in chronological order.
    pub forward: Vec<Step>,
    /// `true` if the walk reached a limit and there may be more entries.
    pub more: bool,
}

impl Step {
    fn at(stream: &str, entry: Entry) -> Self {
        Self { reference: format!("{stream}@{}", entry.seq).into(), entry }
    }

    fn stream(&self) -> &str {
        self.reference.rsplit_once('@').map_or(&self.reference, |(stream, _)| stream)
    }

    /// Returns the step for the API. Long texts are cut. Without the right to prompts and minds, a reader sees only the
    /// cost of a call, the status of a job, and the fact that a mind was written to.
    pub fn to_json(&self, prompts: bool) -> Value {
        let mut shown = self.entry.to_json();
        shown["ref"] = json!(self.reference);
        let is_call = self.reference.starts_with("calls:") || self.reference.starts_with("invocation:");
        if self.reference.starts_with("nexus:") && !prompts {
            shown["data"] = Value::Null;
        }
        if self.reference.starts_with("job:") && !prompts {
            let kept = ["fact", "step", "attempt", "status", "error", "id", "stage", "type", "message"];
            let data = shown["data"].as_object().cloned().unwrap_or_default();
            shown["data"] = data.into_iter().filter(|(member, _)| kept.contains(&member.as_str())).collect();
        }
        if is_call && !prompts {
            let kept = ["call", "model", "charged", "usage", "error"];
            let data = shown["data"].as_object().cloned().unwrap_or_default();
            shown["data"] = data.into_iter().filter(|(member, _)| kept.contains(&member.as_str())).collect();
        }
        cut(&mut shown["data"]);
        shown
    }
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().count() > TEXT_CHARS => {
            *text = text.chars().take(TEXT_CHARS).chain(['…']).collect();
        }
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(members) => members.values_mut().for_each(cut),
        _ => {}
    }
}

/// Returns `true` if a stream belongs to `lifeform`.
fn is_of(lifeform: &str, stream: &str) -> bool {
    let Some((kind, rest)) = stream.split_once(':') else { return false };
    match kind {
        "calls" | "ledger" | "trace" | "nexus" => rest == lifeform,
        // All readers may read canvases. The name of a job starts with its lifeform.
        "canvas" => true,
        "job" | "invocation" => rest.strip_prefix(lifeform).is_some_and(|rest| rest.starts_with('.')),
        _ => false,
    }
}

/// Returns the entry with a reference: `{stream}@{number}`, `job:{job}` or `job:{job}/{step}`.
async fn resolve(store: &Store, lifeform: &str, reference: &str) -> Result<Option<Step>, StoreError> {
    if let Some((stream, number)) = reference.rsplit_once('@')
        && let Ok(number @ 1..) = number.parse::<u64>()
    {
        if !is_of(lifeform, stream) {
            return Ok(None);
        }
        let found = store.entries(&stream.into(), number - 1, 1).await?;
        let entry = found.into_iter().next().filter(|entry| entry.seq == number);
        return Ok(entry.map(|entry| Step::at(stream, entry)));
    }
    let Some(rest) = reference.strip_prefix("job:") else { return Ok(None) };
    let (job, step) = rest.split_once('/').map_or((rest, None), |(job, step)| (job, Some(step)));
    let stream: Stream = format!("job:{job}").into();
    if !is_of(lifeform, &stream) {
        return Ok(None);
    }
    let entries = store.entries(&stream, 0, usize::MAX).await?;
    let is_it = |entry: &Entry| match (step, entry.decode::<Fact>()) {
        (None, _) => true,
        (Some(step), Ok(Fact::Started { step: started, .. })) => *started == *step,
        _ => false,
    };
    Ok(entries.into_iter().find(is_it).map(|entry| Step::at(&stream, entry)))
}

/// Walks from `reference`, back to the roots and forward to the effects. `canvases` are the journals of the lifeform's
/// canvases. Returns `None` if the lifeform has no such entry.
///
/// # Errors
/// A store error.
pub(crate) async fn walk(
    store: &Store,
    lifeform: &str,
    canvases: &[Stream],
    reference: &str,
) -> Result<Option<Walk>, StoreError> {
    let Some(from) = resolve(store, lifeform, reference).await? else { return Ok(None) };
    let (back, roots, cut_back) = walk_back(store, lifeform, &from).await?;
    let (mut forward, cut_forward) = walk_forward(store, lifeform, canvases, reference, &from).await?;
    let more = cut_back || cut_forward || forward.len() > STEPS_MAX;
    forward.truncate(STEPS_MAX);
    Ok(Some(Walk { from, back, roots, forward, more }))
}

/// Returns the effects of `reference`, without causes; `None` if the lifeform has no such entry.
///
/// # Errors
/// A store error.
pub(crate) async fn effects(
    store: &Store,
    lifeform: &str,
    canvases: &[Stream],
    reference: &str,
) -> Result<Option<Walk>, StoreError> {
    let Some(from) = resolve(store, lifeform, reference).await? else { return Ok(None) };
    let (mut forward, cut) = walk_forward(store, lifeform, canvases, reference, &from).await?;
    let more = cut || forward.len() > KEPT_MAX;
    forward.truncate(KEPT_MAX);
    Ok(Some(Walk { from, back: Vec::new(), roots: Vec::new(), forward, more }))
}

async fn walk_back(store: &Store, lifeform: &str, from: &Step) -> Result<(Vec<Step>, Vec<Arc<str>>, bool), StoreError> {
    let nearest_first = |entry: &Entry| entry.cause.0.iter().rev().cloned().collect::<Vec<Arc<str>>>();
    let mut asked: VecDeque<Arc<str>> = nearest_first(&from.entry).into();
    let mut seen: BTreeSet<Arc<str>> = asked.iter().cloned().collect();
    seen.insert(from.reference.clone());
    let (mut back, mut roots) = (Vec::new(), Vec::new());
    while let Some(reference) = asked.pop_front() {
        if back.len() == STEPS_MAX {
            return Ok((back, roots, true));
        }
        match resolve(store, lifeform, &reference).await? {
            Some(step) if step.reference == from.reference => {}
            Some(step) => {
                seen.insert(step.reference.clone());
                asked.extend(nearest_first(&step.entry).into_iter().filter(|cause| seen.insert(cause.clone())));
                back.push(step);
            }
            None => roots.push(reference),
        }
    }
    Ok((back, roots, false))
}

async fn walk_forward(
    store: &Store,
    lifeform: &str,
    canvases: &[Stream],
    reference: &str,
    from: &Step,
) -> Result<(Vec<Step>, bool), StoreError> {
    let mut streams: VecDeque<Stream> = canvases.iter().cloned().collect();
    let own = ["ledger", "trace", "nexus"].map(|kind| format!("{kind}:{lifeform}").into());
    streams.extend(own.into_iter().chain([calls_stream(lifeform)]));
    if from.stream().starts_with("job:") {
        streams.push_back(from.stream().into());
    }
    let mut known: BTreeSet<Stream> = streams.iter().cloned().collect();
    let (mut forward, mut more, mut jobs) = (Vec::new(), false, 0);
    while let Some(stream) = streams.pop_front() {
        let mut after = before(store, &stream, from.entry.at).await?;
        let mut looked_at = 0;
        loop {
            let page = store.entries(&stream, after, usize::MAX).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            looked_at += page.len();
            for entry in page {
                let names_it = entry.cause.0.iter().position(|cause| names(cause, reference, &from.reference));
                let is_earlier = *stream == *from.stream() && entry.seq <= from.entry.seq;
                let is_rest_of_job = stream.starts_with("job:") && *stream == *from.stream();
                if is_earlier || (names_it.is_none() && !is_rest_of_job) {
                    continue;
                }
                // The journal of an intermediate job also contains effects.
                let through = entry.cause.0.iter().skip(names_it.map_or(0, |place| place + 1));
                for job in through.filter_map(|cause| cause.strip_prefix("job:")) {
                    let job: Stream = format!("job:{}", job.split('/').next().unwrap_or(job)).into();
                    if jobs < JOBS_MAX && known.insert(job.clone()) {
                        jobs += 1;
                        streams.push_back(job);
                    }
                }
                forward.push(Step::at(&stream, entry));
            }
            if looked_at >= LOOKED_AT_MAX {
                more = true;
                break;
            }
        }
    }
    forward.sort_by(|a, b| (a.entry.at, &a.reference).cmp(&(b.entry.at, &b.reference)));
    Ok((forward, more))
}

/// Returns `true` if a cause names the entry: as requested, by its own name, or as a step of the job.
fn names(cause: &str, asked: &str, entry: &str) -> bool {
    let is_step = |of: &str| of.starts_with("job:") && cause.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
    cause == asked || cause == entry || is_step(asked)
}

/// The number of entries at the end of a stream that the first search step covers.
const LATELY: u64 = 32;

/// Returns the number of the last entry of a stream that was written before `at`.
async fn before(store: &Store, stream: &Stream, at: Timestamp) -> Result<u64, StoreError> {
    let (mut low, mut high) = (0, store.head(stream).await?);
    // Most requests concern recent entries, so the search starts at the end with growing steps.
    let mut back = LATELY;
    while back < high {
        match store.entries(stream, high - back, 1).await?.first() {
            Some(entry) if entry.at < at => {
                low = entry.seq;
                break;
            }
            Some(_) => (high, back) = (high - back, back.saturating_mul(4)),
            None => break,
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match store.entries(stream, middle, 1).await?.first() {
            Some(entry) if entry.at < at => low = entry.seq,
            Some(_) => high = middle,
            None => break,
        }
    }
    Ok(low)
}

/// Returns the concepts that a job recalled.
///
/// # Errors
/// A store error.
pub(crate) async fn recalled_by(store: &Store, job: &str) -> Result<BTreeSet<String>, StoreError> {
    let mut recalled = BTreeSet::new();
    for entry in store.entries(&format!("job:{job}").into(), 0, usize::MAX).await? {
        if let Ok(Fact::Done { output, .. }) = entry.decode::<Fact>() {
            let events = output["events"].as_array().into_iter().flatten();
            let ids = events.filter_map(|event| event["metadata"]["rests_on"].as_array()).flatten();
            recalled.extend(ids.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    Ok(recalled)
}

/// Returns the KIP commands of an answer's job with their parameters, as they were run.
///
/// # Errors
/// A store error.
pub(crate) async fn kip_of(store: &Store, job: &str) -> Result<Vec<Value>, StoreError> {
    let mut commands = Vec::new();
    for entry in store.entries(&format!("job:{job}").into(), 0, usize::MAX).await? {
        if let Ok(Fact::Done { output, .. }) = entry.decode::<Fact>() {
            commands.extend(output["kip"].as_array().into_iter().flatten().cloned());
        }
    }
    Ok(commands)
}
