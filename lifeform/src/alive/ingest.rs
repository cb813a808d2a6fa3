//! The perception of canvas entries. New messages wait for an answer, and may interrupt the present one.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fascicles::FascicleError;
use jiff::SignedDuration;
use store::{Batch, Cause, Entry, PrincipalId};
use tokio::sync::oneshot;

use super::approvals::waits_unsure;
use super::{LifeformState, next_of};
use crate::LifeformError;
use crate::attention::{HEARD_EACH_MAX, Reading};
use crate::canvas::chat::{MessageStatus, MessageView, TopicView};
use crate::canvas::user::name_in;
use crate::canvas::{Canvas, Op, Skill, chat};
use crate::life::{Mailbox, Msg, Status};
use crate::perception::{
    self, ActiveReply, CanvasEvent, Change, Heard, Incoming, Me, PassedOver, PerceivedMessage, Preemption,
    ReplyProgress, ThreadRef,
};
use crate::shared_knowledge::Answer;

impl LifeformState {
    /// Starts to read a canvas from the stored read position.
    pub(super) async fn listen(&mut self, me: &Mailbox, canvas: &Canvas) {
        let name: Arc<str> = canvas.name().into();
        canvas.unloaded_members().reads(&self.head.id).await;
        self.introduce(canvas).await;
        let from = self.hear_what_was_cut(canvas).await;
        Box::pin(self.coordinate_all(canvas)).await;
        let mut follow = self.store.follow(canvas.stream().clone(), from);
        let (me, of, mut published) = (me.clone(), name.clone(), canvas.newest());
        let reader = tokio::spawn(async move {
            while let Some(entry) = next_of(&mut follow).await {
                // An entry is committed before it is published. Its meaning needs the canvas after it.
                if published.wait_for(|rev| *rev >= entry.seq).await.is_err() {
                    break;
                }
                let (taken_in, wait) = oneshot::channel();
                if me.cast(Msg::Heard(of.clone(), Box::new(entry), taken_in)).is_err() || wait.await.is_err() {
                    break;
                }
            }
        });
        if let Some(before) = self.readers.insert(name, reader) {
            before.abort();
        }
    }

    /// Processes the messages that were cut from the log by a permanent removal, in their present state. Returns the
    /// revision from which the log is read on.
    async fn hear_what_was_cut(&mut self, canvas: &Canvas) -> u64 {
        let (snapshot, name) = (canvas.snapshot(), Arc::from(canvas.name()));
        let heard = self.attention.heard(&name);
        if heard >= snapshot.floor || !canvas.kind.is(chat::NAME) {
            return heard.max(snapshot.floor);
        }
        let young = self.store.clock().now() - SignedDuration::from_hours(24) * canvas.keep_days();
        let mut missed = Vec::new();
        for topic in chat::topics_in(&snapshot.state).map(TopicView::id) {
            for message in chat::messages_in(&snapshot.state, topic) {
                let (Some(at), by) = (message.at(), message.sender()) else { continue };
                let missed_op = missed_of(message, topic, heard..snapshot.floor);
                // Messages that are too old are not answered any more.
                let Some((seq, op)) = missed_op.filter(|(_, op)| at >= young || !matches!(op, chat::Op::Append { .. }))
                else {
                    continue;
                };
                let (by, data) = (PrincipalId::new(by), Bytes::from_static(b"null"));
                missed.push((Entry { seq, at, by, cause: Cause::default(), kind: op.name().into(), data }, op));
            }
        }
        missed.sort_by_key(|(entry, _)| entry.seq);
        for (entry, op) in missed {
            if let Err(error) = self.process_op(canvas, &entry, op.into()).await {
                tracing::warn!(lifeform = %self.head.id, %error, "what was said before the log was cut is not heard");
            }
        }
        snapshot.floor
    }

    /// Adds the lifeform's name to the users of a canvas, so that users can mention it.
    pub(super) async fn introduce(&self, canvas: &Canvas) {
        let known = canvas.snapshot().state;
        let name = &self.head.definition.name;
        let is_known = name_in(&known, &self.me.id.0) == Some(&**name);
        if is_known || !canvas.kind.is(chat::NAME) || canvas.name() == self.home() {
            return;
        }
        let op = chat::Op::UserName { name: name.clone() };
        if let Err(error) = canvas.apply(op, None, None, &self.because("join")).await {
            tracing::warn!(lifeform = %self.head.id, %error, "it cannot introduce itself");
        }
    }

    pub(crate) async fn join(&mut self, me: &Mailbox, canvas: Canvas) -> Result<(), LifeformError> {
        if self.readers.contains_key(canvas.name()) {
            return Ok(());
        }
        let mut reading = self.reading_of(&canvas).await?;
        if reading == Reading::default() {
            // The lifeform does not perceive messages from before it joined.
            reading.upto = canvas.rev();
            let kept = Batch::new(&self.because("join")).put(self.cursor(canvas.name()), &reading);
            self.store.commit(kept).await?;
        }
        self.attention.listen(&canvas.name().into(), reading);
        self.canvases.join(canvas.clone());
        self.listen(me, &canvas).await;
        Ok(())
    }

    pub(crate) async fn leave(&mut self, canvas: &Arc<str>) -> Result<(), LifeformError> {
        // Its running replies on the canvas are interrupted.
        for thought in self.attention.thoughts_on(canvas) {
            self.break_off(thought, None, "it left").await?;
        }
        if let Some(reader) = self.readers.remove(canvas) {
            reader.abort();
        }
        self.attention.leave(canvas);
        self.canvases.leave(canvas);
        Ok(())
    }

    /// Processes an entry of a canvas. A message waits for an answer, and may interrupt the present one.
    pub(crate) async fn hear(&mut self, canvas: &Arc<str>, entry: &Entry) -> Result<(), LifeformError> {
        self.attention.pass(canvas, entry.seq);
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(()) };
        let Some(op) = Op::of_entry(&canvas.kind, entry) else { return Ok(()) };
        let meeting = self.meeting_of(&canvas, entry, &op);
        self.process_op(&canvas, entry, op).await?;
        if let Some(place) = meeting {
            let source = format!("{}@{}", canvas.stream(), entry.seq).into();
            Box::pin(self.coordinate(&place, source)).await;
        }
        Ok(())
    }

    async fn process_op(&mut self, canvas: &Canvas, entry: &Entry, op: Op) -> Result<(), LifeformError> {
        let (rules, fault) = self.perceiving.of(&self.fascicles, &self.head.definition.perceive).await?;
        if self.passed.set_fault(fault.as_deref()) {
            tracing::warn!(lifeform = %self.head.id, fault, "the shipped rules of perception decide");
        }
        let source: Arc<str> = format!("{}@{}", canvas.stream(), entry.seq).into();
        let heard = {
            let me = Me { id: &self.me.id, name: &self.head.definition.name, home_of: canvas.lifeform() };
            let by = self.sort_of(&entry.by.0);
            let hour = self.store.clock().now().to_zoned(self.head.definition.zone()).hour();
            let state = &canvas.snapshot().state;
            let incoming = Incoming { me, canvas: canvas.name(), entry, state, by, mode: self.head.mode, hour };
            perception::perceive(&rules, &canvas.kind, incoming, op)
        };
        let Some(Heard { event, rule }) = heard else { return Ok(()) };
        let place = |topic| ThreadRef { canvas: canvas.name().into(), topic };
        match event {
            Some(CanvasEvent::PerceivedMessage(topic, mut said)) => {
                let place = place(topic);
                said.source = source;
                said.hide_secrets(&place);
                if !self.attention.has(&place, said.rev) {
                    if said.change != Change::Act && Box::pin(self.hear_decision(&place, &said)).await? {
                        return Ok(());
                    }
                    let (now, whose) = (self.store.clock().now(), self.participant(&said.sender));
                    let is_too_much = whose.as_ref().is_some_and(|who| {
                        self.attention.waiting_of(&who.0) >= HEARD_EACH_MAX
                            || self.counts.has_said_its_share(who, &self.limits, now)
                    });
                    if is_too_much && said.change == Change::Act {
                        return Ok(());
                    }
                    if is_too_much && said.change == Change::New {
                        return self.say_that_it_passes_over(&place, &said).await;
                    }
                    if self.take_stance_as_asked(canvas, &place, &said).await? {
                        said.to_answer = false;
                    }
                    if said.change != Change::Act && self.hear_of_goal(&place, &said).await? {
                        return Ok(());
                    }
                    self.drop_what_was_asked(&place, &said).await?;
                    // Changes beyond a participant's share are perceived, but do not interrupt a reply.
                    if !is_too_much {
                        self.counts.heard(now, whose);
                        self.apply_to_running_reply(&place, &mut said).await?;
                    }
                    self.make_room_for(&place, &said).await?;
                    if let Err(error) = Box::pin(self.add_to_answer(canvas, &place.topic, &said)).await {
                        tracing::warn!(lifeform = %self.head.id, %error, "nothing is added to an answer");
                    }
                    self.attention.hear(place, *said);
                }
            }
            Some(CanvasEvent::BrokenOff(topic, message)) => {
                let thought = self.attention.thought(&place(topic)).cloned();
                if let Some(thought) = thought.filter(|thought| thought.answer() == message) {
                    self.break_off(thought, None, "").await?;
                }
            }
            Some(CanvasEvent::Judged(topic, message, helpful)) => {
                let answer = chat::message_in(&canvas.snapshot().state, &topic, &message).map(Answer::of);
                let cause = Cause::of(format!("{}@{}", canvas.stream(), entry.seq));
                if let Some(answer) = answer
                    && let Err(error) =
                        self.tools.judge((canvas, &topic), &answer, (&entry.by.0, helpful), &cause).await
                {
                    tracing::warn!(lifeform = %self.head.id, %error, "judgement of an answer not counted");
                }
            }
            None => {
                let (op, at) = (entry.kind.clone(), entry.at);
                self.passed.add(PassedOver { source, op, rule, at });
            }
        }
        Ok(())
    }

    /// Resumes readers that waited for room. If there is no room, `reader` waits too.
    pub(crate) fn let_read_on(&mut self, reader: Option<oneshot::Sender<()>>) {
        self.held_readers.extend(reader);
        if !self.attention.is_full() {
            self.held_readers.drain(..).for_each(|reader| {
                let _ = reader.send(());
            });
        }
    }

    /// Applies the effect of a newer message on the reply in its topic.
    pub(super) async fn apply_to_running_reply(
        &mut self,
        place: &ThreadRef,
        said: &mut PerceivedMessage,
    ) -> Result<(), LifeformError> {
        let Some(thought) = self.attention.thought(place).cloned() else { return Ok(()) };
        let is_operator = said.sender.starts_with("user:") && self.participant(&said.sender).is_none();
        let moderates = is_operator || said.sender.starts_with("system:") || self.moderates(place, &said.sender);
        // Other words of the asker withdraw a call that waits for an approval. Messages of other people wait with the topic.
        let waits = self.fascicles.job(&thought.job).await.map(|head| head.waits).unwrap_or_default();
        // What nobody knows is settled before anything else is done.
        let (is_unsure, waits) = (waits_unsure(&waits), !waits.is_empty());
        let is_asker = thought.perception.said.iter().any(|known| known.sender == said.sender);
        let speech = if waits { ReplyProgress::Silent } else { self.speech(&thought) };
        let bearing = perception::bearing(said, &thought, speech, moderates);
        // Changes on a map are not made twice.
        let is_edit = |canvas: Canvas| canvas.kind.rules().skill() == Skill::CoAuthor;
        let edits = self.canvases.get(&place.canvas).is_some_and(is_edit);
        let stays = edits || self.attention.is_torn(&place.canvas) || is_unsure || (waits && !is_asker);
        match bearing {
            Preemption::Extends | Preemption::Redirects if stays => Ok(()),
            Preemption::Waits => Ok(()),
            Preemption::Extends => self.break_off(thought, Some(true), "more was said").await,
            Preemption::Redirects => self.break_off(thought, Some(false), "something more urgent was said").await,
            Preemption::Replaces => self.break_off(thought, None, "something else was wanted instead").await,
            Preemption::Cancels => {
                said.to_answer = false;
                self.break_off(thought, None, "it was not wanted any more").await
            }
        }
    }

    /// Returns `true` if a principal opened a topic or moderates it.
    pub(super) fn moderates(&self, ThreadRef { canvas, topic }: &ThreadRef, who: &str) -> bool {
        let Some(canvas) = self.canvases.get(canvas) else { return false };
        let state = canvas.snapshot().state;
        chat::topic_in(&state, topic)
            .is_some_and(|topic| topic.is_created_by(who) || topic.role_of(who) == Some(chat::TopicRole::Moderator))
    }

    /// Interrupts the newest answer to a participant, to complete it later, if all places are taken and a message of an
    /// operator comes in another topic.
    async fn make_room_for(&mut self, place: &ThreadRef, said: &PerceivedMessage) -> Result<(), LifeformError> {
        let is_of_operator = said.sender.starts_with("user:") && self.participant(&said.sender).is_none();
        let comes_first = said.to_answer && is_of_operator && self.head.status == Status::Running;
        if !comes_first || self.attention.thought(place).is_some() {
            return Ok(());
        }
        match self.attention.is_full_of_thoughts() {
            true => self.put_off_newest("something more urgent was said elsewhere").await.map(drop),
            false => Ok(()),
        }
    }

    /// Interrupts the newest answer to a participant, to complete it later. Returns `true` if there is one that may wait.
    pub(super) async fn put_off_newest(&mut self, why: &str) -> Result<bool, LifeformError> {
        let Some(thought) = self.attention.newest_thought() else { return Ok(false) };
        let is_less = self.participant_of(&thought.perception).is_some()
            && !thought.perception.said.iter().any(|said| said.urgent)
            && !self.waits.contains(&thought.job)
            && !self.attention.is_torn(&thought.perception.place.canvas);
        let edits = self.canvases.get(&thought.perception.place.canvas);
        let edits = edits.is_some_and(|canvas| canvas.kind.rules().skill() == Skill::CoAuthor);
        let may_wait = is_less && !edits;
        if may_wait {
            self.break_off(thought, Some(false), why).await?;
        }
        Ok(may_wait)
    }

    pub(super) fn speech(&self, thought: &ActiveReply) -> ReplyProgress {
        let ThreadRef { canvas, topic } = &thought.perception.place;
        let state = self.canvases.get(canvas).map(|canvas| canvas.snapshot().state);
        let answer = state.as_ref().and_then(|state| chat::message_in(state, topic, &thought.answer()));
        match answer.map(MessageView::status) {
            None => ReplyProgress::Silent,
            Some(MessageStatus::Streaming) => ReplyProgress::Speaking,
            Some(_) => ReplyProgress::Over,
        }
    }

    /// Interrupts a reply: permanently (`None`), to restart it with newer messages (`Some(true)`), or to complete it
    /// after them (`Some(false)`). The repetition is stored before the job is cancelled.
    pub(super) async fn break_off(
        &mut self,
        thought: ActiveReply,
        again: Option<bool>,
        why: &str,
    ) -> Result<(), LifeformError> {
        let place = thought.perception.place.clone();
        let reading = again.map(|anew| self.attention.reading_without(&thought, anew));
        if let Some(reading) = &reading {
            let origin = self.because(thought.perception.last().source.clone());
            self.store.commit(Batch::new(&origin).put(self.cursor(&place.canvas), reading)).await?;
        }
        match self.fascicles.cancel(&self.me, &thought.job).await {
            Ok(_) | Err(FascicleError::JobNotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.unwatch(&thought.job);
        let speech = self.speech(&thought);
        self.close_off(&thought, why).await;
        // The reply may have been completed first. Then there is nothing to repeat.
        self.attention.give_up(&place, reading.filter(|_| speech != ReplyProgress::Over));
        Ok(())
    }

    /// Marks the streaming message of an ended thought as interrupted.
    pub(super) async fn close_off(&self, thought: &ActiveReply, why: &str) {
        let ThreadRef { canvas, topic } = &thought.perception.place;
        let Some(canvas) = self.canvases.get(canvas) else { return };
        let said = self.speaking.end(&thought.answer());
        // The op that opens the message may still be queued. This op comes after it.
        if self.speech(thought) != ReplyProgress::Over && canvas.kind.rules().skill() == Skill::Reply {
            // The text that subscribers have seen stays, as far as a message can hold it.
            if let Some(mut content) = said {
                content.truncate(content.floor_char_boundary(chat::CONTENT_BYTES_MAX));
                let op =
                    chat::Op::Checkpoint { topic: topic.clone(), id: thought.answer(), content, behind: Vec::new() };
                let _ = canvas.apply(op, None, None, &self.because(format!("job:{}", thought.job))).await;
            }
            // The length of a reason is limited, and an error may quote a provider's message.
            let reason: String = why.chars().take(240).collect();
            let op = chat::Op::Interrupt { topic: topic.clone(), id: thought.answer(), reason };
            let origin = self.because(format!("job:{}", thought.job));
            match canvas.apply(op, None, None, &origin).await {
                // The message was never opened, or it was completed.
                Ok(_) | Err(LifeformError::Refused(_)) => {}
                Err(error) => tracing::warn!(%error, "a message that is broken off cannot be marked so"),
            }
        }
    }
}

/// Returns the latest op on a message within the cut, with its revision; `None` if there is none. Each change moves the
/// message's own revision, so its order is used as the revision of its creation.
fn missed_of(message: MessageView<'_>, topic: &str, cut: Range<u64>) -> Option<(u64, chat::Op)> {
    let is_cut = |rev: &u64| *rev > cut.start && *rev <= cut.end;
    let (topic, id) = (Arc::from(topic), Arc::from(message.id()));
    let said = message.created_rev()?;
    let content = message.content().to_owned();
    match message.status() {
        MessageStatus::Final if is_cut(&said) => Some((said, chat::Op::say(&topic, id, content, None))),
        MessageStatus::Final if said <= cut.start => {
            let amended = message.revisions().filter_map(|past| past.rev()).max().filter(is_cut)?;
            Some((amended, chat::Op::Amend { topic, id, content, reason: String::new(), behind: Vec::new() }))
        }
        MessageStatus::Retracted if said <= cut.start => {
            let taken_back = message.rev().filter(is_cut)?;
            Some((taken_back, chat::Op::Retract { topic, id, reason: String::new() }))
        }
        _ => None,
    }
}
