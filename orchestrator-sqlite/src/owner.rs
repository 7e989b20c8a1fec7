//! The claim to be the only owner of a file: a lock of the operating system on a file beside it.
//!
//! The lock alone decides; what stands in its file is for people. So a claim that nobody holds any
//! more is no obstacle, whatever process has the pid by now that stands there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::mutant::{Mutant, is_on};
use crate::place::{Displaced, FilePlace};

/// Longest note of an owner that is shown.
const NOTE_BYTES_MAX: u64 = 200;
/// How often a lock is tried whose file was removed meanwhile.
const TRIES_MAX: usize = 10;

/// The lock's name.
pub(crate) fn path_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-owner");
    name.into()
}

/// Held as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _locked: File,
    place: FilePlace,
}

impl Claim {
    /// Whether the lock still stands where others look for it.
    pub(crate) fn check(&self) -> Result<(), Displaced> {
        self.place.check()
    }
}

/// Claims a file; what its owner says of itself when it has one.
pub(crate) fn claim(file: &Path) -> io::Result<Result<Claim, String>> {
    let path = path_of(file);
    for _ in 0..TRIES_MAX {
        let mut lock =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if is_on(Mutant::SecondOwnerLetIn) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(note(&lock))),
            Err(TryLockError::Error(err)) => return Err(err),
        }
        // Who removed the file meanwhile may let another one lock a new file of the name.
        let Some(place) = FilePlace::of_open(&path, &lock)? else { continue };
        lock.set_len(0)?;
        writeln!(lock, "{}", introduction())?;
        return Ok(Ok(Claim { _locked: lock, place }));
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn introduction() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "this host" } else { host.trim() };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("process {} on {host} since {since} s after 1970", process::id())
}

fn note(lock: &File) -> String {
    let mut note = Vec::new();
    let read = lock.take(NOTE_BYTES_MAX).read_to_end(&mut note);
    let note = String::from_utf8_lossy(&note);
    let note: String = note.trim().chars().flat_map(char::escape_debug).collect();
    if read.is_ok() && !note.is_empty() { note } else { "another process".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_was_left_is_no_obstacle_whoever_has_its_pid_now() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.db");
        // This very process lives, and is not the one that left the note.
        fs::write(path_of(&file), introduction()).unwrap();
        let held = claim(&file).unwrap().unwrap();
        let refused = claim(&file).unwrap().unwrap_err();
        assert!(refused.contains(&format!("process {}", process::id())), "{refused}");
        fs::write(path_of(&file), "\u{1b}[31mnonsense\0").unwrap();
        let refused = claim(&file).unwrap().unwrap_err();
        assert_eq!(refused, "\\u{1b}[31mnonsense\\0", "the lock counts, not the note");
        drop(held);
        claim(&file).unwrap().unwrap();
    }

    #[test]
    fn a_claim_whose_lock_was_removed_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.db");
        let held = claim(&file).unwrap().unwrap();
        held.check().unwrap();
        fs::remove_file(path_of(&file)).unwrap();
        held.check().unwrap_err();
        let other = claim(&file).unwrap().unwrap();
        held.check().unwrap_err();
        other.check().unwrap();
    }
}
