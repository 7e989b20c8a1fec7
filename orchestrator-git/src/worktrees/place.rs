//! Where a workspace lies.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::GitError;
use crate::files::remove_if_there;
use crate::git::apart::Apart;
use crate::git::exec::Call;

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

    /// What the commands said by which it was set up, to their two outputs.
    pub(crate) fn set_up_logs(&self) -> [PathBuf; 2] {
        ["set-up.out", "set-up.err"].map(|name| self.dir.join(name))
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

impl Apart {
    /// A call about the files of a workspace, with the orchestrator's own index of them.
    pub(crate) async fn in_tree<A: AsRef<OsStr>>(
        &self,
        place: &Place,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Call, GitError> {
        self.in_dir((&place.tree, &place.index), args).await
    }
}
