//! Built-in tools. Each part of the daemon registers its tools once. A tool acts with the rights of its caller.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use store::Origin;

use super::{Caller, Failure};

/// The minimum length in bytes of a secret that is redacted from results. Shorter texts would occur everywhere.
const SCRUBBED_BYTES_MIN: usize = 4;

/// A built-in tool as an agent sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltinTool {
    /// The name.
    pub name: &'static str,
    /// The description.
    pub description: &'static str,
    /// The parameters, as a JSON Schema.
    pub parameters: Value,
    /// `true` if the tool is read-only.
    pub reads: bool,
    /// `true` if results of the tool contain words of others than its caller, so that the caller's further calls need
    /// an approval.
    pub quotes: bool,
}

impl BuiltinTool {
    /// Returns the parameters as a schema without additional members.
    pub fn closed(&self) -> Value {
        let mut schema = self.parameters.clone();
        if let Some(members) = schema.as_object_mut() {
            members.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            members.insert("additionalProperties".into(), Value::Bool(false));
        }
        schema
    }

    /// Checks that a call has only known parameters, so a misspelt one is not ignored.
    ///
    /// # Errors
    /// Returns the first unknown parameter and the list of known ones.
    pub fn takes(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        let known = self.parameters["properties"].as_object();
        match arguments.keys().find(|name| known.is_none_or(|known| !known.contains_key(*name))) {
            Some(unknown) => {
                let names: Vec<&str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                Err(format!("unknown parameter `{unknown}`; {} takes {}", self.name, names.join(", ")))
            }
            None => Ok(()),
        }
    }
}

/// A part of the daemon that provides tools.
#[async_trait]
pub trait Builtins: Send + Sync + 'static {
    /// Returns the tools, with unique names.
    fn tools(&self) -> Vec<BuiltinTool>;

    /// Returns `true` if a tool can do something for a caller now. A model does not get the others, so that its prompt
    /// stays short.
    async fn offers(&self, _name: &str, _origin: &Origin, _caller: &Caller) -> bool {
        true
    }

    /// Calls one of the tools and returns the result for the model.
    ///
    /// # Errors
    /// Returns the reason of the failure, as a text for a model.
    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        origin: &Origin,
        caller: &Caller,
    ) -> Result<Value, String>;
}

/// The source of sealed secrets for tool calls.
#[async_trait]
pub trait Vault: Send + Sync + 'static {
    /// Returns the hosts and MCP servers (`mcp:name`) to which the sealed part of the resource `id` may be sent: its
    /// `metadata.hosts`. `None` if it is not bound to hosts.
    ///
    /// # Errors
    /// Returns the reason of the refusal, as a text for a model.
    async fn hosts(&self, id: &str, origin: &Origin) -> Result<Option<Vec<String>>, String>;

    /// Returns the sealed part of the resource `id`, for the principal that calls a tool with it.
    ///
    /// # Errors
    /// Returns the reason of the refusal, as a text for a model.
    async fn secret(&self, id: &str, why: &str, origin: &Origin) -> Result<SecretString, String>;
}

/// A tool, and the part of the daemon that provides it.
type Brought = (BuiltinTool, Arc<dyn Builtins>);

/// The built-in tools of the daemon.
#[derive(Default)]
pub(super) struct Registry {
    tools: RwLock<BTreeMap<&'static str, Brought>>,
    vault: OnceLock<Arc<dyn Vault>>,
}

impl Registry {
    pub(super) fn add(&self, part: &Arc<dyn Builtins>) {
        let mut known = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(part.tools().into_iter().map(|tool| (tool.name, (tool, part.clone()))));
    }

    pub(super) fn keep_secrets_in(&self, vault: Arc<dyn Vault>) {
        let _ = self.vault.set(vault);
    }

    fn find(&self, name: &str) -> Option<Brought> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Returns the tool with that name.
    ///
    /// # Errors
    /// Returns a message that lists the existing tools.
    pub(super) fn tool(&self, name: &str) -> Result<BuiltinTool, String> {
        self.find(name).map(|(tool, _)| tool).ok_or_else(|| {
            let known = self.tools.read().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<&str> = known.keys().copied().collect();
            format!("there is no builtin tool \"{name}\"; there are {}", names.join(", "))
        })
    }

    pub(super) async fn offers(&self, name: &str, origin: &Origin, caller: &Caller) -> bool {
        match self.find(name) {
            Some((_, part)) => part.offers(name, origin, caller).await,
            None => true,
        }
    }

    pub(super) fn quotes(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(tool, _)| tool.quotes)
    }

    pub(super) fn only_reads(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(tool, _)| tool.reads)
    }

    pub(super) async fn run(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        origin: &Origin,
        caller: &Caller,
    ) -> Result<String, Failure> {
        let (tool, part) =
            self.find(name).ok_or_else(|| Failure::Failed(format!("there is no builtin tool {name}")))?;
        tool.takes(&arguments).map_err(Failure::Failed)?;
        let done = part.call(name, arguments, origin, caller).await.map_err(Failure::Failed)?;
        Ok(done.as_str().map_or_else(|| done.to_string(), str::to_owned))
    }

    /// Checks that each secret that the arguments of a call name may be sent to a place: a host, or an MCP server.
    ///
    /// # Errors
    /// Returns the reason why a secret is refused.
    pub(super) async fn may_send(&self, arguments: &Value, place: &str, origin: &Origin) -> Result<(), String> {
        for id in named(arguments) {
            let vault = self.vault.get().ok_or("nothing here keeps secrets")?;
            let bound = vault.hosts(&id, origin).await?;
            if bound.is_some_and(|hosts| !hosts.iter().any(|host| host.eq_ignore_ascii_case(place))) {
                return Err(format!("the secret {id} is not for {place}"));
            }
        }
        Ok(())
    }

    /// Replaces each `{{secret:id}}` in the arguments of a call by the secret.
    ///
    /// # Errors
    /// Returns the reason why a secret is refused.
    pub(super) async fn fill(
        &self,
        arguments: Map<String, Value>,
        tool: &str,
        place: &str,
        origin: &Origin,
    ) -> Result<(Map<String, Value>, Filled), String> {
        let mut filled = Filled::default();
        let mut arguments = Value::Object(arguments);
        self.may_send(&arguments, place, origin).await?;
        for id in named(&arguments) {
            let vault = self.vault.get().ok_or("nothing here keeps secrets")?;
            let secret = vault.secret(&id, &format!("a call of {tool}"), origin).await?;
            filled.0.push((format!("{{{{secret:{id}}}}}"), secret));
        }
        put(&mut arguments, &filled);
        match arguments {
            Value::Object(arguments) => Ok((arguments, filled)),
            _ => Ok((Map::new(), filled)),
        }
    }
}

/// The secrets in the arguments of a call, each with its placeholder.
#[derive(Default)]
pub(super) struct Filled(Vec<(String, SecretString)>);

impl Filled {
    /// Returns a text with the secrets replaced by their placeholders, since a server may echo its input.
    pub(super) fn scrubbed(&self, text: String) -> String {
        scrubbed(text, self.0.iter().map(|(mark, secret)| (mark.as_str(), secret.expose_secret())))
    }
}

/// Returns a text in which each secret, in any of its encoded forms, is replaced by its mark.
pub(super) fn scrubbed<'s>(mut text: String, secrets: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let spellings = secrets.flat_map(|(mark, secret)| forms(secret).into_iter().map(move |form| (form, mark)));
    let mut spellings: Vec<(String, &str)> = spellings.filter(|(form, _)| form.len() >= SCRUBBED_BYTES_MIN).collect();
    // Longer forms come first, since one secret may be a prefix or a part of another.
    spellings.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
    for (spelling, mark) in &spellings {
        text = text.replace(spelling, mark);
        // A truncated text may end within a secret, so the start of a secret at its end is also replaced.
        let end = text.find(super::CUT).unwrap_or(text.len());
        let begins = (SCRUBBED_BYTES_MIN..spelling.len()).rev().filter(|at| spelling.is_char_boundary(*at));
        if let Some(at) = begins.into_iter().find(|at| text[..end].ends_with(&spelling[..*at])) {
            text.replace_range(end - at..end, mark);
        }
    }
    text
}

/// Returns the forms in which a server may echo a text: unchanged; in JSON and in nested JSON, with and without escaped
/// characters and slashes; in a URL and in a form, with hexadecimal digits of either case; in HTML; in Base64 of either
/// alphabet, alone or within other text; and in hexadecimal digits.
fn forms(text: &str) -> Vec<String> {
    let escaped = |text: &str| {
        let quoted = Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let ascii = |text: &str| -> String {
        let unit =
            |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        text.chars().map(|c| if c.is_ascii() { c.to_string() } else { unit(c) }).collect()
    };
    let encoded = |kept: &'static AsciiSet| utf8_percent_encode(text, kept).to_string();
    let (json, strict, loose) = (escaped(text), encoded(NON_ALPHANUMERIC), encoded(UNRESERVED));
    let mut forms = vec![text.to_owned(), json.clone(), ascii(&json), escaped(&json), escaped(&ascii(&json))];
    for url in [strict, loose, encoded(CONTROLS)] {
        forms.extend([url.replace("%20", "+"), url.to_lowercase(), url]);
    }
    forms.extend([json.replace('/', "\\/"), ascii(&json).replace('/', "\\/")]);
    let html = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    forms.extend([html.replace('\'', "&#39;"), html.replace('\'', "&#x27;"), html]);
    for before in 0..3 {
        let standard = base64_within(text, before);
        forms.extend([standard.replace('+', "-").replace('/', "_"), standard]);
    }
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.extend([hex.to_uppercase(), hex]);
    forms.sort();
    forms.dedup();
    forms
}

/// Returns the part of a Base64 text (RFC 4648 §4) that only `text` determines, if `before` bytes precede it in its
/// group of three.
fn base64_within(text: &str, before: usize) -> String {
    use base64::Engine;
    let bytes = [&[0; 3][..before], text.as_bytes()].concat();
    // A character holds six bits. Those that the bytes before or after share are left out.
    let shared = (before * 8).div_ceil(6);
    let whole = bytes.len() * 8 / 6;
    let encoded = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&bytes);
    encoded.get(shared..whole).unwrap_or_default().to_owned()
}

/// The characters that a URL leaves unencoded (RFC 3986 §2.3), and the path characters that browsers leave unencoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const CONTROLS: &AsciiSet =
    &percent_encoding::CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`').add(b'#').add(b'?');

/// Returns the pattern of a secret's placeholder.
fn placeholder() -> &'static Regex {
    static PLACEHOLDER: OnceLock<Regex> = OnceLock::new();
    PLACEHOLDER.get_or_init(|| {
        Regex::new(r"\{\{secret:([A-Za-z0-9._/-]{1,256})\}\}").unwrap_or_else(|error| unreachable!("{error}"))
    })
}

/// Returns the ids of the resources whose secrets the arguments name, each once.
pub(super) fn named(arguments: &Value) -> Vec<String> {
    let text = arguments.to_string();
    let mut ids: Vec<String> = placeholder().captures_iter(&text).map(|found| found[1].to_owned()).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn put(value: &mut Value, filled: &Filled) {
    match value {
        Value::String(text) => {
            // One pass, so that the text of a secret is not searched for further placeholders.
            let put = |found: &regex::Captures<'_>| {
                let secret = filled.0.iter().find(|(mark, _)| *mark == found[0]);
                secret.map_or_else(|| found[0].to_owned(), |(_, secret)| secret.expose_secret().to_owned())
            };
            *text = placeholder().replace_all(text, put).into_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, filled)),
        Value::Object(members) => members.values_mut().for_each(|member| put(member, filled)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::{Cause, Principal};

    use super::*;

    struct Safe;

    #[async_trait]
    impl Vault for Safe {
        async fn hosts(&self, id: &str, _: &Origin) -> Result<Option<Vec<String>>, String> {
            Ok((id == "bound").then(|| vec!["api.example".to_owned()]))
        }

        async fn secret(&self, id: &str, _: &str, _: &Origin) -> Result<SecretString, String> {
            match id {
                "cookies/site" => Ok("s3cret \"value\" {{secret:other}}".to_owned().into()),
                _ => Err(format!("{id} is not yours")),
            }
        }
    }

    #[tokio::test]
    async fn a_secret_is_filled_in_once_and_taken_out_of_what_comes_back() {
        let registry = Registry::default();
        registry.keep_secrets_in(Arc::new(Safe));
        let origin = Origin::new(Principal::lifeform("lf"), Cause::default());
        let given = json!({"header": ["session={{secret:cookies/site}}"], "n": 1});
        let Value::Object(given) = given else { panic!() };
        let (arguments, filled) = registry.fill(given, "fetch", "a.example", &origin).await.unwrap();
        assert_eq!(arguments["header"][0], "session=s3cret \"value\" {{secret:other}}");
        let echoed = Value::Object(arguments).to_string();
        assert_eq!(filled.scrubbed(echoed), r#"{"header":["session={{secret:cookies/site}}"],"n":1}"#);
        let Value::Object(other) = json!({"x": "{{secret:not/mine}}"}) else { panic!() };
        let refused = registry.fill(other, "fetch", "a.example", &origin).await.err().unwrap();
        assert_eq!(refused, "not/mine is not yours");
        let bound = json!({"x": "{{secret:bound}}"});
        let elsewhere = registry.may_send(&bound, "a.example", &origin).await.err().unwrap();
        assert_eq!(elsewhere, "the secret bound is not for a.example");
        assert_eq!(registry.may_send(&bound, "API.example", &origin).await, Ok(()));
        for spelling in [
            "s3cret%20%22value%22%20%7B%7Bsecret%3Aother%7D%7D",
            "s3cret+%22value%22+%7B%7Bsecret%3Aother%7D%7D",
            r#"{\"k\":\"s3cret \\\"value\\\" {{secret:other}}\"}"#,
            "xxxx s3cret \"val\n[… cut short]",
        ] {
            let left = filled.scrubbed(spelling.to_owned());
            assert!(!left.contains("s3cret") && left.contains("{{secret:cookies/site}}"), "{spelling}: {left}");
        }
        assert_eq!(scrubbed("as it was".to_owned(), [("{{secret:none}}", "")].into_iter()), "as it was");
        for around in ["", "x", "xy", "ada:", "1234567"] {
            use base64::Engine;
            let text = format!("{around}s3cret \"value\" {{{{secret:other}}}}{around}");
            let spelling = base64::engine::general_purpose::STANDARD.encode(text);
            for spelling in [spelling.replace('+', "-").replace('/', "_"), spelling] {
                let left = filled.scrubbed(format!("Basic {spelling}"));
                assert!(left.contains("{{secret:cookies/site}}"), "{around}: {left}");
            }
        }
        assert!(forms("wörd").contains(&"w%C3%B6rd".to_owned()));
        assert!(forms("wörd").contains(&"w\\u00f6rd".to_owned()));
        for spelling in [r#"s3cret \"value\" {{secret:other}}"#, "s3cret &quot;value&quot; {{secret:other}}"] {
            assert_eq!(filled.scrubbed(spelling.to_owned()), "{{secret:cookies/site}}", "{spelling}");
        }
        assert!(forms("a/b+c").contains(&"a\\/b+c".to_owned()));
        let both = [("A", "hunter2"), ("B", "hunter2hunter2")];
        assert_eq!(scrubbed("hunter2hunter2 hunter2.".into(), both.into_iter()), "B A.");
        // The approval must cover all names of secrets that will be filled in, in whatever JSON encoding.
        for (params, named) in [
            (r#"{"a":"{{secret:a/b}}"}"#, true),
            (r#"{"a":"\u007b\u007bsecret:a/b}}"}"#, true),
            (r#"{"a":"{{secret:a\/b}}"}"#, true),
            (r#"{"a":["#, true),
            (r#"{"a":"{{secret:}} {{ secret }}"}"#, false),
        ] {
            let call = crate::tools::ToolCall { params: params.to_owned(), ..crate::tools::ToolCall::default() };
            assert_eq!(super::super::names_a_secret(&call), named, "{params}");
        }
    }
}
