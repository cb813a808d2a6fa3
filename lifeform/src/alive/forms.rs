//! The words in which a person is asked the form of a server, and answers it.

use fascicles::PersonsDecision;
use neurons::tools::Form;
use serde_json::{Value, json};

use super::approvals::in_code;
use crate::perception::{decision_in, is_stop};
use crate::reminders::Language;

/// Returns the question of a server as people read it. Its words are a stranger's, and stand as code.
pub(super) fn question(language: Language, form: &Form) -> String {
    let (server, message) = (in_code(&form.server), in_code(&form.message));
    let asks = match language {
        Language::English => format!("To go on, the server {server} asks: {message}"),
        Language::Chinese => format!("服务器{server}要继续，先问：{message}"),
        Language::Japanese => format!("続けるために、サーバー{server}が尋ねています：{message}"),
    };
    format!("{asks}\n\n{}", fields(language, form))
}

/// Returns the fields of a form, and how they are answered.
fn fields(language: Language, form: &Form) -> String {
    let fields = form.fields();
    let is_truth = form.asks_yes_or_no().is_some();
    let how = match (language, fields.len()) {
        (Language::English, 1) if is_truth => "Yes or no?",
        (Language::Chinese, 1) if is_truth => "请回答“是”或“不”。",
        (Language::Japanese, 1) if is_truth => "「はい」か「いいえ」でお答えください。",
        (Language::English, 1) => "Please answer with the value alone; \"no\" gives no answer.",
        (Language::English, _) => "Please answer with a line \"field: value\" for each; \"no\" gives no answer.",
        (Language::Chinese, 1) => "请直接回答这个值；“不要”表示不回答。",
        (Language::Chinese, _) => "请每项一行，写“字段：值”；“不要”表示不回答。",
        (Language::Japanese, 1) => "値だけをお答えください。「いいえ」なら答えません。",
        (Language::Japanese, _) => "一行に一つ「項目：値」の形でお答えください。「いいえ」なら答えません。",
    };
    let line = |(name, about): &(String, String)| match about.is_empty() {
        true => format!("- {}", in_code(name)),
        false => format!("- {}: {}", in_code(name), in_code(about)),
    };
    format!("{}\n\n{how}", fields.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Returns the hint below an answer that does not fit.
pub(super) fn again(language: Language, form: &Form, fault: &str) -> String {
    let fault = if fault.is_empty() { String::new() } else { format!("{}\n\n", in_code(fault)) };
    format!("{fault}{}", fields(language, form))
}

/// Returns the words for people who do not answer the form.
pub(super) fn asks_an_operator(language: Language) -> &'static str {
    match language {
        Language::English => "To do this, a server asks something that an operator answers first.",
        Language::Chinese => "要做这件事，服务器先问了一个问题，要等管理员回答。",
        Language::Japanese => "これを行うためにサーバーが質問しており、管理者の回答を待ちます。",
    }
}

/// Returns the decision that a message is about a form, with the answers as JSON text. Words that decide something, or stop it, are no
/// answers in themselves.
///
/// # Errors
/// The fault of the answers; empty if the message holds none.
pub(super) fn heard(form: &Form, content: &str) -> Result<(PersonsDecision, Option<String>), String> {
    let (plain, left) = (decision_in(content, false), decision_in(content, true));
    let answers = match (form.asks_yes_or_no(), plain) {
        (Some(field), Some(word)) => Some(json!({field: word == PersonsDecision::Approve})),
        (None, Some(PersonsDecision::Refuse)) => return Ok((PersonsDecision::Refuse, None)),
        _ if left == Some(PersonsDecision::Refuse) || is_stop(content) => return Ok((PersonsDecision::Refuse, None)),
        (None, Some(_)) => None,
        _ if left.is_some() => None,
        _ => form.read(content).map(Value::Object),
    };
    let answers = answers.ok_or_else(String::new)?;
    form.check(&answers)?;
    Ok((PersonsDecision::Answer, Some(answers.to_string())))
}

/// Returns the words below an answer that was taken.
pub(super) fn passed_on(language: Language, form: &Form) -> String {
    let server = in_code(&form.server);
    match language {
        Language::English => format!("I passed it on to {server}."),
        Language::Chinese => format!("已转告{server}。"),
        Language::Japanese => format!("{server}に伝えました。"),
    }
}
