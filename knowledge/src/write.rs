//! Creation, change and deletion of records. All writes are KIP commands, so the writer of the commons applies the same
//! rules as to any client (MISSION R2, H2).

mod sealing;
mod upsert;

use std::time::Duration;

use jiff::tz::TimeZone;
use nexus::kip::graph::SCOPES_KEY;
use nexus::{PROVENANCE_KEY, Provenance, SecretPolicy, WriteAuthority, versions_stream};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{Batch, Hash, Key, Kind, Op, Origin, PrincipalKind, Role};

use crate::draft::{self, Body, Draft, OWNERS_OWN};
use crate::feedback::{self, Judgement};
use crate::fields::Fields;
use crate::record::{KIND, Record, Status, WISHES_KEY};
use crate::unit::Form;
use crate::unit_ids::claims;
use crate::{Knowledge, KnowledgeError, commons, outcome, warned};
use sealing::{SEALED, SEALED_BY_ITSELF, replace_secrets};
use upsert::metadata;
pub(crate) use upsert::{call, upsert, write_object};

/// The alphabet of the random suffix of an id. It has no letters that are easily confused.
pub(crate) const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
pub(crate) const LETTERS_OF_AN_ID: usize = 8;

/// The document that an idempotency key refers to.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The id of the record that the request created.
    record: String,
    /// The hash of the request.
    of: Hash,
}

/// The idempotency guard of a request, under a key of its caller.
pub(crate) struct Once {
    key: Key,
    of: Hash,
}

impl Once {
    /// Creates the guard of the request `asked` under a key.
    pub(crate) fn new(what: &str, key: &str, asked: &Value, origin: &Origin) -> Self {
        let key = Key::new(Kind::Idempotency, format!("{what}#{}#{key}", origin.principal.id));
        Self { key, of: Hash::of(asked.to_string().as_bytes()) }
    }

    /// Returns the operations that mark the request as done. They are committed together with the record.
    pub(crate) fn keeps(&self, record: &str, origin: &Origin) -> Vec<Op> {
        Batch::new(origin).put(self.key.clone(), &Kept { record: record.to_owned(), of: self.of }).ops
    }
}

/// The approximate time until a write is durable.
const A_WRITE: Duration = Duration::from_millis(2);
/// The maximum number of random ids that are tried for one record.
const TRIES: usize = 4;
/// The maximum number of tries of a change without a version. Each failed try means that another change succeeded.
const TRIES_OF_A_CHANGE: usize = 64;

/// A record that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The record after the write.
    pub record: Record,
    /// The parts of the request that were not accepted, with reasons.
    pub warnings: Vec<String>,
    /// The reason why the record was not rewritten as the wish asked; `None` without such a reason.
    pub evolved: Option<String>,
}

/// A requested change of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The content.
    pub body: Body,
    /// The new scopes; `None` keeps the scopes.
    pub scopes: Option<Vec<String>>,
    /// The new score; `None` keeps the score.
    pub score: Option<f64>,
    /// The reported cases in which the record helped or did not help.
    pub judgements: Vec<Judgement>,
    /// The wish for an improvement, as free text.
    pub evolve: Option<String>,
    /// The parts of the request that were not accepted, with reasons.
    pub warnings: Vec<String>,
    /// The provenance of the new content, if the daemon knows it.
    pub(crate) provenance: Option<Provenance>,
}

impl Change {
    /// Reads a change in the format of the seed's `PUT /api/knowledge/{id}`.
    ///
    /// # Errors
    /// Returns every fault of the request.
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
        // The owner is not known yet; a placeholder stands for it until the record is read.
        let scopes = draft::scopes(&mut fields, OWNERS_OWN, &origin.principal, &mut warnings);
        let body = Body { extra: Map::new(), ..Body::take(&mut fields) };
        for unknown in fields.rest().keys() {
            fields.fault(unknown, "is nothing that can be changed");
        }
        fields.end()?;
        Ok(Self { body, scopes, score, judgements, evolve, warnings, provenance: None })
    }

    /// Returns `true` if the change includes something that only the owner may change.
    fn is_an_edit(&self) -> bool {
        !self.body.is_empty() || self.scopes.is_some() || self.score.is_some()
    }
}

impl Knowledge {
    /// Writes a new record. A repeated request of the same caller with the same idempotency key writes nothing.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] if the caller may not write for the owner or into a scope,
    /// [`KnowledgeError::Conflict`] if the id is taken, [`KnowledgeError::KeyReused`] if the key belongs to a different
    /// request, and [`KnowledgeError::Gone`] if the record of the key was deleted.
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

    /// Returns the record that an earlier request with the same idempotency key created.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::KeyReused`] if the earlier request was different, and [`KnowledgeError::Gone`] if the
    /// record was deleted since.
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

    /// Returns the warnings or the error that [`Self::save`] would return. Nothing is written or sealed.
    pub(crate) async fn rehearse(&self, draft: Draft, origin: &Origin) -> Result<Vec<String>, KnowledgeError> {
        self.check_names(&draft.body).await?;
        self.check_new(&draft, origin).await?;
        let metadata = metadata(&draft, origin);
        let right = if draft.first_case.is_some() { WriteAuthority::Judge } else { WriteAuthority::Own };
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

    /// Checks that the caller may write a record for this owner under this id.
    async fn check_new(&self, draft: &Draft, origin: &Origin) -> Result<(), KnowledgeError> {
        let Draft { id, owner, .. } = draft;
        if !(origin.principal.answers_for(owner) || origin.principal.may(Role::Operator)) {
            return Err(KnowledgeError::Forbidden(format!("a record cannot be given to {owner}")));
        }
        // All checks come before sealing, so a refused draft leaves no sealed secret.
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
        // The unit protocol would give the record one of these ids.
        for name in Form::ALL.iter().map(|form| format!("{}{id}", form.prefix())) {
            let known = self.named(&name, &origin).await?.flatten();
            if known.is_some_and(|known| known.status == Status::Active) {
                return Err(KnowledgeError::Conflict(format!("the id {name} is taken")));
            }
        }
        Ok(())
    }

    /// Writes a new record and commits the operations that belong to its id together with it.
    pub(crate) async fn put(
        &self,
        draft: Draft,
        beside: &(dyn Fn(&str) -> Vec<Op> + Sync),
        origin: &Origin,
    ) -> Result<Saved, KnowledgeError> {
        self.check_new(&draft, origin).await?;
        let metadata = metadata(&draft, origin);
        let Draft { id: wanted, owner, scopes, mut body, first_case, provenance, mut warnings, .. } = draft;
        warnings.extend(self.seal_found(&mut body, &owner, &scopes, &[], origin).await?);
        let mut left = if wanted.is_some() { 1 } else { TRIES };
        loop {
            left -= 1;
            let id = wanted.clone().unwrap_or_else(|| self.fresh_id());
            let call = upsert(&id, "EXPECT VERSION 0", &body, &metadata, (&owner, &scopes));
            let mut ops = beside(&id);
            let mut right = if provenance.is_some() { WriteAuthority::Attest } else { WriteAuthority::Own };
            if let Some(case) = &first_case {
                // The first helpful case is counted and stored with the record itself.
                ops.extend(feedback::first(&id, case, origin));
                right = WriteAuthority::Judge;
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

    /// Changes a record. The caller's judgements are counted; edits need the owner's rights. With `version`, the change
    /// succeeds only if the record still has this version.
    ///
    /// # Errors
    /// Returns the errors of [`Self::save`]. Nothing is changed if the caller may not make the edit.
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
            if change.provenance.is_none()
                && record.owner.starts_with("lifeform:")
                && origin.principal.kind != PrincipalKind::Lifeform
                && (body.task.is_some() || body.content.is_some() || body.unit.is_some())
            {
                // The record then also contains the words of the principal that changes it.
                let mut now = record.provenance.clone().unwrap_or_else(Provenance::unknown);
                now.sources.insert(origin.principal.id.to_string());
                change.provenance = Some(now);
            }
            let right = match &change.provenance {
                None => WriteAuthority::Own,
                Some(provenance) => {
                    metadata[PROVENANCE_KEY] = provenance.to_json();
                    WriteAuthority::Attest
                }
            };
            let scopes = change.scopes.as_ref().unwrap_or(&record.scopes);
            if record.wishes > 0 && (body.task.is_some() || body.content.is_some()) {
                // A rewrite by the owner fulfils the wishes.
                metadata[WISHES_KEY] = json!(0);
            }
            let needs = body.resource_ids.is_some();
            change.warnings.extend(self.seal_found(&mut body, &record.owner, scopes, &[], origin).await?);
            // Serializes changes of one record, so a second change sees the first. Sealing is done before, because it
            // takes locks of its own.
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
                // The write always expects a version, so it fails if the record was deleted meanwhile.
                let call = upsert(id, &format!("EXPECT VERSION {expected}"), &body, &metadata, whose);
                let answer = self.nexus.write_with(&commons(), call, origin, right, Vec::new()).await?;
                tries -= 1;
                match outcome(&answer, id) {
                    // The client named no version, so a judgement in between does not make the change fail.
                    Err(KnowledgeError::Stale(_)) if version.is_none() && tries > 0 => {
                        // The other write becomes visible once it is durable.
                        tokio::time::sleep(A_WRITE).await;
                        expected = self.seen(id, origin).await?.version;
                    }
                    Err(error) => return Err(error),
                    Ok(_) => break answer,
                }
            };
            change.warnings.extend(warned(&answer));
            if let Some(wanted) = &body.resource_ids {
                self.release_resources(id, &now, wanted, origin).await?;
            }
        }
        for judgement in change.judgements {
            self.judge(id, judgement, origin).await?;
        }
        let evolved = match change.evolve {
            Some(wish) => Box::pin(self.evolve(id, wish, origin)).await?,
            None => None,
        };
        Ok(Saved { record: self.get(id, origin).await?, warnings: change.warnings, evolved })
    }

    /// Deletes a record. Searches no longer find it, and its owner may restore it. With `purge` its content, versions
    /// and cases are removed permanently, with the records that were merged into it; only operators can read what the
    /// journal of the commons still contains.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] if the caller does not own it or other elements depend on it.
    pub async fn delete(&self, id: &str, purge: bool, origin: &Origin) -> Result<(), KnowledgeError> {
        let record = self.any(id, origin).await?;
        let owns = origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator);
        if record.status != Status::Active && !owns {
            return Err(KnowledgeError::NotFound(id.to_owned()));
        }
        if purge {
            // Those that were merged into it say the same. They go first, so a repetition finds what a crash left.
            let merged = r#"FIND(?m.name) WHERE { ?k {type: "Knowledge", name: $id} (?m, "merged_into", ?k) }"#;
            let merged = self.asked(merged, json!({"id": id}), origin).await?;
            let merged = merged.as_array().ok_or_else(|| KnowledgeError::Refused("its copies are not found".into()))?;
            for copy in merged.iter().filter_map(Value::as_str) {
                Box::pin(self.delete(copy, true, origin)).await?;
            }
            let streams = [feedback::stream(id), versions_stream(KIND, id)];
            let mut gone = self.no_more_counted(id, origin).await?;
            gone.extend(streams.into_iter().map(|stream| Op::Forget { stream }));
            gone.extend(self.note_of(&record, true, origin));
            let command = r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: $id} }"#;
            self.kip(command, json!({"id": id}), WriteAuthority::Own, gone, id, origin).await?;
            // Resources that were sealed automatically for this record are deleted with it.
            for sealed in record.resource_ids.iter().filter(|resource| resource.starts_with(SEALED_BY_ITSELF)) {
                // A resource that other records need, or that belongs to another owner, is kept.
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
        self.kip(command, json!({"id": id}), WriteAuthority::Own, note, id, origin).await.map(drop)
    }

    /// Runs a query on the commons.
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
        right: WriteAuthority,
        beside: Vec<Op>,
        id: &str,
        origin: &Origin,
    ) -> Result<Value, KnowledgeError> {
        let call = call(command.to_owned(), parameters);
        outcome(&self.nexus.write_with(&commons(), call, origin, right, beside).await?, id)
    }

    /// Returns a new id, `knowledge-{day}-{random}`.
    fn fresh_id(&self) -> String {
        let day = self.store.clock().now().to_zoned(TimeZone::UTC).strftime("%Y%m%d").to_string();
        format!("knowledge-{day}-{}", random())
    }
}

/// Returns a random string that cannot be guessed.
pub(crate) fn random() -> String {
    let mut random = rand::rng();
    (0..LETTERS_OF_AN_ID).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}
