//! Secrets in the texts of records (MISSION H4): if the configuration enables it, each is sealed as a resource.

use std::collections::HashMap;

use nexus::SecretPolicy;
use serde_json::Value;
use store::Origin;
use store::secrets::replaced;

use super::random;
use crate::draft::Body;
use crate::{Knowledge, KnowledgeError, ResourceDraft};

/// The prefix of the ids of resources that the daemon made from secrets in texts.
pub(super) const SEALED_BY_ITSELF: &str = "credentials/auto-";
/// The placeholder for a secret in a dry run.
pub(super) const SEALED: &str = "{{secret:credentials/auto}}";

impl Knowledge {
    /// Seals the secrets found in a text, if the configuration enables it: each secret becomes a resource, and a
    /// reference to the resource replaces it in the text.
    pub(super) async fn seal_found(
        &self,
        body: &mut Body,
        owner: &str,
        scopes: &[String],
        known: &[String],
        origin: &Origin,
    ) -> Result<Vec<String>, KnowledgeError> {
        if self.nexus.secrets() != SecretPolicy::Seal {
            return Ok(Vec::new());
        }
        let (mut drafts, mut names): (Vec<ResourceDraft>, HashMap<String, String>) = Default::default();
        replace_secrets(body, &mut |kind, secret| {
            // The id is random and reveals nothing about the secret. A secret that occurs several times is sealed once.
            let id = names.entry(secret.to_owned()).or_insert_with(|| {
                let id = format!("{SEALED_BY_ITSELF}{}", random());
                drafts.push(ResourceDraft::found(id.clone(), kind, secret, owner, scopes));
                id
            });
            format!("{{{{secret:{id}}}}}")
        });
        let mut warnings = Vec::new();
        for draft in drafts {
            let (resource, ..) = self.save_resource(draft, false, origin).await?;
            warnings.push(format!("{} was sealed as {}", resource.title, resource.id));
            body.resource_ids.get_or_insert_with(|| known.to_vec()).push(resource.id);
        }
        Ok(warnings)
    }
}

/// Replaces each secret in the texts of a record, of its unit and of its further members.
pub(super) fn replace_secrets(body: &mut Body, by: &mut dyn FnMut(&'static str, &str) -> String) {
    for text in [&mut body.task, &mut body.content].into_iter().flatten() {
        if let Some(left) = replaced(text, by) {
            *text = left;
        }
    }
    body.unit.iter_mut().chain(body.extra.values_mut()).for_each(|value| replace_within(value, by));
}

fn replace_within(value: &mut Value, by: &mut dyn FnMut(&'static str, &str) -> String) {
    match value {
        Value::String(text) => {
            if let Some(left) = replaced(text, by) {
                *text = left;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_within(item, by)),
        Value::Object(members) => members.values_mut().for_each(|member| replace_within(member, by)),
        _ => {}
    }
}
