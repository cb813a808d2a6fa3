//! The supply of a running lifeform: its mode, its means, and the release of tokens for a task.

use neurons::llm::{ModelTraits, Usage};
use store::StoreError;
use store::ledger::Amount;

use super::LifeformState;
use crate::LifeformError;
use crate::homeostasis::{Condition, Decision, Request, decide};
use crate::life::{Head, Status};
use crate::metabolism::{Fed, Means, Mode, Policy, hunger, means, tier};
use crate::perception::Supply;

/// The maximum number of prompt tokens of a reply besides its history. Its reservation must be covered before it starts.
const REPLY_PROMPT_TOKENS: u64 = 4_000;
/// The traits that are assumed if there is no model.
const UNKNOWN_MODEL: ModelTraits = ModelTraits { context_tokens: 8_192, small: false, tools: false };
/// The hunger from which on a prompt says that the lifeform has to rest soon.
const RESTS_SOON: f64 = 0.8;

impl LifeformState {
    /// Returns the supply of the account now.
    async fn fed(&self) -> Result<Fed, StoreError> {
        let account = self.store.account(&self.head.id).await?.unwrap_or_default();
        Ok(Fed::of(&account, self.store.clock().now()))
    }

    /// Asks the rules of homeostasis in a mode and under an order.
    async fn ask(&self, fed: Fed, mode: Mode, policy: &Policy, request: Request<'_>) -> Decision {
        let now = self.store.clock().now();
        let hour = now.to_zoned(self.head.definition.zone()).hour();
        let Head { definition, id, .. } = &self.head;
        let condition = Condition { fed, mode, policy, metabolism: &definition.metabolism, now, hour };
        let (decision, fault) = decide(&self.fascicles, &definition.homeostasis, condition, request).await;
        if let Some(fault) = fault {
            tracing::warn!(lifeform = %id, fault, "the shipped rules of homeostasis decide");
        }
        decision
    }

    /// Checks the balance and updates the metabolic mode. A change is stored with the rules that decided.
    pub(super) async fn current_means(&mut self) -> Result<Means, LifeformError> {
        let (was, status, wanted) = (self.head.mode, self.head.status, self.head.in_want);
        let fed = self.fed().await?;
        let decision = self.ask(fed, was, &self.head.policy, Request::default()).await;
        let was_hungry = if wanted { Mode::Eco } else { Mode::Standard };
        let in_want = self.ask(fed, was_hungry, &Policy::default(), Request::default()).await.mode == Mode::Eco;
        let means = self.means_in(decision.mode, fed.free_tokens);
        // Reservations of running answers come back when they are settled, so only an idle lifeform can be dormant.
        let starving = !self.free().await?.covers(self.need(means)) && self.jobs.is_empty();
        let now_status = if starving { Status::Dormant } else { Status::Running };
        if now_status != status || decision.mode != was || wanted != in_want {
            let mut head = Head { status: now_status, mode: decision.mode, in_want, ..self.head.clone() };
            head.wants += u64::from(in_want && !wanted);
            head.rests += u64::from(starving && status != Status::Dormant);
            let monitor = decision.rules.iter().find_map(|(neuron, rule)| Some((neuron, rule.as_ref()?)));
            let cause = monitor.map_or_else(
                || "neuron:resource_monitor".to_owned(),
                |(neuron, rule)| format!("neuron:{neuron}: {rule}"),
            );
            self.keep(head, &self.because(cause), "metabolism").await?;
        }
        Ok(means)
    }

    /// Returns `true` if the rules of homeostasis release the needed amount for a task.
    pub(super) async fn is_released(&self, request: Request<'_>, need: Amount) -> Result<bool, StoreError> {
        let decision = self.ask(self.fed().await?, self.head.mode, &self.head.policy, request).await;
        Ok(decision.covers(self.free().await?, need))
    }

    /// Returns the number of heartbeats of which one acts.
    pub(super) async fn beats_to_act(&self) -> Result<u32, StoreError> {
        let fed = self.fed().await?;
        Ok(self.ask(fed, self.head.mode, &self.head.policy, Request::default()).await.every)
    }

    /// Returns the sort of a principal for the rules of homeostasis.
    pub(super) fn sort_of(&self, who: &str) -> &'static str {
        match () {
            () if who.starts_with("lifeform:") => "lifeform",
            () if who.starts_with("system:") => "system",
            () if self.participant(who).is_some() => "participant",
            () => "operator",
        }
    }

    /// Returns the means of a mode with the model of its tier.
    pub(super) fn means_in(&self, mode: Mode, free_tokens: i64) -> Means {
        means(mode, self.fascicles.model_of(tier(mode)).unwrap_or(UNKNOWN_MODEL), free_tokens)
    }

    /// Returns the means of the present mode, without a change of it.
    pub(super) async fn means_now(&self) -> Result<Means, StoreError> {
        Ok(self.means_in(self.head.mode, self.fed().await?.free_tokens))
    }

    /// Returns the means of a thought, for its prompt.
    pub(super) async fn supply(&self, means: Means) -> Result<Supply, StoreError> {
        let rests_soon = hunger(self.fed().await?.free_tokens, &self.head.definition.metabolism) >= RESTS_SOON;
        let Means { small, tools, history_tokens, .. } = means;
        Ok(Supply { mode: self.head.mode, rests_soon, small, tools, history_tokens, storm: false })
    }

    /// Returns the balance that is not reserved.
    pub(super) async fn free(&self) -> Result<Amount, StoreError> {
        let account = self.store.account(&self.head.id).await?;
        Ok(account.map(|account| account.available()).unwrap_or_default())
    }

    /// Returns the amount that must be free before an answer starts, at the price of its model.
    pub(super) fn need(&self, means: Means) -> Amount {
        let usage = Usage {
            prompt_tokens: REPLY_PROMPT_TOKENS + if means.small { 0 } else { u64::from(means.history_tokens) },
            completion_tokens: means.output_tokens_max.into(),
            ..Usage::default()
        };
        let mut need = self.fascicles.price(means.tier, usage);
        need.tokens = need.tokens.max(self.head.definition.metabolism.rest_below_tokens);
        need
    }
}
