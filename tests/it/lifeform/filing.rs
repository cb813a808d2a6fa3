//! The filing of what was learned into domains, its dry run, and how it is taken back (MISSION K3, K9, K13).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::json;
use tests::{Client, honest};

use super::knowing::World;

/// Names the domain of each statement of a batch by its words, and answers all else like [`honest`].
fn filing(request: &ChatRequest, n: usize) -> Reply {
    let said = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    if request.response_format.is_none() || !said.contains("<statements>") {
        return honest(request, n);
    }
    let number = |line: &str| line.split('.').next().and_then(|number| number.parse::<usize>().ok());
    let domain = |line: &str| match () {
        // Two spellings are one domain.
        () if line.contains("rope 3") => Some("climbs"),
        () if line.contains("rope") => Some("Climbing"),
        () if line.contains("dog") => Some("Dog"),
        () => None,
    };
    let filed = said.lines().filter_map(|line| Some(json!({"n": number(line)?, "domain": domain(line)?})));
    Reply::Text(json!({"claims": [], "filed": filed.collect::<Vec<_>>()}).to_string())
}

async fn told(world: &mut World, ada: &Client) {
    for n in 0..10 {
        world.say(ada, "t", &format!("My rope {n} hangs beside the crag of the Harz.")).await;
    }
    for n in 0..6 {
        world.say(ada, "t", &format!("My dog got pill {n} from the vet on the hill.")).await;
    }
    world.say(ada, "t", "My kettle stands on the blue shelf of the kitchen.").await;
    for _ in 0..2 {
        world.maintain("read_statements").await;
    }
}

async fn domains(world: &World) -> Vec<String> {
    let found = world.kip(r#"FIND(?d.name) WHERE { ?d {type: "Domain"} }"#).await;
    let mut names: Vec<String> =
        found.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    names.retain(|name| !["CoreSchema", "Conversation", "Knowledge"].contains(&name.as_str()));
    names
}

/// The statements and domains of the mind with their memberships.
async fn whole(world: &World) -> String {
    let facts = world.kip(r#"FIND(?f) WHERE { ?f {type: "Fact"} }"#).await;
    let domains = world.kip(r#"FIND(?d) WHERE { ?d {type: "Domain"} }"#).await;
    let members = world.kip(r#"FIND(?l) WHERE { ?l (?x, "belongs_to_domain", ?d) }"#).await;
    json!([facts, domains, members]).to_string()
}

#[tokio::test]
async fn what_is_told_is_filed_and_the_primer_says_so() {
    let mut world = World::with(filing, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    told(&mut world, &ada).await;
    let before = whole(&world).await;

    let tried = world.ordered(json!({"task": "file_domains", "dry_run": true})).await;
    assert!(tried["output"].to_string().contains("Climbing"), "{tried}");
    assert_eq!(whole(&world).await, before, "a dry run changes nothing");

    let job = world.maintain("file_domains").await;
    assert_eq!(domains(&world).await, ["Climbing"], "six statements of the dog are no domain yet");
    let primer = world.kip("DESCRIBE PRIMER").await;
    let climbing = primer["domain_map"].as_array().unwrap().iter().find(|domain| domain["name"] == "Climbing");
    assert_eq!(climbing.unwrap_or_else(|| panic!("{primer}"))["concepts"], 10);
    let tags = world.kip(r#"FIND(?f.metadata.relevance_tags) WHERE { ?f {type: "Fact"} FILTER(CONTAINS(?f.attributes.statement, "dog")) }"#).await;
    assert_eq!(tags, json!([["Dog"], ["Dog"], ["Dog"], ["Dog"], ["Dog"], ["Dog"]]));
    let filed = whole(&world).await;
    let again = world.maintain("file_domains").await;
    assert!(again["output"].to_string().contains("\"filed\":0") && whole(&world).await == filed, "{again}");

    // The job is taken back as one.
    let path = format!("{}/undo", world.life.replace("lifeforms", "nexus"));
    let op = &world.daemon.operator;
    let undone = op.post(&path, json!({"job": job["job_id"]})).await.expect(StatusCode::OK);
    assert_eq!((undone["result"]["undone"].as_array().unwrap().len(), &undone["result"]["refused"]), (1, &json!([])));
    assert_eq!(whole(&world).await, before);
    let unknown = op.post(&path, json!({"job": "no.such.job"})).await.expect(StatusCode::OK);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("no.such.job"), "{unknown}");
    for wrong in [json!({}), json!({"job": "x", "seq": 1}), json!({"night": "x"})] {
        op.post(&path, wrong).await.refused(422, "invalid");
    }
    let refused = ada.post(&path, json!({"job": job["job_id"]})).await.expect(StatusCode::OK);
    assert_eq!(refused["error"]["code"], "KIP_4003");
}

#[tokio::test]
async fn a_domain_goes_with_the_last_of_its_statements() {
    let mut world = World::with(filing, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    told(&mut world, &ada).await;
    world.maintain("file_domains").await;
    assert_eq!(domains(&world).await, ["Climbing"]);
    let ben = world.daemon.person("user:ben", "participant").await;
    let seen = |client: Client, world: &World| {
        let path = format!("{}/kip", world.life);
        async move {
            let read = client.post(&path, json!({"command": r#"FIND(?d.name) WHERE { ?d {type: "Domain"} }"#})).await;
            read.expect(StatusCode::OK)["result"].to_string().contains("Climbing")
        }
    };
    assert_eq!((seen(ada.clone(), &world).await, seen(ben, &world).await), (true, false), "others heard nothing of it");
    world.say(&ada, "t", "Forget everything that I told you.").await;
    world.say(&ada, "t", "yes").await;
    while domains(&world).await != [""; 0] {
        tests::again().await;
    }
    let members =
        r#"FIND(COUNT(?l)) WHERE { ?l (?x, "belongs_to_domain", ?d) FILTER(?l.metadata.source == "filing") }"#;
    assert_eq!(world.kip(members).await, json!([0]));
}

#[tokio::test]
async fn a_domain_tells_nobody_who_else_spoke_of_it() {
    let mut world = World::with(filing, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    told(&mut world, &ada).await;
    for n in 0..4 {
        world.say(&ben, "u", &format!("My kettle {n} stands beside the rope of the boat.")).await;
    }
    world.maintain("read_statements").await;
    world.maintain("file_domains").await;
    let path = format!("{}/kip", world.life);
    let as_ben = async |command: &str| {
        ben.post(&path, json!({"command": command})).await.expect(StatusCode::OK)["result"].clone()
    };
    let domain = as_ben(r#"FIND(?d) WHERE { ?d {type: "Domain", name: "Climbing"} }"#).await;
    assert_eq!(domain[0]["metadata"]["access_scopes"], json!(["user:ben"]), "{domain}");
    let members = r#"FIND(COUNT(?x)) WHERE { (?x, "belongs_to_domain", {type: "Domain", name: "Climbing"}) }"#;
    assert_eq!((as_ben(members).await, world.kip(members).await), (json!([4]), json!([14])));
    let links = as_ben(r#"FIND(?l) WHERE { ?l (?x, "belongs_to_domain", {type: "Domain", name: "Climbing"}) }"#).await;
    assert!(!links.to_string().contains("user:ada"), "{links}");
    // What the one forgets changes nothing for the other.
    world.say(&ben, "u", "Forget everything that I told you.").await;
    world.say(&ben, "u", "yes").await;
    while world.kip(members).await != json!([10]) {
        tests::again().await;
    }
    while as_ben(r#"FIND(?d.name) WHERE { ?d {type: "Domain", name: "Climbing"} }"#).await != json!([]) {
        tests::again().await;
    }
    assert_eq!(domains(&world).await, ["Climbing"]);
}

#[tokio::test]
async fn a_task_without_a_dry_run_refuses_one() {
    let world = World::with(honest, &["t"]).await;
    let path = format!("{}/system/run-maintenance", world.life);
    for task in ["form_claims", "read_statements", "reflect", "distil_knowledge"] {
        let refused = world.daemon.operator.post(&path, json!({"task": task, "dry_run": true})).await;
        refused.refused(422, "invalid");
    }
    world.daemon.operator.post(&path, json!({"task": "expire", "trial": true})).await.refused(422, "invalid");
}
