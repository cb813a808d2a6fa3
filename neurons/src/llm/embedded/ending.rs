//! How an answer that is written by a grammar comes to its end. A model as small as these would go on in a name or a list
//! for ever; so once two thirds of its bound are used, it only chooses among what leads to the end.

use super::tokens::Tokens;

/// How much a token leads to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    /// It opens something.
    Away,
    /// It goes on with something.
    Nowhere,
    /// It ends a word or a value.
    On,
    /// It closes a string within a string; within one that is not, it is only a mark.
    Out,
    /// It closes a string, or more.
    Further,
    /// It closes objects, lists and groups.
    Home,
    /// It is the end.
    ToTheEnd,
}

/// See the module.
pub(super) struct Endings(Vec<Leads>);

impl Endings {
    pub(super) fn of(tokens: &Tokens) -> Self {
        let trie = tokens.env.tok_trie();
        let leads = |token: u32| if token == tokens.eos { Leads::ToTheEnd } else { leads(trie.token(token)) };
        Self((0..trie.vocab_size() as u32).map(leads).collect())
    }

    /// Whether an answer of that length should come to its end.
    pub(super) fn are_due(written: usize, most: usize) -> bool {
        written >= most - most / 3
    }

    /// Rules out every token that leads less to the end than another one does. What was ruled out already has no score.
    pub(super) fn prefer(&self, scores: &mut [f32]) {
        let known = || self.0.iter().copied().chain(std::iter::repeat(Leads::Nowhere));
        let possible = scores.iter().zip(known()).filter(|(score, _)| **score > f32::NEG_INFINITY);
        let Some(best) = possible.map(|(_, leads)| leads).max() else { return };
        let worse = scores.iter_mut().zip(known()).filter(|(_, leads)| *leads < best);
        worse.for_each(|(score, _)| *score = f32::NEG_INFINITY);
    }
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
    fn only_what_is_allowed_is_compared() {
        let endings = Endings([&b"("[..], b"a", b"b", b"}"].map(leads).to_vec());
        let none = f32::NEG_INFINITY;
        let mut scores = [3.0, 1.0, 2.0, none];
        endings.prefer(&mut scores);
        assert_eq!(scores, [none, 1.0, 2.0, none]);
        let mut scores = [3.0, 1.0, 2.0, -9.0];
        endings.prefer(&mut scores);
        assert_eq!(scores, [none, none, none, -9.0]);
    }
}
