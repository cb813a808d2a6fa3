//! A command that writes, run on the graphs it writes to: refused whole, or done, with what it changed.

use std::cell::Cell;

use kip::capsule::Header;
use kip::exec::{self, Change, Draft};
use kip::graph::El;
use kip::{Answer, Call, Dialect, ErrorKind, KipError, Options, bind_and};

use serde_json::Map;

use super::NexusId;
use super::commons::{Common, Overlay, warnings};
use super::journal::Written;
use super::mind::Mind;
use crate::principal::Principal;
use crate::secrets::{clean, redacted};
use crate::store::{Batch, Op};

/// What stands in the journal for a command in which there was a secret.
const SECRET_COMMAND: &str = "// held a secret, which was left out";

/// A command that writes.
pub(super) struct Command {
    pub(super) call: Call,
    pub(super) dialect: Dialect,
    /// An operator's capsule may write what is protected (R28).
    pub(super) privileged: bool,
    pub(super) capsule: Option<Header>,
    pub(super) right: Right,
    /// What is committed together with it.
    pub(super) beside: Vec<Op>,
}

/// The right in which a principal writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Right {
    /// Its own: it changes what is its own.
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

/// What running a command came to.
pub(super) enum Ran {
    /// What changed, and the answer.
    Done(Vec<Change>, Answer),
    /// It would write in the commons, which is not in hand; nothing is changed.
    WritesCommons,
}

/// Whose graphs a command is run on.
pub(super) enum Hands<'m> {
    /// The commons themselves.
    Commons(&'m mut Mind),
    /// A mind over the commons.
    Over {
        own: &'m mut Mind,
        commons: &'m mut Mind,
        /// Whether the commons may be written.
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
    /// A command of somebody in his own right.
    pub(super) fn of(call: Call, dialect: Dialect) -> Self {
        Self { call, dialect, privileged: false, capsule: None, right: Right::Own, beside: Vec::new() }
    }

    /// Whether there is a secret in what was said, wherever it was to go.
    pub(super) fn holds_a_secret(&self) -> bool {
        let mut parameters = serde_json::Value::Object(self.call.parameters.clone());
        redacted(&self.call.command).is_some() || !clean(&mut parameters).is_empty()
    }

    /// `batch` with the journal entry of what it did to a nexus; where it held secrets, only what is left of them is told.
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
