//! Dry runs, undo, and steps back to earlier states.

use std::sync::Arc;

use kip::{Answer, Call, ErrorKind, KipError, envelope};
use serde_json::{Value, json};
use store::principal::Origin;

use super::command::{Command, RunOutcome, WriteAuthority, WriteTargets, run};
use super::mind::Mind;
use super::provenance::check_provenance;
use super::view::{may_share, may_write};
use super::writer::{STEPS_BACK_MAX, Snapshot, Task};
use super::{Nexus, NexusError, NexusId, commons, journal, journal_stream, redact_messages, shipped, writer};

/// The number of journal entries that a search for those of a job reads at once.
const ENTRIES_AT_ONCE: usize = 1_000;
/// The maximum number of entries of a job that are undone together.
const UNDONE_MAX: usize = 500;

/// Returns `true` for the beginning of the ids of the jobs of a night: `{lifeform}.night.{date}`.
fn is_night(job: &str) -> bool {
    let date = job.split_once(".night.").map_or("", |(_, date)| date);
    date.len() == "2026-11-24".len() && date.chars().all(|c| c.is_ascii_digit() || c == '-')
}

/// Returns `true` for the end of the id of a job of a night: the name of a task, with a number if it runs several times. A topic may
/// be named like a night, but the jobs of a talk have other ends.
fn is_task(end: &str) -> bool {
    let name = end.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    name.len() > 1 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

impl Nexus {
    /// Returns the answer that [`Self::write_with`] would return; nothing is written.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn rehearse(
        &self,
        nexus: &NexusId,
        call: Call,
        origin: &Origin,
        right: WriteAuthority,
    ) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) && !may_share(&origin.principal, nexus) {
            return Ok(json!({"error": writer::no_right().to_json(&call.command)}));
        }
        let command = Command { right, ..Command::of(call, kip::Dialect::default()) };
        self.answer_tried(nexus, &command, origin).await
    }

    pub(super) async fn answer_tried(
        &self,
        nexus: &NexusId,
        command: &Command,
        origin: &Origin,
    ) -> Result<Value, NexusError> {
        let tried = self.try_out(nexus, command, origin).await?;
        let tried = tried.map(|tried| Answer { result: tried.receipt, warnings: tried.warnings, ..Answer::default() });
        Ok(redact_messages(envelope(tried, &command.call.command)))
    }

    /// Reverts journal entry `seq`, unless a later entry depends on it.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn undo(&self, nexus: &NexusId, seq: u64, origin: &Origin) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) {
            return Ok(json!({"error": writer::no_right().to_json("")}));
        }
        if seq <= shipped::initial_entries(nexus) as u64 {
            let error = KipError::new(ErrorKind::Immutable, format!("entry {seq} is the birth of this mind"));
            return Ok(json!({"error": error.to_json("")}));
        }
        self.hand_over(nexus, |reply| Task::Undo { seq, origin: origin.clone(), reply }).await
    }

    /// Reverts the journal entries that a job caused, newest first. The id `{lifeform}.night.{date}` means all jobs of that night. An
    /// entry on which a later one depends stays. Only the entries that a single undo would look back to are searched.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn undo_job(&self, nexus: &NexusId, job: &str, origin: &Origin) -> Result<Value, NexusError> {
        if !may_write(&origin.principal, nexus) {
            return Ok(json!({"error": writer::no_right().to_json("")}));
        }
        let (whole, begin) = (format!("job:{job}"), is_night(job).then(|| format!("job:{job}.")));
        let is_of = |cause: &Arc<str>| {
            // A step of a job is named after a slash.
            let cause = cause.split('/').next().unwrap_or_default();
            let rest = begin.as_ref().and_then(|begin| cause.strip_prefix(&**begin));
            *cause == *whole || rest.is_some_and(is_task)
        };
        let head = self.snapshot(nexus).await?.seq;
        let (mut after, mut seqs) = (head.saturating_sub(STEPS_BACK_MAX), Vec::new());
        loop {
            let entries = self.store.entries(&journal_stream(nexus), after, ENTRIES_AT_ONCE).await?;
            let Some(last) = entries.last() else { break };
            after = last.seq;
            seqs.extend(entries.iter().filter(|entry| entry.cause.0.iter().any(is_of)).map(|entry| entry.seq));
        }
        if seqs.is_empty() {
            let error = KipError::new(ErrorKind::NotFound, format!("no entry was caused by the job {job}"));
            return Ok(json!({"error": error.to_json("")}));
        }
        if seqs.len() > UNDONE_MAX {
            let why = format!("the job {job} caused {} entries; at most {UNDONE_MAX} are undone together", seqs.len());
            return Ok(json!({"error": KipError::new(ErrorKind::Parameter, why).to_json("")}));
        }
        let (mut undone, mut refused) = (Vec::new(), Vec::new());
        for seq in seqs.into_iter().rev() {
            let answer = self.undo(nexus, seq, origin).await?;
            match answer.get("error") {
                None => undone.push(seq),
                Some(error) => refused.push(json!({"seq": seq, "error": error})),
            }
        }
        Ok(json!({"result": {"undone": undone, "refused": refused}}))
    }

    /// Runs a command on copies of the graphs.
    pub(super) async fn try_out(
        &self,
        nexus: &NexusId,
        command: &Command,
        origin: &Origin,
    ) -> Result<Result<Tried, KipError>, NexusError> {
        let loaded = self.wake(nexus).await?;
        let (own, commons) = self.both(nexus, &loaded).await?;
        let (mut own, mut commons) = (own.mind.clone(), commons.map(|commons| commons.mind.clone()));
        let now = self.store.clock().now().as_microsecond();
        let large = own.is_large() || commons.as_ref().is_some_and(Mind::is_large);
        let ids = commons::ids(&own, commons.as_ref());
        let tried = crate::blocking::block_in_place_if(large, || {
            let targets = match commons.as_mut() {
                Some(commons) => WriteTargets::Over { own: &mut own, commons, both: true },
                None => WriteTargets::Commons(&mut own),
            };
            match run(command, targets, &origin.principal, now)? {
                RunOutcome::WritesCommons => unreachable!("the copy of the commons may be written"),
                RunOutcome::Done(changes, answer) => {
                    let diff = journal::diff(&changes, &ids);
                    let (by, right) = (&origin.principal, command.right);
                    let (mut ours, mut shared) = match commons {
                        Some(_) => commons::split(changes),
                        // Only the commons itself has no commons beside it.
                        None => (Vec::new(), changes),
                    };
                    check_provenance(&mut own, &mut ours, by, right)?;
                    let written = commons.as_mut().unwrap_or(&mut own);
                    let mut warnings = answer.warnings;
                    if !shared.is_empty() {
                        commons::check_rights(written.read(), &shared, by, right)?;
                        check_provenance(written, &mut shared, by, right)?;
                        warnings.extend(commons::clean(written, &mut shared, self.secrets)?);
                    }
                    Ok(Tried { receipt: answer.result, diff, warnings })
                }
            }
        });
        let checked = own.check().and_then(|()| commons.as_ref().map_or(Ok(()), Mind::check));
        checked.inspect_err(|_| self.evict_unreadable(nexus))?;
        Ok(tried)
    }

    /// Returns a snapshot of the state after entry `seq`.
    pub(super) async fn step_back(
        &self,
        nexus: &NexusId,
        snapshot: &Snapshot,
        seq: u64,
    ) -> Result<Result<Snapshot, KipError>, NexusError> {
        let wrong = |kind, what: String| Ok(Err(KipError::new(kind, what)));
        if seq > snapshot.seq {
            return wrong(ErrorKind::NotFound, format!("the journal ends with entry {}", snapshot.seq));
        }
        if snapshot.seq - seq > STEPS_BACK_MAX {
            return wrong(ErrorKind::Execution, format!("entry {seq} lies more than {STEPS_BACK_MAX} entries back"));
        }
        let later = writer::read_journal(&self.store, nexus, seq, snapshot.seq).await?;
        let mind = crate::blocking::block_in_place_if(snapshot.mind.is_large(), || {
            let mut mind = snapshot.mind.clone();
            later.iter().rev().for_each(|(_, written)| written.step_back(mind.write()));
            mind
        });
        Ok(Ok(Snapshot { mind, seq }))
    }
}

/// The outcome of a dry run.
pub(super) struct Tried {
    pub(super) receipt: Value,
    pub(super) diff: Value,
    pub(super) warnings: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_is_told_from_a_talk_of_its_name() {
        assert!(is_night("lf_1.night.2026-11-24"));
        for job in ["lf_1", "lf_1.night", "lf_1.night.2026-11-2", "lf_1.night.2026-11-24.expire", "lf_1.system.x"] {
            assert!(!is_night(job), "{job}");
        }
        assert!(["expire", "read_statements", "read_statements_2"].into_iter().all(is_task));
        assert!(!["r25", "expire.r3", "", "R"].into_iter().any(is_task));
    }
}
