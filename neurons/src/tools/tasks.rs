//! Tasks: calls that a server carries out on its own, and is asked about. An invocation waits for them without a turn of their tool, and
//! they are cancelled with it. The task of a call with an effect is recorded, so that it is waited for again after a restart.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::mcp::TaskState;
use super::rules::place_of;
use super::{Calling, Failure, Made, Task, Tools, given};

/// The default of [`ToolLimits::task_s`](super::ToolLimits::task_s).
const TASK_S: u32 = 3_600;
/// The first pause after a server could not be asked. It doubles up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The maximum number of tasks that are known as waited for. Older ones are forgotten; they are not cancelled.
const TASKS_MAX: usize = 1_024;

impl Tools {
    fn tasks(&self) -> MutexGuard<'_, Vec<(Arc<str>, Task)>> {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an invocation waits for a task.
    pub(super) fn wait_for(&self, by: &Arc<str>, task: &Task) {
        let mut tasks = self.tasks();
        tasks.retain(|(known, of)| (known, of) != (by, task));
        if tasks.len() >= TASKS_MAX {
            tasks.remove(0);
        }
        tasks.push((by.clone(), task.clone()));
    }

    /// Waits for the result of a call that a server carries out as a task. The first question comes after `pause`. The outcome is
    /// unknown if the server does not end the task within the limits of the tool.
    pub(crate) async fn follow(&self, calling: Calling<'_>, task: &Task, pause: Duration) -> Made {
        self.wait_for(calling.parent, task);
        let filled = self.filled(&calling).await;
        let ended = self.end_of(task, pause, calling.tool.limits.task_s.unwrap_or(TASK_S)).await;
        let ended = match ended {
            Some(ended) => {
                self.tasks().retain(|(known, of)| (known, of) != (calling.parent, task));
                ended
            }
            // It goes on at the server, so it is still cancelled with the invocation.
            None => {
                let seconds = calling.tool.limits.task_s.unwrap_or(TASK_S);
                Err(Failure::Unknown(format!("its server has not ended it after {seconds} s")))
            }
        };
        let ended = match filled {
            Ok(filled) => ended
                .map(|result| filled.scrubbed(result))
                .map_err(|failure| failure.with_words(|why| filled.scrubbed(why))),
            // A secret that the result may hold is not known here any more.
            Err(why) => ended
                .map(|_| format!("[done; its result is withheld: {why}]"))
                .map_err(|failure| failure.with_words(|_| why.clone())),
        };
        self.made_of(&calling, ended)
    }

    /// Returns what the placeholders of a call stand for.
    async fn filled(&self, calling: &Calling<'_>) -> Result<super::builtin::Filled, String> {
        let (place, given) = (place_of(calling.tool), given(calling.call)?);
        let filled = self.0.builtins.fill(given, &calling.tool.name, &place, calling.origin).await;
        filled.map(|(_, filled)| filled)
    }

    /// Returns the result of a task; `None` if its server does not end it in time.
    async fn end_of(&self, task: &Task, mut pause: Duration, seconds: u32) -> Option<Result<String, Failure>> {
        let (end, mut retry_pause) = (Instant::now() + Duration::from_secs(seconds.into()), RETRY);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
            pause = match self.0.servers.task_state(task).await {
                Ok(TaskState::Ended(result)) => return Some(result),
                Ok(TaskState::Working(wish)) => {
                    retry_pause = RETRY;
                    wish
                }
                Err(why) => {
                    tracing::debug!(server = %task.server, tool = task.tool, why, "a server cannot be asked about a task");
                    retry_pause = (retry_pause * 2).min(RETRY_MAX);
                    retry_pause
                }
            };
            if left.is_zero() {
                return None;
            }
        }
    }

    /// Asks the servers to cancel the tasks that the invocations which `waits` selects waited for.
    pub fn cancel_tasks(&self, waits: impl Fn(&Arc<str>) -> bool) {
        let cancelled: Vec<Task> = self.tasks().extract_if(.., |(by, _)| waits(by)).map(|(_, task)| task).collect();
        for task in cancelled {
            let tools = self.clone();
            tokio::spawn(async move { tools.0.servers.cancel(&task).await });
        }
    }
}
