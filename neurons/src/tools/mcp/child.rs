//! MCP servers as child processes, each in a process group of its own.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

/// The maximum length of a logged line, in bytes.
const LOG_BYTES_MAX: u64 = 4_096;
/// The weight of a line in addition to its bytes.
const LINE_BYTES: usize = 64;
/// The maximum number of bytes that a child may log, and may output, within [`WINDOW`].
const LOGGED_MAX: usize = 256 << 10;
const SAID_MAX: usize = 16 << 20;
const WINDOW: Duration = Duration::from_secs(1);

/// A child process with its process group. The group ends when this value is dropped.
pub(super) struct Process {
    group: Option<Pid>,
    child: Child,
}

impl Process {
    /// Starts a program. Returns the process with its standard input and output.
    pub(super) fn start(
        server: &Arc<str>,
        command: &[String],
        environment: &BTreeMap<String, String>,
    ) -> io::Result<(Self, ChildStdin, Metered)> {
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
        Ok((Self { group, child }, input, Metered::new(output)))
    }

    /// Waits for the process to exit, then terminates it, and finally kills it.
    pub(super) async fn end(mut self, patience: Duration) {
        if tokio::time::timeout(patience, self.child.wait()).await.is_err() {
            self.signal(Signal::SIGTERM);
            let _ = tokio::time::timeout(patience, self.child.wait()).await;
        }
        self.signal(Signal::SIGKILL);
        // After the wait, the process id may be reused by another process.
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

/// Logs the standard error of a child. An unread pipe would block the process.
async fn log(server: Arc<str>, errors: ChildStderr) {
    let (mut errors, mut line) = (BufReader::new(errors), Vec::new());
    let mut read = 0;
    while (&mut errors).take(LOG_BYTES_MAX).read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        tracing::debug!(%server, "{}", String::from_utf8_lossy(&line).trim_end());
        read += line.len() + LINE_BYTES;
        line.clear();
        // A child that logs more than the limit is slowed down.
        if read > LOGGED_MAX {
            read = 0;
            tokio::time::sleep(WINDOW).await;
        }
    }
}

/// The output of a child. It ends once it exceeds its limit.
pub(super) struct Metered {
    output: ChildStdout,
    since: Instant,
    read: usize,
}

impl Metered {
    pub(super) fn new(output: ChildStdout) -> Self {
        Self { output, since: Instant::now(), read: 0 }
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.since.elapsed() > WINDOW {
            (self.since, self.read) = (Instant::now(), 0);
        }
        if self.read > SAID_MAX {
            tracing::warn!("an MCP server floods; it is hung up on");
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        let polled = Pin::new(&mut self.output).poll_read(context, into);
        let new = &into.filled()[before..];
        // Each line has a cost in addition to its bytes.
        self.read += new.len() + LINE_BYTES * new.iter().filter(|byte| **byte == b'\n').count();
        polled
    }
}
