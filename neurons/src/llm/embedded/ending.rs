//! The end of an answer that is constrained by a grammar. A small model might continue a name or a list endlessly.
//! After two thirds of the token limit, it may choose only tokens that lead to the end: at first only between words,
//! and near the limit also within them. Numbers are never cut, since that would change them. Commands that write are
//! never cut either. Both end when the model ends them, or fail.

use nexus::kip::lang::parser::seems_to_write;

use super::tokens::Tokens;

/// The degree to which a token leads to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    /// The token opens a structure.
    Away,
    /// The token continues a value.
    Nowhere,
    /// The token ends a word or a value.
    On,
    /// The token closes a string within a string. Elsewhere it is a plain quotation mark.
    Out,
    /// The token closes a string, possibly with further structures.
    Further,
    /// The token closes objects, lists and groups.
    Home,
    /// The token is the end of the text.
    ToTheEnd,
}

/// The effects of all tokens on the end of an answer: see the module.
pub(super) struct Endings {
    leads: Vec<Leads>,
    /// `true` for each token that continues the preceding word.
    goes_on: Vec<bool>,
}

impl Endings {
    pub(super) fn of(tokens: &Tokens) -> Self {
        let trie = tokens.env.tok_trie();
        let all = || (0..trie.vocab_size() as u32).map(|token| (token, trie.token(token)));
        let leads = all().map(|(token, text)| if token == tokens.eos { Leads::ToTheEnd } else { leads(text) });
        Self { leads: leads.collect(), goes_on: all().map(|(_, text)| text.first().is_some_and(in_a_word)).collect() }
    }

    /// Removes every token that leads less to the end than another allowed token, once the limit is near. `said` is the
    /// answer so far, `used` the used share of its limit. Tokens that the grammar forbids already have no score.
    pub(super) fn prefer(&self, scores: &mut [f32], said: &[u8], used: f64) {
        let in_word = said.last().is_some_and(in_a_word);
        if used < DUE || said.last().is_some_and(u8::is_ascii_digit) || seems_to_write(command(said)) {
            return;
        }
        let best = (0..scores.len()).max_by(|one, other| scores[*one].total_cmp(&scores[*other]));
        if used < PRESSING && in_word && best.and_then(|best| self.goes_on.get(best)) == Some(&true) {
            return;
        }
        let text = closers_are_text(said);
        let here = move |leads: Leads| if text && leads == Leads::Home { Leads::Nowhere } else { leads };
        let known = || self.leads.iter().copied().map(here).chain(std::iter::repeat(Leads::Nowhere));
        let possible = scores.iter().zip(known()).filter(|(score, _)| **score > f32::NEG_INFINITY);
        let Some(best) = possible.map(|(_, leads)| leads).max() else { return };
        let worse = scores.iter_mut().zip(known()).filter(|(_, leads)| *leads < best);
        worse.for_each(|(score, _)| *score = f32::NEG_INFINITY);
    }
}

/// The used share of the limit from which an answer must end, and the share from which words may be cut.
const DUE: f64 = 2.0 / 3.0;
const PRESSING: f64 = 5.0 / 6.0;

fn in_a_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii()
}

/// Returns `true` if closing brackets are plain text after `said`, which holds within a string without open brackets. A
/// command is a string in a tool call; in it, this holds only within the command's own strings.
fn closers_are_text(said: &[u8]) -> bool {
    let (mut outer, mut inner, mut slashes, mut open) = (false, false, 0_u32, 0_u32);
    for byte in said {
        match byte {
            b'"' if slashes == 1 => inner ^= outer,
            // A quotation mark within a string of a command.
            b'"' if slashes > 1 && slashes % 2 == 1 => {}
            b'"' => (outer, inner, open) = (!outer, false, 0),
            b'(' | b'[' | b'{' if !inner => open += 1,
            b')' | b']' | b'}' if !inner => open = open.saturating_sub(1),
            _ => {}
        }
        slashes = if *byte == b'\\' { slashes + 1 } else { 0 };
    }
    outer && (inner || open == 0)
}

/// Returns the KIP text in an answer: the whole answer, or the command of a tool call.
fn command(said: &[u8]) -> &str {
    let said = std::str::from_utf8(said).unwrap_or_default();
    said.split_once(r#""arguments":{"command":""#).map_or(said, |(_, command)| command)
}

fn leads(token: &[u8]) -> Leads {
    let made_of = |bytes: &[u8]| !token.is_empty() && token.iter().all(|byte| bytes.contains(byte));
    if made_of(b"})]") {
        Leads::Home
    } else if made_of(b"\"})]") && token.iter().filter(|byte| **byte == b'"').count() == 1 && token[0] == b'"' {
        Leads::Further
    } else if token == b"\\\"" {
        Leads::Out
    } else if made_of(b" ") || made_of(b",") {
        Leads::On
    } else if token.iter().any(|byte| b"({[!".contains(byte)) {
        Leads::Away
    } else {
        Leads::Nowhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_closes_more_leads_further() {
        let ordered: [&[u8]; 6] = [b" {", b"Lisbon", b" ", b"\\\"", b"\"}", b"]}"];
        assert!(ordered.windows(2).all(|pair| leads(pair[0]) < leads(pair[1])));
        assert_eq!(leads(b"\"\""), Leads::Nowhere, "it closes a string and opens another");
        assert_eq!(leads(b"]\""), Leads::Nowhere);
    }

    #[test]
    fn a_forced_ending_cuts_no_number_string_or_write_command() {
        let tokens = [&b"("[..], b"a", b" b", b"}"];
        let endings =
            Endings { leads: tokens.map(leads).to_vec(), goes_on: tokens.map(|text| in_a_word(&text[0])).to_vec() };
        let none = f32::NEG_INFINITY;
        let left = |scores: [f32; 4], said: &str, used: f64| {
            let mut scores = scores;
            endings.prefer(&mut scores, said.as_bytes(), used);
            scores.map(|score| score > none)
        };
        assert_eq!(left([3.0, 1.0, 2.0, none], "x ", 0.7), [false, true, true, false]);
        assert_eq!(left([3.0, 1.0, 2.0, -9.0], "x ", 0.7), [false, false, false, true]);
        assert_eq!(left([3.0, 1.0, 2.0, -9.0], "x ", 0.5), [true; 4], "it is not time yet");
        assert_eq!(left([0.0, 3.0, 2.0, -9.0], "Lisb", 0.7), [true; 4], "a word goes on");
        assert_eq!(left([0.0, 3.0, 2.0, -9.0], "Lisb", 0.9), [false, false, false, true], "but not for ever");
        assert_eq!(left([0.0, 1.0, 2.0, -9.0], "60", 0.9), [true; 4], "a number is another one when it is cut");
        let word = r#"{"facts":[{"statement":"[one] by "#;
        assert_eq!(left([0.0, 1.0, 2.0, -9.0], word, 0.9), [false, true, true, true], "a bracket ends no string");
        let call = r#"{"name":"mind","arguments":{"command":"FIND(?d) WHERE { ?d {type: \"Dr "#;
        assert_eq!(left([0.0, 1.0, 2.0, -9.0], call, 0.9), [false, true, true, true], "nor one in a command");
        let call = r#"{"name":"mind","arguments":{"command":"FIND(?d) WHERE { ?d {type: \"Drug\"} "#;
        assert_eq!(left([0.0, 1.0, 2.0, -9.0], call, 0.9), [false, false, false, true], "it closes the command's");
        let call = r#"{"name":"mind","arguments":{"command":"DELETE CONCEPT ?d DETACH WHERE { ?d {type: \"Drug\" "#;
        assert_eq!(left([0.0, 1.0, 2.0, -9.0], call, 0.9), [true; 4], "what writes would do more than was meant");
    }
}
