//! The calls of tools of MCP servers, and the tasks as which a server may carry them out (MCP 2026-07-28, extension
//! `io.modelcontextprotocol/tasks`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, ElicitRequestParams,
    ErrorCode, ErrorData, GetTaskParams, InputRequest, InputRequests, InputResponses, MetaObject, RequestMetaObject,
    TaskPayload, UpdateTaskParams,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{EFFECT_KEY, LIST, Server, Servers};
use crate::spec::compile;
use crate::tools::Failure;
use crate::tools::effect::EffectClass;
use crate::tools::form::{AskedForm, Form, Forms};
use crate::tools::projection::SAYS;
use crate::tools::spec::McpTool;

/// The bounds of the pause before a server is asked again about a task, and the pause if the server names none.
const POLL_MIN: Duration = Duration::from_millis(200);
const POLL_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_secs(2);
/// The maximum number of times that a server may ask for more during one call.
const ROUNDS_MAX: usize = 3;
/// The maximum length of a task's id, in bytes.
const TASK_BYTES_MAX: usize = 256;
/// The errors by which a server says that it has no such task. After others it is asked again.
const NO_TASK: [ErrorCode; 2] = [ErrorCode::INVALID_PARAMS, ErrorCode::RESOURCE_NOT_FOUND];

/// A call that a server carries out as a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The name of the server in the configuration.
    pub server: Arc<str>,
    /// The tool that was called.
    pub tool: String,
    /// The id of the task, by the server.
    pub id: String,
}

/// The state of a task.
#[derive(Debug)]
pub(in crate::tools) enum TaskState {
    /// The server works on it, and is to be asked again after this time.
    Working(Duration),
    /// The result of the call.
    Ended(Result<String, Failure>),
}

impl Servers {
    /// Calls a tool. `key` is the idempotency key of the call, for servers that look at it.
    ///
    /// # Errors
    /// A [`Failure`]; [`Failure::Task`] if the server carries the call out as a task, and [`Failure::Form`] if it asks what a person
    /// may be asked.
    pub(crate) async fn run(
        &self,
        mcp: &McpTool,
        given: Map<String, Value>,
        key: &str,
        (is_sent, forms): (&AtomicBool, Forms<'_>),
    ) -> Result<String, Failure> {
        let server = self.server(&mcp.server).map_err(Failure::Failed)?;
        let tool = mcp.tool.clone().unwrap_or_default();
        if server.settings.tools.as_ref().is_some_and(|tools| !tools.contains(&tool)) {
            return Err(Failure::Failed(format!("[tools.servers.{}] does not let {tool} be called", mcp.server)));
        }
        if let Some(why) = server.not_accepted(&tool) {
            return Err(Failure::Failed(why));
        }
        let _permit = server.permits.acquire().await;
        let link = server.link().await.map_err(|why| Failure::Failed(quoted(&why)))?;
        let mut meta = MetaObject::default();
        meta.0.insert(EFFECT_KEY.to_owned(), key.into());
        let mut params = CallToolRequestParams::new(tool.clone()).with_arguments(given);
        params.meta = Some(RequestMetaObject(meta));
        let mut first = 0;
        if let Some(filled) = forms.filled {
            let (responses, state, round) = filled.responses();
            (params.input_responses, params.request_state, first) = (Some(responses), state, round);
        }
        is_sent.store(true, Ordering::SeqCst);
        for round in first..=ROUNDS_MAX {
            // If the call is dropped, for example on timeout, the server is notified of the cancellation.
            match link.client.call_tool_once(params.clone()).await {
                Ok(CallToolResponse::Complete(result)) => return server.result_of(&tool, &result),
                Ok(CallToolResponse::Task(begun)) if begun.task.task_id.len() <= TASK_BYTES_MAX => {
                    let (server, id) = (mcp.server.clone(), begun.task.task_id);
                    let task = Task { server, tool, id };
                    return Err(Failure::Task(Box::new(task), pause(begun.task.poll_interval_ms)));
                }
                Ok(CallToolResponse::InputRequired(asked)) => {
                    let state = asked.request_state.as_ref();
                    let questions = asked.input_requests.as_ref().filter(|_| forms.may_ask && round < ROUNDS_MAX);
                    if let Some(form) = questions.and_then(|questions| form_of(&mcp.server, questions, round, state)) {
                        return Err(Failure::Form(Box::new(form)));
                    }
                    let answers = asked.input_requests.as_ref().map(declined).transpose();
                    params.input_responses = answers.map_err(Failure::Unknown)?;
                    params.request_state = asked.request_state;
                    // A server that asks for nothing wants to be called again later.
                    if params.input_responses.is_none() {
                        tokio::time::sleep(POLL).await;
                    }
                }
                Ok(_) => return Err(Failure::Unknown("its answer is of a kind that is not known".into())),
                Err(ServiceError::McpError(error)) if round == 0 => return Err(failure(error)),
                // It may have acted in an earlier round.
                Err(ServiceError::McpError(error)) => return Err(Failure::Unknown(quoted(&error.message))),
                Err(error) => return Err(Failure::Unknown(quoted(&server.without_address(error.to_string())))),
            }
        }
        Err(Failure::Unknown(format!("the server asked more than {ROUNDS_MAX} times for more")))
    }

    /// Returns the state of a task. Questions that the server has about it are declined.
    ///
    /// # Errors
    /// The reason why the server could not be asked.
    pub(crate) async fn task_state(&self, task: &Task) -> Result<TaskState, String> {
        let server = self.server(&task.server)?;
        let link = server.link().await?;
        let asked = timeout(LIST, link.client.get_task(GetTaskParams::new(task.id.clone()))).await;
        let found = match asked.map_err(|_| "it did not answer in time".to_owned())? {
            Ok(found) => found.task,
            Err(ServiceError::McpError(error)) if NO_TASK.contains(&error.code) => {
                let why = format!("the server does not know its task any more; {}", quoted(&error.message));
                return Ok(TaskState::Ended(Err(Failure::Unknown(why))));
            }
            Err(error) => return Err(server.without_address(error.to_string())),
        };
        Ok(match found.payload {
            TaskPayload::Completed { result } => {
                TaskState::Ended(match serde_json::from_value(Value::Object(result)) {
                    Ok(result) => server.result_of(&task.tool, &result),
                    Err(error) => {
                        let why = quoted(&error.to_string());
                        Err(Failure::Unknown(format!("its task ended with what is no result of a tool; {why}")))
                    }
                })
            }
            TaskPayload::Failed { error } => {
                TaskState::Ended(Err(match serde_json::from_value(Value::Object(error)) {
                    Ok(error) => failure(error),
                    Err(error) => {
                        Failure::Unknown(format!("it failed without a reason; {}", quoted(&error.to_string())))
                    }
                }))
            }
            TaskPayload::Cancelled => TaskState::Ended(Err(Failure::Unknown("the server has cancelled it".into()))),
            TaskPayload::InputRequired { input_requests } => {
                let answers = match declined(&input_requests) {
                    Ok(answers) => answers,
                    Err(why) => {
                        self.cancel(task).await;
                        return Ok(TaskState::Ended(Err(Failure::Unknown(why))));
                    }
                };
                let update = link.client.update_task(UpdateTaskParams::new(task.id.clone(), answers));
                let _ = timeout(LIST, update).await;
                TaskState::Working(pause(found.task.poll_interval_ms))
            }
            _ => TaskState::Working(pause(found.task.poll_interval_ms)),
        })
    }

    /// Asks a server to cancel a task. It may have been done all the same.
    pub(crate) async fn cancel(&self, task: &Task) {
        let Ok(server) = self.server(&task.server) else { return };
        let cancelled = async {
            let link = server.link().await?;
            let cancelled = link.client.cancel_task(CancelTaskParams::new(task.id.clone())).await;
            cancelled.map_err(|error| server.without_address(error.to_string()))
        };
        if let Ok(Err(why)) = timeout(LIST, cancelled).await {
            tracing::warn!(server = %task.server, tool = task.tool, why, "a task was not cancelled");
        }
    }
}

impl Server {
    /// Returns the result of a call for a model: its structured content, or its texts. Structured content of a tool that only reads must
    /// fit the schema that the tool declares; of other tools a misfit is logged, since the call was made.
    fn result_of(&self, tool: &str, result: &CallToolResult) -> Result<String, Failure> {
        let text = text(result);
        if result.is_error == Some(true) {
            return Err(Failure::Failed(quoted(&text)));
        }
        let listed = self.listed().iter().find(|listed| listed.name == tool).cloned();
        let schema = listed.as_ref().and_then(|listed| compile(listed.results.as_ref()?).ok());
        let fault = schema.zip(result.structured_content.as_ref()).and_then(|(schema, structured)| {
            let fault = schema.iter_errors(structured).next()?;
            let why = format!("{fault} at \"{}\"", fault.instance_path());
            Some(format!("its result is not of the form that it declares; {}", quoted(&why)))
        });
        let class = self.settings.effects.get(tool).copied().unwrap_or_else(|| self.class(listed.as_ref()));
        match fault {
            None => Ok(text),
            Some(fault) if class == EffectClass::Read => Err(Failure::Failed(fault)),
            Some(fault) => {
                tracing::warn!(server = %self.name, tool, fault);
                Ok(text)
            }
        }
    }
}

/// Returns the pause before a task is looked at, by the wish of its server.
fn pause(wish_ms: Option<u64>) -> Duration {
    wish_ms.map_or(POLL, Duration::from_millis).clamp(POLL_MIN, POLL_MAX)
}

/// Returns the words of a server as such, for [`projected_error`](super::super::projection::projected_error).
fn quoted(words: &str) -> String {
    format!("{SAYS}: {words}")
}

/// Returns what an error of a server says about its call.
fn failure(error: ErrorData) -> Failure {
    let was_not_run = [
        ErrorCode::INVALID_PARAMS,
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        ErrorCode::HEADER_MISMATCH,
    ]
    .contains(&error.code);
    let why = quoted(&error.message);
    if was_not_run { Failure::Failed(why) } else { Failure::Unknown(why) }
}

/// Returns the answers to what a server asks of its client: nobody answers its questions, and it gets no folders.
///
/// # Errors
/// A sentence if it asks for an answer of a model, which no server gets.
fn declined(asked: &InputRequests) -> Result<InputResponses, String> {
    let answer = |(name, request): (&String, &InputRequest)| {
        let answer = match request {
            InputRequest::Elicitation(_) => json!({"action": "decline"}),
            InputRequest::ListRoots(_) => json!({"roots": []}),
            _ => return Err("the server asks for an answer of a model, and gets none".to_owned()),
        };
        Ok((name.clone(), answer))
    };
    asked.iter().map(answer).collect()
}

/// Returns the one question of a server that a person may be asked, with the answers to its others.
fn form_of(server: &Arc<str>, asked: &InputRequests, round: usize, state: Option<&String>) -> Option<AskedForm> {
    let form = |(name, request): (&String, &InputRequest)| match request {
        InputRequest::Elicitation(asked) => match &asked.params {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let schema = serde_json::to_value(requested_schema).ok()?;
                Some((name.clone(), Form { server: server.clone(), message: message.clone(), schema }))
            }
            _ => None,
        },
        _ => None,
    };
    let (name, form) = asked.iter().find_map(form)?;
    let others: InputRequests = asked
        .iter()
        .filter(|(other, _)| **other != name)
        .map(|(name, request)| (name.clone(), request.clone()))
        .collect();
    AskedForm::new(form, (&name, round), state, declined(&others).ok()?)
}

/// Returns the text of a result.
fn text(result: &CallToolResult) -> String {
    if let Some(structured) = &result.structured_content {
        return structured.to_string();
    }
    let blocks = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[an image, {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a sound, {}]", audio.mime_type),
        ContentBlock::ResourceLink(link) => format!("[{}]", link.uri),
        ContentBlock::Resource(resource) => resource.get_text().to_owned(),
        _ => "[something else]".to_owned(),
    });
    blocks.collect::<Vec<_>>().join("\n")
}
