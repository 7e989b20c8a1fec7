//! What an agent asks instead of guessing: a file in its workspace.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file in which an agent asks, at the root of its workspace.
pub const QUESTION_FILE: &str = "BLOCKED.md";

/// How much of it is read.
pub const QUESTION_BYTES_MAX: usize = 16 * 1024;

/// Takes the question out of a workspace: what is in `BLOCKED.md`, or `None` when there is none.
///
/// The file is moved into the directory `keep_in`, so that it is no part of the change and nothing
/// of it is lost. Only a regular file is read, and no link is followed; whatever else is there under
/// that name, or cannot be read, is a question too, which says so.
#[must_use]
pub fn take_question(workspace: &Path, keep_in: &Path) -> Option<String> {
    let path = workspace.join(QUESTION_FILE);
    let kind = match fs::symlink_metadata(&path) {
        Ok(meta) => meta.file_type(),
        Err(err) if err.kind() == io::ErrorKind::NotFound => return None,
        Err(err) => return Some(format!("{QUESTION_FILE} cannot be looked at: {err}")),
    };
    let mut text = if kind.is_file() {
        match read_regular(&path) {
            Ok((text, _)) if text.trim().is_empty() => format!("{QUESTION_FILE} is empty."),
            Ok((text, true)) => text,
            Ok((text, false)) => {
                format!("{text}\n[… {QUESTION_FILE} goes on past {QUESTION_BYTES_MAX} bytes …]\n")
            }
            Err(err) => format!("{QUESTION_FILE} cannot be read: {err}"),
        }
    } else {
        format!("{QUESTION_FILE} is no regular file, so it was not read.")
    };
    if let Err(err) = keep(&path, kind.is_file(), keep_in) {
        text = format!("{text}\n[{QUESTION_FILE} could not be moved out of the tree: {err}]\n");
    }
    Some(text)
}

/// Reads at most the limit; says whether that is all.
fn read_regular(path: &Path) -> io::Result<(String, bool)> {
    // Whatever is put there in between: no link is followed, and no named pipe is waited for.
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(QUESTION_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    let is_whole = bytes.len() <= QUESTION_BYTES_MAX;
    bytes.truncate(QUESTION_BYTES_MAX);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), is_whole))
}

/// Moves it, by copy where it cannot be renamed; only a regular file can be copied.
fn keep(path: &Path, is_file: bool, keep_in: &Path) -> io::Result<()> {
    fs::create_dir_all(keep_in)?;
    let target = free_name(keep_in)?;
    match fs::rename(path, &target) {
        Err(err) if err.kind() == io::ErrorKind::CrossesDevices && is_file => {
            fs::copy(path, &target)?;
            fs::remove_file(path)
        }
        done => done,
    }
}

fn free_name(dir: &Path) -> io::Result<PathBuf> {
    let names = std::iter::once(QUESTION_FILE.to_owned())
        .chain((2..1000).map(|number| format!("BLOCKED-{number}.md")));
    for name in names {
        let path = dir.join(name);
        match fs::symlink_metadata(&path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(path),
            _ => {}
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_question_is_read_once_and_moved_out_of_the_tree() {
        let (tree, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(take_question(tree.path(), kept.path()), None);
        for text in ["which port?\n", "and which host?"] {
            fs::write(tree.path().join(QUESTION_FILE), text).unwrap();
            assert_eq!(take_question(tree.path(), kept.path()).as_deref(), Some(text));
            assert_eq!(take_question(tree.path(), kept.path()), None);
        }
        assert_eq!(fs::read(kept.path().join("BLOCKED.md")).unwrap(), b"which port?\n");
        assert_eq!(fs::read(kept.path().join("BLOCKED-2.md")).unwrap(), b"and which host?");
    }

    #[test]
    fn a_long_question_is_cut_and_kept_whole() {
        let (tree, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(tree.path().join(QUESTION_FILE), "é".repeat(20_000)).unwrap();
        let text = take_question(tree.path(), kept.path()).unwrap();
        assert!(text.len() < QUESTION_BYTES_MAX + 100 && text.contains("goes on"), "{text}");
        assert_eq!(fs::metadata(kept.path().join(QUESTION_FILE)).unwrap().len(), 40_000);
    }

    #[test]
    fn what_is_no_regular_file_is_a_question_that_says_so_and_is_not_read() {
        let (tree, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = kept.path().join("secret");
        fs::write(&secret, "hush").unwrap();
        let path = tree.path().join(QUESTION_FILE);
        let make: [fn(&Path, &Path); 4] = [
            |path, secret| symlink(secret, path).unwrap(),
            |path, _| symlink("/no/such/file", path).unwrap(),
            |path, _| fs::create_dir(path).unwrap(),
            |path, _| {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
            },
        ];
        for make in make {
            make(&path, &secret);
            let text = take_question(tree.path(), kept.path()).unwrap();
            assert!(text.contains("no regular file") && !text.contains("hush"), "{text}");
            assert!(fs::symlink_metadata(&path).is_err());
        }
        assert_eq!(fs::read(&secret).unwrap(), b"hush");
        fs::write(&path, " \n").unwrap();
        assert_eq!(take_question(tree.path(), kept.path()).unwrap(), "BLOCKED.md is empty.");
    }
}
