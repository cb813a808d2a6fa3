//! Graph elements as database rows: pages of 64 numbers, because one row per element would make loading a graph
//! twenty times slower.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;
use surrealdb::types::{Bytes as DbBytes, RecordId};

use super::rows::{PageRow, Summed, record};
use super::{StoreError, io, settle};
use crate::backend::PAGE_ELEMENTS;

/// A changed element: its graph, its number, and its bytes; `None` means that it was removed.
pub(super) type Element = (Arc<str>, u64, Option<Bytes>);

/// Pages by nexus and number.
pub(super) type Pages = BTreeMap<(Arc<str>, u64), ChangedPage>;

/// A page with its changes.
#[derive(Default)]
pub(super) struct ChangedPage {
    /// `true` if the database has the page already.
    stored: bool,
    elements: BTreeMap<u64, Bytes>,
}

/// A page in its stored form.
pub(super) enum PackedPage {
    /// The page has become empty.
    Empty(RecordId),
    Changed {
        row: PageRow,
        /// `true` if the database has the page already.
        stored: bool,
        bytes: usize,
    },
}

impl PackedPage {
    pub(super) fn of(((nexus, no), page): ((Arc<str>, u64), ChangedPage)) -> Result<Self, StoreError> {
        let (nexus, no) = (nexus.to_string(), no as i64);
        let id = record("page", &nexus, no);
        if page.elements.is_empty() {
            return Ok(Self::Empty(id));
        }
        let packed = pack_page(&page.elements)?;
        let bytes = packed.len();
        Ok(Self::Changed {
            row: PageRow { id, nexus, no, b: DbBytes::from(packed), c: None }.summed(),
            stored: page.stored,
            bytes,
        })
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
            pages.insert((nexus.clone(), row.no as u64), ChangedPage { stored: true, elements });
        }
    }
    for (nexus, no, body) in elements {
        let page = pages.entry((nexus, no / PAGE_ELEMENTS)).or_default();
        match body {
            Some(body) => page.elements.insert(no, body),
            None => page.elements.remove(&no),
        };
    }
    Ok(pages)
}

fn pack_page(elements: &BTreeMap<u64, Bytes>) -> Result<Vec<u8>, StoreError> {
    let list: Vec<(&u64, &Bytes)> = elements.iter().collect();
    rmp_serde::to_vec(&list).map_err(|error| StoreError::Corrupt(format!("a page does not encode: {error}")))
}

pub(super) fn unpack_page(row: &PageRow) -> Result<Vec<(u64, Bytes)>, StoreError> {
    rmp_serde::from_slice(row.b.as_ref())
        .map_err(|error| StoreError::Corrupt(format!("page {} of nexus {}: {error}", row.no, row.nexus)))
}
