//! The contributions of agents, and the providers of units (MISSION P4), for clients of the protocol.

use serde::Serialize;
use store::Origin;
use utoipa::ToSchema;

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

/// The contributions of an agent, with their ratings.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Reputation {
    /// The id of the agent, as the caller wrote it.
    pub agent_id: String,
    /// The score: 0.2 a unit, 0.15 an SOP, 0.1 a skill, 0.05 a validation, to two decimals.
    pub score: f64,
    /// The number of contributions.
    pub contributions: u64,
    /// The number of units that the agent validated.
    pub validations: u64,
    /// The number of cases in which the contributions helped.
    pub helpful: u64,
    /// The number of cases in which they did not help.
    pub harmful: u64,
}

/// A provider of units.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Provider {
    /// The name.
    pub name: &'static str,
    /// The path of the units.
    pub endpoint: &'static str,
    /// The version of the schema of units; `None` if there is none yet.
    pub schema_version: Option<String>,
    /// `active`.
    pub status: &'static str,
    /// The capabilities: `knowledge`, `skills`, `validation`, `migration`.
    pub capabilities: [&'static str; 4],
}

impl Knowledge {
    /// Returns the contributions of an agent that the caller may see, and their validations. An unknown agent has none.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read.
    pub async fn reputation(&self, agent: &str, origin: &Origin) -> Result<Reputation, KnowledgeError> {
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
        let score = (score * 1e2).round() / 1e2;
        Ok(Reputation { agent_id: agent.to_owned(), score, contributions, validations, helpful, harmful })
    }

    /// Returns the providers of a capability: this daemon, if it has the capability.
    pub fn providers(&self, capability: Option<&str>) -> Vec<Provider> {
        let now = self.store.clock().now();
        let version = self.schemas().resolve(None, 1, now).map(|resolved| resolved.version.to_string());
        let provider = Provider {
            name: "lifeformd",
            endpoint: "/v1/knowledge",
            schema_version: version.ok(),
            status: "active",
            capabilities: CAPABILITIES,
        };
        capability.is_none_or(|asked| CAPABILITIES.contains(&asked)).then_some(provider).into_iter().collect()
    }
}
