//! The tools for records and resources, under the names of both seeds (MISSION H3, P4): names, parameters and
//! implementations. MCP clients and neurons use the same tools.

mod pulse;

use async_trait::async_trait;
use neurons::tools::{BuiltinTool, Builtins, Caller, Vault};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use store::Origin;

use crate::audience::Audience;
use crate::list::Which;
use crate::promotion::is_trace;
use crate::record::{SCORE, Type};
use crate::search::{Query, TOP_K_MAX};
use crate::skill;
use crate::slim::SlimRules;
use crate::unit::{Form, quality_of};
use crate::write::Change;
use crate::{Draft, Knowledge, KnowledgeError, Record, ResourceDraft, UnitsWanted, check_scope};
use pulse::within;

/// The maximum number of records that a tool lists.
const LISTED_MAX: usize = 100;
/// The maximum number of units that a tool returns.
const UNITS_MAX: usize = 10;
/// The maximum number of skills that a tool returns.
const SKILLS_MAX: usize = 20;

const SEARCH: &str = "Finds what was learned: records that answer a question, the best first.";
const SAVE: &str =
    "Keeps something worth knowing as a record: in which situation it applies (task) and what it says (content).";

/// Returns all tools.
pub fn tools() -> Vec<BuiltinTool> {
    let types = json!({"type": "array", "items": {"enum": Type::ALL.map(Type::as_str)}});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let case = json!({"type": "object", "description": "task, outcome, reason, message_id"});
    let search = json!({"type": "object", "required": ["query"], "properties": {
        "query": {"type": "string"}, "top_k": {"type": "integer", "minimum": 1, "maximum": TOP_K_MAX},
        "min_score": {"type": "number"}, "types": types}});
    let save = json!({"type": "object", "required": ["task", "content", "types"], "properties": {
        "task": {"type": "string"}, "content": {"type": "string"}, "types": types, "tags": {"type": "object"},
        "scopes": texts, "owner": {"type": "string"}, "source_name": {"type": "string"},
        "source_category": {"type": "string"}, "urls": texts, "agent_id": {"type": "string"},
        "submitted_by": {"type": "string"}, "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "message_id": {"type": "string"}, "resource_ids": texts}});
    let tool = |name, description, parameters: &Value, reads| BuiltinTool {
        name,
        description,
        parameters: parameters.clone(),
        reads,
        quotes: reads,
    };
    vec![
        tool("knowledge_search", SEARCH, &search, true),
        tool("get_knowledge", SEARCH, &search, true),
        tool("knowledge_save", SAVE, &save, false),
        tool("save_knowledge", SAVE, &save, false),
        tool(
            "knowledge_update",
            "Says in which case a record helped or did not, scores it, or says what is to be better about it.",
            &json!({"type": "object", "required": ["knowledge_id"], "properties": {
                "knowledge_id": {"type": "string"}, "add_helpful_case": case, "add_harmful_case": case,
                "update_score": {"type": "integer", "minimum": 1, "maximum": 5}, "evolve_feedback": {"type": "string"}}}),
            false,
        ),
        tool(
            "knowledge_batch_update",
            "Says of several records whether they helped.",
            &json!({"type": "object", "required": ["feedback_list"], "properties": {"feedback_list": {"type": "array", "items": {
                "type": "object", "required": ["knowledge_id", "is_helpful"], "properties": {
                    "knowledge_id": {"type": "string"}, "is_helpful": {"type": "boolean"}, "case": case}}}}}),
            false,
        ),
        tool(
            "knowledge_list",
            "Lists records, the newest first.",
            &json!({"type": "object", "properties": {
                "limit": {"type": "integer", "minimum": 1, "maximum": LISTED_MAX}, "types": types, "scopes": texts}}),
            true,
        ),
        tool(
            "knowledge_slim",
            "Merges one's own records that say the same; they can be restored.",
            &json!({
                "type": "object",
                "properties": {"dry_run": {"type": "boolean"}, "model": {"type": "string", "description": "a model or tier that also judges records which share fewer words"}},
            }),
            false,
        ),
        tool(
            "knowledgepulse_retrieve",
            "Reads a KnowledgeUnit (a trace, a pattern, an SOP) by its id, as of a version of the protocol.",
            &json!({"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string"}, "schema_version": {"type": "string"}}}),
            true,
        ),
        tool(
            "kp_search_knowledge",
            "Finds KnowledgeUnits that answer a question.",
            &json!({"type": "object", "required": ["query"], "properties": {
                "query": {"type": "string"}, "types": texts, "domain": {"type": "string"}, "min_quality": {"type": "number"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 10}, "schema_version": {"type": "string"}}}),
            true,
        ),
        tool(
            "kp_contribute_knowledge",
            "Contributes a KnowledgeUnit.",
            &json!({"type": "object", "required": ["unit"], "properties": {
                "unit": {"type": "object"}, "visibility": {"enum": ["private", "org", "network"]}}}),
            false,
        ),
        tool(
            "kp_validate_unit",
            "Says whether a KnowledgeUnit of somebody else holds.",
            &json!({"type": "object", "required": ["unit_id", "valid"], "properties": {
                "unit_id": {"type": "string"}, "valid": {"type": "boolean"}, "feedback": {"type": "string"}}}),
            false,
        ),
        tool(
            "kp_search_skill",
            "Finds skills: guides for how something is done.",
            &json!({"type": "object", "required": ["query"], "properties": {
                "query": {"type": "string"}, "domain": {"type": "string"}, "tags": texts, "min_quality": {"type": "number"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 20}}}),
            true,
        ),
        tool(
            "kp_contribute_skill",
            "Contributes a skill: a SKILL.md, with name and description in its head.",
            &json!({"type": "object", "required": ["skill_md_content"], "properties": {
                "skill_md_content": {"type": "string"}, "visibility": {"enum": ["private", "org", "network"]}}}),
            false,
        ),
        tool(
            "kp_reputation_query",
            "Tells what somebody contributed, and how it was found to hold.",
            &json!({"type": "object", "required": ["agent_id"], "properties": {"agent_id": {"type": "string"}}}),
            true,
        ),
        tool(
            "kp_provider_discover",
            "Tells who keeps units here, and in which versions of the protocol.",
            &json!({"type": "object", "properties": {"capability": {"type": "string"}}}),
            true,
        ),
        tool(
            "resource_save",
            "Keeps what records need: code, a file, an account. What is secret goes into secure_body and nowhere else.",
            &json!({"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string", "description": "a path, as in code/selenium/login"}, "title": {"type": "string"},
                "body": {"type": "string"}, "secure_body": {"type": "string"}, "content_type": {"type": "string"},
                "metadata": {"type": "object"}, "scopes": texts}}),
            false,
        ),
        tool(
            "resource_get",
            "Reads a resource; what is secret of it is named {{secret:id}} in calls of tools, and not shown.",
            &json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}),
            true,
        ),
    ]
}

#[derive(Deserialize)]
struct Search {
    query: String,
    #[serde(default = "five")]
    top_k: usize,
    #[serde(default = "three")]
    min_score: f64,
    #[serde(default)]
    types: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default = "ten")]
    limit: usize,
    #[serde(default)]
    types: Option<Vec<String>>,
    #[serde(default)]
    scopes: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Slim {
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Deserialize)]
struct Judgements {
    feedback_list: Vec<Value>,
}

#[derive(Deserialize)]
struct Unit {
    id: String,
    #[serde(default)]
    schema_version: Option<String>,
}

#[derive(Deserialize)]
struct Units {
    query: String,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    min_quality: f64,
    #[serde(default = "five")]
    limit: usize,
    #[serde(default)]
    schema_version: Option<String>,
}

#[derive(Deserialize)]
struct Contribute {
    unit: Map<String, Value>,
    #[serde(default)]
    visibility: Option<String>,
}

#[derive(Deserialize)]
struct Skills {
    query: String,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    min_quality: f64,
    #[serde(default = "five")]
    limit: usize,
}

#[derive(Deserialize)]
struct ContributeSkill {
    skill_md_content: String,
    #[serde(default)]
    visibility: Option<String>,
}

#[derive(Deserialize)]
struct Validate {
    unit_id: String,
    valid: bool,
    #[serde(default)]
    feedback: Option<String>,
}

#[derive(Deserialize)]
struct Discover {
    #[serde(default)]
    capability: Option<String>,
}

#[derive(Deserialize)]
struct Agent {
    agent_id: String,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

fn five() -> usize {
    5
}

fn three() -> f64 {
    SCORE
}

fn ten() -> usize {
    10
}

impl Knowledge {
    /// Calls a tool on behalf of the caller. Returns `None` for an unknown tool. With an `audience`, records that not all of
    /// its readers may know do not exist, and a record that is made is for those readers.
    ///
    /// # Errors
    /// Returns any [`KnowledgeError`], with a message for the agent.
    pub async fn use_tool(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Option<Result<Value, KnowledgeError>> {
        // The write would happen in the name of the definition's author, who did not request it.
        if origin.principal.limited && tools().iter().any(|tool| tool.name == name && !tool.reads) {
            let why = format!("a definition of {} writes nothing here for others", origin.principal.id);
            return Some(Err(KnowledgeError::Forbidden(why)));
        }
        Some(match name {
            "knowledge_search" | "get_knowledge" => Box::pin(self.tool_search(arguments, origin, audience)).await,
            "knowledge_save" | "save_knowledge" => self.tool_save(arguments, origin, audience).await,
            "knowledge_update" => Box::pin(self.tool_update(arguments, origin, audience)).await,
            "knowledge_batch_update" => match read::<Judgements>(arguments) {
                Ok(asked) => self.judge_all(asked.feedback_list, origin).await.map(|judged| json!(judged)),
                Err(error) => Err(error),
            },
            "knowledge_list" => self.tool_list(arguments, origin, audience).await,
            "knowledge_slim" => match read::<Slim>(arguments) {
                Ok(asked) => {
                    let rules = SlimRules { dry_run: asked.dry_run, model: asked.model, ..SlimRules::default() };
                    let slimmed = Box::pin(self.slim(rules, origin)).await;
                    slimmed.map(|slimmed| json!(slimmed.report(asked.dry_run)))
                }
                Err(error) => Err(error),
            },
            "knowledgepulse_retrieve" => self.tool_unit(arguments, origin, audience).await,
            "kp_search_knowledge" => self.tool_units(arguments, origin, audience).await,
            "kp_contribute_knowledge" => Box::pin(self.tool_contribute(arguments, origin)).await,
            "kp_validate_unit" => self.tool_validate(arguments, origin, audience).await,
            "kp_search_skill" => self.tool_skills(arguments, origin, audience).await,
            "kp_contribute_skill" => Box::pin(self.tool_contribute_skill(arguments, origin)).await,
            "kp_reputation_query" => match read::<Agent>(arguments) {
                Ok(asked) => self.reputation(&asked.agent_id, origin).await.map(|reputation| json!(reputation)),
                Err(error) => Err(error),
            },
            "kp_provider_discover" => match read::<Discover>(arguments) {
                Ok(asked) => {
                    let providers = self.providers(asked.capability.as_deref());
                    Ok(json!({"total": providers.len(), "providers": providers}))
                }
                Err(error) => Err(error),
            },
            "resource_save" => self.tool_save_resource(arguments, origin).await,
            "resource_get" => match read::<Named>(arguments) {
                Ok(asked) => self.resource(&asked.id, origin).await.map(|resource| json!(resource)),
                Err(error) => Err(error),
            },
            _ => return None,
        })
    }

    async fn tool_search(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let asked: Search = read(arguments)?;
        let which = Which { min_score: Some(asked.min_score), ..which(asked.types, None)? };
        let query = Query { which, ..Query::new(asked.query, asked.top_k) };
        // Some records are for others. Raw steps of goals are no knowledge for a model; patterns say what they come to.
        let accepts =
            |record: &Record| self.is_for(record, audience) && !is_trace(record) && !skill::is_shipped(record);
        let among: Option<&(dyn Fn(&Record) -> bool + Sync)> = if audience.is_some() { Some(&accepts) } else { None };
        Ok(Box::pin(self.search_among(&query, among, origin)).await?.to_json(false))
    }

    async fn tool_save(
        &self,
        mut arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        // The tool takes the members of the source as flat parameters.
        let mut source = Map::new();
        for (flat, nested) in [
            ("source_name", "name"),
            ("source_category", "category"),
            ("urls", "urls"),
            ("agent_id", "agent_id"),
            ("submitted_by", "submitted_by"),
        ] {
            source.extend(arguments.remove(flat).map(|value| (nested.to_owned(), value)));
        }
        if !source.is_empty() {
            arguments.insert("source".to_owned(), Value::Object(source));
        }
        // A lesson of a lifeform is a strategy unless it says otherwise.
        if audience.is_some() {
            arguments.entry("types").or_insert_with(|| json!([Type::Strategy.as_str()]));
        }
        let draft = Draft::read(arguments, &origin.principal)?;
        let draft = Draft { provenance: audience.map(Audience::provenance), ..draft };
        let saved = self.save(draft, None, origin).await?;
        Ok(json!({"knowledge_id": saved.record.id, "status": "success", "warnings": saved.warnings}))
    }

    async fn tool_update(
        &self,
        mut arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let id = arguments.remove("knowledge_id");
        let id =
            id.as_ref().and_then(Value::as_str).ok_or_else(|| KnowledgeError::invalid("knowledge_id", "is a text"))?;
        if audience.is_some() && !self.is_for(&self.get(id, origin).await?, audience) {
            return Err(KnowledgeError::NotFound(id.to_owned()));
        }
        let saved = Box::pin(self.change(id, Change::read(arguments, origin)?, None, origin)).await?;
        let record = saved.record;
        Ok(json!({"knowledge_id": record.id, "status": "success", "eval": record.eval, "not_evolved": saved.evolved}))
    }

    async fn tool_list(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let asked: List = read(arguments)?;
        if !(1..=LISTED_MAX).contains(&asked.limit) {
            return Err(KnowledgeError::invalid("limit", format!("is a number from 1 to {LISTED_MAX}")));
        }
        // Some records are for others.
        let limit = if audience.is_some() { LISTED_MAX } else { asked.limit };
        let mut listed = self.list(&which(asked.types, asked.scopes)?, limit, None, origin).await?;
        listed.results.retain(|record| self.is_for(record, audience));
        listed.results.truncate(asked.limit);
        listed.count = listed.results.len();
        Ok(json!(listed))
    }

    async fn tool_unit(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let asked: Unit = read(arguments)?;
        let record = self.unit(&asked.id, origin).await?;
        if !self.is_for(&record, audience) {
            return Err(KnowledgeError::NotFound(asked.id));
        }
        Ok(self.as_unit(&record, None, asked.schema_version.as_deref())?.0)
    }

    async fn tool_units(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let asked: Units = read(arguments)?;
        let parse = |name: &String| {
            let known = Form::parse(name).map(|(form, _)| form);
            known.ok_or_else(|| KnowledgeError::invalid("types", "are Trace, Pattern and SOP"))
        };
        let wanted = UnitsWanted {
            question: Some(asked.query),
            forms: asked.types.iter().map(parse).collect::<Result<_, _>>()?,
            domain: asked.domain,
            min_quality: asked.min_quality,
            offset: 0,
            limit: if audience.is_some() { UNITS_MAX } else { within(asked.limit, UNITS_MAX)? },
        };
        let mut found = self.units(&wanted, origin).await?;
        if audience.is_some() {
            found.records.retain(|record| self.is_for(record, audience));
            found.total = found.records.len();
            found.records.truncate(within(asked.limit, UNITS_MAX)?);
        }
        let version = asked.schema_version.as_deref();
        let units = self.as_units(&found.records, None, version)?;
        let units: Vec<Value> = units.into_iter().map(|(_, unit)| unit).collect();
        Ok(json!({"units": units, "total": found.total}))
    }

    async fn tool_validate(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let asked: Validate = read(arguments)?;
        if audience.is_some() && !self.is_for(&self.unit(&asked.unit_id, origin).await?, audience) {
            return Err(KnowledgeError::NotFound(asked.unit_id));
        }
        let record = self.validate(&asked.unit_id, asked.valid, asked.feedback, origin).await?;
        Ok(json!({"id": asked.unit_id, "validated": true, "valid": asked.valid, "quality_score": quality_of(&record)}))
    }

    async fn tool_save_resource(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
    ) -> Result<Value, KnowledgeError> {
        let draft = ResourceDraft::read(arguments, None, &origin.principal)?;
        let (resource, ..) = self.save_resource(draft, false, origin).await?;
        Ok(json!({"id": resource.id, "status": "success"}))
    }
}

/// The tools as built-in tools of neurons.
#[async_trait]
impl Builtins for Knowledge {
    fn tools(&self) -> Vec<BuiltinTool> {
        tools()
    }

    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        origin: &Origin,
        caller: &Caller,
    ) -> Result<Value, String> {
        let audience = self.audience_of(caller).await;
        match Box::pin(self.use_tool(name, arguments, origin, audience.as_ref())).await {
            Some(done) => done.map_err(|error| error.to_string()),
            None => Err(format!("there is no tool {name}")),
        }
    }
}

/// The source of secrets for tool calls, for callers that may read them.
#[async_trait]
impl Vault for Knowledge {
    async fn hosts(&self, id: &str, origin: &Origin) -> Result<Option<Vec<String>>, String> {
        let resource = self.resource(id, origin).await.map_err(|error| error.to_string())?;
        let hosts = resource.metadata.get("hosts").and_then(Value::as_array);
        Ok(hosts.map(|hosts| hosts.iter().filter_map(Value::as_str).map(str::to_owned).collect()))
    }

    async fn secret(&self, id: &str, why: &str, origin: &Origin) -> Result<SecretString, String> {
        let shown = self.reveal(id, why, origin).await;
        shown.map(|(_, secret)| secret).map_err(|error| error.to_string())
    }
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, KnowledgeError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| KnowledgeError::invalid("arguments", format!(": {error}")))
}

fn which(types: Option<Vec<String>>, scopes: Option<Vec<String>>) -> Result<Which, KnowledgeError> {
    let (types, scopes) = (types.unwrap_or_default(), scopes.unwrap_or_default());
    let types = types.iter().map(|name| Type::parse(name)).collect::<Result<_, _>>();
    let types = types.map_err(|what| KnowledgeError::invalid("types", what))?;
    scopes.iter().try_for_each(|scope| check_scope(scope)).map_err(|what| KnowledgeError::invalid("scopes", what))?;
    Ok(Which { types, scopes: scopes.into_iter().collect(), ..Which::default() })
}
