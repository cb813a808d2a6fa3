//! The claims of this repository, tested through its public doors.

mod canvases;
mod edge;
mod kip;
mod lifeforms;
mod neurons;
mod store;
