//! The answer of the graph to a question: one FIND over the claims and the statements that state them. A claim counts only by
//! a statement that all readers heard, so an answer tells nothing that one of them may not know, its number included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use nexus::NexusError;
use serde_json::{Map, Value, json};
use store::Origin;

use super::{Object, Path, Start};
use crate::formation::vocabulary::is_functional;
use crate::formation::{FORMATION, Kind, is_said_in, key_of, plain, says_change};
use crate::memory::{Memory, Readers, Recalled, StoredFact, rows};

/// The maximum number of rows that one question reads.
const ROWS_MAX: usize = 2_000;

/// The maximum number of facts among which the name of a concept is looked for.
const NAMED_MAX: usize = 1_000;
/// The maximum number of names that a line says.
const NAMES_MAX: usize = 12;
/// The maximum number of concepts of one mention, and of the facts about each, that are looked at.
const CONCEPTS_MAX: usize = 12;
const ABOUT_MAX: usize = 12;
/// Finds the newest active facts that mention a concept.
const ABOUT: &str = r#"
FIND(?f) WHERE { (?f, "mentions", {id: $concept}) FILTER(?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// The ids of the concepts that answer, each once.
    pub(crate) ids: Vec<String>,
    /// The names of what answers, each once, in the order of the statements.
    pub(crate) names: Vec<String>,
    /// `true` if the number was asked for.
    pub(crate) counts: bool,
    /// The statements that bear it out, each once.
    pub(crate) evidence: Vec<Recalled>,
    /// The command with its parameters, as it was run.
    pub(crate) kip: Value,
}

/// A command with its columns: the concepts of the path, and the fact of each link.
struct Query {
    command: String,
    parameters: Map<String, Value>,
    /// The predicate of each link.
    predicates: Vec<Option<&'static str>>,
    /// The number of concepts.
    concepts: usize,
    /// `true` if the last concept is the object of the last condition, and is not what is asked for.
    ends_with_condition: bool,
}

impl Query {
    fn of(path: &Path, asks: &str) -> Self {
        let mut parameters = Map::new();
        let mut value = |value: Value| {
            let name = format!("p{}", parameters.len());
            parameters.insert(name.clone(), value);
            format!("${name}")
        };
        let mut found = String::new();
        match &path.start {
            Start::Asker => {
                let _ = writeln!(found, "  ?n0 {{type: \"Person\", name: {}}}", value(asks.into()));
            }
            Start::Named(name) => {
                let (key, own) = (value(key_of(Kind::Person, name).into()), value(plain(name).into()));
                let _ = writeln!(
                    found,
                    "  ?n0 {{type: \"Person\"}} FILTER(?n0.attributes.key == {key} || ?n0.attributes.name == {own})"
                );
            }
            Start::Anyone => found.push_str("  ?n0 {type: \"Person\"}\n"),
        }
        let mut predicates = Vec::new();
        for hop in &path.hops {
            let (before, at) = (predicates.len(), predicates.len() + 1);
            let _ = writeln!(found, "  ?l{at} (?n{before}, \"{}\", ?n{at})", hop.predicate);
            if !hop.relations.is_empty() {
                let _ = writeln!(found, "  FILTER(IN(?l{at}.attributes.relation, {}))", value(json!(hop.relations)));
            }
            if let Some(name) = &hop.name {
                let kind = if hop.predicate == "owns" { Kind::Thing } else { Kind::Person };
                let _ = writeln!(found, "  FILTER(?n{at}.attributes.key == {})", value(key_of(kind, name).into()));
            }
            predicates.push(Some(hop.predicate));
        }
        let mut ends_with_condition = false;
        if let Some(end) = &path.end {
            let (before, at) = (predicates.len(), predicates.len() + 1);
            match end.predicate {
                Some(predicate) => drop(writeln!(found, "  ?l{at} (?n{before}, \"{predicate}\", ?n{at})")),
                None => drop(writeln!(found, "  ?l{at} (?n{before}, ?predicate, ?n{at})")),
            }
            if let Some(Object::Named(kind, name)) = &end.object {
                let _ = writeln!(found, "  FILTER(?n{at}.attributes.key == {})", value(key_of(*kind, name).into()));
            }
            ends_with_condition = end.object.is_some();
            predicates.push(end.predicate);
        }
        let links = predicates.len();
        for at in 1..=links {
            let _ = writeln!(found, "  (?f{at}, \"states\", ?l{at}) FILTER(?f{at}.metadata.status == \"active\")");
        }
        let concepts = (0..=links).map(|at| format!("?n{at}"));
        let columns: Vec<String> = concepts.chain((1..=links).map(|at| format!("?f{at}"))).collect();
        let command = format!("FIND({}) WHERE {{\n{found}}} LIMIT {ROWS_MAX}", columns.join(", "));
        Self { command, parameters, predicates, concepts: links + 1, ends_with_condition }
    }
}

impl Memory {
    /// Returns what the graph answers to a question, as all readers may know it; `None` if it answers nothing.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn answer(
        &self,
        path: &Path,
        asks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Option<Answer>, NexusError> {
        if !self.has_claims(cause).await? {
            return Ok(None);
        }
        let query = Query::of(path, asks);
        let parameters = Value::Object(query.parameters.clone());
        let kip = json!({"command": query.command, "parameters": parameters});
        let found = self.ask(&query.command, parameters, cause).await?;
        // Of more rows than are read, some would be missing in a count.
        if rows(&found).len() >= ROWS_MAX {
            return Ok(None);
        }
        let principals = self.principals(readers);
        let mut known: BTreeMap<String, Option<Recalled>> = BTreeMap::new();
        let mut told: Vec<(&[Value], &[Value])> = Vec::new();
        for row in rows(&found) {
            // A row of one column is its value.
            let row = row.as_array().map_or(std::slice::from_ref(row), Vec::as_slice);
            let (concepts, facts) = row.split_at(query.concepts.min(row.len()));
            if !fits_kinds(path, concepts) {
                continue;
            }
            let mut are_told = true;
            for fact in facts {
                let stored = StoredFact::of(fact);
                if !known.contains_key(stored.id()) {
                    let recalled = match stored.holds_at(self.now()) {
                        true => self.told(stored, readers, &principals, &mut Vec::new(), cause).await?,
                        false => None,
                    };
                    known.insert(stored.id().to_owned(), recalled);
                }
                are_told &= known[stored.id()].is_some();
            }
            if are_told {
                told.push((concepts, facts));
            }
        }
        let told = newest(&query.predicates, told);
        let target = query.concepts - 1 - usize::from(query.ends_with_condition);
        let mut answer = Answer { counts: path.counts, kip, ..Answer::default() };
        let mut evidence = BTreeSet::new();
        let named_by = named_concepts(path);
        let mut rows = told;
        rows.sort_by_key(|(_, facts)| facts.last().and_then(|fact| StoredFact::of(fact).stated_at()));
        for (concepts, facts) in rows {
            let statements: Vec<&str> = facts.iter().filter_map(|fact| StoredFact::of(fact).statement()).collect();
            let mut are_named = true;
            for at in &named_by {
                are_named &= self.is_named_to(&concepts[*at], &statements, readers, cause).await?;
            }
            if !are_named {
                continue;
            }
            let id = concepts[target]["id"].as_str().unwrap_or_default();
            if !answer.ids.iter().any(|known| known == id) {
                answer.ids.push(id.to_owned());
                let is_named = self.is_named_to(&concepts[target], &statements, readers, cause).await?;
                answer.names.push(name_of(&concepts[target], asks, is_named));
            }
            for fact in facts {
                let id = StoredFact::of(fact).id();
                if evidence.insert(id.to_owned()) {
                    answer.evidence.extend(known[id].clone());
                }
            }
        }
        Ok(Some(answer).filter(|answer| !answer.names.is_empty()))
    }
}

/// Returns the places of the concepts of a path that the question names: they count only for readers who heard the name.
fn named_concepts(path: &Path) -> Vec<usize> {
    let start = matches!(path.start, Start::Named(_)).then_some(0);
    let hops = path.hops.iter().enumerate().filter(|(_, hop)| hop.name.is_some()).map(|(at, _)| at + 1);
    let end = path.end.as_ref().and_then(|end| end.object.as_ref());
    let end = end.filter(|object| matches!(object, Object::Named(Kind::Person | Kind::Organization | Kind::Thing, _)));
    start.into_iter().chain(hops).chain(end.map(|_| path.hops.len() + 1)).collect()
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
        let found = self.ask(ABOUT, json!({"concept": concept["id"], "limit": NAMED_MAX}), cause).await?;
        let principals = self.principals(readers);
        for fact in rows(&found).iter().map(StoredFact::of) {
            let says_it = fact.statement().is_some_and(|said| is_said_in(name, said));
            if says_it && self.told(fact, readers, &principals, &mut Vec::new(), cause).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the active facts about those whom a question mentions, as the concepts of KIP, the newest of each first. Who may
    /// know them is for the caller to check.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn about_mentioned(
        &self,
        question: &str,
        asks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Vec<Value>, NexusError> {
        let mut facts: Vec<Value> = Vec::new();
        for path in super::mentioned(question) {
            let Some(answer) = self.answer(&path, asks, readers, cause).await? else { continue };
            for concept in answer.ids.iter().take(CONCEPTS_MAX) {
                let found = self.ask(ABOUT, json!({"concept": concept, "limit": ABOUT_MAX}), cause).await?;
                for fact in rows(&found) {
                    if facts.iter().all(|known| known["id"] != fact["id"]) {
                        facts.push(fact.clone());
                    }
                }
            }
        }
        Ok(facts)
    }
}

/// Returns `true` if the things on a path are of the kinds that are asked for.
fn fits_kinds(path: &Path, concepts: &[Value]) -> bool {
    let is_of = |concept: Option<&Value>, kinds: &[String]| {
        let sort =
            concept.and_then(|concept| concept["attributes"]["kind"].as_str()).map(|kind| key_of(Kind::Theme, kind));
        // "fishing boat" is a boat.
        let is_such = |kind: &String| {
            let key = key_of(Kind::Theme, kind);
            sort.as_deref().is_some_and(|sort| sort == key || sort.ends_with(&format!(" {key}")))
        };
        kinds.is_empty() || kinds.iter().any(is_such)
    };
    let hops = path.hops.iter().enumerate().all(|(at, hop)| is_of(concepts.get(at + 1), &hop.kinds));
    let end = match path.end.as_ref().and_then(|end| end.object.as_ref()) {
        Some(Object::OfKind(kind)) => is_of(concepts.last(), std::slice::from_ref(kind)),
        _ => true,
    };
    hops && end
}

/// Returns the rows without those of which a statement was outdated by a later one of the same person: who moved lives where he
/// moved to. Two persons who disagree are both kept.
fn newest<'r>(
    predicates: &[Option<&'static str>],
    rows: Vec<(&'r [Value], &'r [Value])>,
) -> Vec<(&'r [Value], &'r [Value])> {
    let mut latest: BTreeMap<(usize, String, String), (Option<store::Timestamp>, String)> = BTreeMap::new();
    let is_functional_at = |at: usize| predicates[at].is_some_and(is_functional);
    let slot = |at: usize, concepts: &[Value], fact: StoredFact<'_>| {
        (at, concepts[at]["id"].to_string(), fact.author().unwrap_or_default().to_owned())
    };
    for (concepts, facts) in &rows {
        for at in (0..facts.len()).filter(|at| is_functional_at(*at)) {
            let fact = StoredFact::of(&facts[at]);
            let object = concepts[at + 1]["id"].as_str().unwrap_or_default().to_owned();
            let now = (fact.stated_at(), object);
            if !fact.statement().is_some_and(says_change) {
                continue;
            }
            let known = latest.entry(slot(at, concepts, fact)).or_insert_with(|| now.clone());
            // Of two at one time, the one that was stored later counts.
            if now.0 >= known.0 {
                *known = now;
            }
        }
    }
    let holds = |(concepts, facts): &(&[Value], &[Value])| {
        (0..facts.len()).filter(|at| is_functional_at(*at)).all(|at| {
            let fact = StoredFact::of(&facts[at]);
            let known = latest.get(&slot(at, concepts, fact));
            known.is_none_or(|(changed_at, object)| {
                fact.stated_at() > *changed_at || Some(object.as_str()) == concepts[at + 1]["id"].as_str()
            })
        })
    };
    rows.into_iter().filter(holds).collect()
}

/// Returns the name of a concept for an answer.
fn name_of(concept: &Value, asks: &str, is_named: bool) -> String {
    if concept["name"] == asks {
        return "you".to_owned();
    }
    let attribute = |key: &str| concept["attributes"][key].as_str().filter(|text| !text.is_empty());
    match (attribute("name").filter(|_| is_named), attribute("kind")) {
        (Some(name), Some(kind)) if concept["type"] == "Thing" => format!("{name} ({kind})"),
        (Some(name), _) => name.to_owned(),
        (None, Some(kind)) => kind.to_owned(),
        (None, None) => "one whose name you were not told".to_owned(),
    }
}

impl Answer {
    /// Returns the line that says the answer, in the language of the question.
    pub(crate) fn line(&self, question: &str) -> String {
        let is_in = |from: char, to: char| question.chars().any(|c| (from..=to).contains(&c));
        let more = self.names.len().saturating_sub(NAMES_MAX);
        let more = if more > 0 { format!(" … (+{more})") } else { String::new() };
        let shown: Vec<&str> = self.names.iter().map(String::as_str).take(NAMES_MAX).collect();
        let (names, count) = (format!("{}{more}", shown.join(", ")), self.names.len());
        match () {
            () if is_in('\u{3040}', '\u{30ff}') && self.counts => format!("聞いたかぎりでは{count}：{names}"),
            () if is_in('\u{3040}', '\u{30ff}') => format!("聞いたかぎりでは：{names}"),
            () if is_in('\u{4e00}', '\u{9fff}') && self.counts => format!("就我所听说的，共{count}个：{names}"),
            () if is_in('\u{4e00}', '\u{9fff}') => format!("就我所听说的：{names}"),
            () if self.counts => format!("As far as you were told, {count}: {names}"),
            () => format!("As far as you were told: {names}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_command_with_the_facts_of_each_link() {
        let path = super::super::path("Which of my sister's neighbours sails?").unwrap();
        let query = Query::of(&path, "user:ada");
        assert_eq!(
            query.command,
            "FIND(?n0, ?n1, ?n2, ?n3, ?f1, ?f2, ?f3) WHERE {\n  \
             ?n0 {type: \"Person\", name: $p0}\n  \
             ?l1 (?n0, \"relative_of\", ?n1)\n  \
             FILTER(IN(?l1.attributes.relation, $p1))\n  \
             ?l2 (?n1, \"neighbour_of\", ?n2)\n  \
             ?l3 (?n2, \"does\", ?n3)\n  \
             FILTER(?n3.attributes.key == $p2)\n  \
             (?f1, \"states\", ?l1) FILTER(?f1.metadata.status == \"active\")\n  \
             (?f2, \"states\", ?l2) FILTER(?f2.metadata.status == \"active\")\n  \
             (?f3, \"states\", ?l3) FILTER(?f3.metadata.status == \"active\")\n\
             } LIMIT 2000"
        );
        assert_eq!(query.parameters["p1"], json!(["sister"]));
    }

    #[test]
    fn an_answer_is_said_in_the_language_of_the_question() {
        let answer = Answer { names: vec!["Tom".into(), "Eva".into()], counts: true, ..Answer::default() };
        assert_eq!(answer.line("How many?"), "As far as you were told, 2: Tom, Eva");
        assert_eq!(answer.line("有几个？"), "就我所听说的，共2个：Tom, Eva");
        assert_eq!(answer.line("何人いますか"), "聞いたかぎりでは2：Tom, Eva");
    }
}
