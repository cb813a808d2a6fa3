//! `Neurons`: the handle. Definitions, invocations and their continuations.

use std::sync::Arc;

use nexus::store::{Expect, Key, Kind as Document, Versioned};
use nexus::{Batch, Nexus, Origin, Store, StoreError};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};

use crate::NeuronError;
use crate::actor::{Outcome, Tree};
use crate::continuation::{Continuation, EXPIRY_S, SealingKey, Stage, body_hash, check_results};
use crate::history::noted;
use crate::invocation::{Answer, Run, Stop, tool_message};
use crate::llm::{ChatMessage, Models, Tier, Usage, paid};
use crate::neuron::{self, Begun, Completed, ToolResult};
use crate::spec::{NeuronId, NeuronSpec};

/// Invocations that may run at once.
const RUNNING_MAX: usize = 512;
/// What a document's versions begin with.
const FIRST_VERSION: u64 = 1;
/// The account of calls made by people.
pub const HOUSE: &str = "house";

/// A cheap handle; clones share one supervisor.
#[derive(Clone)]
pub struct Neurons {
    pub(crate) store: Store,
    nexus: Nexus,
    models: Models,
    tree: Tree,
    permits: Arc<Semaphore>,
    key: SealingKey,
    /// Names this life of the daemon: what an earlier life had begun may be begun again.
    life: Arc<str>,
}

/// How one call from inside the daemon is made.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// A tier that overrides the neuron's own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neuron's own.
    pub output_tokens_max: Option<u32>,
    /// Where the text goes as it comes.
    pub deltas: Option<mpsc::Sender<String>>,
}

/// What a call from inside the daemon brought.
#[derive(Clone, Debug)]
pub struct Thought {
    /// The neuron's output.
    pub output: Completed,
    /// What it used.
    pub usage: Usage,
    /// The paid calls behind it, as they stand in `calls:{account}`.
    pub calls: Vec<Arc<str>>,
}

impl Neurons {
    /// Opens the neurons kept in `store`; what an earlier life left unsettled on the house account is settled.
    ///
    /// # Errors
    /// The store's own.
    pub async fn open(store: Store, nexus: Nexus, models: Models) -> Result<Self, NeuronError> {
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
            nexus,
            models,
            tree: Tree::plant().await?,
            permits: Arc::new(Semaphore::new(RUNNING_MAX)),
            key: sealing,
            life,
        })
    }

    /// The models of this daemon.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Stores a new neuron.
    ///
    /// # Errors
    /// [`NeuronError::Spec`] when it is not well made, a conflict when the id is taken.
    pub async fn create(
        &self,
        origin: &Origin,
        mut spec: NeuronSpec,
    ) -> Result<(NeuronId, Versioned<NeuronSpec>), NeuronError> {
        spec.check().map_err(NeuronError::Spec)?;
        let id = spec.id.get_or_insert_with(|| format!("neuron_{}", uuid::Uuid::now_v7().simple()).into()).clone();
        let batch = Batch::new(origin).create(Key::new(Document::Neuron, id.clone()), &spec);
        match self.store.commit(noted(batch, &id, FIRST_VERSION, Some(&spec))).await {
            Ok(receipt) => Ok((id, Versioned { version: receipt.versions[0], value: spec })),
            Err(StoreError::Conflict { .. }) => Err(NeuronError::Exists(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// A neuron's definition.
    ///
    /// # Errors
    /// [`NeuronError::NotFound`].
    pub async fn get(&self, id: &NeuronId) -> Result<Versioned<NeuronSpec>, NeuronError> {
        self.store
            .document(&Key::new(Document::Neuron, id.clone()))
            .await?
            .ok_or_else(|| NeuronError::NotFound(id.clone()))
    }

    /// Definitions with ids after `after`, at most `limit`.
    ///
    /// # Errors
    /// The store's own.
    pub async fn list(&self, after: &str, limit: usize) -> Result<Vec<(NeuronId, Versioned<NeuronSpec>)>, NeuronError> {
        Ok(self.store.documents(Document::Neuron, after, limit).await?)
    }

    /// Replaces a definition. Invocations under way keep the one they began with.
    ///
    /// # Errors
    /// [`NeuronError::Spec`], [`NeuronError::NotFound`], or a conflict when `expect` is not the version.
    pub async fn update(
        &self,
        origin: &Origin,
        id: &NeuronId,
        mut spec: NeuronSpec,
        expect: Option<u64>,
    ) -> Result<Versioned<NeuronSpec>, NeuronError> {
        spec.id = Some(id.clone());
        spec.check().map_err(NeuronError::Spec)?;
        let found = self.get(id).await?.version;
        let expect = expect.unwrap_or(found);
        let key = Key::new(Document::Neuron, id.clone());
        let batch = Batch::new(origin).put_expecting(key, Expect::Version(expect), &spec);
        let receipt = self.store.commit(noted(batch, id, expect + 1, Some(&spec))).await?;
        Ok(Versioned { version: receipt.versions[0], value: spec })
    }

    /// Removes a definition.
    ///
    /// # Errors
    /// [`NeuronError::NotFound`].
    pub async fn delete(&self, origin: &Origin, id: &NeuronId) -> Result<(), NeuronError> {
        let found = self.get(id).await?.version;
        let batch = Batch::new(origin).delete(Key::new(Document::Neuron, id.clone()), Expect::Version(found));
        self.store.commit(noted(batch, id, found, None)).await?;
        Ok(())
    }

    /// `POST /v1/neurons/{id}/invoke`: begins a call, paid by the house.
    ///
    /// # Errors
    /// Any [`NeuronError`].
    pub async fn invoke(&self, origin: &Origin, id: &NeuronId, input: &Value) -> Result<Answer, NeuronError> {
        let mut spec = self.get(id).await?.value;
        let begun = neuron::begin(&mut spec, input)?;
        self.describe(&mut spec).await?;
        let invocation: Arc<str> = format!("inv_{}", uuid::Uuid::now_v7().simple()).into();
        let origin = origin.because(format!("neuron:{id}"));
        let run = self.run(origin, HOUSE.into(), spec, CallOptions::default());
        let outcome = self.admit(&run, begun).await?;
        let stop = outcome.stop?;
        let Stop::Paused(calls) = stop else { return Ok(completed(stop)) };
        let (batch, answer) = self.pause(&run, Batch::new(&run.origin), id, &invocation, 1, &outcome.messages, calls);
        self.store.commit(batch).await?;
        Ok(answer)
    }

    /// Tells a router what those neurons are for that it only knows by name.
    async fn describe(&self, spec: &mut NeuronSpec) -> Result<(), NeuronError> {
        for to in spec.neurons.iter_mut().filter(|to| to.description.is_empty()) {
            let key = Key::new(Document::Neuron, to.neuron.clone());
            if let Some(known) = self.store.document::<NeuronSpec>(&key).await? {
                to.description = known.value.description;
            }
        }
        Ok(())
    }

    /// `POST /v1/neurons/{id}/continue`: brings the results a paused call waits for.
    ///
    /// # Errors
    /// [`NeuronError::NoContinuation`] for any token that is not this principal's for this neuron,
    /// [`NeuronError::Expired`], [`NeuronError::InFlight`], and [`NeuronError::Results`] when the
    /// results are not the ones asked for or not the ones given before.
    pub async fn resume(
        &self,
        origin: &Origin,
        id: &NeuronId,
        token: &str,
        results: Vec<ToolResult>,
    ) -> Result<Answer, NeuronError> {
        let opened = self.key.open(token, id, &origin.principal.id).ok_or(NeuronError::NoContinuation)?;
        let key = Key::new(Document::Continuation, opened.clone());
        let paused: Versioned<Continuation> = self.store.document(&key).await?.ok_or(NeuronError::NoContinuation)?;
        let body = body_hash(&results);
        let again = match &paused.value.stage {
            Stage::Done { body: given, answer } if *given == body => return Ok((**answer).clone()),
            Stage::Done { .. } => {
                return Err(NeuronError::Results("this call was continued already, with other results".into()));
            }
            Stage::Consumed { body: given, .. } if *given != body => {
                return Err(NeuronError::Results("this call is being continued with other results".into()));
            }
            Stage::Consumed { life, .. } if *life == self.life => return Err(NeuronError::InFlight),
            // Taken by a life that ended: its model call was settled, and is made once more.
            Stage::Consumed { .. } => true,
            Stage::Pending => false,
        };
        if paused.value.expires_at < self.store.clock().now() {
            return Err(NeuronError::Expired);
        }
        check_results(&paused.value.expected, &results).map_err(NeuronError::Results)?;

        let mut taken = paused.value;
        taken.stage = Stage::Consumed { body: body.clone(), life: self.life.clone() };
        let run = self.run(
            origin.because(format!("invocation:{}", taken.invocation)),
            taken.account.clone(),
            taken.neuron.clone(),
            CallOptions::default(),
        );
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| NeuronError::Overloaded)?;
        let mut take = Batch::new(&run.origin).put_expecting(key.clone(), Expect::Version(paused.version), &taken);
        if !again {
            let messages: Vec<ChatMessage> = results.iter().map(tool_message).collect();
            take = run.record(take, &taken.invocation, &messages);
        }
        let version = match self.store.commit(take).await {
            Ok(receipt) => receipt.versions[0],
            Err(StoreError::Conflict { .. }) => return Err(NeuronError::InFlight),
            Err(error) => return Err(error.into()),
        };
        // From here on the call belongs to the daemon: a caller that goes away changes nothing.
        let this = self.clone();
        let (id, origin) = (id.clone(), run.origin.clone());
        let work = tokio::spawn(async move {
            let _permit = permit;
            let mut batch = Batch::new(&origin);
            let ran = async {
                let before = Run::conversation(&this.store, &taken.invocation).await?;
                let recorded = before.len();
                let outcome = this.tree.run(run.clone(), Begun::Conversation(before)).await?;
                Ok((outcome.stop?, outcome.messages, recorded))
            };
            let answer = match ran.await {
                Ok((Stop::Paused(calls), messages, recorded)) => {
                    let fresh = &messages[recorded..];
                    let (more, answer) = this.pause(&run, batch, &id, &taken.invocation, taken.step + 1, fresh, calls);
                    batch = more;
                    answer
                }
                Ok((stop, ..)) => completed(stop),
                Err(error) => {
                    // The results were not lost: the same call may be made again.
                    taken.stage = Stage::Consumed { body: body.clone(), life: "failed".into() };
                    this.store.commit(batch.put_expecting(key, Expect::Version(version), &taken)).await?;
                    return Err(error);
                }
            };
            taken.stage = Stage::Done { body, answer: Box::new(answer.clone()) };
            this.store.commit(batch.put_expecting(key, Expect::Version(version), &taken)).await?;
            Ok(answer)
        });
        work.await.map_err(|panic| NeuronError::Died(panic.to_string()))?
    }

    /// Runs a neuron that is defined in place, for a fascicle or a lifeform.
    ///
    /// # Errors
    /// Any [`NeuronError`]; a neuron that asks for a client's tool cannot be answered here.
    pub async fn think(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        spec: &NeuronSpec,
        input: &Value,
        options: CallOptions,
    ) -> Result<Thought, NeuronError> {
        let mut spec = spec.clone();
        let begun = neuron::begin(&mut spec, input)?;
        self.describe(&mut spec).await?;
        let run = self.run(origin.clone(), account.clone(), spec, options);
        let outcome = self.admit(&run, begun).await?;
        match outcome.stop? {
            Stop::Completed(output) => Ok(Thought { output, usage: outcome.spent.usage, calls: outcome.spent.calls }),
            Stop::Paused(calls) => Err(NeuronError::Output(format!(
                "it asked for the client's tool {}, and there is no client here",
                calls[0].name
            ))),
        }
    }

    fn run(&self, origin: Origin, account: Arc<str>, spec: NeuronSpec, options: CallOptions) -> Run {
        Run {
            store: self.store.clone(),
            nexus: self.nexus.clone(),
            models: self.models.clone(),
            origin,
            account,
            spec,
            tier: options.tier,
            output_tokens_max: options.output_tokens_max,
            deltas: options.deltas,
        }
    }

    async fn admit(&self, run: &Run, begun: Begun) -> Result<Outcome, NeuronError> {
        let _permit = self.permits.try_acquire().map_err(|_| NeuronError::Overloaded)?;
        self.tree.run(run.clone(), begun).await
    }

    /// Adds a pause to `batch`: the new messages, the paused call, and the token that names it.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a different thing, and there is one caller for each of two places"
    )]
    fn pause(
        &self,
        run: &Run,
        batch: Batch,
        id: &NeuronId,
        invocation: &Arc<str>,
        step: u32,
        fresh: &[ChatMessage],
        calls: Vec<neuron::ToolCall>,
    ) -> (Batch, Answer) {
        let expires_at = self.store.clock().now() + jiff::SignedDuration::from_secs(EXPIRY_S);
        let paused = Continuation {
            invocation: invocation.clone(),
            step,
            neuron: run.spec.clone(),
            neuron_id: id.clone(),
            principal: run.origin.principal.id.clone(),
            account: run.account.clone(),
            expected: calls.iter().map(|call| call.id.clone()).collect(),
            expires_at,
            stage: Stage::Pending,
        };
        let name: Arc<str> = format!("{invocation}.{step}").into();
        let token = self.key.seal(&name, &paused);
        let batch = run.record(batch, invocation, fresh).create(Key::new(Document::Continuation, name), &paused);
        (batch, Answer::Paused { token, calls })
    }
}

fn completed(stop: Stop) -> Answer {
    match stop {
        Stop::Completed(completed) => Answer::Completed(completed),
        Stop::Paused(calls) => Answer::Paused { token: String::new(), calls },
    }
}
