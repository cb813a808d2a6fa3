//! Versions of definitions.

use serde::{Deserialize, Serialize};
use store::{
    Batch, Cause, Entry, Key, Kind, Origin, PrincipalId, StoreError, Stream, Timestamp, Versioned, last_version,
};

use crate::FascicleError;
use crate::fascicles::Fascicles;
use crate::spec::{FascicleId, FascicleSpec, NodeRun};

/// A definition as an entry of the journal.
#[derive(Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) version: u64,
    /// The definition; `None` if the fascicle was removed.
    pub(super) spec: Option<FascicleSpec>,
}

/// One version of a fascicle.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = FascicleVersion)]
pub struct Version {
    /// The number of the version.
    pub version: u64,
    /// The time of the version.
    pub at: Timestamp,
    /// The principal that wrote the version.
    pub by: PrincipalId,
    /// The cause of the version.
    pub cause: Cause,
    /// The definition; `None` if the fascicle was removed.
    pub spec: Option<FascicleSpec>,
}

pub(super) fn stream(id: &FascicleId) -> Stream {
    format!("fascicle:{id}").into()
}

pub(super) fn noted(batch: Batch, id: &FascicleId, version: u64, spec: Option<&FascicleSpec>) -> Batch {
    let kind = if spec.is_some() { "defined" } else { "removed" };
    batch.append(stream(id), kind, &Written { version, spec: spec.cloned() })
}

impl Fascicles {
    /// Imports a fascicle from another daemon with all its versions, unless the name is in use. Returns `true` if it
    /// was imported.
    ///
    /// # Errors
    /// Returns [`FascicleError::Invalid`] if the definition is invalid.
    pub async fn adopt(
        &self,
        origin: &Origin,
        spec: &FascicleSpec,
        history: Vec<Entry>,
        author: &PrincipalId,
    ) -> Result<bool, FascicleError> {
        if self.is_shipped(&spec.id) {
            return Ok(false);
        }
        self.check(spec).await?;
        let mut spec = spec.clone();
        for node in &mut spec.nodes {
            if let NodeRun::Approve(approve) = &mut node.run {
                approve.by.clear();
            }
        }
        let (spec, history) = (&spec, store::written_by(history, author));
        let (id, version) = (&spec.id, last_version(&history));
        let adopted = Batch::new(origin).adopt(Key::new(Kind::Fascicle, id.clone()), spec, version);
        match self.commit_definition(adopted.forget(stream(id)).restore(stream(id), history)).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the journal of a fascicle's versions, for the export to another daemon; empty for an unchanged shipped
    /// fascicle.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn journal(&self, id: &FascicleId) -> Result<Vec<Entry>, FascicleError> {
        Ok(self.inner.store.all_entries(&stream(id)).await?)
    }

    /// Returns a definition and its author. The author is `None` for a shipped definition, and if no journal names one:
    /// the definition is then the operator's.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`].
    pub(crate) async fn written(
        &self,
        id: &FascicleId,
    ) -> Result<(Versioned<FascicleSpec>, Option<PrincipalId>), FascicleError> {
        loop {
            let found = self.get(id).await?;
            if self.is_shipped(id) {
                return Ok((found, None));
            }
            let head = self.inner.store.head(&stream(id)).await?;
            let last = self.inner.store.entries(&stream(id), head.saturating_sub(1), 1).await?;
            let Some(entry) = last.first() else { return Ok((found, None)) };
            let written: Written = entry.decode()?;
            // One commit writes both, but another commit may happen between the two reads.
            let is_its = written.version == found.version && written.spec.is_some();
            if is_its || self.get(id).await?.version == found.version {
                return Ok((found, Some(entry.by.clone())));
            }
        }
    }

    /// Returns at most `limit` versions of a fascicle after journal entry `after`, oldest first, and the entry after
    /// which the next page starts. A removed fascicle keeps its versions.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn versions(
        &self,
        id: &FascicleId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Version>, u64), FascicleError> {
        let entries: Vec<Entry> = self.inner.store.entries(&stream(id), after, limit).await?;
        let next = entries.last().map_or(after, |entry| entry.seq);
        let read = |entry: &Entry| {
            let Written { version, spec } = entry.decode()?;
            let (at, by, cause) = (entry.at, entry.by.clone(), entry.cause.clone());
            Ok::<_, StoreError>(Version { version, at, by, cause, spec })
        };
        Ok((entries.iter().map(read).collect::<Result<_, _>>()?, next))
    }
}
