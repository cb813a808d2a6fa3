//! The growth of `$self` by reflection: capabilities by counting what was done, the voice by the words of people whom the
//! lifeform trusts. Nothing else of `$self` changes here.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use fascicles::{ToolContext, ToolFailure};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Origin, Timestamp};

use super::{LifeformToolbox, hears, unmarked};
use crate::agenda::{Errand, GoalStatus};
use crate::canvas::chat::{self, TopicView};
use crate::canvas::mind_map;
use crate::maintenance::{self, Task};
use crate::metabolism::Mode;

/// The number of messages that a reflection reads, the length beyond which one is left out, in characters, and their age.
const MESSAGES_MAX: usize = 40;
const MESSAGE_CHARS: usize = 240;
const AGE: jiff::SignedDuration = jiff::SignedDuration::from_hours(26);
/// The lengths of a voice, in characters.
const VOICE_CHARS: std::ops::RangeInclusive<usize> = 8..=240;

/// The answer of the neuron `reflect`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reflection {
    change: VoiceChange,
    voice: String,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VoiceChange {
    #[default]
    Keep,
    Clear,
    Set,
}

impl LifeformToolbox {
    /// Returns what people whom the lifeform trusts said within a day, with its present voice, for a model; nothing if
    /// nobody did, or if the model or the balance is too small for it.
    pub(super) async fn look_at_self(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let Errand::Maintenance { supply, .. } = Self::errand(context)? else {
            return Err(ToolFailure::fatal("this tool needs a maintenance task"));
        };
        let canvas = self.canvases.get(&self.home).filter(|_| !supply.small && supply.mode != Mode::Eco);
        let Some(canvas) = canvas else { return Ok(json!({"events": []})) };
        let (state, now) = (canvas.snapshot().state, self.memory.now());
        let is_new = |at: Option<Timestamp>| at.is_some_and(|at| now.duration_since(at) < AGE);
        let mut said: Vec<(Timestamp, String)> = Vec::new();
        for topic in chat::topics_in(&state).map(TopicView::id) {
            let texts = self.texts_in(&canvas, &state, topic);
            let of_trusted = texts.filter(|(message, _)| {
                let who = message.sender();
                hears(who, &self.me)
                    && who.starts_with("user:")
                    && self.knowledge.trusts_word_of(who)
                    && is_new(message.at())
            });
            // A long message mostly quotes another text.
            let short = of_trusted.filter(|(_, text)| text.chars().count() <= MESSAGE_CHARS);
            said.extend(
                short.map(|(message, text)| {
                    (message.at().unwrap_or_default(), unmarked(&knowledge::without_told(&text)))
                }),
            );
        }
        if said.is_empty() {
            return Ok(json!({"events": []}));
        }
        said.sort_by_key(|(at, _)| *at);
        let newest = &said[said.len().saturating_sub(MESSAGES_MAX)..];
        let lines: Vec<String> = newest.iter().map(|(_, text)| format!("- {text}")).collect();
        let me = self.memory.self_model(&self.name, &self.persona, origin).await.map_err(ToolFailure::passing)?;
        let text = format!(
            "The lifeform: {}. {}\nIts principles: {}.\nIts present voice: {}\nWhat people whom it trusts said:\n<messages>\n{}\n</messages>",
            unmarked(&me.name),
            unmarked(&me.persona),
            me.directives.join(", "),
            if me.voice.is_empty() { "none yet" } else { &me.voice },
            lines.join("\n"),
        );
        Ok(json!({"events": [{"role": "user", "content": text}]}))
    }

    /// Writes what was learned into `$self`.
    pub(super) async fn grow(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let read = context.event("reflect").and_then(|event| Reflection::deserialize(&event.content).ok());
        // Words of strangers are not read here; if the run has read any after all, nothing is learned of them.
        let read = read.filter(|_| !context.taint.is_tainted()).unwrap_or_default();
        let voice = match read.change {
            VoiceChange::Keep => None,
            VoiceChange::Clear => Some(String::new()),
            VoiceChange::Set => Some(plain(&read.voice)).filter(|voice| VOICE_CHARS.contains(&voice.chars().count())),
        };
        // It stands in the prompts of answers to all people.
        let voice = voice.filter(|voice| voice.is_empty() || is_about_speech(voice, &[&self.name, &self.persona]));
        let system = maintenance::gardener(origin.cause.clone());
        let able = self.capabilities();
        let kip = self.memory.grow_self(&able, voice.as_deref(), &system).await.map_err(ToolFailure::passing)?;
        Ok(json!({"task": Task::Reflect, "done": {"capabilities": able, "voice": voice}, "kip": kip}))
    }

    /// Returns what the lifeform has done, by counting.
    fn capabilities(&self) -> Vec<String> {
        let agenda = self.plans.agenda();
        let done = agenda.goals.values().filter(|goal| goal.status == GoalStatus::Done).count();
        let maps = self.canvases.all().iter().filter(|canvas| canvas.kind.is(mind_map::NAME)).count();
        let (mut people, mut scripts) = (BTreeSet::new(), BTreeSet::new());
        for canvas in self.canvases.all().iter().filter(|canvas| canvas.kind.is(chat::NAME)) {
            let state = canvas.snapshot().state;
            for topic in chat::topics_in(&state).map(TopicView::id) {
                for message in chat::messages_in(&state, topic).filter(|message| hears(message.sender(), &self.me)) {
                    people.insert(message.sender().to_owned());
                    scripts.extend(language_of(message.content()));
                }
            }
        }
        let languages: Vec<&str> = scripts.into_iter().collect();
        let mut able = Vec::new();
        let mut add = |count: usize, verb: &str, one: &str, several: &str| match count {
            0 => {}
            1 => able.push(format!("{verb} {one}")),
            _ => able.push(format!("{verb} {} {several}", rounded(count))),
        };
        // One person is no news to that person.
        add(people.len().saturating_sub(1), "talked with", "one more person", "more people");
        add(done, "reached", "a goal", "goals");
        add(maps, "drawn on", "a mind map", "mind maps");
        if !languages.is_empty() {
            able.push(format!("talked in {}", languages.join(", ")));
        }
        able
    }
}

/// The words by which a voice is about how the lifeform speaks.
static OF_SPEECH: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)\b(?:answers?|speak(?:s|ing)?|talks?|writ(?:es?|ing|ten)|repl(?:y|ies)|responds?|responses?|words?|sentences?|tone|voice|languages?|formal(?:ly)?|informal(?:ly)?|polite(?:ly)?|brief(?:ly)?|short(?:er|ly)?|concise(?:ly)?|longer|details?|emojis?|jok(?:es?|ing)|humou?r|address(?:es)?|greets?|explains?|lists?|bullets?|examples?|questions?|plain(?:ly)?|simpl[ey]|friendly|warm(?:ly)?|direct(?:ly)?|kind(?:ly)?|first names?)\b";
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The names that a voice may say besides that of the lifeform.
const LANGUAGES: [&str; 18] = [
    "British",
    "American",
    "English",
    "Chinese",
    "Japanese",
    "German",
    "French",
    "Spanish",
    "Italian",
    "Portuguese",
    "Dutch",
    "Korean",
    "Russian",
    "Polish",
    "Latin",
    "Markdown",
    "Celsius",
    "I",
];

/// The words with which a sentence of a voice may begin.
const BEGINNINGS: [&str; 50] = [
    "The",
    "It",
    "She",
    "He",
    "They",
    "Its",
    "Her",
    "His",
    "Their",
    "Never",
    "Always",
    "In",
    "With",
    "Without",
    "No",
    "To",
    "For",
    "Answers",
    "Speaks",
    "Talks",
    "Uses",
    "Writes",
    "Keeps",
    "Replies",
    "Begins",
    "Ends",
    "Gives",
    "Prefers",
    "Explains",
    "Addresses",
    "Calls",
    "Adds",
    "Says",
    "Avoids",
    "Sounds",
    "Stays",
    "Is",
    "Does",
    "Puts",
    "Tells",
    "Greets",
    "Asks",
    "Makes",
    "Shows",
    "Leaves",
    "Opens",
    "Responds",
    "Remains",
    "Takes",
    "Leans",
];

/// Returns `true` if a voice tells how the lifeform speaks, and no name or number of anything else.
fn is_about_speech(voice: &str, known: &[&str]) -> bool {
    let is_known = |word: &str| LANGUAGES.contains(&word) || known.iter().any(|text| text.contains(word));
    knowledge::sentences(voice).iter().all(|sentence| {
        let mut words = sentence.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).enumerate();
        let tells = words.any(|(at, word)| {
            let is_name = match at {
                // The first word has a capital letter in any case.
                0 => !BEGINNINGS.contains(&word),
                _ => word.starts_with(char::is_uppercase),
            };
            // "In at most 2 sentences."
            let is_number = word.len() > 1 && word.contains(char::is_numeric);
            (is_name || is_number) && !is_known(word)
        });
        !tells
    }) && OF_SPEECH.is_match(voice)
}

/// Returns a count in a form that seldom changes: beyond ten, in tens.
fn rounded(count: usize) -> String {
    if count <= 10 { count.to_string() } else { format!("over {}", (count - 1) / 10 * 10) }
}

/// Returns the language of a text, as far as its script tells it; that of Latin letters is open.
fn language_of(text: &str) -> Option<&'static str> {
    let has = |from: char, to: char| text.contains(|c: char| (from..=to).contains(&c));
    match () {
        () if has('\u{3040}', '\u{30ff}') => Some("Japanese"),
        () if has('\u{4e00}', '\u{9fff}') => Some("Chinese"),
        () => None,
    }
}

/// Returns a text of a model on one line without marks.
fn plain(text: &str) -> String {
    unmarked(text).split_whitespace().collect::<Vec<_>>().join(" ").replace('"', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voice_tells_how_the_lifeform_speaks_and_nothing_else() {
        for (voice, is) in [
            ("Answers in short sentences, in English.", true),
            ("Iris speaks warmly and uses no emoji. She calls people by their first names.", true),
            ("Torsten lives in Lidingö.", false),
            ("Answers briefly. Torsten is ill.", false),
            ("Answers the user: Torsten is ill.", false),
            ("Longing for the sea.", false),
            ("Jonas is short of money.", false),
            ("Keeps replies brief. Avoids exclamation marks.", true),
            ("Their answers are short, in British English.", true),
            ("Answers in at most 2 sentences.", true),
            ("Iris answers in short, plain sentences with a warm tone.", true),
            ("Answers briefly. The code is 4711.", false),
            ("Speaks like Ada's brother Torsten.", false),
            ("The boat is sold.", false),
        ] {
            assert_eq!(is_about_speech(voice, &["Iris", "a helper of the harbour"]), is, "{voice}");
        }
    }
}
