//! The questions about conflicts: what two people stated of one thing, and one of them, who heard both, is asked about. The answer
//! decides for those who heard it, and what was decided, by whom and when stands at the claims.

use std::collections::BTreeSet;

use nexus::NexusError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Origin, Timestamp};

use super::resolving::{is_said_in, plain};
use super::vocabulary::is_symmetric;
use crate::memory::{Memory, StoredFact, rows};

/// Finds the questions about conflicts in a state.
const IN_STATE: &str = r#"
FIND(?q) WHERE { ?q {type: "Question"} FILTER(?q.attributes.kind == "conflict" && ?q.attributes.state == $state) } LIMIT 5000"#;
const FACT: &str = r#"FIND(?f) WHERE { ?f {id: $fact} }"#;
const LINK: &str = r#"FIND(?l) WHERE { ?l (id: $link) }"#;
const CONCEPT: &str = r#"FIND(?e) WHERE { ?e {id: $concept} }"#;
/// Finds the authors of the active facts that state a claim.
const TELLERS: &str = r#"
FIND(?f.metadata.author) WHERE { (?f, "states", (id: $link)) FILTER(?f.metadata.status == "active") } LIMIT 1000"#;
const ASKED: &str = r#"
UPDATE ?q SET ATTRIBUTES { state: "asked", asked_at: $at, topic: $topic } WHERE { ?q {id: $question} }"#;
const ANSWERED: &str = r#"
UPDATE ?q SET ATTRIBUTES { state: "answered", answer: $claim } WHERE { ?q {id: $question} }"#;
const REVIEWED: &str = r#"
UPDATE ?l SET METADATA { status: $status, superseded_by: $by, review_info: $review } WHERE { ?l (id: $link) }"#;
const REMOVE: &str = r#"DELETE CONCEPT ?q DETACH WHERE { ?q {id: $question} }"#;

const LET_BE: &str = r#"UPDATE ?q SET ATTRIBUTES { state: "let_be" } WHERE { ?q {id: $question} }"#;
/// Finds a link by its ends.
const ENDS: &str = r#"FIND(?l) WHERE { ?l ({id: $subject}, $predicate, {id: $object}) }"#;

/// The time within which a bare name answers a question.
const FRESH_HOURS: i64 = 24;
/// The time after which a question that nobody answered is let be.
const UNANSWERED_DAYS: i64 = 30;

/// A conflict between statements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conflict {
    /// The id of the question.
    pub(crate) question: String,
    /// The person who is asked.
    pub(crate) person: String,
    /// The ids of the facts, the earlier first.
    pub(crate) facts: Vec<String>,
    /// The ids of the claims.
    pub(crate) claims: Vec<String>,
    /// The topic in which it was asked.
    topic: Option<String>,
    asked_at: Option<Timestamp>,
}

/// A claim of a conflict.
struct Disputed {
    id: String,
    /// The name of the subject: its id, if it is a person with a login.
    subject: String,
    predicate: String,
    /// The name of the object.
    object: Option<String>,
    /// The claim in the other direction, of a predicate that holds in both.
    back: Option<String>,
    status: Value,
    scopes: BTreeSet<String>,
    tellers: Vec<String>,
}

/// An answer to a question about a conflict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision<'a> {
    /// The person who answers.
    pub(crate) person: &'a str,
    /// The topic.
    pub(crate) topic: &'a str,
    /// The words.
    pub(crate) words: &'a str,
    /// The people who heard it.
    pub(crate) audience: &'a BTreeSet<String>,
}

impl Conflict {
    fn of(question: &Value) -> Option<Self> {
        let attributes = &question["attributes"];
        let text = |member: &str| attributes[member].as_str().map(str::to_owned);
        let list = |member: &str| Vec::<String>::deserialize(&attributes[member]).ok();
        Some(Self {
            question: question["id"].as_str()?.to_owned(),
            person: text("person")?,
            facts: list("facts")?,
            claims: list("claims")?,
            topic: text("topic"),
            asked_at: text("asked_at").and_then(|at| at.parse().ok()),
        })
    }
}

impl Memory {
    /// Returns the conflicts about which nobody was asked yet.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn open_conflicts(&self, cause: &Origin) -> Result<Vec<Conflict>, NexusError> {
        self.conflicts_in("open", cause).await
    }

    async fn conflicts_in(&self, state: &str, cause: &Origin) -> Result<Vec<Conflict>, NexusError> {
        if !self.has_claims(cause).await? {
            return Ok(Vec::new());
        }
        let found = self.ask(IN_STATE, json!({"state": state}), cause).await?;
        Ok(rows(&found).iter().filter_map(Conflict::of).collect())
    }

    /// Returns the facts of a conflict, if all of them still hold.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn facts_of(&self, facts: &[String], cause: &Origin) -> Result<Option<Vec<Value>>, NexusError> {
        let mut all = Vec::new();
        for fact in facts {
            let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
            let holds = |fact: &&Value| StoredFact::of(fact).holds_at(self.now());
            let Some(fact) = rows(&found).first().filter(holds) else { return Ok(None) };
            all.push(fact.clone());
        }
        Ok(Some(all))
    }

    /// Returns `true` if all of the claims exist.
    async fn are_there(&self, claims: &[String], cause: &Origin) -> Result<bool, NexusError> {
        for claim in claims {
            if rows(&self.ask(LINK, json!({"link": claim}), cause).await?).is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Marks a question as asked in a topic.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn asked_about(&self, question: &str, topic: &str, cause: &Origin) -> Result<(), NexusError> {
        let _turn = self.take_turn().await;
        self.ask(ASKED, json!({"question": question, "topic": topic, "at": self.now()}), cause).await.map(drop)
    }

    /// Settles the questions that a message answers in the topic in which its sender was asked: it claims one of the objects of the same
    /// predicate, or, within a day, hardly says more than that object. What the sender said otherwise before is superseded, and so is
    /// what others said of the sender. Other claims of others stay, with the verdict. Claims that people see who did not hear the
    /// answer are left as they are. Returns the number of settled questions.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn settle(&self, decision: Decision<'_>, cause: &Origin) -> Result<usize, NexusError> {
        let Decision { person, topic, words, audience } = decision;
        let mut settled = 0;
        if is_evasive(words) {
            return Ok(settled);
        }
        for conflict in self.conflicts_in("asked", cause).await? {
            if conflict.person != person || conflict.topic.as_deref() != Some(topic) {
                continue;
            }
            let is_fresh = conflict.asked_at.is_some_and(|at| self.now().duration_since(at).as_hours() < FRESH_HOURS);
            let _turn = self.take_turn().await;
            let mut claims = Vec::new();
            for claim in &conflict.claims {
                claims.extend(self.disputed(claim, cause).await?);
            }
            let is_named = |claim: &&Disputed| claim.object.as_deref().is_some_and(|name| is_said_in(name, words));
            let named: Vec<&Disputed> = claims.iter().filter(is_named).collect();
            let [chosen] = named[..] else { continue };
            let object = chosen.object.as_deref().unwrap_or_default();
            let is_claimed = super::claims(words).iter().any(|claim| {
                claim.predicate == chosen.predicate
                    && claim.object.own_name().is_some_and(|name| plain(name) == plain(object))
            });
            let answers = is_claimed || (is_fresh && is_hardly_more(words, object));
            if !answers {
                continue;
            }
            for claim in &claims {
                if claim.status != "active" || !claim.scopes.is_subset(audience) {
                    continue;
                }
                let are_own = !claim.tellers.is_empty() && claim.tellers.iter().all(|teller| teller == person);
                let (verdict, status, by) = match claim.id == chosen.id {
                    true => ("confirmed", "active", None),
                    false if claim.subject == person || are_own => ("superseded", "superseded", Some(&chosen.id)),
                    false => ("disputed", "active", None),
                };
                let review = json!({"by": person, "at": self.now(), "verdict": verdict, "was": claim.status});
                for link in [Some(&claim.id), claim.back.as_ref()].into_iter().flatten() {
                    let verdict = json!({"link": link, "status": status, "by": by, "review": review});
                    self.ask(REVIEWED, verdict, cause).await?;
                }
            }
            self.ask(ANSWERED, json!({"question": conflict.question, "claim": chosen.id}), cause).await?;
            settled += 1;
        }
        Ok(settled)
    }

    /// Returns a claim of a conflict with what decides it; `None` if it is gone.
    async fn disputed(&self, claim: &str, cause: &Origin) -> Result<Option<Disputed>, NexusError> {
        let found = self.ask(LINK, json!({"link": claim}), cause).await?;
        let Some(link) = rows(&found).first() else { return Ok(None) };
        let subject = self.ask(CONCEPT, json!({"concept": link["subject"]}), cause).await?;
        let object = self.ask(CONCEPT, json!({"concept": link["object"]}), cause).await?;
        let tellers = self.ask(TELLERS, json!({"link": claim}), cause).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let predicate = text(&link["predicate"]).unwrap_or_default();
        let back = match is_symmetric(&predicate) {
            true => {
                self.ask(
                    ENDS,
                    json!({"subject": link["object"], "predicate": predicate, "object": link["subject"]}),
                    cause,
                )
                .await?
            }
            false => Value::Null,
        };
        let scopes = link["metadata"]["access_scopes"].as_array().into_iter().flatten();
        Ok(Some(Disputed {
            id: claim.to_owned(),
            subject: rows(&subject).first().and_then(|person| text(&person["name"])).unwrap_or_default(),
            object: rows(&object).first().and_then(|concept| text(&concept["attributes"]["name"])),
            predicate,
            back: rows(&back).first().and_then(|link| text(&link["id"])),
            status: link["metadata"]["status"].clone(),
            scopes: scopes.filter_map(text).collect(),
            tellers: rows(&tellers).iter().filter_map(text).collect(),
        }))
    }

    /// Removes the questions about facts that are gone, or after the answer about claims that are gone, and lets those be that nobody answered
    /// within a month. The caller has the turn.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn tidy_conflicts(&self, cause: &Origin) -> Result<usize, NexusError> {
        let mut removed = 0;
        for state in ["open", "asked", "answered", "let_be"] {
            for conflict in self.conflicts_in(state, cause).await? {
                let is_old = |at: Timestamp| self.now().duration_since(at).as_hours() > 24 * UNANSWERED_DAYS;
                // A question that was settled is not asked again as long as others state the same.
                let is_over = match state {
                    "answered" | "let_be" => !self.are_there(&conflict.claims, cause).await?,
                    _ => self.facts_of(&conflict.facts, cause).await?.is_none(),
                };
                if is_over {
                    self.ask(REMOVE, json!({"question": conflict.question}), cause).await?;
                    removed += 1;
                } else if state == "asked" && conflict.asked_at.is_some_and(is_old) {
                    self.let_be(&conflict.question, cause).await?;
                }
            }
        }
        Ok(removed)
    }

    /// Marks a question as one that is not asked any more.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn let_be(&self, question: &str, cause: &Origin) -> Result<(), NexusError> {
        self.ask(LET_BE, json!({"question": question}), cause).await.map(drop)
    }
}

/// Returns `true` if a message hardly says more than the name of an object: "Oslo.", "It's Oslo again, sorry".
fn is_hardly_more(words: &str, object: &str) -> bool {
    const MORE_MAX: usize = 4;
    const CHARS_MAX: usize = 12;
    match object.is_ascii() {
        true => words.split_whitespace().count() <= object.split_whitespace().count() + MORE_MAX,
        false => words.chars().count() <= object.chars().count() + CHARS_MAX,
    }
}

/// Returns `true` for an answer that asks, denies or doubts: it decides nothing.
fn is_evasive(words: &str) -> bool {
    const WORDS: [&str; 22] = [
        "not", "no", "never", "neither", "nor", "maybe", "perhaps", "think", "guess", "both", "either", "wrong",
        "left", "from", "used", "longer", "before", "was", "would", "if", "or", "said",
    ];
    const PARTS: [&str; 22] = [
        "?",
        "？",
        "n't",
        "或许",
        "不",
        "没",
        "都是",
        "可能",
        "错",
        "离开",
        "以前",
        "如果",
        "说",
        "ない",
        "違",
        "かも",
        "両方",
        "たぶん",
        "離れ",
        "前は",
        "昔",
        "って",
    ];
    let plain = words.to_lowercase().replace('’', "'");
    let is_word = |word: &str| WORDS.contains(&word);
    PARTS.iter().any(|part| plain.contains(part))
        || plain.split(|c: char| !c.is_alphanumeric()).any(is_word)
        || words.lines().any(|line| line.trim_start().starts_with(['>', '›', '"', '“', '「']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_answer_decides() {
        for words in ["Oslo.", "It is Oslo now, she moved back.", "奥斯陆。", "オスロです"] {
            assert!(!is_evasive(words), "{words}");
        }
        for words in [
            "Not Oslo.",
            "Oslo is wrong.",
            "She left Oslo.",
            "Isn't it Oslo?",
            "Both, in turn",
            "> Oslo",
            "不是奥斯陆",
            "奥斯陆是错的。",
            "オスロではない",
            "オスロは違います。",
        ] {
            assert!(is_evasive(words), "{words}");
        }
        assert!(is_hardly_more("It's Oslo, sorry!", "Oslo") && is_hardly_more("奥斯陆，对的", "奥斯陆"));
        assert!(!is_hardly_more("I fly to Oslo on Friday", "Oslo"));
    }
}
