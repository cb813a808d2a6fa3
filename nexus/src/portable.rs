//! Export of a mind to another daemon: its packed elements, without the links into the commons, which does not belong
//! to the mind.

use std::collections::HashSet;

use bytes::Bytes;
use kip::graph::{ElementId, Record};

use super::{Nexus, NexusError, NexusId, writer};

/// The number of pages per read.
const PAGES_AT_ONCE: usize = 64;

/// A reader of all elements of a mind, in order.
pub struct Portable {
    nexus: Nexus,
    id: NexusId,
    next: Option<u64>,
    left_out: HashSet<ElementId>,
}

impl Nexus {
    /// Returns a reader of the elements of a mind, for another daemon.
    pub fn portable(&self, id: &NexusId) -> Portable {
        Portable { nexus: self.clone(), id: id.clone(), next: Some(0), left_out: HashSet::new() }
    }
}

/// Checks that an imported element is well formed and belongs to the mind itself.
///
/// # Errors
/// A sentence that describes the fault.
pub fn check_element(nexus: &NexusId, no: u64, body: &Bytes) -> Result<(), String> {
    match writer::unpack(nexus, no, body).map_err(|error| error.to_string())? {
        (el, _) if el.is_abroad() => Err(format!("element {no} is not the mind's own")),
        (_, Record::Link(link)) if link.subject.is_abroad() || link.object.is_abroad() => {
            Err(format!("element {no} leads into the commons"))
        }
        _ => Ok(()),
    }
}

impl Portable {
    /// Returns the next elements by number, packed; an empty list at the end.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn next(&mut self) -> Result<Vec<(u64, Bytes)>, NexusError> {
        while let Some(from) = self.next {
            let (rows, next) = self.nexus.store.elements(&self.id, from, PAGES_AT_ONCE).await?;
            self.next = next;
            let mut kept = Vec::with_capacity(rows.len());
            for (no, body) in rows {
                let (el, record) = writer::unpack(&self.id, no, &body)?;
                let leads_away = |end: ElementId| end.is_abroad() || self.left_out.contains(&end);
                match record {
                    Record::Link(link) if leads_away(link.subject) || leads_away(link.object) => {
                        self.left_out.insert(el);
                    }
                    _ => kept.push((no, body)),
                }
            }
            if !kept.is_empty() {
                return Ok(kept);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the number of links into the commons that were left out so far.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }
}
