//! Errors as a model reads them: a code, a kind, where, and what to write instead (RESOLUTIONS §1.6).

use serde::Serialize;

/// A byte range of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// From the start of this span to the end of `last`.
    pub fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }
}

/// What sort of mistake it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The text does not parse.
    Syntax,
    /// An undefined type or predicate, or a value of the wrong type.
    Schema,
    /// An undefined variable or handle.
    Reference,
    /// A node or link that was addressed does not exist.
    NotFound,
    /// A protected node.
    Immutable,
    /// A placeholder without a value, or a value of the wrong kind.
    Parameter,
    /// Time, resources, or the store.
    Execution,
}

impl ErrorKind {
    /// The code of the release candidates for this kind.
    pub fn code(self) -> &'static str {
        match self {
            Self::Syntax => "KIP_1001",
            Self::Parameter => "KIP_1003",
            Self::Schema => "KIP_2001",
            Self::Reference => "KIP_3001",
            Self::NotFound => "KIP_3002",
            Self::Immutable => "KIP_3004",
            Self::Execution => "KIP_4001",
        }
    }
}

/// A refused command. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct KipError {
    /// What sort of mistake.
    pub kind: ErrorKind,
    /// What is wrong.
    pub message: String,
    /// Where, if it has a place in the text.
    pub span: Option<Span>,
    /// What to write instead; may be empty.
    pub hint: String,
}

impl KipError {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), span: None, hint: String::new() }
    }

    /// The error at a place.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    /// The error with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// `{code, kind, message, line, column, hint}`; line and column count from 1, in characters.
    pub fn to_json(&self, command: &str) -> serde_json::Value {
        let mut body = serde_json::json!({"code": self.kind.code(), "kind": self.kind, "message": self.message});
        if let Some(span) = self.span {
            let before = command.get(..span.start).unwrap_or(command);
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

/// Shorthand for the kinds the parser and the engine raise most.
pub fn syntax(message: impl Into<String>, span: Span) -> KipError {
    KipError::new(ErrorKind::Syntax, message).at(span)
}
