//! Questions that a model reads as queries of the graph, and predicates that a model proposes (MISSION K3, K8, L7).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, honest};

use super::knowing::World;

/// Returns the user's part of a request for an answer in a structure.
fn asked_for(request: &ChatRequest) -> Option<String> {
    request.response_format.as_ref()?;
    request.messages.last()?.content.clone()
}

/// Reads the questions of these tests as queries and proposes predicates for their statements, and is otherwise [`honest`].
fn reader(request: &ChatRequest, n: usize) -> Reply {
    let Some(said) = asked_for(request) else { return honest(request, n) };
    let claim = |s: &str, p: &str, o: &str| json!({"s": s, "p": p, "o": o});
    if said.starts_with("<statements>") {
        let mut claims = Vec::new();
        for line in said.lines().filter(|line| line.contains(" coaches ")) {
            let (number, line) = line.split_once(". ").unwrap();
            let (who, sport) = line.split_once(" coaches ").unwrap();
            let (who, sport) = (who.rsplit(' ').next().unwrap(), sport.split(' ').next().unwrap());
            claims.push(json!({"n": number.parse::<u32>().unwrap(), "s": who, "p": "coaches", "o": sport}));
        }
        let new = [("coaches", "theme"), ("steals", "thing"), ("$self", "person")];
        let new = new.map(|(p, o)| json!({"p": p, "o": o, "means": "trains others in a sport"}));
        return Reply::Text(json!({"claims": claims, "new": new, "filed": []}).to_string());
    }
    let colleague = claim("I", "colleague_of", "?x");
    let of_riga = |who: Value| vec![who, claim("?x", "partner_of", "?y"), claim("?y", "comes_from", "Riga")];
    let (counts, claims) = match said.as_str() {
        _ if said.contains("of ada's colleagues") => (false, of_riga(claim("ada", "colleague_of", "?x"))),
        _ if said.contains("colleagues has married someone from Riga") => (false, of_riga(colleague)),
        _ if said.contains("taken to climbing") => (true, vec![claim("?x", "does", "climbing")]),
        // The question says nothing of climbing.
        _ if said.contains("fond of chess") => (false, vec![claim("?x", "does", "climbing")]),
        _ if said.contains("trains people in volleyball") => (false, vec![claim("?x", "coaches", "volleyball")]),
        _ if said.contains("husband of") => {
            let colleague = claim(if said.contains("ada's") { "ada" } else { "I" }, "colleague_of", "?c");
            (false, vec![claim("?h", "builds", "?x"), colleague, claim("?c", "partner_of", "?h")])
        }
        _ if said.contains("broken") => return Reply::Text("no query at all".into()),
        _ => return honest(request, n),
    };
    Reply::Text(json!({"asks": "?x", "counts": counts, "claims": claims}).to_string())
}

/// Returns the questions that the model was given to read.
fn read(world: &World) -> Vec<String> {
    world.daemon.model.asked().iter().filter_map(asked_for).filter(|said| said.starts_with("<question>")).collect()
}

#[tokio::test]
async fn a_model_reads_a_question_that_no_rule_reads() {
    let mut world = World::with(reader, &["t", "u", "his"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ada, "t", "Who of us has taken to climbing?").await;
    assert_eq!(read(&world), [""; 0], "a mind without claims is not asked");
    let told = ["My colleague Greta climbs.", "Greta is married to Tom.", "Tom comes from Riga."];
    for (statement, claims) in told.into_iter().zip([3, 5, 6]) {
        world.tell(&ada, "t", statement, claims).await;
    }
    world.tell(&ada, "t", "My colleague Paolo climbs.", 9).await;

    let said = world.say(&ada, "u", "Do tell, which of my colleagues has married someone from Riga?").await;
    assert!(said.contains("(As far as you were told: Greta)"), "{said}");
    assert!(told.iter().all(|statement| said.contains(statement)), "the evidence of each link: {said}");
    let said = world.say(&ada, "u", "And how many whom I mentioned have taken to climbing?").await;
    assert!(said.contains("(As far as you were told, 2: Greta, Paolo)"), "{said}");
    assert_eq!(read(&world).len(), 2);
    // What the rules read and the graph answers costs no call.
    let said = world.say(&ada, "u", "Who comes from Riga?").await;
    assert!(said.contains("(As far as you were told: Tom)") && read(&world).len() == 2, "{said}");

    for question in ["Who of my colleagues is fond of chess?", "Who of my colleagues has a broken leg?"] {
        let said = world.say(&ada, "u", question).await;
        assert!(!said.contains("As far as you were told"), "{question}\n{said}");
    }
    assert_eq!(read(&world).len(), 4);
    let said = world.say(&ben, "his", "Do tell, which of ada's colleagues has married someone from Riga?").await;
    assert!(read(&world).len() == 5 && !said.contains("Greta"), "{said}");
}

#[tokio::test]
async fn the_graph_leads_to_the_sentences_about_those_asked_for() {
    let mut world = World::with(reader, &["t", "u", "his"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.tell(&ada, "t", "My colleague Greta climbs.", 3).await;
    world.tell(&ada, "t", "Greta is married to Tom.", 5).await;
    world.say(&ada, "t", "Tom has spent six months on a canoe out there.").await;
    world.say(&ben, "his", "Tom has spent a fortune on my new roof.").await;
    for n in 0..28 {
        world.say(&ada, "t", &format!("The husband of Mrs {n}, no colleague, builds wall {n} in the yard.")).await;
        if n % 10 == 9 {
            world.daemon.clock.advance_ms(600_000);
        }
    }
    let question = "So what does the husband of my colleague build in the yard?";
    let said = world.say(&ada, "u", question).await;
    assert!(said.contains("Tom has spent six months on a canoe out there."), "{said}");
    assert!(!said.contains("As far as you were told") && !said.contains("roof"), "{said}");
    let said = world.say(&ben, "his", "So what does the husband of ada's colleague build in the yard?").await;
    assert!(!said.contains("canoe") && !said.contains("Greta"), "{said}");
}

/// The predicate that the model proposed, as it is defined.
async fn coaches(world: &World) -> Value {
    world.kip(r#"FIND(?p) WHERE { ?p {type: "$PropositionType", name: "coaches"} }"#).await[0].clone()
}

async fn four(world: &mut World, who: &Client, topic: &str, of: [&str; 4]) {
    for name in of {
        world
            .say(who, topic, &format!("On most evenings of the week {name} coaches volleyball at the old hall."))
            .await;
    }
    world.maintain("read_statements").await;
}

#[tokio::test]
async fn a_model_proposes_a_predicate_that_proves_itself() {
    let mut world = World::with(reader, &["t", "u", "his", "hers"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    four(&mut world, &ada, "t", ["Zofia", "Hugo", "Ines", "Max"]).await;
    let defined = coaches(&world).await;
    assert_eq!(
        (&defined["metadata"]["status"], &defined["metadata"]["access_scopes"]),
        (&json!("draft"), &json!(["user:ada"])),
        "{defined}"
    );
    let others = world.kip(r#"FIND(?p.name) WHERE { ?p {type: "$PropositionType", name: "steals"} }"#).await;
    assert_eq!(others, json!([]), "a predicate that no claim uses is not made");

    // Those who heard it may ask with it; others are not told that there is such a thing.
    let said = world.say(&ada, "u", "Who trains people in volleyball?").await;
    assert!(said.contains("(As far as you were told: Zofia, Hugo, Ines, Max)"), "{said}");
    world.say(&ben, "his", "Who trains people in volleyball?").await;
    let asked = read(&world);
    assert!(asked[0].contains("<predicates>coaches (theme): trains others in a sport</predicates>"), "{asked:?}");
    assert!(!asked[1].contains("coaches"), "{asked:?}");
    let path = format!("{}/kip", world.life);
    let seen = async |who: &Client| {
        let find = r#"FIND(?p.name) WHERE { ?p {type: "$PropositionType"} }"#;
        who.post(&path, json!({"command": find})).await.expect(StatusCode::OK).to_string().contains("coaches")
    };
    assert_eq!((seen(&ada).await, seen(&ben).await), (true, false));

    let job = world.maintain("evolve_schema").await;
    assert!(job["output"].to_string().contains(r#""confirmed":["coaches"]"#), "{job}");
    assert_eq!(coaches(&world).await["metadata"]["status"], "active");
    world.maintain("evolve_schema").await;

    // What it was made of is forgotten, and so is the word for it.
    for name in ["Zofia", "Hugo", "Ines", "Max"] {
        world
            .say(
                &ada,
                "t",
                &format!("Forget that on most evenings of the week {name} coaches volleyball at the old hall."),
            )
            .await;
    }
    while coaches(&world).await != Value::Null {
        tests::again().await;
    }
}

#[tokio::test]
async fn a_predicate_that_is_not_used_goes_and_can_be_brought_back() {
    let mut world = World::with(reader, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    for n in 0..3 {
        world.say(&ada, "t", &format!("The kettle {n} stands on the blue shelf of the kitchen.")).await;
    }
    world.say(&ada, "t", "On most evenings of the week Zofia coaches volleyball at the old hall.").await;
    world.maintain("read_statements").await;
    let defined = coaches(&world).await;
    assert_eq!(defined["metadata"]["status"], "draft", "{defined}");
    let job = world.maintain("evolve_schema").await;
    assert!(job["output"].to_string().contains(r#""dropped":[]"#), "{job}");
    // A night that has come meanwhile drops it, or this order does.
    world.daemon.clock.advance_ms(31 * 86_400_000);
    world.maintain("evolve_schema").await;
    while coaches(&world).await != Value::Null {
        tests::again().await;
    }
    let op = &world.daemon.operator;
    let jobs = op.get("/v1/jobs?fascicle=maintenance&limit=200").await.expect(StatusCode::OK);
    let mut dropped = Vec::new();
    for job in jobs["jobs"].as_array().unwrap() {
        let job = op.get(&format!("/v1/jobs/{}", job["job_id"].as_str().unwrap())).await.expect(StatusCode::OK);
        let is_it = job["output"].to_string().contains(r#""dropped":["coaches"]"#);
        dropped.extend(is_it.then(|| job["job_id"].clone()));
    }
    let [job] = &dropped[..] else { panic!("{dropped:?}") };
    let path = format!("{}/undo", world.life.replace("lifeforms", "nexus"));
    op.post(&path, json!({"job": job})).await.expect(StatusCode::OK);
    assert_eq!(coaches(&world).await["attributes"], defined["attributes"]);
}
