//! Secrets in JSON, where a key may indicate that its value is a secret.

use serde_json::Value;

use super::redacted;

/// Removes the secrets from all texts of a value and returns their kinds. A key may indicate that its value is a
/// secret.
///
/// ```
/// use store::secrets::clean;
/// let mut body = serde_json::json!({"password": "hunter2hunter2", "name": "Ada"});
/// assert_eq!(clean(&mut body).len(), 1);
/// assert_eq!(body["name"], "Ada");
/// ```
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

/// Removes the secrets from a value below a key, which may indicate that the value is a secret.
fn clean_under(key: &str, member: &mut Value, kinds: &mut Vec<&'static str>) {
    match member {
        Value::String(text) => {
            if let Some((clean, all)) = redacted_under(key, text) {
                *text = clean;
                kinds.extend(all);
            }
        }
        Value::Number(number) => {
            if let Some((clean, all)) = redacted_under(key, &number.to_string()) {
                *member = Value::String(clean);
                kinds.extend(all);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean_under(key, item, kinds)),
        // {api_key: {value: …}}
        Value::Object(members) if members.contains_key("value") => {
            if let Some(value) = members.get_mut("value") {
                clean_under(key, value, kinds);
            }
            clean_within(member, kinds);
        }
        other => clean_within(other, kinds),
    }
}

/// Returns a text without its secrets, below a key that may indicate that the text is a secret.
pub fn redacted_under(key: &str, text: &str) -> Option<(String, Vec<&'static str>)> {
    redacted(text).or_else(|| {
        let (text, all) = redacted(&format!("{key}: {text}"))?;
        Some((text.strip_prefix(&format!("{key}: "))?.to_owned(), all))
    })
}
