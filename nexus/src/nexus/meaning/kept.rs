//! Vectors that were made before, by what they are of, so that none is paid for twice. A file beside the store; it
//! may be deleted while the daemon is stopped, and is begun anew when it cannot be read or has grown too large.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use sha2::{Digest, Sha256};

use super::super::shelf::open_or_make;
use super::vectors::Vector;

/// Names a text as one embedder reads it.
pub(super) type Name = [u8; 16];

const VECTORS: TableDefinition<Name, &[u8]> = TableDefinition::new("vectors");
/// Vectors that are kept; about 800 MB.
const KEPT_MAX: u64 = 2_000_000;
/// What is cached of the file, in bytes.
const CACHE_BYTES: usize = 16 << 20;

pub(super) struct Kept(Database);

pub(super) fn name(embedder: &str, text: &str) -> Name {
    let hash = Sha256::new_with_prefix(embedder).chain_update([0]).chain_update(text).finalize();
    hash.first_chunk().copied().unwrap_or_default()
}

impl Kept {
    /// Opens the file; without one that can be used, what is made lasts as long as the daemon.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, redb::Error> {
        let on_disk = file.and_then(|file| {
            let opened = open_or_make(file, CACHE_BYTES);
            opened.inspect_err(|error| tracing::warn!(%error, "vectors will not be kept")).ok()
        });
        let database = match on_disk {
            Some(database) => database,
            None => Database::builder().create_with_backend(redb::backends::InMemoryBackend::new())?,
        };
        let write = database.begin_write()?;
        if write.open_table(VECTORS)?.len()? > KEPT_MAX {
            write.delete_table(VECTORS)?;
            write.open_table(VECTORS)?;
        }
        write.commit()?;
        Ok(Self(database))
    }

    pub(super) fn get(&self, name: &Name) -> Option<Vector> {
        let found = || -> Result<_, redb::Error> {
            Ok(self.0.begin_read()?.open_table(VECTORS)?.get(name)?.and_then(|bytes| Vector::unpack(bytes.value())))
        };
        found().inspect_err(|error| tracing::warn!(%error, "a vector cannot be read")).ok().flatten()
    }

    pub(super) fn put<'v>(&self, vectors: impl Iterator<Item = (&'v Name, &'v Vector)>) {
        let keep = || -> Result<(), redb::Error> {
            let write = self.0.begin_write()?;
            {
                let mut table = write.open_table(VECTORS)?;
                for (name, vector) in vectors {
                    table.insert(name, vector.pack().as_slice())?;
                }
            }
            Ok(write.commit()?)
        };
        if let Err(error) = keep() {
            tracing::warn!(%error, "vectors could not be kept");
        }
    }
}
