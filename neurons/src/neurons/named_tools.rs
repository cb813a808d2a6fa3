//! The named tools of the API: stored documents beside those of the configuration.

use serde::{Deserialize, Serialize};
use store::{Batch, Expect, Key, Kind as Document, Origin, Role, Stream, Versioned};

use super::Neurons;
use crate::NeuronError;
use crate::tools::{NamedTool, NamedToolEntry, ToolId};

/// The maximum number of stored named tools, and the number read at once.
const TOOLS_MAX: usize = 1_000;

/// A version of a named tool as an entry of the journal.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u64,
    /// The definition; `None` if the tool was removed.
    tool: Option<NamedTool>,
}

fn key(id: &ToolId) -> Key {
    Key::new(Document::Tool, id.clone())
}

fn stream(id: &ToolId) -> Stream {
    format!("tool:{id}").into()
}

impl Neurons {
    /// Reads the stored named tools. A stored one whose id the configuration defines now is not used.
    pub(super) async fn read_named_tools(&self) -> Result<(), NeuronError> {
        for (id, found) in self.store.documents::<NamedTool>(Document::Tool, "", TOOLS_MAX).await? {
            if self.tools.is_configured(&id) {
                tracing::warn!(tool = %id, "the configuration defines it, too, and takes precedence");
            }
            self.tools.set_named(&id, Some(found.value));
        }
        Ok(())
    }

    /// Returns a named tool with the single tools that it stands for, and its version; 0 for one of the configuration.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoTool`].
    pub async fn named_tool(&self, id: &ToolId) -> Result<Versioned<NamedToolEntry>, NeuronError> {
        let value = self.tools.named(id).await.ok_or_else(|| NeuronError::NoTool(id.clone()))?;
        let version = match value.is_configured {
            true => 0,
            false => self.store.document::<NamedTool>(&key(id)).await?.map_or(0, |found| found.version),
        };
        Ok(Versioned { version, value })
    }

    /// Defines or replaces a named tool. Returns the version; 1 if it is new.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotOperator`], [`NeuronError::Configured`], [`NeuronError::Spec`], or a conflict if `expect` is not
    /// the current version.
    pub async fn define_tool(
        &self,
        origin: &Origin,
        id: &ToolId,
        tool: NamedTool,
        expect: Option<u64>,
    ) -> Result<u64, NeuronError> {
        self.may_change(origin, id)?;
        let tool = tool.named(id).map_err(NeuronError::Spec)?;
        self.check_tools(std::iter::once(&tool.tool), origin).map_err(NeuronError::Spec)?;
        let found = self.store.document::<NamedTool>(&key(id)).await?.map_or(0, |found| found.version);
        if found == 0 && self.store.documents::<NamedTool>(Document::Tool, "", TOOLS_MAX).await?.len() >= TOOLS_MAX {
            return Err(NeuronError::Spec(format!("there are {TOOLS_MAX} named tools, which is the most")));
        }
        let expect = expect.unwrap_or(found);
        let batch = Batch::new(origin).put_expecting(key(id), Expect::Version(expect), &tool);
        let written = Written { version: expect + 1, tool: Some(tool.clone()) };
        let batch = batch.append(stream(id), "defined", &written);
        let (this, changed) = (self.clone(), id.clone());
        let receipt = self.store.commit_then(batch, move || this.tools.set_named(&changed, Some(tool))).await?;
        Ok(receipt.versions[0])
    }

    /// Removes a named tool. Calls that are not announced yet are refused from then on.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotOperator`], [`NeuronError::Configured`] or [`NeuronError::NoTool`].
    pub async fn remove_tool(&self, origin: &Origin, id: &ToolId) -> Result<(), NeuronError> {
        self.may_change(origin, id)?;
        let found = self.store.document::<NamedTool>(&key(id)).await?;
        let version = found.ok_or_else(|| NeuronError::NoTool(id.clone()))?.version;
        let batch = Batch::new(origin).delete(key(id), Expect::Version(version));
        let batch = batch.append(stream(id), "removed", &Written { version, tool: None });
        let (this, removed) = (self.clone(), id.clone());
        self.store.commit_then(batch, move || this.tools.set_named(&removed, None)).await?;
        Ok(())
    }

    fn may_change(&self, origin: &Origin, id: &ToolId) -> Result<(), NeuronError> {
        if !origin.principal.may(Role::Operator) {
            return Err(NeuronError::NotOperator);
        }
        if self.tools.is_configured(id) {
            return Err(NeuronError::Configured(id.clone()));
        }
        Ok(())
    }
}
