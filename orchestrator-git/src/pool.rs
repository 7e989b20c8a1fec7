//! Worktrees that are used again: a task that is done leaves its worktree to the next one.
//!
//! A spare worktree lies below `.pool`, as its last task left it; what was worth keeping has been
//! kept. Whoever takes it has it reset, and what the last task ignored removed but for the declared
//! caches. A reset writes only what differs, where a new checkout writes every file.

use std::fs;
use std::path::PathBuf;

use tracing::debug;

use crate::error::GitError;
use crate::marker::{Marker, replace};
use crate::names::{Place, bytes_of};
use crate::run::Inner;
use crate::worktree::{remove_if_there, unique};

/// The directory of spare worktrees.
const POOL: &str = ".pool";

impl Inner {
    fn pool(&self) -> PathBuf {
        self.root.join(POOL)
    }

    /// The spare worktrees, the one that was used last first.
    fn spares(&self) -> Vec<Place> {
        let entries = fs::read_dir(self.pool()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.iter().map(|name| Place::new(&self.pool(), name)).collect()
    }

    /// Leaves a worktree to the next task; `false` when it cannot be used again, or enough are spare.
    ///
    /// What was in it has been kept before.
    pub(crate) fn pool_in(&self, place: &Place, marker: &Marker) -> Result<bool, GitError> {
        if self.spares().len() >= self.config.spares_max
            || !self.is_registered(place, &marker.name)
        {
            return Ok(false);
        }
        // From here on nobody takes what is in it for work of a task.
        let spare = Marker { is_ready: false, sealed: None, ..marker.clone() };
        spare.write(&place.marker)?;
        remove_if_there(&place.aside)?;
        fs::create_dir_all(self.pool()).map_err(GitError::io(&self.pool(), "made"))?;
        let slot = Place::new(&self.pool(), &unique());
        fs::rename(&place.dir, &slot.dir).map_err(GitError::io(&place.dir, "moved"))?;
        self.tie(&slot, &marker.name)?;
        Ok(true)
    }

    /// Moves a spare worktree to a place that has none, and says what is known of it.
    pub(crate) async fn pool_out(&self, place: &Place) -> Result<Option<Marker>, GitError> {
        if fs::symlink_metadata(&place.dir).is_ok() {
            return Ok(None);
        }
        for slot in self.spares() {
            let known = Marker::read(&slot.marker);
            let Some(marker) = known.filter(|known| self.is_registered(&slot, &known.name)) else {
                self.discard_spare(&slot).await?;
                continue;
            };
            // Another call may be quicker.
            if fs::rename(&slot.dir, &place.dir).is_ok() {
                self.tie(place, &marker.name)?;
                debug!(workspace = %place.slug, "a worktree is used again");
                return Ok(Some(marker));
            }
        }
        Ok(None)
    }

    /// Removes spare worktrees that git does not know any more, or all of them.
    pub(crate) async fn clear_pool(&self, is_all: bool) -> Result<(), GitError> {
        for slot in self.spares() {
            let known = Marker::read(&slot.marker);
            let is_good = known.is_some_and(|known| self.is_registered(&slot, &known.name));
            if is_all || !is_good {
                self.discard_spare(&slot).await?;
            }
        }
        Ok(())
    }

    async fn discard_spare(&self, slot: &Place) -> Result<(), GitError> {
        if slot.dir.exists() { self.remove(slot).await } else { Ok(()) }
    }

    /// Tells git where a worktree lies now.
    fn tie(&self, place: &Place, name: &str) -> Result<(), GitError> {
        let gitdir = self.admin(name).join("gitdir");
        let mut text = bytes_of(&place.tree.join(".git")).to_vec();
        text.push(b'\n');
        replace(&gitdir, &text).map_err(GitError::io(&gitdir, "written"))
    }
}
