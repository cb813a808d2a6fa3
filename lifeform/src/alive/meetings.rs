//! The topics that the lifeform coordinates: after each word there, and when a time comes, it posts what the state of the
//! meeting asks for ([`Meeting`]), and writes the state into the mind. No model is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use store::{Entry, Hash, Role, Timestamp};

use super::LifeformState;
use crate::LifeformError;
use crate::canvas::chat::{Stance, TopicView};
use crate::canvas::user::users_in;
use crate::canvas::{Canvas, Op, State, chat};
use crate::meeting::{Meeting, Post, Request, Texts, is_meeting_post_of, request};
use crate::perception::{self, Change, PerceivedMessage, ThreadRef};

/// The maximum number of steps to which one change leads.
const STEPS_MAX: usize = 16;
/// The time after which a message that could not be posted is tried again, if nobody speaks before.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// The minimum number of people of a topic that is coordinated by request.
const PEOPLE_MIN: usize = 2;

/// Returns `true` for an op that may change the state of a meeting.
fn changes_meeting(op: &chat::Op) -> bool {
    !matches!(
        op,
        chat::Op::UserName { .. }
            | chat::Op::Read { .. }
            | chat::Op::Summarize { .. }
            | chat::Op::Open { .. }
            | chat::Op::Reopen { .. }
            | chat::Op::Checkpoint { .. }
            | chat::Op::Suggest { .. }
            | chat::Op::TopicPin { .. }
    )
}

impl LifeformState {
    /// Returns the topic that the lifeform coordinates, or did so until now, if an entry may change the state there.
    pub(super) fn meeting_of(&self, canvas: &Canvas, entry: &Entry, op: &Op) -> Option<ThreadRef> {
        let Op::Chat(of_chat) = op else { return None };
        let topic = perception::topic_of(op).filter(|_| entry.by != self.me.id && changes_meeting(of_chat))?;
        Some(ThreadRef { canvas: canvas.name().into(), topic })
    }

    /// Returns `true` if the lifeform coordinates a topic, or did so until now.
    fn coordinates(&self, canvas: &Canvas, place: &ThreadRef) -> bool {
        let state = canvas.snapshot().state;
        let is_in = chat::topic_in(&state, &place.topic).is_some_and(|topic| self.is_coordinated(topic));
        is_in || self.recorded.contains_key(place) || self.plans.agenda().meeting_at(place).is_some()
    }

    /// Returns `true` if the lifeform is the coordinator of a topic, or its agenda is still pinned there.
    fn is_coordinated(&self, topic: TopicView<'_>) -> bool {
        let own = topic.stance_of(&self.me.id.0);
        own.is_some_and(|own| own.stance() == Stance::Coordinator)
            || topic.pinned().is_some_and(|pinned| is_meeting_post_of(&self.me.id.0, pinned))
    }

    /// Coordinates the topics of a canvas as they stand, for what happened while the lifeform did not read it.
    pub(super) async fn coordinate_all(&mut self, canvas: &Canvas) {
        let state = canvas.snapshot().state;
        let topics = chat::topics_in(&state).filter(|topic| self.is_coordinated(*topic));
        let topics = topics.map(|topic| Arc::<str>::from(topic.id()));
        let topics: Vec<Arc<str>> = if canvas.kind.is(chat::NAME) { topics.collect() } else { Vec::new() };
        for topic in topics {
            self.coordinate(&ThreadRef { canvas: canvas.name().into(), topic }, "join".into()).await;
        }
    }

    /// Coordinates the topics whose time has come.
    pub(super) async fn coordinate_due(&mut self, now: Timestamp) {
        for place in self.plans.agenda().meetings_due(now) {
            self.coordinate(&place, "agenda".into()).await;
        }
    }

    /// Posts what a meeting asks for now, if the lifeform coordinates the topic. A repetition posts nothing twice. What fails is
    /// tried again later.
    pub(super) async fn coordinate(&mut self, place: &ThreadRef, source: Arc<str>) {
        let canvas = self.canvases.get(&place.canvas).filter(|canvas| canvas.kind.is(chat::NAME));
        let next = match canvas {
            Some(canvas) if self.coordinates(&canvas, place) => {
                Box::pin(self.coordinate_in(&canvas, place, &source)).await.unwrap_or_else(|error| {
                    tracing::warn!(lifeform = %self.head.id, %error, "a topic is not coordinated");
                    self.store.clock().now().checked_add(AGAIN_AFTER).ok()
                })
            }
            _ => None,
        };
        if let Err(error) = self.wake_for_meeting(place, next, &source).await {
            tracing::warn!(lifeform = %self.head.id, %error, "the next look at a meeting is not planned");
        }
    }

    /// Returns the next time at which the meeting is looked at.
    async fn coordinate_in(
        &mut self,
        canvas: &Canvas,
        place: &ThreadRef,
        source: &Arc<str>,
    ) -> Result<Option<Timestamp>, LifeformError> {
        for _ in 0..STEPS_MAX {
            let state = canvas.snapshot().state;
            let Some(meeting) = self.meeting_in(&state, &place.topic) else {
                let pinned = chat::topic_in(&state, &place.topic).and_then(TopicView::pinned);
                if pinned.is_some_and(|pinned| is_meeting_post_of(&self.me.id.0, pinned)) {
                    self.apply(canvas, chat::Op::TopicPin { id: place.topic.clone(), message: None }, source).await?;
                }
                self.memory.close_meetings(place, None, &self.because(source.clone())).await?;
                self.recorded.remove(place);
                return Ok(None);
            };
            let now = self.store.clock().now();
            let (posts, next) = meeting.due(now);
            let mut is_refused = false;
            for post in &posts {
                is_refused |= !self.post(canvas, place, (&meeting, *post), source).await?;
            }
            if posts.is_empty() || is_refused {
                // A text that cannot be amended any more stays as it is.
                for post in meeting.outdated() {
                    self.amend(canvas, place, (&meeting, post), source).await?;
                }
                self.record(canvas, place, &meeting, source).await?;
                return Ok(if is_refused { now.checked_add(AGAIN_AFTER).ok() } else { next });
            }
        }
        Ok(self.store.clock().now().checked_add(AGAIN_AFTER).ok())
    }

    fn meeting_in(&self, state: &State, topic: &str) -> Option<Meeting> {
        Meeting::read(state, topic, &self.me.id.0, |who| self.is_operator(who))
    }

    fn is_operator(&self, who: &str) -> bool {
        self.fascicles.neurons().least_principal(who).may(Role::Operator)
    }

    /// Takes the stance for which a message of a moderator asks. Returns `true` if the message asked for one.
    pub(super) async fn take_stance_as_asked(
        &self,
        canvas: &Canvas,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<bool, LifeformError> {
        // A coordinator hears it, too, where it is not called.
        let is_meant = said.to_answer || self.coordinates(canvas, place);
        let is_request = is_meant && said.change == Change::New && canvas.kind.is(chat::NAME);
        let Some(request) = is_request.then(|| request(&said.content)).flatten() else { return Ok(false) };
        let state = canvas.snapshot().state;
        if !said.to_answer && self.is_for_another(&state, &said.content) {
            return Ok(false);
        }
        let Some(topic) = chat::topic_in(&state, &place.topic) else { return Ok(false) };
        let posted_at = chat::message_in(&state, &place.topic, &said.message).and_then(|message| message.created_rev());
        // A message that is restored, or read again, asks for nothing new.
        let is_new =
            posted_at == Some(said.rev) && topic.stance_of(&self.me.id.0).is_none_or(|own| own.rev() < said.rev);
        let writers = chat::messages_in(&state, &place.topic).map(|message| message.sender());
        let people = topic.principals().map(|(who, _)| who).chain(writers).filter(|who| who.starts_with("user:"));
        let is_talk_of_several = people.collect::<BTreeSet<&str>>().len() >= PEOPLE_MIN;
        if !is_new || !is_talk_of_several || !(self.is_operator(&said.sender) || self.moderates(place, &said.sender)) {
            return Ok(false);
        }
        let (stance, agenda) = match request {
            Request::Coordinate(agenda) => (Stance::Coordinator, agenda),
            Request::Stop => (Stance::Participant, Vec::new()),
        };
        let (id, who) = (place.topic.clone(), self.me.id.clone());
        let op = chat::Op::TopicStance { id, who, stance, agenda, until: None };
        self.apply(canvas, op, &said.source).await
    }

    /// Returns `true` if a text begins with, or mentions, the name of another lifeform of the canvas.
    fn is_for_another(&self, state: &State, content: &str) -> bool {
        let content = content.trim_start().trim_start_matches('@').to_lowercase();
        let others = users_in(state)
            .filter(|user| user.id().is_some_and(|id| id.starts_with("lifeform:") && *id != *self.me.id.0));
        others.filter_map(|user| user.name()).any(|name| content.starts_with(&name.to_lowercase()))
    }

    /// Posts a message of a meeting, and pins the agenda. Returns `false` if the canvas refuses it.
    async fn post(
        &self,
        canvas: &Canvas,
        place: &ThreadRef,
        (meeting, post): (&Meeting, Post),
        source: &Arc<str>,
    ) -> Result<bool, LifeformError> {
        let (topic, id) = (&place.topic, meeting.id(post));
        let mut say = chat::Op::say(topic, id.clone(), Texts(meeting).post(post), None);
        if let chat::Op::Append { answers, .. } = &mut say {
            *answers = meeting.answered_by(post);
        }
        let is_posted = self.apply(canvas, say, source).await?;
        if is_posted && post == Post::Agenda && meeting.pinned.as_deref() != Some(&*id) {
            self.apply(canvas, chat::Op::TopicPin { id: topic.clone(), message: Some(id) }, source).await?;
        }
        Ok(is_posted)
    }

    async fn amend(
        &self,
        canvas: &Canvas,
        place: &ThreadRef,
        (meeting, post): (&Meeting, Post),
        source: &Arc<str>,
    ) -> Result<bool, LifeformError> {
        let (topic, id, content) = (place.topic.clone(), meeting.id(post), Texts(meeting).post(post));
        let amend = chat::Op::Amend { topic, id, content, reason: String::new(), behind: Vec::new() };
        self.apply(canvas, amend, source).await
    }

    /// Applies an op of the coordinator. Returns `false` if the canvas refuses it.
    async fn apply(&self, canvas: &Canvas, op: impl Into<Op>, source: &Arc<str>) -> Result<bool, LifeformError> {
        match canvas.apply(op.into(), None, None, &self.because(source.clone())).await {
            Ok(_) => Ok(true),
            Err(LifeformError::Refused(refusal)) => {
                tracing::debug!(lifeform = %self.head.id, %refusal, "a coordinator's op is refused");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a changed state of a meeting into the mind.
    async fn record(
        &mut self,
        canvas: &Canvas,
        place: &ThreadRef,
        meeting: &Meeting,
        source: &Arc<str>,
    ) -> Result<(), LifeformError> {
        let state = Hash::of(format!("{} {}", meeting.rev, meeting.state()).as_bytes());
        if self.recorded.get(place) == Some(&state) {
            return Ok(());
        }
        let host = Some(format!("lifeform:{}", canvas.lifeform())).filter(|host| **host != *self.me.id.0);
        let audience: BTreeSet<String> = meeting.people.keys().map(|who| who.to_string()).chain(host).collect();
        let (stream, origin) = (canvas.stream().to_string(), self.because(source.clone()));
        self.memory.record_meeting(meeting, (place, &stream), &audience, &origin).await?;
        self.recorded.insert(place.clone(), state);
        Ok(())
    }

    /// Stores the next time at which the meeting is looked at; `None` if only a word of others changes it.
    async fn wake_for_meeting(
        &self,
        place: &ThreadRef,
        at: Option<Timestamp>,
        source: &Arc<str>,
    ) -> Result<(), LifeformError> {
        if self.plans.agenda().meeting_at(place) == at {
            return Ok(());
        }
        let origin = self.because(source.clone());
        let planned = self.plans.change(&origin, "meeting", |agenda, _| {
            agenda.plan_meeting(place, at);
            Ok(())
        });
        planned.await
    }
}
