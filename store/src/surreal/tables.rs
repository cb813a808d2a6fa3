//! The filters of the database's tables, checked before the database reads them.
//!
//! Each table of the database has a Bloom filter, which tells quickly that a key is not in the table. SurrealKV 0.21
//! reads a filter without comparing its checksum: a lost bit hides rows, and what is written afterwards takes their
//! place. All filters are therefore checked when the database is opened. A damaged filter is replaced by one that
//! excludes no key, because a filter holds nothing that is not in the table; the database writes a new one with the
//! next compaction.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use crate::StoreError;

/// The length of the end of a table: format, checksum kind, two handles with padding, magic.
const FOOTER: usize = 50;
const MAGIC: [u8; 8] = [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb];
/// The length of the trailer of a block: compression kind and checksum.
const TRAILER: usize = 5;
/// The largest block that is read; no block of meta data or filter comes near it.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// The end of a filter block that names no filter: no offsets, and a shift.
const NO_FILTER: [u8; 5] = [0, 0, 0, 0, 11];

/// A block of a table: its place and its length without the trailer.
#[derive(Clone, Copy)]
struct Handle {
    at: u64,
    length: u64,
}

/// Checks the filters of the tables that the database in `store` needs, and replaces the damaged ones. Returns the
/// tables that are missing, and those whose end, index or index of meta data cannot be read: the database refuses to
/// open, or waits forever. A table that a failed write left behind is not needed.
///
/// # Errors
/// [`StoreError::Corrupt`] for a damaged manifest; [`StoreError::Io`].
pub(super) fn mend_filters(store: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let Some(manifest) = Manifest::read(store)? else { return Ok(Vec::new()) };
    let mut unreadable = Vec::new();
    for path in manifest.paths(store) {
        match mend_filter(&path) {
            Ok(true) => {}
            Ok(false) => unreadable.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => unreadable.push(path),
            Err(error) => return Err(StoreError::Io(format!("{}: {error}", path.display()))),
        }
    }
    Ok(unreadable)
}

/// Checks the filter of a table. Returns `false` if the table's end or one of its indexes is damaged.
fn mend_filter(path: &Path) -> std::io::Result<bool> {
    let mut table = Table::open(path)?;
    let Some((meta, index)) = table.ends()? else { return Ok(false) };
    let Some(meta) = table.whole(meta)? else { return Ok(false) };
    // The database waits forever if an index is damaged.
    if table.data_blocks(index)?.is_none() {
        return Ok(false);
    }
    let Some(filter) = entries(&meta).into_iter().flatten().find_map(filter_of) else { return Ok(true) };
    let is_whole = table.whole(filter)?.is_some();
    if !is_whole && table.contains(filter) && filter.length >= NO_FILTER.len() as u64 {
        drop(table);
        replace(path, filter)?;
        tracing::warn!(path = %path.display(), "replaced the damaged filter of a table, which holds no data");
    }
    Ok(true)
}

/// Returns the tables that the database in `store` needs and that are missing or have a damaged block. It reads all of
/// them, calls `goes_on` before each table and after each block with the size of the block in bytes, and ends when that
/// returns `false`.
///
/// # Errors
/// [`StoreError::Io`] for a table that the disk does not read, which may be whole. [`StoreError::Corrupt`] for a damaged
/// manifest.
pub(super) fn damaged(store: &Path, mut goes_on: impl FnMut(u64) -> bool) -> Result<Vec<PathBuf>, StoreError> {
    let Some(manifest) = Manifest::read(store)? else { return Ok(Vec::new()) };
    let mut damaged = Vec::new();
    for path in manifest.paths(store) {
        if !goes_on(0) {
            break;
        }
        match is_whole(&path, &mut goes_on) {
            Ok(true) => {}
            Ok(false) => damaged.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => damaged.push(path),
            Err(error) => return Err(StoreError::Io(format!("{}: {error}", path.display()))),
        }
    }
    // The database may have replaced a table meanwhile.
    let needed = Manifest::read(store)?;
    let needed: BTreeSet<PathBuf> = needed.iter().flat_map(|manifest| manifest.paths(store)).collect();
    damaged.retain(|path| needed.contains(path));
    Ok(damaged)
}

fn is_whole(path: &Path, goes_on: &mut impl FnMut(u64) -> bool) -> std::io::Result<bool> {
    let mut table = Table::open(path)?;
    let Some((meta, index)) = table.ends()? else { return Ok(false) };
    let Some(blocks) = table.data_blocks(index)?.filter(|_| table.contains(meta)) else { return Ok(false) };
    for block in blocks.into_iter().chain([meta]) {
        if table.whole(block)?.is_none() {
            return Ok(false);
        }
        if !goes_on(block.length) {
            break;
        }
    }
    Ok(true)
}

/// An open table.
struct Table {
    file: File,
    length: u64,
}

impl Table {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Returns the places of the index of meta data and of the top index; `None` if the end is damaged.
    fn ends(&mut self) -> std::io::Result<Option<(Handle, Handle)>> {
        let mut footer = [0; FOOTER];
        if self.length < FOOTER as u64 {
            return Ok(None);
        }
        self.file.seek(SeekFrom::End(-(FOOTER as i64)))?;
        self.file.read_exact(&mut footer)?;
        let mut rest = &footer[2..];
        let handles = Handle::read(&mut rest).zip(Handle::read(&mut rest));
        Ok(handles.filter(|_| footer.ends_with(&MAGIC)))
    }

    fn contains(&self, handle: Handle) -> bool {
        let end = handle.at.checked_add(handle.length).and_then(|end| end.checked_add(TRAILER as u64));
        handle.length <= BLOCK_BYTES_MAX && end.is_some_and(|end| end <= self.length)
    }

    /// Returns a block that matches its checksum; `None` for any other.
    fn whole(&mut self, handle: Handle) -> std::io::Result<Option<Vec<u8>>> {
        if !self.contains(handle) {
            return Ok(None);
        }
        let mut block = vec![0; handle.length as usize + TRAILER];
        self.file.seek(SeekFrom::Start(handle.at))?;
        self.file.read_exact(&mut block)?;
        Ok(checked(block))
    }

    /// Returns the places of the data blocks from the two levels of the index; `None` if a part of it is damaged.
    fn data_blocks(&mut self, index: Handle) -> std::io::Result<Option<Vec<Handle>>> {
        let handles = |block: &[u8]| -> Option<Vec<Handle>> {
            entries(block)?.into_iter().map(|(_, mut value)| Handle::read(&mut value)).collect()
        };
        let Some(partitions) = self.whole(index)?.and_then(|block| handles(&block)) else { return Ok(None) };
        let mut blocks = Vec::new();
        for partition in partitions {
            let Some(some) = self.whole(partition)?.and_then(|block| handles(&block)) else { return Ok(None) };
            blocks.extend(some);
        }
        Ok(Some(blocks))
    }
}

impl Handle {
    fn read(from: &mut &[u8]) -> Option<Self> {
        Some(Self { at: varint(from)?, length: varint(from)? })
    }
}

/// Returns the checksum in the trailer of a block, which covers the block and its compression kind.
fn sum(block: &[u8]) -> [u8; 4] {
    crc32fast::hash(block).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Returns a block without its trailer, if it matches its checksum.
fn checked(mut block: Vec<u8>) -> Option<Vec<u8>> {
    let (data, stored) = block.split_at(block.len().checked_sub(4)?);
    let is_whole = sum(data) == stored;
    block.truncate(block.len() - TRAILER);
    is_whole.then_some(block)
}

/// Returns the keys, without the beginning that they share with the key before, and the values of a block.
fn entries(block: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (rest, restarts) = block.split_last_chunk::<4>()?;
    let restarts = usize::try_from(u32::from_le_bytes(*restarts)).ok()?.checked_mul(4)?;
    let mut rest = rest.get(..rest.len().checked_sub(restarts)?)?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (_shared, unshared, length) = (varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?);
        let (key, after) = rest.split_at_checked(usize::try_from(unshared).ok()?)?;
        let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        entries.push((key, value));
        rest = after;
    }
    Some(entries)
}

/// Returns the place of the filter, if an entry of the index of meta data names it.
fn filter_of((name, mut value): (&[u8], &[u8])) -> Option<Handle> {
    name.starts_with(b"filter.").then(|| Handle::read(&mut value))?
}

/// Takes an integer of seven bits a byte, the lowest first, from the beginning of `bytes`.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Writes the table again, with a filter of the same length that excludes no key. The old file stays as it is if
/// another name links to it.
fn replace(path: &Path, filter: Handle) -> std::io::Result<()> {
    let mut table = std::fs::read(path)?;
    let (at, length) = (filter.at as usize, filter.length as usize);
    let block = &mut table[at..at + length + TRAILER];
    block.fill(0);
    block[length - NO_FILTER.len()..length].copy_from_slice(&NO_FILTER);
    let sum = sum(&block[..=length]);
    block[length + 1..].copy_from_slice(&sum);
    let mut unmade = path.as_os_str().to_owned();
    unmade.push(".tmp");
    let unmade = PathBuf::from(unmade);
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create(true).truncate(true), 0o600);
    let mut file = options.open(&unmade)?;
    file.write_all(&table)?;
    file.sync_all()?;
    std::fs::rename(&unmade, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}
