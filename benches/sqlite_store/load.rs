//! Loading a whole run, beside reading its rows and edges and making nothing of them.
//!
//! The edges are in a table of their own for that, a row each; the store has them in the plan's
//! JSON, which it reads and checks by its hash.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::{
    change_id, first_commit, full_task_record, run_id, run_record, task_record,
};
use orchestrator_core::{
    BlobHash, Completion, Engine, FencingToken, Phase, PlanRef, Records, Seq, TaskRecord,
};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

use crate::shapes::{Graph, SHAPES};
use crate::{Options, claims, median, memory, short};

/// Tasks in one commit while a run is made.
const CHUNK: usize = 50_000;

pub(crate) async fn measure(options: &Options) {
    for size in options.sizes().filter(|size| *size >= 10_000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.db");
        let [(_, _), (_, _), (_, layered), _] = SHAPES;
        let graph = layered(size);
        make(&path, &graph, mixed).await;
        add_edges(&path, &graph);
        let rounds = if size >= 1_000_000 { options.rounds.min(3) } else { options.rounds };
        let [load, read, peak, kept] = compare(&path, rounds).await;
        let name = format!("load_{}", short(size));
        println!("{name}_ms: {:.0}", load * 1e3);
        println!("{name}_raw_rows_and_edges_ms: {:.0}", read * 1e3);
        println!("{name}_to_raw_rows_and_edges: {:.2}", load / read);
        if size >= 100_000 {
            println!("{name}_peak_mib: {peak:.0}");
            println!("{name}_kept_mib: {kept:.0}");
        }
        let [load, restore] = driven(&dir.path().join("driven.db"), &graph).await;
        println!("{name}_and_restore_the_engine_ms: {:.0}", (load + restore) * 1e3);
        println!("restore_{}_ms: {:.0}", short(size), restore * 1e3);
        if size == 100_000 {
            let full = dir.path().join("full.db");
            make(&full, &graph, |task| full_task_record(&format!("task-{task}"))).await;
            add_edges(&full, &graph);
            let [load, read, ..] = compare(&full, rounds).await;
            println!("{name}_every_field_to_raw_rows_and_edges: {:.2}", load / read);
        }
    }
}

/// Medians of the times of both, and the most memory while loading and what a run keeps, in MiB.
async fn compare(path: &Path, rounds: usize) -> [f64; 4] {
    let store = SqliteStore::open(path, SqliteOptions::new()).await.unwrap();
    let [mut loads, mut reads, mut peaks, mut kept] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        reads.push(raw_read(path));
        let before = memory::now_mib().unwrap_or(0.0);
        let is_counted = memory::forget_peak();
        let start = Instant::now();
        let loaded = store.load(&run_id("r")).await.unwrap().unwrap();
        loads.push(start.elapsed().as_secs_f64());
        let grown =
            |now: Option<f64>| now.filter(|_| is_counted).map_or(f64::NAN, |now| now - before);
        peaks.push(grown(memory::peak_mib()));
        kept.push(grown(memory::now_mib()));
        assert!(!loaded.tasks.is_empty());
    }
    // The first round grows the heap, the later ones use it again.
    [median(loads), median(reads), peaks[0], kept[0]]
}

/// What a driver that opens a run has to wait for: loading, and making an engine of what is loaded.
async fn driven(path: &Path, graph: &Graph) -> [f64; 2] {
    claims::begun(path, graph).await;
    let store = SqliteStore::open(path, SqliteOptions::new()).await.unwrap();
    let start = Instant::now();
    let loaded = store.load(&run_id("r")).await.unwrap().unwrap();
    let load = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let engine = Engine::restore(&loaded).unwrap();
    let restore = start.elapsed().as_secs_f64();
    assert_eq!(engine.seq(), loaded.seq);
    [load, restore]
}

/// Tasks as they are in the middle of a run: half are merged, some were tried before.
fn mixed(task: u32) -> TaskRecord {
    let name = format!("task-{task}");
    let mut record = task_record(&name);
    if task.is_multiple_of(2) {
        let full = full_task_record(&name);
        record.candidate = full.candidate;
        record.workspace = Some(FencingToken(u64::from(task)));
        record.last_token = FencingToken(u64::from(task) + 3);
        (record.stage, record.attempt, record.dispatches) = (3, 1, 4);
        record.spent = full.spent;
        record.phase = Phase::Done(Completion::Merged(change_id(&format!("{task:040x}"))));
        if task.is_multiple_of(10) {
            record.feedback = full.feedback;
        }
    }
    record
}

async fn make(path: &Path, graph: &Graph, record: impl Fn(u32) -> TaskRecord) {
    let store = SqliteStore::open(path, SqliteOptions::new()).await.unwrap();
    let run = run_id("r");
    let plan = serde_json::to_vec(&Arc::new(claims::plan(graph))).unwrap();
    let mut run_record = run_record("r");
    let tasks = u32::try_from(graph.len()).unwrap();
    run_record.plans = vec![PlanRef { blob: BlobHash::of(&plan), tasks }];
    run_record.counts.open = tasks;
    let mut commit = first_commit("r", "create");
    commit.records.run = Some(run_record);
    commit.blobs.push(plan);
    let mut at = store.commit(&run, &commit).await.unwrap();
    let all: Vec<u32> = (0..tasks).collect();
    for chunk in all.chunks(CHUNK) {
        let tasks = chunk.iter().map(|task| (*task, record(*task))).collect();
        let records = Records { tasks, ..Records::default() };
        at = store
            .commit(&run, &Commit { expected: at, records, ..Commit::default() })
            .await
            .unwrap();
    }
    assert!(at > Seq(0));
    store.close().await;
}

fn add_edges(path: &Path, graph: &Graph) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("CREATE TABLE edges (task INTEGER NOT NULL, on_task INTEGER NOT NULL)")
        .unwrap();
    let tx = conn.unchecked_transaction().unwrap();
    for (task, on) in (0_u32..).zip(graph) {
        for dependency in on {
            tx.prepare_cached("INSERT INTO edges (task, on_task) VALUES (?1, ?2)")
                .unwrap()
                .execute([task, *dependency])
                .unwrap();
        }
    }
    tx.commit().unwrap();
}

/// Reads every value of every task and edge, and makes nothing of it.
fn raw_read(path: &Path) -> f64 {
    let conn = Connection::open(path).unwrap();
    let start = Instant::now();
    let bytes = raw_rows(&conn, "SELECT * FROM tasks ORDER BY run, place")
        + raw_rows(&conn, "SELECT * FROM edges");
    assert!(bytes > 0, "the tasks were read");
    start.elapsed().as_secs_f64()
}

fn raw_rows(conn: &Connection, sql: &str) -> usize {
    let mut statement = conn.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut bytes = 0;
    while let Some(row) = rows.next().unwrap() {
        for column in 0..columns {
            bytes += row.get_ref(column).unwrap().as_str().map_or(8, str::len);
        }
    }
    bytes
}
