//! How a record stood before, and back to that (MISSION H2): nothing that was said is destroyed by what is said later.

use jiff::Timestamp;
use nexus::{Origin, Right, Role, Version, versions_stream};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::record::KIND;
use crate::{Knowledge, KnowledgeError, Record};

/// Versions that are told at once.
const TOLD_MAX: usize = 256;

/// A record as it stood from some time on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Past {
    /// Counts the changes of what the record says, from 1.
    pub version: u64,
    /// When it was written so.
    pub at: Timestamp,
    /// By whom.
    pub by: String,
    /// What led to it.
    pub cause: Vec<String>,
    /// What it said: `task`, `content`, `types`, `tags` …; nothing where it was removed.
    pub attributes: Option<Map<String, Value>>,
}

impl Knowledge {
    /// How a record stood, oldest first, from the version after `after` on. Its owner is told of one that is deleted too.
    ///
    /// # Errors
    /// [`KnowledgeError::NotFound`].
    pub async fn history(&self, id: &str, after: u64, origin: &Origin) -> Result<Vec<Past>, KnowledgeError> {
        let record = self.any(id, origin).await?;
        let owns = origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator);
        if record.status != crate::Status::Active && !owns {
            return Err(KnowledgeError::NotFound(id.to_owned()));
        }
        let entries = self.store.entries(&versions_stream(KIND, id), after, TOLD_MAX).await?;
        let past = |entry: &nexus::store::Entry| {
            let version: Version = entry.decode()?;
            let cause = entry.cause.0.iter().map(ToString::to_string).collect();
            let by = entry.by.to_string();
            Ok(Past { version: entry.seq, at: entry.at, by, cause, attributes: version.attributes })
        };
        entries.iter().map(past).collect()
    }

    /// Makes a record say again what it said in `version`, as a version of its own; one that was deleted or merged is there
    /// again.
    ///
    /// # Errors
    /// [`KnowledgeError::Forbidden`] where it is not the caller's, [`KnowledgeError::Invalid`] where there was no such
    /// version.
    pub async fn roll_back(&self, id: &str, version: u64, origin: &Origin) -> Result<Record, KnowledgeError> {
        let record = self.any(id, origin).await?;
        if !(origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator)) {
            return Err(KnowledgeError::Forbidden(format!("{id} belongs to somebody else")));
        }
        let none = || KnowledgeError::invalid("version", format!("is one of those that {id} had"));
        let stream = versions_stream(KIND, id);
        let entries = self.store.entries(&stream, version.checked_sub(1).ok_or_else(none)?, 1).await?;
        let found: Version = entries.first().filter(|entry| entry.seq == version).ok_or_else(none)?.decode()?;
        let mut then = found.attributes.ok_or_else(none)?;
        // What it did not say then it does not say now.
        let now = self.store.entries(&stream, self.store.head(&stream).await?.saturating_sub(1), 1).await?;
        if let Some(now) = now.first() {
            let now: Version = now.decode()?;
            for key in now.attributes.unwrap_or_default().keys() {
                then.entry(key.clone()).or_insert(Value::Null);
            }
        }
        let mut parameters = Map::new();
        parameters.insert("id".into(), id.into());
        let mut set = Vec::new();
        for (at, (key, value)) in then.into_iter().enumerate() {
            set.push(format!("{}: $v{at}", Value::from(key)));
            parameters.insert(format!("v{at}"), value);
        }
        let command = format!(
            r#"UPDATE ?k SET ATTRIBUTES {{ {} }} SET METADATA {{ status: "active" }} WHERE {{ ?k {{type: "{KIND}", name: $id}} }}"#,
            set.join(", ")
        );
        self.kip(&command, json!(parameters), Right::Own, Vec::new(), id, origin).await?;
        self.get(id, origin).await
    }
}
