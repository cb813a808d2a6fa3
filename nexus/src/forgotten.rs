//! Notes of deleted elements that may have copies elsewhere. A note is a document that exists from the commit of the
//! deletion until the copies are removed, so a kill in between loses nothing.

use std::sync::{Arc, OnceLock};

use kip::datum::Datum;
use kip::exec::Change;
use kip::graph::{Concept, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Expect, Key, Kind, Op, json};
use tokio::sync::mpsc;

use super::{NexusId, Provenance};

/// The type of concepts that hold facts.
const FACT: &str = "Fact";

/// A fact of a mind that was removed or changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forgotten {
    /// The mind.
    pub nexus: NexusId,
    /// The attributes of the fact that identify the statement and its place before the change: statement, canvas, topic
    /// and message.
    pub attributes: Map<String, Value>,
    /// The metadata of the fact that names the author, before the change.
    pub metadata: Map<String, Value>,
}

/// The attributes by which copies are found. A fact without a statement has no copies.
const ATTRIBUTES: [&str; 5] = [STATEMENT, "canvas", "topic", "message", "also_in"];
const STATEMENT: &str = "statement";
/// The metadata key by which copies are found. A fact without an author has no copies.
const AUTHOR: &str = "author";

/// The outbox of deletion notes, stored as documents of [`Kind::Forgotten`], for the task that removes copies.
/// Without that task, the writers make no notes.
#[derive(Clone, Default)]
pub struct Outbox(Arc<OnceLock<mpsc::Sender<()>>>);

impl Outbox {
    /// Enables notes. Returns the receiver of signals about new notes, which ends with the last nexus handle; `None`
    /// if it was taken already. Older notes may exist.
    pub fn listen(&self) -> Option<mpsc::Receiver<()>> {
        let (sender, receiver) = mpsc::channel(1);
        self.0.set(sender).is_ok().then_some(receiver)
    }

    /// Returns the operation that stores a note under `name`, to be committed with the deletion.
    pub fn note(&self, name: String, body: &impl Serialize) -> Option<Op> {
        self.0.get()?;
        Some(Op::Put { key: Key::new(Kind::Forgotten, name), expect: Expect::Any, body: json(body) })
    }

    /// Signals that a note is durable.
    pub fn signal(&self) {
        if let Some(listener) = self.0.get() {
            // A signal that is already waiting is sufficient.
            let _ = listener.try_send(());
        }
    }

    /// Returns notes of the facts that changes of a mind remove or change, only those of the author `of` if there is
    /// one. `head` is the version of the mind before the changes.
    pub(super) fn notes_of(&self, nexus: &NexusId, head: u64, changes: &[Change], of: Option<&str>) -> Vec<Op> {
        let fact = |change: &Change| {
            let Some(Record::Concept(before)) = &change.before else { return None };
            let after = match &change.after {
                Some(Record::Concept(after)) => Some(after),
                _ => None,
            };
            let is_gone = holds(before) && !after.is_some_and(|after| still_says(before, after));
            // A fact with a provenance was written by a lifeform's own command. Its author may be forged.
            let may_have_copies = before.attributes.named(STATEMENT).is_some()
                && before.metadata.named(AUTHOR).is_some_and(|author| of.is_none_or(|of| author.as_str() == Some(of)))
                && Provenance::of(&before.metadata).is_none();
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
