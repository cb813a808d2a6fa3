//! An embedding model in this process, on the CPU. One thread owns the weights; requests wait in a bounded queue.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::EmbeddedError;
use super::bert::Bert;
use super::sentence_encoder::SentenceEncoder;
use crate::llm::wire::{Engine, Refusal, router};
use crate::llm::{Endpoint, LlmError, LlmProvider, OpenAi, Transport, Usage};

/// The maximum number of waiting requests.
const QUEUE_MAX: usize = 256;

/// The vectors of some texts, in order, and the number of tokens that were read.
type Answer = Result<(Vec<Vec<f32>>, Usage), String>;

struct Job {
    texts: Vec<String>,
    reply: oneshot::Sender<Answer>,
}

/// The weights of an embedding model in memory.
pub(super) trait Encoder: Send {
    /// Returns a vector of length 1 per text, in order, and the number of tokens that were read.
    ///
    /// # Errors
    /// Errors of the tokenizer and of tensor operations.
    fn encode(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, u64), EmbeddedError>;
}

/// Reads the weights of a model: a BERT encoder of three files, or a sentence encoder of two.
fn open(files: &[PathBuf]) -> Result<Box<dyn Encoder>, EmbeddedError> {
    match files {
        [model, tokenizer, config] => Ok(Box::new(Bert::open(model, tokenizer, config)?)),
        [weights, pieces] => Ok(Box::new(SentenceEncoder::open(weights, pieces)?)),
        _ => Err(EmbeddedError::Weights(format!("an embedder has two files or three, not {}", files.len()))),
    }
}

/// An embedding model with its thread.
pub struct Embedder {
    name: String,
    jobs: SyncSender<Job>,
}

impl Embedder {
    /// Loads the files of a model, in the order of its [`Weights`](crate::llm::weights::Weights), and starts its thread.
    ///
    /// # Errors
    /// Returns an [`EmbeddedError`] if the engine does not support the model in the files.
    pub fn load(name: &str, files: &[PathBuf]) -> Result<Self, EmbeddedError> {
        let loaded = open(files)?;
        Self::start(name, move |inbox| serve(&*loaded, inbox.into_iter()))
    }

    /// Starts the thread of a model that loads its files with the first request, so that a model that is not used takes
    /// no memory. While the files do not load, each request is refused with the reason.
    ///
    /// # Errors
    /// Returns an [`EmbeddedError`] if the thread does not start.
    pub fn load_on_demand(name: &str, files: Vec<PathBuf>) -> Result<Self, EmbeddedError> {
        Self::start(name, move |inbox| {
            while let Ok(first) = inbox.recv() {
                match open(&files) {
                    Ok(loaded) => serve(&*loaded, std::iter::once(first).chain(&inbox)),
                    Err(error) => drop(first.reply.send(Err(error.to_string()))),
                }
            }
        })
    }

    fn start(name: &str, run: impl FnOnce(Receiver<Job>) + Send + 'static) -> Result<Self, EmbeddedError> {
        let (jobs, inbox) = sync_channel::<Job>(QUEUE_MAX);
        std::thread::Builder::new()
            .name("embedder".into())
            .spawn(move || run(inbox))
            .map_err(|error| EmbeddedError::Weights(error.to_string()))?;
        Ok(Self { name: name.to_owned(), jobs })
    }

    /// Returns the model as a provider, with the same client as remote models.
    ///
    /// # Errors
    /// Returns an error only if the provider's constructor refuses the key, which does not happen in practice.
    pub fn provider(self) -> Result<Arc<dyn LlmProvider>, LlmError> {
        let endpoint = Endpoint::new("embedder", Transport::Local(router(Arc::new(self))), 4, Duration::from_secs(600));
        Ok(Arc::new(OpenAi::new("embedder", "http://embedder/v1", "-", endpoint)?))
    }
}

#[async_trait]
impl Engine for Embedder {
    fn models(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    async fn embed(&self, _: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Usage), Refusal> {
        let (reply, answer) = oneshot::channel();
        let failed = |message: String| Refusal { status: 500, message, retry_after_s: None };
        match self.jobs.try_send(Job { texts, reply }) {
            Ok(()) => answer.await.map_err(|_| failed("the embedder has stopped".into()))?.map_err(failed),
            Err(TrySendError::Full(_)) => {
                Err(Refusal::busy(format!("{QUEUE_MAX} requests are waiting for the embedder")))
            }
            Err(TrySendError::Disconnected(_)) => Err(failed("the embedder has stopped".into())),
        }
    }
}

/// Answers the requests until no one can send another.
fn serve(loaded: &dyn Encoder, jobs: impl Iterator<Item = Job>) {
    for Job { texts, reply } in jobs {
        if !reply.is_closed() {
            let usage = |read| Usage { prompt_tokens: read, total_tokens: read, ..Usage::default() };
            let made = loaded.encode(&texts).map(|(vectors, read)| (vectors, usage(read)));
            let _ = reply.send(made.map_err(|error| error.to_string()));
        }
    }
}
