//! Own thoughts: a question or a kind word about a day of which a person spoke, where nobody asked for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use serde_json::{Value, json};
use store::Origin;

use super::{LifeformToolbox, cut, hears, marked, speakers, strangers_behind, unmarked};
use crate::agenda::Errand;
use crate::canvas::chat;
use crate::memory::OpenThing;

/// The number of messages of the talk that a thought sees, and the maximum length of one, in characters.
const MESSAGES_SHOWN: usize = 8;
const MESSAGE_CHARS: usize = 300;
/// The maximum length of an unasked message, in characters.
const SAY_CHARS: usize = 600;

impl LifeformToolbox {
    fn thought(context: &ToolContext) -> Result<OpenThing, ToolFailure> {
        match Self::errand(context)? {
            Errand::Thought { thought } => Ok(*thought),
            _ => Err(ToolFailure::fatal("this tool needs an open thing to think about")),
        }
    }

    /// Returns the open thing with the end of its talk, for a model; nothing if the fact is gone.
    pub(super) async fn ponder(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let OpenThing { fact, person, statement, on, topic, supply, .. } = Self::thought(context)?;
        let is_open = !supply.small && self.is_open_still(&fact, &topic, origin).await?;
        let Some(canvas) = self.canvases.get(&self.home).filter(|_| is_open) else {
            return Ok(json!({"events": []}));
        };
        let people = self.readers_at_home(&topic);
        let state = canvas.snapshot().state;
        let mut last: Vec<String> = self
            .texts_in(&canvas, &state, &topic)
            .rev()
            .take(MESSAGES_SHOWN)
            .map(|(message, text)| {
                let name = self.display_name(&state, message.sender());
                format!("{}: {}", unmarked(&name), cut(&unmarked(&text), MESSAGE_CHARS))
            })
            .collect();
        last.reverse();
        let text = format!(
            "{} said: <notes>\"{}\"</notes> That day is {}.\nThe last words of that talk:\n<messages>\n{}\n</messages>",
            unmarked(&self.name_at_home(&person)),
            unmarked(&statement),
            on.strftime("%A %-d %B %Y"),
            last.join("\n"),
        );
        let strangers = people.iter().filter(|who| !self.knowledge.trusts_word_of(who)).cloned().collect();
        let situation = self.situation_alone(&people, supply, origin).await?;
        Ok(json!({"events": [situation, marked(json!({"role": "user", "content": text}), &strangers)]}))
    }

    /// Returns the present readers of a topic of the lifeform's chat.
    fn readers_at_home(&self, topic: &str) -> BTreeSet<String> {
        let home = self.canvases.get(&self.home).map(|home| home.snapshot().state);
        let speakers = home.map(|state| speakers(&state, topic)).unwrap_or_default();
        speakers.into_iter().filter(|who| hears(who, &self.me)).collect()
    }

    /// Returns `true` if a fact still holds, and all who read the topic now may know it.
    async fn is_open_still(&self, fact: &str, topic: &str, origin: &Origin) -> Result<bool, ToolFailure> {
        let people = self.readers_at_home(topic);
        self.memory.is_open(fact, self.readers(&people), origin).await.map_err(ToolFailure::passing)
    }

    /// Posts what the model wrote about an open thing, if it is open still.
    pub(super) async fn volunteer(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let OpenThing { fact, person, topic, .. } = Self::thought(context)?;
        let written = context.event("ask").and_then(|event| event.content["say"].as_str().map(str::to_owned));
        let say: String = written.unwrap_or_default().trim().chars().take(SAY_CHARS).collect();
        let is_wanted = !say.is_empty() && self.is_open_still(&fact, &topic, origin).await?;
        let Some(canvas) = self.canvases.get(&self.home).filter(|_| is_wanted) else {
            return Ok(json!({"said": false}));
        };
        // A repetition after a crash counts once.
        if chat::message_in(&canvas.snapshot().state, &topic, &Self::answer_id(context)).is_some() {
            return Ok(json!({"said": true}));
        }
        let mut op = chat::Op::say(&topic, Self::answer_id(context), say, None);
        if let chat::Op::Append { rests_on, behind, .. } = &mut op {
            *rests_on = vec![fact.as_str().into()];
            *behind = strangers_behind(context);
        }
        Self::act(&canvas, op, origin).await?;
        let participant: Option<Arc<str>> = Some(person.clone());
        let spoken = self.plans.change(origin, "spoke unasked", |agenda, now| {
            agenda.spoke(now, participant.as_ref());
            Ok(())
        });
        spoken.await.map_err(ToolFailure::passing)?;
        Ok(json!({"said": true}))
    }
}
