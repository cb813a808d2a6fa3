//! Detection of endless repetition in a model's output, which is then stopped.

/// The maximum length of a repeated segment, in characters.
const PERIOD_MAX: usize = 400;
/// The minimum number of consecutive repetitions.
const TIMES: usize = 4;
/// The minimum length of all repetitions together, in characters: "no, no, no, no" is emphasis.
const CHARS_MIN: usize = 80;

/// Returns the length in bytes of a text without the repetitions at its end; `None` if it ends with none. Lines of
/// punctuation (rules, tables) do not count.
pub(crate) fn without(text: &str) -> Option<usize> {
    let looked_at = (TIMES + 1) * PERIOD_MAX;
    let tail: Vec<(usize, char)> = {
        let mut tail: Vec<(usize, char)> = text.char_indices().rev().take(looked_at).collect();
        tail.reverse();
        tail
    };
    let count = tail.len();
    let is_same = |one: usize, other: usize, length: usize| (0..length).all(|n| tail[one + n].1 == tail[other + n].1);
    for period in 1..=PERIOD_MAX.min(count / TIMES) {
        let mut times = 1;
        while (times + 1) * period <= count && is_same(count - period, count - (times + 1) * period, period) {
            times += 1;
        }
        let says_something = || tail[count - period..].iter().any(|(_, c)| c.is_alphanumeric());
        if times >= TIMES && times * period >= CHARS_MIN && says_something() {
            let once = count - (times - 1) * period;
            return Some(tail.get(once).map_or(text.len(), |(at, _)| *at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<&str> {
        without(text).map(|end| &text[..end])
    }

    #[test]
    fn what_is_said_again_and_again_is_said_once() {
        let sentence = "You're a friendly companion in a chat. ";
        assert_eq!(shown(&format!("Hello. {}", sentence.repeat(4))), Some(&*format!("Hello. {sentence}")));
        assert_eq!(shown(&format!("Hello. {}", sentence.repeat(3))), None);
        assert_eq!(shown(&"はく".repeat(40)), Some("はく"));
        for fine in [
            "No, no, no, no!",
            "-------------------------------------------------------------------------------------------------",
            "| | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | | ",
            "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30",
            "",
        ] {
            assert_eq!(shown(fine), None, "{fine}");
        }
    }
}
