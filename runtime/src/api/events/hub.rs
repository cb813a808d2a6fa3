//! The last events of the daemon, in the order of the commits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use store::{Committed, Entry, Store, Stream};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{OnceCell, broadcast, watch};

use super::rights::Owner;
use super::shown;
use crate::api::App;

/// The maximum number of events that are kept.
const EVENTS_MAX: usize = 20_000;
/// The maximum size of their entries, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// The size of what is kept of an event besides its data, in bytes: its text, once it is made, and its causes.
const EVENT_BYTES: usize = 1_500;
/// The size from which on only what is shown of the data of an entry is kept, in bytes.
const DATA_BYTES_MAX: usize = 2_000;
/// The number of events per page.
const PAGE: usize = 500;

/// An event.
pub(super) struct Event {
    /// The number, from 1.
    pub(super) n: u64,
    pub(super) owner: Owner,
    pub(super) stream: Stream,
    pub(super) entry: Arc<Entry>,
    /// The JSON text, which is the same for all who may see the event. The first one who does makes it.
    text: OnceCell<Arc<str>>,
}

impl Event {
    fn bytes(&self) -> usize {
        let causes: usize = self.entry.cause.0.iter().map(|cause| cause.len()).sum();
        EVENT_BYTES + self.entry.data.len() + causes
    }

    /// Returns the JSON text.
    pub(super) async fn text(&self, app: &App) -> &Arc<str> {
        self.text.get_or_init(|| async { shown::text(self, app).await.into() }).await
    }
}

/// The events that are kept.
#[derive(Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The number of the newest event.
    newest: u64,
}

/// The events after one, for a reader.
pub(super) struct Read {
    /// The events in order.
    pub(super) events: Vec<Arc<Event>>,
    /// The number of events before them that are not kept any more.
    pub(super) skipped: u64,
}

struct Inner {
    epoch: String,
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
}

/// A cheap handle on the last events of the daemon.
#[derive(Clone)]
pub(in crate::api) struct Hub(Arc<Inner>);

impl Hub {
    /// Follows the journals of a store from now on.
    pub(in crate::api) fn start(store: &Store) -> Self {
        let inner = Arc::new(Inner {
            epoch: uuid::Uuid::new_v4().simple().to_string(),
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
        });
        tokio::spawn(follow(Arc::downgrade(&inner), store.tap()));
        Self(inner)
    }

    /// Returns the id of the sequence of numbers.
    pub(super) fn epoch(&self) -> &str {
        &self.0.epoch
    }

    /// Returns a receiver that wakes with the number of the newest event.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// Returns at most `limit` events after the event of a number.
    pub(super) fn after(&self, n: u64, limit: usize) -> Read {
        let kept = self.kept();
        let first = kept.events.front().map_or(kept.newest + 1, |event| event.n);
        let skipped = first.saturating_sub(n + 1);
        let begin = usize::try_from((n + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        Read { events: kept.events.iter().skip(begin).take(limit).cloned().collect(), skipped }
    }

    /// Returns a page of the events before the event of a number, the newest first, and `true` if earlier ones than all that are kept
    /// were dropped.
    pub(super) fn before(&self, n: u64) -> (Vec<Arc<Event>>, bool) {
        let kept = self.kept();
        let first = kept.events.front().map_or(kept.newest + 1, |event| event.n);
        let end = usize::try_from(n.saturating_sub(first)).unwrap_or(usize::MAX).min(kept.events.len());
        let page = kept.events.range(..end).rev().take(PAGE).cloned().collect();
        (page, first > 1)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what the store commits, until the store is closed or nothing uses the events any more.
async fn follow(inner: Weak<Inner>, mut tap: broadcast::Receiver<Committed>) {
    loop {
        let mut next = tap.recv().await;
        let Some(inner) = inner.upgrade() else { return };
        let mut kept = inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match next {
                Ok(committed) => kept.push(committed),
                Err(RecvError::Lagged(missed)) => kept.miss(missed),
                Err(RecvError::Closed) => return,
            }
            next = match tap.try_recv() {
                Ok(committed) => Ok(committed),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Closed) => return,
            };
        }
        let newest = kept.newest;
        drop(kept);
        inner.newest.send_if_modified(|known| std::mem::replace(known, newest) != newest);
    }
}

impl Kept {
    fn push(&mut self, Committed { stream, entry }: Committed) {
        let Some(owner) = Owner::of(&stream) else { return };
        self.newest += 1;
        // Prompts and messages are not kept here, where nothing removes them.
        let entry = match entry.data.len() > DATA_BYTES_MAX {
            true => Arc::new(Entry { data: shown::reduced(&stream, &entry.data), ..Entry::clone(&entry) }),
            false => entry,
        };
        let event = Event { n: self.newest, owner, stream, entry, text: OnceCell::new() };
        self.bytes += event.bytes();
        self.events.push_back(Arc::new(event));
        while self.events.len() > EVENTS_MAX || (self.bytes > BYTES_MAX && self.events.len() > 1) {
            let dropped = self.events.pop_front().map_or(0, |event| event.bytes());
            self.bytes -= dropped;
        }
    }

    /// Notes that an unknown number of events were missed. Readers are behind now, and learn it.
    fn miss(&mut self, entries: u64) {
        tracing::warn!(entries, "events came faster than they were kept");
        self.newest += entries;
        self.events.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use store::{Cause, PrincipalId, Timestamp};

    use super::*;

    fn committed(stream: &str, bytes: usize) -> Committed {
        let entry = Entry {
            seq: 1,
            at: Timestamp::default(),
            by: PrincipalId::new("user:ada"),
            cause: Cause::default(),
            kind: "k".into(),
            data: vec![b'x'; bytes].into(),
        };
        Committed { stream: stream.into(), entry: Arc::new(entry) }
    }

    fn hub() -> Hub {
        let (kept, newest) = (Mutex::default(), watch::Sender::new(0));
        Hub(Arc::new(Inner { epoch: "e".into(), kept, newest }))
    }

    fn numbers(events: &[Arc<Event>]) -> Vec<u64> {
        events.iter().map(|event| event.n).collect()
    }

    #[test]
    fn events_are_read_from_both_ends() {
        let hub = hub();
        for stream in ["trace:lf", "tokens:all", "job:lf.one", "canvas:lf/chat"] {
            hub.kept().push(committed(stream, 1));
        }
        let Read { events, skipped } = hub.after(1, 10);
        assert_eq!((numbers(&events), skipped), (vec![2, 3], 0), "what has no watchers is no event");
        assert!(hub.after(3, 10).events.is_empty());
        let (page, is_cut) = hub.before(3);
        assert_eq!((numbers(&page), is_cut), (vec![2, 1], false));
        assert!(hub.before(1).0.is_empty());
    }

    #[test]
    fn the_oldest_events_go_first() {
        let hub = hub();
        for _ in 0..10_000 {
            hub.kept().push(committed("trace:lf", DATA_BYTES_MAX));
        }
        let Read { events, skipped } = hub.after(0, 100_000);
        let most = BYTES_MAX / (DATA_BYTES_MAX + EVENT_BYTES);
        assert!((most - 50..=most).contains(&events.len()), "{} of {most}", events.len());
        assert_eq!(skipped as usize + events.len(), 10_000);
        assert!(hub.before(u64::MAX).1);
        hub.kept().push(committed("trace:lf", 40 << 20));
        assert_eq!(hub.after(10_000, 10).events[0].entry.data, "{}", "of a large entry, what is shown is kept");
    }

    #[test]
    fn missed_entries_leave_a_gap() {
        let hub = hub();
        hub.kept().push(committed("trace:lf", 1));
        hub.kept().miss(7);
        hub.kept().push(committed("trace:lf", 1));
        let Read { events, skipped } = hub.after(1, 100);
        assert_eq!((numbers(&events), skipped), (vec![9], 7));
    }
}
