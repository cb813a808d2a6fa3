//! Turns: a concurrency limit with fair queues. Waiting requests are admitted by class, and within a class
//! round-robin by principal, so a principal with a thousand requests does not delay a principal with one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// One in this many turns is reserved: no single participant can hold all of them.
const KEPT: usize = 4;

/// A concurrency limiter for work of classes `C`; the lowest class goes first. A cheap handle; all clones share the
/// turns.
#[derive(Clone)]
pub struct Turns<C: Ord + Copy>(Arc<Mutex<Inner<C>>>);

/// A request for a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants<C> {
    /// The class of the work.
    pub class: C,
    /// The principal that the work is done for.
    pub who: Arc<str>,
    /// `true` for a participant, which never has all turns at once.
    pub is_bound: bool,
}

struct Inner<C: Ord + Copy> {
    free: usize,
    /// The maximum number of turns that a participant holds at once.
    each: usize,
    /// The number of turns that each participant holds.
    taken: HashMap<Arc<str>, usize>,
    /// The waiting requests by class; within a class by principal, the next principal first.
    waiting: BTreeMap<C, VecDeque<Line<C>>>,
}

/// The waiting requests of one principal in one class, in order.
struct Line<C: Ord + Copy> {
    who: Arc<str>,
    waiting: VecDeque<Waiting<C>>,
}

struct Waiting<C: Ord + Copy> {
    is_bound: bool,
    turn: oneshot::Sender<Turn<C>>,
}

/// A turn; dropping it admits the next request.
pub struct Turn<C: Ord + Copy> {
    turns: Option<Turns<C>>,
    of: Option<Arc<str>>,
}

impl<C: Ord + Copy> Turns<C> {
    /// Returns a limiter of `at_once` turns. A participant holds at most three quarters of them, and at least one.
    pub fn new(at_once: usize) -> Self {
        let each = (at_once * (KEPT - 1) / KEPT).max(1);
        Self(Arc::new(Mutex::new(Inner { free: at_once, each, taken: HashMap::new(), waiting: BTreeMap::new() })))
    }

    /// Waits for a turn. A dropped future loses its place in the queue.
    pub async fn take(&self, wants: Wants<C>) -> Turn<C> {
        let waiting = {
            let mut inner = self.inner();
            if inner.free > 0 && inner.may_have(&wants.who, wants.is_bound) {
                inner.free -= 1;
                return self.turn(&mut inner, wants.who, wants.is_bound);
            }
            let (turn, waiting) = oneshot::channel();
            let one = Waiting { is_bound: wants.is_bound, turn };
            let lines = inner.waiting.entry(wants.class).or_default();
            match lines.iter_mut().find(|line| line.who == wants.who) {
                Some(line) => line.waiting.push_back(one),
                None => lines.push_back(Line { who: wants.who, waiting: [one].into() }),
            }
            waiting
        };
        // The sender is in the queue, which this handle keeps alive.
        waiting.await.unwrap_or(Turn { turns: None, of: None })
    }

    fn inner(&self) -> MutexGuard<'_, Inner<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, inner: &mut Inner<C>, who: Arc<str>, is_bound: bool) -> Turn<C> {
        let of = is_bound.then_some(who);
        if let Some(who) = &of {
            *inner.taken.entry(who.clone()).or_default() += 1;
        }
        Turn { turns: Some(self.clone()), of }
    }

    fn give_back(&self, of: Option<&Arc<str>>) {
        let mut inner = self.inner();
        if let Some(who) = of {
            inner.returned(who);
        }
        inner.free += 1;
        while inner.free > 0 {
            let Some((who, Waiting { is_bound, turn })) = inner.next() else { return };
            inner.free -= 1;
            let given = self.turn(&mut inner, who, is_bound);
            if let Err(mut given) = turn.send(given) {
                // The receiver is gone. The turn must not return itself when it is dropped, because the lock is held
                // here.
                given.turns = None;
                if let Some(who) = given.of.take() {
                    inner.returned(&who);
                }
                inner.free += 1;
            }
        }
    }
}

impl<C: Ord + Copy> Inner<C> {
    fn may_have(&self, who: &Arc<str>, is_bound: bool) -> bool {
        !is_bound || self.taken.get(who).is_none_or(|taken| *taken < self.each)
    }

    fn returned(&mut self, who: &Arc<str>) {
        match self.taken.get_mut(who) {
            Some(taken) if *taken > 1 => *taken -= 1,
            _ => drop(self.taken.remove(who)),
        }
    }

    /// Removes the next request; its principal moves to the end of its class.
    fn next(&mut self) -> Option<(Arc<str>, Waiting<C>)> {
        let may_have = |line: &Line<C>| {
            let is_bound = line.waiting.front().is_some_and(|first| first.is_bound);
            !is_bound || self.taken.get(&line.who).is_none_or(|taken| *taken < self.each)
        };
        let found = self.waiting.iter().find_map(|(class, lines)| Some((*class, lines.iter().position(may_have)?)));
        let (class, place) = found?;
        let lines = self.waiting.get_mut(&class)?;
        let mut line = lines.remove(place)?;
        let first = line.waiting.pop_front()?;
        let who = line.who.clone();
        if !line.waiting.is_empty() {
            lines.push_back(line);
        } else if lines.is_empty() {
            self.waiting.remove(&class);
        }
        Some((who, first))
    }
}

impl<C: Ord + Copy> Drop for Turn<C> {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.give_back(self.of.as_ref());
        }
    }
}

impl<C: Ord + Copy> std::fmt::Debug for Turn<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("of", &self.of).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waits = Pin<Box<dyn Future<Output = Turn<u8>>>>;

    fn wants(turns: &Turns<u8>, class: u8, who: &str, is_bound: bool) -> Waits {
        let (turns, who) = (turns.clone(), Arc::from(who));
        Box::pin(async move { turns.take(Wants { class, who, is_bound }).await })
    }

    fn has(waits: &mut Waits) -> Option<Turn<u8>> {
        match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_least_class_is_first_and_in_it_each_principal_in_turn() {
        let turns = Turns::new(1);
        let mut turn = has(&mut wants(&turns, 1, "ada", true));
        let order = [(1, "ada"), (1, "ada"), (1, "ada"), (1, "bob"), (2, "carl"), (0, "life")];
        let mut waiting: Vec<(&str, Waits)> =
            order.iter().map(|(class, who)| (*who, wants(&turns, *class, who, *class == 1))).collect();
        assert!(waiting.iter_mut().all(|(_, waits)| has(waits).is_none()));
        let mut served = Vec::new();
        for _ in 0..order.len() {
            drop(turn.take());
            let place = waiting.iter_mut().position(|(_, waits)| {
                turn = has(waits);
                turn.is_some()
            });
            served.push(waiting.remove(place.unwrap()).0);
        }
        assert_eq!(served, ["life", "ada", "bob", "ada", "ada", "carl"]);
    }

    #[test]
    fn no_participant_takes_all_turns_and_dropped_requests_get_none() {
        let turns = Turns::new(4);
        let mut ada: Vec<Waits> = (0..5).map(|_| wants(&turns, 0, "ada", true)).collect();
        let mut hers: Vec<Turn<u8>> = ada.iter_mut().filter_map(has).collect();
        assert_eq!(hers.len(), 3);
        let bob = has(&mut wants(&turns, 0, "bob", true)).unwrap();
        let mut operator = wants(&turns, 0, "operator", false);
        assert!(has(&mut operator).is_none());
        // The fourth request is dropped; the fifth must wait until Ada returns another turn.
        drop(ada.remove(3));
        drop(bob);
        assert!(has(&mut ada[3]).is_none());
        let operator = has(&mut operator).unwrap();
        hers.pop();
        assert!(has(&mut ada[3]).is_some());
        drop((hers, operator, ada));
        let inner = turns.inner();
        assert_eq!((inner.free, inner.taken.len(), inner.waiting.len()), (4, 0, 0));
    }
}
