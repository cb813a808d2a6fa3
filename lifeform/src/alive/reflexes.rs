//! Messages that the lifeform posts by itself, without a model.

use std::sync::Arc;

use fascicles::Waiting;
use fascicles::run::Pause;
use store::Hash;

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
        let answered = Some(perception.last().message.clone());
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

    /// Tells the requester that its request waits for an approval, once per job.
    pub(crate) async fn say_that_it_waits(&mut self, job: &Arc<str>) -> Result<(), LifeformError> {
        self.waits.insert(job.clone());
        let thought = self.attention.thought_by(job).filter(|thought| thought.perception.to_answer()).cloned();
        let Some(thought) = thought else { return Ok(()) };
        let is_unsure = self.fascicles.job(job).await.is_ok_and(|head| waits_unsure(&head.waits));
        let content = match (Language::of(&thought.perception.last().content), is_unsure) {
            (Language::English, true) => {
                "I do not know whether what you asked for was done: the answer got lost. I do not do it again before an operator has \
                 said so."
            }
            (Language::Chinese, true) => "您要我做的事是否已经做成，我不知道：回音丢了。管理员说明之前我不会再做一次。",
            (Language::Japanese, true) => {
                "ご依頼の件が行われたかどうか分かりません。返事が失われました。管理者の判断があるまで、もう一度は行いません。"
            }
            (Language::English, false) => {
                "What you ask for would change something outside, so it waits for an operator's approval."
            }
            (Language::Chinese, false) => "您要我做的事会改动外面的东西，所以要等管理员批准。",
            (Language::Japanese, false) => "ご依頼は外部に変更を加えるため、管理者の承認を待ちます。",
        };
        let content = content.to_owned();
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

/// Returns `true` if a job waits for a word about a call whose outcome is unknown.
fn waits_unsure(waits: &[Waiting]) -> bool {
    let is_unsure = |waiting: &Waiting| match &waiting.wait.pause {
        Pause::Tools { tool_calls } => tool_calls.iter().any(|call| call.unsure),
        Pause::Approval { .. } | Pause::Event { .. } => false,
    };
    waits.iter().any(is_unsure)
}

/// Returns the op for a message that the lifeform posts by itself.
pub(super) fn word(canvas: &Canvas, place: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>) -> Op {
    canvas.kind.rules().message(&canvas.snapshot().state, place, id, content, reply_to)
}
