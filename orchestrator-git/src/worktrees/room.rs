//! The room that workspaces need on the disk.

use std::path::PathBuf;

use orchestrator_core::port::Room;

use crate::error::GitError;

/// The disks that a run fills.
#[derive(Debug)]
pub(crate) struct Disks {
    /// A place on each.
    pub(crate) places: [PathBuf; 2],
    /// What has to be free.
    pub(crate) free_bytes_min: Option<u64>,
}

impl Disks {
    /// Refuses to open a workspace on a disk that is nearly full: it may have become so since the
    /// stage was granted.
    pub(crate) fn check(&self) -> Result<(), GitError> {
        match self.room()? {
            Room::Enough => Ok(()),
            Room::Short { place: root, free_bytes: free, wanted_bytes: low_water } => {
                Err(GitError::NoRoom { root, free, low_water })
            }
        }
    }

    /// Whether there is room on the disks of the workspaces and of the repository.
    pub(crate) fn room(&self) -> Result<Room, GitError> {
        let Some(wanted_bytes) = self.free_bytes_min else { return Ok(Room::Enough) };
        for place in &self.places {
            let disk = rustix::fs::statvfs(place)
                .map_err(|err| GitError::io(place, "looked at")(err.into()))?;
            let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            if free_bytes < wanted_bytes {
                return Ok(Room::Short { place: place.clone(), free_bytes, wanted_bytes });
            }
        }
        Ok(Room::Enough)
    }
}
