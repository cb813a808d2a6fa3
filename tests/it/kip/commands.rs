//! KIP through its one door: text in, text out.

use std::sync::Arc;

use nexus::{Nexus, Request};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::{ManualClock, Origin, Principal, PrincipalKind, Role, Store};
use tests::{TestDaemon, honest};

struct Mind {
    nexus: Nexus,
    origin: Origin,
}

impl Mind {
    async fn new() -> Self {
        let store = Store::in_memory(Arc::new(ManualClock::default())).await;
        Self { nexus: Nexus::new(store), origin: Origin::system("test") }
    }

    async fn run(&self, command: &str) -> Value {
        self.run_with(command, json!({})).await
    }

    async fn run_with(&self, command: &str, parameters: Value) -> Value {
        self.nexus.execute(&"test".into(), Request::with(command, parameters), &self.origin).await.unwrap()
    }
}

const SHIPS: &str = r#"
UPSERT {
  CONCEPT ?t { {type: "$ConceptType", name: "Ship"} SET ATTRIBUTES { description: "a vessel", } }
  CONCEPT ?p { {type: "$PropositionType", name: "moored_in"} SET ATTRIBUTES { description: "where it lies" } }
  CONCEPT ?h { {type: "$ConceptType", name: "Harbour"} }
}
UPSERT {
  CONCEPT ?lisbon { {type: "Harbour", name: "Lisbon"} SET ATTRIBUTES { depth: 12 } }
  CONCEPT ?petrel { {type: "Ship", name: "Petrel"} SET ATTRIBUTES { tons: 40, aliases: ["海燕", "sea bird"] } SET PROPOSITIONS { ("moored_in", ?lisbon) } }
  CONCEPT ?heron { {type: "Ship", name: "Heron"} SET ATTRIBUTES { tons: 90.5 }
    SET PROPOSITIONS { ("moored_in", ?lisbon) WITH METADATA { confidence: 0.5 } ("moored_in", {type: "Harbour", name: "Nowhere"}) } }
} WITH METADATA { source: "log", confidence: 0.9 }
"#;

async fn ships() -> Mind {
    let mind = Mind::new().await;
    let answer = mind.run(SHIPS).await;
    assert!(answer["warnings"][0].as_str().is_some_and(|text| text.contains("passed over")), "{answer}");
    mind
}

#[tokio::test]
async fn every_nexus_is_born_with_its_core() {
    let mind = Mind::new().await;
    let answer = mind.run(r#"FIND(?x.name) WHERE { ?x {type: "Person"} }"#).await;
    assert_eq!(answer, json!({"result": ["$self", "$system"]}));
    let primer = mind.run("DESCRIBE PRIMER").await;
    assert_eq!(primer["result"]["identity"]["person_class"], "AI");
    assert!(primer["result"]["identity"].get("id").is_none(), "the id of $self is disclosed");
    let domains = primer["result"]["domain_map"].as_array().unwrap();
    assert!(domains.iter().any(|domain| domain["name"] == "CoreSchema"), "{primer}");
}

#[tokio::test]
async fn find_returns_bare_values_only_for_a_single_expression() {
    let mind = ships().await;
    let one = mind.run(r#"FIND(?s.name) WHERE { ?s {type: "Ship"} (?s, "moored_in", {name: "Lisbon"}) } ORDER BY ?s.attributes.tons DESC"#).await;
    assert_eq!(one, json!({"result": ["Heron", "Petrel"]}));
    let several = mind.run(r#"FIND(?s.name, ?l.metadata.confidence, ?h.attributes.depth) WHERE { ?l (?s, "moored_in", ?h) } ORDER BY ?s.name"#).await;
    assert_eq!(several, json!({"result": [["Heron", 0.5, 12], ["Petrel", 0.9, 12]]}));
    assert_eq!(mind.run(r#"FIND(COUNT(?s)) WHERE { ?s {type: "Ship"} }"#).await, json!({"result": [2]}));
    let solutions = r#"FIND(COUNT(?h), COUNT(DISTINCT ?h)) WHERE { (?s, "moored_in", ?h) }"#;
    assert_eq!(mind.run(solutions).await, json!({"result": [[2, 1]]}));
    let once = r#"FIND(?h.name) WHERE { (?s, "moored_in", ?h) } ORDER BY ?s.name"#;
    assert_eq!(mind.run(once).await, json!({"result": ["Lisbon"]}));
    assert_eq!(
        mind.run(r#"FIND(?p) WHERE { ({name: "Heron"}, ?p, {name: "Lisbon"}) }"#).await,
        json!({"result": ["moored_in"]})
    );
}

#[tokio::test]
async fn filters_compare_within_a_kind_and_never_across() {
    let mind = ships().await;
    let find = |test: &str| format!(r#"FIND(?s.name) WHERE {{ ?s {{type: "Ship"}} FILTER({test}) }} LIMIT 5"#);
    for (test, expected) in [
        ("?s.attributes.tons < 41 && CONTAINS(?s.name, \"tre\")", json!(["Petrel"])),
        ("?s.attributes.tons == 40.0", json!(["Petrel"])),
        ("?s.attributes.tons > \"1\"", json!([])),
        ("!(?s.attributes.tons > \"1\")", json!(["Petrel", "Heron"])),
        ("?s.attributes.none == null", json!(["Petrel", "Heron"])),
        ("REGEX(?s.name, \"^H\") || ENDS_WITH(?s.name, \"trel\")", json!(["Petrel", "Heron"])),
    ] {
        assert_eq!(mind.run(&find(test)).await, json!({"result": expected}), "{test}");
    }
}

#[tokio::test]
async fn placeholders_are_values_and_never_text() {
    let mind = ships().await;
    let hostile = json!({"name": "Petrel\"} } DELETE CONCEPT ?x DETACH WHERE { ?x {type: \"Ship\"", "n": 1});
    assert_eq!(
        mind.run_with(r#"FIND(?s.name) WHERE { ?s {type: "Ship", name: $name} } LIMIT $n"#, hostile).await,
        json!({"result": []})
    );
    let missing = mind.run(r#"FIND(?s) WHERE { ?s {name: :who} }"#).await;
    assert_eq!((&missing["error"]["kind"], &missing["error"]["line"]), (&json!("parameter"), &json!(1)));
}

#[tokio::test]
async fn repeating_a_command_changes_nothing() {
    let mind = ships().await;
    let version = r#"FIND(?s.metadata._version) WHERE { ?s {type: "Ship"} }"#;
    let before = mind.run(version).await;
    mind.run(SHIPS).await;
    assert_eq!(mind.run(version).await, before);
    assert_eq!(mind.run(r#"FIND(COUNT(?l)) WHERE { ?l (?s, "moored_in", ?h) }"#).await, json!({"result": [2]}));
}

#[tokio::test]
async fn a_command_fails_whole_and_says_what_to_write() {
    let mind = ships().await;
    for (command, kind, hint) in [
        (
            r#"UPSERT { CONCEPT ?a { {type: "Ship", name: "New"} } CONCEPT ?b { {type: "Submarine", name: "X"} } }"#,
            "schema",
            "define it first",
        ),
        (
            r#"UPSERT { CONCEPT ?a { {type: "Ship", name: "New"} SET PROPOSITIONS { ("moored_in", ?later) } } CONCEPT ?later { {type: "Harbour", name: "P"} } }"#,
            "reference",
            "blocks run in order",
        ),
        (
            r#"UPSERT { CONCEPT ?a { {type: "Ship", name: "New"} } PROPOSITION ?p { (?a, "moored_in", {type: "Harbour", name: "No"}) } }"#,
            "not_found",
            "earlier block",
        ),
        (r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "Person", name: "$self"} }"#, "immutable", ""),
        (r#"FIND(?nobody.name) WHERE { ?s {type: "Ship"} }"#, "reference", "add a clause"),
        ("FIND ?s", "syntax", ""),
        (r#"FIND(?s) WHERE { ?s {type: 'Ship'} }"#, "syntax", "double quotes"),
    ] {
        let answer = mind.run(command).await;
        assert_eq!(answer["error"]["kind"], kind, "{command}: {answer}");
        assert!(answer["error"]["hint"].as_str().unwrap_or("").contains(hint), "{answer}");
        assert!(answer["error"]["code"].as_str().is_some_and(|code| code.starts_with("KIP_")));
    }
    assert_eq!(mind.run(r#"FIND(?s) WHERE { ?s {type: "Ship", name: "New"} }"#).await, json!({"result": []}));
}

#[tokio::test]
async fn a_search_finds_a_new_concept_at_once_in_english_and_chinese() {
    let mind = ships().await;
    let search = |words: &str| format!(r#"SEARCH CONCEPT "{words}" WITH TYPE "Ship" LIMIT 3"#);
    for words in ["petrels", "海燕号", "bird of the sea"] {
        let hits = mind.run(&search(words)).await;
        assert_eq!(hits["result"][0]["name"], "Petrel", "{words}: {hits}");
    }
    let gone = mind.run(r#"DELETE CONCEPT ?s DETACH WHERE { ?s {type: "Ship", name: "Petrel"} }"#).await;
    assert_eq!(gone, json!({"result": {"deleted_concepts": 1, "deleted_propositions": 1}}));
    assert_eq!(mind.run(&search("petrel")).await, json!({"result": []}));
}

#[tokio::test]
async fn a_dry_run_and_a_reader_write_nothing() {
    let mind = ships().await;
    let command = r#"DELETE CONCEPT ?s DETACH WHERE { ?s {type: "Ship"} }"#;
    let dry = Request { dry_run: true, ..Request::new(command) };
    let told = mind.nexus.execute(&"test".into(), dry, &mind.origin).await.unwrap();
    assert_eq!(told, json!({"result": {"deleted_concepts": 2, "deleted_propositions": 2}}));
    let ada = Origin::new(Principal::new("user:ada", PrincipalKind::User, Role::Participant), store::Cause::default());
    let refused = mind.nexus.execute(&"test".into(), Request::new(command), &ada).await.unwrap();
    assert_eq!(refused["error"]["kind"], "execution");
    assert_eq!(mind.run(r#"FIND(COUNT(?s)) WHERE { ?s {type: "Ship"} }"#).await, json!({"result": [2]}));
}

#[tokio::test]
async fn a_graph_wakes_as_it_was_and_numbers_are_not_used_twice() {
    let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    let origin = Origin::system("test");
    let id = "test".into();
    let run = |nexus: Nexus, command: &'static str| {
        let (origin, id) = (origin.clone(), Arc::clone(&id));
        async move { nexus.execute(&id, Request::new(command), &origin).await.unwrap() }
    };
    let nexus = Nexus::new(store.clone());
    run(nexus.clone(), SHIPS).await;
    let made = run(nexus.clone(), r#"UPSERT { CONCEPT ?x { {type: "Ship", name: "Last"} } }"#).await;
    run(nexus.clone(), r#"DELETE CONCEPT ?s DETACH WHERE { ?s {type: "Ship", name: "Last"} }"#).await;
    let all = r#"FIND(?x) WHERE { ?x {type: "Ship"} }"#;
    let before = run(nexus.clone(), all).await;
    let woken = Nexus::new(store);
    assert_eq!(run(woken.clone(), all).await, before);
    let again = run(woken, r#"UPSERT { CONCEPT ?x { {type: "Ship", name: "Last"} } }"#).await;
    assert_ne!(again["result"]["upsert_concept_nodes"], made["result"]["upsert_concept_nodes"]);
}

#[tokio::test]
async fn the_kip_route_accepts_the_function_calls_of_current_clients() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let call = async |method: &str, params: Value| {
        op.post("/v1/nexus/commons/kip", json!({"method": method, "params": params})).await
    };
    let upsert = json!({"command": r#"UPSERT { CONCEPT { {type: "Domain", name: "Called"} } }"#});
    let refused = call("execute_kip_readonly", upsert.clone()).await.expect(StatusCode::OK);
    assert!(!refused["error"].is_null(), "{refused}");
    let made = call("execute_kip", upsert).await.expect(StatusCode::OK);
    assert!(made["error"].is_null(), "{made}");
    let logs = call("list_logs", json!({"limit": 1})).await.expect(StatusCode::OK);
    assert_eq!(logs["result"].as_array().unwrap().len(), 1, "{logs}");
    let rest = call("list_logs", json!({"limit": 1, "cursor": logs["next_cursor"]})).await.expect(StatusCode::OK);
    assert_ne!(rest["result"], logs["result"]);
    call("execute", json!({})).await.refused(422, "invalid");
    call("execute_kip", json!({"comand": "x"})).await.refused(422, "invalid");
    let beside = json!({"method": "execute_kip", "params": {"command": "DESCRIBE PRIMER"}, "dry_run": true});
    op.post("/v1/nexus/commons/kip", beside).await.refused(422, "invalid");
}

#[tokio::test]
async fn an_answer_has_a_bound_in_bytes() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let (mind, _) = daemon.lifeform().await;
    let path = format!("/v1/nexus/{mind}/kip");
    let make = r#"UPSERT { CONCEPT { {type: "Domain", name: $name} SET ATTRIBUTES { text: $text } } }"#;
    for n in 0..30 {
        let text = if n == 0 { "x".repeat(900_000) } else { "small".into() };
        let made = json!({"command": make, "parameters": {"name": format!("d{n}"), "text": text}});
        op.post(&path, made).await.expect(StatusCode::OK);
    }
    let asked = async |command: &str| {
        let request = json!({"command": command, "readonly": true});
        op.post(&path, request).await.expect(StatusCode::OK)
    };
    let all = r#"WHERE { ?a {type: "Domain", name: "d0"} ?b {type: "Domain"} }"#;
    let few = asked(&format!("FIND(?a.attributes.text, ?b.name) {all} LIMIT 10")).await;
    assert_eq!(few["result"].as_array().unwrap().len(), 10);
    for select in ["?a.attributes.text, ?b.name", "?a.attributes.text, ?b.name, COUNT(?a)"] {
        let refused = asked(&format!("FIND({select}) {all}")).await;
        assert_eq!(refused["error"]["code"], "KIP_4002", "{select}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("bytes"), "{select}");
    }
    // An agent reads less: its tool refuses an answer that is far larger than what a model takes.
    let tool = json!({"command": format!("FIND(?a.attributes.text, ?b.name) {all} LIMIT 3"), "nexus": mind});
    let refused = crate::mcp::server::tool(op, "execute_kip", tool).await.unwrap_err();
    assert!(refused.starts_with("too_large"), "{refused}");
}

#[tokio::test]
async fn a_batch_ends_when_its_answers_are_too_large() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let (mind, _) = daemon.lifeform().await;
    let path = format!("/v1/nexus/{mind}/kip");
    let make = r#"UPSERT { CONCEPT { {type: "Domain", name: "long"} SET ATTRIBUTES { text: $text } } }"#;
    let made = json!({"command": make, "parameters": {"text": "x".repeat(60_000)}});
    op.post(&path, made).await.expect(StatusCode::OK);
    let find = r#"FIND(?d.attributes.text) WHERE { ?d {type: "Domain", name: "long"} }"#;
    let answer = op.post(&path, json!({"commands": vec![find; 256], "readonly": true})).await.expect(StatusCode::OK);
    let answers = answer["result"].as_array().unwrap();
    assert!((100..200).contains(&answers.len()), "{} answers", answers.len());
    assert!(answers[..answers.len() - 1].iter().all(|answer| answer["error"].is_null()));
    assert_eq!(answers.last().unwrap()["error"]["code"], "KIP_4002");
}
