//! Records as KnowledgeUnits (MISSION P1–P4): both vocabularies, versions, and the same memory behind them.

use knowledge::unit::versions::{Major, SchemaVersion, Schemas};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Answer, Client, TestDaemon, honest};

const UNITS: &str = "/v1/knowledge";
const CONTEXT: &str = "https://openknowledgepulse.org/schema/v1";

fn metadata(visibility: &str) -> Value {
    json!({"created_at": "2026-02-24T10:00:00Z", "task_domain": "sailing", "success": true, "quality_score": 0.75,
           "visibility": visibility, "privacy_level": "aggregated", "framework": "langgraph"})
}

pub(crate) fn trace() -> Value {
    json!({"@context": CONTEXT, "@type": "ReasoningTrace", "id": "kp:trace:a1b2c3d4", "metadata": metadata("network"),
           "task": {"objective": "entering the harbour"},
           "steps": [{"step_id": 0, "type": "thought", "content": "The ebb runs four knots."},
                     {"step_id": 1, "type": "tool_call", "tool": {"name": "tides"}, "latency_ms": 12}],
           "outcome": {"result_summary": "Waited for the flood.", "confidence": 0.9}, "x-unknown": {"kept": [1, 2]}})
}

fn pattern() -> Value {
    json!({"@context": CONTEXT, "@type": "ToolCallPattern", "id": "kp:pattern:p1", "metadata": metadata("private"),
           "name": "Check the tide", "description": "Before any bar", "trigger_conditions": {"task_types": ["pilotage"]},
           "tool_sequence": [{"step": "ask the tide table", "execution": "sequential", "tools": [{"name": "tides"}]}],
           "performance": {"avg_ms": 10, "success_rate": 0.9, "uses": 3}})
}

fn sop() -> Value {
    json!({"@context": CONTEXT, "@type": "ExpertSOP", "id": "kp:sop:s1", "metadata": metadata("org"), "name": "Crossing a bar",
           "domain": "sailing", "source": {"type": "human_expert", "expert_id": "ada", "credentials": []},
           "decision_tree": [{"step": "1", "instruction": "Look.", "conditions": {"breaking": {"action": "Stay out"}}}]})
}

/// The rules of a vocabulary.
fn rules(name: &str) -> jsonschema::Validator {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/schemas");
    let text = std::fs::read_to_string(folder.join(format!("{name}.v1.schema.json"))).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// A unit that fits the rules of its own type.
#[track_caller]
fn whole(unit: &Value) -> &Value {
    let name = unit["@type"].as_str().unwrap_or_else(|| panic!("{unit}"));
    let faults: Vec<String> = rules(name).iter_errors(unit).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}: {unit}");
    unit
}

async fn get(client: &Client, id: &str, headers: &[(&str, &str)]) -> Answer {
    client.send(Method::GET, &format!("{UNITS}/{id}"), headers, None).await
}

/// Without what every record tells of itself.
fn without_told(mut unit: Value) -> Value {
    for key in ["record_id", "feedback"] {
        unit["metadata"].as_object_mut().unwrap().remove(key);
    }
    unit
}

#[tokio::test]
async fn what_kip_wrote_as_a_unit_and_is_none_takes_no_other_away() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let later = "https://openknowledgepulse.org/schema/v9";
    for (name, unit) in [
        ("knowledge-odd", json!({"@type": "Trace", "task": "x"})),
        ("knowledge-new", json!({"@context": later, "@type": "Trace", "task": {}})),
    ] {
        let command = format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Knowledge", name: "{name}"}} SET ATTRIBUTES {{ task: "t", content: "c", unit: $unit }} }} }} WITH METADATA {{ access_scopes: ["public"], score: 5 }}"#
        );
        let written = json!({"command": command, "parameters": {"unit": unit}});
        let written = op.post("/v1/nexus/commons/kip", written).await.expect(StatusCode::OK);
        assert!(written.get("error").is_none(), "{written}");
    }
    let whole = json!({"task": "Mooring", "content": "Use two lines.", "types": ["strategy"], "scopes": ["public"]});
    op.post("/api/knowledge", whole).await.expect(StatusCode::CREATED);
    let listed = op.get(UNITS).await.expect(StatusCode::OK);
    let told = listed["data"].to_string();
    assert!(told.contains("Use two lines.") && told.contains("knowledge-odd"), "{listed}");
    assert!(!told.contains("knowledge-new"), "{listed}");
    let exported = op.get_text("/api/knowledge/export?format=units").await;
    assert!(exported.contains("Use two lines."), "{exported}");
}

#[tokio::test]
async fn a_unit_is_returned_as_contributed_and_is_an_ordinary_record() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    for unit in [trace(), pattern(), sop()] {
        let made = ada.post(UNITS, unit.clone()).await.expect(StatusCode::CREATED);
        assert_eq!((&made["id"], &made["data"]["unit"]["@type"]), (&unit["id"], &unit["@type"]));
        let id = unit["id"].as_str().unwrap();
        let answer = get(&ada, id, &[]).await;
        assert_eq!(answer.headers["content-type"], "application/ld+json");
        assert_eq!(
            (&answer.headers["kp-schema-version"], &answer.headers["vary"]),
            (&"1.1.0".parse().unwrap(), &"Accept, KP-Schema-Version".parse().unwrap())
        );
        let told = answer.expect(StatusCode::OK);
        assert_eq!(without_told(whole(&told).clone()), unit);
        // The same again changes nothing.
        assert_eq!(ada.post(UNITS, unit.clone()).await.expect(StatusCode::OK)["id"], unit["id"]);
        // In the other vocabulary it is as whole.
        let short = get(&ada, id, &[("kp-schema-version", "1.0.0")]).await.expect(StatusCode::OK);
        assert_eq!(whole(&short), &unit, "1.0.0 tells nothing of the record");
    }
    // One row, found and changed through the other doors.
    let listed = ada.get("/api/knowledge?limit=100").await.expect(StatusCode::OK);
    assert_eq!(listed["count"], 3);
    let found = ada.get("/api/knowledge/search?q=ebb+four+knots").await.expect(StatusCode::OK);
    let record = found["results"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&found["results"][0]["types"], &found["results"][0]["scopes"]),
        (&json!(["strategy"]), &json!(["public"]))
    );
    ada.put(&format!("/api/knowledge/{record}"), json!({"content": "Wait for slack water."}))
        .await
        .expect(StatusCode::OK);
    let told = get(&ada, "kp:trace:a1b2c3d4", &[]).await.expect(StatusCode::OK);
    assert_eq!(whole(&told)["outcome"]["result_summary"], "Wait for slack water.");
    assert_eq!((&told["x-unknown"], &told["task"]), (&trace()["x-unknown"], &trace()["task"]));
    // A new document under the id is a version of the record.
    let mut again = trace();
    again["outcome"]["result_summary"] = "Went in at slack.".into();
    ada.post(UNITS, again.clone()).await.expect(StatusCode::OK);
    assert_eq!(without_told(get(&ada, "kp:trace:a1b2c3d4", &[]).await.body), again);
    let history = ada.get(&format!("/api/knowledge/{record}/history")).await.expect(StatusCode::OK);
    assert_eq!(history["versions"].as_array().unwrap().len(), 3);
    // Deleted and contributed anew, it is there again.
    ada.delete(&format!("{UNITS}/kp:sop:s1")).await.expect(StatusCode::OK);
    get(&ada, "kp:sop:s1", &[]).await.expect(StatusCode::NOT_FOUND);
    ada.post(UNITS, sop()).await.expect(StatusCode::CREATED);
    assert_eq!(without_told(get(&ada, "kp:sop:s1", &[]).await.expect(StatusCode::OK)), sop());
    assert_eq!(ada.post(UNITS, sop()).await.status, StatusCode::OK);
    // A record that was born elsewhere is a unit too: whole, and under an id that leads back.
    for (types, kind) in [(json!(["tool"]), "Pattern"), (json!(["plan"]), "SOP")] {
        let body = json!({"task": "t", "content": "one\\ntwo", "types": types});
        let id = ada.post("/api/knowledge", body).await.expect(StatusCode::CREATED)["id"].as_str().unwrap().to_owned();
        let unit = get(&ada, &format!("kp:{}:{id}", kind.to_lowercase()), &[]).await.expect(StatusCode::OK);
        assert_eq!(whole(&unit)["@type"], kind);
        let long = get(&ada, &format!("kp:{}:{id}", kind.to_lowercase()), &[("kp-schema-version", "v1")])
            .await
            .expect(StatusCode::OK);
        assert!(["ToolCallPattern", "ExpertSOP"].contains(&whole(&long)["@type"].as_str().unwrap()));
        let gone = ada.delete(&format!("{UNITS}/kp:{}:{id}", kind.to_lowercase())).await.expect(StatusCode::OK);
        assert_eq!((&gone["deleted"], &gone["deleted_by"]), (&json!(true), &json!("user:ada")));
        ada.get(&format!("/api/knowledge/{id}")).await.refused(404, "knowledge_not_found");
    }
}

#[tokio::test]
async fn the_daemon_negotiates_versions_types_and_faults_of_units() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    // The seed names three members; what is left out is filled in.
    let short = json!({"@context": CONTEXT, "@type": "Trace", "id": "kp:trace:s", "note": "kept"});
    let made = ada.post(UNITS, short).await.expect(StatusCode::CREATED);
    assert_eq!(
        (&whole(&made["data"]["unit"])["@type"], &made["data"]["unit"]["note"]),
        (&json!("Trace"), &json!("kept"))
    );
    let id = "kp:trace:s";
    for (version, status, served) in [
        ("1.0.0", 200, "1.0.0"),
        ("1.2.0", 200, "1.1.0"),
        ("v1", 200, "1.1.0"),
        ("1", 200, "1.1.0"),
        ("3.0.0", 406, ""),
        ("newest", 400, ""),
    ] {
        let answer = get(&ada, id, &[("kp-schema-version", version)]).await;
        assert_eq!(answer.status.as_u16(), status, "{version}: {}", answer.body);
        match status {
            200 => assert_eq!(answer.headers["kp-schema-version"], served),
            406 => assert_eq!(
                (&answer.body["code"], &answer.body["supported"]),
                (&json!("version_not_acceptable"), &json!(["1.0.0", "1.1.0"]))
            ),
            _ => assert_eq!(answer.body["code"], "invalid_schema_version"),
        }
        assert_eq!(ada.send(Method::GET, UNITS, &[("kp-schema-version", version)], None).await.status.as_u16(), status);
    }
    for (accept, status, kind) in [
        ("application/ld+json", 200, "application/ld+json"),
        ("*/*", 200, "application/ld+json"),
        ("application/json", 200, "application/json"),
        ("text/html", 406, "application/json"),
    ] {
        let answer = get(&ada, id, &[("accept", accept)]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.headers["content-type"].to_str().unwrap()),
            (status, kind),
            "{accept}"
        );
        if kind == "application/json" && status == 200 {
            assert_eq!(
                (&answer.body["data"]["id"], &answer.body["data"]["visibility"]),
                (&json!(id), &json!("private"))
            );
        }
    }
    for (member, value, path) in [
        ("@type", json!("Song"), "@type"),
        ("@context", json!("https://example.com"), "@context"),
        ("id", json!("kp:sop:x"), "id"),
        ("steps", json!([]), "steps"),
        ("outcome", json!({"result_summary": "x", "confidence": 2}), "outcome.confidence"),
        ("metadata", json!({}), "metadata"),
    ] {
        let mut unit = trace();
        unit[member] = value;
        let refused = ada.post(UNITS, unit).await.expect(StatusCode::BAD_REQUEST);
        assert_eq!(
            (&refused["error"], &refused["issues"][0]["path"]),
            (&json!("Invalid KnowledgeUnit"), &json!(path)),
            "{refused}"
        );
    }
    for body in ["[]", "{", "7"] {
        let answer = ada.raw(UNITS, body).await;
        assert_eq!((answer.status, &answer.body["code"]), (StatusCode::BAD_REQUEST, &json!("malformed_json")));
    }
    let text = ada.text(UNITS, "x".into()).await;
    assert_eq!(text.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let migrate = async |target: &str| {
        ada.post(&format!("{UNITS}/migrate"), json!({"document": trace(), "targetVersion": target})).await
    };
    assert_eq!(migrate("1.0.0").await.expect(StatusCode::OK), trace());
    assert_eq!(migrate("3.0.0").await.expect(StatusCode::NOT_ACCEPTABLE)["code"], "version_not_acceptable");
}

#[tokio::test]
async fn a_unit_is_visible_as_it_states_and_is_validated_by_others() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    let bob = daemon.member("user:bob", &["org:acme"]).await;
    let eve = daemon.member("user:eve", &[]).await;
    for unit in [trace(), pattern(), sop()] {
        ada.post(UNITS, unit).await.expect(StatusCode::CREATED);
    }
    let sees = async |client: &Client| {
        let listed = client.get(UNITS).await.expect(StatusCode::OK);
        let mut ids: Vec<String> = Vec::new();
        for unit in listed["data"].as_array().unwrap() {
            whole(&unit["unit"]);
            ids.push(unit["id"].as_str().unwrap().to_owned());
        }
        ids.sort();
        assert_eq!(listed["total"], ids.len());
        ids
    };
    let all = ["kp:pattern:p1", "kp:sop:s1", "kp:trace:a1b2c3d4"];
    assert_eq!(sees(&ada).await, all);
    assert_eq!(sees(&bob).await, all[1..]);
    assert_eq!(sees(&eve).await, all[2..]);
    assert_eq!(get(&eve, all[1], &[]).await.expect(StatusCode::NOT_FOUND)["code"], "knowledge_not_found");
    assert_eq!(eve.delete(&format!("{UNITS}/{}", all[1])).await.status, StatusCode::NOT_FOUND);
    assert_eq!(eve.delete(&format!("{UNITS}/{}", all[2])).await.status, StatusCode::FORBIDDEN);
    // An id that is somebody else's is taken, seen or not.
    for unit in [trace(), pattern()] {
        let mut other = unit;
        other["x"] = "mine".into();
        assert_eq!(eve.post(UNITS, other).await.status, StatusCode::CONFLICT);
    }
    // Profiles are their owners'.
    let profile = json!({"task": "coffee", "content": "Black.", "types": ["user_profile"], "scopes": ["public"]});
    ada.post("/api/knowledge", profile).await.expect(StatusCode::CREATED);
    assert_eq!(sees(&eve).await, all[2..]);
    // Whoever sees it says once whether it holds.
    let path = format!("{UNITS}/{}/validate", all[2]);
    for _ in 0..2 {
        bob.post(&path, json!({"valid": true, "feedback": "It does."})).await.expect(StatusCode::OK);
    }
    eve.post(&path, json!({"valid": false})).await.expect(StatusCode::OK);
    assert_eq!(ada.post(&path, json!({"valid": true})).await.status, StatusCode::FORBIDDEN);
    let told = get(&ada, all[2], &[]).await.expect(StatusCode::OK);
    assert_eq!(told["metadata"]["validated_by"], json!(["kp:validator:user:bob"]));
    assert_eq!(told["metadata"]["feedback"], json!({"helpful": 1, "harmful": 1}));
    // ((4 − 1) + 1) / (4 + 1 + 2)
    assert!((whole(&told)["metadata"]["quality_score"].as_f64().unwrap() - 4.0 / 7.0).abs() < 1e-9);
    // By types of either vocabulary, by a question, by domain and quality, in pages.
    let ids = async |query: &str| {
        let found = ada.get(&format!("{UNITS}?{query}")).await.expect(StatusCode::OK);
        let ids: Vec<String> =
            found["data"].as_array().unwrap().iter().map(|unit| unit["id"].as_str().unwrap().to_owned()).collect();
        (ids, found["total"].as_u64().unwrap())
    };
    assert_eq!(ids("types=trace,ExpertSOP").await.1, 2);
    assert_eq!(ids("q=harbour").await.0, [all[2]]);
    assert_eq!(ids("domain=sailing&min_quality=0.7").await.1, 2);
    let (page, total) = ids("limit=1&offset=1&domain=sailing").await;
    assert_eq!((page.len(), total), (1, 3));
    assert_eq!(ada.get(&format!("{UNITS}?types=song")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_skill_comes_in_and_goes_out_as_the_file_it_is() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, bob) = (daemon.member("user:ada", &[]).await, daemon.member("user:bob", &[]).await);
    let text = "---\nname: harbour\ndescription: How the harbour is entered\ntags: [sea, tide]\nallowed-tools: [radio]\nkp:\n  domain: sailing\n  visibility: network\n---\n# Enter\n\nHail on channel 9.\n";
    let made = ada.post("/v1/skills", json!({"skill_md_content": text})).await.expect(StatusCode::CREATED);
    assert_eq!(made["id"], "kp:skill:harbour:1.0.0");
    ada.post("/v1/skills", json!({"skill_md_content": text})).await.expect(StatusCode::OK);
    let taken = bob.post("/v1/skills", json!({"skill_md_content": text})).await.expect(StatusCode::CONFLICT);
    assert_eq!(taken["code"], "conflict");
    let one = bob.get("/v1/skills/kp:skill:harbour:1.0.0").await.expect(StatusCode::OK);
    assert_eq!((&one["data"]["tags"], &one["data"]["allowed-tools"]), (&json!(["sea", "tide"]), &json!(["radio"])));
    assert_eq!(one["data"]["content"], "# Enter\n\nHail on channel 9.");
    // What goes out comes in as the same.
    let out = one["data"]["skill_md_content"].as_str().unwrap();
    let again = ada.post("/v1/skills", json!({"skill_md_content": out})).await.expect(StatusCode::OK);
    assert_eq!(again["data"]["record_id"], made["data"]["record_id"], "{out}");
    let file = [("accept", "text/markdown")];
    let answer = bob.send(Method::GET, "/v1/skills/kp:skill:harbour:1.0.0", &file, None).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "text/markdown; charset=utf-8");
    for (query, total) in [("q=harbour", 1), ("domain=sailing&tags=sea", 1), ("tags=land", 0), ("min_quality=0.9", 0)] {
        let found = bob.get(&format!("/v1/skills?{query}")).await.expect(StatusCode::OK);
        assert_eq!(found["total"], total, "{query}: {found}");
    }
    // It is a record like any other, and what is hidden in one is told or refused.
    let records = bob.get("/api/knowledge/search?q=harbour").await.expect(StatusCode::OK);
    assert_eq!(records["results"][0]["id"], made["data"]["record_id"], "{records}");
    let hidden = text.replace("Hail", "<!-- obey -->Hail").replace("harbour\n", "quay\n");
    let told = ada.post("/v1/skills", json!({"skill_md_content": hidden})).await.expect(StatusCode::CREATED);
    assert!(
        told["warnings"][0].as_str().unwrap().contains("comments") && !told["data"].to_string().contains("obey"),
        "{told}"
    );
    for bad in ["no head", "---\nname: a\ndescription: b\n---\nin\u{200b}visible\n"] {
        let refused = ada.post("/v1/skills", json!({"skill_md_content": bad})).await.expect(StatusCode::BAD_REQUEST);
        assert_eq!(refused["issues"][0]["path"], "skill_md_content", "{refused}");
    }
}

#[tokio::test]
async fn a_deprecated_major_is_served_for_a_year_and_then_gone() {
    // The clock of a test begins with 2026.
    let second = Major {
        released: "2026-06-01T00:00:00Z".parse().unwrap(),
        versions: vec![SchemaVersion(2, 0, 0)],
        added: Vec::new(),
        from_before: Some(|mut document| {
            document["@context"] = "https://openknowledgepulse.org/schema/v2".into();
            document["work"] = document["steps"].take();
            document
        }),
    };
    let third = Major {
        released: "2027-01-01T00:00:00Z".parse().unwrap(),
        versions: vec![SchemaVersion(3, 0, 0)],
        added: Vec::new(),
        from_before: Some(|mut document| {
            document["@context"] = "https://openknowledgepulse.org/schema/v3".into();
            document["works"] = json!([document["work"].take()]);
            document
        }),
    };
    let daemon = TestDaemon::builder()
        .schemas(Schemas::default().with_major(2, second).with_major(3, third))
        .start(honest)
        .await;
    let op = &daemon.operator;
    let id = op.post(UNITS, trace()).await.expect(StatusCode::CREATED)["id"].as_str().unwrap().to_owned();
    let ask = async |version: &str| {
        let headers = [("kp-schema-version", version)];
        op.send(Method::GET, &format!("{UNITS}/{id}"), &headers, None).await
    };
    let header = |answer: &Answer, name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    const DAY_MS: i64 = 86_400_000;
    let answer = ask("1.0.0").await;
    assert_eq!((answer.status, header(&answer, "kp-deprecated")), (StatusCode::OK, None));
    daemon.clock.advance_ms(200 * DAY_MS);
    let answer = ask("1.0.0").await;
    assert_eq!((answer.status, header(&answer, "kp-deprecated")), (StatusCode::OK, Some("true".into())));
    assert_eq!(header(&answer, "sunset").unwrap(), "Tue, 01 Jun 2027 00:00:00 GMT");
    assert!(header(&answer, "link").unwrap().contains("successor-version"));
    // What was contributed as a first version is read as a second and a third, by one step each.
    let second = ask("2.0.0").await.expect(StatusCode::OK);
    assert!(second["work"].is_array() && second["@context"].as_str().unwrap().ends_with("v2"), "{second}");
    daemon.clock.advance_ms(400 * DAY_MS);
    let gone = ask("1.0.0").await.expect(StatusCode::GONE);
    assert_eq!((&gone["code"], &gone["successor"]), (&json!("version_gone"), &json!("v2")), "{gone}");
    let third = ask("3.0.0").await.expect(StatusCode::OK);
    assert!(third["works"][0].is_array() && third["@context"].as_str().unwrap().ends_with("v3"), "{third}");
    let none = ask("4.0.0").await.expect(StatusCode::NOT_ACCEPTABLE);
    assert_eq!(none["supported"], json!(["1.0.0", "1.1.0", "2.0.0", "3.0.0"]), "{none}");
    let migrated = json!({"document": trace(), "targetVersion": "3.0.0"});
    let migrated = op.post(&format!("{UNITS}/migrate"), migrated).await;
    assert!(migrated.body.to_string().contains("works"), "{}", migrated.body);
}

#[tokio::test]
async fn a_unit_posted_back_changes_neither_record_nor_visibility() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme", "team:red"]).await;
    let cy = daemon.member("user:cy", &["org:acme"]).await;
    let record = json!({
        "id": "knowledge-team",
        "task": "Entering Faro",
        "content": "Wait for the flood.",
        "types": ["strategy"],
        "scopes": ["team:red"],
    });
    ada.post("/api/knowledge", record).await.expect(StatusCode::CREATED);
    ada.post(UNITS, json!({"@context": CONTEXT, "@type": "Pattern", "id": "kp:pattern:bar", "name": "Slack"}))
        .await
        .expect(StatusCode::CREATED);
    let all = async || ada.get("/api/knowledge").await.expect(StatusCode::OK);
    let before = all().await;
    for id in ["kp:pattern:knowledge-team", "kp:pattern:bar"] {
        let told = get(&ada, id, &[]).await.expect(StatusCode::OK);
        ada.post(UNITS, told).await.expect(StatusCode::OK);
    }
    // Nor does a short one, whose time is not said twice.
    ada.post(UNITS, json!({"@context": CONTEXT, "@type": "Pattern", "id": "kp:pattern:bar", "name": "Slack"}))
        .await
        .expect(StatusCode::OK);
    let units = ada.get_text("/api/knowledge/export?format=units").await;
    let taken = ada.text("/api/knowledge/import?format=units", units).await.expect(StatusCode::OK);
    assert_eq!(taken["unchanged"], 2, "{taken}");
    assert_eq!(all().await, before);
    assert_eq!(get(&cy, "kp:pattern:knowledge-team", &[]).await.status, StatusCode::NOT_FOUND);
    // An operator who shows it to fewer leaves it its owner's.
    let mut hidden = get(&ada, "kp:pattern:bar", &[]).await.expect(StatusCode::OK);
    hidden["metadata"]["visibility"] = "network".into();
    ada.post(UNITS, hidden.clone()).await.expect(StatusCode::OK);
    hidden["metadata"]["visibility"] = "private".into();
    daemon.operator.post(UNITS, hidden).await.expect(StatusCode::OK);
    let bar = ada.get("/api/knowledge?limit=1").await.expect(StatusCode::OK)["results"][0].clone();
    assert_eq!((&bar["scopes"], &bar["owner"]), (&json!(["user:ada"]), &json!("user:ada")), "{bar}");
    // A long one is told whole.
    let mut long = pattern();
    long["description"] = "Before any bar ".repeat(200).into();
    ada.post(UNITS, long.clone()).await.expect(StatusCode::CREATED);
    let told = get(&ada, "kp:pattern:p1", &[]).await.expect(StatusCode::OK);
    assert_eq!((&told["description"], &told["tool_sequence"]), (&long["description"], &long["tool_sequence"]));
}

#[tokio::test]
async fn no_client_takes_over_the_unit_id_of_another() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, bob) = (daemon.member("user:ada", &[]).await, daemon.member("user:bob", &[]).await);
    let first =
        json!({"id": "knowledge-older", "task": "older", "content": "Ada's.", "types": ["tool"], "scopes": ["public"]});
    ada.post("/api/knowledge", first).await.expect(StatusCode::CREATED);
    bob.post(UNITS, trace()).await.expect(StatusCode::CREATED);
    let forged = r#"UPDATE ?k SET ATTRIBUTES { kp_id: "kp:trace:a1b2c3d4" } WHERE { ?k {type: "Knowledge", name: "knowledge-older"} }"#;
    crate::knowledge::records::kip(&ada, forged).await;
    let told = get(&bob, "kp:trace:a1b2c3d4", &[]).await.expect(StatusCode::OK);
    assert_eq!(told["task"]["objective"], "entering the harbour");
    let mut more = trace();
    more["x-unknown"] = 2.into();
    bob.post(UNITS, more).await.expect(StatusCode::OK);
    // Deleted, the id is free; what is rolled back then does not take it again.
    bob.delete(&format!("{UNITS}/kp:trace:a1b2c3d4")).await;
    ada.post(UNITS, trace()).await.expect(StatusCode::CREATED);
    assert_eq!(
        get(&bob, "kp:trace:a1b2c3d4", &[]).await.expect(StatusCode::OK)["metadata"]["record_id"],
        get(&ada, "kp:trace:a1b2c3d4", &[]).await.expect(StatusCode::OK)["metadata"]["record_id"]
    );
    assert_eq!(bob.delete(&format!("{UNITS}/kp:trace:a1b2c3d4")).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn everybody_has_one_word_and_refusals_have_the_protocols_shape() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let validators: Vec<Client> = futures::future::join_all((0..8).map(|at| {
        let daemon = &daemon;
        async move { daemon.member(&format!("user:v{at}"), &[]).await }
    }))
    .await;
    ada.post(UNITS, trace()).await.expect(StatusCode::CREATED);
    let path = &format!("{UNITS}/kp:trace:a1b2c3d4/validate");
    futures::future::join_all(validators.iter().map(|one| one.post(path, json!({"valid": true})))).await;
    let told = async || get(&ada, "kp:trace:a1b2c3d4", &[]).await.expect(StatusCode::OK)["metadata"].clone();
    assert_eq!(told().await["validated_by"].as_array().unwrap().len(), 8);
    // Who finds otherwise later is counted for that alone, and back.
    let answer = validators[0].post(path, json!({"valid": false})).await.expect(StatusCode::OK);
    assert_eq!((&answer["data"]["validated"], &answer["data"]["valid"]), (&json!(true), &json!(false)));
    let now = told().await;
    assert_eq!(
        (&now["feedback"], now["validated_by"].as_array().unwrap().len()),
        (&json!({"helpful": 7, "harmful": 1}), 7)
    );
    validators[0].post(path, json!({"valid": true})).await.expect(StatusCode::OK);
    assert_eq!(told().await["feedback"], json!({"helpful": 8, "harmful": 0}));
    // Who is in no org is told what that comes to.
    let said = ada.post(UNITS, sop()).await.expect(StatusCode::CREATED);
    assert!(said["warnings"][0].as_str().unwrap().contains("in no org"), "{said}");
    for (method, path, body) in [
        (Method::GET, "/v1/knowledge?limit=many", None),
        (Method::GET, "/v1/skills?offset=-1", None),
        (Method::POST, "/v1/skills", Some(json!({"skill": 1}))),
        (Method::PUT, "/v1/knowledge/kp:trace:x", Some(json!({}))),
        (Method::GET, "/v1/knowledge/kp:trace:none", None),
    ] {
        let answer = ada.send(method, path, &[], body).await;
        assert!(
            answer.body["error"].is_string() && answer.body["code"].is_string() && answer.body.get("type").is_none(),
            "{path}: {}",
            answer.body
        );
    }
    // A skill goes by its own id.
    ada.post("/v1/skills", json!({"skill_md_content": "---\nname: s\ndescription: d\n---\nGo.\n"}))
        .await
        .expect(StatusCode::CREATED);
    assert_eq!(ada.delete("/v1/skills/kp:skill:s:1.0.0").await.expect(StatusCode::OK)["deleted"], true);
    assert_eq!(ada.get("/v1/skills/kp:skill:s:1.0.0").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn contradictory_validations_of_one_client_do_not_add_up() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, bob) = (daemon.member("user:ada", &[]).await, daemon.member("user:bob", &[]).await);
    let unit = json!({"@context": "https://openknowledgepulse.org/schema/v1", "@type": "Pattern", "id": "kp:pattern:bar",
                      "name": "Cross at slack", "description": "Any bar", "metadata": {"visibility": "network"}});
    ada.post(UNITS, unit.clone()).await.expect(StatusCode::CREATED);
    let listed = ada.get("/api/knowledge?limit=1").await.expect(StatusCode::OK);
    let first = listed["results"][0]["id"].as_str().unwrap().to_owned();
    let mut told = Vec::new();
    for valid in [true, false, true, false] {
        bob.post(&format!("{UNITS}/kp:pattern:bar/validate"), json!({"valid": valid})).await.expect(StatusCode::OK);
        let listed = ada.get("/api/knowledge?limit=1").await.expect(StatusCode::OK);
        let confidence = listed["results"][0]["eval"]["confidence"].as_f64().unwrap();
        told.push((confidence * 1e6).round() / 1e6);
    }
    assert_eq!(told, [0.55, 0.4, 0.55, 0.4]);
    // Somebody else's that he sees is there as it is, and another under its id is refused.
    let mut other = unit.clone();
    other["description"] = "Another".into();
    for (unit, unchanged) in [(&unit, 1_u64), (&other, 0)] {
        let done =
            bob.text("/api/knowledge/import?format=units", json!([unit]).to_string()).await.expect(StatusCode::OK);
        assert_eq!((&done["unchanged"], &done["refused"]), (&json!(unchanged), &json!(1 - unchanged)), "{done}");
    }
    // What was deleted is brought back by no import, of units either.
    ada.delete(&format!("{UNITS}/kp:pattern:bar")).await;
    for more in ["&dry_run=true", ""] {
        let path = format!("/api/knowledge/import?format=units{more}");
        let done = ada.text(&path, json!([unit]).to_string()).await.expect(StatusCode::OK);
        assert_eq!((&done["imported"], &done["refused"]), (&json!(0), &json!(1)), "{done}");
    }
    // Contributed anew it is another record; the one before is not brought back beside it.
    let before = json!({"version": 1});
    let known = bob.get("/api/knowledge?limit=1").await.expect(StatusCode::OK);
    assert_eq!(known["count"], 0, "{known}");
    let anew = ada.post(UNITS, unit).await.expect(StatusCode::CREATED);
    let found = ada.get("/api/knowledge?limit=10").await.expect(StatusCode::OK);
    assert_eq!(found["results"].as_array().unwrap().len(), 1, "{anew}");
    let path = format!("/api/knowledge/{first}/rollback");
    ada.post(&path, before.clone()).await.refused(409, "conflict");
    ada.delete(&format!("{UNITS}/kp:pattern:bar")).await;
    ada.post(&path, before).await.expect(StatusCode::OK);
    ada.get(&format!("{UNITS}/kp:pattern:bar")).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_skill_is_found_by_its_name() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let text = "---\nname: moor-up\ndescription: How a boat is tied\n---\nUse two lines.\n";
    op.post("/v1/skills", json!({"skill_md_content": text})).await.expect(StatusCode::CREATED);
    for asked in ["moor-up", "moor", "tied", "lines"] {
        let found = op.get(&format!("/v1/skills?q={asked}")).await.expect(StatusCode::OK);
        assert_eq!(found["total"], 1, "{asked}: {found}");
    }
}

#[tokio::test]
async fn a_unit_or_skill_keeps_the_record_members_it_does_not_name() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, op) = (daemon.member("user:ada", &[]).await, &daemon.operator);
    let record = json!({"id": "bar", "task": "cross the bar", "content": "At slack.", "types": ["definition", "usecase"],
                        "tags": {"domain": "sailing", "category": "harbour"}, "scopes": ["public"]});
    ada.post("/api/knowledge", record).await.expect(StatusCode::CREATED);
    let listed = ada.get(&format!("{UNITS}?limit=1")).await.expect(StatusCode::OK);
    let mut unit = listed["data"][0].clone();
    let id = unit["id"].as_str().unwrap().to_owned();
    unit["description"] = "At slack water.".into();
    unit["metadata"].as_object_mut().unwrap().remove("visibility");
    ada.post(UNITS, unit.clone()).await.expect(StatusCode::OK);
    let known = ada.get("/api/knowledge/bar").await.expect(StatusCode::OK);
    assert_eq!((&known["types"], &known["scopes"]), (&json!(["definition", "usecase"]), &json!(["public"])), "{known}");
    assert_eq!(known["tags"], json!({"domain": "sailing", "category": "harbour"}), "{known}");
    assert!(known["task"].as_str().unwrap().contains("slack water"), "{known}");
    let version = known["version"].clone();
    // The same in another order is the same.
    let turned: Vec<(String, Value)> = unit.as_object().unwrap().clone().into_iter().rev().collect();
    ada.post(UNITS, Value::Object(turned.into_iter().collect())).await.expect(StatusCode::OK);
    assert_eq!(ada.get("/api/knowledge/bar").await.expect(StatusCode::OK)["version"], version, "{id}");
    // Of a skill the same; and an operator who makes it private leaves it its owner's.
    let skill = "---\nname: moor\ndescription: How a boat is tied\n---\nUse two lines.\n";
    let sent = |visibility: Option<&str>| json!({"skill_md_content": skill, "visibility": visibility});
    ada.post("/v1/skills", sent(Some("network"))).await.expect(StatusCode::CREATED);
    let scopes = async || {
        let all = ada.get("/api/knowledge?limit=10").await.expect(StatusCode::OK);
        let mut skills = all["results"].as_array().unwrap().iter().filter(|record| record["id"] != "bar");
        skills.next().unwrap()["scopes"].clone()
    };
    let unsaid = json!({"skill_md_content": skill});
    ada.post("/v1/skills", unsaid).await.expect(StatusCode::OK);
    assert_eq!(scopes().await, json!(["public"]));
    op.post("/v1/skills", sent(Some("private"))).await.expect(StatusCode::OK);
    assert_eq!(scopes().await, json!(["user:ada"]));
}

#[tokio::test]
async fn a_skill_is_public_by_default_and_states_its_schema_version() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, bob) = (daemon.member("user:ada", &[]).await, daemon.member("user:bob", &[]).await);
    let file = "---\nname: moor\ndescription: Moors a boat.\n---\nUse two lines.\n";
    ada.post("/v1/skills", json!({"skill_md_content": file})).await.expect(StatusCode::CREATED);
    let listed = bob.get("/v1/skills").await;
    assert!(listed.headers.contains_key("kp-schema-version"), "{:?}", listed.headers);
    assert_eq!(listed.body["data"][0]["name"], "moor", "{}", listed.body);
    assert!(bob.get("/v1/skills/none").await.headers.contains_key("kp-schema-version"));
}

#[tokio::test]
async fn reputation_and_providers_are_read_by_http_as_by_mcp() {
    let daemon = TestDaemon::start(honest).await;
    let bob = daemon.member("user:bob", &[]).await;
    bob.post(UNITS, trace()).await.expect(StatusCode::CREATED);
    let reputation = bob.get("/v1/reputation/user:bob").await.expect(StatusCode::OK);
    assert_eq!(reputation["data"]["contributions"], 1, "{reputation}");
    let providers = bob.get("/v1/providers").await.expect(StatusCode::OK);
    assert!(providers["data"].is_array(), "{providers}");
}
