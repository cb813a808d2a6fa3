//! The claims of this repository, tested through its public doors.

mod canvases;
mod edge;
mod embedded;
mod killed;
mod kip;
mod lifeforms;
mod neurons;
mod store;
mod tidy;
