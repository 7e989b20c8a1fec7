//! Worktrees that are used again: a task that is done leaves its worktree to the next one.
//!
//! A spare worktree lies below `.pool`, as its last task left it. Git does not know it while nobody has
//! it, and learns of it anew when it is taken: what git noted of the last task (its reflog, say) ends
//! with that. What was worth keeping has been kept. Whoever takes it has it reset, and what the last
//! task ignored removed but for the declared caches. A reset writes only what differs, where a new
//! checkout writes every file.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::debug;

use crate::error::GitError;
use crate::files::{remove_if_there, unique};
use crate::git::oid::Oid;
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;
use crate::worktrees::worktree::Worktrees;

/// The directory of spare worktrees.
const POOL: &str = ".pool";

/// The spare worktrees of a run.
#[derive(Debug)]
pub(crate) struct Pool {
    worktrees: Arc<Worktrees>,
    dir: PathBuf,
    /// The most that are kept.
    spares_max: usize,
}

impl Pool {
    pub(crate) fn of(worktrees: Arc<Worktrees>, spares_max: usize) -> Self {
        Self { dir: worktrees.root.join(POOL), worktrees, spares_max }
    }

    /// The spare worktrees, the one that was used last first.
    fn spares(&self) -> Vec<Place> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.iter().map(|name| Place::new(&self.dir, name)).collect()
    }

    /// Leaves a worktree to the next task; `false` when it cannot be used again, or enough are spare.
    ///
    /// What was in it has been kept before.
    pub(crate) fn put(&self, place: &Place, marker: &Marker) -> Result<bool, GitError> {
        if self.spares().len() >= self.spares_max
            || !self.worktrees.is_registered(place, &marker.name)
        {
            return Ok(false);
        }
        // From here on nobody takes what is in it for work of a task.
        let spare = Marker { is_ready: false, sealed: None, ..marker.clone() };
        spare.write(&place.marker)?;
        remove_if_there(&place.aside)?;
        remove_if_there(&place.scratch())?;
        fs::create_dir_all(&self.dir).map_err(GitError::io(&self.dir, "made"))?;
        let slot = Place::new(&self.dir, &unique());
        fs::rename(&place.dir, &slot.dir).map_err(GitError::io(&place.dir, "moved"))?;
        remove_if_there(&self.worktrees.admin(&marker.name))?;
        self.worktrees.drop_empty();
        Ok(true)
    }

    /// Moves a spare worktree to a place that has none, and says what is known of it.
    pub(crate) async fn take(
        &self,
        place: &Place,
        start: &Oid,
    ) -> Result<Option<Marker>, GitError> {
        if fs::symlink_metadata(&place.dir).is_ok() {
            return Ok(None);
        }
        for slot in self.spares() {
            let Some(mut marker) = known(&slot) else {
                self.worktrees.discard(&slot.dir).await?;
                continue;
            };
            // Another call may be quicker.
            if fs::rename(&slot.dir, &place.dir).is_ok() {
                marker.name = self.worktrees.add_again(place, start).await?;
                debug!(workspace = %place.slug, "a worktree is used again");
                return Ok(Some(marker));
            }
        }
        Ok(None)
    }

    /// Removes spare worktrees that cannot be used, or all of them.
    pub(crate) async fn clear(&self, is_all: bool) -> Result<(), GitError> {
        for slot in self.spares() {
            if is_all || known(&slot).is_none() {
                self.worktrees.discard(&slot.dir).await?;
            }
        }
        Ok(())
    }
}

/// What is known of a spare worktree, if it can be used.
fn known(slot: &Place) -> Option<Marker> {
    Marker::read(&slot.marker).filter(|_| slot.is_real())
}
