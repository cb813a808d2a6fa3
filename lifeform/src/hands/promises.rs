//! What it is asked to do later: "remind me in an hour". A plain look at the words says whether a model is asked at all.

use fascicles::{ToolContext, ToolFailure};
use jiff::civil;
use jiff::tz::TimeZone;
use nexus::{Origin, PrincipalId, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Hands, Here, MESSAGE_CHARS, cut};
use crate::agenda::{GoalSpec, ScheduleSpec};
use crate::canvas::Refusal;
use crate::perception::Change;

/// Words by which somebody asks for something later, or again and again.
const LATER: [&str; 16] = [
    "remind me",
    "every day",
    "every morning",
    "every week",
    "every hour",
    "each day",
    "in the future, ",
    "your goal",
    "提醒我",
    "每天",
    "每周",
    "你的目标",
    "リマインド",
    "思い出させて",
    "毎日",
    "毎週",
];
/// Things promised at once.
const PROMISES_MAX: usize = 3;

/// What was asked for, as a model has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    promises: Vec<Promise>,
}

/// One thing to do later. Without a time it is a goal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Promise {
    what: String,
    in_minutes: i64,
    at: String,
    cron: String,
}

/// What an event says of who asked.
const ASKED_BY: &str = "asked_by";

impl Hands {
    fn zone(&self) -> (TimeZone, Option<String>) {
        let name = self.plans.initiative().quiet.as_ref().and_then(|quiet| quiet.zone.clone());
        (name.as_deref().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC), name)
    }

    /// What asks for something later, for a model; nothing, mostly, and then no model is asked.
    pub(super) fn later(&self, here: &Here) -> Value {
        let asks = here.perception.said.iter().find(|said| {
            let content = said.content.to_lowercase();
            said.to_answer && said.change == Change::New && LATER.iter().any(|words| content.contains(words))
        });
        let Some(said) = asks else { return json!({"events": []}) };
        let now = self.said_at(here, &said.message).to_zoned(self.zone().0);
        let now = format!("It is {} now.", now.strftime("%A %Y-%m-%d %H:%M"));
        let metadata = json!({ASKED_BY: said.sender, "message": said.message});
        let asked = json!({"role": "user", "content": cut(&said.content, MESSAGE_CHARS), "metadata": metadata});
        json!({"events": [{"role": "system", "content": now}, asked]})
    }

    /// When a message was said; a step that is tried again reckons from the same time.
    fn said_at(&self, here: &Here, message: &str) -> Timestamp {
        let at = here.message(message).and_then(|message| message["at"].as_str()?.parse().ok());
        at.unwrap_or_else(|| self.memory.now())
    }

    /// Puts what was promised on the agenda, in the name of whoever asked, who may take it off again.
    pub(super) async fn promise(
        &self,
        context: &ToolContext,
        here: &Here,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let metadata = context.events.iter().find(|event| event.metadata.contains_key(ASKED_BY));
        let told = |member: &str| metadata.and_then(|event| event.metadata.get(member)?.as_str()).unwrap_or_default();
        let (by, from) = (PrincipalId::new(told(ASKED_BY)), self.said_at(here, told("message")));
        let asked = context.event("read").map_or(Value::Null, |event| event.content.clone());
        let asked: Asked = serde_json::from_value(asked).unwrap_or_default();
        let (mut set, mut refused) = (Vec::new(), Vec::new());
        for promise in asked.promises.iter().filter(|promise| !promise.what.trim().is_empty()).take(PROMISES_MAX) {
            let what: String = promise.what.chars().filter(|c| !c.is_control()).take(200).collect();
            let kept = self.put_down(&what, promise, from, here, &by, origin).await;
            match kept {
                Ok(id) => set.push(id),
                Err(crate::LifeformError::Refused(refusal)) => refused.push(refusal.to_string()),
                Err(error) => return Err(ToolFailure::passing(error)),
            }
        }
        Ok(json!({"set": set, "refused": refused}))
    }

    async fn put_down(
        &self,
        what: &str,
        promise: &Promise,
        from: Timestamp,
        here: &Here,
        by: &PrincipalId,
        origin: &Origin,
    ) -> Result<crate::agenda::AimId, crate::LifeformError> {
        let (zone, zone_name) = self.zone();
        let at = match (promise.in_minutes, promise.at.trim()) {
            (minutes @ 1.., _) => from.checked_add(jiff::SignedDuration::from_mins(minutes)).ok(),
            (_, "") => None,
            (_, at) => civil::DateTime::strptime("%Y-%m-%dT%H:%M", at)
                .ok()
                .and_then(|at| Some(at.to_zoned(zone).ok()?.timestamp())),
        };
        let is_home = here.canvas.name() == &*self.home;
        let topic = is_home.then(|| here.topic().clone());
        let cron = (!promise.cron.trim().is_empty()).then(|| promise.cron.trim().to_owned());
        let is_past = at.is_some_and(|at| at <= from);
        self.plans
            .change(origin, "promised", |agenda, now| {
                if is_past {
                    return Err(Refusal::State(format!("\"{what}\" was asked for at a time that is over")));
                }
                let known = agenda
                    .schedules
                    .values()
                    .find(|one| one.what == what && one.by == *by && (cron.is_some() == one.cron.is_some()));
                if let Some(known) = known {
                    return Ok(known.id.clone());
                }
                match (&cron, at) {
                    (None, None) => {
                        let known = agenda.goals.values().find(|goal| goal.title == what && goal.by == *by);
                        match known {
                            Some(known) => Ok(known.id.clone()),
                            None => {
                                agenda.set_goal(GoalSpec { title: what.to_owned(), ..GoalSpec::default() }, by, now)
                            }
                        }
                    }
                    (cron, at) => {
                        let zone = cron.as_ref().and_then(|_| zone_name.clone());
                        let at = at.filter(|_| cron.is_none());
                        let spec =
                            ScheduleSpec { what: what.to_owned(), cron: cron.clone(), zone, at, topic: topic.clone() };
                        agenda.set_schedule(spec, by, now)
                    }
                }
            })
            .await
    }
}
