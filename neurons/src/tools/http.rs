//! HTTP requests as tools: a template, filled with the parameters of a call, for a host that the configuration allows.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use serde_json::{Map, Value};

use super::effect::EffectClass;
use super::hosts::Hosts;
use super::projection::ANSWERED;
use super::spec::{Body, HttpTool, Method};
use super::{Failure, WHOLE_BYTES_MAX};

/// The characters that a URL leaves unencoded (RFC 3986 §2.3).
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The headers that a tool may not set.
const NOT_ITS: [HeaderName; 10] = [
    IDEMPOTENCY_KEY,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::COOKIE,
    header::TE,
];
/// The maximum number of headers that one tool may set.
const HEADERS_MAX: usize = 32;
/// The maximum length of a URL template, in bytes.
const URL_BYTES_MAX: usize = 2_048;
/// The part of an error response that the model sees, in bytes.
const ERROR_BYTES_MAX: usize = 2_048;
/// The bounds of the time that a server may ask for.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(900);
/// The longest time for which one answer keeps everybody from a host.
const REST_MAX: Duration = Duration::from_secs(60);
/// The header by which a server recognizes a repeated request (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A part of a template.
#[derive(Debug, PartialEq)]
enum Piece<'t> {
    Text(&'t str),
    Place(&'t str),
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), template);
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').ok_or_else(|| format!("\"{template}\" has a brace that is not closed"))?;
        let name = &rest[open + 1..open + close];
        if name.is_empty() || name.contains('{') {
            return Err(format!("\"{template}\" has braces without a parameter's name"));
        }
        pieces.extend([Piece::Text(&rest[..open]), Piece::Place(name)]);
        rest = &rest[open + close + 1..];
    }
    if rest.contains('}') {
        return Err(format!("\"{template}\" has a brace that was not opened"));
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

pub(super) fn places(template: &str) -> BTreeSet<&str> {
    let named = |piece| if let Piece::Place(name) = piece { Some(name) } else { None };
    pieces(template).unwrap_or_default().into_iter().filter_map(named).collect()
}

/// Returns `true` if a tool may set a header with that name.
pub(crate) fn may_set(name: &str) -> bool {
    HeaderName::try_from(name).is_ok_and(|name| !NOT_ITS.contains(&name))
}

/// Returns `true` for a method that only reads (RFC 9110 §9.2.1).
pub(crate) fn reads_by_method(tool: &HttpTool) -> bool {
    matches!(tool.method, Method::Get | Method::Head)
}

/// Returns `true` if a call may change something.
pub(crate) fn writes(tool: &HttpTool) -> bool {
    tool.writes.unwrap_or(!reads_by_method(tool))
}

/// Returns the effect class of a request by its method and by what its definition says of it.
pub(crate) fn class_of(tool: &HttpTool) -> EffectClass {
    match tool.method {
        _ if !writes(tool) => EffectClass::Read,
        Method::Put | Method::Delete => EffectClass::Idempotent,
        _ => EffectClass::Write,
    }
}

/// Returns the host of a request, with its port if it names one.
pub(crate) fn host_of(tool: &HttpTool) -> &str {
    let authority = tool.url.split_once("://").map_or("", |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Checks the constraints that deserialization cannot check.
///
/// # Errors
/// Returns a sentence that names the member and the fault.
pub(crate) fn check(tool: &HttpTool) -> Result<(), String> {
    if tool.url.len() > URL_BYTES_MAX {
        return Err(format!("url has {} bytes, the bound is {URL_BYTES_MAX}", tool.url.len()));
    }
    let filled: String = pieces(&tool.url)
        .map_err(|error| format!("url: {error}"))?
        .into_iter()
        .map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Place(_) => "x",
        })
        .collect();
    let url = Url::parse(&filled).map_err(|error| format!("url \"{}\": {error}", tool.url))?;
    let spoken = tool.url.starts_with("http://") || tool.url.starts_with("https://");
    if !spoken || tool.url.contains(|c: char| c == '\\' || c.is_control()) {
        return Err(format!("url \"{}\" does not begin with http:// or https://", tool.url));
    }
    let authority = tool.url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('{') {
        return Err(format!("url \"{}\" lets a parameter choose the host", tool.url));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(format!("url \"{}\" has a user, a password or a fragment", tool.url));
    }
    if tool.headers.len() > HEADERS_MAX {
        return Err(format!("headers has {} entries, the bound is {HEADERS_MAX}", tool.headers.len()));
    }
    for (name, value) in &tool.headers {
        let known = HeaderName::try_from(name).map_err(|error| format!("headers: \"{name}\": {error}"))?;
        if NOT_ITS.contains(&known) {
            return Err(format!(
                "headers: {known} is not a tool's to set; a secret stands in the configuration of its host"
            ));
        }
        pieces(value).map_err(|error| format!("headers.{name}: {error}"))?;
        HeaderValue::try_from(value).map_err(|error| format!("headers.{name}: {error}"))?;
    }
    Ok(())
}

/// Returns a value in the form for a URL or a header.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn filled(template: &str, given: &Map<String, Value>, as_text: impl Fn(&str) -> String) -> Result<String, String> {
    pieces(template)?.into_iter().try_fold(String::new(), |mut text, piece| {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Place(name) => {
                let value = given.get(name).filter(|value| !value.is_null());
                text.push_str(&as_text(&plain(value.ok_or_else(|| format!("the parameter {name} is missing"))?)));
            }
        }
        Ok(text)
    })
}

/// Returns the URL of a request with the given parameters.
fn url(tool: &HttpTool, given: &Map<String, Value>) -> Result<Url, String> {
    // A path segment of one or two dots would change the path, encoded or not (WHATWG URL §4.3).
    for name in places(&tool.url) {
        if given.get(name).is_some_and(|value| matches!(plain(value).as_str(), "" | "." | "..")) {
            return Err(format!("the parameter {name} must not be empty, \".\" or \"..\""));
        }
    }
    let filled = filled(&tool.url, given, |text| utf8_percent_encode(text, KEPT).to_string())?;
    let mut url = Url::parse(&filled).map_err(|error| error.to_string())?;
    let asked = tool.query.iter().filter_map(|name| Some((name, given.get(name).filter(|value| !value.is_null())?)));
    let asked: Vec<(&String, String)> = asked
        .flat_map(|(name, value)| match value {
            Value::Array(items) => items.iter().map(|item| (name, plain(item))).collect(),
            one => vec![(name, plain(one))],
        })
        .collect();
    if !asked.is_empty() {
        url.query_pairs_mut().extend_pairs(asked);
    }
    Ok(url)
}

/// Returns the body of a request with the given parameters.
fn body(tool: &HttpTool, given: &Map<String, Value>) -> Option<Value> {
    let bare = matches!(tool.method, Method::Get | Method::Head | Method::Delete);
    match tool.body.as_ref().unwrap_or(if bare { &Body::None } else { &Body::Json }) {
        Body::None => None,
        Body::Parameter(name) => given.get(name).cloned(),
        Body::Json => {
            let mut elsewhere = places(&tool.url);
            elsewhere.extend(tool.query.iter().map(String::as_str));
            elsewhere.extend(tool.headers.values().flat_map(|value| places(value)));
            let rest = given.iter().filter(|(name, _)| !elsewhere.contains(name.as_str()));
            Some(Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect()))
        }
    }
}

/// Makes the request. `key` is the idempotency key of a call that may change something: a repetition has the same key.
pub(crate) async fn run(
    hosts: &Hosts,
    tool: &HttpTool,
    given: &Map<String, Value>,
    key: Option<&str>,
    is_sent: &AtomicBool,
) -> Result<String, Failure> {
    let url = url(tool, given).map_err(Failure::Failed)?;
    let host = hosts.allowed(&url).map_err(Failure::Failed)?;
    let _permit = host.permit().await;
    if let Some(wait) = host.rests() {
        return Err(Failure::Later("its host asked to be left alone for a while".into(), wait));
    }
    let method = match tool.method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
    };
    let mut request =
        host.client().request(method, url).header(header::ACCEPT, "application/json, text/*;q=0.9, */*;q=0.1");
    for (name, template) in &tool.headers {
        if host.secret().is_some_and(|(secret, _)| secret.as_str().eq_ignore_ascii_case(name)) {
            return Err(Failure::Failed(format!("the header {name} is not a tool's to set here")));
        }
        let value = filled(template, given, str::to_owned).map_err(Failure::Failed)?;
        let value = HeaderValue::try_from(&value)
            .map_err(|_| Failure::Failed(format!("the header {name} would not be one")))?;
        request = request.header(name, value);
    }
    if let Some(key) = key {
        request = request.header(IDEMPOTENCY_KEY, key);
    }
    if let Some(body) = body(tool, given) {
        request = request.json(&body);
    }
    if let Some((name, value)) = host.secret() {
        request = request.header(name.clone(), value.clone());
    }
    // A request that was not sent had no effect. In all other cases the outcome is unknown.
    let failed = |error: reqwest::Error| {
        let unsent = error.is_connect() || error.is_builder();
        let why = because(&error);
        if unsent { Failure::Failed(why) } else { Failure::Unknown(why) }
    };
    is_sent.store(true, Ordering::SeqCst);
    let response = request.send().await.map_err(failed)?;
    let (status, kind) = (response.status(), response.headers().get(header::CONTENT_TYPE).cloned());
    let later = matches!(status.as_u16(), 429 | 503).then(|| retry_after(response.headers())).flatten();
    let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
    let (mut bytes, mut whole) = (Vec::new(), true);
    let mut stream = response.bytes_stream();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.map_err(failed)?);
        if bytes.len() > WHOLE_BYTES_MAX {
            whole = false;
            break;
        }
    }
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if bytes.contains(&0) {
        let kind = kind.as_ref().and_then(|kind| kind.to_str().ok()).unwrap_or("unknown content");
        text = format!("it answered {status} with {kind}, which is no text");
    }
    // A server may echo the secret header.
    if let Some(secret) = host.secret().and_then(|(_, value)| value.to_str().ok()) {
        let (mark, key) = ("[the host's own]", secret.rsplit(' ').next().unwrap_or(secret));
        text = super::builtin::scrubbed(text, [secret, key].into_iter().map(|secret| (mark, secret)));
    }
    if status.is_success() {
        if !whole {
            super::cut(&mut text, WHOLE_BYTES_MAX);
        }
        return Ok(text);
    }
    super::cut(&mut text, ERROR_BYTES_MAX);
    let mut why = format!("{ANSWERED} {status}");
    if let Some(to) = to {
        let _ = write!(why, ": it leads to {to}, where this tool does not go");
    }
    if !text.is_empty() {
        let _ = write!(why, ": {text}");
    }
    // The server took nothing on, and says when it will (RFC 9110 §10.2.3).
    if let Some(wait) = later {
        host.rest_for(wait.min(REST_MAX));
        return Err(Failure::Later(why, wait));
    }
    // A server that failed or timed out may have executed the request, and one that leads on after a write has probably done so.
    let leads_on = key.is_some() && matches!(status.as_u16(), 302 | 303);
    let unsure = status.is_server_error() || status.as_u16() == 408 || leads_on;
    Err(if unsure { Failure::Unknown(why) } else { Failure::Failed(why) })
}

/// Returns the time after which a server wants to be asked again: a number of seconds, or a date (RFC 9110 §10.2.3), which is
/// compared with the server's own.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|text| text.to_str().ok()).map(str::trim);
    let date = |text| httpdate::parse_http_date(text).ok();
    let asked = text(header::RETRY_AFTER)?;
    let wait = match (asked.parse::<u64>(), text(header::DATE)) {
        (Ok(seconds), _) => Duration::from_secs(seconds),
        (Err(_), Some(now)) => date(asked)?.duration_since(date(now)?).unwrap_or_default(),
        (Err(_), None) => return None,
    };
    Some(wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
}

/// Returns an error with its causes, but without the URL, which may contain a secret.
fn because(error: &reqwest::Error) -> String {
    let mut why = String::from("the request failed");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let _ = write!(why, ": {error}");
        cause = error.source();
    }
    why
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(value: Value) -> HttpTool {
        serde_json::from_value(value).unwrap()
    }

    fn given(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn parameters_stand_where_the_template_says_and_nowhere_else() {
        let tool =
            tool(json!({"method": "POST", "url": "https://a.example/v1/{city}/x-{n}?v=1", "query": ["tag", "none"]}));
        check(&tool).unwrap();
        let given = given(json!({"city": "a/b?c#d é", "n": 3, "tag": ["x", "y&z"], "none": null, "more": {"k": true}}));
        assert_eq!(
            url(&tool, &given).unwrap().as_str(),
            "https://a.example/v1/a%2Fb%3Fc%23d%20%C3%A9/x-3?v=1&tag=x&tag=y%26z"
        );
        assert_eq!(body(&tool, &given).unwrap(), json!({"more": {"k": true}}));
    }

    #[test]
    fn a_server_asks_for_time_in_seconds_or_until_a_date() {
        let wait = |pairs: &[(HeaderName, &str)]| {
            let value = |(name, text): &(HeaderName, &str)| (name.clone(), HeaderValue::from_str(text).unwrap());
            retry_after(&pairs.iter().map(value).collect())
        };
        let (after, date) = (header::RETRY_AFTER, header::DATE);
        assert_eq!(wait(&[(after.clone(), "120")]), Some(Duration::from_secs(120)));
        assert_eq!(wait(&[(after.clone(), "99999")]), Some(RETRY_AFTER_MAX));
        assert_eq!(wait(&[(after.clone(), "0")]), Some(RETRY_AFTER_MIN));
        let until = (after.clone(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(wait(&[until.clone(), (date, "Sun, 06 Nov 1994 08:49:30 GMT")]), Some(Duration::from_secs(7)));
        assert_eq!(wait(&[until]), None);
        assert_eq!(wait(&[(after, "soon")]), None);
    }

    #[test]
    fn no_parameter_leads_elsewhere() {
        let tool = tool(json!({"url": "https://a.example/v1/{id}/x"}));
        for id in ["", ".", ".."] {
            assert!(url(&tool, &given(json!({"id": id}))).is_err(), "{id}");
        }
        assert_eq!(url(&tool, &given(json!({"id": "%2e%2e"}))).unwrap().path(), "/v1/%252e%252e/x");
        assert_eq!(url(&tool, &given(json!({}))).unwrap_err(), "the parameter id is missing");
    }

    #[test]
    fn what_cannot_be_a_request_is_refused_by_name() {
        for (value, part) in [
            (json!({"url": "ftp://a.example/"}), "begin with http"),
            (json!({"url": "https:/{h}/x"}), "begin with http"),
            (json!({"url": "https:///{h}/x"}), "choose the host"),
            (json!({"url": "https://a.example\\{h}/x"}), "begin with http"),
            (json!({"url": "https://{host}/x"}), "choose the host"),
            (json!({"url": "https://a.{tld}/x"}), "choose the host"),
            (json!({"url": "https://u:p@a.example/x"}), "a user"),
            (json!({"url": "https://a.example/{x"}), "not closed"),
            (json!({"url": "https://a.example/{}"}), "without a parameter"),
            (json!({"url": "/v1/x"}), "url"),
            (json!({"url": "https://a.example/", "headers": {"Authorization": "x"}}), "configuration"),
            (json!({"url": "https://a.example/", "headers": {"x-a": "a\nb"}}), "headers.x-a"),
        ] {
            let error = check(&tool(value.clone())).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }
}
