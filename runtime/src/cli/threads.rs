//! The number of threads for the models in this process. candle counts the cores before every product of matrices
//! unless the environment names a number; with a small model the counting takes a quarter of the time.

use std::env;
use std::process::Command;

/// The variable in which candle, and the threads below it, look for the number.
const NAME: &str = "RAYON_NUM_THREADS";

/// Becomes the same command with the number named, if it is not: a process cannot safely change an environment that its
/// threads read. Where that does not go, all works, and slower.
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
    // It returns only where it could not.
    let _ = same.exec();
}

#[cfg(not(unix))]
fn become_it(_: Command) {}
