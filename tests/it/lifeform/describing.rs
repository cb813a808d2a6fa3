//! The description of domains by a model, with merge and split (MISSION K3, K9).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, honest};

use super::knowing::World;

fn said(request: &ChatRequest) -> String {
    request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default()
}

/// Returns the numbers of the lines of a prompt that contain a word.
fn numbers(said: &str, word: &str) -> Vec<usize> {
    let number = |line: &str| line.split_once('.')?.0.parse::<usize>().ok();
    said.lines().filter(|line| line.contains(word)).filter_map(number).collect()
}

/// Files and describes like a strong model, and answers all else like [`honest`].
fn describing(request: &ChatRequest, n: usize) -> Reply {
    let said = said(request);
    let answer = match () {
        () if request.response_format.is_none() => return honest(request, n),
        () if said.starts_with("<statements>") => {
            let of = |word: &str, domain: &str| {
                let filed = numbers(&said, word).into_iter();
                filed.map(|n| json!({"n": n, "domain": domain})).collect::<Vec<_>>()
            };
            let filed = [of("rope", "Climbing"), of("crag", "Mountains"), of("ball", "Sport"), of("sail", "Sport")];
            json!({"claims": [], "filed": filed.concat()})
        }
        () if said.starts_with("<domain>Climbing") => {
            json!({"description": "Ropes of the Harz and who owns them.", "same_as": "", "parts": []})
        }
        () if said.starts_with("<domain>Mountains") => {
            json!({"description": "Crags in the Alps.", "same_as": "climbing", "parts": []})
        }
        () if said.starts_with("<domain>Sport") => {
            let part = |name: &str, word: &str| json!({"name": name, "statements": numbers(&said, word)});
            json!({"description": "Games.", "same_as": "", "parts": [part("Ball games", "ball"), part("Sailing", "sail")]})
        }
        () => return honest(request, n),
    };
    Reply::Text(answer.to_string())
}

async fn tell(world: &mut World, who: &Client, topic: &str, word: &str, count: usize) {
    for n in 0..count {
        world.say(who, topic, &format!("My {word} {n} hangs beside the door of the Harz.")).await;
        if n % 4 == 3 {
            world.daemon.clock.advance_ms(600_000);
        }
    }
}

async fn filed(world: &World, readings: usize) {
    for _ in 0..readings {
        world.maintain("read_statements").await;
    }
    world.maintain("file_domains").await;
}

/// Returns the domains that filing made, each with its description.
async fn domains(world: &World) -> Value {
    world.kip(r#"FIND(?d.name, ?d.attributes.description) WHERE { ?d {type: "Domain"} FILTER(?d.metadata.source == "filing") } ORDER BY ?d.name"#).await
}

#[tokio::test]
async fn a_model_describes_a_domain_for_those_who_heard_it() {
    let mut world = World::with(describing, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    tell(&mut world, &ada, "t", "rope", 9).await;
    filed(&world, 1).await;
    assert_eq!(domains(&world).await, json!([["Climbing", "Statements of people about Climbing."]]));
    let before = domains(&world).await;

    let job = world.maintain("describe_domains").await;
    assert_eq!(domains(&world).await, json!([["Climbing", "Ropes of the Harz and who owns them."]]), "{job}");
    let again = world.maintain("describe_domains").await;
    assert_eq!(again["output"]["statements"], 0, "it is described: {again}");

    let path = format!("{}/undo", world.life.replace("lifeforms", "nexus"));
    world.daemon.operator.post(&path, json!({"job": job["job_id"]})).await.expect(StatusCode::OK);
    assert_eq!(domains(&world).await, before);
    world.maintain("describe_domains").await;

    // Ben comes to see the domain, and did not hear the statements of which the description tells.
    let ben = world.daemon.person("user:ben", "participant").await;
    tell(&mut world, &ben, "u", "rope", 2).await;
    filed(&world, 1).await;
    assert_eq!(domains(&world).await, json!([["Climbing", "Statements of people about Climbing."]]));
    let job = world.maintain("describe_domains").await;
    assert_eq!(job["output"]["statements"], 0, "too few statements that both heard: {job}");
}

#[tokio::test]
async fn a_domain_of_the_same_meaning_is_merged() {
    let mut world = World::with(describing, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    tell(&mut world, &ada, "t", "rope", 8).await;
    tell(&mut world, &ada, "t", "crag", 8).await;
    filed(&world, 2).await;
    assert_eq!(domains(&world).await.as_array().unwrap().len(), 2);
    for _ in 0..2 {
        world.maintain("describe_domains").await;
    }
    // Twice as many statements are more than those of which the description tells.
    assert_eq!(domains(&world).await, json!([["Climbing", "Ropes of the Harz and who owns them."]]));
    let members = r#"FIND(COUNT(?x)) WHERE { (?x, "belongs_to_domain", {type: "Domain", name: "Climbing"}) }"#;
    assert_eq!(world.kip(members).await, json!([16]));
}

#[tokio::test]
async fn a_wide_domain_is_split() {
    const TOPICS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut world = World::with(describing, &TOPICS).await;
    // The share of an hour of a participant would not do.
    let operator = Client::new(world.daemon.operator.base.clone(), world.daemon.operator.token.clone());
    for topic in TOPICS {
        for n in 0..4 {
            world.say(&operator, topic, &format!("My ball {topic}{n} hangs beside the door of the Harz.")).await;
            world.say(&operator, topic, &format!("My sail {topic}{n} hangs beside the door of the Harz.")).await;
        }
        world.daemon.clock.advance_ms(60_000);
    }
    filed(&world, TOPICS.len()).await;
    assert_eq!(domains(&world).await, json!([["Sport", "Statements of people about Sport."]]));
    let job = world.maintain("describe_domains").await;
    assert_eq!(job["output"]["parts"], json!(["Ball games", "Sailing"]), "{job}");
    let names: Vec<Value> = domains(&world).await.as_array().unwrap().iter().map(|domain| domain[0].clone()).collect();
    assert_eq!(names, ["Ball games", "Sailing", "Sport"], "the rest stays where it was");
}
