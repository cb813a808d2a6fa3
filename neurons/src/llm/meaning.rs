//! The embedder of the minds: what they search by, paid by the house.

use async_trait::async_trait;
use nexus::{EmbedError, Embedder};
use store::{Origin, Store};

use super::paid::{self, Payer};
use super::{Class, LlmError, Model};
use crate::NeuronError;
use crate::neurons::HOUSE;

/// An embedding model as the nexus asks for it.
pub struct Meaning {
    store: Store,
    model: Model,
    name: String,
}

impl Meaning {
    /// Embeds with `model`; every call is settled in `store`.
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

    async fn embed(&self, origin: &Origin, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let payer = Payer { store: &self.store, origin, account: HOUSE, class: Class::of(origin) };
        paid::embed_at_once(payer, &self.model, texts).await.map_err(|error| match error {
            // What the texts are to blame for; a wrong key or an empty account is not.
            NeuronError::Llm(LlmError::Refused { status: 400 | 413 | 422, .. }) => {
                EmbedError::Refused(error.to_string())
            }
            other => EmbedError::Failed(other.to_string()),
        })
    }
}
