//! The models of a daemon: the configured remote models, and models in this process for the other tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use neurons::llm::weights::Weights;
use neurons::llm::{Endpoint, Limits, LlmProvider, Model, Models, OpenAi, Price, Transport};
use neurons::{LlmError, Tier};

use crate::config::{Config, Provider, TierModel};

/// The models in this process.
#[derive(Default)]
pub struct Local {
    /// The language model.
    pub chat: Option<Arc<dyn LlmProvider>>,
    /// The embedder.
    pub embedder: Option<Arc<dyn LlmProvider>>,
    /// The embedder of minds with many words in other scripts than the Latin one.
    pub multilingual_embedder: Option<Arc<dyn LlmProvider>>,
    /// The reason for a missing language model, if one is expected.
    pub missing: Option<String>,
}

/// The context window of a language model in this process, in tokens.
const LOCAL_CONTEXT_TOKENS: u32 = 4096;

/// Returns the models of a daemon.
///
/// # Errors
/// If the key of a provider is missing.
pub fn models(config: &Config, local: Local) -> anyhow::Result<Models> {
    let here = |provider, name: &str| Model {
        provider,
        name: name.to_owned(),
        price: Price::default(),
        context_tokens: LOCAL_CONTEXT_TOKENS,
        small: Weights::named(name).is_none_or(|weights| weights.small),
        tools: false,
    };
    let mut providers: BTreeMap<&str, Arc<dyn LlmProvider>> = BTreeMap::new();
    for (name, provider) in &config.providers {
        providers.insert(name, remote(name, provider)?);
    }
    let there = |model: &TierModel| {
        let provider = providers.get(model.provider.as_str());
        let provider = provider.with_context(|| format!("there is no [providers.{}]", model.provider))?.clone();
        let TierModel { model: name, price, context_tokens, small, .. } = model.clone();
        let tools = config.providers.get(&model.provider).is_some_and(|provider| provider.can.tools);
        anyhow::Ok(Model { provider, name, price, context_tokens, small, tools })
    };
    let mut tiers = BTreeMap::new();
    tiers.extend(local.chat.map(|provider| (Tier::Economy, here(provider, &config.models.embedded))));
    for (tier, model) in &config.tiers {
        tiers.insert(*tier, there(model)?);
    }
    let fall_backs = config.tiers.iter().flat_map(|(tier, model)| model.fall_back.iter().map(|model| (*tier, model)));
    let why_not = local.missing.unwrap_or_else(|| "models.embedded is \"none\" and no tier is configured".into());
    let mut models = if tiers.is_empty() { Models::none(why_not) } else { Models::new(tiers) };
    for (tier, model) in fall_backs {
        models = models.with_fall_back(tier, there(model)?);
    }
    let embedder = match &config.embeddings {
        Some(model) => Some(there(model)?),
        None => local.embedder.map(|provider| here(provider, &config.models.embedder)),
    };
    if let Some(embedder) = embedder {
        models = models.with_embedder(embedder);
    }
    if let Some(provider) = local.multilingual_embedder {
        models = models.with_multilingual_embedder(here(provider, &config.models.multilingual_embedder));
    }
    Ok(models)
}

fn remote(name: &str, provider: &Provider) -> anyhow::Result<Arc<dyn LlmProvider>> {
    let client = reqwest::Client::builder()
        // A key must go only to the configured address, so redirects are off.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(provider.timeout_s.max(provider.idle_s)))
        .tcp_nodelay(true)
        .pool_max_idle_per_host(256)
        .build()?;
    let deadline = Duration::from_secs(provider.timeout_s);
    let limits = Limits::per_minute(provider.requests_a_minute, provider.tokens_a_minute);
    let endpoint = Endpoint::new(name, Transport::Http(client), provider.concurrency, deadline).with_limits(limits);
    let key = provider.key().with_context(|| format!("providers.{name} has no key"))?;
    let client: Result<_, LlmError> = OpenAi::new(name, &provider.base_url, &key, endpoint);
    Ok(Arc::new(client?.with_abilities(provider.can).with_idle(Duration::from_secs(provider.idle_s))))
}
