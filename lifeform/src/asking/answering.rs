//! The answer of the graph to a question: one FIND over the claims and the statements that state them. A claim counts only by
//! a statement that all readers heard, so an answer tells nothing that one of them may not know, its number included.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use nexus::NexusError;
use serde_json::{Map, Value, json};
use store::Origin;

use super::query::{Concept, Identity, Link, Query, is_like};
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

/// A query as a command, with its columns: the concepts, and the fact of each link.
struct Command {
    text: String,
    parameters: Map<String, Value>,
}

impl Command {
    /// Returns the command of a query. Unless it is `exact`, what words name is left to [`fits`].
    fn of(query: &Query, asks: &str, exact: bool) -> Self {
        let parameters = RefCell::new(Map::new());
        let value = |value: Value| {
            let mut parameters = parameters.borrow_mut();
            let name = format!("p{}", parameters.len());
            parameters.insert(name.clone(), value);
            format!("${name}")
        };
        let mut found = String::new();
        let mut is_bound = vec![false; query.concepts.len()];
        let mut bind = |at: usize, is_linked: bool, found: &mut String| {
            if std::mem::replace(&mut is_bound[at], true) {
                return;
            }
            let concept = &query.concepts[at];
            let _ = match &concept.identity {
                Identity::Any => Ok(()),
                Identity::AnyPerson => writeln!(found, "  ?n{at} {{type: \"Person\"}}"),
                Identity::Asker => writeln!(found, "  ?n{at} {{type: \"Person\", name: {}}}", value(asks.into())),
                Identity::Named(kind @ Kind::Person, name) => {
                    let person = if is_linked { String::new() } else { format!("?n{at} {{type: \"Person\"}} ") };
                    let (key, own) = (value(key_of(*kind, name).into()), value(plain(name).into()));
                    let condition = format!("?n{at}.attributes.key == {key} || ?n{at}.attributes.name == {own}");
                    writeln!(found, "  {person}FILTER({condition})")
                }
                Identity::Named(..) if !exact && concept.is_word() => Ok(()),
                Identity::Named(kind, name) => {
                    writeln!(found, "  FILTER(?n{at}.attributes.key == {})", value(key_of(*kind, name).into()))
                }
            };
        };
        for (at, link) in query.links.iter().enumerate() {
            let (at, subject, object) = (at + 1, link.subject, link.object);
            // A search begins at a person; the name of what a link leads to is a condition.
            if !matches!(query.concepts[subject].identity, Identity::Named(kind, _) if kind != Kind::Person) {
                bind(subject, false, &mut found);
            }
            let predicate = link.predicate.as_ref().map_or("?predicate".to_owned(), |name| format!("\"{name}\""));
            let _ = writeln!(found, "  ?l{at} (?n{subject}, {predicate}, ?n{object})");
            if !link.relations.is_empty() {
                let _ = writeln!(found, "  FILTER(IN(?l{at}.attributes.relation, {}))", value(json!(link.relations)));
            }
            bind(subject, true, &mut found);
            bind(object, true, &mut found);
        }
        if query.links.is_empty() {
            bind(0, false, &mut found);
        }
        let links = query.links.len();
        for at in 1..=links {
            let _ = writeln!(found, "  (?f{at}, \"states\", ?l{at}) FILTER(?f{at}.metadata.status == \"active\")");
        }
        let concepts = (0..query.concepts.len()).map(|at| format!("?n{at}"));
        let columns: Vec<String> = concepts.chain((1..=links).map(|at| format!("?f{at}"))).collect();
        let text = format!("FIND({}) WHERE {{\n{found}}} LIMIT {ROWS_MAX}", columns.join(", "));
        Self { text, parameters: parameters.into_inner() }
    }
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
        let kip = json!({"command": text, "parameters": parameters});
        let found = self.ask(&text, parameters, cause).await?;
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
            let (concepts, facts) = row.split_at(query.concepts.len().min(row.len()));
            if !fits(query, concepts) {
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
        let mut told = newest(&query.links, told);
        let mut answer = Answer { counts: query.counts, kip, ..Answer::default() };
        let mut evidence = BTreeSet::new();
        let named_by = named_concepts(query);
        told.sort_by_key(|(_, facts)| facts.last().and_then(|fact| StoredFact::of(fact).stated_at()));
        for (concepts, facts) in told {
            let statements: Vec<&str> = facts.iter().filter_map(|fact| StoredFact::of(fact).statement()).collect();
            let mut are_named = true;
            for at in &named_by {
                are_named &= self.is_named_to(&concepts[*at], &statements, readers, cause).await?;
            }
            if !are_named {
                continue;
            }
            let asked = &concepts[query.asked];
            let id = asked["id"].as_str().unwrap_or_default();
            if !answer.ids.iter().any(|known| known == id) {
                answer.ids.push(id.to_owned());
                let is_named = self.is_named_to(asked, &statements, readers, cause).await?;
                answer.names.push(name_of(asked, asks, is_named));
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
            let Some(answer) = self.answer(&Query::of(&path), asks, readers, cause).await? else { continue };
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

/// Returns `true` if concepts are those that a query means, as far as its command leaves that open.
fn fits(query: &Query, concepts: &[Value]) -> bool {
    let attribute = |concept: &Value, name: &str| concept["attributes"][name].as_str().map(str::to_owned);
    let is_of = |concept: &Value, kinds: &[String]| {
        let sort = attribute(concept, "kind").map(|kind| key_of(Kind::Theme, &kind));
        // "fishing boat" is a boat.
        let is_such = |kind: &String| {
            let key = key_of(Kind::Theme, kind);
            sort.as_deref().is_some_and(|sort| sort == key || sort.ends_with(&format!(" {key}")))
        };
        kinds.is_empty() || kinds.iter().any(is_such)
    };
    let is_meant = |wanted: &Concept, concept: &Value| match &wanted.identity {
        Identity::Named(_, name) if wanted.is_word() => {
            attribute(concept, "key").is_some_and(|known| is_like(name, &known))
        }
        _ => true,
    };
    let ids: Vec<&str> = concepts.iter().map(|concept| concept["id"].as_str().unwrap_or_default()).collect();
    let both = || query.concepts.iter().zip(concepts);
    ids.len() == query.concepts.len()
        && both().all(|(wanted, concept)| is_of(concept, &wanted.kinds) && is_meant(wanted, concept))
        && query.are_apart(&ids)
}

/// Returns the rows without those of which a statement was outdated by a later one of the same person: who moved lives where he
/// moved to. Two persons who disagree are both kept.
fn newest<'r>(links: &[Link], rows: Vec<(&'r [Value], &'r [Value])>) -> Vec<(&'r [Value], &'r [Value])> {
    let mut latest: BTreeMap<(usize, String, String), (Option<store::Timestamp>, String)> = BTreeMap::new();
    let functional: Vec<usize> =
        (0..links.len()).filter(|at| links[*at].predicate.as_deref().is_some_and(is_functional)).collect();
    let slot = |at: usize, concepts: &[Value], fact: StoredFact<'_>| {
        (at, concepts[links[at].subject]["id"].to_string(), fact.author().unwrap_or_default().to_owned())
    };
    let object =
        |at: usize, concepts: &[Value]| concepts[links[at].object]["id"].as_str().unwrap_or_default().to_owned();
    for (concepts, facts) in &rows {
        for at in &functional {
            let fact = StoredFact::of(&facts[*at]);
            let now = (fact.stated_at(), object(*at, concepts));
            if !fact.statement().is_some_and(says_change) {
                continue;
            }
            let known = latest.entry(slot(*at, concepts, fact)).or_insert_with(|| now.clone());
            // Of two at one time, the one that was stored later counts.
            if now.0 >= known.0 {
                *known = now;
            }
        }
    }
    let holds = |(concepts, facts): &(&[Value], &[Value])| {
        functional.iter().all(|at| {
            let fact = StoredFact::of(&facts[*at]);
            let known = latest.get(&slot(*at, concepts, fact));
            known.is_none_or(|(changed_at, to)| fact.stated_at() > *changed_at || *to == object(*at, concepts))
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
        let command = Command::of(&Query::of(&path), "user:ada", true);
        assert_eq!(
            command.text,
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
        assert_eq!(command.parameters["p1"], json!(["sister"]));
    }

    #[test]
    fn an_answer_is_said_in_the_language_of_the_question() {
        let answer = Answer { names: vec!["Tom".into(), "Eva".into()], counts: true, ..Answer::default() };
        assert_eq!(answer.line("How many?"), "As far as you were told, 2: Tom, Eva");
        assert_eq!(answer.line("有几个？"), "就我所听说的，共2个：Tom, Eva");
        assert_eq!(answer.line("何人いますか"), "聞いたかぎりでは2：Tom, Eva");
    }
}
