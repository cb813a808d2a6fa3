//! The bytes of a segment: its beginning, its records, and the signs of an incomplete write.

use bytes::{BufMut, BytesMut};

pub(super) const MAGIC: &[u8; 4] = b"lfdl";
/// The size of a record header: magic, number, length, checksum.
pub(super) const HEADER: usize = 4 + 8 + 4 + 4;
pub(super) const SEGMENT_MAGIC: &[u8; 4] = b"lfds";
/// The size of the beginning of a segment: magic, number, checksum.
pub(super) const START: usize = 4 + 8 + 4;
/// The largest unit, in bytes, that every disk writes completely or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
fn checksum(n: u64, row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&n.to_le_bytes());
    hasher.update(row);
    hasher.finalize()
}

/// Returns the record of a row.
pub(super) fn record_of(n: u64, row: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(HEADER + row.len());
    bytes.put_slice(MAGIC);
    bytes.put_u64_le(n);
    bytes.put_u32_le(row.len() as u32);
    bytes.put_u32_le(checksum(n, row));
    bytes.put_slice(row);
    bytes
}

/// Returns the length stated in the record header at the beginning of `bytes`.
pub(super) fn torn_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
    Some(HEADER + u32::from_le_bytes(header[12..16].try_into().ok()?) as usize)
}

/// Returns the first bytes of segment `number`.
pub(super) fn start_of(number: u64) -> [u8; START] {
    let mut start = [0; START];
    start[..4].copy_from_slice(SEGMENT_MAGIC);
    start[4..12].copy_from_slice(&number.to_le_bytes());
    start[12..].copy_from_slice(&checksum(number, SEGMENT_MAGIC).to_le_bytes());
    start
}

/// Returns the number at the beginning of a segment; `None` if it has none, as segments of earlier versions.
pub(super) fn own_number(segment: &[u8]) -> Option<u64> {
    let start = segment.get(..START)?;
    let number = u64::from_le_bytes(start[4..12].try_into().ok()?);
    (start == start_of(number)).then_some(number)
}

/// Returns `true` if the bytes of a segment from `at` on are zeros, or a record that was not written completely. Such
/// a record was never acknowledged.
pub(super) fn is_torn(segment: &[u8], at: usize) -> bool {
    let rest = &segment[at..];
    let end = torn_length(rest).unwrap_or(HEADER).max(1);
    // No record is longer than its segment; a larger length means damage on the disk.
    if end > rest.len().max(HEADER) {
        return false;
    }
    let Some(written) = rest.iter().rposition(|byte| *byte != 0).map(|last| last + 1) else { return true };
    let first = (SECTOR_BYTES - at % SECTOR_BYTES).min(written);
    let (first, others) = rest[..written].split_at(first);
    let is_missing = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    written < end || is_missing(first) || others.chunks(SECTOR_BYTES).any(is_missing)
}

/// Returns the number, the row and the length of the record at the beginning of `bytes`.
pub(super) fn record(bytes: &[u8]) -> Option<(u64, &[u8], usize)> {
    let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
    let n = u64::from_le_bytes(header[4..12].try_into().ok()?);
    let length = u32::from_le_bytes(header[12..16].try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(header[16..20].try_into().ok()?);
    let row = bytes.get(HEADER..HEADER.checked_add(length)?)?;
    (checksum(n, row) == sum).then_some((n, row, HEADER + length))
}

/// Returns the positions of `what` in `bytes`.
pub(super) fn memmem<'b>(bytes: &'b [u8], what: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    bytes.windows(what.len()).enumerate().filter(move |(_, some)| *some == what).map(|(place, _)| place)
}
