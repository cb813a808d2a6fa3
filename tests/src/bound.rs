//! A bound on how long a test lives with a daemon: many tests wait for something in a loop, and one that waits for what
//! does not come is to fail with its name instead of holding up everything.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest time that a test may take; the slowest takes seconds.
const TEST_MAX: Duration = Duration::from_secs(300);

/// The tests that run, by a number, with when they began.
static RUNNING: LazyLock<Mutex<BTreeMap<u64, (String, Instant)>>> = LazyLock::new(|| {
    std::thread::spawn(|| {
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            let late: Vec<&str> =
                running.values().filter(|(_, begun)| begun.elapsed() > TEST_MAX).map(|(name, _)| &**name).collect();
            if !late.is_empty() {
                println!("running for more than {} s: {}", TEST_MAX.as_secs(), late.join(", "));
                std::process::abort();
            }
        }
    });
    Mutex::default()
});

/// Held while a test may go on.
pub(crate) struct Bound(u64);

impl Bound {
    /// Begins to count for the test that runs on this thread.
    pub(crate) fn begin() -> Self {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let id = running.keys().next_back().map_or(0, |last| last + 1);
        running.insert(id, (name, Instant::now()));
        Self(id)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}
