//! Backups and exports, made while others write.

use std::fs;
use std::sync::Arc;

use orchestrator_core::port::{Commit, Store as _, StoreError};
use orchestrator_core::testing::conformance::samples::{event, events, first_commit, run_id};
use orchestrator_core::{Seq, StoredEvent};
use orchestrator_sqlite::{CopyError, OpenError, SqliteOptions, SqliteStore};

use crate::child::Process;
use crate::support::{TempStore, assert_whole, run, stamped};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_made_while_this_and_other_processes_write_is_whole() {
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let mut other = Process::start("write for ever", &fixture.path());
    let mut last = Seq(0);
    for number in 0..6 {
        let acknowledged = other.next_acknowledged().expect("the writer lives");
        let to = fixture.dir().join(format!("copy {number}.db"));
        store.backup(&to).await.unwrap();
        let copy = SqliteStore::open(&to, SqliteOptions::new()).await.unwrap();
        let at = assert_whole(&copy).await;
        assert!(at >= acknowledged && at > last, "{at}, {acknowledged} was acknowledged");
        last = at;
        let faults = copy.doctor().await.unwrap().faults;
        assert!(!faults.iter().any(|fault| fault.to_string().contains("damaged")), "{faults:?}");
        assert_eq!(copy.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    }
    other.child.kill().unwrap();
    let names = fs::read_dir(fixture.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let parts: Vec<_> = names.filter(|name| name.to_string_lossy().contains("part")).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

#[tokio::test]
async fn a_copy_takes_the_place_of_nothing_and_leaves_nothing_when_it_fails() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let taken = fixture.dir().join("taken");
    fs::write(&taken, "mine").unwrap();
    for to in [&taken, &fixture.path()] {
        let err = store.backup(to).await.unwrap_err();
        assert!(matches!(&err, CopyError::Exists { path } if path == to), "{err:?}");
        let err = store.export(&run(), to).await.unwrap_err();
        assert!(matches!(&err, CopyError::Exists { path } if path == to), "{err:?}");
    }
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    let nowhere = fixture.dir().join("no folder").join("copy");
    let err = store.backup(&nowhere).await.unwrap_err();
    assert!(matches!(&err, CopyError::Write { path, .. } if *path == nowhere), "{err:?}");
    let err = store.export(&run(), &nowhere).await.unwrap_err();
    assert!(matches!(&err, CopyError::Write { path, .. } if *path == nowhere), "{err:?}");
    assert_eq!(assert_whole(&store).await, Seq(1));
}

/// The way back: the file is gone or spoiled, and the backup takes its name.
#[tokio::test]
async fn a_backup_takes_the_place_of_its_original() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let backup = fixture.dir().join("backup.db");
    store.backup(&backup).await.unwrap();
    for _ in 0..3 {
        at = store.commit(&run(), &stamped(at)).await.unwrap();
    }
    store.close().await;
    fs::rename(&backup, fixture.path()).unwrap();
    let store = fixture.sqlite().await;
    assert_eq!(assert_whole(&store).await, Seq(1));
    assert_eq!(store.commit(&run(), &stamped(Seq(1))).await.unwrap(), Seq(2));
}

#[tokio::test]
async fn an_export_has_each_event_on_a_line_with_its_place() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let commit = Commit { events: events(), ..first_commit("r", "create") };
    let mut at = store.commit(&run(), &commit).await.unwrap();
    let many = Commit {
        expected: at,
        commands: Vec::new(),
        events: (0..12_000).map(event).collect(),
        ..first_commit("r", "unused")
    };
    at = store.commit(&run(), &many).await.unwrap();
    let to = fixture.dir().join("events.jsonl");
    let exported = store.export(&run(), &to).await.unwrap();
    assert_eq!((exported.events, exported.unreadable), (at.0, vec![]));
    let text = fs::read_to_string(&to).unwrap();
    let read: Vec<StoredEvent> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(read, store.events(&run(), Seq(0), usize::MAX).await.unwrap());

    let none = fixture.dir().join("none.jsonl");
    let err = store.export(&run_id("other"), &none).await.unwrap_err();
    assert!(matches!(&err, CopyError::NoRun { run } if *run == run_id("other")), "{err:?}");
    assert!(!none.exists());
}

#[tokio::test]
async fn an_export_goes_on_past_events_that_cannot_be_understood() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = Seq(0);
    for _ in 0..4 {
        at = store.commit(&run(), &stamped(at)).await.unwrap();
    }
    let newer = r#"{"at":2,"event":"sung","by":"a newer program"}"#;
    let shell = fixture.shell();
    shell.execute("UPDATE events SET body = ?1 WHERE seq = 2", [newer]).unwrap();
    drop(shell);
    store.close().await;
    // SQLite itself lets nobody write what is no JSON: only a fault of the disk can.
    let mut bytes = fs::read(fixture.path()).unwrap();
    let (sound, spoiled) = (br#"{"at":3,"event"#, br#"{"at":3;"event"#);
    let at = bytes.windows(sound.len()).position(|part| part == sound).unwrap();
    bytes[at..][..spoiled.len()].copy_from_slice(spoiled);
    fs::write(fixture.path(), bytes).unwrap();
    let store = fixture.sqlite().await;
    let to = fixture.dir().join("events.jsonl");
    let exported = store.export(&run(), &to).await.unwrap();
    assert_eq!((exported.events, exported.unreadable), (4, vec![Seq(3)]));
    let text = fs::read_to_string(&to).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[1], r#"{"seq":2,"at":2,"event":"sung","by":"a newer program"}"#);
    assert!(lines[2].starts_with(r#"{"seq":3,"unreadable":"{\"at\":3;\"event"#), "{}", lines[2]);
    assert!(lines[3].starts_with(r#"{"seq":4,"#));
}

/// Whoever restores a backup and leaves the log of the old file beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_beside_the_log_of_another_state_is_refused_and_neither_is_touched() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let backup = fixture.dir().join("backup.db");
    store.backup(&backup).await.unwrap();
    at = store.commit(&run(), &stamped(at)).await.unwrap();
    store.close().await;
    // A plain copy of a file that nobody has open is a backup too.
    let plain = fixture.dir().join("plain.db");
    fs::copy(fixture.path(), &plain).unwrap();
    // Each time it is opened and written to, the file gets a new log.
    for _ in 0..2 {
        let store = fixture.sqlite().await;
        at = store.commit(&run(), &stamped(at)).await.unwrap();
        store.close().await;
    }
    let mut writer = Process::start("write for ever", &fixture.path());
    for _ in 0..3 {
        writer.next_acknowledged().expect("the writer lives");
    }
    writer.child.kill().unwrap();
    while let Some(seq) = writer.next_acknowledged() {
        at = seq;
    }
    let log = fixture.dir().join("run.db-wal");
    let (file, left) = (fs::read(fixture.path()).unwrap(), fs::read(&log).unwrap());
    for backup in [&backup, &plain] {
        fs::copy(backup, fixture.path()).unwrap();
        let err = SqliteStore::open(fixture.path(), SqliteOptions::new()).await.unwrap_err();
        assert!(
            matches!(&err, OpenError::ForeignLog { log: named, .. } if *named == log),
            "{err:?}"
        );
        assert!(err.to_string().contains("move the log away"), "{err}");
        assert_eq!(fs::read(&log).unwrap(), left, "the log is as it was");
        assert_eq!(fs::read(fixture.path()).unwrap(), fs::read(backup).unwrap());
    }

    fs::write(fixture.path(), file).unwrap();
    let store = fixture.sqlite().await;
    assert!(assert_whole(&store).await >= at, "file and log that belong together are opened");
    store.close().await;
    fs::copy(&plain, fixture.path()).unwrap();
    assert_eq!(assert_whole(&fixture.sqlite().await).await, Seq(2), "and a file without a log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_its_file_or_beside_another_one_is_refused_and_kept() {
    let (fixture, other) = (TempStore::new(), TempStore::new());
    let mut writer = Process::start("write for ever", &fixture.path());
    writer.next_acknowledged().expect("the writer lives");
    writer.child.kill().unwrap();
    drop(writer);
    let store = other.sqlite().await;
    store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    store.close().await;
    let log = fixture.dir().join("run.db-wal");
    let left = fs::read(&log).unwrap();
    let notes = fixture.dir().join("notes.db");
    rusqlite::Connection::open(&notes).unwrap().execute_batch("CREATE TABLE notes (t)").unwrap();
    let file = fs::read(fixture.path()).unwrap();
    for put in [
        None,
        Some(Vec::new()),
        Some(fs::read(other.path()).unwrap()),
        Some(fs::read(&notes).unwrap()),
        Some(b"no database at all".repeat(500)),
    ] {
        drop(fs::remove_file(fixture.path()));
        if let Some(bytes) = &put {
            fs::write(fixture.path(), bytes).unwrap();
        }
        let err = SqliteStore::open(fixture.path(), SqliteOptions::new()).await.unwrap_err();
        assert!(matches!(err, OpenError::ForeignLog { .. }), "{err:?}");
        assert_eq!(fs::read(&log).unwrap(), left);
    }
    fs::write(fixture.path(), file).unwrap();
    assert!(assert_whole(&fixture.sqlite().await).await > Seq(0));
}

/// Whoever replaces the file of a store that is open has its log beside another file.
#[tokio::test]
async fn a_file_that_was_removed_or_replaced_is_not_backed_up() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = Seq(0);
    for _ in 0..10 {
        at = store.commit(&run(), &stamped(at)).await.unwrap();
    }
    let older = fixture.dir().join("older.db");
    store.backup(&older).await.unwrap();
    fixture.shell().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    at = store.commit(&run(), &stamped(at)).await.unwrap();
    let (own, to) = (fixture.dir().join("own"), fixture.dir().join("backup.db"));
    fs::rename(fixture.path(), &own).unwrap();
    store.backup(&to).await.unwrap_err();
    assert!(!to.exists());
    fs::copy(&older, fixture.path()).unwrap();
    let err = store.backup(&to).await.unwrap_err();
    assert!(matches!(&err, CopyError::Store(StoreError::Unavailable(_))), "{err:?}");
    assert!(!to.exists());
    fs::rename(own, fixture.path()).unwrap();
    store.backup(&to).await.unwrap();
    let copy = SqliteStore::open(&to, SqliteOptions::new()).await.unwrap();
    assert_eq!(assert_whole(&copy).await, at);
}
