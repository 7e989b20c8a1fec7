//! What the runner remembers of the attempt before, beside the workspace.
//!
//! It holds what was noticed about it, its conversation, and the files that it left, so that the
//! next attempt can tell whether the workspace still holds that work.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use orchestrator_core::port::StageContext;
use orchestrator_core::{BlobHash, ChangeId, SessionId, head_and_tail};
use serde::{Deserialize, Serialize};

use crate::kept;
use crate::prompt::Document;
use crate::signals::Signal;

/// The name of the file, in the directory beside the workspace.
const NAME: &str = "last-attempt.json";
/// Most files whose content is remembered.
const FILES_MAX: usize = 2_000;
/// Longest file whose content is remembered, in bytes.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How much content is looked at in all, in bytes; what is more is not waited for.
const ALL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How much is remembered of what the attempt said last, in bytes.
const SAID_BYTES_MAX: usize = 8 * 1024;

/// What is remembered of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    attempt: u32,
    base: ChangeId,
    session: Option<SessionId>,
    signals: Vec<Signal>,
    /// What it said last.
    said: String,
    /// What tells the documents that it was given.
    documents: BlobHash,
    /// The content of each file that this and earlier attempts changed; none where it is gone.
    files: BTreeMap<PathBuf, Option<BlobHash>>,
    /// Whether `files` holds all of them.
    is_whole: bool,
}

/// How an attempt left its workspace.
pub(crate) struct Left<'a> {
    pub(crate) session: Option<SessionId>,
    pub(crate) signals: Vec<Signal>,
    pub(crate) said: &'a str,
    pub(crate) documents: &'a [Document],
    /// The files that it changed, where that is known.
    pub(crate) changed: Option<&'a [PathBuf]>,
}

fn hash(documents: &[Document]) -> BlobHash {
    let texts: Vec<(&str, &str)> =
        documents.iter().map(|one| (one.name.as_str(), one.text.as_str())).collect();
    BlobHash::of(format!("{texts:?}").as_bytes())
}

impl Memory {
    /// What is remembered of this task's last attempt, or of the part of this one that was
    /// interrupted.
    pub(crate) fn of(cx: &StageContext) -> Option<Self> {
        serde_json::from_slice(&kept::read(cx, NAME)?).ok()
    }

    /// Whether it is of an earlier part of the same attempt in the same workspace.
    pub(crate) fn is_of_this_attempt(&self, cx: &StageContext) -> bool {
        self.attempt == cx.attempt && cx.workspace.as_left
    }

    /// What was noticed about the attempt before this one.
    pub(crate) fn signals(&self, cx: &StageContext) -> &[Signal] {
        if self.attempt.checked_add(1) == Some(cx.attempt) { &self.signals } else { &[] }
    }

    /// Whether it was given other documents: a conversation that goes on would not see the new ones.
    pub(crate) fn is_outdated(&self, documents: &[Document]) -> bool {
        self.documents != hash(documents)
    }

    /// The conversation of the attempt before this one, if the workspace still holds its work.
    pub(crate) fn conversation(&self, cx: &StageContext) -> Option<SessionId> {
        let is_next = self.attempt.checked_add(1) == Some(cx.attempt);
        let is_there = is_next && self.is_whole && self.base == cx.workspace.base;
        let same = |(path, known): (&PathBuf, &Option<BlobHash>)| {
            content(&cx.workspace.path.join(path)).is_ok_and(|found| found == *known)
        };
        self.session.clone().filter(|_| is_there && self.files.iter().all(same))
    }

    /// What this attempt said last, for whoever judges it.
    pub(crate) fn said(&self, cx: &StageContext) -> Option<&str> {
        let is_it = self.attempt == cx.attempt && !self.said.is_empty();
        is_it.then_some(self.said.as_str())
    }

    /// Whether earlier attempts changed anything.
    pub(crate) fn has_changes(&self) -> bool {
        !self.files.is_empty()
    }

    /// Remembers how an attempt left its workspace; `before` is what was remembered until then.
    pub(crate) fn keep(cx: &StageContext, left: Left<'_>, before: Option<&Self>) -> io::Result<()> {
        let Left { session, signals, said, documents, changed } = left;
        let earlier = before.map(|before| before.files.keys()).into_iter().flatten();
        let paths = earlier.chain(changed.into_iter().flatten());
        let mut files = BTreeMap::new();
        let mut is_whole = changed.is_some() && before.is_none_or(|before| before.is_whole);
        let mut bytes = 0_u64;
        for path in paths {
            let place = cx.workspace.path.join(path);
            bytes = bytes.saturating_add(place.symlink_metadata().map_or(0, |meta| meta.len()));
            if files.len() >= FILES_MAX || bytes > ALL_BYTES_MAX {
                is_whole = false;
                break;
            }
            match content(&place) {
                Ok(found) => {
                    files.insert(path.clone(), found);
                }
                Err(_) => is_whole = false,
            }
        }
        let base = cx.workspace.base.clone();
        let said = head_and_tail(said.trim(), SAID_BYTES_MAX);
        let documents = hash(documents);
        let attempt = cx.attempt;
        let memory = Self { attempt, base, session, signals, said, documents, files, is_whole };
        kept::write(cx, NAME, &serde_json::to_vec(&memory)?)
    }
}

/// What tells the content of a file; nothing when it is not there.
fn content(path: &Path) -> io::Result<Option<BlobHash>> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err),
    };
    if meta.is_symlink() {
        let target = std::fs::read_link(path)?;
        return Ok(Some(BlobHash::of(target.as_os_str().as_bytes())));
    }
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is too long, or no file"));
    }
    Ok(Some(BlobHash::of(&std::fs::read(path)?)))
}
