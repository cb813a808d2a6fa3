//! The tools to which the plan of a goal binds a step, and the calls that a person approved with the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::Timestamp;
use utoipa::ToSchema;

use super::effect::{EffectClass, canonical, ordered};
use super::lesson::Lesson;
use super::spec::ToolSpec;
use super::{Caller, EffectScope, Tools};
use crate::neuron::ToolCall;

/// The maximum length of a tool's description on its card, in characters.
const CARD_CHARS: usize = 120;
/// The maximum number of parameters on a card, and of characters of their names.
const CARD_PARAMETERS: usize = 8;
const PARAMETERS_CHARS: usize = 200;

/// A step of a goal's plan, as the run of its neuron needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Binding {
    /// The id of the step. The effects of its calls happen once for the goal and this step.
    pub step: Arc<str>,
    /// The names of the single tools that the step may call.
    pub tools: Vec<Arc<str>>,
    /// The calls that a person approved together with the plan.
    pub grants: Vec<Grant>,
    /// The values of the arguments that a grant takes from steps before, by argument.
    pub found: Map<String, Value>,
    /// `true` if the step may change something outside.
    pub writes: bool,
    /// The results of the steps before, by the id of the step. A call may pass them on unread.
    pub texts: BTreeMap<Arc<str>, String>,
    /// The results of steps before that may hold memory.
    pub recalled: Vec<String>,
    /// `true` if the step was planned before words of others were read.
    pub trusted: bool,
    /// `true` if memory stands in the step, so that its words count as memory once words of others were read.
    pub carries_memory: bool,
    /// The number of tokens that the goal may still use, shared among the steps of the wave; `None` for no bound.
    pub tokens_left: Option<u64>,
    /// The step's call, if the plan named it before words of others were read.
    pub planned: Option<PlannedCall>,
}

/// The approval of calls that are made later, given by a person together with a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The name of the tool.
    #[schema(value_type = String)]
    pub tool: Arc<str>,
    /// The hash of the tool's definition when it was approved. A tool that was changed since is asked about.
    #[schema(value_type = String)]
    pub pin: Arc<str>,
    /// The arguments, exactly as they were shown. A call with others is asked about.
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    /// The further arguments, each with the step of the plan that finds its value under the argument's name. A call with another
    /// value is asked about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub takes: BTreeMap<String, Arc<str>>,
    /// The end of the approval.
    pub until: Timestamp,
    /// The person who approved.
    #[schema(value_type = String)]
    pub by: Arc<str>,
}

/// A given tool in one line, for a model that plans.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCard {
    /// The name that models see.
    pub name: Arc<str>,
    /// The effect class.
    pub effect: EffectClass,
    /// `true` if a person is asked before a call.
    pub asks: bool,
    /// `true` for a tool whose calls leave the daemon, so that each call that changes something has a record.
    pub is_outside: bool,
    /// The hash of the definition.
    pub pin: Arc<str>,
    /// The JSON Schema of its parameters.
    pub parameters: Value,
    /// The arguments that no plan leaves to a later step: see [`ToolSpec::sinks`].
    pub sinks: Vec<String>,
    /// The sentences that a lifeform learns from its results.
    pub learn: Vec<Lesson>,
    /// The name in words and the description, for a comparison with a task.
    pub about: String,
    /// `name(parameter, optional?)! What it does.`; `!` marks a tool that changes something.
    pub line: String,
}

impl Grant {
    /// Returns `true` if the grant covers a call. `found` holds the values of the arguments that steps before have found, so that it
    /// is one call, and has its effect once.
    pub(crate) fn covers(&self, tool: &ToolSpec, call: &ToolCall, now: Timestamp, found: &Map<String, Value>) -> bool {
        let Ok(mut given) = serde_json::from_str::<Map<String, Value>>(&call.params) else { return false };
        let mut is_found = |argument: &String| {
            given
                .remove(argument)
                .is_some_and(|value| found.get(argument).is_some_and(|found| ordered(found) == ordered(&value)))
        };
        self.takes.keys().all(&mut is_found)
            && is_same(tool, &given, &self.arguments)
            && *self.tool == *tool.name
            && tool.pin.as_deref() == Some(&*self.pin)
            && now < self.until
    }
}

fn is_same(tool: &ToolSpec, one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let keeps_null = tool.run.keeps_null();
    canonical(one, keeps_null) == canonical(other, keeps_null)
}

/// A call that a plan named before it read words of others.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCall {
    /// The hash of the tool's definition when it was planned.
    pub pin: Arc<str>,
    /// The arguments.
    pub arguments: Map<String, Value>,
}

impl Binding {
    /// Returns `true` if a call is the one that the plan names, word for word, and the step has no other tool of the plan. A person sees
    /// each value of a sink.
    pub(crate) fn plans(&self, tool: &ToolSpec, call: &ToolCall) -> bool {
        let given = serde_json::from_str::<Map<String, Value>>(&call.params);
        let is_planned = |planned: &PlannedCall| {
            tool.pin.as_deref() == Some(&*planned.pin)
                && given.is_ok_and(|given| is_same(tool, &given, &planned.arguments))
        };
        let is_bound = matches!(&self.tools[..], [only] if **only == *tool.name);
        is_bound && tool.sinks.is_empty() && self.planned.as_ref().is_some_and(is_planned)
    }
}

impl Caller {
    /// Makes the effects of the calls those of a plan's step.
    pub(crate) fn bind(&mut self, binding: Binding) {
        if let Some(scope) = &mut self.scope {
            *scope = EffectScope { work: work_of_step(&scope.work, &binding.step), ..scope.clone() };
        }
        self.binding = Some(Arc::new(binding));
    }

    /// Returns the caller as it counts for a call: what a plan named before it read anything is not caused by what was read since.
    pub(crate) fn of_call(&self, tool: &ToolSpec, call: &ToolCall) -> Self {
        let is_planned = self.binding.as_ref().is_some_and(|binding| binding.plans(tool, call));
        Self { tainted: self.tainted && !is_planned, ..self.clone() }
    }
}

/// Returns the work of a step of a goal: see [`EffectScope::work`].
pub fn work_of_step(goal: &str, step: &str) -> Arc<str> {
    format!("{goal}/{step}").into()
}

impl Tools {
    /// Returns the step of a plan for which a neuron runs; `None` for others.
    pub(crate) async fn binding(&self, caller: &Caller) -> Option<Binding> {
        let (job, step) = (caller.job.as_ref()?, caller.step.as_ref()?);
        self.0.given.get()?.bound(&caller.owner, job, step).await
    }

    /// Returns the cards of the tools that an owner was given. Of several with one name the first is called.
    pub async fn cards(&self, owner: &str) -> Vec<ToolCard> {
        let (given, mut names) = (self.given(owner).await, BTreeSet::new());
        given.iter().flatten().filter(|tool| names.insert(&tool.name)).map(|tool| self.card(tool)).collect()
    }

    pub(crate) fn card(&self, tool: &ToolSpec) -> ToolCard {
        let call = ToolCall::default();
        let (effect, caller) = (self.class(tool, &call), Caller::outside("lifeform:"));
        let asked = tool.asked_parameters();
        let required = asked["required"].as_array().cloned().unwrap_or_default();
        let properties = asked["properties"].as_object();
        let named = |name: &String| {
            let is_required = required.iter().any(|one| one == name);
            format!("{name}{}", if is_required { "" } else { "?" })
        };
        let parameters: Vec<String> = properties.into_iter().flatten().map(|(name, _)| named(name)).collect();
        let more = if parameters.len() > CARD_PARAMETERS { ", …" } else { "" };
        let shown = parameters.iter().take(CARD_PARAMETERS).cloned().collect::<Vec<_>>().join(", ");
        let shown: String = shown.chars().take(PARAMETERS_CHARS).collect();
        let described: String = tool.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let described: String = described.chars().filter(|c| !store::is_invisible(*c)).take(CARD_CHARS).collect();
        let writes = if effect > EffectClass::Read { "!" } else { "" };
        ToolCard {
            name: tool.name.as_str().into(),
            effect,
            is_outside: tool.run.is_outside(),
            asks: self.needs_approval(tool, &call, &caller),
            pin: tool.pin.clone().unwrap_or_default(),
            parameters: asked.into_owned(),
            sinks: tool.sinks.clone(),
            learn: tool.learn.clone(),
            about: format!("{}: {described}", tool.name.replace(['_', '-'], " ")),
            line: format!("{}({shown}{more}){writes} {described}", tool.name),
        }
    }
}
