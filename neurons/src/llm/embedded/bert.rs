//! A BERT encoder of sentences (all-MiniLM-L6-v2): the vectors of the tokens are averaged and normalized to length 1.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use tokenizers::{PaddingParams, PaddingStrategy, Tokenizer, TruncationParams};

use super::EmbeddedError;
use super::embedder::Encoder;

/// The maximum number of texts per batch. Larger batches would only add padding.
const TEXTS_AT_ONCE: usize = 16;
/// The maximum number of tokens read of a text; the rest is ignored.
const TOKENS_MAX: usize = 256;

/// A BERT model with its tokenizer.
pub(super) struct Bert {
    model: BertModel,
    tokenizer: Tokenizer,
}

impl Bert {
    /// Loads the model, its tokenizer and its configuration.
    ///
    /// # Errors
    /// Returns an [`EmbeddedError`] if the engine does not support the model in the files.
    pub(super) fn open(model: &Path, tokenizer: &Path, config: &Path) -> Result<Self, EmbeddedError> {
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

    fn encode_some(&self, texts: Vec<&str>) -> Result<(Vec<Vec<f32>>, u64), EmbeddedError> {
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

impl Encoder for Bert {
    fn encode(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, u64), EmbeddedError> {
        // Texts of equal length need no padding, so batches are formed by length.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|place| texts[*place].len());
        let (mut vectors, mut read) = (vec![Vec::new(); texts.len()], 0);
        for places in order.chunks(TEXTS_AT_ONCE) {
            let some: Vec<&str> = places.iter().map(|place| texts[*place].as_str()).collect();
            let (made, tokens) = self.encode_some(some)?;
            read += tokens;
            for (place, vector) in places.iter().zip(made) {
                vectors[*place] = vector;
            }
        }
        Ok((vectors, read))
    }
}
