//! Checkpoints: what was committed since the last one, written in one transaction with how far it reaches.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb::types::RecordId;

use super::database::{Reader, locked};
use super::log::{self, Log};
use super::pages::{PackedPage, by_the_page, pages_of};
use super::rows::{Rows, by_the_hundred};
use super::{StoreError, Surreal, io, settle};
use crate::backend::Projection;
use crate::batch::Stream;

/// Bytes of pages and payloads that may stand in one transaction with the rest. A page is written whole for one element
/// of it, so there may be many times more of them than was committed; they are written before, in transactions of their
/// own.
const AHEAD_BYTES: usize = 2 << 20;

impl Surreal {
    /// Writes a projection, and trims the log to the one before it.
    ///
    /// # Errors
    /// When it cannot be written, or the database not be opened again after a write that failed.
    pub(super) async fn write_checkpoint(&self, mut projection: Projection) -> Result<(), StoreError> {
        self.database.trust_again().await?;
        // All that is put together here is put together by threads with a lower priority: it may be much.
        let (upto, unsure) = (projection.upto, projection.unsure);
        let ahead = || Rows { unsure, ..Rows::default() };
        let mut rows = ahead();
        let db = Arc::new(self.database.reader().await?);
        for some in by_the_page(std::mem::take(&mut projection.elements)) {
            let from = db.clone();
            let packed = async move { pages_of(&from, some).await?.into_iter().map(PackedPage::of).collect() };
            let pages: Vec<PackedPage> = self.database.run(packed).await?;
            for page in pages {
                rows.add_page(page);
                if rows.bytes > AHEAD_BYTES {
                    self.write(&db, std::mem::replace(&mut rows, ahead())).await?;
                }
            }
        }
        for (hash, body) in std::mem::take(&mut projection.payloads) {
            rows.add_payload(hash, &body);
            if rows.bytes > AHEAD_BYTES {
                self.write(&db, std::mem::replace(&mut rows, ahead())).await?;
            }
        }
        let (forgotten, trimmed) = (projection.forgotten.clone(), projection.trimmed.clone());
        let all_of = db.clone();
        let all = async move {
            rows.gone.extend(rows_of(&all_of, &forgotten, &trimmed).await?);
            rows.add(projection)?;
            Ok(rows)
        };
        let rows = self.database.run(all).await?;
        self.write(&db, rows).await?;
        // One projection's worth of rows is kept longer than it must be: should the database lose the last one, they
        // are there.
        let before = self.database.trust(upto);
        let log = self.log.clone();
        let trimmed = tokio::task::spawn_blocking(move || {
            let gone = locked(&log).as_mut().map(|log| log.trim(before));
            gone.iter().flatten().for_each(|path| log::remove(path));
        });
        drop(trimmed.await);
        Ok(())
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
            let log = newest_log(self.database.path());
            write().await?;
            if newest_log(self.database.path()) == log {
                return Ok(());
            }
            tracing::debug!("the database began a new log under a write, which is made again");
        }
        Err(StoreError::Io("the database begins a new log with every write".into()))
    }

    /// Writes rows in one transaction, and that everything up to a row of the log is there, if they say so.
    ///
    /// # Errors
    /// Any; nobody knows then what of it is there, and the database is not trusted until it was opened again.
    async fn write(&self, db: &Arc<Reader>, rows: Rows) -> Result<(), StoreError> {
        let written = self.write_rows(db.clone(), rows).await;
        if written.is_err() {
            self.database.distrust();
        }
        written
    }

    async fn write_rows(&self, db: Arc<Reader>, rows: Rows) -> Result<(), StoreError> {
        // The lease is read, not locked, so that appends go on beside this; whoever takes the lease
        // over rewrites meta:checkpoint, which makes a projection begun before that conflict.
        const BEGIN: &str = "BEGIN;
            LET $held = (SELECT VALUE epoch FROM ONLY lease:store);
            IF $held != $epoch { THROW 'lease lost' };";
        const OTHERS: &str = "
            FOR $r IN $accounts { UPSERT $r.id CONTENT $r RETURN NONE };
            FOR $r IN $streams { UPSERT $r.id CONTENT $r RETURN NONE };
            FOR $r IN $payloads { UPSERT $r.id CONTENT $r RETURN NONE };";
        // An UPSERT costs four times an INSERT of what is new and twice an UPDATE of what is not. Where one of them
        // finds that it was not so, the checkpoint fails, and the next one is unsure.
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
        // What was written just now and is written again, when what it leaves must differ: a row that does not change
        // is not written at all, and what is gone already leaves no trace of being removed again, unless it is there
        // first.
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
            UPDATE meta:checkpoint SET n = $upto, segment = $segment, again = (again ?? 0) + 1 RETURN NONE;
            COMMIT;";
        let end = if rows.upto.is_some() { END } else { AHEAD };
        let (epoch, rows) = (self.database.epoch(), Arc::new(rows));
        let segment = locked(&self.log).as_ref().and_then(Log::newest);
        let again = AtomicBool::new(false);
        self.surely(|| {
            let (db, rows) = (db.clone(), rows.clone());
            let again = again.swap(true, Ordering::SeqCst);
            self.database.write(async move {
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
                    .bind(("segment", segment.map(|segment| segment as i64)))
                    .bind(("upto", rows.upto.unwrap_or_default()));
                settle(asked.await.map_err(io)?).map(drop)
            })
        })
        .await
    }
}

/// The most repetitions of a write because the database began a new log under it.
const REPEATS_MAX: usize = 8;

/// The name of the newest log of the database in `store`.
fn newest_log(store: &Path) -> Option<std::ffi::OsString> {
    std::fs::read_dir(store.join("wal")).ok()?.filter_map(|file| Some(file.ok()?.file_name())).max()
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
