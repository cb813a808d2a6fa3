//! Listings of units, and records as units.

use serde_json::Value;
use store::Origin;

use super::shows;
use crate::list::{Which, newest};
use crate::record::Record;
use crate::search::Query;
use crate::unit::versions::{Resolved, SchemaVersion};
use crate::unit::{Form, Vocabulary, document, quality_of};
use crate::{Knowledge, KnowledgeError, commons};

/// The filter for a listing of units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitsWanted {
    /// The search question; without it, the units are ordered by quality.
    pub question: Option<String>,
    /// The accepted forms; empty accepts all.
    pub forms: Vec<Form>,
    /// The domain; `None` accepts all.
    pub domain: Option<String>,
    /// The minimum quality, from 0 to 1.
    pub min_quality: f64,
    /// The number of units to skip.
    pub offset: usize,
    /// The maximum number of units to return.
    pub limit: usize,
}

/// A page of units.
#[derive(Clone, Debug, PartialEq)]
pub struct Units {
    /// The records on the page.
    pub records: Vec<Record>,
    /// The number of selected units that the caller may see, on all pages.
    pub total: usize,
}

impl Knowledge {
    /// Returns the units that the caller may see and the filter selects.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for an invalid question.
    pub async fn units(&self, wanted: &UnitsWanted, origin: &Origin) -> Result<Units, KnowledgeError> {
        let now = self.store.clock().now();
        let fits = |record: &Record| {
            shows(record, &origin.principal)
                && (wanted.forms.is_empty() || wanted.forms.contains(&Form::of(record)))
                && wanted
                    .domain
                    .as_ref()
                    .is_none_or(|domain| record.tags.get("domain").and_then(Value::as_str) == Some(domain))
                && quality_of(record) >= wanted.min_quality
        };
        let mut records: Vec<Record> = match &wanted.question {
            Some(question) => {
                let query = Query::wide(question.as_str());
                self.search(&query, origin).await?.hits.into_iter().map(|hit| hit.record).collect()
            }
            None => {
                let sight = self.nexus.sight(&commons(), origin, None).await?;
                let all = sight.look(|graph| newest(graph, &Which::default(), None, usize::MAX, now))?;
                let mut all: Vec<Record> = all.into_iter().map(|(_, record)| record).collect();
                all.sort_by(|one, other| quality_of(other).total_cmp(&quality_of(one)));
                all
            }
        };
        records.retain(fits);
        let total = records.len();
        Ok(Units { records: records.into_iter().skip(wanted.offset).take(wanted.limit).collect(), total })
    }

    /// Returns a record as a unit in the version that the client requested. A contributed unit keeps its own words.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Version`].
    pub fn as_unit(
        &self,
        record: &Record,
        words: Option<Vocabulary>,
        asked: Option<&str>,
    ) -> Result<(Value, Resolved), KnowledgeError> {
        let unit = document(record, words);
        let of = crate::unit::versions::major_of(&unit).unwrap_or(1);
        let resolved = self.schemas.resolve(asked, of, self.store.clock().now())?;
        let SchemaVersion(major, ..) = resolved.version;
        let unit = self.schemas.migrate(unit, major)?;
        Ok((self.schemas.project(unit, resolved.version), resolved))
    }

    /// Returns several records as units. A record in an unknown version, which a KIP client may write, is left out, so
    /// that it does not make the other records fail.
    ///
    /// # Errors
    /// Returns the errors of [`Self::as_unit`].
    pub fn as_units<'r>(
        &self,
        records: impl IntoIterator<Item = &'r Record>,
        words: Option<Vocabulary>,
        asked: Option<&str>,
    ) -> Result<Vec<(&'r Record, Value)>, KnowledgeError> {
        let now = self.store.clock().now();
        let mut units = Vec::new();
        for record in records {
            match self.as_unit(record, words, asked) {
                Ok((unit, _)) => units.push((record, unit)),
                Err(error) => {
                    let major = crate::unit::versions::major_of(&document(record, words));
                    if major.is_some_and(|major| self.schemas.resolve(None, major, now).is_ok()) {
                        return Err(error);
                    }
                    tracing::warn!(record = %record.id, %error, "a unit of no known version is not told");
                }
            }
        }
        Ok(units)
    }
}
