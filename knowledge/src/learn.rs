//! Learning of records from conversations and job results (MISSION R3, R4). Worthless statements are skipped. Known
//! statements confirm their record. A new statement about a thing that a person has only one of replaces the earlier
//! statement. A repetition after a crash changes nothing.

mod unlearning;

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use nexus::{PROVENANCE_KEY, Provenance, WriteAuthority};
use regex::Regex;
use serde_json::{Map, Value, json};
use store::secrets::redacted;
use store::{Batch, Hash, Origin};

use crate::copies::HEARD_BY;
use crate::draft::{Body, Draft};
use crate::feedback::{Judgement, SAID_AGAIN};
use crate::likeness::{Tenor, are_opposite, differ, in_order, likeness, telling, words};
use crate::list::Which;
use crate::record::{CONFIDENCE, Record, SOURCE_KEY, Status, Type};
use crate::search::{FLOOR, Query, Router};
use crate::statement_patterns::sentences;
use crate::write::{LETTERS, LETTERS_OF_AN_ID, upsert};
use crate::{Knowledge, KnowledgeError, commons, outcome};
use unlearning::{Unsaid, unsaid};

/// The maximum length of one lesson, in characters.
const LESSON_CHARS_MAX: usize = 600;
/// The minimum number of different words of a lesson.
const WORDS_MIN: usize = 2;
/// The share of common words from which two texts count as equal.
const SAME: f64 = 0.8;
/// The number of nearest known records that a new lesson is compared with.
const ALIKE_MAX: usize = 5;
/// The maximum number of further agents that a record lists as having heard it.
const HEARD_BY_MAX: usize = 32;
/// The tag of a thing that a person has only one of.
const SLOT: &str = "slot";
/// The category of a source that was extracted, not written by hand.
pub(crate) const EXTRACTED: &str = "extracted";

/// The marks around records in prompts. Text between them is not learned again.
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)<knowledge\b[^>]*>.*?(?:</knowledge>|\z)").unwrap_or_else(|error| unreachable!("{error}"))
});

/// Phrases that announce a secret in plain words, such as a PIN that no pattern would recognize.
static CONFIDES: LazyLock<Regex> = LazyLock::new(|| {
    let said = r"(?i)\b(?:passwords?|passphrases?|passcodes?|pin(?: codes?| numbers?)?|(?:door|gate|alarm|safe|lock|secret) (?:codes?|keys?|words?))\b[^.!?]{0,40}?(?:\bis\b|\bare\b|\bwas\b|[:=])|(?:密码|口令|暗号|パスワード|暗証番号|合言葉)[^。！？]{0,20}?(?:是|为|は|：|:|＝|=)";
    Regex::new(said).unwrap_or_else(|error| unreachable!("{error}"))
});

/// A statement to learn.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// The types of knowledge.
    pub types: Vec<Type>,
    /// The tags `category` and `domain`, and `slot` for a thing that a person has only one of.
    pub tags: Map<String, Value>,
    /// The situation to which the lesson applies.
    pub task: String,
    /// The content.
    pub content: String,
    /// The owner.
    pub owner: String,
    /// The scopes that may read the record.
    pub scopes: Vec<String>,
    /// The id of the message or job that the lesson comes from.
    pub message_id: String,
    /// The time of the statement.
    pub at: Timestamp,
    /// The id of the agent that learned it.
    pub agent_id: String,
    /// The provenance of a lifeform's own lesson; `None` if the owner said it.
    pub provenance: Option<Provenance>,
    /// The ids of the resources that it needs.
    pub resources: Vec<String>,
}

/// The result of a call of [`Knowledge::learn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// A new record was created.
    Kept(String),
    /// An existing record has the same content; its confidence increases.
    Confirmed(String),
    /// An existing record had other content, which was replaced. The earlier content is a version of the record.
    Revised(String),
    /// The statement was skipped, for this reason.
    Passed(&'static str),
}

impl Learned {
    /// Returns the id of the record that contains the lesson.
    pub fn record(&self) -> Option<&str> {
        match self {
            Self::Kept(id) | Self::Confirmed(id) | Self::Revised(id) => Some(id),
            Self::Passed(_) => None,
        }
    }
}

impl Lesson {
    /// Returns the draft of a new record with that id.
    pub(crate) fn into_draft(self, id: &str) -> Draft {
        let mut case = Map::new();
        case.insert("task".to_owned(), self.task.as_str().into());
        case.insert("outcome".to_owned(), EXTRACTED.into());
        case.insert("message_id".to_owned(), self.message_id.as_str().into());
        let source = self.source();
        let body = Body {
            task: Some(self.task),
            content: Some(self.content.trim().to_owned()),
            types: Some(self.types),
            tags: Some(self.tags),
            resource_ids: (!self.resources.is_empty()).then_some(self.resources),
            ..Body::default()
        };
        Draft {
            id: Some(id.to_owned()),
            confidence: Some(CONFIDENCE),
            first_case: Some(case),
            message_id: Some(self.message_id),
            source,
            provenance: self.provenance,
            ..Draft::new(self.owner, self.scopes, body)
        }
    }

    /// Returns the name of the record, derived from the message and its words, so a repetition has the same name.
    pub(crate) fn id(&self) -> String {
        let stated = json!([self.owner, self.message_id, self.content]).to_string();
        let hash = Hash::of(stated.as_bytes()).hex();
        let letters = hash.as_bytes().chunks(2).take(LETTERS_OF_AN_ID);
        let letter = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
            char::from(LETTERS[usize::from(pair.unwrap_or_default()) % LETTERS.len()])
        };
        let day = self.at.to_zoned(TimeZone::UTC).strftime("%Y%m%d");
        format!("knowledge-{day}-{}", letters.map(letter).collect::<String>())
    }

    /// Returns the reason why the lesson is not worth a record, if there is one.
    fn junk(&self) -> Option<&'static str> {
        let content = self.content.trim();
        match () {
            () if TOLD.is_match(content) => Some("it was told"),
            () if content.chars().count() > LESSON_CHARS_MAX => Some("it is long"),
            () if words(content).len() < WORDS_MIN => Some("it says too little"),
            () if content.ends_with(['?', '？']) => Some("it asks"),
            () if redacted(content).is_some() || content.contains("[REDACTED:") => Some("it holds a secret"),
            () if is_confided(content) => Some("it tells a secret"),
            () if self.task.trim().is_empty() => Some("it is for nothing"),
            () => None,
        }
    }
}

/// Returns `true` if a text holds a secret, by its format or in plain words ("my PIN is …"). Such a text must not be
/// stored where others can read it.
pub fn is_confided(text: &str) -> bool {
    CONFIDES.is_match(text) || text.contains("{{secret:") || redacted(text).is_some()
}

/// Returns a text without the records that a prompt contained.
pub fn without_told(text: &str) -> String {
    TOLD.replace_all(text, " ").into_owned()
}

/// Returns `true` if one sentence of `said` contains all significant words and facts of `read`, with the same number of
/// negations. Words spread over several sentences do not count.
pub fn is_borne_out(read: &str, said: &str) -> bool {
    let (telling, tenor) = (telling(read), Tenor::of(read));
    let bears = |sentence: &String| {
        let known = words(sentence);
        tenor.is_within(&Tenor::of(sentence)) && telling.iter().all(|word| known.contains(word))
    };
    !telling.is_empty() && sentences(said).iter().any(bears)
}

impl Knowledge {
    /// Stores a lesson, unless it is worthless or already known.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read or written, or refuse the write for `origin`.
    pub async fn learn(&self, lesson: Lesson, origin: &Origin) -> Result<Learned, KnowledgeError> {
        if let Some(why) = lesson.junk() {
            return Ok(Learned::Passed(why));
        }
        let _turn = self.once.lock().await;
        let unsaid = unsaid(&lesson.owner, &lesson.message_id);
        let learned = Box::pin(self.keep(lesson, origin)).await?;
        // A lesson that a changed message states again is supported by it again.
        if let Some(id) = learned.record()
            && let Some(known) = self.store.document::<Unsaid>(&unsaid).await?
            && known.value.holds(id)
        {
            let mut now = known.value;
            now.still.insert(id.to_owned());
            now.deleted.remove(id);
            self.store.commit(Batch::new(origin).put(unsaid, &now)).await?;
        }
        Ok(learned)
    }

    async fn keep(&self, lesson: Lesson, origin: &Origin) -> Result<Learned, KnowledgeError> {
        let (first, mut id, mut more) = (lesson.id(), lesson.id(), 1);
        // An earlier try may have created the record. A record that was retracted when its message changed does not
        // count.
        loop {
            match self.any(&id, origin).await {
                // The message had other content in between and now states this again.
                Ok(known) if known.status == Status::Active && lesson.is_back_at(&known) => break,
                Ok(known) if known.status == Status::Active => return Ok(Learned::Kept(id)),
                Ok(_) => {
                    more += 1;
                    id = format!("{first}.{more}");
                }
                Err(KnowledgeError::NotFound(_)) => break,
                Err(error) => return Err(error),
            }
        }
        let near = self.near(&lesson, origin).await?;
        if let Some(known) = near.iter().find(|record| says(record, &lesson)) {
            let mut case = Map::new();
            case.insert("task".to_owned(), lesson.task.into());
            case.insert("outcome".to_owned(), SAID_AGAIN.into());
            // A message confirms a record once, however often it is read.
            case.insert("message_id".to_owned(), lesson.message_id.as_str().into());
            if known.message_id.as_deref() != Some(&*lesson.message_id) {
                self.count(&known.id, Judgement { helpful: true, case, instead: false }, origin).await?;
            }
            if known.is_of_other_talks_than(&lesson.agent_id) {
                self.heard_too(known, &lesson.agent_id, origin).await?;
            }
            return Ok(Learned::Confirmed(known.id.clone()));
        }
        let opposite = near.into_iter().find(|record| are_opposite(&record.content, &lesson.content));
        let replaced = match opposite {
            None => self.in_slot(&lesson, origin).await?,
            opposite => opposite,
        };
        if let Some(known) = replaced {
            // A slow model may finish an earlier message after a later one.
            if lesson.is_older_than(&known) {
                return Ok(Learned::Passed("something newer was said"));
            }
            return self.revise(known, lesson, origin).await;
        }
        match self.put(lesson.into_draft(&id), &|_| Vec::new(), origin).await {
            Ok(saved) => Ok(Learned::Kept(saved.record.id)),
            Err(KnowledgeError::Conflict(_)) => Ok(Learned::Kept(id)),
            Err(error) => Err(error),
        }
    }

    /// Returns the nearest records of the same owner. Records of other owners do not count as confirmation.
    async fn near(&self, lesson: &Lesson, origin: &Origin) -> Result<Vec<Record>, KnowledgeError> {
        let text: String = sentences(&lesson.content).join(" ").chars().take(LESSON_CHARS_MAX).collect();
        let which = Which { owner: Some(lesson.owner.clone()), ..Which::default() };
        let query = Query { which, router: Some(Router::Lexical), floor: FLOOR, ..Query::new(text, ALIKE_MAX) };
        Ok(self.search(&query, origin).await?.hits.into_iter().map(|hit| hit.record).collect())
    }

    /// Returns the owner's record in the slot of the lesson.
    async fn in_slot(&self, lesson: &Lesson, origin: &Origin) -> Result<Option<Record>, KnowledgeError> {
        let Some(slot) = lesson.tags.get(SLOT) else { return Ok(None) };
        let which = Which { owner: Some(lesson.owner.clone()), types: [Type::UserProfile].into(), ..Which::default() };
        let mut own = self.all(&which, origin).await?.into_iter();
        Ok(own.find(|record| record.tags.get(SLOT) == Some(slot)))
    }

    /// Records that a further agent heard the content of a record.
    async fn heard_too(&self, known: &Record, agent: &str, origin: &Origin) -> Result<(), KnowledgeError> {
        let known = self.any(&known.id, origin).await?;
        let mut tags = known.tags.clone();
        let mut heard: Vec<Value> = tags.get(HEARD_BY).and_then(Value::as_array).cloned().unwrap_or_default();
        if heard.len() < HEARD_BY_MAX {
            heard.push(agent.into());
        }
        tags.insert(HEARD_BY.to_owned(), heard.into());
        let body = Body { tags: Some(tags), ..Body::default() };
        match self.rewrite(&known, body, &json!({}), origin).await {
            // The record has other content by now, which this agent did not hear.
            Err(KnowledgeError::Stale(_)) => Ok(()),
            noted => noted,
        }
    }

    async fn revise(&self, known: Record, lesson: Lesson, origin: &Origin) -> Result<Learned, KnowledgeError> {
        let mut metadata = json!({
            "confidence": CONFIDENCE, "message_id": lesson.message_id, SOURCE_KEY: lesson.source(),
            "evidence": [format!("msg:{}", lesson.message_id)], "source": lesson.message_id,
        });
        // The other agents heard the earlier content.
        let mut tags = known.tags.clone();
        tags.remove(HEARD_BY);
        if let Some(provenance) = &lesson.provenance {
            // The words are those of another conversation now.
            metadata[PROVENANCE_KEY] = provenance.to_json();
        }
        let body = Body { task: Some(lesson.task), content: Some(lesson.content), tags: Some(tags), ..Body::default() };
        self.rewrite(&known, body, &metadata, origin).await?;
        Ok(Learned::Revised(known.id))
    }

    async fn rewrite(
        &self,
        known: &Record,
        body: Body,
        metadata: &Value,
        origin: &Origin,
    ) -> Result<(), KnowledgeError> {
        let (whose, mut version) = ((known.owner.as_str(), known.scopes.as_slice()), known.version);
        loop {
            let call = upsert(&known.id, &format!("EXPECT VERSION {version}"), &body, metadata, whose);
            let answer = self.nexus.write_with(&commons(), call, origin, WriteAuthority::Attest, Vec::new()).await?;
            match outcome(&answer, &known.id) {
                // A judgement was written in between, which is no conflict. The content of another writer is kept.
                Err(stale @ KnowledgeError::Stale(_)) => {
                    let now = self.seen(&known.id, origin).await?;
                    if now.content != known.content || now.version == version {
                        return Err(stale);
                    }
                    version = now.version;
                }
                done => return done.map(drop),
            }
        }
    }
}

/// Returns `true` if a record contains the lesson.
fn says(record: &Record, lesson: &Lesson) -> bool {
    let (known, said) = (record.content.as_str(), lesson.content.as_str());
    let alike = likeness(&words(known), &words(said)) >= SAME;
    alike && Tenor::of(known) == Tenor::of(said) && in_order(known, said) && !differ(known, said)
}

impl Lesson {
    /// Returns `true` if a later lesson of the same message replaced the content of the record in the owner's slot.
    fn is_back_at(&self, known: &Record) -> bool {
        let of_it = known.message_id.as_deref() == Some(&*self.message_id) && self.tags.contains_key(SLOT);
        of_it && known.content != self.content.trim()
    }

    /// Returns `true` if the record's statement was made later than the lesson's.
    fn is_older_than(&self, known: &Record) -> bool {
        let said = known.source.get("timestamp").and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok());
        known.message_id.as_deref() != Some(&*self.message_id) && said.is_some_and(|said| self.at < said)
    }

    fn source(&self) -> Map<String, Value> {
        let said = [
            ("category", EXTRACTED.to_owned()),
            ("agent_id", self.agent_id.clone()),
            ("message_id", self.message_id.clone()),
            ("timestamp", self.at.to_string()),
        ];
        said.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(content: &str) -> Lesson {
        Lesson {
            types: vec![Type::UserProfile],
            tags: Map::new(),
            task: "preference of user:ada".into(),
            content: content.into(),
            owner: "user:ada".into(),
            scopes: vec!["user:ada".into()],
            message_id: "m1".into(),
            at: Timestamp::UNIX_EPOCH,
            agent_id: "lifeform:lf".into(),
            provenance: None,
            resources: Vec::new(),
        }
    }

    #[test]
    fn junk_is_told_by_rule() {
        for (content, why) in [
            ("I prefer <knowledge id=\"k\">tea</knowledge>", Some("it was told")),
            ("Tea", Some("it says too little")),
            ("Shall I remember tea and coffee?", Some("it asks")),
            ("My password is hunter2hunter2", Some("it holds a secret")),
            ("Remember that my PIN for the bank is 4711", Some("it tells a secret")),
            ("the door code of the shed: blue heron", Some("it tells a secret")),
            ("记住我的密码是海鸥", Some("it tells a secret")),
            ("パスワードは「かもめ」です", Some("it tells a secret")),
            ("I prefer passphrases over passwords", None),
            ("I prefer tea in the morning", None),
            ("我喜欢喝茶", None),
        ] {
            assert_eq!(lesson(content).junk(), why, "{content}");
        }
        assert_eq!(lesson(&"tea and milk ".repeat(60)).junk(), Some("it is long"));
        assert_eq!(lesson("I prefer tea").id(), lesson("I prefer tea").id());
        assert_ne!(lesson("I prefer tea").id(), lesson("I prefer coffee").id());
    }

    #[test]
    fn what_a_model_reads_is_held_against_what_was_said() {
        let said = "We moved the deploy to 14:30 because the staging database locks at noon.";
        assert!(is_borne_out("The deploy moved to 14:30 because the database locks at noon", said));
        assert!(!is_borne_out("The deploy moved to 15:30 because the database locks at noon", said));
        let two = "I like tea. My sister, who lives in Kiel, cannot stand coffee.";
        assert!(is_borne_out("likes tea", two) && !is_borne_out("I cannot stand tea", two));
        assert!(!is_borne_out("I live in Kiel and stand coffee", two));
        assert!(!is_borne_out("I like tea and my sister lives in Kiel", two));
        assert!(!is_borne_out("Always use blue-green deployments with feature flags", said));
        let said = "我们把发布改到十四点半，因为数据库中午会锁。私は大阪に住んでいます。";
        assert!(is_borne_out("发布改到十四点半", said) && is_borne_out("大阪に住んでいます", said));
        assert!(!is_borne_out("发布改到十五点半", said) && !is_borne_out("東京に住んでいます", said));
        assert_eq!(without_told("a <knowledge id=\"x\">b</knowledge> c <knowledge"), "a   c <knowledge");
        assert_eq!(without_told("a <knowledge id=\"x\">b"), "a  ");
    }
}
