//! A file that is there whole or not at all.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A file that could not be written; one that was there before is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", .path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// Writes a file by a temporary one beside it, so that a reader sees the old content or the new.
///
/// # Errors
/// [`WriteError`] when the content may not be in place.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), WriteError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    put(&beside, path, content).map_err(|cause| {
        // The half-written file is of no use; that it may stay is told by its name.
        drop(std::fs::remove_file(&beside));
        WriteError { path: path.to_owned(), cause }
    })
}

fn put(beside: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(beside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_content_takes_the_place_of_the_old_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        write_whole(&path, b"old").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let err = write_whole(&dir.path().join("no/report.json"), b"x").unwrap_err();
        assert!(err.to_string().contains("no/report.json"), "{err}");
    }
}
