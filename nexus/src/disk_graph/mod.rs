//! Shelves: minds over their memory budget. The graph of such a mind is in a file of tables beside the store, the
//! shelf, and only recent changes are in memory. Readers see a small resident graph over a large graph on disk as one
//! graph. From time to time the writer flushes the resident graph to the file. The store remains the source of truth;
//! a shelf that is lost, torn or behind is rebuilt from it.

mod base;
mod tables;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use imbl::OrdSet;
use kip::datum::Sym;
use kip::graph::{ElementId, Graph, GraphRead, GraphWrite, Limited, Mask, Masked, Numbering, Record, Union, counted};
use kip::reads_through;
use redb::{Database, Durability, ReadableDatabase, ReadableTable};
use serde::{Deserialize, Serialize};

use base::Base;
use store::StoreError;
use tables::Tables;
pub(super) use tables::guarded;

/// The number of elements per flush when a whole mind moves to a shelf.
const AT_ONCE: usize = 65_536;
/// The cache size of one shelf, in bytes.
const CACHE_BYTES: usize = 64 << 20;
/// The polling interval for a shelf that is being closed.
const CLOSING_STEP: Duration = Duration::from_millis(5);
const CLOSING_STEPS_MAX: usize = 2_000;
/// The version of the table format; a shelf of another version is rebuilt.
const FORM: u32 = 6;

/// The folder of the shelves, and the mind size above which a mind uses a shelf.
#[derive(Clone, Debug)]
pub struct SpillConfig {
    /// The folder of the shelf files.
    pub folder: PathBuf,
    /// The memory budget of one mind, in bytes.
    pub memory: usize,
    /// The maximum number of unflushed elements in memory per shelf (default 16,384).
    pub unfiled: usize,
}

/// The open shelves by file. A file that readers still use is not opened a second time.
#[derive(Default)]
pub(super) struct Open(Mutex<HashMap<PathBuf, Weak<Database>>>);

/// The state of a nexus that a shelf holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    form: u32,
    /// The number of the last journal entry in the shelf.
    pub(super) seq: u64,
    /// The hash of that entry, which detects a shelf of another history.
    pub(super) entry: String,
    weight: usize,
}

impl State {
    /// The state of a complete shelf at an entry.
    pub(super) fn at(seq: u64, entry: String) -> Self {
        Self { form: FORM, seq, entry, weight: 0 }
    }
}

/// A graph on a shelf, with the elements that are not flushed yet. A clone is a snapshot.
#[derive(Clone)]
pub struct DiskGraph {
    file: Arc<Database>,
    base: Arc<Base>,
    stale: Stale,
    fresh: Graph,
    /// The visibility restrictions of all elements.
    limited: Limited,
    /// The estimated memory of the base graph if it were resident, in bytes.
    weight: usize,
    /// The state of the shelf when this base was opened. A writer that finds another state does not write.
    said: Option<Vec<u8>>,
}

/// The elements of the base that were removed or have a newer version in memory.
#[derive(Clone, Default)]
struct Stale {
    els: OrdSet<ElementId>,
    kinds: imbl::HashMap<(bool, Sym), usize>,
    weight: usize,
}

impl SpillConfig {
    /// Returns shelves in `folder` for minds over `memory` bytes.
    pub fn new(folder: impl Into<PathBuf>, memory: usize) -> Self {
        Self { folder: folder.into(), memory, unfiled: 16_384 }
    }

    /// Returns the shelf file of a nexus.
    pub(super) fn file(&self, nexus: &str) -> PathBuf {
        self.folder.join(format!("{nexus}.redb"))
    }
}

impl Open {
    /// Opens the shelf in `file` and creates the file if it is missing.
    ///
    /// # Errors
    /// [`StoreError::Io`]; [`StoreError::Locked`] if the file stays open elsewhere.
    pub(super) async fn open(&self, file: &Path) -> Result<Arc<Database>, StoreError> {
        for _ in 0..CLOSING_STEPS_MAX {
            match self.try_open(file) {
                // The last holder is still closing the file.
                Err(redb::Error::DatabaseAlreadyOpen) => tokio::time::sleep(CLOSING_STEP).await,
                opened => return opened.map_err(|error| io(&error)),
            }
        }
        Err(StoreError::Locked(file.display().to_string()))
    }

    /// Discards an unreadable shelf; the next caller of `open` creates it again.
    pub(super) fn discard_unreadable(&self, file: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(file);
        if let Err(error) = std::fs::remove_file(file) {
            tracing::warn!(file = %file.display(), %error, "a shelf that cannot be read stays");
        }
    }

    fn try_open(&self, file: &Path) -> tables::Result<Arc<Database>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, shelf| shelf.strong_count() > 0);
        if let Some(shelf) = open.get(file).and_then(Weak::upgrade) {
            return Ok(shelf);
        }
        let shelf = Arc::new(tables::guarded(|| open_or_make(file, CACHE_BYTES))?);
        open.insert(file.to_owned(), Arc::downgrade(&shelf));
        Ok(shelf)
    }
}

/// Opens a file of tables. A file that is not a valid one is recreated empty.
pub(super) fn open_or_make(file: &Path, cache_bytes: usize) -> Result<Database, redb::Error> {
    if let Some(folder) = file.parent() {
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private.recursive(true).create(folder)?;
    }
    let open = || Database::builder().set_cache_size(cache_bytes).create(file);
    let opened = open();
    let torn = match &opened {
        Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(_)))
        | Err(redb::DatabaseError::UpgradeRequired(_) | redb::DatabaseError::RepairAborted) => true,
        Err(redb::DatabaseError::Storage(redb::StorageError::Io(error))) => {
            matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
        }
        _ => false,
    };
    match opened {
        Err(error) if torn => {
            tracing::warn!(file = %file.display(), %error, "a file that cannot be read any more is made again");
            std::fs::remove_file(file)?;
            Ok(open()?)
        }
        opened => Ok(opened?),
    }
}

fn io(error: &redb::Error) -> StoreError {
    StoreError::Io(format!("shelf: {error}"))
}

impl DiskGraph {
    /// Opens a shelf and returns it with its state; `None` for a shelf that is incomplete.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(super) fn open(file: Arc<Database>, next: (u32, u32)) -> Result<(Self, Option<State>), StoreError> {
        let opened = || -> tables::Result<_> {
            // Creates the tables of an empty file.
            let write = file.begin_write()?;
            Tables::open(&write)?.close()?;
            write.commit()?;
            let read = file.begin_read()?;
            let said = read.open_table(tables::STATE)?.get("state")?.map(|state| state.value().to_vec());
            let state = said.as_deref().and_then(|said| rmp_serde::from_slice::<State>(said).ok());
            let state = state.filter(|state| state.form == FORM);
            // A shelf of another format is about to be cleared.
            let limited = if state.is_some() { tables::limited(&read)? } else { Limited::default() };
            Ok((Arc::new(Base::open(&file)?), limited, said, state))
        };
        let (base, limited, said, state) = tables::guarded(opened).map_err(|error| io(&error))?;
        let weight = state.as_ref().map_or(0, |state| state.weight);
        let mut shelved = Self { file, base, stale: Stale::default(), fresh: Graph::new(), limited, weight, said };
        shelved.renew(next);
        Ok((shelved, state))
    }

    /// Removes all elements of the shelf.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(super) fn clear(&mut self) -> Result<(), StoreError> {
        let cleared = || -> tables::Result<Base> {
            let write = self.file.begin_write()?;
            let names: Vec<_> = write.list_tables()?.collect();
            for name in names {
                write.delete_table(name)?;
            }
            Tables::open(&write)?.close()?;
            write.commit()?;
            Base::open(&self.file)
        };
        self.base = Arc::new(tables::guarded(cleared).map_err(|error| io(&error))?);
        (self.stale, self.weight, self.said) = (Stale::default(), 0, None);
        self.limited = Limited::default();
        self.renew((1, 1));
        Ok(())
    }

    /// Adds elements that the shelf does not hold yet, and flushes them when there are many.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(super) fn take_in(&mut self, records: impl IntoIterator<Item = (ElementId, Record)>) -> Result<(), StoreError> {
        for (el, record) in records {
            self.limited.put(el, record.look());
            self.fresh.put(el, record);
            if self.unfiled() >= AT_ONCE {
                self.file_away(None)?;
            }
        }
        Ok(())
    }

    /// Raises the numbers of the next concept and the next link to the given ones.
    pub(super) fn go_on_at(&mut self, (concept, link): (u32, u32)) {
        self.fresh.next_concept = self.fresh.next_concept.max(concept);
        self.fresh.next_link = self.fresh.next_link.max(link);
    }

    /// Flushes the resident elements to the file. With a state, marks the shelf as complete, durably; without a
    /// state, the shelf counts as incomplete.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the elements remain in memory.
    pub(super) fn file_away(&mut self, state: Option<State>) -> Result<(), StoreError> {
        let weight = self.weight();
        let says = state.and_then(|state| rmp_serde::to_vec(&State { weight, ..state }).ok());
        let filed = || -> tables::Result<Base> {
            let mut write = self.file.begin_write()?;
            if says.is_none() {
                write.set_durability(Durability::None)?;
            }
            self.check_said(&write)?;
            let mut tables = Tables::open(&write)?;
            for el in &self.stale.els {
                tables.remove(*el)?;
            }
            let concepts = self.fresh.concepts(ElementId::NONE, usize::MAX);
            let links = self.fresh.of_predicate(None, ElementId::FIRST_LINK, usize::MAX);
            for el in concepts.into_iter().chain(links) {
                if let Some(look) = self.fresh.get(el) {
                    tables.put(el, look)?;
                }
            }
            tables.close()?;
            match &says {
                Some(says) => drop(write.open_table(tables::STATE)?.insert("state", says.as_slice())?),
                None => drop(write.open_table(tables::STATE)?.remove("state")?),
            }
            write.commit()?;
            Base::open(&self.file)
        };
        self.base = Arc::new(tables::guarded(filed).map_err(|error| io(&error))?);
        (self.stale, self.weight, self.said) = (Stale::default(), weight, says);
        self.renew(self.next());
        Ok(())
    }

    /// Refuses a file that another writer has changed since this one opened it.
    fn check_said(&self, write: &redb::WriteTransaction) -> tables::Result<()> {
        let found = write.open_table(tables::STATE)?.get("state")?.map(|state| state.value().to_vec());
        match found == self.said {
            true => Ok(()),
            false => Err(redb::Error::Corrupted("another writer changed this file".into())),
        }
    }

    /// Builds the index of a type by an attribute, if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(super) fn sort_by(&mut self, kind: Sym, key: Sym) -> Result<(), StoreError> {
        let built = || -> tables::Result<Base> {
            let mut write = self.file.begin_write()?;
            // No durability is necessary: a lost index is built again.
            write.set_durability(Durability::None)?;
            self.check_said(&write)?;
            let mut tables = Tables::open(&write)?;
            tables.index(kind, key)?;
            tables.close()?;
            write.commit()?;
            Base::open(&self.file)
        };
        self.base = Arc::new(tables::guarded(built).map_err(|error| io(&error))?);
        self.fresh.sort_by(kind, key);
        Ok(())
    }

    /// Returns the restricted elements.
    pub(super) fn limited(&self) -> &Limited {
        &self.limited
    }

    /// Returns the number of resident elements.
    pub(super) fn unfiled(&self) -> usize {
        let (concepts, links) = self.fresh.len();
        concepts + links + self.stale.els.len()
    }

    /// Returns the numbers of concepts and of links.
    pub(super) fn len(&self) -> (usize, usize) {
        let ((concepts, links), (more_concepts, more_links)) = (self.base.len(), self.fresh.len());
        let stale = |links: bool| counted(&self.stale.kinds, links, None);
        (concepts + more_concepts - stale(false), links + more_links - stale(true))
    }

    /// Returns the estimated memory of the whole graph if it were resident, in bytes.
    pub(super) fn weight(&self) -> usize {
        (self.weight + self.fresh.weight()).saturating_sub(self.stale.weight)
    }

    /// The numbers of the next concept and the next link.
    pub(super) fn next(&self) -> (u32, u32) {
        (self.fresh.next_concept, self.fresh.next_link)
    }

    /// Sets the numbering, which maps element numbers to ids.
    pub(super) fn set_numbering(&mut self, numbering: Numbering) {
        self.fresh.numbering = numbering;
    }

    /// Returns the numbering, which maps element numbers to ids.
    pub(super) fn numbering(&self) -> Numbering {
        self.fresh.numbering
    }

    /// Checks that every read succeeded.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a read failed; the caller must not return an answer that depends on that read.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.base.fault().map_or(Ok(()), |fault| Err(StoreError::Io(format!("shelf: {fault}"))))
    }

    /// Replaces the resident graph with an empty one that continues the numbers of the shelf.
    fn renew(&mut self, (next_concept, next_link): (u32, u32)) {
        let numbering = self.fresh.numbering;
        self.fresh = Graph::new();
        self.fresh.numbering = numbering;
        (self.fresh.next_concept, self.fresh.next_link) = (next_concept, next_link);
        for (kind, key) in self.base.indexes() {
            self.fresh.sort_by(kind, key);
        }
    }

    /// Marks the base's copy of an element as outdated.
    fn outdate(&mut self, el: ElementId) {
        if self.stale.els.contains(&el) {
            return;
        }
        let mut was = None;
        self.base.look(el, &mut |look| was = Some((look.kind(), look.weight())));
        if let Some((kind, weight)) = was {
            self.stale.els.insert(el);
            self.stale.weight += weight;
            *self.stale.kinds.entry((el.is_link(), kind)).or_default() += 1;
        }
    }

    fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R {
        let base = Masked::behind(&self.stale, &*self.base);
        then(&Union(&base, &self.fresh))
    }
}

impl Mask for &Stale {
    fn is_open(&self) -> bool {
        self.els.is_empty()
    }

    fn hides(&self, _: &dyn GraphRead, el: ElementId) -> bool {
        self.els.contains(&el)
    }

    fn hidden_concepts(&self, _: &dyn GraphRead, kind: Option<Sym>) -> usize {
        counted(&self.kinds, false, kind)
    }

    fn hidden_links(&self, _: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        counted(&self.kinds, true, predicate)
    }
}

impl GraphRead for DiskGraph {
    reads_through!(view);
}

impl GraphWrite for DiskGraph {
    fn add(&mut self, record: Record) -> ElementId {
        let el = self.fresh.add(record);
        self.fresh.look(el, &mut |look| self.limited.put(el, look));
        el
    }

    fn put(&mut self, el: ElementId, record: Record) {
        self.outdate(el);
        self.limited.put(el, record.look());
        self.fresh.put(el, record);
    }

    fn remove(&mut self, el: ElementId) {
        self.outdate(el);
        self.limited.remove(el);
        self.fresh.remove(el);
    }

    fn unmake(&mut self, el: ElementId) {
        self.limited.remove(el);
        self.fresh.unmake(el);
    }
}
