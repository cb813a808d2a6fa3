//! The means for the next thought: plain functions of the balance and the policy.

use neurons::Tier;
use serde::{Deserialize, Serialize};
use store::Timestamp;
use store::ledger::Account;

use crate::spec::Metabolism;

/// The metabolic strategy that an operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The balance decides.
    #[default]
    Default,
    /// The best models and long answers at any balance. The cap still applies.
    ForceHyper,
    /// The cheapest models and short answers at any balance.
    ForceEco,
}

/// A strategy with its author and reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Policy {
    /// The strategy.
    pub strategy: Strategy,
    /// The reason.
    #[serde(default)]
    pub reason: String,
    /// The author.
    #[serde(default)]
    pub set_by: Option<store::PrincipalId>,
    /// The end.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

/// The metabolic mode of a lifeform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MetabolicMode)]
pub enum Mode {
    /// The mode for a low balance.
    Eco,
    /// The mode for a normal balance.
    #[default]
    Standard,
    /// The mode without savings.
    Hyper,
}

/// The means that a mode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// The model tier.
    pub tier: Tier,
    /// The maximum number of tokens in an answer.
    pub output_tokens_max: u32,
    /// The number of earlier messages of a topic in a prompt.
    pub history: usize,
    /// The number of heartbeats to skip after each one.
    pub beats: u32,
    /// `true` if background work is allowed.
    pub background: bool,
}

/// The nutrient supply of a lifeform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// The number of free tokens.
    pub free_tokens: i64,
    /// The milliseconds until the balance is empty at the present rate; `None` means never.
    pub empty_in_ms: Option<i64>,
}

impl Fed {
    /// Returns the supply of an account at `now`.
    pub fn of(account: &Account, now: Timestamp) -> Self {
        // The reservations of running answers are not spent yet, and most of them come back.
        let account_now = account.at(now);
        let free_tokens = account_now.available().plus(account_now.set_aside()).tokens;
        Self { free_tokens, empty_in_ms: account.empty_in_ms(now) }
    }
}

const HOUR_MS: i64 = 3_600_000;
/// The hysteresis in percent: a mode ends only beyond this share of its entry bound.
const HYSTERESIS: i64 = 80;

/// Returns the mode for a supply. Between the bounds, the mode stays unchanged, so that it does not oscillate.
pub fn mode(fed: Fed, metabolism: &Metabolism, policy: &Policy, was: Mode, now: Timestamp) -> Mode {
    let forced = policy.expires_at.is_none_or(|end| now < end);
    let Fed { free_tokens: free, empty_in_ms } = fed;
    let soon = |hours: i64| hours > 0 && empty_in_ms.is_some_and(|ms| ms < hours * HOUR_MS);
    let hours = i64::from(metabolism.eco_below_hours);
    match policy.strategy {
        Strategy::ForceHyper if forced => Mode::Hyper,
        Strategy::ForceEco if forced => Mode::Eco,
        _ if free < metabolism.eco_below_tokens || soon(hours) => Mode::Eco,
        _ if was == Mode::Eco && (free < metabolism.eco_until_tokens || soon(hours * 100 / HYSTERESIS)) => Mode::Eco,
        _ if metabolism.hyper_above_tokens == 0 => Mode::Standard,
        _ if free > metabolism.hyper_above_tokens => Mode::Hyper,
        _ if was == Mode::Hyper && free > metabolism.hyper_above_tokens / 100 * HYSTERESIS => Mode::Hyper,
        _ => Mode::Standard,
    }
}

/// Returns the hunger of a lifeform: 0 at the balance where it leaves `eco`, 1 at the balance where it rests.
pub fn hunger(free_tokens: i64, metabolism: &Metabolism) -> f64 {
    let (rest, full) = (metabolism.rest_below_tokens as f64, metabolism.eco_until_tokens as f64);
    let left = (free_tokens as f64 - rest) / (full - rest).max(1.0);
    (1.0 - left).clamp(0.0, 1.0)
}

/// Returns the means of `mode`.
pub fn means(mode: Mode) -> Means {
    match mode {
        Mode::Eco => Means { tier: Tier::Economy, output_tokens_max: 96, history: 2, beats: 4, background: false },
        Mode::Standard => {
            Means { tier: Tier::Standard, output_tokens_max: 384, history: 6, beats: 1, background: true }
        }
        Mode::Hyper => Means { tier: Tier::High, output_tokens_max: 1024, history: 16, beats: 1, background: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eco_begins_low_and_ends_higher() {
        let m = Metabolism { eco_below_tokens: 100, eco_until_tokens: 200, ..Metabolism::default() };
        let at = |free_tokens, was| {
            let fed = Fed { free_tokens, empty_in_ms: None };
            mode(fed, &m, &Policy::default(), was, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(at(150, Mode::Standard), Mode::Standard);
        assert_eq!(at(99, Mode::Standard), Mode::Eco);
        assert_eq!(at(150, Mode::Eco), Mode::Eco);
        assert_eq!(at(200, Mode::Eco), Mode::Standard);
    }

    #[test]
    fn a_forced_mode_ends_when_its_time_is_up() {
        let end = Timestamp::from_second(100).unwrap();
        let policy = Policy { strategy: Strategy::ForceHyper, expires_at: Some(end), ..Policy::default() };
        let fed = Fed { free_tokens: 0, empty_in_ms: None };
        let m = Metabolism::default();
        let at = |second| mode(fed, &m, &policy, Mode::Standard, Timestamp::from_second(second).unwrap());
        assert_eq!((at(99), at(100)), (Mode::Hyper, Mode::Eco));
    }

    #[test]
    fn economy_begins_in_time_and_plenty_is_used() {
        let m = Metabolism {
            eco_below_tokens: 100,
            eco_until_tokens: 200,
            eco_below_hours: 8,
            hyper_above_tokens: 1000,
            rest_below_tokens: 50,
            ..Metabolism::default()
        };
        let at = |free_tokens, hours: Option<i64>, was| {
            let fed = Fed { free_tokens, empty_in_ms: hours.map(|hours| hours * HOUR_MS) };
            mode(fed, &m, &Policy::default(), was, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(at(500, Some(7), Mode::Standard), Mode::Eco, "it would be empty today");
        assert_eq!((at(500, Some(9), Mode::Eco), at(500, Some(10), Mode::Eco)), (Mode::Eco, Mode::Standard));
        assert_eq!((at(1000, None, Mode::Standard), at(1001, None, Mode::Standard)), (Mode::Standard, Mode::Hyper));
        assert_eq!((at(801, None, Mode::Hyper), at(800, None, Mode::Hyper)), (Mode::Hyper, Mode::Standard));
        assert_eq!([hunger(50, &m), hunger(125, &m), hunger(200, &m), hunger(0, &m)], [1.0, 0.5, 0.0, 1.0]);
    }
}
