//! The stored pins of MCP tools.

use std::collections::BTreeMap;

use async_trait::async_trait;
use store::{Batch, Key, Kind as Document, Origin, Role, Store};

use super::Neurons;
use crate::NeuronError;
use crate::tools::{Pin, Pins};

/// The maximum number of pins that are read of one server.
const PINS_MAX: usize = 1_024;

/// The pins in a store.
pub(super) struct StoredPins(pub(super) Store);

fn key(server: &str, tool: &str) -> Key {
    Key::new(Document::Pin, format!("{server}/{tool}"))
}

#[async_trait]
impl Pins for StoredPins {
    async fn pins(&self, server: &str) -> Result<BTreeMap<String, Pin>, String> {
        let own = format!("{server}/");
        let found = self.0.documents::<Pin>(Document::Pin, &own, PINS_MAX).await.map_err(|error| error.to_string())?;
        let of_server = found.into_iter().filter_map(|(id, pin)| Some((id.strip_prefix(&*own)?.to_owned(), pin.value)));
        Ok(of_server.collect())
    }

    async fn pin(&self, server: &str, pins: &[(String, Pin)]) -> Result<(), String> {
        let batch = Batch::new(&Origin::system("first sight of a tool"));
        let batch = pins.iter().fold(batch, |batch, (tool, pin)| batch.put(key(server, tool), pin));
        self.0.commit(batch).await.map(drop).map_err(|error| error.to_string())
    }
}

impl Neurons {
    /// Accepts the present definition of an MCP tool. `hash` names the definition that was looked at.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotOperator`], and [`NeuronError::Spec`] if the tool is not there or has another definition.
    pub async fn accept_tool(&self, origin: &Origin, server: &str, tool: &str, hash: &str) -> Result<(), NeuronError> {
        if !origin.principal.may(Role::Operator) {
            return Err(NeuronError::NotOperator);
        }
        let pin = self.tools.definition(server, tool, hash).await.map_err(NeuronError::Spec)?;
        self.store.commit(Batch::new(origin).put(key(server, tool), &pin)).await?;
        self.tools.accepted(server, tool, &pin);
        Ok(())
    }
}
