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

use std::future::Future;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb_cnf::ConfigMap;
use surrealdb_engine_local::Datastore;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, oneshot};

use super::rows::{LogRow, bytes_of};
use super::{StoreError, before, io, schema, settle};
use crate::backend::Opened;
use crate::clock::Timestamp;

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
/// Bytes that are left on a disk below which a failed opening is put down to it.
const LOW_BYTES: u64 = 64 << 20;
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

/// Returns `true` if a process, this one included, holds the lock of the database in `path`.
pub(super) fn is_locked(path: &Path) -> bool {
    let tried = std::fs::File::open(path.join(LOCK)).map(|file| file.try_lock());
    matches!(tried, Ok(Err(std::fs::TryLockError::WouldBlock)))
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

/// Locks the folder of a database for this process.
///
/// # Errors
/// [`StoreError::Locked`] when another process has it.
fn lock_folder(path: &Path) -> Result<std::fs::File, StoreError> {
    let failed = |error: std::io::Error| StoreError::Io(format!("{}: {error}", path.display()));
    let folder = std::fs::File::open(path).map_err(failed)?;
    match rustix::fs::flock(&folder, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(folder),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked(path.display().to_string())),
        // A file system without such locks: SurrealKV's own has to do.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => Ok(folder),
        Err(error) => Err(failed(error.into())),
    }
}

/// Words of SurrealKV's errors about damaged files.
const DAMAGES: [&str; 7] = ["manifest", "sst", "block", "sequence", "fill whole buffer", "checksum", "corrupt"];

/// Adds to an error about a full disk or damaged files of the database where they are and how to go on.
fn with_advice(path: &Path, error: StoreError) -> StoreError {
    let left = rustix::fs::statvfs(path).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let advise = |why: String| match left.filter(|left| *left < LOW_BYTES) {
        Some(left) => {
            format!("{why}. The disk of {} has {} KiB left: make room and start again", path.display(), left >> 10)
        }
        None if DAMAGES.iter().any(|word| why.to_lowercase().contains(word)) => {
            format!("{why}. The files of the database are in {}: put them back from a backup", path.display())
        }
        None => why,
    };
    match error {
        StoreError::Io(why) => StoreError::Io(advise(why)),
        StoreError::Corrupt(why) => StoreError::Corrupt(advise(why)),
        other => other,
    }
}

/// Ends the process: a database that could not be closed whole, or not be opened again, leaves tasks of its own behind,
/// which hold its lock and may still write. A new process reads back what the log has.
fn end(failure: &StoreError) -> ! {
    tracing::error!(%failure, "the database failed while it was opened again: the process ends, start it again");
    std::process::exit(crate::vital::EXIT_STATUS);
}

/// Looks whether the disk takes writes, and has room for what the database flushes when it is closed.
fn probe(path: &Path) -> Result<(), StoreError> {
    use std::io::Write;
    let failed = |error: std::io::Error| StoreError::Io(format!("{}: {error}", path.display()));
    let own_logs = std::fs::read_dir(path.join("wal")).into_iter().flatten();
    let bytes: u64 = own_logs.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    let disk = rustix::fs::statvfs(path).map_err(|error| failed(error.into()))?;
    if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes + ROOM_BYTES {
        return Err(failed(std::io::ErrorKind::StorageFull.into()));
    }
    let probe = path.join(PROBE);
    let tried = (|| {
        let mut file = std::fs::File::create(&probe)?;
        file.write_all(&[0; 64 << 10])?;
        file.sync_all()
    })();
    let removed = std::fs::remove_file(&probe);
    tried.and(removed).map_err(failed)
}

/// Opens the database in `path` as it is.
async fn open_database(path: &Path) -> Result<Open, StoreError> {
    has_manifest(path)?;
    // SurrealKV 0.21 splits a log that its memory table cannot hold when it reads it back: one part is flushed, which
    // says that the whole log is, and the other is nowhere when it is killed again. A log holds at most a full table
    // and one transaction more, so it is read back into a table of three, and closed.
    if needs_recovery(path) {
        shut(built(path, 3 * MEMTABLE_BYTES).await?, path).await?;
        flushed(path)?;
    }
    let datastore = built(path, MEMTABLE_BYTES).await?;
    datastore.check_version().await.map_err(io)?;
    datastore.bootstrap().await.map_err(io)?;
    let client: Client<Db> = Client::<Db>::unstable_from_datastore(datastore.clone(), None).await.map_err(io)?;
    client.use_ns("lifeformd").use_db("main").await.map_err(io)?;
    Ok(Open { datastore, client })
}

/// Checks that tables have a manifest: without one SurrealKV 0.21 takes them for leftovers and removes them.
///
/// # Errors
/// [`StoreError::Corrupt`]; nothing was changed.
fn has_manifest(store: &Path) -> Result<(), StoreError> {
    let is_empty = |name: &str| std::fs::read_dir(store.join(name)).map_or(true, |mut files| files.next().is_none());
    if is_empty("sstables") || !is_empty("manifest") {
        return Ok(());
    }
    let manifest = store.join("manifest");
    Err(StoreError::Corrupt(format!("{} is missing, and tables are there: put it back", manifest.display())))
}

/// Returns `true` if the database in `store` was not closed: its own logs are not empty.
fn needs_recovery(store: &Path) -> bool {
    let files = std::fs::read_dir(store.join("wal")).into_iter().flatten();
    files.filter_map(|file| file.ok()?.metadata().ok()).any(|file| file.len() > 0)
}

/// The datastore in `store`, with memory tables of that size.
///
/// SurrealKV 0.21 counts a log on before it has made its file. When the file cannot be made and the memory table is
/// flushed then, the manifest names a log past the newest file there is, and it does not open any more. All files are
/// older than that log then, which means that the tables hold all that is in them.
async fn built(store: &Path, memtable_bytes: usize) -> Result<Arc<Datastore>, StoreError> {
    match built_as_is(store, memtable_bytes).await {
        Err(StoreError::Io(error)) if error.contains(LOG_AHEAD) => {
            tracing::warn!(%error, "the database's own logs are older than what it flushed, and are removed");
            remove_own_logs(store).map_err(|error| StoreError::Io(format!("{}: {error}", store.display())))?;
            built_as_is(store, memtable_bytes).await
        }
        built => built,
    }
}

fn remove_own_logs(store: &Path) -> std::io::Result<()> {
    for file in std::fs::read_dir(store.join("wal"))? {
        std::fs::remove_file(file?.path())?;
    }
    std::fs::File::open(store.join("wal"))?.sync_all()
}

async fn built_as_is(store: &Path, memtable_bytes: usize) -> Result<Arc<Datastore>, StoreError> {
    let settings = ConfigMap::empty()
        .with_key_value("surrealkv_max_memtable_size", memtable_bytes.to_string())
        .with_key_value("surrealkv_block_cache_capacity", BLOCK_CACHE_BYTES.to_string())
        .with_key_value("surrealkv_vlog_threshold", INLINE_BYTES.to_string())
        .with_key_value("live_query_engine", "inline");
    let url = format!("surrealkv://{}?sync=every", store.display());
    let built = Datastore::builder().with_config(settings).without_maintenance_tasks().build_with_path(&url).await;
    built.map_err(|error| {
        let text = error.to_string();
        let locked = text.contains("locked by another process") || text.contains("already locked");
        if locked {
            StoreError::Locked(store.display().to_string())
        } else {
            StoreError::Io(format!("{}: {text}", store.display()))
        }
    })
}

/// Takes the lease: the epoch rises, and the holder of the last one can write no more.
async fn take_lease(db: &Client<Db>, now: Timestamp) -> Result<i64, StoreError> {
    const TAKE: &str = "BEGIN;
        UPSERT lease:store SET epoch = (epoch ?? 0) + 1, since = $now RETURN NONE;
        LET $epoch = (SELECT VALUE epoch FROM ONLY lease:store);
        UPDATE meta:checkpoint SET epoch = $epoch RETURN NONE;
        COMMIT;";
    settle(db.query(TAKE).bind(("now", now.to_string())).await.map_err(io)?)?;
    lease(db).await
}

/// The epoch of the lease.
async fn lease(db: &Client<Db>) -> Result<i64, StoreError> {
    let mut response = settle(db.query("SELECT VALUE epoch FROM lease:store").await.map_err(io)?)?;
    let epochs: Vec<i64> = response.take(0).map_err(io)?;
    epochs.first().copied().ok_or_else(|| StoreError::Corrupt("the lease row is missing".into()))
}

async fn read_opened(db: &Client<Db>) -> Result<(Opened, Option<u64>), StoreError> {
    // A row of the log that a checkpoint removed can be back, when the removal went with a log of the database: see
    // `Surreal::surely`. The checkpoint itself was written again, and says so.
    let asked = db.query(
        "SELECT VALUE n FROM meta:checkpoint;
         LET $checkpoint = (SELECT VALUE n FROM ONLY meta:checkpoint);
         SELECT * FROM log WHERE n > $checkpoint ORDER BY n;
         SELECT VALUE segment FROM meta:checkpoint WHERE segment != NONE",
    );
    let mut response = settle(asked.await.map_err(io)?)?;
    let checkpoint: Vec<i64> = response.take(0).map_err(io)?;
    let log: Vec<LogRow> = response.take(2).map_err(io)?;
    let segment: Vec<i64> = response.take(3).map_err(io)?;
    let opened = Opened {
        checkpoint: checkpoint.first().map_or(0, |n| *n as u64),
        log: log.into_iter().map(|row| (row.n as u64, bytes_of(row.b))).collect(),
    };
    Ok((opened, segment.first().map(|segment| *segment as u64)))
}

/// Waits until `done` is dropped; returns `true` when the process used no CPU time for [`STANDSTILL_MAX`] before that,
/// and did not wait for the disk, or did for [`DISK_WAIT_MAX`].
fn stands_still(done: &Receiver<()>) -> bool {
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

/// Returns `true` if a thread of the process waits for the disk, where the system tells.
fn waits_for_disk() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    // Its name, in parentheses, may hold anything; the state is the letter after it.
    let state = |stat: String| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    let states = tasks.filter_map(|task| state(std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?));
    states.into_iter().any(|state| state == 'D')
}

/// CPU time that all threads of the process have used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// The file below `folder` that the process opened last and has still open, where the system tells.
fn last_opened(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let file = std::fs::read_link(entry.path()).ok()?;
        file.starts_with(&folder).then_some((number, file))
    });
    open.max().map(|(_, file)| file)
}

/// Takes a lock whatever panicked with it: what it guards is replaced whole.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
