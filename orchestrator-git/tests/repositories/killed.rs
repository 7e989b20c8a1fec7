//! A driver's process that is killed again and again, whatever it is doing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::{
    Applied, Integrator as _, OpenWorkspace, Proposal, Start, Workspaces as _,
};
use orchestrator_core::{Candidate, ChangeId, Cost, FencingToken, MergeIntent, RunId, TaskSpec};
use orchestrator_git::GitRun;

use crate::world::{World, candidate, git, task, write};

/// Tells the test that is started as a process of its own where the repository is.
const PLACE: &str = "ORCHESTRATOR_GIT_TEST_PLACE";
const TASKS: u64 = 4;
const KILLS: u32 = 24;

/// What a driver's store has of one task, in a file.
#[derive(Debug, Default)]
pub(crate) struct Record {
    token: u64,
    candidate: Option<Candidate>,
    intent: Option<MergeIntent>,
    pub(crate) is_done: bool,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut words = text.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap_or_default();
        let token = next().parse().unwrap_or_default();
        let is_done = next() == "done";
        let mut change = || ChangeId::parse(&next()).ok().filter(|id| id.as_str() != "-");
        let candidate = change().zip(change()).map(|(change, base)| Candidate { change, base });
        let intent = change().zip(change()).map(|(onto, merged)| MergeIntent { onto, merged });
        Self { token, candidate, intent, is_done }
    }

    fn write(&self, path: &Path) {
        let done = if self.is_done { "done" } else { "open" };
        let none = || "- -".to_owned();
        let pair = |(a, b): (&ChangeId, &ChangeId)| format!("{a} {b}");
        let candidate = self.candidate.as_ref().map(|it| pair((&it.change, &it.base)));
        let intent = self.intent.as_ref().map(|it| pair((&it.onto, &it.merged)));
        let (candidate, intent) = (candidate.unwrap_or_else(none), intent.unwrap_or_else(none));
        let new = path.with_extension("new");
        fs::write(&new, format!("{} {done} {candidate} {intent}", self.token)).unwrap();
        fs::rename(new, path).unwrap();
    }
}

/// One task from wherever it stands to its merge, as a driver takes it.
pub(crate) async fn carry_out(run: &GitRun, spec: &TaskSpec, file: &Path) {
    let id = RunId::parse("r").unwrap();
    let mut record = Record::read(file);
    if record.is_done {
        return;
    }
    let token = run.greatest_fence(&id).await.unwrap().0.max(record.token) + 1;
    let announced = record.intent.take();
    record.token = token;
    record.intent.clone_from(&announced);
    record.write(file);
    let token = FencingToken(token);
    run.fence(&id, &spec.id, token).await.unwrap();
    let was_merged = match &announced {
        Some(intent) => run.is_merged(&intent.merged).await.unwrap(),
        None => false,
    };
    if !was_merged {
        record.intent = None;
        if record.candidate.is_none() {
            record.candidate = Some(work(run, spec, token).await);
            record.write(file);
        }
        merge(run, spec, token, &mut record, file).await;
    }
    record.is_done = true;
    record.write(file);
    run.release(&id, &spec.id).await.unwrap();
}

async fn work(run: &GitRun, spec: &TaskSpec, token: FencingToken) -> Candidate {
    let ask = OpenWorkspace {
        run: RunId::parse("r").unwrap(),
        task: Arc::new(spec.clone()),
        attempt: 1,
        token,
        start: Start::OnTarget,
        cost: Cost::NONE,
    };
    let workspace = run.open(&ask).await.unwrap();
    assert!(!workspace.path.join(spec.id.as_str()).exists(), "left by an earlier attempt");
    write(&workspace.path, spec.id.as_str(), "done\n");
    git(&workspace.path, ["add", "-A"]);
    candidate(run.seal(&ask, &workspace).await.unwrap())
}

async fn merge(
    run: &GitRun,
    spec: &TaskSpec,
    token: FencingToken,
    record: &mut Record,
    file: &Path,
) {
    let id = RunId::parse("r").unwrap();
    let sealed = record.candidate.clone().unwrap();
    loop {
        let intent = match run.propose(&id, spec, token, &sealed).await.unwrap() {
            Proposal::Clean { intent, .. } => intent,
            other @ (Proposal::AlreadyThere | Proposal::Conflict { .. }) => panic!("{other:?}"),
        };
        record.intent = Some(intent.clone());
        record.write(file);
        match run.apply(&id, &spec.id, token, &intent).await.unwrap() {
            Applied::Merged => return,
            Applied::Moved => {}
            Applied::Fenced => panic!("fenced off by nobody"),
        }
    }
}

/// The driver's process: all tasks at once.
#[tokio::test]
#[ignore = "is started by the test below"]
async fn a_process_that_drives() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let run = GitRun::open(World::config(&place.join("the repo é"), &place)).await.unwrap();
    let run_id = RunId::parse("r").unwrap();
    let specs: Vec<TaskSpec> = (0..TASKS).map(|number| task(&format!("t{number}"))).collect();
    let is_done = |spec: &&TaskSpec| Record::read(&place.join(spec.id.as_str())).is_done;
    let live = specs.iter().filter(|spec| !is_done(spec));
    let ids: Vec<_> = live.map(|spec| spec.id.clone()).collect();
    run.retain(&run_id, &ids).await.unwrap();
    let mut tasks = Vec::new();
    for spec in specs {
        let (run, file) = (run.clone(), place.join(spec.id.as_str()));
        tasks.push(tokio::spawn(async move { carry_out(&run, &spec, &file).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    fs::write(place.join("finished"), "").unwrap();
}

fn start(world: &World) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_process_that_drives", "--ignored", "--nocapture"])
        .env(PLACE, world.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn p17_a_driver_that_is_killed_at_any_moment_merges_each_task_once() {
    let world = World::new().await;
    let finished = world.dir.path().join("finished");
    for kill in 0..KILLS {
        let mut driver = start(&world);
        // Each life is a little longer than the one before, so that every step is cut off somewhere.
        tokio::time::sleep(Duration::from_millis(15 * u64::from(kill))).await;
        driver.kill().unwrap();
        driver.wait().unwrap();
        if finished.exists() {
            break;
        }
    }
    let ended = start(&world).wait().unwrap();
    assert!(ended.success() && finished.exists());
    for number in 0..TASKS {
        let name = format!("t{number}");
        assert_eq!(world.merges_of(&name), 1, "{name}");
        assert_eq!(world.show(&format!("orchestrator/r:{name}")), "done");
        assert!(Record::read(&world.dir.path().join(&name)).is_done);
    }
    git(&world.repo, ["fsck", "--strict", "--no-dangling"]);
    git(&world.repo, ["worktree", "prune"]);
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&world.repo, ["status", "--porcelain"]), "");
}
