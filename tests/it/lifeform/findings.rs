//! Findings of a lifeform are evidence in its graph, beside what people told it (MISSION K3, K12, R3).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{TestDaemon, again, honest};

use super::given_tools::World;
use super::goals::{born, live};
use super::supplements::answered;

/// A model whose research finds where a person lives, and whose goal then ends with a result.
fn finding(request: &ChatRequest, n: usize) -> Reply {
    let whole: String = request.messages.iter().filter_map(|message| message.content.clone()).collect();
    match () {
        () if whole.starts_with("Find out what is asked") => Reply::Text("Tom Vale lives in Oslo.".into()),
        () if whole.contains("What you have set out to do") => {
            let is_known = whole.contains("lives in Oslo");
            let research = if is_known { json!([]) } else { json!(["Where does Tom Vale live?"]) };
            let (status, say) = if is_known { ("done", "Tom Vale works for Fenwick.") } else { ("active", "") };
            let plan = json!({"steps": [], "say": say, "status": status, "again_in_minutes": 0, "subgoals": [], "research": research});
            Reply::Text(plan.to_string())
        }
        () if request.response_format.is_some() => Reply::Text(
            json!({"facts": [], "promises": [], "claims": [], "filed": [], "contradicted": [], "correction": ""})
                .to_string(),
        ),
        () => honest(request, n),
    }
}

#[tokio::test]
async fn findings_and_results_are_evidence_for_those_of_the_goal() {
    let daemon = TestDaemon::builder().calls_tools().start(finding).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris", "trusts": ["user:ada"]})).await;
    let (ada, ben) = (daemon.person("user:ada", "participant").await, daemon.person("user:ben", "participant").await);
    let mut socket = live(&daemon, &chat).await;
    for topic in ["hers", "his", "later"] {
        daemon.operator.topic(&chat, topic).await;
    }
    // The one of whom she speaks is the one that is found.
    answered(&mut socket, &ada, &chat, "hers", "My friend Tom Vale sails.").await;
    ada.post(&format!("{life}/goals"), json!({"title": "Find Tom Vale"})).await.expect(StatusCode::CREATED);
    let kip = async |command: &str| -> Value {
        let answer = daemon.operator.post(&format!("{life}/kip"), json!({"command": command})).await;
        answer.expect(StatusCode::OK)["result"].clone()
    };
    let found = r#"FIND(?f.attributes.found_by, ?f.attributes.statement) WHERE { ?f {type: "Fact"} FILTER(IS_NOT_NULL(?f.attributes.found_by)) } ORDER BY ?f.attributes.found_by"#;
    while kip(found).await != json!([["research", "Tom Vale lives in Oslo."]]) {
        again().await;
    }
    // It goes on with the goal a minute later.
    while kip(found).await != json!([["goal", "Tom Vale works for Fenwick."], ["research", "Tom Vale lives in Oslo."]])
    {
        daemon.clock.advance_ms(10_000);
        again().await;
    }
    let claims = r#"FIND(?s.attributes.name, ?l.metadata.confidence) WHERE { ?l (?s, "works_for", ?o) }"#;
    while kip(claims).await != json!([["Tom Vale", 0.9]]) {
        again().await;
    }
    let said = answered(&mut socket, &ada, &chat, "later", "Where does my friend Tom Vale live?").await;
    let said = said["content"].as_str().map_or_else(|| said.to_string(), str::to_owned);
    assert!(said.contains("(As far as you were told: Oslo (not sure))") && said.contains("Tom Vale sails"), "{said}");
    let said = answered(&mut socket, &ben, &chat, "his", "Where does Tom Vale live?").await.to_string();
    assert!(!said.contains("Oslo"), "{said}");
    // What was found for her alone is forgotten at her word.
    ada.say(&chat, "later", "Forget that Tom Vale lives in Oslo.").await;
    let places = r#"FIND(?p.name) WHERE { ?p {type: "Place"} }"#;
    while kip(places).await != json!([]) {
        again().await;
    }
}

#[tokio::test]
async fn what_a_tool_finds_is_learned_as_its_definition_says() {
    let mut world = World::new(json!({"name": "Iris", "trusts": ["user:ada"]})).await;
    let op = world.operator();
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    let url = format!("http://{}/staff", world.outside.address());
    let tool = |learn: Value| {
        json!({
            "description": "Lists the staff of a company.", "run": {"http": {"url": url}}, "learn": learn,
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
        })
    };
    let each = json!([
        {"says": "{{/item/name}} works for {{/result/company}}.", "each": "/result/staff"},
        {"says": "The list of {{/result/company}} was asked for {{/arguments/at}}.", "for_days": 2},
    ]);
    for wrong in
        [json!([{"says": "It rains."}]), json!([{"says": "{{/item/a}}."}]), json!([{"says": "{{/result/a}}.", "x": 1}])]
    {
        op.put("/v1/tools/staff", tool(wrong)).await.refused(422, "invalid");
    }
    op.put("/v1/tools/staff", tool(each)).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "staff"}])).await.expect(StatusCode::OK);
    for topic in ["hers", "his"] {
        op.topic(&world.chat, topic).await;
    }
    assert!(world.answered(&ada, r#"staff {"at": "Oslo"}?"#).await.contains("Fenwick"));
    let found = r#"FIND(?f.attributes.statement, ?f.attributes.valid_until) WHERE { ?f {type: "Fact"} FILTER(?f.attributes.found_by == "tool") } ORDER BY ?f.attributes.statement"#;
    let path = format!("{}/kip", world.life);
    let kip = async |command: &str| -> Value {
        let answer = op.post(&path, json!({"command": command})).await;
        answer.expect(StatusCode::OK)["result"].clone()
    };
    // A name that would be a sentence of its own makes none.
    let learned = json!([
        ["Ida Berg works for Fenwick.", null],
        ["The list of Fenwick was asked for Oslo.", "2026-01-02"],
        ["Tom Vale works for Fenwick.", null],
    ]);
    while kip(found).await != learned {
        again().await;
    }
    let claims = r#"FIND(?s.attributes.name, ?l.metadata.confidence) WHERE { ?l (?s, "works_for", ?o) } ORDER BY ?s.attributes.name"#;
    while kip(claims).await != json!([["Ida Berg", 0.85], ["Tom Vale", 0.85]]) {
        again().await;
    }
    // A second call teaches nothing new.
    assert!(world.answered(&ada, r#"staff {"at": "Oslo"}?"#).await.contains("Fenwick"));
    let notes = |world: &World| {
        let asked = world.daemon.model.asked();
        let last = asked.iter().rev().find(|request| request.response_format.is_none()).unwrap();
        last.messages.iter().filter_map(|message| message.content.clone()).collect::<String>()
    };
    answered(&mut world.socket, &ada, &world.chat, "hers", "Who works for Fenwick?").await;
    assert!(notes(&world).contains("(As far as you were told: Tom Vale, Ida Berg)"), "{}", notes(&world));
    assert_eq!(kip(found).await, learned);
    // The notes for other people do not have it.
    answered(&mut world.socket, &ben, &world.chat, "his", "Who works for Fenwick?").await;
    assert!(!notes(&world).contains("Tom Vale"), "{}", notes(&world));
}
