//! Errors in a form for models: a code, a kind, the place, and a suggestion (RESOLUTIONS §1.6).

use serde::Serialize;
use serde_json::{Value, json};

/// A byte range of the command. All spans are equal, so trees that differ only in spans are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the span from `start` to `end`, in bytes.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Returns the span from the start of this span to the end of `last`.
    #[must_use]
    pub fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The text does not parse.
    Syntax,
    /// An undefined type or predicate, or a value of the wrong type.
    Schema,
    /// An undefined variable or handle.
    Reference,
    /// The addressed node or link does not exist.
    NotFound,
    /// An attempt to change a protected node.
    Immutable,
    /// A placeholder without a value, or a value of the wrong kind.
    Parameter,
    /// A failure at run time: time, resources, rights, or the store.
    Execution,
}

/// A refused command. The command changed nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct KipError {
    /// The kind.
    pub kind: ErrorKind,
    /// The code of the release candidates.
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// The place in the text, if there is one.
    pub span: Option<Span>,
    /// A suggestion; may be empty.
    pub hint: String,
}

impl KipError {
    /// Returns an error of `kind`, with the most common code of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let code = match kind {
            ErrorKind::Syntax => "KIP_1001",
            ErrorKind::Parameter => "KIP_1003",
            ErrorKind::Schema => "KIP_2001",
            ErrorKind::Reference => "KIP_3001",
            ErrorKind::NotFound => "KIP_3002",
            ErrorKind::Immutable => "KIP_3004",
            ErrorKind::Execution => "KIP_4001",
        };
        Self { kind, code, message: message.into(), span: None, hint: String::new() }
    }

    /// Returns the error with another code.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Returns the error with a place, unless it has one.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span = self.span.or(Some(span));
        self
    }

    /// Returns the error with a suggestion.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Returns `{code, kind, message, line, column, hint}`; line and column count from 1, in characters.
    ///
    /// ```
    /// use kip::lang::parse;
    /// let text = "FIND(?s) WERE { }";
    /// let error = parse(text).unwrap_err().to_json(text);
    /// assert_eq!(error["kind"], "syntax");
    /// assert!(error["message"].is_string());
    /// ```
    pub fn to_json(&self, command: &str) -> Value {
        let mut body = json!({"code": self.code, "kind": self.kind, "message": self.message});
        if let Some(span) = self.span {
            let before = command.get(..span.start as usize).unwrap_or(command);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
            body["line"] = line.into();
            body["column"] = column.into();
        }
        if !self.hint.is_empty() {
            body["hint"] = self.hint.as_str().into();
        }
        body
    }
}

/// Returns a `syntax` error.
pub fn syntax(message: impl Into<String>, span: Span) -> KipError {
    KipError::new(ErrorKind::Syntax, message).at(span)
}

/// Returns the name nearest to `wrong` if it is near enough to be the intended one.
///
/// ```
/// use kip::lang::error::nearest;
/// assert_eq!(nearest("persn", ["Person", "Domain"]), Some("Person"));
/// assert_eq!(nearest("ship", ["Person", "Domain"]), None);
/// ```
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let far = 1 + wrong.chars().count() / 4;
    names
        .into_iter()
        .map(|name| (distance(&wrong, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, name)| (*distance, name.len()))
        .map(|(_, name)| name)
}

/// Returns the number of letters to add, drop, change, or swap with their neighbour to turn `a` into `b` (optimal
/// string alignment).
///
/// ```
/// use kip::lang::error::distance;
/// assert_eq!(distance("Person", "Persno"), 1);
/// assert_eq!(distance("Person", "Person"), 0);
/// ```
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
