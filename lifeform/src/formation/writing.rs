//! The write of claims: one command a statement. It does not touch the statement itself; a statement that was forgotten in
//! the meantime is not found, and nothing is written.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use nexus::{NexusError, Request};
use serde_json::{Value, json};
use store::Origin;

use super::confidence::{OF_A_GOAL, OF_A_TOOL, OF_AN_AI, OF_ITSELF, OF_OTHERS, OF_RESEARCH, Said, confidence};
use super::draft::{Draft, Handle, LinkState};
use super::mention::{Claim, Mention};
use super::resolving::{Resolving, Teller};
use super::vocabulary::{Relation, SAME_AS, is_functional, is_replaced, is_symmetric};
use super::{WORLD, claims};
use crate::maintenance::gardener;
use crate::memory::{FoundBy, Memory, Stated, StoredFact, rows};

/// The maximum number of facts that one night forms.
const REST_MAX: usize = 2_000;
/// The maximum number of claims of one statement.
const CLAIMS_MAX: usize = 16;

pub(super) const FACT: &str = r#"FIND(?f) WHERE { ?f {id: $fact} }"#;
/// Finds the active facts that state no claim.
const UNFORMED: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") NOT { (?f, "states", ?l) } } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
pub(super) const ACTIVE: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
const LINK: &str = r#"FIND(?l) WHERE { ?l ({id: $subject}, $predicate, {id: $object}) }"#;
/// Finds the facts that state another object of a subject.
const RIVALS: &str = r#"
FIND(?l, ?f) WHERE { ?l ({id: $subject}, $predicate, ?o) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active") } LIMIT 200"#;

/// Returns the person whose claims a fact makes: the lifeform itself for what it found out. Other words of others in a fact have no
/// teller here, and what is private is claimed to nobody.
pub(super) fn author_of(fact: StoredFact<'_>) -> Option<&str> {
    let is_told = (fact.provenance().is_none() || fact.found_by().is_some()) && !fact.is_private();
    fact.author().filter(|author| !author.starts_with("system:") && is_told)
}

/// The reading of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'r> {
    /// The reader: rules or a model.
    pub(super) by: &'r str,
    /// The other words of the talk that its audience heard, where names may stand.
    pub(super) heard: &'r str,
}

/// The statement that is formed.
pub(super) struct Statement<'f> {
    pub(super) fact: StoredFact<'f>,
    pub(super) author: &'f str,
    pub(super) audience: BTreeSet<String>,
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
        let formed = self.form(&facts, cause).await?;
        let turn = self.take_turn().await;
        self.end_descriptions(None, cause).await?;
        drop(turn);
        Ok((formed, self.sweep(cause).await?))
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
        self.write_claims((fact, author), &claims, Reading { by: "rules", heard: "" }, cause).await
    }

    /// Writes the claims of a fact by its author. The caller has the turn.
    pub(super) async fn write_claims(
        &self,
        (fact, author): (StoredFact<'_>, &str),
        claims: &[Claim],
        reading: Reading<'_>,
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let Some(audience) = fact.audience(Some(author)) else { return Ok(false) };
        let (canvas, topic) = (fact.canvas().unwrap_or_default(), fact.topic().unwrap_or_default());
        let said = fact.statement().unwrap_or_default();
        let statement = Statement { fact, author, audience };
        let mut draft =
            Draft::new(&format!("{} {}", fact.id(), reading.by), &statement.audience, (said, reading.heard));
        let at = fact.stated_at();
        let is_finder = fact.found_by().is_some();
        let teller = Teller { person: author, canvas, topic, at, audience: &statement.audience, is_finder };
        let mut resolving = Resolving { memory: self, teller, cause, known: Vec::new() };
        let (mut links, mut outdated) = (0, BTreeSet::new());
        for claim in claims.iter().take(CLAIMS_MAX) {
            let Some(subject) = resolving.subject(claim, &mut draft).await? else { continue };
            let Some(object) = resolving.concept(&claim.object, &mut draft).await? else { continue };
            if subject == object || (subject.id().is_some() && subject.id() == object.id()) {
                continue;
            }
            // Only they themselves say under which other name people with a login are known.
            let is_another = |who: &Handle| who.login().is_some_and(|login| login != author);
            if claim.predicate == SAME_AS && (is_another(&subject) || is_another(&object)) {
                continue;
            }
            let mut directions = vec![(&subject, &object, relation_of(claim), false)];
            if let Some(back) = back_of(claim) {
                directions.push((&object, &subject, back, true));
            }
            for (subject, object, relation, is_back) in directions {
                outdated.extend(self.outdated(&statement, &claim.predicate, (subject, object), cause).await?);
                let reliability = reliability_of(&statement, claim);
                let link = self.link(&statement, &claim.predicate, reliability, (subject, object), cause).await?;
                // "Ida is Tom's sister" says more than that he is a sibling of hers.
                let relation = relation.filter(|_| !is_back || !link.has_relation);
                draft.claim(&statement, (subject, &claim.predicate, object), relation, link, &format!("?c{links}"));
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
        if answer.get("error").is_some() {
            // The types of claims may have been undone; the next statement looks for them again.
            self.has_world.store(false, Ordering::Relaxed);
        }
        Ok(answer.get("error").is_none())
    }

    /// Defines the types and predicates of claims in this mind.
    pub(crate) async fn learn_world(&self, cause: &Origin) -> Result<(), NexusError> {
        if !self.has_claims(cause).await? {
            let answer = self.execute(Request::with(WORLD, json!({})), &gardener(cause.cause.clone())).await?;
            if let Some(error) = answer.get("error") {
                return Err(NexusError::Refused(format!("the capsule of the world is refused: {error}")));
            }
        }
        Ok(())
    }

    /// Returns the metadata of a claim that the mind has already, as the statement changes it.
    pub(super) async fn link(
        &self,
        statement: &Statement<'_>,
        predicate: &str,
        reliability: f64,
        (subject, object): (&Handle, &Handle),
        cause: &Origin,
    ) -> Result<LinkState, NexusError> {
        let known = match (subject.id(), object.id()) {
            (Some(subject), Some(object)) => {
                let ends = json!({"subject": subject, "predicate": predicate, "object": object});
                rows(&self.ask(LINK, ends, cause).await?).first().cloned().unwrap_or_default()
            }
            _ => Value::Null,
        };
        let scopes = known["metadata"]["access_scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let scopes: BTreeSet<String> = scopes.map(str::to_owned).chain(statement.audience.iter().cloned()).collect();
        // What is stored is seen by all who see the link, so only what all of them heard counts.
        let others = known["metadata"]["_claims"].as_object().into_iter().flatten();
        // The same statement may be read again.
        let others = others.filter(|(source, _)| **source != *statement.fact.id()).map(|(_, bag)| bag);
        let heard_by_all = |bag: &&Value| {
            let heard = bag["heard_by"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            scopes.is_subset(&heard.collect())
        };
        let mut said: Vec<Said<'_>> = others.filter(heard_by_all).filter_map(Said::of).collect();
        let here = Said { person: statement.author, reliability, at: statement.fact.stated_at() };
        if scopes == statement.audience || said.is_empty() {
            said.push(here);
        }
        let confidence = confidence(said, predicate, self.now());
        // Of what a person said, those hear who heard one of its statements.
        let bags = known["metadata"]["_claims"].as_object().into_iter().flatten().map(|(_, bag)| bag);
        let own_bags = bags.filter(|bag| bag["author"] == statement.author);
        let heard = own_bags.flat_map(|bag| bag["heard_by"].as_array().into_iter().flatten().filter_map(Value::as_str));
        let said_to = heard.map(str::to_owned).chain(statement.audience.iter().cloned()).collect();
        let has_relation = known["attributes"]["relation"].is_string();
        let confidence = (confidence * 1e3).round() / 1e3;
        Ok(LinkState { scopes, said_to, reliability, confidence, has_relation })
    }

    /// Returns the links that a statement outdates: the same person said another object of a functional predicate before, and
    /// everybody who sees that link heard the new statement. For others, a recall folds the statements that they heard.
    pub(super) async fn outdated(
        &self,
        statement: &Statement<'_>,
        predicate: &str,
        (subject, object): (&Handle, &Handle),
        cause: &Origin,
    ) -> Result<Vec<String>, NexusError> {
        let says_so = || statement.fact.statement().is_some_and(|said| ends_former(predicate, said));
        let Some(id) = subject.id().filter(|_| says_so()) else {
            return Ok(Vec::new());
        };
        let found = self.ask(RIVALS, json!({"subject": id, "predicate": predicate}), cause).await?;
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
        for row in rows(&found).iter().filter(is_over).filter(|_| is_symmetric(predicate)) {
            let ends = json!({"subject": row[0]["object"], "predicate": predicate, "object": id});
            let back = self.ask(LINK, ends, cause).await?;
            outdated.extend(rows(&back).iter().filter_map(|link| link["id"].as_str().map(str::to_owned)));
        }
        Ok(outdated.into_iter().collect())
    }

    /// Returns `true` if a later statement of the same person, that all who heard this one heard, has ended what it says.
    pub(super) async fn is_ended(
        &self,
        statement: &Statement<'_>,
        predicate: &str,
        (subject, object): (&Handle, &Handle),
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let Some(id) = subject.id().filter(|_| is_replaced(predicate)) else { return Ok(false) };
        let found = self.ask(RIVALS, json!({"subject": id, "predicate": predicate}), cause).await?;
        Ok(rows(&found).iter().any(|row| {
            let (link, rival) = (&row[0], StoredFact::of(&row[1]));
            let is_other = link["object"].as_str() != object.id();
            let is_later = rival.author() == Some(statement.author) && rival.stated_at() > statement.fact.stated_at();
            let is_heard = rival.audience(rival.author()).is_some_and(|heard| statement.audience.is_subset(&heard));
            let says_so = rival.statement().is_some_and(|said| ends_former(predicate, said));
            is_other && is_later && is_heard && says_so
        }))
    }
}

/// Returns how far a claim of a statement is to be relied upon: what people say of themselves and of their own more than what they say of
/// others.
fn reliability_of(statement: &Statement<'_>, claim: &Claim) -> f64 {
    let is_near = claim.subject == Mention::Speaker || is_near(&claim.subject);
    match statement.fact.found_by() {
        Some(FoundBy::Research) => OF_RESEARCH,
        Some(FoundBy::Goal) => OF_A_GOAL,
        Some(FoundBy::Tool) => OF_A_TOOL,
        None if statement.author.starts_with("lifeform:") => OF_AN_AI,
        None if is_near => OF_ITSELF,
        None => OF_OTHERS,
    }
}

/// Returns `true` if a statement of a predicate ends what the same person said with it before: it says that something has become
/// another, and not that it was added.
pub(crate) fn ends_former(predicate: &str, statement: &str) -> bool {
    const ADDED: [&str; 9] = ["also", "as well", " too", "another", "second job", "还", "也", "兼", "副業"];
    const BEGUN: [&str; 16] = [
        "started",
        "joined",
        "new job",
        "new post",
        "took over",
        "hired",
        "quit",
        "promoted",
        "入职",
        "加入",
        "换了",
        "升",
        "入社",
        "就職",
        "昇進",
        "新しい",
    ];
    let plain = statement.to_lowercase();
    let is_in = |words: &[&str]| words.iter().any(|word| plain.contains(word));
    match () {
        () if is_functional(predicate) => says_change(statement),
        () if is_replaced(predicate) => (says_change(statement) || is_in(&BEGUN)) && !is_in(&ADDED),
        () => false,
    }
}

/// Returns `true` if a statement says that something has become another.
fn says_change(statement: &str) -> bool {
    const WORDS: [&str; 24] = [
        "moved",
        "swapped",
        "switched",
        "跳槽",
        "転職",
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
        _ if is_symmetric(&claim.predicate) => Some(None),
        Mention::Related { relation: Relation { inverse, predicate, .. }, .. }
            if !inverse.is_empty() && *predicate == claim.predicate =>
        {
            Some(Some(inverse))
        }
        _ => None,
    }
}
