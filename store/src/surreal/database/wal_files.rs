//! The database's own logs, checked before the database reads them.
//!
//! SurrealKV 0.21 replays its logs one after the other. It cuts a damaged log where the damage begins, and goes on with
//! the next one. A newer log may hold the position of a checkpoint whose first rows are in the lost part of the older
//! one: those rows would be missing, without a word. A log that is followed by another one must therefore be whole. The
//! newest may end in a torn record, as a killed write leaves it; rows that it lost are found by that position.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// The size of a block of a log, in bytes. No record crosses the end of a block; larger ones are divided.
const BLOCK: usize = 32 << 10;
/// The length of a record's head: checksum, length, kind.
const HEAD: usize = 7;
/// The kinds of records: nothing more in this block, parts of a record, and the way of compression.
const EMPTY: u8 = 0;
const LAST_PART: u8 = 4;
const COMPRESSION: u8 = 9;

/// Checks the logs of the database in `store` that the database will replay.
///
/// # Errors
/// [`StoreError::Corrupt`] that names a log which is missing, or damaged before its end. [`StoreError::Io`].
pub(super) fn check(store: &Path) -> Result<(), StoreError> {
    let logs = logs_in(&store.join("wal")).map_err(|error| StoreError::Io(error.to_string()))?;
    let Some((&last, _)) = logs.last_key_value() else { return Ok(()) };
    let first = first_needed(store).unwrap_or(0);
    for number in first..last {
        let Some(path) = logs.get(&number) else {
            let missing = store.join("wal").join(format!("{number:020}.wal"));
            return Err(StoreError::Corrupt(format!("{} is missing, and a later log is there", missing.display())));
        };
        let bytes = std::fs::read(path).map_err(|error| StoreError::Io(format!("{}: {error}", path.display())))?;
        if !is_whole(&bytes) {
            let why = "it is damaged, and a later log follows it";
            return Err(StoreError::Corrupt(format!("{}: {why}", path.display())));
        }
    }
    Ok(())
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

/// Returns the number of the first log that is not in the tables, from the manifest: format (2 bytes), next table (8),
/// number (8).
fn first_needed(store: &Path) -> Option<u64> {
    let files = std::fs::read_dir(store.join("manifest")).ok()?;
    let newest = files.filter_map(|file| Some(file.ok()?.path())).max()?;
    let mut head = [0; 18];
    File::open(newest).ok()?.read_exact(&mut head).ok()?;
    Some(u64::from_be_bytes(head[10..].try_into().ok()?))
}

/// Returns `true` if each record of a log can be read, or if nothing readable follows the first that cannot: a write
/// that was cut short is the end of a log.
fn is_whole(log: &[u8]) -> bool {
    let mut blocks = log.chunks(BLOCK);
    match blocks.by_ref().find(|block| !is_whole_block(block)) {
        Some(_) => !blocks.any(has_record),
        None => true,
    }
}

fn is_whole_block(block: &[u8]) -> bool {
    let mut rest = block;
    while rest.len() >= HEAD {
        match record(rest) {
            Some((EMPTY, _)) => return rest.iter().all(|byte| *byte == 0),
            Some((_, length)) => rest = &rest[HEAD + length..],
            None => return false,
        }
    }
    true
}

fn has_record(block: &[u8]) -> bool {
    record(block).is_some_and(|(kind, _)| kind != EMPTY)
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
        // The database does not compare this one either.
        EMPTY | COMPRESSION => true,
        kind => kind <= LAST_PART && hasher.finalize() == checksum,
    };
    is_right.then_some((kind, length))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_flipped_bit_amid_a_log_is_damage_and_a_torn_end_is_none() {
        let log = log_of(20);
        assert!(is_whole(&log));
        for at in (0..log.len() - 2 * BLOCK).step_by(997) {
            let mut damaged = log.clone();
            damaged[at] ^= 4;
            // A bit of the padding at the end of a block belongs to no record.
            assert_eq!(is_whole(&damaged), damaged == log, "a bit at {at}");
        }
        for cut in [log.len() - 1, log.len() - 5_000, log.len() - 9_100] {
            assert!(is_whole(&log[..cut]), "cut at {cut}");
        }
    }

    #[test]
    fn logs_before_the_newest_are_checked_if_they_are_replayed() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        for name in ["wal", "manifest"] {
            std::fs::create_dir(store.join(name)).unwrap();
        }
        let manifest = |number: u64| {
            let head = [&1_u16.to_be_bytes()[..], &9_u64.to_be_bytes(), &number.to_be_bytes(), &[0; 40]].concat();
            std::fs::write(store.join("manifest/00000000000000000000.manifest"), head).unwrap();
        };
        let wal = |number: u64| store.join(format!("wal/{number:020}.wal"));
        let mut damaged = log_of(20);
        damaged[50_000] ^= 1;
        std::fs::write(wal(2), &damaged).unwrap();
        std::fs::write(wal(3), log_of(2)).unwrap();
        manifest(3);
        check(store).unwrap();
        manifest(2);
        let refused = check(store).unwrap_err().to_string();
        assert!(refused.contains("02.wal") && refused.contains("damaged"), "{refused}");
        std::fs::write(wal(2), log_of(20)).unwrap();
        check(store).unwrap();
        std::fs::remove_file(wal(2)).unwrap();
        let refused = check(store).unwrap_err().to_string();
        assert!(refused.contains("02.wal is missing"), "{refused}");
        // The newest log alone may end in damage.
        std::fs::write(wal(3), &damaged).unwrap();
        manifest(3);
        check(store).unwrap();
    }
}
