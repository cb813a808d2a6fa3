//! `Neurons`: the handle. Definitions, and thoughts of neurons that are defined in place.

mod definitions;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use store::{Batch, Directory, Key, Kind as Document, NoDirectory, Origin, PrincipalId, Role, Shares, Store};
use tokio::sync::{Semaphore, mpsc};

use crate::NeuronError;
use crate::actor::Tree;
use crate::continuation::SealingKey;
use crate::conversation::Conversation;
use crate::invocation::{Run, Stop};
use crate::invocations::UnderWay;
use crate::kinds::base::calls_of;
use crate::llm::paid::Payer;
use crate::llm::{
    ChatMessage, ChatReply, ChatRequest, Class, Delta, Model, Models, Tier, Usage, WireFunction, WireToolCall, paid,
};
use crate::neuron::{self, Begun, Completed, ToolCall, ToolResult};
use crate::spec::{Kind, NeuronId, NeuronSpec, ToolSpec};
use crate::tools::{Caller, DEPTH_MAX, FascicleRunner, Tools};

/// Thoughts of jobs that may run at once, at each depth.
const RUNNING_MAX: usize = 512;
/// Invocations of people that may run at once, and those of one principal, unless it is an operator.
const INVOKED_MAX: usize = 512;
const INVOKED_EACH_MAX: usize = INVOKED_MAX / 8;
/// The first version of a document.
pub(crate) const FIRST_VERSION: u64 = 1;
/// The account of calls made by people.
pub const HOUSE: &str = "house";

/// A cheap handle; clones share one supervisor.
#[derive(Clone)]
pub struct Neurons {
    pub(crate) store: Store,
    pub(crate) tools: Tools,
    models: Models,
    pub(crate) tree: Tree,
    /// One semaphore per nesting depth of fascicle tools. A holder only ever waits for depth + 1, so permits cannot
    /// deadlock.
    pub(crate) permits: Arc<[Arc<Semaphore>]>,
    /// Places for the invocations of people, who keep no step of a job from its turn.
    pub(crate) places: Shares,
    pub(crate) key: SealingKey,
    /// Names this life of the daemon: what an earlier life had begun may be begun again.
    pub(crate) life: Arc<str>,
    /// The directory of the authors' present rights.
    directory: Arc<dyn Directory>,
    under_way: Arc<Mutex<HashMap<Arc<str>, UnderWay>>>,
    changes: Arc<AtomicU64>,
}

/// The options of a call from inside the daemon.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// A tier that overrides the neuron's own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neuron's own.
    pub output_tokens_max: Option<u32>,
    /// The receiver of the text as it comes.
    pub deltas: Option<mpsc::Sender<Delta>>,
    /// Nothing was ever tried under that name, so that no journal of it is looked for.
    pub first: bool,
    /// From where it is made; the house when absent.
    pub caller: Option<Caller>,
    /// Nobody can be asked to approve a call of a tool.
    pub cannot_wait: bool,
    /// Names the calls of its tools, instead of the invocation.
    pub calls_as: Option<Arc<str>>,
    /// The author of the neuron, if it is not the caller: its tools act with the rights that both have.
    pub author: Option<PrincipalId>,
    /// The class of the call; by its principal if absent.
    pub class: Option<Class>,
}

/// The result of a call from inside the daemon.
#[derive(Clone, Debug)]
pub struct Thought {
    /// The output, or the tools that it waits for.
    pub stop: Stop,
    /// The usage.
    pub usage: Usage,
    /// The paid calls behind it, as they stand in `calls:{account}`.
    pub calls: Vec<Arc<str>>,
    /// `true` if the call read content that its caller does not trust: see [`Neurons::brings_in`].
    pub untrusted: bool,
}

/// Names an invocation that nobody asks for again.
pub(crate) fn fresh_id() -> Arc<str> {
    format!("inv_{}", uuid::Uuid::now_v7().simple()).into()
}

impl Neurons {
    /// Opens the neurons kept in `store`; what an earlier life left unsettled on the house account is settled.
    ///
    /// # Errors
    /// The store's own.
    pub async fn open(store: Store, tools: Tools, models: Models) -> Result<Self, NeuronError> {
        let key = Key::new(Document::Meta, "sealing-key");
        let sealing = match store.document::<SealingKey>(&key).await? {
            Some(found) => found.value,
            None => {
                let fresh = SealingKey::generate();
                store.commit(Batch::new(&Origin::system("first start")).create(key, &fresh)).await?;
                fresh
            }
        };
        paid::settle_unknown(&store, HOUSE).await?;
        let life = uuid::Uuid::now_v7().simple().to_string().into();
        Ok(Self {
            store,
            tools,
            models,
            tree: Tree::plant().await?,
            permits: (0..=DEPTH_MAX).map(|_| Arc::new(Semaphore::new(RUNNING_MAX))).collect(),
            places: Shares::new(INVOKED_MAX, INVOKED_EACH_MAX),
            key: sealing,
            life,
            directory: Arc::new(NoDirectory),
            under_way: Arc::default(),
            changes: Arc::default(),
        })
    }

    /// With a directory that says what the authors of definitions may do now; without, they may only look.
    #[must_use]
    pub fn with_directory(self, directory: Arc<dyn Directory>) -> Self {
        Self { directory, ..self }
    }

    /// Returns `false` if the principal has no token any more: see [`Directory::is_admitted`].
    pub fn is_admitted(&self, principal: &PrincipalId) -> bool {
        self.directory.is_admitted(principal)
    }

    /// Returns the origin of earlier work with the rights that its principal has now.
    pub fn present(&self, origin: &Origin) -> Origin {
        Origin { principal: self.directory.present(&origin.principal), ..origin.clone() }
    }

    /// Returns `id` if it is a participant: a person or an agent that is no operator now.
    pub fn participant(&self, id: &str) -> Option<PrincipalId> {
        let is_of_the_house = id.starts_with("lifeform:") || id.starts_with("system:");
        let is_participant = !is_of_the_house && !self.directory.principal(id).may(Role::Operator);
        is_participant.then(|| PrincipalId::new(id))
    }

    /// Returns who acts when `origin` runs what `authors` defined, each within what the one before defined: with the
    /// rights that all of them have.
    pub fn acting<'a>(&self, origin: &Origin, authors: impl IntoIterator<Item = &'a PrincipalId>) -> Origin {
        let principal = authors.into_iter().fold(origin.principal.clone(), |acting, author| {
            if *author == acting.id { acting } else { acting.by_definition_of(&self.directory.principal(&author.0)) }
        });
        Origin { principal, ..origin.clone() }
    }

    /// Returns the number of changes of definitions in this process: what was built from definitions holds while the
    /// number stays the same.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The key that tokens are sealed with.
    pub fn sealing_key(&self) -> &SealingKey {
        &self.key
    }

    /// The models of this daemon.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Runs a neuron that is defined in place, for a fascicle or a lifeform. What is said is kept in the journal of
    /// `invocation`, and an earlier try under that name is taken up where it ended. A neuron that asks for its client's
    /// tools stops there: once [`Neurons::answer`] has brought the results, it thinks on under the same name.
    ///
    /// # Errors
    /// Any [`NeuronError`].
    pub async fn think(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        invocation: &Arc<str>,
        spec: &NeuronSpec,
        input: &Value,
        options: CallOptions,
    ) -> Result<Thought, NeuronError> {
        // Whoever thinks for a job waits for its turn.
        let depth = options.caller.as_ref().map_or(0, |caller| caller.depth.min(DEPTH_MAX));
        let _permit = self.permits[depth].acquire().await.map_err(|_| NeuronError::Overloaded)?;
        let mut spec = spec.clone();
        let begun = neuron::begin(&mut spec, input)?;
        self.complete(&mut spec).await?;
        let talk = if options.first {
            Conversation::first(invocation)
        } else {
            Conversation::read(&self.store, invocation).await?
        };
        let run = self.run(origin.clone(), account.clone(), spec, options);
        let mut outcome = self.tree.run(run.clone(), begun, talk).await?;
        let stop = outcome.stop?;
        if outcome.talk.is_fresh() {
            self.store.commit(outcome.talk.write(Batch::new(&run.origin))).await?;
        }
        let untrusted = run.is_tainted(&outcome.talk);
        Ok(Thought { stop, usage: outcome.spent.usage, calls: outcome.spent.calls, untrusted })
    }

    /// Calls one tool of the server, for a fascicle. It is recorded like a thought: an earlier try under that name is
    /// taken up where it ended, and one that must be approved stops there. Its output is JSON where the tool brought
    /// JSON.
    ///
    /// # Errors
    /// [`NeuronError::ToolFailed`] with what the tool says went wrong, or any other [`NeuronError`].
    pub async fn use_tool(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        invocation: &Arc<str>,
        tool: &ToolSpec,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<Stop, NeuronError> {
        let mut spec = NeuronSpec { tools: vec![tool.clone()], ..NeuronSpec::default() };
        self.tools.expand(&mut spec).await?;
        let [tool] = &spec.tools[..] else {
            return Err(NeuronError::Spec(format!(
                "{} stands for {} tools, and one is called",
                tool.name,
                spec.tools.len()
            )));
        };
        let tool = tool.clone();
        let mut talk = if options.first {
            Conversation::first(invocation)
        } else {
            Conversation::read(&self.store, invocation).await?
        };
        let call = ToolCall {
            id: "call".into(),
            name: tool.name.clone(),
            params: arguments.to_string(),
            ..ToolCall::default()
        };
        if talk.is_new() {
            let function = WireFunction { name: call.name.clone(), arguments: call.params.clone() };
            talk.ask(vec![WireToolCall { id: call.id.clone(), function, ..WireToolCall::default() }]);
        }
        let asked = talk.reply.as_ref().map(calls_of).unwrap_or_default();
        let run = self.run(origin.clone(), account.clone(), spec, options);
        // Whoever did not approve is not asked again.
        let repeatable = self.tools.may_repeat(&tool) && !self.tools.needs_approval(&tool, &call, &run.caller);
        let waiting = run.serve(asked, &mut talk).await?;
        if talk.is_fresh() {
            self.store.commit(talk.write(Batch::new(origin))).await?;
        }
        if !waiting.is_empty() {
            return Ok(Stop::Paused(waiting));
        }
        let text = talk.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        if talk.has_failed {
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            let why = told["error"].as_str().map_or(text, str::to_owned);
            return Err(NeuronError::ToolFailed { why, repeatable });
        }
        let output = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Stop::Completed(Completed { output }))
    }

    /// Returns `true` if a tool call that failed, or whose outcome is unknown, may be repeated.
    pub fn may_repeat(&self, tool: &ToolSpec) -> bool {
        self.tools.may_repeat(tool)
    }

    /// Returns `true` if a result of `tool` makes a thought of `owner` untrusted: a lifeform's, where the tool reads
    /// outside the daemon or what others wrote.
    pub fn brings_in(&self, owner: &str, tool: &ToolSpec) -> bool {
        owner.starts_with("lifeform:") && self.tools.brings_in(tool)
    }

    /// Says what runs the fascicles that neurons call as tools; once.
    pub fn with_fascicles(&self, runner: Arc<dyn FascicleRunner>) {
        self.tools.with_fascicles(runner);
    }

    /// The tools of the server.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Adds the results that a thought waits for to `batch`; that they are the ones asked for is the caller's to check.
    pub fn answer(batch: Batch, invocation: &Arc<str>, results: &[ToolResult]) -> Batch {
        let mut talk = Conversation::new(invocation);
        talk.hear(results);
        talk.write(batch)
    }

    /// One answer of a model to a conversation that its caller keeps, paid like any other.
    ///
    /// # Errors
    /// Any [`NeuronError`].
    pub async fn chat(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        model: &Model,
        mut request: ChatRequest,
        deltas: Option<mpsc::Sender<Delta>>,
    ) -> Result<ChatReply, NeuronError> {
        let _place = self.places.take(&origin.principal)?;
        let mut talk = Conversation::repeated(&fresh_id());
        request.messages.drain(..).for_each(|message| talk.say(message));
        request.messages.clone_from(&talk.messages);
        (request.stream, request.stream_options) = (false, None);
        let payer = Payer { store: &self.store, origin, account, class: Class::of(origin) };
        let paid = paid::call(payer, model, request, deltas, &mut talk, None).await?;
        Ok(paid.reply)
    }

    /// One answer of a neuron to a conversation that its caller keeps. The caller's `tools` stand beside the neuron's
    /// own; one that is to be called by the caller ends the thought.
    ///
    /// # Errors
    /// Any [`NeuronError`].
    pub async fn converse(
        &self,
        origin: &Origin,
        id: &NeuronId,
        messages: Vec<ChatMessage>,
        tools: Vec<ToolSpec>,
        deltas: Option<mpsc::Sender<Delta>>,
    ) -> Result<Thought, NeuronError> {
        let _place = self.places.take(&origin.principal)?;
        let (found, author) = self.written(id).await?;
        let mut spec = found.value;
        let begun = if spec.kind.calls_tools() {
            // Its caller keeps the conversation, and what the server's tools did in it would be forgotten and done
            // again.
            if !tools.is_empty() && spec.tools.iter().any(|tool| self.tools.may_write(tool)) {
                let why = "this neuron has tools on the server that write, so that its caller cannot bring tools of its own here: \
                           invoke it at /v1/neurons/{id}/invoke";
                return Err(NeuronError::Input(why.into()));
            }
            spec.tools.extend(tools);
            spec.check().map_err(NeuronError::Input)?;
            let memory = (!spec.memory.is_empty()).then(|| ChatMessage::text("system", spec.memory.clone()));
            Begun::Conversation(memory.into_iter().chain(messages).collect())
        } else {
            let events: Vec<Value> = messages
                .iter()
                .map(|message| {
                    serde_json::json!({
                        "role": message.role,
                        "content": message.content.clone().unwrap_or_default(),
                    })
                })
                .collect();
            let input = match spec.kind {
                Kind::Completion => messages.last().and_then(|last| last.content.clone()).unwrap_or_default().into(),
                _ => serde_json::json!({"events": events}),
            };
            neuron::begin(&mut spec, &input)?
        };
        self.complete(&mut spec).await?;
        let options = CallOptions { deltas, cannot_wait: true, author, ..CallOptions::default() };
        let run = self.run(origin.clone(), HOUSE.into(), spec, options);
        let mut outcome = self.tree.run(run.clone(), begun, Conversation::repeated(&fresh_id())).await?;
        let stop = outcome.stop?;
        if outcome.talk.is_fresh() {
            self.store.commit(outcome.talk.write(Batch::new(&run.origin))).await?;
        }
        let untrusted = run.is_tainted(&outcome.talk);
        Ok(Thought { stop, usage: outcome.spent.usage, calls: outcome.spent.calls, untrusted })
    }

    /// The embeddings of texts by the embedder, under its name or `embedder`.
    ///
    /// # Errors
    /// [`NeuronError::NoModel`] when it goes by another name, or any other [`NeuronError`].
    pub async fn embed(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        name: &str,
        texts: Vec<String>,
    ) -> Result<(Vec<Vec<f32>>, Usage), NeuronError> {
        let embedder = self.models.embedder()?;
        let whole = format!("{}/{}", embedder.provider.name(), embedder.name);
        if ![embedder.name.as_str(), whole.as_str(), "embedder"].contains(&name) {
            return Err(NeuronError::NoModel(format!("the embedder here is \"{}\", not \"{name}\"", embedder.name)));
        }
        let payer = Payer { store: &self.store, origin, account, class: Class::of(origin) };
        let paid = paid::embed(payer, embedder, texts).await?;
        Ok((paid.vectors, paid.usage.unwrap_or_default()))
    }

    pub(crate) fn run(&self, origin: Origin, account: Arc<str>, spec: NeuronSpec, options: CallOptions) -> Run {
        let mut caller = options.caller.unwrap_or_else(|| Caller::outside(HOUSE));
        caller.authors.extend(options.author.clone());
        Run {
            class: options.class.unwrap_or_else(|| Class::of(&origin)),
            store: self.store.clone(),
            tools: self.tools.clone(),
            acting: self.acting(&origin, &caller.authors),
            caller,
            may_wait: !options.cannot_wait,
            calls_as: options.calls_as,
            author: options.author,
            models: self.models.clone(),
            origin,
            account,
            spec: Arc::new(spec),
            conclusion: None,
            tier: options.tier,
            output_tokens_max: options.output_tokens_max,
            deltas: options.deltas,
        }
    }

    /// Returns the running invocations with their cancellation handles.
    pub(crate) fn under_way(&self) -> MutexGuard<'_, HashMap<Arc<str>, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
