//! A job's decisions, without any I/O: news in, facts and effects out. Replaying the facts of the journal gives
//! the state a job had when the daemon stopped.
//!
//! A [`Run`] is a tree: the fascicle's graph, and within its nodes the graphs of the fascicles they run. A step is named by
//! its way through that tree. Every change of state is a [`Fact`]; what follows from a state is found by looking at it
//! until nothing follows any more.

mod fact;
mod frame;
#[cfg(test)]
mod model;
#[cfg(test)]
mod test;

use std::sync::Arc;

use neurons::neuron::{ToolCall, ToolResult};
use nexus::{Event, Timestamp};
use serde_json::{Value, json};

pub use fact::{Fact, Observed, Pause, Status, Step, Wait, ordinal};
use frame::{Doing, Frame, Slot, State, joined};

use crate::graph::{Body, Graph, Leaf, Node, Work};
use crate::observe;
use crate::part::taken;
use crate::spec::{Exhausted, OnFailure};

/// Times one try of a step may be taken up again after the daemon stopped: a step that stops it every time must not be
/// paid for at every start.
const RESTARTS_MAX: u32 = 10;
/// Bytes of an output.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Bytes of what several outputs are brought together to.
pub const JOINED_BYTES_MAX: usize = 1 << 20;
/// Marks the steps within a fall-back: they are others than those within what it replaces.
const FALL_BACK: char = '!';
/// The longest wait before a try, in milliseconds.
const BACKOFF_MS_MAX: u64 = 60_000;

/// What a job is told.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// It was accepted.
    Accepted {
        /// What it works on.
        events: Vec<Event>,
        /// When it is given up.
        deadline_at: Option<Timestamp>,
    },
    /// A try of a step has ended.
    Done {
        /// Which step.
        step: Step,
        /// Which try.
        attempt: u32,
        /// Its output.
        output: Value,
    },
    /// A try of a step has failed.
    Failed {
        /// Which step.
        step: Step,
        /// Which try.
        attempt: u32,
        /// Why.
        error: String,
        /// Whether another try may help.
        retry: bool,
    },
    /// A step needs its client's tools.
    Paused {
        /// Which step.
        step: Step,
        /// Which try.
        attempt: u32,
        /// What is to be called.
        calls: Vec<ToolCall>,
    },
    /// A wait was answered.
    Answered {
        /// Which wait.
        wait: u32,
        /// Names the answer.
        body: String,
        /// With what.
        answer: Answer,
    },
    /// The daemon stopped while whatever is under way was under way.
    Restarted,
    /// Time has passed.
    Tick,
    /// Somebody stops it.
    Cancelled,
    /// It cannot go on.
    GivenUp(String),
    /// Somebody takes it up again.
    Retried,
}

/// An answer to a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// What the tools brought.
    Results(Vec<ToolResult>),
    /// Whether it is approved.
    Approval {
        /// Yes or no.
        approved: bool,
        /// Why.
        comment: Option<String>,
        /// By whom.
        by: String,
    },
    /// An event's content.
    Event(Value),
}

/// What must be done once the facts are committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Work begins, or goes on.
    Start(Start),
    /// Whatever is under way at or below this step is no longer wanted.
    Stop(Step),
}

/// Work that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Which step.
    pub step: Step,
    /// 1 for the first try.
    pub attempt: u32,
    /// Whether this try was under way before, so that some of it may be done.
    pub again: bool,
    /// What is done.
    pub(crate) leaf: Arc<Leaf>,
    /// What the job works on.
    pub input: Vec<Event>,
    /// What it reads.
    pub events: Vec<Event>,
    /// Milliseconds to wait before.
    pub delay_ms: u64,
    /// Seconds it may take.
    pub timeout_s: Option<u64>,
}

/// What follows from news.
#[derive(Debug, Default)]
pub struct Outcome {
    /// To be committed, all together.
    pub facts: Vec<Fact>,
    /// To be done afterwards.
    pub effects: Vec<Effect>,
}

/// A wait that somebody may answer.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    step: Step,
    wait: Wait,
    /// The answer it was given.
    body: Option<String>,
}

/// What became of an answer to a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is waited for.
    Open,
    /// This very answer was given before.
    Given,
    /// Another answer was given before.
    GivenOther,
    /// It was given up.
    Over,
    /// There never was such a wait.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub struct Run {
    root: Frame,
    status: Status,
    error: Option<String>,
    observed: usize,
    /// Observed stages that have begun and not ended.
    stages: Vec<Arc<str>>,
    asked: Vec<Asked>,
    deadline_at: Option<Timestamp>,
    /// Counts failures: what was to follow before one may follow no more.
    failures: u64,
}

/// What follows from a state.
enum Move {
    Note(Fact),
    FailSlot { step: Step, error: String },
    FailNode { step: Step, error: String },
}

impl Run {
    /// A job of `graph` about which nothing is known yet.
    pub fn new(graph: Arc<Graph>) -> Self {
        Self {
            root: Frame::new(graph, Vec::new()),
            status: Status::Pending,
            error: None,
            observed: 0,
            stages: Vec::new(),
            asked: Vec::new(),
            deadline_at: None,
            failures: 0,
        }
    }

    /// The graph it runs.
    pub(crate) fn graph(&self) -> &Arc<Graph> {
        &self.root.graph
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        if self.status != Status::Running {
            return self.status;
        }
        let mut status = Status::Running;
        for (_, wait) in self.waits() {
            match wait.pause {
                Pause::Tools { .. } => return Status::WaitingForTools,
                Pause::Approval { .. } => status = Status::WaitingForApproval,
                Pause::Event { .. } => {}
            }
        }
        status
    }

    /// Why it failed.
    pub fn error(&self) -> Option<&String> {
        self.error.as_ref()
    }

    /// What it brought; null before it has.
    pub fn output(&self) -> Value {
        match self.root.nodes.get(&self.root.graph.output) {
            Some(State::Done(output)) if self.status == Status::Completed => output.clone(),
            _ => Value::Null,
        }
    }

    /// The observed stage that it is in: the last that has begun and not ended.
    pub fn current_stage(&self) -> Option<&Arc<str>> {
        self.stages.last()
    }

    /// The waits that may be answered, and their steps.
    pub fn waits(&self) -> impl Iterator<Item = (&Step, &Wait)> {
        let open = |asked: &&Asked| self.is_open(asked);
        self.asked.iter().filter(open).map(|asked| (&asked.step, &asked.wait))
    }

    fn is_open(&self, asked: &Asked) -> bool {
        let slot = self.slot(&asked.step);
        asked.body.is_none()
            && slot.is_some_and(|(_, slot, _)| matches!(slot.doing, Doing::Paused(n) if n == asked.wait.n))
    }

    /// How the wait of that number stands towards an answer.
    pub fn standing(&self, wait: u32, body: &str) -> Standing {
        match self.asked.iter().find(|asked| asked.wait.n == wait) {
            None => Standing::Unknown,
            Some(Asked { body: Some(given), .. }) if given == body => Standing::Given,
            Some(Asked { body: Some(_), .. }) => Standing::GivenOther,
            Some(asked) if !self.status.is_final() && self.is_open(asked) => Standing::Open,
            Some(_) => Standing::Over,
        }
    }

    /// The wait of that number, its step, and the try of the step that waits.
    pub(crate) fn waiting(&self, wait: u32) -> Option<(&Step, u32, &Wait, &Node)> {
        let asked = self.asked.iter().find(|asked| asked.wait.n == wait)?;
        let (node, slot, _) = self.slot(&asked.step)?;
        Some((&asked.step, slot.attempt, &asked.wait, node))
    }

    /// What a step runs.
    pub(crate) fn body(&self, step: &str) -> Option<Body> {
        let (node, slot, _) = self.slot(step)?;
        slot.body(node).cloned()
    }

    /// When it must next be told that time has passed.
    pub fn due(&self) -> Option<Timestamp> {
        self.waits().filter_map(|(_, wait)| wait.expires_at).chain(self.deadline_at).min()
    }

    /// Takes note of a fact.
    pub fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::Accepted { events, deadline_at } => {
                self.root.input.clone_from(events);
                self.deadline_at = *deadline_at;
            }
            Fact::Started { step, attempt, fall_back } => {
                self.status = Status::Running;
                self.root.start(step, *attempt, *fall_back);
            }
            Fact::Paused { step, wait } => {
                self.status = Status::Running;
                self.asked.push(Asked { step: step.clone(), wait: wait.clone(), body: None });
                self.root.change(step, |slot| slot.doing = Doing::Paused(wait.n));
            }
            Fact::Answered { wait, body } => {
                if let Some(asked) = self.asked.iter_mut().find(|asked| asked.wait.n == *wait) {
                    asked.body = Some(body.clone());
                    let step = asked.step.clone();
                    self.root.change(&step, |slot| slot.doing = Doing::Working);
                }
            }
            Fact::Done { step, output } => self.root.end(step, State::Done(output.clone())),
            Fact::Passed { step } => self.root.end(step, State::Done(Value::Null)),
            Fact::Skipped { step } => self.root.end(step, State::Skipped),
            Fact::GivenUp { step } => self.root.fail(step, true),
            Fact::Broken { step } => self.root.fail(step, false),
            Fact::Failed { step, error, .. } => self.root.change(step, |slot| {
                slot.broken = Some(error.clone());
                if !matches!(slot.doing, Doing::Inside(_)) {
                    slot.doing = Doing::Idle;
                }
            }),
            Fact::Interrupted { step } => self.root.change(step, |slot| slot.restarts += 1),
            Fact::Retried => {
                (self.status, self.error, self.deadline_at) = (Status::Running, None, None);
                self.root.mend();
            }
            Fact::Observed(observed) => {
                self.observed += 1;
                match &*observed.kind {
                    "stage_started" => self.stages.push(observed.stage.clone()),
                    "stage_completed" | "stage_failed" => self.stages.retain(|stage| *stage != observed.stage),
                    _ => {}
                }
            }
            Fact::Ended { status, error } => {
                self.status = *status;
                self.error.clone_from(error);
                self.stages.clear();
            }
        }
    }

    /// What follows from `news`. News of a job that has ended, or of a try that is not the present one, change nothing.
    pub fn on(&mut self, news: News, now: Timestamp) -> Outcome {
        let mut out = Outcome::default();
        let stale = match &news {
            News::Retried => self.status != Status::Failed,
            News::Done { step, attempt, .. }
            | News::Failed { step, attempt, .. }
            | News::Paused { step, attempt, .. } => self.status.is_final() || !self.is_working(step, *attempt),
            News::Answered { wait, body, .. } => self.standing(*wait, body) != Standing::Open,
            _ => self.status.is_final(),
        };
        if stale {
            return out;
        }
        match news {
            News::Accepted { events, deadline_at } => self.note(Fact::Accepted { events, deadline_at }, &mut out),
            News::Done { step, output, .. } => self.done(step, output, &mut out),
            News::Failed { step, error, retry, .. } => self.slot_failed(&step, error, retry, &mut out),
            News::Paused { step, calls, .. } => {
                let wait = Wait { n: self.next_wait(), pause: Pause::Tools { tool_calls: calls }, expires_at: None };
                self.note(Fact::Paused { step, wait }, &mut out);
            }
            News::Answered { wait, body, answer } => self.answered(wait, body, answer, &mut out),
            News::Restarted => self.restarted(now, &mut out),
            News::Tick => self.tick(now, &mut out),
            News::Cancelled => self.note(Fact::Ended { status: Status::Cancelled, error: None }, &mut out),
            News::GivenUp(error) => {
                self.note(Fact::Ended { status: Status::Failed, error: Some(error) }, &mut out);
            }
            News::Retried => self.note(Fact::Retried, &mut out),
        }
        self.advance(now, &mut out);
        out
    }

    fn next_wait(&self) -> u32 {
        self.asked.len() as u32 + 1
    }

    fn is_working(&self, step: &str, attempt: u32) -> bool {
        self.slot(step).is_some_and(|(_, slot, _)| slot.attempt == attempt && matches!(slot.doing, Doing::Working))
    }

    fn slot(&self, step: &str) -> Option<(&Node, &Slot, usize)> {
        let (frame, node, index) = self.root.find(step)?;
        match frame.nodes.get(node) {
            Some(State::Open(slots)) => Some((frame.graph.node(node)?, slots.get(index)?, index)),
            _ => None,
        }
    }

    /// A step has brought an output, unless that is too large to be kept.
    fn done(&mut self, step: Step, output: Value, out: &mut Outcome) {
        let leaf = self.slot(&step).is_some_and(|(node, slot, _)| {
            let several = is_node(&step) && node.has_several_slots();
            !(several || matches!(slot.doing, Doing::Inside(_)))
        });
        let max = if leaf { OUTPUT_BYTES_MAX } else { JOINED_BYTES_MAX };
        let bytes = bytes_of(&output);
        if bytes <= max {
            return self.note(Fact::Done { step, output }, out);
        }
        let error = format!("its output has {bytes} bytes, the bound is {max}");
        match self.slot(&step) {
            Some((node, ..)) if !(is_node(&step) && node.has_several_slots()) => {
                self.slot_failed(&step, error, false, out);
            }
            _ => self.node_failed(&step, error, out),
        }
    }

    fn answered(&mut self, wait: u32, body: String, answer: Answer, out: &mut Outcome) {
        let Some((step, attempt, ..)) = self.waiting(wait) else { return };
        let (step, attempt) = (step.clone(), attempt);
        self.note(Fact::Answered { wait, body }, out);
        match answer {
            Answer::Approval { approved: true, comment, by } => {
                self.note(Fact::Done { step, output: json!({"approved": true, "comment": comment, "by": by}) }, out);
            }
            Answer::Approval { approved: false, comment, by } => {
                let why = comment.map(|comment| format!(": {comment}")).unwrap_or_default();
                self.slot_failed(&step, format!("{by} did not approve{why}"), false, out);
            }
            Answer::Event(content) => self.done(step, content, out),
            Answer::Results(results) => {
                let of_tool = self
                    .slot(&step)
                    .and_then(|(node, slot, _)| slot.body(node))
                    .is_some_and(|body| matches!(body, Body::Leaf(leaf) if matches!(**leaf, Leaf::Tool { .. })));
                match results.into_iter().next().filter(|_| of_tool) {
                    // The neuron thinks on.
                    None => self.start(&step, attempt, true, 0, out),
                    Some(ToolResult { result: Some(text), .. }) => {
                        let output = serde_json::from_str(&text).unwrap_or(Value::String(text));
                        self.done(step, output, out);
                    }
                    Some(ToolResult { error, .. }) => self.slot_failed(&step, error.unwrap_or_default(), false, out),
                }
            }
        }
    }

    fn restarted(&mut self, now: Timestamp, out: &mut Outcome) {
        let attempt_of = |run: &Self, step: &Step| run.slot(step).map(|(_, slot, _)| slot.attempt);
        let interrupted: Vec<_> = self.under_way().into_iter().map(|step| (attempt_of(self, &step), step)).collect();
        // What is overdue is not begun again, and what follows from that has begun already.
        self.tick(now, out);
        for (before, step) in interrupted {
            if self.status.is_final() {
                return;
            }
            let attempt = attempt_of(self, &step);
            if attempt != before || !attempt.is_some_and(|attempt| self.is_working(&step, attempt)) {
                continue;
            }
            self.note(Fact::Interrupted { step: step.clone() }, out);
            let Some((_, slot, _)) = self.slot(&step) else { continue };
            let (attempt, restarts) = (slot.attempt, slot.restarts);
            if restarts > RESTARTS_MAX {
                self.slot_failed(&step, "the daemon stopped each time this was tried".into(), false, out);
            } else {
                self.start(&step, attempt, true, 0, out);
            }
        }
    }

    fn tick(&mut self, now: Timestamp, out: &mut Outcome) {
        if self.deadline_at.is_some_and(|at| at <= now) {
            let error = Some("it did not end within its deadline".to_owned());
            return self.note(Fact::Ended { status: Status::Failed, error }, out);
        }
        let late = |wait: &Wait| wait.expires_at.is_some_and(|at| at <= now);
        let late: Vec<Step> = self.waits().filter(|(_, wait)| late(wait)).map(|(step, _)| step.clone()).collect();
        for step in late {
            // What failed before it may have taken it along.
            if self.slot(&step).is_some_and(|(_, slot, _)| matches!(slot.doing, Doing::Paused(_))) {
                self.slot_failed(&step, "nobody answered in time".into(), false, out);
            }
        }
    }

    /// The work that was announced and has not ended.
    pub fn under_way(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.root.under_way("", &mut steps);
        steps
    }

    /// A try of a step has failed: another try, the fall-back, or its node has failed.
    fn slot_failed(&mut self, step: &Step, error: String, retry: bool, out: &mut Outcome) {
        if self.status.is_final() {
            return;
        }
        self.failures += 1;
        self.note(Fact::Failed { step: step.clone(), error: error.clone(), retry }, out);
        let Some((node, slot, _)) = self.slot(step) else { return self.node_failed(&node_of(step), error, out) };
        let (attempt, fall_back, tries) = (slot.attempt, slot.fall_back, node.spec.retry);
        let of_map = matches!(node.work, Work::Map { .. });
        let goes_on = of_map && node.spec.on_failure == OnFailure::Continue;
        if retry && attempt < tries.times {
            let delay = tries.backoff_ms.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(BACKOFF_MS_MAX);
            self.note(Fact::Started { step: step.clone(), attempt: attempt + 1, fall_back }, out);
            return self.start(step, attempt + 1, false, delay, out);
        }
        if node.fall_back.is_some() && !fall_back {
            out.effects.push(Effect::Stop(step.clone()));
            self.note(Fact::Started { step: step.clone(), attempt: attempt + 1, fall_back: true }, out);
            return self.start(step, attempt + 1, false, 0, out);
        }
        if goes_on {
            // One item of a map goes on as null.
            out.effects.push(Effect::Stop(step.clone()));
            self.observe_failure(&node_of(step), &error, out);
            return self.note(Fact::Passed { step: step.clone() }, out);
        }
        let error = if of_map { format!("{}: {error}", name_of(step)) } else { error };
        self.node_failed(&node_of(step), error, out);
    }

    /// A node has failed for good: what it says of that follows.
    fn node_failed(&mut self, step: &Step, error: String, out: &mut Outcome) {
        if self.status.is_final() {
            return;
        }
        self.failures += 1;
        let Some((frame, node, _)) = self.root.find(step) else { return };
        let policy = frame.graph.node(node).map(|node| node.spec.on_failure.clone()).unwrap_or_default();
        out.effects.push(Effect::Stop(step.clone()));
        self.observe_failure(step, &error, out);
        match policy {
            OnFailure::Continue => self.note(Fact::Passed { step: step.clone() }, out),
            OnFailure::FailBranch => self.note(Fact::GivenUp { step: step.clone() }, out),
            OnFailure::FailJob | OnFailure::FallBack(_) => {
                self.note(Fact::Broken { step: step.clone() }, out);
                let error = match error.split_once(": ") {
                    Some((slot, _)) if slot.starts_with(&format!("{}[", name_of(step))) => error,
                    _ => format!("{}: {error}", name_of(step)),
                };
                match parent_of(step) {
                    Some(parent) => {
                        out.effects.push(Effect::Stop(parent.clone()));
                        self.slot_failed(&parent, error, false, out);
                    }
                    None => self.note(Fact::Ended { status: Status::Failed, error: Some(error) }, out),
                }
            }
        }
    }

    /// Takes note of a fact, and of what the world is told about it.
    fn note(&mut self, fact: Fact, out: &mut Outcome) {
        self.apply(&fact);
        out.facts.push(fact.clone());
        match &fact {
            Fact::Started { step, attempt: 1, .. } if is_node(step) => {
                self.observe(step, "stage_started", &Value::Null, out);
            }
            Fact::Done { step, output } if is_node(step) => {
                if self.is_instant(step) {
                    self.observe(step, "stage_started", &Value::Null, out);
                }
                self.observe(step, "info", output, out);
                self.observe(step, "stage_completed", output, out);
            }
            _ => {}
        }
    }

    /// Whether a node ends without having been started.
    fn is_instant(&self, step: &str) -> bool {
        let node = self.root.find(step).and_then(|(frame, node, _)| frame.graph.node(node));
        node.is_some_and(|node| matches!(node.work, Work::Join(_) | Work::Branch { .. }))
    }

    fn observe(&mut self, step: &Step, kind: &str, output: &Value, out: &mut Outcome) {
        let Some((frame, node, _)) = self.root.find(step) else { return };
        let Some(node) = frame.graph.node(node) else { return };
        let Some(observe) = &node.spec.observe else { return };
        let template = match kind {
            "stage_started" => &observe.start,
            "info" => &observe.info,
            "stage_completed" => &observe.end,
            _ => &observe.fail,
        };
        let Some(template) = template else { return };
        let metadata = if kind == "stage_completed" { observe::metadata(observe, output) } else { Default::default() };
        let observed = Observed {
            id: format!("evt_{:03}", self.observed + 1),
            stage: observe.stage.as_deref().map_or_else(|| node.spec.id.clone(), Arc::from),
            kind: kind.into(),
            message: observe::message(template, output),
            metadata,
        };
        let fact = Fact::Observed(observed);
        self.apply(&fact);
        out.facts.push(fact);
    }

    fn observe_failure(&mut self, node: &Step, error: &str, out: &mut Outcome) {
        self.observe(node, "stage_failed", &json!({"error": error}), out);
    }

    /// The effect that begins a step's work, if it is work of its own.
    fn start(&mut self, step: &Step, attempt: u32, again: bool, delay_ms: u64, out: &mut Outcome) {
        let Some((frame, id, index)) = self.root.find(step) else { return };
        let (Some(node), Some((_, slot, _))) = (frame.graph.node(id), self.slot(step)) else { return };
        let (Doing::Working, Some(Body::Leaf(leaf))) = (&slot.doing, slot.body(node)) else { return };
        match frame.reads_at(node, index) {
            Ok(events) => out.effects.push(Effect::Start(Start {
                step: step.clone(),
                attempt,
                again,
                leaf: leaf.clone(),
                input: self.root.input.clone(),
                events,
                delay_ms,
                timeout_s: node.spec.timeout_s,
            })),
            Err(error) => self.node_failed(&node_of(step), error, out),
        }
    }

    /// Looks at the state, and does what follows, until nothing does.
    fn advance(&mut self, now: Timestamp, out: &mut Outcome) {
        while !self.status.is_final() {
            let mut moves = Vec::new();
            self.root.moves("", self.next_wait(), now, &mut moves);
            if moves.is_empty() {
                let Some(came_to) = self.root.came_to() else { return };
                let (status, error) = match came_to {
                    Ok(_) => (Status::Completed, None),
                    Err(error) => (Status::Failed, Some(error)),
                };
                return self.note(Fact::Ended { status, error }, out);
            }
            let failures = self.failures;
            for next in moves {
                if self.failures != failures {
                    break;
                }
                match next {
                    Move::FailSlot { step, error } => self.slot_failed(&step, error, false, out),
                    Move::FailNode { step, error } => self.node_failed(&step, error, out),
                    Move::Note(Fact::Done { step, output }) => self.done(step, output, out),
                    Move::Note(fact) => {
                        let started = match &fact {
                            Fact::Started { step, attempt, .. } => Some((step.clone(), *attempt)),
                            _ => None,
                        };
                        self.note(fact, out);
                        if let Some((step, attempt)) = started {
                            self.start(&step, attempt, false, 0, out);
                        }
                    }
                }
            }
        }
    }
}

impl Frame {
    /// The frame, node and slot that a step names.
    fn find<'s>(&self, step: &'s str) -> Option<(&Frame, &'s str, usize)> {
        let mut frame = self;
        let mut segments = step.split('/').peekable();
        loop {
            let (node, index, fall_back) = segment(segments.next()?);
            if segments.peek().is_none() {
                return Some((frame, node, index));
            }
            let State::Open(slots) = frame.nodes.get(node)? else { return None };
            match slots.get(index).filter(|slot| slot.fall_back == fall_back).map(|slot| &slot.doing) {
                Some(Doing::Inside(inner)) => frame = inner,
                _ => return None,
            }
        }
    }

    fn find_mut<'s>(&mut self, step: &'s str) -> Option<(&mut Frame, &'s str, usize)> {
        let mut frame = self;
        let mut segments = step.split('/').peekable();
        loop {
            let (node, index, fall_back) = segment(segments.next()?);
            if segments.peek().is_none() {
                return Some((frame, node, index));
            }
            let State::Open(slots) = frame.nodes.get_mut(node)? else { return None };
            match slots.get_mut(index).filter(|slot| slot.fall_back == fall_back).map(|slot| &mut slot.doing) {
                Some(Doing::Inside(inner)) => frame = inner,
                _ => return None,
            }
        }
    }

    fn change(&mut self, step: &str, change: impl FnOnce(&mut Slot)) {
        if let Some((frame, node, index)) = self.find_mut(step)
            && let Some(State::Open(slots)) = frame.nodes.get_mut(node)
            && let Some(slot) = slots.get_mut(index)
        {
            change(slot);
        }
    }

    /// A node or a slot has ended.
    fn end(&mut self, step: &str, state: State) {
        let of_slot = !is_node(step);
        let Some((frame, node, index)) = self.find_mut(step) else { return };
        let Some(known) = frame.nodes.get_mut(node) else { return };
        match (known, state) {
            (State::Open(slots), State::Done(output)) if of_slot => {
                if let Some(slot) = slots.get_mut(index) {
                    slot.bytes = bytes_of(&output);
                    (slot.doing, slot.broken) = (Doing::Done(output), None);
                }
            }
            (known, state) if !of_slot => *known = state,
            _ => {}
        }
    }

    /// A node has failed; what is done of it is kept, should it be taken up again.
    fn fail(&mut self, step: &str, given_up: bool) {
        let Some((frame, node, _)) = self.find_mut(step) else { return };
        let Some(known) = frame.nodes.get_mut(node) else { return };
        let slots = match known {
            State::Open(slots) => std::mem::take(slots),
            _ => Vec::new(),
        };
        *known = State::Failed { slots, given_up };
    }

    fn start(&mut self, step: &str, attempt: u32, fall_back: bool) {
        let of_node = is_node(step);
        let Some((frame, id, index)) = self.find_mut(step) else { return };
        let graph = frame.graph.clone();
        let Some(node) = graph.node(id) else { return };
        let opened = matches!(frame.nodes.get(id), Some(State::Open(_)));
        if of_node && !opened {
            let slots = frame.slots(node).unwrap_or(0);
            let slots = std::iter::repeat_with(Slot::default).take(slots).collect();
            frame.nodes.insert(node.spec.id.clone(), State::Open(slots));
            // What has several slots starts them one by one, and a wait begins by being asked.
            if !matches!(node.work, Work::One(_)) {
                return;
            }
        }
        let events = frame.reads_at(node, index).unwrap_or_default();
        let Some(State::Open(slots)) = frame.nodes.get_mut(id) else { return };
        if index >= slots.len() {
            slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut slots[index];
        (slot.attempt, slot.fall_back, slot.restarts, slot.broken) = (attempt, fall_back, 0, None);
        slot.doing = match slot.body(node) {
            Some(Body::Fascicle(inner)) => Doing::Inside(Box::new(Frame::new(inner.clone(), events))),
            _ => Doing::Working,
        };
    }

    /// What broke may be tried again.
    fn mend(&mut self) {
        let graph = self.graph.clone();
        for (id, state) in &mut self.nodes {
            match state {
                // Whether enough edges fire is seen again.
                State::Skipped => *state = State::Waiting,
                State::Failed { slots, .. } if slots.is_empty() => *state = State::Waiting,
                State::Failed { slots, .. } => *state = State::Open(std::mem::take(slots)),
                _ => {}
            }
            let State::Open(slots) = state else { continue };
            let asks = graph.node(id).is_some_and(|node| matches!(node.work, Work::Wait(..) | Work::Approve(_)));
            for slot in slots {
                slot.broken = None;
                match &mut slot.doing {
                    Doing::Inside(inner) => inner.mend(),
                    doing @ Doing::Working => *doing = Doing::Idle,
                    // It may have been given up meanwhile, and is asked anew.
                    doing @ Doing::Paused(_) if asks && !slot.fall_back => *doing = Doing::Idle,
                    _ => {}
                }
            }
        }
    }

    fn under_way(&self, prefix: &str, steps: &mut Vec<Step>) {
        for (id, state) in &self.nodes {
            let State::Open(slots) = state else { continue };
            let several = self.graph.node(id).is_some_and(Node::has_several_slots);
            for (index, slot) in slots.iter().enumerate() {
                let step = if several { format!("{prefix}{id}[{index}]") } else { format!("{prefix}{id}") };
                match &slot.doing {
                    Doing::Working => steps.push(step.into()),
                    Doing::Inside(inner) if slot.broken.is_none() => inner.under_way(&slot.within(&step), steps),
                    _ => {}
                }
            }
        }
    }

    /// What follows from the state as it is.
    fn moves(&self, prefix: &str, wait: u32, now: Timestamp, moves: &mut Vec<Move>) {
        for (id, state) in &self.nodes {
            let Some(node) = self.graph.node(id) else { continue };
            let step: Step = format!("{prefix}{id}").into();
            match state {
                State::Waiting => match self.runs(node) {
                    None => {}
                    Some(false) => moves.push(Move::Note(Fact::Skipped { step })),
                    Some(true) => self.opening(node, step, moves),
                },
                State::Open(slots) => self.going_on(node, &step, slots, wait, now, moves),
                State::Skipped | State::Done(_) | State::Failed { .. } => {}
            }
        }
    }

    fn opening(&self, node: &Node, step: Step, moves: &mut Vec<Move>) {
        let started = Fact::Started { step: step.clone(), attempt: 1, fall_back: false };
        let nothing = |events: &[Event]| node.spec.needs_events && events.is_empty();
        let checked = |events: Vec<Event>| match nothing(&events) {
            true => Ok(events),
            false => self.slots(node).map(|_| events),
        };
        let events = match self.reads(node).and_then(checked) {
            Ok(events) => events,
            Err(error) => return moves.push(Move::FailNode { step, error }),
        };
        moves.push(Move::Note(match &node.work {
            _ if nothing(&events) => Fact::Passed { step },
            Work::Join(into) => Fact::Done { step, output: joined(*into, &events) },
            Work::Branch { cases, otherwise } => {
                let fits = |(_, which, is): &&(_, _, crate::part::Test)| {
                    taken(&events, which).is_some_and(|part| is.holds(part))
                };
                let route = cases.iter().find(fits).map(|(route, ..)| route).or(otherwise.as_ref());
                let sent = route.map(|route| json!({"neuron": route, "events": events}));
                Fact::Done { step, output: sent.into_iter().collect() }
            }
            _ => started,
        }));
    }

    fn going_on(&self, node: &Node, step: &Step, slots: &[Slot], wait: u32, now: Timestamp, moves: &mut Vec<Move>) {
        let several = node.has_several_slots();
        let named = |index: usize| -> Step { if several { format!("{step}[{index}]").into() } else { step.clone() } };
        let room = match &node.work {
            Work::Map { parallel, .. } => *parallel,
            _ => 1,
        };
        let mut under_way = slots.iter().filter(|slot| slot.is_under_way()).count();
        for (index, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.broken.is_none()) {
            match &slot.doing {
                Doing::Idle if under_way < room => {
                    under_way += 1;
                    let ask = match asked(node, self, wait, now).filter(|_| !slot.fall_back) {
                        Some(Err(error)) => {
                            moves.push(Move::FailSlot { step: named(index), error });
                            continue;
                        }
                        ask => ask.and_then(Result::ok),
                    };
                    moves.push(match ask {
                        // The number is only free for the first of several; the next look brings the others.
                        Some(_) if moves.iter().any(|next| matches!(next, Move::Note(Fact::Paused { .. }))) => continue,
                        Some(wait) => Move::Note(Fact::Paused { step: named(index), wait }),
                        None => {
                            let (attempt, fall_back) = (slot.attempt + 1, slot.fall_back);
                            Move::Note(Fact::Started { step: named(index), attempt, fall_back })
                        }
                    });
                }
                Doing::Inside(inner) => {
                    let before = moves.len();
                    inner.moves(&slot.within(&named(index)), wait, now, moves);
                    match inner.came_to().filter(|_| moves.len() == before) {
                        None => {}
                        Some(Ok(output)) => moves.push(Move::Note(Fact::Done { step: named(index), output })),
                        Some(Err(error)) => moves.push(Move::FailSlot { step: named(index), error }),
                    }
                }
                _ => {}
            }
        }
        match &node.work {
            Work::Map { .. } => {
                let bytes: usize = slots.iter().map(|slot| slot.bytes).sum();
                let outputs = slots.iter().filter_map(|slot| match &slot.doing {
                    Doing::Done(output) => Some(output),
                    _ => None,
                });
                if bytes > JOINED_BYTES_MAX {
                    let error = format!("its outputs have {bytes} bytes, the bound is {JOINED_BYTES_MAX}");
                    moves.push(Move::FailNode { step: step.clone(), error });
                } else if outputs.clone().count() == slots.len() {
                    let output = outputs.cloned().collect();
                    moves.push(Move::Note(Fact::Done { step: step.clone(), output }));
                }
            }
            Work::Repeat { times, until, exhausted, .. } => {
                let Some(Slot { doing: Doing::Done(output), fall_back, .. }) = slots.last() else { return };
                // A fall-back stands for the whole node.
                let (good, last) = (*fall_back || until.holds(output), slots.len() >= *times as usize);
                moves.push(if good || (last && *exhausted == Exhausted::Accept) {
                    Move::Note(Fact::Done { step: step.clone(), output: output.clone() })
                } else if last && node.fall_back.is_some() {
                    Move::Note(Fact::Started { step: named(slots.len()), attempt: 1, fall_back: true })
                } else if last {
                    let error = format!("no round of {times} was good");
                    Move::FailNode { step: step.clone(), error }
                } else {
                    Move::Note(Fact::Started { step: named(slots.len()), attempt: 1, fall_back: false })
                });
            }
            _ => {}
        }
    }
}

/// What a waiting node asks for; `Err` when it is too much to be looked at.
fn asked(node: &Node, frame: &Frame, n: u32, now: Timestamp) -> Option<Result<Wait, String>> {
    let (pause, timeout_s) = match &node.work {
        Work::Wait(wait, _) => (Pause::Event { event: wait.event.clone() }, wait.timeout_s),
        Work::Approve(approve) => {
            let events = frame.reads(node).unwrap_or_default();
            let bytes = serde_json::to_vec(&events).map_or(0, |text| text.len());
            if bytes > OUTPUT_BYTES_MAX {
                return Some(Err(format!("what is to be approved has {bytes} bytes, the bound is {OUTPUT_BYTES_MAX}")));
            }
            (Pause::Approval { message: approve.message.clone(), events }, approve.timeout_s)
        }
        _ => return None,
    };
    let expires_at = timeout_s.map(|seconds| now + jiff::SignedDuration::from_secs(seconds as i64));
    Some(Ok(Wait { n, pause, expires_at }))
}

/// Bytes of a value as it is kept.
pub(crate) fn bytes_of(output: &Value) -> usize {
    serde_json::to_vec(output).map_or(0, |text| text.len())
}

impl Slot {
    /// How the steps within it begin.
    fn within(&self, step: &str) -> String {
        if self.fall_back { format!("{step}{FALL_BACK}/") } else { format!("{step}/") }
    }
}

impl Node {
    /// Whether its slots are named one by one.
    fn has_several_slots(&self) -> bool {
        matches!(self.work, Work::Map { .. } | Work::Repeat { .. })
    }
}

/// A step's segment: the node, which of its slots, and whether it is within its fall-back.
fn segment(text: &str) -> (&str, usize, bool) {
    let (text, fall_back) = text.strip_suffix(FALL_BACK).map_or((text, false), |text| (text, true));
    let (node, index) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((node, index)) => (node, index.parse().unwrap_or(usize::MAX)),
        None => (text, 0),
    };
    (node, index, fall_back)
}

/// Whether a step is a whole node.
fn is_node(step: &str) -> bool {
    !step.ends_with(']')
}

/// The step of the node that a slot belongs to.
fn node_of(step: &Step) -> Step {
    match step.strip_suffix(']').and_then(|slot| slot.rsplit_once('[')) {
        Some((node, _)) => node.into(),
        None => step.clone(),
    }
}

/// The step within whose graph a step stands.
fn parent_of(step: &str) -> Option<Step> {
    step.rsplit_once('/').map(|(parent, _)| parent.strip_suffix(FALL_BACK).unwrap_or(parent).into())
}

/// The last segment.
fn name_of(step: &str) -> &str {
    step.rsplit_once('/').map_or(step, |(_, name)| name)
}
