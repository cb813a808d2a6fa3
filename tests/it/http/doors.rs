//! Every door refuses what it does not understand, and gives the rights of the token that the caller means.

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::{TestDaemon, again, honest};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn an_observer_is_not_present_and_the_token_of_the_hello_counts() {
    let daemon = TestDaemon::start(honest).await;
    let (_, chat) = daemon.lifeform().await;
    let (observer, bob) =
        (daemon.person("user:olga", "observer").await, daemon.person("user:bob", "participant").await);
    let mut socket = observer.socket(&chat).await;
    socket.send(&json!({"t": "hello", "v": 1, "token": observer.token})).await;
    socket.send(&json!({"t": "presence", "state": {"name": "operator"}})).await;
    let refused = socket.until(|frame| frame["t"] == "reject").await.pop().unwrap();
    assert_eq!(refused["code"], "forbidden", "{refused}");
    assert_eq!(bob.get(&format!("{chat}/presence")).await.expect(StatusCode::OK), json!({"present": []}));
    for (hello, code) in [(json!({"token": "none"}), 4401), (json!({"token": bob.token, "paths": ["topics"]}), 1007)] {
        let mut socket = bob.socket(&chat).await;
        let mut first = json!({"t": "hello", "v": 1});
        first.as_object_mut().unwrap().extend(hello.as_object().unwrap().clone());
        socket.send(&first).await;
        assert_eq!(socket.closed().await.1, code, "{hello}");
    }
    let two = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let topic = Some(json!({"title": "t", "id": "t"}));
    bob.send(Method::POST, &format!("{chat}/topics"), &two, topic).await.refused(400, "idempotency_key");
}

#[tokio::test]
async fn sockets_patches_imports_and_tools_refuse_duplicate_members() {
    let daemon = TestDaemon::start(|request, _| match request.messages.iter().any(|message| message.role == "tool") {
        true => Reply::Text(request.messages.last().unwrap().content.clone().unwrap()),
        false => Reply::Tools(vec![("c1".into(), "k".into(), r#"{"command": "A", "command": "B"}"#.into())]),
    })
    .await;
    let (mind, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let mut socket = op.socket(&chat).await;
    socket.send(&json!({"t": "hello", "v": 1, "token": op.token})).await;
    let twice = r#"{"t": "ping", "n": 1, "n": 2}"#;
    futures::SinkExt::send(&mut socket.0, Message::text(twice)).await.unwrap();
    let (frames, code) = socket.closed().await;
    assert_eq!(code, 1007, "{frames:?}");
    let patch = r#"[{"op": "test", "path": "/topics/t/title", "value": "t"}, {"op": "replace", "path": "/topics/t/title", "value": "a", "value": "b"}]"#;
    let request = reqwest::Client::new().patch(format!("{}{chat}", op.base)).bearer_auth(&op.token);
    let request = request.header("content-type", "application/json-patch+json").body(patch);
    assert_eq!(request.send().await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
    let line = r#"{"task": "t", "content": "a", "content": "b", "types": ["strategy"]}"#;
    let taken = op.text("/api/knowledge/import?format=jsonl", line.to_owned()).await;
    assert!(taken.body.to_string().contains("duplicate"), "{}", taken.body);
    assert_eq!(op.get("/api/knowledge").await.expect(StatusCode::OK)["count"], 0);
    let tools = json!([{"name": "k", "approval": "never", "run": {"kip": {"nexus": mind}}}]);
    op.post("/v1/neurons", json!({"id": "n", "memory": "x", "tools": tools})).await.expect(StatusCode::CREATED);
    let said = op.post("/v1/neurons/n/invoke", json!({"input": "x"})).await.expect(StatusCode::OK);
    assert!(said.to_string().contains("duplicate"), "{said}");
}

#[tokio::test]
async fn nobody_takes_the_name_of_another_in_a_chat() {
    let daemon = TestDaemon::start(honest).await;
    let (_, chat) = daemon.lifeform().await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    let named = |name: &str| vec![json!({"kind": "user.name", "name": name})];
    ada.post_ops(&chat, named("Ada L.")).await.expect(StatusCode::OK);
    let robot = daemon.person("lifeform:lf_robot", "lifeform").await;
    for taken in [
        "Ada L.",
        " ada l. ",
        "ADA-L",
        "\u{430}d\u{430} L.",
        "operator",
        "Operator",
        "Ｏperator",
        "\u{43e}perator",
        "system",
        "$system",
        "$self",
        "user:ada",
        "user:operator",
        "user：operator",
    ] {
        for client in [&bob, &robot] {
            let refused = client.post_ops(&chat, named(taken)).await;
            assert_eq!(refused.status, StatusCode::CONFLICT, "{taken}: {}", refused.body);
        }
    }
    for unseen in ["ope\u{200b}rator", "ope\u{ad}rator", "operator\u{202e}", "a\u{2028}b"] {
        bob.post_ops(&chat, named(unseen)).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    }
    bob.post_ops(&chat, named("Bob")).await.expect(StatusCode::OK);
    daemon.operator.post_ops(&chat, named("operator")).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn revoking_the_last_token_cancels_a_paused_invocation() {
    let daemon = TestDaemon::start(|_, _| Reply::Tools(vec![("c1".into(), "mine".into(), "{}".into())])).await;
    let (op, eve) = (&daemon.operator, daemon.person("user:eve", "participant").await);
    let tools = json!([{"name": "mine", "description": "x", "parameters": {"type": "object"}}]);
    op.post("/v1/neurons", json!({"id": "n", "memory": "x", "tools": tools})).await.expect(StatusCode::CREATED);
    let paused = eve.post("/v1/neurons/n/invoke", json!({"input": "x"})).await.expect(StatusCode::ACCEPTED);
    op.delete("/v1/tokens/user:eve").await.expect(StatusCode::NO_CONTENT);
    while op.get("/v1/invocations").await.expect(StatusCode::OK)["invocations"][0]["status"] != "cancelled" {
        again().await;
    }
    let nobody = json!({"principal": "user:anonymous", "role": "participant"});
    op.post("/v1/tokens", nobody).await.refused(403, "forbidden");
    let eve = daemon.person("user:eve", "participant").await;
    let results = json!({"context_token": paused["context_token"], "tool_results": [{"id": "c1", "result": "1"}]});
    let answer = eve.send(Method::POST, "/v1/neurons/n/continue", &[], Some(results)).await;
    assert!(answer.status.is_client_error(), "{} {}", answer.status, answer.body);
}
