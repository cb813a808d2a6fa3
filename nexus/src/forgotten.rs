//! Notes of deleted elements that may have copies elsewhere: documents that exist from the commit that deletes until
//! the copies are removed, so that a kill in between loses nothing.

use std::sync::{Arc, OnceLock};

use kip::datum::Datum;
use kip::exec::Change;
use kip::graph::{Concept, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Expect, Key, Kind, Op, json};
use tokio::sync::mpsc;

use super::NexusId;

/// The type of the concepts that facts are.
const FACT: &str = "Fact";

/// A fact of a mind that is gone, or says something else now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forgotten {
    /// The mind.
    pub nexus: NexusId,
    /// The attributes of its concept that say what was stated, and where: statement, canvas, topic and message, as they
    /// were.
    pub attributes: Map<String, Value>,
    /// The metadata of its concept that says who stated it, as it was.
    pub metadata: Map<String, Value>,
}

/// The attributes by which copies are found. A fact without a statement has none.
const ATTRIBUTES: [&str; 5] = [STATEMENT, "canvas", "topic", "message", "also_in"];
const STATEMENT: &str = "statement";
/// The metadata by which copies are found. A fact without an author has none.
const AUTHOR: &str = "author";

/// Notes of what was deleted, as documents of [`Kind::Forgotten`], for the one task that removes copies. Without that
/// task no notes are made.
#[derive(Clone, Default)]
pub struct Outbox(Arc<OnceLock<mpsc::Sender<()>>>);

impl Outbox {
    /// Begins to make notes. Returns the receiver of signals that there are new ones, which ends with the last nexus;
    /// `None` if it was taken already. There may be notes from before.
    pub fn listen(&self) -> Option<mpsc::Receiver<()>> {
        let (sender, receiver) = mpsc::channel(1);
        self.0.set(sender).is_ok().then_some(receiver)
    }

    /// Returns the operation that makes a note under `name`, to be committed with the deletion.
    pub fn note(&self, name: String, body: &impl Serialize) -> Option<Op> {
        self.0.get()?;
        Some(Op::Put { key: Key::new(Kind::Forgotten, name), expect: Expect::Any, body: json(body) })
    }

    /// Signals that a note is durable.
    pub fn signal(&self) {
        if let Some(listener) = self.0.get() {
            // One signal that waits says the same.
            let _ = listener.try_send(());
        }
    }

    /// Returns notes of the facts that changes of a mind remove or change. `head` is the version of the mind before
    /// them.
    pub(super) fn notes_of(&self, nexus: &NexusId, head: u64, changes: &[Change]) -> Vec<Op> {
        let fact = |change: &Change| {
            let Some(Record::Concept(before)) = &change.before else { return None };
            let after = match &change.after {
                Some(Record::Concept(after)) => Some(after),
                _ => None,
            };
            let is_gone = holds(before) && !after.is_some_and(|after| still_says(before, after));
            let may_have_copies =
                before.attributes.named(STATEMENT).is_some() && before.metadata.named(AUTHOR).is_some();
            (before.kind.as_str() == FACT && is_gone && may_have_copies).then(|| {
                let (mut attributes, mut metadata) = (before.attributes.to_json(), before.metadata.to_json());
                attributes.retain(|name, _| ATTRIBUTES.contains(&name.as_str()));
                metadata.retain(|name, _| name == AUTHOR);
                Forgotten { nexus: nexus.clone(), attributes, metadata }
            })
        };
        let note = |change: &Change| self.note(format!("fact/{nexus}/{head}/{}", change.el.0), &fact(change)?);
        if self.0.get().is_some() { changes.iter().filter_map(note).collect() } else { Vec::new() }
    }
}

fn holds(fact: &Concept) -> bool {
    fact.metadata.named("status").and_then(Datum::as_str).is_none_or(|status| status == "active")
}

fn still_says(before: &Concept, after: &Concept) -> bool {
    let statement = |concept: &Concept| concept.attributes.named(STATEMENT).cloned();
    statement(before) == statement(after) && holds(after)
}
