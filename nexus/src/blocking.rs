//! Long work on the threads of the runtime.

/// Runs `work`; if it is long and the runtime has several threads, other tasks are moved off this thread first.
pub(crate) fn block_in_place_if<R>(long: bool, work: impl FnOnce() -> R) -> R {
    let several = tokio::runtime::Handle::current().runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread;
    if several && long { tokio::task::block_in_place(work) } else { work() }
}
