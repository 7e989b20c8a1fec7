//! The port that merges: fence, proposal, and one transaction that moves the branch.

use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Applied, Integrator, PortError, Proposal};
use orchestrator_core::{Candidate, ChangeId, FencingToken, MergeIntent, RunId, TaskId, TaskSpec};

use crate::conflict;
use crate::error::GitError;
use crate::exec::Answer;
use crate::names::{
    ATTEMPT_TRAILER, CANDIDATE_TRAILER, COST_TRAILER, Oid, RUN_TRAILER, TASK_TRAILER,
    TOKEN_TRAILER, message,
};
use crate::queue::{Entry, Fate};
use crate::repository::Ref;
use crate::run::{GitRun, Inner, Strategy};

/// How often a transaction is tried that failed though everything stands as it should.
const TRIES_MAX: u32 = 3;

#[async_trait]
impl Integrator for GitRun {
    async fn fence(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
    ) -> Result<(), PortError> {
        self.0.check_run(run)?;
        self.0.queue.withdraw_before(&task.slug(), token);
        Ok(self.0.raise_fence(task, token).await?)
    }

    async fn propose(
        &self,
        run: &RunId,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, PortError> {
        self.0.check_run(run)?;
        Ok(self.0.propose_in_turn(task, token, candidate).await?)
    }

    async fn turn(
        &self,
        run: &RunId,
        _: &TaskId,
        _: FencingToken,
        intent: &MergeIntent,
    ) -> Result<bool, PortError> {
        self.0.check_run(run)?;
        Ok(self.0.queue.decided(&Oid::of(&intent.onto)?).await == Fate::Merged)
    }

    fn withdraw(&self, _: &RunId, _: &TaskId, token: FencingToken) {
        self.0.queue.withdraw(token);
    }

    async fn apply(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, PortError> {
        self.0.check_run(run)?;
        let applied = self.0.apply_merge(task, token, intent).await?;
        match applied {
            Applied::Merged => self.0.queue.merged(token),
            // What was built on it will not come either.
            Applied::Moved | Applied::Fenced => self.0.queue.withdraw(token),
        }
        Ok(applied)
    }

    async fn is_merged(&self, change: &ChangeId) -> Result<bool, PortError> {
        let change = Oid::of(change)?;
        if self.0.git.object("commit", &change).await?.is_none() {
            // What is not even there was never merged.
            return Ok(false);
        }
        self.0.follow_remote().await?;
        let head = self.0.head().await?;
        Ok(self.0.git.is_ancestor(change.as_str(), head.as_str()).await?)
    }

    async fn greatest_fence(&self, run: &RunId) -> Result<FencingToken, PortError> {
        self.0.check_run(run)?;
        let fences = self.0.git.refs(&[&self.0.refs.fences()]).await?;
        let mut greatest = self.0.greatest_remote_fence().await?;
        for fence in &fences {
            greatest = greatest.max(token_of(fence)?);
        }
        Ok(greatest)
    }
}

/// The number in a fence's blob.
pub(crate) fn token_in(blob: &[u8]) -> Option<FencingToken> {
    let text = std::str::from_utf8(blob).ok()?;
    text.lines().next()?.trim().parse().ok().map(FencingToken)
}

fn token_of(fence: &Ref) -> Result<FencingToken, GitError> {
    token_in(&fence.raw).ok_or_else(|| GitError::Unexpected {
        command: "for-each-ref".to_owned(),
        answer: format!("{} holds no number", fence.name),
    })
}

impl Inner {
    /// The name of the blob that the fence of this lease points to.
    pub(crate) fn fence_blob(&self, token: FencingToken) -> Oid {
        self.git.format.name_of("blob", token.to_string().as_bytes())
    }

    async fn raise_fence(&self, task: &TaskId, token: FencingToken) -> Result<(), GitError> {
        let name = self.refs.fence(task);
        let blob = self.git.write_object("blob", token.to_string().into_bytes()).await?;
        self.raise_local_fence(&name, token, &blob).await?;
        self.raise_remote_fence(&name, token, &blob).await
    }

    async fn raise_local_fence(
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
                self.note_fence(blob.clone(), token);
                return Ok(());
            }
            // Somebody else moved it: look again.
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(moved.failed("update-ref"));
            }
        }
    }

    /// The number in the blob that a fence points to.
    pub(crate) async fn token_at(&self, name: &str, blob: &Oid) -> Result<FencingToken, GitError> {
        if let Some(known) = self.known_fence(blob) {
            return Ok(known);
        }
        let text = self.git.object("blob", blob).await?;
        let token = text.as_deref().and_then(token_in).ok_or_else(|| GitError::Unexpected {
            command: "cat-file".to_owned(),
            answer: format!("{name} holds no number"),
        })?;
        self.note_fence(blob.clone(), token);
        Ok(token)
    }

    /// Proposes a merge on top of the last one under way, or of the branch.
    async fn propose_in_turn(
        &self,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, GitError> {
        self.make_branch().await?;
        let window = self.config.window;
        if window < 2 {
            let onto = self.present_tip().await?;
            return self.propose_merge(task, token, candidate, onto).await;
        }
        self.queue.withdraw(token);
        loop {
            self.queue.room(window).await;
            let proposing = self.proposing.lock().await;
            let (under_way, last) = self.queue.last();
            if under_way >= window {
                continue;
            }
            let is_on_branch = last.is_none();
            let onto = match last {
                Some(last) => last,
                None => self.present_tip().await?,
            };
            let proposal = self.propose_merge(task, token, candidate, onto.clone()).await?;
            let Proposal::Clean { intent, .. } = &proposal else {
                drop(proposing);
                // It says nothing when what it was tried on never comes.
                if is_on_branch || self.queue.decided(&onto).await == Fate::Merged {
                    return Ok(proposal);
                }
                continue;
            };
            let head = Oid::of(&intent.merged)?;
            if self.queue.push(Entry { task: task.id.slug(), token, onto, head }, is_on_branch) {
                return Ok(proposal);
            }
        }
    }

    /// Where the branch stands, on the other side where there is one.
    async fn present_tip(&self) -> Result<Oid, GitError> {
        self.follow_remote().await?;
        self.head().await
    }

    pub(crate) async fn branch_tip(&self) -> Result<Oid, GitError> {
        let tip = self.git.tip(&self.integration).await?;
        tip.ok_or_else(|| GitError::NoChange { text: self.integration.clone() })
    }

    async fn propose_merge(
        &self,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
        onto: Oid,
    ) -> Result<Proposal, GitError> {
        let (change, base) = (Oid::of(&candidate.change)?, Oid::of(&candidate.base)?);
        let (onto_tree, tree) = (self.git.tree_of(&onto).await?, self.git.tree_of(&change).await?);
        if onto == base && (tree != onto_tree || self.config.allow_empty) {
            // The candidate stands on the target already, and may be the one commit that is wanted.
            let merged = match self.config.strategy {
                Strategy::Squash => change,
                Strategy::MergeCommit => {
                    self.merge_commit(task, token, &tree, &onto, &change).await?
                }
            };
            let intent = MergeIntent { onto: onto.to_change(), merged: merged.to_change() };
            return Ok(Proposal::Clean { intent, is_judged: true });
        }
        let merged = match self.merge_trees(&onto, &base, &change).await? {
            Merge::Clean(merged) => merged,
            Merge::Conflict(answer) => {
                let old = conflict::Old { task: &task.id, base: &base, change: &change };
                let feedback = conflict::feedback(self, &answer, &old, &onto).await?;
                return Ok(Proposal::Conflict { feedback });
            }
        };
        if merged == onto_tree {
            let is_wanted = self.config.allow_empty
                && !self.git.is_ancestor(change.as_str(), onto.as_str()).await?;
            if !is_wanted {
                return Ok(Proposal::AlreadyThere);
            }
        }
        if task.scope.is_some() || self.config.protected.is_some() {
            // The target's renames may have led the change to other paths.
            let entries = self.changed(onto_tree.as_str(), merged.as_str()).await?;
            let broken = self.rules(task.scope.as_ref()).broken_by_paths(&entries);
            if !broken.is_empty() {
                let feedback = conflict::out_of_bounds(&broken);
                return Ok(Proposal::Conflict { feedback });
            }
        }
        let commit = self.merge_commit(task, token, &merged, &onto, &change).await?;
        let intent = MergeIntent { onto: onto.to_change(), merged: commit.to_change() };
        Ok(Proposal::Clean { intent, is_judged: merged == tree })
    }

    /// The commit that brings a change onto the target, as the run's strategy has it.
    async fn merge_commit(
        &self,
        task: &TaskSpec,
        token: FencingToken,
        tree: &Oid,
        onto: &Oid,
        change: &Oid,
    ) -> Result<Oid, GitError> {
        let token = token.to_string();
        let candidate = self.git.commit_of(change).await?;
        let attempt = candidate.trailer(ATTEMPT_TRAILER).unwrap_or("1");
        let mut trailers = vec![
            (TASK_TRAILER, task.id.as_str()),
            (RUN_TRAILER, self.config.run.as_str()),
            (ATTEMPT_TRAILER, attempt),
            (TOKEN_TRAILER, &token),
        ];
        trailers.extend(candidate.trailer(COST_TRAILER).map(|cost| (COST_TRAILER, cost)));
        trailers.push((CANDIDATE_TRAILER, change.as_str()));
        let text = message(&self.subject(&task.id, attempt), &trailers);
        let parents = match self.config.strategy {
            Strategy::Squash => vec![onto],
            Strategy::MergeCommit => vec![onto, change],
        };
        self.git.commit(tree, &parents, &text).await
    }

    /// The tree that comes of bringing what the candidate changed onto the target.
    async fn merge_trees(&self, onto: &Oid, base: &Oid, change: &Oid) -> Result<Merge, GitError> {
        // What may not be merged line by line is as the target has it, and not as the change says.
        let merge = self.apart.call(["merge-tree", "--write-tree", "-z"]);
        let mut call = merge.env("GIT_ATTR_SOURCE", onto.as_str());
        if self.git.has(2, 40) {
            call = call.arg(format!("--merge-base={base}"));
        } else if !self.git.is_ancestor(base.as_str(), onto.as_str()).await? {
            // Without a given base git would bring along what the base has and the target has not.
            return Err(GitError::NoChange { text: base.to_string() });
        }
        let call = call.args([onto.as_str(), change.as_str()]);
        let answer = self.git.ask(call).await?;
        match answer.code {
            0 => {
                let tree = answer.records().next().map(String::from_utf8_lossy);
                let tree = tree.and_then(|tree| Oid::parse(&tree));
                tree.map(Merge::Clean).ok_or_else(|| answer.unexpected("merge-tree"))
            }
            1 => Ok(Merge::Conflict(answer)),
            _ => Err(answer.failed("merge-tree")),
        }
    }

    async fn apply_merge(
        &self,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, GitError> {
        let (onto, merged) = (Oid::of(&intent.onto)?, Oid::of(&intent.merged)?);
        let (fence, blob) = (self.refs.fence(task), self.fence_blob(token));
        if let Some(remote) = &self.remote {
            if self.git.tip(&fence).await?.as_ref() != Some(&blob) {
                return Ok(Applied::Fenced);
            }
            return self.apply_remotely(remote, (&fence, token), &onto, &merged).await;
        }
        let mut tries = 0;
        loop {
            if self.git.tip(&fence).await?.as_ref() != Some(&blob) {
                return Ok(Applied::Fenced);
            }
            let branch = self.branch_tip().await?;
            if branch != onto {
                // A transaction may have gone through and its answer been lost.
                let is_in = self.git.is_ancestor(merged.as_str(), branch.as_str()).await?;
                return Ok(if is_in { Applied::Merged } else { Applied::Moved });
            }
            self.check_not_taken().await?;
            let lines = format!(
                "verify {fence} {blob}\nupdate {} {merged} {onto}\nupdate {} {merged}\n",
                self.integration,
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
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

enum Merge {
    Clean(Oid),
    Conflict(Answer),
}
