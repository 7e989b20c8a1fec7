//! Names: the refs of a run, and how names and paths are shown.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use orchestrator_core::{RunId, TaskId};

/// Most paths that one sentence of feedback lists.
const LISTED_MAX: usize = 40;

/// Below this are the refs of all runs.
pub(crate) const RUNS: &str = "refs/orchestrator";

/// The last part of the name of the ref that says where something was set aside.
pub(crate) const ASIDE: &str = "aside";

/// The refs of one run.
#[derive(Debug, Clone)]
pub(crate) struct Refs {
    root: String,
}

impl Refs {
    pub(crate) fn of(run: &RunId) -> Self {
        Self { root: format!("{RUNS}/{}", run.slug()) }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The blob with the number of the task's last lease.
    pub(crate) fn fence(&self, task: &TaskId) -> String {
        format!("{}/{}", self.fences(), task.slug())
    }

    pub(crate) fn fences(&self) -> String {
        format!("{}/fence", self.root)
    }

    /// Where the branch that is merged into stood after the last merge.
    pub(crate) fn merged(&self) -> String {
        format!("{}/merged", self.root)
    }

    /// The task's last candidate.
    pub(crate) fn task(&self, task: &TaskId) -> String {
        format!("{}/task/{}", self.root, task.slug())
    }

    /// The blob with the path of the directory in which what git cannot keep is set aside.
    pub(crate) fn aside(&self) -> String {
        format!("{}/{ASIDE}", self.root)
    }

    /// Work of a task that is in no change.
    pub(crate) fn kept(&self, slug: &str, what: &str) -> String {
        format!("{}/kept/{slug}/{what}", self.root)
    }
}

/// The name of a branch without `refs/heads/`.
pub(crate) fn short(name: &str) -> &str {
    name.strip_prefix("refs/heads/").unwrap_or(name)
}

/// A path as people read it, safe to print.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().flat_map(shown_char).collect()
}

fn shown_char(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Some names in a sentence, the first of them and how many more there are.
pub(crate) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let mut text: Vec<String> = names.take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}

/// A path of these bytes.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}
