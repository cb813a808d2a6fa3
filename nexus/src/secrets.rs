//! Secrets in ordinary text (MISSION H4): found by the shapes that keys have, and by what is set equal to a password. The
//! bare word is none: whoever writes about passwords is not hindered.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// Shapes of keys, each with what it is called; the part named `value` is the secret, else all of it.
const SHAPES: [(&str, &str); 18] = [
    (
        "private_key",
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
    ),
    ("aws_key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github_token", r"\b(?:gh[posru]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})\b"),
    ("gitlab_token", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("slack_token", r"\bxox[abposr]-[A-Za-z0-9-]{10,}"),
    ("api_key", r"\bsk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{16,}"),
    ("payment_key", r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("package_token", r"\b(?:npm|hf)_[A-Za-z0-9]{30,}"),
    ("google_key", r"\bAIza[0-9A-Za-z_-]{30,}"),
    ("daemon_token", r"\b(?:lfd_[A-Za-z0-9_-]{30,}|kp_[0-9a-f]{64})"),
    ("jwt", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("connection_string", r"(?i)(?:\b[a-z][a-z0-9+.-]{1,20}:)?//[^\s:@/]{0,100}:(?<value>[^\s/]{3,})@"),
    // The tool is called: it is not the beginning of an address.
    (
        "login",
        r#"(?i)\b(?:curl|wget|https?)(?:\s(?:\\\n|[^\n])*?)?\s(?:-[a-z]*u\s*|(?:--user|--auth|-a)[\s=]+)["']?[^\s:"'/]{1,100}:(?<value>[^\s"'$<%{][^\s"']{2,})"#,
    ),
    ("basic", r#"(?i)\bauthorization["']?\s*[:=]\s*["']?basic\s+(?<value>[A-Za-z0-9+/]{8,}={0,2})"#),
    ("bearer", r"(?i)\bbearer\s+(?<value>[A-Za-z0-9._~+/-]{20,}=*)"),
    ("password", r#"\b[A-Z0-9_]*_PASS["']?\s*[:=]\s*["']?(?<value>[^\s"',;&]{6,})"#),
    // By itself: the second pass over a text is none.
    ("password", r#"(?i)(?:^|[\n,;|/({&?]\s*["']?)pass["']?\s*[:=]\s*["']?(?<value>[^\s"',;&]{6,})"#),
    (
        "password",
        r#"(?i)(?:\b[a-z0-9_-]*(?:password|passwort|passwd|passphrase|pwd|secret(?:[_-]?access)?[_-]?key|secret|token|api[_-]?key|access[_-]?key|session[_-]?id|cookie)s?\b|密码|口令|密钥|パスワード|비밀번호)["']?\s*(?:=>|=|:|：|是|は|\bis\b:?)\s*\[?\s*["']?(?<value>[^\s"',;，。；]{6,})"#,
    ),
];

static FINDERS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let finder = |(name, shape): (&'static str, &str)| {
        (name, Regex::new(shape).unwrap_or_else(|error| unreachable!("the shape of {name}: {error}")))
    };
    SHAPES.into_iter().map(finder).collect()
});

/// A secret by another name: what is left out of a text in its place.
const MARK: &str = "[REDACTED:";
/// What was left out before, and what stands for a sealed body that is filled in where a tool is called.
static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{secret:[^{}]*\}\}|\[REDACTED:[a-z_]+\]").unwrap_or_else(|error| unreachable!("{error}"))
});

/// What was left out of a text, or sealed by itself.
static LEFT_OUT: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"\{\{secret:credentials/auto[^{}]*\}\}|\[REDACTED:[a-z_]+\]";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// A text without the secrets in it, and what they were; `None` of a text that has none.
pub fn redacted(text: &str) -> Option<(String, Vec<&'static str>)> {
    let mut found = Vec::new();
    let left = replaced(text, &mut |name, _| {
        found.push(name);
        format!("{MARK}{name}]")
    })?;
    Some((left, found))
}

/// Whether two texts say the same but for the secrets in them, there or left out or sealed: writing the one where the other
/// stands would change nothing.
pub fn same_but_for_secrets(one: &str, other: &str) -> bool {
    one == other || masked(one) == masked(other)
}

/// The same of two values, of which a key may tell that what stands under it is a secret.
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

/// A text with one mark where there are secrets, or where one was left out or sealed.
fn masked(text: &str) -> String {
    let left = replaced(text, &mut |_, _| format!("{MARK}secret]"));
    LEFT_OUT.replace_all(left.as_deref().unwrap_or(text), format!("{MARK}secret]")).into_owned()
}

/// A text with something else where there were secrets, told by what sort each was and what it was. What stands for a secret
/// already, by its name or by a mark, is left alone.
pub fn replaced(text: &str, by: &mut dyn FnMut(&'static str, &str) -> String) -> Option<String> {
    let (mut text, mut found) = (Cow::Borrowed(text), false);
    for (name, finder) in FINDERS.iter() {
        if !finder.is_match(&text) {
            continue;
        }
        let mut left = String::with_capacity(text.len());
        let mut changed = false;
        let mut from = 0;
        let end = std::iter::once(text.len()..text.len());
        let known = KNOWN.find_iter(&text).map(|known| known.range()).chain(end);
        for range in known {
            let part = finder.replace_all(&text[from..range.start], |captures: &Captures<'_>| {
                let whole = captures.get_match();
                let value = captures.name("value").unwrap_or(whole);
                let (before, after) = (value.start() - whole.start(), value.end() - whole.start());
                let (whole, value) = (whole.as_str(), value.as_str());
                if *name == "password" && !is_secret(value, &whole[..before]) {
                    return whole.to_owned();
                }
                changed = true;
                format!("{}{}{}", &whole[..before], by(name, value), &whole[after..])
            });
            left.push_str(&part);
            left.push_str(&text[range.clone()]);
            from = range.end;
        }
        if changed {
            (text, found) = (Cow::Owned(left), true);
        }
    }
    found.then(|| text.into_owned())
}

/// Takes the secrets out of all texts in a value; what is set equal to a password in it is told by its key. Answers what
/// they were.
pub fn clean(json: &mut Value) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    clean_within(json, &mut kinds);
    kinds
}

fn clean_within(json: &mut Value, kinds: &mut Vec<&'static str>) {
    match json {
        Value::String(text) => {
            if let Some((clean, all)) = redacted(text) {
                *text = clean;
                kinds.extend(all);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean_within(item, kinds)),
        Value::Object(members) => {
            if members.keys().any(|key| redacted(key).is_some()) {
                let renamed = std::mem::take(members).into_iter().map(|(key, member)| match redacted(&key) {
                    Some((clean, all)) => {
                        kinds.extend(all);
                        (clean, member)
                    }
                    None => (key, member),
                });
                *members = renamed.collect();
            }
            for (key, member) in members.iter_mut() {
                clean_under(key, member, kinds);
            }
        }
        _ => {}
    }
}

/// The same of what stands under a key, which may tell that it is a secret.
fn clean_under(key: &str, member: &mut Value, kinds: &mut Vec<&'static str>) {
    match member {
        Value::String(text) => {
            if let Some((clean, all)) = redacted_under(key, text) {
                *text = clean;
                kinds.extend(all);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean_under(key, item, kinds)),
        other => clean_within(other, kinds),
    }
}

/// A text without the secrets in it, where it stands under a key that may tell that it is one.
pub fn redacted_under(key: &str, text: &str) -> Option<(String, Vec<&'static str>)> {
    redacted(text).or_else(|| {
        let (told, all) = redacted(&format!("{key}: {text}"))?;
        Some((told.strip_prefix(&format!("{key}: "))?.to_owned(), all))
    })
}

/// Whether what is set equal to something that is called a secret may be one: it is no plain word, no place where one is, no
/// example of one, and, where it is called a token, no number or date.
fn is_secret(value: &str, called: &str) -> bool {
    let value = value.trim_end_matches(['.', ')', ']', '}', '>', '`']);
    let any = |is: fn(char) -> bool| value.chars().any(is);
    let template = value.starts_with(['<', '{', '$', '%', '*', '(', '[']);
    let parts: Vec<&str> = value.split('/').collect();
    let plain = |part: &&str| part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let path = value.starts_with(['/', '.']) || parts.last().is_some_and(|last| last.contains('.'));
    let place = value.contains("://") || (parts.len() > 1 && path && parts.iter().all(plain));
    let (digit, letter) = (any(|c| c.is_ascii_digit()), any(char::is_alphabetic));
    let number = !letter && called.to_lowercase().contains("token");
    let sign = any(|c| c.is_ascii_punctuation() && !"-_/.".contains(c));
    let mixed = any(char::is_uppercase) && any(char::is_lowercase) && value.len() >= 12;
    let strange = digit || sign || mixed;
    value.chars().count() >= 6 && value.is_ascii() && strange && !(template || place || number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_passwords_are_found_and_talk_about_them_is_left_alone() {
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
            ("redis://:hunter22@cache", "redis://:[REDACTED:connection_string]@cache"),
            ("'password' => 'hunter22x'", "'password' => '[REDACTED:password]'"),
            (r#"{"password": ["hunter22x"]}"#, r#"{"password": ["[REDACTED:password]"]}"#),
        ] {
            assert_eq!(redacted(text).map(|(left, _)| left).as_deref(), Some(left), "{text}");
            assert_eq!(redacted(left), None, "once is enough: {left}");
        }
        for text in [
            "A password is checked before a token is made.",
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
        ] {
            assert_eq!(redacted(text), None, "{text}");
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
            "token": ["abc123def"], "n": {"api_key": "a1b2c3d4e5", "fine": "a word"}, "ghp_abcdefghijklmnopqrstuvwxyz0123456789": 1,
        });
        assert_eq!(clean(&mut json).len(), 3);
        let left = serde_json::json!({
            "token": ["[REDACTED:password]"], "n": {"api_key": "[REDACTED:password]", "fine": "a word"}, "[REDACTED:github_token]": 1,
        });
        assert_eq!(json, left);
    }
}
