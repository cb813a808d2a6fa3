//! The notifications of subscribers. A single subscriber is notified immediately. With many subscribers, a notification
//! takes time, and the next one covers all changes within that time. Many subscribers thus cost a busy canvas no more
//! than a few.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::handle::EphemeralFrame;

/// The estimated time of one notification.
const EACH: Duration = Duration::from_micros(50);
/// Delays below this are not worth a timer: subscribers are notified immediately.
const SHORTEST: Duration = Duration::from_millis(1);
/// The maximum delay of a notification.
const LONGEST: Duration = Duration::from_millis(8);
/// The maximum wait for subscribers that have not taken the last notification. A notification before that would reach
/// them in pieces.
const BUSY: Duration = Duration::from_millis(25);
/// The divisor of the delay for the first notification after a pause. A single write is often followed by others.
const FIRST: u32 = 8;

/// Returns the estimated time for notifying `subscribers`.
fn takes(subscribers: usize) -> Duration {
    let all = EACH * u32::try_from(subscribers).unwrap_or(u32::MAX);
    if all < SHORTEST { Duration::ZERO } else { all.min(LONGEST) }
}

/// The progress of the subscribers with the present notification.
#[derive(Debug, Default)]
pub(super) struct SubscriberGroup {
    /// The number of subscribers that have taken the notification.
    done: AtomicUsize,
    /// The number of subscribers whose sockets take nothing at present. Notifications do not wait for them.
    held_up: AtomicUsize,
    /// The number of subscribers that the next notification waits for.
    wanted: AtomicUsize,
    changed: Notify,
}

/// A guard that excludes a subscriber from the wait until it is dropped.
#[derive(Debug)]
pub struct Lagging(Arc<SubscriberGroup>);

impl Drop for Lagging {
    fn drop(&mut self) {
        self.0.held_up.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SubscriberGroup {
    /// Records that a subscriber has taken the notification.
    pub(super) fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.is_done() {
            self.changed.notify_one();
        }
    }

    /// Records that a subscriber cannot take the notification for now.
    pub(super) fn hold_up(self: &Arc<Self>) -> Lagging {
        self.held_up.fetch_add(1, Ordering::Relaxed);
        if self.is_done() {
            self.changed.notify_one();
        }
        Lagging(self.clone())
    }

    fn is_done(&self) -> bool {
        let [done, held_up, wanted] = [&self.done, &self.held_up, &self.wanted].map(|it| it.load(Ordering::Relaxed));
        done + held_up >= wanted
    }

    /// Starts a notification of `wanted` subscribers.
    fn begin(&self, wanted: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    async fn all_done(&self) {
        while !self.is_done() {
            self.changed.notified().await;
        }
    }
}

/// Forwards the `published` revision to the watchers of `told`, until the owner task ends. Subscribers listen to
/// `shown`.
pub(super) async fn run(
    mut published: watch::Receiver<u64>,
    progress: watch::Sender<u64>,
    shown: broadcast::WeakSender<EphemeralFrame>,
    group: Arc<SubscriberGroup>,
) {
    let mut told_at = Instant::now();
    while published.changed().await.is_ok() {
        let subscribers = shown.upgrade().map_or(0, |shown| shown.receiver_count());
        let takes = takes(subscribers);
        if !takes.is_zero() {
            sleep_until((told_at + takes).max(Instant::now() + takes / FIRST)).await;
            let _ = timeout_at(told_at + BUSY, group.all_done()).await;
        }
        told_at = Instant::now();
        group.begin(subscribers);
        progress.send_replace(*published.borrow_and_update());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_told_at_once_and_a_crowd_within_a_moment() {
        assert_eq!([0, 1, 19].map(takes), [Duration::ZERO; 3]);
        assert_eq!(takes(100), Duration::from_millis(5));
        assert_eq!(takes(usize::MAX), LONGEST);
    }

    /// A canvas with a number of subscribers.
    struct Canvas {
        publish: watch::Sender<u64>,
        hears: watch::Receiver<u64>,
        group: Arc<SubscriberGroup>,
        shown: (broadcast::Sender<EphemeralFrame>, Vec<broadcast::Receiver<EphemeralFrame>>),
    }

    fn canvas(subscribers: usize) -> Canvas {
        let (publish, published) = watch::channel(0);
        let (progress, hears) = watch::channel(0);
        let (shown, _) = broadcast::channel(1);
        let group: Arc<SubscriberGroup> = Arc::default();
        tokio::spawn(run(published, progress, shown.downgrade(), group.clone()));
        let subscribed = (0..subscribers).map(|_| shown.subscribe()).collect();
        Canvas { publish, hears, group, shown: (shown, subscribed) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_told_together_and_of_the_last_before_the_end() {
        let Canvas { publish, mut hears, group, shown } = canvas(100);
        let begun = Instant::now();
        publish.send_replace(1);
        hears.changed().await.unwrap();
        assert!(begun.elapsed() <= takes(100), "after a rest it is told soon: {:?}", begun.elapsed());
        let mut heard = 0;
        for rev in 2..=50 {
            (0..100).for_each(|_| group.done());
            publish.send_replace(rev);
            tokio::time::sleep(Duration::from_millis(1)).await;
            heard += usize::from(hears.has_changed().unwrap());
            hears.borrow_and_update();
        }
        assert!((8..=13).contains(&heard), "of fifty within fifty milliseconds it heard {heard} times");
        publish.send_replace(51);
        drop((publish, shown));
        hears.changed().await.unwrap();
        assert_eq!(*hears.borrow_and_update(), 51);
        assert!(hears.changed().await.is_err(), "then it is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_waited_for_a_while_and_nobody_who_takes_nothing() {
        let Canvas { publish, mut hears, group, shown: _shown } = canvas(100);
        publish.send_replace(1);
        hears.changed().await.unwrap();
        let progress = async |rev: u64, hears: &mut watch::Receiver<u64>| {
            let begun = Instant::now();
            publish.send_replace(rev);
            hears.changed().await.unwrap();
            begun.elapsed()
        };
        assert!(progress(2, &mut hears).await >= BUSY - takes(100), "nobody has taken anything yet");
        let one = group.hold_up();
        (0..99).for_each(|_| group.done());
        assert!(progress(3, &mut hears).await <= takes(100), "all have but one, who takes nothing");
        drop(one);
        (0..99).for_each(|_| group.done());
        assert!(progress(4, &mut hears).await > takes(100), "who takes something again is waited for");
    }
}
