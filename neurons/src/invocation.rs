//! The run of one invocation from its first message to its answer: call the model, run the server's tool calls, and
//! pause for the client's.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Batch, Directory, Origin, PrincipalId, Store};
use tokio::sync::{mpsc, oneshot};

use crate::NeuronError;
use crate::actors::{ActorCell, named, spawn_worker};
use crate::conclusion::Conclusion;
use crate::conversation::Conversation;
use crate::kinds::tool_augmented::{self, FINALIZE};
use crate::kinds::{Event, router, transformer};
use crate::llm::LISTENER_MAX;
use crate::llm::paid::{Decision, Payer};
use crate::llm::wire::TEXTS_MAX;
use crate::llm::{ChatMessage, ChatReply, ChatRequest, Class, Delta, Model, Models, Tier, Usage, paid};
use crate::nearest::Nearest;
use crate::neuron::{self, Completed, FirstStep, Step, ToolCall, ToolResult};
use crate::spec::NeuronSpec;
use crate::tools::handles::{self, RESULT_READ};
use crate::tools::said::only_said;
use crate::tools::{Caller, Tools};

/// The maximum number of model calls in one invocation, over all pauses.
const ROUNDS_MAX: u32 = 1024;
/// The maximum number of model calls without a pause.
const STRETCH_MAX: u32 = 64;
/// The maximum number of answers in a row with the same tool calls without a pause. A tool may be polled, but a model that
/// gets no further would use up all calls.
const SAME_CALLS_MAX: u32 = 8;

/// Returns the tool calls of a reply without their ids.
fn calls_of(reply: &ChatReply) -> Vec<(String, String)> {
    reply.tool_calls.iter().map(|call| (call.function.name.clone(), call.function.arguments.clone())).collect()
}
/// The maximum number of consecutive calls with an unknown outcome. Such calls may have cost money.
const LOST_MAX: u32 = 2;
/// The number of answers with other calls than the one to fill in after which the neuron fails.
const MISFITS_MAX: u32 = 2;
/// The minimum similarity of a message to a tool; below it no tool is chosen.
const LIKE_A_TOOL: f32 = 0.15;

/// The answer of an invocation to its caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The invocation has completed.
    Completed(Completed),
    /// The invocation waits for the client.
    Paused {
        /// The token that names the pause.
        token: String,
        /// The calls for the client to make.
        calls: Vec<ToolCall>,
    },
}

/// The reason why a run stopped.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The neuron has completed.
    Completed(Completed),
    /// The neuron waits for the client's tools.
    Paused(Vec<ToolCall>),
}

/// The outcome of a run, and the conversation after it.
pub(crate) struct Outcome {
    pub(crate) stop: Result<Stop, NeuronError>,
    pub(crate) talk: Conversation,
    pub(crate) spent: Spent,
}

/// The data that one invocation needs.
#[derive(Clone)]
pub(crate) struct Run {
    /// The store with the journals and the ledger.
    pub(crate) store: Store,
    /// The tools of the server.
    pub(crate) tools: Tools,
    /// The place from which the neuron is called.
    pub(crate) caller: Caller,
    /// The prefix of the idempotency keys of tool calls; `None` uses the invocation's name.
    pub(crate) calls_as: Option<Arc<str>>,
    /// `true` if a tool call may wait for an approval.
    pub(crate) may_wait: bool,
    /// The models.
    pub(crate) models: Models,
    /// The origin on whose behalf the invocation runs.
    pub(crate) origin: Origin,
    /// The directory of the present rights of `origin` and of the authors, which limit each tool call.
    pub(crate) directory: Arc<dyn Directory>,
    /// The author of the neuron, if the author is not the caller.
    pub(crate) author: Option<PrincipalId>,
    /// The account that pays.
    pub(crate) account: Arc<str>,
    /// The class of the call, which determines its priority at a provider.
    pub(crate) class: Class,
    /// The neuron.
    pub(crate) spec: Arc<NeuronSpec>,
    /// The tools of which the model sees nothing, because others are likelier to be needed. A call that was made before counts.
    pub(crate) hidden: Arc<BTreeSet<String>>,
    /// The comparison of texts by which a search finds tools.
    pub(crate) nearest: Arc<Nearest>,
    /// The final commit, for an invocation with a record.
    pub(crate) conclusion: Option<Conclusion>,
    /// The tier that overrides the neuron's own; `None` keeps it.
    pub(crate) tier: Option<Tier>,
    /// The maximum number of output tokens. It only lowers the neuron's own bound.
    pub(crate) output_tokens_max: Option<u32>,
    /// The receiver of the streamed text; `None` disables streaming.
    pub(crate) deltas: Option<mpsc::Sender<Delta>>,
    /// The actor with which the invocation ends: the step of a job, or the supervisor of invocations.
    pub(crate) parent: ActorCell,
}

/// The accumulated usage and calls of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    pub(crate) paid_calls: usize,
    pub(crate) calls: Vec<Arc<str>>,
}

impl Spent {
    fn take(&mut self, usage: Option<Usage>, call: Arc<str>) {
        self.note(usage);
        self.calls.push(call);
    }

    /// Counts one more call.
    pub(crate) fn note(&mut self, usage: Option<Usage>) {
        self.usage = self.usage.plus(usage.unwrap_or_default());
        self.paid_calls += 1;
    }
}

impl Run {
    /// Runs the neuron in an actor, so that a panic fails only this invocation. If the future is dropped, the run ends;
    /// a paid call that is under way settles itself.
    pub(crate) async fn in_actor(self, begun: FirstStep, mut talk: Conversation) -> Result<Outcome, NeuronError> {
        let (mut reply, outcome) = oneshot::channel();
        let (name, parent) = (named("invocation", talk.invocation()), self.parent.clone());
        let work = |_| async move {
            let mut spent = Spent::default();
            let stop = tokio::select! {
                // A run without a waiting receiver must not start another step.
                biased;
                () = reply.closed() => None,
                stop = self.drive(begun, &mut talk, &mut spent) => Some(stop),
            };
            if let Some(stop) = stop {
                let _ = reply.send(Outcome { stop, talk, spent });
            }
        };
        spawn_worker(name, parent, work).map_err(|error| NeuronError::Died(error.to_string()))?;
        outcome.await.map_err(|_| NeuronError::Died("it stopped without an answer".into()))
    }

    /// Runs the neuron from the end of `talk` until it completes or needs the client.
    pub(crate) async fn drive(
        &self,
        begun: FirstStep,
        talk: &mut Conversation,
        spent: &mut Spent,
    ) -> Result<Stop, NeuronError> {
        if let Some(completed) = talk.completed.take() {
            return Ok(Stop::Completed(completed));
        }
        let mut given = Vec::new();
        let opening = match begun {
            FirstStep::Completed(completed) => return Ok(Stop::Completed(completed)),
            FirstStep::Conversation(conversation) => conversation,
            FirstStep::Transforming(events) => {
                let opening = transformer::begin(&self.spec, &events);
                given = events;
                opening
            }
            FirstStep::Routing(events) => match self.embedder_that_chooses()? {
                Some(embedder) => return self.route_by_likeness(embedder, events, talk, spent).await,
                None => router::begin(&self.spec, &events),
            },
        };
        if talk.is_new() {
            opening.into_iter().for_each(|message| talk.say(message));
        }
        self.heed_decisions(talk).await?;
        let (mut last, mut same) = (Vec::new(), 0);
        for _ in 0..STRETCH_MAX {
            if talk.rounds >= ROUNDS_MAX {
                break;
            }
            // A model that only fills tools in has nothing to say about their results.
            let is_filled = talk.reply.is_none()
                && !self.spec.fills.is_empty()
                && tool_augmented::next_to_fill(&self.spec, &talk.messages).is_none();
            if is_filled && self.spec.returns_results {
                return Ok(Stop::Completed(self.output_of_results(talk)));
            }
            let reply = match &talk.reply {
                Some(reply) => reply.clone(),
                None => self.think(&given, talk, spent).await?,
            };
            match neuron::step(&self.spec, &given, &reply, talk.misfits + 1)? {
                Step::Completed(_) if self.spec.returns_results => {
                    return Ok(Stop::Completed(self.output_of_results(talk)));
                }
                Step::Completed(completed) => return Ok(Stop::Completed(completed)),
                Step::Again(objections) => {
                    self.take_back().await;
                    talk.object(objections);
                }
                Step::ToolCallRequired(required) if !self.fills_in(&required.calls, talk) => {
                    if talk.misfits >= MISFITS_MAX {
                        return Err(NeuronError::Output(
                            "it called other tools than the one that it was to fill in".into(),
                        ));
                    }
                    let object = |call: ToolCall| {
                        let error = Some(tool_augmented::NOT_FILLED.to_owned());
                        tool_message(&ToolResult { id: call.id, error, ..ToolResult::default() })
                    };
                    talk.object(required.calls.into_iter().map(object).collect());
                }
                Step::ToolCallRequired(required) => {
                    let calls = calls_of(&reply);
                    same = if calls == last { same + 1 } else { 1 };
                    last = calls;
                    if same == SAME_CALLS_MAX {
                        let why = format!("the model made the same tool call {SAME_CALLS_MAX} times in a row");
                        return Err(NeuronError::Output(why));
                    }
                    let waiting = self.serve(self.only_said(required.calls, talk), talk).await?;
                    if !waiting.is_empty() {
                        return Ok(Stop::Paused(waiting));
                    }
                }
            }
        }
        Err(NeuronError::Output(format!("no final answer after {STRETCH_MAX} model calls without a pause")))
    }

    async fn think(
        &self,
        given: &[Event],
        talk: &mut Conversation,
        spent: &mut Spent,
    ) -> Result<ChatReply, NeuronError> {
        if talk.lost >= LOST_MAX {
            return Err(NeuronError::Lost);
        }
        let mut request = neuron::request(&self.spec, given, &talk.messages);
        // A model that does not choose its tools does not search for them.
        self.show_given(&mut request, talk, self.embedder_that_chooses().is_ok_and(|chooses| chooses.is_none()));
        if talk.has_handles() && !self.reads_no_prose() && !self.spec.tools.iter().any(|tool| tool.name == RESULT_READ)
        {
            request.tools.push(handles::definition());
        }
        let bound = [request.max_tokens, self.output_tokens_max].into_iter().flatten().min();
        request.max_tokens = bound;
        request.ends_repetition = self.caller.owner.starts_with("lifeform:") && request.response_format.is_none();
        self.model()?;
        let models = self.models.chain(self.tier.unwrap_or(self.spec.tier));
        let mut left = models.iter();
        let mut first = None;
        while let Some(model) = left.next() {
            let mut request = request.clone();
            if !self.spec.fills.is_empty() {
                self.fill_in(&mut request, talk);
            } else if !request.tools.is_empty()
                && let Some(embedder) = self.chooses(model)
            {
                request.tool_choice = Some(match talk.chosen.take() {
                    Some(chosen) => chosen,
                    None => self.choose_tool(embedder, &request, talk, spent).await?,
                });
            }
            let deltas = self.deltas.clone();
            let conclusion = self.conclusion.clone().filter(|_| !self.spec.returns_results);
            let with = conclusion.map(|conclusion| {
                conclusion.with_answer(self.spec.clone(), given.to_vec(), talk.misfits + 1, spent.clone())
            });
            let paid = paid::call(self.payer(), model, request, deltas, talk, with).await;
            match paid {
                Ok(paid) => {
                    spent.take(paid.reply.usage, paid.call);
                    return Ok(paid.reply);
                }
                Err(NeuronError::Llm(error)) if error.another_may_answer() && left.len() > 0 => {
                    tracing::warn!(model = %model.name, %error, "another model is asked instead");
                    self.take_back().await;
                    // The error of the first model is the most informative; fallback models may fail for weaker
                    // reasons.
                    first.get_or_insert(error);
                }
                Err(NeuronError::Llm(error)) => return Err(first.unwrap_or(error).into()),
                Err(error) => return Err(error),
            }
        }
        Err(NeuronError::Lost)
    }

    /// Tells the subscriber to discard the text so far. A subscriber that does not read is not waited for.
    async fn take_back(&self) {
        if let Some(deltas) = &self.deltas {
            let _ = deltas.send_timeout(Delta::Again, LISTENER_MAX).await;
        }
    }

    async fn route_by_likeness(
        &self,
        embedder: &Model,
        events: Vec<Event>,
        talk: &mut Conversation,
        spent: &mut Spent,
    ) -> Result<Stop, NeuronError> {
        let texts = router::texts(&self.spec, &events);
        let spec = self.spec.clone();
        let given = events.clone();
        let completed =
            move |vectors: &[Vec<f32>]| ("completed", json!(router::by_likeness(&spec, given.clone(), vectors)));
        let vectors = self.embed(embedder, texts, talk, spent, completed).await?;
        Ok(Stop::Completed(router::by_likeness(&self.spec, events, &vectors)))
    }

    fn payer(&self) -> Payer<'_> {
        Payer { store: &self.store, origin: &self.origin, account: &self.account, class: self.class }
    }

    fn model(&self) -> Result<&Model, NeuronError> {
        Ok(self.models.pick(self.tier.unwrap_or(self.spec.tier))?)
    }

    /// Returns the embedder that chooses routes and tools, if the model is too small to choose; else `None`.
    fn embedder_that_chooses(&self) -> Result<Option<&Model>, NeuronError> {
        Ok(self.chooses(self.model()?))
    }

    fn chooses(&self, model: &Model) -> Option<&Model> {
        if model.small { self.models.embedder().ok() } else { None }
    }

    /// Returns the embeddings of `texts`. The decision made from them is committed with the last batch.
    async fn embed(
        &self,
        embedder: &Model,
        texts: Vec<String>,
        talk: &mut Conversation,
        spent: &mut Spent,
        decide: impl Fn(&[Vec<f32>]) -> (&'static str, Value) + Send + 'static,
    ) -> Result<Vec<Vec<f32>>, NeuronError> {
        if talk.is_fresh() {
            self.store.commit(talk.write(Batch::new(&self.origin))).await?;
        }
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        let mut decide = Some(decide);
        for (place, some) in texts.chunks(TEXTS_MAX).enumerate() {
            let last = (place + 1) * TEXTS_MAX >= texts.len();
            let before = vectors.clone();
            let deciding = decide.take_if(|_| last).map(|decide| {
                let decide: Decision = Box::new(move |some| decide(&[&before[..], some].concat()));
                (talk.stream().clone(), decide)
            });
            let paid = paid::embed_to_decide(self.payer(), embedder, some.to_vec(), deciding).await?;
            spent.take(paid.usage, paid.call);
            vectors.extend(paid.vectors);
        }
        Ok(vectors)
    }

    /// Returns the output of a neuron that returns results.
    fn output_of_results(&self, talk: &Conversation) -> Completed {
        let whole = |shown: &str| handles::handle_in(shown).and_then(|handle| talk.whole(handle)).map(str::to_owned);
        tool_augmented::output_of_results(&self.spec, &talk.messages, whole)
    }

    /// Makes a request that of the arguments of the next tool to fill in, or of an answer if there is none.
    fn fill_in(&self, request: &mut ChatRequest, talk: &Conversation) {
        let next = tool_augmented::next_to_fill(&self.spec, &talk.messages);
        let name = next.unwrap_or(FINALIZE);
        request.tools.retain(|tool| tool["function"]["name"] == name);
        request.tool_choice =
            (!request.tools.is_empty()).then(|| json!({"type": "function", "function": {"name": name}}));
    }

    /// Returns `true` if a model that fills tools in calls the one that is next, once; also for one that chooses its tools.
    fn fills_in(&self, calls: &[ToolCall], talk: &Conversation) -> bool {
        let next = tool_augmented::next_to_fill(&self.spec, &talk.messages);
        self.spec.fills.is_empty() || matches!(calls, [call] if Some(call.name.as_str()) == next)
    }

    /// Returns calls that a model filled in without the numbers that its input does not hold.
    fn only_said(&self, calls: Vec<ToolCall>, talk: &Conversation) -> Vec<ToolCall> {
        if self.spec.fills.is_empty() {
            return calls;
        }
        let said = talk.messages.iter().filter(|message| message.role == "user");
        let said = said.filter_map(|message| message.content.as_deref()).collect::<Vec<_>>().join("\n");
        let fitted = |call: ToolCall| {
            let parameters = self.tool(&call).map(|tool| tool.parameters.clone()).unwrap_or_default();
            ToolCall { params: only_said(&call.params, &said, &parameters), ..call }
        };
        calls.into_iter().map(fitted).collect()
    }

    /// Chooses the next tool by similarity to the last user message. After a tool's result, the neuron completes.
    async fn choose_tool(
        &self,
        embedder: &Model,
        request: &ChatRequest,
        talk: &mut Conversation,
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
        let choices: Vec<Value> = tools.iter().map(|tool| call(&name(tool))).collect();
        let choose = move |vectors: &[Vec<f32>]| {
            let likeness = |place: usize| router::likeness(&vectors[0], &vectors[place + 1]);
            let nearest = (0..choices.len()).max_by(|one, other| likeness(*one).total_cmp(&likeness(*other)));
            let nearest = nearest.filter(|place| likeness(*place) >= LIKE_A_TOOL);
            nearest.map_or(end.clone(), |place| choices[place].clone())
        };
        let decide = choose.clone();
        let decide = move |vectors: &[Vec<f32>]| ("chosen", decide(vectors));
        let vectors = self.embed(embedder, texts.collect(), talk, spent, decide).await?;
        Ok(choose(&vectors))
    }
}

/// Returns a tool's result as a message to the model: marked as data, and as an error if the tool failed.
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

/// The conversion of an output for a caller.
impl Completed {
    /// Returns the output as text: a string unchanged, any other value as compact JSON.
    pub fn as_text(&self) -> String {
        match &self.output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
