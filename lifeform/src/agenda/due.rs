//! The due entries of an agenda, the events of their jobs, and the outcomes. Plain functions of the agenda and the
//! time.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use neurons::tools::{EffectScope, Grant};
use nexus::OUTSIDE;
use store::PrincipalId;

use super::entries::I_SAID;
use super::errand::{ActErrand, Subgoal};
use super::plan::{self, StepOutcome};
use super::{
    AGAIN_MIN, Act, Agenda, AgendaItemId, BEHIND_MAX, DEPTH_MAX, Goal, GoalSpec, GoalStatus, NOTES_MAX, Note, Outcome,
    OwnSchedule, PlanStep, Question, Schedule, ScheduleSpec, StepStatus, TEXT_BYTES_MAX, check_plan, next_of,
};
use crate::canvas::{CHAT, Refusal};
use crate::perception::ThreadRef;
use crate::spec::Initiative;

/// The maximum number of coordinated topics that have a time.
const MEETINGS_MAX: usize = 64;
/// One participant's share of the unasked messages is one in this many.
const UNASKED_SHARES: usize = 4;
/// The time in seconds after a call during which the same call for another goal of the topic needs an approval: 90 days.
const ECHOES_S: u32 = 90 * 86_400;
/// The number of notes of a goal that its job reads.
const NOTES_SHOWN: usize = 6;
/// The maximum length of a serving goal's result in the errand of another goal, in characters.
const RESULT_CHARS: usize = 1_000;
/// The time after which a reported goal is done without a confirmation.
const CONFIRMED_AFTER: SignedDuration = SignedDuration::from_hours(72);
/// The time for which calls that a person approved with a plan may be made.
pub(crate) const GRANTED_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The time before its deadline from which on a goal presses.
const PRESSES_WITHIN: SignedDuration = SignedDuration::from_hours(1);

impl Agenda {
    /// Returns each act with its due time, before any delay.
    fn times(&self) -> impl Iterator<Item = (Timestamp, Act)> {
        let goals = self.goals.values().filter(|goal| !goal.status.is_over() && goal.job.is_none());
        let goals = goals.filter_map(|goal| {
            let at_the_end = goal.deadline.filter(|_| !goal.late && goal.status != GoalStatus::Reported);
            let before = at_the_end.and_then(|_| goal.nears_at()).filter(|_| !goal.course.nears);
            let at = goal.next.into_iter().chain(before).chain(at_the_end).min()?;
            Some((at, Act::Goal(goal.id.clone())))
        });
        goals.chain(self.schedules.values().map(|one| (one.next, Act::Schedule(one.id.clone()))))
    }

    /// Returns the acts to start at `now`, the longest overdue first. During quiet hours, and at the limit of unasked
    /// messages, these are only acts that a person requested in a conversation.
    pub(crate) fn due(&self, initiative: &Initiative, now: Timestamp) -> Vec<Act> {
        // A reminder is posted, and a reported goal is confirmed, without a job.
        let is_without_job = |act: &Act| match act {
            Act::Schedule(id) => self.schedules.get(id).is_some_and(|one| one.remind),
            Act::Goal(id) => self.goals.get(id).is_some_and(|goal| goal.status == GoalStatus::Reported),
        };
        let is_held_back = self.held_back_until(initiative, now) > now;
        let may_be = |act: &Act| !is_held_back || self.is_promised(act);
        let mut due: Vec<(Timestamp, Act)> =
            self.times().filter(|(at, act)| *at <= now && may_be(act) && !is_without_job(act)).collect();
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().map(|(_, act)| act).collect()
    }

    /// Returns the due reminders, the longest overdue first. Reminders ignore quiet hours and limits, because a person
    /// requested them and they need no model.
    pub(crate) fn reminders_due(&self, now: Timestamp) -> Vec<Schedule> {
        let mut due: Vec<Schedule> =
            self.schedules.values().filter(|one| one.remind && one.next <= now).cloned().collect();
        due.sort_by_key(|one| one.next);
        due
    }

    /// Returns `true` for an act that cannot wait until the lifeform has more nutrients: a schedule, or a goal whose
    /// deadline comes within an hour or has passed.
    pub(crate) fn is_urgent(&self, act: &Act, now: Timestamp) -> bool {
        matches!(act, Act::Schedule(_)) || self.presses(act, now)
    }

    /// Returns `true` for a goal whose deadline comes within an hour or has passed. It goes before answers to participants.
    pub(crate) fn presses(&self, act: &Act, now: Timestamp) -> bool {
        let Act::Goal(id) = act else { return false };
        let deadline = self.goals.get(id).and_then(|goal| goal.deadline);
        deadline.is_some_and(|deadline| deadline.duration_since(now) <= PRESSES_WITHIN)
    }

    /// Returns the principals behind an act besides `me`, the owner of the agenda: the author of the act, the authors of
    /// the goals above and below it, the authors of its notes, and the principals behind these goals and notes. If there
    /// are none, the author alone.
    pub(crate) fn behind(&self, act: &Act, me: &PrincipalId) -> Option<Vec<Arc<str>>> {
        match act {
            Act::Schedule(id) => {
                let one = self.schedules.get(id)?;
                Some(std::iter::once(&one.by.0).chain(&one.behind).cloned().collect())
            }
            Act::Goal(id) => {
                let goal = self.goals.get(id)?;
                let below = self.goals.values().filter(|other| other.parent.as_ref() == Some(id));
                // What the lifeform planned and noted may rest on the words of others. A goal that it set for itself
                // follows from the words of the authors above it.
                let of_goals = self.line(goal).chain(below);
                let of_goals = of_goals.flat_map(|goal| std::iter::once(&goal.by.0).chain(&goal.behind));
                let of_notes = goal.notes.iter().flat_map(|note| std::iter::once(&note.by.0).chain(&note.behind));
                let said: BTreeSet<Arc<str>> = of_goals.chain(of_notes).filter(|by| **by != me.0).cloned().collect();
                Some(if said.is_empty() { vec![goal.by.0.clone()] } else { said.into_iter().collect() })
            }
        }
    }

    /// Returns the goals that serve the same topmost goal as one, with itself.
    pub(crate) fn family_of(&self, id: &str) -> Vec<AgendaItemId> {
        let top = |goal: &Goal| self.line(goal).last().map(|top| top.id.clone());
        let Some(own) = self.goals.get(id).and_then(top) else { return Vec::new() };
        self.goals.values().filter(|goal| top(goal).as_ref() == Some(&own)).map(|goal| goal.id.clone()).collect()
    }

    /// Returns `true` if a goal serves another one, directly or not.
    pub(crate) fn serves(&self, goal: &Goal, id: &str) -> bool {
        self.line(goal).skip(1).any(|above| *above.id == *id)
    }

    /// Returns the number of tokens that a goal may use, if a person allowed it or a goal that serves the same topmost goal more
    /// than the lifeform's own bound.
    fn budget_of(&self, id: &str) -> u64 {
        let family = self.family_of(id);
        let allowed = family.iter().filter_map(|goal| self.goals.get(goal)?.course.budget_tokens);
        allowed.max().unwrap_or_default()
    }

    /// Returns a goal and its ancestors, nearest first.
    fn line<'a>(&'a self, goal: &'a Goal) -> impl Iterator<Item = &'a Goal> {
        std::iter::successors(Some(goal), |goal| self.goals.get(goal.parent.as_ref()?)).take(DEPTH_MAX + 1)
    }

    /// Returns the principal whose share an act uses: its author, or for a goal that the lifeform set for itself, the
    /// author of the parent goal.
    pub(crate) fn set_by(&self, act: &Act) -> Option<Arc<str>> {
        match act {
            Act::Schedule(id) => self.schedules.get(id).map(|one| one.by.0.clone()),
            Act::Goal(id) => {
                let mut setters = self.line(self.goals.get(id)?).map(|goal| goal.by.0.clone());
                setters.find(|by| !by.starts_with("lifeform:"))
            }
        }
    }

    /// Returns `true` for an act that a person requested in a conversation. Its time is not delayed.
    fn is_promised(&self, act: &Act) -> bool {
        matches!(act, Act::Schedule(id) if self.schedules.get(id).is_some_and(|one| one.remind || one.topic.is_some()))
    }

    /// Returns the next time at which the agenda must be checked.
    pub(crate) fn next_due(&self, initiative: &Initiative) -> Option<Timestamp> {
        let (promised, others): (Vec<_>, Vec<_>) = self.times().partition(|(_, act)| self.is_promised(act));
        let first = |of: Vec<(Timestamp, Act)>| of.into_iter().map(|(at, _)| at).min();
        let others = first(others).into_iter().chain(self.thought_at).min();
        let others = others.map(|at| self.held_back_until(initiative, at));
        first(promised)
            .into_iter()
            .chain(others)
            .chain(self.upkeep_at)
            .chain(self.meetings.iter().map(|(_, at)| *at))
            .min()
    }

    /// Returns the coordinated topics whose time has come.
    pub(crate) fn meetings_due(&self, now: Timestamp) -> Vec<ThreadRef> {
        self.meetings.iter().filter(|(_, at)| *at <= now).map(|(place, _)| place.clone()).collect()
    }

    /// Returns the next time at which a coordinated topic is looked at.
    pub(crate) fn meeting_at(&self, place: &ThreadRef) -> Option<Timestamp> {
        self.meetings.iter().find(|(known, _)| known == place).map(|(_, at)| *at)
    }

    /// Sets the next time at which a coordinated topic is looked at; `None` removes it. Beyond the maximum, the lifeform looks
    /// at the topic with the next message there.
    pub(crate) fn plan_meeting(&mut self, place: &ThreadRef, at: Option<Timestamp>) {
        self.meetings.retain(|(known, _)| known != place);
        self.meetings.extend(at.filter(|_| self.meetings.len() < MEETINGS_MAX).map(|at| (place.clone(), at)));
    }

    /// Returns the first time from `at` on at which the lifeform may post unasked.
    pub(crate) fn held_back_until(&self, initiative: &Initiative, at: Timestamp) -> Timestamp {
        const DAY: SignedDuration = SignedDuration::from_hours(24);
        let recent: Vec<Timestamp> =
            self.unasked.iter().copied().filter(|spoken| at.duration_since(*spoken) < DAY).collect();
        let over = recent.len().saturating_sub((initiative.unasked_per_day as usize).saturating_sub(1));
        let at = match over.checked_sub(1).and_then(|last| recent.get(last)) {
            Some(spoken) => spoken.checked_add(DAY).unwrap_or(at),
            None => at,
        };
        initiative.quiet.as_ref().and_then(|quiet| quiet.ends(at)).unwrap_or(at)
    }

    /// Returns the work in which the effects of an act happen once: the goal, or the due time of the schedule. Effects in one
    /// topic, or below one topmost goal, know each other.
    pub(crate) fn effect_scope(&self, act: &Act, lifeform: &str) -> Option<EffectScope> {
        let (work, topic, top, since) = match act {
            Act::Goal(id) => {
                let parents = std::iter::successors(self.goals.get(id), |goal| self.goals.get(goal.parent.as_ref()?));
                let top = parents.take(DEPTH_MAX).last()?;
                let work = format!("{lifeform}/goal/{id}");
                (
                    work,
                    top.topic.clone(),
                    format!("{lifeform}/goal/{}", top.id),
                    top.course.due_at.unwrap_or(top.set_at),
                )
            }
            Act::Schedule(id) => {
                let one = self.schedules.get(id)?;
                let due = format!("{lifeform}/schedule/{id}/{}", one.next.as_second());
                (due, one.topic.clone(), format!("{lifeform}/schedule/{id}"), one.next)
            }
        };
        let root = topic.map_or(top, |topic| format!("{lifeform}/{CHAT}/{topic}"));
        let echoes_s = if matches!(act, Act::Goal(_)) { ECHOES_S } else { 0 };
        // What is scheduled is meant each time that it is due, and once each time.
        let is_scheduled = match act {
            Act::Goal(id) => self.goals.get(id).is_some_and(|goal| goal.schedule.is_some()),
            Act::Schedule(_) => false,
        };
        let echoes_in = is_scheduled.then(|| format!("{work}/").into());
        // A goal that is set again has another topic, or none, and would do everything again. What the goals of another person did is
        // neither meant nor told.
        let setter = self.set_by(act).unwrap_or_default();
        let noted_in = (echoes_s > 0 && !is_scheduled).then(|| format!("{lifeform}/goals/{setter}").into());
        Some(EffectScope { work: work.into(), root: root.into(), echoes_s, echoes_in, noted_in, since: Some(since) })
    }

    /// Returns the name and the event of the job that carries out an act.
    pub(crate) fn errand(&self, act: &Act, lifeform: &str, now: Timestamp) -> Option<(Arc<str>, ActErrand)> {
        match act {
            Act::Goal(id) => {
                let goal = self.goals.get(id)?;
                let is_late = goal.deadline.is_some_and(|deadline| deadline <= now);
                let has_served = |status: GoalStatus| status.is_over() || status == GoalStatus::Blocked;
                let of_served = self.goals.values().filter(|other| other.parent.as_ref() == Some(id));
                let is_served =
                    of_served.clone().count() > 0 && of_served.clone().all(|other| has_served(other.status));
                let are_over = of_served.clone().all(|other| other.status.is_over());
                let is_answered = goal.course.told;
                let has = |status| goal.plan.iter().any(|step: &PlanStep| step.status == status);
                let are_done = has(StepStatus::Done) && goal.plan.iter().all(PlanStep::is_over);
                let nears = !goal.course.nears && goal.nears_at().is_some_and(|at| at <= now);
                let occasion = match (is_late, goal.pursued) {
                    (true, _) => "its deadline has come",
                    (_, 1..) if nears => "its deadline is near",
                    _ if goal.course.fault.is_some() => "your last plan was not taken: see <fault>",
                    (false, 1..) if is_answered => "a message of its talk may answer it: see the last note",
                    _ if has(StepStatus::Failed) => "a step of the plan failed",
                    (false, _) if is_served && are_over => "the goals that serve it have come to an end",
                    (false, _) if is_served => "of the goals that serve it, some wait for an answer",
                    (false, 0) => "it was set",
                    _ if are_done => "all steps of the plan are done",
                    _ => "it is time to look at it again",
                };
                let stands = goal.course.goes_on && !is_late && !nears && has(StepStatus::Todo);
                // The titles of goals that others set are not for the readers of this one.
                let asked_by = self.set_by(act);
                let is_theirs = |other: &&Goal| self.set_by(&Act::Goal(other.id.clone())) == asked_by;
                let serving = |above: &AgendaItemId| {
                    let serving = self.goals.values().filter(move |other| other.parent.as_deref() == Some(&**above));
                    serving.filter(is_theirs).filter(|other| other.id != *id).map(subgoal).collect::<Vec<_>>()
                };
                let parent = goal.parent.as_ref().and_then(|id| self.goals.get(id)).filter(is_theirs);
                let of_parent = parent.map(|parent| {
                    let description = Some(parent.description.clone()).filter(|text| !text.is_empty());
                    description.into_iter().chain(latest_notes(parent)).collect()
                });
                let errand = ActErrand {
                    goal: Some(id.clone()),
                    speaks_in: Some(goal.speaks_in()),
                    title: goal.title.clone(),
                    description: goal.description.clone(),
                    plan: goal.plan.clone(),
                    replan: (!stands).then(|| occasion.to_owned()),
                    fault: goal.course.fault.clone(),
                    sought: goal.course.sought.clone(),
                    budget_tokens: self.budget_of(id),
                    notes: latest_notes(goal).collect(),
                    subgoals: serving(id),
                    parent: parent.map(|goal| goal.title.clone()),
                    of_parent: of_parent.unwrap_or_default(),
                    siblings: parent.map(|parent| serving(&parent.id)).unwrap_or_default(),
                    not_found: goal.not_found.clone(),
                    asked_by: asked_by.clone(),
                    deadline: goal.deadline.or_else(|| parent?.deadline),
                    occasion: occasion.to_owned(),
                    ..ActErrand::default()
                };
                Some((format!("{lifeform}.goal.{id}.n{}", goal.pursued + 1).into(), errand))
            }
            Act::Schedule(id) => {
                let one = self.schedules.get(id)?;
                let errand = ActErrand {
                    schedule: Some(id.clone()),
                    topic: one.topic.clone(),
                    title: one.what.clone(),
                    asked_by: Some(one.by.0.clone()),
                    due_at: Some(one.next),
                    occasion: "its time has come".to_owned(),
                    replan: Some("its time has come".to_owned()),
                    ..ActErrand::default()
                };
                Some((format!("{lifeform}.schedule.{id}.n{}", one.runs + 1).into(), errand))
            }
        }
    }

    /// Records that `job` has started an act. A cron schedule that was missed several times runs once.
    pub(crate) fn begin(&mut self, act: &Act, job: &Arc<str>, now: Timestamp) {
        match act {
            Act::Goal(id) => {
                if let Some(goal) = self.goals.get_mut(id) {
                    goal.late = goal.deadline.is_some_and(|deadline| deadline <= now);
                    goal.course.nears |= goal.nears_at().is_some_and(|at| at <= now);
                    (goal.status, goal.next, goal.job) = (GoalStatus::Active, None, Some(job.clone()));
                    (goal.course.told, goal.course.goes_on) = (false, true);
                    goal.pursued += 1;
                }
            }
            Act::Schedule(id) => {
                let Some(one) = self.schedules.get_mut(id) else { return };
                one.runs += 1;
                let next = one.cron.as_deref().and_then(|cron| next_of(cron, one.zone.as_deref(), now).ok());
                match next {
                    Some(next) => one.next = next,
                    None => drop(self.schedules.remove(id)),
                }
            }
        }
    }

    /// Applies the outcome of a job that pursued a goal. Returns `false` if it was applied before.
    ///
    /// `strangers` are the principals whose words the job has read besides those behind the goal.
    pub(crate) fn progress(
        &mut self,
        job: &str,
        outcome: &Outcome,
        strangers: &[Arc<str>],
        me: &PrincipalId,
        now: Timestamp,
    ) -> bool {
        let Some(goal) = self.goals.values_mut().find(|goal| goal.job.as_deref() == Some(job)) else { return false };
        goal.job = None;
        put_behind(goal, strangers.iter().cloned());
        prove(goal, format!("job:{job}").into());
        if goal.status.is_over() {
            // A principal changed the status of the goal in the meantime.
            return true;
        }
        goal.status = outcome.status.filter(|status| *status != GoalStatus::Open).unwrap_or(GoalStatus::Active);
        if !outcome.plan.is_empty() && check_plan(&outcome.plan).is_ok() {
            goal.plan = plan::of_lines(&goal.plan, &outcome.plan, &mut goal.course.made);
        }
        for (id, concluded, effects) in &outcome.wave {
            let is_done = matches!(concluded, StepOutcome::Done { .. });
            if let Some(step) = goal.plan.iter_mut().find(|step| step.id == *id) {
                step.conclude(concluded.clone(), effects.clone(), outcome.foreign, now);
                if is_done {
                    goal.course.replans = 0;
                    goal.course.sought.clear();
                }
            }
        }
        // What was said or changed during the wave stopped the plan already.
        goal.course.goes_on &= outcome.goes_on;
        goal.course.ready = None;
        // A question that was not posted cannot be answered.
        goal.course.asks = outcome.asks.clone().filter(|_| outcome.said.is_some());
        let again = SignedDuration::from_mins(outcome.again_in_minutes.into());
        let is_again = !again.is_zero() && !goal.status.is_over();
        // A part ended while the goal was pursued.
        let is_woken = goal.next.is_some_and(|next| next <= now) && !goal.status.is_over();
        goal.next = is_again.then(|| now.checked_add(again.max(AGAIN_MIN)).unwrap_or(Timestamp::MAX));
        if is_woken || (outcome.at_once && !goal.status.is_over()) {
            goal.next = Some(now);
        }
        if !outcome.say.trim().is_empty() {
            note_down(goal, Note::plain(now, me, format!("{I_SAID}{}", outcome.say.trim())));
        }
        goal.steps.extend(outcome.steps.iter().cloned());
        let over = goal.steps.len().saturating_sub(NOTES_MAX);
        goal.steps.drain(..over);
        goal.researched += u32::from(outcome.researched);
        goal.not_found.extend(outcome.not_found.iter().cloned());
        let over = goal.not_found.len().saturating_sub(NOTES_MAX);
        goal.not_found.drain(..over);
        if outcome.said.is_some() {
            goal.said.clone_from(&outcome.said);
        }
        // The person who asked for it in a talk says whether it is reached.
        if goal.status == GoalStatus::Done && goal.topic.is_some() && goal.parent.is_none() && outcome.said.is_some() {
            (goal.status, goal.next) = (GoalStatus::Reported, now.checked_add(CONFIRMED_AFTER).ok());
        }
        if matches!(goal.status, GoalStatus::Done | GoalStatus::Dropped | GoalStatus::Reported) {
            let left = goal.plan.iter_mut().filter(|step| step.status == StepStatus::Todo && step.tries == 0);
            left.for_each(|step| step.status = StepStatus::Skipped);
        }
        let (id, is_over, topic) = (goal.id.clone(), goal.status.is_over(), goal.topic.clone());
        self.wake_parent_of(&id, now);
        for title in outcome.subgoals.iter().filter(|_| !is_over) {
            let is_known = |known: &Goal| known.parent.as_ref() == Some(&id) && known.title == *title;
            if !self.goals.values().any(is_known) {
                let (parent, topic) = (Some(id.clone()), topic.clone());
                let spec = GoalSpec { title: title.clone(), parent, topic, ..GoalSpec::default() };
                // An invalid goal is ignored.
                let _ = self.set_goal(spec, me, now);
            }
        }
        true
    }

    /// Sets the lifeform's own schedules, except those that exist already.
    pub(crate) fn set_own(&mut self, wanted: &[OwnSchedule], me: &PrincipalId, now: Timestamp) {
        for OwnSchedule { what, in_minutes, cron } in wanted {
            let cron = Some(cron.trim().to_owned()).filter(|cron| !cron.is_empty());
            let at = now.checked_add(SignedDuration::from_mins((*in_minutes).max(1).into())).ok();
            let is_known = |known: &Schedule| known.by == *me && known.what == *what && known.cron == cron;
            if !self.schedules.values().any(is_known) {
                let at = at.filter(|_| cron.is_none());
                // An invalid schedule is ignored.
                let _ = self.set_schedule(
                    ScheduleSpec { what: what.clone(), cron, at, ..ScheduleSpec::default() },
                    me,
                    now,
                );
            }
        }
    }

    /// Sets the goal for a schedule whose work takes several steps, once for the job that found so.
    pub(crate) fn pursue_scheduled(
        &mut self,
        errand: &ActErrand,
        job: &Arc<str>,
        strangers: &[Arc<str>],
        now: Timestamp,
    ) {
        let evidence: Arc<str> = format!("job:{job}").into();
        let (Some(by), false) = (&errand.asked_by, self.goals.values().any(|goal| goal.evidence.contains(&evidence)))
        else {
            return;
        };
        let is_same = |goal: &&mut Goal| goal.schedule == errand.schedule && !goal.status.is_over();
        if let Some(open) = self.goals.values_mut().find(is_same) {
            prove(open, evidence);
            open.course.due_at = errand.due_at;
            let id = open.id.clone();
            return self.take_up(&id, now);
        }
        let spec = GoalSpec {
            title: errand.title.clone(),
            topic: errand.topic.clone(),
            behind: strangers.iter().filter(|who| *who != by).cloned().collect(),
            ..GoalSpec::default()
        };
        match self.set_goal(spec, &PrincipalId::new(by.clone()), now) {
            Ok(id) => {
                if let Some(goal) = self.goals.get_mut(&id) {
                    goal.schedule.clone_from(&errand.schedule);
                    goal.course.due_at = errand.due_at;
                    prove(goal, evidence);
                }
            }
            Err(refusal) => {
                tracing::warn!(%job, %refusal, "what was scheduled takes steps, and there is no room for a goal")
            }
        }
    }

    /// Blocks a goal whose job failed.
    pub(crate) fn fail(&mut self, job: &str, error: &str, me: &PrincipalId, now: Timestamp) {
        if let Some(goal) = self.goals.values_mut().find(|goal| goal.job.as_deref() == Some(job)) {
            goal.job = None;
            if goal.status.is_over() {
                return;
            }
            goal.status = GoalStatus::Blocked;
            plan::put_back(&mut goal.plan, job, error, now);
            goal.course.goes_on = false;
            let text = format!("it failed: {}", error.chars().take(240).collect::<String>());
            note_down(goal, Note::plain(now, me, text));
            let id = goal.id.clone();
            self.wake_parent_of(&id, now);
        }
    }

    /// Lets the lifeform look at the parent of a goal that has ended or cannot go on.
    fn wake_parent_of(&mut self, id: &str, now: Timestamp) {
        let has_ended = |goal: &&Goal| goal.status.is_over() || goal.status == GoalStatus::Blocked;
        let parent = self.goals.get(id).filter(has_ended).and_then(|goal| goal.parent.clone());
        if let Some(parent) = parent.and_then(|parent| self.goals.get_mut(&parent)).filter(|one| !one.status.is_over())
        {
            parent.next = Some(parent.next.map_or(now, |next| next.min(now)));
            parent.course.goes_on = false;
        }
    }

    /// Ends the goals whose result was reported three days ago and to which nobody objected.
    pub(crate) fn confirm_by_silence(&mut self, now: Timestamp) {
        for goal in self.goals.values_mut().filter(|goal| is_confirmed_by_silence(goal, now)) {
            (goal.status, goal.next) = (GoalStatus::Done, None);
        }
    }

    /// Returns `true` if there are goals that [`Self::confirm_by_silence`] ends.
    pub(crate) fn is_to_confirm(&self, now: Timestamp) -> bool {
        self.goals.values().any(|goal| is_confirmed_by_silence(goal, now))
    }

    /// Returns the goals for which a message of a topic is an answer: the goal with that topic as its own, or, among the
    /// goals that were asked for in the topic and wait for a word, the one whose question is answered (`reply_to`),
    /// otherwise the one that asked last.
    /// A goal of whose job a call waits (`waits`) waits for a word, too.
    pub(crate) fn waiting_in(&self, topic: &str, reply_to: Option<&str>, waits: &BTreeSet<Arc<str>>) -> Option<&Goal> {
        if let Some(own) = topic.strip_prefix("goal_").and_then(|id| self.goals.get(id)) {
            return Some(own);
        }
        let has_call = |goal: &&Goal| goal.job.as_ref().is_some_and(|job| waits.contains(job));
        let waits = |goal: &&Goal| has_call(goal) || matches!(goal.status, GoalStatus::Blocked | GoalStatus::Reported);
        let asked_here = self.goals.values().filter(|goal| goal.topic.as_deref() == Some(topic)).filter(waits);
        let is_answered = |goal: &&Goal| goal.said.as_deref() == reply_to;
        match reply_to {
            // The question about a call is no message of the goal itself.
            Some(_) => asked_here.clone().find(is_answered).or_else(|| asked_here.clone().find(has_call)),
            None => asked_here.max_by_key(|goal| goal.notes.last().map(|note| note.at)),
        }
    }

    /// Returns the goal that is being pursued for the sender of a message, that speaks in its topic, and with which the message shares a
    /// word; the newest of several.
    pub(crate) fn pursued_in(&self, topic: &str, sender: &str, message: &str) -> Option<&Goal> {
        let is_meant = |goal: &&Goal| {
            goal.status == GoalStatus::Active
                && goal.topic.as_deref() == Some(topic)
                && self.set_by(&Act::Goal(goal.id.clone())).as_deref() == Some(sender)
                && goal.shared_words(message) > 0
        };
        self.goals.values().filter(is_meant).max_by_key(|goal| goal.notes.last().map(|note| note.at))
    }

    /// Records that the lifeform posted without being asked, for a participant or by itself.
    pub(crate) fn spoke(&mut self, now: Timestamp, participant: Option<&Arc<str>>) {
        const DAY: SignedDuration = SignedDuration::from_hours(24);
        self.unasked.retain(|spoken| now.duration_since(*spoken) < DAY);
        self.unasked.push(now);
        self.unasked_for.retain(|(spoken, _)| now.duration_since(*spoken) < DAY);
        self.unasked_for.extend(participant.map(|who| (now, who.clone())));
    }

    /// Returns `true` if the lifeform has posted without being asked as often today as one participant's goals and
    /// schedules may bring about: a quarter of all such messages, and at least one.
    pub(crate) fn has_spoken_its_share(&self, participant: &str, per_day: u32, now: Timestamp) -> bool {
        let today = |spoken: &Timestamp| now.duration_since(*spoken) < SignedDuration::from_hours(24);
        let spoken = self.unasked_for.iter().filter(|(spoken, who)| today(spoken) && **who == *participant).count();
        spoken >= (per_day as usize / UNASKED_SHARES).max(1)
    }

    /// Removes the notes that hold a message which was retracted or purged. What the lifeform planned after it read
    /// them stays, and so do their authors. Returns `true` if there were any.
    pub(crate) fn unhear(&mut self, id: &str, message: &str) -> bool {
        let Some(goal) = self.goals.get_mut(id) else { return false };
        let before = goal.notes.len();
        let gone = goal.notes.extract_if(.., |note| note.message.as_deref() == Some(message));
        let behind: Vec<Arc<str>> = gone.flat_map(|note| std::iter::once(note.by.0).chain(note.behind)).collect();
        put_behind(goal, behind);
        if goal.notes.len() < before {
            // An approval that is taken back counts for nothing that is still to be done.
            goal.plan.iter_mut().filter(|step| step.status != StepStatus::Done).for_each(|step| step.grant = None);
            (goal.course.goes_on, goal.course.budget_tokens) = (false, None);
        }
        goal.notes.len() < before
    }

    /// Adds a message about a goal as a note. A blocked goal becomes active again. Returns `true` if the goal changed.
    pub(crate) fn hear(&mut self, id: &str, said: Noted<'_>, source: &Arc<str>, now: Timestamp) -> bool {
        let Noted { by, text, behind, message, verdict, may_decide, decision } = said;
        let Some(goal) = self.goals.get_mut(id).filter(|goal| !goal.status.is_over()) else { return false };
        if goal.evidence.contains(source) {
            return false;
        }
        prove(goal, source.clone());
        let text: String = text.chars().take(TEXT_BYTES_MAX / 4).collect();
        // The words of others withdraw no question that is not theirs to answer.
        let waits_for_others = goal.course.asks.is_some() && !may_decide;
        if !waits_for_others {
            if goal.course.asks.is_some() && decision.is_some() {
                goal.course.decided_in = Some(source.clone());
            }
            decide(goal, decision, by, now);
        }
        // A yes is no word that leads to anything else.
        if decision != Some(true) || waits_for_others {
            let (by, text) = (PrincipalId::new(by), format!("{by} said: {text}"));
            note_down(goal, Note { at: now, by, text, behind, message: Some(message) });
        }
        match (goal.status, verdict) {
            _ if waits_for_others => {}
            (GoalStatus::Blocked, _) | (GoalStatus::Reported, Some(false)) => {
                (goal.status, goal.next) = (GoalStatus::Active, Some(now));
            }
            (GoalStatus::Reported, Some(true)) => (goal.status, goal.next) = (GoalStatus::Done, None),
            _ => {}
        }
        true
    }
}

/// Applies a word to the question about the plan of a goal. Any other word withdraws the question, and the plan is looked at
/// again.
fn decide(goal: &mut Goal, decision: Option<bool>, by: &str, now: Timestamp) {
    // What a person says may be the cure: a step that failed may be tried again, as another step.
    goal.plan.iter_mut().filter(|step| step.status == StepStatus::Failed).for_each(|step| step.tries = 0);
    let course = &mut goal.course;
    (course.replans, course.fault) = (0, None);
    course.sought.clear();
    let asks = course.asks.take();
    course.goes_on = asks.is_some() && decision == Some(true);
    course.told = !course.goes_on;
    if let (Some(_), Some(decision), Some(question)) = (&asks, decision, &goal.said) {
        course.decided = Some((question.clone(), decision));
        course.refused = !decision;
    }
    if !course.goes_on {
        return;
    }
    match asks {
        Some(Question::Budget { tokens }) => course.budget_tokens = Some(tokens),
        Some(Question::Calls { steps }) => {
            for (id, grant) in steps {
                if let Some(step) = goal.plan.iter_mut().find(|step| step.id == id) {
                    let until = now.checked_add(GRANTED_FOR).unwrap_or(Timestamp::MAX);
                    step.grant = Some(Grant { by: by.into(), until, ..grant });
                }
            }
        }
        None => {}
    }
}

impl Agenda {
    /// Applies a person's decision about the question of a goal's plan. Returns `false` if the same decision was taken before.
    ///
    /// # Errors
    /// [`Refusal::Missing`] if the goal does not ask it, and [`Refusal::State`] if another decision was taken.
    pub(crate) fn decide_plan(
        &mut self,
        id: &str,
        question: &str,
        (decision, note): (bool, Option<String>),
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let missing = || Refusal::Missing("no question has this id".into());
        let goal = self.goals.get_mut(id).filter(|goal| !goal.status.is_over()).ok_or_else(missing)?;
        match &goal.course.decided {
            Some((decided, taken)) if **decided == *question && *taken == decision => return Ok(false),
            Some((decided, _)) if **decided == *question => {
                return Err(Refusal::State("another decision was taken before".into()));
            }
            _ => {}
        }
        if goal.course.asks.is_none() || goal.said.as_deref() != Some(question) {
            return Err(missing());
        }
        decide(goal, Some(decision), &by.0, now);
        if let Some(note) = note {
            note_down(goal, Note::plain(now, by, note));
        }
        (goal.status, goal.next) = (GoalStatus::Active, Some(now));
        Ok(true)
    }
}

/// A message about a goal.
pub(crate) struct Noted<'m> {
    /// The author.
    pub(crate) by: &'m str,
    /// The text.
    pub(crate) text: &'m str,
    /// The principals whose words the message bears.
    pub(crate) behind: Vec<Arc<str>>,
    /// The id of the message.
    pub(crate) message: Arc<str>,
    /// The judgement of the last result that the message bears, if any.
    pub(crate) verdict: Option<bool>,
    /// `true` if its author may decide about the question of the goal's plan.
    pub(crate) may_decide: bool,
    /// The decision about that question of which the message consists.
    pub(crate) decision: Option<bool>,
}

fn is_confirmed_by_silence(goal: &Goal, now: Timestamp) -> bool {
    goal.status == GoalStatus::Reported && goal.next.is_some_and(|at| at <= now)
}

/// Returns a goal as one that serves another.
fn subgoal(goal: &Goal) -> Subgoal {
    let own = goal.notes.iter().rev().find(|note| note.by.0.starts_with("lifeform:"));
    let result = own.map(|note| note.text.chars().take(RESULT_CHARS).collect()).unwrap_or_default();
    Subgoal { title: goal.title.clone(), status: goal.status, result }
}

/// Returns the texts of the latest notes of a goal.
fn latest_notes(goal: &Goal) -> impl Iterator<Item = String> + '_ {
    goal.notes[goal.notes.len().saturating_sub(NOTES_SHOWN)..].iter().map(|note| note.text.clone())
}

/// Adds principals to those behind a goal. Beyond [`BEHIND_MAX`], [`OUTSIDE`] stands for the rest.
fn put_behind(goal: &mut Goal, behind: impl IntoIterator<Item = Arc<str>>) {
    goal.behind.extend(behind);
    if goal.behind.len() > BEHIND_MAX {
        goal.behind = goal.behind.iter().take(BEHIND_MAX - 1).cloned().chain([OUTSIDE.into()]).collect();
    }
}

pub(super) fn note_down(goal: &mut Goal, note: Note) {
    goal.notes.push(note);
    let over = goal.notes.len().saturating_sub(NOTES_MAX);
    goal.notes.drain(..over);
}

fn prove(goal: &mut Goal, evidence: Arc<str>) {
    goal.evidence.push(evidence);
    let over = goal.evidence.len().saturating_sub(NOTES_MAX);
    goal.evidence.drain(..over);
}
