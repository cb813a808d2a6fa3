//! The one source of time. Nothing else in the workspace asks the machine what time it is.

use std::time::Duration;

use async_trait::async_trait;
pub use jiff::Timestamp;
use tokio::sync::watch;

/// Tells the time.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Now, to the millisecond.
    fn now(&self) -> Timestamp;

    /// Waits until it is `at`.
    async fn until(&self, at: Timestamp);
}

/// The longest wait at a time: a machine that slept finds out so late at most.
const NAP: Duration = Duration::from_secs(30);

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    async fn until(&self, at: Timestamp) {
        while let Ok(left) = Duration::try_from(at - self.now())
            && !left.is_zero()
        {
            tokio::time::sleep(left.min(NAP)).await;
        }
    }
}

/// A clock that moves only when a test moves it.
#[derive(Clone, Debug)]
pub struct ManualClock(watch::Sender<i64>);

impl ManualClock {
    /// A clock standing at `at`.
    pub fn at(at: Timestamp) -> Self {
        Self(watch::Sender::new(at.as_millisecond()))
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, ms: i64) {
        self.0.send_modify(|now| *now += ms);
    }
}

impl Default for ManualClock {
    /// 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self(watch::Sender::new(1_767_225_600_000))
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(*self.0.borrow()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    async fn until(&self, at: Timestamp) {
        let mut now = self.0.subscribe();
        // The clock lives as long as its holder here.
        let _ = now.wait_for(|now| *now >= at.as_millisecond()).await;
    }
}
