//! The passing on of statements by a hub: a statement of one talk goes to a topic of which the lifeform is the hub, where a person
//! wrote of the same and all readers may hear it. The rule asks no model. `docs/src/concepts/lifeforms.md` explains it to people.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::ToolFailure;
use jiff::{SignedDuration, Timestamp};
use knowledge::telling_words;
use store::{Hash, Origin};

use super::keeping::stated;
use super::scope::ToolScope;
use super::{LifeformToolbox, cut, hears, speakers, unmarked};
use crate::canvas::chat::{self, MessageView, Stance, TopicRole};
use crate::canvas::user::users_in;
use crate::canvas::{Canvas, State};
use crate::memory::{Readers, Recalled};
use crate::perception::{Change, ThreadRef};
use crate::reminders::Language;

/// The time for which a message may be the reason to pass something on, and the number of latest messages that are looked at.
const RECENT: SignedDuration = SignedDuration::from_hours(7 * 24);
const LOOKED_AT_MAX: usize = 30;
/// The number of messages that a hub passes on per topic and day.
const PER_DAY: usize = 3;
/// The share of the telling words, of the shorter of both, that a message and a statement have in common, and their minimum number.
const SHARE_MIN: f64 = 0.4;
const WORDS_MIN: usize = 2;
/// The maximum length of a quotation, in characters.
const QUOTED_CHARS: usize = 300;

/// Returns those who read a topic: all who posted there, who have a role, who opened it, and the lifeforms of the canvas, which
/// hear all of it.
fn readers_of(canvas: &Canvas, state: &State, topic: &str) -> BTreeSet<String> {
    let of_topic = chat::topic_in(state, topic).into_iter().flat_map(chat::TopicView::principals);
    let of_topic = of_topic.map(|(who, _)| who.to_owned());
    let lifeforms = users_in(state).filter_map(|user| user.id()).filter(|who| who.starts_with("lifeform:"));
    let lifeforms = lifeforms.map(str::to_owned).chain([format!("lifeform:{}", canvas.lifeform())]);
    of_topic.chain(lifeforms).chain(speakers(state, topic)).collect()
}

impl LifeformToolbox {
    /// Passes the statements of messages on to the topics of which the lifeform is the hub. Returns the number of messages
    /// that it posted.
    pub(super) async fn pass_on(&self, here: &ToolScope, origin: &Origin) -> Result<usize, ToolFailure> {
        let hubs = self.hubs(&here.perception.place);
        let (mut posted, heard) = (0, self.audience_here(here));
        if hubs.is_empty() {
            return Ok(posted);
        }
        let said = here.perception.said.iter().filter(|said| said.change == Change::New);
        for said in said.filter(|said| said.sender.starts_with("user:") && here.says_still(said)) {
            for (canvas, topic) in &hubs {
                let state = canvas.snapshot().state;
                let readers = readers_of(canvas, &state, topic);
                let people: BTreeSet<String> = readers.iter().filter(|who| hears(who, &self.me)).cloned().collect();
                let are_trusted = people.iter().all(|who| self.knowledge.trusts_word_of(who));
                let readers = Readers { people: &people, are_trusted };
                let told =
                    self.memory.told_in(stated(here, said), readers, origin).await.map_err(ToolFailure::passing)?;
                for fact in &told {
                    posted += usize::from(self.pass_on_to(canvas, topic, (&said.sender, &heard, fact), origin).await?);
                }
            }
        }
        Ok(posted)
    }

    /// Retracts what it passed on of messages that were amended or retracted, where the statement no longer holds or may no longer
    /// be told.
    pub(super) async fn take_back(&self, here: &ToolScope, origin: &Origin) -> Result<(), ToolFailure> {
        let changed = here.perception.said.iter().filter(|said| !matches!(said.change, Change::New | Change::Act));
        let changed: BTreeSet<&str> = changed.map(|said| &*said.sender).collect();
        let hubs = if changed.is_empty() { Vec::new() } else { self.hubs(&here.perception.place) };
        let now = self.memory.now();
        for (canvas, topic) in hubs {
            let state = canvas.snapshot().state;
            let readers = readers_of(&canvas, &state, &topic);
            let people: BTreeSet<String> = readers.into_iter().filter(|who| hears(who, &self.me)).collect();
            let readers = Readers { people: &people, are_trusted: false };
            let newest = chat::messages_in(&state, &topic).rev().take_while(|message| is_recent(message, now));
            let own = newest.filter(|message| message.is_by(&self.me.id.0) && message.is_said());
            let passed = own.filter(|message| message.id().starts_with(&self.hub_prefix()));
            for post in passed.filter(|message| message.behind().any(|who| changed.contains(who))) {
                for fact in post.rests_on() {
                    if self.memory.may_be_told(fact, readers, origin).await.map_err(ToolFailure::passing)? {
                        continue;
                    }
                    let (topic, id, reason) = (topic.clone(), post.id().into(), "its teller took it back".into());
                    Self::act(&canvas, chat::Op::Retract { topic, id, reason }, origin).await?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the beginning of the ids of the messages that it passes on, which only the lifeform itself can use.
    fn hub_prefix(&self) -> String {
        format!("msg_{}_hub_", self.me.id.0.strip_prefix("lifeform:").unwrap_or(&self.me.id.0))
    }

    /// Returns the topics of which the lifeform is the hub, besides one.
    fn hubs(&self, here: &ThreadRef) -> Vec<(Canvas, Arc<str>)> {
        let mut hubs = Vec::new();
        for canvas in self.canvases.all().into_iter().filter(|canvas| canvas.kind.is(chat::NAME)) {
            let state = canvas.snapshot().state;
            let is_hub = |topic: &chat::TopicView<'_>| {
                let own = topic.stance_of(&self.me.id.0).map(|own| own.stance());
                let listens = topic.role_of(&self.me.id.0) == Some(TopicRole::Listener);
                own == Some(Stance::Hub) && !topic.is_archived() && !listens
            };
            let topics = chat::topics_in(&state).filter(is_hub).map(|topic| Arc::<str>::from(topic.id()));
            let others = topics.filter(|topic| *here.canvas != *canvas.name() || here.topic != *topic);
            hubs.extend(others.map(|topic| (canvas.clone(), topic)).collect::<Vec<_>>());
        }
        hubs
    }

    async fn pass_on_to(
        &self,
        canvas: &Canvas,
        topic: &Arc<str>,
        (teller, heard, fact): (&Arc<str>, &BTreeSet<String>, &Recalled),
        origin: &Origin,
    ) -> Result<bool, ToolFailure> {
        let (state, now) = (canvas.snapshot().state, self.memory.now());
        let agenda = self.plans.agenda();
        let name = Hash::of(format!("{topic} {}", fact.id).as_bytes()).hex();
        let id: Arc<str> = format!("{}{}", self.hub_prefix(), &name[..16]).into();
        let today = |message: &MessageView<'_>| {
            message.is_by(&self.me.id.0)
                && message.id().starts_with(&self.hub_prefix())
                && message.at().is_some_and(|at| now.duration_since(at) < SignedDuration::from_hours(24))
        };
        let (participant, per_day) = (self.neurons.participant(teller), self.plans.initiative().unasked_per_day);
        let is_held_back = participant.as_ref().is_some_and(|who| agenda.has_spoken_its_share(&who.0, per_day, now))
            || agenda.held_back_until(self.plans.initiative(), now) > now
            || chat::messages_in(&state, topic)
                .rev()
                .take_while(|message| is_recent(message, now))
                .filter(today)
                .count()
                >= PER_DAY;
        if is_held_back || chat::message_in(&state, topic, &id).is_some() {
            return Ok(false);
        }
        let words = telling_words(&fact.statement);
        let concerned = chat::messages_in(&state, topic)
            .rev()
            .take_while(|message| is_recent(message, now))
            .filter(|message| message.sender().starts_with("user:") && message.is_said())
            // Who was there has heard it.
            .filter(|message| message.sender() != &**teller && !heard.contains(message.sender()))
            .take(LOOKED_AT_MAX)
            .find(|message| {
                let written =
                    self.text_of(canvas, topic, *message).map(|text| telling_words(&text)).unwrap_or_default();
                let shared = written.intersection(&words).count();
                shared >= WORDS_MIN && shared as f64 >= SHARE_MIN * written.len().min(words.len()) as f64
            });
        let Some(concerned) = concerned else { return Ok(false) };
        let quote = |text: &str| cut(&unmarked(text), QUOTED_CHARS);
        let (name, statement) = (unmarked(&self.display_name(&state, teller)), quote(&fact.statement));
        let content = match Language::of(concerned.content()) {
            Language::English => format!("{name} said in another talk: “{statement}”"),
            Language::Chinese => format!("{name}在别处说过：“{statement}”"),
            Language::Japanese => format!("{name}さんが別の話題で言っていました：「{statement}」"),
        };
        let mut op = chat::Op::say(topic, id, content, Some(concerned.id().into()));
        if let chat::Op::Append { behind, rests_on, .. } = &mut op {
            (*rests_on, *behind) = (vec![fact.id.as_str().into()], vec![teller.clone()]);
        }
        Self::act(canvas, op, origin).await?;
        let spoken = self.plans.change(origin, "spoke unasked", |agenda, now| {
            agenda.spoke(now, participant.as_ref().map(|who| &who.0));
            Ok(())
        });
        spoken.await.map_err(ToolFailure::passing)?;
        Ok(true)
    }
}

fn is_recent(message: &MessageView<'_>, now: Timestamp) -> bool {
    message.at().is_some_and(|at| now.duration_since(at) < RECENT)
}
