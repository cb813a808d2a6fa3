//! The number of threads for the models in this process. Unless the environment sets this number, candle counts the
//! cores before each matrix product. With a small model, the counting takes a quarter of the time.

use std::env;
use std::process::Command;

/// The environment variable with the number of threads for candle and its thread pool.
const NAME: &str = "RAYON_NUM_THREADS";

/// Replaces the process by the same command with the variable set, unless it is set: a process cannot safely change its
/// environment while threads read it. If this fails, the program runs, but slower.
pub(super) fn name_them() {
    let named = env::var_os(NAME).is_some();
    let (Ok(program), Ok(cores)) = (env::current_exe(), std::thread::available_parallelism()) else { return };
    if named {
        return;
    }
    let mut same = Command::new(program);
    same.args(env::args_os().skip(1)).env(NAME, num_cpus::get_physical().min(cores.get()).max(1).to_string());
    become_it(same);
}

#[cfg(unix)]
fn become_it(mut same: Command) {
    use std::os::unix::process::CommandExt;

    if let Some(called) = env::args_os().next() {
        same.arg0(called);
    }
    // `exec` returns only on failure.
    let _ = same.exec();
}

#[cfg(not(unix))]
fn become_it(_: Command) {}
