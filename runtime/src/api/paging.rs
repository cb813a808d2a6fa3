//! The start and the length of pages of lists and journals.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
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
