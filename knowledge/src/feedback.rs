//! Judgements of records. They are counted, and kept as cases that are never removed (MISSION H2). Every reader of a
//! record may judge it. A judgement that names its message or trace is counted once.

use jiff::Timestamp;
use nexus::WriteAuthority;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{Batch, Entry, Expect, Hash, Key, Kind, Op, Origin, PrincipalId, Stream};

use crate::fields::Fields;
use crate::{Knowledge, KnowledgeError, Record};

/// The maximum number of cases that are returned with a record.
const TOLD_MAX: usize = 50;
/// The number of stream entries per read.
const PAGE: usize = 256;
/// The maximum number of judgements in one request.
const JUDGEMENTS_MAX: usize = 1_000;
/// The maximum size of a case, in bytes.
const CASE_BYTES_MAX: usize = 8 << 10;
/// The changes of the confidence by one judgement: the share of the distance to 1, or to 0.
const HELPED: f64 = 0.1;
const HARMED: f64 = 0.2;

/// A judgement of the use of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// `true` if the record helped.
    pub helpful: bool,
    /// The case: `task`, `outcome`, `reason`, `timestamp`, `message_id`, `trace_id` and any other members.
    pub case: Map<String, Value>,
    /// `true` if this judgement replaces the opposite judgement of the same principal on the same message or trace.
    pub instead: bool,
}

/// The outcome of a batch of judgements.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Judged {
    /// The number of judgements that are counted, including those counted before.
    pub updated: usize,
    /// The refused judgements, with reasons.
    #[schema(value_type = Vec<Object>)]
    pub errors: Vec<Value>,
}

/// The kind of a stream entry that holds a case.
const CASE: &str = "case";
/// The member of a case that marks a validation.
pub(crate) const VALIDATION: &str = "validation";
/// The kind of a stream entry that holds a wish for an improvement.
pub(crate) const WISH: &str = "wish";
/// The outcome of a case in which a person repeated a statement.
pub(crate) const SAID_AGAIN: &str = "it was said again";

/// A case as stored in the stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    helpful: bool,
    case: Map<String, Value>,
    /// `true` if it replaced the principal's opposite judgement, which no longer counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    instead: bool,
}

/// The document that marks a judgement as counted.
#[derive(Serialize, Deserialize)]
struct Counted {
    record: String,
    /// The principal.
    #[serde(default)]
    by: Option<String>,
}

/// Returns the stream of the cases of a record.
pub(crate) fn stream(id: &str) -> Stream {
    format!("feedback:{id}").into()
}

/// Returns the key of the document that marks that a participant's judgement against a record was counted.
fn harmful_by(id: &str, by: &PrincipalId) -> Key {
    Key::new(Kind::Feedback, Hash::of(json!([id, "harmful", by.0]).to_string().as_bytes()).hex())
}

/// Returns the operations that store the first case of a new record. It is counted once, like any other case.
pub(crate) fn first(id: &str, case: &Map<String, Value>, origin: &Origin) -> Vec<Op> {
    let judgement = Judgement { helpful: true, case: case.clone(), instead: false }.cleaned();
    let key = judgement.key(id);
    let kept = Kept { helpful: true, case: judgement.case, instead: false };
    let batch = Batch::new(origin).append(stream(id), CASE, &kept);
    match key {
        Some(key) => batch.put(key, &Counted::by(id, origin)).ops,
        None => batch.ops,
    }
}

/// Checks a case that a client sent in the member `path`.
pub(crate) fn case(fields: &mut Fields, path: &str, helpful: bool, case: Map<String, Value>) -> Judgement {
    if Value::Object(case.clone()).to_string().len() > CASE_BYTES_MAX {
        fields.fault(path, format!("is at most {CASE_BYTES_MAX} bytes"));
    }
    if case.contains_key(VALIDATION) {
        fields.fault(&format!("{path}.{VALIDATION}"), "is said where a unit is validated");
    }
    for key in ["task", "outcome", "reason", "timestamp", "message_id", "trace_id"] {
        if case.get(key).is_some_and(|value| !(value.is_string() || value.is_null())) {
            fields.fault(&format!("{path}.{key}"), "is a text");
        }
    }
    Judgement { helpful, case, instead: false }
}

impl Counted {
    fn by(id: &str, origin: &Origin) -> Self {
        Self { record: id.to_owned(), by: Some(origin.principal.id.0.to_string()) }
    }
}

impl Judgement {
    /// Returns the judgement without secrets, since other users will read it. Its key is derived from the cleaned
    /// content.
    fn cleaned(self) -> Self {
        let mut case = Value::Object(self.case);
        let _ = store::secrets::clean(&mut case);
        let Value::Object(case) = case else { unreachable!("an object stays one") };
        Self { case, ..self }
    }

    /// Returns the key under which the judgement is counted once; `None` if it names no message or trace.
    fn key(&self, id: &str) -> Option<Key> {
        self.key_of(id, self.helpful)
    }

    /// Returns the key of the opposite judgement, if this judgement replaces it.
    fn contrary(&self, id: &str) -> Option<Key> {
        self.key_of(id, !self.helpful).filter(|_| self.instead)
    }

    fn key_of(&self, id: &str, helpful: bool) -> Option<Key> {
        let named = [VALIDATION, "message_id", "trace_id"].into_iter().find_map(|key| {
            let name = self.case.get(key)?.as_str().filter(|name| !name.is_empty())?;
            Some([key, name])
        })?;
        let judgement = json!([id, named, helpful]).to_string();
        Some(Key::new(Kind::Feedback, Hash::of(judgement.as_bytes()).hex()))
    }
}

/// Returns the KIP expression for a record's confidence before a judgement that is revoked. It is clamped to the valid
/// range, because other judgements may have followed.
fn taken_back(before: &str) -> String {
    format!("CLAMP({before}, 0, 1)")
}

/// Returns the KIP expression of a record's confidence after it helped.
fn helped(before: &str) -> String {
    format!("ADD(MUL({before}, {}), {HELPED})", 1.0 - HELPED)
}

/// Returns the KIP expression of a record's confidence after it did not help.
fn harmed(before: &str) -> String {
    format!("MUL({before}, {})", 1.0 - HARMED)
}

impl Knowledge {
    /// Counts the caller's judgement of a record. Returns `false` if it was already counted.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::NotFound`] for a record that the caller may not see.
    pub async fn judge(&self, id: &str, judgement: Judgement, origin: &Origin) -> Result<bool, KnowledgeError> {
        // Records that the caller may not see, and deleted records, cannot be judged.
        self.seen(id, origin).await?;
        let _turn = match judgement.key(id) {
            Some(_) => Some(self.once.lock().await),
            None => None,
        };
        self.count(id, judgement, origin).await
    }

    /// Counts a judgement of an existing record, under the record's lock. Of a participant's judgements against a
    /// record the first counts; the cases of the others are stored. If the judgement has a key, the caller holds
    /// `once`.
    pub(crate) async fn count(&self, id: &str, judgement: Judgement, origin: &Origin) -> Result<bool, KnowledgeError> {
        let judgement = judgement.cleaned();
        let _turn = self.changing(id).lock().await;
        let key = judgement.key(id);
        if let Some(key) = &key
            && self.store.document::<Counted>(key).await?.is_some()
        {
            return Ok(false);
        }
        let by = Counted::by(id, origin);
        // A record that harmed leaves the searches of all, so one participant does not bring that about by itself.
        let mine = (!judgement.helpful && origin.principal.is_bound()).then(|| harmful_by(id, &origin.principal.id));
        if let Some(mine) = &mine
            && self.store.document::<Counted>(mine).await?.is_some()
        {
            let kept = Kept { helpful: false, case: judgement.case, instead: false };
            self.store.commit(Batch::new(origin).append(stream(id), CASE, &kept)).await?;
            return Ok(false);
        }
        let instead = match judgement.contrary(id) {
            Some(contrary) => {
                let known = self.store.document::<Counted>(&contrary).await?;
                known.filter(|known| known.value.by == by.by).map(|_| contrary)
            }
            None => None,
        };
        let known = "COALESCE(?k.metadata.confidence, 0.5)";
        // A replaced judgement is revoked first, so a principal who changes the judgement back and forth gains nothing.
        let (counted, other, confidence) = match (judgement.helpful, instead.is_some()) {
            (true, false) => ("helpful", "harmful", helped(known)),
            (true, true) => {
                ("helpful", "harmful", helped(&taken_back(&format!("MUL({known}, {})", 1.0 / (1.0 - HARMED)))))
            }
            (false, false) => ("harmful", "helpful", harmed(known)),
            (false, true) => {
                let before = format!("MUL(ADD({known}, -{HELPED}), {})", 1.0 / (1.0 - HELPED));
                ("harmful", "helpful", harmed(&taken_back(&before)))
            }
        };
        let no_more = match &instead {
            Some(_) => format!("{other}: ADD(COALESCE(?k.metadata.{other}, 1), -1), "),
            None => String::new(),
        };
        let command = format!(
            r#"UPDATE ?k SET METADATA {{ {no_more}{counted}: ADD(COALESCE(?k.metadata.{counted}, 0), 1), confidence: {confidence} }} WHERE {{ ?k {{type: "Knowledge", name: $id}} }}"#
        );
        let judgement_is_helpful = judgement.helpful;
        let kept = Kept { helpful: judgement.helpful, case: judgement.case, instead: instead.is_some() };
        let mut beside = Batch::new(origin).append(stream(id), CASE, &kept);
        for key in key.into_iter().chain(mine) {
            beside = beside.put(key, &by);
        }
        if let Some(contrary) = instead {
            beside = beside.delete(contrary, Expect::Any);
            if judgement_is_helpful {
                beside = beside.delete(harmful_by(id, &origin.principal.id), Expect::Any);
            }
        }
        let done = self.kip(&command, json!({"id": id}), WriteAuthority::Judge, beside.ops, id, origin).await?;
        match done["updated"].as_u64() {
            Some(1) => Ok(true),
            _ => Err(KnowledgeError::NotFound(id.to_owned())),
        }
    }

    /// Returns the operations that delete the marks of a removed record's judgements, so that a new record of the same
    /// name can be judged again.
    pub(crate) async fn no_more_counted(&self, id: &str, origin: &Origin) -> Result<Vec<Op>, KnowledgeError> {
        let mut batch = Batch::new(origin);
        for entry in self.store.all_entries(&stream(id)).await?.into_iter().filter(|entry| &*entry.kind == CASE) {
            let Kept { helpful, case, instead } = entry.decode()?;
            let by = PrincipalId::new(&*entry.by.0);
            let harmful = (!helpful).then(|| harmful_by(id, &by));
            for key in (Judgement { helpful, case, instead }).key(id).into_iter().chain(harmful) {
                batch = batch.delete(key, Expect::Any);
            }
        }
        Ok(batch.ops)
    }

    /// Counts several judgements. A faulty judgement is reported, and the others are counted.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for too many judgements, or an error if the commons cannot be written.
    pub async fn judge_all(&self, list: Vec<Value>, origin: &Origin) -> Result<Judged, KnowledgeError> {
        if list.len() > JUDGEMENTS_MAX {
            return Err(KnowledgeError::invalid("feedback_list", format!("has at most {JUDGEMENTS_MAX} items")));
        }
        let mut judged = Judged { updated: 0, errors: Vec::new() };
        for item in list {
            let id = item["knowledge_id"].as_str().unwrap_or_default().to_owned();
            let done = match read(item) {
                Ok(judgement) => self.judge(&id, judgement, origin).await.map(|_| ()),
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => judged.updated += 1,
                Err(error @ KnowledgeError::Nexus(_)) => return Err(error),
                Err(error) => judged.errors.push(json!({"knowledge_id": id, "error": error.to_string()})),
            }
        }
        Ok(judged)
    }

    /// Returns `true` if a message other than `but` repeated the record's statement since that time and still supports
    /// it.
    pub(crate) async fn is_said_again(
        &self,
        record: &Record,
        since: Timestamp,
        but: &str,
    ) -> Result<bool, KnowledgeError> {
        for entry in self.store.all_entries(&stream(&record.id)).await? {
            if &*entry.kind == CASE && entry.at >= since {
                let case = entry.decode::<Kept>()?.case;
                let named = |key: &str| case.get(key).and_then(Value::as_str);
                let again =
                    named("message_id").filter(|message| *message != but && named("outcome") == Some(SAID_AGAIN));
                if let Some(message) = again
                    && !self.is_unsaid(record, message).await?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Adds the newest cases to a record.
    pub(crate) async fn add_cases(&self, record: &mut Record) -> Result<(), KnowledgeError> {
        let mut histories = [Vec::new(), Vec::new()];
        let counts = [record.eval.helpful, record.eval.harmful];
        let stream = stream(&record.id);
        let mut after = match counts[0].max(counts[1]) {
            0 => 0,
            // This part of the stream contains the newest cases of both kinds, unless one kind is rare.
            _ => self.store.head(&stream).await?.saturating_sub(4 * TOLD_MAX as u64),
        };
        while counts.iter().any(|count| *count > 0) {
            let entries = self.store.entries(&stream, after, PAGE).await?;
            let Some(last) = entries.last() else { break };
            after = last.seq;
            // Cases of an earlier record of the same name do not belong to this record.
            let own = |entry: &&Entry| &*entry.kind == CASE && entry.at >= record.created_at;
            for entry in entries.iter().filter(own) {
                let kept: Kept = entry.decode()?;
                let mut case = kept.case;
                case.insert("by".to_owned(), json!(entry.by));
                if kept.instead {
                    let is_same = |known: &Value| {
                        ["by", VALIDATION, "message_id", "trace_id"].iter().all(|key| known.get(key) == case.get(*key))
                    };
                    histories[usize::from(kept.helpful)].retain(|known| !is_same(known));
                }
                case.entry("timestamp").or_insert(json!(entry.at));
                histories[usize::from(!kept.helpful)].push(Value::Object(case));
            }
        }
        if record.wishes > 0 {
            record.pending_feedback = self.wishes(record).await?;
        }
        let [helpful, harmful] = histories.map(|mut cases| cases.split_off(cases.len().saturating_sub(TOLD_MAX)));
        record.eval.helpful_history = Some(helpful);
        record.eval.harmful_history = Some(harmful);
        Ok(())
    }
}

impl Knowledge {
    /// Returns the open wishes of a record.
    async fn wishes(&self, record: &Record) -> Result<Vec<Value>, KnowledgeError> {
        let entries = self.store.all_entries(&stream(&record.id)).await?;
        let own = |entry: &&Entry| &*entry.kind == WISH && entry.at >= record.created_at;
        let mut wishes = Vec::new();
        for entry in entries.iter().filter(own) {
            let feedback: Value = entry.decode()?;
            wishes.push(json!({"feedback": feedback["wish"], "by": entry.by, "timestamp": entry.at}));
        }
        Ok(wishes.split_off(wishes.len().saturating_sub(record.wishes.min(TOLD_MAX))))
    }
}

/// Parses one of several judgements, in the format of the seed's `batch_update`.
fn read(item: Value) -> Result<Judgement, KnowledgeError> {
    let Value::Object(item) = item else {
        return Err(KnowledgeError::invalid(
            "feedback_list",
            "has items that are objects: {knowledge_id, is_helpful, case?}",
        ));
    };
    let mut fields = Fields::of(item);
    if fields.text("knowledge_id", 200).is_none() {
        fields.missing("knowledge_id");
    }
    let helpful = fields.flag("is_helpful");
    if helpful.is_none() {
        fields.missing("is_helpful");
    }
    let members = fields.object("case").unwrap_or_default();
    let judgement = case(&mut fields, "case", helpful.unwrap_or_default(), members);
    fields.end()?;
    Ok(judgement)
}
