//! Records that were spoiled, as a person or a disk may: the run goes on by what its log says, the
//! doctor names each, and a repair writes them anew.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, process};

use orchestrator_core::port::{CommitError, Store as _, StoreError};
use orchestrator_core::testing::conformance::samples::{command_id, first_commit, run_id, task_id};
use orchestrator_core::testing::{MemoryTarget, VirtualHost};
use orchestrator_core::{Command, Engine, Seq, Snapshot, TaskSpec, Timestamp, VerifyCommand};
use orchestrator_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::driver::drive;
use crate::support::{TempStore, run};

/// A whole run, and after it an edit of the task that asks a question.
pub(crate) async fn whole_run(fixture: &TempStore) -> SqliteStore {
    let (target, host) = (MemoryTarget::default(), VirtualHost::new());
    drive(Arc::new(fixture.sqlite().await), &target, &host).await.expect("the run ends");
    // What the driver ended last may hold its store for a moment longer.
    let store = fixture.sqlite().await;
    let snapshot = store.load(&run()).await.expect("load").expect("the run is there");
    let mut engine = Engine::restore(&snapshot).expect("the records fit");
    let mut spec = TaskSpec::new(task_id("t1"));
    spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
    spec.priority = 7;
    let (actor, reason) = ("ana".to_owned(), "it was not clear".to_owned());
    let edit = Command::Edit { spec: Arc::new(spec), actor, reason };
    engine.submit(Timestamp(9), &command_id("edit"), &edit).expect("it can be edited");
    let commit = engine.batch().expect("the edit is an event");
    store.commit(&run(), &commit).await.expect("commit");
    store
}

pub(crate) fn spoil(fixture: &TempStore, sql: &str) {
    let shell: Connection = fixture.shell();
    let checks = "PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF";
    shell.execute_batch(checks).expect("the checks are off");
    shell.execute_batch(sql).expect(sql);
}

pub(crate) fn chain(err: &dyn Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        write!(text, ": {err}").expect("memory takes text");
        cause = err.source();
    }
    text
}

pub(crate) async fn faults(store: &SqliteStore) -> Vec<String> {
    let health = store.doctor().await.expect("the file can be examined");
    health.faults.iter().map(|fault| chain(fault)).collect()
}

/// Each record that can be spoiled, and how the doctor names it.
const SPOILED: &[(&str, &str)] = &[
    ("UPDATE tasks SET phase = 'asleep' WHERE id = 't4'", "`tasks`, row `t4`, column `phase`"),
    ("UPDATE tasks SET feedback = '{\"a' WHERE id = 't5'", "`tasks`, row `t5`, column `feedback`"),
    ("UPDATE tasks SET attempt = -1 WHERE place > 2", "`tasks`, row `t9`, column `attempt`"),
    ("UPDATE tasks SET id = char(7) WHERE id = 't4'", "`tasks`, row `\u{7}`, column `id`"),
    ("DELETE FROM tasks WHERE id = 't9'", "`t9`"),
    ("DELETE FROM tasks WHERE place = 3", "`tasks`, the row with place 3"),
    ("UPDATE runs SET state = 'odd'", "`runs`, row `r`, column `state`"),
    ("UPDATE runs SET rules = '{'", "`runs`, row `r`, column `rules`"),
    ("UPDATE plans SET tasks = -1", "`plans`, row `0`, column `tasks`"),
    ("UPDATE pools SET permits = -1", "`pools`, row `agents`, column `permits`"),
    ("UPDATE owners SET pid = -1", "`owners`, row `host/boot-1/1`, column `pid`"),
    ("UPDATE owners SET ended = 256", "`owners`, row `host/boot-1/1`, column `ended`"),
    ("UPDATE tasks SET under_way = 2 WHERE id = 't4'", "`tasks`, row `t4`, column `under_way`"),
    ("UPDATE tasks SET why = 'x' WHERE id = 't4'", "`tasks`, row `t4`, column `why`"),
    ("UPDATE tasks SET lease_token = 7 WHERE id = 't4'", "`tasks`, row `t4`, column `lease_token`"),
    ("UPDATE tasks SET kept = 'x' WHERE id = 't4'", "`tasks`, row `t4`, column `kept`"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_stops_no_run_and_is_named_and_mended() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.unwrap().unwrap();
    assert_eq!(faults(&store).await, [""; 0]);
    for (sql, place) in SPOILED {
        spoil(&fixture, sql);
        let said = faults(&store).await;
        assert!(said.iter().any(|line| line.contains(place)), "{sql}: {said:?}");
        let helps = |line: &String| line.contains("a backup") || line.contains("see what is said");
        assert!(said.iter().all(helps), "{said:?}");
        assert!(place == &"`t9`" || said.iter().any(|line| line.contains("repair")), "{said:?}");

        // What the log knows too is there all the same, and the run goes on.
        if *place != "`t9`" {
            let loaded = store.load(&run()).await.expect(sql).unwrap();
            assert_eq!(loaded, before, "{sql}");
            Engine::restore(&loaded).unwrap();
            let header = store.header(&run()).await.unwrap();
            assert_eq!(header, Some((before.seq, before.run.clone())), "{sql}");
        }
        let mended = store.repair(&run()).await.unwrap();
        assert!(!mended.is_empty(), "{sql}");
        assert_eq!(store.load(&run()).await.unwrap().as_ref(), Some(&before), "{sql}");
        assert_eq!(faults(&store).await, [""; 0], "{sql}");
    }
}

/// Rows that stand next to one that cannot be read are taken as they are, not as the log has them.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_somebody_put_right_is_not_undone_because_another_one_is_wrong() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    spoil(
        &fixture,
        "UPDATE tasks SET phase = 'asleep' WHERE id = 't4'; \
         UPDATE tasks SET extra_retries = 3 WHERE id = 't5'; \
         UPDATE owners SET touched_at_ms = 77",
    );
    let loaded = store.load(&run()).await.unwrap().unwrap();
    let t5 =
        |snapshot: &Snapshot| snapshot.tasks.iter().find(|task| task.id == task_id("t5")).cloned();
    assert_eq!(t5(&loaded).map(|task| task.extra.retries), Some(3));
    assert!(loaded.owners.iter().all(|owner| owner.touched_at == Timestamp(77)));
    let err = store.task(&run(), &task_id("t4")).await.unwrap_err();
    assert!(err.to_string().contains("table `tasks`, row `t4`, column `phase`"), "{err}");
    assert!(store.task(&run(), &task_id("t5")).await.unwrap().is_some());
}

/// Two things are wrong at once: then nothing is guessed.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_log_cannot_tell_either_is_an_error_that_names_the_record() {
    for (log, place) in [
        ("UPDATE events SET body = '{\"at\":1,\"event\":\"sung\"}' WHERE seq = 20", "row `20`"),
        ("UPDATE events SET body = '[20]' WHERE seq = 20", "row `20`, column `body`"),
        ("DELETE FROM events WHERE seq = 20", "row `20`: the row is missing"),
        ("DELETE FROM events WHERE seq > 20", "row `21`: the row is missing"),
    ] {
        let fixture = TempStore::new();
        let store = whole_run(&fixture).await;
        let before = store.load(&run()).await.unwrap().unwrap();
        spoil(&fixture, log);
        assert_eq!(store.load(&run()).await.unwrap().unwrap(), before, "{log}: the log alone");
        let said = faults(&store).await;
        assert!(said.iter().any(|line| line.contains("table `events`")), "{log}: {said:?}");

        spoil(&fixture, "UPDATE tasks SET phase = 'asleep' WHERE id = 't4'");
        let err = store.load(&run()).await.unwrap_err();
        assert!(err.to_string().contains("table `tasks`, row `t4`, column `phase`"), "{err}");
        let err = store.repair(&run()).await.unwrap_err();
        assert!(err.to_string().contains("table `events`, row `2"), "{place}: {err}");
        let said = faults(&store).await.join("\n");
        assert!(said.contains("row `t4`") && said.contains("table `events`"), "{said}");
        assert!(store.header(&run()).await.unwrap().is_some(), "the rest can be read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_read_is_named_and_its_command_still_counts_once() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    for answer in ["{", "\"sung\"", "[]"] {
        spoil(&fixture, &format!("UPDATE commands SET answer = '{answer}' WHERE id = 'edit'"));
        let err = store.answer(&run(), &command_id("edit")).await.unwrap_err();
        let StoreError::Corrupt { place, remedy, .. } = &err else { panic!("{err:?}") };
        assert_eq!(place, "table `commands`, row `edit`, column `answer`");
        assert!(remedy.contains("the command was carried out"), "{remedy}");
        let said = faults(&store).await;
        assert!(said.iter().any(|line| line.contains(place.as_str())), "{said:?}");
    }
    // Neither loading nor other commands mind.
    let loaded = store.load(&run()).await.unwrap().unwrap();
    assert!(Engine::restore(&loaded).is_ok());
    let mut again = orchestrator_core::port::Commit { expected: loaded.seq, ..Default::default() };
    again.commands = vec![(command_id("edit"), orchestrator_core::Answer::Nothing)];
    let repeated = store.commit(&run(), &again).await;
    assert!(matches!(repeated, Err(CommitError::Repeated { .. })), "{repeated:?}");
    store.prune(&run(), loaded.seq).await.unwrap();
    assert_eq!(store.answer(&run(), &command_id("edit")).await.unwrap(), None);
    assert_eq!(faults(&store).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_name_is_none_hides_no_other_run() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    spoil(
        &fixture,
        "INSERT INTO runs SELECT 99, char(7), seq, state, state_reason, budget_micros, \
         spent_micros, reserved_micros, last_at_ms, last_token, driver, open, deferred, leased, \
         stopping, done, escalated, cancelled, first_stage_failures, rules, anchor, passed_over, pilot \
         FROM runs",
    );
    assert_eq!(store.runs().await.unwrap(), [run_id("r")]);
    let said = faults(&store).await;
    assert!(matches!(&said[..], [one] if one.contains("table `runs`")), "{said:?}");
    assert!(store.load(&run()).await.unwrap().is_some_and(|loaded| loaded.seq > Seq(0)));
}

/// The command of docs/SCHEMA.md, built as this test was.
fn program() -> PathBuf {
    let test = env::current_exe().expect("this program has a path");
    let profile = test.parent().and_then(Path::parent).expect("tests are in a folder of theirs");
    let mut build = process::Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "orchestrator-sqlite", "--example", "store"]);
    build.arg("--target-dir").arg(profile.parent().expect("a profile is in a folder"));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(built.is_ok_and(|status| status.success()), "the example is built");
    profile.join("examples").join("store")
}

/// The exit code of the command and all that it prints.
fn carried_out(program: &Path, fixture: &TempStore, arguments: &[&str]) -> (Option<i32>, String) {
    let done = process::Command::new(program)
        .args(arguments)
        .current_dir(fixture.dir())
        .output()
        .expect("the program starts");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_examines_mends_and_copies_the_file_of_a_run() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.unwrap();
    let program = program();
    let ask = |arguments: &[&str]| carried_out(&program, &fixture, arguments);
    let (code, said) = ask(&["doctor", "run.db"]);
    assert_eq!((code, said.contains("sound")), (Some(0), true), "{said}");
    spoil(&fixture, "UPDATE tasks SET phase = 'asleep' WHERE id = 't4'");
    let (code, said) = ask(&["doctor", "run.db"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("table `tasks`, row `t4`, column `phase`"), "{said}");
    assert!(said.contains("cargo run --example store -- repair FILE"), "{said}");
    let (code, said) = ask(&["repair", "run.db"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("run `r`: task `t4` was written anew"), "{said}");
    assert_eq!(store.load(&run()).await.unwrap(), before);

    assert_eq!(ask(&["backup", "run.db", "copy.db"]).0, Some(0));
    assert_eq!(ask(&["doctor", "copy.db"]).0, Some(0));
    assert_eq!(ask(&["export", "run.db", "events.jsonl"]).0, Some(0));
    for (arguments, expected) in [
        (&["backup", "run.db", "copy.db"][..], "is there already"),
        (&["doctor", "nothing.db"], "cannot open `nothing.db`"),
        (&["doctor", "events.jsonl"], "is not a store of this program"),
        (&["export", "run.db", "x.jsonl", "--run", "other"], "the file has no run `other`"),
    ] {
        let (code, said) = ask(arguments);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    assert!(!fixture.dir().join("nothing.db").exists(), "no file is made by looking for one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_somebody_renamed_gets_its_name_back_and_no_second_row() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.expect("load");
    spoil(&fixture, "UPDATE runs SET id = 'another'");
    assert!(faults(&store).await.concat().contains("another"));
    let another = run_id("another");
    // Who began the run anew meanwhile is not written over.
    let commit = first_commit(run().as_str(), "create");
    store.commit(&run(), &commit).await.expect("commit");
    let refused = chain(&store.repair(&another).await.expect_err("the name is taken"));
    assert!(refused.contains("`runs`") && refused.contains("another row"), "{refused}");
    for table in ["runs", "tasks", "plans", "pools", "owners", "events", "commands", "blobs"] {
        spoil(&fixture, &format!("DELETE FROM {table} WHERE run <> 1"));
    }
    assert_eq!(store.repair(&another).await.expect("it is mended"), ["the run"]);
    assert_eq!(store.runs().await.expect("runs"), [run()]);
    assert_eq!(store.load(&run()).await.expect("load"), before);
    assert!(faults(&store).await.is_empty());
}
