//! MCP servers as child processes, each in a group of its own.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// Bytes of a line that it logs.
const LOG_BYTES_MAX: u64 = 4_096;

/// A child process and whatever it started: they end with this.
pub(super) struct Process {
    group: Option<Pid>,
    child: Child,
}

impl Process {
    /// Starts a program; answers its standard input and output with it.
    pub(super) fn start(
        server: &Arc<str>,
        command: &[String],
        environment: &BTreeMap<String, String>,
    ) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (input, output) = (child.stdin.take().ok_or_else(pipe)?, child.stdout.take().ok_or_else(pipe)?);
        tokio::spawn(log(server.clone(), child.stderr.take().ok_or_else(pipe)?));
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok((Self { group, child }, input, output))
    }

    /// Waits for it to end, then asks it to, then makes it.
    pub(super) async fn end(mut self, patience: Duration) {
        if tokio::time::timeout(patience, self.child.wait()).await.is_err() {
            self.signal(Signal::SIGTERM);
            let _ = tokio::time::timeout(patience, self.child.wait()).await;
        }
        self.signal(Signal::SIGKILL);
        // Once it was waited for, its number may be another's.
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// A pipe that nobody reads would hold the process up.
async fn log(server: Arc<str>, errors: ChildStderr) {
    let (mut errors, mut line) = (BufReader::new(errors), Vec::new());
    while (&mut errors).take(LOG_BYTES_MAX).read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        tracing::debug!(%server, "{}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}
