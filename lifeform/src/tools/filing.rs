//! The tools with which a model describes the domains of a mind at night.

use fascicles::{ToolContext, ToolFailure};
use serde::Deserialize;
use serde_json::{Value, json};
use store::Origin;

use super::{LifeformToolbox, unmarked};
use crate::agenda::Errand;
use crate::maintenance;
use crate::metabolism::Mode;

impl LifeformToolbox {
    /// Returns a domain that waits for a description, with its statements, for a model; none for a small model, or where tokens are
    /// short.
    pub(super) async fn look_at_domain(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let Errand::Maintenance { supply, .. } = Self::errand(context)? else {
            return Err(ToolFailure::fatal("this tool needs a maintenance task"));
        };
        let nothing = json!({"events": []});
        if supply.small || supply.mode == Mode::Eco {
            return Ok(nothing);
        }
        let shown = self.memory.domain_to_describe(origin).await.map_err(ToolFailure::passing)?;
        let Some(shown) = shown else { return Ok(nothing) };
        let line = |(at, (_, statement)): (usize, &(String, String))| {
            format!("{}. {}", at + 1, unmarked(&statement.replace('\n', " ")))
        };
        let lines: Vec<String> = shown.statements.iter().enumerate().map(line).collect();
        let others: Vec<String> = shown.others.iter().map(|other| unmarked(other)).collect();
        let others =
            if others.is_empty() { String::new() } else { format!("\n<others>{}</others>", others.join(", ")) };
        let wide = if shown.is_wide { " (wide)" } else { "" };
        let content = format!(
            "<domain>{}{wide}</domain>\n<statements>\n{}\n</statements>{others}",
            unmarked(&shown.name),
            lines.join("\n")
        );
        let facts: Vec<&String> = shown.statements.iter().map(|(fact, _)| fact).collect();
        let metadata = json!({"domain": shown.name, "facts": facts});
        Ok(json!({"events": [{"role": "user", "content": content, "metadata": metadata}]}))
    }

    /// Writes what a model wrote of the domain.
    pub(super) async fn describe_domain(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let part = |member: &str| context.events.iter().find_map(|event| event.metadata.get(member)).cloned();
        let facts: Vec<String> = part("facts").and_then(|ids| Vec::deserialize(ids).ok()).unwrap_or_default();
        let Some(name) = part("domain").as_ref().and_then(Value::as_str).map(str::to_owned) else {
            return Ok(json!({"domain": null, "statements": 0}));
        };
        let answer = context.event("describe").map_or(Value::Null, |event| event.content.clone());
        let system = maintenance::gardener(origin.cause.clone());
        let described = self.memory.describe_domain(&name, &facts, &answer, &system).await;
        Ok(json!(described.map_err(ToolFailure::passing)?))
    }
}
