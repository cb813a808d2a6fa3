//! The circuit breaker, one per model. It pauses calls of a model that fails repeatedly, and then tests the model with
//! one call.

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
    /// Admits a call. Returns `true` if it is the test call after a pause.
    ///
    /// # Errors
    /// Returns the remaining pause and its reason.
    pub(super) fn admit(&mut self, now: Instant) -> Result<bool, (Duration, String)> {
        let Some(until) = self.until else { return Ok(false) };
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

    /// Records the outcome of a call. A failed call that started before a pause does not extend it.
    pub(super) fn note(&mut self, came: Result<(), &LlmError>, is_trial: bool, now: Instant) {
        if is_trial {
            self.trying = None;
        }
        if matches!(came, Err(LlmError::Unheard { .. })) {
            return;
        }
        self.is_failing = came.is_err_and(LlmError::another_may_answer);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_one_good_trial() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        let broken = LlmError::Broken { provider: "p".into(), message: "m".into() };
        for _ in 0..FAILURES_MAX - 1 {
            breaker.note(Err(&broken), false, start);
            assert_eq!(breaker.admit(start), Ok(false));
        }
        breaker.note(Ok(()), false, start);
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.admit(start), Ok(false));
        }
        for _ in 0..FAILURES_MAX * 3 {
            breaker.note(Err(&broken), false, start);
        }
        assert_eq!(breaker.admit(start).unwrap_err().0, REST);
        let later = start + REST;
        assert_eq!(breaker.admit(later), Ok(true), "one trial");
        assert!(breaker.admit(later).is_err(), "and one only");
        breaker.note(Err(&broken), true, later);
        assert_eq!(breaker.admit(later).unwrap_err().0, REST * 2);
        assert_eq!(breaker.admit(later + REST * 2), Ok(true));
        breaker.note(Err(&LlmError::Unheard { provider: "p".into(), message: "m".into() }), true, later);
        assert_eq!(breaker.admit(later + REST * 2), Ok(true), "a trial that nobody heard is made again");
        assert!(breaker.is_failing());
        breaker.note(Ok(()), true, later);
        assert_eq!((breaker.admit(later), breaker.is_failing()), (Ok(false), false));
        for (status, is_failing) in [(401, true), (400, false)] {
            breaker.note(Err(&LlmError::Refused { provider: "p".into(), status, message: "m".into() }), false, later);
            assert_eq!((breaker.admit(later), breaker.is_failing()), (Ok(false), is_failing), "{status}");
        }
        breaker.note(Err(&LlmError::Exhausted { provider: "p".into(), message: "m".into() }), false, later);
        breaker.note(Err(&broken), false, later);
        assert_eq!(breaker.admit(later).unwrap_err().0, PARKED, "an older failure does not end that");
    }
}
