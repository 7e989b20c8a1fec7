//! Keeping work: what is in a workspace and in no change goes under a ref before it is removed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use orchestrator_core::FencingToken;

use crate::config::GitConfig;
use crate::error::GitError;
use crate::files::{larger_than, make_accessible, make_readable, remove_if_there};
use crate::git::apart::Apart;
use crate::git::diff::{self, GITLINK};
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::git::trailers::{ATTEMPT_TRAILER, RUN_TRAILER, TOKEN_TRAILER, message};
use crate::names::{Refs, listed, path_of, shown};
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;
use crate::worktrees::submodules::{LISTED_BYTES_MAX, is_dir_below};
use crate::worktrees::worktree::Worktrees;

/// The largest file that git is given, which takes it half a minute.
const TAKEN_BYTES_MAX: u64 = 1 << 30;

/// What the files of a workspace are, as git sees them.
pub(crate) enum Snapshot {
    /// They are this tree.
    Tree(Oid),
    /// Some cannot be put into a tree; git's words.
    Trouble(String),
}

/// What keeps the work of a run.
#[derive(Debug)]
pub(crate) struct Keeper {
    config: Arc<GitConfig>,
    git: Arc<Git>,
    apart: Apart,
    refs: Refs,
    worktrees: Arc<Worktrees>,
}

impl Keeper {
    pub(crate) fn new(config: Arc<GitConfig>, refs: Refs, worktrees: Arc<Worktrees>) -> Self {
        let (git, apart) = (Arc::clone(&worktrees.git), worktrees.apart.clone());
        Self { config, git, apart, refs, worktrees }
    }

    /// Writes all files of the workspace that are not ignored as a tree.
    pub(crate) async fn snapshot(&self, place: &Place, start: &Oid) -> Result<Snapshot, GitError> {
        if place.index.exists() {
            match self.written(place).await {
                // A machine that went down may leave a damaged index, and whoever collects garbage
                // does not know that it names objects. It can be made anew.
                Err(GitError::Failed { stderr, .. }) if !is_full(&stderr) => {
                    remove_if_there(&place.index)?;
                }
                done => return done,
            }
        }
        let call = self.apart.in_tree(place, ["read-tree", start.as_str()]).await?;
        self.git.run(call).await?;
        self.written(place).await
    }

    async fn written(&self, place: &Place) -> Result<Snapshot, GitError> {
        let large = self.too_large(place).await?;
        if !large.is_empty() {
            let paths: Vec<String> = large.iter().map(|path| shown(path)).collect();
            let paths = listed(paths.iter().map(String::as_str));
            return Ok(Snapshot::Trouble(format!("these files are too large for it: {paths}")));
        }
        let inner = self.repositories_in_index(place).await?;
        if !inner.is_empty() {
            // What they stand on is what a change would have of them.
            self.update(place, &inner, "--add").await?;
            self.update(place, &inner, "--skip-worktree").await?;
        }
        let added = self.git.ask(self.apart.in_tree(place, ["add", "-A"]).await?).await?;
        if !inner.is_empty() {
            self.update(place, &inner, "--no-skip-worktree").await?;
        }
        if added.code != 0 {
            return if is_full(&added.stderr) || is_of_index(&added.stderr) {
                Err(added.failed("add"))
            } else {
                Ok(Snapshot::Trouble(added.stderr))
            };
        }
        let call = self.apart.in_tree(place, ["write-tree"]).await?;
        let answer = self.git.run(call).await?;
        let tree = Oid::parse(&answer.text()).ok_or_else(|| answer.unexpected("write-tree"))?;
        if added.stderr.contains("embedded git repository") {
            return Ok(Snapshot::Trouble(added.stderr));
        }
        Ok(Snapshot::Tree(tree))
    }

    /// Repositories that the index has and that are there. Git would call itself in each of them to
    /// see whether something is changed, and there run whatever their configuration says.
    async fn repositories_in_index(&self, place: &Place) -> Result<Vec<Vec<u8>>, GitError> {
        let list = self.apart.in_tree(place, ["ls-files", "-z", "--stage"]).await?;
        let listed = self.git.run(list.bytes_max(LISTED_BYTES_MAX)).await?;
        let inner = listed.records().filter_map(|record| {
            let entry = record.strip_prefix(b"160000 ")?;
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            let path = entry.get(tab + 1..)?;
            let dir = place.tree.join(path_of(path));
            let is_there =
                is_dir_below(&place.tree, &dir) && fs::symlink_metadata(dir.join(".git")).is_ok();
            is_there.then(|| path.to_vec())
        });
        Ok(inner.collect())
    }

    /// Does one thing with entries of the index.
    async fn update(&self, place: &Place, paths: &[Vec<u8>], how: &str) -> Result<(), GitError> {
        let call = self.apart.in_tree(place, ["update-index", how, "-z", "--stdin"]).await?;
        self.git.run(call.stdin(paths.join(&0))).await.map(drop)
    }

    /// Keeps what is in the workspace and in no change, and says where.
    ///
    /// `fallback` is what a workspace without a marker is compared with, and whom its work is
    /// ascribed to.
    pub(crate) async fn keep_leftover(
        &self,
        place: &Place,
        marker: Option<&Marker>,
        fallback: (&Oid, u32, FencingToken),
    ) -> Result<Option<String>, GitError> {
        if !place.is_real() {
            return Ok(None);
        }
        make_readable(&place.tree).await?;
        let (start, attempt, token) = match marker {
            Some(marker) if !marker.is_ready => return Ok(None),
            Some(marker) => (&marker.start, marker.attempt, marker.token),
            None => fallback,
        };
        if let Some((sealed, _)) = marker
            .filter(|marker| marker.is_judged_only())
            .and_then(|marker| marker.sealed.as_ref())
        {
            // The tree is in the change; what was ignored is not.
            let tree = self.git.tree_of(sealed).await?;
            let with_ignored = self.with_ignored(place, &tree).await?;
            if with_ignored == tree {
                return Ok(None);
            }
            let name = marker.map(|marker| marker.name.as_str());
            let kept = self.keep_tree(place, &with_ignored, sealed, name, (attempt, token)).await?;
            return Ok(Some(kept));
        }
        let tree = match self.snapshot(place, start).await? {
            Snapshot::Tree(tree) => Some(tree),
            Snapshot::Trouble(_) => self.snapshot_of_the_rest(place, start).await?,
        };
        let Some(tree) = tree else {
            let kept = self.worktrees.set_aside(place, &place.tree).await?;
            return Ok(Some(kept.display().to_string()));
        };
        let tree = self.with_ignored(place, &tree).await?;
        let known = self.git.tree_of(start).await?;
        if tree == known {
            return Ok(None);
        }
        if let Some((sealed, _)) = marker.and_then(|marker| marker.sealed.as_ref()) {
            let known = self.git.tree_of(sealed).await?;
            if tree == known {
                return Ok(None);
            }
        }
        let name = marker.map(|marker| marker.name.as_str());
        self.keep_tree(place, &tree, start, name, (attempt, token)).await.map(Some)
    }

    /// Keeps all that a reset or a removal of the workspace would end, and says whether submodules
    /// were emptied.
    pub(crate) async fn keep_all(
        &self,
        place: &Place,
        marker: Option<&Marker>,
        fallback: (&Oid, u32, FencingToken),
    ) -> Result<bool, GitError> {
        let mut is_emptied = false;
        if place.is_real() && marker.is_none_or(|marker| marker.is_ready) {
            make_readable(&place.tree).await?;
            let start = marker.map_or(fallback.0, |marker| &marker.start);
            let name = marker.map(|marker| marker.name.as_str());
            is_emptied = self.worktrees.keep_submodules(place, start, name).await?;
        }
        self.keep_leftover(place, marker, fallback).await?;
        Ok(is_emptied)
    }

    /// The tree with the ignored files that are declared as worth keeping.
    async fn with_ignored(&self, place: &Place, tree: &Oid) -> Result<Oid, GitError> {
        let Some(declared) = &self.config.keep_ignored else { return Ok(tree.clone()) };
        let index = place.dir.join("index.kept");
        remove_if_there(&index)?;
        let read = self.apart.in_tree(place, ["read-tree", tree.as_str()]).await?;
        self.git.run(read.env("GIT_INDEX_FILE", &index)).await?;
        let args = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard"];
        let list = self.apart.in_tree(place, args).await?;
        let listed = self.git.run(list.env("GIT_INDEX_FILE", &index)).await?;
        let is_declared = |path: &&[u8]| declared.allows(&String::from_utf8_lossy(path));
        let mut paths: Vec<&[u8]> = Vec::new();
        for path in listed.records() {
            match path.strip_suffix(b"/") {
                // A repository, which git cannot take.
                Some(nested) if is_declared(&nested) => {
                    self.worktrees.set_aside(place, &place.tree.join(path_of(nested))).await?;
                }
                Some(_) => {}
                None => paths.extend(Some(path).filter(is_declared)),
            }
        }
        let mut tree = tree.clone();
        if !paths.is_empty() {
            let add = self.apart.in_tree(place, ["update-index", "--add", "-z", "--stdin"]).await?;
            let add = add.env("GIT_INDEX_FILE", &index).stdin(paths.join(&0));
            self.git.run(add).await?;
            let write = self.apart.in_tree(place, ["write-tree"]).await?;
            let answer = self.git.run(write.env("GIT_INDEX_FILE", &index)).await?;
            tree = Oid::parse(&answer.text()).ok_or_else(|| answer.unexpected("write-tree"))?;
        }
        remove_if_there(&index)?;
        Ok(tree)
    }

    /// Puts a tree under the ref of the lease that left it.
    pub(crate) async fn keep_tree(
        &self,
        place: &Place,
        tree: &Oid,
        start: &Oid,
        worktree: Option<&str>,
        (attempt, token): (u32, FencingToken),
    ) -> Result<String, GitError> {
        let name = self.refs.kept(&place.slug, &format!("{attempt}-{token}"));
        let old = self.git.tip(&name).await?;
        if let Some(old) = &old
            && self.git.tree_of(old).await? == *tree
        {
            return Ok(name);
        }
        let head = match worktree {
            Some(worktree) => self.worktrees.head_of(worktree).await?,
            None => None,
        };
        let mut parents = vec![start];
        parents.extend(head.as_ref().filter(|head| *head != start));
        parents.extend(&old);
        let subject = format!("kept: work of {} that is in no change", place.slug);
        let trailers = [
            (RUN_TRAILER, self.config.run.as_str()),
            (ATTEMPT_TRAILER, &attempt.to_string()),
            (TOKEN_TRAILER, &token.to_string()),
        ];
        let commit = self.git.commit(tree, &parents, &message(&subject, &trailers)).await?;
        let none = commit.none_like();
        let expected = old.as_ref().unwrap_or(&none);
        let moved = self.git.transact(&format!("update {name} {commit} {expected}\n")).await?;
        if moved.code == 0 { Ok(name) } else { Err(moved.failed("update-ref")) }
    }

    /// New and changed files that git would read for minutes, as an image of a disk may have it.
    async fn too_large(&self, place: &Place) -> Result<Vec<Vec<u8>>, GitError> {
        let large =
            larger_than(&place.tree, TAKEN_BYTES_MAX.max(self.config.file_bytes_max)).await?;
        let inside = large.iter().filter_map(|path| path.strip_prefix(&place.tree).ok());
        let paths: Vec<&Path> = inside.collect();
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let args = ["ls-files", "-z", "--others", "--modified", "--exclude-standard", "--"];
        let listed = self.git.run(self.apart.in_tree(place, args).await?.args(paths)).await?;
        Ok(listed.records().map(<[u8]>::to_vec).collect())
    }

    /// Sets repositories inside the workspace and what is too large aside, and writes what is left as
    /// a tree; `None` when that does not help.
    async fn snapshot_of_the_rest(
        &self,
        place: &Place,
        start: &Oid,
    ) -> Result<Option<Oid>, GitError> {
        // A file that nobody may read, say.
        make_accessible(&place.tree);
        let too_large = self.too_large(place).await?;
        for path in self.nested(place, start).await?.into_iter().chain(too_large) {
            self.worktrees.set_aside(place, &place.tree.join(path_of(&path))).await?;
        }
        Ok(match self.snapshot(place, start).await? {
            Snapshot::Tree(tree) => Some(tree),
            Snapshot::Trouble(_) => None,
        })
    }

    /// Repositories inside the workspace that are not part of what was checked out.
    pub(crate) async fn nested(
        &self,
        place: &Place,
        start: &Oid,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let args = ["ls-files", "-z", "--others", "--exclude-standard"];
        let others = self.git.ask(self.apart.in_tree(place, args).await?).await?;
        let mut found: Vec<Vec<u8>> = others
            .records()
            .filter_map(|path| path.strip_suffix(b"/"))
            .map(<[u8]>::to_vec)
            .collect();
        let args = ["diff-index", "--cached", "--raw", "-z", "--no-renames"];
        let call = self.apart.in_tree(place, args).await?;
        let call = call.args(["--ignore-submodules=none", start.as_str()]);
        let added = self.git.ask(call).await?;
        let added = diff::entries(&added.stdout);
        found.extend(added.into_iter().filter(|entry| entry.new_mode == GITLINK).map(|e| e.path));
        Ok(found)
    }
}

/// Whether git failed for want of room, which is no fault of the files.
fn is_full(stderr: &str) -> bool {
    ["No space left", "Out of diskspace", "Disk quota exceeded"]
        .iter()
        .any(|words| stderr.contains(words))
}

/// Whether git failed because of its index, which can be made anew.
fn is_of_index(stderr: &str) -> bool {
    stderr.lines().any(|line| line.starts_with("fatal: ") && line.contains("index file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_files_however_git_says_it() {
        assert!(is_full("fatal: sha1 file '/x/index.lock' write error. Out of diskspace"));
        assert!(is_full("error: unable to write file .git/objects/1: No space left on device"));
        assert!(!is_full("error: 'nested/' does not have a commit checked out"));
        assert!(is_of_index("error: bad signature 0x6e6f6e73\nfatal: index file corrupt"));
        assert!(!is_of_index("error: unable to index file 'x'\nfatal: adding files failed"));
    }
}
