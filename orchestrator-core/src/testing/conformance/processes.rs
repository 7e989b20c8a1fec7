//! Checks with processes of their own, for a store that outlives its process.
//!
//! A check starts the test program again, as a writer that it kills or races against.
#![expect(clippy::missing_panics_doc, reason = "a check panics when the store does not conform")]

use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::StoreFixture;
use super::stamped::{assert_whole, run, stamped};
use crate::id::Seq;
use crate::port::{CommitError, Store};
use crate::testing::Dice;

const ROLE: &str = "STORE_CONFORMANCE_ROLE";
const ADDRESS: &str = "STORE_CONFORMANCE_ADDRESS";
/// How many writers are killed; more find rarer moments.
const KILLS: &str = "STORE_CONFORMANCE_KILLS";
/// Goes before each position that was acknowledged.
const ACKNOWLEDGED: &str = "acknowledged ";
/// Commits of each process that races.
const RACE_COMMITS: u64 = 15;
/// Longer than any process takes for one small step, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that other processes can open too.
pub trait SharedFixture: StoreFixture {
    /// What tells another process which store it is: a path or a URL, say.
    fn address(&self) -> String;
}

/// How this program is started again: by the full name of the test that carries out the role.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The module of that test.
    pub module: &'static str,
    /// Its name.
    pub test: &'static str,
}

impl Program {
    #[expect(clippy::disallowed_methods, reason = "real processes are what is checked with")]
    fn start(self, role: &str, address: &str) -> Process {
        let name = match self.module.split_once("::") {
            Some((_, module)) => format!("{module}::{}", self.test),
            None => self.test.to_owned(),
        };
        let mut child = Command::new(env::current_exe().expect("this program has a path"))
            .args(["--exact", &name, "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(ADDRESS, address)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Process { child, lines }
    }
}

/// A process that was started, and what it prints.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// The next position that the process says is committed; `None` once it has ended.
    fn next_acknowledged(&mut self) -> Option<Seq> {
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

    fn kill(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a process that was started does; nothing in one that was not.
#[expect(clippy::disallowed_methods, reason = "the process that started this one says what to do")]
pub async fn carry_out<F>(open: impl FnOnce(String) -> F)
where
    F: Future<Output = Arc<dyn Store>>,
{
    let (Ok(role), Ok(address)) = (env::var(ROLE), env::var(ADDRESS)) else { return };
    let store = open(address).await;
    let commits = if role == "write for ever" { u64::MAX } else { RACE_COMMITS };
    let mut at = store.header(&run()).await.expect("header").map_or(Seq(0), |(seq, _)| seq);
    let mut won = 0;
    while won < commits {
        let mut commit = stamped(at);
        if role != "write for ever" {
            // Each racer's commands are its own.
            commit.commands.clear();
        }
        match store.commit(&run(), &commit).await {
            Ok(seq) => {
                acknowledge(seq);
                (at, won) = (seq, won + 1);
            }
            Err(CommitError::Moved { now }) => at = now,
            Err(CommitError::Busy(_)) => {}
            Err(err) => panic!("{err:?}"),
        }
    }
}

#[expect(clippy::print_stdout, reason = "the process that started this one reads it")]
fn acknowledge(seq: Seq) {
    println!("{ACKNOWLEDGED}{seq}");
}

/// Kills a writer again and again, at moments of chance, also while it opens the store: whole
/// commits are there, every acknowledged one among them, and the next process goes on.
#[expect(clippy::disallowed_methods, reason = "whoever wants a longer check says so")]
pub async fn killed_writers_leave_whole_commits_and_every_acknowledged_one(
    fixture: &dyn SharedFixture,
    program: Program,
) {
    let kills = env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let mut last = Seq(0);
    for kill in 0..kills {
        let mut dice = Dice::new(kill);
        let mut process = program.start("write for ever", &fixture.address());
        let mut acknowledged = Seq(0);
        for _ in 0..dice.below(4) {
            acknowledged = process.next_acknowledged().expect("the writer lives");
        }
        tokio::time::sleep(Duration::from_micros(u64::from(dice.below(6_000)))).await;
        process.kill();
        while let Some(seq) = process.next_acknowledged() {
            acknowledged = seq;
        }
        let store = fixture.open().await;
        let found = assert_whole(&*store).await;
        let least = acknowledged.max(last);
        assert!(found >= least, "kill {kill}: {least} was acknowledged, {found} is there");
        last = store.commit(&run(), &stamped(found)).await.expect("commit");
    }
}

/// Several processes make one store and commit at once: each position has one winner.
pub async fn processes_that_race_each_win_their_own_positions(
    fixture: &dyn SharedFixture,
    program: Program,
) {
    const PROCESSES: u64 = 4;
    let start = |_| program.start("race", &fixture.address());
    let mut processes: Vec<Process> = (0..PROCESSES).map(start).collect();
    let mut won = Vec::new();
    for process in &mut processes {
        won.extend(std::iter::from_fn(|| process.next_acknowledged()));
        assert!(process.child.wait().expect("it ends").success(), "a process failed");
    }
    won.sort_unstable();
    let all = PROCESSES * RACE_COMMITS;
    assert_eq!(won, (1..=all).map(Seq).collect::<Vec<_>>(), "each position has one winner");
    let store = fixture.open().await;
    let log = store.events(&run(), Seq(0), usize::MAX).await.expect("events");
    assert!(log.into_iter().map(|stored| stored.event.at.0).eq(1..=all), "no event is lost");
}

/// A handle of this process is told of what another process commits.
pub async fn a_commit_of_another_process_is_noticed(fixture: &dyn SharedFixture, program: Program) {
    let store = fixture.open().await;
    let mut process = program.start("write for ever", &fixture.address());
    let mut at = Seq(0);
    for _ in 0..3 {
        // A hint may come early: ask again until the position is past.
        let waited = async {
            loop {
                let header = store.header(&run()).await.expect("header");
                match header {
                    Some((seq, _)) if seq > at => return seq,
                    Some(_) | None => store.changed(&run(), at).await.expect("changed"),
                }
            }
        };
        at = tokio::time::timeout(PATIENCE, waited).await.expect("the commit was not noticed");
    }
    process.kill();
}
