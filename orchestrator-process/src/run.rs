//! Carrying out a program that works for long: watching it, and ending it in time.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::command::Output;
use crate::confine::Cell;
use crate::error::SpawnError;
use crate::follow::{Growing, Line, Lines};
use crate::growth::Growth;
use crate::program::{Limits, Program};
use crate::spawn::Tree;
use crate::sweep::{self, Swept};

/// How a program came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It ended by itself, with this code.
    Exited(i32),
    /// It was ended by a signal that nobody here sent.
    Signalled(i32),
    /// It was ended because it reached its wall limit.
    WallLimit,
    /// It was ended because it gave no output for too long.
    SilenceLimit,
    /// It was ended because it gave too much output.
    OutputLimit,
    /// It did not end by itself, because its processes needed more memory than they may have.
    MemoryLimit,
    /// It was ended because that was asked for.
    Cancelled,
    /// It was ended because it lingered after its watcher had seen all that it waited for.
    Lingered,
}

/// How a program ended, and what it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it came to its end.
    pub how: End,
    /// How long it ran.
    pub wall: Duration,
    /// How many bytes it wrote to its output files.
    pub output_bytes: u64,
    /// The last of its standard output, up to 8 KiB.
    pub stdout_tail: String,
    /// The last of its standard error, up to 8 KiB.
    pub stderr_tail: String,
    /// How many other processes of its tree had to be ended.
    pub leftovers: usize,
    /// The processes of its tree that could not be ended.
    pub left: Vec<u32>,
}

/// Watches a program while it runs. Calls must be quick.
pub trait Watch: Send {
    /// It was started.
    fn started(&mut self, pid: u32) {
        _ = pid;
    }

    /// It has written this many bytes in all, and more than at the last call.
    fn output(&mut self, bytes: u64) {
        _ = bytes;
    }

    /// It wrote a line to its standard output file; called once for each, also for those that come
    /// while it is being ended.
    fn line(&mut self, line: Line<'_>) -> Flow {
        _ = line;
        Flow::Continue
    }
}

/// Watches nothing.
impl Watch for () {}

/// What a watcher wants after a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// All that was waited for is there: the program may take this long to end by itself, and is
    /// ended then. The first such answer counts.
    EndAfter(Duration),
}

/// How much of each output is kept in memory at the end.
const TAIL_BYTES_MAX: usize = 8 * 1024;
/// How often files are looked at that grow, and at most that do not.
const TICK_MIN: Duration = Duration::from_millis(20);
const TICK_MAX: Duration = Duration::from_millis(500);
/// How often files are looked at whose growth is told; a write through a mapping is not.
const TOLD: Duration = Duration::from_secs(30);
/// How much is read before limits are looked at again.
const READ_AT_ONCE: usize = 1 << 20;
/// How long leftovers of a program that ended by itself have to end when asked.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);

/// Starts a program, watches it, and returns when it and all that it started have ended.
///
/// It ends early when a limit is reached, when `cancel` is cancelled, or when the watcher has seen
/// enough; then its group is sent `SIGTERM`, and after the grace the whole tree is killed.
/// When the returned future is dropped, the tree is killed in the background.
///
/// # Errors
/// [`SpawnError`] when it could not be started.
///
/// # Panics
/// Outside a tokio runtime with IO and time enabled.
pub async fn run(
    program: &Program,
    cancel: &CancellationToken,
    watch: &mut dyn Watch,
) -> Result<Ended, SpawnError> {
    let name = program.program.to_string_lossy();
    let mut logs = Logs::open(program)?;
    if cancel.is_cancelled() {
        return Ok(Logs::never_started());
    }
    let tree = Tree::spawn(program, Output::Files).await?;
    watch.started(tree.pid());
    let begun = Instant::now();
    let limits = &program.limits;
    let stopped = supervise(&tree, limits, &mut logs, cancel, watch).await;
    let swept = end_tree(&tree, stopped.is_some(), limits.grace).await;
    let wall = begun.elapsed();
    let root = tree.pid();
    let leftovers =
        swept.found.iter().filter(|id| id.pid != root).count().max(tree.left_to_guardian());
    let how = match stopped {
        Some(how) => {
            tree.put_away().await;
            how
        }
        None => {
            let is_starved = tree.has_run_out_of_memory();
            let how = end_of(tree.reap().map_err(|err| SpawnError::from_spawn(&name, err))?);
            if is_starved && how != End::Exited(0) { End::MemoryLimit } else { how }
        }
    };
    logs.read_to_end(limits.output_bytes_max, watch).await;
    Ok(Ended {
        how,
        wall,
        output_bytes: logs.bytes(),
        stdout_tail: tail(logs.stdout.as_ref()),
        stderr_tail: tail(logs.stderr.as_ref()),
        leftovers,
        left: swept.left,
    })
}

/// Waits until the program ends, or for a reason to end it.
async fn supervise(
    tree: &Tree,
    limits: &Limits,
    logs: &mut Logs,
    cancel: &CancellationToken,
    watch: &mut dyn Watch,
) -> Option<End> {
    let begun = Instant::now();
    let mut grown_at = begun;
    let mut end_at = None;
    let mut tick = TICK_MIN;
    let mut looked_at = begun;
    loop {
        let now = Instant::now();
        let silent_at = limits.silence.and_then(|silence| grown_at.checked_add(silence));
        let wall_at = begun.checked_add(limits.wall);
        let reached = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if logs.bytes_seen > limits.output_bytes_max {
            return Some(End::OutputLimit);
        } else if reached(end_at) {
            return Some(End::Lingered);
        } else if reached(wall_at) {
            return Some(End::WallLimit);
        } else if reached(silent_at) {
            return Some(End::SilenceLimit);
        }
        let next = [end_at, wall_at, silent_at].into_iter().flatten().fold(now + tick, Ord::min);
        let grown = logs.grown(looked_at + TICK_MIN);
        tokio::select! {
            biased;
            () = tree.exited() => return None,
            () = cancel.cancelled() => return Some(End::Cancelled),
            () = grown => {}
            () = sleep_until(next) => {}
        }
        looked_at = Instant::now();
        match logs.read(watch) {
            Read::Nothing => tick = (tick * 2).min(TICK_MAX),
            Read::Some => (grown_at, tick) = (looked_at, TICK_MIN),
            Read::MoreToCome => (grown_at, tick) = (looked_at, Duration::ZERO),
        }
        if logs.growth.is_some() && !logs.is_behind {
            tick = TOLD;
        }
        end_at = end_at.or_else(|| logs.end_after.map(sweep::after));
    }
}

/// Ends what is there of the tree: all of it, or what the program left when it ended by itself.
pub(crate) async fn end_tree(tree: &Tree, is_forced: bool, grace: Duration) -> Swept {
    if let Some(cell) = tree.holding_cell() {
        match end_held(tree, &**cell, is_forced, grace).await {
            Ok(swept) => {
                swept.log();
                return swept;
            }
            Err(err) => tracing::warn!(%err, "the cgroup of a program cannot be looked at"),
        }
    }
    let seeds = tree.seeds();
    let swept = if is_forced {
        let begun = Instant::now();
        // Those outside the group are noted now: they are hard to find once their parents are gone.
        let mut noted = Swept::default();
        sweep::look(&seeds, &mut noted).await;
        tree.signal_group(Signal::TERM);
        tree.signal_group(Signal::CONT);
        timeout(grace, tree.exited()).await.ok();
        sweep::end_all(&seeds, noted.found, grace.saturating_sub(begun.elapsed())).await
    } else {
        sweep::end_all(&seeds, BTreeSet::new(), grace.min(LEFTOVER_GRACE)).await
    };
    swept.log();
    swept
}

/// The same where a cell holds all of it.
async fn end_held(
    tree: &Tree,
    cell: &dyn Cell,
    is_forced: bool,
    grace: Duration,
) -> io::Result<Swept> {
    if !is_forced {
        return sweep::end_held(cell, grace.min(LEFTOVER_GRACE)).await;
    }
    let begun = Instant::now();
    let mut asked = Swept::default();
    sweep::ask_held(cell, &mut asked)?;
    timeout(grace, tree.exited()).await.ok();
    let mut swept = sweep::end_held(cell, grace.saturating_sub(begun.elapsed())).await?;
    swept.found.append(&mut asked.found);
    Ok(swept)
}

pub(crate) fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signalled(signal),
        // Linux has no third way to end.
        (None, None) => End::Exited(-1),
    }
}

fn tail(log: Option<&Growing>) -> String {
    log.map_or_else(String::new, |log| {
        String::from_utf8_lossy(&log.tail(TAIL_BYTES_MAX)).into_owned()
    })
}

/// What a look at the output gave.
enum Read {
    Nothing,
    Some,
    MoreToCome,
}

/// The output files of a program.
struct Logs {
    stdout: Option<Growing>,
    /// `None` also when it is the same file as the other.
    stderr: Option<Growing>,
    /// Tells when they grow, where that can be told.
    growth: Option<Growth>,
    lines: Lines,
    bytes_seen: u64,
    /// Whether there was more than was read.
    is_behind: bool,
    end_after: Option<Duration>,
}

impl Logs {
    fn open(program: &Program) -> Result<Self, SpawnError> {
        let open = |path: &Path| {
            let name = program.program.to_string_lossy();
            Growing::open(path).map_err(|err| SpawnError::from_file(&name, path, err))
        };
        let stderr =
            program.stderr.as_deref().filter(|path| program.stdout.as_deref() != Some(path));
        let of_stderr = stderr.map(open).transpose()?;
        Ok(Self {
            stdout: program.stdout.as_deref().map(open).transpose()?,
            stderr: of_stderr,
            growth: Growth::of(program.stdout.as_deref().into_iter().chain(stderr)),
            lines: Lines::new(program.limits.line_bytes_max),
            bytes_seen: 0,
            is_behind: false,
            end_after: None,
        })
    }

    fn never_started() -> Ended {
        Ended {
            how: End::Cancelled,
            wall: Duration::ZERO,
            output_bytes: 0,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            leftovers: 0,
            left: Vec::new(),
        }
    }

    /// Returns when the files have grown, not before this moment; never where that is not told.
    async fn grown(&self, not_before: Instant) {
        let Some(growth) = &self.growth else { return std::future::pending().await };
        sleep_until(not_before).await;
        growth.happened().await;
    }

    fn bytes(&self) -> u64 {
        [&self.stdout, &self.stderr].into_iter().flatten().map(Growing::bytes).sum()
    }

    /// Looks how long the files are, and says how much was written.
    fn look(&mut self, watch: &mut dyn Watch) -> u64 {
        if self.stdout.as_mut().is_some_and(Growing::look) {
            // What it began before it emptied the file has no end any more.
            self.lines.finish(&mut |line| {
                watch.line(line);
            });
        }
        if let Some(stderr) = &mut self.stderr {
            stderr.look();
        }
        self.bytes()
    }

    /// Reads what is new, but not for long at a time.
    fn read(&mut self, watch: &mut dyn Watch) -> Read {
        let bytes = self.look(watch);
        if bytes <= self.bytes_seen && !self.is_behind {
            return Read::Nothing;
        }
        let mut read = 0;
        while read < READ_AT_ONCE {
            match self.read_piece(watch) {
                0 => break,
                more => read += more,
            }
        }
        self.is_behind = read >= READ_AT_ONCE;
        self.tell(bytes, watch);
        if self.is_behind { Read::MoreToCome } else { Read::Some }
    }

    fn tell(&mut self, bytes: u64, watch: &mut dyn Watch) {
        if bytes > self.bytes_seen {
            self.bytes_seen = bytes;
            watch.output(bytes);
        }
    }

    fn read_piece(&mut self, watch: &mut dyn Watch) -> usize {
        let Self { stdout: Some(stdout), lines, end_after, .. } = self else { return 0 };
        // On the stack: a thousand programs that are silent keep no buffer each.
        let mut buffer = [0; 16 * 1024];
        let Some(piece) = stdout.read(&mut buffer) else { return 0 };
        lines.take(piece, &mut |line| {
            if let Flow::EndAfter(grace) = watch.line(line) {
                end_after.get_or_insert(grace);
            }
        });
        piece.len()
    }

    async fn read_to_end(&mut self, bytes_max: u64, watch: &mut dyn Watch) {
        // Not past what is there now: a process that could not be ended may go on writing. And not far
        // past the limit: a file may be made longer in an instant than anybody can read in a day.
        let bytes = self.look(watch);
        let mut left = bytes.min(bytes_max);
        let mut read_at_once = 0;
        while left > 0 {
            match self.read_piece(watch) {
                0 => break,
                read => {
                    left = left.saturating_sub(read as u64);
                    read_at_once += read;
                }
            }
            if read_at_once >= READ_AT_ONCE {
                read_at_once = 0;
                tokio::task::yield_now().await;
            }
        }
        self.lines.finish(&mut |line| {
            watch.line(line);
        });
        self.tell(bytes, watch);
    }
}
