//! An MCP server for tests: it keeps notes, and has a third tool when a test says so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};

/// See the module. Clones are the same server.
#[derive(Clone, Default)]
pub struct Notes(Arc<Kept>);

#[derive(Default)]
struct Kept {
    notes: Mutex<Vec<String>>,
    has_more: AtomicBool,
    /// The description of the tool `write`; `None` is the first one.
    says: Mutex<Option<String>>,
    peers: Mutex<Vec<Peer<RoleServer>>>,
    listed: AtomicUsize,
}

fn object(value: &Value) -> Arc<Map<String, Value>> {
    Arc::new(value.as_object().unwrap().clone())
}

impl Notes {
    /// What was noted.
    pub fn notes(&self) -> Vec<String> {
        self.0.notes.lock().unwrap().clone()
    }

    /// How many pages of the list were asked for.
    pub fn listed(&self) -> usize {
        self.0.listed.load(Ordering::SeqCst)
    }

    /// From now on there is a tool more, and every client is told.
    pub async fn more(&self) {
        self.0.has_more.store(true, Ordering::SeqCst);
        let peers = self.0.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = tokio::time::timeout(Duration::from_secs(1), peer.notify_tool_list_changed()).await;
        }
    }

    /// Changes the description of the tool `write` and notifies every client.
    pub async fn says(&self, description: &str) {
        *self.0.says.lock().unwrap() = Some(description.to_owned());
        let peers = self.0.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = tokio::time::timeout(Duration::from_secs(1), peer.notify_tool_list_changed()).await;
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let read = Tool::new("read", "All notes.", object(&json!({"type": "object", "properties": {}})));
        let says = self.0.says.lock().unwrap().clone().unwrap_or_else(|| "Adds a note.".into());
        let write = Tool::new("write", says, object(&text));
        let mut tools = vec![read.with_annotations(ToolAnnotations::new().read_only(true)), write];
        if self.0.has_more.load(Ordering::SeqCst) {
            tools.push(Tool::new("more.of it", "Came later.", object(&json!({"type": "object"}))));
        }
        tools
    }
}

impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
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
            ("write", Some(text)) => {
                self.0.notes.lock().unwrap().push(text.to_owned());
                CallToolResult::success(vec![ContentBlock::text(format!("noted {text}"))])
            }
            (name, _) => CallToolResult::success(vec![ContentBlock::text(format!("{name} is done"))]),
        };
        Ok(result.into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.peers.lock().unwrap().push(context.peer);
    }
}
