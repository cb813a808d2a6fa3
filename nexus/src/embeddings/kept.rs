//! A cache of vectors by their text, so that no vector is paid for twice. The cache is a file beside the store. It
//! may be deleted while the daemon is stopped. It is recreated when it is unreadable or too large.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use sha2::{Digest, Sha256};

use super::super::disk_graph::{guarded, open_or_make};
use super::vectors::Vector;

/// The key of a text for one embedder.
pub(super) type Name = [u8; 16];

const VECTORS: TableDefinition<Name, &[u8]> = TableDefinition::new("vectors");
/// The maximum number of vectors in the file; about 800 MB. A full file is recreated at the next start.
const KEPT_MAX: u64 = 2_000_000;
/// The size of the file's cache in memory, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// The cache file; `None` if there is no usable file.
pub(super) struct Kept(Mutex<Option<Arc<Database>>>);

pub(super) fn name(embedder: &str, text: &str) -> Name {
    let hash = Sha256::new_with_prefix(embedder).chain_update([0]).chain_update(text).finalize();
    hash.first_chunk().copied().unwrap_or_default()
}

impl Kept {
    /// Opens the file, and recreates an unreadable one. Without a file, vectors live as long as their minds are in
    /// memory.
    pub(super) fn open(file: Option<&Path>) -> Self {
        let opened = file.and_then(|file| {
            let again = |error: redb::Error| {
                if matches!(error, redb::Error::DatabaseAlreadyOpen) {
                    return Err(error);
                }
                tracing::warn!(file = %file.display(), %error, "the vectors made before cannot be read");
                std::fs::remove_file(file)?;
                begin(file)
            };
            begin(file).or_else(again).inspect_err(|error| tracing::warn!(%error, "vectors will not be kept")).ok()
        });
        Self(Mutex::new(opened.map(Arc::new)))
    }

    pub(super) fn get(&self, name: &Name) -> Option<Vector> {
        self.with(|file| {
            Ok(file.begin_read()?.open_table(VECTORS)?.get(name)?.and_then(|bytes| Vector::unpack(bytes.value())))
        })
        .flatten()
    }

    pub(super) fn put<'v>(&self, vectors: impl Iterator<Item = (&'v Name, &'v Vector)>) {
        self.with(|file| {
            let write = file.begin_write()?;
            {
                let mut table = write.open_table(VECTORS)?;
                if table.len()? < KEPT_MAX {
                    for (name, vector) in vectors {
                        table.insert(name, vector.pack().as_slice())?;
                    }
                }
            }
            Ok(write.commit()?)
        });
    }

    /// Runs `work` on the file. After an error the file is closed, because every further access would also fail.
    fn with<R>(&self, work: impl FnOnce(&Database) -> Result<R, redb::Error>) -> Option<R> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let done = guarded(|| work(&file)).inspect_err(|error| {
            tracing::warn!(%error, "vectors are not kept any more until the next start");
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        done.ok()
    }
}

fn begin(file: &Path) -> Result<Database, redb::Error> {
    let database = guarded(|| open_or_make(file, CACHE_BYTES))?;
    guarded(|| {
        let write = database.begin_write()?;
        if write.open_table(VECTORS)?.len()? >= KEPT_MAX {
            write.delete_table(VECTORS)?;
            write.open_table(VECTORS)?;
        }
        Ok(write.commit()?)
    })?;
    Ok(database)
}
