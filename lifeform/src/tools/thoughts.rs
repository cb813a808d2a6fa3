//! Own thoughts: a question or a kind word about a day of which a person spoke, where nobody asked for it.

use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use serde_json::{Value, json};
use store::Origin;

use super::{LifeformToolbox, cut, marked, strangers_behind, unmarked};
use crate::agenda::Errand;
use crate::canvas::chat;
use crate::memory::OpenThing;
use crate::perception::Supply;

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
        let OpenThing { person, statement, on, topic, people, supply, .. } = Self::thought(context)?;
        let Some(canvas) = self.canvases.get(&self.home).filter(|_| !supply.small) else {
            return Ok(json!({"events": []}));
        };
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

    /// Posts what the model wrote about an open thing. A small model writes nothing; a sentence by rule quotes the
    /// person instead.
    pub(super) async fn volunteer(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let OpenThing { fact, person, statement, topic, supply, .. } = Self::thought(context)?;
        let written = context.event("ask").and_then(|event| event.content["say"].as_str().map(str::to_owned));
        let say = match supply {
            Supply { small: true, .. } => by_rule(&statement),
            _ => written.unwrap_or_default(),
        };
        let say: String = say.trim().chars().take(SAY_CHARS).collect();
        let Some(canvas) = self.canvases.get(&self.home).filter(|_| !say.is_empty()) else {
            return Ok(json!({"said": false}));
        };
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

/// Returns a question about a statement in its language.
fn by_rule(statement: &str) -> String {
    let is_kana = |c: char| ('\u{3040}'..='\u{30ff}').contains(&c);
    let is_han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    match () {
        () if statement.contains(is_kana) => format!("「{statement}」とおっしゃっていましたね。どうでしたか？"),
        () if statement.contains(is_han) => format!("你说过：“{statement}”后来怎么样了？"),
        () => format!("You told me: \"{statement}\" How did it go?"),
    }
}
