//! Records of the commons through KnowHub's door (MISSION R1, R2, H1, H2), and through KIP beside it.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

const RECORDS: &str = "/api/knowledge";
const KIP: &str = "/v1/nexus/commons/kip";

fn record(task: &str, content: &str) -> Value {
    json!({"task": task, "content": content, "types": ["strategy"]})
}

async fn save(client: &Client, body: Value) -> String {
    let saved = client.post(RECORDS, body).await.expect(StatusCode::CREATED);
    saved["id"].as_str().unwrap().to_owned()
}

async fn kip(client: &Client, command: &str) -> Value {
    client.post(KIP, json!({"command": command})).await.expect(StatusCode::OK)
}

async fn found(client: &Client, query: &str) -> Vec<String> {
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
async fn a_record_is_kept_whole_and_is_one_concept_whichever_door_one_comes_through() {
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
async fn what_cannot_be_kept_is_told_member_by_member_and_older_words_are_understood() {
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
        ("id", json!("petrel"), "id begins with \"knowledge-\""),
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
    ada.get(&format!("{RECORDS}/search")).await.refused(400, "query");
    for query in ["limit=0", "limit=1001", "cursor=x", "types=song"] {
        ada.get(&format!("{RECORDS}?{query}")).await.refused(422, "invalid");
    }
    assert_eq!(ada.get(RECORDS).await.expect(StatusCode::OK)["count"], 0, "nothing of it was kept");
    // A type by itself, a trace, a visibility instead of scopes, the owner's own scope by its old name.
    let old = json!({"task": "t", "content": "c", "type": "tool", "trace_id": "tr-1", "visibility": "org", "created_at": "2020-01-01"});
    let saved = ada.post(RECORDS, old).await.expect(StatusCode::CREATED);
    let kept = &saved["knowledge"];
    assert_eq!(
        (&kept["types"], &kept["scopes"], &kept["source"]),
        (&json!(["tool"]), &json!(["org:acme"]), &json!({"trace_id": "tr-1"}))
    );
    assert_eq!(saved["warnings"], json!(["created_at is told, not taken"]));
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

/// Six people and what they are in, besides themselves and the public.
const PEOPLE: [(&str, &[&str]); 6] = [
    ("user:ada", &["project:boats", "org:acme"]),
    ("user:bob", &["project:boats", "team:red"]),
    ("user:cid", &["agent:scout", "org:acme"]),
    ("user:dan", &["team:red", "org:other"]),
    ("agent:scout", &["team:red"]),
    ("user:eve", &[]),
];
const SCOPES: [&str; 6] = ["user:ada", "agent:scout", "project:boats", "team:red", "org:acme", "public"];

#[tokio::test]
async fn nobody_sees_what_is_in_no_scope_of_his_by_any_door_or_count() {
    let daemon = TestDaemon::start(honest).await;
    let operator = &daemon.operator;
    let mut people = Vec::new();
    for (id, scopes) in PEOPLE {
        people.push((id, scopes, daemon.member(id, scopes).await));
    }
    // One record a scope, each with a word of its own, owned by the operator.
    let mut records = Vec::new();
    for (at, scope) in SCOPES.iter().enumerate() {
        let mut body = record(&format!("secret number {at}"), &format!("marker{at}xyz in {scope}"));
        body["scopes"] = json!([scope]);
        records.push((*scope, at, save(operator, body).await));
    }
    for (who, scopes, client) in &people {
        let sees = |scope: &str| scope == "public" || scope == *who || scopes.contains(&scope);
        let visible: Vec<&String> = records.iter().filter(|(scope, ..)| sees(scope)).map(|(.., id)| id).collect();
        // Lists and counts.
        let listed = client.get(&format!("{RECORDS}?limit=1000")).await.expect(StatusCode::OK);
        let ids: Vec<&str> =
            listed["results"].as_array().unwrap().iter().map(|record| record["id"].as_str().unwrap()).rev().collect();
        assert_eq!((ids.len(), listed["count"].as_u64().unwrap()), (visible.len(), visible.len() as u64), "{who}");
        assert!(ids.iter().eq(visible.iter()), "{who}: {ids:?}");
        let counted = kip(client, r#"FIND(COUNT(?k)) WHERE { ?k {type: "Knowledge"} }"#).await;
        assert_eq!(counted["result"], json!([visible.len()]), "{who}");
        let mut asked = found(client, "q=secret+number&top_k=50").await;
        asked.sort();
        let mut wanted: Vec<String> = visible.iter().map(|id| (*id).clone()).collect();
        wanted.sort();
        assert_eq!(asked, wanted, "{who}");
        let primer = kip(client, "DESCRIBE PRIMER BUDGET 5000").await.to_string();
        let exported = kip(client, r#"EXPORT ?k WHERE { ?k {type: "Knowledge"} }"#).await.to_string();
        for (scope, at, id) in &records {
            let marker = format!("marker{at}xyz");
            let there = sees(scope);
            assert_eq!(found(client, &format!("q={marker}")).await.contains(id), there, "{who} {scope}");
            assert_eq!(found(client, &format!("q=secret&scopes={scope}&top_k=50")).await.contains(id), there);
            assert!(there || !primer.contains(&marker), "{who} {scope}: {primer}");
            assert_eq!(exported.contains(&marker), there, "{who} {scope}");
            let by_kip = kip(client, &format!(r#"SEARCH CONCEPT "{marker}" WITH TYPE "Knowledge""#)).await;
            assert_eq!(by_kip.to_string().contains(id), there, "{who} {scope}");
            let path = format!("{RECORDS}/{id}");
            let case = json!({"add_helpful_case": {"message_id": who}});
            if there {
                client.get(&path).await.expect(StatusCode::OK);
                client.get(&format!("{path}/history")).await.expect(StatusCode::OK);
                // Whoever sees it may say whether it helped, and change nothing else.
                client.put(&path, case).await.expect(StatusCode::OK);
                client.put(&path, json!({"update_score": 5})).await.refused(403, "forbidden");
                client.put(&path, json!({"content": "mine"})).await.refused(403, "forbidden");
                client.delete(&path).await.refused(403, "forbidden");
                client.post(&format!("{path}/rollback"), json!({"version": 1})).await.refused(403, "forbidden");
                continue;
            }
            // What is not seen is told in the very words of what is not there.
            let nothing = format!("{RECORDS}/knowledge-20260101-nothing2");
            for (method, end, body) in [
                (Method::GET, "", None),
                (Method::GET, "/history", None),
                (Method::PUT, "", Some(case)),
                (Method::PUT, "", Some(json!({"content": "mine"}))),
                (Method::DELETE, "", None),
                (Method::DELETE, "?purge=1", None),
                (Method::POST, "/rollback", Some(json!({"version": 1}))),
            ] {
                let hidden = client.send(method.clone(), &format!("{path}{end}"), &[], body.clone()).await;
                let absent = client.send(method, &format!("{nothing}{end}"), &[], body).await;
                assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{who} {scope} {end}");
                let told = |body: Value, id: &str| body.to_string().replace(id, "…");
                assert_eq!(told(hidden.body, id), told(absent.body, "knowledge-20260101-nothing2"));
            }
            let judged = client
                .post(
                    &format!("{RECORDS}/batch_update"),
                    json!({"feedback_list": [{"knowledge_id": id, "is_helpful": true}]}),
                )
                .await
                .expect(StatusCode::OK);
            assert_eq!((&judged["updated"], judged["errors"].as_array().unwrap().len()), (&json!(0), 1));
            for command in [
                format!(
                    r#"UPDATE ?k SET ATTRIBUTES {{ content: "mine" }} WHERE {{ ?k {{type: "Knowledge", name: "{id}"}} }}"#
                ),
                format!(r#"DELETE CONCEPT ?k DETACH WHERE {{ ?k {{type: "Knowledge", name: "{id}"}} }}"#),
            ] {
                let answer = kip(client, &command).await;
                assert!(answer["result"].to_string().contains(":0"), "{who} {scope}: {answer}");
            }
        }
        client.get("/v1/nexus/commons/journal").await.refused(403, "forbidden");
    }
    // Six people counted what they saw, once each, and nothing else of it changed.
    for (scope, at, id) in &records {
        let sees =
            people.iter().filter(|(who, scopes, _)| *scope == "public" || scope == who || scopes.contains(scope));
        let record = operator.get(&format!("{RECORDS}/{id}")).await.expect(StatusCode::OK);
        assert_eq!(record["eval"]["helpful"], sees.count(), "{scope}");
        assert_eq!(record["content"], format!("marker{at}xyz in {scope}"));
    }
    // Who leaves a scope sees no more what is in it, and who joins does, with the token he has.
    let eve = &people[5].2;
    let changed = operator.patch("/v1/tokens/user:eve", json!({"scopes": ["team:red"]})).await.expect(StatusCode::OK);
    assert_eq!(changed["scopes"], json!(["public", "team:red", "user:eve"]));
    eve.get(&format!("{RECORDS}/{}", records[3].2)).await.expect(StatusCode::OK);
    operator.patch("/v1/tokens/user:eve", json!({"scopes": []})).await.expect(StatusCode::OK);
    eve.get(&format!("{RECORDS}/{}", records[3].2)).await.refused(404, "knowledge_not_found");
    operator.patch("/v1/tokens/user:eve", json!({"scopes": ["moon"]})).await.refused(422, "invalid");
    operator.patch("/v1/tokens/user:nobody", json!({"scopes": []})).await.refused(404, "no_token");
    eve.patch("/v1/tokens/user:eve", json!({"scopes": ["org:acme"]})).await.refused(403, "forbidden");
}

#[tokio::test]
async fn nobody_adds_a_scope_he_is_not_in_or_gives_a_record_to_somebody_else() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    let looker = daemon.person("user:lee", "observer").await;
    for (member, value) in
        [("scopes", json!(["org:other"])), ("scopes", json!(["user:bob"])), ("owner", json!("user:bob"))]
    {
        let mut body = record("t", "c");
        body[member] = value;
        ada.post(RECORDS, body).await.refused(403, "forbidden");
    }
    looker.post(RECORDS, record("t", "c")).await.refused(403, "forbidden");
    assert_eq!(
        kip(&looker, r#"UPSERT { CONCEPT { {type: "Knowledge", name: "x"} } }"#).await["error"]["code"],
        "KIP_4003"
    );
    let id = save(&ada, record("t", "c")).await;
    let path = format!("{RECORDS}/{id}");
    ada.put(&path, json!({"scopes": ["org:other"]})).await.refused(403, "forbidden");
    let shown = ada.put(&path, json!({"scopes": ["org:acme", "public"]})).await.expect(StatusCode::OK);
    assert_eq!(shown["knowledge"]["visibility"], "public");
    // By KIP neither: nor is anything but records and resources kept there by others than operators.
    for command in [
        format!(r#"UPDATE ?k SET METADATA {{ access_scopes: ["org:other"] }} WHERE {{ ?k {{name: "{id}"}} }}"#),
        format!(r#"UPDATE ?k SET METADATA {{ owner: "user:bob" }} WHERE {{ ?k {{name: "{id}"}} }}"#),
        format!(r#"UPDATE ?k SET METADATA {{ helpful: 100 }} WHERE {{ ?k {{name: "{id}"}} }}"#),
        format!(r#"UPDATE ?k SET METADATA {{ harmful: "none" }} WHERE {{ ?k {{name: "{id}"}} }}"#),
        r#"UPSERT { CONCEPT { {type: "Knowledge", name: "x"} } WITH METADATA { helpful: 5 } }"#.to_owned(),
        r#"UPSERT { CONCEPT { {type: "Domain", name: "Mine"} } }"#.to_owned(),
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Mine"} } }"#.to_owned(),
    ] {
        let answer = kip(&ada, &command).await;
        assert_eq!(answer["error"]["code"], "KIP_4003", "{command}: {answer}");
    }
    let after = ada.get(&path).await.expect(StatusCode::OK);
    assert_eq!((&after["owner"], &after["eval"]["helpful"]), (&json!("user:ada"), &json!(0)));
    kip(&ada, &format!(r#"UPDATE ?k SET METADATA {{ score: 1e300, confidence: 7 }} WHERE {{ ?k {{name: "{id}"}} }}"#))
        .await;
    let eval = ada.get(&path).await.body["eval"].clone();
    assert_eq!((&eval["score"], &eval["confidence"]), (&json!(5), &json!(1.0)), "nobody is better than the best");
    // Nothing that is sent along is told in the place of what a record tells of itself.
    kip(&ada, &format!(r#"UPDATE ?k SET ATTRIBUTES {{ x: {{"eval": {{"helpful": 999}}, "owner": "user:boss", "mood": 1}} }} WHERE {{ ?k {{name: "{id}"}} }}"#)).await;
    let after = ada.get(&path).await.expect(StatusCode::OK);
    assert_eq!(
        (&after["owner"], &after["eval"]["helpful"], &after["mood"]),
        (&json!("user:ada"), &json!(0), &json!(1))
    );
    // A lifeform is its own principal, and writes from its own mind by the same rules.
    let (life, _) = daemon.lifeform().await;
    let own = format!("/v1/lifeforms/{life}/kip");
    let seen =
        daemon.operator.post(&own, json!({"command": r#"FIND(?k.name) WHERE { ?k {type: "Knowledge"} }"#})).await;
    assert_eq!(seen.expect(StatusCode::OK)["result"], json!([id]));
}

#[tokio::test]
async fn what_helped_comes_first_and_what_harmed_goes() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let mut ids = Vec::new();
    for score in [1, 3, 3, 5] {
        let mut body = record("mooring a boat", "Use two lines.");
        body["score"] = json!(score);
        ids.push(save(&ada, body).await);
        daemon.clock.advance_ms(1_000);
    }
    let judge = async |id: &str, helpful: bool, message: &str| {
        let case = json!({"task": "moored", "outcome": "fine", "message_id": message});
        let name = if helpful { "add_helpful_case" } else { "add_harmful_case" };
        ada.put(&format!("{RECORDS}/{id}"), json!({ (name): case })).await.expect(StatusCode::OK)["knowledge"]["eval"]
            .clone()
    };
    // 5 + 0, then of equals the newest, as they answer equally well; what scored less than asked for is left out.
    assert_eq!(found(&ada, "q=mooring").await, [&ids[3], &ids[2], &ids[1]].map(String::clone));
    assert_eq!(found(&ada, "q=mooring&min_score=1").await.len(), 4);
    assert_eq!(found(&ada, "q=mooring&min_score=4").await, [ids[3].clone()]);
    // 3 + 3 = 6 is before 5, and the same message counts once.
    for message in ["m1", "m2", "m3", "m3", "m1"] {
        judge(&ids[1], true, message).await;
    }
    let eval = judge(&ids[1], true, "m2").await;
    assert_eq!((&eval["helpful"], eval["helpful_history"].as_array().unwrap().len()), (&json!(3), 3));
    assert_eq!(eval["helpful_history"][0]["by"], "user:ada");
    assert!((eval["confidence"].as_f64().unwrap() - 0.6355).abs() < 1e-9, "{eval}");
    assert_eq!(found(&ada, "q=mooring").await[0], ids[1]);
    // 5 − 2·3 is less than nothing.
    for message in ["m1", "m2", "m3"] {
        judge(&ids[3], false, message).await;
    }
    assert_eq!(found(&ada, "q=mooring").await, [&ids[1], &ids[2]].map(String::clone));
    // A message may have helped and, looked at again, not: that is two cases.
    let eval = judge(&ids[1], false, "m1").await;
    assert_eq!((&eval["helpful"], &eval["harmful"]), (&json!(3), &json!(1)));
    let shown = ada.get(&format!("{RECORDS}/search?q=mooring&explain=1&router=lexical")).await.expect(StatusCode::OK);
    assert_eq!((&shown["router"], &shown["results"][0]["quality_score"]), (&json!("lexical"), &json!(4.0)));
    assert_eq!(shown["results"][0]["explain"]["scope"], 0);
    // Many at once: what is wrong with one is told, and the others are counted.
    let list = json!([
        {"knowledge_id": ids[0], "is_helpful": true, "case": {"task": "moored"}},
        {"knowledge_id": ids[0], "is_helpful": true, "case": {"task": "moored"}},
        {"knowledge_id": ids[0]},
        {"knowledge_id": ids[0], "is_helpful": "yes"},
        {"knowledge_id": "knowledge-none", "is_helpful": true},
        {"is_helpful": true}, 7,
    ]);
    let judged =
        ada.post(&format!("{RECORDS}/batch_update"), json!({"feedback_list": list})).await.expect(StatusCode::OK);
    assert_eq!((&judged["updated"], judged["errors"].as_array().unwrap().len()), (&json!(2), 5), "{judged}");
    assert_eq!(ada.get(&format!("{RECORDS}/{}", ids[0])).await.body["eval"]["helpful"], 2);
    let none = ada.post(&format!("{RECORDS}/batch_update"), json!({"feedback_list": []})).await.expect(StatusCode::OK);
    assert_eq!(none, json!({"updated": 0, "errors": []}));
    // Cases outlive the daemon.
    let (path, token, base) = (format!("{RECORDS}/{}", ids[1]), ada.token.clone(), daemon.operator.base.clone());
    let before = Client::new(base, token.clone()).get(&path).await.expect(StatusCode::OK);
    let daemon = daemon.kill_and_restart().await;
    let ada = Client::new(daemon.operator.base.clone(), token);
    assert_eq!(ada.get(&path).await.expect(StatusCode::OK), before);
    ada.put(&path, json!({"add_helpful_case": {"message_id": "m2"}})).await.expect(StatusCode::OK);
    assert_eq!(ada.get(&path).await.body["eval"], before["eval"]);
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
async fn pages_go_from_the_newest_to_the_oldest_whatever_comes_meanwhile() {
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
async fn chinese_and_japanese_are_found_by_one_two_and_more_characters_in_any_width() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let texts = [
        "上海港的潮汐时间表",
        "東京湾の潮汐について",
        "서울의 한강 조수",
        "ｆｕｌｌ　ｗｉｄｔｈ １２３",
        "Selenium 绕过检测 login",
    ];
    let mut ids = Vec::new();
    for text in texts {
        ids.push(save(&ada, record(text, text)).await);
    }
    for (question, wanted) in [
        ("港", vec![0]),
        ("潮汐", vec![0, 1]),
        ("潮汐时间", vec![0]),
        ("東京湾", vec![1]),
        ("한강", vec![2]),
        ("width 123", vec![3]),
        ("ｗｉｄｔｈ", vec![3]),
        ("selenium检测", vec![4]),
        ("怎样绕过检测", vec![4]),
    ] {
        let hits = found(&ada, &format!("q={question}")).await;
        for at in &wanted {
            assert!(hits.contains(&ids[*at]), "{question}: {hits:?}");
        }
        assert_eq!(hits[0], ids[wanted[0]].clone().max(hits[0].clone()).min(hits[0].clone()), "{question}");
    }
    assert_eq!(found(&ada, "q=葡萄牙").await, [""; 0]);
}

#[tokio::test]
async fn records_that_say_the_same_are_merged_within_one_owner_and_scope_and_come_back() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    let bob = daemon.member("user:bob", &["org:acme"]).await;
    let long = "When the wind is against the tide the sea at the bar is steep and short, so wait for slack water before you go out.";
    let body = |content: &str, tags: Value, scopes: Value| json!({"task": "crossing the bar", "content": content, "types": ["strategy"], "tags": tags, "scopes": scopes});
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
async fn meaning_finds_what_shares_no_word_and_a_search_says_what_picked() {
    let daemon = TestDaemon::alike(&[("boat", "vessel")]).await;
    let ada = daemon.member("user:ada", &[]).await;
    let id = save(&ada, record("boat", "boat")).await;
    let answer = ada.get(&format!("{RECORDS}/search?q=vessel&explain=1")).await.expect(StatusCode::OK);
    assert_eq!((&answer["router"], &answer["results"][0]["id"]), (&json!("hybrid"), &json!(id)), "{answer}");
    assert_eq!(answer["results"][0]["explain"]["lexical"], 0.0);
    let words = ada.get(&format!("{RECORDS}/search?q=vessel&router=lexical")).await.expect(StatusCode::OK);
    assert_eq!((&words["router"], &words["count"]), (&json!("lexical"), &json!(0)));
    // Without an embedder it says so, and finds by words.
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    save(&ada, record("boat", "boat")).await;
    let words = ada.get(&format!("{RECORDS}/search?q=boat&router=hybrid")).await.expect(StatusCode::OK);
    assert_eq!((&words["router"], &words["degraded"]), (&json!("lexical"), &json!("no embedder is configured")));
    assert_eq!(words["count"], 1);
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

fn said(request: &ChatRequest) -> String {
    request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_model_chooses_among_what_the_caller_sees_and_gives_way_when_it_does_not_answer() {
    // It chooses from the last to the first of those with a boat in them, and one that it was never shown.
    let script = |request: &ChatRequest, asked: usize| {
        let said = said(request);
        if said.contains("break down") {
            return Reply::Status(500, "out of order".into());
        }
        assert!(!said.contains("hidden"), "{asked}: {said}");
        let lines = said.lines().filter(|line| line.starts_with("knowledge-") && line.contains("boat"));
        let mut ids: Vec<&str> = lines.map(|line| line.split(' ').next().unwrap()).collect();
        ids.push("knowledge-20260101-invented");
        Reply::Text(json!({"ids": ids}).to_string())
    };
    let daemon = TestDaemon::start(script).await;
    let ada = daemon.member("user:ada", &[]).await;
    let mut hidden = record("a hidden boat", "hidden");
    hidden["scopes"] = json!(["user:bob"]);
    save(&daemon.operator, hidden).await;
    let mut ids = Vec::new();
    for task in ["mooring a boat", "a boat in fog", "baking bread"] {
        ids.push(save(&ada, record(task, "Take care.")).await);
    }
    let ask = async |query: &str| ada.get(&format!("{RECORDS}/search?router=llm&{query}")).await.expect(StatusCode::OK);
    let answer = ask("q=vessels").await;
    let hits: Vec<&Value> = answer["results"].as_array().unwrap().iter().map(|hit| &hit["id"]).collect();
    assert_eq!((&answer["router"], hits), (&json!("llm"), vec![&json!(ids[1]), &json!(ids[0])]), "{answer}");
    // What it does not choose and words find comes after.
    let answer = ask("q=bread").await;
    let hits: Vec<&Value> = answer["results"].as_array().unwrap().iter().map(|hit| &hit["id"]).collect();
    assert_eq!(hits, [&json!(ids[1]), &json!(ids[0]), &json!(ids[2])]);
    let answer = ask("q=break+down+on+bread").await;
    assert_eq!((&answer["router"], &answer["degraded"]), (&json!("lexical"), &json!("llm_error")), "{answer}");
    assert_eq!(answer["results"][0]["id"], json!(ids[2]));
    // It is paid from the house, and without a model good enough it is not asked.
    let spent = daemon.operator.get("/v1/house/resources").await.expect(StatusCode::OK);
    assert!(spent["spent"]["tokens"].as_i64().unwrap() > 0, "{spent}");
    let asked = daemon.model.asked().len();
    ada.get(&format!("{RECORDS}/search?q=boat")).await.expect(StatusCode::OK);
    assert_eq!(daemon.model.asked().len(), asked, "nobody is paid unasked");
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

/// Calls a tool at `/mcp`; answers what it brought, or what it says is wrong.
async fn tool(client: &Client, name: &str, arguments: Value) -> Result<Value, String> {
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let accept = [("accept", "application/json, text/event-stream")];
    let answer = client.send(Method::POST, "/mcp", &accept, Some(call)).await.expect(StatusCode::OK);
    let result = &answer["result"];
    match result["isError"].as_bool() {
        Some(true) => Err(result["content"][0]["text"].as_str().unwrap().to_owned()),
        _ => Ok(result["structuredContent"].clone()),
    }
}

#[tokio::test]
async fn one_memory_through_mcp_and_every_other_door() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let bob = daemon.member("user:bob", &[]).await;
    let saved = tool(&ada, "knowledge_save", json!({"task": "mooring", "content": "Use two lines.", "types": ["tool"], "source_name": "log", "urls": ["https://a.example"]})).await.unwrap();
    let id = saved["knowledge_id"].as_str().unwrap();
    let kept = ada.get(&format!("{RECORDS}/{id}")).await.expect(StatusCode::OK);
    assert_eq!(kept["source"], json!({"name": "log", "urls": ["https://a.example"]}));
    // Written by REST and by KIP, found by the tool under both its names.
    let other = save(&ada, record("mooring in wind", "Use four.")).await;
    kip(&ada, r#"UPSERT { CONCEPT { {type: "Knowledge", name: "third"} SET ATTRIBUTES { task: "mooring at night", content: "Use a lamp." } } }"#).await;
    for name in ["knowledge_search", "get_knowledge"] {
        let found = tool(&ada, name, json!({"query": "mooring"})).await.unwrap();
        let mut ids: Vec<&str> =
            found["results"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        let mut wanted = [id, other.as_str(), "third"];
        wanted.sort_unstable();
        assert_eq!(ids, wanted);
    }
    assert_eq!(tool(&bob, "knowledge_search", json!({"query": "mooring"})).await.unwrap()["count"], 0);
    tool(&ada, "knowledge_update", json!({"knowledge_id": id, "add_helpful_case": {"task": "t"}, "update_score": 4}))
        .await
        .unwrap();
    let eval = ada.get(&format!("{RECORDS}/{id}")).await.body["eval"].clone();
    assert_eq!((&eval["score"], &eval["helpful"]), (&json!(4), &json!(1)));
    let judged = tool(
        &ada,
        "knowledge_batch_update",
        json!({"feedback_list": [{"knowledge_id": "third", "is_helpful": false}]}),
    )
    .await;
    assert_eq!(judged.unwrap(), json!({"updated": 1, "errors": []}));
    assert_eq!(tool(&ada, "knowledge_list", json!({"types": ["tool"]})).await.unwrap()["count"], 1);
    assert_eq!(tool(&ada, "knowledge_slim", json!({"model": "any"})).await.unwrap()["merged"], json!([]));
    tool(&ada, "resource_save", json!({"id": "code/x", "secure_body": "hush-hush-1"})).await.unwrap();
    let resource = tool(&ada, "resource_get", json!({"id": "code/x"})).await.unwrap();
    assert_eq!((&resource["has_secure_body"], &resource["secure_body"]), (&json!(true), &Value::Null));
    let answer = tool(&ada, "execute_kip", json!({"command": r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: $id} }"#, "parameters": {"id": id}})).await;
    assert_eq!(answer.unwrap()["result"]["deleted_concepts"], 1);
    ada.get(&format!("{RECORDS}/{id}")).await.refused(404, "knowledge_not_found");
    // What is wrong is told to the agent, which may then do better.
    for (name, arguments, says) in [
        ("knowledge_save", json!({"task": "t"}), "content is missing"),
        ("knowledge_search", json!({}), "missing field `query`"),
        ("knowledge_search", json!({"query": "x", "types": ["song"]}), "types is one of"),
        ("knowledge_update", json!({"knowledge_id": id}), "there is no"),
        ("resource_get", json!({"id": "nothing"}), "there is no"),
        ("paint", json!({}), "there is no tool paint"),
        ("execute_kip", json!({"command": "FIND(?x", "nexus": "lf_none"}), "not_found"),
    ] {
        let told = tool(&ada, name, arguments).await.unwrap_err();
        assert!(told.contains(says), "{name}: {told}");
    }
    // Canvases.
    let (life, chat) = daemon.lifeform().await;
    let said =
        tool(&ada, "canvas_post", json!({"lifeform": life, "topic": "by_mcp", "content": "Hello."})).await.unwrap();
    assert!(said["rev"].as_u64().unwrap() >= 2, "{said}");
    tool(&ada, "canvas_post", json!({"lifeform": life, "topic": "by_mcp", "content": "Again."})).await.unwrap();
    let read = tool(&ada, "canvas_read", json!({"lifeform": life})).await.unwrap();
    assert!(read["state"].to_string().contains("Again."));
    let shown = daemon.operator.get(&format!("{chat}/topics/by_mcp/messages")).await.expect(StatusCode::OK);
    assert_eq!(
        (&shown["messages"][0]["content"], &shown["messages"][0]["sender"]),
        (&json!("Hello."), &json!("user:ada"))
    );
    // Who may only look, looks.
    let looker = daemon.person("user:lee", "observer").await;
    assert_eq!(tool(&looker, "knowledge_search", json!({"query": "x"})).await.unwrap()["count"], 0);
    for (name, arguments) in
        [("knowledge_save", record("t", "c")), ("canvas_post", json!({"lifeform": life, "topic": "t", "content": "c"}))]
    {
        assert!(tool(&looker, name, arguments).await.unwrap_err().contains("may only look"));
    }
    assert_eq!(tool(&looker, "execute_kip", json!({"command": "DESCRIBE DOMAINS"})).await.unwrap().get("error"), None);
    // Without a token nobody comes in, and from a page of somebody else's neither.
    let nobody = Client::new(daemon.operator.base.clone(), String::new());
    nobody.post("/mcp", json!({})).await.refused(401, "no_token");
    let stranger = [("origin", "https://evil.example"), ("accept", "application/json, text/event-stream")];
    ada.send(Method::POST, "/mcp", &stranger, Some(json!({}))).await.refused(403, "forbidden");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_answer_in_time_gives_way() {
    let store = nexus::Store::open(
        std::sync::Arc::new(nexus::store::Memory::default()),
        std::sync::Arc::new(nexus::ManualClock::default()),
    );
    let store = store.await.unwrap();
    let minds = nexus::Nexus::new(store.clone());
    let never = std::sync::Arc::new(tokio::sync::Notify::new());
    let model = neurons::llm::scripted::Scripted::new(move |_, _| Reply::Held("[".into(), never.clone(), "]".into()));
    let models = tests::models_of(&model.provider("silent").unwrap());
    let thinking = neurons::Neurons::open(store.clone(), tests::tools_of(minds.clone()), models).await.unwrap();
    let funds = nexus::ledger::AccountOp::Open(nexus::ledger::Amount::tokens(100_000));
    let system = nexus::Origin::system("test");
    store.commit(nexus::Batch::new(&system).account(neurons::HOUSE, funds, "house")).await.unwrap();
    let records = knowledge::Knowledge::new(store, minds).with_neurons(thinking);
    let Value::Object(body) = record("the harbour", "hail on channel 9") else { panic!() };
    let draft = knowledge::Draft::read(body, &system.principal).unwrap();
    records.save(draft, None, &system).await.unwrap();
    let query =
        knowledge::Query { router: Some(knowledge::Router::Llm), ..knowledge::Query::new("harbour channel", 3) };
    let begun = tokio::time::Instant::now();
    let found = records.search(&query, &system).await.unwrap();
    assert_eq!((found.router, found.degraded.as_deref()), (knowledge::Router::Lexical, Some("llm_timeout")));
    assert_eq!((found.hits.len(), begun.elapsed().as_secs()), (1, 3));
}

#[tokio::test]
async fn a_record_is_found_by_its_labels() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let body = json!({"task": "entering", "content": "Wait for the flood.", "types": ["strategy"], "tags": {"domain": "sailing", "places": ["Faro", "Olhão"]}});
    let id = save(op, body).await;
    for query in ["q=sailing", "q=Olhao", "q=olhão"] {
        assert_eq!(found(op, query).await, [id.as_str()], "{query}");
    }
}
