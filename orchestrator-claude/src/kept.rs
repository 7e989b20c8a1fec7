//! What is kept beside a task's workspace from one stage to the next, and believed only as it was
//! written.
//!
//! It goes with the workspace, near which an agent works. So what its content is to be is kept where
//! the logs of the task are: what does not fit that was changed by somebody, and is as if it were not
//! there.

use std::io;
use std::path::{Path, PathBuf};

use orchestrator_core::BlobHash;
use orchestrator_core::port::StageContext;
use tracing::warn;

use crate::placed;

/// More than an attempt or its reviews leave to the next one, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// What the directories begin with in which each of several reviewers logs, in that of their stage.
pub(crate) const MEMBER: &str = "reviewer-";

/// A file of this name beside the workspace, as it was written.
pub(crate) fn read(cx: &StageContext, name: &str) -> Option<Vec<u8>> {
    let file = cx.workspace.aside.join(name);
    let text = placed::read(&file, BYTES_MAX).ok()?;
    if !placed::is_there(&seal(cx, name), BlobHash::of(&text).as_str()) {
        warn!(file = %file.display(), "what is kept of earlier stages was changed, and is not used");
        return None;
    }
    Some(text)
}

/// Keeps a text in a file of this name.
pub(crate) fn write(cx: &StageContext, name: &str, text: &[u8]) -> io::Result<()> {
    placed::put(&seal(cx, name), BlobHash::of(text).as_str())?;
    placed::put(&cx.workspace.aside.join(name), text).map(drop)
}

/// Holds the hash of what was kept, beside the directories of the task's stages.
fn seal(cx: &StageContext, name: &str) -> PathBuf {
    let is_member =
        |dir: &Path| dir.file_name().is_some_and(|it| it.to_string_lossy().starts_with(MEMBER));
    let stage = cx.dir.parent().filter(|_| is_member(&cx.dir)).unwrap_or(&cx.dir);
    stage.with_file_name(name).with_extension("hash")
}
