//! The nutrients of a lifeform: credits, releases, and the policy of an operator.

use std::sync::Arc;

use store::ledger::{Account, AccountOp, Amount, Release, share_of};
use store::{Batch, Expect, Key, Kind, Origin, StoreError};

use super::Lifeforms;
use crate::LifeformError;
use crate::life::{Head, HeadChange};
use crate::metabolism::Policy;
use crate::spec::{LifeformId, check_release};
use crate::spending::{self, Spending};

impl Lifeforms {
    /// Returns the account of a lifeform.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn account(&self, id: &LifeformId) -> Result<Account, LifeformError> {
        self.get(id).await?;
        Ok(self.inner.store.account(id).await?.unwrap_or_default())
    }

    /// Credits or debits a lifeform's account, and wakes a dormant lifeform. With a `key`, the transaction is booked
    /// once, and the key is valid only for this transaction.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn credit(
        &self,
        origin: &Origin,
        id: &LifeformId,
        amount: Amount,
        memo: &str,
        key: Option<Arc<str>>,
    ) -> Result<Account, LifeformError> {
        self.get(id).await?;
        let taken = Amount { tokens: -amount.tokens, micro_usd: -amount.micro_usd };
        let op = match amount.tokens < 0 || amount.micro_usd < 0 {
            true => AccountOp::Debit(taken),
            false => AccountOp::Credit(amount),
        };
        let mut batch = Batch::new(origin).account(id.clone(), op, memo);
        let seen = key.map(|key| Key::new(Kind::Idempotency, format!("credit#{id}#{}#{key}", origin.principal.id)));
        let booked = (amount, memo.to_owned());
        if let Some(seen) = &seen {
            batch = batch.create(seen.clone(), &booked);
        }
        match (self.inner.store.commit(batch).await, seen) {
            (Err(StoreError::Conflict { .. }), Some(seen)) => {
                let before = self.inner.store.document::<(Amount, String)>(&seen).await?;
                if before.is_none_or(|before| before.value != booked) {
                    return Err(LifeformError::Spec("this Idempotency-Key was used for another transaction".into()));
                }
            }
            (outcome, _) => outcome.map(drop)?,
        }
        match self.inner.running(id) {
            Some(handle) => handle.beat(),
            // The lifeform may have fallen asleep with work that it could not pay for.
            None => self.inner.alarm.call(id),
        }
        self.account(id).await
    }

    /// Sets the release rule of a lifeform: its nutrients per hour, up to a ceiling.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`]. [`LifeformError::Spec`] if the rule is invalid.
    pub async fn release(&self, origin: &Origin, id: &LifeformId, rule: Release) -> Result<Account, LifeformError> {
        check_release(&rule).map_err(LifeformError::Spec)?;
        self.get(id).await?;
        let rule = (rule != Release::default()).then_some(rule);
        self.inner.store.commit(Batch::new(origin).account(id.clone(), AccountOp::Release(rule), "release")).await?;
        self.account(id).await
    }

    /// Sets the share of the free balance that a participant may use per hour, from 0 to 1; 1 means no limit.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`]. [`LifeformError::Spec`] if the share is out of range.
    pub async fn person_share(&self, origin: &Origin, id: &LifeformId, share: f64) -> Result<Account, LifeformError> {
        let share = share_of(share).map_err(LifeformError::Spec)?;
        self.get(id).await?;
        self.inner.store.commit(Batch::new(origin).account(id.clone(), AccountOp::Share(share), "share")).await?;
        self.account(id).await
    }

    /// Returns the spending of an account: a lifeform's, or the house account.
    ///
    /// # Errors
    /// A store error.
    pub async fn spending(&self, account: &str) -> Result<Spending, LifeformError> {
        Ok(spending::report(&self.inner.store, &self.inner.fascicles, account).await?)
    }

    /// Sets the metabolic policy of a lifeform.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn set_policy(
        &self,
        origin: &Origin,
        id: &LifeformId,
        mut policy: Policy,
    ) -> Result<Head, LifeformError> {
        policy.set_by = Some(origin.principal.id.clone());
        self.change_head(origin, id, HeadChange::Policy(policy)).await
    }

    /// Changes the head of a lifeform, whether it runs or not.
    pub(super) async fn change_head(
        &self,
        origin: &Origin,
        id: &LifeformId,
        change: HeadChange,
    ) -> Result<Head, LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        let (head, version) = self.versioned(id).await?;
        if let Some(handle) = self.inner.running(id) {
            return handle.change(change, origin).await;
        }
        let what = change.name();
        let head = change.applied_to(head);
        self.inner.store.commit(head.change(Expect::Version(version), origin, what)).await?;
        Ok(head)
    }
}
