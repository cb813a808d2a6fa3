//! The contributions of agents, and the providers of units (MISSION P4), for clients of the protocol.

use serde_json::{Value, json};
use store::Origin;

use crate::list::Which;
use crate::pulse::shows;
use crate::skill;
use crate::unit::Form;
use crate::{Knowledge, KnowledgeError};

/// The values of contributions, as in the original registry: a unit, an SOP, a skill, and a validated unit.
const UNIT: f64 = 0.2;
const SOP: f64 = 0.15;
const SKILL: f64 = 0.1;
const VALIDATION: f64 = 0.05;

/// The capabilities of this daemon for clients of the protocol.
const CAPABILITIES: [&str; 4] = ["knowledge", "skills", "validation", "migration"];

impl Knowledge {
    /// Returns the contributions of an agent that the caller may see, and their validations. An unknown agent has none.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read.
    pub async fn reputation(&self, agent: &str, origin: &Origin) -> Result<Value, KnowledgeError> {
        let name = agent.strip_prefix("kp:").unwrap_or(agent);
        let validator = format!("kp:validator:{name}");
        let (mut score, mut contributions, mut validations) = (0.0, 0_u64, 0_u64);
        let (mut helpful, mut harmful) = (0, 0);
        let records = self.all(&Which::default(), origin).await?;
        for record in records.iter().filter(|record| shows(record, &origin.principal)) {
            if record.validated_by.contains(&validator) {
                validations += 1;
                score += VALIDATION;
            }
            let is_skill = record.extra.contains_key(skill::MEMBER);
            if record.owner != name || !(is_skill || record.unit.is_some()) {
                continue;
            }
            contributions += 1;
            helpful += record.eval.helpful;
            harmful += record.eval.harmful;
            score += match Form::of(record) {
                _ if is_skill => SKILL,
                Form::Sop => SOP,
                _ => UNIT,
            };
        }
        Ok(json!({
            "agent_id": agent, "score": (score * 1e2).round() / 1e2, "contributions": contributions,
            "validations": validations, "helpful": helpful, "harmful": harmful,
        }))
    }

    /// Returns the provider of a capability, which is always this daemon.
    pub fn provider(&self, capability: Option<&str>) -> Value {
        let now = self.store.clock().now();
        let version = self.schemas().resolve(None, 1, now).map(|resolved| resolved.version.to_string());
        let provider = json!({
            "name": "lifeformd", "endpoint": "/v1/knowledge", "schema_version": version.ok(), "status": "active",
            "capabilities": CAPABILITIES,
        });
        let providers: Vec<Value> =
            capability.is_none_or(|asked| CAPABILITIES.contains(&asked)).then_some(provider).into_iter().collect();
        json!({"total": providers.len(), "providers": providers})
    }
}
