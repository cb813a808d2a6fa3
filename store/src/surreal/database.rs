//! The embedded database: opened, read, opened again after a write that failed, and closed.
//!
//! The datastore is built by hand, because `connect()` sizes its caches by the machine's memory; its maintenance tasks
//! are left unstarted, because they write and sync every three seconds for features that are not used here. It runs on
//! threads of its own with the deep stacks it needs, so the process around it may be an ordinary one, paused test time
//! included.
//!
//! SurrealKV 0.21 appends to its own log behind a record that it could not write whole. When it reads that log back, it
//! drops everything from the torn record on, although it acknowledged what follows. So a database in which a write
//! failed is [distrusted](Database::distrust): no checkpoint is written to it until it was closed, which flushes its
//! memory table without its log, and opened again.

mod opening;
mod standstill;

use std::future::Future;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb_engine_local::Datastore;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, oneshot};

use super::{StoreError, before, io, schema};
use crate::backend::Opened;
use crate::clock::Timestamp;
pub(super) use opening::{is_locked, locked};
use opening::{lease, lock_folder, needs_recovery, open_database, probe, read_opened, take_lease, with_advice};
use standstill::{last_opened, stands_still};

/// Memory the database may use for unflushed writes; it also bounds how much is replayed after a kill. The largest
/// checkpoint must fit in twice: see `Surreal::surely`, and `DIRTY_BYTES_MAX` of the committer.
const MEMTABLE_BYTES: usize = 72 << 20;
/// Memory the database may use for blocks it has read.
const BLOCK_CACHE_BYTES: usize = 16 << 20;
/// Values up to this size stand in the tables themselves, whose blocks have checksums: all of them. SurrealKV 0.21 can
/// write larger ones to files of their own, where a write that failed half-way shifts all that follows: what was
/// acknowledged before cannot be read then.
const INLINE_BYTES: u64 = 1 << 40;
/// The database recurses deeply.
const STACK_BYTES: usize = 10 << 20;
/// `nice` value of the database's threads. Clients wait for the log, never for a checkpoint, so checkpoints yield the
/// CPU.
const DB_THREAD_NICE: i32 = 5;
/// The time for which opening may use no CPU time.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// The same while a thread waits for the disk.
const DISK_WAIT_MAX: Duration = Duration::from_secs(120);
/// CPU time in a second below which nothing is being done.
const IDLE_CPU: Duration = Duration::from_millis(10);
/// The longest duration of one write; after it the outcome is unknown.
const WRITE_MAX: Duration = Duration::from_secs(120);
/// The longest time that a closed database may keep its lock.
const UNLOCK_MAX: Duration = Duration::from_secs(2);
/// Room that must be left on the disk beside what the database flushes, for the log to go on.
const ROOM_BYTES: u64 = 4 << 20;
/// SurrealKV's message about a manifest that names a log without a file.
const LOG_AHEAD: &str = "exceeds WAL segments";
/// The file that SurrealKV holds locked.
const LOCK: &str = "LOCK";
/// The file by which the disk is tried.
const PROBE: &str = "probe.tmp";
/// The time for which a failed attempt to reopen is the answer for every caller.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// A database that is open.
struct Open {
    datastore: Arc<Datastore>,
    client: Client<Db>,
}

/// Access to the open database. It is not closed while one is held.
pub(super) struct Reader(OwnedRwLockReadGuard<Option<Open>, Client<Db>>);

impl Deref for Reader {
    type Target = Client<Db>;

    fn deref(&self) -> &Client<Db> {
        &self.0
    }
}

/// The embedded database in one folder.
pub(super) struct Database {
    path: PathBuf,
    /// `None` once dropped: a runtime must not be dropped inside another one.
    runtime: Mutex<Option<Runtime>>,
    opened: Arc<RwLock<Option<Open>>>,
    /// Set between opening and closing, also while it is opened again.
    in_use: Arc<AtomicBool>,
    /// The lock of the folder. SurrealKV locks a file in it, which may be removed by hand while it runs.
    folder: Mutex<Option<std::fs::File>>,
    /// Set when the last opening recovered the database from its own logs, and when it made no progress.
    recovered: Arc<AtomicBool>,
    stands_still: AtomicBool,
    /// Set by a write that failed, until the database was opened again.
    distrusted: Arc<AtomicBool>,
    /// The lock of reopening, with the last failure.
    reopening: Arc<tokio::sync::Mutex<Option<(Instant, StoreError)>>>,
    /// The epoch of our lease; every checkpoint names it.
    epoch: AtomicI64,
    /// The last row that a trusted checkpoint covers.
    checkpoint: AtomicU64,
}

impl Database {
    /// The database in folder `path`.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the machine gives no threads.
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            path: path.to_path_buf(),
            runtime: Mutex::new(Some(threads()?)),
            opened: Arc::default(),
            in_use: Arc::default(),
            folder: Mutex::default(),
            recovered: Arc::default(),
            stands_still: AtomicBool::default(),
            distrusted: Arc::default(),
            reopening: Arc::default(),
            epoch: AtomicI64::new(0),
            checkpoint: AtomicU64::new(0),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Opens the database, migrates it, takes the lease, and returns the checkpoint, the rows of the log that it holds
    /// itself, and the first segment of the log that it knows.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it; [`StoreError::Corrupt`] with the file that was opened last if
    /// opening makes no progress.
    pub(super) async fn open(&self, now: Timestamp) -> Result<(Opened, Option<u64>), StoreError> {
        let path = self.path.clone();
        *locked(&self.folder) = Some(lock_folder(&path)?);
        // A process that was killed may have left it.
        let _ = std::fs::remove_file(path.join(PROBE));
        let io = |error: std::io::Error| StoreError::Io(format!("{}: {error}", path.display()));
        if before::put_back(&path).map_err(io)? {
            tracing::warn!("a recovery of the database was cut short and begins again");
        }
        let recovers = needs_recovery(&path);
        self.recovered.store(recovers, Ordering::SeqCst);
        if recovers && let Err(error) = before::keep(&path) {
            tracing::warn!(%error, "the database recovers without copies of its files");
        }
        let opening = async move {
            let open = open_database(&path).await?;
            schema::migrate(&open.client).await?;
            let epoch = take_lease(&open.client, now).await?;
            let (found, segment) = read_opened(&open.client).await?;
            Ok((open, epoch, found, segment))
        };
        let opening = self.watched(Box::pin(opening)).await;
        let (open, epoch, found, segment) = opening.map_err(|error| with_advice(&self.path, error))?;
        *self.opened.write().await = Some(open);
        self.epoch.store(epoch, Ordering::SeqCst);
        self.checkpoint.store(found.checkpoint, Ordering::SeqCst);
        self.distrusted.store(false, Ordering::SeqCst);
        self.in_use.store(true, Ordering::SeqCst);
        Ok((found, segment))
    }

    /// Returns `true` if the last opening recovered the database from its own logs.
    pub(super) fn has_recovered(&self) -> bool {
        self.recovered.load(Ordering::SeqCst)
    }

    /// Returns `true` if the last opening made no progress: it may go on in the background.
    pub(super) fn stands_still(&self) -> bool {
        self.stands_still.load(Ordering::SeqCst)
    }

    /// Runs `work` on the database's own threads.
    ///
    /// # Errors
    /// Those of `work`; [`StoreError::Io`] when it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let threads = locked(&self.runtime).as_ref().map(|runtime| runtime.handle().clone());
        threads
            .ok_or(StoreError::Closed)?
            .spawn(work)
            .await
            .map_err(|panic| StoreError::Io(format!("the database panicked: {panic}")))?
    }

    /// Runs a write, which is given up after [`WRITE_MAX`].
    ///
    /// # Errors
    /// Those of `work`; [`StoreError::Io`] when it takes too long.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let late = || StoreError::Io(format!("the database did not write within {} s", WRITE_MAX.as_secs()));
        self.run(async move { tokio::time::timeout(WRITE_MAX, work).await.map_err(|_| late())? }).await
    }

    /// Runs a step of opening, which is given up when the process does nothing: SurrealKV 0.21 waits for ever after
    /// some damages to its tables.
    async fn watched<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (is_done, done) = std::sync::mpsc::channel::<()>();
        let (stands, standing) = oneshot::channel::<()>();
        let watcher = std::thread::Builder::new().name("opening".into());
        let watching = watcher.spawn(move || {
            if stands_still(&done) {
                let _ = stands.send(());
            }
        });
        watching.map_err(|error| StoreError::Io(error.to_string()))?;
        let outcome = tokio::select! {
            outcome = self.run(work) => outcome,
            Ok(()) = standing => {
                self.stands_still.store(true, Ordering::SeqCst);
                let file = last_opened(&self.path).unwrap_or_else(|| self.path.clone());
                let seconds = STANDSTILL_MAX.as_secs();
                Err(StoreError::Corrupt(format!(
                    "opening it stood still for {seconds} s, so a file in {} is damaged; {} was opened last",
                    self.path.display(),
                    file.display()
                )))
            }
        };
        drop(is_done);
        outcome
    }

    /// Access to the open database; after a failure it is opened again first.
    ///
    /// # Errors
    /// [`StoreError::Closed`] before opening and after closing; the failure to open it again.
    pub(super) async fn reader(&self) -> Result<Reader, StoreError> {
        if !self.in_use.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        if let Some(reader) = self.open_reader().await {
            return Ok(reader);
        }
        self.reopen().await?;
        self.open_reader().await.ok_or(StoreError::Closed)
    }

    async fn open_reader(&self) -> Option<Reader> {
        let opened = self.opened.clone().read_owned().await;
        OwnedRwLockReadGuard::try_map(opened, |open| open.as_ref().map(|open| &open.client)).ok().map(Reader)
    }

    /// Takes note that a write failed: nothing that the database acknowledges from now on is sure to outlive a kill.
    pub(super) fn distrust(&self) {
        self.distrusted.store(true, Ordering::SeqCst);
    }

    /// Takes note that a checkpoint up to row `upto` was written, and returns that of the one before.
    pub(super) fn trust(&self, upto: u64) -> u64 {
        self.checkpoint.swap(upto, Ordering::SeqCst)
    }

    /// Opens a distrusted database again. One that is trusted stays as it is.
    ///
    /// # Errors
    /// When the disk still fails, the lease is gone, or a checkpoint that was trusted is not there any more.
    pub(super) async fn trust_again(&self) -> Result<(), StoreError> {
        if self.distrusted.load(Ordering::SeqCst) { self.reopen().await } else { Ok(()) }
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        let mut last = self.reopening.clone().lock_owned().await;
        let is_well = !self.distrusted.load(Ordering::SeqCst) && self.opened.read().await.is_some();
        if is_well || !self.in_use.load(Ordering::SeqCst) {
            return Ok(());
        }
        if let Some((_, failure)) = last.as_ref().filter(|(at, _)| at.elapsed() < REOPEN_PAUSE) {
            return Err(failure.clone());
        }
        let (path, opened, distrusted) = (self.path.clone(), self.opened.clone(), self.distrusted.clone());
        let (epoch, checkpoint) = (self.epoch(), self.checkpoint.load(Ordering::SeqCst));
        let in_use = self.in_use.clone();
        // On the database's threads, so that a caller who goes away does not leave it closed half-way.
        self.run(async move {
            let reopened = reopened(&path, opened, &in_use, epoch, checkpoint).await;
            match &reopened {
                Ok(()) => {
                    tracing::info!("opened the database again after a write that failed");
                    distrusted.store(false, Ordering::SeqCst);
                    *last = None;
                }
                Err(failure) => *last = Some((Instant::now(), failure.clone())),
            }
            reopened
        })
        .await
    }

    /// Closes the database.
    ///
    /// # Errors
    /// When its memory table cannot be flushed; its log still holds what is in it.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let closed = self.close_locked().await;
        self.unlock();
        closed
    }

    /// Closes the database, and keeps the lock of its folder.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub(super) async fn close_locked(&self) -> Result<(), StoreError> {
        if !self.in_use.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let (path, opened) = (self.path.clone(), self.opened.clone());
        self.run(async move {
            match opened.write().await.take() {
                Some(open) => close(open, &path).await,
                None => Ok(()),
            }
        })
        .await
    }

    /// Ends the database's own threads. Returns `true` if they ended within [`WRITE_MAX`].
    ///
    /// SurrealKV 0.21 closes a tree a second time in the background when it is dropped, and removes logs by their paths
    /// then: files must not be put in their places before.
    pub(super) async fn end_threads(&self) -> bool {
        let Some(runtime) = locked(&self.runtime).take() else { return true };
        let end = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            runtime.shutdown_timeout(WRITE_MAX);
            begun.elapsed() < WRITE_MAX
        });
        end.await.unwrap_or(false)
    }

    /// Lets another process have the folder.
    pub(super) fn unlock(&self) {
        locked(&self.folder).take();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(runtime) = locked(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}

/// The database's own threads.
fn threads() -> Result<Runtime, StoreError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("surrealdb")
        .thread_stack_size(STACK_BYTES)
        .on_thread_start(|| {
            if let Err(error) = rustix::process::setpriority_process(None, DB_THREAD_NICE) {
                tracing::debug!(%error, "the database's threads keep their priority");
            }
        })
        .enable_all()
        .build()
        .map_err(|error| StoreError::Io(error.to_string()))
}

async fn close(open: Open, path: &Path) -> Result<(), StoreError> {
    drop(open.client);
    shut(open.datastore, path).await?;
    flushed(path)
}

/// Shuts a datastore, and waits until it has let go of its lock: its last tasks do that a little later.
async fn shut(datastore: Arc<Datastore>, path: &Path) -> Result<(), StoreError> {
    let shut = datastore.shutdown().await.map_err(io);
    drop(datastore);
    let begun = Instant::now();
    while begun.elapsed() < UNLOCK_MAX && is_locked(path) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    shut
}

/// Checks that a database that was closed has flushed its memory table: SurrealDB 3.3 only logs when that fails.
///
/// # Errors
/// [`StoreError::Io`]; its own log still holds what was not flushed.
fn flushed(path: &Path) -> Result<(), StoreError> {
    match needs_recovery(path) {
        true => Err(StoreError::Io(format!("{}: the database could not flush its memory table", path.display()))),
        false => Ok(()),
    }
}

/// Closes what is open, opens it again, and looks whether it is what it was. While the disk takes nothing it stays
/// open, so that reads go on. A failure after that ends the process.
async fn reopened(
    path: &Path,
    opened: Arc<RwLock<Option<Open>>>,
    in_use: &AtomicBool,
    epoch: i64,
    checkpoint: u64,
) -> Result<(), StoreError> {
    let probed = path.to_path_buf();
    let probe = tokio::task::spawn_blocking(move || probe(&probed));
    probe.await.map_err(|panic| StoreError::Io(format!("the disk could not be tried: {panic}")))??;
    let mut opened = opened.write_owned().await;
    if !in_use.load(Ordering::SeqCst) {
        return Err(StoreError::Closed);
    }
    if let Some(open) = opened.take()
        && let Err(failure) = close(open, path).await
    {
        end(&failure);
    }
    match opened_again(path, epoch, checkpoint).await {
        Ok(open) => *opened = Some(open),
        Err(failure) => end(&failure),
    }
    Ok(())
}

async fn opened_again(path: &Path, epoch: i64, checkpoint: u64) -> Result<Open, StoreError> {
    let open = open_database(path).await?;
    let (found, _) = read_opened(&open.client).await?;
    if lease(&open.client).await? != epoch {
        return Err(StoreError::LeaseLost(epoch as u64));
    }
    if found.checkpoint < checkpoint {
        let behind = format!("the database lost checkpoint {checkpoint} and is at {}", found.checkpoint);
        return Err(StoreError::Corrupt(format!("{behind}: a restart reads what is missing from the log")));
    }
    Ok(open)
}

/// Ends the process: a database that could not be closed whole, or not be opened again, leaves tasks of its own behind,
/// which hold its lock and may still write. A new process reads back what the log has.
fn end(failure: &StoreError) -> ! {
    tracing::error!(%failure, "the database failed while it was opened again: the process ends, start it again");
    std::process::exit(crate::vital::EXIT_STATUS);
}
