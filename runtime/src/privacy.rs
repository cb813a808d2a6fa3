//! The protection of the data folder: only its owner has access.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

/// The permission bits of a file's owner.
const OWNERS: u32 = 0o700;

/// Makes every file and folder that this process creates from now on private to its owner.
pub(crate) fn create_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Removes the permissions of all other users from `folder` and its content. If `folder` was open, the files that
/// others could reach are logged as a warning. Symbolic links and their targets stay unchanged.
///
/// # Errors
/// If the content cannot be read, or its permissions cannot be changed.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    let mut open = open_to_others(folder)?;
    let was_reachable = open.iter().any(|(path, _)| path == folder);
    // The outermost folder comes last. A folder that is closed first could hide its content from a process without
    // rights.
    while let Some((path, wanted)) = open.pop() {
        std::fs::set_permissions(&path, Permissions::from_mode(wanted))?;
        if was_reachable {
            tracing::warn!(path = %path.display(), "other users could read or write it; they cannot any more");
        }
    }
    Ok(())
}

/// Returns the files and folders in `folder`, including itself, that other users may read, write or enter, each with
/// the mode that it should have. Returns none if the folder does not exist. Content of other users is skipped.
///
/// # Errors
/// If the content cannot be read.
pub(crate) fn open_to_others(folder: &Path) -> io::Result<Vec<(PathBuf, u32)>> {
    let own = rustix::process::geteuid().as_raw();
    let (mut open, mut waiting) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(path) = waiting.pop() {
        let found = match path.symlink_metadata() {
            // Another process may be writing here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        // This process cannot change files of another user, such as `lost+found` of a disk.
        if found.is_symlink() || found.uid() != own {
            continue;
        }
        let mode = found.permissions().mode() & 0o777;
        if mode & !OWNERS != 0 {
            open.push((path.clone(), mode & OWNERS));
        }
        if found.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        }
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_others_could_read_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (store, file, script) =
            (folder.path().join("store"), folder.path().join("store/a"), folder.path().join("b"));
        std::fs::create_dir(&store).unwrap();
        std::fs::write(&file, "").unwrap();
        std::fs::write(&script, "").unwrap();
        for (path, mode) in [(folder.path(), 0o755), (&store, 0o777), (&file, 0o644), (&script, 0o755)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("/dev/null", folder.path().join("elsewhere")).unwrap();
        make_private(folder.path()).unwrap();
        assert_eq!([mode(folder.path()), mode(&store), mode(&file), mode(&script)], [0o700, 0o700, 0o600, 0o700]);
        assert_eq!(mode(Path::new("/dev/null")), 0o666);
    }
}
