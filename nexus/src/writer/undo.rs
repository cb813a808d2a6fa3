//! Reverting changes: on request, and after a failed commit.

use kip::exec::{Change, Draft};
use kip::{ErrorKind, KipError};
use serde_json::json;
use store::principal::{Origin, Role};
use store::{Batch, StoreError};

use super::{InFlight, Reply, STEPS_BACK_MAX, Writer, read_journal};
use crate::journal::Written;
use crate::{commons, journal_stream};

impl Writer {
    /// Undoes an entry. Drains the batches in flight first, so that the journal contains every later entry.
    pub(super) async fn undo(&mut self, seq: u64, origin: Origin, reply: Reply) {
        self.drain_in_flight().await;
        if self.broken {
            return drop(reply.send(Err(StoreError::Closed)));
        }
        if self.seq.saturating_sub(seq) > STEPS_BACK_MAX {
            let error = KipError::new(
                ErrorKind::Execution,
                format!("entry {seq} lies more than {STEPS_BACK_MAX} entries back"),
            );
            return drop(reply.send(Ok(json!({"error": error.code("KIP_4002").to_json("")}))));
        }
        let mut entries =
            match read_journal(&self.place.store, &self.place.nexus, seq.saturating_sub(1), self.seq).await {
                Ok(entries) => entries.into_iter(),
                Err(failure) => return drop(reply.send(Err(failure))),
            };
        let refused = |error: KipError| json!({"error": error.to_json("")});
        let Some((_, written)) = entries.next().filter(|(no, _)| *no == seq) else {
            let error = KipError::new(ErrorKind::NotFound, format!("the journal has no entry {seq}"));
            return drop(reply.send(Ok(refused(error))));
        };
        let undone_command = written.command.clone();
        let later: Vec<(u64, Written)> = entries.collect();
        let now = self.now();
        let privileged = origin.principal.may(Role::Operator);
        let undone = written.inverse(seq, &later, self.mind.read()).and_then(|steps| {
            let mut draft = Draft::new(self.mind.write(), now, privileged);
            match steps.into_iter().try_for_each(|(el, record)| draft.restore(el, record)) {
                Ok(()) => Ok(draft.finish().0),
                Err(error) => {
                    draft.undo();
                    Err(error)
                }
            }
        });
        if let Err(fault) = self.mind.check() {
            if let Ok(changes) = undone {
                self.revert(changes);
            }
            self.give_up(fault.clone()).await;
            return drop(reply.send(Err(fault)));
        }
        // A sealed part that changed since cannot be restored, because it could no longer be opened.
        let seal = |change: &Change| commons::check_seal(change.before.as_ref(), change.after.as_ref());
        let undone = undone.and_then(|changes| match changes.iter().try_for_each(seal) {
            Err(error) if self.is_commons() => {
                self.revert(changes);
                Err(error)
            }
            _ => Ok(changes),
        });
        match undone {
            Ok(changes) => {
                let undo = Written { undoes: Some(seq), ..Written::of("", &serde_json::Map::new(), &changes) };
                let stream = journal_stream(&self.place.nexus);
                let mut batch = Batch::new(&origin);
                let notes = self.place.outbox.notes_of(&self.place.nexus, self.head, &changes, None);
                let has_notes = !notes.is_empty();
                notes.into_iter().for_each(|note| batch.push(note));
                let batch = self.batch(batch, &changes).append(stream, "undo", &undo);
                let answer = json!({"result": {"undone": seq, "command": undone_command, "elements": changes.len()}});
                self.submit(changes, batch, answer, reply, has_notes).await;
            }
            Err(error) => drop(reply.send(Ok(refused(error)))),
        }
    }

    /// Takes a snapshot of the last batch in flight before the next change, for readers that wait for that batch.
    pub(super) fn snapshot_before_write(&mut self) {
        if let Some(last) = self.flights.back_mut()
            && last.snapshot.is_none()
        {
            last.snapshot = Some(self.mind.clone());
        }
    }

    /// Reverts changes, the last one first.
    pub(super) fn revert(&mut self, changes: Vec<Change>) {
        for change in changes.into_iter().rev() {
            match change.before {
                Some(record) => self.mind.write().put(change.el, record),
                None => self.mind.write().unmake(change.el),
            }
        }
    }

    /// Handles an unreadable shelf: drains the commits in flight and has the nexus loaded again with a new shelf.
    pub(super) async fn give_up(&mut self, fault: StoreError) {
        tracing::warn!(nexus = %self.place.nexus, %fault, "a shelf cannot be read");
        self.drain_in_flight().await;
        self.broken = true;
        if let (Err(_), Some((shelves, open))) = (self.mind.check(), &self.place.shelves) {
            open.discard_unreadable(&shelves.file(&self.place.nexus));
        }
    }

    /// Rolls back after a failed batch. No later batch can have succeeded, because each expects a specific version of
    /// the head.
    pub(super) async fn roll_back(&mut self, failure: StoreError) {
        self.broken = matches!(failure, StoreError::Conflict { .. });
        let mut failed: Vec<InFlight> = self.flights.drain(..).collect();
        for flight in failed.iter_mut().skip(1).filter(|flight| !flight.changes.is_empty()) {
            let _ = (&mut flight.durable).await;
        }
        for flight in failed.into_iter().rev() {
            if !flight.changes.is_empty() {
                self.head -= 1;
            }
            self.revert(flight.changes);
            let _ = flight.reply.send(Err(failure.clone()));
        }
        if !self.waiting.is_empty() {
            self.publish(self.mind.clone());
        }
    }
}
