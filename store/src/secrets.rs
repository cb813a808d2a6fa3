//! Secrets in ordinary text (MISSION H4), recognised by the shapes of keys and by assignments to a password. The bare
//! word "password" is not a secret: texts about passwords are accepted.

mod columns;
mod in_json;

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Regex, RegexSet};
use serde_json::Value;

use columns::replaced_in_columns;
pub use in_json::{clean, redacted_under};

/// Shapes of keys, each with its name. The group `value` is the secret; without such a group, the whole match is. A
/// word ends where letters of another script begin, because Chinese text has no spaces around a key.
const SHAPES: [(&str, &str); 37] = [
    (
        "private_key",
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
    ),
    ("private_key", r"(?-u:\b)AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    ("aws_key", r"(?-u:\b)(?:AKIA|ASIA)[0-9A-Z]{16}(?-u:\b)"),
    ("github_token", r"(?-u:\b)(?:gh[posru]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})"),
    ("gitlab_token", r"(?-u:\b)glpat-[A-Za-z0-9_-]{16,}"),
    ("slack_token", r"(?-u:\b)(?:xox[abposr]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{20,})"),
    ("slack_token", r"(?-u:\b)hooks\.slack\.com/services/T[A-Za-z0-9]+/B[A-Za-z0-9]+/(?<value>[A-Za-z0-9]{16,})"),
    ("api_key", r"(?-u:\b)sk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{16,}"),
    ("api_key", r"(?-u:\b)(?:gsk_|xai-|whsec_)[A-Za-z0-9]{20,}"),
    ("api_key", r"(?-u:\b)SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("api_key", r"(?-u:\b)dop_v1_[0-9a-f]{32,}"),
    ("api_key", r"(?-u:\b)shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("bot_token", r"(?-u:\b)[0-9]{8,10}:[A-Za-z0-9_-]{35}(?-u:\b)"),
    ("storage_key", r"(?-u:\b)AccountKey=(?<value>[A-Za-z0-9+/]{40,}={0,2})"),
    ("payment_key", r"(?-u:\b)[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("package_token", r"(?-u:\b)(?:(?:npm|hf)_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,})"),
    ("google_key", r"(?-u:\b)(?:AIza[0-9A-Za-z_-]{30,}|ya29\.[0-9A-Za-z_-]{20,})"),
    ("daemon_token", r"(?-u:\b)(?:lfd_[A-Za-z0-9_-]{30,}|kp_[0-9a-f]{64})"),
    ("jwt", r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("connection_string", r"(?i)(?:(?-u:\b)[a-z][a-z0-9+.-]{1,20}:)?//[^\s:@/]{0,100}:(?<value>[^\s/]{3,})@"),
    // The tool must be called; `http` at the beginning of an address does not count.
    (
        "login",
        r#"(?i)(?-u:\b)(?:curl|wget|https?)(?:\s(?:\\\n|[^\n])*?)?\s(?:-[a-z]*u\s*|(?:--user|--proxy-user|--auth|-a)[\s=]+)["']?[^\s:"'/]{1,100}:(?<value>[^\s"'$<%{][^\s"']{2,})"#,
    ),
    (
        "login",
        r#"(?i)(?-u:\b)lftp(?:\s(?:\\\n|[^\n])*?)?\s-u\s*["']?[^\s,"'/]{1,100},(?<value>[^\s"'$<%{][^\s"']{2,})"#,
    ),
    // The password follows the letter directly; a word after a space is a database.
    ("login", r#"(?-u:\b)(?:mysql|mariadb)[a-z-]*(?:\s(?:\\\n|[^\n|;&])*?)?\s-p["']?(?<value>[^\s"'$<%{][^\s"']{2,})"#),
    (
        "login",
        r#"(?-u:\b)(?:sshpass\s+-p|redis-cli(?:\s(?:\\\n|[^\n|;&])*?)?\s-a|(?:docker|podman)\s+login(?:\s(?:\\\n|[^\n|;&])*?)?\s-p|ldap[a-z]+(?:\s(?:\\\n|[^\n|;&])*?)?\s-w)\s*["']?(?<value>[^\s"'$<%{-][^\s"']{2,})"#,
    ),
    ("password", r"(?i)(?-u:\b)(?:machine\s+\S{1,200}|default)\s+login\s+\S{1,100}\s+password\s+(?<value>\S{6,})"),
    // Arguments of a tool, and elements of a document.
    (
        "password",
        r#"(?i)(?:(?:^|\s)--?[a-z-]*(?:password|passwd|passphrase|secret|token|api-key|access-key)\s+["']?|<[a-z0-9_:.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key)(?:\s[^<>]*)?>\s*)(?<value>[^\s"',;<>]{6,})"#,
    ),
    ("basic", r#"(?i)(?-u:\b)authorization["']?\s*[:=]\s*["']?basic\s+(?<value>[A-Za-z0-9+/]{8,}={0,2})"#),
    ("bearer", r#"(?i)(?-u:\b)authorization["']?\s*[:=]\s*["']?token\s+(?<value>[!-~&&[^"',;]]{12,})"#),
    ("bearer", r"(?i)(?-u:\b)bearer\s+(?<value>[A-Za-z0-9._~+/-]{20,}=*)"),
    ("pass", r#"(?-u:\b)[A-Z0-9_]*_PASS["']?\s*[:=]\s*["']?(?<value>[!-~&&[^"',;&]]{6,})"#),
    // The name `pass` by itself; "the second pass over a text" does not match.
    ("pass", r#"(?i)(?:^|[\n,;|/({&?]\s*["']?)pass["']?\s*[:=]\s*["']?(?<value>[!-~&&[^"',;&]]{6,})"#),
    // A value that is quoted as a whole in a sentence may contain spaces.
    (
        "password",
        r#"(?i)(?:(?-u:\b)[a-z0-9_-]*(?:password|passwort|passwd|passphrase)(?-u:\b)|密码|密碼|口令|パスワード|비밀번호)\s*(?:是|为|為|は|(?-u:\b)is(?-u:\b):?)\s*["“「](?<value>[^"”」\n]{6,100})["”」]"#,
    ),
    // "I changed the password for the router to …", "密码改成了…", "パスワードを…に変えました".
    (
        "password",
        r#"(?i)(?-u:\b)(?:password|passwort|passwd|passphrase|passcode)s?(?-u:\b)[^.!?\n:=]{1,40}?\s(?:to|is)\s+["'“]?(?<value>[!-~&&[^"'`,;]]{6,})"#,
    ),
    (
        "password",
        r#"(?:(?:密码|密碼|口令)(?:已经|刚刚|刚)?(?:改|换|設|设)(?:成|为|為)?了?|(?:パスワード|暗証番号)を)\s*["「“]?(?<value>[!-~&&[^"'`,;]]{6,})"#,
    ),
    // A row of a Markdown table.
    (
        "password",
        r#"(?i)\|\s*[*`]{0,3}(?:password|passwort|passwd|passphrase|secret|token|api[ _-]?key|密码|密碼|パスワード)[*`]{0,3}\s*\|\s*[*`]{0,3}(?<value>[!-~&&[^"'`,;|*]]{6,})"#,
    ),
    (
        "password",
        r#"(?i)(?:(?-u:\b)[a-z0-9_-]*(?:password|passwort|passwd|passphrase|pwd|secret(?:[ _-]?access)?[ _-]?key|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]key|session[_-]?id|cookie)s?_{0,2}(?-u:\b)|密码|密碼|口令|密钥|密鑰|令牌|パスワード|暗証番号|秘密鍵|비밀번호)["'`*_\\]{0,3}\s*(?:=>|=|:|：|是|为|為|は|는|은|(?-u:\b)is(?-u:\b):?)["'`*_\\]{0,3}\s*\[?\s*["'`“「『\\]{0,3}(?<value>[!-~&&[^"'`,;\\]]{6,})"#,
    ),
    // The beginning of a key that is followed by more letters.
    ("github_token", r"gh[posru]_[A-Za-z0-9]{36}"),
];

static FINDERS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let finder = |(name, shape): (&'static str, &str)| {
        (name, Regex::new(shape).unwrap_or_else(|error| unreachable!("the shape of {name}: {error}")))
    };
    SHAPES.into_iter().map(finder).collect()
});

/// All shapes at once: most texts have none of them.
static ANY: LazyLock<RegexSet> =
    LazyLock::new(|| RegexSet::new(SHAPES.map(|(_, shape)| shape)).unwrap_or_else(|error| unreachable!("{error}")));

/// The maximum length, in bytes, of the name of a secret.
const CALLED_MAX: usize = 256;

/// The beginning of the mark that replaces a secret in a text.
const MARK: &str = "[REDACTED:";
/// Marks of removed secrets, and placeholders of sealed bodies, which are filled in when a tool is called.
static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{secret:[A-Za-z0-9._/-]{1,256}\}\}|\[REDACTED:[a-z_]+\]")
        .unwrap_or_else(|error| unreachable!("{error}"))
});

/// Marks of secrets that were removed or sealed.
static LEFT_OUT: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"\{\{secret:credentials/auto[A-Za-z0-9._/-]*\}\}|\[REDACTED:[a-z_]+\]";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns a text without its secrets, and the kinds of the removed secrets; `None` if the text has none.
///
/// ```
/// use store::secrets::redacted;
/// assert_eq!(redacted("the harbour opens at eight"), None);
/// let (text, kinds) = redacted("token ghp_0123456789abcdefghijklmnopqrstuvwxyzAB").unwrap();
/// assert!(!text.contains("ghp_0123") && kinds.len() == 1);
/// ```
pub fn redacted(text: &str) -> Option<(String, Vec<&'static str>)> {
    let mut found = Vec::new();
    let left = replaced(text, &mut |name, _| {
        found.push(name);
        format!("{MARK}{name}]")
    })?;
    Some((left, found))
}

/// Returns `true` if two texts are equal except for their secrets, which may be present, removed or sealed. Replacing
/// one text by the other would then change nothing.
pub fn same_but_for_secrets(one: &str, other: &str) -> bool {
    one == other || masked(one) == masked(other)
}

/// Returns `true` if two values are equal except for their secrets. A key may indicate that its value is a secret.
pub fn same_json_but_for_secrets(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => same_but_for_secrets(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_json_but_for_secrets(one, other))
        }
        (Value::Object(one), Value::Object(members)) => {
            let same = |(key, one): (&String, &Value)| match (one, members.get(key)) {
                (Value::String(one), Some(Value::String(other))) => {
                    same_but_for_secrets(one, other)
                        || same_but_for_secrets(&format!("{key}: {one}"), &format!("{key}: {other}"))
                }
                (one, Some(other)) => same_json_but_for_secrets(one, other),
                (_, None) => false,
            };
            one.len() == members.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

/// Returns a text with the same mark for every secret, whether it is present, removed or sealed.
fn masked(text: &str) -> String {
    let left = replaced(text, &mut |_, _| format!("{MARK}secret]"));
    LEFT_OUT.replace_all(left.as_deref().unwrap_or(text), format!("{MARK}secret]")).into_owned()
}

/// Returns a text in which `by` replaced each secret, given its kind and its text; `None` if there is none. Marks and
/// placeholders stay. The search also finds secrets that are disguised by invisible or full-width letters.
pub fn replaced(text: &str, by: &mut dyn FnMut(&'static str, &str) -> String) -> Option<String> {
    let found = replaced_in(text, by);
    let more = undisguised(found.as_deref().unwrap_or(text)).and_then(|plain| replaced_in(&plain, by));
    more.or(found)
}

/// Removes invisible letters and converts full-width letters to plain ones; `None` if the text has neither.
fn undisguised(text: &str) -> Option<String> {
    let is_unseen = |c: char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}');
    let is_wide = |c: char| matches!(c, '\u{ff01}'..='\u{ff5e}');
    if !text.chars().any(|c| is_unseen(c) || is_wide(c)) {
        return None;
    }
    let plain = |c: char| if is_wide(c) { char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c) } else { c };
    Some(text.chars().filter(|c| !is_unseen(*c)).map(plain).collect())
}

fn replaced_in(text: &str, by: &mut dyn FnMut(&'static str, &str) -> String) -> Option<String> {
    let columns = replaced_in_columns(text, by);
    let (mut found, mut text) = (columns.is_some(), columns.map_or(Cow::Borrowed(text), Cow::Owned));
    if !ANY.is_match(&text) {
        return found.then(|| text.into_owned());
    }
    for (name, finder) in FINDERS.iter() {
        if !finder.is_match(&text) {
            continue;
        }
        let mut left = String::with_capacity(text.len());
        let mut changed = false;
        let mut from = 0;
        let end = std::iter::once(text.len()..text.len());
        // A placeholder whose name is itself a secret is not left as it is.
        let known = KNOWN.find_iter(&text).filter(|known| !is_key(known.as_str()));
        let known = known.map(|known| known.range()).chain(end);
        for range in known {
            let part = &text[from..range.start];
            let (mut kept, mut at) = (0, 0);
            while let Some(captures) = finder.captures_at(part, at) {
                let whole = captures.get_match();
                let value = captures.name("value").unwrap_or(whole);
                let called = &part[whole.start()..value.start()];
                let is_secret = match *name {
                    "password" => is_secret(value.as_str(), called),
                    "pass" => value.as_str().contains(char::is_alphabetic) && is_secret(value.as_str(), called),
                    "api_key" => value.as_str().contains(|c: char| c.is_ascii_digit()),
                    _ => true,
                };
                if is_secret {
                    left.push_str(&part[kept..value.start()]);
                    left.push_str(&by(if *name == "pass" { "password" } else { name }, value.as_str()));
                    (kept, at, changed) = (value.end(), whole.end(), true);
                } else {
                    // A value that is not a secret may be the name of the next one. A long value is skipped, so that
                    // it is not scanned repeatedly.
                    let is_short = value.len() <= CALLED_MAX && value.start() > at;
                    at = if is_short { value.start() } else { value.end() };
                }
            }
            left.push_str(&part[kept..]);
            left.push_str(&text[range.clone()]);
            from = range.end;
        }
        if changed {
            (text, found) = (Cow::Owned(left), true);
        }
    }
    found.then(|| text.into_owned())
}

/// Returns `true` if a text has the shape of a key.
fn is_key(text: &str) -> bool {
    FINDERS.iter().any(|(name, finder)| !["password", "pass", "login"].contains(name) && finder.is_match(text))
}

/// Code that reads a secret from elsewhere: a call, an index expression, a type, or a nested member.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"^[&!]?(?:\w+::)*[A-Za-z_]+(?:(?:\.|::)[A-Za-z_]+)*!?[(\[<{]|^&?[A-Za-z_]+(?:(?:\.|::)[A-Za-z_]+)+$|^::?[A-Za-z_{]+";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns `true` if the value of a name such as `password` may be a secret: it is not a plain word, a path, an
/// example or a piece of code. For a token, it is not a number or a date either.
fn is_secret(value: &str, called: &str) -> bool {
    let value = value.trim_end_matches(['.', ':', ')', ']', '}', '>', '`', '*']);
    let called = called.to_lowercase();
    let any = |is: fn(char) -> bool| value.chars().any(is);
    let template = value.starts_with(['<', '{', '$', '%', '*', '(', '[']);
    let parts: Vec<&str> = value.split('/').collect();
    let plain = |part: &&str| part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let path = value.starts_with(['/', '.']) || parts.last().is_some_and(|last| last.contains('.'));
    let is_address = value.contains("://") || value.starts_with("arn:");
    let place = is_address || (parts.len() > 1 && path && parts.iter().all(plain));
    let (digit, letter) = (any(|c| c.is_ascii_digit()), any(char::is_alphabetic));
    let number = !letter && called.contains("token");
    let sign = any(|c| c.is_ascii_punctuation() && !"-_/.".contains(c));
    let mixed = any(char::is_uppercase) && any(char::is_lowercase) && value.len() >= 12;
    let strange = digit || sign || mixed;
    // "RSA-2048", "32k-context", "SameSite=Lax": descriptions of a key in a sentence, or of something that is not a
    // password.
    let is_sure = ["passw", "passphrase", "pwd", "密码", "密碼", "パスワード", "비밀번호"]
        .iter()
        .any(|word| called.contains(word));
    let before = called.trim_end_matches(['"', '\'', '`', ' ', '*', '“', '「']);
    let in_a_sentence = before.ends_with("is") || before.ends_with(['是', '为', '為', 'は']);
    let short = if in_a_sentence { 6 } else { 4 };
    let is_word = |part: &str| part.chars().all(char::is_alphabetic);
    let is_part = |part: &str| is_word(part) || part.chars().count() <= short;
    let compound = value.contains('-') && value.split('-').all(is_part) && value.split('-').any(is_word);
    let pair = value
        .split_once('=')
        .is_some_and(|(name, value)| [name, value].iter().all(|part| part.chars().all(char::is_alphabetic)));
    let camel = !digit && !sign && !value.contains(['-', '_', '/', '.']) && value.starts_with(char::is_uppercase);
    // "count1", "token_2", "OAuth2": names with a number.
    let stem = value.trim_end_matches(|c: char| c.is_ascii_digit());
    let named = value.len() - stem.len() <= 2 && stem.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    let said_of_one = (compound || pair || camel || named) && !is_sure;
    value.chars().count() >= 6
        && value.is_ascii()
        && strange
        && !(template || place || number || CODE.is_match(value) || said_of_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redaction_finds_secrets_and_leaves_ordinary_prose_unchanged() {
        for (text, left) in [
            ("use AKIAIOSFODNN7EXAMPLE here", "use [REDACTED:aws_key] here"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[REDACTED:github_token]"),
            ("sk-proj-abcdefghijklmnop1234", "[REDACTED:api_key]"),
            ("sk-ant-api03-abcdefghijklmnop", "[REDACTED:api_key]"),
            ("xoxb-1234567890-abcdef", "[REDACTED:slack_token]"),
            ("postgres://ada:hunter22@db/x", "postgres://ada:[REDACTED:connection_string]@db/x"),
            ("postgres://postgres:postgres@db", "postgres://postgres:[REDACTED:connection_string]@db"),
            ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "Authorization: Bearer [REDACTED:bearer]"),
            ("password: SecurePass123", "password: [REDACTED:password]"),
            ("DB_PASSWORD=SecurePass123", "DB_PASSWORD=[REDACTED:password]"),
            (
                "I changed the password for the router to Zq6xpwtoKw7Pv69.",
                "I changed the password for the router to [REDACTED:password]",
            ),
            ("密码改成了Zq6xpwtoKw7Pv69", "密码改成了[REDACTED:password]"),
            ("パスワードをZq6xpwtoKw7Pv69に変えました", "パスワードを[REDACTED:password]に変えました"),
            ("our password is: hunter2hunter2", "our password is: [REDACTED:password]"),
            ("my password is Tr0ub4dor&3 ok", "my password is [REDACTED:password] ok"),
            ("PGPASSWORD=xyz12345 psql", "PGPASSWORD=[REDACTED:password] psql"),
            (
                "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE",
                "AWS_SECRET_ACCESS_KEY=[REDACTED:password]",
            ),
            ("Passwort: geheim123456", "Passwort: [REDACTED:password]"),
            ("userPassword: hunter22x", "userPassword: [REDACTED:password]"),
            ("client_secret = abc123def", "client_secret = [REDACTED:password]"),
            ("账号:user@example.com\n密码:SecurePass123", "账号:user@example.com\n密码:[REDACTED:password]"),
            ("パスワード：hunter2!", "パスワード：[REDACTED:password]"),
            (r#"{"api_key": "a1b2c3d4e5"}"#, r#"{"api_key": "[REDACTED:password]"}"#),
            ("session_id=abc123; auth_token=xyz789", "session_id=[REDACTED:password]; auth_token=[REDACTED:password]"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "[REDACTED:private_key]"),
            (
                "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----",
                "[REDACTED:private_key]",
            ),
            ("pay by sk_live_abcdefghij0123456789", "pay by [REDACTED:payment_key]"),
            ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "[REDACTED:package_token]"),
            ("Authorization: Basic YWRhOmh1bnRlcjI=", "Authorization: Basic [REDACTED:basic]"),
            ("postgres://ada:hunt@er22@db/x", "postgres://ada:[REDACTED:connection_string]@db/x"),
            ("user: ada, pass: hunter22x", "user: ada, pass: [REDACTED:password]"),
            ("HTTPS://bob:hunter22@example.com", "HTTPS://bob:[REDACTED:connection_string]@example.com"),
            ("//bob:hunter22@cache/0", "//bob:[REDACTED:connection_string]@cache/0"),
            ("curl -s -u ada:hunter22 https://x.y/z", "curl -s -u ada:[REDACTED:login] https://x.y/z"),
            ("curl https://x.y \\\n  -u ada:hunter22", "curl https://x.y \\\n  -u ada:[REDACTED:login]"),
            ("curl -sSuada:hunter22 x.y", "curl -sSuada:[REDACTED:login] x.y"),
            ("curl --user='ada:hunter22' x.y", "curl --user='ada:[REDACTED:login]' x.y"),
            ("export DB_PASS=hunter22x", "export DB_PASS=[REDACTED:password]"),
            ("pass=hunter22x", "pass=[REDACTED:password]"),
            ("curl -x p:1 -U ada:hunter22 x.y", "curl -x p:1 -U ada:[REDACTED:login] x.y"),
            ("curl --proxy-user ada:hunter22 x.y", "curl --proxy-user ada:[REDACTED:login] x.y"),
            ("lftp -u ada,hunter22 host", "lftp -u ada,[REDACTED:login] host"),
            ("mysql -u root -phunter22 shop", "mysql -u root -p[REDACTED:login] shop"),
            ("mysqldump -p'hunter22' shop", "mysqldump -p'[REDACTED:login]' shop"),
            ("sshpass -p hunter22 ssh ada@host", "sshpass -p [REDACTED:login] ssh ada@host"),
            ("redis-cli -h cache -a hunter22 ping", "redis-cli -h cache -a [REDACTED:login] ping"),
            ("docker login -u ada -p hunter22 x.y", "docker login -u ada -p [REDACTED:login] x.y"),
            ("ldapsearch -D cn=ada -w hunter22 -b dc=x", "ldapsearch -D cn=ada -w [REDACTED:login] -b dc=x"),
            ("wget --http-password hunter22 x.y", "wget --http-password [REDACTED:password] x.y"),
            ("tool login --token a1b2c3d4e5", "tool login --token [REDACTED:password]"),
            ("<db:password>hunter22</db:password>", "<db:password>[REDACTED:password]</db:password>"),
            (r#"<apiKey type="x"> a1b2c3d4e5 </apiKey>"#, r#"<apiKey type="x"> [REDACTED:password] </apiKey>"#),
            ("使用ghp_abcdefghijklmnopqrstuvwxyz0123456789登录", "使用[REDACTED:github_token]登录"),
            ("密钥AKIAIOSFODNN7EXAMPLE。", "密钥[REDACTED:aws_key]。"),
            ("鍵はsk-abcdefghijklmn0pqrstです", "鍵は[REDACTED:api_key]です"),
            ("パスワードはhunter22xです", "パスワードは[REDACTED:password]です"),
            ("xghp_abcdefghijklmnopqrstuvwxyz0123456789", "x[REDACTED:github_token]"),
            ("**Password:** hunter22x", "**Password:** [REDACTED:password]"),
            ("`password`: `hunter22x`", "`password`: `[REDACTED:password]`"),
            ("| user | ada |\n| password | hunter22x |", "| user | ada |\n| password | [REDACTED:password] |"),
            ("api key: abcdef123456", "api key: [REDACTED:password]"),
            ("the api key is abcdef123456", "the api key is [REDACTED:password]"),
            ("password is \"hunter 2 horse battery\"", "password is \"[REDACTED:password]\""),
            ("see {{secret:ghp_abcdefghijklmnopqrstuvwxyz0123456789}}", "see {{secret:[REDACTED:github_token]}}"),
            ("{{secret:password: hunter22x}}", "{{secret:password: [REDACTED:password]"),
            ("pass\u{200b}word: hunter22x", "password: [REDACTED:password]"),
            ("ｐａｓｓｗｏｒｄ：hunter22x", "password:[REDACTED:password]"),
            ("My password is Summer-2024", "My password is [REDACTED:password]"),
            ("secret: AB12-CD34-EF56-GH78", "secret: [REDACTED:password]"),
            ("token: hvs.CAESabc123", "token: [REDACTED:password]"),
            ("password: s3cret.Pass1", "password: [REDACTED:password]"),
            (
                "密码：hunter22x：a，pass\u{200b}word: hunter33x",
                "密码:[REDACTED:password]:a,password: [REDACTED:password]",
            ),
            ("パスワード: 「hunter22x」", "パスワード: 「[REDACTED:password]」"),
            ("密码：“hunter22x”", "密码：“[REDACTED:password]”"),
            ("비밀번호는 hunter22x", "비밀번호는 [REDACTED:password]"),
            ("_password_: hunter22x", "_password_: [REDACTED:password]"),
            (r#"{\"password\": \"hunter22x\"}"#, r#"{\"password\": \"[REDACTED:password]\"}"#),
            ("密碼：hunter22x", "密碼：[REDACTED:password]"),
            (
                "| user | Password |\n|---|:--|\n| ada | hunter22x |\n| bob | `tr0ub4dor` | 7 |\n\nThe end.",
                "| user | Password |\n|---|:--|\n| ada | [REDACTED:password] |\n| bob | `[REDACTED:password]` | 7 |\n\nThe end.",
            ),
            ("名前 | パスワード\n-- | --\n花子 | hana-2024x", "名前 | パスワード\n-- | --\n花子 | [REDACTED:password]"),
            (
                "| user | password |\n|---|---|\n| - | - |\n| ada | hunter22x |",
                "| user | password |\n|---|---|\n| - | - |\n| ada | [REDACTED:password] |",
            ),
            ("密码为hunter22x", "密码为[REDACTED:password]"),
            ("令牌：a1b2c3d4e5", "令牌：[REDACTED:password]"),
            ("SG.abcdefghijklmnop1.abcdefghijklmnop2", "[REDACTED:api_key]"),
            ("1234567890:AAabcdefghijklmnopqrstuvwxyz0123456", "[REDACTED:bot_token]"),
            ("Authorization: token abcdef0123456789", "Authorization: token [REDACTED:bearer]"),
            ("machine x.y login ada password hunter22x", "machine x.y login ada password [REDACTED:password]"),
            ("redis://:hunter22@cache", "redis://:[REDACTED:connection_string]@cache"),
            ("'password' => 'hunter22x'", "'password' => '[REDACTED:password]'"),
            (r#"{"password": ["hunter22x"]}"#, r#"{"password": ["[REDACTED:password]"]}"#),
        ] {
            assert_eq!(redacted(text).map(|(left, _)| left).as_deref(), Some(left), "{text}");
            assert_eq!(redacted(left), None, "once is enough: {left}");
        }
        for text in [
            "the password for this is sent to everybody",
            "A password is checked before a token is made.",
            "| user | token |\n|---|---|\n| ada | - |\n| bob | {{secret:credentials/bob1}} |",
            "| password | of |\n|---|---|\n| - | - |\n",
            "| tokens | count |\n|---|---|\n| 128000 | 4096 |\n\n| ada | hunter22x |",
            "The token: the smallest unit of text.",
            "max tokens, token: 128000, max_tokens: 4096",
            "token: 2024-05-01 release",
            "pwd: /home/ada1",
            "cookie: https://x.y/z1",
            "see secret: docs/readme1.md",
            "the password is required, a token is something small",
            "Log in with {{secret:credentials/website1}} first, Bearer {{secret:credentials/api1}}",
            "postgres://ada:{{secret:credentials/pg1}}@db/x",
            "secret: everyone knows it",
            "password: {{secret:credentials/website_a}}",
            "password = <your password>",
            "export TOKEN=$(cat file)",
            "The cookie: chocolate, of course",
            "see https://example.com:8080/path@home",
            "密码是什么意思",
            "sk-learn is a library",
            "in the second pass: v1.2.3 is built",
            "pass: everything works",
            "// note: ask ada@example.com",
            "curl -u ada https://x.y/z asks for the rest",
            "curl -u ada:{{secret:credentials/x}} https://x.y",
            "see https://docs.x.y then docker run -u 1000:1000 image",
            "curl -u ada:$TOKEN https://x.y",
            "curl -u ada:<password> https://x.y",
            "render_pass = RenderPass2",
            "mysql -u root -p shop1 asks for it",
            "mysql -h db; mkdir -p/tmp/x1",
            "docker login -u ada --password-stdin",
            "docker login x.y && docker run -p 8080:80 image",
            "sshpass -p $PASS ssh host, redis-cli -a <password>",
            "the flag --token tells how many tokens-1 there are",
            "--max-tokens 128000 --password is asked for",
            "token = get_token()",
            "const secret = process.env.SECRET",
            "password=os.environ[\"X\"]",
            "password = request.form[\"password\"]",
            "api_key: Option<String>",
            "password: z.string().min(8)",
            "secret: arn:aws:secretsmanager:eu-1:42:secret:x1",
            "The token is base64-encoded",
            "The token is ERC-20.",
            "tokens: 32k-context",
            "The cookie is SameSite=Lax",
            "密钥是RSA-2048",
            "口令是AES-256",
            "Test results (pass: 103/120, fail: 17)",
            "MAX_PASS: 1000000",
            "sk-spruce-mountain-trail-run",
            "a sk-shaped-object-with-long-name",
            "👩‍💻 wrote １２３ notes on passwords",
            "Enter your login and password before the others do",
            "\"password\": \"Must have at least 8 characters\"",
            "tokens: u32::try_from(bytes)",
            "self.token = token_2, token: Token1",
            "| token | count1 |",
            "token: OAuth2",
            "default login name password policies",
            "use nexus::secrets::redacted;",
            "secrets: SecretPolicy, tokens: &[u32]",
            "let token = format!(\"x1\")",
            "<token>the</token> and <secret>everyone knows</secret>",
        ] {
            assert_eq!(redacted(text), None, "{text}");
        }
    }

    #[test]
    fn a_long_text_without_a_space_is_gone_through_once() {
        for part in ["token=$", "password:", "pass=1 ", "login x password "] {
            let found = redacted(&part.repeat(40_000)).map_or(0, |(_, found)| found.len());
            assert!(found <= 1, "{part}: {found}");
        }
    }

    #[test]
    fn what_was_left_out_of_a_text_makes_it_no_other() {
        for left in ["the [REDACTED:password]", "the password: {{secret:credentials/auto-a2b3}}"] {
            assert!(
                same_but_for_secrets("the password: hunter22x", &left.replace("the [", "the password: [")),
                "{left}"
            );
        }
        assert!(!same_but_for_secrets("password: hunter22x, old", "password: [REDACTED:password], new"));
        let (posted, kept) = (
            serde_json::json!({"name": "a", "password": "hunter22x", "n": [1, "token=abc123def"]}),
            serde_json::json!({"n": [1, "token=[REDACTED:password]"], "password": "[REDACTED:password]", "name": "a"}),
        );
        assert!(same_json_but_for_secrets(&posted, &kept));
        assert!(!same_json_but_for_secrets(&posted, &serde_json::json!({"name": "b", "password": "x", "n": []})));
        assert!(!same_but_for_secrets("see {{secret:one}}", "see {{secret:other}}"));
    }

    #[test]
    fn what_stands_in_json_is_told_by_its_keys_and_a_key_may_be_one() {
        let mut json = serde_json::json!({
            "token": ["abc123def"], "n": {"api_key": "a1b2c3d4e5", "fine": "a word", "password": 83749201, "max_tokens": 128000},
            "secret": {"value": "a1b2c3d4e5f6"}, "ghp_abcdefghijklmnopqrstuvwxyz0123456789": 1,
        });
        assert_eq!(clean(&mut json).len(), 5);
        let left = serde_json::json!({
            "token": ["[REDACTED:password]"],
            "n": {"api_key": "[REDACTED:password]", "fine": "a word", "password": "[REDACTED:password]", "max_tokens": 128000},
            "secret": {"value": "[REDACTED:password]"}, "[REDACTED:github_token]": 1,
        });
        assert_eq!(json, left);
    }
}
