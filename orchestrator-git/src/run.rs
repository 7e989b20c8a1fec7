//! One run on one repository: what it is configured to do, and the checks before it begins.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use orchestrator_core::{FencingToken, RunId, Scope};
use tracing::{info, warn};

use crate::apart::Apart;
use crate::error::GitError;
use crate::exec::Caller;
use crate::names::{Oid, Place, Refs, short};
use crate::queue::Queue;
use crate::remote::Remote;
use crate::repository::Git;
use crate::rules::listed;
use crate::setup::{PortBlocks, SetUp};
use crate::shield::Shield;

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
    /// moved, except by [`GitRun::fast_forward`].
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
    /// new one. [`GitRun::clear_spares`] removes them.
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
            program: OsString::from("git"),
            author_name: "orchestrator".to_owned(),
            author_email: "orchestrator@localhost".to_owned(),
        }
    }
}

impl GitConfig {
    /// Files that hardly ever belong into a change: secrets by their usual names, and what builds
    /// leave.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the patterns are constants, and valid")]
    pub fn unwanted_files() -> Scope {
        Scope::parse(UNWANTED).expect("the patterns are valid")
    }
}

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

/// The workspaces and the merge queue of one run on one repository.
///
/// A clone is the same run. The user's checkout, index, stash, hooks and configuration are neither
/// read nor written.
#[derive(Clone)]
pub struct GitRun(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: GitConfig,
    pub(crate) git: Git,
    /// What git is called with about files and trees.
    pub(crate) apart: Apart,
    pub(crate) refs: Refs,
    /// Where this run's workspaces are.
    pub(crate) root: PathBuf,
    pub(crate) target: String,
    /// The full name of the branch that is merged into.
    pub(crate) integration: String,
    /// The repository whose branch that follows.
    pub(crate) remote: Option<Remote>,
    /// Set once that branch is there.
    branch: tokio::sync::OnceCell<()>,
    /// One task's workspace is worked on by one call at a time.
    places: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Git's list of worktrees is added to by one call at a time.
    pub(crate) adding: tokio::sync::Mutex<()>,
    /// The numbers in the blobs of fences.
    fences: Mutex<HashMap<Oid, FencingToken>>,
    /// The merges under way, where several are at once.
    pub(crate) queue: Queue,
    /// Proposals are made one after the other, so that each is built on the one before.
    pub(crate) proposing: tokio::sync::Mutex<()>,
    /// Ports are given to one worktree after the other.
    pub(crate) giving_ports: Mutex<()>,
    /// What the repository's configuration ran when a workspace was opened.
    programs: Mutex<HashMap<String, BTreeMap<String, String>>>,
}

impl fmt::Debug for GitRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitRun").field("repository", &self.0.git.path).finish_non_exhaustive()
    }
}

impl GitRun {
    /// Checks the repository, and changes nothing in it: the branch that is merged into is made when
    /// the first workspace is opened.
    ///
    /// # Errors
    /// [`GitError`] names what is in the way and what would help.
    pub async fn open(config: GitConfig) -> Result<Self, GitError> {
        let caller = Caller {
            author_name: config.author_name.clone(),
            author_email: config.author_email.clone(),
            ..Caller::new(&config.program)
        };
        let mut git = Git::open(caller, &config.repository).await?;
        let target = target(&git, &config).await?;
        let integration = match &config.integration {
            Some(branch) => branch.clone(),
            None => format!("orchestrator/{}", config.run.slug()),
        };
        check_branch(&git, &integration).await?;
        if integration == target {
            return Err(GitError::BranchIsTarget { branch: integration });
        }
        let start = head_of(&git, &target).await?;
        git.check_tree(&target, &start, config.takes_stored).await?;
        let root = root_for(&git, &config.worktrees_root)?.join(config.run.slug());
        let integration = format!("refs/heads/{integration}");
        let refs = Refs::of(&config.run);
        let roots = &mut git.caller.lock_roots;
        roots.below = vec![root.clone(), git.dir.join(refs.root())];
        roots.files = vec![git.dir.join(format!("{integration}.lock"))];
        roots.guard = root.join(".guard");
        let has_remote = config.remote.is_some();
        check_integration(&git, &refs, &integration, &start, has_remote).await?;
        if let Some(tip) = git.tip(&integration).await?
            && tip != start
        {
            git.check_tree(short(&integration), &tip, config.takes_stored).await?;
        }
        fs::create_dir_all(&root).map_err(GitError::io(&root, "made"))?;
        let apart = Apart::make(&git, root.join(".apart.git"))?;
        let remote = match &config.remote {
            Some(path) => {
                let remote = Remote::open(&git, path, apart.clone()).await?;
                remote.refuse_taken(&integration).await?;
                if remote.branch(&git, &integration).await?.is_none() {
                    let ours = git.tip(&integration).await?;
                    refuse_lost(&git, &refs, &integration, ours.as_ref()).await?;
                }
                Some(remote)
            }
            None => None,
        };
        Ok(Self(Arc::new(Inner {
            config,
            remote,
            apart,
            git,
            refs,
            root,
            target,
            integration,
            branch: tokio::sync::OnceCell::new(),
            places: Mutex::default(),
            adding: tokio::sync::Mutex::default(),
            fences: Mutex::default(),
            giving_ports: Mutex::default(),
            queue: Queue::default(),
            proposing: tokio::sync::Mutex::default(),
            programs: Mutex::default(),
        })))
    }

    /// Removes the worktrees that no task has and that the next ones would get: when a run is over.
    ///
    /// # Errors
    /// [`GitError::Io`] when one could not be removed.
    pub async fn clear_spares(&self) -> Result<(), GitError> {
        self.0.clear_pool(true).await
    }

    /// The branch that changes are merged into, without `refs/heads/`.
    #[must_use]
    pub fn integration_branch(&self) -> &str {
        self.0.integration.strip_prefix("refs/heads/").unwrap_or(&self.0.integration)
    }

    /// The branch that the run started from.
    #[must_use]
    pub fn target_branch(&self) -> &str {
        &self.0.target
    }
}

impl Inner {
    pub(crate) fn place(&self, slug: &str) -> Place {
        Place::new(&self.root, slug)
    }

    /// Makes the branch that is merged into, where it is missing.
    pub(crate) async fn make_branch(&self) -> Result<(), GitError> {
        let make = || async {
            let name = &self.integration;
            if self.git.tip(name).await?.is_none() {
                let start = self.head().await?;
                let made = self.git.transact(&format!("create {name} {start}\n")).await?;
                if self.git.tip(name).await?.is_none() {
                    return Err(made.failed("update-ref"));
                }
            }
            self.check_not_taken().await?;
            self.follow_remote().await
        };
        self.branch.get_or_try_init(make).await.copied()
    }

    /// Refuses to move a branch that somebody has checked out, here or on the other side.
    pub(crate) async fn check_not_taken(&self) -> Result<(), GitError> {
        self.git.refuse_taken(&self.integration).await?;
        match &self.remote {
            Some(remote) => remote.refuse_taken(&self.integration).await,
            None => Ok(()),
        }
    }

    /// Where the branch stands that is merged into, or will when it is made.
    pub(crate) async fn head(&self) -> Result<Oid, GitError> {
        let (ours, theirs) = match self.git.tip(&self.integration).await? {
            Some(ours) => (Some(ours), None),
            None => (None, self.theirs().await?),
        };
        // On the other side it is looked for when it is followed.
        if theirs.is_none() && (ours.is_none() || self.remote.is_none()) {
            refuse_lost(&self.git, &self.refs, &self.integration, ours.as_ref()).await?;
        }
        match ours.or(theirs) {
            Some(found) => Ok(found),
            None => head_of(&self.git, &self.target).await,
        }
    }

    /// Refuses to go on where the other side lost something that the run merged.
    pub(crate) async fn refuse_lost_there(&self, theirs: &Oid) -> Result<(), GitError> {
        refuse_lost(&self.git, &self.refs, &self.integration, Some(theirs)).await
    }

    /// The lock that keeps two calls out of one workspace.
    pub(crate) fn turn(&self, slug: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(slug.to_owned()).or_default())
    }

    /// Remembers the number in the blob of a fence.
    pub(crate) fn note_fence(&self, blob: Oid, token: FencingToken) {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).insert(blob, token);
    }

    pub(crate) fn known_fence(&self, blob: &Oid) -> Option<FencingToken> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).get(blob).copied()
    }

    pub(crate) fn check_run(&self, run: &RunId) -> Result<(), GitError> {
        if *run == self.config.run {
            return Ok(());
        }
        Err(GitError::OtherRun { ours: self.config.run.clone(), asked: run.clone() })
    }

    /// Notes what the repository would run, when a workspace is opened. What is new since the last
    /// time came from those who judged, and is said where people read it.
    pub(crate) async fn note_programs(&self, slug: &str) -> Result<(), GitError> {
        let now = self.git.programs().await?;
        let mut noted = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let before = noted.insert(slug.to_owned(), now.programs.clone());
        let new = before.map(|before| now.new_since(&before)).unwrap_or_default();
        say_once(&new, &now, &mut noted);
        Ok(())
    }

    /// What the repository would run now and did not when the workspace was opened, where nobody
    /// else can have done that.
    ///
    /// While several tasks are at work it is not known who did it, and the others must not pay for
    /// it: then it is said where people read it, once.
    pub(crate) async fn new_programs(&self, slug: &str) -> Result<Vec<String>, GitError> {
        let now = self.git.programs().await?;
        let mut noted = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let new = noted.get(slug).map(|before| now.new_since(before)).unwrap_or_default();
        if new.is_empty() || noted.len() == 1 {
            return Ok(new);
        }
        say_once(&new, &now, &mut noted);
        Ok(Vec::new())
    }

    /// Forgets what was noted of a workspace that is about to go.
    pub(crate) async fn forget_programs(&self, slug: &str) -> Result<(), GitError> {
        let now = self.git.programs().await?;
        let mut noted = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let before = noted.remove(slug);
        let new = before.map(|before| now.new_since(&before)).unwrap_or_default();
        say_once(&new, &now, &mut noted);
        Ok(())
    }
}

/// Says that the repository's set-up was changed, and by whom is not known; no other task will hear
/// of it.
fn say_once(new: &[String], now: &Shield, noted: &mut HashMap<String, BTreeMap<String, String>>) {
    if new.is_empty() {
        return;
    }
    let programs = listed(new.iter().map(String::as_str));
    warn!(%programs, "git's own set-up of the repository was changed while tasks were worked on");
    for before in noted.values_mut() {
        before.clone_from(&now.programs);
    }
}

async fn target(git: &Git, config: &GitConfig) -> Result<String, GitError> {
    if let Some(target) = &config.target {
        check_branch(git, target).await?;
        // By another name it would be compared with no checkout, and a fast-forward would end the name.
        return match git.stands_for(&format!("refs/heads/{target}")).await? {
            None => Ok(target.clone()),
            Some(meant) => meant.strip_prefix("refs/heads/").map(str::to_owned).ok_or_else(|| {
                let (branch, other) = (target.clone(), meant.clone());
                GitError::BranchSymbolic { branch, other, repository: git.path.clone() }
            }),
        };
    }
    let call = crate::exec::Call::new(&git.path, ["symbolic-ref", "-q", "HEAD"]);
    let head = git.ask(call).await?;
    let name = head.text();
    match name.strip_prefix("refs/heads/") {
        Some(branch) if head.code == 0 => Ok(branch.to_owned()),
        _ => Err(GitError::NoTarget { path: git.path.clone() }),
    }
}

async fn check_branch(git: &Git, branch: &str) -> Result<(), GitError> {
    let call = git.plumbing(["check-ref-format", &format!("refs/heads/{branch}")]);
    if branch.starts_with('-') || git.ask(call).await?.code != 0 {
        return Err(GitError::BranchName { branch: branch.to_owned() });
    }
    Ok(())
}

async fn head_of(git: &Git, branch: &str) -> Result<Oid, GitError> {
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
async fn check_integration(
    git: &Git,
    refs: &Refs,
    name: &str,
    start: &Oid,
    has_remote: bool,
) -> Result<(), GitError> {
    // As branches git can keep these, and means something else by them wherever it is asked.
    if matches!(short(name), "HEAD" | "@") {
        return Err(GitError::BranchName { branch: short(name).to_owned() });
    }
    match git.tip(name).await? {
        Some(tip) if !has_remote => refuse_lost(git, refs, name, Some(&tip)).await?,
        Some(_) => {}
        None => {
            if !has_remote {
                refuse_lost(git, refs, name, None).await?;
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

/// Refuses a branch that has not all that the run merged into it, because somebody removed it or
/// moved it back. Commits of others are welcome, and said: nobody has looked whether they keep to
/// anything.
async fn refuse_lost(
    git: &Git,
    refs: &Refs,
    name: &str,
    stands: Option<&Oid>,
) -> Result<(), GitError> {
    let record = refs.merged();
    let Some(last) = git.tip(&record).await?.filter(|last| Some(last) != stands) else {
        return Ok(());
    };
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

/// The place for workspaces, with all links in it resolved.
fn root_for(git: &Git, root: &Path) -> Result<PathBuf, GitError> {
    let root = std::path::absolute(root).map_err(GitError::io(root, "found"))?;
    let refused = |why| GitError::Root { root: root.clone(), why };
    let mut there = root.as_path();
    while !there.exists() {
        there = there.parent().ok_or_else(|| refused("which has no directory above it"))?;
    }
    let rest = root.strip_prefix(there).unwrap_or_else(|_| Path::new(""));
    let there = fs::canonicalize(there).map_err(GitError::io(there, "found"))?;
    let real = there.join(rest);
    if real.as_os_str().as_encoded_bytes().contains(&b'\n') {
        return Err(refused("whose path has a line break"));
    }
    // The main checkout, when the repository was given by another one of its worktrees.
    let main = if git.dir.ends_with(".git") { git.dir.parent() } else { None };
    let taken = git.checkout.as_deref().into_iter().chain([git.dir.as_path()]).chain(main);
    let is_inside = taken.into_iter().any(|dir| real.starts_with(dir));
    if is_inside || git.linked_checkouts().iter().any(|dir| real.starts_with(dir)) {
        return Err(refused("which is inside the repository"));
    }
    Ok(real)
}
