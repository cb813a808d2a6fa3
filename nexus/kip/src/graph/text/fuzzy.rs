//! Words that were nearly meant: those that begin so, and those a slip or two away.

use arcstr::ArcStr;
use imbl::OrdMap;

/// Other words taken up for one word of a query.
const EXPANSIONS_MAX: usize = 48;
/// Words looked at in search of a slip; past it the search gives up on them.
const LOOKED_AT_MAX: usize = 400_000;

/// The words that begin with `stem`, shortest first.
pub(super) fn beginning<V: Clone>(words: &OrdMap<ArcStr, V>, stem: &str) -> Vec<ArcStr> {
    let from = ArcStr::from(stem);
    let run = words.range(from..).map(|(word, _)| word).take_while(|word| word.starts_with(stem));
    let mut found: Vec<ArcStr> = run.filter(|word| word.as_str() != stem).take(EXPANSIONS_MAX * 4).cloned().collect();
    found.sort_by_key(|word| word.len());
    found.truncate(EXPANSIONS_MAX);
    found
}

/// The words one slip away from `word`, or two if it is long, with the number of slips. A first letter is
/// seldom wrong, so the words that share it are tried first.
pub(super) fn slips<V: Clone>(words: &OrdMap<ArcStr, V>, word: &str) -> Vec<(ArcStr, usize)> {
    let letters = word.chars().count();
    let slips_max = match letters {
        0..=3 => return Vec::new(),
        4..=6 => 1,
        _ => 2,
    };
    let near = |known: &ArcStr| {
        let longer = known.chars().count().abs_diff(letters);
        (longer <= slips_max).then(|| crate::lang::error::distance(word, known)).filter(|slips| *slips <= slips_max)
    };
    let first = word.chars().next().map(String::from).unwrap_or_default();
    let from = ArcStr::from(first.as_str());
    let same_first = words.range(from..).map(|(known, _)| known).take_while(|known| known.starts_with(first.as_str()));
    let mut found: Vec<(ArcStr, usize)> =
        same_first.take(LOOKED_AT_MAX).filter_map(|known| Some((known.clone(), near(known)?))).collect();
    if found.is_empty() {
        found = words.keys().take(LOOKED_AT_MAX).filter_map(|known| Some((known.clone(), near(known)?))).collect();
    }
    found.sort_by_key(|(_, slips)| *slips);
    found.truncate(EXPANSIONS_MAX);
    found
}
