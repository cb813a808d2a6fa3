//! `/mcp`: the memory for agents that use MCP. KIP, records, resources and canvases are tools; the primer and the KIP
//! card are resources and prompts. The transport is Streamable HTTP without sessions: each request has its token and
//! gets a JSON response.

mod messages;

use std::sync::Arc;

use axum::http::request::Parts;
use knowledge::KnowledgeError;
use lifeform::canvas::CHAT;
use neurons::tools::BuiltinTool;
use nexus::kip::exec::json_size;
use nexus::{COMMONS, NexusId, Request as KipRequest};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Implementation, ListPromptsResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, Role as Speaker, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use store::{Cause, Origin, Role};

use super::error::ApiError;
use super::extract::bearer;
use super::{App, chat};
pub(super) use messages::refuse_malformed;

/// The maximum size of the answer of a tool in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The URIs of the KIP card, and of a mind's primer.
const CARD: &str = "lifeformd://kip/card";
const PRIMER: &str = "lifeformd://commons/primer";

/// Returns the service at `/mcp`.
pub(super) fn service(app: App) -> StreamableHttpService<Door, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // The guard of all routes has already checked the host and the token.
        .disable_allowed_hosts();
    StreamableHttpService::new(move || Ok(Door { app: app.clone() }), Arc::default(), config)
}

/// The MCP server of the daemon.
#[derive(Clone)]
pub(super) struct Door {
    app: App,
}

fn commons() -> NexusId {
    COMMONS.into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Look {
    lifeform: Arc<str>,
    #[serde(default = "main_chat")]
    canvas: Arc<str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Say {
    lifeform: Arc<str>,
    #[serde(default = "main_chat")]
    canvas: Arc<str>,
    topic: Arc<str>,
    content: String,
}

fn main_chat() -> Arc<str> {
    CHAT.into()
}

/// Returns the tools for KIP and canvases.
fn others() -> Vec<BuiltinTool> {
    let text = json!({"type": "string"});
    let tool = |name, description, required: Value, properties: Value, reads| BuiltinTool {
        name,
        description,
        parameters: json!({"type": "object", "required": required, "properties": properties}),
        reads,
        quotes: reads,
    };
    vec![
        tool(
            "execute_kip",
            "Runs a KIP command (FIND, SEARCH, DESCRIBE, UPSERT, UPDATE, DELETE, EXPORT) on the commons, or on a lifeform's mind.",
            json!([]),
            json!({"command": {"type": "string", "description": "one command; either this or commands"},
                   "commands": {"type": "array", "items": {"type": ["string", "object"]}, "description": "several, run in order: a text, or {command, parameters}"},
                   "parameters": {"type": "object", "description": "values for :name placeholders"},
                   "nexus": {"type": "string", "default": "commons", "description": "a lifeform's id, or commons"},
                   "readonly": {"type": "boolean", "default": false, "description": "refuses whatever could write"},
                   "dry_run": {"type": "boolean", "default": false, "description": "checks and writes nothing"},
                   "dialect": {"enum": ["draft7", "rc11"], "default": "draft7"},
                   "result_shape": {"enum": ["rows", "columns"]}}),
            false,
        ),
        tool(
            "canvas_read",
            "Reads a canvas of a lifeform: the topics and messages of its chat, or the nodes of a mind map.",
            json!(["lifeform"]),
            json!({"lifeform": text, "canvas": text}),
            true,
        ),
        tool(
            "canvas_post",
            "Says something in a topic of a lifeform's chat; the topic is opened where there is none.",
            json!(["lifeform", "topic", "content"]),
            json!({"lifeform": text, "canvas": text, "topic": text, "content": text}),
            false,
        ),
    ]
}

/// The reason for a failure, as text for an agent.
struct Refused(String);

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self(format!("{}: {}", error.code(), error.detail()))
    }
}

impl From<KnowledgeError> for Refused {
    fn from(error: KnowledgeError) -> Self {
        ApiError::from(error).into()
    }
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Refused> {
    of_value(Value::Object(arguments))
}

fn of_value<T: DeserializeOwned>(value: Value) -> Result<T, Refused> {
    serde_json::from_value(value).map_err(|error| Refused(format!("invalid: {error}")))
}

impl Door {
    /// Returns the caller. The guard admits only requests with a valid token.
    fn caller(&self, context: &RequestContext<RoleServer>, what: &str) -> Result<Origin, ErrorData> {
        let headers = context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let token = headers.and_then(bearer).ok_or_else(|| ErrorData::invalid_request("this wants a token", None))?;
        let principal = self.app.tokens.principal(token);
        let principal = principal.ok_or_else(|| ErrorData::invalid_request("this token is not known here", None))?;
        Ok(Origin::new(principal, Cause::of(format!("mcp:{what}"))))
    }

    async fn call(&self, name: &str, arguments: Map<String, Value>, origin: &Origin) -> Result<Value, Refused> {
        let tools = knowledge::tools().into_iter().chain(others());
        let known = tools.into_iter().find(|tool| tool.name == name);
        let Some(known) = known else { return Err(Refused(format!("no_tool: there is no tool {name}"))) };
        known.takes(&arguments).map_err(|why| Refused(format!("invalid: {why}")))?;
        let acts = origin.principal.may(Role::Participant) || origin.principal.may(Role::Lifeform);
        if !known.reads && name != "execute_kip" && !acts {
            return Err(Refused("forbidden: this token may only look".into()));
        }
        if !known.reads && name != "execute_kip" {
            self.app.check_disk_share(&origin.principal)?;
        }
        match name {
            "execute_kip" => {
                let mut arguments = arguments;
                let nexus: NexusId = arguments.remove("nexus").map_or_else(|| Ok(commons()), of_value)?;
                let request: KipRequest = read(arguments)?;
                if request.may_write() {
                    self.app.check_disk_share(&origin.principal)?;
                }
                if &*nexus != COMMONS {
                    self.app.lifeforms.get(&nexus).await.map_err(ApiError::from)?;
                }
                Ok(self.app.nexus.execute(&nexus, request, origin).await.map_err(ApiError::from)?)
            }
            "canvas_read" => {
                let asked: Look = read(arguments)?;
                let canvas =
                    self.app.lifeforms.named_canvas(&asked.lifeform, &asked.canvas).await.map_err(ApiError::from)?;
                let snapshot = canvas.snapshot();
                let read = tokio::task::spawn_blocking(
                    move || json!({"epoch": snapshot.epoch, "rev": snapshot.rev, "state": snapshot.state.to_arrays()}),
                );
                read.await.map_err(|panic| Refused(format!("answer: {panic}")))
            }
            "canvas_post" => {
                let asked: Say = read(arguments)?;
                let said = chat::say(&self.app, &asked.lifeform, &asked.canvas, asked.topic, asked.content, origin);
                Ok(said.await?)
            }
            _ => match Box::pin(self.app.knowledge.use_tool(name, arguments, origin, None)).await {
                Some(done) => Ok(done?),
                None => Err(Refused(format!("no_tool: there is no tool {name}"))),
            },
        }
    }

    /// Returns the primer of the commons for a principal.
    async fn primer(&self, origin: &Origin) -> Result<String, ErrorData> {
        let asked = self.app.nexus.execute(&commons(), KipRequest::new("DESCRIBE PRIMER"), origin).await;
        let answer = asked.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(serde_json::to_string_pretty(&answer["result"]).unwrap_or_default())
    }

    async fn text_of(&self, uri: &str, origin: &Origin) -> Result<String, ErrorData> {
        match uri {
            CARD => Ok(nexus::kip::lang::card::card()),
            PRIMER => self.primer(origin).await,
            _ => Err(ErrorData::resource_not_found(format!("there is no resource {uri}"), None)),
        }
    }
}

impl ServerHandler for Door {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(can)
            .with_server_info(Implementation::new("lifeformd", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "What was learned, kept for all who may see it. Search before you begin (knowledge_search), keep what is worth \
                 knowing (knowledge_save), and say whether what you used helped (knowledge_update).",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let shown = |tool: BuiltinTool| {
            let parameters = Arc::new(tool.closed().as_object().cloned().unwrap_or_default());
            let hints = ToolAnnotations::new().read_only(tool.reads).open_world(false);
            let mut shown = Tool::new(tool.name, tool.description, parameters).with_annotations(hints);
            shown.output_schema = Some(Arc::new(Map::from_iter([("type".to_owned(), json!("object"))])));
            shown
        };
        Ok(ListToolsResult::with_all_items(knowledge::tools().into_iter().chain(others()).map(shown).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let origin = self.caller(&context, &request.name)?;
        // The caller disconnected, or its token was revoked.
        let gone = || ErrorData::internal_error("the request was cancelled", None);
        let done = tokio::select! {
            () = context.ct.cancelled() => return Err(gone()),
            done = self.call(&request.name, request.arguments.unwrap_or_default(), &origin) => done,
        };
        Ok(match done {
            // The text of an answer is written twice, by a worker of the server; and no agent reads so much.
            Ok(answer) if json_size(&answer) > ANSWER_BYTES_MAX => {
                let (bytes, most) = (json_size(&answer), ANSWER_BYTES_MAX >> 20);
                // Dropping it takes long, too.
                tokio::task::spawn_blocking(move || drop(answer));
                let why = format!(
                    "too_large: the answer has {bytes} bytes, more than {most} MiB: ask for less, or over HTTP"
                );
                CallToolResult::error(vec![ContentBlock::text(why)])
            }
            // A KIP error is an error of the call, whatever else the response contains.
            Ok(answer) if answer.get("error").is_some_and(|error| !error.is_null()) => {
                CallToolResult::structured_error(answer)
            }
            Ok(answer @ Value::Object(_)) => CallToolResult::structured(answer),
            // Structured content must be an object (MCP 2025-11-25, tools).
            Ok(answer) => CallToolResult::structured(json!({"result": answer})),
            Err(Refused(why)) => CallToolResult::error(vec![ContentBlock::text(why)]),
        }
        .into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |uri, name, description: &str, kind: &str| {
            Resource::new(uri, name).with_description(description).with_mime_type(kind)
        };
        Ok(ListResourcesResult::with_all_items(vec![
            resource(CARD, "kip-card", "KIP in as few tokens as a prompt can spare", "text/plain"),
            resource(PRIMER, "primer", "What the commons holds, as you see it", "text/plain"),
        ]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let origin = self.caller(&context, "resources/read")?;
        let text = self.text_of(&request.uri, &origin).await?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![
            Prompt::new("kip_card", Some("How to speak KIP"), None),
            Prompt::new("primer", Some("What the commons holds, as you see it"), None),
        ]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let origin = self.caller(&context, "prompts/get")?;
        let uri = match request.name.as_str() {
            "kip_card" => CARD,
            "primer" => PRIMER,
            name => return Err(ErrorData::invalid_params(format!("there is no prompt {name}"), None)),
        };
        let text = self.text_of(uri, &origin).await?;
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Speaker::User, text)]).into())
    }
}
