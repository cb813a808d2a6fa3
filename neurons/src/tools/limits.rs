//! The limits of a tool: calls per minute and per day by each lifeform or principal, and the size of a result.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use store::Timestamp;
use utoipa::ToSchema;

use super::RESULT_BYTES_MAX;

type Limiter = RateLimiter<NotKeyed, InMemoryState, MonotonicClock, NoOpMiddleware<<MonotonicClock as Clock>::Instant>>;

/// The maximum of [`ToolLimits::per_minute`] and of [`ToolLimits::per_day`].
const PER_MINUTE_MAX: u32 = 10_000;
const PER_DAY_MAX: u32 = 1_000_000;
/// The minimum of [`ToolLimits::result_bytes`].
const RESULT_BYTES_MIN: usize = 256;
/// The number of users above which the limiters of earlier ones are removed.
const COUNTED_MAX: usize = 4_096;

/// The limits of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolLimits {
    /// The maximum number of calls per minute by one lifeform or principal. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub per_minute: Option<u32>,
    /// The maximum number of calls per day (UTC) by one lifeform or principal. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub per_day: Option<u32>,
    /// The maximum size of a result in the prompt, in bytes, 256 to 65536. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<usize>,
}

impl ToolLimits {
    /// Checks the bounds.
    ///
    /// # Errors
    /// A sentence that names the member.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_out = |limit: Option<u32>, max| limit.is_some_and(|limit| limit == 0 || limit > max);
        match self {
            _ if is_out(self.per_minute, PER_MINUTE_MAX) => Err(format!("per_minute is 1 to {PER_MINUTE_MAX}")),
            _ if is_out(self.per_day, PER_DAY_MAX) => Err(format!("per_day is 1 to {PER_DAY_MAX}")),
            Self { result_bytes: Some(bytes), .. } if !(RESULT_BYTES_MIN..=RESULT_BYTES_MAX).contains(bytes) => {
                Err(format!("result_bytes is {RESULT_BYTES_MIN} to {RESULT_BYTES_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the stricter of two limits in each member.
    pub(super) fn at_most(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            per_minute: least(self.per_minute, other.per_minute),
            per_day: least(self.per_day, other.per_day),
            result_bytes: least(self.result_bytes, other.result_bytes),
        }
    }

    /// Returns `true` if the number of calls is limited.
    pub(crate) fn counts(&self) -> bool {
        self.per_minute.is_some() || self.per_day.is_some()
    }
}

/// The calls of a tool by one user on a day, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    day: Date,
    calls: u32,
}

/// Returns the day of a time in UTC.
fn day_of(now: Timestamp) -> Date {
    now.to_zoned(TimeZone::UTC).date()
}

/// The calls of all tools by their users, `{user}/{tool}`.
#[derive(Default)]
pub(crate) struct Counters {
    minutes: Mutex<HashMap<Arc<str>, (NonZeroU32, Limiter)>>,
    days: Mutex<HashMap<Arc<str>, Used>>,
}

impl Counters {
    /// Returns `true` if the calls of today are known, so that the stored number need not be read.
    pub(crate) fn knows(&self, user: &str, now: Timestamp) -> bool {
        self.days().get(user).is_some_and(|used| used.day == day_of(now))
    }

    /// Takes over the stored number of calls, unless later ones were counted.
    pub(crate) fn learn(&self, user: &Arc<str>, stored: Option<Used>) {
        if let Some(used) = stored {
            self.days().entry(user.clone()).or_insert(used);
        }
    }

    /// Counts a call, if the limits admit it. Returns the number of calls to store, if calls a day are limited.
    ///
    /// # Errors
    /// A sentence that says when the next call may be made. The call was not counted.
    pub(crate) fn admit(&self, user: &Arc<str>, limits: &ToolLimits, now: Timestamp) -> Result<Option<Used>, String> {
        let today = day_of(now);
        let mut days = self.days();
        if days.len() > COUNTED_MAX {
            days.retain(|_, used| used.day == today);
        }
        let used = days.get(user).filter(|used| used.day == today).map_or(0, |used| used.calls);
        if let Some(most) = limits.per_day.filter(|most| used >= *most) {
            return Err(format!(
                "not called: it may be called {most} times a day, and was; the next day begins at 00:00 UTC"
            ));
        }
        if let Some(most) = limits.per_minute.and_then(NonZeroU32::new) {
            let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
            if minutes.len() > COUNTED_MAX {
                minutes.clear();
            }
            let fresh = || (most, RateLimiter::direct_with_clock(Quota::per_minute(most), MonotonicClock));
            let known = minutes.entry(user.clone()).or_insert_with(fresh);
            if known.0 != most {
                *known = fresh();
            }
            if let Err(not_until) = known.1.check() {
                let seconds = not_until.wait_time_from(MonotonicClock.now()).as_secs() + 1;
                return Err(format!("not called: it may be called {most} times a minute; try again in {seconds} s"));
            }
        }
        let counted = Used { day: today, calls: used + 1 };
        Ok(limits.per_day.map(|_| {
            days.insert(user.clone(), counted);
            counted
        }))
    }

    fn days(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Used>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_so_many_calls_and_the_next_one_as_many() {
        let (counters, limits) = (Counters::default(), ToolLimits { per_day: Some(2), ..Default::default() });
        let (ada, ben): (Arc<str>, Arc<str>) = ("lf1/book".into(), "lf2/book".into());
        let noon: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        counters.learn(&ada, Some(Used { day: day_of(noon), calls: 1 }));
        assert!(counters.knows(&ada, noon) && !counters.knows(&ben, noon));
        assert_eq!(counters.admit(&ada, &limits, noon).unwrap().unwrap().calls, 2);
        assert!(counters.admit(&ada, &limits, noon).unwrap_err().contains("2 times a day"));
        assert_eq!(counters.admit(&ben, &limits, noon).unwrap().unwrap().calls, 1);
        let next: Timestamp = "2026-11-28T00:00:00Z".parse().unwrap();
        assert_eq!(counters.admit(&ada, &limits, next).unwrap().unwrap().calls, 1);
    }

    #[test]
    fn a_minute_has_so_many_calls() {
        let limits = ToolLimits { per_minute: Some(3), ..Default::default() };
        let (counters, user): (_, Arc<str>) = (Counters::default(), "lf1/book".into());
        let now = Timestamp::UNIX_EPOCH;
        let admitted = (0..5).filter(|_| counters.admit(&user, &limits, now).is_ok()).count();
        assert_eq!(admitted, 3);
        assert!(counters.admit(&user, &limits, now).unwrap_err().contains("3 times a minute; try again in"));
    }

    #[test]
    fn the_stricter_limit_holds() {
        let one = ToolLimits { per_minute: Some(5), per_day: None, result_bytes: Some(4_096) };
        let other = ToolLimits { per_minute: Some(9), per_day: Some(7), result_bytes: None };
        let both = one.at_most(other);
        assert_eq!((both.per_minute, both.per_day), (Some(5), Some(7)));
        assert_eq!(both.result_bytes, Some(4_096));
        let over = ToolLimits { result_bytes: Some(1), ..ToolLimits::default() };
        assert!(over.check().unwrap_err().starts_with("result_bytes"));
    }
}
