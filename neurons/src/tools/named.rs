//! Named tools: an operator defines a tool once, in the configuration or over the API, and neurons, fascicles and lifeforms
//! refer to it by its id (`docs/src/guides/give-it-a-tool.md`).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Hash, json as text};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::bound::Binding;
use super::effect::EffectClass;
use super::limits::ToolLimits;
use super::spec::{Approval, Runner, ToolSpec, any_object, is_default};

/// The id of a named tool: the name that models see, or the beginning of the names if it stands for several tools.
pub type ToolId = Arc<str>;

/// The principals whose definitions may refer to a named tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Give {
    /// Only operators refer to the tool and give it to lifeforms.
    #[default]
    Operator,
    /// Participants refer to the tool in their neurons and fascicles, too.
    Participant,
}

/// A tool that is defined once and referred to by its id. It has the members of [`ToolSpec`]; calls that may change something
/// need an approval unless `approval` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct NamedTool {
    /// The tool. Its name is the id.
    pub tool: ToolSpec,
    /// The principals whose definitions may refer to it. Default: operators.
    pub give: Give,
}

// A schema of two parts would refuse the members of one part by the other, since neither takes unknown members.
impl PartialSchema for NamedTool {
    fn schema() -> RefOr<Schema> {
        let mut schema = ToolSpec::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.insert("give".to_owned(), Ref::from_schema_name(Give::name()).into());
            object.required.retain(|member| member != "name");
            let text = "A tool that is defined once and referred to by its id: a tool, and who may give it. Calls that may change \
                        something need an approval unless `approval` says otherwise.";
            object.description = Some(text.to_owned());
        }
        schema
    }
}

impl ToSchema for NamedTool {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        ToolSpec::schemas(schemas);
        Give::schemas(schemas);
        schemas.push((Give::name().into_owned(), Give::schema()));
    }
}

impl From<NamedTool> for Map<String, Value> {
    fn from(named: NamedTool) -> Self {
        let mut members = match serde_json::to_value(&named.tool) {
            Ok(Value::Object(members)) => members,
            _ => Self::new(),
        };
        // A tool's own default is another one.
        members.insert("approval".into(), serde_json::to_value(named.tool.approval).unwrap_or_default());
        members.insert("give".into(), serde_json::to_value(named.give).unwrap_or_default());
        members
    }
}

impl TryFrom<Map<String, Value>> for NamedTool {
    type Error = String;

    fn try_from(mut members: Map<String, Value>) -> Result<Self, String> {
        let give = members.remove("give").map(serde_json::from_value).transpose();
        let give = give.map_err(|error| format!("give: {error}"))?.unwrap_or_default();
        members.entry("name").or_insert_with(|| Value::String(String::new()));
        if members.get("approval").is_none_or(Value::is_null) {
            members.insert("approval".into(), serde_json::to_value(Approval::OnWrite).unwrap_or_default());
        }
        let tool = serde_json::from_value(Value::Object(members)).map_err(|error| error.to_string())?;
        Ok(Self { tool, give })
    }
}

impl NamedTool {
    /// Takes the id as its name and checks what deserialization cannot check.
    ///
    /// # Errors
    /// A sentence that names the member and the fault.
    pub fn named(mut self, id: &str) -> Result<Self, String> {
        if !self.tool.name.is_empty() && self.tool.name != id {
            return Err(format!("name: it is \"{}\", and the id is \"{id}\"; leave it out", self.tool.name));
        }
        id.clone_into(&mut self.tool.name);
        self.tool.check()?;
        match &self.tool.run {
            Runner::Http(_) | Runner::Openapi(_) | Runner::Mcp(_) | Runner::Fascicle(_) | Runner::Calculate(_) => {
                Ok(self)
            }
            _ => Err("run is http, openapi, mcp, fascicle or calculate".into()),
        }
    }

    /// Returns the mark by which a call finds out whether the tool is still as it was when it was offered.
    fn pin(&self) -> Arc<str> {
        format!("{}@{}", self.tool.name, &Hash::of(&text(self)).hex()[..16]).into()
    }
}

/// A reference of a lifeform to a named tool. It may be stricter than the tool's own rules, never laxer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolUse {
    /// The id of the named tool.
    #[serde(rename = "use")]
    #[schema(value_type = String)]
    pub tool: ToolId,
    /// The effect class, if it is more serious than the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
    /// The calls that need an approval, if it is stricter than the tool's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The limits, if they are stricter than the tool's own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ToolLimits,
}

/// The tools that lifeforms were given.
#[async_trait]
pub trait GivenTools: Send + Sync + 'static {
    /// Returns the tools that an owner of jobs was given; none for an owner that is no lifeform.
    async fn given(&self, owner: &str) -> Vec<ToolUse>;

    /// Returns the step of a goal's plan that a step of a job carries out; `None` if it carries out none.
    async fn bound(&self, owner: &str, job: &str, step: &str) -> Option<Binding>;
}

/// The named tools of this daemon.
pub(super) struct NamedTools {
    /// The tools of the configuration, which the API cannot change.
    configured: BTreeMap<ToolId, NamedTool>,
    /// The tools of the daemon itself, each used unless the configuration or the API defines one with its id.
    shipped: BTreeMap<ToolId, NamedTool>,
    stored: RwLock<BTreeMap<ToolId, NamedTool>>,
}

impl NamedTools {
    pub(super) fn new(configured: BTreeMap<ToolId, NamedTool>, shipped: BTreeMap<ToolId, NamedTool>) -> Self {
        Self { configured, shipped, stored: RwLock::default() }
    }

    pub(super) fn is_configured(&self, id: &str) -> bool {
        self.configured.contains_key(id)
    }

    /// Returns `true` if the tool with this id is the daemon's own.
    pub(super) fn is_shipped(&self, id: &str) -> bool {
        let is_stored = || self.stored.read().unwrap_or_else(PoisonError::into_inner).contains_key(id);
        self.shipped.contains_key(id) && !self.is_configured(id) && !is_stored()
    }

    pub(super) fn get(&self, id: &str) -> Option<NamedTool> {
        let stored = || self.stored.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        self.configured.get(id).cloned().or_else(stored).or_else(|| self.shipped.get(id).cloned())
    }

    pub(super) fn set(&self, id: &ToolId, tool: Option<NamedTool>) {
        let mut stored = self.stored.write().unwrap_or_else(PoisonError::into_inner);
        match tool {
            Some(tool) => stored.insert(id.clone(), tool),
            None => stored.remove(id),
        };
    }

    pub(super) fn all(&self) -> Vec<(ToolId, NamedTool)> {
        let mut all = self.shipped.clone();
        all.extend(self.stored.read().unwrap_or_else(PoisonError::into_inner).clone());
        all.extend(self.configured.clone());
        all.into_iter().collect()
    }

    /// Returns the tool that a definition refers to, with the stricter approval and limits of the reference.
    ///
    /// # Errors
    /// A sentence if there is no such tool, or if the author may not refer to it.
    pub(super) fn resolved(&self, by: &ToolSpec, id: &str, is_operators: bool) -> Result<ToolSpec, String> {
        let known = self.get(id).ok_or_else(|| {
            let names: Vec<String> = self.all().iter().map(|(id, _)| id.to_string()).collect();
            format!("there is no named tool \"{id}\"; there are {names:?}")
        })?;
        if known.give == Give::Operator && !is_operators {
            return Err(format!("the tool \"{id}\" is given by operators only"));
        }
        let pin = Some(known.pin());
        let mut tool = known.tool;
        by.name.clone_into(&mut tool.name);
        if !by.description.is_empty() {
            by.description.clone_into(&mut tool.description);
        }
        tool.approval = tool.approval.max(by.approval);
        tool.limits = tool.limits.at_most(by.limits);
        tool.pin = pin;
        Ok(tool)
    }

    /// Checks that the tool that was offered is the tool that there is now.
    ///
    /// # Errors
    /// A sentence for the model.
    pub(super) fn check_pin(&self, pin: &str) -> Result<(), String> {
        let id = pin.split('@').next().unwrap_or(pin);
        match self.get(id) {
            None => Err(format!("the tool {id} is gone")),
            Some(known) if *known.pin() != *pin => Err(format!("the tool {id} was changed since it was offered")),
            Some(_) => Ok(()),
        }
    }
}

impl ToolUse {
    /// Returns the reference as an entry of a neuron's tools.
    pub(super) fn as_spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.tool.to_string(),
            parameters: any_object(),
            run: Runner::Named(self.tool.to_string()),
            approval: self.approval.unwrap_or_default(),
            effect: self.effect,
            limits: self.limits,
            ..ToolSpec::default()
        }
    }

    /// Checks what deserialization cannot check.
    ///
    /// # Errors
    /// A sentence that names the member and the fault.
    pub fn check(&self) -> Result<(), String> {
        self.as_spec().check()
    }
}
