//! The rules for what a call may carry out of the daemon: secrets, memory, and values that no person here said.
use std::collections::BTreeMap;

use crate::conversation::Conversation;
use crate::invocation::Run;
use crate::neuron::ToolCall;
use crate::neurons::acting;
use crate::spec::{Runner, ToolSpec};
use crate::tools::effect::Decision;
use crate::tools::provenance::{ArgumentOrigin, Sources};
use crate::tools::{Caller, egress};

/// The tool of the mind that sets goals.
const GOAL: &str = "goal";

impl Run {
    /// Checks, before a person is asked, that the secrets that a call names may be sent where it goes.
    pub(super) async fn may_send(&self, call: &ToolCall, talk: &Conversation, caller: &Caller) -> Result<(), String> {
        // A call that was announced is settled first.
        let Some(tool) = self.tool(call).filter(|_| !talk.is_announced(&call.id)) else { return Ok(()) };
        let origin = acting(&*self.directory, &self.origin, &caller.authors);
        self.tools.may_send(tool, call, &origin).await
    }

    /// Returns the sinks of a call whose values no person here said: money or words would go where others want it.
    pub(crate) fn foreign_sinks(&self, tool: &ToolSpec, call: &ToolCall, talk: &Conversation) -> Vec<String> {
        let given =
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.params).unwrap_or_default();
        let is_asked_by_model = talk.messages.iter().any(|message| message.role == "user");
        let is_own = self.caller.owner.starts_with("lifeform:") && self.caller.depth == 0;
        if tool.sinks.is_empty() || !is_asked_by_model || !is_own {
            return Vec::new();
        }
        // Where several speak, all of them are trusted, or the call is asked about in any case.
        let sources = self.sources(talk);
        let named = tool.sinks.iter().filter_map(|name| given.get(name).map(|value| (name, value)));
        named.filter(|(_, value)| !sources.says(value)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the origin of each parameter of a call, for the person who is asked about it.
    pub(super) fn origins(&self, call: &ToolCall, talk: &Conversation) -> BTreeMap<String, ArgumentOrigin> {
        // A step that calls a tool by itself has no conversation.
        if !talk.messages.iter().any(|message| message.role == "user") {
            return BTreeMap::new();
        }
        self.sources(talk).origins(&serde_json::from_str(&call.params).unwrap_or_default())
    }

    /// Returns the texts of a conversation, by origin.
    fn sources(&self, talk: &Conversation) -> Sources {
        let mut sources = Sources::default();
        for (place, message) in talk.messages.iter().enumerate() {
            let Some(text) = message.content.as_deref() else { continue };
            let tool = talk.call_of(place).and_then(|made| self.tool_named(&made.function.name));
            match (&*message.role, tool) {
                ("tool", Some(tool)) => {
                    let text = talk.whole_of(place).unwrap_or(text);
                    let is_memory = !tool.run.leads_outside() && self.tools.brings_in(tool);
                    sources.add_result(&tool.name, text, is_memory);
                }
                ("user", _) => sources.read(text, true),
                ("system", _) => sources.read(text, false),
                _ => {}
            }
        }
        for text in self.caller.binding.iter().flat_map(|binding| binding.texts.values()) {
            sources.read(&format!("<results>{text}</results>"), false);
        }
        sources
    }

    /// Returns `true` if a call that nobody is asked about would carry memory out of the daemon after words of others were read. What a
    /// network of the model's own gets must hold none in any case, since it may read outside before it calls.
    pub(super) fn leaks(&self, (call, passes): (&ToolCall, bool), talk: &Conversation, caller: &Caller) -> bool {
        let Some(tool) = self.tool(call).filter(|_| caller.owner.starts_with("lifeform:")) else { return false };
        // A call that was announced is settled, and one that a person has decided about was shown.
        let is_decided =
            talk.is_announced(&call.id) || talk.is_approved(&call.id) || talk.decision(&call.id) != Decision::None;
        // A goal carries its words into steps that reach outside.
        let leads_outside = tool.run.leads_outside() || (tool.run == Runner::Builtin && tool.name == GOAL);
        if is_decided || !leads_outside || self.tools.needs_approval(tool, call, caller) {
            return false;
        }
        let results = || {
            talk.results().filter_map(|(place, made)| {
                let text = talk.whole_of(place).or(talk.messages[place].content.as_deref());
                Some((text, self.tool_named(&made.function.name)?, &*made.function.arguments))
            })
        };
        // What a person asks for may rest on memory; what a page outside asks for may not.
        let step = caller.binding.as_ref();
        let is_led = passes || caller.is_untrusted() || step.is_some_and(|step| step.carries_memory && !step.trusted);
        let has_read = is_led || results().any(|(_, tool, _)| tool.run.leads_outside());
        if !has_read && tool.run != Runner::Assembled {
            return false;
        }
        let arguments = serde_json::from_str(&call.params).unwrap_or_default();
        let texts = |of: &'static [&str]| {
            let messages = talk.messages.iter().filter(move |message| of.contains(&message.role.as_str()));
            messages.filter_map(|message| message.content.as_deref())
        };
        let recalled = results().filter(|(_, tool, arguments)| self.recalls(tool, arguments));
        let recalled = recalled.filter_map(|(text, ..)| text);
        let recalled = recalled.chain(step.into_iter().flat_map(|step| step.recalled.iter().map(String::as_str)));
        let carries_memory = step.is_some_and(|step| step.carries_memory);
        egress::private_in(&arguments, texts(&["system", "user"]), recalled, carries_memory).is_some()
    }

    /// Returns `true` if the result of a call may hold memory: a tool of the mind read it, or a network of the model's own that has one.
    fn recalls(&self, tool: &ToolSpec, arguments: &str) -> bool {
        let reads_memory = |tool: &ToolSpec| !tool.run.leads_outside() && self.tools.brings_in(tool);
        let mut own = self.spec.tools.iter().filter(|tool| reads_memory(tool));
        // Decoded, since JSON can write a name in several ways.
        let arguments = serde_json::from_str::<serde_json::Value>(arguments).unwrap_or_default().to_string();
        reads_memory(tool) || (tool.run == Runner::Assembled && own.any(|tool| arguments.contains(&tool.name)))
    }

    /// Returns `true` if a person may be asked about a call that carries memory out: a call of a step. The readers of the goal's topic may
    /// hear all memory that its steps are shown.
    pub(super) fn may_ask_to_send(&self, call: &ToolCall, caller: &Caller) -> bool {
        let is_single = self.tool(call).is_some_and(|tool| tool.run != Runner::Assembled);
        self.may_wait && caller.binding.is_some() && is_single
    }

    /// Returns `true` if a tool has returned content of other authors to a lifeform's run.
    pub(crate) fn is_tainted(&self, talk: &Conversation) -> bool {
        let brings_in = |name: &str| self.tool_named(name).is_some_and(|tool| self.tools.brings_in(tool));
        // A result counts to the end of the run, not only until the next answer has taken it up.
        let has_read = || talk.results().any(|(_, made)| brings_in(&made.function.name));
        self.caller.owner.starts_with("lifeform:") && has_read()
    }
}
