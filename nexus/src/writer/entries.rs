//! Journal entries and element rows of a nexus, in the form in which the writer stores and reads them.

use bytes::Bytes;
use kip::exec::Change;
use kip::graph::{ElementId, Record};
use serde::Serialize;
use store::{Batch, Entry, Expect, Hash, Key, Kind, Op, PAGE_MAX, Store, StoreError};

use crate::cache::Head;
use crate::journal::Written;
use crate::{NexusId, journal_stream};

/// Returns the entries of a nexus after `after` up to `upto`, by number.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn read_journal(
    store: &Store,
    nexus: &NexusId,
    after: u64,
    upto: u64,
) -> Result<Vec<(u64, Written)>, StoreError> {
    let stream = journal_stream(nexus);
    let (mut read, mut after) = (Vec::new(), after);
    while after < upto {
        let entries = store.entries(&stream, after, PAGE_MAX).await?;
        let Some(last) = entries.last() else { break };
        after = last.seq;
        for entry in entries.into_iter().filter(|entry| entry.seq <= upto) {
            read.push((entry.seq, entry.decode()?));
        }
    }
    Ok(read)
}

/// Adds the operations that make changes durable to `batch`. The first is the head, at its expected version.
pub(crate) fn batch_of(batch: Batch, nexus: &NexusId, next: Head, changes: &[Change], head: u64) -> Batch {
    let key = Key::new(Kind::Nexus, nexus.clone());
    let mut batch = batch.put_expecting(key, Expect::Version(head), &next);
    let rows = changes.iter().map(|change| (u64::from(change.el.0), change.after.as_ref().map(pack))).collect();
    batch.push(Op::Elements { nexus: nexus.clone(), rows });
    batch
}

/// Returns the hash of a journal entry; empty if there is no such entry.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn entry_hash(store: &Store, nexus: &NexusId, seq: u64) -> Result<String, StoreError> {
    let entries = store.entries(&journal_stream(nexus), seq.saturating_sub(1), 1).await?;
    let hash = |entry: &Entry| Hash::of(format!("{} {:?}", entry.at, entry.data).as_bytes()).hex();
    Ok(entries.iter().find(|entry| entry.seq == seq).map(hash).unwrap_or_default())
}

/// Packs a record, or other plain data, for the store.
pub(crate) fn pack(plain: &impl Serialize) -> Bytes {
    rmp_serde::to_vec(plain).map(Bytes::from).unwrap_or_else(|error| unreachable!("plain data serializes: {error}"))
}

/// Unpacks a record from the store.
///
/// # Errors
/// [`StoreError::Corrupt`] when the bytes are not a valid record.
pub(crate) fn unpack(nexus: &NexusId, no: u64, body: &[u8]) -> Result<(ElementId, Record), StoreError> {
    let el =
        u32::try_from(no).map(ElementId).map_err(|_| StoreError::Corrupt(format!("element {no} of nexus {nexus}")))?;
    let record = rmp_serde::from_slice(body)
        .map_err(|error| StoreError::Corrupt(format!("element {no} of nexus {nexus}: {error}")))?;
    Ok((el, record))
}

/// Returns `true` if an operation writes a deletion note.
pub(super) fn is_note(op: &Op) -> bool {
    matches!(op, Op::Put { key: Key(Kind::Forgotten, _), .. })
}
