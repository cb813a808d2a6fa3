//! Facts that were taken out of a mind, or that hold no more: whoever keeps copies of them hears of it.

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
    /// Its metadata, as they were.
    pub metadata: Map<String, Value>,
}

/// Where facts that are gone are told to; nowhere until somebody listens.
#[derive(Clone, Default)]
pub(super) struct Hearer(Arc<OnceLock<mpsc::UnboundedSender<Forgotten>>>);

impl Hearer {
    /// Begins to listen; `None` if somebody does already.
    pub(super) fn listen(&self) -> Option<mpsc::UnboundedReceiver<Forgotten>> {
        let (told, heard) = mpsc::unbounded_channel();
        self.0.set(told).is_ok().then_some(heard)
    }

    /// Tells of the facts that durable changes of a mind removed or changed, made by others than its lifeform.
    pub(super) fn tell(&self, nexus: &NexusId, changes: &[Change]) {
        let Some(hearer) = self.0.get() else { return };
        for change in changes {
            let Some(Record::Concept(before)) = &change.before else { continue };
            let after = match &change.after {
                Some(Record::Concept(after)) => Some(after),
                _ => None,
            };
            if before.kind.as_str() == FACT && holds(before) && !after.is_some_and(|after| still_says(before, after)) {
                let (attributes, metadata) = (before.attributes.to_json(), before.metadata.to_json());
                // The listener ends with the daemon.
                let _ = hearer.send(Forgotten { nexus: nexus.clone(), attributes, metadata });
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
