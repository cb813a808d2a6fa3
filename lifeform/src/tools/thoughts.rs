//! Own thoughts: a question or a kind word about a day of which a person spoke, where nobody asked for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use jiff::civil;
use serde_json::{Value, json};
use store::Origin;

use super::{LifeformToolbox, cut, hears, marked, readers_of_topic, strangers_behind, unmarked};
use crate::agenda::Errand;
use crate::canvas::chat;
use crate::formation::Conflict;
use crate::memory::{OpenThing, StoredFact};

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
        let OpenThing { fact, person, statement, on, topic, supply, conflict, .. } = Self::thought(context)?;
        if let Some(conflict) = &conflict {
            return self.ponder_conflict(conflict, &topic, supply.small, origin).await;
        }
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
        let readers = home.map(|state| readers_of_topic(&state, topic, &self.memory)).unwrap_or_default();
        readers.into_iter().filter(|who| hears(who, &self.me)).collect()
    }

    /// Returns `true` if a fact still holds, and all who read the topic now may know it.
    async fn is_open_still(&self, fact: &str, topic: &str, origin: &Origin) -> Result<bool, ToolFailure> {
        let people = self.readers_at_home(topic);
        self.memory.is_open(fact, self.readers(&people), origin).await.map_err(ToolFailure::passing)
    }

    /// Returns a conflict for a model, which may find that both statements can hold; nothing for a small model.
    async fn ponder_conflict(
        &self,
        conflict: &Conflict,
        topic: &str,
        is_small: bool,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let question = self.question_about(conflict, topic, origin).await?.filter(|_| !is_small);
        let events: Vec<Value> = question
            .map(|question| json!({"role": "user", "content": format!("<notes>{}</notes>", unmarked(&question))}))
            .into_iter()
            .collect();
        Ok(json!({"events": events}))
    }

    /// Returns the question about a conflict, as far as all who read the topic now may know both statements.
    async fn question_about(
        &self,
        conflict: &Conflict,
        topic: &str,
        origin: &Origin,
    ) -> Result<Option<String>, ToolFailure> {
        for fact in &conflict.facts {
            if !self.is_open_still(fact, topic, origin).await? {
                return Ok(None);
            }
        }
        let facts = self.memory.facts_of(&conflict.facts, origin).await.map_err(ToolFailure::passing)?;
        let facts = facts.unwrap_or_default();
        let zone = self.zone().0;
        let line = |fact: StoredFact<'_>| {
            let (author, statement) = (fact.author()?, fact.statement()?);
            let on = fact.stated_at()?.to_zoned(zone.clone()).date();
            Some((author == conflict.person, self.name_at_home(author), cut(statement, MESSAGE_CHARS), on))
        };
        let said: Vec<_> = facts.iter().filter_map(|fact| line(StoredFact::of(fact))).collect();
        Ok((said.len() > 1).then(|| ask_which(&said)))
    }

    /// Posts what the model wrote about an open thing, if it is open still, or the question about a conflict.
    pub(super) async fn volunteer(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let OpenThing { fact, person, topic, conflict, .. } = Self::thought(context)?;
        let written = match &conflict {
            // A model may find that both can hold. Without its answer, the rule asks.
            Some(conflict) if context.event("ask").is_some_and(|event| event.content["say"] == "") => {
                self.memory.let_be(&conflict.question, origin).await.map_err(ToolFailure::passing)?;
                None
            }
            Some(conflict) => self.question_about(conflict, &topic, origin).await?,
            None => context.event("ask").and_then(|event| event.content["say"].as_str().map(str::to_owned)),
        };
        let say: String = written.unwrap_or_default().trim().chars().take(SAY_CHARS).collect();
        let is_wanted = !say.is_empty() && self.is_open_still(&fact, &topic, origin).await?;
        let Some(canvas) = self.canvases.get(&self.home).filter(|_| is_wanted) else {
            return Ok(json!({"said": false}));
        };
        if let Some(conflict) = &conflict {
            self.memory.asked_about(&conflict.question, &topic, origin).await.map_err(ToolFailure::passing)?;
        }
        // A repetition after a crash counts once.
        if chat::message_in(&canvas.snapshot().state, &topic, &Self::answer_id(context)).is_some() {
            return Ok(json!({"said": true}));
        }
        let mut op = chat::Op::say(&topic, Self::answer_id(context), say, None);
        if let chat::Op::Append { rests_on, behind, .. } = &mut op {
            let facts = conflict.map_or_else(|| vec![fact.clone()], |conflict| conflict.facts);
            *rests_on = facts.iter().map(|fact| fact.as_str().into()).collect();
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

/// Returns the question which of two statements holds, in the language of the first. Each is told with its speaker, `true` for the
/// person who is asked, and its day.
fn ask_which(said: &[(bool, String, String, civil::Date)]) -> String {
    let text = said.first().map_or("", |(_, _, statement, _)| statement);
    let is_in = |from: char, to: char| text.chars().any(|c| (from..=to).contains(&c));
    let lines = |you: &str, dated: fn(&str, civil::Date) -> String| {
        let line = |(is_asked, name, statement, on): &(bool, String, String, civil::Date)| {
            format!("- “{statement}” ({})", dated(if *is_asked { you } else { name }, *on))
        };
        said.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    match () {
        () if is_in('\u{3040}', '\u{30ff}') => {
            let lines = lines("あなた", |who, on| format!("{who}、{}月{}日", on.month(), on.day()));
            format!("次の二つは合いません。どちらが正しいですか？\n{lines}")
        }
        () if is_in('\u{4e00}', '\u{9fff}') => {
            let lines = lines("你", |who, on| format!("{who}，{}月{}日", on.month(), on.day()));
            format!("这两句话对不上，哪一句是对的？\n{lines}")
        }
        () => {
            let lines = lines("you", |who, on| format!("{who}, {}", on.strftime("%-d %B")));
            format!("These two do not fit together. Which of them holds?\n{lines}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_asked_about_in_the_language_of_its_statements() {
        let on = civil::date(2026, 1, 5);
        let ask = |first: &str, second: &str| {
            ask_which(&[
                (true, "Ada".to_owned(), first.to_owned(), on),
                (false, "Ben".to_owned(), second.to_owned(), on),
            ])
        };
        assert_eq!(
            ask("Henrike lives in Oslo.", "Henrike lives in Bergen."),
            "These two do not fit together. Which of them holds?\n- “Henrike lives in Oslo.” (you, 5 January)\n- “Henrike lives in Bergen.” (Ben, 5 January)"
        );
        assert!(ask("小梅住在杭州。", "小梅住在上海。").contains("“小梅住在上海。” (Ben，1月5日)"));
        assert!(ask("由美は神戸に住んでいます。", "由美は京都に住んでいます。").contains("(あなた、1月5日)"));
    }
}
