//! The packed log as files beside the embedded database: one append and one sync a commit.
//!
//! A row in the database costs a transaction, three times what the sync itself does. So the log of an embedded store is
//! a folder of segments, written ahead in zeros so that a sync has no metadata to write, each a run of records
//! `magic, number, length, checksum, row`. The database holds what is projected, and the log what is not yet. The
//! database's own lock keeps a second process out of both.
//!
//! A record that was torn can only be the last of its segment: after a failed append a new segment is begun, with the
//! same number in it should the append be tried again.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use bytes::{BufMut, Bytes, BytesMut};

use crate::store::StoreError;

/// Bytes of a segment; a larger row has one of its own.
const SEGMENT_BYTES: usize = 8 << 20;
const MAGIC: &[u8; 4] = b"lfdl";
/// Magic, number, length, checksum.
const HEADER: usize = 4 + 8 + 4 + 4;

/// See the module.
pub(super) struct Log {
    folder: PathBuf,
    /// Segments that are full, oldest first, each with its last number.
    full: VecDeque<(PathBuf, u64)>,
    active: Option<Segment>,
    /// The segment after the active one, made while that one fills: nobody waits for eight megabytes of zeros.
    ahead: Option<JoinHandle<Result<Segment, StoreError>>>,
    /// The number of the next segment's file.
    next: u64,
}

struct Segment {
    path: PathBuf,
    file: File,
    written: usize,
    size: usize,
    last: u64,
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + '_ {
    move |error| StoreError::Io(format!("{}: {error}", path.display()))
}

fn checksum(n: u64, row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&n.to_le_bytes());
    hasher.update(row);
    hasher.finalize()
}

/// How long the record at the beginning of `bytes` says it is.
fn torn_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
    Some(HEADER + u32::from_le_bytes(header[12..16].try_into().ok()?) as usize)
}

/// The record at the beginning of `bytes`, and how long it is.
fn record(bytes: &[u8]) -> Option<(u64, &[u8], usize)> {
    let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
    let n = u64::from_le_bytes(header[4..12].try_into().ok()?);
    let length = u32::from_le_bytes(header[12..16].try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(header[16..20].try_into().ok()?);
    let row = bytes.get(HEADER..HEADER.checked_add(length)?)?;
    (checksum(n, row) == sum).then_some((n, row, HEADER + length))
}

impl Log {
    /// Opens the log in `folder` and answers its rows past number `after`, in order.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a record in the middle cannot be read.
    pub(super) fn open(folder: &Path, after: u64) -> Result<(Self, BTreeMap<u64, Bytes>), StoreError> {
        std::fs::create_dir_all(folder).map_err(io(folder))?;
        // A folder that is not known to its own may be gone with all that is in it.
        let parent = folder.parent().unwrap_or(folder);
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(io(parent))?;
        let files = std::fs::read_dir(folder).map_err(io(folder))?;
        let mut segments: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for file in files {
            let path = file.map_err(io(folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".log"));
            let number = name.filter(|name| name.len() == 20).and_then(|name| name.parse().ok());
            // Whatever else lies here is none of ours.
            segments.extend(number.filter(|_| path.is_file()).map(|number: u64| (number, path.clone())));
        }
        let next = segments.keys().last().map_or(0, |last| last.saturating_add(1));
        let (mut rows, mut full) = (BTreeMap::new(), VecDeque::new());
        for path in segments.into_values() {
            let bytes = Bytes::from(std::fs::read(&path).map_err(io(&path))?);
            let (mut at, mut last) = (0, 0);
            while let Some((n, row, length)) = record(&bytes[at..]) {
                if n > after {
                    rows.insert(n, bytes.slice_ref(row));
                }
                (at, last) = (at + length, n);
            }
            // What a torn record carries is no record, though it may look like one.
            let after = at + torn_length(&bytes[at..]).unwrap_or(0).min(bytes.len() - at);
            let is_lost = |from: usize| record(&bytes[from..]).is_some_and(|(n, ..)| n > last);
            if let Some(later) = memmem(&bytes[after..], MAGIC).map(|place| after + place).find(|from| is_lost(*from)) {
                let why = format!("{}: a record at byte {at} cannot be read, and one at {later} can", path.display());
                return Err(StoreError::Corrupt(why));
            }
            full.push_back((path, last));
        }
        Ok((Self { folder: folder.to_path_buf(), full, active: None, ahead: None, next }, rows))
    }

    /// Writes row `n`; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the row may be there then, and may be written again.
    pub(super) fn append(&mut self, n: u64, row: &[u8]) -> Result<(), StoreError> {
        let mut bytes = BytesMut::with_capacity(HEADER + row.len());
        bytes.put_slice(MAGIC);
        bytes.put_u64_le(n);
        bytes.put_u32_le(row.len() as u32);
        bytes.put_u32_le(checksum(n, row));
        bytes.put_slice(row);
        let mut segment = match self.active.take() {
            Some(segment) if segment.written + bytes.len() <= segment.size => segment,
            other => {
                self.full.extend(other.map(|segment| (segment.path, segment.last)));
                self.begin(bytes.len())?
            }
        };
        let written = segment.file.write_all(&bytes).and_then(|()| segment.file.sync_data());
        if let Err(error) = written {
            // Nobody knows what of it is there: the next row begins another segment.
            let failed = io(&segment.path)(error);
            self.full.push_back((segment.path, n));
            return Err(failed);
        }
        segment.written += bytes.len();
        segment.last = n;
        let is_half_full = segment.written > segment.size / 2;
        self.active = Some(segment);
        if self.ahead.is_none() && is_half_full {
            let (folder, path) = (self.folder.clone(), self.name());
            // Where there is no thread for it, it is made when it is needed.
            self.ahead = Builder::new().spawn(move || Segment::make(&folder, path, SEGMENT_BYTES)).ok();
        }
        Ok(())
    }

    /// The segment that takes a record of so many bytes next.
    fn begin(&mut self, bytes: usize) -> Result<Segment, StoreError> {
        match self.ahead.take().and_then(|ahead| ahead.join().ok()) {
            Some(Ok(segment)) if bytes <= segment.size => return Ok(segment),
            // Segments are read in the order of their names, so one that was passed over is not used any more.
            Some(Ok(segment)) => remove(&segment.path),
            // What could not be made ahead may be made now.
            Some(Err(_)) | None => {}
        }
        let path = self.name();
        Segment::make(&self.folder, path, bytes.max(SEGMENT_BYTES))
    }

    /// The name of one more segment.
    fn name(&mut self) -> PathBuf {
        self.next += 1;
        self.folder.join(format!("{:020}.log", self.next - 1))
    }

    /// Lets go of segments that hold nothing past number `upto`, and answers their files, which whoever asked
    /// [removes](remove) while others append.
    #[must_use]
    pub(super) fn trim(&mut self, upto: u64) -> Vec<PathBuf> {
        std::iter::from_fn(|| self.full.pop_front_if(|(_, last)| *last <= upto)).map(|(path, _)| path).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Whoever opens the log again finds nothing that is still being made.
        if let Some(Ok(Ok(segment))) = self.ahead.take().map(JoinHandle::join) {
            remove(&segment.path);
        }
    }
}

impl Segment {
    /// A new one, as long as it will be, and known to its folder.
    fn make(folder: &Path, path: PathBuf, size: usize) -> Result<Self, StoreError> {
        let made = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            let zeros = vec![0; 1 << 20];
            let mut left = size;
            while left > 0 {
                let some = left.min(zeros.len());
                file.write_all(&zeros[..some])?;
                left -= some;
            }
            file.sync_all()?;
            File::open(folder)?.sync_all()?;
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        })();
        match made {
            Ok(file) => Ok(Self { path, file, written: 0, size, last: 0 }),
            Err(error) => {
                let failed = io(&path)(error);
                let _ = std::fs::remove_file(&path);
                Err(failed)
            }
        }
    }
}

/// Removes a segment that is no longer needed.
pub(super) fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "a segment of the log that is no longer needed stays");
    }
}

/// The places of `what` in `bytes`.
fn memmem<'b>(bytes: &'b [u8], what: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    bytes.windows(what.len()).enumerate().filter(move |(_, some)| *some == what).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(folder: &Path, after: u64) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        Log::open(folder, after).map(|(_, rows)| rows.into_iter().map(|(n, row)| (n, row.to_vec())).collect())
    }

    fn written(folder: &Path, upto: u64) -> Log {
        let (mut log, _) = Log::open(folder, 0).unwrap();
        (1..=upto).for_each(|n| log.append(n, format!("row {n}").as_bytes()).unwrap());
        log
    }

    fn segments(folder: &Path) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn rows_come_back_in_order_past_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = written(folder.path(), 3);
        log.append(4, &vec![7; 2 * SEGMENT_BYTES]).unwrap();
        log.append(5, b"").unwrap();
        assert_eq!(segments(folder.path()).len(), 3);
        let found = rows(folder.path(), 2).unwrap();
        assert_eq!(
            found.iter().map(|(n, row)| (*n, row.len())).collect::<Vec<_>>(),
            [(3, 5), (4, 2 * SEGMENT_BYTES), (5, 0)]
        );
        log.trim(4).iter().for_each(|path| remove(path));
        assert_eq!(segments(folder.path()).len(), 1);
        assert_eq!(rows(folder.path(), 4).unwrap(), [(5, vec![])]);
        drop(log);
        let (mut log, _) = Log::open(folder.path(), 4).unwrap();
        log.append(6, b"six").unwrap();
        assert_eq!(rows(folder.path(), 4).unwrap().len(), 2);
        log.trim(5).iter().for_each(|path| remove(path));
        assert_eq!(segments(folder.path()).len(), 1);
    }

    #[test]
    fn a_segment_made_ahead_is_taken_or_passed_over_and_the_rows_stay_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, _) = Log::open(folder.path(), 0).unwrap();
        let row = |n: u64| vec![n as u8; SEGMENT_BYTES / 5];
        // Each segment holds four; after the third the next one is made.
        for n in 1..=11 {
            log.append(n, &row(n)).unwrap();
        }
        assert!(log.ahead.is_some());
        // What fits into none that was made ahead has one of its own.
        log.append(12, &vec![12; 2 * SEGMENT_BYTES]).unwrap();
        for n in 13..=15 {
            log.append(n, &row(n)).unwrap();
        }
        let found = rows(folder.path(), 0).unwrap();
        assert!(
            found.iter().map(|(n, _)| *n).eq(1..=15) && found.iter().all(|(n, row)| row.iter().all(|b| *b == *n as u8))
        );
        drop(log);
        assert_eq!(segments(folder.path()).len(), 5, "what was made ahead goes with the log");
        let (mut log, _) = Log::open(folder.path(), 0).unwrap();
        log.append(16, b"and on").unwrap();
        assert_eq!(rows(folder.path(), 15).unwrap(), [(16, b"and on".to_vec())]);
    }

    #[test]
    fn a_torn_row_is_none_and_may_be_written_again() {
        for cut in 1..30 {
            let folder = tempfile::tempdir().unwrap();
            drop(written(folder.path(), 3));
            let path = &segments(folder.path())[0];
            let mut bytes = std::fs::read(path).unwrap();
            let end = 3 * (HEADER + 5);
            bytes[end - cut.min(HEADER + 5)..end].fill(0);
            std::fs::write(path, &bytes).unwrap();
            assert_eq!(rows(folder.path(), 0).unwrap().len(), 2, "{cut} bytes are missing");
            let (mut log, _) = Log::open(folder.path(), 0).unwrap();
            log.append(3, b"again").unwrap();
            assert_eq!(rows(folder.path(), 0).unwrap()[2], (3, b"again".to_vec()));
        }
    }

    #[test]
    fn a_row_that_rotted_in_the_middle_is_no_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        drop(written(folder.path(), 3));
        let path = &segments(folder.path())[0];
        let mut bytes = std::fs::read(path).unwrap();
        bytes[HEADER + 5 + HEADER] ^= 1;
        std::fs::write(path, &bytes).unwrap();
        assert!(matches!(rows(folder.path(), 0), Err(StoreError::Corrupt(_))));
    }
}
