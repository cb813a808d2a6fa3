//! The tree of a command. Every node that can be wrong at run time has a span.

use std::sync::Arc;

use serde_json::Value;

use super::error::Span;

/// A value as written: JSON, or a placeholder that [`bind`](super::bind()) replaces.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// A literal.
    Json(Value),
    /// `$name` or `:name`.
    Param(Arc<str>, Span),
    /// An object; keys may be bare.
    Object(Vec<(Arc<str>, Val)>),
    /// An array.
    Array(Vec<Val>),
}

/// One command. A command is one transaction, however many UPSERT blocks it holds (R27).
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// KQL.
    Find(Find),
    /// KML: one or more UPSERT statements.
    Upsert(Vec<Upsert>),
    /// KML.
    Delete(Delete),
    /// META.
    Describe(Describe),
    /// META.
    Search(Search),
}

impl Command {
    /// Whether the command can change anything; decided by what it is.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Upsert(_) | Self::Delete(_))
    }
}

/// `?var.field.field`
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The variable, without `?`.
    pub var: Arc<str>,
    /// What follows the dots.
    pub fields: Vec<Arc<str>>,
    /// Where it stands.
    pub span: Span,
}

/// One expression of FIND.
#[derive(Clone, Debug, PartialEq)]
pub enum Selected {
    /// A variable or a path on it.
    Path(Path),
    /// `COUNT(?x)` or `COUNT(DISTINCT ?x)`.
    Count {
        /// Whether equal values count once.
        distinct: bool,
        /// What is counted.
        path: Path,
    },
}

/// `FIND(…) WHERE {…} ORDER BY … LIMIT n`
#[derive(Clone, Debug, PartialEq)]
pub struct Find {
    /// What is answered, in order.
    pub select: Vec<Selected>,
    /// The pattern.
    pub clauses: Vec<Clause>,
    /// Sort keys; `true` is descending.
    pub order: Vec<(Path, bool)>,
    /// At most so many rows.
    pub limit: Option<(Val, Span)>,
}

/// One clause of WHERE.
#[derive(Clone, Debug, PartialEq)]
pub enum Clause {
    /// `?x {…}`
    Concept(Arc<str>, ConceptPattern),
    /// `?l (…)` or `(…)`
    Proposition(Option<Arc<str>>, PropositionPattern),
    /// `FILTER(…)`
    Filter(Expr),
}

/// `{id: …}`, `{type: …, name: …}`, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConceptPattern {
    /// The id, if given.
    pub id: Option<Val>,
    /// The type, if given.
    pub kind: Option<Val>,
    /// The name, if given.
    pub name: Option<Val>,
    /// Where it stands.
    pub span: Span,
}

/// `(id: …)` or `(subject, predicate, object)`.
#[derive(Clone, Debug, PartialEq)]
pub enum PropositionPattern {
    /// By id.
    Id(Val, Span),
    /// By structure.
    Triple(Box<Triple>),
}

/// The structure of a proposition.
#[derive(Clone, Debug, PartialEq)]
pub struct Triple {
    /// What it is about.
    pub subject: Term,
    /// What it says.
    pub predicate: Predicate,
    /// What it points to.
    pub object: Term,
    /// Where it stands.
    pub span: Span,
}

/// One end of a proposition.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A variable or handle.
    Var(Arc<str>, Span),
    /// An inline concept, with a name for it if one was written (R18).
    Concept(Option<Arc<str>>, ConceptPattern),
    /// An inline proposition.
    Proposition(PropositionPattern),
}

/// The predicate of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// `"a"` or `"a" | "b"`
    Names(Vec<Val>),
    /// A variable bound to the predicate's name (R5).
    Var(Arc<str>),
}

/// A filter expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A literal or placeholder.
    Value(Val),
    /// A path on a variable.
    Path(Path),
    /// `!e`
    Not(Box<Expr>),
    /// `a && b`
    And(Box<Expr>, Box<Expr>),
    /// `a || b`
    Or(Box<Expr>, Box<Expr>),
    /// `a == b` and its kin.
    Compare(Box<Expr>, Comparison, Box<Expr>),
    /// `CONTAINS(a, b)` and its kin.
    Text(TextTest, Box<Expr>, Box<Expr>, Span),
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// A test on text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextTest {
    /// `CONTAINS`
    Contains,
    /// `STARTS_WITH`
    StartsWith,
    /// `ENDS_WITH`
    EndsWith,
    /// `REGEX`
    Regex,
}

/// A metadata object as written after `WITH METADATA`.
pub type Object = Vec<(Arc<str>, Val)>;

/// `UPSERT { … } WITH METADATA { … }`
#[derive(Clone, Debug, PartialEq)]
pub struct Upsert {
    /// The blocks in order.
    pub blocks: Vec<Block>,
    /// The default for every block.
    pub metadata: Object,
}

/// A block of an UPSERT.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// `CONCEPT ?h { {…} SET … }`
    Concept {
        /// The handle, if one was written.
        handle: Option<(Arc<str>, Span)>,
        /// The identity.
        pattern: ConceptPattern,
        /// What is set.
        attributes: Object,
        /// Links that start here.
        links: Vec<Link>,
        /// The block's own metadata.
        metadata: Object,
    },
    /// `PROPOSITION ?h { (…) SET … }`
    Proposition {
        /// The handle, if one was written.
        handle: Option<(Arc<str>, Span)>,
        /// The identity.
        pattern: PropositionPattern,
        /// What is set.
        attributes: Object,
        /// The block's own metadata.
        metadata: Object,
    },
}

/// One entry of SET PROPOSITIONS.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The predicate.
    pub predicate: Val,
    /// Where it points.
    pub object: Term,
    /// Its own metadata.
    pub metadata: Object,
    /// Where it stands.
    pub span: Span,
}

/// `DELETE … WHERE {…}`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// What goes.
    pub what: Deleted,
    /// The variable that is deleted, or deleted from.
    pub target: Arc<str>,
    /// Where the variable stands.
    pub span: Span,
    /// The pattern.
    pub clauses: Vec<Clause>,
}

/// What a DELETE removes.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleted {
    /// Attribute keys.
    Attributes(Vec<Arc<str>>),
    /// Metadata keys.
    Metadata(Vec<Arc<str>>),
    /// Links, and the links about them (R29).
    Propositions,
    /// Concepts with all their links.
    Concepts,
}

/// `DESCRIBE …`
#[derive(Clone, Debug, PartialEq)]
pub enum Describe {
    /// `PRIMER`
    Primer,
    /// `DOMAINS`
    Domains,
    /// `CONCEPT TYPES [LIMIT n]`
    ConceptTypes(Option<(Val, Span)>),
    /// `CONCEPT TYPE "X"`
    ConceptType(Val),
    /// `PROPOSITION TYPES [LIMIT n]`
    PropositionTypes(Option<(Val, Span)>),
    /// `PROPOSITION TYPE "x"`
    PropositionType(Val),
}

/// `SEARCH CONCEPT "term" [WITH TYPE "T"] [LIMIT n]`
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The words.
    pub term: Val,
    /// Only concepts of this type.
    pub kind: Option<Val>,
    /// At most so many hits.
    pub limit: Option<(Val, Span)>,
}
