//! A message that consists of a decision about a call that waits for an approval: "Yes.", 好的, いいえ.

use std::sync::{Arc, LazyLock};

use fascicles::PersonsDecision as Decision;
use regex::Regex;

use crate::canvas::State;
use crate::canvas::chat::{self, MessageView};

/// The messages that approve a call.
const YES: [&str; 32] = [
    "yes",
    "yes please",
    "yes, please",
    "ok",
    "okay",
    "sure",
    "go ahead",
    "do it",
    "please do",
    "approve",
    "approved",
    "i approve",
    "是",
    "是的",
    "好",
    "好的",
    "可以",
    "行",
    "同意",
    "批准",
    "确认",
    "没问题",
    "做吧",
    "はい",
    "はい、お願いします",
    "お願いします",
    "承認",
    "承認します",
    "了解",
    "やって",
    "やってください",
    "うん",
];
/// Several words that approve, one after the other: "Yes please, both.", 好的，可以.
static YES_IN_SEVERAL: LazyLock<Regex> = LazyLock::new(|| {
    let yes = "yes|yeah|yep|ok|okay|sure|go ahead|do it|do both|please do|i approve|approved?";
    let beside = "please|both|both of them|all of them|thanks|thank you";
    let english = format!(r"(?:(?:{beside})[,.! ]+)*(?:{yes})(?:[,.! ]+(?:{yes}|{beside}))*");
    let chinese = r"(?:是的?|好的?|可以|行|同意|批准|确认|没问题|做吧|都做吧|请做吧)(?:[，,。 ]*(?:是的?|好的?|可以|行|同意|批准|确认|没问题|做吧|都做吧|请做吧|谢谢|请))*";
    let japanese = r"(?:はい|うん|了解|承認(?:します)?|お願いします|やって(?:ください)?)(?:[、。 ]*(?:はい|両方|全部|お願いします|やって(?:ください)?))*";
    Regex::new(&format!("^(?:{english}|{chinese}|{japanese})$")).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The messages that refuse one.
const NO: [&str; 25] = [
    "no",
    "no thanks",
    "no, thanks",
    "no thank you",
    "don't",
    "do not",
    "don't do it",
    "do not do it",
    "refuse",
    "refused",
    "not now",
    "不",
    "不要",
    "不行",
    "不可以",
    "不用了",
    "不同意",
    "拒绝",
    "别做",
    "いいえ",
    "だめ",
    "だめです",
    "やめて",
    "やめてください",
    "しないで",
];
/// The messages that say that a call was done whose outcome is unknown, that it was not, and that it is left at that.
const DONE: [&str; 9] =
    ["it was done", "it's done", "it is done", "done", "做成了", "已经做了", "做了", "行われました", "できました"];
const NOT_DONE: [&str; 9] = [
    "it was not",
    "it was not done",
    "it wasn't done",
    "not done",
    "没有做成",
    "没做",
    "没有做",
    "行われていません",
    "できていません",
];
const LEFT: [&str; 6] = ["leave it", "leave it at that", "算了", "就这样吧", "そのまま", "そのままでいいです"];

/// Returns the decision that a message consists of, about calls that wait, or whose outcome is unknown.
pub(crate) fn decision_in(content: &str, is_unsure: bool) -> Option<Decision> {
    let words = content.trim().trim_end_matches(['.', '!', '。', '！', '…', '~', '～']).trim().to_lowercase();
    let words = words.replace('’', "'");
    let is_among = |list: &[&str]| list.contains(&words.as_str());
    match is_unsure {
        false if is_among(&NO) => Some(Decision::Refuse),
        false if is_among(&YES) || YES_IN_SEVERAL.is_match(&words) => Some(Decision::Approve),
        true if is_among(&DONE) => Some(Decision::Done),
        true if is_among(&NOT_DONE) => Some(Decision::Approve),
        true if is_among(&LEFT) => Some(Decision::Refuse),
        _ => None,
    }
}

fn asks(content: &str) -> bool {
    content.contains(['?', '？']) || content.trim_end_matches('。').ends_with(['か', '吗', '呢'])
}

/// Returns what a message of the lifeform without a model is about: `approval_…` for a question about an approval, `doubt_…` for
/// the hint below one.
fn reflex<'i>(id: &'i str, lifeform: &str) -> Option<&'i str> {
    id.strip_prefix("msg_resting_")?.strip_prefix(lifeform)?.strip_prefix('_')
}

/// Returns the id of the question about an approval that a message decides: the one to which it is a reply, or the one right above
/// it. Messages of people for which `may_stand_between` is true, and hints, may stand in between.
pub(crate) fn approval_asked_above(
    state: &State,
    topic: &str,
    message: &str,
    lifeform: &str,
    may_stand_between: impl Fn(&MessageView<'_>) -> bool,
) -> Option<Arc<str>> {
    let is_question = |id: &str| reflex(id, lifeform).is_some_and(|about| about.starts_with("approval_"));
    let own = chat::message_in(state, topic, message)?;
    if let Some(to) = own.reply_to() {
        return is_question(to).then(|| to.into());
    }
    let before = chat::messages_in(state, topic).rev().filter(|other| !other.is_streaming() && other.ord() < own.ord());
    let me = format!("lifeform:{lifeform}");
    let is_of_another = |other: &MessageView<'_>| other.sender().starts_with("user:") && other.sender() != own.sender();
    let is_skipped = |other: &MessageView<'_>| {
        let about = reflex(other.id(), lifeform);
        let is_hint = about.is_some_and(|about| about.starts_with("doubt_"));
        // What another person said and was answered may stand between, if the answer asks nothing.
        let answered = other.reply_to().and_then(|id| chat::message_in(state, topic, id));
        let is_answer = about.is_none() && answered.as_ref().is_some_and(is_of_another) && !asks(other.content());
        let is_answered = |said: &MessageView<'_>| {
            let mut all = chat::messages_in(state, topic);
            all.any(|own| own.is_by(&me) && own.reply_to() == Some(said.id()) && !asks(own.content()))
        };
        is_hint
            || is_answer
            || (is_of_another(other) && is_answered(other))
            || (other.sender().starts_with("user:") && may_stand_between(other))
    };
    let above = before.skip_while(is_skipped).map(MessageView::id).next()?;
    is_question(above).then(|| above.into())
}

/// Returns `true` if a message is a reply to another one, or stands right below it but for other words of that kind.
pub(crate) fn is_below(state: &State, topic: &str, message: &str, question: &str) -> bool {
    let Some(own) = chat::message_in(state, topic, message) else { return false };
    if let Some(to) = own.reply_to() {
        return to == question;
    }
    let before = chat::messages_in(state, topic).rev().filter(|other| !other.is_streaming() && other.ord() < own.ord());
    let is_skipped = |other: &MessageView<'_>| other.sender().starts_with("user:") && is_word(other.content());
    before.skip_while(is_skipped).map(|other| other.id() == question).next().unwrap_or(false)
}

/// Returns `true` for a message that consists of a decision.
pub(crate) fn is_word(content: &str) -> bool {
    decision_in(content, false).is_some() || decision_in(content, true).is_some()
}

/// Returns `true` for a question about an approval, and for a word that decided one. Neither says anything to later answers.
pub(crate) fn is_about_an_approval(state: &State, topic: &str, message: MessageView<'_>, lifeform: &str) -> bool {
    let id = message.id();
    let is_reflex = reflex(id, lifeform)
        .is_some_and(|about| ["approval_", "doubt_", "answered_"].iter().any(|kind| about.starts_with(kind)));
    is_reflex
        || (is_word(message.content())
            && approval_asked_above(state, topic, id, lifeform, |other| is_word(other.content())).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_of_nothing_else_decides() {
        for yes in [
            "Yes.",
            "ok",
            "Go ahead!",
            "好的。",
            "はい",
            "Yes, please",
            "Yes please, both.",
            "Ok, go ahead",
            "Sure, do it, thanks!",
            "Both, please do",
            "好的，可以。",
            "はい、両方お願いします",
        ] {
            assert_eq!(decision_in(yes, false), Some(Decision::Approve), "{yes}");
        }
        for no in ["No.", "don’t", "不行！", "いいえ。"] {
            assert_eq!(decision_in(no, false), Some(Decision::Refuse), "{no}");
        }
        for other in [
            "Yes, but for two people",
            "no idea",
            "Great, thanks",
            "Ok, all good",
            "both",
            "ok no",
            "yes and book a table, too",
            "Is that ok?",
            "yes?",
            "好像不对",
            "it was done",
            "",
        ] {
            assert_eq!(decision_in(other, false), None, "{other}");
        }
        // A bare yes says nothing about a call whose outcome is unknown.
        for (said, decision) in [
            ("yes", None),
            ("It was done.", Some(Decision::Done)),
            ("it was not done", Some(Decision::Approve)),
            ("算了", Some(Decision::Refuse)),
        ] {
            assert_eq!(decision_in(said, true), decision, "{said}");
        }
    }
}
