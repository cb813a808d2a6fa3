//! The rate limit for definitions of neurons and fascicles. Each definition is a permanent version, and is compiled
//! again.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::RequestPartsExt;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use store::{Origin, Principal, Role};

use super::App;
use super::error::ApiError;
use super::extract::Participant;

/// The number of definitions that one principal may write or remove per minute, and in a burst.
const DEFINITIONS_A_MINUTE: NonZeroU32 = NonZeroU32::new(120).unwrap();
/// The number of principals above which idle ones are evicted.
const KNOWN_MAX: usize = 1_024;

type Limiter = RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, MonotonicClock, NoOpMiddleware<std::time::Instant>>;

/// The rate limiter of definitions, by principal.
pub(super) struct Pace(Limiter);

impl Default for Pace {
    fn default() -> Self {
        Self(RateLimiter::hashmap_with_clock(Quota::per_minute(DEFINITIONS_A_MINUTE), MonotonicClock))
    }
}

impl Pace {
    /// Takes one definition from the allowance of `principal`. Operators have no limit.
    ///
    /// # Errors
    /// 429 `definitions` with `Retry-After` in seconds.
    fn take(&self, principal: &Principal) -> Result<(), ApiError> {
        if principal.may(Role::Operator) {
            return Ok(());
        }
        if self.0.len() > KNOWN_MAX {
            self.0.retain_recent();
        }
        self.0.check_key(&principal.id.0).map_err(|early| {
            let detail = format!("a participant writes {DEFINITIONS_A_MINUTE} definitions a minute");
            let wait = early.wait_time_from(MonotonicClock.now()).as_secs() + 1;
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "definitions", detail).retry_after(wait)
        })
    }
}

/// A participant with allowance to write or remove a definition.
pub(crate) struct Definer(pub(crate) Origin);

impl FromRequestParts<App> for Definer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Participant(origin) = parts.extract_with_state::<Participant, App>(app).await?;
        app.pace.take(&origin.principal)?;
        Ok(Self(origin))
    }
}
