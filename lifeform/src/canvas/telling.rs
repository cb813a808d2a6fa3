//! When subscribers are told how far a canvas is. Whoever is alone is told at once. Where many subscribe, telling them takes a
//! while: they are told together of what comes within that while, so that a crowd costs a busy canvas no more than a few do.

use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};

use super::handle::Shown;

/// How long it takes to tell one subscriber something, about.
const EACH: Duration = Duration::from_micros(50);
/// What is shorter than this is no time.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest that something waits to be told together with what follows it.
const LONGEST: Duration = Duration::from_millis(8);
/// After a rest the crowd is told once this part of the while has passed: what comes alone rarely comes alone.
const FIRST: u32 = 8;

/// How long it takes to tell so many.
fn takes(subscribers: usize) -> Duration {
    let all = EACH * u32::try_from(subscribers).unwrap_or(u32::MAX);
    if all < SHORTEST { Duration::ZERO } else { all.min(LONGEST) }
}

/// Passes on what is `published` to those who watch `told`, until its owner is gone; whoever subscribes listens to `shown`.
pub(super) async fn run(
    mut published: watch::Receiver<u64>,
    told: watch::Sender<u64>,
    shown: broadcast::WeakSender<Shown>,
) {
    let mut told_at = Instant::now();
    while published.changed().await.is_ok() {
        let takes = takes(shown.upgrade().map_or(0, |shown| shown.receiver_count()));
        if !takes.is_zero() {
            sleep_until((told_at + takes).max(Instant::now() + takes / FIRST)).await;
        }
        told_at = Instant::now();
        told.send_replace(*published.borrow_and_update());
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

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_told_together_and_of_the_last_before_the_end() {
        let (publish, published) = watch::channel(0);
        let (told, mut hears) = watch::channel(0);
        let (shown, _) = broadcast::channel(1);
        let crowd: Vec<_> = (0..100).map(|_| shown.subscribe()).collect();
        tokio::spawn(run(published, told, shown.downgrade()));
        let begun = Instant::now();
        publish.send_replace(1);
        hears.changed().await.unwrap();
        assert!(begun.elapsed() <= takes(100), "after a rest it is told soon: {:?}", begun.elapsed());
        let mut heard = 0;
        for rev in 2..=50 {
            publish.send_replace(rev);
            tokio::time::sleep(Duration::from_millis(1)).await;
            heard += usize::from(hears.has_changed().unwrap());
            hears.borrow_and_update();
        }
        assert!((8..=13).contains(&heard), "of fifty within fifty milliseconds it heard {heard} times");
        publish.send_replace(51);
        drop((publish, crowd));
        hears.changed().await.unwrap();
        assert_eq!(*hears.borrow_and_update(), 51);
        assert!(hears.changed().await.is_err(), "then it is over");
    }
}
