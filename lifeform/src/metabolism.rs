//! The means for the next thought: plain functions of the balance and the policy.

use neurons::Tier;
use neurons::llm::ModelTraits;
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

/// The means of a thought: what the mode, the model and the balance allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// The model tier.
    pub tier: Tier,
    /// The maximum number of tokens in an answer.
    pub output_tokens_max: u32,
    /// The number of tokens of earlier messages in a prompt.
    pub history_tokens: u32,
    /// `true` if the model of the tier is marked `small`.
    pub small: bool,
    /// `true` if the model of the tier calls tools reliably.
    pub tools: bool,
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

/// Returns the hunger of a lifeform: 0 at the balance where it leaves `eco`, 1 at the balance where it rests.
pub fn hunger(free_tokens: i64, metabolism: &Metabolism) -> f64 {
    let (rest, full) = (metabolism.rest_below_tokens as f64, metabolism.eco_until_tokens as f64);
    let left = (free_tokens as f64 - rest) / (full - rest).max(1.0);
    (1.0 - left).clamp(0.0, 1.0)
}

/// Returns the model tier of a mode.
pub fn tier(mode: Mode) -> Tier {
    match mode {
        Mode::Eco => Tier::Economy,
        Mode::Standard => Tier::Standard,
        Mode::Hyper => Tier::High,
    }
}

/// The share of the context that earlier messages may take, and of the free balance, as divisors.
const HISTORY_OF_CONTEXT: u32 = 4;
const HISTORY_OF_BALANCE: i64 = 20;
/// The minimum number of tokens of earlier messages.
const HISTORY_TOKENS_MIN: u32 = 400;

/// Returns the means of `mode` with a model and a free balance. A small model gets short prompts and answers. For
/// others, earlier messages take a quarter of the context, but at most a twentieth of the free tokens.
pub fn means(mode: Mode, model: ModelTraits, free_tokens: i64) -> Means {
    let (small_output, small_history, output) = match mode {
        Mode::Eco => (96, 100, 400),
        Mode::Standard => (384, 400, 2_000),
        Mode::Hyper => (1_024, 800, 4_000),
    };
    let affordable = u32::try_from((free_tokens / HISTORY_OF_BALANCE).max(0)).unwrap_or(u32::MAX);
    let history = (model.context_tokens / HISTORY_OF_CONTEXT).min(affordable.max(HISTORY_TOKENS_MIN));
    let output = output.min(model.context_tokens / HISTORY_OF_CONTEXT);
    let (output_tokens_max, history_tokens) =
        if model.small { (small_output, small_history) } else { (output, history) };
    let ModelTraits { small, tools, .. } = model;
    Means { tier: tier(mode), output_tokens_max, history_tokens, small, tools }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunger_grows_from_the_end_of_economy_to_rest() {
        let m = Metabolism { eco_until_tokens: 200, rest_below_tokens: 50, ..Metabolism::default() };
        assert_eq!([hunger(50, &m), hunger(125, &m), hunger(200, &m), hunger(0, &m)], [1.0, 0.5, 0.0, 1.0]);
    }

    #[test]
    fn lengths_follow_the_model_and_the_balance() {
        let large = ModelTraits { context_tokens: 32_000, small: false, tools: true };
        let embedded = ModelTraits { context_tokens: 8_192, small: true, tools: false };
        let of = |mode, model, free| {
            let means = means(mode, model, free);
            (means.output_tokens_max, means.history_tokens)
        };
        assert_eq!(of(Mode::Standard, large, 1_000_000), (2_000, 8_000));
        assert_eq!(of(Mode::Standard, large, 40_000), (2_000, 2_000), "a prompt does not take what is left");
        assert_eq!(of(Mode::Eco, large, 0), (400, 400));
        assert_eq!(of(Mode::Standard, embedded, 1_000_000), (384, 400));
        let tiny = ModelTraits { context_tokens: 2_000, small: false, tools: false };
        assert_eq!(of(Mode::Hyper, tiny, 1_000_000), (500, 500));
    }
}
