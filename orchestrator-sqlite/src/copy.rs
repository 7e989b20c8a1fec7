//! Copies for people: a backup of the file, and a run's log as lines of JSON. Both appear under
//! their name only when they are whole, and never in the place of something that is there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use orchestrator_core::port::StoreError;
use orchestrator_core::{RunId, Seq};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::log;
use crate::place::FilePlace;

/// Why a copy was not made; nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// There is something of this name.
    #[error("`{}` is there already: name another file", .path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// The copy cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The name of the copy.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot copy the file.
    #[error("cannot copy the store to `{}`", .path.display())]
    Database {
        /// The name of the copy.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no log to copy.
    #[error("the store has no run `{run}`")]
    NoRun {
        /// The run that was asked for.
        run: RunId,
    },
    /// What is to be copied cannot be read.
    #[error("cannot read what is to be copied")]
    Store(#[from] StoreError),
}

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// How many events.
    pub events: u64,
    /// Those that are no JSON; they stand there as they are, as a text.
    pub unreadable: Vec<Seq>,
}

/// The file was overwritten with another one while it was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file does not belong to its write-ahead log")]
struct Mixed;

/// A copy under another name, until it is whole.
#[derive(Debug)]
pub(crate) struct Draft {
    part: PathBuf,
    path: PathBuf,
}

impl Draft {
    pub(crate) fn new(path: &Path) -> Result<Self, CopyError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut part = OsString::from(path);
        part.push(format!(".{}-{number}.part", process::id()));
        match fs::symlink_metadata(path) {
            Ok(_) => Err(CopyError::Exists { path: path.to_owned() }),
            Err(_) => Ok(Self { part: part.into(), path: path.to_owned() }),
        }
    }

    fn failed(&self) -> impl Fn(io::Error) -> CopyError {
        let path = self.path.clone();
        move |source| {
            let path = path.clone();
            if source.kind() == io::ErrorKind::AlreadyExists {
                CopyError::Exists { path }
            } else {
                CopyError::Write { path, source }
            }
        }
    }

    /// Gives the copy its name, once it is on disk.
    fn publish(self) -> Result<(), CopyError> {
        let publish = || {
            File::open(&self.part)?.sync_all()?;
            // Unlike a rename, a link never takes the place of a file.
            fs::hard_link(&self.part, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if cfg!(unix) {
                File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
            } else {
                Ok(())
            }
        };
        publish().map_err(self.failed())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Where nothing was begun there is nothing to remove.
        drop(fs::remove_file(&self.part));
    }
}

/// Copies a file with what is in its log, as it stands at one moment.
pub(crate) fn backup(place: &FilePlace, to: &Path) -> Result<(), CopyError> {
    let draft = Draft::new(to)?;
    // Fails with a clear error where SQLite would only say that it cannot.
    File::create_new(&draft.part).map_err(draft.failed())?;
    let failed = |source| CopyError::Database { path: to.to_owned(), source };
    let is_whole = copy_pages(place.path(), &draft.part).map_err(failed)?;
    // A file that is not the one that was opened may have the log of that one.
    place.check().map_err(|err| StoreError::Unavailable(Box::new(err)))?;
    if !is_whole {
        return Err(StoreError::Unavailable(Box::new(Mixed)).into());
    }
    draft.publish()
}

/// Whether the file that was copied has its own log.
fn copy_pages(file: &Path, part: &Path) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let from = Connection::open_with_flags(file, flags)?;
    from.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if !log::belongs(file, &from)? {
        return Ok(false);
    }
    let mut copy = Connection::open_with_flags(part, flags)?;
    {
        let backup = Backup::new(&from, &mut copy)?;
        // In one step, or else each commit meanwhile would make it begin anew.
        while backup.step(-1)? != StepResult::Done {
            std::thread::yield_now();
        }
    }
    log::mark_copy(&mut copy)?;
    copy.close().map_err(|(_, err)| err)?;
    Ok(true)
}

/// A log being written.
#[derive(Debug)]
pub(crate) struct LogCopy {
    draft: Draft,
    out: BufWriter<File>,
    exported: Exported,
}

impl LogCopy {
    pub(crate) fn new(to: &Path) -> Result<Self, CopyError> {
        let draft = Draft::new(to)?;
        let out = File::create_new(&draft.part).map_err(draft.failed())?;
        let exported = Exported { events: 0, unreadable: Vec::new() };
        Ok(Self { draft, out: BufWriter::new(out), exported })
    }

    /// Writes one event, given as it is stored.
    pub(crate) fn write(&mut self, seq: Seq, body: &[u8]) -> Result<(), CopyError> {
        let line = if let Some(line) = line(seq, body) {
            line
        } else {
            self.exported.unreadable.push(seq);
            serde_json::json!({ "seq": seq, "unreadable": String::from_utf8_lossy(body) })
                .to_string()
        };
        self.exported.events += 1;
        writeln!(self.out, "{line}").map_err(self.draft.failed())
    }

    pub(crate) fn finish(mut self) -> Result<Exported, CopyError> {
        self.out.flush().map_err(self.draft.failed())?;
        self.draft.publish()?;
        Ok(self.exported)
    }
}

/// An event of any kind, also one that this program does not know, with its place.
fn line(seq: Seq, body: &[u8]) -> Option<String> {
    let event: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).ok()?;
    let text = std::str::from_utf8(body).ok()?.trim_ascii();
    let rest = text.strip_prefix('{')?;
    if event.is_empty() || text.contains(['\n', '\r']) {
        let mut event = event;
        event.insert("seq".to_owned(), seq.0.into());
        return Some(serde_json::Value::Object(event).to_string());
    }
    Some(format!("{{\"seq\":{seq},{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_with_its_place_whatever_the_blanks_of_the_event() {
        for (body, expected) in [
            (r#"{"at":1,"event":"failed"}"#, r#"{"seq":7,"at":1,"event":"failed"}"#),
            ("{}", r#"{"seq":7}"#),
            ("{\"at\":1,\n \"event\":\"new\"}", r#"{"at":1,"event":"new","seq":7}"#),
        ] {
            assert_eq!(line(Seq(7), body.as_bytes()).as_deref(), Some(expected));
        }
        for body in [&b"[1]"[..], b"{", b"", b"\xff", b"null"] {
            assert_eq!(line(Seq(7), body), None);
        }
    }
}
