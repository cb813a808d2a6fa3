//! The circuit breaker, one per model. It pauses calls of a model that fails repeatedly, and then tests the model with
//! one call. A model that answers one participant with server errors, and no other caller, is paused for that
//! participant only, because the cause may be in the requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::LlmError;

/// The number of consecutive failures that opens the breaker.
const FAILURES_MAX: u32 = 5;
/// The first pause after failures. It doubles after each failed test call.
const REST: Duration = Duration::from_secs(5);
/// The maximum pause after failures.
const REST_MAX: Duration = Duration::from_secs(300);
/// The pause for a provider without quota.
const PARKED: Duration = Duration::from_secs(600);

/// The state of a circuit breaker: see the module.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// The participant that made all failed calls since the last answer, if there is only one and all failed with a
    /// server error or were asked to wait.
    only: Option<Arc<str>>,
    until: Option<Instant>,
    /// The start of the running test call, if there is one.
    trying: Option<Instant>,
    /// `true` if the provider has no quota left.
    is_parked: bool,
    why: String,
    /// `true` if the last finished call received no answer.
    is_failing: bool,
}

impl Breaker {
    /// Admits a call for `caller`. Returns `true` if it is the test call after a pause.
    ///
    /// # Errors
    /// Returns the remaining pause and its reason.
    pub(super) fn admit(&mut self, caller: Option<&Arc<str>>, now: Instant) -> Result<bool, (Duration, String)> {
        let Some(until) = self.until else { return Ok(false) };
        if self.only.is_some() && self.only.as_ref() != caller {
            return Ok(false);
        }
        let busy = self.trying.is_some_and(|since| now.saturating_duration_since(since) < REST_MAX);
        if now < until || busy {
            return Err((until.saturating_duration_since(now).max(Duration::from_secs(1)), self.why.clone()));
        }
        self.trying = Some(now);
        Ok(true)
    }

    /// Returns `true` if the model pauses for lack of quota.
    pub(super) fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// Returns `true` if the last call received no answer: the provider is down, busy, without quota, or refuses the
    /// key.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Records the outcome of a call for `caller`. A failed call that started before a pause does not extend it.
    pub(super) fn note(
        &mut self,
        came: Result<(), &LlmError>,
        caller: Option<&Arc<str>>,
        is_trial: bool,
        now: Instant,
    ) {
        if is_trial {
            self.trying = None;
        }
        if matches!(came, Err(LlmError::Unheard { .. })) {
            return;
        }
        self.is_failing = came.is_err_and(LlmError::another_may_answer);
        if came.is_err() {
            let is_first = self.failures == 0 && self.until.is_none();
            let is_of_call = matches!(came, Err(LlmError::Broken { .. } | LlmError::Busy { .. }));
            let is_only = is_of_call && (is_first || self.only.as_ref() == caller);
            self.only = caller.filter(|_| is_only).cloned();
        }
        if came.is_err() && self.until.is_some() && !is_trial && !matches!(came, Err(LlmError::Exhausted { .. })) {
            return;
        }
        let rest = match came {
            Err(LlmError::Exhausted { .. }) => PARKED,
            Err(LlmError::Unreachable { .. } | LlmError::Broken { .. } | LlmError::Busy { .. }) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures < FAILURES_MAX {
                    return;
                }
                REST.saturating_mul(1 << (self.failures - FAILURES_MAX).min(8)).min(REST_MAX)
            }
            // The provider answered, even if it refused the request.
            _ => return *self = Self { is_failing: self.is_failing, ..Self::default() },
        };
        self.is_parked = matches!(came, Err(LlmError::Exhausted { .. }));
        let until = now + rest;
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
        self.why = came.err().map(ToString::to_string).unwrap_or_default();
    }

    /// Records a cancelled call, whose outcome is no evidence about the provider.
    pub(super) fn forget(&mut self) {
        self.trying = None;
    }
}

/// The test call of a circuit breaker. If it is dropped, it is no evidence about the provider.
pub(super) struct Trial<'b> {
    pub(super) breakers: &'b Mutex<HashMap<String, Breaker>>,
    pub(super) model: &'b str,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        breakers.entry(self.model.to_owned()).or_default().forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_opens_after_failures_and_closes_after_a_success() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        let broken = LlmError::Broken { provider: "p".into(), message: "m".into() };
        for _ in 0..FAILURES_MAX - 1 {
            breaker.note(Err(&broken), None, false, start);
            assert_eq!(breaker.admit(None, start), Ok(false));
        }
        breaker.note(Ok(()), None, false, start);
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.admit(None, start), Ok(false));
        }
        for _ in 0..FAILURES_MAX * 3 {
            breaker.note(Err(&broken), None, false, start);
        }
        assert_eq!(breaker.admit(None, start).unwrap_err().0, REST);
        let later = start + REST;
        assert_eq!(breaker.admit(None, later), Ok(true), "one trial");
        assert!(breaker.admit(None, later).is_err(), "and one only");
        breaker.note(Err(&broken), None, true, later);
        assert_eq!(breaker.admit(None, later).unwrap_err().0, REST * 2);
        assert_eq!(breaker.admit(None, later + REST * 2), Ok(true));
        breaker.note(Err(&LlmError::Unheard { provider: "p".into(), message: "m".into() }), None, true, later);
        assert_eq!(breaker.admit(None, later + REST * 2), Ok(true), "a trial that nobody heard is made again");
        assert!(breaker.is_failing());
        breaker.note(Ok(()), None, true, later);
        assert_eq!((breaker.admit(None, later), breaker.is_failing()), (Ok(false), false));
        for (status, is_failing) in [(401, true), (400, false)] {
            breaker.note(
                Err(&LlmError::Refused { provider: "p".into(), status, message: "m".into() }),
                None,
                false,
                later,
            );
            assert_eq!((breaker.admit(None, later), breaker.is_failing()), (Ok(false), is_failing), "{status}");
        }
        breaker.note(Err(&LlmError::Exhausted { provider: "p".into(), message: "m".into() }), None, false, later);
        breaker.note(Err(&broken), None, false, later);
        assert_eq!(breaker.admit(None, later).unwrap_err().0, PARKED, "an older failure does not end that");
    }
    #[test]
    fn a_breaker_that_opens_for_one_participant_admits_the_others() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let broken = LlmError::Broken { provider: "p".into(), message: "m".into() };
        let (eve, ada): (Arc<str>, Arc<str>) = ("user:eve".into(), "user:ada".into());
        for _ in 0..FAILURES_MAX {
            breaker.note(Err(&broken), Some(&eve), false, now);
        }
        assert!(breaker.admit(Some(&eve), now).is_err());
        assert_eq!((breaker.admit(Some(&ada), now), breaker.admit(None, now)), (Ok(false), Ok(false)));
        breaker.note(Err(&broken), Some(&ada), false, now);
        assert!(breaker.admit(Some(&ada), now).is_err() && breaker.admit(None, now).is_err(), "it fails for two");
        let mut breaker = Breaker::default();
        let unreachable = LlmError::Unreachable { provider: "p".into(), message: "m".into() };
        for _ in 0..FAILURES_MAX {
            breaker.note(Err(&unreachable), Some(&eve), false, now);
        }
        assert!(breaker.admit(Some(&ada), now).is_err(), "a server that is not there is so for everybody");
    }
}
