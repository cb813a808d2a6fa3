//! Links of records to the resources that they need (MISSION H4), updated with the records' content.

use std::fmt::Write;

use nexus::kip::Call;
use nexus::kip::graph::SCOPES_KEY;
use nexus::{OWNER_KEY, WriteAuthority};
use serde_json::{Map, Value, json};
use store::Origin;

use crate::record::{KIND, Record};
use crate::write::write_object;
use crate::{Knowledge, KnowledgeError, commons, outcome};

impl Knowledge {
    /// Removes the links to resources that a record no longer needs.
    pub(crate) async fn release_resources(
        &self,
        id: &str,
        before: &Record,
        wanted: &[String],
        origin: &Origin,
    ) -> Result<(), KnowledgeError> {
        for gone in before.resource_ids.iter().filter(|resource| !wanted.contains(resource)) {
            let command = r#"DELETE PROPOSITIONS ?l WHERE { ?l ({type: "Knowledge", name: $id}, "uses_resource", {type: "Resource", name: $gone}) }"#;
            self.kip(command, json!({"id": id, "gone": gone}), WriteAuthority::Own, Vec::new(), id, origin).await?;
        }
        Ok(())
    }

    /// Updates the links of a record after a change; `before` is its earlier state. Resources that do not exist are not
    /// linked.
    pub(crate) async fn link_anew(&self, before: &Record, origin: &Origin) -> Result<(), KnowledgeError> {
        let id = &before.id;
        let now = self.seen(id, origin).await?;
        self.release_resources(id, before, &now.resource_ids, origin).await?;
        self.link(&now, &before.resource_ids, origin).await
    }

    /// Links a record to the resources that were created after the record was written.
    pub(crate) async fn link_what_came_later(&self, record: &Record, origin: &Origin) -> Result<(), KnowledgeError> {
        if record.resource_ids.is_empty() {
            return Ok(());
        }
        let linked = r#"FIND(?r.name) WHERE { ({type: "Knowledge", name: $id}, "uses_resource", ?r) }"#;
        let linked = self.asked(linked, json!({"id": record.id}), origin).await?;
        let linked: Vec<String> =
            linked.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        self.link(record, &linked, origin).await
    }

    /// Links a record to the existing resources that it names, except those in `linked`.
    async fn link(&self, record: &Record, linked: &[String], origin: &Origin) -> Result<(), KnowledgeError> {
        let mut there = Vec::new();
        for resource in record.resource_ids.iter().filter(|resource| !linked.contains(resource)) {
            match self.resource(resource, origin).await {
                Ok(_) => there.push(resource.clone()),
                Err(KnowledgeError::NoResource(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if there.is_empty() {
            return Ok(());
        }
        let id = &record.id;
        let (mut command, mut parameters) = ("UPSERT {\n".to_owned(), Map::from_iter([("id".to_owned(), json!(id))]));
        write_links(&mut command, &there, (&record.owner, &record.scopes), &mut parameters);
        command.push('}');
        let call = Call { command, parameters };
        outcome(&self.nexus.write_with(&commons(), call, origin, WriteAuthority::Own, Vec::new()).await?, id).map(drop)
    }
}

/// Adds the links of the record `$id` to resources to a command. The links have the owner and scopes of the record, but
/// none of its other metadata.
pub(crate) fn write_links(
    text: &mut String,
    resources: &[String],
    whose: (&str, &[String]),
    parameters: &mut Map<String, Value>,
) {
    let _ = write!(text, "  CONCEPT ?l {{\n    {{type: \"{KIND}\", name: $id}}\n    SET PROPOSITIONS {{\n");
    for (at, resource) in resources.iter().enumerate() {
        let _ = writeln!(text, "      (\"uses_resource\", {{type: \"Resource\", name: $r{at}}})");
        parameters.insert(format!("r{at}"), resource.as_str().into());
    }
    text.push_str("    }\n  }");
    let (owner, scopes) = whose;
    let whose = Map::from_iter([(OWNER_KEY.to_owned(), owner.into()), (SCOPES_KEY.to_owned(), json!(scopes))]);
    write_object(text, " WITH METADATA", "l_", &whose, parameters);
    text.push('\n');
}
