//! `Neurons`, the handle of this crate: stored definitions, and runs of neurons that a caller defines in place.

mod definitions;
mod named_tools;
mod pins;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use store::{
    Batch, Directory, Key, Kind as Document, NoDirectory, Origin, Principal, PrincipalId, Role, Shares, Store,
};
use tokio::sync::{Semaphore, mpsc};

use crate::NeuronError;
use crate::actors::{ActorCell, Supervisor};
use crate::continuation::SealingKey;
use crate::conversation::Conversation;
use crate::definition_quota::DefinitionQuota;
use crate::invocation::{Run, Stop};
use crate::invocations::UnderWay;
use crate::kinds::base::calls_of;
use crate::llm::paid::Payer;
use crate::llm::{
    ChatMessage, ChatReply, ChatRequest, Class, Delta, Model, Models, Tier, Usage, WireFunction, WireToolCall, paid,
};
use crate::nearest::Nearest;
use crate::neuron::{self, Completed, FirstStep, ToolCall, ToolResult};
use crate::spec::{NeuronId, NeuronSpec, Runner, ToolSpec};
use crate::tools::reckoning::Reckoning;
use crate::tools::{Builtins, Caller, DEPTH_MAX, FascicleRunner, Tools};

/// The maximum number of job invocations that run at once, per nesting depth of fascicle tools.
const RUNNING_MAX: usize = 512;
/// The maximum number of direct client invocations that run at once: in all, and per principal. Operators are exempt
/// from the limit per principal.
const INVOKED_MAX: usize = 512;
const INVOKED_EACH_MAX: usize = INVOKED_MAX / 8;
/// The first version of a document.
pub(crate) const FIRST_VERSION: u64 = 1;
/// The account that pays for the calls of clients.
pub const HOUSE: &str = "house";

/// A cheap handle; clones share one supervisor.
#[derive(Clone)]
pub struct Neurons {
    pub(crate) store: Store,
    pub(crate) tools: Tools,
    models: Models,
    /// The supervisor of the invocations that clients make.
    supervisor: ActorCell,
    /// One semaphore per nesting depth of fascicle tools. A holder only ever waits for depth + 1, so permits cannot
    /// deadlock.
    pub(crate) permits: Arc<[Arc<Semaphore>]>,
    /// Permits for direct client invocations. They are separate, so clients never take a permit from a step of a job.
    pub(crate) places: Shares,
    pub(crate) key: SealingKey,
    /// The random name of this daemon process. An invocation that an earlier process started may be started again.
    pub(crate) life: Arc<str>,
    /// The directory of the current rights of definition authors.
    directory: Arc<dyn Directory>,
    under_way: Arc<Mutex<HashMap<Arc<str>, UnderWay>>>,
    nearest: Arc<Nearest>,
    changes: Arc<AtomicU64>,
    pub(crate) quota: DefinitionQuota,
}

/// The options of a call from inside the daemon.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// The tier that overrides the neuron's own; `None` keeps it.
    pub tier: Option<Tier>,
    /// The maximum number of output tokens. It only lowers the neuron's own bound.
    pub output_tokens_max: Option<u32>,
    /// The receiver of the streamed text; `None` disables streaming.
    pub deltas: Option<mpsc::Sender<Delta>>,
    /// `true` if the invocation name was never used, so the daemon does not look for its journal.
    pub first: bool,
    /// The caller of the neuron; `None` means the daemon itself.
    pub caller: Option<Caller>,
    /// `true` if the caller cannot wait for the approval of a tool call.
    pub cannot_wait: bool,
    /// The prefix of the idempotency keys of tool calls; `None` uses the invocation's name.
    pub calls_as: Option<Arc<str>>,
    /// The author of the neuron, if the author is not the caller. Its tools then act with the rights that both have.
    pub author: Option<PrincipalId>,
    /// The scheduling class of the call; `None` derives it from the caller's principal.
    pub class: Option<Class>,
    /// The actor with which the call ends; `None` means the supervisor of invocations.
    pub parent: Option<ActorCell>,
}

/// The result of a call from inside the daemon.
#[derive(Clone, Debug)]
pub struct NeuronReply {
    /// The output, or the tool calls that the invocation waits for.
    pub stop: Stop,
    /// The tokens used.
    pub usage: Usage,
    /// The ids of the paid calls, as recorded in `calls:{account}`.
    pub calls: Vec<Arc<str>>,
    /// `true` if the call read content that its caller does not trust: see [`Neurons::brings_in`].
    pub untrusted: bool,
}

/// Returns a random name for an invocation that is never resumed.
pub(crate) fn fresh_id() -> Arc<str> {
    format!("inv_{}", uuid::Uuid::now_v7().simple()).into()
}

/// Returns the acting principal: see [`Neurons::acting`].
pub(crate) fn acting<'a>(
    directory: &dyn Directory,
    origin: &Origin,
    authors: impl IntoIterator<Item = &'a PrincipalId>,
) -> Origin {
    let principal = authors.into_iter().fold(origin.principal.clone(), |acting, author| {
        if *author == acting.id { acting } else { acting.by_definition_of(&directory.principal(&author.0)) }
    });
    // What an author's definition does is recorded under the author; the cause names the principal that ran it.
    let cause = if principal.id == origin.principal.id {
        origin.cause.clone()
    } else {
        origin.cause.and(format!("run-by:{}", origin.principal.id))
    };
    Origin { principal, cause, ..origin.clone() }
}

impl Neurons {
    /// Opens the neurons in `store` and settles the reservations that an earlier process left open on the house
    /// account.
    ///
    /// # Errors
    /// Returns the store's error.
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
        tools.started(store.clock().now());
        let reckoning: Arc<dyn Builtins> = Arc::new(Reckoning { clock: store.clock().clone() });
        tools.add(&reckoning);
        tools.keep_pins_in(Arc::new(pins::StoredPins(store.clone())));
        let supervisor = Supervisor::start("invocations").await;
        let supervisor = supervisor.map_err(|error| NeuronError::Died(error.to_string()))?;
        let life = uuid::Uuid::now_v7().simple().to_string().into();
        let this = Self {
            quota: DefinitionQuota::new(store.clone()),
            nearest: Arc::new(Nearest::new(store.clone(), models.clone())),
            store,
            tools,
            models,
            supervisor,
            permits: (0..=DEPTH_MAX).map(|_| Arc::new(Semaphore::new(RUNNING_MAX))).collect(),
            places: Shares::new(INVOKED_MAX, INVOKED_EACH_MAX),
            key: sealing,
            life,
            directory: Arc::new(NoDirectory),
            under_way: Arc::default(),
            changes: Arc::default(),
        };
        this.read_named_tools().await?;
        Ok(this)
    }

    /// Sets the directory of the current rights of definition authors. Without a directory, tools of stored definitions
    /// may only read.
    #[must_use]
    pub fn with_directory(self, directory: Arc<dyn Directory>) -> Self {
        Self { directory, ..self }
    }

    /// Sets the maximum number of stored definitions of a participant, neurons and fascicles together (default 1,000);
    /// 0 means no limit.
    #[must_use]
    pub fn with_definitions_max(self, max: u64) -> Self {
        Self { quota: self.quota.with_max(max), ..self }
    }

    /// The quota of definitions.
    pub fn quota(&self) -> &DefinitionQuota {
        &self.quota
    }

    /// Returns `true` if the principal of `origin` has all rights that it has with any of its tokens, so that its
    /// definitions do not run with more.
    pub fn may_define(&self, origin: &Origin) -> bool {
        origin.principal.may(Role::Operator) || !self.directory.principal(&origin.principal.id.0).may(Role::Operator)
    }

    /// Returns `false` if the principal no longer has a token: see [`Directory::is_admitted`].
    pub fn is_admitted(&self, principal: &PrincipalId) -> bool {
        self.directory.is_admitted(principal)
    }

    /// Returns the principal with an id, with those roles that all of its tokens have now.
    pub fn least_principal(&self, id: &str) -> Principal {
        self.directory.least_principal(id)
    }

    /// Returns the origin of earlier work with the rights that its principal has now.
    pub fn present(&self, origin: &Origin) -> Origin {
        Origin { principal: self.directory.present(&origin.principal), ..origin.clone() }
    }

    /// Returns `id` if it is a participant: a person or an agent that is no operator now, or a lifeform that acts
    /// through a token, as those that live elsewhere do.
    pub fn participant(&self, id: &str) -> Option<PrincipalId> {
        let is_of_the_house = match id.split_once(':') {
            Some(("lifeform", _)) => !self.directory.is_guest(id),
            Some(("system", _)) => true,
            _ => false,
        };
        let is_participant = !is_of_the_house && !self.directory.principal(id).may(Role::Operator);
        is_participant.then(|| PrincipalId::new(id))
    }

    /// Returns the origin for running nested definitions of `authors`, outermost first: the principal of `origin`,
    /// limited to the rights that all authors have.
    pub fn acting<'a>(&self, origin: &Origin, authors: impl IntoIterator<Item = &'a PrincipalId>) -> Origin {
        acting(&*self.directory, origin, authors)
    }

    /// Returns the number of definition changes in this process. Anything built from definitions is valid while this
    /// number stays the same.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The key that seals continuation tokens.
    pub fn sealing_key(&self) -> &SealingKey {
        &self.key
    }

    /// The supervisor of the invocations that clients make.
    pub fn supervisor(&self) -> &ActorCell {
        &self.supervisor
    }

    /// The models of this daemon.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Runs a neuron that is defined in place, for a fascicle or a lifeform. The journal of `invocation` records the
    /// conversation; an earlier try under the same name is resumed where its journal ends. If the neuron calls client
    /// tools, the run pauses. Once [`Neurons::answer`] has added the results, a call under the same name continues it.
    ///
    /// # Errors
    /// Returns any [`NeuronError`].
    pub async fn think(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        invocation: &Arc<str>,
        spec: &NeuronSpec,
        input: &Value,
        mut options: CallOptions,
    ) -> Result<NeuronReply, NeuronError> {
        // Only job invocations acquire a permit of their depth here.
        let depth = options.caller.as_ref().map_or(0, |caller| caller.depth.min(DEPTH_MAX));
        let _permit = self.permits[depth].acquire().await.map_err(|_| NeuronError::Overloaded)?;
        let mut spec = spec.clone();
        spec.fit(self.is_small(options.tier.unwrap_or(spec.tier)));
        let begun = neuron::begin(&mut spec, input)?;
        let is_given = spec.tools.iter().any(|tool| tool.run == Runner::Given);
        if let Some(caller) = &mut options.caller {
            if spec.tools.iter().any(|tool| tool.run == Runner::Bound)
                && let Some(binding) = self.tools.binding(caller).await
            {
                caller.bind(binding);
            }
            self.tools.keep_offered(&mut spec, origin, caller).await;
        }
        Box::pin(self.complete(&mut spec, &options)).await?;
        let talk = if options.first {
            Conversation::first(invocation)
        } else {
            Conversation::read(&self.store, invocation).await?
        };
        let run = self.run(origin.clone(), account.clone(), spec, options);
        let hidden = match is_given && talk.completed.is_none() {
            true => Box::pin(run.unlikely(&begun)).await,
            false => BTreeSet::new(),
        };
        let run = Run { hidden: hidden.into(), ..run };
        let mut outcome = Box::pin(run.clone().in_actor(begun, talk)).await?;
        let stop = outcome.stop?;
        if outcome.talk.is_fresh() {
            self.store.commit(outcome.talk.write(Batch::new(&run.origin))).await?;
        }
        let untrusted = run.is_tainted(&outcome.talk);
        Ok(NeuronReply { stop, usage: outcome.spent.usage, calls: outcome.spent.calls, untrusted })
    }

    /// Calls one server tool for a fascicle. The call is journaled like an invocation: an earlier try under the same
    /// name is resumed, and a call that needs an approval pauses. The output is JSON if the tool returned JSON.
    ///
    /// # Errors
    /// Returns [`NeuronError::ToolFailed`] with the tool's error message, or any other [`NeuronError`].
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
        self.expand(&mut spec, &options).await?;
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
        talk.read_by_none();
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
        // A call that the approver refused is not submitted for approval again.
        let repeatable = self.tools.may_repeat(&tool) && !self.tools.needs_approval(&tool, &call, &run.caller);
        run.heed_decisions(&mut talk).await?;
        let waiting = run.serve(asked, &mut talk).await?;
        if talk.is_fresh() {
            self.store.commit(talk.write(Batch::new(origin))).await?;
        }
        if !waiting.is_empty() {
            return Ok(Stop::Paused(waiting));
        }
        let text = talk.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        if talk.has_failed {
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            let why = body["error"].as_str().map_or(text, str::to_owned);
            return Err(NeuronError::ToolFailed { why, repeatable });
        }
        let output = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Stop::Completed(Completed { output }))
    }

    /// Returns the places of texts, the nearest to `text` first. Embeddings are paid by `account`; vectors of the texts are kept.
    /// Without an embedder, or if it fails, words alone decide. Equally near texts keep their order.
    pub async fn nearest(&self, origin: &Origin, account: &Arc<str>, text: &str, texts: &[String]) -> Vec<usize> {
        self.nearest.order(origin, account, text, texts).await
    }

    /// Returns `true` if a tool call that failed, or whose outcome is unknown, may be repeated.
    pub fn may_repeat(&self, tool: &ToolSpec) -> bool {
        self.tools.may_repeat(tool)
    }

    /// Returns `true` if a result of `tool` makes the run of `owner` untrusted: `owner` is a lifeform and the tool
    /// reads from outside the daemon or reads content of other authors.
    pub fn brings_in(&self, owner: &str, tool: &ToolSpec) -> bool {
        owner.starts_with("lifeform:") && self.tools.brings_in(tool)
    }

    /// Sets the runner of fascicles that neurons call as tools. Only the first call has an effect.
    pub fn with_fascicles(&self, runner: Arc<dyn FascicleRunner>) {
        self.tools.with_fascicles(runner);
    }

    /// The tools of the server.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Adds the results that a paused invocation waits for to `batch`. The caller must check that these calls were
    /// requested.
    pub fn answer(batch: Batch, invocation: &Arc<str>, results: &[ToolResult]) -> Batch {
        let mut talk = Conversation::new(invocation);
        talk.hear(results);
        talk.write(batch)
    }

    /// Requests one answer of a model to a conversation that the caller keeps. The call is paid like any other.
    ///
    /// # Errors
    /// Returns any [`NeuronError`].
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

    /// Requests one answer of a neuron to a conversation that the caller keeps. The caller's `tools` are added to the
    /// neuron's own tools. A call of one of the caller's tools ends the run.
    ///
    /// # Errors
    /// Returns any [`NeuronError`].
    pub async fn converse(
        &self,
        origin: &Origin,
        id: &NeuronId,
        messages: Vec<ChatMessage>,
        tools: Vec<ToolSpec>,
        deltas: Option<mpsc::Sender<Delta>>,
    ) -> Result<NeuronReply, NeuronError> {
        let _place = self.places.take(&origin.principal)?;
        let (found, author) = self.written(id).await?;
        let mut spec = found.value;
        spec.fit(self.is_small(spec.tier));
        let begun = if spec.kind.calls_tools() {
            // The caller keeps the conversation without the calls of server tools, so a repeated request would make the
            // writing calls again.
            if !tools.is_empty() && spec.tools.iter().any(|tool| self.tools.may_write(tool)) {
                let why = "this neuron has tools on the server that write, so that its caller cannot bring tools of its own here: \
                           invoke it at /v1/neurons/{id}/invoke";
                return Err(NeuronError::Input(why.into()));
            }
            spec.tools.extend(tools);
            spec.check().map_err(NeuronError::Input)?;
            let memory = (!spec.memory.is_empty()).then(|| ChatMessage::text("system", spec.memory.clone()));
            FirstStep::Conversation(memory.into_iter().chain(messages).collect())
        } else {
            let input = spec.kind.rules().input_of_chat(&messages);
            neuron::begin(&mut spec, &input)?
        };
        let options = CallOptions { deltas, cannot_wait: true, author, ..CallOptions::default() };
        self.complete(&mut spec, &options).await?;
        let run = self.run(origin.clone(), HOUSE.into(), spec, options);
        let mut outcome = run.clone().in_actor(begun, Conversation::repeated(&fresh_id())).await?;
        let stop = outcome.stop?;
        if outcome.talk.is_fresh() {
            self.store.commit(outcome.talk.write(Batch::new(&run.origin))).await?;
        }
        let untrusted = run.is_tainted(&outcome.talk);
        Ok(NeuronReply { stop, usage: outcome.spent.usage, calls: outcome.spent.calls, untrusted })
    }

    /// Returns the embeddings of texts. The embedder is requested by its own name or as `embedder`.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoModel`] for any other name, or any other [`NeuronError`].
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

    /// Returns `true` if the first model of a tier is marked `small`.
    pub(crate) fn is_small(&self, tier: Tier) -> bool {
        self.models.pick(tier).is_ok_and(|model| model.small)
    }

    pub(crate) fn run(&self, origin: Origin, account: Arc<str>, spec: NeuronSpec, options: CallOptions) -> Run {
        let mut caller = options.caller.unwrap_or_else(|| Caller::outside(HOUSE));
        caller.authors.extend(options.author.clone());
        Run {
            class: options.class.unwrap_or_else(|| Class::of(&origin)),
            store: self.store.clone(),
            tools: self.tools.clone(),
            directory: self.directory.clone(),
            caller,
            may_wait: !options.cannot_wait,
            calls_as: options.calls_as,
            author: options.author,
            models: self.models.clone(),
            origin,
            account,
            spec: Arc::new(spec),
            hidden: Arc::default(),
            nearest: self.nearest.clone(),
            conclusion: None,
            tier: options.tier,
            output_tokens_max: options.output_tokens_max,
            deltas: options.deltas,
            parent: options.parent.unwrap_or_else(|| self.supervisor.clone()),
        }
    }

    /// Returns the running invocations with their cancellation handles.
    pub(crate) fn under_way(&self) -> MutexGuard<'_, HashMap<Arc<str>, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
