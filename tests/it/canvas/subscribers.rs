//! The chat canvas over REST and WebSocket: one state, one revision number, nothing lost, nothing doubled.

use std::sync::Arc;

use lifeform::Limits;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, Mirror, TestDaemon, honest, text_of};

/// A canvas whose lifeform is stopped, so that only people write on it.
pub(crate) async fn quiet() -> (TestDaemon, String) {
    limited(Limits::default()).await
}

/// The same, and an actor may do so much.
pub(crate) async fn limited(limits: Limits) -> (TestDaemon, String) {
    let daemon = TestDaemon::builder().config(move |config| config.canvas = limits).start(honest).await;
    let (id, base) = daemon.lifeform().await;
    daemon.operator.post(&format!("/v1/lifeforms/{id}/stop"), json!({})).await.expect(StatusCode::OK);
    (daemon, base)
}

async fn state(client: &Client, base: &str) -> Value {
    client.get(&format!("{base}/state")).await.expect(StatusCode::OK)
}

#[tokio::test]
async fn a_canvas_says_what_it_is_and_how_to_work_on_it() {
    let (daemon, base) = quiet().await;
    let listed = daemon.operator.get(base.rsplit_once('/').unwrap().0).await.expect(StatusCode::OK);
    assert_eq!(listed["canvases"][0]["id"], "canvas_chat_main");
    let meta = daemon.operator.get(&base).await.expect(StatusCode::OK);
    assert_eq!(meta["type"], "chat");
    assert_eq!(meta["api"]["rest_base_path"], base);
    assert_eq!(meta["api"]["realtime_protocol"]["type"], "websocket");
    assert_eq!(meta["api"]["realtime_protocol"]["endpoint"], format!("{base}/subscribe"));
    daemon.operator.get(&base.replace("main", "other")).await.refused(404, "canvas_not_found");
}

#[tokio::test]
async fn several_people_write_at_once_and_all_see_the_same() {
    let (daemon, base) = quiet().await;
    daemon.operator.topic(&base, "t1").await;
    let mut watcher = daemon.operator.subscribe(&base, None).await;
    let mut mirror = Mirror::default();
    watcher.until(|frame| frame["t"] == "live").await.iter().for_each(|frame| mirror.take(frame));
    let mut writers = Vec::new();
    for name in ["ada", "bob", "eve"] {
        let (person, base) = (daemon.person(&format!("user:{name}"), "participant").await, base.clone());
        writers.push(tokio::spawn(async move {
            for n in 0..20 {
                person.say(&base, "t1", &format!("{name} {n}")).await;
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let last = state(&daemon.operator, &base).await["rev"].as_u64().unwrap();
    watcher.until(|frame| frame["rev"] == last).await.iter().for_each(|frame| mirror.take(frame));
    let maps = daemon.operator.get(&format!("{base}/state?form=maps")).await.expect(StatusCode::OK);
    assert_eq!(mirror.state, maps["state"], "push and pull show one state");
    let rest = state(&daemon.operator, &base).await;
    let messages = rest["state"]["topics"][0]["messages"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 60);
    let of_ada: Vec<&str> =
        messages.iter().filter(|m| m["sender"] == "user:ada").map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(of_ada, (0..20).map(|n| format!("ada {n}")).collect::<Vec<_>>(), "each one's own order is kept");
}

#[tokio::test]
async fn a_subscriber_resumes_where_it_was_from_any_revision() {
    let (daemon, base) = quiet().await;
    daemon.operator.topic(&base, "t1").await;
    for n in 0..30 {
        daemon.operator.say(&base, "t1", &format!("m{n}")).await;
    }
    let mut all = daemon.operator.subscribe(&base, Some(json!({"epoch": "other", "rev": 3}))).await;
    let frames = all.until(|frame| frame["t"] == "live").await;
    assert_eq!(
        frames.iter().map(|frame| frame["t"].as_str().unwrap()).collect::<Vec<_>>(),
        ["hello", "reset", "snapshot", "live"]
    );
    let (epoch, rev) = (frames[0]["epoch"].clone(), frames[0]["rev"].as_u64().unwrap());
    let pulled = daemon.operator.get(&format!("{base}/ops?after=0&limit=200")).await.expect(StatusCode::OK);
    let daemon = daemon.kill_and_restart().await;
    for from in [0, 1, 17, rev] {
        let mut socket = daemon.operator.subscribe(&base, Some(json!({"epoch": epoch, "rev": from}))).await;
        let frames = socket.until(|frame| frame["t"] == "live").await;
        assert_eq!((&frames[0]["mode"], &frames[0]["replay"]), (&json!("resume"), &json!(rev - from)));
        let deltas: Vec<&Value> = frames.iter().filter(|frame| frame["t"] == "delta").collect();
        assert_eq!(
            deltas.iter().map(|delta| delta["rev"].as_u64().unwrap()).collect::<Vec<_>>(),
            (from + 1..=rev).collect::<Vec<_>>()
        );
        let expected: Vec<&Value> = pulled["ops"].as_array().unwrap().iter().skip(from as usize).collect();
        assert_eq!(deltas, expected, "what is pushed is what is pulled");
    }
    let mut ahead = daemon.operator.subscribe(&base, Some(json!({"epoch": epoch, "rev": rev + 9}))).await;
    assert!(ahead.until(|frame| frame["t"] == "live").await.iter().any(|frame| frame["t"] == "reset"));
}

#[tokio::test]
async fn a_message_is_amended_and_retracted_with_its_history_kept() {
    let (daemon, base) = quiet().await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    ada.topic(&base, "t1").await;
    let said = ada
        .post(&format!("{base}/topics/t1/messages"), json!({"content": "It is 41.", "id": "m1"}))
        .await
        .expect(StatusCode::CREATED);
    let path = format!("{base}/topics/t1/messages/m1");
    bob.patch(&path, json!({"content": "mine now"})).await.refused(403, "forbidden");
    ada.patch(&path, json!({"content": "It is 42.", "reason": "arithmetic", "base_rev": said["rev"]}))
        .await
        .expect(StatusCode::OK);
    ada.patch(&path, json!({"content": "It is 43.", "base_rev": said["rev"]})).await.refused(412, "stale");
    let tag = ada.get(&path).await.headers["etag"].to_str().unwrap().to_owned();
    let by_tag =
        ada.send(Method::PATCH, &path, &[("if-match", &tag)], Some(json!({"content": "It is 42, surely."}))).await;
    by_tag.expect(StatusCode::OK);
    ada.send(Method::PATCH, &path, &[("if-match", &tag)], Some(json!({"content": "x"}))).await.refused(412, "stale");
    ada.send(Method::DELETE, &format!("{path}?reason=never%20mind"), &[], None).await.expect(StatusCode::OK);
    ada.patch(&path, json!({"content": "again"})).await.refused(409, "state");
    let history = ada.get(&format!("{path}/revisions")).await.expect(StatusCode::OK);
    let past: Vec<&str> =
        history["revisions"].as_array().unwrap().iter().map(|one| one["content"].as_str().unwrap()).collect();
    assert_eq!(past, ["It is 41.", "It is 42.", "It is 42, surely."]);
    assert_eq!(history["revisions"][0]["reason"], "arithmetic");
    let message = ada.get(&path).await.expect(StatusCode::OK);
    assert_eq!((&message["status"], &message["content"]), (&json!("retracted"), &json!("")));
    ada.get(&format!("{base}/topics/t1/messages/none")).await.refused(404, "not_found");
    assert_eq!(ada.get(&format!("{base}/topics")).await.expect(StatusCode::OK)["topics"][0]["message_count"], 1);
}

#[tokio::test]
async fn the_same_key_says_it_once() {
    let (daemon, base) = quiet().await;
    daemon.operator.topic(&base, "t1").await;
    let path = format!("{base}/topics/t1/messages");
    let say =
        || daemon.operator.send(Method::POST, &path, &[("idempotency-key", "k1")], Some(json!({"content": "once"})));
    let (first, again) = (say().await, say().await);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(first.expect(StatusCode::CREATED), again.expect(StatusCode::CREATED));
    let messages = daemon.operator.get(&path).await.expect(StatusCode::OK);
    assert_eq!(messages["messages"].as_array().unwrap().len(), 1);
    // A key stands for one thing: something else under it is refused, not swallowed.
    let other = json!({"content": "something else"});
    daemon.operator.send(Method::POST, &path, &[("idempotency-key", "k1")], Some(other)).await.refused(422, "schema");
}

#[tokio::test]
async fn an_answer_streams_and_can_be_interrupted() {
    let go_on = Arc::new(tokio::sync::Notify::new());
    let gate = go_on.clone();
    let daemon = TestDaemon::start(move |request, _| match request.response_format {
        Some(_) => Reply::Text("{\"facts\":[]}".into()),
        None => Reply::Held("One two ".into(), gate.clone(), "three.".into()),
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&base, "t1").await;
    op.say(&base, "t1", "Count?").await;
    let opened = socket.until(|frame| frame["kind"] == "message.stream_open").await;
    assert_eq!(opened.last().unwrap()["actor"]["kind"], "lifeform");
    let streamed = socket.until(|frame| frame["t"] == "stream" && frame["text"] == "two ").await;
    assert_eq!(streamed.last().unwrap()["at_len"], 4);
    // Somebody else may talk meanwhile, and it is not answered before the first answer is done.
    op.say(&base, "t1", "Hello too?").await;
    go_on.notify_one();
    let frames = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(text_of(frames.last().unwrap()), "One two three.");
    let second = socket.until(|frame| frame["t"] == "stream" && frame["text"] == "two ").await;
    let message = second.last().unwrap()["msg"].as_str().unwrap().to_owned();
    op.post(&format!("{base}/topics/t1/messages/{message}/interrupt?reason=enough"), json!({}))
        .await
        .expect(StatusCode::OK);
    go_on.notify_one();
    socket.until(|frame| frame["kind"] == "message.interrupt").await;
    op.say(&base, "t1", "Still there?").await;
    let next = socket.until(|frame| frame["t"] == "stream" && frame["text"] == "two ").await;
    assert_ne!(next.last().unwrap()["msg"], message);
    go_on.notify_one();
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let cut = op.get(&format!("{base}/topics/t1/messages/{message}")).await.expect(StatusCode::OK);
    assert_eq!(cut["status"], "interrupted");
}

#[tokio::test]
async fn the_socket_acknowledges_each_op_once_and_names_its_refusals() {
    let (daemon, base) = limited(Limits { ops_per_s: 5.0, ..Limits::default() }).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = ada.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let op = |cid: &str, op: Value| json!({"t": "op", "cid": cid, "op": op});
    let say = op("c2", json!({"kind": "message.append", "topic": "t1", "id": "m1", "content": "hi"}));
    socket.send(&op("c1", json!({"kind": "topic.create", "id": "t1", "title": "one"}))).await;
    socket.until(|frame| frame["t"] == "acked" && frame["cid"] == "c1").await;
    socket.send(&say).await;
    let acked = socket.until(|frame| frame["t"] == "acked").await.pop().unwrap();
    socket.send(&say).await;
    let again = socket.until(|frame| frame["t"] == "acked").await.pop().unwrap();
    assert_eq!((&again["rev"], &again["dup"]), (&acked["rev"], &json!(true)));
    socket.send(&op("c3", json!({"kind": "message.append", "topic": "none", "id": "m2", "content": "hi"}))).await;
    let refused = socket.until(|frame| frame["t"] == "reject").await.pop().unwrap();
    assert_eq!((&refused["cid"], &refused["code"]), (&json!("c3"), &json!("not_found")));
    socket.send(&json!({"t": "ping", "n": 5})).await;
    assert_eq!(socket.until(|frame| frame["t"] == "pong").await.pop().unwrap()["n"], 5);
    // Past a second's worth of ops the rest are refused, and the socket lives on.
    for n in 0..80 {
        socket
            .send(&op(&format!("r{n}"), json!({"kind": "message.append", "topic": "none", "id": "x", "content": "x"})))
            .await;
    }
    socket.until(|frame| frame["t"] == "reject" && frame["code"] == "rate").await;
    let observer = daemon.person("user:eve", "observer").await;
    let mut looking = observer.subscribe(&base, None).await;
    looking.send(&op("c1", json!({"kind": "topic.create", "id": "t9", "title": "no"}))).await;
    assert_eq!(looking.until(|frame| frame["t"] == "reject").await.pop().unwrap()["code"], "forbidden");
}

#[tokio::test]
async fn wrong_sockets_are_closed_with_their_code() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    let wrong = Client::new(op.base.clone(), "lfd_wrong_wrong_wrong".into());
    assert_eq!(wrong.subscribe(&base, None).await.closed().await.1, 4401);
    assert_eq!(op.subscribe(&base.replace("main", "none"), None).await.closed().await.1, 4404);
    for (frame, code) in [("{\"t\":\"dance\"}", 1007), ("not json", 1007)] {
        let mut socket = op.subscribe(&base, None).await;
        socket.until(|frame| frame["t"] == "live").await;
        futures::SinkExt::send(&mut socket.0, tokio_tungstenite::tungstenite::Message::text(frame)).await.unwrap();
        assert_eq!(socket.closed().await.1, code, "{frame}");
    }
    let mut binary = op.subscribe(&base, None).await;
    futures::SinkExt::send(&mut binary.0, tokio_tungstenite::tungstenite::Message::binary(vec![1])).await.unwrap();
    assert_eq!(binary.closed().await.1, 1003);
    let mut large = op.subscribe(&base, None).await;
    let _ = futures::SinkExt::send(&mut large.0, tokio_tungstenite::tungstenite::Message::text("x".repeat(300 << 10)))
        .await;
    assert!([4413, 1006].contains(&large.closed().await.1));
}

#[tokio::test]
async fn a_socket_authorised_by_header_or_subprotocol_may_just_listen() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    let (daemon, base) = quiet().await;
    for (name, value) in [
        ("authorization", format!("Bearer {}", daemon.operator.token)),
        ("sec-websocket-protocol", format!("ailf.canvas.v1, bearer.{}", daemon.operator.token)),
    ] {
        let mut request = format!("{}{base}/subscribe", daemon.operator.base.replacen("http", "ws", 1))
            .into_client_request()
            .unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        let frames = tests::Socket::over(socket).until(|frame| frame["t"] == "live").await;
        assert_eq!(frames[0]["you"], "user:operator");
    }
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_closed_and_slows_nobody() {
    let (daemon, base) = limited(Limits { ops_per_s: 1e6, bytes_per_s: 1e9, ..Limits::default() }).await;
    let op = &daemon.operator;
    op.topic(&base, "t1").await;
    let mut slow = op.subscribe(&base, None).await;
    slow.until(|frame| frame["t"] == "live").await;
    slow.send(&json!({"t": "presence", "state": {"here": true}, "ttl": 120})).await;
    let mut quick = op.subscribe(&base, None).await;
    quick.until(|frame| frame["t"] == "live").await;
    let big = "x".repeat(30_000);
    let reader =
        tokio::spawn(
            async move { quick.until(|frame| frame["patch"].to_string().contains("the last one")).await.len() },
        );
    // The machine itself takes some megabytes for a socket that nobody reads.
    for _ in 0..1_000 {
        op.say(&base, "t1", &big).await;
    }
    op.say(&base, "t1", "the last one").await;
    assert!(reader.await.unwrap() >= 1_001, "the other subscriber misses nothing");
    let present = async || op.get(&format!("{base}/presence")).await.body["present"].as_array().map_or(0, Vec::len);
    while present().await > 0 {
        tests::again().await;
    }
    let (frames, code) = slow.closed().await;
    assert_eq!(code, 4408);
    let last = frames.last().unwrap();
    assert_eq!((&last["t"], &last["reason"]), (&json!("reset"), &json!("lagged")));
    // It resumes from what it had.
    let had = frames.iter().rev().find(|frame| frame["t"] == "delta").map_or(1, |frame| frame["rev"].as_u64().unwrap());
    let mut again = op.subscribe(&base, Some(json!({"epoch": last["epoch"], "rev": had}))).await;
    let frames = again.until(|frame| frame["t"] == "live").await;
    assert_eq!(frames[1]["prev"], had);
}

#[tokio::test]
async fn sockets_without_a_token_keep_no_known_client_out() {
    let (daemon, base) = quiet().await;
    let mut nobodies = Vec::new();
    for _ in 0..300 {
        nobodies.push(daemon.operator.socket(&base).await);
    }
    let bob = daemon.person("user:bob", "participant").await;
    let mut known = bob.job_socket(&format!("{base}/subscribe")).await;
    known.send(&json!({"t": "hello", "v": 1})).await;
    known.until(|frame| frame["t"] == "live").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_canvas_under_deletion_is_refused_as_not_found() {
    let (daemon, base) = quiet().await;
    daemon.operator.topic(&base, "t").await;
    let (op, path) = (daemon.operator.clone(), format!("{base}/topics/t/messages"));
    let writing = tokio::spawn(async move {
        loop {
            let answer = op.post(&path, json!({"content": "x"})).await;
            if ![StatusCode::CREATED, StatusCode::TOO_MANY_REQUESTS].contains(&answer.status) {
                break answer;
            }
        }
    });
    let life = base.split("/canvases").next().unwrap();
    daemon.operator.delete(life).await.expect(StatusCode::NO_CONTENT);
    let refused = writing.await.unwrap();
    assert_eq!(refused.status, StatusCode::NOT_FOUND, "{}", refused.body);
}
