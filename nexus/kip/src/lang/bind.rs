//! Binding: placeholders become values in the syntax tree, never text (R9).

use serde_json::{Map, Value};

use super::NESTING_MAX;
use super::ast::{
    Block, Clause, Command, Compute, ConceptPattern, Describe, Expr, Identity, Lit, Object, Placed, Predicate,
    PropositionPattern, Term,
};
use super::error::{ErrorKind, KipError};

/// Replaces every placeholder of `command` with its value.
///
/// # Errors
/// A `parameter` error for a placeholder without a value in `parameters`.
pub fn bind<'a>(command: &mut Command<'a>, parameters: &'a Map<String, Value>) -> Result<(), KipError> {
    visit(command, &mut |lit| resolve(lit, parameters))
}

fn resolve<'a>(lit: &mut Lit<'a>, parameters: &'a Map<String, Value>) -> Result<(), KipError> {
    match lit {
        Lit::Param(name, span) => {
            let value = parameters.get(*name).ok_or_else(|| {
                KipError::new(ErrorKind::Parameter, format!("placeholder ${name} has no value"))
                    .at(*span)
                    .hint(format!("give it in \"parameters\": {{\"{name}\": …}}"))
            })?;
            if deep(value, NESTING_MAX) {
                let message = format!("the value of ${name} nests more than {NESTING_MAX} deep");
                return Err(KipError::new(ErrorKind::Parameter, message).at(*span));
            }
            *lit = Lit::from_json(value);
            Ok(())
        }
        Lit::Array(items) => items.iter_mut().try_for_each(|item| resolve(item, parameters)),
        Lit::Object(members) => members.iter_mut().try_for_each(|(_, item)| resolve(item, parameters)),
        _ => Ok(()),
    }
}

/// Returns `true` if a value is nested deeper than `left` levels.
fn deep(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left == 0 || items.iter().any(|item| deep(item, left - 1)),
        Value::Object(members) => left == 0 || members.values().any(|item| deep(item, left - 1)),
        _ => false,
    }
}

type Each<'f, 'a> = &'f mut dyn FnMut(&mut Lit<'a>) -> Result<(), KipError>;

/// Calls `each` for every literal that may be or contain a placeholder.
fn visit<'a>(command: &mut Command<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    match command {
        Command::Find(find) | Command::Explain(find) => {
            clauses(&mut find.clauses, each)?;
            placed([&mut find.as_of, &mut find.limit, &mut find.cursor], each)
        }
        Command::Upsert(statements) => statements.iter_mut().try_for_each(|statement| {
            statement.blocks.iter_mut().try_for_each(|one| block(one, each))?;
            object(&mut statement.metadata, each)
        }),
        Command::Update(update) => {
            let sets = update.attributes.iter_mut().chain(update.metadata.iter_mut());
            sets.into_iter().try_for_each(|(_, value)| compute(value, each))?;
            clauses(&mut update.clauses, each)?;
            placed([&mut update.limit], each)
        }
        Command::Merge(merge) => clauses(&mut merge.clauses, each),
        Command::Delete(delete) => clauses(&mut delete.clauses, each),
        Command::Export(export) => {
            clauses(&mut export.clauses, each)?;
            placed([&mut export.limit, &mut export.cursor], each)
        }
        Command::Describe(describe) => match describe {
            Describe::Primer(budget) => placed([budget], each),
            Describe::Domains => Ok(()),
            Describe::ConceptTypes(page) | Describe::PropositionTypes(page) | Describe::Conflicts(page) => {
                placed([&mut page.limit, &mut page.cursor], each)
            }
            Describe::ConceptType((name, _)) | Describe::PropositionType((name, _)) => each(name),
        },
        Command::Search(search) => {
            each(&mut search.term.0)?;
            placed([&mut search.kind, &mut search.mode, &mut search.threshold, &mut search.limit], each)
        }
    }
}

fn placed<'a, const N: usize>(places: [&mut Option<Placed<'a>>; N], each: Each<'_, 'a>) -> Result<(), KipError> {
    places.into_iter().flatten().try_for_each(|(lit, _)| each(lit))
}

fn clauses<'a>(list: &mut [Clause<'a>], each: Each<'_, 'a>) -> Result<(), KipError> {
    list.iter_mut().try_for_each(|clause| match clause {
        Clause::Concept(_, pattern) => concept(pattern, each),
        Clause::Proposition(_, pattern) => proposition(pattern, each),
        Clause::Filter(test) => expr(test, each),
        Clause::Not(inner) | Clause::Optional(inner) | Clause::Union(inner) => clauses(inner, each),
    })
}

fn block<'a>(block: &mut Block<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    match &mut block.identity {
        Identity::Concept(pattern) => concept(pattern, each)?,
        Identity::Proposition(pattern) => proposition(pattern, each)?,
    }
    placed([&mut block.expect], each)?;
    object(&mut block.attributes, each)?;
    object(&mut block.metadata, each)?;
    block.links.iter_mut().try_for_each(|link| {
        each(&mut link.predicate)?;
        term(&mut link.object, each)?;
        object(&mut link.metadata, each)
    })
}

fn object<'a>(members: &mut Object<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    members.iter_mut().try_for_each(|(_, value)| each(value))
}

fn concept<'a>(pattern: &mut ConceptPattern<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    [&mut pattern.id, &mut pattern.kind, &mut pattern.name].into_iter().flatten().try_for_each(each)
}

fn proposition<'a>(pattern: &mut PropositionPattern<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    match pattern {
        PropositionPattern::Id(id, _) => each(id),
        PropositionPattern::Triple(triple) => {
            term(&mut triple.subject, each)?;
            if let Predicate::Names(names) = &mut triple.predicate {
                names.iter_mut().try_for_each(|(name, _)| each(name))?;
            }
            term(&mut triple.object, each)
        }
    }
}

fn term<'a>(term: &mut Term<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    match term {
        Term::Var(..) => Ok(()),
        Term::Concept(_, pattern) => concept(pattern, each),
        Term::Proposition(_, pattern) => proposition(pattern, each),
    }
}

fn compute<'a>(value: &mut Compute<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    match value {
        Compute::Value(lit) => each(lit),
        Compute::Path(_) => Ok(()),
        Compute::Call(_, operands) => operands.iter_mut().try_for_each(|operand| compute(operand, each)),
    }
}

fn expr<'a>(test: &mut Expr<'a>, each: Each<'_, 'a>) -> Result<(), KipError> {
    match test {
        Expr::Value(lit) => each(lit),
        Expr::Path(_) => Ok(()),
        Expr::Not(inner) | Expr::IsNull(inner, _) => expr(inner, each),
        Expr::In(inner, list, _) => {
            expr(inner, each)?;
            each(list)
        }
        Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(a, _, b) | Expr::Text(_, a, b, _) => {
            expr(a, each)?;
            expr(b, each)
        }
    }
}
