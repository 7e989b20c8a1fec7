//! A file system without room.

use std::fs;
use std::path::Path;
use std::process::Command;

use orchestrator_core::Seq;
use orchestrator_core::port::{Commit, CommitError, Store as _};
use orchestrator_sqlite::{OpenError, SqliteOptions, SqliteStore};

use crate::support::{TempStore, assert_whole, run, stamped};

/// A small file system in memory, where this user may mount one.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    #[expect(clippy::print_stderr, reason = "a test that checks nothing says so")]
    fn mount(at: &'a Path, bytes: u32) -> Option<Self> {
        let size = format!("size={bytes}");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        let is_mounted = done.is_ok_and(|done| done.status.success());
        if !is_mounted {
            eprintln!("skipped: this user may not mount a file system");
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
    commit.blobs.push(vec![7; 200_000]);
    commit
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
