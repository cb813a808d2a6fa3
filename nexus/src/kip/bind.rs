//! Placeholders become values in the tree, never text (R9).

use serde_json::{Map, Value};

use super::ast::{
    Block, Clause, Command, ConceptPattern, Describe, Expr, Object, Predicate, PropositionPattern, Term, Val,
};
use super::error::{ErrorKind, KipError};

/// Replaces every placeholder of `command` by its value; afterwards it holds only [`Val::Json`].
///
/// # Errors
/// A `parameter` error for a placeholder that `parameters` does not have.
pub fn bind(command: &mut Command, parameters: &Map<String, Value>) -> Result<(), KipError> {
    let mut values = Vec::new();
    command_values(command, &mut values);
    values.into_iter().try_for_each(|value| resolve(value, parameters))
}

fn resolve(value: &mut Val, parameters: &Map<String, Value>) -> Result<(), KipError> {
    let bound = match std::mem::replace(value, Val::Json(Value::Null)) {
        Val::Json(json) => json,
        Val::Param(name, span) => parameters.get(&*name).cloned().ok_or_else(|| {
            KipError::new(ErrorKind::Parameter, format!("placeholder ${name} has no value"))
                .at(span)
                .hint(format!("give it in \"parameters\": {{\"{name}\": …}}"))
        })?,
        Val::Array(mut items) => {
            items.iter_mut().try_for_each(|item| resolve(item, parameters))?;
            Value::Array(items.into_iter().map(Val::into_json).collect())
        }
        Val::Object(mut members) => {
            members.iter_mut().try_for_each(|(_, item)| resolve(item, parameters))?;
            Value::Object(members.into_iter().map(|(key, item)| (key.to_string(), item.into_json())).collect())
        }
    };
    *value = Val::Json(bound);
    Ok(())
}

impl Val {
    /// The value of a bound node; a placeholder is null, which `bind` leaves none of.
    pub fn into_json(self) -> Value {
        match self {
            Self::Json(json) => json,
            Self::Param(..) => Value::Null,
            Self::Array(items) => Value::Array(items.into_iter().map(Self::into_json).collect()),
            Self::Object(members) => {
                Value::Object(members.into_iter().map(|(key, item)| (key.to_string(), item.into_json())).collect())
            }
        }
    }

    /// The value of a bound node.
    pub fn json(&self) -> &Value {
        match self {
            Self::Json(json) => json,
            _ => &Value::Null,
        }
    }
}

type Values<'a> = Vec<&'a mut Val>;

fn command_values<'a>(command: &'a mut Command, out: &mut Values<'a>) {
    match command {
        Command::Find(find) => {
            clauses(&mut find.clauses, out);
            out.extend(find.limit.iter_mut().map(|(value, _)| value));
        }
        Command::Upsert(statements) => {
            for statement in statements {
                statement.blocks.iter_mut().for_each(|one| block(one, out));
                object(&mut statement.metadata, out);
            }
        }
        Command::Delete(delete) => clauses(&mut delete.clauses, out),
        Command::Describe(describe) => match describe {
            Describe::Primer | Describe::Domains => {}
            Describe::ConceptTypes(limit) | Describe::PropositionTypes(limit) => {
                out.extend(limit.iter_mut().map(|(value, _)| value))
            }
            Describe::ConceptType(name) | Describe::PropositionType(name) => out.push(name),
        },
        Command::Search(search) => {
            out.push(&mut search.term);
            out.extend(search.kind.iter_mut());
            out.extend(search.limit.iter_mut().map(|(value, _)| value));
        }
    }
}

fn clauses<'a>(list: &'a mut [Clause], out: &mut Values<'a>) {
    for clause in list {
        match clause {
            Clause::Concept(_, pattern) => concept(pattern, out),
            Clause::Proposition(_, pattern) => proposition(pattern, out),
            Clause::Filter(test) => expr(test, out),
        }
    }
}

fn block<'a>(block: &'a mut Block, out: &mut Values<'a>) {
    match block {
        Block::Concept { pattern, attributes, links, metadata, .. } => {
            concept(pattern, out);
            object(attributes, out);
            object(metadata, out);
            for link in links {
                out.push(&mut link.predicate);
                term(&mut link.object, out);
                object(&mut link.metadata, out);
            }
        }
        Block::Proposition { pattern, attributes, metadata, .. } => {
            proposition(pattern, out);
            object(attributes, out);
            object(metadata, out);
        }
    }
}

fn object<'a>(members: &'a mut Object, out: &mut Values<'a>) {
    out.extend(members.iter_mut().map(|(_, value)| value));
}

fn concept<'a>(pattern: &'a mut ConceptPattern, out: &mut Values<'a>) {
    out.extend([&mut pattern.id, &mut pattern.kind, &mut pattern.name].into_iter().flatten());
}

fn proposition<'a>(pattern: &'a mut PropositionPattern, out: &mut Values<'a>) {
    match pattern {
        PropositionPattern::Id(id, _) => out.push(id),
        PropositionPattern::Triple(triple) => {
            term(&mut triple.subject, out);
            if let Predicate::Names(names) = &mut triple.predicate {
                out.extend(names);
            }
            term(&mut triple.object, out);
        }
    }
}

fn term<'a>(term: &'a mut Term, out: &mut Values<'a>) {
    match term {
        Term::Var(..) => {}
        Term::Concept(_, pattern) => concept(pattern, out),
        Term::Proposition(pattern) => proposition(pattern, out),
    }
}

fn expr<'a>(test: &'a mut Expr, out: &mut Values<'a>) {
    match test {
        Expr::Value(value) => out.push(value),
        Expr::Path(_) => {}
        Expr::Not(inner) => expr(inner, out),
        Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(a, _, b) | Expr::Text(_, a, b, _) => {
            expr(a, out);
            expr(b, out);
        }
    }
}
