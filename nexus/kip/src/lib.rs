//! KIP v1.0-draft7 as a library: the language, a resident graph, and the engine between them. It needs no
//! database, no runtime and no network.
//!
//! ```
//! use kip::{Engine, Request};
//! let mut engine = Engine::born(|| 0);
//! engine.execute(&Request::new(r#"UPSERT { CONCEPT { {type: "Domain", name: "Ships"} } }"#));
//! let answer = engine.execute(&Request::new(r#"SEARCH CONCEPT "ship" LIMIT 1"#));
//! assert_eq!(answer["result"][0]["name"], "Ships");
//! ```
//!
//! `lang` parses and prints, `plan` resolves names and orders joins, and `exec` runs plans on a [`GraphRead`].

pub mod capsule;
pub mod datum;
mod engine;
pub mod exec;
pub mod graph;
pub mod lang;
pub mod plan;

pub use engine::{BATCH_MAX, CAPSULES, Call, Engine, One, Request, bind_and, envelope, read_only};
pub use exec::{Answer, Change, Dialect, Draft, Limits, Options, Shape};
pub use graph::{ElementId, Graph, GraphRead, Record, Scoped};
pub use lang::{Command, ErrorKind, KipError};
