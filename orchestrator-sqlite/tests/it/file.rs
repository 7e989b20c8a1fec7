//! Which files are opened, and which are refused and left as they are.

use std::fs;
use std::path::Path;
use std::time::Duration;

use orchestrator_core::port::{CommitError, Store as _, StoreError};
use orchestrator_core::testing::conformance::samples::{command_id, owner_id, task_id};
use orchestrator_core::{Seq, Timestamp};
use orchestrator_sqlite::{OpenError, SqliteOptions, SqliteStore, Synchronous};
use rusqlite::Connection;

use crate::support::{TempStore, assert_whole, open_without_privileges, run, stamped};

async fn refusal(path: &Path) -> OpenError {
    let err = SqliteStore::open(path, SqliteOptions::new()).await.expect_err("it must be refused");
    assert!(err.to_string().contains(&*path.to_string_lossy()), "{err}");
    err
}

/// All files of a folder with their bytes.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        // The index of a log is scratch memory that any reader may make anew.
        .filter(|path| !path.to_string_lossy().ends_with("-shm"))
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a file")))
        .collect();
    files.sort();
    files
}

/// The same files in another folder, as a crash of their user would leave them: with a log that
/// nobody has open.
fn copy(fixture: &TempStore) -> TempStore {
    let other = TempStore::new();
    for (path, bytes) in contents(fixture.dir()) {
        let name = Path::new(&path).file_name().expect("a file has a name");
        fs::write(other.dir().join(name), bytes).expect("the copy is written");
    }
    other
}

#[tokio::test]
async fn a_path_where_no_file_can_be_is_named() {
    let fixture = TempStore::new();
    let err = refusal(fixture.dir()).await;
    assert!(matches!(err, OpenError::Path { .. }), "{err:?}");
    let folder = fixture.dir().join("missing");
    let err = SqliteStore::open(folder.join("run.db"), SqliteOptions::new()).await.unwrap_err();
    let OpenError::Path { path, .. } = err else { panic!("{err:?}") };
    assert_eq!(path, folder, "the part that is missing is named");
    // With room for a name, but not for those of the files beside it.
    let long = fixture.dir().join("n".repeat(252));
    assert!(matches!(refusal(&long).await, OpenError::Path { .. }));
    for special in ["/dev/null", "/dev/zero"] {
        let err = refusal(Path::new(special)).await;
        assert!(matches!(err, OpenError::Path { .. }), "{special}: {err:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    for text in ["x", "just some notes\n", &"x".repeat(5_000)] {
        let fixture = TempStore::new();
        fs::write(fixture.path(), text).unwrap();
        let before = contents(fixture.dir());
        let err = refusal(&fixture.path()).await;
        assert!(matches!(err, OpenError::NotOurs { .. }), "{err:?}");
        assert_eq!(contents(fixture.dir()), before);
    }
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    for mode in ["DELETE", "WAL"] {
        let fixture = TempStore::new();
        let other = fixture.shell();
        other.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        other.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('a')").unwrap();
        for fixture in [&fixture, &copy(&fixture)] {
            let before = contents(fixture.dir());
            let err = refusal(&fixture.path()).await;
            assert!(matches!(err, OpenError::NotOurs { .. }), "{err:?}");
            assert_eq!(contents(fixture.dir()), before);
        }
    }
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused_unharmed() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    store.close().await;
    let newer = fixture.shell();
    newer.execute_batch("PRAGMA user_version = 99; CREATE TABLE gadgets (id)").unwrap();
    for fixture in [&fixture, &copy(&fixture)] {
        let before = contents(fixture.dir());
        let err = refusal(&fixture.path()).await;
        assert!(matches!(err, OpenError::TooNew { found: 99, known: 8, .. }), "{err:?}");
        assert_eq!(contents(fixture.dir()), before);
    }

    newer.execute_batch("PRAGMA user_version = 8; DROP TABLE gadgets").unwrap();
    drop(newer);
    assert_eq!(assert_whole(&fixture.sqlite().await).await, Seq(1));
}

/// The other program has the run from then on: what this one knows to write may not be all.
#[tokio::test]
async fn a_file_that_a_newer_program_takes_over_while_it_is_open_is_neither_read_nor_written() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    fixture.shell().execute_batch("PRAGMA user_version = 99").unwrap();
    let before = contents(fixture.dir());
    let commit = store.commit(&run(), &stamped(at)).await.unwrap_err();
    let CommitError::Failed(commit) = commit else { panic!("{commit:?}") };
    for refused in [
        commit,
        store.load(&run()).await.unwrap_err(),
        store.header(&run()).await.unwrap_err(),
        store.task(&run(), &task_id("t3")).await.unwrap_err(),
        store.events(&run(), Seq(0), 9).await.unwrap_err(),
        store.answer(&run(), &command_id("c1")).await.unwrap_err(),
        store.touch(&run(), &owner_id("o"), Timestamp(99)).await.unwrap_err(),
        store.prune(&run(), at).await.unwrap_err(),
        store.repair(&run()).await.unwrap_err(),
        store.doctor().await.unwrap_err(),
    ] {
        assert!(matches!(refused, StoreError::TooNew { found: 99, known: 8 }), "{refused:?}");
    }
    assert_eq!(contents(fixture.dir()), before);
    fixture.shell().execute_batch("PRAGMA user_version = 8").unwrap();
    assert_eq!(store.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    assert_eq!(assert_whole(&store).await, at.plus(1));
}

/// Whether the file, its folder or both may not be written, also where this user is root.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused_with_its_name_and_left_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    for (file, folder) in [(0o444, 0o755), (0o444, 0o555), (0o644, 0o555)] {
        let fixture = TempStore::new();
        let store = fixture.sqlite().await;
        store.commit(&run(), &stamped(Seq(0))).await.unwrap();
        store.close().await;
        let before = fs::read(fixture.path()).unwrap();
        let mode = fs::Permissions::from_mode;
        fs::set_permissions(fixture.path(), mode(file)).unwrap();
        fs::set_permissions(fixture.dir(), mode(folder)).unwrap();
        let err = open_without_privileges(fixture.path()).await.expect_err("it is read-only");
        fixture.allow_writing(true);
        let OpenError::ReadOnly { path } = &err else { panic!("{file:o} in {folder:o}: {err:?}") };
        assert_eq!(*path, fixture.path());
        assert!(fs::read(fixture.path()).unwrap() == before, "it is as it was");
        assert_eq!(assert_whole(&fixture.sqlite().await).await, Seq(1));
    }
}

#[tokio::test]
async fn a_lock_held_too_long_is_a_typed_error_and_passes() {
    let fixture = TempStore::new();
    let options = SqliteOptions::new().with_busy_max(Duration::from_millis(30));
    let store = SqliteStore::open(fixture.path(), options).await.unwrap();
    let at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let other = fixture.shell();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commit = store.commit(&run(), &stamped(at)).await;
    assert!(matches!(commit, Err(CommitError::Busy(_))), "{commit:?}");
    let answer = store.answer(&run(), &command_id("c1")).await;
    assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}");
    let header = store.header(&run()).await.unwrap();
    assert_eq!(header.map(|(seq, _)| seq), Some(at), "reading goes on");
    let another = fixture.sqlite().await;
    assert!(another.load(&run()).await.unwrap().is_some(), "and so does opening");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    assert_eq!(assert_whole(&store).await, at.plus(1));
}

/// A transaction that reads first and takes the lock when it writes is told busy at once, however
/// long it may wait, as soon as somebody else wrote in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_waits_for_whoever_writes_just_now_and_is_not_told_busy() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    for _ in 0..3 {
        let other = fixture.shell();
        other.execute_batch("BEGIN IMMEDIATE; UPDATE owners SET ended = ended").unwrap();
        let writer = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(150));
            other.execute_batch("COMMIT").unwrap();
        });
        let next = stamped(at);
        let owner = owner_id("o");
        let (run, run_again) = (run(), run());
        let (committed, touched) =
            tokio::join!(store.commit(&run, &next), store.touch(&run_again, &owner, Timestamp(99)));
        at = committed.unwrap();
        touched.unwrap();
        writer.await.unwrap();
    }
    assert_eq!(at, Seq(4));
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_file_that_was_removed_or_replaced() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let aside = fixture.dir().join("aside");
    fs::rename(fixture.path(), &aside).unwrap();
    for _ in 0..2 {
        let commit = store.commit(&run(), &stamped(at)).await;
        assert!(matches!(commit, Err(CommitError::Failed(_))), "{commit:?}");
        fs::write(fixture.path(), "").unwrap();
    }
    fs::rename(&aside, fixture.path()).unwrap();
    assert_eq!(store.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    assert_eq!(assert_whole(&store).await, at.plus(1));
}

/// What is written to a log that has no name any more is seen by nobody, and gone with this process.
#[tokio::test]
async fn nothing_is_acknowledged_into_a_log_that_was_removed_or_replaced() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    for end in ["-wal", "-shm"] {
        let (beside, aside) =
            (fixture.dir().join(format!("run.db{end}")), fixture.dir().join("aside"));
        fs::rename(&beside, &aside).unwrap();
        for _ in 0..2 {
            let commit = store.commit(&run(), &stamped(at)).await;
            let Err(CommitError::Failed(StoreError::Unavailable(cause))) = commit else {
                panic!("{end}: {commit:?}")
            };
            assert!(cause.to_string().contains(end), "{cause}");
            let touched = store.touch(&run(), &owner_id("o"), Timestamp(1)).await;
            assert!(touched.is_err(), "{end}");
            store.backup(fixture.dir().join("copy")).await.unwrap_err();
            fs::write(&beside, "").unwrap();
        }
        fs::rename(&aside, &beside).unwrap();
        at = store.commit(&run(), &stamped(at)).await.unwrap();
    }
    assert_eq!(assert_whole(&store).await, at);
}

#[tokio::test]
async fn a_file_of_the_logs_name_that_is_none_is_not_written_over() {
    let fixture = TempStore::new();
    let notes = fixture.dir().join("run.db-wal");
    let text = "things that somebody wrote down here\n".repeat(9);
    for _ in 0..2 {
        fs::write(&notes, &text).unwrap();
        let err = refusal(&fixture.path()).await;
        assert!(matches!(&err, OpenError::ForeignLog { log, .. } if *log == notes), "{err:?}");
        assert_eq!(fs::read_to_string(&notes).unwrap(), text);
        fs::remove_file(&notes).unwrap();
        let store = fixture.sqlite().await;
        drop(store.commit(&run(), &stamped(Seq(0))).await);
        store.close().await;
    }
    // What a crash left of a log that was just begun.
    fs::write(&notes, [0; 40]).unwrap();
    assert_eq!(assert_whole(&fixture.sqlite().await).await, Seq(1));
}

#[tokio::test]
async fn a_person_can_look_while_a_run_goes_on() {
    let fixture = TempStore::new();
    let options = SqliteOptions::new().with_synchronous(Synchronous::Normal);
    let store = SqliteStore::open(fixture.path(), options).await.unwrap();
    store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let shell = Connection::open(fixture.path()).unwrap();
    let progress: (String, String, i64) = shell
        .query_row("SELECT run, state, events FROM v_progress", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(progress, ("r".to_owned(), "active".to_owned(), 1));
    let task: (String, String, f64) = shell
        .query_row("SELECT task, phase, spent_usd FROM v_tasks WHERE task = 't3'", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    assert_eq!(task, ("t3".to_owned(), "leased".to_owned(), 0.42));
    let event: (i64, String) = shell
        .query_row("SELECT at_ms, event FROM v_events", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(event, (1, "budget_set".to_owned()));
    let faults: i64 = shell
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(faults, 0);
}
