//! Requests for a later time. Reminders are parsed by rule ([`crate::reminders`]). For other requests, a keyword check
//! decides whether a model is called.

use std::str::FromStr;
use std::sync::Arc;

use croner::Cron;
use fascicles::{ToolContext, ToolFailure};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, civil};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Origin, PrincipalId, Timestamp};

use super::{LifeformToolbox, MESSAGE_CHARS, ToolScope, cut};
use crate::LifeformError;
use crate::agenda::{AgendaItemId, Goal, GoalSpec, Schedule, ScheduleSpec};
use crate::canvas::chat::MessageView;
use crate::canvas::{Refusal, chat};
use crate::perception::{Change, PerceivedMessage};
use crate::reminders::{self, Cancel, Language, Reading, Reminder, Request};

/// The words by which a further message takes back a request.
const TAKES_BACK: [&str; 9] =
    ["cancel", "never mind", "no need", "instead", "取消", "不用", "キャンセル", "取り消", "やめ"];
/// The maximum number of schedules for one person.
const SCHEDULES_OF_ONE: usize = 16;
/// The words of requests for a later time, for a repetition, or for work that takes more than an answer.
const LATER: [&str; 41] = [
    "every day",
    "every morning",
    "every evening",
    "every week",
    "every hour",
    "every monday",
    "every tuesday",
    "every wednesday",
    "every thursday",
    "every friday",
    "every saturday",
    "every sunday",
    "each day",
    "each week",
    "in the future, ",
    "your goal",
    "wake me",
    "nudge me",
    "let me know when",
    "tell me when",
    "keep an eye on",
    "plan my ",
    "plan our ",
    "plan a ",
    "plan the ",
    "make a plan",
    "make me a plan",
    "每天",
    "每周",
    "每晚",
    "你的目标",
    "叫醒我",
    "帮我计划",
    "帮我规划",
    "制定计划",
    "毎日",
    "毎週",
    "毎朝",
    "起こして",
    "計画を立て",
    "計画して",
];
/// The words with which an answer promises something for later. An answer with them is read, too, so that what was
/// promised is on the agenda.
const PROMISES: [&str; 29] = [
    "i will ask you",
    "i'll ask you",
    "声をおかけします",
    "ご連絡します",
    "お伝えします",
    "i promise",
    "我保证",
    "我答应",
    "お約束します",
    "i will remind",
    "i'll remind",
    "i will wake",
    "i'll wake",
    "i will let you know",
    "i'll let you know",
    "i will get back",
    "i'll get back",
    "i will come back",
    "i'll come back",
    "i will keep an eye",
    "i'll keep an eye",
    "i will check",
    "i'll check",
    "我会提醒",
    "我会叫",
    "我会告诉你",
    "お知らせします",
    "思い出させます",
    "起こします",
];
/// The maximum length of a goal's description, in characters.
const DETAILS_CHARS: usize = 1_000;
/// The maximum number of requests per message.
const PROMISES_MAX: usize = 3;
/// The maximum delay in minutes: ten years.
const MINUTES_MAX: i64 = 10 * 525_600;

/// The requests for a later time, as a model extracts them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    promises: Vec<Promise>,
}

/// A single request. Without a time, it becomes a goal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Promise {
    pub(super) what: String,
    pub(super) in_minutes: i64,
    pub(super) at: String,
    pub(super) cron: String,
    /// `true` if the lifeform must think then: the text to say is not known yet.
    pub(super) think: bool,
}

/// The metadata key of the requester.
const ASKED_BY: &str = "asked_by";
/// The metadata key of a promise in the answer.
const HAS_PROMISED: &str = "has_promised";
/// Returns the supplement to an answer that promised something which could not be put on the agenda.
fn not_put_down(language: Language) -> &'static str {
    match language {
        Language::English => "I could not put that on my agenda, so please do not rely on it.",
        Language::Chinese => "这件事我没能记到日程里，请不要指望我到时候会做。",
        Language::Japanese => "これは予定に入れられませんでした。当てにしないでください。",
    }
}

/// Returns `true` if an answer promises something for later.
pub(super) fn is_promise(answer: &str) -> bool {
    let answer = answer.to_lowercase().replace('’', "'");
    PROMISES.iter().any(|words| answer.contains(words))
}

impl LifeformToolbox {
    /// Returns the time zone for times: the one of the quiet hours, otherwise the one of the machine.
    pub(super) fn zone(&self) -> (TimeZone, Option<String>) {
        let named = self.plans.initiative().quiet.as_ref().and_then(|quiet| quiet.zone.clone());
        let name = named.or_else(|| TimeZone::system().iana_name().map(str::to_owned));
        (name.as_deref().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC), name)
    }

    /// Returns `true` if this lifeform stores the reminders that a message requests.
    fn is_keeper_of(said: &PerceivedMessage) -> bool {
        said.to_answer && said.change == Change::New && said.keeps_reminders
    }

    /// Parses the reminders that a message requests.
    fn reminders_in(&self, here: &ToolScope, said: &PerceivedMessage) -> Request {
        if !Self::is_keeper_of(said) {
            return Request::default();
        }
        let request = reminders::read(&said.content, &self.said_at(here, &said.message).to_zoned(self.zone().0));
        // A model with tools reads the messages that hold more or something that the rule is not sure of, and the rule what it
        // left undone: both would act on them.
        let is_set = || self.plans.agenda().requests().contains(&here.name_of(&said.message));
        let is_sure = request.is_all && request.readings.iter().all(|reading| matches!(reading, Reading::Asked(_)));
        let is_alone = here.perception.is_one();
        if here.perception.supply.tools && !(is_sure && is_alone) {
            let asked = request.readings.into_iter().filter(|reading| matches!(reading, Reading::Asked(_)));
            // What another of the messages takes back is the model's to weigh.
            let takes_back = |other: &PerceivedMessage| {
                let content = other.content.to_lowercase();
                other.message != said.message && TAKES_BACK.iter().any(|words| content.contains(words))
            };
            if !is_alone && here.perception.said.iter().any(takes_back) {
                return Request::default();
            }
            return Request { readings: if is_set() { Vec::new() } else { asked.collect() }, is_all: false };
        }
        request
    }

    /// Returns `true` if a message asks to cancel a reminder, by rule.
    pub(super) fn asks_to_cancel(&self, here: &ToolScope, said: &PerceivedMessage, reminder: &Schedule) -> bool {
        let now = self.said_at(here, &said.message).to_zoned(self.zone().0);
        let asked = reminders::read(&said.content, &now).readings.into_iter();
        let mut cancels =
            asked.filter_map(|reading| if let Reading::Cancel(cancel) = reading { Some(cancel) } else { None });
        cancels.any(|cancel| cancel.means(&reminder.what, reminder.next, reminder.cron.as_deref()))
    }

    /// Returns `true` if a message requests only reminders.
    pub(super) fn asks_for_reminders_alone(&self, here: &ToolScope, said: &PerceivedMessage) -> bool {
        self.reminders_in(here, said).is_all
    }

    /// Adds the requested reminders to the agenda, each once. Returns the confirmations.
    pub(super) async fn put_reminders_down(
        &self,
        here: &ToolScope,
        origin: &Origin,
    ) -> Result<Vec<String>, ToolFailure> {
        let mut answers = Vec::new();
        for said in &here.perception.said {
            let now = self.said_at(here, &said.message).to_zoned(self.zone().0);
            for (no, reading) in self.reminders_in(here, said).readings.into_iter().enumerate() {
                let reminder = match reading {
                    Reading::Asked(reminder) => reminder,
                    Reading::Unclear(language) | Reading::Over(language) => {
                        let refusal = language.refusal(matches!(reading, Reading::Over(_))).to_owned();
                        if !answers.contains(&refusal) {
                            answers.push(refusal);
                        }
                        continue;
                    }
                    Reading::Cancel(cancel) => {
                        let by = PrincipalId::new(said.sender.clone());
                        let asked = format!("{}/{}/{no}", here.topic(), said.message);
                        answers.push(self.take_reminders_off(&cancel, asked.into(), here, &by, origin).await?);
                        continue;
                    }
                };
                match self.put_reminder_down(&reminder, here, said, origin).await {
                    Ok(next) => answers.push(reminder.confirmation(next, &now)),
                    Err(LifeformError::Refused(refusal)) => {
                        tracing::info!(%refusal, "a reminder is refused");
                        answers.push(not_put_down(reminder.language).to_owned());
                    }
                    Err(error) => return Err(ToolFailure::passing(error)),
                }
            }
        }
        Ok(answers)
    }

    /// Removes the reminders that a person means, among the person's reminders in this topic. Reminders of other topics
    /// are not named here. Returns the confirmation.
    async fn take_reminders_off(
        &self,
        cancel: &Cancel,
        asked: Arc<str>,
        here: &ToolScope,
        by: &PrincipalId,
        origin: &Origin,
    ) -> Result<String, ToolFailure> {
        let zone = self.zone().0;
        let named = |one: &Schedule| {
            let next = one.next.to_zoned(zone.clone());
            format!("{} ({})", one.what, next.strftime("%Y-%m-%d %H:%M"))
        };
        let topic = (here.canvas.name() == &*self.home).then(|| here.topic().clone());
        let is_here = |one: &&Schedule| one.remind && one.by == *by && one.topic == topic;
        let took = self
            .plans
            .change(origin, "reminders taken off", |agenda, _| {
                // An earlier attempt of this step removed them.
                if let Some(taken) = agenda.taken_off(&asked) {
                    return Ok(taken);
                }
                let there: Vec<Schedule> = agenda.schedules.values().filter(is_here).cloned().collect();
                let is_meant = |one: &&Schedule| cancel.means(&one.what, one.next, one.cron.as_deref());
                let meant: Vec<Schedule> = there.iter().filter(is_meant).cloned().collect();
                if meant.is_empty() || (cancel.is_unspecific() && meant.len() > 1) {
                    // The reminders may belong to other topics, which must not be named here.
                    let named = there.iter().filter(|_| topic.is_some()).map(named);
                    return Err(Refusal::State(cancel.question(&named.collect::<Vec<_>>())));
                }
                meant.iter().try_for_each(|one| agenda.remove_schedule(&one.id))?;
                let taken: Vec<String> = meant.iter().map(named).collect();
                agenda.note_taken_off(asked.clone(), taken.clone());
                Ok(taken)
            })
            .await;
        match took {
            Ok(taken) => Ok(cancel.confirmation(&taken)),
            Err(LifeformError::Refused(Refusal::State(question))) => Ok(question),
            Err(error) => Err(ToolFailure::passing(error)),
        }
    }

    async fn put_reminder_down(
        &self,
        reminder: &Reminder,
        here: &ToolScope,
        said: &PerceivedMessage,
        origin: &Origin,
    ) -> Result<Timestamp, LifeformError> {
        let (by, asked_in) = (PrincipalId::new(said.sender.clone()), [here.name_of(&said.message)]);
        let topic = (here.canvas.name() == &*self.home).then(|| here.topic().clone());
        let (cron, at) = match &reminder.when {
            reminders::When::Once(at) => (None, Some(*at)),
            reminders::When::Again(cron) => (Some(cron.clone()), None),
        };
        let zone = cron.as_ref().and_then(|_| self.zone().1);
        self.plans
            .change(origin, "promised", |agenda, now| {
                here.is_wanted_still(&said.message)?;
                let what = reminder.text_to_say();
                let of_one: Vec<&Schedule> = agenda.schedules.values().filter(|one| one.by == by).collect();
                // An earlier attempt of this step added it.
                let is_known = |one: &&&Schedule| {
                    one.what == what && one.cron == cron && one.topic == topic && at.is_none_or(|at| at == one.next)
                };
                if let Some(known) = of_one.iter().find(is_known) {
                    let (id, next) = (known.id.clone(), known.next);
                    agenda.ask_again(&id, &asked_in);
                    return Ok(next);
                }
                if of_one.len() >= SCHEDULES_OF_ONE {
                    return Err(Refusal::State(format!("there are {SCHEDULES_OF_ONE} things for you already")));
                }
                let (cron, zone, topic) = (cron.clone(), zone.clone(), topic.clone());
                let id = agenda.set_schedule(ScheduleSpec { what, cron, zone, at, topic, remind: true }, &by, now)?;
                agenda.ask_in(&id, &asked_in);
                Ok(agenda.schedules.get(&id).map_or(now, |one| one.next))
            })
            .await
    }

    /// Returns the events about requests for a later time, for a model: the messages that ask for something later, and
    /// an answer that promises it. In most cases there are none, and no model is called.
    pub(super) async fn later(
        &self,
        context: &ToolContext,
        here: &ToolScope,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let answer = here.message(&Self::answer_id(context));
        let answer = answer.as_ref().map_or("", |answer| MessageView::of(answer).content());
        // What a tool has set is on the agenda already.
        let requests = self.plans.agenda().requests();
        let is_set = here.perception.said.iter().any(|said| requests.contains(&here.name_of(&said.message)));
        let has_promised = is_promise(answer) && !is_set;
        let by_tools = here.perception.supply.tools;
        let asks = |said: &&PerceivedMessage| {
            let content = said.content.to_lowercase();
            let is_read = !self.reminders_in(here, said).readings.is_empty();
            let is_later = has_promised || (!by_tools && LATER.iter().any(|words| content.contains(words)));
            Self::is_keeper_of(said) && !is_read && is_later
        };
        let asking: Vec<&PerceivedMessage> = here.perception.said.iter().filter(asks).collect();
        let Some(said) = asking.last() else { return Ok(json!({"events": []})) };
        let by_the_same = asking.iter().filter(|other| other.sender == said.sender);
        let (content, messages): (Vec<&str>, Vec<&Arc<str>>) =
            by_the_same.map(|said| (said.content.as_str(), &said.message)).unzip();
        let now = self.said_at(here, &said.message).to_zoned(self.zone().0);
        let mut now = format!("It is {} now.", now.strftime("%A %Y-%m-%d %H:%M"));
        if has_promised {
            let promised = super::recalling::unmarked(&cut(answer, MESSAGE_CHARS));
            now.push_str(&format!(" You have answered: <answer>{promised}</answer>"));
        }
        let metadata =
            json!({ASKED_BY: said.sender, "message": said.message, "messages": messages, HAS_PROMISED: has_promised});
        let asked = json!({"role": "user", "content": cut(&content.join("\n"), MESSAGE_CHARS), "metadata": metadata});
        let situation = self.situation_here(here, origin).await?;
        Ok(json!({"events": [situation, {"role": "system", "content": now}, asked]}))
    }

    /// Returns the time of a message. A repeated step thus computes the same result.
    pub(super) fn said_at(&self, here: &ToolScope, message: &str) -> Timestamp {
        let at = here.message(message).and_then(|message| MessageView::of(&message).at());
        at.unwrap_or_else(|| self.memory.now())
    }

    /// Adds requests to the agenda, in the name of the requester, who may remove them again.
    pub(super) async fn promise(
        &self,
        context: &ToolContext,
        here: &ToolScope,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let metadata = context.events.iter().find(|event| event.metadata.contains_key(ASKED_BY));
        let member_of =
            |member: &str| metadata.and_then(|event| event.metadata.get(member)?.as_str()).unwrap_or_default();
        let (by, from) = (PrincipalId::new(member_of(ASKED_BY)), self.said_at(here, member_of("message")));
        let read = context.event("read").and_then(|event| serde_json::from_value(event.content.clone()).ok());
        let (mut set, mut refused) = (Vec::new(), Vec::new());
        let messages = metadata.and_then(|event| Vec::<Arc<str>>::deserialize(event.metadata.get("messages")?).ok());
        let messages = messages.unwrap_or_else(|| vec![member_of("message").into()]);
        let asked: Asked = read.unwrap_or_default();
        for promise in asked.promises.iter().filter(|promise| !promise.what.trim().is_empty()).take(PROMISES_MAX) {
            let what: String = promise.what.chars().filter(|c| !c.is_control()).take(200).collect();
            let kept = self.put_down(&what, promise, (from, &messages), here, &by, origin).await;
            match kept {
                Ok(id) => set.push(id),
                Err(LifeformError::Refused(refusal)) => refused.push(refusal.to_string()),
                Err(error) => return Err(ToolFailure::passing(error)),
            }
        }
        let has_promised = metadata.is_some_and(|event| event.metadata.get(HAS_PROMISED) == Some(&Value::Bool(true)));
        // The promise may be one that the person's reminders of this topic hold already.
        let topic = Some(here.topic()).filter(|_| here.canvas.name() == &*self.home);
        let answer = here.message(&Self::answer_id(context));
        let said = knowledge::telling_words(answer.as_ref().map_or("", |answer| MessageView::of(answer).content()));
        let is_held = || {
            let agenda = self.plans.agenda();
            let mut own = agenda.schedules.values().filter(|one| one.by == by && one.topic.as_ref() == topic);
            topic.is_some() && own.any(|one| !knowledge::telling_words(&one.what).is_disjoint(&said))
        };
        if !refused.is_empty() || (has_promised && set.is_empty() && !is_held()) {
            // The lifeform says that the request was not stored.
            let content = match refused.is_empty() {
                true => {
                    let asked = here.message(member_of("message"));
                    not_put_down(Language::of(asked.as_ref().map_or("", |asked| MessageView::of(asked).content())))
                        .to_owned()
                }
                false => format!("I could not put that down: {}", refused.join("; ")),
            };
            let id = format!("{}_later", Self::answer_id(context)).into();
            let content = content.chars().take(1_000).collect();
            let asked = Some(member_of("message").into()).filter(|asked: &Arc<str>| here.message(asked).is_some());
            Self::act(&here.canvas, chat::Op::say(here.topic(), id, content, asked), origin).await?;
        }
        Ok(json!({"set": set, "refused": refused}))
    }

    pub(super) async fn put_down(
        &self,
        what: &str,
        promise: &Promise,
        (from, messages): (Timestamp, &[Arc<str>]),
        here: &ToolScope,
        by: &PrincipalId,
        origin: &Origin,
    ) -> Result<AgendaItemId, LifeformError> {
        let (zone, zone_name) = self.zone();
        let when = promise.when(from, &zone).map_err(|why| LifeformError::Refused(Refusal::State(why)))?;
        let topic = (here.canvas.name() == &*self.home).then(|| here.topic().clone());
        let zone = matches!(when, When::Again(_)).then_some(zone_name).flatten();
        let asked_in: Vec<Arc<str>> = messages.iter().map(|message| here.name_of(message)).collect();
        // The request has the dates and the conditions of the goal in its own words.
        let said = here.perception.said.iter().filter(|said| messages.contains(&said.message));
        let description = cut(&said.map(|said| said.content.as_str()).collect::<Vec<_>>().join("\n"), DETAILS_CHARS);
        let remind = !promise.think;
        let put_down = self.plans.change(origin, "promised", |agenda, now| {
            messages.iter().try_for_each(|message| here.is_wanted_still(message))?;
            let (what, topic, zone) = (what.to_owned(), topic.clone(), zone.clone());
            let (cron, at) = match &when {
                When::Sometime => {
                    let is_known = |goal: &&Goal| goal.title == what && goal.by == *by && agenda.is_open(&goal.id);
                    return match agenda.goals.values().find(is_known) {
                        Some(known) => {
                            let id = known.id.clone();
                            agenda.ask_again(&id, &asked_in);
                            Ok(id)
                        }
                        None => {
                            let (topic, description) = (topic.clone(), description.clone());
                            let goal = GoalSpec { title: what, description, topic, ..GoalSpec::default() };
                            let id = agenda.set_goal(goal, by, now)?;
                            agenda.ask_in(&id, &asked_in);
                            Ok(id)
                        }
                    };
                }
                When::Once(at) => (None, Some(*at)),
                When::Again(cron) => (Some(cron.clone()), None),
            };
            let of_one: Vec<&Schedule> = agenda.schedules.values().filter(|one| one.by == *by).collect();
            // An earlier attempt of this step added it.
            let is_known =
                |one: &&&Schedule| one.what == what && one.cron == cron && at.is_none_or(|at| at == one.next);
            if let Some(known) = of_one.iter().find(is_known) {
                let id = known.id.clone();
                agenda.ask_again(&id, &asked_in);
                return Ok(id);
            }
            if of_one.len() >= SCHEDULES_OF_ONE {
                return Err(Refusal::State(format!("there are {SCHEDULES_OF_ONE} things for you already")));
            }
            let id = agenda.set_schedule(ScheduleSpec { what, cron, zone, at, topic, remind }, by, now)?;
            agenda.ask_in(&id, &asked_in);
            agenda.is_often_enough(&id).map(|()| id)
        });
        put_down.await
    }
}

/// The time of a request.
pub(super) enum When {
    Once(Timestamp),
    Again(String),
    Sometime,
}

impl Promise {
    /// Returns `true` if the request names no time.
    pub(super) fn is_without_time(&self) -> bool {
        self.in_minutes == 0 && self.at.trim().is_empty() && self.cron.trim().is_empty()
    }

    /// Returns the time of a request, relative to the message. Small models fill in too many members, so the simplest
    /// valid one is used.
    pub(super) fn when(&self, from: Timestamp, zone: &TimeZone) -> Result<When, String> {
        let (cron, at) = (self.cron.trim(), self.at.trim());
        let minutes = Some(self.in_minutes).filter(|minutes| (1..=MINUTES_MAX).contains(minutes));
        let after = |minutes| from.checked_add(SignedDuration::from_mins(minutes)).ok();
        let at_that_time = || {
            let at = civil::DateTime::strptime("%Y-%m-%dT%H:%M", at).ok()?;
            at.to_zoned(zone.clone()).ok().map(|at| at.timestamp())
        };
        let is_pattern = Cron::from_str(cron).is_ok() && cron.split_whitespace().count() == 5;
        let once = match (minutes, at_that_time()) {
            (Some(minutes), _) => after(minutes),
            (None, _) if is_pattern => return Ok(When::Again(cron.to_owned())),
            (None, Some(at)) => Some(at),
            (None, None) if self.is_without_time() => return Ok(When::Sometime),
            (None, None) => None,
        };
        let latest = from.checked_add(SignedDuration::from_mins(MINUTES_MAX)).unwrap_or(Timestamp::MAX);
        match once {
            Some(at) if at <= from => Err(format!("the time of \"{}\" is over", self.what)),
            Some(at) if at <= latest => Ok(When::Once(at)),
            _ => Err(format!("the time of \"{}\" cannot be read", self.what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_fills_in_is_taken_as_far_as_it_can_be_read() {
        let from: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let junk = Promise {
            what: "x".into(),
            in_minutes: 2,
            at: "2026-01-01T10:00".into(),
            cron: "500000".into(),
            think: false,
        };
        let at = |when| match when {
            Ok(When::Once(at)) => Some(at.duration_since(from).as_mins()),
            _ => None,
        };
        assert_eq!(at(junk.when(from, &TimeZone::UTC)), Some(2));
        let read = |in_minutes, at: &str, cron: &str| {
            let promise = Promise { what: "x".into(), in_minutes, at: at.into(), cron: cron.into(), think: false };
            promise.when(from, &TimeZone::UTC)
        };
        assert!(matches!(read(0, "", "0 7 * * *"), Ok(When::Again(_))));
        assert!(matches!(read(0, "", ""), Ok(When::Sometime)));
        for (in_minutes, at, cron) in
            [(0, "tomorrow", ""), (-5, "", ""), (i64::MAX, "", ""), (0, "", "whenever"), (0, "2020-01-01T00:00", "")]
        {
            assert!(read(in_minutes, at, cron).is_err(), "{in_minutes} {at} {cron}");
        }
    }
}
