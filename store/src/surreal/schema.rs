//! Numbered migrations. Each runs once and in order, in one transaction with its number.

use surrealdb::Surreal as Client;
use surrealdb::engine::local::Db;

use super::{StoreError, io, settle};

/// All migration steps. A released step is never edited; a new one is appended.
const STEPS: &[&str] =
    &[include_str!("0001_init.surql"), include_str!("0002_pages.surql"), include_str!("0003_large.surql")];

/// Migrates the schema to the newest step.
///
/// # Errors
/// [`StoreError::Corrupt`] when a newer daemon wrote the store.
pub(super) async fn migrate(db: &Client<Db>) -> Result<(), StoreError> {
    settle(db.query("DEFINE TABLE IF NOT EXISTS meta SCHEMALESS").await.map_err(io)?)?;
    let mut response = settle(db.query("SELECT VALUE n FROM meta:schema").await.map_err(io)?)?;
    let found: Vec<i64> = response.take(0).map_err(io)?;
    let done = found.first().map_or(0, |n| *n as usize);
    if done > STEPS.len() {
        return Err(StoreError::Corrupt(format!(
            "its schema is step {done}, this lifeformd knows {}: run a newer one",
            STEPS.len()
        )));
    }
    if done == 1 {
        old_elements(db).await?;
    }
    for (step, text) in STEPS.iter().enumerate().skip(done) {
        let transaction = format!("BEGIN; {text} UPSERT meta:schema SET n = $n; COMMIT;");
        settle(db.query(transaction).bind(("n", step as i64 + 1)).await.map_err(io)?)?;
    }
    Ok(())
}

/// Checks that step 2, which changes the format of graphs, does not misread memories of the first format. A store
/// with such memories must be emptied, or read with the release that wrote it.
async fn old_elements(db: &Client<Db>) -> Result<(), StoreError> {
    let mut response =
        settle(db.query("SELECT VALUE no FROM element LIMIT 1; SELECT VALUE n FROM log LIMIT 1").await.map_err(io)?)?;
    let (elements, log): (Vec<i64>, Vec<i64>) = (response.take(0).map_err(io)?, response.take(1).map_err(io)?);
    if elements.is_empty() && log.is_empty() {
        return Ok(());
    }
    Err(StoreError::Corrupt(
        "its memories were written by a release before the first, in a form this one does not read: \
         move the data folder away, or go on with the lifeformd that wrote it"
            .into(),
    ))
}
