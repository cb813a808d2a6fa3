//! Export and import of records (MISSION "One memory"): as JSON lines, as the file tree of seed 001, as KnowledgeUnits
//! and as Markdown. Import also reads exports of other memory systems with public formats. The import treats each item
//! like a normal request: a faulty item does not affect the others, and a repetition changes nothing.

mod markdown;
mod others;
mod tree;

use std::collections::{BTreeSet, HashMap};

use neurons::llm::wire::repeated_member;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::secrets::{same_but_for_secrets, same_json_but_for_secrets};
use store::{Hash, NoPlace, Origin, Principal};

use crate::draft::{Body, Draft};
use crate::list::Which;
use crate::pulse::says_something_else;
use crate::record::{Record, SCORE, Status, UNIT_KEY};
use crate::{Knowledge, KnowledgeError};

/// The maximum number of items in one request.
pub const IMPORTED_MAX: usize = 10_000;
/// The maximum number of lines in one request, including empty lines and the lines of an indented list.
const LINES_MAX: usize = 1_000_000;
/// The maximum number of JSON values in one request. 10,000 records have far fewer.
const VALUES_MAX: usize = 2_000_000;
/// The maximum number of faults that the outcome lists.
const TOLD_MAX: usize = 100;

/// The format of exported records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON lines: one record per line.
    Jsonl,
    /// Files by path, `{"global/tools.json": [record, …]}`, in the layout of seed 001.
    Tree,
    /// KnowledgeUnits, as a list or as JSON lines.
    Units,
    /// Markdown: records in sequence, each with a header. For an import also any other Markdown, where each section
    /// becomes a record.
    Markdown,
    /// The response of mem0's `get_all`. Import only.
    Mem0,
    /// The memory blocks of a Letta agent file (`.af`), or a list of archival passages. Import only.
    Letta,
}

/// The outcome of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Imported {
    /// The number of new records.
    pub imported: usize,
    /// The number of records that existed unchanged.
    pub unchanged: usize,
    /// The first hundred refusals: `{file?, at, id?, error}`. `at` is the index of the item in the request, or in its
    /// file, from 0.
    pub errors: Vec<Value>,
    /// The number of refusals.
    pub refused: usize,
    /// `true` for a dry run: nothing was written.
    pub dry_run: bool,
    /// The parts of imported records that were not accepted.
    pub warnings: BTreeSet<String>,
    /// The place where the import stopped, with the reason, because the store accepted no more writes. A repetition of
    /// the import takes the remaining records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Value>,
}

/// The requests for records, or their faults, in the order of their places.
type Records = Vec<Result<Map<String, Value>, String>>;

/// An item to import.
enum Item {
    Record(Map<String, Value>),
    Unit(Map<String, Value>),
}

/// The place of an item in the request.
#[derive(Default)]
struct Place {
    file: Option<String>,
    at: usize,
}

/// Converts consecutive records to items with places.
fn placed(items: Records, file: Option<&str>, item: fn(Map<String, Value>) -> Item) -> Vec<Placed> {
    let place = |at| Place { file: file.map(str::to_owned), at };
    items.into_iter().enumerate().map(|(at, read)| (place(at), read.map(item))).collect()
}

/// An item, or its fault, with its place.
type Placed = (Place, Result<Item, String>);

/// Returns an upper bound of the number of values in a JSON text: each value starts a list or an object, or follows or
/// precedes a comma.
fn values_of(text: &str) -> usize {
    let (mut quoted, mut escaped, mut values) = (false, false, 1);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            // A JSON string cannot contain a line break.
            b'\n' => quoted = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values
}

impl Format {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/jsonl",
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Tree | Self::Units | Self::Mem0 | Self::Letta => "application/json",
        }
    }

    fn read(self, text: &str) -> Result<Vec<Placed>, KnowledgeError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let wrong = |what: String| KnowledgeError::invalid("body", what);
        let many = || wrong(format!("has at most {IMPORTED_MAX} records"));
        // The count is checked before the text is parsed.
        if matches!(self, Self::Jsonl | Self::Units) && text.lines().nth(LINES_MAX).is_some() {
            return Err(many());
        }
        if self != Self::Markdown && values_of(text) > VALUES_MAX {
            return Err(wrong(format!("has at most {VALUES_MAX} values")));
        }
        let records = |records: Records| placed(records, None, Item::Record);
        if !matches!(self, Self::Jsonl | Self::Markdown)
            && let Some(repeated) = repeated_member(text.as_bytes())
        {
            return Err(wrong(format!("is no JSON: {repeated}")));
        }
        let whole = || serde_json::from_str::<Value>(text).map_err(|error| wrong(format!("is no JSON: {error}")));
        let items = match self {
            Self::Jsonl => records(lines(text)),
            Self::Tree => {
                let files = tree::read(&whole()?).map_err(wrong)?;
                files.into_iter().flat_map(|(file, records)| placed(records, Some(&file), Item::Record)).collect()
            }
            Self::Units => {
                let units = match serde_json::from_str::<Value>(text) {
                    Ok(Value::Array(units)) => units.into_iter().take(IMPORTED_MAX + 1).map(object).collect(),
                    Ok(mut wrapped) if wrapped["data"].is_array() => match wrapped["data"].take() {
                        Value::Array(units) => units.into_iter().take(IMPORTED_MAX + 1).map(object).collect(),
                        _ => Vec::new(),
                    },
                    _ => lines(text),
                };
                placed(units, None, Item::Unit)
            }
            Self::Markdown => records(markdown::read(text).map_err(wrong)?),
            Self::Mem0 => records(others::mem0(&whole()?).map_err(wrong)?),
            Self::Letta => records(others::letta(&whole()?).map_err(wrong)?),
        };
        match items.len() {
            0 => Err(wrong("has nothing in it that could be a record".to_owned())),
            1..=IMPORTED_MAX => Ok(items),
            _ => Err(many()),
        }
    }
}

fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err("is no JSON object".to_owned()),
    }
}

fn lines(text: &str) -> Records {
    // One line more than the maximum is read, to detect that there are too many.
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(IMPORTED_MAX + 1);
    let read = |line: &str| match repeated_member(line.as_bytes()) {
        Some(repeated) => Err(repeated),
        None => serde_json::from_str(line).map_err(|error| format!("is no JSON object: {error}")),
    };
    lines.map(read).collect()
}

/// Returns a record in export form, including the unit that it was contributed as. Counts and judgements of other
/// principals are not exported.
fn written(record: &Record) -> Map<String, Value> {
    let mut written = match json!(record) {
        Value::Object(written) => written,
        _ => Map::new(),
    };
    for told in ["status", "version", "visibility"] {
        written.remove(told);
    }
    if let Some(unit) = &record.unit {
        written.insert(UNIT_KEY.to_owned(), unit.clone());
    }
    written
}

fn only_read() -> KnowledgeError {
    KnowledgeError::invalid("format", "is one of jsonl, tree, units, markdown to export")
}

impl Knowledge {
    /// Exports the selected records that the caller may see. Units keep the words in which they were contributed. An
    /// export may take seconds, so it runs on a blocking thread, and each participant has at most one at a time.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for a format that only import supports, and [`KnowledgeError::TooMany`] if
    /// the caller's last export, or the maximum number of exports, is still running.
    pub async fn export(&self, format: Format, which: &Which, origin: &Origin) -> Result<String, KnowledgeError> {
        if matches!(format, Format::Mem0 | Format::Letta) {
            return Err(only_read());
        }
        let place = self.exports.take(&origin.principal);
        let refusal = |why| match why {
            NoPlace::Share => "your last export is not done; wait for it",
            NoPlace::All => "as many exports as may be are made; try again in a moment",
        };
        let place = place.map_err(|why| KnowledgeError::TooMany(refusal(why).into()))?;
        let records = self.all(which, origin).await?;
        let (this, caller) = (self.clone(), origin.principal.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let _place = place;
            this.written_down(format, &records, &caller)
        });
        // A panic of the export is an internal error, so it is passed on to the caller's task.
        writing.await.unwrap_or_else(|died| std::panic::resume_unwind(died.into_panic()))
    }

    fn written_down(&self, format: Format, records: &[Record], caller: &Principal) -> Result<String, KnowledgeError> {
        Ok(match format {
            Format::Jsonl => {
                let lines = records.iter().map(|record| Value::Object(written(record)).to_string() + "\n");
                lines.collect()
            }
            Format::Tree => tree::write(records).to_string(),
            Format::Units => {
                let shown = records.iter().filter(|record| crate::pulse::shows(record, caller));
                let units = self.as_units(shown, None, None)?;
                json!(units.into_iter().map(|(_, unit)| unit).collect::<Vec<_>>()).to_string()
            }
            Format::Markdown => records.iter().map(markdown::write).collect::<Vec<_>>().join("\n"),
            Format::Mem0 | Format::Letta => return Err(only_read()),
        })
    }

    /// Imports records, each as a request of the caller. With `dry_run` nothing is written, and only faults are
    /// reported.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for a request that cannot be parsed, or is too large.
    pub async fn import(
        &self,
        format: Format,
        text: &str,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<Imported, KnowledgeError> {
        let mut done = Imported { dry_run, ..Imported::default() };
        let mut rehearsal = dry_run.then(Rehearsal::default);
        for (place, item) in format.read(text)? {
            let id = match &item {
                Ok(Item::Record(item) | Item::Unit(item)) => item.get("id").filter(|id| id.is_string()).cloned(),
                Err(_) => None,
            };
            let taken = match item {
                Ok(Item::Record(record)) => self.take_record(record, rehearsal.as_mut(), origin).await,
                Ok(Item::Unit(unit)) => Box::pin(self.take_unit(unit, rehearsal.as_mut(), origin)).await,
                Err(what) => Err(KnowledgeError::Refused(what)),
            };
            match taken {
                Ok((is_new, warnings)) => {
                    *(if is_new { &mut done.imported } else { &mut done.unchanged }) += 1;
                    done.warnings.extend(warnings);
                }
                // The outcome lists the records imported so far, and the place where the import stopped.
                Err(error @ KnowledgeError::Nexus(_)) if done.imported > 0 => {
                    let mut stopped = json!({"at": place.at, "error": error.to_string()});
                    if let Some(file) = place.file {
                        stopped["file"] = file.into();
                    }
                    done.stopped = Some(stopped);
                    break;
                }
                Err(error @ KnowledgeError::Nexus(_)) => return Err(error),
                Err(error) => {
                    done.refused += 1;
                    if done.errors.len() < TOLD_MAX {
                        let mut told = json!({"at": place.at, "error": error.to_string()});
                        for (member, said) in [("file", place.file.map(Value::from)), ("id", id)] {
                            if let Some(said) = said {
                                told[member] = said;
                            }
                        }
                        store::secrets::clean(&mut told);
                        done.errors.push(told);
                    }
                }
            }
        }
        Ok(done)
    }

    /// Imports are serialized, so the second of two equal imports finds the record of the first.
    async fn take_record(
        &self,
        mut record: Map<String, Value>,
        rehearsal: Option<&mut Rehearsal>,
        origin: &Origin,
    ) -> Result<(bool, Vec<String>), KnowledgeError> {
        // A record without an id gets an id derived from its content, so a repeated import does not store it twice.
        if record.get("id").is_none_or(Value::is_null) {
            let told = json!([
                origin.principal.id,
                record.get("owner"),
                record.get("scopes"),
                record.get("task"),
                record.get("content")
            ]);
            record.insert(
                "id".to_owned(),
                format!("knowledge-in-{}", &Hash::of(told.to_string().as_bytes()).hex()[..16]).into(),
            );
        }
        let _turn = self.taking.lock().await;
        let draft = Draft::read(record, &origin.principal)?;
        let id = draft.id.clone().unwrap_or_default();
        let by = &origin.principal;
        let is_operator = by.may(store::Role::Operator);
        match self.any(&id, origin).await {
            Ok(known) if known.status == Status::Active => match says(&known, &draft) {
                true => {
                    if rehearsal.is_none() && (is_operator || by.answers_for(&known.owner)) {
                        self.link_what_came_later(&known, origin).await?;
                    }
                    return Ok((false, kept_as_it_is(&known, &draft)));
                }
                false => return Err(says_something_else(&id)),
            },
            Ok(known) if is_operator || by.answers_for(&known.owner) => {
                return Err(KnowledgeError::Conflict(format!("{id} was deleted here: a rollback has it back")));
            }
            Ok(_) => return Err(KnowledgeError::Conflict(format!("the id {id} is taken"))),
            Err(KnowledgeError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let Some(rehearsal) = rehearsal else {
            return Ok((true, self.save(draft, None, origin).await?.warnings));
        };
        let told = |draft: &Draft| {
            let Body { task, content, types, .. } = &draft.body;
            json!([task, content, types, draft.owner, draft.scopes])
        };
        match rehearsal.records.get(&id) {
            Some(earlier) if same_json_but_for_secrets(&told(earlier), &told(&draft)) => {
                return Ok((false, Vec::new()));
            }
            Some(_) => return Err(says_something_else(&id)),
            None => {}
        }
        let names = draft.body.names();
        if let Some(taken) = names.iter().find(|name| rehearsal.units.contains_key(*name)) {
            return Err(KnowledgeError::Conflict(format!("the id {taken} is taken")));
        }
        let warnings = self.rehearse(draft.clone(), origin).await?;
        rehearsal.units.extend(names.into_iter().map(|name| (name, Value::Null)));
        rehearsal.records.insert(id, draft);
        Ok((true, warnings))
    }

    async fn take_unit(
        &self,
        unit: Map<String, Value>,
        rehearsal: Option<&mut Rehearsal>,
        origin: &Origin,
    ) -> Result<(bool, Vec<String>), KnowledgeError> {
        if let Some(id) = unit.get("id").and_then(Value::as_str) {
            let own = Origin::system("whose a unit was");
            let is = async |wanted: Status| self.unit_that(id, &|status| status == wanted, &own).await;
            let by = &origin.principal;
            let was_deleted = |record: Record| by.may(store::Role::Operator) || by.answers_for(&record.owner);
            if is(Status::Active).await?.is_none() && is(Status::Retracted).await?.is_some_and(was_deleted) {
                return Err(KnowledgeError::Conflict(format!("{id} was deleted here: a rollback has it back")));
            }
        }
        let Some(rehearsal) = rehearsal else {
            // A unit that was changed since is not overwritten by an import.
            let taken = Box::pin(self.keep_unit(unit, None, false, None, origin)).await?;
            return Ok((taken.is_new, taken.warnings));
        };
        let (id, said) = (unit.get("id").and_then(Value::as_str).map(str::to_owned), Value::from(unit.clone()));
        match id.as_ref().and_then(|id| rehearsal.units.get(id)) {
            Some(earlier) if *earlier == said => return Ok((false, Vec::new())),
            Some(_) => return Err(says_something_else(&id.unwrap_or_default())),
            None => {}
        }
        let taken = Box::pin(self.rehearse_unit(unit, origin)).await?;
        rehearsal.units.extend(id.map(|id| (id, said)));
        Ok(taken)
    }
}

/// The records that a dry run would have created so far.
#[derive(Default)]
struct Rehearsal {
    records: HashMap<String, Draft>,
    units: HashMap<String, Value>,
}

/// Returns the parts of a draft that are ignored, because a record with the same text exists.
fn kept_as_it_is(known: &Record, draft: &Draft) -> Vec<String> {
    let body = &draft.body;
    let other = |said: Value, known: Value| !same_json_but_for_secrets(&said, &known);
    let members = [
        ("tags", body.tags.as_ref().is_some_and(|tags| other(json!(tags), json!(known.tags)))),
        ("context", body.context.as_ref().is_some_and(|context| other(json!(context), json!(known.context)))),
        ("resource_ids", body.resource_ids.iter().flatten().any(|resource| !known.resource_ids.contains(resource))),
        ("score", draft.score != known.eval.score && draft.score != SCORE),
        ("members of its own", other(json!(body.extra), json!(known.extra)) && !body.extra.is_empty()),
    ];
    let differing: Vec<&str> = members.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    match differing.is_empty() {
        true => Vec::new(),
        false => vec![format!("{} is there, with another {}, and stays as it is", known.id, differing.join(", "))],
    }
}

/// Returns `true` if a record has the content of a draft. A secret in the draft is compared in its removed or sealed
/// form.
fn says(known: &Record, draft: &Draft) -> bool {
    let body = &draft.body;
    let same = |said: &Option<String>, known: &str| said.as_ref().is_some_and(|said| same_but_for_secrets(said, known));
    same(&body.task, &known.task)
        && same(&body.content, &known.content)
        && body.types.as_ref() == Some(&known.types)
        && draft.owner == known.owner
        && draft.scopes == known.scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, text: &str) -> Vec<Value> {
        let item = |(_, item): Placed| match item {
            Ok(Item::Record(record) | Item::Unit(record)) => Value::Object(record),
            Err(what) => Value::String(what),
        };
        format.read(text).unwrap().into_iter().map(item).collect()
    }

    #[test]
    fn lines_that_are_none_are_told_by_their_place() {
        let read = read(Format::Jsonl, "{\"task\":\"a\"}\n\n[1]\n{\n");
        assert_eq!(read[0], json!({"task": "a"}));
        assert!(read[1].as_str().unwrap().contains("no JSON object") && read[2].is_string());
    }

    #[test]
    fn what_other_memories_export_becomes_records() {
        let mem0 = json!({"results": [
            {"id": "m-1", "memory": "Likes green tea", "user_id": "ada", "categories": ["food"], "metadata": {"mood": "calm"}, "created_at": "2026-01-02T03:04:05Z"},
            {"id": "m-2", "memory": "Deploys run at noon", "agent_id": "ops"}, {"id": "m-3"}]});
        let found = read(Format::Mem0, &mem0.to_string());
        assert_eq!(found[0]["content"], "Likes green tea");
        assert_eq!((&found[0]["types"], &found[0]["scopes"]), (&json!(["user_profile"]), &json!(["user:ada"])));
        assert_eq!(
            found[0]["source"],
            json!({"name": "mem0", "category": "exp", "trace_id": "m-1", "timestamp": "2026-01-02T03:04:05Z"})
        );
        assert_eq!((&found[1]["types"], &found[1]["scopes"]), (&json!(["definition"]), &json!(["agent:ops"])));
        assert!(found[2].is_string(), "{}", found[2]);
        let letta = json!({"agents": [{"name": "sam"}], "blocks": [
            {"id": "block-0", "label": "human", "value": "Her name is Ada.\nShe sails."}, {"label": "persona", "value": ""}, {"label": "harbour", "value": "Channel 9"}, {"label": "odd", "value": 7}]});
        let found = read(Format::Letta, &letta.to_string());
        assert_eq!((found.len(), &found[0]["types"]), (3, &json!(["user_profile"])));
        assert_eq!(found[2], "has a value that is no text");
        assert_eq!((&found[1]["task"], &found[1]["content"]), (&json!("harbour"), &json!("Channel 9")));
        let passages = json!([{"text": "Channel 9", "id": "passage-1"}]);
        assert_eq!(read(Format::Letta, &passages.to_string())[0]["content"], "Channel 9");
        assert!(Format::Letta.read("3").is_err() && Format::Mem0.read("{").is_err());
    }

    #[test]
    fn a_file_of_markdown_becomes_a_record_a_section() {
        let found = read(Format::Markdown, "intro\n\n# Harbour\nChannel 9.\n\n## Depth\nThree metres.\n# Empty\n");
        let records: Vec<(&Value, &Value)> = found.iter().map(|record| (&record["task"], &record["content"])).collect();
        assert_eq!(
            records,
            [
                (&json!("Notes"), &json!("intro")),
                (&json!("Harbour"), &json!("Channel 9.")),
                (&json!("Harbour › Depth"), &json!("Three metres.")),
            ]
        );
        for none in ["just a text\n\nof two parts", "# Title only\n"] {
            assert!(Format::Markdown.read(none).is_err(), "{none}");
        }
        let code = "# A\n```sh\n# no heading\n```\n";
        assert_eq!(read(Format::Markdown, code)[0]["content"], "```sh\n# no heading\n```");
    }
}
