//! A write command, run on the graphs that it writes to. It succeeds completely and returns its changes, or is
//! refused.

use std::cell::Cell;
use std::time::Duration;

use kip::capsule::Header;
use kip::exec::{self, Change, Draft};
use kip::graph::ElementId;
use kip::{Answer, Call, Dialect, ErrorKind, KipError, Limits, Options, bind_and};
use store::principal::Principal;
use store::secrets::{clean, redacted};
use store::{Batch, Op};

use serde_json::Map;

use super::commons::{Common, Overlay, warnings};
use super::journal::Written;
use super::mind::Mind;
use super::{NexusId, journal_stream};

/// The journal's text in place of a command that contained a secret.
const SECRET_COMMAND: &str = "// held a secret, which was left out";

/// A write command.
pub(super) struct Command {
    pub(super) call: Call,
    pub(super) dialect: Dialect,
    /// `true` if the command may write protected elements, as an operator's capsule may (R28).
    pub(super) privileged: bool,
    pub(super) capsule: Option<Header>,
    pub(super) right: WriteAuthority,
    /// Further operations for the same commit.
    pub(super) beside: Vec<Op>,
}

/// The authority in which a principal writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteAuthority {
    /// The principal's own rights: it changes elements that it owns.
    #[default]
    Own,
    /// The authority to record whether knowledge helped: it changes the counts of any record that the principal sees,
    /// and may do what [`Self::Attest`] may.
    Judge,
    /// The authority to seal secrets of a resource: it sets the members that describe the sealed part and its seal.
    Seal,
    /// The authority of a component that knows the conversation in which something was said: it sets the
    /// [`Provenance`](crate::Provenance) of what it writes.
    Attest,
    /// The authority of a lifeform's memory component, which manages the copies of its facts itself. The writer makes
    /// no [note](super::Outbox) of the facts that it removes from its mind.
    Memory,
}

/// The outcome of a command.
pub(super) enum RunOutcome {
    /// The changes and the answer.
    Done(Vec<Change>, Answer),
    /// The command would write to the commons, which the command did not borrow for writing; nothing was changed.
    WritesCommons,
}

/// The graphs to which a command may write.
pub(super) enum WriteTargets<'m> {
    /// The commons itself.
    Commons(&'m mut Mind),
    /// A mind with the commons.
    Over {
        own: &'m mut Mind,
        commons: &'m mut Mind,
        /// `true` if the command may write to the commons.
        both: bool,
    },
}

/// The longest time that the WHERE of a participant's write takes.
const SHARED_WRITE_MAX: Duration = Duration::from_millis(200);

/// Runs a write command. A refused command leaves the graphs unchanged.
///
/// # Errors
/// Any [`KipError`].
pub(super) fn run(
    write: &Command,
    targets: WriteTargets<'_>,
    by: &Principal,
    now: i64,
) -> Result<RunOutcome, KipError> {
    // While a command runs, the nexus takes no other one.
    let time = if by.is_bound() { SHARED_WRITE_MAX } else { Limits::default().time };
    let options =
        Options { dialect: write.dialect, limits: Limits { time, ..Limits::default() }, ..Options::default() };
    bind_and(&write.call, |command| {
        let settle =
            |mut draft: Draft<'_>, may: &dyn Fn(&Draft<'_>) -> bool| match exec::write(command, &mut draft, &options) {
                Err(error) => {
                    draft.undo();
                    Err(error)
                }
                Ok(_) if !may(&draft) => {
                    draft.undo();
                    Ok(RunOutcome::WritesCommons)
                }
                Ok(result) => {
                    let (changes, warnings) = draft.finish();
                    Ok(RunOutcome::Done(changes, Answer { result, warnings, ..Answer::default() }))
                }
            };
        match targets {
            WriteTargets::Commons(commons) => {
                let mut commons = Common::new(commons, by);
                settle(Draft::new(&mut commons, now, write.privileged), &|_| true)
            }
            WriteTargets::Over { own, commons, both } => {
                let refused = Cell::new(None);
                let mut overlay = Overlay::new(own, commons, by, &refused);
                let may = |draft: &Draft<'_>| both || !draft.touched().any(ElementId::is_abroad);
                let mut ran = settle(Draft::new(&mut overlay, now, write.privileged), &may);
                if let Some(reason) = refused.get() {
                    return Err(KipError::new(ErrorKind::Execution, reason).code("KIP_4003"));
                }
                if let Ok(RunOutcome::Done(changes, answer)) = &mut ran {
                    answer.warnings.extend(warnings(changes, commons.read()));
                }
                ran
            }
        }
    })
}

impl Command {
    /// Returns a command that a principal runs with its own rights.
    pub(super) fn of(call: Call, dialect: Dialect) -> Self {
        Self { call, dialect, privileged: false, capsule: None, right: WriteAuthority::Own, beside: Vec::new() }
    }

    /// Returns `true` if any part of the command contains a secret.
    pub(super) fn holds_a_secret(&self) -> bool {
        let mut parameters = serde_json::Value::Object(self.call.parameters.clone());
        redacted(&self.call.command).is_some() || !clean(&mut parameters).is_empty()
    }

    /// Adds the journal entry for the changes of a nexus to `batch`. Omits the command's text if it contained
    /// secrets.
    pub(super) fn entry(&self, batch: Batch, nexus: &NexusId, changes: &[Change], is_secret: bool) -> Batch {
        let (command, parameters) = match is_secret {
            true => (SECRET_COMMAND, &Map::new()),
            false => (self.call.command.as_str(), &self.call.parameters),
        };
        let written = Written { capsule: self.capsule.clone(), ..Written::of(command, parameters, changes) };
        let kind = if self.capsule.is_some() { "capsule" } else { "kml" };
        batch.append(journal_stream(nexus), kind, &written)
    }
}
