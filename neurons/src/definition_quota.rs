//! The quota of each participant on stored definitions of neurons and fascicles. Every definition is kept with all its
//! versions and is read whenever definitions are listed, so their number is bounded.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Batch, Expect, Key, Kind, Principal, PrincipalId, Store, StoreError};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The default maximum number of stored definitions of a participant.
const DEFINITIONS_MAX: u64 = 1_000;

/// The number of stored definitions of a principal, as stored. Definitions of folders of version 0.1.0 and imported ones
/// are not counted.
#[derive(Default, Serialize, Deserialize)]
struct Owned {
    definitions: u64,
}

/// The reason why a definition is not stored.
#[derive(Debug)]
pub enum Refused {
    /// The principal has this number of definitions, the maximum.
    TooMany(u64),
    /// The store's error.
    Store(StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The turn of one change: while it is held, no other change counts definitions.
#[must_use]
pub struct Turn(#[expect(dead_code, reason = "dropping it ends the turn")] OwnedMutexGuard<()>);

/// The quota of definitions, shared by neurons and fascicles; a cheap handle.
#[derive(Clone)]
pub struct DefinitionQuota {
    store: Store,
    max: u64,
    turns: Arc<Mutex<()>>,
}

impl DefinitionQuota {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, max: DEFINITIONS_MAX, turns: Arc::default() }
    }

    /// Sets the maximum number of definitions of a participant; 0 means no limit.
    pub(crate) fn with_max(self, max: u64) -> Self {
        Self { max, ..self }
    }

    /// Adds to `batch` that `owner` stores one more definition. The batch must be committed before the turn is dropped.
    /// Operators, the daemon and its lifeforms are not bound.
    ///
    /// # Errors
    /// Returns [`Refused::TooMany`] if the owner has the maximum number of definitions.
    pub async fn add(&self, batch: Batch, owner: &Principal) -> Result<(Batch, Option<Turn>), Refused> {
        if !owner.is_bound() {
            return Ok((batch, None));
        }
        let (turn, key, version, count) = self.owned(&owner.id).await?;
        if self.max > 0 && count >= self.max {
            return Err(Refused::TooMany(self.max));
        }
        let batch = batch.put_expecting(key, version, &Owned { definitions: count + 1 });
        Ok((batch, Some(turn)))
    }

    /// Adds to `batch` that one definition of `owner` is deleted. The batch must be committed before the turn is dropped.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn remove(&self, batch: Batch, owner: &PrincipalId) -> Result<(Batch, Turn), StoreError> {
        let (turn, key, version, count) = self.owned(owner).await?;
        let batch = match count.checked_sub(1) {
            Some(definitions) => batch.put_expecting(key, version, &Owned { definitions }),
            None => batch,
        };
        Ok((batch, turn))
    }

    async fn owned(&self, owner: &PrincipalId) -> Result<(Turn, Key, Expect, u64), StoreError> {
        let turn = Turn(self.turns.clone().lock_owned().await);
        let key = Key::new(Kind::Meta, format!("definitions-of:{owner}"));
        let found = self.store.document::<Owned>(&key).await?;
        let (version, count) = found.map_or((0, 0), |found| (found.version, found.value.definitions));
        Ok((turn, key, Expect::Version(version), count))
    }
}
