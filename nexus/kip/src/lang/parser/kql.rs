//! KQL: FIND, WHERE with all its clauses, and EXPORT (draft7 §3).

use super::super::CLAUSES_MAX;
use super::super::ast::{
    Aggregate, Clause, Comparison, ConceptPattern, Export, Expr, Find, Hops, Lit, Path, Predicate, PropositionPattern,
    Selected, Term, TextTest, Triple,
};
use super::super::error::syntax;
use super::super::lexer::{AND, EQ, GE, LE, NE, OR, T};
use super::{Parsed, Parser, cursor, key, limit, text, value, whole};

/// The maximum number of hops in a pattern.
const HOPS_MAX: i64 = 10_000;

// find ::= 'FIND' '(' selected (',' selected)* ')' where asof? ('ORDER' 'BY' order (',' order)*)? limit? cursor?
pub(super) fn find<'a>(p: &mut Parser<'a>) -> Parsed<Find<'a>> {
    p.word("FIND")?;
    p.mark(b'(')?;
    let mut select = vec![selected(p)?];
    while p.take(b',')? && !p.is(b')') {
        select.push(selected(p)?);
    }
    p.mark(b')')?;
    let clauses = where_block(p)?;
    let as_of = as_of(p)?;
    let mut sort = Vec::new();
    if p.take_word("ORDER")? {
        p.word("BY")?;
        sort.push(order(p)?);
        while p.take(b',')? {
            sort.push(order(p)?);
        }
    }
    let found = Find { select, clauses, as_of, order: sort, limit: limit(p)?, cursor: cursor(p)? };
    if p.is_word("ORDER") || p.is_word("LIMIT") || p.is_word("AS") {
        return Err(p
            .unexpected("the end of the command")
            .hint("the order is WHERE, AS OF SEQ, ORDER BY, LIMIT, CURSOR"));
    }
    if p.is_word("OFFSET") {
        return Err(p
            .unexpected("the end of the command")
            .hint("page with LIMIT and the CURSOR that each page answers"));
    }
    Ok(found)
}

// asof ::= 'AS' 'OF' 'SEQ' WHOLE
fn as_of<'a>(p: &mut Parser<'a>) -> Parsed<Option<super::Placed<'a>>> {
    if !p.take_word("AS")? {
        return Ok(None);
    }
    p.word("OF")?;
    p.word("SEQ")?;
    whole(p, "the number of a journal entry", 0).map(Some)
}

// order ::= selected ('ASC' | 'DESC')?
fn order<'a>(p: &mut Parser<'a>) -> Parsed<(Selected<'a>, bool)> {
    let key = selected(p)?;
    let descending = p.take_word("DESC")?;
    if !descending {
        p.take_word("ASC")?;
    }
    Ok((key, descending))
}

// selected ::= path | ('COUNT' | 'SUM' | 'AVG' | 'MIN' | 'MAX') '(' 'DISTINCT'? path ')'
fn selected<'a>(p: &mut Parser<'a>) -> Parsed<Selected<'a>> {
    let T::Word(word) = p.t else { return path(p).map(Selected::Path) };
    let Some(function) = Aggregate::named(word) else {
        let error = p.expected_word(Aggregate::NAMES, "an expression is ?x, ?x.name, ?x.attributes.key or COUNT(?x)");
        return Err(error);
    };
    p.next()?;
    p.mark(b'(')?;
    let distinct = p.take_word("DISTINCT")?;
    let path = path(p)?;
    p.mark(b')')?;
    Ok(Selected::Aggregate { function, distinct, path })
}

// path ::= VAR ('.' field)?
// field ::= 'id' | 'type' | 'name' | 'subject' | 'predicate' | 'object' | ('attributes' | 'metadata') ('.' key)*
pub(super) fn path<'a>(p: &mut Parser<'a>) -> Parsed<Path<'a>> {
    let (var, start) = p.var()?;
    let mut fields = Vec::new();
    while p.take(b'.')? {
        let at = p.span;
        let field = key(p)?;
        let known = ["id", "type", "name", "subject", "predicate", "object", "attributes", "metadata"];
        if fields.is_empty() && !known.contains(&&*field) {
            return Err(syntax(format!("a node or link has no field {field}"), at)
                .hint(format!("an attribute is written ?{var}.attributes.{field}, metadata ?{var}.metadata.{field}")));
        }
        fields.push(field);
    }
    Ok(Path { var, fields, span: start.to(p.last) })
}

// where ::= 'WHERE' '{' (clause ','?)* '}'
pub(super) fn where_block<'a>(p: &mut Parser<'a>) -> Parsed<Vec<Clause<'a>>> {
    p.word("WHERE")?;
    block(p)
}

fn block<'a>(p: &mut Parser<'a>) -> Parsed<Vec<Clause<'a>>> {
    p.deeper(|p| {
        p.mark(b'{')?;
        let mut clauses = Vec::new();
        while !p.take(b'}')? {
            p.clauses += 1;
            if p.clauses > CLAUSES_MAX {
                return Err(syntax(format!("more than {CLAUSES_MAX} clauses in one command"), p.span));
            }
            clauses.push(clause(p)?);
            if !p.take(b',')? {
                p.take(b';')?;
            }
        }
        Ok(clauses)
    })
}

// clause ::= VAR concept | VAR? proposition | 'FILTER' '(' expr ')' | ('NOT' | 'OPTIONAL' | 'UNION') '{' (clause ','?)*
// '}'
fn clause<'a>(p: &mut Parser<'a>) -> Parsed<Clause<'a>> {
    match p.t {
        T::Mark(b'(') => Ok(Clause::Proposition(None, proposition(p)?)),
        T::Var(var) => {
            p.next()?;
            if p.is(b'{') {
                return Ok(Clause::Concept(var, concept(p)?));
            }
            if !p.is(b'(') {
                return Err(p
                    .unexpected("'{' or '('")
                    .hint("a clause is ?x {type: \"…\"} or ?l (?s, \"predicate\", ?o)"));
            }
            Ok(Clause::Proposition(Some(var), proposition(p)?))
        }
        T::Word(word) if word.eq_ignore_ascii_case("FILTER") => {
            p.next()?;
            p.mark(b'(')?;
            let test = expr(p)?;
            p.mark(b')')?;
            Ok(Clause::Filter(test))
        }
        T::Word(word) if word.eq_ignore_ascii_case("NOT") => {
            p.next()?;
            block(p).map(Clause::Not)
        }
        T::Word(word) if word.eq_ignore_ascii_case("OPTIONAL") => {
            p.next()?;
            block(p).map(Clause::Optional)
        }
        T::Word(word) if word.eq_ignore_ascii_case("UNION") => {
            p.next()?;
            block(p).map(Clause::Union)
        }
        T::Mark(b'{') => {
            Err(p.unexpected("a clause").hint("a concept clause begins with its variable: ?x {type: \"…\"}"))
        }
        _ => Err(p.expected_word(
            &["FILTER", "NOT", "OPTIONAL", "UNION"],
            "a clause is ?x {type: \"…\"}, (?s, \"predicate\", ?o), FILTER(…), NOT {…}, OPTIONAL {…} or UNION {…}",
        )),
    }
}

// The members may come in any order, and an id may be combined with the others.
// concept ::= '{' ('id' ':' STRING | 'type' ':' STRING (',' 'name' ':' STRING)? | 'name' ':' STRING) ','? '}'
pub(super) fn concept<'a>(p: &mut Parser<'a>) -> Parsed<ConceptPattern<'a>> {
    let open = p.mark(b'{')?;
    let mut pattern = ConceptPattern::default();
    while !p.is(b'}') {
        let at = p.span;
        let key = key(p)?;
        let place = match &*key {
            "id" => &mut pattern.id,
            "type" => &mut pattern.kind,
            "name" => &mut pattern.name,
            other => {
                return Err(syntax(format!("a concept is matched by id, type and name, not by {other}"), at)
                    .hint(format!("write FILTER(?x.attributes.{other} == …) instead")));
            }
        };
        if place.is_some() {
            return Err(syntax(format!("the key {key} is a duplicate"), at));
        }
        p.mark(b':')?;
        *place = Some(text(p, &format!("the {key}, in quotes"))?);
        if !p.take(b',')? {
            break;
        }
    }
    pattern.span = open.to(p.mark(b'}')?);
    if pattern.id.is_none() && pattern.kind.is_none() && pattern.name.is_none() {
        return Err(syntax("an empty concept pattern would match everything", pattern.span)
            .hint("name at least one of id, type, name"));
    }
    Ok(pattern)
}

// proposition ::= '(' 'id' ':' STRING ')' | '(' term ',' predicate ',' term ','? ')'
pub(super) fn proposition<'a>(p: &mut Parser<'a>) -> Parsed<PropositionPattern<'a>> {
    p.deeper(|p| {
        let open = p.mark(b'(')?;
        if p.take_word("id")? {
            p.mark(b':')?;
            let id = text(p, "the id, in quotes")?;
            p.take(b',')?;
            return Ok(PropositionPattern::Id(id, open.to(p.mark(b')')?)));
        }
        let subject = term(p)?;
        p.mark(b',')?;
        let predicate = predicate(p)?;
        p.mark(b',')?;
        let object = term(p)?;
        p.take(b',')?;
        let span = open.to(p.mark(b')')?);
        Ok(PropositionPattern::Triple(Box::new(Triple { subject, predicate, object, span })))
    })
}

// predicate ::= VAR | PREDICATE hops? ('|' PREDICATE hops?)*
fn predicate<'a>(p: &mut Parser<'a>) -> Parsed<Predicate<'a>> {
    if let T::Var(name) = p.t {
        p.next()?;
        return Ok(Predicate::Var(name, p.last));
    }
    let mut names = vec![predicate_name(p)?];
    while p.take(b'|')? {
        names.push(predicate_name(p)?);
    }
    Ok(Predicate::Names(names))
}

// hops ::= '{' WHOLE '}' | '{' WHOLE ',' WHOLE? '}'
fn predicate_name<'a>(p: &mut Parser<'a>) -> Parsed<(Lit<'a>, Option<Hops>)> {
    let at = p.span;
    let name = text(p, "a predicate, in quotes")?;
    if let Lit::Str(text) = &name {
        // A predicate's name never contains '{', so a '{' inside the quotes also begins the hops (R2).
        if let Some((bare, counts)) = text.split_once('{') {
            let inner = counts.strip_suffix('}').and_then(hops_of);
            let Some(hops) = inner else {
                return Err(syntax("hops are written \"p\"{1,3}, \"p\"{2,} or \"p\"{2}", at));
            };
            let bare = bare.trim_end().to_owned();
            return checked(hops, at).map(|hops| (Lit::Str(bare.into()), Some(hops)));
        }
    }
    if !p.is(b'{') {
        return Ok((name, None));
    }
    let open = p.mark(b'{')?;
    let count = |p: &mut Parser<'a>| match p.t {
        T::Int(int) if (0..=HOPS_MAX).contains(&int) => {
            p.next()?;
            Ok(int as u32)
        }
        _ => Err(p.unexpected(&format!("a number of hops up to {HOPS_MAX}"))),
    };
    let min = count(p)?;
    let max = if p.take(b',')? { if p.is(b'}') { None } else { Some(count(p)?) } } else { Some(min) };
    let span = open.to(p.mark(b'}')?);
    checked(Hops { min, max }, span).map(|hops| (name, Some(hops)))
}

fn hops_of(text: &str) -> Option<Hops> {
    let count = |text: &str| text.trim().parse::<u32>().ok().filter(|n| i64::from(*n) <= HOPS_MAX);
    match text.split_once(',') {
        None => count(text).map(|n| Hops { min: n, max: Some(n) }),
        Some((min, "")) => count(min).map(|min| Hops { min, max: None }),
        Some((min, max)) if max.trim().is_empty() => count(min).map(|min| Hops { min, max: None }),
        Some((min, max)) => Some(Hops { min: count(min)?, max: Some(count(max)?) }),
    }
}

fn checked(hops: Hops, span: super::Span) -> Parsed<Hops> {
    match hops.max {
        Some(max) if max < hops.min => {
            Err(syntax(format!("{{{},{max}}}: the least number of hops is above the most", hops.min), span))
        }
        _ => Ok(hops),
    }
}

// term ::= VAR | VAR? concept | VAR? proposition
pub(super) fn term<'a>(p: &mut Parser<'a>) -> Parsed<Term<'a>> {
    let named = match p.t {
        T::Var(name) => {
            p.next()?;
            Some((name, p.last))
        }
        _ => None,
    };
    let name = named.map(|(name, _)| name);
    match (p.is(b'{'), p.is(b'('), named) {
        (true, ..) => Ok(Term::Concept(name, concept(p)?)),
        (_, true, _) => Ok(Term::Proposition(name, proposition(p)?)),
        (_, _, Some((name, span))) => Ok(Term::Var(name, span)),
        _ => Err(p.unexpected("?x, {type: \"…\", name: \"…\"} or (…)")),
    }
}

// expr ::= and ('||' and)*
pub(super) fn expr<'a>(p: &mut Parser<'a>) -> Parsed<Expr<'a>> {
    p.deeper(|p| {
        let (mut left, mut operands) = (and(p)?, 1);
        while p.take(OR)? {
            operands = one_more(p, operands)?;
            left = Expr::Or(Box::new(left), Box::new(and(p)?));
        }
        Ok(left)
    })
}

// and ::= compare ('&&' compare)*
fn and<'a>(p: &mut Parser<'a>) -> Parsed<Expr<'a>> {
    let (mut left, mut operands) = (compare(p)?, 1);
    while p.take(AND)? {
        operands = one_more(p, operands)?;
        left = Expr::And(Box::new(left), Box::new(compare(p)?));
    }
    Ok(left)
}

/// Counts one more operand: a chain becomes a tree whose depth is the number of operands.
fn one_more(p: &Parser<'_>, operands: usize) -> Parsed<usize> {
    if operands == CLAUSES_MAX {
        return Err(syntax(format!("more than {CLAUSES_MAX} operands in one chain"), p.span)
            .hint("many values of one path are tested with IN(?x.name, […])"));
    }
    Ok(operands + 1)
}

// compare ::= unary (('==' | '!=' | '<' | '<=' | '>' | '>=') unary)?
fn compare<'a>(p: &mut Parser<'a>) -> Parsed<Expr<'a>> {
    let left = unary(p)?;
    let T::Mark(mark) = p.t else { return Ok(left) };
    let operator = match mark {
        EQ => Comparison::Eq,
        NE => Comparison::Ne,
        b'<' => Comparison::Lt,
        LE => Comparison::Le,
        b'>' => Comparison::Gt,
        GE => Comparison::Ge,
        _ => return Ok(left),
    };
    p.next()?;
    Ok(Expr::Compare(Box::new(left), operator, Box::new(unary(p)?)))
}

// unary ::= '!' unary | '(' expr ')' | path | test | value
fn unary<'a>(p: &mut Parser<'a>) -> Parsed<Expr<'a>> {
    match p.t {
        T::Mark(b'!') => p.deeper(|p| {
            p.next()?;
            unary(p).map(|inner| Expr::Not(Box::new(inner)))
        }),
        T::Mark(b'(') => {
            p.next()?;
            let inner = expr(p)?;
            p.mark(b')')?;
            Ok(inner)
        }
        T::Var(_) => path(p).map(Expr::Path),
        T::Word(word) => test(p, word),
        _ => value(p).map(Expr::Value),
    }
}

// test ::= ('CONTAINS' | 'STARTS_WITH' | 'ENDS_WITH' | 'REGEX') '(' expr ',' expr ')' | 'IN' '(' expr ',' array ')' |
// ('IS_NULL' | 'IS_NOT_NULL') '(' expr ')'
fn test<'a>(p: &mut Parser<'a>, word: &'a str) -> Parsed<Expr<'a>> {
    let at = p.span;
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    if is("true") || is("false") || is("null") {
        return value(p).map(Expr::Value);
    }
    if let Some(kind) = TextTest::named(word) {
        p.next()?;
        p.mark(b'(')?;
        let left = expr(p)?;
        p.mark(b',')?;
        let right = expr(p)?;
        let span = at.to(p.mark(b')')?);
        return Ok(Expr::Text(kind, Box::new(left), Box::new(right), span));
    }
    if is("IN") {
        p.next()?;
        p.mark(b'(')?;
        let left = expr(p)?;
        p.mark(b',')?;
        let list_at = p.span;
        if !matches!(p.t, T::Mark(b'[' | b':') | T::Param(_)) {
            return Err(p.unexpected("a list such as [1, 2]"));
        }
        let list = value(p)?;
        p.mark(b')')?;
        return Ok(Expr::In(Box::new(left), list, list_at));
    }
    if is("IS_NULL") || is("IS_NOT_NULL") {
        p.next()?;
        p.mark(b'(')?;
        let inner = expr(p)?;
        p.mark(b')')?;
        return Ok(Expr::IsNull(Box::new(inner), is("IS_NULL")));
    }
    if is("NOT") {
        return Err(p.unexpected("an expression").hint("inside FILTER, 'not' is written !(…)"));
    }
    Err(p.expected_word(
        &[TextTest::NAMES, &["IN", "IS_NULL", "IS_NOT_NULL"]].concat(),
        "texts are written in double quotes",
    ))
}

// export ::= 'EXPORT' VAR where limit? cursor?
pub(super) fn export<'a>(p: &mut Parser<'a>) -> Parsed<Export<'a>> {
    p.word("EXPORT")?;
    Ok(Export { target: p.var()?, clauses: where_block(p)?, limit: limit(p)?, cursor: cursor(p)? })
}
