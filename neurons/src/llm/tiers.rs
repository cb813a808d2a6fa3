//! The models of the tiers, and their prices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::ledger::Amount;
use utoipa::ToSchema;

use super::{LlmError, LlmProvider, Usage};

/// The price class of a thought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The cheapest model there is.
    Economy,
    /// The ordinary one.
    #[default]
    Standard,
    /// The best one.
    High,
}

/// Prices in micro-dollars a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For tokens read.
    #[serde(default)]
    pub input: u64,
    /// For tokens written.
    #[serde(default)]
    pub output: u64,
    /// For tokens read that the provider had read before; as much as for others when absent.
    #[serde(default)]
    pub cached: Option<u64>,
}

impl Price {
    /// Returns the cost of `usage`, rounded up.
    pub fn of(self, usage: Usage) -> Amount {
        // A provider that reports nonsense must not be able to turn a charge into a credit.
        const TOKENS_MAX: u64 = 1 << 40;
        let (input, output) = (usage.prompt_tokens.min(TOKENS_MAX), usage.completion_tokens.min(TOKENS_MAX));
        let cached = usage.cached_tokens.min(input);
        let cost = |tokens: u64, price: u64| {
            i64::try_from((u128::from(tokens) * u128::from(price)).div_ceil(1_000_000)).unwrap_or(i64::MAX)
        };
        Amount {
            tokens: (input + output) as i64,
            micro_usd: cost(input - cached, self.input)
                .saturating_add(cost(cached, self.cached.unwrap_or(self.input)))
                .saturating_add(cost(output, self.output)),
        }
    }
}

/// A model at its provider.
#[derive(Clone)]
pub struct Model {
    /// The provider.
    pub provider: Arc<dyn LlmProvider>,
    /// The model's name at the provider.
    pub name: String,
    /// The price.
    pub price: Price,
    /// Prompt and output together, in tokens.
    pub context_tokens: u32,
    /// `true` for a model that writes but does not choose well: where there is an embedder, that chooses routes and
    /// tools.
    pub small: bool,
}

/// The models of a daemon.
#[derive(Clone, Default)]
pub struct Models {
    /// The model of each tier, and those that answer when it does not.
    tiers: Arc<BTreeMap<Tier, Vec<Model>>>,
    embedder: Option<Arc<Model>>,
    /// The reason why there is no model, if there is none.
    missing: Option<Arc<str>>,
}

impl Models {
    /// The same model for every tier that `tiers` leaves out, the nearest cheaper one first.
    pub fn new(tiers: BTreeMap<Tier, Model>) -> Self {
        let tiers = tiers.into_iter().map(|(tier, model)| (tier, vec![model])).collect();
        Self { tiers: Arc::new(tiers), ..Self::default() }
    }

    /// With a model that answers for `tier` when those before it do not.
    #[must_use]
    pub fn with_fall_back(mut self, tier: Tier, model: Model) -> Self {
        Arc::make_mut(&mut self.tiers).entry(tier).or_default().push(model);
        self
    }

    /// No model at all, and why; every call answers that.
    pub fn none(why: impl Into<Arc<str>>) -> Self {
        Self { missing: Some(why.into()), ..Self::default() }
    }

    /// With a model that makes embeddings.
    #[must_use]
    pub fn with_embedder(self, embedder: Model) -> Self {
        Self { embedder: Some(Arc::new(embedder)), ..self }
    }

    /// The model that makes embeddings.
    ///
    /// # Errors
    /// [`LlmError::Unavailable`] when there is none.
    pub fn embedder(&self) -> Result<&Model, LlmError> {
        let none = || LlmError::Unavailable("no embedder is configured".into());
        self.embedder.as_deref().ok_or_else(none)
    }

    /// The model for `tier`: its own, else the nearest cheaper, else the nearest dearer.
    ///
    /// # Errors
    /// [`LlmError::Unavailable`] when there is no model at all.
    pub fn pick(&self, tier: Tier) -> Result<&Model, LlmError> {
        self.chain(tier).first().ok_or_else(|| {
            LlmError::Unavailable(self.missing.as_deref().unwrap_or("no model is configured").to_owned())
        })
    }

    /// The model for `tier` and then, in order, those that answer when it does not; none when there is no model at all.
    pub fn chain(&self, tier: Tier) -> &[Model] {
        let cheaper = self.tiers.range(..=tier).next_back();
        let found = cheaper.or_else(|| self.tiers.range(tier..).next());
        found.map_or(&[], |(_, models)| models)
    }

    /// A model by its tier, by its name, or as `provider/name`.
    pub fn named(&self, name: &str) -> Option<&Model> {
        let tier: Option<Tier> = serde_json::from_value(name.into()).ok();
        if let Some(tier) = tier {
            return self.chain(tier).first();
        }
        let is = |model: &&Model| {
            model.name == name
                || name
                    .strip_prefix(model.provider.name())
                    .is_some_and(|rest| rest.strip_prefix('/') == Some(&model.name))
        };
        self.tiers.values().flatten().find(is)
    }

    /// The names that [`Self::named`] knows, and the embedder's.
    pub fn names(&self) -> Vec<String> {
        let tiers = self.tiers.keys().filter_map(|tier| serde_json::to_value(tier).ok()?.as_str().map(str::to_owned));
        let models = self.tiers.values().flatten().chain(self.embedder.as_deref());
        let models = models.map(|model| format!("{}/{}", model.provider.name(), model.name));
        let mut names: Vec<String> = tiers.chain(models).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// Every tier with its models' providers and names.
    pub fn describe(&self) -> BTreeMap<Tier, String> {
        let named = |models: &Vec<Model>| {
            let names = models.iter().map(|model| format!("{}/{}", model.provider.name(), model.name));
            names.collect::<Vec<_>>().join(", then ")
        };
        self.tiers.iter().map(|(tier, models)| (*tier, named(models))).collect()
    }
}
