//! Reads everything that the database holds, and says what of it is whole.

use std::sync::Arc;

use surrealdb::types::SurrealValue;

use super::database::Reader;
use super::pages::unpack_page;
use super::rows::{AccountRow, DocRow, JournalRow, PageRow, PayloadRow, StreamRow, Summed};
use super::{StoreError, Surreal, io, settle};
use crate::batch::{Entry, Hash};
use crate::ledger::Account;

/// Rows read at once.
const ROWS_AT_ONCE: usize = 256;
/// Damaged rows that are named; more are counted.
const NAMED_MAX: usize = 100;

/// The outcome of reading a store whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Rows that say what was written.
    pub whole: u64,
    /// Rows of before there were checksums: they can be read, and nobody knows whether they say what was written. Each
    /// gets a checksum when it is written again.
    pub unchecked: u64,
    /// Rows that cannot be read, or do not match their checksums.
    pub damaged: u64,
    /// The first 100 of the damaged ones, each with its name and the reason.
    pub named: Vec<String>,
}

impl Verification {
    fn damage(&mut self, what: impl std::fmt::Display) {
        self.damaged += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(what.to_string());
        }
    }

    fn add<R: Summed>(&mut self, mut row: R, reads: impl FnOnce(&R) -> Result<(), String>) {
        let has_sum = row.stored().is_some();
        match row.whole() {
            Ok(row) => match reads(&row) {
                Ok(()) if has_sum => self.whole += 1,
                Ok(()) => self.unchecked += 1,
                Err(why) => self.damage(format!("{}: {why}", row.title())),
            },
            Err(StoreError::Corrupt(why)) => self.damage(why),
            Err(other) => self.damage(other),
        }
    }
}

impl Surreal {
    /// Reads every row of an opened store, and checks it against its checksum and its form.
    ///
    /// # Errors
    /// [`StoreError::Closed`] before it is opened; [`StoreError::Io`] when the names of the rows cannot be read.
    pub async fn verify(&self) -> Result<Verification, StoreError> {
        let db = Arc::new(self.database.reader().await?);
        let reading = async move {
            let mut found = Verification::default();
            let json = |bytes: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map(drop).map_err(text);
            each(&db, "doc", &mut found, |row: &DocRow| json(row.b.as_ref())).await?;
            each(&db, "journal", &mut found, |row: &JournalRow| {
                rmp_serde::from_slice::<Vec<Entry>>(row.b.as_ref()).map(drop).map_err(text)
            })
            .await?;
            each(&db, "stream", &mut found, |_: &StreamRow| Ok(())).await?;
            each(&db, "account", &mut found, |row: &AccountRow| {
                serde_json::from_str::<Account>(&row.b).map(drop).map_err(text)
            })
            .await?;
            each(&db, "page", &mut found, |row: &PageRow| unpack_page(row).map(drop).map_err(text)).await?;
            each(&db, "payload", &mut found, |row: &PayloadRow| {
                let is_its = Hash::of(row.b.as_ref()).hex() == row.hash;
                if is_its { Ok(()) } else { Err("its bytes have another hash".into()) }
            })
            .await?;
            Ok(found)
        };
        self.database.run(reading).await
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Reads all rows of a table. Names are read first: a range without an end costs the database a look at all of it.
async fn each<R: Summed + SurrealValue>(
    db: &Reader,
    table: &str,
    found: &mut Verification,
    reads: impl Fn(&R) -> Result<(), String>,
) -> Result<(), StoreError> {
    let asked = db.query("SELECT VALUE record::id(id) FROM type::table($table)").bind(("table", table.to_owned()));
    let listed: Result<Vec<surrealdb::types::Value>, StoreError> =
        async { settle(asked.await.map_err(io)?)?.take(0).map_err(io) }.await;
    let names = match listed {
        Ok(names) => names,
        // A block of the database that does not match its checksum holds many rows, and no walk passes it.
        Err(error) => {
            found.damage(format!("{table}: its rows cannot be listed: {error}"));
            return Ok(());
        }
    };
    for some in names.chunks(ROWS_AT_ONCE) {
        match rows(db, table, some).await {
            Ok(rows) if rows.len() == some.len() => rows.into_iter().for_each(|row| found.add(row, &reads)),
            // One of them cannot be read: which one it is, is found by reading each by itself.
            _ => {
                for name in some {
                    match rows(db, table, std::slice::from_ref(name)).await {
                        Ok(rows) if rows.len() == 1 => rows.into_iter().for_each(|row| found.add(row, &reads)),
                        Ok(_) => found.damage(format!("{table} {name:?}: it is listed and cannot be found")),
                        Err(error) => found.damage(format!("{table} {name:?}: {error}")),
                    }
                }
            }
        }
    }
    Ok(())
}

async fn rows<R: SurrealValue>(
    db: &Reader,
    table: &str,
    names: &[surrealdb::types::Value],
) -> Result<Vec<R>, StoreError> {
    let asked = db
        .query("SELECT * FROM array::map($names, |$name| type::record($table, $name))")
        .bind(("table", table.to_owned()))
        .bind(("names", names.to_vec()));
    settle(asked.await.map_err(io)?)?.take(0).map_err(io)
}
