//! KML: UPSERT, UPDATE, MERGE, DELETE (draft7 §4, superset 9, 10, 13).

use super::super::ast::{
    Block, Compute, Delete, Deleted, Function, Identity, Link, Lit, Merge, Object, Placed, Predicate,
    PropositionPattern, Term, Text, Update, Upsert,
};
use super::super::error::{Span, syntax};
use super::super::lexer::T;
use super::kql::{concept, path, proposition, term, where_block};
use super::{Parsed, Parser, key, limit, object, text, value, whole};

// upsert ::= 'UPSERT' '{' (block ','?)+ '}' metadata?
pub(super) fn upsert<'a>(p: &mut Parser<'a>) -> Parsed<Upsert<'a>> {
    p.word("UPSERT")?;
    p.mark(b'{')?;
    let mut blocks = Vec::new();
    // A command without a block is truncated and must not count as successful.
    loop {
        blocks.push(block(p)?);
        p.take(b',')?;
        if p.take(b'}')? {
            break;
        }
    }
    Ok(Upsert { blocks, metadata: metadata(p)? })
}

// metadata ::= 'WITH' 'METADATA' object
fn metadata<'a>(p: &mut Parser<'a>) -> Parsed<Object<'a>> {
    if !p.take_word("WITH")? {
        return Ok(Vec::new());
    }
    p.word("METADATA")?;
    object(p)
}

// block ::= 'CONCEPT' VAR? '{' node expect? (set | links)* '}' metadata? | 'PROPOSITION' VAR? '{' fact expect? set* '}'
// metadata?
fn block<'a>(p: &mut Parser<'a>) -> Parsed<Block<'a>> {
    let is_concept = p.take_word("CONCEPT")?;
    if !is_concept && !p.take_word("PROPOSITION")? {
        return Err(p.expected_word(
            &["CONCEPT", "PROPOSITION"],
            "UPSERT { CONCEPT ?x { {type: \"…\", name: \"…\"} SET ATTRIBUTES {…} } }",
        ));
    }
    let handle = if matches!(p.t, T::Var(_)) { Some(p.var()?) } else { None };
    p.mark(b'{')?;
    let identity = if is_concept {
        let pattern = concept(p)?;
        if pattern.id.is_none() && (pattern.kind.is_none() || pattern.name.is_none()) {
            return Err(syntax("a concept is written by {type, name} or by {id}", pattern.span)
                .hint("name both: {type: \"…\", name: \"…\"}"));
        }
        Identity::Concept(pattern)
    } else {
        let pattern = proposition(p)?;
        fact(&pattern)?;
        Identity::Proposition(pattern)
    };
    let expect = expect(p)?;
    let (mut attributes, mut links) = (Vec::new(), Vec::new());
    while p.take_word("SET")? {
        let at = p.span;
        if p.take_word("ATTRIBUTES")? {
            for (key, value) in object(p)? {
                if attributes.iter().any(|(known, _): &(Text<'a>, Lit<'a>)| *known == key) {
                    return Err(syntax(format!("the key {key} is set twice"), at));
                }
                attributes.push((key, value));
            }
        } else if is_concept && p.take_word("PROPOSITIONS")? {
            set_propositions(p, &mut links)?;
        } else if is_concept {
            return Err(p.expected_word(
                &["ATTRIBUTES", "PROPOSITIONS"],
                "metadata is written after the block: WITH METADATA {…}",
            ));
        } else {
            return Err(p.expected_word(&["ATTRIBUTES"], "a PROPOSITION block sets ATTRIBUTES only"));
        }
        p.take(b',')?;
    }
    p.mark(b'}')?;
    Ok(Block { handle, identity, expect, attributes, links, metadata: metadata(p)? })
}

// set ::= 'SET' 'ATTRIBUTES' object
// expect ::= 'EXPECT' 'VERSION' WHOLE
fn expect<'a>(p: &mut Parser<'a>) -> Parsed<Option<Placed<'a>>> {
    if !p.take_word("EXPECT")? {
        return Ok(None);
    }
    p.word("VERSION")?;
    whole(p, "the version it must have", 0).map(Some)
}

// node ::= '{' ('id' ':' STRING | 'type' ':' STRING ',' 'name' ':' STRING) ','? '}'
// fact ::= '(' 'id' ':' STRING ')' | '(' end ',' PREDICATE ',' end ','? ')'
// end ::= VAR | node | fact
/// Checks that a fact, and every fact inside it, has one constant predicate (R36).
fn fact(pattern: &PropositionPattern<'_>) -> Parsed<()> {
    let PropositionPattern::Triple(triple) = pattern else { return Ok(()) };
    match &triple.predicate {
        Predicate::Names(names) if names.len() == 1 && names[0].1.is_none() => {}
        _ => {
            return Err(syntax("a fact has one predicate, written out", triple.span)
                .hint("paths, alternatives and predicate variables belong into WHERE"));
        }
    }
    for end in [&triple.subject, &triple.object] {
        match end {
            Term::Proposition(_, inner) => fact(inner)?,
            Term::Concept(_, pattern) if pattern.id.is_none() && (pattern.kind.is_none() || pattern.name.is_none()) => {
                return Err(syntax("the end of a fact is named by {type, name} or by {id}", pattern.span));
            }
            _ => {}
        }
    }
    Ok(())
}

// links ::= 'SET' 'PROPOSITIONS' '{' ('(' PREDICATE ',' end ')' metadata? ','?)* '}'
fn set_propositions<'a>(p: &mut Parser<'a>, links: &mut Vec<Link<'a>>) -> Parsed<()> {
    p.mark(b'{')?;
    while !p.take(b'}')? {
        let open = p.mark(b'(')?;
        let predicate = text(p, "a predicate, in quotes")?;
        if p.is(b'{') || p.is(b'|') || predicate.as_str().is_some_and(|name| name.contains('{')) {
            return Err(p.unexpected("','").hint("a fact has one predicate; paths belong into WHERE"));
        }
        p.mark(b',')?;
        let object = term(p)?;
        if let Term::Proposition(_, pattern) = &object {
            fact(pattern)?;
        }
        if let Term::Concept(_, pattern) = &object
            && pattern.id.is_none()
            && (pattern.kind.is_none() || pattern.name.is_none())
        {
            return Err(syntax("a target is named by {type, name} or by {id}", pattern.span));
        }
        p.take(b',')?;
        let span: Span = open.to(p.mark(b')')?);
        links.push(Link { predicate, object, metadata: metadata(p)?, span });
        p.take(b',')?;
    }
    Ok(())
}

// update ::= 'UPDATE' VAR ('SET' ('ATTRIBUTES' | 'METADATA') '{' key ':' compute (',' key ':' compute)* '}')+ where
// limit?
pub(super) fn update<'a>(p: &mut Parser<'a>) -> Parsed<Update<'a>> {
    p.word("UPDATE")?;
    let target = p.var()?;
    let (mut attributes, mut metadata) = (Vec::new(), Vec::new());
    p.word("SET")?;
    loop {
        let bag = if p.take_word("ATTRIBUTES")? {
            &mut attributes
        } else if p.take_word("METADATA")? {
            &mut metadata
        } else {
            return Err(p.expected_word(
                &["ATTRIBUTES", "METADATA"],
                "UPDATE ?x SET ATTRIBUTES {n: ADD(?x.attributes.n, 1)} WHERE {…}",
            ));
        };
        p.mark(b'{')?;
        while !p.is(b'}') {
            let at = p.span;
            let key = key(p)?;
            if bag.iter().any(|(known, _): &(Text<'a>, Compute<'a>)| *known == key) {
                return Err(syntax(format!("the key {key} is set twice"), at));
            }
            p.mark(b':')?;
            bag.push((key, compute(p, target.0)?));
            if !p.take(b',')? {
                break;
            }
        }
        p.mark(b'}')?;
        p.take(b',')?;
        if !p.take_word("SET")? {
            break;
        }
    }
    Ok(Update { target, attributes, metadata, clauses: where_block(p)?, limit: limit(p)? })
}

// compute ::= value | path | ('ADD' | 'MUL' | 'COALESCE') '(' compute ',' compute ')' | 'CLAMP' '(' compute ',' compute
// ',' compute ')'
fn compute<'a>(p: &mut Parser<'a>, target: &str) -> Parsed<Compute<'a>> {
    if matches!(p.t, T::Var(_)) {
        let path = path(p)?;
        if path.var != target {
            return Err(syntax(
                format!("a value is computed from ?{target} itself, not from ?{}", path.var),
                path.span,
            ));
        }
        return Ok(Compute::Path(path));
    }
    let T::Word(word) = p.t else { return value(p).map(Compute::Value) };
    let Some(function) = Function::named(word) else {
        return value(p).map(Compute::Value);
    };
    p.deeper(|p| {
        p.next()?;
        p.mark(b'(')?;
        let mut operands = vec![compute(p, target)?];
        while operands.len() < function.arity() {
            p.mark(b',')?;
            operands.push(compute(p, target)?);
        }
        p.mark(b')')?;
        Ok(Compute::Call(function, operands))
    })
}

// merge ::= 'MERGE' 'CONCEPT' VAR 'INTO' VAR where
pub(super) fn merge<'a>(p: &mut Parser<'a>) -> Parsed<Merge<'a>> {
    p.word("MERGE")?;
    p.word("CONCEPT")?;
    let source = p.var()?;
    p.word("INTO")?;
    Ok(Merge { source, target: p.var()?, clauses: where_block(p)? })
}

// delete ::= 'DELETE' (('ATTRIBUTES' | 'METADATA') '{' STRING (',' STRING)* ','? '}' 'FROM' VAR | 'PROPOSITIONS' VAR |
// 'CONCEPT' VAR 'DETACH') where
pub(super) fn delete<'a>(p: &mut Parser<'a>) -> Parsed<Delete<'a>> {
    p.word("DELETE")?;
    let what = if p.take_word("ATTRIBUTES")? {
        Deleted::Attributes(keys(p)?)
    } else if p.take_word("METADATA")? {
        Deleted::Metadata(keys(p)?)
    } else if p.take_word("PROPOSITIONS")? {
        Deleted::Propositions
    } else if p.take_word("CONCEPT")? {
        Deleted::Concepts
    } else {
        return Err(p.expected_word(
            &["ATTRIBUTES", "METADATA", "PROPOSITIONS", "CONCEPT"],
            "DELETE CONCEPT ?x DETACH WHERE {…}",
        ));
    };
    if matches!(what, Deleted::Attributes(_) | Deleted::Metadata(_)) {
        p.word("FROM")?;
    }
    let target = p.var()?;
    if what == Deleted::Concepts && !p.take_word("DETACH")? {
        return Err(p.unexpected("DETACH").hint("DELETE CONCEPT ?x DETACH says that its links go with it"));
    }
    Ok(Delete { what, target, clauses: where_block(p)? })
}

fn keys<'a>(p: &mut Parser<'a>) -> Parsed<Vec<Text<'a>>> {
    p.mark(b'{')?;
    let mut keys = Vec::new();
    while !p.is(b'}') {
        if !matches!(p.t, T::Str(_)) {
            return Err(p.unexpected("a key, in quotes"));
        }
        keys.push(key(p)?);
        if !p.take(b',')? {
            break;
        }
    }
    let end = p.mark(b'}')?;
    if keys.is_empty() {
        return Err(syntax("no key is named", end));
    }
    Ok(keys)
}
