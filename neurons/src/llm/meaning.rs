//! The embedder of the minds: what they search by, paid by the house.

use async_trait::async_trait;
use nexus::{Embedder, Origin, Store};

use super::{Model, paid};
use crate::neurons::HOUSE;

/// An embedding model as the nexus asks for it.
pub struct Meaning {
    store: Store,
    model: Model,
}

impl Meaning {
    /// Embeds with `model`; every call is settled in `store`.
    pub fn new(store: Store, model: Model) -> Self {
        Self { store, model }
    }
}

#[async_trait]
impl Embedder for Meaning {
    fn name(&self) -> &str {
        &self.model.name
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, String> {
        let origin = Origin::system("meaning");
        paid::embed(&self.store, &origin, HOUSE, &self.model, texts).await.map_err(|error| error.to_string())
    }
}
