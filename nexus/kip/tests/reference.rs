//! Random programs against a reference evaluator that knows no index, no plan and no order but the text's:
//! it tries every element for every variable.

use std::collections::{BTreeMap, BTreeSet};

use kip::{Engine, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

const PREDICATES: [&str; 2] = ["p", "q"];
const KINDS: [&str; 2] = ["T", "U"];

/// An element by its place: nodes first, links after them.
type Place = usize;

#[derive(Clone, Debug)]
struct World {
    /// Type and the attribute `n` of each node.
    nodes: Vec<(usize, Option<i64>)>,
    /// Subject, predicate, object; an object may be an earlier link.
    links: Vec<(Place, usize, Place)>,
}

#[derive(Clone, Debug)]
enum Clause {
    Concept(usize, Option<usize>, Option<usize>),
    Triple(Option<usize>, usize, Vec<usize>, usize),
    Path(usize, usize, (u32, Option<u32>), usize),
    Compare(usize, &'static str, Option<i64>),
    Same(usize, usize),
    Not(Vec<Clause>),
    Optional(Vec<Clause>),
    Union(Vec<Clause>),
}

const VARS: [&str; 4] = ["a", "b", "c", "l"];

impl Clause {
    fn text(&self) -> String {
        let block = |name: &str, inner: &[Clause]| {
            format!("{name} {{ {} }}", inner.iter().map(Clause::text).collect::<Vec<_>>().join(" "))
        };
        let names = |names: &[usize]| {
            names.iter().map(|name| format!("\"{}\"", PREDICATES[*name])).collect::<Vec<_>>().join(" | ")
        };
        match self {
            Self::Concept(var, kind, name) => {
                let parts = [
                    kind.map(|kind| format!("type: \"{}\"", KINDS[kind])),
                    name.map(|name| format!("name: \"n{name}\"")),
                ];
                format!("?{} {{{}}}", VARS[*var], parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
            }
            Self::Triple(link, s, p, o) => {
                let link = link.map_or(String::new(), |link| format!("?{} ", VARS[link]));
                format!("{link}(?{}, {}, ?{})", VARS[*s], names(p), VARS[*o])
            }
            Self::Path(s, p, (min, max), o) => {
                let max = max.map_or(String::new(), |max| max.to_string());
                format!("(?{}, \"{}\"{{{min},{max}}}, ?{})", VARS[*s], PREDICATES[*p], VARS[*o])
            }
            Self::Compare(var, operator, value) => {
                format!(
                    "FILTER(?{}.attributes.n {operator} {})",
                    VARS[*var],
                    value.map_or("null".into(), |n| n.to_string())
                )
            }
            Self::Same(a, b) => format!("FILTER(?{}.attributes.n == ?{}.attributes.n)", VARS[*a], VARS[*b]),
            Self::Not(inner) => block("NOT", inner),
            Self::Optional(inner) => block("OPTIONAL", inner),
            Self::Union(inner) => block("UNION", inner),
        }
    }
}

/// What each variable stands for; absent is unbound, `None` is null.
type Row = BTreeMap<usize, Option<Place>>;

struct Reference<'w>(&'w World);

impl Reference<'_> {
    fn n(&self, place: Option<Place>) -> Option<i64> {
        self.0.nodes.get(place?)?.1
    }

    fn len(&self) -> usize {
        self.0.nodes.len() + self.0.links.len()
    }

    fn link(&self, place: Place) -> Option<(Place, usize, Place)> {
        self.0.links.get(place.checked_sub(self.0.nodes.len())?).copied()
    }

    /// Every way to make `row` agree with `want`, variable by variable.
    fn extend(row: &Row, known: &BTreeSet<usize>, want: &[(usize, Place)]) -> Option<Row> {
        let mut row = row.clone();
        for (var, place) in want {
            match row.get(var) {
                Some(held) if *held == Some(*place) => {}
                Some(_) => return None,
                None if known.contains(var) => return None,
                None => drop(row.insert(*var, Some(*place))),
            }
        }
        Some(row)
    }

    fn basic(&self, clause: &Clause, row: &Row, known: &BTreeSet<usize>) -> Vec<Row> {
        let mut out = Vec::new();
        match clause {
            Clause::Concept(var, kind, name) => {
                for (place, (of, _)) in self.0.nodes.iter().enumerate() {
                    if kind.is_none_or(|kind| kind == *of) && name.is_none_or(|name| name == place) {
                        out.extend(Self::extend(row, known, &[(*var, place)]));
                    }
                }
            }
            Clause::Triple(link, s, names, o) => {
                for place in 0..self.len() {
                    let Some((subject, predicate, object)) = self.link(place).filter(|(_, p, _)| names.contains(p))
                    else {
                        continue;
                    };
                    let _ = predicate;
                    let mut want = vec![(*s, subject), (*o, object)];
                    want.extend(link.map(|link| (link, place)));
                    out.extend(Self::extend(row, known, &want));
                }
            }
            Clause::Path(s, name, (min, max), o) => {
                for start in 0..self.len() {
                    // Walks up to so long reach everything that longer ones reach.
                    let most = max.unwrap_or(min + self.len() as u32);
                    let mut level = BTreeSet::from([start]);
                    let mut ends = BTreeSet::new();
                    for hop in 0..=most {
                        if hop >= *min {
                            ends.extend(level.iter().copied());
                        }
                        level = self
                            .0
                            .links
                            .iter()
                            .filter(|(s, p, _)| p == name && level.contains(s))
                            .map(|(_, _, o)| *o)
                            .collect();
                    }
                    for end in ends {
                        out.extend(Self::extend(row, known, &[(*s, start), (*o, end)]));
                    }
                }
            }
            _ => out.push(row.clone()),
        }
        out
    }

    fn holds(&self, clause: &Clause, row: &Row) -> bool {
        let n = |var: &usize| self.n(row.get(var).copied().flatten());
        match clause {
            Clause::Compare(var, operator, value) => match (*operator, n(var), *value) {
                ("==", a, b) => a == b,
                ("!=", a, b) => a != b,
                ("<", Some(a), Some(b)) => a < b,
                (">=", Some(a), Some(b)) => a >= b,
                _ => false,
            },
            Clause::Same(a, b) => n(a) == n(b),
            _ => true,
        }
    }

    /// The solutions of a block for each of `seeds`; `Err` for a filter that sees a variable nobody binds.
    fn block(&self, clauses: &[Clause], seeds: Vec<Row>, known: &mut BTreeSet<usize>) -> Result<Vec<Row>, ()> {
        let mut rows = seeds.clone();
        let mut filters: Vec<&Clause> = Vec::new();
        let mut begun = false;
        // Answers whether a filter was judged: a block that begins with one has begun.
        let settle = |rows: &mut Vec<Row>, filters: &mut Vec<&Clause>, known: &BTreeSet<usize>| {
            let before = filters.len();
            filters.retain(|filter| {
                let ready = vars(filter).iter().all(|var| known.contains(var));
                if ready {
                    rows.retain(|row| self.holds(filter, row));
                }
                !ready
            });
            filters.len() < before
        };
        let mut fresh = known.clone();
        for clause in clauses {
            match clause {
                Clause::Compare(..) | Clause::Same(..) => filters.push(clause),
                Clause::Concept(..) | Clause::Triple(..) | Clause::Path(..) => {
                    rows = rows.iter().flat_map(|row| self.basic(clause, row, known)).collect();
                    fresh.extend(vars(clause));
                    begun = true;
                }
                Clause::Not(inner) => {
                    known.extend(fresh.iter().copied());
                    settle(&mut rows, &mut filters, known);
                    let mut kept = Vec::new();
                    self.block(inner, vec![], &mut known.clone())?;
                    for row in rows {
                        if self.block(inner, vec![row.clone()], &mut known.clone())?.is_empty() {
                            kept.push(row);
                        }
                    }
                    rows = kept;
                    begun = true;
                }
                Clause::Optional(inner) => {
                    known.extend(fresh.iter().copied());
                    settle(&mut rows, &mut filters, known);
                    let mut inside = known.clone();
                    self.block(inner, vec![], &mut inside)?;
                    let mut out = Vec::new();
                    for row in rows {
                        let found = self.block(inner, vec![row.clone()], &mut known.clone())?;
                        if found.is_empty() { out.push(row) } else { out.extend(found) }
                    }
                    rows = out;
                    fresh.extend(inside.iter().copied());
                    known.extend(inside);
                    begun = true;
                }
                Clause::Union(inner) => {
                    known.extend(fresh.iter().copied());
                    begun |= settle(&mut rows, &mut filters, known);
                    let mut inside = BTreeSet::new();
                    let found = self.block(inner, vec![Row::new()], &mut inside)?;
                    if !begun {
                        rows.clear();
                    }
                    for seed in &seeds {
                        for row in &found {
                            let clash = row.iter().any(|(var, place)| {
                                place.is_some()
                                    && seed.get(var).copied().flatten().is_some_and(|held| Some(held) != *place)
                            });
                            if !clash {
                                let mut joined = seed.clone();
                                joined.extend(
                                    row.iter().filter(|(_, place)| place.is_some()).map(|(var, place)| (*var, *place)),
                                );
                                rows.push(joined);
                            }
                        }
                    }
                    fresh.extend(inside.iter().copied());
                    known.extend(inside);
                    begun = true;
                }
            }
        }
        known.extend(fresh);
        settle(&mut rows, &mut filters, known);
        if filters.is_empty() { Ok(rows) } else { Err(()) }
    }
}

fn vars(clause: &Clause) -> Vec<usize> {
    match clause {
        Clause::Concept(var, ..) | Clause::Compare(var, ..) => vec![*var],
        Clause::Triple(link, s, _, o) => link.iter().copied().chain([*s, *o]).collect(),
        Clause::Path(s, _, _, o) | Clause::Same(s, o) => vec![*s, *o],
        _ => Vec::new(),
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let nodes = prop::collection::vec((0..2usize, prop::option::of(0..3i64)), 2..6);
    nodes.prop_flat_map(|nodes| {
        let count = nodes.len();
        let links = prop::collection::vec((0..count, 0..2usize, 0..count + 3), 0..9);
        links.prop_map(move |drafts| {
            let mut links: Vec<(Place, usize, Place)> = Vec::new();
            for (s, p, o) in drafts {
                let link = (s, p, if o < nodes.len() + links.len() { o } else { s });
                if !links.contains(&link) {
                    links.push(link);
                }
            }
            World { nodes: nodes.clone(), links }
        })
    })
}

fn clauses() -> impl Strategy<Value = Vec<Clause>> {
    let element = 0..3usize;
    let basic = prop_oneof![
        3 => (element.clone(), prop::option::of(0..2usize), prop::option::of(0..5usize)).prop_map(|(var, kind, name)| Clause::Concept(var, kind.or(name.is_none().then_some(0)), name)),
        4 => (prop::option::of(Just(3usize)), element.clone(), prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![0, 1])], 0..4usize).prop_map(|(link, s, p, o)| if link == Some(o) { Clause::Triple(None, s, p, o) } else { Clause::Triple(link, s, p, o) }),
        1 => (element.clone(), 0..2usize, (0..3u32, prop::option::of(0..3u32)), element.clone()).prop_map(|(s, p, (min, more), o)| Clause::Path(s, p, (min.max(1), more.map(|more| min.max(1) + more)), o)),
        2 => (element.clone(), prop::sample::select(vec!["==", "!=", "<", ">="]), prop::option::of(0..3i64)).prop_map(|(var, operator, value)| Clause::Compare(var, operator, value)),
        1 => (element.clone(), element).prop_map(|(a, b)| Clause::Same(a, b)),
    ];
    let nested = basic.prop_recursive(2, 12, 3, |inner| {
        let block = prop::collection::vec(inner, 1..4);
        prop_oneof![
            block.clone().prop_map(Clause::Not),
            block.clone().prop_map(Clause::Optional),
            block.prop_map(Clause::Union)
        ]
    });
    prop::collection::vec(nested, 1..6)
}

/// The engine with the world in it, and the id of each place.
fn build(world: &World) -> (Engine, Vec<String>) {
    let mut engine = Engine::born(|| 0);
    let mut text = String::from("UPSERT {");
    for kind in KINDS {
        text += &format!(" CONCEPT {{ {{type: \"$ConceptType\", name: \"{kind}\"}} }}");
    }
    for name in PREDICATES {
        text += &format!(" CONCEPT {{ {{type: \"$PropositionType\", name: \"{name}\"}} }}");
    }
    for (place, (kind, n)) in world.nodes.iter().enumerate() {
        let n = n.map_or(String::new(), |n| format!("SET ATTRIBUTES {{ n: {n} }}"));
        text += &format!(" CONCEPT ?e{place} {{ {{type: \"{}\", name: \"n{place}\"}} {n} }}", KINDS[*kind]);
    }
    for (at, (s, p, o)) in world.links.iter().enumerate() {
        text += &format!(" PROPOSITION ?e{} {{ (?e{s}, \"{}\", ?e{o}) }}", world.nodes.len() + at, PREDICATES[*p]);
    }
    let answer = engine.execute(&Request::new(text + " }"));
    let ids = |key: &str| answer["result"][key].as_array().cloned().unwrap_or_default();
    let ids = ids("upsert_concept_nodes").into_iter().skip(4).chain(ids("upsert_proposition_links"));
    (engine, ids.map(|id| id.as_str().unwrap_or_default().to_owned()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_random_program_answers_as_the_reference_does(world in worlds(), clauses in clauses()) {
        let (mut engine, ids) = build(&world);
        let mut known = BTreeSet::new();
        let expected = Reference(&world).block(&clauses, vec![Row::new()], &mut known);
        let projected: Vec<usize> = known.iter().copied().collect();
        let body = clauses.iter().map(Clause::text).collect::<Vec<_>>().join(" ");
        let select = if projected.is_empty() { "?a.id, ?b.id".into() } else {
            // A second expression keeps every row an array.
            projected.iter().map(|var| format!("?{}.id", VARS[*var])).chain([format!("?{}.id", VARS[projected[0]])]).collect::<Vec<_>>().join(", ")
        };
        let command = format!("FIND({select}) WHERE {{ {body} }}");
        let answer = engine.execute(&Request::new(command.clone()));
        match expected {
            Err(()) => prop_assert_eq!(&answer["error"]["kind"], &json!("reference"), "{}", command),
            Ok(_) if projected.is_empty() => prop_assert_eq!(&answer["error"]["kind"], &json!("reference"), "{}", command),
            Ok(rows) => {
                let id = |place: Option<Place>| place.map_or(Value::Null, |place| ids[place].clone().into());
                let wanted: BTreeSet<String> = rows.iter().map(|row| {
                    let mut cells: Vec<Value> = projected.iter().map(|var| id(row.get(var).copied().flatten())).collect();
                    cells.push(cells[0].clone());
                    Value::Array(cells).to_string()
                }).collect();
                let list = answer["result"].as_array().cloned();
                prop_assert!(list.is_some(), "{command}\n{answer}");
                let got: Vec<String> = list.unwrap_or_default().iter().map(Value::to_string).collect();
                prop_assert_eq!(got.len(), got.iter().collect::<BTreeSet<_>>().len(), "a row came twice: {}", command);
                prop_assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), wanted, "{}", command);
            }
        }
    }
}
