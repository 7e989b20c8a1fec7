//! A branch in another repository on disk, moved by compare-and-swap.
//!
//! The other repository has the truth: its branch and the fences of the run. The branch of the same
//! name here follows it. Git is called with a directory of our own, so that nothing in either
//! repository's configuration leads it elsewhere, and its hooks do not run.

use std::path::{Path, PathBuf};

use orchestrator_core::FencingToken;
use orchestrator_core::port::Applied;

use crate::apart::Apart;
use crate::error::GitError;
use crate::exec::{Answer, Call, Caller};
use crate::integrator::token_in;
use crate::names::Oid;
use crate::repository::Git;
use crate::run::Inner;

/// How git is started on the other side.
const UPLOAD: &str =
    "--upload-pack=git -c safe.directory=* -c core.hooksPath=/dev/null upload-pack";
const RECEIVE: &str = "--receive-pack=git -c safe.directory=* -c core.hooksPath=/dev/null \
                       -c core.alternateRefsCommand=true -c receive.denyCurrentBranch=refuse \
                       -c receive.autogc=false -c core.fsync=all receive-pack";

/// The other repository.
#[derive(Debug)]
pub(crate) struct Remote {
    /// How it is looked at without a push or a fetch.
    git: Git,
    path: PathBuf,
    /// What git is called with.
    apart: Apart,
}

/// How something stands on the other side, as one answer of it has it.
struct Standing {
    branch: Option<Oid>,
    fence: Option<Oid>,
}

impl Remote {
    /// Finds the other repository.
    pub(crate) async fn open(git: &Git, path: &Path, apart: Apart) -> Result<Self, GitError> {
        let refused =
            |why: String| GitError::Remote { path: path.to_owned(), why: why.trim().to_owned() };
        let theirs = Git::open(Caller::new(&git.caller.program), path).await;
        let theirs = theirs.map_err(|err| refused(err.to_string()))?;
        if !theirs.is_bare {
            return Err(refused("it has a checkout".to_owned()));
        }
        if theirs.format != git.format {
            let (theirs, ours) = (theirs.format.name(), git.format.name());
            let why = format!("its objects are named by {theirs}, and not by {ours}");
            return Err(refused(why));
        }
        let remote = Self { path: theirs.path.clone(), git: theirs, apart };
        let asked = git.ask(remote.call(["ls-remote", UPLOAD]).arg(&remote.path)).await?;
        if asked.code != 0 {
            return Err(refused(asked.stderr));
        }
        Ok(remote)
    }

    /// Refuses a branch there that is checked out, or another name of one: a push would move that.
    pub(crate) async fn refuse_taken(&self, branch: &str) -> Result<(), GitError> {
        self.git.refuse_taken(branch).await
    }

    /// A call that knows the objects of our repository and nothing of its configuration.
    fn call<const N: usize>(&self, args: [&str; N]) -> Call {
        self.apart
            .call(args)
            .env("GIT_ALLOW_PROTOCOL", "file")
            .config(&[("protocol.file.allow".into(), "always".into())])
    }

    async fn standing(&self, git: &Git, branch: &str, fence: &str) -> Result<Standing, GitError> {
        let call = self.call(["ls-remote", UPLOAD]).arg(&self.path).args([branch, fence]);
        let answer = git.run(call).await?;
        let text = answer.text();
        let find = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(_, found)| *found == name).and_then(|(oid, _)| Oid::parse(oid))
        };
        Ok(Standing { branch: find(branch), fence: find(fence) })
    }

    /// Where a branch stands there.
    pub(crate) async fn branch(&self, git: &Git, branch: &str) -> Result<Option<Oid>, GitError> {
        Ok(self.standing(git, branch, branch).await?.branch)
    }

    /// Brings the objects of a ref here.
    async fn fetch(&self, git: &Git, name: &str) -> Result<(), GitError> {
        let args = ["fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", UPLOAD];
        let call = self.call(args).arg(&self.path).arg(format!("+{name}:{name}"));
        git.run(call).await.map(drop)
    }

    /// Moves refs, all of them or none, if each stands where it is expected to.
    async fn push(
        &self,
        git: &Git,
        moves: &[(&str, Option<&Oid>, &Oid)],
    ) -> Result<Answer, GitError> {
        let mut call = self.call(["push", "-q", "--atomic", "--porcelain", "--no-signed", RECEIVE]);
        for (name, expected, _) in moves {
            let expected = expected.map_or("", |oid| oid.as_str());
            call = call.arg(format!("--force-with-lease={name}:{expected}"));
        }
        call = call.arg(&self.path);
        for (name, _, to) in moves {
            call = call.arg(format!("{to}:{name}"));
        }
        let mut answer = git.ask(call).await?;
        if answer.code != 0 {
            // Why it was refused stands with the refs.
            let text = answer.text();
            let refused = text.lines().filter(|line| line.starts_with('!'));
            answer.stderr = refused.chain([answer.stderr.as_str()]).collect::<Vec<_>>().join("\n");
        }
        Ok(answer)
    }
}

impl Inner {
    /// Where the branch stands on the other side, with all that is in it.
    pub(crate) async fn theirs(&self) -> Result<Option<Oid>, GitError> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let theirs = remote.branch(&self.git, &self.integration).await?;
        if theirs.is_some() {
            remote.fetch(&self.git, &self.integration).await?;
        }
        Ok(theirs)
    }

    /// Takes over where the branch stands on the other side; makes it there where it is missing.
    pub(crate) async fn follow_remote(&self) -> Result<(), GitError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let branch = self.integration.as_str();
        let mut theirs = remote.branch(&self.git, branch).await?;
        if theirs.is_none() {
            let start = self.head().await?;
            let pushed = remote.push(&self.git, &[(branch, None, &start)]).await?;
            theirs = remote.branch(&self.git, branch).await?;
            if theirs.is_none() {
                return Err(pushed.failed("push"));
            }
        }
        let ours = self.git.tip(branch).await?;
        let Some(theirs) = theirs.filter(|theirs| Some(theirs) != ours.as_ref()) else {
            return Ok(());
        };
        self.check_not_taken().await?;
        remote.fetch(&self.git, branch).await?;
        self.refuse_lost_there(&theirs).await?;
        let none = theirs.none_like();
        let ours = ours.unwrap_or(none);
        let moved = self.git.transact(&format!("update {branch} {theirs} {ours}\n")).await?;
        if moved.code == 0 || self.git.tip(branch).await?.as_ref() == Some(&theirs) {
            return Ok(());
        }
        Err(moved.failed("update-ref"))
    }

    /// Raises a task's fence on the other side.
    pub(crate) async fn raise_remote_fence(
        &self,
        name: &str,
        token: FencingToken,
        blob: &Oid,
    ) -> Result<(), GitError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let mut tries = 0;
        loop {
            let old = remote.standing(&self.git, name, name).await?.fence;
            if let Some(old) = &old
                && (old == blob || self.remote_token(remote, name, old).await? >= token)
            {
                return Ok(());
            }
            let pushed = remote.push(&self.git, &[(name, old.as_ref(), blob)]).await?;
            if pushed.code == 0 {
                return Ok(());
            }
            tries += 1;
            if tries >= 3 {
                return Err(pushed.failed("push"));
            }
        }
    }

    async fn remote_token(
        &self,
        remote: &Remote,
        name: &str,
        blob: &Oid,
    ) -> Result<FencingToken, GitError> {
        if self.known_fence(blob).is_none() {
            remote.fetch(&self.git, name).await?;
        }
        self.token_at(name, blob).await
    }

    /// The greatest fence on the other side.
    pub(crate) async fn greatest_remote_fence(&self) -> Result<FencingToken, GitError> {
        let Some(remote) = &self.remote else { return Ok(FencingToken::default()) };
        let fences = format!("{}/*", self.refs.fences());
        remote.fetch(&self.git, &fences).await?;
        let list = ["for-each-ref", "--format=%(raw)%00", &self.refs.fences()];
        let answer = self.git.run(remote.call(list)).await?;
        Ok(answer.records().filter_map(token_in).max().unwrap_or_default())
    }

    /// Moves the branch on the other side; the fence there moves with it, so that it is checked in
    /// the very transaction.
    pub(crate) async fn apply_remotely(
        &self,
        remote: &Remote,
        (fence, token): (&str, FencingToken),
        onto: &Oid,
        merged: &Oid,
    ) -> Result<Applied, GitError> {
        let branch = self.integration.as_str();
        let blob = self.fence_blob(token);
        let used = format!("{token}\nmerged {merged}\n").into_bytes();
        let used = self.git.write_object("blob", used).await?;
        let mut tries = 0;
        loop {
            let theirs = remote.standing(&self.git, branch, fence).await?;
            if theirs.branch.as_ref() != Some(onto) {
                // A push may have gone through and its answer been lost.
                self.follow_remote().await?;
                let tip = self.branch_tip().await?;
                if !self.git.is_ancestor(merged.as_str(), tip.as_str()).await? {
                    return Ok(Applied::Moved);
                }
                self.note_merged(merged).await?;
                return Ok(Applied::Merged);
            }
            if theirs.fence.as_ref() != Some(&blob) {
                return Ok(Applied::Fenced);
            }
            // The branch here has to follow.
            self.check_not_taken().await?;
            let moves = [(branch, Some(onto), merged), (fence, Some(&blob), &used)];
            let pushed = remote.push(&self.git, &moves).await?;
            if pushed.code == 0 {
                self.follow_remote().await?;
                self.note_merged(merged).await?;
                return Ok(Applied::Merged);
            }
            tries += 1;
            if tries >= 3 {
                return Err(pushed.failed("push"));
            }
        }
    }

    /// Notes where the branch stood after a merge.
    async fn note_merged(&self, merged: &Oid) -> Result<(), GitError> {
        let noted = self.git.transact(&format!("update {} {merged}\n", self.refs.merged())).await?;
        if noted.code == 0 { Ok(()) } else { Err(noted.failed("update-ref")) }
    }
}
