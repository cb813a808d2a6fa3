//! Skills (MISSION P1, the SKILL.md extension of KnowledgePulse): a record whose content is a guide, with a head in
//! YAML that says what it is called, what it is for, and how its use is to be learned from. What a stranger wrote is
//! untrusted: what people would not see in it is taken out, or the skill is refused.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::Origin;
use store::secrets::{redacted, same_but_for_secrets, same_json_but_for_secrets};

use crate::draft::{Body, Draft};
use crate::fields::{Fault, is_invisible};
use crate::list::Which;
use crate::names::claims;
use crate::record::{Record, SCORE, Status, Type};
use crate::search::{Query, TOP_K_WIDE};
use crate::unit::visibility_of;
use crate::{CONTENT_CHARS_MAX, Knowledge, KnowledgeError, TASK_CHARS_MAX, Visibility};

/// The member of a record that holds the head of its skill.
pub(crate) const MEMBER: &str = "skill";
/// Bytes of a head.
const HEAD_BYTES_MAX: usize = 8 << 10;
const NAME_CHARS_MAX: usize = 120;
/// The prefix of ids of skills.
pub const PREFIX: &str = "kp:skill:";
/// The version of a skill that does not say it.
const VERSION: &str = "1.0.0";
/// Patterns of texts that try to control their reader, each with its certainty from 0 to 1.
const SUSPICIOUS: [(f64, &str); 7] = [
    (
        0.6,
        r"(?i)\b(?:ignore|disregard|forget|override)\s+(?:(?:all|any|of|the|your|these)\s+)*(?:previous|prior|earlier|above|preceding)\s+(?:(?:system|user)\s+)?(?:instructions?|rules?|prompts?|guidelines?|directions?|messages?|orders?|context)\b",
    ),
    (
        0.6,
        r"忽略(?:之前|以上|先前|前面)的?(?:所有)?(?:指令|指示|提示)|(?:以前|これまで|上記)の(?:すべての)?指示を(?:無視|忘れ)",
    ),
    (
        0.4,
        r"(?i)\b(?:do not|don't|never)\s+(?:tell|inform|mention\s+(?:this|it)\s+to|reveal\s+(?:this|it)\s+to)\s+the\s+(?:user|human|operator)\b",
    ),
    (
        0.4,
        r"(?i)\b(?:send|post|upload|forward|exfiltrate|leak)\b[^.;,\n]{0,40}\b(?:secrets?|credentials?|passwords?|api keys?|tokens?)\b",
    ),
    (0.3, r"(?i)\byou are (?:now|no longer)\b"),
    (0.3, r"(?i)\bsystem prompt\b"),
    (0.3, r"(?i)\bact as (?:root|admin|administrator|the system)\b"),
];
/// The certainty from which a guide is refused; below it there is a warning.
const REFUSED: f64 = 0.6;

static SUSPICIONS: LazyLock<Vec<(f64, Regex)>> = LazyLock::new(|| {
    let finder = |(sure, shape): (f64, &str)| (sure, Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}")));
    SUSPICIOUS.into_iter().map(finder).collect()
});

/// Parts of a page that a reader does not see.
static HIDDEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)<!--.*?(?:-->|\z)").unwrap_or_else(|error| unreachable!("{error}")));
/// The most passes that remove hidden parts from the rest.
const LAYERS: usize = 4;
/// Elements of a page that act instead of saying something; what is quoted as code only says it.
static ACTS: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"(?is)(?<code>```.*?(?:```|\z)|`[^`\n]*`)|<script\b[^>]*>.*?</script\b[^>]*>|<style\b[^>]*>.*?</style\b[^>]*>|</?(?:iframe|object|embed)\s[^>]*>";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns the certainty that a guide tries to control its reader, and the words that show it.
fn suspicion(text: &str) -> (f64, Vec<String>) {
    let found = SUSPICIONS.iter().filter_map(|(sure, finder)| Some((sure, finder.find(text)?.as_str())));
    found.fold((0.0, Vec::new()), |(all, mut words), (sure, found)| {
        words.push(format!("\"{found}\""));
        (all + sure, words)
    })
}

/// The head of a skill; members that are not known are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The name.
    pub name: String,
    /// The purpose.
    pub description: String,
    /// The version.
    #[serde(default = "first_version")]
    pub version: String,
    /// The other members: `author`, `license`, `tags`, `allowed-tools`, `kp` …
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

fn first_version() -> String {
    VERSION.to_owned()
}

/// A skill as it was read.
#[derive(Clone, Debug, PartialEq)]
struct Skill {
    head: Head,
    body: String,
    warnings: Vec<String>,
}

/// A selection of skills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkillsWanted {
    /// A question; the newest first, where there is none.
    pub question: Option<String>,
    /// Of this domain.
    pub domain: Option<String>,
    /// With all of these labels.
    pub tags: Vec<String>,
    /// Worth so much at least, from 0 to 1.
    pub min_quality: f64,
    /// Without so many of the first.
    pub offset: usize,
    /// So many.
    pub limit: usize,
}

impl Skill {
    fn read(text: &str) -> Result<Self, Vec<Fault>> {
        let fault = |path: &str, what: String| vec![Fault { path: path.to_owned(), what }];
        let text = text.replace("\r\n", "\n");
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let inner =
            text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n").or_else(|| rest.split_once("\n---")));
        let (head, body) = inner.ok_or_else(|| {
            fault("skill_md_content", "begins with a head in YAML between two lines of ---".to_owned())
        })?;
        if head.len() > HEAD_BYTES_MAX {
            return Err(fault("skill_md_content", format!("has a head of at most {HEAD_BYTES_MAX} bytes")));
        }
        if text.chars().any(is_invisible) {
            return Err(fault("skill_md_content", "has characters that nobody sees".to_owned()));
        }
        let head: Head = serde_saphyr::from_str(head)
            .map_err(|error| fault("skill_md_content", format!("has a head that cannot be read: {error}")))?;
        let mut faults = head.faults();
        let mut warnings = Vec::new();
        let body = seen(body);
        if body.len() != inner.map_or(0, |(_, body)| body.len()) {
            warnings.push("comments and scripts, which nobody sees, were left out".to_owned());
        }
        let body = body.trim().to_owned();
        if body.is_empty() || body.chars().count() > CONTENT_CHARS_MAX {
            faults.push(Fault {
                path: "skill_md_content".into(),
                what: format!("has a guide of 1 to {CONTENT_CHARS_MAX} characters after its head"),
            });
        }
        let said = format!("{}\n{body}", head.description);
        let (sure, words) = suspicion(&said);
        if sure >= REFUSED {
            let what = format!("says {}, as what takes hold of its reader does", words.join(" and "));
            faults.push(Fault { path: "skill_md_content".into(), what });
        } else if !words.is_empty() {
            warnings.push(format!("it says {}, as what takes hold of its reader does", words.join(" and ")));
        }
        if faults.is_empty() { Ok(Self { head, body, warnings }) } else { Err(faults) }
    }
}

impl Head {
    /// Returns the faults of the head.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (member, said, most) in [
            ("name", &self.name, NAME_CHARS_MAX),
            ("description", &self.description, TASK_CHARS_MAX),
            ("version", &self.version, NAME_CHARS_MAX),
        ] {
            let mut fault = |what: String| faults.push(Fault { path: member.to_owned(), what });
            if said.trim().is_empty() || said.chars().count() > most {
                fault(format!("is a text of 1 to {most} characters"));
            } else if said.chars().any(is_invisible) {
                fault("has characters that nobody sees".to_owned());
            } else if member != "description" && redacted(said).is_some() {
                fault("holds a secret".to_owned());
            }
        }
        let is_text = |value: &Value| value.is_string();
        for member in ["tags", "allowed-tools"] {
            // A line of tools is how others write it.
            let known =
                self.more.get(member).filter(|known| !(known.is_null() || member != "tags" && known.is_string()));
            if known.is_some_and(|known| !known.as_array().is_some_and(|items| items.iter().all(is_text))) {
                faults.push(Fault { path: member.to_owned(), what: "is a list of texts".to_owned() });
            }
        }
        let extension =
            |member: &str| self.more.get("kp").and_then(|kp| kp.get(member)).filter(|value| !value.is_null());
        let mut must = |member: &str, fits: &dyn Fn(&Value) -> bool, what: &str| {
            if extension(member).is_some_and(|value| !fits(value)) {
                faults.push(Fault { path: format!("kp.{member}"), what: what.to_owned() });
            }
        };
        let share = |value: &Value| value.as_f64().is_some_and(|value| (0.0..=1.0).contains(&value));
        let one_of =
            |known: [&'static str; 3]| move |value: &Value| value.as_str().is_some_and(|word| known.contains(&word));
        must("quality_threshold", &share, "is a number from 0 to 1");
        must("knowledge_capture", &Value::is_boolean, "is true or false");
        must("reward_eligible", &Value::is_boolean, "is true or false");
        must("domain", &is_text, "is a text");
        must("visibility", &one_of(["private", "org", "network"]), "is private, org or network");
        must("privacy_level", &one_of(["aggregated", "federated", "private"]), "is aggregated, federated or private");
        faults
    }
}

/// Returns `true` if a record is shown as a skill: its guide, from whatever route, does not try to control its reader.
fn is_told(record: &Record) -> bool {
    suspicion(&format!("{}\n{}", record.task, record.content)).0 < REFUSED
}

/// Checks the guide of a skill that is there.
pub(crate) fn check_guide(record: &Record, guide: &str) -> Result<(), String> {
    match head_of(record) {
        Some(head) => check(&json!(head), guide),
        None => Ok(()),
    }
}

/// Checks the head of a skill that comes with a record, and the guide that is the record's content.
pub(crate) fn check(head: &Value, guide: &str) -> Result<(), String> {
    let head: Head = serde_json::from_value(head.clone())
        .map_err(|_| "is the head of a SKILL.md: {name, description, version, …}".to_owned())?;
    if let Some(Fault { path, what }) = head.faults().into_iter().next() {
        return Err(format!("has a {path} that {what}"));
    }
    if serde_json::to_string(&head).is_ok_and(|text| text.len() > HEAD_BYTES_MAX) {
        return Err(format!("is at most {HEAD_BYTES_MAX} bytes"));
    }
    let (sure, words) = suspicion(&format!("{}\n{guide}", head.description));
    match seen(guide) == guide {
        true if sure >= REFUSED => {
            Err(format!("is of a guide that says {}, as what takes hold of its reader does", words.join(" and ")))
        }
        true => Ok(()),
        false => Err("is of a guide with parts that nobody sees".to_owned()),
    }
}

/// The head of the skill that a record is.
fn head_of(record: &Record) -> Option<Head> {
    serde_json::from_value(record.extra.get(MEMBER)?.clone()).ok()
}

/// The id of the skill whose head this is.
pub(crate) fn id_in(head: &Value) -> Option<String> {
    serde_json::from_value(head.clone()).ok().map(|head| id_of(&head))
}

fn id_of(head: &Head) -> String {
    let plain = |text: &str| -> String {
        text.trim().chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect()
    };
    format!("{PREFIX}{}:{}", plain(&head.name), plain(&head.version))
}

/// The head of a record: that of the skill it is, or one made of what is known of it.
fn head_for(record: &Record) -> Head {
    head_of(record).unwrap_or_else(|| Head {
        name: record.task.chars().take(NAME_CHARS_MAX).collect(),
        description: record.task.clone(),
        version: VERSION.to_owned(),
        more: Map::from_iter([(
            "kp".to_owned(),
            json!({
                "domain": record.tags.get("domain").cloned().unwrap_or_else(|| "general".into()),
                "visibility": visibility_of(record),
            }),
        )]),
    })
}

/// A record as a SKILL.md.
pub fn as_markdown(record: &Record) -> String {
    let head = serde_saphyr::to_string(&head_for(record)).unwrap_or_default();
    format!("---\n{}\n---\n\n{}\n", seen(head.trim_end()), seen(&record.content))
}

/// Returns a text without its invisible parts, from whatever route it came: readers follow a guide.
fn seen(text: &str) -> String {
    let mut left: String = text.chars().filter(|c| !is_invisible(*c)).collect();
    for _ in 0..LAYERS {
        // What is left may be a comment only now.
        let next = HIDDEN.replace_all(&left, "");
        let next = ACTS.replace_all(&next, |found: &Captures<'_>| {
            found.name("code").map_or_else(String::new, |code| code.as_str().to_owned())
        });
        if next == left {
            return left;
        }
        left = next.into_owned();
    }
    // Whoever hides so deep has nothing to hide: it is shown.
    left.replace("<!", "‹!")
}

/// A record as the protocol tells a skill; one that is none keeps its id as a unit.
pub fn told(record: &Record) -> Value {
    let head = head_for(record);
    let id = head_of(record).map_or_else(|| crate::unit::id_of(record), |head| id_of(&head));
    let (name, description, version) = (seen(&head.name), seen(&head.description), seen(&head.version));
    let mut told = json!({
        "id": id, "name": name, "description": description, "version": version,
        "content": seen(&record.content), "skill_md_content": as_markdown(record),
        "quality_score": crate::unit::quality_of(record), "visibility": visibility_of(record),
        "record_id": record.id, "created_at": record.created_at, "updated_at": record.updated_at,
    });
    for (member, value) in head.more {
        if told.get(&member).is_none() {
            told[member] = value;
        }
    }
    told
}

impl Knowledge {
    /// Keeps a skill; the same again changes nothing, another guide under its name and version is a version of the
    /// record.
    ///
    /// # Errors
    /// [`KnowledgeError::Invalid`] with what is wrong, [`KnowledgeError::Conflict`] where the name and version are
    /// taken.
    pub async fn contribute_skill(
        &self,
        text: &str,
        visibility: Option<&str>,
        origin: &Origin,
    ) -> Result<crate::Contribution, KnowledgeError> {
        let Skill { head, body: content, mut warnings } = Skill::read(text)?;
        let by = &origin.principal;
        let _turn = self.once.lock().await;
        let known = self.find_skill(&id_of(&head), &Origin::system("whose a skill is")).await?;
        // An operator who changes another owner's skill leaves it to that owner.
        let owner = known.as_ref().map_or_else(|| by.id.0.to_string(), |known| known.owner.clone());
        let own = head.more.get("kp").and_then(|kp| kp["visibility"].as_str());
        let word = visibility.or(own).or(known.as_ref().map(visibility_of)).unwrap_or("network");
        let scopes = Visibility::scopes(word, &owner, by, &mut warnings)
            .ok_or_else(|| KnowledgeError::invalid("visibility", "is one of private, org, network"))?;
        let domain = head.more.get("kp").and_then(|kp| kp["domain"].as_str()).unwrap_or("general");
        // It is found by its name, too. What a file does not tell of its record stays as it is.
        let (mut tags, mut extra) =
            known.as_ref().map(|known| (known.tags.clone(), known.extra.clone())).unwrap_or_default();
        tags.extend([("domain", domain), ("skill", &head.name)].map(|(label, value)| (label.to_owned(), value.into())));
        extra.insert(MEMBER.to_owned(), json!(head));
        let body = Body {
            task: Some(head.description.clone()),
            content: Some(content),
            types: known.is_none().then(|| vec![Type::Plan, Type::Tool]),
            tags: Some(tags),
            extra,
            ..Body::default()
        };
        let (record, is_new, told) = match known {
            None => {
                let draft = Draft {
                    id: None,
                    owner,
                    scopes,
                    body,
                    score: SCORE,
                    confidence: None,
                    first_case: None,
                    message_id: None,
                    source: Map::new(),
                    warnings: Vec::new(),
                };
                let names = draft.body.names();
                let saved = self.put(draft, &|id| claims(&names, id, origin), origin).await?;
                (saved.record, true, saved.warnings)
            }
            Some(known) if by.answers_for(&known.owner) || by.may(store::Role::Operator) => {
                let head = |extra: &Map<String, Value>| json!(extra.get(MEMBER));
                let is_same = body.content.as_ref().is_some_and(|said| same_but_for_secrets(said, &known.content))
                    && same_json_but_for_secrets(&head(&body.extra), &head(&known.extra));
                // The visibility is one word, which says less than its scopes.
                let scopes = if word == visibility_of(&known) { known.scopes.clone() } else { scopes };
                if is_same && known.scopes == scopes {
                    let is_exact =
                        body.content.as_ref() == Some(&known.content) && head(&body.extra) == head(&known.extra);
                    let told = if is_exact { None } else { Some(crate::SECRETS_STAY.to_owned()) };
                    (known, false, told.into_iter().collect())
                } else {
                    let change = crate::Change { body, scopes: Some(scopes), ..crate::Change::default() };
                    let saved = Box::pin(self.change(&known.id, change, None, origin)).await?;
                    (saved.record, false, saved.warnings)
                }
            }
            Some(_) => return Err(KnowledgeError::Conflict(format!("{} is taken", id_of(&head)))),
        };
        warnings.extend(told);
        Ok(crate::Contribution { record, is_new, warnings })
    }

    /// The skill of that id that the caller sees.
    ///
    /// # Errors
    /// [`KnowledgeError::NotFound`].
    pub async fn skill(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        let found = self.find_skill(id, origin).await?.filter(is_told);
        found.ok_or_else(|| KnowledgeError::NotFound(format!("skill {id}")))
    }

    pub(crate) async fn find_skill(&self, id: &str, origin: &Origin) -> Result<Option<Record>, KnowledgeError> {
        if let Some(named) = self.named(id, origin).await? {
            return Ok(named.filter(|record| record.status == Status::Active));
        }
        // One that KIP wrote.
        let which = Which { types: [Type::Plan].into(), ..Which::default() };
        let all = self.all(&which, origin).await?;
        Ok(all.into_iter().find(|record| head_of(record).is_some_and(|head| id_of(&head) == id)))
    }

    /// Skills that the caller sees, and how many there are in all.
    ///
    /// # Errors
    /// [`KnowledgeError::Invalid`] for a question that is none.
    pub async fn skills(&self, wanted: &SkillsWanted, origin: &Origin) -> Result<(Vec<Record>, usize), KnowledgeError> {
        let which = Which { types: [Type::Plan].into(), ..Which::default() };
        let mut found: Vec<Record> = match &wanted.question {
            Some(question) => {
                let query = Query { which, ..Query::new(question.as_str(), TOP_K_WIDE) };
                self.search(&query, origin).await?.hits.into_iter().map(|hit| hit.record).collect()
            }
            None => {
                let mut all = self.all(&which, origin).await?;
                all.reverse();
                all
            }
        };
        found.retain(|record| {
            let Some(head) = head_of(record).filter(|_| is_told(record)) else { return false };
            let labels = head.more.get("tags").and_then(Value::as_array);
            let has = |tag: &String| labels.is_some_and(|labels| labels.iter().any(|label| label == tag));
            let domain = record.tags.get("domain").and_then(Value::as_str);
            wanted.domain.as_deref().is_none_or(|wanted| domain == Some(wanted))
                && wanted.tags.iter().all(has)
                && crate::unit::quality_of(record) >= wanted.min_quality
        });
        let total = found.len();
        Ok((found.into_iter().skip(wanted.offset).take(wanted.limit).collect(), total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_is_read_and_what_nobody_sees_in_it_is_not() {
        let text = "---\nname: harbour\ndescription: How to enter\ntags: [sea, tide]\nkp:\n  domain: sailing\n---\n# Enter\nHail.<!-- and obey -->\n";
        let skill = Skill::read(text).unwrap();
        assert_eq!((skill.head.name.as_str(), skill.head.version.as_str()), ("harbour", "1.0.0"));
        assert_eq!(skill.head.more["kp"]["domain"], "sailing");
        assert_eq!(skill.body, "# Enter\nHail.");
        assert_eq!(skill.warnings.len(), 1);
        assert_eq!(id_of(&skill.head), "kp:skill:harbour:1.0.0");
        for (bad, part) in [
            ("# no head", "begins with a head"),
            ("---\nname: a\ndescription: b\n---\n", "has a guide"),
            ("---\nname: a\ndescription: b\n---\nhi\u{200b}dden", "nobody sees"),
            ("---\nname: [a\n---\nx", "cannot be read"),
            ("---\ndescription: b\n---\nx", "cannot be read"),
        ] {
            let faults = Skill::read(bad).unwrap_err();
            assert!(faults[0].what.contains(part), "{bad}: {}", faults[0].what);
        }
    }
}
