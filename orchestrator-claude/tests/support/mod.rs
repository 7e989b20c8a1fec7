//! A place for a stage: a workspace with documents, a directory for logs, and what a driver would
//! hand to an adapter.
#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orchestrator_claude::{ClaudeConfig, policy::Policy};
use orchestrator_core::port::{ActivityKind, ActivitySink, Change, StageContext, Workspace};
use orchestrator_core::{
    Candidate, ChangeId, FencingToken, RunId, SessionId, StageKind, StageSpec, TaskId, TaskSpec,
    Usd,
};
use orchestrator_process::Environment;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes, also where the machine has twenty times as much to do.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// A stage's place; gone when it is dropped.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) cx: StageContext,
    pub(crate) said: Arc<Mutex<Vec<ActivityKind>>>,
}

impl Place {
    /// A place for a stage of this kind, of a task with this id.
    pub(crate) fn new(kind: StageKind, task: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        for name in ["CONVENTIONS.md", "INTERFACES.md", "DECISIONS.md"] {
            std::fs::write(workspace.join(name), format!("{name} of the project\n")).unwrap();
        }
        let said: Arc<Mutex<Vec<ActivityKind>>> = Arc::default();
        let sink = Arc::clone(&said);
        let mut stage = StageSpec::of(kind);
        stage.timeout = TIMEOUT;
        stage.cap = Usd::dollars(1);
        let cx = StageContext {
            run: RunId::parse(&format!("real-cli-{task}")).unwrap(),
            task: Arc::new(TaskSpec::new(TaskId::parse(task).unwrap())),
            stage,
            attempt: 1,
            token: FencingToken(1),
            workspace: Workspace::new(
                workspace,
                ChangeId::parse("base").unwrap(),
                dir.path().join("aside"),
            ),
            dir: dir.path().join("stage"),
            feedback: Vec::new(),
            session: None,
            cancel: CancellationToken::new(),
            activity: ActivitySink::new(move |kind| sink.lock().unwrap().push(kind)),
        };
        Self { dir, cx, said }
    }

    /// The path of a file in the workspace.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.cx.workspace.path.join(name)
    }

    /// The path of something beside the workspace.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same task and workspace for the next grant.
    pub(crate) fn next_grant(&mut self, session: Option<SessionId>) {
        self.cx.token = FencingToken(self.cx.token.0 + 1);
        self.cx.dir = self.dir.path().join(format!("stage-{}", self.cx.token));
        self.cx.workspace.as_left = session.is_some();
        self.cx.session = session;
    }

    /// The same task and workspace for the attempt after a rejection with this feedback, as a driver
    /// opens it: on top of the candidate, and with no word of a conversation.
    pub(crate) fn next_attempt(&mut self, feedback: &str) {
        self.next_grant(None);
        self.cx.attempt += 1;
        self.cx.feedback.push(feedback.to_owned());
    }

    /// The processes that bear the marker of this stage's lease.
    pub(crate) fn processes(&self) -> Vec<String> {
        let marker = orchestrator_process::Marker::of(&self.cx.run, self.cx.token);
        let line = format!("{}={}\0", orchestrator_process::Marker::NAME, marker.as_str());
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let bears = |path: &Path| {
            std::fs::read(path.join("environ"))
                .is_ok_and(|env| env.windows(line.len()).any(|part| part == line.as_bytes()))
        };
        entries
            .map(|entry| entry.path())
            .filter(|path| bears(path))
            .map(|path| std::fs::read_to_string(path.join("cmdline")).unwrap_or_default())
            .collect()
    }
}

/// A change of one file.
pub(crate) fn change() -> Change {
    let id = |text| ChangeId::parse(text).unwrap();
    Change {
        candidate: Candidate { change: id("candidate"), base: id("base") },
        files: vec!["src/lib.rs".to_owned()],
        diff: "+pub fn add(a: i32, b: i32) -> i32 { a - b }".to_owned(),
        cut: None,
    }
}

/// A configuration for a program, signed in to nothing but this service.
pub(crate) fn config(program: PathBuf, base_url: &str) -> ClaudeConfig {
    let mut config = ClaudeConfig::new(program, "claude-opus-5-5");
    config.environment = Environment::empty()
        .passing(["PATH"])
        .with("ANTHROPIC_BASE_URL", base_url)
        .with("ANTHROPIC_API_KEY", "test-key");
    config.policy = Policy::default();
    config.common.final_grace = TIMEOUT / 4;
    config.common.kill_grace = TIMEOUT / 10;
    config
}
