//! The command line. Commands that talk to a running daemon go through its API like everyone else.

mod capsule;
mod chat;
mod check;
mod client;
mod fascicle;
mod kip;
mod knowledge;
mod mcp;
mod models;
#[cfg(feature = "embedded")]
mod threads;
mod token;
mod up;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Config;

/// Hosts AiLifeforms: beings that live on a heartbeat and a token budget, talk on canvases and remember.
#[derive(Parser)]
#[command(name = "lifeformd", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts the daemon, with a first lifeform if there is none.
    Up {
        #[command(flatten)]
        settings: Settings,
        /// Opens a store that lost commits at the end of its log without them. What is left of them is set aside.
        #[arg(long)]
        accept_loss: bool,
    },
    /// Talks with a lifeform in the terminal.
    Chat {
        #[command(flatten)]
        settings: Settings,
        /// The lifeform; the first by default.
        #[arg(long)]
        lifeform: Option<String>,
        /// The topic, by title; a new one by default.
        #[arg(long)]
        topic: Option<String>,
    },
    /// Runs KIP on a lifeform's nexus: a command, a file, or a shell.
    Kip {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        kip: kip::Kip,
    },
    /// Takes knowledge in from a file, or out into one.
    Capsule {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: capsule::Capsule,
    },
    /// Takes records out into files, or in from them.
    Knowledge {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: knowledge::Knowledge,
    },
    /// Checks and draws fascicles that stand in files.
    Fascicle {
        #[command(subcommand)]
        command: fascicle::Fascicle,
    },
    /// Tests configuration, store, model and port, and says how to mend what is wrong.
    Check {
        #[command(flatten)]
        settings: Settings,
        /// Reads everything in the store and says what of it is whole. The daemon must not run.
        #[arg(long)]
        deep: bool,
    },
    /// Manages model weights.
    Models {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: models::Models,
    },
    /// Speaks MCP over standard input and output, for clients that start their servers: the daemon's memory and
    /// canvases.
    Mcp(Settings),
    /// Adds a key to the ring, and seals every secret again with it.
    RotateKeys(Settings),
    /// Manages who may come in.
    Token {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: token::Token,
    },
}

/// Settings every command takes; see config/lifeformd.toml for all of them.
#[derive(Args, Clone)]
struct Settings {
    /// A configuration file.
    #[arg(long, env = "LIFEFORMD_CONFIG", global = true)]
    config: Option<PathBuf>,
    /// The folder everything is kept in.
    #[arg(long, global = true)]
    data: Option<PathBuf>,
    /// The address of the API: to serve it, or to reach a running daemon.
    #[arg(long, global = true)]
    listen: Option<SocketAddr>,
    /// Never use the network to fetch weights.
    #[arg(long, global = true)]
    offline: bool,
}

impl Settings {
    fn load(&self) -> anyhow::Result<Config> {
        let mut flags: Vec<(&str, String)> = Vec::new();
        flags.extend(self.data.iter().map(|data| ("data", data.display().to_string())));
        flags.extend(self.listen.iter().map(|listen| ("listen", listen.to_string())));
        flags.extend(self.offline.then(|| ("offline", "true".to_owned())));
        Config::load(self.config.as_deref(), &flags)
    }
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Each command may write into the data folder.
    crate::privacy::create_private();
    #[cfg(feature = "embedded")]
    if matches!(cli.command, Command::Up { .. }) {
        threads::name_them();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say_error(&format!("no threads: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(run(cli.command));
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            say_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { settings, accept_loss } => Box::pin(up::run(Config { accept_loss, ..settings.load()? })).await,
        Command::Chat { settings, lifeform, topic } => chat::run(settings.load()?, lifeform, topic).await,
        Command::Kip { settings, kip } => kip::run(&settings, kip).await,
        Command::Knowledge { settings, command } => knowledge::run(settings.load()?, command).await,
        Command::Capsule { settings, command } => capsule::run(settings.load()?, command).await,
        Command::Fascicle { command } => fascicle::run(command).map(|()| ExitCode::SUCCESS),
        Command::Check { settings, deep } => Box::pin(check::run(settings.load(), deep)).await,
        Command::Models { settings, command } => models::run(settings.load()?, command).await,
        Command::Mcp(settings) => mcp::run(settings.load()?).await,
        Command::RotateKeys(settings) => {
            let client = client::Client::new(&settings.load()?)?;
            let done = client.ask(reqwest::Method::POST, "/v1/keys/rotate", None).await?;
            say(&format!("{} bodies are sealed under {} now", done["sealed"], done["key"]));
            Ok(ExitCode::SUCCESS)
        }
        Command::Token { settings, command } => token::run(settings.load()?, command).await,
    }
}

/// A line for the person at the terminal.
fn say(line: &str) {
    use std::io::Write;
    // Whoever reads may have heard enough, as in `| head`.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A piece of a line, shown at once.
#[expect(clippy::print_stdout, reason = "the terminal is where the command line speaks")]
fn say_piece(piece: &str) {
    use std::io::Write;
    print!("{piece}");
    let _ = std::io::stdout().flush();
}

/// Prints an error for the person at the terminal.
fn say_error(line: &str) {
    use std::io::Write;
    // A terminal that is gone, or a full disk, is no reason to stop.
    let _ = writeln!(std::io::stderr(), "lifeformd: {line}");
}
