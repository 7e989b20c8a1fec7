//! Fences: a ref for each task with the number of its last lease, which every merge checks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use orchestrator_core::{FencingToken, TaskId};

use crate::branch::remote::Remote;
use crate::error::GitError;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::Refs;

/// How often it is tried to raise a fence that others move.
const TRIES_MAX: u32 = 3;

/// The fences of a run.
#[derive(Debug)]
pub(crate) struct Fences {
    git: Arc<Git>,
    refs: Refs,
    /// The other side, which has them too.
    remote: Option<Arc<Remote>>,
    /// The numbers in the blobs.
    known: Mutex<HashMap<Oid, FencingToken>>,
}

impl Fences {
    pub(crate) fn new(git: Arc<Git>, refs: Refs, remote: Option<Arc<Remote>>) -> Self {
        Self { git, refs, remote, known: Mutex::default() }
    }

    /// The name of the blob that the fence of a lease points to.
    pub(crate) fn blob(&self, token: FencingToken) -> Oid {
        self.git.format.name_of("blob", token.to_string().as_bytes())
    }

    /// Refuses from now on what earlier leases of the task do, here and on the other side.
    pub(crate) async fn raise(&self, task: &TaskId, token: FencingToken) -> Result<(), GitError> {
        let name = self.refs.fence(task);
        let blob = self.git.write_object("blob", token.to_string().into_bytes()).await?;
        self.raise_here(&name, token, &blob).await?;
        match &self.remote {
            Some(remote) => self.raise_there(remote, &name, token, &blob).await,
            None => Ok(()),
        }
    }

    async fn raise_here(
        &self,
        name: &str,
        token: FencingToken,
        blob: &Oid,
    ) -> Result<(), GitError> {
        let mut tries = 0;
        loop {
            let old = self.git.tip(name).await?;
            if let Some(old) = &old
                && (old == blob || self.token_at(name, old).await? >= token)
            {
                return Ok(());
            }
            let none = blob.none_like();
            let expected = old.as_ref().unwrap_or(&none);
            let moved = self.git.transact(&format!("update {name} {blob} {expected}\n")).await?;
            if moved.code == 0 {
                self.note(blob.clone(), token);
                return Ok(());
            }
            // Somebody else moved it: look again.
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(moved.failed("update-ref"));
            }
        }
    }

    async fn raise_there(
        &self,
        remote: &Remote,
        name: &str,
        token: FencingToken,
        blob: &Oid,
    ) -> Result<(), GitError> {
        let mut tries = 0;
        loop {
            let old = remote.standing(name, name).await?.fence;
            if let Some(old) = &old
                && (old == blob || self.token_there(remote, name, old).await? >= token)
            {
                return Ok(());
            }
            let pushed = remote.push(&[(name, old.as_ref(), blob)]).await?;
            if pushed.code == 0 {
                return Ok(());
            }
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(pushed.failed("push"));
            }
        }
    }

    /// The greatest number of any fence, here or on the other side.
    pub(crate) async fn greatest(&self) -> Result<FencingToken, GitError> {
        let below = self.refs.fences();
        let mut greatest = FencingToken::default();
        if let Some(remote) = &self.remote {
            let theirs = remote.fences(&below).await?;
            greatest = theirs.iter().filter_map(|blob| token_in(blob)).max().unwrap_or_default();
        }
        for fence in self.git.refs(&[&below]).await? {
            let token = token_in(&fence.raw).ok_or_else(|| holds_none("for-each-ref", &fence.name));
            greatest = greatest.max(token?);
        }
        Ok(greatest)
    }

    /// The number in the blob that a fence points to.
    async fn token_at(&self, name: &str, blob: &Oid) -> Result<FencingToken, GitError> {
        if let Some(known) = self.known(blob) {
            return Ok(known);
        }
        let text = self.git.object("blob", blob).await?;
        let token = text.as_deref().and_then(token_in);
        let token = token.ok_or_else(|| holds_none("cat-file", name))?;
        self.note(blob.clone(), token);
        Ok(token)
    }

    async fn token_there(
        &self,
        remote: &Remote,
        name: &str,
        blob: &Oid,
    ) -> Result<FencingToken, GitError> {
        if self.known(blob).is_none() {
            remote.fetch(name).await?;
        }
        self.token_at(name, blob).await
    }

    fn note(&self, blob: Oid, token: FencingToken) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(blob, token);
    }

    fn known(&self, blob: &Oid) -> Option<FencingToken> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(blob).copied()
    }
}

/// The number in a fence's blob.
fn token_in(blob: &[u8]) -> Option<FencingToken> {
    let text = std::str::from_utf8(blob).ok()?;
    text.lines().next()?.trim().parse().ok().map(FencingToken)
}

fn holds_none(command: &str, fence: &str) -> GitError {
    let answer = format!("{fence} holds no number");
    GitError::Unexpected { command: command.to_owned(), answer }
}
