//! The limit of a pool from what is known of an account.

use std::time::Duration;

use orchestrator_core::{Capacity, CapacitySource, Sign, Timestamp, UsageWindow, WallTime};
use tracing::warn;

use crate::account::{Account, AccountState};
use crate::chain::chain;
use crate::wall::wall_now;

/// How long what is known is taken to be so while nothing happens in this run: another run may have
/// heard more.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Says how many permits a pool has by what is left of an account's fullest usage window, as all runs
/// of the host know it: all of them while nothing is used, one as long as something is left besides
/// what is kept for the person ([`Account::leaving`]), none while the account is closed.
///
/// What happens in the run needs no telling: its agents write it into the account's file. A file that
/// cannot be read holds nobody up.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountCapacity {
    account: Account,
    full: u32,
}

impl AccountCapacity {
    /// For a pool that has so many permits while nothing is used.
    #[must_use]
    pub const fn new(account: Account, full: u32) -> Self {
        Self { account, full }
    }

    fn at(&self, now: Timestamp, wall: WallTime) -> Capacity {
        let state = self.account.state().unwrap_or_else(|err| {
            warn!(error = %chain(&err), "the account is taken to be open");
            AccountState::default()
        });
        let ahead = |at: WallTime| now.after(Duration::from_millis(at.0.saturating_sub(wall.0)));
        if let Some(until) = self.account.closed_until(wall) {
            return Capacity { limit: 0, until: Some(ahead(until)) };
        }
        let windows = state.windows().filter(|(_, window)| {
            // One that has begun anew meanwhile is not used.
            window.resets_at.is_none_or(|at| at.0 > wall.0)
        });
        let fullest = windows.map(|(_, window)| per_mille(window.used)).max().unwrap_or(0);
        let mut window = UsageWindow::new(self.full, per_mille(self.account.left()));
        window.note(now, Sign::Used { per_mille: fullest, reopens: None });
        Capacity { until: Some(now.after(LOOK_AGAIN)), ..window.capacity(now) }
    }
}

/// A share in thousandths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in 0 to 1000")]
fn per_mille(share: f64) -> u16 {
    if share.is_finite() { (share.clamp(0.0, 1.0) * 1_000.0).round() as u16 } else { 0 }
}

impl CapacitySource for AccountCapacity {
    fn note(&mut self, _now: Timestamp, _sign: Sign) {}

    fn capacity(&self, now: Timestamp) -> Capacity {
        self.at(now, wall_now())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::{RateLimit, Window};

    #[test]
    fn the_fullest_window_of_the_account_is_the_limit_of_the_pool_and_a_closed_one_waits() {
        let dir = tempfile::tempdir().unwrap();
        let account = Account::at(dir.path().join("account.json")).leaving(0.2);
        let source = AccountCapacity::new(account.clone(), 8);
        let (now, wall) = (Timestamp(50_000), 1_800_000_000_000);
        let limit = |after: u64| source.at(now, WallTime(wall + after));
        let soon = Some(now.after(LOOK_AGAIN));
        assert_eq!(limit(0), Capacity { limit: 8, until: soon }, "nothing is known");
        let heard = |is_rejected: bool, used: [f64; 2]| {
            let windows = ["five_hour", "seven_day"].into_iter().zip(used);
            let windows: BTreeMap<String, Window> = windows
                .map(|(name, used)| {
                    (name.to_owned(), Window { used, resets_at: Some(WallTime(wall + 9_000)) })
                })
                .collect();
            let resets_at = is_rejected.then_some(WallTime(wall + 7_000));
            let limit = RateLimit { is_rejected, resets_at, windows, window: None };
            account.note(&limit, WallTime(wall)).unwrap();
        };
        heard(false, [0.1, 0.4]);
        assert_eq!(limit(1_000), Capacity { limit: 4, until: soon });
        heard(false, [0.79, 0.4]);
        assert_eq!(limit(1_000).limit, 1, "one as long as something is left");
        heard(false, [0.9, 0.4]);
        let reopens = Some(now.after(Duration::from_secs(8)));
        assert_eq!(limit(1_000), Capacity { limit: 0, until: reopens }, "the person's share");
        assert_eq!(limit(9_000).limit, 8, "it has begun anew");
        heard(true, [0.5, 0.4]);
        assert_eq!(limit(1_000).until, Some(now.after(Duration::from_secs(6))));
        std::fs::write(account.path(), "{\"windows\": 7").unwrap();
        assert_eq!(limit(0).limit, 8, "what cannot be read holds nobody up");
    }
}
