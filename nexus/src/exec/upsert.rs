//! UPSERT: blocks in order, each matched or created, links added, metadata merged (R6, R7, R15, R16).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::draft::{Draft, check_defined, check_metadata};
use crate::graph::{Concept, Element, GraphRead, Link as GraphLink, No, Properties};
use crate::kip::ast::{Block, ConceptPattern, Link, Object, Predicate, PropositionPattern, Term, Triple, Upsert, Val};
use crate::kip::error::Span;
use crate::kip::{ErrorKind, KipError};

/// Runs a bound UPSERT command on a draft and answers its receipt (RESOLUTIONS §1.4).
///
/// # Errors
/// Any [`KipError`]; the draft is then worthless and nothing was written.
pub fn upsert(statements: &[Upsert], draft: &mut Draft) -> Result<Value, KipError> {
    let (mut concepts, mut links) = (Vec::new(), Vec::new());
    for statement in statements {
        let mut run = Run { draft: &mut *draft, handles: BTreeMap::new() };
        for block in &statement.blocks {
            match block {
                Block::Concept { handle, pattern, attributes, links, metadata } => {
                    let metadata = merged(&statement.metadata, metadata)?;
                    let no = run.concept(pattern, attributes, &metadata)?;
                    for link in links {
                        run.link(no, link, &metadata)?;
                    }
                    run.define(handle.as_ref(), no)?;
                    concepts.push(json!(format!("C:{no}")));
                }
                Block::Proposition { handle, pattern, attributes, metadata } => {
                    let metadata = merged(&statement.metadata, metadata)?;
                    let no = run.proposition(pattern, attributes, &metadata)?;
                    run.define(handle.as_ref(), no)?;
                    links.push(json!(format!("P:{no}")));
                }
            }
        }
    }
    Ok(json!({"blocks": statements.len(), "upsert_concept_nodes": concepts, "upsert_proposition_links": links}))
}

/// Metadata merged key by key, the nearer wins.
fn merged(outer: &Object, inner: &Object) -> Result<Map<String, Value>, KipError> {
    let mut merged = plain(outer);
    merged.extend(plain(inner));
    check_metadata(&merged)?;
    Ok(merged)
}

fn plain(object: &Object) -> Map<String, Value> {
    object.iter().map(|(key, value)| (key.to_string(), value.json().clone())).collect()
}

struct Run<'a> {
    draft: &'a mut Draft,
    handles: BTreeMap<Arc<str>, No>,
}

impl Run<'_> {
    fn define(&mut self, handle: Option<&(Arc<str>, Span)>, no: No) -> Result<(), KipError> {
        let Some((name, span)) = handle else { return Ok(()) };
        match self.handles.insert(name.clone(), no) {
            None => Ok(()),
            Some(_) => Err(KipError::new(ErrorKind::Reference, format!("handle ?{name} is defined twice")).at(*span)),
        }
    }

    fn concept(
        &mut self,
        pattern: &ConceptPattern,
        attributes: &Object,
        metadata: &Map<String, Value>,
    ) -> Result<No, KipError> {
        let attributes = plain(attributes);
        if let Some(id) = &pattern.id {
            let no = self.by_id(id, 'C', pattern.span)?;
            return self.set(no, attributes, metadata).map(|()| no);
        }
        let (Some(kind), Some(name)) = (&pattern.kind, &pattern.name) else {
            return Err(
                KipError::new(ErrorKind::Syntax, "a concept is written by {type, name} or by {id}").at(pattern.span)
            );
        };
        let (kind, name) = (text(kind, "a type", pattern.span)?, text(name, "a name", pattern.span)?);
        check_defined(&self.draft.graph, "$ConceptType", &kind).map_err(|error| error.at(pattern.span))?;
        match self.draft.graph.concept(&kind, &name) {
            Some(no) => self.set(no, attributes, metadata).map(|()| no),
            None => Ok(self.draft.insert(Element::Concept(Concept {
                kind,
                name,
                properties: Properties { attributes, metadata: metadata.clone() },
            }))),
        }
    }

    fn set(&mut self, no: No, attributes: Map<String, Value>, metadata: &Map<String, Value>) -> Result<(), KipError> {
        self.draft.check_writable(no, attributes.keys().map(String::as_str))?;
        self.draft.change(no, |element| {
            let properties = element.properties_mut();
            properties.attributes.extend(attributes);
            properties.metadata.extend(metadata.clone());
        });
        Ok(())
    }

    /// One entry of SET PROPOSITIONS; a target that does not exist is passed over with a warning.
    fn link(&mut self, subject: No, link: &Link, block: &Map<String, Value>) -> Result<(), KipError> {
        let predicate = text(&link.predicate, "a predicate", link.span)?;
        check_defined(&self.draft.graph, "$PropositionType", &predicate).map_err(|error| error.at(link.span))?;
        let mut metadata = block.clone();
        metadata.extend(plain(&link.metadata));
        check_metadata(&metadata)?;
        match self.find_term(&link.object)? {
            Some(object) => {
                self.put_link(subject, predicate, object, Map::new(), &metadata)?;
            }
            None => self
                .draft
                .warnings
                .push(format!("the target of \"{predicate}\" does not exist, so that link was passed over")),
        }
        Ok(())
    }

    fn proposition(
        &mut self,
        pattern: &PropositionPattern,
        attributes: &Object,
        metadata: &Map<String, Value>,
    ) -> Result<No, KipError> {
        match pattern {
            PropositionPattern::Id(id, span) => {
                let no = self.by_id(id, 'P', *span)?;
                self.set(no, plain(attributes), metadata).map(|()| no)
            }
            PropositionPattern::Triple(triple) => {
                let predicate = literal(triple)?;
                check_defined(&self.draft.graph, "$PropositionType", &predicate)
                    .map_err(|error| error.at(triple.span))?;
                let missing = || {
                    KipError::new(ErrorKind::NotFound, "an end of this proposition does not exist")
                        .at(triple.span)
                        .hint("create the concept in an earlier CONCEPT block")
                };
                let subject = self.find_term(&triple.subject)?.ok_or_else(missing)?;
                let object = self.find_term(&triple.object)?.ok_or_else(missing)?;
                self.put_link(subject, predicate, object, plain(attributes), metadata)
            }
        }
    }

    fn put_link(
        &mut self,
        subject: No,
        predicate: Arc<str>,
        object: No,
        attributes: Map<String, Value>,
        metadata: &Map<String, Value>,
    ) -> Result<No, KipError> {
        let wanted = crate::graph::Pattern {
            subject: Some(subject),
            predicates: std::slice::from_ref(&predicate),
            object: Some(object),
        };
        match self.draft.graph.links(&wanted).first().copied() {
            Some(no) => self.set(no, attributes, metadata).map(|()| no),
            None => Ok(self.draft.insert(Element::Link(GraphLink {
                subject,
                predicate,
                object,
                properties: Properties { attributes, metadata: metadata.clone() },
            }))),
        }
    }

    /// What a term names, or `None` when it names nothing that exists.
    fn find_term(&self, term: &Term) -> Result<Option<No>, KipError> {
        match term {
            Term::Var(name, span) => match self.handles.get(name) {
                Some(no) => Ok(Some(*no)),
                None => Err(KipError::new(ErrorKind::Reference, format!("handle ?{name} is used before its block"))
                    .at(*span)
                    .hint("blocks run in order: move the block that defines it up")),
            },
            Term::Concept(_, pattern) => {
                match (&pattern.id, &pattern.kind, &pattern.name) {
                    (Some(id), ..) => Ok(id.json().as_str().and_then(|id| self.draft.graph.by_id(id))),
                    (None, Some(kind), Some(name)) => Ok(self
                        .draft
                        .graph
                        .concept(&text(kind, "a type", pattern.span)?, &text(name, "a name", pattern.span)?)),
                    _ => Err(KipError::new(ErrorKind::Syntax, "a target is named by {type, name} or by {id}")
                        .at(pattern.span)),
                }
            }
            Term::Proposition(PropositionPattern::Id(id, _)) => {
                Ok(id.json().as_str().and_then(|id| self.draft.graph.by_id(id)))
            }
            Term::Proposition(PropositionPattern::Triple(triple)) => {
                let predicate = literal(triple)?;
                let (Some(subject), Some(object)) = (self.find_term(&triple.subject)?, self.find_term(&triple.object)?)
                else {
                    return Ok(None);
                };
                let wanted = crate::graph::Pattern {
                    subject: Some(subject),
                    predicates: std::slice::from_ref(&predicate),
                    object: Some(object),
                };
                Ok(self.draft.graph.links(&wanted).first().copied())
            }
        }
    }

    fn by_id(&self, id: &Val, letter: char, span: Span) -> Result<No, KipError> {
        let id = text(id, "an id", span)?;
        if !id.starts_with(letter) || crate::graph::number(&id).is_none() {
            return Err(
                KipError::new(ErrorKind::Syntax, format!("\"{id}\" is no id; ids look like {letter}:7")).at(span)
            );
        }
        self.draft
            .graph
            .by_id(&id)
            .ok_or_else(|| KipError::new(ErrorKind::NotFound, format!("nothing has the id {id}")).at(span))
    }
}

fn text(value: &Val, what: &str, span: Span) -> Result<Arc<str>, KipError> {
    value.json().as_str().map(Arc::from).ok_or_else(|| {
        KipError::new(ErrorKind::Parameter, format!("{what} is a string, not {}", value.json())).at(span)
    })
}

fn literal(triple: &Triple) -> Result<Arc<str>, KipError> {
    match &triple.predicate {
        Predicate::Names(names) if names.len() == 1 => text(&names[0], "a predicate", triple.span),
        _ => Err(KipError::new(ErrorKind::Syntax, "a fact has one predicate, written out").at(triple.span)),
    }
}
