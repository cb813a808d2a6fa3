//! The command line. Commands for a running daemon use its public API.

mod agenda;
mod approvals;
mod archive;
mod capsule;
mod chat;
mod check;
mod client;
mod example;
mod fascicle;
mod jobs;
mod kip;
mod knowledge;
mod lifeforms;
mod mcp;
mod memory;
mod models;
mod open;
mod terminal;
#[cfg(feature = "embedded")]
mod threads;
mod token;
mod tools;
mod up;
mod why;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

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
    /// Shows whether the daemon is well, its lifeforms, and what waits for a decision.
    Status {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Lists the lifeforms with their state and their tokens.
    Lifeforms {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Starts a lifeform.
    Start {
        #[command(flatten)]
        settings: Settings,
        /// The lifeform, by name or id (default: the first).
        lifeform: Option<String>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Stops a lifeform. Messages are kept, and the lifeform answers them after the next start.
    Stop {
        #[command(flatten)]
        settings: Settings,
        /// The lifeform, by name or id (default: the first).
        lifeform: Option<String>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Credits a lifeform with tokens.
    TopUp {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        /// The number of tokens. A negative number is a debit.
        #[arg(allow_negative_numbers = true)]
        tokens: i64,
        /// The purpose, for the statement of the account.
        #[arg(long)]
        memo: Option<String>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Lists and changes the goals of a lifeform.
    Goal {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        #[command(subcommand)]
        command: Option<agenda::Goal>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Sets a reminder; without a text, lists them.
    Remind {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        /// The text that the lifeform says.
        #[arg(requires = "time")]
        what: Option<String>,
        /// The time, for example 2026-12-01T09:00:00Z.
        #[arg(long, group = "time")]
        at: Option<String>,
        /// The times, as a cron pattern of five fields.
        #[arg(long, group = "time")]
        cron: Option<String>,
        /// The time zone of the pattern (default: UTC).
        #[arg(long, requires = "cron")]
        zone: Option<String>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Shows what a lifeform remembers, as far as the token may see it.
    Memory {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        /// The subject (default: the latest statements).
        about: Option<String>,
        /// The person who made the statements, for example user:ada.
        #[arg(long)]
        of: Option<String>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Has a lifeform forget something that you told it.
    Forget {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        /// The id of a statement, as "memory" prints it, or the thing in words, for example "that my boat is called Petrel". Words are
        /// said to it in its chat.
        what: String,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Shows the causes of the last answer, or of the entry with a reference.
    Why {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        /// The reference, for example job:job_01 or a reference of another walk.
        reference: Option<String>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Lists, shows, cancels and retries jobs.
    Jobs {
        #[command(flatten)]
        settings: Settings,
        #[command(subcommand)]
        command: Option<jobs::Jobs>,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Approves what waits under an id; the same as `approvals approve`.
    Approve {
        #[command(flatten)]
        settings: Settings,
        /// The id, as `lifeformd approvals` lists it.
        id: String,
    },
    /// Writes a lifeform to a file, with all that belongs to it.
    Archive {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        which: lifeforms::Which,
        /// The new file.
        to: PathBuf,
    },
    /// Imports a lifeform from a file of `archive`.
    Import {
        #[command(flatten)]
        settings: Settings,
        /// The file.
        from: PathBuf,
        #[command(flatten)]
        form: lifeforms::Form,
    },
    /// Opens the web page in a browser, signed in.
    Open {
        #[command(flatten)]
        settings: Settings,
        /// Prints the link instead. It holds the token.
        #[arg(long)]
        print: bool,
    },
    /// Prints the settings as they apply here, without the token and the environment of tool servers.
    Config {
        #[command(flatten)]
        settings: Settings,
    },
    /// Prints the script that completes commands in a shell, or the manual page.
    Generate {
        #[command(subcommand)]
        what: Generate,
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

#[derive(Subcommand)]
enum Generate {
    /// Prints the completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, in roff.
    Man,
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
        Config::load(self.config.as_deref(), &self.flags())
    }

    /// Returns the settings as they apply, as TOML without secrets.
    fn shown(&self) -> anyhow::Result<String> {
        Config::shown(self.config.as_deref(), &self.flags())
    }

    fn flags(&self) -> Vec<(&'static str, String)> {
        let mut flags: Vec<(&str, String)> = Vec::new();
        flags.extend(self.data.iter().map(|data| ("data", data.display().to_string())));
        flags.extend(self.listen.iter().map(|listen| ("listen", listen.to_string())));
        flags.extend(self.offline.then(|| ("offline", "true".to_owned())));
        flags
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
        Command::Status { settings, form } => lifeforms::status(settings.load()?, form).await,
        Command::Lifeforms { settings, form } => lifeforms::list(settings.load()?, form).await,
        Command::Start { settings, lifeform, form } => lifeforms::act(settings.load()?, lifeform, "start", form).await,
        Command::Stop { settings, lifeform, form } => lifeforms::act(settings.load()?, lifeform, "stop", form).await,
        Command::TopUp { settings, which, tokens, memo, form } => {
            lifeforms::top_up(settings.load()?, which, tokens, memo, form).await
        }
        Command::Goal { settings, which, command, form } => agenda::goal(settings.load()?, which, command, form).await,
        Command::Remind { settings, which, what, at, cron, zone, form } => {
            agenda::remind(settings.load()?, which, what, [at, cron, zone], form).await
        }
        Command::Memory { settings, which, about, of, form } => {
            memory::show(settings.load()?, which, about, of, form).await
        }
        Command::Forget { settings, which, what, form } => memory::forget(settings.load()?, which, what, form).await,
        Command::Why { settings, which, reference, form } => why::run(settings.load()?, which, reference, form).await,
        Command::Jobs { settings, command, form } => jobs::run(settings.load()?, command, form).await,
        Command::Approve { settings, id } => {
            approvals::run(settings.load()?, Some(approvals::Approvals::Approve { id })).await
        }
        Command::Archive { settings, which, to } => archive::export(settings.load()?, which, to).await,
        Command::Import { settings, from, form } => archive::import(settings.load()?, &from, form).await,
        Command::Open { settings, print } => open::run(&settings.load()?, print),
        Command::Config { settings } => {
            say(&settings.shown()?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Generate { what } => generate(&what),
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

fn generate(what: &Generate) -> anyhow::Result<ExitCode> {
    let (mut command, mut out) = (Cli::command(), Vec::new());
    match what {
        Generate::Completions { shell } => clap_complete::generate(*shell, &mut command, "lifeformd", &mut out),
        Generate::Man => clap_mangen::Man::new(command).render(&mut out)?,
    }
    say(String::from_utf8_lossy(&out).trim_end());
    Ok(ExitCode::SUCCESS)
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

/// Returns a text of others without what a terminal would obey: control characters but line ends and tabs, and invisible ones.
fn harmless(text: &str) -> String {
    let is_obeyed = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || store::is_invisible(c);
    text.replace(is_obeyed, "\u{fffd}")
}

/// Prints an error to standard error.
fn say_error(line: &str) {
    use std::io::Write;
    // A closed terminal or a full disk does not stop the program.
    let _ = writeln!(std::io::stderr(), "lifeformd: {line}");
}
