//! The number of bytes that each participant submitted recently, refused ones included: a leaky bucket that empties
//! within a day.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::principal::{Principal, PrincipalId};

/// The default maximum number of bytes that a participant may write per day.
pub(super) const BYTES_A_DAY: u64 = 512 << 20;
/// The number of counts above which those of an empty bucket are evicted. It is not a limit.
const SWEPT_ABOVE: usize = 4_096;
const DAY_MS: f64 = 86_400_000.0;

/// The written bytes of each participant, and the daily limit.
pub(super) struct Written {
    bytes_a_day: f64,
    buckets: Mutex<HashMap<PrincipalId, Bucket>>,
}

#[derive(Clone, Copy)]
struct Bucket {
    bytes: f64,
    at: Timestamp,
}

impl Written {
    /// Returns counts with a limit of `bytes_a_day` bytes per participant; 0 means no limit.
    pub(super) fn new(bytes_a_day: u64) -> Self {
        Self { bytes_a_day: bytes_a_day as f64, buckets: Mutex::default() }
    }

    fn left_at(&self, bucket: Bucket, now: Timestamp) -> f64 {
        let ms = now.as_millisecond().saturating_sub(bucket.at.as_millisecond()).max(0) as f64;
        (bucket.bytes - ms * self.bytes_a_day / DAY_MS).max(0.0)
    }

    /// Counts the bytes that are written for a principal.
    pub(super) fn count(&self, principal: &Principal, bytes: impl FnOnce() -> usize, now: Timestamp) {
        if self.bytes_a_day == 0.0 || !principal.is_bound() {
            return;
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let left = buckets.get(&principal.id).map_or(0.0, |bucket| self.left_at(*bucket, now));
        buckets.insert(principal.id.clone(), Bucket { bytes: left + bytes() as f64, at: now });
        if buckets.len() > SWEPT_ABOVE {
            buckets.retain(|_, bucket| self.left_at(*bucket, now) > 0.0);
        }
    }

    /// Returns the time that a principal must wait before new writes are admitted; `None` means no wait.
    pub(super) fn wait(&self, principal: &Principal, now: Timestamp) -> Option<Duration> {
        if self.bytes_a_day == 0.0 || !principal.is_bound() {
            return None;
        }
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let over = self.left_at(*buckets.get(&principal.id)?, now) - self.bytes_a_day;
        (over >= 0.0).then(|| Duration::from_secs_f64(1.0 + over * DAY_MS / self.bytes_a_day / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::{PrincipalKind, Role};

    #[test]
    fn the_daily_write_quota_binds_participants_but_not_operators() {
        let written = Written::new(1_000);
        let ada = Principal::new("user:ada", PrincipalKind::User, Role::Participant);
        let operator = Principal::new("user:operator", PrincipalKind::User, Role::Operator);
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        for _ in 0..4 {
            assert_eq!(written.wait(&ada, at(0)), None);
            written.count(&ada, || 300, at(0));
            written.count(&operator, || 300, at(0));
        }
        let wait = written.wait(&ada, at(0)).unwrap();
        assert_eq!(wait.as_secs(), 1 + 86_400 / 5);
        assert_eq!(written.wait(&operator, at(0)), None);
        assert_eq!(written.wait(&ada, at(i64::try_from(wait.as_millis()).unwrap())), None);
    }
}
