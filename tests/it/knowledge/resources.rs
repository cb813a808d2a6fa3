//! Resources and what is secret of them (MISSION H4): sealed, shown on purpose, and found nowhere else.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use crate::crash::killed::Victim;

const RESOURCES: &str = "/api/resource";
const KIP: &str = "/v1/nexus/commons/kip";

fn account() -> Value {
    json!({
        "id": "credentials/website_a", "title": "某网站测试账号", "body": "使用方法:直接登录即可",
        "secure_body": "账号:user@example.com\n密码:SecurePass123", "content_type": "credential",
        "metadata": {"acquired_at": "2026-03-06T10:00:00Z"},
    })
}

#[tokio::test]
async fn a_resource_reveals_its_secret_only_on_an_explicit_request() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &["org:acme"]).await;
    let bob = daemon.member("user:bob", &["org:acme", "team:keys"]).await;
    let eve = daemon.member("user:eve", &[]).await;
    let mut body = account();
    body["scopes"] = json!(["org:acme"]);
    body["reveal_scopes"] = json!(["team:keys"]);
    let made = ada.post(RESOURCES, body.clone()).await.expect(StatusCode::CREATED);
    assert!(!made.to_string().contains("SecurePass"), "{made}");
    let path = format!("{RESOURCES}/credentials/website_a");
    let shown = bob.get(&path).await.expect(StatusCode::OK);
    assert_eq!(
        (&shown["title"], &shown["content_type"], &shown["has_secure_body"], &shown["secure_body"]),
        (&body["title"], &json!("credential"), &json!(true), &Value::Null)
    );
    assert_eq!((&shown["metadata"], &shown["owner"]), (&body["metadata"], &json!("user:ada")));
    assert_eq!(bob.get(&format!("{RESOURCES}/credentials%2Fwebsite_a")).await.expect(StatusCode::OK), shown);
    // What the owner sealed is shown to him, and to whom it is granted, each time with a reason that is kept.
    let reveal = format!("{path}?reveal=1&why=logging+in");
    ada.get(&format!("{path}?reveal=1")).await.refused(422, "invalid");
    for client in [&ada, &bob] {
        let answer = client.get(&reveal).await;
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.expect(StatusCode::OK)["secure_body"], body["secure_body"]);
    }
    eve.get(&path).await.refused(404, "resource_not_found");
    eve.get(&reveal).await.refused(404, "resource_not_found");
    let told = ada.get(&format!("{path}?reveals=1")).await.expect(StatusCode::OK);
    let by: Vec<(&Value, &Value)> =
        told["reveals"].as_array().unwrap().iter().map(|entry| (&entry["by"], &entry["why"])).collect();
    let why = json!("logging in");
    assert_eq!(by, [(&json!("user:ada"), &why), (&json!("user:bob"), &why)]);
    bob.get(&format!("{path}?reveals=1")).await.refused(403, "forbidden");
    // Only the owner changes it, and what he does not name stays.
    bob.patch(&path, json!({"title": "mine"})).await.refused(403, "forbidden");
    bob.post(RESOURCES, json!({"id": "credentials/website_a", "body": "mine"})).await.refused(403, "forbidden");
    eve.post(RESOURCES, json!({"id": "credentials/website_a", "body": "mine"})).await.refused(409, "conflict");
    ada.patch(&path, json!({"reveal_scopes": [], "title": "renamed"})).await.expect(StatusCode::OK);
    assert_eq!(bob.get(&path).await.body["body"], body["body"]);
    bob.get(&reveal).await.refused(403, "forbidden");
    assert_eq!(ada.get(&reveal).await.body["secure_body"], body["secure_body"]);
    ada.patch(&path, json!({"secure_body": "new-secret-1"})).await.expect(StatusCode::OK);
    assert_eq!(ada.get(&reveal).await.body["secure_body"], "new-secret-1");
    // A key more: what was sealed before opens, under the new key.
    daemon.operator.post("/v1/keys/rotate", json!({})).await.expect(StatusCode::OK);
    let rotated = daemon.operator.post("/v1/keys/rotate", json!({})).await.expect(StatusCode::OK);
    assert!(rotated["key"].as_str().unwrap().starts_with("k3-") && rotated["sealed"] == 1, "{rotated}");
    ada.post("/v1/keys/rotate", json!({})).await.refused(403, "forbidden");
    assert_eq!(ada.get(&reveal).await.body["secure_body"], "new-secret-1");
    // After its time it can be looked at, and not used.
    ada.patch(&path, json!({"metadata": {"expires_at": "2026-01-01T00:00:01Z"}})).await.expect(StatusCode::OK);
    daemon.clock.advance_ms(2_000);
    ada.get(&path).await.expect(StatusCode::OK);
    ada.get(&reveal).await.refused(410, "expired");
    ada.patch(&path, json!({"metadata": {}, "secure_body": null})).await.expect(StatusCode::OK);
    assert_eq!(ada.get(&path).await.body["has_secure_body"], false);
    ada.get(&reveal).await.refused(404, "resource_not_found");
    // What records need is not removed unless that is meant.
    let needs = json!({"task": "t", "content": "c", "types": ["tool"], "resource_ids": ["credentials/website_a"]});
    ada.post("/api/knowledge", needs).await.expect(StatusCode::CREATED);
    ada.delete(&path).await.refused(409, "conflict");
    bob.delete(&format!("{path}?force=1")).await.refused(403, "forbidden");
    assert_eq!(ada.delete(&format!("{path}?force=1")).await.status, StatusCode::NO_CONTENT);
    ada.get(&path).await.refused(404, "resource_not_found");
}

#[tokio::test]
async fn the_daemon_lists_resources_and_explains_invalid_ones() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    for (id, kind) in [("code/a", "code"), ("code/b/c", "code"), ("cookies/a", "cookie"), ("plain", "text")] {
        let mut body = json!({"id": id, "body": id});
        if kind != "text" {
            body["content_type"] = kind.into();
        }
        ada.post(RESOURCES, body).await.expect(StatusCode::CREATED);
    }
    let listed = async |query: &str| {
        let answer = ada.get(&format!("{RESOURCES}?{query}")).await.expect(StatusCode::OK);
        let ids: Vec<String> =
            answer["results"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
        (ids, answer["next_after"].clone())
    };
    assert_eq!(listed("prefix=code/").await.0, ["code/a", "code/b/c"]);
    assert_eq!(listed("content_type=text").await.0, ["plain"]);
    let (first, next) = listed("limit=2").await;
    assert_eq!((first, &next), (vec!["code/a".to_owned(), "code/b/c".to_owned()], &json!("code/b/c")));
    assert_eq!(listed("limit=2&after=code/b/c").await.0, ["cookies/a", "plain"]);
    for (body, says) in [
        (json!({"body": "x"}), "id is missing"),
        (json!({"id": "a//b"}), "id is a path"),
        (json!({"id": "../a"}), "id is a path"),
        (json!({"id": "x".repeat(300)}), "id is"),
        (json!({"id": "x", "secure_body": 7}), "secure_body is a text of 1 to 65536 characters, or null"),
        (json!({"id": "x", "metadata": {"expires_at": "soon"}}), "metadata.expires_at is a time"),
        (json!({"id": "x", "scopes": ["moon"]}), "scopes/0"),
        (json!({"id": "x", "colour": "red"}), "colour is no member of a resource"),
        (json!({"id": "x", "metadata": {"secure_body": "x"}}), "metadata.secure_body stands beside"),
    ] {
        let refused = ada.post(RESOURCES, body).await.refused(422, "invalid");
        assert!(refused["detail"].as_str().unwrap().contains(says), "{refused}");
    }
    // What is wrong with a secret is told without it.
    let long = format!("{}{}", "hunter2-".repeat(10), "x".repeat(70_000));
    let refused = ada.post(RESOURCES, json!({"id": "x", "secure_body": long})).await.refused(422, "invalid");
    assert!(!refused.to_string().contains("hunter2"));
    let refused = ada.post(RESOURCES, json!("hunter2-hunter2")).await.refused(422, "invalid");
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
    ada.post(RESOURCES, json!({"id": "x", "owner": "user:bob"})).await.refused(403, "forbidden");
    ada.patch(&format!("{RESOURCES}/code/a"), json!({"id": "code/z"})).await.refused(422, "invalid");
    ada.patch(&format!("{RESOURCES}/nothing"), json!({"body": "x"})).await.refused(404, "resource_not_found");
    ada.post("/v1/tokens", json!({})).await.refused(403, "forbidden");
}

#[tokio::test]
async fn without_the_key_only_sealed_bodies_are_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ring");
    let configure = {
        let file = file.clone();
        move |config: &mut runtime::Config| config.knowledge.key_file = file.clone()
    };
    let daemon = TestDaemon::builder().config(configure).start(honest).await;
    let op = &daemon.operator;
    op.post(RESOURCES, account()).await.expect(StatusCode::CREATED);
    op.post(RESOURCES, json!({"id": "other", "secure_body": "another"})).await.expect(StatusCode::CREATED);
    let reveal = format!("{RESOURCES}/credentials/website_a?reveal=1&why=test");
    // What tells that something is sealed, and for whom, is not changed around whoever seals, by operators neither.
    for what in [
        r#"SET METADATA { owner: "user:mallory" }"#,
        "SET METADATA { seal: \"x\" }",
        "SET ATTRIBUTES { has_secure_body: false }",
    ] {
        let command = format!(r#"UPDATE ?r {what} WHERE {{ ?r {{type: "Resource", name: "other"}} }}"#);
        let answer = op.post(KIP, json!({"command": command})).await.expect(StatusCode::OK);
        assert_eq!(answer["error"]["code"], "KIP_4003", "{answer}");
    }
    assert_eq!(op.get(&format!("{RESOURCES}/other?reveal=1&why=test")).await.body["secure_body"], "another");
    // A record of the same name that goes takes nothing of it along.
    let eve = daemon.member("user:eve", &[]).await;
    for command in [
        r#"UPSERT { CONCEPT { {type: "Knowledge", name: "other"} SET ATTRIBUTES { task: "t", content: "c" } } }"#,
        r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "other"} }"#,
    ] {
        let answer = eve.post(KIP, json!({"command": command})).await.expect(StatusCode::OK);
        assert_eq!(answer.get("error"), None, "{answer}");
    }
    assert_eq!(op.get(&format!("{RESOURCES}/other?reveal=1&why=test")).await.body["secure_body"], "another");
    // The ring is gone: none is made in its place, since something is sealed.
    std::fs::rename(&file, folder.path().join("kept")).unwrap();
    let daemon = daemon.kill_and_restart().await;
    daemon.operator.get(&reveal).await.refused(423, "sealed");
    assert!(!file.exists());
    std::fs::create_dir(&file).unwrap();
    // Something else is where it was.
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    let refused = op.get(&reveal).await.refused(423, "sealed");
    assert!(refused["hint"].as_str().unwrap().contains("key_file"), "{refused}");
    op.post("/v1/keys/rotate", json!({})).await.refused(423, "sealed");
    op.post(RESOURCES, json!({"id": "new", "secure_body": "x"})).await.refused(423, "sealed");
    op.get(&format!("{RESOURCES}/new")).await.refused(404, "resource_not_found");
    op.get(&format!("{RESOURCES}/credentials/website_a")).await.expect(StatusCode::OK);
    op.post(RESOURCES, json!({"id": "plain", "body": "x"})).await.expect(StatusCode::CREATED);
    op.post("/api/knowledge", json!({"task": "t", "content": "c", "types": ["tool"]}))
        .await
        .expect(StatusCode::CREATED);
    std::fs::remove_dir(&file).unwrap();
    // The ring of another daemon opens nothing, and that is said at the start.
    std::fs::write(&file, format!("k1-other {}\n", "A".repeat(43))).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = daemon.kill_and_restart().await;
    assert!(daemon.daemon.locked.as_ref().is_some_and(|why| why.to_string().contains("is not in the key ring")));
    daemon.operator.get(&reveal).await.refused(423, "sealed");
    // The key is back.
    std::fs::rename(folder.path().join("kept"), &file).unwrap();
    let daemon = daemon.kill_and_restart().await;
    let shown = daemon.operator.get(&reveal).await.expect(StatusCode::OK);
    assert_eq!(shown["secure_body"], account()["secure_body"]);
}

#[tokio::test]
async fn every_interface_redacts_refuses_or_seals_secrets_in_text() {
    let secret = "hunter2-very-Secret9";
    let record = json!({
        "task": "log in", "content": format!("The password: {secret} works."), "types": ["tool"],
        "source": {"name": "mail", "note": format!("token={secret}")}, "tags": {"api_key": secret},
    });
    let upsert = format!(
        r#"UPSERT {{ CONCEPT {{ {{type: "Knowledge", name: "kip"}} SET ATTRIBUTES {{ task: "t", content: "password={secret}" }} }} }}"#
    );
    let journal = async |daemon: &TestDaemon| {
        daemon.operator.get("/v1/nexus/commons/journal?limit=256").await.expect(StatusCode::OK).to_string()
    };
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let saved = op.post("/api/knowledge", record.clone()).await.expect(StatusCode::CREATED);
    assert!(!saved.to_string().contains(secret), "{saved}");
    assert_eq!(saved["knowledge"]["content"], "The password: [REDACTED:password] works.");
    assert!(saved["warnings"].to_string().contains("a password in"), "{saved}");
    let told = op.post(KIP, json!({"command": upsert})).await.expect(StatusCode::OK);
    assert!(told["warnings"].to_string().contains("was left out"), "{told}");
    let id = saved["id"].as_str().unwrap();
    let case = json!({"add_helpful_case": {"outcome": format!("password: {secret}"), "by": "user:boss"}});
    let judged = op.put(&format!("/api/knowledge/{id}"), case).await.expect(StatusCode::OK);
    let told = &judged["knowledge"]["eval"]["helpful_history"][0];
    assert_eq!((&told["by"], &told["outcome"]), (&json!("user:operator"), &json!("password: [REDACTED:password]")));
    // As the value of an attribute that tells it, in a name, in what is written over at once.
    for command in [
        format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Knowledge", name: "flat"}} SET ATTRIBUTES {{ task: "t", content: "c", password: "{secret}" }} }} }}"#
        ),
        r#"UPSERT { CONCEPT { {type: "Knowledge", name: "ghp_abcdefghijklmnopqrstuvwxyz0123456789"} } }"#.to_owned(),
        format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Knowledge", name: "flat"}} SET ATTRIBUTES {{ content: "password: {secret}" }} }} CONCEPT {{ {{type: "Knowledge", name: "flat"}} SET ATTRIBUTES {{ content: "c" }} }} }}"#
        ),
    ] {
        let answer = op.post(KIP, json!({"command": command})).await.expect(StatusCode::OK);
        assert_eq!(answer.get("error").is_some(), command.contains("ghp_"), "{answer}");
    }
    let put = json!({"content": format!("密码:{secret}")});
    op.put(&format!("/api/knowledge/{id}"), put).await.expect(StatusCode::OK);
    // A lifeform's own mind writes there too.
    let (life, _) = daemon.lifeform().await;
    op.post(&format!("/v1/lifeforms/{life}/kip"), json!({"command": upsert.replace("\"kip\"", "\"own\"")}))
        .await
        .expect(StatusCode::OK);
    let all =
        op.post(KIP, json!({"command": r#"FIND(?k) WHERE { ?k {type: "Knowledge"} }"#})).await.expect(StatusCode::OK);
    assert_eq!(all["result"].as_array().unwrap().len(), 4);
    assert!(!all.to_string().contains(secret) && !journal(&daemon).await.contains(secret));
    // Refused, whole, and told without it.
    let reject = |config: &mut runtime::Config| config.knowledge.secrets = nexus::SecretPolicy::Reject;
    let daemon = TestDaemon::builder().config(reject).start(honest).await;
    let refused = daemon.operator.post("/api/knowledge", record.clone()).await.refused(403, "forbidden");
    assert!(!refused.to_string().contains(secret) && refused["detail"].to_string().contains("a password in"));
    let refused = daemon.operator.post(KIP, json!({"command": upsert})).await.expect(StatusCode::OK);
    assert_eq!(refused["error"]["code"], "KIP_4003", "{refused}");
    assert_eq!(daemon.operator.get("/api/knowledge").await.body["count"], 0);
    assert!(!journal(&daemon).await.contains(secret));
    // Sealed, and named in its place.
    let seal = |config: &mut runtime::Config| config.knowledge.secrets = nexus::SecretPolicy::Seal;
    let daemon = TestDaemon::builder().config(seal).start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let saved = ada.post("/api/knowledge", record).await.expect(StatusCode::CREATED);
    let resource = saved["knowledge"]["resource_ids"][0].as_str().unwrap().to_owned();
    assert_eq!(saved["knowledge"]["content"], format!("The password: {{{{secret:{resource}}}}} works."));
    let shown = ada.get(&format!("{RESOURCES}/{resource}?reveal=1&why=test")).await.expect(StatusCode::OK);
    assert_eq!(shown["secure_body"], secret);
    let path = format!("/api/knowledge/{}", saved["id"].as_str().unwrap());
    let put = json!({"content": format!("The new password: {secret}1")});
    let changed = ada.put(&path, put).await.expect(StatusCode::OK);
    let named = changed["knowledge"]["resource_ids"].as_array().unwrap();
    assert!(named.len() == 2 && named[0] == resource.as_str(), "{changed}");
    assert!(!journal(&daemon).await.contains(secret));
    // What is refused, for its name or in a dry run, has nothing sealed for it.
    let sealed = async || daemon.operator.get(&format!("{RESOURCES}?prefix=credentials")).await.expect(StatusCode::OK);
    let before = sealed().await;
    let taken = json!({"id": saved["id"], "task": "t", "content": format!("password: {secret}2"), "types": ["tool"]});
    ada.post("/api/knowledge", taken.clone()).await.refused(409, "conflict");
    let mut new = taken;
    new["id"] = "another".into();
    let would =
        ada.text("/api/knowledge/import?format=jsonl&dry_run=true", new.to_string()).await.expect(StatusCode::OK);
    assert!(would["warnings"].to_string().contains("would be sealed"), "{would}");
    assert_eq!(sealed().await, before);
    // The same again is the same record, though another secret was sealed by another name.
    for count in [1, 0] {
        let done = ada.text("/api/knowledge/import?format=jsonl", new.to_string()).await.expect(StatusCode::OK);
        assert_eq!((&done["imported"], &done["refused"]), (&json!(count), &json!(0)), "{done}");
    }
    // What was sealed for a record alone goes with it for good; what is deleted may come back.
    ada.delete(&path).await.expect(StatusCode::NO_CONTENT);
    ada.get(&format!("{RESOURCES}/{resource}")).await.expect(StatusCode::OK);
    ada.delete(&format!("{path}?purge=1")).await.expect(StatusCode::NO_CONTENT);
    for gone in [resource.as_str(), named[1].as_str().unwrap()] {
        ada.get(&format!("{RESOURCES}/{gone}")).await.refused(404, "resource_not_found");
    }
}

#[tokio::test]
async fn resending_a_unit_or_skill_with_a_secret_changes_nothing() {
    for policy in [nexus::SecretPolicy::Redact, nexus::SecretPolicy::Seal] {
        let config = move |config: &mut runtime::Config| config.knowledge.secrets = policy;
        sent_again(&TestDaemon::builder().config(config).start(honest).await.operator, policy).await;
    }
}

async fn sent_again(op: &Client, policy: nexus::SecretPolicy) {
    let unit = json!({"@context": "https://openknowledgepulse.org/schema/v1", "@type": "Pattern", "id": "kp:pattern:login",
                      "name": "Log in", "description": "use password: hunter2hunter2 there", "metadata": {"visibility": "network"}});
    let skill = "---\nname: log-in\ndescription: Logging in\n---\nThe password: hunter2hunter2 is old.\n";
    let mut versions = Vec::new();
    for _ in 0..3 {
        op.post("/v1/knowledge", unit.clone()).await;
        op.post("/v1/skills", json!({"skill_md_content": skill})).await;
        let all = op.get("/api/knowledge?limit=10").await.expect(StatusCode::OK);
        let told = all["results"].as_array().unwrap().iter().map(|record| record["version"].as_u64().unwrap());
        versions.push(told.collect::<Vec<_>>());
    }
    assert_eq!(versions, [[1, 1]; 3], "{policy:?}");
    // It comes back as it was, but for the secret, which is sealed once for all places.
    let told = op.get("/v1/knowledge/kp:pattern:login").await.expect(StatusCode::OK);
    let description = told["data"]["description"].as_str().or(told["description"].as_str()).unwrap().to_owned();
    let sealed = op.get(RESOURCES).await.expect(StatusCode::OK);
    let count = sealed["resources"].as_array().or(sealed["results"].as_array()).map(Vec::len);
    assert!(description.starts_with("use password: ") && description.ends_with(" there"), "{told}");
    assert_eq!(description.contains("{{secret:"), policy == nexus::SecretPolicy::Seal, "{told}");
    assert_eq!(count, Some(if policy == nexus::SecretPolicy::Seal { 2 } else { 0 }), "{sealed}");
    op.post("/v1/skills", json!({"skill_md_content": skill.replace("old", "new")})).await;
    let skill = op.get("/v1/skills/kp:skill:log-in:1.0.0").await.expect(StatusCode::OK);
    assert!(skill.to_string().contains("is new") && !skill.to_string().contains("hunter2"), "{skill}");
}

/// Everything in a folder in which a marker stands, as it is or encoded.
fn hits(folder: &Path, marker: &str) -> Vec<String> {
    let mut forms: Vec<Vec<u8>> = vec![marker.as_bytes().to_vec(), marker.bytes().rev().collect()];
    forms.push(marker.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
    // Wherever it begins in what is encoded, the letters in its middle are the same.
    for before in 0..3 {
        let encoded = BASE64_STANDARD_NO_PAD.encode([&vec![b' '; before], marker.as_bytes()].concat());
        forms.push(encoded.as_bytes()[4..encoded.len() - 4].to_vec());
    }
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(bytes) = std::fs::read(&path)
            && forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn a_secret_is_found_in_no_file_no_log_and_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let victim = Victim::logging(folder.path(), &log);
    let op: &Client = &victim.client;
    let marker = format!("Zq{}x9", uuid::Uuid::new_v4().simple());
    let mut body = account();
    body["secure_body"] = json!(format!("密码:{marker}"));
    body["scopes"] = json!(["public"]);
    op.post(RESOURCES, body).await.expect(StatusCode::CREATED);
    op.post(RESOURCES, json!({"id": "second", "secure_body": marker})).await.expect(StatusCode::CREATED);
    op.patch(&format!("{RESOURCES}/second"), json!({"secure_body": format!("{marker}{marker}")}))
        .await
        .expect(StatusCode::OK);
    let record =
        json!({"task": "log in", "content": "Use the account.", "types": ["tool"], "resource_ids": ["second"]});
    let id = op.post("/api/knowledge", record).await.expect(StatusCode::CREATED)["id"].as_str().unwrap().to_owned();
    // The same through MCP.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "resource_save",
                      "arguments": {"id": "third", "secure_body": marker}}});
    let accept = [("accept", "application/json, text/event-stream")];
    op.send(Method::POST, "/mcp", &accept, Some(call)).await.expect(StatusCode::OK);
    assert_eq!(op.get(&format!("{RESOURCES}/third")).await.body["has_secure_body"], true);
    let case = json!({
        "add_harmful_case": {"reason": format!("password: {marker}")},
        "evolve_feedback": format!("password: {marker}"),
    });
    op.put(&format!("/api/knowledge/{id}"), case).await.expect(StatusCode::OK);
    // Written where it does not belong, it is left out.
    let misplaced = json!({"task": "log in", "content": format!("password: {marker}"), "types": ["tool"]});
    op.post("/api/knowledge", misplaced).await.expect(StatusCode::CREATED);
    let lifeform = op.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let life = lifeform["id"].as_str().unwrap();
    // Every route that is read, and the ways out by KIP.
    let mut answers = String::new();
    let document = op.get("/openapi.json").await.expect(StatusCode::OK);
    for (path, item) in document["paths"].as_object().unwrap() {
        if item.get("get").is_none() || path.ends_with("/subscribe") || path.ends_with("/events") {
            continue;
        }
        let resource = if path.starts_with(RESOURCES) { "second" } else { life };
        let id = if path.starts_with("/api/knowledge") { &id } else { resource };
        let path = path.replace("{id}", id).replace("{canvas}", "canvas_chat_main");
        let path = path
            .replace("/v1/nexus/".to_owned().as_str(), "/v1/nexus/")
            .replace(&format!("/v1/nexus/{life}"), "/v1/nexus/commons");
        answers += &op.send(Method::GET, &format!("{path}?q=account&limit=100"), &[], None).await.body.to_string();
    }
    for command in [
        r#"FIND(?r) WHERE { ?r {type: "Resource"} }"#,
        r#"FIND(?l) WHERE { ?l (?k, "uses_resource", ?r) }"#,
        r#"SEARCH CONCEPT "account""#,
        &format!(r#"SEARCH CONCEPT "{marker}""#),
        r#"EXPORT ?r WHERE { ?r {type: "Resource"} }"#,
        "DESCRIBE PRIMER BUDGET 5000",
    ] {
        let answer = op.post(KIP, json!({"command": command})).await.expect(StatusCode::OK).to_string();
        answers += &answer.replace(&format!(r#"SEARCH CONCEPT \"{marker}\""#), "");
    }
    let found = op.get(&format!("/api/knowledge/search?q={marker}")).await.expect(StatusCode::OK);
    assert_eq!(found["count"], 0);
    assert!(!answers.contains(&marker));
    op.post("/v1/keys/rotate", json!({})).await.expect(StatusCode::OK);
    let shown = op.get(&format!("{RESOURCES}/second?reveal=1&why=the+hunt")).await.expect(StatusCode::OK);
    assert_eq!(shown["secure_body"], format!("{marker}{marker}"));
    // While it runs, after it was killed, and after it has started again and ended as it should.
    let watched = || hits(folder.path(), &marker);
    assert_eq!(watched(), [""; 0]);
    victim.kill();
    assert_eq!(watched(), [""; 0]);
    let again = Victim::logging(folder.path(), &log);
    let shown = again.client.get(&format!("{RESOURCES}/second?reveal=1&why=again")).await.expect(StatusCode::OK);
    assert_eq!(shown["secure_body"], format!("{marker}{marker}"));
    again.stop();
    assert_eq!(watched(), [""; 0]);
    assert!(std::fs::metadata(&log).unwrap().len() > 0, "it was logged at all");
}

#[tokio::test]
async fn what_a_record_needs_goes_back_with_what_it_says() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    op.post(RESOURCES, json!({"id": "code/x", "title": "x", "body": "print()"})).await.expect(StatusCode::CREATED);
    let record = json!({"id": "r", "task": "t", "content": "c", "types": ["tool"], "resource_ids": ["code/x"]});
    op.post("/api/knowledge", record).await.expect(StatusCode::CREATED);
    let path = "/api/knowledge/r";
    op.put(path, json!({"resource_ids": []})).await.expect(StatusCode::OK);
    let back = op.post(&format!("{path}/rollback"), json!({"version": 1})).await.expect(StatusCode::OK);
    assert_eq!(back["knowledge"]["resource_ids"], json!(["code/x"]));
    op.delete(&format!("{RESOURCES}/code/x")).await.refused(409, "conflict");
    op.post(&format!("{path}/rollback"), json!({"version": 2})).await.expect(StatusCode::OK);
    assert_eq!(op.delete(&format!("{RESOURCES}/code/x")).await.status, StatusCode::NO_CONTENT);
    op.post(&format!("{path}/rollback"), json!({"version": 1})).await.expect(StatusCode::OK);
    assert_eq!(op.get(&format!("{RESOURCES}/code/x")).await.refused(404, "resource_not_found")["hint"], Value::Null);
}
