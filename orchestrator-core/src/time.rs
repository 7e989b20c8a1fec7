//! Engine time: milliseconds of the run, and how it follows from the clocks of a host.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mutant::{Mutant, is_on};

/// A moment of a run in milliseconds since the run was created; it never goes back.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment this much later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// How long it is from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A span in whole milliseconds; what does not fit is the greatest number.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A moment by the wall clock: milliseconds since 1970.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(pub u64);

/// What the clocks of a host show at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Changes with each start of the host.
    pub boot_id: String,
    /// Milliseconds since that start, time asleep included.
    pub boot_ms: u64,
    /// The wall clock, which anyone may set.
    pub wall: WallTime,
}

/// Ties engine time to the clocks of a host; kept in the store, so that all processes agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// What the clocks showed.
    pub reading: ClockReading,
    /// The engine time of that moment.
    pub at: Timestamp,
}

/// The longest that a run is taken to have slept across a start of the host.
pub const SLEPT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Anchor {
    /// The engine time at which the clocks show `reading`.
    ///
    /// Within one boot the boot clock decides. Across boots the wall clocks' difference does, but a
    /// wall clock that went back adds nothing, and one that leapt adds [`SLEPT_MAX`] at most.
    #[must_use]
    pub fn now(&self, reading: &ClockReading) -> Timestamp {
        let by_boot = !is_on(Mutant::WallClockWithinBoot);
        let slept_max = if is_on(Mutant::SleepWithoutBound) { u64::MAX } else { millis(SLEPT_MAX) };
        let passed = if by_boot && reading.boot_id == self.reading.boot_id {
            reading.boot_ms.saturating_sub(self.reading.boot_ms)
        } else {
            reading.wall.0.saturating_sub(self.reading.wall.0).min(slept_max)
        };
        Timestamp(self.at.0.saturating_add(passed))
    }

    /// The engine time of a moment given by the wall clock, seen from `reading`; never in the past.
    #[must_use]
    pub fn at_wall(&self, reading: &ClockReading, wall: WallTime) -> Timestamp {
        let ahead = wall.0.saturating_sub(reading.wall.0);
        Timestamp(self.now(reading).0.saturating_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot: &str, boot_ms: u64, wall: u64) -> ClockReading {
        ClockReading { boot_id: boot.to_owned(), boot_ms, wall: WallTime(wall) }
    }

    #[test]
    fn a_jump_of_the_wall_clock_within_a_boot_changes_nothing() {
        let anchor = Anchor { reading: reading("b", 1_000, 50_000), at: Timestamp(7) };
        assert_eq!(anchor.now(&reading("b", 1_500, 9)), Timestamp(507));
        assert_eq!(anchor.now(&reading("b", 1_500, 9_000_000_000)), Timestamp(507));
        assert_eq!(anchor.now(&reading("b", 900, 50_000)), Timestamp(7));
    }

    #[test]
    fn across_boots_time_advances_by_the_wall_clock_within_bounds() {
        let anchor = Anchor { reading: reading("b", 1_000, 50_000), at: Timestamp(7) };
        assert_eq!(anchor.now(&reading("c", 3, 51_000)), Timestamp(1_007));
        assert_eq!(anchor.now(&reading("c", 3, 1)), Timestamp(7));
        assert_eq!(anchor.now(&reading("c", 3, u64::MAX)), Timestamp(7 + millis(SLEPT_MAX)));
    }
}
