//! The port that gives each task a worktree of its own.

use std::fs;

use async_trait::async_trait;
use orchestrator_core::port::{
    Change, OpenWorkspace, PortError, Room, Sealed, Start, Workspace, Workspaces,
};
use orchestrator_core::{Candidate, ChangeId, FencingToken, RunId, TaskId};
use tracing::warn;

use crate::diff;
use crate::error::GitError;
use crate::files::remove_special;
use crate::marker::Marker;
use crate::names::{Oid, Place, shown};
use crate::run::{GitRun, Inner};
use crate::worktree::{Checkout, TRASH};

/// How the names of places begin that belong to no task; no slug does.
const BESIDE: char = '+';

/// The place with the target as it is.
const UNTOUCHED: &str = "+untouched";

/// Of how many files that differ it is looked whether they are just as a checkout writes them.
const LOOKED_AT_MAX: usize = 64;

#[async_trait]
impl Workspaces for GitRun {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        Ok(self.0.open_workspace(ask).await?)
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        Ok(self.0.seal_work(ask, at).await?)
    }

    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError> {
        Ok(self.0.differing_from(at, from).await?)
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        Ok(self.0.change_of(candidate).await?)
    }

    async fn keep(&self, ask: &OpenWorkspace, _: &Workspace) -> Result<Option<String>, PortError> {
        let place = self.0.place(&ask.task.id.slug());
        let turn = self.0.turn(&place.slug);
        let _turn = turn.lock().await;
        let marker = self.0.own_marker(&place, ask)?;
        let fallback = (&marker.start, ask.attempt, ask.token);
        Ok(self.0.keep_leftover(&place, Some(&marker), fallback).await?)
    }

    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError> {
        self.0.check_run(run)?;
        Ok(self.0.release_place(&task.slug()).await?)
    }

    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        self.0.check_run(run)?;
        Ok(self.0.retain_places(live).await?)
    }

    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError> {
        self.0.check_run(run)?;
        Ok(self.0.open_untouched().await?)
    }

    async fn room(&self, run: &RunId) -> Result<Room, PortError> {
        self.0.check_run(run)?;
        Ok(self.0.room()?)
    }
}

impl Inner {
    async fn open_workspace(&self, ask: &OpenWorkspace) -> Result<Workspace, GitError> {
        self.check_run(&ask.run)?;
        self.make_branch().await?;
        let place = self.place(&ask.task.id.slug());
        let turn = self.turn(&place.slug);
        let _turn = turn.lock().await;
        self.check_turn(&place, ask.token)?;
        let marker = Marker::read(&place.marker);
        if marker.is_none() {
            self.check_room()?;
        }
        let mut start = &ask.start;
        while let Start::AsLeftBy { token, otherwise } = start {
            let is_left = marker.as_ref().filter(|marker| {
                let is_theirs = marker.is_ready && marker.token == *token;
                is_theirs && self.is_registered(&place, &marker.name)
            });
            if let Some(marker) = is_left {
                return self.open_as_left(&place, marker, ask).await;
            }
            start = otherwise;
        }
        let (start, base) = match start {
            Start::On(candidate) => (Oid::of(&candidate.change)?, Oid::of(&candidate.base)?),
            Start::OnTarget | Start::AsLeftBy { .. } => {
                let head = self.head().await?;
                (head.clone(), head)
            }
        };
        let fallback = (&start, ask.attempt, ask.token);
        let is_emptied = self.keep_all(&place, marker.as_ref(), fallback).await?;
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
        let marker = if marker.is_some() { marker } else { self.pool_out(&place).await? };
        self.check_out(&place, marker.as_ref(), what).await?;
        self.note_programs(&place.slug).await?;
        self.workspace(&place, &base, false)
    }

    async fn open_as_left(
        &self,
        place: &Place,
        marker: &Marker,
        ask: &OpenWorkspace,
    ) -> Result<Workspace, GitError> {
        self.link(place, &marker.name).await?;
        self.clear_locks(&marker.name).await?;
        let (token, attempt) = (ask.token, ask.attempt);
        let marker = Marker { token, attempt, sealed: None, ..marker.clone() };
        marker.write(&place.marker)?;
        self.note_programs(&place.slug).await?;
        self.workspace(place, &marker.base, true)
    }

    async fn differing_from(
        &self,
        at: &Workspace,
        from: &ChangeId,
    ) -> Result<Vec<String>, GitError> {
        let from = Oid::of(from)?;
        let place = Place::around(&at.path)
            .filter(Place::is_real)
            .ok_or_else(|| GitError::NoChange { text: at.path.display().to_string() })?;
        remove_special(&place.tree).await?;
        let refresh = ["update-index", "-q", "--really-refresh"];
        self.git.ask(self.in_tree(&place, refresh).await?).await?;
        let args = ["diff-index", "-z", "--raw", "--no-renames", "--no-ext-diff"];
        let call = self.in_tree(&place, args).await?;
        let call = call.arg("--ignore-submodules=dirty").arg(from.as_str());
        let answer = self.git.run(call).await?;
        let mut differing = Vec::new();
        for (number, entry) in diff::entries(&answer.stdout).into_iter().enumerate() {
            let is_same =
                number < LOOKED_AT_MAX && self.is_as_checked_out(&place, &from, &entry).await?;
            if !is_same {
                differing.push(shown(&entry.path));
            }
        }
        Ok(differing)
    }

    /// Keeps what the workspace holds, and leaves its worktree to the next task, or removes it.
    async fn release_place(&self, slug: &str) -> Result<(), GitError> {
        let place = self.place(slug);
        let turn = self.turn(slug);
        let _turn = turn.lock().await;
        self.forget_programs(slug).await?;
        if !place.dir.is_dir() {
            return Ok(());
        }
        let marker = Marker::read(&place.marker);
        if !slug.starts_with(BESIDE) {
            let head = self.head().await?;
            let fallback = (&head, 0, FencingToken(0));
            self.keep_all(&place, marker.as_ref(), fallback).await?;
            if let Some(marker) = &marker
                && self.pool_in(&place, marker)?
            {
                return Ok(());
            }
        }
        self.remove(&place).await
    }

    async fn retain_places(&self, live: &[TaskId]) -> Result<(), GitError> {
        let live: Vec<String> = live.iter().map(TaskId::slug).collect();
        let entries = fs::read_dir(&self.root).map_err(GitError::io(&self.root, "listed"))?;
        let mut failed = None;
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let removed = if name.starts_with(TRASH) {
                self.empty_trash(entry.path()).await
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
        self.clear_pool(false).await?;
        self.forget_missing().await?;
        failed.map_or(Ok(()), Err)
    }

    async fn open_untouched(&self) -> Result<Workspace, GitError> {
        let turn = self.turn(UNTOUCHED);
        let _turn = turn.lock().await;
        let start = self.head().await?;
        self.open_beside(UNTOUCHED, &start).await
    }

    /// Makes a place with this commit that belongs to no task. The caller sees to it that nobody
    /// else uses the name.
    pub(crate) async fn open_beside(&self, name: &str, start: &Oid) -> Result<Workspace, GitError> {
        let place = self.place(name);
        let marker = Marker::read(&place.marker);
        let marker = if marker.is_some() { marker } else { self.pool_out(&place).await? };
        let what = Checkout {
            token: FencingToken(0),
            attempt: 0,
            base: start.clone(),
            start: start.clone(),
            sealed: None,
            is_anew: true,
            is_emptied: false,
        };
        self.check_out(&place, marker.as_ref(), what).await?;
        self.workspace(&place, start, false)
    }

    fn workspace(&self, place: &Place, base: &Oid, as_left: bool) -> Result<Workspace, GitError> {
        let environment = self.variables(place)?;
        let scratch = place.make_scratch()?;
        let workspace = Workspace::new(place.tree.clone(), base.to_change(), place.aside.clone());
        Ok(Workspace { as_left, scratch: Some(scratch), environment, ..workspace })
    }

    /// Removes such a place.
    pub(crate) async fn close_beside(&self, name: &str) -> Result<(), GitError> {
        let place = self.place(name);
        match Marker::read(&place.marker) {
            Some(marker) if self.pool_in(&place, &marker)? => Ok(()),
            Some(_) | None => self.remove(&place).await,
        }
    }
}
