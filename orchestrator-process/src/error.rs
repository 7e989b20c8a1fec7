//! Why a program could not be started.

use std::io;
use std::path::{Path, PathBuf};

use orchestrator_core::{Interruption, Outcome};

use crate::confine::ConfineError;
use crate::no_room::is_no_room;

/// Why a program could not be started; each names the program and what would help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such program.
    #[error("program `{program}` is not found in {searched}: install it or give its path")]
    NotFound {
        /// The program as it was named.
        program: String,
        /// Where it was looked for.
        searched: String,
    },
    /// It is there and cannot be executed.
    #[error("`{program}` cannot be executed: {why}")]
    NotExecutable {
        /// Its path.
        program: String,
        /// What is wrong with it, and what would help.
        why: &'static str,
    },
    /// The directory to start it in is not there.
    #[error("`{program}` cannot be started in {}: it is not a directory that can be entered", cwd.display())]
    Directory {
        /// The program.
        program: String,
        /// The directory.
        cwd: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Arguments and environment are larger than the system allows.
    #[error(
        "the arguments of `{program}` are too long for the system: give long texts in a file or on standard input"
    )]
    TooLong {
        /// The program.
        program: String,
    },
    /// An argument or variable holds a zero byte.
    #[error("an argument or variable for `{program}` holds a zero byte or is no valid name")]
    Argument {
        /// The program.
        program: String,
    },
    /// A file for its input or output cannot be opened.
    #[error("{} cannot be opened for `{program}`", path.display())]
    File {
        /// The program.
        program: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system has no room for another process or file now.
    #[error(
        "the system has no room to start `{program}` now: run fewer at once, or raise the limit of processes or open files"
    )]
    NoRoom {
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It cannot be confined as it must be.
    #[error("`{program}` is not started")]
    Confine {
        /// The program.
        program: String,
        /// What it must be confined by, and is not.
        #[source]
        source: ConfineError,
    },
    /// Something else.
    #[error("`{program}` cannot be started")]
    Other {
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl SpawnError {
    /// Whether starting it may work the next time as things are.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::NoRoom { .. })
    }

    /// How a stage ends whose program could not be started.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.is_transient() {
            return Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None };
        }
        Outcome::Fatal { error: self.chain() }
    }

    /// The message with what the system said.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(err) = cause {
            text = format!("{text}: {err}");
            cause = err.source();
        }
        text
    }

    /// Tells why a program cannot be confined.
    pub(crate) fn from_confine(program: &str, source: ConfineError) -> Self {
        let program = program.to_owned();
        if let ConfineError::Place(source) = source {
            if is_no_room(&source) {
                return Self::NoRoom { program, source };
            }
            return Self::Confine { program, source: ConfineError::Place(source) };
        }
        Self::Confine { program, source }
    }

    /// Tells what the system said of a file for the program.
    pub(crate) fn from_file(program: &str, path: &Path, source: io::Error) -> Self {
        let program = program.to_owned();
        if is_no_room(&source) {
            return Self::NoRoom { program, source };
        }
        Self::File { program, path: path.to_owned(), source }
    }

    /// Tells what the system said when it was asked to start the program.
    pub(crate) fn from_spawn(program: &str, source: io::Error) -> Self {
        let program = program.to_owned();
        let unusable = |why| Self::NotExecutable { program: program.clone(), why };
        match source.raw_os_error() {
            None if source.kind() == io::ErrorKind::InvalidInput => Self::Argument { program },
            Some(libc::E2BIG) => Self::TooLong { program },
            // The program itself was found before.
            Some(libc::ENOENT) => {
                unusable("the interpreter that its first line or header names is missing")
            }
            Some(libc::EACCES | libc::EPERM) => unusable(
                "permission denied: `chmod +x` it, and check that its file system allows it",
            ),
            _ if is_no_room(&source) => Self::NoRoom { program, source },
            _ => Self::Other { program, source },
        }
    }
}
