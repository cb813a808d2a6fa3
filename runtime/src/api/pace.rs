//! The pace at which a principal defines neurons and fascicles: each definition is a version that stays, and is
//! compiled again.

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

/// Definitions that one principal writes or removes in a minute, and at once.
const DEFINITIONS_A_MINUTE: NonZeroU32 = NonZeroU32::new(120).unwrap();
/// Principals past which those that are at rest are forgotten.
const KNOWN_MAX: usize = 1_024;

type Limiter = RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, MonotonicClock, NoOpMiddleware<std::time::Instant>>;

/// The limiter of definitions, one count a principal.
pub(super) struct Pace(Limiter);

impl Default for Pace {
    fn default() -> Self {
        Self(RateLimiter::hashmap_with_clock(Quota::per_minute(DEFINITIONS_A_MINUTE), MonotonicClock))
    }
}

impl Pace {
    /// Takes one definition off what `principal` may write now. Operators have no bound.
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

/// A participant that writes or removes a definition now.
pub(crate) struct Definer(pub(crate) Origin);

impl FromRequestParts<App> for Definer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Participant(origin) = parts.extract_with_state::<Participant, App>(app).await?;
        app.pace.take(&origin.principal)?;
        Ok(Self(origin))
    }
}
