//! The initiative of a lifeform: goals, schedules and the maintenance of its mind.

use std::sync::Arc;

use fascicles::run::{Fact, Status as JobStatus};
use fascicles::{FascicleError, JobOrder, Priority};
use jiff::SignedDuration;
use knowledge::Record;
use neurons::Tier;
use neurons::llm::Class;
use serde_json::json;
use store::ledger::Amount;
use store::{Entry, Event, Hash, Origin, StoreError, Timestamp};

use super::{LifeformState, is_passing};
use crate::LifeformError;
use crate::agenda::{ACTS_AT_ONCE, Act, ActErrand, AgendaItemId, ERRAND, Errand, Related, Schedule};
use crate::canvas::{Canvas, Refusal, chat};
use crate::guard::Step;
use crate::homeostasis::{self, Request};
use crate::life::Mailbox;
use crate::maintenance::{Task, Way};
use crate::metabolism::Means;
use crate::perception::{ActiveReply, Supply};
use crate::reminders::Language;
use crate::shared_knowledge::alone;
use crate::spending;
use crate::tools::{COMPACTION, called, hears, overlong, readers_of_topic, speakers};

/// The fascicle that summarises without a model.
const EXTRACT: &str = "compact_by_extract";
/// The pause after a failed compaction of a topic, and the maximum number of topics that are remembered for it.
const COMPACTED_AGAIN: SignedDuration = SignedDuration::from_hours(1);
const FAILING_MAX: usize = 1_024;
/// The minimum time between two answers that deadlines interrupt.
const PUT_OFF_AGAIN: SignedDuration = SignedDuration::from_mins(10);

impl LifeformState {
    /// Reloads the agenda after another writer changed it.
    pub(crate) async fn replan(&self) -> Result<(), LifeformError> {
        self.plans.reload().await
    }

    /// Starts the due acts, as far as the nutrients allow. Without due acts, this only reads memory.
    pub(crate) async fn take_initiative(&mut self, me: &Mailbox) -> Result<(), LifeformError> {
        let now = self.store.clock().now();
        if self.plans.agenda().is_to_confirm(now) {
            let origin = self.because("agenda");
            let confirmed = self.plans.change(&origin, "confirmed by silence", |agenda, now| {
                agenda.confirm_by_silence(now);
                Ok(())
            });
            confirmed.await?;
        }
        Box::pin(self.coordinate_due(now)).await;
        if self.plans.agenda().upkeep_at.is_some_and(|at| at <= now) {
            Box::pin(self.tend(me, now)).await?;
        }
        if self.plans.agenda().thought_at.is_some_and(|at| at <= now) && self.head.guard.step == Step::Calm {
            Box::pin(self.think_unasked(me, now)).await?;
        }
        let due_acts = |this: &Self| this.plans.agenda().due(this.plans.initiative(), now);
        if !self.plans.agenda().reminders_due(now).is_empty() || !due_acts(self).is_empty() {
            self.drop_retracted_requests().await?;
        }
        for reminder in self.plans.agenda().reminders_due(now) {
            self.remind(&reminder, now).await?;
        }
        let due = due_acts(self);
        if due.is_empty() || self.head.guard.step >= Step::Inhibit {
            return Ok(());
        }
        let means = self.current_means().await?;
        let mut begun = 0;
        for act in due {
            if begun == ACTS_AT_ONCE {
                break;
            }
            // A participant that has used up its share does not block others.
            let participant = self.plans.agenda().set_by(&act).and_then(|by| self.participant(&by));
            if participant.is_some_and(|who| self.counts.job_share_used_up(&who, &self.limits, now)) {
                continue;
            }
            if !self.may_draw(&act, means).await? || !self.can_begin(&act, means, now).await? {
                continue;
            }
            begun += 1;
            match self.begin(me, &act, means).await {
                Err(LifeformError::Fascicle(FascicleError::Overloaded)) => break,
                Err(LifeformError::Fascicle(FascicleError::Store(error))) if error.is_ledger_refusal() => {}
                Err(LifeformError::Fascicle(error)) if !is_passing(&error) => {
                    tracing::error!(lifeform = %self.head.id, %error, "what is due cannot be begun");
                }
                begun => begun?,
            }
        }
        Ok(())
    }

    /// Returns `true` if the rules of homeostasis release the needed amount for an act.
    async fn is_released_for(&self, act: &Act, means: Means, now: Timestamp) -> Result<bool, StoreError> {
        let agenda = self.plans.agenda();
        let set_by = agenda.set_by(act);
        let person = set_by.as_deref().unwrap_or_default();
        let task = if matches!(act, Act::Goal(_)) { homeostasis::Task::Goal } else { homeostasis::Task::Schedule };
        let request = Request { task, is_urgent: agenda.is_urgent(act, now), by: self.sort_of(person), person };
        self.is_released(request, self.need(means)).await
    }

    /// Returns `true` if the needed amount for an act is released. If an answer to a participant holds the tokens, a goal
    /// with a deadline within the hour interrupts it, and the lifeform completes the answer later.
    async fn can_begin(&mut self, act: &Act, means: Means, now: Timestamp) -> Result<bool, LifeformError> {
        if self.is_released_for(act, means, now).await? {
            return Ok(true);
        }
        let presses =
            self.plans.agenda().presses(act, now) && self.put_off_at.is_none_or(|at| now >= at + PUT_OFF_AGAIN);
        if !presses
            || self.free().await?.covers(self.need(means))
            || !self.put_off_newest("a deadline comes first").await?
        {
            return Ok(false);
        }
        self.put_off_at = Some(now);
        Ok(self.is_released_for(act, means, now).await?)
    }

    /// Returns `true` if the participant who set an act, if any, may still use the needed amount in this hour.
    async fn may_draw(&self, act: &Act, means: Means) -> Result<bool, LifeformError> {
        let Some(who) = self.plans.agenda().set_by(act).and_then(|by| self.participant(&by)) else { return Ok(true) };
        let account = self.store.account(&self.head.id).await?.unwrap_or_default();
        let left = account.share_left(&who.0, self.store.clock().now());
        Ok(left.is_none_or(|left| left.covers(self.need(means))))
    }

    /// Posts a reminder unchanged and removes it from the agenda. A repetition posts the same message. If its topic
    /// takes no message, for example because it is archived, the reminder is posted to a topic of its own. At the rate
    /// limit of the canvas it stays due.
    async fn remind(&self, reminder: &Schedule, now: Timestamp) -> Result<(), LifeformError> {
        let act = Act::Schedule(reminder.id.clone());
        let (Some(canvas), Some((job, _))) =
            (self.canvases.get(&self.home()), self.plans.agenda().errand(&act, &self.head.id, now))
        else {
            return Ok(());
        };
        let origin = self.because(act.reference());
        let own: Arc<str> = format!("schedule_{}", reminder.id).into();
        let topic = reminder.topic.clone().unwrap_or_else(|| own.clone());
        let message: Arc<str> = format!("msg_{job}").into();
        let post = async |topic: &Arc<str>| {
            let (id, title) = (topic.clone(), reminder.what.clone());
            let open = chat::Op::TopicCreate { id, title, turns: chat::Turns::default() };
            let text = self.text_of_reminder(&canvas, topic, reminder);
            let mut say = chat::Op::say(topic, message.clone(), text, None);
            if let chat::Op::Append { behind, .. } = &mut say {
                *behind = self.plans.agenda().behind(&act, &self.me.id).unwrap_or_default();
            }
            for op in [open, say] {
                match canvas.apply(op, None, None, &origin).await {
                    Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let posted = match post(&topic).await {
            Err(LifeformError::Refused(refusal)) if !matches!(refusal, Refusal::Rate(_)) && topic != own => {
                tracing::info!(lifeform = %self.head.id, %refusal, "a reminder is posted to a topic of its own");
                post(&own).await
            }
            posted => posted,
        };
        match posted {
            Ok(()) => {}
            Err(LifeformError::Refused(Refusal::Rate(_))) => return Ok(()),
            // A reminder that no topic takes does not delay others.
            Err(LifeformError::Refused(refusal)) => {
                tracing::error!(lifeform = %self.head.id, reminder = %reminder.what, %refusal, "reminder not posted");
            }
            Err(error) => return Err(error),
        }
        self.plans
            .change(&origin, "reminded", |agenda, now| {
                agenda.begin(&act, &job, now);
                Ok(())
            })
            .await
    }

    /// Returns the text of a reminder: its own words, and where several people read, the name of the person who set it.
    fn text_of_reminder(&self, canvas: &Canvas, topic: &str, reminder: &Schedule) -> String {
        let state = canvas.snapshot().state;
        let others = speakers(&state, topic).into_iter().any(|who| hears(&who, &self.me) && *who != *reminder.by.0);
        let what = &reminder.what;
        if !others || !reminder.by.0.starts_with("user:") {
            return what.clone();
        }
        let name = called(&state, &reminder.by.0);
        match Language::of(what) {
            Language::English => format!("Reminder for {name}: {what}"),
            Language::Chinese => format!("{name}的提醒：{what}"),
            Language::Japanese => format!("{name}さんへのリマインダー：{what}"),
        }
    }

    /// Starts the job of an act. The start and the change of the agenda share a commit.
    pub(super) async fn begin(&mut self, me: &Mailbox, act: &Act, means: Means) -> Result<(), LifeformError> {
        let now = self.store.clock().now();
        let Some((job, mut errand)) = self.plans.agenda().errand(act, &self.head.id, now) else { return Ok(()) };
        let behind = self.plans.agenda().behind(act, &self.me.id).unwrap_or_default();
        let participant = self.plans.agenda().set_by(act).and_then(|by| self.participant(&by));
        let origin = self.because(act.reference()).on_behalf_of(participant.clone());
        let known = self.focus(act, &origin).await;
        let presses = self.plans.agenda().presses(act, now);
        errand.behind = behind.to_vec();
        errand.knows = known.iter().map(|record| record.id.clone()).collect();
        errand.knowledge = knowledge::as_told(&known);
        let untrusted = behind.is_empty() || !behind.iter().all(|by| self.trusts(by));
        let pursue = &self.head.definition.pursue;
        let fascicle = pursue.variant(self.head.mode, means.tools).clone();
        errand.acts = pursue.gives_tools(&fascicle);
        if errand.acts {
            errand.by_stranger = untrusted;
            let setter = self.plans.agenda().set_by(act).unwrap_or_default();
            errand.decides = self.may_decide(&setter);
            (errand.own_tokens, errand.spent_tokens) = self.spent_for(act).await?;
            errand.budget_tokens = errand.budget_tokens.max(self.head.definition.acting.budget_tokens);
        } else {
            errand.replan.get_or_insert_with(|| errand.occasion.clone());
        }
        errand.supply = Supply { tools: false, ..self.supply(means).await? };
        errand.strangers = known.iter().flat_map(|record| self.knowledge.strangers_behind(record)).collect();
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle,
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(ERRAND, json!(Errand::Act(Box::new(errand))), origin.cause.clone())],
            tier: Some(means.tier),
            class: Some(if presses { Class::Answer } else { Class::Initiative }),
            priority: if presses { Priority::default() } else { Priority::Low },
            reserve: self.need(means),
            scope: self.plans.agenda().effect_scope(act, &self.head.id),
            untrusted,
            approvers: self.head.definition.approvers_of(&self.plans.agenda(), act),
            ..JobOrder::default()
        };
        if self.counts.knows_nothing_unasked() {
            // The spending of unasked jobs is counted from here.
            self.count_unasked().await?;
        }
        let related = Related::of(&known, now);
        let mut begun = self.plans.changed(|agenda| {
            agenda.begin(act, &job, now);
            if let Act::Goal(goal) = act {
                // The goal exists, because the act was just recorded.
                let _ = agenda.relate(goal, related);
            }
        });
        let plans = self.plans.clone();
        let toolbox = self.toolbox.clone();
        let started = self.fascicles.start(&origin, order, toolbox, |batch| plans.with(batch, &mut begun)).await;
        self.plans.reload().await?;
        match started {
            Ok(_) => {
                self.counts.act(now, participant);
                self.watch(me, job);
            }
            // Another writer changed the agenda in the meantime. The next heartbeat retries.
            Err(FascicleError::Store(StoreError::Conflict { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns the number of tokens that a goal has used, alone and with the goals that serve the same topmost goal.
    async fn spent_for(&self, act: &Act) -> Result<(u64, u64), LifeformError> {
        let Act::Goal(id) = act else { return Ok((0, 0)) };
        let report = spending::report(&self.store, &self.fascicles, &self.head.id).await?;
        let by_goal = report.by.get("goal");
        let spent = |goal: &AgendaItemId| {
            let tally = by_goal.and_then(|goals| goals.get(&**goal));
            tally.map_or(0, |tally| u64::try_from(tally.charged.tokens).unwrap_or(0))
        };
        let family = self.plans.agenda().family_of(id);
        Ok((spent(id), family.iter().map(spent).sum()))
    }

    /// Returns the records about a goal that is being pursued; none if the commons cannot be read.
    async fn focus(&self, act: &Act, origin: &Origin) -> Vec<Record> {
        let Act::Goal(id) = act else { return Vec::new() };
        let agenda = self.plans.agenda();
        let Some(goal) = agenda.goals.get(id) else { return Vec::new() };
        let parent = goal.parent.as_ref().and_then(|parent| agenda.goals.get(parent));
        let set_by = &*goal.by.0;
        let canvas = self.canvases.get(&self.home());
        let state = canvas.map(|canvas| canvas.snapshot().state);
        let mut people =
            state.map(|state| readers_of_topic(&state, &goal.speaks_in(), &self.memory)).unwrap_or_default();
        people.insert(set_by.to_owned());
        if people.iter().all(|who| !hears(who, &self.me)) {
            // Its topic is open to all.
            people.insert("user:".to_owned());
        }
        // Anyone may read the results of a goal, so only a trusted author's own records are used for it.
        let whose = Some(set_by).filter(|set_by| alone(&people, set_by) && self.trusts(set_by));
        let known = self.knowledge.about(goal, parent, whose, &people, &origin.cause).await;
        known.unwrap_or_else(|error| {
            tracing::warn!(lifeform = %self.head.id, %error, "what is known about a goal cannot be looked up");
            Vec::new()
        })
    }

    /// Starts a compaction if a topic has grown longer than the history in a prompt. After a failed compaction, it
    /// waits before it retries.
    pub(super) async fn compact(&mut self, me: &Mailbox, thought: &ActiveReply) -> Result<(), LifeformError> {
        let (means, place) = (self.means_now().await?, &thought.perception.place);
        let above = self.head.definition.compact_above_chars as usize;
        let Some(canvas) = self.canvases.get(&place.canvas).filter(|_| above > 0) else { return Ok(()) };
        let now = self.store.clock().now();
        let is_failing =
            |by_extract| self.not_compacted_until.get(&(place.clone(), by_extract)).is_some_and(|until| now < *until);
        let is_busy = self.compacting.values().any(|(busy, _)| busy == place);
        let state = canvas.snapshot().state;
        let supply = self.supply(means).await?;
        let Some(long) = overlong(&state, place, &self.me.id.0, supply, above) else { return Ok(()) };
        // What a small model would write is worse than an extract, and an extract costs nothing.
        let request = Request { task: homeostasis::Task::Compaction, by: "lifeform", ..Request::default() };
        let can_pay = !is_failing(false) && self.is_released(request, self.need(means)).await?;
        let by_extract = means.small || !can_pay;
        if is_busy || (by_extract && is_failing(true)) {
            return Ok(());
        }
        let fascicle = match by_extract {
            true => EXTRACT.into(),
            false => self.head.definition.compact.variant(self.head.mode, means.tools).clone(),
        };
        // Each answer triggers a separate attempt.
        let job: Arc<str> = format!("{}.c{}", self.head.id, &Hash::of(thought.job.as_bytes()).hex()[..16]).into();
        let origin = self.because(format!("job:{}", thought.job)).because("errand:compaction");
        let origin = origin.on_behalf_of(self.participant_of(&thought.perception));
        let content = serde_json::to_value(long).unwrap_or_default();
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle,
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(COMPACTION, content, origin.cause.clone())],
            tier: Some(means.tier),
            class: Some(Class::Afterthought),
            priority: Priority::Low,
            reserve: if by_extract { Amount::default() } else { self.need(means) },
            untrusted: true,
            ..JobOrder::default()
        };
        match self.fascicles.start(&origin, order, self.toolbox.clone(), |batch| batch).await {
            Ok(_) => {
                self.compacting.insert(job.clone(), (place.clone(), by_extract));
                self.watch(me, job);
            }
            // The next answer triggers a retry.
            Err(error) => tracing::warn!(lifeform = %self.head.id, %error, "a topic cannot be compacted now"),
        }
        Ok(())
    }

    /// Processes the end of a compaction. Returns `true` if the job was one.
    pub(super) fn compacted(&mut self, job: &str, status: JobStatus) -> bool {
        let Some(place) = self.compacting.remove(job) else { return false };
        let now = self.store.clock().now();
        self.not_compacted_until.retain(|_, until| now < *until);
        if status != JobStatus::Completed && self.not_compacted_until.len() < FAILING_MAX {
            self.not_compacted_until.insert(place, now + COMPACTED_AGAIN);
        }
        true
    }

    /// Starts a maintenance task as a job with a given name. Returns the job.
    pub(crate) async fn maintain(
        &mut self,
        me: &Mailbox,
        (task, way): (Task, Way),
        job: Arc<str>,
        origin: &Origin,
    ) -> Result<Arc<str>, LifeformError> {
        let means = self.means_now().await?;
        let supply = self.supply(means).await?;
        let errand = json!(Errand::Maintenance { maintenance: task, supply, way });
        let definition = &self.head.definition;
        let skill = match task {
            Task::Reflect => Some(&definition.reflect),
            Task::ReadStatements => Some(&definition.form),
            Task::DescribeDomains => Some(&definition.describe),
            Task::DescribePeople => Some(&definition.describe_person),
            _ => None,
        };
        let asks_a_model = skill.is_some() && !means.small;
        let fascicle =
            skill.map_or_else(|| "maintenance".into(), |skill| skill.variant(self.head.mode, means.tools).clone());
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle,
            tier: Some(means.tier.min(Tier::Standard)).filter(|_| asks_a_model),
            reserve: if asks_a_model { self.need(means) } else { Amount::default() },
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(ERRAND, errand, origin.cause.clone())],
            class: Some(Class::Afterthought),
            priority: Priority::Low,
            ordered: task.as_str().into(),
            ..JobOrder::default()
        };
        self.fascicles.start(origin, order, self.toolbox.clone(), |batch| batch).await?;
        self.watch(me, job.clone());
        Ok(job)
    }

    /// Reports a failed schedule, since it does not run again by itself.
    pub(super) async fn admit_schedule(&self, job: &Arc<str>) {
        let prefix = format!("{}.schedule.", self.head.id);
        let Some(id) = job.strip_prefix(&prefix).and_then(|rest| rest.split('.').next()) else { return };
        let Some(canvas) = self.canvases.get(&self.home()) else { return };
        let error = self.fascicles.job(job).await.ok().and_then(|head| head.error).unwrap_or_default();
        let error: String = error.chars().take(240).collect();
        let errand = self.errand_of(job).await;
        let promised = errand.and_then(|errand| Some((errand.topic?, errand.title)));
        let origin: Origin = self.because(format!("job:{job}"));
        let (topic, title, content): (Arc<str>, String, String) = match promised {
            // The text for this time is posted even if the thought about it failed.
            Some((topic, title)) => (topic.clone(), topic.to_string(), title),
            None => {
                let why = format!("What was scheduled failed: {error}");
                (format!("schedule_{id}").into(), format!("Schedule {id}"), why)
            }
        };
        let open = chat::Op::TopicCreate { id: topic.clone(), title, turns: chat::Turns::default() };
        let say = chat::Op::say(&topic, format!("msg_{job}").into(), content, None);
        for op in [open, say] {
            match canvas.apply(op, None, None, &origin).await {
                Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => {}
                Err(error) => return tracing::warn!(%error, "the message about a failed schedule was not posted"),
            }
        }
    }

    /// Returns the goal or schedule that a job of the lifeform itself carries out.
    async fn errand_of(&self, job: &Arc<str>) -> Option<ActErrand> {
        let accepted = self.store.entries(&format!("job:{job}").into(), 0, 1).await.unwrap_or_default();
        let Some(Ok(Fact::Accepted { events, .. })) = accepted.first().map(Entry::decode::<Fact>) else { return None };
        let errand = events.into_iter().find(|event| &*event.role == ERRAND)?;
        serde_json::from_value(errand.content).ok()
    }
}
