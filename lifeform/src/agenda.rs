//! What a lifeform has set out to do, and when (MISSION L2): a tree of goals, and schedules. Plain rules; where it is kept
//! is in `plans`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use nexus::PrincipalId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canvas::Refusal;
use crate::spec::Initiative;

/// Names a goal or a schedule within a lifeform.
pub type AimId = Arc<str>;

/// Goals of one lifeform.
pub const GOALS_MAX: usize = 256;
/// Schedules of one lifeform.
pub const SCHEDULES_MAX: usize = 64;
/// Goals below goals.
const DEPTH_MAX: usize = 8;
/// Notes and pieces of evidence kept of a goal; the oldest go.
const NOTES_MAX: usize = 32;
/// Steps of a plan.
const PLAN_MAX: usize = 16;
/// Bytes of a description or a note.
const TEXT_BYTES_MAX: usize = 4_000;
/// Things begun at one beat.
const ACTS_AT_ONCE: usize = 2;
/// The shortest time after which a goal is taken up again by itself.
const AGAIN_MIN: SignedDuration = SignedDuration::from_mins(1);

/// How a goal stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalStatus {
    /// It was not taken up yet.
    #[default]
    Open,
    /// It is pursued.
    Active,
    /// It cannot go on without somebody.
    Blocked,
    /// It is reached.
    Done,
    /// It was given up.
    Dropped,
}

impl GoalStatus {
    fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Dropped)
    }
}

/// Something that was noted on the way to a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// When.
    pub at: Timestamp,
    /// Who noted it.
    pub by: PrincipalId,
    /// What.
    pub text: String,
}

/// Something to reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Its id.
    pub id: AimId,
    /// What it is, in a line.
    pub title: String,
    /// What it is, at length.
    #[serde(default)]
    pub description: String,
    /// The goal that it serves.
    #[serde(default)]
    pub parent: Option<AimId>,
    /// How it stands.
    pub status: GoalStatus,
    /// When it is taken up next by itself.
    #[serde(default)]
    pub next: Option<Timestamp>,
    /// When it is too late.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// How it is to be reached, step by step.
    #[serde(default)]
    pub plan: Vec<String>,
    /// What was noted, oldest first.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// What shows how far it has come: journal references.
    #[serde(default)]
    pub evidence: Vec<Arc<str>>,
    /// Whose it was: `user:ada`, `lifeform:…` for its own, `system:…` for its definition's.
    pub by: PrincipalId,
    /// When it was set.
    pub set_at: Timestamp,
    /// How often it was taken up.
    #[serde(default)]
    pub pursued: u32,
    /// The job that pursues it.
    #[serde(default)]
    pub job: Option<Arc<str>>,
    /// Whether it was taken up when its time ran out.
    #[serde(default)]
    pub late: bool,
}

/// Something to be done at a time, or again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its id.
    pub id: AimId,
    /// What is to be done.
    pub what: String,
    /// A cron pattern of five fields; without one it happens once.
    #[serde(default)]
    pub cron: Option<String>,
    /// The time zone of the pattern.
    #[serde(default)]
    pub zone: Option<String>,
    /// When it happens next.
    pub next: Timestamp,
    /// Who set it.
    pub by: PrincipalId,
    /// How often it happened.
    #[serde(default)]
    pub runs: u32,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agenda {
    /// Goals.
    #[serde(default)]
    pub goals: BTreeMap<AimId, Goal>,
    /// Schedules.
    #[serde(default)]
    pub schedules: BTreeMap<AimId, Schedule>,
    /// When it spoke without being asked, within the last day.
    #[serde(default)]
    pub unasked: Vec<Timestamp>,
    /// How many were ever made: ids are made of it.
    #[serde(default)]
    pub made: u64,
    /// Under which time it is to be roused, as that is kept.
    #[serde(default)]
    pub(crate) rouse_at: Option<Timestamp>,
}

/// What a new goal takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalSpec {
    /// What it is, in a line.
    pub title: String,
    /// What it is, at length.
    pub description: String,
    /// The goal that it serves.
    pub parent: Option<AimId>,
    /// When it is taken up; at once when absent.
    pub at: Option<Timestamp>,
    /// When it is too late.
    pub deadline: Option<Timestamp>,
}

/// What is changed of a goal; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalChange {
    /// What it is, in a line.
    pub title: Option<String>,
    /// What it is, at length.
    pub description: Option<String>,
    /// How it stands.
    pub status: Option<GoalStatus>,
    /// When it is taken up next.
    pub at: Option<Timestamp>,
    /// When it is too late.
    pub deadline: Option<Timestamp>,
    /// How it is to be reached.
    pub plan: Option<Vec<String>>,
    /// A note to be added.
    pub note: Option<String>,
}

/// What a new schedule takes: `cron` or `at`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSpec {
    /// What is to be done.
    pub what: String,
    /// A cron pattern of five fields.
    pub cron: Option<String>,
    /// The time zone of the pattern, UTC when absent.
    pub zone: Option<String>,
    /// When it happens once.
    pub at: Option<Timestamp>,
}

/// What pursuing a goal came to, as a model has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    /// How the goal is to be reached from here.
    pub(crate) plan: Vec<String>,
    /// What is to be said to people; nothing, mostly.
    pub(crate) say: String,
    /// `active`, `blocked` or `done`.
    pub(crate) status: Option<GoalStatus>,
    /// Minutes until it is taken up again; 0 is not by itself.
    pub(crate) again_in_minutes: u32,
    /// Goals that serve it.
    pub(crate) subgoals: Vec<String>,
}

/// Something that is to be begun now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A goal is taken up.
    Goal(AimId),
    /// A schedule has come.
    Schedule(AimId),
}

impl Act {
    /// The act as a cause of what comes of it.
    pub(crate) fn reference(&self) -> String {
        match self {
            Self::Goal(id) => format!("goal:{id}"),
            Self::Schedule(id) => format!("schedule:{id}"),
        }
    }
}

fn schema(path: &str, message: impl ToString) -> Refusal {
    Refusal::schema(path, message)
}

fn check_line(path: &str, text: &str) -> Result<(), Refusal> {
    match text.trim().is_empty() || text.chars().count() > 200 || text.contains(char::is_control) {
        true => Err(schema(path, "1 to 200 characters, none of them a control character")),
        false => Ok(()),
    }
}

fn check_text(path: &str, text: &str) -> Result<(), Refusal> {
    match text.len() > TEXT_BYTES_MAX {
        true => Err(schema(path, format!("at most {TEXT_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

fn check_plan(plan: &[String]) -> Result<(), Refusal> {
    if plan.len() > PLAN_MAX {
        return Err(schema("plan", format!("at most {PLAN_MAX} steps")));
    }
    plan.iter().try_for_each(|step| check_line("plan", step))
}

/// When a pattern comes next after `now`.
fn next_of(cron: &str, zone: Option<&str>, now: Timestamp) -> Result<Timestamp, Refusal> {
    if cron.split_whitespace().count() != 5 {
        return Err(schema("cron", "a pattern has five fields: minute, hour, day, month, day of the week"));
    }
    let pattern = Cron::from_str(cron).map_err(|error| schema("cron", error))?;
    let zone = match zone {
        None => TimeZone::UTC,
        Some(name) => TimeZone::get(name).map_err(|error| schema("zone", error))?,
    };
    let next = pattern.find_next_occurrence(&now.to_zoned(zone), false);
    next.map(|next| next.timestamp()).map_err(|error| schema("cron", error))
}

impl Agenda {
    /// Sets a goal; answers its id.
    ///
    /// # Errors
    /// [`Refusal::Schema`] naming what is wrong with it, [`Refusal::State`] when there are as many as there may be.
    pub fn set_goal(&mut self, spec: GoalSpec, by: &PrincipalId, now: Timestamp) -> Result<AimId, Refusal> {
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
        let id: AimId = format!("g{}", self.made).into();
        let GoalSpec { title, description, parent, at, deadline } = spec;
        let goal = Goal {
            id: id.clone(),
            title,
            description,
            parent,
            status: GoalStatus::Open,
            next: Some(at.unwrap_or(now)),
            deadline,
            plan: Vec::new(),
            notes: Vec::new(),
            evidence: Vec::new(),
            by: by.clone(),
            set_at: now,
            pursued: 0,
            job: None,
            late: false,
        };
        self.goals.insert(id.clone(), goal);
        Ok(id)
    }

    /// Lets go of the oldest goal that is over and that no other one serves.
    fn forget_one(&mut self) -> bool {
        let served: Vec<AimId> = self.goals.values().filter_map(|goal| goal.parent.clone()).collect();
        let over = self.goals.values().filter(|goal| goal.status.is_over() && !served.contains(&goal.id));
        let oldest = over.min_by_key(|goal| goal.set_at).map(|goal| goal.id.clone());
        oldest.is_some_and(|id| self.goals.remove(&id).is_some())
    }

    fn depth_of(&self, id: &AimId) -> usize {
        let parents = std::iter::successors(self.goals.get(id), |goal| self.goals.get(goal.parent.as_ref()?));
        parents.take(DEPTH_MAX).count()
    }

    /// The goal of that id.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub fn goal(&self, id: &str) -> Result<&Goal, Refusal> {
        self.goals.get(id).ok_or_else(|| Refusal::Missing(format!("goal {id}")))
    }

    /// Whether there is a goal of that id that is not over.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        self.goals.get(id).is_some_and(|goal| !goal.status.is_over())
    }

    /// Changes a goal.
    ///
    /// # Errors
    /// [`Refusal::Missing`], or [`Refusal::Schema`] naming what is wrong with the change.
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
        goal.plan = plan.unwrap_or_else(|| std::mem::take(&mut goal.plan));
        if let Some(status) = status {
            goal.status = status;
            goal.next = goal.next.filter(|_| !status.is_over());
        }
        if deadline.is_some() {
            (goal.deadline, goal.late) = (deadline, false);
        }
        goal.next = at.or(goal.next);
        if let Some(text) = note {
            note_down(goal, Note { at: now, by: by.clone(), text });
        }
        Ok(())
    }

    /// Removes a goal and all that serve it.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub fn remove_goal(&mut self, id: &str) -> Result<(), Refusal> {
        self.goals.remove(id).ok_or_else(|| Refusal::Missing(format!("goal {id}")))?;
        let serving: Vec<AimId> =
            self.goals.values().filter(|goal| goal.parent.as_deref() == Some(id)).map(|goal| goal.id.clone()).collect();
        for id in serving {
            self.remove_goal(&id)?;
        }
        Ok(())
    }

    /// Sets a schedule; answers its id.
    ///
    /// # Errors
    /// [`Refusal::Schema`] naming what is wrong with it, [`Refusal::State`] when there are as many as there may be.
    pub fn set_schedule(&mut self, spec: ScheduleSpec, by: &PrincipalId, now: Timestamp) -> Result<AimId, Refusal> {
        check_line("what", &spec.what)?;
        if self.schedules.len() >= SCHEDULES_MAX {
            return Err(Refusal::State(format!("a lifeform has at most {SCHEDULES_MAX} schedules")));
        }
        let next = match (&spec.cron, spec.at) {
            (Some(cron), None) => next_of(cron, spec.zone.as_deref(), now)?,
            (None, Some(at)) if spec.zone.is_none() => at,
            (None, Some(_)) => return Err(schema("zone", "it is for cron; at names its own")),
            _ => return Err(schema("cron", "a schedule has either cron or at")),
        };
        self.made += 1;
        let id: AimId = format!("s{}", self.made).into();
        let ScheduleSpec { what, cron, zone, .. } = spec;
        self.schedules.insert(id.clone(), Schedule { id: id.clone(), what, cron, zone, next, by: by.clone(), runs: 0 });
        Ok(id)
    }

    /// Removes a schedule.
    ///
    /// # Errors
    /// [`Refusal::Missing`].
    pub fn remove_schedule(&mut self, id: &str) -> Result<(), Refusal> {
        self.schedules.remove(id).map(drop).ok_or_else(|| Refusal::Missing(format!("schedule {id}")))
    }

    // ---- what is due ----

    /// When each thing is to be begun, if nothing keeps it back.
    fn times(&self) -> impl Iterator<Item = (Timestamp, Act)> {
        let goals = self.goals.values().filter(|goal| !goal.status.is_over() && goal.job.is_none());
        let goals = goals.filter_map(|goal| {
            let at_the_end = goal.deadline.filter(|_| !goal.late);
            let at = goal.next.into_iter().chain(at_the_end).min()?;
            Some((at, Act::Goal(goal.id.clone())))
        });
        goals.chain(self.schedules.values().map(|one| (one.next, Act::Schedule(one.id.clone()))))
    }

    /// What is to be begun at `now`, the longest overdue first; nothing in quiet hours, or when it spoke unasked as often
    /// as it may. Without `background` only what cannot wait.
    pub(crate) fn due(&self, initiative: &Initiative, now: Timestamp, background: bool) -> Vec<Act> {
        if self.held_back_until(initiative, now) > now {
            return Vec::new();
        }
        let mut due: Vec<(Timestamp, Act)> =
            self.times().filter(|(at, act)| *at <= now && (background || self.is_urgent(act, now))).collect();
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().map(|(_, act)| act).take(ACTS_AT_ONCE).collect()
    }

    /// Whether an act cannot wait until the lifeform is better fed: a schedule, or a goal whose time has run out.
    fn is_urgent(&self, act: &Act, now: Timestamp) -> bool {
        match act {
            Act::Goal(id) => self.goals.get(id).and_then(|goal| goal.deadline).is_some_and(|deadline| deadline <= now),
            Act::Schedule(_) => true,
        }
    }

    /// When it is to be looked at next.
    pub(crate) fn next_due(&self, initiative: &Initiative) -> Option<Timestamp> {
        let at = self.times().map(|(at, _)| at).min()?;
        Some(self.held_back_until(initiative, at))
    }

    /// The first time from `at` on at which it may speak unasked.
    fn held_back_until(&self, initiative: &Initiative, at: Timestamp) -> Timestamp {
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

    /// What an act is about, for the job that does it, and the job's name.
    pub(crate) fn errand(&self, act: &Act, lifeform: &str, now: Timestamp) -> Option<(Arc<str>, Value)> {
        match act {
            Act::Goal(id) => {
                let goal = self.goals.get(id)?;
                let is_late = goal.deadline.is_some_and(|deadline| deadline <= now);
                let occasion = match (is_late, goal.pursued) {
                    (true, _) => "its deadline has come",
                    (false, 0) => "it was set",
                    _ => "it is time to look at it again",
                };
                let serving = self.goals.values().filter(|other| other.parent.as_ref() == Some(id));
                let serving: Vec<Value> =
                    serving.map(|goal| json!({"title": goal.title, "status": goal.status})).collect();
                let notes: Vec<&str> = goal.notes.iter().rev().take(6).rev().map(|note| note.text.as_str()).collect();
                let errand = json!({"goal": id, "title": goal.title, "description": goal.description, "plan": goal.plan, "notes": notes, "subgoals": serving, "occasion": occasion});
                Some((format!("{lifeform}.goal.{id}.n{}", goal.pursued + 1).into(), errand))
            }
            Act::Schedule(id) => {
                let one = self.schedules.get(id)?;
                let errand = json!({"schedule": id, "title": one.what, "description": "", "plan": [], "notes": [], "subgoals": [], "occasion": "its time has come"});
                Some((format!("{lifeform}.schedule.{id}.n{}", one.runs + 1).into(), errand))
            }
        }
    }

    /// An act is begun by `job`. Of a pattern that came several times meanwhile, only once.
    pub(crate) fn begin(&mut self, act: &Act, job: &Arc<str>, now: Timestamp) {
        match act {
            Act::Goal(id) => {
                if let Some(goal) = self.goals.get_mut(id) {
                    goal.late = goal.deadline.is_some_and(|deadline| deadline <= now);
                    (goal.status, goal.next, goal.job) = (GoalStatus::Active, None, Some(job.clone()));
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

    /// What a job made of the goal it pursued. Answers false when that was taken in before.
    pub(crate) fn progress(&mut self, job: &str, outcome: &Outcome, me: &PrincipalId, now: Timestamp) -> bool {
        let Some(goal) = self.goals.values_mut().find(|goal| goal.job.as_deref() == Some(job)) else { return false };
        goal.job = None;
        prove(goal, format!("job:{job}").into());
        if goal.status.is_over() {
            // Somebody decided meanwhile.
            return true;
        }
        goal.status = outcome.status.filter(|status| *status != GoalStatus::Open).unwrap_or(GoalStatus::Active);
        if !outcome.plan.is_empty() && check_plan(&outcome.plan).is_ok() {
            goal.plan = outcome.plan.clone();
        }
        let again = SignedDuration::from_mins(outcome.again_in_minutes.into());
        let is_again = !again.is_zero() && !goal.status.is_over();
        goal.next = is_again.then(|| now.checked_add(again.max(AGAIN_MIN)).unwrap_or(Timestamp::MAX));
        if !outcome.say.trim().is_empty() {
            note_down(goal, Note { at: now, by: me.clone(), text: format!("I said: {}", outcome.say.trim()) });
        }
        let (id, is_over) = (goal.id.clone(), goal.status.is_over());
        for title in outcome.subgoals.iter().filter(|_| !is_over) {
            let is_known = |known: &Goal| known.parent.as_ref() == Some(&id) && known.title == *title;
            if !self.goals.values().any(is_known) {
                let spec = GoalSpec { title: title.clone(), parent: Some(id.clone()), ..GoalSpec::default() };
                // One that cannot be set is none.
                let _ = self.set_goal(spec, me, now);
            }
        }
        true
    }

    /// A job that pursued a goal failed: it waits for somebody.
    pub(crate) fn fail(&mut self, job: &str, error: &str, me: &PrincipalId, now: Timestamp) {
        if let Some(goal) = self.goals.values_mut().find(|goal| goal.job.as_deref() == Some(job)) {
            goal.job = None;
            if goal.status.is_over() {
                return;
            }
            goal.status = GoalStatus::Blocked;
            let text = format!("it failed: {}", error.chars().take(240).collect::<String>());
            note_down(goal, Note { at: now, by: me.clone(), text });
        }
    }

    /// It spoke without being asked.
    pub(crate) fn spoke(&mut self, now: Timestamp) {
        self.unasked.retain(|spoken| now.duration_since(*spoken) < SignedDuration::from_hours(24));
        self.unasked.push(now);
    }

    /// Somebody said something about a goal: one that is blocked is taken up again. Answers whether anything changed.
    pub(crate) fn hear(&mut self, id: &str, by: &str, text: &str, source: &Arc<str>, now: Timestamp) -> bool {
        let Some(goal) = self.goals.get_mut(id).filter(|goal| !goal.status.is_over()) else { return false };
        if goal.evidence.contains(source) {
            return false;
        }
        prove(goal, source.clone());
        let text: String = text.chars().take(TEXT_BYTES_MAX / 4).collect();
        note_down(goal, Note { at: now, by: PrincipalId::new(by), text: format!("{by} said: {text}") });
        if goal.status == GoalStatus::Blocked {
            (goal.status, goal.next) = (GoalStatus::Active, Some(now));
        }
        true
    }
}

fn note_down(goal: &mut Goal, note: Note) {
    goal.notes.push(note);
    let over = goal.notes.len().saturating_sub(NOTES_MAX);
    goal.notes.drain(..over);
}

fn prove(goal: &mut Goal, evidence: Arc<str>) {
    goal.evidence.push(evidence);
    let over = goal.evidence.len().saturating_sub(NOTES_MAX);
    goal.evidence.drain(..over);
}

/// Hours in which a lifeform does not speak without being asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// When they begin, as `22:00`.
    pub from: String,
    /// When they end, as `07:00`; at the same hour is never.
    pub to: String,
    /// Whose hours these are, UTC when absent.
    #[serde(default)]
    pub zone: Option<String>,
}

impl Quiet {
    fn parts(&self) -> Result<(civil::Time, civil::Time, TimeZone), String> {
        let time = |name: &str, text: &str| {
            civil::Time::strptime("%H:%M", text).map_err(|_| format!("{name}: \"{text}\" is no time such as 22:00"))
        };
        let zone = match &self.zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|error| format!("zone: {error}"))?,
        };
        Ok((time("from", &self.from)?, time("to", &self.to)?, zone))
    }

    /// Checks what serde cannot.
    ///
    /// # Errors
    /// A sentence naming the member and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        self.parts().map(drop)
    }

    /// When the quiet hours end, if `at` is in them.
    fn ends(&self, at: Timestamp) -> Option<Timestamp> {
        let (from, to, zone) = self.parts().ok()?;
        let here = at.to_zoned(zone.clone());
        let (day, time) = (here.date(), here.time());
        let end = match from <= to {
            true if from <= time && time < to => day.to_datetime(to),
            false if time >= from => day.tomorrow().ok()?.to_datetime(to),
            false if time < to => day.to_datetime(to),
            _ => return None,
        };
        end.to_zoned(zone).ok().map(|end| end.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_due_is_begun_once_and_not_in_quiet_hours_nor_beyond_the_limit() {
        let quiet = Some(Quiet { from: "22:00".into(), to: "07:00".into(), zone: None });
        let initiative = Initiative { quiet, unasked_per_day: 2, ..Initiative::default() };
        let mut agenda = Agenda::default();
        agenda.set_goal(GoalSpec { at: Some(at("23:00")), ..goal("late") }, &ada(), at("12:00")).unwrap();
        assert_eq!(agenda.due(&initiative, at("22:59"), true), []);
        assert_eq!(agenda.due(&initiative, at("23:30"), true), []);
        let morning: Timestamp = "2026-01-02T07:00:00Z".parse().unwrap();
        assert_eq!(agenda.next_due(&initiative), Some(morning));
        let due = agenda.due(&initiative, morning, true);
        assert_eq!(due, [Act::Goal("g1".into())]);
        let (job, errand) = agenda.errand(&due[0], "lf", morning).unwrap();
        assert_eq!((&*job, &errand["occasion"]), ("lf.goal.g1.n1", &json!("it was set")));
        agenda.begin(&due[0], &job, morning);
        assert_eq!((agenda.due(&initiative, morning, true), agenda.next_due(&initiative)), (vec![], None));
        let outcome = Outcome {
            status: Some(GoalStatus::Blocked),
            say: "Which one?".into(),
            again_in_minutes: 60,
            subgoals: vec!["ask".into()],
            ..Outcome::default()
        };
        agenda.progress(&job, &outcome, &ada(), morning);
        agenda.progress(&job, &outcome, &ada(), morning);
        assert_eq!(agenda.goals.len(), 2, "taken in once");
        agenda.remove_goal("g2").unwrap();
        assert_eq!(agenda.next_due(&initiative), Some(morning + SignedDuration::from_hours(1)));
        assert!(agenda.hear("g1", "user:ada", "The blue one", &"canvas:x@9".into(), morning));
        assert!(!agenda.hear("g1", "user:ada", "The blue one", &"canvas:x@9".into(), morning));
        assert_eq!(agenda.due(&initiative, morning, true).len(), 1, "an answer unblocks it");
        agenda.spoke(morning);
        agenda.spoke(morning + SignedDuration::from_mins(5));
        assert_eq!(agenda.due(&initiative, morning + SignedDuration::from_mins(6), true), []);
        assert_eq!(agenda.next_due(&initiative), Some("2026-01-03T07:00:00Z".parse().unwrap()));
        let deadline = Some(morning + SignedDuration::from_hours(30));
        agenda.change_goal("g1", GoalChange { deadline, ..GoalChange::default() }, &ada(), morning).unwrap();
        agenda.goals.get_mut("g1").unwrap().next = None;
        assert_eq!(agenda.next_due(&initiative), deadline);
    }

    #[test]
    fn schedules_come_by_pattern_or_once_and_those_that_were_missed_come_once() {
        let mut agenda = Agenda::default();
        let initiative = Initiative::default();
        let daily = ScheduleSpec {
            what: "look".into(),
            cron: Some("0 9 * * *".into()),
            zone: Some("Europe/Lisbon".into()),
            at: None,
        };
        let daily = agenda.set_schedule(daily, &ada(), at("12:00")).unwrap();
        let once = ScheduleSpec { what: "call".into(), at: Some(at("13:00")), ..ScheduleSpec::default() };
        let once = agenda.set_schedule(once, &ada(), at("12:00")).unwrap();
        for bad in [
            ScheduleSpec { what: "x".into(), ..ScheduleSpec::default() },
            ScheduleSpec { what: "x".into(), cron: Some("every day".into()), ..ScheduleSpec::default() },
            ScheduleSpec { what: "x".into(), cron: Some("0 9 * * *".into()), zone: Some("Moon".into()), at: None },
            ScheduleSpec { what: " ".into(), at: Some(at("13:00")), ..ScheduleSpec::default() },
        ] {
            assert!(agenda.set_schedule(bad.clone(), &ada(), at("12:00")).is_err(), "{bad:?}");
        }
        let later: Timestamp = "2026-01-05T10:00:00Z".parse().unwrap();
        let due = agenda.due(&initiative, later, true);
        assert_eq!(due, [Act::Schedule(once), Act::Schedule(daily.clone())]);
        for act in &due {
            let (job, _) = agenda.errand(act, "lf", later).unwrap();
            agenda.begin(act, &job, later);
        }
        assert_eq!(agenda.schedules.len(), 1);
        assert_eq!(agenda.schedules[&daily].next, "2026-01-06T09:00:00Z".parse().unwrap());
    }
}
