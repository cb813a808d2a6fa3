//! Records written: new ones, changes of what they say, and what is deleted. All of it is KIP, so that the writer of
//! the commons judges it as it judges everybody's (MISSION R2, H2).

mod upsert;

use std::collections::HashMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use nexus::kip::graph::SCOPES_KEY;
use nexus::{Right, SecretPolicy, versions_stream};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::secrets::replaced;
use store::{Batch, Hash, Key, Kind, Op, Origin, Role};

use crate::draft::{self, Body, Draft, OWNERS_OWN};
use crate::feedback::{self, Judgement};
use crate::fields::Fields;
use crate::names::claims;
use crate::record::{KIND, Record, Status, WISHES_KEY};
use crate::unit::Form;
use crate::{Knowledge, KnowledgeError, ResourceDraft, commons, outcome, warned};
use upsert::metadata;
pub(crate) use upsert::{call, upsert, write_object};

/// Letters of the random end of an id: none that is taken for another.
pub(crate) const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
pub(crate) const LETTERS_OF_AN_ID: usize = 8;

/// The record that was kept under a key.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// As which record.
    record: String,
    /// The hash of the request.
    of: Hash,
}

/// A request that is done once, under a key of its caller.
pub(crate) struct Once {
    key: Key,
    of: Hash,
}

impl Once {
    /// Makes the guard of the request `asked` under a key.
    pub(crate) fn new(what: &str, key: &str, asked: &Value, origin: &Origin) -> Self {
        let key = Key::new(Kind::Idempotency, format!("{what}#{}#{key}", origin.principal.id));
        Self { key, of: Hash::of(asked.to_string().as_bytes()) }
    }

    /// Returns the operations that mark the request as done; they are committed with the record.
    pub(crate) fn keeps(&self, record: &str, origin: &Origin) -> Vec<Op> {
        Batch::new(origin).put(self.key.clone(), &Kept { record: record.to_owned(), of: self.of }).ops
    }
}

/// About as long as a write takes to be durable.
const A_WRITE: Duration = Duration::from_millis(2);
/// Ids that are tried for one record.
const TRIES: usize = 4;
/// The most tries of a change without a version: each failed try means that another change succeeded.
const TRIES_OF_A_CHANGE: usize = 64;

/// A record that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The record after the write.
    pub record: Record,
    /// The parts of the request that were not accepted, with reasons.
    pub warnings: Vec<String>,
    /// The reason why the record was not rewritten by its wish.
    pub evolved: Option<String>,
}

/// A requested change of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The content.
    pub body: Body,
    /// The scopes, if they change.
    pub scopes: Option<Vec<String>>,
    /// The score, if it changes.
    pub score: Option<f64>,
    /// Cases in which it helped or did not.
    pub judgements: Vec<Judgement>,
    /// The wish for an improvement, in words.
    pub evolve: Option<String>,
    /// The parts of the request that were not accepted, with reasons.
    pub warnings: Vec<String>,
}

impl Change {
    /// Reads a change, as the seed's `PUT /api/knowledge/{id}` has it.
    ///
    /// # Errors
    /// Every fault in it.
    pub fn read(posted: Map<String, Value>, origin: &Origin) -> Result<Self, KnowledgeError> {
        let mut fields = Fields::of(posted);
        let mut judgements = Vec::new();
        for (key, helpful) in [("add_helpful_case", true), ("add_harmful_case", false)] {
            if let Some(case) = fields.object(key) {
                judgements.push(feedback::case(&mut fields, key, helpful, case));
            }
        }
        let score = fields.number("update_score", 1.0, 5.0);
        let evolve = fields.text("evolve_feedback", draft::CONTENT_CHARS_MAX);
        let mut warnings = Vec::new();
        // Whose it is is known where the record is.
        let scopes = draft::scopes(&mut fields, OWNERS_OWN, &origin.principal, &mut warnings);
        let body = Body { extra: Map::new(), ..Body::take(&mut fields) };
        for unknown in fields.rest().keys() {
            fields.fault(unknown, "is nothing that can be changed");
        }
        fields.end()?;
        Ok(Self { body, scopes, score, judgements, evolve, warnings })
    }

    /// Returns `true` if it changes what only the owner may.
    fn is_an_edit(&self) -> bool {
        !self.body.is_empty() || self.scopes.is_some() || self.score.is_some()
    }
}

impl Knowledge {
    /// Writes a new record; under the same key of the same caller, once.
    ///
    /// # Errors
    /// [`KnowledgeError::Forbidden`] where the owner or a scope is not the caller's, [`KnowledgeError::Conflict`] where
    /// the id is taken, [`KnowledgeError::KeyReused`] where something else was asked for under the key,
    /// [`KnowledgeError::Gone`] where what was kept under it is deleted.
    pub async fn save(&self, draft: Draft, key: Option<&str>, origin: &Origin) -> Result<Saved, KnowledgeError> {
        let _turn = match key.is_some() || draft.body.is_named() {
            true => Some(self.once.lock().await),
            false => None,
        };
        let once = key.map(|key| Once::new("record", key, &json!(draft), origin));
        if let Some(once) = &once
            && let Some(record) = self.kept(once, origin).await?
        {
            return Ok(Saved { record, warnings: draft.warnings, evolved: None });
        }
        self.check_names(&draft.body).await?;
        let names = draft.body.names();
        let beside = |id: &str| {
            let kept = once.iter().flat_map(|once| once.keeps(id, origin));
            kept.chain(claims(&names, id, origin)).collect()
        };
        self.put(draft, &beside, origin).await
    }

    /// The record that was kept under a key before.
    ///
    /// # Errors
    /// [`KnowledgeError::KeyReused`] where something else was asked for under it, [`KnowledgeError::Gone`] where the
    /// record is deleted since.
    pub(crate) async fn kept(&self, once: &Once, origin: &Origin) -> Result<Option<Record>, KnowledgeError> {
        let Some(known) = self.store.document::<Kept>(&once.key).await? else { return Ok(None) };
        let Kept { record, of } = known.value;
        if of != once.of {
            return Err(KnowledgeError::KeyReused);
        }
        match self.get(&record, origin).await {
            Err(KnowledgeError::NotFound(id)) => {
                Err(KnowledgeError::Gone(format!("{id} was kept under this key, and is deleted since")))
            }
            found => found.map(Some),
        }
    }

    /// Returns the warnings that [`Self::save`] would give, or its refusal; nothing is written, and nothing sealed.
    pub(crate) async fn rehearse(&self, draft: Draft, origin: &Origin) -> Result<Vec<String>, KnowledgeError> {
        self.check_names(&draft.body).await?;
        self.check_new(&draft, origin).await?;
        let metadata = metadata(&draft, origin);
        let right = if draft.first_case.is_some() { Right::Judge } else { Right::Own };
        let Draft { id, owner, scopes, mut body, mut warnings, .. } = draft;
        if self.nexus.secrets() == SecretPolicy::Seal {
            replace_secrets(&mut body, &mut |kind, _| {
                let would = format!("a {kind} would be sealed");
                if !warnings.contains(&would) {
                    warnings.push(would);
                }
                SEALED.to_owned()
            });
        }
        let id = id.unwrap_or_else(|| self.fresh_id());
        let call = upsert(&id, "EXPECT VERSION 0", &body, &metadata, (&owner, &scopes));
        let answer = self.nexus.rehearse(&commons(), call, origin, right).await?;
        outcome(&answer, &id)?;
        warnings.extend(warned(&answer));
        Ok(warnings)
    }

    /// Checks that a record may be written for its owner, under its id.
    async fn check_new(&self, draft: &Draft, origin: &Origin) -> Result<(), KnowledgeError> {
        let Draft { id, owner, .. } = draft;
        if !(origin.principal.answers_for(owner) || origin.principal.may(Role::Operator)) {
            return Err(KnowledgeError::Forbidden(format!("a record cannot be given to {owner}")));
        }
        // What is refused has nothing sealed for it.
        let is_in = |scope: &&String| origin.principal.scopes.iter().any(|own| *own.0 == ***scope);
        if let Some(other) = draft.scopes.iter().find(|scope| !is_in(scope))
            && !origin.principal.may(Role::Operator)
        {
            return Err(KnowledgeError::Forbidden(format!("a record cannot be shown to {other}")));
        }
        let Some(id) = id else { return Ok(()) };
        if store::secrets::redacted(id).is_some() {
            return Err(KnowledgeError::Forbidden("a secret cannot be the name of what others read".to_owned()));
        }
        let origin = Origin::system("whether an id is taken");
        if self.any(id, &origin).await.is_ok() {
            return Err(KnowledgeError::Conflict(format!("the id {id} is taken")));
        }
        // Told as a unit, it would go by one of these.
        for name in Form::ALL.iter().map(|form| format!("{}{id}", form.prefix())) {
            let known = self.named(&name, &origin).await?.flatten();
            if known.is_some_and(|known| known.status == Status::Active) {
                return Err(KnowledgeError::Conflict(format!("the id {name} is taken")));
            }
        }
        Ok(())
    }

    /// Writes a new record, and in the same commit what goes with its id.
    pub(crate) async fn put(
        &self,
        draft: Draft,
        beside: &(dyn Fn(&str) -> Vec<Op> + Sync),
        origin: &Origin,
    ) -> Result<Saved, KnowledgeError> {
        self.check_new(&draft, origin).await?;
        let metadata = metadata(&draft, origin);
        let Draft { id: wanted, owner, scopes, mut body, first_case, mut warnings, .. } = draft;
        warnings.extend(self.seal_found(&mut body, &owner, &scopes, &[], origin).await?);
        let mut left = if wanted.is_some() { 1 } else { TRIES };
        loop {
            left -= 1;
            let id = wanted.clone().unwrap_or_else(|| self.fresh_id());
            let call = upsert(&id, "EXPECT VERSION 0", &body, &metadata, (&owner, &scopes));
            let (mut ops, mut right) = (beside(&id), Right::Own);
            if let Some(case) = &first_case {
                // That it helped once is counted, and kept as a case, with the record itself.
                ops.extend(feedback::first(&id, case, origin));
                right = Right::Judge;
            }
            let answer = self.nexus.write_with(&commons(), call, origin, right, ops).await?;
            match outcome(&answer, &id) {
                Ok(_) => {
                    warnings.extend(warned(&answer));
                    return Ok(Saved { record: self.get(&id, origin).await?, warnings, evolved: None });
                }
                Err(KnowledgeError::Stale(_)) if left > 0 => {}
                Err(KnowledgeError::Stale(_)) => {
                    return Err(KnowledgeError::Conflict(format!("the id {id} is taken")));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Changes a record: what the caller says of its use is counted, what is the owner's is written. With `version`
    /// only as long as it is the record's.
    ///
    /// # Errors
    /// As [`Self::save`]; nothing is changed where the edit is not the caller's.
    pub async fn change(
        &self,
        id: &str,
        mut change: Change,
        version: Option<u64>,
        origin: &Origin,
    ) -> Result<Saved, KnowledgeError> {
        let record = self.seen(id, origin).await?;
        // Faults that can be found at once are reported before anything is sealed.
        if version.is_some_and(|version| version != record.version) {
            return Err(KnowledgeError::Stale(format!("{id} is at version {} now", record.version)));
        }
        let owns = origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator);
        if change.is_an_edit() && !owns {
            return Err(KnowledgeError::Forbidden(format!("{id} belongs to somebody else")));
        }
        if let Some(guide) = &change.body.content
            && change.is_an_edit()
        {
            crate::skill::check_guide(&record, guide).map_err(|what| KnowledgeError::invalid("content", what))?;
        }
        for own in change.scopes.iter_mut().flatten().filter(|scope| **scope == OWNERS_OWN) {
            own.clone_from(&record.owner);
        }
        if change.is_an_edit() {
            let mut metadata = json!({});
            if let Some(scopes) = &change.scopes {
                metadata[SCOPES_KEY] = json!(scopes);
            }
            if let Some(score) = change.score {
                metadata["score"] = json!(score);
            }
            let mut body = change.body;
            let scopes = change.scopes.as_ref().unwrap_or(&record.scopes);
            if record.wishes > 0 && (body.task.is_some() || body.content.is_some()) {
                // A rewrite by the owner fulfils the wishes.
                metadata[WISHES_KEY] = json!(0);
            }
            let needs = body.resource_ids.is_some();
            change.warnings.extend(self.seal_found(&mut body, &record.owner, scopes, &[], origin).await?);
            // Of two at once the second sees what the first has written. Sealing is over by now: it has turns of its
            // own.
            let _turn = self.changing(id).lock().await;
            let now = self.seen(id, origin).await?;
            let scopes = change.scopes.as_ref().unwrap_or(&now.scopes);
            if let Some(sealed) = body.resource_ids.as_mut().filter(|_| !needs) {
                sealed.splice(0..0, now.resource_ids.iter().cloned());
            }
            let mut tries = TRIES_OF_A_CHANGE;
            let mut expected = version.unwrap_or(now.version);
            let whose = (now.owner.as_str(), scopes.as_slice());
            let answer = loop {
                // A version is expected in any case: it must not have been deleted meanwhile.
                let call = upsert(id, &format!("EXPECT VERSION {expected}"), &body, &metadata, whose);
                let answer = self.nexus.write_with(&commons(), call, origin, Right::Own, Vec::new()).await?;
                tries -= 1;
                match outcome(&answer, id) {
                    // Without a version in the request, a record that was judged meanwhile is as good.
                    Err(KnowledgeError::Stale(_)) if version.is_none() && tries > 0 => {
                        // What was written is seen once it is durable.
                        tokio::time::sleep(A_WRITE).await;
                        expected = self.seen(id, origin).await?.version;
                    }
                    Err(error) => return Err(error),
                    Ok(_) => break answer,
                }
            };
            change.warnings.extend(warned(&answer));
            if let Some(wanted) = &body.resource_ids {
                self.let_go(id, &now, wanted, origin).await?;
            }
        }
        for judgement in change.judgements {
            self.judge(id, judgement, origin).await?;
        }
        let evolved = match change.evolve {
            Some(wish) => self.evolve(id, wish, origin).await?,
            None => None,
        };
        Ok(Saved { record: self.get(id, origin).await?, warnings: change.warnings, evolved })
    }

    /// Seals the secrets that are found in a text, if configured so: makes a resource of each, and names it in the
    /// text.
    async fn seal_found(
        &self,
        body: &mut Body,
        owner: &str,
        scopes: &[String],
        known: &[String],
        origin: &Origin,
    ) -> Result<Vec<String>, KnowledgeError> {
        if self.nexus.secrets() != SecretPolicy::Seal {
            return Ok(Vec::new());
        }
        let (mut drafts, mut names): (Vec<ResourceDraft>, HashMap<String, String>) = Default::default();
        replace_secrets(body, &mut |kind, secret| {
            // The name reveals nothing of the secret: it is random. A secret in several places is sealed once.
            let id = names.entry(secret.to_owned()).or_insert_with(|| {
                let id = format!("{SEALED_BY_ITSELF}{}", random());
                drafts.push(ResourceDraft::found(id.clone(), kind, secret, owner, scopes));
                id
            });
            format!("{{{{secret:{id}}}}}")
        });
        let mut warnings = Vec::new();
        for draft in drafts {
            let (resource, ..) = self.save_resource(draft, false, origin).await?;
            warnings.push(format!("{} was sealed as {}", resource.title, resource.id));
            body.resource_ids.get_or_insert_with(|| known.to_vec()).push(resource.id);
        }
        Ok(warnings)
    }

    /// Deletes a record: it is found no more, and its owner may restore it. With `purge` it is gone, with its versions
    /// and cases; what the journal of the commons keeps of it is an operator's.
    ///
    /// # Errors
    /// [`KnowledgeError::Forbidden`] where it is not the caller's, or others hold on to it.
    pub async fn delete(&self, id: &str, purge: bool, origin: &Origin) -> Result<(), KnowledgeError> {
        let record = self.any(id, origin).await?;
        let owns = origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator);
        if record.status != Status::Active && !owns {
            return Err(KnowledgeError::NotFound(id.to_owned()));
        }
        if purge {
            let streams = [feedback::stream(id), versions_stream(KIND, id)];
            let mut gone = self.no_more_counted(id, origin).await?;
            gone.extend(streams.into_iter().map(|stream| Op::Forget { stream }));
            gone.extend(self.note_of(&record, true, origin));
            let command = r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: $id} }"#;
            self.kip(command, json!({"id": id}), Right::Own, gone, id, origin).await?;
            // What was sealed for it alone goes with it.
            for sealed in record.resource_ids.iter().filter(|resource| resource.starts_with(SEALED_BY_ITSELF)) {
                // A resource that others need, or that belongs to another owner, stays.
                if let Err(error @ KnowledgeError::Nexus(_)) = self.delete_resource(sealed, false, origin).await {
                    return Err(error);
                }
            }
            return Ok(());
        }
        if record.status != Status::Active {
            return Err(KnowledgeError::NotFound(id.to_owned()));
        }
        let command = r#"UPDATE ?k SET METADATA { status: "retracted" } WHERE { ?k {type: "Knowledge", name: $id} }"#;
        let note = self.note_of(&record, false, origin).into_iter().collect();
        self.kip(command, json!({"id": id}), Right::Own, note, id, origin).await.map(drop)
    }

    /// Asks the commons.
    pub(crate) async fn asked(
        &self,
        command: &str,
        parameters: Value,
        origin: &Origin,
    ) -> Result<Value, KnowledgeError> {
        let request = serde_json::from_value(json!({"command": command, "parameters": parameters}))
            .map_err(|error| KnowledgeError::Refused(error.to_string()))?;
        Ok(self.nexus.execute(&commons(), request, origin).await?["result"].take())
    }

    /// Runs a command on the commons.
    pub(crate) async fn kip(
        &self,
        command: &str,
        parameters: Value,
        right: Right,
        beside: Vec<Op>,
        id: &str,
        origin: &Origin,
    ) -> Result<Value, KnowledgeError> {
        let call = call(command.to_owned(), parameters);
        outcome(&self.nexus.write_with(&commons(), call, origin, right, beside).await?, id)
    }

    /// `knowledge-{day}-{random}`.
    fn fresh_id(&self) -> String {
        let day = self.store.clock().now().to_zoned(TimeZone::UTC).strftime("%Y%m%d").to_string();
        format!("knowledge-{day}-{}", random())
    }
}

/// The prefix of ids of resources that were made of secrets in texts.
const SEALED_BY_ITSELF: &str = "credentials/auto-";
/// The placeholder of a secret that would be sealed.
const SEALED: &str = "{{secret:credentials/auto}}";

/// Writes something else in the place of each secret in the texts of a record, of its unit and of what else was sent
/// with it.
fn replace_secrets(body: &mut Body, by: &mut dyn FnMut(&'static str, &str) -> String) {
    for text in [&mut body.task, &mut body.content].into_iter().flatten() {
        if let Some(left) = replaced(text, by) {
            *text = left;
        }
    }
    body.unit.iter_mut().chain(body.extra.values_mut()).for_each(|value| replace_within(value, by));
}

fn replace_within(value: &mut Value, by: &mut dyn FnMut(&'static str, &str) -> String) {
    match value {
        Value::String(text) => {
            if let Some(left) = replaced(text, by) {
                *text = left;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_within(item, by)),
        Value::Object(members) => members.values_mut().for_each(|member| replace_within(member, by)),
        _ => {}
    }
}

/// Letters that nobody can guess.
pub(crate) fn random() -> String {
    let mut random = rand::rng();
    (0..LETTERS_OF_AN_ID).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}
