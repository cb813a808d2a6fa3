//! The bytes of a segment: its beginning, its records, and the signs of an incomplete write.
//!
//! A segment is filled with a pattern before it is used. Where a write did not reach the disk, the pattern is still
//! there; where the disk lost what was written, zeros or anything else are. A torn record therefore differs from a
//! damaged one.
//!
//! ```text
//! segment: start (a sector), start again (a sector), records, pattern
//! start:   "lfdi", number u64, salt u64, store u64, CRC-32 of them
//! record:  "lfdl", row number u64, length u32, CRC-32 of salt, number and length, CRC-32 of salt, number and row, row
//! ```
//!
//! All numbers are little-endian. The salt is random, so content of users cannot look like a record. The store is the
//! random number of the store that wrote the segment, so that the log of another store is not read. Segments of earlier
//! versions begin with "lfds" and name no store; still earlier ones have no start and no salt, one checksum of number
//! and row, and zeros instead of the pattern.

use bytes::{BufMut, BytesMut};

pub(super) const MAGIC: &[u8; 4] = b"lfdl";
const SEGMENT_MAGIC: &[u8; 4] = b"lfdi";
/// The beginning of a segment that names no store.
const NAMELESS_MAGIC: &[u8; 4] = b"lfds";
/// The largest unit, in bytes, that every disk writes completely or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
/// The size of the beginning of a segment. It holds the start twice, because without the salt no record can be read.
pub(super) const START: usize = 2 * SECTOR_BYTES;
/// The size of a record header: magic, number, length, checksum of the header, checksum of the row.
pub(super) const HEADER: usize = 4 + 8 + 4 + 4 + 4;
/// The size of a record header of earlier versions: magic, number, length, checksum.
const EARLIER_HEADER: usize = 4 + 8 + 4 + 4;
/// The pattern of unused space. The byte at a place of a segment is the one at that place modulo its length.
pub(super) const UNUSED: &[u8; 16] = b"unused lifeformd";

/// The format of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Format {
    /// A segment with a start.
    Present {
        /// The number of the segment.
        number: u64,
        /// The salt of its checksums.
        salt: u64,
        /// The store that wrote it; `None` for one of an earlier version.
        store: Option<u64>,
    },
    /// A segment of an earlier version, or one whose beginning is damaged.
    Earlier,
}

/// Fills a part of a segment, which begins at place `from`, with the pattern of unused space.
pub(super) fn fill(part: &mut [u8], from: usize) {
    part.iter_mut().zip(from..).for_each(|(byte, place)| *byte = UNUSED[place % UNUSED.len()]);
}

fn is_unused(segment: &[u8], mut places: std::ops::Range<usize>) -> bool {
    places.all(|place| segment[place] == UNUSED[place % UNUSED.len()])
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Format {
    /// Reads the format of a segment.
    pub(super) fn of(segment: &[u8]) -> Self {
        let read = |at: usize| {
            let (number, salt) = (u64_at(segment, at + 4)?, u64_at(segment, at + 12)?);
            let has_name = segment[at..].starts_with(SEGMENT_MAGIC);
            let store = if has_name { Some(u64_at(segment, at + 20)?) } else { None };
            let start = start_of(number, salt, store);
            segment[at..].starts_with(&start).then_some(Self::Present { number, salt, store })
        };
        read(0).or_else(|| read(SECTOR_BYTES)).unwrap_or(Self::Earlier)
    }

    /// Returns the first bytes of a segment.
    pub(super) fn start(self) -> [u8; START] {
        let mut start = [0; START];
        fill(&mut start, 0);
        let Self::Present { number, salt, store } = self else { return start };
        let once = start_of(number, salt, store);
        for at in [0, SECTOR_BYTES] {
            start[at..at + once.len()].copy_from_slice(&once);
        }
        start
    }

    /// Returns the store that wrote the segment, if the segment names it.
    pub(super) fn store(self) -> Option<u64> {
        match self {
            Self::Present { store, .. } => store,
            Self::Earlier => None,
        }
    }

    /// Returns the number that the segment names; `None` for one of an earlier version.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Present { number, .. } => Some(number),
            Self::Earlier => None,
        }
    }

    /// Returns the place of the first record.
    pub(super) fn records_at(self) -> usize {
        match self {
            Self::Present { .. } => START,
            Self::Earlier => 0,
        }
    }

    fn header(self) -> usize {
        match self {
            Self::Present { .. } => HEADER,
            Self::Earlier => EARLIER_HEADER,
        }
    }

    /// Returns the record of a row.
    pub(super) fn record_of(self, n: u64, row: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::with_capacity(self.header() + row.len());
        bytes.put_slice(MAGIC);
        bytes.put_u64_le(n);
        bytes.put_u32_le(row.len() as u32);
        match self {
            Self::Present { salt, .. } => {
                let head = checksum(&[&salt.to_le_bytes(), &bytes]);
                bytes.put_u32_le(head);
                bytes.put_u32_le(checksum(&[&salt.to_le_bytes(), &n.to_le_bytes(), row]));
            }
            Self::Earlier => bytes.put_u32_le(checksum(&[&n.to_le_bytes(), row])),
        }
        bytes.put_slice(row);
        bytes
    }

    /// Returns the length of the record at the beginning of `bytes`, if its header is whole.
    pub(super) fn record_length(self, bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(..self.header()).filter(|header| header.starts_with(MAGIC))?;
        if let Self::Present { salt, .. } = self
            && u32_at(header, 16)? != checksum(&[&salt.to_le_bytes(), &header[..16]])
        {
            return None;
        }
        Some(self.header() + u32_at(header, 12)? as usize)
    }

    /// Returns the number, the row and the length of the record at the beginning of `bytes`.
    pub(super) fn record(self, bytes: &[u8]) -> Option<(u64, &[u8], usize)> {
        let length = self.record_length(bytes)?;
        let (n, row) = (u64_at(bytes, 4)?, bytes.get(self.header()..length)?);
        let sum = match self {
            Self::Present { salt, .. } => checksum(&[&salt.to_le_bytes(), &n.to_le_bytes(), row]),
            Self::Earlier => checksum(&[&n.to_le_bytes(), row]),
        };
        (sum == u32_at(bytes, self.header() - 4)?).then_some((n, row, length))
    }

    /// Returns `true` if the bytes of a segment from `at` on are unused, or a record that was not written completely.
    /// Such a record was never acknowledged.
    pub(super) fn is_torn(self, segment: &[u8], at: usize) -> bool {
        if self == Self::Earlier {
            return is_torn_of_earlier_version(segment, at);
        }
        let header_end = at + HEADER;
        if header_end > segment.len() || is_unused(segment, at..header_end) {
            // Without its first sector a record is unused, whatever of it was written.
            return header_end <= segment.len() || is_unused(segment, at..segment.len());
        }
        let Some(length) = self.record_length(&segment[at..]).filter(|length| at + length <= segment.len()) else {
            // The header itself is incomplete: it ends early, or one of its two sectors is missing.
            let boundary = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
            let ends_early = is_unused(segment, header_end - 1..segment.len());
            let lacks_sector =
                boundary < header_end && (is_unused(segment, at..boundary) || is_unused(segment, boundary..header_end));
            return ends_early || lacks_sector;
        };
        let end = at + length;
        let mut sectors = (at / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES))
            .map(|sector| (sector * SECTOR_BYTES).max(at)..((sector + 1) * SECTOR_BYTES).min(end));
        let lacks_sector = sectors.any(|sector| is_unused(segment, sector));
        is_unused(segment, end..segment.len()) && (lacks_sector || is_unused(segment, end - 1..end))
    }
}

/// Returns the bytes of one start.
fn start_of(number: u64, salt: u64, store: Option<u64>) -> BytesMut {
    let mut start = BytesMut::new();
    start.put_slice(if store.is_some() { SEGMENT_MAGIC } else { NAMELESS_MAGIC });
    start.put_u64_le(number);
    start.put_u64_le(salt);
    store.iter().for_each(|store| start.put_u64_le(*store));
    start.put_u32_le(checksum(&[&start]));
    start
}

/// As [`Format::is_torn`], for segments that were filled with zeros.
fn is_torn_of_earlier_version(segment: &[u8], at: usize) -> bool {
    let rest = &segment[at..];
    let end = Format::Earlier.record_length(rest).unwrap_or(EARLIER_HEADER).max(1);
    // No record is longer than its segment; a larger length means damage on the disk.
    if end > rest.len().max(EARLIER_HEADER) {
        return false;
    }
    let Some(written) = rest.iter().rposition(|byte| *byte != 0).map(|last| last + 1) else { return true };
    let first = (SECTOR_BYTES - at % SECTOR_BYTES).min(written);
    let (first, others) = rest[..written].split_at(first);
    let is_missing = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    written < end || is_missing(first) || others.chunks(SECTOR_BYTES).any(is_missing)
}

/// Returns the positions of `what` in `bytes`.
pub(super) fn memmem<'b>(bytes: &'b [u8], what: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    bytes.windows(what.len()).enumerate().filter(move |(_, some)| *some == what).map(|(place, _)| place)
}
