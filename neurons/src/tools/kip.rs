//! The tool `execute_kip` on one nexus (K7). For an invalid command, the model gets the fault, its position and a
//! correction, and tries again. Together with the limit on model calls, this is the repair loop of K12.

use std::sync::Arc;

use async_trait::async_trait;
use nexus::kip::One;
use nexus::kip::lang::card;
use nexus::kip::lang::parser::seems_to_write;
use nexus::{Nexus, Request};
use serde_json::{Value, json};
use store::Origin;

use super::Caller;
use crate::llm::wire::repeated_member;

/// Returns the description of the tool for the model, with the grammar card.
pub(crate) fn description() -> String {
    format!(
        "Runs KIP on the memory: FIND, SEARCH and DESCRIBE read, UPSERT, UPDATE, MERGE and DELETE write. \
         An {{error}} says what is wrong, where, and in its hint what to write instead: mend the command and call again.\n{}",
        card::card()
    )
}

/// The title of the parameter that holds a command. The embedded model then generates it by the KIP grammar. All
/// providers accept titles.
pub(crate) const COMMAND_TITLE: &str = "KIP command";
/// The title of the parameter for tools that accept only commands that read.
pub(crate) const QUERY_TITLE: &str = "KIP query";

/// Returns the JSON Schema of the parameters (draft7 §6.1).
pub(crate) fn parameters(readonly: bool) -> Value {
    let title = if readonly { QUERY_TITLE } else { COMMAND_TITLE };
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "title": title, "description": "one KIP command"},
            "commands": {"type": "array", "items": {"type": "string"}, "description": "several commands, instead of command"},
            "parameters": {"type": "object", "description": "values for $name in the command"},
            "dry_run": {"type": "boolean", "description": "check it and write nothing"},
        },
    })
}

/// Returns `true` if a command in the parameters may change something.
pub(super) fn writes(params: &str) -> bool {
    let Ok(request) = serde_json::from_str::<Request>(params) else { return false };
    let mut texts = request.command.iter().chain(request.commands.iter().flatten().map(|one| match one {
        One::Text(text) | One::With { command: text, .. } => text,
    }));
    !request.readonly && texts.any(|text| seems_to_write(text))
}

/// The alias of a lifeform's own mind, so that lifeforms can share a definition.
const OWN: &str = "self";

/// The judge of the jobs that may use the mind of their lifeform by KIP. Commands read all of a mind, also what people
/// said among themselves.
#[async_trait]
pub trait MindGate: Send + Sync + 'static {
    /// Checks that the readers of what the caller writes may know all of the lifeform's mind.
    ///
    /// # Errors
    /// Returns the reason of the refusal, as a text for a model.
    async fn admits(&self, caller: &Caller) -> Result<(), String>;
}

/// Returns the nexus that a definition names. [`OWN`] is the mind of the lifeform that owns the job.
///
/// # Errors
/// Returns an error, as a text for a model, if the caller is no lifeform, or if the gate does not admit it.
pub(super) async fn nexus_of(
    named: &Arc<str>,
    caller: &Caller,
    gate: Option<&Arc<dyn MindGate>>,
) -> Result<Arc<str>, String> {
    if **named != *OWN {
        return Ok(named.clone());
    }
    let own = caller.owner.strip_prefix("lifeform:").ok_or("only a lifeform has a mind of its own")?;
    gate.ok_or("nothing here admits to a mind")?.admits(caller).await?;
    Ok(own.into())
}

/// Runs the request in the parameters and returns the response envelope as text.
pub(super) async fn run(
    nexus: &Nexus,
    id: &Arc<str>,
    readonly: bool,
    params: &str,
    origin: &Origin,
) -> Result<String, String> {
    if let Some(repeated) = repeated_member(params.as_bytes()) {
        return Err(format!("the parameters are not JSON: {repeated}"));
    }
    let mut request: Request = serde_json::from_str(params)
        .map_err(|error| format!("the parameters must be {{\"command\": \"…\", \"parameters\": {{…}}}}: {error}"))?;
    request.readonly |= readonly;
    if !nexus.exists(id).await.map_err(|error| error.to_string())? {
        return Err(format!("nexus {id} not found"));
    }
    let answer = nexus.execute(id, request, origin).await.map_err(|error| error.to_string())?;
    Ok(answer.to_string())
}
