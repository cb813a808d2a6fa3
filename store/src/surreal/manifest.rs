//! The manifest of the database: which tables it needs, and which of its logs are not in them yet.
//!
//! SurrealKV 0.21 writes the manifest without a checksum. One changed bit of it can make the database skip a log, write
//! over a table, or remove tables as leftovers. The store therefore checks what the manifest says before the database
//! reads it: against its own length here, and against the logs in `database/wal_files.rs`.
//!
//! ```text
//! manifest: version u16, next table u64, first log u64, last sequence number u64, levels, snapshots
//! levels:   count u8; of each: count u32, tables u64
//! snapshots: count u32; of each: length u32, bytes
//! ```
//!
//! All numbers are big-endian.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::StoreError;

const VERSION: u16 = 1;

/// The contents of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The number of the first log whose rows are not all in the tables.
    pub(super) first_log: u64,
    /// The highest sequence number of the rows in the tables.
    pub(super) last_sequence: u64,
    /// The numbers of the tables that the database needs.
    pub(super) tables: BTreeSet<u64>,
}

impl Manifest {
    /// Reads the manifest of the database in `store`; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] that names a damaged manifest. [`StoreError::Io`].
    pub(super) fn read(store: &Path) -> Result<Option<Self>, StoreError> {
        let files = std::fs::read_dir(store.join("manifest")).into_iter().flatten().filter_map(Result::ok);
        let manifests =
            files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "manifest"));
        let Some(newest) = manifests.max() else { return Ok(None) };
        let named = |why: String| format!("{}: {why}", newest.display());
        let bytes = std::fs::read(&newest).map_err(|error| StoreError::Io(named(error.to_string())))?;
        Self::parse(&bytes).map(Some).ok_or_else(|| StoreError::Corrupt(named("the manifest is damaged".into())))
    }

    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let version = u16::from_be_bytes(take(from)?);
        let (next, first_log, last_sequence) = (u64_of(from)?, u64_of(from)?, u64_of(from)?);
        let (mut tables, mut count) = (BTreeSet::new(), 0);
        for _ in 0..u8::from_be_bytes(take(from)?) {
            for _ in 0..u32::from_be_bytes(take(from)?) {
                tables.insert(u64_of(from)?);
                count += 1;
            }
        }
        for _ in 0..u32::from_be_bytes(take(from)?) {
            let length = usize::try_from(u32::from_be_bytes(take(from)?)).ok()?;
            *from = from.get(length..)?;
        }
        // A next table that is in use would be written over.
        let is_sound = tables.len() == count && tables.last().is_none_or(|last| *last < next);
        (version == VERSION && from.is_empty() && is_sound).then_some(Self { first_log, last_sequence, tables })
    }

    /// Returns the path of each table that the database in `store` needs.
    pub(super) fn paths(&self, store: &Path) -> impl Iterator<Item = PathBuf> {
        let folder = store.join("sstables");
        self.tables.iter().map(move |number| folder.join(format!("{number:020}.sst")))
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

fn u64_of(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_be_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the bytes of a manifest with two levels.
    pub(in crate::surreal) fn manifest(first_log: u64, last_sequence: u64, tables: &[u64]) -> Vec<u8> {
        let mut bytes = VERSION.to_be_bytes().to_vec();
        let next = tables.iter().max().map_or(1, |last| last + 1);
        [next, first_log, last_sequence].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes.push(2);
        bytes.extend((tables.len() as u32).to_be_bytes());
        tables.iter().for_each(|table| bytes.extend(table.to_be_bytes()));
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn a_manifest_that_says_something_impossible_is_damaged() {
        let whole = manifest(3, 40, &[7, 5]);
        let read = Manifest::parse(&whole).unwrap();
        assert_eq!(read, Manifest { first_log: 3, last_sequence: 40, tables: [5, 7].into() });
        for length in 0..whole.len() {
            assert_eq!(Manifest::parse(&whole[..length]), None, "{length} bytes");
        }
        // The version, and the counts of levels, tables and snapshots.
        for at in (0..2).chain(26..31).chain(47..whole.len()) {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(Manifest::parse(&damaged), None, "bit {bit} of byte {at}");
            }
        }
        let mut damaged = whole.clone();
        damaged[9] = 7;
        assert_eq!(Manifest::parse(&damaged), None, "the next table is in use");
        assert_eq!(Manifest::parse(&manifest(3, 40, &[5, 5])), None, "a table twice");
    }
}
