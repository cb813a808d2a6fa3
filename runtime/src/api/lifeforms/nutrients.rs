//! The accounts of lifeforms and of the house.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lifeform::LifeformId;
use lifeform::Spending;
use neurons::HOUSE;
use serde::{Deserialize, Serialize};
use store::Timestamp;
use store::ledger::{Account, Amount, Release, SHARE_WHOLE};
use utoipa::ToSchema;

use super::journal;
use crate::api::App;
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Operator};
use crate::api::paging::{JournalEntry, JournalPage};

/// The balance of an account.
#[derive(Serialize, ToSchema)]
pub(crate) struct Nutrients {
    /// The balance, reservations included.
    balance: Amount,
    /// The reserved amount.
    held: Amount,
    /// The balance without reservations.
    available: Amount,
    /// The total of all charges.
    spent: Amount,
    /// The total of all automatic income.
    released: Amount,
    /// The rule of the automatic income.
    release: Option<Release>,
    /// The share of the free balance that a participant may use per hour.
    person_share: f64,
}

/// An account with its rate of spending.
#[derive(Serialize, ToSchema)]
pub(crate) struct Rates {
    #[serde(flatten)]
    nutrients: Nutrients,
    /// The spending per hour.
    burn_per_hour: Amount,
    /// The number of seconds until the account is empty; `null` if it will not be.
    empty_in_s: Option<i64>,
}

/// An account with a page of its statement.
#[derive(Serialize, ToSchema)]
pub(crate) struct Statement {
    #[serde(flatten)]
    rates: Rates,
    /// The lines of the statement.
    transactions: Vec<JournalEntry>,
    /// The number with which the next page begins; `null` at the end.
    next: Option<u64>,
}

impl Nutrients {
    pub(super) fn of(account: &Account) -> Self {
        Self {
            balance: account.balance,
            held: account.held(),
            available: account.available(),
            spent: account.spent,
            released: account.released,
            release: account.release(),
            person_share: f64::from(account.share()) / f64::from(SHARE_WHOLE),
        }
    }
}

impl Rates {
    fn of(account: &Account, now: Timestamp) -> Self {
        Self {
            nutrients: Nutrients::of(account),
            burn_per_hour: account.burn_per_hour(now),
            empty_in_s: account.empty_in_ms(now).map(|ms| ms / 1000),
        }
    }
}

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
        (status = 201, description = "the balance", body = Nutrients),
        (status = 422, description = "the key was used for something else"),
    ),
)]
pub(crate) async fn transact(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<TransactionBody>,
) -> Result<(StatusCode, Json<Nutrients>), ApiError> {
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
    Ok((StatusCode::CREATED, Json(Nutrients::of(&account))))
}

/// Returns the balance and the latest statement lines of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/resources",
    params(("id" = String, Path), JournalPage),
    responses((status = 200, description = "balance and a page of the statement", body = Statement)),
)]
pub(crate) async fn resources(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<Statement>, ApiError> {
    let account = app.lifeforms.account(&id).await?;
    let (transactions, next) = journal(&app, format!("ledger:{id}").into(), &page).await?;
    Ok(Json(Statement { rates: Rates::of(&account, app.store.clock().now()), transactions, next }))
}

/// Returns the house account: balance, reservations and statement.
///
/// It pays for calls by people. Only operators may read it.
#[utoipa::path(
    get, path = "/v1/house/resources",
    params(JournalPage),
    responses(
        (status = 200, description = "balance and a page of the statement", body = Statement),
        (status = 403, description = "this is for operators"),
    ),
)]
pub(crate) async fn house(
    State(app): State<App>,
    _operator: Operator,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<Statement>, ApiError> {
    let account = app.store.account(HOUSE).await?.unwrap_or_default();
    let (transactions, next) = journal(&app, format!("ledger:{HOUSE}").into(), &page).await?;
    Ok(Json(Statement { rates: Rates::of(&account, app.store.clock().now()), transactions, next }))
}

/// Returns the spending of a lifeform: by model, neuron, fascicle, person, goal and day.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/resources/report",
    params(("id" = String, Path)),
    responses((status = 200, description = "the spending", body = Spending)),
)]
pub(crate) async fn report(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Spending>, ApiError> {
    app.lifeforms.get(&id).await?;
    Ok(Json(app.lifeforms.spending(&id).await?))
}

/// Returns the spending of the house account.
///
/// Only operators may read it.
#[utoipa::path(
    get, path = "/v1/house/resources/report",
    responses(
        (status = 200, description = "the spending", body = Spending),
        (status = 403, description = "this is for operators"),
    ),
)]
pub(crate) async fn house_report(State(app): State<App>, _operator: Operator) -> Result<Json<Spending>, ApiError> {
    Ok(Json(app.lifeforms.spending(HOUSE).await?))
}

/// A release rule.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {
    /// The amount per hour: `{tokens, micro_usd}`.
    pub(super) per_hour: PartialAmount,
    /// The balance at which the release stops.
    pub(super) ceiling: PartialAmount,
}

/// An amount with optional parts.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PartialAmount {
    /// Model tokens (default 0).
    pub(super) tokens: i64,
    /// Micro-dollars (default 0).
    pub(super) micro_usd: i64,
}

impl From<PartialAmount> for Amount {
    fn from(PartialAmount { tokens, micro_usd }: PartialAmount) -> Self {
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
    responses((status = 200, description = "balance, rates and the rule", body = Rates)),
)]
pub(crate) async fn set_release(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ReleaseBody>,
) -> Result<Json<Rates>, ApiError> {
    let mut rule = Release { per_hour: body.per_hour.into(), ceiling: body.ceiling.into() };
    if rule.per_hour == Amount::default() {
        rule = Release::default();
    }
    let account = app.lifeforms.release(&origin, &id, rule).await?;
    Ok(Json(Rates::of(&account, app.store.clock().now())))
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
    responses((status = 200, description = "balance, rates and the share", body = Rates)),
)]
pub(crate) async fn set_share(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ShareBody>,
) -> Result<Json<Rates>, ApiError> {
    let account = app.lifeforms.person_share(&origin, &id, body.person_share).await?;
    Ok(Json(Rates::of(&account, app.store.clock().now())))
}
