//! The record of an invocation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Key, Kind as Document, PrincipalId, Timestamp};
use utoipa::ToSchema;

use crate::continuation::Continuation;
use crate::invocation::Answer;
use crate::llm::Usage;
use crate::spec::NeuronId;

/// The status of an invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvocationStatus {
    /// The invocation is running.
    #[default]
    Running,
    /// The invocation waits for the client's tools.
    ToolCallRequired,
    /// The invocation has completed with an output.
    Completed,
    /// The invocation has failed.
    Failed,
    /// The invocation was cancelled, or its caller disconnected.
    Cancelled,
}

/// The record of an invocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invocation {
    /// The id of the invocation.
    pub id: Arc<str>,
    /// The id of the neuron.
    pub neuron: NeuronId,
    /// The caller.
    pub principal: PrincipalId,
    /// The status.
    pub status: InvocationStatus,
    /// The last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The tokens used so far.
    pub usage: Usage,
    /// The number of paid calls; `calls:{account}` records each of them.
    #[serde(default)]
    pub paid_calls: usize,
    /// The time at which the invocation started.
    pub created_at: Timestamp,
    /// The time of its last change.
    pub updated_at: Timestamp,
    /// The number of pauses.
    #[serde(default)]
    pub(super) pauses: u32,
    /// The hash of the request, to detect a reuse of the idempotency key.
    pub(super) asked: String,
    /// The name of the daemon process that runs the invocation.
    pub(super) life: Arc<str>,
}

impl Invocation {
    /// Returns the number of pauses.
    pub(crate) fn pauses(&self) -> u32 {
        self.pauses
    }

    pub(crate) fn key(id: &Arc<str>) -> Key {
        Key::new(Document::Invocation, id.clone())
    }
}

impl Invocation {
    /// Creates the record of a paused call from an older release, which had no records.
    pub(super) fn of(paused: &Continuation, now: Timestamp) -> Self {
        Self {
            id: paused.invocation.clone(),
            neuron: paused.neuron_id.clone(),
            principal: paused.principal.clone(),
            status: InvocationStatus::ToolCallRequired,
            answer: None,
            error: None,
            usage: Usage::default(),
            paid_calls: 0,
            pauses: paused.step,
            created_at: now,
            updated_at: now,
            asked: String::new(),
            life: "".into(),
        }
    }
}
