//! An HTTP client for the API of a running daemon.

use anyhow::{Context, bail};
use reqwest::Method;
use serde_json::Value;

use crate::config::Config;

/// The HTTP client with its token.
pub(super) struct Client {
    http: reqwest::Client,
    /// The base URL, `http://host:port`.
    pub(super) base: String,
    pub(super) token: String,
}

/// Returns the lifeform with an id, or the only one with a name.
fn one_of(all: Vec<Value>, wanted: &str) -> anyhow::Result<Option<Value>> {
    if let Some(found) = all.iter().find(|one| one["id"] == wanted) {
        return Ok(Some(found.clone()));
    }
    let mut named: Vec<Value> = all.into_iter().filter(|one| one["name"] == wanted).collect();
    if named.len() > 1 {
        let ids: Vec<&str> = named.iter().filter_map(|one| one["id"].as_str()).collect();
        bail!("several lifeforms are called \"{wanted}\": give the id, one of {}", ids.join(", "));
    }
    Ok(named.pop())
}

impl Client {
    /// Creates a client with the configured token, or the operator's token from the data folder.
    pub(super) fn new(config: &Config) -> anyhow::Result<Self> {
        let token = if config.token.is_empty() {
            let file = config.token_file();
            std::fs::read_to_string(&file)
                .with_context(|| {
                    format!(
                        "{} cannot be read: is this the daemon's --data folder, and was it started once?",
                        file.display()
                    )
                })?
                .trim()
                .to_owned()
        } else {
            config.token.clone()
        };
        // A proxy would learn the token.
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { http, base: format!("http://{}", config.listen), token })
    }

    /// Sends a request and returns the body of the response.
    pub(super) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    /// Returns a POST request for the caller to complete.
    pub(super) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    /// Posts a text and returns the body of the response.
    pub(super) async fn send_text(&self, path: &str, text: String) -> anyhow::Result<Value> {
        self.answer(self.post(path).header("content-type", "text/plain; charset=utf-8").body(text)).await
    }

    /// Sends a GET request with a query and returns the body as text.
    pub(super) async fn get_text(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<String> {
        self.text_of(self.http.get(format!("{}{path}", self.base)).query(query).bearer_auth(&self.token)).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.text_of(request).await?).unwrap_or(Value::Null))
    }

    async fn text_of(&self, request: reqwest::RequestBuilder) -> anyhow::Result<String> {
        Ok(self.sent(request).await?.text().await?)
    }

    /// Sends a request and returns its successful response.
    async fn sent(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let response = request.send().await.with_context(|| {
            format!("no lifeformd answers at {}: start one with `lifeformd up`, or give --listen", self.base)
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await?;
        let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let detail = answer["detail"].as_str().unwrap_or(&text);
        match answer["hint"].as_str() {
            Some(hint) => bail!("{detail} ({hint})"),
            None => bail!("{status}: {detail}"),
        }
    }

    /// Sends a GET request and returns its successful response.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        self.sent(self.http.get(format!("{}{path}", self.base)).bearer_auth(&self.token)).await
    }

    /// Posts a stream of text and returns the body of the response.
    pub(super) async fn send_stream(
        &self,
        path: &str,
        text: impl futures::TryStream<Ok = bytes::Bytes, Error = std::io::Error> + Send + 'static,
    ) -> anyhow::Result<Value> {
        let body = reqwest::Body::wrap_stream(text);
        self.answer(self.post(path).header("content-type", "text/plain; charset=utf-8").body(body)).await
    }

    /// Returns all lifeforms.
    pub(super) async fn lifeforms(&self) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.ask(Method::GET, &format!("/v1/lifeforms?limit=200&after={after}"), None).await?;
            all.extend(page["lifeforms"].as_array().cloned().unwrap_or_default());
            match &page["next"] {
                Value::String(next) => next.clone_into(&mut after),
                _ => return Ok(all),
            }
        }
    }

    /// Returns the id of the lifeform with this id or name, or of the first one.
    pub(super) async fn lifeform_id(&self, wanted: Option<&str>) -> anyhow::Result<String> {
        Ok(self.lifeform(wanted).await?["id"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns the lifeform with this id or name, or the first one.
    pub(super) async fn lifeform(&self, wanted: Option<&str>) -> anyhow::Result<Value> {
        let all = self.lifeforms().await?;
        let found = match wanted {
            Some(wanted) => one_of(all, wanted)?,
            None => all.into_iter().next(),
        };
        found.with_context(|| {
            wanted.map_or_else(
                || "no lifeform lives there yet".to_owned(),
                |wanted| format!("there is no lifeform \"{wanted}\""),
            )
        })
    }
}
