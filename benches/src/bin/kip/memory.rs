//! The engine in process: parse, plan, execute and the JSON text of the answer, beside a floor of hash maps
//! and adjacency lists that knows no language at all.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use nexus::kip::datum::Sym;
use nexus::kip::graph::Graph;
use nexus::kip::graph::text::Index;
use nexus::kip::{Call, ElementId, Engine, GraphRead, Request};
use serde_json::Value;

use super::generator::{all, capsule, h, item, queries};
use super::{percentile, resident, round, row};

pub(crate) fn run(n: u64) -> Vec<Value> {
    let mut rows = Vec::new();
    let text = capsule(n / 2, n / 2 + 20, n);
    let began = Instant::now();
    let times = 2000;
    for _ in 0..times {
        black_box(nexus::kip::lang::parse(black_box(&text)).unwrap());
    }
    let megabytes = (text.len() * times) as f64 / began.elapsed().as_secs_f64() / 1e6;
    rows.push(row("parse, 20-concept capsule", round(megabytes), "MB/s", "goal 100"));

    let capsules: Vec<String> = all(n).collect();
    let mut engine = Engine::born(|| 0);
    let (before, began) = (resident(), Instant::now());
    for text in &capsules {
        let answer = engine.execute(&Request::new(text.clone()));
        assert!(answer.get("error").is_none(), "{answer}");
    }
    let load = began.elapsed().as_secs_f64();
    rows.push(row(format!("load {n} items in memory"), (n as f64 / load).round(), "concepts/s", ""));
    let bytes = (resident() - before) as f64;
    let words = words_alone(&engine);
    let item = |bytes: f64| round(bytes / n as f64);
    rows.push(row("resident, without words", item(bytes - words), "bytes an item with its 3 links", "goal 700"));
    rows.push(row("resident, words", item(words), "bytes an item", ""));

    rows.push(row("weight it gives itself", item(engine.graph.weight() as f64), "bytes an item", "the two above"));
    let began = Instant::now();
    let made = black_box(Graph::of(engine.graph.records()));
    rows.push(row("the graph made at once", round(began.elapsed().as_secs_f64()), "s", "two threads"));
    made.ready_words();
    rows.push(row("and its words", round(began.elapsed().as_secs_f64()), "s", ""));

    // Reads go through the view of a principal who does not see everything.
    for query in queries(n) {
        for warm in 0..3 {
            engine.execute(&Request::new((query.text)(warm)));
        }
        let mut times: Vec<f64> = (0..query.runs)
            .map(|k| {
                let call = Call { command: (query.text)(k), parameters: serde_json::Map::new() };
                let began = Instant::now();
                let answer = ask(&engine, &call);
                let took = began.elapsed().as_secs_f64() * 1e6;
                assert!(!answer.contains("\"error\""), "{answer}");
                took
            })
            .collect();
        let floor = floor_of(query.name, n).map_or(String::new(), |floor| format!("floor {} µs", round(floor)));
        rows.push(row(query.name, round(percentile(&mut times, 0.5)), "µs p50", floor));
        rows.push(row(format!("{}, p99", query.name), round(percentile(&mut times, 0.99)), "µs", ""));
    }
    rows
}

/// What the words of every item take: an index of them and nothing else, built beside the graph.
fn words_alone(engine: &Engine) -> f64 {
    let (kind, mut index, mut after) = (Sym::new("Item"), Index::default(), ElementId::NONE);
    let before = resident();
    loop {
        let some = engine.graph.of_type(kind, after, 1000);
        let Some(last) = some.last() else { break };
        after = *last;
        some.iter().for_each(|el| index.change(*el, None, engine.graph.get(*el)));
    }
    let words = (resident() - before) as f64;
    black_box(index.words());
    words
}

/// One read, from text to text.
fn ask(engine: &Engine, call: &Call) -> String {
    let scopes = ["public".into()].into();
    let view = nexus::kip::Scoped::new(&engine.graph, engine.graph.limited(), Some(&scopes));
    let options = nexus::kip::Options::default();
    let answered = nexus::kip::bind_and(call, |command| nexus::kip::exec::read(command, &view, &options));
    nexus::kip::envelope(answered, &call.command).to_string()
}

/// The same question asked of maps and lists, built once.
struct Floor {
    by_name: HashMap<String, u64>,
    rank: Vec<u64>,
    names: Vec<String>,
    links: Vec<Vec<u64>>,
}

fn floor_of(name: &str, n: u64) -> Option<f64> {
    thread_local! {
        static FLOOR: std::cell::RefCell<Option<(u64, Floor)>> = const { std::cell::RefCell::new(None) };
    }
    FLOOR.with_borrow_mut(|held| {
        if held.as_ref().is_none_or(|(of, _)| *of != n) {
            let items: Vec<_> = (0..n).map(|i| item(i, n)).collect();
            let names: Vec<String> = (0..n).map(|i| format!("item_{i:06}")).collect();
            let by_name = names.iter().cloned().zip(0..).collect();
            let floor = Floor {
                by_name,
                rank: items.iter().map(|i| i.rank).collect(),
                names,
                links: items.into_iter().map(|i| i.links).collect(),
            };
            *held = Some((n, floor));
        }
        let (_, floor) = held.as_ref()?;
        let mut times: Vec<f64> = (0..200u64)
            .map(|k| {
                let began = Instant::now();
                match name {
                    "point {type,name}" => {
                        let at = floor.by_name[&format!("item_{:06}", h(k, 78) % n)];
                        black_box(floor.rank[at as usize].to_string());
                    }
                    "1-hop, degree 10" => {
                        let names: Vec<&str> = (0..10).map(|i| floor.names[i].as_str()).collect();
                        black_box(serde_json::to_string(&names).unwrap());
                    }
                    "path {1,3}" => {
                        let start = floor.by_name[&format!("item_{:06}", n / 2 + h(k, 77) % (n - n / 2))];
                        let (mut ends, mut level) = (std::collections::BTreeSet::new(), vec![start]);
                        for _ in 0..3 {
                            level = level.iter().flat_map(|at| floor.links[*at as usize].clone()).collect();
                            ends.extend(level.iter().copied());
                        }
                        let names: Vec<&str> = ends.iter().map(|at| floor.names[*at as usize].as_str()).collect();
                        black_box(serde_json::to_string(&names).unwrap());
                    }
                    "FILTER scan" if k < 10 => {
                        let names: Vec<&str> = (0..n as usize)
                            .filter(|at| floor.rank[*at] < 10)
                            .map(|at| floor.names[at].as_str())
                            .collect();
                        black_box(serde_json::to_string(&names).unwrap());
                    }
                    _ => return f64::NAN,
                }
                began.elapsed().as_secs_f64() * 1e6
            })
            .filter(|time| !time.is_nan())
            .collect();
        (!times.is_empty()).then(|| percentile(&mut times, 0.5))
    })
}
