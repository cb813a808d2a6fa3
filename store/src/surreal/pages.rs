//! Graph elements as database rows: pages of 64 numbers, because one row per element would make loading a graph
//! twenty times slower.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb::types::{Bytes as DbBytes, RecordId};

use super::rows::{LargeRow, PageRow, Summed, bytes_of, record};
use super::{StoreError, io, settle};
use crate::backend::PAGE_ELEMENTS;

/// A changed element: its graph, its number, and its bytes; `None` means that it was removed.
pub(super) type Element = (Arc<str>, u64, Option<Bytes>);

/// Pages by nexus and number.
pub(super) type Pages = BTreeMap<(Arc<str>, u64), ChangedPage>;

/// The size, in bytes, from which an element has a row of its own: a small change of a page then does not write it
/// again.
const LARGE_BYTES: usize = 8 << 10;

/// A page with its changes.
#[derive(Default)]
pub(super) struct ChangedPage {
    /// `true` if the database has the page already.
    stored: bool,
    /// `true` if the row of the page changes. A change of a large element alone does not change it.
    is_changed: bool,
    /// The elements; `None` marks a large one.
    elements: BTreeMap<u64, Option<Bytes>>,
    /// The large elements that changed; `None` for one that has its row no more.
    larges: BTreeMap<u64, Option<Bytes>>,
}

impl ChangedPage {
    /// Puts an element into the page, or removes it.
    fn change(&mut self, no: u64, body: Option<Bytes>) {
        let was_large = self.elements.get(&no).is_some_and(Option::is_none);
        match body {
            Some(body) if body.len() >= LARGE_BYTES => {
                self.is_changed |= !was_large;
                self.elements.insert(no, None);
                self.larges.insert(no, Some(body));
                return;
            }
            Some(body) => drop(self.elements.insert(no, Some(body))),
            None => drop(self.elements.remove(&no)),
        }
        self.is_changed = true;
        if was_large {
            self.larges.insert(no, None);
        }
    }
}

/// A page in its stored form.
pub(super) struct PackedPage {
    /// The row of the page; `None` if it does not change, or is removed.
    pub(super) row: Option<PageRow>,
    /// `true` if the database has the page already.
    pub(super) stored: bool,
    /// The rows of its large elements that changed.
    pub(super) larges: Vec<LargeRow>,
    /// The rows to remove.
    pub(super) gone: Vec<RecordId>,
    /// The size of all rows in bytes.
    pub(super) bytes: usize,
}

impl PackedPage {
    pub(super) fn of(((nexus, no), page): ((Arc<str>, u64), ChangedPage)) -> Result<Self, StoreError> {
        let ChangedPage { stored, is_changed, elements, larges } = page;
        let mut packed = Self { row: None, stored, larges: Vec::new(), gone: Vec::new(), bytes: 0 };
        for (no, body) in larges {
            let (nexus, no) = (nexus.to_string(), no as i64);
            let id = record("large", &nexus, no);
            let Some(body) = body else {
                packed.gone.push(id);
                continue;
            };
            packed.bytes += body.len();
            packed.larges.push(LargeRow { id, nexus, no, b: DbBytes::from(body.to_vec()), c: None }.summed());
        }
        let (nexus, no) = (nexus.to_string(), no as i64);
        let id = record("page", &nexus, no);
        if elements.is_empty() {
            packed.gone.push(id);
        } else if is_changed {
            let bytes = pack_page(&elements)?;
            packed.bytes += bytes.len();
            packed.row = Some(PageRow { id, nexus, no, b: DbBytes::from(bytes), c: None }.summed());
        }
        Ok(packed)
    }
}

/// The maximum number of pages that are read and changed at once.
const PAGES_AT_ONCE: usize = 128;
/// Returns the first page from `from` on. It skips gaps, such as the one between concepts and links.
pub(super) async fn next_page(db: &Client<Db>, nexus: &str, from: i64) -> Result<Option<i64>, StoreError> {
    let asked = db
        .query("SELECT VALUE no FROM page:[$nexus, $from]..[$nexus, []] LIMIT 1")
        .bind(("nexus", nexus.to_owned()))
        .bind(("from", from));
    let rows: Vec<i64> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
    Ok(rows.first().copied())
}

/// Splits changed elements at page boundaries into groups of at most [`PAGES_AT_ONCE`] pages. The elements of a graph
/// must be adjacent and in order.
pub(super) fn by_the_page(elements: Vec<Element>) -> Vec<Vec<Element>> {
    let (mut pieces, mut pages): (Vec<Vec<Element>>, usize) = (Vec::new(), 0);
    let page_of = |(nexus, no, _): &Element| (nexus.clone(), no / PAGE_ELEMENTS);
    for element in elements {
        let is_new = pieces.last().and_then(|piece| piece.last()).is_none_or(|last| page_of(last) != page_of(&element));
        if is_new && pages % PAGES_AT_ONCE == 0 {
            pieces.push(Vec::new());
        }
        pages += usize::from(is_new);
        pieces.last_mut().expect("one was begun").push(element);
    }
    pieces
}

/// Reads the pages of changed elements and applies the changes.
pub(super) async fn pages_of(db: &Client<Db>, elements: Vec<Element>) -> Result<Pages, StoreError> {
    let mut numbers: BTreeMap<Arc<str>, Vec<i64>> = BTreeMap::new();
    let mut pages: Pages = BTreeMap::new();
    for (nexus, no, _) in &elements {
        let page = no / PAGE_ELEMENTS;
        if pages.insert((nexus.clone(), page), ChangedPage::default()).is_none() {
            numbers.entry(nexus.clone()).or_default().push(page as i64);
        }
    }
    for (nexus, numbers) in numbers {
        let asked = db
            .query("SELECT * FROM array::map($numbers, |$no| type::record('page', [$nexus, $no]))")
            .bind(("nexus", nexus.to_string()))
            .bind(("numbers", numbers));
        let rows: Vec<PageRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
        for row in rows {
            let row = row.whole()?;
            let elements = unpack_page(&row)?.into_iter().collect();
            let page = ChangedPage { stored: true, elements, ..ChangedPage::default() };
            pages.insert((nexus.clone(), row.no as u64), page);
        }
    }
    for (nexus, no, body) in elements {
        pages.entry((nexus, no / PAGE_ELEMENTS)).or_default().change(no, body);
    }
    Ok(pages)
}

fn pack_page(elements: &BTreeMap<u64, Option<Bytes>>) -> Result<Vec<u8>, StoreError> {
    let list: Vec<(&u64, &Option<Bytes>)> = elements.iter().collect();
    rmp_serde::to_vec(&list).map_err(|error| StoreError::Corrupt(format!("a page does not encode: {error}")))
}

/// Returns the elements of a page by number; `None` marks a large one. Pages of earlier versions hold all of them.
pub(super) fn unpack_page(row: &PageRow) -> Result<Vec<(u64, Option<Bytes>)>, StoreError> {
    rmp_serde::from_slice(row.b.as_ref())
        .map_err(|error| StoreError::Corrupt(format!("page {} of nexus {}: {error}", row.no, row.nexus)))
}

/// The maximum number of attempts to read a page together with its large elements.
const READS_MAX: usize = 4;

/// Returns the elements of a page by number, with the large ones.
///
/// # Errors
/// [`StoreError::Corrupt`] if the row of a large element is missing or damaged.
pub(super) async fn elements_of(db: &Client<Db>, mut row: PageRow) -> Result<Vec<(u64, Bytes)>, StoreError> {
    for _ in 1..READS_MAX {
        match joined(db, &row).await {
            // A checkpoint may have changed the page between the two reads.
            Err(StoreError::Corrupt(_)) => {
                let asked = db.query("SELECT * FROM $id").bind(("id", row.id.clone()));
                let again: Vec<PageRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
                let Some(again) = again.into_iter().next() else { return Ok(Vec::new()) };
                row = again.whole()?;
            }
            read => return read,
        }
    }
    joined(db, &row).await
}

async fn joined(db: &Client<Db>, row: &PageRow) -> Result<Vec<(u64, Bytes)>, StoreError> {
    let elements = unpack_page(row)?;
    let numbers: Vec<i64> = elements.iter().filter(|(_, body)| body.is_none()).map(|(no, _)| *no as i64).collect();
    let mut larges: BTreeMap<u64, Bytes> = BTreeMap::new();
    if !numbers.is_empty() {
        let asked = db
            .query("SELECT * FROM array::map($numbers, |$no| type::record('large', [$nexus, $no]))")
            .bind(("nexus", row.nexus.clone()))
            .bind(("numbers", numbers));
        let rows: Vec<LargeRow> = settle(asked.await.map_err(io)?)?.take(0).map_err(io)?;
        for row in rows {
            let row = row.whole()?;
            larges.insert(row.no as u64, bytes_of(row.b));
        }
    }
    let missing = |no: u64| StoreError::Corrupt(format!("element {no} of nexus {} is missing", row.nexus));
    let body_of = |(no, body): (u64, Option<Bytes>)| {
        let body = body.or_else(|| larges.remove(&no)).ok_or_else(|| missing(no))?;
        Ok((no, body))
    };
    elements.into_iter().map(body_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_large_element_does_not_write_its_page() {
        let (small, large) = (Bytes::from_static(b"small"), Bytes::from(vec![7; LARGE_BYTES]));
        let stored = || ChangedPage {
            stored: true,
            elements: [(64, None), (65, Some(small.clone()))].into(),
            ..ChangedPage::default()
        };
        let packed = |no: u64, body: Option<&Bytes>| {
            let mut page = stored();
            page.change(no, body.cloned());
            let packed = PackedPage::of((("n".into(), 1), page)).unwrap();
            (packed.row.is_some(), packed.larges.len(), packed.gone.len())
        };
        for (no, body, expected) in [
            (64, Some(&large), (false, 1, 0)),
            (64, Some(&small), (true, 0, 1)),
            (64, None, (true, 0, 1)),
            (65, Some(&large), (true, 1, 0)),
            (65, Some(&small), (true, 0, 0)),
            (66, Some(&large), (true, 1, 0)),
        ] {
            assert_eq!(packed(no, body), expected, "element {no} becomes {:?}", body.map(Bytes::len));
        }
    }
}
