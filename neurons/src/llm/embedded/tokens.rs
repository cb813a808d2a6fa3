//! The tokenizer of a GGUF file, and the token environment of the grammar engine.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::quantized::gguf_file;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::engine::EmbeddedError;

/// The tokenizer, its grammar environment, and the end-of-text token.
pub(super) struct Tokens {
    pub(super) tokenizer: Tokenizer,
    pub(super) env: TokEnv,
    pub(super) eos: u32,
    pub(super) eos_text: String,
}

struct Env {
    trie: TokTrie,
    tokenizer: Tokenizer,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.tokenizer.encode_fast(text, false).map(|found| found.get_ids().to_vec()).unwrap_or_default()
        })
    }
}

/// The type of ordinary tokens in the file's table of token types.
const NORMAL: i64 = 1;

pub(super) fn read(content: &gguf_file::Content) -> Result<Tokens, EmbeddedError> {
    let broken = |what: &str| EmbeddedError::Weights(format!("the file has no usable {what}"));
    let field = |name: &str| content.metadata.get(name).ok_or_else(|| broken(name));
    let eos = field("tokenizer.ggml.eos_token_id")?.to_u32()?;
    let texts: Vec<String> = field("tokenizer.ggml.tokens")?
        .to_vec()?
        .iter()
        .map(|value| value.to_string().cloned())
        .collect::<Result<_, _>>()?;
    let kinds: Vec<i64> = field("tokenizer.ggml.token_type")?
        .to_vec()?
        .iter()
        .map(|value| value.to_i32().map_or(NORMAL, i64::from))
        .collect();
    let mut tokenizer = Tokenizer::from_gguf(content).map_err(|error| EmbeddedError::Weights(error.to_string()))?;
    if field("tokenizer.ggml.pre")?.to_string().is_ok_and(|pre| pre == "smollm") {
        // The reader does not support this pre-tokenizer and falls back to GPT-2's, which joins digits and adds a
        // space.
        tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
            Digits::new(true).into(),
            ByteLevel::new(false, true, true).into(),
        ])));
    }
    let bytes_of = byte_decoder();
    let words: Vec<Vec<u8>> = texts
        .iter()
        .zip(&kinds)
        .map(|(text, kind)| {
            if *kind == NORMAL {
                text.chars().map(|c| bytes_of.get(&c).copied().unwrap_or(b'?')).collect()
            } else {
                [&[0xff], text.as_bytes()].concat()
            }
        })
        .collect();
    let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, eos), &words);
    let eos_text = texts.get(eos as usize).cloned().ok_or_else(|| broken("end-of-text token"))?;
    Ok(Tokens { env: Arc::new(Env { trie, tokenizer: tokenizer.clone() }), tokenizer, eos, eos_text })
}

/// Returns the inverse of GPT-2's mapping from bytes to printable characters.
fn byte_decoder() -> HashMap<char, u8> {
    let plain: Vec<u32> = (33..=126).chain(161..=172).chain(174..=255).collect();
    let stand_ins = (0..256_u32).filter(|byte| !plain.contains(byte)).zip(256..);
    plain
        .iter()
        .map(|byte| (*byte, *byte))
        .chain(stand_ins)
        .filter_map(|(byte, shown)| Some((char::from_u32(shown)?, byte as u8)))
        .collect()
}
