//! The mind map over the API: a tree without cycles, order between neighbours, links, comments, proposals.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Answer, Client, Mirror, TestDaemon};

use crate::canvas::subscribers::quiet;

struct Map {
    daemon: TestDaemon,
    base: String,
}

impl Map {
    async fn new() -> Self {
        let (daemon, chat) = quiet().await;
        let canvases = chat.rsplit_once('/').unwrap().0.to_owned();
        let made = daemon.operator.post(&canvases, json!({"type": "zmind", "title": "Plans", "id": "plans"})).await;
        assert_eq!(made.expect(StatusCode::CREATED)["type"], "zmind");
        Self { daemon, base: format!("{canvases}/plans") }
    }

    async fn by(&self, who: &Client, ops: Value) -> Answer {
        who.post(&format!("{}/ops", self.base), json!({"ops": ops})).await
    }

    async fn op(&self, op: Value) -> Answer {
        self.by(&self.daemon.operator, json!([op])).await
    }

    async fn done(&self, ops: Value) {
        self.by(&self.daemon.operator, ops).await.expect(StatusCode::OK);
    }

    async fn state(&self) -> Value {
        self.daemon.operator.get(&format!("{}/state", self.base)).await.expect(StatusCode::OK)["state"].clone()
    }

    /// The titles under a node, in order.
    async fn under(&self, parent: Option<&str>) -> Vec<String> {
        let state = self.state().await;
        let nodes = state["nodes"].as_array().unwrap().iter().filter(|node| node["parent"].as_str() == parent);
        nodes.map(|node| node["title"].as_str().unwrap().to_owned()).collect()
    }
}

fn node(id: &str, parent: Option<&str>) -> Value {
    json!({"kind": "node.add", "id": id, "title": id, "parent": parent})
}

#[tokio::test]
async fn nodes_stand_in_a_tree_in_the_order_they_are_put_in() {
    let map = Map::new().await;
    map.done(json!([node("root", None), node("a", Some("root")), node("c", Some("root"))])).await;
    map.done(json!([
        {"kind": "node.add", "id": "b", "title": "b", "parent": "root", "before": "c"},
        {"kind": "node.add", "id": "z", "title": "z", "parent": "root", "before": "a"},
        {"kind": "node.add", "id": "d", "title": "d", "parent": "root", "after": "c"},
        {"kind": "node.add", "id": "bc", "title": "bc", "parent": "root", "after": "b", "before": "c"},
    ]))
    .await;
    assert_eq!(map.under(Some("root")).await, ["z", "a", "b", "bc", "c", "d"]);
    map.done(json!([
        {"kind": "node.move", "id": "d", "parent": "root", "before": "z"},
        {"kind": "node.move", "id": "c", "parent": "a"},
    ]))
    .await;
    assert_eq!(map.under(Some("root")).await, ["d", "z", "a", "b", "bc"]);
    assert_eq!(map.under(Some("a")).await, ["c"]);
    // A thousand times between the same two neighbours: the keys make room as long as they are let.
    for n in 0..10 {
        let between: Vec<Value> = (0..20)
            .map(|m| {
                json!({
                    "kind": "node.add",
                    "id": format!("n{n}-{m}"),
                    "title": "n",
                    "parent": "root",
                    "after": "d",
                })
            })
            .collect();
        map.done(json!(between)).await;
    }
    assert_eq!(map.under(Some("root")).await.len(), 205);
    assert_eq!(map.under(Some("root")).await.first().unwrap(), "d");
}

#[tokio::test]
async fn a_map_refuses_invalid_ops_with_a_path_and_stays_unchanged() {
    let map = Map::new().await;
    map.done(json!([
        node("a", None),
        node("b", Some("a")),
        node("c", Some("b")),
        {"kind": "link.add", "id": "l", "from": "a", "to": "c"},
    ]))
    .await;
    let before = map.state().await;
    for (op, code, path) in [
        (json!({"kind": "node.move", "id": "a", "parent": "c"}), "schema", Some("parent")),
        (json!({"kind": "node.move", "id": "a", "parent": "a"}), "schema", Some("parent")),
        (json!({"kind": "node.merge", "id": "a", "into": "c"}), "schema", Some("into")),
        (json!({"kind": "node.add", "id": "x", "title": " "}), "schema", Some("title")),
        (json!({"kind": "node.add", "id": "../x", "title": "x"}), "schema", Some("id")),
        (json!({"kind": "node.add", "id": "x", "title": "x", "parent": "a", "before": "c"}), "schema", Some("before")),
        (json!({"kind": "node.add", "id": "x", "title": "x", "sender": "me"}), "schema", Some("op")),
        (json!({"kind": "node.dance", "id": "x"}), "schema", Some("kind")),
        (json!({"kind": "message.append", "topic": "t", "id": "x", "content": "x"}), "schema", Some("kind")),
        (json!({"kind": "node.add", "id": "a", "title": "x"}), "exists", None),
        (json!({"kind": "node.add", "id": "x", "title": "x", "parent": "none"}), "not_found", None),
        (json!({"kind": "node.remove", "id": "a"}), "state", None),
        (json!({"kind": "link.add", "id": "m", "from": "a", "to": "a"}), "schema", Some("to")),
        (json!({"kind": "link.add", "id": "m", "from": "a", "to": "c"}), "exists", None),
        (json!({"kind": "comment.add", "id": "m", "node": "none", "content": "x"}), "not_found", None),
        (json!({"kind": "node.add", "id": "x", "title": "x", "body": "x".repeat(17 << 10)}), "schema", Some("body")),
    ] {
        let refused = map.op(op.clone()).await;
        assert_eq!(
            (refused.body["code"].as_str(), refused.body["path"].as_str()),
            (Some(code), path),
            "{op}: {}",
            refused.body
        );
    }
    // Several ops are done all or none, and the one at fault is named.
    let some = map.by(&map.daemon.operator, json!([node("x", None), node("a", None)])).await.refused(409, "exists");
    assert!(some["detail"].as_str().unwrap().starts_with("ops/1"), "{some}");
    assert_eq!(map.by(&map.daemon.operator, json!([])).await.refused(422, "schema")["path"], "ops");
    assert_eq!(map.state().await, before);
}

#[tokio::test]
async fn what_hangs_on_a_node_goes_with_it_or_is_merged() {
    let map = Map::new().await;
    map.done(json!([node("a", None), node("b", None), node("a1", Some("a")), node("b1", Some("b")), node("c", None),
        {"kind": "link.add", "id": "ab", "from": "a", "to": "b", "label": "leads to"},
        {"kind": "link.add", "id": "ac", "from": "a", "to": "c"}, {"kind": "link.add", "id": "bc", "from": "b", "to": "c"},
        {"kind": "comment.add", "id": "on_b", "node": "b", "content": "why?"},
        {"kind": "comment.add", "id": "answer", "node": "b", "content": "because", "reply_to": "on_b"}]))
    .await;
    map.done(json!([{"kind": "node.merge", "id": "b", "into": "a", "reason": "the same"}])).await;
    let state = map.state().await;
    assert_eq!(map.under(Some("a")).await, ["a1", "b1"]);
    assert_eq!(state["nodes"][0]["body"], "b");
    assert_eq!(
        (&state["nodes"][0]["revisions"][0]["reason"], state["links"].as_array().unwrap().len()),
        (&json!("the same"), 1)
    );
    assert_eq!((&state["links"][0]["from"], &state["links"][0]["to"]), (&json!("a"), &json!("c")));
    assert!(state["comments"].as_array().unwrap().iter().all(|comment| comment["node"] == "a"));
    map.done(json!([
        {"kind": "comment.resolve", "id": "on_b", "resolved": true},
        {"kind": "node.remove", "id": "a", "with_children": true},
    ]))
    .await;
    let state = map.state().await;
    assert_eq!(map.under(None).await, ["c"]);
    assert_eq!(
        (
            state["nodes"].as_array().unwrap().len(),
            state["links"].as_array().unwrap().len(),
            state["comments"].as_array().unwrap().len()
        ),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn somebody_else_decides_what_was_proposed() {
    let map = Map::new().await;
    let (ada, bob) =
        (map.daemon.person("user:ada", "participant").await, map.daemon.person("user:bob", "participant").await);
    map.done(json!([node("a", None)])).await;
    let proposal = |id: &str, ops: Value| json!([{"kind": "proposal.make", "id": id, "reason": "clearer", "ops": ops}]);
    map.by(&ada, proposal("p1", json!([{"kind": "node.edit", "id": "a", "title": "A"}, node("a1", Some("a"))])))
        .await
        .expect(StatusCode::OK);
    map.by(&ada, proposal("p2", json!([{"kind": "node.remove", "id": "a"}]))).await.expect(StatusCode::OK);
    assert_eq!(map.state().await["nodes"][0]["title"], "a", "nothing is done yet");
    map.by(&ada, proposal("p3", json!([{"kind": "node.edit", "id": "none", "title": "A"}])))
        .await
        .refused(404, "not_found");
    map.by(&ada, proposal("p3", json!([{"kind": "proposal.accept", "id": "p1"}]))).await.refused(422, "schema");
    map.by(&ada, json!([{"kind": "proposal.accept", "id": "p1"}])).await.refused(403, "forbidden");
    map.by(&bob, json!([{"kind": "proposal.accept", "id": "p1"}])).await.expect(StatusCode::OK);
    let state = map.state().await;
    assert_eq!((&state["nodes"][0]["title"], &state["nodes"][0]["revisions"][0]["title"]), (&json!("A"), &json!("a")));
    assert_eq!(
        (&state["proposals"][0]["status"], &state["proposals"][0]["decided_by"]),
        (&json!("accepted"), &json!("user:bob"))
    );
    map.by(&bob, json!([{"kind": "proposal.accept", "id": "p1"}])).await.refused(409, "state");
    // What can no longer be done is refused, and stays open.
    map.by(&bob, json!([{"kind": "proposal.accept", "id": "p2"}])).await.refused(409, "state");
    map.by(&bob, json!([{"kind": "proposal.reject", "id": "p2", "reason": "no"}])).await.expect(StatusCode::OK);
    assert_eq!(map.state().await["proposals"][1]["status"], "rejected");
    // Comments are their authors' own; nodes are everybody's.
    map.by(&ada, json!([{"kind": "comment.add", "id": "c", "node": "a", "content": "hm"}]))
        .await
        .expect(StatusCode::OK);
    map.by(&bob, json!([{"kind": "comment.edit", "id": "c", "content": "mine"}])).await.refused(403, "forbidden");
    map.by(&bob, json!([{"kind": "comment.remove", "id": "c"}])).await.refused(403, "forbidden");
    map.by(&bob, json!([{"kind": "node.edit", "id": "a", "body": "together"}])).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_map_is_pushed_patched_and_there_after_a_kill() {
    let map = Map::new().await;
    let mut watcher = map.daemon.operator.subscribe(&map.base, None).await;
    let mut mirror = Mirror::default();
    let greeted = watcher.until(|frame| frame["t"] == "live").await;
    assert_eq!(greeted[0]["type"], "zmind");
    greeted.iter().for_each(|frame| mirror.take(frame));
    map.done(json!([node("a", None), node("b", Some("a")), {"kind": "link.add", "id": "l", "from": "a", "to": "b"}]))
        .await;
    let tag =
        map.daemon.operator.get(&format!("{}/state", map.base)).await.headers["etag"].to_str().unwrap().to_owned();
    let patch = json!([
        {"op": "replace", "path": "/nodes/b/title", "value": "B"},
        {"op": "remove", "path": "/links/l"},
        {"op": "add", "path": "/nodes/c", "value": {"title": "c", "parent": "b"}},
    ]);
    let send = async |headers: &[(&str, &str)], patch: &Value| {
        let all = [&[("content-type", "application/json-patch+json")], headers].concat();
        map.daemon.operator.send(Method::PATCH, &map.base, &all, Some(patch.clone())).await
    };
    send(&[], &patch).await.refused(422, "schema");
    let done = send(&[("if-match", &tag)], &patch).await.expect(StatusCode::OK);
    assert_eq!(done["ops"], 3);
    send(&[("if-match", &tag)], &patch).await.refused(412, "stale");
    let test = json!([
        {"op": "test", "path": "/nodes/b/title", "value": "b"},
        {"op": "replace", "path": "/nodes/b/title", "value": "x"},
    ]);
    send(&[], &test).await.refused(409, "state");
    map.daemon.operator.send(Method::PATCH, &map.base, &[], Some(patch)).await.refused(415, "not_a_patch");
    watcher.until(|frame| frame["rev"] == done["rev"]).await.iter().for_each(|frame| mirror.take(frame));
    let maps =
        async |client: &Client| client.get(&format!("{}/state?form=maps", map.base)).await.expect(StatusCode::OK);
    assert_eq!(maps(&map.daemon.operator).await["state"], mirror.state);
    let daemon = map.daemon.kill_and_restart().await;
    let path = format!("{}/state?form=maps", map.base);
    assert_eq!(daemon.operator.get(&path).await.expect(StatusCode::OK)["state"], mirror.state);
    let listed = daemon.operator.get(map.base.rsplit_once('/').unwrap().0).await.expect(StatusCode::OK);
    let types: Vec<&Value> = listed["canvases"].as_array().unwrap().iter().map(|canvas| &canvas["type"]).collect();
    assert_eq!(types, ["chat", "zmind"]);
}
