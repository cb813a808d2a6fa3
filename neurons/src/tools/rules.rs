//! The rules of a call: its effect class, and whether it needs an approval, may be repeated, or sends a secret.

use std::sync::Arc;

use serde_json::Value;
use store::Origin;

use super::effect::EffectClass;
use super::spec::{Approval, Runner, ToolSpec};
use super::{Caller, Tools, builtin, given, http, kip};
use crate::neuron::ToolCall;

impl Tools {
    /// Returns `true` if any call of a tool may change something.
    pub(crate) fn may_write(&self, tool: &ToolSpec) -> bool {
        match &tool.run {
            Runner::Kip { readonly, .. } => !readonly,
            // The named tool may be anything, and is not looked up here.
            Runner::Named(_) | Runner::Given | Runner::Bound => true,
            _ => self.writes(tool, &ToolCall::default()),
        }
    }

    /// Returns `true` if a call may change something.
    pub(crate) fn writes(&self, tool: &ToolSpec, call: &ToolCall) -> bool {
        self.class(tool, call) > EffectClass::Read
    }

    /// Returns the effect class of a call.
    pub(crate) fn class(&self, tool: &ToolSpec, call: &ToolCall) -> EffectClass {
        let write_if = |writes: bool| if writes { EffectClass::Write } else { EffectClass::Read };
        let own = match &tool.run {
            // The fascicle that a model writes has only tools that read.
            Runner::Client | Runner::Calculate(_) | Runner::Assembled => EffectClass::Read,
            Runner::Kip { readonly, .. } => write_if(!readonly && kip::writes(&call.params)),
            Runner::Http(request) => http::class_of(request),
            Runner::Mcp(mcp) => self.0.servers.class(mcp),
            Runner::Fascicle(fascicle) => write_if(fascicle.writes),
            Runner::Builtin => write_if(!self.0.builtins.only_reads(&tool.name)),
            Runner::Openapi(_) | Runner::Named(_) | Runner::Given | Runner::Bound => EffectClass::Write,
        };
        let own = if tool.repeatable { own.min(EffectClass::Idempotent) } else { own };
        tool.effect.unwrap_or(own)
    }

    /// Returns the class of the effect of a call outside the daemon, the place where it happens, and whether the call may only
    /// read although nobody said so; `None` for a call that reads or stays in the daemon.
    pub(crate) fn effect_of(&self, tool: &ToolSpec, call: &ToolCall) -> Option<(EffectClass, Arc<str>, bool)> {
        let class = self.class(tool, call);
        if class == EffectClass::Read {
            return None;
        }
        let may_read = match &tool.run {
            Runner::Http(_) => false,
            Runner::Mcp(mcp) => tool.effect.is_none() && !self.0.servers.knows(mcp),
            _ => return None,
        };
        Some((class, place_of(tool).into(), may_read))
    }

    /// Checks that the secrets that a call names may be sent where it goes.
    ///
    /// # Errors
    /// A sentence for the model.
    pub(crate) async fn may_send(&self, tool: &ToolSpec, call: &ToolCall, origin: &Origin) -> Result<(), String> {
        match tool.run.is_outside() && names_a_secret(call) {
            true => self.0.builtins.may_send(&Value::Object(given(call)?), &place_of(tool), origin).await,
            false => Ok(()),
        }
    }

    /// Returns `true` if a tool's results contain content of other authors: from the network, from a mind or the
    /// commons, or from a fascicle.
    pub(crate) fn brings_in(&self, tool: &ToolSpec) -> bool {
        match &tool.run {
            Runner::Client | Runner::Calculate(_) => false,
            Runner::Builtin => self.0.builtins.quotes(&tool.name),
            _ => true,
        }
    }

    /// Returns `true` if a call needs an approval. A call with external effects that an untrusted speaker caused always
    /// needs one, and so does each irreversible call of a lifeform.
    pub(crate) fn needs_approval(&self, tool: &ToolSpec, call: &ToolCall, caller: &Caller) -> bool {
        let outside = tool.run.is_outside();
        let is_final = caller.owner.starts_with("lifeform:") && self.class(tool, call) == EffectClass::Irreversible;
        let for_a_stranger = match outside {
            // Any author can name a secret in a definition, so a person must approve this very call before the secret
            // is used.
            true if names_a_secret(call) => Approval::Always,
            true if caller.is_untrusted() || is_final => Approval::OnWrite,
            _ => Approval::Never,
        };
        let configured = match &tool.run {
            Runner::Mcp(mcp) => self.0.servers.approval(mcp),
            _ => Approval::Never,
        };
        match tool.approval.max(configured).max(for_a_stranger) {
            Approval::Never => false,
            Approval::OnWrite => self.writes(tool, call),
            Approval::Always => true,
        }
    }

    /// Returns `true` for a tool that a fascicle of a model's own may use: the server runs it, and no call changes or asks anything.
    pub(super) fn only_reads(&self, tool: &ToolSpec, caller: &Caller) -> bool {
        let runs = !matches!(tool.run, Runner::Client | Runner::Fascicle(_) | Runner::Assembled) && !tool.is_many();
        let call = ToolCall::default();
        runs && !self.may_write(tool) && !self.needs_approval(tool, &call, caller)
    }

    /// Returns `true` if a call that was interrupted by a daemon stop simply continues. This holds for fascicles: the
    /// job is found by its name.
    pub(crate) fn is_repeatable(&self, tool: &ToolSpec, call: &ToolCall) -> bool {
        tool.repeatable || matches!(tool.run, Runner::Kip { .. } | Runner::Fascicle(_)) || !self.writes(tool, call)
    }

    /// Returns `true` if a call that failed, or whose outcome is unknown, may be repeated.
    pub(crate) fn may_repeat(&self, tool: &ToolSpec) -> bool {
        tool.repeatable || matches!(tool.run, Runner::Kip { .. }) || !self.may_write(tool)
    }
}

/// Returns the place outside where the calls of a tool have their effects: a host, or `mcp:` and the name of a server.
pub(super) fn place_of(tool: &ToolSpec) -> String {
    match &tool.run {
        Runner::Http(request) => http::host_of(request).to_owned(),
        Runner::Mcp(mcp) => format!("mcp:{}", mcp.server),
        _ => String::new(),
    }
}

/// Returns `true` if the decoded arguments of a call name a secret. The arguments are decoded first, because JSON can
/// write the same text in several ways. Arguments that cannot be parsed count as naming a secret.
pub fn names_a_secret(call: &ToolCall) -> bool {
    given(call).map_or(true, |given| !builtin::named(&Value::Object(given)).is_empty())
}
