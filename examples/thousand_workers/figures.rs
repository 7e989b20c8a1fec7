//! What this process uses, and how it is told.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Prints a figure.
pub(crate) fn say(name: &str, value: impl Display) {
    // Nobody may be there to read it.
    drop(writeln!(io::stdout(), "{name}: {value}"));
}

/// What this process uses of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    pub(crate) rss_bytes: u64,
}

impl Own {
    pub(crate) fn now() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let kib = field(&status, "VmRSS:").unwrap_or(0);
        Ok(Self { rss_bytes: kib * 1024 })
    }
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// How many threads this process has.
pub(crate) fn threads() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    Ok(field(&status, "Threads:").unwrap_or(0))
}

/// How many files it has open.
pub(crate) fn open_files() -> io::Result<u64> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64)
}

/// How many children it has that live or wait to be reaped.
pub(crate) fn children() -> io::Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let children = std::fs::read_to_string(task?.path().join("children"));
        count += children.unwrap_or_default().split_ascii_whitespace().count();
    }
    Ok(count)
}

/// Processor time that was used in a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    used: Duration,
    span: Duration,
}

impl Load {
    /// What is used from now on, for this long.
    pub(crate) async fn of(window: Duration) -> Self {
        let begun = Begun::now();
        tokio::time::sleep(window).await;
        begun.load()
    }
}

/// The begin of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun(Duration, Instant);

impl Begun {
    pub(crate) fn now() -> Self {
        Self(used(), Instant::now())
    }

    pub(crate) fn load(self) -> Load {
        Load { used: used().saturating_sub(self.0), span: self.1.elapsed() }
    }
}

/// Processor time that this process has used.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (secs, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0))
}

/// How many of one there are of the other.
#[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
pub(crate) fn quotient(whole: u64, part: u64) -> String {
    format!("{:.2}", whole as f64 / part.max(1) as f64)
}

pub(crate) fn percent(load: Load) -> String {
    format!("{:.2}", 100.0 * load.used.as_secs_f64() / load.span.as_secs_f64())
}

/// The value, in milliseconds, that so many in a hundred are not above.
pub(crate) fn quantile(spans: &[Duration], of_hundred: usize) -> String {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    let at = (spans.len() * of_hundred / 100).min(spans.len().saturating_sub(1));
    spans.get(at).map_or_else(|| "none".to_owned(), |one| format!("{:.2}", one.as_secs_f64() * 1e3))
}
