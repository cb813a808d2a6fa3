//! Amounts of tokens and money.

use serde::{Deserialize, Serialize};

/// An amount in both currencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Amount {
    /// Model tokens; prompt and completion are counted together.
    pub tokens: i64,
    /// Micro-dollars: millionths of a US dollar.
    pub micro_usd: i64,
}

impl Amount {
    /// Returns an amount of tokens only.
    pub fn tokens(tokens: i64) -> Self {
        Self { tokens, micro_usd: 0 }
    }

    /// Returns `true` if `other` can be subtracted from this amount. A currency in which `other` is zero may be
    /// negative.
    ///
    /// ```
    /// use store::ledger::Amount;
    /// assert!(Amount::tokens(10).covers(Amount::tokens(10)));
    /// assert!(!Amount::tokens(10).covers(Amount { tokens: 1, micro_usd: 1 }));
    /// ```
    pub fn covers(self, other: Self) -> bool {
        let enough = |have: i64, want: i64| want <= 0 || have >= want;
        enough(self.tokens, other.tokens) && enough(self.micro_usd, other.micro_usd)
    }

    /// Adds both currencies.
    ///
    /// ```
    /// use store::ledger::Amount;
    /// assert_eq!(Amount::tokens(2).plus(Amount::tokens(3)), Amount::tokens(5));
    /// ```
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }

    /// Subtracts both currencies.
    ///
    /// ```
    /// use store::ledger::Amount;
    /// assert_eq!(Amount::tokens(2).minus(Amount::tokens(3)), Amount::tokens(-1));
    /// ```
    pub fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            micro_usd: self.micro_usd.saturating_sub(other.micro_usd),
        }
    }

    /// Returns the minimum in each currency.
    pub(super) fn least(self, other: Self) -> Self {
        Self { tokens: self.tokens.min(other.tokens), micro_usd: self.micro_usd.min(other.micro_usd) }
    }

    /// Multiplies an hourly amount by a number of milliseconds; see [`Bucket`].
    pub(super) fn times(self, ms: i64) -> [i128; 2] {
        [i128::from(self.tokens) * i128::from(ms), i128::from(self.micro_usd) * i128::from(ms)]
    }

    /// Returns a share of the amount in thousandths, rounded down.
    pub(super) fn thousandths(self, share: u16) -> Self {
        let part = |whole: i64| (i128::from(whole) * i128::from(share) / 1000) as i64;
        Self { tokens: part(self.tokens), micro_usd: part(self.micro_usd) }
    }

    pub(super) fn floor_zero(self) -> Self {
        Self { tokens: self.tokens.max(0), micro_usd: self.micro_usd.max(0) }
    }
}
