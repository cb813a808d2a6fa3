//! Approximate word matches: words with the same beginning, and words one or two typing errors away.

use std::collections::BTreeSet;

/// A function that calls its argument with the words from a given word on, in order, until the argument returns
/// `false`.
type WordsFrom<'w> = &'w dyn Fn(&str, &mut dyn FnMut(&str) -> bool);
/// A test whether a word exists for the reader. A word that occurs only in hidden elements must not affect the
/// result.
type IsThere<'w> = &'w dyn Fn(&str) -> bool;

/// The maximum number of other words per query word.
const EXPANSIONS_MAX: usize = 48;
/// The maximum number of words examined for typing errors; beyond it, the search ends.
const LOOKED_AT_MAX: usize = 100_000;
/// The size of a code point block; the letters of one alphabet are in one block.
const ALPHABET: u32 = 128;

/// Returns the words that begin with `stem`, shortest first.
pub(super) fn beginning(words_from: WordsFrom<'_>, is_there: IsThere<'_>, stem: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    words_from(stem, &mut |word| {
        if word.starts_with(stem) && word != stem {
            found.push(word.to_owned());
        }
        word.starts_with(stem) && found.len() < EXPANSIONS_MAX * 4
    });
    found.retain(|word| is_there(word));
    found.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    found.truncate(EXPANSIONS_MAX);
    found
}

/// Returns the words one typing error away from `word`, or two if it is long, with the number of errors. The first
/// letter is seldom wrong, so words with the same first letter are tried first, and then words in which only the
/// first letter is wrong.
pub(super) fn slips(words_from: WordsFrom<'_>, is_there: IsThere<'_>, word: &str) -> Vec<(String, usize)> {
    let letters: Vec<char> = word.chars().collect();
    let slips_max = match letters.len() {
        0..=3 => return Vec::new(),
        4..=6 => 1,
        _ => 2,
    };
    let own = Letters::of(word);
    let near = |known: &str| {
        if own.slips_at_least(Letters::of(known)) > slips_max {
            return None;
        }
        Some(crate::lang::error::distance(word, known)).filter(|slips| *slips <= slips_max)
    };
    let mut found: Vec<(String, usize)> = Vec::new();
    let (first, mut looked_at) = (letters[0].to_string(), 0);
    words_from(&first, &mut |known| {
        looked_at += 1;
        let has_first = known.starts_with(&first);
        if has_first {
            found.extend(near(known).map(|slips| (known.to_owned(), slips)));
        }
        has_first && looked_at < LOOKED_AT_MAX
    });
    found.retain(|(known, _)| is_there(known));
    if found.is_empty() {
        found.extend(begun_otherwise(&letters).into_iter().filter(|other| is_there(other)).map(|one| (one, 1)));
    }
    found.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    found.truncate(EXPANSIONS_MAX);
    found
}

/// Returns the words that differ from `letters` only in the first letter: it is another one, missing, superfluous, or
/// swapped with the second.
fn begun_otherwise(letters: &[char]) -> BTreeSet<String> {
    let alphabet = u32::from(letters[0]) / ALPHABET * ALPHABET;
    let others = (alphabet..alphabet + ALPHABET).filter_map(char::from_u32);
    let others = others.filter(|other| other.is_alphanumeric() && !other.is_uppercase() && *other != letters[0]);
    let with = |first: &[char], from: usize| first.iter().chain(&letters[from..]).collect();
    let mut found: BTreeSet<String> = others.flat_map(|other| [with(&[other], 1), with(&[other], 0)]).collect();
    found.extend([with(&[], 1), with(&[letters[1], letters[0]], 2)]);
    found
}

/// The set of letters of a word with their count, which shows quickly that two words are far apart.
#[derive(Clone, Copy)]
struct Letters {
    set: u64,
    count: usize,
}

impl Letters {
    fn of(word: &str) -> Self {
        let (mut set, mut count) = (0, 0);
        for letter in word.chars() {
            set |= 1 << (u32::from(letter) % 64);
            count += 1;
        }
        Self { set, count }
    }

    /// Returns a lower bound of the number of typing errors. One error adds a letter, removes one, or does both.
    fn slips_at_least(self, other: Self) -> usize {
        let only = |one: u64, other: u64| (one & !other).count_ones() as usize;
        only(self.set, other.set).max(only(other.set, self.set)).max(self.count.abs_diff(other.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slips_among(words: &[&str], word: &str) -> Vec<String> {
        slips_of(words, &[], word)
    }

    fn slips_of(words: &[&str], hidden: &[&str], word: &str) -> Vec<String> {
        let mut known = words.to_vec();
        known.sort_unstable();
        let words_from = |first: &str, see: &mut dyn FnMut(&str) -> bool| {
            known.iter().filter(|word| **word >= first).all(|word| see(word));
        };
        let is_there = |word: &str| words.contains(&word) && !hidden.contains(&word);
        slips(&words_from, &is_there, word).into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn one_slip_anywhere_is_mended() {
        let words = ["harbour", "lighthouse", "гавань", "anchor", "an", "zoo"];
        for wrong in ["harbor", "arbour", "jarbour", "aharbour", "ahrbour", "harbuor", "harbourr"] {
            assert_eq!(slips_among(&words, wrong), ["harbour"], "{wrong}");
        }
        assert_eq!(slips_among(&words, "гавнь"), ["гавань"]);
        assert_eq!(slips_among(&words, "завань"), ["гавань"]);
        assert_eq!(slips_among(&words, "nchor"), ["anchor"]);
        assert_eq!(slips_among(&words, "anchorage"), Vec::<String>::new());
        assert_eq!(slips_among(&words, "zo"), Vec::<String>::new());
        // A nearer word that is hidden does not prevent another one from being found.
        let words = ["harbour", "garbour"];
        assert_eq!(slips_of(&words, &[], "garbou"), ["garbour"]);
        assert_eq!(slips_of(&words, &["garbour"], "garbour"), ["harbour"]);
    }
}
