//! Builds a plan from a syntax tree. Variables become slots, and inline patterns become hidden slots with their own
//! stages. Constants are looked up, and scopes are checked (draft7 §3.4.7, R33).

use super::optimize::order;
use super::test::{Test, regex};
use super::{Access, Block, Field, Inner, Path, Plan, Slot, Stage, Step, Triple, Which};
use crate::datum::Sym;
use crate::graph::{ElementRef, GraphRead};
use crate::lang::ast::{
    Clause, ConceptPattern, Expr, Find, Hops, Lit, Path as AstPath, Predicate, PropositionPattern, Term, TextTest,
};
use crate::lang::{ErrorKind, KipError, Span};

/// Builds the plan of a bound FIND. WHERE must bind every variable in FIND and ORDER BY (R33).
///
/// # Errors
/// `reference` for an unbound variable, `parameter` for a value of the wrong kind.
pub fn build<'a>(find: &'a Find<'a>, graph: &dyn GraphRead) -> Result<Plan<'a>, KipError> {
    let plan = build_where(&find.clauses, graph)?;
    for selected in find.select.iter().chain(find.order.iter().map(|(key, _)| key)) {
        access(&plan, selected.path())?;
    }
    Ok(plan)
}

/// Builds the plan of a bound WHERE.
///
/// # Errors
/// As [`build`].
pub fn build_where<'a>(clauses: &'a [Clause<'a>], graph: &dyn GraphRead) -> Result<Plan<'a>, KipError> {
    let mut builder = Builder { plan: Plan::default(), visible: Vec::new(), graph };
    let (block, bound) = builder.block(clauses, &[])?;
    builder.plan.root = block;
    for slot in bound {
        builder.plan.slots[slot].answers = true;
    }
    Ok(builder.plan)
}

/// Returns a path of FIND or ORDER BY as an access.
///
/// # Errors
/// `reference` when no clause binds its variable.
pub(crate) fn access(plan: &Plan<'_>, path: &AstPath<'_>) -> Result<Access, KipError> {
    let slot = plan.slot(path.var).ok_or_else(|| unbound(path.var, path.span))?;
    let field = Field::of(path).ok_or_else(|| no_field(path))?;
    Ok(Access { slot, field, holds_name: plan.slots[slot].holds_name })
}

fn unbound(var: &str, span: Span) -> KipError {
    KipError::new(ErrorKind::Reference, format!("?{var} is bound nowhere that this can see"))
        .at(span)
        .hint(format!("add a clause such as ?{var} {{type: \"…\"}} to the same block"))
}

fn no_field(path: &AstPath<'_>) -> KipError {
    KipError::new(ErrorKind::Syntax, "only attributes and metadata have something inside").at(path.span)
}

struct Builder<'a, 'g> {
    plan: Plan<'a>,
    /// The visible variables with their slots.
    visible: Vec<(&'a str, usize)>,
    graph: &'g dyn GraphRead,
}

impl<'a> Builder<'a, '_> {
    /// Builds a block that sees the `outer` slots; returns it with all slots bound after it.
    fn block(&mut self, clauses: &'a [Clause<'a>], outer: &[usize]) -> Result<(Block, Vec<usize>), KipError> {
        let mut block = Block::default();
        let mut bound: Vec<usize> = outer.to_vec();
        let mut waiting: Vec<Step> = Vec::new();
        let mut filters: Vec<&'a Expr<'a>> = Vec::new();
        for clause in clauses {
            match clause {
                Clause::Concept(var, pattern) => {
                    let slot = self.named(var, false, pattern.span)?;
                    self.concept(slot, pattern, &mut waiting)?;
                }
                Clause::Proposition(var, pattern) => {
                    self.proposition(*var, pattern, &mut waiting)?;
                }
                Clause::Filter(test) => filters.push(test),
                Clause::Not(inner) => {
                    self.settle(&mut block, &mut waiting, &mut filters, &mut bound)?;
                    let mark = self.visible.len();
                    let (inner, _) = self.nested(inner, &bound)?;
                    // Variables bound in a NOT are not visible after it; the same name then means another variable.
                    self.visible.truncate(mark);
                    self.push(&mut block, 1, Step::Not(inner));
                }
                Clause::Optional(inner) => {
                    self.settle(&mut block, &mut waiting, &mut filters, &mut bound)?;
                    let (inner, after) = self.nested(inner, &bound)?;
                    bound.extend(after.into_iter().filter(|slot| !outer.contains(slot)));
                    bound.sort_unstable();
                    bound.dedup();
                    self.push(&mut block, 1, Step::Optional(inner));
                }
                Clause::Union(inner) => {
                    self.settle(&mut block, &mut waiting, &mut filters, &mut bound)?;
                    let (inner, after) = self.block(inner, &[])?;
                    bound.extend(after);
                    bound.sort_unstable();
                    bound.dedup();
                    block.has_union = true;
                    self.push(&mut block, 1, Step::Union(inner));
                }
            }
        }
        self.settle(&mut block, &mut waiting, &mut filters, &mut bound)?;
        match filters.first() {
            None => Ok((block, bound)),
            Some(test) => {
                let mut missing = None;
                each_path(test, &mut |path| {
                    if missing.is_none() && !self.is_bound(path.var, &bound) {
                        missing = Some(unbound(path.var, path.span));
                    }
                });
                Err(missing.unwrap_or_else(|| KipError::new(ErrorKind::Reference, "a filter names what nothing binds")))
            }
        }
    }

    fn nested(&mut self, clauses: &'a [Clause<'a>], bound: &[usize]) -> Result<(Inner, Vec<usize>), KipError> {
        let origin = self.hidden();
        self.plan.slots[origin].keeps_rows_apart = true;
        let (block, after) = self.block(clauses, bound)?;
        Ok((Inner { origin, block }, after))
    }

    fn push(&mut self, block: &mut Block, estimate: usize, step: Step) {
        block.stages.push(Stage { no: self.plan.stages, estimate, step });
        self.plan.stages += 1;
    }

    fn is_bound(&self, var: &str, bound: &[usize]) -> bool {
        self.find(var).is_some_and(|slot| bound.contains(&slot))
    }

    fn find(&self, var: &str) -> Option<usize> {
        self.visible.iter().rev().find(|(name, _)| *name == var).map(|(_, slot)| *slot)
    }

    /// Orders the collected stages, with every filter that can be evaluated already.
    fn settle(
        &mut self,
        block: &mut Block,
        waiting: &mut Vec<Step>,
        filters: &mut Vec<&'a Expr<'a>>,
        bound: &mut Vec<usize>,
    ) -> Result<(), KipError> {
        let mut after = bound.clone();
        waiting.iter().for_each(|step| super::optimize::binds(step, &mut after));
        let mut kept = Vec::new();
        for test in filters.drain(..) {
            let mut ready = true;
            each_path(test, &mut |path| ready &= self.is_bound(path.var, &after));
            if ready {
                self.filter(test, waiting)?;
            } else {
                kept.push(test);
            }
        }
        *filters = kept;
        for (estimate, step) in order(std::mem::take(waiting), bound, self.graph) {
            self.push(block, estimate, step);
        }
        Ok(())
    }

    /// Adds a filter. Each side of an `&&` becomes a filter of its own, so that each is evaluated as early as
    /// possible.
    fn filter(&mut self, test: &'a Expr<'a>, out: &mut Vec<Step>) -> Result<(), KipError> {
        if let Expr::And(a, b) = test {
            self.filter(a, out)?;
            return self.filter(b, out);
        }
        out.push(Step::Filter(self.test(test)?));
        Ok(())
    }

    fn test(&self, test: &'a Expr<'a>) -> Result<Test, KipError> {
        let inner = |test: &'a Expr<'a>| self.test(test).map(Box::new);
        Ok(match test {
            Expr::Value(lit) => Test::Value(lit.to_datum()),
            Expr::Path(path) => {
                let slot = self.find(path.var).ok_or_else(|| unbound(path.var, path.span))?;
                let field = Field::of(path).ok_or_else(|| no_field(path))?;
                Test::Get(Access { slot, field, holds_name: self.plan.slots[slot].holds_name })
            }
            Expr::Not(a) => Test::Not(inner(a)?),
            Expr::And(a, b) => Test::And(inner(a)?, inner(b)?),
            Expr::Or(a, b) => Test::Or(inner(a)?, inner(b)?),
            Expr::Compare(a, operator, b) => Test::Compare(inner(a)?, *operator, inner(b)?),
            Expr::Text(TextTest::Regex, a, b, span) => match &**b {
                Expr::Value(Lit::Str(pattern)) => Test::Regex(inner(a)?, Box::new(regex(pattern, *span)?)),
                other => Test::RegexOf(inner(a)?, inner(other)?, *span),
            },
            Expr::Text(kind, a, b, _) => Test::Text(*kind, inner(a)?, inner(b)?),
            Expr::In(a, list, span) => {
                let Lit::Array(items) = list else {
                    return Err(KipError::new(ErrorKind::Parameter, "IN takes a list").at(*span));
                };
                Test::In(inner(a)?, items.iter().map(Lit::to_datum).collect())
            }
            Expr::IsNull(a, is) => Test::IsNull(inner(a)?, *is),
        })
    }

    fn named(&mut self, name: &'a str, holds_name: bool, span: Span) -> Result<usize, KipError> {
        if let Some(slot) = self.find(name) {
            if self.plan.slots[slot].holds_name != holds_name {
                let message = format!("?{name} stands for an element in one clause and for a predicate in another");
                return Err(KipError::new(ErrorKind::Reference, message).at(span).hint("use two variables"));
            }
            return Ok(slot);
        }
        self.plan.slots.push(Slot { name: Some(name), holds_name, answers: false, keeps_rows_apart: false });
        self.visible.push((name, self.plan.slots.len() - 1));
        Ok(self.plan.slots.len() - 1)
    }

    fn hidden(&mut self) -> usize {
        self.plan.slots.push(Slot { name: None, holds_name: false, answers: false, keeps_rows_apart: false });
        self.plan.slots.len() - 1
    }

    /// Converts a concept pattern to the stage that binds `slot`, with its constants looked up.
    fn concept(&mut self, slot: usize, pattern: &ConceptPattern<'_>, out: &mut Vec<Step>) -> Result<(), KipError> {
        let text = |value: &'_ Option<Lit<'_>>, what: &str| match value {
            None => Ok(None),
            Some(Lit::Str(text)) => Ok(Some(text.to_string())),
            Some(other) => {
                Err(KipError::new(ErrorKind::Parameter, format!("{what} is a string, not {}", other.to_json()))
                    .at(pattern.span))
            }
        };
        let (id, kind, name) =
            (text(&pattern.id, "an id")?, text(&pattern.kind, "a type")?, text(&pattern.name, "a name")?);
        let grounded = id.is_some() || (kind.is_some() && name.is_some());
        let kind_sym = kind.as_deref().map(Sym::known);
        let which = match (id, kind_sym, name) {
            (Some(id), kind, name) => {
                let mut these = Vec::new();
                if let Some(el) = self.graph.ids().parse(&id).filter(|el| !el.is_link()) {
                    self.graph.look(el, &mut |look| {
                        if let ElementRef::Concept(found) = look {
                            let fits = kind.is_none_or(|kind| kind == Some(found.kind))
                                && name.as_deref().is_none_or(|name| found.name == name);
                            these.extend(fits.then_some(el));
                        }
                    });
                }
                Which::These(these)
            }
            (None, Some(kind), Some(name)) => {
                Which::These(kind.and_then(|kind| self.graph.concept(kind, &name)).into_iter().collect())
            }
            (None, None, Some(name)) => {
                let types = self.graph.types();
                Which::These(types.into_iter().filter_map(|(kind, _)| self.graph.concept(kind, &name)).collect())
            }
            (None, Some(Some(kind)), None) => Which::Type(kind),
            (None, _, None) => Which::These(Vec::new()),
        };
        out.push(Step::Concept { slot, bound: false, which, grounded });
        Ok(())
    }

    /// Converts a proposition pattern; returns the slot of its link.
    fn proposition(
        &mut self,
        var: Option<&'a str>,
        pattern: &'a PropositionPattern<'a>,
        out: &mut Vec<Step>,
    ) -> Result<usize, KipError> {
        let triple = match pattern {
            PropositionPattern::Id(id, span) => {
                let slot = match var {
                    Some(var) => self.named(var, false, *span)?,
                    None => self.hidden(),
                };
                let Lit::Str(id) = id else {
                    return Err(KipError::new(ErrorKind::Parameter, "an id is a string").at(*span));
                };
                let el = self.graph.ids().parse(id).filter(|el| el.is_link() && self.graph.has(*el));
                out.push(Step::Link { slot, bound: false, el });
                return Ok(slot);
            }
            PropositionPattern::Triple(triple) => triple,
        };
        let subject = self.term(&triple.subject, out)?;
        let (names, name) = match &triple.predicate {
            Predicate::Var(name, span) => (None, Some(self.named(name, true, *span)?)),
            Predicate::Names(names) => (Some(names), None),
        };
        let object = self.term(&triple.object, out)?;
        let mut walks: Vec<(Option<Sym>, Option<Hops>)> = Vec::new();
        for (lit, hops) in names.into_iter().flatten() {
            let Lit::Str(text) = lit else {
                return Err(KipError::new(
                    ErrorKind::Parameter,
                    format!("a predicate is a string, not {}", lit.to_json()),
                )
                .at(triple.span));
            };
            walks.push((Sym::known(text), *hops));
        }
        if walks.iter().any(|(_, hops)| hops.is_some()) {
            if let Some(var) = var {
                return Err(KipError::new(
                    ErrorKind::Syntax,
                    format!("?{var} cannot stand for a path: a path is no link"),
                )
                .at(triple.span)
                .hint("leave the link variable out, or ask for one hop"));
            }
            let one = Hops { min: 1, max: Some(1) };
            let walks = walks.into_iter().map(|(name, hops)| (name, hops.unwrap_or(one))).collect();
            out.push(Step::Path(Path { subject, object, walks, bound: [false; 2], span: triple.span }));
            return Ok(self.hidden());
        }
        let link = match var {
            Some(var) => self.named(var, false, triple.span)?,
            None => self.hidden(),
        };
        let predicates = names.map(|_| {
            let mut each: Vec<Sym> = walks.into_iter().filter_map(|(name, _)| name).collect();
            each.sort_unstable();
            each.dedup();
            each
        });
        out.push(Step::Triple(Triple { link, subject, object, name, predicates, bound: [false; 4] }));
        Ok(link)
    }

    fn term(&mut self, term: &'a Term<'a>, out: &mut Vec<Step>) -> Result<usize, KipError> {
        match term {
            Term::Var(name, span) => self.named(name, false, *span),
            Term::Concept(name, pattern) => {
                let slot = match name {
                    Some(name) => self.named(name, false, pattern.span)?,
                    None => self.hidden(),
                };
                self.concept(slot, pattern, out)?;
                Ok(slot)
            }
            Term::Proposition(name, pattern) => {
                if let PropositionPattern::Triple(triple) = pattern
                    && matches!(&triple.predicate, Predicate::Names(names) if names.iter().any(|(_, hops)| hops.is_some()))
                {
                    return Err(KipError::new(ErrorKind::Syntax, "a path is no link and cannot be the end of one")
                        .at(triple.span));
                }
                self.proposition(*name, pattern, out)
            }
        }
    }
}

/// Calls `each` for every path in an expression.
fn each_path<'e, 'a>(test: &'e Expr<'a>, each: &mut dyn FnMut(&'e AstPath<'a>)) {
    match test {
        Expr::Value(_) => {}
        Expr::Path(path) => each(path),
        Expr::Not(a) | Expr::In(a, ..) | Expr::IsNull(a, _) => each_path(a, each),
        Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(a, _, b) | Expr::Text(_, a, b, _) => {
            each_path(a, each);
            each_path(b, each);
        }
    }
}
