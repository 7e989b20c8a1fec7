//! Files and directories: writing whole files, and removing whatever is there.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::warn;

use crate::error::GitError;

/// A name that nobody else uses.
pub(crate) fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", now.as_nanos(), std::process::id())
}

/// Removes a file, a link, or a directory with all that is in it.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), GitError> {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(GitError::io(path, "removed")(err))
        }
        _ => Ok(()),
    }
}

/// Lets the owner write in every directory below, so that it can be emptied.
pub(crate) fn make_writable(dir: &Path) {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(meta) = fs::symlink_metadata(&dir) else { continue };
        if !meta.is_dir() {
            continue;
        }
        let mode = meta.permissions().mode();
        if mode & 0o700 != 0o700
            && let Err(err) = fs::set_permissions(&dir, fs::Permissions::from_mode(mode | 0o700))
        {
            warn!(dir = %dir.display(), error = %err, "a directory cannot be made writable");
        }
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        dirs.extend(entries.map(|entry| entry.path()));
    }
}

/// Writes a file in place of the old one, at once; when the machine goes down it may be lost.
pub(crate) fn renew(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let new = path.with_extension("new");
    let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, path));
    written.map_err(GitError::io(path, "written"))
}

/// Writes a file whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}
