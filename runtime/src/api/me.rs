//! `/v1/me`: the caller.

use axum::Json;
use serde::Serialize;
use store::{Principal, PrincipalId, PrincipalKind, Role, Scope};
use utoipa::ToSchema;

use super::extract::Caller;

/// The caller, as its token says.
#[derive(Serialize, ToSchema)]
pub(super) struct Me {
    /// The id.
    principal: PrincipalId,
    /// The kind.
    kind: PrincipalKind,
    /// The roles.
    roles: Vec<Role>,
    /// The scopes besides its own.
    scopes: Vec<Scope>,
}

/// Returns the caller.
#[utoipa::path(get, path = "/v1/me", responses((status = 200, description = "the caller", body = Me)))]
pub(super) async fn me(Caller(origin): Caller) -> Json<Me> {
    let Principal { id, kind, roles, scopes, .. } = origin.principal;
    Json(Me { principal: id, kind, roles: roles.into_iter().collect(), scopes: scopes.into_iter().collect() })
}
