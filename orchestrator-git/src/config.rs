//! How a run uses a repository.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use orchestrator_core::{RunId, Scope, TaskId};

use crate::error::GitError;

/// What a merge looks like on the branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// One commit for each task, on top of the one before.
    #[default]
    Squash,
    /// A merge commit for each task, with its candidate as the second parent; `git log
    /// --first-parent` has one commit for each task.
    MergeCommit,
}

/// How a run uses a repository.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GitConfig {
    /// The run.
    pub run: RunId,
    /// The top level of the repository; a bare one will do.
    pub repository: PathBuf,
    /// Where the workspaces go, outside the repository; made where it is missing.
    pub worktrees_root: PathBuf,
    /// The branch that the run starts from; otherwise the one that is checked out. It is never
    /// moved, except by [`GitRun::fast_forward`](crate::GitRun::fast_forward).
    pub target: Option<String>,
    /// The branch that changes are merged into; otherwise `orchestrator/<run>`. Made from the
    /// target where it is missing.
    pub integration: Option<String>,
    /// How many merges may be under way at once, each verified on top of the one before it; 1 has
    /// each wait for none, and be verified on the branch as it is. The limit of the pool that the
    /// integrate stage takes its permits from says how many verify at once, so it should be as much.
    pub window: usize,
    /// What a merge looks like.
    pub strategy: Strategy,
    /// The subject of commits, in which `{task}`, `{run}` and `{attempt}` stand for those.
    pub subject: String,
    /// Ignored files that are kept as work is: paths and globs as in a scope.
    pub keep_ignored: Option<Scope>,
    /// A bare repository on this machine whose branch of the same name as `integration` is merged
    /// into, by a push that compares and swaps; the branch here follows it. Its hooks do not run.
    pub remote: Option<PathBuf>,
    /// Paths that no task may change, whatever its scope says.
    pub protected: Option<Scope>,
    /// Whether a repository is taken that has files stored by a filter (LFS, git-crypt). Tasks see
    /// them as they are stored, and may not change them.
    pub takes_stored: bool,
    /// Files that no task may add: secrets and build outputs, as [`GitConfig::unwanted_files`] has
    /// them unless others are named. A file that the branch has already may be changed.
    pub forbidden: Scope,
    /// Whether a task may add files that hold private keys.
    pub takes_keys: bool,
    /// Whether a task may make a file executable, or no longer so.
    pub allow_mode_changes: bool,
    /// Whether a task may end without having changed anything.
    pub allow_empty: bool,
    /// The longest difference that a reviewer gets.
    pub diff_bytes_max: usize,
    /// The most files that a change may touch.
    pub files_max: usize,
    /// The largest file that a change may bring.
    pub file_bytes_max: u64,
    /// The most worktrees that are left to later tasks when theirs are done; with 0 each task gets a
    /// new one. [`GitRun::clear_spares`](crate::GitRun::clear_spares) removes them.
    pub spares_max: usize,
    /// Ignored files that stay when a worktree goes from one task to another, as patterns of
    /// `.gitignore`: build caches that may be shared. All others are removed.
    pub caches: Vec<String>,
    /// What each new worktree is set up with.
    pub set_up: Vec<SetUp>,
    /// Ports that each worktree has for itself: from `ORCHESTRATOR_PORT` to
    /// `ORCHESTRATOR_PORT_LAST`.
    pub ports: Option<PortBlocks>,
    /// Variables for every program that works or judges in a worktree, and for its set-up, beside
    /// those of `ports`, `ORCHESTRATOR_SCRATCH` and `TMPDIR`. In a value `{tree}`, `{scratch}`,
    /// `{port}` and `{port_last}` stand for those of the worktree. They are also in a file
    /// `variables` beside the tree, which a shell reads with `. ../variables`.
    pub variables: Vec<(String, String)>,
    /// Nothing is granted while less is free on the disk of the worktrees or of the repository.
    pub free_bytes_min: Option<u64>,
    /// How long a lock is waited for that a program may hold which is still alive. What is killed may
    /// take seconds to be gone where the disk is slow.
    pub lock_wait: Duration,
    /// The git program.
    pub program: OsString,
    /// The name that commits bear.
    pub author_name: String,
    /// The address that commits bear.
    pub author_email: String,
}

impl GitConfig {
    /// The usual way: from the branch that is checked out into `orchestrator/<run>`, nothing
    /// protected, no empty changes, differences of 256 KiB, 10,000 files of 20 MiB.
    #[must_use]
    pub fn new(run: RunId, repository: PathBuf, worktrees_root: PathBuf) -> Self {
        Self {
            run,
            repository,
            worktrees_root,
            target: None,
            integration: None,
            window: 1,
            strategy: Strategy::Squash,
            subject: "task {task}".to_owned(),
            keep_ignored: None,
            remote: None,
            protected: None,
            takes_stored: false,
            forbidden: Self::unwanted_files(),
            takes_keys: false,
            allow_mode_changes: false,
            allow_empty: false,
            diff_bytes_max: 256 << 10,
            files_max: 10_000,
            file_bytes_max: 20 << 20,
            spares_max: 16,
            caches: Vec::new(),
            set_up: Vec::new(),
            ports: None,
            variables: Vec::new(),
            free_bytes_min: Some(512 << 20),
            lock_wait: LOCK_WAIT,
            program: OsString::from("git"),
            author_name: "orchestrator".to_owned(),
            author_email: "orchestrator@localhost".to_owned(),
        }
    }

    /// Files that hardly ever belong into a change: secrets by their usual names, and what builds
    /// leave.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the patterns are constants, and valid")]
    pub fn unwanted_files() -> Scope {
        Scope::parse(UNWANTED).expect("the patterns are valid")
    }

    /// Refuses to act for another run.
    pub(crate) fn check_run(&self, run: &RunId) -> Result<(), GitError> {
        if *run == self.run {
            return Ok(());
        }
        Err(GitError::OtherRun { ours: self.run.clone(), asked: run.clone() })
    }

    /// The subject of a task's commits.
    pub(crate) fn subject(&self, task: &TaskId, attempt: &str) -> String {
        let template = &self.subject;
        let mut subject = String::with_capacity(template.len());
        let mut rest = template.as_str();
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            subject.push_str(before);
            let values =
                [("{task}", task.as_str()), ("{run}", self.run.as_str()), ("{attempt}", attempt)];
            let meant = values.into_iter().find(|(name, _)| from.starts_with(name));
            let (name, value) = meant.unwrap_or(("{", "{"));
            subject.push_str(value);
            rest = from.strip_prefix(name).unwrap_or_default();
        }
        subject.push_str(rest);
        subject
    }
}

/// How long locks are waited for, when nothing else is said.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(30);

/// Secrets by their usual names, and what builds leave.
const UNWANTED: &[&str] = &[
    "**/.env",
    "**/.env.{local,production,development,staging}",
    "**/.netrc",
    "**/.pgpass",
    "**/.git-credentials",
    "**/.aws/credentials",
    "**/id_{rsa,dsa,ecdsa,ed25519}",
    "**/*.{p12,pfx,jks,kdbx}",
    "**/node_modules/**",
    "**/__pycache__/**",
    "**/*.{pyc,pyo,o,obj,class}",
    "**/.{venv,tox,gradle,terraform}/**",
    "target/{debug,release}/**",
];

/// A step that every new worktree is set up with, in the order in which they are configured.
///
/// Paths in the worktree are relative to its root and stay inside. What a step makes should be
/// ignored by git, or it becomes part of the task's change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetUp {
    /// Copies a file or a directory from outside to a path in the worktree.
    Copy {
        /// What is copied.
        from: PathBuf,
        /// Where to.
        to: PathBuf,
    },
    /// Makes a link in the worktree to something outside: a cache that all worktrees share.
    Link {
        /// What the link leads to.
        from: PathBuf,
        /// Where it is.
        to: PathBuf,
    },
    /// Runs a command in the worktree, with the worktree's own variables and `PATH` and `HOME`.
    Run {
        /// The program and its arguments.
        command: Vec<String>,
        /// How long it may take.
        timeout: Duration,
    },
}

/// Ports that each worktree of a run has for itself, so that no two tasks' servers meet. Runs that
/// are at work on one host together know nothing of each other's: give them a `first` of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortBlocks {
    /// The first port of the first block.
    pub first: u16,
    /// How many each worktree has.
    pub each: u16,
}

impl PortBlocks {
    /// How many blocks there are up to the last port.
    pub(crate) fn blocks(self) -> u16 {
        let room = u16::MAX - self.first.min(u16::MAX - 1);
        (room / self.each.max(1)).max(1)
    }

    /// The first port of a block.
    pub(crate) fn of(self, block: u16) -> u16 {
        self.first + block * self.each.max(1)
    }
}
