//! Listings of records in the order of time.

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use nexus::kip::datum::{Datum, Properties, Sym};
use nexus::kip::graph::{Concept, ElementId, ElementRef, GraphRead, SCOPES_KEY};
use serde::Serialize;
use store::Origin;

use crate::record::{Eval, KIND, Record, Status, Type, status_of, texts, types_of};
use crate::scope::PUBLIC;
use crate::{Knowledge, KnowledgeError, commons, read};

/// The number of elements scanned per batch.
const STRETCH: usize = 4_096;

/// A filter of the records that the caller may see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Which {
    /// The accepted types; empty accepts all.
    pub types: BTreeSet<Type>,
    /// The accepted scopes; empty accepts all.
    pub scopes: BTreeSet<String>,
    /// The owner; `None` accepts all.
    pub owner: Option<String>,
    /// The accepted owners, in addition to the daemon; empty accepts all.
    pub of_any: BTreeSet<String>,
    /// The minimum score. Records that harmed more often than they helped are excluded, too.
    pub min_score: Option<f64>,
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = RecordPage)]
pub struct Listed {
    /// The records, newest first.
    pub results: Vec<Record>,
    /// The number of records on the page.
    pub count: usize,
    /// The cursor of the next page; `None` on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl Which {
    /// Returns `true` if the filter selects a record at that time.
    pub(crate) fn fits(&self, concept: &Concept, now: Timestamp) -> bool {
        let (attributes, metadata) = (&concept.attributes, &concept.metadata);
        if concept.kind.as_str() != KIND || status_of(metadata) != Status::Active || is_past(metadata, now) {
            return false;
        }
        if !self.types.is_empty() && !types_of(attributes).iter().any(|one| self.types.contains(one)) {
            return false;
        }
        if let Some(least) = self.min_score {
            let eval = Eval::of(metadata);
            if eval.score < least || eval.quality() < 0.0 {
                return false;
            }
        }
        let owner = metadata.named(nexus::OWNER_KEY).and_then(Datum::as_str);
        if self.owner.is_some() && owner != self.owner.as_deref() {
            return false;
        }
        let is_one = |owner: &str| owner.starts_with("system:") || self.of_any.contains(owner);
        if !self.of_any.is_empty() && !owner.is_none_or(is_one) {
            return false;
        }
        self.scopes.is_empty()
            || match metadata.named(SCOPES_KEY) {
                None | Some(Datum::Null) => self.scopes.contains(PUBLIC),
                Some(listed) => texts(listed).iter().any(|scope| self.scopes.contains(scope)),
            }
    }
}

/// Returns `true` if a record has expired.
fn is_past(metadata: &Properties, now: Timestamp) -> bool {
    let until = |key: &str| metadata.named(key)?.as_str()?.parse::<Timestamp>().ok();
    ["expires_at", "valid_until"].iter().any(|key| until(key).is_some_and(|until| until <= now))
}

impl Knowledge {
    /// Returns the records that the caller may see, newest first.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for an invalid cursor.
    pub async fn list(
        &self,
        which: &Which,
        limit: usize,
        cursor: Option<&str>,
        origin: &Origin,
    ) -> Result<Listed, KnowledgeError> {
        let wrong = || KnowledgeError::invalid("cursor", "is the next_cursor of the page before");
        let before = cursor.map(|cursor| Mark::read(cursor).ok_or_else(wrong)).transpose()?;
        let now = self.store.clock().now();
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let mut found = sight.look(|graph| newest(graph, which, before.as_ref(), limit + 1, now))?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| more).map(|(_, record)| Mark::of(record).to_string());
        let mut results: Vec<Record> = found.into_iter().map(|(_, record)| record).collect();
        for record in &mut results {
            self.add_cases(record).await?;
        }
        Ok(Listed { count: results.len(), results, next_cursor })
    }

    /// Returns every selected record that the caller may see, oldest first.
    pub(crate) async fn all(&self, which: &Which, origin: &Origin) -> Result<Vec<Record>, KnowledgeError> {
        let now = self.store.clock().now();
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let mut found = sight.look(|graph| newest(graph, which, None, usize::MAX, now))?;
        found.reverse();
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }
}

/// The cursor of a listing: the last record, which may have been removed meanwhile. In that case, records of the same
/// instant are listed again. An element number as the cursor would reveal the number of other elements.
pub(crate) struct Mark {
    id: String,
    created: i64,
}

impl Mark {
    fn of(record: &Record) -> Self {
        Self { id: record.id.clone(), created: record.created_at.as_microsecond() }
    }

    fn read(cursor: &str) -> Option<Self> {
        let position = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
        let (created, id) = position.split_once(' ')?;
        Some(Self { id: id.to_owned(), created: created.parse().ok()? })
    }

    /// Cuts a list of all records in order of time before this position.
    fn cut(&self, graph: &dyn GraphRead, all: &mut Vec<ElementId>) {
        let created = |el: ElementId| {
            let mut created = 0;
            graph.look(el, &mut |look| created = look.stamp().created);
            created
        };
        let own = graph.concept(Sym::new(KIND), &self.id).filter(|own| created(*own) == self.created);
        let mut at = own.and_then(|own| all.binary_search(&own).ok());
        if at.is_none() {
            at = all.iter().position(|el| created(*el) > self.created);
        }
        all.truncate(at.unwrap_or(all.len()));
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(format!("{} {}", self.created, self.id)))
    }
}

pub(crate) fn newest(
    graph: &dyn GraphRead,
    which: &Which,
    before: Option<&Mark>,
    limit: usize,
    now: Timestamp,
) -> Vec<(ElementId, Record)> {
    let kind = Sym::new(KIND);
    // Element numbers increase with time, and the graph is walked in this order. Therefore all elements are collected
    // and then examined in reverse.
    let mut all: Vec<ElementId> = Vec::new();
    while let Some(stretch) = Some(graph.of_type(kind, all.last().copied().unwrap_or(ElementId::NONE), STRETCH))
        .filter(|stretch| !stretch.is_empty())
    {
        all.extend(stretch);
    }
    if let Some(before) = before {
        before.cut(graph, &mut all);
    }
    let mut found = Vec::new();
    for el in all.into_iter().rev() {
        let mut fits = false;
        graph.look(el, &mut |look| fits = matches!(look, ElementRef::Concept(concept) if which.fits(concept, now)));
        found.extend(fits.then(|| read(graph, el)).flatten().map(|record| (el, record)));
        if found.len() >= limit {
            break;
        }
    }
    found
}
