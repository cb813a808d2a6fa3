//! KIP v1.0-draft7 as text: `lexer → parser → ast`, parameters bound as values, errors a model can
//! act on. No I/O and nothing asynchronous happens here.
//!
//! This release reads `FIND`/`WHERE` with concept and proposition clauses, `FILTER`, `ORDER BY`,
//! `LIMIT`; `UPSERT`; `DELETE CONCEPT|PROPOSITIONS|ATTRIBUTES|METADATA`; `DESCRIBE`; `SEARCH`.
//! `NOT`, `OPTIONAL`, `UNION`, paths, `CURSOR` and most aggregates are refused by name.

pub mod ast;
pub mod bind;
pub mod error;
pub mod lexer;
pub mod parser;

pub use ast::Command;
pub use bind::bind;
pub use error::{ErrorKind, KipError};
pub use parser::parse;

/// The longest command, in bytes.
pub const COMMAND_BYTES_MAX: usize = 256 << 10;
/// How deep values and patterns may nest.
pub const NESTING_MAX: usize = 32;
