//! The reasons why an account refuses an operation.

use std::sync::Arc;

use super::amount::Amount;

/// The reason why an account refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LedgerError {
    /// Nobody opened this account.
    #[error("account {0} is not open")]
    NotOpen(Arc<str>),
    /// The account cannot hold so much more. Nothing was booked.
    #[error("account {account} cannot hold {amount} more")]
    TooMuch {
        /// The account asked.
        account: Arc<str>,
        /// The amount that was to be added.
        amount: Amount,
    },
    /// The amount is not there. Nothing was set aside.
    #[error("account {account} has {available} free, {needed} is needed")]
    Insufficient {
        /// The account asked.
        account: Arc<str>,
        /// The upper bound of what the call needs.
        needed: Amount,
        /// The free amount.
        available: Amount,
    },
    /// A participant has drawn its share of this hour. Nothing was set aside.
    #[error(
        "{of} may draw {left} more of account {account} in this hour, {needed} is needed; the next hour begins in {again_in_s} s"
    )]
    Share {
        /// The account asked.
        account: Arc<str>,
        /// The participant.
        of: Arc<str>,
        /// The upper bound of what the call needs.
        needed: Amount,
        /// The rest of the share.
        left: Amount,
        /// Seconds until the next hour.
        again_in_s: u32,
    },
    /// The hold does not exist, or was settled already.
    #[error("account {account} has no open hold {hold}")]
    NoHold {
        /// The account asked.
        account: Arc<str>,
        /// The hold that was named.
        hold: Arc<str>,
    },
    /// A hold of that id is open already.
    #[error("account {account} already has an open hold {hold}")]
    HoldExists {
        /// The account asked.
        account: Arc<str>,
        /// The hold that was named.
        hold: Arc<str>,
    },
    /// Too much is under way on this account at once.
    #[error("account {account} already has {max} open holds")]
    TooManyHolds {
        /// The account asked.
        account: Arc<str>,
        /// The bound.
        max: usize,
    },
}
