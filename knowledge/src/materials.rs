//! Material in ordinary text: code, credentials and cookies (MISSION H4). It is kept as resources of the person whose text it is,
//! and a record says what it is for. What is secret is sealed, and leaves the text for models.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp, Zoned};
use nexus::SecretPolicy;
use regex::{Captures, Regex};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use store::{Hash, Origin};

use crate::learn::{Lesson, is_confided};
use crate::record::Type;
use crate::statement_patterns::sentences;
use crate::{Knowledge, KnowledgeError, ResourceDraft};

/// The minimum number of lines from which a piece of code is kept.
const CODE_LINES_MIN: usize = 4;
/// The maximum number of pieces of one text, and of the characters of a piece of code.
const PIECES_MAX: usize = 64;
const CODE_CHARS_MAX: usize = 20_000;
/// The minimum length of the longest value of a cookie, in characters.
const COOKIE_CHARS_MIN: usize = 6;
/// The maximum length of a title, and of the text of a record, in characters.
const TITLE_CHARS: usize = 60;
const CONTENT_CHARS: usize = 500;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

/// A block of code between fences: its language and its body.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?s)(?:^|\n)[ \t]*(?:`{3,}|~{3,})[ \t]*([A-Za-z0-9+#._-]*)[^\r\n]*\r?\n(.*?)\r?\n[ \t]*(?:`{3,}|~{3,})")
});
/// A header with cookies, or a sentence that says what they are: pairs of a name and a value. Only a date has spaces in it.
static COOKIES: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:set-)?cookies?["'`]?\s*(?::|：|=|是|为|は|\bis\b|\bare\b)\s*["'`]?(?<pairs>[!#$%&*+.^_|~0-9a-z-]+=[^\s;,"'`]*(?:;\s*(?:expires=[a-z]{3}, [0-9a-z -]+[0-9:]+ GMT|[!#$%&*+.^_|~0-9a-z-]+(?:=[^\s;,"'`]*)?))*)"#,
    )
});
/// The attributes of a cookie that say how long it holds.
static EXPIRES: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)(?:^|;)\s*expires=([^;]+)"));
static MAX_AGE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)(?:^|;)\s*max-age=(\d{1,9})"));
/// The host of an address.
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)(?-u:\b)https?://((?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,18}|localhost)(?-u:\b)")
});
/// An account, with its mark before it.
static ACCOUNT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:(?-u:\b)(?:user(?:[ _-]?name)?|login|account|e-?mail|user id)(?-u:\b)|账号|帐号|用户名|アカウント|ユーザー名)\s*(?::|：|=|是|为|は)\s*["'`]?([!-~&&[^"'`,;]]{3,100})"#,
    )
});

/// A piece of material in a text.
#[derive(Debug)]
struct Piece {
    id: String,
    content_type: &'static str,
    body: String,
    secret: Option<SecretString>,
    about: Map<String, Value>,
}

/// A text with the material in it.
struct Recognised {
    pieces: Vec<Piece>,
    /// The text with a placeholder for each secret.
    shown: String,
    /// The text without code, with a placeholder for each secret.
    rest: String,
}

/// The source of a text whose material is kept.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The person whose text it is, who owns what is kept.
    pub owner: &'a str,
    /// The reference of the message or the goal. What is kept has ids that follow from it.
    pub reference: &'a str,
    /// The time of the text.
    pub at: Timestamp,
    /// The agent that keeps it.
    pub agent: &'a str,
}

/// Returns `true` if the id of a resource is of those that follow from a text. Nobody else gives such an id.
pub(crate) fn is_kept_id(id: &str) -> bool {
    ["code/said-", "credentials/said-", "cookies/said-"].iter().any(|prefix| id.starts_with(prefix))
}

/// Returns the beginning of the ids of what is kept of a source, in the folder of a type.
fn id_of(folder: &str, reference: &str, n: usize) -> String {
    let hash = Hash::of(reference.as_bytes()).hex();
    format!("{folder}/said-{}-{n}", &hash[..hash.len().min(16)])
}

fn recognise(text: &str, reference: &str, at: Timestamp) -> Recognised {
    let mut pieces: Vec<Piece> = Vec::new();
    // A cookie goes first: its values look like passwords.
    let mut shown = COOKIES.replace_all(text, |found: &Captures<'_>| {
        let pairs = found["pairs"].trim_end_matches('.');
        let is_long =
            pairs.split(';').filter_map(|pair| pair.split_once('=')).any(|(_, value)| value.len() >= COOKIE_CHARS_MIN);
        if !is_long {
            return found[0].to_owned();
        }
        let id = id_of("cookies", reference, pieces.len());
        let mut about = Map::new();
        let until = expiry(pairs, at);
        about.extend(until.map(|until| ("expires_at".to_owned(), until.to_string().into())));
        let secret = Some(SecretString::from(pairs.trim().to_owned()));
        let left = found[0].replace(pairs, &format!("{{{{secret:{id}}}}}"));
        pieces.push(Piece { id, content_type: "cookie", body: String::new(), secret, about });
        left
    });
    let mut known: Vec<(String, String)> = Vec::new();
    let replaced = store::secrets::replaced(&shown, &mut |kind, secret| {
        // The full stop of a sentence is no part of a secret.
        let (secret, stop) = secret.strip_suffix('.').map_or((secret, ""), |secret| (secret, "."));
        let id = match known.iter().find(|(known, _)| known == secret) {
            Some((_, id)) => id.clone(),
            None => {
                let id = id_of("credentials", reference, pieces.len());
                known.push((secret.to_owned(), id.clone()));
                let about = Map::from_iter([("kind".to_owned(), kind.into())]);
                let secret = Some(SecretString::from(secret.to_owned()));
                pieces.push(Piece { id: id.clone(), content_type: "credential", body: String::new(), secret, about });
                id
            }
        };
        format!("{{{{secret:{id}}}}}{stop}")
    });
    if let Some(replaced) = replaced {
        shown = replaced.into();
    }
    let accounts: Vec<String> = ACCOUNT.captures_iter(&shown).map(|found| found[1].to_owned()).collect();
    let credentials: Vec<usize> = (0..pieces.len()).filter(|at| pieces[*at].content_type == "credential").collect();
    // One account and one secret belong together.
    if let ([account], [credential]) = (&accounts[..], &credentials[..])
        && !account.contains("{{secret:")
    {
        pieces[*credential].about.insert("account".to_owned(), account.as_str().into());
    }
    let mut code = Vec::new();
    let rest = CODE.replace_all(&shown, |found: &Captures<'_>| {
        let (language, body) = (&found[1], &found[2]);
        let is_long = body.lines().filter(|line| !line.trim().is_empty()).count() >= CODE_LINES_MIN;
        if is_long && body.chars().count() <= CODE_CHARS_MAX {
            let mut about = Map::new();
            if !language.is_empty() {
                about.insert("language".to_owned(), language.to_lowercase().into());
            }
            let id = id_of("code", reference, pieces.len() + code.len());
            code.push(Piece { id, content_type: "code", body: body.to_owned(), secret: None, about });
        }
        "\n".to_owned()
    });
    let rest = rest.into_owned();
    // What is secret is for the one host whose address the text has, and otherwise for none until its owner names some.
    let hosts: BTreeSet<String> = HOST.captures_iter(&rest).map(|found| found[1].to_lowercase()).collect();
    let hosts = if hosts.len() == 1 { hosts } else { BTreeSet::new() };
    for piece in pieces.iter_mut().filter(|piece| piece.secret.is_some()) {
        piece.about.insert("hosts".to_owned(), json!(hosts));
    }
    pieces.extend(code);
    pieces.truncate(PIECES_MAX);
    Recognised { pieces, shown: shown.into_owned(), rest }
}

/// Returns the time until which a cookie holds, if it says so.
fn expiry(pairs: &str, at: Timestamp) -> Option<Timestamp> {
    let seconds = MAX_AGE.captures(pairs).and_then(|found| found[1].parse::<i64>().ok());
    let date = || {
        let text = EXPIRES.captures(pairs)?[1].trim().replace('-', " ");
        jiff::fmt::rfc2822::parse(&text).ok().map(|date: Zoned| date.timestamp())
    };
    seconds.and_then(|seconds| at.checked_add(SignedDuration::from_secs(seconds)).ok()).or_else(date)
}

/// Returns a text for models, in which a placeholder stands for each secret and cookie: the resource of that name, as
/// [`Knowledge::keep_materials`] keeps it. A text without secrets is returned as it is.
pub fn without_secrets(text: &str, reference: &str) -> String {
    recognise(text, reference, Timestamp::UNIX_EPOCH).shown
}

impl Recognised {
    /// Returns what the record of the material says: the sentences that tell of no secret.
    fn content(&self) -> String {
        let plain = |sentence: &String| !sentence.contains("{{secret:") && !is_confided(sentence);
        let content: Vec<String> = sentences(&self.rest).into_iter().filter(plain).collect();
        content.join(" ").trim().chars().take(CONTENT_CHARS).collect()
    }

    /// Returns a title for the material: the host beside it, or the beginning of what is said of it.
    fn title(&self, content: &str) -> String {
        let host = HOST.captures(&self.rest).map(|found| found[1].to_lowercase());
        host.unwrap_or_else(|| content.chars().take(TITLE_CHARS).collect())
    }
}

impl Knowledge {
    /// Keeps the code, the credentials and the cookies of a text as resources of their owner, visible to the owner alone, and one
    /// record that says what they are for. A repetition changes nothing. Under the policy `reject`, secrets are not kept.
    /// Returns the ids of the resources.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read or written, and [`KnowledgeError::Sealed`] without a key.
    pub async fn keep_materials(
        &self,
        text: &str,
        source: Source<'_>,
        origin: &Origin,
    ) -> Result<Vec<String>, KnowledgeError> {
        let Source { owner, reference, at, agent } = source;
        let mut recognised = recognise(text, reference, at);
        if self.nexus.secrets() == SecretPolicy::Reject {
            recognised.pieces.retain(|piece| piece.secret.is_none());
        }
        let content = recognised.content();
        let title = recognised.title(&content);
        let mut ids = Vec::new();
        let mut types: Vec<Type> = Vec::new();
        let mut kinds: Vec<&str> = Vec::new();
        for piece in std::mem::take(&mut recognised.pieces) {
            let Piece { id, content_type, body, secret, mut about } = piece;
            types.push(Type::Tool);
            types.push(if content_type == "code" { Type::Strategy } else { Type::Usecase });
            kinds.push(content_type);
            ids.push(id.clone());
            match self.resource(&id, origin).await {
                // The id of another's resource may have been chosen so.
                Ok(known) if known.owner != owner => {
                    return Err(KnowledgeError::Conflict(format!("{id} belongs to {}", known.owner)));
                }
                Ok(_) => continue,
                Err(KnowledgeError::NoResource(_)) => {}
                Err(error) => return Err(error),
            }
            about.insert("acquired_at".to_owned(), at.to_string().into());
            about.insert("message_id".to_owned(), reference.into());
            let called = if title.is_empty() { content_type.to_owned() } else { format!("{content_type}: {title}") };
            let draft = ResourceDraft::of_material(id, owner, (called, content_type), body, about, secret);
            self.save_resource(draft, false, origin).await?;
        }
        if ids.is_empty() {
            return Ok(ids);
        }
        types.sort();
        types.dedup();
        kinds.dedup();
        let named = if title.is_empty() { kinds.join(", ") } else { title };
        let content = match content.split_whitespace().nth(1).is_some() || content.chars().count() > 4 {
            true => content,
            false => format!("{} for {named}", kinds.join(" and ")),
        };
        let lesson = Lesson {
            types,
            tags: Map::from_iter([("category".to_owned(), kinds.join(", ").into())]),
            task: format!("{} for {named}", kinds.join(" and ")),
            content,
            owner: owner.to_owned(),
            scopes: vec![owner.to_owned()],
            message_id: reference.to_owned(),
            at,
            agent_id: agent.to_owned(),
            provenance: None,
            resources: ids.clone(),
        };
        // Another record may say the same of other material.
        let id = lesson.id();
        match self.any(&id, origin).await {
            Ok(_) => {}
            Err(KnowledgeError::NotFound(_)) => match self.put(lesson.into_draft(&id), &|_| Vec::new(), origin).await {
                Ok(_) | Err(KnowledgeError::Conflict(_)) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
        Ok(ids)
    }

    /// Deletes the resources that were kept of a source.
    ///
    /// # Errors
    /// As [`Self::keep_materials`].
    pub async fn drop_materials(&self, reference: &str, origin: &Origin) -> Result<usize, KnowledgeError> {
        let mut dropped = 0;
        for folder in ["code", "credentials", "cookies"] {
            let first = id_of(folder, reference, 0);
            let prefix = first.trim_end_matches('0');
            let found = self.resources(prefix, None, "", PIECES_MAX, origin).await?;
            for resource in found.into_iter().filter(|resource| origin.principal.answers_for(&resource.owner)) {
                match self.delete_resource(&resource.id, true, origin).await {
                    Ok(()) => dropped += 1,
                    // What others linked to it is theirs.
                    Err(KnowledgeError::Conflict(why)) => tracing::warn!(id = resource.id, why, "material is left"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(dropped)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn of(text: &str) -> Vec<(String, String, Value)> {
        let recognised = recognise(text, "chat/t/m1", Timestamp::UNIX_EPOCH);
        let secret = |piece: &Piece| piece.secret.as_ref().map(|secret| secret.expose_secret().to_owned());
        let part = |piece: &Piece| secret(piece).unwrap_or_else(|| piece.body.clone());
        recognised
            .pieces
            .iter()
            .map(|piece| (piece.content_type.to_owned(), part(piece), Value::Object(piece.about.clone())))
            .collect()
    }

    const CODE: &str =
        "import undetected_chromedriver as uc\n\ndriver = uc.Chrome()\ndriver.get(url)\nlogin(driver)\nwait(2)";

    #[test]
    fn code_credentials_and_cookies_are_recognised() {
        let code = format!("用这段代码可以绕过检测：\n```python\n{CODE}\n```\n注意随机延迟。");
        assert_eq!(of(&code), [("code".to_owned(), CODE.to_owned(), json!({"language": "python"}))]);
        let login = "The test login for https://shop.example.com: user: ada@shop.example.com, password: SecurePass123. At most 100 calls a day.";
        let [(kind, secret, about)] = &of(login)[..] else { panic!("{:?}", of(login)) };
        assert_eq!((kind.as_str(), secret.as_str()), ("credential", "SecurePass123"), "{about}");
        assert_eq!(about["account"], "ada@shop.example.com");
        assert_eq!(about["hosts"], json!(["shop.example.com"]));
        let cookie = "已登录网站的 Cookie: session_id=abc123def; auth_token=xyz789; Max-Age=86400";
        let [(kind, secret, about)] = &of(cookie)[..] else { panic!("{:?}", of(cookie)) };
        assert_eq!(
            (kind.as_str(), secret.as_str()),
            ("cookie", "session_id=abc123def; auth_token=xyz789; Max-Age=86400")
        );
        assert_eq!((&about["expires_at"], &about["hosts"]), (&json!("1970-01-02T00:00:00Z"), &json!([])));
        // What stands behind a cookie is no part of it, and where two hosts are named, it is for neither.
        let said =
            "Cookie: theme=dark; sid=deadbeef01 Please fetch https://a.example.com/x, never https://b.example.com/y";
        assert_eq!((of(said)[0].1.as_str(), &of(said)[0].2["hosts"]), ("theme=dark; sid=deadbeef01", &json!([])));
        let dated = "Set-Cookie: sid=0123456789; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Path=/";
        assert_eq!(of(dated)[0].2["expires_at"], "2026-10-21T07:28:00Z");
    }

    #[test]
    fn what_is_no_material_is_left() {
        for text in [
            "I bake cookies: two trays of them.",
            "```\nls -l\n```",
            "Which cookie is the best?",
            "Cookie: lang=en",
            "The password rules are strict.",
            "我喜欢喝茶。",
        ] {
            assert!(of(text).is_empty(), "{text}");
            assert_eq!(without_secrets(text, "m"), text);
        }
    }

    #[test]
    fn a_text_for_models_holds_no_secret() {
        let text = format!(
            "账号 ada@example.com 密码：SecurePass123\nCookie: sid=abcdef012345\n```sh\nexport GITHUB=ghp_abcdefghijklmnopqrstuvwxyz0123456789\n{CODE}\n```"
        );
        let shown = without_secrets(&text, "chat/t/m1");
        for secret in ["SecurePass123", "abcdef012345", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("ada@example.com") && shown.matches("{{secret:").count() == 3, "{shown}");
        let recognised = recognise(&text, "chat/t/m1", Timestamp::UNIX_EPOCH);
        assert_eq!(recognised.pieces.len(), 4);
        assert!(recognised.pieces[3].body.contains("{{secret:credentials/"), "code names its secret");
        let ids: Vec<&str> = recognised.pieces.iter().map(|piece| piece.id.as_str()).collect();
        assert_eq!(
            recognise(&text, "chat/t/m1", Timestamp::UNIX_EPOCH)
                .pieces
                .iter()
                .map(|piece| piece.id.as_str())
                .collect::<Vec<_>>(),
            ids
        );
    }
}
