//! The syntax tree of a command. It borrows from the text and from the parameters. Every node that can fail at run
//! time has a span; trees that differ only in spans are equal.

mod literal;

use std::borrow::Cow;

use super::error::Span;
pub use super::functions::{Aggregate, Function, TextTest};
pub use literal::{Lit, Object, Placed, bag};

/// A name or a text from the command.
pub type Text<'a> = Cow<'a, str>;

/// One command. A command is one transaction, however many UPSERT statements it holds (R27).
#[derive(Clone, Debug, PartialEq)]
pub enum Command<'a> {
    /// KQL.
    Find(Find<'a>),
    /// KML: one or more UPSERT statements.
    Upsert(Vec<Upsert<'a>>),
    /// KML, superset 9.
    Update(Update<'a>),
    /// KML, superset 10.
    Merge(Merge<'a>),
    /// KML.
    Delete(Delete<'a>),
    /// KQL, superset 11.
    Export(Export<'a>),
    /// META.
    Describe(Describe<'a>),
    /// META.
    Search(Search<'a>),
    /// `EXPLAIN FIND …`
    Explain(Find<'a>),
}

impl Command<'_> {
    /// Returns `true` for a command that can change something. The kind of the command decides (superset 15).
    ///
    /// ```
    /// use kip::lang::parse;
    /// assert!(parse(r#"DELETE CONCEPT ?s DETACH WHERE { ?s {type: "Ship"} }"#).unwrap().writes());
    /// assert!(!parse(r#"SEARCH CONCEPT "ship""#).unwrap().writes());
    /// ```
    pub fn writes(&self) -> bool {
        matches!(self, Self::Upsert(_) | Self::Update(_) | Self::Merge(_) | Self::Delete(_))
    }
}

/// `?var.field.field`
#[derive(Clone, Debug, PartialEq)]
pub struct Path<'a> {
    /// The variable, without `?`.
    pub var: &'a str,
    /// The fields after the dots.
    pub fields: Vec<Text<'a>>,
    /// The place in the text.
    pub span: Span,
}

/// One expression of FIND, or a key of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub enum Selected<'a> {
    /// A variable or a path on it.
    Path(Path<'a>),
    /// `COUNT(?x)`, `SUM(DISTINCT ?x.attributes.n)`, …
    Aggregate {
        /// The function.
        function: Aggregate,
        /// `true` if equal values count once.
        distinct: bool,
        /// The values that are counted or summed.
        path: Path<'a>,
    },
}

impl<'a> Selected<'a> {
    /// The path, inside an aggregate or not.
    pub fn path(&self) -> &Path<'a> {
        match self {
            Self::Path(path) | Self::Aggregate { path, .. } => path,
        }
    }
}

/// `FIND(…) WHERE {…} AS OF SEQ n ORDER BY … LIMIT n CURSOR "…"`
#[derive(Clone, Debug, PartialEq)]
pub struct Find<'a> {
    /// The selected expressions, in order.
    pub select: Vec<Selected<'a>>,
    /// The pattern.
    pub clauses: Vec<Clause<'a>>,
    /// The journal entry after which the query sees the graph (time travel); `None` means the current graph.
    pub as_of: Option<Placed<'a>>,
    /// Sort keys; `true` is descending.
    pub order: Vec<(Selected<'a>, bool)>,
    /// The maximum number of rows; `None` if the command has no LIMIT.
    pub limit: Option<Placed<'a>>,
    /// The token of the previous page; the answer begins after that page.
    pub cursor: Option<Placed<'a>>,
}

/// One clause of WHERE.
#[derive(Clone, Debug, PartialEq)]
pub enum Clause<'a> {
    /// `?x {…}`
    Concept(&'a str, ConceptPattern<'a>),
    /// `?l (…)` or `(…)`
    Proposition(Option<&'a str>, PropositionPattern<'a>),
    /// `FILTER(…)`
    Filter(Expr<'a>),
    /// `NOT {…}`
    Not(Vec<Clause<'a>>),
    /// `OPTIONAL {…}`
    Optional(Vec<Clause<'a>>),
    /// `UNION {…}`
    Union(Vec<Clause<'a>>),
}

/// `{id: …}`, `{type: …, name: …}`, or a part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConceptPattern<'a> {
    /// The id, if given.
    pub id: Option<Lit<'a>>,
    /// The type, if given.
    pub kind: Option<Lit<'a>>,
    /// The name, if given.
    pub name: Option<Lit<'a>>,
    /// The place in the text.
    pub span: Span,
}

/// `(id: …)` or `(subject, predicate, object)`.
#[derive(Clone, Debug, PartialEq)]
pub enum PropositionPattern<'a> {
    /// A pattern by id.
    Id(Lit<'a>, Span),
    /// A pattern by structure.
    Triple(Box<Triple<'a>>),
}

/// The structure of a proposition.
#[derive(Clone, Debug, PartialEq)]
pub struct Triple<'a> {
    /// The subject.
    pub subject: Term<'a>,
    /// The predicate.
    pub predicate: Predicate<'a>,
    /// The object.
    pub object: Term<'a>,
    /// The place in the text.
    pub span: Span,
}

/// One end of a proposition.
#[derive(Clone, Debug, PartialEq)]
pub enum Term<'a> {
    /// A variable or handle.
    Var(&'a str, Span),
    /// An inline concept, with a name for it if one was written (R18).
    Concept(Option<&'a str>, ConceptPattern<'a>),
    /// An inline proposition, with a name for it if one was written.
    Proposition(Option<&'a str>, PropositionPattern<'a>),
}

/// The number of hops of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hops {
    /// The minimum number.
    pub min: u32,
    /// The maximum number; `None` means no maximum.
    pub max: Option<u32>,
}

/// The predicate of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate<'a> {
    /// `"a"`, `"a"{1,3}`, or alternatives of them.
    Names(Vec<(Lit<'a>, Option<Hops>)>),
    /// A variable bound to the predicate's name (R5).
    Var(&'a str, Span),
}

/// A filter expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr<'a> {
    /// A literal or placeholder.
    Value(Lit<'a>),
    /// A path on a variable.
    Path(Path<'a>),
    /// `!e`
    Not(Box<Expr<'a>>),
    /// `a && b`
    And(Box<Expr<'a>>, Box<Expr<'a>>),
    /// `a || b`
    Or(Box<Expr<'a>>, Box<Expr<'a>>),
    /// `a == b` and the other comparisons.
    Compare(Box<Expr<'a>>, Comparison, Box<Expr<'a>>),
    /// `CONTAINS(a, b)` and the other text tests.
    Text(TextTest, Box<Expr<'a>>, Box<Expr<'a>>, Span),
    /// `IN(a, [v, …])`
    In(Box<Expr<'a>>, Lit<'a>, Span),
    /// `IS_NULL(a)`, or `IS_NOT_NULL(a)` when `false`.
    IsNull(Box<Expr<'a>>, bool),
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

/// `UPSERT { … } WITH METADATA { … }`
#[derive(Clone, Debug, PartialEq)]
pub struct Upsert<'a> {
    /// The blocks in order.
    pub blocks: Vec<Block<'a>>,
    /// The default for every block.
    pub metadata: Object<'a>,
}

/// The element that a block names.
#[derive(Clone, Debug, PartialEq)]
pub enum Identity<'a> {
    /// `CONCEPT`
    Concept(ConceptPattern<'a>),
    /// `PROPOSITION`
    Proposition(PropositionPattern<'a>),
}

/// A block of an UPSERT.
#[derive(Clone, Debug, PartialEq)]
pub struct Block<'a> {
    /// The handle, if one was written.
    pub handle: Option<(&'a str, Span)>,
    /// The element that is created or changed.
    pub identity: Identity<'a>,
    /// `EXPECT VERSION n` (superset 13).
    pub expect: Option<Placed<'a>>,
    /// The attributes that are set.
    pub attributes: Object<'a>,
    /// Links that start here; a PROPOSITION block has none.
    pub links: Vec<Link<'a>>,
    /// The block's own metadata.
    pub metadata: Object<'a>,
}

/// One entry of SET PROPOSITIONS.
#[derive(Clone, Debug, PartialEq)]
pub struct Link<'a> {
    /// The predicate.
    pub predicate: Lit<'a>,
    /// The object.
    pub object: Term<'a>,
    /// The metadata of the link.
    pub metadata: Object<'a>,
    /// The place in the text.
    pub span: Span,
}

/// `UPDATE ?t SET … WHERE {…} LIMIT n`
#[derive(Clone, Debug, PartialEq)]
pub struct Update<'a> {
    /// The variable whose elements change.
    pub target: (&'a str, Span),
    /// Attributes to set.
    pub attributes: Vec<(Text<'a>, Compute<'a>)>,
    /// Metadata to set.
    pub metadata: Vec<(Text<'a>, Compute<'a>)>,
    /// The pattern.
    pub clauses: Vec<Clause<'a>>,
    /// The maximum number of elements; `None` if the command has no LIMIT.
    pub limit: Option<Placed<'a>>,
}

/// A value computed from the target.
#[derive(Clone, Debug, PartialEq)]
pub enum Compute<'a> {
    /// A literal or placeholder.
    Value(Lit<'a>),
    /// A path on the target.
    Path(Path<'a>),
    /// A function of other values.
    Call(Function, Vec<Compute<'a>>),
}

/// `MERGE CONCEPT ?source INTO ?target WHERE {…}`
#[derive(Clone, Debug, PartialEq)]
pub struct Merge<'a> {
    /// The element that is merged away.
    pub source: (&'a str, Span),
    /// The element that remains.
    pub target: (&'a str, Span),
    /// The pattern.
    pub clauses: Vec<Clause<'a>>,
}

/// `DELETE … WHERE {…}`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete<'a> {
    /// The target of the deletion.
    pub what: Deleted<'a>,
    /// The variable that is deleted, or deleted from.
    pub target: (&'a str, Span),
    /// The pattern.
    pub clauses: Vec<Clause<'a>>,
}

/// The target of a DELETE.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleted<'a> {
    /// Attribute keys.
    Attributes(Vec<Text<'a>>),
    /// Metadata keys.
    Metadata(Vec<Text<'a>>),
    /// Links, and the links about them (R29).
    Propositions,
    /// Concepts with all their links.
    Concepts,
}

/// `EXPORT ?t WHERE {…} LIMIT n CURSOR "…"`
#[derive(Clone, Debug, PartialEq)]
pub struct Export<'a> {
    /// The variable whose elements are exported.
    pub target: (&'a str, Span),
    /// The pattern.
    pub clauses: Vec<Clause<'a>>,
    /// The maximum number of elements per page.
    pub limit: Option<Placed<'a>>,
    /// The token of the previous page; the answer begins after that page.
    pub cursor: Option<Placed<'a>>,
}

/// `DESCRIBE …`
#[derive(Clone, Debug, PartialEq)]
pub enum Describe<'a> {
    /// `PRIMER [BUDGET n]`
    Primer(Option<Placed<'a>>),
    /// `DOMAINS`
    Domains,
    /// `CONCEPT TYPES [LIMIT n] [CURSOR "…"]`
    ConceptTypes(Page<'a>),
    /// `CONCEPT TYPE "X"`
    ConceptType(Placed<'a>),
    /// `PROPOSITION TYPES [LIMIT n] [CURSOR "…"]`
    PropositionTypes(Page<'a>),
    /// `PROPOSITION TYPE "x"`
    PropositionType(Placed<'a>),
    /// `CONFLICTS [LIMIT n] [CURSOR "…"]`
    Conflicts(Page<'a>),
}

/// `[LIMIT n] [CURSOR "…"]`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page<'a> {
    /// The maximum number of entries per page.
    pub limit: Option<Placed<'a>>,
    /// The token of the previous page; the answer begins after that page.
    pub cursor: Option<Placed<'a>>,
}

/// `SEARCH [CONCEPT|PROPOSITION] "term" [WITH TYPE "T"] [MODE "m"] [THRESHOLD x] [LIMIT n]`
#[derive(Clone, Debug, PartialEq)]
pub struct Search<'a> {
    /// `true` if links are searched.
    pub propositions: bool,
    /// The search text.
    pub term: Placed<'a>,
    /// Only concepts of this type, or links of this predicate.
    pub kind: Option<Placed<'a>>,
    /// `keyword`, `semantic` or `hybrid`.
    pub mode: Option<Placed<'a>>,
    /// The minimum score of a hit.
    pub threshold: Option<Placed<'a>>,
    /// The maximum number of hits.
    pub limit: Option<Placed<'a>>,
}
