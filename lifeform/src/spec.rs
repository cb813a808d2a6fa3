//! What a lifeform is born as: the definition, as it is shipped and as it is posted.

use std::sync::Arc;

use fascicles::FascicleId;
use nexus::ledger::Amount;
use serde::{Deserialize, Serialize};

/// Names a lifeform.
pub type LifeformId = Arc<str>;

/// A definition, shipped in `config/lifeforms` or posted whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LifeformSpec {
    /// What it is called.
    pub name: String,
    /// Who it is, in words for its models.
    #[serde(default)]
    pub persona: String,
    /// The fascicle by which it answers.
    #[serde(default = "reply")]
    pub reply: FascicleId,
    /// What it is born with.
    #[serde(default = "birth")]
    pub nutrients: Amount,
    /// What it lives on.
    #[serde(default)]
    pub metabolism: Metabolism,
}

/// How a lifeform keeps house.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metabolism {
    /// Below so many free tokens it lives on economy models and short answers.
    pub eco_below_tokens: i64,
    /// Above so many free tokens it leaves economy again.
    pub eco_until_tokens: i64,
    /// Below so many free tokens it rests.
    pub rest_below_tokens: i64,
    /// Milliseconds between two beats.
    pub beat_ms: u64,
}

impl Default for Metabolism {
    fn default() -> Self {
        Self { eco_below_tokens: 20_000, eco_until_tokens: 30_000, rest_below_tokens: 4_000, beat_ms: 30_000 }
    }
}

fn reply() -> FascicleId {
    "reply".into()
}

fn birth() -> Amount {
    Amount::tokens(200_000)
}

impl LifeformSpec {
    /// Checks what serde cannot.
    ///
    /// # Errors
    /// A sentence naming the member and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if self.name.trim().is_empty() || self.name.chars().count() > 80 || self.name.contains(char::is_control) {
            return Err("name is 1 to 80 characters, none of them a control character".into());
        }
        if self.persona.len() > 32 << 10 {
            return Err(format!("persona has {} bytes, the bound is {}", self.persona.len(), 32 << 10));
        }
        if self.nutrients.tokens < 0 || self.nutrients.micro_usd < 0 {
            return Err("nutrients cannot be negative".into());
        }
        if self.nutrients.tokens > 1 << 50 || self.nutrients.micro_usd > 1 << 50 {
            return Err(format!("nutrients are at most {}", 1_i64 << 50));
        }
        let m = &self.metabolism;
        if !(0 <= m.rest_below_tokens
            && m.rest_below_tokens <= m.eco_below_tokens
            && m.eco_below_tokens <= m.eco_until_tokens)
        {
            return Err("metabolism wants 0 <= rest_below_tokens <= eco_below_tokens <= eco_until_tokens".into());
        }
        if !(100..=86_400_000).contains(&m.beat_ms) {
            return Err("metabolism.beat_ms is 100 to 86400000".into());
        }
        Ok(())
    }
}
