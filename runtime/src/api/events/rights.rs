//! The rights to events: an event is seen by those who may read its journal by the route of that journal.
//!
//! | journal | seen by | route |
//! |---|---|---|
//! | of a lifeform: its trace, account, calls, mind, canvases, jobs and invocations | every principal with a token | `/v1/lifeforms/{id}/trace` |
//! | a job or an invocation of a person | that person, and operators | `/v1/jobs/{id}`, `/v1/invocations/{id}` |
//! | accounts, calls and minds that are no lifeform's | operators | `/v1/house/…` |

use std::collections::HashMap;
use std::sync::Arc;

use fascicles::FascicleError;
use neurons::NeuronError;
use serde::de::IgnoredAny;
use store::{Cause, Key, Kind, Origin, Principal, Role, StoreError, Stream};

use crate::api::App;

/// The maximum number of journals whose rights one reader remembers.
const KNOWN_MAX: usize = 4096;

/// The owner of a journal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    /// A lifeform.
    Lifeform(Arc<str>),
    /// A job; with the beginning of its name, which is its lifeform if it has one.
    Job(Arc<str>, Option<Arc<str>>),
    /// An invocation of a neuron, likewise.
    Invocation(Arc<str>, Option<Arc<str>>),
}

impl Owner {
    /// Returns the owner of a journal; `None` for one that has no events.
    pub(super) fn of(stream: &Stream) -> Option<Self> {
        let (kind, rest) = stream.split_once(':')?;
        // The name of a job of a lifeform starts with the lifeform.
        let prefix = || rest.split_once('.').map(|(lifeform, _)| Arc::from(lifeform));
        Some(match kind {
            "canvas" => Self::Lifeform(rest.split_once('/')?.0.into()),
            "trace" | "ledger" | "calls" | "nexus" => Self::Lifeform(rest.into()),
            "job" => Self::Job(rest.into(), prefix()),
            "invocation" => Self::Invocation(rest.into(), prefix()),
            _ => return None,
        })
    }

    /// Returns the lifeform, or what would be one.
    pub(super) fn lifeform(&self) -> Option<&str> {
        match self {
            Self::Lifeform(id) => Some(id),
            Self::Job(_, lifeform) | Self::Invocation(_, lifeform) => lifeform.as_deref(),
        }
    }
}

/// The rights of one reader. They are asked for once per journal, and once more after [`Rights::renew`].
pub(super) struct Rights {
    app: App,
    who: Principal,
    known: HashMap<String, bool>,
}

impl Rights {
    pub(super) fn of(app: App, who: Principal) -> Self {
        Self { app, who, known: HashMap::new() }
    }

    /// Takes over the present rights of the principal.
    pub(super) fn renew(&mut self, who: Principal) {
        self.who = who;
        self.known.clear();
    }

    /// Returns `true` if the reader may see the events of an owner.
    ///
    /// # Errors
    /// A store error: the rights are then unknown.
    pub(super) async fn may_see(&mut self, owner: &Owner) -> Result<bool, StoreError> {
        if let Some(lifeform) = owner.lifeform()
            && self.is_lifeform(lifeform).await?
        {
            return Ok(true);
        }
        if self.who.may(Role::Operator) {
            return Ok(true);
        }
        let key = match owner {
            Owner::Lifeform(_) => return Ok(false),
            Owner::Job(id, _) => format!("job:{id}"),
            Owner::Invocation(id, _) => format!("invocation:{id}"),
        };
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let may = match owner {
            Owner::Job(id, _) => match self.app.fascicles.job_of(&self.who, &id.as_ref().into()).await {
                Ok(_) => true,
                Err(FascicleError::Store(error)) => return Err(error),
                Err(_) => false,
            },
            Owner::Invocation(id, _) => {
                let origin = Origin::new(self.who.clone(), Cause::default());
                match self.app.neurons.invocation(&origin, id).await {
                    Ok(_) => true,
                    Err(NeuronError::Store(error)) => return Err(error),
                    Err(_) => false,
                }
            }
            Owner::Lifeform(_) => false,
        };
        self.know(key, may);
        Ok(may)
    }

    /// Returns `true` if a lifeform with this id lives or has lived here.
    async fn is_lifeform(&mut self, id: &str) -> Result<bool, StoreError> {
        let key = format!("lifeform:{id}");
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let found = self.app.store.document::<IgnoredAny>(&Key::new(Kind::Lifeform, id)).await?;
        let is_one = found.is_some();
        // One that does not live here may be born.
        if is_one {
            self.know(key, true);
        }
        Ok(is_one)
    }

    fn know(&mut self, key: String, may: bool) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, may);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_belongs_to_a_lifeform_or_to_a_job() {
        let of = |stream: &str| Owner::of(&stream.into());
        assert_eq!(of("canvas:lf_1/chat"), Some(Owner::Lifeform("lf_1".into())));
        assert_eq!(of("ledger:lf_1"), Some(Owner::Lifeform("lf_1".into())));
        assert_eq!(of("job:lf_1.night.x"), Some(Owner::Job("lf_1.night.x".into(), Some("lf_1".into()))));
        assert_eq!(of("job:job_7"), Some(Owner::Job("job_7".into(), None)));
        for none in ["tokens:x", "neuron:base", "canvas:odd", "odd"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
