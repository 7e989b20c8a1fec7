//! Submodules that somebody filled in a workspace: an agent, or a step of its set-up.
//!
//! A workspace has them empty, and no change may touch them. What was done in one is in no tree of
//! the repository, and ends with the worktree, so it is set aside with its history before the
//! workspace is reset. One that holds what is recorded stays for the later stages of its task.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::GitError;
use crate::files::{read_plain, remove_if_there};
use crate::git::oid::Oid;
use crate::names::{listed, path_of, shown};
use crate::worktrees::place::Place;
use crate::worktrees::worktree::Worktrees;

/// Most bytes of entries that are looked through for submodules: some millions of files.
pub(crate) const LISTED_BYTES_MAX: usize = 512 << 20;

/// Most bytes of the small files in which git says where a repository lies and stands.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// A submodule with something in it.
struct Filled {
    path: Vec<u8>,
    dir: PathBuf,
    /// Where its history lies, if it has any.
    git_dir: Option<PathBuf>,
    /// Whether it stands on the recorded commit, with all files as they are there.
    is_as_recorded: bool,
    /// Whether something else is in it.
    has_more: bool,
}

impl Worktrees {
    /// Sets aside what was done in submodules of the workspace, which is about to be reset, and says
    /// whether there was any: they are empty then.
    pub(crate) async fn keep_submodules(
        &self,
        place: &Place,
        start: &Oid,
        name: Option<&str>,
    ) -> Result<bool, GitError> {
        let mut is_any = false;
        for filled in self.filled(place, start).await? {
            if filled.is_as_recorded && !filled.has_more {
                continue;
            }
            let kept = self.set_aside(place, &filled.dir).await?;
            fs::create_dir(&filled.dir).map_err(GitError::io(&filled.dir, "made"))?;
            let admin = name.filter(|name| !name.is_empty()).map(|name| self.admin(name));
            let is_ours = |dir: &PathBuf| admin.is_some_and(|admin| dir.starts_with(admin));
            if let Some(git_dir) = filled.git_dir.filter(is_ours) {
                // It would go with the worktree.
                let link = kept.join(".git");
                remove_if_there(&link)?;
                fs::rename(&git_dir, &link).map_err(GitError::io(&git_dir, "moved"))?;
                let call = self.git.plumbing(["config", "--file"]).arg(link.join("config"));
                self.git.ask(call.args(["--unset", "core.worktree"])).await?;
            }
            is_any = true;
        }
        Ok(is_any)
    }

    /// Empties submodules that are somebody else's or not as they are recorded, and says whether
    /// there was one. What was done in them has been kept before.
    pub(crate) async fn empty_submodules(
        &self,
        place: &Place,
        start: &Oid,
        is_anew: bool,
    ) -> Result<bool, GitError> {
        let mut is_any = false;
        for filled in self.filled(place, start).await? {
            if is_anew || !filled.is_as_recorded {
                remove_if_there(&filled.dir)?;
                fs::create_dir(&filled.dir).map_err(GitError::io(&filled.dir, "made"))?;
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// What was changed in submodules, in words: git does not see it, and nothing would come of it.
    pub(crate) async fn changed_submodules(
        &self,
        place: &Place,
        start: &Oid,
    ) -> Result<Option<String>, GitError> {
        let mut filled = self.filled(place, start).await?;
        filled.retain(|filled| !filled.is_as_recorded);
        let paths: Vec<String> = filled.iter().map(|filled| shown(&filled.path)).collect();
        Ok((!paths.is_empty()).then(|| {
            let paths = listed(paths.iter().map(String::as_str));
            format!("What is in submodules cannot be changed, take it back: {paths}")
        }))
    }

    async fn filled(&self, place: &Place, start: &Oid) -> Result<Vec<Filled>, GitError> {
        let mut found = Vec::new();
        for (path, recorded) in self.submodules(start).await? {
            let dir = place.tree.join(path_of(&path));
            let is_filled = is_dir_below(&place.tree, &dir)
                && fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
            if is_filled {
                found.push(self.look_into(place, path, dir, &recorded).await?);
            }
        }
        Ok(found)
    }

    /// The submodules of a commit. Without a file that says where they come from none can be filled.
    async fn submodules(&self, commit: &Oid) -> Result<Vec<(Vec<u8>, Oid)>, GitError> {
        if self.git.object("blob", &format!("{commit}:.gitmodules")).await?.is_none() {
            return Ok(Vec::new());
        }
        let list = self.apart.call(["ls-tree", "-r", "-z", commit.as_str()]);
        let listed = self.git.run(list.bytes_max(LISTED_BYTES_MAX)).await?;
        let submodule = |record: &[u8]| {
            let rest = record.strip_prefix(b"160000 commit ")?;
            let tab = rest.iter().position(|byte| *byte == b'\t')?;
            let oid = Oid::parse(std::str::from_utf8(rest.get(..tab)?).ok()?)?;
            Some((rest.get(tab + 1..)?.to_vec(), oid))
        };
        Ok(listed.records().filter_map(submodule).collect())
    }

    async fn look_into(
        &self,
        place: &Place,
        path: Vec<u8>,
        dir: PathBuf,
        recorded: &Oid,
    ) -> Result<Filled, GitError> {
        let git_dir = git_dir_of(&dir);
        let head = git_dir.as_ref().and_then(|at| read_plain(&at.join("HEAD"), SMALL_BYTES_MAX));
        let is_on_it = head.is_some_and(|head| head.trim_ascii() == recorded.as_str().as_bytes());
        let mut filled = Filled { path, dir, git_dir, is_as_recorded: is_on_it, has_more: true };
        let Some(git_dir) = filled.git_dir.as_ref().filter(|_| is_on_it) else {
            return Ok(filled);
        };
        let index = place.dir.join("index.submodule");
        remove_if_there(&index)?;
        let objects = git_dir.join("objects");
        let ask = async |args: &[&str]| {
            let call = self.apart.in_dir((&filled.dir, &index), args).await?;
            self.git.ask(call.env("GIT_OBJECT_DIRECTORY", &objects)).await
        };
        let read = ask(&["read-tree", recorded.as_str()]).await?;
        let same = ask(&["update-index", "--refresh"]).await?;
        let others = ask(&["ls-files", "-z", "--others", "--exclude-standard"]).await?;
        remove_if_there(&index)?;
        let is_as_recorded = read.code == 0 && same.code == 0;
        // Submodules of submodules are not looked into.
        let has_more = others.code != 0
            || others.records().next().is_some()
            || filled.dir.join(".gitmodules").exists();
        (filled.is_as_recorded, filled.has_more) = (is_as_recorded, has_more);
        Ok(filled)
    }
}

/// Whether this is a directory in the tree, with no link on the way that leads elsewhere.
pub(crate) fn is_dir_below(tree: &Path, dir: &Path) -> bool {
    let is_dir = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    dir.ancestors().take_while(|at| *at != tree).all(is_dir)
}

/// Where the history of a submodule lies.
fn git_dir_of(dir: &Path) -> Option<PathBuf> {
    let link = dir.join(".git");
    if fs::symlink_metadata(&link).ok()?.is_dir() {
        return Some(link);
    }
    let text = read_plain(&link, SMALL_BYTES_MAX)?;
    let path = path_of(text.strip_prefix(b"gitdir: ")?.trim_ascii());
    fs::canonicalize(dir.join(path)).ok()
}
