//! Tokens, produced on demand for the parser. Comments run from `//` to the end of the line and are allowed wherever
//! white space is (R3). Text without escapes is borrowed, never copied.

use std::borrow::Cow;

use super::error::{KipError, Span, syntax};

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub enum T<'a> {
    /// A keyword or bare key.
    Word(&'a str),
    /// `?name`
    Var(&'a str),
    /// `$name`
    Param(&'a str),
    /// A string, unescaped.
    Str(Cow<'a, str>),
    /// A whole number within the range of `i64`.
    Int(i64),
    /// Any other number.
    Num(serde_json::Number),
    /// A punctuation mark; the constants below are those of two characters.
    Mark(u8),
    /// The end of the text.
    End,
}

/// `&&`
pub const AND: u8 = b'&';
/// `||`
pub const OR: u8 = b'o';
/// `==`
pub const EQ: u8 = b'=';
/// `!=`
pub const NE: u8 = b'n';
/// `<=`
pub const LE: u8 = b'l';
/// `>=`
pub const GE: u8 = b'g';

/// Returns the text of a mark.
pub fn written(mark: u8) -> String {
    match mark {
        AND => "&&".into(),
        OR => "||".into(),
        EQ => "==".into(),
        NE => "!=".into(),
        LE => "<=".into(),
        GE => ">=".into(),
        other => char::from(other).to_string(),
    }
}

/// The lexer of one text.
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// Returns a lexer at the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next token and its span.
    ///
    /// # Errors
    /// A `syntax` error at a character that begins no token.
    pub fn token(&mut self) -> Result<(T<'a>, Span), KipError> {
        self.skip();
        let start = self.at;
        let token = self.cut()?;
        Ok((token, Span::new(start, self.at)))
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => {
                    let rest = &bytes[self.at..];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                128.. => match self.text[self.at..].chars().next() {
                    Some(c) if c.is_whitespace() || c == '\u{feff}' => self.at += c.len_utf8(),
                    _ => return,
                },
                _ => return,
            }
        }
    }

    fn cut(&mut self) -> Result<T<'a>, KipError> {
        let bytes = self.text.as_bytes();
        let Some(&byte) = bytes.get(self.at) else { return Ok(T::End) };
        let second = bytes.get(self.at + 1).copied();
        match byte {
            b'"' => self.string(),
            b'?' | b'$' => {
                self.at += 1;
                let name = self.identifier();
                if name.is_empty() {
                    return Err(syntax(
                        format!("a name must follow '{}'", char::from(byte)),
                        Span::new(self.at - 1, self.at),
                    )
                    .code("KIP_1002")
                    .hint("a name begins with a letter or '_' and goes on with letters, digits and '_'"));
                }
                Ok(if byte == b'?' { T::Var(name) } else { T::Param(name) })
            }
            b'-' | b'0'..=b'9' => self.number(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(T::Word(self.identifier())),
            b'{' | b'}' | b'(' | b')' | b'[' | b']' | b',' | b':' | b'.' | b';' => Ok(self.mark(byte, 1)),
            b'|' if second == Some(b'|') => Ok(self.mark(OR, 2)),
            b'|' => Ok(self.mark(byte, 1)),
            b'&' if second == Some(b'&') => Ok(self.mark(AND, 2)),
            b'=' if second == Some(b'=') => Ok(self.mark(EQ, 2)),
            b'!' if second == Some(b'=') => Ok(self.mark(NE, 2)),
            b'<' if second == Some(b'=') => Ok(self.mark(LE, 2)),
            b'>' if second == Some(b'=') => Ok(self.mark(GE, 2)),
            b'!' | b'<' | b'>' => Ok(self.mark(byte, 1)),
            _ => {
                let c = self.text[self.at..].chars().next().unwrap_or(' ');
                let hint = match c {
                    '\'' | '“' | '”' | '‘' | '’' | '「' => "strings are written in \"double quotes\"",
                    '=' => "equality is written ==",
                    '&' => "'and' is written &&",
                    _ => "",
                };
                Err(syntax(format!("'{c}' begins nothing in KIP"), Span::new(self.at, self.at + c.len_utf8()))
                    .hint(hint))
            }
        }
    }

    fn mark(&mut self, mark: u8, length: usize) -> T<'a> {
        self.at += length;
        T::Mark(mark)
    }

    fn identifier(&mut self) -> &'a str {
        let bytes = &self.text.as_bytes()[self.at..];
        if bytes.first().is_some_and(u8::is_ascii_digit) {
            return "";
        }
        let length = bytes.iter().position(|b| *b != b'_' && !b.is_ascii_alphanumeric()).unwrap_or(bytes.len());
        let name = &self.text[self.at..self.at + length];
        self.at += length;
        name
    }

    /// Reads a JSON string. Raw line breaks inside it are accepted, because models write them.
    fn string(&mut self) -> Result<T<'a>, KipError> {
        let start = self.at;
        let body = &self.text.as_bytes()[start + 1..];
        let (mut plain, mut length) = (true, 0);
        loop {
            match body.get(length) {
                None => {
                    return Err(syntax("a string is not closed", Span::new(start, start + 1))
                        .hint("end it with a double quote"));
                }
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    length += 2;
                }
                Some(_) => length += 1,
            }
        }
        self.at = start + length + 2;
        if plain {
            return Ok(T::Str(Cow::Borrowed(&self.text[start + 1..start + 1 + length])));
        }
        let literal = self.text[start..self.at].replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        match serde_json::from_str::<String>(&literal) {
            Ok(text) => Ok(T::Str(Cow::Owned(text))),
            Err(error) => Err(syntax(format!("a broken string: {error}"), Span::new(start, self.at))),
        }
    }

    fn number(&mut self) -> Result<T<'a>, KipError> {
        let start = self.at;
        let bytes = &self.text.as_bytes()[start..];
        let length =
            bytes.iter().position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(b)).unwrap_or(bytes.len());
        self.at += length;
        let literal = &self.text[start..self.at];
        let digits = literal.strip_prefix('-').unwrap_or(literal);
        let whole = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty();
        if whole
            && (digits.len() == 1 || !digits.starts_with('0'))
            && literal != "-0"
            && let Ok(int) = literal.parse()
        {
            return Ok(T::Int(int));
        }
        match literal.parse::<serde_json::Number>() {
            Ok(number) => Ok(T::Num(number)),
            Err(_) => Err(syntax(format!("\"{literal}\" is not a number"), Span::new(start, self.at))),
        }
    }
}
