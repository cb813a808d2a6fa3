//! Resources: material that records need, such as code, files and accounts (MISSION H4). The public part is a concept
//! of type `Resource`. The secret part is sealed in a separate document; it is shown only on a request with a reason,
//! and only to principals with the right to see it.

use std::fmt::Write;

use jiff::Timestamp;
use nexus::kip::datum::{Datum, Sym};
use nexus::kip::graph::{Concept, ElementId, ElementRef, GraphRead, SCOPES_KEY};
use nexus::{HAS_SECRET_KEY, OWNER_KEY, SEAL_KEY, WriteAuthority};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::secrets::redacted;
use store::{Batch, Expect, Key, Kind, Origin, Principal, Role, Stream};

use crate::draft::{CONTENT_CHARS_MAX, check_resource_id, scopes as read_scopes};
use crate::fields::{Fault, Fields};
use crate::materials::is_kept_id;
use crate::record::{object, texts};
use crate::scope::PUBLIC;
use crate::seal::{Place, SealError, Sealed};
use crate::write::write_object;
use crate::{Knowledge, KnowledgeError, commons, outcome, warned};

/// The concept type of resources.
const KIND: &str = "Resource";
/// The metadata key of the scopes that may read the sealed part.
const REVEAL_KEY: &str = "reveal_scopes";
const TITLE_CHARS_MAX: usize = 500;
const TYPE_CHARS_MAX: usize = 100;
const SECRET_CHARS_MAX: usize = 64 << 10;
const ABOUT_BYTES_MAX: usize = 16 << 10;
const SCOPES_MAX: usize = 32;
const STRETCH: usize = 4_096;

/// A resource as its readers see it, without the sealed part.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Resource {
    /// The id, a path of names such as `code/selenium/login`.
    pub id: String,
    /// The title.
    pub title: String,
    /// The public text.
    pub body: String,
    /// `text`, `code`, `credential`, `cookie`, `config`, `file`, or another.
    pub content_type: String,
    /// The metadata: `language`, `acquired_at`, `expires_at` …
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// `true` if there is a sealed part.
    pub has_secure_body: bool,
    /// Always null: the sealed part is never returned here.
    #[schema(value_type = Option<String>)]
    pub secure_body: (),
    /// The owner, who may change and delete the resource and read the sealed part.
    pub owner: String,
    /// The scopes that may read the public part.
    pub scopes: Vec<String>,
    /// The scopes besides the owner that may read the sealed part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reveal_scopes: Vec<String>,
    /// The number of the version, from 1.
    pub version: u64,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    #[serde(skip)]
    seal: String,
}

/// The requested state of a resource. Parts that are `None` keep their value in an existing resource.
///
/// A draft may hold a secret, so it cannot be serialized:
///
/// ```compile_fail,E0277
/// fn written(what: &impl serde::Serialize) -> String {
///     serde_json::to_string(what).unwrap()
/// }
/// written(&knowledge::ResourceDraft::default());
/// ```
#[derive(Debug, Default)]
pub struct ResourceDraft {
    id: String,
    owner: Option<String>,
    scopes: Option<Vec<String>>,
    reveal_scopes: Option<Vec<String>>,
    title: Option<String>,
    body: Option<String>,
    content_type: Option<String>,
    about: Option<Map<String, Value>>,
    secret: Option<Option<SecretString>>,
    warnings: Vec<String>,
}

impl ResourceDraft {
    /// Reads a posted resource, or a change of the resource `id`.
    ///
    /// # Errors
    /// Returns every fault of the request.
    pub fn read(posted: Map<String, Value>, id: Option<&str>, by: &Principal) -> Result<Self, Vec<Fault>> {
        let mut fields = Fields::of(posted);
        let mut draft = Self { id: id.map(str::to_owned).unwrap_or_default(), ..Self::default() };
        match (id, fields.text("id", 256)) {
            (None, Some(named)) => draft.id = named,
            (None, None) => fields.missing("id"),
            (Some(_), Some(_)) => fields.fault("id", "is said in the path"),
            (Some(_), None) => {}
        }
        if id.is_none() && is_kept_id(&draft.id) {
            fields.fault("id", "begins like those that the daemon gives to what people say");
        }
        if let Err(what) = check_resource_id(&draft.id)
            && !draft.id.is_empty()
        {
            fields.fault("id", what);
        }
        draft.owner = crate::draft::owner(&mut fields);
        let owner = draft.owner.clone().unwrap_or_else(|| by.id.0.to_string());
        draft.scopes = read_scopes(&mut fields, &owner, by, &mut draft.warnings);
        draft.reveal_scopes = fields.texts(REVEAL_KEY, SCOPES_MAX, &crate::scope::check);
        draft.title = fields.text_or_nothing("title", TITLE_CHARS_MAX);
        draft.body = fields.text_or_nothing("body", CONTENT_CHARS_MAX);
        draft.content_type = fields.text_or_nothing("content_type", TYPE_CHARS_MAX);
        draft.about = fields.object("metadata");
        if draft.about.as_ref().is_some_and(|about| Value::Object(about.clone()).to_string().len() > ABOUT_BYTES_MAX) {
            fields.fault("metadata", format!("is at most {ABOUT_BYTES_MAX} bytes"));
        }
        if draft.about.as_ref().is_some_and(|about| about.contains_key("secure_body")) {
            fields.fault("metadata.secure_body", "stands beside the metadata, where it is sealed");
        }
        let until = draft.about.as_ref().and_then(|about| about.get("expires_at"));
        if until.is_some_and(|until| until.as_str().is_none_or(|until| until.parse::<Timestamp>().is_err())) {
            fields.fault("metadata.expires_at", "is a time, as in 2026-03-07T10:00:00Z");
        }
        let hosts = draft.about.as_ref().and_then(|about| about.get("hosts"));
        if hosts.is_some_and(|hosts| !hosts.as_array().is_some_and(|hosts| hosts.iter().all(Value::is_string))) {
            fields.fault(
                "metadata.hosts",
                "is a list of hosts and MCP servers, as in [\"api.example.com\", \"mcp:files\"]",
            );
        }
        draft.secret = fields.secret("secure_body", SECRET_CHARS_MAX);
        for unknown in fields.rest().keys() {
            fields.fault(unknown, "is no member of a resource");
        }
        fields.end()?;
        Ok(draft)
    }
}

impl Resource {
    fn of(concept: &Concept) -> Self {
        let (attributes, metadata) = (&concept.attributes, &concept.metadata);
        let text = |key: &str| attributes.named(key).and_then(Datum::as_str).unwrap_or_default().to_owned();
        let scopes = match metadata.named(SCOPES_KEY) {
            None | Some(Datum::Null) => vec![PUBLIC.to_owned()],
            Some(listed) => texts(listed),
        };
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
        let content_type = text("content_type");
        Self {
            id: concept.name.to_string(),
            title: text("title"),
            body: text("body"),
            content_type: if content_type.is_empty() { "text".to_owned() } else { content_type },
            metadata: object(attributes, "metadata"),
            has_secure_body: matches!(attributes.named(HAS_SECRET_KEY), Some(Datum::Bool(true))),
            secure_body: (),
            owner: metadata.named(OWNER_KEY).and_then(Datum::as_str).unwrap_or("system:daemon").to_owned(),
            scopes,
            reveal_scopes: metadata.named(REVEAL_KEY).map(texts).unwrap_or_default(),
            version: concept.stamp.version(),
            created_at: time(concept.stamp.created),
            updated_at: time(concept.stamp.updated()),
            seal: metadata.named(SEAL_KEY).and_then(Datum::as_str).unwrap_or_default().to_owned(),
        }
    }

    fn place(&self) -> Place<'_> {
        Place { row: &self.id, owner: &self.owner, seal: &self.seal }
    }

    /// Returns `true` if the resource has expired.
    fn is_past(&self, now: Timestamp) -> bool {
        let until = self.metadata.get("expires_at").and_then(Value::as_str);
        until.and_then(|until| until.parse::<Timestamp>().ok()).is_some_and(|until| until <= now)
    }
}

fn sealed_key(id: &str) -> Key {
    Key::new(Kind::Sealed, id)
}

/// Returns the stream that records the reveals of a resource.
fn reveals(id: &str) -> Stream {
    format!("reveals:{id}").into()
}

impl ResourceDraft {
    /// Creates a draft for material that was found in the text of its owner, who alone sees it.
    pub(crate) fn of_material(
        id: String,
        owner: &str,
        (title, content_type): (String, &str),
        body: String,
        about: Map<String, Value>,
        secret: Option<SecretString>,
    ) -> Self {
        Self {
            id,
            owner: Some(owner.to_owned()),
            scopes: Some(vec![owner.to_owned()]),
            title: Some(title),
            body: Some(body),
            content_type: Some(content_type.to_owned()),
            about: Some(about),
            secret: secret.map(Some),
            ..Self::default()
        }
    }

    /// Creates a draft for a secret that was found in a text.
    pub(crate) fn found(id: String, kind: &str, secret: &str, owner: &str, scopes: &[String]) -> Self {
        Self {
            id,
            owner: Some(owner.to_owned()),
            scopes: Some(scopes.to_vec()),
            title: Some(format!("a {kind} that was found in a record")),
            content_type: Some("credential".to_owned()),
            secret: Some(Some(SecretString::from(secret.to_owned()))),
            ..Self::default()
        }
    }
}

impl Knowledge {
    /// Returns a resource that the caller may see, without the sealed part.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::NoResource`] if it does not exist or the caller may not see it.
    pub async fn resource(&self, id: &str, origin: &Origin) -> Result<Resource, KnowledgeError> {
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let found = sight.look(|graph| look(graph, graph.concept(Sym::new(KIND), id)?))?;
        found.ok_or_else(|| KnowledgeError::NoResource(id.to_owned()))
    }

    /// Returns `true` if there is a resource with that id, whether or not the caller may see it.
    async fn is_taken(&self, id: &str) -> Result<bool, KnowledgeError> {
        match self.resource(id, &Origin::system("whose a resource is")).await {
            Ok(_) => Ok(true),
            Err(KnowledgeError::NoResource(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the resources that the caller may see, ordered by id, filtered by a prefix of the id and by type.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read.
    pub async fn resources(
        &self,
        prefix: &str,
        content_type: Option<&str>,
        after: &str,
        limit: usize,
        origin: &Origin,
    ) -> Result<Vec<Resource>, KnowledgeError> {
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let mut found = sight.look(|graph| {
            let (kind, mut found, mut last) = (Sym::new(KIND), Vec::new(), ElementId::NONE);
            loop {
                let stretch = graph.of_type(kind, last, STRETCH);
                let Some(end) = stretch.last() else { break found };
                last = *end;
                found.extend(stretch.into_iter().filter_map(|el| look(graph, el)).filter(|resource| {
                    let of_type = content_type.is_none_or(|wanted| resource.content_type == wanted);
                    of_type && resource.id.starts_with(prefix) && resource.id.as_str() > after
                }));
            }
        })?;
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found.truncate(limit);
        Ok(found)
    }

    /// Creates or changes a resource. Returns `true` if it is new, and the parts of the request that were not accepted.
    /// The secret part is sealed before anything is written.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] if the caller does not own it, and [`KnowledgeError::Sealed`] without a
    /// key.
    pub async fn save_resource(
        &self,
        draft: ResourceDraft,
        must_be_there: bool,
        origin: &Origin,
    ) -> Result<(Resource, bool, Vec<String>), KnowledgeError> {
        let id = draft.id.clone();
        let _turn = self.changing(&id).lock().await;
        let known = match self.resource(&id, origin).await {
            Ok(known) => Some(known),
            Err(KnowledgeError::NoResource(_)) if !must_be_there => None,
            Err(error) => return Err(error),
        };
        let by = origin.principal.id.0.to_string();
        let owner = draft.owner.or_else(|| known.as_ref().map(|known| known.owner.clone())).unwrap_or(by);
        if !(origin.principal.answers_for(&owner) || origin.principal.may(Role::Operator)) {
            return Err(KnowledgeError::Forbidden(format!("{id} cannot be given to {owner}")));
        }
        let mut attributes = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                attributes.insert(key.to_owned(), value);
            }
        };
        set("title", draft.title.map(Value::from));
        set("body", draft.body.map(Value::from));
        set("content_type", draft.content_type.map(Value::from));
        set("metadata", draft.about.map(Value::Object));
        let mut metadata = Map::new();
        let seal = crate::write::random();
        let mut beside = Batch::new(origin);
        // A new owner also receives the sealed part, which is sealed again for that owner.
        let moved = match &known {
            Some(known) if known.has_secure_body && known.owner != owner && draft.secret.is_none() => {
                Some(Some(self.opened(known).await?))
            }
            _ => None,
        };
        if let Some(secret) = draft.secret.or(moved) {
            attributes.insert(HAS_SECRET_KEY.to_owned(), secret.is_some().into());
            metadata.insert(SEAL_KEY.to_owned(), secret.is_some().then(|| seal.clone()).into());
            beside = match &secret {
                Some(secret) => {
                    let place = Place { row: &id, owner: &owner, seal: &seal };
                    beside.put(sealed_key(&id), &self.keys.seal(secret, place)?)
                }
                None => beside.delete(sealed_key(&id), Expect::Any),
            };
        }
        let scopes = draft.scopes.or_else(|| known.is_none().then(|| vec![owner.clone()]));
        for (key, value) in [(SCOPES_KEY, scopes), (REVEAL_KEY, draft.reveal_scopes)] {
            if let Some(value) = value {
                metadata.insert(key.to_owned(), json!(value));
            }
        }
        metadata.insert(OWNER_KEY.to_owned(), owner.into());
        if known.is_none() {
            metadata.insert("author".to_owned(), json!(origin.principal.id));
            metadata.insert("status".to_owned(), "active".into());
        }
        let version = known.as_ref().map_or(0, |known| known.version);
        let mut parameters = Map::new();
        parameters.insert("id".into(), id.as_str().into());
        let mut text =
            format!("UPSERT {{\n  CONCEPT ?r {{\n    {{type: \"{KIND}\", name: $id}} EXPECT VERSION {version}\n");
        write_object(&mut text, "    SET ATTRIBUTES", "a_", &attributes, &mut parameters);
        text.push_str("  }");
        write_object(&mut text, " WITH METADATA", "m_", &metadata, &mut parameters);
        let _ = write!(text, "}}");
        let call = crate::write::call(text, Value::Object(parameters));
        let answer = self.nexus.write_with(&commons(), call, origin, WriteAuthority::Seal, beside.ops).await?;
        match outcome(&answer, &id) {
            // The resource exists and has another owner, so it is not reported as the caller's.
            Err(KnowledgeError::Forbidden(_) | KnowledgeError::Stale(_))
                if known.is_none() && self.is_taken(&id).await? =>
            {
                Err(KnowledgeError::Conflict(format!("the id {id} is taken")))
            }
            Err(error) => Err(error),
            Ok(_) => {
                let warnings = draft.warnings.into_iter().chain(warned(&answer)).collect();
                Ok((self.resource(&id, origin).await?, known.is_none(), warnings))
            }
        }
    }

    /// Deletes a resource and its sealed part. A resource that records need is deleted only with `force`; these records
    /// then report it as missing.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] or [`KnowledgeError::Conflict`].
    pub async fn delete_resource(&self, id: &str, force: bool, origin: &Origin) -> Result<(), KnowledgeError> {
        let resource = self.resource(id, origin).await?;
        // Deleted records do not count as users. If such a record is restored, it reports the missing resource.
        let needed = r#"FIND(?k.metadata.status) WHERE { (?k, "uses_resource", {type: "Resource", name: $id}) }"#;
        let needed = self.asked(needed, json!({"id": id}), origin).await?;
        let is_used = |status: &Value| status.as_str().is_none_or(|status| status == "active");
        if !force && needed.as_array().is_some_and(|found| found.iter().any(is_used)) {
            return Err(KnowledgeError::Conflict(format!(
                "records need {id}: with force=1 it is removed all the same"
            )));
        }
        let command = r#"DELETE CONCEPT ?r DETACH WHERE { ?r {type: "Resource", name: $id} }"#;
        match self.kip(command, json!({"id": id}), WriteAuthority::Own, Vec::new(), id, origin).await {
            // The caller owns the resource, but not the links that other principals created to it.
            Err(KnowledgeError::Forbidden(_)) if origin.principal.answers_for(&resource.owner) => {
                Err(KnowledgeError::Conflict(format!("what belongs to others is linked to {id}")))
            }
            done => done.map(|_| ()),
        }
    }

    /// Returns the sealed part of a resource to a caller that states a reason. The reveal is recorded first.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] if the caller may not read it, [`KnowledgeError::TooMany`] if the caller
    /// exceeds the rate limit per minute, [`KnowledgeError::Gone`] after its expiry, and [`KnowledgeError::Sealed`] if
    /// the key is missing.
    pub async fn reveal(
        &self,
        id: &str,
        why: &str,
        origin: &Origin,
    ) -> Result<(Resource, SecretString), KnowledgeError> {
        let mut resource = self.resource(id, origin).await?;
        let by = &origin.principal;
        let granted = resource.reveal_scopes.iter().any(|scope| by.scopes.iter().any(|own| *own.0 == **scope));
        if !(by.answers_for(&resource.owner) || by.may(Role::Operator) || granted) {
            return Err(KnowledgeError::Forbidden(format!("what is sealed in {id} is shown to its owner")));
        }
        if !resource.has_secure_body {
            return Err(KnowledgeError::NoResource(format!("secure_body of {id}")));
        }
        if self.reveals.check_key(&by.id.0).is_err() {
            return Err(KnowledgeError::TooMany(format!("{} was shown too many secrets within a minute", by.id)));
        }
        if resource.is_past(self.store.clock().now()) {
            return Err(KnowledgeError::Gone(format!("{id} was to be used until a time that is over")));
        }
        let secret = match self.opened(&resource).await {
            // Another secret may have been sealed between the two reads.
            Err(KnowledgeError::Sealed(SealError::Broken)) => {
                resource = self.resource(id, origin).await?;
                self.opened(&resource).await?
            }
            opened => opened?,
        };
        self.store
            .commit(Batch::new(origin).append(
                reveals(id),
                "revealed",
                &json!({"why": redacted(why).map_or_else(|| why.to_owned(), |(why, _)| why)}),
            ))
            .await?;
        Ok((resource, secret))
    }

    /// Returns the reveals of a resource with their principals, times and reasons. Only the owner may call it.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] for any other caller.
    pub async fn reveals(&self, id: &str, after: u64, origin: &Origin) -> Result<Vec<Value>, KnowledgeError> {
        let resource = self.resource(id, origin).await?;
        if !(origin.principal.answers_for(&resource.owner) || origin.principal.may(Role::Operator)) {
            return Err(KnowledgeError::Forbidden(format!("who was shown {id} is its owner's to know")));
        }
        // Reveals of an earlier resource with the same id are not shown to the owner of this one.
        let mut entries = self.store.entries(&reveals(id), after, 256).await?;
        entries.retain(|entry| entry.at >= resource.created_at);
        let shown = |entry: &store::Entry| {
            let data: Value = entry.decode()?;
            Ok(json!({"seq": entry.seq, "at": entry.at, "by": entry.by, "cause": entry.cause, "why": data["why"]}))
        };
        entries.iter().map(shown).collect()
    }

    /// Adds a key to the key ring and seals every secret again with it. Returns the key's name and the number of
    /// secrets.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Sealed`] if the key ring cannot be written. A secret that does not open is left
    /// unchanged.
    pub async fn rotate_keys(&self, origin: &Origin) -> Result<(String, usize), KnowledgeError> {
        let name = self.keys.add_key()?;
        let (mut after, mut done) = (String::new(), 0);
        loop {
            let sealed = self.store.documents::<Sealed>(Kind::Sealed, &after, 256).await?;
            let Some((last, _)) = sealed.last() else { break };
            after = last.to_string();
            for (id, found) in sealed {
                let resource = match self.resource(&id, origin).await {
                    Err(KnowledgeError::NoResource(_)) => continue,
                    resource => resource?,
                };
                let Ok(secret) = self.keys.open_body(&found.value, resource.place()) else { continue };
                let anew = self.keys.seal(&secret, resource.place())?;
                // A secret that was changed meanwhile is already sealed with the new key.
                let batch = Batch::new(origin).put_expecting(sealed_key(&id), Expect::Version(found.version), &anew);
                match self.store.commit(batch).await {
                    Ok(_) => done += 1,
                    Err(store::StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok((name, done))
    }

    async fn opened(&self, resource: &Resource) -> Result<SecretString, KnowledgeError> {
        let sealed = self.store.document::<Sealed>(&sealed_key(&resource.id)).await?;
        let sealed = sealed.ok_or_else(|| KnowledgeError::NoResource(format!("secure_body of {}", resource.id)))?;
        Ok(self.keys.open_body(&sealed.value, resource.place())?)
    }
}

fn look(graph: &dyn GraphRead, el: ElementId) -> Option<Resource> {
    let mut found = None;
    graph.look(el, &mut |look| {
        if let ElementRef::Concept(concept) = look
            && concept.kind.as_str() == KIND
        {
            found = Some(Resource::of(concept));
        }
    });
    found
}
