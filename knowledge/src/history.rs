//! The history of a record, and the rollback to a version (MISSION H2). No later version removes an earlier one.

use jiff::Timestamp;
use nexus::{PROVENANCE_KEY, Provenance, Version, WriteAuthority, versions_stream};
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{Entry, Origin, Role, StoreError};

use crate::draft::Body;
use crate::record::{EXTRA_KEY, KIND, Status, UNIT_KEY};
use crate::unit_ids::claims;
use crate::{Knowledge, KnowledgeError, Record};

/// The maximum number of versions that are returned at once.
const TOLD_MAX: usize = 256;

/// One version of a record.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = RecordVersion)]
pub struct RecordVersion {
    /// The number of the version, which counts content changes from 1.
    pub version: u64,
    /// The time of the version.
    pub at: Timestamp,
    /// The principal that wrote the version.
    pub by: String,
    /// The causes of the version.
    pub cause: Vec<String>,
    /// The content: `task`, `content`, `types`, `tags` …; `None` for a removal.
    #[schema(value_type = Option<Object>)]
    pub attributes: Option<Map<String, Value>>,
}

impl Knowledge {
    /// Returns the versions of a record after version `after`, oldest first. The owner can also read the history of a
    /// deleted record. Other principals see the versions that they were allowed to see at the time.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::NotFound`].
    pub async fn history(&self, id: &str, after: u64, origin: &Origin) -> Result<Vec<RecordVersion>, KnowledgeError> {
        let record = self.any(id, origin).await?;
        let by = &origin.principal;
        let owns = by.answers_for(&record.owner) || by.may(Role::Operator);
        if record.status != crate::Status::Active && !owns {
            return Err(KnowledgeError::NotFound(id.to_owned()));
        }
        let mut versions = Vec::new();
        for (entry, version) in self.own_versions(id).await? {
            let might = nexus::is_shown(&Value::Object(version.metadata.clone()), by);
            if entry.seq > after && versions.len() < TOLD_MAX && (owns || might) {
                let cause = entry.cause.0.iter().map(ToString::to_string).collect();
                let (version, attributes) = (entry.seq, version.attributes);
                versions.push(RecordVersion { version, at: entry.at, by: entry.by.to_string(), cause, attributes });
            }
        }
        Ok(versions)
    }

    /// Returns the versions of a record, without those of an earlier record of the same name that was removed.
    pub(crate) async fn own_versions(&self, id: &str) -> Result<Vec<(Entry, Version)>, KnowledgeError> {
        let entries = self.store.all_entries(&versions_stream(KIND, id)).await?;
        let read = |entry: Entry| Ok((entry.decode::<Version>()?, entry)).map(|(version, entry)| (entry, version));
        let mut versions: Vec<(Entry, Version)> = entries.into_iter().map(read).collect::<Result<_, StoreError>>()?;
        let ended = versions.iter().rposition(|(_, version)| version.attributes.is_none());
        Ok(versions.split_off(ended.map_or(0, |at| at + 1)))
    }

    /// Restores the content of `version` as a new version. A record that was deleted or merged becomes active again.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Forbidden`] if the caller does not own it, [`KnowledgeError::Invalid`] if the version
    /// does not exist, and [`KnowledgeError::Conflict`] if another record has taken its unit id since.
    pub async fn roll_back(&self, id: &str, version: u64, origin: &Origin) -> Result<Record, KnowledgeError> {
        let _turn = self.once.lock().await;
        let record = self.any(id, origin).await?;
        if !(origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator)) {
            return Err(match record.status {
                Status::Active => KnowledgeError::Forbidden(format!("{id} belongs to somebody else")),
                _ => KnowledgeError::NotFound(id.to_owned()),
            });
        }
        let none = || KnowledgeError::invalid("version", format!("is one of those that {id} had"));
        let mut versions = self.own_versions(id).await?;
        let now = versions.pop();
        let found = versions.into_iter().chain(now.clone()).find(|(entry, _)| entry.seq == version);
        let provenance_then =
            found.as_ref().and_then(|(_, found)| Provenance::read(found.metadata.get(PROVENANCE_KEY)?));
        let mut then = found.and_then(|(_, found)| found.attributes).ok_or_else(none)?;
        // Attributes that the version did not have are removed.
        for key in now.and_then(|(_, now)| now.attributes).unwrap_or_default().keys() {
            then.entry(key.clone()).or_insert(Value::Null);
        }
        let names = self.names_again(&record, &then).await?;
        let mut parameters = Map::new();
        parameters.insert("id".into(), id.into());
        let mut set = Vec::new();
        for (at, (key, value)) in then.into_iter().enumerate() {
            set.push(format!("{}: $v{at}", Value::from(key)));
            parameters.insert(format!("v{at}"), value);
        }
        let (mut metadata, mut right) = (String::new(), WriteAuthority::Own);
        if record.owner.starts_with("lifeform:") {
            // The sources of the restored version count, and those of the present one, which only narrow the audience.
            let provenance = Provenance::joined([provenance_then.as_ref(), record.provenance.as_ref()]);
            parameters.insert(PROVENANCE_KEY.into(), provenance.to_json());
            (metadata, right) = (format!(", {PROVENANCE_KEY}: ${PROVENANCE_KEY}"), WriteAuthority::Attest);
        }
        let command = format!(
            r#"UPDATE ?k SET ATTRIBUTES {{ {} }} SET METADATA {{ status: "active"{metadata} }} WHERE {{ ?k {{type: "{KIND}", name: $id}} }}"#,
            set.join(", ")
        );
        self.kip(&command, json!(parameters), right, claims(&names, id, origin), id, origin).await?;
        if record.status == Status::Merged {
            let apart = format!(
                r#"DELETE PROPOSITIONS ?l WHERE {{ ?l ({{type: "{KIND}", name: $id}}, "merged_into", ?kept) }}"#
            );
            self.kip(&apart, json!({"id": id}), WriteAuthority::Own, Vec::new(), id, origin).await?;
        }
        self.link_anew(&record, origin).await?;
        self.get(id, origin).await
    }

    /// Returns the unit ids that the record gets back with the content `then`.
    async fn names_again(&self, record: &Record, then: &Map<String, Value>) -> Result<Vec<String>, KnowledgeError> {
        let unit = then.get(UNIT_KEY).filter(|unit| unit.is_object()).cloned();
        let extra = then.get(EXTRA_KEY).and_then(Value::as_object).cloned().unwrap_or_default();
        let names = Body { unit, extra, ..Body::default() }.names();
        let own = crate::unit::id_of(record);
        for name in names.iter().chain([&own]) {
            if self.record_with_unit_id(name).await?.is_some_and(|other| other.id != record.id) {
                return Err(KnowledgeError::Conflict(format!("the id {name} is taken")));
            }
        }
        Ok(names)
    }
}
