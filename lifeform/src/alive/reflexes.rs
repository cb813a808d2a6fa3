//! Messages that the lifeform posts by itself, without a model.

use std::sync::Arc;

use super::LifeformState;
use crate::LifeformError;
use crate::canvas::{Canvas, Op};
use crate::perception::{PerceivedMessage, Perception, ThreadRef};
use crate::reminders::Language;

impl LifeformState {
    /// Tells a participant, once a minute per topic, that it posts more than the lifeform can read.
    pub(super) async fn say_that_it_passes_over(
        &self,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<(), LifeformError> {
        let minute = self.store.clock().now().as_second().div_euclid(60);
        let content = match Language::of(&said.content) {
            Language::English => {
                "You write faster than I can read, so I pass over some of what you wrote just now. Say again in a minute what matters."
            }
            Language::Chinese => "您写得比我读得快，刚才的一些话我没有读到。请过一分钟再说一遍要紧的。",
            Language::Japanese => {
                "読むのが追いつかず、今の書き込みの一部を飛ばしました。大事なことは一分後にもう一度書いてください。"
            }
        };
        self.say_by_reflex(place, said, &format!("pace_{minute}"), content.into(), None).await
    }

    /// Posts that the lifeform is dormant, once per dormancy. This needs no model.
    pub(super) async fn say_that_it_rests(&self, perception: &Perception) -> Result<(), LifeformError> {
        let free = self.free().await?;
        let content = match Language::of(&perception.last().content) {
            Language::English => format!(
                "I am resting: what I have left ({free}) does not pay for an answer. A top-up wakes me, and then I will answer."
            ),
            Language::Chinese => "我在休息：剩下的额度不够回答了。管理员充值以后我会醒来回答。".to_owned(),
            Language::Japanese => {
                "休んでいます。残りの分では答えられません。管理者が補充すると目を覚まして答えます。".to_owned()
            }
        };
        let answered = perception.last().reply_to();
        let name = format!("{}", self.head.rests);
        self.say_by_reflex(&perception.place, perception.last(), &name, content, answered).await
    }

    /// Tells a person, once per period of `eco`, why answers are shorter. This needs no model.
    pub(super) async fn say_that_it_is_in_want(&self, perception: &Perception) -> Result<(), LifeformError> {
        let content = match Language::of(&perception.last().content) {
            Language::English => "I am running low, so my answers are shorter for now. A top-up restores them.",
            Language::Chinese => "我的额度不多了，所以现在回答得短一些。充值以后会恢复。",
            Language::Japanese => "残りが少ないので、しばらく短く答えます。補充されれば元に戻ります。",
        };
        let content = content.to_owned();
        let name = format!("want_{}", self.head.wants);
        self.say_by_reflex(&perception.place, perception.last(), &name, content, None).await
    }

    /// Returns the id of a message that is posted without a model.
    pub(super) fn reflex_id(&self, topic: &str, name: &str) -> Arc<str> {
        format!("msg_resting_{}_{name}_{topic}", self.head.id).into()
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
        self.post_by_reflex(place, said.source.clone(), name, content, reply_to).await
    }

    /// Posts a message without a model, because of `source`. Each `name` is posted once per topic.
    pub(super) async fn post_by_reflex(
        &self,
        place: &ThreadRef,
        source: Arc<str>,
        name: &str,
        content: String,
        reply_to: Option<Arc<str>>,
    ) -> Result<(), LifeformError> {
        let ThreadRef { canvas, topic } = place;
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(()) };
        let id = self.reflex_id(topic, name);
        let op = word(&canvas, topic, id, content, reply_to);
        match canvas.apply(op, None, None, &self.because(source)).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the op for a message that the lifeform posts by itself.
pub(super) fn word(canvas: &Canvas, place: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>) -> Op {
    canvas.kind.rules().message(&canvas.snapshot().state, place, id, content, reply_to)
}
