//! The record of a meeting in the mind: an event, an intention for each item, a question for each item that waits for a
//! decision, the views of people as links, and each decision as a fact.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use nexus::{NexusError, Request};
use serde_json::{Map, Value, json};
use store::{Hash, Origin};

use super::texts::Texts;
use super::{Decision, Item, Meeting, Post, Side};
use crate::maintenance::gardener;
use crate::memory::{Fact, Memory, Stated, rows};
use crate::perception::ThreadRef;

const MEETING: &str = include_str!("../../../config/capsules/meeting.kip");
const DEFINED: &str = r#"FIND(?p) WHERE { ?p {type: "$PropositionType", name: "on_agenda_of"} }"#;
const KNOWN: &str = r#"FIND(?p) WHERE { ?p {type: "Person", name: $person} }"#;
/// Finds the views about an item.
const VIEWS: &str = r#"
FIND(?l, ?p.name) WHERE { ?i {type: "Intention", name: $item} ?l (?p, "supports" | "opposes", ?i) FILTER(?l.metadata.status == "active") } LIMIT 200"#;
/// Finds the facts that decide an item, whatever became of them.
const DECISIONS: &str = r#"
FIND(?f) WHERE { ?i {type: "Intention", name: $item} (?f, "decides", ?i) } LIMIT 50"#;
/// Finds an item with the decision that it was recorded with.
const ITEM: &str = r#"FIND(?i.attributes.decided_in) WHERE { ?i {type: "Intention", name: $item} }"#;
const WITHDRAW: &str = r#"UPDATE ?l SET METADATA { status: "retracted" } WHERE { ?l (id: $link) }"#;
const WITHDRAW_FACT: &str = r#"UPDATE ?f SET METADATA { status: "retracted" } WHERE { ?f {id: $fact} }"#;
/// Finds the meetings that are under way.
const UNDER_WAY: &str = r#"
FIND(?e.name) WHERE { ?e {type: "Event"} FILTER(?e.attributes.kind == "meeting" && ?e.attributes.outcome == "under way" && STARTS_WITH(?e.name, $prefix)) } LIMIT 50"#;
const CLOSE: &str = r#"
UPDATE ?e SET ATTRIBUTES { outcome: "ended" } WHERE { ?e {type: "Event", name: $event} }"#;
const DROP: &str = r#"
UPDATE ?i SET ATTRIBUTES { state: "dropped" } WHERE { ?e {type: "Event", name: $event} (?i, "on_agenda_of", ?e) FILTER(?i.attributes.state == "open") }"#;

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

/// The place of the meeting: its topic, the stream of its canvas, and those who may see it.
#[derive(Clone, Copy)]
struct Where<'a> {
    place: &'a ThreadRef,
    stream: &'a str,
    audience: &'a BTreeSet<String>,
    cause: &'a Origin,
}

fn prefix_of(place: &ThreadRef) -> String {
    format!("meeting {} {} ", place.canvas, place.topic)
}

impl Meeting {
    fn name(&self, place: &ThreadRef) -> String {
        format!("{}{}", prefix_of(place), self.rev)
    }

    fn item_name(&self, place: &ThreadRef, n: usize) -> String {
        format!("{} item {}", self.name(place), n + 1)
    }

    /// Returns the part of the state that the mind holds, as text, to see whether it changed.
    pub(crate) fn state(&self) -> String {
        let items = self.items.iter().map(|item| (&item.views, &item.decision, &item.left_by, item.is_summed));
        format!("{:?}", items.collect::<Vec<_>>())
    }
}

impl Item {
    fn state(&self) -> &'static str {
        match () {
            () if self.decision.is_some() => "done",
            () if self.left_by.is_some() => "dropped",
            () => "open",
        }
    }
}

impl Decision {
    /// Returns the name of the decision: its message with the words that it had.
    fn name(&self) -> String {
        format!("{}/{}", self.message, &Hash::of(self.text.as_bytes()).hex()[..16])
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
        self.close_meetings(place, Some(meeting), cause).await?;
        let at = Where { place, stream, audience, cause };
        let mut command = Command::default();
        let (event, title) = (command.value(meeting.name(place).into()), command.value(meeting.title.clone().into()));
        let metadata = metadata(&mut command, &format!("{stream}@{}", meeting.rev), audience);
        let outcome = if meeting.current().is_none() { "over" } else { "under way" };
        let _ = writeln!(
            command.text,
            "CONCEPT ?event {{ {{type: \"Event\", name: {event}}} SET ATTRIBUTES {{ name: {title}, kind: \"meeting\", outcome: \"{outcome}\" }} }} {metadata}"
        );
        let mut outdated = Vec::new();
        for n in 0..meeting.items.len() {
            let decided = self.learn_decision(meeting, n, at).await?;
            self.draft_item(&mut command, (meeting, n), &metadata, decided.as_deref(), at).await?;
            outdated.extend(self.draft_views(&mut command, (meeting, n), at).await?);
        }
        let text = format!("UPSERT {{\n{}}}", command.text);
        self.run_checked(&text, Value::Object(command.parameters), cause).await?;
        for link in outdated {
            self.run_checked(WITHDRAW, json!({"link": link}), cause).await?;
        }
        Ok(())
    }

    /// Ends the meetings of a topic that are under way in the mind, besides one.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn close_meetings(
        &self,
        place: &ThreadRef,
        besides: Option<&Meeting>,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        if !self.has_claims(cause).await? {
            return Ok(());
        }
        let present = besides.map(|meeting| meeting.name(place));
        let found = self.ask(UNDER_WAY, json!({"prefix": prefix_of(place)}), cause).await?;
        let open = rows(&found).iter().filter_map(Value::as_str).filter(|name| present.as_deref() != Some(name));
        for event in open {
            for command in [DROP, CLOSE] {
                self.run_checked(command, json!({"event": event}), cause).await?;
            }
        }
        Ok(())
    }

    async fn draft_item(
        &self,
        command: &mut Command,
        (meeting, n): (&Meeting, usize),
        metadata: &str,
        decided: Option<&str>,
        at: Where<'_>,
    ) -> Result<(), NexusError> {
        let item = &meeting.items[n];
        let (name, text) =
            (command.value(meeting.item_name(at.place, n).into()), command.value(item.text.clone().into()));
        let decided_in = command.value(json!(item.decision.as_ref().map(Decision::name)));
        let _ = writeln!(
            command.text,
            "CONCEPT ?item{n} {{ {{type: \"Intention\", name: {name}}} SET ATTRIBUTES {{ name: {text}, kind: \"agenda item\", state: \"{}\", decided_in: {decided_in} }} SET PROPOSITIONS {{ (\"on_agenda_of\", ?event) }} }} {metadata}",
            item.state()
        );
        if item.is_summed {
            let name = command.value(format!("{} question", meeting.item_name(at.place, n)).into());
            let state = if item.is_over() { "answered" } else { "open" };
            let _ = writeln!(
                command.text,
                "CONCEPT ?question{n} {{ {{type: \"Question\", name: {name}}} SET ATTRIBUTES {{ name: {text}, kind: \"agenda item\", state: \"{state}\" }} SET PROPOSITIONS {{ (\"on_agenda_of\", ?event) }} }} {metadata}"
            );
        }
        if let Some(fact) = decided {
            // The fact keeps its own metadata.
            let fact = command.value(fact.into());
            let _ = writeln!(
                command.text,
                "CONCEPT ?fact{n} {{ {{id: {fact}}} SET ATTRIBUTES {{ modality: \"decided\" }} SET PROPOSITIONS {{ (\"decides\", ?item{n}) }} }}"
            );
        }
        Ok(())
    }

    /// Adds the views that the mind does not have yet, for those who heard them, and returns the links that no longer hold.
    async fn draft_views(
        &self,
        command: &mut Command,
        (meeting, n): (&Meeting, usize),
        at: Where<'_>,
    ) -> Result<Vec<Value>, NexusError> {
        let item = &meeting.items[n];
        let found = self.ask(VIEWS, json!({"item": meeting.item_name(at.place, n)}), at.cause).await?;
        let known: BTreeMap<&str, &Value> =
            rows(&found).iter().filter_map(|row| Some((row[1].as_str()?, &row[0]))).collect();
        let mut outdated: Vec<Value> = Vec::new();
        for (who, link) in &known {
            let now = item.views.get(*who).and_then(|view| view.side).map(predicate_of);
            if now != link["predicate"].as_str() {
                outdated.push(link["id"].clone());
            }
        }
        for (who, view) in &item.views {
            let Some(side) = view.side else { continue };
            let side_name = Texts(meeting).side(item, side);
            let is_known = |link: &&Value| {
                link["predicate"] == predicate_of(side) && link["attributes"]["side"] == side_name.as_str()
            };
            if known.get(&**who).is_some_and(is_known) {
                continue;
            }
            let source = format!("{}@{}", at.stream, view.posted_at.max(meeting.rev));
            if rows(&self.ask(KNOWN, json!({"person": who}), at.cause).await?).is_empty() {
                let (person, message, source) = (&**who, &*view.message, source.as_str());
                let (topic, canvas) = (&*at.place.topic, &*at.place.canvas);
                self.meet(Stated { person, topic, message, canvas, source }, at.cause).await?;
            }
            let (person, evidence) = (command.value(json!(who)), command.value(json!([source, view.message])));
            let (side_name, scopes) = (command.value(side_name.into()), command.value(json!(at.audience)));
            let _ = writeln!(
                command.text,
                "PROPOSITION {{ ({{type: \"Person\", name: {person}}}, \"{}\", ?item{n}) SET ATTRIBUTES {{ side: {side_name} }} }} WITH METADATA {{ author: {person}, evidence: {evidence}, status: \"active\", access_scopes: {scopes} }}",
                predicate_of(side)
            );
        }
        Ok(outdated)
    }

    /// Stores a decision as a fact of the moderator, withdraws those that hold no more, and returns the fact. A fact that was
    /// forgotten or deleted does not come back.
    async fn learn_decision(&self, meeting: &Meeting, n: usize, at: Where<'_>) -> Result<Option<String>, NexusError> {
        let (item, name) = (&meeting.items[n], meeting.item_name(at.place, n));
        let statement = Texts(meeting).decision(item);
        let decision = item.decision.as_ref();
        let found = self.ask(DECISIONS, json!({"item": name}), at.cause).await?;
        let mut known = None;
        for fact in rows(&found) {
            if decision.is_some() && fact["attributes"]["statement"] == *statement {
                known = Some(fact.clone());
            } else if fact["metadata"]["status"] == "active" {
                self.run_checked(WITHDRAW_FACT, json!({"fact": fact["id"]}), at.cause).await?;
            }
        }
        let Some(decision) = decision else { return Ok(None) };
        if let Some(fact) = known.filter(|fact| fact["metadata"]["status"] == "active") {
            return Ok(fact["id"].as_str().map(str::to_owned));
        }
        // This decision was recorded before, and its fact was forgotten or deleted since.
        let recorded = self.ask(ITEM, json!({"item": name}), at.cause).await?;
        if rows(&recorded).first().and_then(Value::as_str) == Some(&*decision.name()) {
            return Ok(None);
        }
        // The message of the coordinator bears it, so that an amendment of the moderator's own does not unsay it.
        let (source, message) = (format!("{}@{}", at.stream, decision.posted_at), meeting.id(Post::End(n)));
        let (topic, canvas) = (&*at.place.topic, &*at.place.canvas);
        let stated = Stated { person: &decision.by, topic, message: &message, canvas, source: &source };
        if rows(&self.ask(KNOWN, json!({"person": decision.by}), at.cause).await?).is_empty() {
            self.meet(stated, at.cause).await?;
        }
        let fact = [Fact::plain(&statement, &item.text)];
        let learned = self.learn(stated, &fact, at.audience, &[], || true, at.cause).await?;
        Ok(learned.into_iter().next())
    }
}

fn metadata(command: &mut Command, source: &str, audience: &BTreeSet<String>) -> String {
    let (source, scopes) = (command.value(source.into()), command.value(json!(audience)));
    format!("WITH METADATA {{ source: {source}, status: \"active\", confidence: 1.0, access_scopes: {scopes} }}")
}
