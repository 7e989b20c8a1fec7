//! Whether there is room for more work.

use std::sync::Arc;

use tracing::{debug, warn};

use super::shield::{WORKSPACES, caught};
use super::{Ports, view};
use crate::id::RunId;
use crate::port::{Observer, PortError, Room, Workspaces};

/// The room that there is. As the port has it, what cannot be found out holds nothing up.
pub(super) async fn room_in(workspaces: &dyn Workspaces, run: &RunId) -> Room {
    let asked = caught(WORKSPACES, async { workspaces.room(run).await }).await;
    asked.map_err(PortError::from).flatten().unwrap_or_else(|err| {
        debug!(error = %err.chain(), "it is not known whether there is room");
        Room::Enough
    })
}

/// Looks whether there is room, and tells when that changes.
pub(super) struct RoomWatch {
    run: RunId,
    workspaces: Arc<dyn Workspaces>,
    observer: Arc<dyn Observer>,
    /// Whether there was some when it was last looked.
    pub(super) has_room: bool,
}

impl RoomWatch {
    pub(super) fn new(ports: &Ports, run: RunId) -> Self {
        let (workspaces, observer) = (Arc::clone(&ports.workspaces), Arc::clone(&ports.observer));
        Self { run, workspaces, observer, has_room: true }
    }

    /// Whether there is room now.
    pub(super) async fn look(&mut self) -> bool {
        let room = room_in(&*self.workspaces, &self.run).await;
        let has_room = room == Room::Enough;
        if has_room != self.has_room {
            self.has_room = has_room;
            if has_room {
                warn!("there is room again: the run goes on");
            } else {
                warn!(%room, "nothing is granted until there is room");
            }
            view::show_room(&*self.observer, &room);
        }
        has_room
    }
}
