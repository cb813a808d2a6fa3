//! Accounts: balances that reservations can never overdraw (MISSION L3, DESIGN §6).
//!
//! Accounts have two currencies, both integers: tokens and micro-dollars. A hold reserves an amount before a call.
//! Settling the hold charges the actual usage and returns the rest. Holds nest: a child draws on its parent first and
//! on the balance for the remainder, and returns unused amounts to each.
//!
//! A [`Release`] credits an account over time: a number of units per hour, up to a ceiling. The ledger computes the
//! credit from the elapsed time when it reads the account, and writes the credit with the next change.
//!
//! A participant draws at most a share of an account per hour ([`AccountOp::Share`]), so no participant can empty it.

mod amount;
mod refusals;

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
pub use amount::Amount;
pub use refusals::LedgerError;

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens and {} micro-dollars", self.tokens, self.micro_usd)
    }
}

/// An amount that is reserved for work under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// The amount that is still reserved in this hold, without its children.
    pub left: Amount,
    /// The parent hold, on which this hold draws before it draws on the balance.
    pub parent: Option<Arc<str>>,
    /// The part that was drawn from the parent.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub drawn: Amount,
    /// The participant whose share of the account the hold uses; `None` means that no share applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Arc<str>>,
    /// The hour in which the hold drew on that share: hours since the epoch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hour: i64,
}

fn is_zero(hour: &i64) -> bool {
    *hour == 0
}

/// Automatic income of nutrients (MISSION L3): an inverted leaky bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The amount that is credited each hour.
    pub per_hour: Amount,
    /// The balance at which the income stops. Credits may raise the balance above it.
    pub ceiling: Amount,
}

/// A release rule with its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bucket {
    rule: Release,
    /// The time up to which the income is counted.
    since: Timestamp,
    /// The remainder of less than a whole unit, in units per hour times milliseconds.
    rest: [i64; 2],
}

/// The amounts that participants drew in one hour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Hour {
    /// The hour's number since the epoch.
    number: i64,
    /// The free amount when the first participant drew on the account in this hour, plus later credits.
    free: Amount,
    /// The total amount that had been released by then.
    released: Amount,
    /// The amount charged to each participant.
    charged: OrdMap<Arc<str>, Amount>,
}

/// An account of a lifeform, or the daemon's `house` account. Cloning is cheap even with many open holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub struct Account {
    /// The balance, holds included. It falls below zero only when a provider reports more usage than was reserved:
    /// the bound holds before a call, the count is exact after it.
    pub balance: Amount,
    /// The total of all tokens and micro-dollars ever charged.
    pub spent: Amount,
    /// Open holds by id.
    pub holds: OrdMap<Arc<str>, Hold>,
    /// The total amount that was released.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub released: Amount,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bucket: Option<Bucket>,
    /// The amounts charged in each of the last hours, by the hour's number since the epoch.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    by_hour: OrdMap<i64, Amount>,
    /// The share that a participant may draw per hour, in thousandths; `None` means [`SHARE_DEFAULT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hour: Option<Hour>,
    /// The sum of the holds.
    #[serde(skip)]
    held: Amount,
}

fn is_nothing(amount: &Amount) -> bool {
    *amount == Amount::default()
}

/// The number of hours over which the burn rate is averaged.
const BURN_HOURS: i64 = 24;
const HOUR_MS: i64 = 3_600_000;
/// The default share of the free amount that a participant may draw per hour, in thousandths.
pub const SHARE_DEFAULT: u16 = 250;
/// The whole of the free amount, which means no limit.
pub const SHARE_WHOLE: u16 = 1000;

/// Converts a share of 0 to 1 to thousandths.
///
/// # Errors
/// A sentence for the person who configured the share.
pub fn share_of(share: f64) -> Result<u16, String> {
    match (0.0..=1.0).contains(&share) {
        true => Ok((share * f64::from(SHARE_WHOLE)).round() as u16),
        false => Err("person_share is 0 to 1; 1 binds nobody".into()),
    }
}

fn hour_of(at: Timestamp) -> i64 {
    at.as_millisecond().div_euclid(HOUR_MS)
}

/// The stored form of an account.
#[derive(Deserialize)]
struct Kept {
    balance: Amount,
    spent: Amount,
    holds: OrdMap<Arc<str>, Hold>,
    #[serde(default)]
    released: Amount,
    #[serde(default)]
    bucket: Option<Bucket>,
    #[serde(default)]
    by_hour: OrdMap<i64, Amount>,
    #[serde(default)]
    share: Option<u16>,
    #[serde(default)]
    hour: Option<Hour>,
}

impl From<Kept> for Account {
    fn from(Kept { balance, spent, holds, released, bucket, by_hour, share, hour }: Kept) -> Self {
        let held = holds.values().fold(Amount::default(), |sum, hold| sum.plus(hold.left));
        Self { balance, spent, holds, released, bucket, by_hour, share, hour, held }
    }
}

/// A change of one account, applied in the same commit as the changes that it pays for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountOp {
    /// Opens the account with a first balance; does nothing if the account is open.
    Open(Amount),
    /// Adds to the balance. A negative amount lowers a ceiling that was set too high, whatever is spent already.
    Credit(Amount),
    /// Reserves `amount` under `id`.
    Hold {
        /// The id of the hold; unique among the open holds.
        id: Arc<str>,
        /// The hold to draw on first; a parent that is not open contributes nothing.
        parent: Option<Arc<str>>,
        /// The upper bound of the amount.
        amount: Amount,
        /// The participant whose share the hold uses; `None` means that no share applies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Arc<str>>,
    },
    /// Returns the rest of a hold and closes it; does nothing if the hold is not open.
    Return {
        /// The hold to close.
        id: Arc<str>,
    },
    /// Replaces the account with the state that it had elsewhere.
    Restore(Box<Account>),
    /// Removes an amount that is free.
    Debit(Amount),
    /// Sets the rule for automatic income; `None` ends the income.
    Release(Option<Release>),
    /// Sets the share, in thousandths, of the free amount and of the income that a participant may draw per hour;
    /// [`SHARE_WHOLE`] means no limit.
    Share(u16),
    /// Charges the usage and closes the hold. `None` means unknown usage: the whole hold is charged.
    Settle {
        /// The hold to close.
        id: Arc<str>,
        /// The usage that the provider reported.
        used: Option<Amount>,
    },
}

/// The maximum number of open holds of one account.
pub const HOLDS_MAX: usize = 4096;

impl Account {
    /// Returns an account with `balance`.
    pub fn with(balance: Amount) -> Self {
        Self { balance, ..Self::default() }
    }

    /// Returns the sum of all open holds.
    pub fn held(&self) -> Amount {
        self.held
    }

    /// Returns the amount that running jobs have reserved and not used yet; it may be returned.
    pub fn set_aside(&self) -> Amount {
        let of_jobs = self.holds.iter().filter(|(id, _)| id.starts_with("job:"));
        of_jobs.fold(Amount::default(), |sum, (_, hold)| sum.plus(hold.left))
    }

    /// Returns the free amount, on which a new hold may draw.
    pub fn available(&self) -> Amount {
        self.balance.minus(self.held())
    }

    /// Returns the account at `now`, automatic income included.
    pub fn at(&self, now: Timestamp) -> Self {
        let mut account = self.clone();
        account.accrue(now);
        account
    }

    /// The rule for automatic income, if there is one.
    pub fn release(&self) -> Option<Release> {
        self.bucket.map(|bucket| bucket.rule)
    }

    /// The share that a participant may draw per hour, in thousandths.
    pub fn share(&self) -> u16 {
        self.share.unwrap_or(SHARE_DEFAULT)
    }

    /// Returns the amount that a participant may still draw in the hour of `now`; `None` if no share applies to it.
    pub fn share_left(&self, of: &str, now: Timestamp) -> Option<Amount> {
        let mut account = self.at(now);
        account.begin_hour(now);
        account.left_of_share(of)
    }

    fn left_of_share(&self, of: &str) -> Option<Amount> {
        let hour = self.hour.as_ref().filter(|_| self.share() < SHARE_WHOLE)?;
        let whole = hour.free.plus(self.released.minus(hour.released)).floor_zero();
        // Holds of an earlier hour are not free in this hour and counted against the earlier hour.
        let is_of_it = |hold: &&Hold| hold.hour == hour.number && hold.of.as_deref() == Some(of);
        let held = self.holds.values().filter(is_of_it);
        let drawn = held.fold(hour.charged.get(of).copied().unwrap_or_default(), |sum, hold| sum.plus(hold.left));
        Some(whole.thousandths(self.share()).minus(drawn))
    }

    /// Resets the per-participant counts if `now` is in another hour than the last count.
    fn begin_hour(&mut self, now: Timestamp) {
        let number = hour_of(now);
        if self.hour.as_ref().is_none_or(|hour| hour.number != number) {
            let (free, released) = (self.available().floor_zero(), self.released);
            self.hour = Some(Hour { number, free, released, charged: OrdMap::new() });
        }
    }

    /// Adds the income since the last count.
    fn accrue(&mut self, now: Timestamp) {
        let Some(bucket) = &mut self.bucket else { return };
        // When the clock was set back, nothing is released, and no period is counted twice.
        let ms = now.as_millisecond().saturating_sub(bucket.since.as_millisecond());
        if ms <= 0 {
            // After a large clock error is corrected, the income must not stop until the wrong time is reached again.
            if ms < -HOUR_MS {
                bucket.since = now;
            }
            return;
        }
        let [tokens, micro_usd] = bucket.rule.per_hour.times(ms);
        let came = |came: i128, rest: &mut i64, balance: i64, ceiling: i64| {
            let all = came + i128::from(*rest);
            let whole = i64::try_from(all / i128::from(HOUR_MS)).unwrap_or(i64::MAX);
            let room = ceiling.saturating_sub(balance).max(0);
            // Income above the ceiling is lost.
            *rest = if whole >= room { 0 } else { (all % i128::from(HOUR_MS)) as i64 };
            whole.min(room)
        };
        let Release { ceiling, .. } = bucket.rule;
        let released = Amount {
            tokens: came(tokens, &mut bucket.rest[0], self.balance.tokens, ceiling.tokens),
            micro_usd: came(micro_usd, &mut bucket.rest[1], self.balance.micro_usd, ceiling.micro_usd),
        };
        bucket.since = now;
        self.balance = self.balance.plus(released);
        self.released = self.released.plus(released);
    }

    /// Returns the average amount charged per hour, over the last day or since the first charge.
    pub fn burn_per_hour(&self, now: Timestamp) -> Amount {
        let hour = hour_of(now);
        let recent = self.by_hour.range(hour - BURN_HOURS + 1..=hour);
        let charged = recent.clone().fold(Amount::default(), |sum, (_, charged)| sum.plus(*charged));
        let hours = recent.map(|(hour, _)| *hour).next().map_or(1, |first| hour - first + 1);
        Amount { tokens: charged.tokens / hours, micro_usd: charged.micro_usd / hours }
    }

    /// Returns the milliseconds until nothing is free at the present burn rate, income included; `None` means never.
    pub fn empty_in_ms(&self, now: Timestamp) -> Option<i64> {
        let (free, burn) = (self.at(now).available(), self.burn_per_hour(now));
        let comes = self.release().unwrap_or_default().per_hour;
        let until = |free: i64, burn: i64, comes: i64| {
            let net = burn.saturating_sub(comes);
            (net > 0).then(|| {
                i64::try_from(i128::from(free.max(0)) * i128::from(HOUR_MS) / i128::from(net)).unwrap_or(i64::MAX)
            })
        };
        let tokens = until(free.tokens, burn.tokens, comes.tokens);
        [tokens, until(free.micro_usd, burn.micro_usd, comes.micro_usd)].into_iter().flatten().min()
    }

    /// Returns the milliseconds until `needed` is free from income alone; `None` means never.
    pub fn covers_in_ms(&self, needed: Amount, now: Timestamp) -> Option<i64> {
        let account = self.at(now);
        let (free, held, rule) = (account.available(), account.held(), account.release().unwrap_or_default());
        let until = |free: i64, needed: i64, comes: i64, ceiling: i64, held: i64| match needed - free {
            _ if needed <= 0 => Some(0),
            missing if missing <= 0 => Some(0),
            missing if comes > 0 && needed <= ceiling - held => {
                i64::try_from((i128::from(missing) * i128::from(HOUR_MS) + i128::from(comes) - 1) / i128::from(comes))
                    .ok()
            }
            _ => None,
        };
        let tokens = until(free.tokens, needed.tokens, rule.per_hour.tokens, rule.ceiling.tokens, held.tokens)?;
        let micro_usd =
            until(free.micro_usd, needed.micro_usd, rule.per_hour.micro_usd, rule.ceiling.micro_usd, held.micro_usd)?;
        Some(tokens.max(micro_usd))
    }

    /// Applies `op` at time `at`, or refuses it and changes nothing except the income up to `at`.
    ///
    /// # Errors
    /// See [`LedgerError`]; `name` only names the account in the error.
    pub fn apply(&mut self, name: &Arc<str>, op: &AccountOp, at: Timestamp) -> Result<(), LedgerError> {
        self.accrue(at);
        match op {
            AccountOp::Open(_) => {}
            AccountOp::Restore(as_it_was) => *self = (**as_it_was).clone(),
            AccountOp::Credit(amount) => {
                let sum = |a: Amount, b: Amount| {
                    let (tokens, micro_usd) = (a.tokens.checked_add(b.tokens)?, a.micro_usd.checked_add(b.micro_usd)?);
                    Some(Amount { tokens, micro_usd })
                };
                // The total ever credited must not overflow either: the house account compares it with its ceiling.
                let whole = sum(self.balance, *amount).filter(|balance| sum(*balance, self.spent).is_some());
                self.balance = whole.ok_or_else(|| LedgerError::TooMuch { account: name.clone(), amount: *amount })?;
                if let Some(hour) = self.hour.as_mut().filter(|hour| hour.number == hour_of(at)) {
                    hour.free = hour.free.plus(*amount);
                }
            }
            AccountOp::Debit(amount) => {
                let available = self.available();
                if !available.covers(*amount) {
                    return Err(LedgerError::Insufficient { account: name.clone(), needed: *amount, available });
                }
                self.balance = self.balance.minus(*amount);
            }
            AccountOp::Release(rule) => {
                self.bucket = rule.map(|rule| Bucket { rule, since: at, rest: [0; 2] });
            }
            AccountOp::Share(share) => self.share = Some(*share),
            AccountOp::Hold { id, parent, amount, of } => {
                self.hold(name, id, parent.as_ref(), *amount, of.as_ref(), at)?;
            }
            AccountOp::Settle { id, used } => self.settle(name, id, *used, at)?,
            AccountOp::Return { id } if self.holds.contains_key(id) => {
                self.settle(name, id, Some(Amount::default()), at)?;
            }
            AccountOp::Return { .. } => {}
        }
        Ok(())
    }

    fn hold(
        &mut self,
        name: &Arc<str>,
        id: &Arc<str>,
        parent: Option<&Arc<str>>,
        amount: Amount,
        of: Option<&Arc<str>>,
        at: Timestamp,
    ) -> Result<(), LedgerError> {
        if self.holds.contains_key(id) {
            return Err(LedgerError::HoldExists { account: name.clone(), hold: id.clone() });
        }
        if self.holds.len() >= HOLDS_MAX {
            return Err(LedgerError::TooManyHolds { account: name.clone(), max: HOLDS_MAX });
        }
        let set_aside = parent.and_then(|parent| self.holds.get(parent)).map_or_else(Amount::default, |hold| hold.left);
        let drawn = set_aside.least(amount).floor_zero();
        let available = self.available();
        if !available.covers(amount.minus(drawn)) {
            let available = available.plus(set_aside);
            return Err(LedgerError::Insufficient { account: name.clone(), needed: amount, available });
        }
        if let Some(of) = of {
            self.begin_hour(at);
            // The part drawn from the parent was counted with the parent.
            let needed = amount.minus(drawn);
            if let Some(left) = self.left_of_share(of).filter(|left| !left.covers(needed)) {
                let again_in_s = (HOUR_MS - at.as_millisecond().rem_euclid(HOUR_MS)) / 1000 + 1;
                let (account, left) = (name.clone(), left.floor_zero());
                return Err(LedgerError::Share {
                    account,
                    of: of.clone(),
                    needed,
                    left,
                    again_in_s: again_in_s as u32,
                });
            }
        }
        if let Some(hold) = parent.and_then(|parent| self.holds.get_mut(parent)) {
            // The parent can no longer give the amount that the child holds.
            hold.left = hold.left.minus(drawn);
            self.held = self.held.minus(drawn);
        }
        self.held = self.held.plus(amount);
        self.holds.insert(
            id.clone(),
            Hold { left: amount, parent: parent.cloned(), drawn, of: of.cloned(), hour: of.map_or(0, |_| hour_of(at)) },
        );
        Ok(())
    }

    fn settle(
        &mut self,
        name: &Arc<str>,
        id: &Arc<str>,
        used: Option<Amount>,
        at: Timestamp,
    ) -> Result<(), LedgerError> {
        let hold =
            self.holds.remove(id).ok_or_else(|| LedgerError::NoHold { account: name.clone(), hold: id.clone() })?;
        let used = used.unwrap_or(hold.left);
        self.balance = self.balance.minus(used);
        self.spent = self.spent.plus(used);
        if !is_nothing(&used) {
            let hour = hour_of(at);
            let so_far = self.by_hour.get(&hour).copied().unwrap_or_default();
            self.by_hour.insert(hour, so_far.plus(used));
            while self.by_hour.get_min().is_some_and(|(first, _)| *first <= hour - BURN_HOURS) {
                self.by_hour = self.by_hour.without(&self.by_hour.get_min().map_or(0, |(first, _)| *first));
            }
        }
        self.held = self.held.minus(hold.left);
        if let Some(of) = &hold.of
            && !is_nothing(&used)
        {
            self.begin_hour(at);
            if let Some(hour) = self.hour.as_mut().filter(|hour| hour.number == hold.hour) {
                let so_far = hour.charged.get(of).copied().unwrap_or_default();
                hour.charged.insert(of.clone(), so_far.plus(used));
            }
        }
        // Usage is charged to the part drawn from the parent first.
        let rest = hold.drawn.minus(used).floor_zero().least(hold.left);
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

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn after(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn account(tokens: i64) -> (Arc<str>, Account) {
        ("a".into(), Account { balance: Amount::tokens(tokens), ..Account::default() })
    }

    fn hold(id: &str, parent: Option<&str>, tokens: i64) -> AccountOp {
        AccountOp::Hold { id: id.into(), parent: parent.map(Into::into), amount: Amount::tokens(tokens), of: None }
    }

    fn hold_of(of: &str, id: &str, parent: Option<&str>, tokens: i64) -> AccountOp {
        let (id, parent, amount) = (id.into(), parent.map(Into::into), Amount::tokens(tokens));
        AccountOp::Hold { id, parent, amount, of: Some(of.into()) }
    }

    fn settle(id: &str, used: Option<i64>) -> AccountOp {
        AccountOp::Settle { id: id.into(), used: used.map(Amount::tokens) }
    }

    #[test]
    fn a_hold_past_the_balance_is_refused_and_changes_nothing() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("x", None, 60), NOW).unwrap();
        let before = a.clone();
        assert!(matches!(a.apply(&name, &hold("y", None, 41), NOW), Err(LedgerError::Insufficient { .. })));
        assert_eq!(a, before);
        a.apply(&name, &hold("y", None, 40), NOW).unwrap();
        assert_eq!(a.available(), Amount::default());
    }

    #[test]
    fn a_child_draws_on_its_parent_and_returns_what_it_did_not_use() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("job", None, 80), NOW).unwrap();
        a.apply(&name, &hold("call", Some("job"), 50), NOW).unwrap();
        assert!(a.apply(&name, &hold("call2", Some("job"), 51), NOW).is_err(), "30 are the job's, and 20 are free");
        a.apply(&name, &hold("call2", Some("job"), 40), NOW).unwrap();
        assert_eq!((a.holds["job"].left, a.available()), (Amount::default(), Amount::tokens(10)));
        a.apply(&name, &settle("call2", Some(5)), NOW).unwrap();
        assert_eq!((a.holds["job"].left, a.available()), (Amount::tokens(25), Amount::tokens(20)));
        a.apply(&name, &settle("call", Some(10)), NOW).unwrap();
        assert_eq!(a.balance, Amount::tokens(85));
        assert_eq!(a.holds["job"].left, Amount::tokens(65));
        for _ in 0..2 {
            a.apply(&name, &AccountOp::Return { id: "job".into() }, NOW).unwrap();
            assert_eq!((a.available(), a.held()), (Amount::tokens(85), Amount::default()));
        }
        a.apply(&name, &hold("late", Some("job"), 85), NOW).unwrap();
        assert_eq!(a.holds["late"].drawn, Amount::default(), "a parent that is not open gives nothing");
    }

    #[test]
    fn an_account_always_holds_exactly_the_sum_of_its_holds() {
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
            a.apply(&name, &op, NOW).unwrap();
            let sum = a.holds.values().fold(Amount::default(), |sum, hold| sum.plus(hold.left));
            assert_eq!(a.held(), sum, "{op:?}");
            let read: Account = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
            assert_eq!(read, a);
        }
    }

    #[test]
    fn unknown_usage_settles_the_whole_reservation() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("x", None, 60), NOW).unwrap();
        a.apply(&name, &settle("x", None), NOW).unwrap();
        assert_eq!((a.balance, a.spent), (Amount::tokens(40), Amount::tokens(60)));
        assert!(matches!(a.apply(&name, &settle("x", None), NOW), Err(LedgerError::NoHold { .. })));
    }

    #[test]
    fn an_account_accrues_nutrients_by_the_clock_up_to_the_ceiling() {
        let rule = Release { per_hour: Amount::tokens(1000), ceiling: Amount::tokens(500) };
        let (name, mut often) = account(100);
        often.apply(&name, &AccountOp::Release(Some(rule)), NOW).unwrap();
        let mut once = often.clone();
        // Each step is 7 ms: no single read completes a token, and no fraction is lost.
        for ms in (7..=720_000).step_by(7) {
            often.apply(&name, &AccountOp::Credit(Amount::default()), after(ms)).unwrap();
        }
        once.apply(&name, &AccountOp::Credit(Amount::default()), after(719_999)).unwrap();
        assert_eq!((often.balance, once.balance), (Amount::tokens(299), Amount::tokens(299)));
        assert_eq!(once.released, Amount::tokens(199));
        assert_eq!(once.at(after(10 * HOUR_MS)).balance, Amount::tokens(500), "what runs over is lost");
        assert_eq!(once.at(NOW).balance, once.balance, "a clock set back takes nothing");
        let read: Account = serde_json::from_str(&serde_json::to_string(&often).unwrap()).unwrap();
        assert_eq!(read, often);
        // A top-up may exceed the ceiling; the income stops until the excess is used.
        once.apply(&name, &AccountOp::Credit(Amount::tokens(1000)), after(720_000)).unwrap();
        assert_eq!(once.at(after(2 * HOUR_MS)).balance, Amount::tokens(1300));
    }

    #[test]
    fn an_account_predicts_when_it_is_empty_and_when_it_can_pay() {
        let (name, mut a) = account(1000);
        assert_eq!(a.empty_in_ms(NOW), None, "nothing burns");
        for hour in 0..2 {
            a.apply(&name, &hold("x", None, 100), after(hour * HOUR_MS)).unwrap();
            a.apply(&name, &settle("x", Some(100)), after(hour * HOUR_MS)).unwrap();
        }
        let now = after(HOUR_MS);
        assert_eq!((a.burn_per_hour(now), a.empty_in_ms(now)), (Amount::tokens(100), Some(8 * HOUR_MS)));
        assert_eq!(a.burn_per_hour(after(30 * HOUR_MS)), Amount::default(), "yesterday is past");
        assert_eq!(
            (a.covers_in_ms(Amount::tokens(800), now), a.covers_in_ms(Amount::tokens(801), now)),
            (Some(0), None)
        );
        let rule = Release { per_hour: Amount::tokens(50), ceiling: Amount::tokens(900) };
        a.apply(&name, &AccountOp::Release(Some(rule)), now).unwrap();
        assert_eq!(a.empty_in_ms(now), Some(16 * HOUR_MS));
        assert_eq!(a.covers_in_ms(Amount::tokens(825), now), Some(HOUR_MS / 2));
        assert_eq!(a.covers_in_ms(Amount::tokens(901), now), None, "above the ceiling nothing comes");
    }

    #[test]
    fn a_participant_draws_only_a_share_of_an_account_in_an_hour() {
        let (name, mut a) = account(1000);
        a.apply(&name, &hold_of("user:ada", "job", None, 200), NOW).unwrap();
        a.apply(&name, &hold_of("user:ada", "call", Some("job"), 150), NOW).unwrap();
        let refused = a.apply(&name, &hold_of("user:ada", "more", None, 51), NOW);
        assert!(
            matches!(&refused, Err(LedgerError::Share { left, again_in_s: 3601, .. }) if *left == Amount::tokens(50))
        );
        // Used amounts count against the share; returned amounts do not.
        a.apply(&name, &settle("call", Some(100)), NOW).unwrap();
        a.apply(&name, &AccountOp::Return { id: "job".into() }, NOW).unwrap();
        assert_eq!(a.share_left("user:ada", NOW), Some(Amount::tokens(150)));
        a.apply(&name, &hold_of("user:bob", "his", None, 250), NOW).unwrap();
        a.apply(&name, &hold("anybody", None, 500), NOW).unwrap();
        a.apply(&name, &settle("anybody", Some(500)), NOW).unwrap();
        // A top-up raises the share; a new hour begins with the amount that is free then.
        a.apply(&name, &AccountOp::Credit(Amount::tokens(400)), NOW).unwrap();
        assert_eq!(a.share_left("user:ada", NOW), Some(Amount::tokens(250)));
        let later = after(HOUR_MS);
        assert_eq!(a.share_left("user:ada", later), Some(Amount { tokens: (800 - 250) / 4, micro_usd: 0 }));
        assert_eq!(a.share_left("user:bob", later), Some(Amount { tokens: (800 - 250) / 4, micro_usd: 0 }));
        let read: Account = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
        assert_eq!(read, a);
        a.apply(&name, &AccountOp::Share(SHARE_WHOLE), later).unwrap();
        a.apply(&name, &hold_of("user:ada", "all", None, 550), later).unwrap();
    }

    #[test]
    fn only_what_is_free_can_be_taken_away() {
        let (name, mut a) = account(100);
        a.apply(&name, &hold("x", None, 60), NOW).unwrap();
        let refused = a.apply(&name, &AccountOp::Debit(Amount::tokens(41)), NOW);
        assert!(matches!(refused, Err(LedgerError::Insufficient { .. })));
        a.apply(&name, &AccountOp::Debit(Amount::tokens(40)), NOW).unwrap();
        assert_eq!((a.available(), a.balance), (Amount::default(), Amount::tokens(60)));
    }
}
