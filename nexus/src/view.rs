//! A principal's view of a nexus.

use std::collections::BTreeSet;
use std::sync::Arc;

use kip::graph::GraphRead;
use kip::graph::acl_groups::Rule;
use kip::lang::ast::{Find, Lit};
use kip::{Call, Command as Kip, ErrorKind, KipError, bind_and, exec};
use serde_json::Value;
use store::StoreError;
use store::principal::{Origin, Principal, Role};

use super::cache::LoadedNexus;
use super::commons::COMMONS;
use super::embeddings::Found;
use super::identity::{Disclosure, system_of};
use super::writer::Snapshot;
use super::{Nexus, NexusError, NexusId, commons, embeddings};

impl Nexus {
    /// Returns a principal's view of a nexus; with a term and an embedder, also the elements similar to the term in
    /// meaning.
    ///
    /// # Errors
    /// Fails if the nexus cannot be loaded.
    pub async fn sight(&self, nexus: &NexusId, origin: &Origin, term: Option<&str>) -> Result<View, NexusError> {
        let loaded = self.wake(nexus).await?;
        let (own, commons) = self.both(nexus, &loaded).await?;
        let found = match term {
            Some(term) => self.near_to(term, nexus, origin, &own, commons.as_ref()).await?,
            None => Found::default(),
        };
        let seen = ScopedView::by(&origin.principal, nexus, &loaded, own, commons);
        Ok(View { seen, near: found.near, warnings: found.warnings })
    }
}

/// A principal's view of a nexus, with the elements similar to a search term.
pub struct View {
    pub(super) seen: ScopedView,
    pub(super) near: Option<embeddings::Near>,
    /// Warnings for the principal, for example about missing vectors.
    pub warnings: Vec<String>,
}

impl View {
    /// Calls `then` with the graph. A large graph is read off the runtime's async threads.
    ///
    /// # Errors
    /// Fails when a shelf cannot be read.
    pub fn look<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> Result<R, NexusError> {
        let looked = crate::blocking::block_in_place_if(self.seen.is_large(), || self.seen.view(then));
        self.seen.check()?;
        Ok(looked)
    }

    /// Returns the results of the semantic search, if there is an embedder and it succeeded.
    pub fn near(&self) -> Option<&dyn exec::Semantic> {
        self.near.as_ref().map(|near| near as &dyn exec::Semantic)
    }

    /// Returns `true` if the embedder of the nexus knows the script of the search term.
    pub fn reads_term(&self) -> bool {
        self.near.as_ref().is_some_and(|near| near.is_read)
    }
}

/// A principal's view of a nexus: its own graph and the commons, each filtered by scopes.
pub(super) struct ScopedView {
    pub(super) own: Arc<Snapshot>,
    pub(super) scopes: commons::Scopes,
    pub(super) commons: Option<(Arc<Snapshot>, commons::Scopes)>,
    /// The identity of the lifeform, if the principal may see it.
    identity: Option<Arc<str>>,
    /// The id of `$system`.
    system: Arc<str>,
}

impl ScopedView {
    pub(super) fn by(
        reader: &Principal,
        nexus: &NexusId,
        loaded: &LoadedNexus,
        own: Arc<Snapshot>,
        commons: Option<Arc<Snapshot>>,
    ) -> Self {
        let commons = commons.map(|commons| (commons, scopes(reader, &COMMONS.into())));
        let identity = loaded.identity.as_ref().filter(|_| reader.may(Role::Operator));
        let identity = identity.map(|identity| identity.id.clone());
        Self { own, scopes: scopes(reader, nexus), commons, identity, system: system_of(nexus) }
    }

    pub(super) fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R {
        let commons = self.commons.as_ref().map(|(snapshot, scopes)| (&snapshot.mind, scopes));
        let id = self.identity.as_deref();
        commons::view((&self.own.mind, &self.scopes), commons, |graph| then(&Disclosure::new(graph, id, &self.system)))
    }

    pub(super) fn is_large(&self) -> bool {
        self.own.mind.is_large_to_read()
            || self.commons.as_ref().is_some_and(|(snapshot, _)| snapshot.mind.is_large_to_read())
    }

    /// Checks that every read succeeded.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.own.mind.check()?;
        self.commons.as_ref().map_or(Ok(()), |(snapshot, _)| snapshot.mind.check())
    }
}

/// Returns `true` if `principal` is the lifeform to which this mind belongs. Other lifeforms are visitors.
pub(super) fn is_self(principal: &Principal, nexus: &NexusId) -> bool {
    let id = principal.id.0.strip_prefix("lifeform:");
    // Another principal that runs a definition of the lifeform is not the lifeform itself.
    principal.roles.contains(&Role::Lifeform)
        && id == Some(&**nexus)
        && &**nexus != COMMONS
        && principal.answers_for(&principal.id.0)
}

/// Returns `true` if a principal may write into a nexus and see its journal.
pub fn may_write(principal: &Principal, nexus: &NexusId) -> bool {
    principal.may(Role::Operator) || is_self(principal, nexus)
}

/// Returns `true` if a principal may write its own elements in a nexus. In the commons, every participant may.
pub(super) fn may_share(principal: &Principal, nexus: &NexusId) -> bool {
    &**nexus == COMMONS && (principal.may(Role::Participant) || principal.may(Role::Lifeform))
}

/// Returns the scopes that limit a principal's view. An operator, and a lifeform in its own mind, sees everything.
pub(super) fn scopes(principal: &Principal, nexus: &NexusId) -> commons::Scopes {
    (!may_write(principal, nexus)).then(|| names(principal))
}

/// Returns `true` if a principal may see an element with this metadata.
pub fn is_shown(metadata: &Value, to: &Principal) -> bool {
    to.may(Role::Operator) || Rule::of_metadata(metadata).is_none_or(|rule| rule.lets(&names(to)))
}

fn names(principal: &Principal) -> BTreeSet<Arc<str>> {
    principal.scopes.iter().map(|scope| scope.0.clone()).collect()
}

/// Returns the journal entry in `AS OF SEQ` of a FIND, if there is one.
pub(super) fn as_of(call: &Call) -> Result<Option<u64>, KipError> {
    if !call.command.to_ascii_uppercase().contains("SEQ") {
        return Ok(None);
    }
    bind_and(call, |command| match command {
        Kip::Find(Find { as_of: Some((lit, span)), .. }) | Kip::Explain(Find { as_of: Some((lit, span)), .. }) => {
            match lit {
                Lit::Int(seq) if *seq >= 0 => Ok(Some(*seq as u64)),
                other => Err(KipError::new(
                    ErrorKind::Parameter,
                    format!("an entry is a whole number, not {}", other.to_json()),
                )
                .at(*span)),
            }
        }
        _ => Ok(None),
    })
}
