//! The supported networks, and a forward pass of a text through one of them.

use std::fs::File;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_llama as llama, quantized_qwen2 as qwen2};

use super::engine::EmbeddedError;

/// A network with its weights.
pub(super) enum Net {
    /// A Llama network. Each request runs a clone, because the cache of masks grows with every length that the network
    /// sees.
    Llama(Box<llama::ModelWeights>),
    /// A Qwen2 network. It cannot be cloned, so it runs in steps of a few lengths, which bounds the cache of masks.
    Qwen2(Box<qwen2::ModelWeights>),
}

/// The maximum step of a Qwen2 network, in tokens; smaller steps are halves of it.
const STEP_MAX: usize = 128;

/// The state of one text that is being processed.
pub(super) enum Pass<'n> {
    Llama(Box<llama::ModelWeights>),
    Qwen2(&'n mut qwen2::ModelWeights),
}

impl Net {
    pub(super) fn open(architecture: &str, content: Content, file: &mut File) -> Result<Self, EmbeddedError> {
        Ok(match architecture {
            "llama" => Self::Llama(Box::new(llama::ModelWeights::from_gguf(content, file, &Device::Cpu)?)),
            "qwen2" => Self::Qwen2(Box::new(qwen2::ModelWeights::from_gguf(content, file, &Device::Cpu)?)),
            other => {
                let text = format!("its architecture is \"{other}\", this engine runs llama and qwen2");
                return Err(EmbeddedError::Weights(text));
            }
        })
    }

    /// Starts a new text.
    pub(super) fn begin(&mut self) -> Pass<'_> {
        match self {
            Self::Llama(pristine) => Pass::Llama(pristine.clone()),
            Self::Qwen2(net) => {
                net.clear_kv_cache();
                Pass::Qwen2(net)
            }
        }
    }
}

impl Pass<'_> {
    /// Reads more tokens, the first of which has position `at`. Returns the scores of the next token.
    pub(super) fn read(&mut self, tokens: &[u32], at: usize) -> candle_core::Result<Tensor> {
        let row = |tokens: &[u32]| Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0);
        match self {
            Self::Llama(net) => net.forward(&row(tokens)?, at),
            Self::Qwen2(net) => {
                let (mut done, mut scores) = (0, None);
                while done < tokens.len() {
                    let step = step(at + done, tokens.len() - done);
                    scores = Some(net.forward(&row(&tokens[done..done + step])?, at + done)?);
                    done += step;
                }
                scores.ok_or_else(|| candle_core::Error::Msg("no tokens to read".into()))
            }
        }
    }
}

/// Returns the number of tokens, of `left`, to read in one step from position `at`: a power of two that divides `at`.
/// This bounds the pairs of position and length to some thousands.
fn step(at: usize, left: usize) -> usize {
    let mut step = STEP_MAX;
    while step > left || !at.is_multiple_of(step) {
        step /= 2;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_in_steps_of_few_lengths() {
        let mut pairs = std::collections::HashSet::new();
        for (from, length) in (0..40).flat_map(|from| (1..300).map(move |length| (from * 7, length))) {
            let mut at = from;
            while at < from + length {
                let step = step(at, from + length - at);
                pairs.insert((at, step));
                at += step;
            }
            assert_eq!(at, from + length);
        }
        let bytes: usize = pairs.iter().filter(|(_, step)| *step > 1).map(|(at, step)| step * (at + step)).sum();
        assert!(bytes < 1 << 20, "{bytes} bytes of masks for 600 tokens");
    }
}
