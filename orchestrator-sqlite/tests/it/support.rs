//! A store in a folder of its own; the commits that show whether they are whole are the suite's.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs, thread};

use async_trait::async_trait;
use orchestrator_core::port::{Cause, Store};
use orchestrator_core::testing::StoreFixture;
pub(crate) use orchestrator_core::testing::conformance::stamped::{assert_whole, run, stamped};
use orchestrator_core::testing::conformance::{SharedFixture, Trouble};
use orchestrator_sqlite::{OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use rustix::thread::{CapabilitySet, CapabilitySets};
use tempfile::TempDir;
use tokio::runtime;

/// Set where a check that could be made with more programs is a failure.
const SKIP_NOTHING: &str = "STORE_TEST_SKIP_NOTHING";

/// A check needs a program that is not there.
pub(crate) fn lacks(program: &str) {
    assert!(env::var_os(SKIP_NOTHING).is_none(), "not checked: `{program}` is not installed");
    not_checked(&format!("`{program}` is not installed"));
}

/// Says that something could not be checked here, past whatever keeps the output of tests.
pub(crate) fn not_checked(why: &str) {
    // There may be nobody to tell.
    drop(writeln!(io::stderr(), "\nNOT CHECKED: {why}"));
}

/// A file of format 1, as the program wrote that had no other; its tasks stand in the order of their
/// numbers.
pub(crate) const FORMAT_1: &[u8] = include_bytes!("../data/format-1.db");

/// Longer than anything here takes, also on a busy machine with a slow disk.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Options with which nobody is refused because others write all the time.
pub(crate) fn patient() -> SqliteOptions {
    SqliteOptions::new().with_busy_max(PATIENCE)
}

/// A fresh file that is gone when this is dropped.
pub(crate) struct TempStore {
    dir: TempDir,
    /// The troubles that are on.
    troubles: Mutex<Vec<Trouble>>,
}

impl TempStore {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder for the test");
        Self { dir, troubles: Mutex::default() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("run.db")
    }

    pub(crate) async fn sqlite(&self) -> SqliteStore {
        SqliteStore::open(self.path(), patient()).await.expect("the store opens")
    }

    /// A connection of somebody who looks at the file, or spoils it, without the store.
    pub(crate) fn shell(&self) -> Connection {
        Connection::open(self.path()).expect("the shell opens")
    }
}

#[async_trait]
impl StoreFixture for TempStore {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlite().await)
    }

    async fn try_open(&self) -> Result<Arc<dyn Store>, Cause> {
        let troubles = self.troubles.lock().expect("no test panicked with it").clone();
        let mut options = patient();
        if troubles.contains(&Trouble::NoRoom) {
            let now = fs::metadata(self.path())?.len();
            options = options.with_file_bytes_max(now + 500_000);
        }
        let opened = if troubles.contains(&Trouble::ReadOnly) {
            open_without_privileges(self.path()).await
        } else {
            SqliteStore::open(self.path(), options).await
        };
        Ok(Arc::new(opened?))
    }

    async fn trouble(&self, trouble: Trouble, is_on: bool) -> bool {
        {
            let mut troubles = self.troubles.lock().expect("no test panicked with it");
            troubles.retain(|other| *other != trouble);
            troubles.extend(is_on.then_some(trouble));
        }
        if is_on && trouble != Trouble::FailsInCommit {
            self.closed().await;
        }
        self.make(trouble, is_on);
        true
    }
}

/// Once the records before it, the events and the commands are written.
const FAIL: &str = "CREATE TRIGGER fail BEFORE INSERT ON tasks WHEN new.place = 7 \
                    BEGIN SELECT RAISE(ABORT, 'on purpose'); END";

impl TempStore {
    fn make(&self, trouble: Trouble, is_on: bool) {
        match (trouble, is_on) {
            (Trouble::OlderFormat, true) => self.change(&self.as_format_1()),
            (Trouble::NewerFormat, true) => self.change_version(|version| version + 90),
            (Trouble::NewerFormat, false) => self.change_version(|version| version - 90),
            (Trouble::FailsInCommit, true) => self.change(FAIL),
            (Trouble::FailsInCommit, false) => self.change("DROP TRIGGER fail"),
            (Trouble::ReadOnly, _) => self.allow_writing(!is_on),
            (Trouble::NoRoom, _) | (Trouble::OlderFormat, false) => {}
        }
    }

    /// Waits until handles that were dropped, which close in the background, are closed: the last one
    /// removes the log. Of two that close at once each may take the other for the last one: then one
    /// that comes and goes is.
    async fn closed(&self) {
        for look in 1..6_000 {
            if !self.dir().join("run.db-wal").exists() {
                return;
            }
            if look % 100 == 0 {
                self.shell().execute_batch("SELECT * FROM runs").expect("the file can be read");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("a handle is still open");
    }

    /// What makes of the file what the program of format 1 would have left.
    fn as_format_1(&self) -> String {
        const MORE: &str = "\
            SELECT format('DROP %s %s;', type, name) FROM sqlite_schema \
            WHERE type = 'trigger' UNION ALL \
            SELECT format('DROP %s %s;', type, name) FROM sqlite_schema now \
            WHERE type IN ('view', 'table') AND name NOT IN (SELECT name FROM old.sqlite_schema) \
            UNION ALL \
            SELECT format('ALTER TABLE %s DROP COLUMN %s;', now.name, found.name) \
            FROM sqlite_schema now, pragma_table_info(now.name) found \
            WHERE now.type = 'table' AND now.name IN (SELECT name FROM old.sqlite_schema) \
            AND found.name NOT IN (SELECT name FROM pragma_table_info(now.name, 'old'))";
        let old = self.dir().join("format-1");
        fs::write(&old, FORMAT_1).expect("the folder is ours");
        let shell = self.shell();
        shell.execute("ATTACH ?1 AS old", [old.to_str()]).expect("it is a database");
        let mut statement = shell.prepare(MORE).expect(MORE);
        let more = statement.query_map([], |row| row.get::<_, String>(0)).expect(MORE);
        let more = more.collect::<Result<String, _>>().expect(MORE);
        more + "PRAGMA user_version = 1; PRAGMA wal_checkpoint(TRUNCATE)"
    }

    fn change_version(&self, change: impl FnOnce(i64) -> i64) {
        let shell = self.shell();
        let version = shell.pragma_query_value(None, "user_version", |row| row.get(0));
        let changed = change(version.expect("a file has a version"));
        shell.pragma_update(None, "user_version", changed).expect("it can be changed");
    }

    fn change(&self, sql: &str) {
        self.shell().execute_batch(sql).expect(sql);
    }

    #[cfg(unix)]
    pub(crate) fn allow_writing(&self, is_allowed: bool) {
        use std::os::unix::fs::PermissionsExt as _;
        let (file, folder) = if is_allowed { (0o644, 0o755) } else { (0o444, 0o555) };
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        allow(self.dir(), folder);
        for entry in fs::read_dir(self.dir()).expect("the folder is there") {
            allow(&entry.expect("an entry").path(), file);
        }
    }
}

/// Opens the file as a user whom permissions bind, also where this one is root: on a thread, and
/// with threads, that have given up the privilege to pass them over.
pub(crate) async fn open_without_privileges(path: PathBuf) -> Result<SqliteStore, OpenError> {
    let open = move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).expect("whoever has privileges can drop them");
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime starts");
        runtime.block_on(SqliteStore::open(path, SqliteOptions::new()))
    };
    let opening = thread::spawn(open);
    tokio::task::spawn_blocking(|| opening.join())
        .await
        .expect("it is joined")
        .expect("it is opened")
}

impl SharedFixture for TempStore {
    fn address(&self) -> String {
        self.path().to_str().expect("a folder for tests has a plain name").to_owned()
    }
}
