//! The only source of time. No other code in the workspace reads the system time.

use std::time::Duration;

use async_trait::async_trait;
pub use jiff::Timestamp;
use tokio::sync::watch;

/// A clock.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time, with millisecond precision.
    fn now(&self) -> Timestamp;

    /// Waits until the time `at`.
    async fn until(&self, at: Timestamp);
}

/// The longest single wait. After a suspend of the machine, a wait ends at most this much late.
const NAP: Duration = Duration::from_secs(30);

/// The system clock.
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

/// A clock that only a test advances.
#[derive(Clone, Debug)]
pub struct ManualClock(watch::Sender<i64>);

impl ManualClock {
    /// Returns a clock set to `at`.
    ///
    /// ```
    /// use store::{Clock, ManualClock, Timestamp};
    /// let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
    /// clock.advance_ms(1_500);
    /// assert_eq!(clock.now().as_millisecond(), 1_500);
    /// ```
    pub fn at(at: Timestamp) -> Self {
        Self(watch::Sender::new(at.as_millisecond()))
    }

    /// Advances the clock by `ms` milliseconds.
    pub fn advance_ms(&self, ms: i64) {
        self.0.send_modify(|now| *now += ms);
    }
}

impl Default for ManualClock {
    /// Returns a clock set to 2026-01-01T00:00:00Z.
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
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = now.wait_for(|now| *now >= at.as_millisecond()).await;
    }
}
