//! The objection of others: where a message states what at least two other people contradicted before, the notes of its answer
//! say so. After that the claim has a rival, so it is said once.

use std::collections::BTreeSet;

use nexus::NexusError;
use serde_json::{Value, json};
use store::Origin;

use super::answering::Answer;
use super::{End, Path, Query};
use crate::formation::vocabulary::is_functional;
use crate::formation::{Claim, Kind, claims, ends_former, is_said_in, key_of, plain};
use crate::memory::{Memory, Readers, Recalled, rows};

/// The minimum confidence in what others told, and the minimum number of people who told it.
const SURE: f64 = 0.8;
const TELLERS_MIN: usize = 2;
/// The maximum number of statements of a message, and of claims of each, that are compared with what others told.
const STATEMENTS_MAX: usize = 2;
const CLAIMS_MAX: usize = 2;

impl Memory {
    /// Returns what at least two people, none of them the one who speaks, told otherwise than a message states it, as all readers may
    /// know it; `None` if there is nothing of the kind.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn told_otherwise(
        &self,
        message: &str,
        speaks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Option<Answer>, NexusError> {
        for statement in crate::memory::statements(message).iter().take(STATEMENTS_MAX) {
            let disputable =
                |claim: &Claim| is_functional(&claim.predicate) && !ends_former(&claim.predicate, statement);
            for claim in claims(statement).iter().filter(|claim| disputable(claim)).take(CLAIMS_MAX) {
                let (Some(path), Some(said)) = (Path::to(&claim.subject), claim.object.own_name()) else { continue };
                let end = End { predicate: Some(claim.predicate.clone()), object: None };
                let query = Query::of(&Path { end: Some(end), ..path });
                let Some(answer) = self.answer(&query, speaks, readers, cause).await? else { continue };
                // Only who says one of the objects is a teller, and the lifeform is none.
                let says_it = |fact: &&Recalled| answer.names.iter().any(|name| is_said_in(name, &fact.statement));
                let tellers = answer.evidence.iter().filter(says_it).filter_map(|fact| fact.person.as_deref());
                let tellers: BTreeSet<&str> =
                    tellers.filter(|who| *who != speaks && who.starts_with("user:")).collect();
                let is_same = |name: &String| plain(name) == plain(said) || is_said_in(said, name);
                let is_sure = answer.confidence.iter().any(|confidence| *confidence >= SURE);
                if tellers.len() < TELLERS_MIN
                    || !is_sure
                    || answer.names.len() != 1
                    || answer.names[0].is_empty()
                    || answer.names.iter().any(is_same)
                {
                    continue;
                }
                if !self.is_one_within_the_other(&answer.ids, said, cause).await? {
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    /// Returns `true` if a place with a name is in one of others, or one of them is in it: a town and its country do not contradict
    /// each other.
    async fn is_one_within_the_other(&self, others: &[String], name: &str, cause: &Origin) -> Result<bool, NexusError> {
        const NAMED: &str = r#"FIND(?p.id) WHERE { ?p {type: "Place"} FILTER(?p.attributes.key == $key) } LIMIT 10"#;
        let found = self.ask(NAMED, json!({"key": key_of(Kind::Place, name)}), cause).await?;
        for place in rows(&found).iter().filter_map(Value::as_str) {
            let around = self.places_around(place, cause).await?;
            for other in others {
                if around.contains(other) || self.places_around(other, cause).await?.contains(place) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl Answer {
    /// Returns the line that says that others told otherwise, in the language of the message.
    pub(crate) fn otherwise(&self, message: &str) -> String {
        let is_in = |from: char, to: char| message.chars().any(|c| (from..=to).contains(&c));
        let names = self.names.join(", ");
        match () {
            () if is_in('\u{3040}', '\u{30ff}') => format!("ほかの人からは違うことを聞いています：{names}"),
            () if is_in('\u{4e00}', '\u{9fff}') => format!("别人告诉你的不一样：{names}"),
            () => format!("Others told you otherwise: {names}"),
        }
    }
}
