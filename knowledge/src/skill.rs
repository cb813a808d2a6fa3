//! Skills (MISSION P1, the SKILL.md extension of KnowledgePulse): records whose content is a guide, with a YAML header
//! that states the name, the purpose and the rules for learning from its use. Content by other authors is untrusted:
//! parts that people would not see are removed, or the skill is refused.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::secrets::{redacted, same_but_for_secrets, same_json_but_for_secrets};
use store::{Origin, Role};

use crate::draft::{Body, Draft};
use crate::fields::{Fault, is_invisible};
use crate::list::Which;
use crate::record::{Record, Status, Type};
use crate::search::Query;
use crate::unit::visibility_of;
use crate::unit_ids::claims;
use crate::{CONTENT_CHARS_MAX, Knowledge, KnowledgeError, TASK_CHARS_MAX, Visibility};

/// The member of a record that holds the header of its skill.
pub(crate) const MEMBER: &str = "skill";
/// The maximum size of a header, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
const NAME_CHARS_MAX: usize = 120;
/// The prefix of ids of skills.
pub const PREFIX: &str = "kp:skill:";
/// The default version of a skill.
const VERSION: &str = "1.0.0";
/// Patterns of texts that try to control the reader (prompt injection), each with its certainty from 0 to 1.
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
/// The certainty from which a guide is refused. Below it, the contributor gets a warning.
const REFUSED: f64 = 0.6;

static SUSPICIONS: LazyLock<Vec<(f64, Regex)>> = LazyLock::new(|| {
    let finder = |(sure, shape): (f64, &str)| (sure, Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}")));
    SUSPICIOUS.into_iter().map(finder).collect()
});

/// Invisible parts of a page, such as HTML comments.
static HIDDEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)<!--.*?(?:-->|\z)").unwrap_or_else(|error| unreachable!("{error}")));
/// The maximum number of passes that remove invisible parts, since a removal may uncover another one.
const LAYERS: usize = 4;
/// Active elements of a page. In quoted code they are only text.
static ACTS: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"(?is)(?<code>```.*?(?:```|\z)|`[^`\n]*`)|<script\b[^>]*>.*?</script\b[^>]*>|<style\b[^>]*>.*?</style\b[^>]*>|</?(?:iframe|object|embed)\s[^>]*>";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns the certainty that a guide tries to control its reader, and the matching words.
fn suspicion(text: &str) -> (f64, Vec<String>) {
    let found = SUSPICIONS.iter().filter_map(|(sure, finder)| Some((sure, finder.find(text)?.as_str())));
    found.fold((0.0, Vec::new()), |(all, mut words), (sure, found)| {
        words.push(format!("\"{found}\""));
        (all + sure, words)
    })
}

/// The header of a skill. Unknown members are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The name of the skill.
    pub name: String,
    /// The purpose of the skill.
    pub description: String,
    /// The version of the skill. Default: `1.0.0`.
    #[serde(default = "first_version")]
    pub version: String,
    /// All other members: `author`, `license`, `tags`, `allowed-tools`, `kp` …
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

fn first_version() -> String {
    VERSION.to_owned()
}

/// A parsed skill.
#[derive(Clone, Debug, PartialEq)]
struct Skill {
    head: Head,
    body: String,
    warnings: Vec<String>,
}

/// The filter for a listing of skills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkillsWanted {
    /// The search question; without it, the newest skills come first.
    pub question: Option<String>,
    /// The domain; `None` accepts all.
    pub domain: Option<String>,
    /// The tags that a skill must have, all of them.
    pub tags: Vec<String>,
    /// The minimum quality, from 0 to 1.
    pub min_quality: f64,
    /// The number of skills to skip.
    pub offset: usize,
    /// The maximum number of skills to return.
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
    /// Returns the faults of the header.
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
            // Other tools write the list of allowed tools as one line.
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

/// Returns `true` if a record may be shown as a skill: its guide, on whatever route it was written, does not try to
/// control the reader.
fn is_told(record: &Record) -> bool {
    suspicion(&format!("{}\n{}", record.task, record.content)).0 < REFUSED
}

/// Checks a new guide of an existing skill.
pub(crate) fn check_guide(record: &Record, guide: &str) -> Result<(), String> {
    match head_of(record) {
        Some(head) => check(&json!(head), guide),
        None => Ok(()),
    }
}

/// Checks the header of a skill in a posted record, together with the guide, which is the record's content.
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

/// Returns the header of a record's skill; `None` if the record is no skill.
fn head_of(record: &Record) -> Option<Head> {
    serde_json::from_value(record.extra.get(MEMBER)?.clone()).ok()
}

/// Returns `true` for a skill that the daemon ships. A model reads it by its name, so no search brings it unasked.
pub fn is_shipped(record: &Record) -> bool {
    record.owner.starts_with("system:") && head_of(record).is_some()
}

/// Returns the id of the skill with this header.
pub(crate) fn id_in(head: &Value) -> Option<String> {
    serde_json::from_value(head.clone()).ok().map(|head| id_of(&head))
}

fn id_of(head: &Head) -> String {
    let plain = |text: &str| -> String {
        text.trim().chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect()
    };
    format!("{PREFIX}{}:{}", plain(&head.name), plain(&head.version))
}

/// Returns the header of a record: the header of its skill, or one derived from the record.
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

/// Returns a record as a SKILL.md file.
pub fn as_markdown(record: &Record) -> String {
    let head = serde_saphyr::to_string(&head_for(record)).unwrap_or_default();
    format!("---\n{}\n---\n\n{}\n", seen(head.trim_end()), seen(&record.content))
}

/// Returns a text without its invisible parts. The route of the text does not matter, since readers follow the guide.
fn seen(text: &str) -> String {
    let mut left: String = text.chars().filter(|c| !is_invisible(*c)).collect();
    for _ in 0..LAYERS {
        // The removal may have joined the rest to a new comment.
        let next = HIDDEN.replace_all(&left, "");
        let next = ACTS.replace_all(&next, |found: &Captures<'_>| {
            found.name("code").map_or_else(String::new, |code| code.as_str().to_owned())
        });
        if next == left {
            return left;
        }
        left = next.into_owned();
    }
    // Comments nested deeper than the limit are made visible.
    left.replace("<!", "‹!")
}

/// Returns a record in the protocol's form of a skill. A record that is no skill keeps its unit id.
pub fn as_skill(record: &Record) -> Value {
    let head = head_for(record);
    let id = head_of(record).map_or_else(|| crate::unit::id_of(record), |head| id_of(&head));
    let (name, description, version) = (seen(&head.name), seen(&head.description), seen(&head.version));
    let mut skill = json!({
        "id": id, "name": name, "description": description, "version": version,
        "content": seen(&record.content), "skill_md_content": as_markdown(record),
        "quality_score": crate::unit::quality_of(record), "visibility": visibility_of(record),
        "record_id": record.id, "created_at": record.created_at, "updated_at": record.updated_at,
    });
    for (member, value) in head.more {
        if skill.get(&member).is_none() {
            skill[member] = value;
        }
    }
    skill
}

impl Knowledge {
    /// Stores a skill. A repetition changes nothing. Another guide under the same name and version becomes a new
    /// version of the record.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] with the faults, and [`KnowledgeError::Conflict`] if the name and version
    /// are taken.
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
        // If an operator changes another owner's skill, the owner stays the same.
        let owner = known.as_ref().map_or_else(|| by.id.0.to_string(), |known| known.owner.clone());
        let own = head.more.get("kp").and_then(|kp| kp["visibility"].as_str());
        let word = visibility.or(own).or(known.as_ref().map(visibility_of)).unwrap_or("network");
        let scopes = Visibility::scopes(word, &owner, by, &mut warnings)
            .ok_or_else(|| KnowledgeError::invalid("visibility", "is one of private, org, network"))?;
        let domain = head.more.get("kp").and_then(|kp| kp["domain"].as_str()).unwrap_or("general");
        // The name is included, so a search finds it. Members of the record that a SKILL.md does not contain are kept.
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
        let (record, is_new, notes) = match known {
            None => {
                let draft = Draft::new(owner, scopes, body);
                let names = draft.body.names();
                let saved = self.put(draft, &|id| claims(&names, id, origin), origin).await?;
                (saved.record, true, saved.warnings)
            }
            Some(known) if by.answers_for(&known.owner) || by.may(Role::Operator) => {
                let head = |extra: &Map<String, Value>| json!(extra.get(MEMBER));
                let is_same = body.content.as_ref().is_some_and(|said| same_but_for_secrets(said, &known.content))
                    && same_json_but_for_secrets(&head(&body.extra), &head(&known.extra));
                // The visibility is one word, which is less precise than the scopes. The scopes are kept if the word is
                // unchanged.
                let scopes = if word == visibility_of(&known) { known.scopes.clone() } else { scopes };
                if is_same && known.scopes == scopes {
                    let is_exact =
                        body.content.as_ref() == Some(&known.content) && head(&body.extra) == head(&known.extra);
                    let notes = if is_exact { None } else { Some(crate::SECRETS_STAY.to_owned()) };
                    (known, false, notes.into_iter().collect())
                } else {
                    let change = crate::Change { body, scopes: Some(scopes), ..crate::Change::default() };
                    let saved = Box::pin(self.change(&known.id, change, None, origin)).await?;
                    (saved.record, false, saved.warnings)
                }
            }
            Some(_) => return Err(KnowledgeError::Conflict(format!("{} is taken", id_of(&head)))),
        };
        warnings.extend(notes);
        Ok(crate::Contribution { record, is_new, warnings })
    }

    /// Returns the skill with that id that the caller may see.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::NotFound`] if it does not exist or the caller may not see it.
    pub async fn skill(&self, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
        let found = self.find_skill(id, origin).await?.filter(is_told);
        found.ok_or_else(|| KnowledgeError::NotFound(format!("skill {id}")))
    }

    pub(crate) async fn find_skill(&self, id: &str, origin: &Origin) -> Result<Option<Record>, KnowledgeError> {
        if let Some(named) = self.named(id, origin).await? {
            return Ok(named.filter(|record| record.status == Status::Active));
        }
        // A KIP client may have written the skill, so the records themselves are scanned.
        let which = Which { types: [Type::Plan].into(), ..Which::default() };
        let all = self.all(&which, origin).await?;
        Ok(all.into_iter().find(|record| head_of(record).is_some_and(|head| id_of(&head) == id)))
    }

    /// Returns the guide of the newest skill of a name that the daemon ships or an operator wrote, as text for a model; `None`
    /// if there is none.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Nexus`] if the commons cannot be read.
    pub async fn guide(&self, name: &str) -> Result<Option<String>, KnowledgeError> {
        let which = Which { types: [Type::Plan].into(), ..Which::default() };
        let all = self.all(&which, &Origin::system("guide")).await?;
        let is_trusted = |record: &Record| {
            record.owner.starts_with("system:") || self.directory.principal(&record.owner).may(Role::Operator)
        };
        let is_meant = |record: &&Record| {
            head_of(record).is_some_and(|head| head.name == name)
                && is_trusted(record)
                && record.visibility == Visibility::Public
                && is_told(record)
        };
        // A judgement changes a skill without replacing another.
        let newest = all.iter().filter(is_meant).max_by_key(|record| record.created_at);
        Ok(newest.map(|record| seen(&record.content)))
    }

    /// Returns one page of the skills that the caller may see, and their total number.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for an invalid question.
    pub async fn skills(&self, wanted: &SkillsWanted, origin: &Origin) -> Result<(Vec<Record>, usize), KnowledgeError> {
        let which = Which { types: [Type::Plan].into(), ..Which::default() };
        let mut found: Vec<Record> = match &wanted.question {
            Some(question) => {
                let query = Query { which, ..Query::wide(question.as_str()) };
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
