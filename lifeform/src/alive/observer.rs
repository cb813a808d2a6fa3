//! `$system` observes the talks, and steps in by a marked message where its directives ask for it: to correct a harmful
//! path, and no more. The rule is plain code and costs no tokens.

use store::{Cause, Hash};

use super::LifeformState;
use super::reflexes::word;
use crate::LifeformError;
use crate::canvas::chat;
use crate::maintenance::gardener;
use crate::metabolism::Mode;
use crate::perception::{ActiveReply, Perception};

/// The number of equal answers after which `$system` steps in, the number of latest messages that it examines, and the
/// minimum length of an answer that counts, in characters.
const EQUAL_ANSWERS: usize = 3;
const LOOKED_AT: usize = 8;
const ANSWER_CHARS_MIN: usize = 40;

impl LifeformState {
    /// Steps in where the lifeform repeats itself: it would do so again, because its prompt holds its own words.
    pub(super) async fn observe(&self, thought: &ActiveReply) -> Result<(), LifeformError> {
        let Perception { place, supply, by_memory, .. } = &thought.perception;
        // A quotation is the same each time, and rightly so.
        if *by_memory || supply.small || supply.mode == Mode::Eco || thought.perception.is_answered_by_rule() {
            return Ok(());
        }
        let Some(canvas) = self.canvases.get(&place.canvas).filter(|canvas| canvas.kind.is(chat::NAME)) else {
            return Ok(());
        };
        let state = canvas.snapshot().state;
        let last: Vec<chat::MessageView<'_>> =
            chat::messages_in(&state, &place.topic).rev().filter(|message| message.is_said()).take(LOOKED_AT).collect();
        let mut own = last.iter().filter(|message| message.is_by(&self.me.id.0));
        let Some(newest) = own.next().filter(|answer| answer.content().chars().count() >= ANSWER_CHARS_MIN) else {
            return Ok(());
        };
        let mut asked: Vec<&str> = last
            .iter()
            .filter(|message| !message.is_by(&self.me.id.0))
            .map(|message| message.content().trim())
            .collect();
        asked.sort_unstable();
        // The same question has the same answer.
        let is_asked_again = asked.windows(2).any(|two| two[0] == two[1]);
        let is_observed = is_asked_again || last.iter().any(|message| message.sender() == "system:gardener");
        if is_observed || own.filter(|answer| answer.content() == newest.content()).count() + 1 < EQUAL_ANSWERS {
            return Ok(());
        }
        let content =
            "The same answer was given three times here. Read the last message again: answer it in new words, or \
                       ask what is meant."
                .to_owned();
        let id = format!("msg_system_{}", &Hash::of(newest.id().as_bytes()).hex()[..16]).into();
        let op = word(&canvas, &place.topic, id, content, None);
        let origin = gardener(Cause::of(format!("job:{}", thought.job)));
        match canvas.apply(op, None, None, &origin).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
