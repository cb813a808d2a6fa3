//! The batches of statements that a model reads at night.

use std::collections::BTreeSet;

use nexus::NexusError;
use serde_json::{Value, json};
use store::Origin;

use super::filing;
use super::mention::Claim;
use super::predicates::OwnPredicate;
use super::reading::Talk;
use super::writing::{ACTIVE, FACT, Reading, author_of};
use crate::memory::{Memory, StoredFact, rows};

/// The maximum number of statements that a model reads in one call, and of those from which they are taken.
const BATCH_MAX: usize = 12;
const UNREAD_MAX: usize = 2_000;

/// Finds the oldest active facts that no model has read.
const UNREAD: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") NOT { (?f, "read_by", ?r) } } ORDER BY ?f.metadata._updated_at LIMIT $limit"#;
const READ: &str = r#"
UPSERT { PROPOSITION { ({id: $fact}, "read_by", {type: "Person", name: "$self"}) } } WITH METADATA { source: $source }"#;

/// The canvas, the topic and the audience of a statement.
type Place<'f> = (Option<&'f str>, Option<&'f str>, Option<BTreeSet<String>>);

/// A statement for a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unread {
    /// The id of the fact.
    pub(crate) id: String,
    /// The person who stated it.
    pub(crate) person: String,
    /// The words.
    pub(crate) statement: String,
    /// The message that stated it last, if it is known.
    pub(crate) message: Option<String>,
}

/// The statements that a model reads in one call, all of one topic and one audience.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    /// The statements that no model has read, in order.
    pub(crate) statements: Vec<Unread>,
    /// The canvas and the topic, if they are known.
    pub(crate) place: Option<(String, String)>,
    /// The people who heard all of it.
    pub(crate) audience: BTreeSet<String>,
}

impl Memory {
    /// Returns the oldest statements that no model has read for claims, of one topic and one audience, if there are at least as many as
    /// `least`; otherwise an empty batch.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn unread(&self, least: usize, cause: &Origin) -> Result<Batch, NexusError> {
        let unread = if self.has_claims(cause).await? { UNREAD } else { ACTIVE };
        let found = self.ask(unread, json!({"limit": UNREAD_MAX}), cause).await?;
        let mut facts: Vec<StoredFact<'_>> = rows(&found).iter().map(StoredFact::of).collect();
        facts.sort_by_key(|fact| fact.stated_at());
        let mut batches: Vec<(Place<'_>, Vec<Unread>)> = Vec::new();
        for fact in facts {
            let (Some(author), Some(statement)) = (author_of(fact), fact.statement()) else { continue };
            let place = (fact.canvas(), fact.topic(), fact.audience(Some(author)));
            let (id, person, message) = (fact.id().to_owned(), author.to_owned(), fact.message().map(str::to_owned));
            let one = Unread { id, person, statement: statement.to_owned(), message };
            match batches.iter_mut().find(|(of, _)| *of == place) {
                Some((_, batch)) => batch.push(one),
                None => batches.push((place, vec![one])),
            }
        }
        let batch = batches.into_iter().find(|(_, batch)| batch.len() >= least);
        let Some(((canvas, topic, audience), mut statements)) = batch else { return Ok(Batch::default()) };
        statements.truncate(BATCH_MAX);
        let place = canvas.zip(topic).map(|(canvas, topic)| (canvas.to_owned(), topic.to_owned()));
        Ok(Batch { statements, place, audience: audience.unwrap_or_default() })
    }

    /// Writes the claims and the themes that a model read in statements, and marks the statements as read. A statement that was
    /// forgotten or taken back meanwhile is passed over. `around` is what else was said in the talk, where the whole audience heard it.
    /// Returns the number of statements with claims, and of rejected claims.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn form_read(
        &self,
        (around, facts): (&[String], &[String]),
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
        let themes = filing::themes(answer, statements.len());
        self.learn_world(cause).await?;
        // A batch has one audience.
        let audience = kept.iter().find_map(|fact| fact.audience(Some(author_of(*fact)?))).unwrap_or_default();
        let (predicates, new) = self.predicates_with(answer, &audience, cause).await?;
        let (claims, rejected) =
            super::reading::read(answer, &Talk { around, people: &audience }, &statements, &predicates);
        let is_used = |own: &&OwnPredicate| claims.iter().any(|(_, claim)| claim.predicate == own.name);
        self.define(&new.iter().filter(is_used).collect::<Vec<_>>(), &audience, cause).await?;
        let mut formed = 0;
        for (at, id) in facts.iter().enumerate() {
            let Some(fact) = kept.iter().find(|fact| fact.id() == id && fact.holds()) else { continue };
            let of: Vec<Claim> = claims.iter().filter(|(of, _)| *of == at).map(|(_, claim)| claim.clone()).collect();
            if let Some(author) = author_of(*fact).filter(|_| !of.is_empty()) {
                let heard = around.iter().map(String::as_str).chain(statements[..at].iter().copied());
                let reading = Reading { by: "model", heard: &heard.collect::<Vec<_>>().join("\n") };
                formed += usize::from(self.write_claims((*fact, author), &of, reading, cause).await?);
            }
            let of: Vec<&str> = themes.iter().filter(|(of, _)| *of == at).map(|(_, theme)| theme.as_str()).collect();
            if !of.is_empty() {
                self.tag(id, &of, cause).await?;
            }
            // Even if the model failed: it would fail again, and each call is paid.
            self.ask(READ, json!({"fact": id, "source": id}), cause).await?;
        }
        Ok((formed, rejected))
    }
}
