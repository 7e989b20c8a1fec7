//! Taking secrets out of a file.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use orchestrator_core::Mask;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// How much is looked at at once, and how much of it once more with what follows, for a secret may
/// lie across.
const PIECE: usize = 1 << 20;
const AGAIN: usize = 16 * 1024;

/// Overwrites the secrets in a file with asterisks, in place and byte for byte, so that whoever
/// follows it is not disturbed; says how many there were. A file that is not there has none.
///
/// # Errors
/// What the system says when it cannot be read or written; some may be left then.
pub fn mask_file(path: &Path, mask: &Mask) -> io::Result<usize> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let file = match file {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    let mut piece = vec![0; PIECE];
    let (mut at, mut count) = (0, 0);
    loop {
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is nothing but a hole from here on.
            Err(Errno::NXIO) => return Ok(count),
            // Here nobody knows of holes.
            Err(Errno::INVAL) => at,
            Err(err) => return Err(err.into()),
        };
        let mut len = 0;
        while let Some(room) = piece.get_mut(len..).filter(|room| !room.is_empty()) {
            match file.read_at(room, at + len as u64)? {
                0 => break,
                more => len += more,
            }
        }
        for secret in mask.find(piece.get(..len).unwrap_or_default()) {
            file.write_all_at(&vec![b'*'; secret.len()], at + secret.start as u64)?;
            count += 1;
        }
        if len < PIECE {
            return Ok(count);
        }
        at += (PIECE - AGAIN) as u64;
    }
}

/// Where the open files of this process are.
const OWN_FILES: &str = "/proc/self/fd";
/// How deep below the directory of a stage logs are: those of a reviewer among several.
const DEPTH_MAX: u32 = 1;

/// The same for all files in a directory of logs and in those in it; no link is followed. A directory
/// that is not there has none.
///
/// # Errors
/// What the system says of the first that could not be looked at; the others are.
pub fn mask_logs(dir: &Path, mask: &Mask) -> io::Result<usize> {
    match open_dir(rustix::fs::CWD, dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(0),
        opened => mask_below(&opened?, mask, 0),
    }
}

fn open_dir(at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

fn mask_below(dir: &OwnedFd, mask: &Mask, depth: u32) -> io::Result<usize> {
    // By the open directory: what is put in its place meanwhile is somebody else's.
    let path = Path::new(OWN_FILES).join(dir.as_raw_fd().to_string());
    let mut masked = Ok(0);
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let in_it = if kind.is_file() {
            mask_file(&entry.path(), mask)
        } else if kind.is_dir() && depth < DEPTH_MAX {
            let name = entry.file_name();
            open_dir(dir, name.as_ref()).and_then(|dir| mask_below(&dir, mask, depth + 1))
        } else {
            continue;
        };
        masked = match (masked, in_it) {
            (Ok(count), Ok(more)) => Ok(count + more),
            (Err(err), _) | (Ok(_), Err(err)) => Err(err),
        };
    }
    masked
}

/// The same for a log, where what cannot be done is only told; beside the runtime's threads, since a
/// long one takes a while.
pub async fn mask_log(path: &Path, mask: &Mask) {
    let (file, mask) = (path.to_owned(), mask.clone());
    let masked = tokio::task::spawn_blocking(move || mask_file(&file, &mask)).await;
    if let Err(err) = masked.map_err(io::Error::other).flatten() {
        tracing::warn!(path = %path.display(), %err, "secrets may be left in a log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_file_are_overwritten_wherever_a_look_at_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mask = Mask::keys().with_value("open sesame");
        let fill = |len: usize| "x ".repeat(len / 2);
        let before = [fill(PIECE - 6), "open sesame ".to_owned(), fill(PIECE / 2)].concat();
        fs::write(&path, &before).unwrap();
        assert_eq!(mask_file(&path, &mask).unwrap(), 1);
        let after = fs::read_to_string(&path).unwrap();
        assert!(after.len() == before.len() && !after.contains("sesame"));
        assert!(after.contains("x *********** x"));
        assert_eq!(mask_file(&path, &mask).unwrap(), 0);
        assert_eq!(mask_file(&dir.path().join("gone"), &mask).unwrap(), 0);
    }

    #[test]
    fn holes_are_passed_over_however_long_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "open sesame").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        // As long as the file system lets a file be, whatever a read of it would take.
        let len = (30..43).rev().map(|bits| 1 << bits).find(|len| file.set_len(*len).is_ok());
        let mask = Mask::keys().with_value("open sesame");
        file.write_all_at(b"open sesame", len.unwrap() - 11).unwrap();
        assert_eq!(mask_file(&path, &mask).unwrap(), 2);
    }

    #[test]
    fn secrets_in_all_logs_of_a_stage_are_overwritten_and_nothing_that_a_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (stage, elsewhere) = (dir.path().join("01-run"), dir.path().join("elsewhere"));
        let files =
            ["01-run/stdout.log", "01-run/member-1/out", "01-run/a/b/deep", "elsewhere/own"];
        for file in files.map(|file| dir.path().join(file)) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "open sesame").unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, stage.join("link")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("own"), stage.join("own")).unwrap();
        let mask = Mask::keys().with_value("open sesame");
        assert_eq!(mask_logs(&stage, &mask).unwrap(), 2);
        let is_masked = |file| !fs::read_to_string(dir.path().join(file)).unwrap().contains("open");
        assert_eq!(files.map(is_masked), [true, true, false, false]);
        assert_eq!(mask_logs(&dir.path().join("gone"), &mask).unwrap(), 0);
    }
}
