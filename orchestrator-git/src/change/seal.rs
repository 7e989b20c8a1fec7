//! Sealing: the work in a workspace becomes one commit of the orchestrator's, if it keeps the rules.

use std::path::PathBuf;
use std::sync::Arc;

use orchestrator_core::port::{OpenWorkspace, Sealed, Workspace};
use orchestrator_core::{Candidate, Cost};

use crate::branch::fence::Fences;
use crate::change::rules::Rules;
use crate::change::secrets;
use crate::config::GitConfig;
use crate::error::GitError;
use crate::files::make_readable;
use crate::git::apart::Apart;
use crate::git::diff::Entry;
use crate::git::oid::Oid;
use crate::git::preflight;
use crate::git::repository::Git;
use crate::git::trailers::{
    ATTEMPT_TRAILER, COST_TRAILER, RUN_TRAILER, TASK_TRAILER, TOKEN_TRAILER, message,
};
use crate::names::{Refs, listed, path_of, shown};
use crate::worktrees::keep::Snapshot;
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;
use crate::worktrees::spaces::Spaces;

/// What makes changes of the work in the workspaces of a run.
#[derive(Debug)]
pub(crate) struct Sealer {
    config: Arc<GitConfig>,
    git: Arc<Git>,
    apart: Apart,
    refs: Refs,
    fences: Arc<Fences>,
    spaces: Arc<Spaces>,
}

impl Sealer {
    pub(crate) fn new(
        config: Arc<GitConfig>,
        apart: Apart,
        refs: Refs,
        fences: Arc<Fences>,
        spaces: Arc<Spaces>,
    ) -> Self {
        Self { config, git: Arc::clone(&apart.git), apart, refs, fences, spaces }
    }

    /// Makes a change of what is in the workspace.
    pub(crate) async fn seal(
        &self,
        ask: &OpenWorkspace,
        at: &Workspace,
    ) -> Result<Sealed, GitError> {
        let place = self.spaces.worktrees.place(&ask.task.id.slug());
        let turn = self.spaces.turn(&place.slug);
        let _turn = turn.lock().await;
        let marker = self.spaces.own_marker(&place, ask)?;
        if Oid::of(&at.base)? != marker.base {
            let (slug, token) = (place.slug.clone(), ask.token);
            return Err(GitError::WorkspaceLost { slug, token });
        }
        let mut broken = self.tampered(&place, &marker).await?;
        let removed = make_readable(&place.tree).await?;
        broken.extend(self.spaces.worktrees.changed_submodules(&place, &marker.start).await?);
        let tree = match self.spaces.keeper.snapshot(&place, &marker.start).await? {
            Snapshot::Tree(tree) => tree,
            Snapshot::Trouble(said) => {
                broken.push(self.trouble(&place, &marker, &said).await?);
                return Ok(refused(&broken, None));
            }
        };
        let entries = self.apart.changed(marker.base.as_str(), tree.as_str()).await?;
        if entries.is_empty() && !self.config.allow_empty {
            broken.push("Nothing was changed: the work is expected in files".to_owned());
        }
        broken.extend(no_files(&place, &removed, &entries));
        let rules = Rules::of(&self.config, ask.task.scope.as_ref());
        broken.extend(rules.broken_by_paths(&entries));
        let contents = self.apart.contents(&entries).await?;
        broken.extend(rules.broken_by_contents(&entries, &contents));
        if !self.config.takes_keys {
            let bytes_max = self.config.file_bytes_max;
            let brought = (entries.as_slice(), contents.as_slice());
            broken.extend(secrets::find(&self.git, &marker.base, brought, bytes_max).await?);
        }
        broken.extend(self.stored_otherwise(&place, &marker.base, &entries).await?);
        broken.extend(self.stored_anew(&marker.base, &tree, &entries).await?);
        if !broken.is_empty() {
            let kept = if entries.is_empty() {
                None
            } else {
                let who = (marker.attempt, marker.token);
                let name = Some(marker.name.as_str());
                Some(self.spaces.keeper.keep_tree(&place, &tree, &marker.start, name, who).await?)
            };
            return Ok(refused(&broken, kept.as_deref()));
        }
        let sealed = self.make_candidate(ask, &place, marker, &tree).await?;
        self.apart.rewrite_converted(&place, &entries).await?;
        Ok(Sealed::Candidate(sealed))
    }

    /// What was done to the repository itself, beside the files.
    async fn tampered(&self, place: &Place, marker: &Marker) -> Result<Vec<String>, GitError> {
        let mut broken = Vec::new();
        let programs = self.spaces.programs.new_since_opened(&place.slug).await?;
        if !programs.is_empty() {
            broken.push(format!(
                "Git's own set-up of the repository was changed while the task was worked on; take \
                 that back if you did it, and leave git's configuration, hooks and lists alone: {}",
                listed(programs.iter().map(String::as_str))
            ));
        }
        let head = self.spaces.worktrees.head_of(&marker.name).await?;
        let is_on_base = match &head {
            Some(head) if *head == marker.start => true,
            Some(head) => self.is_ancestor_of(&marker.base, head).await?,
            None => false,
        };
        if !is_on_base {
            let head = head.as_ref().map_or("no commit", Oid::as_str);
            broken.push(format!(
                "The worktree was moved to {head}, which does not contain {}, where the work is to \
                 stand on: work on what is checked out, without switching or rebasing",
                marker.base
            ));
        }
        Ok(broken)
    }

    /// Whether the change touches files that are stored otherwise than it has them.
    async fn stored_otherwise(
        &self,
        place: &Place,
        base: &Oid,
        entries: &[Entry],
    ) -> Result<Option<String>, GitError> {
        if !self.config.takes_stored || entries.is_empty() {
            return Ok(None);
        }
        let paths: Vec<&[u8]> = entries.iter().map(|entry| entry.path.as_slice()).collect();
        let mut call = self.apart.in_tree(place, ["check-attr", "-z", "--stdin"]).await?;
        if self.git.has(2, 40) {
            call = call.arg(format!("--source={base}"));
        }
        let answer = self.git.run(call.arg("filter").stdin(paths.join(&0))).await?;
        let fields: Vec<&[u8]> = answer.stdout.split(|byte| *byte == 0).collect();
        let is_stored = |field: &&[&[u8]]| {
            let value = field.get(2).copied().unwrap_or_default();
            let value = String::from_utf8_lossy(value);
            preflight::stored_filter(&format!("filter={value}")).is_some()
        };
        let stored = fields.chunks_exact(3).filter(is_stored);
        let stored: Vec<String> =
            stored.map(|field| shown(field.first().copied().unwrap_or_default())).collect();
        Ok((!stored.is_empty()).then(|| {
            let paths = listed(stored.iter().map(String::as_str));
            format!("These files are stored by a filter that is not run, so they may not change: {paths}")
        }))
    }

    /// Whether the change has files stored otherwise from now on: no filter is run, so they would
    /// not be, and the next opening of the run would refuse the branch.
    async fn stored_anew(
        &self,
        base: &Oid,
        tree: &Oid,
        entries: &[Entry],
    ) -> Result<Option<String>, GitError> {
        let mut found = Vec::new();
        for entry in entries.iter().filter(|entry| preflight::is_attributes(&entry.path)) {
            let read = async |of: &Oid| {
                let name = [of.as_str().as_bytes(), b":", entry.path.as_slice()].concat();
                let call = self.git.plumbing(["cat-file", "blob"]).arg(path_of(&name));
                self.git.ask(call).await.map(|answer| answer.text())
            };
            if preflight::stores_anew(&read(base).await?, &read(tree).await?) {
                found.push(shown(&entry.path));
            }
        }
        Ok((!found.is_empty()).then(|| {
            let paths = listed(found.iter().map(String::as_str));
            format!("No files may be stored by a filter that were not (LFS, git-crypt), since filters are not run: {paths}")
        }))
    }

    async fn is_ancestor_of(&self, first: &Oid, second: &Oid) -> Result<bool, GitError> {
        self.git.is_ancestor(first.as_str(), second.as_str()).await
    }

    /// Why git could not take the files, in words that an agent can act on.
    async fn trouble(
        &self,
        place: &Place,
        marker: &Marker,
        said: &str,
    ) -> Result<String, GitError> {
        let nested = self.spaces.keeper.nested(place, &marker.start).await?;
        if nested.is_empty() {
            return Ok(format!("Git cannot take the files as they are: {said}"));
        }
        let nested: Vec<String> = nested.iter().map(|path| shown(path)).collect();
        Ok(format!(
            "No repository may lie in the workspace; remove its `.git`, or the whole of it: {}",
            listed(nested.iter().map(String::as_str))
        ))
    }

    async fn make_candidate(
        &self,
        ask: &OpenWorkspace,
        place: &Place,
        mut marker: Marker,
        tree: &Oid,
    ) -> Result<Candidate, GitError> {
        let (attempt, token) = (ask.attempt.to_string(), ask.token.to_string());
        let cost = match ask.cost {
            Cost::Known(cost) => cost.to_string(),
            Cost::AtLeast(cost) => format!("at least {cost}"),
        };
        let text = message(
            &self.config.subject(&ask.task.id, &attempt),
            &[
                (TASK_TRAILER, ask.task.id.as_str()),
                (RUN_TRAILER, ask.run.as_str()),
                (ATTEMPT_TRAILER, &attempt),
                (TOKEN_TRAILER, &token),
                (COST_TRAILER, &cost),
            ],
        );
        let commit = self.git.commit(tree, &[&marker.base], &text).await?;
        self.point_at(ask, place, &commit).await?;
        marker.sealed = Some((commit.clone(), ask.attempt));
        marker.write(&place.marker)?;
        Ok(Candidate { change: commit.to_change(), base: marker.base.to_change() })
    }

    /// Moves the task's ref to its new candidate, unless a later lease has begun; the old one is
    /// kept under a ref of its own.
    async fn point_at(
        &self,
        ask: &OpenWorkspace,
        place: &Place,
        commit: &Oid,
    ) -> Result<(), GitError> {
        let (name, fence) = (self.refs.task(&ask.task.id), self.refs.fence(&ask.task.id));
        let mut lines = String::new();
        if let Some(stands) = self.git.tip(&fence).await? {
            if stands != self.fences.blob(ask.token) {
                let (slug, token) = (place.slug.clone(), ask.token);
                return Err(GitError::WorkspaceLost { slug, token });
            }
            let line = format!("verify {fence} {stands}\n");
            lines.push_str(&line);
        }
        let old = self.git.tip(&name).await?;
        if let Some(old) = &old {
            let kept = self.refs.kept(&place.slug, &format!("candidate-{}", old.short()));
            let line = format!("update {kept} {old}\n");
            lines.push_str(&line);
        }
        let none = commit.none_like();
        let line = format!("update {name} {commit} {}\n", old.as_ref().unwrap_or(&none));
        lines.push_str(&line);
        let moved = self.git.transact(&lines).await?;
        if moved.code == 0 { Ok(()) } else { Err(moved.failed("update-ref")) }
    }
}

/// The files that were replaced by what is no file, in words. A pipe or socket beside them is no
/// part of a change, and harms nothing.
fn no_files(place: &Place, removed: &[PathBuf], entries: &[Entry]) -> Option<String> {
    let is_removed = |entry: &&Entry| removed.contains(&place.tree.join(path_of(&entry.path)));
    let replaced: Vec<String> =
        entries.iter().filter(is_removed).map(|entry| shown(&entry.path)).collect();
    (!replaced.is_empty()).then(|| {
        let paths = listed(replaced.iter().map(String::as_str));
        format!("These files were replaced by pipes, sockets or devices, put them back: {paths}")
    })
}

fn refused(broken: &[String], kept: Option<&str>) -> Sealed {
    let mut feedback = String::from("The change was not taken:\n");
    for rule in broken {
        feedback.extend(["- ", rule, "\n"]);
    }
    if let Some(kept) = kept {
        let line = format!(
            "All of the work so far is in the commit `{kept}`; \
             `git checkout {kept} -- PATH` takes a file from it.\n"
        );
        feedback.push_str(&line);
    }
    Sealed::Refused { feedback }
}
