//! The agenda of a lifeform: a tree of goals, and schedules. The rules are plain functions; `agenda_store.rs` stores
//! the agenda.

mod checks;
mod due;
mod entries;
mod errand;
pub(crate) mod plan;
mod quiet;
mod remembered;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Principal, PrincipalId};

use crate::canvas::Refusal;
use crate::perception::ThreadRef;

use checks::{check_line, check_plan, check_text, next_of, within_share};
use due::note_down;
pub(crate) use due::{GRANTED_FOR, Noted};
pub(crate) use entries::{Course, Question};
pub use entries::{Goal, GoalStatus, Note, Related, Schedule};
pub(crate) use errand::{ActErrand, ERRAND, Errand, Subgoal};
pub use plan::{PlanStep, StepId, StepStatus};
pub use quiet::Quiet;
pub(crate) use remembered::ForgottenText;
use requests::schema;
pub use requests::{GoalChange, GoalSpec, ScheduleSpec};
pub(crate) use requests::{Outcome, OwnSchedule};

/// The id of a goal or a schedule within a lifeform.
pub type AgendaItemId = Arc<str>;

/// The maximum number of goals of one lifeform.
pub const GOALS_MAX: usize = 256;
/// The maximum number of schedules of one lifeform.
pub const SCHEDULES_MAX: usize = 64;
/// The minimum period of a schedule that a person asks for, in minutes.
const MINUTES_BETWEEN: i64 = 10;
/// The divisor for one principal's share: a principal may own at most 1/4 of the goals and of the schedules. Operators
/// and lifeforms are exempt.
const SHARES: usize = 4;
/// The maximum depth of the goal tree.
const DEPTH_MAX: usize = 8;
/// The maximum number of requests for one goal or schedule that are recorded.
const REQUESTS_MAX: usize = 16;
/// The maximum number of notes, and of pieces of evidence, per goal. The oldest ones are removed.
const NOTES_MAX: usize = 32;
/// The maximum number of principals in `behind` of a goal.
const BEHIND_MAX: usize = 32;
/// The maximum number of steps in a plan that a person writes.
const PLAN_MAX: usize = plan::OPEN_MAX;
/// The maximum size of a description or a note, in bytes.
const TEXT_BYTES_MAX: usize = 4_000;
/// The maximum number of jobs that the agenda starts at one heartbeat.
pub(crate) const ACTS_AT_ONCE: usize = 2;
/// The minimum delay before a lifeform resumes a goal by itself.
const AGAIN_MIN: SignedDuration = SignedDuration::from_mins(1);

/// A night of `$system` that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Night {
    /// The day, in the zone of the lifeform.
    pub(crate) day: jiff::civil::Date,
    /// The place of the step that was started last.
    pub(crate) step: usize,
}

/// The goals and schedules of a lifeform, with the state of its initiative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agenda {
    /// The goals by id.
    #[serde(default)]
    pub goals: BTreeMap<AgendaItemId, Goal>,
    /// The schedules by id.
    #[serde(default)]
    pub schedules: BTreeMap<AgendaItemId, Schedule>,
    /// The times at which the lifeform posted without being asked, within the last day.
    #[serde(default)]
    pub unasked: Vec<Timestamp>,
    /// Of these, the ones about goals and schedules of participants, with the participant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unasked_for: Vec<(Timestamp, Arc<str>)>,
    /// The number of goals and schedules ever created. New ids are made from it.
    #[serde(default)]
    pub made: u64,
    /// The time in the stored wake marker of the lifeform.
    #[serde(default)]
    pub(crate) rouse_at: Option<Timestamp>,
    /// The next time at which `$system` tends the mind; `None` if it does not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upkeep_at: Option<Timestamp>,
    /// The next time for own thoughts about what is open in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_at: Option<Timestamp>,
    /// The night of `$system` that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) night: Option<Night>,
    /// The next time at which each coordinated topic is looked at, by canvas and topic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    meetings: Vec<(ThreadRef, Timestamp)>,
    /// The own thoughts of late, oldest first: the time, the person and the fact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    thoughts: Vec<(Timestamp, Arc<str>, Arc<str>)>,
    /// The latest looks at earlier answers after something new, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    looks: Vec<(Timestamp, Arc<str>)>,
    /// The requests that removed reminders last, oldest first, with the removed reminders in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taken_off: Vec<(Arc<str>, Vec<String>)>,
    /// The sentences that people asked to forget, oldest first: prompts leave them out of the messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    forgotten: Vec<ForgottenText>,
}

/// An act that the lifeform is to start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Pursues a goal.
    Goal(AgendaItemId),
    /// Runs a schedule that is due.
    Schedule(AgendaItemId),
}

impl Act {
    /// Returns the reference of the act, for the cause of its effects.
    pub(crate) fn reference(&self) -> String {
        match self {
            Self::Goal(id) => format!("goal:{id}"),
            Self::Schedule(id) => format!("schedule:{id}"),
        }
    }
}

impl Agenda {
    /// Returns the agenda without the plans of its goals, which are documents of their own.
    pub(crate) fn without_plans(&self) -> Self {
        let mut bare = self.clone();
        bare.goals.values_mut().for_each(|goal| goal.plan.clear());
        bare
    }

    /// Marks all goals and schedules as coming from outside: an archive says who set them, and nobody has checked it.
    pub(crate) fn mark_imported(&mut self) {
        let of_goals = self.goals.values_mut().map(|goal| &mut goal.behind);
        let of_schedules = self.schedules.values_mut().map(|schedule| &mut schedule.behind);
        of_goals.chain(of_schedules).for_each(|behind| behind.extend([nexus::OUTSIDE.into()]));
        for goal in self.goals.values_mut() {
            goal.course = Course { made: goal.course.made, ..Course::default() };
            goal.plan.iter_mut().for_each(PlanStep::mark_imported);
        }
    }

    /// Checks that `by` leaves room for the goals of other principals.
    ///
    /// # Errors
    /// [`Refusal::State`] if `by` already owns a quarter of the maximum number of goals as open goals.
    pub fn has_room_for_goal(&self, by: &Principal) -> Result<(), Refusal> {
        let own = || self.goals.values().filter(|goal| goal.by == by.id && self.is_open(&goal.id)).count();
        within_share(by, own, GOALS_MAX, "open goals")
    }

    /// Checks that `by` leaves room for the schedules of other principals.
    ///
    /// # Errors
    /// [`Refusal::State`] if `by` already owns a quarter of the maximum number of schedules.
    pub fn has_room_for_schedule(&self, by: &Principal) -> Result<(), Refusal> {
        let own = || self.schedules.values().filter(|schedule| schedule.by == by.id).count();
        within_share(by, own, SCHEDULES_MAX, "schedules")
    }

    /// Adds a goal and returns its id.
    ///
    /// # Errors
    /// [`Refusal::Schema`] names an invalid member. [`Refusal::State`] if the lifeform has the maximum number of goals.
    pub fn set_goal(&mut self, spec: GoalSpec, by: &PrincipalId, now: Timestamp) -> Result<AgendaItemId, Refusal> {
        check_line("title", &spec.title)?;
        check_text("description", &spec.description)?;
        if self.goals.len() >= GOALS_MAX && !self.forget_one() {
            return Err(Refusal::State(format!("a lifeform has at most {GOALS_MAX} goals")));
        }
        if let Some(parent) = &spec.parent {
            if !self.goals.contains_key(parent) {
                return Err(Refusal::Missing(format!("goal {parent}")));
            }
            if self.depth_of(parent) >= DEPTH_MAX {
                return Err(schema("parent", format!("goals are at most {DEPTH_MAX} deep")));
            }
        }
        self.made += 1;
        let id: AgendaItemId = format!("g{}", self.made).into();
        let GoalSpec { title, description, parent, at, deadline, behind, topic } = spec;
        let goal = Goal {
            id: id.clone(),
            title,
            description,
            parent,
            status: GoalStatus::Open,
            next: Some(at.unwrap_or(now)),
            deadline,
            topic,
            said: None,
            not_found: Vec::new(),
            plan: Vec::new(),
            course: Course::default(),
            schedule: None,
            notes: Vec::new(),
            steps: Vec::new(),
            evidence: Vec::new(),
            knowledge: Vec::new(),
            researched: 0,
            behind,
            by: by.clone(),
            asked_in: BTreeSet::new(),
            set_at: now,
            pursued: 0,
            job: None,
            late: false,
        };
        self.goals.insert(id.clone(), goal);
        Ok(id)
    }

    /// Removes the oldest finished goal that has no subgoals. Returns `false` if there is none.
    fn forget_one(&mut self) -> bool {
        let served: Vec<AgendaItemId> = self.goals.values().filter_map(|goal| goal.parent.clone()).collect();
        let over = self.goals.values().filter(|goal| goal.status.is_over() && !served.contains(&goal.id));
        let oldest = over.min_by_key(|goal| goal.set_at).map(|goal| goal.id.clone());
        oldest.is_some_and(|id| self.goals.remove(&id).is_some())
    }

    fn depth_of(&self, id: &AgendaItemId) -> usize {
        let parents = std::iter::successors(self.goals.get(id), |goal| self.goals.get(goal.parent.as_ref()?));
        parents.take(DEPTH_MAX).count()
    }

    /// Returns the goal with an id.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub fn goal(&self, id: &str) -> Result<&Goal, Refusal> {
        self.goals.get(id).ok_or_else(|| Refusal::Missing(format!("goal {id}")))
    }

    /// Returns `true` if a goal with this id exists and is not finished.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        self.goals.get(id).is_some_and(|goal| !goal.status.is_over())
    }

    /// Changes a goal.
    ///
    /// # Errors
    /// [`Refusal::Missing`]. [`Refusal::Schema`] names an invalid member of the change.
    pub fn change_goal(
        &mut self,
        id: &str,
        change: GoalChange,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let GoalChange { title, description, status, at, deadline, plan, note } = change;
        title.as_deref().map_or(Ok(()), |title| check_line("title", title))?;
        description.as_deref().map_or(Ok(()), |text| check_text("description", text))?;
        plan.as_deref().map_or(Ok(()), check_plan)?;
        note.as_deref().map_or(Ok(()), |text| check_text("note", text))?;
        let goal = self.goals.get_mut(id).ok_or_else(|| Refusal::Missing(format!("goal {id}")))?;
        goal.title = title.unwrap_or_else(|| std::mem::take(&mut goal.title));
        goal.description = description.unwrap_or_else(|| std::mem::take(&mut goal.description));
        if let Some(lines) = plan {
            goal.plan = plan::of_lines(&goal.plan, &lines, &mut goal.course.made);
        }
        goal.course.goes_on = false;
        if let Some(status) = status {
            goal.status = status;
            goal.next = goal.next.filter(|_| !status.is_over());
            if status.is_over() {
                plan::stop(&mut goal.plan, now);
            }
        }
        if deadline.is_some() && deadline != goal.deadline {
            (goal.deadline, goal.late) = (deadline, false);
            (goal.course.nears, goal.course.deadline_set_at) = (false, Some(now));
        }
        goal.next = at.or(goal.next);
        if let Some(text) = note {
            note_down(goal, Note::plain(now, by, text));
        }
        Ok(())
    }

    /// Lets the lifeform pursue a goal again now that something new is known of it.
    pub(crate) fn take_up(&mut self, id: &str, now: Timestamp) {
        if let Some(goal) = self.goals.get_mut(id).filter(|goal| !goal.status.is_over() && goal.job.is_none()) {
            (goal.status, goal.next, goal.course.goes_on) = (GoalStatus::Active, Some(now), false);
        }
    }

    /// Stores the records that are related to a goal.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub(crate) fn relate(&mut self, id: &str, related: Vec<Related>) -> Result<(), Refusal> {
        let goal = self.goals.get_mut(id).ok_or_else(|| Refusal::Missing(format!("goal {id}")))?;
        goal.knowledge = related;
        Ok(())
    }

    /// Removes a goal and its subgoals. A subgoal of another author, besides the lifeform's own, stays without a
    /// parent. Returns the jobs that pursue them.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub fn remove_goal(&mut self, id: &str) -> Result<Vec<Arc<str>>, Refusal> {
        let gone = self.goals.remove(id).ok_or_else(|| Refusal::Missing(format!("goal {id}")))?;
        let serving: Vec<AgendaItemId> =
            self.goals.values().filter(|goal| goal.parent.as_deref() == Some(id)).map(|goal| goal.id.clone()).collect();
        let mut jobs: Vec<Arc<str>> = gone.job.into_iter().collect();
        for id in serving {
            match self.goals.get_mut(&id) {
                Some(goal) if goal.by != gone.by && !goal.by.0.starts_with("lifeform:") => goal.parent = None,
                _ => jobs.extend(self.remove_goal(&id)?),
            }
        }
        Ok(jobs)
    }

    /// Adds a schedule and returns its id.
    ///
    /// # Errors
    /// [`Refusal::Schema`] names an invalid member. [`Refusal::State`] if the lifeform has the maximum number of
    /// schedules.
    pub fn set_schedule(
        &mut self,
        spec: ScheduleSpec,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<AgendaItemId, Refusal> {
        if self.schedules.len() >= SCHEDULES_MAX {
            return Err(Refusal::State(format!("a lifeform has at most {SCHEDULES_MAX} schedules")));
        }
        let next = spec.first(now)?;
        self.made += 1;
        let id: AgendaItemId = format!("s{}", self.made).into();
        let ScheduleSpec { what, cron, zone, topic, remind, .. } = spec;
        let (one, by) = (id.clone(), by.clone());
        self.schedules.insert(
            id.clone(),
            Schedule {
                id: one,
                what,
                cron,
                zone,
                next,
                topic,
                by,
                runs: 0,
                remind,
                asked_in: BTreeSet::new(),
                behind: BTreeSet::new(),
            },
        );
        Ok(id)
    }

    /// Changes the text and the time of a schedule, which stays where and whose it is.
    pub(crate) fn change_schedule(&mut self, id: &str, spec: ScheduleSpec, now: Timestamp) -> Result<(), Refusal> {
        let next = spec.first(now)?;
        let one = self.schedules.get_mut(id).ok_or_else(|| Refusal::State(format!("there is no schedule {id}")))?;
        (one.what, one.cron, one.zone, one.next) = (spec.what, spec.cron, spec.zone, next);
        Ok(())
    }

    /// Checks that a schedule that a person asked for does not come too often.
    pub(crate) fn is_often_enough(&self, id: &str) -> Result<(), Refusal> {
        match self.comes_every(id) {
            Some(every) if every < SignedDuration::from_mins(MINUTES_BETWEEN) => {
                Err(Refusal::State(format!("I do it every {MINUTES_BETWEEN} minutes at most")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the time between two runs of a schedule's cron pattern.
    pub(crate) fn comes_every(&self, id: &str) -> Option<SignedDuration> {
        let one = self.schedules.get(id)?;
        let then = next_of(one.cron.as_deref()?, one.zone.as_deref(), one.next).ok()?;
        Some(then.duration_since(one.next))
    }

    /// Records a request for a goal or a schedule, with its messages; see [`Schedule::asked_in`].
    pub(crate) fn ask_in(&mut self, id: &AgendaItemId, messages: &[Arc<str>]) {
        let asked_in = match self.schedules.get_mut(id) {
            Some(schedule) => &mut schedule.asked_in,
            None => match self.goals.get_mut(id) {
                Some(goal) => &mut goal.asked_in,
                None => return,
            },
        };
        if asked_in.len() < REQUESTS_MAX {
            asked_in.insert(messages.join(" ").into());
        }
    }

    /// Records another request for a goal or a schedule. One that was set otherwise does not depend on requests.
    pub(crate) fn ask_again(&mut self, id: &AgendaItemId, messages: &[Arc<str>]) {
        let is_asked = |asked_in: &BTreeSet<Arc<str>>| !asked_in.is_empty();
        let schedule = self.schedules.get(id).is_some_and(|schedule| is_asked(&schedule.asked_in));
        if schedule || self.goals.get(id).is_some_and(|goal| is_asked(&goal.asked_in)) {
            self.ask_in(id, messages);
        }
    }

    /// Returns the messages of all requests.
    pub(crate) fn requests(&self) -> BTreeSet<Arc<str>> {
        let of_schedules = self.schedules.values().flat_map(|schedule| &schedule.asked_in);
        let of_goals = self.goals.values().flat_map(|goal| &goal.asked_in);
        of_schedules.chain(of_goals).flat_map(|request| request.split(' ')).map(Arc::from).collect()
    }

    /// Ends the requests that a message belongs to, and removes the goals and schedules that have no other. Returns the
    /// jobs that pursue the goals.
    pub(crate) fn unask(&mut self, message: &str) -> Vec<Arc<str>> {
        let is_last = |asked_in: &mut BTreeSet<Arc<str>>| {
            let before = asked_in.len();
            asked_in.retain(|request| request.split(' ').all(|other| other != message));
            asked_in.is_empty() && before > 0
        };
        self.schedules.retain(|_, schedule| !is_last(&mut schedule.asked_in));
        let ended = self.goals.values_mut().filter_map(|goal| is_last(&mut goal.asked_in).then(|| goal.id.clone()));
        let goals: Vec<AgendaItemId> = ended.collect();
        // A goal may be gone already, as a part of another one.
        goals.iter().filter_map(|goal| self.remove_goal(goal).ok()).flatten().collect()
    }

    /// Removes a schedule.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub fn remove_schedule(&mut self, id: &str) -> Result<(), Refusal> {
        self.schedules.remove(id).map(drop).ok_or_else(|| Refusal::Missing(format!("schedule {id}")))
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::spec::Initiative;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}:00Z").parse().unwrap()
    }

    fn ada() -> PrincipalId {
        PrincipalId::new("user:ada")
    }

    fn goal(title: &str) -> GoalSpec {
        GoalSpec { title: title.into(), ..GoalSpec::default() }
    }

    #[test]
    fn goals_are_a_tree_that_is_bounded_and_goes_as_a_whole() {
        let mut agenda = Agenda::default();
        let now = at("12:00");
        let mut parent = None;
        for depth in 0..DEPTH_MAX {
            let set = agenda.set_goal(GoalSpec { parent: parent.clone(), ..goal("deeper") }, &ada(), now);
            parent = Some(set.unwrap_or_else(|_| panic!("{depth}")));
        }
        assert!(agenda.set_goal(GoalSpec { parent, ..goal("too deep") }, &ada(), now).is_err());
        for bad in [goal(" "), GoalSpec { parent: Some("g99".into()), ..goal("x") }, goal(&"x".repeat(201))] {
            assert!(agenda.set_goal(bad, &ada(), now).is_err());
        }
        agenda.remove_goal("g1").unwrap();
        assert!(agenda.goals.is_empty());
        for n in 0..GOALS_MAX {
            agenda.set_goal(goal(&format!("goal {n}")), &ada(), now).unwrap();
        }
        assert!(agenda.set_goal(goal("one more"), &ada(), now).is_err());
        let done = GoalChange { status: Some(GoalStatus::Done), ..GoalChange::default() };
        let first = agenda.goals.keys().next().unwrap().clone();
        agenda.change_goal(&first, done, &ada(), now).unwrap();
        agenda.set_goal(goal("one more"), &ada(), now).unwrap();
        assert!(agenda.goal(&first).is_err(), "what is over makes room");
    }

    #[test]
    fn all_whose_words_a_goal_reads_are_behind_it() {
        let now = at("12:00");
        let (me, robot) = (PrincipalId::new("lifeform:me"), PrincipalId::new("lifeform:robot"));
        let behind = |agenda: &Agenda, id: &str| -> Vec<String> {
            let behind = agenda.behind(&Act::Goal(id.into()), &me).unwrap();
            behind.iter().map(|who| who.to_string()).collect()
        };
        let mut agenda = Agenda::default();
        agenda.set_goal(goal("Sail"), &ada(), now).unwrap();
        assert_eq!(behind(&agenda, "g1"), ["user:ada"]);
        // A goal below it, whose title its job reads, even if another lifeform set it.
        agenda.set_goal(GoalSpec { parent: Some("g1".into()), ..goal("ORDER") }, &robot, now).unwrap();
        assert_eq!(behind(&agenda, "g1"), ["lifeform:robot", "user:ada"]);
        assert_eq!(behind(&agenda, "g2"), ["lifeform:robot", "user:ada"]);
        // A goal that the lifeform set itself at the request of others.
        let asked = GoalSpec { behind: ["user:bob".into()].into(), ..goal("Fly") };
        agenda.set_goal(asked, &me, now).unwrap();
        assert_eq!(behind(&agenda, "g3"), ["user:bob"]);
        // A note of the lifeform itself, with the words of others in it, and their retraction.
        let noted = Noted {
            by: "lifeform:me",
            text: "He says: ORDER",
            behind: vec!["user:eve".into()],
            message: "m1".into(),
            verdict: None,
            may_decide: true,
            decision: None,
        };
        assert!(agenda.hear("g3", noted, &"canvas:x@1".into(), now));
        assert_eq!(behind(&agenda, "g3"), ["user:bob", "user:eve"]);
        assert!(agenda.unhear("g3", "m1") && !agenda.unhear("g3", "m1"));
        assert!(agenda.goals["g3"].notes.is_empty());
        assert_eq!(behind(&agenda, "g3"), ["user:bob", "user:eve"], "what it planned may rest on it");
        for n in 0..2 * BEHIND_MAX {
            let message: Arc<str> = format!("n{n}").into();
            let behind = vec![format!("user:{n}").into()];
            let noted = Noted {
                by: "lifeform:me",
                text: "and",
                behind,
                message: message.clone(),
                verdict: None,
                may_decide: true,
                decision: None,
            };
            assert!(agenda.hear("g3", noted, &message, now) && agenda.unhear("g3", &message));
        }
        assert_eq!(agenda.goals["g3"].behind.len(), BEHIND_MAX);
        assert!(agenda.goals["g3"].behind.contains(nexus::OUTSIDE), "it stands for the rest");
        // What an archive says of its authors is nobody's word here.
        agenda.mark_imported();
        assert!(behind(&agenda, "g1").contains(&nexus::OUTSIDE.to_string()));
    }

    #[test]
    fn a_due_goal_begins_once_outside_quiet_hours_within_the_limit() {
        let quiet = Some(Quiet { from: "22:00".into(), to: "07:00".into(), zone: None });
        let initiative = Initiative { quiet, unasked_per_day: 2, ..Initiative::default() };
        let mut agenda = Agenda::default();
        agenda.set_goal(GoalSpec { at: Some(at("23:00")), ..goal("late") }, &ada(), at("12:00")).unwrap();
        assert_eq!(agenda.due(&initiative, at("22:59")), []);
        assert_eq!(agenda.due(&initiative, at("23:30")), []);
        let morning: Timestamp = "2026-01-02T07:00:00Z".parse().unwrap();
        assert_eq!(agenda.next_due(&initiative), Some(morning));
        let due = agenda.due(&initiative, morning);
        assert_eq!(due, [Act::Goal("g1".into())]);
        let (job, errand) = agenda.errand(&due[0], "lf", morning).unwrap();
        assert_eq!((&*job, &*errand.occasion), ("lf.goal.g1.n1", "it was set"));
        agenda.begin(&due[0], &job, morning);
        assert_eq!((agenda.due(&initiative, morning), agenda.next_due(&initiative)), (vec![], None));
        let outcome = Outcome {
            status: Some(GoalStatus::Blocked),
            say: "Which one?".into(),
            again_in_minutes: 60,
            subgoals: vec!["ask".into()],
            ..Outcome::default()
        };
        agenda.progress(&job, &outcome, &[], &ada(), morning);
        agenda.progress(&job, &outcome, &[], &ada(), morning);
        assert_eq!(agenda.goals.len(), 2, "taken in once");
        agenda.remove_goal("g2").unwrap();
        assert_eq!(agenda.next_due(&initiative), Some(morning + SignedDuration::from_hours(1)));
        let said = || Noted {
            by: "user:ada",
            text: "The blue one",
            behind: vec!["user:eve".into()],
            message: "m1".into(),
            verdict: None,
            may_decide: true,
            decision: None,
        };
        assert!(agenda.hear("g1", said(), &"canvas:x@9".into(), morning));
        assert!(!agenda.hear("g1", said(), &"canvas:x@9".into(), morning));
        assert_eq!(agenda.due(&initiative, morning).len(), 1, "an answer unblocks it");
        agenda.spoke(morning, None);
        agenda.spoke(morning + SignedDuration::from_mins(5), Some(&ada().0));
        assert!(agenda.has_spoken_its_share("user:ada", 4, morning));
        assert!(
            !agenda.has_spoken_its_share("user:ada", 8, morning)
                && !agenda.has_spoken_its_share("user:bob", 4, morning)
        );
        assert_eq!(agenda.due(&initiative, morning + SignedDuration::from_mins(6)), []);
        assert_eq!(agenda.next_due(&initiative), Some("2026-01-03T07:00:00Z".parse().unwrap()));
        let deadline = Some(morning + SignedDuration::from_hours(30));
        agenda.change_goal("g1", GoalChange { deadline, ..GoalChange::default() }, &ada(), morning).unwrap();
        agenda.goals.get_mut("g1").unwrap().next = None;
        let near = agenda.goals["g1"].nears_at().unwrap();
        assert_eq!(agenda.next_due(&initiative), Some(agenda.held_back_until(&initiative, near)), "a quarter is left");
        let (_, errand) = agenda.errand(&Act::Goal("g1".into()), "lf", near).unwrap();
        assert_eq!(errand.replan.as_deref(), Some("its deadline is near"));
        agenda.begin(&Act::Goal("g1".into()), &"job".into(), near);
        let goal = agenda.goals.get_mut("g1").unwrap();
        (goal.job, goal.next) = (None, None);
        assert_eq!(agenda.next_due(&initiative), deadline);
    }

    #[test]
    fn what_was_set_without_a_request_outlives_a_retracted_one() {
        let (mut agenda, now) = (Agenda::default(), at("12:00"));
        let set = agenda.set_goal(goal("sail"), &ada(), now).unwrap();
        let asked = agenda.set_goal(goal("row"), &ada(), now).unwrap();
        agenda.ask_in(&asked, &["c/t/m1".into()]);
        for id in [&set, &asked] {
            agenda.ask_again(id, &["c/t/m2".into()]);
        }
        agenda.unask("c/t/m2");
        assert_eq!(agenda.goals.len(), 2, "the first request for one of them stands");
        agenda.unask("c/t/m1");
        assert_eq!(agenda.goals.keys().collect::<Vec<_>>(), [&set]);
    }

    #[test]
    fn a_schedule_that_was_missed_several_times_is_due_once() {
        let mut agenda = Agenda::default();
        let initiative = Initiative::default();
        let daily = ScheduleSpec {
            what: "look".into(),
            cron: Some("0 9 * * *".into()),
            zone: Some("Europe/Lisbon".into()),
            ..ScheduleSpec::default()
        };
        let daily = agenda.set_schedule(daily, &ada(), at("12:00")).unwrap();
        let once = ScheduleSpec { what: "call".into(), at: Some(at("13:00")), ..ScheduleSpec::default() };
        let once = agenda.set_schedule(once, &ada(), at("12:00")).unwrap();
        for bad in [
            ScheduleSpec { what: "x".into(), ..ScheduleSpec::default() },
            ScheduleSpec { what: "x".into(), cron: Some("every day".into()), ..ScheduleSpec::default() },
            ScheduleSpec {
                what: "x".into(),
                cron: Some("0 9 * * *".into()),
                zone: Some("Moon".into()),
                ..ScheduleSpec::default()
            },
            ScheduleSpec { what: " ".into(), at: Some(at("13:00")), ..ScheduleSpec::default() },
        ] {
            assert!(agenda.set_schedule(bad.clone(), &ada(), at("12:00")).is_err(), "{bad:?}");
        }
        let later: Timestamp = "2026-01-05T10:00:00Z".parse().unwrap();
        let due = agenda.due(&initiative, later);
        assert_eq!(due, [Act::Schedule(once), Act::Schedule(daily.clone())]);
        for act in &due {
            let (job, _) = agenda.errand(act, "lf", later).unwrap();
            agenda.begin(act, &job, later);
        }
        assert_eq!(agenda.schedules.len(), 1);
        assert_eq!(agenda.schedules[&daily].next, "2026-01-06T09:00:00Z".parse().unwrap());
    }
}
