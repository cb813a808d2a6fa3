//! `/v1/tokens`: the management of access tokens.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fascicles::JobFilter;
use neurons::InvocationStatus;
use serde::{Deserialize, Serialize};
use store::{Directory, Origin, Principal, PrincipalId, Role};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Operator};

/// A request for a token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenBody {
    /// The principal, for example `user:ada`.
    principal: String,
    /// The role: `operator`, `participant` or `observer`.
    #[serde(default = "participant")]
    #[schema(value_type = String)]
    role: Role,
    /// The scopes besides the principal's own: `org:acme`, `team:red`, `project:x`, or `agent:x`, for which the
    /// principal also acts. All tokens of a principal have the same scopes.
    #[serde(default)]
    scopes: Vec<String>,
}

/// A change of a principal's scopes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MembershipBody {
    /// The complete list of scopes besides the principal's own.
    scopes: Vec<String>,
}

/// A new token.
#[derive(Serialize, ToSchema)]
pub(super) struct NewToken {
    /// The token, which is shown only here.
    token: String,
    /// The principal of the token.
    principal: Principal,
}

/// A token in the list.
#[derive(Serialize, ToSchema)]
struct ListedToken {
    #[serde(flatten)]
    principal: Principal,
    /// The name of the token, which a revocation can use.
    token: String,
}

/// The tokens of the daemon.
#[derive(Serialize, ToSchema)]
pub(super) struct TokenList {
    /// Each token with its principal.
    principals: Vec<ListedToken>,
}

/// The number of invocations per page.
const PAGE: usize = 200;

fn participant() -> Role {
    Role::Participant
}

/// Creates a token.
///
/// The response shows it once; only its hash is stored.
#[utoipa::path(
    post, path = "/v1/tokens",
    request_body = TokenBody,
    responses((status = 201, description = "the token", body = NewToken)),
)]
pub(super) async fn add(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiJson(body): ApiJson<TokenBody>,
) -> Result<(StatusCode, Json<NewToken>), ApiError> {
    Principal::parse_id(&body.principal).map_err(|error| ApiError::invalid(format!("principal: {error}")))?;
    if body.principal == "user:operator" {
        return Err(ApiError::forbidden("the operator's token is set by the configuration or its file"));
    }
    if body.principal == *Principal::anybody().id.0 {
        return Err(ApiError::forbidden("this id is the one of requests without a token"));
    }
    let (token, principal) = app
        .tokens
        .add(&origin, &body.principal, body.role, &body.scopes)
        .await
        .map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok((StatusCode::CREATED, Json(NewToken { token, principal })))
}

/// Lists the tokens with their principals.
///
/// Each token has a name, which a request to revoke it can use.
#[utoipa::path(
    get, path = "/v1/tokens",
    responses((status = 200, description = "the tokens", body = TokenList)),
)]
pub(super) async fn list(State(app): State<App>, _operator: Operator) -> Json<TokenList> {
    let listed = |(token, principal): (String, Principal)| ListedToken { principal, token };
    Json(TokenList { principals: app.tokens.all().into_iter().map(listed).collect() })
}

/// Sets the scopes of a principal.
///
/// All other scopes are removed, and the change applies to all its tokens immediately.
#[utoipa::path(
    patch, path = "/v1/tokens/{principal}",
    params(("principal" = String, Path)),
    request_body = MembershipBody,
    responses(
        (status = 200, description = "the principal", body = Principal),
        (status = 404, description = "it has no token"),
    ),
)]
pub(super) async fn change(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(principal): ApiPath<String>,
    ApiJson(body): ApiJson<MembershipBody>,
) -> Result<Json<Principal>, ApiError> {
    match app.tokens.set_scopes(&origin, &principal, &body.scopes).await {
        Ok(Some(principal)) => Ok(Json(principal)),
        Ok(None) => Err(ApiError::new(StatusCode::NOT_FOUND, "no_token", format!("{principal} has no token"))),
        Err(error) => Err(ApiError::invalid(error.to_string())),
    }
}

/// A selection of tokens to revoke.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeQuery {
    /// The name of the token from the list; if absent, all tokens.
    token: Option<String>,
}

/// Revokes the tokens of a principal.
///
/// With the last token, its running invocations and unfinished jobs are cancelled.
#[utoipa::path(
    delete, path = "/v1/tokens/{principal}",
    params(("principal" = String, Path), RevokeQuery),
    responses((status = 204, description = "revoked"), (status = 404, description = "it has none")),
)]
pub(super) async fn revoke(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(principal): ApiPath<String>,
    ApiQuery(asked): ApiQuery<RevokeQuery>,
) -> Result<StatusCode, ApiError> {
    if principal == "user:operator" {
        return Err(ApiError::forbidden("the operator's token is set by the configuration or its file"));
    }
    let failed =
        |error: &dyn std::fmt::Display| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store", error.to_string());
    let named = asked.token.is_some();
    let (of, who) = (app.clone(), PrincipalId::new(principal.as_str()));
    // The revocation completes even if the client disconnects.
    let revoked = tokio::spawn(async move {
        let count = of.tokens.revoke(&origin, &who.0, asked.token.as_deref()).await;
        // A repetition cancels what an earlier attempt did not reach.
        if count.is_ok() && !of.tokens.is_admitted(&who) {
            of.lifeforms.show_gone(&who);
            of.neurons.cancel_all_of(&who);
            stop_paused(&of, &origin, &who).await?;
            stop_jobs(&of, &origin, &who).await?;
        }
        Ok::<_, ApiError>(count)
    });
    match revoked.await.map_err(|panic| failed(&panic))?? {
        Ok(0) => {
            let what = if named { "no token of that name" } else { "no token" };
            Err(ApiError::new(StatusCode::NOT_FOUND, "no_token", format!("{principal} has {what}")))
        }
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(failed(&error)),
    }
}

/// Cancels the invocations of a principal that wait for tool results.
async fn stop_paused(app: &App, origin: &Origin, of: &PrincipalId) -> Result<(), ApiError> {
    let mut after = String::new();
    loop {
        let paused = Some(InvocationStatus::ToolCallRequired);
        let (found, next) = app.neurons.invocations(origin, paused, &after, PAGE).await?;
        for invocation in found.iter().filter(|invocation| invocation.principal == *of) {
            app.neurons.cancel(origin, &invocation.id).await?;
        }
        let Some(next) = next else { return Ok(()) };
        after = next.to_string();
    }
}

async fn stop_jobs(app: &App, origin: &Origin, of: &PrincipalId) -> Result<(), ApiError> {
    loop {
        let (_, are_more) = app.fascicles.cancel_many(&origin.principal, of, &JobFilter::default()).await?;
        if !are_more {
            return Ok(());
        }
    }
}
