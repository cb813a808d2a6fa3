//! The causes of a lifeform's acts, and the evidence of its answers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use knowledge::KnowledgeError;
use lifeform::LifeformId;
use lifeform::canvas::chat::message_path;
use lifeform::trace::{Step, Walk};
use nexus::Request;
use nexus::kip::graph::Ids;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Role, Timestamp};
use utoipa::ToSchema;

use super::App;
use super::chat::MessagePath;
use super::error::ApiError;
use super::extract::{ApiPath, ApiQuery, Caller};
use super::lifeforms::journal;
use super::paging::{EntriesLimit, JournalPage, Order};
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
            description = "{entries, next}; with `from` {from, back, roots, forward, more}; as `otlp` an ExportTraceServiceRequest",
        ),
        (status = 404, description = "no such lifeform or entry"),
    ),
)]
pub(super) async fn trace(
    State(app): State<App>,
    caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(asked): ApiQuery<Asked>,
) -> Result<Json<Value>, ApiError> {
    let Some(from) = asked.from else {
        if asked.format == Format::Otlp {
            return Err(ApiError::invalid("format=otlp wants from=: spans are of one walk"));
        }
        app.lifeforms.get(&id).await?;
        let Asked { after, before, since, until, order, limit, .. } = asked;
        let page = JournalPage { after, before, since, until, order, limit };
        let (entries, next) = journal(&app, format!("trace:{id}").into(), &page).await?;
        return Ok(Json(json!({"entries": entries, "next": next})));
    };
    let walk = app.lifeforms.trace(&id, &from).await?.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("nothing of this lifeform is called \"{from}\""))
            .hint("canvas:{lifeform}/{canvas}@{rev}, job:{job} and job:{job}/{step} are names; a walk answers more of them")
    })?;
    if asked.format == Format::Otlp {
        return Ok(Json(otlp::export(&id, &walk, true)));
    }
    let prompts = caller.0.principal.may(Role::Operator);
    let shown = |steps: &[Step]| steps.iter().map(|step| step.to_json(prompts)).collect::<Vec<_>>();
    let Walk { from, back, roots, forward, more } = &walk;
    Ok(Json(json!({
        "from": from.to_json(prompts), "back": shown(back), "roots": roots, "forward": shown(forward), "more": more,
    })))
}

/// Returns the evidence of a lifeform's answer.
///
/// It consists of the concepts that the caller can see, the KIP commands that found them (for operators), and the
/// beginning of the trace.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/evidence",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)),
    responses(
        (
            status = 200,
            description = "{message, by, rests_on: [{id, concept, record}], kip: [{command, parameters}], trace}",
        ),
        (status = 404, description = "there is no such message"),
    ),
)]
pub(super) async fn evidence(
    State(app): State<App>,
    caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Json<Value>, ApiError> {
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
        let mut shown = json!({"id": concept, "concept": null});
        if !Ids::is_id(concept) {
            // A record that the caller cannot see is left out.
            match app.knowledge.get(concept, &caller.0).await {
                Ok(record) => shown["record"] = json!(record),
                Err(KnowledgeError::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            }
        } else if let Some(mind) = &mind {
            let find = Request::with("FIND(?c) WHERE { ?c {id: $id} }", json!({"id": concept}));
            let answer = app.nexus.execute(mind, find, &caller.0).await?;
            shown["concept"] = answer["result"][0].clone();
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
    Ok(Json(json!({"message": message, "by": sender, "job": job, "rests_on": rests_on, "kip": kip, "trace": trace})))
}
