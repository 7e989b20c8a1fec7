//! What the SQLite store costs, beside SQLite itself on the same disk.
//!
//! `cargo bench -p benches --bench sqlite_store` prints `name: value` a line. A step is what a
//! driver commits when a stage ends and the next one is granted: two commands, two events, two
//! tasks and the run. Rates are medians of interleaved rounds in one process, so that the ratios
//! hold on a noisy machine.
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run has nothing to say")]

use std::path::Path;
use std::time::{Duration, Instant};

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::{
    answers, command_id, events, first_commit, full_run_record, full_task_record, run_id,
};
use orchestrator_core::{Records, RunId, Seq};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

const ROUNDS: usize = 7;
/// Commits in one round.
const COMMITS: u32 = 60;
/// Steps in a group commit.
const GROUP: u32 = 32;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    let raw = raw_table(&dir.path().join("raw.db"));
    let mut small = Run::new(&dir.path().join("small.db"), 1_000).await;
    let mut large = Run::new(&dir.path().join("large.db"), 100_000).await;
    let [mut bare, mut steps, mut groups, mut at_large] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        bare.push(raw_commits(&raw));
        steps.push(small.commits(1).await);
        groups.push(small.commits(GROUP).await);
        at_large.push(large.commits(1).await);
    }
    let [bare, step, group, at_large] = [bare, steps, groups, at_large].map(median);
    println!("raw_commits_per_s: {:.0}", 1.0 / bare);
    println!("steps_per_s: {:.0}", 1.0 / step);
    println!("steps_in_groups_of_{GROUP}_per_s: {:.0}", f64::from(GROUP) / group);
    println!("step_rate_to_raw: {:.2}", bare / step);
    println!("group_gain: {:.1}", step / (group / f64::from(GROUP)));
    println!("step_cost_100k_to_1k: {:.2}", at_large / step);
    let (mut loads, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        loads.push(large.load().await);
        reads.push(raw_read(&dir.path().join("large.db")));
    }
    let [load, read] = [loads, reads].map(median);
    println!("load_100k_ms: {:.0}", load * 1e3);
    println!("load_to_raw_read: {:.2}", load / read);
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn per_commit(time: Duration) -> f64 {
    time.as_secs_f64() / f64::from(COMMITS)
}

fn raw_table(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    conn.pragma_update(None, "synchronous", "FULL").unwrap();
    conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, value TEXT)").unwrap();
    conn
}

/// One row of 200 bytes a commit, durable: the least that a store on SQLite can do.
fn raw_commits(conn: &Connection) -> f64 {
    let value = "x".repeat(200);
    let start = Instant::now();
    for _ in 0..COMMITS {
        conn.prepare_cached("INSERT INTO t (value) VALUES (?1)")
            .unwrap()
            .execute([&value])
            .unwrap();
    }
    per_commit(start.elapsed())
}

/// Reads every value of every task, and makes nothing of it.
fn raw_read(path: &Path) -> f64 {
    let conn = Connection::open(path).unwrap();
    let start = Instant::now();
    let mut statement = conn.prepare("SELECT * FROM tasks ORDER BY run, place").unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut bytes = 0;
    while let Some(row) = rows.next().unwrap() {
        for column in 0..columns {
            bytes += row.get_ref(column).unwrap().as_str().map_or(8, str::len);
        }
    }
    assert!(bytes > 0, "the tasks were read");
    start.elapsed().as_secs_f64()
}

/// A run of so many tasks in a store of its own.
struct Run {
    store: SqliteStore,
    run: RunId,
    tasks: u32,
    at: Seq,
    /// Steps so far.
    steps: u32,
}

impl Run {
    async fn new(path: &Path, tasks: u32) -> Self {
        let store = SqliteStore::open(path, SqliteOptions::new()).await.unwrap();
        let run = run_id("r");
        let mut commit = first_commit("r", "create");
        commit.records.tasks =
            (0..tasks).map(|place| (place, full_task_record(&format!("task {place}")))).collect();
        let at = store.commit(&run, &commit).await.unwrap();
        Self { store, run, tasks, at, steps: 0 }
    }

    /// A commit of the next steps, over tasks spread throughout the run.
    fn next(&mut self, steps: u32) -> Commit {
        let mut commit = Commit { expected: self.at, ..Commit::default() };
        let mut records = Records { run: Some(full_run_record("r")), ..Records::default() };
        for _ in 0..steps * 2 {
            self.steps += 1;
            let place = self.steps.wrapping_mul(7_919) % self.tasks;
            records.tasks.push((place, full_task_record(&format!("task {place}"))));
            let answer = answers().swap_remove(2);
            commit.commands.push((command_id(&format!("c{}", self.steps)), answer));
            commit.events.extend(events().into_iter().nth(13));
        }
        commit.records = records;
        commit
    }

    async fn commits(&mut self, steps: u32) -> f64 {
        let mut time = Duration::ZERO;
        for _ in 0..COMMITS {
            let commit = self.next(steps);
            let start = Instant::now();
            self.at = self.store.commit(&self.run, &commit).await.unwrap();
            time += start.elapsed();
        }
        per_commit(time)
    }

    async fn load(&self) -> f64 {
        let start = Instant::now();
        let loaded = self.store.load(&self.run).await.unwrap().unwrap();
        let time = start.elapsed();
        assert_eq!(loaded.tasks.len(), usize::try_from(self.tasks).unwrap());
        time.as_secs_f64()
    }
}
