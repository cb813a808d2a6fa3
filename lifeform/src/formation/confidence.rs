//! The confidence in a claim, folded from the statements that state it: never added up on a stored value, so it depends neither on
//! their order nor on how often they are read. `docs/src/internals/knowing.md` explains it.

use std::collections::BTreeMap;

use serde_json::Value;
use store::Timestamp;

use super::vocabulary::half_life_days;

/// The reliability of what a person says of itself and of those one link away.
pub(crate) const OF_ITSELF: f64 = 0.95;
/// The reliability of what a person says of others.
pub(crate) const OF_OTHERS: f64 = 0.7;
/// The reliability of what an AI says.
pub(crate) const OF_AN_AI: f64 = 0.6;
/// The reliability of a finding of research, which an answer always doubts, and of the result of a goal.
pub(crate) const OF_RESEARCH: f64 = 0.45;
pub(crate) const OF_A_GOAL: f64 = 0.9;
/// The reliability of what a tool found whose definition says what its results teach.
pub(crate) const OF_A_TOOL: f64 = 0.85;
/// The maximum number of messages of one person that count, and the confidence that one person can give a claim at most.
const REPEATS_MAX: usize = 5;
const OF_ONE_MAX: f64 = 0.97;
/// The share of the remaining doubt that each further message of the same person takes away.
const REPEATED: f64 = 0.1;
/// The share of its confidence that a claim loses to a certain rival.
const RIVALRY: f64 = 0.8;
/// The confidence below which an answer says that it is not sure.
pub(crate) const UNSURE: f64 = 0.5;

/// A statement of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said<'a> {
    /// The person who stated it.
    pub(crate) person: &'a str,
    /// The reliability of the person for this claim, from 0 to 1.
    pub(crate) reliability: f64,
    /// The time of the statement; `None` if it is unknown, and the statement then keeps its full weight.
    pub(crate) at: Option<Timestamp>,
}

impl<'b> Said<'b> {
    /// Returns the statement of a source of a claim, from one of the values of its `_claims`; `None` for a source of another form.
    pub(crate) fn of(source: &'b Value) -> Option<Self> {
        let at = source["observed_at"].as_str().and_then(|at| at.parse().ok());
        Some(Self { person: source["author"].as_str()?, reliability: source["reliability"].as_f64()?, at })
    }
}

/// Returns the confidence in a claim at a time, from 0 to 1: 1 − ∏(1 − qᵤ·2^(−age/h)) over its tellers, where qᵤ grows with the
/// messages of a teller, up to five. Without a statement it is 0.
pub(crate) fn confidence<'a>(said: impl IntoIterator<Item = Said<'a>>, predicate: &str, now: Timestamp) -> f64 {
    let mut tellers: BTreeMap<&str, (f64, usize, Option<f64>)> = BTreeMap::new();
    for one in said {
        let age = one.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0) / 86_400.0);
        let (reliability, count, newest) = tellers.entry(one.person).or_default();
        *reliability = reliability.max(one.reliability.clamp(0.0, 1.0));
        *count += 1;
        *newest = Some(newest.map_or(age, |known| known.min(age)));
    }
    let half_life = half_life_days(predicate);
    let doubt = tellers.values().map(|(reliability, count, age)| {
        let repeated = (1.0 - REPEATED).powi(i32::try_from(count.min(&REPEATS_MAX) - 1).unwrap_or_default());
        let told = (1.0 - (1.0 - reliability) * repeated).min(OF_ONE_MAX);
        let decay = half_life.map_or(1.0, |days| (-age.unwrap_or_default() / days).exp2());
        1.0 - told * decay
    });
    1.0 - doubt.product::<f64>()
}

/// Returns the confidence in a claim of which others state a rival: one that cannot hold with it.
pub(crate) fn against(own: f64, rival: f64) -> f64 {
    own * (1.0 - RIVALRY * rival.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_hours(24 * day)
    }

    fn said(person: &str, reliability: f64, day: i64) -> Said<'_> {
        Said { person, reliability, at: Some(at(day)) }
    }

    fn rounded(confidence: f64) -> f64 {
        (confidence * 100.0).round() / 100.0
    }

    #[test]
    fn others_confirm_and_the_same_person_says_it_again() {
        let of = |all: &[Said<'_>]| rounded(confidence(all.to_vec(), "lives_in", at(0)));
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[said("ada", OF_OTHERS, 0)]), 0.7);
        assert_eq!(of(&[said("ada", OF_OTHERS, 0), said("ben", OF_OTHERS, 0)]), 0.91);
        assert_eq!(of(&[said("ada", OF_OTHERS, 0), said("ada", OF_OTHERS, 0)]), 0.73);
        // A hundred messages of one person are worth no more than five.
        assert_eq!(of(&vec![said("ada", OF_OTHERS, 0); 100]), of(&vec![said("ada", OF_OTHERS, 0); 5]));
        assert_eq!(of(&vec![said("ada", 1.0, 0); 9]), OF_ONE_MAX);
    }

    #[test]
    fn the_order_of_statements_does_not_count() {
        let mut all = vec![said("ada", 0.95, 3), said("ben", 0.7, 90), said("ada", 0.7, 400), said("cleo", 0.6, 1)];
        let before = confidence(all.clone(), "likes", at(500));
        all.reverse();
        assert!((before - confidence(all, "likes", at(500))).abs() < 1e-12);
    }

    #[test]
    fn what_was_said_long_ago_counts_less_by_the_kind_of_claim() {
        let after = |predicate| rounded(confidence([said("ada", 0.96, 0)], predicate, at(3 * 365)));
        assert_eq!(after("lives_in"), 0.48);
        assert_eq!(after("likes"), 0.12);
        // An allergy does not fade, and neither do relatives.
        assert_eq!(after("must_avoid"), 0.96);
        assert_eq!(after("relative_of"), 0.96);
    }

    #[test]
    fn a_rival_of_others_takes_most_of_it() {
        // Ada says of her sister that she lives in Gdańsk, Ben says Łódź.
        assert_eq!(rounded(against(0.95, 0.7)), 0.42);
        assert_eq!(rounded(against(0.7, 0.95)), 0.17);
        assert_eq!(against(0.7, 0.0), 0.7);
    }
}
