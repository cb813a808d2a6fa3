//! Supplements: what a lifeform adds unasked to an answer that it gave before, when a person says elsewhere, or its own research
//! finds, what the answer lacked. `docs/src/guide/talk.md` explains it.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use jiff::SignedDuration;
use knowledge::telling_words;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Hash, Origin};

use super::goals::Planned;
use super::{LifeformToolbox, cut, hears, speakers, strangers_behind, unmarked};
use crate::canvas::Canvas;
use crate::canvas::chat::{self, MessageStatus, MessageView, TopicView};
use crate::memory::statements;
use crate::metabolism::Mode;
use crate::perception::{Change, Supply};

/// The time for which an answer may be supplemented.
const OPEN_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The maximum number of own answers that are looked at, the newest first, and of those that a model sees.
const LOOKED_AT_MAX: usize = 64;
const SHOWN_MAX: usize = 3;
/// The share of a question's telling words that the news must hold.
const SHARE_MIN: f64 = 0.5;
/// The maximum length of a text that a model sees, and of a supplement, in characters.
const TEXT_CHARS: usize = 400;
const SUPPLEMENT_CHARS: usize = 1_000;

/// The things that a lifeform has learned, and who may hear of them.
struct News {
    /// The lines for a model, each with its source.
    lines: Vec<String>,
    /// The telling words.
    words: BTreeSet<Arc<str>>,
    /// The people who said it, who need no supplement.
    tellers: BTreeSet<String>,
    /// The people who heard it.
    heard_by: BTreeSet<String>,
    /// The place in which they stand already.
    said_in: (String, Arc<str>),
}

/// An earlier answer, in the metadata of the question about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OpenAnswer {
    canvas: String,
    topic: String,
    answer: String,
}

/// The metadata of the question about earlier answers.
#[derive(Default, Serialize, Deserialize)]
struct Looked {
    /// The answers, in the order of their numbers in the question.
    open_answers: Vec<OpenAnswer>,
    heard_by: BTreeSet<String>,
    /// The people whose words the question contains.
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
        let (agenda, initiative, now) = (self.plans.agenda(), self.plans.initiative(), self.memory.now());
        let may_speak = initiative.thoughts && agenda.held_back_until(initiative, now) <= now;
        let Some(news) = self.news(context)?.filter(|_| may_speak) else { return Ok(nothing) };
        let mut found: Vec<(f64, OpenAnswer, String)> = Vec::new();
        for canvas in self.canvases.all().into_iter().filter(|canvas| canvas.kind.is(chat::NAME)) {
            let state = canvas.snapshot().state;
            for topic in chat::topics_in(&state).filter(|topic| !topic.is_archived()).map(TopicView::id) {
                let readers: BTreeSet<String> =
                    speakers(&state, topic).into_iter().filter(|who| hears(who, &self.me)).collect();
                let is_place = *canvas.name() == *news.said_in.0 && *topic == *news.said_in.1;
                if is_place || !readers.is_subset(&news.heard_by) {
                    continue;
                }
                let own = chat::messages_in(&state, topic).rev().filter(|message| message.is_by(&self.me.id.0));
                for answer in own.take(LOOKED_AT_MAX) {
                    let is_recent = answer.at().is_some_and(|at| now.duration_since(at) < OPEN_FOR);
                    if !is_recent {
                        break;
                    }
                    let Some(share) = self.is_open(&canvas, topic, answer, &news) else { continue };
                    let (open, text) = self.shown_answer(&canvas, topic, answer);
                    found.push((share, open, text));
                }
            }
        }
        if found.is_empty() {
            return Ok(nothing);
        }
        found.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
        found.truncate(SHOWN_MAX);
        let line = |(n, (_, _, text)): (usize, &(f64, OpenAnswer, String))| format!("{}. {text}", n + 1);
        let asked: Vec<String> = found.iter().enumerate().map(line).collect();
        let text = format!("New:\n<notes>\n{}\n</notes>\nEarlier:\n{}", news.lines.join("\n"), asked.join("\n"));
        let readers = found.iter().filter_map(|(_, open, _)| {
            let state = self.canvases.get(&open.canvas)?.snapshot().state;
            Some(speakers(&state, &open.topic))
        });
        let behind: BTreeSet<Arc<str>> = readers
            .flatten()
            .map(Arc::from)
            .chain(news.tellers.iter().map(|who| who.as_str().into()))
            .chain(strangers_behind(context))
            .filter(|who| **who != *self.me.id.0)
            .collect();
        let open_answers = found.into_iter().map(|(_, open, _)| open).collect();
        let metadata = Looked { open_answers, heard_by: news.heard_by, behind };
        Ok(json!({"events": [{"role": "user", "content": text, "metadata": metadata}]}))
    }

    /// Returns what the job has learned: the statements of messages, or the findings of research.
    fn news(&self, context: &ToolContext) -> Result<Option<News>, ToolFailure> {
        let news = match self.here(context) {
            Ok(here) if !can_add(here.perception.supply) => return Ok(None),
            Ok(here) => {
                let state = here.canvas.snapshot().state;
                let said = here.perception.said.iter().filter(|said| said.change == Change::New);
                let said = said.filter(|said| !here.is_answer_of_lifeform(said));
                let (mut lines, mut tellers) = (Vec::new(), BTreeSet::new());
                for one in said {
                    let name = unmarked(&self.display_name(&state, &one.sender));
                    for statement in statements(&one.content).iter().filter(|text| !knowledge::is_confided(text)) {
                        lines.push((format!("{name} said: "), statement.clone()));
                        tellers.insert(one.sender.to_string());
                    }
                }
                let said_in = (here.canvas.name().to_owned(), here.topic().clone());
                (lines, tellers, here.audience(&self.me), said_in)
            }
            Err(_) => {
                let errand = Self::act_errand(context)?;
                if !can_add(errand.supply) {
                    return Ok(None);
                }
                let topic = errand.topic.clone().or_else(|| errand.speaks_in.clone()).unwrap_or_default();
                let home = self.canvases.get(&self.home).map(|home| home.snapshot().state);
                let mut heard_by = home.map(|state| speakers(&state, &topic)).unwrap_or_default();
                heard_by.extend(errand.asked_by.iter().map(|who| who.to_string()));
                let found = Planned::of(context).findings(context);
                let lines = found.into_iter().map(|(question, answer)| (format!("You found out: {question} "), answer));
                (lines.collect(), BTreeSet::new(), heard_by, (self.home.to_string(), topic))
            }
        };
        let (lines, tellers, heard_by, said_in): (Vec<(String, String)>, _, _, _) = news;
        let words = lines.iter().flat_map(|(source, text)| telling_words(&format!("{source} {text}"))).collect();
        let lines: Vec<String> = lines
            .iter()
            .map(|(source, text)| format!("{}{}", unmarked(source), cut(&unmarked(text), TEXT_CHARS)))
            .collect();
        Ok((!lines.is_empty()).then_some(News { lines, words, tellers, heard_by, said_in }))
    }

    /// Returns the share of a question's words that the news holds, if an own message answers a question of a person that the
    /// news may answer better: it was not supplemented before, and the answer does not say the same.
    fn is_open(&self, canvas: &Canvas, topic: &str, answer: MessageView<'_>, news: &News) -> Option<f64> {
        let state = canvas.snapshot().state;
        let is_whole = answer.status() == MessageStatus::Final && answer.supplements().is_none();
        let question = answer.reply_to().and_then(|id| chat::message_in(&state, topic, id))?;
        let is_of_person = question.sender().starts_with("user:") && !news.tellers.contains(question.sender());
        let content = self.text_of(canvas, topic, question).filter(|text| knowledge::rank::asks(text))?;
        let has_more =
            |message: MessageView<'_>| message.is_by(&self.me.id.0) && message.supplements() == Some(answer.id());
        if !is_whole || !is_of_person || chat::messages_in(&state, topic).any(has_more) {
            return None;
        }
        let (asked, said) = (telling_words(&content), telling_words(answer.content()));
        let shared = asked.intersection(&news.words).count() as f64 / asked.len().max(1) as f64;
        let is_new = news.words.difference(&asked).any(|word| !said.contains(word));
        (shared >= SHARE_MIN && is_new).then_some(shared)
    }

    fn shown_answer(&self, canvas: &Canvas, topic: &str, answer: MessageView<'_>) -> (OpenAnswer, String) {
        let state = canvas.snapshot().state;
        let question = answer.reply_to().and_then(|id| chat::message_in(&state, topic, id));
        let asker = question.map(|question| self.display_name(&state, question.sender())).unwrap_or_default();
        let asked = question.map(|question| question.content().to_owned()).unwrap_or_default();
        let shown = |text: &str| cut(&unmarked(text), TEXT_CHARS);
        let text = format!(
            "{} asked: <messages>{}</messages> You answered: <messages>{}</messages>",
            unmarked(&asker),
            shown(&asked),
            shown(answer.content())
        );
        let open =
            OpenAnswer { canvas: canvas.name().to_owned(), topic: topic.to_owned(), answer: answer.id().to_owned() };
        (open, text)
    }

    /// Posts what a model adds to an earlier answer, if all who read it there may hear it, and at most once an answer.
    pub(super) async fn supplement(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let mut metadata = context.events.iter().map(|event| &event.metadata);
        let looked = metadata.find(|metadata| metadata.contains_key("open_answers")).cloned().unwrap_or_default();
        let Looked { open_answers, heard_by, .. } = serde_json::from_value(looked.into()).unwrap_or_default();
        let more = context.event("more").and_then(|event| More::deserialize(&event.content).ok()).unwrap_or_default();
        let say: String = more.say.trim().chars().take(SUPPLEMENT_CHARS).collect();
        let open = more.number.checked_sub(1).and_then(|place| open_answers.get(place)).filter(|_| !say.is_empty());
        let Some(OpenAnswer { canvas, topic, answer }) = open else { return Ok(json!({"supplemented": null})) };
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(json!({"supplemented": null})) };
        let state = canvas.snapshot().state;
        let may_hear =
            speakers(&state, topic).iter().filter(|who| hears(who, &self.me)).all(|who| heard_by.contains(who));
        let stands = chat::message_in(&state, topic, answer).is_some_and(|one| one.status() == MessageStatus::Final);
        if !may_hear || !stands {
            return Ok(json!({"supplemented": null}));
        }
        let id: Arc<str> = format!("msg_more_{}", &Hash::of(answer.as_bytes()).hex()[..16]).into();
        // A repetition after a crash counts once.
        if chat::message_in(&state, topic, &id).is_none() {
            let mut op = chat::Op::say(&topic.as_str().into(), id.clone(), say, None);
            if let chat::Op::Append { supplements, behind, .. } = &mut op {
                (*supplements, *behind) = (Some(answer.as_str().into()), chat::bounded(strangers_behind(context)));
            }
            Self::act(&canvas, op, origin).await?;
            let spoken = self.plans.change(origin, "spoke unasked", |agenda, now| {
                agenda.spoke(now, None);
                Ok(())
            });
            spoken.await.map_err(ToolFailure::passing)?;
        }
        Ok(json!({"supplemented": id}))
    }
}
