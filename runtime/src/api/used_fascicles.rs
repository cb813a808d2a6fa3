//! `/v1/lifeforms/{id}/fascicles`: the fascicles that a lifeform uses, and the rules of its homeostasis.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use lifeform::{LifeformHead, LifeformId, Status};
use lifeform::{homeostasis, metabolism};
use serde::Serialize;
use serde_json::{Value, json};
use store::ledger::Account;
use store::{Role, Timestamp};
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
    /// The neurons of the homeostasis, each with what it reads and decides now; or those of the perception, each with the
    /// number of changes of canvases that were passed over since the lifeform was woken, and for operators the last 100 of
    /// them. `fault` says why the shipped rules decide instead of these.
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
    Caller(caller): Caller,
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
        ("muse", &head.definition.muse),
        ("reflect", &head.definition.reflect),
        ("form", &head.definition.form),
        ("describe", &head.definition.describe),
        ("describe_person", &head.definition.describe_person),
        ("compact", &head.definition.compact),
    ];
    let tools = app.fascicles.model_of(metabolism::tier(head.mode)).is_some_and(|model| model.tools);
    let shown = skills.iter().flat_map(|(skill, variants)| {
        let active = variants.variant(head.mode, tools);
        variants.variants().map(move |id| {
            let status = if id == active { "active" } else { "idle" };
            UsedFascicle { id: id.clone(), skill, status, neurons: Vec::new() }
        })
    });
    let mut fascicles: Vec<UsedFascicle> = shown.collect();
    fascicles.push(perception(&app, &head, caller.principal.may(Role::Operator)).await);
    fascicles.push(homeostasis(&app, &head, &account, app.store.clock().now()).await);
    Ok(Json(UsedFascicles { fascicles }))
}

/// Returns the perception of a lifeform with the changes that its rules passed over.
async fn perception(app: &App, head: &LifeformHead, with_changes: bool) -> UsedFascicle {
    let id = &head.definition.perceive;
    let mut state = json!(app.lifeforms.passed_over(&head.id));
    if !with_changes {
        state.as_object_mut().and_then(|state| state.remove("last"));
    }
    let neurons =
        app.fascicles.decider(id).await.map(|rules| rules.rules().map(|(neuron, _)| neuron.clone()).collect());
    let neurons: Vec<Arc<str>> = neurons.unwrap_or_else(|_| vec!["route".into()]);
    let neurons = neurons.into_iter().map(|neuron| json!({"id": neuron, "state": state})).collect();
    let status = if head.status == Status::Running { "active" } else { "idle" };
    UsedFascicle { id: id.clone(), skill: "perceive", status, neurons }
}

/// Returns the homeostasis of a lifeform with its present values. If its rules give no decision, the shipped ones
/// decide, and `fault` says why.
async fn homeostasis(app: &App, head: &LifeformHead, account: &Account, now: Timestamp) -> UsedFascicle {
    let LifeformHead { definition, mode, policy, in_want, .. } = head;
    let rules = &definition.metabolism;
    let fed = metabolism::Fed::of(account, now);
    let hour = now.to_zoned(definition.zone()).hour();
    let condition = homeostasis::Condition { fed, mode: *mode, policy, metabolism: rules, now, hour };
    let request = homeostasis::Request::default();
    let (decision, fault) = homeostasis::decide(&app.fascicles, &definition.homeostasis, condition, request).await;
    let neurons = decision.rules.iter().map(|(neuron, rule)| json!({"id": neuron, "rule": rule}));
    let mut neurons: Vec<Value> = neurons.collect();
    let state = json!({
        "mode": mode, "free_tokens": fed.free_tokens, "empty_in_ms": fed.empty_in_ms, "in_want": in_want,
        "hunger": metabolism::hunger(fed.free_tokens, rules), "burn_per_hour": account.burn_per_hour(now),
        "policy": policy, "metabolism": rules, "hour": hour,
    });
    let given = json!({
        "every": decision.every, "beat_ms": rules.beat_ms, "release": account.release(), "released": account.released,
        "fault": fault,
    });
    for (neuron, state) in neurons.iter_mut().zip([state, given]) {
        neuron["state"] = state;
    }
    let status = if head.status == Status::Running { "active" } else { "idle" };
    UsedFascicle { id: definition.homeostasis.clone(), skill: "homeostasis", status, neurons }
}
