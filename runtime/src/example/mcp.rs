//! The example world as an MCP server, at `/mcp`.

use std::sync::Arc;

use neurons::tools::EFFECT_KEY;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::world::{self, World};

/// Returns the service at `/mcp`.
pub(super) fn service(world: World) -> StreamableHttpService<Server, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    StreamableHttpService::new(move || Ok(Server(world.clone())), Arc::default(), config)
}

/// The MCP server of the world.
#[derive(Clone)]
pub(super) struct Server(World);

/// Returns the tools: name, description, parameters, and whether a call only reads.
fn tools() -> Vec<(&'static str, &'static str, Value, bool)> {
    let text = json!({"type": "string"});
    let of = |required: Value, properties: Value| json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties});
    vec![
        (
            "places",
            "Lists the places to stay in a city, with prices per night.",
            of(json!(["city"]), json!({"city": text})),
            true,
        ),
        ("trains", "Lists trains with departure and price.", of(json!([]), json!({"from": text, "to": text})), true),
        ("bookings", "Lists the bookings.", of(json!([]), json!({})), true),
        ("book", "Books a place to stay.", super::order(), false),
        ("cancel", "Cancels a booking.", of(json!(["booking"]), json!({"booking": text})), false),
    ]
}

impl Server {
    fn call(&self, name: &str, arguments: Map<String, Value>, key: Option<String>) -> Result<Value, String> {
        fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
            serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
        }
        let done = match name {
            "places" => world::places(&read(arguments)?),
            "trains" => Ok(world::trains(&read(arguments)?)),
            "bookings" => Ok(self.0.all()),
            "book" => self.0.book(read(arguments)?, key).map(|(booking, _)| json!(booking)),
            "cancel" => self.0.cancel(&read(arguments)?).map(|booking| json!(booking)),
            other => return Err(format!("there is no tool {other}")),
        };
        done.map_err(|refused| refused.1)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lifeformd-example", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let shown = tools().into_iter().map(|(name, description, parameters, reads)| {
            let parameters = Arc::new(parameters.as_object().cloned().unwrap_or_default());
            let hints = ToolAnnotations::new().read_only(reads).open_world(false);
            Tool::new(name, description, parameters).with_annotations(hints)
        });
        Ok(ListToolsResult::with_all_items(shown.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let key = context.meta.get(EFFECT_KEY).and_then(Value::as_str).map(str::to_owned);
        let done = match self.call(&request.name, request.arguments.unwrap_or_default(), key) {
            Ok(answer) => CallToolResult::structured(answer),
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        };
        Ok(done.into())
    }
}
