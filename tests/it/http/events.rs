//! The events of lifeforms and jobs as they happen: `WS /v1/events` (MISSION L10).

use std::collections::{BTreeMap, BTreeSet};

use futures::SinkExt;
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::{Store, Stream};
use tests::{Client, Socket, TestDaemon, honest};
use tokio_tungstenite::tungstenite::Message;

/// The events that a watcher has received.
#[derive(Default)]
struct Seen {
    epoch: String,
    n: u64,
    events: Vec<Value>,
}

impl Seen {
    /// Waits for the greeting: what happens from now on comes.
    async fn begin(&mut self, socket: &mut Socket) {
        let hello = socket.next().await.unwrap();
        assert_eq!((&hello["t"], &hello["v"]), (&json!("hello"), &json!(1)));
        (self.epoch, self.n) = (hello["epoch"].as_str().unwrap().to_owned(), hello["n"].as_u64().unwrap());
    }

    /// Takes in what comes until an event is as wanted.
    async fn until(&mut self, socket: &mut Socket, is: impl Fn(&Value) -> bool) {
        loop {
            let frame = socket.next().await.unwrap();
            match frame["t"].as_str().unwrap() {
                "hello" => assert_eq!(frame["epoch"], self.epoch),
                "events" => {
                    assert_eq!(frame["from"], self.n + 1, "a gap: {frame}");
                    self.n = frame["to"].as_u64().unwrap();
                    let events = frame["events"].as_array().unwrap();
                    self.events.extend(events.iter().cloned());
                    if events.iter().any(&is) {
                        return;
                    }
                }
                other => panic!("{other}: {frame}"),
            }
        }
    }

    /// The numbers of the entries of each journal, in the order in which they came.
    fn by_stream(&self) -> BTreeMap<String, Vec<u64>> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for event in &self.events {
            let (stream, seq) = event["ref"].as_str().unwrap().rsplit_once('@').unwrap();
            all.entry(stream.to_owned()).or_default().push(seq.parse().unwrap());
        }
        all
    }
}

async fn heads(store: &Store, streams: impl IntoIterator<Item = &String>) -> BTreeMap<String, u64> {
    let mut heads = BTreeMap::new();
    for stream in streams {
        heads.insert(stream.clone(), store.head(&Stream::from(stream.as_str())).await.unwrap());
    }
    heads
}

/// A fascicle of one neuron, and a job of it.
async fn run(operator: &Client, client: &Client) -> String {
    let node = json!({"id": "say", "run": {"neuron": {"spec": {"kind": "base", "memory": "You are kind."}}}});
    let spec = json!({"id": "one", "output": "say", "nodes": [node]});
    let made = operator.post("/v1/fascicles", spec).await;
    assert!([201, 409].contains(&made.status.as_u16()), "{}", made.body);
    let input = json!({"input": {"events": [{"role": "user", "content": "hello"}]}});
    let job = client.post("/v1/fascicles/one/execute", input).await.expect(StatusCode::ACCEPTED);
    job["job_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_event_of_a_lifeform_comes_once_and_in_order() {
    let daemon = TestDaemon::start(honest).await;
    let (id, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let ada = daemon.person("user:ada", "participant").await;
    let looks = daemon.person("user:looks", "observer").await;
    let mut talk = op.subscribe(&chat, None).await;
    talk.until(|frame| frame["t"] == "live").await;
    let own = ["trace", "ledger", "calls", "nexus"].map(|kind| format!("{kind}:{id}"));
    let canvas = format!("canvas:{id}/canvas_chat_main");
    let store = daemon.daemon.app.store();
    let (mut watching, mut all) = (looks.watch(&format!("?lifeform={id}"), None).await, op.watch("", None).await);
    let (mut seen, mut seen_by_op) = (Seen::default(), Seen::default());
    for (socket, seen) in [(&mut watching, &mut seen), (&mut all, &mut seen_by_op)] {
        seen.begin(socket).await;
    }
    let before = heads(store, own.iter().chain([&canvas])).await;
    for content in ["My boat is called Petrel.", "What is my boat called?", "My sister lives in Faro."] {
        ada.say(&chat, "t", content).await;
        talk.answer().await;
    }
    op.post(&format!("/v1/lifeforms/{id}/stop"), json!({})).await.expect(StatusCode::OK);
    let has_stopped = |event: &Value| event["kind"] == "trace.lifeform" && event["what"]["status"] == "stopped";
    seen.until(&mut watching, has_stopped).await;
    seen_by_op.until(&mut all, has_stopped).await;
    let (found, by_op) = (seen.by_stream(), seen_by_op.by_stream());
    let jobs: BTreeSet<&String> = found.keys().filter(|stream| stream.starts_with("job:")).collect();
    assert!(jobs.len() >= 3, "{found:?}");
    let last_of = |stream: &str| by_op.get(stream).and_then(|seqs| seqs.last().copied());
    for (stream, seqs) in &found {
        let first = before.get(stream).copied().unwrap_or_default() + 1;
        let expected: Vec<u64> = (first..=*seqs.last().unwrap()).collect();
        assert_eq!(*seqs, expected, "{stream}");
        assert_eq!(last_of(stream), seqs.last().copied(), "{stream}: both saw the same");
    }
    for stream in own.iter().chain([&canvas]) {
        let head = store.head(&Stream::from(stream.as_str())).await.unwrap();
        // What follows the stop has no event that was waited for.
        let missing = head - found.get(stream).and_then(|seqs| seqs.last().copied()).unwrap_or(before[stream]);
        assert!(missing <= 2, "{stream} lacks {missing}");
    }
    let numbers: Vec<u64> = seen.events.iter().map(|event| event["n"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    // Nobody's words are in it.
    let text = json!(seen.events).to_string();
    for words in ["Petrel", "Faro", "boat"] {
        assert!(!text.contains(words), "{words} is in {text}");
    }
    let started = seen.events.iter().find(|event| event["kind"] == "job.started").unwrap();
    assert!(started["fascicle"].is_string() && started["step"].is_string(), "{started}");
    assert_eq!(started["lifeform"], id);
}

#[tokio::test]
async fn the_jobs_of_a_person_are_shown_to_that_person() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let ada = daemon.person("user:ada", "participant").await;
    let ben = daemon.person("user:ben", "participant").await;
    let (mut of_op, mut of_ada, mut of_ben) = (Seen::default(), Seen::default(), Seen::default());
    let mut op_socket = op.watch("", None).await;
    let mut ada_socket = ada.watch("", None).await;
    let mut ben_socket = ben.watch("", None).await;
    for (socket, seen) in [(&mut op_socket, &mut of_op), (&mut ada_socket, &mut of_ada), (&mut ben_socket, &mut of_ben)]
    {
        seen.begin(socket).await;
    }
    let hers = run(op, &ada).await;
    let ended = |job: String| move |event: &Value| event["job"] == job && event["kind"] == "job.ended";
    of_op.until(&mut op_socket, ended(hers.clone())).await;
    of_ada.until(&mut ada_socket, ended(hers.clone())).await;
    let his = run(op, &ben).await;
    of_ben.until(&mut ben_socket, ended(his.clone())).await;
    of_op.until(&mut op_socket, ended(his.clone())).await;
    let jobs = |seen: &Seen| -> BTreeSet<String> {
        seen.events.iter().filter_map(|event| event["job"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(jobs(&of_ada), [hers.clone()].into());
    assert_eq!(jobs(&of_ben), [his.clone()].into());
    assert_eq!(jobs(&of_op), [hers, his].into());
    let houses =
        |seen: &Seen| seen.events.iter().filter(|event| event["ref"].as_str().unwrap().contains(":house")).count();
    assert_eq!((houses(&of_ada), houses(&of_ben)), (0, 0), "the account of the house is for operators");
    assert!(houses(&of_op) > 0);
}

#[tokio::test]
async fn a_watcher_resumes_without_a_gap() {
    let daemon = TestDaemon::start(honest).await;
    let (id, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let (mut seen, mut socket) = (Seen::default(), op.watch("", None).await);
    seen.begin(&mut socket).await;
    op.topic(&chat, "one").await;
    let is_topic = |name: &'static str| {
        move |event: &Value| {
            let paths = event["what"]["paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
            paths.into_iter().any(|path| path.ends_with(name))
        }
    };
    seen.until(&mut socket, is_topic("/one")).await;
    drop(socket);
    op.topic(&chat, "two").await;
    op.topic(&chat, "three").await;
    let mut again = op.watch("", Some(json!({"epoch": seen.epoch, "n": seen.n}))).await;
    seen.until(&mut again, is_topic("/three")).await;
    let canvas = seen.by_stream().remove(&format!("canvas:{id}/canvas_chat_main")).unwrap();
    assert!(canvas.windows(2).all(|pair| pair[1] == pair[0] + 1), "{canvas:?}");
    // The numbers of an earlier start of the daemon mean nothing here.
    let mut other = op.watch("", Some(json!({"epoch": "of yesterday", "n": 3}))).await;
    assert_eq!(other.next().await.unwrap()["t"], "hello");
    let reset = other.next().await.unwrap();
    assert_eq!((&reset["t"], reset["n"].as_u64() >= Some(seen.n)), (&json!("reset"), true), "{reset}");
    // What happened is listed, the newest first, page by page.
    let (mut listed, mut before) = (Vec::new(), String::new());
    loop {
        let page = op.get(&format!("/v1/lifeforms/{id}/events?limit=7{before}")).await.expect(StatusCode::OK);
        assert_eq!((&page["epoch"], &page["is_cut"]), (&json!(seen.epoch), &json!(false)));
        listed.extend(page["events"].as_array().unwrap().iter().map(|event| event["n"].as_u64().unwrap()));
        match page["next"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert!(listed.is_sorted_by(|one, other| one > other), "{listed:?}");
    let live: Vec<u64> = seen.events.iter().rev().map(|event| event["n"].as_u64().unwrap()).collect();
    let newest = live[0];
    let listed: Vec<u64> = listed.into_iter().filter(|n| *n <= newest && *n >= live[live.len() - 1]).collect();
    assert_eq!(listed, live, "this lifeform is all that happens here");
}

#[tokio::test]
async fn a_wrong_frame_or_token_closes_the_socket_with_its_reason() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let hello = json!({"t": "hello", "v": 1});
    for (frame, code) in [
        (Message::text(json!({"t": "hello", "v": 2}).to_string()), 1002),
        (Message::text("{"), 1007),
        (Message::text(json!({"t": "hello", "v": 1, "content": "x"}).to_string()), 1007),
        (Message::binary(vec![1]), 1003),
        (Message::text("x".repeat(5_000)), 4413),
    ] {
        let mut socket = op.events_socket("").await;
        socket.0.send(frame).await.unwrap();
        assert_eq!(socket.closed().await, (vec![], code));
    }
    let mut socket = op.watch("", None).await;
    socket.next().await.unwrap();
    socket.send(&hello).await;
    assert_eq!(socket.closed().await.1, 1007);
    op.get("/v1/events?lifeform=lf_none").await.refused(400, "not_a_websocket");
    op.get("/v1/lifeforms/lf_none/events").await.refused(404, "lifeform_not_found");
    op.get("/v1/lifeforms/lf_none/events?limit=0").await.refused(400, "query");
    let eve = daemon.person("user:eve", "participant").await;
    let mut socket = eve.watch("", None).await;
    socket.next().await.unwrap();
    let gone = op.delete("/v1/tokens/user:eve").await;
    assert_eq!(gone.status, 204, "{}", gone.body);
    assert_eq!(socket.closed().await.1, 4401);
}
