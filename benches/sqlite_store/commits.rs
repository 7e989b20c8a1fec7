//! Durable commits, one by one and in groups.
//!
//! A step is what a driver commits when a stage ends and the next one is granted: two commands, two
//! events, two tasks and the run, every field filled.

use std::path::Path;
use std::time::Instant;

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::{
    answers, command_id, events, first_commit, full_run_record, full_task_record, run_id,
};
use orchestrator_core::{Records, RunId, Seq};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

use crate::{Options, in_turns, median, raw, short};

/// Commits of each in one round.
const COMMITS: usize = 100;
/// Steps in a group commit.
const GROUP: u32 = 32;

pub(crate) async fn measure(options: &Options) {
    let dir = tempfile::tempdir().unwrap();
    let bare = raw(&dir.path().join("raw.db"));
    bare.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, value TEXT)").unwrap();
    let (few, many) = (1_000, options.up_to.clamp(1_000, 100_000));
    let mut small = Run::new(&dir.path().join("small.db"), few).await;
    let mut large = Run::new(&dir.path().join("large.db"), many).await;
    let [mut raws, mut steps, mut groups, mut at_large] = [const { Vec::new() }; 4];
    // Commit by commit in turns, there and back, so that whatever else the disk does, and what the
    // one before left it to do, hits all alike.
    for turn in 0..COMMITS * options.rounds {
        let order = if turn % 2 == 0 { [0, 1, 2, 3] } else { [3, 2, 1, 0] };
        for which in order {
            match which {
                0 => raws.push(raw_commit(&bare)),
                1 => steps.push(small.commit(1).await),
                2 => at_large.push(large.commit(1).await),
                _ => groups.push(small.commit(GROUP).await),
            }
        }
    }
    let rate = in_turns(&raws, &steps);
    let gain = in_turns(&steps, &groups) * f64::from(GROUP);
    let growth = in_turns(&at_large, &steps);
    let [bare, step, group] = [raws, steps, groups].map(median);
    println!("raw_commits_per_s: {:.0}", 1.0 / bare);
    println!("steps_per_s: {:.0}", 1.0 / step);
    println!("steps_in_groups_of_{GROUP}_per_s: {:.0}", f64::from(GROUP) / group);
    println!("step_rate_to_raw: {rate:.2}");
    println!("group_gain: {gain:.1}");
    println!("step_cost_{}_to_{}: {growth:.2}", short(many), short(few));
}

/// One row of 200 bytes a commit, durable: the least that a store on SQLite can do.
fn raw_commit(conn: &Connection) -> f64 {
    const INSERT: &str = "INSERT INTO t (value) VALUES (?1)";
    let value = "x".repeat(200);
    let start = Instant::now();
    conn.prepare_cached(INSERT).unwrap().execute([&value]).unwrap();
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

    async fn commit(&mut self, steps: u32) -> f64 {
        let commit = self.next(steps);
        let start = Instant::now();
        self.at = self.store.commit(&self.run, &commit).await.unwrap();
        start.elapsed().as_secs_f64()
    }
}
