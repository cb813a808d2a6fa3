//! The verdicts of people on answers. They count for the records that an answer used, and leave a trace of the tool calls that it made
//! (MISSION P1).

use std::sync::Arc;

use knowledge::{GoalOutcome, KnowledgeError};
use nexus::Provenance;
use store::{Cause, Hash};

use super::{LifeformToolbox, cut, hears, speakers};
use crate::canvas::Canvas;
use crate::canvas::chat::{self, MessageView};
use crate::shared_knowledge::Answer;
use crate::traced_steps::traced_answer;

/// Of the answers that helped, one in this many leaves a trace. Each that did not help leaves one.
const HELPFUL_TRACED: u64 = 5;
/// The maximum length of the question and of the answer in a trace, in characters.
const OBJECTIVE_CHARS: usize = 200;
const RESULT_CHARS: usize = 500;

impl LifeformToolbox {
    /// Counts a person's verdict on an answer: for the records that it used, and as a trace if it called tools. A repetition changes
    /// nothing.
    ///
    /// # Errors
    /// The errors of the commons.
    pub(crate) async fn judge(
        &self,
        (canvas, topic): (&Canvas, &str),
        answer: &Answer,
        (person, helpful): (&str, bool),
        cause: &Cause,
    ) -> Result<(), KnowledgeError> {
        self.knowledge.judged(answer, person, helpful, cause).await?;
        let Some(job) = answer.id.strip_prefix("msg_").filter(|job| is_sampled(job, helpful)) else { return Ok(()) };
        let steps = traced_answer(self.plans.store(), job).await.map_err(nexus::NexusError::from)?;
        if steps.is_empty() {
            return Ok(());
        }
        let state = canvas.snapshot().state;
        let Some(said) = chat::message_in(&state, topic, &answer.id) else { return Ok(()) };
        // What a person asked to forget, or confided, is kept nowhere.
        let shown = |message: MessageView<'_>| {
            let text = self.text_of(canvas, topic, message).filter(|text| !knowledge::is_confided(text));
            text.map(|text| text.into_owned())
        };
        let Some(answered) = shown(said) else { return Ok(()) };
        let asked = said.reply_to().and_then(|id| chat::message_in(&state, topic, id)).and_then(shown);
        let people = speakers(&state, topic);
        let mut provenance =
            Provenance::of_conversation(people.iter().map(String::as_str).filter(|who| hears(who, &self.me)));
        provenance.sources.extend(said.behind().map(str::to_owned).chain([person.to_owned()]));
        let name: Arc<str> = format!("turn.{job}").into();
        let outcome = GoalOutcome {
            name: name.to_string(),
            objective: cut(asked.as_deref().unwrap_or("Answer a message").trim(), OBJECTIVE_CHARS),
            steps,
            result: cut(&answered, RESULT_CHARS),
            success: helpful,
            at: said.at().unwrap_or_default(),
            provenance,
        };
        self.knowledge.record_outcome(&outcome, cause).await
    }
}

/// Returns `true` if the answer of a job leaves a trace. The choice depends on the job alone, so a repetition makes the same.
fn is_sampled(job: &str, helpful: bool) -> bool {
    let hash = u64::from_str_radix(&Hash::of(job.as_bytes()).hex()[..8], 16).unwrap_or_default();
    !helpful || hash.is_multiple_of(HELPFUL_TRACED)
}
