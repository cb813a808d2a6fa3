//! Results in a step that writes: its model is shown no prose of others, and passes texts on by their handles.

use crate::conversation::Conversation;
use crate::invocation::Run;
use crate::neuron::{ToolCall, ToolResult};
use crate::spec::ToolSpec;
use crate::tools::{Made, projection};

/// The result of a refused call that passes a text on, whose fault could quote the text.
const MISFIT: &str = "not called: with the text that it passes on, the call does not fit the tool, or may not be made; name the values, or \
    end with need";
/// The error of a fascicle that failed in a step which reads no prose, and the beginning of one that was not run.
const FAILED_WITHIN: &str = "the fascicle failed";
/// The maximum size of a result without the prose of others, in bytes, unless its tool says less.
const PROJECTED_BYTES_MAX: usize = 16 << 10;
const NOT_RUN: &str = "not run: ";

impl Run {
    /// Returns `true` for a step of a plan that may change something: it is shown no prose of others, since it could follow that. A tool of
    /// an unknown class does not count, because its calls are asked about in any case.
    pub(crate) fn reads_no_prose(&self) -> bool {
        let call = ToolCall::default();
        let writes = |tool: &ToolSpec| {
            self.tools.may_write(tool) && self.tools.effect_of(tool, &call).is_none_or(|(.., may_read)| !may_read)
        };
        let step = self.caller.binding.as_ref();
        step.is_some_and(|step| step.writes || self.spec.tools.iter().any(writes))
    }

    /// Adds the result of a call, as far as this run may read it.
    pub(crate) fn say_made(&self, made: &Made, talk: &mut Conversation) {
        let calls = talk.reply.iter().flat_map(|reply| &reply.tool_calls);
        let name = calls.filter(|call| call.id == made.result.id).map(|call| &*call.function.name).next();
        let tool = name.and_then(|name| self.tool_named(name));
        if !self.reads_no_prose() || tool.is_some_and(|tool| !self.tools.brings_in(tool)) {
            return talk.say_made(made);
        }
        let readable = tool.map_or(&[][..], |tool| &tool.readable);
        let most = tool.and_then(|tool| tool.limits.result_bytes).unwrap_or(PROJECTED_BYTES_MAX);
        let own = made.result.error.as_deref().filter(|why| !why.starts_with(NOT_RUN));
        match own.filter(|_| tool.is_some_and(|tool| tool.run.runs_fascicle())) {
            // The error of a neuron in it may quote what it read.
            Some(_) => talk.say_result(&ToolResult { error: Some(FAILED_WITHIN.into()), ..made.result.clone() }),
            None => talk.say_projected(made, readable, most),
        }
    }

    /// Adds the refusal of a call. That of one which passes a text on may quote the text.
    pub(super) fn say_refused(&self, result: &ToolResult, passes: bool, talk: &mut Conversation) {
        match &result.error {
            Some(_) if passes => talk.say_result(&ToolResult { error: Some(MISFIT.into()), ..result.clone() }),
            _ => talk.say_result(result),
        }
    }

    /// Returns the arguments of a call with the texts that it passes on.
    pub(super) fn with_texts(&self, call: &ToolCall, talk: &Conversation) -> Result<String, String> {
        let of_step = |handle: &str| self.caller.binding.as_ref()?.texts.get(handle).map(String::as_str);
        let sinks = self.tool(call).map_or(&[][..], |tool| &tool.sinks);
        projection::with_texts(&call.params, sinks, |handle| talk.whole(handle).or_else(|| of_step(handle)))
    }
}
