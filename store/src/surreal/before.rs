//! Copies of the database's files from before a recovery, so that a refused start leaves all files unchanged.
//!
//! During a recovery, SurrealKV 0.21 removes the unreadable part of its write-ahead log and flushes the rest, after
//! which no repair is possible. The store therefore copies the log and the manifest, and links the tables, before the
//! recovery.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of the copies, its name while the copies are incomplete, and its name when they are kept for the
/// operator.
const BEFORE: &str = "before-recovery";
const UNFINISHED: &str = "before-recovery.tmp";
const KEPT: &str = "before-recovery.lost";
/// The file with the id of the last opening, in the store and in the copies. A backup that is put over the store
/// replaces it, so that the copies are seen to be of another state.
const OPENING: &str = "opening";
/// The folders of the database that are copied, and the folder whose files never change once they are written.
const COPIED: [&str; 2] = ["manifest", "wal"];
const LINKED: &str = "sstables";

/// Copies the files of the database in `store`.
///
/// # Errors
/// Errors of the disk, which may be full. No copies remain then.
pub(super) fn keep(store: &Path) -> io::Result<()> {
    let unfinished = store.join(UNFINISHED);
    let _ = std::fs::remove_dir_all(&unfinished);
    let kept = (|| {
        for folder in COPIED {
            each(&store.join(folder), &unfinished.join(folder), |from, to| {
                std::fs::copy(from, to)?;
                std::fs::File::open(to)?.sync_all()
            })?;
        }
        each(&store.join(LINKED), &unfinished.join(LINKED), |from, to| std::fs::hard_link(from, to))?;
        let id = uuid::Uuid::new_v4().to_string();
        for folder in [unfinished.as_path(), store] {
            write(&folder.join(OPENING), &id)?;
        }
        std::fs::File::open(&unfinished)?.sync_all()?;
        std::fs::rename(&unfinished, store.join(BEFORE))?;
        std::fs::File::open(store)?.sync_all()
    })();
    if kept.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    kept
}

fn each(from: &Path, to: &Path, then: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    if !from.exists() {
        return Ok(());
    }
    for file in std::fs::read_dir(from)? {
        let file = file?;
        then(&file.path(), &to.join(file.file_name()))?;
    }
    std::fs::File::open(to)?.sync_all()
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create(true).truncate(true), 0o600);
    let mut file = options.open(file)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()
}

/// Restores the copies, if there are any. Returns `true` if there were. Copies from before a backup was put over the
/// store are kept for the operator instead.
///
/// # Errors
/// Errors of the disk; the call can be repeated.
pub(super) fn put_back(store: &Path) -> io::Result<bool> {
    let before = store.join(BEFORE);
    if !before.exists() {
        return Ok(false);
    }
    let id_in = |folder: &Path| std::fs::read(folder.join(OPENING)).ok();
    if id_in(&before).is_some_and(|id| id_in(store).is_none_or(|other| other != id)) {
        let kept = set_aside(store)?.unwrap_or(before);
        tracing::warn!(path = %kept.display(), "a backup was put over the store: copies from before it are not used");
        return Ok(false);
    }
    for folder in COPIED.into_iter().chain([LINKED]) {
        let (copy, place) = (before.join(folder), store.join(folder));
        // An interrupted attempt has moved the folder already.
        if copy.exists() {
            if place.exists() {
                std::fs::remove_dir_all(&place)?;
            }
            std::fs::rename(copy, place)?;
        }
    }
    std::fs::remove_dir_all(before)?;
    std::fs::File::open(store)?.sync_all()?;
    Ok(true)
}

/// Removes the copies after a recovery that lost nothing. They must be removed before the first write; otherwise the
/// next start would restore them.
///
/// # Errors
/// Errors of the disk.
pub(super) fn forget(store: &Path) -> io::Result<()> {
    let (before, unfinished) = (store.join(BEFORE), store.join(UNFINISHED));
    if !before.exists() {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(&unfinished);
    std::fs::rename(before, &unfinished)?;
    std::fs::File::open(store)?.sync_all()?;
    if let Err(error) = std::fs::remove_dir_all(&unfinished) {
        tracing::warn!(path = %unfinished.display(), %error, "copies of the database stay, and are used no more");
    }
    Ok(())
}

/// Keeps the copies for the operator, who accepted the loss of commits or put a backup over the store. Returns their
/// folder, if there are any. Earlier ones stay.
///
/// # Errors
/// Errors of the disk.
pub(super) fn set_aside(store: &Path) -> io::Result<Option<PathBuf>> {
    let before = store.join(BEFORE);
    if !before.exists() {
        return Ok(None);
    }
    let names = (1..).map(|number| store.join(format!("{KEPT}.{number}")));
    let mut names = std::iter::once(store.join(KEPT)).chain(names);
    let Some(kept) = names.find(|name| !name.exists()) else { return Ok(None) };
    std::fs::rename(before, &kept)?;
    std::fs::File::open(store)?.sync_all()?;
    Ok(Some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_was_put_over_the_store_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        let manifest = store.join("manifest/0.manifest");
        std::fs::create_dir_all(store.join("manifest")).unwrap();
        std::fs::write(&manifest, "of the backup").unwrap();
        keep(store).unwrap();
        forget(store).unwrap();
        let backup = std::fs::read(store.join(OPENING)).unwrap();
        // A later start is killed during its recovery, and the backup is copied over what it left.
        std::fs::write(&manifest, "damaged").unwrap();
        keep(store).unwrap();
        std::fs::write(&manifest, "of the backup").unwrap();
        std::fs::write(store.join(OPENING), backup).unwrap();
        assert!(!put_back(store).unwrap());
        assert_eq!(std::fs::read_to_string(&manifest).unwrap(), "of the backup");
        assert_eq!(std::fs::read_to_string(store.join(KEPT).join("manifest/0.manifest")).unwrap(), "damaged");
    }

    #[test]
    fn what_a_recovery_changes_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        for (file, text) in [("wal/1.wal", "log"), ("manifest/0.manifest", "first"), ("sstables/1.sst", "table")] {
            std::fs::create_dir_all(store.join(file).parent().unwrap()).unwrap();
            std::fs::write(store.join(file), text).unwrap();
        }
        assert!(!put_back(store).unwrap());
        keep(store).unwrap();
        std::fs::remove_file(store.join("wal/1.wal")).unwrap();
        std::fs::write(store.join("manifest/0.manifest"), "second").unwrap();
        std::fs::remove_file(store.join("sstables/1.sst")).unwrap();
        std::fs::write(store.join("sstables/2.sst"), "other").unwrap();
        assert!(put_back(store).unwrap() && !put_back(store).unwrap());
        let read = |file: &str| std::fs::read_to_string(store.join(file)).ok();
        assert_eq!(
            ["wal/1.wal", "manifest/0.manifest", "sstables/1.sst", "sstables/2.sst"].map(read),
            [Some("log".to_owned()), Some("first".to_owned()), Some("table".to_owned()), None]
        );
        keep(store).unwrap();
        forget(store).unwrap();
        assert!(!put_back(store).unwrap());
    }
}
