//! Optional assistance by a model, if a suitable model exists and the account can pay: the choice of records for a
//! question, and the rewriting of records. Everything works without it, and reports why it was not used.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use neurons::neuron::Completed;
use neurons::{CallOptions, HOUSE, NeuronError, NeuronSpec, Neurons, Stop, Tier};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::Origin;

/// The maximum time that a search waits for a model's choice.
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum time that a caller waits for a rewritten record.
const PATIENCE_TO_WRITE: Duration = Duration::from_secs(120);

static ROUTE: LazyLock<NeuronSpec> =
    LazyLock::new(|| shipped(include_str!("../../config/neurons/route_knowledge.toml")));
static SAME: LazyLock<NeuronSpec> = LazyLock::new(|| shipped(include_str!("../../config/neurons/same_knowledge.toml")));
static EVOLVE: LazyLock<NeuronSpec> =
    LazyLock::new(|| shipped(include_str!("../../config/neurons/evolve_knowledge.toml")));

fn shipped(text: &str) -> NeuronSpec {
    toml::from_str(text).unwrap_or_else(|error| unreachable!("a shipped neuron loads: {error}"))
}

/// Access to models, and the account that pays.
#[derive(Clone)]
pub(crate) struct Thinker {
    neurons: Neurons,
    account: Arc<str>,
}

/// A record as rewritten by a model.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rewritten {
    pub(crate) task: String,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) dropped: Vec<String>,
}

#[derive(Deserialize)]
struct Same {
    same: Vec<usize>,
}

#[derive(Deserialize)]
struct Chosen {
    ids: Vec<String>,
}

impl Thinker {
    pub(crate) fn new(neurons: Neurons) -> Self {
        Self { neurons, account: HOUSE.into() }
    }

    pub(crate) fn paid_by(self, account: Arc<str>) -> Self {
        Self { account, ..self }
    }

    /// Returns the ids that a model chooses from `offered`, one per line, for a question.
    ///
    /// # Errors
    /// Returns the reason why there is no choice, in one word.
    pub(crate) async fn route(
        &self,
        question: &str,
        offered: &str,
        origin: &Origin,
    ) -> Result<Vec<String>, &'static str> {
        let events = json!([
            {"role": "records", "content": offered},
            {"role": "question", "content": question},
        ]);
        let chosen: Chosen = self.think(&ROUTE, events, None, PATIENCE, origin).await?;
        Ok(chosen.ids)
    }

    /// Returns a record rewritten by a model.
    ///
    /// # Errors
    /// Returns the reason why there is none, as a text.
    pub(crate) async fn rewrite(
        &self,
        task: &str,
        content: &str,
        wish: &str,
        origin: &Origin,
    ) -> Result<Rewritten, &'static str> {
        let events = json!([
            {"role": "record", "content": format!("task: {task}\n\n{content}")},
            {"role": "wish", "content": wish},
        ]);
        self.think(&EVOLVE, events, None, PATIENCE_TO_WRITE, origin).await
    }

    /// Returns the numbers, from 1, of the pairs of records that say the same, as a model judges. `model` is the name of a
    /// model or a tier.
    ///
    /// # Errors
    /// Returns the reason why there is no judgement, in one word.
    pub(crate) async fn same(
        &self,
        pairs: &[(String, String)],
        model: &str,
        origin: &Origin,
    ) -> Result<Vec<usize>, &'static str> {
        let tier = self.neurons.models().tier_of(model).ok_or("no_such_model")?;
        let text = |(n, (one, other)): (usize, &(String, String))| format!("{}. {one}\n   {other}", n + 1);
        let lines: Vec<String> = pairs.iter().enumerate().map(text).collect();
        let events = json!([{"role": "records", "content": lines.join("\n")}]);
        let Same { same } = self.think(&SAME, events, Some(tier), PATIENCE_TO_WRITE, origin).await?;
        Ok(same)
    }

    /// Returns the tier that the name of a model or a tier means.
    pub(crate) fn tier_of(&self, name: &str) -> Option<Tier> {
        self.neurons.models().tier_of(name)
    }

    async fn think<T: DeserializeOwned>(
        &self,
        spec: &NeuronSpec,
        events: Value,
        tier: Option<Tier>,
        patience: Duration,
        origin: &Origin,
    ) -> Result<T, &'static str> {
        // A small model writes but does not choose well, so it is not used here.
        if !self.neurons.models().pick(tier.unwrap_or(spec.tier)).is_ok_and(|model| !model.small) {
            return Err("no_llm");
        }
        let invocation: Arc<str> =
            format!("{}_{}", spec.id.as_deref().unwrap_or_default(), uuid::Uuid::now_v7().simple()).into();
        let options = CallOptions { first: true, cannot_wait: true, tier, ..CallOptions::default() };
        let input = json!({"events": events});
        let thought = self.neurons.think(origin, &self.account, &invocation, spec, &input, options);
        let thought = tokio::time::timeout(patience, thought).await.map_err(|_| "llm_timeout")?;
        match thought {
            Ok(thought) => match thought.stop {
                Stop::Completed(Completed { output, .. }) => read(output).ok_or("llm_error"),
                Stop::Paused(_) => Err("llm_error"),
            },
            Err(NeuronError::Store(error)) if error.is_ledger_refusal() => Err("llm_budget"),
            Err(error) => {
                tracing::warn!(%error, neuron = spec.id.as_deref(), "a model did not help");
                Err("llm_error")
            }
        }
    }
}

fn read<T: DeserializeOwned>(output: Value) -> Option<T> {
    match output {
        Value::String(text) => serde_json::from_str(&text).ok(),
        output => serde_json::from_value(output).ok(),
    }
}
