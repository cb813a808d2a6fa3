//! A write that changes a nexus and the commons together.

use kip::{KipError, envelope};
use serde_json::json;
use store::{Batch, Receipt, StoreError};

use super::{Loan, Returned, Write, Writer, batch_of, is_note};
use crate::blocking::block_in_place_if;
use crate::cache::{Head, LoadedNexus};
use crate::command::{RunOutcome, WriteTargets, run};
use crate::commons::{self, COMMONS};
use crate::provenance::check_provenance;

impl Writer {
    /// Runs a command that writes to this nexus and to the commons, in one commit with both graphs.
    pub(super) async fn write_both(&mut self, write: Write, commons: &LoadedNexus) {
        self.drain_in_flight().await;
        if self.broken {
            return drop(write.reply.send(Err(StoreError::Closed)));
        }
        let Loan { mind: mut theirs, head, shared: their_shared, back } = match commons.borrow().await {
            Ok(loan) => loan,
            Err(failure) => return drop(write.reply.send(Err(failure))),
        };
        let (before, theirs_before) = (self.mind.clone(), theirs.clone());
        let now = self.now();
        let large = self.mind.is_large() || theirs.is_large();
        let ran: Result<_, KipError> = block_in_place_if(large, || {
            let targets = WriteTargets::Over { own: &mut self.mind, commons: &mut theirs, both: true };
            match run(&write.command, targets, &write.origin.principal, now)? {
                RunOutcome::WritesCommons => unreachable!("the commons is in hand"),
                RunOutcome::Done(changes, answer) => {
                    let (mut own, mut shared) = commons::split(changes);
                    let (by, right) = (&write.origin.principal, write.command.right);
                    commons::check_rights(theirs.read(), &shared, by, right)?;
                    check_provenance(&mut theirs, &mut shared, by, right)?;
                    check_provenance(&mut self.mind, &mut own, by, right)?;
                    let warnings = commons::clean(&mut theirs, &mut shared, self.place.secrets)?;
                    Ok((own, shared, answer, warnings))
                }
            }
        });
        if let Err(fault) = self.mind.check().and_then(|()| theirs.check()) {
            self.mind = before;
            self.give_up(fault.clone()).await;
            // The commons is not returned to its writer and is therefore loaded again.
            return drop(write.reply.send(Err(fault)));
        }
        let (own, shared, mut answer, warnings) = match ran {
            Ok(done) => done,
            Err(error) => {
                self.mind = before;
                drop(back.send(Returned { mind: theirs_before, seq: None }));
                return drop(write.reply.send(Ok(json!({"error": error.to_json(&write.command.call.command)}))));
            }
        };
        let is_secret = !shared.is_empty() && (!warnings.is_empty() || write.command.holds_a_secret());
        answer.warnings.extend(warnings);
        let commons = COMMONS.into();
        let mut batch = Batch::new(&write.origin);
        let notes = self.notes(&write, &own);
        let has_notes = !notes.is_empty() || write.command.beside.iter().any(is_note);
        let beside = write.command.beside.len() + notes.len();
        write.command.beside.iter().cloned().chain(notes).for_each(|op| batch.push(op));
        let (mut batch, versions) = commons::versions_of(batch, &shared);
        let before_parts = beside + versions;
        for (nexus, mind, changes, head) in
            [(&self.place.nexus, &self.mind, &own, self.head), (&commons, &theirs, &shared, head)]
        {
            if !changes.is_empty() {
                batch = batch_of(batch, nexus, Head::of(mind), changes, head);
                batch = write.command.entry(batch, nexus, changes, is_secret);
            }
        }
        let done = match own.is_empty() && shared.is_empty() {
            true => Ok(Receipt::default()),
            false => self.place.store.commit(batch).await,
        };
        match done {
            Ok(receipt) => {
                // Each part consists of a head, its elements and an entry.
                let mut entries =
                    receipt.versions.get(before_parts..).unwrap_or_default().chunks(3).map(|part| part[2]);
                if !own.is_empty() {
                    self.head += 1;
                    self.seq = entries.next().unwrap_or(self.seq);
                }
                let their_seq = entries.next();
                let seq_counter = self.place.seq_counter.clone();
                seq_counter.publish(|| {
                    self.publish(self.mind.clone());
                    if let Some(seq) = their_seq {
                        their_shared.publish(theirs.clone(), seq);
                    }
                });
                drop(back.send(Returned { mind: theirs, seq: their_seq }));
                if has_notes {
                    self.place.outbox.signal();
                }
                drop(write.reply.send(Ok(envelope(Ok(answer), &write.command.call.command))));
            }
            Err(failure) => {
                self.mind = before;
                self.broken = matches!(failure, StoreError::Conflict { .. });
                // In a conflict, either graph may be outdated, so both are loaded again.
                if !self.broken {
                    drop(back.send(Returned { mind: theirs_before, seq: None }));
                }
                drop(write.reply.send(Err(failure)));
            }
        }
    }
}
