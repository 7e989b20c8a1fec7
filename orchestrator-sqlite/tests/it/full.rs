//! A file system without room.

use std::fs;
use std::path::Path;
use std::process::Command;

use orchestrator_core::Seq;
use orchestrator_core::port::{Commit, CommitError, Store as _};
use orchestrator_sqlite::{OpenError, SqliteOptions, SqliteStore};

use crate::child::Process;
use crate::support::{TempStore, assert_whole, not_checked, run, stamped};

/// A small file system in memory, where this user may mount one.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(at: &'a Path, bytes: u32) -> Option<Self> {
        let size = format!("size={bytes}");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        let is_mounted = done.is_ok_and(|done| done.status.success());
        if !is_mounted {
            // The same is checked without a mount.
            not_checked("this user may not mount a small file system");
        }
        is_mounted.then_some(Self(at))
    }

    fn remount(&self, option: &str) {
        let options = format!("remount,{option}");
        let done = Command::new("mount").args(["-o", &options]).arg(self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "{options}");
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0).status());
    }
}

/// The next commit, made large.
fn large(expected: Seq) -> Commit {
    let mut commit = stamped(expected);
    commit.blobs.push(format!("{expected} {}", "x".repeat(200_000)).into_bytes());
    commit
}

/// A process whose files may not get larger, as by a quota: the system refuses what it writes. The
/// limit is on the process, so that this needs one of its own.
#[cfg(target_os = "linux")]
#[test]
fn a_process_that_may_write_no_more_loses_nothing_and_goes_on_when_it_may() {
    let fixture = TempStore::new();
    let mut process = Process::start_without_signal("be full", &fixture.path());
    let mut last = Seq(0);
    while let Some(seq) = process.next_acknowledged() {
        last = seq;
    }
    assert!(process.child.wait().unwrap().success(), "see what the process said");
    assert!(last > Seq(2), "{last}");
}

/// What that process does.
#[cfg(target_os = "linux")]
pub(crate) async fn be_full(store: SqliteStore, path: &Path) -> Seq {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let may_write = |bytes| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).expect("a lower limit");
    };
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.expect("commit");
    for room in [10_000, 150_000, 700_000] {
        let log = fs::metadata(path.with_extension("db-wal")).map_or(0, |log| log.len());
        may_write(Some(log + room));
        let full = loop {
            match store.commit(&run(), &large(at)).await {
                Ok(seq) => at = seq,
                Err(err) => break err,
            }
        };
        assert!(matches!(full, CommitError::Full(_)), "{full:?}");
        assert_eq!(assert_whole(&store).await, at);
        let again = store.commit(&run(), &large(at)).await;
        assert!(matches!(again, Err(CommitError::Full(_))), "{again:?}");
        may_write(None);
        at = store.commit(&run(), &large(at)).await.expect("there is room");
        assert_eq!(assert_whole(&store).await, at);
    }
    store.close().await;
    let store = SqliteStore::open(path, SqliteOptions::new()).await.expect("the store opens");
    assert_eq!(assert_whole(&store).await, at);
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_and_works_again_once_there_is_room() {
    let fixture = TempStore::new();
    let Some(disk) = Tmpfs::mount(fixture.dir(), 1024 * 1024) else { return };
    let store = fixture.sqlite().await;
    let mut at = Seq(0);
    let ballast = fixture.dir().join("ballast");
    at = store.commit(&run(), &stamped(at)).await.unwrap();
    fs::write(&ballast, vec![1; 300_000]).unwrap();
    let full = loop {
        match store.commit(&run(), &large(at)).await {
            Ok(seq) => at = seq,
            Err(err) => break err,
        }
    };
    assert!(matches!(full, CommitError::Full(_)), "{full:?}");
    assert_eq!(assert_whole(&store).await, at);
    let again = store.commit(&run(), &large(at)).await;
    assert!(matches!(again, Err(CommitError::Full(_))), "{again:?}");

    fs::remove_file(ballast).unwrap();
    at = store.commit(&run(), &large(at)).await.unwrap();
    assert_eq!(assert_whole(&store).await, at);
    store.close().await;
    assert_eq!(assert_whole(&fixture.sqlite().await).await, at);
    drop(disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_file_system_is_refused_with_the_name_of_the_file() {
    let fixture = TempStore::new();
    let Some(disk) = Tmpfs::mount(fixture.dir(), 1024 * 1024) else { return };
    fixture.sqlite().await.close().await;
    disk.remount("ro");
    let err = SqliteStore::open(fixture.path(), SqliteOptions::new()).await.unwrap_err();
    assert!(matches!(&err, OpenError::ReadOnly { path } if *path == fixture.path()), "{err:?}");
}
