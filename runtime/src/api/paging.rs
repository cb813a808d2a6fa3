//! The start and the length of pages of lists and journals.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use store::{Cause, Entry, PrincipalId, Store, StoreError, Stream, Timestamp};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// The number of entries on a page, from 1 to `MAX` (default `DEFAULT`). Other values are refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit<const DEFAULT: usize = 50, const MAX: usize = 200>(pub(super) usize);

impl<const DEFAULT: usize, const MAX: usize> Default for Limit<DEFAULT, MAX> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<'de, const DEFAULT: usize, const MAX: usize> Deserialize<'de> for Limit<DEFAULT, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Some(limit) = Option::deserialize(from)? else { return Ok(Self::default()) };
        let wrong = || D::Error::custom(format!("limit is a number from 1 to {MAX}"));
        (1..=MAX).contains(&limit).then_some(Self(limit)).ok_or_else(wrong)
    }
}

impl<const DEFAULT: usize, const MAX: usize> PartialSchema for Limit<DEFAULT, MAX> {
    fn schema() -> RefOr<Schema> {
        let limit = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX));
        limit.default(Some(DEFAULT.into())).into()
    }
}

impl<const DEFAULT: usize, const MAX: usize> ToSchema for Limit<DEFAULT, MAX> {}

/// The number of entries on a page of a journal.
pub(super) type EntriesLimit = Limit<50, 256>;

/// An entry of a journal.
#[derive(Serialize, ToSchema)]
pub(super) struct JournalEntry {
    /// The number of the entry.
    pub(super) seq: u64,
    /// The time.
    pub(super) at: Timestamp,
    /// The principal that caused the entry.
    pub(super) by: PrincipalId,
    /// The references of the causes.
    pub(super) cause: Cause,
    /// The kind.
    pub(super) kind: String,
    /// The content, by the kind.
    #[schema(value_type = Object)]
    pub(super) data: Value,
}

impl From<&Entry> for JournalEntry {
    fn from(entry: &Entry) -> Self {
        let Entry { seq, at, by, cause, kind, data } = entry;
        let data = serde_json::from_slice(data).unwrap_or_default();
        Self { seq: *seq, at: *at, by: by.clone(), cause: cause.clone(), kind: kind.to_string(), data }
    }
}

/// A page of a list that is ordered by ids.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// The id after which the page starts.
    #[serde(default)]
    pub(super) after: String,
    /// The maximum number of entries, up to 200.
    #[serde(default)]
    #[param(inline)]
    pub(super) limit: Limit,
}

/// A page of a journal.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Entries {
    /// The number of the entry after which the page starts.
    #[serde(default)]
    pub(super) after: u64,
    /// The maximum number of entries, up to 256.
    #[serde(default)]
    #[param(inline)]
    pub(super) limit: EntriesLimit,
}

/// The order of the entries of a page.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    /// The oldest entry first.
    #[default]
    Asc,
    /// The newest entry first.
    Desc,
}

/// A page of a journal, from either end: `order=desc` reads the newest entries in one request, whatever the length.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JournalPage {
    /// Only entries after the entry of this number.
    pub(super) after: u64,
    /// Only entries before the entry of this number.
    pub(super) before: Option<u64>,
    /// Only entries from this time on.
    #[param(value_type = Option<String>, format = DateTime)]
    pub(super) since: Option<Timestamp>,
    /// Only entries before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    pub(super) until: Option<Timestamp>,
    /// `asc` (the oldest first) or `desc`.
    #[param(inline)]
    pub(super) order: Order,
    /// The number of entries, up to 256.
    #[param(inline)]
    pub(super) limit: EntriesLimit,
}

impl JournalPage {
    /// Returns the entries of the page, and the number that the next page begins at: its `after`, or its `before` in
    /// descending order.
    ///
    /// # Errors
    /// The store's own.
    pub(super) async fn of(&self, store: &Store, stream: &Stream) -> Result<(Vec<Entry>, Option<u64>), StoreError> {
        let head = store.head(stream).await?;
        let mut low = self.after;
        let mut high = self.before.map_or(head, |before| before.saturating_sub(1).min(head));
        if let Some(since) = self.since {
            low = low.max(count_before(store, stream, since, head).await?);
        }
        if let Some(until) = self.until {
            high = high.min(count_before(store, stream, until, head).await?);
        }
        let within = usize::try_from(high.saturating_sub(low)).unwrap_or(usize::MAX);
        let limit = self.limit.0.min(within);
        if limit == 0 {
            return Ok((Vec::new(), None));
        }
        let is_desc = self.order == Order::Desc;
        let from = if is_desc { high - limit as u64 } else { low };
        let mut entries = store.entries(stream, from, limit).await?;
        entries.retain(|entry| entry.seq <= high);
        let next = match is_desc {
            // The oldest entries of a journal may be removed: an empty page has no next one.
            true => entries.first().map(|first| first.seq).filter(|first| from > low && *first == from + 1),
            false => entries.last().map(|last| last.seq).filter(|last| *last < high),
        };
        if is_desc {
            entries.reverse();
        }
        Ok((entries, next))
    }
}

/// Returns the number of entries of a journal that are older than a time: entries are in the order of their times.
async fn count_before(store: &Store, stream: &Stream, time: Timestamp, head: u64) -> Result<u64, StoreError> {
    let (mut low, mut high) = (0, head);
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = store.entries(stream, middle, 1).await?.into_iter().next();
        match entry {
            // Entries before it may be removed; they are older than it is.
            Some(entry) if entry.at < time => low = entry.seq.min(high),
            _ => high = middle,
        }
    }
    Ok(low)
}
