//! The command of a query: one FIND over the claims, and the statements that state them.

use std::cell::RefCell;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::query::{Identity, Query};
use crate::formation::{Kind, key_of, plain};

/// The maximum number of rows that one question reads.
pub(super) const ROWS_MAX: usize = 2_000;

/// A query as a command, with its columns: the concepts, the fact of each link, and the metadata of each link.
pub(super) struct Command {
    pub(super) text: String,
    pub(super) parameters: Map<String, Value>,
}

impl Command {
    /// Returns the command of a query. Unless it is `exact`, what words name is left to [`Row::fits`](super::rows::Row::fits).
    pub(super) fn of(query: &Query, asks: &str, exact: bool) -> Self {
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
            let _ = writeln!(
                found,
                "  (?f{at}, \"states\", ?l{at}) FILTER(?f{at}.metadata.status == \"active\" && ?l{at}.metadata.status == \"active\")"
            );
        }
        let concepts = (0..query.concepts.len()).map(|at| format!("?n{at}"));
        let facts = (1..=links).map(|at| format!("?f{at}"));
        let metadata = (1..=links).map(|at| format!("?l{at}.metadata"));
        let columns: Vec<String> = concepts.chain(facts).chain(metadata).collect();
        let text = format!("FIND({}) WHERE {{\n{found}}} LIMIT {ROWS_MAX}", columns.join(", "));
        Self { text, parameters: parameters.into_inner() }
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
            "FIND(?n0, ?n1, ?n2, ?n3, ?f1, ?f2, ?f3, ?l1.metadata, ?l2.metadata, ?l3.metadata) WHERE {\n  \
             ?n0 {type: \"Person\", name: $p0}\n  \
             ?l1 (?n0, \"relative_of\", ?n1)\n  \
             FILTER(IN(?l1.attributes.relation, $p1))\n  \
             ?l2 (?n1, \"neighbour_of\", ?n2)\n  \
             ?l3 (?n2, \"does\", ?n3)\n  \
             FILTER(?n3.attributes.key == $p2)\n  \
             (?f1, \"states\", ?l1) FILTER(?f1.metadata.status == \"active\" && ?l1.metadata.status == \"active\")\n  \
             (?f2, \"states\", ?l2) FILTER(?f2.metadata.status == \"active\" && ?l2.metadata.status == \"active\")\n  \
             (?f3, \"states\", ?l3) FILTER(?f3.metadata.status == \"active\" && ?l3.metadata.status == \"active\")\n\
             } LIMIT 2000"
        );
        assert_eq!(command.parameters["p1"], json!(["sister"]));
    }
}
