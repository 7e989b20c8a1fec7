//! What can go wrong with git, and what would help.

use std::io;
use std::path::{Path, PathBuf};

use orchestrator_core::port::PortError;
use orchestrator_core::{FencingToken, RunId};
use orchestrator_process::SpawnError;

/// Why something could not be done with a repository.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// The git program could not be started.
    #[error("git could not be started")]
    Start(#[source] SpawnError),
    /// The git program is too old.
    #[error("git {found} is too old: install 2.39 or newer")]
    TooOld {
        /// What it says its version is.
        found: String,
    },
    /// There is no repository at the path.
    #[error("{} is no git repository: give the path of one, or run `git init` there ({why})", path.display())]
    NoRepository {
        /// The path.
        path: PathBuf,
        /// What git said.
        why: String,
    },
    /// The path lies inside a repository and is not its top level.
    #[error(
        "{} lies inside the repository {}: give that path, or make a repository of its own with `git init`",
        path.display(), top.display()
    )]
    NotTopLevel {
        /// The path.
        path: PathBuf,
        /// The top level of the repository that it lies in.
        top: PathBuf,
    },
    /// The repository has no commit on the branch.
    #[error("branch `{branch}` of {} has no commit: make a first one, or name a branch that has", path.display())]
    NoCommit {
        /// The repository.
        path: PathBuf,
        /// The branch.
        branch: String,
    },
    /// The repository's checkout is on no branch, and no target was named.
    #[error("{} has no branch checked out: name the target branch", path.display())]
    NoTarget {
        /// The repository.
        path: PathBuf,
    },
    /// A branch cannot have this name.
    #[error("`{branch}` cannot be the name of a branch: choose another")]
    BranchName {
        /// The name.
        branch: String,
    },
    /// The run's own refs cannot be made.
    #[error(
        "no refs can be made below `{root}` ({why}): rename or delete the ref that is in the way (`git update-ref -d`)"
    )]
    RefsTaken {
        /// What they are below.
        root: String,
        /// What git said.
        why: String,
    },
    /// The target and the branch that is merged into are one.
    #[error(
        "`{branch}` is the target: name another branch to merge into, it is never moved itself"
    )]
    BranchIsTarget {
        /// The branch.
        branch: String,
    },
    /// The branch that is merged into is checked out, so that moving it would make that checkout
    /// look changed.
    #[error(
        "branch `{branch}` is checked out in {}: switch that checkout to another branch, or name another one to merge into",
        worktree.display()
    )]
    BranchCheckedOut {
        /// The branch.
        branch: String,
        /// Where.
        worktree: PathBuf,
    },
    /// A branch is another name of one.
    #[error(
        "branch `{branch}` is only another name of `{other}` (a symbolic ref), which would be moved: name another one, \
         or remove the name (`git -C '{}' symbolic-ref -d refs/heads/{branch}`)", repository.display()
    )]
    BranchSymbolic {
        /// The branch.
        branch: String,
        /// What it is a name of.
        other: String,
        /// The repository that it is in.
        repository: PathBuf,
    },
    /// The branch that the run merged into is not there any more.
    #[error(
        "branch `{branch}` was deleted, though the run merged into it: `git branch {branch} {last}` brings it back, \
         `git update-ref -d {record}` lets the run begin anew"
    )]
    BranchGone {
        /// The branch.
        branch: String,
        /// Where it stood after the last merge.
        last: String,
        /// The ref that says so.
        record: String,
    },
    /// The branch that the run merged into was moved back.
    #[error(
        "branch `{branch}` was moved to {stands}, which has not all that the run merged: `git branch -f {branch} {last}` brings that back, \
         `git update-ref -d {record}` lets the run go on without it"
    )]
    BranchMovedBack {
        /// The branch.
        branch: String,
        /// Where it stands.
        stands: String,
        /// Where it stood after the last merge.
        last: String,
        /// The ref that says so.
        record: String,
    },
    /// The branch tracks the file by which agents ask.
    #[error(
        "branch `{branch}` has a file `{file}` at its root, which an agent writes to ask a question, so that every task would end as one: \
         rename it (`git mv {file} docs/{file}`) and commit that"
    )]
    QuestionFile {
        /// The branch.
        branch: String,
        /// The file.
        file: String,
    },
    /// Files of the branch are something else in the repository than in a checkout.
    #[error(
        "`{file}` has files stored by the filter `{filter}`, which is not run, so that tasks would see what is stored: store them plainly \
         (for LFS, `git lfs migrate export`), or set `GitConfig::takes_stored`: tasks then see them as stored, and may not change them"
    )]
    StoredOtherwise {
        /// The file of attributes.
        file: String,
        /// The filter.
        filter: String,
    },
    /// The repository is a partial clone without files that are needed, or those that it borrows are
    /// gone.
    #[error(
        "the repository lacks {missing} objects of branch `{branch}`, and nothing is fetched meanwhile: \
         `git fetch --refetch --no-filter` completes a partial clone; where `objects/info/alternates` \
         names another repository, that one has to be there"
    )]
    Incomplete {
        /// The branch.
        branch: String,
        /// How many are missing.
        missing: usize,
    },
    /// The other repository cannot be used.
    #[error("{} cannot be used as the remote: {why}: give the path of a bare repository on this machine (`git init --bare`)", path.display())]
    Remote {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The disk is nearly full.
    #[error(
        "{free} bytes are free on the disk of {}, and {low_water} are wanted before a task gets a worktree: \
         free some, or lower `GitConfig::free_bytes_min`", root.display()
    )]
    NoRoom {
        /// The place for workspaces.
        root: PathBuf,
        /// How much is free.
        free: u64,
        /// How much is wanted.
        low_water: u64,
    },
    /// Every block of ports belongs to a worktree.
    #[error(
        "all {blocks} blocks of ports are taken: begin at a lower port, or give each worktree fewer"
    )]
    NoPorts {
        /// How many there are.
        blocks: u16,
    },
    /// A worktree could not be set up.
    #[error("the set-up command `{command}` failed ({how}): {said}")]
    SetUp {
        /// The command.
        command: String,
        /// How it ended.
        how: String,
        /// What it printed.
        said: String,
    },
    /// A path of a set-up step does not stay in the worktree.
    #[error("set-up path {} leaves the worktree: give a relative one without `..`, through no link", path.display())]
    SetUpPath {
        /// The path.
        path: PathBuf,
    },
    /// Nothing is kept under this name.
    #[error("nothing is kept as `{name}`: give a name as the list of kept work has it")]
    NotKept {
        /// The name.
        name: String,
    },
    /// There is something in the directory that kept work was to be restored to.
    #[error("{} is not empty: kept work is restored to a directory of its own", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The place for workspaces lies where it must not.
    #[error("workspaces cannot be in {}, {why}: choose a directory outside the repository", root.display())]
    Root {
        /// The place.
        root: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The adapter was made for another run.
    #[error("this adapter is for run `{ours}`, not for run `{asked}`")]
    OtherRun {
        /// The run that it was made for.
        ours: RunId,
        /// The run that it was asked about.
        asked: RunId,
    },
    /// The target cannot be moved to what was merged.
    #[error("branch `{branch}` cannot be moved forward: {why}")]
    NoFastForward {
        /// The branch.
        branch: String,
        /// What is in the way, and what would help.
        why: String,
    },
    /// A later lease of the task has begun.
    #[error("workspace `{slug}` does not belong to lease {token} any more")]
    WorkspaceLost {
        /// The workspace, by the name of its directory.
        slug: String,
        /// The lease that is over.
        token: FencingToken,
    },
    /// Something that names a change does not.
    #[error("`{text}` names no commit of this repository")]
    NoChange {
        /// The text.
        text: String,
    },
    /// A lock of git stands in the way.
    #[error(
        "{} is in the way, and {why}: end that program, or remove the file if no git program is at work",
        lock.display()
    )]
    Locked {
        /// The file.
        lock: PathBuf,
        /// Why it was not removed.
        why: String,
    },
    /// Git was ended because it took too long or wrote too much.
    #[error("git {command} was ended: {why}")]
    Ended {
        /// The command.
        command: String,
        /// Why.
        why: String,
    },
    /// Git failed.
    #[error("git {command} failed with code {code}: {stderr}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit code.
        code: i32,
        /// What it said.
        stderr: String,
    },
    /// Git answered something that makes no sense here.
    #[error("git {command} answered something unexpected: {answer}")]
    Unexpected {
        /// The command.
        command: String,
        /// The answer, or the beginning of it.
        answer: String,
    },
    /// A file or directory could not be read or written.
    #[error("{} could not be {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was to be done with it.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl GitError {
    pub(crate) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }

    /// Whether it may go away by itself, as things are.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Start(err) => err.is_transient(),
            Self::BranchCheckedOut { .. }
            | Self::BranchSymbolic { .. }
            | Self::BranchGone { .. }
            | Self::BranchMovedBack { .. }
            | Self::WorkspaceLost { .. }
            | Self::NoRoom { .. }
            | Self::NoPorts { .. }
            | Self::SetUp { .. }
            | Self::Locked { .. }
            | Self::Ended { .. }
            | Self::Failed { .. }
            | Self::Unexpected { .. }
            | Self::Io { .. } => true,
            Self::TooOld { .. }
            | Self::NoRepository { .. }
            | Self::NotTopLevel { .. }
            | Self::NoCommit { .. }
            | Self::NoTarget { .. }
            | Self::BranchName { .. }
            | Self::RefsTaken { .. }
            | Self::BranchIsTarget { .. }
            | Self::QuestionFile { .. }
            | Self::Remote { .. }
            | Self::SetUpPath { .. }
            | Self::NotKept { .. }
            | Self::NotEmpty { .. }
            | Self::StoredOtherwise { .. }
            | Self::Incomplete { .. }
            | Self::Root { .. }
            | Self::OtherRun { .. }
            | Self::NoFastForward { .. }
            | Self::NoChange { .. } => false,
        }
    }
}

impl From<GitError> for PortError {
    fn from(err: GitError) -> Self {
        if err.is_transient() { Self::Transient(Box::new(err)) } else { Self::Fatal(Box::new(err)) }
    }
}
