//! The messages that a lifeform has heard and not answered yet. Plain bookkeeping: the next reply, the messages that
//! are answered together, and the read position of each canvas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Key, Kind};

use crate::perception::{Change, Perception, Place, Said, Thought};

/// Topics a lifeform answers in at once.
const TOPICS_AT_ONCE: usize = 4;
/// Messages it keeps in mind; beyond them it reads on when it has answered some.
pub(crate) const HEARD_MAX: usize = 256;
/// Messages of one participant that it keeps in mind; what it says beyond them is passed over.
pub(crate) const HEARD_EACH_MAX: usize = HEARD_MAX / 4;
/// Topics in which it answers one participant at once.
pub(crate) const TOPICS_EACH_MAX: usize = TOPICS_AT_ONCE - 1;
/// Messages that are thought about at once.
const TOGETHER_MAX: usize = 32;
/// Thoughts of one canvas that wait to be completed; while there are as many, none is broken off.
const BROKEN_OFF_MAX: usize = 8;
/// Bytes of messages that are thought about at once; a longer one is thought about alone.
const TOGETHER_BYTES: usize = 32 << 10;

/// The read position of a canvas, as it is stored with each job that begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub(crate) struct Reading {
    /// Everything up to this revision was taken up.
    pub(crate) upto: u64,
    /// Topics of which more was.
    pub(crate) topics: BTreeMap<Arc<str>, u64>,
    /// Thoughts that were broken off and are still to be thought, oldest first.
    pub(crate) again: Vec<BrokenOff>,
}

/// A thought that was broken off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BrokenOff {
    /// The thought.
    pub(crate) thought: Thought,
    /// `true` if it is begun again, together with newer messages; else it is completed after them.
    pub(crate) anew: bool,
}

/// As readings were kept once, and are now.
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
    /// Returns `true` if an entry of `topic` was taken up.
    fn has(&self, topic: &str, rev: u64) -> bool {
        rev <= self.upto || self.topics.get(topic).is_some_and(|upto| rev <= *upto)
    }
}

/// Returns the key of a lifeform's read position of a canvas.
pub(crate) fn reading_key(lifeform: &str, canvas: &str) -> Key {
    Key::new(Kind::Cursor, format!("{lifeform}/{canvas}"))
}

/// The next thought.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Next {
    /// The perception. Its history is chosen by the caller.
    pub(crate) perception: Perception,
    /// The number of times that it was begun again.
    pub(crate) extended: u32,
    /// The job of the thought that it takes up again.
    takes_up: Option<Arc<str>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Attention {
    /// The waiting messages, in the order in which their places began to wait.
    waiting: Vec<(Place, Vec<Said>)>,
    busy: BTreeMap<Place, Thought>,
    readings: BTreeMap<Arc<str>, Reading>,
    /// The last revision that was heard of each canvas.
    heard: BTreeMap<Arc<str>, u64>,
}

impl Attention {
    /// Begins to listen to a canvas that was read so far.
    pub(crate) fn listen(&mut self, canvas: &Arc<str>, reading: Reading) {
        self.heard.insert(canvas.clone(), reading.upto);
        self.readings.insert(canvas.clone(), reading);
    }

    /// Listens no more.
    pub(crate) fn leave(&mut self, canvas: &Arc<str>) {
        self.waiting.retain(|(place, _)| place.canvas != *canvas);
        self.heard.remove(canvas);
        self.readings.remove(canvas);
    }

    /// Returns `true` if a message of that place was taken up.
    pub(crate) fn has(&self, place: &Place, rev: u64) -> bool {
        self.readings.get(&place.canvas).is_some_and(|reading| reading.has(&place.topic, rev))
    }

    /// The thought that a job is busy with.
    pub(crate) fn thought_by(&self, job: &str) -> Option<&Thought> {
        self.busy.values().find(|thought| *thought.job == *job)
    }

    /// Returns the last revision that was heard of a canvas.
    pub(crate) fn heard(&self, canvas: &str) -> u64 {
        self.heard.get(canvas).copied().unwrap_or(0)
    }

    /// An entry of a canvas was heard.
    pub(crate) fn pass(&mut self, canvas: &Arc<str>, rev: u64) {
        let heard = self.heard.entry(canvas.clone()).or_default();
        *heard = rev.max(*heard);
    }

    /// Takes note of something that was said.
    pub(crate) fn hear(&mut self, place: Place, said: Said) {
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

    /// In how many places a sender is being answered.
    pub(crate) fn busy_with(&self, sender: &str) -> usize {
        self.busy.values().filter(|thought| *thought.perception.first().sender == *sender).count()
    }

    /// Returns the next thought: urgent messages, then those of the sender that is being answered in the fewest places
    /// and has waited longest, then interrupted thoughts. Places that `may` refuses are skipped.
    pub(crate) fn next(&self, may: impl Fn(&Place) -> bool) -> Option<Next> {
        if self.busy.len() >= TOPICS_AT_ONCE {
            return None;
        }
        let is_free = |place: &&Place| !self.busy.contains_key(*place) && may(place);
        // Urgent comes first; then the fewer places its sender is being answered in, the sooner.
        let urgent = |said: &[Said]| said.iter().any(|said| said.urgent);
        let busy = |said: &[Said]| said.first().map_or(0, |first| self.busy_with(&first.sender));
        let rank = |said: &[Said]| (!urgent(said), busy(said));
        let anew = || self.broken_off().filter(|broken| broken.anew).map(|broken| &broken.thought);
        let waiting = self.waiting.iter().map(|(place, said)| (place, said.as_slice()));
        let begun = anew().map(|thought| &thought.perception).map(|known| (&known.place, known.said.as_slice()));
        let free = begun.chain(waiting).filter(|(place, _)| is_free(place));
        if let Some((place, _)) = free.min_by_key(|(_, said)| rank(said)) {
            let begun = anew().find(|thought| thought.perception.place == *place);
            let mut said = begun.map(|thought| thought.perception.said.clone()).unwrap_or_default();
            let newer = self.waiting.iter().find(|(known, _)| known == place);
            newer.into_iter().flat_map(|(_, said)| said).for_each(|newer| add(&mut said, newer.clone()));
            // What is answered by rule does not wait for what a model is asked.
            let by_rule = begun.is_none() && said.first().is_some_and(Said::is_answered_by_rule);
            let mut bytes = 0;
            let known = begun.map_or(1, |thought| thought.perception.said.len());
            let together = said.into_iter().take(TOGETHER_MAX.max(known)).enumerate().take_while(|(place, said)| {
                let before = if let Change::Amended { before, .. } = &said.change { before.len() } else { 0 };
                bytes += said.content.len() + before;
                *place < known || (bytes <= TOGETHER_BYTES && (!by_rule || said.is_answered_by_rule()))
            });
            let said = together.map(|(_, said)| said).collect();
            let tries = begun.map_or(0, |thought| thought.perception.tries + 1);
            let perception = Perception { place: place.clone(), said, history: 0, resumes: None, tries };
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

    /// Returns `true` if as many thoughts of a canvas wait for completion as may.
    pub(crate) fn is_torn(&self, canvas: &str) -> bool {
        self.readings.get(canvas).is_some_and(|reading| reading.again.len() >= BROKEN_OFF_MAX)
    }

    fn broken_off(&self) -> impl Iterator<Item = &BrokenOff> {
        self.readings.values().flat_map(|reading| &reading.again)
    }

    /// Returns the read position of the canvas once `next` is taken up.
    pub(crate) fn reading_with(&self, next: &Next) -> Reading {
        let Next { perception, takes_up, .. } = next;
        let place = &perception.place;
        let mut reading = self.readings.get(&place.canvas).cloned().unwrap_or_default();
        reading.again.retain(|broken| takes_up.as_ref() != Some(&broken.thought.job));
        let is_left = |said: &&Said| perception.said.iter().all(|taken| taken.rev != said.rev);
        let here = self.waiting.iter().filter(|(known, _)| known.canvas == place.canvas);
        let left =
            here.flat_map(|(known, said)| said.iter().filter(is_left).map(move |said| (known, said.since.max(1) - 1)));
        let left: Vec<(&Place, u64)> = left.collect();
        let oldest_of = |topic: Option<&Place>| {
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

    /// A job is busy with a thought.
    pub(crate) fn take_up(&mut self, thought: Thought, reading: Reading) {
        let place = thought.perception.place.clone();
        if let Some((_, waiting)) = self.waiting.iter_mut().find(|(known, _)| *known == place) {
            waiting.retain(|said| thought.perception.said.iter().all(|taken| taken.rev != said.rev));
        }
        self.waiting.retain(|(_, said)| !said.is_empty());
        self.readings.insert(place.canvas.clone(), reading);
        self.busy.insert(place, thought);
    }

    /// A job of an earlier life is busy with a thought.
    pub(crate) fn occupy(&mut self, thought: Thought) {
        self.busy.insert(thought.perception.place.clone(), thought);
    }

    /// Returns the present thought of a place.
    pub(crate) fn thought(&self, place: &Place) -> Option<&Thought> {
        self.busy.get(place)
    }

    /// Returns the present thoughts of a canvas.
    pub(crate) fn thoughts_on(&self, canvas: &str) -> Vec<Thought> {
        self.busy.values().filter(|thought| *thought.perception.place.canvas == *canvas).cloned().collect()
    }

    /// A job has ended; answers what it was about.
    pub(crate) fn release(&mut self, job: &str) -> Option<Thought> {
        let place = self.busy.iter().find(|(_, thought)| *thought.job == *job)?.0.clone();
        self.busy.remove(&place)
    }

    /// Returns the read position of the canvas once a thought is interrupted.
    pub(crate) fn reading_without(&self, thought: &Thought, anew: bool) -> Reading {
        let mut reading = self.readings.get(&thought.perception.place.canvas).cloned().unwrap_or_default();
        reading.again.push(BrokenOff { thought: thought.clone(), anew });
        reading
    }

    /// The thought at `place` was given up; with a reading, it is thought again as that has it.
    pub(crate) fn give_up(&mut self, place: &Place, reading: Option<Reading>) {
        self.busy.remove(place);
        if let Some(reading) = reading {
            self.readings.insert(place.canvas.clone(), reading);
        }
    }

    /// Returns `true` if nothing more should be read for now.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.iter().map(|(_, said)| said.len()).sum::<usize>() >= HEARD_MAX
    }

    /// Returns `true` if nothing waits and nothing is answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.busy.is_empty() && self.broken_off().next().is_none()
    }
}

/// Adds to what waits in a topic. What a message said before it was changed is not answered any more.
fn add(waiting: &mut Vec<Said>, mut said: Said) {
    let Some(known) = waiting.iter_mut().find(|known| known.message == said.message) else {
        return waiting.push(said);
    };
    said.since = said.since.min(known.since);
    // It is answered as what it was, or not at all.
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
    fn who_waits_in_one_place_is_not_kept_waiting_by_who_waits_in_many() {
        let of = |rev: u64, sender: &str| Said { sender: sender.into(), ..said(rev, &format!("m{rev}")) };
        let hers = [("x", of(2, "user:ada")), ("y", of(3, "user:ada")), ("z", of(4, "user:ada"))];
        let mut a = hearing(&hers);
        a.hear(place("u"), of(5, "user:bob"));
        let taken: Vec<Vec<u64>> = std::iter::from_fn(|| take(&mut a).map(|(revs, ..)| revs)).collect();
        assert_eq!(taken, [[2], [5], [3], [4]]);
        assert_eq!((a.busy_with("user:ada"), a.waiting_of("user:ada")), (3, 0));
    }

    fn place(topic: &str) -> Place {
        Place { canvas: "lf/c".into(), topic: topic.into() }
    }

    fn said(rev: u64, message: &str) -> Said {
        Said {
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
            cause: Cause::default(),
            at: store::Timestamp::UNIX_EPOCH,
        }
    }

    fn hearing(entries: &[(&str, Said)]) -> Attention {
        let mut attention = Attention::default();
        attention.listen(&"lf/c".into(), Reading::default());
        for (topic, said) in entries {
            attention.pass(&"lf/c".into(), said.rev);
            attention.hear(place(topic), said.clone());
        }
        attention
    }

    /// Takes up what is next, and answers its messages, how far the canvas is read then, and the thought.
    fn take(attention: &mut Attention) -> Option<(Vec<u64>, Reading, Thought)> {
        let next = attention.next(|_| true)?;
        let reading = attention.reading_with(&next);
        let revs = next.perception.said.iter().map(|said| said.rev).collect();
        let job = format!("r{}x{}", next.perception.last().rev, next.perception.tries).into();
        let thought = Thought { job, perception: next.perception, extended: next.extended };
        attention.take_up(thought.clone(), reading.clone());
        Some((revs, reading, thought))
    }

    #[test]
    fn a_topic_is_thought_about_at_once_and_nothing_unanswered_is_called_read() {
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
        // What was taken up is not taken up again when the canvas is read once more.
        let mut woken = Attention::default();
        woken.listen(&"lf/c".into(), Reading { upto: 2, topics: [("x".into(), 4)].into(), again: Vec::new() });
        for (topic, said) in [("x", said(2, "m2")), ("y", said(3, "m3")), ("x", said(4, "m4")), ("x", said(6, "m6"))] {
            woken.hear(place(topic), said);
        }
        assert_eq!((take(&mut woken).unwrap().0, take(&mut woken).unwrap().0), (vec![3], vec![6]));
    }

    #[test]
    fn a_thought_that_is_broken_off_is_begun_anew_with_what_is_newer_or_completed_after_it() {
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
    fn what_is_urgent_comes_first_and_what_was_changed_is_answered_as_it_is_now() {
        let urgent = Said { urgent: true, ..said(4, "m4") };
        let mut a = hearing(&[("x", said(2, "m2")), ("y", said(3, "m3")), ("y", urgent)]);
        // It is amended while it waits, and what came in between is taken up first: a reading that begins after the
        // message itself would lose the question.
        let amended = Said {
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
        // Amended while it waits, with something else taken up in between: the question is not called read.
        let mut a = hearing(&[("x", said(2, "m2")), ("y", said(3, "m3"))]);
        a.occupy(Thought {
            job: "j".into(),
            perception: take(&mut hearing(&[("x", said(1, "m1"))])).unwrap().2.perception,
            extended: 0,
        });
        let amended = Said {
            change: Change::Amended { before: "m2".into(), reason: String::new() },
            to_answer: false,
            since: 5,
            rev: 5,
            ..said(5, "m2")
        };
        a.pass(&"lf/c".into(), 5);
        a.hear(place("x"), amended);
        assert_eq!(take(&mut a).unwrap().1.upto, 1);
        let gone = Said { change: Change::Retracted, to_answer: false, ..said(7, "m6") };
        let mut a = hearing(&[("x", said(6, "m6")), ("x", gone)]);
        assert!(!take(&mut a).unwrap().2.perception.to_answer());
    }
}
