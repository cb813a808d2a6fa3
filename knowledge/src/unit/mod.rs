//! KnowledgeUnits (MISSION P1): records as traces, patterns and SOPs, in the vocabulary of the seed or of the original
//! SDK. A contributed document is stored unchanged, with unknown members, and returned until the record is changed. Any
//! other record is returned as the nearest complete unit.

mod shape;
pub mod versions;

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use store::secrets::redacted;

use crate::fields::Fault;
use crate::record::{Record, Type};

pub use shape::quality as quality_of;
pub use shape::visibility as visibility_of;
pub(crate) use shape::{document, said, score_of};

/// The form of a unit: a trace, a pattern or a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A trace: one course of events, step by step.
    Trace,
    /// A pattern: an approach that works repeatedly.
    Pattern,
    /// An SOP: a procedure.
    Sop,
}

/// The vocabulary of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vocabulary {
    /// The seed's vocabulary: `Trace`, `Pattern`, `SOP`.
    #[default]
    Short,
    /// The SDK's vocabulary: `ReasoningTrace`, `ToolCallPattern`, `ExpertSOP`.
    Long,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Trace, Self::Pattern, Self::Sop];

    /// Returns the name used in records and ids.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Pattern => "pattern",
            Self::Sop => "sop",
        }
    }

    /// Returns the `@type` in a vocabulary.
    pub fn type_in(self, words: Vocabulary) -> &'static str {
        match (self, words) {
            (Self::Trace, Vocabulary::Short) => "Trace",
            (Self::Pattern, Vocabulary::Short) => "Pattern",
            (Self::Sop, Vocabulary::Short) => "SOP",
            (Self::Trace, Vocabulary::Long) => "ReasoningTrace",
            (Self::Pattern, Vocabulary::Long) => "ToolCallPattern",
            (Self::Sop, Vocabulary::Long) => "ExpertSOP",
        }
    }

    /// Parses an `@type` of either vocabulary. Case does not matter.
    pub fn parse(name: &str) -> Option<(Self, Vocabulary)> {
        let all = Self::ALL.into_iter().flat_map(|form| [(form, Vocabulary::Short), (form, Vocabulary::Long)]);
        all.into_iter().find(|(form, words)| form.type_in(*words).eq_ignore_ascii_case(name))
    }

    /// Returns the prefix of ids of this form.
    pub fn prefix(self) -> String {
        format!("kp:{}:", self.as_str())
    }

    /// Returns the form in which a record is shown.
    pub(crate) fn of(record: &Record) -> Self {
        let said = record.unit.as_ref().and_then(|unit| Self::parse(unit["@type"].as_str()?));
        match said {
            Some((form, _)) => form,
            None if record.types.contains(&Type::Plan) => Self::Sop,
            None => Self::Pattern,
        }
    }

    /// Returns the record types for a unit of this form.
    pub(crate) fn types(self) -> Vec<Type> {
        match self {
            Self::Trace => vec![Type::Strategy],
            Self::Pattern => vec![Type::Tool, Type::Strategy],
            Self::Sop => vec![Type::Plan],
        }
    }
}

/// Returns the unit id of a record: the contributed id, or one derived from the record's own id.
pub fn id_of(record: &Record) -> String {
    let said = record.unit.as_ref().and_then(|unit| unit["id"].as_str());
    said.map_or_else(|| format!("{}{}", Form::of(record).prefix(), record.id), str::to_owned)
}

/// A complete and validated document of a contribution.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contributed {
    pub(crate) form: Form,
    pub(crate) document: Value,
}

static SCHEMAS: LazyLock<[Validator; 3]> = LazyLock::new(|| {
    [
        include_str!("../../../config/schemas/ReasoningTrace.v1.schema.json"),
        include_str!("../../../config/schemas/ToolCallPattern.v1.schema.json"),
        include_str!("../../../config/schemas/ExpertSOP.v1.schema.json"),
    ]
    .map(|text| {
        let schema: Value =
            serde_json::from_str(text).unwrap_or_else(|error| unreachable!("a shipped schema: {error}"));
        jsonschema::validator_for(&schema).unwrap_or_else(|error| unreachable!("a shipped schema: {error}"))
    })
});

/// The maximum number of faults that are reported for one document.
const FAULTS_MAX: usize = 20;
/// The maximum length of a protocol id, in bytes.
const ID_BYTES_MAX: usize = 256;

impl Contributed {
    /// Parses a contribution. In the SDK's vocabulary it must be complete. The seed's vocabulary requires only three
    /// members, and missing ones are filled in.
    ///
    /// # Errors
    /// Returns every fault of the document.
    pub(crate) fn read(mut document: Map<String, Value>, created_at: &str) -> Result<Self, Vec<Fault>> {
        let (form, words) = form_of(&document)?;
        let own = || format!("{}{}", form.prefix(), uuid::Uuid::new_v4());
        document.entry("id").or_insert_with(|| own().into());
        if words == Vocabulary::Short {
            fill(form, &mut document, created_at);
        }
        Self::whole(document)
    }

    /// Checks a complete document.
    ///
    /// # Errors
    /// Returns every fault of the document.
    pub(crate) fn whole(document: Map<String, Value>) -> Result<Self, Vec<Fault>> {
        let form = form_of(&document)?.0;
        let id = document.get("id").and_then(Value::as_str);
        if !id.is_some_and(|id| id.starts_with(&form.prefix()) && id.len() <= ID_BYTES_MAX) {
            return Err(fault("id", format!("begins with {}", form.prefix())));
        }
        if id.is_some_and(|id| redacted(id).is_some()) {
            return Err(fault("id", "holds a secret".to_owned()));
        }
        // The rules of both vocabularies differ only in the name of the type.
        let mut whole = Value::Object(document.clone());
        whole["@type"] = form.type_in(Vocabulary::Long).into();
        let faults: Vec<Fault> = SCHEMAS[form as usize]
            .iter_errors(&whole)
            .take(FAULTS_MAX)
            .map(|error| {
                let path = error.instance_path().to_string();
                Fault { path: path.trim_start_matches('/').replace('/', "."), what: error.masked().to_string() }
            })
            .collect();
        if faults.is_empty() { Ok(Self { form, document: Value::Object(document) }) } else { Err(faults) }
    }
}

fn fault(path: &str, what: String) -> Vec<Fault> {
    vec![Fault { path: path.to_owned(), what }]
}

fn form_of(document: &Map<String, Value>) -> Result<(Form, Vocabulary), Vec<Fault>> {
    let named = document.get("@type").and_then(Value::as_str).and_then(Form::parse);
    named.ok_or_else(|| {
        fault("@type", "is one of Trace, Pattern, SOP, ReasoningTrace, ToolCallPattern, ExpertSOP".to_owned())
    })
}

/// Fills in the members that the seed's vocabulary makes optional, as few as a complete document needs.
fn fill(form: Form, document: &mut Map<String, Value>, created_at: &str) {
    let text = |document: &Map<String, Value>, keys: &[&str]| {
        keys.iter().find_map(|key| document.get(*key)?.as_str().map(str::to_owned)).filter(|text| !text.is_empty())
    };
    let name = text(document, &["name", "description", "objective", "content"])
        .or_else(|| document.get("task").and_then(|task| task["objective"].as_str()).map(str::to_owned))
        .unwrap_or_else(|| "unnamed".to_owned());
    let said = text(document, &["content", "description", "summary"]).unwrap_or_else(|| name.clone());
    let mut whole = match form {
        Form::Trace => json!({
            "task": {"objective": name}, "steps": [{"step_id": 0, "type": "thought", "content": said}],
            "outcome": {"result_summary": said, "confidence": 0.5},
        }),
        Form::Pattern => json!({
            "name": name, "description": said, "trigger_conditions": {"task_types": ["general"]},
            "tool_sequence": [{"step": said, "execution": "sequential", "tools": []}],
            "performance": {"avg_ms": 0, "success_rate": 0.5, "uses": 0},
        }),
        Form::Sop => json!({
            "name": name, "domain": "general",
            "source": {"type": "human_expert", "expert_id": "unknown", "credentials": []},
            "decision_tree": [{"step": "1", "instruction": said}],
        }),
    };
    whole["@context"] = versions::context_of(1).into();
    whole["metadata"] = json!({
        "created_at": created_at, "task_domain": "general", "success": true, "quality_score": 0.5, "visibility": "private",
        "privacy_level": "aggregated",
    });
    let Value::Object(whole) = whole else { return };
    for (key, value) in whole {
        match (document.get_mut(&key), value) {
            (None, value) => drop(document.insert(key, value)),
            // Objects that describe the unit, such as its metadata, are completed. Given content is not mixed with
            // defaults.
            (Some(Value::Object(known)), Value::Object(value)) => {
                for (member, value) in value {
                    known.entry(member).or_insert(value);
                }
            }
            _ => {}
        }
    }
}
