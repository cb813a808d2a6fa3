//! The latest deltas in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use json_patch::Patch;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Entry;

use super::{RING_BYTES_MAX, RING_MAX};

/// A journal entry of a canvas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delta {
    pub(crate) op: Value,
    pub(crate) patch: Patch,
    /// The inverse patch, for looking at earlier revisions.
    #[serde(default)]
    pub(crate) inverse: Patch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) op_id: Option<Arc<str>>,
    /// The beginning of the hash of the request under that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<Arc<str>>,
}

/// A delta as every subscriber gets it, made once.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The revision it makes.
    pub rev: u64,
    /// The JSON text.
    pub text: Arc<str>,
    /// The pointers it writes to.
    pub paths: Arc<[String]>,
}

/// The next frames of a subscriber.
#[derive(Debug)]
pub enum Frames {
    /// Deltas in order; none when there is nothing new.
    Deltas(Vec<Frame>),
    /// The subscriber asks for what this log has no more, or never had: it must start from a snapshot. Says why.
    Reset(&'static str),
}

/// The latest frames.
#[derive(Default)]
pub(crate) struct Ring {
    pub(super) frames: VecDeque<Frame>,
    pub(super) bytes: usize,
}

impl Ring {
    /// Adds the frames of another one, which follow.
    pub(crate) fn append(&mut self, other: Self) {
        other.frames.into_iter().for_each(|frame| self.push(frame));
    }

    pub(crate) fn push(&mut self, frame: Frame) {
        self.bytes += frame.text.len();
        self.frames.push_back(frame);
        while self.frames.len() > RING_MAX || (self.bytes > RING_BYTES_MAX && self.frames.len() > 1) {
            self.bytes -= self.frames.pop_front().map_or(0, |frame| frame.text.len());
        }
    }

    /// Lets go of the frames up to a revision.
    pub(crate) fn let_go(&mut self, upto: u64) {
        while let Some(gone) = self.frames.pop_front_if(|frame| frame.rev <= upto) {
            self.bytes -= gone.text.len();
        }
    }

    /// The frames after `after`, if all of them are here.
    pub(crate) fn after(&self, after: u64) -> Option<impl Iterator<Item = &Frame>> {
        let first = self.frames.front()?.rev;
        let skip = usize::try_from(after.checked_sub(first - 1)?).ok()?;
        Some(self.frames.iter().skip(skip))
    }
}

/// The delta as every subscriber gets it.
pub(crate) fn frame(entry: &Entry, delta: &Delta) -> Frame {
    let by = &*entry.by.0;
    let kind = by.split_once(':').map_or("system", |(kind, _)| kind);
    let mut shown = json!({
        "t": "delta",
        "rev": entry.seq,
        "prev": entry.seq - 1,
        "at": entry.at,
        "actor": {"kind": kind, "id": by},
        "kind": entry.kind,
        "cause": entry.cause,
        "patch": delta.patch,
    });
    if let Some(op_id) = &delta.op_id {
        shown["op_id"] = json!(op_id);
    }
    let paths = delta.patch.0.iter().map(|op| op.path().to_string()).collect();
    Frame { rev: entry.seq, text: shown.to_string().into(), paths }
}
