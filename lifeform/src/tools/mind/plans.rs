//! The tool `remind`, and `goal` within a talk.

use jiff::civil;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{PrincipalId, Timestamp};

use super::super::LifeformToolbox;
use super::super::reminders::{Promise, When};
use super::{Talk, refused};
use crate::agenda::{Act, Agenda, AgendaItemId, Goal, GoalChange, GoalSpec, GoalStatus, Schedule, ScheduleSpec};
use crate::canvas::{Refusal, chat};
use crate::reminders::is_within;

/// The maximum length of a reminder, and of a goal's title, in characters.
const TEXT_CHARS: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Remind {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    in_minutes: Option<i64>,
    #[serde(default)]
    cron: Option<String>,
    /// The id or a part of the text of a reminder, or "all".
    #[serde(default)]
    cancel: Option<String>,
}

/// The number of messages in which a reminder that is to be changed may be named.
const SPOKEN_OF: usize = 4;

impl Remind {
    /// Returns the text without surplus spaces.
    fn words(&self) -> String {
        self.text.as_deref().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn promise(&self) -> Promise {
        Promise {
            what: self.words(),
            in_minutes: self.in_minutes.unwrap_or_default(),
            at: self.at.clone().unwrap_or_default(),
            cron: self.cron.clone().unwrap_or_default(),
            think: false,
        }
    }
}

/// A change of a goal that a person asks for in a talk.
pub(crate) enum GoalAct {
    /// A new goal.
    Create(GoalSpec),
    /// A change of the goal.
    Change(AgendaItemId, GoalChange),
}

impl LifeformToolbox {
    /// Sets, moves, cancels or lists reminders for the person whose message is answered.
    pub(super) async fn remind_for(&self, asked: Remind, talk: &Talk) -> Result<Value, String> {
        self.is_asked_still(talk)?;
        let said = talk.asked();
        let by = PrincipalId::new(said.sender.clone());
        let has_time = asked.at.is_some() || asked.in_minutes.is_some() || asked.cron.is_some();
        match &asked.cancel {
            Some(named) if !has_time => return self.cancel_for(named, &by, talk).await,
            // With a new time, the reminder moves.
            Some(named) => return self.move_for(named, &asked, &by, talk).await,
            None => {}
        }
        if asked.text.is_none() && !has_time {
            return Ok(self.reminders_of(&by, talk).into());
        }
        let text: String = asked.words();
        if text.is_empty() || text.chars().count() > TEXT_CHARS {
            return Err(format!("text is what you will say then, of 1 to {TEXT_CHARS} characters"));
        }
        let promise = asked.promise();
        if promise.is_without_time() {
            return Err("give a time: at, in_minutes or cron; for work without a time use goal".into());
        }
        let from = self.said_at(&talk.here, &said.message);
        let messages = [said.message.clone()];
        let set = self.put_down(&text, &promise, (from, &messages), &talk.here, &by, &talk.origin).await;
        let id = set.map_err(refused)?;
        if talk.tainted {
            let marked = self.plans.change(&talk.origin, "reminder marked", |agenda, _| {
                let one = agenda.schedules.get_mut(&id);
                Ok(one.map(|one| one.behind.insert(nexus::OUTSIDE.into())))
            });
            marked.await.map_err(refused)?;
        }
        Ok(self.shown(&self.plans.agenda(), &id, "Set"))
    }

    /// Gives a reminder another time, and another text if the model names one. A repeated one stays repeated.
    async fn move_for(&self, named: &str, asked: &Remind, by: &PrincipalId, talk: &Talk) -> Result<Value, String> {
        let (zone, zone_name) = self.zone();
        let message = &talk.asked().message;
        let when = asked.promise().when(self.said_at(&talk.here, message), &zone)?;
        let moved = self.plans.change(&talk.origin, "reminder moved", |agenda, now| {
            talk.here.is_wanted_still(message)?;
            let refused = |why: &str| Refusal::State(why.to_owned());
            let known = self.named_by(agenda, named, by, talk).map_err(Refusal::State)?;
            let [known] = &*known else { return Err(refused("name one reminder to move it")) };
            let (cron, at) = match &when {
                When::Again(cron) => (Some(cron.clone()), None),
                When::Once(_) if known.cron.is_some() => {
                    return Err(refused("this reminder is repeated: give cron to move it, or set another one"));
                }
                When::Once(at) => (None, Some(*at)),
                When::Sometime => return Err(refused("give a time: at, in_minutes or cron")),
            };
            let what = Some(asked.words()).filter(|text| !text.is_empty()).unwrap_or_else(|| known.what.clone());
            let zone = cron.as_ref().and(zone_name.clone());
            let spec = ScheduleSpec { what, cron, zone, at, topic: known.topic.clone(), remind: true };
            agenda.change_schedule(&known.id, spec, now)?;
            agenda.is_often_enough(&known.id)?;
            if let Some(one) = agenda.schedules.get_mut(&known.id).filter(|_| talk.tainted) {
                one.behind.insert(nexus::OUTSIDE.into());
            }
            Ok(self.shown(agenda, &known.id, "Moved"))
        });
        moved.await.map_err(refused)
    }

    fn shown(&self, agenda: &Agenda, id: &AgendaItemId, done: &str) -> Value {
        let Some(one) = agenda.schedules.get(id) else { return json!(format!("{done} {id}")) };
        let at = one.next.to_zoned(self.zone().0).strftime("%A %Y-%m-%d %H:%M (%Q)").to_string();
        let again = one.cron.as_ref().map(|cron| format!(", repeated (cron {cron})")).unwrap_or_default();
        json!(format!("{done} {id}: \"{}\", {at}{again}", one.what))
    }

    /// Cancels the reminders of the person that a model names: by id, by a part of the text, or all of this topic.
    async fn cancel_for(&self, named: &str, by: &PrincipalId, talk: &Talk) -> Result<Value, String> {
        let cancelled = self.plans.change(&talk.origin, "reminders taken off", |agenda, _| {
            let known = self.named_by(agenda, named, by, talk).map_err(Refusal::State)?;
            known.iter().try_for_each(|one| agenda.remove_schedule(&one.id))?;
            Ok(known.into_iter().map(|one| format!("\"{}\"", one.what)).collect::<Vec<_>>().join(", "))
        });
        cancelled.await.map(|what| json!(format!("Cancelled: {what}"))).map_err(refused)
    }

    /// Returns the reminders of a person that a model names, if the person's message asks to change or cancel them.
    ///
    /// # Errors
    /// The reason of the refusal, as a text for a model.
    fn named_by(&self, agenda: &Agenda, named: &str, by: &PrincipalId, talk: &Talk) -> Result<Vec<Schedule>, String> {
        let named = named.trim();
        let is_all = matches!(named.to_lowercase().as_str(), "all" | "everything" | "全部" | "すべて");
        let is_named = |one: &Schedule| match is_all {
            true => true,
            false => *one.id == *named || (!named.is_empty() && is_within(named, &one.what)),
        };
        let may = |one: &Schedule| {
            self.asks_to_cancel(&talk.here, talk.asked(), one)
                || talk.may_take_away(&format!("{} {}", one.what, one.id))
                || (talk.asks_to_take_away() && (!talk.tainted || self.is_spoken_of(&one.what, by, talk)))
        };
        let own = agenda.schedules.values().filter(|one| one.remind && one.by == *by && is_named(one));
        let known: Vec<Schedule> = own.filter(|one| self.is_shown_here(one, by, talk)).cloned().collect();
        if known.len() > 1 && !is_all {
            let ids: Vec<String> = known.iter().map(|one| format!("{} \"{}\"", one.id, one.what)).collect();
            return Err(format!("there are several, name one by its id: {}", ids.join(", ")));
        }
        if known.is_empty() {
            return Err(format!("this person has no reminder \"{named}\"; without arguments you get the list"));
        }
        if known.iter().any(|one| !may(one)) {
            return Err("this person did not ask to change or cancel that".into());
        }
        Ok(known)
    }

    /// Returns `true` if the person or the lifeform named a thing in the last messages of the talk: "Move the dentist." "No, to
    /// three."
    fn is_spoken_of(&self, what: &str, by: &PrincipalId, talk: &Talk) -> bool {
        let state = talk.here.canvas.snapshot().state;
        let newest = chat::messages_in(&state, talk.here.topic()).rev().take(SPOKEN_OF);
        let own = newest.filter(|message| message.is_by(&by.0) || message.is_by(&self.me.id.0));
        talk.names(what) || own.into_iter().any(|message| super::shares_a_word(what, message.content()))
    }

    /// Returns `true` if a reminder may be named in a talk: it belongs to its topic, or nobody else than its person reads
    /// there.
    fn is_shown_here(&self, reminder: &Schedule, by: &PrincipalId, talk: &Talk) -> bool {
        let here = &talk.here;
        let topic = (here.canvas.name() == &*self.home).then(|| here.topic());
        self.is_alone_here(here, &by.0) || (topic.is_some() && reminder.topic.as_ref() == topic)
    }

    /// Returns the reminders of a person: those of this topic, and the others if nobody else reads here.
    fn reminders_of(&self, by: &PrincipalId, talk: &Talk) -> String {
        let zone = self.zone().0;
        let agenda = self.plans.agenda();
        let own = agenda.schedules.values().filter(|one| one.remind && one.by == *by);
        let mut shown: Vec<&Schedule> = own.filter(|one| self.is_shown_here(one, by, talk)).collect();
        shown.sort_by_key(|one| one.next);
        let lines: Vec<String> = shown
            .into_iter()
            .map(|one| {
                let next = one.next.to_zoned(zone.clone());
                let again = one.cron.as_ref().map(|cron| format!(", repeated (cron {cron})")).unwrap_or_default();
                format!("{}: \"{}\", {}{again}", one.id, one.what, next.strftime("%A %Y-%m-%d %H:%M"))
            })
            .collect();
        if lines.is_empty() { "No reminders.".to_owned() } else { lines.join("\n") }
    }

    /// Creates or changes a goal for the person whose message is answered. A goal keeps the topic and the message.
    pub(crate) async fn goal_for(&self, act: GoalAct, call: super::MindCall) -> Result<Value, String> {
        let words = match &act {
            GoalAct::Create(spec) => format!("{} {}", spec.title, spec.description),
            GoalAct::Change(id, change) => {
                let title = self.plans.agenda().goals.get(id).map(|goal| goal.title.clone()).unwrap_or_default();
                format!("{title} {}", change.note.clone().unwrap_or_default())
            }
        };
        let talk = self.talk(call, &words)?;
        self.is_asked_still(&talk)?;
        let (here, said) = (&talk.here, talk.asked());
        let by = PrincipalId::new(said.sender.clone());
        match act {
            GoalAct::Create(spec) => {
                let topic = (here.canvas.name() == &*self.home).then(|| here.topic().clone());
                let asked_in = [here.name_of(&said.message)];
                let principal = self.memory.principal(&by.0);
                let is_trusted = self.knowledge.trusts_word_of(&by.0);
                let tainted = talk.tainted;
                let set = self.plans.change(&talk.origin, "goal set", |agenda, now| {
                    here.is_wanted_still(&said.message)?;
                    // A goal that was reported is over for the person who asks for the same once more.
                    let is_pursued = |goal: &Goal| {
                        agenda.is_open(&goal.id) && goal.status != GoalStatus::Reported && goal.topic == topic
                    };
                    let is_known = |goal: &&Goal| goal.title == spec.title && goal.by == by && is_pursued(goal);
                    if let Some(known) = agenda.goals.values().find(is_known) {
                        return Ok(known.id.clone());
                    }
                    agenda.has_room_for_goal(&principal)?;
                    if let Some(parent) = &spec.parent
                        && agenda.goal(parent)?.by != by
                        && !is_trusted
                    {
                        return Err(Refusal::Forbidden("that goal is another person's".into()));
                    }
                    let mut spec = GoalSpec { topic: topic.clone(), ..spec.clone() };
                    if tainted {
                        spec.behind.insert(nexus::OUTSIDE.into());
                    }
                    let id = agenda.set_goal(spec, &by, now)?;
                    agenda.ask_in(&id, &asked_in);
                    Ok(id)
                });
                let id = set.await.map_err(refused)?;
                Ok(json!({"goal_id": id, "next": "you pursue it by yourself from now on, and report here"}))
            }
            GoalAct::Change(id, change) => {
                let is_trusted = self.knowledge.trusts_word_of(&by.0);
                let status = change.status;
                let changed = self.plans.change(&talk.origin, "goal changed", |agenda, now| {
                    may_change(agenda, &id, &by, is_trusted)?;
                    let ends = change.status == Some(GoalStatus::Dropped);
                    let goal = agenda.goal(&id)?;
                    // In the topic of one open goal, "stop it" means that goal.
                    let speaks_here = |goal: &&Goal| {
                        !goal.status.is_over() && here.canvas.name() == &*self.home && goal.speaks_in() == *here.topic()
                    };
                    let mut of_topic = agenda.goals.values().filter(speaks_here);
                    let is_only = of_topic.next().is_some_and(|only| only.id == id) && of_topic.next().is_none();
                    let is_meant = talk.may_take_away(&format!("{} {id}", goal.title));
                    if ends && !is_meant && !(is_only && talk.asks_to_take_away()) {
                        let why = "this person did not name that goal to end it: ask which one, by its title";
                        return Err(Refusal::State(why.into()));
                    }
                    agenda.change_goal(&id, change.clone(), &by, now)?;
                    if change.note.is_some() {
                        agenda.take_up(&id, now);
                    }
                    if let Some(goal) = agenda.goals.get_mut(&id).filter(|_| talk.tainted) {
                        goal.behind.insert(nexus::OUTSIDE.into());
                    }
                    Ok(())
                });
                changed.await.map_err(refused)?;
                let status = status.or_else(|| self.plans.agenda().goals.get(&id).map(|goal| goal.status));
                Ok(json!({"goal_id": id, "status": status}))
            }
        }
    }
}

/// Checks that a person may change a goal: the setter of it or of the goal above it, or a trusted person.
fn may_change(agenda: &Agenda, id: &AgendaItemId, by: &PrincipalId, is_trusted: bool) -> Result<(), Refusal> {
    agenda.goal(id)?;
    let setter = agenda.set_by(&Act::Goal(id.clone()));
    match is_trusted || setter.is_some_and(|setter| setter == by.0) {
        true => Ok(()),
        false => Err(Refusal::State(format!("goal {id} is another person's"))),
    }
}

/// Returns the end of a day, as a deadline.
pub(crate) fn end_of(day: civil::Date, zone: &jiff::tz::TimeZone) -> Option<Timestamp> {
    day.at(23, 59, 0, 0).to_zoned(zone.clone()).ok().map(|end| end.timestamp())
}
