//! The statements of mind maps, which hold while their nodes have them (MISSION K8, K12).

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::honest;

use super::knowing::World;

#[tokio::test]
async fn what_stands_on_a_map_is_known_to_those_who_see_it() {
    let mut world = World::with(honest, &["hers", "his"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    let canvases = format!("{}/canvases", world.life);
    let made = ada.post(&canvases, json!({"type": "zmind", "title": "Summer", "id": "summer"})).await;
    made.expect(StatusCode::CREATED);
    let ops = format!("{canvases}/summer/ops");
    let node = |id: &str, title: &str, parent: Option<&str>| json!({"kind": "node.add", "id": id, "title": title, "parent": parent});
    let added = json!({"ops": [
        node("boat", "Boat", None), node("sails", "Sails", Some("boat")), node("dora", "Dora lives in Lyon", Some("boat")),
        node("key", "My password is hunter2-Zebra!", Some("boat")), node("what", "Who pays?", Some("boat")),
    ]});
    ada.post(&ops, added).await.expect(StatusCode::OK);
    world.maintain("form_claims").await;
    let parts =
        r#"FIND(?s.attributes.name, ?o.attributes.name) WHERE { (?s, "part_of", ?o) } ORDER BY ?s.attributes.name"#;
    assert_eq!(world.kip(parts).await, json!([["Boat", "Summer"], ["Sails", "Boat"]]));
    let stated = r#"FIND(?f.attributes.statement) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") } ORDER BY ?f.attributes.statement"#;
    let all = json!(["Dora lives in Lyon", "Summer: Boat › Sails", "Summer: Summer › Boat"]);
    assert_eq!(world.kip(stated).await, all);
    let said = world.say(&ada, "hers", "Who lives in Lyon?").await;
    assert!(said.contains("(As far as you were told: Dora)"), "{said}");
    let said = world.say(&ben, "his", "Who lives in Lyon?").await;
    assert!(!said.contains("Dora"), "{said}");
    world.maintain("form_claims").await;
    assert_eq!(world.kip(stated).await, all, "a second reading changes nothing");

    // What is rewritten or removed is said no more.
    let changed = json!({"ops": [
        {"kind": "node.edit", "id": "dora", "title": "Dora lives in Rome"}, {"kind": "node.remove", "id": "sails"},
    ]});
    ada.post(&ops, changed).await.expect(StatusCode::OK);
    world.maintain("form_claims").await;
    assert_eq!(world.kip(stated).await, json!(["Dora lives in Rome", "Summer: Summer › Boat"]));
    let said = world.say(&ada, "hers", "Where does Dora live?").await;
    assert!(said.contains("(As far as you were told: Rome)"), "{said}");
    let places: Value =
        world.kip(r#"FIND(?o.name) WHERE { ?l (?s, "lives_in", ?o) FILTER(?l.metadata.status == "active") }"#).await;
    assert_eq!(places, json!(["Rome"]));

    // What she forgets does not come back from the map, and what he writes over hers is his.
    world.say(&ada, "hers", "Forget that Dora lives in Rome.").await;
    let renamed = json!({"ops": [{"kind": "node.edit", "id": "boat", "title": "I live in Oslo"}]});
    ben.post(&ops, renamed).await.expect(StatusCode::OK);
    world.maintain("form_claims").await;
    world.maintain("form_claims").await;
    let by = r#"FIND(?f.metadata.author, ?f.attributes.statement) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") } ORDER BY ?f.attributes.statement"#;
    assert_eq!(world.kip(by).await, json!([["user:ben", "I live in Oslo"]]));
}
