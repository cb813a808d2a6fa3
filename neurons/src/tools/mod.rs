//! Tools that run on the server.

pub(crate) mod kip;

use nexus::{Nexus, Origin};

use crate::neuron::{ToolCall, ToolResult};
use crate::spec::{NeuronSpec, Runner};

/// How much of a tool's result a model is shown.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// Who runs `call`; `None` when the neuron has no such tool.
pub(crate) fn runner<'a>(spec: &'a NeuronSpec, call: &ToolCall) -> Option<&'a Runner> {
    spec.tools.iter().find(|tool| tool.name == call.name).map(|tool| &tool.run)
}

/// Runs `call` as `origin`. A failure is a result too: the model is told what went wrong.
pub(crate) async fn run(nexus: &Nexus, runner: &Runner, call: &ToolCall, origin: &Origin) -> ToolResult {
    let outcome = match runner {
        Runner::Client => Err("this tool is the client's".to_owned()),
        Runner::Kip { nexus: id, readonly } => kip::run(nexus, id, *readonly, &call.params, origin).await,
    };
    let cut = |mut text: String| {
        if text.len() > RESULT_BYTES_MAX {
            let end = (0..=RESULT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
        }
        text
    };
    match outcome {
        Ok(result) => ToolResult { id: call.id.clone(), result: Some(cut(result)), error: None },
        Err(error) => ToolResult { id: call.id.clone(), result: None, error: Some(cut(error)) },
    }
}
