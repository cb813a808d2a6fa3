//! The rate limits of a provider: those of the configuration, corrected by the provider's own headers.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use http::HeaderMap;
use tokio::time::Instant;

type Limiter = RateLimiter<NotKeyed, InMemoryState, MonotonicClock, NoOpMiddleware<<MonotonicClock as Clock>::Instant>>;

/// The rate limiter of a provider: see the module. Clones share one state.
#[derive(Clone, Default)]
pub struct Limits(Arc<Inner>);

#[derive(Default)]
struct Inner {
    requests: Option<Limiter>,
    tokens: Option<(Limiter, NonZeroU32)>,
    closed: Mutex<Closed>,
}

/// The pauses that the provider asked for.
#[derive(Default)]
struct Closed {
    /// The end of the pause of all calls.
    all: Option<Instant>,
    /// The participant whose calls pause while no call of another one was asked to wait, and the end of its pause.
    only: Option<(Arc<str>, Instant)>,
}

impl Limits {
    /// Creates limits of requests and tokens per minute. `None` means no limit.
    pub fn per_minute(requests: Option<NonZeroU32>, tokens: Option<NonZeroU32>) -> Self {
        let limiter = |count| RateLimiter::direct_with_clock(Quota::per_minute(count), MonotonicClock);
        let tokens = tokens.map(|count| (limiter(count), count));
        Self(Arc::new(Inner { requests: requests.map(limiter), tokens, closed: Mutex::default() }))
    }

    /// Returns the time that a request of about `tokens` tokens must still wait. `None` means that it may be sent, and
    /// counts it. `counted` records whether the request was already counted, so it is counted once.
    pub(super) fn wait(&self, tokens: u32, counted: &mut bool) -> Option<Duration> {
        if let Some(closed) = self.closed(None) {
            return Some(closed);
        }
        if let Some((limiter, most)) = self.0.tokens.as_ref().filter(|_| !*counted) {
            let tokens = NonZeroU32::new(tokens.clamp(1, most.get())).unwrap_or(NonZeroU32::MIN);
            if let Ok(Err(not_until)) = limiter.check_n(tokens) {
                return Some(not_until.wait_time_from(MonotonicClock.now()));
            }
            *counted = true;
        }
        let not_until = self.0.requests.as_ref().and_then(|limiter| limiter.check().err());
        not_until.map(|not_until| not_until.wait_time_from(MonotonicClock.now()))
    }

    /// Returns the rest of a pause of all calls or, with a participant, of its calls alone.
    pub(super) fn closed(&self, only: Option<&Arc<str>>) -> Option<Duration> {
        let now = Instant::now();
        let closed = self.0.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let until = match only {
            None => closed.all,
            Some(only) => closed.only.as_ref().filter(|(who, _)| who == only).map(|(_, until)| *until),
        };
        until.filter(|until| *until > now).map(|until| until - now)
    }

    /// Blocks requests for that time, after a provider asked a call for `caller` to wait: those of this participant, or
    /// all requests if calls of others were asked to wait as well. Returns `true` if others are still admitted.
    pub(super) fn close_for(&self, wait: Duration, caller: Option<&Arc<str>>) -> bool {
        let now = Instant::now();
        let until = now + wait.min(CLOSED_MAX);
        let mut closed = self.0.closed.lock().unwrap_or_else(PoisonError::into_inner);
        match (caller, &closed.only) {
            (Some(caller), Some((who, before))) if who == caller => {
                closed.only = Some((caller.clone(), until.max(*before)));
                true
            }
            (Some(caller), before) if before.as_ref().is_none_or(|(_, before)| *before <= now) => {
                closed.only = Some((caller.clone(), until));
                true
            }
            _ => {
                closed.all = Some(closed.all.map_or(until, |before| before.max(until)));
                false
            }
        }
    }

    /// Records the remaining limits in the headers of a response (`x-ratelimit-remaining-*`, `x-ratelimit-reset-*`).
    pub(super) fn heed(&self, headers: &HeaderMap) {
        for what in ["requests", "tokens"] {
            let text =
                |name: &str| headers.get(format!("x-ratelimit-{name}-{what}")).and_then(|value| value.to_str().ok());
            let left = text("remaining").and_then(|left| left.trim().parse::<f64>().ok());
            let reset = text("reset").and_then(span);
            if let (Some(left), Some(reset)) = (left, reset)
                && left < 1.0
            {
                self.close_for(reset, None);
            }
        }
    }
}

/// The maximum time that a provider can block requests at once.
const CLOSED_MAX: Duration = Duration::from_secs(300);

/// Returns the time for which a provider asks not to be called: `retry-after-ms`, `Retry-After` in seconds or as an
/// HTTP date, or the reset time of an exhausted limit.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(ms.max(0.0) / 1000.0).ok();
    }
    if let Some(value) = text("retry-after") {
        if let Some(wait) = span(value) {
            return Some(wait);
        }
        if let Ok(at) = httpdate::parse_http_date(value) {
            return Some(at.duration_since(now).unwrap_or_default());
        }
    }
    // The reset time of the exhausted limit, or of either limit if the response does not say which.
    let of = |what: &str| {
        let left = text(&format!("x-ratelimit-remaining-{what}")).and_then(|left| left.parse::<f64>().ok());
        text(&format!("x-ratelimit-reset-{what}")).filter(|_| left.is_none_or(|left| left < 1.0)).and_then(span)
    };
    of("requests").into_iter().chain(of("tokens")).max()
}

/// Parses a duration such as `12`, `0.5`, `120ms`, `6m0s` or `1.5s`.
fn span(text: &str) -> Option<Duration> {
    if let Some(seconds) = text.parse::<f64>().ok().filter(|seconds| !seconds.is_nan()) {
        return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    }
    Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn every_form_of_retry_after_is_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 7);
        for (name, value, ms) in [
            ("retry-after", "3", 3_000),
            ("retry-after", "0.25", 250),
            ("retry-after", " 2 ", 2_000),
            ("retry-after", "-1", 0),
            ("retry-after", "1.5s", 1_500),
            ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", 7_000),
            ("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT", 7_000),
            ("retry-after", "Sun Nov  6 08:49:37 1994", 7_000),
            ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", 0),
            ("retry-after-ms", "120", 120),
            ("x-ratelimit-reset-requests", "6m0s", 360_000),
            ("x-ratelimit-reset-tokens", "20ms", 20),
            ("retry-after-ms", "0", 0),
        ] {
            let read = retry_after(&headers(&[(name, value)]), now);
            assert_eq!(read, Some(Duration::from_millis(ms)), "{name}: {value}");
        }
        for value in ["soon", "", "NaN", "1e400"] {
            assert_eq!(retry_after(&headers(&[("retry-after", value)]), now), None, "{value}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_without_quota_is_not_called_until_its_reset_time() {
        let limits = Limits::default();
        assert_eq!(limits.wait(1, &mut false), None);
        limits.heed(&headers(&[("x-ratelimit-remaining-requests", "4"), ("x-ratelimit-reset-requests", "9s")]));
        assert_eq!(limits.wait(1, &mut false), None);
        limits.heed(&headers(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "9s")]));
        assert_eq!(limits.wait(1, &mut false), Some(Duration::from_secs(9)));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(limits.wait(1, &mut false), None);
    }

    #[test]
    fn requests_and_tokens_a_minute_are_bounded() {
        let three = Limits::per_minute(NonZeroU32::new(3), None);
        assert!((0..3).all(|_| three.wait(1, &mut false).is_none()));
        assert!(three.wait(1, &mut false).unwrap() <= Duration::from_secs(20));
        let tokens = Limits::per_minute(None, NonZeroU32::new(1_000));
        assert_eq!(tokens.wait(900, &mut false), None);
        assert!(tokens.wait(900, &mut false).unwrap() > Duration::from_secs(40));
        assert_eq!(tokens.wait(50, &mut false), None, "what fits may pass");
        let small = Limits::per_minute(None, NonZeroU32::new(10));
        assert_eq!(small.wait(1_000, &mut false), None, "what is larger than a minute takes the minute");
    }
}
