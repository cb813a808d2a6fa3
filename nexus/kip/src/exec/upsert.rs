//! UPSERT: blocks in order, each matched or created, links added, metadata merged (R6, R7, R15, R16).

use std::collections::HashMap;

use serde_json::{Value, json};

use super::draft::{CONCEPT_TYPE, Draft, PROPOSITION_TYPE, check_metadata};
use super::{Dialect, Options, text_of};
use crate::datum::{Datum, Properties, Sym};
use crate::graph::{ElementId, Ids};
use crate::lang::ast::{
    Block, ConceptPattern, Identity, Link, Lit, Object, Placed, Predicate, PropositionPattern, Term, Triple, Upsert,
    bag,
};
use crate::lang::{ErrorKind, KipError, Span};

/// The reserved ids of the principals `$self` and `$system` in the capsules of the draft (R28).
pub(super) const RESERVED: [&str; 2] = ["$self_reserved_principal_id", "$system_reserved_principal_id"];

/// Runs a bound UPSERT command on a draft and returns its receipt (RESOLUTIONS §1.4).
///
/// # Errors
/// Any [`KipError`]; the caller must then undo the draft.
pub(super) fn upsert(
    statements: &[Upsert<'_>],
    draft: &mut Draft<'_>,
    options: &Options<'_>,
) -> Result<Value, KipError> {
    let (mut concepts, mut links): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut known = HashMap::new();
    for statement in statements {
        let default = metadata(&statement.metadata)?;
        let mut run = Run { draft: &mut *draft, handles: HashMap::new(), known: &mut known, dialect: options.dialect };
        for block in &statement.blocks {
            let metadata = merged(&default, &block.metadata)?;
            let attributes = bag(&block.attributes);
            let el = match &block.identity {
                Identity::Concept(pattern) => {
                    let el = run.concept(pattern, block, attributes, &metadata)?;
                    for link in &block.links {
                        run.link(el, link, &metadata)?;
                    }
                    concepts.push(run.draft.graph.ids().show(el).into());
                    el
                }
                Identity::Proposition(pattern) => {
                    let el = run.proposition(pattern, block, attributes, &metadata)?;
                    links.push(run.draft.graph.ids().show(el).into());
                    el
                }
            };
            if let Some((name, span)) = block.handle
                && run.handles.insert(name, el).is_some()
            {
                return Err(KipError::new(ErrorKind::Reference, format!("handle ?{name} is defined twice")).at(span));
            }
        }
    }
    Ok(json!({"blocks": statements.len(), "upsert_concept_nodes": concepts, "upsert_proposition_links": links}))
}

fn metadata(object: &Object<'_>) -> Result<Properties, KipError> {
    check_metadata(object.iter().map(|(key, _)| &**key))?;
    Ok(bag(object))
}

/// Merges metadata key by key; `inner` takes precedence.
fn merged(outer: &Properties, inner: &Object<'_>) -> Result<Properties, KipError> {
    if inner.is_empty() { Ok(outer.clone()) } else { Ok(outer.merged(&metadata(inner)?)) }
}

struct Run<'r, 'g, 'a> {
    draft: &'r mut Draft<'g>,
    handles: HashMap<&'a str, ElementId>,
    /// Types and predicates that are known to be defined.
    known: &'r mut HashMap<(&'static str, String), Sym>,
    dialect: Dialect,
}

impl<'a> Run<'_, '_, 'a> {
    fn defined(&mut self, meta: &'static str, name: &str, span: Span) -> Result<Sym, KipError> {
        // Names of the schema are short, so copying one is cheaper than a second lookup in the graph.
        if let Some(known) = self.known.get(&(meta, name.to_owned())) {
            return Ok(*known);
        }
        let found = self.draft.check_defined(meta, name).map_err(|error| error.at(span))?;
        self.known.insert((meta, name.to_owned()), found);
        Ok(found)
    }

    fn concept(
        &mut self,
        pattern: &ConceptPattern<'_>,
        block: &Block<'_>,
        attributes: Properties,
        metadata: &Properties,
    ) -> Result<ElementId, KipError> {
        let span = pattern.span;
        if let Some(id) = &pattern.id {
            let el = self.by_id(id, false, span)?;
            let fits =
                |wanted: &Option<Lit<'_>>, own: &str| wanted.as_ref().is_none_or(|lit| lit.as_str() == Some(own));
            let agrees = self
                .draft
                .graph
                .key(el)
                .is_some_and(|(kind, name)| fits(&pattern.kind, kind.as_str()) && fits(&pattern.name, &name));
            if !agrees {
                let what = format!("{} has another type or name", self.draft.graph.ids().show(el));
                return Err(KipError::new(ErrorKind::NotFound, what).at(span));
            }
            self.expect(block.expect.as_ref(), Some(el))?;
            return self.set(el, &attributes, metadata, span);
        }
        let (Some(kind), Some(name)) = (&pattern.kind, &pattern.name) else {
            return Err(KipError::new(ErrorKind::Syntax, "a concept is written by {type, name} or by {id}").at(span));
        };
        let (kind, name) = (text_of(kind, "a type", span)?, text_of(name, "a name", span)?);
        let kind = self.defined(CONCEPT_TYPE, kind, span)?;
        let found = self.draft.graph.concept(kind, name);
        self.expect(block.expect.as_ref(), found)?;
        match found {
            Some(el) => self.set(el, &attributes, metadata, span),
            None => {
                self.check_name(kind, name, span)?;
                Ok(self.draft.insert_concept(kind, name, attributes, metadata.clone()))
            }
        }
    }

    /// Checks the name of a type or predicate: it must be an identifier, and names with `$` belong to the engine
    /// (§2.8.1).
    fn check_name(&self, kind: Sym, name: &str, span: Span) -> Result<(), KipError> {
        if ![CONCEPT_TYPE, PROPOSITION_TYPE].contains(&kind.as_str()) || self.draft.privileged {
            return Ok(());
        }
        let identifier = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
            && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
        if identifier {
            return Ok(());
        }
        Err(KipError::new(ErrorKind::Syntax, format!("\"{name}\" cannot name a type or predicate"))
            .code("KIP_1002")
            .at(span)
            .hint(
                "a name begins with a letter or '_' and goes on with letters, digits and '_'; '$' is the engine's own",
            ))
    }

    /// Checks EXPECT VERSION; 0 means that the element must not exist (superset 13).
    fn expect(&self, expect: Option<&Placed<'_>>, found: Option<ElementId>) -> Result<(), KipError> {
        let Some((lit, span)) = expect else { return Ok(()) };
        let Lit::Int(wanted) = lit else {
            return Err(KipError::new(
                ErrorKind::Parameter,
                format!("a version is a whole number, not {}", lit.to_json()),
            )
            .at(*span));
        };
        let mut version = 0;
        if let Some(el) = found {
            self.draft.graph.look(el, &mut |look| version = look.stamp().version());
        }
        if *wanted == version as i64 {
            return Ok(());
        }
        Err(KipError::new(ErrorKind::Execution, format!("it is at version {version}, not {wanted}"))
            .code("KIP_3005")
            .at(*span)
            .hint("read it again, look at what changed, and name the version it has now"))
    }

    /// Sets attributes and metadata; see [`Draft::set`].
    fn set(
        &mut self,
        el: ElementId,
        attributes: &Properties,
        metadata: &Properties,
        span: Span,
    ) -> Result<ElementId, KipError> {
        let known = self.draft.graph.record(el).map(|now| now.look().attributes().clone()).unwrap_or_default();
        // The existing id remains: the draft's own capsules name the principal by a placeholder (R28).
        let is_placeholder =
            |value: &Datum| value.as_str().is_some_and(|text| RESERVED.contains(&text)) && known.named("id").is_some();
        let reserved = attributes.named("id").is_some_and(is_placeholder);
        let attributes = if reserved { &attributes.without(&["id"]) } else { attributes };
        // Setting the present value is no change, so it is allowed even for protected attributes.
        let changed = attributes.pairs().iter().filter(|(key, value)| known.get(*key) != Some(value));
        self.draft.check_writable(el, changed.map(|(key, _)| key.as_str())).map_err(|error| error.at(span))?;
        Ok(self.draft.set(el, attributes, metadata))
    }

    /// Writes one entry of SET PROPOSITIONS. In draft7, a missing target is skipped with a warning.
    fn link(&mut self, subject: ElementId, link: &Link<'a>, block: &Properties) -> Result<(), KipError> {
        let predicate =
            self.defined(PROPOSITION_TYPE, text_of(&link.predicate, "a predicate", link.span)?, link.span)?;
        let metadata = merged(block, &link.metadata)?;
        match self.find_term(&link.object)? {
            Some(object) => {
                self.put_link(subject, predicate, object, &Properties::default(), &metadata, link.span)?;
            }
            None if self.dialect == Dialect::Rc11 => {
                return Err(KipError::new(
                    ErrorKind::NotFound,
                    format!("the target of \"{}\" does not exist", predicate.as_str()),
                )
                .at(link.span));
            }
            None => self.draft.warnings.push(passed_over(self.draft.graph.key(subject), predicate, &link.object)),
        }
        Ok(())
    }

    fn proposition(
        &mut self,
        pattern: &PropositionPattern<'a>,
        block: &Block<'a>,
        attributes: Properties,
        metadata: &Properties,
    ) -> Result<ElementId, KipError> {
        match pattern {
            PropositionPattern::Id(id, span) => {
                let el = self.by_id(id, true, *span)?;
                self.expect(block.expect.as_ref(), Some(el))?;
                self.set(el, &attributes, metadata, *span)
            }
            PropositionPattern::Triple(triple) => {
                let predicate = self.defined(PROPOSITION_TYPE, literal(triple)?, triple.span)?;
                let missing = || {
                    KipError::new(ErrorKind::NotFound, "an end of this proposition does not exist")
                        .at(triple.span)
                        .hint("create it in an earlier block")
                };
                let subject = self.find_term(&triple.subject)?.ok_or_else(missing)?;
                let object = self.find_term(&triple.object)?.ok_or_else(missing)?;
                self.expect(block.expect.as_ref(), self.draft.graph.link(subject, predicate, object))?;
                self.put_link(subject, predicate, object, &attributes, metadata, triple.span)
            }
        }
    }

    fn put_link(
        &mut self,
        subject: ElementId,
        predicate: Sym,
        object: ElementId,
        attributes: &Properties,
        metadata: &Properties,
        span: Span,
    ) -> Result<ElementId, KipError> {
        match self.draft.graph.link(subject, predicate, object) {
            Some(el) => self.set(el, attributes, metadata, span),
            None => Ok(self.draft.insert_link(subject, predicate, object, attributes.clone(), metadata.clone())),
        }
    }

    /// Returns the element that a term names, or `None` if it does not exist.
    fn find_term(&self, term: &Term<'a>) -> Result<Option<ElementId>, KipError> {
        let ids = self.draft.graph.ids();
        let by_id = |id: &Lit<'_>| id.as_str().and_then(|id| ids.parse(id)).filter(|el| self.draft.graph.has(*el));
        match term {
            Term::Var(name, span) => match self.handles.get(name) {
                Some(el) => Ok(Some(*el)),
                None => Err(KipError::new(ErrorKind::Reference, format!("handle ?{name} is used before its block"))
                    .at(*span)
                    .hint("blocks run in order: move the block that defines it up")),
            },
            Term::Concept(_, pattern) => match (&pattern.id, &pattern.kind, &pattern.name) {
                (Some(id), ..) => Ok(by_id(id).filter(|el| !el.is_link())),
                (None, Some(kind), Some(name)) => {
                    let (kind, name) = (text_of(kind, "a type", pattern.span)?, text_of(name, "a name", pattern.span)?);
                    Ok(Sym::known(kind).and_then(|kind| self.draft.graph.concept(kind, name)))
                }
                _ => {
                    Err(KipError::new(ErrorKind::Syntax, "a target is named by {type, name} or by {id}")
                        .at(pattern.span))
                }
            },
            Term::Proposition(_, PropositionPattern::Id(id, _)) => Ok(by_id(id).filter(|el| el.is_link())),
            Term::Proposition(_, PropositionPattern::Triple(triple)) => {
                let predicate = Sym::known(literal(triple)?);
                let (Some(subject), Some(predicate), Some(object)) =
                    (self.find_term(&triple.subject)?, predicate, self.find_term(&triple.object)?)
                else {
                    return Ok(None);
                };
                Ok(self.draft.graph.link(subject, predicate, object))
            }
        }
    }

    fn by_id(&self, id: &Lit<'_>, link: bool, span: Span) -> Result<ElementId, KipError> {
        let id = text_of(id, "an id", span)?;
        let (kind, of) = if link { ("P:", "link") } else { ("C:", "concept") };
        if !Ids::is_id(id) || !id.strip_prefix("commons/").unwrap_or(id).starts_with(kind) {
            let what = format!("\"{id}\" is no id of a {of}; they begin with {kind}");
            return Err(KipError::new(ErrorKind::Syntax, what).at(span).hint("an id stands in the answer of a query"));
        }
        let found = self.draft.graph.ids().parse(id).filter(|el| el.is_link() == link && self.draft.graph.has(*el));
        found.ok_or_else(|| KipError::new(ErrorKind::NotFound, format!("nothing has the id {id}")).at(span))
    }
}

/// Returns a warning that names a skipped link.
fn passed_over(subject: Option<(Sym, arcstr::ArcStr)>, predicate: Sym, object: &Term<'_>) -> String {
    let from = subject.map_or_else(String::new, |(_, name)| format!(" of \"{name}\""));
    let to = match object {
        Term::Concept(_, pattern) => {
            let named = pattern.name.as_ref().or(pattern.id.as_ref()).map(Lit::to_json).unwrap_or_default();
            format!("{named}, its target,")
        }
        _ => "its target".to_owned(),
    };
    format!("the link \"{}\"{from} was passed over: {to} does not exist", predicate.as_str())
}

fn literal<'t>(triple: &'t Triple<'_>) -> Result<&'t str, KipError> {
    match &triple.predicate {
        Predicate::Names(names) if names.len() == 1 && names[0].1.is_none() => {
            text_of(&names[0].0, "a predicate", triple.span)
        }
        _ => Err(KipError::new(ErrorKind::Syntax, "a fact has one predicate, written out").at(triple.span)),
    }
}
