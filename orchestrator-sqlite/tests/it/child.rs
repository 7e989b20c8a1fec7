//! Processes of their own that use a store: this test binary again, told what to do.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use orchestrator_core::Seq;
use orchestrator_core::port::{Commit, CommitError, Store as _};
use orchestrator_core::testing::conformance::samples::{event, first_commit};
use orchestrator_sqlite::SqliteStore;

use crate::support::{patient, run, stamped};

const ROLE: &str = "STORE_TEST_ROLE";
const PATH: &str = "STORE_TEST_PATH";
/// Goes before each position that was acknowledged.
const ACKNOWLEDGED: &str = "acknowledged ";

/// A process that was started, and what it prints.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(role: &str, path: &Path) -> Self {
        Self::start_by(Command::new(Self::program()), role, path)
    }

    /// A process that is not ended by the signal that its files may get no larger.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_without_signal(role: &str, path: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(Self::program());
        Self::start_by(shell, role, path)
    }

    fn program() -> PathBuf {
        env::current_exe().expect("this program has a path")
    }

    fn start_by(mut command: Command, role: &str, path: &Path) -> Self {
        let mut child = command
            .args(["--exact", "child::child", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(PATH, path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Self { child, lines }
    }

    /// The next position that the process says is committed; `None` once it has ended.
    pub(crate) fn next_acknowledged(&mut self) -> Option<Seq> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line).expect("its output is text") == 0 {
                return None;
            }
            // A line that was cut off by the kill names no position.
            if let Some((_, seq)) = line.split_once(ACKNOWLEDGED)
                && let Some(seq) = seq.strip_suffix('\n')
            {
                return Some(Seq(seq.parse().expect("a position")));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests as a process of its own"]
async fn child() {
    let (Ok(role), Some(path)) = (env::var(ROLE), env::var_os(PATH).map(PathBuf::from)) else {
        return;
    };
    let options = patient().with_exclusive(role == "own for ever");
    let store = SqliteStore::open(&path, options).await.unwrap();
    match role.as_str() {
        #[cfg(target_os = "linux")]
        "be full" => acknowledge(crate::full::be_full(store, &path).await),
        "write for ever" | "own for ever" => write(&store, u64::MAX).await,
        "begin logs for ever" => crate::logs::begin_logs(&store, &path).await,
        "write once" => write(&store, 1).await,
        race => race_as(&store, race.strip_prefix("race ").unwrap().parse().unwrap()).await,
    }
}

async fn write(store: &SqliteStore, commits: u64) {
    let header = store.header(&run()).await.expect("header");
    let mut at = header.map_or(Seq(0), |(seq, _)| seq);
    for _ in 0..commits {
        at = store.commit(&run(), &stamped(at)).await.expect("commit");
        acknowledge(at);
    }
}

#[expect(clippy::print_stdout, reason = "the process that started this one reads it")]
fn acknowledge(seq: Seq) {
    println!("{ACKNOWLEDGED}{seq}");
}

/// How many commits each racing process gets through.
pub(crate) const RACE_COMMITS: u64 = 15;

async fn race_as(store: &SqliteStore, number: u64) {
    let mut at = Seq(0);
    let mut won = 0;
    while won < RACE_COMMITS {
        let commit = Commit {
            expected: at,
            commands: Vec::new(),
            events: vec![event(number * RACE_COMMITS + won)],
            ..first_commit("r", "unused")
        };
        match store.commit(&run(), &commit).await {
            Ok(seq) => {
                acknowledge(seq);
                (at, won) = (seq, won + 1);
            }
            Err(CommitError::Moved { now }) => at = now,
            Err(err) => panic!("{err:?}"),
        }
    }
}
