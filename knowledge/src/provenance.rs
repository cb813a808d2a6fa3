//! The provenance of a record that a lifeform made of a conversation or of its work. The lifeform owns such a record, but
//! its words come from others: prompts use it only where those people read, and it counts as their word.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::record::Record;

/// The tag that names those who may be told the record.
const AMONG: &str = "among";
/// The tag that names those whose words the record bears.
const BEHIND: &str = "behind";
/// The maximum number of names in a tag.
const NAMES_MAX: usize = 32;

/// The name that stands for sources outside this daemon, and for those that a list has no room for. No principal has it.
pub const OUTSIDE: &str = "outside";

/// The people of a record: see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The principals that may be told the record; `None` for everybody who may see it.
    pub among: Option<BTreeSet<String>>,
    /// The principals whose words the record bears.
    pub behind: BTreeSet<String>,
}

impl Provenance {
    /// Returns the provenance of a record from a conversation of `people`: they may be told it, and it bears their words.
    /// Without people, it is the lifeform's own.
    pub fn of_conversation<'a>(people: impl IntoIterator<Item = &'a str>) -> Self {
        let behind: BTreeSet<String> = people.into_iter().map(str::to_owned).collect();
        Self { among: (!behind.is_empty()).then(|| behind.clone()), behind }
    }

    /// Reads the provenance of a record of a lifeform. Without the tag `behind`, it bears the words of those who may be
    /// told it; with neither tag, such as a record that a model wrote with a tool, those of [`OUTSIDE`].
    pub fn of(record: &Record) -> Self {
        let names = |tag: &str| {
            let names = record.tags.get(tag)?.as_array()?.iter();
            Some(names.filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>())
        };
        let among = names(AMONG);
        let unknown = || BTreeSet::from([OUTSIDE.to_owned()]);
        Self { behind: names(BEHIND).or_else(|| among.clone()).unwrap_or_else(unknown), among }
    }

    /// Returns `true` if tags name the people of a record.
    pub(crate) fn is_in(tags: &Value) -> bool {
        [AMONG, BEHIND].iter().any(|tag| !tags[*tag].is_null())
    }

    /// Adds [`OUTSIDE`] to those behind a record: it gets other words, and it is unknown whose they are.
    pub(crate) fn changed(record: &Record, tags: &mut Map<String, Value>) {
        let mut now = Self::of(record);
        now.behind.insert(OUTSIDE.to_owned());
        let now = now.tags();
        Self::replace(tags, &now);
    }

    /// Returns `false` for a record that does not say where its words come from, such as one that a model wrote with a
    /// tool.
    pub fn is_said(record: &Record) -> bool {
        [AMONG, BEHIND].iter().any(|tag| record.tags.contains_key(*tag))
    }

    /// Returns the provenance of a record that is made of several: it bears the words of all, and may be told to those
    /// to whom each may be told.
    pub fn joined<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let of = |record| match Self::is_said(record) {
            true => Self::of(record),
            // It is unknown who may be told it.
            false => Self { among: Some(BTreeSet::new()), ..Self::of(record) },
        };
        records.into_iter().map(of).fold(Self::default(), |joined, one| Self {
            among: match (joined.among, one.among) {
                (Some(some), Some(others)) => Some(some.intersection(&others).cloned().collect()),
                (some, others) => some.or(others),
            },
            behind: joined.behind.into_iter().chain(one.behind).collect(),
        })
    }

    /// Returns the tags of a record with this provenance. The length of a tag is bounded: with more principals, fewer
    /// may be told the record, and [`OUTSIDE`] stands for the others behind it.
    pub fn tags(&self) -> Map<String, Value> {
        let mut tags = Map::new();
        if let Some(among) = &self.among {
            tags.insert(AMONG.to_owned(), among.iter().take(NAMES_MAX).map(String::as_str).collect());
        }
        let room = if self.behind.len() > NAMES_MAX { NAMES_MAX - 1 } else { NAMES_MAX };
        let others = (self.behind.len() > room).then_some(OUTSIDE);
        let named = self.behind.iter().map(String::as_str).take(room);
        tags.insert(BEHIND.to_owned(), named.chain(others).collect());
        tags
    }

    /// Replaces the provenance in the tags of a record.
    pub(crate) fn replace(tags: &mut Map<String, Value>, other: &Map<String, Value>) {
        for tag in [AMONG, BEHIND] {
            match other.get(tag) {
                Some(names) => drop(tags.insert(tag.to_owned(), names.clone())),
                None => drop(tags.remove(tag)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_names_than_fit_leave_somebody_behind_that_nobody_trusts() {
        let people: Vec<String> = (0..40).map(|n| format!("user:{n:02}")).collect();
        let tags = Provenance::of_conversation(people.iter().map(String::as_str)).tags();
        assert_eq!(tags[AMONG].as_array().unwrap().len(), NAMES_MAX);
        assert_eq!(tags[BEHIND].as_array().unwrap().len(), NAMES_MAX);
        assert_eq!(tags[BEHIND][NAMES_MAX - 1], OUTSIDE);
        assert_eq!(Value::from(Provenance::of_conversation([]).tags()), serde_json::json!({BEHIND: []}));
    }
}
