//! Text analysis: NFKC, lower case, identifiers split at case changes and underscores, and English stems. Chinese,
//! Japanese and Korean have no spaces, so their terms are single letters and pairs of neighbours. Thai, Lao, Khmer
//! and Burmese have fewer letters, and vowels as marks, so their terms are three neighbours.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Stop words, which are too common to be selective, and the remainders of "it's" and "don't".
const STOP: [&str; 46] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "did", "do", "doe", "for", "from", "has", "have", "how",
    "i", "in", "is", "it", "me", "my", "of", "on", "or", "that", "the", "they", "this", "to", "was", "we", "what",
    "when", "where", "which", "who", "whose", "why", "will", "with", "you", "your", "s", "t",
];

/// Returns the terms of a text, in order, with repeats.
///
/// ```
/// let terms = kip::graph::text::terms("Boats in the harbour");
/// assert!(!terms.is_empty());
/// ```
pub fn terms(text: &str) -> Vec<Arc<str>> {
    let mut found = Vec::new();
    each_term(text, false, &mut |term, _| found.push(term.into()));
    found
}

/// Returns the terms of a query without duplicates. Stop words are left out unless the query has no other terms.
/// Single letters of scripts without spaces are included; they are so common that they only refine the ranking of the
/// pairs.
pub fn terms_of_query(text: &str) -> Vec<Arc<str>> {
    let mut all: Vec<Arc<str>> = Vec::new();
    each_term(text, true, &mut |term, _| {
        if !all.iter().any(|known| &**known == term) {
            all.push(term.into());
        }
    });
    let telling: Vec<Arc<str>> = all.iter().filter(|term| !STOP.contains(&&***term)).cloned().collect();
    if telling.is_empty() { all } else { telling }
}

/// Calls `see` with each term and its weight relative to a word. For an index, the terms include the single letters
/// of scripts without spaces, so that a query of one letter finds them.
pub(super) fn each_term(text: &str, index: bool, see: &mut dyn FnMut(&str, f32)) {
    let normal: Cow<'_, str> =
        if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfkc().collect::<String>()) };
    let (mut word, mut run, mut of) = (String::new(), Vec::new(), None);
    let mut last_lower = false;
    for c in normal.chars().chain([' ']) {
        let spaceless = Spaceless::of(c);
        if spaceless.is_some() || !c.is_alphanumeric() || (c.is_uppercase() && last_lower) {
            flush_word(&mut word, see);
        }
        if let (Some(before), true) = (of, spaceless != of) {
            flush_run(&mut run, before, index, see);
        }
        of = spaceless;
        if spaceless.is_some() {
            run.push(c);
        } else {
            if c.is_alphanumeric() {
                word.extend(c.to_lowercase());
            }
        }
        last_lower = c.is_lowercase() || c.is_numeric();
    }
}

/// A script without spaces between words.
#[derive(Clone, Copy, PartialEq)]
enum Spaceless {
    /// Chinese, Japanese, Korean: many letters, so two neighbours are selective.
    Cjk,
    /// Thai, Lao, Burmese, Khmer: few letters, with marks on them.
    Marked,
}

impl Spaceless {
    fn of(c: char) -> Option<Self> {
        match u32::from(c) {
            0x3040..=0x30ff
            | 0x3400..=0x4dbf
            | 0x4e00..=0x9fff
            | 0xac00..=0xd7af
            | 0xf900..=0xfaff
            | 0x20000..=0x2fa1f => Some(Self::Cjk),
            // Punctuation and digits are excluded.
            0x0e01..=0x0e3a
            | 0x0e40..=0x0e4e
            | 0x0e81..=0x0ecf
            | 0x0edc..=0x0edf
            | 0x1000..=0x103f
            | 0x1050..=0x108f
            | 0x1780..=0x17d3 => Some(Self::Marked),
            _ => None,
        }
    }

    /// Returns the number of neighbouring letters in a term.
    fn length(self) -> usize {
        match self {
            Self::Cjk => 2,
            Self::Marked => 3,
        }
    }
}

fn flush_word(word: &mut String, see: &mut dyn FnMut(&str, f32)) {
    if word.is_empty() {
        return;
    }
    // Only words of plain ASCII letters can have English endings.
    if word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase()) {
        see(&STEMMER.stem(word), 1.0);
    } else {
        see(word, 1.0);
    }
    word.clear();
}

fn flush_run(run: &mut Vec<char>, of: Spaceless, index: bool, see: &mut dyn FnMut(&str, f32)) {
    let mut buffer = String::with_capacity(8);
    let mut give = |letters: &[char], weight| {
        buffer.clear();
        buffer.extend(letters);
        see(&buffer, weight);
    };
    if run.len() < of.length() {
        give(run, 1.0);
    } else {
        run.windows(of.length()).for_each(|some| give(some, 1.0));
        if index && of == Spaceless::Cjk {
            run.iter().for_each(|one| give(std::slice::from_ref(one), 0.25));
        }
    }
    run.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> String {
        terms(text).join(" ")
    }

    #[test]
    fn identifiers_are_split_and_words_are_stemmed() {
        assert_eq!(
            joined("belongs_to_domain risk-levels HTTPServer userName"),
            "belong to domain risk level httpserver user name"
        );
        assert_eq!(joined("item_000012"), "item 000012");
    }

    #[test]
    fn writings_without_spaces_become_pairs() {
        assert_eq!(joined("上海港 at 港"), "上海 海港 at 港");
        assert_eq!(joined("ファイル"), "ファ ァイ イル");
        assert_eq!(joined("ｆｕｌｌ　ｗｉｄｔｈ"), "full width");
    }

    #[test]
    fn writings_with_marks_become_threes() {
        assert_eq!(joined("เรือใบ ชื่อ"), "เรื รือ ือใ อใบ ชื่ ื่อ");
        assert_eq!(joined("ໝາ at 12 ឆ្មា"), "ຫມາ at 12 ឆ្ម ្មា");
        let (text, asked) = (terms("ฉันมีเรือใบลำหนึ่งชื่อนกนางแอ่น"), terms_of_query("เรือใบ"));
        assert!(asked.iter().all(|term| text.contains(term)), "{asked:?}");
    }

    #[test]
    fn a_query_keeps_the_words_that_tell_something() {
        assert_eq!(terms_of_query("What is the name of the boat").join(" "), "name boat");
        assert_eq!(terms_of_query("Dave's shop isn't open").join(" "), "dave shop isn open");
        assert_eq!(terms_of_query("who is it").join(" "), "who is it");
    }
}
