//! The models of the tiers, and their prices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::ledger::Amount;
use utoipa::ToSchema;

use super::{LlmError, LlmProvider, Usage};

/// The price class of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The cheapest model.
    Economy,
    /// The default model.
    #[default]
    Standard,
    /// The best model.
    High,
}

/// Prices in micro-dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The price of input tokens.
    #[serde(default)]
    pub input: u64,
    /// The price of output tokens.
    #[serde(default)]
    pub output: u64,
    /// The price of input tokens from the provider's prompt cache; the price of other input tokens if absent.
    #[serde(default)]
    pub cached: Option<u64>,
}

impl Price {
    /// Returns the cost of `usage`, rounded up.
    pub fn of(self, usage: Usage) -> Amount {
        // Token counts are limited, so that an invalid report of a provider cannot turn a charge into a credit.
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
    /// The size of the context window in tokens, for prompt and output together.
    pub context_tokens: u32,
    /// `true` for a model that writes but does not choose well. If an embedder exists, it chooses routes and tools
    /// instead of this model.
    pub small: bool,
    /// `true` for a model that calls tools reliably. Prompts offer the tools of a lifeform's mind only to such models.
    pub tools: bool,
}

/// The traits of a model on which prompts and answers depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelTraits {
    /// The size of the context window, in tokens.
    pub context_tokens: u32,
    /// `true` if the model is marked `small`.
    pub small: bool,
    /// `true` if the model calls tools reliably.
    pub tools: bool,
}

impl Model {
    /// Returns the traits of the model.
    pub fn traits(&self) -> ModelTraits {
        ModelTraits { context_tokens: self.context_tokens, small: self.small, tools: self.tools && !self.small }
    }
}

/// The models of a daemon.
#[derive(Clone, Default)]
pub struct Models {
    /// The model chain of each tier: the first model, then its fallbacks.
    tiers: Arc<BTreeMap<Tier, Vec<Model>>>,
    embedder: Option<Arc<Model>>,
    multilingual_embedder: Option<Arc<Model>>,
    /// The reason why there is no model, if there is none.
    missing: Option<Arc<str>>,
}

impl Models {
    /// Creates the models. A tier missing in `tiers` uses the model of the nearest cheaper tier, else of the nearest
    /// dearer one.
    pub fn new(tiers: BTreeMap<Tier, Model>) -> Self {
        let tiers = tiers.into_iter().map(|(tier, model)| (tier, vec![model])).collect();
        Self { tiers: Arc::new(tiers), ..Self::default() }
    }

    /// Adds a fallback model to the chain of `tier`.
    #[must_use]
    pub fn with_fall_back(mut self, tier: Tier, model: Model) -> Self {
        Arc::make_mut(&mut self.tiers).entry(tier).or_default().push(model);
        self
    }

    /// Creates a set without models. Every call fails with the reason `why`.
    pub fn none(why: impl Into<Arc<str>>) -> Self {
        Self { missing: Some(why.into()), ..Self::default() }
    }

    /// Sets the model for embeddings.
    #[must_use]
    pub fn with_embedder(self, embedder: Model) -> Self {
        Self { embedder: Some(Arc::new(embedder)), ..self }
    }

    /// Returns the model for embeddings.
    ///
    /// # Errors
    /// Returns [`LlmError::Unavailable`] if there is none.
    pub fn embedder(&self) -> Result<&Model, LlmError> {
        let none = || LlmError::Unavailable("no embedder is configured".into());
        self.embedder.as_deref().ok_or_else(none)
    }

    /// Sets the model for embeddings of minds with many words in other scripts than the Latin one.
    #[must_use]
    pub fn with_multilingual_embedder(self, embedder: Model) -> Self {
        Self { multilingual_embedder: Some(Arc::new(embedder)), ..self }
    }

    /// Returns the model for embeddings of minds with many words in other scripts than the Latin one, if there is one.
    pub fn multilingual_embedder(&self) -> Option<&Model> {
        self.multilingual_embedder.as_deref()
    }

    /// Returns the model for `tier`: its own, else that of the nearest cheaper tier, else that of the nearest dearer
    /// tier.
    ///
    /// # Errors
    /// Returns [`LlmError::Unavailable`] if there is no model at all.
    pub fn pick(&self, tier: Tier) -> Result<&Model, LlmError> {
        self.chain(tier).first().ok_or_else(|| {
            LlmError::Unavailable(self.missing.as_deref().unwrap_or("no model is configured").to_owned())
        })
    }

    /// Returns the model chain of `tier`, in order of preference; empty if there is no model at all.
    pub fn chain(&self, tier: Tier) -> &[Model] {
        let cheaper = self.tiers.range(..=tier).next_back();
        let found = cheaper.or_else(|| self.tiers.range(tier..).next());
        found.map_or(&[], |(_, models)| models)
    }

    /// Returns the tier that a name means: a tier itself, or the first one with a model of that name.
    pub fn tier_of(&self, name: &str) -> Option<Tier> {
        if let Ok(tier) = serde_json::from_value(name.into()) {
            return (!self.chain(tier).is_empty()).then_some(tier);
        }
        let meant = self.named(name)?;
        let is_first = |models: &[Model]| {
            let same = |one: &Model| one.name == meant.name && one.provider.name() == meant.provider.name();
            models.first().is_some_and(same)
        };
        self.tiers.iter().find(|(_, models)| is_first(models)).map(|(tier, _)| *tier)
    }

    /// Returns a model by its tier, by its name, or as `provider/name`.
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

    /// Returns the names that [`Self::named`] accepts, and the embedder's name.
    pub fn names(&self) -> Vec<String> {
        let tiers = self.tiers.keys().filter_map(|tier| serde_json::to_value(tier).ok()?.as_str().map(str::to_owned));
        let models = self.tiers.values().flatten().chain(self.embedder.as_deref());
        let models = models.map(|model| format!("{}/{}", model.provider.name(), model.name));
        let mut names: Vec<String> = tiers.chain(models).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// Returns each tier with the providers and names of its models.
    pub fn describe(&self) -> BTreeMap<Tier, String> {
        let named = |models: &Vec<Model>| {
            let names = models.iter().map(|model| format!("{}/{}", model.provider.name(), model.name));
            names.collect::<Vec<_>>().join(", then ")
        };
        self.tiers.iter().map(|(tier, models)| (*tier, named(models))).collect()
    }
}
