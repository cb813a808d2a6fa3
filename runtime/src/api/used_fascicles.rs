//! `/v1/lifeforms/{id}/fascicles`: the fascicles that a lifeform uses, and the rules of its homeostasis.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fascicles::HOMEOSTASIS;
use lifeform::metabolism;
use lifeform::{LifeformHead, LifeformId, Status};
use serde::Serialize;
use serde_json::{Value, json};
use store::Timestamp;
use store::ledger::Account;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiPath, Caller};

/// A fascicle that a lifeform uses.
#[derive(Serialize, ToSchema)]
struct UsedFascicle {
    /// The id.
    #[schema(value_type = String)]
    id: Arc<str>,
    /// The skill for which it is used.
    skill: &'static str,
    /// `active`, or `idle` for a variant of another mode.
    status: &'static str,
    /// `true` for rules in the form of a fascicle that are in no definition.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    built_in: bool,
    /// The rules of a built-in fascicle, with their thresholds and present values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    neurons: Vec<Value>,
}

/// The fascicles that a lifeform uses.
#[derive(Serialize, ToSchema)]
pub(super) struct UsedFascicles {
    /// The fascicles by skill.
    fascicles: Vec<UsedFascicle>,
}

/// Lists the fascicles that a lifeform uses.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/fascicles",
    params(("id" = String, Path)),
    responses((status = 200, description = "its fascicles", body = UsedFascicles)),
)]
pub(super) async fn list_fascicles(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<UsedFascicles>, ApiError> {
    let head = app.lifeforms.get(&id).await?;
    let account = app.store.account(&head.id).await?.unwrap_or_default();
    let skills = [
        ("reply", &head.definition.reply),
        ("heed", &head.definition.heed),
        ("inhibit", &head.definition.inhibit),
        ("pursue", &head.definition.pursue),
        ("co_author", &head.definition.co_author),
        ("compact", &head.definition.compact),
    ];
    let tools = app.fascicles.model_of(metabolism::tier(head.mode)).is_some_and(|model| model.tools);
    let shown = skills.iter().flat_map(|(skill, variants)| {
        let active = variants.variant(head.mode, tools);
        variants.variants().map(move |id| {
            let status = if id == active { "active" } else { "idle" };
            UsedFascicle { id: id.clone(), skill, status, built_in: false, neurons: Vec::new() }
        })
    });
    let mut fascicles: Vec<UsedFascicle> = shown.collect();
    fascicles.push(homeostasis(&head, &account, app.store.clock().now()));
    Ok(Json(UsedFascicles { fascicles }))
}

/// Returns the two rules of homeostasis in the form of a fascicle of two neurons, with their thresholds and present
/// values. They need no model and are in no definition; the member `built_in` marks them.
fn homeostasis(head: &LifeformHead, account: &Account, now: Timestamp) -> UsedFascicle {
    let (rules, bucket) = (&head.definition.metabolism, account.release());
    let fed = metabolism::Fed::of(account, now);
    let heartbeat = json!({
        "id": "heartbeat", "rule": {"beat_ms": rules.beat_ms, "release": bucket},
        "state": {"released": account.released, "beats": metabolism::beats(head.mode)},
    });
    let monitor = json!({
        "id": "resource_monitor",
        "rule": {
            "eco_below_tokens": rules.eco_below_tokens, "eco_until_tokens": rules.eco_until_tokens,
            "eco_below_hours": rules.eco_below_hours, "hyper_above_tokens": rules.hyper_above_tokens,
            "rest_below_tokens": rules.rest_below_tokens, "policy": head.policy,
        },
        "state": {
            "mode": head.mode, "free_tokens": fed.free_tokens, "empty_in_ms": fed.empty_in_ms, "in_want": head.in_want,
            "hunger": metabolism::hunger(fed.free_tokens, rules), "burn_per_hour": account.burn_per_hour(now),
        },
    });
    let status = if head.status == Status::Running { "active" } else { "idle" };
    let neurons = vec![heartbeat, monitor];
    UsedFascicle { id: HOMEOSTASIS.into(), skill: "metabolism", status, built_in: true, neurons }
}
