//! Type 6, transformer: events in, events out. It compresses events to a number of tokens, enriches them, converts them
//! to a schema, rewrites them as its memory says, or filters them or decides on them by rules without a model. It calls no tools.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regex::{RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::decide::{self, Rule};
use super::structured_output::fitting;
use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, FirstStep, Step};
use crate::spec::{NeuronSpec, check_schema};

/// The input of a transformer. A string means one event of the user.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = TransformerInput)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The memory that replaces the neuron's own; the neuron's own if absent.
    #[serde(default)]
    pub memory: Option<String>,
    /// The events to transform.
    pub events: Vec<Event>,
}

/// The output of a transformer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = TransformerOutput)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The transformed events.
    pub events: Vec<Event>,
}

/// The transformation of events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Transform {
    /// Rewrites events by the neuron's memory.
    #[default]
    Rewrite,
    /// Shortens the events to a number of tokens, as counted by [`tokens_about`], without a change of meaning. Events
    /// that are short enough stay unchanged, without a call of a model.
    Compress {
        /// The maximum number of tokens of all events together.
        tokens: u32,
    },
    /// Keeps every event and adds events with the model's own knowledge.
    Enrich,
    /// Converts the content of each event to the form of a JSON Schema.
    Convert {
        /// The JSON Schema of a content.
        schema: Value,
    },
    /// Filters events by rules, without a model.
    Inhibit(Inhibition),
    /// Adds members to the content of each event by rules, without a model. Only a content that is an object changes.
    Decide(Vec<Rule>),
}

/// The rules of a filter. The rules that are present apply in this order. Events that pass stay unchanged and in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Inhibition {
    /// The roles whose events are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_roles: Vec<String>,
    /// Regular expressions. An event whose content matches one of them is dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_matching: Vec<String>,
    /// `true` if only the first of several events with the same role and content passes. Default: `false`.
    #[serde(default)]
    pub dedup: bool,
    /// The maximum number of events per role and time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// The maximum number of events after all other rules; the last ones are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<usize>,
}

/// A rate limit that applies to each role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// The maximum number of events of one role; the first ones are kept.
    pub events: usize,
    /// The length of the time window in seconds, measured by the events' own times (`at`, RFC 3339). If absent, or for
    /// events without a time, the limit applies to all events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

/// The maximum number of events in one answer.
const EVENTS_MAX: usize = 256;
/// The limits of a rule: the number of regular expressions, the bytes of one, and the bytes of the compiled matcher.
const PATTERNS_MAX: usize = 32;
const PATTERN_BYTES_MAX: usize = 1_000;
const PATTERNS_COMPILED_BYTES_MAX: usize = 1 << 20;

impl Transform {
    /// Checks the constraints that deserialization cannot check.
    ///
    /// # Errors
    /// Returns a sentence that names the member and the fault.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Convert { schema } => {
                let wrong = |error| format!("transform.convert.schema: {error}");
                check_schema(schema).map_err(wrong)?;
                if refers_elsewhere(schema) {
                    return Err(wrong("a $ref may only lead to its own \"#/$defs/\"".into()));
                }
                check_schema(&self.schema(1)).map_err(wrong)
            }
            Self::Compress { tokens: 0 } => Err("transform.compress.tokens is at least 1".into()),
            Self::Inhibit(rules) => rules.patterns().map(drop),
            Self::Decide(rules) => decide::check(rules),
            _ => Ok(()),
        }
    }
}

/// Returns an estimate of a text's tokens: four ASCII characters are one token, and any other character is one.
pub fn tokens_about(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    ascii.div_ceil(4) + text.chars().filter(|c| !c.is_ascii()).count()
}

fn tokens_of(events: &[Event]) -> usize {
    events.iter().map(|event| tokens_about(&event.said())).sum()
}

/// Parses the events to transform. Values from the caller replace those in `spec`.
fn take(spec: &mut NeuronSpec, input: &Value) -> Result<Vec<Event>, NeuronError> {
    let Input { memory, events } = super::read(input, |events| Input { memory: None, events })?;
    spec.memory = memory.unwrap_or_else(|| std::mem::take(&mut spec.memory));
    Ok(events)
}

/// Returns the output if no model is needed, else `None`.
///
/// # Errors
/// Returns [`NeuronError::Spec`] for an invalid rule of a definition that was stored by an older release.
fn without_a_model(spec: &NeuronSpec, events: &[Event]) -> Result<Option<Completed>, NeuronError> {
    Ok(match &spec.transform {
        Transform::Inhibit(rules) => Some(completed(rules.apply(events.to_vec()).map_err(NeuronError::Spec)?)),
        Transform::Decide(rules) => {
            Some(completed(events.iter().cloned().map(|event| decided(rules, event)).collect()))
        }
        Transform::Compress { tokens } if tokens_of(events) <= *tokens as usize => Some(completed(events.to_vec())),
        _ if events.is_empty() => Some(completed(Vec::new())),
        _ => None,
    })
}

/// Returns an event with the members that the rules add.
fn decided(rules: &[Rule], mut event: Event) -> Event {
    if let Value::Object(content) = &mut event.content {
        decide::decide(rules, content);
    }
    event
}

/// Returns the opening messages of the conversation with the model.
pub(crate) fn begin(spec: &NeuronSpec, events: &[Event]) -> Vec<ChatMessage> {
    let instruction = match &spec.transform {
        Transform::Rewrite => "You transform events as you are told. Answer with the events that are to go on.".to_owned(),
        Transform::Compress { tokens } => format!(
            "You compress events. Say what they say in fewer words, in all at most {tokens} tokens; keep names, numbers and decisions."
        ),
        Transform::Enrich => {
            "You enrich events. Answer only with new events that add what helps to understand those given; do not repeat them.".into()
        }
        Transform::Convert { .. } => "You convert events. Bring the content of each into the form that is asked for.".into(),
        Transform::Inhibit(_) | Transform::Decide(_) => unreachable!("rules need no model"),
    };
    super::instructed(&instruction, &spec.memory, events)
}

/// The rules of the kind.
pub(super) struct Transformer;

impl NeuronKind for Transformer {
    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
        let events = take(spec, input)?;
        Ok(match without_a_model(spec, &events)? {
            Some(completed) => FirstStep::Completed(completed),
            None => FirstStep::Transforming(events),
        })
    }

    fn members(&self) -> &'static [&'static str] {
        &["transform"]
    }

    fn shape(&self, spec: &NeuronSpec, given: &[Event], request: &mut ChatRequest) {
        request.response_format = Some(super::format_of(&spec.transform.schema(given.len())));
        if let Transform::Compress { tokens } = spec.transform {
            // The bound leaves room for the JSON around the text.
            let most = tokens.saturating_mul(2).saturating_add(128);
            request.max_tokens = Some(request.max_tokens.map_or(most, |own| own.min(most)));
        }
    }

    /// Evaluates a reply. `given` are the input events.
    fn step(&self, spec: &NeuronSpec, given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
        fitting(&spec.transform.schema(given.len()), reply, tries, |output| {
            let Output { events } = serde_json::from_value(output).map_err(|error| error.to_string())?;
            match &spec.transform {
                Transform::Compress { tokens } if tokens_of(&events) > *tokens as usize => {
                    Err(format!("it has about {} tokens, and at most {tokens} were asked for", tokens_of(&events)))
                }
                // The model provides only the content; the other members of each event stay unchanged.
                Transform::Convert { .. } => {
                    let contents = events.into_iter().map(|event| event.content);
                    let as_given =
                        given.iter().zip(contents).map(|(event, content)| Event { content, ..event.clone() });
                    Ok(completed(as_given.collect()))
                }
                Transform::Enrich => Ok(completed(given.iter().cloned().chain(events).collect())),
                _ => Ok(completed(events)),
            }
        })
    }

    fn output(&self, _spec: &NeuronSpec) -> OutputShape {
        OutputShape::Events
    }
}

impl Transform {
    /// Returns the schema of the model's answer to that number of events.
    fn schema(&self, given: usize) -> Value {
        let text = json!({"type": "string", "minLength": 1});
        let (mut content, (least, most)) = match self {
            // Each event yields one content, in order.
            Self::Convert { schema } => (schema.clone(), (given, given)),
            Self::Compress { .. } => (text, (1, EVENTS_MAX)),
            _ => (text, (0, EVENTS_MAX)),
        };
        // References in the schema point to its root, so the definitions move to the root of the whole schema.
        let defs = content.as_object_mut().and_then(|content| content.remove("$defs"));
        let events =
            json!({"type": "array", "items": super::event_schema(&content), "minItems": least, "maxItems": most});
        let mut schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["events"],
            "properties": {"events": events},
        });
        if let Some(defs) = defs {
            schema["$defs"] = defs;
        }
        schema
    }
}

/// Returns `true` if a schema has references outside of its own definitions.
fn refers_elsewhere(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(key, value)| match value.as_str() {
            Some(to) if key == "$ref" => !to.starts_with("#/$defs/"),
            _ => refers_elsewhere(value),
        }),
        Value::Array(items) => items.iter().any(refers_elsewhere),
        _ => false,
    }
}

fn completed(events: Vec<Event>) -> Completed {
    Completed { output: json!(Output { events }) }
}

/// The compiled patterns of the definitions that were used last.
static COMPILED: Mutex<VecDeque<(Vec<String>, Arc<RegexSet>)>> = Mutex::new(VecDeque::new());
const COMPILED_MAX: usize = 64;
/// The longest processor time that the patterns of one call take. Other work waits for it.
const MATCHING_MAX: Duration = Duration::from_millis(10);

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Inhibition {
    fn patterns(&self) -> Result<RegexSet, String> {
        let wrong = |what: String| format!("transform.inhibit.drop_matching: {what}");
        if self.drop_matching.len() > PATTERNS_MAX
            || self.drop_matching.iter().any(|pattern| pattern.len() > PATTERN_BYTES_MAX)
        {
            return Err(wrong(format!("at most {PATTERNS_MAX} patterns of {PATTERN_BYTES_MAX} bytes")));
        }
        let set = RegexSetBuilder::new(&self.drop_matching).size_limit(PATTERNS_COMPILED_BYTES_MAX).build();
        set.map_err(|error| wrong(error.to_string()))
    }

    /// Returns the compiled patterns, which are kept for the next call.
    fn compiled(&self) -> Result<Arc<RegexSet>, String> {
        let known = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().iter().find(|(patterns, _)| *patterns == self.drop_matching).map(|(_, set)| set.clone());
        if let Some(set) = found {
            return Ok(set);
        }
        // A clone of a set would have working memory of its own. Others use theirs while this one is compiled.
        let set = Arc::new(self.patterns()?);
        let mut known = known();
        known.truncate(COMPILED_MAX - 1);
        known.push_front((self.drop_matching.clone(), set.clone()));
        Ok(set)
    }

    /// Returns the events that pass the rules.
    ///
    /// # Errors
    /// Returns an error for an invalid regular expression.
    pub fn apply(&self, events: Vec<Event>) -> Result<Vec<Event>, String> {
        let patterns = self.compiled()?;
        let mut seen: HashSet<(String, String)> = HashSet::new();
        let mut let_through: HashMap<String, Vec<Option<jiff::Timestamp>>> = HashMap::new();
        let mut kept: Vec<Event> = Vec::new();
        let mut matching = Duration::ZERO;
        for event in events {
            if matching > MATCHING_MAX {
                return Err(format!(
                    "transform.inhibit.drop_matching takes longer than {} ms with these events: use simpler patterns, or fewer events",
                    MATCHING_MAX.as_millis()
                ));
            }
            let said = event.said();
            let begun = processor_time();
            let is_matched = !patterns.is_empty() && patterns.is_match(&said);
            matching += processor_time().saturating_sub(begun);
            let dropped = self.drop_roles.contains(&event.role)
                || is_matched
                || (self.dedup && !seen.insert((event.role.clone(), said)));
            if dropped || !self.may_pass(&event, &mut let_through) {
                continue;
            }
            kept.push(event);
        }
        let over = self.keep_last.map_or(0, |last| kept.len().saturating_sub(last));
        Ok(kept.split_off(over))
    }

    fn may_pass(&self, event: &Event, let_through: &mut HashMap<String, Vec<Option<jiff::Timestamp>>>) -> bool {
        let Some(Throttle { events, seconds }) = &self.throttle else { return true };
        let at: Option<jiff::Timestamp> = event.more.get("at").and_then(Value::as_str).and_then(|at| at.parse().ok());
        let before = let_through.entry(event.role.clone()).or_default();
        let counts = |other: &Option<jiff::Timestamp>| match (seconds, at, other) {
            (Some(seconds), Some(at), Some(other)) => {
                at.duration_since(*other).abs() < jiff::SignedDuration::from_secs(i64::from(*seconds))
            }
            _ => true,
        };
        let room = before.iter().filter(|other| counts(other)).count() < *events;
        if room {
            before.push(at);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(all: &[(&str, &str, &str)]) -> Vec<Event> {
        let event = |(role, content, at): &(&str, &str, &str)| Event {
            more: if at.is_empty() {
                serde_json::Map::new()
            } else {
                [("at".to_owned(), json!(at))].into_iter().collect()
            },
            ..Event::text(role, *content)
        };
        all.iter().map(event).collect()
    }

    fn through(rules: Value, all: &[(&str, &str, &str)]) -> Vec<String> {
        let rules: Inhibition = serde_json::from_value(rules).unwrap();
        rules.apply(events(all)).unwrap().iter().map(Event::said).collect()
    }

    #[test]
    fn rules_prune_dedup_and_throttle_without_a_model() {
        let all = [
            ("a", "one", ""),
            ("b", "one", ""),
            ("a", "one", ""),
            ("a", "two", ""),
            ("noise", "three", ""),
            ("a", "four 4", ""),
        ];
        assert_eq!(through(json!({}), &all).len(), 6);
        assert_eq!(through(json!({"dedup": true}), &all), ["one", "one", "two", "three", "four 4"]);
        assert_eq!(
            through(json!({"drop_roles": ["noise"], "drop_matching": ["\\d"]}), &all),
            ["one", "one", "one", "two"]
        );
        assert_eq!(through(json!({"throttle": {"events": 1}}), &all), ["one", "one", "three"]);
        assert_eq!(through(json!({"dedup": true, "keep_last": 2}), &all), ["three", "four 4"]);
        assert_eq!(through(json!({"keep_last": 0}), &all), [""; 0]);
    }

    #[test]
    fn a_throttle_counts_in_a_window_of_the_events_own_times() {
        let all = [
            ("a", "1", "2026-01-01T00:00:00Z"),
            ("a", "2", "2026-01-01T00:00:05Z"),
            ("b", "3", "2026-01-01T00:00:05Z"),
            ("a", "4", "2026-01-01T00:00:10Z"),
            ("a", "5", "2026-01-01T00:00:11Z"),
        ];
        assert_eq!(through(json!({"throttle": {"events": 1, "seconds": 10}}), &all), ["1", "3", "4"]);
        assert_eq!(through(json!({"throttle": {"events": 2, "seconds": 10}}), &all), ["1", "2", "3", "4"]);
    }

    #[test]
    fn tokens_are_counted_about_right() {
        assert_eq!((tokens_about(""), tokens_about("abcd efgh"), tokens_about("記憶abc")), (0, 3, 3));
    }
}
