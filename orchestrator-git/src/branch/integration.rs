//! The branch that is merged into: what may be it, where it stands, and how it is moved.
//!
//! Where there is a remote, its branch of the same name has the truth, and the one here follows.

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::FencingToken;
use orchestrator_core::port::Applied;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::sleep;
use tracing::info;

use crate::branch::remote::Remote;
use crate::config::GitConfig;
use crate::error::GitError;
use crate::git::exec::Call;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::{Refs, short};

/// How often a transaction is tried that failed though everything stands as it should.
const TRIES_MAX: u32 = 3;

/// The names of the branches of a run.
#[derive(Debug, Clone)]
pub(crate) struct BranchNames {
    /// The one that is started from, without `refs/heads/`.
    pub(crate) target: String,
    /// The full name of the one that is merged into.
    pub(crate) integration: String,
}

impl BranchNames {
    /// Those that are configured, or the usual ones.
    pub(crate) async fn find(git: &Git, config: &GitConfig) -> Result<Self, GitError> {
        let target = target(git, config).await?;
        let integration = match &config.integration {
            Some(branch) => branch.clone(),
            None => format!("orchestrator/{}", config.run.slug()),
        };
        check_name(git, &integration).await?;
        // As branches git can keep these, and means something else by them wherever it is asked.
        if matches!(integration.as_str(), "HEAD" | "@") {
            return Err(GitError::BranchName { branch: integration });
        }
        if integration == target {
            // The run's own branch is the target only where a person looks at it.
            let own = config.integration.is_none() && config.target.is_none();
            return Err(match git.checkout.clone().filter(|_| own) {
                Some(worktree) => GitError::BranchCheckedOut { branch: integration, worktree },
                None => GitError::BranchIsTarget { branch: integration },
            });
        }
        Ok(Self { target, integration: format!("refs/heads/{integration}") })
    }
}

/// The branch that is merged into.
#[derive(Debug)]
pub(crate) struct Branch {
    git: Arc<Git>,
    refs: Refs,
    /// Its full name.
    pub(crate) name: String,
    /// The branch that it begins from.
    pub(crate) target: String,
    /// The repository whose branch it follows.
    remote: Option<Arc<Remote>>,
    /// Set once it is there.
    made: OnceCell<()>,
    /// One follows at a time: what another saw earlier would move the branch here back.
    following: Mutex<()>,
}

/// A move of the branch to a merge.
pub(crate) struct Move<'a> {
    /// The ref of the task's fence.
    pub(crate) fence: String,
    /// What it has to point to.
    pub(crate) blob: Oid,
    pub(crate) token: FencingToken,
    pub(crate) onto: &'a Oid,
    pub(crate) merged: &'a Oid,
}

impl Branch {
    /// The branch of this name; what may be one is for [`check`].
    pub(crate) fn new(
        git: Arc<Git>,
        refs: Refs,
        names: BranchNames,
        remote: Option<Arc<Remote>>,
    ) -> Self {
        let BranchNames { target, integration: name } = names;
        let (made, following) = (OnceCell::new(), Mutex::default());
        Self { git, refs, name, target, remote, made, following }
    }

    /// Refuses a branch on the other side that cannot be merged into.
    pub(crate) async fn check_there(&self) -> Result<(), GitError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        remote.refuse_taken(&self.name).await?;
        let merged = Merged::so_far(&self.git, &self.refs).await?;
        if remote.branch(&self.name).await?.is_none() {
            let ours = self.git.tip(&self.name).await?;
            merged.check_in(&self.name, ours.as_ref()).await?;
        }
        Ok(())
    }

    /// Makes the branch where it is missing.
    pub(crate) async fn make(&self) -> Result<(), GitError> {
        let make = || async {
            if self.git.tip(&self.name).await?.is_none() {
                let start = self.head().await?;
                let made = self.git.transact(&format!("create {} {start}\n", self.name)).await?;
                if self.git.tip(&self.name).await?.is_none() {
                    return Err(made.failed("update-ref"));
                }
            }
            self.refuse_taken().await?;
            self.follow().await
        };
        self.made.get_or_try_init(make).await.copied()
    }

    /// Refuses to move a branch that somebody has checked out, here or on the other side.
    async fn refuse_taken(&self) -> Result<(), GitError> {
        self.git.refuse_taken(&self.name).await?;
        match &self.remote {
            Some(remote) => remote.refuse_taken(&self.name).await,
            None => Ok(()),
        }
    }

    /// Where it stands, or will when it is made.
    pub(crate) async fn head(&self) -> Result<Oid, GitError> {
        let merged = Merged::so_far(&self.git, &self.refs).await?;
        let (ours, theirs) = match self.git.tip(&self.name).await? {
            Some(ours) => (Some(ours), None),
            None => (None, self.theirs().await?),
        };
        // On the other side it is looked for when it is followed.
        if theirs.is_none() && (ours.is_none() || self.remote.is_none()) {
            merged.check_in(&self.name, ours.as_ref()).await?;
        }
        match ours.or(theirs) {
            Some(found) => Ok(found),
            None => head_of(&self.git, &self.target).await,
        }
    }

    /// Where it stands, on the other side where there is one.
    pub(crate) async fn present(&self) -> Result<Oid, GitError> {
        self.follow().await?;
        self.head().await
    }

    async fn tip(&self) -> Result<Oid, GitError> {
        let tip = self.git.tip(&self.name).await?;
        tip.ok_or_else(|| GitError::NoChange { text: self.name.clone() })
    }

    /// Where it stands on the other side, with all that is in it.
    async fn theirs(&self) -> Result<Option<Oid>, GitError> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let theirs = remote.branch(&self.name).await?;
        if theirs.is_some() {
            remote.fetch(&self.name).await?;
        }
        Ok(theirs)
    }

    /// Takes over where it stands on the other side; makes it there where it is missing.
    pub(crate) async fn follow(&self) -> Result<(), GitError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let _turn = self.following.lock().await;
        let branch = self.name.as_str();
        let merged = Merged::so_far(&self.git, &self.refs).await?;
        let mut theirs = remote.branch(branch).await?;
        if theirs.is_none() {
            let start = self.head().await?;
            let pushed = remote.push(&[(branch, None, &start)]).await?;
            theirs = remote.branch(branch).await?;
            if theirs.is_none() {
                return Err(pushed.failed("push"));
            }
        }
        let ours = self.git.tip(branch).await?;
        let Some(theirs) = theirs.filter(|theirs| Some(theirs) != ours.as_ref()) else {
            return Ok(());
        };
        self.refuse_taken().await?;
        remote.fetch(branch).await?;
        merged.check_in(branch, Some(&theirs)).await?;
        let none = theirs.none_like();
        let ours = ours.unwrap_or(none);
        let moved = self.git.transact(&format!("update {branch} {theirs} {ours}\n")).await?;
        if moved.code == 0 || self.git.tip(branch).await?.as_ref() == Some(&theirs) {
            return Ok(());
        }
        Err(moved.failed("update-ref"))
    }

    /// Moves it to a merge, if it and the fence stand where they should; in one transaction.
    pub(crate) async fn advance(&self, to: &Move<'_>) -> Result<Applied, GitError> {
        if self.git.tip(&to.fence).await?.as_ref() != Some(&to.blob) {
            return Ok(Applied::Fenced);
        }
        match &self.remote {
            Some(remote) => self.advance_there(remote, to).await,
            None => self.advance_here(to).await,
        }
    }

    async fn advance_here(&self, to: &Move<'_>) -> Result<Applied, GitError> {
        let Move { fence, blob, onto, merged, .. } = to;
        let mut tries = 0;
        loop {
            let stands = self.tip().await?;
            if stands != **onto {
                // A transaction may have gone through and its answer been lost.
                let is_in = self.git.is_ancestor(merged.as_str(), stands.as_str()).await?;
                return Ok(if is_in { Applied::Merged } else { Applied::Moved });
            }
            self.refuse_taken().await?;
            let lines = format!(
                "verify {fence} {blob}\nupdate {} {merged} {onto}\nupdate {} {merged}\n",
                self.name,
                self.refs.merged()
            );
            let moved = self.git.transact(&lines).await?;
            if moved.code == 0 {
                return Ok(Applied::Merged);
            }
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(moved.failed("update-ref"));
            }
            sleep(Duration::from_millis(20)).await;
            if self.git.tip(fence).await?.as_ref() != Some(blob) {
                return Ok(Applied::Fenced);
            }
        }
    }

    /// The same on the other side. The fence there moves with the branch, so that it is checked in
    /// the very transaction.
    async fn advance_there(&self, remote: &Remote, to: &Move<'_>) -> Result<Applied, GitError> {
        let Move { fence, blob, token, onto, merged } = to;
        let branch = self.name.as_str();
        let used = format!("{token}\nmerged {merged}\n").into_bytes();
        let used = self.git.write_object("blob", used).await?;
        let mut tries = 0;
        loop {
            let theirs = remote.standing(branch, fence).await?;
            if theirs.branch.as_ref() != Some(*onto) {
                // A push may have gone through and its answer been lost.
                self.follow().await?;
                let tip = self.tip().await?;
                if !self.git.is_ancestor(merged.as_str(), tip.as_str()).await? {
                    return Ok(Applied::Moved);
                }
                self.note_merged(merged).await?;
                return Ok(Applied::Merged);
            }
            if theirs.fence.as_ref() != Some(blob) {
                return Ok(Applied::Fenced);
            }
            // The branch here has to follow.
            self.refuse_taken().await?;
            let moves = [(branch, Some(*onto), *merged), (fence, Some(blob), &used)];
            let pushed = remote.push(&moves).await?;
            if pushed.code == 0 {
                self.follow().await?;
                self.note_merged(merged).await?;
                return Ok(Applied::Merged);
            }
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(pushed.failed("push"));
            }
        }
    }

    /// Notes where it stood after a merge.
    async fn note_merged(&self, merged: &Oid) -> Result<(), GitError> {
        let noted = self.git.transact(&format!("update {} {merged}\n", self.refs.merged())).await?;
        if noted.code == 0 { Ok(()) } else { Err(noted.failed("update-ref")) }
    }
}

/// The branch that is started from.
async fn target(git: &Git, config: &GitConfig) -> Result<String, GitError> {
    if let Some(target) = &config.target {
        check_name(git, target).await?;
        // By another name it would be compared with no checkout, and a fast-forward would end the name.
        return match git.stands_for(&format!("refs/heads/{target}")).await? {
            None => Ok(target.clone()),
            Some(meant) => meant.strip_prefix("refs/heads/").map(str::to_owned).ok_or_else(|| {
                let (branch, other) = (target.clone(), meant.clone());
                GitError::BranchSymbolic { branch, other, repository: git.path.clone() }
            }),
        };
    }
    let call = Call::new(&git.path, ["symbolic-ref", "-q", "HEAD"]);
    let head = git.ask(call).await?;
    let name = head.text();
    match name.strip_prefix("refs/heads/") {
        Some(branch) if head.code == 0 => Ok(branch.to_owned()),
        _ => Err(GitError::NoTarget { path: git.path.clone() }),
    }
}

/// Refuses what is no name of a branch.
async fn check_name(git: &Git, branch: &str) -> Result<(), GitError> {
    let call = git.plumbing(["check-ref-format", &format!("refs/heads/{branch}")]);
    if branch.starts_with('-') || git.ask(call).await?.code != 0 {
        return Err(GitError::BranchName { branch: branch.to_owned() });
    }
    Ok(())
}

/// Where a branch stands.
pub(crate) async fn head_of(git: &Git, branch: &str) -> Result<Oid, GitError> {
    let name = format!("refs/heads/{branch}^{{commit}}");
    match git.resolve([&name]).await {
        Ok([oid]) => Ok(oid),
        Err(GitError::NoChange { .. }) => {
            Err(GitError::NoCommit { path: git.path.clone(), branch: branch.to_owned() })
        }
        Err(err) => Err(err),
    }
}

/// Refuses a branch that cannot be merged into; tries whether it can be made, and takes that back.
pub(crate) async fn check(
    git: &Git,
    refs: &Refs,
    name: &str,
    start: &Oid,
    has_remote: bool,
) -> Result<(), GitError> {
    let merged = Merged::so_far(git, refs).await?;
    match git.tip(name).await? {
        Some(tip) if !has_remote => merged.check_in(name, Some(&tip)).await?,
        Some(_) => {}
        None => {
            if !has_remote {
                merged.check_in(name, None).await?;
            }
            let tried = git.rehearse(&format!("create {name} {start}\n")).await?;
            if tried.code != 0 {
                return Err(GitError::BranchName { branch: short(name).to_owned() });
            }
        }
    }
    if git.tip(&refs.merged()).await?.is_none() {
        let tried = git.rehearse(&format!("create {} {start}\n", refs.merged())).await?;
        if tried.code != 0 {
            return Err(GitError::RefsTaken { root: refs.root().to_owned(), why: tried.stderr });
        }
    }
    git.refuse_taken(name).await
}

/// Where the branch stood after the last merge. It is looked for before the branch is: one that was
/// looked at earlier has not what was merged meanwhile.
struct Merged<'a> {
    git: &'a Git,
    record: String,
    last: Option<Oid>,
}

impl<'a> Merged<'a> {
    async fn so_far(git: &'a Git, refs: &Refs) -> Result<Self, GitError> {
        let record = refs.merged();
        let last = git.tip(&record).await?;
        Ok(Self { git, record, last })
    }

    /// Refuses a branch that has not all that the run merged into it, because somebody removed it or
    /// moved it back. Commits of others are welcome, and said: nobody has looked whether they keep to
    /// anything.
    async fn check_in(self, name: &str, stands: Option<&Oid>) -> Result<(), GitError> {
        let Self { git, record, last } = self;
        let Some(last) = last.filter(|last| Some(last) != stands) else { return Ok(()) };
        let (branch, last_text) = (short(name).to_owned(), last.to_string());
        let Some(stands) = stands else {
            return Err(GitError::BranchGone { branch, last: last_text, record });
        };
        if git.is_ancestor(last.as_str(), stands.as_str()).await? {
            info!(%branch, from = %last, to = %stands, "the branch was moved on by others");
            return Ok(());
        }
        let stands = stands.to_string();
        Err(GitError::BranchMovedBack { branch, stands, last: last_text, record })
    }
}
