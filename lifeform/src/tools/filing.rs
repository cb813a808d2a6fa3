//! The tools with which a model describes the domains and the persons of a mind at night.

use fascicles::{ToolContext, ToolFailure};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Origin, Timestamp};

use super::{LifeformToolbox, unmarked};
use crate::agenda::Errand;
use crate::maintenance;
use crate::metabolism::Mode;

impl LifeformToolbox {
    /// Returns a domain that waits for a description, with its statements, for a model; none for a small model, or where tokens are
    /// short.
    pub(super) async fn look_at_domain(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let nothing = json!({"events": []});
        if !may_describe(context)? {
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

    /// Returns a person that waits for a description, with its statements, for a model; none for a small model, or where tokens are
    /// short.
    pub(super) async fn look_at_person(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let nothing = json!({"events": []});
        if !may_describe(context)? {
            return Ok(nothing);
        }
        let person = self.memory.person_to_describe(origin).await.map_err(ToolFailure::passing)?;
        let Some(person) = person else { return Ok(nothing) };
        let zone = self.zone().0;
        let line = |(at, (_, stated_at, words)): (usize, &(String, Option<Timestamp>, String))| {
            let day = stated_at.map(|at| at.to_zoned(zone.clone()).strftime("(%-d %B %Y) ").to_string());
            format!("{}. {}{}", at + 1, day.unwrap_or_default(), unmarked(&words.replace('\n', " ")))
        };
        let lines: Vec<String> = person.statements.iter().enumerate().map(line).collect();
        let name = self.name_at_home(&person.id);
        let content =
            format!("<person>{}</person>\n<statements>\n{}\n</statements>", unmarked(&name), lines.join("\n"));
        let facts: Vec<&String> = person.statements.iter().map(|(fact, ..)| fact).collect();
        let metadata = json!({"person": person.id, "name": name, "facts": facts});
        Ok(json!({"events": [{"role": "user", "content": content, "metadata": metadata}]}))
    }

    /// Writes what a model wrote of the person. The output has the names of the parts that were taken, and not their words: they are the
    /// person's alone.
    pub(super) async fn describe_person(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let part = |member: &str| context.events.iter().find_map(|event| event.metadata.get(member)).cloned();
        let facts: Vec<String> = part("facts").and_then(|ids| Vec::deserialize(ids).ok()).unwrap_or_default();
        let text = |member: &str| part(member).as_ref().and_then(Value::as_str).map(str::to_owned);
        let Some((person, name)) = text("person").zip(text("name")) else {
            return Ok(json!({"statements": 0}));
        };
        let answer = context.event("describe").map_or(Value::Null, |event| event.content.clone());
        let system = maintenance::gardener(origin.cause.clone());
        let described = self.memory.describe_person((&person, &name), &facts, &answer, &system).await;
        let described = described.map_err(ToolFailure::passing)?;
        let shown = if described.is_some() { facts.len() } else { 0 };
        Ok(json!({"statements": shown, "parts": described.unwrap_or_default().parts()}))
    }
}

/// Returns `true` if a model is strong enough to describe, and there are tokens for it.
fn may_describe(context: &ToolContext) -> Result<bool, ToolFailure> {
    let Errand::Maintenance { supply, .. } = LifeformToolbox::errand(context)? else {
        return Err(ToolFailure::fatal("this tool needs a maintenance task"));
    };
    Ok(!supply.small && supply.mode != Mode::Eco)
}
