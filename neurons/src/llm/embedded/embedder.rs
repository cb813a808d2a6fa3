//! The embedding model in this process: a BERT encoder (all-MiniLM-L6-v2) on the CPU. The vectors of the tokens are
//! averaged and normalized to length 1. One thread owns the weights; requests wait in a bounded queue.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use async_trait::async_trait;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use tokenizers::{PaddingParams, PaddingStrategy, Tokenizer, TruncationParams};
use tokio::sync::oneshot;

use super::EmbeddedError;
use crate::llm::wire::{Engine, Refusal, router};
use crate::llm::{Endpoint, LlmError, LlmProvider, OpenAi, Transport, Usage};

/// The maximum number of waiting requests.
const QUEUE_MAX: usize = 256;
/// The maximum number of texts per batch. Larger batches would only add padding.
const TEXTS_AT_ONCE: usize = 16;
/// The maximum number of tokens read of a text; the rest is ignored.
const TOKENS_MAX: usize = 256;

type Answer = Result<(Vec<Vec<f32>>, Usage), String>;

struct Job {
    texts: Vec<String>,
    reply: oneshot::Sender<Answer>,
}

/// A loaded embedding model.
pub struct Embedder {
    name: String,
    jobs: SyncSender<Job>,
}

struct Loaded {
    model: BertModel,
    tokenizer: Tokenizer,
}

impl Embedder {
    /// Loads the model, its tokenizer and its configuration, and starts its thread.
    ///
    /// # Errors
    /// Returns an [`EmbeddedError`] if the engine does not support the model in the files.
    pub fn load(name: &str, model: &Path, tokenizer: &Path, config: &Path) -> Result<Self, EmbeddedError> {
        let loaded = Loaded::open(model, tokenizer, config)?;
        let (jobs, inbox) = sync_channel::<Job>(QUEUE_MAX);
        let run = move || {
            while let Ok(job) = inbox.recv() {
                if !job.reply.is_closed() {
                    let _ = job.reply.send(loaded.embed(job.texts).map_err(|error| error.to_string()));
                }
            }
        };
        std::thread::Builder::new()
            .name("embedder".into())
            .spawn(run)
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

impl Loaded {
    fn open(model: &Path, tokenizer: &Path, config: &Path) -> Result<Self, EmbeddedError> {
        let wrong = |error: &dyn std::fmt::Display| EmbeddedError::Weights(error.to_string());
        let config: Config = serde_json::from_slice(&std::fs::read(config)?).map_err(|error| wrong(&error))?;
        let mut tokenizer = Tokenizer::from_bytes(std::fs::read(tokenizer)?).map_err(|error| wrong(&error))?;
        let padding = PaddingParams { strategy: PaddingStrategy::BatchLongest, ..PaddingParams::default() };
        let truncation = TruncationParams { max_length: TOKENS_MAX, ..TruncationParams::default() };
        tokenizer.with_padding(Some(padding)).with_truncation(Some(truncation)).map_err(|error| wrong(&error))?;
        let weights = candle_core::safetensors::load_buffer(&std::fs::read(model)?, &Device::Cpu)?;
        // A matrix product needs the numbers of one input contiguous in memory. Otherwise it copies the matrix for each
        // product, so the weights are laid out once here.
        let weights: HashMap<String, Tensor> = weights
            .into_iter()
            .map(|(name, weight)| {
                let is_matrix = weight.rank() == 2 && !name.contains("embeddings");
                Ok((name, if is_matrix { weight.t()?.contiguous()?.t()? } else { weight }))
            })
            .collect::<candle_core::Result<_>>()?;
        let weights = VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu);
        Ok(Self { model: BertModel::load(weights, &config)?, tokenizer })
    }

    fn embed(&self, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Usage), EmbeddedError> {
        // Texts of equal length need no padding, so batches are formed by length.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|place| texts[*place].len());
        let (mut vectors, mut read) = (vec![Vec::new(); texts.len()], 0);
        for places in order.chunks(TEXTS_AT_ONCE) {
            let some: Vec<&str> = places.iter().map(|place| texts[*place].as_str()).collect();
            let (made, tokens) = self.embed_some(some)?;
            read += tokens;
            for (place, vector) in places.iter().zip(made) {
                vectors[*place] = vector;
            }
        }
        Ok((vectors, Usage { prompt_tokens: read, total_tokens: read, ..Usage::default() }))
    }

    fn embed_some(&self, texts: Vec<&str>) -> Result<(Vec<Vec<f32>>, u64), EmbeddedError> {
        let encoded =
            self.tokenizer.encode_batch(texts, true).map_err(|error| EmbeddedError::Prompt(error.to_string()))?;
        let rows = |row: fn(&tokenizers::Encoding) -> &[u32]| -> Result<Tensor, EmbeddedError> {
            let rows: Vec<Tensor> =
                encoded.iter().map(|text| Tensor::new(row(text), &Device::Cpu)).collect::<Result<_, _>>()?;
            Ok(Tensor::stack(&rows, 0)?)
        };
        let (ids, mask) = (rows(tokenizers::Encoding::get_ids)?, rows(tokenizers::Encoding::get_attention_mask)?);
        let read = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
        let mean = read.broadcast_mul(&mask)?.sum(1)?.broadcast_div(&mask.sum(1)?)?;
        let unit = mean.broadcast_div(&mean.sqr()?.sum_keepdim(1)?.sqrt()?)?;
        let tokens = encoded.iter().flat_map(|text| text.get_attention_mask()).map(|one| u64::from(*one)).sum();
        Ok((unit.to_vec2()?, tokens))
    }
}
