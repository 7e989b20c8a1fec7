//! The marks by which a process is known, wherever it goes: variables that a start of a program puts
//! into its environment, and what they say when they are read again.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use orchestrator_core::{FencingToken, RunId};

use crate::process::{Process, ProcessId};

/// Tells the processes of one lease from all others, wherever they go and whoever looks for them: a
/// variable in their environment, which children inherit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker(String);

impl Marker {
    /// The variable.
    pub const NAME: &'static str = "ORCHESTRATOR_LEASE";

    /// The marker of what a lease starts: `<slug of the run>/<token>`.
    ///
    /// [`end_leftovers`](crate::end_leftovers) ends what bears it. So two runs on one host, in
    /// different stores too, must not have the same id: a recovery of the one could end what the
    /// other one started.
    #[must_use]
    pub fn of(run: &RunId, token: FencingToken) -> Self {
        Self(format!("{}/{token}", run.slug()))
    }

    /// The value of the variable.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Tells the processes of one start of a program from all others of this host, those of another run
/// of the same name among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartMark(String);

impl StartMark {
    /// The variable.
    pub(crate) const NAME: &'static str = "ORCHESTRATOR_START";

    /// A mark that no other start has: `<pid>.<start time>.<count>`, the first two of this process.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        static THIS_PROCESS: LazyLock<String> = LazyLock::new(|| {
            let pid = std::process::id();
            let start_time = Process::read(pid).map_or(0, |process| process.id.start_time);
            format!("{pid}.{start_time}")
        });
        Self(format!("{}.{}", *THIS_PROCESS, COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The process that made the mark with this text.
    pub(crate) fn starter(text: &str) -> Option<ProcessId> {
        let mut parts = text.split('.');
        let pid = parts.next()?.parse().ok()?;
        let start_time = parts.next()?.parse().ok()?;
        parts.next().map(|_| ProcessId { pid, start_time })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the environment of a process says of where it comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) start: Option<String>,
    pub(crate) lease: Option<String>,
}

impl Marks {
    /// Finds them in an environment as `/proc/<pid>/environ` shows it.
    pub(crate) fn of(environment: &[u8]) -> Self {
        let value = |name: &str| {
            let value = environment
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        Self { start: value(StartMark::NAME), lease: value(Marker::NAME) }
    }
}
