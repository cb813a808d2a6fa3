//! The write of claims: one command a statement. It does not touch the statement itself; a statement that was forgotten in
//! the meantime is not found, and nothing is written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nexus::{NexusError, Request};
use serde_json::{Map, Value, json};
use store::{Hash, Origin};

use super::mention::{Claim, Kind, Mention};
use super::resolving::{Resolving, Teller, is_said_in, key_of, plain};
use super::vocabulary::{Relation, claimed_predicates, is_functional, is_symmetric};
use super::{WORLD, claims};
use crate::maintenance::gardener;
use crate::memory::{Memory, Stated, StoredFact, rows};

/// The reliability of what a person says of itself and of those near to it, of others, and of what an AI says.
const OF_ITSELF: f64 = 0.95;
const OF_OTHERS: f64 = 0.7;
const OF_AN_AI: f64 = 0.6;
/// The maximum number of facts that one night forms.
const REST_MAX: usize = 2_000;
/// The maximum number of statements that a model reads in one call, and of those from which they are taken.
const BATCH_MAX: usize = 12;
const UNREAD_MAX: usize = 2_000;
/// The maximum number of claims of one statement.
const CLAIMS_MAX: usize = 16;

const FACT: &str = r#"FIND(?f) WHERE { ?f {id: $fact} }"#;
/// Finds the claims that a fact states.
/// Finds the active facts that state no claim.
const UNFORMED: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") NOT { (?f, "states", ?l) } } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
const ACTIVE: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
const MARK: &str = r#"UPDATE ?l SET METADATA { status: $status } WHERE { ?l (id: $link) }"#;
/// Finds active claims of which no active fact is left.
const UNSAID: &str = r#"
FIND(?l) WHERE { (?f, "states", ?l) FILTER(?l.metadata.status == "active") NOT { (?g, "states", ?l) FILTER(?g.metadata.status == "active") } } LIMIT 1000"#;
const DEFINED: &str = r#"FIND(?t) WHERE { ?t {type: "$PropositionType", name: "states"} }"#;
const LINK: &str = r#"FIND(?l) WHERE { ?l ({id: $subject}, $predicate, {id: $object}) }"#;
/// Finds the facts that state another object of a subject.
const RIVALS: &str = r#"
FIND(?l, ?f) WHERE { ?l ({id: $subject}, $predicate, ?o) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active") } LIMIT 200"#;

/// Finds the oldest active facts that no model has read.
const UNREAD: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") NOT { (?f, "read_by", ?r) } } ORDER BY ?f.metadata._updated_at LIMIT $limit"#;
const READ: &str = r#"
UPSERT { PROPOSITION { ({id: $fact}, "read_by", {type: "Person", name: "$self"}) } } WITH METADATA { source: $source }"#;

/// The source of the concepts that formation makes.
pub(crate) const FORMATION: &str = "formation";

/// Finds the claims of a predicate that no fact states.
const UNSTATED: &str = r#"FIND(?l) WHERE { ?l (?s, $predicate, ?o) NOT { (?f, "states", ?l) } FILTER(IS_NOT_NULL(?l.metadata.heard_by)) } LIMIT 1000"#;

/// A concept in a command: one of the mind, or one that the command makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Handle {
    /// The text by which the command names it.
    text: String,
    id: Option<String>,
}

impl Handle {
    /// Returns the handle of a concept of the mind.
    pub(super) fn known(concept: &Value) -> Self {
        let id = concept["id"].as_str().unwrap_or_default();
        Self { text: format!("{{id: {}}}", json!(id)), id: Some(id.to_owned()) }
    }

    /// Returns the id, if the mind has the concept already.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// A command that writes the claims of one statement.
pub(super) struct Draft {
    command: String,
    parameters: Map<String, Value>,
    /// The concepts that the statement speaks of.
    mentioned: Vec<String>,
    /// The seed of the names of new concepts: the same statement makes the same names.
    seed: String,
    scopes: BTreeSet<String>,
    /// The words of the statement, in plain form.
    said: String,
}

impl Draft {
    fn new(seed: &str, scopes: &BTreeSet<String>, said: &str) -> Self {
        let command = "UPSERT {\n".to_owned();
        Self {
            command,
            parameters: Map::new(),
            mentioned: Vec::new(),
            seed: seed.to_owned(),
            scopes: scopes.clone(),
            said: plain(said),
        }
    }

    /// Adds a parameter, and returns its placeholder.
    fn value(&mut self, value: Value) -> String {
        let name = format!("p{}", self.parameters.len());
        self.parameters.insert(name.clone(), value);
        format!("${name}")
    }

    pub(super) fn mention(&mut self, handle: Handle) -> Handle {
        if !self.mentioned.contains(&handle.text) {
            self.mentioned.push(handle.text.clone());
        }
        handle
    }

    /// Adds a new concept.
    pub(super) fn new_concept(&mut self, kind: Kind, name: Option<&str>, sort: Option<&str>) -> Handle {
        let at = self.mentioned.len();
        let mark = &Hash::of(format!("{} {at}", self.seed).as_bytes()).hex()[..8];
        // Themes and places are everybody's; of the others, two may have one name. The name of a node tells no relation: more people
        // see the node than its links.
        let own = match (kind, name) {
            (Kind::Theme | Kind::Place, Some(name)) => name.to_owned(),
            (_, Some(name)) => format!("{name} {mark}"),
            (Kind::Thing, None) => format!("something {mark}"),
            (_, None) => format!("somebody {mark}"),
        };
        let mut attributes = json!({});
        match kind {
            Kind::Person => attributes = json!({"id": format!("heard:{mark}"), "person_class": "Human"}),
            Kind::Organization => attributes = json!({"id": format!("heard:{mark}"), "person_class": "Organization"}),
            _ => {}
        }
        if let Some(name) = name {
            (attributes["name"], attributes["key"]) = (name.into(), key_of(kind, name).into());
        }
        if let Some(sort) = sort {
            attributes["kind"] = sort.into();
        }
        let handle = format!("?e{at}");
        let (own, scopes) = (self.value(own.into()), self.value(json!(self.scopes)));
        let set = self.members(&attributes);
        let _ = writeln!(
            self.command,
            "CONCEPT {handle} {{ {{type: \"{}\", name: {own}}} SET ATTRIBUTES {{ {set} }} }} WITH METADATA {{ source: \"{FORMATION}\", status: \"active\", access_scopes: {scopes} }}",
            kind.type_name()
        );
        self.mention(Handle { text: handle, id: None })
    }

    /// Names a concept that had no name, if all who see it hear the name now.
    pub(super) fn named(&mut self, concept: &Value, name: &str, key: &str) -> Handle {
        let seen_by = concept["metadata"]["access_scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if !seen_by.map(str::to_owned).all(|scope| self.scopes.contains(&scope)) {
            return self.mention(Handle::known(concept));
        }
        let handle = format!("?e{}", self.mentioned.len());
        let id = self.value(concept["id"].clone());
        let set = self.members(&json!({"name": name, "key": key}));
        let scopes = self.value(self.widened(concept));
        let _ = writeln!(
            self.command,
            "CONCEPT {handle} {{ {{id: {id}}} SET ATTRIBUTES {{ {set} }} }} WITH METADATA {{ access_scopes: {scopes} }}"
        );
        self.mention(Handle { text: handle, id: concept["id"].as_str().map(str::to_owned) })
    }

    /// Notes a concept of the mind. Those who hear of it may see it from now on, unless they would see a name that was not said.
    pub(super) fn seen(&mut self, concept: &Value) -> Handle {
        let scopes = self.widened(concept);
        // The word of a theme or a place is no name.
        let is_word = ["Theme", "Place"].iter().any(|kind| concept["type"] == *kind);
        let is_said = is_word || concept["attributes"]["name"].as_str().is_none_or(|name| is_said_in(name, &self.said));
        if scopes.is_null() || !is_said || scopes == concept["metadata"]["access_scopes"] {
            return self.mention(Handle::known(concept));
        }
        let handle = format!("?e{}", self.mentioned.len());
        let (id, scopes) = (self.value(concept["id"].clone()), self.value(scopes));
        let _ =
            writeln!(self.command, "CONCEPT {handle} {{ {{id: {id}}} }} WITH METADATA {{ access_scopes: {scopes} }}");
        self.mention(Handle { text: handle, id: concept["id"].as_str().map(str::to_owned) })
    }

    /// Returns the scopes of an element with those of the statement; null if everybody sees it.
    fn widened(&self, element: &Value) -> Value {
        let Some(known) = element["metadata"]["access_scopes"].as_array() else { return Value::Null };
        let known = known.iter().filter_map(|scope| scope.as_str().map(str::to_owned));
        json!(known.chain(self.scopes.iter().cloned()).collect::<BTreeSet<String>>())
    }

    fn members(&mut self, of: &Value) -> String {
        let members = of.as_object().into_iter().flatten();
        let set: Vec<String> = members.map(|(key, value)| format!("{key}: {}", self.value(value.clone()))).collect();
        set.join(", ")
    }
}

/// The canvas, the topic and the audience of a statement.
type Place<'f> = (Option<&'f str>, Option<&'f str>, Option<BTreeSet<String>>);

/// A statement that no model has read for claims.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unread {
    /// The id of the fact.
    pub(crate) id: String,
    /// The person who stated it.
    pub(crate) person: String,
    /// The words.
    pub(crate) statement: String,
}

/// Returns the person whose claims a fact makes. Words of others in a fact have no teller here.
fn author_of(fact: StoredFact<'_>) -> Option<&str> {
    fact.author().filter(|author| !author.starts_with("system:") && fact.provenance().is_none())
}

/// The statement that is formed.
struct Statement<'f> {
    fact: StoredFact<'f>,
    author: &'f str,
    audience: BTreeSet<String>,
}

impl Memory {
    /// Makes claims of facts, where they claim something and have not been read before. Returns the number of facts that now
    /// state claims.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn form(&self, facts: &[String], cause: &Origin) -> Result<usize, NexusError> {
        let mut formed = 0;
        for fact in facts {
            formed += usize::from(self.form_one(fact, cause).await?);
        }
        Ok(formed)
    }

    /// Makes claims of the facts of a message.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn form_message(&self, stated: Stated<'_>, cause: &Origin) -> Result<usize, NexusError> {
        let found = self.stated_in(stated, cause).await?;
        self.form(&found, cause).await
    }

    /// Makes claims of all facts that state none, the newest first, and removes the claims that no fact states any more. Returns the
    /// numbers of facts that were formed, and of elements that were removed.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn form_rest(&self, cause: &Origin) -> Result<(usize, usize), NexusError> {
        let unformed = if self.has_claims(cause).await? { UNFORMED } else { ACTIVE };
        let found = self.ask(unformed, json!({"limit": REST_MAX}), cause).await?;
        let mut facts: Vec<StoredFact<'_>> = rows(&found).iter().map(StoredFact::of).collect();
        facts.sort_by_key(|fact| fact.stated_at());
        let facts: Vec<String> = facts.iter().map(|fact| fact.id().to_owned()).collect();
        Ok((self.form(&facts, cause).await?, self.sweep(cause).await?))
    }

    async fn form_one(&self, fact: &str, cause: &Origin) -> Result<bool, NexusError> {
        // What is forgotten or taken back waits for the turn, and so does this: what is read now still holds when it is written.
        let _turn = self.take_turn().await;
        let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
        let Some(fact) = rows(&found).first().map(StoredFact::of).filter(|fact| fact.holds()) else { return Ok(false) };
        let (Some(author), Some(statement)) = (author_of(fact), fact.statement()) else { return Ok(false) };
        let claims = claims(statement);
        if claims.is_empty() {
            return Ok(false);
        }
        self.learn_world(cause).await?;
        self.write_claims((fact, author), &claims, "rules", cause).await
    }

    /// Writes the claims of a fact by its author. `reader` says who read them. The caller has the turn.
    async fn write_claims(
        &self,
        (fact, author): (StoredFact<'_>, &str),
        claims: &[Claim],
        reader: &str,
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let Some(audience) = fact.audience(Some(author)) else { return Ok(false) };
        let (canvas, topic) = (fact.canvas().unwrap_or_default(), fact.topic().unwrap_or_default());
        let said = fact.statement().unwrap_or_default();
        let statement = Statement { fact, author, audience };
        let mut draft = Draft::new(&format!("{} {reader}", fact.id()), &statement.audience, said);
        let at = fact.stated_at();
        let teller = Teller { person: author, canvas, topic, at, audience: &statement.audience };
        let mut resolving = Resolving { memory: self, teller, cause, known: Vec::new() };
        let (mut links, mut outdated) = (0, BTreeSet::new());
        for claim in claims.iter().take(CLAIMS_MAX) {
            let Some(subject) = resolving.concept(&claim.subject, &mut draft).await? else { continue };
            let Some(object) = resolving.concept(&claim.object, &mut draft).await? else { continue };
            if subject == object || (subject.id().is_some() && subject.id() == object.id()) {
                continue;
            }
            let mut directions = vec![(&subject, &object, relation_of(claim), false)];
            if let Some(back) = back_of(claim) {
                directions.push((&object, &subject, back, true));
            }
            for (subject, object, relation, is_back) in directions {
                outdated.extend(self.outdated(&statement, claim, (subject, object), cause).await?);
                let link = self.link(&statement, claim, (subject, object), cause).await?;
                // "Ida is Tom's sister" says more than that he is a sibling of hers.
                let relation = relation.filter(|_| !is_back || !link.has_relation);
                draft.claim(&statement, (subject, claim.predicate, object), relation, link, &format!("?c{links}"));
                links += 1;
            }
        }
        if links == 0 {
            return Ok(false);
        }
        let until = self.now().strftime("%Y-%m-%d").to_string();
        for link in outdated {
            draft.outdate(&link, fact.id(), &until);
        }
        let answer = self.ask(&draft.whole(fact.id()), Value::Object(draft.parameters.clone()), cause).await?;
        Ok(answer.get("error").is_none())
    }

    /// Returns the oldest statements that no model has read for claims, of one topic and one audience, in order, if there are at
    /// least as many as `least`.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn unread(&self, least: usize, cause: &Origin) -> Result<Vec<Unread>, NexusError> {
        let unread = if self.has_claims(cause).await? { UNREAD } else { ACTIVE };
        let found = self.ask(unread, json!({"limit": UNREAD_MAX}), cause).await?;
        let mut facts: Vec<StoredFact<'_>> = rows(&found).iter().map(StoredFact::of).collect();
        facts.sort_by_key(|fact| fact.stated_at());
        let mut batches: Vec<(Place<'_>, Vec<Unread>)> = Vec::new();
        for fact in facts {
            let (Some(author), Some(statement)) = (author_of(fact), fact.statement()) else { continue };
            let place = (fact.canvas(), fact.topic(), fact.audience(Some(author)));
            let one = Unread { id: fact.id().to_owned(), person: author.to_owned(), statement: statement.to_owned() };
            match batches.iter_mut().find(|(of, _)| *of == place) {
                Some((_, batch)) => batch.push(one),
                None => batches.push((place, vec![one])),
            }
        }
        let batch = batches.into_iter().map(|(_, batch)| batch).find(|batch| batch.len() >= least);
        Ok(batch.map(|batch| batch.into_iter().take(BATCH_MAX).collect()).unwrap_or_default())
    }

    /// Writes the claims that a model read in statements, and marks the statements as read. A statement that was forgotten or
    /// taken back meanwhile is passed over.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn form_read(
        &self,
        facts: &[String],
        answer: &Value,
        cause: &Origin,
    ) -> Result<(usize, usize), NexusError> {
        let mut kept = Vec::new();
        let _turn = self.take_turn().await;
        for fact in facts {
            let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
            kept.extend(rows(&found).first().cloned());
        }
        let kept: Vec<StoredFact<'_>> = kept.iter().map(StoredFact::of).collect();
        // The numbers of the statements are those of the batch.
        let statement =
            |id: &String| kept.iter().find(|fact| fact.id() == id && fact.holds()).and_then(|fact| fact.statement());
        let statements: Vec<&str> = facts.iter().map(|id| statement(id).unwrap_or_default()).collect();
        let (claims, rejected) = super::reading::read(answer, &statements);
        self.learn_world(cause).await?;
        let mut formed = 0;
        for (at, id) in facts.iter().enumerate() {
            let Some(fact) = kept.iter().find(|fact| fact.id() == id && fact.holds()) else { continue };
            let of: Vec<Claim> = claims.iter().filter(|(of, _)| *of == at).map(|(_, claim)| claim.clone()).collect();
            if let Some(author) = author_of(*fact).filter(|_| !of.is_empty()) {
                formed += usize::from(self.write_claims((*fact, author), &of, "model", cause).await?);
            }
            // Even if the model failed: it would fail again, and each call is paid.
            self.ask(READ, json!({"fact": id, "source": id}), cause).await?;
        }
        Ok((formed, rejected))
    }

    /// Defines the types and predicates of claims in this mind.
    async fn learn_world(&self, cause: &Origin) -> Result<(), NexusError> {
        if !self.has_claims(cause).await? {
            let answer = self.execute(Request::with(WORLD, json!({})), &gardener(cause.cause.clone())).await?;
            if let Some(error) = answer.get("error") {
                return Err(NexusError::Refused(format!("the capsule of the world is refused: {error}")));
            }
        }
        Ok(())
    }

    /// Returns the metadata of a claim that the mind has already, as the statement changes it.
    async fn link(
        &self,
        statement: &Statement<'_>,
        claim: &Claim,
        (subject, object): (&Handle, &Handle),
        cause: &Origin,
    ) -> Result<LinkState, NexusError> {
        let known = match (subject.id(), object.id()) {
            (Some(subject), Some(object)) => {
                let ends = json!({"subject": subject, "predicate": claim.predicate, "object": object});
                rows(&self.ask(LINK, ends, cause).await?).first().cloned().unwrap_or_default()
            }
            _ => Value::Null,
        };
        let is_near = claim.subject == Mention::Speaker || is_near(&claim.subject);
        let own = match () {
            () if statement.author.starts_with("lifeform:") => OF_AN_AI,
            () if is_near => OF_ITSELF,
            () => OF_OTHERS,
        };
        let scopes = known["metadata"]["access_scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let scopes: BTreeSet<String> = scopes.map(str::to_owned).chain(statement.audience.iter().cloned()).collect();
        // What is stored is seen by all who see the link, so only what all of them heard counts.
        let others = known["metadata"]["_claims"].as_object().into_iter().flatten().map(|(_, bag)| bag);
        let heard_by_all = |bag: &&Value| {
            let heard = bag["heard_by"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            scopes.is_subset(&heard.collect())
        };
        let mut doubt = if scopes == statement.audience { 1.0 - own } else { 1.0 };
        let mut tellers = BTreeSet::from([statement.author.to_owned()]);
        for bag in others.filter(heard_by_all) {
            if let (Some(teller), Some(confidence)) = (bag["author"].as_str(), bag["reliability"].as_f64())
                && tellers.insert(teller.to_owned())
            {
                doubt *= 1.0 - confidence;
            }
        }
        let confidence = if doubt < 1.0 { 1.0 - doubt } else { own };
        // Of what a person said, those hear who heard one of its statements.
        let bags = known["metadata"]["_claims"].as_object().into_iter().flatten().map(|(_, bag)| bag);
        let own_bags = bags.filter(|bag| bag["author"] == statement.author);
        let heard = own_bags.flat_map(|bag| bag["heard_by"].as_array().into_iter().flatten().filter_map(Value::as_str));
        let said_to = heard.map(str::to_owned).chain(statement.audience.iter().cloned()).collect();
        let has_relation = known["attributes"]["relation"].is_string();
        let confidence = (confidence * 1e3).round() / 1e3;
        Ok(LinkState { scopes, said_to, reliability: own, confidence, has_relation })
    }

    /// Returns the links that a statement outdates: the same person said another object of a functional predicate before, and
    /// everybody who sees that link heard the new statement. For others, a recall folds the statements that they heard.
    async fn outdated(
        &self,
        statement: &Statement<'_>,
        claim: &Claim,
        (subject, object): (&Handle, &Handle),
        cause: &Origin,
    ) -> Result<Vec<String>, NexusError> {
        let says_so = || statement.fact.statement().is_some_and(says_change);
        let Some(id) = subject.id().filter(|_| is_functional(claim.predicate) && says_so()) else {
            return Ok(Vec::new());
        };
        let found = self.ask(RIVALS, json!({"subject": id, "predicate": claim.predicate}), cause).await?;
        let mut outdated = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for row in rows(&found) {
            let (link, fact) = (&row[0], StoredFact::of(&row[1]));
            let Some(name) = link["id"].as_str().filter(|_| link["object"].as_str() != object.id()) else { continue };
            let scopes = link["metadata"]["access_scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let is_heard = scopes.map(str::to_owned).all(|scope| statement.audience.contains(&scope));
            let is_earlier = fact.stated_at() <= statement.fact.stated_at();
            match fact.author() == Some(statement.author) && is_heard && is_earlier {
                true => outdated.insert(name.to_owned()),
                false => kept.insert(name.to_owned()),
            };
        }
        let over: BTreeSet<String> = outdated.difference(&kept).cloned().collect();
        let mut outdated: BTreeSet<String> = over.clone();
        let is_over = |row: &&Value| row[0]["id"].as_str().is_some_and(|link| over.contains(link));
        for row in rows(&found).iter().filter(is_over).filter(|_| is_symmetric(claim.predicate)) {
            let ends = json!({"subject": row[0]["object"], "predicate": claim.predicate, "object": id});
            let back = self.ask(LINK, ends, cause).await?;
            outdated.extend(rows(&back).iter().filter_map(|link| link["id"].as_str().map(str::to_owned)));
        }
        Ok(outdated.into_iter().collect())
    }

    /// Removes facts from the evidence: what only they claim, and whom only they mention, leaves the graph.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn withdraw(&self, facts: &[&str], cause: &Origin) -> Result<(), NexusError> {
        /// Deletes what a fact states or mentions.
        const STATES_NO_MORE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l ({id: $fact}, "states", ?c) }"#;
        const MENTIONS_NO_MORE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l ({id: $fact}, "mentions", ?c) }"#;
        if !self.has_claims(cause).await? {
            return Ok(());
        }
        /// Deletes that a person said so, where no other statement of it does.
        const SAID_NO_MORE: &str =
            r#"DELETE PROPOSITIONS ?l WHERE { ?l ({type: "Person", name: $person}, "stated", {id: $link}) }"#;
        const OTHERS: &str = r#"FIND(?f) WHERE { (?f, "states", {id: $link}) FILTER(?f.metadata.author == $person) }"#;
        const STATED: &str = r#"FIND(?l, ?f.metadata.author) WHERE { ?f {id: $fact} (?f, "states", ?l) }"#;
        let turn = self.take_turn().await;
        for fact in facts {
            let stated = self.ask(STATED, json!({"fact": fact}), cause).await?;
            for command in [STATES_NO_MORE, MENTIONS_NO_MORE] {
                self.ask(command, json!({"fact": fact}), cause).await?;
            }
            for row in rows(&stated) {
                let said = json!({"link": row[0]["id"], "person": row[1]});
                if rows(&self.ask(OTHERS, said.clone(), cause).await?).is_empty() {
                    self.ask(SAID_NO_MORE, said, cause).await?;
                }
            }
        }
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
        for link in rows(&self.ask(UNSAID, json!({}), cause).await?) {
            self.ask(MARK, json!({"link": link["id"], "status": "retracted"}), cause).await?;
        }
        for predicate in claimed_predicates() {
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
        Ok(removed)
    }
}

/// The metadata of a claim that other statements may have made, too.
struct LinkState {
    scopes: BTreeSet<String>,
    /// The people who heard the same person say so.
    said_to: BTreeSet<String>,
    has_relation: bool,
    reliability: f64,
    confidence: f64,
}

impl Draft {
    /// Adds a claim, with the statement as its evidence.
    fn claim(
        &mut self,
        statement: &Statement<'_>,
        (subject, predicate, object): (&Handle, &str, &Handle),
        relation: Option<&str>,
        state: LinkState,
        name: &str,
    ) {
        let dates = statement.fact.dates();
        let mut metadata = json!({
            "source": statement.fact.id(), "author": statement.author, "status": "active", "confidence": state.confidence,
            "reliability": state.reliability, "access_scopes": state.scopes, "heard_by": statement.audience,
            "superseded_by": null, "valid_until": null,
        });
        for (key, date) in [("valid_from", dates.from.or(dates.on)), ("valid_until", dates.until)] {
            if let Some(date) = date {
                metadata[key] = date.to_string().into();
            }
        }
        if let Some(at) = statement.fact.stated_at() {
            metadata["observed_at"] = json!(at);
        }
        let (set, metadata) = (relation.map(|relation| self.value(relation.into())), self.members(&metadata));
        let set = set.map_or_else(String::new, |relation| format!(" SET ATTRIBUTES {{ relation: {relation} }}"));
        let (subject, object) = (&subject.text, &object.text);
        let _ = writeln!(
            self.command,
            "PROPOSITION {name} {{ ({subject}, \"{predicate}\", {object}){set} }} WITH METADATA {{ {metadata} }}"
        );
        let (fact, person) = (self.value(statement.fact.id().into()), self.value(statement.author.into()));
        let (heard, said_to) = (self.value(json!(statement.audience)), self.value(json!(state.said_to)));
        for (evidence, scopes) in [
            (format!("({{id: {fact}}}, \"states\", {name})"), &heard),
            (format!("({{type: \"Person\", name: {person}}}, \"stated\", {name})"), &said_to),
        ] {
            let _ = writeln!(
                self.command,
                "PROPOSITION {{ {evidence} }} WITH METADATA {{ source: {fact}, access_scopes: {scopes}, heard_by: {heard} }}"
            );
        }
    }

    /// Marks a claim as superseded by those of the statement.
    fn outdate(&mut self, link: &str, by: &str, until: &str) {
        let (link, by, until) = (self.value(link.into()), self.value(by.into()), self.value(until.into()));
        let _ = writeln!(
            self.command,
            "PROPOSITION {{ (id: {link}) }} WITH METADATA {{ status: \"superseded\", superseded_by: {by}, valid_until: {until} }}"
        );
    }

    /// Returns the command.
    fn whole(&mut self, fact: &str) -> String {
        let (fact, scopes) = (self.value(fact.into()), self.value(json!(self.scopes)));
        for concept in std::mem::take(&mut self.mentioned) {
            let _ = writeln!(
                self.command,
                "PROPOSITION {{ ({{id: {fact}}}, \"mentions\", {concept}) }} WITH METADATA {{ source: {fact}, access_scopes: {scopes}, heard_by: {scopes} }}"
            );
        }
        format!("{}}}", self.command)
    }
}

/// Returns `true` if a statement says that something has become another: only then does it end what was said before.
pub(crate) fn says_change(statement: &str) -> bool {
    const WORDS: [&str; 20] = [
        "moved",
        "relocated",
        "settled",
        "not any more",
        "no longer",
        "nowadays",
        " now",
        "these days",
        "since",
        "left",
        "married",
        "搬",
        "现在",
        "改",
        "结婚",
        "引っ越",
        "今は",
        "移",
        "転",
        "結婚",
    ];
    let plain = statement.to_lowercase();
    WORDS.iter().any(|word| plain.contains(word))
}

/// Returns `true` for a person that is one link from the speaker.
fn is_near(mention: &Mention) -> bool {
    matches!(mention, Mention::Related { of, .. } | Mention::Owned { of, .. } if **of == Mention::Speaker)
}

fn relation_of(claim: &Claim) -> Option<&'static str> {
    match &claim.object {
        Mention::Related { relation, .. } if relation.is_stored() && relation.predicate == claim.predicate => {
            Some(relation.name)
        }
        _ => None,
    }
}

/// Returns the relation in the other direction, if the claim makes one; `Some(None)` for one without a name.
fn back_of(claim: &Claim) -> Option<Option<&'static str>> {
    match &claim.object {
        _ if is_symmetric(claim.predicate) => Some(None),
        Mention::Related { relation: Relation { inverse, .. }, .. } if !inverse.is_empty() => Some(Some(inverse)),
        _ => None,
    }
}
