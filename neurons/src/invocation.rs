//! One invocation from its first message to its answer: think, call what the server can call, pause
//! for what the client must.

use std::sync::Arc;

use nexus::store::{Entry, Stream};
use nexus::{Batch, Nexus, Origin, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, Models, Tier, Usage, paid};
use crate::neuron::{self, Completed, Step, ToolCall, ToolResult};
use crate::spec::{NeuronSpec, Runner};
use crate::tools;

/// Times a neuron may think in one invocation.
const ROUNDS_MAX: u32 = 64;

/// What an invocation answers to its caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It has ended.
    Completed(Completed),
    /// It waits for the client.
    Paused {
        /// Names the pause.
        token: String,
        /// What the client is to call.
        calls: Vec<ToolCall>,
    },
}

/// Where an invocation stopped.
pub(crate) enum Stop {
    Completed(Completed),
    Paused(Vec<ToolCall>),
}

/// Everything one invocation needs.
#[derive(Clone)]
pub(crate) struct Run {
    /// Where it is recorded and paid.
    pub(crate) store: Store,
    /// What its server tools reach.
    pub(crate) nexus: Nexus,
    /// What it thinks with.
    pub(crate) models: Models,
    /// For whom.
    pub(crate) origin: Origin,
    /// Who pays.
    pub(crate) account: Arc<str>,
    /// The neuron.
    pub(crate) spec: NeuronSpec,
    /// A tier that overrides the neuron's own.
    pub(crate) tier: Option<Tier>,
    /// A bound on the output that only lowers the neuron's own.
    pub(crate) output_tokens_max: Option<u32>,
    /// Where its text is sent as it comes.
    pub(crate) deltas: Option<mpsc::Sender<String>>,
}

/// What a run used and the calls it made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    pub(crate) calls: Vec<Arc<str>>,
}

pub(crate) fn stream(invocation: &str) -> Stream {
    format!("invocation:{invocation}").into()
}

impl Run {
    /// Thinks until the neuron ends or needs the client. `messages` is the conversation so far and
    /// grows; what is new since the last pause is `messages[recorded..]`.
    pub(crate) async fn drive(&self, messages: &mut Vec<ChatMessage>, spent: &mut Spent) -> Result<Stop, NeuronError> {
        let mut tries = 0;
        for _ in 0..ROUNDS_MAX {
            let reply = self.think(messages, spent).await?;
            tries += 1;
            match neuron::step(&self.spec, &reply, tries)? {
                Step::Completed(completed) => return Ok(Stop::Completed(completed)),
                Step::Again(more) => messages.extend(more),
                Step::ToolCallRequired(required) => {
                    messages.push(ChatMessage {
                        role: "assistant".into(),
                        content: (!reply.text.is_empty()).then(|| reply.text.clone()),
                        tool_calls: Some(reply.tool_calls.clone()),
                        tool_call_id: None,
                    });
                    let (ours, clients): (Vec<_>, Vec<_>) = required
                        .calls
                        .into_iter()
                        .partition(|call| tools::runner(&self.spec, call) != Some(&Runner::Client));
                    for call in ours {
                        let result = match tools::runner(&self.spec, &call) {
                            Some(runner) => tools::run(&self.nexus, runner, &call, &self.origin).await,
                            None => ToolResult {
                                id: call.id.clone(),
                                result: None,
                                error: Some(format!("there is no tool {}", call.name)),
                            },
                        };
                        messages.push(tool_message(&result));
                    }
                    if !clients.is_empty() {
                        return Ok(Stop::Paused(clients));
                    }
                }
            }
        }
        Err(NeuronError::Output(format!("it thought {ROUNDS_MAX} times without coming to an end")))
    }

    async fn think(&self, messages: &[ChatMessage], spent: &mut Spent) -> Result<ChatReply, NeuronError> {
        let mut request = neuron::request(&self.spec, messages);
        let bound = [request.max_tokens, self.output_tokens_max].into_iter().flatten().min();
        request.max_tokens = bound;
        let model = self.models.pick(self.tier.unwrap_or(self.spec.tier))?;
        let paid = paid::call(&self.store, &self.origin, &self.account, model, request, self.deltas.clone()).await?;
        let usage = paid.reply.usage.unwrap_or_default();
        spent.usage.prompt_tokens += usage.prompt_tokens;
        spent.usage.completion_tokens += usage.completion_tokens;
        spent.usage.total_tokens += usage.prompt_tokens + usage.completion_tokens;
        spent.calls.push(paid.call);
        Ok(paid.reply)
    }

    /// Adds the new part of a conversation to its journal; each message is kept once.
    pub(crate) fn record(&self, batch: Batch, invocation: &str, messages: &[ChatMessage]) -> Batch {
        messages.iter().fold(batch, |batch, message| batch.append(stream(invocation), "message", message))
    }

    /// The conversation of a paused invocation, from its journal.
    pub(crate) async fn conversation(store: &Store, invocation: &str) -> Result<Vec<ChatMessage>, NeuronError> {
        let (stream, mut messages, mut after) = (stream(invocation), Vec::new(), 0);
        loop {
            let page: Vec<Entry> = store.entries(&stream, after, usize::MAX).await?;
            let Some(last) = page.last() else { return Ok(messages) };
            after = last.seq;
            for entry in &page {
                messages.push(entry.decode()?);
            }
        }
    }
}

/// A tool's result as the model reads it: data, marked as such when it is an error.
pub(crate) fn tool_message(result: &ToolResult) -> ChatMessage {
    let content = match (&result.result, &result.error) {
        (Some(result), _) => result.clone(),
        (None, error) => serde_json::json!({"error": error}).to_string(),
    };
    ChatMessage { role: "tool".into(), content: Some(content), tool_calls: None, tool_call_id: Some(result.id.clone()) }
}

/// An output as a caller sees it.
impl Completed {
    /// The output as text: a string as it stands, anything else as compact JSON.
    pub fn as_text(&self) -> String {
        match &self.output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
