//! Who sees which events: those who may read the journal by its route.
//!
//! | journal | seen by | route |
//! |---|---|---|
//! | of a lifeform: its trace, account, calls, mind, canvases, jobs and invocations | every principal with a token | `/v1/lifeforms/{id}/trace` |
//! | a job or an invocation of a person | that person, and operators | `/v1/jobs/{id}`, `/v1/invocations/{id}` |
//! | accounts, calls and minds that are no lifeform's | operators | `/v1/house/…` |

use std::collections::HashMap;
use std::sync::Arc;

use store::{Origin, Principal, Role, Stream};

use crate::api::App;

/// The maximum number of journals whose rights one reader remembers.
const KNOWN_MAX: usize = 4096;

/// What a journal belongs to.
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

    fn key(&self) -> String {
        match self {
            Self::Lifeform(id) => format!("lifeform:{id}"),
            Self::Job(id, _) => format!("job:{id}"),
            Self::Invocation(id, _) => format!("invocation:{id}"),
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
    pub(super) async fn may_see(&mut self, owner: &Owner) -> bool {
        let key = owner.key();
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let may = self.ask(owner).await;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, may);
        may
    }

    async fn ask(&self, owner: &Owner) -> bool {
        if let Some(lifeform) = owner.lifeform()
            && self.app.lifeforms.get(&lifeform.into()).await.is_ok()
        {
            return true;
        }
        if self.who.may(Role::Operator) {
            return true;
        }
        match owner {
            Owner::Lifeform(_) => false,
            Owner::Job(id, _) => self.app.fascicles.job_of(&self.who, &id.as_ref().into()).await.is_ok(),
            Owner::Invocation(id, _) => {
                let origin = Origin::new(self.who.clone(), store::Cause::default());
                self.app.neurons.invocation(&origin, id).await.is_ok()
            }
        }
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
