//! Facts that were deleted, changed or retracted in a mind, reported to the keeper of their copies.

use std::sync::{Arc, OnceLock};

use kip::datum::Datum;
use kip::exec::Change;
use kip::graph::{Concept, Record};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::NexusId;

/// The type of the concepts that facts are.
const FACT: &str = "Fact";

/// A fact of a mind that is gone, or says something else now.
#[derive(Clone, Debug)]
pub struct Forgotten {
    /// The mind.
    pub nexus: NexusId,
    /// The attributes of its concept, as they were.
    pub attributes: Map<String, Value>,
    /// The metadata of its concept, as they were.
    pub metadata: Map<String, Value>,
}

/// The channel that carries forgotten facts; without a listener they are dropped.
#[derive(Clone, Default)]
pub(super) struct Forgetting(Arc<OnceLock<mpsc::UnboundedSender<Forgotten>>>);

impl Forgetting {
    /// Returns the receiver of forgotten facts. `None` if it was taken already.
    pub(super) fn listen(&self) -> Option<mpsc::UnboundedReceiver<Forgotten>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.set(sender).is_ok().then_some(receiver)
    }

    /// Reports the facts that durable changes of a mind removed or changed, made by others than its lifeform.
    pub(super) fn report(&self, nexus: &NexusId, changes: &[Change]) {
        let Some(listener) = self.0.get() else { return };
        for change in changes {
            let Some(Record::Concept(before)) = &change.before else { continue };
            let after = match &change.after {
                Some(Record::Concept(after)) => Some(after),
                _ => None,
            };
            if before.kind.as_str() == FACT && holds(before) && !after.is_some_and(|after| still_says(before, after)) {
                let (attributes, metadata) = (before.attributes.to_json(), before.metadata.to_json());
                // The listener ends with the daemon.
                let _ = listener.send(Forgotten { nexus: nexus.clone(), attributes, metadata });
            }
        }
    }
}

fn holds(fact: &Concept) -> bool {
    fact.metadata.named("status").and_then(Datum::as_str).is_none_or(|status| status == "active")
}

fn still_says(before: &Concept, after: &Concept) -> bool {
    let statement = |concept: &Concept| concept.attributes.named("statement").cloned();
    statement(before) == statement(after) && holds(after)
}
