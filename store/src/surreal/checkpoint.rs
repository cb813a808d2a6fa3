//! Checkpoints: the changes since the last checkpoint, written in one transaction together with the new position.

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

/// The maximum size, in bytes, of pages and payloads in the transaction of the checkpoint. The checkpoint writes a
/// whole page for each changed element, so pages may be many times larger than the committed data. Larger amounts are
/// written before, in separate transactions.
const AHEAD_BYTES: usize = 2 << 20;

impl Surreal {
    /// Writes a checkpoint, and trims the log to the position of the previous one.
    ///
    /// # Errors
    /// Fails when the write fails, or when the database cannot be reopened after a failed write.
    pub(super) async fn write_checkpoint(&self, mut projection: Projection) -> Result<(), StoreError> {
        self.database.trust_again().await?;
        // Threads with a lower priority prepare all rows, because there may be many.
        let (upto, outcome_unknown) = (projection.upto, projection.outcome_unknown);
        let ahead = || Rows { outcome_unknown, ..Rows::default() };
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
        // The rows of the log since the previous checkpoint are kept, in case the database loses the last checkpoint.
        let before = self.database.trust(upto);
        let log = self.log.clone();
        let trimmed = tokio::task::spawn_blocking(move || {
            let gone = locked(&log).as_mut().map(|log| log.trim(before));
            gone.iter().flatten().for_each(|path| log::remove(path));
        });
        drop(trimmed.await);
        Ok(())
    }

    /// Notes in the database which segment of the log has begun, and the number of the store.
    ///
    /// # Errors
    /// All kinds.
    pub(super) async fn note_log(&self, log: &Log) -> Result<(), StoreError> {
        let db = Arc::new(self.database.reader().await?);
        let (segment, store) = (log.newest().map(|segment| segment as i64), log.store() as i64);
        self.write_verified(|| {
            let db = db.clone();
            self.database.write(async move {
                const NOTE: &str = "UPDATE meta:checkpoint
                    SET segment = $segment, store = $store, again = (again ?? 0) + 1 RETURN NONE";
                let noted = db.query(NOTE).bind(("segment", segment)).bind(("store", store));
                settle(noted.await.map_err(io)?).map(drop)
            })
        })
        .await
    }

    /// Performs a write so that it survives a kill. SurrealKV 0.21 logs a transaction before it finds that its memory
    /// table is full. It then begins a new log and puts the transaction into the new table. When it flushes the old
    /// table, it deletes the old log, which holds the only record of the transaction. If a new log was begun during
    /// the write, this function therefore repeats the write. The write must be repeatable and must change something
    /// each time.
    async fn write_verified<F: Future<Output = Result<(), StoreError>>>(
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

    /// Writes rows in one transaction, together with the position of the checkpoint if the rows contain one.
    ///
    /// # Errors
    /// All kinds; it is then unknown which rows were written, and the database is distrusted until it is reopened.
    async fn write(&self, db: &Arc<Reader>, rows: Rows) -> Result<(), StoreError> {
        let written = self.write_rows(db.clone(), rows).await;
        if written.is_err() {
            self.database.distrust();
        }
        written
    }

    async fn write_rows(&self, db: Arc<Reader>, rows: Rows) -> Result<(), StoreError> {
        let end = if rows.upto.is_some() { END } else { AHEAD };
        let (epoch, rows) = (self.database.epoch(), Arc::new(rows));
        let segment = locked(&self.log).as_ref().and_then(Log::newest);
        let again = AtomicBool::new(false);
        self.write_verified(|| {
            let (db, rows) = (db.clone(), rows.clone());
            let again = again.swap(true, Ordering::SeqCst);
            self.database.write(async move {
                let rows = Rows::clone(&rows);
                let asked = if again {
                    db.query([BEGIN, AGAIN, end].concat()).bind(("written", rows.written()))
                } else {
                    db.query([BEGIN, OTHERS, if rows.outcome_unknown { UNSURE } else { KNOWN }, end].concat())
                        .bind(("accounts", rows.accounts))
                        .bind(("streams", rows.streams))
                        .bind(("payloads", rows.payloads))
                        .bind(("larges", rows.larges))
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

/// The beginning of each write. The lease is read, not locked, so that appends go on meanwhile. A process that takes over
/// the lease rewrites meta:checkpoint, which makes an older checkpoint conflict.
const BEGIN: &str = "BEGIN;
    LET $held = (SELECT VALUE epoch FROM ONLY lease:store);
    IF $held != $epoch { THROW 'lease lost' };";
/// The rows of which there are few, or which may be there already.
const OTHERS: &str = "
    FOR $r IN $accounts { UPSERT $r.id CONTENT $r RETURN NONE };
    FOR $r IN $streams { UPSERT $r.id CONTENT $r RETURN NONE };
    FOR $r IN $payloads { UPSERT $r.id CONTENT $r RETURN NONE };
    FOR $r IN $larges { UPSERT $r.id CONTENT $r RETURN NONE };";
/// The rows whose presence is known. An UPSERT costs four times as much as an INSERT of a new row and twice as much as an
/// UPDATE of an existing one. If an assumption about a row is wrong, the checkpoint fails, and the next one is
/// `outcome_unknown`.
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
/// A repetition of the write, which must leave different rows: the database does not write an unchanged row. A
/// removed row is put back before it is removed again, because the removal of a missing row leaves no trace.
const AGAIN: &str = "
    FOR $id IN $gone { UPSERT $id CONTENT {} RETURN NONE; DELETE $id RETURN NONE; };
    FOR $id IN $written {
        IF array::is_empty(UPDATE $id SET again = (again ?? 0) + 1 RETURN VALUE id) { THROW 'what was written is not there' };
    };";
/// The rows of which it is unknown whether an earlier checkpoint wrote them.
const UNSURE: &str = "
    FOR $id IN $gone { UPSERT $id CONTENT {} RETURN NONE; DELETE $id RETURN NONE; };
    FOR $r IN $old_docs { UPSERT $r.id CONTENT $r RETURN NONE };
    FOR $r IN $old_pages { UPSERT $r.id CONTENT $r RETURN NONE };
    FOR $some IN $new_docs { FOR $r IN $some { UPSERT $r.id CONTENT $r RETURN NONE } };
    FOR $some IN $new_pages { FOR $r IN $some { UPSERT $r.id CONTENT $r RETURN NONE } };
    FOR $some IN $journals { FOR $r IN $some { UPSERT $r.id CONTENT $r RETURN NONE } };";
/// The end of a write of rows ahead. They do not change the checkpoint. Its position may be further than is known here,
/// because a write may have failed after it took effect.
const AHEAD: &str = "
    UPDATE meta:checkpoint SET again = (again ?? 0) + 1 RETURN NONE;
    COMMIT;";
/// The end of a checkpoint, with its position.
const END: &str = "
    DELETE log WHERE n <= $upto RETURN NONE;
    UPDATE meta:checkpoint SET n = $upto, segment = $segment, again = (again ?? 0) + 1 RETURN NONE;
    COMMIT;";

/// The maximum number of repetitions of a write during which the database began a new log.
const REPEATS_MAX: usize = 8;

/// Returns the name of the newest log of the database in `store`.
fn newest_log(store: &Path) -> Option<std::ffi::OsString> {
    std::fs::read_dir(store.join("wal")).ok()?.filter_map(|file| Some(file.ok()?.file_name())).max()
}

/// Returns the rows of whole streams, and the rows of other streams whose entries are all up to a number.
async fn rows_of(db: &Client<Db>, whole: &[Stream], upto: &[(Stream, u64)]) -> Result<Vec<RecordId>, StoreError> {
    let whole = whole.iter().map(|stream| (stream, i64::MAX));
    let parts = upto.iter().map(|(stream, upto)| (stream, *upto as i64));
    let mut rows = Vec::new();
    for (stream, upto) in whole.chain(parts) {
        // The key of a row contains the number of its last entry.
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
