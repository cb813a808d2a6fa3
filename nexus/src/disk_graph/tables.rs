//! The tables of a shelf, and the stored form of an element.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use kip::datum::Sym;
use kip::graph::sorted::Place;
use kip::graph::{ElementId, ElementRef, INDEXES_MAX, Limited, Record, Rule, text};
use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};

/// A result with an error of the database file.
pub(crate) type Result<T> = std::result::Result<T, redb::Error>;

/// Runs `work` on a database file. The library panics on an invalid page; this function converts the panic to an
/// error, because the cause may be a damaged disk.
///
/// # Errors
/// Errors of the database file.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(redb::Error::Corrupted("a page is none".into())))
}

/// Elements: packed records, each preceded by its CRC-32.
pub(super) const ELEMENTS: TableDefinition<u32, &[u8]> = TableDefinition::new("elements");
/// All keys of attributes and metadata that ever occurred. They are interned before any query uses them.
pub(super) const NAMES: TableDefinition<&str, ()> = TableDefinition::new("names");
/// Concepts by type and name.
pub(super) const KEYS: TableDefinition<(&str, &str), u32> = TableDefinition::new("keys");
/// Elements by type or predicate.
pub(super) const KINDS: TableDefinition<(&str, u32), ()> = TableDefinition::new("kinds");
/// Edges: element, direction (`true` for outwards), predicate, other element, link.
pub(super) const EDGES: TableDefinition<(u32, bool, &str, u32, u32), ()> = TableDefinition::new("edges");
/// Postings: `true` for links, word, score counted down from 255, element.
pub(super) const WORDS: TableDefinition<(bool, &str, u8, u32), ()> = TableDefinition::new("words");
/// The number of elements per word; the flag is `true` for links.
pub(super) const VOCABULARY: TableDefinition<(bool, &str), u64> = TableDefinition::new("vocabulary");
/// Concepts of a type in the order of an attribute.
pub(super) const SORTED: TableDefinition<(&str, &str, &[u8], u32), ()> = TableDefinition::new("sorted");
/// The existing indexes by type and attribute, with the number of concepts in each.
pub(super) const INDEXES: TableDefinition<(&str, &str), u64> = TableDefinition::new("indexes");
/// Restricted elements, with their type or predicate and their access rule.
pub(super) const RULES: TableDefinition<u32, &[u8]> = TableDefinition::new("rules");
/// Counts by name: concepts of a type, links of a predicate (with the flag), and totals under other names.
pub(super) const COUNTS: TableDefinition<(bool, &str), u64> = TableDefinition::new("counts");
/// The state of the nexus up to which the shelf is current.
pub(super) const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");

/// The name of the counts of elements with words. No type or predicate has this name.
pub(super) const WITH_WORDS: &str = " words";

/// All tables, open for writing.
pub(super) struct Tables<'t> {
    elements: Table<'t, u32, &'static [u8]>,
    names: Table<'t, &'static str, ()>,
    named: HashSet<Sym>,
    keys: Table<'t, (&'static str, &'static str), u32>,
    kinds: Table<'t, (&'static str, u32), ()>,
    edges: Table<'t, (u32, bool, &'static str, u32, u32), ()>,
    words: Table<'t, (bool, &'static str, u8, u32), ()>,
    vocabulary: Table<'t, (bool, &'static str), u64>,
    sorted: Table<'t, (&'static str, &'static str, &'static [u8], u32), ()>,
    indexes: Table<'t, (&'static str, &'static str), u64>,
    rules: Table<'t, u32, &'static [u8]>,
    counts: Table<'t, (bool, &'static str), u64>,
    /// The indexed attributes, by type.
    indexed: HashMap<Sym, Vec<Sym>>,
    counted: HashMap<(bool, &'static str), i64>,
    spoken: HashMap<(bool, ArcStr), i64>,
    filed: HashMap<(Sym, Sym), i64>,
}

impl<'t> Tables<'t> {
    /// Opens the tables and creates the missing ones.
    ///
    /// # Errors
    /// Errors of the database file.
    pub(super) fn open(write: &'t WriteTransaction) -> Result<Self> {
        let indexes = write.open_table(INDEXES)?;
        let mut indexed: HashMap<Sym, Vec<Sym>> = HashMap::new();
        for entry in indexes.iter()? {
            let entry = entry?.0;
            let (kind, key) = entry.value();
            indexed.entry(Sym::new(kind)).or_default().push(Sym::new(key));
        }
        write.open_table(STATE)?;
        Ok(Self {
            elements: write.open_table(ELEMENTS)?,
            names: write.open_table(NAMES)?,
            named: HashSet::new(),
            keys: write.open_table(KEYS)?,
            kinds: write.open_table(KINDS)?,
            edges: write.open_table(EDGES)?,
            words: write.open_table(WORDS)?,
            vocabulary: write.open_table(VOCABULARY)?,
            sorted: write.open_table(SORTED)?,
            indexes,
            rules: write.open_table(RULES)?,
            counts: write.open_table(COUNTS)?,
            indexed,
            counted: HashMap::new(),
            spoken: HashMap::new(),
            filed: HashMap::new(),
        })
    }

    /// Removes an element; does nothing if there is no such element.
    ///
    /// # Errors
    /// Errors of the database file.
    pub(super) fn remove(&mut self, el: ElementId) -> Result<()> {
        let Some(body) = self.elements.remove(el.0)?.map(|body| body.value().to_vec()) else { return Ok(()) };
        let record = unpack(el, &body)?;
        let look = record.look();
        match look {
            ElementRef::Concept(concept) => {
                self.keys.remove((concept.kind.as_str(), concept.name.as_str()))?;
                for key in self.indexed.get(&concept.kind).cloned().unwrap_or_default() {
                    if let Some(place) = concept.attributes.get(key).and_then(Place::of) {
                        let (kind, key_name) = (concept.kind.as_str(), key.as_str());
                        self.sorted.remove((kind, key_name, encode(&place).as_slice(), el.0))?;
                        *self.filed.entry((concept.kind, key)).or_default() -= 1;
                    }
                }
            }
            ElementRef::Link(link) => {
                let predicate = link.predicate.as_str();
                self.edges.remove((link.subject.0, true, predicate, link.object.0, el.0))?;
                self.edges.remove((link.object.0, false, predicate, link.subject.0, el.0))?;
            }
        }
        self.kinds.remove((look.kind().as_str(), el.0))?;
        self.rules.remove(el.0)?;
        self.count(el, look.kind().as_str(), -1);
        let weights = text::words_of(look);
        self.count(el, WITH_WORDS, -i64::from(!weights.is_empty()));
        for (word, level) in weights {
            self.words.remove((el.is_link(), word.as_str(), 255 - level, el.0))?;
            *self.spoken.entry((el.is_link(), word)).or_default() -= 1;
        }
        Ok(())
    }

    /// Stores an element under an unused number.
    ///
    /// # Errors
    /// Errors of the database file.
    pub(super) fn put(&mut self, el: ElementId, look: ElementRef<'_>) -> Result<()> {
        for (name, _) in look.attributes().pairs().iter().chain(look.metadata().pairs()) {
            if self.named.insert(*name) {
                self.names.insert(name.as_str(), ())?;
            }
        }
        self.elements.insert(el.0, pack(&look.record()).as_slice())?;
        match look {
            ElementRef::Concept(concept) => {
                self.keys.insert((concept.kind.as_str(), concept.name.as_str()), el.0)?;
                for key in self.indexed.get(&concept.kind).cloned().unwrap_or_default() {
                    self.file(el, concept.kind, key, look)?;
                }
            }
            ElementRef::Link(link) => {
                let predicate = link.predicate.as_str();
                self.edges.insert((link.subject.0, true, predicate, link.object.0, el.0), ())?;
                self.edges.insert((link.object.0, false, predicate, link.subject.0, el.0), ())?;
            }
        }
        self.kinds.insert((look.kind().as_str(), el.0), ())?;
        if let Some(rule) = Rule::of(look) {
            self.rules.insert(el.0, &*super::super::writer::pack(&(look.kind().as_str(), rule)))?;
        }
        self.count(el, look.kind().as_str(), 1);
        let weights = text::words_of(look);
        self.count(el, WITH_WORDS, i64::from(!weights.is_empty()));
        for (word, level) in weights {
            self.words.insert((el.is_link(), word.as_str(), 255 - level, el.0), ())?;
            *self.spoken.entry((el.is_link(), word)).or_default() += 1;
        }
        Ok(())
    }

    /// Adds a concept to the index of its type by an attribute.
    fn file(&mut self, el: ElementId, kind: Sym, key: Sym, look: ElementRef<'_>) -> Result<()> {
        if let Some(place) = look.attributes().get(key).and_then(Place::of) {
            self.sorted.insert((kind.as_str(), key.as_str(), encode(&place).as_slice(), el.0), ())?;
            *self.filed.entry((kind, key)).or_default() += 1;
        }
        Ok(())
    }

    /// Builds the index of a type by an attribute, if it does not exist.
    ///
    /// # Errors
    /// Errors of the database file.
    pub(super) fn index(&mut self, kind: Sym, key: Sym) -> Result<()> {
        let known = self.indexed.values().map(Vec::len).sum::<usize>();
        if known >= INDEXES_MAX || self.indexes.get((kind.as_str(), key.as_str()))?.is_some() {
            return Ok(());
        }
        self.filed.insert((kind, key), 0);
        let els: Vec<u32> = self
            .kinds
            .range((kind.as_str(), 0)..=(kind.as_str(), ElementId::FIRST_LINK.0))?
            .map(|entry| Ok(entry?.0.value().1))
            .collect::<Result<_>>()?;
        for el in els {
            let body = self.elements.get(el)?.map(|body| body.value().to_vec());
            if let Some(body) = body {
                self.file(ElementId(el), kind, key, unpack(ElementId(el), &body)?.look())?;
            }
        }
        Ok(())
    }

    fn count(&mut self, el: ElementId, name: &'static str, by: i64) {
        *self.counted.entry((el.is_link(), name)).or_default() += by;
    }

    /// Writes the counts to their tables.
    ///
    /// # Errors
    /// Errors of the database file.
    pub(super) fn close(mut self) -> Result<()> {
        fn add<K: redb::Key>(table: &mut Table<'_, K, u64>, key: K::SelfType<'_>, by: i64, keep: bool) -> Result<()> {
            let count = table.get(&key)?.map_or(0, |count| count.value()).saturating_add_signed(by);
            if count > 0 || keep {
                table.insert(&key, count)?;
            } else {
                table.remove(&key)?;
            }
            Ok(())
        }
        for ((links, name), by) in self.counted {
            add(&mut self.counts, (links, name), by, false)?;
        }
        for ((links, word), by) in &self.spoken {
            add(&mut self.vocabulary, (*links, word.as_str()), *by, false)?;
        }
        for ((kind, key), by) in self.filed {
            add(&mut self.indexes, (kind.as_str(), key.as_str()), by, true)?;
        }
        Ok(())
    }
}

/// Returns the restricted elements of a shelf.
///
/// # Errors
/// Errors of the database file; [`redb::Error::Corrupted`] for a malformed rule.
pub(super) fn limited(read: &ReadTransaction) -> Result<Limited> {
    let mut limited = Limited::default();
    for entry in read.open_table(RULES)?.iter()? {
        let (el, ruled) = entry?;
        let (kind, rule): (String, Rule) = rmp_serde::from_slice(ruled.value()).map_err(|_| {
            redb::Error::Corrupted(format!("who may see element {} is not what was written", el.value()))
        })?;
        limited.insert(ElementId(el.value()), Sym::new(&kind), rule);
    }
    Ok(limited)
}

/// Packs an element into its stored form.
fn pack(record: &Record) -> Vec<u8> {
    let body = super::super::writer::pack(record);
    [crc32fast::hash(&body).to_be_bytes().as_slice(), &body].concat()
}

/// Unpacks an element. The database checks the file only after a crash, so each read checks the element's checksum.
///
/// # Errors
/// [`redb::Error::Corrupted`] when the bytes are not the ones that were written.
pub(super) fn unpack(el: ElementId, bytes: &[u8]) -> Result<Record> {
    let record = bytes.split_first_chunk().and_then(|(crc, body)| {
        let whole = u32::from_be_bytes(*crc) == crc32fast::hash(body);
        rmp_serde::from_slice(body).ok().filter(|_| whole)
    });
    record.ok_or_else(|| redb::Error::Corrupted(format!("element {} is not what was written", el.0)))
}

/// Encodes a place as bytes with the same sort order.
pub(super) fn encode(place: &Place) -> Vec<u8> {
    match place {
        Place::Bool(truth) => vec![1, u8::from(*truth)],
        Place::Number(number) => {
            let bits = (number + 0.0).to_bits();
            let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            [&[2], ordered.to_be_bytes().as_slice()].concat()
        }
        Place::Text(text) => [&[3], text.as_bytes()].concat(),
        Place::Other(rank) => vec![4 + rank],
    }
}

/// Decodes a place from its bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<Place> {
    Some(match bytes.split_first()? {
        (1, [truth]) => Place::Bool(*truth == 1),
        (2, bits) => {
            let ordered = u64::from_be_bytes(bits.try_into().ok()?);
            Place::Number(f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered }))
        }
        (3, text) => Place::Text(std::str::from_utf8(text).ok()?.into()),
        (rank, []) => Place::Other(rank - 4),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> impl Strategy<Value = Place> {
        prop_oneof![
            any::<bool>().prop_map(Place::Bool),
            any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(Place::Number),
            ".{0,6}".prop_map(|text| Place::Text(text.into())),
            (3u8..5).prop_map(Place::Other),
        ]
    }

    proptest! {
        #[test]
        fn bytes_sort_as_places_do(a in place(), b in place()) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
            prop_assert_eq!(decode(&encode(&a)), Some(a));
        }
    }
}
