//! One breaker a model: a provider that fails again and again is left alone for a while, and then tried with one call.

use std::time::Duration;

use tokio::time::Instant;

use super::LlmError;

/// Failures in a row before it is left alone.
const FAILURES_MAX: u32 = 5;
/// How long it is left alone at first; twice as long after each trial that fails.
const REST: Duration = Duration::from_secs(5);
/// How long at most.
const REST_MAX: Duration = Duration::from_secs(300);
/// How long a provider without quota is left alone.
const PARKED: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    until: Option<Instant>,
    /// A trial is under way since then.
    trying: Option<Instant>,
    why: String,
}

impl Breaker {
    /// Whether a call may be made now.
    ///
    /// # Errors
    /// How long it is still left alone, and why.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), (Duration, String)> {
        let Some(until) = self.until else { return Ok(()) };
        let busy = self.trying.is_some_and(|since| now.saturating_duration_since(since) < REST_MAX);
        if now < until || busy {
            return Err((until.saturating_duration_since(now).max(Duration::from_secs(1)), self.why.clone()));
        }
        self.trying = Some(now);
        Ok(())
    }

    /// Takes note of what a call came to.
    pub(super) fn note(&mut self, came: Result<(), &LlmError>, now: Instant) {
        self.trying = None;
        let rest = match came {
            Err(LlmError::Exhausted { .. }) => PARKED,
            Err(LlmError::Unreachable { .. } | LlmError::Broken { .. } | LlmError::Busy { .. }) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures < FAILURES_MAX {
                    return;
                }
                REST.saturating_mul(1 << (self.failures - FAILURES_MAX).min(8)).min(REST_MAX)
            }
            // It answers, be it a refusal.
            _ => return *self = Self::default(),
        };
        self.until = Some(now + rest);
        self.why = came.err().map(ToString::to_string).unwrap_or_default();
    }

    /// A call that was given up says nothing about the provider.
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
            breaker.note(Err(&broken), start);
            assert!(breaker.admit(start).is_ok());
        }
        breaker.note(Ok(()), start);
        for _ in 0..FAILURES_MAX {
            assert!(breaker.admit(start).is_ok());
            breaker.note(Err(&broken), start);
        }
        assert_eq!(breaker.admit(start).unwrap_err().0, REST);
        let later = start + REST;
        assert!(breaker.admit(later).is_ok(), "one trial");
        assert!(breaker.admit(later).is_err(), "and one only");
        breaker.note(Err(&broken), later);
        assert_eq!(breaker.admit(later).unwrap_err().0, REST * 2);
        assert!(breaker.admit(later + REST * 2).is_ok());
        breaker.note(Ok(()), later);
        assert!(breaker.admit(later).is_ok());
        breaker.note(Err(&LlmError::Exhausted { provider: "p".into(), message: "m".into() }), later);
        assert_eq!(breaker.admit(later).unwrap_err().0, PARKED);
    }
}
