//! Starting a program, and holding it until it is ended and reaped.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::ExitStatus;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal, setrlimit, setsid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::abandoned::{self, Abandoned};
use crate::command::{Output, Pipes, command};
use crate::confine::{
    Cell, ConfineError, Confinement, Confiner, Entry, LocalConfiner, PlaceFor, TreeEnds,
};
use crate::error::SpawnError;
use crate::guardian;
use crate::launch::{Birth, Child, Image, launch};
use crate::marks::StartMark;
use crate::no_room::is_no_room;
use crate::open_files;
use crate::program::Program;
use crate::table::Seeds;

/// A started program that is not reaped yet, so that its pid still means it and nothing else.
///
/// Dropping it ends the whole tree, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Tree {
    held: Held,
    pidfd: AsyncFd<OwnedFd>,
    pipes: Option<Pipes>,
    /// Whether its cell holds all that it starts.
    is_held: bool,
}

/// The child itself.
#[derive(Debug)]
struct Held {
    child: Option<Child>,
    pid: Pid,
    mark: StartMark,
    cell: Option<Arc<dyn Cell>>,
    /// Whether the child is a guardian, and the program a child of that.
    is_guarded: bool,
}

impl Tree {
    /// Starts a program.
    pub(crate) async fn spawn(program: &Program, output: Output) -> Result<Self, SpawnError> {
        let mark = StartMark::new();
        let (image, pipes, name) = command(program, &mark, &output)?;
        let (cell, is_guarded) = cell(program, &mark, &output)
            .map_err(|source| SpawnError::from_confine(&name, source))?;
        let entry = cell.as_ref().map_or_else(|| Ok(Entry::default()), |cell| cell.entry());
        let entry = entry.map_err(|err| SpawnError::from_spawn(&name, err))?;
        let isolation =
            Isolation { parent: getpid(), entry, is_guarded, files: open_files::before() };
        let started = Want { image: Arc::new(image), isolation: Arc::new(isolation), mark, cell };
        let started = started.start().await.map_err(|err| SpawnError::from_spawn(&name, err))?;
        let pidfd = watched(started.pidfd).map_err(|err| SpawnError::from_spawn(&name, err))?;
        let held = started.held;
        let is_held = started.is_in && held.cell.as_ref().is_some_and(|cell| cell.holds_tree());
        Ok(Self { held, pidfd, pipes, is_held })
    }

    /// The cell that holds all that there is of the tree, where there is one.
    pub(crate) fn holding_cell(&self) -> Option<&Arc<dyn Cell>> {
        self.held.cell.as_ref().filter(|_| self.is_held)
    }

    /// How many processes its guardian had to end after it had ended by itself.
    pub(crate) fn left_to_guardian(&self) -> usize {
        if self.held.is_guarded { guardian::left(self.held.id()) } else { 0 }
    }

    /// Whether something of it was killed because it needed more memory than it may have.
    pub(crate) fn has_run_out_of_memory(&self) -> bool {
        self.held.cell.as_ref().is_some_and(|cell| cell.has_run_out_of_memory())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.held.id()
    }

    /// The pipes; once, and only when it was started with them.
    pub(crate) const fn take_pipes(&mut self) -> Option<Pipes> {
        self.pipes.take()
    }

    /// Returns when the program itself has ended; may be dropped and called again.
    pub(crate) async fn exited(&self) {
        // An error here means that the runtime is shutting down, which drops this future anyway.
        if self.pidfd.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Signals the program's group; it is not reaped, so the group is its own.
    pub(crate) fn signal_group(&self, signal: Signal) {
        // Nobody left to signal is what is wanted.
        kill_process_group(self.held.pid, signal).ok();
    }

    /// By what the processes of this tree are found.
    pub(crate) fn seeds(&self) -> Seeds {
        self.held.seeds()
    }

    /// Takes the exit status; the program must have ended, and its pid may mean another one after.
    pub(crate) fn reap(mut self) -> io::Result<ExitStatus> {
        match self.held.child.take() {
            Some(mut child) => child.wait(),
            None => Err(io::Error::other("it was reaped before")),
        }
    }

    /// Kills what may still be there of the group, and reaps the program, in the background if it
    /// takes long to end.
    pub(crate) async fn put_away(self) {
        self.signal_group(Signal::KILL);
        if timeout(Duration::from_secs(1), self.exited()).await.is_ok() {
            self.reap().ok();
        }
    }
}

impl Held {
    const fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    fn seeds(&self) -> Seeds {
        Seeds { root: Some(self.id()), start: Some(self.mark.clone()), lease: None }
    }
}

impl Drop for Held {
    /// Ends a tree that nobody waits for any more.
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            if !self.is_guarded {
                // A guardian is killed with all that it guards, not before.
                kill_process_group(self.pid, Signal::KILL).ok();
            }
            let cell = self.cell.take();
            abandoned::end(Abandoned { child, seeds: self.seeds(), cell });
        }
    }
}

/// A program that is to be started.
#[derive(Clone)]
struct Want {
    image: Arc<Image>,
    isolation: Arc<Isolation>,
    mark: StartMark,
    cell: Option<Arc<dyn Cell>>,
}

/// What the spawning thread is asked.
struct Order {
    want: Want,
    answer: oneshot::Sender<io::Result<Started>>,
}

/// A program that was written a moment ago may still be open in a child that another part of this
/// process is just starting; that passes, but not soon where the machine is busy or the disk slow.
const BUSY_WITHIN: Duration = Duration::from_secs(5);
/// How soon it is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

impl Want {
    /// Has it started by the thread for that, and again while it is busy.
    async fn start(self) -> io::Result<Started> {
        let gone = || io::Error::other("the thread that starts programs ended");
        let mut tries = BUSY_WITHIN.as_millis() / BUSY_PAUSE.as_millis();
        loop {
            let (answer, started) = oneshot::channel();
            let order = Order { want: self.clone(), answer };
            spawner()?.send(order).map_err(|_| gone())?;
            match started.await.map_err(|_| gone())? {
                Err(err) if err.raw_os_error() == Some(libc::ETXTBSY) && tries > 0 => {
                    tries -= 1;
                    sleep(BUSY_PAUSE).await;
                }
                done => return done,
            }
        }
    }
}

/// What it hands back; ends the program when nobody takes it.
struct Started {
    held: Held,
    pidfd: OwnedFd,
    /// Whether it is in its cell.
    is_in: bool,
}

/// The one thread that starts programs. It never ends: the kernel signals a child when the *thread*
/// that started it ends.
fn spawner() -> io::Result<&'static Sender<Order>> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    abandoned::sender()?;
    abandoned::permanent(&SPAWNER, "orchestrator-spawn", |orders| {
        for Order { want, answer } in orders {
            // Whoever asked may be gone; then the program is ended by the drop.
            answer.send(start(want)).ok();
        }
    })
}

/// Registers a descriptor with the runtime, which wakes whoever waits for the process to end.
fn watched(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(unsafe_code, reason = "the runtime has no safe way to register a descriptor")]
    // SAFETY: `OwnedFd` keeps one valid descriptor open until it is dropped and always names that
    // one; `Tree` never takes it out of the `AsyncFd` nor exchanges it.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(io::Error::from)
}

/// The place that a program is to run in, and whether it needs a guardian. A short one that bears no
/// marker and may do anything is worth neither.
fn cell(
    program: &Program,
    mark: &StartMark,
    output: &Output,
) -> Result<(Option<Arc<dyn Cell>>, bool), ConfineError> {
    let is_short = matches!(output, Output::Pipes) && program.marker.is_none();
    if is_short && program.confinement == Confinement::none() {
        return Ok((None, false));
    }
    let ask = PlaceFor {
        start: mark.as_str(),
        lease: program.marker.as_ref(),
        confinement: &program.confinement,
    };
    let own: Arc<dyn Confiner>;
    let confiner = match &program.confiner {
        Some(confiner) => confiner,
        None => {
            own = LocalConfiner::detected();
            &own
        }
    };
    let is_guarded = confiner.abilities().tree == TreeEnds::Guardian;
    Ok((confiner.confine(&ask)?.map(Arc::from), is_guarded))
}

fn start(want: Want) -> io::Result<Started> {
    let Want { image, isolation, mark, cell } = want;
    let mut is_in = true;
    let child = match spawn(&image, &isolation, Insists::Yes) {
        // Whatever it was: when it was not the cell, it is the same once more.
        Err(err) if cell.is_some() && !is_no_room(&err) => {
            is_in = false;
            let child = spawn(&image, &isolation, Insists::No)?;
            tracing::warn!(%err, "a program cannot be put into its cgroup");
            child
        }
        done => done?,
    };
    let (pid, is_guarded) = (child.pid(), isolation.is_guarded);
    let held = Held { child: Some(child), pid, mark, cell, is_guarded };
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Started { held, pidfd, is_in })
}

fn spawn(image: &Image, isolation: &Isolation, insists: Insists) -> io::Result<Child> {
    if let Some(cgroup) = &isolation.entry.cgroup
        && insists == Insists::Yes
    {
        let birth = Birth::In(cgroup.dir.as_raw_fd());
        match launch(image, birth, &|| isolation.enter(true, insists)) {
            // An old kernel cannot, and some containers forbid it; the door is still there.
            Err(err) if !is_no_room(&err) => {}
            done => return done,
        }
    }
    let birth = if isolation.is_guarded { Birth::Copy } else { Birth::Sharing };
    launch(image, birth, &|| isolation.enter(false, insists))
}

/// Whether a child must get into its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Insists {
    Yes,
    No,
}

/// What a child does before it is the program.
#[derive(Debug)]
struct Isolation {
    parent: Pid,
    entry: Entry,
    is_guarded: bool,
    /// The limit of open files that the program gets, where it is not that of this process.
    files: Option<Rlimit>,
}

impl Isolation {
    /// Gives the child its place, a session of its own, no file but its three, and an end when this
    /// process ends. Makes system calls only, allocates nothing, takes no lock, and cannot panic.
    fn enter(&self, is_born_in: bool, insists: Insists) -> io::Result<()> {
        let cgroup = self.entry.cgroup.as_ref().filter(|_| !is_born_in);
        for door in cgroup.map(|cgroup| &cgroup.procs).into_iter().chain(&self.entry.joins) {
            if let Err(err) = rustix::io::write(door, b"0")
                && insists == Insists::Yes
            {
                return Err(err.into());
            }
        }
        setsid()?;
        set_parent_process_death_signal(Some(Signal::TERM))?;
        if getppid() != Some(self.parent) {
            // The parent ended before the line above took effect, so the signal will not come.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if self.is_guarded {
            guardian::stand_between(self.parent)?;
        }
        #[expect(unsafe_code, reason = "no safe wrapper sets a range of flags")]
        // SAFETY: the call takes integers. Files from 3 on are only marked to be closed by `execve`;
        // an old kernel refuses that, and then only files that were never marked stay open.
        unsafe {
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        }
        if let Some(files) = self.files {
            // A program that counts on few descriptors gets as many as its user meant it to.
            setrlimit(Resource::Nofile, files).ok();
        }
        self.entry.rules.as_ref().map_or(Ok(()), |rules| restrict(rules.as_raw_fd()))
    }
}

/// Puts Landlock rules on this process, for good. Makes two system calls and nothing else.
fn restrict(rules: std::os::fd::RawFd) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    #[expect(unsafe_code, reason = "the crate for it allocates, which a forked child must not")]
    // SAFETY: the call takes a descriptor and flags, and touches no memory of this program.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0_u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
