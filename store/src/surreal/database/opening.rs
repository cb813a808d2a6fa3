//! Opening the files of the database: probes, locks, repairs and the lease.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb_cnf::ConfigMap;
use surrealdb_engine_local::Datastore;

use super::{
    BLOCK_CACHE_BYTES, INLINE_BYTES, LOCK, LOG_AHEAD, MEMTABLE_BYTES, Open, PROBE, ROOM_BYTES, flushed, shut, wal_files,
};
use crate::backend::Recovered;
use crate::surreal::log::Noted;
use crate::surreal::rows::{LogRow, bytes_of};
use crate::surreal::{StoreError, io, settle, tables};

/// The free disk space, in bytes, below which a failed opening is attributed to a full disk.
pub(super) const LOW_BYTES: u64 = 64 << 20;

/// Returns `true` if a process, possibly this one, holds the lock of the database in `path`.
pub(crate) fn is_locked(path: &Path) -> bool {
    let tried = std::fs::File::open(path.join(LOCK)).map(|file| file.try_lock());
    matches!(tried, Ok(Err(std::fs::TryLockError::WouldBlock)))
}

/// Locks the folder of a database for this process.
///
/// # Errors
/// [`StoreError::Locked`] when another process holds the lock.
pub(super) fn lock_folder(path: &Path) -> Result<std::fs::File, StoreError> {
    let failed = |error: std::io::Error| StoreError::Io(format!("{}: {error}", path.display()));
    let folder = std::fs::File::open(path).map_err(failed)?;
    match rustix::fs::flock(&folder, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(folder),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked(path.display().to_string())),
        // The file system does not support such locks; SurrealKV's own lock must suffice.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => Ok(folder),
        Err(error) => Err(failed(error.into())),
    }
}

/// The mark of an error of the system, such as a full disk. It is no damage, although it may name a table.
const SYSTEM_ERROR: &str = "os error";
/// Words in SurrealKV's errors about damaged files.
const DAMAGES: [&str; 8] =
    ["manifest", "sst", "block", "sequence", "fill whole buffer", "checksum", "corrupt", "the database is damaged"];

fn is_damage(why: &str) -> bool {
    !why.contains(SYSTEM_ERROR) && DAMAGES.iter().any(|word| why.to_lowercase().contains(word))
}

/// Adds the location and advice to an error about a full disk or damaged database files. `unreadable` are the tables
/// that are damaged at their ends.
pub(super) fn with_advice(path: &Path, unreadable: &[PathBuf], error: StoreError) -> StoreError {
    let left = rustix::fs::statvfs(path).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let advised = |why: String| {
        let tables = match unreadable.is_empty() {
            true => tables::damaged(path, |_| true).unwrap_or_default(),
            false => unreadable.to_vec(),
        };
        let tables: Vec<String> = tables.iter().map(|table| table.display().to_string()).collect();
        if !tables.is_empty() {
            let tables = tables.join(" and ");
            return format!(
                "{why}. Damaged or missing: {tables}; tables never change, so any backup that has them will do. If none \
                 ever had them, the manifest is damaged: put it back from the last backup"
            );
        }
        advised(path, left, why)
    };
    match error {
        StoreError::Io(why) => StoreError::Io(advised(why)),
        StoreError::Corrupt(why) if is_damage(&why) => StoreError::Corrupt(advised(why)),
        StoreError::Corrupt(why) => StoreError::Corrupt(advised(format!("{why} (the database is damaged)"))),
        other => other,
    }
}

/// Adds the location and advice to the text of an error. `left` is the free disk space in bytes.
fn advised(path: &Path, left: Option<u64>, why: String) -> String {
    match left.filter(|left| *left < LOW_BYTES) {
        Some(left) => {
            let room = format!("the disk of {} has {} KiB left: make room and start again", path.display(), left >> 10);
            match is_damage(&why) {
                true => format!("{why}. First, {room}; should that not help, put the files back from a backup"),
                false => format!("{why}: {room}"),
            }
        }
        None if is_damage(&why) => {
            format!("{why}. The files of the database are in {}: put them back from a backup", path.display())
        }
        None => why,
    }
}

/// Checks that the disk accepts writes and has space for the data that the database flushes when it is closed.
pub(super) fn probe(path: &Path) -> Result<(), StoreError> {
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

/// Opens the database in `path`.
pub(super) async fn open_database(path: &Path) -> Result<Open, StoreError> {
    has_manifest(path)?;
    wal_files::check(path)?;
    // When SurrealKV 0.21 reads back a log that is larger than its memory table, it splits the log. It flushes one
    // part, which marks the whole log as flushed, and another kill then loses the other part. A log holds at most a
    // full table and one more transaction. It is therefore read into a table of three times the size, which is
    // flushed by closing the database.
    if needs_recovery(path) {
        shut(built(path, 3 * MEMTABLE_BYTES).await?, path).await?;
        if needs_recovery(path) {
            fill_and_flush(path).await?;
        }
    }
    let datastore = built(path, MEMTABLE_BYTES).await?;
    datastore.check_version().await.map_err(io)?;
    datastore.bootstrap().await.map_err(io)?;
    let client: Client<Db> = Client::<Db>::unstable_from_datastore(datastore.clone(), None).await.map_err(io)?;
    client.use_ns("lifeformd").use_db("main").await.map_err(io)?;
    Ok(Open { datastore, client })
}

/// Writes a row to the database in `path` and closes it, so that it flushes its memory table and removes its logs.
///
/// A process that is killed within the first record of a log leaves a log with bytes and no whole record. SurrealKV
/// 0.21 reads nothing from it, flushes no empty memory table when it is closed, and keeps the log.
async fn fill_and_flush(path: &Path) -> Result<(), StoreError> {
    let datastore = built(path, 3 * MEMTABLE_BYTES).await?;
    // An empty database has no version yet, and one with rows and without a version counts as an old one.
    datastore.check_version().await.map_err(io)?;
    let client: Client<Db> = Client::<Db>::unstable_from_datastore(datastore.clone(), None).await.map_err(io)?;
    client.use_ns("lifeformd").use_db("main").await.map_err(io)?;
    settle(client.query("UPSERT recovery:last SET n = (n ?? 0) + 1 RETURN NONE").await.map_err(io)?)?;
    drop(client);
    shut(datastore, path).await?;
    flushed(path)
}

/// Checks that a database with tables has a manifest. Without one, SurrealKV 0.21 removes the tables as leftovers.
///
/// # Errors
/// [`StoreError::Corrupt`]; nothing was changed.
pub(super) fn has_manifest(store: &Path) -> Result<(), StoreError> {
    let is_empty = |name: &str| std::fs::read_dir(store.join(name)).map_or(true, |mut files| files.next().is_none());
    if is_empty("sstables") || !is_empty("manifest") {
        return Ok(());
    }
    let manifest = store.join("manifest");
    Err(StoreError::Corrupt(format!("{} is missing, and tables are there: put it back", manifest.display())))
}

/// Returns `true` if the database in `store` was not closed, which means that its own logs are not empty.
pub(super) fn needs_recovery(store: &Path) -> bool {
    let files = std::fs::read_dir(store.join("wal")).into_iter().flatten();
    files.filter_map(|file| file.ok()?.metadata().ok()).any(|file| file.len() > 0)
}

/// Opens the datastore in `store`, with memory tables of `memtable_bytes` bytes.
///
/// SurrealKV 0.21 increments the number of its log before it has created the new file. If the file cannot be created
/// and the memory table is flushed afterwards, the manifest names a log past the newest file, and the database no
/// longer opens. All existing files are then older than that log, so the tables hold all their data, and the files
/// can be removed.
pub(super) async fn built(store: &Path, memtable_bytes: usize) -> Result<Arc<Datastore>, StoreError> {
    match built_as_is(store, memtable_bytes).await {
        Err(StoreError::Io(error)) if error.contains(LOG_AHEAD) => {
            tracing::warn!(%error, "the database's own logs are older than what it flushed, and are removed");
            remove_own_logs(store).map_err(|error| StoreError::Io(format!("{}: {error}", store.display())))?;
            built_as_is(store, memtable_bytes).await
        }
        built => built,
    }
}

pub(super) fn remove_own_logs(store: &Path) -> std::io::Result<()> {
    for file in std::fs::read_dir(store.join("wal"))? {
        std::fs::remove_file(file?.path())?;
    }
    std::fs::File::open(store.join("wal"))?.sync_all()
}

pub(super) async fn built_as_is(store: &Path, memtable_bytes: usize) -> Result<Arc<Datastore>, StoreError> {
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

/// Takes the lease: increments the epoch, so that the previous holder can no longer write.
pub(super) async fn take_lease(db: &Client<Db>, now: crate::Timestamp) -> Result<i64, StoreError> {
    const TAKE: &str = "BEGIN;
        UPSERT lease:store SET epoch = (epoch ?? 0) + 1, since = $now RETURN NONE;
        LET $epoch = (SELECT VALUE epoch FROM ONLY lease:store);
        UPDATE meta:checkpoint SET epoch = $epoch RETURN NONE;
        COMMIT;";
    settle(db.query(TAKE).bind(("now", now.to_string())).await.map_err(io)?)?;
    lease(db).await
}

/// Returns the epoch of the lease.
pub(super) async fn lease(db: &Client<Db>) -> Result<i64, StoreError> {
    let mut response = settle(db.query("SELECT VALUE epoch FROM lease:store").await.map_err(io)?)?;
    let epochs: Vec<i64> = response.take(0).map_err(io)?;
    epochs.first().copied().ok_or_else(|| StoreError::Corrupt("the lease row is missing".into()))
}

pub(super) async fn read_recovered(db: &Client<Db>) -> Result<(Recovered, Noted), StoreError> {
    // A log row that a checkpoint removed can reappear if the removal was lost with a log of the database: see
    // `Surreal::write_verified`. The checkpoint itself was repeated, so its position is correct.
    let asked = db.query(
        "SELECT VALUE n FROM meta:checkpoint;
         LET $checkpoint = (SELECT VALUE n FROM ONLY meta:checkpoint);
         SELECT * FROM log WHERE n > $checkpoint ORDER BY n;
         SELECT VALUE segment FROM meta:checkpoint WHERE segment != NONE;
         SELECT VALUE store FROM meta:checkpoint WHERE store != NONE",
    );
    let mut response = settle(asked.await.map_err(io)?)?;
    let checkpoint: Vec<i64> = response.take(0).map_err(io)?;
    let log: Vec<LogRow> = response.take(2).map_err(io)?;
    let (segment, store): (Vec<i64>, Vec<i64>) = (response.take(3).map_err(io)?, response.take(4).map_err(io)?);
    let opened = Recovered {
        checkpoint: checkpoint.first().map_or(0, |n| *n as u64),
        log: log.into_iter().map(|row| (row.n as u64, bytes_of(row.b))).collect(),
    };
    let first = |numbers: Vec<i64>| numbers.first().map(|number| *number as u64);
    Ok((opened, Noted { segment: first(segment), store: first(store) }))
}

/// Takes a lock even after a panic in its holder: every write replaces the guarded value completely.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_opening_names_the_full_disk_before_a_backup() {
        let advised = |left, why: &str| advised(Path::new("/data/store"), left, why.to_owned());
        for (left, why, says) in [
            (Some(1 << 20), "manifest is cut short", "First, the disk of /data/store has 1024 KiB left: make room"),
            (Some(0), "it cannot be created", "it cannot be created: the disk of /data/store has 0 KiB left"),
            (Some(1 << 30), "manifest is cut short", "are in /data/store: put them back from a backup"),
            (None, "block checksum", "put them back from a backup"),
        ] {
            assert!(advised(left, why).contains(says), "{}", advised(left, why));
        }
        assert_eq!(advised(Some(1 << 30), "locked"), "locked");
    }
}
