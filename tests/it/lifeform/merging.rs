//! Other names of people: what is said under one is known of the person (MISSION K3, K13).

use reqwest::StatusCode;
use serde_json::json;
use tests::honest;

use super::knowing::World;

const DOES: &str = r#"FIND(?s.attributes.name, ?o.name) WHERE { ?l (?s, "does", ?o) FILTER(?l.metadata.status == "active") } ORDER BY ?o.name"#;

#[tokio::test]
async fn claims_under_another_name_move_to_the_person_at_night() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "Last week Rike plays the violin.", 1).await;
    world.tell(&ada, "t", "My sister Henrike lives in Gdańsk.", 3).await;
    let said = world.say(&ada, "u", "Where does Rike live?").await;
    assert!(!said.contains("As far as you were told"), "{said}");
    world.tell(&ada, "t", "Rike is short for Henrike.", 4).await;
    // A question follows the name at once.
    let said = world.say(&ada, "u", "Where does Rike live?").await;
    assert!(said.contains("(As far as you were told: Gdańsk)"), "{said}");
    // What is said now is of the person.
    world.tell(&ada, "t", "Rike speaks Polish.", 5).await;
    let said = world.say(&ada, "u", "What does my sister speak?").await;
    assert!(said.contains("(As far as you were told: polish)"), "{said}");
    let trial = world.ordered(json!({"task": "merge_concepts", "dry_run": true})).await;
    assert_eq!(trial["output"]["trial"]["merged"][0]["claims"], 1, "{trial}");
    assert_eq!(world.kip(DOES).await, json!([["Rike", "violin"]]));
    let job = world.maintain("merge_concepts").await;
    assert_eq!(job["output"]["done"]["merged"][0]["claims"], 1, "{job}");
    assert_eq!(world.kip(DOES).await, json!([["Henrike", "violin"]]));
    let said = world.say(&ada, "u", "Which of my sisters plays the violin?").await;
    assert!(said.contains("(As far as you were told: Henrike)"), "{said}");
    let again = world.maintain("merge_concepts").await;
    assert_eq!(again["output"]["done"]["merged"], json!([]), "{again}");
    // The night is taken back whole.
    let path = format!("/v1/nexus/{}/undo", world.life.rsplit('/').next().unwrap());
    world.daemon.operator.post(&path, json!({"job": job["job_id"]})).await.expect(StatusCode::OK);
    assert_eq!(world.kip(DOES).await, json!([["Rike", "violin"]]));
    // Without the statement of the name, nothing says that the two are one.
    world.maintain("merge_concepts").await;
    world.kip(r#"UPDATE ?f SET METADATA { status: "retracted" } WHERE { ?f {type: "Fact"} FILTER(?f.attributes.statement == "Rike is short for Henrike.") }"#).await;
    world.maintain("form_claims").await;
    let said = world.say(&ada, "u", "Where does Rike live?").await;
    assert!(!said.contains("As far as you were told"), "{said}");
    assert_eq!(world.kip(DOES).await, json!([["Henrike", "violin"]]));
}

#[tokio::test]
async fn a_name_of_which_others_spoke_stays_apart() {
    let mut world = World::with(honest, &["t", "hers", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "My sister Henrike lives in Gdańsk.", 2).await;
    world.tell(&ben, "t", "Today Rike plays the flute.", 3).await;
    // Ada alone hears that the two are one; Ben sees the claim of Rike.
    world.tell(&ada, "hers", "Rike is short for Henrike.", 4).await;
    let job = world.maintain("merge_concepts").await;
    assert_eq!(job["output"]["done"]["merged"], json!([]), "{job}");
    assert_eq!(world.kip(DOES).await, json!([["Rike", "flute"]]));
    let said = world.say(&ben, "u", "Where does Rike live?").await;
    assert!(!said.contains("As far as you were told"), "{said}");
}

#[tokio::test]
async fn nobody_says_who_a_person_with_a_login_is_but_they() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "My brother Tom lives in Bergen.", 2).await;
    world.say(&ada, "t", "Tom is the same person as Ben.").await;
    world.tell(&ben, "t", "Everybody calls me Benno.", 3).await;
    world.tell(&ben, "t", "I live in Oslo.", 4).await;
    let same = world.kip(r#"FIND(?a.attributes.name, ?b.name) WHERE { ?l (?a, "same_as", ?b) }"#).await;
    assert_eq!(same, json!([["Benno", "user:ben"]]));
    let said = world.say(&ada, "u", "Where does Benno live?").await;
    assert!(said.contains("(As far as you were told: Oslo)"), "{said}");
}

#[tokio::test]
async fn a_name_tells_nothing_to_those_who_did_not_hear_of_it() {
    let mut world = World::with(honest, &["t", "hers", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "My sister Henrike lives in Gdańsk.", 2).await;
    world.tell(&ada, "hers", "Rike is short for Henrike.", 3).await;
    world.say(&ada, "t", "Rike speaks Polish.").await;
    let speaks = r#"FIND(?s.attributes.name, ?o.name) WHERE { ?l (?s, "speaks", ?o) }"#;
    while world.kip(speaks).await == json!([]) {
        tests::again().await;
    }
    for _ in 0..2 {
        assert_eq!(world.kip(speaks).await, json!([["Rike", "polish"]]));
        let said = world.say(&ben, "u", "What does Henrike speak?").await;
        assert!(!said.contains("As far as you were told"), "{said}");
        let said = world.say(&ben, "u", "What does Rike speak?").await;
        assert!(said.contains("(As far as you were told: polish)"), "{said}");
        let job = world.maintain("merge_concepts").await;
        assert_eq!(job["output"]["done"]["merged"], json!([]), "{job}");
    }
    // She heard both.
    let said = world.say(&ada, "hers", "What does Henrike speak?").await;
    assert!(said.contains("(As far as you were told: polish)"), "{said}");
}

#[tokio::test]
async fn names_in_a_circle_keep_their_claims() {
    let mut world = World::with(honest, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    for said in ["Today Bella plays the violin.", "Today Carla plays the cello."] {
        world.say(&ada, "t", said).await;
    }
    for said in ["Anna is short for Bella.", "Bella is short for Carla.", "Carla is short for Anna."] {
        world.say(&ada, "t", said).await;
        world.maintain("form_claims").await;
    }
    // Anna is Bella by then, so the last statement says that Carla is.
    let same = world.kip(r#"FIND(?s.attributes.name, ?o.attributes.name) WHERE { ?l (?s, "same_as", ?o) } ORDER BY ?s.attributes.name"#).await;
    assert_eq!(same, json!([["Anna", "Bella"], ["Bella", "Carla"], ["Carla", "Bella"]]));
    for _ in 0..2 {
        let job = world.maintain("merge_concepts").await;
        assert_eq!(job["output"]["done"]["merged"], json!([]), "{job}");
        assert_eq!(job["output"]["done"]["kept_apart"].as_array().unwrap().len(), 2, "{job}");
        assert_eq!(world.kip(DOES).await, json!([["Carla", "cello"], ["Bella", "violin"]]));
    }
}

#[tokio::test]
async fn a_merge_revives_nothing_that_has_ended() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "Rike lives in Bonn.", 1).await;
    world.tell(&ada, "t", "My sister Henrike lives in Bonn.", 3).await;
    world.tell(&ada, "t", "Henrike moved to Gdańsk.", 4).await;
    world.tell(&ada, "t", "Rike is short for Henrike.", 5).await;
    world.maintain("merge_concepts").await;
    let lives = r#"FIND(?s.attributes.name, ?o.name) WHERE { ?l (?s, "lives_in", ?o) FILTER(?l.metadata.status == "active" && ?s.attributes.name == "Henrike") }"#;
    assert_eq!(world.kip(lives).await, json!([["Henrike", "Gdańsk"]]));
}

#[tokio::test]
async fn each_speaks_of_the_one_of_that_name_whom_it_named() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "My sister Rike lives in Oslo.", 3).await;
    world.tell(&ben, "t", "Everybody calls me Rike.", 4).await;
    world.tell(&ada, "t", "Today Rike plays the violin.", 5).await;
    let said = world.say(&ada, "u", "Which of my sisters plays the violin?").await;
    assert!(said.contains("(As far as you were told: Rike)"), "{said}");
    world.tell(&ben, "t", "Today Rike plays the flute.", 6).await;
    let said = world.say(&ben, "u", "What do I play?").await;
    assert!(said.contains("(As far as you were told: flute)"), "{said}");
}
