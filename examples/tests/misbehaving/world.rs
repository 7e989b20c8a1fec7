//! A repository with one task, and the agent that works on it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use orchestrator_claude::prompt::Documents;
use orchestrator_claude::{ClaudeConfig, ClaudeRunner};
use orchestrator_core::port::{Runner, StageContext, Store as _};
use orchestrator_core::testing::{Recorder, Scripted};
use orchestrator_core::{
    DriverConfig, EventKind, MemoryStore, Orchestrator, Plan, Ports, RunEnd, RunId, Scope,
    StageEnd, TaskId, TaskSpec, Usd, VerifyCommand,
};
use orchestrator_git::{GitConfig, GitRun};
use orchestrator_process::{CommandRunner, CommandVerifier, Environment, LocalHost};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Calls git as a person would.
pub(crate) fn git<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> String {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "a person");
        command.env(format!("GIT_{role}_EMAIL"), "person@example.org");
    }
    let output = command.args(args).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git failed: {said}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Whether a process lives.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The built program.
fn agent() -> &'static Path {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "examples", "--example", "misbehaving_agent"]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        profile.join("examples").join("misbehaving_agent")
    })
}

/// What became of the task.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) events: Vec<EventKind>,
    /// The feedback of each rejection.
    pub(crate) rejections: Vec<String>,
    pub(crate) spent: Usd,
    pub(crate) took: Duration,
}

pub(crate) struct World {
    dir: TempDir,
    pub(crate) repo: PathBuf,
}

/// What the task's stages may take: far longer than they do.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the stage by one runner the first time, and by another one after that: a limit that one that
/// misbehaves is to reach is none that the other one could miss.
#[derive(Debug)]
pub(crate) struct First {
    first: CommandRunner,
    then: CommandRunner,
    /// What the first time may take.
    within: Duration,
    has_run: AtomicBool,
}

impl First {
    pub(crate) const fn new(first: CommandRunner, within: Duration, then: CommandRunner) -> Self {
        Self { first, then, within, has_run: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Runner for First {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        if self.has_run.swap(true, Ordering::Relaxed) {
            return self.then.run(cx).await;
        }
        let mut cx = cx.clone();
        cx.stage.timeout = self.within;
        self.first.run(&cx).await
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        for place in [&repo, &dir.path().join("state")] {
            fs::create_dir(place).unwrap();
        }
        git(&repo, ["init", "-q", "-b", "main"]);
        fs::write(repo.join("README.md"), "ours\n").unwrap();
        git(&repo, ["add", "-A"]);
        git(&repo, ["commit", "-q", "-m", "begin"]);
        Self { dir, repo }
    }

    /// Where the agent notes that it has misbehaved.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A file that is none of the agent's business.
    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    fn arguments(&self, behaviour: &str) -> [String; 5] {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        [
            behaviour.to_owned(),
            "--once".to_owned(),
            text(self.state().join("misbehaved")),
            "--outside".to_owned(),
            text(self.outside()),
        ]
    }

    /// The agent as any program.
    pub(crate) fn any_program(&self, behaviour: &str) -> CommandRunner {
        CommandRunner::new(agent().to_str().unwrap(), self.arguments(behaviour))
    }

    /// The agent as one that speaks the protocol of `claude`.
    pub(crate) fn claude(&self, behaviour: &str) -> ClaudeRunner {
        let mut config = ClaudeConfig::new(agent(), "none");
        config.leading_args = self.arguments(behaviour).map(Into::into).to_vec();
        config.environment = Environment::tools();
        config.common.documents = Documents::none();
        config.common.final_grace = Duration::from_millis(300);
        config.common.kill_grace = Duration::from_millis(300);
        ClaudeRunner::new(Arc::new(config))
    }

    /// Drives the run to its end, which is a merged task whatever the agent did.
    pub(crate) async fn drive(&self, runner: impl Runner + 'static) -> Story {
        let run = RunId::parse("misbehaving").unwrap();
        let config = GitConfig::new(run.clone(), self.repo.clone(), self.dir.path().join("trees"));
        let repository = Arc::new(GitRun::open(config).await.unwrap());
        let store = Arc::new(MemoryStore::default());
        let recorder = Recorder::default();
        let ports = Ports {
            store: Arc::<MemoryStore>::clone(&store),
            runner: Arc::new(runner),
            verifier: Arc::new(CommandVerifier::default()),
            reviewer: Arc::new(Scripted::passing()),
            integrator: Arc::<GitRun>::clone(&repository),
            workspaces: repository,
            host: Arc::new(LocalHost::new().unwrap()),
            observer: Arc::new(recorder.clone()),
        };
        let mut config = DriverConfig::new(run.clone(), self.dir.path().join("stages"));
        config.rules.backoff = Duration::ZERO;
        let begun = Instant::now();
        let driving = Orchestrator::new(ports, config);
        let end = driving.drive(Some(plan()), CancellationToken::new()).await.unwrap();
        let events: Vec<EventKind> =
            recorder.events().into_iter().map(|stored| stored.event.kind).collect();
        assert_eq!(end, RunEnd::Completed, "{events:?}");
        assert_eq!(git(&self.repo, ["show", "orchestrator/misbehaving:work.txt"]), "work");
        let mut rejections = Vec::new();
        for kind in &events {
            if let EventKind::Rejected { feedback, .. } = kind {
                let text = store.blob(&run, feedback).await.unwrap().unwrap();
                rejections.push(String::from_utf8(text).unwrap());
            }
        }
        let (_, record) = store.header(&run).await.unwrap().unwrap();
        Story { events, rejections, spent: record.spent, took: begun.elapsed() }
    }
}

fn plan() -> Arc<Plan> {
    let mut task = TaskSpec::new(TaskId::parse("work").unwrap());
    task.verify = Some(VerifyCommand::Shell("test work = \"$(cat work.txt)\"".to_owned()));
    task.scope = Some(Scope::parse(["work.txt"]).unwrap());
    task.timeout = Some(TIMEOUT);
    Arc::new(Plan { tasks: vec![task], ..Plan::default() })
}
