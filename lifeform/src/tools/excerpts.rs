//! Excerpts of talks: the messages right before and after recalled facts. In a talk, one message names a person and the next one says
//! something of that person, and a question has words that its answer leaves out. See `docs/src/internals/knowing.md`.

use std::collections::{BTreeMap, BTreeSet};

use neurons::spec::tokens_about;
use nexus::NexusError;
use store::{Origin, Timestamp};

use super::{LifeformToolbox, ToolScope};
use crate::asking::is_question;
use crate::canvas::chat::{self, MessageView};
use crate::canvas::{Canvas, State};
use crate::memory::{Place, Readers, Recalled, Stated, is_for_nobody, is_guarded};

/// The number of messages before and after a recalled fact that an excerpt includes.
const AROUND: usize = 2;
/// The maximum number of tokens of the lines that excerpts add to the notes, and the tokens of a line besides its text.
const TOKENS_MAX: usize = 700;
const LINE_TOKENS: usize = 4;
/// The maximum length of a line, in characters.
const LINE_CHARS: usize = 400;

/// A part of a talk, in its order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Excerpt {
    /// The time of its first line, if it is known.
    pub(super) at: Option<Timestamp>,
    /// The lines.
    pub(super) lines: Vec<Line>,
}

/// A sentence of a talk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// The speaker.
    pub(super) person: String,
    /// The text.
    pub(super) text: String,
    /// The fact that it states; `None` for a question.
    pub(super) fact: Option<Recalled>,
}

/// The messages of a topic that all readers heard.
struct Heard<'s> {
    canvas: Canvas,
    topic: &'s str,
    messages: Vec<MessageView<'s>>,
}

impl LifeformToolbox {
    /// Returns the excerpts around recalled facts, of the best ones first as far as there is room, oldest first. An excerpt has the
    /// questions, and the valid facts that all `readers` may know, of messages that all of them heard: from the message on with which
    /// the last of them spoke first. Messages that the prompt contains anyway are left out, and those of the lifeform itself.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn excerpts(
        &self,
        here: &ToolScope,
        recalled: &[Recalled],
        readers: Readers<'_>,
        origin: &Origin,
    ) -> Result<Vec<Excerpt>, NexusError> {
        let mut places: Vec<&Place> = Vec::new();
        for place in recalled.iter().filter_map(|fact| fact.place.as_ref()) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        // The state of each talk, and what all readers heard of it.
        let mut states: BTreeMap<(&str, &str), State> = BTreeMap::new();
        for place in &places {
            let (canvas, topic, _) = place.parts();
            if let Some(open) = self.canvases.get(canvas) {
                states.entry((canvas, topic)).or_insert_with(|| open.snapshot().state);
            }
        }
        let mut talks: BTreeMap<(&str, &str), Heard<'_>> = BTreeMap::new();
        for ((canvas, topic), state) in &states {
            let Some(open) = self.canvases.get(canvas) else { continue };
            let shown_from = match open.name() == here.canvas.name() && *topic == &**here.topic() {
                true => self.window(here, state).shown.first().map(|(message, _)| message.ord()),
                false => None,
            };
            let messages = self.heard_by_all(state, topic, readers, shown_from);
            talks.insert((canvas, topic), Heard { canvas: open, topic, messages });
        }
        let mut lines: BTreeMap<(&str, &str), BTreeMap<usize, Vec<Line>>> = BTreeMap::new();
        let mut tokens = 0;
        'facts: for place in places {
            let (canvas, topic, message) = place.parts();
            let Some(talk) = talks.get(&(canvas, topic)) else { continue };
            let Some(at) = talk.messages.iter().position(|view| view.id() == message) else { continue };
            let of_talk = lines.entry((canvas, topic)).or_default();
            for near in at.saturating_sub(AROUND)..(at + AROUND + 1).min(talk.messages.len()) {
                if of_talk.contains_key(&near) {
                    continue;
                }
                let said = self.lines_of(talk, talk.messages[near], readers, origin).await?;
                let is_known =
                    |line: &&Line| line.fact.as_ref().is_some_and(|fact| recalled.iter().any(|one| one.id == fact.id));
                let new = said.iter().filter(|line| !is_known(line));
                tokens += new.map(|line| tokens_about(&line.text) + LINE_TOKENS).sum::<usize>();
                if tokens > TOKENS_MAX {
                    break 'facts;
                }
                of_talk.insert(near, said);
            }
        }
        let zone = self.zone().0;
        let day = |at: Option<Timestamp>| at.map(|at| at.to_zoned(zone.clone()).date());
        let mut excerpts: Vec<Excerpt> = Vec::new();
        for (key, of_talk) in lines {
            let mut last = None;
            for (at, said) in of_talk.into_iter().filter(|(_, said)| !said.is_empty()) {
                let on = talks[&key].messages[at].at();
                let is_next = last.is_some_and(|last| last + 1 == at);
                last = Some(at);
                match excerpts.last_mut() {
                    // An excerpt says its day once.
                    Some(excerpt) if is_next && day(excerpt.at) == day(on) => excerpt.lines.extend(said),
                    _ => excerpts.push(Excerpt { at: on, lines: said }),
                }
            }
        }
        // A sentence alone says no more than its note.
        excerpts.retain(|excerpt| excerpt.lines.len() > 1);
        excerpts.sort_by_key(|excerpt| excerpt.at);
        Ok(excerpts)
    }

    /// Returns the messages of people in a topic that all readers heard, as far as they come before `until`.
    fn heard_by_all<'s>(
        &self,
        state: &'s State,
        topic: &str,
        readers: Readers<'_>,
        until: Option<&str>,
    ) -> Vec<MessageView<'s>> {
        let mut unheard: BTreeSet<&str> = readers.people.iter().map(String::as_str).collect();
        if unheard.is_empty() {
            return Vec::new();
        }
        let mut heard = Vec::new();
        for message in chat::messages_in(state, topic).filter(|message| message.is_said()) {
            unheard.remove(message.sender());
            let is_before = until.is_none_or(|until| message.ord() < until);
            if unheard.is_empty() && is_before && message.sender().starts_with("user:") {
                heard.push(message);
            }
        }
        heard
    }

    /// Returns the lines of a message: its valid facts that all readers may know, and its questions, if nothing of it was taken back,
    /// replaced or confided. Its other sentences are left out.
    async fn lines_of(
        &self,
        talk: &Heard<'_>,
        message: MessageView<'_>,
        readers: Readers<'_>,
        origin: &Origin,
    ) -> Result<Vec<Line>, NexusError> {
        let text = match self.text_of(&talk.canvas, talk.topic, message) {
            Some(text) if !is_for_nobody(&text) => text,
            _ => return Ok(Vec::new()),
        };
        let canvas = talk.canvas.name();
        let stated = Stated { person: message.sender(), topic: talk.topic, message: message.id(), canvas, source: "" };
        let facts = self.memory.told_in(stated, readers, origin).await?;
        let reference = format!("{canvas}/{}/{}", talk.topic, message.id());
        // A question names what the sentence beside it says: "My HIV … Should it worry the dentist?"
        let is_whole = !is_guarded(&text)
            && self.plans.agenda().forgotten_in(&reference).next().is_none()
            && self.memory.is_all_told(stated, readers, origin).await?;
        let mut lines = Vec::new();
        for sentence in knowledge::sentences(&text) {
            let fact = facts.iter().find(|fact| fact.statement == sentence);
            let is_open = || is_whole && is_question(&sentence) && !knowledge::is_confided(&sentence);
            if fact.is_none() && !is_open() {
                continue;
            }
            let text = sentence.chars().take(LINE_CHARS).collect();
            lines.push(Line { person: message.sender().to_owned(), text, fact: fact.cloned() });
        }
        Ok(lines)
    }
}
