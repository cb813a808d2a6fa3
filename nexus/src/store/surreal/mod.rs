//! The SurrealDB backend, and the only SurrealQL in the workspace.
//!
//! The embedded datastore is built by hand, because `connect()` sizes its caches by the machine's
//! memory; its maintenance tasks are left unstarted, because they write and sync every three seconds
//! for features that are not used here. The database runs on threads of its own with the deep stacks
//! it needs, so the process around it may be an ordinary one, paused test time included.

mod log;
mod schema;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb::types::{Array, Bytes as DbBytes, RecordId, SurrealValue};
use surrealdb_cnf::ConfigMap;
use surrealdb_engine_local::Datastore;
use tokio::runtime::Runtime;

use super::StoreError;
use super::backend::{Backend, Opened, PAGE_ELEMENTS, Page, Projected, Projection};
use super::batch::{Entry, Hash, Key, Kind, Stream, Versioned};
use super::state::ROW_BYTES;
use crate::clock::Timestamp;
use crate::ledger::Account;
use log::Log;

/// Memory the database may use for unflushed writes; it also bounds how much is replayed after a kill. The largest
/// checkpoint must fit in twice: see [`Surreal::surely`], and `DIRTY_BYTES_MAX` of the committer.
const MEMTABLE_BYTES: usize = 72 << 20;
/// Memory the database may use for blocks it has read.
const BLOCK_CACHE_BYTES: usize = 16 << 20;
/// The database recurses deeply.
const STACK_BYTES: usize = 10 << 20;
/// How far its threads stand back when processors are scarce: what somebody waits for is in the log, and goes first.
const BEHIND: i32 = 5;
/// Entries packed into one journal row.
const CHUNK_ENTRIES: usize = 256;

/// What of the database's logs is worth reading, as filter directives. It was closed when its tree is dropped, and warns of that
/// nevertheless, as it does of being shut down.
pub const LOGS: &str = "surrealdb=warn,surrealkv=warn,surrealkv::lsm=error,surrealdb::core::kvs::ds=off";

/// SurrealDB, embedded on SurrealKV, every flush synced.
pub struct Surreal {
    path: PathBuf,
    /// `None` once dropped: a runtime must not be dropped inside another one.
    runtime: Option<Runtime>,
    opened: Mutex<Option<(Arc<Datastore>, Client<Db>)>>,
    /// The epoch of our lease; every projection names it.
    epoch: AtomicI64,
    /// What is not projected yet; `None` until it is opened.
    log: Arc<Mutex<Option<Log>>>,
    /// The last row that the projection before covers.
    projected: AtomicU64,
}

#[derive(Clone, SurrealValue)]
struct LogRow {
    n: i64,
    b: DbBytes,
}

#[derive(Clone, SurrealValue)]
struct DocRow {
    id: RecordId,
    kind: String,
    name: String,
    v: i64,
    b: DbBytes,
}

#[derive(Clone, SurrealValue)]
struct JournalRow {
    id: RecordId,
    stream: String,
    last: i64,
    b: DbBytes,
}

#[derive(Clone, SurrealValue)]
struct StreamRow {
    id: RecordId,
    name: String,
    head: i64,
}

#[derive(Clone, SurrealValue)]
struct AccountRow {
    id: RecordId,
    name: String,
    b: String,
}

#[derive(Clone, SurrealValue)]
struct PageRow {
    id: RecordId,
    nexus: String,
    no: i64,
    b: DbBytes,
}

#[derive(Clone, SurrealValue)]
struct PayloadRow {
    id: RecordId,
    hash: String,
    b: DbBytes,
}

impl Surreal {
    /// The store in folder `path`, which is created when it is first opened.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the machine gives no threads.
    pub fn embedded(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("surrealdb")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(|| {
                if let Err(error) = rustix::process::setpriority_process(None, BEHIND) {
                    tracing::debug!(%error, "the database's threads do not stand back");
                }
            })
            .enable_all()
            .build()
            .map_err(|error| StoreError::Io(error.to_string()))?;
        Ok(Self {
            path: path.as_ref().to_path_buf(),
            runtime: Some(runtime),
            opened: Mutex::new(None),
            epoch: AtomicI64::new(0),
            log: Arc::default(),
            projected: AtomicU64::new(0),
        })
    }

    /// Runs `work` on the database's own threads.
    async fn on_its_threads<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let runtime = self.runtime.as_ref().ok_or(StoreError::Closed)?;
        runtime.spawn(work).await.map_err(|panic| StoreError::Io(format!("the database died: {panic}")))?
    }

    fn db(&self) -> Result<Client<Db>, StoreError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.as_ref().map(|(_, db)| db.clone()).ok_or(StoreError::Closed)
    }

    fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Writes so that it survives a kill. SurrealKV 0.21 logs a transaction first and finds out then that its memory
    /// table is full: it begins a new log and puts the transaction into the new table, so that when the old table is
    /// flushed, the old log goes with the only record of it. A log that was begun meanwhile is the sign, and the
    /// write, which must be one that may be repeated, and that changes something each time, is made again.
    async fn surely<F: Future<Output = Result<(), StoreError>>>(
        &self,
        write: impl Fn() -> F,
    ) -> Result<(), StoreError> {
        for _ in 0..REPEATS_MAX {
            let log = newest_log(&self.path);
            write().await?;
            if newest_log(&self.path) == log {
                return Ok(());
            }
            tracing::debug!("the database began a new log under a write, which is made again");
        }
        Err(StoreError::Io("the database begins a new log with every write".into()))
    }
    /// Writes rows in one transaction, and that everything up to a row of the log is there, if they say so.
    async fn write(&self, rows: Rows) -> Result<(), StoreError> {
        // The lease is read, not locked, so that appends go on beside this; whoever takes the lease
        // over rewrites meta:checkpoint, which makes a projection begun before that conflict.
        const BEGIN: &str = "BEGIN;
            LET $held = (SELECT VALUE epoch FROM ONLY lease:store);
            IF $held != $epoch { THROW 'lease lost' };";
        const OTHERS: &str = "
            FOR $r IN $accounts { UPSERT $r.id CONTENT $r RETURN NONE };
            FOR $r IN $streams { UPSERT $r.id CONTENT $r RETURN NONE };
            FOR $r IN $payloads { UPSERT $r.id CONTENT $r RETURN NONE };";
        // An UPSERT costs four times an INSERT of what is new and twice an UPDATE of what is not. Where one of them finds
        // that it was not so, the checkpoint fails, and the next one is unsure.
        const KNOWN: &str = "
            FOR $id IN $gone { DELETE $id RETURN NONE };
            FOR $r IN $old_docs {
                IF array::is_empty(UPDATE $r.id CONTENT $r RETURN VALUE v) { THROW 'a stored document is not there' };
            };
            FOR $r IN $old_pages {
                IF array::is_empty(UPDATE $r.id CONTENT $r RETURN VALUE no) { THROW 'a stored page is not there' };
            };
            FOR $some IN $new_docs { INSERT INTO doc $some RETURN NONE };
            FOR $some IN $new_pages { INSERT INTO page $some RETURN NONE };
            FOR $some IN $journals { INSERT INTO journal $some RETURN NONE };";
        // What was written just now and is written again, when what it leaves must differ: a row that does not change is
        // not written at all, and what is gone already leaves no trace of being removed again, unless it is there first.
        const AGAIN: &str = "
            FOR $id IN $gone { UPSERT $id CONTENT {} RETURN NONE; DELETE $id RETURN NONE; };
            FOR $id IN $written {
                IF array::is_empty(UPDATE $id SET again = (again ?? 0) + 1 RETURN VALUE id) { THROW 'what was written is not there' };
            };";
        const UNSURE: &str = "
            FOR $id IN $gone { UPSERT $id CONTENT {} RETURN NONE; DELETE $id RETURN NONE; };
            FOR $r IN $old_docs { UPSERT $r.id CONTENT $r RETURN NONE };
            FOR $r IN $old_pages { UPSERT $r.id CONTENT $r RETURN NONE };
            FOR $some IN $new_docs { FOR $r IN $some { UPSERT $r.id CONTENT $r RETURN NONE } };
            FOR $some IN $new_pages { FOR $r IN $some { UPSERT $r.id CONTENT $r RETURN NONE } };
            FOR $some IN $journals { FOR $r IN $some { UPSERT $r.id CONTENT $r RETURN NONE } };";
        // What goes ahead leaves the checkpoint where it is, which may be further than is known here: a write may have
        // failed after it was made.
        const AHEAD: &str = "
            UPDATE meta:checkpoint SET again = (again ?? 0) + 1 RETURN NONE;
            COMMIT;";
        const END: &str = "
            DELETE log WHERE n <= $upto RETURN NONE;
            UPDATE meta:checkpoint SET n = $upto, again = (again ?? 0) + 1 RETURN NONE;
            COMMIT;";
        let end = if rows.upto.is_some() { END } else { AHEAD };
        let (db, epoch, rows) = (self.db()?, self.epoch(), Arc::new(rows));
        let again = AtomicBool::new(false);
        self.surely(|| {
            let (db, rows) = (db.clone(), rows.clone());
            let again = again.swap(true, Ordering::SeqCst);
            self.on_its_threads(async move {
                let rows = Rows::clone(&rows);
                let asked = if again {
                    db.query([BEGIN, AGAIN, end].concat()).bind(("written", rows.written()))
                } else {
                    db.query([BEGIN, OTHERS, if rows.unsure { UNSURE } else { KNOWN }, end].concat())
                        .bind(("accounts", rows.accounts))
                        .bind(("streams", rows.streams))
                        .bind(("payloads", rows.payloads))
                        .bind(("old_docs", rows.old_docs))
                        .bind(("old_pages", rows.old_pages))
                        .bind(("new_docs", by_the_hundred(rows.new_docs)))
                        .bind(("new_pages", by_the_hundred(rows.new_pages)))
                        .bind(("journals", by_the_hundred(rows.journals)))
                };
                let asked = asked
                    .bind(("epoch", epoch))
                    .bind(("gone", rows.gone))
                    .bind(("upto", rows.upto.unwrap_or_default()));
                settle(asked.await.map_err(io)?).map(drop)
            })
        })
        .await
    }
}

/// How often a write is made again because the database began a new log under it.
const REPEATS_MAX: usize = 8;

/// The name of the newest log of the database in `store`.
fn newest_log(store: &Path) -> Option<std::ffi::OsString> {
    std::fs::read_dir(store.join("wal")).ok()?.filter_map(|file| Some(file.ok()?.file_name())).max()
}

impl Drop for Surreal {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Text of an error thrown by our own fencing check.
const LEASE_LOST: &str = "lease lost";

fn io(error: impl std::fmt::Display) -> StoreError {
    let text = error.to_string();
    if text.contains(LEASE_LOST) { StoreError::LeaseLost(0) } else { StoreError::Io(text) }
}

/// The first error of a request that is not merely "not executed because another failed".
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
    async fn open(&self, now: Timestamp) -> Result<Opened, StoreError> {
        let path = self.path.clone();
        std::fs::create_dir_all(&path).map_err(|error| StoreError::Io(format!("{}: {error}", path.display())))?;
        let (datastore, db, epoch, opened) = self
            .on_its_threads(async move {
                // SurrealKV 0.21 splits a log that its memory table cannot hold when it reads it back: one part is
                // flushed, which says that the whole log is, and the other is nowhere when it is killed again. A log holds
                // at most a full table and one transaction more, so it is read back into a table of three, and closed.
                if was_cut_short(&path) {
                    built(&path, 3 * MEMTABLE_BYTES).await?.shutdown().await.map_err(io)?;
                }
                let datastore = built(&path, MEMTABLE_BYTES).await?;
                datastore.check_version().await.map_err(io)?;
                datastore.bootstrap().await.map_err(io)?;
                let db: Client<Db> =
                    Client::<Db>::unstable_from_datastore(datastore.clone(), None).await.map_err(io)?;
                db.use_ns("lifeformd").use_db("main").await.map_err(io)?;
                schema::migrate(&db).await?;
                let epoch = take_lease(&db, now).await?;
                let opened = read_opened(&db).await?;
                Ok((datastore, db, epoch, opened))
            })
            .await?;
        let (folder, checkpoint) = (self.path.join("log"), opened.checkpoint);
        let read = tokio::task::spawn_blocking(move || Log::open(&folder, checkpoint));
        let (log, rows) = read.await.map_err(|panic| StoreError::Io(format!("the log died: {panic}")))??;
        // A store of before the log had files holds its last rows in the database.
        let mut whole: BTreeMap<u64, Bytes> = opened.log.into_iter().collect();
        whole.extend(rows);
        for (place, n) in whole.keys().enumerate() {
            let expected = opened.checkpoint + 1 + place as u64;
            if *n != expected {
                return Err(StoreError::Corrupt(format!("row {expected} of the log is missing, and row {n} is there")));
            }
        }
        self.projected.store(opened.checkpoint, Ordering::SeqCst);
        let opened = Opened { log: whole.into_iter().collect(), ..opened };
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
        self.epoch.store(epoch, Ordering::SeqCst);
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some((datastore, db));
        Ok(opened)
    }

    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError> {
        let log = self.log.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.as_mut().ok_or(StoreError::Closed)?.append(n, &row)
        });
        written.await.map_err(|panic| StoreError::Io(format!("the log died: {panic}")))?
    }

    async fn project(&self, mut projection: Projection) -> Result<(), StoreError> {
        // All that is put together here is put together by threads that stand back: it may be much.
        let (upto, unsure) = (projection.upto, projection.unsure);
        let ahead = || Rows { unsure, ..Rows::default() };
        let mut rows = ahead();
        let db = self.db()?;
        for some in by_the_page(std::mem::take(&mut projection.elements)) {
            let db = db.clone();
            let packed = async move { pages_of(&db, some).await?.into_iter().map(PackedPage::of).collect() };
            let pages: Vec<PackedPage> = self.on_its_threads(packed).await?;
            for page in pages {
                rows.add_page(page);
                if rows.bytes > AHEAD_BYTES {
                    self.write(std::mem::replace(&mut rows, ahead())).await?;
                }
            }
        }
        for (hash, body) in std::mem::take(&mut projection.payloads) {
            rows.add_payload(hash, &body);
            if rows.bytes > AHEAD_BYTES {
                self.write(std::mem::replace(&mut rows, ahead())).await?;
            }
        }
        let (forgotten, trimmed) = (projection.forgotten.clone(), projection.trimmed.clone());
        let all = async move {
            rows.gone.extend(rows_of(&db, &forgotten, &trimmed).await?);
            rows.add(projection)?;
            Ok(rows)
        };
        let rows = self.on_its_threads(all).await?;
        self.write(rows).await?;
        // One projection's worth of rows is kept longer than it must be: should the database lose the last one, they are there.
        let before = self.projected.swap(upto, Ordering::SeqCst);
        let log = self.log.clone();
        let trimmed = tokio::task::spawn_blocking(move || {
            let gone = log.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(|log| log.trim(before));
            gone.iter().flatten().for_each(|path| log::remove(path));
        });
        drop(trimmed.await);
        Ok(())
    }

    async fn document(&self, key: &Key) -> Result<Option<Versioned<Bytes>>, StoreError> {
        let (db, key) = (self.db()?, key.clone());
        self.on_its_threads(async move {
            let asked = db
                .query("SELECT * FROM type::record('doc', [$kind, $name])")
                .bind(("kind", key.0.as_str()))
                .bind(("name", key.1.to_string()));
            let rows: Vec<DocRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
            Ok(rows.into_iter().next().map(DocRow::document))
        })
        .await
    }

    async fn each(&self, keys: &[Key]) -> Result<Vec<Option<Versioned<Bytes>>>, StoreError> {
        let (db, keys) = (self.db()?, keys.to_vec());
        self.on_its_threads(async move {
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
                    known.extend(rows.remove(&name).map(|row| (key.clone(), row.document())));
                }
            }
            Ok(keys.iter().map(|key| known.get(key).cloned()).collect())
        })
        .await
    }

    async fn accounts(&self, names: &[Arc<str>]) -> Result<Vec<Option<Account>>, StoreError> {
        let (db, names) = (self.db()?, names.to_vec());
        self.on_its_threads(async move {
            let mut known: HashMap<String, Account> = HashMap::new();
            for some in names.chunks(ROWS_ASKED) {
                let some: Vec<String> = some.iter().map(ToString::to_string).collect();
                let asked = db
                    .query("SELECT * FROM array::map($names, |$name| type::record('account', $name))")
                    .bind(("names", some));
                let rows: Vec<AccountRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                for row in rows {
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
        let (db, after) = (self.db()?, after.to_owned());
        self.on_its_threads(async move {
            // An array sorts after every string, so [kind, []] ends the kind.
            let asked = db
                .query("SELECT * FROM doc:[$kind, $after]>..[$kind, []] LIMIT $limit")
                .bind(("kind", kind.as_str()))
                .bind(("after", after))
                .bind(("limit", limit.min(i64::MAX as usize) as i64));
            let rows: Vec<DocRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
            Ok(rows.into_iter().map(|row| (Arc::from(row.name.as_str()), row.document())).collect())
        })
        .await
    }

    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let (db, stream) = (self.db()?, stream.to_string());
        self.on_its_threads(async move {
            // Rows are named by their last entry, so the first row past `after` holds after + 1.
            let asked = db
                .query("SELECT * FROM journal:[$stream, $after]>..=[$stream, $to]")
                .bind(("stream", stream))
                .bind(("after", after.min(i64::MAX as u64) as i64))
                // A row packs up to so many, and is named by the last of them.
                .bind(("to", after.saturating_add((limit + CHUNK_ENTRIES) as u64).min(i64::MAX as u64) as i64));
            let rows: Vec<JournalRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
            let mut entries = Vec::new();
            for row in rows {
                let packed: Vec<Entry> = rmp_serde::from_slice(row.b.as_ref())
                    .map_err(|error| StoreError::Corrupt(format!("journal row of {}: {error}", row.stream)))?;
                // A checkpoint whose outcome was unknown may have left two rows with the same entries.
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
    }

    async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        let (db, stream) = (self.db()?, stream.to_string());
        self.on_its_threads(async move {
            let asked = db
                .query("SELECT * FROM type::record('stream', $stream); SELECT VALUE last FROM journal:[$stream, 0]..=[$stream, $short]")
                .bind(("stream", stream))
                .bind(("short", CHUNK_ENTRIES as i64));
            let mut asked = settle(asked.await.map_err(io)?)?;
            let known: Vec<StreamRow> = asked.take(0).map_err(io)?;
            let short: Vec<i64> = asked.take(1).map_err(io)?;
            let heads = known.iter().map(|row| row.head).chain(short);
            Ok(heads.max().unwrap_or(0) as u64)
        })
        .await
    }

    async fn heads(&self, streams: &[Stream]) -> Result<Vec<u64>, StoreError> {
        let (db, streams) = (self.db()?, streams.to_vec());
        self.on_its_threads(async move {
            let mut found = Vec::with_capacity(streams.len());
            for some in streams.chunks(ROWS_ASKED) {
                let names: Vec<String> = some.iter().map(ToString::to_string).collect();
                let asked = db
                    .query(
                        "SELECT * FROM array::map($streams, |$stream| type::record('stream', $stream));
                         RETURN array::map($streams, |$stream| array::max(
                             (SELECT VALUE last FROM journal:[$stream, 0]..=[$stream, $short])) ?? 0)",
                    )
                    .bind(("streams", names))
                    .bind(("short", CHUNK_ENTRIES as i64));
                let mut asked = settle(asked.await.map_err(io)?)?;
                let known: Vec<StreamRow> = asked.take(0).map_err(io)?;
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
        let (db, hash) = (self.db()?, hash.hex());
        self.on_its_threads(async move {
            let asked = db.query("SELECT * FROM type::record('payload', $hash)").bind(("hash", hash));
            let rows: Vec<PayloadRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
            Ok(rows.into_iter().next().map(|row| bytes_of(row.b)))
        })
        .await
    }

    async fn pages(&self, nexus: &str, from: u64, max: usize) -> Result<Vec<Page>, StoreError> {
        let (db, nexus) = (self.db()?, nexus.to_owned());
        self.on_its_threads(async move {
            let (mut from, mut found) = (from as i64, Vec::new());
            while found.len() < max {
                // A range that is open at its end costs the database a look at all of it, whatever the limit.
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
                    found.push((row.no as u64, unpack_page(&row)?));
                }
            }
            found.truncate(max);
            Ok(found)
        })
        .await
    }

    async fn close(&self) -> Result<(), StoreError> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((datastore, db)) = opened else { return Ok(()) };
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.on_its_threads(async move {
            drop(db);
            datastore.shutdown().await.map_err(io)
        })
        .await
    }
}

/// Whether the database in `store` was not closed: its own logs hold something.
fn was_cut_short(store: &Path) -> bool {
    let files = std::fs::read_dir(store.join("wal")).into_iter().flatten();
    files.filter_map(|file| file.ok()?.metadata().ok()).any(|file| file.len() > 0)
}

/// The datastore in `store`, with memory tables of that size.
async fn built(store: &Path, memtable_bytes: usize) -> Result<Arc<Datastore>, StoreError> {
    let settings = ConfigMap::empty()
        .with_key_value("surrealkv_max_memtable_size", memtable_bytes.to_string())
        .with_key_value("surrealkv_block_cache_capacity", BLOCK_CACHE_BYTES.to_string())
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

/// Takes the lease: the epoch rises, and whoever held the last one can flush no more.
async fn take_lease(db: &Client<Db>, now: Timestamp) -> Result<i64, StoreError> {
    const TAKE: &str = "BEGIN;
        UPSERT lease:store SET epoch = (epoch ?? 0) + 1, since = $now RETURN NONE;
        LET $epoch = (SELECT VALUE epoch FROM ONLY lease:store);
        UPDATE meta:checkpoint SET epoch = $epoch RETURN NONE;
        COMMIT;
        SELECT VALUE epoch FROM lease:store;";
    let mut response = settle(db.query(TAKE).bind(("now", now.to_string())).await.map_err(io)?)?;
    let last = response.num_statements() - 1;
    let epochs: Vec<i64> = response.take(last).map_err(io)?;
    epochs.first().copied().ok_or_else(|| StoreError::Corrupt("the lease row is gone".into()))
}

async fn read_opened(db: &Client<Db>) -> Result<Opened, StoreError> {
    // A row of the log that a checkpoint removed can be back, when the removal went with a log of the database: see
    // `Surreal::surely`. The checkpoint itself was written again, and tells it.
    let asked = db.query(
        "SELECT VALUE n FROM meta:checkpoint;
         LET $checkpoint = (SELECT VALUE n FROM ONLY meta:checkpoint);
         SELECT * FROM log WHERE n > $checkpoint ORDER BY n",
    );
    let mut response = settle(asked.await.map_err(io)?)?;
    let checkpoint: Vec<i64> = response.take(0).map_err(io)?;
    let log: Vec<LogRow> = response.take(2).map_err(io)?;
    Ok(Opened {
        checkpoint: checkpoint.first().map_or(0, |n| *n as u64),
        log: log.into_iter().map(|row| (row.n as u64, bytes_of(row.b))).collect(),
    })
}

/// The rows of streams that go as a whole, and those of others that hold nothing past a number.
async fn rows_of(db: &Client<Db>, whole: &[Stream], upto: &[(Stream, u64)]) -> Result<Vec<RecordId>, StoreError> {
    let whole = whole.iter().map(|stream| (stream, i64::MAX));
    let parts = upto.iter().map(|(stream, upto)| (stream, *upto as i64));
    let mut rows = Vec::new();
    for (stream, upto) in whole.chain(parts) {
        // Rows are named by their last entry.
        let asked = db
            .query("SELECT VALUE id FROM journal:[$stream, 0]..=[$stream, $upto]")
            .bind(("stream", stream.to_string()))
            .bind(("upto", upto));
        let journal: Vec<RecordId> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
        rows.extend(journal);
        if upto == i64::MAX {
            rows.push(RecordId::new("stream", stream.to_string()));
        }
    }
    Ok(rows)
}

/// A changed element: its graph, its number, and itself unless it was removed.
type Element = (Arc<str>, u64, Option<Bytes>);

/// Pages by nexus and number.
type Pages = BTreeMap<(Arc<str>, u64), ChangedPage>;

/// A page with the changes in it.
#[derive(Default)]
struct ChangedPage {
    /// Whether it is there already.
    stored: bool,
    elements: BTreeMap<u64, Bytes>,
}

/// A page as it is written.
enum PackedPage {
    /// Nothing stands in it any more.
    Empty(RecordId),
    Changed {
        row: PageRow,
        /// Whether it is there already.
        stored: bool,
        bytes: usize,
    },
}

impl PackedPage {
    fn of(((nexus, no), page): ((Arc<str>, u64), ChangedPage)) -> Result<Self, StoreError> {
        let (nexus, no) = (nexus.to_string(), no as i64);
        let id = record("page", &nexus, no);
        if page.elements.is_empty() {
            return Ok(Self::Empty(id));
        }
        let packed = pack_page(&page.elements)?;
        let bytes = packed.len();
        Ok(Self::Changed { row: PageRow { id, nexus, no, b: DbBytes::from(packed) }, stored: page.stored, bytes })
    }
}

/// Pages that are read and changed at once.
const PAGES_AT_ONCE: usize = 128;
/// Bytes of pages and payloads that may stand in one transaction with the rest. A page is written whole for one element
/// of it, so there may be many times more of them than was committed; they are written before, in transactions of their own.
const AHEAD_BYTES: usize = 2 << 20;

/// Rows asked for at once.
const ROWS_ASKED: usize = 512;

/// The first page from `from` on: over the gaps where there are none, such as that between concepts and links.
async fn next_page(db: &Client<Db>, nexus: &str, from: i64) -> Result<Option<i64>, StoreError> {
    let asked = db
        .query("SELECT VALUE no FROM page:[$nexus, $from]..[$nexus, []] LIMIT 1")
        .bind(("nexus", nexus.to_owned()))
        .bind(("from", from));
    let rows: Vec<i64> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
    Ok(rows.first().copied())
}

/// Changed elements, cut where a page ends and so many pages are full. Those of a graph stand together, in order.
fn by_the_page(elements: Vec<Element>) -> Vec<Vec<Element>> {
    let (mut pieces, mut pages): (Vec<Vec<Element>>, usize) = (Vec::new(), 0);
    let page_of = |(nexus, no, _): &Element| (nexus.clone(), no / PAGE_ELEMENTS);
    for element in elements {
        let is_new = pieces.last().and_then(|piece| piece.last()).is_none_or(|last| page_of(last) != page_of(&element));
        if is_new && pages % PAGES_AT_ONCE == 0 {
            pieces.push(Vec::new());
        }
        pages += usize::from(is_new);
        pieces.last_mut().expect("one was begun").push(element);
    }
    pieces
}

/// The pages that changed elements fall into, as they stand with the changes.
async fn pages_of(db: &Client<Db>, elements: Vec<Element>) -> Result<Pages, StoreError> {
    let mut numbers: BTreeMap<Arc<str>, Vec<i64>> = BTreeMap::new();
    let mut pages: Pages = BTreeMap::new();
    for (nexus, no, _) in &elements {
        let page = no / PAGE_ELEMENTS;
        if pages.insert((nexus.clone(), page), ChangedPage::default()).is_none() {
            numbers.entry(nexus.clone()).or_default().push(page as i64);
        }
    }
    for (nexus, numbers) in numbers {
        let asked = db
            .query("SELECT * FROM array::map($numbers, |$no| type::record('page', [$nexus, $no]))")
            .bind(("nexus", nexus.to_string()))
            .bind(("numbers", numbers));
        let rows: Vec<PageRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
        for row in rows {
            let elements = unpack_page(&row)?.into_iter().collect();
            pages.insert((nexus.clone(), row.no as u64), ChangedPage { stored: true, elements });
        }
    }
    for (nexus, no, body) in elements {
        let page = pages.entry((nexus, no / PAGE_ELEMENTS)).or_default();
        match body {
            Some(body) => page.elements.insert(no, body),
            None => page.elements.remove(&no),
        };
    }
    Ok(pages)
}

fn pack_page(elements: &BTreeMap<u64, Bytes>) -> Result<Vec<u8>, StoreError> {
    let list: Vec<(&u64, &Bytes)> = elements.iter().collect();
    rmp_serde::to_vec(&list).map_err(|error| StoreError::Corrupt(format!("a page does not encode: {error}")))
}

fn unpack_page(row: &PageRow) -> Result<Vec<(u64, Bytes)>, StoreError> {
    rmp_serde::from_slice(row.b.as_ref())
        .map_err(|error| StoreError::Corrupt(format!("page {} of nexus {}: {error}", row.no, row.nexus)))
}

fn bytes_of(bytes: DbBytes) -> Bytes {
    bytes.into_inner()
}

impl DocRow {
    fn document(self) -> Versioned<Bytes> {
        Versioned { version: self.v as u64, value: bytes_of(self.b) }
    }
}

/// A projection as rows; what is new by the hundred, which is what the database takes best.
#[derive(Clone, Default)]
struct Rows {
    /// The row of the log up to which everything is there with them.
    upto: Option<i64>,
    unsure: bool,
    gone: Vec<RecordId>,
    accounts: Vec<AccountRow>,
    streams: Vec<StreamRow>,
    payloads: Vec<PayloadRow>,
    old_docs: Vec<DocRow>,
    old_pages: Vec<PageRow>,
    new_docs: Vec<DocRow>,
    new_pages: Vec<PageRow>,
    journals: Vec<JournalRow>,
    /// Bytes of pages and payloads.
    bytes: usize,
}

/// New rows in one INSERT.
const ROWS_AT_ONCE: usize = 100;

fn by_the_hundred<T>(rows: Vec<T>) -> Vec<Vec<T>> {
    let mut rows = rows.into_iter();
    std::iter::from_fn(|| Some(rows.by_ref().take(ROWS_AT_ONCE).collect::<Vec<T>>()).filter(|some| !some.is_empty()))
        .collect()
}

/// A row that is named by two keys.
fn record(table: &str, of: &str, key: impl SurrealValue) -> RecordId {
    RecordId::new(table, Array::from(vec![of.into_value(), key.into_value()]))
}

impl Rows {
    /// The names of all that is written.
    fn written(&self) -> Vec<RecordId> {
        let accounts = self.accounts.iter().map(|row| &row.id);
        let streams = self.streams.iter().map(|row| &row.id);
        let payloads = self.payloads.iter().map(|row| &row.id);
        let docs = self.old_docs.iter().chain(&self.new_docs).map(|row| &row.id);
        let pages = self.old_pages.iter().chain(&self.new_pages).map(|row| &row.id);
        let journals = self.journals.iter().map(|row| &row.id);
        accounts.chain(streams).chain(payloads).chain(docs).chain(pages).chain(journals).cloned().collect()
    }

    /// A page as it stands; one that is empty goes.
    fn add_page(&mut self, page: PackedPage) {
        self.bytes += ROW_BYTES;
        match page {
            PackedPage::Empty(id) => self.gone.push(id),
            PackedPage::Changed { row, stored, bytes } => {
                self.bytes += bytes;
                if stored { &mut self.old_pages } else { &mut self.new_pages }.push(row);
            }
        }
    }

    fn add_payload(&mut self, hash: Hash, body: &Bytes) {
        self.bytes += ROW_BYTES + body.len();
        let (id, b) = (RecordId::new("payload", hash.hex()), DbBytes::from(body.to_vec()));
        self.payloads.push(PayloadRow { id, hash: hash.hex(), b });
    }

    /// Everything else of a projection, and that all of it is there now.
    fn add(&mut self, projection: Projection) -> Result<(), StoreError> {
        self.upto = Some(projection.upto as i64);
        for Projected { key: Key(kind, name), document, stored } in projection.documents {
            let (kind, name) = (kind.as_str().to_owned(), name.to_string());
            let id = record("doc", &kind, name.clone());
            let Some(document) = document else {
                self.gone.push(id);
                continue;
            };
            let row = DocRow { id, kind, name, v: document.version as i64, b: DbBytes::from(document.value.to_vec()) };
            if stored { &mut self.old_docs } else { &mut self.new_docs }.push(row);
        }
        for (stream, entries) in projection.journals {
            for chunk in entries.chunks(CHUNK_ENTRIES) {
                let packed = rmp_serde::to_vec_named(chunk)
                    .map_err(|error| StoreError::Corrupt(format!("entries of {stream} do not encode: {error}")))?;
                let last = chunk.last().map_or(0, |entry| entry.seq as i64);
                let id = record("journal", &stream, last);
                self.journals.push(JournalRow { id, stream: stream.to_string(), last, b: DbBytes::from(packed) });
            }
            // A short stream's head is that of its only rows.
            if let Some(last) = entries.last().filter(|last| last.seq > CHUNK_ENTRIES as u64) {
                let id = RecordId::new("stream", stream.to_string());
                self.streams.push(StreamRow { id, name: stream.to_string(), head: last.seq as i64 });
            }
        }
        for (name, account) in projection.accounts {
            let b = serde_json::to_string(&account)
                .map_err(|error| StoreError::Corrupt(format!("account {name}: {error}")))?;
            let id = RecordId::new("account", name.to_string());
            self.accounts.push(AccountRow { id, name: name.to_string(), b });
        }
        Ok(())
    }
}
