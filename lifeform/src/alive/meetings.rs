//! The topics that the lifeform coordinates: after each word there, and when a time comes, it posts what the state of the
//! meeting asks for ([`Meeting`]), and writes the state into the mind. No model is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::{Hash, Role, Timestamp};

use super::LifeformState;
use crate::LifeformError;
use crate::canvas::chat::Stance;
use crate::canvas::{Canvas, Op, State, chat};
use crate::meeting::{Meeting, Post, Request, Texts, request};
use crate::perception::{Change, PerceivedMessage, ThreadRef};

/// The maximum number of messages that one change leads to.
const POSTS_AT_ONCE: usize = 8;

impl LifeformState {
    /// Posts what a meeting asks for now, if the lifeform coordinates the topic. A repetition posts nothing twice.
    pub(super) async fn coordinate(&mut self, place: &ThreadRef, source: Arc<str>) -> Result<(), LifeformError> {
        let canvas = self.canvases.get(&place.canvas).filter(|canvas| canvas.kind.is(chat::NAME));
        let Some(canvas) = canvas else { return self.wake_for_meeting(place, None, &source).await };
        for _ in 0..POSTS_AT_ONCE {
            let state = canvas.snapshot().state;
            let Some(meeting) = self.meeting_in(&state, &place.topic) else {
                self.recorded.remove(place);
                return self.wake_for_meeting(place, None, &source).await;
            };
            if meeting.posted.is_none() {
                self.post(&canvas, place, (&meeting, Post::Agenda), &source).await?;
                continue;
            }
            let is_posted = |id: &str| chat::message_in(&state, &place.topic, id).is_some();
            let (posts, next) = meeting.due(self.store.clock().now(), is_posted);
            if posts.is_empty() {
                self.amend_agenda(&canvas, place, &meeting, &source).await?;
                self.record(&canvas, place, &meeting, &source).await;
                return self.wake_for_meeting(place, next, &source).await;
            }
            for post in posts {
                self.post(&canvas, place, (&meeting, post), &source).await?;
            }
        }
        tracing::warn!(lifeform = %self.head.id, topic = %place.topic, "a meeting does not come to rest");
        Ok(())
    }

    /// Takes the stance for which a message of a moderator asks. Returns `true` if the message asked for one.
    pub(super) async fn take_stance_as_asked(
        &self,
        canvas: &Canvas,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<bool, LifeformError> {
        // A coordinator hears it, too, where it is not called.
        let is_meant = said.to_answer || self.coordinates(canvas, &place.topic);
        let is_request = is_meant && said.change == Change::New && canvas.kind.is(chat::NAME);
        let Some(request) = is_request.then(|| request(&said.content)).flatten() else { return Ok(false) };
        let is_operator = self.fascicles.neurons().least_principal(&said.sender).may(Role::Operator);
        if !is_operator && !self.moderates(place, &said.sender) {
            return Ok(false);
        }
        let (stance, agenda) = match request {
            Request::Coordinate(agenda) => (Stance::Coordinator, agenda),
            Request::Stop => (Stance::Participant, Vec::new()),
        };
        let (id, who) = (place.topic.clone(), self.me.id.clone());
        self.apply(canvas, chat::Op::TopicStance { id, who, stance, agenda, until: None }, &said.source).await?;
        Ok(true)
    }

    /// Coordinates the topics whose time has come.
    pub(super) async fn coordinate_due(&mut self, now: Timestamp) -> Result<(), LifeformError> {
        for place in self.plans.agenda().meetings_due(now) {
            self.coordinate(&place, "agenda".into()).await?;
        }
        Ok(())
    }

    fn meeting_in(&self, state: &State, topic: &str) -> Option<Meeting> {
        let is_operator = |who: &str| self.fascicles.neurons().least_principal(who).may(Role::Operator);
        Meeting::read(state, topic, &self.me.id.0, is_operator)
    }

    /// Posts a message of a meeting, and pins the agenda. A refused message is left out.
    async fn post(
        &self,
        canvas: &Canvas,
        place: &ThreadRef,
        (meeting, post): (&Meeting, Post),
        source: &Arc<str>,
    ) -> Result<(), LifeformError> {
        let (topic, id) = (&place.topic, post.id(meeting.rev));
        let say = chat::Op::say(topic, id.clone(), Texts(meeting).post(post), None);
        self.apply(canvas, say, source).await?;
        if post == Post::Agenda && meeting.pinned.as_deref() != Some(&*id) {
            self.apply(canvas, chat::Op::TopicPin { id: topic.clone(), message: Some(id) }, source).await?;
        }
        Ok(())
    }

    async fn amend_agenda(
        &self,
        canvas: &Canvas,
        place: &ThreadRef,
        meeting: &Meeting,
        source: &Arc<str>,
    ) -> Result<(), LifeformError> {
        let content = Texts(meeting).agenda();
        if meeting.posted.as_ref() == Some(&content) {
            return Ok(());
        }
        let (topic, id) = (place.topic.clone(), Post::Agenda.id(meeting.rev));
        let amend = chat::Op::Amend { topic, id, content, reason: String::new(), behind: Vec::new() };
        self.apply(canvas, amend, source).await
    }

    async fn apply(&self, canvas: &Canvas, op: impl Into<Op>, source: &Arc<str>) -> Result<(), LifeformError> {
        match canvas.apply(op.into(), None, None, &self.because(source.clone())).await {
            Ok(_) => Ok(()),
            Err(LifeformError::Refused(refusal)) => {
                tracing::debug!(lifeform = %self.head.id, %refusal, "a coordinator's op is refused");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a changed state of a meeting into the mind. A state that cannot be written is written with the next change.
    async fn record(&mut self, canvas: &Canvas, place: &ThreadRef, meeting: &Meeting, source: &Arc<str>) {
        let state = Hash::of(format!("{} {}", meeting.rev, Texts(meeting).agenda()).as_bytes());
        if self.recorded.get(place) == Some(&state) {
            return;
        }
        let host = format!("lifeform:{}", canvas.lifeform());
        let audience: BTreeSet<String> = meeting
            .people
            .keys()
            .map(|who| who.to_string())
            .chain(Some(host).filter(|host| **host != *self.me.id.0))
            .collect();
        let stream = canvas.stream().to_string();
        let origin = self.because(source.clone());
        match self.memory.record_meeting(meeting, (place, &stream), &audience, &origin).await {
            Ok(()) => drop(self.recorded.insert(place.clone(), state)),
            Err(error) => tracing::warn!(lifeform = %self.head.id, %error, "a meeting is not recorded"),
        }
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
