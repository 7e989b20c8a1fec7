//! What is kept of runs: listing it, restoring it, and letting go of it by explicit rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::GitError;
use crate::files::{remove_if_there, unique};
use crate::git::apart::Apart;
use crate::git::exec::Caller;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::git::trailers::CANDIDATE_TRAILER;
use crate::names::{ASIDE, RUNS, path_of};
use crate::run::GitRun;
use crate::worktrees::worktree::SET_ASIDE;

/// What is asked of each ref.
const FORMAT: &str = "--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00";

/// Something that is kept because it is in no change that was merged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The ref; by it the work is restored, and read with any command of git.
    pub name: String,
    /// The commit.
    pub commit: String,
    /// The run's name in refs and directories.
    pub run: String,
    /// The task's name in refs and directories ([`TaskId::slug`](orchestrator_core::TaskId::slug)).
    pub task: String,
    /// What it is.
    pub what: KeptAs,
    /// When it was kept.
    pub at: SystemTime,
    /// Whether the task was merged since.
    pub is_of_merged_task: bool,
}

/// A directory with something that was set aside because git cannot keep it: a repository inside a
/// workspace, a submodule that was worked in, a file of more than 1 GiB. It stays until a person
/// removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAside {
    /// The directory; in it the things are where they were in the workspace.
    pub dir: PathBuf,
    /// The run's name in refs and directories.
    pub run: String,
    /// The task's name in refs and directories.
    pub task: String,
    /// When it was set aside.
    pub at: SystemTime,
}

/// What something is that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeptAs {
    /// What a lease left in its workspace.
    Leftover,
    /// A change that a later attempt replaced.
    FormerCandidate,
    /// The task's last change, which is not merged.
    Candidate,
}

/// Which kept work may go. Each rule is asked for by itself; what no rule names stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Work of tasks that were merged may go.
    pub of_merged_tasks: bool,
    /// Work that is older may go, merged or not.
    pub older_than: Option<Duration>,
}

impl Retention {
    fn names(self, kept: &Kept, now: SystemTime) -> bool {
        let is_older = |max| now.duration_since(kept.at).is_ok_and(|age| age > max);
        self.of_merged_tasks && kept.is_of_merged_task || self.older_than.is_some_and(is_older)
    }

    /// What it names of this.
    fn among(self, mut kept: Vec<Kept>) -> Vec<Kept> {
        let now = SystemTime::now();
        // A task's last change is needed as long as it may still be merged.
        kept.retain(|kept| kept.what != KeptAs::Candidate && self.names(kept, now));
        kept
    }
}

/// What is kept of all runs of one repository, whether they are over, under way, or can be opened at
/// all: a person looks here for lost work.
#[derive(Debug)]
pub struct KeptWork {
    git: Arc<Git>,
}

impl KeptWork {
    /// Opens the repository whose top level is this path.
    ///
    /// # Errors
    /// [`GitError`] when there is none, or git cannot be used.
    pub async fn open(repository: &Path) -> Result<Self, GitError> {
        Ok(Self { git: Arc::new(Git::open(Caller::new("git"), repository).await?) })
    }

    /// Everything that is kept under refs, by run, task and name.
    ///
    /// # Errors
    /// [`GitError`] when it could not be found out.
    pub async fn list(&self) -> Result<Vec<Kept>, GitError> {
        let mut found = Vec::new();
        for run in self.runs().await? {
            let root = format!("{RUNS}/{run}");
            let head = match self.git.tip(&format!("{root}/merged")).await? {
                Some(merged) => Some(merged),
                None => self.git.tip(&format!("refs/heads/orchestrator/{run}")).await?,
            };
            found.extend(self.git.kept_of(&run, head.as_ref()).await?);
        }
        Ok(found)
    }

    /// Everything that was set aside and is still there, by run, task and time.
    ///
    /// # Errors
    /// [`GitError`] when it could not be found out.
    pub async fn set_aside(&self) -> Result<Vec<SetAside>, GitError> {
        let mut found = Vec::new();
        for run in self.runs().await? {
            let noted = self.git.object("blob", &format!("{RUNS}/{run}/{ASIDE}")).await?;
            found.extend(noted.map(|dir| aside_in(&path_of(&dir), &run)).unwrap_or_default());
        }
        Ok(found)
    }

    async fn runs(&self) -> Result<BTreeSet<String>, GitError> {
        let call = self.git.plumbing(["for-each-ref", "--format=%(refname)", RUNS]);
        let answer = self.git.run(call).await?;
        let text = answer.text();
        let names = text.lines().filter_map(|name| {
            let rest = name.strip_prefix(RUNS)?.strip_prefix('/')?;
            rest.split_once('/').map(|(run, _)| run.to_owned())
        });
        Ok(names.collect())
    }

    /// Writes all the files of something kept into a directory of its own, made where it is missing.
    ///
    /// # Errors
    /// [`GitError::NotKept`] for a name that [`list`](Self::list) does not have,
    /// [`GitError::NotEmpty`] when something is in the directory.
    pub async fn restore(&self, name: &str, into: &Path) -> Result<(), GitError> {
        restore(&self.git, self.list().await?, name, into).await
    }

    /// What [`prune`](Self::prune) would let go of now, of one run or of all.
    ///
    /// # Errors
    /// [`GitError`] when it could not be found out.
    pub async fn named_by(
        &self,
        rule: Retention,
        run: Option<&str>,
    ) -> Result<Vec<Kept>, GitError> {
        let mut kept = rule.among(self.list().await?);
        kept.retain(|kept| run.is_none_or(|run| kept.run == run));
        Ok(kept)
    }

    /// Lets go of kept work that the rule names, of one run or of all, and says what went. The
    /// commits stay in the repository until git collects its garbage.
    ///
    /// # Errors
    /// [`GitError`] when it could not be done; nothing went then.
    pub async fn prune(&self, rule: Retention, run: Option<&str>) -> Result<Vec<Kept>, GitError> {
        let_go(&self.git, self.named_by(rule, run).await?).await
    }
}

impl GitRun {
    /// Everything that is kept of this run under refs, by task and name. Directories that git could
    /// not keep are listed by [`set_aside`](Self::set_aside).
    ///
    /// # Errors
    /// [`GitError`] when it could not be found out.
    pub async fn kept(&self) -> Result<Vec<Kept>, GitError> {
        let run = &self.0;
        let head = run.branch.head().await?;
        run.apart.git.kept_of(&run.config.run.slug(), Some(&head)).await
    }

    /// What of this run was set aside and is still there, by task and time.
    #[must_use]
    pub fn set_aside(&self) -> Vec<SetAside> {
        aside_in(&self.0.spaces.worktrees.root.join(SET_ASIDE), &self.0.config.run.slug())
    }

    /// Writes all the files of something kept into a directory of its own, made where it is missing.
    ///
    /// # Errors
    /// [`GitError::NotKept`] for a name that [`kept`](Self::kept) does not list,
    /// [`GitError::NotEmpty`] when something is in the directory.
    pub async fn restore(&self, name: &str, into: &Path) -> Result<(), GitError> {
        restore(&self.0.apart.git, self.kept().await?, name, into).await
    }

    /// Lets go of kept work that the rule names, and says what went. The commits stay in the
    /// repository until git collects its garbage.
    ///
    /// # Errors
    /// [`GitError`] when it could not be done; nothing went then.
    pub async fn prune_kept(&self, rule: Retention) -> Result<Vec<Kept>, GitError> {
        let_go(&self.0.apart.git, rule.among(self.kept().await?)).await
    }
}

/// What a run set aside in its directory for that.
fn aside_in(aside: &Path, run: &str) -> Vec<SetAside> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for of_task in entries(aside) {
        let task = of_task.file_name().to_string_lossy().into_owned();
        for one in entries(&of_task.path()) {
            let at = one.metadata().and_then(|meta| meta.modified()).unwrap_or(UNIX_EPOCH);
            found.push(SetAside { dir: one.path(), run: run.to_owned(), task: task.clone(), at });
        }
    }
    found.sort_unstable_by(|a, b| a.dir.cmp(&b.dir));
    found
}

async fn restore(git: &Arc<Git>, kept: Vec<Kept>, name: &str, into: &Path) -> Result<(), GitError> {
    let kept = kept.into_iter().find(|kept| kept.name == name);
    let kept = kept.ok_or_else(|| GitError::NotKept { name: name.to_owned() })?;
    fs::create_dir_all(into).map_err(GitError::io(into, "made"))?;
    let into = fs::canonicalize(into).map_err(GitError::io(into, "found"))?;
    let mut inside = fs::read_dir(&into).map_err(GitError::io(&into, "listed"))?;
    if inside.next().is_some() {
        return Err(GitError::NotEmpty { path: into });
    }
    let dir = std::env::temp_dir().join(format!("orchestrator-restoring-{}", unique()));
    let apart = Apart::make(Arc::clone(git), dir.clone())?;
    let args = ["read-tree", "--reset", "-u", &kept.commit];
    let call = apart.in_dir((&into, &dir.join("restoring")), args).await?;
    let written = git.run(call).await;
    remove_if_there(&dir)?;
    written.map(drop)
}

async fn let_go(git: &Git, kept: Vec<Kept>) -> Result<Vec<Kept>, GitError> {
    if kept.is_empty() {
        return Ok(kept);
    }
    let lines = kept.iter().map(|kept| format!("delete {} {}\n", kept.name, kept.commit));
    let gone = git.transact(&lines.collect::<String>()).await?;
    if gone.code == 0 { Ok(kept) } else { Err(gone.failed("update-ref")) }
}

impl Git {
    /// What is kept of a run whose branch stands here.
    async fn kept_of(&self, run: &str, head: Option<&Oid>) -> Result<Vec<Kept>, GitError> {
        let (kept, tasks) = (format!("{RUNS}/{run}/kept"), format!("{RUNS}/{run}/task"));
        let answer = self.run(self.plumbing(["for-each-ref", FORMAT, &kept, &tasks])).await?;
        let mut fields = answer.stdout.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let merged = self.merged_candidates(head).await?;
        let (mut found, mut merged_tasks) = (Vec::new(), BTreeSet::new());
        while let (Some(name), Some(commit), Some(at)) =
            (fields.next(), fields.next(), fields.next())
        {
            let name = name.trim_start_matches('\n').to_owned();
            let seconds = at.parse().map_err(|_| answer.unexpected("for-each-ref"))?;
            let (task, what) = match name.strip_prefix(&kept) {
                Some(rest) => {
                    let (task, what) =
                        rest.trim_start_matches('/').split_once('/').unwrap_or((rest, ""));
                    let is_former = what.starts_with("candidate-");
                    (task, if is_former { KeptAs::FormerCandidate } else { KeptAs::Leftover })
                }
                None => (name.rsplit('/').next().unwrap_or_default(), KeptAs::Candidate),
            };
            let task = task.to_owned();
            if what == KeptAs::Candidate && self.is_in(&commit, head, &merged).await? {
                merged_tasks.insert(task);
                continue;
            }
            found.push(Kept {
                name,
                commit: commit.into_owned(),
                run: run.to_owned(),
                task,
                what,
                at: UNIX_EPOCH + Duration::from_secs(seconds),
                is_of_merged_task: false,
            });
        }
        for kept in &mut found {
            kept.is_of_merged_task = merged_tasks.contains(&kept.task);
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The candidates whose changes the branch holds, as its commits say it.
    async fn merged_candidates(&self, head: Option<&Oid>) -> Result<BTreeSet<String>, GitError> {
        let Some(head) = head else { return Ok(BTreeSet::new()) };
        let format = format!("--format=%(trailers:key={CANDIDATE_TRAILER},valueonly)");
        let call = self.plumbing(["log", "--no-show-signature", &format, head.as_str()]);
        let answer = self.run(call).await?;
        Ok(answer.text().lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
    }

    async fn is_in(
        &self,
        commit: &str,
        head: Option<&Oid>,
        merged: &BTreeSet<String>,
    ) -> Result<bool, GitError> {
        let Some(head) = head else { return Ok(false) };
        Ok(merged.contains(commit) || self.is_ancestor(commit, head.as_str()).await?)
    }
}
