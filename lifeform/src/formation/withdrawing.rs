//! The removal of evidence: what only forgotten statements claim, and whom only they mention, leaves the graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nexus::NexusError;
use serde_json::json;
use store::Origin;

use super::mention::Kind;
use crate::memory::{Memory, SELF, rows};

const MARK: &str = r#"UPDATE ?l SET METADATA { status: $status } WHERE { ?l (id: $link) }"#;
/// Finds active claims of which no active fact is left.
const UNSAID: &str = r#"
FIND(?l) WHERE { (?f, "states", ?l) FILTER(?l.metadata.status == "active") NOT { (?g, "states", ?l) FILTER(?g.metadata.status == "active") } } LIMIT 1000"#;
const DEFINED: &str = r#"FIND(?t) WHERE { ?t {type: "$PropositionType", name: "states"} }"#;
/// Finds the claims of a predicate that no fact states.
const UNSTATED: &str = r#"FIND(?l) WHERE { ?l (?s, $predicate, ?o) NOT { (?f, "states", ?l) } FILTER(IS_NOT_NULL(?l.metadata.heard_by)) } LIMIT 1000"#;

/// Finds that a person stated a claim, where no statement of that person states it any more.
const SAID_NO_LONGER: &str = r#"
FIND(?x.id) WHERE { ?x (?p, "stated", ?l) NOT { (?f, "states", ?l) FILTER(?f.metadata.status == "active" && ?f.metadata.author == ?p.name) } FILTER(?p.name != "$self") } LIMIT 1000"#;

impl Memory {
    /// Removes facts from the evidence: what only they claim, and whom only they mention, leaves the graph.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn withdraw(&self, facts: &[&str], cause: &Origin) -> Result<(), NexusError> {
        /// Deletes what a fact states or mentions.
        const STATES_NO_MORE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l ({id: $fact}, "states", ?c) }"#;
        const MENTIONS_NO_MORE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l ({id: $fact}, "mentions", ?c) }"#;
        /// Deletes the memberships of a fact in domains that filing made.
        const FILED_NO_MORE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l ({id: $fact}, "belongs_to_domain", ?d) FILTER(?l.metadata.source == "filing") }"#;
        if !self.has_claims(cause).await? {
            let _turn = self.take_turn().await;
            for fact in facts {
                self.ask(FILED_NO_MORE, json!({"fact": fact}), cause).await?;
            }
            self.end_descriptions(Some(facts), cause).await?;
            return self.tidy_domains(cause).await;
        }
        /// Deletes that a person said so, where no other statement of it does.
        const SAID_NO_MORE: &str =
            r#"DELETE PROPOSITIONS ?l WHERE { ?l ({type: "Person", name: $person}, "stated", (id: $link)) }"#;
        const OTHERS: &str = r#"FIND(?f) WHERE { (?f, "states", (id: $link)) FILTER(?f.metadata.author == $person && ?f.metadata.status == "active") }"#;
        const STATED: &str =
            r#"FIND(?l, ?f.metadata.author, ?f.attributes.found_by) WHERE { ?f {id: $fact} (?f, "states", ?l) }"#;
        let turn = self.take_turn().await;
        for fact in facts {
            let stated = self.ask(STATED, json!({"fact": fact}), cause).await?;
            for command in [STATES_NO_MORE, MENTIONS_NO_MORE, FILED_NO_MORE] {
                self.ask(command, json!({"fact": fact}), cause).await?;
            }
            for row in rows(&stated) {
                let (link, person) = (&row[0]["id"], &row[1]);
                if rows(&self.ask(OTHERS, json!({"link": link, "person": person}), cause).await?).is_empty() {
                    let teller = if row[2].is_string() { json!(SELF) } else { person.clone() };
                    self.ask(SAID_NO_MORE, json!({"link": link, "person": teller}), cause).await?;
                }
            }
        }
        self.end_descriptions(Some(facts), cause).await?;
        self.tidy_domains(cause).await?;
        drop(turn);
        self.sweep(cause).await.map(drop)
    }

    /// Returns `true` if the mind has the types and predicates of claims.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn has_claims(&self, cause: &Origin) -> Result<bool, NexusError> {
        let has_world: &Arc<AtomicBool> = &self.has_world;
        if !has_world.load(Ordering::Relaxed) {
            let is_defined = !rows(&self.ask(DEFINED, json!({}), cause).await?).is_empty();
            has_world.store(is_defined, Ordering::Relaxed);
        }
        Ok(has_world.load(Ordering::Relaxed))
    }

    /// Removes the claims that no fact states any more, and the concepts that were only heard of and are linked to nothing.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn sweep(&self, cause: &Origin) -> Result<usize, NexusError> {
        /// Deletes a link.
        const DELETE_LINK: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l (id: $link) }"#;
        /// Finds the concepts of a type that no fact mentions and no claim is about.
        const UNMENTIONED: &str = r#"FIND(?e) WHERE { ?e {type: $kind} NOT { (?f, "mentions", ?e) } FILTER(?e.metadata.source == "formation") } LIMIT 1000"#;
        const DELETE: &str = r#"DELETE CONCEPT ?e DETACH WHERE { ?e {id: $concept} }"#;
        let _turn = self.take_turn().await;
        if !self.has_claims(cause).await? {
            return Ok(0);
        }
        let mut removed = 0;
        for said in rows(&self.ask(SAID_NO_LONGER, json!({}), cause).await?) {
            self.ask(DELETE_LINK, json!({"link": said}), cause).await?;
            removed += 1;
        }
        for link in rows(&self.ask(UNSAID, json!({}), cause).await?) {
            self.ask(MARK, json!({"link": link["id"], "status": "retracted"}), cause).await?;
        }
        for predicate in self.predicates_of_claims(cause).await? {
            for link in rows(&self.ask(UNSTATED, json!({"predicate": predicate}), cause).await?) {
                self.ask(DELETE_LINK, json!({"link": link["id"]}), cause).await?;
                removed += 1;
            }
        }
        for kind in [Kind::Person, Kind::Place, Kind::Thing, Kind::Theme] {
            for concept in rows(&self.ask(UNMENTIONED, json!({"kind": kind.type_name()}), cause).await?) {
                self.ask(DELETE, json!({"concept": concept["id"]}), cause).await?;
                removed += 1;
            }
        }
        removed += self.tidy_predicates(cause).await? + self.tidy_conflicts(cause).await?;
        Ok(removed)
    }
}
