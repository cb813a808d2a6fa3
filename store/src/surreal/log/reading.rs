//! Reading the log back: rows, and descriptions of what is missing.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::format::{Format, MAGIC, UNUSED, memmem};
use super::{Log, NEWEST, SEGMENT_BYTES, UNMADE, io, name_newest, number_of, path_of, remove};
use crate::StoreError;

/// The result of opening a log.
pub(in crate::surreal) struct Found {
    pub(in crate::surreal) log: Log,
    /// The rows after the requested number, in order.
    pub(in crate::surreal) rows: BTreeMap<u64, Bytes>,
    /// Descriptions of segments that are missing or too short. Rows at the end of the log may be lost with them.
    pub(in crate::surreal) losses: Vec<String>,
    /// The segments that were prepared and never begun.
    unbegun: Vec<PathBuf>,
    /// The most recently begun segment, if the file `newest` names an older one.
    unnamed: Option<u64>,
}

/// The facts about the log that the database knows.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::surreal) struct Noted {
    /// The most recently begun segment that was noted.
    pub(in crate::surreal) segment: Option<u64>,
    /// The number of the store; `None` for a database of an earlier version.
    pub(in crate::surreal) store: Option<u64>,
}

/// The state of reading the segments in order.
struct Reading {
    /// The number of the store, if the database or a segment names it.
    store: Option<u64>,
    /// The last row that the database holds.
    after: u64,
    rows: BTreeMap<u64, Bytes>,
    losses: Vec<String>,
    /// The end of a segment that is cut or damaged there: the last row before it, and the description. It is withdrawn
    /// if the next segment continues without a gap.
    cut: Option<(u64, String)>,
    /// The last row of the segments so far, and its segment.
    before: Option<(u64, PathBuf)>,
    /// The most recently begun segment.
    newest: Option<u64>,
    /// Set when a segment begins as those of this version do. None of an earlier version comes after it.
    has_present: bool,
    /// Set when a segment of this version holds a record, which shows that the file `newest` was written.
    has_begun: bool,
}

/// A segment after its records were read.
struct Segment<'p> {
    path: &'p Path,
    bytes: Bytes,
    format: Format,
    /// The place of its first record, and the place after its last one.
    start: usize,
    end: usize,
    /// The numbers of its first row, if its beginning can be read, and of its last one, or 0.
    first: Option<u64>,
    last: u64,
}

impl Reading {
    /// Reads the records of a segment, also those after a damaged one.
    fn records<'p>(&mut self, number: u64, path: &'p Path, bytes: Bytes) -> Segment<'p> {
        let format = Format::of(&bytes);
        if let Some(other) = format.number().filter(|own| *own != number) {
            let name = path_of(path.parent().unwrap_or(path), other);
            self.losses.push(format!("{} is segment {other}: rename it to {}", path.display(), name.display()));
        }
        let start = format.records_at().min(bytes.len());
        let is_own = self.is_own(path, format);
        let (mut at, mut last) = (start, 0);
        loop {
            while let Some((n, row, length)) = format.record(&bytes[at..]) {
                if n > self.after && is_own {
                    self.rows.insert(n, bytes.slice_ref(row));
                }
                (at, last) = (at + length, n);
            }
            // Bytes inside a torn record do not count as a record, although they may look like one.
            let rest = at + format.record_length(&bytes[at..]).unwrap_or(0).min(bytes.len() - at);
            let later = memmem(&bytes[rest..], MAGIC).map(|place| rest + place);
            let mut later = later.filter_map(|from| Some((from, format.record(&bytes[from..])?.0)));
            let Some((from, n)) = later.find(|(_, n)| *n > last) else { break };
            let why = format!("{}: a record at byte {at} cannot be read, and one at {from} can", path.display());
            // The database holds everything up to this row, so no necessary row is lost.
            if n <= self.after.saturating_add(1) {
                tracing::warn!(damage = why, "{NEEDLESS}");
            } else {
                self.losses.push(why);
            }
            at = from;
        }
        let first = bytes.get(start..).and_then(|bytes| format.record(bytes)).map(|(n, ..)| n);
        self.has_present |= format.number().is_some();
        self.has_begun |= format.number().is_some() && at > start;
        Segment { path, bytes, format, start, end: at, first, last }
    }

    /// Checks that this store wrote a segment. A database of an earlier version knows no number and takes that of the
    /// first segment.
    fn is_own(&mut self, path: &Path, format: Format) -> bool {
        let own = self.store.or(format.store());
        self.store = own;
        let is_own = format.store().is_none_or(|store| Some(store) == own);
        if !is_own {
            self.losses.push(format!("{} belongs to another store: put the right folder back", path.display()));
        }
        is_own
    }

    /// Compares a segment with the segments before it.
    fn follow(&mut self, number: u64, segment: &Segment<'_>) {
        if let Some(n) = segment.first {
            // A failed row may occur again at the beginning of the next segment; other rows may not.
            if let Some((_, other)) = self.before.as_ref().filter(|(last, _)| n < *last) {
                let (one, other) = (other.display(), segment.path.display());
                let same = format!("{one} and {other} hold the same rows: move away the one that was put back");
                self.losses.push(same);
            }
            self.before = Some((segment.last, segment.path.to_path_buf()));
            // Rows that continue without a gap show that no earlier row is missing.
            if self.cut.take_if(|(last, _)| n <= *last + 1).is_some() {
                tracing::debug!(path = %segment.path.display(), "the segment before this one lacks nothing");
            }
        }
        // A segment with rows has begun, even if `newest` names an older one.
        if segment.end > segment.start && self.newest.is_some_and(|newest| number > newest) {
            let path = segment.path.display();
            tracing::warn!(%path, "a segment of the log has rows, and is newer than the named one");
            self.newest = Some(number);
        }
    }

    /// Checks the end of a segment that has begun.
    fn check_end(&mut self, segment: &Segment<'_>) {
        let Segment { path, bytes, format, start, end, last, .. } = segment;
        let path = path.display();
        let upto = self.before.as_ref().map_or(self.after, |(last, _)| self.after.max(*last));
        let loss = if self.newest.is_some() && bytes.len() < SEGMENT_BYTES {
            format!("{path} is {} bytes long and was made with {SEGMENT_BYTES}; it ends with row {last}", bytes.len())
        } else if *format == Format::Earlier && *end == 0 && bytes.iter().all(|byte| *byte == 0) {
            format!("{path} holds zeros only")
        } else if *format == Format::Earlier
            && *end == 0
            && !bytes.starts_with(MAGIC)
            && (self.has_present || is_present(bytes))
        {
            format!("the beginning of {path} is damaged, so that no record of it can be read")
        } else if format.is_torn(bytes, *end) {
            return;
        } else {
            let damage = format!("{path}: the record at byte {end} cannot be read");
            if end > start && *last < self.after {
                tracing::warn!(damage, "{NEEDLESS}");
                return;
            }
            format!("{damage}; the rows before it end with {upto}")
        };
        self.cut = Some((upto, loss));
    }
}

/// Returns `true` if a segment holds a record, or unused space of the present format.
fn is_present(segment: &[u8]) -> bool {
    memmem(segment, MAGIC).next().is_some() || memmem(segment, UNUSED).next().is_some()
}

const NEEDLESS: &str = "a part of the log that is needed no more is damaged";

impl Log {
    /// Opens the log in `folder` and reads its rows after number `after`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the file `newest` cannot be read; [`StoreError::Io`].
    pub(in crate::surreal) fn open(folder: &Path, after: u64, known: Noted) -> Result<Found, StoreError> {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder).map_err(io(folder))?;
        // Sync the parent too: a folder whose entry is not on the disk may be lost with all its contents.
        let parent = folder.parent().unwrap_or(folder);
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(io(parent))?;
        let segments = segments(folder)?;
        let noted = newest_begun(folder)?;
        let begun = noted.max(known.segment);
        let mut reading = Reading {
            store: known.store,
            after,
            rows: BTreeMap::new(),
            losses: Vec::new(),
            cut: None,
            before: None,
            newest: begun,
            has_present: false,
            has_begun: known.segment.is_some(),
        };
        let (mut full, mut unbegun) = (VecDeque::new(), Vec::new());
        for (number, path) in &segments {
            let segment = reading.records(*number, path, std::fs::read(path).map_err(io(path))?.into());
            reading.follow(*number, &segment);
            if reading.newest.is_none_or(|newest| *number <= newest) {
                reading.check_end(&segment);
                full.push_back((path.clone(), segment.last));
            } else {
                unbegun.push(path.clone());
            }
        }
        let Reading { store, rows, mut losses, cut, newest, has_begun, .. } = reading;
        let store = store.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        losses.extend(cut.map(|(_, loss)| loss));
        if let Some(newest) = newest.filter(|newest| !segments.contains_key(newest)) {
            let last = rows.keys().next_back().map_or(String::new(), |last| format!("; the rows end with {last}"));
            losses.push(format!("{} is missing{last}", path_of(folder, newest).display()));
        }
        if noted.is_none() && has_begun && losses.is_empty() {
            let file = folder.join(NEWEST);
            losses.push(format!("{} is missing, so later segments may be missing too", file.display()));
        }
        let next = segments.keys().last().copied().max(newest).map_or(0, |last| last.saturating_add(1));
        let folder = folder.to_path_buf();
        let log = Self { folder, store, full, active: None, ahead: None, spare: None, next, newest };
        Ok(Found { log, rows, losses, unbegun, unnamed: newest.filter(|_| newest != begun) })
    }
}

impl Found {
    /// Brings the files in order when the start is accepted. A refused start changes nothing on the disk.
    ///
    /// A process that is killed between the write and the sync of a row leaves the row in the page cache only. It was
    /// read from there, and new rows will follow it, so it must be durable before they are.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(in crate::surreal) fn accept(&mut self) -> Result<(), StoreError> {
        for (path, _) in &self.log.full {
            File::open(path).and_then(|segment| segment.sync_all()).map_err(io(path))?;
        }
        let folder = &self.log.folder;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io(folder))?;
        // A segment that this start began is named already.
        if let Some(newest) = self.unnamed.take().filter(|newest| self.log.newest == Some(*newest)) {
            name_newest(&self.log.folder, newest)?;
        }
        std::mem::take(&mut self.unbegun).iter().for_each(|path| remove(path));
        Ok(())
    }
}

/// Lists the segments in `folder` by number. Removes segments that a killed process left unfinished.
fn segments(folder: &Path) -> Result<BTreeMap<u64, PathBuf>, StoreError> {
    let mut segments = BTreeMap::new();
    for file in std::fs::read_dir(folder).map_err(io(folder))? {
        let path = file.map_err(io(folder))?.path();
        if path.extension().is_some_and(|extension| extension == UNMADE) {
            remove(&path);
        } else if let Some(number) = number_of(&path).filter(|_| path.is_file()) {
            // Other files in this folder do not belong to the log.
            segments.insert(number, path);
        }
    }
    Ok(segments)
}

/// Reads the segment number in `newest`; `None` if the file does not exist yet.
fn newest_begun(folder: &Path) -> Result<Option<u64>, StoreError> {
    let path = folder.join(NEWEST);
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(StoreError::Corrupt(format!(
                "{} names no segment: write the number of the newest one in its folder into it",
                path.display()
            ))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(&path)(error)),
    }
}
