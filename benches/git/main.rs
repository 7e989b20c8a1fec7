//! What merging and opening workspaces cost, beside what a person with the git command line pays.
//!
//! `cargo bench -p benches --bench git` prints `name: value` a line. Costs are CPU time of this
//! process and of every git that it started, so that they hold on a machine that is busy; both sides
//! of a ratio are taken in turns in one run.
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run has nothing to say")]

mod queue;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use orchestrator_core::port::{
    Applied, Integrator as _, OpenWorkspace, Proposal, Start, Workspace, Workspaces as _,
};
use orchestrator_core::{Candidate, ChangeId, Cost, FencingToken, RunId, TaskId, TaskSpec};
use orchestrator_git::{GitConfig, GitRun};

/// Files of the repository.
const FILES: u32 = 5_000;
/// Merges in one round.
const MERGES: u32 = 20;
/// Workspaces in one round.
const WORKSPACES: u32 = 6;
const ROUNDS: u32 = 3;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bench = Bench::new().await;
        bench.merging().await;
        bench.workspaces().await;
        let serial = bench.queue(1, 40).await;
        let window = bench.queue(16, 300).await;
        println!("queue_serial_workers_fed: {serial:.1}");
        println!("queue_window_16_workers_fed: {window:.1}");
    });
}

/// What a part of the bench cost.
#[derive(Clone, Copy, Default)]
struct Spent {
    cpu: f64,
    wall: f64,
    count: u32,
}

impl Spent {
    fn cpu_ms(self) -> f64 {
        self.cpu * 1e3 / f64::from(self.count)
    }

    fn wall_ms(self) -> f64 {
        self.wall * 1e3 / f64::from(self.count)
    }

    fn per_cpu_second(self) -> f64 {
        f64::from(self.count) / self.cpu
    }
}

/// Measures from here on, what was spent before included.
struct Meter {
    cpu: f64,
    begun: Instant,
}

impl Meter {
    fn begin() -> Self {
        Self { cpu: cpu_seconds(), begun: Instant::now() }
    }

    fn end(&self, into: &mut Spent, count: u32) {
        into.cpu += cpu_seconds() - self.cpu;
        into.wall += self.begun.elapsed().as_secs_f64();
        into.count += count;
    }
}

/// CPU time of this process, of all that it waited for, and of its children that live.
fn cpu_seconds() -> f64 {
    let children = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = children.filter_map(|one| fs::read_to_string(one.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|ids| ids.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let live = children.iter().filter(|id| !id.is_empty()).map(String::as_str);
    let ticks: u64 = std::iter::once("self").chain(live).map(ticks).sum();
    #[expect(clippy::cast_precision_loss, reason = "it is far below 2^52")]
    let ticks = ticks as f64;
    ticks / 100.0
}

/// What a process has used; nothing when it has just ended.
fn ticks(id: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    ticks.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Calls git as a person would.
fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a person", "-c", "user.email=person@example.org"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

struct Bench {
    dir: tempfile::TempDir,
    repo: PathBuf,
    run: GitRun,
    id: RunId,
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        fs::create_dir(&repo).unwrap();
        git(&repo, &["init", "-q", "-b", "main"]);
        for file in 0..FILES {
            let path = repo.join(format!("src/part{}/file{file}.txt", file / 50));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = format!("line of file {file}\n").repeat(20);
            fs::write(path, text).unwrap();
        }
        git(&repo, &["add", "-A"]);
        git(&repo, &["commit", "-q", "-m", "begin"]);
        git(&repo, &["repack", "-adq"]);
        let id = RunId::parse("bench").unwrap();
        let config = GitConfig::new(id.clone(), repo.clone(), dir.path().join("worktrees"));
        let run = GitRun::open(config).await.unwrap();
        Self { dir, repo, run, id }
    }

    fn ask(&self, task: &TaskSpec, token: u32) -> OpenWorkspace {
        OpenWorkspace {
            run: self.id.clone(),
            task: Arc::new(task.clone()),
            attempt: 1,
            token: FencingToken(u64::from(token)),
            start: Start::OnTarget,
            cost: Cost::NONE,
        }
    }

    /// Merges in a chain: each onto the result of the one before, all begun at the same commit.
    async fn merging(&self) {
        let base = git(&self.repo, &["rev-parse", "main"]);
        let tips = self.tips(&base);
        let plain = self.dir.path().join("plain");
        let (to, from) = (plain.to_str().unwrap(), self.repo.to_str().unwrap());
        git(self.dir.path(), &["clone", "-q", "--local", from, to]);
        let (mut ours, mut theirs) = (Spent::default(), Spent::default());
        for (round, tips) in (0..ROUNDS).zip(tips.chunks(MERGES as usize)) {
            let meter = Meter::begin();
            for (number, tip) in (0..).zip(tips) {
                self.merge(round * MERGES + number, &base, tip).await;
            }
            meter.end(&mut ours, MERGES);
            let meter = Meter::begin();
            for tip in tips {
                git(&plain, &["merge", "-q", "--no-ff", "-m", "merge", tip]);
            }
            meter.end(&mut theirs, MERGES);
        }
        println!("merge_plumbing_per_cpu_second: {:.1}", ours.per_cpu_second());
        println!("merge_no_ff_per_cpu_second: {:.1}", theirs.per_cpu_second());
        println!("merge_ratio: {:.2}", ours.per_cpu_second() / theirs.per_cpu_second());
        println!("merge_plumbing_wall_ms: {:.1}", ours.wall_ms());
        println!("merge_no_ff_wall_ms: {:.1}", theirs.wall_ms());
    }

    /// Commits on the base that each change one file, and no other the same.
    fn tips(&self, base: &str) -> Vec<String> {
        let tree = self.dir.path().join("tips");
        git(&self.repo, &["worktree", "add", "-q", "--detach", tree.to_str().unwrap(), base]);
        let make = |number: u32| {
            git(&tree, &["checkout", "-q", "--detach", base]);
            let file = tree.join(format!("src/part{}/file{}.txt", number, number * 50));
            fs::write(file, format!("changed by {number}\n")).unwrap();
            git(&tree, &["commit", "-qam", "change"]);
            git(
                &self.repo,
                &[
                    "update-ref",
                    &format!("refs/heads/tip{number}"),
                    &git(&tree, &["rev-parse", "HEAD"]),
                ],
            );
            git(&tree, &["rev-parse", "HEAD"])
        };
        let tips = (0..ROUNDS * MERGES).map(make).collect();
        git(&self.repo, &["worktree", "remove", "--force", tree.to_str().unwrap()]);
        tips
    }

    async fn merge(&self, number: u32, base: &str, tip: &str) {
        let task = TaskSpec::new(TaskId::parse(&format!("merge-{number}")).unwrap());
        let token = FencingToken(u64::from(number) + 1);
        let change = |text: &str| ChangeId::parse(text).unwrap();
        let candidate = Candidate { change: change(tip), base: change(base) };
        self.run.fence(&self.id, &task.id, token).await.unwrap();
        let proposal = self.run.propose(&self.id, &task, token, &candidate).await.unwrap();
        let Proposal::Clean { intent, .. } = proposal else { panic!("{proposal:?}") };
        let applied = self.run.apply(&self.id, &task.id, token, &intent).await.unwrap();
        assert_eq!(applied, Applied::Merged);
    }

    /// Gives each task a worktree, which it leaves dirty: a new one, or that of the task before.
    async fn workspaces(&self) {
        let (mut reused, mut added, mut opened) =
            (Spent::default(), Spent::default(), Spent::default());
        let (_, first) = self.open(0).await;
        soil(&first.path, 0);
        for round in 0..ROUNDS {
            for number in 0..WORKSPACES {
                let task = round * WORKSPACES + number;
                let meter = Meter::begin();
                let release = TaskId::parse(&format!("work-{task}")).unwrap();
                self.run.release(&self.id, &release).await.unwrap();
                let opening = Meter::begin();
                let (_, workspace) = self.open(task + 1).await;
                opening.end(&mut opened, 1);
                meter.end(&mut reused, 1);
                soil(&workspace.path, task + 1);
            }
            for number in 0..WORKSPACES {
                let path = self.dir.path().join(format!("plain-{number}"));
                let path = path.to_str().unwrap();
                let meter = Meter::begin();
                git(&self.repo, &["worktree", "add", "-q", "--detach", path, "main"]);
                meter.end(&mut added, 1);
                soil(Path::new(path), number);
                let meter = Meter::begin();
                git(&self.repo, &["worktree", "remove", "--force", path]);
                meter.end(&mut added, 0);
            }
        }
        println!("worktree_reuse_cpu_ms: {:.1}", reused.cpu_ms());
        println!("worktree_add_remove_cpu_ms: {:.1}", added.cpu_ms());
        println!("worktree_reuse_ratio: {:.2}", added.cpu_ms() / reused.cpu_ms());
        println!("worktree_reuse_wall_ms: {:.1}", reused.wall_ms());
        println!("worktree_add_remove_wall_ms: {:.1}", added.wall_ms());
        println!("worktree_open_reused_wall_ms: {:.1}", opened.wall_ms());
    }

    /// How many workers the merge queue feeds.
    async fn queue(&self, window: usize, merges: usize) -> f64 {
        let id = RunId::parse(&format!("queue-{window}")).unwrap();
        let root = self.dir.path().join("worktrees");
        let mut config = GitConfig::new(id, self.repo.clone(), root);
        config.window = window;
        let run = GitRun::open(config.clone()).await.unwrap();
        let base = git(&self.repo, &["rev-parse", "main"]);
        // Each failure makes another of them.
        let tips = self.many_tips(2 * (merges + 50));
        queue::Simulated::new(run, config.run, window, base, tips).workers_fed(merges).await
    }

    /// Commits on the target that each add a file, made at once.
    fn many_tips(&self, count: usize) -> Vec<String> {
        let mut input = String::new();
        for number in 0..count {
            let text = format!(
                "commit refs/queue/{number}\nmark :{}\ncommitter a <a@example.org> 0 +0000\n\
                 data 1\nx\nfrom refs/heads/main^0\nM 644 inline queue/{number}\ndata 1\nx\n\n",
                number + 1
            );
            input.push_str(&text);
        }
        let file = self.dir.path().join("import");
        fs::write(&file, input).unwrap();
        let made = Command::new("git")
            .args(["fast-import", "--quiet", "--force"])
            .current_dir(&self.repo)
            .stdin(fs::File::open(&file).unwrap())
            .status();
        assert!(made.unwrap().success(), "the commits could not be made");
        let listed = git(
            &self.repo,
            &["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/queue"],
        );
        let mut tips = vec![String::new(); count];
        for line in listed.lines() {
            let (number, oid) = line.split_once(' ').unwrap();
            if let Some(tip) = tips.get_mut(number.parse::<usize>().unwrap()) {
                oid.clone_into(tip);
            }
        }
        tips
    }

    async fn open(&self, number: u32) -> (OpenWorkspace, Workspace) {
        let task = TaskSpec::new(TaskId::parse(&format!("work-{number}")).unwrap());
        let ask = self.ask(&task, 1_000 + number);
        let workspace = self.run.open(&ask).await.unwrap();
        (ask, workspace)
    }
}

/// What an agent leaves: changed, new and removed files.
fn soil(tree: &Path, number: u32) {
    for file in 0..20 {
        let path = tree.join(format!("src/part{file}/file{}.txt", file * 50 + 1));
        fs::write(path, format!("dirt {number} {file}\n")).unwrap();
        fs::write(tree.join(format!("new{file}")), format!("new {number}\n")).unwrap();
        fs::remove_file(tree.join(format!("src/part{file}/file{}.txt", file * 50 + 2))).unwrap();
    }
}
