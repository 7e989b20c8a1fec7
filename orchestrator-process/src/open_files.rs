//! How many files this process may have open, which bounds how many programs it can watch.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that one running program costs: what it is held by, and its two outputs.
const FILES_PER_PROGRAM: u64 = 3;
/// Descriptors for everything else: stores, programs that are just being started, the rest of this
/// process.
const FILES_BESIDE: u64 = 128;

/// This process may not have enough files open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{programs} programs at once need {needed} open files, and this process may have {allowed}: raise it with `ulimit -Hn {needed}` as root (or `LimitNOFILE=` of the service){}",
    if *.fitting > 0 { format!(", or run at most {} at once", .fitting) } else { String::new() }
)]
pub struct TooFewFiles {
    /// How many programs are to run at once.
    pub programs: u32,
    /// How many open files they need.
    pub needed: u64,
    /// How many there may be at most.
    pub allowed: u64,
    /// How many programs that is enough for.
    pub fitting: u64,
}

/// The limits as they were before this process raised its own.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// What programs are started with, where it differs from what this process has.
pub(crate) fn before() -> Option<Rlimit> {
    BEFORE.get().copied()
}

/// Raises the limit as far as it goes; says how far that is.
pub(crate) fn raise() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let (Some(soft), hard) = (now.current, now.maximum) else { return u64::MAX };
    if hard.is_some_and(|hard| hard <= soft) {
        return soft;
    }
    // No limit at all is more than the kernel takes.
    let wanted = hard.unwrap_or(1 << 20);
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: hard }).is_err() {
        return soft;
    }
    BEFORE.get_or_init(|| now);
    wanted
}

/// Raises the limit of open files of this process as far as it goes, and checks that it is enough
/// for this many programs at once; says what it is. Programs get the limit that was there before.
///
/// # Errors
/// [`TooFewFiles`] when it is not enough.
pub fn raise_open_files(programs: u32) -> Result<u64, TooFewFiles> {
    enough(raise(), programs)
}

fn enough(allowed: u64, programs: u32) -> Result<u64, TooFewFiles> {
    let needed = u64::from(programs) * FILES_PER_PROGRAM + FILES_BESIDE;
    if needed <= allowed {
        return Ok(allowed);
    }
    let fitting = allowed.saturating_sub(FILES_BESIDE) / FILES_PER_PROGRAM;
    Err(TooFewFiles { programs, needed, allowed, fitting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_open_files_are_told_with_what_they_are_enough_for() {
        assert_eq!(enough(3_128, 1_000), Ok(3_128));
        let err = enough(1_024, 1_000).unwrap_err();
        assert_eq!((err.needed, err.fitting), (3_128, 298));
        assert!(err.to_string().contains("ulimit -Hn 3128"), "{err}");
        assert!(err.to_string().ends_with(", or run at most 298 at once"), "{err}");
        let err = enough(0, 1).unwrap_err();
        assert!(err.fitting == 0 && err.to_string().ends_with("of the service)"), "{err}");
    }
}
