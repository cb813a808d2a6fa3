//! `/mcp`: the same memory for whatever agent speaks MCP (MISSION P4).

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use crate::knowledge::records::{RECORDS, kip, record, save};

/// Calls a tool at `/mcp`. Returns its structured content, or the text of its error.
pub(crate) async fn tool(client: &Client, name: &str, arguments: Value) -> Result<Value, String> {
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let accept = [("accept", "application/json, text/event-stream")];
    let answer = client.send(Method::POST, "/mcp", &accept, Some(call)).await.expect(StatusCode::OK);
    let result = &answer["result"];
    match result["isError"].as_bool() {
        Some(true) => Err(result["content"][0]["text"].as_str().unwrap().to_owned()),
        _ => Ok(result["structuredContent"].clone()),
    }
}

#[tokio::test]
async fn one_memory_through_mcp_and_every_other_door() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let bob = daemon.member("user:bob", &[]).await;
    let saved = tool(
        &ada,
        "knowledge_save",
        json!({
            "task": "mooring",
            "content": "Use two lines.",
            "types": ["tool"],
            "source_name": "log",
            "urls": ["https://a.example"],
        }),
    )
    .await
    .unwrap();
    let id = saved["knowledge_id"].as_str().unwrap();
    let kept = ada.get(&format!("{RECORDS}/{id}")).await.expect(StatusCode::OK);
    assert_eq!(
        kept["source"],
        json!({"name": "log", "timestamp": "2026-01-01T00:00:00Z", "urls": ["https://a.example"]})
    );
    // Written by REST and by KIP, found by the tool under both its names.
    let other = save(&ada, record("mooring in wind", "Use four.")).await;
    kip(&ada, r#"UPSERT { CONCEPT { {type: "Knowledge", name: "third"} SET ATTRIBUTES { task: "mooring at night", content: "Use a lamp." } } }"#).await;
    for name in ["knowledge_search", "get_knowledge"] {
        let found = tool(&ada, name, json!({"query": "mooring"})).await.unwrap();
        let mut ids: Vec<&str> =
            found["results"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        let mut wanted = [id, other.as_str(), "third"];
        wanted.sort_unstable();
        assert_eq!(ids, wanted);
    }
    assert_eq!(tool(&bob, "knowledge_search", json!({"query": "mooring"})).await.unwrap()["count"], 0);
    tool(&ada, "knowledge_update", json!({"knowledge_id": id, "add_helpful_case": {"task": "t"}, "update_score": 4}))
        .await
        .unwrap();
    let eval = ada.get(&format!("{RECORDS}/{id}")).await.body["eval"].clone();
    assert_eq!((&eval["score"], &eval["helpful"]), (&json!(4), &json!(1)));
    let judged = tool(
        &ada,
        "knowledge_batch_update",
        json!({"feedback_list": [{"knowledge_id": "third", "is_helpful": false}]}),
    )
    .await;
    assert_eq!(judged.unwrap(), json!({"updated": 1, "errors": []}));
    assert_eq!(tool(&ada, "knowledge_list", json!({"types": ["tool"]})).await.unwrap()["count"], 1);
    assert_eq!(tool(&ada, "knowledge_slim", json!({})).await.unwrap()["merged"], json!([]));
    let unknown = tool(&ada, "knowledge_slim", json!({"model": "any"})).await.unwrap_err();
    assert!(unknown.contains("no model or tier"), "{unknown}");
    let nobody = tool(&ada, "kp_reputation_query", json!({"agent_id": "agent:nobody"})).await.unwrap();
    assert_eq!((&nobody["score"], &nobody["contributions"]), (&json!(0.0), &json!(0)));
    let unit = json!({"@type": "Pattern", "name": "Look twice"});
    tool(&bob, "kp_contribute_knowledge", json!({"unit": unit, "visibility": "network"})).await.unwrap();
    tool(&bob, "kp_contribute_knowledge", json!({"unit": unit, "visibility": "private"})).await.unwrap();
    let known = tool(&ada, "kp_reputation_query", json!({"agent_id": "user:bob"})).await.unwrap();
    assert_eq!((&known["score"], &known["contributions"]), (&json!(0.2), &json!(1)), "what is hidden counts nothing");
    let here = tool(&ada, "kp_provider_discover", json!({})).await.unwrap();
    assert_eq!(here["providers"][0]["endpoint"], "/v1/knowledge");
    tool(&ada, "resource_save", json!({"id": "code/x", "secure_body": "hush-hush-1"})).await.unwrap();
    let resource = tool(&ada, "resource_get", json!({"id": "code/x"})).await.unwrap();
    assert_eq!((&resource["has_secure_body"], &resource["secure_body"]), (&json!(true), &Value::Null));
    let answer = tool(&ada, "execute_kip", json!({"command": r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: $id} }"#, "parameters": {"id": id}})).await;
    assert_eq!(answer.unwrap()["result"]["deleted_concepts"], 1);
    ada.get(&format!("{RECORDS}/{id}")).await.refused(404, "knowledge_not_found");
    // What is wrong is told to the agent, which may then do better.
    for (name, arguments, says) in [
        ("knowledge_save", json!({"task": "t"}), "content is missing"),
        ("knowledge_search", json!({}), "missing field `query`"),
        ("knowledge_search", json!({"query": "x", "types": ["song"]}), "types is one of"),
        ("knowledge_update", json!({"knowledge_id": id}), "there is no"),
        ("resource_get", json!({"id": "nothing"}), "there is no"),
        ("paint", json!({}), "there is no tool paint"),
        ("execute_kip", json!({"command": "FIND(?x", "nexus": "lf_none"}), "not_found"),
    ] {
        let told = tool(&ada, name, arguments).await.unwrap_err();
        assert!(told.contains(says), "{name}: {told}");
    }
    // Canvases.
    let (life, chat) = daemon.lifeform().await;
    let said =
        tool(&ada, "canvas_post", json!({"lifeform": life, "topic": "by_mcp", "content": "Hello."})).await.unwrap();
    assert!(said["rev"].as_u64().unwrap() >= 2, "{said}");
    tool(&ada, "canvas_post", json!({"lifeform": life, "topic": "by_mcp", "content": "Again."})).await.unwrap();
    let read = tool(&ada, "canvas_read", json!({"lifeform": life})).await.unwrap();
    assert!(read["state"].to_string().contains("Again."));
    let shown = daemon.operator.get(&format!("{chat}/topics/by_mcp/messages")).await.expect(StatusCode::OK);
    assert_eq!(
        (&shown["messages"][0]["content"], &shown["messages"][0]["sender"]),
        (&json!("Hello."), &json!("user:ada"))
    );
    // Who may only look, looks.
    let looker = daemon.person("user:lee", "observer").await;
    assert_eq!(tool(&looker, "knowledge_search", json!({"query": "x"})).await.unwrap()["count"], 0);
    for (name, arguments) in
        [("knowledge_save", record("t", "c")), ("canvas_post", json!({"lifeform": life, "topic": "t", "content": "c"}))]
    {
        assert!(tool(&looker, name, arguments).await.unwrap_err().contains("may only look"));
    }
    assert_eq!(tool(&looker, "execute_kip", json!({"command": "DESCRIBE DOMAINS"})).await.unwrap().get("error"), None);
    // Without a token nobody comes in, and from a page of somebody else's neither.
    let nobody = Client::new(daemon.operator.base.clone(), String::new());
    nobody.post("/mcp", json!({})).await.refused(401, "no_token");
    let stranger = [("origin", "https://evil.example"), ("accept", "application/json, text/event-stream")];
    ada.send(Method::POST, "/mcp", &stranger, Some(json!({}))).await.refused(403, "forbidden");
}

#[tokio::test]
async fn mcp_tools_refuse_unknown_members_and_dry_runs_write_nothing() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    kip(op, r#"UPSERT { CONCEPT { {type: "Domain", name: "Dry"} } }"#).await;
    let delete = r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: "Dry"} }"#;
    let there = async || kip(op, r#"FIND(?d.name) WHERE { ?d {type: "Domain", name: "Dry"} }"#).await.to_string();
    tool(op, "execute_kip", json!({"command": delete, "dry_run": true})).await.unwrap();
    let refused = tool(op, "execute_kip", json!({"command": delete, "read_only": true})).await.unwrap_err();
    assert!(refused.contains("unknown parameter `read_only`"), "{refused}");
    assert!(there().await.contains("Dry"), "a trial run and a misspelt member wrote nothing");
    tool(op, "execute_kip", json!({"command": delete, "readonly": true})).await.unwrap_err();
    assert!(there().await.contains("Dry"));
    let several = json!({"commands": ["DESCRIBE DOMAINS", "DESCRIBE PRIMER"], "dialect": "rc11"});
    tool(op, "execute_kip", several).await.unwrap();
    tool(op, "execute_kip", json!({"command": "FIND("})).await.expect_err("a KIP error is an error of the call");
    let listed = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let accept = [("accept", "application/json, text/event-stream")];
    let listed = op.send(Method::POST, "/mcp", &accept, Some(listed)).await.expect(StatusCode::OK);
    let odd = op.send(Method::POST, "/mcp", &accept, Some(json!({"zzz": 1}))).await.expect(StatusCode::BAD_REQUEST);
    assert_eq!(odd["error"]["code"], -32600, "{odd}");
    // Nothing is dropped that is not understood, and each refusal names the request.
    let call = |message: Value| op.send(Method::POST, "/mcp", &accept, Some(message));
    let named = json!({"name": "canvas_read", "arguments": []});
    for (message, code, says) in [
        (json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}, "extra": 1}), -32600, "extra"),
        (json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": named}), -32602, "arguments"),
        (
            json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x", "argument": {}}}),
            -32602,
            "argument",
        ),
        (json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": ["x"]}), -32602, "params"),
    ] {
        let refused = call(message).await.expect(StatusCode::BAD_REQUEST);
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(code), &json!(7)), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(says), "{refused}");
    }
    let broken = reqwest::Client::new().post(format!("{}/mcp", op.base)).bearer_auth(&daemon.daemon.token);
    let broken = broken.header("accept", accept[0].1).header("content-type", "application/json").body("{");
    let broken: Value = broken.send().await.unwrap().json().await.unwrap();
    assert_eq!((&broken["error"]["code"], &broken["id"]), (&json!(-32700), &Value::Null), "{broken}");
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 21);
    for known in tools {
        let name = known["name"].as_str().unwrap();
        assert_eq!(known["inputSchema"]["additionalProperties"], false, "{name}");
        assert_eq!(known["outputSchema"]["type"], "object", "{name}");
        let refused = tool(op, name, json!({"no_such_member": 1})).await.unwrap_err();
        assert!(refused.contains("no_such_member"), "{name}: {refused}");
    }
}
