//! The claims of this repository, tested through its public doors.

mod kip;
mod store;
