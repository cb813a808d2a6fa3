//! Tree → plan: variables become slots, inline patterns become hidden slots with steps of their own.

use std::sync::Arc;

use super::{Plan, Step, optimize};
use crate::graph::GraphRead;
use crate::kip::ast::{Clause, ConceptPattern, Expr, Find, Path, Predicate, PropositionPattern, Selected, Term, Val};
use crate::kip::{ErrorKind, KipError};

/// The plan of a bound FIND; every variable it answers, sorts or filters by must be bound in WHERE (R33).
///
/// # Errors
/// `reference` for an unbound variable, `parameter` for a value of the wrong kind.
pub fn build(find: &Find, graph: &dyn GraphRead) -> Result<Plan, KipError> {
    let plan = build_where(&find.clauses, graph)?;
    for selected in &find.select {
        let (Selected::Path(path) | Selected::Count { path, .. }) = selected;
        bound(&plan, path)?;
    }
    find.order.iter().try_for_each(|(path, _)| bound(&plan, path))?;
    Ok(plan)
}

/// The plan of a bound WHERE.
///
/// # Errors
/// As [`build`].
pub fn build_where(clauses: &[Clause], graph: &dyn GraphRead) -> Result<Plan, KipError> {
    let mut plan = Plan::default();
    for clause in clauses {
        match clause {
            Clause::Concept(var, pattern) => {
                let slot = named(&mut plan, var);
                concept(&mut plan, slot, pattern)?;
            }
            Clause::Proposition(var, pattern) => {
                let slot = match var {
                    Some(var) => named(&mut plan, var),
                    None => hidden(&mut plan),
                };
                proposition(&mut plan, slot, pattern)?;
            }
            Clause::Filter(test) => plan.steps.push(Step::Filter(test.clone())),
        }
    }
    for step in &plan.steps {
        if let Step::Filter(test) = step {
            paths(test, &mut |path| bound(&plan, path))?;
        }
    }
    optimize::optimize(&mut plan, graph);
    Ok(plan)
}

fn bound(plan: &Plan, path: &Path) -> Result<(), KipError> {
    match plan.slot(&path.var) {
        Some(_) => Ok(()),
        None => Err(KipError::new(ErrorKind::Reference, format!("?{} is bound nowhere in WHERE", path.var))
            .at(path.span)
            .hint(format!("add a clause such as ?{} {{type: \"…\"}}", path.var))),
    }
}

fn named(plan: &mut Plan, name: &Arc<str>) -> usize {
    plan.slot(name).unwrap_or_else(|| {
        plan.slots.push(Some(name.clone()));
        plan.slots.len() - 1
    })
}

fn hidden(plan: &mut Plan) -> usize {
    plan.slots.push(None);
    plan.slots.len() - 1
}

fn concept(plan: &mut Plan, slot: usize, pattern: &ConceptPattern) -> Result<(), KipError> {
    let text = |value: &Option<Val>, what: &str| {
        let text = |value: &Val| match value.json().as_str() {
            Some(text) => Ok(Arc::<str>::from(text)),
            None => Err(KipError::new(ErrorKind::Parameter, format!("{what} is a string, not {}", value.json()))
                .at(pattern.span)),
        };
        value.as_ref().map(text).transpose()
    };
    plan.steps.push(Step::Concept {
        slot,
        id: text(&pattern.id, "an id")?,
        kind: text(&pattern.kind, "a type")?,
        name: text(&pattern.name, "a name")?,
    });
    Ok(())
}

fn proposition(plan: &mut Plan, link: usize, pattern: &PropositionPattern) -> Result<(), KipError> {
    match pattern {
        PropositionPattern::Id(id, span) => {
            let id =
                id.json().as_str().ok_or_else(|| KipError::new(ErrorKind::Parameter, "an id is a string").at(*span))?;
            plan.steps.push(Step::LinkById { slot: link, id: id.into() });
        }
        PropositionPattern::Triple(triple) => {
            let subject = term(plan, &triple.subject)?;
            let object = term(plan, &triple.object)?;
            let (predicates, predicate) = match &triple.predicate {
                Predicate::Var(name) => (Vec::new(), Some(named(plan, name))),
                Predicate::Names(names) => {
                    let text = |name: &Val| {
                        name.json().as_str().map(Arc::from).ok_or_else(|| {
                            KipError::new(ErrorKind::Parameter, "a predicate is a string").at(triple.span)
                        })
                    };
                    (names.iter().map(text).collect::<Result<_, _>>()?, None)
                }
            };
            plan.steps.push(Step::Triple { link, subject, predicates, predicate, object });
        }
    }
    Ok(())
}

fn term(plan: &mut Plan, term: &Term) -> Result<usize, KipError> {
    match term {
        Term::Var(name, _) => Ok(named(plan, name)),
        Term::Concept(name, pattern) => {
            let slot = match name {
                Some(name) => named(plan, name),
                None => hidden(plan),
            };
            concept(plan, slot, pattern)?;
            Ok(slot)
        }
        Term::Proposition(pattern) => {
            let slot = hidden(plan);
            proposition(plan, slot, pattern)?;
            Ok(slot)
        }
    }
}

/// Calls `each` for every path in an expression.
fn paths(test: &Expr, each: &mut impl FnMut(&Path) -> Result<(), KipError>) -> Result<(), KipError> {
    match test {
        Expr::Value(_) => Ok(()),
        Expr::Path(path) => each(path),
        Expr::Not(inner) => paths(inner, each),
        Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(a, _, b) | Expr::Text(_, a, b, _) => {
            paths(a, each)?;
            paths(b, each)
        }
    }
}

/// The variables an expression names.
pub(super) fn variables(test: &Expr) -> Vec<Arc<str>> {
    let mut names = Vec::new();
    let _ = paths(test, &mut |path| {
        names.push(path.var.clone());
        Ok(())
    });
    names
}
