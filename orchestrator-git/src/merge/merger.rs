//! Merging: a proposal on top of the branch or of the last merge under way, and the move to it.

use std::sync::Arc;

use orchestrator_core::port::{Applied, Proposal};
use orchestrator_core::{Candidate, FencingToken, MergeIntent, TaskId, TaskSpec};

use crate::branch::fence::Fences;
use crate::branch::integration::{Branch, Move};
use crate::change::rules::{Rules, links_that_leave};
use crate::config::{GitConfig, Strategy};
use crate::error::GitError;
use crate::git::apart::Apart;
use crate::git::diff::{self, SYMLINK};
use crate::git::exec::Answer;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::git::trailers::{
    ATTEMPT_TRAILER, CANDIDATE_TRAILER, COST_TRAILER, RUN_TRAILER, TASK_TRAILER, TOKEN_TRAILER,
    message,
};
use crate::merge::conflict;
use crate::merge::queue::{Entry, Fate, Queue};
use crate::names::Refs;

/// What merges the changes of a run.
#[derive(Debug)]
pub(crate) struct Merger {
    config: Arc<GitConfig>,
    git: Arc<Git>,
    apart: Apart,
    refs: Refs,
    branch: Arc<Branch>,
    pub(crate) fences: Arc<Fences>,
    /// The merges under way, where several are at once.
    pub(crate) queue: Queue,
    /// Proposals are made one after the other, so that each is built on the one before.
    proposing: tokio::sync::Mutex<()>,
}

impl Merger {
    pub(crate) fn new(
        config: Arc<GitConfig>,
        apart: Apart,
        refs: Refs,
        branch: Arc<Branch>,
        fences: Arc<Fences>,
    ) -> Self {
        let (queue, proposing) = (Queue::default(), tokio::sync::Mutex::default());
        let git = Arc::clone(&apart.git);
        Self { config, git, apart, refs, branch, fences, queue, proposing }
    }

    /// Proposes a merge on top of the last one under way, or of the branch.
    pub(crate) async fn propose(
        &self,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, GitError> {
        self.branch.make().await?;
        let window = self.config.window;
        if window < 2 {
            let onto = self.branch.present().await?;
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
                None => self.branch.present().await?,
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
                let feedback =
                    conflict::feedback((&self.apart, &self.refs), &answer, &old, &onto).await?;
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
        if merged != tree {
            // The target's renames may have led the change to other paths, and links elsewhere.
            let entries = self.apart.changed(onto_tree.as_str(), merged.as_str()).await?;
            let mut broken = Rules::of(&self.config, task.scope.as_ref()).broken_by_paths(&entries);
            let links: Vec<diff::Entry> =
                entries.into_iter().filter(|entry| entry.new_mode == SYMLINK).collect();
            broken.extend(links_that_leave(&links, &self.apart.contents(&links).await?));
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
        let text = message(&self.config.subject(&task.id, attempt), &trailers);
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

    /// Moves the branch to a proposed merge.
    pub(crate) async fn apply(
        &self,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, GitError> {
        let (onto, merged) = (Oid::of(&intent.onto)?, Oid::of(&intent.merged)?);
        let (fence, blob) = (self.refs.fence(task), self.fences.blob(token));
        let to = Move { fence, blob, token, onto: &onto, merged: &merged };
        let applied = self.branch.advance(&to).await?;
        match applied {
            Applied::Merged => self.queue.merged(token),
            // What was built on it will not come either.
            Applied::Moved | Applied::Fenced => self.queue.withdraw(token),
        }
        Ok(applied)
    }

    /// Whether a change is on the branch.
    pub(crate) async fn is_merged(&self, change: &Oid) -> Result<bool, GitError> {
        if self.git.object("commit", change).await?.is_none() {
            // What is not even there was never merged.
            return Ok(false);
        }
        let head = self.branch.present().await?;
        self.git.is_ancestor(change.as_str(), head.as_str()).await
    }
}

/// What comes of two trees.
enum Merge {
    Clean(Oid),
    Conflict(Answer),
}
