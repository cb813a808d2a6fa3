//! The claims of this repository, tested through its public doors.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails there and says so")]

mod archive;
mod budget;
mod canvas_gates;
mod canvas_protocol;
mod canvases;
mod checkpoints;
mod co_author;
mod commons;
mod compaction;
mod conformance;
mod crashes;
mod dialogue;
mod edge;
mod embedded;
mod goals;
mod growth;
mod guard;
mod holds;
mod invocations;
mod jobs;
mod killed;
mod kinds;
mod kip;
mod knowledge;
mod lifeforms;
mod meaning;
mod metabolism;
mod mind_maps;
mod minds;
mod neurons;
mod openai;
mod patience;
mod providers;
mod resources;
mod shelves;
mod soak;
mod store;
mod storms;
mod tidy;
mod tool_rules;
mod tools;
mod units;
mod voices;
mod weights;
