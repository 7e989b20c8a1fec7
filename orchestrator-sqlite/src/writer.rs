//! The connection that writes, with what must be true before and done after each write.

use orchestrator_core::port::{Commit, CommitError, StoreError};
use orchestrator_core::{Answer, CommandId, OwnerId, RunId, Seq, Timestamp};
use rusqlite::Connection;

use crate::log::{Log, Size};
use crate::owner::Claim;
use crate::place::{Displaced, FilePlace};
use crate::{repair, write};

/// Writes to one file.
#[derive(Debug)]
pub(crate) struct Writer {
    conn: Connection,
    place: FilePlace,
    log: Log,
    claim: Option<Claim>,
}

impl Writer {
    pub(crate) const fn new(
        conn: Connection,
        place: FilePlace,
        log: Log,
        claim: Option<Claim>,
    ) -> Self {
        Self { conn, place, log, claim }
    }

    /// What is written to a file that was removed, or that another owner took, would be lost.
    fn check(&self) -> Result<(), Displaced> {
        self.place.check()?;
        self.claim.as_ref().map_or(Ok(()), Claim::check)
    }

    pub(crate) fn commit(&mut self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError> {
        let displaced = |err| CommitError::Failed(StoreError::Unavailable(Box::new(err)));
        self.check().map_err(displaced)?;
        let full = |full| CommitError::Full(Box::new(full));
        self.log.make_room(&self.conn, Size::Any).map_err(full)?;
        write::commit(&mut self.conn, run, commit)
    }

    pub(crate) fn answer(
        &mut self,
        run: &RunId,
        command: &CommandId,
    ) -> Result<Option<Answer>, StoreError> {
        write::answer(&mut self.conn, run, command)
    }

    pub(crate) fn touch(
        &mut self,
        run: &RunId,
        owner: &OwnerId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.change(Size::Small, |conn| write::touch(conn, run, owner, now))
    }

    pub(crate) fn prune(&mut self, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
        self.change(Size::Any, |conn| write::prune(conn, run, up_to))
    }

    pub(crate) fn repair(&mut self, run: &RunId) -> Result<Vec<String>, StoreError> {
        self.change(Size::Any, |conn| repair::repair(conn, run))
    }

    fn change<T>(
        &mut self,
        size: Size,
        write: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check().map_err(|err| StoreError::Unavailable(Box::new(err)))?;
        // Who reads without a break holds the store, and is gone at some time.
        let full = |full| StoreError::Busy(Box::new(full));
        self.log.make_room(&self.conn, size).map_err(full)?;
        write(&mut self.conn)
    }

    #[cfg(test)]
    pub(crate) const fn conn(&mut self) -> &mut Connection {
        &mut self.conn
    }
}
