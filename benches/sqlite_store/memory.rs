//! How much memory the process has had at once, as the kernel counts it.

use std::fs;

/// Begins to count anew; whether this system does so.
pub(crate) fn forget_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The most in use at once since then, in MiB.
pub(crate) fn peak_mib() -> Option<f64> {
    field("VmHWM:")
}

/// What is in use now, in MiB.
pub(crate) fn now_mib() -> Option<f64> {
    field("VmRSS:")
}

fn field(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}
