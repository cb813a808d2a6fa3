//! The limits of a tool: calls per minute and per day by each lifeform or principal, and the size of a result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use store::Timestamp;
use utoipa::ToSchema;

use super::RESULT_BYTES_MAX;

/// The maximum of [`ToolLimits::per_minute`] and of [`ToolLimits::per_day`].
const PER_MINUTE_MAX: u32 = 10_000;
const PER_DAY_MAX: u32 = 1_000_000;
/// The maximum of [`ToolLimits::task_s`]: a week.
const TASK_S_MAX: u32 = 604_800;
/// The minimum of [`ToolLimits::result_bytes`].
const RESULT_BYTES_MIN: usize = 256;
/// The number of users above which earlier ones are forgotten.
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
    /// The maximum time in seconds for which a call is waited for that an MCP server carries out as a task, 1 to 604800. Default:
    /// 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub task_s: Option<u32>,
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
            _ if is_out(self.task_s, TASK_S_MAX) => Err(format!("task_s is 1 to {TASK_S_MAX}")),
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
            task_s: least(self.task_s, other.task_s),
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

/// Returns the minute of a time, counted from the epoch.
fn minute_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(60)
}

/// The calls of all tools by their users, `{user}/{tool}`, in the present day and minute. One number serves all limits, so a
/// reference with another limit begins nothing again.
#[derive(Default)]
pub(crate) struct Counters {
    days: Mutex<HashMap<Arc<str>, Used>>,
    /// The minute, counted from the epoch, and the number of calls in it.
    minutes: Mutex<HashMap<Arc<str>, (i64, u32)>>,
    counting: Mutex<()>,
}

impl Counters {
    /// Returns `true` if the calls of today are known, so that the stored number need not be read.
    pub(crate) fn knows(&self, user: &str, now: Timestamp) -> bool {
        self.days().get(user).is_some_and(|used| used.day == day_of(now))
    }

    /// Takes over the stored number of calls, unless later ones were counted.
    pub(crate) fn learn(&self, user: &Arc<str>, stored: Option<Used>) {
        if let Some(used) = stored {
            let mut days = self.days();
            let known = days.entry(user.clone()).or_insert(used);
            if known.day < used.day {
                *known = used;
            }
        }
    }

    /// Returns a sentence that says when the next call may be made, if the limits admit none now.
    pub(crate) fn refusal(&self, user: &Arc<str>, limits: &ToolLimits, now: Timestamp) -> Option<String> {
        let (in_day, in_minute) = self.calls(user, now);
        if let Some(most) = limits.per_day.filter(|most| in_day >= *most) {
            return Some(format!("not called: the limit is {most} calls a day; the next day begins at 00:00 UTC"));
        }
        let most = limits.per_minute.filter(|most| in_minute >= *most)?;
        let left = 60 - now.as_second().rem_euclid(60);
        Some(format!("not called: the limit is {most} calls a minute; try again in {left} s"))
    }

    /// Counts a call, if the limits admit it. Returns the number of calls to store, if calls a day are limited.
    ///
    /// # Errors
    /// A sentence that says when the next call may be made. The call was not counted.
    pub(crate) fn admit(&self, user: &Arc<str>, limits: &ToolLimits, now: Timestamp) -> Result<Option<Used>, String> {
        // Calls are counted one after the other.
        let _one = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = self.refusal(user, limits, now) {
            return Err(why);
        }
        let (today, minute) = (day_of(now), minute_of(now));
        let (in_day, in_minute) = self.calls(user, now);
        let counted = Used { day: today, calls: in_day + 1 };
        let mut days = self.days();
        if days.len() > COUNTED_MAX {
            days.retain(|_, used| used.day == today);
        }
        days.insert(user.clone(), counted);
        drop(days);
        let mut minutes = self.minutes();
        if minutes.len() > COUNTED_MAX {
            minutes.retain(|_, (known, _)| *known == minute);
        }
        minutes.insert(user.clone(), (minute, in_minute + 1));
        Ok(limits.per_day.map(|_| counted))
    }

    /// Returns the number of calls in the present day and minute.
    fn calls(&self, user: &str, now: Timestamp) -> (u32, u32) {
        let (today, minute) = (day_of(now), minute_of(now));
        let in_day = self.days().get(user).filter(|used| used.day == today).map_or(0, |used| used.calls);
        let in_minute = self.minutes().get(user).filter(|(known, _)| *known == minute).map_or(0, |(_, calls)| *calls);
        (in_day, in_minute)
    }

    fn minutes(&self) -> MutexGuard<'_, HashMap<Arc<str>, (i64, u32)>> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn days(&self) -> MutexGuard<'_, HashMap<Arc<str>, Used>> {
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
        assert!(counters.admit(&ada, &limits, noon).unwrap_err().contains("2 calls a day"));
        assert_eq!(counters.admit(&ben, &limits, noon).unwrap().unwrap().calls, 1);
        let next: Timestamp = "2026-11-28T00:00:00Z".parse().unwrap();
        assert_eq!(counters.admit(&ada, &limits, next).unwrap().unwrap().calls, 1);
    }

    #[test]
    fn a_minute_has_so_many_calls_whatever_the_reference() {
        let of = |most| ToolLimits { per_minute: Some(most), ..Default::default() };
        let (counters, user): (_, Arc<str>) = (Counters::default(), "lf1/book".into());
        let now = Timestamp::from_second(30).unwrap();
        // A second reference with another limit does not begin again.
        let admitted = (0..10).filter(|n| counters.admit(&user, &of(3 + n % 2), now).is_ok()).count();
        assert_eq!(admitted, 4);
        assert!(counters.admit(&user, &of(3), now).unwrap_err().contains("3 calls a minute; try again in 30 s"));
        assert!(counters.admit(&user, &of(3), Timestamp::from_second(60).unwrap()).is_ok());
    }

    #[test]
    fn the_stricter_limit_holds() {
        let one = ToolLimits { per_minute: Some(5), per_day: None, result_bytes: Some(4_096), ..ToolLimits::default() };
        let other = ToolLimits { per_minute: Some(9), per_day: Some(7), result_bytes: None, ..ToolLimits::default() };
        let both = one.at_most(other);
        assert_eq!((both.per_minute, both.per_day), (Some(5), Some(7)));
        assert_eq!(both.result_bytes, Some(4_096));
        let over = ToolLimits { result_bytes: Some(1), ..ToolLimits::default() };
        assert!(over.check().unwrap_err().starts_with("result_bytes"));
    }
}
