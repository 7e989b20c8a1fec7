//! The workspaces of a run: opened for a lease, left to the next one, released.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use orchestrator_core::port::{OpenWorkspace, Start, Workspace};
use orchestrator_core::{ChangeId, FencingToken, TaskId};
use tracing::warn;

use crate::branch::integration::Branch;
use crate::config::GitConfig;
use crate::error::GitError;
use crate::files::{allow, make_readable};
use crate::git::apart::Apart;
use crate::git::diff;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::{Refs, shown};
use crate::worktrees::keep::Keeper;
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;
use crate::worktrees::pool::Pool;
use crate::worktrees::programs::Programs;
use crate::worktrees::room::Disks;
use crate::worktrees::worktree::{Checkout, TRASH, Worktrees};

/// How the names of places begin that belong to no task; no slug does.
const BESIDE: char = '+';

/// The place with the target as it is.
const UNTOUCHED: &str = "+untouched";

/// Of how many files that differ it is looked whether they are just as a checkout writes them.
const LOOKED_AT_MAX: usize = 64;

/// The workspaces of a run.
#[derive(Debug)]
pub(crate) struct Spaces {
    git: Arc<Git>,
    apart: Apart,
    branch: Arc<Branch>,
    pub(crate) worktrees: Arc<Worktrees>,
    pub(crate) pool: Pool,
    pub(crate) keeper: Keeper,
    pub(crate) programs: Programs,
    pub(crate) disks: Disks,
    /// One task's workspace is worked on by one call at a time.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Spaces {
    pub(crate) fn new(
        config: &Arc<GitConfig>,
        refs: Refs,
        branch: Arc<Branch>,
        worktrees: Arc<Worktrees>,
    ) -> Self {
        let (git, apart) = (Arc::clone(&worktrees.git), worktrees.apart.clone());
        Self {
            pool: Pool::of(Arc::clone(&worktrees), config.spares_max),
            keeper: Keeper::new(Arc::clone(config), refs, Arc::clone(&worktrees)),
            programs: Programs::of(Arc::clone(&git)),
            disks: Disks {
                places: [worktrees.root.clone(), git.dir.clone()],
                free_bytes_min: config.free_bytes_min,
            },
            turns: Mutex::default(),
            git,
            apart,
            branch,
            worktrees,
        }
    }

    /// The lock that keeps two calls out of one workspace.
    pub(crate) fn turn(&self, slug: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(slug.to_owned()).or_default())
    }

    /// The workspace's marker, if the lease that asks is the one that it was opened under.
    pub(crate) fn own_marker(
        &self,
        place: &Place,
        ask: &OpenWorkspace,
    ) -> Result<Marker, GitError> {
        Marker::read(&place.marker)
            .filter(|marker| marker.is_ready && marker.token == ask.token)
            .filter(|marker| self.worktrees.is_registered(place, &marker.name))
            .ok_or_else(|| GitError::WorkspaceLost { slug: place.slug.clone(), token: ask.token })
    }

    /// Opens a task's workspace for a lease.
    pub(crate) async fn open_workspace(&self, ask: &OpenWorkspace) -> Result<Workspace, GitError> {
        self.branch.make().await?;
        let place = self.worktrees.place(&ask.task.id.slug());
        let turn = self.turn(&place.slug);
        let _turn = turn.lock().await;
        allow(&place.dir, 0o700);
        self.worktrees.check_turn(&place, ask.token)?;
        let marker = Marker::read(&place.marker);
        if marker.is_none() {
            self.disks.check()?;
        }
        let mut start = &ask.start;
        while let Start::AsLeftBy { token, otherwise } = start {
            let is_left = marker.as_ref().filter(|marker| {
                let is_theirs = marker.is_ready && marker.token == *token;
                is_theirs && self.worktrees.is_registered(&place, &marker.name)
            });
            if let Some(marker) = is_left {
                return self.open_as_left(&place, marker, ask).await;
            }
            start = otherwise;
        }
        let (start, base) = match start {
            Start::On(candidate) => (Oid::of(&candidate.change)?, Oid::of(&candidate.base)?),
            Start::OnTarget | Start::AsLeftBy { .. } => {
                let head = self.branch.head().await?;
                (head.clone(), head)
            }
        };
        let fallback = (&start, ask.attempt, ask.token);
        let is_emptied = self.keeper.keep_all(&place, marker.as_ref(), fallback).await?;
        let is_there = marker.is_some();
        let marker = if is_there { marker } else { self.pool.take(&place, &start).await? };
        let sealed = marker.as_ref().and_then(|marker| marker.sealed.clone());
        let what = Checkout {
            token: ask.token,
            attempt: ask.attempt,
            base: base.clone(),
            sealed: sealed.filter(|(sealed, _)| *sealed == start),
            start,
            is_anew: false,
            is_emptied,
        };
        self.worktrees.check_out(&place, marker.as_ref(), what).await?;
        self.programs.note(&place.slug).await?;
        self.workspace(&place, &base, false)
    }

    async fn open_as_left(
        &self,
        place: &Place,
        marker: &Marker,
        ask: &OpenWorkspace,
    ) -> Result<Workspace, GitError> {
        self.worktrees.link(place, &marker.name).await?;
        self.worktrees.clear_locks(&marker.name).await?;
        let (token, attempt) = (ask.token, ask.attempt);
        let marker = Marker { token, attempt, sealed: None, ..marker.clone() };
        marker.write(&place.marker)?;
        self.programs.note(&place.slug).await?;
        self.workspace(place, &marker.base, true)
    }

    /// The files of a workspace that differ from a change.
    pub(crate) async fn differing_from(
        &self,
        at: &Workspace,
        from: &ChangeId,
    ) -> Result<Vec<String>, GitError> {
        let from = Oid::of(from)?;
        let place = Place::around(&at.path)
            .filter(Place::is_real)
            .ok_or_else(|| GitError::NoChange { text: at.path.display().to_string() })?;
        make_readable(&place.tree).await?;
        let refresh = ["update-index", "-q", "--really-refresh"];
        self.git.ask(self.apart.in_tree(&place, refresh).await?).await?;
        let args = ["diff-index", "-z", "--raw", "--no-renames", "--no-ext-diff"];
        let call = self.apart.in_tree(&place, args).await?;
        let call = call.arg("--ignore-submodules=dirty").arg(from.as_str());
        let answer = self.git.run(call).await?;
        let mut differing = Vec::new();
        for (number, entry) in diff::entries(&answer.stdout).into_iter().enumerate() {
            let is_same = number < LOOKED_AT_MAX
                && self.apart.is_as_checked_out(&place, &from, &entry).await?;
            if !is_same {
                differing.push(shown(&entry.path));
            }
        }
        Ok(differing)
    }

    /// Keeps what the workspace holds, and leaves its worktree to the next task, or removes it.
    pub(crate) async fn release_place(&self, slug: &str) -> Result<(), GitError> {
        let place = self.worktrees.place(slug);
        let turn = self.turn(slug);
        let _turn = turn.lock().await;
        self.programs.forget(slug).await?;
        allow(&place.dir, 0o700);
        if !place.dir.is_dir() {
            return Ok(());
        }
        let marker = Marker::read(&place.marker);
        if !slug.starts_with(BESIDE) {
            let head = self.branch.head().await?;
            let fallback = (&head, 0, FencingToken(0));
            self.keeper.keep_all(&place, marker.as_ref(), fallback).await?;
            if let Some(marker) = &marker
                && self.pool.put(&place, marker)?
            {
                return Ok(());
            }
        }
        self.worktrees.remove(&place).await
    }

    /// Releases the workspaces of all tasks but these.
    pub(crate) async fn retain_places(&self, live: &[TaskId]) -> Result<(), GitError> {
        let live: Vec<String> = live.iter().map(TaskId::slug).collect();
        let entries = fs::read_dir(&self.worktrees.root)
            .map_err(GitError::io(&self.worktrees.root, "listed"))?;
        let mut failed = None;
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let removed = if name.starts_with(TRASH) {
                self.worktrees.empty_trash(entry.path()).await
            } else if name.starts_with('.') || live.contains(&name) {
                Ok(())
            } else {
                self.release_place(&name).await
            };
            if let Err(err) = removed {
                warn!(workspace = %name, error = %err, "a workspace could not be removed");
                failed = Some(err);
            }
        }
        self.pool.clear(false).await?;
        self.worktrees.forget_missing().await?;
        failed.map_or(Ok(()), Err)
    }

    /// Makes the place with the target as it is.
    pub(crate) async fn open_untouched(&self) -> Result<Workspace, GitError> {
        let turn = self.turn(UNTOUCHED);
        let _turn = turn.lock().await;
        let start = self.branch.head().await?;
        self.open_beside(UNTOUCHED, &start).await
    }

    /// Makes a place with this commit that belongs to no task. The caller sees to it that nobody
    /// else uses the name.
    pub(crate) async fn open_beside(&self, name: &str, start: &Oid) -> Result<Workspace, GitError> {
        let place = self.worktrees.place(name);
        let marker = Marker::read(&place.marker);
        let marker = if marker.is_some() { marker } else { self.pool.take(&place, start).await? };
        let what = Checkout {
            token: FencingToken(0),
            attempt: 0,
            base: start.clone(),
            start: start.clone(),
            sealed: None,
            is_anew: true,
            is_emptied: false,
        };
        self.worktrees.check_out(&place, marker.as_ref(), what).await?;
        self.workspace(&place, start, false)
    }

    fn workspace(&self, place: &Place, base: &Oid, as_left: bool) -> Result<Workspace, GitError> {
        let environment = self.worktrees.variables(place)?;
        let scratch = place.make_scratch()?;
        let workspace = Workspace::new(place.tree.clone(), base.to_change(), place.aside.clone());
        Ok(Workspace { as_left, scratch: Some(scratch), environment, ..workspace })
    }

    /// Removes such a place.
    pub(crate) async fn close_beside(&self, name: &str) -> Result<(), GitError> {
        let place = self.worktrees.place(name);
        match Marker::read(&place.marker) {
            Some(marker) if self.pool.put(&place, &marker)? => Ok(()),
            Some(_) | None => self.worktrees.remove(&place).await,
        }
    }

    /// Keeps what the lease left in its workspace, and says where.
    pub(crate) async fn keep_work(&self, ask: &OpenWorkspace) -> Result<Option<String>, GitError> {
        let place = self.worktrees.place(&ask.task.id.slug());
        let turn = self.turn(&place.slug);
        let _turn = turn.lock().await;
        let marker = self.own_marker(&place, ask)?;
        let fallback = (&marker.start, ask.attempt, ask.token);
        self.keeper.keep_leftover(&place, Some(&marker), fallback).await
    }
}
