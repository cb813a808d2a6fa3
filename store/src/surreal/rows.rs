//! Database rows, and the rows of one checkpoint.

use bytes::Bytes;
use surrealdb::types::{Array, Bytes as DbBytes, RecordId, SurrealValue};

use super::StoreError;
use super::pages::PackedPage;
use crate::backend::{Projected, Projection};
use crate::batch::{Hash, Key, Versioned};
use crate::state::ROW_BYTES;

/// The maximum number of entries that are packed into one journal row.
pub(super) const CHUNK_ENTRIES: usize = 256;

#[derive(Clone, SurrealValue)]
pub(super) struct LogRow {
    pub(super) n: i64,
    pub(super) b: DbBytes,
}

#[derive(Clone, SurrealValue)]
pub(super) struct DocRow {
    pub(super) id: RecordId,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) v: i64,
    pub(super) b: DbBytes,
    /// A checksum of the row's contents; `None` in rows from before checksums existed.
    pub(super) c: Option<i64>,
}

#[derive(Clone, SurrealValue)]
pub(super) struct JournalRow {
    pub(super) id: RecordId,
    pub(super) stream: String,
    pub(super) last: i64,
    pub(super) b: DbBytes,
    /// A checksum of the row's contents; `None` in rows from before checksums existed.
    pub(super) c: Option<i64>,
}

#[derive(Clone, SurrealValue)]
pub(super) struct StreamRow {
    pub(super) id: RecordId,
    pub(super) name: String,
    pub(super) head: i64,
    /// A checksum of the row's contents; `None` in rows from before checksums existed.
    pub(super) c: Option<i64>,
}

#[derive(Clone, SurrealValue)]
pub(super) struct AccountRow {
    pub(super) id: RecordId,
    pub(super) name: String,
    pub(super) b: String,
    /// A checksum of the row's contents; `None` in rows from before checksums existed.
    pub(super) c: Option<i64>,
}

#[derive(Clone, SurrealValue)]
pub(super) struct PageRow {
    pub(super) id: RecordId,
    pub(super) nexus: String,
    pub(super) no: i64,
    pub(super) b: DbBytes,
    /// A checksum of the row's contents; `None` in rows from before checksums existed.
    pub(super) c: Option<i64>,
}

/// A large element of a page.
#[derive(Clone, SurrealValue)]
pub(super) struct LargeRow {
    pub(super) id: RecordId,
    pub(super) nexus: String,
    pub(super) no: i64,
    pub(super) b: DbBytes,
    pub(super) c: Option<i64>,
}

#[derive(Clone, SurrealValue)]
pub(super) struct PayloadRow {
    pub(super) id: RecordId,
    pub(super) hash: String,
    pub(super) b: DbBytes,
    /// A checksum of the row's contents; `None` in rows from before checksums existed.
    pub(super) c: Option<i64>,
}

/// A row with a checksum. A row that was damaged on the medium is refused when it is read.
///
/// SurrealKV 0.21 checks no checksum of values that it stores outside its tables.
pub(super) trait Summed: Sized {
    /// Returns the name of the row for error messages.
    fn title(&self) -> String;
    /// Returns the byte contents of the row, in pieces.
    fn said(&self) -> [&[u8]; 3];
    /// Returns the numeric content of the row: a version or a position.
    fn number(&self) -> i64;
    /// Returns the stored checksum.
    fn stored(&mut self) -> &mut Option<i64>;

    /// Returns the CRC-32 of the pieces, each preceded by its length, and of the number.
    fn sum(&self) -> i64 {
        let mut hasher = crc32fast::Hasher::new();
        for piece in self.said() {
            hasher.update(&(piece.len() as u64).to_le_bytes());
            hasher.update(piece);
        }
        hasher.update(&self.number().to_le_bytes());
        i64::from(hasher.finalize())
    }

    /// Returns the row with its checksum, for writing.
    fn summed(mut self) -> Self {
        *self.stored() = Some(self.sum());
        self
    }

    /// Returns the row if its checksum is correct. A row from before checksums existed passes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with the row's name.
    fn whole(mut self) -> Result<Self, StoreError> {
        let sum = self.sum();
        match *self.stored() {
            Some(stored) if stored != sum => Err(StoreError::Corrupt(format!(
                "{} does not match its checksum: it changed on the disk",
                self.title()
            ))),
            _ => Ok(self),
        }
    }
}

impl Summed for DocRow {
    fn title(&self) -> String {
        format!("document {}:{}", self.kind, self.name)
    }
    fn said(&self) -> [&[u8]; 3] {
        [self.kind.as_bytes(), self.name.as_bytes(), self.b.as_ref()]
    }
    fn number(&self) -> i64 {
        self.v
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

impl Summed for JournalRow {
    fn title(&self) -> String {
        format!("entries up to {} of {}", self.last, self.stream)
    }
    fn said(&self) -> [&[u8]; 3] {
        [b"journal", self.stream.as_bytes(), self.b.as_ref()]
    }
    fn number(&self) -> i64 {
        self.last
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

impl Summed for StreamRow {
    fn title(&self) -> String {
        format!("the head of {}", self.name)
    }
    fn said(&self) -> [&[u8]; 3] {
        [b"stream", self.name.as_bytes(), b""]
    }
    fn number(&self) -> i64 {
        self.head
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

impl Summed for AccountRow {
    fn title(&self) -> String {
        format!("account {}", self.name)
    }
    fn said(&self) -> [&[u8]; 3] {
        [b"account", self.name.as_bytes(), self.b.as_bytes()]
    }
    fn number(&self) -> i64 {
        0
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

impl Summed for PageRow {
    fn title(&self) -> String {
        format!("page {} of nexus {}", self.no, self.nexus)
    }
    fn said(&self) -> [&[u8]; 3] {
        [b"page", self.nexus.as_bytes(), self.b.as_ref()]
    }
    fn number(&self) -> i64 {
        self.no
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

impl Summed for LargeRow {
    fn title(&self) -> String {
        format!("element {} of nexus {}", self.no, self.nexus)
    }
    fn said(&self) -> [&[u8]; 3] {
        [b"large", self.nexus.as_bytes(), self.b.as_ref()]
    }
    fn number(&self) -> i64 {
        self.no
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

impl Summed for PayloadRow {
    fn title(&self) -> String {
        format!("payload {}", self.hash)
    }
    fn said(&self) -> [&[u8]; 3] {
        [b"payload", self.hash.as_bytes(), self.b.as_ref()]
    }
    fn number(&self) -> i64 {
        0
    }
    fn stored(&mut self) -> &mut Option<i64> {
        &mut self.c
    }
}

pub(super) fn bytes_of(bytes: DbBytes) -> Bytes {
    bytes.into_inner()
}

impl DocRow {
    pub(super) fn document(self) -> Versioned<Bytes> {
        Versioned { version: self.v as u64, value: bytes_of(self.b) }
    }
}

/// The rows of a checkpoint. New rows are inserted by the hundred, which is fastest in the database.
#[derive(Clone, Default)]
pub(super) struct Rows {
    /// The log row that the checkpoint covers; `None` for rows that are written ahead.
    pub(super) upto: Option<i64>,
    pub(super) outcome_unknown: bool,
    pub(super) gone: Vec<RecordId>,
    pub(super) accounts: Vec<AccountRow>,
    pub(super) streams: Vec<StreamRow>,
    pub(super) payloads: Vec<PayloadRow>,
    pub(super) larges: Vec<LargeRow>,
    pub(super) old_docs: Vec<DocRow>,
    pub(super) old_pages: Vec<PageRow>,
    pub(super) new_docs: Vec<DocRow>,
    pub(super) new_pages: Vec<PageRow>,
    pub(super) journals: Vec<JournalRow>,
    /// The size of pages and payloads in bytes.
    pub(super) bytes: usize,
}

/// The number of new rows per INSERT.
const ROWS_AT_ONCE: usize = 100;

pub(super) fn by_the_hundred<T>(rows: Vec<T>) -> Vec<Vec<T>> {
    let mut rows = rows.into_iter();
    std::iter::from_fn(|| Some(rows.by_ref().take(ROWS_AT_ONCE).collect::<Vec<T>>()).filter(|some| !some.is_empty()))
        .collect()
}

/// Returns the id of a row with a two-part key.
pub(super) fn record(table: &str, of: &str, key: impl SurrealValue) -> RecordId {
    RecordId::new(table, Array::from(vec![of.into_value(), key.into_value()]))
}

impl Rows {
    /// Returns the ids of all rows to write.
    pub(super) fn written(&self) -> Vec<RecordId> {
        let accounts = self.accounts.iter().map(|row| &row.id);
        let streams = self.streams.iter().map(|row| &row.id);
        let payloads = self.payloads.iter().map(|row| &row.id).chain(self.larges.iter().map(|row| &row.id));
        let docs = self.old_docs.iter().chain(&self.new_docs).map(|row| &row.id);
        let pages = self.old_pages.iter().chain(&self.new_pages).map(|row| &row.id);
        let journals = self.journals.iter().map(|row| &row.id);
        accounts.chain(streams).chain(payloads).chain(docs).chain(pages).chain(journals).cloned().collect()
    }

    /// Adds a page together with its large elements.
    pub(super) fn add_page(&mut self, page: PackedPage) {
        let PackedPage { row, stored, larges, gone, bytes } = page;
        self.bytes += ROW_BYTES * (1 + larges.len()) + bytes;
        if stored { &mut self.old_pages } else { &mut self.new_pages }.extend(row);
        self.larges.extend(larges);
        self.gone.extend(gone);
    }

    pub(super) fn add_payload(&mut self, hash: Hash, body: &Bytes) {
        self.bytes += ROW_BYTES + body.len();
        let (id, b) = (RecordId::new("payload", hash.hex()), DbBytes::from(body.to_vec()));
        self.payloads.push(PayloadRow { id, hash: hash.hex(), b, c: None }.summed());
    }

    /// Adds the rest of a checkpoint, with its position.
    pub(super) fn add(&mut self, projection: Projection) -> Result<(), StoreError> {
        self.upto = Some(projection.upto as i64);
        for Projected { key: Key(kind, name), document, stored } in projection.documents {
            let (kind, name) = (kind.as_str().to_owned(), name.to_string());
            let id = record("doc", &kind, name.clone());
            let Some(document) = document else {
                self.gone.push(id);
                continue;
            };
            let (v, b) = (document.version as i64, DbBytes::from(document.value.to_vec()));
            let row = DocRow { id, kind, name, v, b, c: None }.summed();
            if stored { &mut self.old_docs } else { &mut self.new_docs }.push(row);
        }
        for (stream, entries) in projection.journals {
            for chunk in entries.chunks(CHUNK_ENTRIES) {
                let packed = rmp_serde::to_vec_named(chunk)
                    .map_err(|error| StoreError::Corrupt(format!("entries of {stream} do not encode: {error}")))?;
                let last = chunk.last().map_or(0, |entry| entry.seq as i64);
                let id = record("journal", &stream, last);
                let (stream, b) = (stream.to_string(), DbBytes::from(packed));
                self.journals.push(JournalRow { id, stream, last, b, c: None }.summed());
            }
            // The head of a short stream follows from its only rows.
            if let Some(last) = entries.last().filter(|last| last.seq > CHUNK_ENTRIES as u64) {
                let id = RecordId::new("stream", stream.to_string());
                let (name, head) = (stream.to_string(), last.seq as i64);
                self.streams.push(StreamRow { id, name, head, c: None }.summed());
            }
        }
        for (name, account) in projection.accounts {
            let b = serde_json::to_string(&account)
                .map_err(|error| StoreError::Corrupt(format!("account {name}: {error}")))?;
            let id = RecordId::new("account", name.to_string());
            self.accounts.push(AccountRow { id, name: name.to_string(), b, c: None }.summed());
        }
        Ok(())
    }
}
