//! The history of a neuron: all versions of its definition with author and reason, and the changes of its memory
//! (MISSION N4).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use similar::TextDiff;
use store::{
    Batch, Cause, Entry, Key, Kind, Origin, Principal, PrincipalId, Role, StoreError, Stream, Timestamp, Versioned,
    last_version,
};

use crate::NeuronError;
use crate::neurons::{FIRST_VERSION, Neurons};
use crate::spec::{NeuronId, NeuronSpec};

/// A definition as an entry of the journal.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u64,
    /// The definition; `None` if the neuron was removed.
    spec: Option<NeuronSpec>,
    /// The author whose rights the definition runs with, if this is not the principal that wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<PrincipalId>,
}

/// A stored definition together with the author whose rights it runs with, so one read returns both.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stored {
    #[serde(flatten)]
    pub(crate) spec: NeuronSpec,
    /// The author; `None` in documents of older releases, where the journal names the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) author: Option<PrincipalId>,
}

/// One version of a neuron.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = NeuronVersion)]
pub struct Version {
    /// The number of the version.
    pub version: u64,
    /// The time of the version.
    pub at: Timestamp,
    /// The principal that wrote the version.
    pub by: PrincipalId,
    /// The cause of the version.
    pub cause: Cause,
    /// The definition; `None` if the neuron was removed.
    pub spec: Option<NeuronSpec>,
}

/// The number of context lines around a change in a diff.
const CONTEXT_LINES: usize = 3;
/// The time limit of a comparison. After it, the diff is still correct but may be longer than necessary.
const DIFF_MAX: Duration = Duration::from_millis(100);
/// The number of journal entries per read in the search for a version.
const STRETCH: usize = 64;

fn stream(id: &NeuronId) -> Stream {
    format!("neuron:{id}").into()
}

/// Adds the journal entry of a definition that is written at `version`, or removed, to `batch`.
pub(crate) fn noted(
    batch: Batch,
    id: &NeuronId,
    version: u64,
    spec: Option<&NeuronSpec>,
    author: Option<PrincipalId>,
) -> Batch {
    let kind = if spec.is_some() { "defined" } else { "removed" };
    batch.append(stream(id), kind, &Written { version, spec: spec.cloned(), author })
}

impl Neurons {
    /// Returns a definition and the author whose rights limit its runs. The author is `None` if no journal names one:
    /// the definition is then the operator's.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotFound`].
    pub async fn written(&self, id: &NeuronId) -> Result<(Versioned<NeuronSpec>, Option<PrincipalId>), NeuronError> {
        loop {
            let Versioned { version, value: Stored { spec, author } } = self.stored(id).await?;
            let found = Versioned { version, value: spec };
            if author.is_some() {
                return Ok((found, author));
            }
            let head = self.store.head(&stream(id)).await?;
            let last = self.store.entries(&stream(id), head.saturating_sub(1), 1).await?;
            let Some(entry) = last.first() else { return Ok((found, None)) };
            let written: Written = entry.decode()?;
            // One commit writes both, but another commit may happen between the two reads.
            if written.version == found.version && written.spec.is_some() {
                return Ok((found, Some(written.author.unwrap_or_else(|| entry.by.clone()))));
            }
            if self.get(id).await?.version == found.version {
                return Ok((found, Some(entry.by.clone())));
            }
        }
    }

    /// Returns a definition that `origin` may change: its own, or any for an operator.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotFound`] or [`NeuronError::NotOwner`].
    pub(crate) async fn changeable(
        &self,
        origin: &Origin,
        id: &NeuronId,
    ) -> Result<Versioned<NeuronSpec>, NeuronError> {
        let found = self.get(id).await?;
        if origin.principal.may(Role::Operator) {
            return Ok(found);
        }
        let owner = self.owner(id).await?;
        if origin.principal.answers_for(&owner.0) { Ok(found) } else { Err(NeuronError::NotOwner(id.clone(), owner)) }
    }

    /// Returns the owner of a definition: the principal that wrote its first version, or the daemon.
    pub(crate) async fn owner(&self, id: &NeuronId) -> Result<PrincipalId, NeuronError> {
        let (mut owner, mut after) = (None, 0);
        loop {
            let (versions, next) = self.versions(id, after, STRETCH).await?;
            if versions.is_empty() {
                break;
            }
            let first = versions.iter().rfind(|known| known.version == FIRST_VERSION && known.spec.is_some());
            (owner, after) = (first.map(|first| first.by.clone()).or(owner), next);
        }
        Ok(owner.unwrap_or_else(|| Principal::system().id))
    }

    /// Imports a neuron from another daemon with all its versions, unless the name is in use. Returns `true` if it was
    /// imported. Its author here is `author`; the causes of its versions name the writers of the other daemon.
    ///
    /// # Errors
    /// Returns [`NeuronError::Spec`] if the definition is invalid.
    pub async fn adopt(
        &self,
        origin: &Origin,
        spec: &NeuronSpec,
        history: Vec<Entry>,
        author: &PrincipalId,
    ) -> Result<bool, NeuronError> {
        spec.check().map_err(NeuronError::Spec)?;
        let id = spec.id.clone().ok_or_else(|| NeuronError::Spec("id is missing".into()))?;
        let version = last_version(&history);
        let stored = Stored { spec: spec.clone(), author: Some(author.clone()) };
        let history = store::written_by(history, author);
        let adopted = Batch::new(origin).adopt(Key::new(Kind::Neuron, id.clone()), &stored, version);
        match self.commit_definition(adopted.forget(stream(&id)).restore(stream(&id), history)).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the journal of a neuron's versions, for the export to another daemon.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn journal(&self, id: &NeuronId) -> Result<Vec<Entry>, NeuronError> {
        Ok(self.store.all_entries(&stream(id)).await?)
    }

    /// Returns at most `limit` versions of a neuron after journal entry `after`, oldest first, and the entry after
    /// which the next page starts. A removed neuron keeps its versions.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn versions(&self, id: &NeuronId, after: u64, limit: usize) -> Result<(Vec<Version>, u64), NeuronError> {
        let entries: Vec<Entry> = self.store.entries(&stream(id), after, limit).await?;
        let next = entries.last().map_or(after, |entry| entry.seq);
        let read = |entry: &Entry| {
            let Written { version, spec, .. } = entry.decode()?;
            let (at, by, cause) = (entry.at, entry.by.clone(), entry.cause.clone());
            Ok::<_, store::StoreError>(Version { version, at, by, cause, spec })
        };
        Ok((entries.iter().map(read).collect::<Result<_, _>>()?, next))
    }

    /// Returns the definition at `version`. If several entries have this number, the latest counts.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoVersion`].
    pub async fn version(&self, id: &NeuronId, version: u64) -> Result<Version, NeuronError> {
        let (mut found, mut after) = (None, 0);
        loop {
            let (versions, next) = self.versions(id, after, STRETCH).await?;
            if versions.is_empty() {
                return found.ok_or_else(|| NeuronError::NoVersion(id.clone(), version));
            }
            after = next;
            found = versions.into_iter().rfind(|known| known.version == version && known.spec.is_some()).or(found);
        }
    }

    /// Returns the changes of a neuron's memory between two versions as a unified diff; empty without changes.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoVersion`].
    pub async fn memory_diff(&self, id: &NeuronId, from: u64, to: u64) -> Result<String, NeuronError> {
        let memory = async |version| {
            let spec = self.version(id, version).await?.spec;
            Ok::<_, NeuronError>(spec.map(|spec| spec.memory).unwrap_or_default())
        };
        let (old, new) = (memory(from).await?, memory(to).await?);
        let names = (format!("{id} version {from}"), format!("{id} version {to}"));
        // The comparison of very different texts is slow, so it runs on a blocking thread.
        let compared = tokio::task::spawn_blocking(move || {
            let difference = TextDiff::configure().timeout(DIFF_MAX).diff_lines(&old, &new);
            difference.unified_diff().context_radius(CONTEXT_LINES).header(&names.0, &names.1).to_string()
        });
        compared.await.map_err(|died| NeuronError::Died(died.to_string()))
    }

    /// Replaces the memory of a neuron and nothing else.
    ///
    /// # Errors
    /// Returns the errors of [`Neurons::update`].
    pub async fn remember(
        &self,
        origin: &Origin,
        id: &NeuronId,
        memory: String,
        expect: Option<u64>,
    ) -> Result<u64, NeuronError> {
        let (found, author) = self.written(id).await?;
        let spec = NeuronSpec { memory, ..found.value };
        // An operator who changes the memory does not become the author of the tools. Any other principal becomes the
        // author of the whole definition.
        let author = author.filter(|_| !spec.tools.is_empty() && origin.principal.may(Role::Operator));
        // The write expects the version that was read, in case another writer changed the definition.
        Ok(self.rewrite(origin, id, spec, Some(expect.unwrap_or(found.version)), author).await?.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_definition_is_read_with_and_without_its_author() {
        let spec = NeuronSpec { id: Some("n1".into()), temperature: Some(0.7), ..NeuronSpec::default() };
        let old: Stored = serde_json::from_slice(&store::json(&spec)).unwrap();
        assert_eq!((old.spec, old.author), (spec.clone(), None));
        let stored = Stored { spec: spec.clone(), author: Some(PrincipalId::new("ada")) };
        let read: Stored = serde_json::from_slice(&store::json(&stored)).unwrap();
        assert_eq!((read.spec, read.author), (spec, Some(PrincipalId::new("ada"))));
    }
}
