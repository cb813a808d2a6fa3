//! The causes of a lifeform's acts, and the evidence of its answers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use knowledge::KnowledgeError;
use lifeform::LifeformId;
use lifeform::canvas::chat::message_path;
use lifeform::trace::{Step, Walk};
use nexus::Request;
use nexus::kip::graph::Ids;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Role, Timestamp};
use utoipa::ToSchema;

use super::App;
use super::chat::MessagePath;
use super::error::ApiError;
use super::extract::{ApiPath, ApiQuery, Caller};
use super::lifeforms::journal;
use super::paging::{EntriesLimit, JournalEntry, JournalPage, Order};
use crate::otlp;

/// The requested part of a trace.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// The entry from which to walk, back to its causes and forward to its effects: `canvas:{lifeform}/{canvas}@{rev}`,
    /// `job:{job}`, `job:{job}/{step}`, or a `ref` from another walk. Without it, the response is a page of the
    /// lifeform's journal.
    #[serde(default)]
    from: Option<String>,
    /// The format: `json`, or `otlp` for OpenTelemetry spans of a walk.
    #[serde(default)]
    #[param(inline)]
    format: Format,
    /// Only entries after the entry of this number.
    #[serde(default)]
    after: u64,
    /// Only entries before the entry of this number.
    before: Option<u64>,
    /// Only entries from this time on.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Only entries before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// `asc` (the oldest first) or `desc`.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// The number of entries, up to 256.
    #[serde(default)]
    #[param(inline)]
    limit: EntriesLimit,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Otlp,
}

/// The answer to a request for a trace.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum TraceAnswer {
    /// The causes and the effects of an entry.
    Walk {
        /// The entry from which the walk begins: a journal entry with its reference as `ref`.
        #[schema(value_type = Object)]
        from: Value,
        /// The causes, the nearest first.
        #[schema(value_type = Vec<Object>)]
        back: Vec<Value>,
        /// The causes that have no entry of their own.
        #[schema(value_type = Vec<String>)]
        roots: Vec<Arc<str>>,
        /// The effects in the order of their times.
        #[schema(value_type = Vec<Object>)]
        forward: Vec<Value>,
        /// `true` if the walk ended at its bound.
        more: bool,
    },
    /// A page of the lifeform's journal.
    Journal {
        /// The changes of its status, with their reasons.
        entries: Vec<JournalEntry>,
        /// The number with which the next page begins; `null` at the end.
        next: Option<u64>,
    },
    /// The walk as OpenTelemetry spans.
    #[schema(value_type = Object)]
    Spans(Value),
}

/// A concept or a record on which an answer rests.
#[derive(Serialize, ToSchema)]
struct RestsOn {
    /// The id.
    id: String,
    /// The concept; `null` for a record, and if the caller cannot see it.
    #[schema(value_type = Option<Object>)]
    concept: Value,
    /// The record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    record: Option<Value>,
}

/// The evidence of an answer.
#[derive(Serialize, ToSchema)]
pub(super) struct Evidence {
    /// The id of the message.
    #[schema(value_type = String)]
    message: Arc<str>,
    /// The author.
    by: String,
    /// The job that wrote the answer.
    job: Option<String>,
    /// The concepts and records that the caller can see.
    rests_on: Vec<RestsOn>,
    /// The KIP commands that found them: `{command, parameters}`; only for operators.
    #[schema(value_type = Vec<Object>)]
    kip: Vec<Value>,
    /// The reference with which the trace begins.
    trace: String,
}

/// Returns a lifeform's journal or the trace of an entry.
///
/// The journal contains changes of the lifeform's status with their reasons. The trace, with `from`, contains the
/// causes and effects of an entry.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/trace",
    params(("id" = String, Path), Asked),
    responses(
        (
            status = 200,
            description = "a page of the journal; with `from` a walk; as `otlp` an ExportTraceServiceRequest",
            body = TraceAnswer,
        ),
        (status = 404, description = "no such lifeform or entry"),
    ),
)]
pub(super) async fn trace(
    State(app): State<App>,
    caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(asked): ApiQuery<Asked>,
) -> Result<Json<TraceAnswer>, ApiError> {
    let Some(from) = asked.from else {
        if asked.format == Format::Otlp {
            return Err(ApiError::invalid("format=otlp wants from=: spans are of one walk"));
        }
        app.lifeforms.get(&id).await?;
        let Asked { after, before, since, until, order, limit, .. } = asked;
        let page = JournalPage { after, before, since, until, order, limit };
        let (entries, next) = journal(&app, format!("trace:{id}").into(), &page).await?;
        return Ok(Json(TraceAnswer::Journal { entries, next }));
    };
    let walk = app.lifeforms.trace(&id, &from).await?.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("nothing of this lifeform is called \"{from}\""))
            .hint("canvas:{lifeform}/{canvas}@{rev}, job:{job} and job:{job}/{step} are names; a walk answers more of them")
    })?;
    if asked.format == Format::Otlp {
        return Ok(Json(TraceAnswer::Spans(otlp::export(&id, &walk, true))));
    }
    let prompts = caller.0.principal.may(Role::Operator);
    let shown = |steps: &[Step]| steps.iter().map(|step| step.to_json(prompts)).collect::<Vec<_>>();
    let Walk { from, back, roots, forward, more } = &walk;
    Ok(Json(TraceAnswer::Walk {
        from: from.to_json(prompts),
        back: shown(back),
        roots: roots.clone(),
        forward: shown(forward),
        more: *more,
    }))
}

/// Returns the evidence of a lifeform's answer.
///
/// It consists of the concepts that the caller can see, the KIP commands that found them (for operators), and the
/// beginning of the trace.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/evidence",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)),
    responses(
        (status = 200, description = "the evidence", body = Evidence),
        (status = 404, description = "there is no such message"),
    ),
)]
pub(super) async fn evidence(
    State(app): State<App>,
    caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Json<Evidence>, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let found = canvas.snapshot().state.get(&message_path(&topic, &message)).cloned();
    let found = found.ok_or_else(|| {
        let detail = format!("message {message} does not exist in topic {topic}");
        ApiError::new(StatusCode::NOT_FOUND, "not_found", detail)
    })?;
    let sender = found["sender"].as_str().unwrap_or_default();
    let mind = sender.strip_prefix("lifeform:").map(nexus::NexusId::from);
    let mut rests_on = Vec::new();
    for concept in found["rests_on"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut shown = RestsOn { id: concept.to_owned(), concept: Value::Null, record: None };
        if !Ids::is_id(concept) {
            // A record that the caller cannot see is left out.
            match app.knowledge.get(concept, &caller.0).await {
                Ok(record) => shown.record = Some(json!(record)),
                Err(KnowledgeError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            }
        } else if let Some(mind) = &mind {
            let find = Request::with("FIND(?c) WHERE { ?c {id: $id} }", json!({"id": concept}));
            let answer = app.nexus.execute(mind, find, &caller.0).await?;
            shown.concept = answer["result"][0].clone();
        }
        rests_on.push(shown);
    }
    let job = message.strip_prefix("msg_").filter(|_| mind.is_some());
    let kip = match job.filter(|_| caller.0.principal.may(Role::Operator)) {
        Some(job) => app.lifeforms.kip_of(job).await?,
        None => Vec::new(),
    };
    let rev = found["rev"].as_u64().unwrap_or(0);
    let trace = format!("{}@{rev}", canvas.stream());
    let (by, job) = (sender.to_owned(), job.map(str::to_owned));
    Ok(Json(Evidence { message, by, job, rests_on, kip, trace }))
}
