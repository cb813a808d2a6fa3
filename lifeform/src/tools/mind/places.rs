//! The tools `map` and `canvas`.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::maps::{Wish, outline};
use super::super::{LifeformToolbox, ToolScope, called, cut, readers_of_topic, unmarked};
use super::{Talk, refused, said_of};
use crate::LifeformError;
use crate::canvas::user::{UserView, users_in};
use crate::canvas::{Canvas, Refusal, State, chat};
use crate::reminders::is_within;

/// The maximum length of what a tool shows of a map or a topic, in characters.
const SHOWN_CHARS: usize = 4_000;
/// The number of messages of a topic that are shown, and the maximum length of one, in characters.
const MESSAGES_SHOWN: usize = 20;
const MESSAGE_CHARS: usize = 400;
/// The number of messages of the last exchange.
const LAST_EXCHANGE: usize = 2;
/// The maximum number of topics in a list.
const TOPICS_MAX: usize = 30;
/// The maximum length of a posted text, in characters.
const POSTED_CHARS: usize = 4_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfMap {
    #[serde(default)]
    map: Option<String>,
    #[serde(default)]
    edits: Vec<Wish>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfCanvas {
    #[serde(rename = "do")]
    act: Act,
    #[serde(default)]
    topic: Option<String>,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Act {
    List,
    Read,
    Post,
}

impl LifeformToolbox {
    /// Reads or edits a mind map.
    pub(super) async fn map_for(&self, asked: OfMap, talk: &Talk) -> Result<Value, String> {
        let map = self.map_named(asked.map.as_deref(), talk)?;
        if asked.edits.is_empty() {
            let shown = outline(&map.title, &map.snapshot().state);
            return Ok(json!(format!("<map>\n{}\n</map>", cut(&shown, SHOWN_CHARS))));
        }
        self.is_asked_still(talk)?;
        let senders = talk.here.perception.said.iter().map(|said| said.sender.clone());
        let behind = talk.tainted.then(|| Arc::from(nexus::OUTSIDE)).into_iter().collect();
        let who = self.strangers_among(senders, behind);
        let seed = talk.made_by(&(map.name(), &asked.edits));
        let drawn = self.draw(&map, &asked.edits, &seed, who, &talk.origin).await.map_err(said_of)?;
        Ok(json!({"map": map.title, "done": drawn.done, "refused": drawn.refused}))
    }

    fn map_named(&self, name: Option<&str>, talk: &Talk) -> Result<Canvas, String> {
        let maps = self.maps_of(&talk.here);
        let is_named = |map: &&Canvas| name.is_some_and(|name| map.title.to_lowercase() == name.to_lowercase());
        let by_id = |map: &&Canvas| name.is_some_and(|name| map.name().rsplit('/').next() == Some(name));
        let found = maps.iter().find(is_named).or_else(|| maps.iter().find(by_id)).cloned();
        let meant = || self.map_meant(&talk.here).or_else(|| maps.first().filter(|_| maps.len() == 1).cloned());
        let found = found.or_else(|| if name.is_none() { meant() } else { None });
        found.ok_or_else(|| match maps.is_empty() {
            true => "you are an author of no mind map".into(),
            false => {
                let titles: Vec<String> = maps.iter().map(|map| format!("\"{}\"", unmarked(&map.title))).collect();
                format!("name a map: {}", titles.join(", "))
            }
        })
    }

    /// Returns `true` if all who are here have spoken in another topic of the canvas.
    pub(super) fn has_other_topics(&self, here: &ToolScope) -> bool {
        let (state, people) = (here.canvas.snapshot().state, self.readers_here(here));
        here.canvas.kind.is(chat::NAME)
            && chat::topics_in(&state)
                .any(|topic| topic.id() != &**here.topic() && is_open(&state, topic.id(), &people, &self.memory))
    }

    /// Returns the messages of a topic before those that are answered: the last exchange.
    pub(super) fn said_before(&self, here: &ToolScope) -> String {
        let state = here.canvas.snapshot().state;
        let first = chat::message_in(&state, here.topic(), &here.perception.first().message);
        let before = chat::messages_in(&state, here.topic()).rev();
        let before = before.filter(|message| first.is_none_or(|first| message.ord() < first.ord()));
        before.take(LAST_EXCHANGE).map(|message| message.content().to_owned()).collect::<Vec<_>>().join("\n")
    }

    /// Returns `true` if a text names a person who is not here, or has a telling word of another topic's title.
    pub(super) fn names_someone_or_topic(&self, here: &ToolScope, text: &str) -> bool {
        let (state, people) = (here.canvas.snapshot().state, self.readers_here(here));
        let others = users_in(&state).filter(|user| user.id().is_some_and(|id| !people.contains(id)));
        let words = knowledge::telling_words(text);
        let is_named = |title: &str| !knowledge::telling_words(title).is_disjoint(&words);
        let mut topics = chat::topics_in(&state).filter(|topic| topic.id() != &**here.topic());
        others.filter_map(UserView::id).any(|id| is_within(&called(&state, id), text))
            || topics.any(|topic| is_named(topic.title()))
    }

    /// Lists, reads or posts in topics of the canvas in which all who are here take part.
    pub(super) async fn canvas_for(&self, asked: OfCanvas, talk: &Talk) -> Result<Value, String> {
        let canvas = &talk.here.canvas;
        if !canvas.kind.is(chat::NAME) {
            return Err("this canvas is no chat".into());
        }
        let (state, people) = (canvas.snapshot().state, self.readers_here(&talk.here));
        let topic = asked.topic.as_deref();
        match asked.act {
            Act::List => {
                let topics = chat::topics_in(&state)
                    .map(|topic| topic.id())
                    .filter(|topic| is_open(&state, topic, &people, &self.memory));
                let topics: Vec<String> = topics.take(TOPICS_MAX).map(unmarked).collect();
                Ok(json!({"topics": topics}))
            }
            Act::Read => {
                let topic = topic.ok_or("name a topic: canvas {do: list} shows them")?;
                let topic = Some(topic).filter(|topic| is_open(&state, topic, &people, &self.memory));
                let topic = topic.ok_or("there is no such topic, or not all who are here have spoken there")?;
                let mut newest: Vec<String> = self
                    .texts_in(canvas, &state, topic)
                    .rev()
                    .take(MESSAGES_SHOWN)
                    .map(|(message, text)| {
                        let text = cut(&unmarked(&text), MESSAGE_CHARS);
                        format!("{}: {text}", unmarked(&called(&state, message.sender())))
                    })
                    .collect();
                newest.reverse();
                Ok(json!(format!("<messages>\n{}\n</messages>", cut(&newest.join("\n"), SHOWN_CHARS))))
            }
            Act::Post => {
                self.is_asked_still(talk)?;
                let topic: Arc<str> = topic.ok_or("name a topic")?.into();
                let text =
                    asked.text.as_deref().map(str::trim).filter(|text| !text.is_empty()).ok_or("text is empty")?;
                let text: String = text.chars().take(POSTED_CHARS).collect();
                if topic == *talk.here.topic() {
                    return Err("what you answer is posted here by itself".into());
                }
                if talk.tainted || !talk.asked().content.contains(&*topic) {
                    return Err(
                        "post only where this person's message names the topic, and before you read others' words"
                            .into(),
                    );
                }
                let is_new = chat::topic_in(&state, &topic).is_none();
                if !is_new && !is_open(&state, &topic, &people, &self.memory) {
                    return Err("not all who are here have spoken there".into());
                }
                let id: Arc<str> = format!("msg_{}", talk.made_by(&(&topic, &text))).into();
                let senders = talk.here.perception.said.iter().map(|said| said.sender.clone());
                let outside = talk.tainted.then(|| Arc::from(nexus::OUTSIDE)).into_iter().collect();
                let who = self.strangers_among(senders, outside).into_iter().collect();
                let mut say = chat::Op::say(&topic, id, text, None);
                if let chat::Op::Append { behind, .. } = &mut say {
                    *behind = chat::bounded(who);
                }
                let open = is_new.then(|| chat::Op::TopicCreate {
                    id: topic.clone(),
                    title: topic.to_string(),
                    turns: chat::Turns::default(),
                });
                for op in open.into_iter().chain([say]) {
                    match canvas.apply(op, None, None, &talk.origin).await {
                        Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => {}
                        Err(error) => return Err(refused(error)),
                    }
                }
                Ok(json!(format!("Posted in {topic}.")))
            }
        }
    }
}

/// Returns `true` if all of these people read along in a topic.
fn is_open(state: &State, topic: &str, people: &BTreeSet<String>, memory: &crate::memory::Memory) -> bool {
    !people.is_empty() && people.is_subset(&readers_of_topic(state, topic, memory))
}
