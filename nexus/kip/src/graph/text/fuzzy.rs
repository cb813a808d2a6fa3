//! Words that were nearly meant: those that begin so, and those a slip or two away.

/// Calls a function with the words from one on, in order, until it answers `false`.
type WordsFrom<'w> = &'w dyn Fn(&str, &mut dyn FnMut(&str) -> bool);

/// Other words taken up for one word of a query.
const EXPANSIONS_MAX: usize = 48;
/// Words looked at in search of a slip; past it the search gives up on them.
const LOOKED_AT_MAX: usize = 400_000;

/// The words that begin with `stem`, shortest first.
pub(super) fn beginning(words_from: WordsFrom<'_>, stem: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    words_from(stem, &mut |word| {
        if word.starts_with(stem) && word != stem {
            found.push(word.to_owned());
        }
        word.starts_with(stem) && found.len() < EXPANSIONS_MAX * 4
    });
    found.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    found.truncate(EXPANSIONS_MAX);
    found
}

/// The words one slip away from `word`, or two if it is long, with the number of slips. A first letter is
/// seldom wrong, so the words that share it are tried first.
pub(super) fn slips(words_from: WordsFrom<'_>, word: &str) -> Vec<(String, usize)> {
    let letters = word.chars().count();
    let slips_max = match letters {
        0..=3 => return Vec::new(),
        4..=6 => 1,
        _ => 2,
    };
    let near = |known: &str| {
        let longer = known.chars().count().abs_diff(letters);
        (longer <= slips_max).then(|| crate::lang::error::distance(word, known)).filter(|slips| *slips <= slips_max)
    };
    let first = word.chars().next().map(String::from).unwrap_or_default();
    let mut found = Vec::new();
    for beginning in [first.as_str(), ""] {
        let mut looked_at = 0;
        words_from(beginning, &mut |known| {
            looked_at += 1;
            if !known.starts_with(beginning) {
                return false;
            }
            found.extend(near(known).map(|slips| (known.to_owned(), slips)));
            looked_at < LOOKED_AT_MAX
        });
        if !found.is_empty() {
            break;
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    found.truncate(EXPANSIONS_MAX);
    found
}
