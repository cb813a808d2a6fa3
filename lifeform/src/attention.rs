//! The messages that a lifeform has perceived and not answered yet. Plain bookkeeping: the next reply, the messages
//! that are answered together, and the read position of each canvas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Key, Kind};

use crate::perception::{ActiveReply, Change, PerceivedMessage, Perception, Supply, ThreadRef};

/// The maximum number of topics in which a lifeform answers at the same time.
const TOPICS_AT_ONCE: usize = 4;
/// The maximum number of thoughts that wait for a person's decision without taking a place.
const RESTING_MAX: usize = 64;
/// The maximum number of waiting messages. The lifeform reads on after it has answered some.
pub(crate) const HEARD_MAX: usize = 256;
/// The maximum number of waiting messages of one participant. Further messages of this participant are ignored.
pub(crate) const HEARD_EACH_MAX: usize = HEARD_MAX / 4;
/// The maximum number of topics in which the lifeform answers one participant at the same time.
pub(crate) const TOPICS_EACH_MAX: usize = TOPICS_AT_ONCE - 1;
/// The maximum number of messages that one thought processes.
const TOGETHER_MAX: usize = 32;
/// The maximum number of interrupted thoughts of one canvas. At this limit, no further thought is interrupted.
const BROKEN_OFF_MAX: usize = 8;
/// The maximum size of the messages that one thought processes, in bytes. A longer message is processed alone.
const TOGETHER_BYTES: usize = 32 << 10;

/// The read position of a canvas. It is stored with each job that starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub(crate) struct Reading {
    /// The revision up to which a job has taken up every message.
    pub(crate) upto: u64,
    /// The topics with a later read position, with that position.
    pub(crate) topics: BTreeMap<Arc<str>, u64>,
    /// The interrupted thoughts that are still to be completed, oldest first.
    pub(crate) again: Vec<BrokenOff>,
}

/// An interrupted thought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BrokenOff {
    /// The thought.
    pub(crate) thought: ActiveReply,
    /// `true` if the thought restarts together with newer messages, `false` if it is completed after them.
    pub(crate) anew: bool,
}

/// The stored form of a read position: an older one and the present one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Upto(u64),
    Reading {
        upto: u64,
        #[serde(default)]
        topics: BTreeMap<Arc<str>, u64>,
        #[serde(default)]
        again: Vec<BrokenOff>,
    },
}

impl From<Kept> for Reading {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Upto(upto) => Self { upto, ..Self::default() },
            Kept::Reading { upto, topics, again } => Self { upto, topics, again },
        }
    }
}

impl Reading {
    /// Returns `true` if a job has taken up this entry of `topic`.
    fn has(&self, topic: &str, rev: u64) -> bool {
        rev <= self.upto || self.topics.get(topic).is_some_and(|upto| rev <= *upto)
    }
}

/// Returns the key of a lifeform's read position on a canvas.
pub(crate) fn reading_key(lifeform: &str, canvas: &str) -> Key {
    Key::new(Kind::Cursor, format!("{lifeform}/{canvas}"))
}

/// The next thought.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Next {
    /// The perception. The caller sets its history.
    pub(crate) perception: Perception,
    /// The number of restarts because of newer messages.
    pub(crate) extended: u32,
    /// The job of the interrupted thought that this one resumes.
    takes_up: Option<Arc<str>>,
}

/// The waiting messages and present thoughts of a lifeform.
#[derive(Default)]
pub(crate) struct Attention {
    /// The waiting messages, in the order in which their places started to wait.
    waiting: Vec<(ThreadRef, Vec<PerceivedMessage>)>,
    busy: BTreeMap<ThreadRef, ActiveReply>,
    /// The jobs of thoughts that wait for a person's decision. They take no place of others.
    resting: BTreeSet<Arc<str>>,
    readings: BTreeMap<Arc<str>, Reading>,
    /// The last perceived revision of each canvas.
    heard: BTreeMap<Arc<str>, u64>,
}

impl Attention {
    /// Starts to listen to a canvas, from a read position.
    pub(crate) fn listen(&mut self, canvas: &Arc<str>, reading: Reading) {
        self.heard.insert(canvas.clone(), reading.upto);
        self.readings.insert(canvas.clone(), reading);
    }

    /// Stops listening to a canvas.
    pub(crate) fn leave(&mut self, canvas: &Arc<str>) {
        self.waiting.retain(|(place, _)| place.canvas != *canvas);
        self.heard.remove(canvas);
        self.readings.remove(canvas);
    }

    /// Returns `true` if a job has taken up this message of a place.
    pub(crate) fn has(&self, place: &ThreadRef, rev: u64) -> bool {
        self.readings.get(&place.canvas).is_some_and(|reading| reading.has(&place.topic, rev))
    }

    /// Returns the thought that a job is processing.
    pub(crate) fn thought_by(&self, job: &str) -> Option<&ActiveReply> {
        self.busy.values().find(|thought| *thought.job == *job)
    }

    /// Returns the last perceived revision of a canvas.
    pub(crate) fn heard(&self, canvas: &str) -> u64 {
        self.heard.get(canvas).copied().unwrap_or(0)
    }

    /// Records that the lifeform has perceived an entry of a canvas.
    pub(crate) fn pass(&mut self, canvas: &Arc<str>, rev: u64) {
        let heard = self.heard.entry(canvas.clone()).or_default();
        *heard = rev.max(*heard);
    }

    /// Adds a perceived message.
    pub(crate) fn hear(&mut self, place: ThreadRef, said: PerceivedMessage) {
        if self.has(&place, said.rev) {
            return;
        }
        let at = self.waiting.iter().position(|(known, _)| *known == place);
        let at = at.unwrap_or_else(|| {
            self.waiting.push((place, Vec::new()));
            self.waiting.len() - 1
        });
        add(&mut self.waiting[at].1, said);
    }

    /// Returns the number of waiting messages of a sender.
    pub(crate) fn waiting_of(&self, sender: &str) -> usize {
        self.waiting.iter().flat_map(|(_, said)| said).filter(|said| *said.sender == *sender).count()
    }

    /// Returns the number of places in which the lifeform is answering a sender.
    pub(crate) fn busy_with(&self, sender: &str) -> usize {
        let works = |thought: &&ActiveReply| !self.resting.contains(&thought.job);
        self.busy.values().filter(works).filter(|thought| *thought.perception.first().sender == *sender).count()
    }

    /// Returns the next thought. Urgent messages come first, then the messages of the sender that is being answered in
    /// the fewest places and has waited longest, then interrupted thoughts. Places that `may` rejects are skipped.
    pub(crate) fn next(&self, may: impl Fn(&ThreadRef) -> bool) -> Option<Next> {
        if self.is_full_of_thoughts() {
            return None;
        }
        let is_free = |place: &&ThreadRef| !self.busy.contains_key(*place) && may(place);
        // Urgent messages come first, then the senders that are being answered in the fewest places.
        let urgent = |said: &[PerceivedMessage]| said.iter().any(|said| said.urgent);
        let busy = |said: &[PerceivedMessage]| said.first().map_or(0, |first| self.busy_with(&first.sender));
        let rank = |said: &[PerceivedMessage]| (!urgent(said), busy(said));
        let anew = || self.broken_off().filter(|broken| broken.anew).map(|broken| &broken.thought);
        let waiting = self.waiting.iter().map(|(place, said)| (place, said.as_slice()));
        let begun = anew().map(|thought| &thought.perception).map(|known| (&known.place, known.said.as_slice()));
        let free = begun.chain(waiting).filter(|(place, _)| is_free(place));
        if let Some((place, _)) = free.min_by_key(|(_, said)| rank(said)) {
            let begun = anew().find(|thought| thought.perception.place == *place);
            let mut said = begun.map(|thought| thought.perception.said.clone()).unwrap_or_default();
            let newer = self.waiting.iter().find(|(known, _)| known == place);
            newer.into_iter().flat_map(|(_, said)| said).for_each(|newer| add(&mut said, newer.clone()));
            // A message that is answered by rule does not wait for messages that need a model.
            let by_rule = begun.is_none() && said.first().is_some_and(|said| said.is_answered_by_rule(false));
            let mut bytes = 0;
            let known = begun.map_or(1, |thought| thought.perception.said.len());
            let together = said.into_iter().take(TOGETHER_MAX.max(known)).enumerate().take_while(|(place, said)| {
                let before = if let Change::Amended { before, .. } = &said.change { before.len() } else { 0 };
                bytes += said.content.len() + before;
                *place < known || (bytes <= TOGETHER_BYTES && (!by_rule || said.is_answered_by_rule(false)))
            });
            let said = together.map(|(_, said)| said).collect();
            let tries = begun.map_or(0, |thought| thought.perception.tries + 1);
            let (place, supply) = (place.clone(), Supply::default());
            let perception = Perception { place, said, supply, resumes: None, tries, payer: None, by_memory: false };
            let extended = begun.map_or(0, |thought| thought.extended + 1);
            return Some(Next { perception, extended, takes_up: begun.map(|thought| thought.job.clone()) });
        }
        let mut put_off = self.broken_off().map(|broken| &broken.thought);
        let thought = put_off.find(|thought| is_free(&&thought.perception.place))?;
        let mut perception = thought.perception.clone();
        perception.resumes = Some(thought.answer());
        perception.tries += 1;
        Some(Next { perception, extended: 0, takes_up: Some(thought.job.clone()) })
    }

    /// Returns `true` if the maximum number of interrupted thoughts of a canvas waits for completion.
    pub(crate) fn is_torn(&self, canvas: &str) -> bool {
        self.readings.get(canvas).is_some_and(|reading| reading.again.len() >= BROKEN_OFF_MAX)
    }

    fn broken_off(&self) -> impl Iterator<Item = &BrokenOff> {
        self.readings.values().flat_map(|reading| &reading.again)
    }

    /// Returns the read position of the canvas after `next` is taken up.
    pub(crate) fn reading_with(&self, next: &Next) -> Reading {
        let Next { perception, takes_up, .. } = next;
        let place = &perception.place;
        let mut reading = self.readings.get(&place.canvas).cloned().unwrap_or_default();
        reading.again.retain(|broken| takes_up.as_ref() != Some(&broken.thought.job));
        let is_left = |said: &&PerceivedMessage| perception.said.iter().all(|taken| taken.rev != said.rev);
        let here = self.waiting.iter().filter(|(known, _)| known.canvas == place.canvas);
        let left =
            here.flat_map(|(known, said)| said.iter().filter(is_left).map(move |said| (known, said.since.max(1) - 1)));
        let left: Vec<(&ThreadRef, u64)> = left.collect();
        let oldest_of = |topic: Option<&ThreadRef>| {
            left.iter().filter(|(known, _)| topic.is_none_or(|topic| *known == topic)).map(|(_, rev)| *rev).min()
        };
        let newest = perception.said.iter().map(|said| said.rev).max().unwrap_or(0);
        let newest = oldest_of(Some(place)).map_or(newest, |left| left.min(newest));
        let taken = reading.topics.entry(place.topic.clone()).or_insert(newest);
        *taken = newest.max(*taken);
        let oldest = oldest_of(None);
        let upto = oldest.unwrap_or_else(|| self.heard(&place.canvas)).max(reading.upto);
        reading.upto = upto;
        reading.topics.retain(|_, taken| *taken > upto);
        reading
    }

    /// Records that a job has taken up a thought, with the new read position.
    pub(crate) fn take_up(&mut self, thought: ActiveReply, reading: Reading) {
        let place = thought.perception.place.clone();
        if let Some((_, waiting)) = self.waiting.iter_mut().find(|(known, _)| *known == place) {
            waiting.retain(|said| thought.perception.said.iter().all(|taken| taken.rev != said.rev));
        }
        self.waiting.retain(|(_, said)| !said.is_empty());
        self.readings.insert(place.canvas.clone(), reading);
        self.busy.insert(place, thought);
    }

    /// Records that a job from before a restart is processing a thought.
    pub(crate) fn occupy(&mut self, thought: ActiveReply) {
        self.busy.insert(thought.perception.place.clone(), thought);
    }

    /// Returns the present thought of a place.
    pub(crate) fn thought(&self, place: &ThreadRef) -> Option<&ActiveReply> {
        self.busy.get(place)
    }

    /// Returns `true` if no further thought can be taken up.
    pub(crate) fn is_full_of_thoughts(&self) -> bool {
        let resting = self.busy.values().filter(|thought| self.resting.contains(&thought.job)).count();
        self.busy.len() - resting.min(RESTING_MAX) >= TOPICS_AT_ONCE
    }

    /// Records whether a thought waits for a person's decision.
    pub(crate) fn rest(&mut self, job: &Arc<str>, waits: bool) {
        match waits && self.thought_by(job).is_some() {
            true => self.resting.insert(job.clone()),
            false => self.resting.remove(job),
        };
    }

    /// Returns the thought of the newest message that waits for no decision.
    pub(crate) fn newest_thought(&self) -> Option<ActiveReply> {
        let works = |thought: &&ActiveReply| !self.resting.contains(&thought.job);
        self.busy.values().filter(works).max_by_key(|thought| thought.perception.last().at).cloned()
    }

    /// Returns the present thoughts of a canvas.
    pub(crate) fn thoughts_on(&self, canvas: &str) -> Vec<ActiveReply> {
        self.busy.values().filter(|thought| *thought.perception.place.canvas == *canvas).cloned().collect()
    }

    /// Removes the thought of a finished job, and returns it.
    pub(crate) fn release(&mut self, job: &str) -> Option<ActiveReply> {
        let place = self.busy.iter().find(|(_, thought)| *thought.job == *job)?.0.clone();
        self.resting.remove(job);
        self.busy.remove(&place)
    }

    /// Returns the read position of the canvas after a thought is interrupted.
    pub(crate) fn reading_without(&self, thought: &ActiveReply, anew: bool) -> Reading {
        let mut reading = self.readings.get(&thought.perception.place.canvas).cloned().unwrap_or_default();
        reading.again.push(BrokenOff { thought: thought.clone(), anew });
        reading
    }

    /// Removes the thought at `place`. With a reading, the thought is resumed later as the reading describes.
    pub(crate) fn give_up(&mut self, place: &ThreadRef, reading: Option<Reading>) {
        if let Some(thought) = self.busy.remove(place) {
            self.resting.remove(&thought.job);
        }
        if let Some(reading) = reading {
            self.readings.insert(place.canvas.clone(), reading);
        }
    }

    /// Returns `true` if the lifeform must not read more for now.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.iter().map(|(_, said)| said.len()).sum::<usize>() >= HEARD_MAX
    }

    /// Returns `true` if no message waits and no answer is being written.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.busy.is_empty() && self.broken_off().next().is_none()
    }
}

/// Adds a message to the waiting messages of a topic. It replaces an earlier version of the same message.
fn add(waiting: &mut Vec<PerceivedMessage>, mut said: PerceivedMessage) {
    let Some(known) = waiting.iter_mut().find(|known| known.message == said.message) else {
        return waiting.push(said);
    };
    said.since = said.since.min(known.since);
    // An amendment of a waiting message is answered as the new message that it was.
    if known.change == Change::New && said.change != Change::Retracted {
        (said.change, said.to_answer, said.urgent) = (Change::New, known.to_answer, known.urgent);
    }
    *known = said;
}

#[cfg(test)]
mod tests {
    use store::Cause;

    use super::*;

    #[test]
    fn a_sender_in_many_topics_does_not_delay_a_sender_in_one() {
        let of = |rev: u64, sender: &str| PerceivedMessage { sender: sender.into(), ..said(rev, &format!("m{rev}")) };
        let hers = [("x", of(2, "user:ada")), ("y", of(3, "user:ada")), ("z", of(4, "user:ada"))];
        let mut a = hearing(&hers);
        a.hear(place("u"), of(5, "user:bob"));
        let taken: Vec<Vec<u64>> = std::iter::from_fn(|| take(&mut a).map(|(revs, ..)| revs)).collect();
        assert_eq!(taken, [[2], [5], [3], [4]]);
        assert_eq!((a.busy_with("user:ada"), a.waiting_of("user:ada")), (3, 0));
    }

    fn place(topic: &str) -> ThreadRef {
        ThreadRef { canvas: "lf/c".into(), topic: topic.into() }
    }

    fn said(rev: u64, message: &str) -> PerceivedMessage {
        PerceivedMessage {
            rev,
            since: rev,
            message: message.into(),
            sender: "user:ada".into(),
            content: message.into(),
            source: format!("canvas:lf/c@{rev}").into(),
            change: Change::New,
            urgent: false,
            to_answer: true,
            keeps_reminders: true,
            supplements: None,
            rule: None,
            fascicle: None,
            cause: Cause::default(),
            at: store::Timestamp::UNIX_EPOCH,
        }
    }

    fn hearing(entries: &[(&str, PerceivedMessage)]) -> Attention {
        let mut attention = Attention::default();
        attention.listen(&"lf/c".into(), Reading::default());
        for (topic, said) in entries {
            attention.pass(&"lf/c".into(), said.rev);
            attention.hear(place(topic), said.clone());
        }
        attention
    }

    /// Takes up the next thought. Returns the revisions of its messages, the new read position, and the thought.
    fn take(attention: &mut Attention) -> Option<(Vec<u64>, Reading, ActiveReply)> {
        let next = attention.next(|_| true)?;
        let reading = attention.reading_with(&next);
        let revs = next.perception.said.iter().map(|said| said.rev).collect();
        let job = format!("r{}x{}", next.perception.last().rev, next.perception.tries).into();
        let thought = ActiveReply { job, perception: next.perception, extended: next.extended };
        attention.take_up(thought.clone(), reading.clone());
        Some((revs, reading, thought))
    }

    #[test]
    fn a_thought_takes_up_a_whole_topic_and_leaves_the_rest_unread() {
        let mut a = hearing(&[("x", said(2, "m2")), ("y", said(3, "m3")), ("x", said(4, "m4"))]);
        a.pass(&"lf/c".into(), 5);
        let (revs, reading, _) = take(&mut a).unwrap();
        assert_eq!((revs, reading.upto, reading.topics.get("x")), (vec![2, 4], 2, Some(&4)));
        a.hear(place("x"), said(6, "m6"));
        a.pass(&"lf/c".into(), 6);
        let (revs, reading, y) = take(&mut a).unwrap();
        assert_eq!((revs, reading.upto, reading.topics.len()), (vec![3], 5, 0), "x is busy");
        assert!(take(&mut a).is_none());
        assert_eq!(a.release("r4x0").unwrap().perception.place, place("x"));
        assert_eq!(take(&mut a).unwrap().1.upto, 6);
        assert_eq!(a.release(&y.job).unwrap(), y);
        assert!(!a.is_idle());
        a.release("r6x0");
        assert!(a.is_idle());
        // A message that was taken up is not taken up again when the canvas is read again.
        let mut woken = Attention::default();
        woken.listen(&"lf/c".into(), Reading { upto: 2, topics: [("x".into(), 4)].into(), again: Vec::new() });
        for (topic, said) in [("x", said(2, "m2")), ("y", said(3, "m3")), ("x", said(4, "m4")), ("x", said(6, "m6"))] {
            woken.hear(place(topic), said);
        }
        assert_eq!((take(&mut woken).unwrap().0, take(&mut woken).unwrap().0), (vec![3], vec![6]));
    }

    #[test]
    fn an_interrupted_thought_is_restarted_or_completed_later() {
        for anew in [true, false] {
            let mut a = hearing(&[("x", said(2, "m2"))]);
            let (_, _, thought) = take(&mut a).unwrap();
            let reading = a.reading_without(&thought, anew);
            a.give_up(&place("x"), Some(reading));
            a.hear(place("x"), said(3, "m3"));
            let (revs, reading, first) = take(&mut a).unwrap();
            assert_eq!((revs, reading.again.len()), if anew { (vec![2, 3], 0) } else { (vec![3], 1) });
            assert!(take(&mut a).is_none(), "the topic is busy");
            a.release(&first.job);
            let then = take(&mut a);
            assert_eq!(then.is_none(), anew);
            if let Some((revs, reading, then)) = then {
                assert_eq!((revs, reading.again.len(), then.perception.tries), (vec![2], 0, 1));
                assert_eq!(then.perception.resumes.as_deref(), Some("msg_r2x0"));
            }
        }
    }

    #[test]
    fn attention_puts_urgent_messages_first_and_applies_amendments() {
        let urgent = PerceivedMessage { urgent: true, ..said(4, "m4") };
        let mut a = hearing(&[("x", said(2, "m2")), ("y", said(3, "m3")), ("y", urgent)]);
        // The message is amended while it waits, and another message in between is taken up first. A read position
        // after the original message would lose the question.
        let amended = PerceivedMessage {
            rev: 5,
            content: "new".into(),
            change: Change::Amended { before: "m2".into(), reason: String::new() },
            to_answer: false,
            ..said(5, "m2")
        };
        a.hear(place("x"), amended);
        assert_eq!(take(&mut a).unwrap().0, [3, 4]);
        let (_, _, x) = take(&mut a).unwrap();
        assert_eq!((x.perception.content(), x.perception.to_answer()), ("new".to_owned(), true));
        // The message is amended while it waits, and another one is taken up in between. The question stays unread.
        let mut a = hearing(&[("x", said(2, "m2")), ("y", said(3, "m3"))]);
        a.occupy(ActiveReply {
            job: "j".into(),
            perception: take(&mut hearing(&[("x", said(1, "m1"))])).unwrap().2.perception,
            extended: 0,
        });
        let amended = PerceivedMessage {
            change: Change::Amended { before: "m2".into(), reason: String::new() },
            to_answer: false,
            since: 5,
            rev: 5,
            ..said(5, "m2")
        };
        a.pass(&"lf/c".into(), 5);
        a.hear(place("x"), amended);
        assert_eq!(take(&mut a).unwrap().1.upto, 1);
        let gone = PerceivedMessage { change: Change::Retracted, to_answer: false, ..said(7, "m6") };
        let mut a = hearing(&[("x", said(6, "m6")), ("x", gone)]);
        assert!(!take(&mut a).unwrap().2.perception.to_answer());
    }
}
