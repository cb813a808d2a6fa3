//! The readers of what a lifeform says in a job. A search that a model makes returns only records that all of them may know,
//! as the records that come to mind unasked are.

use std::collections::BTreeSet;

use async_trait::async_trait;
use neurons::tools::Caller;
use nexus::Provenance;

use crate::{Knowledge, Record};

/// The readers of what a lifeform says in a job.
#[derive(Clone, Debug, Default)]
pub struct Audience {
    /// The lifeform, as a principal.
    pub me: String,
    /// The readers besides the lifeform.
    pub readers: BTreeSet<String>,
    /// The readers that the lifeform trusts.
    pub trusted: BTreeSet<String>,
    /// The principals whose words the job acts on.
    pub sources: BTreeSet<String>,
}

/// A source of audiences: the part of the daemon that knows the conversations.
#[async_trait]
pub trait Audiences: Send + Sync {
    /// Returns the audience of the job that makes a call; `None` for a caller that is no lifeform.
    async fn of(&self, caller: &Caller) -> Option<Audience>;
}

impl Audience {
    /// The reader of what is said where nobody in particular reads: it sees what all may see.
    pub const ANYBODY: &str = "user:";

    /// Returns the provenance of a record that a model makes in the job.
    pub(crate) fn provenance(&self) -> Provenance {
        if self.readers.iter().all(|reader| reader == Self::ANYBODY) {
            // Nobody in particular read it.
            return Provenance::unknown();
        }
        let mut audience = self.readers.clone();
        audience.insert(self.me.clone());
        Provenance { sources: self.sources.clone(), audience: Some(audience) }
    }
}

impl Knowledge {
    /// Sets the source of the audiences of lifeforms' jobs. Only the first call has an effect.
    pub fn guard_audiences(&self, audiences: std::sync::Arc<dyn Audiences>) {
        let _ = self.audiences.set(audiences);
    }

    /// Returns the audience of the job that makes a call; `None` for a caller that is no lifeform.
    pub(crate) async fn audience_of(&self, caller: &Caller) -> Option<Audience> {
        match self.audiences.get() {
            Some(audiences) => audiences.of(caller).await,
            None => None,
        }
    }

    /// Returns `true` if a lifeform may use a record where these people read. Records of a scope stay within the scope. The
    /// lifeform's own records are only for those who were in the conversation in which it made them; where a record does not
    /// say who that was, they are only for those whom the lifeform trusts.
    pub fn may_be_used(
        &self,
        record: &Record,
        me: &str,
        readers: &BTreeSet<String>,
        is_trusted: impl Fn(&str) -> bool,
    ) -> bool {
        let provenance = record.provenance.clone().unwrap_or_else(Provenance::unknown);
        let was_there = |person: &String| provenance.is_for(person, is_trusted(person));
        let own = record.scopes.iter().any(|scope| *me == **scope)
            && readers.iter().filter(|person| **person != *me && !person.starts_with("system:")).all(was_there);
        own || self.may_be_told(record, readers.iter().map(String::as_str).filter(|person| *me != **person))
    }

    /// Returns `true` if a record may be used where an audience reads; without an audience, always.
    pub(crate) fn is_for(&self, record: &Record, audience: Option<&Audience>) -> bool {
        audience.is_none_or(|audience| {
            let is_trusted = |person: &str| audience.trusted.contains(person);
            self.may_be_used(record, &audience.me, &audience.readers, is_trusted)
        })
    }
}
