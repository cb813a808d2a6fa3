//! `/v1/lifeforms/{id}/identity`: the identity of a lifeform, for operators, and its proof.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use lifeform::LifeformId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, Operator};

/// The maximum length of a challenge, in characters.
const CHALLENGE_CHARS_MAX: usize = 512;

/// The identity of a lifeform.
#[derive(Serialize, ToSchema)]
pub(super) struct IdentityView {
    /// The public key as a `did:key`: the `id` of `$self`. `null` if it has none yet and the daemon's key ring
    /// is locked.
    #[schema(value_type = Option<String>)]
    id: Option<Arc<str>>,
}

/// A request to prove an identity.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChallengeBody {
    /// A fresh text of the verifier, 1 to 512 characters.
    challenge: String,
}

/// The proof of an identity.
#[derive(Serialize, ToSchema)]
pub(super) struct ProofView {
    /// The public key as a `did:key`.
    #[schema(value_type = String)]
    id: Arc<str>,
    /// The signature scheme, `Ed25519` (RFC 8032).
    algorithm: &'static str,
    /// The signed text: the line `lifeformd/identity/v1`, a line break, and the challenge.
    signed: String,
    /// The signature in base64url without padding.
    signature: String,
}

/// Returns the identity of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/identity",
    params(("id" = String, Path)),
    responses((status = 200, description = "the identity", body = IdentityView)),
)]
pub(super) async fn read(
    State(app): State<App>,
    Operator(_origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<IdentityView>, ApiError> {
    app.lifeforms.get(&id).await?;
    let identity = app.knowledge.identity(&id).await?;
    Ok(Json(IdentityView { id: identity.map(|identity| identity.id) }))
}

/// Proves the identity of a lifeform by a signature.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/identity",
    params(("id" = String, Path)),
    request_body = ChallengeBody,
    responses(
        (status = 200, description = "the proof", body = ProofView),
        (status = 422, description = "the challenge is empty or too long"),
        (status = 423, description = "the key ring lacks the key of this identity"),
    ),
)]
pub(super) async fn prove(
    State(app): State<App>,
    Operator(_origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ChallengeBody>,
) -> Result<Json<ProofView>, ApiError> {
    if body.challenge.is_empty() || body.challenge.chars().count() > CHALLENGE_CHARS_MAX {
        return Err(ApiError::invalid("challenge is a text of 1 to 512 characters"));
    }
    app.lifeforms.get(&id).await?;
    let proof = app.knowledge.prove(&id, &body.challenge).await?;
    let signature = BASE64_URL_SAFE_NO_PAD.encode(proof.signature);
    Ok(Json(ProofView { id: proof.id, algorithm: "Ed25519", signed: proof.signed, signature }))
}
