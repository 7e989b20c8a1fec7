//! Files and directories: writing whole files, and removing whatever is there.

use std::fs::{self, DirEntry, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
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
    let removed = if is_dir {
        // As a cache of modules may be, whose directories are read-only.
        fs::remove_dir_all(path).or_else(|_| {
            make_accessible(path);
            fs::remove_dir_all(path)
        })
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(GitError::io(path, "removed")(err))
        }
        _ => Ok(()),
    }
}

/// Lets the owner read and write everything below, so that it can be kept and emptied.
pub(crate) fn make_accessible(dir: &Path) {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        allow(&dir, 0o700);
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(kind) if kind.is_file() => allow(&entry.path(), 0o400),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Gives the owner these rights on a file or directory, but not on what a link leads to.
pub(crate) fn allow(path: &Path, rights: u32) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    let mode = meta.permissions().mode();
    if !meta.is_symlink()
        && mode & rights != rights
        && let Err(err) = fs::set_permissions(path, fs::Permissions::from_mode(mode | rights))
    {
        warn!(path = %path.display(), error = %err, "the rights on it cannot be changed");
    }
}

/// Reads a file that somebody else may have put there; `None` when it is no plain file, cannot be
/// read, or is longer.
///
/// Reading a pipe would wait for ever, and a link may lead to what has no end.
pub(crate) fn read_plain(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = flags.try_into().ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let len = file.metadata().ok().filter(Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    let is_read = len <= bytes_max && file.take(bytes_max).read_to_end(&mut bytes).is_ok();
    is_read.then_some(bytes)
}

/// Makes a directory one whose files git can read: removes pipes, sockets and devices below it, and
/// says which, and opens directories that are closed to their owner.
///
/// Git does not see the former, and waits for ever when one has the name of a file that it reads; what
/// is in the latter it takes for nothing.
pub(crate) async fn make_readable(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let is_special = |entry: &DirEntry| {
        entry.file_type().is_ok_and(|kind| !kind.is_file() && !kind.is_symlink())
    };
    let special = find(dir, is_special).await?;
    special.iter().try_for_each(|path| remove_if_there(path))?;
    Ok(special)
}

/// The files below a directory that are larger.
pub(crate) async fn larger_than(dir: &Path, bytes: u64) -> Result<Vec<PathBuf>, GitError> {
    find(dir, move |entry| entry.metadata().is_ok_and(|meta| meta.len() > bytes)).await
}

/// What is below a directory, is no directory, and is meant. Links are not followed.
async fn find(
    dir: &Path,
    is_meant: impl Fn(&DirEntry) -> bool + Send + 'static,
) -> Result<Vec<PathBuf>, GitError> {
    let top = dir.to_owned();
    let finding = tokio::task::spawn_blocking(move || {
        let (mut dirs, mut found) = (vec![top], Vec::new());
        while let Some(dir) = dirs.pop() {
            allow(&dir, 0o700);
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    dirs.push(entry.path());
                } else if is_meant(&entry) {
                    found.push(entry.path());
                }
            }
        }
        found
    });
    finding.await.map_err(|err| GitError::io(dir, "looked through")(io::Error::other(err)))
}

/// Writes a file in place of the old one, at once; when the machine goes down it may be lost.
pub(crate) fn renew(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let new = path.with_extension("new");
    let written = anew(&new).and_then(|mut file| file.write_all(bytes));
    let renamed = written.and_then(|()| fs::rename(&new, path));
    renamed.map_err(GitError::io(path, "written"))
}

/// Writes a file whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = anew(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// A new file. What is there is removed and not written to: it may be a link to somewhere else.
fn anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}
