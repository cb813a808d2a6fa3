//! Compiled FILTER conditions: paths as accesses, constants as values, and compiled regular expressions (R21–R26).

use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};

use super::Access;
use crate::datum::{Datum, Sym};
use crate::graph::GraphRead;
use crate::lang::ast::{Comparison, TextTest};
use crate::lang::{ErrorKind, KipError, Span};

/// The maximum memory of a compiled regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A compiled condition; see the module documentation.
#[derive(Debug)]
pub enum Test {
    /// A constant.
    Value(Datum),
    /// A value of the row.
    Get(Access),
    /// `!e`
    Not(Box<Test>),
    /// `a && b`
    And(Box<Test>, Box<Test>),
    /// `a || b`
    Or(Box<Test>, Box<Test>),
    /// `a == b` and the other comparisons.
    Compare(Box<Test>, Comparison, Box<Test>),
    /// `CONTAINS(a, b)` and the other text tests except REGEX.
    Text(TextTest, Box<Test>, Box<Test>),
    /// `REGEX(a, "constant")`
    Regex(Box<Test>, Box<Regex>),
    /// `REGEX(a, b)` with a pattern from the row.
    RegexOf(Box<Test>, Box<Test>, Span),
    /// `IN(a, […])`
    In(Box<Test>, Vec<Datum>),
    /// `IS_NULL(a)`, or `IS_NOT_NULL(a)` when `false`.
    IsNull(Box<Test>, bool),
}

/// Compiles a pattern: unanchored, linear in the length of the text, bounded in memory (R24).
pub(super) fn regex(pattern: &str, span: Span) -> Result<Regex, KipError> {
    RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX).build().map_err(|error| {
        KipError::new(ErrorKind::Syntax, format!("not a regular expression: {error}"))
            .at(span)
            .hint("the syntax is that of RE2: no look-around, no back-references")
    })
}

fn compare(a: &Datum, operator: Comparison, b: &Datum) -> bool {
    match operator {
        Comparison::Eq => a.same(b),
        Comparison::Ne => !a.same(b),
        Comparison::Lt => a.order(b) == Some(Ordering::Less),
        Comparison::Gt => a.order(b) == Some(Ordering::Greater),
        Comparison::Le => matches!(a.order(b), Some(Ordering::Less | Ordering::Equal)),
        Comparison::Ge => matches!(a.order(b), Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Evaluates a text test; it is false for a value that is not text (R26).
fn text(kind: TextTest, a: &Datum, b: &Datum) -> bool {
    match (a.as_str(), b.as_str(), kind) {
        (Some(text), Some(part), TextTest::Contains) => text.contains(part),
        (Some(text), Some(part), TextTest::StartsWith) => text.starts_with(part),
        (Some(text), Some(part), TextTest::EndsWith) => text.ends_with(part),
        _ => false,
    }
}

impl Test {
    /// Returns `true` if the condition holds for a row.
    ///
    /// # Errors
    /// Fails if a pattern from the row is not a valid regular expression.
    pub fn holds(&self, row: &[u32], names: &[Sym], graph: &dyn GraphRead) -> Result<bool, KipError> {
        Ok(match self {
            Self::Not(inner) => !inner.holds(row, names, graph)?,
            Self::And(a, b) => a.holds(row, names, graph)? && b.holds(row, names, graph)?,
            Self::Or(a, b) => a.holds(row, names, graph)? || b.holds(row, names, graph)?,
            Self::Compare(a, operator, b) => {
                a.look(row, names, graph, |a| b.look(row, names, graph, |b| compare(a, *operator, b)))??
            }
            Self::Text(kind, a, b) => {
                a.look(row, names, graph, |a| b.look(row, names, graph, |b| text(*kind, a, b)))??
            }
            Self::Regex(a, pattern) => {
                a.look(row, names, graph, |a| a.as_str().is_some_and(|text| pattern.is_match(text)))?
            }
            Self::RegexOf(a, b, span) => {
                let pattern = b.look(row, names, graph, Datum::clone)?;
                let a = a.look(row, names, graph, Datum::clone)?;
                match (a.as_str(), pattern.as_str()) {
                    (Some(text), Some(pattern)) => regex(pattern, *span)?.is_match(text),
                    _ => false,
                }
            }
            Self::In(a, list) => a.look(row, names, graph, |value| list.iter().any(|item| item.same(value)))?,
            Self::IsNull(a, wanted) => a.look(row, names, graph, Datum::is_null)? == *wanted,
            Self::Value(value) => matches!(value, Datum::Bool(true)),
            Self::Get(access) => matches!(access.get(row, names, graph), Datum::Bool(true)),
        })
    }

    /// Calls `see` with a reference to the value, so that a scan over many elements copies none of them.
    fn look<R>(
        &self,
        row: &[u32],
        names: &[Sym],
        graph: &dyn GraphRead,
        see: impl FnOnce(&Datum) -> R,
    ) -> Result<R, KipError> {
        match self {
            Self::Value(value) => Ok(see(value)),
            Self::Get(access) => Ok(access.look(row, names, graph, see)),
            _ => self.holds(row, names, graph).map(|truth| see(&Datum::Bool(truth))),
        }
    }

    /// Appends the slots that the condition uses to `out`.
    pub fn slots(&self, out: &mut Vec<usize>) {
        match self {
            Self::Value(_) => {}
            Self::Get(access) => out.push(access.slot),
            Self::Not(a) | Self::Regex(a, _) | Self::In(a, _) | Self::IsNull(a, _) => a.slots(out),
            Self::And(a, b)
            | Self::Or(a, b)
            | Self::Compare(a, _, b)
            | Self::Text(_, a, b)
            | Self::RegexOf(a, b, _) => {
                a.slots(out);
                b.slots(out);
            }
        }
    }
}
