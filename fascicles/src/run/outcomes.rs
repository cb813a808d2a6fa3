//! Outcomes of steps: answers, failures, and their events for observers.

use std::sync::Arc;

use neurons::neuron::ToolResult;
use serde_json::{Value, json};

use super::fact::{Fact, Observed, Status, Step};
use super::frame::SlotState;
use super::input::{Answer, Effect, Outcome};
use super::step::{is_node, name_of, node_of, parent_of};
use super::{BACKOFF_MS_MAX, JOINED_BYTES_MAX, OUTPUT_BYTES_MAX, Run, bytes_of};
use crate::graph::{Action, Body, Work};
use crate::observe;
use crate::spec::OnFailure;

impl Run {
    /// Handles the output of a step. An output that is too large fails the step.
    pub(super) fn done(&mut self, step: Step, output: Value, out: &mut Outcome) {
        let leaf = self.slot(&step).is_some_and(|(node, slot, _)| {
            let several = is_node(&step) && node.has_several_slots();
            !(several || matches!(slot.doing, SlotState::Inside(_)))
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

    pub(super) fn answered(&mut self, wait: u32, body: String, answer: Answer, out: &mut Outcome) {
        let Some((step, attempt, ..)) = self.asked(wait) else { return };
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
                    .is_some_and(|body| matches!(body, Body::Action(leaf, _) if matches!(**leaf, Action::Tool { .. })));
                match results.into_iter().next().filter(|_| of_tool) {
                    // The neuron continues.
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

    /// Handles a failed try of a step: by another try, by the fallback, or by a failure of the node.
    pub(super) fn slot_failed(&mut self, step: &Step, error: String, retry: bool, out: &mut Outcome) {
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
            // A failed item of a map continues as null.
            out.effects.push(Effect::Stop(step.clone()));
            self.observe_failure(&node_of(step), &error, out);
            return self.note(Fact::Passed { step: step.clone() }, out);
        }
        let error = if of_map { format!("{}: {error}", name_of(step)) } else { error };
        self.node_failed(&node_of(step), error, out);
    }

    /// Handles the final failure of a node by its failure policy.
    pub(super) fn node_failed(&mut self, step: &Step, error: String, out: &mut Outcome) {
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

    /// Records a fact, and the events for observers that follow from it.
    pub(super) fn note(&mut self, fact: Fact, out: &mut Outcome) {
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

    pub(super) fn observe(&mut self, step: &Step, kind: &str, output: &Value, out: &mut Outcome) {
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

    pub(super) fn observe_failure(&mut self, node: &Step, error: &str, out: &mut Outcome) {
        self.observe(node, "stage_failed", &json!({"error": error}), out);
    }
}
