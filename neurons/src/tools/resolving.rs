//! The tools that a definition or a lifeform refers to: their check, and the single tools that a model sees.

use serde_json::json;
use store::Origin;

use super::effect::EffectClass;
use super::fascicle::{ASSEMBLED, parameters_of_assembled};
use super::spec::{self, Approval, Runner, ToolSpec};
use super::{
    Binding, Caller, GivenNow, NamedTool, NamedToolEntry, PinState, ReachableTools, ServerTool, ToolId, ToolUse, Tools,
    http, kip, openapi,
};
use crate::NeuronError;
use crate::neuron::ToolCall;
use crate::spec::{NeuronSpec, TOOLS_MAX};

/// The note for a model on a tool whose calls are asked about.
const ASKS: &str = " Call it when it is wanted: the person is asked before it is done.";
/// The maximum number of tools that a lifeform may be given, and of single tools of which a model sees the definitions.
pub(crate) const GIVEN_MAX: usize = 16;
/// The maximum number of single tools for which these stand.
const SINGLE_MAX: usize = 256;

impl Tools {
    /// Checks what a definition alone cannot: that the built-in and named tools that it refers to exist, that its author may
    /// refer to them, and that only operators lower an effect class.
    ///
    /// # Errors
    /// Returns a sentence that names the tool and the fault.
    pub fn check<'t>(&self, mut tools: impl Iterator<Item = &'t ToolSpec>, is_operators: bool) -> Result<(), String> {
        tools.try_for_each(|tool| match &tool.run {
            Runner::Builtin => self.0.builtins.tool(&tool.name).map(drop),
            Runner::Named(id) => self.0.named.resolved(tool, id, is_operators).map(drop),
            Runner::Given | Runner::Bound if !is_operators => {
                Err(format!("{}: only an operator's definition uses the tools that a lifeform was given", tool.name))
            }
            _ if !is_operators && tool.lowers().is_some() => Err(format!(
                "the tool {} has {}: only an operator says that a call is more harmless than it looks; leave it out",
                tool.name,
                tool.lowers().unwrap_or_default()
            )),
            _ => Ok(()),
        })
    }

    /// Checks the tools that a lifeform is given. Of those that are `kept` a tool may be gone.
    ///
    /// # Errors
    /// Returns a sentence that names the tool and the fault.
    pub async fn check_uses(&self, uses: &[ToolUse], kept: &[ToolUse]) -> Result<(), String> {
        if uses.len() > GIVEN_MAX {
            return Err(format!("tools has {} entries, the bound is {GIVEN_MAX}", uses.len()));
        }
        for (place, tool) in uses.iter().enumerate() {
            let at = |why: String| format!("tools[{place}]: {why}");
            if uses[..place].iter().any(|other| other.tool == tool.tool) {
                return Err(at(format!("duplicate \"{}\"", tool.tool)));
            }
            tool.check().map_err(at)?;
            let named = match self.0.named.resolved(&tool.as_spec(), &tool.tool, true) {
                Ok(named) => named,
                // It is gone since it was given, and can still be taken away.
                Err(_) if kept.contains(tool) => continue,
                Err(why) => return Err(at(why)),
            };
            // The class of a server's tool is known once its list was read.
            if tool.effect.is_some() {
                let _ = self.one_or_many(named.clone()).await;
            }
            let own = match named.effect {
                None if !named.is_many() => self.class(&named, &ToolCall::default()),
                declared => declared.unwrap_or(EffectClass::Read),
            };
            if tool.effect.is_some_and(|effect| effect < own) {
                return Err(at(format!("effect would be lower than that of \"{}\"; it may only be raised", tool.tool)));
            }
            let its = self.0.named.get(&tool.tool).map_or(Approval::Never, |known| known.tool.approval);
            if tool.approval.is_some_and(|approval| approval < its) {
                return Err(at(format!(
                    "approval would be laxer than that of \"{}\"; it may only be stricter",
                    tool.tool
                )));
            }
        }
        Ok(())
    }

    /// Returns the hosts, the servers with their tools, and the named tools.
    pub async fn reachable(&self) -> ReachableTools {
        let named = self.0.named.all();
        let named = futures::future::join_all(named.into_iter().map(|(id, tool)| self.entry(id, tool))).await;
        ReachableTools { hosts: self.0.hosts.names().to_vec(), servers: self.0.servers.reachable().await, named }
    }

    /// Returns a named tool with the single tools that it stands for.
    pub async fn named(&self, id: &ToolId) -> Option<NamedToolEntry> {
        let tool = self.0.named.get(id)?;
        Some(self.entry(id.clone(), tool).await)
    }

    async fn entry(&self, id: ToolId, tool: NamedTool) -> NamedToolEntry {
        let expanded = self.one_or_many(tool.tool.clone()).await;
        let (is_configured, is_shipped) = (self.0.named.is_configured(&id), self.0.named.is_shipped(&id));
        let (tools, error) = match expanded {
            Ok(expanded) => {
                let unreached = |tool: &ToolSpec| match &tool.run {
                    Runner::Http(request) => self.0.hosts.allows(http::host_of(request), &request.url).err(),
                    _ => None,
                };
                let has = |name: &String| expanded.iter().any(|single| single.sinks.contains(name));
                let unknown = tool.tool.sinks.iter().find(|name| !has(name));
                let unknown = unknown.map(|name| format!("sinks: none of its tools has a parameter \"{name}\""));
                let takes_key = |single: &ToolSpec| single.key_argument.is_some();
                let no_key = tool.tool.key_argument.as_ref().filter(|_| !expanded.iter().any(takes_key));
                let no_key = no_key.map(|name| format!("key_argument: none of its tools has a parameter \"{name}\""));
                let why = expanded.iter().find_map(unreached).or(unknown).or(no_key);
                (expanded.iter().map(|tool| self.shown(tool)).collect(), why)
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        NamedToolEntry { id, definition: Some(tool), is_configured, is_shipped, tools, error }
    }

    /// Returns a single tool as the API shows it.
    fn shown(&self, tool: &ToolSpec) -> ServerTool {
        let effect = self.class(tool, &ToolCall::default());
        ServerTool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.asked_parameters().into_owned(),
            writes: effect > EffectClass::Read,
            effect,
            state: PinState::Accepted,
            hash: None,
            accepted: None,
        }
    }

    /// Replaces each reference to a named tool, and each tool that stands for a whole server or document, by the single tools,
    /// and fills in missing descriptions and parameters. Unless an operator wrote the definition, nothing in it counts as more
    /// harmless than its runner says.
    ///
    /// # Errors
    /// Returns [`NeuronError::Tools`] if a server was never reached, and [`NeuronError::Spec`] if a named tool is gone.
    pub(crate) async fn expand(
        &self,
        spec: &mut NeuronSpec,
        owner: &str,
        is_operators: bool,
        binding: Option<&Binding>,
    ) -> Result<(), NeuronError> {
        let mut written = std::mem::take(&mut spec.tools);
        if !is_operators {
            // A tool with a pin was resolved before, from an operator's definition.
            written.iter_mut().filter(|tool| tool.pin.is_none()).for_each(ToolSpec::without_lowering);
        }
        let stands = |tool: &ToolSpec| {
            matches!(tool.run, Runner::Client | Runner::Kip { .. } | Runner::Http(_) | Runner::Calculate(_))
                && (is_operators || tool.settle.is_none())
        };
        if written.iter().all(stands) {
            spec.tools = written;
            return Ok(());
        }
        let mut tools: Vec<ToolSpec> = Vec::with_capacity(written.len());
        let is_given = |tool: &ToolSpec| matches!(tool.run, Runner::Given | Runner::Bound);
        let (given, written): (Vec<_>, Vec<_>) = written.into_iter().partition(is_given);
        // Tools that the author named come first, so a server cannot replace one of them by a tool of the same name.
        let (mut many, mut single) = (Vec::new(), Vec::new());
        for tool in written {
            let (tool, least) = self.resolved(tool, is_operators).map_err(NeuronError::Spec)?;
            if tool.is_many() { many.push((tool, least)) } else { single.push((tool, least)) }
        }
        for (tool, least) in single {
            tools.extend(self.raised(self.one_or_many(tool).await?, least));
        }
        for (tool, least) in many {
            add(&mut tools, self.raised(self.one_or_many(tool).await?, least), TOOLS_MAX);
        }
        if !given.is_empty() && is_operators {
            let most = tools.len() + SINGLE_MAX;
            let is_for_all = given.iter().any(|tool| tool.run == Runner::Given);
            let is_bound =
                |tool: &ToolSpec| binding.is_some_and(|step| step.tools.iter().any(|name| **name == *tool.name));
            for mut some in self.given(owner).await {
                some.retain(|tool| is_for_all || is_bound(tool));
                add(&mut tools, some, most);
            }
        }
        if !is_operators {
            for tool in tools.iter_mut().filter(|tool| tool.pin.is_none()) {
                tool.without_lowering();
                // A look-up is not recorded, so it must not write.
                let writes = |looks: &spec::Settle| {
                    let looks = ToolSpec { run: looks.run.clone(), ..ToolSpec::default() };
                    self.class(&looks, &ToolCall::default()) > EffectClass::Read
                };
                tool.settle.take_if(|settle| writes(settle));
            }
        }
        spec.tools = tools;
        Ok(())
    }

    /// Returns the tools that a lifeform was given, each with the single tools that it stands for. A tool that is gone or cannot
    /// be reached is left out: it stops nothing else.
    pub(crate) async fn given(&self, owner: &str) -> Vec<Vec<ToolSpec>> {
        let uses = match self.0.given.get() {
            Some(given) => given.given(owner).await,
            None => Vec::new(),
        };
        let expanded = futures::future::join_all(uses.iter().map(|tool| self.given_one(tool))).await.into_iter();
        let usable = |one: Result<Vec<ToolSpec>, String>| {
            one.inspect_err(|why| tracing::warn!(owner, why, "a given tool is left out")).ok()
        };
        expanded.filter_map(usable).collect()
    }

    /// Returns uses of named tools with the single tools that a model sees, or the reason why it sees none or fewer.
    pub async fn given_now(&self, uses: &[ToolUse]) -> Vec<(ToolUse, GivenNow)> {
        let expanded = futures::future::join_all(uses.iter().map(|tool| self.given_one(tool))).await;
        let mut room = SINGLE_MAX;
        let now = |(tool, expanded): (&ToolUse, Result<Vec<ToolSpec>, String>)| {
            let now = match expanded {
                Err(error) => GivenNow { tools: Vec::new(), error: Some(error) },
                Ok(tools) => {
                    let left_out = tools.len().saturating_sub(room);
                    let shown: Vec<ServerTool> = tools.iter().take(room).map(|tool| self.shown(tool)).collect();
                    room -= shown.len();
                    let why =
                        format!("a lifeform has {SINGLE_MAX} tools at most, and {left_out} of these are left out");
                    GivenNow { tools: shown, error: (left_out > 0).then_some(why) }
                }
            };
            (tool.clone(), now)
        };
        uses.iter().zip(expanded).map(now).collect()
    }

    /// Returns the single tools of a use, with its rules.
    async fn given_one(&self, tool: &ToolUse) -> Result<Vec<ToolSpec>, String> {
        let (resolved, least) = self.resolved(tool.as_spec(), true)?;
        let tools = self.one_or_many(resolved).await.map_err(|error| error.to_string())?;
        let mut tools = self.raised(tools, least);
        for tool in &mut tools {
            let is_asked = match tool.approval {
                Approval::Never => false,
                Approval::OnWrite => self.writes(tool, &ToolCall::default()),
                Approval::Always => true,
            };
            if is_asked || tool.effect == Some(EffectClass::Irreversible) {
                // Otherwise a model asks, too.
                tool.description.push_str(ASKS);
            }
        }
        Ok(tools)
    }

    /// Returns the tool that an entry refers to, with the class that the entry raises it to.
    fn resolved(&self, tool: ToolSpec, is_operators: bool) -> Result<(ToolSpec, Option<EffectClass>), String> {
        match &tool.run {
            Runner::Named(id) => Ok((self.0.named.resolved(&tool, id, is_operators)?, tool.effect)),
            _ => Ok((tool, None)),
        }
    }

    /// Raises the class of tools to at least `least`.
    fn raised(&self, mut tools: Vec<ToolSpec>, least: Option<EffectClass>) -> Vec<ToolSpec> {
        for tool in &mut tools {
            if let Some(least) = least {
                tool.effect = Some(self.class(tool, &ToolCall::default()).max(least));
            }
        }
        tools
    }

    /// Removes the tools that can do nothing for a caller now: built-in ones that do not apply, and the whole mind where
    /// its gate refuses the caller.
    pub(crate) async fn keep_offered(&self, spec: &mut NeuronSpec, origin: &Origin, caller: &Caller) {
        let mut kept = Vec::with_capacity(spec.tools.len());
        for tool in std::mem::take(&mut spec.tools) {
            let is_offered = match &tool.run {
                Runner::Builtin => self.0.builtins.offers(&tool.name, origin, caller).await,
                Runner::Kip { nexus, .. } => kip::nexus_of(nexus, caller, self.0.gate.get()).await.is_ok(),
                _ => true,
            };
            if is_offered {
                kept.push(tool);
            }
        }
        spec.tools = kept;
    }

    async fn one_or_many(&self, tool: ToolSpec) -> Result<Vec<ToolSpec>, NeuronError> {
        let own = match &tool.run {
            Runner::Mcp(mcp) => self.0.servers.tools(&tool, mcp).await.map_err(NeuronError::Tools)?,
            Runner::Openapi(document) => openapi::tools(&tool, document).map_err(NeuronError::Spec)?,
            Runner::Fascicle(fascicle) => {
                let description = match self.0.fascicles.get() {
                    Some(fascicles) => fascicles.description(&fascicle.id).await,
                    None => None,
                };
                let description = description.unwrap_or_default();
                let parameters =
                    json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
                vec![ToolSpec { description, parameters, ..tool.clone() }]
            }
            Runner::Assembled => {
                vec![ToolSpec { description: ASSEMBLED.into(), parameters: parameters_of_assembled(), ..tool.clone() }]
            }
            Runner::Builtin => {
                let own = self.0.builtins.tool(&tool.name).map_err(NeuronError::Spec)?;
                vec![ToolSpec { description: own.description.into(), parameters: own.closed(), ..tool.clone() }]
            }
            Runner::Client | Runner::Kip { .. } | Runner::Http(_) | Runner::Calculate(_) => vec![tool.clone()],
            Runner::Named(_) | Runner::Given | Runner::Bound => {
                return Err(NeuronError::Spec(format!("{} is a reference", tool.name)));
            }
        };
        // A description or schema by the author takes precedence.
        let given = (!tool.is_many() && tool.parameters != json!({"type": "object"})).then_some(&tool.parameters);
        own.into_iter()
            .map(|mut own| {
                if !tool.is_many() && !tool.description.is_empty() {
                    own.description.clone_from(&tool.description);
                }
                if let Some(parameters) = given {
                    own.parameters.clone_from(parameters);
                }
                // Not every tool of a server has each of them.
                if let Some(properties) = own.parameters["properties"].as_object() {
                    own.sinks.retain(|name| properties.contains_key(name));
                }
                own.keep_key_argument();
                let fault = |why: String| NeuronError::Spec(format!("{}: key_argument: {why}", own.name));
                own.check_key_argument().map_err(fault)?;
                Ok(own)
            })
            .collect()
    }
}

/// Adds tools, as long as there is room and no tool has the name already.
fn add(tools: &mut Vec<ToolSpec>, more: Vec<ToolSpec>, most: usize) {
    for tool in more {
        if tools.len() >= most || tools.iter().any(|known| known.name == tool.name) {
            tracing::warn!(tool = tool.name, "left out: the neuron has one of that name, or too many");
        } else {
            tools.push(tool);
        }
    }
}
