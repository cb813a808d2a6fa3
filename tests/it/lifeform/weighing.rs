//! The weighing of claims: how sure the graph is, what follows from claims, what others told otherwise, and the question to one of
//! those who heard two people disagree (MISSION K3, K12, L8).

use std::collections::BTreeSet;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::json;
use tests::honest;

use super::knowing::{NIGHTLY, World};

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;
const LIVES: &str =
    r#"FIND(?o.name, ?l.metadata.status, ?l.metadata.review_info) WHERE { ?l (?s, "lives_in", ?o) } ORDER BY ?o.name"#;
const QUESTIONS: &str = r#"FIND(?q.attributes) WHERE { ?q {type: "Question"} }"#;

fn statements(request: &ChatRequest) -> Option<String> {
    let last = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    (request.response_format.is_some() && last.starts_with("<statements>")).then_some(last)
}

/// A model that reads that Gdańsk is in Poland, and what Mira does, although her name was said before.
fn reader(request: &ChatRequest, n: usize) -> Reply {
    let Some(said) = statements(request) else { return honest(request, n) };
    let number = |of: &str| {
        let line = said.lines().find(|line| line.contains(of) && line.contains(". ")).unwrap_or_default();
        line.split('.').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or_default()
    };
    let claims = json!([
        {"n": number("Poland"), "s": "Gdańsk", "p": "located_in", "o": "Poland"},
        {"n": number("dives"), "s": "Mira", "p": "does", "o": "diving"},
        {"n": number("dives"), "s": "Mallory", "p": "does", "o": "diving"},
    ]);
    Reply::Text(json!({"claims": claims, "filed": []}).to_string())
}

#[tokio::test]
async fn two_who_disagree_make_a_question_that_one_of_them_answers() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let tom = world.daemon.person("user:tom", "participant").await;
    world.say(&tom, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "Tom lives in Bergen.", 1).await;
    world.tell(&tom, "t", "I live in Oslo.", 2).await;
    let said = world.say(&ada, "t", "Where does Tom live?").await;
    assert!(said.contains("(As far as you were told: Bergen (not sure), Oslo (not sure))"), "{said}");
    // A trial keeps nothing.
    world.ordered(json!({"task": "weigh_claims", "dry_run": true})).await;
    assert_eq!(world.kip(QUESTIONS).await, json!([]));
    world.daemon.clock.advance_ms(28 * HOUR_MS);
    let question = loop {
        let found = world.kip(QUESTIONS).await;
        if found != json!([]) {
            break found[0].clone();
        }
        tests::again().await;
    };
    // He knows best where he lives.
    assert_eq!((&question["person"], &question["state"]), (&json!("user:tom"), &json!("open")), "{question}");
    let reader = world.daemon.person("user:eve", "participant").await;
    let seen = reader.post(&format!("{}/kip", world.life), json!({"command": QUESTIONS})).await;
    assert_eq!(seen.expect(StatusCode::OK)["result"], json!([]), "who heard neither sees no question");
    // By day it asks, once.
    world.night("2026-01-02").await;
    world.daemon.clock.advance_ms(8 * HOUR_MS);
    let asked = world.hears("These two do not fit together").await;
    assert!(asked.contains("- “Tom lives in Bergen.” (ada, 1 January)"), "{asked}");
    assert!(asked.contains("- “I live in Oslo.” (you, 1 January)"), "{asked}");
    world.say(&tom, "t", "Neither of the two, to be honest with you.").await;
    world.say(&tom, "t", "Not Bergen.").await;
    world.say(&tom, "t", "I fly to Bergen on Friday with all of my friends.").await;
    assert_eq!(world.kip(QUESTIONS).await[0]["state"], "asked");
    world.say(&tom, "t", "Oslo.").await;
    while world.kip(QUESTIONS).await[0]["state"] != "answered" {
        tests::again().await;
    }
    let lives = world.kip(LIVES).await;
    assert_eq!((&lives[0][1], &lives[1][1]), (&json!("superseded"), &json!("active")), "{lives}");
    assert_eq!((&lives[0][2]["by"], &lives[0][2]["was"]), (&json!("user:tom"), &json!("active")), "{lives}");
    assert_eq!(lives[1][2]["verdict"], "confirmed", "{lives}");
    let said = world.say(&ada, "t", "Where does Tom live?").await;
    assert!(said.contains("(As far as you were told: Oslo)"), "{said}");
    assert!(!world.say(&ada, "u", "Who lives in Bergen?").await.contains("As far as you were told"));
    // The next night keeps no second question.
    world.maintain("weigh_claims").await;
    assert_eq!(world.kip(QUESTIONS).await.as_array().unwrap().len(), 1);
}

/// A model that finds that two statements can both hold.
fn lenient(request: &ChatRequest, n: usize) -> Reply {
    let last = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    match request.response_format.is_some() && last.starts_with("<notes>These two do not fit together.") {
        true => Reply::Text(json!({"say": ""}).to_string()),
        false => honest(request, n),
    }
}

#[tokio::test]
async fn nobody_is_asked_where_a_model_finds_that_both_hold() {
    let mut world = World::with(lenient, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "Tom lives in Oslo.", 1).await;
    world.tell(&ben, "t", "Tom lives in Norway.", 2).await;
    world.daemon.clock.advance_ms(28 * HOUR_MS);
    world.night("2026-01-02").await;
    world.daemon.clock.advance_ms(8 * HOUR_MS);
    while world.kip(QUESTIONS).await[0]["state"] != "let_be" {
        tests::again().await;
    }
    world.maintain("weigh_claims").await;
    let questions = world.kip(QUESTIONS).await;
    assert_eq!((questions.as_array().unwrap().len(), &questions[0]["state"]), (1, &json!("let_be")));
}

#[tokio::test]
async fn what_is_forgotten_takes_the_question_about_it_along() {
    let mut world = World::with(honest, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "Tom lives in Bergen.", 1).await;
    world.tell(&ben, "t", "Tom lives in Oslo.", 2).await;
    world.maintain("weigh_claims").await;
    assert_eq!(world.kip(QUESTIONS).await[0]["person"], "user:ben");
    world.say(&ada, "t", "Forget that Tom lives in Bergen.").await;
    while world.kip(QUESTIONS).await != json!([]) {
        tests::again().await;
    }
}

#[tokio::test]
async fn a_person_that_contradicts_itself_is_asked_once() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My friend Tom lives in Bergen.", 3).await;
    world.tell(&ada, "t", "My friend Tom lives in Oslo.", 6).await;
    world.maintain("weigh_claims").await;
    let question = &world.kip(QUESTIONS).await[0];
    assert_eq!((&question["person"], &question["state"]), (&json!("user:ada"), &json!("open")), "{question}");
    world.daemon.clock.advance_ms(34 * HOUR_MS);
    let asked = world.hears("These two do not fit together").await;
    assert!(asked.contains("“My friend Tom lives in Bergen.” (you, 1 January)"), "{asked}");
    world.say(&ada, "t", "Oslo.").await;
    while world.kip(QUESTIONS).await[0]["state"] != "answered" {
        tests::again().await;
    }
    let lives = world.kip(LIVES).await;
    assert_eq!((&lives[0][1], &lives[1][1]), (&json!("superseded"), &json!("active")), "{lives}");
    // A change that is said is no contradiction, also where not all heard it who heard of the former state.
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "u", "Good evening, all my friends").await;
    world.tell(&ada, "u", "My cousin Eva lives in Turin.", 9).await;
    world.tell(&ada, "t", "My cousin Eva moved to Lyon.", 10).await;
    world.say(&ada, "t", "My sister Ida lives in Rome.").await;
    world.say(&ada, "t", "Ida moved to Paris.").await;
    world.maintain("form_claims").await;
    world.maintain("weigh_claims").await;
    assert_eq!(world.kip(QUESTIONS).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_settled_question_is_not_asked_again() {
    let mut world = World::with(honest, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "Tom lives in Bergen.", 1).await;
    world.tell(&ben, "t", "Tom lives in Oslo.", 2).await;
    world.daemon.clock.advance_ms(34 * HOUR_MS);
    world.hears("These two do not fit together").await;
    world.say(&ben, "t", "Tom lives in Oslo, and has for years.").await;
    while world.kip(QUESTIONS).await[0]["state"] != "answered" {
        tests::again().await;
    }
    // His earlier statement is taken back; what Ada said is still disputed.
    world.kip(r#"UPDATE ?f SET METADATA { status: "superseded" } WHERE { ?f {type: "Fact"} FILTER(?f.attributes.statement == "Tom lives in Oslo.") }"#).await;
    world.maintain("form_claims").await;
    world.maintain("weigh_claims").await;
    let questions = world.kip(QUESTIONS).await;
    assert_eq!((questions.as_array().unwrap().len(), &questions[0]["state"]), (1, &json!("answered")), "{questions}");
}

#[tokio::test]
async fn a_claim_is_seen_by_those_who_heard_what_still_states_it() {
    let mut world = World::with(honest, &["hers", "both"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.tell(&ada, "hers", "Tom lives in Bergen.", 1).await;
    world.say(&ben, "both", "Good evening, all my friends").await;
    world.tell(&ada, "both", "Tom lives in Bergen, by the fjord.", 2).await;
    let sees = json!({"command": r#"FIND(?o.name) WHERE { ?l (?s, "lives_in", ?o) }"#});
    let path = format!("{}/kip", world.life);
    let seen = ben.post(&path, sees.clone()).await.expect(StatusCode::OK);
    assert_eq!(seen["result"], json!(["Bergen"]));
    world.kip(r#"UPDATE ?f SET METADATA { status: "retracted" } WHERE { ?f {type: "Fact"} FILTER(?f.attributes.statement == "Tom lives in Bergen, by the fjord.") }"#).await;
    let trial = world.ordered(json!({"task": "check_claims", "dry_run": true})).await;
    assert_eq!(trial["output"]["trial"]["narrowed"].as_array().unwrap().len(), 1, "{trial}");
    let job = world.maintain("check_claims").await;
    assert_eq!(job["output"]["done"]["narrowed"].as_array().unwrap().len(), 1, "{job}");
    let seen = ben.post(&path, sees).await.expect(StatusCode::OK);
    assert_eq!(seen["result"], json!([]), "what he heard was taken back");
    assert_eq!(world.kip(r#"FIND(?o.name) WHERE { ?l (?s, "lives_in", ?o) }"#).await, json!(["Bergen"]));
}

#[tokio::test]
async fn nobody_is_asked_who_did_not_hear_both() {
    let mut world = World::with(honest, &["hers", "his"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    let own = "My friend Tom lives in Bergen.";
    world.tell(&ada, "hers", own, 3).await;
    world.tell(&ben, "his", "My friend Tom lives in Oslo.", 6).await;
    world.maintain("weigh_claims").await;
    assert_eq!(world.kip(QUESTIONS).await, json!([]));
}

#[tokio::test]
async fn a_liking_of_long_ago_is_told_with_doubt() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My sister Henrike likes sailing.", 3).await;
    world.tell(&ada, "t", "My sister Henrike is allergic to peanuts.", 6).await;
    let sure = r#"FIND(?o.name, ?l.metadata.confidence, ?l.metadata.status) WHERE { ?l (?s, "likes", ?o) }"#;
    assert_eq!(world.kip(sure).await, json!([["sailing", 0.95, "active"]]));
    world.daemon.clock.advance_ms(YEAR_MS);
    let said = world.say(&ada, "u", "What does my sister like?").await;
    assert!(said.contains("(As far as you were told: sailing (not sure))"), "{said}");
    let said = world.say(&ada, "u", "What is my sister allergic to?").await;
    assert!(said.contains("(As far as you were told: peanuts)"), "{said}");
    let weighed = world.maintain("weigh_claims").await;
    let moved = world.kip(sure).await[0][1].as_f64().unwrap();
    assert!((0.45..0.5).contains(&moved), "{moved}");
    // Each change can be taken back.
    let undo = json!({"job": weighed["job_id"]});
    let path = format!("/v1/nexus/{}/undo", world.life.rsplit('/').next().unwrap());
    world.daemon.operator.post(&path, undo).await.expect(StatusCode::OK);
    let back = world.kip(sure).await[0][1].as_f64().unwrap();
    assert!(back == 0.95 || (0.45..0.5).contains(&back), "a night may have weighed it before: {back}");
    world.daemon.clock.advance_ms(3 * YEAR_MS);
    world.maintain("weigh_claims").await;
    assert_eq!(world.kip(sure).await[0][2], "expired");
    assert!(
        world.say(&ada, "u", "What do I know about sailing?").await.contains("likes sailing"),
        "the statement stays"
    );
}

#[tokio::test]
async fn what_follows_from_claims_is_answered_with_their_statements() {
    let mut world = World::with(reader, &["t", "u", "v"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My mother is called Ines.", 1).await;
    world.tell(&ada, "t", "Ines's mother is called Olga.", 2).await;
    world.tell(&ada, "t", "Olga lives in Gdańsk.", 3).await;
    let said = world.say(&ada, "u", "Where does my grandmother live?").await;
    assert!(said.contains("(As far as you were told: Gdańsk)") && said.contains("Ines's mother"), "{said}");
    for n in 0..4 {
        world.say(&ada, "t", &format!("The blue kettle {n} stands on the shelf.")).await;
    }
    assert!(!world.say(&ada, "u", "Who lives in Poland?").await.contains("As far as you were told"));
    world.say(&ada, "t", "Gdańsk, in the north of Poland, is cold.").await;
    world.maintain("read_statements").await;
    let said = world.say(&ada, "u", "Who lives in Poland?").await;
    assert!(said.contains("(As far as you were told: Olga)") && said.contains("north of Poland"), "{said}");
    // Nothing of it is stored.
    let stored = world.kip(r#"FIND(?o.name) WHERE { ?l (?s, "lives_in", ?o) }"#).await;
    assert_eq!(stored, json!(["Gdańsk"]));
    // Who heard only one of the premises is told no conclusion.
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "v", "Good evening, all my friends").await;
    world.tell(&ada, "v", "Olga lives in Gdańsk.", 5).await;
    assert!(!world.say(&ben, "v", "Who lives in Poland?").await.contains("As far as you were told"));
}

#[tokio::test]
async fn who_moved_away_lives_there_no_more() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My sister Henrike lives in Oslo.", 3).await;
    world.tell(&ada, "t", "Henrike moved to Bergen.", 4).await;
    assert!(!world.say(&ada, "u", "Who lives in Oslo?").await.contains("As far as you were told"));
    assert!(world.say(&ada, "u", "Who lives in Bergen?").await.contains("(As far as you were told: Henrike)"));
    world.tell(&ada, "t", "My brother Max works for Acme.", 7).await;
    world.tell(&ada, "t", "Max also works for Fenwick.", 8).await;
    assert!(world.say(&ada, "u", "Where does Max work?").await.contains("(As far as you were told: Acme, Fenwick)"));
    world.tell(&ada, "t", "Max now works for Norvik.", 9).await;
    assert!(world.say(&ada, "u", "Where does Max work?").await.contains("(As far as you were told: Norvik)"));
}

#[tokio::test]
async fn others_who_told_otherwise_stand_in_the_prompt_once() {
    let mut world = World::with(honest, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    let cleo = world.daemon.person("user:cleo", "participant").await;
    for who in [&ada, &ben, &cleo] {
        world.say(who, "t", "Good evening, all my friends").await;
    }
    world.tell(&ada, "t", "Tom lives in Oslo.", 1).await;
    let said = world.say(&cleo, "t", "Tom lives in Oslo, too.").await;
    assert!(!said.contains("otherwise"), "{said}");
    world.tell(&ben, "t", "Tom lives in Oslo.", 2).await;
    let said = world.say(&cleo, "t", "Tom lives in Bergen.").await;
    assert!(said.contains("(Others told you otherwise: Oslo)"), "{said}");
    let said = world.say(&cleo, "t", "Tom lives in Bergen, I tell you.").await;
    assert!(!said.contains("otherwise"), "{said}");
}

#[tokio::test]
async fn a_batch_shows_the_talk_around_it() {
    let mut world = World::with(reader, &["t", "hers"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ada, "hers", "Mallory is the name that I tell you alone.").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    for said in [
        "My friend Mira rang me today.",
        "The cellar is full of water.",
        "The cat has slept all day.",
        "It rained on the roof.",
    ] {
        world.say(&ada, "t", said).await;
    }
    world.maintain("read_statements").await;
    world.daemon.clock.advance_ms(HOUR_MS);
    for said in [
        "She dives in the lake by now.",
        "The lamp in the hall is broken.",
        "The bread is in the oven.",
        "The door of the shed is open.",
    ] {
        world.say(&ada, "t", said).await;
        if said.starts_with("She dives") {
            world.say(&ben, "t", "Where does she dive?").await;
        }
    }
    world.maintain("read_statements").await;
    let batches: Vec<String> = world.daemon.model.asked().iter().filter_map(statements).collect();
    let second = batches.last().unwrap();
    assert!(second.contains("\n- ada: My friend Mira rang me today.\n"), "{second}");
    assert!(
        second.contains("\n1. ada: She dives in the lake by now.\n- ben: Where does she dive?\n2. ada:"),
        "{second}"
    );
    assert!(!second.contains("Mallory"), "{second}");
    let does = world.kip(r#"FIND(?s.attributes.name) WHERE { ?l (?s, "does", ?o) }"#).await;
    assert_eq!(does, json!(["Mira"]));
}

#[tokio::test]
async fn the_tasks_of_a_night_run_one_after_the_other() {
    let mut world = World::with(honest, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.say(&ada, "t", "My cat is called Miso.").await;
    world.daemon.clock.advance_ms(28 * HOUR_MS);
    world.night("2026-01-02").await;
    let jobs = world.daemon.operator.get("/v1/jobs?limit=200").await.expect(StatusCode::OK);
    // Nothing is left to read after the first look, so there is no second one.
    let ids = jobs["jobs"].as_array().unwrap().iter().filter_map(|job| job["job_id"].as_str());
    let tasks: BTreeSet<&str> = ids.filter_map(|id| Some(id.split_once(".night.2026-01-02.")?.1)).collect();
    assert_eq!(tasks.into_iter().collect::<Vec<_>>(), NIGHTLY, "{jobs}");
}
