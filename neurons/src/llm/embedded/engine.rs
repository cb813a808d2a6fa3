//! The engine of the embedded language model: weights, prompt and sampling.

use std::path::Path;

use candle_core::quantized::gguf_file;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::repetition;
use super::ending::Endings;
use super::grammar::shape;
use super::net::Net;
use super::tokens::Tokens;
use super::{CONTEXT_TOKENS, template, tokens};
use crate::llm::wire::Part;
use crate::llm::wire::types::{ChatRequest, Usage, WireFunction, WireToolCall};

/// The reason why the embedded model cannot be loaded or cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The file is no model that this engine supports.
    #[error("the weights cannot be used: {0}")]
    Weights(String),
    /// The messages do not fit the model's chat template.
    #[error("the prompt cannot be made: {0}")]
    Prompt(String),
    /// The prompt leaves no room for an answer in the context window.
    #[error("a prompt of {tokens} tokens is over the bound of {max}")]
    TooLong {
        /// The length in tokens.
        tokens: usize,
        /// The maximum number of tokens.
        max: u32,
    },
    /// The schema has a feature that the grammar engine does not support.
    #[error("the schema cannot be followed: {0}")]
    Schema(String),
    /// A tensor operation failed.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl EmbeddedError {
    /// Returns `true` if the request itself is at fault. Such an error occurs only before the first token.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Prompt(_) | Self::TooLong { .. } | Self::Schema(_))
    }
}

/// The number of tokens between two checks for endless repetition.
const REPETITION_EVERY: usize = 16;
/// The default number of output tokens.
const OUTPUT_DEFAULT: u32 = 512;

/// A model in memory.
pub(super) struct Loaded {
    net: Net,
    tokens: Tokens,
    template: String,
    grammars: ParserFactory,
    endings: Endings,
}

impl Loaded {
    pub(super) fn open(path: &Path) -> Result<Self, EmbeddedError> {
        let mut file = std::fs::File::open(path)?;
        let content = gguf_file::Content::read(&mut file)?;
        let text = |key: &str| content.metadata.get(key).and_then(|value| value.to_string().ok()).cloned();
        let architecture = text("general.architecture").unwrap_or_default();
        let template =
            text("tokenizer.chat_template").ok_or_else(|| EmbeddedError::Weights("it has no chat template".into()))?;
        let tokens = tokens::read(&content)?;
        let mut grammars =
            ParserFactory::new_simple(&tokens.env).map_err(|error| EmbeddedError::Weights(error.to_string()))?;
        grammars.quiet();
        let net = Net::open(&architecture, content, &mut file)?;
        let endings = Endings::of(&tokens);
        Ok(Self { net, tokens, template, grammars, endings })
    }

    /// Answers a request. Text is passed to `say` and a tool call to `call`, as they are generated; either can stop the
    /// answer.
    pub(super) fn answer(
        &mut self,
        request: &ChatRequest,
        say: &mut dyn FnMut(String) -> bool,
        call: &mut dyn FnMut(WireToolCall) -> bool,
    ) -> Result<Part, EmbeddedError> {
        let prompt = template::render(&self.template, &self.tokens.eos_text, &request.messages)?;
        let encoded =
            self.tokens.tokenizer.encode(prompt, false).map_err(|error| EmbeddedError::Prompt(error.to_string()))?;
        let prompt = encoded.get_ids();
        if prompt.len() as u32 + 16 > CONTEXT_TOKENS {
            return Err(EmbeddedError::TooLong { tokens: prompt.len(), max: CONTEXT_TOKENS });
        }
        let output_max =
            request.max_tokens.unwrap_or(OUTPUT_DEFAULT).min(CONTEXT_TOKENS - prompt.len() as u32) as usize;
        let wanted = shape(request).map_err(EmbeddedError::Schema)?;
        let is_tool = wanted.is_tool();
        let mut whole = String::new();
        let mut take = |text: String| {
            whole.push_str(&text);
            is_tool || say(text)
        };
        let (finish, written) = self.generate(prompt, wanted.grammar(), request, output_max, &mut take)?;
        let usage = Usage {
            prompt_tokens: prompt.len() as u64,
            completion_tokens: written as u64,
            total_tokens: (prompt.len() + written) as u64,
            ..Usage::default()
        };
        if !is_tool {
            return Ok(Part::Done { finish, usage });
        }
        // A call that was cut off by the token limit is not returned, but its tokens are counted.
        let Ok(chosen) = serde_json::from_str::<serde_json::Value>(&whole) else {
            return Ok(Part::Done { finish: "length", usage });
        };
        let function = WireFunction {
            name: chosen["name"].as_str().unwrap_or_default().into(),
            arguments: chosen["arguments"].to_string(),
        };
        call(WireToolCall {
            index: Some(0),
            id: format!("call_{}", uuid::Uuid::now_v7().simple()),
            kind: "function".into(),
            function,
        });
        Ok(Part::Done { finish: "tool_calls", usage })
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        grammar: Option<TopLevelGrammar>,
        request: &ChatRequest,
        output_max: usize,
        take: &mut dyn FnMut(String) -> bool,
    ) -> Result<(&'static str, usize), EmbeddedError> {
        let mut matcher = grammar.map(|grammar| Matcher::new(self.grammars.create_parser(grammar)));
        if let Some(error) = matcher.as_ref().and_then(Matcher::get_error) {
            // The lines after the first describe the internal state of the grammar engine.
            return Err(EmbeddedError::Schema(error.lines().next().unwrap_or_default().to_owned()));
        }
        let stops = stops(request);
        let temperature = request.temperature.unwrap_or(0.7) as f32;
        let mut rng = StdRng::seed_from_u64(request.seed.unwrap_or_else(|| rand::rng().random()));
        let mut pass = self.net.begin();
        let mut logits = pass.read(prompt, 0)?;
        let mut text = Text::new(&self.tokens, stops);
        let mut written: Vec<u32> = Vec::new();
        let finish = loop {
            if matcher.as_ref().is_some_and(Matcher::is_stopped) {
                break "stop";
            }
            if written.len() >= output_max {
                break "length";
            }
            // Tokens that the grammar forces need no sampling and are processed in one pass.
            let mut step = matcher.as_mut().map(Matcher::consume_ff_tokens).unwrap_or_default();
            if step.is_empty() {
                let mut scores: Vec<f32> = logits.flatten_all()?.to_vec1()?;
                if let Some(matcher) = matcher.as_mut() {
                    let allowed =
                        matcher.compute_mask_or_eos().map_err(|error| EmbeddedError::Schema(error.to_string()))?;
                    scores
                        .iter_mut()
                        .enumerate()
                        .filter(|(token, _)| !allowed.is_allowed(*token as u32))
                        .for_each(|(_, score)| *score = f32::NEG_INFINITY);
                    let used = written.len() as f64 / output_max as f64;
                    self.endings.prefer(&mut scores, &self.tokens.env.tok_trie().decode(&written), used);
                }
                let token = sample(&scores, temperature, &mut rng);
                if token == self.tokens.eos {
                    break "stop";
                }
                if let Some(matcher) = matcher.as_mut() {
                    matcher.consume_token(token).map_err(|error| EmbeddedError::Schema(error.to_string()))?;
                }
                step.push(token);
            }
            let position = prompt.len() + written.len();
            written.extend(&step);
            // An answer that is constrained by a grammar ends by itself.
            if matcher.is_none()
                && written.len().is_multiple_of(REPETITION_EVERY)
                && repetition::without(&text.decode(&written)).is_some()
            {
                break "stop";
            }
            match text.push(&written) {
                Flow::More(fresh) if fresh.is_empty() || take(fresh.clone()) => {}
                Flow::More(_) => return Ok(("stop", written.len())),
                Flow::Stopped(fresh) => {
                    take(fresh);
                    return Ok(("stop", written.len()));
                }
            }
            if position + step.len() >= CONTEXT_TOKENS as usize {
                break "length";
            }
            logits = pass.read(&step, position)?;
        };
        take(text.rest(&written));
        Ok((finish, written.len()))
    }
}

fn stops(request: &ChatRequest) -> Vec<String> {
    match &request.stop {
        Some(serde_json::Value::String(stop)) => vec![stop.clone()],
        Some(serde_json::Value::Array(stops)) => {
            stops.iter().filter_map(|stop| stop.as_str().map(Into::into)).collect()
        }
        _ => Vec::new(),
    }
}

fn sample(scores: &[f32], temperature: f32, rng: &mut StdRng) -> u32 {
    let (best, top) = scores.iter().enumerate().fold((0, f32::NEG_INFINITY), |(best, top), (token, score)| {
        if *score > top { (token, *score) } else { (best, top) }
    });
    if temperature <= 0.0 {
        return best as u32;
    }
    let weights: Vec<f64> = scores.iter().map(|score| f64::from((score - top) / temperature).exp()).collect();
    let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
    let chosen = weights.iter().position(|weight| {
        left -= weight;
        left <= 0.0
    });
    chosen.unwrap_or(best) as u32
}

/// Decodes tokens to text, in whole characters, up to a stop text.
struct Text<'a> {
    tokens: &'a Tokens,
    stops: Vec<String>,
    said: usize,
    /// The length of the longest stop text. So many bytes are held back, since they may be the start of a stop text.
    held: usize,
}

enum Flow {
    More(String),
    Stopped(String),
}

impl<'a> Text<'a> {
    fn new(tokens: &'a Tokens, stops: Vec<String>) -> Self {
        let held = stops.iter().map(String::len).max().unwrap_or(0);
        Self { tokens, stops, said: 0, held }
    }

    fn decode(&self, written: &[u32]) -> String {
        self.tokens.tokenizer.decode(written, true).unwrap_or_default()
    }

    fn push(&mut self, written: &[u32]) -> Flow {
        let text = self.decode(written);
        if let Some(stop) = self.stops.iter().filter_map(|stop| text.find(stop.as_str())).min() {
            return Flow::Stopped(text.get(self.said..stop).unwrap_or_default().to_owned());
        }
        // An incomplete character decodes as a replacement character.
        let mut safe = text.trim_end_matches('\u{fffd}').len().min(text.len().saturating_sub(self.held));
        while !text.is_char_boundary(safe) {
            safe -= 1;
        }
        if safe <= self.said {
            return Flow::More(String::new());
        }
        let fresh = text[self.said..safe].to_owned();
        self.said = safe;
        Flow::More(fresh)
    }

    fn rest(&self, written: &[u32]) -> String {
        self.decode(written).get(self.said..).unwrap_or_default().to_owned()
    }
}
