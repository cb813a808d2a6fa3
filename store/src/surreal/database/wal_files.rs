//! The database's own logs, checked before the database reads them.
//!
//! SurrealKV 0.21 replays its logs one after the other. It cuts a damaged log where the damage begins, and goes on with
//! the next one. A newer log may hold the position of a checkpoint whose first rows are in the lost part of the older
//! one: those rows would be missing, without a word. A log that is followed by another one must therefore be whole up to
//! its last byte: the database syncs a log before it begins the next, and none of our writes follows one that failed.
//! The newest may end in a torn record, as a killed write leaves it; rows that it lost are found by that position.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::StoreError;
use crate::surreal::manifest::Manifest;
use crate::surreal::tables::varint;

/// The size of a block of a log, in bytes. No record crosses the end of a block; larger ones are divided.
const BLOCK: usize = 32 << 10;
/// The length of a record's head: checksum, length, kind.
const HEAD: usize = 7;
/// The kinds of records: nothing more in this block, a whole record, the parts of one, and the way of compression.
const EMPTY: u8 = 0;
const FULL: u8 = 1;
const FIRST_PART: u8 = 2;
const MIDDLE_PART: u8 = 3;
const LAST_PART: u8 = 4;
const COMPRESSION: u8 = 9;

/// Checks the logs of the database in `store`: those that the database will replay, and that the others may be
/// skipped.
///
/// # Errors
/// [`StoreError::Corrupt`] that names a log which is missing, damaged before its end, or skipped although its rows are
/// not in the tables; also for a damaged manifest. [`StoreError::Io`].
pub(super) fn check(store: &Path) -> Result<(), StoreError> {
    let manifest = Manifest::read(store)?;
    let logs = logs_in(&store.join("wal")).map_err(|error| StoreError::Io(error.to_string()))?;
    let Some((&last, _)) = logs.last_key_value() else { return Ok(()) };
    let (first, last_sequence) = manifest.map_or((0, 0), |manifest| (manifest.first_log, manifest.last_sequence));
    let damaged = |path: &Path, why: &str| Err(StoreError::Corrupt(format!("{}: {why}", path.display())));
    for (_, path) in logs.range(..first) {
        if sequence_before_last(&read(path)?).is_some_and(|number| number > last_sequence) {
            return damaged(path, "the manifest says that its rows are in the tables, and they are not");
        }
    }
    for number in first..last {
        let Some(path) = logs.get(&number) else {
            let missing = store.join("wal").join(format!("{number:020}.wal"));
            return damaged(&missing, "it is missing, and a later log is there");
        };
        if !is_whole(&read(path)?) {
            return damaged(path, "it is damaged, and a later log follows it");
        }
    }
    Ok(())
}

fn read(log: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(log).map_err(|error| StoreError::Io(format!("{}: {error}", log.display())))
}

fn logs_in(folder: &Path) -> std::io::Result<BTreeMap<u64, PathBuf>> {
    let Ok(files) = std::fs::read_dir(folder) else { return Ok(BTreeMap::new()) };
    let mut logs = BTreeMap::new();
    for file in files {
        let path = file?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".wal")?.parse().ok());
        logs.extend(number.map(|number| (number, path)));
    }
    Ok(logs)
}

/// Returns `true` if each record of a log can be read, its parts are in order, and the last one is complete. A log
/// without any is not whole. The store uses no compression, so a record of that kind is damage.
fn is_whole(log: &[u8]) -> bool {
    let mut last = EMPTY;
    for block in log.chunks(BLOCK) {
        let mut rest = block;
        // Fewer bytes than a head are padding at the end of a block, and a head that was cut at the end of a log.
        while rest.len() >= HEAD {
            match record(rest) {
                Some((EMPTY, _)) if rest.iter().all(|byte| *byte == 0) => break,
                Some((kind, length)) if follows(last, kind) => (last, rest) = (kind, &rest[HEAD + length..]),
                _ => return false,
            }
        }
        if block.len() < BLOCK && rest.len() < HEAD && !rest.is_empty() {
            return false;
        }
    }
    matches!(last, FULL | LAST_PART)
}

/// Returns `true` if a record or a part of this kind may come after one of kind `last`.
fn follows(last: u8, kind: u8) -> bool {
    match last {
        EMPTY | FULL | LAST_PART => matches!(kind, FULL | FIRST_PART),
        _ => matches!(kind, MIDDLE_PART | LAST_PART),
    }
}

/// Returns the sequence number at which the second last transaction of a log begins. The database may put the last
/// transaction of a log into the next table: it logs it before it finds that its table is full.
fn sequence_before_last(log: &[u8]) -> Option<u64> {
    let mut numbers = Vec::new();
    for mut rest in log.chunks(BLOCK) {
        while let Some((kind, length)) = record(rest).filter(|(kind, _)| *kind != EMPTY) {
            // With compression, which the store does not use, the transactions begin differently.
            if kind == COMPRESSION {
                return None;
            }
            if matches!(kind, FULL | FIRST_PART) {
                // A transaction begins with its version, a byte.
                numbers.extend(rest.get(HEAD + 1..HEAD + length).and_then(|mut body| varint(&mut body)));
            }
            rest = &rest[HEAD + length..];
        }
    }
    numbers.pop();
    numbers.pop()
}

/// Returns the kind and the length of the first record of `bytes`, if its checksum is right.
fn record(bytes: &[u8]) -> Option<(u8, usize)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let checksum = u32::from_be_bytes(head[..4].try_into().ok()?);
    let (length, kind) = (usize::from(u16::from_be_bytes([head[4], head[5]])), head[6]);
    let body = rest.get(..length)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(body);
    let is_right = match kind {
        EMPTY => true,
        kind => (kind <= LAST_PART || kind == COMPRESSION) && hasher.finalize() == checksum,
    };
    is_right.then_some((kind, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surreal::manifest::tests::manifest;

    fn put(log: &mut Vec<u8>, kind: u8, body: &[u8]) {
        let left = BLOCK - log.len() % BLOCK;
        if left < HEAD + body.len() {
            log.extend(std::iter::repeat_n(0, left));
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[kind]);
        hasher.update(body);
        log.extend(hasher.finalize().to_be_bytes());
        log.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        log.push(kind);
        log.extend(body);
    }

    fn log_of(records: usize) -> Vec<u8> {
        let mut log = Vec::new();
        (0..records).for_each(|n| put(&mut log, 1, &[n as u8; 9_000]));
        log
    }

    #[test]
    fn a_log_with_a_flipped_bit_or_without_its_end_is_not_whole() {
        let log = log_of(20);
        assert!(is_whole(&log));
        for at in (0..log.len()).step_by(997).chain(log.len() - 9_007..log.len()) {
            let mut damaged = log.clone();
            damaged[at] ^= if at % 2 == 0 { 4 } else { 8 };
            // Three records of a block leave 5,747 bytes of padding, which belong to no record.
            let is_padding = at % BLOCK >= 3 * (HEAD + 9_000);
            assert!(is_padding || !is_whole(&damaged), "a bit at {at}");
        }
        for left in [0, 3, log.len() - 1, log.len() - 5_000, log.len() - 9_002, BLOCK + 5] {
            assert!(!is_whole(&log[..left]), "cut at {left}");
        }
        let mut parts = Vec::new();
        put(&mut parts, 2, &[7; 9_000]);
        assert!(!is_whole(&parts), "the rest of a record is missing");
        put(&mut parts, LAST_PART, &[7; 9]);
        assert!(is_whole(&parts));
    }

    /// Returns a folder with a manifest and logs, and a function that writes a log.
    fn store_with(manifest: Vec<u8>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["wal", "manifest"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("manifest/00000000000000000000.manifest"), manifest).unwrap();
        folder
    }

    #[test]
    fn logs_before_the_newest_are_checked_if_they_are_replayed() {
        let folder = store_with(manifest(2, 0, &[]));
        let store = folder.path();
        let wal = |number: u64| store.join(format!("wal/{number:020}.wal"));
        let mut damaged = log_of(20);
        damaged[50_000] ^= 1;
        std::fs::write(wal(2), &damaged).unwrap();
        std::fs::write(wal(3), log_of(2)).unwrap();
        let refused = check(store).unwrap_err().to_string();
        assert!(refused.contains("02.wal") && refused.contains("damaged"), "{refused}");
        std::fs::write(wal(2), log_of(20)).unwrap();
        check(store).unwrap();
        std::fs::remove_file(wal(2)).unwrap();
        let refused = check(store).unwrap_err().to_string();
        assert!(refused.contains("02.wal: it is missing"), "{refused}");
        // The newest log alone may end in damage.
        std::fs::write(wal(2), &damaged).unwrap();
        std::fs::remove_file(wal(3)).unwrap();
        check(store).unwrap();
    }

    #[test]
    fn a_log_is_skipped_only_if_its_rows_are_in_the_tables() {
        let mut log = Vec::new();
        for sequence in 10..13 {
            put(&mut log, 1, &[1, sequence, 1, 0]);
        }
        for (first_log, last_sequence, is_sound) in [(3, 11, true), (3, 12, true), (3, 10, false), (2, 10, true)] {
            let folder = store_with(manifest(first_log, last_sequence, &[]));
            std::fs::write(folder.path().join("wal/00000000000000000002.wal"), &log).unwrap();
            let checked = check(folder.path());
            assert_eq!(checked.is_ok(), is_sound, "{first_log} {last_sequence}: {checked:?}");
        }
    }
}
