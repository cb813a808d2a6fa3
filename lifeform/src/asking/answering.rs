//! The answer of the graph to a question: one FIND over the claims and the statements that state them. A claim counts only by
//! a statement that all readers heard, so an answer tells nothing that one of them may not know, its number included.

use std::collections::{BTreeMap, BTreeSet};

use nexus::NexusError;
use serde_json::{Value, json};
use store::Origin;

use super::command::{Command, ROWS_MAX};
use super::inferring::inferred;
use super::query::{Concept, Identity, Query};
use super::rows::{Row, Surety, Told, is_one, newest};
use crate::formation::confidence::UNSURE;
use crate::formation::{FORMATION, Kind, is_said_in};
use crate::memory::{Memory, Readers, Recalled, StoredFact, rows};
use crate::reminders::Language;

/// The maximum number of facts among which the name of a concept is looked for.
const NAMED_MAX: usize = 1_000;
/// The maximum number of names that a line says.
const NAMES_MAX: usize = 12;
/// The maximum number of subjects of which other objects are looked up.
const SUBJECTS_MAX: usize = 24;
/// Finds the active facts that mention a concept, with the name under which their audience heard of it besides.
const NAMED: &str = r#"
FIND(?f, ?m.attributes.named) WHERE { ?m (?f, "mentions", {id: $concept}) FILTER(?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
/// Finds the objects that a subject has of a predicate, whatever became of the claim, with the facts that state them.
const OBJECTS: &str = r#"
FIND(?o, ?f, ?l.metadata) WHERE { ?l ({id: $subject}, $predicate, ?o) (?f, "states", ?l) FILTER(?f.metadata.status == "active") } LIMIT 200"#;

/// The name of the person who asks, in an answer.
const ASKER: &str = "you";

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// The ids of the concepts that answer, each once.
    pub(crate) ids: Vec<String>,
    /// The names of what answers, each once, in the order of the statements; empty for one whose name the readers did not hear.
    pub(crate) names: Vec<String>,
    /// The proper names of what answers, as far as the readers heard them.
    pub(crate) called: BTreeSet<String>,
    /// The confidence in each of them, from 0 to 1.
    pub(crate) confidence: Vec<f64>,
    /// `true` if the number was asked for.
    pub(crate) counts: bool,
    /// The statements that bear it out, each once.
    pub(crate) evidence: Vec<Recalled>,
    /// The commands with their parameters, as they were run: one for what is claimed, and one for each way in which it follows from
    /// claims, if that finds something.
    pub(crate) kip: Vec<Value>,
}

impl Memory {
    /// Returns what the graph answers to a question, as all readers may know it; `None` if it answers nothing.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn answer(
        &self,
        query: &Query,
        asks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Option<Answer>, NexusError> {
        if !self.has_claims(cause).await? {
            return Ok(None);
        }
        let mut answer = self.find_claimed(query, asks, readers, cause).await?;
        for query in inferred(query) {
            if let Some(further) = self.find_claimed(&query, asks, readers, cause).await? {
                answer.get_or_insert_default().extend(further);
            }
        }
        Ok(answer)
    }

    /// Returns what the claims say that a query asks for.
    async fn find_claimed(
        &self,
        query: &Query,
        asks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Option<Answer>, NexusError> {
        let answer = self.find_answer(query, true, asks, readers, cause).await?;
        match answer.is_none() && query.concepts.iter().any(Concept::is_word) {
            true => self.find_answer(query, false, asks, readers, cause).await,
            false => Ok(answer),
        }
    }

    /// Returns what the graph answers; unless the words are taken `exact`ly, a word also means what is like it.
    async fn find_answer(
        &self,
        query: &Query,
        exact: bool,
        asks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Option<Answer>, NexusError> {
        let Command { text, parameters } = Command::of(query, asks, exact);
        let parameters = Value::Object(parameters);
        let kip = vec![json!({"command": text, "parameters": parameters})];
        let found = self.ask(&text, parameters, cause).await?;
        // Of more rows than are read, some would be missing in a count.
        if rows(&found).len() >= ROWS_MAX {
            return Ok(None);
        }
        let mut known = Known { memory: self, readers, cause, facts: BTreeMap::new() };
        let mut told: Vec<Row<'_>> = Vec::new();
        for row in rows(&found).iter().filter_map(|row| Row::of(row, query)).filter(|row| row.fits(query)) {
            let mut are_told = true;
            for fact in row.facts {
                are_told &= known.is_told(StoredFact::of(fact)).await?;
            }
            if are_told {
                told.push(row);
            }
        }
        let others = self.other_objects(query, &told, &mut known).await?;
        let mut told = newest(query, told, &others);
        let within = self.places_of(query, &told, &others, cause).await?;
        let surety = Surety::of(query, &told, &others, &within, self.now());
        let mut answer = Answer { counts: query.counts, kip, ..Answer::default() };
        let named_by = named_concepts(query);
        let mut heard_of: BTreeSet<&str> = BTreeSet::new();
        told.sort_by_key(|row| row.facts.last().and_then(|fact| StoredFact::of(fact).stated_at()));
        for row in told {
            let statements: Vec<&str> = row.facts.iter().filter_map(|fact| StoredFact::of(fact).statement()).collect();
            let mut are_named = true;
            for concept in named_by.iter().map(|at| &row.concepts[*at]) {
                let id = concept["id"].as_str().unwrap_or_default();
                if !heard_of.contains(id) {
                    are_named &= self.is_named_to(concept, &statements, readers, cause).await?;
                    heard_of.extend(Some(id).filter(|_| are_named));
                }
            }
            if !are_named {
                continue;
            }
            let asked = &row.concepts[query.asked];
            // The line says no further names.
            let is_shown = answer.ids.len() < NAMES_MAX;
            let is_named = is_shown && self.is_named_to(asked, &statements, readers, cause).await?;
            let id = asked["id"].as_str().unwrap_or_default();
            let mut one = Answer { ids: vec![id.to_owned()], ..Answer::default() };
            one.names.push(name_of(asked, asks, is_named).unwrap_or_default());
            let is_proper =
                is_named && asked["name"] != asks && ["Person", "Thing"].iter().any(|kind| asked["type"] == *kind);
            let name = asked["attributes"]["name"].as_str().filter(|name| is_proper && !name.is_empty());
            one.called.extend(name.map(str::to_owned));
            one.confidence.push(surety.of_row(query, row));
            one.evidence.extend(row.facts.iter().filter_map(|fact| known.facts[StoredFact::of(fact).id()].clone()));
            answer.extend(one);
        }
        Ok(Some(answer).filter(|answer| !answer.names.is_empty()))
    }

    /// Returns which of the places that a subject has in rows is in which other.
    async fn places_of(
        &self,
        query: &Query,
        told: &[Row<'_>],
        others: &[Told],
        cause: &Origin,
    ) -> Result<BTreeSet<(String, String)>, NexusError> {
        let mut places: BTreeSet<String> = BTreeSet::new();
        for (at, link) in query.links.iter().enumerate() {
            if !link.predicate.as_deref().is_some_and(|predicate| ["lives_in", "comes_from"].contains(&predicate)) {
                continue;
            }
            let of_rows = told.iter().map(|row| row.ends(link).1.to_owned());
            let objects: BTreeSet<String> = of_rows
                .chain(others.iter().filter(|other| other.link == at).map(|other| other.object.clone()))
                .collect();
            if objects.len() > 1 {
                places.extend(objects);
            }
        }
        let mut within = BTreeSet::new();
        for place in places.iter().take(SUBJECTS_MAX) {
            let around = self.places_around(place, cause).await?;
            within.extend(around.into_iter().map(|around| (place.clone(), around)));
        }
        Ok(within)
    }

    /// Returns what the readers were told of other objects of the subjects in rows, for the links whose object the query names: who
    /// lived in Oslo may have moved.
    async fn other_objects(
        &self,
        query: &Query,
        told: &[Row<'_>],
        known: &mut Known<'_>,
    ) -> Result<Vec<Told>, NexusError> {
        let mut others = Vec::new();
        for (at, link) in query.links.iter().enumerate() {
            let is_given = !matches!(query.concepts[link.object].identity, Identity::Any | Identity::AnyPerson);
            let Some(predicate) = link.predicate.as_deref().filter(|_| is_given && is_one(link)) else { continue };
            let subjects: BTreeSet<&str> = told.iter().map(|row| row.ends(link).0).collect();
            for subject in subjects.into_iter().take(SUBJECTS_MAX) {
                let of = json!({"subject": subject, "predicate": predicate});
                for row in rows(&self.ask(OBJECTS, of, known.cause).await?) {
                    let (object, fact, metadata) = (&row[0], &row[1], &row[2]);
                    if known.is_told(StoredFact::of(fact)).await? {
                        let (fact, metadata) = (fact.clone(), metadata.clone());
                        let object = object["id"].as_str().unwrap_or_default().to_owned();
                        others.push(Told { link: at, subject: subject.to_owned(), object, fact, metadata });
                    }
                }
            }
        }
        Ok(others)
    }
}

/// The facts of which it is known whether the readers may know them.
struct Known<'k> {
    memory: &'k Memory,
    readers: Readers<'k>,
    cause: &'k Origin,
    facts: BTreeMap<String, Option<Recalled>>,
}

impl Known<'_> {
    /// Returns `true` if a fact holds and all readers may know it.
    async fn is_told(&mut self, fact: StoredFact<'_>) -> Result<bool, NexusError> {
        if !self.facts.contains_key(fact.id()) {
            let principals = self.memory.principals(self.readers);
            let recalled = match fact.holds_at(self.memory.now()) {
                true => self.memory.told(fact, self.readers, &principals, &mut Vec::new(), self.cause).await?,
                false => None,
            };
            self.facts.insert(fact.id().to_owned(), recalled);
        }
        Ok(self.facts[fact.id()].is_some())
    }
}

/// Returns the places of the concepts that the question names: they count only for readers who heard the name.
fn named_concepts(query: &Query) -> Vec<usize> {
    const NAMED: [Kind; 3] = [Kind::Person, Kind::Organization, Kind::Thing];
    let is_named = |concept: &Concept| matches!(&concept.identity, Identity::Named(kind, _) if NAMED.contains(kind));
    (0..query.concepts.len()).filter(|at| is_named(&query.concepts[*at])).collect()
}

impl Memory {
    /// Returns `true` if the readers heard the name of a concept: in one of these statements, or in another about it. Places and
    /// themes have no name besides their word.
    async fn is_named_to(
        &self,
        concept: &Value,
        statements: &[&str],
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let is_word = ["Theme", "Place"].iter().any(|kind| concept["type"] == *kind);
        let is_formed = concept["metadata"]["source"] == FORMATION && !is_word;
        let Some(name) = concept["attributes"]["name"].as_str().filter(|_| is_formed) else { return Ok(true) };
        if statements.iter().any(|said| is_said_in(name, said)) {
            return Ok(true);
        }
        let found = self.ask(NAMED, json!({"concept": concept["id"], "limit": NAMED_MAX}), cause).await?;
        let principals = self.principals(readers);
        for row in rows(&found) {
            let fact = StoredFact::of(&row[0]);
            let says_it = row[1] == name || fact.statement().is_some_and(|said| is_said_in(name, said));
            if says_it && self.told(fact, readers, &principals, &mut Vec::new(), cause).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the name of a concept for an answer; `None` if the readers heard none.
fn name_of(concept: &Value, asks: &str, is_named: bool) -> Option<String> {
    if concept["name"] == asks {
        return Some(ASKER.to_owned());
    }
    let attribute = |key: &str| concept["attributes"][key].as_str().filter(|text| !text.is_empty());
    match (attribute("name").filter(|_| is_named), attribute("kind")) {
        (Some(name), Some(kind)) if concept["type"] == "Thing" => Some(format!("{name} ({kind})")),
        (Some(name), _) => Some(name.to_owned()),
        (None, kind) => kind.map(str::to_owned),
    }
}

impl Answer {
    /// Adds what another answer says: each concept once, with the higher confidence, and each statement once.
    fn extend(&mut self, further: Self) {
        for ((id, name), confidence) in further.ids.into_iter().zip(further.names).zip(further.confidence) {
            match self.ids.iter().position(|known| *known == id) {
                Some(at) => self.confidence[at] = self.confidence[at].max(confidence),
                None => {
                    self.ids.push(id);
                    self.names.push(name);
                    self.confidence.push(confidence);
                }
            }
        }
        for fact in further.evidence {
            if self.evidence.iter().all(|known| known.id != fact.id) {
                self.evidence.push(fact);
            }
        }
        self.called.extend(further.called);
        self.kip.extend(further.kip);
        self.counts |= further.counts;
    }

    /// Returns the line that says the answer, in the language of the question. It says of which names it is not sure.
    pub(crate) fn line(&self, question: &str) -> String {
        let language = Language::of(question);
        let more = self.names.len().saturating_sub(NAMES_MAX);
        let more = if more > 0 { format!(" … (+{more})") } else { String::new() };
        let (unsure, unnamed, asker) = match language {
            Language::Japanese => (" (不確か)", "名前を聞いていない人", "質問した本人"),
            Language::Chinese => (" (不确定)", "没听说过名字的人", "提问者本人"),
            Language::English => (" (not sure)", "one whose name you were not told", "you"),
        };
        let is_sure = |at: usize| self.confidence.get(at).is_none_or(|confidence| *confidence >= UNSURE);
        let name = |(at, name): (usize, &String)| {
            let name = match name.as_str() {
                "" => unnamed,
                ASKER => asker,
                name => name,
            };
            if is_sure(at) { name.to_owned() } else { format!("{name}{unsure}") }
        };
        let shown: Vec<String> = self.names.iter().enumerate().take(NAMES_MAX).map(name).collect();
        let (names, count) = (format!("{}{more}", shown.join(", ")), self.names.len());
        match language {
            Language::Japanese if self.counts => format!("聞いたかぎりでは{count}：{names}"),
            Language::Japanese => format!("聞いたかぎりでは：{names}"),
            Language::Chinese if self.counts => format!("就我所听说的，共{count}个：{names}"),
            Language::Chinese => format!("就我所听说的：{names}"),
            Language::English if self.counts => format!("As far as you were told, {count}: {names}"),
            Language::English => format!("As far as you were told: {names}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_said_in_the_language_of_the_question() {
        let answer = Answer { names: vec!["Tom".into(), "Eva".into()], counts: true, ..Answer::default() };
        assert_eq!(answer.line("How many?"), "As far as you were told, 2: Tom, Eva");
        assert_eq!(answer.line("有几个？"), "就我所听说的，共2个：Tom, Eva");
        assert_eq!(answer.line("何人いますか"), "聞いたかぎりでは2：Tom, Eva");
        let unnamed = Answer { names: vec![String::new(), ASKER.into()], ..Answer::default() };
        assert_eq!(unnamed.line("有谁？"), "就我所听说的：没听说过名字的人, 提问者本人");
        assert_eq!(unnamed.line("Who?"), "As far as you were told: one whose name you were not told, you");
        let answer = Answer { confidence: vec![0.9, 0.3], counts: false, ..answer };
        assert_eq!(answer.line("Who?"), "As far as you were told: Tom, Eva (not sure)");
    }
}
