//! The filters of the database's tables, checked before the database reads them.
//!
//! Each table of the database has a Bloom filter, which tells quickly that a key is not in the table. SurrealKV 0.21
//! reads a filter without comparing its checksum: a lost bit hides rows, and what is written afterwards takes their
//! place. All filters are therefore checked when the database is opened. A damaged filter is replaced by one that
//! excludes no key, because a filter holds nothing that is not in the table; the database writes a new one with the
//! next compaction.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

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

/// Checks the filters of all tables of the database in `store`, and replaces the damaged ones. Returns the tables whose
/// end, index or index of meta data cannot be read. A table that a failed write left behind is such a table, too; the database
/// refuses to open if it needs one of them.
///
/// # Errors
/// [`StoreError::Io`].
pub(super) fn mend_filters(store: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let Ok(files) = std::fs::read_dir(store.join("sstables")) else { return Ok(Vec::new()) };
    let mut unreadable = Vec::new();
    for file in files {
        let path = file.map_err(|error| StoreError::Io(error.to_string()))?.path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let io = |error: std::io::Error| StoreError::Io(format!("{}: {error}", path.display()));
            if !mend_filter(&path).map_err(io)? {
                unreadable.push(path);
            }
        }
    }
    Ok(unreadable)
}

/// Checks the filter of a table. Returns `false` if the table's end or one of its indexes is damaged.
fn mend_filter(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut footer = [0; FOOTER];
    if length < FOOTER as u64 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-(FOOTER as i64)))?;
    file.read_exact(&mut footer)?;
    let mut rest = &footer[2..];
    let Some(meta) = Handle::read(&mut rest).filter(|_| footer.ends_with(&MAGIC)) else { return Ok(false) };
    let index = Handle::read(&mut rest);
    let Some(meta) = meta.block(&mut file, length)?.and_then(checked) else { return Ok(false) };
    // With a damaged index the database stands still.
    let Some(_) = index.map(|index| index.block(&mut file, length)).transpose()?.flatten().and_then(checked) else {
        return Ok(false);
    };
    let Some(filter) = filter_of(&meta) else { return Ok(true) };
    let Some(block) = filter.block(&mut file, length)? else { return Ok(false) };
    if checked(block).is_none() && filter.length >= NO_FILTER.len() as u64 {
        drop(file);
        replace(path, filter)?;
        tracing::warn!(path = %path.display(), "replaced the damaged filter of a table, which holds no data");
    }
    Ok(true)
}

impl Handle {
    fn read(from: &mut &[u8]) -> Option<Self> {
        Some(Self { at: varint(from)?, length: varint(from)? })
    }

    /// Reads the block with its trailer; `None` if it is not within the table.
    fn block(self, file: &mut File, table: u64) -> std::io::Result<Option<Vec<u8>>> {
        let Some(end) = self.at.checked_add(self.length).and_then(|end| end.checked_add(TRAILER as u64)) else {
            return Ok(None);
        };
        if end > table || self.length > BLOCK_BYTES_MAX {
            return Ok(None);
        }
        let mut block = vec![0; self.length as usize + TRAILER];
        file.seek(SeekFrom::Start(self.at))?;
        file.read_exact(&mut block)?;
        Ok(Some(block))
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

/// Returns the place of the filter from the index of meta data, whose first entry names it.
fn filter_of(meta: &[u8]) -> Option<Handle> {
    let mut rest = meta;
    let (_shared, unshared, _length) = (varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?);
    let (name, mut value) = rest.split_at_checked(usize::try_from(unshared).ok()?)?;
    name.starts_with(b"filter.").then(|| Handle::read(&mut value))?
}

/// Takes an integer of seven bits a byte, the lowest first, from the beginning of `bytes`.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
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
