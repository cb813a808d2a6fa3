//! A recursive-descent parser: one function per grammar rule, with the rule in the comment above it. The grammar card
//! for prompts is generated from these comments.

mod kml;
mod kql;
mod meta;

use std::borrow::Cow;

use super::ast::{Command, Lit, Object, Placed, Text};
use super::error::{KipError, Span, nearest, syntax};
use super::lexer::{Lexer, T, written};
use super::{COMMAND_BYTES_MAX, NESTING_MAX};

/// The source files with the rules, for the grammar card.
pub(super) const RULES: [&str; 4] =
    [include_str!("mod.rs"), include_str!("kql.rs"), include_str!("kml.rs"), include_str!("meta.rs")];

/// Parses one command.
///
/// # Errors
/// A `syntax` error at the first unexpected token.
///
/// ```
/// use kip::lang::{Command, parse};
/// let command = parse(r#"FIND(?s.name) WHERE { ?s {type: "Ship"} } LIMIT 5"#).unwrap();
/// assert!(matches!(command, Command::Find(_)));
/// assert!(parse("FIND ships").is_err());
/// ```
pub fn parse(text: &str) -> Result<Command<'_>, KipError> {
    if text.len() > COMMAND_BYTES_MAX {
        let message = format!("a command of {} bytes is over the bound of {COMMAND_BYTES_MAX}", text.len());
        return Err(syntax(message, Span::default()).hint("cut it into several commands"));
    }
    let mut p = Parser::new(text)?;
    let command = command(&mut p)?;
    p.take(b';')?;
    match p.t {
        T::End => Ok(command),
        _ => Err(p.unexpected("the end of the command")),
    }
}

/// Returns `true` if a command with this text would write, judged by its first word.
///
/// ```
/// use kip::lang::parser::seems_to_write;
/// assert!(seems_to_write("UPSERT { }"));
/// assert!(!seems_to_write("FIND(?s) WHERE { ?s {type: \"Ship\"} }"));
/// ```
pub fn seems_to_write(text: &str) -> bool {
    matches!(Lexer::new(text).token(), Ok((T::Word(word), _)) if ["UPSERT", "DELETE", "UPDATE", "MERGE"].iter().any(|w| word.eq_ignore_ascii_case(w)))
}

/// The parser, with the current token and the end of the previous one.
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    t: T<'a>,
    span: Span,
    last: Span,
    depth: usize,
    clauses: usize,
}

type Parsed<R> = Result<R, KipError>;

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        let (t, span) = lexer.token()?;
        Ok(Self { lexer, t, span, last: Span::default(), depth: 0, clauses: 0 })
    }

    /// Advances and returns the previous current token.
    fn next(&mut self) -> Parsed<T<'a>> {
        let (t, span) = self.lexer.token()?;
        self.last = std::mem::replace(&mut self.span, span);
        Ok(std::mem::replace(&mut self.t, t))
    }

    fn is(&self, mark: u8) -> bool {
        matches!(self.t, T::Mark(found) if found == mark)
    }

    fn take(&mut self, mark: u8) -> Parsed<bool> {
        let found = self.is(mark);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    /// Consumes the required mark and returns its span.
    fn mark(&mut self, mark: u8) -> Parsed<Span> {
        if !self.is(mark) {
            return Err(self.unexpected(&format!("'{}'", written(mark))));
        }
        self.next()?;
        Ok(self.last)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.t, T::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> Parsed<bool> {
        let found = self.is_word(word);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word)? { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn var(&mut self) -> Parsed<(&'a str, Span)> {
        let T::Var(name) = self.t else { return Err(self.unexpected("a variable such as ?x")) };
        self.next()?;
        Ok((name, self.last))
    }

    fn unexpected(&self, wanted: &str) -> KipError {
        let found = match &self.t {
            T::Word(name) => (*name).to_owned(),
            T::Var(name) => format!("?{name}"),
            T::Param(name) => format!("${name}"),
            T::Str(text) => format!("\"{text}\""),
            T::Int(int) => int.to_string(),
            T::Num(number) => number.to_string(),
            T::Mark(mark) => format!("'{}'", written(*mark)),
            T::End => "the end of the command".into(),
        };
        syntax(format!("expected {wanted}, found {found}"), self.span)
    }

    /// Returns an `unexpected` error, with the nearest of `words` as the hint.
    fn expected_word(&self, words: &[&'static str], or_else: &str) -> KipError {
        let error = self.unexpected(&words.join(" or "));
        match self.t {
            T::Word(found) => match nearest(found, words.iter().copied()) {
                Some(word) => error.hint(format!("did you mean {word}?")),
                None => error.hint(or_else),
            },
            _ => error.hint(or_else),
        }
    }

    /// Runs `rule` one level deeper.
    fn deeper<R>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<R>) -> Parsed<R> {
        if self.depth == NESTING_MAX {
            return Err(syntax(format!("nested more than {NESTING_MAX} deep"), self.span));
        }
        self.depth += 1;
        let parsed = rule(self);
        self.depth -= 1;
        parsed
    }
}

// command ::= (find | 'EXPLAIN' find | upsert+ | update | merge | delete | export | describe | search) ';'?
fn command<'a>(p: &mut Parser<'a>) -> Parsed<Command<'a>> {
    const WORDS: [&str; 9] = ["FIND", "UPSERT", "UPDATE", "MERGE", "DELETE", "EXPORT", "DESCRIBE", "SEARCH", "EXPLAIN"];
    let T::Word(word) = p.t else {
        return Err(p.expected_word(&WORDS, "a command begins with one of these words"));
    };
    let is = |wanted: &str| word.eq_ignore_ascii_case(wanted);
    if is("FIND") {
        return kql::find(p).map(Command::Find);
    }
    if is("UPSERT") {
        let mut statements = Vec::with_capacity(1);
        while p.is_word("UPSERT") {
            statements.push(kml::upsert(p)?);
            p.take(b';')?;
        }
        return Ok(Command::Upsert(statements));
    }
    if is("EXPLAIN") {
        p.next()?;
        return kql::find(p).map(Command::Explain);
    }
    if is("UPDATE") {
        return kml::update(p).map(Command::Update);
    }
    if is("MERGE") {
        return kml::merge(p).map(Command::Merge);
    }
    if is("DELETE") {
        return kml::delete(p).map(Command::Delete);
    }
    if is("EXPORT") {
        return kql::export(p).map(Command::Export);
    }
    if is("DESCRIBE") {
        return meta::describe(p).map(Command::Describe);
    }
    if is("SEARCH") {
        return meta::search(p).map(Command::Search);
    }
    Err(p.expected_word(
        &WORDS,
        "a command begins with one of these words, as in FIND(?x.name) WHERE { ?x {type: \"Person\"} }",
    ))
}

// value ::= STRING | NUMBER | 'true' | 'false' | 'null' | array | object | param
fn value<'a>(p: &mut Parser<'a>) -> Parsed<Lit<'a>> {
    let lit = match &p.t {
        T::Str(_) | T::Int(_) | T::Num(_) => match p.next()? {
            T::Str(text) => Lit::Str(text),
            T::Int(int) => Lit::Int(int),
            T::Num(number) => Lit::Num(number),
            _ => Lit::Null,
        },
        T::Param(_) | T::Mark(b':') => return param(p),
        T::Mark(b'[') => return p.deeper(array),
        T::Mark(b'{') => return p.deeper(object).map(Lit::Object),
        T::Word("true") => keyword(p, Lit::Bool(true))?,
        T::Word("false") => keyword(p, Lit::Bool(false))?,
        T::Word("null") => keyword(p, Lit::Null)?,
        T::Word(word) if word.eq_ignore_ascii_case("true") => keyword(p, Lit::Bool(true))?,
        T::Word(word) if word.eq_ignore_ascii_case("false") => keyword(p, Lit::Bool(false))?,
        T::Word(word) if word.eq_ignore_ascii_case("null") || *word == "None" => keyword(p, Lit::Null)?,
        T::Word(word) => {
            let hint = format!("texts are written in double quotes: \"{word}\"");
            return Err(p.unexpected("a value").hint(hint));
        }
        _ => return Err(p.unexpected("a value")),
    };
    Ok(lit)
}

fn keyword<'a>(p: &mut Parser<'a>, lit: Lit<'a>) -> Parsed<Lit<'a>> {
    p.next()?;
    Ok(lit)
}

// param ::= '$' NAME | ':' NAME
fn param<'a>(p: &mut Parser<'a>) -> Parsed<Lit<'a>> {
    let start = p.span;
    if let T::Param(name) = p.t {
        p.next()?;
        return Ok(Lit::Param(name, p.last));
    }
    p.mark(b':')?;
    match p.t {
        T::Word(name) if p.span.start == start.end => {
            p.next()?;
            Ok(Lit::Param(name, start.to(p.last)))
        }
        _ => Err(p.unexpected("the name of a placeholder")),
    }
}

// array ::= '[' (value (',' value)* ','?)? ']'
fn array<'a>(p: &mut Parser<'a>) -> Parsed<Lit<'a>> {
    p.mark(b'[')?;
    let mut items = Vec::new();
    while !p.is(b']') {
        items.push(value(p)?);
        if !p.take(b',')? {
            break;
        }
    }
    p.mark(b']')?;
    Ok(Lit::Array(items))
}

// object ::= '{' (key ':' value (',' key ':' value)* ','?)? '}'
fn object<'a>(p: &mut Parser<'a>) -> Parsed<Object<'a>> {
    p.mark(b'{')?;
    let mut members: Object<'a> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    while !p.is(b'}') {
        let at = p.span;
        let key = key(p)?;
        let repeated = if members.len() < 16 {
            members.iter().any(|(known, _)| *known == key)
        } else {
            if seen.is_empty() {
                seen.extend(members.iter().map(|(known, _)| known.to_string()));
            }
            !seen.insert(key.to_string())
        };
        if repeated {
            return Err(syntax(format!("the key {key} is a duplicate"), at).hint("keep one of the two"));
        }
        p.mark(b':')?;
        members.push((key, value(p)?));
        if !p.take(b',')? {
            break;
        }
    }
    p.mark(b'}')?;
    Ok(members)
}

// key ::= NAME | STRING
fn key<'a>(p: &mut Parser<'a>) -> Parsed<Text<'a>> {
    match &p.t {
        T::Word(name) => {
            let name = Cow::Borrowed(*name);
            p.next()?;
            Ok(name)
        }
        T::Str(_) => match p.next()? {
            T::Str(text) => Ok(text),
            _ => Ok(Cow::Borrowed("")),
        },
        _ => Err(p.unexpected("a key").code("KIP_1002")),
    }
}

/// Parses a value that must be text, or a placeholder for one.
fn text<'a>(p: &mut Parser<'a>, what: &str) -> Parsed<Lit<'a>> {
    match p.t {
        T::Str(_) | T::Param(_) | T::Mark(b':') => value(p),
        T::Word(word) => Err(p.unexpected(what).hint(format!("write it in double quotes: \"{word}\""))),
        _ => Err(p.unexpected(what)),
    }
}

/// Parses a whole number of at least `least`, or a placeholder for one.
fn whole<'a>(p: &mut Parser<'a>, what: &str, least: i64) -> Parsed<Placed<'a>> {
    let span = p.span;
    match p.t {
        T::Int(int) if int >= least => Ok((value(p)?, span)),
        T::Param(_) | T::Mark(b':') => Ok((value(p)?, span)),
        _ => Err(p.unexpected(&format!("{what}, a whole number from {least}"))),
    }
}

// limit ::= 'LIMIT' WHOLE
fn limit<'a>(p: &mut Parser<'a>) -> Parsed<Option<Placed<'a>>> {
    if p.take_word("LIMIT")? { whole(p, "the limit", 1).map(Some) } else { Ok(None) }
}

// cursor ::= 'CURSOR' STRING
fn cursor<'a>(p: &mut Parser<'a>) -> Parsed<Option<Placed<'a>>> {
    if !p.take_word("CURSOR")? {
        return Ok(None);
    }
    let span = p.span;
    Ok(Some((text(p, "the token of a page, in quotes")?, span)))
}
