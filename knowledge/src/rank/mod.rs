//! The ranking of passages that may answer a question: the statements that a lifeform recalls, and the records that the
//! hybrid search of the commons finds. Words and meaning are mixed by how much of the question the words cover; the time,
//! the speaker, the kind of answer and the passages of the same sitting move them. `docs/src/internals/knowledge.md`
//! explains it, and `benches/README.md` has the measurements.

mod question;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use nexus::kip::graph::text::{terms, terms_of_query};
pub use question::asks;
use question::{Signs, only_asks};
use store::Timestamp;

/// The weight of words if they cover nothing, its growth with the covered share, and the share from which on it is whole.
const WORDS_LEAST: f64 = 0.15;
const WORDS_MORE: f64 = 0.45;
const SHARE_WHOLE: f64 = 0.4;
/// The growth in scripts that are not Latin: pairs of letters cover much of a passage that answers, and little of others.
const WORDS_MORE_IN_PAIRS: f64 = 0.75;
/// The weight of words where the embedder does not read the script of the question.
const WORDS_UNREAD: f64 = 0.6;
/// The share of a passage's own words in the word score; the rest is that of the words with its neighbours.
const OWN_WORDS: f64 = 0.3;
/// The share of the search's score that a passage with none of the question's words itself keeps.
const FOUND_OTHERWISE: f64 = 0.5;
/// The weights of the further signs.
const OWN: f64 = 0.1;
const LINKED: f64 = 0.3;
const SITTING: f64 = 0.3;
const DATES: f64 = 0.5;
const SPEAKER: f64 = 0.1;
const KIND: f64 = 0.25;
const ANSWERS: f64 = 0.25;
const ONLY_ASKS: f64 = -0.1;
/// The number of the best passages of a sitting whose mean is the score of the sitting.
const SITTING_BEST: usize = 3;
/// The pause, in seconds, that ends a sitting.
const PAUSE_S: i64 = 4 * 3_600;
/// The places, from 0, that the nearest meaning takes if words alone would not bring it there.
const BY_MEANING: [usize; 3] = [3, 10, 11];
/// The number of characters of a text whose words are counted.
const COUNTED_CHARS: usize = 4_000;
/// BM25's saturation of repeated words and its penalty for length.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// A question to rank passages for.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The text.
    pub text: &'a str,
    /// The day on which it is asked, from which dates without a year count.
    pub today: Date,
    /// `true` if the embedder reads the script of the question.
    pub is_read: bool,
}

/// A passage that may answer a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passage<'a> {
    /// The text.
    pub text: &'a str,
    /// The texts around it, the one before it first; empty if they are unknown or of something else.
    pub around: Vec<&'a str>,
    /// The score of its words in the search, from 0 to 1.
    pub words: f64,
    /// The similarity of meaning; `None` if it is unknown.
    pub meaning: Option<f64>,
    /// The time at which it was said, if it was said in a talk. Passages of one talk without a long pause are a sitting.
    pub said_at: Option<Timestamp>,
    /// The days of which it speaks.
    pub days: Vec<Date>,
    /// The name of its speaker; empty if it is unknown.
    pub speaker: &'a str,
    /// `true` if the asking person is the speaker.
    pub is_own: bool,
    /// `true` if it speaks of one whom the question mentions, by name or by a relation.
    pub is_linked: bool,
}

/// One passage in the order of a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The place of the passage in the list that was ranked.
    pub at: usize,
    /// The score of its rank. Scores do not rise from one rank to the next: one that meaning brought up has the score of
    /// that rank.
    pub score: f64,
    /// The score of the passage itself.
    pub own: f64,
}

/// The ranks of passages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// The passages, best first.
    pub order: Vec<Ranked>,
    /// The weight of words, from 0 to 1; that of meaning is the rest.
    pub words: f64,
}

/// Ranks passages by how well they answer a question. Of two equal ones, the one with the lower place comes first.
pub fn rank(question: Question<'_>, passages: &[Passage<'_>]) -> Ranking {
    // In a talk of the past, "in May" is the last May of the talk.
    let last = passages.iter().filter_map(|passage| passage.said_at).max().map(|at| at.to_zoned(TimeZone::UTC).date());
    let signs = Signs::of(question.text, question.today, last.filter(|last| *last < question.today));
    let Words { scores: by_words, own, share } = words(question, passages);
    let meanings = stretched(passages);
    let has_meaning = passages.iter().any(|passage| passage.meaning.is_some());
    let weight = match (has_meaning, question.is_read) {
        (false, _) => 1.0,
        (true, false) => WORDS_UNREAD,
        (true, true) => {
            let more = if nexus::is_latin(question.text) { WORDS_MORE } else { WORDS_MORE_IN_PAIRS };
            WORDS_LEAST + more * (share / SHARE_WHOLE).min(1.0)
        }
    };
    let mix = |words: f64, meaning: f64| weight * words + (1.0 - weight) * meaning;
    let mixed: Vec<f64> = by_words.iter().zip(&meanings).map(|(words, meaning)| mix(*words, *meaning)).collect();
    let sittings = sittings(passages, &mixed);
    let named: Vec<String> = words_of(question.text).collect();
    // A passage after a question that fits is likely to answer it.
    let places: HashMap<&str, usize> = passages.iter().enumerate().map(|(at, passage)| (passage.text, at)).collect();
    let alone: Vec<f64> = own.iter().zip(&meanings).map(|(words, meaning)| mix(*words, *meaning)).collect();
    let score = |at: usize, passage: &Passage<'_>| {
        let says = |does: bool, weight: f64| if does { weight } else { 0.0 };
        let is_named = words_of(passage.speaker).any(|name| named.contains(&name));
        let before = passage.around.first().filter(|before| asks(before)).and_then(|before| places.get(before));
        let said_on = passage.said_at.map(|at| at.to_zoned(TimeZone::UTC).date());
        mixed[at]
            + SITTING * sittings[at]
            + DATES * signs.nearness(passage.days.iter().copied().chain(said_on))
            + ANSWERS * before.map_or(0.0, |before| alone[*before])
            + says(passage.is_own, OWN)
            + says(passage.is_linked, LINKED)
            + says(is_named, SPEAKER)
            + says(signs.is_answered_in(passage.text), KIND)
            + says(only_asks(passage.text), ONLY_ASKS)
    };
    let scores: Vec<f64> = passages.iter().enumerate().map(|(at, passage)| score(at, passage)).collect();
    let order = with_places_by_meaning(&scores, passages, question.is_read);
    Ranking { order, words: weight }
}

/// Returns the order by score, with some places given to the nearest meaning.
fn with_places_by_meaning(scores: &[f64], passages: &[Passage<'_>], is_read: bool) -> Vec<Ranked> {
    let by = |value: &dyn Fn(usize) -> f64| {
        let mut order: Vec<usize> = (0..passages.len()).collect();
        order.sort_by(|a, b| value(*b).total_cmp(&value(*a)).then(a.cmp(b)));
        order
    };
    let meaning = |at: usize| passages[at].meaning.unwrap_or(f64::MIN);
    let mut nearest = by(&meaning).into_iter().filter(|at| is_read && passages[*at].meaning.is_some());
    let mut best = by(&|at| scores[at]).into_iter();
    let mut is_taken = vec![false; passages.len()];
    let mut order: Vec<Ranked> = Vec::with_capacity(passages.len());
    while order.len() < passages.len() {
        let place = BY_MEANING.contains(&order.len());
        let near = place.then(|| nearest.find(|at| !is_taken[*at])).flatten();
        let Some(at) = near.or_else(|| best.find(|at| !is_taken[*at])) else { break };
        is_taken[at] = true;
        let (above, own) = (order.last().map_or(f64::MAX, |above| above.score), scores[at]);
        let score = if near.is_some() { above.min(own.max(above - 1e-6)) } else { own.min(above) };
        order.push(Ranked { at, score, own });
    }
    order
}

/// The words of the passages, compared with those of a question.
struct Words {
    /// The score of each passage, from 0 to 1.
    scores: Vec<f64>,
    /// The score of its own words alone.
    own: Vec<f64>,
    /// The greatest share of the question's word weight that a passage with its neighbours covers, from 0 to 1.
    share: f64,
}

/// Scores the words of passages by BM25 among each other: their own, and those with their neighbours. A passage that the
/// search found by a word with another ending or a typing error has half of the score of the search. In a script without
/// spaces, the search knows single letters and pairs, so that its score is taken.
fn words(question: Question<'_>, passages: &[Passage<'_>]) -> Words {
    let found = scaled(passages.iter().map(|passage| passage.words).collect());
    if !question.is_read {
        return Words { own: found.clone(), scores: found, share: 1.0 };
    }
    let asked = terms_of_query(question.text);
    let places: HashMap<&str, usize> = asked.iter().enumerate().map(|(at, term)| (&**term, at)).collect();
    let counted = |texts: &mut dyn Iterator<Item = &str>| {
        let (mut often, mut length) = (vec![0.0; asked.len()], 0.0);
        for term in texts.flat_map(|text| terms(beginning(text))) {
            length += 1.0;
            if let Some(at) = places.get(&*term) {
                often[*at] += 1.0;
            }
        }
        Counts { often, length }
    };
    let own: Vec<Counts> = passages.iter().map(|passage| counted(&mut std::iter::once(passage.text))).collect();
    let around = passages.iter().map(|passage| counted(&mut passage.around.iter().copied()));
    let whole: Vec<Counts> = own.iter().zip(around).map(|(own, around)| own.with(&around)).collect();
    let (by_own, _) = bm25(&own, asked.len());
    let (by_whole, share) = bm25(&whole, asked.len());
    let (by_own, by_whole) = (scaled(by_own), scaled(by_whole));
    let scores = (0..passages.len()).map(|at| match by_whole[at] > 0.0 {
        true => OWN_WORDS * by_own[at] + (1.0 - OWN_WORDS) * by_whole[at],
        false => FOUND_OTHERWISE * found[at],
    });
    let scores = scores.collect();
    Words { scores, own: by_own, share }
}

/// Returns the part of a text whose words are counted.
fn beginning(text: &str) -> &str {
    text.char_indices().nth(COUNTED_CHARS).map_or(text, |(end, _)| &text[..end])
}

/// The number of times that a text holds each term of a question, and its length in terms.
struct Counts {
    often: Vec<f64>,
    length: f64,
}

impl Counts {
    fn with(&self, other: &Self) -> Self {
        let often = self.often.iter().zip(&other.often).map(|(one, other)| one + other).collect();
        Self { often, length: self.length + other.length }
    }
}

/// Returns the BM25 scores of texts among each other, and the greatest share of the weight of the terms that one covers.
fn bm25(texts: &[Counts], terms: usize) -> (Vec<f64>, f64) {
    let count = texts.len() as f64;
    let mean = (texts.iter().map(|text| text.length).sum::<f64>() / count.max(1.0)).max(1.0);
    let (mut scores, mut covered, mut all) = (vec![0.0; texts.len()], vec![0.0; texts.len()], 0.0);
    for term in 0..terms {
        let with = texts.iter().filter(|text| text.often[term] > 0.0).count() as f64;
        let rarity = (1.0 + (count - with + 0.5) / (with + 0.5)).ln();
        all += rarity;
        for (at, text) in texts.iter().enumerate().filter(|(_, text)| text.often[term] > 0.0) {
            let long = 1.0 - B + B * text.length / mean;
            scores[at] += rarity * text.often[term] * (K1 + 1.0) / (text.often[term] + K1 * long);
            covered[at] += rarity;
        }
    }
    (scores, covered.into_iter().fold(0.0, f64::max) / if all > 0.0 { all } else { 1.0 })
}

/// Returns the similarities of meaning, stretched to the range from 0 to 1.
fn stretched(passages: &[Passage<'_>]) -> Vec<f64> {
    let known = passages.iter().filter_map(|passage| passage.meaning);
    let (least, most) = known.fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(one), most.max(one)));
    let stretch = |one: f64| if most > least { (one - least) / (most - least) } else { 1.0 };
    passages.iter().map(|passage| passage.meaning.map_or(0.0, stretch)).collect()
}

fn scaled(mut scores: Vec<f64>) -> Vec<f64> {
    let most = scores.iter().copied().fold(0.0, f64::max);
    scores.iter_mut().for_each(|score| *score /= if most > 0.0 { most } else { 1.0 });
    scores
}

/// Returns for each passage the score of its sitting relative to the best one; 0 for passages of no talk.
fn sittings(passages: &[Passage<'_>], scores: &[f64]) -> Vec<f64> {
    let mut said: Vec<(Timestamp, usize)> =
        passages.iter().enumerate().filter_map(|(at, passage)| Some((passage.said_at?, at))).collect();
    said.sort();
    let mut of = BTreeMap::new();
    for sitting in said.chunk_by(|(one, _), (next, _)| next.as_second() - one.as_second() < PAUSE_S) {
        let mut best: Vec<f64> = sitting.iter().map(|(_, at)| scores[*at]).collect();
        best.sort_by(|a, b| b.partial_cmp(a).unwrap_or(Ordering::Equal));
        let mean = best.iter().take(SITTING_BEST).sum::<f64>() / SITTING_BEST as f64;
        of.extend(sitting.iter().map(|(_, at)| (*at, mean)));
    }
    scaled((0..passages.len()).map(|at| of.get(&at).copied().unwrap_or(0.0)).collect())
}

/// Returns the words of a text in lower case.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(text: &'static str, words: f64, meaning: f64) -> Passage<'static> {
        Passage { text, words, meaning: Some(meaning), ..Passage::default() }
    }

    fn order(question: &str, passages: &[Passage<'_>]) -> Vec<usize> {
        let today = jiff::civil::date(2026, 11, 24);
        let ranking = rank(Question { text: question, today, is_read: true }, passages);
        assert!(ranking.order.is_sorted_by(|one, next| one.score >= next.score), "{ranking:?}");
        ranking.order.into_iter().map(|one| one.at).collect()
    }

    #[test]
    fn words_count_as_far_as_they_cover_the_question() {
        let boat = |text| passage(text, 0.5, 0.1);
        let near = passage("It sails.", 0.0, 0.6);
        assert_eq!(order("the colour of my boat", &[near.clone(), boat("The colour of my boat is blue.")]), [1, 0]);
        assert_eq!(order("the price, age, colour and name of my boat", &[boat("A boat."), near]), [1, 0]);
    }

    #[test]
    fn the_fourth_place_goes_to_the_nearest_meaning() {
        let mut passages: Vec<Passage<'_>> = (0..6).map(|_| passage("w", 0.9, 0.2)).collect();
        passages.push(passage("near", 0.0, 0.3));
        passages.push(passage("far", 0.0, -0.9));
        assert_eq!(order("q", &passages)[3], 6);
        passages.iter_mut().for_each(|passage| passage.meaning = None);
        assert_eq!(order("q", &passages)[3], 3, "without an embedder, words alone decide");
    }

    #[test]
    fn time_speaker_kind_and_sitting_decide_between_equal_ones() {
        let plain = |text: &'static str| passage(text, 0.4, 0.4);
        let own = Passage { is_own: true, ..plain("a") };
        assert_eq!(order("q", &[plain("a"), own]), [1, 0]);
        let melanie = Passage { speaker: "Melanie", ..plain("a boat") };
        assert_eq!(order("What did Melanie paint?", &[plain("a boat"), melanie]), [1, 0]);
        assert_eq!(order("Where do I live?", &[plain("alone"), plain("in Kiel")]), [1, 0]);
        assert_eq!(order("Do I sail?", &[plain("Do you sail?"), plain("I sail.")]), [1, 0]);
        let on = |at: &str| Passage { said_at: Some(at.parse().unwrap()), ..plain("a boat") };
        let (may, july) = (on("2026-05-03T10:00:00Z"), on("2026-07-03T10:00:00Z"));
        assert_eq!(order("What did I paint in July?", &[may.clone(), july.clone()]), [1, 0]);
        let earlier = |at: &str| on(&format!("2023-{at}T10:00:00Z"));
        assert_eq!(order("What did I paint in May?", &[earlier("02-03"), earlier("05-03"), earlier("11-03")])[0], 1);
        let fits = Passage { words: 0.9, ..july.clone() };
        assert_eq!(order("What did I paint?", &[may, july, fits]), [2, 1, 0], "its sitting fits");
        let after = |before| Passage { around: vec![before], ..plain("It was blue.") };
        let asks = passage("What did you paint?", 0.0, 0.0);
        assert_eq!(
            order("What did I paint blue?", &[after("I like it."), after("What did you paint?"), asks])[..2],
            [1, 0]
        );
    }

    #[test]
    fn a_script_that_the_embedder_does_not_read_is_ranked_by_words() {
        let passages = [passage("near", 0.1, 0.9), passage("words", 0.6, 0.2)];
        let question = Question { text: "q", today: jiff::civil::date(2026, 11, 24), is_read: false };
        assert_eq!(rank(question, &passages).order[0].at, 1);
    }
}
