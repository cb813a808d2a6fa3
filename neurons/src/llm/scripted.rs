//! The scripted model of the tests: rules instead of weights, behind the same router as the engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::wire::types::{ChatRequest, Usage, WireFunction, WireToolCall};
use super::wire::{Engine, Part, Refusal, router};
use super::{Abilities, Endpoint, LlmError, LlmProvider, OpenAi, Transport};

/// The reaction of the model to one request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Says this, in pieces of a few words.
    Text(String),
    /// Calls these tools, `(id, name, arguments)`.
    Tools(Vec<(String, String, String)>),
    /// Answers with this status and message.
    Status(u16, String),
    /// Says this and then ends without finishing.
    CutOff(String),
    /// Says the first text, then nothing until the test lets it go on with the second.
    Held(String, Arc<tokio::sync::Notify>, String),
}

type Script = dyn Fn(&ChatRequest, usize) -> Reply + Send + Sync;

/// A model that follows a script and remembers what it was asked.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<ChatRequest>>>,
    embedded: Arc<Mutex<Vec<String>>>,
    alike: Arc<HashMap<String, String>>,
}

impl Scripted {
    /// A model that answers by `script`, which sees the request and how many came before it.
    pub fn new(script: impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), asked: Arc::default(), embedded: Arc::default(), alike: Arc::default() }
    }

    /// Words that mean the same to it.
    #[must_use]
    pub fn taking_as_alike(mut self, pairs: &[(&str, &str)]) -> Self {
        self.alike = Arc::new(pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect());
        self
    }

    /// Returns `true` if any words mean the same to it: then it serves as an embedder.
    pub fn embeds(&self) -> bool {
        !self.alike.is_empty()
    }

    /// Every text it was asked to embed, in order.
    pub fn embedded(&self) -> Vec<String> {
        self.embedded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every request so far, in order.
    pub fn asked(&self) -> Vec<ChatRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what it was asked so far, for those who ask it for months.
    pub fn forget(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.embedded.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The model as a provider, through the whole client.
    ///
    /// # Errors
    /// Never in practice; the provider's constructor checks its key.
    pub fn provider(&self, name: &str) -> Result<Arc<dyn LlmProvider>, LlmError> {
        self.provider_that(name, Abilities::default())
    }

    /// The same, as a provider that can do more or less than the usual.
    ///
    /// # Errors
    /// Never in practice; the provider's constructor checks its key.
    pub fn provider_that(&self, name: &str, abilities: Abilities) -> Result<Arc<dyn LlmProvider>, LlmError> {
        let endpoint =
            Endpoint::new(name, Transport::Local(router(Arc::new(self.clone()))), 64, Duration::from_secs(30));
        Ok(Arc::new(OpenAi::new(name, "http://scripted/v1", "-", endpoint)?.with_abilities(abilities)))
    }
}

fn usage(request: &ChatRequest, said: &str) -> Usage {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let prompt_tokens = request.messages.iter().filter_map(|message| message.content.as_deref()).map(words).sum();
    let completion_tokens = words(said).max(1);
    Usage { prompt_tokens, completion_tokens, ..Usage::default() }.plus(Usage::default())
}

#[async_trait]
impl Engine for Scripted {
    fn models(&self) -> Vec<String> {
        vec!["scripted".into()]
    }

    /// Texts that share words have like vectors: each word counts at a place of its own.
    async fn embed(&self, _: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Usage), Refusal> {
        let mut embedded = self.embedded.lock().unwrap_or_else(PoisonError::into_inner);
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
        };
        let place =
            |word: &str| word.bytes().fold(7_usize, |hash, byte| hash.wrapping_mul(31) + usize::from(byte)) % 512;
        let vector = |text: &str| {
            let mut vector = vec![0.0; 512];
            words(text).iter().for_each(|word| vector[place(self.alike.get(word).unwrap_or(word))] += 1.0);
            vector
        };
        let tokens = texts.iter().map(|text| words(text).len() as u64).sum();
        let vectors = texts.iter().map(|text| vector(text)).collect();
        embedded.extend(texts);
        Ok((vectors, Usage { prompt_tokens: tokens, total_tokens: tokens, ..Usage::default() }))
    }

    async fn chat(&self, request: ChatRequest) -> Result<mpsc::Receiver<Part>, Refusal> {
        let before = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(request.clone());
            asked.len() - 1
        };
        let reply = (self.script)(&request, before);
        let (parts, receiver) = mpsc::channel(8);
        if let Reply::Status(status, message) = reply {
            return Err(Refusal { status, message, retry_after_s: (status == 429).then_some(0) });
        }
        tokio::spawn(async move {
            let say = |text: String| {
                let parts = parts.clone();
                async move {
                    for piece in text.split_inclusive(' ') {
                        if parts.send(Part::Text(piece.to_owned())).await.is_err() {
                            return;
                        }
                    }
                }
            };
            let done = match reply {
                Reply::Text(text) => {
                    let usage = usage(&request, &text);
                    say(text).await;
                    Part::Done { finish: "stop", usage }
                }
                Reply::Tools(calls) => {
                    for (index, (id, name, arguments)) in calls.into_iter().enumerate() {
                        let call = WireToolCall {
                            index: Some(index),
                            id,
                            kind: "function".into(),
                            function: WireFunction { name, arguments },
                        };
                        let _ = parts.send(Part::Tool(call)).await;
                    }
                    Part::Done { finish: "tool_calls", usage: usage(&request, "") }
                }
                Reply::Held(first, go_on, second) => {
                    let usage = usage(&request, &format!("{first}{second}"));
                    say(first).await;
                    go_on.notified().await;
                    say(second).await;
                    Part::Done { finish: "stop", usage }
                }
                Reply::CutOff(text) => {
                    say(text).await;
                    return;
                }
                Reply::Status(..) => return,
            };
            let _ = parts.send(done).await;
        });
        Ok(receiver)
    }
}
