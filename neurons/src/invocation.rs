//! One invocation from its first message to its answer: think, call what the server can call, pause
//! for what the client must.

use std::sync::Arc;

use nexus::store::{Entry, Stream};
use nexus::{Batch, Nexus, Origin, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::NeuronError;
use crate::kinds::tool_augmented::FINALIZE;
use crate::kinds::{Event, router, transformer};
use crate::llm::wire::TEXTS_MAX;
use crate::llm::{ChatMessage, ChatReply, ChatRequest, Model, Models, Tier, Usage, paid};
use crate::neuron::{self, Begun, Completed, Step, ToolCall, ToolResult};
use crate::spec::{NeuronSpec, Runner};
use crate::tools;

/// Times a neuron may think in one invocation.
const ROUNDS_MAX: u32 = 64;
/// Below this what was said is like none of the tools.
const LIKE_A_TOOL: f32 = 0.15;

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

impl Spent {
    fn take(&mut self, usage: Option<Usage>, call: Arc<str>) {
        let usage = usage.unwrap_or_default();
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.completion_tokens += usage.completion_tokens;
        self.usage.total_tokens += usage.prompt_tokens + usage.completion_tokens;
        self.calls.push(call);
    }
}

pub(crate) fn stream(invocation: &str) -> Stream {
    format!("invocation:{invocation}").into()
}

impl Run {
    /// Thinks until the neuron ends or needs the client. `messages` is the conversation so far and
    /// grows; what is new since the last pause is `messages[recorded..]`.
    pub(crate) async fn drive(
        &self,
        begun: Begun,
        messages: &mut Vec<ChatMessage>,
        spent: &mut Spent,
    ) -> Result<Stop, NeuronError> {
        let mut given = Vec::new();
        match begun {
            Begun::Completed(completed) => return Ok(Stop::Completed(completed)),
            Begun::Conversation(conversation) => *messages = conversation,
            Begun::Transforming(events) => {
                *messages = transformer::begin(&self.spec, &events);
                given = events;
            }
            Begun::Routing(events) => match self.embedder_that_chooses()? {
                Some(embedder) => {
                    let texts = router::texts(&self.spec, &events);
                    let vectors = self.embed(embedder, texts, spent).await?;
                    return Ok(Stop::Completed(router::by_likeness(&self.spec, events, &vectors)));
                }
                None => *messages = router::begin(&self.spec, &events),
            },
        }
        let mut misfits = 0;
        for _ in 0..ROUNDS_MAX {
            let reply = self.think(&given, messages, spent).await?;
            match neuron::step(&self.spec, &given, &reply, misfits + 1)? {
                Step::Completed(completed) => return Ok(Stop::Completed(completed)),
                Step::Again(more) => {
                    misfits += 1;
                    messages.extend(more);
                }
                Step::ToolCallRequired(required) => {
                    messages.push(ChatMessage {
                        role: "assistant".into(),
                        content: (!reply.text.is_empty()).then(|| reply.text.clone()),
                        tool_calls: Some(reply.tool_calls.clone()),
                        ..ChatMessage::default()
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

    async fn think(
        &self,
        given: &[Event],
        messages: &[ChatMessage],
        spent: &mut Spent,
    ) -> Result<ChatReply, NeuronError> {
        let mut request = neuron::request(&self.spec, given, messages);
        let bound = [request.max_tokens, self.output_tokens_max].into_iter().flatten().min();
        request.max_tokens = bound;
        let model = self.model()?;
        if !request.tools.is_empty()
            && let Some(embedder) = self.embedder_that_chooses()?
        {
            request.tool_choice = Some(self.choose_tool(embedder, &request, spent).await?);
        }
        let paid = paid::call(&self.store, &self.origin, &self.account, model, request, self.deltas.clone()).await?;
        spent.take(paid.reply.usage, paid.call);
        Ok(paid.reply)
    }

    fn model(&self) -> Result<&Model, NeuronError> {
        Ok(self.models.pick(self.tier.unwrap_or(self.spec.tier))?)
    }

    /// The embedder by which routes and tools are chosen, where the model is too small to choose.
    fn embedder_that_chooses(&self) -> Result<Option<&Model>, NeuronError> {
        Ok(if self.model()?.small { self.models.embedder().ok() } else { None })
    }

    async fn embed(
        &self,
        embedder: &Model,
        texts: Vec<String>,
        spent: &mut Spent,
    ) -> Result<Vec<Vec<f32>>, NeuronError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for some in texts.chunks(TEXTS_MAX) {
            let paid = paid::embed(&self.store, &self.origin, &self.account, embedder, some.to_vec()).await?;
            spent.take(paid.usage, paid.call);
            vectors.extend(paid.vectors);
        }
        Ok(vectors)
    }

    /// Which tool is called next: the one most like what was said last. Once a tool has answered, the neuron ends.
    async fn choose_tool(
        &self,
        embedder: &Model,
        request: &ChatRequest,
        spent: &mut Spent,
    ) -> Result<Value, NeuronError> {
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
        let call = |name: &str| json!({"type": "function", "function": {"name": name}});
        let finalize = request.tools.iter().any(|tool| name(tool) == FINALIZE);
        let end = if finalize { call(FINALIZE) } else { json!("none") };
        let tools: Vec<&Value> = request.tools.iter().filter(|tool| name(tool) != FINALIZE).collect();
        let said = request.messages.iter().rev().find(|message| message.role != "system");
        let Some(said) = said.filter(|said| said.role == "user" && !tools.is_empty()) else { return Ok(end) };
        let described = |tool: &&Value| {
            let description = tool["function"]["description"].as_str().filter(|text| !text.is_empty());
            description.map_or_else(|| name(tool).replace(['_', '-'], " "), str::to_owned)
        };
        let texts = std::iter::once(said.content.clone().unwrap_or_default()).chain(tools.iter().map(described));
        let vectors = self.embed(embedder, texts.collect(), spent).await?;
        let likeness = |place: usize| router::likeness(&vectors[0], &vectors[place + 1]);
        let nearest = (0..tools.len()).max_by(|one, other| likeness(*one).total_cmp(&likeness(*other)));
        let nearest = nearest.filter(|place| likeness(*place) >= LIKE_A_TOOL);
        Ok(nearest.map_or(end, |place| call(&name(tools[place]))))
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
    ChatMessage {
        role: "tool".into(),
        content: Some(content),
        tool_call_id: Some(result.id.clone()),
        ..ChatMessage::default()
    }
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
