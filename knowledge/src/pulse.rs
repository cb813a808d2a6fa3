//! KnowledgePulse (MISSION P1–P3): records contributed, found and judged as units.

use nexus::Right;
use nexus::kip::datum::{Datum, Sym};
use nexus::kip::graph::{Concept, El, Look};
use serde_json::{Map, Value, json};
use store::secrets::same_json_but_for_secrets;
use store::{Origin, Principal, Role};

use crate::draft::{Body, Draft};
use crate::feedback::{Judgement, VALIDATION};
use crate::list::{Which, newest};
use crate::names::claims;
use crate::record::{KIND, KP_ID_KEY, Record, Status, Type, VALIDATED_KEY, status_of};
use crate::search::{Query, TOP_K_WIDE};
use crate::unit::versions::{Resolved, SchemaVersion};
use crate::unit::{Contributed, Form, Vocabulary, document, id_of, quality_of, said, score_of, visibility_of};
use crate::write::Once;
use crate::{Knowledge, KnowledgeError, Saved, commons, read};

/// Elements that are looked at at once.
const STRETCH: usize = 4_096;

/// The outcome of a contribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// The record that the unit is.
    pub record: Record,
    /// `true` if it is new.
    pub is_new: bool,
    /// The parts that were not accepted as they came.
    pub warnings: Vec<String>,
}

/// A unit that is to be kept, held against what is there.
struct Posted {
    /// The id that it is to go by.
    id: String,
    /// The record of that id.
    known: Option<Record>,
    /// `true` if that record says the same.
    is_same: bool,
    /// As what it is to be kept.
    draft: Draft,
    /// The scopes, if they are to change.
    scopes: Option<Vec<String>>,
}

/// A selection of units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitsWanted {
    /// A question; in order of quality, where there is none.
    pub question: Option<String>,
    /// Of any of these forms.
    pub forms: Vec<Form>,
    /// Of this domain.
    pub domain: Option<String>,
    /// Worth so much at least, from 0 to 1.
    pub min_quality: f64,
    /// Without so many of the first.
    pub offset: usize,
    /// So many.
    pub limit: usize,
}

/// A page of units.
#[derive(Clone, Debug, PartialEq)]
pub struct Units {
    /// The records on the page.
    pub records: Vec<Record>,
    /// The number of selected units that the caller sees.
    pub total: usize,
}

impl Knowledge {
    /// The record that goes by an id of the unit protocol, of those that the caller sees.
    ///
    /// # Errors
    /// [`KnowledgeError::NotFound`].
    pub async fn unit(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        // A deleted unit does not precede one that was contributed again.
        let found = self.unit_that(id, &|status| status == Status::Active, origin).await?;
        let visible = |record: &Record| record.status == Status::Active && shows(record, &origin.principal);
        found.filter(visible).ok_or_else(|| KnowledgeError::NotFound(format!("unit {id}")))
    }

    /// The record that goes by an id of the unit protocol and whose status is one of those wanted.
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
            // One that KIP wrote.
            let mut last = El::NONE;
            loop {
                let stretch = graph.of_type(kind, last, STRETCH);
                last = *stretch.last()?;
                let is_named = |concept: &Concept| {
                    let named = concept.attributes.named(KP_ID_KEY).and_then(Datum::as_str);
                    named == Some(id) && wanted(status_of(&concept.metadata))
                };
                let is_it = |el: &El| {
                    let mut is_it = false;
                    graph.look(*el, &mut |look| is_it = matches!(look, Look::Concept(concept) if is_named(concept)));
                    is_it
                };
                if let Some(el) = stretch.iter().find(|el| is_it(el)) {
                    return read(graph, *el);
                }
            }
        })?;
        Ok(found)
    }

    /// Keeps a unit. A repetition changes nothing; another unit of its owner under the same id is a version. With the
    /// same key of the same caller a new unit is kept once.
    ///
    /// # Errors
    /// [`KnowledgeError::Invalid`] with every fault, [`KnowledgeError::Conflict`] if the id belongs to another
    /// principal; of the key as [`Self::save`].
    pub async fn contribute(
        &self,
        posted: Map<String, Value>,
        key: Option<&str>,
        origin: &Origin,
    ) -> Result<Contribution, KnowledgeError> {
        Box::pin(self.keep_unit(posted, true, key, origin)).await
    }

    /// The same; what says something else than what goes by its id is kept, where that may `change` it, or refused.
    pub(crate) async fn keep_unit(
        &self,
        posted: Map<String, Value>,
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
        let Posted { id, known, is_same, draft, scopes } = self.posted(posted, origin).await?;
        let Some(known) = known else {
            let claim = |record: &str| {
                let kept = once.iter().flat_map(|once| once.keeps(record, origin));
                kept.chain(claims(std::slice::from_ref(&id), record, origin)).collect()
            };
            let Saved { record, warnings, .. } = self.put(draft, &claim, origin).await?;
            return Ok(Contribution { record, is_new: true, warnings });
        };
        if is_same {
            let record = self.get(&known.id, origin).await?;
            return Ok(Contribution { record, is_new: false, warnings: draft.warnings });
        }
        if !change {
            return Err(says_something_else(&id));
        }
        let Draft { body, warnings, score, .. } = draft;
        let score = Some(score).filter(|score| *score != known.eval.score);
        let change = crate::Change { body, scopes, score, warnings, ..crate::Change::default() };
        let Saved { record, warnings, .. } = Box::pin(self.change(&known.id, change, None, origin)).await?;
        Ok(Contribution { record, is_new: false, warnings })
    }

    /// Returns `true` if an imported unit would be a new record, and its warnings or its refusal; nothing is written.
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

    /// Reads a unit, and holds it against what is there.
    async fn posted(&self, mut posted: Map<String, Value>, origin: &Origin) -> Result<Posted, KnowledgeError> {
        let by = &origin.principal;
        let mut known = None;
        if let Some(id) = posted.get("id").and_then(Value::as_str) {
            let is_there = |status| status == Status::Active;
            known = self.unit_that(id, &is_there, &Origin::system("whose a unit is")).await?;
        }
        // What is left out of one that is there is as it was.
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
        // An operator who changes another owner's unit leaves it to that owner.
        let owner = known.as_ref().map_or_else(|| by.id.0.to_string(), |known| known.owner.clone());
        let (metadata, mut warnings) = (&document["metadata"], Vec::new());
        let word = metadata["visibility"].as_str().unwrap_or("private");
        let scopes = crate::Visibility::scopes(word, &owner, by, &mut warnings);
        // The visibility of an existing unit is one word, which says less than its scopes.
        let changed = scopes.clone().filter(|_| known.as_ref().is_none_or(|known| word != visibility_of(known)));
        let is_there = |same: &dyn Fn(&Value) -> bool| {
            known.as_ref().is_some_and(|known| {
                let words = Form::parse(document["@type"].as_str().unwrap_or_default()).map(|(_, words)| words);
                let mut told = self::document(known, words);
                without_told(&mut told);
                same(&told) || known.unit.as_ref().is_some_and(same) && changed.is_none()
            })
        };
        let is_same = is_there(&|one| same_json_but_for_secrets(one, &document));
        if is_same && !is_there(&|one| *one == document) {
            warnings.push(crate::SECRETS_STAY.to_owned());
        }
        let is_anothers = known.as_ref().is_some_and(|known| !(by.answers_for(&known.owner) || by.may(Role::Operator)));
        // A unit of another owner that the caller sees is returned as it is.
        if is_anothers && !(is_same && self.unit(&id, origin).await.is_ok()) {
            return Err(KnowledgeError::Conflict(format!("the id {id} is taken")));
        }
        let (task, content) = said(form, &document);
        // What a unit does not tell of its record stays as it is: of which sorts it is, and its other labels.
        let mut tags = known.as_ref().map(|known| known.tags.clone()).unwrap_or_default();
        tags.insert("domain".to_owned(), metadata["task_domain"].clone());
        let types = Some(form.types()).filter(|_| known.as_ref().is_none_or(|known| Form::of(known) != form));
        let draft = Draft {
            id: None,
            owner,
            scopes: scopes.unwrap_or_default(),
            score: match (&known, metadata["quality_score"].as_f64().unwrap_or(0.5)) {
                // A claimed worth is no new content.
                (Some(known), told) if told == quality_of(known) => known.eval.score,
                (_, claimed) => score_of(claimed),
            },
            confidence: document.pointer("/outcome/confidence").and_then(Value::as_f64),
            body: Body {
                task: Some(task),
                content: Some(content),
                types,
                tags: Some(tags),
                unit: Some(document),
                ..Body::default()
            },
            first_case: None,
            message_id: None,
            source: Map::new(),
            warnings,
        };
        Ok(Posted { id, known, is_same, draft, scopes: changed })
    }

    /// Units that the caller sees.
    ///
    /// # Errors
    /// [`KnowledgeError::Invalid`] for a question that is none.
    pub async fn units(&self, wanted: &UnitsWanted, origin: &Origin) -> Result<Units, KnowledgeError> {
        let now = self.store.clock().now();
        let fits = |record: &Record| {
            shows(record, &origin.principal)
                && (wanted.forms.is_empty() || wanted.forms.contains(&Form::of(record)))
                && wanted
                    .domain
                    .as_ref()
                    .is_none_or(|domain| record.tags.get("domain").and_then(Value::as_str) == Some(domain))
                && quality_of(record) >= wanted.min_quality
        };
        let mut records: Vec<Record> = match &wanted.question {
            Some(question) => {
                let query = Query { top_k: TOP_K_WIDE, ..Query::new(question.as_str(), TOP_K_WIDE) };
                self.search(&query, origin).await?.hits.into_iter().map(|hit| hit.record).collect()
            }
            None => {
                let sight = self.nexus.sight(&commons(), origin, None).await?;
                let all = sight.look(|graph| newest(graph, &Which::default(), None, usize::MAX, now))?;
                let mut all: Vec<Record> = all.into_iter().map(|(_, record)| record).collect();
                all.sort_by(|one, other| quality_of(other).total_cmp(&quality_of(one)));
                all
            }
        };
        records.retain(fits);
        let total = records.len();
        Ok(Units { records: records.into_iter().skip(wanted.offset).take(wanted.limit).collect(), total })
    }

    /// A record as a unit of the version that answers a request, in the words that it was contributed in or in others.
    ///
    /// # Errors
    /// [`KnowledgeError::Version`].
    pub fn as_unit(
        &self,
        record: &Record,
        words: Option<Vocabulary>,
        asked: Option<&str>,
    ) -> Result<(Value, Resolved), KnowledgeError> {
        let unit = document(record, words);
        let of = crate::unit::versions::major_of(&unit).unwrap_or(1);
        let resolved = self.schemas.resolve(asked, of, self.store.clock().now())?;
        let SchemaVersion(major, ..) = resolved.version;
        let unit = self.schemas.migrate(unit, major)?;
        Ok((self.schemas.project(unit, resolved.version), resolved))
    }

    /// The same of several. What was written in no version that is known, as KIP may, is left out: it takes nobody
    /// else's away.
    ///
    /// # Errors
    /// As [`Self::as_unit`].
    pub fn as_units<'r>(
        &self,
        records: impl IntoIterator<Item = &'r Record>,
        words: Option<Vocabulary>,
        asked: Option<&str>,
    ) -> Result<Vec<(&'r Record, Value)>, KnowledgeError> {
        let now = self.store.clock().now();
        let mut units = Vec::new();
        for record in records {
            match self.as_unit(record, words, asked) {
                Ok((unit, _)) => units.push((record, unit)),
                Err(error) => {
                    let told = crate::unit::versions::major_of(&document(record, words));
                    if told.is_some_and(|major| self.schemas.resolve(None, major, now).is_ok()) {
                        return Err(error);
                    }
                    tracing::warn!(record = %record.id, %error, "a unit of no known version is not told");
                }
            }
        }
        Ok(units)
    }

    /// Says whether a unit holds, as one of its users found, who may find otherwise later. Nobody says so of his own.
    ///
    /// # Errors
    /// [`KnowledgeError::Forbidden`] of one's own.
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
            self.kip(&command, json!({"id": record.id, "all": all}), Right::Judge, Vec::new(), id, origin).await?;
        }
        self.get(&record.id, origin).await
    }
}

/// The refusal to overwrite the record of an id.
pub(crate) fn says_something_else(id: &str) -> KnowledgeError {
    KnowledgeError::Conflict(format!("{id} is there and says something else"))
}

/// Removes the members of a unit that its contributor does not decide.
fn without_told(document: &mut Value) {
    if let Some(metadata) = document["metadata"].as_object_mut() {
        for told in ["record_id", "feedback", VALIDATED_KEY] {
            metadata.shift_remove(told);
        }
    }
}

/// Returns `true` if a record is shown as a unit: profiles only to their owners.
pub(crate) fn shows(record: &Record, by: &Principal) -> bool {
    !record.types.contains(&Type::UserProfile) || by.answers_for(&record.owner) || by.may(Role::Operator)
}
