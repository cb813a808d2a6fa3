//! The description of a person by a model, out of its own statements and for it alone (MISSION K11, K13).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::json;
use tests::honest;

use super::knowing::World;

fn said(request: &ChatRequest) -> String {
    request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default()
}

/// Describes a person like a strong model, with a name that no statement bears out, and answers all else like [`honest`].
fn observer(request: &ChatRequest, n: usize) -> Reply {
    let said = said(request);
    if request.response_format.is_none() || !said.starts_with("<person>") {
        return honest(request, n);
    }
    let number = |of: &str| {
        let line = said.lines().find(|line| line.contains(of)).unwrap_or_default();
        line.split('.').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or_default()
    };
    let part = |part: &str, text: &str, of: &[usize]| json!({"part": part, "text": text, "of": of});
    let mut parts = vec![part("character", "is a friend of Mallory", &[1, 2])];
    for (kind, text, word) in
        [("summary", "Ada restores the ketch Petrel.", "Petrel"), ("capability", "caulks hulls", "caulk")]
    {
        let number = number(word);
        parts.extend((number > 0).then(|| part(kind, text, &[number])));
    }
    Reply::Text(json!({"parts": parts}).to_string())
}

const SUMMARY: &str = r#"FIND(?p.attributes.interaction_summary) WHERE { ?p {type: "Person", name: "user:ada"} }"#;

/// Returns the situation of the last prompt that answers.
fn situation(world: &World) -> String {
    let asked = world.daemon.model.asked();
    let prompts = asked.iter().rev().filter(|request| request.response_format.is_none());
    let mut texts = prompts.map(|request| json!(request.messages).to_string());
    texts.find(|text| text.contains("You are")).unwrap_or_default()
}

#[tokio::test]
async fn a_person_is_described_to_itself_alone() {
    let mut world = World::with(observer, &["t", "u", "both"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ada, "t", "I restore the old ketch Petrel in the yard.").await;
    world.say(&ada, "t", "I caulk the hull of the ketch myself.").await;
    for n in 0..13 {
        world.say(&ada, "t", &format!("My plank {n} is of oak and lies in the yard.")).await;
        if n % 4 == 3 {
            world.daemon.clock.advance_ms(600_000);
        }
    }
    let job = world.maintain("describe_people").await;
    assert_eq!(
        (&job["output"]["statements"], &job["output"]["parts"]),
        (&json!(15), &json!(["summary", "capabilities"]))
    );
    assert!(!job["output"].to_string().contains("ketch"), "the words are hers alone: {job}");
    let again = world.maintain("describe_people").await;
    assert_eq!(again["output"]["statements"], 0, "she is described: {again}");

    // The next message counts her visits, and keeps it.
    world.say(&ada, "u", "Good evening, my dear friend").await;
    let described = &world.kip(SUMMARY).await[0]["described"];
    assert_eq!(described["summary"], "Ada restores the ketch Petrel.");
    assert_eq!(described["character"], "", "a name that no statement bears out");
    let here = situation(&world);
    assert!(here.contains("As you know") && here.contains("Ada restores the ketch Petrel; caulks hulls"), "{here}");

    // Where Ben reads, too, it is not said, and no door shows it to him.
    world.say(&ben, "both", "Good evening, all my friends").await;
    world.say(&ada, "both", "Good evening, Ben and all").await;
    assert!(!situation(&world).contains("As you know"), "{}", situation(&world));
    let path = format!("{}/kip", world.life);
    let everything = json!({"command": r#"FIND(?p) WHERE { ?p {type: "Person"} }"#});
    let seen = ben.post(&path, everything.clone()).await.expect(StatusCode::OK);
    assert!(!seen.to_string().contains("ketch"), "{seen}");
    let seen = ada.post(&path, everything).await.expect(StatusCode::OK);
    assert!(seen.to_string().contains("restores the ketch"), "{seen}");

    // With one of the statements the description goes.
    world.say(&ada, "t", "Forget that I caulk the hull of the ketch myself.").await;
    while world.kip(SUMMARY).await[0]["described"]["summary"] != "" {
        tests::again().await;
    }
    world.say(&ada, "u", "Good night, my dear friend").await;
    assert!(!situation(&world).contains("As you know"));
}

#[tokio::test]
async fn few_statements_describe_nobody_and_a_night_is_undone() {
    let mut world = World::with(observer, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    for n in 0..14 {
        world.say(&ada, "t", &format!("My plank {n} is of oak and lies in the yard.")).await;
        if n % 4 == 3 {
            world.daemon.clock.advance_ms(600_000);
        }
    }
    let job = world.maintain("describe_people").await;
    assert_eq!(job["output"]["statements"], 0, "{job}");
    world.say(&ada, "t", "I restore the old ketch Petrel in the yard.").await;
    world.maintain("form_claims").await;
    let before = world.kip(SUMMARY).await;
    let job = world.maintain("describe_people").await;
    assert_eq!(job["output"]["parts"], json!(["summary"]), "{job}");
    let path = format!("{}/undo", world.life.replace("lifeforms", "nexus"));
    world.daemon.operator.post(&path, json!({"job": job["job_id"]})).await.expect(StatusCode::OK);
    assert_eq!(world.kip(SUMMARY).await, before);
}
