//! The superset and our extensions (RESOLUTIONS §3–§5): text in, text out.

use kip::{Dialect, Engine, One, Request, Shape};
use serde_json::{Value, json};

const WORLD: &str = r#"UPSERT {
  CONCEPT ?t { {type: "$ConceptType", name: "Boat"} SET ATTRIBUTES { description: "it floats" } }
  CONCEPT ?h { {type: "$ConceptType", name: "Harbour"} SET ATTRIBUTES { description: "it waits" } }
  CONCEPT ?m { {type: "$PropositionType", name: "moored_in"} SET ATTRIBUTES { description: "lies in", subject_types: ["Boat"], object_types: ["Harbour"] } }
  CONCEPT ?n { {type: "$PropositionType", name: "near"} SET ATTRIBUTES { description: "close to", subject_types: ["*"], object_types: ["*"] } }
  CONCEPT ?s { {type: "$PropositionType", name: "said"} SET ATTRIBUTES { description: "told of", subject_types: ["Person"], object_types: ["*"] } }
  CONCEPT ?faro { {type: "Harbour", name: "Faro"} SET ATTRIBUTES { depth: 8 } }
  CONCEPT ?oslo { {type: "Harbour", name: "Oslo"} SET ATTRIBUTES { depth: 20 } SET PROPOSITIONS { ("near", ?faro) } }
  CONCEPT ?petrel { {type: "Boat", name: "Petrel"} SET ATTRIBUTES { tons: 40, seen: 1, aliases: ["storm bird"] } SET PROPOSITIONS { ("moored_in", ?faro) } }
  CONCEPT ?heron { {type: "Boat", name: "Heron"} SET ATTRIBUTES { tons: 90.5, flag: null } SET PROPOSITIONS { ("moored_in", ?oslo) } }
  CONCEPT ?tern { {type: "Boat", name: "Tern"} SET ATTRIBUTES { tons: 12, seen: 3 } }
} WITH METADATA { source: "log", confidence: 0.9 }"#;

fn world() -> Engine {
    let mut engine = Engine::born(|| 1_700_000_000_000_000);
    let answer = engine.execute(&Request::new(WORLD));
    assert!(answer.get("error").is_none(), "{answer}");
    engine
}

fn run(engine: &mut Engine, command: &str) -> Value {
    engine.execute(&Request::new(command))
}

/// The result of a command that must succeed.
fn ok(engine: &mut Engine, command: &str) -> Value {
    let answer = run(engine, command);
    assert!(answer.get("error").is_none(), "{command}\n{answer}");
    answer["result"].clone()
}

/// Code and kind of the error of a command that must fail.
fn refused(engine: &mut Engine, command: &str) -> (String, String) {
    let answer = run(engine, command);
    let error = answer.get("error").unwrap_or_else(|| panic!("{command}\n{answer}"));
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("kind"))
}

#[test]
fn filters_test_membership_and_absence() {
    let mut w = world();
    assert_eq!(
        ok(&mut w, r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(IN(?b.name, ["Tern", "Heron", 7])) }"#),
        json!(["Heron", "Tern"])
    );
    assert_eq!(
        ok(&mut w, r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(IS_NULL(?b.attributes.flag)) }"#),
        json!(["Petrel", "Heron", "Tern"])
    );
    assert_eq!(
        ok(&mut w, r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(is_not_null(?b.attributes.seen)) }"#),
        json!(["Petrel", "Tern"])
    );
    let listed = Request::with(
        r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(IN(?b.attributes.tons, :tons)) }"#,
        json!({"tons": [40.0, 12]}),
    );
    assert_eq!(w.execute(&listed)["result"], json!(["Petrel", "Tern"]));
}

#[test]
fn update_computes_attributes_and_skips_non_numeric_values() {
    let mut w = world();
    let counted = r#"UPDATE ?b SET ATTRIBUTES { seen: ADD(?b.attributes.seen, 1), half: MUL(?b.attributes.tons, 0.5), near: CLAMP(?b.attributes.tons, 20, 50), port: COALESCE(?b.attributes.flag, "none") } SET METADATA { checked: true } WHERE { ?b {type: "Boat"} }"#;
    assert_eq!(ok(&mut w, counted), json!({"updated": 3, "matched": 3}));
    assert_eq!(
        ok(
            &mut w,
            r#"FIND(?b.name, ?b.attributes.seen, ?b.attributes.half, ?b.attributes.near, ?b.attributes.port, ?b.metadata.checked, ?b.metadata._version) WHERE { ?b {type: "Boat"} }"#
        ),
        json!([
            ["Petrel", 2, 20.0, 40, "none", true, 2],
            ["Heron", null, 45.25, 50, "none", true, 2],
            ["Tern", 4, 6.0, 20, "none", true, 2]
        ])
    );
    assert_eq!(
        ok(&mut w, r#"UPDATE ?b SET ATTRIBUTES { seen: 9 } WHERE { ?b {type: "Boat"} } LIMIT 1"#),
        json!({"updated": 1, "matched": 1})
    );
    assert_eq!(
        ok(&mut w, r#"UPDATE ?b SET ATTRIBUTES { seen: 9 } WHERE { ?b {type: "Boat", name: "Petrel"} }"#),
        json!({"updated": 0, "matched": 1})
    );
    assert_eq!(refused(&mut w, r#"UPDATE ?b SET METADATA { _version: 7 } WHERE { ?b {type: "Boat"} }"#).0, "KIP_2002");
    assert_eq!(
        refused(&mut w, r#"UPDATE ?p SET ATTRIBUTES { mood: "new" } WHERE { ?p {type: "Person"} }"#).1,
        "immutable"
    );
    assert_eq!(
        refused(&mut w, r#"UPDATE ?b SET ATTRIBUTES { x: ?h.attributes.depth } WHERE { (?b, "moored_in", ?h) }"#).1,
        "syntax"
    );
}

#[test]
fn merge_makes_one_of_two_and_remembers_where_it_came_from() {
    let mut w = world();
    ok(
        &mut w,
        r#"UPSERT { CONCEPT ?b { {type: "Boat", name: "The Petrel"} SET ATTRIBUTES { tons: 1, owner: "Ada", aliases: ["petrel II"] } SET PROPOSITIONS { ("moored_in", {type: "Harbour", name: "Faro"}) WITH METADATA { since: 1999 } ("near", {type: "Boat", name: "Tern"}) } } PROPOSITION ?p { ({type: "Person", name: "$self"}, "said", ({type: "Boat", name: "The Petrel"}, "moored_in", {type: "Harbour", name: "Faro"})) } }"#,
    );
    let link = ok(&mut w, r#"FIND(?l.id) WHERE { ?l ({type: "Boat", name: "Petrel"}, "moored_in", ?h) }"#);
    let merged = ok(
        &mut w,
        r#"MERGE CONCEPT ?a INTO ?b WHERE { ?a {type: "Boat", name: "The Petrel"} ?b {type: "Boat", name: "Petrel"} }"#,
    );
    assert_eq!(merged, json!({"merged": true, "links_repointed": 2, "links_deduplicated": 1, "attributes_filled": 1}));
    assert_eq!(
        ok(
            &mut w,
            r#"FIND(?b.attributes.tons, ?b.attributes.owner, ?b.attributes.aliases, ?b.metadata._merged_from) WHERE { ?b {type: "Boat", name: "Petrel"} }"#
        ),
        json!([[40, "Ada", ["storm bird", "petrel II", "The Petrel"], ["The Petrel"]]])
    );
    assert_eq!(
        ok(&mut w, r#"FIND(?l.id, ?l.metadata.since) WHERE { ?l ({type: "Boat", name: "Petrel"}, "moored_in", ?h) }"#),
        json!([[link[0], 1999]])
    );
    assert_eq!(
        ok(&mut w, r#"FIND(?b.name) WHERE { ({name: "$self"}, "said", (?b, "moored_in", ?h)) }"#),
        json!(["Petrel"])
    );
    assert_eq!(ok(&mut w, r#"FIND(?b) WHERE { ?b {name: "The Petrel"} }"#), json!([]));
    let both = |a: &str, b: &str| format!("MERGE CONCEPT ?a INTO ?b WHERE {{ ?a {a} ?b {b} }}");
    let (petrel, person) = (r#"{type: "Boat", name: "Petrel"}"#, r#"{type: "Person", name: "$self"}"#);
    assert_eq!(refused(&mut w, &both(r#"{type: "Boat", name: "None"}"#, petrel)).0, "KIP_3002");
    assert_eq!(refused(&mut w, &both(r#"{type: "Boat"}"#, petrel)).0, "KIP_3003");
    assert_eq!(refused(&mut w, &both(petrel, r#"{type: "Harbour", name: "Faro"}"#)).0, "KIP_2002");
    assert_eq!(refused(&mut w, &both(person, r#"{type: "Person", name: "$system"}"#)).1, "immutable");
}

#[test]
fn expected_versions_stop_a_lost_update() {
    let mut w = world();
    let set = |version: u32, tons: u32| {
        format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "Petrel"}} EXPECT VERSION {version} SET ATTRIBUTES {{ tons: {tons} }} }} }}"#
        )
    };
    ok(&mut w, &set(1, 41));
    assert_eq!(refused(&mut w, &set(1, 42)).0, "KIP_3005");
    ok(&mut w, &set(2, 43));
    assert_eq!(refused(&mut w, r#"UPSERT { CONCEPT { {type: "Boat", name: "New"} } CONCEPT { {type: "Boat", name: "Petrel"} EXPECT VERSION 0 } }"#).0, "KIP_3005");
    assert_eq!(ok(&mut w, r#"FIND(?b) WHERE { ?b {name: "New"} }"#), json!([]));
    ok(&mut w, r#"UPSERT { CONCEPT { {type: "Boat", name: "New"} EXPECT VERSION 0 } }"#);
    assert_eq!(refused(&mut w, r#"UPSERT { CONCEPT { {type: "Boat", name: "New"} EXPECT VERSION 0 } }"#).0, "KIP_3005");
}

#[test]
fn an_export_imports_to_the_same_graph() {
    let mut w = world();
    let pages = {
        let mut pages = Vec::new();
        let mut cursor = String::new();
        loop {
            let answer = run(
                &mut w,
                &format!(
                    r#"EXPORT ?x WHERE {{ ?x {{type: "Boat"}} UNION {{ ?x {{type: "Harbour"}} }} }} LIMIT 2 {cursor}"#
                ),
            );
            pages.push(answer["result"]["capsule"].as_str().unwrap().to_owned());
            match answer["next_cursor"].as_str() {
                Some(next) => cursor = format!("CURSOR \"{next}\""),
                None => break pages,
            }
        }
    };
    assert_eq!(pages.len(), 3);
    let mut other = Engine::born(|| 1);
    ok(&mut other, WORLD.split("CONCEPT ?faro").next().map(|head| format!("{head} }}")).as_deref().unwrap());
    for page in &pages {
        ok(&mut other, page);
    }
    for query in [
        r#"FIND(?x.type, ?x.name, ?x.attributes) WHERE { ?x {type: "Boat"} UNION { ?x {type: "Harbour"} } } ORDER BY ?x.name"#,
        r#"FIND(?s.name, ?l.predicate, ?o.name, ?l.metadata.source) WHERE { ?l (?s, "moored_in" | "near", ?o) } ORDER BY ?s.name"#,
    ] {
        assert_eq!(ok(&mut w, query), ok(&mut other, query));
    }
    // Importing again changes nothing.
    let versions = r#"FIND(?x.metadata._version) WHERE { ?x {type: "Boat"} }"#;
    for page in &pages {
        ok(&mut other, page);
    }
    assert_eq!(ok(&mut other, versions), json!([1, 1, 1]));
}

#[test]
fn an_export_does_not_copy_metadata_of_a_concept_to_its_links() {
    let mut w = world();
    ok(&mut w, r#"UPDATE ?b SET METADATA { status: "superseded" } WHERE { ?b {type: "Boat", name: "Petrel"} }"#);
    let exported = ok(&mut w, r#"EXPORT ?b WHERE { ?b {type: "Boat", name: "Petrel"} }"#);
    let links =
        r#"FIND(?l.predicate, ?l.metadata) WHERE { ?l ({type: "Boat", name: "Petrel"}, "moored_in" | "near", ?o) }"#;
    let before = ok(&mut w, links);
    assert_ne!(before, json!([]));
    ok(&mut w, exported["capsule"].as_str().unwrap());
    assert_eq!(ok(&mut w, links), before);
}

#[test]
fn a_search_handles_modes_thresholds_typos_prefixes_and_scripts() {
    let mut w = world();
    ok(
        &mut w,
        r#"UPSERT { CONCEPT { {type: "Harbour", name: "東京港"} SET ATTRIBUTES { note: "大きな港です" } } CONCEPT { {type: "Harbour", name: "부산항"} } CONCEPT { {type: "Harbour", name: "上海港"} } }"#,
    );
    let first = |w: &mut Engine, words: &str| ok(w, &format!("SEARCH CONCEPT {words}"))[0]["name"].clone();
    for (words, name) in [
        ("\"petrel\"", "Petrel"),
        ("\"Petral\"", "Petrel"),
        ("\"petr\"", "Petrel"),
        ("\"storm birds\"", "Petrel"),
        ("\"東京\"", "東京港"),
        ("\"부산\"", "부산항"),
        ("\"上海港\" WITH TYPE \"Harbour\"", "上海港"),
        ("\"京\"", "東京港"),
        ("\"上\"", "上海港"),
        ("\"PETREL\" MODE \"keyword\"", "Petrel"),
        ("\"petrel\" MODE \"semantic\"", "Petrel"),
        ("\"petrel\" MODE \"hybrid\" THRESHOLD 0.5 LIMIT 1", "Petrel"),
    ] {
        assert_eq!(first(&mut w, words), name, "{words}");
    }
    assert_eq!(ok(&mut w, "SEARCH \"petral\" THRESHOLD 0.99"), json!([]));
    assert_eq!(ok(&mut w, "SEARCH CONCEPT \"petrel\" WITH TYPE \"Harbour\""), json!([]));
    let score = ok(&mut w, "SEARCH CONCEPT \"petrel\"")[0]["metadata"]["_score"].as_f64().unwrap();
    assert!(score > 0.5 && score <= 1.0, "{score}");
    for wrong in ["SEARCH \"x\" MODE \"psychic\"", "SEARCH \"x\" THRESHOLD 1.5"] {
        assert_eq!(refused(&mut w, wrong).1, "parameter", "{wrong}");
    }
    let links = ok(&mut w, "SEARCH PROPOSITION \"moored\" LIMIT 5");
    assert_eq!((links.as_array().map(Vec::len), &links[0]["predicate"]), (Some(2), &json!("moored_in")));
    assert_eq!(ok(&mut w, "SEARCH PROPOSITION \"moored in\" WITH TYPE \"near\""), json!([]));
    ok(
        &mut w,
        r#"UPSERT { PROPOSITION { ({type: "Boat", name: "Tern"}, "moored_in", {type: "Harbour", name: "Oslo"}) SET ATTRIBUTES { remark: "only in winter" } } }"#,
    );
    assert_eq!(ok(&mut w, "SEARCH PROPOSITION \"winter\"")[0]["attributes"]["remark"], "only in winter");
}

#[test]
fn what_is_believed_more_ranks_above_what_is_believed_less() {
    let mut w = world();
    for (name, confidence) in [("Gull one", 0.1), ("Gull two", 0.9)] {
        ok(
            &mut w,
            &format!(
                r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "{name}"}} }} }} WITH METADATA {{ confidence: {confidence} }}"#
            ),
        );
    }
    let names: Vec<Value> =
        ok(&mut w, "SEARCH CONCEPT \"gull\"").as_array().unwrap().iter().map(|hit| hit["name"].clone()).collect();
    assert_eq!(names, ["Gull two", "Gull one"]);
}

#[test]
fn each_source_keeps_its_claim_and_conflicts_are_told() {
    let mut w = world();
    ok(
        &mut w,
        r#"UPSERT { CONCEPT { {type: "$PropositionType", name: "flies_flag"} SET ATTRIBUTES { description: "one only", is_functional: true, subject_types: ["*"], object_types: ["*"] } } }"#,
    );
    let claim = |source: &str, status: &str, confidence: f64| {
        format!(
            r#"UPSERT {{ PROPOSITION {{ ({{type: "Boat", name: "Petrel"}}, "near", {{type: "Boat", name: "Tern"}}) }} WITH METADATA {{ source: "{source}", status: "{status}", confidence: {confidence} }} }}"#
        )
    };
    ok(&mut w, &claim("ada", "active", 0.4));
    ok(&mut w, &claim("bob", "retracted", 0.8));
    let told = r#"FIND(?l.metadata.source, ?l.metadata._claims, ?l.metadata._version) WHERE { ?l ({name: "Petrel"}, "near", {name: "Tern"}) }"#;
    let both = json!({
        "ada": {"source": "ada", "status": "active", "confidence": 0.4},
        "bob": {"source": "bob", "status": "retracted", "confidence": 0.8},
    });
    assert_eq!(ok(&mut w, told), json!([["bob", both, 2]]));
    ok(&mut w, &claim("bob", "retracted", 0.8));
    assert_eq!(ok(&mut w, told), json!([["bob", both, 2]]));
    ok(
        &mut w,
        r#"UPSERT { CONCEPT { {type: "Boat", name: "Petrel"} SET PROPOSITIONS { ("flies_flag", {type: "Harbour", name: "Faro"}) WITH METADATA { source: "ada", confidence: 0.3 } ("flies_flag", {type: "Harbour", name: "Oslo"}) WITH METADATA { source: "bob", confidence: 0.6 } } } }"#,
    );
    let conflicts = ok(&mut w, "DESCRIBE CONFLICTS");
    let kinds: Vec<&Value> = conflicts.as_array().unwrap().iter().map(|conflict| &conflict["kind"]).collect();
    assert_eq!(kinds, ["functional", "sources"]);
    assert_eq!(
        (&conflicts[0]["claims"][0]["object"]["name"], &conflicts[0]["claims"][0]["rank"]),
        (&json!("Oslo"), &json!(1))
    );
    assert_eq!(conflicts[1]["claims"][0]["source"], "bob");
    let page = run(&mut w, "DESCRIBE CONFLICTS LIMIT 1");
    let next = page["next_cursor"].as_str().unwrap().to_owned();
    assert_eq!(ok(&mut w, &format!("DESCRIBE CONFLICTS LIMIT 1 CURSOR \"{next}\""))[0]["kind"], "sources");
}

#[test]
fn a_batch_continues_after_a_failed_read_but_not_a_failed_write() {
    let mut w = world();
    let text = |text: &str| One::Text(text.into());
    let request = Request {
        commands: Some(vec![
            text("FIND(?b.name WHERE"),
            text("FIND(?nobody) WHERE { ?b {type: \"Boat\"} }"),
            One::With {
                command: "FIND(?b.name) WHERE { ?b {type: $t, name: $n} }".into(),
                parameters: json!({"n": "Tern"}).as_object().unwrap().clone(),
            },
            text(r#"UPSERT { CONCEPT { {type: "Ghost", name: "x"} } }"#),
            text("DESCRIBE DOMAINS"),
        ]),
        parameters: json!({"t": "Boat", "n": "Heron"}).as_object().unwrap().clone(),
        ..Request::default()
    };
    let answers = w.execute(&request)["result"].clone();
    assert_eq!(answers.as_array().map(Vec::len), Some(4));
    assert_eq!((&answers[0]["error"]["kind"], &answers[1]["error"]["kind"]), (&json!("syntax"), &json!("reference")));
    assert_eq!((&answers[2]["result"], &answers[3]["error"]["kind"]), (&json!(["Tern"]), &json!("schema")));
    for wrong in [Request::default(), Request { commands: Some(vec![]), ..Request::new("DESCRIBE DOMAINS") }] {
        assert_eq!(w.execute(&wrong)["error"]["kind"], "parameter");
    }
}

#[test]
fn a_read_only_request_is_judged_by_what_the_command_is() {
    let mut w = world();
    for (command, may) in [
        ("FIND(?b) WHERE { ?b {type: \"Boat\"} }", true),
        ("DESCRIBE PRIMER", true),
        ("SEARCH \"x\"", true),
        ("EXPORT ?b WHERE { ?b {type: \"Boat\"} }", true),
        ("EXPLAIN FIND(?b) WHERE { ?b {type: \"Boat\"} }", true),
        ("// a comment\nupsert { }", false),
        ("DELETE CONCEPT ?b DETACH WHERE { ?b {type: \"Boat\"} }", false),
        ("UPDATE ?b SET ATTRIBUTES { x: 1 } WHERE { ?b {type: \"Boat\"} }", false),
        ("MERGE CONCEPT ?a INTO ?b WHERE { ?a {id: \"C:1\"} ?b {id: \"C:2\"} }", false),
    ] {
        let answer = w.execute(&Request { readonly: true, ..Request::new(command) });
        assert_eq!(answer.get("error").is_none(), may, "{command}: {answer}");
    }
    assert_eq!(ok(&mut w, "FIND(COUNT(?b)) WHERE { ?b {type: \"Boat\"} }"), json!([3]));
}

#[test]
fn the_four_conflicts_are_switched_by_the_dialect() {
    let mut w = world();
    let mut rc11 = |command: &str| w.execute(&Request { dialect: Dialect::Rc11, ..Request::new(command) });
    let missing = r#"UPSERT { CONCEPT { {type: "Boat", name: "Lost"} SET PROPOSITIONS { ("moored_in", {type: "Harbour", name: "Atlantis"}) } } }"#;
    assert_eq!(rc11(missing)["error"]["code"], "KIP_3002");
    assert_eq!(
        rc11("FIND(?b.name, ?b.attributes.tons) WHERE { ?b {type: \"Boat\"} }")["result"],
        json!([["Petrel", "Heron", "Tern"], [40, 90.5, 12]])
    );
    assert_eq!(rc11("FIND(?b.name) WHERE { ?b {type: \"Boat\"} } LIMIT 1")["result"], json!(["Petrel"]));
    assert_eq!(rc11("FIND(COUNT(?b)) WHERE { ?b {type: \"Boat\"} }")["result"], json!(3));
    assert_eq!(rc11("FIND(?b) WHERE { ?b {type: \"Boat\", name: \"Lost\"} }")["error"]["code"], "KIP_3002");
    assert_eq!(
        rc11("FIND(?b.name) WHERE { ?b {type: \"Boat\"} NOT { ?b {type: \"Boat\", name: \"Lost\"} } }")["result"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    assert_eq!(rc11("DESCRIBE DOMAINS")["result"][0]["name"], "CoreSchema");
    let columns = Request {
        result_shape: Some(Shape::Columns),
        ..Request::new("FIND(?b.name, ?h.name) WHERE { (?b, \"moored_in\", ?h) }")
    };
    assert_eq!(w.execute(&columns)["result"], json!([["Petrel", "Heron"], ["Faro", "Oslo"]]));
}

#[test]
fn pages_stay_right_while_others_write() {
    let mut w = world();
    for n in 0..30 {
        ok(
            &mut w,
            &format!(
                r#"UPSERT {{ CONCEPT {{ {{type: "Harbour", name: "h{n:02}"}} SET ATTRIBUTES {{ depth: {} }} }} }}"#,
                n % 5
            ),
        );
    }
    for query in [
        r#"FIND(?h.name) WHERE { ?h {type: "Harbour"} } LIMIT 7"#,
        r#"FIND(?h.name) WHERE { ?h {type: "Harbour"} } ORDER BY ?h.attributes.depth DESC LIMIT 7"#,
    ] {
        let mut seen: Vec<Value> = Vec::new();
        let (mut cursor, mut page) = (String::new(), 0);
        loop {
            let answer = run(&mut w, &format!("{query} {cursor}"));
            assert!(answer.get("error").is_none(), "{answer}");
            seen.extend(answer["result"].as_array().unwrap().iter().cloned());
            let Some(next) = answer["next_cursor"].as_str() else { break };
            cursor = format!("CURSOR \"{next}\"");
            // One that was seen goes, one that comes later in no order is added before.
            let gone = seen[0].as_str().unwrap().to_owned();
            if page == 0 {
                // (what goes was shown before)
                ok(
                    &mut w,
                    &format!(
                        r#"UPSERT {{ CONCEPT {{ {{type: "Harbour", name: "late {query}"}} SET ATTRIBUTES {{ depth: 99 }} }} }}"#,
                        query = query.len()
                    ),
                );
                ok(&mut w, &format!(r#"DELETE CONCEPT ?h DETACH WHERE {{ ?h {{type: "Harbour", name: "{gone}"}} }}"#));
            }
            page += 1;
        }
        let names: std::collections::BTreeSet<&str> = seen.iter().filter_map(Value::as_str).collect();
        assert_eq!(names.len(), seen.len(), "a row came twice");
        assert_eq!(missing(&names), 0, "{query}: a row was passed over");
    }
    let foreign = run(&mut w, r#"FIND(?h.name) WHERE { ?h {type: "Harbour"} } LIMIT 7"#)["next_cursor"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        refused(&mut w, &format!(r#"FIND(?b.name) WHERE {{ ?b {{type: "Boat"}} }} LIMIT 1 CURSOR "{foreign}""#)).1,
        "parameter"
    );
    assert_eq!(refused(&mut w, r#"FIND(?b.name) WHERE { ?b {type: "Boat"} } LIMIT 1 CURSOR "made up""#).1, "parameter");
}

/// Harbours that no page showed although they were there all the time.
fn missing(names: &std::collections::BTreeSet<&str>) -> usize {
    (0..30).filter(|n| !names.contains(format!("h{n:02}").as_str())).count()
}

#[test]
fn an_explanation_names_the_operators_and_the_rows_they_made() {
    let mut w = world();
    let told = ok(
        &mut w,
        r#"EXPLAIN FIND(?b.name) WHERE { ?b {type: "Boat"} (?b, "moored_in", {type: "Harbour", name: "Faro"}) FILTER(?b.attributes.tons > 10) }"#,
    );
    assert_eq!(told["rows"], 1);
    let lines: Vec<(&str, u64)> = told["plan"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["operator"].as_str().unwrap(), line["actual_rows"].as_u64().unwrap()))
        .collect();
    assert!(lines[0].0.contains("is C:"), "the constant comes first: {lines:?}");
    assert!(lines.iter().all(|(_, rows)| *rows == 1), "{lines:?}");
}

#[test]
fn a_budget_says_which_bound_was_passed() {
    let mut w = world();
    let mut text = String::from("UPSERT {");
    for n in 0..300 {
        text += &format!(" CONCEPT {{ {{type: \"Harbour\", name: \"b{n}\"}} }}");
    }
    ok(&mut w, &(text + " }"));
    let cross = kip::Call {
        command: r#"FIND(COUNT(?a)) WHERE { ?a {type: "Harbour"} ?b {type: "Harbour"} ?c {type: "Harbour"} }"#.into(),
        parameters: Default::default(),
    };
    let options = kip::Options { limits: kip::Limits { rows: 10_000, ..Default::default() }, ..Default::default() };
    let error = kip::bind_and(&cross, |command| kip::exec::read(command, &w.graph, &options)).unwrap_err();
    assert_eq!((error.code, error.message.contains("10000 rows")), ("KIP_4002", true));
    let options = kip::Options { limits: kip::Limits { hops: 1_000, ..Default::default() }, ..Default::default() };
    let error = kip::bind_and(&cross, |command| kip::exec::read(command, &w.graph, &options)).unwrap_err();
    assert!(error.message.contains("1000 hops"), "{error}");
}

#[test]
fn a_primer_keeps_to_its_budget() {
    let mut w = world();
    for n in 0..200 {
        ok(
            &mut w,
            &format!(
                r#"UPSERT {{ CONCEPT ?d {{ {{type: "Domain", name: "Domain {n}"}} SET ATTRIBUTES {{ description: "a long description of what belongs to domain number {n} and what does not" }} }} CONCEPT {{ {{type: "Boat", name: "boat {n}"}} SET PROPOSITIONS {{ ("belongs_to_domain", ?d) }} }} }}"#
            ),
        );
    }
    let sizes: Vec<usize> = ["DESCRIBE PRIMER BUDGET 4000", "DESCRIBE PRIMER", "DESCRIBE PRIMER BUDGET 200"]
        .map(|command| ok(&mut w, command).to_string().len())
        .to_vec();
    assert!(sizes[0] > sizes[1] && sizes[1] > sizes[2], "{sizes:?}");
    assert!(sizes[1] < 5_000 && sizes[2] < 1_000, "{sizes:?}");
    assert_eq!(refused(&mut w, "DESCRIBE PRIMER BUDGET 0").1, "syntax");
}

#[test]
fn errors_name_the_nearest_legal_thing() {
    let mut w = world();
    for (command, hint) in [
        (r#"UPSERT { CONCEPT { {type: "Boart", name: "x"} } }"#, "\"Boat\""),
        (
            r#"UPSERT { CONCEPT { {type: "Boat", name: "x"} SET PROPOSITIONS { ("mored_in", {type: "Harbour", name: "Faro"}) } } }"#,
            "\"moored_in\"",
        ),
        (r#"DESCRIBE CONCEPT TYPE "Harbor""#, "\"Harbour\""),
        (r#"FNID(?b) WHERE { ?b {type: "Boat"} }"#, "FIND"),
        (r#"FIND(?b.tons) WHERE { ?b {type: "Boat"} }"#, "?b.attributes.tons"),
        (r#"FIND(?b) WHERE { ?b {type: "Boat"} FILTER(CONTAIN(?b.name, "x")) }"#, "CONTAINS"),
        (r#"FIND(?b) WHERE { ?b {type: Boat} }"#, "\"Boat\""),
        (r#"FIND(?b) WHERE { ?b {type: "Boat"} } LIMIT 2 OFFSET 2"#, "CURSOR"),
    ] {
        let answer = run(&mut w, command);
        assert!(answer["error"]["hint"].as_str().unwrap_or_default().contains(hint), "{command}: {answer}");
        assert!(answer["error"]["line"].is_u64() && answer["error"]["column"].is_u64(), "{answer}");
    }
}

#[test]
fn the_core_can_be_neither_deleted_nor_corrupted() {
    let mut w = world();
    for command in [
        r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "Domain", name: "CoreSchema"} }"#,
        r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "Person"} }"#,
        r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "$ConceptType", name: "Boat"} }"#,
        r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "$PropositionType", name: "near"} }"#,
        r#"DELETE PROPOSITIONS ?l WHERE { ?l ({type: "$ConceptType", name: "Person"}, "belongs_to_domain", ?d) }"#,
        r#"DELETE ATTRIBUTES {"core_directives"} FROM ?x WHERE { ?x {type: "Person", name: "$self"} }"#,
        r#"UPSERT { CONCEPT { {type: "Person", name: "$system"} SET ATTRIBUTES { core_directives: [] } } }"#,
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "$ConceptType"} SET ATTRIBUTES { instance_schema: {} } } }"#,
    ] {
        assert_eq!(refused(&mut w, command), ("KIP_3004".into(), "immutable".into()), "{command}");
    }
    for (name, kind) in [("has space", "$ConceptType"), ("1st", "$PropositionType"), ("$Own", "$ConceptType")] {
        assert_eq!(
            refused(&mut w, &format!(r#"UPSERT {{ CONCEPT {{ {{type: "{kind}", name: "{name}"}} }} }}"#)).0,
            "KIP_1002"
        );
    }
    // The identity is given once.
    ok(&mut w, r#"UPSERT { CONCEPT { {type: "Person", name: "$self"} SET ATTRIBUTES { id: "lifeform:lf_1" } } }"#);
    for command in [
        r#"UPSERT { CONCEPT { {type: "Person", name: "$self"} SET ATTRIBUTES { id: "lifeform:lf_2" } } }"#,
        r#"UPDATE ?x SET ATTRIBUTES { person_class: "Human" } WHERE { ?x {type: "Person", name: "$self"} }"#,
        r#"DELETE ATTRIBUTES {"id"} FROM ?x WHERE { ?x {type: "Person", name: "$self"} }"#,
        r#"UPSERT { CONCEPT { {type: "Person", name: "$system"} SET ATTRIBUTES { person_class: "Human" } } }"#,
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Person"} SET ATTRIBUTES { instance_schema: {} } } }"#,
        r#"UPDATE ?x SET ATTRIBUTES { instance_schema: {} } WHERE { ?x {type: "$ConceptType", name: "Domain"} }"#,
    ] {
        assert_eq!(refused(&mut w, command), ("KIP_3004".into(), "immutable".into()), "{command}");
    }
    // A value that stands there changes nothing, and the draft's placeholder takes no principal's id away.
    let directives =
        r#"FIND(?x.attributes.core_directives, ?x.attributes.id) WHERE { ?x {type: "Person", name: "$self"} }"#;
    ok(&mut w, r#"UPSERT { CONCEPT { {type: "Person", name: "$self"} SET ATTRIBUTES { id: "lifeform:lf_1" } } }"#);
    let before = ok(&mut w, directives);
    let again = format!(
        r#"UPSERT {{ CONCEPT {{ {{type: "Person", name: "$self"}} SET ATTRIBUTES {{ id: "$self_reserved_principal_id", core_directives: {} }} }} }}"#,
        before[0][0]
    );
    ok(&mut w, &again);
    assert_eq!(ok(&mut w, directives), before);
    ok(&mut w, r#"UPSERT { CONCEPT { {type: "Person", name: "$self"} SET ATTRIBUTES { persona: "grown" } } }"#);
}

#[test]
fn a_query_groups_equal_values_and_counts_an_alternative_once() {
    let mut w = world();
    assert_eq!(ok(&mut w, r#"FIND(COUNT(?l)) WHERE { ?l (?a, "moored_in" | "moored_in", ?b) }"#), json!([2]));
    ok(
        &mut w,
        r#"UPSERT { CONCEPT { {type: "Boat", name: "x"} SET ATTRIBUTES { o: {a: 1, b: [7]} } } CONCEPT { {type: "Boat", name: "y"} SET ATTRIBUTES { o: {b: [7.0], a: 1.0} } } CONCEPT { {type: "Boat", name: "z"} SET ATTRIBUTES { big: 9007199254740993 } } CONCEPT { {type: "Boat", name: "zz"} SET ATTRIBUTES { big: 9007199254740992 } } }"#,
    );
    assert_eq!(
        ok(
            &mut w,
            r#"FIND(COUNT(DISTINCT ?b.attributes.o), COUNT(DISTINCT ?b.attributes.big)) WHERE { ?b {type: "Boat"} }"#
        ),
        json!([[1, 2]])
    );
}

#[test]
fn an_export_contains_each_nested_link_once_and_can_be_imported() {
    let mut w = world();
    let mut text = String::from(
        r#"UPSERT { PROPOSITION ?h0 { ({type: "Boat", name: "Tern"}, "near", {type: "Boat", name: "Tern"}) } "#,
    );
    for n in 1..60 {
        text += &format!("PROPOSITION ?h{n} {{ (?h{}, \"near\", ?h{}) SET ATTRIBUTES {{ n: {n} }} }} ", n - 1, n - 1);
    }
    let made = ok(&mut w, &(text + "}"));
    let last = made["upsert_proposition_links"][59].as_str().unwrap().to_owned();
    let exported = ok(&mut w, &format!(r#"EXPORT ?l WHERE {{ ?l (id: "{last}") }}"#));
    assert_eq!(exported["propositions"], 60);
    assert!(exported["capsule"].as_str().unwrap().len() < 20_000);
    let mut other = world();
    ok(&mut other, exported["capsule"].as_str().unwrap());
    let count = r#"FIND(COUNT(?l)) WHERE { ?l (?a, "near", ?b) }"#;
    assert_eq!(ok(&mut w, count), ok(&mut other, count));
}

#[test]
fn a_merge_keeps_what_each_source_said() {
    let mut w = world();
    ok(
        &mut w,
        r#"UPSERT { CONCEPT { {type: "Boat", name: "Tern II"} SET PROPOSITIONS { ("moored_in", {type: "Harbour", name: "Oslo"}) WITH METADATA { source: "s2", confidence: 0.3 } } } CONCEPT { {type: "Boat", name: "Tern"} SET PROPOSITIONS { ("moored_in", {type: "Harbour", name: "Oslo"}) WITH METADATA { source: "s1" } } } }"#,
    );
    ok(
        &mut w,
        r#"MERGE CONCEPT ?a INTO ?b WHERE { ?a {type: "Boat", name: "Tern II"} ?b {type: "Boat", name: "Tern"} }"#,
    );
    let claims =
        ok(&mut w, r#"FIND(?l.metadata._claims) WHERE { ?l ({type: "Boat", name: "Tern"}, "moored_in", ?h) }"#);
    assert_eq!(claims, json!([{"s1": {"source": "s1"}, "s2": {"source": "s2", "confidence": 0.3}}]));
}

#[test]
fn the_core_keeps_its_domains_and_rc11_accepts_unknown_types() {
    let mut w = world();
    ok(
        &mut w,
        r#"UPSERT { CONCEPT ?d { {type: "Domain", name: "D2"} } CONCEPT { {type: "Person", name: "$self"} SET PROPOSITIONS { ("belongs_to_domain", ?d) } } }"#,
    );
    assert_eq!(refused(&mut w, r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: "D2"} }"#).1, "immutable");
    let rc11 = Request { dialect: Dialect::Rc11, ..Request::new(r#"FIND(?x) WHERE { ?x {type: "NoSuch"} }"#) };
    assert_eq!(w.execute(&rc11)["result"], json!([]));
    let told = run(&mut w, r#"FIND(?x) WHERE { ?x {type: "Boart"} (?x, "mored_in", ?y) }"#);
    assert_eq!(told["warnings"].to_string().matches("did you mean").count(), 2, "{told}");
    assert_eq!(refused(&mut w, r#"FIND(?b) WHERE { ?b {type: "Boat"} } AS OF SEQ 1"#).1, "execution");
}

#[test]
fn bounds_on_what_is_given_say_so() {
    let mut w = world();
    let many: Vec<String> = (0..70).map(|n| format!("word{n}x")).collect();
    let searched = run(&mut w, &format!(r#"SEARCH CONCEPT "Petrel {}""#, many.join(" ")));
    assert!(searched["warnings"][0].as_str().unwrap().contains("only the first 64 of 71 words"), "{searched}");
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let write = r#"UPSERT { CONCEPT { {type: "Boat", name: "deep"} SET ATTRIBUTES { a: $deep } } }"#;
    let answer = w.execute(&Request::with(write, json!({"deep": deep})));
    assert_eq!(answer["error"]["kind"], "parameter", "{answer}");
    assert_eq!(ok(&mut w, r#"FIND(?b) WHERE { ?b {type: "Boat", name: "deep"} }"#), json!([]));
}

#[test]
fn a_graph_keeps_so_many_indexes_and_answers_without_more() {
    use kip::GraphRead;
    use kip::datum::Sym;
    let mut w = world();
    for n in 0..80 {
        w.graph.sort_by(Sym::new("Boat"), Sym::new(&format!("key{n}")));
    }
    let kept = (0..80).filter(|n| w.graph.sorted_len(Sym::new("Boat"), Sym::new(&format!("key{n}"))).is_some());
    assert_eq!(kept.count(), 64);
    assert_eq!(
        ok(&mut w, r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(?b.attributes.tons > 50) }"#),
        json!(["Heron"])
    );
}

#[test]
fn an_upsert_without_a_block_is_no_command() {
    assert_eq!(refused(&mut world(), "UPSERT { }").1, "syntax");
}

#[test]
fn the_pages_of_an_export_go_in_again() {
    let mut w = world();
    for n in 0..600 {
        let text = "x".repeat(4_000);
        ok(
            &mut w,
            &format!(
                r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "b{n}"}} SET ATTRIBUTES {{ text: "{text}" }} }} }}"#
            ),
        );
    }
    let count = r#"FIND(COUNT(?b)) WHERE { ?b {type: "Boat"} }"#;
    let wanted = ok(&mut w, count);
    let (mut other, mut cursor, mut pages) = (world(), String::new(), 0);
    loop {
        let answer = run(&mut w, &format!(r#"EXPORT ?b WHERE {{ ?b {{type: "Boat"}} }}{cursor}"#));
        let page = answer["result"]["capsule"].as_str().unwrap().to_owned();
        assert!(page.len() <= kip::lang::COMMAND_BYTES_MAX, "{}", page.len());
        ok(&mut other, &page);
        pages += 1;
        match answer["next_cursor"].as_str() {
            Some(next) => cursor = format!(" CURSOR \"{next}\""),
            None => break,
        }
    }
    assert!(pages > 2, "{pages}");
    assert_eq!(ok(&mut other, count), wanted);
}
