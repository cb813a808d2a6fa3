//! Who may do what to whose: each route of the OpenAPI document, asked as each role for what belongs to another. A
//! route whose access the document does not say (`x-access`) fails here, as does one that lets in more, or fewer, than
//! it says.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Answer, Client, TestDaemon, honest, is_socket};

/// What belongs to bob, or to the operator, by the names that paths give it.
struct World {
    daemon: TestDaemon,
    life: String,
    message: String,
    goal: String,
    schedule: String,
    record: String,
    unit: String,
    skill: String,
    job: String,
    token: String,
    asked: String,
    invocation: String,
}

const CANVAS: &str = "canvas_chat_main";

impl World {
    async fn new() -> (Self, Client) {
        let daemon = TestDaemon::start(honest).await;
        let (life, chat) = daemon.lifeform().await;
        let bob = daemon.person("user:bob", "participant").await;
        let id = |answer: Value, member: &str| answer[member].as_str().unwrap().to_owned();
        bob.topic(&chat, "t").await;
        let message = id(bob.say(&chat, "t", "This is mine.").await, "id");
        let base = format!("/v1/lifeforms/{life}");
        let far = "2030-01-01T00:00:00Z";
        let goal = bob.post(&format!("{base}/goals"), json!({"title": "his", "at": far})).await;
        let goal = id(goal.expect(StatusCode::CREATED), "id");
        let schedule = bob.post(&format!("{base}/schedules"), json!({"what": "his", "at": far})).await;
        let schedule = id(schedule.expect(StatusCode::CREATED), "id");
        let record =
            json!({"task": "a task of his", "content": "what he knows", "types": ["tool"], "scopes": ["public"]});
        let record = id(bob.post("/api/knowledge", record).await.expect(StatusCode::CREATED), "id");
        bob.post("/api/resource", json!({"id": "his", "title": "his", "body": "x", "scopes": ["public"]}))
            .await
            .expect(StatusCode::CREATED);
        let skill = "---\nname: his\ndescription: what he does\n---\nDo it.";
        let skill =
            id(bob.post("/v1/skills", json!({"skill_md_content": skill})).await.expect(StatusCode::CREATED), "id");
        let unit = bob.post("/v1/knowledge", crate::knowledge::units::trace()).await.expect(StatusCode::CREATED);
        let unit = id(unit, "id");
        bob.post("/v1/neurons", json!({"id": "his", "memory": "Be his."})).await.expect(StatusCode::CREATED);
        let waits = json!({"id": "his", "output": "w", "nodes": [{"id": "w", "run": {"wait": {"event": "go"}}}]});
        bob.post("/v1/fascicles", waits).await.expect(StatusCode::CREATED);
        let job = bob.post("/v1/fascicles/his/execute", json!({"input": "x"})).await.expect(StatusCode::ACCEPTED);
        let job = id(job, "job_id");
        let token = loop {
            let waiting = bob.get(&format!("/v1/jobs/{job}")).await.expect(StatusCode::OK);
            if let Some(token) = waiting["waits"][0]["context_token"].as_str() {
                break token.to_owned();
            }
        };
        let asks =
            json!({"id": "asks", "output": "a", "nodes": [{"id": "a", "run": {"approve": {"message": "sure?"}}}]});
        bob.post("/v1/fascicles", asks).await.expect(StatusCode::CREATED);
        bob.post("/v1/fascicles/asks/execute", json!({"input": "x"})).await.expect(StatusCode::ACCEPTED);
        let asked = loop {
            let waiting = bob.get("/v1/approvals").await.expect(StatusCode::OK);
            if let Some(asked) = waiting["approvals"][0]["id"].as_str() {
                break asked.to_owned();
            }
        };
        bob.post("/v1/neurons/his/invoke", json!({"input": "x"})).await.expect(StatusCode::OK);
        let invocations = bob.get("/v1/invocations").await.expect(StatusCode::OK);
        let invocation = invocations["invocations"][0]["id"].as_str().unwrap().to_owned();
        (Self { daemon, life, message, goal, schedule, record, unit, skill, job, token, asked, invocation }, bob)
    }

    /// A path with bob's things in the place of its parameters.
    fn path(&self, path: &str) -> String {
        let id = match path {
            _ if path.starts_with("/v1/lifeforms") || path.starts_with("/v1/nexus") => &self.life,
            _ if path.starts_with("/v1/jobs") => &self.job,
            _ if path.starts_with("/v1/approvals") => &self.asked,
            _ if path.starts_with("/v1/invocations") => &self.invocation,
            _ if path.starts_with("/api/knowledge") => &self.record,
            _ if path.starts_with("/v1/knowledge") => &self.unit,
            _ if path.starts_with("/v1/skills") => &self.skill,
            _ => "his",
        };
        let named = [
            ("{id}", id),
            ("{canvas}", CANVAS),
            ("{topic}", "t"),
            ("{message}", &self.message),
            ("{goal}", &self.goal),
            ("{schedule}", &self.schedule),
            ("{hash}", "00"),
            ("{member}", "lf_other"),
            ("{principal}", "user:bob"),
            ("{version}", "1"),
            ("{agent_id}", "user:bob"),
            ("{action}", "stop"),
        ];
        named.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
    }

    /// A body that is well made, where a route looks at it before it looks whose the thing is.
    fn body(&self, method: &str, path: &str) -> Option<Value> {
        let kip = r#"UPSERT { CONCEPT ?d { {type: "Domain", name: "planted"} } }"#;
        Some(match (method, path) {
            ("get" | "delete", _) => return None,
            (_, "/v1/neurons/{id}/memory") => json!({"memory": "mine now"}),
            ("put", "/v1/neurons/{id}") => json!({"memory": "mine now"}),
            ("put", "/v1/fascicles/{id}") => {
                json!({
                    "id": "his",
                    "output": "a",
                    "nodes": [{"id": "a", "run": {"neuron": {"spec": {"memory": "x"}}}}],
                })
            }
            (_, "/v1/neurons/{id}/continue") => json!({"context_token": self.token, "tool_results": []}),
            (_, "/v1/approvals/{id}") => json!({"decision": "refuse"}),
            (_, "/v1/jobs/{id}/continue") => json!({"context_token": self.token, "event": "go"}),
            (_, path) if path.ends_with("/kip") => json!({"command": kip}),
            (_, path) if path.ends_with("/undo") => json!({"seq": 1}),
            ("patch", path) if path.ends_with("/{message}") => json!({"content": "mine now"}),
            (_, path) if path.ends_with("/restore") => json!({}),
            ("patch", path) if path.ends_with("/{topic}") => json!({"title": "mine now"}),
            ("patch", path) if path.ends_with("/{goal}") => json!({"title": "mine now"}),
            ("put", "/api/knowledge/{id}") => json!({"content": "mine now"}),
            (_, "/api/knowledge/{id}/rollback") => json!({"version": 1}),
            ("patch", "/api/resource/{id}") => json!({"title": "mine now"}),
            _ => json!({}),
        })
    }

    async fn ask(&self, client: &Client, method: &str, path: &str) -> Answer {
        let (verb, body) = (Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), self.body(method, path));
        let is_text = path.ends_with("/capsules");
        let to = self.path(path);
        if is_text {
            client.text(&to, "UPSERT { CONCEPT ?d { {type: \"Domain\", name: \"planted\"} } }".into()).await
        } else {
            client.send(verb, &to, &[], body).await
        }
    }

    /// All that is bob's, and the mind, as they stand.
    async fn standing(&self) -> Value {
        let op = &self.daemon.operator;
        let chat = format!("/v1/lifeforms/{}/canvases/{CANVAS}", self.life);
        let message = op.get(&format!("{chat}/topics/t/messages/{}", self.message)).await.expect(StatusCode::OK);
        let planted = json!({"command": r#"FIND(?d.name) WHERE { ?d {type: "Domain", name: "planted"} }"#});
        let planted = op.post(&format!("/v1/lifeforms/{}/kip", self.life), planted).await.expect(StatusCode::OK);
        json!([
            message["content"],
            planted["result"],
            op.get("/v1/neurons/his").await.expect(StatusCode::OK)["memory"],
            op.get("/v1/fascicles/his").await.expect(StatusCode::OK)["nodes"],
            op.get(&format!("/v1/jobs/{}", self.job)).await.expect(StatusCode::OK)["status"],
            op.get(&format!("/v1/invocations/{}", self.invocation)).await.expect(StatusCode::OK)["status"],
            op.get(&format!("/v1/lifeforms/{}", self.life)).await.expect(StatusCode::OK)["policy"],
            op.get(&format!("/v1/lifeforms/{}/goals/{}", self.life, self.goal)).await.expect(StatusCode::OK)["title"],
            op.get(&format!("/v1/lifeforms/{}/schedules", self.life)).await.expect(StatusCode::OK)["schedules"]
                .as_array()
                .unwrap()
                .len(),
            op.get("/api/resource/his").await.expect(StatusCode::OK)["title"],
            op.get(&format!("/api/knowledge/{}", self.record)).await.expect(StatusCode::OK)["content"],
            op.get(&format!("/v1/skills/{}", self.skill)).await.expect(StatusCode::OK)["data"]["name"],
            op.get("/v1/tokens").await.expect(StatusCode::OK),
        ])
    }
}

/// Whether an answer says that its caller may not, or that there is nothing for it.
fn is_refused(answer: &Answer) -> bool {
    let kip = answer.body["error"]["code"] == "KIP_4003" || answer.body["error"]["code"] == "KIP_3004";
    matches!(answer.status.as_u16(), 401 | 403 | 404) || kip
}

/// Whether one of that role may do it to what is another's.
fn may(access: &str, role: &str) -> bool {
    match (access, role) {
        ("anybody", _) | (_, "operator") => true,
        (_, "nobody") => false,
        ("reader", _) => true,
        ("participant", role) => role != "observer",
        _ => false,
    }
}

#[tokio::test]
async fn each_route_lets_in_whom_the_document_names_and_nobody_else() {
    let (world, bob) = World::new().await;
    let op = &world.daemon.operator;
    let document = op.get("/openapi.json").await.expect(StatusCode::OK);
    let clients = [
        ("nobody", Client::new(op.base.clone(), String::new())),
        ("observer", world.daemon.person("user:otto", "observer").await),
        ("participant", world.daemon.person("user:eve", "participant").await),
        ("lifeform", world.daemon.person("lifeform:lf_robot", "lifeform").await),
    ];
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let access =
                operation["x-access"].as_str().unwrap_or_else(|| panic!("{method} {path} does not say who may use it"));
            routes.push((method.clone(), path.clone(), access.to_owned()));
        }
    }
    assert!(routes.len() > 130, "{}", routes.len());
    let (before, mut wrong, mut asked) = (world.standing().await, Vec::new(), 0);
    // First all who may not: nothing may have changed after that.
    for (method, path, access) in &routes {
        for (role, client) in &clients {
            // Sockets ask for the token themselves, when they are sockets.
            if may(access, role) || is_socket(path) {
                continue;
            }
            let answer = world.ask(client, method, path).await;
            asked += 1;
            if !is_refused(&answer) {
                wrong.push(format!("{role} may {method} {path} ({access}): {} {}", answer.status, answer.body));
            }
        }
    }
    assert_eq!(world.standing().await, before, "who was refused changed nothing");
    // Then those who may: whatever else is wrong with what they ask, they are let in. Bob keeps his own; others ask by
    // them.
    for (method, path, access) in &routes {
        for (role, client) in &clients {
            let is_end = ["/v1/lifeforms/{id}/{action}", "/v1/jobs/cancel"].contains(&&**path) || is_socket(path);
            if !may(access, role) || is_end {
                continue;
            }
            let answer = world.ask(client, method, path).await;
            asked += 1;
            if matches!(answer.status.as_u16(), 401 | 403) {
                wrong.push(format!("{role} may not {method} {path} ({access}): {} {}", answer.status, answer.body));
            }
        }
    }
    // Who owns it changes it.
    for (method, path, access) in &routes {
        if access == "owner" && method != "delete" {
            let answer = world.ask(&bob, method, path).await;
            asked += 1;
            if is_refused(&answer) {
                wrong.push(format!("its owner may not {method} {path}: {} {}", answer.status, answer.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
