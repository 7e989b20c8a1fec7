//! Files of earlier formats, recorded by the programs that wrote them.

use std::env;
use std::fs;
use std::sync::Arc;

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::{
    first_commit, full_run_record, full_task_record, owner_record, phases, pool_records, run_id,
    task_record,
};
use orchestrator_core::testing::{MemoryTarget, VirtualHost};
use orchestrator_core::{BlobHash, CommandId, Records, Seq, TaskRecord};
use orchestrator_sqlite::{FileFault, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::driver::drive;
use crate::support::{FORMAT_1, TempStore};

/// Where a recorded file goes; set by hand.
const RECORD_TO: &str = "STORE_TEST_RECORD_TO";

/// Records a file of the present format: a whole run by the driver, and records of all sorts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a file for the tests of later formats"]
async fn record() {
    let Some(path) = env::var_os(RECORD_TO) else { return };
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    drive(Arc::<_>::clone(&store) as _, &MemoryTarget::default(), &VirtualHost::new())
        .await
        .unwrap();
    let mut tasks = vec![full_task_record("full"), task_record("plain")];
    for (phase, number) in phases().into_iter().zip(1..) {
        tasks.push(TaskRecord { phase, ..full_task_record(&format!("phase {number}")) });
    }
    let all = Commit {
        records: Records {
            run: Some(full_run_record("all")),
            tasks: (0..).zip(tasks).collect(),
            pools: pool_records(),
            owners: vec![owner_record("o", 4)],
        },
        blobs: vec![b"a blob".to_vec()],
        ..first_commit("all", "create")
    };
    store.commit(&run_id("all"), &all).await.unwrap();
    Arc::into_inner(store).unwrap().close().await;
    fs::copy(fixture.path(), path).unwrap();
}

/// A file of format 3, recorded in the same way as that of format 1.
const FORMAT_3: &[u8] = include_bytes!("../data/format-3.db");

/// Leaves out of these values what a later format has behind those of an older one.
fn cut(now: &mut [(String, Vec<Vec<Value>>)], then: &[(String, Vec<Vec<Value>>)]) {
    for ((_, now), (_, then)) in now.iter_mut().zip(then) {
        now.iter_mut().zip(then).for_each(|(now, then)| now.truncate(then.len()));
    }
}

/// Every value of every table of format 1, but for what an answer says.
fn values(conn: &Connection) -> Vec<(String, Vec<Vec<Value>>)> {
    let tables = ["runs", "plans", "tasks", "pools", "owners", "events", "commands", "blobs"];
    let read = |table: &str| {
        let columns = if table == "commands" { "run, id, seq" } else { "*" };
        let mut statement = conn.prepare(&format!("SELECT {columns} FROM {table}")).expect(table);
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
        rows.expect(table).collect::<Result<_, _>>().expect(table)
    };
    tables.iter().map(|table| ((*table).to_owned(), read(table))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_older_format_becomes_one_of_this_format_with_all_that_is_in_it() {
    for (format, tasks) in [(FORMAT_1, 45), (FORMAT_3, 47)] {
        let fixture = TempStore::new();
        fs::write(fixture.path(), format).unwrap();
        let before = values(&fixture.shell());
        assert!(
            before.iter().all(|(table, rows)| !rows.is_empty() || table == "plans"),
            "{before:?}"
        );

        let store = fixture.sqlite().await;
        let mut after = values(&fixture.shell());
        cut(&mut after, &before);
        assert_eq!(after, before, "what was there is as it was");
        let run = run_id("all");
        assert_eq!(store.runs().await.unwrap(), [run.clone(), run_id("r")]);
        let loaded = store.load(&run).await.unwrap().unwrap();
        let names: Vec<_> = loaded.tasks.iter().take(2).map(|task| task.id.as_str()).collect();
        assert_eq!((loaded.seq, loaded.tasks.len(), names), (Seq(1), tasks, vec!["full", "plain"]));
        let blob = store.blob(&run, &BlobHash::of(b"a blob")).await.unwrap();
        assert_eq!(blob.as_deref(), Some(&b"a blob"[..]));
        let create = CommandId::parse("create").unwrap();
        assert!(store.answer(&run, &create).await.unwrap().is_some());
        // Earlier answers named the granted task by its id: what the log says of that token.
        const GRANTED: &str = "SELECT count(*) FROM commands JOIN events USING (run) \
                             JOIN tasks ON tasks.run = events.run AND tasks.id = events.task \
                             WHERE event = 'granted' AND body ->> '$.token' = answer ->> '$.granted.token'";
        let count = |and: &str| -> i64 {
            let sql = format!("{GRANTED} {and}");
            fixture.shell().query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        assert!(count("") > 20);
        assert_eq!(count("AND answer ->> '$.granted.task' IS NOT place"), 0);
        // The other run was made by a driver: its records are still what its log says.
        let faults = store.doctor().await.unwrap().faults;
        let others = |fault: &FileFault| !fault.to_string().contains("run `all`");
        assert!(!faults.iter().any(others), "{faults:?}");

        // It goes on as any other file, and opens again.
        let at = store.commit(&run_id("new"), &first_commit("new", "c")).await.unwrap();
        store.close().await;
        let again = fixture.sqlite().await;
        assert_eq!(again.header(&run_id("new")).await.unwrap().map(|(seq, _)| seq), Some(at));
    }
}

/// Whether a step is broken off by a full disk or a kill: the file has one of the two formats.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_fails_leaves_the_old_format_as_it_was() {
    let fixture = TempStore::new();
    fs::write(fixture.path(), FORMAT_1).unwrap();
    let shell = fixture.shell();
    let before = values(&shell);
    // Another program made a table of the name that the next format needs.
    shell.execute_batch("CREATE TABLE file (mine)").unwrap();
    let options = SqliteOptions::new();
    SqliteStore::open(fixture.path(), options.clone()).await.unwrap_err();
    let version: i64 = shell.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!((version, values(&shell)), (1, before.clone()));
    shell.execute_batch("DROP TABLE file").unwrap();
    SqliteStore::open(fixture.path(), options).await.unwrap();
    let mut after = values(&shell);
    cut(&mut after, &before);
    assert_eq!(after, before);
}

/// Two programs, or one that was killed in between: one migrates, the other finds it done.
#[tokio::test(flavor = "multi_thread")]
async fn several_that_open_an_old_file_at_once_migrate_it_once() {
    let fixture = TempStore::new();
    fs::write(fixture.path(), FORMAT_1).unwrap();
    let opening = (0..6).map(|_| SqliteStore::open(fixture.path(), SqliteOptions::new()));
    let opening: Vec<_> = opening.map(tokio::spawn).collect();
    for opened in opening {
        assert_eq!(opened.await.unwrap().unwrap().runs().await.unwrap().len(), 2);
    }
}
