//! `lifeformd`: reads its arguments and runs a command.

use std::process::ExitCode;

/// A mind consists of many small allocations. This allocator places them close together, which makes scans fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    runtime::cli::main()
}
