//! The only owner of a file, and those that were.

use std::fs;

use orchestrator_core::Seq;
use orchestrator_core::port::{CommitError, Store as _};
use orchestrator_sqlite::{OpenError, SqliteOptions, SqliteStore};

use crate::child::Process;
use crate::support::{TempStore, assert_whole, run, stamped};

fn exclusive() -> SqliteOptions {
    SqliteOptions::new().with_exclusive(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_exclusive_owner_is_refused_until_the_first_has_ended_or_was_killed() {
    let fixture = TempStore::new();
    let mut owner = Process::start("own for ever", &fixture.path());
    owner.next_acknowledged().expect("the owner lives");
    let err = SqliteStore::open(fixture.path(), exclusive()).await.unwrap_err();
    let OpenError::Owned { owner: said, .. } = &err else { panic!("{err:?}") };
    assert!(said.contains(&format!("process {} ", owner.child.id())), "{said}");
    assert!(err.to_string().contains("end it first"), "{err}");

    // Others may use the file all the same, and see and write what they like.
    let beside = fixture.sqlite().await;
    assert!(beside.header(&run()).await.unwrap().is_some_and(|(seq, _)| seq > Seq(0)));

    owner.child.kill().unwrap();
    drop(owner);
    let left = fs::read_to_string(fixture.dir().join("run.db-owner")).unwrap();
    assert!(left.contains("process"), "the note is still there: {left}");
    let next = SqliteStore::open(fixture.path(), exclusive()).await.unwrap();
    let at = assert_whole(&next).await;
    assert_eq!(next.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    SqliteStore::open(fixture.path(), exclusive()).await.unwrap_err();
    next.close().await;
    SqliteStore::open(fixture.path(), exclusive()).await.unwrap();
}

#[tokio::test]
async fn an_owner_whose_claim_was_taken_away_writes_nothing_more() {
    let fixture = TempStore::new();
    let store = SqliteStore::open(fixture.path(), exclusive()).await.unwrap();
    let at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    fs::remove_file(fixture.dir().join("run.db-owner")).unwrap();
    let other = SqliteStore::open(fixture.path(), exclusive()).await.unwrap();
    let refused = store.commit(&run(), &stamped(at)).await;
    assert!(matches!(refused, Err(CommitError::Failed(_))), "{refused:?}");
    assert_eq!(other.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    assert_eq!(assert_whole(&store).await, at.plus(1), "reading goes on");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_is_the_same_one_by_whatever_link_it_is_reached() {
    let fixture = TempStore::new();
    let link = fixture.dir().join("link.db");
    std::os::unix::fs::symlink(fixture.path(), &link).unwrap();
    // A link that leads nowhere is not where SQLite would make the file.
    SqliteStore::open(&link, SqliteOptions::new()).await.unwrap_err();
    let store = SqliteStore::open(fixture.path(), exclusive()).await.unwrap();
    let err = SqliteStore::open(&link, exclusive()).await.unwrap_err();
    assert!(matches!(err, OpenError::Owned { .. }), "{err:?}");
    // What one commits the other notices, though it was opened by another name.
    let beside = SqliteStore::open(&link, SqliteOptions::new()).await.unwrap();
    let at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    beside.changed(&run(), Seq(0)).await.unwrap();
    assert_eq!(beside.header(&run()).await.unwrap().map(|(seq, _)| seq), Some(at));
    assert!(!fixture.dir().join("link.db-wal").exists(), "the log is beside the file");
}
