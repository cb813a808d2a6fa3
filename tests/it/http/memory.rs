//! The memory of a lifeform over the API: statements are listed and forgotten (MISSION K9, K11). The check of definitions before they are
//! stored.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::honest;

use crate::lifeform::knowing::World;

fn statements(page: &Value) -> Vec<&str> {
    let all = page["statements"].as_array().unwrap().iter();
    all.map(|one| one["statement"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_person_sees_what_it_told_and_takes_it_back() {
    let mut world = World::with(honest, &["hers", "his", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    let watcher = world.daemon.person("user:cleo", "observer").await;
    world.tell(&ada, "hers", "My sister Henrike lives in Oslo.", 3).await;
    world.tell(&ada, "hers", "My boat is called Petrel.", 4).await;
    world.say(&ben, "his", "The ferry leaves at eight.").await;
    let path = format!("{}/memory", world.life);
    let mine = ada.get(&path).await.expect(StatusCode::OK);
    let of = |words: &str| {
        let all = mine["statements"].as_array().unwrap();
        all.iter().find(|one| one["statement"].as_str().unwrap().contains(words)).unwrap().clone()
    };
    assert_eq!(statements(&mine).len(), 2);
    let claims = of("Henrike")["claims"].as_array().unwrap().clone();
    let lives = claims.iter().find(|claim| claim["predicate"] == "lives_in").unwrap();
    assert_eq!((&lives["subject"], &lives["object"]), (&json!("Henrike"), &json!("Oslo")));
    assert_eq!(statements(&ben.get(&path).await.expect(StatusCode::OK)), ["The ferry leaves at eight."]);
    // An operator sees all, page by page, by person and by subject.
    let operator = world.daemon.operator.clone();
    let first = operator.get(&format!("{path}?limit=2")).await.expect(StatusCode::OK);
    let next = first["next"].as_str().unwrap();
    let second = operator.get(&format!("{path}?limit=2&cursor={next}")).await.expect(StatusCode::OK);
    assert_eq!((statements(&first).len(), statements(&second).len(), &second["next"]), (2, 1, &Value::Null));
    let by_ben = operator.get(&format!("{path}?by=user:ben")).await.expect(StatusCode::OK);
    assert_eq!(statements(&by_ben), ["The ferry leaves at eight."]);
    let about = operator.get(&format!("{path}?about=boat&by=user:ada")).await.expect(StatusCode::OK);
    assert_eq!(statements(&about), ["My boat is called Petrel."]);
    for wrong in ["limit=0", "limit=257", "about=boat&cursor=x", "who=ada", "cursor=x"] {
        let refused = operator.get(&format!("{path}?{wrong}")).await;
        assert!(matches!(refused.status.as_u16(), 400 | 422), "{wrong}: {}", refused.body);
    }
    // Others take nothing of it back, and are not told that it is there.
    let boat = of("boat")["id"].as_str().unwrap().to_owned();
    let forget = format!("{path}/forget");
    let body = json!({"facts": [boat]});
    ben.post(&forget, body.clone()).await.expect(StatusCode::NOT_FOUND);
    watcher.post(&forget, body.clone()).await.expect(StatusCode::FORBIDDEN);
    let sister = of("Henrike")["id"].as_str().unwrap().to_owned();
    ada.post(&forget, json!({"facts": [boat, "C:nothing"]})).await.expect(StatusCode::NOT_FOUND);
    for wrong in [json!({"facts": []}), json!({"facts": [boat], "all": true}), json!({})] {
        ada.post(&forget, wrong).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    }
    let trial = ada.post(&forget, json!({"facts": [boat], "dry_run": true})).await.expect(StatusCode::OK);
    assert_eq!(trial["forgotten"][0]["statement"], "My boat is called Petrel.");
    assert!(world.say(&ada, "u", "What is my boat called?").await.contains("Petrel"));
    let gone = ada.post(&forget, body.clone()).await.expect(StatusCode::OK);
    assert_eq!((&gone["forgotten"][0]["id"], &gone["dry_run"]), (&json!(&boat), &json!(false)));
    // It is in no prompt any more, neither as a note nor in the talk itself nor in what the lifeform answered.
    let said = world.say(&ada, "hers", "What is my boat called?").await;
    assert!(!said.contains("Petrel"), "{said}");
    assert_eq!(statements(&ada.get(&path).await.expect(StatusCode::OK)), ["My sister Henrike lives in Oslo."]);
    // A repetition finds nothing left to forget.
    assert_eq!(ada.post(&forget, body).await.expect(StatusCode::OK)["forgotten"], json!([]));
    // An operator has what another told forgotten, and with it the claims.
    operator.post(&forget, json!({"facts": [sister]})).await.expect(StatusCode::OK);
    let said = world.say(&ada, "u", "Where does my sister live?").await;
    assert!(!said.contains("Oslo"), "{said}");
    operator.get("/v1/lifeforms/lf_none/memory").await.expect(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_definition_is_checked_and_tried_before_it_is_stored() {
    let world = World::with(honest, &[]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let good = json!({"id": "mine", "output": "both", "nodes": [
        {"id": "one", "run": {"neuron": {"spec": {"kind": "base", "memory": "Answer."}}}, "reads_input": true},
        {"id": "both", "after": [{"node": "one"}], "run": {"join": "object"}},
    ]});
    let checked = ada.post("/v1/fascicles/check", good.clone()).await.expect(StatusCode::OK);
    assert_eq!(checked["faults"], json!([]));
    let mut faulty = good.clone();
    faulty["nodes"][1]["after"] = json!([{"node": "two"}]);
    faulty["output"] = "none".into();
    let faults = ada.post("/v1/fascicles/check", faulty.clone()).await.expect(StatusCode::OK)["faults"].clone();
    let paths: Vec<&str> = faults.as_array().unwrap().iter().filter_map(|fault| fault["path"].as_str()).collect();
    assert!(paths.iter().any(|path| path.starts_with("nodes[1].after[0]")), "{faults}");
    let order = json!({"input": "hello", "script": {"one": "hi"}, "spec": good});
    let run = ada.post("/v1/fascicles/mine/dry-run", order).await.expect(StatusCode::OK);
    assert_eq!((&run["status"], &run["output"]["one"]), (&json!("completed"), &json!("hi")), "{run}");
    let order = json!({"input": "hello", "spec": faulty});
    ada.post("/v1/fascicles/mine/dry-run", order).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    // Nothing was stored.
    ada.get("/v1/fascicles/mine").await.expect(StatusCode::NOT_FOUND);
    ada.post("/v1/fascicles/mine/dry-run", json!({"input": "hello"})).await.expect(StatusCode::NOT_FOUND);
}
