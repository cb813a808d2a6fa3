//! The dispatch of replies, as far as the nutrients allow.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{FascicleError, FascicleId, JobOrder};
use neurons::tools::EffectScope;
use store::ledger::Amount;
use store::{Event, Hash, Origin, PrincipalId, Timestamp};

use super::{LifeformState, is_passing};
use crate::LifeformError;
use crate::attention::{Next, TOPICS_EACH_MAX};
use crate::canvas::chat::MessageStatus;
use crate::canvas::{Refusal, Skill, chat};
use crate::guard::Step;
use crate::homeostasis::{Request, Task};
use crate::life::{Mailbox, Status};
use crate::metabolism::{Means, Mode};
use crate::perception::{ActiveReply, PerceivedMessage, Perception, ThreadRef};
use crate::reminders::Language;
use crate::tools::PERCEPTION;

impl LifeformState {
    /// Starts replies to the waiting messages, as far as the nutrients allow. In a storm, replies start only at a
    /// heartbeat.
    pub(crate) async fn attend(&mut self, me: &Mailbox, by_beat: bool) -> Result<(), LifeformError> {
        self.look_after_itself().await?;
        match self.head.guard.step {
            Step::Calm => {}
            Step::Coalesce | Step::Inhibit if by_beat => {}
            Step::Quarantine => return self.say_that_it_is_quarantined().await,
            _ => return Ok(()),
        }
        let means = self.current_means().await?;
        let needed = self.need(means);
        // The topics in which the lifeform has to wait for its turn.
        let mut not_now: BTreeSet<ThreadRef> = BTreeSet::new();
        while let Some(mut next) = self.attention.next(|place| !not_now.contains(place)) {
            next.perception.supply = self.supply(means).await?;
            let to_answer = next.perception.to_answer();
            // Answers by rule cost nothing, and memory settles some questions without a model.
            let mut costs = to_answer && !next.perception.is_answered_by_rule();
            if costs && (self.head.status == Status::Dormant || !self.free().await?.covers(needed)) {
                next.perception.supply.mode = Mode::Eco;
                let origin = self.because(next.perception.last().source.clone());
                next.perception.by_memory = self.tools.can_quote(&next.perception, &origin).await;
                costs = !next.perception.by_memory;
            }
            let needed = if costs { needed } else { Amount::default() };
            if costs && self.head.status == Status::Dormant {
                self.say_that_it_rests(&next.perception).await?;
                not_now.insert(next.perception.place);
                continue;
            }
            // A participant without nutrients does not block the others of a topic.
            next.perception.payer = self.payer_of(&next.perception, needed).await?;
            let participant = self.participant_of(&next.perception);
            if let Some(who) = &participant
                && !self.has_room_for(who, &next.perception, needed).await?
            {
                not_now.insert(next.perception.place);
                continue;
            }
            // The amount that running answers may still use is reserved.
            if costs && !self.is_released(self.of_answer(&next.perception), needed).await? {
                not_now.insert(next.perception.place);
                continue;
            }
            if costs && self.head.mode == Mode::Eco && self.head.in_want {
                self.say_that_it_is_in_want(&next.perception).await?;
            }
            let place = next.perception.place.clone();
            match self.start_reply_job(me, next, means).await {
                // The next heartbeat retries.
                Err(LifeformError::Fascicle(FascicleError::Overloaded)) => break,
                // A thought that cannot start does not block the others.
                Err(LifeformError::Fascicle(error)) if !is_passing(&error) => {
                    tracing::error!(lifeform = %self.head.id, %error, "a thought cannot be begun");
                    not_now.insert(place);
                }
                // Another job used the account at the same moment.
                Err(LifeformError::Fascicle(FascicleError::Store(error))) if error.is_ledger_refusal() => {
                    not_now.insert(place);
                }
                Ok(false) => drop(not_now.insert(place)),
                begun => {
                    begun?;
                    self.counts.act(self.store.clock().now(), participant);
                }
            }
        }
        Ok(())
    }

    /// Returns `who` if it is a participant, for whom shares limit everything; `None` for operators and the lifeforms of
    /// this daemon.
    pub(super) fn participant(&self, who: &str) -> Option<PrincipalId> {
        self.fascicles.neurons().participant(who)
    }

    /// Returns the request of an answer to release tokens.
    fn of_answer<'p>(&self, perception: &'p Perception) -> Request<'p> {
        let person = &*perception.last().sender;
        Request { task: Task::Answer, by: self.sort_of(person), person, ..Request::default() }
    }

    /// Returns the participant that a perception serves; `None` if an operator also asked. Messages of lifeforms of
    /// this daemon do not lift the limit.
    pub(super) fn participant_of(&self, perception: &Perception) -> Option<PrincipalId> {
        let asked = self.participants_of(perception)?;
        let payer = perception.payer.clone().filter(|payer| asked.contains(payer));
        payer.or_else(|| asked.into_iter().next())
    }

    /// Returns the first participant that asked and whose shares have room for an answer.
    async fn payer_of(&self, perception: &Perception, needed: Amount) -> Result<Option<PrincipalId>, LifeformError> {
        let Some(asked) = self.participants_of(perception).filter(|asked| asked.len() > 1) else { return Ok(None) };
        let now = self.store.clock().now();
        let account = self.store.account(&self.head.id).await?.unwrap_or_default();
        let has_room = |who: &PrincipalId| {
            !self.counts.job_share_used_up(who, &self.limits, now)
                && self.attention.busy_with(&who.0) < TOPICS_EACH_MAX
                && account.share_left(&who.0, now).is_none_or(|left| left.covers(needed))
        };
        Ok(asked.into_iter().find(has_room))
    }

    /// Returns the participants that asked, each once; `None` if an operator also asked.
    fn participants_of(&self, perception: &Perception) -> Option<Vec<PrincipalId>> {
        let is_of_the_house =
            |who: &str| who.starts_with("system:") || (who.starts_with("lifeform:") && self.participant(who).is_none());
        let (asked, others): (Vec<&PerceivedMessage>, Vec<&PerceivedMessage>) =
            perception.said.iter().partition(|said| said.to_answer);
        let said = if asked.is_empty() { others } else { asked };
        let said = said.into_iter().filter(|said| !is_of_the_house(&said.sender));
        let whose: Option<Vec<PrincipalId>> = said.map(|said| self.participant(&said.sender)).collect();
        let mut seen = BTreeSet::new();
        whose.map(|whose| whose.into_iter().filter(|who| seen.insert(who.0.clone())).collect())
    }

    /// Returns `true` if the shares of a participant have room for another job, topic and reply. A participant without
    /// nutrients receives a message, once an hour per topic.
    async fn has_room_for(
        &self,
        who: &PrincipalId,
        perception: &Perception,
        needed: Amount,
    ) -> Result<bool, LifeformError> {
        let now = self.store.clock().now();
        if self.counts.job_share_used_up(who, &self.limits, now) || self.attention.busy_with(&who.0) >= TOPICS_EACH_MAX
        {
            return Ok(false);
        }
        if !perception.to_answer() {
            return Ok(true);
        }
        let account = self.store.account(&self.head.id).await?.unwrap_or_default();
        let Some(left) = account.share_left(&who.0, now).filter(|left| !left.covers(needed)) else { return Ok(true) };
        let left = Amount { tokens: left.tokens.max(0), micro_usd: left.micro_usd.max(0) };
        let hour = now.as_second().div_euclid(3_600);
        let next = Timestamp::from_second((hour + 1) * 3_600).unwrap_or(now);
        // If the participant has running answers, part of their reservations may come back.
        if self.attention.busy_with(&who.0) == 0 {
            let content = match Language::of(&perception.last().content) {
                Language::English => format!(
                    "I keep some of what I have for others: you have {left} left in this hour, which does not pay for an answer. I \
                     answer when the next hour begins, at {next}. An operator can raise your share."
                ),
                Language::Chinese => {
                    format!(
                        "我要给别人留一些额度：你这一小时的份额不够回答了。下一小时开始时（{next}）我会回答。管理员可以提高你的份额。"
                    )
                }
                Language::Japanese => format!(
                    "ほかの人の分も残しておくため、この一時間のあなたの分では答えられません。次の一時間が始まったら（{next}）お答えします。管理者が割り当てを増やせます。"
                ),
            };
            let name = format!("share_{hour}_{}", &Hash::of(who.0.as_bytes()).hex()[..12]);
            let answered = perception.last().reply_to();
            self.say_by_reflex(&perception.place, perception.last(), &name, content, answered).await?;
        }
        Ok(false)
    }

    /// Returns `true` if all authors of the words that an answer may rest on are trusted. In a topic, these are all who
    /// ever posted, since the lifeform's own messages may repeat their words. In a mind map, which the prompt shows
    /// completely, these are all writers.
    fn trusts_all_of(&self, perception: &Perception) -> bool {
        let ThreadRef { canvas, topic } = &perception.place;
        let now = perception.said.iter().all(|said| self.trusts(&said.sender));
        let Some(canvas) = self.canvases.get(canvas) else { return now };
        let state = canvas.snapshot().state;
        let is_trusted = |who: &str| *who == *self.me.id.0 || self.trusts(who);
        now && canvas.kind.rules().writers(&state, topic, canvas.by.as_ref()).into_iter().all(is_trusted)
    }

    /// Returns `true` if the requests of a principal may change something outside without an approval.
    pub(super) fn trusts(&self, who: &str) -> bool {
        self.head.definition.trusts(who)
    }

    /// Returns the time of the first message that a perception answers.
    fn said_at(&self, perception: &Perception) -> Option<Timestamp> {
        let state = self.canvases.get(&perception.place.canvas)?.snapshot().state;
        let times = perception.said.iter().filter_map(|said| {
            chat::message_in(&state, &perception.place.topic, &said.message).and_then(|message| message.at())
        });
        times.min()
    }

    /// Starts the job for a thought. The start and the new read position share a commit. Returns `false` if it is not
    /// the lifeform's turn, where lifeforms answer one at a time.
    pub(super) async fn start_reply_job(
        &mut self,
        me: &Mailbox,
        next: Next,
        means: Means,
    ) -> Result<bool, LifeformError> {
        let reading = self.attention.reading_with(&next);
        let Next { mut perception, extended, .. } = next;
        self.see_as_it_stands(&mut perception);
        let origin = Origin::new(self.me.clone(), perception.cause()).on_behalf_of(self.participant_of(&perception));
        let job = self.job_name(&perception);
        let definition = &self.head.definition;
        let skill = self.canvases.get(&perception.place.canvas).map(|canvas| canvas.kind.rules().skill());
        let skill = match (skill, perception.to_answer(), self.head.guard.step) {
            (Some(Skill::CoAuthor), ..) => &definition.co_author,
            (_, false, _) => &definition.heed,
            (_, true, Step::Inhibit) => &definition.inhibit,
            (_, true, _) => &definition.reply,
        };
        let fascicle = match self.named_fascicle(&perception).await {
            Some(named) => named,
            None => skill.variant(self.head.mode, means.tools).clone(),
        };
        perception.supply.tools = skill.gives_tools(&fascicle);
        perception.supply.storm = perception.to_answer() && self.head.guard.step == Step::Inhibit;
        let untrusted = !self.trusts_all_of(&perception);
        // Who may cause a change outside may also approve what a tool asks about.
        let asked = perception.said.iter().map(|said| &said.sender).filter(|sender| self.trusts(sender));
        let mut approvers: Vec<PrincipalId> = asked.map(|sender| PrincipalId::new(sender.clone())).collect();
        approvers.dedup();
        let costs = perception.to_answer() && !perception.is_answered_by_rule() && !perception.by_memory;
        let reserve = if costs { self.need(means) } else { Amount::default() };
        let content = serde_json::to_value(&perception).unwrap_or_default();
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle,
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(PERCEPTION, content, origin.cause.clone())],
            tier: Some(means.tier),
            output_tokens_max: Some(means.output_tokens_max),
            untrusted,
            approvers,
            reserve,
            scope: Some(EffectScope { since: self.said_at(&perception), ..perception.effect_scope() }),
            ..JobOrder::default()
        };
        let thought = ActiveReply { job: job.clone(), perception, extended };
        if !self.open_turn(&thought, &origin).await? {
            return Ok(false);
        }
        let cursor = self.cursor(&thought.perception.place.canvas);
        let kept = reading.clone();
        let started =
            self.fascicles.start(&origin, order, self.toolbox.clone(), |batch| batch.put(cursor, &kept)).await;
        if let Err(error) = started {
            self.close_off(&thought, "it could not be begun").await;
            return Err(error.into());
        }
        self.attention.take_up(thought, reading);
        self.watch(me, job);
        Ok(true)
    }

    /// Returns the fascicle that the rules of perception name for all messages that are processed together. In a storm,
    /// and if it does not exist, the lifeform's own fascicles take its place.
    async fn named_fascicle(&self, perception: &Perception) -> Option<FascicleId> {
        let mut said = perception.said.iter().filter(|said| said.to_answer == perception.to_answer());
        let named = said.next()?.fascicle.clone()?;
        let is_of_all = said.all(|other| other.fascicle.as_ref() == Some(&named));
        if !is_of_all || self.head.guard.step == Step::Inhibit {
            return None;
        }
        match self.fascicles.get(&named).await {
            Ok(_) => Some(named),
            Err(error) => {
                tracing::warn!(lifeform = %self.head.id, %error, "a rule of perception names a fascicle that does not exist");
                None
            }
        }
    }

    /// Returns the job name `{lifeform}.{topic}.r{rev}`. On a canvas of another lifeform, it includes the canvas; for a
    /// later attempt, the number of the attempt.
    pub(super) fn job_name(&self, perception: &Perception) -> Arc<str> {
        let rev = perception.said.iter().map(|said| said.rev).max().unwrap_or(0);
        self.job_at(&perception.place, rev, perception.tries)
    }

    /// Returns the name of the job that answers a place at a revision.
    pub(super) fn job_at(&self, ThreadRef { canvas, topic }: &ThreadRef, rev: u64, tries: u32) -> Arc<str> {
        // The id of a node can be as long as a name.
        let is_long = topic.len() > chat::TOPIC_ID_MAX;
        let short = || Hash::of(topic.as_bytes()).hex()[..16].to_owned();
        let place = if is_long { short() } else { topic.to_string() };
        let mut name = format!("{}.{place}.", self.head.id);
        if **canvas != *self.home() {
            name.push_str(&Hash::of(canvas.as_bytes()).hex()[..8]);
            name.push('.');
        }
        name.push_str(&format!("r{rev}"));
        if tries > 0 {
            name.push_str(&format!("x{tries}"));
        }
        name.into()
    }

    /// Updates the messages to their present text. They may have been amended while they waited.
    pub(super) fn see_as_it_stands(&self, perception: &mut Perception) {
        let place = &perception.place;
        let ThreadRef { canvas, topic } = place;
        let Some(canvas) = self.canvases.get(canvas) else { return };
        let state = canvas.snapshot().state;
        for said in &mut perception.said {
            let message = chat::message_in(&state, topic, &said.message);
            if let Some(message) = message.filter(|message| message.status() == MessageStatus::Final) {
                said.content = message.content().to_owned();
                said.hide_secrets(place);
            }
        }
    }

    /// Opens the answer's message before the thought, where lifeforms answer one at a time. The canvas admits one of
    /// them.
    pub(super) async fn open_turn(&self, thought: &ActiveReply, origin: &Origin) -> Result<bool, LifeformError> {
        let Perception { place: ThreadRef { canvas, topic }, resumes, .. } = &thought.perception;
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(false) };
        let is_in_turns = {
            let state = canvas.snapshot().state;
            chat::topic_in(&state, topic).is_some_and(|topic| topic.turns() == chat::Turns::OneAtATime)
        };
        if !is_in_turns || !thought.perception.to_answer() {
            return Ok(true);
        }
        let reply_to = thought.perception.last().reply_to();
        let supplements = resumes.clone();
        let op =
            chat::Op::Open { topic: topic.clone(), id: thought.answer(), reply_to, supplements, answers: Vec::new() };
        match canvas.apply(op, None, None, origin).await {
            Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => Ok(true),
            Err(LifeformError::Refused(Refusal::State(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
