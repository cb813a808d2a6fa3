//! What bad input gets: its own clear refusal, and nothing half done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use store::faulty::Fault;
use tests::{Client, TestDaemon, honest, is_socket};

#[tokio::test]
async fn a_fascicle_that_unfolds_into_too_many_steps_is_refused() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let nodes = |run: Value| (0..60).map(|n| json!({"id": format!("n{n}"), "run": run})).collect::<Vec<_>>();
    let spec = |id: &str, nodes: Vec<Value>| json!({"id": id, "output": "n0", "nodes": nodes});
    let waits = json!({"wait": {"event": "go"}});
    op.post("/v1/fascicles", spec("f0", nodes(waits.clone()))).await.expect(StatusCode::CREATED);
    let refused = op.post("/v1/fascicles", spec("f1", nodes(json!({"fascicle": {"id": "f0"}})))).await;
    let refused = refused.refused(422, "invalid_fascicle");
    assert!(refused.to_string().contains("unfolds into 3660 steps"), "{refused}");
    // What has far too many nodes is not looked through.
    let chain = (0..9_000)
        .map(|n: u32| json!({"id": format!("n{n}"), "after": [format!("n{}", n.saturating_sub(1))], "run": waits}));
    let refused = op.post("/v1/fascicles", spec("f2", chain.collect())).await.refused(422, "invalid_fascicle");
    assert!(refused.to_string().contains("not 9000"), "{refused}");
}

/// An operation of the OpenAPI document.
struct Operation {
    method: Method,
    /// The path of one lifeform that is there, and of other things that are not.
    path: String,
    described: Value,
}

impl Operation {
    /// The described parameters of the query.
    fn query(&self) -> impl Iterator<Item = &Value> {
        self.described["parameters"].as_array().into_iter().flatten().filter(|parameter| parameter["in"] == "query")
    }
}

async fn operations(daemon: &TestDaemon) -> Vec<Operation> {
    let document = daemon.operator.get("/openapi.json").await.expect(StatusCode::OK);
    let (life, _) = daemon.lifeform().await;
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let part = |part: &str| match part {
            "{id}" if path.starts_with("/v1/lifeforms/") => life.clone(),
            "{id}" if path.starts_with("/v1/nexus/") => "commons".to_owned(),
            "{canvas}" => "canvas_chat_main".to_owned(),
            part if part.starts_with('{') => "1".to_owned(),
            part => part.to_owned(),
        };
        let path = path.split('/').map(part).collect::<Vec<_>>().join("/");
        found.extend(item.as_object().unwrap().iter().map(|(method, described)| Operation {
            method: method.to_uppercase().parse().unwrap(),
            path: path.clone(),
            described: described.clone(),
        }));
    }
    found
}

#[tokio::test]
async fn every_route_refuses_an_unknown_query_parameter() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let mut taking = 0;
    let operations = operations(&daemon).await;
    for operation in operations.iter().filter(|operation| operation.path != "/health") {
        let path = format!("{}?zzz=1", operation.path);
        let answer = op.send(operation.method.clone(), &path, &[], None).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{} {path}: {}", operation.method, answer.body);
        taking += usize::from(operation.query().count() > 0);
    }
    assert!(taking > 25 && operations.len() > taking + 60, "{taking} of {} operations take a query", operations.len());
    op.post("/api/knowledge/slim", json!({"dry_runn": true})).await.refused(422, "invalid");
    let twice = r#"{"command": "DESCRIBE PRIMER", "readonly": true, "readonly": false}"#;
    let refused = op.raw("/v1/nexus/commons/kip", twice).await.refused(422, "invalid");
    assert!(refused["detail"].as_str().unwrap().contains("readonly is a duplicate"), "{refused}");
    for id in [".", ".."] {
        op.post("/v1/neurons", json!({"id": id, "kind": "base"})).await.refused(422, "invalid");
    }
    let part = json!({"neuron": {"spec": {"memory": "x"}}, "zz": 1});
    let part = json!({"id": "f", "output": "t", "nodes": [{"id": "t", "run": part}]});
    op.post("/v1/fascicles", part).await.refused(422, "invalid");
    // Skills refuse as their origin does.
    let skill = op.post("/v1/skills", json!({"skill_md_content": "x", "zzz": 1})).await;
    assert_eq!(skill.status, StatusCode::BAD_REQUEST, "{}", skill.body);
}

#[tokio::test]
async fn every_route_with_pages_refuses_a_limit_out_of_range() {
    let daemon = TestDaemon::start(honest).await;
    let mut asked = 0;
    for operation in operations(&daemon).await {
        let limit = operation.query().find(|parameter| parameter["name"] == "limit");
        let Some(limit) = limit else { continue };
        // The messages of a topic are all there are, unless fewer are asked for.
        if operation.path.ends_with("/messages") {
            continue;
        }
        let most = limit["schema"]["maximum"].as_f64().unwrap_or_else(|| panic!("{} has no bound", operation.path));
        for limit in [0.0, most + 1.0] {
            let path = format!("{}?limit={limit}", operation.path);
            let refused = daemon.operator.get(&path).await;
            let says_why = refused.body.to_string().contains("from 1 to");
            assert!(matches!(refused.status.as_u16(), 400 | 422) && says_why, "{path}: {}", refused.body);
        }
        let path = format!("{}?limit={most}", operation.path);
        let status = daemon.operator.get(&path).await.status;
        assert!(matches!(status.as_u16(), 200 | 404), "{path}: {status}");
        asked += 1;
    }
    assert!(asked >= 10, "only {asked} operations have pages");
}

#[tokio::test]
async fn a_route_without_a_body_refuses_one_that_is_not_empty() {
    let daemon = TestDaemon::start(honest).await;
    let mut asked = 0;
    let reads_none =
        |operation: &Operation| operation.method != Method::GET && operation.described.get("requestBody").is_none();
    for Operation { method, path, .. } in operations(&daemon).await.into_iter().filter(reads_none) {
        let answer = daemon.operator.send(method.clone(), &path, &[], Some(json!({"zzz": 1}))).await;
        let is_refused = matches!(answer.status.as_u16(), 400 | 422);
        let says_why = answer.body.to_string().contains("this route reads no body");
        assert!(is_refused && says_why, "{method} {path}: {} {}", answer.status, answer.body);
        asked += 1;
    }
    assert!(asked > 15, "only {asked} operations read no body");
    let (life, _) = daemon.lifeform().await;
    daemon.operator.post(&format!("/v1/lifeforms/{life}/stop"), json!({})).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn every_route_but_health_and_the_page_wants_a_token() {
    let daemon = TestDaemon::start(honest).await;
    let described = daemon.operator.get("/openapi.json").await.expect(StatusCode::OK);
    let stranger = Client::new(daemon.operator.base.clone(), String::new());
    let impostor = Client::new(daemon.operator.base.clone(), "lfd_no_such_token_here".into());
    let mut routes = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods
            .as_object()
            .unwrap()
            .keys()
            .filter(|method| ["get", "post", "put", "patch", "delete"].contains(&method.as_str()))
        {
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = path.replace(['{', '}'], "");
            // A socket may be told the token in its first frame.
            if is_socket(&path) {
                stranger.send(method, &path, &[], None).await.refused(400, "not_a_websocket");
                continue;
            }
            if path == "/health" {
                stranger.send(method, &path, &[], None).await.expect(StatusCode::OK);
                continue;
            }
            for (client, code) in [(&stranger, "no_token"), (&impostor, "bad_token")] {
                let answer = client.send(method.clone(), &path, &[], None).await;
                assert!(answer.headers.contains_key("www-authenticate"), "{path}");
                // So has OpenAI's API.
                if path.starts_with("/v1/models") || ["/v1/chat/completions", "/v1/embeddings"].contains(&&*path) {
                    let kind = answer.body["error"]["type"].as_str().unwrap_or_default();
                    assert_eq!(
                        (answer.status.as_u16(), kind),
                        (401, "authentication_error"),
                        "{path}: {}",
                        answer.body
                    );
                    continue;
                }
                // The unit protocol has a shape of its own for refusals.
                let of_units = ["/v1/knowledge", "/v1/skills", "/v1/reputation", "/v1/providers"];
                match of_units.iter().any(|own| path.starts_with(own)) {
                    true => assert_eq!((answer.status.as_u16(), &answer.body["code"]), (401, &json!(code))),
                    false => drop(answer.refused(401, code)),
                }
            }
            routes += 1;
        }
    }
    assert!(routes >= 35, "only {routes} routes are described");
    stranger.get("/openapi.json").await.refused(401, "no_token");
    for page in ["/ui/", "/ui/inbox", "/ui/l/some/c/other"] {
        let answer = stranger.get(page).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    }
}

#[tokio::test]
async fn bodies_that_are_not_what_a_route_takes_are_refused_by_name() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    op.topic(&base, "t1").await;
    let messages = format!("{base}/topics/t1/messages");
    op.raw(&messages, "{\"content\": \"half").await.refused(400, "malformed_json");
    op.raw(&messages, "\u{0}").await.refused(400, "malformed_json");
    op.raw(&messages, "x".repeat(2 << 20)).await.refused(413, "too_large");
    op.post(&messages, json!({"content": 7})).await.refused(422, "invalid");
    op.post(&messages, json!({"content": "x", "colour": 1})).await.refused(422, "invalid");
    op.post(&messages, json!({"content": "  "})).await.refused(422, "schema");
    op.post(&messages, json!({"content": "x".repeat(40_000)})).await.refused(422, "schema");
    op.post(&messages, json!({"content": "x", "id": "../../etc"})).await.refused(422, "schema");
    op.post(&messages, json!({"content": "x", "reply_to": "none"})).await.refused(404, "not_found");
    op.post(&format!("{base}/topics/none/messages"), json!({"content": "x"})).await.refused(404, "not_found");
    op.post(&format!("{base}/topics"), json!({"title": ""})).await.refused(422, "schema");
    op.post(&format!("{base}/topics"), json!({"title": "again", "id": "t1"})).await.refused(409, "exists");
    op.get(&format!("{base}/ops?after=99999")).await.refused(410, "reset");
    op.get(&format!("{base}/ops?after=x")).await.refused(400, "query");
    op.get("/v1/lifeforms/none").await.refused(404, "lifeform_not_found");
    op.get("/v1/nothing").await.refused(404, "no_route");
    op.send(Method::PATCH, "/v1/neurons", &[], None).await.refused(405, "method");
    op.get("/v1/jobs/none").await.refused(404, "job_not_found");
    op.get("/v1/fascicles/none").await.refused(404, "fascicle_not_found");
    assert_eq!(op.get("/v1/fascicles/reply").await.expect(StatusCode::OK)["output"], "say");
    assert_eq!(op.get("/v1/fascicles").await.expect(StatusCode::OK)["fascicles"][0]["id"], "answer_with_memory");
    let pay = format!("/v1/lifeforms/{id}/resources/transactions");
    op.post(&pay, json!({"amount": 0, "currency": "tokens"})).await.refused(422, "invalid");
    op.post(&pay, json!({"amount": i64::MIN, "currency": "tokens"})).await.refused(422, "invalid");
    op.post(&pay, json!({"amount": 1, "currency": "gold"})).await.refused(422, "invalid");
    op.post(&pay, json!({"amount": 1.5, "currency": "tokens"})).await.refused(422, "invalid");
    op.send(Method::POST, &messages, &[("idempotency-key", "")], Some(json!({"content": "x"})))
        .await
        .refused(400, "idempotency_key");
    assert_eq!(op.get(&messages).await.expect(StatusCode::OK)["messages"], json!([]), "nothing half done");
}

#[tokio::test]
async fn kip_answers_its_envelope_and_only_operators_write() {
    let daemon = TestDaemon::start(honest).await;
    let (id, _) = daemon.lifeform().await;
    let path = format!("/v1/lifeforms/{id}/kip");
    let find = json!({
        "command": "FIND(?p.attributes.name) WHERE { ?p {type: \"Person\", name: $who} }",
        "parameters": {"who": "$self"},
    });
    assert_eq!(daemon.operator.post(&path, find.clone()).await.expect(StatusCode::OK), json!({"result": ["Iris"]}));
    let wrong = daemon.operator.post(&path, json!({"command": "FIND(?p"})).await.expect(StatusCode::OK);
    assert_eq!((&wrong["error"]["kind"], &wrong["error"]["line"]), (&json!("syntax"), &json!(1)));
    let ada = daemon.person("user:ada", "participant").await;
    assert_eq!(ada.post(&path, find).await.expect(StatusCode::OK), json!({"result": ["Iris"]}));
    let write = json!({"command": "UPSERT { CONCEPT ?d { {type: \"Domain\", name: \"Sea\"} } }"});
    assert_eq!(ada.post(&path, write.clone()).await.expect(StatusCode::OK)["error"]["kind"], "execution");
    assert!(daemon.operator.post(&path, write).await.expect(StatusCode::OK)["result"].is_object());
    daemon.operator.post(&path, json!({"commmand": "x"})).await.refused(422, "invalid");
    daemon
        .operator
        .post("/v1/lifeforms/none/kip", json!({"command": "DESCRIBE PRIMER"}))
        .await
        .refused(404, "lifeform_not_found");
}

#[tokio::test]
async fn roles_bound_what_a_token_may_do_and_a_revoked_one_is_nobody() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let (ada, eve) = (daemon.person("user:ada", "participant").await, daemon.person("user:eve", "observer").await);
    ada.post("/v1/lifeforms", json!({"definition": "first"})).await.refused(403, "forbidden");
    ada.post(&format!("/v1/lifeforms/{id}/resources/transactions"), json!({"amount": 5, "currency": "tokens"}))
        .await
        .refused(403, "forbidden");
    ada.post("/v1/tokens", json!({"principal": "user:mallory", "role": "operator"})).await.refused(403, "forbidden");
    ada.get(&format!("/v1/lifeforms/{id}/calls")).await.refused(403, "forbidden");
    ada.topic(&base, "t1").await;
    eve.post(&format!("{base}/topics"), json!({"title": "x"})).await.refused(403, "forbidden");
    eve.get(&format!("{base}/state")).await.expect(StatusCode::OK);
    for wrong in ["ada", "user:", "ghost:ada", "user:a b", "system:x"] {
        daemon.operator.post("/v1/tokens", json!({"principal": wrong})).await.refused(422, "invalid");
    }
    let listed = daemon.operator.get("/v1/tokens").await.expect(StatusCode::OK);
    let names: Vec<&Value> = listed["principals"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(names, ["user:ada", "user:eve", "user:operator"]);
    assert!(!listed.to_string().contains("lfd_"), "a token is shown once");
    assert_eq!(daemon.operator.delete("/v1/tokens/user:ada").await.status, StatusCode::NO_CONTENT);
    ada.get("/v1/lifeforms").await.refused(401, "bad_token");
    daemon.operator.delete("/v1/tokens/user:ada").await.refused(404, "no_token");
    daemon.operator.delete("/v1/tokens/user:operator").await.refused(403, "forbidden");
}

#[tokio::test]
async fn pages_of_other_sites_are_kept_out() {
    let daemon = TestDaemon::start(honest).await;
    for foreign in ["https://evil.example", "null"] {
        let answer = daemon.operator.send(Method::GET, "/v1/lifeforms", &[("origin", foreign)], None).await;
        answer.refused(403, "forbidden");
    }
    let own = daemon.operator.base.clone();
    let answer = daemon.operator.send(Method::GET, "/v1/lifeforms", &[("origin", own.as_str())], None).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn without_any_model_everything_else_works_and_says_so() {
    use std::sync::Arc;
    use store::{Clock, Memory, SystemClock};
    let folder = tempfile::tempdir().unwrap();
    let config =
        runtime::Config::load(None, &[("data", folder.path().display().to_string()), ("listen", "127.0.0.1:0".into())])
            .unwrap();
    let parts = runtime::Parts {
        backend: Arc::new(Memory::default()),
        clock: Arc::new(SystemClock) as Arc<dyn Clock>,
        models: neurons::Models::none("no weights could be had"),
        first: None,
        schemas: knowledge::unit::versions::Schemas::default(),
    };
    let daemon = runtime::Daemon::start(&config, parts).await.unwrap();
    let op = Client::new(format!("http://{}", daemon.address), daemon.token.clone());
    assert_eq!(op.get("/health").await.expect(StatusCode::OK)["thinks"], false);
    op.post("/v1/neurons", json!({"id": "n"})).await.expect(StatusCode::CREATED);
    let body = op.post("/v1/neurons/n/invoke", json!({"input": "x"})).await.refused(503, "no_model");
    assert!(body["detail"].as_str().unwrap().contains("no weights could be had"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(config.token_file()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "the operator's token is nobody else's to read");
}

#[tokio::test]
async fn a_stopping_daemon_says_goodbye_and_closes_its_store() {
    let daemon = TestDaemon::start(honest).await;
    let (_, base) = daemon.lifeform().await;
    let mut socket = daemon.operator.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let stopping = tokio::spawn(daemon.daemon.stop());
    let (frames, code) = socket.closed().await;
    assert_eq!((frames.last().unwrap()["t"].as_str(), code), (Some("bye"), 1012));
    stopping.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_query_or_a_body_of_another_form_is_a_problem_document() {
    let daemon = TestDaemon::start(honest).await;
    let (id, _) = daemon.lifeform().await;
    let op = &daemon.operator;
    for after in ["-1", "99999999999999999999", "x"] {
        op.get(&format!("/v1/nexus/{id}/journal?after={after}")).await.refused(400, "query");
    }
    let end = op.get(&format!("/v1/nexus/{id}/journal?after={}", u64::MAX)).await.expect(StatusCode::OK);
    assert_eq!(end["entries"], json!([]), "{end}");
    let by_place = json!(["UPSERT { CONCEPT { {type: \"Domain\", name: \"Sea\"} } }"]);
    op.post(&format!("/v1/nexus/{id}/kip"), by_place).await.refused(422, "invalid");
}

#[tokio::test]
async fn the_daemon_serves_its_own_host_names_and_refuses_others() {
    let daemon =
        TestDaemon::builder().config(|config| config.hosts = vec!["life.example.org".into()]).start(honest).await;
    let ask = async |host: &str| {
        let headers = [("host", host)];
        daemon.operator.send(Method::GET, "/v1/lifeforms", &headers, None).await
    };
    for ours in [
        "127.0.0.1:1",
        "localhost",
        "LOCALHOST:80",
        "[::1]:7717",
        "192.168.1.9",
        "life.example.org",
        "Life.Example.org:443",
    ] {
        ask(ours).await.expect(StatusCode::OK);
    }
    let two = [("host", "localhost"), ("host", "evil.example")];
    daemon.operator.send(Method::GET, "/health", &two, None).await.refused(400, "host");
    for foreign in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "life.example.org.evil",
        "[::1].evil",
        "localhost:evil",
        "localhost:99999",
    ] {
        ask(foreign).await.refused(421, "host");
        let page = daemon.operator.send(Method::GET, "/", &[("host", foreign)], None).await;
        assert_eq!(page.status, 421, "the page, too");
    }
}

#[tokio::test]
async fn an_origin_that_is_no_text_is_refused() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let daemon = TestDaemon::start(honest).await;
    let address = daemon.operator.base.trim_start_matches("http://");
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut request =
        format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nOrigin: http://a").into_bytes();
    request.extend_from_slice(b"\xe9\r\n\r\n");
    socket.write_all(&request).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn answers_are_kept_in_no_cache_and_a_401_says_what_it_asks_for() {
    let daemon = TestDaemon::start(honest).await;
    let listed = daemon.operator.get("/v1/lifeforms").await;
    assert_eq!(listed.headers["cache-control"], "no-store");
    let none = tests::Client::new(daemon.operator.base.clone(), String::new()).get("/v1/lifeforms").await;
    assert_eq!(
        (none.status.as_u16(), &none.headers["www-authenticate"]),
        (401, &"Bearer realm=\"lifeformd\"".parse().unwrap())
    );
    let wrong = tests::Client::new(daemon.operator.base.clone(), "lfd_wrong".into()).get("/v1/lifeforms").await;
    assert!(wrong.headers["www-authenticate"].to_str().unwrap().contains("invalid_token"));
}

#[tokio::test]
async fn the_routes_that_the_documents_name_are_there() {
    let daemon = TestDaemon::start(honest).await;
    let described = daemon.operator.get("/openapi.json").await.expect(StatusCode::OK);
    let paths: Vec<&String> = described["paths"].as_object().unwrap().keys().collect();
    let is_known = |route: &str| {
        let parts: Vec<&str> = route.split('/').collect();
        let is_open = |part: &str| part.starts_with(['{', '$']);
        paths.iter().any(|path| {
            let template: Vec<&str> = path.split('/').collect();
            let alike = |(part, name): (&&str, &&str)| part == name || is_open(name) || is_open(part);
            // A page may name the beginning of routes, and the last parameter of some routes holds slashes.
            let fits = parts.len() <= template.len() || path.contains("/resource/{");
            fits && parts.iter().zip(&template).all(alike)
        })
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf();
    let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md"), root.join("nexus/kip/README.md")];
    let mut folders = vec![root.join("docs/src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { pages.push(path) }
        }
    }
    // The pages name the address of the daemon by a variable.
    let named = regex::Regex::new(r"(?m)(?:^|[^\w./])(\$B|\$A|/v1|/api)((?:/[A-Za-z0-9_{}$-]+)+)([^A-Za-z0-9_{}$-]|$)")
        .unwrap();
    let mut looked_at = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for found in named.captures_iter(&text).filter(|found| !["/", "…"].contains(&&found[3])) {
            let prefix = found[1].replace("$B", "/v1").replace("$A", "/api");
            let route = format!("{prefix}{}", &found[2]);
            assert!(is_known(&route), "{}: {route} is no route", page.display());
            looked_at += 1;
        }
    }
    assert!(looked_at > 30, "only {looked_at} routes were found in the documents");
}

#[tokio::test]
async fn health_is_failing_while_the_disk_takes_no_writes() {
    let daemon = TestDaemon::start(honest).await;
    daemon.faults.add(Fault::Full);
    let refused = daemon.operator.post("/v1/lifeforms", json!({"definition": "first"})).await;
    assert!(refused.status.is_server_error(), "{} {}", refused.status, refused.body);
    let health = daemon.operator.get("/health").await;
    assert_eq!(health.status, StatusCode::SERVICE_UNAVAILABLE, "{}", health.body);
    assert_eq!((&health.body["status"], &health.body["parts"]["log"]), (&json!("failing"), &json!("failing")));
    daemon.faults.clear();
    assert_eq!(daemon.operator.get("/health").await.expect(StatusCode::OK)["status"], "ok");
    daemon.operator.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
}

/// Each address of the page is its index with a nonce of its own, its files are kept for good, and a file that is gone is missed.
#[tokio::test]
async fn the_page_has_its_files_and_a_nonce_of_its_own() {
    let daemon = TestDaemon::start(honest).await;
    let (http, base) = (reqwest::Client::new(), &daemon.operator.base);
    let get = async |path: &str| http.get(format!("{base}{path}")).send().await.unwrap();
    let nonce = regex::Regex::new("'nonce-([^']+)'").unwrap();
    let files = regex::Regex::new(r#"(?:src|href)="(/ui/assets/[^"]+)""#).unwrap();
    let mut nonces = Vec::new();
    for path in ["/ui/", "/ui/jobs/none"] {
        let response = get(path).await;
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        let own = nonce.captures(&policy).unwrap()[1].to_owned();
        assert_eq!(response.headers()["cache-control"], "no-cache");
        let page = response.text().await.unwrap();
        assert!(page.contains(&format!("nonce=\"{own}\"")) && !page.contains("NONCE_OF_THIS_RESPONSE"), "{page}");
        nonces.push(own);
        for file in files.captures_iter(&page) {
            let response = get(&file[1]).await;
            assert_eq!(response.status(), StatusCode::OK, "{}", &file[1]);
            assert!(response.headers()["cache-control"].to_str().unwrap().contains("immutable"));
        }
    }
    assert_ne!(nonces[0], nonces[1]);
    let moved = get("/").await;
    assert_eq!(moved.url().path(), "/ui/");
    assert_eq!(get("/ui/assets/gone-0000.js").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(get("/v1/ui/").await.status(), StatusCode::UNAUTHORIZED, "nothing outside of /ui/ is the page");
}

#[test]
fn the_page_loads_its_own_files_and_nothing_else() {
    let page = include_str!("../../../runtime/ui/dist/index.html");
    // Without an icon, a browser asks for one, and is refused.
    assert!(page.contains("rel=\"icon\""), "{page}");
    let named = regex::Regex::new(r#"(?:src|href)="([^"]*)""#).unwrap();
    let others: Vec<&str> = named.captures_iter(page).map(|found| found.extract::<1>().1[0]).collect();
    assert!(others.iter().all(|name| *name == "data:," || name.starts_with("/ui/assets/")), "{others:?}");
}

#[tokio::test]
async fn health_names_the_parts() {
    let daemon = TestDaemon::start(honest).await;
    let health = daemon.operator.get("/health").await.expect(StatusCode::OK);
    assert_eq!(health["status"], "ok");
    assert_eq!(health["parts"], serde_json::json!({"log": "ok", "store": "ok", "disk": "ok", "models": "ok"}));
    // A key that is refused is a model that fails, until it answers.
    let refuses = Arc::new(AtomicBool::new(true));
    let is_refused = refuses.clone();
    let daemon = TestDaemon::start(move |request, n| match is_refused.load(Ordering::SeqCst) {
        true => Reply::Status(401, "the key is not known".into()),
        false => honest(request, n),
    })
    .await;
    let op = &daemon.operator;
    let spec = json!({"id": "tried", "memory": "Be brief."});
    op.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    let ask = async || op.post("/v1/neurons/tried/invoke", json!({"input": "Hello?"})).await;
    let models = async || op.get("/health").await.expect(StatusCode::OK)["parts"]["models"].clone();
    ask().await;
    assert_eq!(models().await, "failing");
    refuses.store(false, Ordering::SeqCst);
    ask().await.expect(StatusCode::OK);
    assert_eq!(models().await, "ok");
}

#[tokio::test]
async fn a_top_up_that_does_not_fit_is_refused_and_books_nothing() {
    let daemon = TestDaemon::start(honest).await;
    let (id, _) = daemon.lifeform().await;
    let path = format!("/v1/lifeforms/{id}/resources/transactions");
    let credit = serde_json::json!({"amount": 1_i64 << 62, "currency": "tokens"});
    let first = daemon.operator.post(&path, credit.clone()).await;
    let before = daemon.operator.get(&format!("/v1/lifeforms/{id}/resources")).await.body["balance"].clone();
    let second = daemon.operator.post(&path, credit).await;
    assert!(second.status == 422, "{} then {}: {}", first.status, second.status, second.body);
    let after = daemon.operator.get(&format!("/v1/lifeforms/{id}/resources")).await.body["balance"].clone();
    assert_eq!(before, after);
}
