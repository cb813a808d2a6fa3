//! META: DESCRIBE and SEARCH (draft7 §5, superset 8).

use super::super::ast::{Describe, Page, Search};
use super::super::lexer::T;
use super::{Parsed, Parser, cursor, limit, text, value, whole};

// describe ::= 'DESCRIBE' ('PRIMER' ('BUDGET' WHOLE)? | 'DOMAINS' | 'CONFLICTS' page | ('CONCEPT' | 'PROPOSITION')
// ('TYPES' page | 'TYPE' STRING))
pub(super) fn describe<'a>(p: &mut Parser<'a>) -> Parsed<Describe<'a>> {
    p.word("DESCRIBE")?;
    if p.take_word("PRIMER")? {
        let budget = if p.take_word("BUDGET")? { Some(whole(p, "the budget in tokens", 1)?) } else { None };
        return Ok(Describe::Primer(budget));
    }
    if p.take_word("DOMAINS")? {
        return Ok(Describe::Domains);
    }
    if p.take_word("CONFLICTS")? {
        return page(p).map(Describe::Conflicts);
    }
    let of_concepts = p.take_word("CONCEPT")?;
    if !of_concepts && !p.take_word("PROPOSITION")? {
        return Err(p.expected_word(
            &["PRIMER", "DOMAINS", "CONCEPT", "PROPOSITION", "CONFLICTS"],
            "DESCRIBE CONCEPT TYPES lists what there is",
        ));
    }
    if p.take_word("TYPES")? {
        let page = page(p)?;
        return Ok(if of_concepts { Describe::ConceptTypes(page) } else { Describe::PropositionTypes(page) });
    }
    p.word("TYPE")?;
    let span = p.span;
    let name = (text(p, "a name, in quotes")?, span);
    Ok(if of_concepts { Describe::ConceptType(name) } else { Describe::PropositionType(name) })
}

// page ::= limit? cursor?
fn page<'a>(p: &mut Parser<'a>) -> Parsed<Page<'a>> {
    Ok(Page { limit: limit(p)?, cursor: cursor(p)? })
}

// search ::= 'SEARCH' ('CONCEPT' | 'PROPOSITION')? STRING ('WITH' 'TYPE' STRING)? ('MODE' STRING)? ('THRESHOLD'
// NUMBER)? limit?
pub(super) fn search<'a>(p: &mut Parser<'a>) -> Parsed<Search<'a>> {
    p.word("SEARCH")?;
    let propositions = p.take_word("PROPOSITION")?;
    if !propositions {
        p.take_word("CONCEPT")?;
    }
    let placed = |p: &mut Parser<'a>, what| {
        let span = p.span;
        Ok((text(p, what)?, span))
    };
    let term = placed(p, "the words, in quotes")?;
    let (mut kind, mut mode, mut threshold) = (None, None, None);
    loop {
        if kind.is_none() && p.take_word("WITH")? {
            p.word("TYPE")?;
            kind = Some(placed(p, "a type, in quotes")?);
        } else if mode.is_none() && p.take_word("MODE")? {
            mode = Some(placed(p, "\"keyword\", \"semantic\" or \"hybrid\"")?);
        } else if threshold.is_none() && p.take_word("THRESHOLD")? {
            let span = p.span;
            if !matches!(p.t, T::Int(_) | T::Num(_) | T::Param(_) | T::Mark(b':')) {
                return Err(p.unexpected("a score from 0 to 1"));
            }
            threshold = Some((value(p)?, span));
        } else {
            break;
        }
    }
    Ok(Search { propositions, term, kind, mode, threshold, limit: limit(p)? })
}
