//! Records out and in (MISSION "One memory"): what is written down comes in again as it was, item by item.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use crate::knowledge::records::kip;

const RECORDS: &str = "/api/knowledge";

/// Records whose texts try what a format might trip over.
fn samples() -> Vec<Value> {
    vec![
        json!({
            "task": "Use channel 9",
            "content": "---\nid: 1\n---\n# no heading\n\n\\---\nend",
            "types": ["strategy"],
            "tags": {"domain": "sailing"},
            "mood": {"of": "day"},
        }),
        json!({
            "task": "two\nlines",
            "content": "  spaced  \n\n",
            "types": ["definition", "tool"],
            "scopes": ["public"],
            "score": 5,
        }),
        json!({
            "task": "偏好",
            "content": "我喜欢喝茶",
            "types": ["user_profile"],
            "tags": {"category": "preference"},
            "message_id": "m1",
        }),
    ]
}

async fn export(client: &Client, format: &str) -> String {
    client.get_text(&format!("{RECORDS}/export?format={format}")).await
}

async fn import(client: &Client, format: &str, text: &str, more: &str) -> Value {
    let path = format!("{RECORDS}/import?format={format}{more}");
    client.text(&path, text.to_owned()).await.expect(StatusCode::OK)
}

/// What of records must come in as it went out.
async fn told(client: &Client) -> Vec<Value> {
    let listed = client.get(&format!("{RECORDS}?limit=100")).await.expect(StatusCode::OK);
    let mut told: Vec<Value> = listed["results"].as_array().unwrap().clone();
    for record in &mut told {
        let record = record.as_object_mut().unwrap();
        record.retain(|key, _| !["created_at", "updated_at", "version"].contains(&key.as_str()));
    }
    told.sort_by_key(|record| record["id"].as_str().unwrap().to_owned());
    told
}

#[tokio::test]
async fn what_goes_out_comes_in_again_as_it_was_and_twice_is_once() {
    let from = TestDaemon::start(honest).await;
    let ada = from.member("user:ada", &[]).await;
    for sample in samples() {
        ada.post(RECORDS, sample).await.expect(StatusCode::CREATED);
    }
    let before = told(&ada).await;
    for format in ["jsonl", "tree", "markdown"] {
        let text = export(&ada, format).await;
        let to = TestDaemon::start(honest).await;
        let hers = to.member("user:ada", &[]).await;
        let would = import(&hers, format, &text, "&dry_run=true").await;
        assert_eq!((&would["imported"], &would["refused"]), (&json!(3), &json!(0)), "{format}: {would}");
        assert!(told(&hers).await.is_empty(), "{format}");
        let done = import(&hers, format, &text, "").await;
        assert_eq!(done["imported"], 3, "{format}: {done}");
        assert_eq!(told(&hers).await, before, "{format}");
        let again = import(&hers, format, &text, "").await;
        assert_eq!((&again["imported"], &again["unchanged"]), (&json!(0), &json!(3)), "{format}: {again}");
        // What is hers is not taken in as somebody else's.
        let bob = to.member("user:bob", &[]).await;
        let stolen = import(&bob, format, &text, "").await;
        assert_eq!((&stolen["unchanged"], &stolen["refused"]), (&json!(1), &json!(2)), "{format}: {stolen}");
    }
    let units = export(&ada, "units").await;
    let to = TestDaemon::start(honest).await;
    let hers = to.member("user:ada", &[]).await;
    let done = import(&hers, "units", &units, "").await;
    assert_eq!((&done["imported"], &done["refused"]), (&json!(3), &json!(0)), "{done}");
    assert_eq!(import(&hers, "units", &units, "").await["unchanged"], 3);
}

#[tokio::test]
async fn a_body_that_is_no_text_is_refused_as_anything_else_is() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let url = format!("{}{RECORDS}/import?format=jsonl", op.base);
    let sent = reqwest::Client::new().post(url).bearer_auth(&op.token).body(vec![b'{', 0xff]).send().await.unwrap();
    let (status, kind) = (sent.status(), sent.headers()["content-type"].clone());
    let told: Value = serde_json::from_str(&sent.text().await.unwrap()).unwrap();
    assert_eq!((status, &told["code"]), (StatusCode::BAD_REQUEST, &json!("not_text")), "{told}");
    assert_eq!(kind, "application/problem+json");
}

#[tokio::test]
async fn what_is_wrong_with_one_is_told_and_keeps_no_other_out() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let lines = [
        json!({"task": "a", "content": "one", "types": ["plan"]}).to_string(),
        "{".to_owned(),
        json!({"task": "b", "content": "two", "types": ["poem"]}).to_string(),
        json!({"task": "c", "content": "my password is hunter2hunter2", "types": ["plan"]}).to_string(),
    ];
    let done = import(op, "jsonl", &lines.join("\n"), "").await;
    assert_eq!((&done["imported"], &done["refused"]), (&json!(2), &json!(2)), "{done}");
    assert_eq!((&done["errors"][0]["at"], &done["errors"][1]["at"]), (&json!(1), &json!(2)));
    assert!(!done.to_string().contains("hunter2") && !export(op, "jsonl").await.contains("hunter2"), "{done}");
    let again = import(op, "jsonl", &lines.join("\n"), "").await;
    assert_eq!(again["imported"], 0, "{again}");
    for (format, text) in [("poem", "x"), ("tree", "[]"), ("tree", "{"), ("mem0", "{}"), ("letta", "7")] {
        op.text(&format!("{RECORDS}/import?format={format}"), text.to_owned()).await.refused(422, "invalid");
    }
    // What would be refused is told by a dry run, too.
    let eve = daemon.member("user:eve", &[]).await;
    let others = json!({"task": "a", "content": "b", "types": ["plan"], "scopes": ["user:ada"]}).to_string();
    for more in ["&dry_run=true", ""] {
        assert_eq!(import(&eve, "jsonl", &others, more).await["refused"], 1, "{more}");
    }
    op.get(&format!("{RECORDS}/export?format=mem0")).await.refused(422, "invalid");
    let mem0 = json!({"results": [{"id": "1", "memory": "Likes green tea", "user_id": "operator"}]}).to_string();
    assert_eq!(import(op, "mem0", &mem0, "").await["imported"], 1);
    let found = op.get(&format!("{RECORDS}/search?q=green+tea&types=user_profile")).await.expect(StatusCode::OK);
    assert_eq!(found["results"][0]["scopes"], json!(["user:operator"]), "{found}");
}

#[tokio::test]
async fn a_backup_restores_kip_names_units_skills_and_odd_members() {
    let from = TestDaemon::start(honest).await;
    let op = &from.operator;
    let named = r#"UPSERT { CONCEPT ?k { {type: "Knowledge", name: "tides / of Faro"} SET ATTRIBUTES { task: "tides", content: "Four knots." } } }"#;
    kip(op, named).await;
    let unit = json!({"@context": "https://openknowledgepulse.org/schema/v1", "@type": "Pattern", "id": "kp:pattern:bar",
                      "name": "Cross at slack", "description": "Any bar", "metadata": {"visibility": "network"}});
    op.post("/v1/knowledge", unit).await.expect(StatusCode::CREATED);
    let skill =
        "---\nname: cross-the-bar\ndescription: Entering over a bar\nlicense: MIT\n---\nWait for slack water.\n";
    op.post("/v1/skills", json!({"skill_md_content": skill})).await.expect(StatusCode::CREATED);
    let odd = json!({
        "task": "odd",
        "content": "Odd.",
        "types": ["tool"],
        "a name": 1,
        "x\nowner: \"user:bob\"\ny": 2,
        "\"q\": ": 3,
    });
    op.post(RECORDS, odd).await.expect(StatusCode::CREATED);
    let protocol = async |client: &Client| {
        let unit = client.get("/v1/knowledge/kp:pattern:bar").await.expect(StatusCode::OK);
        let skill = client.get("/v1/skills/kp:skill:cross-the-bar:1.0.0").await.expect(StatusCode::OK);
        (unit, skill["data"]["license"].clone(), skill["data"]["content"].clone())
    };
    let (before, others) = (told(op).await, protocol(op).await);
    assert_eq!(before.len(), 4);
    for format in ["jsonl", "tree", "markdown"] {
        let text = export(op, format).await;
        let to = TestDaemon::start(honest).await;
        let done = import(&to.operator, format, &text, "").await;
        assert_eq!((&done["imported"], &done["refused"]), (&json!(4), &json!(0)), "{format}: {done}");
        assert_eq!(told(&to.operator).await, before, "{format}");
        assert_eq!(protocol(&to.operator).await, others, "{format}");
        // Whose a unit's id is it stays, whatever its record is called.
        let bob = to.member("user:bob", &[]).await;
        let mut stolen: Value = json!({"task": "t", "content": "c", "types": ["tool"]});
        stolen["unit"] = others.0.clone();
        assert_eq!(bob.post(RECORDS, stolen).await.refused(409, "conflict")["hint"], Value::Null, "{format}");
    }
}

#[tokio::test]
async fn what_is_refused_is_told_by_its_file_its_place_and_its_id() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let record = |id: &str| json!({"id": id, "task": "t", "content": "c"});
    let tree = json!({"global/tools.json": [record("a"), {"id": "b"}], "global/plans.json": [record("c"), 7]});
    let done = import(op, "tree", &tree.to_string(), "&dry_run=true").await;
    assert_eq!((&done["dry_run"], &done["imported"]), (&json!(true), &json!(2)), "{done}");
    let places: Vec<Value> =
        done["errors"].as_array().unwrap().iter().map(|told| json!([told["file"], told["at"], told["id"]])).collect();
    assert_eq!(places, [json!(["global/tools.json", 1, "b"]), json!(["global/plans.json", 1, null])]);
    // What holds nothing, or more than is taken, is refused before anything is made of it.
    let import_path = |format: &str| format!("{RECORDS}/import?format={format}");
    for (format, text) in [
        ("tree", "{}".to_owned()),
        ("units", "[]".into()),
        ("markdown", "just a text".into()),
        ("jsonl", "{}\n".repeat(10_001)),
        ("units", format!("[{}0]", "0,".repeat(2_000_001))),
        ("tree", format!("{{\"a\":[{}0]}}", "0,".repeat(2_000_001))),
    ] {
        let refused = op.text(&import_path(format), text).await.refused(422, "invalid");
        assert_eq!(refused["path"], "body", "{format}: {refused}");
    }
    // What was deleted is not brought back by the way, and a dry run says the same.
    import(op, "tree", &json!({"global/tools.json": record("a")}).to_string(), "").await;
    op.delete(&format!("{RECORDS}/a")).await;
    for more in ["", "&dry_run=true"] {
        let done = import(op, "tree", &json!({"global/tools.json": record("a")}).to_string(), more).await;
        assert!(done["errors"][0]["error"].as_str().unwrap().contains("rollback"), "{done}");
    }
    assert_eq!(op.get(&format!("{RECORDS}/export?owner=dan")).await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_dry_run_warns_as_the_import_and_a_reimport_links_resources() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let secret =
        json!({"id": "s", "task": "log in", "content": "the password: hunter2hunter2 is old", "types": ["tool"]});
    let needy = json!({
        "id": "n",
        "task": "run it",
        "content": "Run the script.",
        "types": ["tool"],
        "resource_ids": ["code/run.py"],
    });
    let lines = format!("{secret}\n{needy}");
    let would = import(op, "jsonl", &lines, "&dry_run=true").await;
    let warnings = would["warnings"].to_string();
    assert!(warnings.contains("password") && warnings.contains("link"), "{would}");
    assert!(told(op).await.is_empty());
    let done = import(op, "jsonl", &lines, "").await;
    assert_eq!((&done["imported"], &done["warnings"]), (&json!(2), &would["warnings"]), "{done}");
    let script = json!({"id": "code/run.py", "title": "a script", "body": "print(1)", "content_type": "code"});
    op.post("/api/resource", script).await.expect(StatusCode::CREATED);
    // The same again: what was left out is no other text, and what is there by now is linked.
    let again = import(op, "jsonl", &lines, "").await;
    assert_eq!((&again["unchanged"], &again["refused"]), (&json!(2), &json!(0)), "{again}");
    op.delete("/api/resource/code/run.py").await.refused(409, "conflict");
    // A record that is deleted needs nothing any more.
    op.delete(&format!("{RECORDS}/n")).await.expect(StatusCode::NO_CONTENT);
    op.delete("/api/resource/code/run.py").await.expect(StatusCode::NO_CONTENT);
    // Another text beside the secret is another text.
    let other = secret.to_string().replace("is old", "is new");
    assert_eq!(import(op, "jsonl", &other, "").await["refused"], 1);
}

#[tokio::test]
async fn attributes_written_by_kip_survive_the_record_api_and_export() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    kip(op, r#"UPSERT { CONCEPT ?k { {type: "Knowledge", name: "tides"} SET ATTRIBUTES { task: "tides", content: "Four knots.", measured: {by: "ada"} } } }"#).await;
    let record = op.get(&format!("{RECORDS}/tides")).await.expect(StatusCode::OK);
    assert_eq!(record["measured"], json!({"by": "ada"}), "{record}");
    let (text, to) = (export(op, "jsonl").await, TestDaemon::start(honest).await);
    import(&to.operator, "jsonl", &text, "").await;
    let there = to.operator.get(&format!("{RECORDS}/tides")).await.expect(StatusCode::OK);
    assert_eq!(there["measured"], json!({"by": "ada"}), "{there}");
}

#[tokio::test]
async fn a_dry_run_reports_the_same_counts_as_the_import() {
    let pattern = |id: &str, text: &str| {
        json!({"@context": "https://openknowledgepulse.org/schema/v1", "@type": "Pattern", "id": id,
               "name": "Cross", "description": text, "metadata": {"visibility": "org"}})
    };
    let units = json!([
        pattern("kp:pattern:a", "password: hunter2hunter2 at the bar"),
        pattern("kp:pattern:a", "another text"),
        pattern("kp:pattern:b", "a bar"),
    ])
    .to_string();
    let line =
        |id: &str, content: &str| json!({"id": id, "task": "t", "content": content, "types": ["tool"]}).to_string();
    let mut labelled: Value = serde_json::from_str(&line("x", "one")).unwrap();
    labelled["tags"] = json!({"domain": "sea"});
    let named = |id: &str| {
        json!({
            "id": id,
            "task": "t",
            "content": "c",
            "types": ["tool"],
            "skill": {"name": "moor", "description": "d"},
        })
    };
    let lines = [line("x", "one"), line("x", "one"), labelled.to_string(), line("x", "two"), line("y", "three")];
    let lines = [lines.join("\n"), named("p").to_string(), named("q").to_string()].join("\n");
    for policy in [nexus::SecretPolicy::Redact, nexus::SecretPolicy::Reject] {
        let config = move |config: &mut runtime::Config| config.knowledge.secrets = policy;
        let daemon = TestDaemon::builder().config(config).start(honest).await;
        let op = &daemon.operator;
        for (format, text) in [("units", &units), ("jsonl", &lines)] {
            let before = told(op).await;
            let would = import(op, format, text, "&dry_run=true").await;
            assert_eq!(told(op).await, before, "{would}");
            let done = import(op, format, text, "").await;
            let places = |told: &Value| -> Vec<Value> {
                told["errors"].as_array().unwrap().iter().map(|error| error["at"].clone()).collect()
            };
            assert_eq!(places(&would), places(&done), "{format} {policy:?}: {would} {done}");
            for member in ["imported", "unchanged", "refused"] {
                assert_eq!(would[member], done[member], "{format} {policy:?}: {would} {done}");
            }
            assert_eq!(
                would["warnings"].to_string().contains("password"),
                done["warnings"].to_string().contains("password")
            );
        }
    }
}

#[tokio::test]
async fn what_was_changed_since_is_overwritten_by_no_import() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    for id in ["a", "b"] {
        let record = json!({"id": id, "task": format!("task {id}"), "content": "as it was", "types": ["tool"]});
        op.post(RECORDS, record).await.expect(StatusCode::CREATED);
    }
    let texts = [("jsonl", export(op, "jsonl").await), ("units", export(op, "units").await)];
    op.put(&format!("{RECORDS}/a"), json!({"content": "as it is"})).await.expect(StatusCode::OK);
    let now = told(op).await;
    for (format, text) in texts {
        for more in ["&dry_run=true", ""] {
            let done = import(op, format, &text, more).await;
            assert_eq!((&done["unchanged"], &done["refused"]), (&json!(1), &json!(1)), "{format}: {done}");
            assert!(done["errors"][0]["error"].as_str().unwrap().ends_with("says something else"), "{done}");
        }
        assert_eq!(told(op).await, now, "{format}");
    }
}

#[tokio::test]
async fn imports_of_the_same_at_once_find_each_others_records_there() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let line = |at: usize| {
        json!({"task": format!("t{at}"), "content": format!("content {at}"), "types": ["tool"]}).to_string()
    };
    let lines = (0..60).map(line).collect::<Vec<_>>().join("\n");
    let done = futures::future::join_all((0..3).map(|_| import(op, "jsonl", &lines, ""))).await;
    let sum = |member: &str| done.iter().map(|done| done[member].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("imported"), sum("unchanged"), sum("refused")), (60, 120, 0), "{done:?}");
    // What is not taken of a record that is there is told.
    let first = json!({"id": "tags", "task": "t", "content": "c", "types": ["tool"], "tags": {"domain": "sea"}});
    let mut other = first.clone();
    other["tags"]["domain"] = "land".into();
    import(op, "jsonl", &first.to_string(), "").await;
    let again = import(op, "jsonl", &other.to_string(), "").await;
    assert!(again["unchanged"] == 1 && again["warnings"].to_string().contains("another tags"), "{again}");
}
