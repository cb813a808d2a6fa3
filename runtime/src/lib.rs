//! The daemon: settings, composition, HTTP and WebSocket API, command line (MISSION rows N3, L1, L7, L10).

pub mod api;
pub mod cli;
mod collector;
pub mod config;
mod connections;
pub mod daemon;
mod house;
pub mod models;
mod otlp;
mod privacy;
mod retention;
mod signal;
pub mod telemetry;
pub mod tokens;
mod ui;

pub use config::Config;
pub use daemon::{Daemon, Parts};
