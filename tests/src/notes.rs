//! An MCP server for tests: it keeps notes, and has a third tool when a test says so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CreateTaskResult,
    DetailedTask, DiscoverResult, GetTaskParams, GetTaskResult, InputRequiredResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, SubscriptionFilter, Task, TaskPayload, TaskStatus, Tool,
    ToolAnnotations, ToolListChangedNotification,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// The protocol that the server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// The newest version, without a handshake.
    #[default]
    Newest,
    /// Versions with a handshake. It refuses the question which ones.
    Handshake,
    /// Versions with a handshake. Its process ends when it is asked which ones.
    Brittle,
}

/// See the module. Clones are the same server.
#[derive(Clone, Default)]
pub struct Notes(Arc<Kept>);

#[derive(Default)]
struct Kept {
    speaks: Speaks,
    notes: Mutex<Vec<String>>,
    has_more: AtomicBool,
    /// The description of the tool `write`; `None` is the first one.
    says: Mutex<Option<String>>,
    peers: Mutex<Vec<Peer<RoleServer>>>,
    listed: AtomicUsize,
    /// The number of changes of the list.
    changes: watch::Sender<u64>,
    /// The notes that are written as tasks, with their state.
    tasks: Mutex<Vec<(String, TaskStatus)>>,
    /// The number of times that a task was asked about.
    looked: AtomicUsize,
}

fn object(value: &Value) -> Arc<Map<String, Value>> {
    Arc::new(value.as_object().unwrap().clone())
}

impl Notes {
    /// Notes that speak certain versions of the protocol.
    pub fn speaking(speaks: Speaks) -> Self {
        Self(Arc::new(Kept { speaks, ..Kept::default() }))
    }

    /// Returns the notes.
    pub fn notes(&self) -> Vec<String> {
        self.0.notes.lock().unwrap().clone()
    }

    /// Returns the number of pages of the list that were read.
    pub fn listed(&self) -> usize {
        self.0.listed.load(Ordering::SeqCst)
    }

    /// Returns the number of handshakes.
    pub fn handshakes(&self) -> usize {
        self.0.peers.lock().unwrap().len()
    }

    /// Returns the number of questions about tasks.
    pub fn looked(&self) -> usize {
        self.0.looked.load(Ordering::SeqCst)
    }

    /// Returns the states of the tasks.
    pub fn tasks(&self) -> Vec<TaskStatus> {
        self.0.tasks.lock().unwrap().iter().map(|(_, state)| *state).collect()
    }

    /// Forgets the tasks.
    pub fn forget(&self) {
        self.0.tasks.lock().unwrap().clear();
    }

    /// Ends the tasks that are under way: their notes are written.
    pub fn finish(&self) {
        for (text, state) in self.0.tasks.lock().unwrap().iter_mut().filter(|(_, state)| !state.is_terminal()) {
            *state = TaskStatus::Completed;
            self.0.notes.lock().unwrap().push(text.clone());
        }
    }

    /// From now on there is a tool more, and every client is told.
    pub async fn more(&self) {
        self.0.has_more.store(true, Ordering::SeqCst);
        self.tell().await;
    }

    /// Changes the description of the tool `write` and notifies every client.
    pub async fn says(&self, description: &str) {
        *self.0.says.lock().unwrap() = Some(description.to_owned());
        self.tell().await;
    }

    async fn tell(&self) {
        self.0.changes.send_modify(|changes| *changes += 1);
        let peers = self.0.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = tokio::time::timeout(Duration::from_secs(1), peer.notify_tool_list_changed()).await;
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let read = Tool::new("read", "All notes.", object(&json!({"type": "object", "properties": {}})));
        let form =
            json!({"type": "object", "properties": {"notes": {"type": "array", "maxItems": 9}}, "required": ["notes"]});
        let read = read.with_raw_output_schema(object(&form)).with_annotations(ToolAnnotations::new().read_only(true));
        let says = self.0.says.lock().unwrap().clone().unwrap_or_else(|| "Adds a note.".into());
        let mut tools = vec![read, Tool::new("write", says, object(&text))];
        if self.0.has_more.load(Ordering::SeqCst) {
            tools.push(Tool::new("more.of it", "Came later.", object(&json!({"type": "object"}))));
        }
        tools
    }

    /// Begins to write a note as a task.
    fn begin(&self, text: &str) -> Task {
        let mut tasks = self.0.tasks.lock().unwrap();
        tasks.push((text.to_owned(), TaskStatus::Working));
        let time = "2026-01-01T00:00:00Z";
        Task::new((tasks.len() - 1).to_string(), TaskStatus::Working, time, time).with_poll_interval_ms(1)
    }

    fn task(&self, id: &str) -> Result<(usize, String, TaskStatus), ErrorData> {
        let tasks = self.0.tasks.lock().unwrap();
        let place = id.parse().ok().filter(|place| *place < tasks.len());
        let place: usize = place.ok_or_else(|| ErrorData::invalid_params("no such task", None))?;
        Ok((place, tasks[place].0.clone(), tasks[place].1))
    }
}

/// The question of a server that wants to know more before it writes.
fn question(text: &str, state: &str) -> InputRequiredResult {
    let schema = match text {
        "ask much" => json!({"type": "object", "required": ["name", "nights"], "properties": {
            "name": {"type": "string", "description": "Whose note it is."}, "nights": {"type": "integer", "minimum": 1}}}),
        "ask a secret" => json!({"type": "object", "properties": {"password": {"type": "string"}}}),
        _ => json!({"type": "object", "properties": {"name": {"type": "string"}}}),
    };
    let form = json!({"mode": "form", "message": "Who are *you*?", "requestedSchema": schema});
    let asked = json!({"resultType": "input_required", "requestState": state,
        "inputRequests": {"name": {"method": "elicitation/create", "params": form}}});
    serde_json::from_value(asked).unwrap()
}

impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_tasks();
        ServerConfig::new(can.build())
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        match self.0.speaks {
            Speaks::Newest => Ok(DiscoverResult::from_server_info(versions, self.get_info())),
            Speaks::Handshake => Err(ErrorData::invalid_request("what is that?", None)),
            Speaks::Brittle => std::process::exit(2),
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    changed.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                    let _ = context.sink().send(ToolListChangedNotification::default().into()).await;
                }
            }
        }
    }

    /// One tool a page.
    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.listed.fetch_add(1, Ordering::SeqCst);
        let at: usize = request.and_then(|request| request.cursor).map_or(0, |cursor| cursor.parse().unwrap_or(0));
        let tools = self.tools();
        let mut page = ListToolsResult::with_all_items(tools.iter().skip(at).take(1).cloned().collect());
        page.next_cursor = (at + 1 < tools.len()).then(|| (at + 1).to_string());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let result = match (request.name.as_ref(), arguments.get("text").and_then(Value::as_str)) {
            ("read", _) => CallToolResult::structured(json!({"notes": self.notes()})),
            ("write", Some("bad")) => CallToolResult::error(vec![ContentBlock::text("this is not to be noted")]),
            ("write", Some("die")) => std::process::exit(1),
            ("write", Some("never")) => std::future::pending().await,
            ("write", Some(text)) if text.starts_with("ask") => match (request.input_responses, text) {
                (None, _) => return Ok(question(text, "s1").into()),
                (Some(_), "ask twice") if request.request_state.as_deref() == Some("s1") => {
                    return Ok(question(text, "s2").into());
                }
                (Some(answers), "ask or fail") if json!(answers).to_string().contains("decline") => {
                    CallToolResult::error(vec![ContentBlock::text("nobody said")])
                }
                (Some(answers), _) => {
                    let said = json!({"answers": answers, "state": request.request_state}).to_string();
                    if said.contains("accept") {
                        self.0.notes.lock().unwrap().push(said.clone());
                    }
                    CallToolResult::success(vec![ContentBlock::text(said)])
                }
            },
            ("write", Some(text)) if text.starts_with("slowly ") => {
                return Ok(CreateTaskResult::new(self.begin(text)).into());
            }
            ("write", Some(text)) => {
                self.0.notes.lock().unwrap().push(text.to_owned());
                CallToolResult::success(vec![ContentBlock::text(format!("noted {text}"))])
            }
            (name, _) => CallToolResult::success(vec![ContentBlock::text(format!("{name} is done"))]),
        };
        Ok(result.into())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.0.looked.fetch_add(1, Ordering::SeqCst);
        let (_, text, state) = self.task(&request.task_id)?;
        let time = "2026-01-01T00:00:00Z";
        let task = Task::new(request.task_id, state, time, time).with_poll_interval_ms(1);
        let done = || json!({"content": [{"type": "text", "text": format!("noted {text}")}]});
        let payload = match state {
            TaskStatus::Completed => TaskPayload::Completed { result: done().as_object().unwrap().clone() },
            TaskStatus::Cancelled => TaskPayload::Cancelled,
            _ => TaskPayload::Working,
        };
        Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let (place, ..) = self.task(&request.task_id)?;
        self.0.tasks.lock().unwrap()[place].1 = TaskStatus::Cancelled;
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.peers.lock().unwrap().push(context.peer);
    }
}
