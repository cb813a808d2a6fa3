//! The display names of the users of a chat.

use serde_json::json;
use store::{Principal, PrincipalKind};
use unicode_normalization::UnicodeNormalization;
use unicode_security::confusable_detection::skeleton;

use super::put;
use crate::canvas::state::escape;
use crate::canvas::user::{UserView, users_in};
use crate::canvas::{Edit, Refusal, State, WriteContext};

/// The names that nobody may take besides the principals of that name.
const RESERVED_NAMES: [&str; 9] =
    ["operator", "system", "daemon", "self", "user", "the user", "assistant", "tool", "outside"];
/// The maximum number of words in a name. A longer one is a sentence.
const NAME_WORDS_MAX: usize = 5;

/// Returns `true` for a sign that parts a name from what is said in prompts, or ends the quotation around it.
fn parts_a_sentence(c: char) -> bool {
    (c.is_ascii_punctuation() && !matches!(c, '.' | '-' | '_' | '\'' | '&' | '+'))
        || matches!(
            c,
            '“' | '”'
                | '„'
                | '«'
                | '»'
                | '「'
                | '」'
                | '『'
                | '』'
                | '《'
                | '》'
                | '【'
                | '】'
                | '。'
                | '、'
                | '…'
        )
}

/// Returns the form in which names are compared: names that look alike have the same form (UTS #39 §4). Signs and
/// spaces do not count, unless there is nothing else.
fn look_of(name: &str) -> String {
    let plain: String = name.nfkc().collect::<String>().to_lowercase();
    let alike: String = skeleton(&plain).flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()).collect();
    if alike.is_empty() { plain } else { alike }
}

/// Returns `true` for a character that changes how a text looks or runs without being seen. The joiners, which some
/// scripts and emoji need, are allowed.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Sets the display name of a principal. Any op of an unknown principal adds it to the users.
///
/// # Errors
/// A [`Refusal`] for a name that is invalid, or that another principal has or looks to have.
pub(super) fn name_user(state: &State, name: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    if name.trim().is_empty() || name.chars().count() > 80 || name.contains(is_unseen) {
        return Err(Refusal::schema("name", "a name is 1 to 80 characters, all of them visible"));
    }
    // A model and a reader tell people apart by their names. The lifeforms of this daemon bring those of their
    // definitions.
    let look = look_of(name);
    let is_same = |other: &str| look_of(other) == look;
    let own = ask.who.id.0.split_once(':').map_or("", |(_, own)| own);
    let is_others = |user: UserView<'_>| {
        user.id() != Some(&ask.who.id.0) && [user.name(), user.id()].into_iter().flatten().any(is_same)
    };
    let is_reserved = RESERVED_NAMES.iter().any(|reserved| is_same(reserved) && !own.eq_ignore_ascii_case(reserved));
    let plain: String = name.nfkc().collect();
    let is_id = Principal::parse_id(plain.trim()).is_ok() && *plain.trim() != *ask.who.id.0;
    let lives_here = ask.who.kind == PrincipalKind::Lifeform && !ask.who.guest;
    // The host takes part under its name before it has written anything.
    let is_hosts = ask.who.id != ask.host.id && is_same(&ask.host.name);
    if !lives_here && (is_id || is_reserved || is_hosts || users_in(state).any(is_others)) {
        return Err(Refusal::State(format!("the name {name} is taken here: choose another")));
    }
    if !lives_here && (plain.contains(parts_a_sentence) || plain.split_whitespace().count() > NAME_WORDS_MAX) {
        let why = format!("a name is at most {NAME_WORDS_MAX} words, without colons, quotation marks and brackets");
        return Err(Refusal::schema("name", why));
    }
    Ok(put(format!("/users/{}/name", escape(&ask.who.id.0)), json!(name)))
}
