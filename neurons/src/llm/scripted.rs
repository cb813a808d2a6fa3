//! The scripted model of the tests: it answers by rules and uses the same router as the embedded engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::wire::types::{ChatRequest, Usage, WireFunction, WireToolCall};
use super::wire::{Engine, Part, Refusal, router};
use super::{Abilities, Endpoint, LlmError, LlmProvider, OpenAi, Transport};

/// The model's reaction to one request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Answers with this text, in parts of a few words.
    Text(String),
    /// Calls these tools, `(id, name, arguments)`.
    Tools(Vec<(String, String, String)>),
    /// Fails with this HTTP status and message.
    Status(u16, String),
    /// Sends this text and ends the stream without a finish reason.
    CutOff(String),
    /// Sends the first text, waits for the test's notification, and sends the second text.
    Held(String, Arc<tokio::sync::Notify>, String),
    /// Waits for the test's notification, and answers then.
    After(Arc<tokio::sync::Notify>, Box<Reply>),
}

type Script = dyn Fn(&ChatRequest, usize) -> Reply + Send + Sync;

/// A model that follows a script and records its requests.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<ChatRequest>>>,
    embedded: Arc<Mutex<Vec<String>>>,
    alike: Arc<HashMap<String, String>>,
}

impl Scripted {
    /// Creates a model that answers by `script`. The script receives the request and the number of earlier requests.
    pub fn new(script: impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), asked: Arc::default(), embedded: Arc::default(), alike: Arc::default() }
    }

    /// Sets groups of words with the same meaning.
    #[must_use]
    pub fn taking_as_alike(mut self, pairs: &[(&str, &str)]) -> Self {
        self.alike = Arc::new(pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect());
        self
    }

    /// Returns `true` if such words are set: the model then also serves as an embedder.
    pub fn embeds(&self) -> bool {
        !self.alike.is_empty()
    }

    /// Returns every text that was embedded, in order.
    pub fn embedded(&self) -> Vec<String> {
        self.embedded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns every request so far, in order.
    pub fn asked(&self) -> Vec<ChatRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Deletes the recorded requests, for long simulations.
    pub fn forget(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.embedded.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the model as a provider, including the complete client.
    ///
    /// # Errors
    /// Returns an error only if the provider's constructor refuses the key, which does not happen in practice.
    pub fn provider(&self, name: &str) -> Result<Arc<dyn LlmProvider>, LlmError> {
        self.provider_that(name, Abilities::default())
    }

    /// Returns the model as a provider with other abilities.
    ///
    /// # Errors
    /// Returns an error only if the provider's constructor refuses the key, which does not happen in practice.
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

    /// Embeds texts so that texts with common words have similar vectors: each word counts in a dimension of its own.
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
        let mut reply = (self.script)(&request, before);
        while let Reply::After(go_on, then) = reply {
            go_on.notified().await;
            reply = *then;
        }
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
                Reply::Status(..) | Reply::After(..) => return,
            };
            let _ = parts.send(done).await;
        });
        Ok(receiver)
    }
}
