//! Supplements: what a lifeform adds unasked to an answer that it gave before, when a person says elsewhere, or its own research
//! finds, what the answer lacked. `docs/src/concepts/lifeforms.md` explains it to people.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use jiff::{SignedDuration, Timestamp};
use knowledge::telling_words;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Hash, Origin};

use super::goals::Planned;
use super::{LifeformToolbox, PERCEPTION, cut, hears, readers_of_topic, speakers, strangers_behind, unmarked};
use crate::canvas::chat::{self, MessageStatus, MessageView, TopicView};
use crate::canvas::{Canvas, State};
use crate::memory::statements;
use crate::metabolism::Mode;
use crate::perception::{Change, Supply, ThreadRef};

/// The time for which an answer may be supplemented.
const OPEN_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The maximum number of own answers of a topic that are looked at, the newest first, and of those that a model sees.
const LOOKED_AT_MAX: usize = 64;
const SHOWN_MAX: usize = 3;
/// The share of a question's telling words that the news must hold.
const SHARE_MIN: f64 = 0.5;
/// The maximum length of a text that a model sees, and of a supplement, in characters.
const TEXT_CHARS: usize = 400;
const SUPPLEMENT_CHARS: usize = 1_000;

/// The things that a job has learned, with the people who may hear of them.
struct News {
    /// The lines for a model, each with its source.
    lines: Vec<String>,
    /// The telling words of what was said or found, and with them those of the questions that research answered.
    told: BTreeSet<Arc<str>>,
    about: BTreeSet<Arc<str>>,
    /// The people who said it, who need no supplement.
    tellers: BTreeSet<String>,
    /// The people whose words led to it.
    behind: Vec<Arc<str>>,
    /// The people who heard it.
    heard_by: BTreeSet<String>,
    /// The place in which it stands already, and the messages there that say it.
    said_in: ThreadRef,
    messages: Vec<Arc<str>>,
    /// The ids of the facts and records that hold it.
    kept: Vec<Arc<str>>,
}

/// An earlier answer with its question, as a model sees it.
struct OpenAnswer {
    place: ThreadRef,
    answer: Arc<str>,
    /// The share of the question's words that the news holds.
    share: f64,
    text: String,
    /// The name of the look at this answer after this news.
    look: Arc<str>,
}

/// The metadata of the question about earlier answers, all of one topic.
#[derive(Serialize, Deserialize)]
struct Looked {
    topic: ThreadRef,
    /// The answers, in the order of their numbers in the question, and the names of the looks.
    open_answers: Vec<Arc<str>>,
    looks: Vec<Arc<str>>,
    heard_by: BTreeSet<String>,
    said_in: ThreadRef,
    messages: Vec<Arc<str>>,
    kept: Vec<Arc<str>>,
    /// The principals whose words the question contains.
    behind: BTreeSet<Arc<str>>,
}

/// The answer of the neuron `more`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct More {
    /// The number of the question that is answered now, from 1; 0 for none.
    number: usize,
    /// The words to add.
    say: String,
}

/// Returns `true` if there are tokens to spare for a supplement, and a model that does not add what is beside the point.
fn can_add(supply: Supply) -> bool {
    !supply.small && !supply.rests_soon && supply.mode != Mode::Eco
}

impl LifeformToolbox {
    /// Returns a question for a model about earlier answers to which something new may add. In most cases there are none, and no
    /// model is called.
    pub(super) fn open_answers(&self, context: &ToolContext) -> Result<Value, ToolFailure> {
        let nothing = json!({"events": []});
        let now = self.memory.now();
        let Some(news) = self.news(context)?.filter(|_| self.may_supplement(now)) else { return Ok(nothing) };
        let chats = self.canvases.all().into_iter().filter(|canvas| canvas.kind.is(chat::NAME));
        let mut found: Vec<OpenAnswer> = chats.flat_map(|canvas| self.open_in(&canvas, &news, now)).collect();
        found.sort_by(|one, other| other.share.total_cmp(&one.share));
        // Different topics have different readers.
        let Some(topic) = found.first().map(|first| first.place.clone()) else { return Ok(nothing) };
        found.retain(|open| open.place == topic);
        found.truncate(SHOWN_MAX);
        let line = |(n, open): (usize, &OpenAnswer)| format!("{}. {}", n + 1, open.text);
        let asked: Vec<String> = found.iter().enumerate().map(line).collect();
        let text = format!("New:\n<notes>\n{}\n</notes>\nEarlier:\n{}", news.lines.join("\n"), asked.join("\n"));
        let state = self.canvases.get(&topic.canvas).map(|canvas| canvas.snapshot().state);
        let readers = state.map(|state| speakers(&state, &topic.topic)).unwrap_or_default();
        let behind = readers.into_iter().map(Arc::from).chain(news.behind).chain(strangers_behind(context));
        let (open_answers, looks) = found.into_iter().map(|open| (open.answer, open.look)).unzip();
        let metadata = Looked {
            topic,
            open_answers,
            looks,
            heard_by: news.heard_by,
            said_in: news.said_in,
            messages: news.messages,
            kept: news.kept,
            behind: behind.filter(|who| **who != *self.me.id.0).collect(),
        };
        Ok(json!({"events": [{"role": "user", "content": text, "metadata": metadata}]}))
    }

    /// Returns `true` if the lifeform may add something unasked now.
    fn may_supplement(&self, now: Timestamp) -> bool {
        let (agenda, initiative) = (self.plans.agenda(), self.plans.initiative());
        initiative.thoughts && agenda.held_back_until(initiative, now) <= now
    }

    /// Returns what the job has learned: the statements of messages, or the findings of research.
    fn news(&self, context: &ToolContext) -> Result<Option<News>, ToolFailure> {
        let ids = |node: &str, member: &str| -> Vec<Arc<str>> {
            let event = context.event(node);
            let ids = event.and_then(|event| event.content[member].as_array()).into_iter().flatten();
            ids.filter_map(Value::as_str).map(Arc::from).collect()
        };
        if context.input.iter().all(|event| &*event.role != PERCEPTION) {
            return self.findings(context, ids("found", "kept"));
        }
        let here = self.here(context)?;
        if !can_add(here.perception.supply) {
            return Ok(None);
        }
        let state = here.canvas.snapshot().state;
        let said = here.perception.said.iter().filter(|said| said.change == Change::New && here.says_still(said));
        // The word of a stranger is not carried into talks where it was not said.
        let said = said.filter(|said| !here.is_answer_of_lifeform(said) && self.knowledge.trusts_word_of(&said.sender));
        let mut news = News {
            lines: Vec::new(),
            told: BTreeSet::new(),
            about: BTreeSet::new(),
            tellers: BTreeSet::new(),
            behind: Vec::new(),
            heard_by: self.audience_here(&here),
            said_in: here.perception.place.clone(),
            messages: Vec::new(),
            kept: ids("note", "learned"),
        };
        for one in said {
            let name = unmarked(&self.display_name(&state, &one.sender));
            let stated = statements(&one.content).into_iter().filter(|text| !knowledge::is_confided(text));
            for statement in stated {
                news.lines.push(format!("{name} said: {}", cut(&unmarked(&statement), TEXT_CHARS)));
                news.told.extend(telling_words(&statement));
                news.tellers.insert(one.sender.to_string());
                news.behind.push(one.sender.clone());
                news.messages.push(one.message.clone());
            }
        }
        news.about = news.told.clone();
        Ok((!news.lines.is_empty()).then_some(news))
    }

    /// Returns what a goal's research has found.
    fn findings(&self, context: &ToolContext, kept: Vec<Arc<str>>) -> Result<Option<News>, ToolFailure> {
        let errand = Self::act_errand(context)?;
        let found = Planned::of(context).findings(context);
        if !can_add(errand.supply) || found.is_empty() {
            return Ok(None);
        }
        let line = |(question, finding): &(String, String)| {
            format!("You found out: {} {}", unmarked(question), cut(&unmarked(finding), TEXT_CHARS))
        };
        let told: BTreeSet<Arc<str>> = found.iter().flat_map(|(_, finding)| telling_words(finding)).collect();
        let asked = found.iter().flat_map(|(question, _)| telling_words(question));
        let topic = errand.topic.clone().or_else(|| errand.speaks_in.clone()).unwrap_or_default();
        Ok(Some(News {
            lines: found.iter().map(line).collect(),
            about: told.iter().cloned().chain(asked).collect(),
            told,
            tellers: BTreeSet::new(),
            behind: errand.behind.iter().chain(&errand.asked_by).cloned().collect(),
            heard_by: self.readers_of_act(&errand),
            said_in: ThreadRef { canvas: self.home.clone(), topic },
            messages: Vec::new(),
            kept,
        }))
    }

    /// Returns the answers of a chat's topics that the news may supplement: all readers of the topic have heard it.
    fn open_in(&self, canvas: &Canvas, news: &News, now: Timestamp) -> Vec<OpenAnswer> {
        let (state, agenda) = (canvas.snapshot().state, self.plans.agenda());
        let mut found = Vec::new();
        for topic in chat::topics_in(&state).filter(|topic| !topic.is_archived()).map(TopicView::id) {
            let place = ThreadRef { canvas: canvas.name().into(), topic: topic.into() };
            let own = || chat::messages_in(&state, topic).rev().filter(|message| message.is_by(&self.me.id.0));
            let is_recent =
                |message: &MessageView<'_>| message.at().is_some_and(|at| now.duration_since(at) < OPEN_FOR);
            if place == news.said_in || !own().next().is_some_and(|newest| is_recent(&newest)) {
                continue;
            }
            let readers = readers_of_topic(&state, topic, &self.memory);
            if !readers.iter().filter(|who| hears(who, &self.me)).all(|who| news.heard_by.contains(who)) {
                continue;
            }
            let supplemented: BTreeSet<&str> = own().filter_map(MessageView::supplements).collect();
            for answer in own().take(LOOKED_AT_MAX).take_while(is_recent) {
                let is_whole = answer.status() == MessageStatus::Final && answer.supplements().is_none();
                let question = answer.reply_to().and_then(|id| chat::message_in(&state, topic, id));
                let is_of_person = |asker: &str| asker.starts_with("user:") && !news.tellers.contains(asker);
                let question = question.filter(|question| is_of_person(question.sender()));
                let Some(question) = question.filter(|_| is_whole && !supplemented.contains(answer.id())) else {
                    continue;
                };
                // What a person asked to forget is shown to no model.
                let (asked, said) = (self.text_of(canvas, topic, question), self.text_of(canvas, topic, answer));
                let Some((asked, said)) = asked.filter(|text| knowledge::rank::asks(text)).zip(said) else { continue };
                let words = telling_words(&asked);
                let share = words.intersection(&news.about).count() as f64 / words.len().max(1) as f64;
                let known = telling_words(&said);
                let is_new = news.told.difference(&words).any(|word| !known.contains(word));
                let look: Arc<str> = Hash::of(&store::json(&(answer.id(), &news.told))).hex()[..16].into();
                if share < SHARE_MIN || !is_new || !agenda.may_look(&look, now) {
                    continue;
                }
                let shown = |text: &str| cut(&unmarked(text), TEXT_CHARS);
                let text = format!(
                    "{} asked: <messages>{}</messages> You answered: <messages>{}</messages>",
                    unmarked(&self.display_name(&state, question.sender())),
                    shown(&asked),
                    shown(&said)
                );
                found.push(OpenAnswer { place: place.clone(), answer: answer.id().into(), share, text, look });
            }
        }
        found
    }

    /// Posts what a model adds to an earlier answer, if all who read it there have heard it, and at most once an answer.
    pub(super) async fn supplement(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let none = json!({"supplemented": null});
        let mut metadata = context.events.iter().map(|event| &event.metadata);
        let looked = metadata.find(|metadata| metadata.contains_key("open_answers")).cloned();
        let looked = looked.and_then(|looked| serde_json::from_value::<Looked>(looked.into()).ok());
        let Some(Looked { topic, open_answers, looks, heard_by, said_in, messages, kept, .. }) = looked else {
            return Ok(none);
        };
        let noted = self.plans.change(origin, "looked", |agenda, now| {
            agenda.looked(&looks, now);
            Ok(())
        });
        noted.await.map_err(ToolFailure::passing)?;
        let more = context.event("more").and_then(|event| More::deserialize(&event.content).ok()).unwrap_or_default();
        let say: String = more.say.trim().chars().take(SUPPLEMENT_CHARS).collect();
        let answer = more.number.checked_sub(1).and_then(|place| open_answers.get(place)).filter(|_| !say.is_empty());
        let (Some(answer), Some(canvas)) = (answer, self.canvases.get(&topic.canvas)) else { return Ok(none) };
        let (state, id): (_, Arc<str>) = (canvas.snapshot().state, format!("{answer}_more").into());
        if chat::message_in(&state, &topic.topic, &id).is_some() {
            return Ok(json!({"supplemented": id}));
        }
        let is_final = |state: &State, topic: &str, id: &str| {
            chat::message_in(state, topic, id).is_some_and(|one| one.status() == MessageStatus::Final)
        };
        let there = readers_of_topic(&state, &topic.topic, &self.memory);
        let may_hear = there.iter().filter(|who| hears(who, &self.me)).all(|who| heard_by.contains(who));
        // What was taken back meanwhile is not passed on.
        let source = self.canvases.get(&said_in.canvas).map(|canvas| canvas.snapshot().state);
        let stands = source.is_some_and(|state| messages.iter().all(|one| is_final(&state, &said_in.topic, one)));
        if !may_hear || !stands || !is_final(&state, &topic.topic, answer) || !self.may_supplement(self.memory.now()) {
            return Ok(none);
        }
        let mut op = chat::Op::say(&topic.topic, id.clone(), say, None);
        if let chat::Op::Append { supplements, behind, rests_on, .. } = &mut op {
            (*supplements, *rests_on) = (Some(answer.clone()), kept);
            *behind = chat::bounded(strangers_behind(context));
        }
        Self::act(&canvas, op, origin).await?;
        let spoken = self.plans.change(origin, "spoke unasked", |agenda, now| {
            agenda.spoke(now, None);
            Ok(())
        });
        spoken.await.map_err(ToolFailure::passing)?;
        Ok(json!({"supplemented": id}))
    }
}
