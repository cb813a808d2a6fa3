//! Tokens with spans. Comments run from `//` to the end of the line (R3).

use std::sync::Arc;

use super::error::{KipError, Span, syntax};

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub enum T {
    /// A keyword or bare key.
    Ident(Arc<str>),
    /// `?name`
    Var(Arc<str>),
    /// `$name`
    Param(Arc<str>),
    /// A string, unescaped.
    Str(Arc<str>),
    /// A number.
    Num(serde_json::Number),
    /// A mark: one of `{ } ( ) [ ] , : . | || && ! == != < <= > >=`.
    Mark(&'static str),
    /// The end of the text.
    End,
}

/// A token and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// What it is.
    pub t: T,
    /// Where it stands.
    pub span: Span,
}

/// Longer marks first, so that `||` is not read as two `|`.
const MARKS: [&str; 20] =
    ["||", "&&", "==", "!=", "<=", ">=", "{", "}", "(", ")", "[", "]", ",", ":", ".", "|", "!", "<", ">", ";"];

/// Cuts `text` into tokens, `End` last.
///
/// # Errors
/// A `syntax` error at the first character that begins no token.
pub fn tokens(text: &str) -> Result<Vec<Token>, KipError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else {
            let (t, length) = token(rest, at)?;
            tokens.push(Token { t, span: Span { start: at, end: at + length } });
            at += length;
        }
    }
    tokens.push(Token { t: T::End, span: Span { start: text.len(), end: text.len() } });
    Ok(tokens)
}

fn token(rest: &str, at: usize) -> Result<(T, usize), KipError> {
    let span = |length| Span { start: at, end: at + length };
    match rest.as_bytes()[0] {
        b'"' => string(rest, at),
        b'?' | b'$' => {
            let name = identifier(&rest[1..]);
            let make = if rest.starts_with('?') { T::Var } else { T::Param };
            if name.is_empty() {
                return Err(syntax(format!("a name must follow '{}'", &rest[..1]), span(1)));
            }
            Ok((make(name.into()), 1 + name.len()))
        }
        b'-' | b'0'..=b'9' => number(rest, at),
        c if c == b'_' || c.is_ascii_alphabetic() => {
            let name = identifier(rest);
            Ok((T::Ident(name.into()), name.len()))
        }
        _ => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            Some(mark) => Ok((T::Mark(mark), mark.len())),
            None => {
                let c = rest.chars().next().unwrap_or(' ');
                let hint = if c == '\'' || c == '“' { "strings are written in \"double quotes\"" } else { "" };
                Err(syntax(format!("'{c}' begins nothing in KIP"), span(c.len_utf8())).hint(hint))
            }
        },
    }
}

fn identifier(text: &str) -> &str {
    let first_ok = text.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
    let end = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    if first_ok { &text[..end] } else { "" }
}

/// A JSON string; raw line breaks inside are accepted, because models write them.
fn string(rest: &str, at: usize) -> Result<(T, usize), KipError> {
    let mut escaped = false;
    for (offset, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                let literal = rest[..=offset].replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
                let value: String = serde_json::from_str(&literal).map_err(|error| {
                    syntax(format!("a broken string: {error}"), Span { start: at, end: at + offset + 1 })
                })?;
                return Ok((T::Str(value.into()), offset + 1));
            }
            _ => {}
        }
    }
    Err(syntax("a string is not closed", Span { start: at, end: at + 1 }).hint("end it with a double quote"))
}

fn number(rest: &str, at: usize) -> Result<(T, usize), KipError> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
    let number = rest[..end]
        .parse()
        .map_err(|_| syntax(format!("\"{}\" is not a number", &rest[..end]), Span { start: at, end: at + end }))?;
    Ok((T::Num(number), end))
}
