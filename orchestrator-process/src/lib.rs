//! Starts, watches, limits and ends programs, whole trees of them.
//!
//! [`run`] is for programs that work for long: their output goes to files, which are followed while
//! they grow. [`capture`] is for short ones whose output is wanted in memory. Either way the program
//! gets an environment that starts empty, no input that it was not given, a session of its own and a
//! time limit; and when it ends, by itself or not, what it started is ended too.
//!
//! How far that reaches: where this process can make cgroups, to all that the program starts,
//! whatever it does. Elsewhere a guardian process stands between this one and each program; the
//! kernel gives it whatever loses its parent, so that nothing is out of reach but what kills the
//! guardian. Processes are also known by session and group, and by the mark that each start puts
//! into the environment, which is how a later process finds what an earlier one left.
//! [`LocalConfiner`] says which it is, and so does the log.
//!
//! A [`Confinement`] limits memory, processes and processor time of a program with all that it
//! starts, and where it may write and connect to. What a machine cannot do of that is said once, and
//! nothing of it is required, unless [`SandboxMode::Require`] says so.
//!
//! ```
//! use std::time::Duration;
//! use orchestrator_process::{End, Flow, Limits, Line, Program, Watch, run};
//! use tokio_util::sync::CancellationToken;
//!
//! /// Waits for one line, and lets the program linger for two seconds after it.
//! struct UntilDone;
//!
//! impl Watch for UntilDone {
//!     fn line(&mut self, line: Line<'_>) -> Flow {
//!         if line.bytes == b"done" { Flow::EndAfter(Duration::from_secs(2)) } else { Flow::Continue }
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! let program = Program::new("sh")
//!     .args(["-c", "echo working; echo done"])
//!     .pass_env(["PATH"])
//!     .stdout_file(dir.path().join("out.log"))
//!     .stderr_file(dir.path().join("err.log"))
//!     .limits(Limits::new(Duration::from_secs(60)).with_silence(Duration::from_secs(30)));
//! let ended = run(&program, &CancellationToken::new(), &mut UntilDone).await.unwrap();
//! assert_eq!(ended.how, End::Exited(0));
//! assert_eq!(ended.stdout_tail, "working\ndone\n");
//! # });
//! ```
//!
//! On top of that stand [`CommandRunner`] and [`CommandVerifier`], which carry out stages by any
//! program, and [`LocalHost`]. Only Linux is supported: what is left of a tree is found in `/proc`.

#[cfg(not(target_os = "linux"))]
compile_error!("orchestrator-process finds processes in /proc and holds them by pidfd: Linux only");

mod abandoned;
mod activity;
mod capture;
mod command;
mod confine;
mod environment;
mod error;
mod excerpt;
mod follow;
mod growth;
mod guardian;
mod host;
mod launch;
mod marks;
mod masking;
mod no_room;
mod open_files;
mod process;
mod program;
mod question;
mod run;
mod runner;
mod spawn;
mod sweep;
mod table;
mod verifier;

pub use self::{
    capture::{Captured, capture},
    confine::{
        Abilities, Cell, ConfineError, Confinement, Confiner, Entry, LocalConfiner, PlaceFor,
        Sandbox, SandboxMode, Tcp, TreeEnds, UnknownSandboxMode,
    },
    environment::Environment,
    error::SpawnError,
    follow::Line,
    host::{HostError, LeftoversError, LocalHost, end_leftovers},
    marks::Marker,
    masking::{mask_file, mask_log, mask_logs},
    open_files::{TooFewFiles, raise_open_files},
    program::{Limits, Program},
    question::{QUESTION_BYTES_MAX, QUESTION_FILE, take_question},
    run::{End, Ended, Flow, Watch, run},
    runner::CommandRunner,
    verifier::CommandVerifier,
};
