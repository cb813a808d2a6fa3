//! The capsules that are shipped with the daemon: a new nexus begins with them, and the commons of an earlier version
//! receives those that it lacks.

use kip::capsule::Header;
use kip::exec::{self, Draft};
use kip::{CAPSULES, Call, Options, bind_and};
use serde_json::Map;
use store::principal::Origin;
use store::{Batch, StoreError};
use tokio::sync::oneshot;

use super::cache::{Head, LoadedNexus};
use super::command::Command;
use super::commons::COMMONS;
use super::journal::Written;
use super::mind::Mind;
use super::writer::{self, Task};
use super::{Nexus, NexusError, NexusId, journal_stream};

/// The shared types, which only a new commons receives.
const KNOWLEDGE: (&str, &str) = ("knowledge", include_str!("../../config/capsules/knowledge.kip"));

/// Returns the capsules for a new nexus.
fn capsules_of(nexus: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    CAPSULES.into_iter().chain((nexus == COMMONS).then_some(KNOWLEDGE))
}

/// Returns the number of journal entries that the creation of a nexus writes.
pub(super) fn initial_entries(nexus: &str) -> usize {
    capsules_of(nexus).count()
}

impl Nexus {
    /// Initializes a new nexus with the shipped capsules in one commit, so it is created completely or not at all.
    pub(super) async fn initialize(&self, nexus: &NexusId, mind: &mut Mind) -> Result<u64, NexusError> {
        let now = self.store.clock().now().as_microsecond();
        let origin = Origin::system("birth of a nexus");
        let (mut all, mut entries) = (Vec::new(), Vec::new());
        for (name, text) in capsules_of(nexus) {
            let call = Call { command: text.to_owned(), parameters: Map::new() };
            let changes = bind_and(&call, |command| {
                let mut draft = Draft::new(mind.write(), now, true);
                exec::write(command, &mut draft, &Options::default())?;
                Ok(draft.finish().0)
            })
            .map_err(|error| NexusError::Capsule { name, reason: error.to_json(text).to_string() })?;
            entries.push(Written { capsule: Some(header_of(name, text)), ..Written::of(text, &Map::new(), &changes) });
            all.extend(changes);
        }
        // An element that several capsules changed is written once, in its final state.
        all.iter_mut().for_each(|change| change.after = mind.read().record(change.el));
        let batch = writer::batch_of(Batch::new(&origin), nexus, Head::of(mind), &all, 0);
        let batch = entries.iter().fold(batch, |batch, entry| batch.append(journal_stream(nexus), "capsule", entry));
        Ok(self.store.commit(batch).await?.versions[0])
    }
}

/// Returns the shipped capsules with definitions that an older commons lacks.
pub(super) fn missing_capsules(nexus: &NexusId, mind: &Mind) -> Vec<Command> {
    let mut missing_capsules = Vec::new();
    for (name, text) in capsules_of(nexus).filter(|_| &**nexus == COMMONS) {
        let (mut copy, call) = (mind.clone(), Call { command: text.to_owned(), parameters: Map::new() });
        let adds = bind_and(&call, |command| {
            let mut draft = Draft::new(copy.write(), 0, true);
            exec::write(command, &mut draft, &Options::default())?;
            Ok(draft.finish().0.iter().any(|change| change.before.is_none()))
        });
        if let Err(error) = &adds {
            tracing::error!(capsule = name, error = %error.to_json(text), "a shipped capsule does not go with this commons");
        }
        if adds.unwrap_or_default() {
            let capsule = Some(header_of(name, text));
            missing_capsules.push(Command { privileged: true, capsule, ..Command::of(call, kip::Dialect::default()) });
        }
    }
    missing_capsules
}

fn header_of(name: &str, text: &str) -> Header {
    Header {
        name: name.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        sha256: store::Hash::of(text.as_bytes()).hex(),
    }
}

impl LoadedNexus {
    /// Has the daemon write a shipped capsule.
    pub(super) async fn learn(&self, command: Command) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let origin = Origin::system("a newer capsule");
        let write = writer::Write { command, origin, commons: None, reply };
        self.writer.send(Task::Write(write)).await.map_err(|_| StoreError::Closed)?;
        let answer = answer.await.map_err(|_| StoreError::Closed)??;
        if let Some(error) = answer.get("error") {
            tracing::error!(%error, "shipped capsule refused");
        }
        Ok(())
    }
}
