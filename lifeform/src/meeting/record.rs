//! The record of a meeting in the mind: an event, an intention for each item, a question for each item that waits for a
//! decision, the views of people as links, and each decision as a fact with the views that it follows.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use nexus::{NexusError, Request};
use serde_json::{Map, Value, json};
use store::Origin;

use super::texts::Texts;
use super::{Item, Meeting, Side};
use crate::maintenance::gardener;
use crate::memory::{Fact, Memory, Stated, rows};
use crate::perception::ThreadRef;

const MEETING: &str = include_str!("../../../config/capsules/meeting.kip");
const DEFINED: &str = r#"FIND(?p) WHERE { ?p {type: "$PropositionType", name: "on_agenda_of"} }"#;
const KNOWN: &str = r#"FIND(?p) WHERE { ?p {type: "Person", name: $person} }"#;
/// Finds the views about an item.
const VIEWS: &str = r#"
FIND(?l, ?p.name) WHERE { ?i {type: "Intention", name: $item} ?l (?p, "supports" | "opposes", ?i) FILTER(?l.metadata.status == "active") } LIMIT 200"#;
/// Finds the facts that decide an item.
const DECISIONS: &str = r#"
FIND(?f) WHERE { ?i {type: "Intention", name: $item} (?f, "decides", ?i) FILTER(?f.metadata.status == "active") } LIMIT 20"#;
const WITHDRAW: &str = r#"UPDATE ?l SET METADATA { status: "retracted" } WHERE { ?l (id: $link) }"#;

/// A command that is written piece by piece. Values are parameters, so words of people are never part of the command.
#[derive(Default)]
struct Command {
    text: String,
    parameters: Map<String, Value>,
}

impl Command {
    fn value(&mut self, value: Value) -> String {
        let name = format!("p{}", self.parameters.len());
        self.parameters.insert(name.clone(), value);
        format!("${name}")
    }
}

impl Meeting {
    fn name(&self, place: &ThreadRef) -> String {
        format!("meeting {} {} {}", place.canvas, place.topic, self.rev)
    }

    fn item_name(&self, place: &ThreadRef, n: usize) -> String {
        format!("{} item {}", self.name(place), n + 1)
    }
}

fn predicate_of(side: Side) -> &'static str {
    if side == Side::Against { "opposes" } else { "supports" }
}

impl Memory {
    /// Writes the state of a meeting into the mind. A repetition changes nothing.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn record_meeting(
        &self,
        meeting: &Meeting,
        (place, stream): (&ThreadRef, &str),
        audience: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        self.learn_world(cause).await?;
        if rows(&self.ask(DEFINED, json!({}), cause).await?).is_empty() {
            let answer = self.execute(Request::with(MEETING, json!({})), &gardener(cause.cause.clone())).await?;
            if let Some(error) = answer.get("error") {
                return Err(NexusError::Refused(format!("the capsule of meetings is refused: {error}")));
            }
        }
        let decided = self.learn_decisions(meeting, (place, stream), audience, cause).await?;
        let mut command = Command::default();
        let event = command.value(meeting.name(place).into());
        let title = command.value(meeting.title.clone().into());
        let outcome = if meeting.current().is_none() { "over" } else { "under way" };
        let _ = writeln!(
            command.text,
            "CONCEPT ?event {{ {{type: \"Event\", name: {event}}} SET ATTRIBUTES {{ name: {title}, kind: \"meeting\", outcome: \"{outcome}\" }} }}"
        );
        for (n, item) in meeting.items.iter().enumerate() {
            self.draft_item(&mut command, meeting, (place, stream, n), decided[n].as_deref(), cause).await?;
            self.withdraw_views(meeting, (place, n), item, cause).await?;
        }
        let (source, scopes) =
            (command.value(json!(format!("{stream}@{}", meeting.rev))), command.value(json!(audience)));
        let text = format!(
            "UPSERT {{\n{}}}\nWITH METADATA {{ source: {source}, status: \"active\", confidence: 1.0, access_scopes: {scopes} }}",
            command.text
        );
        self.run_checked(&text, Value::Object(command.parameters), cause).await.map(drop)
    }

    async fn draft_item(
        &self,
        command: &mut Command,
        meeting: &Meeting,
        (place, stream, n): (&ThreadRef, &str, usize),
        decided: Option<&str>,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let item = &meeting.items[n];
        let state = match (&item.decision, item.is_left) {
            (Some(_), _) => "done",
            (None, true) => "dropped",
            (None, false) => "open",
        };
        let (name, text) = (command.value(meeting.item_name(place, n).into()), command.value(item.text.clone().into()));
        let _ = writeln!(
            command.text,
            "CONCEPT ?item{n} {{ {{type: \"Intention\", name: {name}}} SET ATTRIBUTES {{ name: {text}, kind: \"agenda item\", state: \"{state}\" }} SET PROPOSITIONS {{ (\"on_agenda_of\", ?event) }} }}"
        );
        if item.is_summed {
            let (name, state) = (
                command.value(format!("{} question", meeting.item_name(place, n)).into()),
                if state == "open" { "open" } else { "answered" },
            );
            let _ = writeln!(
                command.text,
                "CONCEPT ?question{n} {{ {{type: \"Question\", name: {name}}} SET ATTRIBUTES {{ name: {text}, kind: \"agenda item\", state: \"{state}\" }} SET PROPOSITIONS {{ (\"on_agenda_of\", ?event) }} }}"
            );
        }
        for (who, view) in &item.views {
            let Some(side) = view.side else { continue };
            let source = format!("{stream}@{}", view.posted_at);
            if rows(&self.ask(KNOWN, json!({"person": who}), cause).await?).is_empty() {
                if view.posted_at == 0 {
                    continue;
                }
                let (person, message, source) = (&**who, &*view.message, source.as_str());
                self.meet(Stated { person, topic: &place.topic, message, canvas: &place.canvas, source }, cause)
                    .await?;
            }
            let (person, evidence) = (command.value(json!(who)), command.value(json!([source, view.message])));
            let side_name = command.value(Texts(meeting).side(item, side).into());
            let _ = writeln!(
                command.text,
                "PROPOSITION {{ ({{type: \"Person\", name: {person}}}, \"{}\", ?item{n}) SET ATTRIBUTES {{ side: {side_name} }} }} WITH METADATA {{ author: {person}, evidence: {evidence}, status: \"active\" }}",
                predicate_of(side)
            );
        }
        if let Some(fact) = decided {
            let fact = command.value(fact.into());
            let _ = writeln!(
                command.text,
                "CONCEPT ?fact{n} {{ {{id: {fact}}} SET ATTRIBUTES {{ modality: \"decided\" }} SET PROPOSITIONS {{ (\"decides\", ?item{n}) }} }}"
            );
        }
        Ok(())
    }

    /// Stores each decision as a fact of the person who decided, and returns the fact of each item.
    async fn learn_decisions(
        &self,
        meeting: &Meeting,
        (place, stream): (&ThreadRef, &str),
        audience: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<Vec<Option<String>>, NexusError> {
        let mut facts = Vec::with_capacity(meeting.items.len());
        for (n, item) in meeting.items.iter().enumerate() {
            let Some(decision) = &item.decision else {
                facts.push(None);
                continue;
            };
            let known = self.ask(DECISIONS, json!({"item": meeting.item_name(place, n)}), cause).await?;
            let known = rows(&known).iter().find(|fact| fact["attributes"]["message"] == *decision.message);
            if let Some(known) = known {
                facts.push(known["id"].as_str().map(str::to_owned));
                continue;
            }
            let source =
                format!("{stream}@{}", item.views.values().map(|view| view.posted_at).max().unwrap_or(meeting.rev));
            let person = decision.by.first().map(|who| &**who).unwrap_or_default();
            let stated = Stated {
                person,
                topic: &place.topic,
                message: &decision.message,
                canvas: &place.canvas,
                source: &source,
            };
            if rows(&self.ask(KNOWN, json!({"person": person}), cause).await?).is_empty() {
                self.meet(stated, cause).await?;
            }
            let statement = Texts(meeting).decision(item);
            let learned =
                self.learn(stated, &[Fact::plain(&statement, &item.text)], audience, &[], || true, cause).await?;
            facts.push(learned.into_iter().next());
        }
        Ok(facts)
    }

    /// Withdraws the views that their messages no longer state.
    async fn withdraw_views(
        &self,
        meeting: &Meeting,
        (place, n): (&ThreadRef, usize),
        item: &Item,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let found = self.ask(VIEWS, json!({"item": meeting.item_name(place, n)}), cause).await?;
        for row in rows(&found) {
            let (link, who) = (&row[0], row[1].as_str().unwrap_or_default());
            let now = item.views.get(who).and_then(|view| view.side).map(predicate_of);
            if now != link["predicate"].as_str() {
                self.run_checked(WITHDRAW, json!({"link": link["id"]}), cause).await?;
            }
        }
        Ok(())
    }
}
