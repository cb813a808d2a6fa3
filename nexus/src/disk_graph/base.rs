//! The base of a shelf: the state of the file at one moment, read from the disk through bounded caches.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use kip::datum::Sym;
use kip::graph::sorted::{Batch, Place};
use kip::graph::text::{LEVELS_MAX, Postings, Words};
use kip::graph::{Direction, Edge, ElementId, ElementRef, GraphRead, Ids, Record};
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable};

use super::tables::{self, Result, WITH_WORDS};

/// The maximum number of unpacked records in the cache.
const RECORDS_MAX: usize = 8192;
/// The maximum number of counted links per element and predicate; larger numbers are not counted exactly.
const DEGREE_MAX: usize = 4096;
/// The number of postings per run.
const RUN: usize = 256;

/// The base of a shelf; see the module documentation. A read that fails finds nothing and sets `fault`.
pub(super) struct Base {
    elements: ReadOnlyTable<u32, &'static [u8]>,
    keys: ReadOnlyTable<(&'static str, &'static str), u32>,
    kinds: ReadOnlyTable<(&'static str, u32), ()>,
    edges: ReadOnlyTable<(u32, bool, &'static str, u32, u32), ()>,
    words: ReadOnlyTable<(bool, &'static str, u8, u32), ()>,
    vocabulary: ReadOnlyTable<(bool, &'static str), u64>,
    sorted: ReadOnlyTable<(&'static str, &'static str, &'static [u8], u32), ()>,
    indexes: HashMap<(Sym, Sym), usize>,
    /// The numbers of elements per type or predicate, and of elements with words; the flag is `true` for links.
    counts: HashMap<(bool, &'static str), usize>,
    /// The numbers of the last concept and the last link.
    last: (u32, u32),
    records: Vec<Mutex<Option<(ElementId, Record)>>>,
    fault: OnceLock<String>,
}

impl Base {
    /// Opens the base of a shelf.
    ///
    /// # Errors
    /// Errors of the database file.
    pub(super) fn open(shelf: &Database) -> Result<Self> {
        let read = shelf.begin_read()?;
        let mut counts = HashMap::new();
        for entry in read.open_table(tables::COUNTS)?.iter()? {
            let (key, count) = entry?;
            let (links, name) = key.value();
            counts.insert((links, Sym::new(name).as_str()), count.value() as usize);
        }
        let mut indexes = HashMap::new();
        for entry in read.open_table(tables::INDEXES)?.iter()? {
            let (key, count) = entry?;
            let (kind, attribute) = key.value();
            indexes.insert((Sym::new(kind), Sym::new(attribute)), count.value() as usize);
        }
        for entry in read.open_table(tables::NAMES)?.iter()? {
            Sym::new(entry?.0.value());
        }
        let elements = read.open_table(tables::ELEMENTS)?;
        let last_before = |end: u32| -> Result<u32> {
            Ok(elements.range(..end)?.next_back().transpose()?.map_or(0, |(el, _)| el.value()))
        };
        let last = (last_before(ElementId::FIRST_LINK.0)?, last_before(u32::MAX)?);
        Ok(Self {
            elements,
            keys: read.open_table(tables::KEYS)?,
            kinds: read.open_table(tables::KINDS)?,
            edges: read.open_table(tables::EDGES)?,
            words: read.open_table(tables::WORDS)?,
            vocabulary: read.open_table(tables::VOCABULARY)?,
            sorted: read.open_table(tables::SORTED)?,
            indexes,
            counts,
            last,
            records: (0..RECORDS_MAX).map(|_| Mutex::default()).collect(),
            fault: OnceLock::new(),
        })
    }

    /// Returns the error of a failed read, if there was one.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Returns the numbers of concepts and of links.
    pub(super) fn len(&self) -> (usize, usize) {
        let of = |links| {
            let kinds = self.counts.iter().filter(|((of, name), _)| *of == links && *name != WITH_WORDS);
            kinds.map(|(_, count)| count).sum()
        };
        (of(false), of(true))
    }

    /// Returns the existing indexes by type and attribute.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (Sym, Sym)> {
        self.indexes.keys().copied()
    }

    fn read<T>(&self, read: impl FnOnce() -> Result<T>) -> Option<T> {
        if self.fault.get().is_some() {
            return None;
        }
        match tables::guarded(read) {
            Ok(found) => Some(found),
            Err(error) => {
                let _ = self.fault.set(error.to_string());
                None
            }
        }
    }

    fn count(&self, links: bool, name: &'static str) -> usize {
        self.counts.get(&(links, name)).copied().unwrap_or(0)
    }

    fn counted(&self, links: bool) -> Vec<(Sym, usize)> {
        let kinds = self.counts.iter().filter(|((of, name), _)| *of == links && *name != WITH_WORDS);
        let mut all: Vec<(Sym, usize)> = kinds.map(|((_, name), count)| (Sym::new(name), *count)).collect();
        all.sort_by_key(|(name, _)| name.as_str());
        all
    }

    fn of_kind(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        let kind = kind.as_str();
        let found = self.read(|| {
            let run = self.kinds.range((kind, after.0.saturating_add(1))..=(kind, u32::MAX))?;
            run.take(max).map(|entry| Ok(ElementId(entry?.0.value().1))).collect()
        });
        found.unwrap_or_default()
    }

    fn numbers(&self, from: u32, to: u32, max: usize) -> Vec<ElementId> {
        let found = self
            .read(|| self.elements.range(from..to)?.take(max).map(|entry| Ok(ElementId(entry?.0.value()))).collect());
        found.unwrap_or_default()
    }
}

impl GraphRead for Base {
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>)) {
        if el.0 > if el.is_link() { self.last.1 } else { self.last.0 } {
            return;
        }
        let slot = &self.records[el.0 as usize % RECORDS_MAX];
        let kept = slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, record)) = kept.filter(|(of, _)| *of == el) {
            return see(record.look());
        }
        let found = self.read(|| {
            let body = self.elements.get(el.0)?;
            body.map(|body| tables::unpack(el, body.value())).transpose()
        });
        if let Some(Some(record)) = found {
            see(record.look());
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((el, record));
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId> {
        self.read(|| Ok(self.keys.get((kind.as_str(), name))?.map(|el| ElementId(el.value()))))?
    }

    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId> {
        let from = (subject.0, true, predicate.as_str(), object.0, 0);
        let to = (subject.0, true, predicate.as_str(), object.0, u32::MAX);
        self.read(|| Ok(self.edges.range(from..=to)?.next().transpose()?.map(|(edge, _)| ElementId(edge.value().4))))?
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        self.counted(false)
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        self.counted(true)
    }

    fn type_len(&self, kind: Sym) -> usize {
        self.count(false, kind.as_str())
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        predicate.map_or_else(|| self.len().1, |name| self.count(true, name.as_str()))
    }

    // Types and predicates share a table and may share a name; the element numbers distinguish them.
    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        let mut found = self.of_kind(kind, after, max);
        found.retain(|el| !el.is_link());
        found
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId> {
        let after = after.max(ElementId::FIRST_LINK);
        match predicate {
            Some(name) => self.of_kind(name, after, max),
            None => self.numbers(after.0.saturating_add(1), u32::MAX, max),
        }
    }

    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId> {
        self.numbers(after.0.saturating_add(1), ElementId::FIRST_LINK.0, max)
    }

    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        let out = way == Direction::Out;
        self.read(|| {
            let run = match predicate.map(Sym::as_str) {
                Some(name) => self.edges.range((el.0, out, name, 0, 0)..=(el.0, out, name, u32::MAX, u32::MAX))?,
                None if out => self.edges.range((el.0, true, "", 0, 0)..(el.0.saturating_add(1), false, "", 0, 0))?,
                None => self.edges.range((el.0, false, "", 0, 0)..(el.0, true, "", 0, 0))?,
            };
            for entry in run {
                let (key, _) = entry?;
                let (_, _, name, other, link) = key.value();
                if !see(Edge { predicate: Sym::new(name), other: ElementId(other), link: ElementId(link) }) {
                    break;
                }
            }
            Ok(())
        });
    }

    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize {
        let mut count = 0;
        self.edges(el, way, predicate, &mut |_| {
            count += 1;
            count < DEGREE_MAX
        });
        count
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>> {
        use std::ops::Bound;
        self.indexes.get(&(batch.kind, batch.key))?;
        let Some((low, high)) = batch.bounds() else { return Some(Vec::new()) };
        let (kind, key) = (batch.kind.as_str(), batch.key.as_str());
        let encoded =
            |bound: &Bound<(Place, ElementId)>| bound.as_ref().map(|(place, el)| (tables::encode(place), el.0));
        let (low, high) = (encoded(&low), encoded(&high));
        let low = low.as_ref().map(|(place, el)| (kind, key, place.as_slice(), *el));
        let high = match &high {
            // Every encoded place sorts before this one.
            Bound::Unbounded => Bound::Included((kind, key, [255].as_slice(), u32::MAX)),
            bound => bound.as_ref().map(|(place, el)| (kind, key, place.as_slice(), *el)),
        };
        let found = self.read(|| {
            let run = self.sorted.range::<(&str, &str, &[u8], u32)>((low, high))?;
            let run: Box<dyn Iterator<Item = _>> = if batch.descending { Box::new(run.rev()) } else { Box::new(run) };
            let mut found = Vec::new();
            for entry in run.take(batch.max) {
                let (key, _) = entry?;
                let (_, _, place, el) = key.value();
                found.extend(tables::decode(place).map(|place| (place, ElementId(el))));
            }
            Ok(found)
        });
        found.or_else(|| Some(Vec::new()))
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        self.indexes.get(&(kind, key)).copied()
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words)) {
        ask(&DiskTerms { base: self, links });
    }

    // The graph above this base knows the ids.
    fn ids(&self) -> Ids {
        Ids::default()
    }
}

/// The full-text index of concepts, or of links.
struct DiskTerms<'b> {
    base: &'b Base,
    links: bool,
}

/// The postings of a word.
struct DiskPostings<'b> {
    base: &'b Base,
    links: bool,
    word: String,
    count: usize,
}

impl Words for DiskTerms<'_> {
    fn postings(&self, word: &str) -> Option<Box<dyn Postings + '_>> {
        let count =
            self.base.read(|| Ok(self.base.vocabulary.get((self.links, word))?.map(|count| count.value())))??;
        let (base, links, word) = (self.base, self.links, word.to_owned());
        Some(Box::new(DiskPostings { base, links, word, count: count as usize }))
    }

    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool) {
        self.base.read(|| {
            for entry in self.base.vocabulary.range((self.links, first)..)? {
                let (key, _) = entry?;
                let (links, word) = key.value();
                if links != self.links || !see(word) {
                    break;
                }
            }
            Ok(())
        });
    }

    fn elements(&self) -> usize {
        self.base.count(self.links, WITH_WORDS)
    }
}

impl Postings for DiskPostings<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn level(&self, el: ElementId) -> Option<u8> {
        let stands = |level: &u8| {
            let key = (self.links, self.word.as_str(), 255 - level, el.0);
            self.base.read(|| Ok(self.base.words.get(key)?.is_some())).unwrap_or(false)
        };
        (1..=LEVELS_MAX).find(stands)
    }

    fn each(&self, see: &mut dyn FnMut(&[ElementId], u8) -> bool) {
        self.walk(0, u8::MAX, see);
    }

    fn at(&self, level: u8, see: &mut dyn FnMut(&[ElementId]) -> bool) {
        self.walk(255 - level, 255 - level, &mut |els, _| see(els));
    }
}

impl DiskPostings<'_> {
    /// Scans the elements between two levels, each counted down from 255.
    fn walk(&self, from: u8, to: u8, see: &mut dyn FnMut(&[ElementId], u8) -> bool) {
        let (links, word) = (self.links, self.word.as_str());
        self.base.read(|| {
            let (mut run, mut of) = (Vec::with_capacity(RUN), from);
            for entry in self.base.words.range((links, word, from, 0)..=(links, word, to, u32::MAX))? {
                let (key, _) = entry?;
                let (_, _, level, el) = key.value();
                if (level != of || run.len() == RUN) && !run.is_empty() {
                    if !see(&run, 255 - of) {
                        return Ok(());
                    }
                    run.clear();
                }
                of = level;
                run.push(ElementId(el));
            }
            if !run.is_empty() {
                see(&run, 255 - of);
            }
            Ok(())
        });
    }
}
