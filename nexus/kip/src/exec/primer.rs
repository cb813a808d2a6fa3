//! DESCRIBE PRIMER: the information that a model needs in its first thousand tokens (draft7 §5.1.1): its identity,
//! the domains with their most important elements, the amounts of everything, and the query syntax.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::describe::rank;
use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE};
use crate::datum::{Datum, Sym};
use crate::graph::{Direction, ElementId, ElementRef, GraphRead};
use crate::lang::KipError;

/// The default budget in tokens.
const BUDGET: usize = 1000;
/// The maximum numbers of members read per domain, and of links read per member.
const MEMBERS_MAX: usize = 48;
const LINKS_MAX: usize = 24;
/// The maximum numbers of types and predicates read, and of concepts read per type.
const TYPES_MAX: usize = 64;
const EXAMPLES: usize = 3;

/// The level of detail of a primer; each step contains less.
struct Detail {
    key: usize,
    domains: usize,
    types: usize,
    text: usize,
    directives: bool,
    examples: bool,
}

const DETAILS: [Detail; 8] = [
    Detail { key: 12, domains: 64, types: 64, text: 600, directives: true, examples: true },
    Detail { key: 10, domains: 48, types: 40, text: 280, directives: true, examples: true },
    Detail { key: 8, domains: 24, types: 24, text: 160, directives: false, examples: true },
    Detail { key: 6, domains: 16, types: 16, text: 120, directives: false, examples: true },
    Detail { key: 4, domains: 8, types: 12, text: 80, directives: false, examples: true },
    Detail { key: 2, domains: 4, types: 8, text: 60, directives: false, examples: false },
    Detail { key: 0, domains: 2, types: 6, text: 40, directives: false, examples: false },
    Detail { key: 0, domains: 0, types: 0, text: 60, directives: false, examples: false },
];

/// Returns the primer in at most `budget` tokens. If even the last step, the identity alone, is larger, it is
/// returned anyway.
pub(super) fn primer(graph: &dyn GraphRead, budget: Option<usize>) -> Result<Value, KipError> {
    let budget = budget.unwrap_or(BUDGET);
    let whole = Whole::of(graph);
    let mut within = Value::Null;
    for detail in &DETAILS {
        within = whole.to_json(detail);
        if tokens(&within) <= budget {
            break;
        }
    }
    Ok(within)
}

/// Estimates the number of tokens of a value: one per four letters of Latin text, or one per letter of a script
/// without spaces.
fn tokens(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.chars().map(|c| if c.is_ascii() { 1 } else { 4 }).sum::<usize>() / 4,
        Value::Array(items) => 1 + items.iter().map(|item| tokens(item) + 1).sum::<usize>(),
        Value::Object(members) => 1 + members.iter().map(|(key, item)| key.len() / 4 + 2 + tokens(item)).sum::<usize>(),
        _ => 1,
    }
}

struct Domain {
    name: String,
    description: Value,
    members: usize,
    concepts: Vec<String>,
    predicates: Vec<String>,
}

/// All contents for a primer, collected once.
struct Whole {
    identity: Map<String, Value>,
    domains: Vec<Domain>,
    types: Vec<Kind>,
    predicates: Vec<Said>,
}

/// A type with a sample of its concepts.
struct Kind {
    name: Sym,
    concepts: usize,
    attributes: Vec<&'static str>,
    examples: Vec<String>,
}

/// A predicate with the types that it connects.
struct Said {
    name: Sym,
    links: usize,
    from: String,
    to: String,
}

impl Whole {
    fn of(graph: &dyn GraphRead) -> Self {
        let mut identity = Map::new();
        if let Some(el) = graph.concept(Sym::new("Person"), "$self") {
            graph.look(el, &mut |look| identity = look.attributes().to_json());
        }
        // The principal's id is private (the Principle of Privacy), and empty members carry no information.
        identity.retain(|key, value| {
            key != "id"
                && !value.is_null()
                && value.as_array().is_none_or(|list| !list.is_empty())
                && value.as_object().is_none_or(|map| !map.is_empty())
        });
        let mut types: Vec<Kind> = graph
            .of_type(Sym::new(CONCEPT_TYPE), ElementId::NONE, TYPES_MAX)
            .into_iter()
            .filter_map(|el| graph.key(el))
            .map(|(_, name)| kind(graph, Sym::new(&name)))
            .collect();
        // Types from users come before the types that every mind has from the start.
        let born = |name: Sym| name.as_str().starts_with('$') || name.as_str() == "Domain";
        types.sort_by_key(|kind| (born(kind.name), std::cmp::Reverse(kind.concepts), kind.name.as_str()));
        let mut predicates: Vec<Said> = graph
            .of_type(Sym::new(PROPOSITION_TYPE), ElementId::NONE, TYPES_MAX)
            .into_iter()
            .filter_map(|el| said(graph, el))
            .collect();
        predicates.sort_by_key(|said| (std::cmp::Reverse(said.links), said.name.as_str()));
        let mut domains: Vec<Domain> = graph
            .of_type(Sym::new("Domain"), ElementId::NONE, 256)
            .into_iter()
            .filter_map(|el| domain(graph, el))
            .collect();
        domains.sort_by_key(|domain| (domain.name == "CoreSchema", std::cmp::Reverse(domain.members)));
        Self { identity, domains, types, predicates }
    }

    fn to_json(&self, detail: &Detail) -> Value {
        let mut identity = self.identity.clone();
        for value in identity.values_mut() {
            shorten(value, detail.text);
        }
        if let Some(Value::Array(directives)) = identity.get_mut("core_directives")
            && !detail.directives
        {
            directives.iter_mut().for_each(|directive| *directive = directive.get("name").cloned().unwrap_or_default());
        }
        if detail.types == 0 || detail.key == 0 {
            identity.retain(|key, _| ["name", "persona", "core_mission"].contains(&key.as_str()));
        }
        let domains: Vec<Value> = self
            .domains
            .iter()
            .take(detail.domains)
            .map(|domain| {
                let mut description = domain.description.clone();
                shorten(&mut description, detail.text);
                json!({
                    "name": domain.name, "description": description, "concepts": domain.members,
                    "key_concepts": domain.concepts.iter().take(detail.key).collect::<Vec<_>>(),
                    "key_propositions": domain.predicates.iter().take(detail.key).collect::<Vec<_>>(),
                })
            })
            .collect();
        let mut primer = json!({"identity": identity, "domain_map": domains});
        if self.domains.len() > detail.domains {
            primer["more_domains"] = (self.domains.len() - detail.domains).into();
        }
        if detail.types > 0 {
            let types = self.types.iter().take(detail.types).map(|kind| {
                let mut shown = json!({"type": kind.name, "concepts": kind.concepts});
                if detail.key > 0 {
                    shown["attributes"] = kind.attributes.iter().take(detail.key).copied().collect();
                    shown["examples"] = kind.examples.iter().take(detail.key.min(3)).cloned().collect();
                }
                shown
            });
            primer["concept_types"] = types.collect();
            let predicates = self
                .predicates
                .iter()
                .take(detail.types)
                .map(|said| json!({"predicate": said.name, "links": said.links, "from": said.from, "to": said.to}));
            primer["proposition_types"] = predicates.collect();
        }
        if detail.examples {
            primer["how_to_ask"] = json!([
                "SEARCH CONCEPT \"words\" LIMIT 5",
                "FIND(?x.name, ?x.attributes) WHERE { ?x {type: \"Person\"} } LIMIT 10",
                "FIND(?o.name) WHERE { ({type: \"T\", name: \"N\"}, ?p, ?o) }",
                "DESCRIBE CONCEPT TYPE \"T\"",
                "UPSERT { CONCEPT ?x { {type: \"T\", name: \"N\"} SET ATTRIBUTES { key: 1 } SET PROPOSITIONS { (\"p\", {type: \"T\", name: \"M\"}) } } } WITH METADATA { source: \"…\", confidence: 0.9 }",
            ]);
        }
        primer
    }
}

fn shorten(value: &mut Value, letters: usize) {
    match value {
        Value::String(text) if text.chars().count() > letters => {
            *text = text.chars().take(letters).chain(['…']).collect();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shorten(item, letters)),
        Value::Object(members) => members.values_mut().for_each(|item| shorten(item, letters)),
        _ => {}
    }
}

/// Returns a type with the attributes and names of some of its concepts.
fn kind(graph: &dyn GraphRead, name: Sym) -> Kind {
    let (mut attributes, mut examples) = (Vec::new(), Vec::new());
    for el in graph.of_type(name, ElementId::NONE, EXAMPLES) {
        graph.look(el, &mut |look| {
            let keys = look.attributes().pairs().iter().map(|(key, _)| key.as_str());
            attributes.extend(keys.filter(|key| !attributes.contains(key)).collect::<Vec<_>>());
            if let ElementRef::Concept(concept) = look {
                examples.push(concept.name.chars().take(60).collect());
            }
        });
    }
    Kind { name, concepts: graph.type_len(name), attributes, examples }
}

/// Returns a predicate with the types that its definition connects.
fn said(graph: &dyn GraphRead, el: ElementId) -> Option<Said> {
    let (_, name) = graph.key(el)?;
    let name = Sym::new(&name);
    let (mut from, mut to) = (String::new(), String::new());
    graph.look(el, &mut |look| {
        let listed = |key: &str| match look.attributes().named(key) {
            Some(Datum::Json(list)) => {
                let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
                names.take(4).collect::<Vec<_>>().join("|")
            }
            _ => "*".to_owned(),
        };
        (from, to) = (listed("subject_types"), listed("object_types"));
    });
    Some(Said { name, links: graph.predicate_len(Some(name)), from, to })
}

/// Returns a domain with its most used concepts and predicates. In a large domain, only the oldest and the newest
/// members are read.
fn domain(graph: &dyn GraphRead, el: ElementId) -> Option<Domain> {
    let membership = Sym::new("belongs_to_domain");
    let (_, name) = graph.key(el)?;
    let mut description = Value::Null;
    graph
        .look(el, &mut |look| description = look.attributes().named("description").map_or(Value::Null, Datum::to_json));
    let mut members: Vec<ElementId> = Vec::new();
    graph.edges(el, Direction::In, Some(membership), &mut |edge| {
        members.push(edge.other);
        members.len() < MEMBERS_MAX
    });
    let mut uses: HashMap<Sym, usize> = HashMap::new();
    let mut ranked: Vec<(usize, f64, ElementId)> = Vec::with_capacity(members.len());
    for member in members {
        let degree = graph.degree(member, Direction::Out, None) + graph.degree(member, Direction::In, None);
        let mut confidence = 0.0;
        graph.look(member, &mut |look: ElementRef<'_>| confidence = rank(look).0);
        ranked.push((degree, confidence, member));
        let mut left = LINKS_MAX;
        graph.edges(member, Direction::Out, None, &mut |edge| {
            *uses.entry(edge.predicate).or_default() += 1;
            left -= 1;
            left > 0
        });
    }
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    let mut predicates: Vec<(Sym, usize)> = uses.into_iter().collect();
    predicates.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.as_str().cmp(b.0.as_str())));
    Some(Domain {
        name: name.to_string(),
        description,
        members: graph.degree(el, Direction::In, Some(membership)),
        concepts: ranked
            .into_iter()
            .take(DETAILS[0].key)
            .filter_map(|(_, _, el)| graph.key(el))
            .map(|(_, name)| name.to_string())
            .collect(),
        predicates: predicates.into_iter().take(DETAILS[0].key).map(|(name, _)| name.as_str().to_owned()).collect(),
    })
}
