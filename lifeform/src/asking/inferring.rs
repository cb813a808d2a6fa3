//! Conclusions from claims, worked out when a question asks for it and stored nowhere: who lives in a town lives in its country, a
//! mother's sister is an aunt, and Rike is Henrike, if a person said so. So a conclusion rests on the statements of its premises that
//! the readers heard, and is gone with any of them. `docs/src/internals/decisions.md` says why.

use super::query::{Concept, Identity, LINKS_MAX, Link, Query};
use crate::formation::Kind;
use crate::formation::vocabulary::{Relation, SAME_AS};

/// The maximum number of further queries that one question makes.
const INFERRED_MAX: usize = 6;
/// The maximum number of places on the way from a town to the place of the question.
const PLACES_MAX: usize = 2;

/// The relations that follow from others, step by step.
const COMPOSED: [(&str, &[&str]); 16] = [
    ("grandmother", &["parent", "mother"]),
    ("grandfather", &["parent", "father"]),
    ("grandchild", &["child", "child"]),
    ("aunt", &["parent", "sister"]),
    ("uncle", &["parent", "brother"]),
    ("niece", &["sibling", "daughter"]),
    ("nephew", &["sibling", "son"]),
    ("cousin", &["parent", "sibling", "child"]),
    ("mother-in-law", &["partner", "mother"]),
    ("father-in-law", &["partner", "father"]),
    ("sister-in-law", &["partner", "sister"]),
    ("sister-in-law", &["brother", "partner"]),
    ("brother-in-law", &["partner", "brother"]),
    ("brother-in-law", &["sister", "partner"]),
    ("son-in-law", &["daughter", "partner"]),
    ("daughter-in-law", &["son", "partner"]),
];

/// Returns the queries whose answers follow from claims and answer the question, too.
pub(super) fn inferred(query: &Query) -> Vec<Query> {
    let named = (0..query.concepts.len()).filter(|at| is_named(&query.concepts[*at]));
    let mut all: Vec<Query> =
        named.flat_map(|at| [true, false].map(|is_name| by_other_name(query, at, is_name))).collect();
    for (at, link) in query.links.iter().enumerate() {
        if is_in_a_place(query, link) {
            all.extend((1..=PLACES_MAX).map(|steps| by_places(query, at, steps)));
        }
        let is_it = |name: &str| {
            Relation::named(name)
                .is_some_and(|known| known.predicate == "relative_of" && known.includes == link.relations)
        };
        for (_, steps) in COMPOSED.iter().filter(|(name, _)| !link.relations.is_empty() && is_it(name)) {
            all.extend(by_relations(query, at, steps));
        }
    }
    all.retain(|query| query.links.len() <= LINKS_MAX);
    all.truncate(INFERRED_MAX);
    all
}

/// Returns `true` if a question names a person, who may have another name.
fn is_named(concept: &Concept) -> bool {
    matches!(concept.identity, Identity::Named(Kind::Person, _))
}

/// Returns the query of the person whose other name the question says, or of the other name of that person.
fn by_other_name(query: &Query, at: usize, is_name: bool) -> Query {
    let mut query = Query { is_inferred: true, ..query.clone() };
    let one = Concept { identity: Identity::Any, kinds: query.concepts[at].kinds.clone() };
    let name = std::mem::replace(&mut query.concepts[at], one);
    let said = query.add(Concept::of(name.identity));
    let (subject, object) = if is_name { (said, at) } else { (at, said) };
    query.links.insert(0, Link { subject, predicate: Some(SAME_AS.into()), relations: &[], object });
    query
}

/// Returns `true` if a link says that something is in a place that the question names.
fn is_in_a_place(query: &Query, link: &Link) -> bool {
    let is_place = matches!(query.concepts[link.object].identity, Identity::Named(Kind::Place, _));
    let predicate = link.predicate.as_deref();
    is_place && predicate.is_some_and(|predicate| ["lives_in", "comes_from", "located_in"].contains(&predicate))
}

fn by_places(query: &Query, at: usize, steps: usize) -> Query {
    let mut query = Query { is_inferred: true, ..query.clone() };
    let place = query.links[at].object;
    let mut inner = query.add(Concept::of(Identity::Any));
    query.links[at].object = inner;
    for step in 1..=steps {
        let outer = if step == steps { place } else { query.add(Concept::of(Identity::Any)) };
        let predicate = Some("located_in".into());
        query.links.push(Link { subject: inner, predicate, relations: &[], object: outer });
        inner = outer;
    }
    query
}

fn by_relations(query: &Query, at: usize, steps: &[&str]) -> Option<Query> {
    let mut query = Query { is_inferred: true, ..query.clone() };
    let Link { subject, object, .. } = query.links[at];
    let mut from = subject;
    let mut way = Vec::new();
    for (step, name) in steps.iter().enumerate() {
        let relation = Relation::named(name)?;
        let to = if step + 1 == steps.len() { object } else { query.add(Concept::of(Identity::Any)) };
        // A wife is a partner, and who only has a partner has one, too.
        let relations = if relation.predicate == "partner_of" { &[][..] } else { relation.includes };
        way.push(Link { subject: from, predicate: Some(relation.predicate.into()), relations, object: to });
        from = to;
    }
    query.links.splice(at..=at, way);
    Some(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(question: &str) -> Vec<String> {
        let query = Query::of(&super::super::path(question).unwrap());
        let line = |link: &Link| {
            let predicate = link.predicate.as_deref().unwrap_or("?");
            format!("{} {predicate}{:?} {}", link.subject, link.relations, link.object)
        };
        inferred(&query).iter().map(|query| query.links.iter().map(line).collect::<Vec<_>>().join(", ")).collect()
    }

    #[test]
    fn a_relation_follows_from_others() {
        assert_eq!(
            ways("Where does my grandmother live?"),
            [r#"0 relative_of["mother", "father", "parent"] 3, 3 relative_of["mother"] 1, 1 lives_in[] 2"#,]
        );
        assert_eq!(ways("Which of my sister's neighbours sails?"), [""; 0]);
    }

    #[test]
    fn who_has_another_name_is_meant_by_it() {
        assert_eq!(ways("Where does Rike live?"), ["2 same_as[] 0, 0 lives_in[] 1", "0 same_as[] 2, 0 lives_in[] 1"]);
    }

    #[test]
    fn who_lives_in_a_town_lives_in_its_country() {
        assert_eq!(
            ways("Which of my friends lives in Poland?"),
            [
                "0 friend_of[] 1, 1 lives_in[] 3, 3 located_in[] 2",
                "0 friend_of[] 1, 1 lives_in[] 3, 3 located_in[] 4, 4 located_in[] 2",
            ]
        );
    }

    #[test]
    fn every_step_is_a_relation_of_the_vocabulary() {
        for (name, steps) in COMPOSED {
            assert!(Relation::named(name).is_some(), "{name}");
            for step in steps {
                assert!(Relation::named(step).is_some(), "{step}");
            }
        }
    }
}
