//! The tools that form claims: rules read each message after its answer, a model a batch of statements.

use fascicles::{ToolContext, ToolFailure};
use serde_json::{Value, json};
use store::Origin;

use super::keeping::stated;
use super::{LifeformToolbox, ToolScope, unmarked};
use crate::agenda::Errand;
use crate::formation::Unread;
use crate::metabolism::Mode;

/// The minimum number of statements that a model reads: for fewer, its instructions cost more than they bring.
const STATEMENTS_MIN: usize = 4;

impl LifeformToolbox {
    /// Makes claims of what the messages state, by rules.
    pub(super) async fn form(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let mut formed = 0;
        for said in here.perception.said.iter().filter(|said| said.is_said()) {
            formed += self.memory.form_message(stated(here, said), origin).await.map_err(ToolFailure::passing)?;
        }
        Ok(json!({"formed": formed}))
    }

    /// Returns a batch of statements for a model; none for a small model, or where tokens are short.
    pub(super) async fn unread(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let Errand::Maintenance { supply, .. } = Self::errand(context)? else {
            return Err(ToolFailure::fatal("this tool needs a maintenance task"));
        };
        if supply.small || supply.mode == Mode::Eco {
            return Ok(json!({"events": []}));
        }
        let (batch, audience) = self.memory.unread(STATEMENTS_MIN, origin).await.map_err(ToolFailure::passing)?;
        if batch.is_empty() {
            return Ok(json!({"events": []}));
        }
        let ids: Vec<&str> = batch.iter().map(|one| one.id.as_str()).collect();
        let themes = self.memory.known_themes(&audience, origin).await.map_err(ToolFailure::passing)?;
        let themes =
            if themes.is_empty() { String::new() } else { format!("\n<domains>{}</domains>", themes.join(", ")) };
        let content = format!("{}{themes}", numbered(&batch));
        Ok(json!({"events": [{"role": "user", "content": content, "metadata": {"batch": ids}}]}))
    }

    /// Writes the claims that a model read.
    pub(super) async fn formed(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let batch = context.events.iter().find_map(|event| event.metadata.get("batch")?.as_array());
        let ids: Vec<String> = batch.into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect();
        // Where the model failed, rules have read what they could.
        let answer = context.event("read").map_or(Value::Null, |event| event.content.clone());
        let (formed, rejected) = self.memory.form_read(&ids, &answer, origin).await.map_err(ToolFailure::passing)?;
        Ok(json!({"formed": formed, "rejected": rejected, "statements": ids.len()}))
    }
}

/// Returns statements with their numbers and speakers.
fn numbered(batch: &[Unread]) -> String {
    let name = |person: &str| unmarked(person.split_once(':').map_or(person, |(_, name)| name));
    let line = |(at, one): (usize, &Unread)| {
        format!("{}. {}: {}", at + 1, name(&one.person), unmarked(&one.statement.replace('\n', " ")))
    };
    let lines: Vec<String> = batch.iter().enumerate().map(line).collect();
    format!("<statements>\n{}\n</statements>", lines.join("\n"))
}
