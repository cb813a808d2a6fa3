//! The accounts of lifeforms and of the house.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lifeform::LifeformId;
use neurons::HOUSE;
use serde::Deserialize;
use serde_json::Value;
use store::ledger::{Amount, Release};
use utoipa::ToSchema;

use super::{journal, rates_of, resources_of};
use crate::api::App;
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Operator};
use crate::api::paging::JournalPage;

/// A transaction.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TransactionBody {
    /// The amount. A negative amount is a debit.
    pub(super) amount: i64,
    /// The currency: `tokens` or `micro_usd`.
    pub(super) currency: Currency,
    /// The purpose.
    #[serde(default)]
    pub(super) memo: String,
}

/// The currency.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Currency {
    /// Model tokens.
    Tokens,
    /// Millionths of a dollar.
    MicroUsd,
}

/// Credits or debits the account of a lifeform.
///
/// With `Idempotency-Key`, the transaction happens once.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/resources/transactions",
    params(("id" = String, Path), IdempotencyKey),
    request_body = TransactionBody,
    responses(
        (status = 201, description = "booked"),
        (status = 422, description = "the key was used for something else"),
    ),
)]
pub(crate) async fn transact(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<TransactionBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    const AMOUNT_MAX: u64 = 1 << 50;
    if body.amount == 0 || body.amount.unsigned_abs() > AMOUNT_MAX {
        return Err(ApiError::invalid(format!("amount is a whole number other than 0, at most {AMOUNT_MAX}")));
    }
    if body.memo.len() > 1000 {
        return Err(ApiError::invalid("memo is at most 1000 bytes"));
    }
    let amount = match body.currency {
        Currency::Tokens => Amount { tokens: body.amount, micro_usd: 0 },
        Currency::MicroUsd => Amount { tokens: 0, micro_usd: body.amount },
    };
    let account = app.lifeforms.credit(&origin, &id, amount, &body.memo, key).await?;
    Ok((StatusCode::CREATED, Json(resources_of(&account))))
}

/// Returns the balance and the latest statement lines of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/resources",
    params(("id" = String, Path), JournalPage),
    responses((status = 200, description = "balance and a page of the statement")),
)]
pub(crate) async fn resources(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<Value>, ApiError> {
    let account = app.lifeforms.account(&id).await?;
    let (lines, next) = journal(&app, format!("ledger:{id}").into(), &page).await?;
    let mut body = rates_of(&account, app.store.clock().now());
    body["transactions"] = lines.into();
    body["next"] = next;
    Ok(Json(body))
}

/// Returns the house account: balance, reservations and statement.
///
/// It pays for calls by people. Only operators may read it.
#[utoipa::path(
    get, path = "/v1/house/resources",
    params(JournalPage),
    responses(
        (status = 200, description = "balance and a page of the statement"),
        (status = 403, description = "this is for operators"),
    ),
)]
pub(crate) async fn house(
    State(app): State<App>,
    _operator: Operator,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<Value>, ApiError> {
    let account = app.store.account(HOUSE).await?.unwrap_or_default();
    let (lines, next) = journal(&app, format!("ledger:{HOUSE}").into(), &page).await?;
    let mut body = rates_of(&account, app.store.clock().now());
    body["transactions"] = lines.into();
    body["next"] = next;
    Ok(Json(body))
}

/// Returns the spending of a lifeform: by model, neuron, fascicle, person, goal and day.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/resources/report",
    params(("id" = String, Path)),
    responses((status = 200, description = "{upto, total, by: {model: {name: {calls, charged}}, …}}")),
)]
pub(crate) async fn report(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Value>, ApiError> {
    app.lifeforms.get(&id).await?;
    Ok(Json(app.lifeforms.spending(&id).await?.into()))
}

/// Returns the spending of the house account.
///
/// Only operators may read it.
#[utoipa::path(
    get, path = "/v1/house/resources/report",
    responses((status = 200, description = "{upto, total, by}"), (status = 403, description = "this is for operators")),
)]
pub(crate) async fn house_report(State(app): State<App>, _operator: Operator) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.lifeforms.spending(HOUSE).await?.into()))
}

/// A release rule.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {
    /// The amount per hour: `{tokens, micro_usd}`.
    #[schema(value_type = Object)]
    pub(super) per_hour: Nutrients,
    /// The balance at which the release stops.
    #[schema(value_type = Object)]
    pub(super) ceiling: Nutrients,
}

/// An amount with optional parts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub(crate) struct Nutrients {
    pub(super) tokens: i64,
    pub(super) micro_usd: i64,
}

impl From<Nutrients> for Amount {
    fn from(Nutrients { tokens, micro_usd }: Nutrients) -> Self {
        Self { tokens, micro_usd }
    }
}

/// Sets the release rule of a lifeform.
///
/// It receives this amount per hour as long as its balance is below the ceiling. An amount of zero ends the release.
#[utoipa::path(
    put, path = "/v1/lifeforms/{id}/resources/release",
    params(("id" = String, Path)),
    request_body = ReleaseBody,
    responses((status = 200, description = "balance, rates and the rule")),
)]
pub(crate) async fn set_release(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ReleaseBody>,
) -> Result<Json<Value>, ApiError> {
    let mut rule = Release { per_hour: body.per_hour.into(), ceiling: body.ceiling.into() };
    if rule.per_hour == Amount::default() {
        rule = Release::default();
    }
    let account = app.lifeforms.release(&origin, &id, rule).await?;
    Ok(Json(rates_of(&account, app.store.clock().now())))
}

/// The hourly share of a participant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShareBody {
    /// The share of the free balance, and of the release, that a participant may use per hour, from 0 to 1; 1 means no
    /// limit.
    pub(super) person_share: f64,
}

/// Sets the share of a lifeform's nutrients that participants may use hourly.
#[utoipa::path(
    put, path = "/v1/lifeforms/{id}/resources/share",
    params(("id" = String, Path)),
    request_body = ShareBody,
    responses((status = 200, description = "balance, rates and the share")),
)]
pub(crate) async fn set_share(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ShareBody>,
) -> Result<Json<Value>, ApiError> {
    let account = app.lifeforms.person_share(&origin, &id, body.person_share).await?;
    Ok(Json(rates_of(&account, app.store.clock().now())))
}
