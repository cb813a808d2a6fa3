//! The KIP commands of a lifeform's memory, in one place, and the plain rules around them: which parts of a message are
//! statements, and which statements that a model reports are accepted.

mod chosen;
mod facts;
mod forgetting;
mod notes;
mod recall;
mod self_model;
mod stored;
mod thoughts;
mod unsaying;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use chosen::{chosen, may_choose};
pub(crate) use facts::{
    Fact, FoundBy, PUBLIC, are_of_one_subject, facts, facts_read, is_for_nobody, is_guarded, statements, told_to_all,
    told_to_one,
};
pub(crate) use forgetting::{
    ForgetRequest, Forgettable, Forgotten, Gone, forget_requests, forget_requests_by_rule, is_forget_request,
    without_confirmation,
};
use nexus::kip::Call;
use nexus::kip::lang::parser::seems_to_write;
use nexus::{Nexus, NexusError, NexusId, Request, WriteAuthority};
pub(crate) use recall::{Question, Readers, Recalled, asks_what_is_known};
pub(crate) use self_model::SelfModel;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Clock, Directory, Origin, Principal};
pub(crate) use stored::{Interactions, Place, StoredFact, also_in, rows};
pub(crate) use thoughts::OpenThing;
use tokio::sync::Mutex;

/// Creates or updates a speaker with the time, the number and the topics of the conversations.
const MEET: &str = r#"
UPSERT {
  CONCEPT ?person { {type: "Person", name: $person}
    SET ATTRIBUTES { id: $person, person_class: $class, name: $name, relationship_to_self: $relation, interaction_summary: $summary } }
}
WITH METADATA { source: $source, confidence: 1.0, status: "active" }"#;

/// Reads the summary of the conversations with a person.
const MET: &str = r#"FIND(?p.attributes.interaction_summary) WHERE { ?p {type: "Person", name: $person} }"#;

/// The name of the lifeform itself in its mind.
pub(crate) const SELF: &str = "$self";

/// Stores one fact with the person who stated it and the place.
const LEARN: &str = r#"
UPSERT {
  CONCEPT ?fact { {type: "Fact", name: $name}
    SET ATTRIBUTES { statement: $statement, subject: $subject, canvas: $canvas, topic: $topic, message: $message, also_in: $also_in, among: $among, on_date: $on, heard_on: $heard, stated_at: $at, valid_from: $from, valid_until: $until, found_by: $found_by }
    SET PROPOSITIONS {
      ("stated_by", {type: "Person", name: $teller})
      ("belongs_to_domain", {type: "Domain", name: "Conversation"})
    } }
}
WITH METADATA { source: $source, author: $person, evidence: [$source], confidence: 0.8, status: "active", provenance: $provenance, access_scopes: $scopes }"#;

/// Finds a fact by its name, with the persons who stated it.
const NAMED: &str = r#"FIND(?f, ?p.name) WHERE { ?f {type: "Fact", name: $name} OPTIONAL { (?f, "stated_by", ?p) } }"#;

/// Finds the facts whose latest statement is in a given message.
const STATED_IN: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.attributes.message == $message && ?f.attributes.topic == $topic && ?f.metadata.status == "active") }"#;

/// Finds the facts that were stated more than once.
const STATED_AGAIN: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(IS_NOT_NULL(?f.attributes.also_in) && ?f.metadata.status == "active") }"#;

/// Finds the active facts that a person stated.
const STATEMENTS_OF: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.author == $person && ?f.metadata.status == "active") }"#;

/// Marks the facts of a message as superseded or retracted after the message was amended or retracted.
const UNSAY: &str = r#"
UPDATE ?f SET METADATA { status: $status, superseded_by: $source }
WHERE { ?f {id: $fact} }"#;

/// Updates the places in which a fact is still stated.
const STILL_SAID: &str = r#"
UPDATE ?f SET ATTRIBUTES { canvas: $canvas, topic: $topic, message: $message, also_in: $also_in, among: $among }
WHERE { ?f {id: $fact} }"#;

/// Quarantines a concept that failed answers rest on.
const SET_APART: &str = r#"
UPDATE ?c SET METADATA { status: "quarantined" }
WHERE { ?c {id: $concept} }"#;

/// Marks one fact as superseded.
const SUPERSEDE: &str = r#"
UPDATE ?f SET METADATA { status: "superseded", superseded_by: $by }
WHERE { ?f {id: $fact} }"#;

/// Removes one fact.
const REMOVE: &str = r#"DELETE CONCEPT ?f DETACH WHERE { ?f {id: $fact} }"#;

/// The maximum size of a fact's audience, besides the person who stated the fact. A larger audience is truncated, and
/// the fact is recalled less often.
const AMONG_MAX: usize = 64;

/// The number of days after which a person who speaks again has been away.
const AWAY_DAYS: i64 = 7;

/// The maximum number of topics in the summary of the conversations with a person.
const KEY_TOPICS_MAX: usize = 8;

/// The place and the author of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated<'a> {
    /// The person who made the statement.
    pub(crate) person: &'a str,
    /// The topic.
    pub(crate) topic: &'a str,
    /// The message.
    pub(crate) message: &'a str,
    /// The globally unique name of the canvas. Topic and message ids are chosen by people and may repeat on other
    /// canvases.
    pub(crate) canvas: &'a str,
    /// The reference of the canvas revision.
    pub(crate) source: &'a str,
}

/// The memory of a lifeform.
#[derive(Clone)]
pub(crate) struct Memory {
    /// The lock for writes that depend on a previous read.
    turn: Arc<Mutex<()>>,
    nexus: Nexus,
    clock: Arc<dyn Clock>,
    directory: Arc<dyn Directory>,
    id: NexusId,
    me: Origin,
    /// `true` once the mind is known to have the types of claims.
    pub(crate) has_world: Arc<AtomicBool>,
}

impl Memory {
    /// Opens the memory of the lifeform that `me` acts for.
    pub(crate) fn new(
        nexus: Nexus,
        clock: Arc<dyn Clock>,
        directory: Arc<dyn Directory>,
        id: NexusId,
        me: Origin,
    ) -> Self {
        Self { turn: Arc::default(), nexus, clock, directory, id, me, has_world: Arc::default() }
    }

    /// Returns a principal with its present rights.
    pub(crate) fn principal(&self, id: &str) -> Principal {
        self.directory.principal(id)
    }

    /// Returns the present time.
    pub(crate) fn now(&self) -> store::Timestamp {
        self.clock.now()
    }

    /// Runs a request as another principal.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn execute(&self, request: Request, origin: &Origin) -> Result<Value, NexusError> {
        self.nexus.execute(&self.id, request, origin).await
    }

    /// Waits until no other write that depends on a read is under way, and excludes them.
    pub(crate) async fn take_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Runs a command as the lifeform. A command that is refused is logged, and returned as it is.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn ask(&self, command: &str, parameters: Value, cause: &Origin) -> Result<Value, NexusError> {
        self.run(command, parameters, cause).await
    }

    async fn run(&self, command: &str, parameters: Value, cause: &Origin) -> Result<Value, NexusError> {
        let origin = Origin::new(self.me.principal.clone(), cause.cause.clone());
        let request = Request::with(command, parameters);
        let answer = if seems_to_write(command) {
            let call = Call { command: command.to_owned(), parameters: request.parameters };
            self.nexus.write_with(&self.id, call, &origin, WriteAuthority::Memory, Vec::new()).await?
        } else {
            self.nexus.execute(&self.id, request, &origin).await?
        };
        if let Some(error) = answer.get("error") {
            tracing::error!(%error, "a statement of the lifeform's own is refused");
        }
        Ok(answer)
    }

    /// As [`Self::run`], but a refused command is an error.
    pub(crate) async fn run_checked(
        &self,
        command: &str,
        parameters: Value,
        cause: &Origin,
    ) -> Result<Value, NexusError> {
        let answer = self.run(command, parameters, cause).await?;
        match answer.get("error") {
            Some(error) => Err(NexusError::Refused(error["message"].as_str().unwrap_or_default().to_owned())),
            None => Ok(answer),
        }
    }

    /// Returns the days for which a person was away before it spoke again within the last five minutes; `None` if it was not.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn away_before(&self, person: &str, cause: &Origin) -> Result<Option<i64>, NexusError> {
        let met = self.run(MET, json!({"person": person}), cause).await?;
        let met = rows(&met).first().and_then(|summary| Interactions::deserialize(summary).ok()).unwrap_or_default();
        let is_fresh = |at: store::Timestamp| self.clock.now().duration_since(at) < jiff::SignedDuration::from_mins(5);
        Ok(met.back_at.filter(|at| is_fresh(*at)).map(|_| met.away_days))
    }

    /// Records that a person posted a message. A repeated call records it once.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn meet(&self, stated: Stated<'_>, cause: &Origin) -> Result<(), NexusError> {
        let Stated { person, topic, source, .. } = stated;
        let _turn = self.turn.lock().await;
        let name = person.split_once(':').map_or(person, |(_, name)| name);
        let met = self.run(MET, json!({"person": person}), cause).await?;
        let before = rows(&met).first().and_then(|summary| Interactions::deserialize(summary).ok()).unwrap_or_default();
        if before.last_source == source {
            return Ok(());
        }
        let mut topics = vec![topic.to_owned()];
        let known = before.key_topics.iter().filter(|known| **known != topic);
        topics.extend(known.take(KEY_TOPICS_MAX - 1).cloned());
        let now = self.clock.now();
        let away =
            before.last_seen_at.map(|seen| now.duration_since(seen).as_hours() / 24).filter(|days| *days >= AWAY_DAYS);
        let (back_at, away_days) = match away {
            Some(days) => (Some(now), days),
            None => (before.back_at, before.away_days),
        };
        let summary = Interactions {
            last_seen_at: Some(now),
            back_at,
            away_days,
            interaction_count: before.interaction_count + 1,
            key_topics: topics,
            last_source: source.to_owned(),
            ..before
        };
        let is_lifeform = person.starts_with("lifeform:");
        let (class, relation) = if is_lifeform { ("AI", "collaborator") } else { ("Human", "user") };
        let met = json!({
            "person": person,
            "name": name,
            "source": source,
            "class": class,
            "relation": relation,
            "summary": summary,
        });
        self.run(MEET, met, cause).await.map(drop)
    }

    /// Stores the facts that a person stated, if the message still states them, and returns the ids of their concepts.
    /// A retraction of the message waits for this call, and then finds the facts. A fact whose statement is among
    /// `kept_before` and that no longer exists was deleted in the meantime, and is not stored again.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn learn(
        &self,
        stated: Stated<'_>,
        facts: &[Fact],
        people: &BTreeSet<String>,
        kept_before: &[String],
        stands: impl Fn() -> bool,
        cause: &Origin,
    ) -> Result<Vec<String>, NexusError> {
        let Stated { person, canvas, topic, message, source } = stated;
        let mut kept = Vec::new();
        let _turn = self.turn.lock().await;
        if !stands() {
            return Ok(kept);
        }
        for fact in facts {
            // The lifeform itself is `$self` in its mind.
            let teller = if fact.found_by.is_some() { SELF } else { person };
            let Named { name, also_in, heard, is_known } = self.name_of(&fact.statement, stated, teller, cause).await?;
            if !is_known && kept_before.iter().any(|before| **before == *fact.statement) {
                continue;
            }
            let among: BTreeSet<&String> = people.iter().chain(&heard).take(AMONG_MAX).collect();
            // The lifeform tells everybody a statement for all. Only its hearers read the fact, which names its place and hearers.
            let scopes = among.iter().map(|who| who.as_str()).filter(|who| *who != PUBLIC);
            let scopes: BTreeSet<&str> = scopes.chain([person]).collect();
            let learned = json!({
                "scopes": scopes, "at": self.clock.now(),
                "name": name, "statement": fact.statement, "subject": fact.subject, "person": person, "teller": teller, "source": source,
                "canvas": canvas, "topic": topic, "message": message, "also_in": also_in, "among": among,
                "on": fact.dates.on, "heard": fact.dates.heard_on, "from": fact.dates.from, "until": fact.dates.until, "provenance": fact.provenance,
                "found_by": fact.found_by,
            });
            let answer = self.run(LEARN, learned, cause).await?;
            kept.extend(answer["result"]["upsert_concept_nodes"][0].as_str().map(Into::into));
        }
        Ok(kept)
    }

    /// Returns the concept name for a statement of a person, its other places, and the people who heard it there. Two
    /// persons can make the same statement with different meanings ("my boat is called Petrel"), so each has a fact of
    /// its own.
    async fn name_of(
        &self,
        statement: &str,
        stated: Stated<'_>,
        teller: &str,
        cause: &Origin,
    ) -> Result<Named, NexusError> {
        let is_his = |row: &Value| row[1].is_null() || row[1] == teller;
        let (mut name, mut n) = (statement.to_owned(), 0);
        loop {
            let found = self.run(NAMED, json!({"name": name}), cause).await?;
            let rows = rows(&found);
            if rows.is_empty() || rows.iter().any(is_his) {
                let known = rows.first().map(|row| StoredFact::of(&row[0])).filter(|fact| fact.holds());
                let is_known = known.is_some();
                let mut places = known.map(StoredFact::places).unwrap_or_default();
                places.retain(|place| !place.is_of(stated));
                let heard = known.filter(|_| !places.is_empty()).and_then(|fact| {
                    let for_all = fact.is_for_all().then(|| PUBLIC.to_owned());
                    Some(fact.audience(Some(stated.person))?.into_iter().chain(for_all).collect())
                });
                return Ok(Named { name, also_in: also_in(places), heard: heard.unwrap_or_default(), is_known });
            }
            // Another person may already have a fact with this name.
            n += 1;
            name = if n == 1 {
                format!("{statement} ({})", stated.person)
            } else {
                format!("{statement} ({}, {n})", stated.person)
            };
        }
    }

    /// Marks the other facts of a message that a new fact restates as superseded by it: those that add nothing to it, and, if
    /// the person corrected the message at once, those that say the same with another name or number.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn supersede_restated(
        &self,
        stated: Stated<'_>,
        new: &str,
        statement: &str,
        is_corrected: bool,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let Stated { topic, message, person, .. } = stated;
        let found = self.run(STATED_IN, json!({"message": message, "topic": topic}), cause).await?;
        for fact in rows(&found).iter().map(StoredFact::of) {
            let is_other = fact.id() != new && fact.author() == Some(person);
            let is_here = fact.places().iter().any(|place| place.is_of(stated));
            let known = fact.statement().unwrap_or_default();
            let is_over = knowledge::adds_nothing(known, statement)
                || (is_corrected && knowledge::is_other_version(known, statement));
            if is_other && is_here && is_over {
                self.supersede(fact.id(), new, cause).await?;
            }
        }
        Ok(())
    }

    /// Returns the ids of the facts of a message.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn stated_in(&self, stated: Stated<'_>, cause: &Origin) -> Result<Vec<String>, NexusError> {
        let Stated { topic, message, .. } = stated;
        let found = self.run(STATED_IN, json!({"message": message, "topic": topic}), cause).await?;
        Ok(rows(&found).iter().map(|fact| StoredFact::of(fact).id().to_owned()).collect())
    }

    /// Excludes a concept from recall until a person has examined it.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn set_apart(&self, concept: &str, cause: &Origin) -> Result<(), NexusError> {
        self.run(SET_APART, json!({"concept": concept}), cause).await.map(drop)
    }

    /// Marks a fact as superseded by what `people` heard, if all who heard the fact are among them: for the others it still holds.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn supersede_among(
        &self,
        fact: &str,
        by: &str,
        people: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let _turn = self.turn.lock().await;
        let found = self.run(recall::BY_ID, json!({"fact": fact}), cause).await?;
        let known = rows(&found).first().map(StoredFact::of);
        let heard = known.and_then(|fact| fact.audience(fact.author()));
        // What everybody may hear still holds for them, unless this is for everybody, too.
        let is_wider = known.is_some_and(StoredFact::is_for_all) && !people.contains(PUBLIC);
        match heard {
            Some(heard) if is_wider || !heard.is_subset(people) => Ok(()),
            _ => self.supersede(fact, by, cause).await,
        }
    }

    /// Marks a fact as superseded by another fact.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn supersede(&self, fact: &str, by: &str, cause: &Origin) -> Result<(), NexusError> {
        self.run(SUPERSEDE, json!({"fact": fact, "by": by}), cause).await.map(drop)
    }
}

/// The concept name of a fact, with its present state.
struct Named {
    name: String,
    /// The other places in which the fact is stated.
    also_in: Option<Vec<Place>>,
    /// The people who heard the fact in those places.
    heard: BTreeSet<String>,
    /// `true` if the fact exists and is valid.
    is_known: bool,
}

/// The maximum number of facts that are stored from one message.
const FACTS_MAX: usize = 5;
/// The maximum length of one statement, in characters.
const STATEMENT_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(message: &str, read: Value) -> Vec<String> {
        facts(message, &read, jiff::civil::date(2026, 11, 24))
            .into_iter()
            .map(|fact| format!("{} <{}>", fact.statement, fact.subject))
            .collect()
    }

    #[test]
    fn questions_greetings_and_orders_are_no_statements() {
        for none in [
            "What is my cat called?",
            "Hello there, friend",
            "Tell me about Rome.",
            "你叫什么名字？",
            "ok thanks",
            "Do you know v1.2 of it",
        ] {
            assert_eq!(statements(none), [""; 0], "{none}");
        }
        assert_eq!(
            statements("Hi! My cat is called Miso. Version 1.2 is out. Right?"),
            ["My cat is called Miso.", "Version 1.2 is out."]
        );
        assert_eq!(statements("我的猫叫味噌。你呢？"), ["我的猫叫味噌。"]);
    }

    #[test]
    fn what_is_confided_is_no_fact_that_others_are_told() {
        let read = json!({"facts": [{"statement": "My PIN is 9182", "subject": "PIN"}]});
        let said = "My PIN is 9182. The password: hunter2hunter2 works. My cat is called Miso. 我的密码是海鸥四号。";
        assert_eq!(kept(said, read), ["My cat is called Miso. <My cat is called Miso.>"]);
    }

    #[test]
    fn what_may_have_become_of_a_statement_begins_like_it() {
        for (one, other, is) in [
            ("My cat is called Miso.", "My cat is called Tofu, and Miso is my neighbour's.", true),
            ("My cat is called Miso.", "My cat is called Miso", false),
            ("The name of my boat is Petrel.", "The name of my sister is Mirela.", false),
            ("The code of door 3 is 4111.", "The code of door 3 is 9.", true),
            ("The code of door 3 is 4111.", "The code of door 4 is 4148.", false),
            ("我的猫叫味噌。", "我的猫叫豆腐。", true),
            ("Rome is old.", "It rains.", false),
        ] {
            assert_eq!(are_of_one_subject(one, other), is, "{one} {other}");
        }
    }

    #[test]
    fn a_model_is_believed_only_as_far_as_the_message_bears_it_out() {
        let cat = "My cat is called Miso.";
        let read = |subject: &str, statement: &str| json!({"facts": [{"subject": subject, "statement": statement}]});
        assert_eq!(kept(cat, Value::Null), ["My cat is called Miso. <My cat is called Miso.>"]);
        assert_eq!(kept(cat, read("cat", "my cat is called Miso")), ["My cat is called Miso. <cat>"]);
        assert_eq!(kept(cat, read("cat", "the cat is twelve years old")), kept(cat, Value::Null));
        assert_eq!(kept(cat, read("Dogs", "my cat is called Miso")), kept(cat, Value::Null));
        let asked = "Did you know that my cat is called Miso?";
        assert_eq!(kept(asked, read("cat", "my cat is called Miso")), ["my cat is called Miso <cat>"]);
        assert_eq!(kept("What is this?", Value::Null), [""; 0]);
    }
}
