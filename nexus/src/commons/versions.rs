//! The version history of each record of the commons. Every change appends an entry to the record's own stream in the
//! same commit, on every write route (MISSION R1, H2).

use kip::datum::Datum;
use kip::exec::Change;
use kip::graph::{Concept, LEVEL_KEY, OWNER_KEY, Record, SCOPES_KEY};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Batch, Expect, Key, Kind, Stream};

use super::is_shared;

/// A version of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// The attributes; `None` if the record was removed.
    pub attributes: Option<Map<String, Value>>,
    /// The metadata.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// Returns the stream of a record's versions: entries of kind `version`, each a [`Version`].
pub fn versions_stream(kind: &str, name: &str) -> Stream {
    format!("versions:{kind}/{name}").into()
}

/// Adds to `batch` a version for each record that was created or removed, or whose attributes or readers changed.
/// Removes the sealed part of each removed resource. Returns the batch with the number of added operations.
pub(crate) fn versions_of(mut batch: Batch, changes: &[Change]) -> (Batch, usize) {
    let mut count = 0;
    for change in changes {
        let concept = |record: &Option<Record>| match record {
            Some(Record::Concept(concept)) if is_shared(concept.kind) => Some(concept.clone()),
            _ => None,
        };
        let (before, after) = (concept(&change.before), concept(&change.after));
        let Some(named) = after.as_ref().or(before.as_ref()) else { continue };
        let stays = before.as_ref().zip(after.as_ref());
        // The readers of a record at a time belong to its version.
        let shown = |concept: &Concept| {
            [OWNER_KEY, SCOPES_KEY, LEVEL_KEY].map(|key| concept.metadata.named(key).map(Datum::to_json))
        };
        if stays.is_some_and(|(before, after)| before.attributes == after.attributes && shown(before) == shown(after)) {
            continue;
        }
        let version = Version {
            attributes: after.as_ref().map(|after| after.attributes.to_json()),
            metadata: after.as_ref().map(|after| after.metadata.to_json()).unwrap_or_default(),
        };
        batch = batch.append(versions_stream(named.kind.as_str(), &named.name), "version", &version);
        count += 1;
        if after.is_none() && named.kind.as_str() == "Resource" {
            batch = batch.delete(Key::new(Kind::Sealed, named.name.as_str()), Expect::Any);
            count += 1;
        }
    }
    (batch, count)
}
