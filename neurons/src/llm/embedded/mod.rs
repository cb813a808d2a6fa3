//! The models in this process: a language model (SmolLM2-135M-Instruct or a larger one) and embedders, all on the
//! CPU. A grammar constrains the decoding, so JSON output is always valid. One thread owns the weights of a model;
//! requests wait in a bounded queue.

mod bert;
mod embedder;
mod ending;
mod engine;
mod grammar;
mod net;
mod requantize;
mod sentence_encoder;
mod template;
mod tokens;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::wire::types::ChatRequest;
use super::wire::{Engine, Part, Refusal, router};
use super::{Abilities, Endpoint, LlmError, LlmProvider, OpenAi, Transport};
pub use embedder::Embedder;
pub use engine::EmbeddedError;
pub use requantize::requantize;

/// The maximum number of requests in the queue of the engine.
const QUEUE_MAX: usize = 64;
/// The size of the context window in tokens, for prompt and output together.
pub const CONTEXT_TOKENS: u32 = 4096;

struct Job {
    request: ChatRequest,
    parts: mpsc::Sender<Part>,
}

/// A loaded model.
pub struct Embedded {
    name: String,
    jobs: SyncSender<Job>,
}

impl Embedded {
    /// Loads the GGUF file `weights` and starts the thread of the engine.
    ///
    /// # Errors
    /// Returns an [`EmbeddedError`] if the engine does not support the model in the file.
    pub fn load(name: &str, weights: &Path) -> Result<Self, EmbeddedError> {
        let mut engine = engine::Loaded::open(weights)?;
        let (jobs, inbox) = sync_channel::<Job>(QUEUE_MAX);
        let run = move || {
            while let Ok(job) = inbox.recv() {
                if job.parts.is_closed() {
                    continue;
                }
                let last = engine.answer(
                    &job.request,
                    &mut |text| job.parts.blocking_send(Part::Text(text)).is_ok(),
                    &mut |call| job.parts.blocking_send(Part::Tool(call)).is_ok(),
                );
                let last = last.unwrap_or_else(|error| {
                    if error.is_refusal() { Part::Refused(error.to_string()) } else { Part::Failed(error.to_string()) }
                });
                let _ = job.parts.blocking_send(last);
            }
        };
        std::thread::Builder::new()
            .name("model".into())
            .stack_size(8 << 20)
            .spawn(run)
            .map_err(|error| EmbeddedError::Weights(error.to_string()))?;
        Ok(Self { name: name.to_owned(), jobs })
    }

    /// Returns the model as a provider, with the same client as remote models.
    ///
    /// # Errors
    /// Returns an error only if the provider's constructor refuses the key, which does not happen in practice.
    pub fn provider(self) -> Result<Arc<dyn LlmProvider>, LlmError> {
        let endpoint = Endpoint::new("embedded", Transport::Local(router(Arc::new(self))), 1, Duration::from_secs(600));
        let provider = OpenAi::new("embedded", "http://embedded/v1", "-", endpoint)?;
        Ok(Arc::new(provider.with_abilities(Abilities::LOCAL)))
    }
}

#[async_trait]
impl Engine for Embedded {
    fn models(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    async fn chat(&self, request: ChatRequest) -> Result<mpsc::Receiver<Part>, Refusal> {
        request.only_harmless().map_err(Refusal::wrong)?;
        grammar::check(&request).map_err(Refusal::wrong)?;
        let (parts, receiver) = mpsc::channel(32);
        match self.jobs.try_send(Job { request, parts }) {
            Ok(()) => Ok(receiver),
            Err(TrySendError::Full(_)) => {
                Err(Refusal::busy(format!("{QUEUE_MAX} requests are waiting for the embedded model")))
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(Refusal { status: 500, message: "the embedded model has stopped".into(), retry_after_s: None })
            }
        }
    }
}
