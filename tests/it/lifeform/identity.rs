//! The identity of a lifeform: a key that is given once, shown to operators only, and proved by a signature (MISSION K11, K13).

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ed25519_dalek::{Verifier, VerifyingKey};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use super::goals::born;

const OWN_ID: &str = r#"FIND(?me.attributes.id) WHERE { ?me {type: "Person", name: "$self"} }"#;

async fn find(who: &Client, life: &str, command: &str) -> Value {
    who.post(&format!("{life}/kip"), json!({"command": command})).await.expect(StatusCode::OK)["result"].clone()
}

#[tokio::test]
async fn an_identity_is_a_key_that_only_operators_see() {
    let daemon = TestDaemon::start(honest).await;
    let (life, _) = born(&daemon, json!({"name": "Iris"})).await;
    let (other, _) = born(&daemon, json!({"name": "Bo"})).await;
    let op = daemon.operator.clone();
    let ada = daemon.person("user:ada", "participant").await;
    let path = format!("{life}/identity");
    let id = op.get(&path).await.expect(StatusCode::OK)["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("did:key:z6Mk"), "{id}");
    assert_ne!(op.get(&format!("{other}/identity")).await.expect(StatusCode::OK)["id"], id.as_str());
    ada.get(&path).await.refused(403, "forbidden");
    ada.post(&path, json!({"challenge": "x"})).await.refused(403, "forbidden");
    // By KIP, in each way to read it.
    assert_eq!(find(&op, &life, OWN_ID).await, json!([id]));
    for command in [
        OWN_ID,
        r#"FIND(?me) WHERE { ?me {type: "Person", name: "$self"} }"#,
        r#"FIND(?p.attributes) WHERE { ?p {type: "Person"} }"#,
        r#"FIND(?p.attributes.id) WHERE { ?p {type: "Person"} } ORDER BY ?p.attributes.id ASC"#,
        r#"FIND(?p.name) WHERE { ?p {type: "Person"} FILTER(STARTS_WITH(?p.attributes.id, "did:key")) }"#,
        r#"SEARCH CONCEPT "did key" LIMIT 10"#,
        "DESCRIBE PRIMER",
    ] {
        let seen = find(&ada, &life, command).await.to_string();
        assert!(!seen.contains("did:key") && !seen.contains("lifeform:"), "{command}: {seen}");
    }
    let with_it = r#"FIND(?p.name) WHERE { ?p {type: "Person"} FILTER(STARTS_WITH(?p.attributes.id, "did:key")) }"#;
    assert_eq!(find(&op, &life, with_it).await, json!(["$self"]));
    assert_eq!(find(&ada, &life, with_it).await, json!([]));
    // It is in no journal, trace or archive, and no command changes it.
    for text in [
        op.get_text(&format!("/v1/nexus/{}/journal", &life[14..])).await,
        op.get_text(&format!("{life}/trace")).await,
        op.get_text(&format!("{life}/archive")).await,
    ] {
        assert!(!text.contains("did:key"), "{text}");
    }
    // `$system` is known by the principal that speaks for it.
    let system = r#"FIND(?s.attributes.id) WHERE { ?s {type: "Person", name: "$system"} }"#;
    for reader in [&op, &ada] {
        assert_eq!(find(reader, &life, system).await, json!([format!("system:{}", &life[14..])]));
    }
    let other_id =
        r#"UPSERT { CONCEPT ?me { {type: "Person", name: "$self"} SET ATTRIBUTES { id: "did:key:zMine" } } }"#;
    let refused = op.post(&format!("{life}/kip"), json!({"command": other_id})).await.expect(StatusCode::OK);
    assert!(refused["error"].to_string().contains("is protected"), "{refused}");
    // It outlives a kill.
    let daemon = daemon.kill_and_restart().await;
    assert_eq!(find(&daemon.operator, &life, OWN_ID).await, json!([id]));
}

#[tokio::test]
async fn a_lifeform_proves_its_identity_by_a_signature() {
    let daemon = TestDaemon::start(honest).await;
    let (life, _) = born(&daemon, json!({"name": "Iris"})).await;
    let (op, path) = (&daemon.operator, format!("{life}/identity"));
    let proof = op.post(&path, json!({"challenge": "nonce-17"})).await.expect(StatusCode::OK);
    assert_eq!((&proof["signed"], &proof["algorithm"]), (&json!("lifeformd/identity/v1\nnonce-17"), &json!("Ed25519")));
    let key = proof["id"].as_str().unwrap().strip_prefix("did:key:z").unwrap();
    let key = bs58::decode(key).into_vec().unwrap();
    let key = VerifyingKey::from_bytes(key[2..].try_into().unwrap()).unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(proof["signature"].as_str().unwrap()).unwrap();
    let signature = ed25519_dalek::Signature::from_slice(&signature).unwrap();
    key.verify(proof["signed"].as_str().unwrap().as_bytes(), &signature).unwrap();
    assert!(key.verify(b"lifeformd/identity/v1\nnonce-18", &signature).is_err());
    for (bad, status) in [
        (json!({"challenge": ""}), 422),
        (json!({"challenge": "x".repeat(513)}), 422),
        (json!({"challenge": "x", "as": "Bo"}), 422),
        (json!({}), 422),
    ] {
        assert_eq!(op.post(&path, bad.clone()).await.status.as_u16(), status, "{bad}");
    }
    op.post("/v1/lifeforms/lf_none/identity", json!({"challenge": "x"})).await.refused(404, "lifeform_not_found");
}
