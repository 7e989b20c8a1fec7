//! Names: object ids, refs, places, and the trailers of commits.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use orchestrator_core::{ChangeId, RunId, TaskId};

use crate::error::GitError;
use crate::files::remove_if_there;

/// The id of an object: 40 or 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Oid(String);

impl Oid {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (matches!(text.len(), 40 | 64) && text.chars().all(is_hex)).then(|| Self(text.to_owned()))
    }

    pub(crate) fn of(change: &ChangeId) -> Result<Self, GitError> {
        let text = change.as_str();
        Self::parse(text).ok_or_else(|| GitError::NoChange { text: text.to_owned() })
    }

    /// The id that stands for "no object" in a transaction.
    pub(crate) fn none_like(&self) -> Self {
        Self("0".repeat(self.0.len()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }

    pub(crate) fn to_change(&self) -> ChangeId {
        ChangeId::parse(&self.0).expect("hex digits are a valid id")
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

/// The directories of one task's workspace.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The directory of all of it.
    pub(crate) dir: PathBuf,
    /// The name of that directory, which the task's refs bear too.
    pub(crate) slug: String,
    /// The worktree.
    pub(crate) tree: PathBuf,
    /// What belongs to the workspace and not to the tree.
    pub(crate) aside: PathBuf,
    /// The index that only the orchestrator uses: an agent may do with git's what it likes.
    pub(crate) index: PathBuf,
    /// What is known of the workspace.
    pub(crate) marker: PathBuf,
}

impl Place {
    pub(crate) fn new(root: &Path, slug: &str) -> Self {
        let dir = root.join(slug);
        Self {
            tree: dir.join("tree"),
            aside: dir.join("aside"),
            index: dir.join("index"),
            marker: dir.join("marker"),
            slug: slug.to_owned(),
            dir,
        }
    }

    /// A directory for what is of no worth, in no tree.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.dir.join("scratch")
    }

    /// Makes that directory, where it is missing or something else is in its place.
    pub(crate) fn make_scratch(&self) -> Result<PathBuf, GitError> {
        let scratch = self.scratch();
        if !fs::symlink_metadata(&scratch).is_ok_and(|meta| meta.is_dir()) {
            remove_if_there(&scratch)?;
            fs::create_dir_all(&scratch).map_err(GitError::io(&scratch, "made"))?;
        }
        Ok(scratch)
    }

    /// The file with the variables of the workspace, for a shell to read.
    pub(crate) fn variables(&self) -> PathBuf {
        self.dir.join("variables")
    }

    /// Whether the worktree is there and is no link to somewhere else.
    pub(crate) fn is_real(&self) -> bool {
        let is_dir = |path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        is_dir(&self.dir) && is_dir(&self.tree)
    }

    /// The place that a worktree belongs to.
    pub(crate) fn around(tree: &Path) -> Option<Self> {
        let dir = tree.parent()?;
        Some(Self::new(dir.parent()?, dir.file_name()?.to_str()?))
    }
}

/// The trailer that names a task in the target's history.
pub(crate) const TASK_TRAILER: &str = "Orchestrator-Task";
pub(crate) const RUN_TRAILER: &str = "Orchestrator-Run";
pub(crate) const ATTEMPT_TRAILER: &str = "Orchestrator-Attempt";
pub(crate) const TOKEN_TRAILER: &str = "Orchestrator-Token";
pub(crate) const COST_TRAILER: &str = "Orchestrator-Cost";
/// The trailer that names the commit whose change was merged.
pub(crate) const CANDIDATE_TRAILER: &str = "Orchestrator-Candidate";

/// A value as it stands in a trailer: what git would take away or read otherwise is written as
/// `%` and two hex digits, and so is a `%` that could be taken for such.
pub(crate) fn trailer_value(text: &str) -> String {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let start = text.len() - text.trim_start().len();
    let end = text.trim_end().len();
    let mut value = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let is_edge = at < start || at >= end;
        let is_code = c == '%' && is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2));
        if is_edge || is_code || c.is_control() {
            let mut buffer = [0; 4];
            let encoded = c.encode_utf8(&mut buffer).bytes();
            value.extend(encoded.map(|byte| format!("%{byte:02X}")));
        } else {
            value.push(c);
        }
    }
    value
}

/// A message of a commit: a subject, text, and trailers as its last paragraph.
pub(crate) fn message(subject: &str, trailers: &[(&str, &str)]) -> String {
    let mut text = format!("{}\n", trailer_value(subject));
    text.push('\n');
    for (key, value) in trailers {
        text.extend([key, ": ", &trailer_value(value), "\n"]);
    }
    text
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_tells_ids_apart_that_git_would_confuse() {
        for (id, value) in [
            ("port-http-types", "port-http-types"),
            ("#12: a, 50% of it", "#12: a, 50% of it"),
            (" a ", "%20a%20"),
            ("%20a", "%2520a"),
            ("日本\u{3000}", "日本%E3%80%80"),
        ] {
            assert_eq!(trailer_value(id), value);
        }
    }

    #[test]
    fn an_object_id_is_hex_and_nothing_else() {
        assert!(Oid::parse(&"a".repeat(40)).is_some());
        for bad in ["", "--all", "HEAD", &"A".repeat(40), &"a".repeat(39)] {
            assert!(Oid::parse(bad).is_none(), "{bad}");
        }
    }
}
