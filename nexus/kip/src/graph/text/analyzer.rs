//! NFKC, lower case, identifiers split at case changes and underscores, English stems, and for Chinese,
//! Japanese and Korean, which have no spaces to split at, every letter and every pair of neighbours.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Words so common that they say nothing about what a query means, and what is left of "it's" and "don't".
const STOP: [&str; 46] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "did", "do", "doe", "for", "from", "has", "have", "how",
    "i", "in", "is", "it", "me", "my", "of", "on", "or", "that", "the", "they", "this", "to", "was", "we", "what",
    "when", "where", "which", "who", "whose", "why", "will", "with", "you", "your", "s", "t",
];

/// The terms of a text, in order, repeats included.
pub fn terms(text: &str) -> Vec<Arc<str>> {
    let mut found = Vec::new();
    each_term(text, false, &mut |term, _| found.push(term.into()));
    found
}

/// The terms a query asks for, each once, without the words that say nothing unless it has no others. Of writings without
/// spaces the single letters too: they are in so many texts that they only tell apart what the pairs do not.
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

/// Calls `see` with each term and how much of a word it is. An index also takes the single letters of
/// writings without spaces, so that a query of one letter finds them.
pub(super) fn each_term(text: &str, index: bool, see: &mut dyn FnMut(&str, f32)) {
    let normal: Cow<'_, str> =
        if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfkc().collect::<String>()) };
    let (mut word, mut run): (String, Vec<char>) = (String::new(), Vec::new());
    let mut last_lower = false;
    for c in normal.chars().chain([' ']) {
        let spaceless = is_spaceless(c);
        if spaceless || !c.is_alphanumeric() || (c.is_uppercase() && last_lower) {
            flush_word(&mut word, see);
        }
        if spaceless {
            run.push(c);
        } else {
            flush_run(&mut run, index, see);
            if c.is_alphanumeric() {
                word.extend(c.to_lowercase());
            }
        }
        last_lower = c.is_lowercase() || c.is_numeric();
    }
}

fn is_spaceless(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x20000..=0x2fa1f)
}

fn flush_word(word: &mut String, see: &mut dyn FnMut(&str, f32)) {
    if word.is_empty() {
        return;
    }
    // Only words of plain letters have English endings.
    if word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase()) {
        see(&STEMMER.stem(word), 1.0);
    } else {
        see(word, 1.0);
    }
    word.clear();
}

fn flush_run(run: &mut Vec<char>, index: bool, see: &mut dyn FnMut(&str, f32)) {
    let mut buffer = String::with_capacity(8);
    let mut give = |letters: &[char], weight| {
        buffer.clear();
        buffer.extend(letters);
        see(&buffer, weight);
    };
    if run.len() == 1 {
        give(run, 1.0);
    } else {
        run.windows(2).for_each(|pair| give(pair, 1.0));
        if index {
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
    fn a_query_keeps_the_words_that_tell_something() {
        assert_eq!(terms_of_query("What is the name of the boat").join(" "), "name boat");
        assert_eq!(terms_of_query("Dave's shop isn't open").join(" "), "dave shop isn open");
        assert_eq!(terms_of_query("who is it").join(" "), "who is it");
    }
}
