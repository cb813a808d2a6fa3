//! The detection of an opening that makes no progress.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::{DISK_WAIT_MAX, IDLE_CPU, STANDSTILL_MAX};

/// Waits until `done` is dropped. Returns `true` earlier if the process used no CPU time for [`STANDSTILL_MAX`]
/// without waiting for the disk, or for [`DISK_WAIT_MAX`] while it waits for the disk.
pub(super) fn stands_still(done: &Receiver<()>) -> bool {
    let (mut used, mut idle, mut still) = (cpu_time(), Duration::ZERO, Duration::ZERO);
    let second = Duration::from_secs(1);
    while matches!(done.recv_timeout(second), Err(RecvTimeoutError::Timeout)) {
        let now = cpu_time();
        let is_idle = now.saturating_sub(used) <= IDLE_CPU;
        idle = if is_idle { idle + second } else { Duration::ZERO };
        still = if is_idle && !waits_for_disk() { still + second } else { Duration::ZERO };
        used = now;
        if still >= STANDSTILL_MAX || idle >= DISK_WAIT_MAX {
            return true;
        }
    }
    false
}

/// Returns `true` if a thread of the process waits for the disk, on systems that report it.
pub(super) fn waits_for_disk() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    // The process name, in parentheses, may contain any characters; the state is the letter after it.
    let state = |stat: String| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    let states = tasks.filter_map(|task| state(std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?));
    states.into_iter().any(|state| state == 'D')
}

/// Returns the CPU time of all threads of the process.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// Returns the most recently opened file below `folder` that is still open, on systems that report it.
pub(super) fn last_opened(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let file = std::fs::read_link(entry.path()).ok()?;
        file.starts_with(&folder).then_some((number, file))
    });
    open.max().map(|(_, file)| file)
}
