//! Loops that wait for something by looking again and again, with an end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// The longest that one loop may go on.
const LOOP_MAX: Duration = Duration::from_secs(180);
/// Looks of one loop follow each other within this time; a later look at the same place begins another loop.
const PAUSE_MAX: Duration = Duration::from_secs(2);

thread_local! {
    /// The beginning and the last look of each loop, by its place. A test runs on a thread of its own.
    static LOOPS: RefCell<HashMap<&'static Location<'static>, (Instant, Instant)>> = RefCell::default();
}

/// Ends the loops of this test: a look that follows begins another loop, however soon it comes.
pub fn end_loops() {
    LOOPS.with_borrow_mut(HashMap::clear);
}

/// Lets other tasks run before the next look of a loop that waits for something.
///
/// # Panics
/// At the caller's place, when the loop has gone on for three minutes.
#[track_caller]
pub fn again() -> impl Future<Output = ()> {
    let (place, now) = (Location::caller(), Instant::now());
    let begun = LOOPS.with_borrow_mut(|loops| {
        let (begun, last) = loops.entry(place).or_insert((now, now));
        if now.duration_since(*last) > PAUSE_MAX {
            *begun = now;
        }
        *last = now;
        *begun
    });
    assert!(now.duration_since(begun) < LOOP_MAX, "{place}: it did not come to hold within {LOOP_MAX:?}");
    tokio::task::yield_now()
}
