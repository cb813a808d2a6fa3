//! The budget of one request. Exceeding it is an error that names the bound; results are never truncated silently.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lang::{ErrorKind, KipError};

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The maximum number of rows held at once.
    pub rows: usize,
    /// The maximum number of links and elements visited.
    pub hops: usize,
    /// The maximum size of the rows held at once, in bytes; and that of the texts by which groups and distinct values
    /// are told apart.
    pub bytes: usize,
    /// The maximum number of rows in the answer.
    pub answer: usize,
    /// The maximum size of the answer as JSON, in bytes.
    pub answer_bytes: usize,
    /// The maximum wall-clock time.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 2_000_000,
            hops: 20_000_000,
            bytes: 96 << 20,
            answer: 100_000,
            answer_bytes: 16 << 20,
            time: Duration::from_secs(15),
        }
    }
}

/// The remaining budget.
pub struct Budget {
    limits: Limits,
    hops: Cell<usize>,
    texts: Cell<usize>,
    answered: Cell<usize>,
    began: Instant,
    until_look: Cell<u32>,
}

/// The number of steps between two checks of the time.
const LOOK_EVERY: u32 = 4096;

impl Budget {
    /// Returns the full budget.
    pub fn new(limits: Limits) -> Self {
        let (hops, texts, answered) = (Cell::new(limits.hops), Cell::new(0), Cell::new(0));
        Self { limits, hops, texts, answered, began: Instant::now(), until_look: Cell::new(LOOK_EVERY) }
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

    /// Checks the output of one operator, `rows` rows of `width` slots. Rows of enclosing operators are not added.
    ///
    /// # Errors
    /// `execution` when the limit of rows or of memory is exceeded.
    pub fn check_rows(&self, rows: usize, width: usize) -> Result<(), KipError> {
        if rows > self.limits.rows {
            return Err(self.over(format!("{} rows at once", self.limits.rows)));
        }
        if rows.saturating_mul(width * 4) > self.limits.bytes {
            return Err(self.over(format!("{} bytes of rows", self.limits.bytes)));
        }
        Ok(())
    }

    /// Charges a text of `bytes` that is held until the end of the query.
    ///
    /// # Errors
    /// `execution` when the limit of memory is exceeded.
    pub fn hold_text(&self, bytes: usize) -> Result<(), KipError> {
        self.texts.set(self.texts.get().saturating_add(bytes));
        match self.texts.get() > self.limits.bytes {
            true => Err(self.over(format!("{} bytes of texts", self.limits.bytes))),
            false => Ok(()),
        }
    }

    /// Charges a part of the answer.
    ///
    /// # Errors
    /// `execution` when the answer exceeds its maximum size.
    pub fn answered(&self, part: &Value) -> Result<(), KipError> {
        self.answered.set(self.answered.get().saturating_add(json_size(part)));
        if self.answered.get() <= self.limits.answer_bytes {
            return Ok(());
        }
        let message = format!("the answer has more than {} bytes", self.limits.answer_bytes);
        Err(KipError::new(ErrorKind::Execution, message)
            .code("KIP_4002")
            .hint("add a LIMIT and follow the CURSOR, or ask for fewer members"))
    }

    fn over(&self, what: String) -> KipError {
        KipError::new(ErrorKind::Execution, format!("the query needs more than its budget of {what}"))
            .code("KIP_4002")
            .hint("name a type, a name or an id in more of its clauses, or bound its paths")
    }
}

/// Estimates the size of a value as JSON text, in bytes.
pub fn json_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_size(item) + 1).sum::<usize>() + 2,
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + json_size(value) + 4).sum::<usize>() + 2
        }
        _ => 8,
    }
}
