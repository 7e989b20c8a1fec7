//! Many programs at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_claude::policy::Policy;
use orchestrator_claude::prompt::Documents;
use orchestrator_claude::testing::{LoopbackApi, Reply, Rule};
use orchestrator_claude::{ClaudeConfig, ClaudeReviewer, ClaudeRunner};
use orchestrator_core::port::{
    Change, Host, OpenWorkspace, PortError, Runner as _, Sealed, Start, Store as _, Workspace,
    Workspaces,
};
use orchestrator_core::testing::{MemoryTarget, Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    BlobHash, Candidate, ChangeId, DriverConfig, EventKind, MemoryStore, Orchestrator, Outcome,
    ParkReason, Plan, Ports, RunEnd, RunId, RunRecord, StageKind, StoredEvent, TaskId, TaskRecord,
    Usd,
};
use orchestrator_process::LocalHost;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::endings::by_token;
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
        let place = Place::new(StageKind::Run, &format!("agent-{number:02}"));
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
        let as_left = matches!(ask.start, Start::AsLeftBy { .. });
        Ok(Workspace { path, as_left, aside: place.join("aside"), ..opened })
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

/// A run of a plan with the real program in each stage that needs an agent.
struct Driven {
    end: RunEnd,
    record: RunRecord,
    task: TaskRecord,
    events: Vec<StoredEvent>,
}

async fn drive(mut config: ClaudeConfig, host: Arc<dyn Host>, plan: &Value) -> Driven {
    let dir = tempfile::tempdir().unwrap();
    let plan = match Plan::parse(&plan.to_string()) {
        Ok(plan) => plan,
        Err(errors) => panic!("{errors}"),
    };
    let first = plan.tasks[0].id.clone();
    config.common.documents = Documents::none();
    let config = Arc::new(config);
    let target = MemoryTarget::default();
    let store = Arc::new(MemoryStore::default());
    let recorder = Arc::new(Recorder::default());
    let ports = Ports {
        store: Arc::<MemoryStore>::clone(&store),
        runner: Arc::new(ClaudeRunner::new(Arc::clone(&config))),
        verifier: Arc::new(Scripted::passing()),
        reviewer: Arc::new(ClaudeReviewer::new(config)),
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(Directories { root: dir.path().join("trees"), memory: target }),
        host,
        observer: Arc::<Recorder>::clone(&recorder),
    };
    let run = RunId::parse("driven").unwrap();
    let mut driver = DriverConfig::new(run.clone(), dir.path().join("stages"));
    // What interrupted a stage here is over at once.
    driver.rules.backoff = Duration::from_millis(1);
    let end = Orchestrator::new(ports, driver)
        .drive(Some(Arc::new(plan)), CancellationToken::new())
        .await
        .unwrap();
    let (_, record) = store.header(&run).await.unwrap().unwrap();
    let task = store.task(&run, &first).await.unwrap().unwrap();
    Driven { end, record, task, events: recorder.events() }
}

/// Tasks that each spend until they are stopped, at 0.22 USD a turn, on a budget of 3 USD.
#[tokio::test(flavor = "multi_thread")]
async fn p10_concurrent_agents_that_spend_until_they_are_stopped_keep_to_the_budget() {
    const BUDGET: Usd = Usd::dollars(3);
    let Some(program) = claude() else { return };
    let dear = |command: &str| {
        let command = json!({ "command": command, "description": "d" });
        Reply::tool("Bash", command).tokens(45_000, 2_000)
    };
    // Whoever is first waits for a second one.
    let dir = tempfile::tempdir().unwrap();
    let meet = format!(
        ": > {0}/$$; until [ \"$(ls {0} | wc -l)\" -gt 1 ]; do sleep 0.05; done",
        dir.path().display()
    );
    let rules = vec![Rule::new(dear(&meet)).turn(0), Rule::new(dear("true"))];
    let api = LoopbackApi::start(rules).unwrap();
    let mut config = config(program, &api.base_url());
    config.policy = Policy::sandboxed();
    // They do the same again and again on purpose.
    config.common.repeats_max = None;
    let tasks: Vec<_> =
        (0..6).map(|n| json!({ "id": format!("t{n}"), "max_retries": 1 })).collect();
    let plan = json!({
        "tasks": tasks, "budget": 3.0,
        "pipelines": { "default": [{ "kind": "run", "cap_usd": 1.0 }] },
    });
    let Driven { end, record, .. } = drive(config, Arc::new(VirtualHost::new()), &plan).await;
    // It parked, or escalated all; whichever it was, no more than the budget was spent, since each
    // agent stopped a turn short of what was reserved for it.
    assert!(matches!(end, RunEnd::Parked(_) | RunEnd::Failed | RunEnd::Stalled(_)), "{end:?}");
    assert!(record.spent > Usd::dollars(1), "{}", record.spent);
    assert!(record.spent <= BUDGET, "{} of {BUDGET}", record.spent);
    assert_eq!(record.reserved, Usd::ZERO);
    let asked = api.requests();
    assert!(asked.len() > 8, "{}", asked.len());
    // They spent side by side: one asked, another one did, and then the first again.
    let who: Vec<String> = asked.iter().map(|request| asker(&request.body)).collect();
    let is_between = |(at, one): (usize, &String)| {
        let next = who.iter().skip(at + 1).position(|other| other == one);
        next.is_some_and(|between| between > 0)
    };
    assert!(who.iter().enumerate().any(is_between), "{who:?}");
}

/// The task that a request is for.
fn asker(body: &Value) -> String {
    let text = body.to_string();
    let (_, after) = text.split_once("# Task ").unwrap();
    after.chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_turns_dearer_than_what_is_held_back_pass_the_budget_once_and_are_booked() {
    let Some(program) = claude() else { return };
    let command = json!({ "command": "true", "description": "d" });
    // Each turn costs more than a dollar and a half, and half a dollar is held back of one.
    let dear = Rule::new(Reply::tool("Bash", command).tokens(400_000, 2_000));
    let api = LoopbackApi::start(vec![dear]).unwrap();
    let tasks: Vec<_> = (0..4).map(|n| json!({ "id": format!("t{n}") })).collect();
    let plan = json!({
        "tasks": tasks, "budget": 2.0, "pools": { "agents": 2 },
        "pipelines": { "default": [{ "kind": "run", "cap_usd": 1.0 }] },
    });
    let host = Arc::new(VirtualHost::new());
    let Driven { end, record, .. } = drive(config(program, &api.base_url()), host, &plan).await;
    assert_eq!(end, RunEnd::Parked(ParkReason::Budget));
    // Two were under way when the money was gone. Each passed what was reserved for it by one turn,
    // all of that was booked, and nobody else was started.
    assert_eq!(api.requests().len(), 2);
    let turn = Usd(record.spent.0 / 2);
    assert!(turn > Usd(1_500_000), "{turn}");
    assert!(record.spent > Usd::dollars(2) && record.reserved == Usd::ZERO, "{}", record.spent);
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_a_run_that_is_killed_is_booked_at_its_reservation_and_goes_on() {
    let Some(program) = claude() else { return };
    // The program writes its conversation down a while after it has said it; one that is killed before
    // that has none to go on with, and begins anew.
    let kills = "until cat \"$CLAUDE_CONFIG_DIR\"/projects/*/*.jsonl | grep -q 'kill -KILL'; \
                 do sleep 0.02; done; kill -KILL $PPID";
    let kills = json!({ "command": kills, "description": "d" });
    let api = LoopbackApi::start(vec![
        Rule::new(Reply::text("Finished.")).user("Go on with the task"),
        Rule::new(Reply::tool("Bash", kills)),
    ])
    .unwrap();
    let mut config = config(program, &api.base_url());
    config.policy = Policy::sandboxed();
    let plan = json!({
        "tasks": [{ "id": "one" }], "budget": 3.0,
        "pipelines": { "default": [{ "kind": "run", "cap_usd": 0.75 }] },
    });
    let host = Arc::new(LocalHost::new().unwrap());
    let Driven { end, record, task, events } = drive(config, host, &plan).await;
    assert_eq!(end, RunEnd::Completed, "{events:#?}");
    assert_eq!((task.attempt, task.dispatches, task.rejections), (1, 2, 0));
    // Little of it was spent, and nobody can know that.
    let rest = record.spent.minus(Usd(750_000));
    assert!(Usd::ZERO < rest && rest < Usd(100_000), "{}", record.spent);
    assert_eq!(record.reserved, Usd::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reviewer_rejects_goes_back_into_the_conversation_that_made_it() {
    let Some(program) = claude() else { return };
    let write = json!({ "file_path": "${cwd}/a.txt", "content": "a\n" });
    let finding = json!({ "severity": "blocking", "message": "it subtracts" });
    let reject = json!({ "verdict": "REJECT", "findings": [finding] });
    let earlier = json!([{ "id": "F1", "met": true, "why": "it adds" }]);
    let approve = json!({ "verdict": "APPROVE", "findings": [], "earlier": earlier });
    let api = LoopbackApi::start(vec![
        Rule::new(Reply::structured(reject)).tool("StructuredOutput").times(1),
        Rule::new(Reply::structured(approve)).tool("StructuredOutput"),
        Rule::new(Reply::tool("Write", write)).turn(0),
        Rule::new(Reply::text("Mended.")).user("it subtracts"),
        Rule::new(Reply::text("Done.")),
    ])
    .unwrap();
    let plan = json!({
        "tasks": [{ "id": "one" }],
        "pipelines": { "default": [
            { "kind": "run", "cap_usd": 1.0 }, { "kind": "review", "cap_usd": 1.0 },
        ] },
    });
    let host = Arc::new(VirtualHost::new());
    let Driven { end, task, events, .. } =
        drive(config(program, &api.base_url()), host, &plan).await;
    assert_eq!(end, RunEnd::Completed, "{events:#?}");
    assert_eq!((task.attempt, task.rejections), (2, 1));
    let asked = api.requests();
    let is_feedback = |body: &Value| {
        let text = body["messages"].to_string();
        text.contains("it subtracts") && text.contains("Go on with the task")
    };
    let again = asked.iter().find(|request| is_feedback(&request.body)).unwrap();
    assert_eq!(again.turn, 2, "both answers of the first attempt are there");
    assert!(again.body["messages"].to_string().contains("# Task one"), "and its prompt");
}

/// A name for which the wait after a window reopens is short.
fn impatient_name() -> String {
    let spread = |name: &String| {
        let hash = BlobHash::of(format!("driven/{name}").as_bytes());
        u64::from_str_radix(&hash.as_str()[..8], 16).unwrap() % 10_000
    };
    (0..500).map(|number| format!("t{number}")).min_by_key(spread).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_closes_the_pool_and_the_same_attempt_goes_on_when_it_reopens() {
    let Some(program) = claude() else { return };
    let write = json!({ "file_path": "${cwd}/a.txt", "content": "a\n" });
    // Where the machine is busy the window may have reopened before the program has ended.
    for seconds in [6, 48, 384] {
        let limit = Reply::usage_limit("five_hour", &format!("${{now+{seconds}}}"));
        let api = LoopbackApi::start(vec![
            Rule::new(Reply::tool("Write", write.clone())).turn(0),
            Rule::new(limit).times(1),
            Rule::new(Reply::text("Finished.")).user("Go on with the task"),
        ])
        .unwrap();
        let mut config = config(program.clone(), &api.base_url());
        by_token(&mut config, &api);
        let host = Arc::new(LocalHost::new().unwrap());
        let plan = json!({
            "tasks": [{ "id": impatient_name() }], "pipelines": { "default": ["run"] },
        });
        let Driven { end, task, events, .. } = drive(config, host, &plan).await;
        assert_eq!(end, RunEnd::Completed, "{events:#?}");
        assert_eq!((task.attempt, task.dispatches, task.rejections), (1, 2, 0));
        let asked = api.requests();
        let last = asked.last().unwrap();
        assert!(last.turn >= 1, "the conversation went on");
        assert!(last.body.to_string().contains("# Task t"), "with its first prompt");
        let count = |is_it: fn(&EventKind) -> bool| {
            events.iter().filter(|stored| is_it(&stored.event.kind)).count()
        };
        let closed = count(|kind| matches!(kind, EventKind::PoolClosed { .. }));
        let opened = count(|kind| matches!(kind, EventKind::PoolOpened { .. }));
        assert_eq!(closed, opened, "{events:#?}");
        if closed == 1 {
            return;
        }
    }
    panic!("the pool was never closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_refused_parks_the_run_with_the_reason() {
    let Some(program) = claude() else { return };
    let api = LoopbackApi::start(vec![Rule::new(Reply::error(401))]).unwrap();
    let plan = json!({
        "tasks": [{ "id": "one" }, { "id": "two" }], "pipelines": { "default": ["run"] },
        "pools": { "agents": 1 },
    });
    let host = Arc::new(VirtualHost::new());
    let Driven { end, record, task, .. } =
        drive(config(program, &api.base_url()), host, &plan).await;
    assert_eq!(end, RunEnd::Parked(ParkReason::Auth));
    assert_eq!((record.spent, task.dispatches), (Usd::ZERO, 1));
}
