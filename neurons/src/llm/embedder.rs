//! The embedder for searches in the nexus, paid by the house account.

use async_trait::async_trait;
use nexus::{EmbedError, Embedder};
use store::{Origin, Store};

use super::paid::{self, Payer};
use super::weights::Weights;
use super::{Class, LlmError, Model};
use crate::NeuronError;
use crate::neurons::HOUSE;

/// An embedding model behind the interface of the nexus.
pub struct Meaning {
    store: Store,
    model: Model,
    name: String,
}

impl Meaning {
    /// Creates an embedder with `model`. Every call is settled in `store`.
    pub fn new(store: Store, model: Model) -> Self {
        let name = format!("{}/{}", model.provider.name(), model.name);
        Self { store, model, name }
    }
}

#[async_trait]
impl Embedder for Meaning {
    fn name(&self) -> &str {
        &self.name
    }

    fn reads(&self, text: &str) -> bool {
        // A remote model is taken to know every script.
        Weights::named(&self.model.name).is_none_or(|weights| weights.reads(text))
    }

    async fn embed(&self, origin: &Origin, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let payer = Payer { store: &self.store, origin, account: HOUSE, class: Class::of(origin) };
        paid::embed_at_once(payer, &self.model, texts).await.map_err(|error| match error {
            // These statuses mean that the texts are at fault, not the key or the account.
            NeuronError::Llm(LlmError::Refused { status: 400 | 413 | 422, .. }) => {
                EmbedError::Refused(error.to_string())
            }
            other => EmbedError::Failed(other.to_string()),
        })
    }
}
