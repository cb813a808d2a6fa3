//! The cache of the latest deltas.

use std::collections::VecDeque;
use std::sync::Arc;

use json_patch::Patch;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Entry;

use super::{RING_BYTES_MAX, RING_MAX};

/// The data of a journal entry of a canvas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delta {
    pub(crate) op: Value,
    pub(crate) patch: Patch,
    /// The inverse patch, for restoring earlier revisions.
    #[serde(default)]
    pub(crate) inverse: Patch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) op_id: Option<Arc<str>>,
    /// The beginning of the hash of the request with the idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<Arc<str>>,
}

/// A delta in the form that all subscribers receive. It is encoded once.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The revision of the delta.
    pub rev: u64,
    /// The JSON text.
    pub text: Arc<str>,
    /// The pointers that the delta changes.
    pub paths: Arc<[String]>,
}

/// The next frames of a subscriber.
#[derive(Debug)]
pub enum Frames {
    /// Deltas in order; empty if there are no new ones.
    Deltas(Vec<Frame>),
    /// The log does not contain the requested revision, so the subscriber must start from a snapshot. Contains the
    /// reason.
    Reset(&'static str),
}

/// The latest frames.
#[derive(Default)]
pub(crate) struct Ring {
    pub(super) frames: VecDeque<Frame>,
    pub(super) bytes: usize,
}

impl Ring {
    /// Appends the frames of another ring.
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

    /// Removes the frames up to a revision.
    pub(crate) fn trim(&mut self, upto: u64) {
        while let Some(gone) = self.frames.pop_front_if(|frame| frame.rev <= upto) {
            self.bytes -= gone.text.len();
        }
    }

    /// Returns the frames after revision `after`, if all of them are in memory.
    pub(crate) fn after(&self, after: u64) -> Option<impl Iterator<Item = &Frame>> {
        let first = self.frames.front()?.rev;
        let skip = usize::try_from(after.checked_sub(first - 1)?).ok()?;
        Some(self.frames.iter().skip(skip))
    }
}

/// Returns the delta in the form that all subscribers receive.
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
