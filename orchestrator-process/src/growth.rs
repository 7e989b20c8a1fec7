//! Waking whoever follows a file when it grows, so that nobody has to look now and then.
//!
//! One inotify instance and one thread for all files of this process. It only ever wakes too often:
//! what there is to read, and how much, is looked at by whoever is woken. Where files cannot be
//! watched (the system has a limit), the follower looks by itself.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::sync::Notify;

/// How long the thread collects what happens before it wakes anybody again.
const COLLECT: Duration = Duration::from_millis(5);

/// Wakes one follower when one of its files grows.
#[derive(Debug)]
pub(crate) struct Growth {
    watcher: &'static Watcher,
    woken: Arc<Notify>,
    /// The numbers of the watches; two followers of one file share one.
    watches: Vec<i32>,
}

impl Growth {
    /// Watches these files; `None` when the system has no room for that.
    pub(crate) fn of<'a>(files: impl Iterator<Item = &'a Path>) -> Option<Self> {
        let watcher = Watcher::get()?;
        let mut growth = Self { watcher, woken: Arc::new(Notify::new()), watches: Vec::new() };
        for file in files {
            growth.watches.push(watcher.add(file, &growth.woken).ok()?);
        }
        Some(growth)
    }

    /// Returns when a file has grown since this was last waited for.
    pub(crate) async fn happened(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        for watch in &self.watches {
            self.watcher.remove(*watch, &self.woken);
        }
    }
}

type Followers = BTreeMap<i32, Vec<Arc<Notify>>>;

#[derive(Debug)]
struct Watcher {
    inotify: OwnedFd,
    followers: Mutex<Followers>,
}

impl Watcher {
    fn get() -> Option<&'static Self> {
        static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
        static STARTED: OnceLock<bool> = OnceLock::new();
        let made = WATCHER.get_or_init(|| match inotify::init(CreateFlags::CLOEXEC) {
            Ok(inotify) => Some(Self { inotify, followers: Mutex::default() }),
            Err(err) => {
                tracing::warn!(%err, "files are looked at now and then, since none can be watched");
                None
            }
        });
        let watcher = made.as_ref()?;
        let started = STARTED.get_or_init(|| {
            let watch = move || watcher.watch();
            thread::Builder::new().name("orchestrator-watch".to_owned()).spawn(watch).is_ok()
        });
        started.then_some(watcher)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, file: &Path, woken: &Arc<Notify>) -> io::Result<i32> {
        // Under the lock, so that nobody removes the watch that another one is just given.
        let mut followers = self.followers();
        let flags = WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW;
        let watch = inotify::add_watch(&self.inotify, file, flags)?;
        followers.entry(watch).or_default().push(Arc::clone(woken));
        Ok(watch)
    }

    fn remove(&self, watch: i32, woken: &Arc<Notify>) {
        let mut followers = self.followers();
        let Some(of_file) = followers.get_mut(&watch) else { return };
        of_file.retain(|one| !Arc::ptr_eq(one, woken));
        if of_file.is_empty() {
            followers.remove(&watch);
            // A file that is gone has no watch any more.
            inotify::remove_watch(&self.inotify, watch).ok();
        }
    }

    /// Wakes followers for as long as this process lives.
    fn watch(&self) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 16 * 1024];
        loop {
            let mut reader = Reader::new(&self.inotify, &mut buffer);
            while let Ok(event) = reader.next() {
                let is_lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                self.wake((!is_lost).then_some(event.wd()));
                if reader.is_buffer_empty() {
                    break;
                }
            }
            thread::sleep(COLLECT);
        }
    }

    /// Wakes those who follow a file, or all when it is not known which have grown.
    fn wake(&self, watch: Option<i32>) {
        let followers = self.followers();
        let of_file = watch.map(|watch| followers.get(&watch).into_iter().flatten());
        match of_file {
            Some(of_file) => of_file.for_each(|one| one.notify_one()),
            None => followers.values().flatten().for_each(|one| one.notify_one()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn each_follower_of_a_file_is_woken_when_it_grows_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&two, "").unwrap();
        let mut file = File::create(&one).unwrap();
        let of = |path: &Path| Growth::of([path].into_iter()).unwrap();
        let (first, second, other) = (of(&one), of(&one), of(&two));
        drop(first);
        file.write_all(b"more").unwrap();
        second.happened().await;
        let waits = tokio::time::timeout(Duration::from_millis(50), other.happened());
        assert!(waits.await.is_err());
        drop(second);
        assert!(other.watcher.followers().values().flatten().all(|one| Arc::strong_count(one) > 0));
        assert!(Growth::of([dir.path().join("gone").as_path()].into_iter()).is_none());
    }
}
