//! Promotion of experience (MISSION P1): events are stored as traces, repeated success becomes a pattern, and a pattern
//! that held becomes an SOP. Each promotion is a record of its own, linked to its sources, which are kept.

use std::collections::BTreeSet;

use jiff::Timestamp;
use nexus::{Provenance, WriteAuthority};
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{Hash, Origin};

use crate::likeness::{Words, likeness, words};
use crate::list::Which;
use crate::record::{Record, Status};
use crate::unit::{Form, id_of};
use crate::{Knowledge, KnowledgeError};

/// The share of common words from which two objectives, or two steps, count as the same kind.
const ALIKE: f64 = 0.5;
/// The minimum number of traces for a pattern, and the minimum share of successful ones.
const TRACES_MIN: usize = 3;
const SUCCESS_MIN: f64 = 0.6;
/// The minimum number of uses for an SOP, and the minimum share of successful ones.
const USES_MIN: usize = 5;
const HELD_MIN: f64 = 0.8;
/// The maximum number of steps that are stored of one deed.
const STEPS_MAX: usize = 32;
/// The number of links per write.
const LINKS_AT_ONCE: usize = 50;

/// A step of a completed piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedStep {
    /// The work of the step, one line.
    pub what: String,
    /// The tool call that it made, as it ran; `None` for a thought.
    pub call: Option<TracedCall>,
}

/// A tool call of a step, as it ran.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, without prose and secrets.
    pub input: Map<String, Value>,
    /// `true` if the call was done.
    pub succeeded: bool,
    /// The time that it took, in milliseconds.
    pub ms: u64,
}

impl TracedStep {
    fn unit(&self, at: usize) -> Value {
        match &self.call {
            None => json!({"step_id": at, "type": "thought", "content": self.what}),
            Some(call) => json!({
                "step_id": at, "type": "tool_call", "content": self.what, "tool": {"name": call.tool}, "input": call.input,
                "output_summary": if call.succeeded { "done" } else { "failed" }, "latency_ms": call.ms,
            }),
        }
    }
}

/// A completed piece of work to store as a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalOutcome {
    /// The name of the job. Work with the same name is stored once.
    pub name: String,
    /// The objective.
    pub objective: String,
    /// The steps, in order.
    pub steps: Vec<TracedStep>,
    /// The result text.
    pub result: String,
    /// `true` if the objective was reached.
    pub success: bool,
    /// The time at which the work ended.
    pub at: Timestamp,
    /// The provenance of the objective, the steps and the result.
    pub provenance: Provenance,
}

/// The outcome of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Promoted {
    /// The number of examined traces.
    pub traces: usize,
    /// The ids of patterns that are new or changed.
    pub patterns: Vec<String>,
    /// The ids of SOPs that are new or changed.
    pub sops: Vec<String>,
}

impl GoalOutcome {
    fn trace(&self, agent: &str) -> Map<String, Value> {
        let only = TracedStep { what: self.objective.clone(), call: None };
        let steps = self.steps.iter().filter(|step| !step.what.trim().is_empty()).take(STEPS_MAX);
        let mut steps: Vec<Value> = steps.enumerate().map(|(at, step)| step.unit(at)).collect();
        if steps.is_empty() {
            steps.push(only.unit(0));
        }
        let trace = json!({
            "@type": Form::Trace.type_in(crate::unit::Vocabulary::Short), "@context": crate::unit::versions::context_of(1),
            "id": format!("{}{}", Form::Trace.prefix(), self.name),
            "task": {"objective": self.objective}, "steps": steps,
            "outcome": {"result_summary": self.result, "confidence": 0.5},
            "metadata": {
                "created_at": self.at.to_string(), "agent_id": format!("kp:agent:{agent}"), "task_domain": "general",
                "success": self.success, "quality_score": 0.5, "visibility": "private", "privacy_level": "aggregated",
            },
        });
        match trace {
            Value::Object(trace) => trace,
            _ => Map::new(),
        }
    }
}

impl Knowledge {
    /// Stores completed work as a trace of the caller. The same work is stored once.
    ///
    /// # Errors
    /// Returns the errors of [`Self::contribute`].
    pub async fn record_outcome(&self, deed: &GoalOutcome, origin: &Origin) -> Result<Record, KnowledgeError> {
        let trace = deed.trace(&origin.principal.id.0);
        Ok(Box::pin(self.keep_unit(trace, Some(&deed.provenance), true, None, origin)).await?.record)
    }

    /// Derives patterns from the caller's traces, and SOPs from the patterns. The result is deterministic: without new
    /// traces nothing is written.
    ///
    /// # Errors
    /// Returns the errors of [`Self::contribute`].
    pub async fn promote(&self, origin: &Origin) -> Result<Promoted, KnowledgeError> {
        let which = Which { owner: Some(origin.principal.id.0.to_string()), ..Which::default() };
        let traces = self.all(&which, origin).await?.into_iter().filter(|record| is_form(record, Form::Trace));
        let traces: Vec<Record> = traces.collect();
        let mut climbed = Promoted { traces: traces.len(), ..Promoted::default() };
        for group in groups(traces) {
            let Some(pattern) = pattern(&group) else { continue };
            let sources: Vec<&Record> = group.iter().collect();
            let Some((record, is_news)) = self.write_derived(pattern, &sources, origin).await? else { continue };
            if is_news {
                climbed.patterns.push(id_of(&record));
            }
            let Some(sop) = sop(&record, &group, &origin.principal.id.0) else { continue };
            let Some((sop, is_news)) = self.write_derived(sop, &[&record], origin).await? else { continue };
            if is_news {
                climbed.sops.push(id_of(&sop));
            }
        }
        Ok(climbed)
    }

    /// Writes a derived unit and its links to the sources. A deleted unit is not created again.
    async fn write_derived(
        &self,
        unit: Map<String, Value>,
        from: &[&Record],
        origin: &Origin,
    ) -> Result<Option<(Record, bool)>, KnowledgeError> {
        let id = unit["id"].as_str().unwrap_or_default();
        let before = match self.unit(id, origin).await {
            Ok(known) => Some(known.version),
            Err(KnowledgeError::NotFound(_)) => {
                if self.unit_that(id, &|status| status != Status::Active, origin).await?.is_some() {
                    return Ok(None);
                }
                None
            }
            Err(error) => return Err(error),
        };
        let provenance = Provenance::joined(from.iter().map(|record| record.provenance.as_ref()));
        let record = Box::pin(self.keep_unit(unit, Some(&provenance), true, None, origin)).await?.record;
        let is_news = before != Some(record.version);
        // An earlier try may have written the unit without its links.
        for sources in from.chunks(LINKS_AT_ONCE) {
            let mut parameters = json!({"id": record.id});
            let links = sources.iter().enumerate().map(|(at, source)| {
                parameters[format!("s{at}")] = source.id.as_str().into();
                format!("(\"distilled_from\", {{type: \"Knowledge\", name: $s{at}}})")
            });
            let links = links.collect::<Vec<_>>().join("\n");
            parameters["owner"] = record.owner.as_str().into();
            parameters["scopes"] = json!(record.scopes);
            let command = format!(
                "UPSERT {{ CONCEPT ?k {{ {{type: \"Knowledge\", name: $id}} SET PROPOSITIONS {{ {links} }} }} \
                 WITH METADATA {{ owner: $owner, scopes: $scopes }} }}"
            );
            self.kip(&command, parameters, WriteAuthority::Attest, Vec::new(), &record.id, origin).await?;
        }
        Ok(Some((record, is_news)))
    }
}

/// Returns `true` if a record is a trace: the steps of work, from which patterns are derived.
pub fn is_trace(record: &Record) -> bool {
    is_form(record, Form::Trace)
}

fn is_form(record: &Record, form: Form) -> bool {
    record.unit.is_some() && Form::of(record) == form
}

/// Groups traces by their objective, oldest first. The first trace represents its group.
fn groups(traces: Vec<Record>) -> Vec<Vec<Record>> {
    let mut groups: Vec<(Words, Vec<Record>)> = Vec::new();
    for trace in traces {
        let own = words(&trace.task);
        match groups.iter_mut().find(|(standing, _)| likeness(standing, &own) >= ALIKE) {
            Some((_, group)) => group.push(trace),
            None => groups.push((own, vec![trace])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn succeeded(trace: &Record) -> bool {
    let declared = trace.unit.as_ref().and_then(|unit| unit.pointer("/metadata/success")?.as_bool());
    declared.unwrap_or(false) && trace.eval.harmful <= trace.eval.helpful
}

fn steps_of(unit: &Value, list: &str, text: &str) -> Vec<String> {
    let steps = unit[list].as_array().into_iter().flatten();
    steps.filter_map(|step| step[text].as_str()).map(str::to_owned).collect()
}

/// Returns the id of a derived unit. It depends only on the first source.
fn id_from(form: Form, first: &Record) -> String {
    format!("{}{}", form.prefix(), &Hash::of(id_of(first).as_bytes()).hex()[..16])
}

/// Returns the pattern of a group of traces: the steps that most of the successful traces have in common, in the order
/// of the latest successful one.
fn pattern(group: &[Record]) -> Option<Map<String, Value>> {
    let good: Vec<&Record> = group.iter().filter(|trace| succeeded(trace)).collect();
    let rate = good.len() as f64 / group.len().max(1) as f64;
    if good.len() < TRACES_MIN || rate < SUCCESS_MIN {
        return None;
    }
    let all: Vec<Vec<String>> =
        good.iter().filter_map(|trace| trace.unit.as_ref()).map(|unit| steps_of(unit, "steps", "content")).collect();
    let is_in = |step: &str, steps: &[String]| {
        let own = words(step);
        steps.iter().any(|other| likeness(&own, &words(other)) >= ALIKE)
    };
    let latest = all.last()?;
    let common = |step: &&String| 2 * all.iter().filter(|steps| is_in(step, steps)).count() > all.len();
    let mut steps: Vec<&String> = latest.iter().filter(common).collect();
    if steps.is_empty() {
        steps = latest.iter().collect();
    }
    let tools = |step: &str| -> Vec<Value> {
        let unit = good.last().and_then(|trace| trace.unit.as_ref());
        let made = unit.into_iter().flat_map(|unit| unit["steps"].as_array().into_iter().flatten());
        let names: BTreeSet<&str> =
            made.filter(|made| made["content"] == step).filter_map(|made| made["tool"]["name"].as_str()).collect();
        names.into_iter().map(|name| json!({"name": name})).collect()
    };
    // Several calls of one step share its line.
    steps.dedup();
    let sequence: Vec<Value> =
        steps.iter().map(|step| json!({"step": step, "execution": "sequential", "tools": tools(step)})).collect();
    let took = |trace: &&Record| -> f64 {
        let unit = trace.unit.as_ref();
        let made = unit.into_iter().flat_map(|unit| unit["steps"].as_array().into_iter().flatten());
        made.filter_map(|made| made["latency_ms"].as_f64()).sum()
    };
    let avg_ms = (good.iter().map(took).sum::<f64>() / good.len() as f64).round();
    let first = group.first()?;
    whole(json!({
        "@type": "Pattern", "@context": crate::unit::versions::context_of(1), "id": id_from(Form::Pattern, first),
        "name": first.task.chars().take(120).collect::<String>(), "description": first.task,
        "trigger_conditions": {"task_types": [first.task]},
        "tool_sequence": sequence,
        "performance": {"avg_ms": avg_ms, "success_rate": rate, "uses": group.len()},
        "metadata": metadata(first, rate),
    }))
}

/// Returns the SOP of a pattern that held.
fn sop(pattern: &Record, group: &[Record], by: &str) -> Option<Map<String, Value>> {
    let good = group.iter().filter(|trace| succeeded(trace)).count();
    let rate = good as f64 / group.len().max(1) as f64;
    if group.len() < USES_MIN || rate < HELD_MIN || pattern.eval.harmful > pattern.eval.helpful {
        return None;
    }
    let steps = steps_of(pattern.unit.as_ref()?, "tool_sequence", "step");
    let tree: Vec<Value> =
        steps.iter().enumerate().map(|(at, step)| json!({"step": (at + 1).to_string(), "instruction": step})).collect();
    let first = group.first()?;
    whole(json!({
        "@type": "SOP", "@context": crate::unit::versions::context_of(1), "id": id_from(Form::Sop, first),
        "name": first.task.chars().take(120).collect::<String>(), "domain": "general",
        // The protocol has no better type of source; the id names the agent.
        "source": {"type": "human_expert", "expert_id": by, "credentials": []},
        "decision_tree": tree,
        "metadata": metadata(first, rate),
    }))
}

fn metadata(first: &Record, rate: f64) -> Value {
    json!({
        "created_at": first.created_at.to_string(), "task_domain": "general", "success": true, "quality_score": rate,
        "visibility": "private", "privacy_level": "aggregated",
    })
}

fn whole(unit: Value) -> Option<Map<String, Value>> {
    match unit {
        Value::Object(unit) => Some(unit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_keeps_calls_apart_from_thoughts() {
        let call = TracedCall { tool: "book".into(), input: Map::new(), succeeded: false, ms: 12 };
        let made = TracedStep { what: "Book it".into(), call: Some(call) };
        assert_eq!(
            made.unit(1),
            json!({"step_id": 1, "type": "tool_call", "content": "Book it", "tool": {"name": "book"}, "input": {}, "output_summary": "failed", "latency_ms": 12})
        );
        let thought = TracedStep { what: "Think".into(), call: None };
        assert_eq!(thought.unit(0), json!({"step_id": 0, "type": "thought", "content": "Think"}));
    }
}
