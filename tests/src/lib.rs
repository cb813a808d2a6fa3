//! What the integration tests share: a daemon on a free port with a scripted model, and clients for it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails there and says so")]

mod bound;
pub mod conformance;
pub mod disk;
pub mod notes;
mod polling;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use knowledge::unit::versions::Schemas;
use neurons::llm::scripted::{Reply, Scripted};
use neurons::llm::{ChatRequest, LlmProvider, Model, Price};
use neurons::{Models, Tier};
use reqwest::{Method, StatusCode};
use runtime::{Config, Daemon, Parts};
use serde_json::{Value, json};
use store::faulty::Faulty;
use store::{Backend, Clock, ManualClock, Memory};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

pub use polling::{again, end_loops};

/// The longest a test waits for anything: 60 s, or as many as `TEST_PATIENCE_S` says, where long rounds share the
/// machine with other work.
static PATIENCE: LazyLock<Duration> = LazyLock::new(|| {
    let seconds = std::env::var("TEST_PATIENCE_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
});

/// A daemon under test.
pub struct TestDaemon {
    /// The daemon.
    pub daemon: Daemon,
    /// The model it thinks with.
    pub model: Scripted,
    /// Its clock.
    pub clock: ManualClock,
    /// A client with the operator's token.
    pub operator: Client,
    disk: Arc<Memory>,
    /// The faults of its disk.
    pub faults: Arc<Faulty<Memory>>,
    configure: Configure,
    calls_tools: bool,
    _folder: tempfile::TempDir,
    _bound: bound::Bound,
}

/// What a test changes of the configuration.
type Configure = Arc<dyn Fn(&mut Config) + Send + Sync>;

/// A builder of a [`TestDaemon`].
pub struct Builder {
    configure: Vec<Configure>,
    schemas: Schemas,
    alike: Option<Vec<(String, String)>>,
    calls_tools: bool,
}

impl Builder {
    /// Changes the configuration.
    #[must_use]
    pub fn config(mut self, change: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        self.configure.push(Arc::new(change));
        self
    }

    /// Sets the reach of the tools.
    #[must_use]
    pub fn tools(self, tools: runtime::config::Tools) -> Self {
        self.config(move |config| config.tools = tools.clone())
    }

    /// Adds an embedder, for which these pairs of words mean the same.
    #[must_use]
    pub fn alike(mut self, pairs: &[(&str, &str)]) -> Self {
        self.alike = Some(pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect());
        self
    }

    /// Makes the model one that calls tools reliably.
    #[must_use]
    pub fn calls_tools(self) -> Self {
        Self { calls_tools: true, ..self }
    }

    /// Sets the versions of the unit protocol.
    #[must_use]
    pub fn schemas(self, schemas: Schemas) -> Self {
        Self { schemas, ..self }
    }

    /// Starts the daemon, whose model answers by `script`.
    pub async fn start(self, script: impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static) -> TestDaemon {
        let Self { configure, schemas, alike, calls_tools } = self;
        let mut model = Scripted::new(script);
        if let Some(alike) = &alike {
            let pairs: Vec<(&str, &str)> = alike.iter().map(|(one, other)| (&**one, &**other)).collect();
            model = model.taking_as_alike(&pairs);
        }
        let parts = (Arc::new(Memory::default()), model, tempfile::tempdir().unwrap());
        let configure = Arc::new(move |config: &mut Config| configure.iter().for_each(|change| change(config)));
        Box::pin(TestDaemon::of(parts, configure, schemas, calls_tools)).await
    }
}

/// A provider as the model of every tier, named by tier so that a script can tell them apart.
pub fn models_of(provider: &Arc<dyn LlmProvider>) -> Models {
    models_of_size(provider, false)
}

/// As [`models_of`], with models that are marked `small` or not.
pub fn models_of_size(provider: &Arc<dyn LlmProvider>, small: bool) -> Models {
    models_with(provider, small, false)
}

/// As [`models_of_size`], with models that call tools reliably or not.
pub fn models_with(provider: &Arc<dyn LlmProvider>, small: bool, tools: bool) -> Models {
    let model = |tier: Tier| {
        let name = serde_json::to_value(tier).unwrap_or_default().as_str().unwrap_or_default().to_owned();
        let price = Price::default();
        (tier, Model { provider: provider.clone(), name, price, context_tokens: 8192, small, tools })
    };
    Models::new(BTreeMap::from([model(Tier::Economy), model(Tier::Standard), model(Tier::High)]))
}

/// Tools that reach nowhere but to `nexus`.
pub fn tools_of(nexus: nexus::Nexus) -> neurons::tools::Tools {
    neurons::tools::Tools::new(nexus, &neurons::tools::Reach::default()).unwrap()
}

/// A model that learns and answers by rule: asked for JSON it reads the user's sentence as one fact, and no claim; asked
/// for text it repeats what it remembers, or says that it does not know.
pub fn honest(request: &ChatRequest, _: usize) -> Reply {
    let last = |role: &str| request.messages.iter().rev().find(|message| message.role == role);
    let user = last("user").and_then(|message| message.content.clone()).unwrap_or_default();
    if request.response_format.is_some() && user.starts_with("<statements>") {
        return Reply::Text(json!({"claims": [], "filed": []}).to_string());
    }
    if request.response_format.is_some() && user.starts_with("<question>") {
        return Reply::Text(json!({"asks": "", "counts": false, "claims": []}).to_string());
    }
    if request.response_format.is_some() {
        return Reply::Text(json!({"facts": [{"subject": "it", "statement": user}]}).to_string());
    }
    let system = last("system").and_then(|message| message.content.clone()).unwrap_or_default();
    match system.split_once("What you remember:") {
        Some((_, memories)) => {
            let notes = memories.trim().trim_start_matches("<notes>").trim_end_matches("</notes>");
            Reply::Text(format!("I remember: {}", notes.trim()))
        }
        None => Reply::Text("I do not know.".into()),
    }
}

/// A model that calls what the user names, as in `look {"city": "Rome"}`, and repeats what the tool said.
pub fn obedient(request: &ChatRequest, _: usize) -> Reply {
    let last = request.messages.last().unwrap();
    let said = last.content.clone().unwrap_or_default();
    match (last.role.as_str(), said.split_once(' ')) {
        ("user", Some((name, params))) => Reply::Tools(vec![("c1".into(), name.into(), params.into())]),
        _ => Reply::Text(said),
    }
}

impl TestDaemon {
    /// Starts a daemon whose model answers by `script`.
    pub async fn start(script: impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::builder().start(script).await
    }

    /// Returns a builder of a daemon with a configuration of its own.
    pub fn builder() -> Builder {
        Builder { configure: Vec::new(), schemas: Schemas::default(), alike: None, calls_tools: false }
    }

    async fn on(parts: (Arc<Memory>, Scripted, tempfile::TempDir), configure: Configure, calls_tools: bool) -> Self {
        Box::pin(Self::of(parts, configure, Schemas::default(), calls_tools)).await
    }

    async fn of(
        (disk, model, folder): (Arc<Memory>, Scripted, tempfile::TempDir),
        configure: Configure,
        schemas: Schemas,
        calls_tools: bool,
    ) -> Self {
        let clock = ManualClock::default();
        let provider = model.provider("scripted").unwrap();
        let mut models = models_with(&provider, false, calls_tools);
        if model.embeds() {
            let (name, price) = ("embedder".to_owned(), Price::default());
            models =
                models.with_embedder(Model { provider, name, price, context_tokens: 512, small: false, tools: false });
        }
        let flags = [("data", folder.path().display().to_string()), ("listen", "127.0.0.1:0".into())];
        let mut config = Config::load(None, &flags).unwrap();
        configure(&mut config);
        let faults = Arc::new(Faulty::new(disk.clone(), []));
        let parts = Parts {
            backend: faults.clone() as Arc<dyn Backend>,
            clock: Arc::new(clock.clone()) as Arc<dyn Clock>,
            models,
            first: None,
            schemas,
        };
        let daemon = Daemon::start(&config, parts).await.unwrap();
        let operator = Client::new(format!("http://{}", daemon.address), daemon.token.clone());
        let _bound = bound::Bound::begin();
        Self { daemon, model, clock, operator, disk, faults, configure, calls_tools, _folder: folder, _bound }
    }

    /// What a machine does when its process dies: nothing is closed, another daemon wakes on the same disk.
    pub async fn kill_and_restart(self) -> Self {
        self.daemon.app.lifeforms().halt().await;
        let disk = self.disk.kill();
        let (model, folder, configure, calls_tools) = (self.model, self._folder, self.configure, self.calls_tools);
        drop(self.daemon);
        Box::pin(Self::on((disk, model, folder), configure, calls_tools)).await
    }

    /// A lifeform that lives, and the path of its chat canvas.
    pub async fn lifeform(&self) -> (String, String) {
        let made =
            self.operator.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
        let id = made["id"].as_str().unwrap().to_owned();
        self.operator.post(&format!("/v1/lifeforms/{id}/start"), json!({})).await.expect(StatusCode::OK);
        let base = format!("/v1/lifeforms/{id}/canvases/canvas_chat_main");
        (id, base)
    }

    /// A client of another person.
    pub async fn person(&self, id: &str, role: &str) -> Client {
        let made =
            self.operator.post("/v1/tokens", json!({"principal": id, "role": role})).await.expect(StatusCode::CREATED);
        Client::new(self.operator.base.clone(), made["token"].as_str().unwrap().to_owned())
    }
}

impl TestDaemon {
    /// A client of somebody who is in these scopes besides his own.
    pub async fn member(&self, id: &str, scopes: &[&str]) -> Client {
        let body = json!({"principal": id, "scopes": scopes});
        let made = self.operator.post("/v1/tokens", body).await.expect(StatusCode::CREATED);
        Client::new(self.operator.base.clone(), made["token"].as_str().unwrap().to_owned())
    }
}

/// A client with one token.
#[derive(Clone)]
pub struct Client {
    /// `http://host:port`
    pub base: String,
    /// The token.
    pub token: String,
    http: reqwest::Client,
}

/// What a request brought.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
    /// The body, null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// The body, if the status is the expected one.
    #[track_caller]
    pub fn expect(self, status: StatusCode) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// Checks a refusal: its status and code, and that it is a problem as RFC 9457 has it.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        self.body
    }
}

impl Client {
    /// A client.
    pub fn new(base: String, token: String) -> Self {
        Self { base, token, http: reqwest::Client::new() }
    }

    /// Sends a request with headers.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        Self::read(request).await
    }

    /// Sends a text.
    pub async fn text(&self, path: &str, text: String) -> Answer {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.token);
        Self::read(request.header("content-type", "text/plain; charset=utf-8").body(text)).await
    }

    /// What a GET answers, as it is.
    pub async fn get_text(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.base)).bearer_auth(&self.token);
        let asked = async { request.send().await?.text().await };
        tokio::time::timeout(*PATIENCE, asked).await.unwrap().unwrap()
    }

    /// Sends raw bytes as JSON.
    pub async fn raw(&self, path: &str, bytes: impl Into<reqwest::Body>) -> Answer {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.token);
        Self::read(request.header("content-type", "application/json").body(bytes)).await
    }

    async fn read(request: reqwest::RequestBuilder) -> Answer {
        Self::try_read(request).await.unwrap()
    }

    async fn try_read(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
        let response = tokio::time::timeout(*PATIENCE, request.send()).await.unwrap()?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = serde_json::from_slice(&response.bytes().await?).unwrap_or(Value::Null);
        Ok(Answer { status, headers, body })
    }

    /// Sends a request; `None` when the daemon went away before it answered.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Option<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        Self::try_read(request).await.ok()
    }

    /// POST under an idempotency key; `None` when the daemon went away before it answered.
    pub async fn post_once(&self, path: &str, key: &str, body: Value) -> Option<StatusCode> {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.token);
        let request = request.header("idempotency-key", key).json(&body);
        Self::try_read(request).await.ok().map(|answer| answer.status)
    }

    /// GET
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    /// POST
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    /// PUT
    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, &[], Some(body)).await
    }

    /// PATCH
    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, &[], Some(body)).await
    }

    /// DELETE
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], None).await
    }

    /// Opens a topic of that id.
    pub async fn topic(&self, base: &str, id: &str) {
        self.post(&format!("{base}/topics"), json!({"id": id, "title": id})).await.expect(StatusCode::CREATED);
    }

    /// Says something in a topic; answers `{id, rev, epoch}`.
    pub async fn say(&self, base: &str, topic: &str, content: &str) -> Value {
        self.post(&format!("{base}/topics/{topic}/messages"), json!({"content": content}))
            .await
            .expect(StatusCode::CREATED)
    }

    /// Does several ops to a canvas.
    pub async fn post_ops(&self, base: &str, ops: Vec<Value>) -> Answer {
        self.post(&format!("{base}/ops"), json!({"ops": ops})).await
    }

    /// Subscribes to a canvas with this token in `hello`.
    pub async fn subscribe(&self, base: &str, resume: Option<Value>) -> Socket {
        let mut socket = self.socket(base).await;
        socket.send(&json!({"t": "hello", "v": 1, "token": self.token, "resume": resume, "want": ["stream"]})).await;
        socket
    }

    /// Subscribes to a job, with the token as a subprotocol, as a browser would.
    pub async fn job_socket(&self, path: &str) -> Socket {
        let mut request = format!("{}{path}", self.base.replacen("http", "ws", 1)).into_client_request().unwrap();
        let protocols = format!("ailf.job.v1, bearer.{}", self.token);
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        Socket::over(socket)
    }

    /// Opens a socket of events, with the token as a subprotocol, as a browser would.
    pub async fn events_socket(&self, query: &str) -> Socket {
        let base = self.base.replacen("http", "ws", 1);
        let mut request = format!("{base}/v1/events{query}").into_client_request().unwrap();
        let protocols = format!("ailf.events.v1, bearer.{}", self.token);
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        Socket::over(socket)
    }

    /// Subscribes to what happens.
    pub async fn watch(&self, query: &str, resume: Option<Value>) -> Socket {
        let mut socket = self.events_socket(query).await;
        socket.send(&json!({"t": "hello", "v": 1, "resume": resume})).await;
        socket
    }

    /// All server-sent events of a GET until its end: names and data.
    pub async fn events(&self, path: &str) -> Vec<(String, Value)> {
        let request = self.http.get(format!("{}{path}", self.base)).bearer_auth(&self.token);
        Self::read_events(request).await
    }

    /// All server-sent events that a POST answers.
    pub async fn post_events(&self, path: &str, body: Value) -> Vec<(String, Value)> {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.token).json(&body);
        Self::read_events(request).await
    }

    /// A POST whose answer is read as it comes.
    pub async fn stream(&self, path: &str, body: Value) -> reqwest::Response {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.token).json(&body);
        request.header("accept", "text/event-stream").send().await.unwrap()
    }

    async fn read_events(request: reqwest::RequestBuilder) -> Vec<(String, Value)> {
        let sent = request.header("accept", "text/event-stream").send();
        let text = tokio::time::timeout(*PATIENCE, async { sent.await?.text().await }).await.unwrap().unwrap();
        let member = |frame: &str, name: &str| {
            frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        let frames = text.split("\n\n").filter(|frame| frame.contains("event:"));
        frames
            .map(|frame| (member(frame, "event:"), serde_json::from_str(&member(frame, "data:")).unwrap_or_default()))
            .collect()
    }

    /// Opens a socket and says nothing.
    pub async fn socket(&self, base: &str) -> Socket {
        let mut request =
            format!("{}{base}/subscribe", self.base.replacen("http", "ws", 1)).into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "ailf.canvas.v1".parse().unwrap());
        let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        Socket::over(socket)
    }
}

/// A subscription.
pub struct Socket(pub WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>, VecDeque<Value>);

impl Socket {
    /// A subscription over an open socket.
    pub fn over(socket: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>) -> Self {
        Self(socket, VecDeque::new())
    }

    /// Sends a frame.
    pub async fn send(&mut self, frame: &Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// The next frame, or the code the socket was closed with. Deltas that come together are answered one by one.
    pub async fn next(&mut self) -> Result<Value, u16> {
        loop {
            if let Some(delta) = self.1.pop_front() {
                return Ok(delta);
            }
            match tokio::time::timeout(*PATIENCE, self.0.next()).await.unwrap() {
                Some(Ok(Message::Text(text))) => {
                    let mut frame: Value = serde_json::from_str(&text).unwrap();
                    match frame.get_mut("deltas").map(Value::take) {
                        Some(Value::Array(deltas)) => self.1.extend(deltas),
                        _ => return Ok(frame),
                    }
                }
                Some(Ok(Message::Close(frame))) => return Err(frame.map_or(1005, |frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    /// Frames up to and with the first that `is` wanted.
    pub async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.unwrap_or_else(|code| panic!("closed with {code} after {frames:?}"));
            let found = is(&frame);
            frames.push(frame);
            if found {
                return frames;
            }
        }
    }

    /// The code the socket is closed with, and the frames before.
    pub async fn closed(&mut self) -> (Vec<Value>, u16) {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Ok(frame) => frames.push(frame),
                Err(code) => return (frames, code),
            }
        }
    }

    /// Frames until the lifeform has finished an answer; the last is the one that finished it.
    pub async fn answer(&mut self) -> Vec<Value> {
        self.until(|frame| {
            frame["kind"] == "message.finish"
                || (frame["kind"] == "message.append" && frame["actor"]["kind"] == "lifeform")
        })
        .await
    }
}

/// Returns `true` for the path of a WebSocket, which asks for the token itself.
pub fn is_socket(path: &str) -> bool {
    path.ends_with("/subscribe") || path == "/v1/events"
}

/// Applies frames to a state as a client does, checking that each follows the one before.
#[derive(Default)]
pub struct Mirror {
    /// The revision it stands at.
    pub rev: u64,
    /// What it folded.
    pub state: Value,
}

impl Mirror {
    /// Takes a frame in.
    pub fn take(&mut self, frame: &Value) {
        match frame["t"].as_str().unwrap() {
            "snapshot" => (self.rev, self.state) = (frame["rev"].as_u64().unwrap(), frame["state"].clone()),
            "delta" => {
                assert_eq!(frame["prev"], self.rev, "a gap or a repetition");
                let patch: json_patch::Patch = serde_json::from_value(frame["patch"].clone()).unwrap();
                json_patch::patch(&mut self.state, &patch).unwrap();
                self.rev = frame["rev"].as_u64().unwrap();
            }
            "skip" => self.rev = frame["to"].as_u64().unwrap(),
            _ => {}
        }
    }
}

/// The text of the message that a frame finished or appended.
pub fn text_of(frame: &Value) -> String {
    let ops = frame["patch"].as_array().cloned().unwrap_or_default();
    let text = ops.iter().find_map(|op| {
        op["value"]["content"].as_str().or_else(|| {
            op["value"].as_str().filter(|_| op["path"].as_str().is_some_and(|path| path.ends_with("/content")))
        })
    });
    text.unwrap_or_default().to_owned()
}
