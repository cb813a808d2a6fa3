//! An endpoint as a tower service: a limit on concurrency, one retry loop, and errors that keep their HTTP status. The
//! innermost layer is the transport: reqwest, or a router in this process.

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
use store::{Turn, Turns, Wants};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use super::limits::{Limits, retry_after};
use super::{Class, LlmError};

/// The maximum number of tries of one call.
const TRIES_MAX: u32 = 3;
/// The maximum `Retry-After` that is waited for. A longer one is returned to the caller.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(20);
/// The `Retry-After` up to which a call keeps its turn while its participant alone is asked to wait.
const SHORT: Duration = Duration::from_secs(2);
/// The maximum time that a call waits for the rate limiter, and the longest pause that the provider may ask
/// of a participant without the call being refused.
const ADMIT_MAX: Duration = Duration::from_secs(30);
/// The number of request bytes that count as one token for the rate limit.
const BYTES_A_TOKEN: usize = 4;
/// The maximum length of a provider's error message, in characters, and of the body with it, in bytes.
const ERROR_CHARS_MAX: usize = 4096;
const ERROR_BODY_MAX: usize = 256 << 10;

/// The call that a request is sent for.
#[derive(Clone, Default)]
pub(super) struct Call {
    /// The participant that the call is made for; `None` for operators and the daemon.
    pub(super) caller: Option<Arc<str>>,
    /// The maximum size of the whole response in bytes; `None` for a stream.
    pub(super) bytes_max: Option<usize>,
}

tokio::task_local! {
    /// The call of this task. The client library between a provider and its endpoint passes nothing on.
    pub(super) static CALL: Call;
}

/// Returns a response whose body fails once it is longer than `bytes_max`.
fn within(response: Response, bytes_max: usize) -> Response {
    let limited = |body| reqwest::Body::wrap(http_body_util::Limited::new(body, bytes_max));
    let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
    http::Response::from_parts(parts, limited(body)).into()
}

/// The transport of a request.
#[derive(Clone)]
pub enum Transport {
    /// An HTTP client.
    Http(reqwest::Client),
    /// A router in this process.
    Local(Router),
}

/// The endpoint: see the module.
#[derive(Clone)]
pub struct Endpoint {
    provider: Arc<str>,
    transport: Transport,
    turns: Turns<Class>,
    limits: Limits,
    /// The queue of calls that wait for the rate limiter, which admits one after the other.
    queue: Turns<Class>,
    /// The time limit from the request to the headers of the response.
    deadline: Duration,
}

impl Endpoint {
    /// Creates an endpoint that runs at most `concurrency_max` calls at once.
    pub fn new(provider: &str, transport: Transport, concurrency_max: usize, deadline: Duration) -> Self {
        Self {
            provider: provider.into(),
            transport,
            turns: Turns::new(concurrency_max),
            limits: Limits::default(),
            queue: Turns::new(1),
            deadline,
        }
    }

    /// Sets the rate limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Waits for a permit, by class and principal ([`Turns`]), and until the rate limiter admits a request of `bytes`
    /// bytes.
    ///
    /// # Errors
    /// Returns [`LlmError::Busy`] if the wait for the provider or its rate limiter would be too long. The wait for a
    /// turn itself has no bound.
    pub async fn turn(&self, bytes: usize, wants: Wants<Class>) -> Result<Turn<Class>, LlmError> {
        // A participant whose calls alone are asked to wait takes no turn meanwhile.
        let only = wants.is_bound.then(|| wants.who.clone());
        while let Some(wait) = only.as_ref().and_then(|only| self.limits.closed(Some(only))) {
            if wait > ADMIT_MAX {
                let (provider, message) = (self.provider.to_string(), "it asked to be called later".to_owned());
                return Err(LlmError::Busy { provider, message, retry_after: Some(wait) });
            }
            tokio::time::sleep(wait).await;
        }
        let tokens = u32::try_from(bytes / BYTES_A_TOKEN).unwrap_or(u32::MAX);
        // The rate limiter is asked for one call at a time, in the same fair order as turns are taken: a participant
        // with many calls does not use up what the provider admits before the others are asked for.
        let admitted = async {
            let _next = self.queue.take(wants.clone()).await;
            self.admitted(tokens).await
        };
        let late = || LlmError::Busy {
            provider: self.provider.to_string(),
            message: "too many wait to ask it".into(),
            retry_after: Some(ADMIT_MAX),
        };
        tokio::time::timeout(ADMIT_MAX, admitted).await.map_err(|_| late())??;
        Ok(self.turns.take(wants).await)
    }

    /// Waits for the rate limiter. A call that would wait too long fails, and its error states the necessary delay.
    async fn admitted(&self, tokens: u32) -> Result<(), LlmError> {
        let give_up = Instant::now() + ADMIT_MAX;
        let mut counted = false;
        while let Some(wait) = self.limits.wait(tokens, &mut counted) {
            if Instant::now() + wait > give_up {
                let (provider, message) = (self.provider.to_string(), "it may not be asked so often".to_owned());
                return Err(LlmError::Busy { provider, message, retry_after: Some(wait) });
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn send(&self, request: reqwest::Request) -> Result<Response, LlmError> {
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
        // The address is left out, because the caller must not see it.
        let mut message = String::from("the request failed");
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            message.push_str(&format!(": {error}"));
            cause = error.source();
        }
        let provider = self.provider.to_string();
        if error.is_connect() || error.is_builder() {
            LlmError::Unreachable { provider, message }
        } else {
            LlmError::Broken { provider, message }
        }
    }

    async fn call_with_retries(&self, factory: HttpRequestFactory) -> Result<Response, LlmError> {
        let build = || async { factory.build().await.map_err(|error| self.unreachable(error)) };
        let mut request = build().await?;
        let bytes = request.body().and_then(reqwest::Body::as_bytes).map_or(0, <[u8]>::len);
        let tokens = u32::try_from(bytes / BYTES_A_TOKEN).unwrap_or(u32::MAX);
        let mut tried = 0;
        loop {
            tried += 1;
            // The first try was admitted together with its turn.
            if tried > 1 {
                self.admitted(tokens).await?;
            }
            let failure = match self.send(request).await {
                Ok(response) if response.status().is_success() => {
                    self.limits.heed(response.headers());
                    return Ok(match CALL.try_with(|call| call.bytes_max).ok().flatten() {
                        Some(bytes_max) => within(response, bytes_max),
                        None => response,
                    });
                }
                Ok(response) => self.judge(response).await,
                Err(failure) => failure,
            };
            let caller = CALL.try_with(|call| call.caller.clone()).ok().flatten();
            if let LlmError::Busy { retry_after: Some(asked), .. } = &failure
                && self.limits.close_for(*asked, caller.as_ref())
                && *asked > SHORT
            {
                // The turn of this call is for another participant.
                return Err(failure);
            }
            let wait = match &failure {
                LlmError::Busy { retry_after: Some(asked), .. } if *asked > RETRY_AFTER_MAX => return Err(failure),
                LlmError::Busy { retry_after: Some(_), .. } => {
                    caller.as_ref().and_then(|caller| self.limits.closed(Some(caller))).unwrap_or_default()
                }
                LlmError::Busy { .. } | LlmError::Unreachable { .. } => backoff(tried),
                _ => return Err(failure),
            };
            if tried == TRIES_MAX {
                return Err(failure);
            }
            tracing::debug!(provider = %self.provider, tried, %failure, "call failed, trying again");
            tokio::time::sleep(wait).await;
            request = build().await?;
        }
    }

    /// Converts an unsuccessful response to an error that keeps its status.
    async fn judge(&self, response: Response) -> LlmError {
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers(), jiff::Timestamp::now().into());
        let text = within(response, ERROR_BODY_MAX).text().await.unwrap_or_default();
        let parsed: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let parsed = parsed.map(|body| if body.is_array() { body[0].clone() } else { body });
        let said = parsed.as_ref().and_then(|body| {
            let of = [&body["error"]["message"], &body["message"], &body["error"], &body["detail"]];
            of.into_iter().find_map(|said| said.as_str())
        });
        let cut = |text: &str| text.chars().take(ERROR_CHARS_MAX).collect::<String>();
        // A provider that refuses a key may repeat it in its message.
        let message = said.map_or_else(|| cut(&text), cut);
        let message = store::secrets::redacted(&message).map_or(message, |(left, _)| left);
        let provider = self.provider.to_string();
        let quota =
            status == 402 || ["insufficient_quota", "billing_hard_limit_reached"].iter().any(|it| text.contains(it));
        match status {
            _ if quota => LlmError::Exhausted { provider, message },
            429 | 503 | 529 => LlmError::Busy { provider, message, retry_after },
            500..=599 => LlmError::Broken { provider, message: format!("status {status}: {message}") },
            _ => LlmError::Refused { provider, status, message },
        }
    }
}

/// Returns the backoff before the next try: half of an exponential step is fixed, and the other half is random.
fn backoff(tried: u32) -> Duration {
    let step = 200_u64 << tried.min(6);
    Duration::from_millis(step / 2 + rand::rng().random_range(0..=step / 2))
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
        Box::pin(
            async move { endpoint.call_with_retries(factory).await.map_err(|error| OpenAIError::Boxed(error.into())) },
        )
    }
}
