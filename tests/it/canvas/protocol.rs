//! What every canvas does, beyond a chat's messages: resume, views, presence, looking back, limits, attachments.

use futures::future::join_all;
use http::Request;
use lifeform::Limits;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::Mirror;
use tokio::net::TcpStream;

use crate::canvas::subscribers::{limited, quiet};

#[tokio::test]
async fn every_earlier_revision_can_be_looked_at_as_it_was() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    let mut seen = vec![op.get(&format!("{base}/state")).await.body["state"].clone()];
    op.topic(&base, "t").await;
    seen.push(op.get(&format!("{base}/state")).await.body["state"].clone());
    let path = format!("{base}/topics/t/messages");
    for (method, at, body) in [
        (Method::POST, path.clone(), json!({"id": "m", "content": "one"})),
        (Method::PATCH, format!("{path}/m"), json!({"content": "two", "reason": "better"})),
        (Method::POST, format!("{base}/topics/t/read"), json!({"upto": "m"})),
        (Method::PATCH, format!("{base}/topics/t"), json!({"title": "T", "turns": "mentioned"})),
        (Method::DELETE, format!("{path}/m?reason=no"), json!(null)),
        (Method::POST, format!("{path}/m/restore"), json!(null)),
    ] {
        let body = (!body.is_null()).then_some(body);
        op.send(method, &at, &[], body).await.status.is_success().then_some(()).expect("done");
        seen.push(op.get(&format!("{base}/state")).await.body["state"].clone());
    }
    for (rev, state) in seen.iter().enumerate() {
        let then = op.get(&format!("{base}/state?at_rev={rev}")).await;
        assert!(then.headers["etag"].to_str().unwrap().ends_with(&format!(":{rev}\"")));
        assert_eq!(&then.expect(StatusCode::OK)["state"], state, "revision {rev}");
    }
    let restored = op.get(&format!("{path}/m")).await.expect(StatusCode::OK);
    assert_eq!((&restored["status"], &restored["content"]), (&json!("final"), &json!("two")));
    op.get(&format!("{base}/state?at_rev=99")).await.refused(404, "not_found");
    op.get(&format!("{base}/state?at_rev=x")).await.refused(400, "query");
}

/// RFC 8441: a CONNECT that names the protocol, whose stream is the socket.
#[tokio::test]
async fn a_socket_may_come_over_http_2() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    let tcp = TcpStream::connect(op.base.strip_prefix("http://").unwrap()).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    // That it may be asked for is among the settings, which come before any answer.
    let (health, mut client) = (Request::get(format!("{}/health", op.base)), client.ready().await.unwrap());
    client.send_request(health.body(()).unwrap(), true).unwrap().0.await.unwrap();
    let ask = Request::connect(format!("{}{base}/subscribe", op.base)).extension(h2::ext::Protocol::from("websocket"));
    let ask = ask.header("authorization", format!("Bearer {}", op.token)).header("sec-websocket-version", "13");
    let (answer, mut writes) = client.ready().await.unwrap().send_request(ask.body(()).unwrap(), false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    let hello = br#"{"t":"hello","v":1}"#;
    // A text in one frame, under a mask of zeros.
    let frame = [&[0x81, 0x80 | hello.len() as u8, 0, 0, 0, 0], hello.as_slice()].concat();
    writes.send_data(frame.into(), false).unwrap();
    let (mut reads, mut told) = (answer.into_body(), Vec::new());
    while !String::from_utf8_lossy(&told).contains(r#""t":"live""#) {
        let bytes = reads.data().await.expect("it goes on").unwrap();
        reads.flow_control().release_capacity(bytes.len()).unwrap();
        told.extend_from_slice(&bytes);
    }
    assert!(String::from_utf8_lossy(&told).contains(r#""mode":"snapshot""#));
}

#[tokio::test]
async fn every_subscriber_receives_all_changes_in_order_to_the_end() {
    let limits = Limits { ops_per_s: 1e6, bytes_per_s: 1e9, ..Limits::default() };
    let (daemon, base) = limited(limits).await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let mut crowd = join_all((0..40).map(|_| op.subscribe(&base, None))).await;
    let writers = (0..4).map(|writer| {
        let base = &base;
        async move {
            for n in 0..25 {
                op.say(base, "t", &format!("{n} of {writer}")).await;
            }
        }
    });
    join_all(writers).await;
    let whole = op.get(&format!("{base}/state")).await.expect(StatusCode::OK);
    let life = base.split("/canvases").next().unwrap();
    op.delete(life).await.expect(StatusCode::NO_CONTENT);
    for socket in &mut crowd {
        let (frames, code) = socket.closed().await;
        let mut mirror = Mirror::default();
        frames.iter().for_each(|frame| mirror.take(frame));
        assert_eq!((code, Some(mirror.rev)), (4410, whole["rev"].as_u64()));
        assert_eq!(mirror.state["topics"]["t"]["messages"].as_object().map(serde_json::Map::len), Some(100));
    }
}

#[tokio::test]
async fn a_log_is_cut_and_who_is_further_back_begins_with_a_snapshot() {
    let limits = Limits { ops_per_s: 1e6, bytes_per_s: 1e9, keep_ops: 100, keep_days: 1 };
    let (daemon, base) = limited(limits).await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let say = async |from: u64| {
        for batch in 0..10 {
            let message = |n: u64| {
                json!({
                    "kind": "message.append",
                    "topic": "t",
                    "id": format!("m{}", from + batch * 100 + n),
                    "content": "x",
                })
            };
            let ops: Vec<Value> = (0..100).map(message).collect();
            op.post(&format!("{base}/ops"), json!({"ops": ops})).await.expect(StatusCode::OK);
        }
    };
    say(0).await;
    say(1000).await;
    // All of it is new: nothing is cut yet.
    op.get(&format!("{base}/ops?after=5")).await.expect(StatusCode::OK);
    daemon.clock.advance_ms(2 * 86_400_000);
    say(2000).await;
    // Rows are written beside what is written, and the log is cut with them.
    while op.get(&base).await.body["log"]["from_rev"] == 0 {
        tests::again().await;
    }
    op.get(&format!("{base}/ops?after=5")).await.refused(410, "reset");
    op.get(&format!("{base}/state?at_rev=5")).await.refused(409, "state");
    let from = op.get(&base).await.expect(StatusCode::OK)["log"]["from_rev"].as_u64().unwrap();
    assert!([1000, 2000].contains(&from), "{from}");
    assert_eq!(op.get(&format!("{base}/state?at_rev={from}")).await.expect(StatusCode::OK)["rev"], from);
    let epoch = op.get(&base).await.body["epoch"].clone();
    let daemon = daemon.kill_and_restart().await;
    let mut old = daemon.operator.subscribe(&base, Some(json!({"epoch": epoch, "rev": 5}))).await;
    let frames = old.until(|frame| frame["t"] == "live").await;
    assert_eq!((&frames[0]["mode"], &frames[1]["reason"]), (&json!("snapshot"), &json!("log_trimmed")));
    let topics = daemon.operator.get(&format!("{base}/topics")).await.expect(StatusCode::OK);
    assert_eq!(topics["topics"][0]["message_count"], 3000);
    let mut near = daemon.operator.subscribe(&base, Some(json!({"epoch": epoch, "rev": from}))).await;
    let frames = near.until(|frame| frame["t"] == "live").await;
    assert_eq!(frames.iter().filter(|frame| frame["t"] == "delta").count() as u64, 3001 - from);
}

#[tokio::test]
async fn one_of_many_concurrent_guarded_amendments_succeeds() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let path = format!("{base}/topics/t/messages/m");
    op.post(&format!("{base}/topics/t/messages"), json!({"id": "m", "content": "0"})).await.expect(StatusCode::CREATED);
    let tag = op.get(&path).await.headers["etag"].to_str().unwrap().to_owned();
    let guarded =
        (0..100).map(|n| {
            let (op, path, tag) = (op.clone(), path.clone(), tag.clone());
            async move {
                op.send(Method::PATCH, &path, &[("if-match", &tag)], Some(json!({"content": format!("g{n}")}))).await
            }
        });
    let answers = join_all(guarded).await;
    let won = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    assert_eq!(won, 1);
    let now = op.get(&path).await.expect(StatusCode::OK);
    for lost in answers.iter().filter(|answer| answer.status != StatusCode::OK) {
        assert_eq!((lost.status.as_u16(), &lost.body["current"]["content"]), (412, &now["content"]));
    }
    let free = (0..100).map(|n| {
        let (op, path) = (op.clone(), path.clone());
        async move {
            op.patch(&path, json!({"content": format!("f{n}")})).await.expect(StatusCode::OK)["rev"].as_u64().unwrap()
        }
    });
    let mut revs = join_all(free).await;
    revs.sort_unstable();
    assert!(revs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{revs:?}");
    let history = op.get(&format!("{path}/revisions")).await.expect(StatusCode::OK)["revisions"].clone();
    assert_eq!(history.as_array().unwrap().len(), 101);
}

#[tokio::test]
async fn one_key_a_hundred_times_at_once_is_one_op() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let path = format!("{base}/topics/t/messages");
    let say = (0..100).map(|_| {
        let (op, path) = (op.clone(), path.clone());
        async move { op.send(Method::POST, &path, &[("idempotency-key", "k")], Some(json!({"content": "once"}))).await }
    });
    let answers = join_all(say).await;
    let fresh = answers.iter().filter(|answer| !answer.headers.contains_key("idempotency-replayed")).count();
    assert_eq!(fresh, 1);
    let first = answers[0].body.clone();
    assert!(answers.iter().all(|answer| answer.status == StatusCode::CREATED && answer.body == first));
    assert_eq!(op.get(&path).await.expect(StatusCode::OK)["messages"].as_array().unwrap().len(), 1);
    assert_eq!(op.get(&base).await.body["rev"], 2);
}

#[tokio::test]
async fn who_sees_a_part_folds_that_part_and_misses_no_revision() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    op.topic(&base, "u").await;
    let mut part = op.socket(&base).await;
    part.send(&json!({"t": "hello", "v": 1, "token": op.token, "paths": ["/topics/t"]})).await;
    let mut mirror = Mirror::default();
    part.until(|frame| frame["t"] == "live").await.iter().for_each(|frame| mirror.take(frame));
    assert_eq!(mirror.state.as_object().unwrap().keys().collect::<Vec<_>>(), ["topics"]);
    let mut last = 0;
    for n in 0..20 {
        last = op.say(&base, if n % 3 == 0 { "t" } else { "u" }, &format!("{n}")).await["rev"].as_u64().unwrap();
    }
    while mirror.rev < last {
        mirror.take(&part.next().await.unwrap());
    }
    let whole = op.get(&format!("{base}/state?form=maps")).await.expect(StatusCode::OK);
    assert_eq!(mirror.state["topics"], json!({"t": whole["state"]["topics"]["t"]}));
}

#[tokio::test]
async fn who_is_there_is_shown_and_forgotten() {
    let (daemon, base) = quiet().await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    let mut watching = daemon.operator.socket(&base).await;
    watching.send(&json!({"t": "hello", "v": 1, "token": daemon.operator.token, "want": ["presence"]})).await;
    watching.until(|frame| frame["t"] == "live").await;
    let mut socket = ada.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    socket.send(&json!({"t": "presence", "state": {"typing": {"topic": "t"}}, "ttl": 60})).await;
    let seen = watching.until(|frame| frame["t"] == "presence").await.pop().unwrap();
    assert_eq!((&seen["who"]["id"], &seen["state"]["typing"]["topic"]), (&json!("user:ada"), &json!("t")));
    bob.post(&format!("{base}/presence"), json!({"state": {"looking": "n1"}, "ttl": 120}))
        .await
        .expect(StatusCode::NO_CONTENT);
    watching.until(|frame| frame["t"] == "presence" && frame["who"]["id"] == "user:bob").await;
    let present = bob.get(&format!("{base}/presence")).await.expect(StatusCode::OK);
    assert_eq!(present["present"].as_array().unwrap().len(), 2);
    drop(socket);
    assert_eq!(watching.until(|frame| frame["t"] == "gone").await.pop().unwrap()["who"]["id"], "user:ada");
    let mut late = daemon.operator.socket(&base).await;
    late.send(&json!({"t": "hello", "v": 1, "token": daemon.operator.token})).await;
    assert!(late.until(|frame| frame["t"] == "live").await.iter().any(|frame| frame["who"]["id"] == "user:bob"));
    // Who has no token any more is not there any more.
    daemon.operator.delete("/v1/tokens/user:bob").await.expect(StatusCode::NO_CONTENT);
    watching.until(|frame| frame["t"] == "gone" && frame["who"]["id"] == "user:bob").await;
    let present = daemon.operator.get(&format!("{base}/presence")).await.expect(StatusCode::OK);
    assert_eq!(present["present"], json!([]));
    let bob = daemon.person("user:bob", "participant").await;
    bob.post(&format!("{base}/presence"), json!({"state": "x"})).await.refused(422, "schema");
    bob.post(&format!("{base}/presence"), json!({"state": {"x": "x".repeat(4000)}})).await.refused(422, "schema");
    bob.post(&format!("{base}/presence"), json!({"state": {}, "ttl": 4000})).await.refused(422, "schema");
}

#[tokio::test]
async fn an_actor_that_does_too_much_is_told_and_the_others_are_not() {
    let (daemon, base) = limited(Limits { ops_per_s: 1.0, ..Limits::default() }).await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    ada.topic(&base, "t").await;
    let path = format!("{base}/topics/t/messages");
    let answers = join_all((0..20).map(|n| {
        let (ada, path) = (ada.clone(), path.clone());
        async move { ada.post(&path, json!({"content": format!("{n}")})).await }
    }))
    .await;
    let (said, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.status == StatusCode::CREATED);
    assert!((9..=11).contains(&said.len()), "a burst of ten, and what a second brings: {}", said.len());
    for one in refused {
        assert_eq!(one.headers["retry-after"], "1");
        one.refused(429, "rate");
    }
    bob.post(&path, json!({"content": "I may"})).await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn a_message_carries_what_was_kept_before_it() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let kept =
        op.text(&format!("{base}/attachments"), "<script>hello</script>".into()).await.expect(StatusCode::CREATED);
    let attachment =
        json!({"hash": kept["hash"], "name": "note.html", "media_type": kept["media_type"], "bytes": kept["bytes"]});
    let path = format!("{base}/topics/t/messages");
    let said = op.post(&path, json!({"id": "m", "content": "see", "attachments": [attachment]})).await;
    said.expect(StatusCode::CREATED);
    assert_eq!(op.get(&format!("{path}/m")).await.body["attachments"], json!([attachment]));
    let unknown = json!({"hash": "0".repeat(64), "name": "x", "media_type": "text/plain", "bytes": 1});
    let refused = op.post(&path, json!({"content": "see", "attachments": [unknown]})).await.refused(422, "schema");
    assert_eq!(refused["path"], "attachments");
    let found = op.get(&format!("{base}/attachments/{}", kept["hash"].as_str().unwrap())).await;
    assert_eq!((&found.headers["content-disposition"], found.status), (&"attachment".parse().unwrap(), StatusCode::OK));
    op.get(&format!("{base}/attachments/{}", "0".repeat(64))).await.refused(404, "not_found");
    // A message that is taken away for good takes its attachments along, unless another message has them, too.
    let attached = format!("{base}/attachments/{}", kept["hash"].as_str().unwrap());
    let again = op.post(&path, json!({"id": "again", "content": "see", "attachments": [attachment]})).await;
    again.expect(StatusCode::CREATED);
    for (id, status) in [("m", StatusCode::OK), ("again", StatusCode::NOT_FOUND)] {
        op.delete(&format!("{path}/{id}?purge=1")).await.expect(StatusCode::OK);
        assert_eq!(op.get(&attached).await.status, status, "{id}");
    }
    op.text(&format!("{base}/attachments"), String::new()).await.refused(422, "invalid");
    op.text(&format!("{base}/attachments"), "x".repeat(3 << 20)).await.expect(StatusCode::PAYLOAD_TOO_LARGE);
    op.text(&format!("{base}/attachments"), "x".repeat(3 << 19)).await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn people_call_each_other_react_suggest_and_are_given_roles() {
    let (daemon, base) = quiet().await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    ada.topic(&base, "t").await;
    let ops = |who: &tests::Client, ops: Value| {
        let (who, path) = (who.clone(), format!("{base}/ops"));
        async move { who.post(&path, json!({"ops": ops})).await }
    };
    let path = format!("{base}/topics/t/messages");
    bob.post(&path, json!({"id": "b", "content": "here I am"})).await.expect(StatusCode::CREATED);
    ada.post(&path, json!({"id": "m", "content": "@Bob, @user:ada and @nobody: it is 41; mail me@bobby.example"}))
        .await
        .expect(StatusCode::CREATED);
    assert_eq!(ada.get(&format!("{path}/m")).await.body["mentions"], json!(["user:ada", "user:bob"]));
    ops(
        &bob,
        json!([
            {"kind": "message.react", "topic": "t", "id": "m", "reaction": "👍"},
            {"kind": "message.suggest", "topic": "t", "id": "m", "content": "it is 42", "reason": "arithmetic"},
        ]),
    )
    .await
    .expect(StatusCode::OK);
    ops(&bob, json!([{"kind": "message.settle", "topic": "t", "id": "m", "suggestion": 1, "accept": true}]))
        .await
        .refused(403, "forbidden");
    ops(&ada, json!([{"kind": "message.settle", "topic": "t", "id": "m", "suggestion": 1, "accept": true}]))
        .await
        .expect(StatusCode::OK);
    let message = ada.get(&format!("{path}/m")).await.expect(StatusCode::OK);
    assert_eq!(
        (&message["content"], &message["suggestions"][0]["status"], &message["reactions"]["👍"]),
        (&json!("it is 42"), &json!("accepted"), &json!(["user:bob"]))
    );
    assert!(message["revisions"][0]["reason"].as_str().unwrap().contains("user:bob"));
    // What adds to a message is linked to it.
    bob.post(&path, json!({"id": "s", "content": "and a half", "supplements": "m"})).await.expect(StatusCode::CREATED);
    bob.post(&path, json!({"content": "x", "supplements": "none"})).await.refused(404, "not_found");
    // Who opened a topic gives roles in it.
    let role = |role: Value| json!([{"kind": "topic.role", "id": "t", "who": "user:bob", "role": role}]);
    ops(&bob, role(json!("moderator"))).await.refused(403, "forbidden");
    ops(&ada, role(json!("listener"))).await.expect(StatusCode::OK);
    bob.post(&path, json!({"content": "hush"})).await.refused(403, "forbidden");
    ops(&ada, role(Value::Null)).await.expect(StatusCode::OK);
    bob.post(&path, json!({"content": "again"})).await.expect(StatusCode::CREATED);
    bob.patch(&format!("{base}/topics/t"), json!({"archived": true})).await.refused(403, "forbidden");
    ada.patch(&format!("{base}/topics/t"), json!({"archived": true})).await.expect(StatusCode::OK);
    bob.post(&path, json!({"content": "late"})).await.refused(409, "state");
    bob.post(&format!("{base}/topics/t/read"), json!({"upto": "m"})).await.expect(StatusCode::OK);
    assert_eq!(ada.get(&format!("{base}/topics/t")).await.body["read"]["user:bob"]["upto"], "m");
    let latest = ada.get(&format!("{path}?before=s&limit=1")).await.expect(StatusCode::OK);
    assert_eq!((latest["messages"].as_array().unwrap().len(), &latest["messages"][0]["id"]), (1, &json!("m")));
}

#[tokio::test]
async fn canvases_are_made_once_and_of_one_type() {
    let (daemon, base) = quiet().await;
    let canvases = base.rsplit_once('/').unwrap().0;
    let make = |body: Value| daemon.operator.post(canvases, body);
    let one = make(json!({"type": "chat", "title": "Side", "id": "side"})).await.expect(StatusCode::CREATED);
    assert_eq!(make(json!({"type": "chat", "title": "Side", "id": "side"})).await.expect(StatusCode::CREATED), one);
    make(json!({"type": "zmind", "title": "Side", "id": "side"})).await.refused(409, "exists");
    make(json!({"type": "poem", "title": "Side"})).await.refused(422, "invalid");
    make(json!({"type": "chat", "title": "  "})).await.refused(422, "schema");
    make(json!({"type": "chat", "title": "x", "id": "a/b"})).await.refused(422, "schema");
    daemon.operator.topic(&format!("{canvases}/side"), "t").await;
    assert_eq!(daemon.operator.get(&base).await.body["rev"], 0, "each canvas has revisions of its own");
    make(json!({"type": "zmind", "title": "Map", "id": "map"})).await.expect(StatusCode::CREATED);
    daemon.operator.get(&format!("{canvases}/map/topics")).await.refused(404, "not_a_chat");
    let observer = daemon.person("user:eve", "observer").await;
    observer.post(canvases, json!({"type": "chat", "title": "no"})).await.refused(403, "forbidden");
    observer.post(&format!("{base}/ops"), json!({"ops": []})).await.refused(403, "forbidden");
}

#[tokio::test]
async fn however_little_one_will_wait_for_nothing_is_held_back() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    let mut socket = op.socket(&base).await;
    socket.send(&json!({"t": "hello", "v": 1, "token": op.token, "max_lag": 0})).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&base, "t").await;
    let last = op.say(&base, "t", "hello").await;
    socket.until(|frame| frame["rev"] == last["rev"]).await;
}

#[tokio::test]
async fn a_guard_holds_for_every_op_of_a_write() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let path = format!("{base}/topics/t/messages");
    for id in ["a", "b"] {
        op.post(&path, json!({"id": id, "content": id})).await.expect(StatusCode::CREATED);
    }
    let seen = op.get(&base).await.body["rev"].clone();
    op.patch(&format!("{path}/b"), json!({"content": "somebody else's"})).await.expect(StatusCode::OK);
    let amend = |id: &str| json!({"kind": "message.amend", "topic": "t", "id": id, "content": "mine"});
    let both = json!({"ops": [amend("a"), amend("b")], "base_rev": seen});
    op.post(&format!("{base}/ops"), both).await.refused(412, "stale");
    assert_eq!(op.get(&format!("{path}/a")).await.body["content"], "a", "nothing is done by halves");
    // What its own ops changed is not held against a write.
    let twice = json!({"ops": [amend("a"), amend("a")], "base_rev": seen});
    op.post(&format!("{base}/ops"), twice).await.expect(StatusCode::OK);
    let ahead = json!({"ops": [amend("a")], "base_rev": 1_000});
    op.post(&format!("{base}/ops"), ahead).await.refused(422, "schema");
}

#[tokio::test]
async fn a_small_write_with_a_large_effect_is_refused_or_delivered() {
    let (daemon, base) = limited(Limits { bytes_per_s: 1e9, ..Limits::default() }).await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let path = format!("{base}/topics/t/messages");
    for n in 0..80 {
        op.post(&path, json!({"id": format!("m{n}"), "content": "x".repeat(30_000)})).await.expect(StatusCode::CREATED);
    }
    let mut watcher = op.subscribe(&base, None).await;
    watcher.until(|frame| frame["t"] == "live").await;
    let retract = |n: std::ops::Range<u64>| {
        let ops: Vec<Value> =
            n.map(|n| json!({"kind": "message.retract", "topic": "t", "id": format!("m{n}")})).collect();
        op.post_ops(&base, ops)
    };
    retract(0..80).await.refused(422, "schema");
    let done = retract(0..20).await.expect(StatusCode::OK);
    let frames = watcher.until(|frame| frame["rev"] == done["rev"]).await;
    assert_eq!(frames.iter().filter(|frame| frame["kind"] == "message.retract").count(), 20);
}

#[tokio::test]
async fn a_purge_removes_a_message_from_state_history_and_log() {
    let (daemon, base) = quiet().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    let kept = op.say(&base, "t", "The weather is fine.").await;
    let said = op.say(&base, "t", "My secret is Xyzzy.").await;
    let path = format!("{base}/topics/t/messages/{}", said["id"].as_str().unwrap());
    op.patch(&path, json!({"content": "My secret was Xyzzy."})).await.expect(StatusCode::OK);
    let mut watching = op.subscribe(&base, None).await;
    watching.until(|frame| frame["t"] == "live").await;
    let ada = daemon.person("user:ada", "participant").await;
    ada.delete(&format!("{path}?purge=1")).await.refused(403, "forbidden");
    op.delete(&format!("{path}?purge=2")).await.refused(422, "invalid");
    op.delete(&format!("{path}?purge=1&reason=privacy")).await.expect(StatusCode::OK);
    let restored = op.post(&format!("{path}/restore"), json!({})).await;
    assert_eq!(
        restored.refused(409, "state")["detail"],
        "it was taken away for good: nothing of it is left to restore"
    );
    let seen = watching.until(|frame| frame["kind"] == "message.purge").await;
    assert!(!json!(seen).to_string().contains("Xyzzy"));
    for _ in 0..2 {
        let everything = [
            op.get(&format!("{base}/state")).await.expect(StatusCode::OK),
            op.get(&format!("{path}/revisions")).await.expect(StatusCode::OK),
            op.get(&format!("{base}/ops?after={}&limit=100", said["rev"])).await.body,
            op.get(&format!("{base}/ops?after=0&limit=100")).await.body,
            op.get(&format!("{base}/state?at_rev={}", said["rev"])).await.body,
        ];
        assert!(!json!(everything).to_string().contains("Xyzzy"), "{everything:?}");
        assert!(everything[0].to_string().contains("The weather is fine."));
        let message = op.get(&path).await.expect(StatusCode::OK);
        assert_eq!((&message["status"], &message["purged_by"]["reason"]), (&json!("retracted"), &json!("privacy")));
    }
    assert_eq!(
        op.get(&format!("{base}/topics/t/messages/{}", kept["id"].as_str().unwrap())).await.expect(StatusCode::OK)["content"],
        "The weather is fine."
    );
    op.delete(&format!("{path}?purge=1")).await.expect(StatusCode::OK);
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    assert!(!op.get(&format!("{base}/state")).await.expect(StatusCode::OK).to_string().contains("Xyzzy"));
    op.say(&base, "t", "It goes on.").await;
    // From the acknowledgement on, nobody is told of it who was behind.
    for _ in 0..8 {
        let said = op.say(&base, "t", "My secret is Plugh.").await;
        op.say(&base, "t", "And more.").await;
        let (before, id) = (said["rev"].as_u64().unwrap() - 1, said["id"].as_str().unwrap());
        op.delete(&format!("{base}/topics/t/messages/{id}?purge=1")).await.expect(StatusCode::OK);
        op.get(&format!("{base}/ops?after={before}")).await.refused(410, "reset");
        let whole = op.get(&format!("{base}/state?form=maps")).await;
        let epoch = whole.headers["etag"].to_str().unwrap().trim_matches(['"', 'W', '/']).split(':').next().unwrap();
        let mut behind = op.subscribe(&base, Some(json!({"epoch": epoch, "rev": before}))).await;
        let told = behind.until(|frame| frame["t"] == "live").await;
        assert!(told.iter().any(|frame| frame["reason"] == "log_trimmed"), "{told:?}");
        assert!(!json!(told).to_string().contains("Plugh"), "{told:?}");
    }
}
