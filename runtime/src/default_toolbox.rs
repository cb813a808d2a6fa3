//! The server tools of jobs that people start, for the jobs' tool nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use fascicles::{ToolContext, ToolFailure, Toolbox};
use knowledge::Knowledge;
use neurons::llm::Delta;
use nexus::{Nexus, Request};
use serde_json::Value;
use tokio::sync::mpsc;

/// Runs KIP on a nexus, with the rights of the job's principal: `{nexus, command | commands, parameters, …}`.
const EXECUTE_KIP: &str = "execute_kip";
/// Returns the guide of a skill that is shipped or an operator's: `{skill}`.
const GUIDE: &str = "guide";

/// The default tools.
pub(crate) const HAS: [&str; 2] = [EXECUTE_KIP, GUIDE];

/// The default toolbox.
pub(crate) struct House {
    pub(crate) nexus: Nexus,
    pub(crate) knowledge: Knowledge,
}

/// Returns the names of all tools that a tool node may call: the default tools and those of a lifeform.
pub(crate) fn tools() -> BTreeSet<Arc<str>> {
    lifeform::TOOLS.iter().chain(&HAS).map(|name| Arc::from(*name)).collect()
}

#[async_trait]
impl Toolbox for House {
    async fn call(&self, name: &Arc<str>, arguments: &Value, context: &ToolContext) -> Result<Value, ToolFailure> {
        if &**name == GUIDE {
            return lifeform::guide(&self.knowledge, arguments).await;
        }
        if &**name != EXECUTE_KIP {
            return Err(ToolFailure::fatal(format!("the house has no tool {name}, only a lifeform has")));
        }
        let mut arguments = arguments.clone();
        let nexus = arguments.as_object_mut().and_then(|members| members.remove("nexus"));
        let nexus: Arc<str> = nexus
            .as_ref()
            .and_then(Value::as_str)
            .ok_or_else(|| ToolFailure::fatal("execute_kip wants nexus: a lifeform's id, or commons"))?
            .into();
        let request: Request =
            serde_json::from_value(arguments).map_err(|error| ToolFailure::fatal(format!("execute_kip: {error}")))?;
        if !self.nexus.exists(&nexus).await.map_err(ToolFailure::passing)? {
            return Err(ToolFailure::fatal(format!("nexus {nexus} not found")));
        }
        let answer = self.nexus.execute(&nexus, request, &context.origin).await.map_err(ToolFailure::passing)?;
        let answer = serde_json::to_value(&answer).map_err(ToolFailure::fatal)?;
        match answer.get("error") {
            Some(error) if !error.is_null() => Err(ToolFailure::fatal(error)),
            _ => Ok(answer),
        }
    }

    async fn listen(&self, _: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        Ok(None)
    }
}
