//! Accounts: balances that a reservation can never overdraw (MISSION L3, DESIGN §6).
//!
//! Two currencies, integers both: tokens and micro-dollars. A hold sets an amount aside before a
//! call is made; settling charges what was really used and gives the rest back. Holds nest: a
//! child draws on its parent and returns what it did not use to it.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// An amount in both currencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Model tokens, prompt and completion together.
    pub tokens: i64,
    /// Millionths of a US dollar.
    pub micro_usd: i64,
}

impl Amount {
    /// An amount of tokens alone.
    pub fn tokens(tokens: i64) -> Self {
        Self { tokens, micro_usd: 0 }
    }

    /// Whether `other` can be taken from this amount; a currency of which nothing is wanted may be in debt.
    pub fn covers(self, other: Self) -> bool {
        let enough = |have: i64, want: i64| want <= 0 || have >= want;
        enough(self.tokens, other.tokens) && enough(self.micro_usd, other.micro_usd)
    }

    /// Both currencies added.
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }

    /// Both currencies subtracted.
    pub fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            micro_usd: self.micro_usd.saturating_sub(other.micro_usd),
        }
    }

    fn floor_zero(self) -> Self {
        Self { tokens: self.tokens.max(0), micro_usd: self.micro_usd.max(0) }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens and {} micro-dollars", self.tokens, self.micro_usd)
    }
}

/// Money set aside for work that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// What is still set aside here, children excluded.
    pub left: Amount,
    /// The hold this one draws on; `None` draws on the balance.
    pub parent: Option<Arc<str>>,
}

/// One account: a lifeform's, or the daemon's `house`. A copy costs little, however much is under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub struct Account {
    /// What it owns, holds included. It can fall below zero only when a provider reports more
    /// usage than was reserved: the cap binds before a call, the count is exact after it.
    pub balance: Amount,
    /// All tokens and micro-dollars ever charged.
    pub spent: Amount,
    /// Open holds by id.
    pub holds: OrdMap<Arc<str>, Hold>,
    /// What the holds come to.
    #[serde(skip)]
    held: Amount,
}

/// An account as it is kept.
#[derive(Deserialize)]
struct Kept {
    balance: Amount,
    spent: Amount,
    holds: OrdMap<Arc<str>, Hold>,
}

impl From<Kept> for Account {
    fn from(Kept { balance, spent, holds }: Kept) -> Self {
        let held = holds.values().fold(Amount::default(), |sum, hold| sum.plus(hold.left));
        Self { balance, spent, holds, held }
    }
}

/// A change of one account, applied in the same commit as whatever it pays for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountOp {
    /// Opens the account with a first balance; on an open account it changes nothing.
    Open(Amount),
    /// Adds to the balance; an operator may also take away.
    Credit(Amount),
    /// Sets `amount` aside under `id`.
    Hold {
        /// Names the hold; unique among the open ones.
        id: Arc<str>,
        /// The hold to draw on, if not the balance.
        parent: Option<Arc<str>>,
        /// How much at most.
        amount: Amount,
    },
    /// Charges what was used and closes the hold. `None` is unknown usage: the whole hold is charged.
    Settle {
        /// The hold to close.
        id: Arc<str>,
        /// What the provider reported.
        used: Option<Amount>,
    },
}

/// Why an account refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LedgerError {
    /// Nobody opened this account.
    #[error("account {0} is not open")]
    NotOpen(Arc<str>),
    /// The amount is not there. Nothing was set aside.
    #[error("account {account} has {available} free, {needed} is needed")]
    Insufficient {
        /// The account asked.
        account: Arc<str>,
        /// What the call would need at most.
        needed: Amount,
        /// What is free.
        available: Amount,
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

/// How many calls one account may have under way at once.
pub const HOLDS_MAX: usize = 4096;

impl Account {
    /// One that owns `balance`.
    pub fn with(balance: Amount) -> Self {
        Self { balance, ..Self::default() }
    }

    /// What is held in all.
    pub fn held(&self) -> Amount {
        self.held
    }

    /// What a new hold may draw on.
    pub fn available(&self) -> Amount {
        self.balance.minus(self.held())
    }

    /// Applies `op`, or refuses it and changes nothing.
    ///
    /// # Errors
    /// See [`LedgerError`]; `name` is only used to name the account in it.
    pub fn apply(&mut self, name: &Arc<str>, op: &AccountOp) -> Result<(), LedgerError> {
        match op {
            AccountOp::Open(_) => {}
            AccountOp::Credit(amount) => self.balance = self.balance.plus(*amount),
            AccountOp::Hold { id, parent, amount } => self.hold(name, id, parent.as_ref(), *amount)?,
            AccountOp::Settle { id, used } => self.settle(name, id, *used)?,
        }
        Ok(())
    }

    fn hold(
        &mut self,
        name: &Arc<str>,
        id: &Arc<str>,
        parent: Option<&Arc<str>>,
        amount: Amount,
    ) -> Result<(), LedgerError> {
        if self.holds.contains_key(id) {
            return Err(LedgerError::HoldExists { account: name.clone(), hold: id.clone() });
        }
        if self.holds.len() >= HOLDS_MAX {
            return Err(LedgerError::TooManyHolds { account: name.clone(), max: HOLDS_MAX });
        }
        let available = match parent {
            None => self.available(),
            Some(parent) => self
                .holds
                .get(parent)
                .map(|hold| hold.left)
                .ok_or_else(|| LedgerError::NoHold { account: name.clone(), hold: parent.clone() })?,
        };
        if !available.covers(amount) {
            return Err(LedgerError::Insufficient { account: name.clone(), needed: amount, available });
        }
        if let Some(hold) = parent.and_then(|parent| self.holds.get_mut(parent)) {
            // What a child holds is no longer its parent's to give.
            hold.left = hold.left.minus(amount);
            self.held = self.held.minus(amount);
        }
        self.held = self.held.plus(amount);
        self.holds.insert(id.clone(), Hold { left: amount, parent: parent.cloned() });
        Ok(())
    }

    fn settle(&mut self, name: &Arc<str>, id: &Arc<str>, used: Option<Amount>) -> Result<(), LedgerError> {
        let hold =
            self.holds.remove(id).ok_or_else(|| LedgerError::NoHold { account: name.clone(), hold: id.clone() })?;
        let used = used.unwrap_or(hold.left);
        self.balance = self.balance.minus(used);
        self.spent = self.spent.plus(used);
        self.held = self.held.minus(hold.left);
        let rest = hold.left.minus(used).floor_zero();
        if let Some(parent) = hold.parent.and_then(|parent| self.holds.get_mut(&parent)) {
            parent.left = parent.left.plus(rest);
            self.held = self.held.plus(rest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(tokens: i64) -> (Arc<str>, Account) {
        ("a".into(), Account { balance: Amount::tokens(tokens), ..Account::default() })
    }

    fn hold(id: &str, parent: Option<&str>, tokens: i64) -> AccountOp {
        AccountOp::Hold { id: id.into(), parent: parent.map(Into::into), amount: Amount::tokens(tokens) }
    }

    fn settle(id: &str, used: Option<i64>) -> AccountOp {
        AccountOp::Settle { id: id.into(), used: used.map(Amount::tokens) }
    }

    #[test]
    fn a_hold_past_the_balance_is_refused_and_changes_nothing() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("x", None, 60)).unwrap();
        let before = a.clone();
        assert!(matches!(a.apply(&name, &hold("y", None, 41)), Err(LedgerError::Insufficient { .. })));
        assert_eq!(a, before);
        a.apply(&name, &hold("y", None, 40)).unwrap();
        assert_eq!(a.available(), Amount::default());
    }

    #[test]
    fn a_child_draws_on_its_parent_and_returns_what_it_did_not_use() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("job", None, 80)).unwrap();
        a.apply(&name, &hold("call", Some("job"), 50)).unwrap();
        assert!(a.apply(&name, &hold("call2", Some("job"), 31)).is_err());
        a.apply(&name, &settle("call", Some(10))).unwrap();
        assert_eq!(a.balance, Amount::tokens(90));
        assert_eq!(a.holds["job"].left, Amount::tokens(70));
        a.apply(&name, &settle("job", Some(0))).unwrap();
        assert_eq!(a.available(), Amount::tokens(90));
    }

    #[test]
    fn what_is_held_is_the_sum_of_the_holds_whatever_was_done_and_read_back() {
        let (name, mut a) = account(1000);
        let ops = [
            hold("job", None, 500),
            hold("one", Some("job"), 200),
            hold("two", Some("one"), 90),
            hold("alone", None, 70),
            settle("one", Some(30)),
            settle("two", Some(100)),
            settle("alone", None),
            hold("three", Some("job"), 10),
        ];
        for op in ops {
            a.apply(&name, &op).unwrap();
            let sum = a.holds.values().fold(Amount::default(), |sum, hold| sum.plus(hold.left));
            assert_eq!(a.held(), sum, "{op:?}");
            let read: Account = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
            assert_eq!(read, a);
        }
    }

    #[test]
    fn unknown_usage_settles_the_whole_reservation() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("x", None, 60)).unwrap();
        a.apply(&name, &settle("x", None)).unwrap();
        assert_eq!((a.balance, a.spent), (Amount::tokens(40), Amount::tokens(60)));
        assert!(matches!(a.apply(&name, &settle("x", None)), Err(LedgerError::NoHold { .. })));
    }
}
