//! The daemon: settings, composition, HTTP and WebSocket API, and command line.

pub mod api;
pub mod cli;
mod collector;
pub mod config;
mod connections;
pub mod daemon;
mod default_toolbox;
pub mod example;
mod file_check;
pub mod local_servers;
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
