//! A record as a client posts it, and the validation of each member (MISSION R1, H2).

use nexus::kip::graph::Ids;
use nexus::{PROVENANCE_KEY, Provenance};
use serde::Serialize;
use serde_json::{Map, Value};
use store::Principal;
use store::secrets::redacted;

use crate::fields::{Fault, Fields, is_invisible};
use crate::record::{SCORE, Type, UNIT_KEY};
use crate::scope::{self, Visibility};
use crate::skill;
use crate::unit::Contributed;

/// The maximum length of a task, in characters.
pub const TASK_CHARS_MAX: usize = 2_000;
/// The maximum length of a content, in characters.
pub const CONTENT_CHARS_MAX: usize = 100_000;
/// The maximum number of context texts, and the maximum length of each in characters.
const CONTEXT_MAX: usize = 8;
const CONTEXT_CHARS_MAX: usize = 4_000;
/// The maximum number of items in other lists.
const ITEMS_MAX: usize = 32;
/// The maximum length of a name, a label or an id, in characters.
const NAME_CHARS_MAX: usize = 200;
/// The maximum length of a message id with its place, in characters.
const MESSAGE_CHARS_MAX: usize = 400;
/// The maximum length of a URL, in characters.
const URL_CHARS_MAX: usize = 2_000;
/// The maximum size of the unknown members that are kept, in bytes.
const EXTRA_BYTES_MAX: usize = 16 << 10;
/// The scope that older clients send for the owner's own scope.
pub(crate) const OWNERS_OWN: &str = "user:owner";

/// A validated record to write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Draft {
    /// The id from an earlier store; `None` generates a new id.
    pub id: Option<String>,
    /// The owner.
    pub owner: String,
    /// The scopes that may read the record.
    pub scopes: Vec<String>,
    /// The content.
    pub body: Body,
    /// The score, from 1 to 5.
    pub score: f64,
    /// The confidence from 0 to 1; `None` uses the default.
    pub confidence: Option<f64>,
    /// The first helpful case. A record that was learned from a statement starts with one.
    pub first_case: Option<Map<String, Value>>,
    /// The id of the message that the record comes from.
    pub message_id: Option<String>,
    /// The source.
    pub source: Map<String, Value>,
    /// The provenance of a lifeform's record, if the daemon knows it. No request sets it.
    #[serde(skip)]
    pub provenance: Option<Provenance>,
    /// The parts of the request that were not accepted, with reasons.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The content of a record. In a change, `None` keeps a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Body {
    /// The task: see [`crate::Record`].
    pub task: Option<String>,
    /// The content: see [`crate::Record`].
    pub content: Option<String>,
    /// The types: see [`crate::Record`].
    pub types: Option<Vec<Type>>,
    /// The tags: see [`crate::Record`].
    pub tags: Option<Map<String, Value>>,
    /// The context: see [`crate::Record`].
    pub context: Option<Vec<String>>,
    /// The resource ids: see [`crate::Record`].
    pub resource_ids: Option<Vec<String>>,
    /// The further members: see [`crate::Record`].
    pub extra: Map<String, Value>,
    /// The KnowledgeUnit that the record is contributed as.
    pub unit: Option<Value>,
}

impl Draft {
    /// Creates a draft of a new record with the default score.
    pub(crate) fn new(owner: String, scopes: Vec<String>, body: Body) -> Self {
        Self {
            id: None,
            owner,
            scopes,
            body,
            score: SCORE,
            confidence: None,
            first_case: None,
            message_id: None,
            source: Map::new(),
            provenance: None,
            warnings: Vec::new(),
        }
    }

    /// Parses and validates the record that `by` posts.
    ///
    /// # Errors
    /// Returns every fault of the request.
    pub fn read(posted: Map<String, Value>, by: &Principal) -> Result<Self, Vec<Fault>> {
        let mut fields = Fields::of(posted);
        let mut warnings = Vec::new();
        let id = fields.text("id", NAME_CHARS_MAX);
        if id.as_ref().is_some_and(|id| !is_id(id)) {
            fields.fault("id", "is a name in one line, with no space around it, and none of search, export, import, slim, batch_update");
        }
        let owner = owner(&mut fields).unwrap_or_else(|| by.id.0.to_string());
        let scopes = scopes(&mut fields, &owner, by, &mut warnings).unwrap_or_else(|| vec![owner.clone()]);
        let mut body = Body::take(&mut fields);
        for (key, given) in
            [("task", body.task.is_some()), ("content", body.content.is_some()), ("types", body.types.is_some())]
        {
            if !given {
                fields.missing(key);
            }
        }
        let (score, confidence) = eval(&mut fields, &mut warnings);
        let (source, message_id) = source(&mut fields);
        // Members that the daemon computes are ignored.
        for computed in
            ["created_at", "updated_at", "quality_score", "version", "status", "kp_id", "relevance", PROVENANCE_KEY]
        {
            if fields.take(computed).is_some() {
                warnings.push(format!("`{computed}` is computed by the daemon and was ignored"));
            }
        }
        if fields.take("secure_body").is_some() {
            fields.fault("secure_body", "is of resources, and is kept with nothing else");
        }
        body.unit = unit(&mut fields);
        let head = skill_head(&mut fields, body.content.as_deref());
        body.extra = extra(&mut fields);
        body.extra.extend(head.map(|head| (skill::MEMBER.to_owned(), head)));
        fields.end()?;
        Ok(Self {
            id,
            score: score.unwrap_or(SCORE),
            confidence,
            message_id,
            source,
            warnings,
            ..Self::new(owner, scopes, body)
        })
    }
}

impl Body {
    /// Removes the members of a body from `fields` and parses them.
    pub(crate) fn take(fields: &mut Fields) -> Self {
        let plain = |most: usize| {
            move |text: &str| match text.trim().is_empty() || text.chars().count() > most {
                true => Err(format!("is a text of 1 to {most} characters")),
                false => Ok(()),
            }
        };
        // Older clients send a single `type`.
        let key = if fields.has("types") { "types" } else { "type" };
        let types = fields.texts(key, Type::ALL.len(), &|name| Type::parse(name).map(|_| ()));
        if types.as_ref().is_some_and(Vec::is_empty) {
            fields.fault(key, "names at least one type");
        }
        if key == "types" {
            fields.take("type");
        }
        let mut resource_ids = fields.texts("resource_ids", ITEMS_MAX, &check_resource_id);
        if let Some(secure) = fields.texts("secure_resource_id", ITEMS_MAX, &check_resource_id) {
            resource_ids.get_or_insert_default().extend(secure);
        }
        let tags = fields.object("tags");
        check_tags(fields, tags.as_ref());
        Self {
            task: fields.text("task", TASK_CHARS_MAX),
            content: fields.text("content", CONTENT_CHARS_MAX),
            types: types.map(|types| types.iter().filter_map(|name| Type::parse(name).ok()).collect()),
            tags,
            context: fields.texts("context", CONTEXT_MAX, &plain(CONTEXT_CHARS_MAX)),
            resource_ids,
            ..Self::default()
        }
    }

    /// Returns the ids of the unit protocol that belong to the record and that no other record may use.
    pub(crate) fn names(&self) -> Vec<String> {
        let unit = self.unit.as_ref().and_then(|unit| unit["id"].as_str().map(str::to_owned));
        unit.into_iter().chain(self.extra.get(skill::MEMBER).and_then(skill::id_in)).collect()
    }

    /// Returns `true` if the record has ids of the unit protocol.
    pub(crate) fn is_named(&self) -> bool {
        self.unit.is_some() || self.extra.contains_key(skill::MEMBER)
    }

    /// Returns `true` if no part is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn check_tags(fields: &mut Fields, tags: Option<&Map<String, Value>>) {
    let Some(tags) = tags else { return };
    if tags.len() > ITEMS_MAX {
        fields.fault("tags", format!("has at most {ITEMS_MAX} labels"));
    }
    for (label, value) in tags {
        let short = |value: &Value| match value {
            Value::String(text) => text.chars().count() <= NAME_CHARS_MAX,
            Value::Number(_) | Value::Bool(_) | Value::Null => true,
            _ => false,
        };
        let fits = match value {
            Value::Array(items) => items.len() <= ITEMS_MAX && items.iter().all(short),
            plain => short(plain),
        };
        if !fits || label.chars().count() > NAME_CHARS_MAX {
            fields.fault(
                "tags",
                format!("has labels and values of up to {NAME_CHARS_MAX} characters, or lists of those"),
            );
            return;
        }
    }
}

/// Reads the owner of a record.
pub(crate) fn owner(fields: &mut Fields) -> Option<String> {
    let owner = fields.text_or_nothing("owner", NAME_CHARS_MAX)?;
    if let Err(what) = scope::check_owner(&owner) {
        fields.fault("owner", what);
    }
    Some(owner)
}

/// Reads the scopes of a record, if they are given.
pub(crate) fn scopes(
    fields: &mut Fields,
    owner: &str,
    by: &Principal,
    warnings: &mut Vec<String>,
) -> Option<Vec<String>> {
    let named = fields.texts("scopes", ITEMS_MAX, &scope::check);
    let visibility = fields.text_or_nothing("visibility", NAME_CHARS_MAX);
    match (named, visibility) {
        (Some(named), visibility) => {
            if visibility.is_some() {
                warnings.push("visibility follows from the scopes and was not looked at".to_owned());
            }
            if named.is_empty() {
                fields.fault("scopes", "names at least one scope");
            }
            let own = |scope: String| if scope == OWNERS_OWN { owner.to_owned() } else { scope };
            Some(named.into_iter().map(own).collect())
        }
        (None, Some(word)) => {
            let meant = Visibility::scopes(&word, owner, by, warnings);
            if meant.is_none() {
                fields.fault("visibility", "is one of private, shared, org, public, network");
            }
            meant
        }
        (None, None) => None,
    }
}

/// Reads the score and the confidence, either at the top level or in `eval`.
fn eval(fields: &mut Fields, warnings: &mut Vec<String>) -> (Option<f64>, Option<f64>) {
    let top = fields.number("score", 1.0, 5.0);
    let inner = fields.inner("eval", |eval| (eval.number("score", 1.0, 5.0), eval.number("confidence", 0.0, 1.0)));
    let Some(((score, confidence), left)) = inner else { return (top, None) };
    if !left.is_empty() {
        warnings.push("of eval only score and confidence are taken: the rest is counted as people say so".to_owned());
    }
    (top.or(score), confidence)
}

/// Reads the source of a record and its message id. A message id in one of the two places fills the other.
fn source(fields: &mut Fields) -> (Map<String, Value>, Option<String>) {
    let top = fields.text_or_nothing("message_id", MESSAGE_CHARS_MAX);
    let trace = fields.text_or_nothing("trace_id", NAME_CHARS_MAX);
    let url = |text: &str| match (1..=URL_CHARS_MAX).contains(&text.chars().count()) {
        true => Ok(()),
        false => Err(format!("is an address of up to {URL_CHARS_MAX} characters")),
    };
    let mut source = Map::new();
    let mut inner = None;
    if let Some((read, left)) = fields.inner("source", |source| {
        let mut read = Map::new();
        for key in ["name", "category", "agent_id", "submitted_by", "timestamp", "trace_id"] {
            if let Some(text) = source.text_or_nothing(key, NAME_CHARS_MAX) {
                read.insert(key.to_owned(), text.into());
            }
        }
        if let Some(urls) = source.texts("urls", ITEMS_MAX, &url) {
            read.insert("urls".to_owned(), urls.into());
        }
        (read, source.text_or_nothing("message_id", MESSAGE_CHARS_MAX))
    }) {
        (source, inner) = read;
        source.extend(left);
    }
    if let Some(trace) = trace {
        source.entry("trace_id").or_insert(trace.into());
    }
    let message = top.or(inner);
    if let Some(message) = &message {
        source.insert("message_id".to_owned(), message.clone().into());
    }
    if Value::Object(source.clone()).to_string().len() > EXTRA_BYTES_MAX {
        fields.fault("source", format!("is at most {EXTRA_BYTES_MAX} bytes"));
    }
    (source, message)
}

/// Reads the unit that the record was contributed as in another store. It keeps its id and its members.
fn unit(fields: &mut Fields) -> Option<Value> {
    let unit = fields.object(UNIT_KEY)?;
    match Contributed::whole(unit) {
        Ok(Contributed { document, .. }) => Some(document),
        Err(faults) => {
            for Fault { path, what } in faults {
                fields.fault(&format!("{UNIT_KEY}.{path}"), what);
            }
            None
        }
    }
}

/// Reads the header of the record's skill.
fn skill_head(fields: &mut Fields, guide: Option<&str>) -> Option<Value> {
    let head = fields.take(skill::MEMBER)?;
    if let Err(what) = skill::check(&head, guide.unwrap_or_default()) {
        fields.fault(skill::MEMBER, what);
    }
    Some(head)
}

/// Returns the unknown members unchanged.
pub(crate) fn extra(fields: &mut Fields) -> Map<String, Value> {
    let extra = fields.rest();
    if Value::Object(extra.clone()).to_string().len() > EXTRA_BYTES_MAX {
        fields.fault("", format!("members that are not known are kept, up to {EXTRA_BYTES_MAX} bytes of them"));
    }
    extra
}

/// Names of API routes, which cannot be ids of records.
const ROUTES: [&str; 5] = ["search", "export", "import", "slim", "batch_update"];

/// Returns `true` if a text may be the id of a record: a KIP name of one line that does not look like an element id.
fn is_id(id: &str) -> bool {
    let is_seen = |c: char| !(c.is_control() || is_invisible(c));
    let is_step = [".", ".."].contains(&id);
    id == id.trim() && id.chars().all(is_seen) && !is_step && !ROUTES.contains(&id) && !Ids::is_id(id)
}

/// Checks the id of a resource, which is a path of names.
pub(crate) fn check_resource_id(id: &str) -> Result<(), String> {
    let name = |part: &str| {
        !part.is_empty()
            && part != ".."
            && part != "."
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match id.len() <= 256 && id.split('/').all(name) {
        true if redacted(id).is_some() => Err("holds a secret".to_owned()),
        true => Ok(()),
        false => Err("is a path of letters, digits, '.', '_' and '-', as in code/selenium/login".to_owned()),
    }
}
