//! A repository with a run on it, and what a driver and an agent do there.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::{
    Applied, Integrator as _, OpenWorkspace, Proposal, Sealed, Start, Workspace, Workspaces as _,
};
use orchestrator_core::{
    Candidate, Cost, FencingToken, MergeIntent, RunId, Scope, TaskId, TaskSpec,
};
use orchestrator_git::{GitConfig, GitRun};
use tempfile::TempDir;

pub(crate) fn task(id: &str) -> TaskSpec {
    TaskSpec::new(TaskId::parse(id).unwrap())
}

pub(crate) fn scoped(id: &str, scope: &[&str]) -> TaskSpec {
    TaskSpec { scope: Some(Scope::parse(scope).unwrap()), ..task(id) }
}

/// Calls git as a person would, in a directory.
pub(crate) fn git<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> String {
    let mut command = Command::new("git");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "a person"),
        ("GIT_AUTHOR_EMAIL", "person@example.org"),
        ("GIT_COMMITTER_NAME", "a person"),
        ("GIT_COMMITTER_EMAIL", "person@example.org"),
    ] {
        command.env(name, value);
    }
    let output = command.args(args).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git failed: {said}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

pub(crate) fn write(dir: &Path, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes a program. A process of its own does it: what this one has open to write, a child that
/// another test is just starting has too, and until then the program is "busy" and does not start.
pub(crate) fn program(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

/// Everything in a directory: paths, kinds and contents.
pub(crate) fn listing(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                dirs.push(path);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.push((path, target.into_os_string().into_encoded_bytes()));
            } else {
                let bytes = fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) repo: PathBuf,
    pub(crate) run: GitRun,
}

impl World {
    /// A repository with a few files, and a run on it.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}, |_| {}).await
    }

    /// The same with more in the repository, or another configuration.
    pub(crate) async fn with(
        prepare: impl FnOnce(&Path),
        configure: impl FnOnce(&mut GitConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("the repo é");
        fs::create_dir(&repo).unwrap();
        git(&repo, ["init", "-q", "-b", "main"]);
        write(&repo, "src/a.rs", "fn a() {}\n");
        write(&repo, "src/b.rs", "fn b() {}\n");
        write(&repo, "README.md", "one\ntwo\nthree\n");
        write(&repo, ".gitignore", "target/\n");
        git(&repo, ["add", "-A"]);
        git(&repo, ["commit", "-q", "-m", "begin"]);
        prepare(&repo);
        let mut config = Self::config(&repo, dir.path());
        configure(&mut config);
        let run = GitRun::open(config).await.unwrap();
        Self { dir, repo, run }
    }

    pub(crate) fn config(repo: &Path, dir: &Path) -> GitConfig {
        let run = RunId::parse("r").unwrap();
        let mut config = GitConfig::new(run, repo.to_owned(), dir.join("work trees"));
        // However full the disk of this machine is, and however busy it is.
        config.free_bytes_min = None;
        config.lock_wait = Duration::from_secs(300);
        config
    }

    /// Another process on the same run.
    pub(crate) async fn again(&self) -> GitRun {
        GitRun::open(Self::config(&self.repo, self.dir.path())).await.unwrap()
    }

    /// One that waits for no lock for long.
    pub(crate) async fn impatient(&self) -> GitRun {
        let mut config = Self::config(&self.repo, self.dir.path());
        config.lock_wait = Duration::from_millis(300);
        GitRun::open(config).await.unwrap()
    }

    pub(crate) fn run_id(&self) -> RunId {
        RunId::parse("r").unwrap()
    }

    pub(crate) fn ask(&self, task: &TaskSpec, token: u64, start: Start) -> OpenWorkspace {
        let task = Arc::new(task.clone());
        let token = FencingToken(token);
        OpenWorkspace { run: self.run_id(), task, attempt: 1, token, start, cost: Cost::NONE }
    }

    pub(crate) async fn open(&self, task: &TaskSpec, token: u64) -> (OpenWorkspace, Workspace) {
        let ask = self.ask(task, token, Start::OnTarget);
        let workspace = self.run.open(&ask).await.unwrap();
        (ask, workspace)
    }

    /// Works on a task and seals the work.
    pub(crate) async fn work(
        &self,
        task: &TaskSpec,
        token: u64,
        files: &[(&str, &str)],
    ) -> Candidate {
        let (ask, workspace) = self.open(task, token).await;
        for (path, text) in files {
            write(&workspace.path, path, text);
        }
        candidate(self.run.seal(&ask, &workspace).await.unwrap())
    }

    pub(crate) async fn fence(&self, task: &TaskSpec, token: u64) {
        self.run.fence(&self.run_id(), &task.id, FencingToken(token)).await.unwrap();
    }

    pub(crate) async fn propose(&self, task: &TaskSpec, token: u64, what: &Candidate) -> Proposal {
        self.run.propose(&self.run_id(), task, FencingToken(token), what).await.unwrap()
    }

    pub(crate) async fn apply(&self, task: &TaskSpec, token: u64, intent: &MergeIntent) -> Applied {
        self.run.apply(&self.run_id(), &task.id, FencingToken(token), intent).await.unwrap()
    }

    /// Merges a candidate as a driver does.
    pub(crate) async fn merge(&self, task: &TaskSpec, token: u64, what: &Candidate) -> MergeIntent {
        self.fence(task, token).await;
        let (intent, _) = clean(self.propose(task, token, what).await);
        assert_eq!(self.apply(task, token, &intent).await, Applied::Merged);
        intent
    }

    /// The commits of the run's branch with this trailer.
    pub(crate) fn merges_of(&self, id: &str) -> usize {
        let format = "--format=%(trailers:key=Orchestrator-Task,valueonly)";
        let log = git(&self.repo, ["log", format, "orchestrator/r"]);
        log.lines().filter(|line| *line == id).count()
    }

    pub(crate) fn show(&self, name: &str) -> String {
        git(&self.repo, ["show", name])
    }

    pub(crate) fn refs(&self) -> String {
        git(&self.repo, ["for-each-ref", "--format=%(refname)"])
    }
}

pub(crate) fn candidate(sealed: Sealed) -> Candidate {
    match sealed {
        Sealed::Candidate(candidate) => candidate,
        Sealed::Refused { feedback } => panic!("refused: {feedback}"),
    }
}

pub(crate) fn refused(sealed: Sealed) -> String {
    match sealed {
        Sealed::Candidate(candidate) => panic!("not refused: {candidate:?}"),
        Sealed::Refused { feedback } => feedback,
    }
}

pub(crate) fn clean(proposal: Proposal) -> (MergeIntent, bool) {
    match proposal {
        Proposal::Clean { intent, is_judged } => (intent, is_judged),
        other @ (Proposal::AlreadyThere | Proposal::Conflict { .. }) => panic!("{other:?}"),
    }
}

pub(crate) fn conflict(proposal: Proposal) -> String {
    match proposal {
        Proposal::Conflict { feedback } => feedback,
        other @ (Proposal::AlreadyThere | Proposal::Clean { .. }) => panic!("{other:?}"),
    }
}
