//! Hints about why a query may have found nothing.

use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE};
use crate::datum::Sym;
use crate::graph::{ElementId, GraphRead};
use crate::lang::ast::{Clause, Lit, Predicate, PropositionPattern, Term};
use crate::lang::error::nearest;

/// Returns the undefined types and predicates in a query, each with the most similar defined name.
pub(super) fn undefined(clauses: &[Clause<'_>], graph: &dyn GraphRead) -> Vec<String> {
    let (mut kinds, mut predicates) = (Vec::new(), Vec::new());
    names_of(clauses, &mut kinds, &mut predicates);
    let mut warnings = Vec::new();
    for (meta, what, names) in [(CONCEPT_TYPE, "concept type", kinds), (PROPOSITION_TYPE, "predicate", predicates)] {
        for name in names {
            if name.starts_with('$') || graph.concept(Sym::new(meta), name).is_some() {
                continue;
            }
            let known: Vec<arcstr::ArcStr> = graph
                .of_type(Sym::new(meta), ElementId::NONE, 1000)
                .into_iter()
                .filter_map(|el| graph.key(el).map(|(_, name)| name))
                .collect();
            let near = nearest(name, known.iter().map(arcstr::ArcStr::as_str));
            let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
            warnings.push(format!("{what} \"{name}\" is not defined{near}"));
        }
    }
    warnings
}

/// Collects the types and predicates that clauses name.
fn names_of<'q>(clauses: &'q [Clause<'_>], kinds: &mut Vec<&'q str>, predicates: &mut Vec<&'q str>) {
    fn term<'q>(term: &'q Term<'_>, kinds: &mut Vec<&'q str>, predicates: &mut Vec<&'q str>) {
        match term {
            Term::Var(..) => {}
            Term::Concept(_, pattern) => kinds.extend(pattern.kind.as_ref().and_then(Lit::as_str)),
            Term::Proposition(_, pattern) => proposition(pattern, kinds, predicates),
        }
    }
    fn proposition<'q>(pattern: &'q PropositionPattern<'_>, kinds: &mut Vec<&'q str>, predicates: &mut Vec<&'q str>) {
        let PropositionPattern::Triple(triple) = pattern else { return };
        term(&triple.subject, kinds, predicates);
        term(&triple.object, kinds, predicates);
        if let Predicate::Names(names) = &triple.predicate {
            predicates.extend(names.iter().filter_map(|(name, _)| name.as_str()));
        }
    }
    for clause in clauses {
        match clause {
            Clause::Concept(_, pattern) => kinds.extend(pattern.kind.as_ref().and_then(Lit::as_str)),
            Clause::Proposition(_, pattern) => proposition(pattern, kinds, predicates),
            Clause::Filter(_) => {}
            Clause::Not(inner) | Clause::Optional(inner) | Clause::Union(inner) => names_of(inner, kinds, predicates),
        }
    }
}
