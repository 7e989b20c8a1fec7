//! What is known of an account, in one small file that all runs of a host share.
//!
//! A usage limit belongs to the account and not to the run that hits it: whoever hears of it writes
//! it down, and nobody else spends a start on finding it out again. No credential is read for this;
//! all of it is what agent programs say while they work.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orchestrator_core::{WallTime, millis};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::agent::{RateLimit, Window};
use crate::chain::chain;
use crate::wall::wall_now;

/// Longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Most windows that are kept.
const WINDOWS_MAX: usize = 32;
/// The longest that an account is taken to be closed: the longest window, and a day for its clock.
const CLOSED_MAX: Duration = Duration::from_secs(8 * 24 * 3600);
/// How far in the future something may have been heard before the clock that told it is taken to have
/// been wrong, in milliseconds.
const CLOCK_SLACK_MS: u64 = 60_000;

/// The file of an account.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    path: PathBuf,
    left: f64,
}

/// What is known of an account.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountState {
    /// Until when the service refuses requests, where it said so.
    closed_until_ms: Option<u64>,
    windows: BTreeMap<String, WindowState>,
    /// When something was last heard.
    heard_at_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct WindowState {
    used: f64,
    resets_at_ms: Option<u64>,
}

/// Why an account's file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// It cannot be read or written.
    #[error("account file `{}` is out of reach", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what this program writes.
    #[error("account file `{}` cannot be understood: remove it, it is made anew", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl Account {
    /// The account that is kept in this file; the file is made when something is heard.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), left: 0.0 }
    }

    /// The same, leaving this share of each window to the person: nothing is started while less than
    /// that is left of one. Only some sign-ins tell how much is used.
    #[must_use]
    pub const fn leaving(mut self, share: f64) -> Self {
        self.left = share.clamp(0.0, 1.0);
        self
    }

    /// The share of each window that is left to the person.
    pub(crate) const fn left(&self) -> f64 {
        self.left
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is known; nothing when there is no file.
    ///
    /// # Errors
    /// [`AccountError`] when the file is there and cannot be used.
    pub fn state(&self) -> Result<AccountState, AccountError> {
        let error = |source| AccountError::File { path: self.path.clone(), source };
        let file = match open(OpenOptions::new().read(true), &self.path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(AccountState::default()),
            Err(err) => return Err(error(err)),
        };
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(error)?;
        serde_json::from_slice(&text)
            .map_err(|source| AccountError::Corrupt { path: self.path.clone(), source })
    }

    /// Until when nothing may be started, if that is later than `now`. What cannot be read keeps
    /// nobody from working: the service itself says no if it must.
    #[must_use]
    pub fn closed_until(&self, now: WallTime) -> Option<WallTime> {
        let state = self.state().and_then(|state| {
            if state.is_ahead_of(now) {
                // Kept, so that what a wrong clock wrote counts from now once, and not anew each time.
                return self.change(|state| *state = state.by_the_clock(now));
            }
            Ok(state)
        });
        match state {
            Ok(state) => state.closed_until(now, self.left),
            Err(err) => {
                warn!(error = %chain(&err), "the account is taken to be open");
                None
            }
        }
    }

    /// Notes what an agent program said of the account, and when that was heard. What was heard later
    /// stands.
    ///
    /// # Errors
    /// [`AccountError`] when the file cannot be written.
    pub fn note(&self, limit: &RateLimit, heard_at: WallTime) -> Result<(), AccountError> {
        self.change(|state| state.note(limit, heard_at)).map(|_| ())
    }

    /// Notes what is heard now, as far as that can be done.
    pub(crate) fn hear(&self, limit: &RateLimit) {
        if let Err(err) = self.note(limit, wall_now()) {
            warn!(error = %chain(&err), "other runs do not learn of the limit");
        }
    }

    /// Replaces the file, and gives what is in it then.
    fn change(&self, change: impl FnOnce(&mut AccountState)) -> Result<AccountState, AccountError> {
        let error = |source| AccountError::File { path: self.path.clone(), source };
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent).map_err(error)?;
        }
        // Held until the file is replaced, so that no other process's note is lost.
        let lock = open(OpenOptions::new().create(true).append(true), &self.lock());
        let lock = lock.map_err(error)?;
        let new = if is_held(&lock) { "new".to_owned() } else { format!("{}.new", unique()) };
        let mut state = self.state().unwrap_or_default();
        change(&mut state);
        let text = serde_json::to_vec_pretty(&state)
            .map_err(|source| AccountError::Corrupt { path: self.path.clone(), source })?;
        // Not synced: what a loss of power takes is heard again.
        let written = self.path.with_extension(new);
        fs::write(&written, &text).map_err(error)?;
        fs::rename(&written, &self.path).map_err(error)?;
        Ok(state)
    }

    fn lock(&self) -> PathBuf {
        self.path.with_extension("lock")
    }
}

/// Opens a file that anybody may have put there; a pipe is not waited for.
fn open(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = how.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// How long whoever holds the lock is waited for: far longer than a note takes to be written.
const HELD_MAX: Duration = Duration::from_secs(2);
/// How soon it is tried again.
const AGAIN: Duration = Duration::from_millis(5);

/// Takes the lock, unless somebody holds it who does not let go: one that stands still must not hold
/// up all the others. What two write at once is lost of one of them, and heard again.
fn is_held(lock: &File) -> bool {
    let until = Instant::now() + HELD_MAX;
    loop {
        match lock.try_lock() {
            Ok(()) => return true,
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(AGAIN),
            Err(err) => {
                warn!(error = %err, "the account's file is written without its lock");
                return false;
            }
        }
    }
}

/// A name that nobody else has at the same time.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl AccountState {
    fn note(&mut self, limit: &RateLimit, heard_at: WallTime) {
        // A run may be late to write down what it heard, and nothing old undoes what is newer: not
        // that someone was served before a limit was hit, nor a limit hit before someone was served.
        let is_older = heard_at.0 < self.heard_at_ms;
        let is_undone = match (limit.is_rejected, self.closed_until_ms) {
            (true, Some(_)) => false,
            (true, None) => is_older,
            (false, Some(_)) => heard_at.0 <= self.heard_at_ms,
            (false, None) => is_older,
        };
        if is_undone {
            return;
        }
        self.closed_until_ms = self.closed_until_ms.map(|at| at.min(self.latest()));
        self.heard_at_ms = self.heard_at_ms.max(heard_at.0);
        let now = self.heard_at_ms;
        let latest = self.latest();
        for (name, window) in limit.windows.iter().take(WINDOWS_MAX) {
            let used = if window.used.is_finite() { window.used.clamp(0.0, 1.0) } else { 0.0 };
            let resets_at_ms = window.resets_at.map(|at| at.0.min(latest));
            self.windows.insert(name.clone(), WindowState { used, resets_at_ms });
        }
        self.windows.retain(|_, window| window.resets_at_ms.is_none_or(|at| at > now));
        while self.windows.len() > WINDOWS_MAX {
            self.windows.pop_last();
        }
        if limit.is_rejected {
            let said = limit.resets_at.map(|at| at.0.min(latest)).filter(|at| *at > now);
            self.closed_until_ms = said.max(self.closed_until_ms.filter(|at| *at > now));
        } else {
            // Whoever was served shows that it is open.
            self.closed_until_ms = None;
        }
    }

    /// The latest moment that can have been meant by what was heard, whatever is written.
    fn latest(&self) -> u64 {
        self.heard_at_ms.saturating_add(millis(CLOSED_MAX))
    }

    /// Whether it was heard in the future: one of the clocks is or was wrong.
    const fn is_ahead_of(&self, now: WallTime) -> bool {
        self.heard_at_ms > now.0.saturating_add(CLOCK_SLACK_MS)
    }

    /// The same as if it was heard now, where it was heard in the future.
    fn by_the_clock(&self, now: WallTime) -> Self {
        let mut state = self.clone();
        if !self.is_ahead_of(now) {
            return state;
        }
        let moved =
            |at: u64| now.0.saturating_add(at.min(self.latest()).saturating_sub(self.heard_at_ms));
        state.heard_at_ms = now.0;
        state.closed_until_ms = self.closed_until_ms.map(moved);
        for window in state.windows.values_mut() {
            window.resets_at_ms = window.resets_at_ms.map(moved);
        }
        state
    }

    /// Until when the account is closed when this share of each window is to be left, if that is
    /// later than `now`.
    #[must_use]
    pub fn closed_until(&self, now: WallTime, left: f64) -> Option<WallTime> {
        let state = self.by_the_clock(now);
        let full = state.windows.values().filter(|window| left > 0.0 && window.used > 1.0 - left);
        let resets = full.filter_map(|window| window.resets_at_ms);
        let until = resets.chain(state.closed_until_ms).max()?.min(state.latest());
        (until > now.0).then_some(WallTime(until))
    }

    /// The windows that are known, with the share used and when they begin anew.
    pub fn windows(&self) -> impl Iterator<Item = (&str, Window)> {
        self.windows.iter().map(|(name, window)| {
            let resets_at = window.resets_at_ms.map(WallTime);
            (name.as_str(), Window { used: window.used, resets_at })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(until: u64) -> RateLimit {
        let resets_at = Some(WallTime(until));
        RateLimit { is_rejected: true, resets_at, ..RateLimit::default() }
    }

    fn used(share: f64, resets_at: u64) -> RateLimit {
        let window = Window { used: share, resets_at: Some(WallTime(resets_at)) };
        let windows = BTreeMap::from([("five_hour".to_owned(), window)]);
        RateLimit { windows, ..RateLimit::default() }
    }

    #[test]
    fn a_limit_that_one_run_hits_closes_the_account_for_all_until_it_reopens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/account.json");
        let (one, other) = (Account::at(&path), Account::at(&path));
        assert_eq!(other.closed_until(WallTime(1_000)), None);
        one.note(&rejected(5_000), WallTime(1_000)).unwrap();
        one.note(&rejected(4_000), WallTime(1_100)).unwrap();
        assert_eq!(other.closed_until(WallTime(1_200)), Some(WallTime(5_000)));
        assert_eq!(other.closed_until(WallTime(5_000)), None);
        // Someone who is served before that shows that it is open.
        one.note(&used(0.2, 9_000), WallTime(2_000)).unwrap();
        assert_eq!(other.closed_until(WallTime(2_000)), None);
    }

    #[test]
    fn a_share_of_the_window_is_left_to_the_person() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::at(dir.path().join("a.json"));
        account.note(&used(0.85, 9_000), WallTime(1)).unwrap();
        assert_eq!(account.closed_until(WallTime(2)), None);
        let careful = account.clone().leaving(0.2);
        assert_eq!(careful.closed_until(WallTime(2)), Some(WallTime(9_000)));
        assert_eq!(careful.closed_until(WallTime(9_000)), None);
        let state = account.state().unwrap();
        assert_eq!(
            state.windows().next().map(|(name, it)| (name, it.used)),
            Some(("five_hour", 0.85))
        );
    }

    #[test]
    fn p16_a_file_that_cannot_be_understood_closes_nothing_and_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::at(dir.path().join("a.json"));
        fs::write(account.path(), "{\"closed_until_ms\": \"soon\"").unwrap();
        assert!(matches!(account.state(), Err(AccountError::Corrupt { .. })));
        assert_eq!(account.closed_until(WallTime(1)), None);
        account.note(&rejected(u64::MAX), WallTime(1)).unwrap();
        // No window is that long.
        assert_eq!(account.closed_until(WallTime(1)), Some(WallTime(1 + millis(CLOSED_MAX))));
    }

    #[test]
    fn p16_a_closure_ends_whatever_the_clock_was_when_it_was_heard() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::at(dir.path().join("a.json"));
        let (hour, day) = (3_600_000, 24 * 3_600_000);
        let now = 1_800_000_000_000;
        // Heard under a clock that was a year ahead: it counts from now, once.
        let ahead = now + 365 * day;
        account.note(&rejected(ahead + 5 * hour), WallTime(ahead)).unwrap();
        let until = Some(WallTime(now + 5 * hour));
        assert_eq!(account.closed_until(WallTime(now)), until);
        assert_eq!(account.closed_until(WallTime(now + hour)), until);
        assert_eq!(account.closed_until(WallTime(now + 5 * hour)), None);
        // And what is heard by the right clock counts again.
        account.note(&rejected(now + 9 * hour), WallTime(now + 6 * hour)).unwrap();
        let until = Some(WallTime(now + 9 * hour));
        assert_eq!(account.closed_until(WallTime(now + 6 * hour)), until);
        let max = u64::MAX;
        for text in [
            format!("{{\"closed_until_ms\":{max}}}"),
            format!("{{\"closed_until_ms\":{max},\"heard_at_ms\":{now}}}"),
            format!("{{\"closed_until_ms\":{max},\"heard_at_ms\":{max}}}"),
            format!(
                "{{\"heard_at_ms\":{now},\"windows\":{{\"w\":{{\"used\":1e308,\"resets_at_ms\":{max}}}}}}}"
            ),
        ] {
            fs::write(account.path(), &text).unwrap();
            let careful = account.clone().leaving(0.2);
            let until = careful.closed_until(WallTime(now + 1));
            assert!(until.is_none_or(|at| at.0 <= now + 1 + 8 * day), "{text}: {until:?}");
            assert_eq!(careful.closed_until(WallTime(now + 9 * day)), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_down_late_undoes_nothing_that_was_heard_later() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::at(dir.path().join("a.json"));
        let (before, at, after) = (WallTime(9_000_000), WallTime(9_500_000), WallTime(9_600_000));
        let until = Some(WallTime(20_000_000));
        account.note(&rejected(20_000_000), at).unwrap();
        account.note(&used(0.2, 20_000_000), before).unwrap();
        account.note(&used(0.2, 20_000_000), at).unwrap();
        assert_eq!(account.closed_until(after), until);
        account.note(&used(0.2, 20_000_000), after).unwrap();
        assert_eq!(account.closed_until(after), None);
        account.note(&rejected(20_000_000), at).unwrap();
        assert_eq!(account.closed_until(after), None);
    }

    #[test]
    fn whoever_holds_the_file_or_puts_a_pipe_in_its_place_holds_nobody_up() {
        let (done, end) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let dir = tempfile::tempdir().unwrap();
            let account = Account::at(dir.path().join("a.json"));
            let held = File::create(account.lock()).unwrap();
            held.lock().unwrap();
            account.note(&rejected(5_000), WallTime(1)).unwrap();
            assert_eq!(account.closed_until(WallTime(2)), Some(WallTime(5_000)));
            drop(held);
            for path in [account.path().to_owned(), account.lock()] {
                fs::remove_file(&path).unwrap();
                assert!(
                    std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()
                );
            }
            assert!(matches!(account.state(), Err(AccountError::File { .. })));
            assert_eq!(account.closed_until(WallTime(2)), None);
            assert!(account.note(&rejected(5_000), WallTime(1)).is_err());
            done.send(()).unwrap();
        });
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn notes_of_many_at_once_leave_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::at(dir.path().join("a.json"));
        thread::scope(|scope| {
            for at in 0..16 {
                let account = account.clone();
                scope.spawn(move || account.note(&rejected(1_000 + at), WallTime(1)).unwrap());
            }
        });
        assert_eq!(account.closed_until(WallTime(1)), Some(WallTime(1_015)));
    }
}
