//! OpenAI-compatible model servers on this machine (Ollama, LM Studio, llama.cpp, vLLM): the search for them, and the
//! traits of a model, which are asked once and kept in the configuration.

use std::time::Duration;

use neurons::llm::JsonMode;
use reqwest::Client;
use serde_json::{Value, json};

/// The default ports of Ollama, LM Studio, llama.cpp and vLLM.
const PORTS: [u16; 4] = [11434, 1234, 8080, 8000];
/// The time within which a server must answer the search.
const FOUND_WITHIN: Duration = Duration::from_millis(300);
/// The time within which a model must answer a trial; it may have to be loaded first.
const TRIED_WITHIN: Duration = Duration::from_secs(120);
/// The maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The context of Ollama, which serves so much whatever the model could do, unless `OLLAMA_CONTEXT_LENGTH` says more.
const OLLAMA_CONTEXT: u64 = 4_096;
/// The context window that is assumed if the server does not say.
const CONTEXT_DEFAULT: u64 = 8_192;
/// The maximum context window that is used, because longer prompts are slow on such machines.
const CONTEXT_MAX: u64 = 32_768;
/// The number of billions of parameters up to which a model counts as small.
const SMALL_BILLIONS: f64 = 1.0;

/// A model server.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalServer {
    /// The base URL, including `/v1`.
    pub base_url: String,
    /// The names of its models.
    pub models: Vec<String>,
}

/// The traits of a model on a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The context window in tokens.
    pub context_tokens: u64,
    /// `true` for a model of about a billion parameters or fewer, by its name.
    pub small: bool,
    /// `true` if it called the tool that it was asked to call.
    pub tools: bool,
    /// The method by which it answered in JSON.
    pub json: JsonMode,
}

/// Finds the model servers on the default ports of this machine, without a token.
pub async fn find() -> Vec<LocalServer> {
    find_on(&PORTS).await
}

/// Finds the model servers on some ports of this machine, without a token.
pub async fn find_on(ports: &[u16]) -> Vec<LocalServer> {
    let Ok(client) = Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build() else {
        return Vec::new();
    };
    let look = async |port: &u16| {
        let base_url = format!("http://127.0.0.1:{port}/v1");
        let models = tokio::time::timeout(FOUND_WITHIN, models_of(&client, &base_url)).await.ok()?.ok()?;
        let models = models.iter().map(|model| model.name.clone()).collect();
        Some(LocalServer { base_url, models })
    };
    let found = futures::future::join_all(ports.iter().map(look)).await;
    found.into_iter().flatten().filter(|server| !server.models.is_empty()).collect()
}

/// A model as a server lists it.
struct Listed {
    name: String,
    context: Option<u64>,
}

async fn models_of(client: &Client, base_url: &str) -> anyhow::Result<Vec<Listed>> {
    let answer = client.get(format!("{base_url}/models")).send().await?.error_for_status()?;
    let listed = read(answer).await?;
    let models = listed["data"].as_array().into_iter().flatten();
    let model = |model: &Value| {
        let context = ["max_model_len", "context_length", "max_context_length", "context_window"];
        let context = context.iter().find_map(|member| model[*member].as_u64());
        let context = context.or_else(|| model["meta"]["n_ctx_train"].as_u64());
        // Any process may listen on such a port, and its names are printed.
        let is_plain = |name: &&str| {
            let legal = |c: char| c.is_ascii_alphanumeric() || "._:/@+-".contains(c);
            (1..=128).contains(&name.len()) && name.chars().all(legal) && !name.starts_with('-')
        };
        Some(Listed { name: model["id"].as_str().filter(is_plain)?.to_owned(), context })
    };
    Ok(models.filter_map(model).collect())
}

async fn read(answer: reqwest::Response) -> anyhow::Result<Value> {
    use futures::StreamExt;
    let (mut bytes, mut pieces) = (Vec::new(), answer.bytes_stream());
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece?);
        anyhow::ensure!(bytes.len() <= ANSWER_BYTES_MAX, "the answer is too long");
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Asks a server for the traits of a model, with two short trials: a tool to call, and JSON to answer.
///
/// # Errors
/// If the server does not list the model, or the model does not answer at all.
pub async fn try_model(base_url: &str, model: &str, key: &str) -> anyhow::Result<Tried> {
    let mut headers = reqwest::header::HeaderMap::new();
    if !key.is_empty() {
        headers.insert(reqwest::header::AUTHORIZATION, format!("Bearer {key}").parse()?);
    }
    let redirects = reqwest::redirect::Policy::none();
    let builder = Client::builder().default_headers(headers).redirect(redirects).timeout(TRIED_WITHIN);
    // A proxy does not reach this machine.
    let is_here = base_url.starts_with("http://127.0.0.1") || base_url.starts_with("http://localhost");
    let client = if is_here { builder.no_proxy() } else { builder }.build()?;
    let listed = models_of(&client, base_url).await?;
    let found = listed.iter().find(|listed| listed.name == model);
    let names: Vec<&str> = listed.iter().map(|listed| listed.name.as_str()).collect();
    let found =
        found.ok_or_else(|| anyhow::anyhow!("{base_url} has no model \"{model}\"; it has {}", names.join(", ")))?;
    let root = base_url.trim_end_matches("/v1");
    let is_ollama = match client.get(format!("{root}/api/version")).send().await {
        Ok(answer) => answer.status().is_success(),
        Err(_) => false,
    };
    let context = match found.context {
        Some(context) => context,
        None if is_ollama => OLLAMA_CONTEXT,
        None => CONTEXT_DEFAULT,
    };
    let said = ask(&client, base_url, model, json!({})).await?;
    anyhow::ensure!(said.is_some(), "{model} does not answer");
    Ok(Tried {
        context_tokens: context.min(CONTEXT_MAX),
        small: billions(model).is_some_and(|billions| billions <= SMALL_BILLIONS),
        tools: calls_tools(&client, base_url, model).await,
        json: json_mode(&client, base_url, model).await,
    })
}

/// Sends a short chat request with further members. Returns the message; `None` if the server refuses the request.
async fn ask(client: &Client, base_url: &str, model: &str, more: Value) -> anyhow::Result<Option<Value>> {
    let mut request = json!({
        "model": model, "max_tokens": 512, "temperature": 0,
        "messages": [{"role": "user", "content": "What is the time in Lisbon? Use the tool, or answer with JSON {\"ok\": true}."}],
    });
    if let (Some(request), Value::Object(more)) = (request.as_object_mut(), more) {
        request.extend(more);
    }
    let answer = client.post(format!("{base_url}/chat/completions")).json(&request).send().await?;
    if answer.status().is_client_error() {
        return Ok(None);
    }
    let answer = read(answer.error_for_status()?).await?;
    Ok(answer["choices"][0].get("message").cloned())
}

async fn calls_tools(client: &Client, base_url: &str, model: &str) -> bool {
    let parameters = json!({"type": "object", "required": ["zone"], "properties": {"zone": {"type": "string"}}});
    let tool = json!({"type": "function", "function": {
        "name": "now", "description": "The time in a zone, such as Europe/Lisbon.", "parameters": parameters}});
    let message = ask(client, base_url, model, json!({"tools": [tool]})).await.ok().flatten();
    message.is_some_and(|message| message["tool_calls"][0]["function"]["name"] == "now")
}

async fn json_mode(client: &Client, base_url: &str, model: &str) -> JsonMode {
    let schema = json!({"type": "object", "required": ["ok"], "additionalProperties": false,
        "properties": {"ok": {"type": "boolean"}}});
    let by_schema = json!({"type": "json_schema", "json_schema": {"name": "output", "strict": true, "schema": schema}});
    for (mode, format) in [(JsonMode::Schema, by_schema), (JsonMode::Object, json!({"type": "json_object"}))] {
        let message = ask(client, base_url, model, json!({"response_format": format})).await.ok().flatten();
        let text = message.and_then(|message| Some(message["content"].as_str()?.to_owned()));
        let is_fit = |text: &String| match serde_json::from_str::<Value>(text.trim()) {
            Ok(output) => mode == JsonMode::Object || output["ok"].is_boolean(),
            Err(_) => false,
        };
        if text.as_ref().is_some_and(is_fit) {
            return mode;
        }
    }
    JsonMode::Prompt
}

/// Returns the billions of parameters that a model's name states, as in `qwen2.5:0.5b`.
fn billions(model: &str) -> Option<f64> {
    let model = model.to_lowercase();
    let parts = model.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    let mut counts = parts.filter_map(|part| {
        let (digits, unit) = part.split_at(part.len().checked_sub(1)?);
        let count: f64 = digits.parse().ok()?;
        match unit {
            "b" => Some(count),
            "m" => Some(count / 1_000.0),
            _ => None,
        }
    });
    counts.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_model_is_read_from_its_name() {
        for (name, size) in [
            ("qwen2.5:0.5b", Some(0.5)),
            ("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M", Some(1.5)),
            ("smollm2-135m", Some(0.135)),
            ("llama3.1:8b", Some(8.0)),
            ("gpt-4o", None),
        ] {
            assert_eq!(billions(name), size, "{name}");
        }
    }
}
