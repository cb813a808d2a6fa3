//! KnowledgePulse (MISSION P1–P3): contribution, search and validation of records as units.

mod listing;

use nexus::kip::datum::{Datum, Sym};
use nexus::kip::graph::{Concept, ElementId, ElementRef};
use nexus::{Provenance, WriteAuthority};
use serde_json::{Map, Value, json};
use store::secrets::same_json_but_for_secrets;
use store::{Origin, Principal, Role};

use crate::draft::{Body, Draft};
use crate::feedback::{Judgement, VALIDATION};
use crate::record::{KIND, KP_ID_KEY, Record, Status, Type, VALIDATED_KEY, status_of};
use crate::unit::{Contributed, Form, document, id_of, quality_of, said, score_of, visibility_of};
use crate::unit_ids::claims;
use crate::write::Once;
use crate::{Knowledge, KnowledgeError, Saved, commons, read};

pub use listing::{Units, UnitsWanted};

/// The number of elements scanned per batch.
const STRETCH: usize = 4_096;

/// The outcome of a contribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// The record that represents the unit.
    pub record: Record,
    /// `true` if the record is new.
    pub is_new: bool,
    /// The parts of the unit that were changed or not accepted.
    pub warnings: Vec<String>,
}

/// A posted unit, compared with the stored record of the same id.
struct Posted {
    /// The unit's id in the protocol.
    id: String,
    /// The existing record with that id.
    known: Option<Record>,
    /// `true` if the existing record has the same content.
    is_same: bool,
    /// The record to write.
    draft: Draft,
    /// The new scopes; `None` keeps the scopes.
    scopes: Option<Vec<String>>,
}

impl Knowledge {
    /// Returns the record with a unit id that the caller may see.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::NotFound`] if it does not exist or the caller may not see it.
    pub async fn unit(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        // Only active records count: a deleted unit must not hide one that was contributed again.
        let found = self.unit_that(id, &|status| status == Status::Active, origin).await?;
        let visible = |record: &Record| record.status == Status::Active && shows(record, &origin.principal);
        found.filter(visible).ok_or_else(|| KnowledgeError::NotFound(format!("unit {id}")))
    }

    /// Returns the record with a unit id whose status `wanted` accepts.
    pub(crate) async fn unit_that(
        &self,
        id: &str,
        wanted: &(dyn Fn(Status) -> bool + Send + Sync),
        origin: &Origin,
    ) -> Result<Option<Record>, KnowledgeError> {
        let Some(own) = Form::ALL.iter().find_map(|form| id.strip_prefix(&form.prefix())) else { return Ok(None) };
        if let Some(named) = self.named(id, origin).await? {
            return Ok(named.filter(|record| wanted(record.status)));
        }
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let found = sight.look(|graph| {
            let kind = Sym::new(KIND);
            let by_name = graph.concept(kind, own).and_then(|el| read(graph, el));
            if let Some(record) = by_name.filter(|record| id_of(record) == id && wanted(record.status)) {
                return Some(record);
            }
            // A KIP client may have written the unit's id, so the records themselves are scanned.
            let mut last = ElementId::NONE;
            loop {
                let stretch = graph.of_type(kind, last, STRETCH);
                last = *stretch.last()?;
                let is_named = |concept: &Concept| {
                    let named = concept.attributes.named(KP_ID_KEY).and_then(Datum::as_str);
                    named == Some(id) && wanted(status_of(&concept.metadata))
                };
                let is_it = |el: &ElementId| {
                    let mut is_it = false;
                    graph.look(*el, &mut |look| {
                        is_it = matches!(look, ElementRef::Concept(concept) if is_named(concept))
                    });
                    is_it
                };
                if let Some(el) = stretch.iter().find(|el| is_it(el)) {
                    return read(graph, *el);
                }
            }
        })?;
        Ok(found)
    }

    /// Stores a unit. A repetition changes nothing. A changed unit of the same owner with the same id becomes a new
    /// version. A repeated request with the same idempotency key stores a new unit once.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] with all faults, [`KnowledgeError::Conflict`] if the id belongs to another
    /// principal, and the errors of [`Self::save`] for the key.
    pub async fn contribute(
        &self,
        posted: Map<String, Value>,
        key: Option<&str>,
        origin: &Origin,
    ) -> Result<Contribution, KnowledgeError> {
        Box::pin(self.keep_unit(posted, None, true, key, origin)).await
    }

    /// Stores a unit with its provenance. If the record of its id has other content, the unit changes it if
    /// `change` is set, and is refused otherwise.
    pub(crate) async fn keep_unit(
        &self,
        posted: Map<String, Value>,
        provenance: Option<&Provenance>,
        change: bool,
        key: Option<&str>,
        origin: &Origin,
    ) -> Result<Contribution, KnowledgeError> {
        let _turn = self.once.lock().await;
        let once = key.map(|key| Once::new("unit", key, &json!(posted), origin));
        if let Some(once) = &once
            && let Some(record) = self.kept(once, origin).await?
        {
            return Ok(Contribution { record, is_new: true, warnings: Vec::new() });
        }
        let Posted { id, known, is_same, mut draft, scopes } = self.posted(posted, origin).await?;
        draft.provenance = provenance.cloned();
        let Some(known) = known else {
            let claim = |record: &str| {
                let kept = once.iter().flat_map(|once| once.keeps(record, origin));
                kept.chain(claims(std::slice::from_ref(&id), record, origin)).collect()
            };
            let Saved { record, warnings, .. } = self.put(draft, &claim, origin).await?;
            return Ok(Contribution { record, is_new: true, warnings });
        };
        let same_people =
            |provenance: &Provenance| known.provenance.as_ref().map(Provenance::to_json) == Some(provenance.to_json());
        if is_same && provenance.is_none_or(same_people) {
            let record = self.get(&known.id, origin).await?;
            return Ok(Contribution { record, is_new: false, warnings: draft.warnings });
        }
        if !change {
            return Err(says_something_else(&id));
        }
        let Draft { body, warnings, score, provenance, .. } = draft;
        let score = Some(score).filter(|score| *score != known.eval.score);
        let change = crate::Change { body, scopes, score, warnings, provenance, ..crate::Change::default() };
        let Saved { record, warnings, .. } = Box::pin(self.change(&known.id, change, None, origin)).await?;
        Ok(Contribution { record, is_new: false, warnings })
    }

    /// Returns `true` if an imported unit would create a record, with the warnings; or the refusal. Nothing is written.
    pub(crate) async fn rehearse_unit(
        &self,
        posted: Map<String, Value>,
        origin: &Origin,
    ) -> Result<(bool, Vec<String>), KnowledgeError> {
        let Posted { id, known, is_same, draft, .. } = self.posted(posted, origin).await?;
        match known {
            None => Ok((true, self.rehearse(draft, origin).await?)),
            Some(_) if is_same => Ok((false, draft.warnings)),
            Some(_) => Err(says_something_else(&id)),
        }
    }

    /// Parses a unit and compares it with the stored record of the same id.
    async fn posted(&self, mut posted: Map<String, Value>, origin: &Origin) -> Result<Posted, KnowledgeError> {
        let by = &origin.principal;
        let mut known = None;
        if let Some(id) = posted.get("id").and_then(Value::as_str) {
            let is_there = |status| status == Status::Active;
            known = self.unit_that(id, &is_there, &Origin::system("whose a unit is")).await?;
        }
        // Members that the unit omits keep the value of the existing record.
        if let Some(known) = &known
            && let Some(metadata) = posted.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
        {
            metadata.entry("visibility").or_insert_with(|| visibility_of(known).into());
            metadata.entry("quality_score").or_insert_with(|| quality_of(known).into());
        }
        let since = known.as_ref().and_then(|known| known.unit.as_ref()?.pointer("/metadata/created_at")?.as_str());
        let now = self.store.clock().now().to_string();
        let Contributed { form, mut document } = Contributed::read(posted, since.unwrap_or(&now))?;
        without_told(&mut document);
        let id = document["id"].as_str().unwrap_or_default().to_owned();
        // If an operator changes another owner's unit, the owner stays the same.
        let owner = known.as_ref().map_or_else(|| by.id.0.to_string(), |known| known.owner.clone());
        let (metadata, mut warnings) = (&document["metadata"], Vec::new());
        let word = metadata["visibility"].as_str().unwrap_or("private");
        let scopes = crate::Visibility::scopes(word, &owner, by, &mut warnings);
        // The visibility of a unit is one word, which is less precise than the record's scopes. Only another word
        // changes them.
        let changed = scopes.clone().filter(|_| known.as_ref().is_none_or(|known| word != visibility_of(known)));
        let is_there = |same: &dyn Fn(&Value) -> bool| {
            known.as_ref().is_some_and(|known| {
                let words = Form::parse(document["@type"].as_str().unwrap_or_default()).map(|(_, words)| words);
                let mut document = self::document(known, words);
                without_told(&mut document);
                same(&document) || known.unit.as_ref().is_some_and(same) && changed.is_none()
            })
        };
        let is_same = is_there(&|one| same_json_but_for_secrets(one, &document));
        if is_same && !is_there(&|one| *one == document) {
            warnings.push(crate::SECRETS_STAY.to_owned());
        }
        let is_anothers = known.as_ref().is_some_and(|known| !(by.answers_for(&known.owner) || by.may(Role::Operator)));
        // Another owner's unit is returned unchanged if it is the same and the caller may see it.
        if is_anothers && !(is_same && self.unit(&id, origin).await.is_ok()) {
            return Err(KnowledgeError::Conflict(format!("the id {id} is taken")));
        }
        let (task, content) = said(form, &document);
        // The record's other types and tags, which a unit does not contain, are kept.
        let mut tags = known.as_ref().map(|known| known.tags.clone()).unwrap_or_default();
        tags.insert("domain".to_owned(), metadata["task_domain"].clone());
        let types = Some(form.types()).filter(|_| known.as_ref().is_none_or(|known| Form::of(known) != form));
        let claimed = metadata["quality_score"].as_f64().unwrap_or(0.5);
        let confidence = document.pointer("/outcome/confidence").and_then(Value::as_f64);
        let body = Body {
            task: Some(task),
            content: Some(content),
            types,
            tags: Some(tags),
            unit: Some(document),
            ..Body::default()
        };
        let draft = Draft {
            score: match (&known, claimed) {
                // A claim that equals the current quality keeps the score.
                (Some(known), quality) if quality == quality_of(known) => known.eval.score,
                (_, claimed) => score_of(claimed),
            },
            confidence,
            warnings,
            ..Draft::new(owner, scopes.unwrap_or_default(), body)
        };
        Ok(Posted { id, known, is_same, draft, scopes: changed })
    }

    /// Records the judgement of a user on the validity of a unit. The user may change it later. Owners cannot judge
    /// their own units.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] for the caller's own unit.
    pub async fn validate(
        &self,
        id: &str,
        holds: bool,
        feedback: Option<String>,
        origin: &Origin,
    ) -> Result<Record, KnowledgeError> {
        let record = self.unit(id, origin).await?;
        let by = &origin.principal;
        if by.answers_for(&record.owner) {
            return Err(KnowledgeError::Forbidden("nobody validates what is his own".to_owned()));
        }
        let mut case = Map::new();
        case.insert("outcome".to_owned(), if holds { "valid" } else { "invalid" }.into());
        case.insert(VALIDATION.to_owned(), by.id.to_string().into());
        if let Some(feedback) = feedback {
            case.insert("reason".to_owned(), feedback.into());
        }
        let _turn = self.once.lock().await;
        self.count(&record.id, Judgement { helpful: holds, case, instead: true }, origin).await?;
        let name = format!("kp:validator:{}", by.id);
        let record = self.seen(&record.id, origin).await?;
        let mut all = record.validated_by.clone();
        all.retain(|known| *known != name);
        all.extend(holds.then_some(name));
        if all != record.validated_by {
            let command = format!(
                r#"UPDATE ?k SET METADATA {{ {VALIDATED_KEY}: $all }} WHERE {{ ?k {{type: "{KIND}", name: $id}} }}"#
            );
            self.kip(&command, json!({"id": record.id, "all": all}), WriteAuthority::Judge, Vec::new(), id, origin)
                .await?;
        }
        self.get(&record.id, origin).await
    }
}

/// Returns the error for an id whose record has other content.
pub(crate) fn says_something_else(id: &str) -> KnowledgeError {
    KnowledgeError::Conflict(format!("{id} is there and says something else"))
}

/// Removes the unit members that its contributor may not set.
fn without_told(document: &mut Value) {
    if let Some(metadata) = document["metadata"].as_object_mut() {
        for computed in ["record_id", "feedback", VALIDATED_KEY] {
            metadata.shift_remove(computed);
        }
    }
}

/// Returns `true` if the unit protocol shows a record to a principal. User profiles are shown only to their owners and
/// to operators.
pub(crate) fn shows(record: &Record, by: &Principal) -> bool {
    !record.types.contains(&Type::UserProfile) || by.answers_for(&record.owner) || by.may(Role::Operator)
}
