//! A command that writes, run on the graphs it writes to: refused whole, or done, with what it changed.

use std::cell::Cell;

use kip::capsule::Header;
use kip::exec::{self, Change, Draft};
use kip::graph::El;
use kip::{Answer, Call, Dialect, ErrorKind, KipError, Options, bind_and};
use store::principal::Principal;
use store::secrets::{clean, redacted};
use store::{Batch, Op};

use serde_json::Map;

use super::NexusId;
use super::commons::{Common, Overlay, warnings};
use super::journal::Written;
use super::mind::Mind;

/// The journal's text of a command that held a secret.
const SECRET_COMMAND: &str = "// held a secret, which was left out";

/// A command that writes.
pub(super) struct Command {
    pub(super) call: Call,
    pub(super) dialect: Dialect,
    /// An operator's capsule may write what is protected (R28).
    pub(super) privileged: bool,
    pub(super) capsule: Option<Header>,
    pub(super) right: Right,
    /// Further operations of the same commit.
    pub(super) beside: Vec<Op>,
}

/// The right in which a principal writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Right {
    /// The principal's own right: it changes what it owns.
    #[default]
    Own,
    /// As one who says whether a piece of knowledge helped: what counts that, of whatever he sees.
    Judge,
    /// As one who seals what is secret of a resource: what tells that something is, and under which seal.
    Seal,
    /// As a lifeform's memory, which keeps the copies of its facts itself: no [note](super::Outbox) is made of
    /// what it takes out of its mind.
    Memory,
}

/// The outcome of a command.
pub(super) enum Ran {
    /// The changes and the answer.
    Done(Vec<Change>, Answer),
    /// The command would write in the commons, which is not open for writing; nothing is changed.
    WritesCommons,
}

/// The graphs that a command runs on.
pub(super) enum Hands<'m> {
    /// The commons themselves.
    Commons(&'m mut Mind),
    /// A mind over the commons.
    Over {
        own: &'m mut Mind,
        commons: &'m mut Mind,
        /// `true` if the commons may be written.
        both: bool,
    },
}

/// Runs a command that writes. What is refused leaves the graphs as they were.
///
/// # Errors
/// Any [`KipError`].
pub(super) fn run(write: &Command, hands: Hands<'_>, by: &Principal, now: i64) -> Result<Ran, KipError> {
    let options = Options { dialect: write.dialect, ..Options::default() };
    bind_and(&write.call, |command| {
        let settle =
            |mut draft: Draft<'_>, may: &dyn Fn(&Draft<'_>) -> bool| match exec::write(command, &mut draft, &options) {
                Err(error) => {
                    draft.undo();
                    Err(error)
                }
                Ok(_) if !may(&draft) => {
                    draft.undo();
                    Ok(Ran::WritesCommons)
                }
                Ok(result) => {
                    let (changes, warnings) = draft.finish();
                    Ok(Ran::Done(changes, Answer { result, warnings, ..Answer::default() }))
                }
            };
        match hands {
            Hands::Commons(commons) => {
                let mut commons = Common::new(commons, by);
                settle(Draft::new(&mut commons, now, write.privileged), &|_| true)
            }
            Hands::Over { own, commons, both } => {
                let refused = Cell::new(None);
                let mut overlay = Overlay::new(own, commons, by, &refused);
                let may = |draft: &Draft<'_>| both || !draft.touched().any(El::is_abroad);
                let mut ran = settle(Draft::new(&mut overlay, now, write.privileged), &may);
                if let Some(reason) = refused.get() {
                    return Err(KipError::new(ErrorKind::Execution, reason).code("KIP_4003"));
                }
                if let Ok(Ran::Done(changes, answer)) = &mut ran {
                    answer.warnings.extend(warnings(changes, commons.read()));
                }
                ran
            }
        }
    })
}

impl Command {
    /// Makes a command that a principal runs with its own right.
    pub(super) fn of(call: Call, dialect: Dialect) -> Self {
        Self { call, dialect, privileged: false, capsule: None, right: Right::Own, beside: Vec::new() }
    }

    /// Returns `true` if the command holds a secret anywhere.
    pub(super) fn holds_a_secret(&self) -> bool {
        let mut parameters = serde_json::Value::Object(self.call.parameters.clone());
        redacted(&self.call.command).is_some() || !clean(&mut parameters).is_empty()
    }

    /// Adds the journal entry of the changes of a nexus to `batch`; without the command's text if it held secrets.
    pub(super) fn entry(&self, batch: Batch, nexus: &NexusId, changes: &[Change], is_secret: bool) -> Batch {
        let (command, parameters) = match is_secret {
            true => (SECRET_COMMAND, &Map::new()),
            false => (self.call.command.as_str(), &self.call.parameters),
        };
        let written = Written { capsule: self.capsule.clone(), ..Written::of(command, parameters, changes) };
        let kind = if self.capsule.is_some() { "capsule" } else { "kml" };
        batch.append(format!("nexus:{nexus}"), kind, &written)
    }
}
