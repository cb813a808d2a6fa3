//! How dear the next thought may be. Plain functions of the balance and the policy.

use neurons::Tier;
use nexus::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spec::Metabolism;

/// An operator's override (seed 003 §6.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// By the balance.
    #[default]
    Default,
    /// The best models and long answers, whatever the balance; the cap still binds.
    ForceHyper,
    /// The cheapest models and short answers, whatever the balance.
    ForceEco,
}

/// A policy with who set it and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// What is forced.
    pub strategy: Strategy,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Who set it.
    #[serde(default)]
    pub set_by: Option<nexus::PrincipalId>,
    /// When it ends by itself.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

/// The mode a lifeform lives in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Short of nutrients.
    Eco,
    /// In balance.
    #[default]
    Standard,
    /// Told to spare nothing.
    Hyper,
}

/// What a mode allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Which models.
    pub tier: Tier,
    /// How long an answer may be.
    pub output_tokens_max: u32,
}

/// The mode for so many free tokens. Between the two eco bounds it stays what it was, so that it does
/// not flutter.
pub fn mode(free_tokens: i64, metabolism: &Metabolism, policy: &Policy, was: Mode, now: Timestamp) -> Mode {
    let forced = policy.expires_at.is_none_or(|end| now < end);
    match policy.strategy {
        Strategy::ForceHyper if forced => Mode::Hyper,
        Strategy::ForceEco if forced => Mode::Eco,
        _ if free_tokens < metabolism.eco_below_tokens => Mode::Eco,
        _ if was == Mode::Eco && free_tokens < metabolism.eco_until_tokens => Mode::Eco,
        _ => Mode::Standard,
    }
}

/// What `mode` may use.
pub fn means(mode: Mode) -> Means {
    match mode {
        Mode::Eco => Means { tier: Tier::Economy, output_tokens_max: 96 },
        Mode::Standard => Means { tier: Tier::Standard, output_tokens_max: 384 },
        Mode::Hyper => Means { tier: Tier::High, output_tokens_max: 1024 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eco_begins_low_and_ends_higher() {
        let m = Metabolism { eco_below_tokens: 100, eco_until_tokens: 200, ..Metabolism::default() };
        let at = |free, was| mode(free, &m, &Policy::default(), was, Timestamp::UNIX_EPOCH);
        assert_eq!(at(150, Mode::Standard), Mode::Standard);
        assert_eq!(at(99, Mode::Standard), Mode::Eco);
        assert_eq!(at(150, Mode::Eco), Mode::Eco);
        assert_eq!(at(200, Mode::Eco), Mode::Standard);
    }

    #[test]
    fn a_forced_mode_ends_when_its_time_is_up() {
        let end = Timestamp::from_second(100).unwrap();
        let policy = Policy { strategy: Strategy::ForceHyper, expires_at: Some(end), ..Policy::default() };
        let at =
            |second| mode(0, &Metabolism::default(), &policy, Mode::Standard, Timestamp::from_second(second).unwrap());
        assert_eq!((at(99), at(100)), (Mode::Hyper, Mode::Eco));
    }
}
