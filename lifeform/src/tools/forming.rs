//! The tools that form claims and ask for them: rules read each message after its answer, a model a batch of statements, or a
//! question.

use fascicles::{ToolContext, ToolFailure};
use serde_json::{Value, json};
use store::Origin;

use super::keeping::stated;
use super::{LifeformToolbox, ToolScope, unmarked};
use crate::agenda::Errand;
use crate::asking;
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
        let predicates = self.memory.predicates_for(&audience, origin).await.map_err(ToolFailure::passing)?.line();
        let predicates =
            if predicates.is_empty() { String::new() } else { format!("\n<predicates>{predicates}</predicates>") };
        let content = format!("{}{themes}{predicates}", numbered(&batch));
        Ok(json!({"events": [{"role": "user", "content": content, "metadata": {"batch": ids}}]}))
    }

    /// Returns the question of the messages as an event for a model, if the graph answers nothing to the rules' reading of it. Returns no
    /// event for a small model, in the mode `eco`, and for a mind without claims.
    pub(super) async fn question(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let nothing = json!({"events": []});
        let supply = &here.perception.supply;
        let said = asked_by_one(here);
        let is_open = !supply.small && supply.mode != Mode::Eco && asking::is_question(&said);
        if !is_open || !self.memory.has_claims(origin).await.map_err(ToolFailure::passing)? {
            return Ok(nothing);
        }
        let people = here.people(&self.me);
        let (asks, readers) = (&here.perception.last().sender, self.readers(&people));
        let has_answer = async |path: &asking::Path| {
            let answer = self.memory.answer(&asking::Query::of(path), asks, readers, origin).await;
            answer.map(|answer| answer.is_some()).map_err(ToolFailure::passing)
        };
        if let Some(path) = asking::path(&said)
            && has_answer(&path).await?
        {
            return Ok(nothing);
        }
        let mut is_for_a_model = asking::asks_for_people(&said);
        // A question about a person whom the readers know.
        for path in asking::mentioned(&said) {
            is_for_a_model = is_for_a_model || has_answer(&path).await?;
        }
        if !is_for_a_model {
            return Ok(nothing);
        }
        let predicates = self.memory.predicates_for(&people, origin).await.map_err(ToolFailure::passing)?.line();
        let predicates =
            if predicates.is_empty() { String::new() } else { format!("\n<predicates>{predicates}</predicates>") };
        let content = format!("<question>{}</question>{predicates}", unmarked(&said));
        Ok(json!({"events": [{"role": "user", "content": content}]}))
    }

    /// Returns the query that a model read in the question of the messages, if it read one that the words bear out.
    pub(super) async fn query_read(
        &self,
        here: &ToolScope,
        context: &ToolContext,
        origin: &Origin,
    ) -> Result<Option<asking::Query>, ToolFailure> {
        let Some(answer) = context.event("read_question").filter(|event| event.content.is_object()) else {
            return Ok(None);
        };
        let people = here.people(&self.me);
        let predicates = self.memory.predicates_for(&people, origin).await.map_err(ToolFailure::passing)?;
        Ok(asking::reading::read(&answer.content, &asked_by_one(here), &predicates))
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

/// Returns what the last sender of the messages says in them: "my sister" is the sister of one person.
fn asked_by_one(here: &ToolScope) -> String {
    let said = here.perception.said.iter().filter(|said| said.sender == here.perception.last().sender);
    said.map(|said| said.content.as_str()).collect::<Vec<_>>().join("\n")
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
