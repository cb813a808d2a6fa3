//! The limits and the prices of calls: each is counted and paid in the commit that announces it.

use std::sync::Arc;

use store::ledger::{AccountOp, Amount};
use store::{Key, Kind, StoreError};

use crate::invocation::Run;
use crate::llm::paid;
use crate::tools::effect::{EffectState, Effects};
use crate::tools::spec::ToolSpec;
use crate::tools::{Caller, Used};

/// Returns the id of the reservation for a call.
pub(crate) fn hold_of(call: &str) -> Arc<str> {
    format!("tool_{call}").into()
}

impl Run {
    /// Returns the name under which the calls of a tool are counted, with their number known; `None` for a tool without limits.
    async fn counted(&self, tool: &ToolSpec, caller: &Caller) -> Result<Option<Arc<str>>, StoreError> {
        if !tool.limits.counts() {
            return Ok(None);
        }
        let (user, now) = (self.tools.counted_as(tool, caller, &self.origin), self.store.clock().now());
        let counters = self.tools.counters();
        if !counters.knows(&user, now) {
            let stored = self.store.document::<Used>(&Key::new(Kind::Used, user.clone())).await?;
            counters.learn(&user, stored.map(|found| found.value));
        }
        Ok(Some(user))
    }

    /// Returns the sentence for a call that the limits of its tool do not admit now.
    pub(super) async fn limit_reached(&self, tool: &ToolSpec, caller: &Caller) -> Result<Option<String>, StoreError> {
        let Some(user) = self.counted(tool, caller).await? else { return Ok(None) };
        Ok(self.tools.counters().refusal(&user, &tool.limits, self.store.clock().now()))
    }

    /// Counts a call of a tool, if its limits admit it. Returns the number of calls to store, if there is one.
    ///
    /// # Errors
    /// A store error; the inner error is a sentence for the model.
    pub(crate) async fn admit(
        &self,
        tool: &ToolSpec,
        caller: &Caller,
    ) -> Result<Result<Option<(Key, Used)>, String>, StoreError> {
        let Some(user) = self.counted(tool, caller).await? else { return Ok(Ok(None)) };
        let (counters, key, now) =
            (self.tools.counters(), Key::new(Kind::Used, user.clone()), self.store.clock().now());
        Ok(counters.admit(&user, &tool.limits, now).map(|used| used.map(|used| (key, used))))
    }

    /// Returns the reservation of the price of a call; `None` for a call that costs nothing.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn hold(&self, tool: &ToolSpec, id: &str) -> Result<Option<AccountOp>, StoreError> {
        if tool.price_micro_usd == 0 {
            return Ok(None);
        }
        let amount = Amount { tokens: 0, micro_usd: tool.price_micro_usd.into() };
        let parent = paid::paying_hold(&self.store, &self.origin, &self.account).await?;
        Ok(Some(AccountOp::Hold { id: hold_of(id), parent, amount, of: self.origin.participant().cloned() }))
    }

    /// Returns the settlement of the reservation of an effect, with its account, if it is open and the outcome is known: a call
    /// that was certainly not done costs nothing.
    pub(super) async fn settlement(
        &self,
        known: &mut Effects,
        id: &str,
    ) -> Result<Option<(Arc<str>, AccountOp)>, StoreError> {
        let Some(effect) = known.effects.iter_mut().find(|effect| *effect.id == *id) else { return Ok(None) };
        let Some(account) = effect.paid_from.clone() else { return Ok(None) };
        let hold = hold_of(id);
        let is_open = self.store.account(&account).await?.is_some_and(|account| account.holds.contains_key(&hold));
        if !is_open {
            return Ok(None);
        }
        let is_free = effect.state == EffectState::Refused;
        if is_free {
            effect.paid_from = None;
        }
        Ok(Some((account, AccountOp::Settle { id: hold, used: is_free.then(Amount::default) })))
    }
}
