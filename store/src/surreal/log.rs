//! The packed log in files beside the embedded database: one append and one sync per commit.
//!
//! A log row in the database would cost a transaction, three times the cost of the sync in it. The log of an embedded
//! store is therefore a folder of segments. Segments are filled in advance, so that a sync has no metadata to write.
//! `log/format.rs` describes their bytes. The database holds the rows that a checkpoint covers, and the log holds the later rows. The database's own lock excludes a second process from
//! both.
//!
//! A torn record can only be the last record of its segment: after a failed append, the log begins a new segment. A
//! retry of the append writes the row to the new segment under the same number.
//!
//! A segment receives its name when all of it is on the disk, and the file `newest` names the most recently begun
//! segment. When the log is opened, a segment that is missing, renamed or shorter than its original size is therefore
//! reported and not mistaken for the end of the log.
//!
//! A torn record is a write that a kill or a power failure cut short; it was never acknowledged. A record is taken for
//! torn if it ends early or lacks a whole sector. Any other unreadable record is damage and is reported.

mod format;
mod reading;

pub(super) use reading::Noted;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use bytes::Bytes;

use crate::StoreError;
use format::{Format, HEADER, START, fill};

/// The size of a segment in bytes. A larger row gets its own segment.
const SEGMENT_BYTES: usize = 8 << 20;
/// The name of the file that names the most recently begun segment.
const NEWEST: &str = "newest";
/// The suffix of a segment that is still being prepared.
const UNMADE: &str = "tmp";
/// The suffix of a segment that was set aside because rows in it or after it are lost.
const LOST: &str = "lost";

/// The open log; see the module documentation.
pub(super) struct Log {
    folder: PathBuf,
    /// The number of the store, which each segment names.
    store: u64,
    /// Full segments, oldest first, each with the number of its last row.
    full: VecDeque<(PathBuf, u64)>,
    active: Option<Segment>,
    /// The next segment. A thread prepares it while the active segment fills up, so no append waits for 8 MiB of
    /// zeros.
    ahead: Option<JoinHandle<Result<Segment, StoreError>>>,
    /// A segment that could not be recorded in `newest` when it was to begin.
    spare: Option<Segment>,
    /// The number of the next segment's file.
    next: u64,
    /// The most recently begun segment, according to the file `newest`. It is kept until another segment begins.
    newest: Option<u64>,
}

struct Segment {
    path: PathBuf,
    file: File,
    format: Format,
    written: usize,
    size: usize,
    last: u64,
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + '_ {
    move |error| StoreError::Io(format!("{}: {error}", path.display()))
}

impl Log {
    /// Keeps only `rows`, after rows at the end were lost: writes them to a new segment, and renames the old segments
    /// to names that end with `.lost`.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the log can be opened again as it was.
    pub(super) fn keep_only(&mut self, rows: &BTreeMap<u64, Bytes>) -> Result<(), StoreError> {
        let found = std::mem::take(&mut self.full);
        for (n, row) in rows {
            self.append(*n, row)?;
        }
        self.begin_first()?;
        for (path, _) in found {
            let aside = path.with_extension(LOST);
            std::fs::rename(&path, &aside).map_err(io(&path))?;
            tracing::warn!(path = %aside.display(), "set a segment of the log aside");
        }
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(io(&self.folder))
    }

    /// Begins a segment, if none is active.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the call may be repeated.
    pub(super) fn begin_first(&mut self) -> Result<(), StoreError> {
        if self.active.is_none() {
            self.active = Some(self.begin(0)?);
        }
        Ok(())
    }

    /// Returns the number of the store, which each segment of the log names.
    pub(super) fn store(&self) -> u64 {
        self.store
    }

    /// Returns the most recently begun segment.
    pub(super) fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Appends row `n`; the row is on the disk when this returns.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the row may have been written, and may be appended again.
    pub(super) fn append(&mut self, n: u64, row: &[u8]) -> Result<(), StoreError> {
        let length = HEADER + row.len();
        let mut segment = match self.active.take() {
            Some(segment) if segment.written + length <= segment.size => segment,
            other => {
                self.full.extend(other.map(|segment| (segment.path, segment.last)));
                self.begin(length)?
            }
        };
        let bytes = segment.format.record_of(n, row);
        let written = segment.file.write_all(&bytes).and_then(|()| segment.file.sync_data());
        if let Err(error) = written {
            // It is unknown how much of the row was written, so the next row begins a new segment.
            let failed = io(&segment.path)(error);
            self.full.push_back((segment.path, n));
            return Err(failed);
        }
        segment.written += bytes.len();
        segment.last = n;
        let is_half_full = segment.written > segment.size / 2;
        self.active = Some(segment);
        if self.ahead.is_none() && is_half_full {
            let (folder, path, store) = (self.folder.clone(), self.name(), self.store);
            // If no thread can start, the segment is prepared when it is needed.
            self.ahead = Builder::new().spawn(move || Segment::make(&folder, store, path, SEGMENT_BYTES)).ok();
        }
        Ok(())
    }

    /// Begins a segment for a record of `bytes` bytes. The file `newest` names the segment before it holds a record.
    fn begin(&mut self, bytes: usize) -> Result<Segment, StoreError> {
        let segment = self.take_or_make(bytes)?;
        let number = number_of(&segment.path).unwrap_or_default();
        if let Err(error) = name_newest(&self.folder, number) {
            // The file `newest` may name this segment already, so it must be kept.
            self.spare = Some(segment);
            return Err(error);
        }
        self.newest = Some(number);
        Ok(segment)
    }

    fn take_or_make(&mut self, bytes: usize) -> Result<Segment, StoreError> {
        let bytes = START + bytes;
        if let Some(spare) = self.spare.take_if(|spare| bytes <= spare.size) {
            return Ok(spare);
        }
        match self.ahead.take().and_then(|ahead| ahead.join().ok()) {
            Some(Ok(segment)) if bytes <= segment.size => return Ok(segment),
            // Segments are read in the order of their names, so a segment that was skipped must not be used later.
            Some(Ok(segment)) => remove(&segment.path),
            // Preparing in the background failed; the attempt is repeated here.
            Some(Err(_)) | None => {}
        }
        let path = self.name();
        Segment::make(&self.folder, self.store, path, bytes.max(SEGMENT_BYTES))
    }

    /// Returns the path of the next new segment.
    fn name(&mut self) -> PathBuf {
        self.next += 1;
        path_of(&self.folder, self.next - 1)
    }

    /// Drops the segments that hold no row after number `upto`, and returns their paths. The caller [removes](remove)
    /// the files while appends go on.
    #[must_use]
    pub(super) fn trim(&mut self, upto: u64) -> Vec<PathBuf> {
        let newest = self.newest;
        let may_go = |(path, last): &mut (PathBuf, u64)| *last <= upto && number_of(path) != newest;
        std::iter::from_fn(|| self.full.pop_front_if(may_go)).map(|(path, _)| path).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // When the log is opened again, no thread may still be preparing a segment.
        if let Some(Ok(Ok(segment))) = self.ahead.take().map(JoinHandle::join) {
            remove(&segment.path);
        }
    }
}

impl Segment {
    /// Creates a segment of its final size, synced in its folder. It has a temporary name until all of it is on the
    /// disk.
    fn make(folder: &Path, store: u64, path: PathBuf, size: usize) -> Result<Self, StoreError> {
        let unmade = path.with_extension(UNMADE);
        let (salt, _) = uuid::Uuid::new_v4().as_u64_pair();
        let number = number_of(&path).unwrap_or_default();
        let format = Format::Present { number, salt, store: Some(store) };
        let made = (|| {
            let mut file = private().create_new(true).open(&unmade)?;
            file.write_all(&format.start())?;
            let mut unused = vec![0; 1 << 20];
            fill(&mut unused, 0);
            let mut left = size - START;
            while left > 0 {
                let some = left.min(unused.len());
                file.write_all(&unused[..some])?;
                left -= some;
            }
            file.sync_all()?;
            std::fs::rename(&unmade, &path)?;
            File::open(folder)?.sync_all()?;
            file.seek(SeekFrom::Start(START as u64))?;
            Ok(file)
        })();
        match made {
            Ok(file) => Ok(Self { path, file, format, written: START, size, last: 0 }),
            Err(error) => {
                let failed = io(&path)(error);
                let _ = std::fs::remove_file(&unmade);
                let _ = std::fs::remove_file(&path);
                Err(failed)
            }
        }
    }
}

/// Returns options that create a file which only its owner may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Returns the path of segment `number`.
fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}.log"))
}

/// Returns the number of the segment in the file `path`, or `None` for another file.
fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".log")?;
    (name.len() == 20).then(|| name.parse().ok())?
}

/// Records in `newest` that segment `number` begins; the record is on the disk when this returns.
fn name_newest(folder: &Path, number: u64) -> Result<(), StoreError> {
    let (path, unmade) = (folder.join(NEWEST), folder.join(NEWEST).with_extension(UNMADE));
    let written = (|| {
        let mut file = private().create(true).truncate(true).open(&unmade)?;
        file.write_all(format!("{number}\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unmade, &path)?;
        File::open(folder)?.sync_all()
    })();
    written.map_err(io(&path))
}

/// Removes a segment that is no longer needed.
pub(super) fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "a segment of the log that is no longer needed stays");
    }
}

#[cfg(test)]
mod tests {
    use super::format::SECTOR_BYTES;
    use super::*;

    fn rows(folder: &Path, after: u64) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let found = Log::open(folder, after, Noted::default())?;
        assert_eq!(found.losses, Vec::<String>::new());
        let mut found = found;
        found.accept()?;
        Ok(found.rows.into_iter().map(|(n, row)| (n, row.to_vec())).collect())
    }

    /// Restores the filling, as if these bytes had not been written.
    fn unwrite(bytes: &mut [u8], places: std::ops::Range<usize>) {
        let from = places.start;
        fill(&mut bytes[places], from);
    }

    fn written(folder: &Path, upto: u64) -> Log {
        let mut log = Log::open(folder, 0, Noted::default()).unwrap().log;
        (1..=upto).for_each(|n| log.append(n, format!("row {n}").as_bytes()).unwrap());
        log
    }

    fn segments(folder: &Path) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|path| number_of(path).is_some());
        files.sort();
        files
    }

    fn losses(folder: &Path) -> usize {
        losses_after(folder, 0)
    }

    fn losses_after(folder: &Path, after: u64) -> usize {
        Log::open(folder, after, Noted::default()).unwrap().losses.len()
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
        let mut log = Log::open(folder.path(), 4, Noted::default()).unwrap().log;
        log.append(6, b"six").unwrap();
        assert_eq!(rows(folder.path(), 4).unwrap().len(), 2);
        log.trim(5).iter().for_each(|path| remove(path));
        assert_eq!(segments(folder.path()).len(), 1);
    }

    #[test]
    fn the_log_keeps_its_rows_in_order_across_prepared_segments() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path(), 0, Noted::default()).unwrap().log;
        let row = |n: u64| vec![n as u8; SEGMENT_BYTES / 5];
        // Each segment holds four rows; after the third, the next segment is prepared.
        for n in 1..=11 {
            log.append(n, &row(n)).unwrap();
        }
        assert!(log.ahead.is_some());
        // A row that is larger than a prepared segment gets its own segment.
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
        let mut log = Log::open(folder.path(), 0, Noted::default()).unwrap().log;
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
            let end = START + 3 * (HEADER + 5);
            unwrite(&mut bytes, end - cut.min(HEADER + 5)..end);
            std::fs::write(path, &bytes).unwrap();
            assert_eq!(rows(folder.path(), 0).unwrap().len(), 2, "{cut} bytes are missing");
            let mut log = Log::open(folder.path(), 0, Noted::default()).unwrap().log;
            log.append(3, b"again").unwrap();
            assert_eq!(rows(folder.path(), 0).unwrap()[2], (3, b"again".to_vec()));
        }
    }

    #[test]
    fn a_first_row_that_is_torn_is_no_loss_and_one_that_rotted_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = written(folder.path(), 2);
        log.append(3, &vec![3; SEGMENT_BYTES]).unwrap();
        drop(log);
        let last = segments(folder.path()).pop().unwrap();
        let whole = std::fs::read(&last).unwrap();
        for written in [START, START + 1, START + 4, START + 13, START + HEADER, START + HEADER + 1, SEGMENT_BYTES] {
            let mut torn = whole.clone();
            unwrite(&mut torn, written..whole.len());
            std::fs::write(&last, torn).unwrap();
            assert_eq!(rows(folder.path(), 0).unwrap().len(), 2, "{written} bytes of the record are there");
        }
        for damaged in [START, START + 5, START + 17, START + HEADER + 1, whole.len() - 1] {
            let mut rotten = whole.clone();
            rotten[damaged] ^= 1;
            std::fs::write(&last, rotten).unwrap();
            assert_eq!(losses(folder.path()), 1, "byte {damaged} is damaged");
        }
        // The same row in the next segment shows that nothing is lost; a later row shows that something is.
        for (next, lost) in [(3, 0), (4, 1)] {
            let folder = tempfile::tempdir().unwrap();
            let mut log = written(folder.path(), 2);
            log.append(3, &vec![3; SEGMENT_BYTES]).unwrap();
            log.append(next, &vec![4; SEGMENT_BYTES]).unwrap();
            drop(log);
            let damaged = &segments(folder.path())[1];
            let mut rotten = std::fs::read(damaged).unwrap();
            rotten[START + HEADER] ^= 1;
            std::fs::write(damaged, rotten).unwrap();
            assert_eq!(losses(folder.path()), lost, "row {next} follows");
        }
    }

    #[test]
    fn a_row_that_rotted_in_the_middle_is_no_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        drop(written(folder.path(), 3));
        let path = &segments(folder.path())[0];
        let mut bytes = std::fs::read(path).unwrap();
        bytes[START + HEADER + 5 + HEADER] ^= 1;
        std::fs::write(path, &bytes).unwrap();
        assert_eq!(losses(folder.path()), 1);
        assert_eq!(rows(folder.path(), 2).unwrap(), [(3, b"row 3".to_vec())], "the database holds the damaged row");
    }

    #[test]
    fn a_newest_segment_that_is_missing_cut_or_emptied_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        drop(written(folder.path(), 3));
        assert_eq!(losses(folder.path()), 0);
        let path = segments(folder.path()).pop().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 1, 20, 511, 512, START - 1, START, START + HEADER + 5, SEGMENT_BYTES - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(losses(folder.path()), 1, "{length} bytes are left");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(losses(folder.path()), 1);
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(losses(folder.path()), 0, "nothing says that there was a log");
        assert_eq!(
            Log::open(folder.path(), 0, Noted { segment: Some(0), store: None }).unwrap().losses.len(),
            1,
            "the database says so"
        );
    }

    #[test]
    fn the_log_reports_a_damaged_last_record_but_not_a_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = written(folder.path(), 3);
        log.append(4, &[4; 4 * SECTOR_BYTES]).unwrap();
        drop(log);
        let path = segments(folder.path()).pop().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let at = START + 3 * (HEADER + 5);
        for damaged in (at..at + HEADER).chain([at + HEADER, at + HEADER + 4 * SECTOR_BYTES - 1]) {
            let mut rotten = whole.clone();
            rotten[damaged] ^= 1;
            std::fs::write(&path, &rotten).unwrap();
            let found = Log::open(folder.path(), 0, Noted::default()).unwrap();
            assert_eq!(found.losses.len(), 1, "byte {damaged} is damaged");
            assert!(found.losses[0].contains(&format!("at byte {at} ")), "{:?}", found.losses);
            assert_eq!(losses_after(folder.path(), 4), 0, "the database holds the damaged row");
        }
        for sector in (at / SECTOR_BYTES..).take(4) {
            let mut torn = whole.clone();
            unwrite(&mut torn, (sector * SECTOR_BYTES).max(at)..(sector + 1) * SECTOR_BYTES);
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(rows(folder.path(), 0).unwrap().len(), 3, "sector {sector} was not written");
        }
        // Zeros are no signs of a write that was cut short, however far they reach.
        for from in [START, at - 10, at, at + HEADER + 1, at + SECTOR_BYTES] {
            let mut lost = whole.clone();
            lost[from..].fill(0);
            std::fs::write(&path, &lost).unwrap();
            assert!(losses(folder.path()) > 0, "zeros from byte {from} on");
        }
    }

    #[test]
    fn a_flipped_bit_in_the_length_of_a_record_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        drop(written(folder.path(), 9));
        let path = segments(folder.path()).pop().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for record in [0, 4, 8] {
            for bit in 0..32 {
                let mut rotten = whole.clone();
                rotten[START + record * (HEADER + 5) + 12 + bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &rotten).unwrap();
                assert!(losses(folder.path()) > 0, "bit {bit} of the length of record {record}");
            }
        }
    }

    #[test]
    fn the_log_reports_a_renamed_zeroed_or_removed_segment() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = written(folder.path(), 3);
        log.append(4, &[4; SEGMENT_BYTES]).unwrap();
        drop(log);
        let (last, note) = (segments(folder.path()).pop().unwrap(), folder.path().join(NEWEST));
        let (whole, noted) = (std::fs::read(&last).unwrap(), std::fs::read(&note).unwrap());
        let later = path_of(folder.path(), 9);
        std::fs::rename(&last, &later).unwrap();
        let found = Log::open(folder.path(), 0, Noted::default()).unwrap();
        assert!(found.losses[0].contains("is segment 1: rename it"), "{:?}", found.losses);
        std::fs::rename(&later, &last).unwrap();
        std::fs::write(&last, vec![0; whole.len()]).unwrap();
        assert_eq!(losses(folder.path()), 1, "zeroed");
        // One lost block of 4 KiB takes both starts of the segment.
        let mut damaged = whole.clone();
        damaged[..4_096].fill(0);
        std::fs::write(&last, &damaged).unwrap();
        assert_eq!(losses(folder.path()), 1, "its beginning is zeroed");
        for (sectors, lost) in [(0..1, 0), (1..2, 0), (0..2, 1)] {
            let mut damaged = whole.clone();
            damaged[sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES].fill(7);
            std::fs::write(&last, &damaged).unwrap();
            assert_eq!(losses(folder.path()), lost, "sectors {sectors:?} are damaged");
        }
        std::fs::write(&last, &whole).unwrap();
        std::fs::remove_file(&note).unwrap();
        assert_eq!(losses(folder.path()), 1, "without its note");
        std::fs::remove_file(&last).unwrap();
        assert_eq!(losses(folder.path()), 1, "both removed");
        std::fs::write(&last, &whole).unwrap();
        std::fs::write(&note, &noted).unwrap();
        assert_eq!(rows(folder.path(), 3).unwrap().len(), 1);
    }

    #[test]
    fn what_is_left_after_a_loss_is_kept_and_the_rest_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        drop(written(folder.path(), 3));
        let path = segments(folder.path()).pop().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..START + 2 * (HEADER + 5) + 3]).unwrap();
        let mut found = Log::open(folder.path(), 0, Noted::default()).unwrap();
        found.log.keep_only(&found.rows).unwrap();
        found.log.append(3, b"three").unwrap();
        drop(found.log);
        assert_eq!(rows(folder.path(), 1).unwrap(), [(2, b"row 2".to_vec()), (3, b"three".to_vec())]);
        assert!(path.with_extension(LOST).exists());
    }

    #[test]
    fn the_log_reports_a_segment_restored_after_its_accepted_loss() {
        let folder = tempfile::tempdir().unwrap();
        drop(written(folder.path(), 9));
        let (path, aside) = (segments(folder.path()).pop().unwrap(), folder.path().join("aside"));
        let noted = Noted { segment: None, store: Format::of(&std::fs::read(&path).unwrap()).store() };
        std::fs::rename(&path, &aside).unwrap();
        let mut found = Log::open(folder.path(), 0, noted).unwrap();
        found.log.keep_only(&found.rows).unwrap();
        (1..=4).for_each(|n| found.log.append(n, b"another").unwrap());
        drop(found.log);
        std::fs::rename(&aside, &path).unwrap();
        let found = Log::open(folder.path(), 0, noted).unwrap();
        assert!(found.losses[0].contains("hold the same rows"), "{:?}", found.losses);
    }

    #[test]
    fn the_log_of_another_store_is_reported_and_not_read() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = written(folder.path(), 3).store();
        drop(written(other.path(), 5));
        let noted = |store| Noted { segment: None, store: Some(store) };
        assert_eq!(Log::open(folder.path(), 0, noted(own)).unwrap().rows.len(), 3);
        assert_eq!(Log::open(other.path(), 0, Noted::default()).unwrap().rows.len(), 5, "the database knows no store");
        let found = Log::open(other.path(), 0, noted(own)).unwrap();
        assert!(found.losses[0].contains("another store"), "{:?}", found.losses);
        assert_eq!(found.rows.len(), 0);
        // Accepted, the log goes on without it.
        let mut found = found;
        found.log.keep_only(&found.rows).unwrap();
        found.log.append(1, b"one").unwrap();
        drop(found.log);
        let found = Log::open(other.path(), 0, noted(own)).unwrap();
        assert_eq!((found.losses.len(), found.rows.len()), (0, 1));
    }

    #[test]
    fn a_killed_start_leaves_no_segments_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = written(folder.path(), 1);
        let unbegun = log.name();
        std::mem::forget(Segment::make(folder.path(), log.store(), unbegun, SEGMENT_BYTES).unwrap());
        std::fs::write(folder.path().join("00000000000000000009.tmp"), [0; 99]).unwrap();
        std::mem::forget(log);
        assert_eq!(rows(folder.path(), 0).unwrap().len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a segment and `newest`");
    }
}
