//! The presence of principals and their states, such as typing or looking at a node. It is not stored.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use store::PrincipalId;
use tokio::time::Instant;

/// The maximum number of sessions that are shown at the same time.
const PRESENT_MAX: usize = 1024;
/// The maximum number of sessions of one principal. A further session replaces the one that expires first.
const SESSIONS_MAX: usize = 16;
/// The number of states that one principal may show per second, and at once after a pause. Each goes to all
/// subscribers.
const SHOWN_PER_S: f64 = 10.0;
const SHOWN_AT_ONCE: f64 = 20.0;
/// The maximum size of a state, in bytes.
pub(super) const STATE_BYTES_MAX: usize = 2048;
/// The maximum validity of a presence state.
pub(super) const TTL_MAX: Duration = Duration::from_secs(120);

/// A present principal.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Present {
    /// The principal.
    pub who: PrincipalId,
    /// The state, in a form that the clients of a canvas agree on.
    pub state: Value,
    /// The remaining validity in seconds.
    pub ttl: u64,
}

/// The present principals of a canvas.
#[derive(Default)]
pub(super) struct Presence {
    /// The state and the expiry by principal and session.
    present: HashMap<(PrincipalId, u128), (Value, Instant)>,
    /// The number of states that each principal may still show, at a time.
    allowed: HashMap<PrincipalId, (f64, Instant)>,
}

impl Presence {
    /// Counts a state that a principal shows. Returns `false` if the principal shows too many.
    pub(super) fn may_show(&mut self, who: &PrincipalId, now: Instant) -> bool {
        let filled = |(left, at): &(f64, Instant)| {
            (left + now.duration_since(*at).as_secs_f64() * SHOWN_PER_S).min(SHOWN_AT_ONCE)
        };
        if self.allowed.len() >= PRESENT_MAX {
            self.allowed.retain(|_, allowed| filled(allowed) < SHOWN_AT_ONCE);
        }
        let left = self.allowed.get(who).map_or(SHOWN_AT_ONCE, filled);
        let may = left >= 1.0;
        self.allowed.insert(who.clone(), (if may { left - 1.0 } else { left }, now));
        may
    }

    /// Stores the state of a session. Returns `false` if there is no room.
    pub(super) fn note(
        &mut self,
        who: &PrincipalId,
        session: u128,
        state: Value,
        until: Instant,
        now: Instant,
    ) -> bool {
        self.present.retain(|_, (_, until)| *until > now);
        let name = (who.clone(), session);
        // The sessions of one principal must leave room for others.
        let own = self.present.iter().filter(|((other, _), _)| other == who && !self.present.contains_key(&name));
        if let Some(oldest) = own.clone().min_by_key(|(_, (_, until))| *until).map(|(name, _)| name.clone())
            && own.count() >= SESSIONS_MAX
        {
            self.present.remove(&oldest);
        }
        let room = self.present.len() < PRESENT_MAX || self.present.contains_key(&name);
        if room {
            self.present.insert(name, (state, until));
        }
        room
    }

    /// Ends a session. Returns `true` if the principal has no other one.
    pub(super) fn leave(&mut self, who: &PrincipalId, session: u128) -> bool {
        self.present.remove(&(who.clone(), session)).is_some() && !self.present.keys().any(|(other, _)| other == who)
    }

    /// Ends all sessions of a principal. Returns `true` if there were any.
    pub(super) fn leave_all(&mut self, who: &PrincipalId) -> bool {
        let before = self.present.len();
        self.present.retain(|(other, _), _| other != who);
        self.present.len() < before
    }

    /// Returns the present principals.
    pub(super) fn list(&self, now: Instant) -> Vec<Present> {
        let here = self.present.iter().filter(|(_, (_, until))| *until > now);
        let mut here: Vec<Present> = here
            .map(|((who, _), (state, until))| Present {
                who: who.clone(),
                state: state.clone(),
                ttl: until.duration_since(now).as_secs().max(1),
            })
            .collect();
        here.sort_by(|one, other| one.who.cmp(&other.who).then(other.ttl.cmp(&one.ttl)));
        here.dedup_by(|one, other| one.who == other.who);
        here
    }
}
