//! The language: `lexer → parser → ast`, placeholders bound as values, and `print` back to text. This module is
//! synchronous and does no I/O.

pub mod ast;
pub mod bind;
pub mod card;
pub mod error;
pub mod functions;
pub mod lark;
pub mod lexer;
pub mod parser;
pub mod print;

pub use ast::Command;
pub use bind::bind;
pub use error::{ErrorKind, KipError, Span};
pub use parser::parse;
pub use print::print;

/// The maximum size of a command in bytes.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// The maximum number of clauses in a command, and of operands in a chain of `&&` or `||`.
pub const CLAUSES_MAX: usize = 1000;
/// The maximum nesting depth of values, patterns and blocks.
pub const NESTING_MAX: usize = 48;
