//! The gates a canvas must pass, at a size that every run can afford. `KILLS=200` and `FUZZ_OPS=20000` make them long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lifeform::Limits;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Mirror, TestDaemon, honest};
use tokio::sync::watch;

use crate::canvas::subscribers::limited;
use crate::crash::killed::{Victim, kill_again_and_again, kills};

fn times(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|times| times.parse().ok()).unwrap_or(default)
}

/// The revision that each acknowledged op made, by its key.
type Acknowledged = Arc<Mutex<BTreeMap<String, u64>>>;

/// Says, amends and streams in a chat, and grows a map, until the daemon is gone.
async fn write(client: Client, canvases: String, round: usize, writer: usize, acknowledged: Acknowledged) {
    for n in 0.. {
        let id = format!("r{round}w{writer}n{n}");
        let said = |kind: &str, content: Value| json!({"kind": kind, "topic": "t1", "id": id, "content": content});
        let ops = match writer {
            0 => json!([said("message.append", json!("one")), said("message.amend", json!("two"))]),
            1 => {
                json!([
                    {"kind": "message.stream_open", "topic": "t1", "id": id},
                    said("message.checkpoint", json!("so far")),
                ])
            }
            _ => {
                json!([{"kind": "node.add", "id": id, "title": id, "parent": "root"}, {"kind": "node.move", "id": id}])
            }
        };
        let canvas = if writer < 2 { "canvas_chat_main" } else { "map" };
        let path = format!("{canvases}/{canvas}/ops");
        let key = [("idempotency-key", id.as_str())];
        let answer = client.try_send(reqwest::Method::POST, &path, &key, Some(json!({"ops": ops}))).await;
        let Some(answer) = answer.filter(|answer| answer.status == StatusCode::OK) else { return };
        acknowledged.lock().unwrap().insert(id, answer.body["rev"].as_u64().unwrap());
    }
}

/// All deltas of a canvas, page by page.
async fn pulled(client: &Client, base: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let after = all.last().map_or(0, |delta| delta["rev"].as_u64().unwrap());
        let page = client.get(&format!("{base}/ops?after={after}&limit=200")).await.expect(StatusCode::OK);
        let deltas = page["ops"].as_array().unwrap();
        if deltas.is_empty() {
            return all;
        }
        all.extend(deltas.clone());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_loses_no_op_and_doubles_none() {
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::start(folder.path());
    let made = victim.client.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let id = made["id"].as_str().unwrap().to_owned();
    let canvases = format!("/v1/lifeforms/{id}/canvases");
    let chat = format!("{canvases}/canvas_chat_main");
    victim.client.topic(&chat, "t1").await;
    let map = json!({"type": "zmind", "title": "map", "id": "map"});
    victim.client.post(&canvases, map).await.expect(StatusCode::CREATED);
    let root = json!({"ops": [{"kind": "node.add", "id": "root", "title": "root"}]});
    victim.client.post(&format!("{canvases}/map/ops"), root).await.expect(StatusCode::OK);
    victim.kill();
    let acknowledged = Acknowledged::default();
    kill_again_and_again(
        kills().div_ceil(2),
        500,
        |_| Victim::start(folder.path()),
        3,
        |client, round, writer| write(client, canvases.clone(), round, writer, acknowledged.clone()),
    )
    .await;
    let victim = Victim::start(folder.path());
    let acknowledged = acknowledged.lock().unwrap().clone();
    for (base, writers) in [(chat.clone(), ["w0", "w1"].as_slice()), (format!("{canvases}/map"), &["w2"])] {
        let deltas = pulled(&victim.client, &base).await;
        let revs: Vec<u64> = deltas.iter().map(|delta| delta["rev"].as_u64().unwrap()).collect();
        assert_eq!(revs, (1..=deltas.len() as u64).collect::<Vec<_>>(), "{base}: a gap or a repetition");
        let mut ops: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for delta in deltas.iter().filter(|delta| delta["op_id"].is_string()) {
            ops.entry(delta["op_id"].as_str().unwrap()).or_default().push(delta["rev"].as_u64().unwrap());
        }
        assert!(ops.values().all(|revs| revs.len() == 2 && revs[1] == revs[0] + 1), "half a write, or one twice");
        let here = acknowledged.iter().filter(|(id, _)| writers.iter().any(|writer| id.contains(writer)));
        for (id, rev) in here {
            assert_eq!(ops.get(id.as_str()).map(|revs| revs[1]), Some(*rev), "{id} was acknowledged and is lost");
        }
        // What is folded from the log is what the rows have.
        let mut mirror = Mirror {
            rev: 0,
            state: json!({"users": {}, "topics": {}, "nodes": {}, "links": {}, "comments": {}, "proposals": {}}),
        };
        deltas.iter().for_each(|delta| mirror.take(delta));
        let state = victim.client.get(&format!("{base}/state?form=maps")).await.expect(StatusCode::OK);
        for (name, collection) in state["state"].as_object().unwrap() {
            assert_eq!(*collection, mirror.state[name], "{base}: {name}");
        }
    }
    victim.client.post(&format!("/v1/lifeforms/{id}/start"), json!({})).await.expect(StatusCode::OK);
    let messages = victim.client.get(&format!("{chat}/topics/t1/messages")).await.expect(StatusCode::OK);
    let streaming = messages["messages"].as_array().unwrap().iter().filter(|one| one["status"] == "streaming").count();
    assert_eq!(streaming, 0, "what was being written when the daemon died is marked so");
    println!("{} kills, {} writes acknowledged, none lost, none doubled", kills().div_ceil(2), acknowledged.len());
    victim.kill();
}

/// One who listens over a bad line: cut at random, sometimes silent for a while, until it has revision `last`.
async fn listen(client: Client, base: String, seed: u64, mut last: watch::Receiver<Option<u64>>) -> (Mirror, usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut mirror, mut epoch, mut cuts) = (Mirror::default(), Value::Null, 0);
    loop {
        let resume = (!epoch.is_null()).then(|| json!({"epoch": epoch, "rev": mirror.rev}));
        let mut socket = client.subscribe(&base, resume).await;
        let lives = rng.random_range(1..60);
        for _ in 0..lives {
            if rng.random_bool(0.05) {
                tokio::task::yield_now().await;
            }
            if *last.borrow() == Some(mirror.rev) {
                return (mirror, cuts);
            }
            let frame = tokio::select! {
                frame = socket.next() => frame,
                _ = last.changed(), if last.borrow().is_none() => continue,
            };
            let Ok(frame) = frame else { break };
            if frame["t"] == "hello" {
                epoch = frame["epoch"].clone();
            }
            mirror.take(&frame);
        }
        // The line is cut: whatever was on its way is lost.
        drop(socket);
        cuts += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_resumes_folds_the_very_same_state() {
    let (daemon, base) = limited(Limits { ops_per_s: 1e6, bytes_per_s: 1e9, ..Limits::default() }).await;
    let op = daemon.operator.clone();
    op.topic(&base, "t1").await;
    let (done, last) = watch::channel(None);
    let listeners: Vec<_> =
        (0..20).map(|seed| tokio::spawn(listen(op.clone(), base.clone(), seed, last.clone()))).collect();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (op, base, times) = (op.clone(), base.clone(), times("FUZZ_OPS", 600) / 4);
            tokio::spawn(async move {
                let mut rng = StdRng::seed_from_u64(1000 + writer);
                let path = format!("{base}/topics/t1/messages");
                for n in 0..times {
                    let id = format!("w{writer}n{n}");
                    op.post(&path, json!({"id": id, "content": "x".repeat(rng.random_range(1..300))}))
                        .await
                        .expect(StatusCode::CREATED);
                    if rng.random_bool(0.3) {
                        op.patch(&format!("{path}/{id}"), json!({"content": "y"})).await.expect(StatusCode::OK);
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let state = op.get(&format!("{base}/state?form=maps")).await.expect(StatusCode::OK);
    done.send_replace(state["rev"].as_u64());
    let mut cuts = 0;
    for listener in listeners {
        let (mirror, times) = tokio::time::timeout(Duration::from_secs(60), listener).await.unwrap().unwrap();
        assert_eq!(mirror.state, state["state"]);
        cuts += times;
    }
    println!("20 subscribers, {cuts} cuts, {} revisions, every state the same", state["rev"]);
    assert!(cuts > 20);
}

/// Gate 8: a change is the same to people who watch, to the lifeform's thought, and in the history, under one revision.
#[tokio::test]
async fn people_lifeform_and_history_see_a_change_under_one_revision() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&base, "t").await;
    let said = op.say(&base, "t", "Is the boat at four?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let path = format!("{base}/topics/t/messages/{}", said["id"].as_str().unwrap());
    let changed =
        op.patch(&path, json!({"content": "Is the boat at five?", "reason": "a slip"})).await.expect(StatusCode::OK);
    let seen = socket.until(|frame| frame["kind"] == "message.amend").await;
    let (seen, rev) = (seen.last().unwrap(), &changed["rev"]);
    assert_eq!((&seen["rev"], seen["patch"].to_string().contains("Is the boat at five?")), (rev, true));
    let history = op.get(&format!("{path}/revisions")).await.expect(StatusCode::OK);
    let past = history["revisions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&past["rev"], &past["content"], &past["reason"]),
        (rev, &json!("Is the boat at four?"), &json!("a slip"))
    );
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let from = format!("/v1/lifeforms/{id}/trace?from=canvas:{id}/canvas_chat_main@{rev}");
    let came_of_it = op.get(&from).await.expect(StatusCode::OK)["forward"].to_string();
    for told in [
        r#""before":"Is the boat at four?""#,
        r#""reason":"a slip""#,
        r#""content":"Is the boat at five?""#,
        &format!("\"rev\":{rev}"),
    ] {
        assert!(came_of_it.contains(told), "{told}: {came_of_it}");
    }
    let asked = daemon.model.asked();
    let told = asked.iter().rev().flat_map(|request| &request.messages).filter_map(|message| message.content.clone());
    let thought = "(I changed what I said. Before: \"Is the boat at four?\". Why: a slip. Now:) Is the boat at five?";
    assert!(told.into_iter().any(|content| content == thought));
    // What is taken back is taken back everywhere, too.
    let gone = op.delete(&format!("{path}?reason=enough")).await.expect(StatusCode::OK);
    let seen = socket.until(|frame| frame["kind"] == "message.retract").await;
    assert_eq!(seen.last().unwrap()["rev"], gone["rev"]);
    let history = op.get(&format!("{path}/revisions")).await.expect(StatusCode::OK);
    assert_eq!(history["revisions"].as_array().unwrap().last().unwrap()["rev"], gone["rev"]);
}
