//! What to start, and within which limits.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::confine::{Confinement, Confiner};
use crate::environment::Environment;
use crate::marks::Marker;

/// A program to start.
///
/// It gets the environment that it is given, an empty input where none is given, and a session of its
/// own. One variable is added, `ORCHESTRATOR_START`, by which what it leaves behind is found.
#[derive(Debug, Clone)]
pub struct Program {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) environment: Environment,
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Option<PathBuf>,
    pub(crate) stderr: Option<PathBuf>,
    pub(crate) marker: Option<Marker>,
    pub(crate) limits: Limits,
    pub(crate) confinement: Confinement,
    pub(crate) confiner: Option<Arc<dyn Confiner>>,
}

/// What a program reads on its standard input.
#[derive(Debug, Clone)]
pub(crate) enum Stdin {
    Closed,
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Program {
    /// A program: a path when it holds a `/` (relative to the directory that it is started in), else
    /// a name to be found by the `PATH` of its environment.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            cwd: None,
            environment: Environment::empty(),
            stdin: Stdin::Closed,
            stdout: None,
            stderr: None,
            marker: None,
            limits: Limits::default(),
            confinement: Confinement::none(),
            confiner: None,
        }
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// With more arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Started in this directory; otherwise in that of this process.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.cwd = Some(dir.as_ref().to_owned());
        self
    }

    /// With this environment in place of what was set before.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// With this variable in its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.set(name, value);
        self
    }

    /// With these variables as this process has them.
    #[must_use]
    pub fn pass_env<N: AsRef<OsStr>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.environment = self.environment.passing(names);
        self
    }

    /// Reads this file on its standard input; without this and [`Self::stdin_bytes`] it finds the
    /// end of its input at once.
    #[must_use]
    pub fn stdin_file(mut self, path: impl AsRef<Path>) -> Self {
        self.stdin = Stdin::File(path.as_ref().to_owned());
        self
    }

    /// Reads these bytes on its standard input.
    #[must_use]
    pub fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// Its standard output is appended to this file, which is made where it is missing. Used by
    /// [`run`](crate::run) only; without it the output is dropped.
    #[must_use]
    pub fn stdout_file(mut self, path: impl AsRef<Path>) -> Self {
        self.stdout = Some(path.as_ref().to_owned());
        self
    }

    /// The same for its standard error; both may name one file.
    #[must_use]
    pub fn stderr_file(mut self, path: impl AsRef<Path>) -> Self {
        self.stderr = Some(path.as_ref().to_owned());
        self
    }

    /// Bears this marker, by which another process finds what it leaves behind
    /// ([`end_leftovers`](crate::end_leftovers)).
    #[must_use]
    pub fn marker(mut self, marker: Marker) -> Self {
        self.marker = Some(marker);
        self
    }

    /// Within these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Confined like this: what it may use, and where it may reach.
    #[must_use]
    pub fn confinement(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// Confined by this in place of what this machine has
    /// ([`LocalConfiner::detected`](crate::LocalConfiner::detected)).
    #[must_use]
    pub fn confiner(mut self, confiner: Arc<dyn Confiner>) -> Self {
        self.confiner = Some(confiner);
        self
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program.to_string_lossy())?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.to_string_lossy()))
    }
}

/// How long a program may run, and how much it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long it may run.
    pub wall: Duration,
    /// How long it may go without a new byte in its output files; `None` is for ever.
    pub silence: Option<Duration>,
    /// How much it may write to its output files, both together. It is looked at now and then, so a
    /// fast writer gets past it by what it writes in half a second at most,
    /// a steady one by far less.
    pub output_bytes_max: u64,
    /// How much of one line is kept in memory and handed to [`Watch::line`](crate::Watch::line).
    pub line_bytes_max: usize,
    /// How long it has between being asked to end and being killed.
    pub grace: Duration,
}

impl Limits {
    /// This wall limit; no silence limit, 1 GiB of output, lines of 4 MiB, a grace of 10 s.
    #[must_use]
    pub const fn new(wall: Duration) -> Self {
        Self {
            wall,
            silence: None,
            output_bytes_max: 1 << 30,
            line_bytes_max: 4 << 20,
            grace: Duration::from_secs(10),
        }
    }

    /// With this silence limit.
    #[must_use]
    pub const fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// With this limit of the output.
    #[must_use]
    pub const fn with_output_bytes_max(mut self, bytes: u64) -> Self {
        self.output_bytes_max = bytes;
        self
    }

    /// With this limit of a line.
    #[must_use]
    pub const fn with_line_bytes_max(mut self, bytes: usize) -> Self {
        self.line_bytes_max = bytes;
        self
    }

    /// With this grace.
    #[must_use]
    pub const fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

impl Default for Limits {
    /// One hour; the rest as [`Limits::new`] says.
    fn default() -> Self {
        Self::new(Duration::from_secs(3600))
    }
}
