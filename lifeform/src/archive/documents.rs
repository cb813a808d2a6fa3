//! The documents and the journals of a lifeform.

use std::sync::Arc;

use serde_json::value::RawValue;
use store::{Key, Kind, Store, StoreError};

use super::PAGE;
use crate::spec::LifeformId;

/// Returns `true` if a document belongs to a lifeform.
pub(super) fn is_of(id: &str, kind: Kind, name: &str) -> bool {
    let under = |prefix: &str| name.starts_with(prefix);
    match kind {
        Kind::Agenda | Kind::Nexus | Kind::Spending => name == id,
        Kind::Canvas | Kind::Entity | Kind::Attachment | Kind::Cursor | Kind::Effect | Kind::Plan => {
            under(&format!("{id}/"))
        }
        Kind::Job => under(&format!("{id}.")),
        Kind::Running => under(&format!("lifeform:{id}/{id}.")),
        Kind::Idempotency => under(&format!("credit#{id}#")) || under(&format!("set#{id}#")),
        _ => false,
    }
}

/// Returns `true` if a journal belongs to a lifeform.
pub(super) fn is_journal_of(id: &str, stream: &str) -> bool {
    let Some((kind, name)) = stream.split_once(':') else { return false };
    match kind {
        "trace" | "calls" | "ledger" | "nexus" => name == id,
        "canvas" => name.starts_with(&format!("{id}/")),
        "job" | "invocation" => name.starts_with(&format!("{id}.")),
        _ => false,
    }
}

/// Returns the kinds and the name prefixes of a lifeform's documents.
fn prefixes(id: &str) -> [(Kind, String); 13] {
    [
        (Kind::Spending, id.to_owned()),
        (Kind::Agenda, id.to_owned()),
        (Kind::Plan, format!("{id}/")),
        (Kind::Nexus, id.to_owned()),
        (Kind::Canvas, format!("{id}/")),
        (Kind::Entity, format!("{id}/")),
        (Kind::Attachment, format!("{id}/")),
        (Kind::Cursor, format!("{id}/")),
        (Kind::Effect, format!("{id}/")),
        (Kind::Job, format!("{id}.")),
        (Kind::Running, format!("lifeform:{id}/")),
        (Kind::Idempotency, format!("credit#{id}#")),
        (Kind::Idempotency, format!("set#{id}#")),
    ]
}

/// An iterator over the documents of a lifeform.
pub(super) struct Documents<'s> {
    store: &'s Store,
    id: LifeformId,
    /// The remaining documents: a kind, a name prefix, and the last name that was read.
    left: Vec<(Kind, String, Option<String>)>,
}

impl<'s> Documents<'s> {
    pub(super) fn of(store: &'s Store, id: &LifeformId) -> Self {
        let left = prefixes(id).into_iter().rev().map(|(kind, prefix)| (kind, prefix, None)).collect();
        Self { store, id: id.clone(), left }
    }

    /// Returns the next documents; none at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<(Kind, Arc<str>, Box<RawValue>)>, StoreError> {
        while let Some((kind, prefix, after)) = self.left.pop() {
            let Some(after) = after else {
                // The document with exactly this name comes first.
                let one = self.store.document(&Key::new(kind, prefix.as_str())).await?;
                self.left.push((kind, prefix.clone(), Some(prefix.clone())));
                match one {
                    Some(one) => return Ok(vec![(kind, prefix.into(), one.value)]),
                    None => continue,
                }
            };
            let page = self.store.documents(kind, &after, PAGE).await?;
            let many = page.len();
            let of_this: Vec<_> = page.into_iter().take_while(|(name, _)| name.starts_with(&prefix)).collect();
            if let (true, Some((last, _))) = (many == PAGE && of_this.len() == many, of_this.last()) {
                self.left.push((kind, prefix, Some(last.to_string())));
            }
            let is_ours = |(name, _): &(Arc<str>, _)| is_of(&self.id, kind, name);
            let ours: Vec<_> =
                of_this.into_iter().filter(is_ours).map(|(name, found)| (kind, name, found.value)).collect();
            if !ours.is_empty() {
                return Ok(ours);
            }
        }
        Ok(Vec::new())
    }
}
