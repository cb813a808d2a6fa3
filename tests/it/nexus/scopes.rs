//! Who sees, changes and shows what of the commons, by every door (MISSION R2).

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{TestDaemon, honest};

use crate::knowledge::records::{RECORDS, found, kip, record, save};

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
async fn a_participant_cannot_add_foreign_scopes_or_give_away_records() {
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
        r#"UPSERT { CONCEPT { {type: "Knowledge", name: "x"} } WITH METADATA { validated_by: ["kp:validator:user:bob"] } }"#.to_owned(),
        format!(r#"UPDATE ?k SET METADATA {{ validated_by: ["kp:validator:user:bob"] }} WHERE {{ ?k {{name: "{id}"}} }}"#),
        r#"UPSERT { CONCEPT { {type: "Domain", name: "Mine"} } }"#.to_owned(),
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Mine"} } }"#.to_owned(),
    ] {
        let answer = kip(&ada, &command).await;
        assert_eq!(answer["error"]["code"], "KIP_4003", "{command}: {answer}");
    }
    let after = ada.get(&path).await.expect(StatusCode::OK);
    assert_eq!((&after["owner"], &after["eval"]["helpful"]), (&json!("user:ada"), &json!(0)));
    for worth in ["score: 1e300", "confidence: 7"] {
        let answer =
            kip(&ada, &format!(r#"UPDATE ?k SET METADATA {{ {worth} }} WHERE {{ ?k {{name: "{id}"}} }}"#)).await;
        assert_eq!(answer["error"]["code"], "KIP_2002", "nobody is better than the best: {answer}");
    }
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
async fn what_is_hidden_weighs_nothing_in_a_search_however_much_it_is() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, eve) = (daemon.member("user:ada", &[]).await, daemon.member("user:eve", &[]).await);
    let lines = |name: &str, count: usize, text: &str, scope: &str| {
        let line = |n: usize| {
            let filler = "and more of it ".repeat(n % 7);
            json!({
                "id": format!("knowledge-{name}-{n}"),
                "task": "t",
                "content": format!("{text} {filler}{n}"),
                "types": ["tool"],
                "scopes": [scope],
            })
            .to_string()
        };
        (0..count).map(line).collect::<Vec<_>>().join("\n")
    };
    for (name, count, text) in [("h", 300, "harbour"), ("a", 100, "anchor"), ("b", 3, "harbour anchor")] {
        let done = ada.text("/api/knowledge/import?format=jsonl", lines(name, count, text, "public")).await;
        assert_eq!(done.expect(StatusCode::OK)["imported"], count);
    }
    let told = async || {
        let found =
            ada.get("/api/knowledge/search?q=harbour+anchor&top_k=50&router=lexical").await.expect(StatusCode::OK);
        let hits = found["results"].as_array().unwrap().iter();
        hits.map(|hit| json!([hit["id"], hit["relevance"]])).collect::<Vec<_>>()
    };
    let before = told().await;
    let done = eve.text("/api/knowledge/import?format=jsonl", lines("e", 1_300, "harbour", "user:eve")).await;
    assert_eq!(done.expect(StatusCode::OK)["imported"], 1_300);
    assert_eq!(told().await, before);
}

#[tokio::test]
async fn a_mind_defines_its_own_types_without_changing_the_commons() {
    let daemon = TestDaemon::start(honest).await;
    let (operator, (one, _), (other, _)) = (&daemon.operator, daemon.lifeform().await, daemon.lifeform().await);
    let in_mind = async |life: &str, command: &str| {
        operator.post(&format!("/v1/nexus/{life}/kip"), json!({"command": command})).await.body
    };
    let describe = "DESCRIBE PROPOSITION TYPE \"derived_from\"";
    let describe_type = "DESCRIBE CONCEPT TYPE \"Resource\"";
    let at_first = (kip(operator, describe).await, kip(operator, describe_type).await);
    assert!(at_first.0.get("error").is_none() && at_first.1.get("error").is_none(), "{at_first:?}");
    // A capsule defines a predicate of the commons in its own way: the mind it is loaded into has that, and no other.
    let capsule = r#"UPSERT {
        CONCEPT ?p { {type: "$PropositionType", name: "derived_from"} SET ATTRIBUTES { description: "Where an insight comes from.", object_types: ["Weather"] } }
        CONCEPT ?d { {type: "Domain", name: "Insights"} }
        CONCEPT ?i { {type: "Insight", name: "it rains"} SET PROPOSITIONS { ("derived_from", {type: "Weather", name: "rain"}), ("belongs_to_domain", ?d) } }
    }"#;
    let types = r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Insight"} SET ATTRIBUTES { description: "d" } } CONCEPT { {type: "$ConceptType", name: "Weather"} SET ATTRIBUTES { description: "d" } } CONCEPT { {type: "Weather", name: "rain"} } }"#;
    assert_eq!(in_mind(&one, types).await.get("error"), None);
    for _ in 0..2 {
        let loaded = operator.text(&format!("/v1/nexus/{one}/capsules"), capsule.to_owned()).await.body;
        assert!(loaded.get("error").is_none(), "{loaded}");
    }
    let own = in_mind(&one, describe).await;
    assert!(own.to_string().contains("Where an insight comes from."), "{own}");
    let linked = in_mind(&one, r#"FIND(?e.name) WHERE { (?i, "derived_from", ?e) ?i {type: "Insight"} }"#).await;
    assert_eq!(linked["result"], json!(["rain"]), "{linked}");
    let there = in_mind(&one, r#"FIND(COUNT(?p)) WHERE { ?p {type: "$PropositionType", name: "derived_from"} }"#).await;
    assert_eq!(there["result"], json!([1]));
    assert_eq!(kip(operator, describe).await, at_first.0);
    assert!(!in_mind(&other, describe).await.to_string().contains("Where an insight"));
    // The mind itself defines a type: the writer is warned that concepts of it are still kept in the commons.
    let resource = r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Resource"} SET ATTRIBUTES { description: "A thing of mine." } } }"#;
    let defined = in_mind(&other, resource).await;
    assert!(
        defined["warnings"].to_string().contains("concepts of that type are still kept in the commons"),
        "{defined}"
    );
    assert_eq!(kip(operator, describe_type).await, at_first.1);
    let printer = r#"UPSERT { CONCEPT { {type: "Resource", name: "printer"} SET ATTRIBUTES { title: "Printer" } } }"#;
    let open = in_mind(&other, printer).await;
    assert!(open["warnings"].to_string().contains("everyone may read it"), "{open}");
    assert_eq!(in_mind(&other, printer).await.get("warnings"), None, "it is there");
    let closed = r#"UPSERT { CONCEPT { {type: "Resource", name: "key"} SET ATTRIBUTES { title: "Key" } } WITH METADATA { access_scopes: ["org:acme"] } }"#;
    assert_eq!(in_mind(&other, closed).await.get("warnings"), None);
    // What else would change it from a mind is refused, and changes nothing.
    for command in [
        r#"UPDATE ?p SET ATTRIBUTES { description: "mine" } WHERE { ?p {type: "$PropositionType", name: "supersedes"} }"#,
        r#"DELETE ATTRIBUTES { "description" } FROM ?p WHERE { ?p {type: "$PropositionType", name: "supersedes"} }"#,
        r#"DELETE CONCEPT ?p DETACH WHERE { ?p {type: "$PropositionType", name: "supersedes"} }"#,
        r#"DELETE CONCEPT ?t DETACH WHERE { ?t {type: "$ConceptType", name: "Scope"} }"#,
    ] {
        let refused = in_mind(&one, command).await;
        assert_eq!(refused["error"]["code"], "KIP_4003", "{command}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("changed at the commons"), "{refused}");
    }
    // An operator changes it there.
    let changed = kip(operator, r#"UPSERT { CONCEPT { {type: "$PropositionType", name: "supersedes"} SET ATTRIBUTES { description: "Takes the place of." } } }"#).await;
    assert!(changed.get("error").is_none(), "{changed}");
    assert!(
        in_mind(&other, "DESCRIBE PROPOSITION TYPE \"supersedes\"").await.to_string().contains("Takes the place of.")
    );
}
