//! The tools of the mind: small verbs by which a model remembers, recalls, forgets, plans and reckons within an answer.
//! Each acts in the name of the person whose message is answered, and refuses with a sentence that a model can act on.

mod clock;
mod memory;
mod places;
mod plans;

pub(crate) use plans::GoalAct;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use neurons::tools::BuiltinTool;
use nexus::kip::graph::text::{terms, terms_of_query};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use store::{Hash, Origin};

use super::{LifeformToolbox, ToolFailure, ToolScope};
use crate::LifeformError;
use crate::canvas::user::{UserView, users_in};
use crate::canvas::{Canvas, Refusal};
use crate::memory::forget_requests;
use crate::perception::{PerceivedMessage, Perception};
use crate::reminders::is_within;

/// The words by which a person asks to take away something.
const TAKE_AWAY: [&str; 18] = [
    "forget",
    "delete",
    "erase",
    "remove",
    "cancel",
    "drop",
    "stop",
    "give up",
    "no longer",
    "not any more",
    "done with",
    "忘",
    "删",
    "取消",
    "不用",
    "忘れ",
    "消し",
    "キャンセル",
];

/// Further words by which a person wants reminders changed or taken away, of which it names none.
const CHANGE: [&str; 32] = [
    "make",
    "postpone",
    "reschedule",
    "ずら",
    "変え",
    "延期",
    "遅ら",
    "早め",
    "推迟",
    "提前",
    "延后",
    "往后",
    "にして",
    "なしで",
    "がいい",
    "じゃなくて",
    "变更",
    "不要了",
    "换",
    "change",
    "move",
    "instead",
    "both",
    "取り消",
    "やめ",
    "いらない",
    "キャンセル",
    "直し",
    "変更",
    "変わ",
    "不要",
    "改",
];
/// The words by which a person wants something kept although one of [`TAKE_AWAY`] is among them.
const KEEPS: [&str; 9] = [
    "never forget",
    "don't forget",
    "do not forget",
    "not forget",
    "别忘",
    "不要忘",
    "不会忘",
    "忘れないで",
    "忘れない",
];

/// Returns `true` if a model means all statements of a person.
fn is_all(what: &str) -> bool {
    matches!(what.trim().to_lowercase().as_str(), "everything" | "all")
}

/// Returns `true` if a text has a word of a thing.
fn shares_a_word(what: &str, text: &str) -> bool {
    // A single letter of a script without spaces is a word: "猫のことは忘れて".
    let short = what.trim();
    if !short.is_ascii() && short.chars().count() == 1 {
        return text.contains(short);
    }
    let said = terms(&text.to_lowercase());
    terms_of_query(what).iter().any(|term| said.contains(term))
}

/// A call of a tool of the mind.
pub(crate) struct MindCall {
    /// The job that makes the call.
    pub(crate) job: Arc<str>,
    /// The messages that the job answers; `None` for a job that answers none.
    pub(crate) perception: Option<Perception>,
    /// `true` if the run has read words of others than those it answers.
    pub(crate) tainted: bool,
    /// The lifeform, with the causes of the call.
    pub(crate) origin: Origin,
}

/// The talk in which a tool is called.
struct Talk {
    here: ToolScope,
    /// The message for which the call is made; `None` if several people are answered, and it is unclear whose.
    asked: Option<usize>,
    job: Arc<str>,
    tainted: bool,
    origin: Origin,
}

/// Returns the tools, as models see them.
pub(crate) fn tools() -> Vec<BuiltinTool> {
    let text = json!({"type": "string"});
    let day = json!({"type": "string", "format": "date"});
    let tool = |name, description, required: Value, properties: Value, reads, quotes| BuiltinTool {
        name,
        description,
        parameters: match required {
            Value::Null => json!({"type": "object", "properties": properties}),
            required => json!({"type": "object", "required": required, "properties": properties}),
        },
        reads,
        quotes,
    };
    vec![
        tool(
            "remember",
            "Keeps one fact that a person told: third person, names, days as dates.",
            json!(["fact"]),
            json!({"fact": text, "about": text, "until": day}),
            false,
            false,
        ),
        tool(
            "recall",
            "What people told; all of it without about.",
            Value::Null,
            json!({"about": text, "by": text, "from": day, "until": day}),
            true,
            true,
        ),
        tool("forget", "Forgets what the person told.", json!(["what"]), json!({"what": text}), false, false),
        tool(
            "remind",
            "Says a text then or by cron; cancel: by id or text, with a time it moves; empty: lists.",
            Value::Null,
            json!({
                "text": text, "at": {"type": "string", "description": "2026-01-31T17:00"}, "in_minutes": {"type": "integer"},
                "cron": text, "cancel": text,
            }),
            false,
            false,
        ),
        tool(
            "goal",
            "What takes more than an answer: you pursue it and report here. focus: what is known.",
            json!(["action"]),
            json!({
                "action": {"enum": ["create", "focus", "note", "done", "drop", "list"]}, "goal_id": text, "title": text,
                "details": text, "deadline": day, "note": text,
            }),
            false,
            true,
        ),
        tool(
            "map",
            "Reads a mind map, or edits it by ids or titles of nodes.",
            Value::Null,
            json!({
                "map": text,
                "edits": {"type": "array", "items": {"type": "object", "required": ["do"], "properties": {
                    "do": {"enum": ["add", "rename", "move", "link", "comment", "remove", "accept", "reject"]},
                    "node": text, "to": text, "text": text,
                }}},
            }),
            false,
            true,
        ),
        tool(
            "canvas",
            "Lists, reads or posts in the other topics of the people here.",
            json!(["do"]),
            json!({"do": {"enum": ["list", "read", "post"]}, "topic": text, "text": text}),
            false,
            true,
        ),
        tool("invite", "Brings another lifeform into this canvas.", json!(["who"]), json!({"who": text}), false, false),
        tool(
            "now",
            "The time in a zone.",
            Value::Null,
            json!({"zone": {"type": "string", "description": "Europe/Lisbon"}}),
            true,
            false,
        ),
    ]
}

/// Returns `true` for a tool that only some talks need.
pub(crate) fn is_for_some_talks(name: &str) -> bool {
    matches!(name, "map" | "canvas" | "invite" | "execute_kip")
}

/// The words of a message that speaks of topics, and of one that may mean another topic.
const OF_TOPICS: [&str; 6] = ["topic", "canvas", "thread", "话题", "トピック", "話題"];
const ELSEWHERE: [&str; 11] =
    ["elsewhere", "other talk", "other chat", "other place", "别处", "别的", "其他", "另一", "別の", "他の", "ほかの"];

/// Parses the arguments of a call.
fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    // A model that fills in all members writes empty texts for those that it does not want.
    let given = arguments.into_iter().filter(|(_, value)| !value.is_null() && value != "");
    serde_json::from_value(Value::Object(given.collect())).map_err(|error| error.to_string())
}

/// Returns the place of the message for which a tool is called: the last one of those that are answered, or of messages by
/// several people the only one that shares most words with the arguments.
fn asked_by(perception: &Perception, arguments: &str) -> Option<usize> {
    let asked: Vec<(usize, &PerceivedMessage)> =
        perception.said.iter().enumerate().filter(|(_, said)| said.to_answer).collect();
    let (last, said) = asked.last()?;
    if asked.iter().all(|(_, other)| other.sender == said.sender) {
        return Some(*last);
    }
    let words = knowledge::telling_words(arguments);
    let shared = |said: &PerceivedMessage| knowledge::telling_words(&said.content).intersection(&words).count();
    let most = asked.iter().map(|(_, said)| shared(said)).max().filter(|most| *most > 0)?;
    let mut best = asked.iter().filter(|(_, said)| shared(said) == most);
    let (at, said) = best.next()?;
    best.all(|(_, other)| other.sender == said.sender).then_some(*at)
}

/// Returns a failure as a text for a model.
fn said_of(failure: ToolFailure) -> String {
    failure.message
}

fn refused(error: LifeformError) -> String {
    match error {
        LifeformError::Refused(Refusal::State(why)) => why,
        error => error.to_string(),
    }
}

impl Talk {
    /// Returns the message for which the call is made.
    fn asked(&self) -> &PerceivedMessage {
        self.asked.and_then(|at| self.here.perception.said.get(at)).unwrap_or_else(|| self.here.perception.last())
    }

    /// Returns `true` if the message that is answered asks to take away something, and names it. A model may have been
    /// talked into more by other words in its prompt.
    fn may_take_away(&self, what: &str) -> bool {
        let content = self.asked().content.to_lowercase().replace('’', "'");
        if is_all(what) {
            return forget_requests(&content).0.iter().any(|request| request.what.is_none());
        }
        if KEEPS.iter().any(|words| content.contains(words)) {
            return false;
        }
        let asks = TAKE_AWAY.iter().any(|word| content.contains(word));
        asks && self.names(what)
    }

    /// Returns `true` if the message that is answered has a word of a thing.
    fn names(&self, what: &str) -> bool {
        shares_a_word(what, &self.asked().content)
    }

    /// Returns `true` if the message that is answered asks to take away or change something: the thing may be named by "both",
    /// "it" or another word than its own.
    fn asks_to_take_away(&self) -> bool {
        let content = self.asked().content.to_lowercase().replace('’', "'");
        !KEEPS.iter().any(|words| content.contains(words))
            && TAKE_AWAY.iter().chain(&CHANGE).any(|word| is_within(word, &content))
    }

    /// Returns the name of what a call makes: the same for the same call in the same job.
    fn made_by(&self, what: &impl serde::Serialize) -> String {
        Hash::of(&store::json(&(&self.job, what))).hex()[..16].to_owned()
    }
}

impl LifeformToolbox {
    /// Calls a tool of the mind.
    ///
    /// # Errors
    /// The reason of the refusal, as a text for a model.
    pub(crate) async fn use_mind(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        call: MindCall,
    ) -> Result<Value, String> {
        if name == "now" {
            return clock::now(read(arguments)?, self.memory.now(), &self.zone().0);
        }
        let talk = self.talk(call, &Value::Object(arguments.clone()).to_string())?;
        match name {
            "remember" => self.remember(read(arguments)?, &talk).await,
            "recall" => self.recall_for(read(arguments)?, &talk).await,
            "forget" => self.forget_for(read(arguments)?, &talk).await,
            "remind" => self.remind_for(read(arguments)?, &talk).await,
            "map" => self.map_for(read(arguments)?, &talk).await,
            "canvas" => self.canvas_for(read(arguments)?, &talk).await,
            other => Err(format!("there is no tool {other}")),
        }
    }

    /// Returns `true` if a tool that only some talks need can do something in a talk: there are maps, or there are other
    /// topics of these people and a message may mean one.
    pub(crate) fn offers(&self, name: &str, perception: Perception) -> bool {
        let Some(canvas) = self.canvases.get(&perception.place.canvas) else { return true };
        let here = ToolScope { perception, canvas };
        match name {
            "execute_kip" => {
                let people = self.readers_here(&here);
                !people.is_empty() && people.iter().all(|who| self.knowledge.trusts_word_of(who))
            }
            "invite" => {
                let are_trusted = here.perception.said.iter().all(|said| self.knowledge.trusts_word_of(&said.sender));
                are_trusted || !self.may_invite(&here.canvas).is_empty()
            }
            "map" => !self.maps_of(&here).is_empty(),
            "canvas" => {
                // "Yes, post it there." means what was said before.
                let content = format!("{}\n{}", self.said_before(&here), here.perception.content()).to_lowercase();
                let means_one = || {
                    ELSEWHERE.iter().any(|word| content.contains(word)) || self.names_someone_or_topic(&here, &content)
                };
                OF_TOPICS.iter().any(|word| content.contains(word)) || (self.has_other_topics(&here) && means_one())
            }
            _ => true,
        }
    }

    /// Returns the canvas of a talk, if it is the lifeform's own and the lifeform trusts the person whose message it
    /// answers: that person may change who takes part.
    ///
    /// # Errors
    /// The reason of the refusal, as a text for a model.
    pub(crate) fn canvas_of_trusted(&self, call: &MindCall) -> Result<Canvas, String> {
        let perception = call.perception.as_ref().ok_or("nobody talks with you here")?;
        let canvas = self.canvases.get(&perception.place.canvas).ok_or("you have left that canvas")?;
        let own = self.me.id.0.strip_prefix("lifeform:").is_some_and(|me| canvas.lifeform() == me);
        let is_trusted = |said: &PerceivedMessage| self.knowledge.trusts_word_of(&said.sender);
        match own && !call.tainted && perception.said.iter().filter(|said| said.to_answer).all(is_trusted) {
            true => Ok(canvas),
            false => Err("a lifeform joins only your own canvas, and only if a person whom you trust asks".into()),
        }
    }

    /// Returns the lifeforms that are not on a canvas yet and that the lifeform may bring into it without being asked, each
    /// with what it is good for: none on the canvases of others, in quiet hours, or when it has spoken unasked as often as it
    /// may.
    pub(crate) fn may_invite(&self, canvas: &Canvas) -> BTreeMap<Arc<str>, String> {
        let initiative = self.plans.initiative();
        let own = self.me.id.0.strip_prefix("lifeform:").is_some_and(|me| canvas.lifeform() == me);
        let now = self.memory.now();
        if !own || initiative.invites.is_empty() || self.plans.agenda().held_back_until(initiative, now) > now {
            return BTreeMap::new();
        }
        let state = canvas.snapshot().state;
        let is_here = |name: &str| {
            let is_it = |user: UserView<'_>| {
                let id = user.id().and_then(|id| id.strip_prefix("lifeform:"));
                id.is_some() && (id == Some(name) || user.name() == Some(name))
            };
            users_in(&state).any(is_it)
        };
        initiative
            .invites
            .iter()
            .filter(|(who, _)| !is_here(who))
            .map(|(who, what)| (who.clone(), what.clone()))
            .collect()
    }

    /// Returns the canvas of a talk if the lifeform may bring `who` into it without being asked.
    ///
    /// # Errors
    /// The reason of the refusal, as a text for a model.
    pub(crate) fn canvas_to_invite(&self, who: &[&str], call: &MindCall) -> Result<Canvas, String> {
        let perception = call.perception.as_ref().ok_or("nobody talks with you here")?;
        let canvas = self.canvases.get(&perception.place.canvas).ok_or("you have left that canvas")?;
        let may_come = self.may_invite(&canvas);
        match who.iter().any(|who| may_come.contains_key(*who)) {
            true => Ok(canvas),
            false => self.canvas_of_trusted(call),
        }
    }

    /// Records an unasked act of this moment.
    pub(crate) async fn count_unasked(&self, origin: &Origin) -> Result<(), LifeformError> {
        self.plans
            .change(origin, "acted unasked", |agenda, now| {
                agenda.spoke(now, None);
                Ok(())
            })
            .await
    }

    /// Returns the readers of the place of a perception.
    pub(crate) fn readers_in(&self, perception: Perception) -> BTreeSet<String> {
        match self.canvases.get(&perception.place.canvas) {
            Some(canvas) => self.readers_here(&ToolScope { perception, canvas }),
            None => perception.said.into_iter().map(|said| said.sender.to_string()).collect(),
        }
    }

    /// Returns `true` if the lifeform trusts all who read its answer to a perception.
    ///
    /// # Errors
    /// The reason of the refusal, as a text for a model.
    pub(crate) fn are_trusted(&self, perception: Perception) -> Result<bool, String> {
        let people = self.readers_in(perception);
        Ok(!people.is_empty() && people.iter().all(|who| self.knowledge.trusts_word_of(who)))
    }

    /// Returns the end of a day in the lifeform's zone.
    pub(crate) fn end_of(&self, day: jiff::civil::Date) -> Option<store::Timestamp> {
        plans::end_of(day, &self.zone().0)
    }

    /// Returns the talk in which a tool is called. Of messages by several people it is for the one that shares most words with
    /// the arguments.
    fn talk(&self, call: MindCall, arguments: &str) -> Result<Talk, String> {
        let MindCall { job, perception, tainted, origin } = call;
        let perception = perception.ok_or("nobody talks with you here, so there is nobody to act for")?;
        let canvas = self.canvases.get(&perception.place.canvas).ok_or("you have left that canvas")?;
        let asked = asked_by(&perception, arguments);
        Ok(Talk { here: ToolScope { perception, canvas }, asked, job, tainted, origin })
    }

    /// Checks that the message for which a call is made still asks for something, and that it is clear whose message that is: a
    /// change is made in the name of one person.
    fn is_asked_still(&self, talk: &Talk) -> Result<(), String> {
        if talk.asked.is_none() {
            return Err(
                "several people are answered at once: call it with words of the message that asks for it".into()
            );
        }
        talk.here.is_wanted_still(&talk.asked().message).map_err(|refusal| refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use neurons::spec::tokens_about;

    use super::*;

    #[test]
    fn the_card_of_the_tools_is_short() {
        let card: Vec<Value> = tools()
            .iter()
            .map(|tool| {
                let parameters = tool.closed();
                json!({"type": "function", "function": {
                    "name": tool.name, "description": tool.description, "parameters": parameters}})
            })
            .collect();
        let tokens = tokens_about(&Value::Array(card).to_string());
        assert!(tokens <= 1_000, "{tokens}");
    }

    #[test]
    fn empty_arguments_count_as_absent() {
        #[derive(serde::Deserialize, Debug, PartialEq)]
        #[serde(deny_unknown_fields)]
        struct Given {
            #[serde(default)]
            at: Option<String>,
        }
        let arguments = |value: Value| value.as_object().cloned().unwrap_or_default();
        assert_eq!(read::<Given>(arguments(json!({"at": "", "cron": null}))), Ok(Given { at: None }));
        assert!(read::<Given>(arguments(json!({"att": "x"}))).is_err(), "a misspelt one is refused");
    }
}
