//! A process between this one and a program, where no cgroup holds what that starts.
//!
//! It is a child of this process that never becomes another program. The kernel gives it, as a
//! subreaper, every process below it whose parent has ended, whatever session, group or environment
//! that has; so all that the program starts descends from it, always. It waits for the program, then
//! ends what is left, then ends as the program did. When this process dies, it ends all of them at
//! once. Out of its reach is only what kills it.
//!
//! All of it runs between fork and exec, in a copy of a process with many threads: it makes system
//! calls and nothing else.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::Duration;

use libc::c_int;
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    set_child_subreaper, set_parent_process_death_signal, setrlimit, wait,
};
use rustix::time::{ClockId, clock_gettime};

/// The name under which a guardian tells how many processes were left, once it has ended.
const TELLS: &str = "left ";
/// How long those that are left have to end when they are asked.
const GRACE: Duration = Duration::from_secs(1);
/// How soon a guardian looks again for those that are to end.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const CHILDREN: &CStr = c"/proc/thread-self/children";

/// Whether guardians can see who descends from them.
pub(crate) fn is_possible() -> bool {
    fs::read("/proc/thread-self/children").is_ok()
}

/// How many processes a guardian found left, which has ended and is not reaped.
pub(crate) fn left(guardian: u32) -> usize {
    let name = fs::read_to_string(format!("/proc/{guardian}/comm")).unwrap_or_default();
    name.strip_prefix(TELLS).and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Makes the calling process, a child just forked and leader of its group, the guardian of another
/// child of its own; returns in that one, which is to become the program.
///
/// `parent` is the process that started it.
pub(crate) fn stand_between(parent: Pid) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    // Blocked before there is a child, so that none of its signals is missed.
    let waited = Waited::block();
    match fork()? {
        None => {
            waited.unblock();
            // Without its guardian it would be out of reach.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        }
        Some(program) => {
            close_all();
            end_as(guard(program, parent, &waited));
        }
    }
}

/// Waits until the program has ended or the parent is gone, ends what is left, and says how the
/// program ended.
fn guard(program: Pid, parent: Pid, waited: &Waited) -> Option<WaitStatus> {
    loop {
        waited.wait(None);
        if getppid() != Some(parent) {
            end_left(waited, Duration::ZERO);
            return None;
        }
        // Others that it has inherited, and that have ended, are taken on the way.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == program {
                tell(end_left(waited, GRACE));
                return Some(status);
            }
        }
    }
}

/// Ends all children, and those that become children by that; says how many.
fn end_left(waited: &Waited, grace: Duration) -> usize {
    let mut count = 0;
    if !grace.is_zero() {
        signal_children(Signal::TERM);
        signal_children(Signal::CONT);
        let until = now() + grace;
        while now() < until {
            if reap(&mut count) {
                return count;
            }
            waited.wait(Some(LOOK_AGAIN));
        }
    }
    while !reap(&mut count) {
        signal_children(Signal::KILL);
        waited.wait(Some(LOOK_AGAIN));
    }
    count
}

/// Takes those that have ended; whether there is no child any more.
fn reap(count: &mut usize) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(None) => return false,
            Ok(Some(_)) => *count += 1,
            Err(_) => return true,
        }
    }
}

/// Signals each child. Nobody else reaps them, so that each pid is that of a child.
fn signal_children(signal: Signal) {
    let Ok(file) = rustix::fs::open(CHILDREN, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    else {
        return;
    };
    let mut pid = 0_i32;
    let mut piece = [0_u8; 512];
    while let Ok(read) = rustix::io::read(&file, &mut piece)
        && read > 0
    {
        for byte in piece.iter().take(read) {
            if byte.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
            } else if let Some(child) = Pid::from_raw(std::mem::take(&mut pid)) {
                kill_process(child, signal).ok();
            }
        }
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Leaves the count where whoever waits for this process finds it: in its name.
fn tell(count: usize) {
    let mut digits = [0_u8; 8];
    let (mut rest, mut at) = (count.min(9_999_999), digits.len());
    while rest > 0 || at == digits.len() {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        }
        rest /= 10;
    }
    // Longer by one than all that is put there, so that a zero ends it.
    let mut name = [0_u8; TELLS.len() + 9];
    let digits = digits.get(at..).unwrap_or_default();
    for (to, from) in name.iter_mut().zip(TELLS.as_bytes().iter().chain(digits)) {
        *to = *from;
    }
    if let Ok(name) = CStr::from_bytes_until_nul(&name) {
        rustix::thread::set_name(name).ok();
    }
}

/// Ends this process as the program ended; as one that was killed when that is not known.
fn end_as(status: Option<WaitStatus>) -> ! {
    if let Some(code) = status.and_then(WaitStatus::exit_status) {
        exit(code);
    }
    let signal = status.and_then(WaitStatus::terminating_signal).unwrap_or(libc::SIGKILL);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
    reset(signal);
    if let Some(signal) = Signal::from_named_raw(signal) {
        kill_process(getpid(), signal).ok();
    }
    exit(128 + signal)
}

/// The signals that a guardian waits for: a child has ended, the parent has ended.
struct Waited(libc::sigset_t);

impl Waited {
    /// Has them kept until they are waited for.
    fn block() -> Self {
        let mut set = MaybeUninit::uninit();
        #[expect(unsafe_code, reason = "no safe wrapper blocks signals")]
        // SAFETY: `sigemptyset` makes the set whole before it is used; the other calls read it, or
        // add to it, and none keeps the pointer.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), null_mut());
            set.assume_init()
        };
        Self(set)
    }

    fn unblock(&self) {
        #[expect(unsafe_code, reason = "no safe wrapper unblocks signals")]
        // SAFETY: the set is whole, and the call reads it only.
        unsafe {
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const self.0, null_mut());
        }
    }

    /// Waits for one of them, for this long at most.
    fn wait(&self, at_most: Option<Duration>) {
        let nanos = at_most.map_or(0, |span| span.subsec_nanos());
        let span = libc::timespec { tv_sec: 0, tv_nsec: nanos.into() };
        #[expect(unsafe_code, reason = "no safe wrapper waits for signals")]
        // SAFETY: both calls read the set and the span, which live until they return, and write
        // nothing where the second argument is null.
        unsafe {
            match at_most {
                None => libc::sigwaitinfo(&raw const self.0, null_mut()),
                Some(_) => libc::sigtimedwait(&raw const self.0, null_mut(), &raw const span),
            };
        }
    }
}

/// Forks; `None` in the child.
fn fork() -> io::Result<Option<Pid>> {
    #[expect(unsafe_code, reason = "no safe wrapper forks")]
    // SAFETY: the process has one thread, being just forked itself, and neither side does more than
    // system calls until it executes a program or exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Closes all files: those of the program are not to be held open by its guardian.
fn close_all() {
    #[expect(unsafe_code, reason = "no safe wrapper closes a range")]
    // SAFETY: nothing of this process uses a descriptor from here on but those that it opens itself;
    // no destructor runs before it exits.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32);
    }
}

/// Gives a signal its default effect, now.
fn reset(signal: c_int) {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    #[expect(unsafe_code, reason = "no safe wrapper sets a disposition")]
    // SAFETY: `sigfillset` makes the set whole before it is read; `SIG_DFL` runs no handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_UNBLOCK, all.as_ptr(), null_mut());
    }
}

/// Ends this process without running anything of what it is a copy of.
fn exit(code: c_int) -> ! {
    #[expect(unsafe_code, reason = "the safe way runs destructors of the process that was copied")]
    // SAFETY: the call ends the process.
    unsafe {
        libc::_exit(code)
    }
}
