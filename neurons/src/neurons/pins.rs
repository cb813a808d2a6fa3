//! The stored pins of MCP tools.

use std::collections::BTreeMap;

use async_trait::async_trait;
use store::{Batch, Key, Kind as Document, Origin, Role, Store};

use super::Neurons;
use crate::NeuronError;
use crate::tools::{Pin, Pins};

/// The maximum number of pins of one server, and the number read at once.
const PINS_MAX: usize = 4_096;
const PAGE: usize = 512;

/// The pins in a store.
pub(super) struct StoredPins(pub(super) Store);

fn key(server: &str, tool: &str) -> Key {
    Key::new(Document::Pin, format!("{server}/{tool}"))
}

#[async_trait]
impl Pins for StoredPins {
    async fn pins(&self, server: &str) -> Result<BTreeMap<String, Pin>, String> {
        let own = format!("{server}/");
        let (mut pins, mut after) = (BTreeMap::new(), own.clone());
        loop {
            let page = self.0.documents::<Pin>(Document::Pin, &after, PAGE).await.map_err(|error| error.to_string())?;
            let Some((last, _)) = page.last() else { return Ok(pins) };
            after = last.to_string();
            for (id, pin) in page {
                let Some(tool) = id.strip_prefix(&*own) else { return Ok(pins) };
                pins.insert(tool.to_owned(), pin.value);
            }
            if pins.len() > PINS_MAX {
                return Err(format!(
                    "more than {PINS_MAX} tools of the MCP server {server} were accepted: it changes too much"
                ));
            }
        }
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
