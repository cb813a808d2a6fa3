//! The scripts of texts, by which the embedder of a mind is chosen.

use std::ops::RangeInclusive;

/// The Latin blocks of Unicode: Basic Latin to Latin Extended-B, and Latin Extended Additional (Vietnamese).
const LATIN: [RangeInclusive<char>; 2] = ['\u{0}'..='\u{24f}', '\u{1e00}'..='\u{1eff}'];
/// The letters of scripts that put no space between words: Thai, Lao, Khmer, kana, Chinese characters.
const WITHOUT_SPACES: [RangeInclusive<char>; 5] = [
    '\u{e00}'..='\u{eff}',
    '\u{1780}'..='\u{17ff}',
    '\u{3040}'..='\u{30ff}',
    '\u{3400}'..='\u{9fff}',
    '\u{20000}'..='\u{3ffff}',
];
/// The number of such letters that count as a word.
const LETTERS_A_WORD: u64 = 2;
/// One of so many words in other scripts than the Latin one makes a mind multilingual.
const ONE_OF: u64 = 10;

/// Returns `true` if most of the letters of a text are Latin; a text without letters counts as Latin.
pub fn is_latin(text: &str) -> bool {
    let letters = text.chars().filter(|c| c.is_alphabetic());
    let (latin, all) = letters.fold((0, 0), |(latin, all), c| (latin + usize::from(is_latin_letter(c)), all + 1));
    2 * latin >= all
}

fn is_latin_letter(c: char) -> bool {
    LATIN.iter().any(|range| range.contains(&c))
}

/// The number of words by script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    latin: u64,
    other: u64,
}

impl Words {
    /// Counts the words of a text: runs of letters, and in scripts without spaces each two letters.
    pub(super) fn count(&mut self, text: &str) {
        let (mut before, mut unspaced) = (None, 0);
        for c in text.chars() {
            let script = c.is_alphabetic().then(|| match c {
                _ if is_latin_letter(c) => Script::Latin,
                _ if WITHOUT_SPACES.iter().any(|range| range.contains(&c)) => Script::Unspaced,
                _ => Script::Other,
            });
            match script {
                Some(Script::Unspaced) => unspaced += 1,
                Some(Script::Latin) if before != script => self.latin += 1,
                Some(Script::Other) if before != script => self.other += 1,
                _ => {}
            }
            before = script;
        }
        self.other += u64::div_ceil(unspaced, LETTERS_A_WORD);
    }

    pub(super) fn add(&mut self, more: Self) {
        self.latin += more.latin;
        self.other += more.other;
    }

    /// Returns `true` if at least a tenth of the words are in other scripts than the Latin one.
    pub(super) fn are_multilingual(self) -> bool {
        self.other > 0 && self.other * ONE_OF >= self.latin + self.other
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Script {
    Latin,
    Unspaced,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_latin_if_most_of_its_letters_are() {
        for text in ["Ada plays the cello.", "Łódź, Gdańsk", "Tôi sống ở Việt Nam", "12 %", "", "Ada (阿达)"]
        {
            assert!(is_latin(text), "{text}");
        }
        for text in ["我住在 Berlin 附近的小镇上", "Где живёт Ада?", "エイダ"] {
            assert!(!is_latin(text), "{text}");
        }
    }

    #[test]
    fn words_are_runs_of_letters_or_two_letters_without_spaces() {
        let count = |text| {
            let mut words = Words::default();
            words.count(text);
            (words.latin, words.other)
        };
        assert_eq!(count("Ada plays the cello, 2 hours a day."), (7, 0));
        assert_eq!(count("我妹妹叫小兰 (Lan)。"), (1, 3));
        assert_eq!(count("Где живёт Ада?"), (0, 3));
        assert_eq!(count("12:30 – 🙂"), (0, 0));
    }

    #[test]
    fn a_tenth_of_other_words_makes_a_mind_multilingual() {
        let words = |latin, other| Words { latin, other }.are_multilingual();
        assert!(words(9, 1) && words(0, 1) && !words(10, 1) && !words(0, 0));
    }
}
