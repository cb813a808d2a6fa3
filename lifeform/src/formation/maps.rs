//! The statements of mind maps: which theme is a part of which, and the sentences on nodes. A statement of a map holds as long as its node
//! has that title.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use nexus::NexusError;
use serde_json::json;
use store::Origin;

use super::writing::{FACT, Reading, author_of};
use super::{Claim, Mention, claims};
use crate::memory::{Fact, Memory, Stated, StoredFact, rows};

/// The beginning of the sources of the statements of maps.
const SOURCE: &str = "map:";
/// The maximum number of statements of maps in a mind.
const STATEMENTS_MAX: usize = 500;
/// The maximum number of those that one person wrote.
const OF_A_PERSON_MAX: usize = 200;
/// The bounds of the title of a theme, in characters and words.
const TITLE_CHARS_MAX: usize = 60;
const TITLE_WORDS_MAX: usize = 6;

/// The status of a statement that no longer stands on its map.
const ENDED: &str = "superseded";

/// Finds the statements of maps, also those that are over.
const OF_MAPS: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(STARTS_WITH(?f.metadata.source, "map:")) } LIMIT 5000"#;
/// Finds the facts of a person in these words.
const SAID_BEFORE: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.author == $person && ?f.attributes.statement == $statement) } LIMIT 20"#;
/// Finds the active statements of maps that state no claim.
const UNCLAIMED: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(STARTS_WITH(?f.metadata.source, "map:") && ?f.metadata.status == "active") NOT { (?f, "states", ?l) } } LIMIT 1000"#;

/// A statement of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OnMap {
    /// The name of the map's canvas.
    pub(crate) canvas: String,
    /// The id of the node.
    pub(crate) node: String,
    /// The person who wrote the node.
    pub(crate) person: String,
    /// The people who see the map.
    pub(crate) people: BTreeSet<String>,
    /// The statement.
    pub(crate) statement: String,
    /// The theme of the node and the one of which it is a part; `None` for a sentence.
    pub(crate) part: Option<(String, String)>,
}

/// Returns the statement of a node of a map: its title, if that is a sentence, else that its theme is a part of the theme of its parent.
pub(crate) fn statement_of(map: &str, title: &str, parent: Option<&str>) -> Option<(String, Option<(String, String)>)> {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_sentence = title.ends_with(['.', '。', '!', '！']) || !claims(&title).is_empty();
    if is_sentence && crate::memory::statements(&title) == [title.clone()] {
        return Some((title, None));
    }
    let parent = parent?.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_theme = |title: &str| {
        let is_plain = |c: char| c.is_alphanumeric() || " -&'’・·,()（）".contains(c);
        (1..=TITLE_CHARS_MAX).contains(&title.chars().count())
            && title.split(' ').count() <= TITLE_WORDS_MAX
            && title.chars().all(is_plain)
            && title.chars().any(char::is_alphabetic)
    };
    (is_theme(&title) && is_theme(&parent) && title != parent)
        .then(|| (format!("{map}: {parent} › {title}"), Some((title, parent))))
}

impl OnMap {
    /// Returns `true` if a fact is this statement, at this node.
    fn is_in(&self, fact: StoredFact<'_>) -> bool {
        let source = format!("{SOURCE}{}/{}", self.canvas, self.node);
        let here = Stated {
            person: &self.person,
            canvas: &self.canvas,
            topic: &self.canvas,
            message: &self.node,
            source: &source,
        };
        fact.author() == Some(&*self.person)
            && fact.statement() == Some(&*self.statement)
            && fact.places().iter().any(|place| place.is_of(here))
    }
}

/// Returns `true` if a statement is over because its node no longer had it.
fn is_ended_by_map(fact: StoredFact<'_>) -> bool {
    fact.status() == Some(ENDED) && fact.superseded_by().is_some_and(|by| by.starts_with(SOURCE))
}

impl Memory {
    /// Makes the statements of maps those that they say now: new ones are kept and claimed, and those that no longer stand there are
    /// superseded. What was corrected or forgotten elsewhere does not come back. Returns the numbers of new and of ended statements.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn learn_of_maps(&self, now: &[OnMap], cause: &Origin) -> Result<(usize, usize), NexusError> {
        let found = self.ask(OF_MAPS, json!({}), cause).await?;
        let known: Vec<StoredFact<'_>> = rows(&found).iter().map(StoredFact::of).collect();
        let (mut kept, mut ended) = (0, 0);
        for fact in known.iter().filter(|fact| fact.holds() && !now.iter().any(|one| one.is_in(**fact))) {
            let (Some(person), Some(canvas), Some(node)) = (fact.author(), fact.canvas(), fact.message()) else {
                continue;
            };
            let source = format!("{SOURCE}{canvas}/{node}");
            let stated = Stated { person, canvas, topic: canvas, message: node, source: &source };
            self.unsay(stated, ENDED, cause).await?;
            ended += 1;
        }
        let is_settled = |one: &&OnMap| known.iter().any(|fact| one.is_in(*fact) && !is_ended_by_map(*fact));
        let room = STATEMENTS_MAX.saturating_sub(known.iter().filter(|fact| fact.holds()).count() - ended);
        let today = self.now().to_zoned(TimeZone::UTC).date();
        let mut by_person: BTreeMap<String, usize> = BTreeMap::new();
        for fact in known.iter().filter(|fact| fact.holds() && now.iter().any(|one| one.is_in(**fact))) {
            *by_person.entry(fact.author().unwrap_or_default().to_owned()).or_default() += 1;
        }
        for one in now.iter().filter(|one| !is_settled(one)) {
            let of_person = by_person.entry(one.person.clone()).or_default();
            if kept >= room || *of_person >= OF_A_PERSON_MAX {
                continue;
            }
            let (canvas, source) = (&*one.canvas, format!("{SOURCE}{}/{}", one.canvas, one.node));
            let stated = Stated { person: &one.person, canvas, topic: canvas, message: &one.node, source: &source };
            // What the person took back elsewhere stays so.
            let said = json!({"person": one.person, "statement": one.statement});
            let before = self.ask(SAID_BEFORE, said, cause).await?;
            if rows(&before).iter().map(StoredFact::of).any(|fact| !fact.holds() && !is_ended_by_map(fact)) {
                continue;
            }
            *of_person += 1;
            // The person may never have talked with the lifeform.
            self.meet(Stated { source: &format!("{SOURCE}{canvas}"), ..stated }, cause).await?;
            let dates = knowledge::dates(&one.statement, today);
            let fact = Fact { dates, ..Fact::plain(&one.statement, &one.statement) };
            kept += self.learn(stated, &[fact], &one.people, &[], || true, cause).await?.len();
        }
        // After a crash, some of them may have no claim yet.
        self.learn_world(cause).await?;
        let unclaimed = self.ask(UNCLAIMED, json!({}), cause).await?;
        for fact in rows(&unclaimed).iter().map(StoredFact::of) {
            let Some(one) = now.iter().find(|one| one.is_in(fact)) else { continue };
            match &one.part {
                None => drop(self.form(&[fact.id().to_owned()], cause).await?),
                Some((part, whole)) => self.claim_part(fact.id(), part, whole, cause).await?,
            }
        }
        Ok((kept, ended))
    }

    /// Claims that a theme is a part of another, by a fact that says so.
    async fn claim_part(&self, fact: &str, part: &str, whole: &str, cause: &Origin) -> Result<(), NexusError> {
        let _turn = self.take_turn().await;
        self.learn_world(cause).await?;
        let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
        let Some(fact) = rows(&found).first().map(StoredFact::of).filter(|fact| fact.holds()) else { return Ok(()) };
        let Some(author) = author_of(fact) else { return Ok(()) };
        let claim = Claim::new(Mention::theme(part), "part_of", Mention::theme(whole));
        let reading = Reading { by: "map", heard: "" };
        self.write_claims((fact, author), &[claim], reading, cause).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_sentence_or_a_part_of_its_parent() {
        let part = |title: &str, parent: &str| Some((title.to_owned(), parent.to_owned()));
        for (title, parent, is) in [
            ("Sails", Some("Boat"), Some(("Summer: Boat › Sails", part("Sails", "Boat")))),
            ("  new   sails ", Some("Boat"), Some(("Summer: Boat › new sails", part("new sails", "Boat")))),
            ("船帆", Some("船"), Some(("Summer: 船 › 船帆", part("船帆", "船")))),
            ("Dora lives in Lyon", Some("Friends"), Some(("Dora lives in Lyon", None))),
            ("The jetty is closed on Mondays.", None, Some(("The jetty is closed on Mondays.", None))),
            ("Sails", None, None),
            ("Boat", Some("Boat"), None),
            ("Who pays?", Some("Boat"), None),
            ("<b>", Some("Boat"), None),
            ("a theme of more than six words", Some("Boat"), None),
            ("42", Some("Boat"), None),
            ("", Some("Boat"), None),
        ] {
            let found = statement_of("Summer", title, parent);
            assert_eq!(found, is.map(|(said, part): (&str, _)| (said.to_owned(), part)), "{title}");
        }
    }
}
