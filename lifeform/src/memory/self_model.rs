//! `$self`, the self-model that speaks: what the prompts of a lifeform say of it is read from its mind.

use nexus::{NexusError, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use store::Origin;

use super::{Memory, rows};

/// Gives the concept `$self` its principal id, its name and its persona.
const NAME_SELF: &str = r#"
UPSERT { CONCEPT ?me { {type: "Person", name: "$self"} SET ATTRIBUTES { id: $id, name: $name, persona: $persona, defined_as: $defined } } }
WITH METADATA { source: "birth", confidence: 1.0 }"#;

/// Removes what `$self` says of itself besides name and persona.
const UNGROWN: &str =
    r#"UPSERT { CONCEPT ?me { {type: "Person", name: "$self"} SET ATTRIBUTES { voice: "", capabilities: [] } } }"#;

/// Reads the self-model.
const SELF: &str = r#"FIND(?me) WHERE { ?me {type: "Person", name: "$self"} }"#;

/// Sets the capabilities of the lifeform.
const ABLE: &str =
    r#"UPSERT { CONCEPT ?me { {type: "Person", name: "$self"} SET ATTRIBUTES { capabilities: $capabilities } } }"#;

/// Sets the voice of the lifeform.
const VOICE: &str = r#"UPSERT { CONCEPT ?me { {type: "Person", name: "$self"} SET ATTRIBUTES { voice: $voice } } }"#;

/// The maximum number of directives and capabilities that a prompt names, and the maximum length of one, in characters.
const DIRECTIVES_MAX: usize = 6;
const DIRECTIVE_CHARS: usize = 40;
const CAPABILITIES_MAX: usize = 4;
const CAPABILITY_CHARS: usize = 60;

/// The part of the self-model that speaks in each prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SelfModel {
    pub(crate) name: String,
    pub(crate) persona: String,
    /// The tone, length and form of its answers, as people whom it trusts asked for it; empty if nobody did.
    pub(crate) voice: String,
    /// The names of the core directives, in short.
    pub(crate) directives: Vec<String>,
    /// The things that it has done so far, in short.
    pub(crate) capabilities: Vec<String>,
}

/// The attributes of `$self`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    name: Option<String>,
    persona: Option<String>,
    voice: Option<String>,
    core_directives: Vec<Directive>,
    capabilities: Vec<Value>,
    defined_as: Value,
}

/// A core directive.
#[derive(Clone, Debug, Deserialize)]
struct Directive {
    name: String,
}

impl Memory {
    async fn self_attributes(&self, cause: &Origin) -> Result<Attributes, NexusError> {
        let found = self.run(SELF, json!({}), cause).await?;
        let own = rows(&found).first().and_then(|me| Attributes::deserialize(&me["attributes"]).ok());
        Ok(own.unwrap_or_default())
    }

    /// Gives `$self` its name, its persona and the id of its principal at birth, and when the definition has changed.
    /// Later changes by reflection or by an operator stay.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn name_self(&self, name: &str, persona: &str) -> Result<(), NexusError> {
        let defined = json!({"name": name, "persona": persona});
        let own = self.self_attributes(&self.me).await?;
        if own.defined_as == defined {
            return Ok(());
        }
        if own.defined_as.is_null() && (own.voice.is_some() || !own.capabilities.is_empty()) {
            // From before only the daemon and operators wrote them.
            self.run(UNGROWN, json!({}), &self.me).await?;
        }
        let id = &self.me.principal.id;
        let named = json!({"id": id, "name": name, "persona": persona, "defined": defined});
        self.run(NAME_SELF, named, &self.me).await.map(drop)
    }

    /// Returns the self-model. Only the daemon and operators write the attributes that it reads. `name` and `persona`
    /// stand for those that `$self` does not have.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn self_model(&self, name: &str, persona: &str, cause: &Origin) -> Result<SelfModel, NexusError> {
        let own = self.self_attributes(cause).await?;
        let short = |directive: &Directive| {
            let name = directive.name.split('(').next().unwrap_or_default();
            let name = name.strip_prefix("Principle of ").unwrap_or(name).trim();
            name.chars().take(DIRECTIVE_CHARS).collect::<String>()
        };
        let able = own.capabilities.iter().filter_map(Value::as_str);
        let text = |own: Option<String>, other: &str| {
            own.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| other.to_owned())
        };
        Ok(SelfModel {
            directives: own.core_directives.iter().take(DIRECTIVES_MAX).map(short).collect(),
            capabilities: able.take(CAPABILITIES_MAX).map(|one| one.chars().take(CAPABILITY_CHARS).collect()).collect(),
            name: text(own.name, name),
            persona: text(own.persona, persona),
            voice: own.voice.unwrap_or_default(),
        })
    }

    /// Sets what `$self` can do and, with a `voice`, how it speaks, in the name of `$system`. Returns the KIP commands.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn grow_self(
        &self,
        capabilities: &[String],
        voice: Option<&str>,
        system: &Origin,
    ) -> Result<Vec<Value>, NexusError> {
        let own = self.self_attributes(system).await?;
        let known: Vec<&str> = own.capabilities.iter().filter_map(Value::as_str).collect();
        let able = (known != capabilities).then(|| (ABLE, json!({"capabilities": capabilities})));
        let voice = voice.filter(|voice| own.voice.as_deref() != Some(voice));
        let voice = voice.map(|voice| (VOICE, json!({"voice": voice})));
        let mut kip = Vec::new();
        for (command, parameters) in able.into_iter().chain(voice) {
            let answer = self.execute(Request::with(command, parameters.clone()), system).await?;
            if let Some(error) = answer.get("error") {
                tracing::error!(%error, "$self cannot grow");
            }
            kip.push(json!({"command": command, "parameters": parameters}));
        }
        Ok(kip)
    }
}
