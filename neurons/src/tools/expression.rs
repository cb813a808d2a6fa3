//! Arithmetic expressions with exact decimal numbers (`docs/src/guides/server-tools.md`): `3 * 12.50`, `15% of 240`, `2^10`,
//! `nights <= 7 ? nights * 120 : 0`, with the functions min, max, sum, avg, round, abs, floor, ceil, sqrt and pow. Pure functions.
//!
//! A number has at most 28 significant digits ([`Decimal`]), to which results are rounded. There are no units and no
//! currencies: a rate is looked up, not calculated.

use std::collections::BTreeMap;

use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, MathematicalOps};
use serde_json::Value;

/// The maximum length of an expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 512;
/// The maximum depth of brackets, signs and powers within each other. The length bounds chains.
const DEPTH_MAX: usize = 32;
/// The maximum absolute value of an exponent, and of the decimal places of `round`.
const EXPONENT_MAX: i64 = 1_000;
const PLACES_MAX: u32 = 28;

/// The names of the functions.
const FUNCTIONS: [&str; 10] = ["min", "max", "sum", "avg", "round", "abs", "floor", "ceil", "sqrt", "pow"];

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(Decimal),
    Name(String),
    Negative(Box<Node>),
    Percent(Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Call(&'static str, Vec<Node>),
}

/// The value of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Computed {
    /// A number.
    Number(Decimal),
    /// The truth of a condition.
    Truth(bool),
}

impl Computed {
    /// Returns the value as JSON. A number that JSON readers would round is a text.
    pub fn in_json(self) -> Value {
        match self {
            Self::Number(number) => in_json(number),
            Self::Truth(truth) => truth.into(),
        }
    }
}

/// An expression that was parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// A sentence that names the place of the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes"));
        }
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Err("give an expression, such as 347 * 28".into());
        }
        let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
        let node = parser.choice()?;
        match parser.peek() {
            None => Ok(Self(node)),
            Some(Token { kind: Kind::Sign(","), at }) => {
                Err(format!("a comma stands at {at}: write 12.50 and 1000, not 12,50 and 1,000"))
            }
            Some(token) => Err(format!("\"{}\" at {} is not expected there", token.kind.text(), token.at)),
        }
    }

    /// Returns the names that the expression uses.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let mut left = vec![&self.0];
        while let Some(node) = left.pop() {
            match node {
                Node::Number(_) => {}
                Node::Name(name) => names.push(&**name),
                Node::Negative(one) | Node::Percent(one) => left.push(one),
                Node::Binary(_, one, other) => left.extend([&**one, &**other]),
                Node::Choice(one, two, three) => left.extend([&**one, &**two, &**three]),
                Node::Call(_, arguments) => left.extend(arguments),
            }
        }
        names
    }

    /// Returns the value.
    ///
    /// # Errors
    /// A sentence: an unknown name, a division by zero, a number that is too large, or a truth value in place of a number.
    pub fn value(&self, variables: &BTreeMap<String, Computed>) -> Result<Computed, String> {
        evaluated(&self.0, variables)
    }
}

/// Returns a number of JSON, or a text of digits, as a decimal number; `None` for anything else.
pub fn decimal_of(value: &Value) -> Option<Decimal> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    text.parse().ok().or_else(|| Decimal::from_scientific(&text).ok())
}

/// Returns a decimal number as JSON.
pub fn in_json(number: Decimal) -> Value {
    let number = number.normalize();
    let text = number.to_string();
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    match text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
        // The shortest text of the float is the number itself.
        Some(float) if float.to_string() == text => Value::Number(float),
        _ => text.into(),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Number(Decimal),
    Name(String),
    Sign(&'static str),
}

impl Kind {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(name) => name.clone(),
            Self::Sign(sign) => (*sign).to_owned(),
        }
    }
}

/// A token with its place, counted in characters from 1.
#[derive(Clone, Debug, PartialEq)]
struct Token {
    kind: Kind,
    at: usize,
}

/// The signs, longer ones first, each with its canonical form.
const SIGNS: [(&str, &str); 27] = [
    ("**", "^"),
    ("<=", "<="),
    (">=", ">="),
    ("==", "=="),
    ("!=", "!="),
    ("&&", "&&"),
    ("||", "||"),
    ("≤", "<="),
    ("≥", ">="),
    ("≠", "!="),
    ("×", "*"),
    ("·", "*"),
    ("÷", "/"),
    ("−", "-"),
    ("+", "+"),
    ("-", "-"),
    ("*", "*"),
    ("/", "/"),
    ("^", "^"),
    ("%", "%"),
    ("(", "("),
    (")", ")"),
    (",", ","),
    ("<", "<"),
    (">", ">"),
    ("?", "?"),
    (":", ":"),
];

/// Returns a character of the full-width forms as its usual form.
pub(super) fn narrow(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        '\u{3000}' => ' ',
        c => c,
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let text: String = text.chars().map(narrow).collect();
    let mut tokens: Vec<Token> = Vec::new();
    let (mut rest, mut at) = (&*text, 1);
    while let Some(first) = rest.chars().next() {
        let length = |fits: &dyn Fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let (kind, bytes) = if first.is_whitespace() {
            (None, first.len_utf8())
        } else if first.is_ascii_digit() || first == '.' {
            let bytes = length(&|c| c.is_ascii_digit() || c == '.');
            let number = rest[..bytes].parse::<Decimal>();
            let number = number
                .map_err(|_| format!("\"{}\" at {at} is no number, or it has too many digits", &rest[..bytes]))?;
            (Some(Kind::Number(number)), bytes)
        } else if first.is_alphabetic() || first == '_' {
            let bytes = length(&|c| c.is_alphanumeric() || c == '_');
            (Some(Kind::Name(rest[..bytes].to_owned())), bytes)
        } else {
            let found = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign));
            let (sign, canonical) = found.ok_or_else(|| format!("\"{first}\" at {at} means nothing here"))?;
            (Some(Kind::Sign(canonical)), sign.len())
        };
        // `12 500` and `3x` are no products.
        if let (Some(Kind::Number(_) | Kind::Name(_)), Some(Token { kind: Kind::Number(_), .. })) =
            (&kind, tokens.last())
            && !matches!(&kind, Some(Kind::Name(name)) if name == "of")
        {
            return Err(format!("a sign is missing at {at}"));
        }
        tokens.extend(kind.map(|kind| Token { kind, at }));
        at += rest[..bytes].chars().count();
        rest = &rest[bytes..];
    }
    Ok(tokens)
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    /// Takes one of some signs, if it is next.
    fn takes(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        match self.peek()?.kind {
            Kind::Sign(sign) if signs.contains(&sign) => {
                self.at += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    fn expects(&mut self, sign: &'static str) -> Result<(), String> {
        self.takes(&[sign]).map(drop).ok_or_else(|| match self.peek() {
            Some(token) => format!("\"{sign}\" is missing at {}", token.at),
            None => format!("\"{sign}\" is missing at the end"),
        })
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("it has more than {DEPTH_MAX} levels"));
        }
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn choice(&mut self) -> Result<Node, String> {
        let condition = self.binary(0)?;
        if self.takes(&["?"]).is_none() {
            return Ok(condition);
        }
        let yes = self.deeper(Self::choice)?;
        self.expects(":")?;
        let no = self.deeper(Self::choice)?;
        Ok(Node::Choice(Box::new(condition), Box::new(yes), Box::new(no)))
    }

    /// Parses a chain of operators of a level, from left to right.
    fn binary(&mut self, level: usize) -> Result<Node, String> {
        const LEVELS: [&[&str]; 5] =
            [&["||"], &["&&"], &["<=", ">=", "==", "!=", "<", ">"], &["+", "-"], &["*", "/", "%"]];
        let Some(signs) = LEVELS.get(level) else { return self.signed() };
        let mut node = self.binary(level + 1)?;
        loop {
            let is_of = level == 4 && matches!(self.peek(), Some(Token { kind: Kind::Name(name), .. }) if name == "of");
            let sign = if is_of {
                self.at += 1;
                "*"
            } else {
                let Some(sign) = self.takes(signs) else { return Ok(node) };
                sign
            };
            let other = self.binary(level + 1)?;
            node = Node::Binary(sign, Box::new(node), Box::new(other));
        }
    }

    fn signed(&mut self) -> Result<Node, String> {
        if self.takes(&["-"]).is_some() {
            return Ok(Node::Negative(Box::new(self.deeper(Self::signed)?)));
        }
        if self.takes(&["+"]).is_some() {
            return self.deeper(Self::signed);
        }
        self.power()
    }

    fn power(&mut self) -> Result<Node, String> {
        let mut base = self.atom()?;
        while self.is_percent() {
            self.at += 1;
            base = Node::Percent(Box::new(base));
        }
        if self.takes(&["^"]).is_none() {
            return Ok(base);
        }
        let exponent = self.deeper(Self::signed)?;
        Ok(Node::Binary("^", Box::new(base), Box::new(exponent)))
    }

    /// Returns `true` for a `%` behind which no operand stands: `15% of 240`, not `15 % 4`.
    fn is_percent(&self) -> bool {
        let is_operand = |token: &Token| match &token.kind {
            Kind::Number(_) => true,
            Kind::Name(name) => name != "of",
            Kind::Sign(sign) => *sign == "(",
        };
        matches!(self.peek(), Some(Token { kind: Kind::Sign("%"), .. }))
            && !self.tokens.get(self.at + 1).is_some_and(is_operand)
    }

    fn atom(&mut self) -> Result<Node, String> {
        let Some(token) = self.peek() else { return Err("it ends where a number is expected".into()) };
        self.at += 1;
        match &token.kind {
            Kind::Number(number) => Ok(Node::Number(*number)),
            Kind::Name(name) => match FUNCTIONS.into_iter().find(|function| function == name) {
                Some(function) => self.deeper(|parser| parser.call(function)),
                None => Ok(Node::Name(name.clone())),
            },
            Kind::Sign("(") => {
                let inner = self.deeper(Self::choice)?;
                self.expects(")")?;
                Ok(inner)
            }
            Kind::Sign(sign) => Err(format!("\"{sign}\" at {} stands where a number is expected", token.at)),
        }
    }

    fn call(&mut self, function: &'static str) -> Result<Node, String> {
        self.expects("(")?;
        let mut arguments = vec![self.choice()?];
        while self.takes(&[","]).is_some() {
            arguments.push(self.choice()?);
        }
        self.expects(")")?;
        let fits = match function {
            "abs" | "floor" | "ceil" | "sqrt" => arguments.len() == 1,
            "round" => arguments.len() <= 2,
            "pow" => arguments.len() == 2,
            _ => true,
        };
        if fits { Ok(Node::Call(function, arguments)) } else { Err(format!("{function} has another number of values")) }
    }
}

fn evaluated(node: &Node, variables: &BTreeMap<String, Computed>) -> Result<Computed, String> {
    let number = |node: &Node| match evaluated(node, variables)? {
        Computed::Number(number) => Ok(number),
        Computed::Truth(_) => Err("a truth value stands where a number is expected".to_owned()),
    };
    let truth = |node: &Node| match evaluated(node, variables)? {
        Computed::Truth(truth) => Ok(truth),
        Computed::Number(_) => Err("a number stands where a condition is expected".to_owned()),
    };
    Ok(match node {
        Node::Number(number) => Computed::Number(*number),
        Node::Name(name) => *variables.get(name).ok_or_else(|| format!("\"{name}\" is not known here"))?,
        Node::Negative(one) => Computed::Number(-number(one)?),
        Node::Percent(one) => Computed::Number(number(one)? / Decimal::ONE_HUNDRED),
        Node::Choice(condition, yes, no) => evaluated(if truth(condition)? { yes } else { no }, variables)?,
        Node::Binary("&&", one, other) => Computed::Truth(truth(one)? && truth(other)?),
        Node::Binary("||", one, other) => Computed::Truth(truth(one)? || truth(other)?),
        Node::Binary(sign, one, other) => combined(sign, number(one)?, number(other)?)?,
        Node::Call(function, arguments) => {
            let values = arguments.iter().map(number).collect::<Result<Vec<_>, _>>()?;
            Computed::Number(called(function, &values)?)
        }
    })
}

fn combined(sign: &str, one: Decimal, other: Decimal) -> Result<Computed, String> {
    let too_large = || "the result is too large".to_owned();
    let is_zero = || "it divides by zero".to_owned();
    let number = match sign {
        "+" => one.checked_add(other).ok_or_else(too_large)?,
        "-" => one.checked_sub(other).ok_or_else(too_large)?,
        "*" => one.checked_mul(other).ok_or_else(too_large)?,
        "/" if other.is_zero() => return Err(is_zero()),
        "/" => one.checked_div(other).ok_or_else(too_large)?,
        "%" if other.is_zero() => return Err(is_zero()),
        "%" => one.checked_rem(other).ok_or_else(too_large)?,
        "^" => raised(one, other)?,
        "<" => return Ok(Computed::Truth(one < other)),
        ">" => return Ok(Computed::Truth(one > other)),
        "<=" => return Ok(Computed::Truth(one <= other)),
        ">=" => return Ok(Computed::Truth(one >= other)),
        "==" => return Ok(Computed::Truth(one == other)),
        _ => return Ok(Computed::Truth(one != other)),
    };
    Ok(Computed::Number(number))
}

/// Returns a power. A whole exponent is exact as far as the digits go.
fn raised(base: Decimal, exponent: Decimal) -> Result<Decimal, String> {
    let too_large = || "the result is too large, or no number".to_owned();
    if exponent.abs() > Decimal::from(EXPONENT_MAX) {
        return Err(format!("an exponent is at most {EXPONENT_MAX}"));
    }
    match exponent.is_integer() {
        true if base.is_zero() && exponent.is_sign_negative() => Err("it divides by zero".to_owned()),
        true => base.checked_powi(exponent.to_i64().unwrap_or_default()).ok_or_else(too_large),
        // Roots other than this one are not exact in the library.
        false if (exponent + exponent).is_integer() => {
            let root = base.sqrt().ok_or_else(|| "there is no root of a negative number".to_owned())?;
            raised(root, exponent + exponent)
        }
        false => Err("an exponent is whole or half".to_owned()),
    }
}

fn called(function: &str, values: &[Decimal]) -> Result<Decimal, String> {
    let too_large = || "the result is too large".to_owned();
    let sum = || values.iter().try_fold(Decimal::ZERO, |sum, value| sum.checked_add(*value)).ok_or_else(too_large);
    let first = values.first().copied().unwrap_or_default();
    Ok(match function {
        "min" => values.iter().copied().min().unwrap_or_default(),
        "max" => values.iter().copied().max().unwrap_or_default(),
        "sum" => sum()?,
        "avg" => sum()?.checked_div(Decimal::from(values.len())).ok_or_else(too_large)?,
        "round" => {
            let places = values.get(1).copied().unwrap_or_default();
            let places = places.to_u32().filter(|at| *at <= PLACES_MAX && places.is_integer());
            let places = places.ok_or_else(|| format!("round has 0 to {PLACES_MAX} places"))?;
            first.round_dp_with_strategy(places, rust_decimal::RoundingStrategy::MidpointAwayFromZero)
        }
        "abs" => first.abs(),
        "floor" => first.floor(),
        "ceil" => first.ceil(),
        "sqrt" => first.sqrt().ok_or_else(|| "there is no root of a negative number".to_owned())?,
        _ => raised(first, values.get(1).copied().unwrap_or_default())?,
    })
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, RngExt, SeedableRng};
    use serde_json::json;

    use super::*;

    fn of(text: &str) -> Result<Value, String> {
        let variables = [("nights", "3"), ("price", "12.50")]
            .map(|(name, value)| (name.into(), Computed::Number(value.parse().unwrap())));
        Expression::parse(text)?.value(&BTreeMap::from(variables)).map(Computed::in_json)
    }

    #[test]
    fn arithmetic_is_exact() {
        for (text, value) in [
            ("347*28", json!(9716)),
            ("0.1 + 0.2", json!(0.3)),
            ("12.50 * 3", json!(37.5)),
            ("15% of 240", json!(36)),
            ("240 * 15%", json!(36)),
            ("17 % 5", json!(2)),
            ("2^10", json!(1024)),
            ("2**3**2", json!(512)),
            ("-2^2", json!(-4)),
            ("(-2)^2", json!(4)),
            ("2^-2", json!(0.25)),
            ("1 - 2 - 3", json!(-4)),
            ("24 / 4 / 2", json!(3)),
            ("1/3*3 < 1", json!(true)),
            ("max(3, min(9, 4))", json!(4)),
            ("avg(1, 2, 6)", json!(3)),
            ("round(2.345, 2)", json!(2.35)),
            ("round(-2.5)", json!(-3)),
            ("sqrt(2.25)", json!(1.5)),
            ("4^0.5 == 2", json!(true)),
            ("9^1.5", json!(27)),
            ("pow(1.1, 2)", json!(1.21)),
            ("3 × 4 ÷ 2 − 1", json!(5)),
            ("３＊（４＋５）", json!(27)),
            ("nights * price", json!(37.5)),
            ("nights <= 7 && price < 20 ? nights * price : 0", json!(37.5)),
            ("9007199254740993 + 0.1", json!("9007199254740993.1")),
            ("99999999999999999999 + 1", json!("100000000000000000000")),
        ] {
            assert_eq!(of(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_fault_is_named_with_its_place() {
        for (text, why) in [
            ("", "give an expression"),
            ("12,50 + 3", "12.50"),
            ("1,000", "1000"),
            ("12 500", "a sign is missing at 4"),
            ("3x", "a sign is missing at 2"),
            ("2 +", "ends where"),
            ("(2 + 3", "\")\" is missing at the end"),
            ("5 km", "a sign is missing at 3"),
            ("what", "\"what\" is not known"),
            ("1/0", "divides by zero"),
            ("0^-1", "divides by zero"),
            ("9^9^9^9", "exponent"),
            ("2^0.3", "whole or half"),
            ("99999999999999^3", "too large"),
            ("1.2.3", "no number"),
            ("1 $ 2", "\"$\" at 3"),
            ("(1 < 2) + 1", "a truth value"),
            ("sqrt(1, 2)", "another number"),
            ("round(1, 99)", "places"),
            ("sqrt(-1)", "negative"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(of(&"(".repeat(100)).unwrap_err().contains("levels"));
        assert!(of(&"1+".repeat(300)).unwrap_err().contains("bytes"));
        assert!(of(&format!("{}1", "-".repeat(400))).unwrap_err().contains("levels"));
    }

    #[test]
    fn random_inputs_end_in_a_value_or_a_fault() {
        evaluate_random(20_000);
    }

    #[test]
    #[ignore = "it takes a while"]
    fn a_million_random_inputs_end_in_a_value_or_a_fault() {
        evaluate_random(500_000);
    }

    /// Evaluates so many inputs of signs and numbers, and as many of noise, on a stack of 512 KiB.
    fn evaluate_random(pairs: usize) {
        let fuzz = move || {
            let mut random = StdRng::seed_from_u64(7);
            let parts = [
                "1",
                "2.5",
                "0",
                "99999999999999999999",
                "+",
                "-",
                "*",
                "/",
                "^",
                "%",
                "(",
                ")",
                ",",
                "min(",
                "sqrt(",
                "pow(",
                "round(",
                "<",
                "==",
                "?",
                ":",
                "&&",
                "of",
                "x",
                " ",
                "１",
                "−",
                "%(",
                "0.0000000000000000000000000001",
            ];
            for _ in 0..pairs {
                let length = random.random_range(0..40);
                let text: String = (0..length).map(|_| parts[random.random_range(0..parts.len())]).collect();
                let _ = of(&text);
                let noise: String = (0..length).map(|_| char::from(random.random_range(32..127_u8))).collect();
                let _ = of(&noise);
            }
            let _ = random.next_u32();
        };
        std::thread::Builder::new().stack_size(512 << 10).spawn(fuzz).unwrap().join().unwrap();
    }
}
