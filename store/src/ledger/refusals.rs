//! The reasons why an account refuses an operation.

use std::sync::Arc;

use super::amount::Amount;

/// The reason why an account refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LedgerError {
    /// The account was never opened.
    #[error("account {0} is not open")]
    NotOpen(Arc<str>),
    /// The amount would overflow the account. Nothing was booked.
    #[error("account {account} cannot hold {amount} more")]
    TooMuch {
        /// The account.
        account: Arc<str>,
        /// The amount to add.
        amount: Amount,
    },
    /// The free amount does not suffice. Nothing was reserved.
    #[error("account {account} has {available} free, {needed} is needed")]
    Insufficient {
        /// The account.
        account: Arc<str>,
        /// The upper bound of what the call needs.
        needed: Amount,
        /// The free amount.
        available: Amount,
    },
    /// A participant has used up its share of this hour. Nothing was reserved.
    #[error(
        "{of} may draw {left} more of account {account} in this hour, {needed} is needed; the next hour begins in {again_in_s} s"
    )]
    Share {
        /// The account.
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
        /// The account.
        account: Arc<str>,
        /// The id of the hold.
        hold: Arc<str>,
    },
    /// A hold with this id is already open.
    #[error("account {account} already has an open hold {hold}")]
    HoldExists {
        /// The account.
        account: Arc<str>,
        /// The id of the hold.
        hold: Arc<str>,
    },
    /// The account has too many open holds.
    #[error("account {account} already has {max} open holds")]
    TooManyHolds {
        /// The account.
        account: Arc<str>,
        /// The maximum number of open holds.
        max: usize,
    },
}
