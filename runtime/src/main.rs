//! `lifeformd`: reads its arguments and runs a command.

use std::process::ExitCode;

/// A mind is many small pieces; where they lie together, looking through them is fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    runtime::cli::main()
}
