//! One endpoint as a tower service: a bound on concurrency, one retry loop, and errors with their
//! status kept. Innermost is the transport: reqwest, or a router in this process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use axum::Router;
use axum::body::Body;
use rand::RngExt;
use reqwest::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, ServiceExt};

use super::LlmError;

/// Tries of one call in all.
const TRIES_MAX: u32 = 3;
/// The longest `Retry-After` that is waited for; a longer one is handed to the caller.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(20);
/// How much of an error body is read.
const ERROR_BYTES_MAX: usize = 4096;

/// What carries a request.
#[derive(Clone)]
pub enum Transport {
    /// A socket.
    Http(reqwest::Client),
    /// A router in this process.
    Local(Router),
}

/// See the module.
#[derive(Clone)]
pub struct Endpoint {
    provider: Arc<str>,
    transport: Transport,
    permits: Arc<Semaphore>,
    /// From the request to the answer's headers.
    deadline: Duration,
}

impl Endpoint {
    /// An endpoint that runs at most `concurrency_max` calls at once.
    pub fn new(provider: &str, transport: Transport, concurrency_max: usize, deadline: Duration) -> Self {
        Self { provider: provider.into(), transport, permits: Arc::new(Semaphore::new(concurrency_max)), deadline }
    }

    async fn send(&self, factory: &HttpRequestFactory) -> Result<Response, LlmError> {
        let request = factory.build().await.map_err(|error| self.unreachable(error))?;
        let sent = async {
            match &self.transport {
                Transport::Http(client) => client.execute(request).await.map_err(|error| self.unsent_or_broken(&error)),
                Transport::Local(router) => self.local(router.clone(), request).await,
            }
        };
        let late = || LlmError::Broken {
            provider: self.provider.to_string(),
            message: format!("no answer within {} s", self.deadline.as_secs()),
        };
        tokio::time::timeout(self.deadline, sent).await.map_err(|_| late())?
    }

    async fn local(&self, router: Router, request: reqwest::Request) -> Result<Response, LlmError> {
        let mut copy = http::Request::builder().method(request.method().clone()).uri(request.url().path());
        for (name, value) in request.headers() {
            copy = copy.header(name, value);
        }
        let body =
            request.body().and_then(reqwest::Body::as_bytes).map(bytes::Bytes::copy_from_slice).unwrap_or_default();
        let copy = copy.body(Body::from(body)).map_err(|error| self.unreachable(error))?;
        let Ok(response) = router.oneshot(copy).await;
        let (parts, body) = response.into_parts();
        Ok(http::Response::from_parts(parts, reqwest::Body::wrap_stream(body.into_data_stream())).into())
    }

    fn unreachable(&self, error: impl std::fmt::Display) -> LlmError {
        LlmError::Unreachable { provider: self.provider.to_string(), message: error.to_string() }
    }

    fn unsent_or_broken(&self, error: &reqwest::Error) -> LlmError {
        let message =
            std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
        let provider = self.provider.to_string();
        if error.is_connect() || error.is_builder() {
            LlmError::Unreachable { provider, message }
        } else {
            LlmError::Broken { provider, message }
        }
    }

    async fn call_with_retries(&self, factory: HttpRequestFactory) -> Result<Response, LlmError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let failure = match self.send(&factory).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => self.judge(response).await,
                Err(failure) => failure,
            };
            let wait = match &failure {
                LlmError::Busy { retry_after: Some(asked), .. } if *asked > RETRY_AFTER_MAX => return Err(failure),
                LlmError::Busy { retry_after: Some(asked), .. } => *asked,
                LlmError::Busy { .. } | LlmError::Unreachable { .. } => backoff(tried),
                _ => return Err(failure),
            };
            if tried == TRIES_MAX {
                return Err(failure);
            }
            tracing::debug!(provider = %self.provider, tried, %failure, "call failed, trying again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Turns an answer that is no success into an error that keeps its status.
    async fn judge(&self, response: Response) -> LlmError {
        let status = response.status().as_u16();
        let retry_after =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()).and_then(retry_after);
        let text = response.text().await.unwrap_or_default();
        let parsed: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let said = parsed.as_ref().and_then(|body| body["error"]["message"].as_str().or(body["message"].as_str()));
        let cut = |text: &str| text.chars().take(ERROR_BYTES_MAX).collect::<String>();
        let message = said.map_or_else(|| cut(&text), cut);
        let provider = self.provider.to_string();
        let quota = text.contains("insufficient_quota");
        match status {
            429 | 503 | 529 if !quota => LlmError::Busy { provider, message, retry_after },
            500..=599 => LlmError::Broken { provider, message: format!("status {status}: {message}") },
            _ => LlmError::Refused { provider, status, message },
        }
    }
}

/// Half of an exponential step for certain, the other half by chance.
fn backoff(tried: u32) -> Duration {
    let step = 200_u64 << tried.min(6);
    Duration::from_millis(step / 2 + rand::rng().random_range(0..=step / 2))
}

/// Seconds, or an HTTP date in the future.
fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    }
    let at = jiff::fmt::rfc2822::parse(value.trim()).ok()?.timestamp();
    Duration::try_from(at - jiff::Timestamp::now()).ok()
}

impl Service<HttpRequestFactory> for Endpoint {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move {
            let permit =
                endpoint.permits.clone().acquire_owned().await.map_err(|error| OpenAIError::Boxed(error.into()))?;
            let response =
                endpoint.call_with_retries(factory).await.map_err(|error| OpenAIError::Boxed(error.into()))?;
            Ok(hold_until_read(response, permit))
        })
    }
}

/// Ties the permit to the body: a stream counts until its last byte.
fn hold_until_read(response: Response, permit: OwnedSemaphorePermit) -> Response {
    use futures::StreamExt;
    let status = response.status();
    let headers = response.headers().clone();
    let held = response.bytes_stream().map(move |chunk| {
        let _ = &permit;
        chunk
    });
    let mut copy = http::Response::new(reqwest::Body::wrap_stream(held));
    *copy.status_mut() = status;
    *copy.headers_mut() = headers;
    copy.into()
}
