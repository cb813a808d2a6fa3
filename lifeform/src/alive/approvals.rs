//! Approvals in the chat: the question with the exact call, and a decision that an approver says in words.

use std::sync::Arc;

use fascicles::{FascicleError, Question, approval_id};
use neurons::neuron::ToolCall;
use store::Hash;

use super::LifeformState;
use crate::LifeformError;
use crate::canvas::chat;
use crate::perception::{Change, PerceivedMessage, ThreadRef, decision_in};
use crate::reminders::Language;

/// The maximum length of a call in a question, in characters.
const CALL_CHARS_MAX: usize = 600;

impl LifeformState {
    /// Asks for the approval of the calls that a job waits for, once per wait, with exactly what is to be sent.
    pub(crate) async fn say_that_it_waits(&mut self, job: &Arc<str>) -> Result<(), LifeformError> {
        self.waits.insert(job.clone());
        let thought = self.attention.thought_by(job).filter(|thought| thought.perception.to_answer()).cloned();
        let (Some(thought), Some((id, calls))) = (thought, self.calls_of(job).await) else { return Ok(()) };
        let said = thought.perception.last();
        let asker_decides = self.approves_own(&said.sender);
        let language = Language::of(&said.content);
        let is_unsure = calls.iter().all(|call| call.unsure);
        let content = match is_unsure {
            true => doubt(language),
            false => question(language, asker_decides),
        };
        let shown: Vec<String> = calls.iter().map(written).collect();
        let content = format!("{content}\n\n{}", shown.join("\n"));
        let answered = Some(said.message.clone());
        self.say_by_reflex(&thought.perception.place, said, &name_of(&id), content, answered).await
    }

    /// Takes a message as the decision about the calls that the answer in its topic waits for, if it consists of one, comes from
    /// an approver, and stands directly below the question or is a reply to it. Returns `true` if it was one.
    pub(super) async fn hear_decision(
        &mut self,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<bool, LifeformError> {
        if said.change != Change::New || !said.sender.starts_with("user:") {
            return Ok(false);
        }
        let Some(job) = self.attention.thought(place).map(|thought| thought.job.clone()) else { return Ok(false) };
        if !self.waits.contains(&job) {
            return Ok(false);
        }
        let Some((id, calls)) = self.calls_of(&job).await else { return Ok(false) };
        let is_unsure = calls.iter().all(|call| call.unsure);
        let Some(decision) = decision_in(&said.content, is_unsure) else { return Ok(false) };
        if !self.is_about(place, said, &name_of(&id)) {
            return Ok(false);
        }
        let who = self.fascicles.neurons().principal(&said.sender);
        match self.fascicles.decide_approval(&who, &id, decision, None).await {
            Ok(_) => Ok(true),
            // Who may not decide speaks like anybody else.
            Err(FascicleError::NotApprover | FascicleError::NoWait | FascicleError::JobNotFound(_)) => Ok(false),
            Err(error) => {
                tracing::warn!(lifeform = %self.head.id, %job, %error, "a decision is not taken");
                Ok(false)
            }
        }
    }

    /// Returns the calls that a job waits for, with the id of the approval.
    async fn calls_of(&self, job: &Arc<str>) -> Option<(Arc<str>, Vec<ToolCall>)> {
        let head = self.fascicles.job(job).await.ok()?;
        let ids = head.waits.iter().map(|waiting| approval_id(job, waiting.wait.n));
        for id in ids {
            let approval = self.fascicles.approval(&head.origin.principal, &id).await.ok()?;
            if let Question::Calls(calls) = approval.question {
                return Some((id, calls));
            }
        }
        None
    }

    /// Returns `true` if a message is a reply to the question, or stands directly below it.
    fn is_about(&self, place: &ThreadRef, said: &PerceivedMessage, name: &str) -> bool {
        let Some(canvas) = self.canvases.get(&place.canvas) else { return false };
        let state = canvas.snapshot().state;
        let question = self.reflex_id(&place.topic, name);
        let replies = chat::message_in(&state, &place.topic, &said.message)
            .and_then(|message| message.reply_to().map(|to| *to == *question));
        let before = chat::messages_in(&state, &place.topic)
            .filter(|message| message.created_rev().is_some_and(|rev| rev < said.rev))
            .filter(|message| message.is_said())
            .max_by_key(|message| message.created_rev());
        replies.unwrap_or_else(|| before.is_some_and(|message| *message.id() == *question))
    }

    /// Returns `true` if a principal may approve what it asked for itself.
    fn approves_own(&self, who: &str) -> bool {
        who.starts_with("user:") && (self.trusts(who) || self.participant(who).is_none())
    }
}

/// Returns the name of the question about an approval.
fn name_of(approval: &str) -> String {
    format!("approval_{}", &Hash::of(approval.as_bytes()).hex()[..12])
}

/// Returns a call as people read it: the tool, and exactly what is sent.
fn written(call: &ToolCall) -> String {
    let why = call.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let shown: String = call.params.chars().take(CALL_CHARS_MAX).collect();
    let cut = if shown.len() < call.params.len() { "…" } else { "" };
    format!("`{} {shown}{cut}`{why}", call.name)
}

fn question(language: Language, asker_decides: bool) -> &'static str {
    match (language, asker_decides) {
        (Language::English, true) => "This would change something outside. Shall I do it? Yes or no:",
        (Language::Chinese, true) => "这会改动外面的东西。要做吗？请回答“好的”或“不要”：",
        (Language::Japanese, true) => {
            "これは外部に変更を加えます。実行しますか。「はい」か「いいえ」で答えてください："
        }
        (Language::English, false) => {
            "What you ask for would change something outside, so it waits for an operator's approval:"
        }
        (Language::Chinese, false) => "您要我做的事会改动外面的东西，所以要等管理员批准：",
        (Language::Japanese, false) => "ご依頼は外部に変更を加えるため、管理者の承認を待ちます：",
    }
}

fn doubt(language: Language) -> &'static str {
    match language {
        Language::English => {
            "I do not know whether what you asked for was done: the answer got lost. I do not do it again before an operator has \
             said so: \"it was done\", \"it was not done\" or \"leave it\"."
        }
        Language::Chinese => {
            "您要我做的事是否已经做成，我不知道：回音丢了。管理员说明之前我不会再做一次：“做成了”、“没有做成”或“算了”。"
        }
        Language::Japanese => {
            "ご依頼の件が行われたかどうか分かりません。返事が失われました。管理者の判断があるまで、もう一度は行いません：\
             「行われました」「行われていません」「そのまま」。"
        }
    }
}
