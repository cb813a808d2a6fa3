//! The settings of models: those in this process, remote providers, and the model of each tier.

use std::num::NonZeroU32;
use std::path::PathBuf;

use neurons::llm::{Abilities, Price};
use serde::Deserialize;

use super::key;

/// The settings of the models in this process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedded {
    /// The name of the embedded language model, or `none`.
    pub embedded: String,
    /// The name of the embedded embedder, or `none`.
    pub embedder: String,
    /// The name of the embedded embedder for minds with many words in other scripts than the Latin one, or `none`.
    pub multilingual_embedder: String,
    /// The folder of the model weights.
    pub folder: PathBuf,
    /// The hub asked first.
    pub hub: String,
}

/// A remote model provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The base URL, including `/v1`.
    pub base_url: String,
    /// The environment variable that contains the API key.
    #[serde(default)]
    pub key_env: Option<String>,
    /// The file that contains the API key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The maximum number of concurrent calls.
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    /// The maximum number of requests per minute; `None` means no limit.
    #[serde(default)]
    pub requests_a_minute: Option<NonZeroU32>,
    /// The maximum number of tokens per minute, as estimated before each call; `None` means no limit.
    #[serde(default)]
    pub tokens_a_minute: Option<NonZeroU32>,
    /// The time limit for the start of an answer, in seconds.
    #[serde(default = "timeout_s")]
    pub timeout_s: u64,
    /// The time limit between two pieces of a stream, in seconds.
    #[serde(default = "idle_s")]
    pub idle_s: u64,
    /// The abilities of the provider.
    #[serde(default)]
    pub can: Abilities,
}

fn concurrency() -> usize {
    16
}

fn timeout_s() -> u64 {
    120
}

fn idle_s() -> u64 {
    60
}

/// The model of a tier.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierModel {
    /// The provider.
    pub provider: String,
    /// The name of the model at the provider.
    pub model: String,
    /// The context window in tokens, for prompt and output together.
    #[serde(default = "context_tokens")]
    pub context_tokens: u32,
    /// `true` for a model of about a billion parameters or fewer: prompts and answers are short, and an embedder chooses
    /// routes and tools for it.
    #[serde(default)]
    pub small: bool,
    /// The price.
    #[serde(default)]
    pub price: Price,
    /// The fallback models, in this order, for calls that this model does not answer.
    #[serde(default)]
    pub fall_back: Vec<TierModel>,
}

fn context_tokens() -> u32 {
    32_768
}

impl Provider {
    /// Returns the API key from the environment variable or the file; empty if neither is configured.
    ///
    /// # Errors
    /// If the configured source has no key.
    pub fn key(&self) -> anyhow::Result<String> {
        key(&self.key_env, &self.key_file)
    }
}
