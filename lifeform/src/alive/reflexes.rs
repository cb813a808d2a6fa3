//! Messages that the lifeform posts by itself, without a model.

use std::sync::Arc;

use store::Hash;

use super::LifeformState;
use crate::LifeformError;
use crate::canvas::{Canvas, Op};
use crate::perception::{PerceivedMessage, Perception, ThreadRef};

impl LifeformState {
    /// Tells a participant, once a minute per topic, that it posts more than the lifeform can read.
    pub(super) async fn say_that_it_passes_over(
        &self,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<(), LifeformError> {
        let minute = self.store.clock().now().as_second().div_euclid(60);
        let content = "You write faster than I can read, so I pass over some of what you wrote just now. Say again in a \
                       minute what matters.";
        self.say_by_reflex(place, said, &format!("pace_{minute}"), content.into(), None).await
    }

    /// Posts that the lifeform is dormant, once per dormancy. This needs no model.
    pub(super) async fn say_that_it_rests(&self, perception: &Perception) -> Result<(), LifeformError> {
        let content = format!(
            "I am resting: what I have left ({}) does not pay for an answer. A top-up wakes me, and then I will answer.",
            self.free().await?
        );
        let answered = Some(perception.last().message.clone());
        let name = format!("{}", self.head.rests);
        self.say_by_reflex(&perception.place, perception.last(), &name, content, answered).await
    }

    /// Tells a person, once per period of `eco`, why answers are shorter. This needs no model.
    pub(super) async fn say_that_it_is_in_want(&self, perception: &Perception) -> Result<(), LifeformError> {
        let content = "I am running low, so my answers are shorter for now. A top-up restores them.".to_owned();
        let name = format!("want_{}", self.head.wants);
        self.say_by_reflex(&perception.place, perception.last(), &name, content, None).await
    }

    /// Tells the requester that its request waits for an approval, once per job.
    pub(crate) async fn say_that_it_waits(&mut self, job: &Arc<str>) -> Result<(), LifeformError> {
        self.waits.insert(job.clone());
        let Some(thought) = self.attention.thought_by(job).filter(|thought| thought.perception.to_answer()) else {
            return Ok(());
        };
        let content =
            "What you ask for would change something outside, so it waits for an operator's approval.".to_owned();
        let answered = Some(thought.perception.last().message.clone());
        let name = format!("approval_{}", &Hash::of(job.as_bytes()).hex()[..12]);
        self.say_by_reflex(&thought.perception.place, thought.perception.last(), &name, content, answered).await
    }

    /// Posts a message without a model, in response to `said`. Each `name` is posted once per topic.
    pub(super) async fn say_by_reflex(
        &self,
        place: &ThreadRef,
        said: &PerceivedMessage,
        name: &str,
        content: String,
        reply_to: Option<Arc<str>>,
    ) -> Result<(), LifeformError> {
        let ThreadRef { canvas, topic } = place;
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(()) };
        let id: Arc<str> = format!("msg_resting_{}_{name}_{topic}", self.head.id).into();
        let op = word(&canvas, topic, id, content, reply_to);
        match canvas.apply(op, None, None, &self.because(said.source.clone())).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the op for a message that the lifeform posts by itself.
pub(super) fn word(canvas: &Canvas, place: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>) -> Op {
    canvas.kind.rules().message(&canvas.snapshot().state, place, id, content, reply_to)
}
