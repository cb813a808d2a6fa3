//! The command line. Commands for a running daemon use its public API.

mod approvals;
mod capsule;
mod chat;
mod check;
mod client;
mod example;
mod fascicle;
mod kip;
mod knowledge;
mod mcp;
mod models;
#[cfg(feature = "embedded")]
mod threads;
mod token;
mod tools;
mod up;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Config;

/// Hosts AiLifeforms: persistent actors that live on a heartbeat and a token budget, chat on canvases and remember.
#[derive(Parser)]
#[command(name = "lifeformd", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts the daemon, and a first lifeform if there is none.
    Up {
        #[command(flatten)]
        settings: Settings,
        /// Opens a store that lost commits at the end of its log. The rest of them is set aside.
        #[arg(long)]
        accept_loss: bool,
        /// Says that the data is a copy of an earlier moment: whether calls outside were made since is looked up, or asked.
        #[arg(long)]
        restored: bool,
        /// Serves the example world beside it, and defines its tools.
        #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7719")]
        with_example: Option<SocketAddr>,
    },
    /// Chats with a lifeform in the terminal.
    Chat {
        #[command(flatten)]
        settings: Settings,
        /// The lifeform (default: the first).
        #[arg(long)]
        lifeform: Option<String>,
        /// The title of the topic (default: a new topic).
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
    /// Imports knowledge from a file, or exports it to one.
    Capsule {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: capsule::Capsule,
    },
    /// Exports records to files, or imports them from files.
    Knowledge {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: knowledge::Knowledge,
    },
    /// Checks and draws fascicle definitions in files.
    Fascicle {
        #[command(subcommand)]
        command: fascicle::Fascicle,
    },
    /// Tests configuration, store, model and port, and says how to fix faults.
    Check {
        #[command(flatten)]
        settings: Settings,
        /// Reads the complete store and reports damage. The daemon must not be running.
        #[arg(long)]
        deep: bool,
    },
    /// Downloads, lists, verifies and removes model weights.
    Models {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: models::Models,
    },
    /// Serves MCP over standard input and output, for clients that start their servers. It provides the daemon's memory
    /// and canvases.
    Mcp(Settings),
    /// Adds a key to the ring, and reseals all secrets with it.
    RotateKeys(Settings),
    /// Serves a small world for trying tools: places to stay, trains and bookings, in memory.
    Example {
        /// The address, on the loopback interface.
        #[arg(long, default_value = "127.0.0.1:7719")]
        at: SocketAddr,
    },
    /// Lists the tools, and gives them to lifeforms.
    Tools {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: tools::Tools,
    },
    /// Lists what waits for an approval, and decides it.
    Approvals {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: Option<approvals::Approvals>,
    },
    /// Manages access tokens.
    Token {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: token::Token,
    },
}

/// Settings of all commands; see config/lifeformd.toml for the complete list.
#[derive(Args, Clone)]
struct Settings {
    /// A configuration file.
    #[arg(long, env = "LIFEFORMD_CONFIG", global = true)]
    config: Option<PathBuf>,
    /// The data folder.
    #[arg(long, global = true)]
    data: Option<PathBuf>,
    /// The address of the API, to serve it or to connect to a running daemon.
    #[arg(long, global = true)]
    listen: Option<SocketAddr>,
    /// Never downloads model weights.
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

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Each command may write to the data folder.
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
        Command::Up { settings, accept_loss, restored, with_example } => {
            Box::pin(up::run(Config { accept_loss, restored, ..settings.load()? }, with_example)).await
        }
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
        Command::Example { at } => example::run(at).await,
        Command::Tools { settings, command } => tools::run(settings.load()?, command).await,
        Command::Approvals { settings, command } => approvals::run(settings.load()?, command).await,
        Command::Token { settings, command } => token::run(settings.load()?, command).await,
    }
}

/// Prints a line to standard output.
fn say(line: &str) {
    use std::io::Write;
    // The reader may have closed the pipe, as in `| head`.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a piece of a line and flushes it.
#[expect(clippy::print_stdout, reason = "the terminal is where the command line speaks")]
fn say_piece(piece: &str) {
    use std::io::Write;
    print!("{piece}");
    let _ = std::io::stdout().flush();
}

/// Prints an error to standard error.
fn say_error(line: &str) {
    use std::io::Write;
    // A closed terminal or a full disk does not stop the program.
    let _ = writeln!(std::io::stderr(), "lifeformd: {line}");
}
