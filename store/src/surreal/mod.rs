//! The SurrealDB backend, and the only SurrealQL in the workspace.
//!
//! The log of an embedded store is a set of files beside the database (`log.rs`). Only checkpoints (`checkpoint.rs`)
//! write to the database.

mod before;
mod checkpoint;
mod database;
mod log;
mod manifest;
mod pages;
mod rows;
mod schema;
mod tables;
mod verify;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::StoreError;
use super::backend::{Backend, Page, Projection, Recovered};
use super::batch::{Entry, Hash, Key, Kind, Stream, Versioned};
use crate::clock::Timestamp;
use crate::ledger::Account;
use database::{Database, locked};
use log::Log;
use pages::{elements_of, next_page};
use rows::{AccountRow, CHUNK_ENTRIES, DocRow, JournalRow, PageRow, PayloadRow, StreamRow, Summed, bytes_of};
pub use verify::Verification;

/// Filter directives for the database's own logs. They turn off two warnings: a closed database warns when its tree
/// is dropped and when it shuts down.
pub const LOGS: &str = "surrealdb=warn,surrealkv=warn,surrealkv::lsm=error,surrealdb::core::kvs::ds=off";
/// `nice` value of the thread that checks all tables, and the number of bytes that it reads per second at most.
const CHECK_NICE: i32 = 15;
const CHECK_BYTES_A_SECOND: u64 = 256 << 20;
/// The number of rows per query.
const ROWS_ASKED: usize = 512;

/// SurrealDB, embedded on SurrealKV, with a sync for every flush.
pub struct Surreal {
    database: Database,
    /// The log, with the rows that no checkpoint covers; `None` until the store is opened.
    log: Arc<Mutex<Option<Log>>>,
    accept_loss: bool,
}

impl Surreal {
    /// Closes the database after a refused start, and restores its files to their earlier state.
    async fn leave_as_it_was(&self, refused: &StoreError) {
        let path = self.database.path();
        // Another process has opened the database, or its tasks may still run. The next start restores the files
        // then.
        let is_at_work = matches!(refused, StoreError::Locked(_)) || self.database.stands_still();
        if is_at_work || self.database.close_locked().await.is_err() {
            return;
        }
        if !self.database.end_threads().await || database::is_locked(path) {
            return;
        }
        if let Err(error) = before::put_back(path) {
            tracing::warn!(%error, path = %path.display(), "the files of the database cannot be put back now");
        }
        self.database.unlock();
    }

    /// Returns the store in folder `path`, which is created when it is first opened.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the system provides no threads.
    pub fn embedded(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Ok(Self { database: Database::new(path.as_ref())?, log: Arc::default(), accept_loss: false })
    }

    /// Sets the treatment of lost rows at the end of the log. With `true`, the store opens without them and moves the
    /// damaged files aside in the folder `log`. With `false` (the default), opening fails with [`StoreError::Lost`].
    #[must_use]
    pub fn accepting_loss(self, accept_loss: bool) -> Self {
        Self { accept_loss, ..self }
    }
}

/// The error text of the store's own fencing check.
const LEASE_LOST: &str = "lease lost";

/// SurrealKV's message about a block that does not match its checksum.
const BLOCK_DAMAGED: &str = "checksum verification failed";
/// The beginning of the error for such a block.
const DAMAGED: &str = "a table of the database is damaged (`lifeformd check --deep` names it)";

fn io(error: impl std::fmt::Display) -> StoreError {
    let text = error.to_string();
    if text.contains(LEASE_LOST) {
        StoreError::LeaseLost(0)
    } else if text.contains(BLOCK_DAMAGED) {
        StoreError::Corrupt(format!("{DAMAGED}: {text}"))
    } else {
        StoreError::Io(text)
    }
}

/// Adds the queried name to the error for a damaged block of a table, because a block holds many rows.
fn asking_for(what: impl std::fmt::Display) -> impl FnOnce(StoreError) -> StoreError {
    move |error| match error {
        StoreError::Corrupt(why) if why.starts_with(DAMAGED) => StoreError::Corrupt(format!("{what}: {why}")),
        other => other,
    }
}

/// Returns the response, or the first error in it that is not only "not executed because another failed".
fn settle(mut response: surrealdb::IndexedResults) -> Result<surrealdb::IndexedResults, StoreError> {
    let errors = response.take_errors();
    if errors.is_empty() {
        return Ok(response);
    }
    let mut texts: Vec<(usize, String)> = errors.into_iter().map(|(index, error)| (index, error.to_string())).collect();
    texts.sort();
    let cause = texts.iter().find(|(_, text)| !text.contains("not executed")).or(texts.first());
    Err(io(cause.map_or("unknown failure", |(_, text)| text)))
}

#[async_trait]
impl Backend for Surreal {
    async fn open(&self, now: Timestamp) -> Result<Recovered, StoreError> {
        let path = self.database.path();
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private
            .recursive(true)
            .create(path.join("log"))
            // The entry of the folder in its parent must be durable, too.
            .and_then(|()| path.parent().map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all()))
            .map_err(|error| StoreError::Io(format!("{}: {error}", path.display())))?;
        let (opened, noted) = match self.database.open(now).await {
            Ok(opened) => opened,
            Err(error) => {
                self.leave_as_it_was(&error).await;
                return Err(error);
            }
        };
        let (folder, checkpoint) = (path.join("log"), opened.checkpoint);
        let read = tokio::task::spawn_blocking(move || Log::open(&folder, checkpoint, noted));
        let read = read.await.map_err(|panic| StoreError::Io(format!("the log panicked: {panic}")));
        let mut found = match read.and_then(|read| read) {
            Ok(found) => found,
            Err(error) => {
                self.leave_as_it_was(&error).await;
                return Err(error);
            }
        };
        // A store from before the log had files holds its last rows in the database.
        let mut rows: BTreeMap<u64, Bytes> = opened.log.into_iter().collect();
        rows.extend(std::mem::take(&mut found.rows));
        if let Some((expected, n)) = (checkpoint + 1..).zip(rows.keys()).find(|(expected, n)| expected != *n) {
            let gap = format!("row {expected} of the log is missing, and row {n} is there");
            // The log is trimmed up to the checkpoint in the database, so a gap at the beginning of the log means
            // that the database lost data.
            let own_logs = path.join("wal");
            found.losses.push(match expected == checkpoint + 1 && self.database.has_recovered() {
                true => format!(
                    "{gap}: the database lost commits that it held; a file in {} is damaged",
                    own_logs.display()
                ),
                false => gap,
            });
            rows.retain(|n, _| *n < expected);
        }
        if !found.losses.is_empty() {
            let losses = found.losses.join("; ");
            if !self.accept_loss {
                let error = StoreError::Lost(losses);
                self.leave_as_it_was(&error).await;
                return Err(error);
            }
            if let Some(kept) = before::set_aside(path).map_err(|error| StoreError::Io(error.to_string()))? {
                tracing::warn!(path = %kept.display(), "kept the database's files from before its recovery");
            }
            tracing::warn!(%losses, last = rows.keys().next_back().unwrap_or(&checkpoint), "going on without lost commits");
            found.log.keep_only(&rows)?;
        }
        if noted.segment.is_none() || noted.store.is_none() {
            // The first segment begins now, and the database notes it, so that a log that is removed later is missed.
            found.log.begin_first()?;
            self.note_log(&found.log).await?;
        }
        found.accept()?;
        before::forget(path).map_err(|error| StoreError::Io(format!("{}: {error}", path.display())))?;
        *locked(&self.log) = Some(found.log);
        Ok(Recovered { checkpoint, log: rows.into_iter().collect() })
    }

    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError> {
        let log = self.log.clone();
        let written =
            tokio::task::spawn_blocking(move || locked(&log).as_mut().ok_or(StoreError::Closed)?.append(n, &row));
        written.await.map_err(|panic| StoreError::Io(format!("the log panicked: {panic}")))?
    }

    async fn project(&self, projection: Projection) -> Result<(), StoreError> {
        self.write_checkpoint(projection).await
    }

    async fn document(&self, key: &Key) -> Result<Option<Versioned<Bytes>>, StoreError> {
        let (db, named, key) = (self.database.reader().await?, key, key.clone());
        self.database
            .run(async move {
                let asked = db
                    .query("SELECT * FROM type::record('doc', [$kind, $name])")
                    .bind(("kind", key.0.as_str()))
                    .bind(("name", key.1.to_string()));
                let rows: Vec<DocRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                rows.into_iter().next().map(|row| Ok(row.whole()?.document())).transpose()
            })
            .await
            .map_err(asking_for(named))
    }

    async fn each(&self, keys: &[Key]) -> Result<Vec<Option<Versioned<Bytes>>>, StoreError> {
        let (db, keys) = (self.database.reader().await?, keys.to_vec());
        self.database
            .run(async move {
                let mut known: HashMap<Key, Versioned<Bytes>> = HashMap::new();
                for some in keys.chunks(ROWS_ASKED) {
                    let names: Vec<Vec<String>> =
                        some.iter().map(|key| vec![key.0.as_str().to_owned(), key.1.to_string()]).collect();
                    let asked = db
                        .query("SELECT * FROM array::map($names, |$name| type::record('doc', $name))")
                        .bind(("names", names));
                    let rows: Vec<DocRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                    let mut rows: HashMap<(String, String), DocRow> =
                        rows.into_iter().map(|row| ((row.kind.clone(), row.name.clone()), row)).collect();
                    for key in some {
                        let name = (key.0.as_str().to_owned(), key.1.to_string());
                        if let Some(row) = rows.remove(&name) {
                            known.insert(key.clone(), row.whole()?.document());
                        }
                    }
                }
                Ok(keys.iter().map(|key| known.get(key).cloned()).collect())
            })
            .await
    }

    async fn accounts(&self, names: &[Arc<str>]) -> Result<Vec<Option<Account>>, StoreError> {
        let (db, names) = (self.database.reader().await?, names.to_vec());
        self.database
            .run(async move {
                let mut known: HashMap<String, Account> = HashMap::new();
                for some in names.chunks(ROWS_ASKED) {
                    let some: Vec<String> = some.iter().map(ToString::to_string).collect();
                    let asked = db
                        .query("SELECT * FROM array::map($names, |$name| type::record('account', $name))")
                        .bind(("names", some));
                    let rows: Vec<AccountRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                    for row in rows {
                        let row = row.whole()?;
                        let account = serde_json::from_str(&row.b)
                            .map_err(|error| StoreError::Corrupt(format!("account {}: {error}", row.name)))?;
                        known.insert(row.name, account);
                    }
                }
                Ok(names.iter().map(|name| known.get(&**name).cloned()).collect())
            })
            .await
    }

    async fn documents(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<Bytes>)>, StoreError> {
        let (db, after) = (self.database.reader().await?, after.to_owned());
        self.database
            .run(async move {
                // An array sorts after every string, so [kind, []] is the end of the kind.
                let asked = db
                    .query("SELECT * FROM doc:[$kind, $after]>..[$kind, []] LIMIT $limit")
                    .bind(("kind", kind.as_str()))
                    .bind(("after", after))
                    .bind(("limit", limit.min(i64::MAX as usize) as i64));
                let rows: Vec<DocRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                let whole = rows.into_iter().map(DocRow::whole);
                whole.map(|row| row.map(|row| (Arc::from(row.name.as_str()), row.document()))).collect()
            })
            .await
            .map_err(asking_for(format_args!("documents of kind {}", kind.as_str())))
    }

    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let (db, named, stream) = (self.database.reader().await?, stream, stream.to_string());
        self.database
            .run(async move {
                // The key of a row contains the number of its last entry. The first row past `after` therefore
                // contains entry after + 1, and each row contains at least one requested entry. Rows of large entries
                // hold only one; the limit avoids reading the others.
                let asked = db
                    .query("SELECT * FROM journal:[$stream, $after]>..=[$stream, $to] LIMIT $limit")
                    .bind(("limit", limit.min(i64::MAX as usize) as i64))
                    .bind(("stream", stream))
                    .bind(("after", after.min(i64::MAX as u64) as i64))
                    // A row packs up to CHUNK_ENTRIES entries, and its key names the last of them.
                    .bind(("to", after.saturating_add((limit + CHUNK_ENTRIES) as u64).min(i64::MAX as u64) as i64));
                let rows: Vec<JournalRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                let mut entries = Vec::new();
                for row in rows {
                    let row = row.whole()?;
                    let packed: Vec<Entry> = rmp_serde::from_slice(row.b.as_ref())
                        .map_err(|error| StoreError::Corrupt(format!("journal row of {}: {error}", row.stream)))?;
                    // A checkpoint with an unknown outcome may have left two rows with the same entries.
                    let known = entries.last().map_or(after, |entry: &Entry| entry.seq);
                    entries.extend(packed.into_iter().filter(|entry| entry.seq > known));
                    if entries.len() >= limit {
                        break;
                    }
                }
                entries.truncate(limit);
                Ok(entries)
            })
            .await
            .map_err(asking_for(format_args!("journal {named}")))
    }

    async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        let (db, stream) = (self.database.reader().await?, stream.to_string());
        self.database.run(async move {
            let asked = db
                .query("SELECT * FROM type::record('stream', $stream); SELECT VALUE record::id(id)[1] FROM journal:[$stream, 0]..=[$stream, $short]")
                .bind(("stream", stream))
                .bind(("short", CHUNK_ENTRIES as i64));
            let mut asked = settle(asked.await.map_err(io)?)?;
            let known = whole::<StreamRow>(asked.take(0).map_err(io)?)?;
            let short: Vec<i64> = asked.take(1).map_err(io)?;
            let heads = known.iter().map(|row| row.head).chain(short);
            Ok(heads.max().unwrap_or(0) as u64)
        })
        .await
    }

    async fn heads(&self, streams: &[Stream]) -> Result<Vec<u64>, StoreError> {
        let (db, streams) = (self.database.reader().await?, streams.to_vec());
        self.database
            .run(async move {
                let mut found = Vec::with_capacity(streams.len());
                for some in streams.chunks(ROWS_ASKED) {
                    let names: Vec<String> = some.iter().map(ToString::to_string).collect();
                    let asked = db
                        .query(
                            "SELECT * FROM array::map($streams, |$stream| type::record('stream', $stream));
                         RETURN array::map($streams, |$stream| array::max(
                             (SELECT VALUE record::id(id)[1] FROM journal:[$stream, 0]..=[$stream, $short])) ?? 0)",
                        )
                        .bind(("streams", names))
                        .bind(("short", CHUNK_ENTRIES as i64));
                    let mut asked = settle(asked.await.map_err(io)?)?;
                    let known = whole::<StreamRow>(asked.take(0).map_err(io)?)?;
                    let short: Vec<i64> = asked.take(1).map_err(io)?;
                    let known: HashMap<&str, i64> = known.iter().map(|row| (row.name.as_str(), row.head)).collect();
                    let heads = some.iter().zip(short);
                    found.extend(
                        heads.map(|(stream, short)| known.get(&**stream).map_or(short, |head| short.max(*head)) as u64),
                    );
                }
                Ok(found)
            })
            .await
    }

    async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError> {
        let (db, named, hash) = (self.database.reader().await?, hash, hash.hex());
        self.database
            .run(async move {
                let asked = db.query("SELECT * FROM type::record('payload', $hash)").bind(("hash", hash));
                let rows: Vec<PayloadRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                rows.into_iter().next().map(|row| Ok(bytes_of(row.whole()?.b))).transpose()
            })
            .await
            .map_err(asking_for(format_args!("payload {}", named.hex())))
    }

    async fn pages(&self, nexus: &str, from: u64, max: usize) -> Result<Vec<Page>, StoreError> {
        let (db, named, nexus) = (self.database.reader().await?, nexus, nexus.to_owned());
        self.database
            .run(async move {
                let (mut from, mut found) = (from as i64, Vec::new());
                while found.len() < max {
                    // The database scans a range without an end completely, whatever the limit.
                    let asked = db
                        .query("SELECT * FROM page:[$nexus, $from]..[$nexus, $to]")
                        .bind(("nexus", nexus.clone()))
                        .bind(("from", from))
                        .bind(("to", from.saturating_add(max as i64)));
                    let rows: Vec<PageRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                    from = from.saturating_add(max as i64);
                    if rows.is_empty() {
                        match next_page(&db, &nexus, from).await? {
                            Some(next) => from = next,
                            None => break,
                        }
                    }
                    for row in rows {
                        let row = row.whole()?;
                        found.push((row.no as u64, elements_of(&db, row).await?));
                    }
                }
                found.truncate(max);
                Ok(found)
            })
            .await
            .map_err(asking_for(format_args!("elements of nexus {named}")))
    }

    async fn damaged_files(&self) -> Result<Vec<String>, StoreError> {
        let (found, damaged) = oneshot::channel();
        // Dropping the call drops `_asks`, which ends the reading.
        let (_asks, asking) = std::sync::mpsc::channel::<()>();
        let path = self.database.path().to_path_buf();
        let reading = std::thread::Builder::new().name("tables".into()).spawn(move || {
            let nice = rustix::process::setpriority_process(None, CHECK_NICE);
            tracing::debug!(?nice, "reading all tables of the database");
            let mut unpaused = 0;
            let damaged = tables::damaged(&path, |bytes| {
                unpaused += bytes;
                let pause = match unpaused < CHECK_BYTES_A_SECOND / 20 {
                    true => Duration::ZERO,
                    false => Duration::from_millis(50),
                };
                unpaused = if pause.is_zero() { unpaused } else { 0 };
                matches!(asking.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
            });
            let _ = found.send(damaged);
        });
        reading.map_err(|error| StoreError::Io(error.to_string()))?;
        let damaged = damaged.await.map_err(|_| StoreError::Io("the reading of the tables ended early".into()))??;
        Ok(damaged.iter().map(|path| path.display().to_string()).collect())
    }

    async fn close(&self) -> Result<(), StoreError> {
        *locked(&self.log) = None;
        self.database.close().await
    }
}

/// Checks the checksums of all rows.
fn whole<R: Summed>(rows: Vec<R>) -> Result<Vec<R>, StoreError> {
    rows.into_iter().map(Summed::whole).collect()
}
