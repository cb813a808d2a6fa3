//! `/v1/lifeforms/{id}/memory`: the statements that a lifeform remembers, with what they claim, and forgetting them. A caller sees what
//! the mind shows it, and takes back what it stated itself.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lifeform::LifeformId;
use nexus::Request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Origin, Timestamp};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, Participant};
use super::paging::EntriesLimit;

/// The number of statements that a search considers.
const SEARCHED: usize = 500;
/// The maximum number of statements that one request forgets.
const FACTS_MAX: usize = 100;
/// The maximum number of claims of a page.
const CLAIMS_MAX: usize = 2_000;

/// Finds the statements about something.
const ABOUT: &str = r#"SEARCH CONCEPT $about WITH TYPE "Fact" LIMIT $limit"#;
/// Finds the claims of statements, as far as the caller sees both.
const CLAIMS: &str = r#"
FIND(?f.id, ?l, ?s.attributes.name, ?s.name, ?o.attributes.name, ?o.name) WHERE {
  ?f {type: "Fact"} FILTER(IN(?f.id, $facts)) (?f, "states", ?l) ?l (?s, ?p, ?o)
} LIMIT $limit"#;

/// A page of what is remembered.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryAsked {
    /// The words of which the statements speak, best first; without them, the latest statements come first.
    about: Option<String>,
    /// The person who made the statements, for example `user:ada`.
    by: Option<String>,
    /// The `next` of the page before. A page of `about` has none.
    cursor: Option<String>,
    /// The number of statements, up to 256.
    #[serde(default)]
    #[param(inline)]
    limit: EntriesLimit,
}

/// A claim that a statement makes.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimMade {
    /// The subject.
    subject: Option<String>,
    /// The predicate.
    predicate: String,
    /// The object.
    object: Option<String>,
    /// The confidence, from 0 to 1.
    confidence: Option<f64>,
    /// The status: `active`, or what became of it.
    status: Option<String>,
}

/// A statement that is remembered.
#[derive(Debug, Serialize, ToSchema)]
struct RememberedStatement {
    /// The id of the concept.
    id: String,
    /// The words.
    statement: String,
    /// The person who made it.
    by: Option<String>,
    /// The time at which it was made last.
    #[schema(value_type = Option<String>, format = DateTime)]
    stated_at: Option<Timestamp>,
    /// The day of which it speaks.
    on: Option<String>,
    /// The first day on which it holds.
    valid_from: Option<String>,
    /// The last day on which it holds.
    valid_until: Option<String>,
    /// The entry with the message, for the trace.
    source: Option<String>,
    /// The claims that it makes.
    claims: Vec<ClaimMade>,
}

/// A page of statements.
#[derive(Serialize, ToSchema)]
pub(super) struct MemoryPage {
    /// The statements.
    statements: Vec<RememberedStatement>,
    /// The `cursor` of the next page; `null` at the end.
    next: Option<String>,
}

/// A request to forget.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForgetBody {
    /// The ids of the statements, 1 to 100.
    facts: Vec<String>,
    /// `true` to change nothing, and to return what would be forgotten.
    #[serde(default)]
    dry_run: bool,
}

/// A statement that is forgotten.
#[derive(Serialize, ToSchema)]
struct ForgottenStatement {
    /// The id of the concept.
    id: String,
    /// The words.
    statement: String,
    /// The person who made it.
    by: String,
    /// The messages with it, which prompts leave out from now on.
    messages: Vec<String>,
}

/// The forgotten statements.
#[derive(Serialize, ToSchema)]
pub(super) struct Forgotten {
    /// The statements, with their other wordings in the same messages; without what was forgotten before.
    forgotten: Vec<ForgottenStatement>,
    /// `true` if nothing was changed.
    dry_run: bool,
}

/// Lists the statements that a lifeform remembers.
///
/// The list holds what the caller may see, the latest first, with the claims that are made of each statement. What is
/// forgotten or replaced is not in it.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/memory",
    params(("id" = String, Path), MemoryAsked),
    responses(
        (status = 200, description = "a page of statements", body = MemoryPage),
        (status = 404, description = "there is no such lifeform"),
        (status = 422, description = "a malformed request"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(asked): ApiQuery<MemoryAsked>,
) -> Result<Json<MemoryPage>, ApiError> {
    app.lifeforms.get(&id).await?;
    let limit = asked.limit.0;
    let about = asked.about.as_deref().map(str::trim).filter(|words| !words.is_empty());
    if about.is_some() && asked.cursor.is_some() {
        return Err(ApiError::invalid("a search has one page: ask without cursor"));
    }
    let command = match about {
        Some(_) => ABOUT.to_owned(),
        None => {
            let by = if asked.by.is_some() { " && ?f.metadata.author == $by" } else { "" };
            let cursor = if asked.cursor.is_some() { " CURSOR $cursor" } else { "" };
            format!(
                r#"FIND(?f) WHERE {{ ?f {{type: "Fact"}} FILTER((?f.metadata.status == "active" || IS_NULL(?f.metadata.status)){by}) }} ORDER BY ?f.attributes.stated_at DESC LIMIT $limit{cursor}"#
            )
        }
    };
    // A search knows neither author nor status: what does not fit is left out afterwards.
    let mut parameters = json!({"limit": if about.is_some() { SEARCHED } else { limit }});
    for (name, value) in
        [("about", about), ("by", asked.by.as_deref().filter(|_| about.is_none())), ("cursor", asked.cursor.as_deref())]
    {
        if let Some(value) = value {
            parameters[name] = value.into();
        }
    }
    let mut answer = asked_of(&app, &id, &command, parameters, &origin).await?;
    let mut facts = match answer["result"].take() {
        Value::Array(facts) => facts,
        _ => Vec::new(),
    };
    let is_by = |fact: &Value| asked.by.as_deref().is_none_or(|by| fact["metadata"]["author"] == by);
    let holds = |fact: &Value| fact["metadata"]["status"].as_str().is_none_or(|status| status == "active");
    facts.retain(|fact| holds(fact) && is_by(fact));
    facts.truncate(limit);
    let ids: Vec<&str> = facts.iter().filter_map(|fact| fact["id"].as_str()).collect();
    let mut claims = claims_of(&app, &id, &ids, &origin).await?;
    let statements = facts.iter().filter_map(|fact| shown(fact, &mut claims)).collect();
    let next = answer["next_cursor"].as_str().filter(|_| about.is_none()).map(str::to_owned);
    Ok(Json(MemoryPage { statements, next }))
}

/// Runs a command that reads the mind as the caller.
async fn asked_of(
    app: &App,
    id: &LifeformId,
    command: &str,
    parameters: Value,
    origin: &Origin,
) -> Result<Value, ApiError> {
    let request = json!({"command": command, "parameters": parameters, "readonly": true});
    let request: Request = serde_json::from_value(request).map_err(|error| ApiError::invalid(error.to_string()))?;
    let answer = app.nexus.execute(id, request, origin).await?;
    match answer["error"]["message"].as_str() {
        Some(message) => Err(ApiError::invalid(message)),
        None => Ok(answer),
    }
}

/// Returns the claims of statements, by statement.
async fn claims_of(
    app: &App,
    id: &LifeformId,
    facts: &[&str],
    origin: &Origin,
) -> Result<BTreeMap<String, Vec<ClaimMade>>, ApiError> {
    let mut claims: BTreeMap<String, Vec<ClaimMade>> = BTreeMap::new();
    // A young mind has no claims, and no predicate for them.
    let found = match asked_of(app, id, CLAIMS, json!({"facts": facts, "limit": CLAIMS_MAX}), origin).await {
        Ok(found) if !facts.is_empty() => found,
        _ => return Ok(claims),
    };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    for row in found["result"].as_array().into_iter().flatten() {
        let (link, Some(fact)) = (&row[1], row[0].as_str()) else { continue };
        let claim = ClaimMade {
            subject: text(&row[2]).or_else(|| text(&row[3])),
            predicate: text(&link["predicate"]).unwrap_or_default(),
            object: text(&row[4]).or_else(|| text(&row[5])),
            confidence: link["metadata"]["confidence"].as_f64(),
            status: text(&link["metadata"]["status"]),
        };
        claims.entry(fact.to_owned()).or_default().push(claim);
    }
    Ok(claims)
}

fn shown(fact: &Value, claims: &mut BTreeMap<String, Vec<ClaimMade>>) -> Option<RememberedStatement> {
    let (attributes, metadata) = (&fact["attributes"], &fact["metadata"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let id = text(&fact["id"])?;
    Some(RememberedStatement {
        statement: text(&attributes["statement"])?,
        by: text(&metadata["author"]),
        stated_at: attributes["stated_at"].as_str().and_then(|at| at.parse().ok()),
        on: text(&attributes["on_date"]),
        valid_from: text(&attributes["valid_from"]),
        valid_until: text(&attributes["valid_until"]),
        source: text(&metadata["source"]),
        claims: claims.remove(&id).unwrap_or_default(),
        id,
    })
}

/// Has a lifeform forget statements.
///
/// A caller forgets what it stated itself, and an operator all statements. They leave the mind, the records of the commons, the summaries
/// and the prompts, as after "Forget …" in a talk. If one of them is not there, or of another person, nothing is forgotten.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/memory/forget",
    params(("id" = String, Path)),
    request_body = ForgetBody,
    responses(
        (status = 200, description = "the forgotten statements", body = Forgotten),
        (status = 404, description = "there is no such lifeform, or no such statement of yours"),
        (status = 409, description = "the lifeform is not awake"),
        (status = 422, description = "a malformed request"),
    ),
)]
pub(super) async fn forget(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ForgetBody>,
) -> Result<Json<Forgotten>, ApiError> {
    if body.facts.is_empty() || body.facts.len() > FACTS_MAX {
        return Err(ApiError::invalid(format!("facts are 1 to {FACTS_MAX} ids")));
    }
    let dry_run = body.dry_run;
    // What was begun is completed even if the client disconnects.
    let forgetting =
        tokio::spawn(async move { app.lifeforms.forget_facts(&origin, &id, &body.facts, body.dry_run).await });
    let failed = |panic: tokio::task::JoinError| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "forgetting", panic.to_string())
    };
    let gone = forgetting.await.map_err(failed)??;
    let forgotten = gone
        .into_iter()
        .map(|one| ForgottenStatement {
            id: one.fact,
            statement: one.statement,
            by: one.person,
            messages: one.messages,
        })
        .collect();
    Ok(Json(Forgotten { forgotten, dry_run }))
}
