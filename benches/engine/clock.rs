//! Time on the processor: what other programs take of it meanwhile is no cost of the engine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of this thread's time on a processor.
pub(crate) struct Stopwatch(Duration);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(on_processor())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        on_processor().saturating_sub(self.0)
    }
}

fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a time since the thread began")
}
