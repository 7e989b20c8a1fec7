//! Making a process that becomes a program, at a cost that does not grow with this one.
//!
//! A fork copies the tables of all memory that this process has, and each page that it touches soon
//! after: milliseconds, and more with each megabyte. So the child shares the memory until it is the
//! program, as `posix_spawn` has it, while the thread that started it stands still. A child that is to
//! be born in a cgroup of version 2, and one that gets a guardian, which lives on as it is, are forked.
//!
//! What runs in a child before it is the program makes system calls and nothing else: another thread
//! may have held any lock when it was made.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::ptr::{null, null_mut};

use rustix::process::{Pid, WaitOptions, waitpid};

/// A program with all that it gets, as the system takes it.
#[derive(Debug)]
pub(crate) struct Image {
    /// Absolute, or relative to `cwd`.
    pub(crate) path: CString,
    pub(crate) args: Vec<CString>,
    /// `NAME=value`.
    pub(crate) environment: Vec<CString>,
    pub(crate) cwd: Option<CString>,
    /// Its input, output and errors; none of them is one of the first three descriptors.
    pub(crate) files: [OwnedFd; 3],
}

/// How a child is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Birth {
    /// Shares the memory of its parent until it is the program, or has failed to become it.
    Sharing,
    /// Is a copy, which may live on as one.
    Copy,
    /// Is a copy, in the cgroup of version 2 whose directory this is from the beginning.
    In(RawFd),
}

/// A process that was started and is to be reaped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    status: Option<ExitStatus>,
}

impl Child {
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.look(WaitOptions::empty())? {
                return Ok(status);
            }
        }
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.look(WaitOptions::NOHANG)
    }

    fn look(&mut self, how: WaitOptions) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = match waitpid(Some(self.pid), how) {
                Ok(ended) => ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())),
                Err(rustix::io::Errno::INTR) => None,
                Err(err) => return Err(err.into()),
            };
        }
        Ok(self.status)
    }
}

/// What the child has.
struct Becoming<'a> {
    image: &'a Image,
    args: &'a [*const c_char],
    environment: &'a [*const c_char],
    prepare: &'a dyn Fn() -> io::Result<()>,
    /// What went wrong is written to this, which is closed when the child is the program.
    failed: &'a PipeWriter,
}

/// Starts a program; the child calls `prepare` first, which makes system calls only.
///
/// # Errors
/// What the system says when there is no child, or what kept it from becoming the program.
pub(crate) fn launch(
    image: &Image,
    birth: Birth,
    prepare: &dyn Fn() -> io::Result<()>,
) -> io::Result<Child> {
    let (args, environment) = (pointers(&image.args), pointers(&image.environment));
    let (mut told, failed) = failure()?;
    let mut becoming =
        Becoming { image, args: &args, environment: &environment, prepare, failed: &failed };
    let pid = match birth {
        Birth::Sharing => becoming.sharing(),
        Birth::Copy => becoming.copied(),
        Birth::In(cgroup) => becoming.within(cgroup),
    }?;
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("the system gave no pid"))?;
    let mut child = Child { pid, status: None };
    drop(failed);
    let mut number = [0; size_of::<i32>()];
    match told.read_exact(&mut number) {
        Ok(()) => {
            child.wait()?;
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
        }
        // It was closed: the child is the program.
        Err(_) => Ok(child),
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}

fn failure() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader, PipeWriter::from(beyond_first(writer.into())?)))
}

/// A descriptor that is none of the first three, which the child gets others in the place of.
pub(crate) fn beyond_first(file: OwnedFd) -> io::Result<OwnedFd> {
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, 3)?)
}

/// Room for what a child calls before it is the program; a script without a first line that says by
/// what it is read has its arguments copied there.
const STACK: usize = 128 * 1024;

impl Becoming<'_> {
    fn sharing(&mut self) -> io::Result<c_int> {
        let words = (STACK + self.args.len() * size_of::<usize>()) / size_of::<u128>();
        let mut stack = Vec::<u128>::with_capacity(words);
        let all = Signals::block();
        #[expect(unsafe_code, reason = "no safe wrapper starts a child that shares the memory")]
        // SAFETY: the child runs on a stack of its own, which is aligned and lives until the call
        // returns, and so does what it borrows, since with `CLONE_VFORK` this thread stands still until
        // the child has ended or is another program. No handler of a signal runs in it, since all are
        // blocked until it has reset them. `become_program` keeps to system calls.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(words);
            libc::clone(
                become_program,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut *self).cast(),
            )
        };
        let pid = of(pid.into());
        all.restore();
        pid
    }

    fn copied(&mut self) -> io::Result<c_int> {
        let all = Signals::block();
        #[expect(unsafe_code, reason = "no safe wrapper forks")]
        // SAFETY: the child has copies of all that it borrows, and `become_program` keeps to system
        // calls.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            become_program((&raw mut *self).cast());
        }
        let pid = of(pid.into());
        all.restore();
        pid
    }

    fn within(&mut self, cgroup: RawFd) -> io::Result<c_int> {
        let all = Signals::block();
        #[expect(unsafe_code, reason = "no safe wrapper starts a child in a cgroup")]
        // SAFETY: all of the arguments may be zero, and then the call forks; the child has copies of
        // all that it borrows, and `become_program` keeps to system calls.
        let pid = unsafe {
            let mut args = MaybeUninit::<libc::clone_args>::zeroed().assume_init();
            args.flags = INTO_CGROUP;
            args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
            args.cgroup = u64::from(cgroup.unsigned_abs());
            libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
        };
        if pid == 0 {
            become_program((&raw mut *self).cast());
        }
        let pid = of(pid);
        all.restore();
        pid
    }

    /// Becomes the program; returns when it cannot.
    fn run(&self) -> io::Error {
        Signals::reset();
        if let Err(err) = (self.prepare)() {
            return err;
        }
        for (file, place) in self.image.files.iter().zip(0..) {
            #[expect(unsafe_code, reason = "no safe wrapper puts a file in the place of another")]
            // SAFETY: only the first three descriptors are replaced, which nothing here owns.
            if unsafe { libc::dup2(file.as_raw_fd(), place) } < 0 {
                return io::Error::last_os_error();
            }
        }
        if let Some(cwd) = &self.image.cwd
            && let Err(err) = rustix::process::chdir(cwd.as_c_str())
        {
            return err.into();
        }
        let (path, args) = (self.image.path.as_ptr(), self.args.as_ptr());
        #[expect(unsafe_code, reason = "no safe wrapper executes a program")]
        // SAFETY: the lists end with a null pointer, and each pointer before is that of a text which
        // ends with a zero and lives longer than this call.
        unsafe {
            libc::execvpe(path, args, self.environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Not before kernel 5.7.
const INTO_CGROUP: u64 = 0x2_0000_0000;

fn of(pid: libc::c_long) -> io::Result<c_int> {
    let failed = io::Error::last_os_error();
    c_int::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(failed)
}

/// What a child does.
extern "C" fn become_program(becoming: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "the system hands an address on")]
    // SAFETY: it is that of the one whose method made this child, which outlives it.
    let becoming = unsafe { &*becoming.cast::<Becoming<'_>>() };
    let failed = becoming.run();
    let number = failed.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
    // Whoever reads takes a pipe that is closed for a program that runs, and sees how it ends.
    rustix::io::write(becoming.failed.as_fd(), &number).ok();
    #[expect(
        unsafe_code,
        reason = "the safe way runs destructors of the process that it came from"
    )]
    // SAFETY: the call ends the child, and touches nothing that it shares.
    unsafe {
        libc::_exit(127)
    }
}

/// The signals that a thread had blocked.
struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks all of them in this thread.
    fn block() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        #[expect(unsafe_code, reason = "no safe wrapper blocks signals")]
        // SAFETY: `sigfillset` makes the set whole before it is read, the other call fills the second
        // one, and neither keeps a pointer.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self(before)
    }

    fn restore(self) {
        #[expect(unsafe_code, reason = "no safe wrapper unblocks signals")]
        // SAFETY: the set is whole, and the call reads it only.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut());
        }
    }

    /// Gives all of them their default effect, and blocks none. Only in a child.
    fn reset() {
        let mut none = MaybeUninit::uninit();
        #[expect(unsafe_code, reason = "no safe wrapper sets a disposition")]
        // SAFETY: an action of zeros is that by default, with no flag and nothing blocked; a number
        // that is no signal's is refused. `sigemptyset` makes the set whole before it is read.
        unsafe {
            let by_default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            for signal in 1..=SIGNAL_MAX {
                libc::sigaction(signal, &raw const by_default, null_mut());
            }
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), null_mut());
        }
    }
}

const SIGNAL_MAX: c_int = 64;
