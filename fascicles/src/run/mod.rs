//! The decisions of a job, without I/O: inputs in, facts and effects out. Replaying the facts of the journal restores
//! the state of a job after a restart.
//!
//! A [`Run`] is a tree: the graph of the fascicle, and within its nodes the graphs of nested fascicles. A step is named
//! by its path in this tree. Every change of state is a [`Fact`]. The run derives transitions from the state until no
//! further transition follows.

mod fact;
mod frame;
mod input;
#[cfg(test)]
mod model;
mod outcomes;
mod step;
mod taint;
#[cfg(test)]
mod test;
mod transitions;
mod tree;
mod waits;

use std::sync::Arc;

use serde_json::Value;
use store::Timestamp;

pub use fact::{Fact, Observed, Pause, Status, Step, Wait, ordinal};
use frame::{Frame, Slot, SlotState, State};
pub use input::{Answer, Effect, Outcome, RunInput, Start, WaitState};
use step::node_of;
pub use taint::Taint;
use transitions::Move;

use crate::graph::{Action, Body, Graph, Node, Work};

/// The maximum number of restarts of one try of a step after a daemon stop. A step that crashes the daemon every time
/// must not be paid for at every start.
const RESTARTS_MAX: u32 = 10;
/// The maximum size of an output, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// The maximum size of joined outputs, in bytes.
pub const JOINED_BYTES_MAX: usize = 1 << 20;
/// The maximum backoff before a try, in milliseconds.
const BACKOFF_MS_MAX: u64 = 60_000;

/// A wait that was opened.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    step: Step,
    wait: Wait,
    /// The digest of the answer; `None` while the wait is open.
    body: Option<String>,
}

/// The state of a job: see the module.
#[derive(Debug)]
pub struct Run {
    root: Frame,
    status: Status,
    error: Option<String>,
    observed: usize,
    /// The observed stages that have started and not ended.
    stages: Vec<Arc<str>>,
    asked: Vec<Asked>,
    deadline_at: Option<Timestamp>,
    /// The number of failures so far. A failure may invalidate transitions that were derived before it.
    failures: u64,
    /// The untrusted text that the job has read.
    taint: Taint,
}

impl Run {
    /// Creates the run of a new job of `graph`.
    pub fn new(graph: Arc<Graph>) -> Self {
        Self {
            root: Frame::new(graph, Arc::default()),
            status: Status::Pending,
            error: None,
            observed: 0,
            taint: Taint::Clean,
            stages: Vec::new(),
            asked: Vec::new(),
            deadline_at: None,
            failures: 0,
        }
    }

    /// Returns the graph of the job.
    pub(crate) fn graph(&self) -> &Arc<Graph> {
        &self.root.graph
    }

    /// Returns the status of the job.
    pub fn status(&self) -> Status {
        if self.status != Status::Running {
            return self.status;
        }
        let mut status = Status::Running;
        for (_, wait) in self.waits() {
            match &wait.pause {
                Pause::Tools { tool_calls } if tool_calls.iter().any(|call| !call.needs_approval) => {
                    return Status::WaitingForTools;
                }
                Pause::Tools { .. } => status = Status::WaitingForApproval,
                Pause::Approval { .. } => status = Status::WaitingForApproval,
                Pause::Event { .. } => {}
            }
        }
        status
    }

    /// Returns the reason of the failure, if the job has failed.
    pub fn error(&self) -> Option<&String> {
        self.error.as_ref()
    }

    /// Returns the output of the job; null before its end.
    pub fn output(&self) -> Value {
        match self.root.nodes.get(&self.root.graph.output) {
            Some(State::Done(output)) if self.status == Status::Completed => output.clone(),
            _ => Value::Null,
        }
    }

    /// Returns the current observed stage: the last one that has started and not ended.
    pub fn current_stage(&self) -> Option<&Arc<str>> {
        self.stages.last()
    }

    /// Returns the number of the conversation of a step, if the step has a stored conversation.
    pub(crate) fn conversation(&self, step: &str) -> Option<u32> {
        let (node, slot, _) = self.slot(step)?;
        match slot.body(node)? {
            Body::Action(leaf, _) if !matches!(**leaf, Action::Tool { .. }) => Some(slot.conversation(leaf)),
            _ => None,
        }
    }

    /// Returns the work of a running step, if the step is a leaf.
    pub(crate) fn leaf(&self, step: &str) -> Option<&Action> {
        let (node, slot, _) = self.slot(step)?;
        match slot.body(node)? {
            Body::Action(leaf, _) => Some(leaf),
            Body::Fascicle(_) => None,
        }
    }

    /// Returns the time of the next deadline or expiry.
    pub fn due(&self) -> Option<Timestamp> {
        self.waits().filter_map(|(_, wait)| wait.expires_at).chain(self.deadline_at).min()
    }

    /// Applies a fact to the state.
    pub fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::Accepted { events, deadline_at } => {
                self.root.input = events.as_slice().into();
                self.deadline_at = *deadline_at;
            }
            Fact::Started { step, attempt, fall_back } => {
                self.status = Status::Running;
                self.root.start(step, *attempt, *fall_back);
            }
            Fact::Paused { step, wait } => {
                self.status = Status::Running;
                self.asked.push(Asked { step: step.clone(), wait: wait.clone(), body: None });
                self.root.change(step, |slot| slot.doing = SlotState::Paused(wait.n));
            }
            Fact::Answered { wait, body } => {
                if let Some(asked) = self.asked.iter_mut().find(|asked| asked.wait.n == *wait) {
                    asked.body = Some(body.clone());
                    let step = asked.step.clone();
                    self.root.change(&step, |slot| slot.doing = SlotState::Working);
                }
            }
            Fact::Done { step, output } => self.root.end(step, State::Done(output.clone())),
            Fact::Passed { step } => self.root.end(step, State::Done(Value::Null)),
            Fact::Skipped { step } => self.root.end(step, State::Skipped),
            Fact::GivenUp { step } => self.root.fail(step, true),
            Fact::Broken { step } => self.root.fail(step, false),
            Fact::Failed { step, error, retry } => self.root.change(step, |slot| {
                slot.broken = Some(error.clone());
                slot.is_fatal = !retry;
                if !matches!(slot.doing, SlotState::Inside(_)) {
                    slot.doing = SlotState::Idle;
                }
            }),
            Fact::Interrupted { step } => self.root.change(step, |slot| slot.restarts += 1),
            Fact::Tainted { by, .. } => self.taint = self.taint.max(*by),
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

    /// Applies an input and returns the resulting facts and effects. Inputs to an ended job, or from an earlier try,
    /// are ignored.
    pub fn on(&mut self, news: RunInput, now: Timestamp) -> Outcome {
        let mut out = Outcome::default();
        let stale = match &news {
            RunInput::Retried => self.status != Status::Failed,
            RunInput::Done { step, attempt, .. }
            | RunInput::Failed { step, attempt, .. }
            | RunInput::Paused { step, attempt, .. } => self.status.is_final() || !self.is_working(step, *attempt),
            RunInput::Answered { wait, body, .. } => self.wait_state(*wait, body) != WaitState::Open,
            _ => self.status.is_final(),
        };
        if stale {
            return out;
        }
        match news {
            RunInput::Accepted { events, deadline_at } => self.note(Fact::Accepted { events, deadline_at }, &mut out),
            RunInput::Done { step, output, taint, .. } => {
                if taint > self.taint {
                    self.note(Fact::Tainted { step: step.clone(), by: taint }, &mut out);
                }
                self.done(step, output, &mut out);
            }
            RunInput::Failed { step, error, retry, .. } => self.slot_failed(&step, error, retry, &mut out),
            RunInput::Paused { step, calls, .. } => {
                let wait = Wait { n: self.next_wait(), pause: Pause::Tools { tool_calls: calls }, expires_at: None };
                self.note(Fact::Paused { step, wait }, &mut out);
            }
            RunInput::Answered { wait, body, answer } => self.answered(wait, body, answer, &mut out),
            RunInput::Restarted => self.restarted(now, &mut out),
            RunInput::Tick => self.tick(now, &mut out),
            RunInput::Cancelled => self.note(Fact::Ended { status: Status::Cancelled, error: None }, &mut out),
            RunInput::GivenUp(error) => {
                self.note(Fact::Ended { status: Status::Failed, error: Some(error) }, &mut out);
            }
            RunInput::Retried => self.note(Fact::Retried, &mut out),
        }
        self.advance(now, &mut out);
        out
    }

    fn is_working(&self, step: &str, attempt: u32) -> bool {
        self.slot(step).is_some_and(|(_, slot, _)| slot.attempt == attempt && matches!(slot.doing, SlotState::Working))
    }

    fn slot(&self, step: &str) -> Option<(&Node, &Slot, usize)> {
        let (frame, node, index) = self.root.find(step)?;
        match frame.nodes.get(node) {
            Some(State::Open(slots)) => Some((frame.graph.node(node)?, slots.get(index)?, index)),
            _ => None,
        }
    }

    fn restarted(&mut self, now: Timestamp, out: &mut Outcome) {
        let attempt_of = |run: &Self, step: &Step| run.slot(step).map(|(_, slot, _)| slot.attempt);
        let interrupted: Vec<_> = self.under_way().into_iter().map(|step| (attempt_of(self, &step), step)).collect();
        // Deadlines and expiries come first: an overdue step is not restarted, and the transitions from them have
        // already started their steps.
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
            // The failure of an earlier step may already have ended this one.
            if self.slot(&step).is_some_and(|(_, slot, _)| matches!(slot.doing, SlotState::Paused(_))) {
                self.slot_failed(&step, "nobody answered in time".into(), false, out);
            }
        }
    }

    /// Returns the steps that were started and have not ended.
    pub fn under_way(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.root.under_way("", &mut steps);
        steps
    }

    /// Returns `true` if a node completes without being started, such as a join or a branch.
    fn is_instant(&self, step: &str) -> bool {
        let node = self.root.find(step).and_then(|(frame, node, _)| frame.graph.node(node));
        node.is_some_and(|node| matches!(node.work, Work::Join(_) | Work::Branch { .. }))
    }

    /// Adds the effect that starts a step's work, if the step is a leaf.
    fn start(&mut self, step: &Step, attempt: u32, again: bool, delay_ms: u64, out: &mut Outcome) {
        let Some((frame, id, index)) = self.root.find(step) else { return };
        let (Some(node), Some((_, slot, _))) = (frame.graph.node(id), self.slot(step)) else { return };
        let (SlotState::Working, Some(Body::Action(leaf, authors))) = (&slot.doing, slot.body(node)) else { return };
        match frame.reads_at(node, index) {
            Ok(events) => out.effects.push(Effect::Start(Start {
                step: step.clone(),
                attempt,
                conversation: slot.conversation(leaf),
                again: again || slot.conversation(leaf) != attempt,
                is_afterthought: self.root.is_afterthought(step),
                leaf: leaf.clone(),
                authors: authors.clone(),
                taint: self.taint,
                input: self.root.input.clone(),
                events,
                delay_ms,
                timeout_s: node.spec.timeout_s,
            })),
            Err(error) => self.node_failed(&node_of(step), error, out),
        }
    }

    /// Derives transitions from the state until no further transition follows.
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

/// Returns the size of a value in its stored form, in bytes.
pub(crate) fn bytes_of(output: &Value) -> usize {
    serde_json::to_vec(output).map_or(0, |text| text.len())
}
