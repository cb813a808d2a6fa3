//! Verification: reads everything that the database holds and reports damaged rows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use surrealdb::types::SurrealValue;

use super::database::{Reader, locked};
use super::pages::unpack_page;
use super::rows::{AccountRow, DocRow, JournalRow, LargeRow, PageRow, PayloadRow, StreamRow, Summed};
use super::{StoreError, Surreal, io, settle};
use crate::batch::{Entry, Hash};
use crate::ledger::Account;

/// The number of rows per read.
const ROWS_AT_ONCE: usize = 256;
/// The maximum number of damaged rows that are named; further ones are only counted.
const NAMED_MAX: usize = 100;

/// The result of verifying a store.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of rows with a correct checksum.
    pub whole: u64,
    /// The number of rows from before checksums existed. They are readable, but cannot be checked. Each gets a
    /// checksum when it is written again.
    pub unchecked: u64,
    /// The number of rows that are unreadable or do not match their checksums.
    pub damaged: u64,
    /// The first 100 damaged rows, each with its name and the reason.
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
    /// Reads every row of an opened store, and checks its checksum and its format.
    ///
    /// # Errors
    /// [`StoreError::Closed`] before the store is opened; [`StoreError::Io`] when the row names cannot be read.
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
            let (wanted, there) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
            each(&db, "page", &mut found, |row: &PageRow| {
                let larges = unpack_page(row).map_err(text)?.into_iter().filter(|(_, body)| body.is_none());
                locked(&wanted).extend(larges.map(|(no, _)| (row.nexus.clone(), no)));
                Ok(())
            })
            .await?;
            each(&db, "large", &mut found, |row: &LargeRow| {
                locked(&there).insert((row.nexus.clone(), row.no as u64));
                Ok(())
            })
            .await?;
            for (nexus, no) in locked(&wanted).difference(&locked(&there)) {
                found.damage(format_args!("element {no} of nexus {nexus}: it is listed and cannot be found"));
            }
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

/// Reads all rows of a table. Names are read first, because the database scans a range without an end completely.
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
        // A damaged block of the database holds many rows, and a scan cannot skip it.
        Err(error) => {
            found.damage(format!("{table}: its rows cannot be listed: {error}"));
            return Ok(());
        }
    };
    for some in names.chunks(ROWS_AT_ONCE) {
        match rows(db, table, some).await {
            Ok(rows) if rows.len() == some.len() => rows.into_iter().for_each(|row| found.add(row, &reads)),
            // At least one of the rows is unreadable; each is read separately to find out which.
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
