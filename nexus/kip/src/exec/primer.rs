//! DESCRIBE PRIMER: what a model needs in its first thousand tokens (draft7 §5.1.1): who it is, which
//! domains there are with what matters in each, how much there is of everything, and how to ask.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::describe::rank;
use super::draft::CONCEPT_TYPE;
use crate::datum::{Datum, Sym};
use crate::graph::{El, GraphRead, Look, Way};
use crate::lang::KipError;

/// Tokens, when the command names no budget.
const BUDGET: usize = 1000;
/// Members of a domain that are looked at, and links of each.
const MEMBERS_MAX: usize = 96;
const LINKS_MAX: usize = 24;

/// How much of everything is told; each step tells less.
struct Detail {
    key: usize,
    domains: usize,
    types: usize,
    text: usize,
    directives: bool,
    examples: bool,
}

const DETAILS: [Detail; 7] = [
    Detail { key: 12, domains: 64, types: 64, text: 600, directives: true, examples: true },
    Detail { key: 10, domains: 48, types: 40, text: 280, directives: true, examples: true },
    Detail { key: 8, domains: 24, types: 24, text: 160, directives: false, examples: true },
    Detail { key: 5, domains: 16, types: 16, text: 100, directives: false, examples: true },
    Detail { key: 3, domains: 8, types: 8, text: 60, directives: false, examples: false },
    Detail { key: 0, domains: 4, types: 4, text: 30, directives: false, examples: false },
    Detail { key: 0, domains: 0, types: 0, text: 0, directives: false, examples: false },
];

/// The primer in at most `budget` tokens; the last step, who it is and nothing more, is always given.
pub(super) fn primer(graph: &dyn GraphRead, budget: Option<usize>) -> Result<Value, KipError> {
    let budget = budget.unwrap_or(BUDGET);
    let whole = Whole::of(graph);
    let mut told = Value::Null;
    for detail in &DETAILS {
        told = whole.told(detail);
        if tokens(&told) <= budget {
            break;
        }
    }
    Ok(told)
}

/// About how many tokens a model reads: four letters of Latin text each, or one of a writing without spaces.
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

/// Everything a primer may tell, gathered once.
struct Whole {
    identity: Map<String, Value>,
    domains: Vec<Domain>,
    types: Vec<(Sym, usize)>,
    predicates: Vec<(Sym, usize)>,
}

impl Whole {
    fn of(graph: &dyn GraphRead) -> Self {
        let mut identity = Map::new();
        if let Some(el) = graph.concept(Sym::new("Person"), "$self") {
            graph.look(el, &mut |look| identity = look.attributes().to_json());
        }
        // The principal's id is nobody's business (the Principle of Privacy), and what is empty tells nothing.
        identity.retain(|key, value| {
            key != "id"
                && !value.is_null()
                && value.as_array().is_none_or(|list| !list.is_empty())
                && value.as_object().is_none_or(|map| !map.is_empty())
        });
        let by_use = |mut all: Vec<(Sym, usize)>| {
            all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.as_str().cmp(b.0.as_str())));
            all
        };
        let mut types = by_use(graph.types());
        // A type that is defined but has no concepts yet is worth knowing as well.
        for el in graph.of_type(Sym::new(CONCEPT_TYPE), El::NONE, 256) {
            if let Some((_, name)) = graph.key(el) {
                let name = Sym::new(&name);
                if !types.iter().any(|(known, _)| *known == name) {
                    types.push((name, 0));
                }
            }
        }
        let domains =
            graph.of_type(Sym::new("Domain"), El::NONE, 256).into_iter().filter_map(|el| domain(graph, el)).collect();
        Self { identity, domains, types, predicates: by_use(graph.predicates()) }
    }

    fn told(&self, detail: &Detail) -> Value {
        let mut identity = self.identity.clone();
        for value in identity.values_mut() {
            shorten(value, detail.text);
        }
        if let Some(Value::Array(directives)) = identity.get_mut("core_directives")
            && !detail.directives
        {
            directives.iter_mut().for_each(|directive| *directive = directive.get("name").cloned().unwrap_or_default());
        }
        if detail.text == 0 {
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
        let counted = |all: &[(Sym, usize)]| -> Map<String, Value> {
            all.iter().take(detail.types).map(|(name, count)| (name.as_str().to_owned(), (*count).into())).collect()
        };
        let mut told = json!({"identity": identity, "domain_map": domains});
        if self.domains.len() > detail.domains {
            told["more_domains"] = (self.domains.len() - detail.domains).into();
        }
        if detail.types > 0 {
            told["concept_types"] = counted(&self.types).into();
            told["proposition_types"] = counted(&self.predicates).into();
        }
        if detail.examples {
            told["how_to_ask"] = json!([
                "SEARCH CONCEPT \"words\" LIMIT 5",
                "FIND(?x.name, ?x.attributes) WHERE { ?x {type: \"Person\"} } LIMIT 10",
                "FIND(?o.name) WHERE { ({type: \"T\", name: \"N\"}, ?p, ?o) }",
                "DESCRIBE CONCEPT TYPE \"T\"",
            ]);
        }
        told
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

/// A domain with its most used concepts and predicates. Of a large domain a part is looked at: the members
/// that joined first and those that joined last.
fn domain(graph: &dyn GraphRead, el: El) -> Option<Domain> {
    let membership = Sym::new("belongs_to_domain");
    let (_, name) = graph.key(el)?;
    let mut description = Value::Null;
    graph
        .look(el, &mut |look| description = look.attributes().named("description").map_or(Value::Null, Datum::to_json));
    let mut members: Vec<El> = Vec::new();
    graph.edges(el, Way::In, Some(membership), &mut |edge| {
        members.push(edge.other);
        members.len() < MEMBERS_MAX
    });
    let mut uses: HashMap<Sym, usize> = HashMap::new();
    let mut ranked: Vec<(usize, f64, El)> = Vec::with_capacity(members.len());
    for member in members {
        let degree = graph.degree(member, Way::Out, None) + graph.degree(member, Way::In, None);
        let mut confidence = 0.0;
        graph.look(member, &mut |look: Look<'_>| confidence = rank(look).0);
        ranked.push((degree, confidence, member));
        let mut left = LINKS_MAX;
        graph.edges(member, Way::Out, None, &mut |edge| {
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
        members: graph.degree(el, Way::In, Some(membership)),
        concepts: ranked
            .into_iter()
            .take(DETAILS[0].key)
            .filter_map(|(_, _, el)| graph.key(el))
            .map(|(_, name)| name.to_string())
            .collect(),
        predicates: predicates.into_iter().take(DETAILS[0].key).map(|(name, _)| name.as_str().to_owned()).collect(),
    })
}
