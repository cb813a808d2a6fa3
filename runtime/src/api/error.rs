//! The only place with status codes. It converts domain errors to RFC 9457 problems with a code and a hint.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fascicles::{FascicleError, Fault, Faults};
use knowledge::unit::versions::VersionError;
use knowledge::{KnowledgeError, SealError};
use lifeform::{LifeformError, Refusal as CanvasRefusal};
use neurons::llm::wire::Refusal;
use neurons::{LlmError, NeuronError};
use nexus::NexusError;
use serde::Serialize;
use serde_json::Value;
use store::StoreError;
use store::ledger::LedgerError;
use utoipa::ToSchema;

/// The body of a refusal (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The problem type, `about:blank`: the code identifies the problem.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// A stable code for programs.
    code: &'static str,
    /// The detail.
    detail: String,
    /// The remedy.
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'static str,
    /// All faults of a definition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Fault>,
    /// The path of the invalid member.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The present entity, if the client saw an older one.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<Value>,
}

/// A problem before it is sent.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    detail: String,
    hint: &'static str,
    retry_after_s: Option<u64>,
    faults: Vec<Fault>,
    about: Option<Box<About>>,
}

/// The subject of a problem, if there is one.
#[derive(Debug, Default)]
struct About {
    path: Option<String>,
    current: Option<Value>,
}

impl ApiError {
    /// Returns a problem with a status, a code and a detail.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        // The response does not repeat a secret that the client sent in the wrong place.
        let detail = detail.into();
        let detail = store::secrets::redacted(&detail).map_or(detail, |(detail, _)| detail);
        Self { status, code, detail, hint: "", retry_after_s: None, faults: Vec::new(), about: None }
    }

    /// The problem with advice.
    #[must_use]
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Converts the problem to a refusal in the OpenAI format.
    pub(crate) fn refusal(self) -> Refusal {
        let retry_after_s = self.retry_after_s.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        Refusal { status: self.status.as_u16(), message: self.detail, retry_after_s }
    }

    /// Returns the problem of a job that failed while the client waited for it.
    pub(crate) fn failed_job(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "job_failed", detail)
    }

    /// Returns the problem as a document.
    pub(crate) fn problem(self) -> Problem {
        let About { path, current } = self.about.map(|about| *about).unwrap_or_default();
        Problem {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            code: self.code,
            detail: self.detail,
            hint: self.hint,
            faults: self.faults,
            path: path.map(|path| store::secrets::redacted(&path).map_or(path, |(path, _)| path)),
            current,
        }
    }

    /// Returns the path of the invalid member.
    pub(crate) fn path(&self) -> Option<&str> {
        self.about.as_ref()?.path.as_deref()
    }

    /// Returns the refusal for a participant that has written its share of the day.
    pub(crate) fn disk_share(wait: Duration) -> Self {
        let detail = "as much was written for you as may be in a day";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "disk_share", detail)
            .hint("an operator sets person_disk_mb")
            .retry_after(wait.as_secs())
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the stable code of the problem.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the detail.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the problem of a request body that stopped for too long.
    pub(super) fn stood_still() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "nothing of the body came for 30 seconds")
    }

    /// Returns the problem of a body that does not match the route.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    /// Returns the problem of a principal without the required rights.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }
}

/// The detail of a problem, for routes with another format of refusals.
#[derive(Clone)]
pub(super) struct Said {
    /// The stable code of the problem.
    pub(super) code: &'static str,
    /// The detail.
    pub(super) detail: String,
}

/// The challenge of a 401 response.
const NO_TOKEN: &str = "Bearer realm=\"lifeformd\"";
const INVALID_TOKEN: &str = "Bearer realm=\"lifeformd\", error=\"invalid_token\"";

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(code = self.code, detail = %self.detail, "request failed");
        }
        let (status, retry_after_s) = (self.status, self.retry_after_s);
        let said_code = self.code;
        let said = Said { code: said_code, detail: self.detail.clone() };
        let mut response = (status, Json(self.problem())).into_response();
        response.extensions_mut().insert(said);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110 §15.5.2, RFC 6750 §3.
            let asks = if said_code == "bad_token" { INVALID_TOKEN } else { NO_TOKEN };
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(asks));
        }
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Conflict { .. } => Self::new(StatusCode::CONFLICT, "conflict", detail)
                .hint("read it again and repeat the change on what you find"),
            StoreError::Ledger(LedgerError::Insufficient { .. }) => {
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_nutrients", detail)
                    .hint("an operator tops a lifeform up in the currency it lacks; the house account is raised by house_tokens and house_micro_usd")
            }
            StoreError::Ledger(LedgerError::TooManyHolds { .. }) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", detail).retry_after(1)
            }
            StoreError::Ledger(LedgerError::Share { again_in_s, .. }) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "share_spent", detail)
                    .hint("an operator sets the share: person_share of the house, metabolism.person_share of a lifeform")
                    .retry_after(again_in_s.into())
            }
            StoreError::Ledger(LedgerError::TooMuch { .. }) => Self::invalid(detail),
            StoreError::Ledger(_) => Self::new(StatusCode::CONFLICT, "ledger", detail),
            StoreError::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail),
            StoreError::Closed | StoreError::LeaseLost(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).retry_after(2)
            }
            StoreError::Io(_) | StoreError::Locked(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", detail)
                .hint("nothing was written; check that the disk is neither full nor read-only")
                .retry_after(5),
            StoreError::Corrupt(_) | StoreError::Lost(_) | StoreError::Newer(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "corrupt", detail),
        }
    }
}

impl From<NexusError> for ApiError {
    fn from(error: NexusError) -> Self {
        match error {
            NexusError::Store(error) => error.into(),
            NexusError::Panicked(_) | NexusError::Refused(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "query_failed", error.to_string())
            }
            NexusError::Capsule { .. } => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "capsule", error.to_string()),
        }
    }
}

impl From<KnowledgeError> for ApiError {
    fn from(error: KnowledgeError) -> Self {
        let detail = error.to_string();
        match error {
            KnowledgeError::Invalid(faults) => {
                let path = faults.into_iter().next().map(|fault| fault.path).filter(|path| !path.is_empty());
                Self { about: Some(Box::new(About { path, current: None })), ..Self::invalid(detail) }
            }
            KnowledgeError::NotFound(_) => Self::new(StatusCode::NOT_FOUND, "knowledge_not_found", detail),
            KnowledgeError::Forbidden(_) => Self::forbidden(detail),
            KnowledgeError::NoResource(_) => Self::new(StatusCode::NOT_FOUND, "resource_not_found", detail),
            KnowledgeError::Conflict(_) => Self::new(StatusCode::CONFLICT, "conflict", detail),
            KnowledgeError::Stale(_) => Self::new(StatusCode::CONFLICT, "conflict", detail)
                .hint("read it again and repeat the change on what you find"),
            KnowledgeError::KeyReused => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", detail)
                .hint("use a fresh Idempotency-Key for another record"),
            KnowledgeError::Gone(_) => Self::new(StatusCode::GONE, "expired", detail),
            KnowledgeError::TooMany(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, "rate", detail).retry_after(1),
            KnowledgeError::Sealed(SealError::Broken) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "corrupt", detail)
            }
            KnowledgeError::Sealed(_) => Self::new(StatusCode::LOCKED, "sealed", detail).hint(
                "an operator puts the key back: knowledge.key_file, or <data>/keys/master.key; everything else works",
            ),
            KnowledgeError::Version(error) => match error {
                VersionError::Unreadable(_) => Self::new(StatusCode::BAD_REQUEST, "invalid_schema_version", detail),
                VersionError::NotAcceptable { .. } => {
                    Self::new(StatusCode::NOT_ACCEPTABLE, "version_not_acceptable", detail)
                }
                VersionError::Gone { .. } => Self::new(StatusCode::GONE, "version_gone", detail),
            },
            KnowledgeError::Refused(_) => Self::invalid(detail),
            KnowledgeError::Nexus(error) => error.into(),
        }
    }
}

impl From<NeuronError> for ApiError {
    fn from(error: NeuronError) -> Self {
        let detail = error.to_string();
        match error {
            NeuronError::NotFound(_) => {
                Self::new(StatusCode::NOT_FOUND, "neuron_not_found", detail).hint("GET /v1/neurons lists them")
            }
            NeuronError::LesserToken(_) => Self::forbidden(detail),
            NeuronError::NotOwner(..) => Self::forbidden(detail).hint("define one of your own under another id"),
            NeuronError::NoVersion(..) => {
                Self::new(StatusCode::NOT_FOUND, "no_version", detail).hint("GET /v1/neurons/{id}/versions lists them")
            }
            NeuronError::Exists(_) => {
                Self::new(StatusCode::CONFLICT, "neuron_exists", detail).hint("PUT /v1/neurons/{id} replaces it")
            }
            NeuronError::Spec(_) | NeuronError::Input(_) => Self::invalid(detail),
            NeuronError::Output(_) => Self::new(StatusCode::BAD_GATEWAY, "unusable_output", detail),
            NeuronError::NoContinuation => Self::new(StatusCode::NOT_FOUND, "no_continuation", detail),
            NeuronError::Expired => Self::new(StatusCode::GONE, "expired", detail).hint("invoke the neuron again"),
            NeuronError::InFlight => Self::new(StatusCode::CONFLICT, "in_flight", detail)
                .hint("ask again with the same body: the answer is kept")
                .retry_after(1),
            NeuronError::NoInvocation(_) => Self::new(StatusCode::NOT_FOUND, "invocation_not_found", detail),
            NeuronError::KeyReused => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", detail)
                .hint("use a fresh Idempotency-Key for another call"),
            NeuronError::Cancelled => Self::new(StatusCode::CONFLICT, "cancelled", detail),
            NeuronError::Deadline => Self::new(StatusCode::GATEWAY_TIMEOUT, "deadline", detail),
            NeuronError::Lost => Self::new(StatusCode::BAD_GATEWAY, "outcome_unknown", detail)
                .hint("make the call again under a fresh Idempotency-Key if it must be made"),
            NeuronError::NotApprover => Self::forbidden(detail),
            NeuronError::Results(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "tool_results", detail),
            NeuronError::NoModel(_) => {
                Self::new(StatusCode::NOT_FOUND, "model_not_found", detail).hint("GET /v1/models lists them")
            }
            NeuronError::NoTool(_) => {
                Self::new(StatusCode::NOT_FOUND, "tool_not_found", detail).hint("GET /v1/tools lists them")
            }
            NeuronError::NotOperator => Self::forbidden(detail),
            NeuronError::Configured(_) => Self::new(StatusCode::CONFLICT, "configured", detail)
                .hint("[tools.named] in the configuration has it; the daemon reads it at its start"),
            NeuronError::Tools(_) => Self::new(StatusCode::BAD_GATEWAY, "tool_server", detail)
                .hint("GET /v1/tools shows what tools may reach, and why they do not"),
            NeuronError::ToolFailed { .. } => Self::new(StatusCode::BAD_GATEWAY, "tool_failed", detail),
            NeuronError::TooManyDefinitions(_) => Self::new(StatusCode::CONFLICT, "too_many_definitions", detail)
                .hint("an operator sets person_definitions"),
            NeuronError::Overloaded | NeuronError::Share => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", detail).retry_after(1)
            }
            NeuronError::Died(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "neuron_died", detail),
            NeuronError::Store(error) => error.into(),
            NeuronError::Llm(error) => match error {
                LlmError::Unavailable(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_model", detail)
                    .hint("set models.embedded and run `lifeformd models pull`, or configure [providers] and [tiers]"),
                LlmError::Busy { retry_after, .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, "model_busy", detail)
                    .retry_after(retry_after.map_or(1, |wait| wait.as_secs().max(1))),
                LlmError::Exhausted { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "model_quota", detail)
                    .hint("raise the provider's quota, or give the tier a fall_back"),
                // The model refuses the request itself, usually because of its length.
                LlmError::Refused { status: 400 | 413 | 422, .. } => {
                    Self::new(StatusCode::UNPROCESSABLE_ENTITY, "model_refused", detail)
                }
                LlmError::Refused { .. } => Self::new(StatusCode::BAD_GATEWAY, "model_refused", detail),
                LlmError::Unreachable { .. } | LlmError::Broken { .. } | LlmError::Unheard { .. } => {
                    Self::new(StatusCode::BAD_GATEWAY, "model_failed", detail)
                }
            },
        }
    }
}

impl From<FascicleError> for ApiError {
    fn from(error: FascicleError) -> Self {
        let detail = error.to_string();
        match error {
            FascicleError::NotFound(_) => {
                Self::new(StatusCode::NOT_FOUND, "fascicle_not_found", detail).hint("GET /v1/fascicles lists them")
            }
            FascicleError::Exists(_) => {
                Self::new(StatusCode::CONFLICT, "fascicle_exists", detail).hint("PUT /v1/fascicles/{id} replaces it")
            }
            FascicleError::LesserToken(_) => Self::forbidden(detail),
            FascicleError::NotOwner(..) => Self::forbidden(detail).hint("define one of your own under another id"),
            FascicleError::Shipped(_) => {
                Self::new(StatusCode::CONFLICT, "shipped", detail).hint("define one of your own under another id")
            }
            FascicleError::InUse(..) => {
                Self::new(StatusCode::CONFLICT, "in_use", detail).hint("DELETE …?force=true removes it nevertheless")
            }
            FascicleError::Invalid(Faults(faults)) => {
                let first = faults.first().map(ToString::to_string).unwrap_or_default();
                let detail = format!("{} faults; the first is {first}", faults.len());
                let mut problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_fascicle", detail)
                    .hint("faults holds each with its path, its reason and its cure");
                problem.faults = faults;
                problem
            }
            FascicleError::NotApprover => Self::forbidden(detail),
            FascicleError::JobNotFound(_) => {
                Self::new(StatusCode::NOT_FOUND, "job_not_found", detail).hint("GET /v1/jobs lists yours")
            }
            FascicleError::NotFailed(_) => Self::new(StatusCode::CONFLICT, "not_failed", detail),
            FascicleError::NoOwner(_) => {
                Self::new(StatusCode::CONFLICT, "not_alive", detail).hint("start the lifeform whose job it is")
            }
            FascicleError::NoWait => Self::new(StatusCode::NOT_FOUND, "no_continuation", detail)
                .hint("GET /v1/jobs/{id} shows what it waits for"),
            FascicleError::Expired => Self::new(StatusCode::GONE, "expired", detail),
            FascicleError::Answer(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "answer", detail),
            FascicleError::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail),
            FascicleError::TooManyDefinitions(_) => Self::new(StatusCode::CONFLICT, "too_many_definitions", detail)
                .hint("an operator sets person_definitions"),
            FascicleError::Overloaded | FascicleError::Share => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", detail).retry_after(1)
            }
            FascicleError::Died(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "job_died", detail),
            FascicleError::Store(error) => error.into(),
        }
    }
}

impl From<LifeformError> for ApiError {
    fn from(error: LifeformError) -> Self {
        let detail = error.to_string();
        match error {
            LifeformError::NotFound(_) => {
                Self::new(StatusCode::NOT_FOUND, "lifeform_not_found", detail).hint("GET /v1/lifeforms lists them")
            }
            LifeformError::NotAwake(_) => {
                Self::new(StatusCode::CONFLICT, "not_awake", detail).hint("POST /v1/lifeforms/{id}/start starts it")
            }
            LifeformError::NoFact(_) => Self::new(StatusCode::NOT_FOUND, "statement_not_found", detail)
                .hint("GET /v1/lifeforms/{id}/memory lists what is remembered"),
            LifeformError::NoCanvas(_) => Self::new(StatusCode::NOT_FOUND, "canvas_not_found", detail)
                .hint("GET /v1/lifeforms/{id}/canvases lists them"),
            LifeformError::Spec(_) => Self::invalid(detail),
            LifeformError::Knowledge(error) => error.into(),
            LifeformError::Overloaded => Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", detail).retry_after(1),
            LifeformError::Died(_) => {
                Self::new(StatusCode::CONFLICT, "not_alive", detail).hint("POST /v1/lifeforms/{id}/start")
            }
            LifeformError::Refused(refusal) => match refusal {
                CanvasRefusal::Missing(_) => Self::new(StatusCode::NOT_FOUND, "not_found", detail),
                CanvasRefusal::Exists(_) => Self::new(StatusCode::CONFLICT, "exists", detail),
                CanvasRefusal::Schema { path, .. } => {
                    let about = About { path: Some(path), current: None };
                    let schema = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "schema", detail);
                    Self { about: Some(Box::new(about)), ..schema }
                }
                CanvasRefusal::Forbidden(_) => Self::forbidden(detail),
                CanvasRefusal::State(_) => Self::new(StatusCode::CONFLICT, "state", detail),
                CanvasRefusal::Stale { current, .. } => {
                    let stale = Self::new(StatusCode::PRECONDITION_FAILED, "stale", detail);
                    let stale = stale.hint("look at what there is and change that");
                    let about = About { path: None, current: Some((*current).clone()) };
                    Self { about: Some(Box::new(about)), ..stale }
                }
                CanvasRefusal::Rate(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, "rate", detail).retry_after(1),
                CanvasRefusal::Cascade(_) => Self::new(StatusCode::CONFLICT, "cascade", detail),
            },
            LifeformError::Fascicle(error) => error.into(),
            LifeformError::Nexus(error) => error.into(),
            LifeformError::Neuron(error) => error.into(),
            LifeformError::Store(error) => error.into(),
        }
    }
}
