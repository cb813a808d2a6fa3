//! The rate limit of one writer on a canvas: a token bucket.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use store::PrincipalId;
use tokio::time::Instant;

use super::Refusal;

/// The number of writers above which full buckets are evicted.
const ACTORS_MAX: usize = 1024;

/// The limits of a writer on one canvas, and the retention of its log: the `[canvas]` section of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The number of ops per second. A burst may use the allowance of ten seconds.
    pub ops_per_s: f64,
    /// The number of bytes of ops per second, with the same burst.
    pub bytes_per_s: f64,
    /// The minimum number of ops in the log. A subscriber that resumes from an older revision receives a snapshot.
    pub keep_ops: u64,
    /// The minimum retention of the log, in days.
    pub keep_days: u64,
}

impl Limits {
    /// Checks the rules that deserialisation does not check.
    ///
    /// # Errors
    /// A message that names the invalid member.
    pub fn check(&self) -> Result<(), String> {
        let is_rate = |rate: f64| (0.01..=1e12).contains(&rate);
        match (is_rate(self.ops_per_s), is_rate(self.bytes_per_s)) {
            (true, true) => Ok(()),
            (false, _) => Err("canvas.ops_per_s is 0.01 to 1e12".into()),
            (_, false) => Err("canvas.bytes_per_s is 0.01 to 1e12".into()),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { ops_per_s: 50.0, bytes_per_s: 262_144.0, keep_ops: 10_000, keep_days: 7 }
    }
}

/// The burst: the number of seconds of allowance that can be used at once.
const BURST_S: f64 = 10.0;

#[derive(Clone, Copy)]
struct Bucket {
    ops: f64,
    bytes: f64,
    at: Instant,
}

/// The buckets of one canvas.
#[derive(Default)]
pub(super) struct Allowance {
    buckets: HashMap<PrincipalId, Bucket>,
}

impl Allowance {
    /// Takes ops and bytes from a writer's bucket.
    ///
    /// # Errors
    /// [`Refusal::Rate`] if the bucket has too little. Nothing is taken then.
    pub(super) fn take(
        &mut self,
        who: &PrincipalId,
        ops: usize,
        bytes: usize,
        limits: &Limits,
        now: Instant,
    ) -> Result<(), Refusal> {
        let full = Bucket { ops: limits.ops_per_s * BURST_S, bytes: limits.bytes_per_s * BURST_S, at: now };
        let filled = |bucket: &Bucket| {
            let elapsed = now.duration_since(bucket.at).as_secs_f64();
            Bucket {
                ops: (bucket.ops + elapsed * limits.ops_per_s).min(full.ops),
                bytes: (bucket.bytes + elapsed * limits.bytes_per_s).min(full.bytes),
                at: now,
            }
        };
        if self.buckets.len() >= ACTORS_MAX && !self.buckets.contains_key(who) {
            self.buckets.retain(|_, bucket| {
                let bucket = filled(bucket);
                bucket.ops < full.ops || bucket.bytes < full.bytes
            });
        }
        let mut bucket = self.buckets.get(who).map_or(full, filled);
        let (ops, bytes) = (ops as f64, bytes as f64);
        // A request larger than the bucket takes a full bucket and leaves a debt.
        let (ops_needed, bytes_needed) = (ops.min(full.ops), bytes.min(full.bytes));
        let short =
            ((ops_needed - bucket.ops) / limits.ops_per_s).max((bytes_needed - bucket.bytes) / limits.bytes_per_s);
        let refused = short > 0.0;
        if !refused {
            (bucket.ops, bucket.bytes) = (bucket.ops - ops, bucket.bytes - bytes);
        }
        self.buckets.insert(who.clone(), bucket);
        if refused {
            let (ops, bytes) = (limits.ops_per_s, limits.bytes_per_s);
            return Err(Refusal::Rate(format!(
                "an actor may do {ops} ops and {bytes} bytes a second on one canvas; try again in {short:.1} s"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_then_a_rate_for_each_actor_alone() {
        let limits = Limits { ops_per_s: 2.0, bytes_per_s: 1000.0, ..Limits::default() };
        let (ada, bob) = (PrincipalId::new("user:ada"), PrincipalId::new("user:bob"));
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        assert!(allowance.take(&ada, 20, 0, &limits, start).is_ok());
        assert!(matches!(allowance.take(&ada, 1, 0, &limits, start), Err(Refusal::Rate(_))));
        assert!(allowance.take(&bob, 1, 9_000, &limits, start).is_ok());
        assert!(allowance.take(&bob, 1, 9_000, &limits, start).is_err(), "bytes count too");
        let later = start + Duration::from_secs(1);
        assert!(allowance.take(&ada, 2, 0, &limits, later).is_ok());
        assert!(allowance.take(&ada, 1, 0, &limits, later).is_err());
    }
}
