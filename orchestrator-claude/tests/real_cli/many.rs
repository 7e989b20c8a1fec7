//! Many programs at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_claude::testing::{LoopbackApi, Reply, Rule};
use orchestrator_claude::{ClaudeReviewer, ClaudeRunner};
use orchestrator_core::port::{
    Change, OpenWorkspace, PortError, Runner as _, Sealed, Workspace, Workspaces,
};
use orchestrator_core::testing::{MemoryTarget, Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    Candidate, ChangeId, DriverConfig, MemoryStore, Orchestrator, Outcome, Plan, Ports, RunEnd,
    RunId, StageKind, TaskId, Usd, port::Store as _,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{Place, config};
use crate::{claude, set_up};

fn git(at: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(at).args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(args);
    let output = git.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_agents_work_on_one_repository_at_once() {
    const AGENTS: usize = 16;
    let write = |number: usize| {
        json!({
            "file_path": "${cwd}/made.txt", "content": format!("by agent {number}\n")
        })
    };
    let rules = (0..AGENTS).map(|number| {
        let user = format!("# Task agent-{number:02}\n");
        Rule::new(Reply::tool("Write", write(number))).user(&user).turn(0)
    });
    let rules = rules.chain([Rule::new(Reply::text("Done."))]).collect();
    let Some((origin, _api, config)) = set_up(StageKind::Run, "origin", rules) else { return };
    let repository = origin.cx.workspace.path.clone();
    git(&repository, &["init", "--quiet"]);
    git(&repository, &["add", "--all"]);
    git(&repository, &["commit", "--quiet", "--message", "begin"]);
    // One configuration, so that their starts are staggered together.
    let runner = ClaudeRunner::new(config);
    let mut running = JoinSet::new();
    for number in 0..AGENTS {
        let mut place = Place::new(StageKind::Run, &format!("agent-{number:02}"));
        place.cx.stage.timeout = Duration::from_secs(240);
        std::fs::remove_dir_all(&place.cx.workspace.path).unwrap();
        let tree = place.cx.workspace.path.to_str().unwrap();
        git(&repository, &["worktree", "add", "--quiet", "--detach", tree]);
        let runner = runner.clone();
        running.spawn(async move { (number, runner.run(&place.cx).await, place) });
    }
    let mut sessions = std::collections::BTreeSet::new();
    while let Some(ended) = running.join_next().await {
        let (number, end, place) = ended.unwrap();
        assert_eq!(end.outcome, Outcome::Passed, "{number}");
        let made = std::fs::read_to_string(place.file("made.txt")).unwrap();
        assert_eq!(made, format!("by agent {number}\n"));
        let status = git(&place.cx.workspace.path, &["status", "--porcelain"]);
        assert_eq!(status, "?? made.txt\n", "{number}");
        assert!(place.processes().is_empty(), "{number}");
        sessions.insert(end.session.unwrap());
    }
    assert_eq!(sessions.len(), AGENTS, "each has a conversation of its own");
    assert_eq!(git(&repository, &["status", "--porcelain"]), "", "the checkout is untouched");
}

/// Workspaces that are directories, each empty but for the documents.
#[derive(Debug)]
struct Directories {
    root: PathBuf,
    memory: MemoryTarget,
}

#[async_trait]
impl Workspaces for Directories {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        let opened = self.memory.open(ask).await?;
        let place = self.root.join(ask.task.id.slug());
        let path = place.join("tree");
        std::fs::create_dir_all(&path).map_err(|err| PortError::Fatal(Box::new(err)))?;
        Ok(Workspace { path, aside: place.join("aside"), ..opened })
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        self.memory.seal(ask, at).await
    }

    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError> {
        self.memory.differing(at, from).await
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        self.memory.change(candidate).await
    }

    async fn keep(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Option<String>, PortError> {
        self.memory.keep(ask, at).await
    }

    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError> {
        self.memory.release(run, task).await
    }

    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        self.memory.retain(run, live).await
    }

    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError> {
        self.memory.untouched(run).await
    }
}

/// Tasks that each spend until they are stopped, at 0.22 USD a turn, on a budget of 3 USD.
#[tokio::test(flavor = "multi_thread")]
async fn p10_concurrent_agents_that_spend_until_they_are_stopped_keep_to_the_budget() {
    const BUDGET: Usd = Usd::dollars(3);
    let Some(program) = claude() else { return };
    let command = json!({ "command": "true", "description": "d" });
    let dear = Rule::new(Reply::tool("Bash", command).tokens(45_000, 2_000));
    let api = LoopbackApi::start(vec![dear]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(program, &api.base_url());
    config.documents = orchestrator_claude::prompt::Documents::none();
    // They do the same again and again on purpose.
    config.repeats_max = None;
    let config = Arc::new(config);
    let tasks: Vec<_> =
        (0..6).map(|n| json!({ "id": format!("t{n}"), "max_retries": 1 })).collect();
    let plan = json!({
        "tasks": tasks, "budget": 3.0,
        "pipelines": { "default": [{ "kind": "run", "cap_usd": 1.0 }] },
    });
    let plan = match Plan::parse(&plan.to_string()) {
        Ok(plan) => plan,
        Err(errors) => panic!("{errors}"),
    };
    let target = MemoryTarget::default();
    let store = Arc::new(MemoryStore::default());
    let judge = Arc::new(Scripted::passing());
    let recorder = Arc::new(Recorder::default());
    let ports = Ports {
        store: Arc::<MemoryStore>::clone(&store),
        runner: Arc::new(ClaudeRunner::new(Arc::clone(&config))),
        verifier: judge,
        reviewer: Arc::new(ClaudeReviewer::new(config)),
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(Directories { root: dir.path().join("trees"), memory: target }),
        host: Arc::new(VirtualHost::new()),
        observer: Arc::<Recorder>::clone(&recorder),
    };
    let run = RunId::parse("money").unwrap();
    let driver = DriverConfig::new(run.clone(), dir.path().join("stages"));
    let end = Orchestrator::new(ports, driver)
        .drive(Some(Arc::new(plan)), CancellationToken::new())
        .await
        .unwrap();
    let (_, record) = store.header(&run).await.unwrap().unwrap();
    // It parked, or escalated all; whichever it was, no more than the budget was spent, since each
    // agent stopped a turn short of what was reserved for it.
    assert!(matches!(end, RunEnd::Parked(_) | RunEnd::Failed | RunEnd::Stalled(_)), "{end:?}");
    assert!(record.spent > Usd::dollars(1), "{}", record.spent);
    assert!(record.spent <= BUDGET, "{} of {BUDGET}", record.spent);
    assert_eq!(record.reserved, Usd::ZERO);
    assert!(api.requests().len() > 8, "{}", api.requests().len());
}
