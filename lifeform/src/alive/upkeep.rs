//! The work of a lifeform without a goal: when the nights of `$system` come, and own thoughts by day.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{FascicleError, JobOrder, Priority};
use jiff::SignedDuration;
use jiff::civil::Date;
use neurons::llm::Class;
use serde_json::json;
use store::{Event, Hash, StoreError, Timestamp};

use super::LifeformState;
use crate::LifeformError;
use crate::agenda::{ERRAND, Errand};
use crate::canvas::chat;
use crate::homeostasis::{Request, Task as Release};
use crate::life::Mailbox;
use crate::memory::OpenThing;
use crate::tools::{hears, readers_of_topic};

/// The time over which the nights of the lifeforms of a zone begin, in seconds.
const NIGHT_SPREAD_S: i64 = 1_200;
/// The number of days for which a thing stays open after its day.
const OPEN_DAYS: i32 = 2;
/// The maximum number of own thoughts at once.
const THOUGHTS_AT_ONCE: usize = 2;

impl LifeformState {
    pub(super) fn today(&self, now: Timestamp) -> Date {
        now.to_zoned(self.head.definition.zone()).date()
    }

    /// Returns the next night of the lifeform. Those of one zone do not begin at the same second.
    pub(super) fn next_night(&self, now: Timestamp) -> Option<Timestamp> {
        let hash = Hash::of(self.head.id.as_bytes());
        let spread = i64::from_str_radix(&hash.hex()[..6], 16).unwrap_or_default() % NIGHT_SPREAD_S;
        let spread = SignedDuration::from_secs(spread);
        let night = self.head.definition.next_night(now.checked_sub(spread).unwrap_or(now))?;
        night.checked_add(spread).ok()
    }

    /// Sets the time of the nightly upkeep of a lifeform that has none yet, and removes it where the definition does not
    /// want it.
    pub(super) async fn plan_upkeep(&self) -> Result<(), LifeformError> {
        let definition = &self.head.definition;
        if self.plans.agenda().upkeep_at.is_some() == definition.initiative.upkeep {
            return Ok(());
        }
        let at = self.next_night(self.store.clock().now()).filter(|_| definition.initiative.upkeep);
        let origin = self.because("wake");
        let planned = self.plans.change(&origin, "upkeep", |agenda, _| {
            agenda.upkeep_at = at;
            Ok(())
        });
        planned.await
    }

    /// Returns the things of the last days that are open, of which the lifeform may think.
    pub(super) async fn open_things(&self, now: Timestamp) -> Result<Vec<OpenThing>, LifeformError> {
        let Some(canvas) = self.canvases.get(&self.home()) else { return Ok(Vec::new()) };
        let state = canvas.snapshot().state;
        let readers_of = |topic: &str| {
            chat::topic_in(&state, topic).filter(|topic| !topic.is_archived())?;
            let people: BTreeSet<String> =
                readers_of_topic(&state, topic, &self.memory).into_iter().filter(|who| hears(who, &self.me)).collect();
            let are_trusted = people.iter().all(|who| self.trusts(who));
            Some((people, are_trusted))
        };
        let today = self.today(now);
        let days = |count: i32| today.checked_sub(jiff::Span::new().days(count)).unwrap_or(today);
        let origin = self.because("errand:thought");
        let mut open = self.memory.conflicts_to_ask(&self.home(), readers_of, &origin).await?;
        open.extend(self.memory.open_things(&self.home(), (days(OPEN_DAYS), days(1)), readers_of, &origin).await?);
        let agenda = self.plans.agenda();
        Ok(open.into_iter().filter(|thing| agenda.may_think_of(&thing.person, thing.key(), now)).collect())
    }

    /// Starts own thoughts about open things: at most one a day and person, outside quiet hours, within the unasked
    /// messages of a day, and with tokens to spare. What does not fit today is left.
    pub(super) async fn think_unasked(&mut self, me: &Mailbox, now: Timestamp) -> Result<(), LifeformError> {
        let origin = self.because("errand:thought");
        let initiative = &self.head.definition.initiative;
        let later = self.plans.agenda().held_back_until(initiative, now);
        let at = Some(later).filter(|later| *later > now && later.duration_since(now) < SignedDuration::from_hours(12));
        if later <= now && initiative.thoughts {
            let mut begun = 0;
            for thing in self.open_things(now).await.unwrap_or_default() {
                let may = self.plans.agenda().may_think_of(&thing.person, thing.key(), now);
                if begun == THOUGHTS_AT_ONCE || !may {
                    continue;
                }
                match self.begin_thought(me, thing, now).await {
                    Ok(is_begun) => begun += usize::from(is_begun),
                    // What goes wrong with a thought delays nothing that is asked for.
                    Err(error) => tracing::warn!(lifeform = %self.head.id, %error, "an own thought cannot be begun"),
                }
            }
        }
        let thought = self.plans.change(&origin, "thoughts", |agenda, _| {
            agenda.thought_at = at;
            Ok(())
        });
        thought.await
    }

    /// Starts the job of a thought. Its start and the note that it was thought share a commit. Returns `false` if the
    /// tokens for it are not released.
    async fn begin_thought(
        &mut self,
        me: &Mailbox,
        mut thing: OpenThing,
        now: Timestamp,
    ) -> Result<bool, LifeformError> {
        let means = self.means_now().await?;
        let need = self.need(means);
        // A small model asks badly. Of a conflict, a rule asks.
        if means.small && thing.conflict.is_none() {
            return Ok(false);
        }
        let request = Request { task: Release::Thought, by: "lifeform", person: &thing.person, ..Request::default() };
        if !self.is_released(request, need).await? {
            return Ok(false);
        }
        let job: Arc<str> =
            format!("{}.thought.{}", self.head.id, &Hash::of(thing.key().as_bytes()).hex()[..16]).into();
        let origin = self.because("errand:thought");
        thing.supply = self.supply(means).await?;
        let untrusted = !thing.people.iter().all(|who| self.trusts(who));
        let mut begun = self.plans.changed(|agenda| agenda.thought_of(&thing.person, thing.key(), now));
        let errand = json!(Errand::Thought { thought: Box::new(thing) });
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle: self.head.definition.muse.variant(self.head.mode, means.tools).clone(),
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(ERRAND, errand, origin.cause.clone())],
            tier: Some(means.tier),
            class: Some(Class::Initiative),
            priority: Priority::Low,
            reserve: need,
            untrusted,
            ..JobOrder::default()
        };
        let plans = self.plans.clone();
        let toolbox = self.toolbox.clone();
        let started = self.fascicles.start(&origin, order, toolbox, |batch| plans.with(batch, &mut begun)).await;
        self.plans.reload().await?;
        match started {
            Ok(_) => {
                self.watch(me, job);
                Ok(true)
            }
            Err(FascicleError::Store(StoreError::Conflict { .. }) | FascicleError::Overloaded) => Ok(false),
            Err(FascicleError::Store(error)) if error.is_ledger_refusal() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
