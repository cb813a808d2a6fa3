//! The run segments of an invocation: each begins with a request or with results, and ends with an answer or a pause.

use store::{Batch, Expect, Key, Op, Place, Timestamp, json};

use super::record::{Invocation, InvocationStatus};
use crate::NeuronError;
use crate::continuation::{Continuation, Stage};
use crate::conversation::Conversation;
use crate::invocation::{Answer, Run, Spent};
use crate::neuron::FirstStep;

/// The results with which an invocation continues.
#[derive(Clone)]
pub(super) struct Continued {
    pub(super) key: Key,
    pub(super) paused: Continuation,
    pub(super) body: String,
}

/// The state of an invocation at the start of a run segment.
#[derive(Clone)]
pub(super) struct SegmentBase {
    pub(super) record: Invocation,
    pub(super) continued: Option<Continued>,
}

impl SegmentBase {
    /// Returns the record at the end of a run segment that produced `answer`, and the operations that write it. No
    /// other task writes the record meanwhile: the segment started with a versioned change of the record, and an
    /// invocation has one segment at a time.
    pub(super) fn ended(
        &self,
        answer: Result<&Answer, &NeuronError>,
        spent: &Spent,
        now: Timestamp,
    ) -> (Invocation, Vec<Op>) {
        let mut record = self.record.clone();
        record.usage = record.usage.plus(spent.usage);
        record.paid_calls += spent.paid_calls;
        record.pauses += u32::from(matches!(answer, Ok(Answer::Paused { .. })));
        record.updated_at = now;
        record.status = match answer {
            Ok(Answer::Completed(_)) => InvocationStatus::Completed,
            Ok(Answer::Paused { .. }) => InvocationStatus::ToolCallRequired,
            Err(NeuronError::Cancelled) => InvocationStatus::Cancelled,
            Err(_) => InvocationStatus::Failed,
        };
        record.answer = answer.ok().cloned();
        record.error = answer.err().map(ToString::to_string);
        let put = |key: Key, body| Op::Put { key, expect: Expect::Any, body };
        let mut ops = vec![put(Invocation::key(&record.id), json(&record))];
        if let Some(Continued { key, paused, body }) = &self.continued {
            let stage = match answer {
                Ok(answer) => Stage::Done { body: body.clone(), answer: Box::new(answer.clone()) },
                // The run failed, so the client may send the same results again.
                Err(_) => Stage::Consumed { body: body.clone(), life: "failed".into() },
            };
            ops.push(put(key.clone(), json(&Continuation { stage, ..paused.clone() })));
        }
        (record, ops)
    }
}

/// A run segment of an invocation that is about to start.
pub(super) struct RunSegment {
    pub(super) run: Run,
    pub(super) begun: FirstStep,
    pub(super) talk: Conversation,
    pub(super) record: Invocation,
    pub(super) continued: Option<Continued>,
    /// The batch that consumes the results with which the segment continues.
    pub(super) take: Option<Batch>,
    /// `true` if the run continues after its caller disconnects.
    pub(super) stays: bool,
    pub(super) place: Place,
}
