//! Worktrees that are used again: a task that is done leaves its worktree to the next one.
//!
//! A spare worktree lies below `.pool`, as its last task left it, together with git's own directory of
//! it: git does not know it while nobody has it. What was worth keeping has been kept. Whoever takes it has it reset, and what the last task ignored removed but for the declared
//! caches. A reset writes only what differs, where a new checkout writes every file.

use std::fs;
use std::io::{
    self,
    ErrorKind::{AlreadyExists, NotFound},
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::debug;

use crate::error::GitError;
use crate::files::{remove_if_there, renew, unique};
use crate::names::bytes_of;
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;
use crate::worktrees::worktree::{ADMIN, Worktrees};

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
        let admin = self.worktrees.admin(&marker.name);
        // The history of submodules that were filled.
        remove_if_there(&admin.join("modules"))?;
        if let Err(err) = fs::rename(&admin, slot.dir.join(ADMIN)) {
            // The repository may lie on another disk; then nothing is gained by keeping it.
            debug!(error = %err, "a worktree cannot be used again");
            fs::rename(&slot.dir, &place.dir).map_err(GitError::io(&slot.dir, "moved"))?;
            return Ok(false);
        }
        self.worktrees.drop_empty();
        Ok(true)
    }

    /// Moves a spare worktree to a place that has none, and says what is known of it.
    pub(crate) async fn take(&self, place: &Place) -> Result<Option<Marker>, GitError> {
        if fs::symlink_metadata(&place.dir).is_ok() {
            return Ok(None);
        }
        for slot in self.spares() {
            let known = Marker::read(&slot.marker).filter(|_| is_whole(&slot));
            let Some(mut marker) = known else {
                self.worktrees.discard(&slot.dir).await?;
                continue;
            };
            // Another call may be quicker.
            if fs::rename(&slot.dir, &place.dir).is_ok() {
                let _turn = self.worktrees.adding.lock().await;
                marker.name = format!("tree-{}", unique());
                self.register(place, &marker.name).await?;
                debug!(workspace = %place.slug, "a worktree is used again");
                return Ok(Some(marker));
            }
        }
        Ok(None)
    }

    /// Removes spare worktrees that cannot be used, or all of them.
    pub(crate) async fn clear(&self, is_all: bool) -> Result<(), GitError> {
        for slot in self.spares() {
            if is_all || !is_whole(&slot) {
                self.worktrees.discard(&slot.dir).await?;
            }
        }
        Ok(())
    }

    /// Has git know a worktree again.
    async fn register(&self, place: &Place, name: &str) -> Result<(), GitError> {
        let (spare, admin) = (place.dir.join(ADMIN), self.worktrees.admin(name));
        // Before git can see it, so that it is never taken for a worktree at another place.
        let mut text = bytes_of(&place.tree.join(".git")).to_vec();
        text.push(b'\n');
        renew(&spare.join("gitdir"), &text)?;
        move_into(&spare, &admin).map_err(GitError::io(&spare, "moved"))?;
        self.worktrees.link(place, name).await
    }
}

/// How often the directory of git's worktrees may be gone again before something is moved into it.
const MOVES_MAX: u32 = 100;

/// Moves a directory to a place in another one, which is made. Whoever gives the last worktree of a
/// repository back, and git, removes that one when it is empty, also in between.
fn move_into(from: &Path, to: &Path) -> io::Result<()> {
    let made_and_moved = || {
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::rename(from, to)
    };
    for _ in 0..MOVES_MAX {
        match made_and_moved() {
            Err(err) if matches!(err.kind(), NotFound | AlreadyExists) && from.exists() => {}
            done => return done,
        }
    }
    made_and_moved()
}

/// Whether all of a spare worktree is there.
fn is_whole(slot: &Place) -> bool {
    slot.is_real() && slot.dir.join(ADMIN).join("commondir").is_file()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_moved_gets_there_though_the_directory_is_removed_whenever_it_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (spare, worktrees) = (dir.path().join("spare"), dir.path().join("worktrees"));
        let (admin, is_over) = (worktrees.join("tree"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::remove_dir(&worktrees).ok();
                }
            });
            for _ in 0..100 {
                fs::create_dir(&spare).unwrap();
                let moved = move_into(&spare, &admin);
                is_over.fetch_or(moved.is_err(), Ordering::Relaxed);
                moved.unwrap();
                fs::remove_dir(&admin).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
