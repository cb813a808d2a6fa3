//! Records of the commons through KnowHub's door (MISSION R1, R2, H1, H2), and through KIP beside it.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use crate::knowledge::searches::said;

pub(crate) const RECORDS: &str = "/api/knowledge";
pub(crate) const KIP: &str = "/v1/nexus/commons/kip";

pub(crate) fn record(task: &str, content: &str) -> Value {
    json!({"task": task, "content": content, "types": ["strategy"]})
}

pub(crate) async fn save(client: &Client, body: Value) -> String {
    let saved = client.post(RECORDS, body).await.expect(StatusCode::CREATED);
    saved["id"].as_str().unwrap().to_owned()
}

pub(crate) async fn kip(client: &Client, command: &str) -> Value {
    client.post(KIP, json!({"command": command})).await.expect(StatusCode::OK)
}

pub(crate) async fn found(client: &Client, query: &str) -> Vec<String> {
    let answer = client.get(&format!("{RECORDS}/search?{query}")).await.expect(StatusCode::OK);
    assert_eq!(answer["count"], answer["results"].as_array().unwrap().len());
    let ids = answer["results"].as_array().unwrap().iter();
    ids.map(|hit| hit["id"].as_str().unwrap().to_owned()).collect()
}

/// The example of the seed, with a member that nobody knows.
fn example() -> Value {
    json!({
        "task": "在什么场景下要完成什么目标", "content": "核心知识内容", "types": ["tool", "strategy"],
        "tags": {"category": "preference", "domain": "coding_style"}, "scopes": ["org:cybertogether"],
        "owner": "agent:research_agent", "score": 4, "mood": {"of": ["the", "day"]},
        "source": {"name": "资源名称", "category": "exp", "urls": ["https://example.com"], "agent_id": "research_agent",
                   "submitted_by": "user@example.com", "message_id": "msg-1", "weather": "fine"},
    })
}

#[tokio::test]
async fn a_record_is_the_same_concept_through_every_interface() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:cybertogether", "agent:research_agent"]).await;
    let saved = ada.post(RECORDS, example()).await.expect(StatusCode::CREATED);
    let id = saved["id"].as_str().unwrap();
    assert_eq!((&saved["knowledge_id"], &saved["status"]), (&saved["id"], &json!("success")));
    assert!(id.starts_with("knowledge-20260101-") && id.len() == 27, "{id}");
    let record = ada.get(&format!("{RECORDS}/{id}")).await.expect(StatusCode::OK);
    for member in ["task", "content", "types", "tags", "scopes", "owner", "source", "mood"] {
        let mut posted = example()[member].clone();
        if member == "source" {
            posted["message_id"] = "msg-1".into();
            // One that says no time came when it was written.
            posted["timestamp"] = "2026-01-01T00:00:00Z".into();
        }
        assert_eq!(record[member], posted, "{member}");
    }
    assert_eq!(record["message_id"], "msg-1");
    assert_eq!(record["visibility"], "org");
    assert_eq!(
        record["eval"],
        json!({"score": 4, "helpful": 0, "harmful": 0, "confidence": 0.5, "helpful_history": [], "harmful_history": []})
    );
    // One's own write is found at once, and it is the same concept that KIP finds.
    assert_eq!(found(&ada, "q=核心知识").await, [id]);
    let concept =
        kip(&ada, r#"FIND(?k.name, ?k.metadata.owner, ?k.metadata.evidence) WHERE { ?k {type: "Knowledge"} }"#).await;
    assert_eq!(concept["result"], json!([[id, "agent:research_agent", ["msg:msg-1", "https://example.com"]]]));
    // What KIP changes, the other door shows, as a version of its own.
    let changed = format!(
        r#"UPDATE ?k SET ATTRIBUTES {{ content: "by KIP" }} WHERE {{ ?k {{type: "Knowledge", name: "{id}"}} }}"#
    );
    assert_eq!(kip(&ada, &changed).await["result"]["updated"], 1);
    let again = ada.get(&format!("{RECORDS}/{id}")).await.expect(StatusCode::OK);
    assert_eq!((&again["content"], &again["version"]), (&json!("by KIP"), &json!(2)));
    let history = ada.get(&format!("{RECORDS}/{id}/history")).await.expect(StatusCode::OK);
    let said: Vec<&Value> =
        history["versions"].as_array().unwrap().iter().map(|past| &past["attributes"]["content"]).collect();
    assert_eq!(said, ["核心知识内容", "by KIP"]);
    assert_eq!(history["versions"][1]["by"], "user:ada");
    // What KIP writes without the members that records have is a record too, and what it deletes is gone.
    kip(&ada, r#"UPSERT { CONCEPT { {type: "Knowledge", name: "tides"} SET ATTRIBUTES { task: "harbours", content: "Wait for the flood." } } }"#).await;
    let tides = ada.get(&format!("{RECORDS}/tides")).await.expect(StatusCode::OK);
    assert_eq!(
        (&tides["types"], &tides["owner"], &tides["scopes"]),
        (&json!(["definition"]), &json!("user:ada"), &json!(["user:ada"]))
    );
    kip(&ada, r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "tides"} }"#).await;
    ada.get(&format!("{RECORDS}/tides")).await.refused(404, "knowledge_not_found");
    assert_eq!(found(&ada, "q=flood").await, [""; 0]);
}

#[tokio::test]
async fn the_daemon_reports_each_invalid_member_of_a_record() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    for (member, value, says) in [
        ("task", json!(""), "task is a text of 1 to 2000 characters"),
        ("task", Value::Null, "task is missing"),
        ("content", json!(7), "content is a text"),
        ("content", json!("x".repeat(100_001)), "100000"),
        ("types", json!([]), "types names at least one type"),
        ("types", json!(["strategy", "song"]), "types/1 is one of user_profile"),
        ("types", json!({}), "types is a list of texts"),
        ("tags", json!("x"), "tags is an object"),
        ("tags", json!({"a": {"b": 1}}), "tags has labels"),
        ("scopes", json!(["planet:earth"]), "scopes/0 is \"public\" or entity:id"),
        ("scopes", json!([]), "scopes names at least one scope"),
        ("owner", json!("org:acme"), "owner is entity:id"),
        ("visibility", json!("loud"), "visibility is one of"),
        ("score", json!(6), "score is a number from 1 to 5"),
        ("eval", json!({"confidence": 2}), "eval.confidence is a number from 0 to 1"),
        ("source", json!({"urls": [1]}), "source.urls/0 is a text"),
        ("resource_ids", json!(["../etc"]), "resource_ids/0 is a path"),
        ("context", json!([""]), "context/0 is a text"),
        ("id", json!("two\nlines"), "id is a name in one line"),
        ("more", json!("x".repeat(20_000)), "are kept, up to 16384 bytes"),
        ("secure_body", json!("x"), "secure_body is of resources"),
    ] {
        let mut body = record("t", "c");
        body[member] = value;
        let refused = ada.post(RECORDS, body).await.refused(422, "invalid");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{member}: {detail}");
    }
    // Every fault at once.
    let refused = ada.post(RECORDS, json!({"score": "high", "types": "tool"})).await.refused(422, "invalid");
    assert_eq!(refused["detail"], "task is missing; content is missing; score is a number from 1 to 5");
    assert_eq!(refused["path"], "task");
    for body in [json!([1]), json!("x")] {
        assert_eq!(ada.post(RECORDS, body).await.status, 422);
    }
    for query in [
        "q=",
        "q=%20",
        "q=x&top_k=0",
        "q=x&top_k=51",
        "q=x&types=song",
        "q=x&scopes=earth",
        "q=x&router=magic",
        "q=x&min_score=9",
    ] {
        ada.get(&format!("{RECORDS}/search?{query}")).await.refused(422, "invalid");
    }
    ada.get(&format!("{RECORDS}/search")).await.refused(422, "invalid");
    for query in ["limit=0", "limit=1001", "cursor=x", "types=song"] {
        ada.get(&format!("{RECORDS}?{query}")).await.refused(422, "invalid");
    }
    assert_eq!(ada.get(RECORDS).await.expect(StatusCode::OK)["count"], 0, "nothing of it was kept");
    // A type by itself, a trace, a visibility instead of scopes, the owner's own scope by its old name.
    let old = json!({
        "task": "t",
        "content": "c",
        "type": "tool",
        "trace_id": "tr-1",
        "visibility": "org",
        "created_at": "2020-01-01",
    });
    let saved = ada.post(RECORDS, old).await.expect(StatusCode::CREATED);
    let kept = &saved["knowledge"];
    assert_eq!(
        (&kept["types"], &kept["scopes"], &kept["source"]),
        (&json!(["tool"]), &json!(["org:acme"]), &json!({"trace_id": "tr-1", "timestamp": "2026-01-01T00:00:00Z"}))
    );
    assert_eq!(saved["warnings"], json!(["`created_at` is computed by the daemon and was ignored"]));
    let mut own = record("t", "c");
    own["scopes"] = json!(["user:owner"]);
    own["visibility"] = json!("public");
    own["eval"] = json!({"score": 2, "helpful": 9, "confidence": 0.75});
    let saved = ada.post(RECORDS, own).await.expect(StatusCode::CREATED);
    assert_eq!(saved["knowledge"]["scopes"], json!(["user:ada"]));
    assert_eq!(saved["warnings"].as_array().unwrap().len(), 2, "{saved}");
    let eval = &saved["knowledge"]["eval"];
    assert_eq!((&eval["score"], &eval["helpful"], &eval["confidence"]), (&json!(2), &json!(0), &json!(0.75)));
}

#[tokio::test]
async fn nothing_that_a_record_said_is_lost() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let id = save(&ada, json!({"task": "t", "content": "one", "types": ["tool"], "tags": {"a": "b"}})).await;
    let path = format!("{RECORDS}/{id}");
    let put = async |body: Value| ada.put(&path, body).await.expect(StatusCode::OK)["knowledge"].clone();
    put(json!({"content": "two", "context": ["beside it"], "resource_ids": ["code/x"]})).await;
    assert_eq!(put(json!({"update_score": 5})).await["eval"]["score"], 5);
    // Only as long as it is what was read.
    let stale = ada.send(Method::PUT, &path, &[("if-match", "\"1\"")], Some(json!({"content": "three"}))).await;
    stale.refused(409, "conflict");
    for (body, says) in [
        (json!({"colour": "red"}), "colour is nothing that can be changed"),
        (json!({"update_score": 9}), "update_score"),
        (json!({"add_helpful_case": "x"}), "add_helpful_case is an object"),
        (json!({"add_helpful_case": {"task": 7}}), "add_helpful_case.task is a text"),
        (json!({"task": ""}), "task is a text"),
    ] {
        let refused = ada.put(&path, body).await.refused(422, "invalid");
        assert!(refused["detail"].as_str().unwrap().contains(says), "{refused}");
    }
    let back = ada.post(&format!("{path}/rollback"), json!({"version": 1})).await.expect(StatusCode::OK);
    let record = &back["knowledge"];
    assert_eq!((&record["content"], &record["resource_ids"], record.get("context")), (&json!("one"), &json!([]), None));
    assert_eq!((&record["tags"], &record["eval"]["score"]), (&json!({"a": "b"}), &json!(5)));
    for version in [0, 9] {
        ada.post(&format!("{path}/rollback"), json!({"version": version})).await.refused(422, "invalid");
    }
    // Deleted is not found, by its owner neither, who may have it back.
    assert_eq!(ada.delete(&path).await.status, StatusCode::NO_CONTENT);
    ada.get(&path).await.refused(404, "knowledge_not_found");
    ada.delete(&path).await.refused(404, "knowledge_not_found");
    ada.put(&path, json!({"content": "x"})).await.refused(404, "knowledge_not_found");
    assert_eq!(found(&ada, "q=one").await, [""; 0]);
    let versions = ada.get(&format!("{path}/history")).await.expect(StatusCode::OK)["versions"].clone();
    let said: Vec<&Value> = versions.as_array().unwrap().iter().map(|past| &past["attributes"]["content"]).collect();
    assert_eq!(said, ["one", "two", "one"]);
    ada.post(&format!("{path}/rollback"), json!({"version": 2})).await.expect(StatusCode::OK);
    assert_eq!(found(&ada, "q=two").await, [id.as_str()]);
    // A wish is kept where the model does not fulfil it.
    let told = ada.put(&path, json!({"evolve_feedback": "Say it shorter."})).await.expect(StatusCode::OK);
    assert_eq!((&told["evolved"], &told["reason"]), (&json!(false), &json!("llm_error")));
    // What it said while others did not see it is not told them now, nor what another record of its name said.
    let bob = daemon.member("user:bob", &[]).await;
    ada.put(&path, json!({"content": "for all", "scopes": ["public"]})).await.expect(StatusCode::OK);
    let versions = bob.get(&format!("{path}/history")).await.expect(StatusCode::OK)["versions"].clone();
    let said: Vec<&Value> = versions.as_array().unwrap().iter().map(|past| &past["attributes"]["content"]).collect();
    assert_eq!(said, ["for all"]);
    kip(&ada, r#"UPSERT { CONCEPT { {type: "Knowledge", name: "shared-name"} SET ATTRIBUTES { task: "t", content: "ada's" } } }"#).await;
    kip(&ada, r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "shared-name"} }"#).await;
    kip(&bob, r#"UPSERT { CONCEPT { {type: "Knowledge", name: "shared-name"} SET ATTRIBUTES { task: "t", content: "bob's" } } }"#).await;
    let versions = bob.get(&format!("{RECORDS}/shared-name/history")).await.expect(StatusCode::OK)["versions"].clone();
    assert_eq!((versions.as_array().unwrap().len(), &versions[0]["attributes"]["content"]), (1, &json!("bob's")));
    bob.post(&format!("{RECORDS}/shared-name/rollback"), json!({"version": 1})).await.refused(422, "invalid");
    // For good.
    assert_eq!(ada.delete(&format!("{path}?purge=1")).await.status, StatusCode::NO_CONTENT);
    ada.get(&format!("{path}/history")).await.refused(404, "knowledge_not_found");
}

#[tokio::test]
async fn under_one_key_a_record_is_kept_once_also_across_a_crash() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let post = async |client: &Client, key: &str| {
        let answer = client.send(Method::POST, RECORDS, &[("idempotency-key", key)], Some(record("t", "c"))).await;
        answer.expect(StatusCode::CREATED)["id"].as_str().unwrap().to_owned()
    };
    let first = post(&ada, "k1").await;
    let (again, other) = tokio::join!(post(&ada, "k1"), post(&ada, "k2"));
    assert_eq!(again, first);
    assert_ne!(other, first);
    let token = ada.token.clone();
    let daemon = daemon.kill_and_restart().await;
    let ada = Client::new(daemon.operator.base.clone(), token);
    assert_eq!(post(&ada, "k1").await, first);
    assert_eq!(ada.get(RECORDS).await.expect(StatusCode::OK)["count"], 2);
    // Somebody else's key is another.
    assert_ne!(post(&daemon.operator, "k1").await, first);
    // An id brought along is taken once.
    let brought = json!({"id": "knowledge-20260305-a1b2", "task": "t", "content": "c", "types": ["tool"]});
    assert_eq!(save(&ada, brought.clone()).await, "knowledge-20260305-a1b2");
    ada.post(RECORDS, brought).await.refused(409, "conflict");
}

#[tokio::test]
async fn pages_run_from_newest_to_oldest_despite_new_records() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let mut ids = Vec::new();
    for n in 0..7 {
        let mut body = record(&format!("task {n}"), "c");
        body["types"] = json!([if n % 2 == 0 { "tool" } else { "plan" }]);
        ids.push(save(&ada, body).await);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ada.get(&format!("{RECORDS}?limit=3{cursor}")).await.expect(StatusCode::OK);
        seen.extend(page["results"].as_array().unwrap().iter().map(|record| record["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
        save(&ada, record("later", "c")).await;
    }
    assert!(seen.iter().eq(ids.iter().rev()), "{seen:?}");
    let tools = ada.get(&format!("{RECORDS}?types=tool&limit=100")).await.expect(StatusCode::OK);
    assert_eq!(tools["count"], 4);
}

#[tokio::test]
async fn slim_merges_equal_records_of_one_owner_and_scope_reversibly() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    let bob = daemon.member("user:bob", &["org:acme"]).await;
    let long = "When the wind is against the tide the sea at the bar is steep and short, so wait for slack water before you go out.";
    let body = |content: &str, tags: Value, scopes: Value| {
        json!({
            "task": "crossing the bar",
            "content": content,
            "types": ["strategy"],
            "tags": tags,
            "scopes": scopes,
        })
    };
    let own = json!(["user:ada"]);
    let first = save(&ada, body(long, json!({"a": "1"}), own.clone())).await;
    let same = save(&ada, body(&format!("{long} "), json!({"b": "2"}), own.clone())).await;
    let nearly =
        save(&ada, body(&long.replace("steep and short", "steep and very short"), json!({}), own.clone())).await;
    let shared = save(&ada, body(long, json!({}), json!(["org:acme"]))).await;
    let other = save(&ada, body("Rig the jackstays before dark.", json!({}), own)).await;
    let bobs = save(&bob, body(long, json!({}), json!(["org:acme"]))).await;
    ada.put(&format!("{RECORDS}/{same}"), json!({"add_helpful_case": {}})).await.expect(StatusCode::OK);
    let tried =
        ada.post(&format!("{RECORDS}/slim"), json!({"dry_run": true, "threshold": 0.7})).await.expect(StatusCode::OK);
    assert_eq!((&tried["before"], &tried["after"]), (&json!(5), &json!(3)), "{tried}");
    assert_eq!(ada.get(RECORDS).await.body["count"], 6, "nothing was done");
    // The one that helped stays.
    let done = ada.post(&format!("{RECORDS}/slim"), json!({"threshold": 0.7})).await.expect(StatusCode::OK);
    assert_eq!(done["merged"], json!([{"kept": same, "absorbed": [first, nearly]}]), "{done}");
    let kept = ada.get(&format!("{RECORDS}/{same}")).await.expect(StatusCode::OK);
    assert_eq!(
        (&kept["tags"]["a"], &kept["tags"]["b"], &kept["eval"]["helpful"]),
        (&json!("1"), &json!("2"), &json!(1))
    );
    for gone in [&first, &nearly] {
        ada.get(&format!("{RECORDS}/{gone}")).await.refused(404, "knowledge_not_found");
    }
    for there in [&shared, &other, &bobs] {
        ada.get(&format!("{RECORDS}/{there}")).await.expect(StatusCode::OK);
    }
    let linked =
        kip(&ada, r#"FIND(?a.name, ?b.name) WHERE { (?a, "merged_into", ?b) } ORDER BY ?a.metadata._created_at"#).await;
    assert_eq!(linked["result"], json!([[first, same], [nearly, same]]));
    let again = ada.post(&format!("{RECORDS}/slim"), json!({"threshold": 0.7})).await.expect(StatusCode::OK);
    assert_eq!((&again["before"], &again["merged"]), (&json!(3), &json!([])));
    ada.post(&format!("{RECORDS}/{nearly}/rollback"), json!({"version": 1})).await.expect(StatusCode::OK);
    ada.get(&format!("{RECORDS}/{nearly}")).await.expect(StatusCode::OK);
    // What helped once is counted once, however often it is merged and restored.
    ada.put(&format!("{RECORDS}/{nearly}"), json!({"add_helpful_case": {}})).await.expect(StatusCode::OK);
    for _ in 0..2 {
        ada.post(&format!("{RECORDS}/slim"), json!({"threshold": 0.7})).await.expect(StatusCode::OK);
        assert_eq!(ada.get(&format!("{RECORDS}/{same}")).await.body["eval"]["helpful"], 2);
        ada.post(&format!("{RECORDS}/{nearly}/rollback"), json!({"version": 1})).await.expect(StatusCode::OK);
    }
    ada.post(&format!("{RECORDS}/slim"), json!({"threshold": 0.1})).await.refused(422, "invalid");
}

#[tokio::test]
async fn a_named_model_judges_records_that_words_do_not_settle() {
    let daemon = TestDaemon::start(|request: &neurons::llm::ChatRequest, _| {
        let told = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        let same = if told.contains("Moor the boat") { json!([1]) } else { json!([]) };
        neurons::llm::scripted::Reply::Text(json!({"same": same}).to_string())
    })
    .await;
    let ada = daemon.person("user:ada", "participant").await;
    for content in ["Moor the boat with two lines at the bow.", "Moor your boat at the bow by two strong lines."] {
        let draft = json!({"task": "mooring a boat", "content": content, "types": ["strategy"]});
        ada.post(RECORDS, draft).await.expect(StatusCode::CREATED);
    }
    let slim = async |body: Value| ada.post(&format!("{RECORDS}/slim"), body).await;
    let without = slim(json!({})).await.expect(StatusCode::OK);
    assert_eq!((&without["merged"], &without["model"]), (&json!([]), &Value::Null));
    slim(json!({"model": "none such"})).await.refused(422, "invalid");
    let with = slim(json!({"model": "economy"})).await.expect(StatusCode::OK);
    assert_eq!((with["merged"].as_array().unwrap().len(), &with["model"]), (1, &json!("economy")), "{with}");
}

#[tokio::test]
async fn a_commons_that_was_born_earlier_learns_what_it_does_not_know() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let gone =
        kip(op, r#"DELETE CONCEPT ?p DETACH WHERE { ?p {type: "$PropositionType", name: "merged_into"} }"#).await;
    assert_eq!(gone["result"]["deleted_concepts"], 1, "{gone}");
    let known = r#"FIND(?p.name) WHERE { ?p {type: "$PropositionType", name: "merged_into"} }"#;
    assert_eq!(kip(op, known).await["result"], json!([]));
    let daemon = daemon.kill_and_restart().await;
    assert_eq!(kip(&daemon.operator, known).await["result"], json!(["merged_into"]));
    let journal = daemon.operator.get("/v1/nexus/commons/journal?limit=256").await.expect(StatusCode::OK);
    let entries = journal["entries"].as_array().unwrap().len();
    let daemon = daemon.kill_and_restart().await;
    kip(&daemon.operator, known).await;
    let journal = daemon.operator.get("/v1/nexus/commons/journal?limit=256").await.expect(StatusCode::OK);
    assert_eq!(journal["entries"].as_array().unwrap().len(), entries, "once");
}

#[tokio::test]
async fn a_model_writes_a_record_anew_and_loses_no_figure_unsaid() {
    let script = |request: &ChatRequest, _: usize| {
        let said = said(request);
        let content = if said.contains("shorter") { "Wait 20 minutes, see `tide`." } else { "Wait a while." };
        let dropped = if said.contains("no figures") {
            vec!["20", "`tide`", "https://example.com"]
        } else {
            vec!["https://example.com"]
        };
        Reply::Text(json!({"task": "harbours", "content": content, "dropped": dropped}).to_string())
    };
    let daemon = TestDaemon::start(script).await;
    let ada = daemon.member("user:ada", &[]).await;
    let old = "You should wait 20 minutes, as `tide` says, see https://example.com";
    let mut body = record("entering harbours", old);
    body["scopes"] = json!(["public"]);
    let id = save(&ada, body).await;
    let path = format!("{RECORDS}/{id}");
    let wish = async |client: &Client, wish: &str| {
        client.put(&path, json!({"evolve_feedback": wish})).await.expect(StatusCode::OK)
    };
    // What is lost unsaid is not taken; the wish is kept.
    let told = wish(&ada, "Say it nicer.").await;
    assert_eq!((&told["evolved"], &told["knowledge"]["content"]), (&json!(false), &json!(old)));
    assert!(told["reason"].as_str().unwrap().contains("the model left out \"20\""), "{told}");
    let told = wish(&ada, "Say it shorter.").await;
    assert_eq!(
        (&told["evolved"], &told["knowledge"]["content"]),
        (&json!(true), &json!("Wait 20 minutes, see `tide`."))
    );
    assert_eq!(told["knowledge"]["eval"]["confidence"], 0.5);
    let told = wish(&ada, "Give no figures.").await;
    assert_eq!(told["knowledge"]["content"], "Wait a while.");
    // Others may wish; the owner decides.
    let bob = daemon.member("user:bob", &[]).await;
    let told = wish(&bob, "Say it shorter.").await;
    assert_eq!((&told["evolved"], &told["reason"]), (&json!(false), &json!("the_owner_decides")));
    let back = ada.post(&format!("{path}/rollback"), json!({"version": 1})).await.expect(StatusCode::OK);
    assert_eq!(back["knowledge"]["content"], old);
}

#[tokio::test]
async fn a_key_is_of_one_request_and_of_what_is_still_there() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let once = async |content: &str| {
        let body = json!({"task": "t", "content": content, "types": ["tool"]});
        op.send(Method::POST, RECORDS, &[("idempotency-key", "k1")], Some(body)).await
    };
    let id = once("one").await.expect(StatusCode::CREATED)["id"].clone();
    assert_eq!(once("one").await.expect(StatusCode::CREATED)["id"], id);
    once("another").await.refused(422, "key_reused");
    op.delete(&format!("{RECORDS}/{}", id.as_str().unwrap())).await;
    once("one").await.refused(410, "expired");
}

#[tokio::test]
async fn an_operator_who_hides_a_record_hides_it_for_its_owner() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let id = save(&ada, json!({"task": "t", "content": "c", "types": ["tool"], "scopes": ["public"]})).await;
    let told =
        daemon.operator.put(&format!("{RECORDS}/{id}"), json!({"visibility": "private"})).await.expect(StatusCode::OK);
    assert_eq!(told["knowledge"]["scopes"], json!(["user:ada"]));
}

#[tokio::test]
async fn all_tokens_of_a_person_share_scopes_and_are_revoked_singly() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let first = daemon.member("user:ada", &["org:acme"]).await;
    let second = daemon.member("user:ada", &[]).await;
    let more = json!({"principal": "user:ada", "scopes": ["org:acme", "org:other"]});
    op.post("/v1/tokens", more).await.refused(422, "invalid");
    let id = save(&first, json!({"task": "t", "content": "c", "types": ["tool"], "scopes": ["org:acme"]})).await;
    second.get(&format!("{RECORDS}/{id}")).await.expect(StatusCode::OK);
    let listed = op.get("/v1/tokens").await.expect(StatusCode::OK);
    let hers: Vec<&Value> =
        listed["principals"].as_array().unwrap().iter().filter(|one| one["id"] == "user:ada").collect();
    assert_eq!((hers.len(), &hers[0]["scopes"]), (2, &hers[1]["scopes"]));
    op.delete(&format!("/v1/tokens/user:ada?token={}", hers[0]["token"].as_str().unwrap())).await;
    let left = [&first, &second].map(|one| async { one.get(RECORDS).await.status });
    let mut left = futures::future::join_all(left).await;
    left.sort();
    assert_eq!(left, [StatusCode::OK, StatusCode::UNAUTHORIZED]);
}

#[tokio::test]
async fn a_name_that_stands_for_something_else_is_no_id() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let record = |id: &str| json!({"id": id, "task": "t", "content": "c", "types": ["tool"]});
    for id in ["search", "export", "import", "slim", "batch_update"] {
        op.post(RECORDS, record(id)).await.refused(422, "invalid");
    }
    // Told as units two would go by one id.
    let unit = json!({"@context": "https://openknowledgepulse.org/schema/v1", "@type": "Pattern", "id": "kp:pattern:bar",
                      "name": "Cross", "description": "Any bar"});
    op.post("/v1/knowledge", unit).await.expect(StatusCode::CREATED);
    op.post(RECORDS, record("bar")).await.refused(409, "conflict");
}

#[tokio::test]
async fn changes_at_once_that_name_no_version_all_go_through() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let record = json!({"id": "one", "task": "t", "content": "c", "types": ["tool"]});
    op.post(RECORDS, record).await.expect(StatusCode::CREATED);
    let path = format!("{RECORDS}/one");
    let puts = (0..24).map(|n| op.put(&path, json!({"content": format!("version {n}")})));
    for done in futures::future::join_all(puts).await {
        done.expect(StatusCode::OK);
    }
    assert_eq!(op.get(&path).await.expect(StatusCode::OK)["version"], 25);
}

#[tokio::test]
async fn among_many_of_one_wording_those_that_say_the_same_are_found() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let line = |of: usize, twin: usize| {
        json!({"id": format!("s{of}-{twin}"), "task": format!("deploy service number {of}"), "types": ["tool"],
               "content": format!("Deploy the service called alpha{of} with care in the morning hours")})
        .to_string()
    };
    let lines: Vec<String> = (0..600).flat_map(|of| [line(of, 0), line(of, 1)]).collect();
    let done = op.text(&format!("{RECORDS}/import?format=jsonl"), lines.join("\n")).await.expect(StatusCode::OK);
    assert_eq!(done["imported"], 1_200, "{done}");
    let slimmed = op.post(&format!("{RECORDS}/slim"), json!({"dry_run": true})).await.expect(StatusCode::OK);
    assert_eq!((&slimmed["before"], &slimmed["after"]), (&json!(1_200), &json!(600)));
    let pairs = slimmed["merged"].as_array().unwrap();
    assert!(pairs.iter().all(|pair| pair["absorbed"].as_array().unwrap().len() == 1), "{slimmed}");
}
