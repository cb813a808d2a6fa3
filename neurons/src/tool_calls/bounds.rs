//! The maximum numbers of calls of an answer, a task and a step.

use crate::NeuronError;
use crate::conversation::Conversation;
use crate::effects::{REFUSED_MAX, SAME_AGAIN, same_again};
use crate::invocation::Run;
use crate::llm::ChatMessage;
use crate::neuron::ToolCall;
use crate::spec::ToolSpec;
use crate::tools::Caller;
use crate::tools::handles::RESULT_READ;

use super::{Asked, NO_TOOL};

/// The maximum number of fascicles that one answer of a lifeform calls as tools, and of calls within each.
const TASKS_MAX: usize = 8;
const TASK_CALLS_MAX: usize = 16;
/// The maximum number of calls of given tools in one answer: more is a goal.
const TALK_CALLS_MAX: usize = 6;

/// The maximum number of calls of one step of a plan.
const STEP_CALLS_MAX: usize = 8;
/// The number of further calls of a step that are refused before the step fails.
const REMINDERS_MAX: usize = 4;
/// The number of such results in one invocation after which a further unknown tool fails the invocation.
const UNKNOWN_MAX: usize = 2;

impl Run {
    /// Checks that an answer still leads somewhere.
    ///
    /// # Errors
    /// Returns `Output` if a step made more calls than it may after its last warning, or if the model asks on for a tool that it does not
    /// have.
    pub(super) fn check_end(&self, calls: &[Asked], talk: &Conversation, caller: &Caller) -> Result<(), NeuronError> {
        let asked_for = talk.messages.iter().filter_map(|message| message.tool_calls.as_ref()).flatten();
        let asked_for = asked_for.filter(|call| call.function.name != RESULT_READ).count();
        if caller.binding.is_some() && asked_for > STEP_CALLS_MAX + REMINDERS_MAX {
            return Err(NeuronError::Output(format!("the step came to no end in {asked_for} calls")));
        }
        let Some(unknown) = calls.iter().map(|asked| &asked.call).find(|call| self.tool(call).is_none()) else {
            return Ok(());
        };
        match talk.messages.iter().filter(|message| is_no_tool(message)).count() >= UNKNOWN_MAX {
            true => Err(NeuronError::Output(format!(
                "it asks again and again for a tool that it does not have: {}",
                unknown.name
            ))),
            false => Ok(()),
        }
    }

    /// Returns the reason why a lifeform's run makes no more calls: a model may call without end.
    pub(super) fn is_too_much(
        &self,
        (tool, call): (&ToolSpec, &ToolCall),
        talk: &Conversation,
        caller: &Caller,
        begun: &[String],
    ) -> Option<String> {
        // A call that was announced may have been done: it is settled.
        if !caller.owner.starts_with("lifeform:") || talk.is_announced(&call.id) {
            return None;
        }
        let is_task = |name: &str| {
            let named = self.spec.tools.iter().find(|tool| tool.name == name);
            named.is_some_and(|tool| tool.run.runs_fascicle())
        };
        let made = talk.results().map(|(_, call)| &*call.function.name).chain(begun.iter().map(String::as_str));
        if caller.binding.is_some() {
            let (calls, failures) = (made.clone().count(), failures(call, talk));
            return match failures.len() >= REFUSED_MAX as usize {
                true => Some(same_again(failures.last().map_or("", String::as_str))),
                false if calls >= STEP_CALLS_MAX => {
                    Some(format!("{STEP_CALLS_MAX} calls are enough for one step: end it with what they brought"))
                }
                false => None,
            };
        }
        let is_given =
            |name: &str| self.spec.tools.iter().any(|tool| tool.name == name && tool.pin.is_some() && !is_task(name));
        let given = made.clone().filter(|name| is_given(name)).count();
        if caller.depth == 0 && is_given(&tool.name) && given >= TALK_CALLS_MAX {
            return Some(format!(
                "{TALK_CALLS_MAX} calls are enough for one answer: say what they brought, and make a goal of what is left"
            ));
        }
        let made: Vec<bool> = made.map(is_task).collect();
        let tasks = made.iter().filter(|is_task| **is_task).count();
        match () {
            () if tool.run.runs_fascicle() && tasks >= TASKS_MAX => {
                Some(format!("{TASKS_MAX} tasks are enough for one answer: answer with what they brought"))
            }
            () if caller.depth > 0 && made.len() >= TASK_CALLS_MAX => {
                Some(format!("{TASK_CALLS_MAX} calls are enough for one task: answer with what they brought"))
            }
            () => None,
        }
    }
}

/// Returns the errors of the calls with the same tool and arguments that failed in a conversation.
fn failures(call: &ToolCall, talk: &Conversation) -> Vec<String> {
    // As the model wrote it: a text that it passes on is filled in since.
    let mut asked = talk.reply.iter().flat_map(|reply| &reply.tool_calls);
    let written = asked.find(|made| made.id == call.id).map_or(&*call.params, |made| &*made.function.arguments);
    let made = talk.results().filter(|(_, made)| made.function.name == call.name && made.function.arguments == written);
    let error = |message: &ChatMessage| {
        let said: serde_json::Value = serde_json::from_str(message.content.as_deref()?).ok()?;
        said["error"].as_str().filter(|error| !error.starts_with(SAME_AGAIN)).map(str::to_owned)
    };
    made.filter_map(|(place, _)| error(&talk.messages[place])).collect()
}

/// Returns `true` if a message tells the model that a tool does not exist.
fn is_no_tool(message: &ChatMessage) -> bool {
    let said = message.content.as_deref().filter(|_| message.role == "tool");
    let said = said.and_then(|said| serde_json::from_str::<serde_json::Value>(said).ok());
    said.is_some_and(|said| said["error"].as_str().is_some_and(|error| error.starts_with(NO_TOOL)))
}
