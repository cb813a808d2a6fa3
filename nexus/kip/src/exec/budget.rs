//! The budget of one request. Exceeding it is an error that names the bound; results are never truncated silently.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::lang::{ErrorKind, KipError};

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The maximum number of rows held at once.
    pub rows: usize,
    /// The maximum number of links and elements visited.
    pub hops: usize,
    /// The maximum size of the rows held at once, in bytes.
    pub bytes: usize,
    /// The maximum number of rows in the answer.
    pub answer: usize,
    /// The maximum wall-clock time.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows: 2_000_000, hops: 20_000_000, bytes: 256 << 20, answer: 100_000, time: Duration::from_secs(15) }
    }
}

/// The remaining budget.
pub struct Budget {
    limits: Limits,
    hops: Cell<usize>,
    began: Instant,
    until_look: Cell<u32>,
}

/// The number of steps between two checks of the time.
const LOOK_EVERY: u32 = 4096;

impl Budget {
    /// Returns the full budget.
    pub fn new(limits: Limits) -> Self {
        Self { limits, hops: Cell::new(limits.hops), began: Instant::now(), until_look: Cell::new(LOOK_EVERY) }
    }

    /// Returns the maximum number of rows in the answer.
    pub fn answer(&self) -> usize {
        self.limits.answer
    }

    /// Charges `n` visited links or elements.
    ///
    /// # Errors
    /// `execution` when the limit of hops or of time is exceeded.
    pub fn hop(&self, n: usize) -> Result<(), KipError> {
        match self.hops.get().checked_sub(n) {
            Some(left) => self.hops.set(left),
            None => return Err(self.over(format!("{} hops", self.limits.hops))),
        }
        match self.until_look.get().checked_sub(n as u32) {
            Some(left) if left > 0 => self.until_look.set(left),
            _ => {
                self.until_look.set(LOOK_EVERY);
                if self.began.elapsed() > self.limits.time {
                    return Err(self.over(format!("{} ms", self.limits.time.as_millis())).code("KIP_4001"));
                }
            }
        }
        Ok(())
    }

    /// Charges `rows` rows of `width` slots that are held at once.
    ///
    /// # Errors
    /// `execution` when the limit of rows or of memory is exceeded.
    pub fn hold(&self, rows: usize, width: usize) -> Result<(), KipError> {
        if rows > self.limits.rows {
            return Err(self.over(format!("{} rows at once", self.limits.rows)));
        }
        if rows.saturating_mul(width * 4) > self.limits.bytes {
            return Err(self.over(format!("{} bytes of rows", self.limits.bytes)));
        }
        Ok(())
    }

    fn over(&self, what: String) -> KipError {
        KipError::new(ErrorKind::Execution, format!("the query needs more than its budget of {what}"))
            .code("KIP_4002")
            .hint("name a type, a name or an id in more of its clauses, or bound its paths")
    }
}
