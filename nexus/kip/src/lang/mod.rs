//! The language: `lexer → parser → ast`, placeholders bound as values, `print` back to text. No I/O
//! and nothing asynchronous happens here.

pub mod ast;
pub mod bind;
pub mod card;
pub mod error;
pub mod lark;
pub mod lexer;
pub mod parser;
pub mod print;

pub use ast::Command;
pub use bind::bind;
pub use error::{ErrorKind, KipError, Span};
pub use parser::parse;
pub use print::print;

/// The longest command, in bytes.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Clauses of one command, and operands of one chain of `&&` or `||`.
pub const CLAUSES_MAX: usize = 1000;
/// The greatest nesting of values, patterns and blocks.
pub const NESTING_MAX: usize = 48;
