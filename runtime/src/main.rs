//! `lifeformd`: reads its arguments and runs a command.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::cli::main()
}
