//! The embedded database: opening, reading, reopening after a failed write, and closing.
//!
//! The store builds the datastore itself, for two reasons. `connect()` sizes its caches by the machine's memory, and
//! it starts maintenance tasks that write and sync every three seconds for features that are unused here. The
//! database runs on its own threads with the large stacks that it needs. The surrounding process therefore needs no
//! special configuration; paused test time also works.
//!
//! SurrealKV 0.21 appends to its own log after a record that it could not write completely. When it reads that log
//! back, it drops everything from the torn record on, although it acknowledged the later records. A failed write
//! therefore makes the database [distrusted](Database::distrust). No checkpoint is written to it until it was closed,
//! which flushes its memory table without its log, and opened again.

mod opening;
mod standstill;
mod wal_files;

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

use super::log::Noted;
use super::{StoreError, before, io, schema, tables};
use crate::backend::Recovered;
use crate::clock::Timestamp;
pub(super) use opening::{is_locked, locked};
use opening::{lease, lock_folder, needs_recovery, open_database, probe, read_recovered, take_lease, with_advice};
use standstill::{last_opened, stands_still};

/// Memory for unflushed writes of the database. It also bounds the amount of data to replay after a kill. The largest
/// checkpoint must fit in twice: see `Surreal::write_verified`, and `DIRTY_BYTES_MAX` of the committer.
const MEMTABLE_BYTES: usize = 72 << 20;
/// Memory for the database's cache of read blocks.
const BLOCK_CACHE_BYTES: usize = 16 << 20;
/// The largest size, in bytes, of a value that is stored in the tables, whose blocks have checksums. The bound covers
/// all values. SurrealKV 0.21 can write larger values to separate files, where a write that fails half-way shifts all
/// later data and makes acknowledged data unreadable.
const INLINE_BYTES: u64 = 1 << 40;
/// Stack size of the database's threads, in bytes. The database recurses deeply.
const STACK_BYTES: usize = 10 << 20;
/// `nice` value of the database's threads. Clients wait for the log, never for a checkpoint, so checkpoints yield the
/// CPU.
const DB_THREAD_NICE: i32 = 5;
/// The longest time without CPU use while the database opens.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// The same bound while a thread waits for the disk.
const DISK_WAIT_MAX: Duration = Duration::from_secs(120);
/// CPU time per second below which the process counts as idle.
const IDLE_CPU: Duration = Duration::from_millis(10);
/// The longest duration of one write. After it, the outcome is unknown.
const WRITE_MAX: Duration = Duration::from_secs(120);
/// The longest time that the store waits for a closed database to release its lock.
const UNLOCK_MAX: Duration = Duration::from_secs(2);
/// Disk space for the log that must remain free in addition to the space that the database needs to flush.
const ROOM_BYTES: u64 = 4 << 20;
/// SurrealKV's message about a manifest that names a log without a file.
const LOG_AHEAD: &str = "exceeds WAL segments";
/// The file that SurrealKV holds locked.
const LOCK: &str = "LOCK";
/// The file that tests whether the disk accepts writes.
const PROBE: &str = "probe.tmp";
/// The time for which the error of a failed reopening is returned to every caller.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// An open database.
struct Open {
    datastore: Arc<Datastore>,
    client: Client<Db>,
}

/// Read access to the open database. The database is not closed while a reader exists.
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
    /// Set between opening and closing, also during a reopening.
    in_use: Arc<AtomicBool>,
    /// The locks of the folder and of its log. SurrealKV locks a file in the folder, but a user may remove that file
    /// while the daemon runs. The log may be a link to a folder elsewhere, which a copy of the link names, too.
    folders: Mutex<Option<[std::fs::File; 2]>>,
    /// Set when the last opening recovered the database from its own logs, and when it made no progress.
    recovered: Arc<AtomicBool>,
    stands_still: AtomicBool,
    /// Set by a failed write and cleared by a reopening.
    distrusted: Arc<AtomicBool>,
    /// The lock for reopening, with the last failure.
    reopening: Arc<tokio::sync::Mutex<Option<(Instant, StoreError)>>>,
    /// The epoch of this daemon's lease, which every checkpoint names.
    epoch: AtomicI64,
    /// The last row that a trusted checkpoint covers.
    checkpoint: AtomicU64,
}

impl Database {
    /// Returns the database in folder `path`, not opened yet.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the system provides no threads.
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        // SurrealDB's library for facts about processes would keep up to half of all file descriptors.
        sysinfo::set_open_files_limit(0);
        Ok(Self {
            path: path.to_path_buf(),
            runtime: Mutex::new(Some(threads()?)),
            opened: Arc::default(),
            in_use: Arc::default(),
            folders: Mutex::default(),
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

    /// Opens the database, migrates it and takes the lease. Returns the checkpoint, the log rows that are stored in
    /// the database itself, and what the database knows of the log.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has opened it; [`StoreError::Corrupt`], with the file that was
    /// opened last, if opening makes no progress.
    pub(super) async fn open(&self, now: Timestamp) -> Result<(Recovered, Noted), StoreError> {
        let path = self.path.clone();
        *locked(&self.folders) = Some([lock_folder(&path)?, lock_folder(&path.join("log"))?]);
        // A killed process may have left the file behind.
        let _ = std::fs::remove_file(path.join(PROBE));
        let io = |error: std::io::Error| StoreError::Io(format!("{}: {error}", path.display()));
        if before::put_back(&path).map_err(io)? {
            tracing::warn!("a recovery of the database was cut short and begins again");
        }
        let store = path.clone();
        let unreadable = tokio::task::spawn_blocking(move || tables::mend_filters(&store)).await;
        let unreadable = unreadable.map_err(|panic| StoreError::Io(panic.to_string()))??;
        let recovers = needs_recovery(&path);
        self.recovered.store(recovers, Ordering::SeqCst);
        // Each opening may change files, and a refused one must not. A missing log of the database looks like one that
        // was closed.
        if let Err(error) = before::keep(&path) {
            tracing::warn!(%error, "the database opens without copies of its files");
        }
        let opening = async move {
            let open = open_database(&path).await?;
            schema::migrate(&open.client).await?;
            let epoch = take_lease(&open.client, now).await?;
            let (found, noted) = read_recovered(&open.client).await?;
            Ok((open, epoch, found, noted))
        };
        let opening = self.watched(Box::pin(opening)).await;
        let (open, epoch, found, noted) = opening.map_err(|error| with_advice(&self.path, &unreadable, error))?;
        *self.opened.write().await = Some(open);
        self.epoch.store(epoch, Ordering::SeqCst);
        self.checkpoint.store(found.checkpoint, Ordering::SeqCst);
        self.distrusted.store(false, Ordering::SeqCst);
        self.in_use.store(true, Ordering::SeqCst);
        Ok((found, noted))
    }

    /// Returns `true` if the last opening recovered the database from its own logs.
    pub(super) fn has_recovered(&self) -> bool {
        self.recovered.load(Ordering::SeqCst)
    }

    /// Returns `true` if the last opening made no progress. It may still run in the background.
    pub(super) fn stands_still(&self) -> bool {
        self.stands_still.load(Ordering::SeqCst)
    }

    /// Runs `work` on the database's own threads.
    ///
    /// # Errors
    /// Errors of `work`; [`StoreError::Io`] when it panics.
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

    /// Runs a write with a timeout of [`WRITE_MAX`].
    ///
    /// # Errors
    /// Errors of `work`; [`StoreError::Io`] after the timeout.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let late = || StoreError::Io(format!("the database did not write within {} s", WRITE_MAX.as_secs()));
        self.run(async move { tokio::time::timeout(WRITE_MAX, work).await.map_err(|_| late())? }).await
    }

    /// Runs a step of opening and gives up when the process is idle. After some kinds of damage to its tables,
    /// SurrealKV 0.21 waits forever.
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
                let seconds = STANDSTILL_MAX.as_secs();
                let stood = format!("opening it stood still for {seconds} s, so a file of the database is damaged");
                let last = last_opened(&self.path).filter(|_| tables::damaged(&self.path, |_| true).is_ok_and(|all| all.is_empty()));
                Err(StoreError::Corrupt(match last {
                    Some(last) => format!("{stood}; {} was opened last", last.display()),
                    None => stood,
                }))
            }
        };
        drop(is_done);
        outcome
    }

    /// Returns read access to the open database. After a failure, opens the database again first.
    ///
    /// # Errors
    /// [`StoreError::Closed`] before opening and after closing; the error of the reopening if it fails.
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

    /// Records that a write failed. From now on, writes that the database acknowledges may be lost in a kill.
    pub(super) fn distrust(&self) {
        self.distrusted.store(true, Ordering::SeqCst);
    }

    /// Records that a checkpoint up to row `upto` was written, and returns the row of the checkpoint before it.
    pub(super) fn trust(&self, upto: u64) -> u64 {
        self.checkpoint.swap(upto, Ordering::SeqCst)
    }

    /// Reopens a distrusted database; does nothing if the database is trusted.
    ///
    /// # Errors
    /// Fails when the disk still fails, the lease is lost, or a trusted checkpoint is missing.
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
        // Runs on the database's threads, so that a dropped caller cannot leave the database half closed.
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
    /// Fails when the memory table cannot be flushed; the database's log still holds the unflushed data.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let closed = self.close_locked().await;
        self.unlock();
        closed
    }

    /// Closes the database but keeps the lock of its folder.
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
    /// SurrealKV 0.21 closes a dropped tree a second time in the background and then removes logs by their paths. No
    /// files may be put at these paths before the threads have ended.
    pub(super) async fn end_threads(&self) -> bool {
        let Some(runtime) = locked(&self.runtime).take() else { return true };
        let end = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            runtime.shutdown_timeout(WRITE_MAX);
            begun.elapsed() < WRITE_MAX
        });
        end.await.unwrap_or(false)
    }

    /// Releases the lock of the folder, so that another process can open it.
    pub(super) fn unlock(&self) {
        locked(&self.folders).take();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(runtime) = locked(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts the database's own threads.
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

/// Shuts a datastore down, and waits until it has released its lock. The database's last tasks release the lock
/// shortly after the shutdown.
async fn shut(datastore: Arc<Datastore>, path: &Path) -> Result<(), StoreError> {
    let shut = datastore.shutdown().await.map_err(io);
    drop(datastore);
    let begun = Instant::now();
    while begun.elapsed() < UNLOCK_MAX && is_locked(path) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    shut
}

/// Checks that a closed database has flushed its memory table. SurrealDB 3.3 only logs a failed flush.
///
/// # Errors
/// [`StoreError::Io`]; the database's log still holds the unflushed data.
fn flushed(path: &Path) -> Result<(), StoreError> {
    match needs_recovery(path) {
        true => Err(StoreError::Io(format!("{}: the database could not flush its memory table", path.display()))),
        false => Ok(()),
    }
}

/// Closes the database, opens it again, and checks its lease and its checkpoint. While the disk accepts no writes,
/// the database stays open so that reads go on. A later failure ends the process.
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
    tables::mend_filters(path)?;
    let open = open_database(path).await?;
    let (found, _) = read_recovered(&open.client).await?;
    if lease(&open.client).await? != epoch {
        return Err(StoreError::LeaseLost(epoch as u64));
    }
    if found.checkpoint < checkpoint {
        let behind = format!("the database lost checkpoint {checkpoint} and is at {}", found.checkpoint);
        return Err(StoreError::Corrupt(format!("{behind}: a restart reads what is missing from the log")));
    }
    Ok(open)
}

/// Ends the process. A database that cannot be closed completely or reopened leaves tasks behind, which hold its lock
/// and may still write. A new process reads the missing data back from the log.
fn end(failure: &StoreError) -> ! {
    tracing::error!(%failure, "the database failed while it was opened again: the process ends, start it again");
    std::process::exit(crate::vital::EXIT_STATUS);
}
