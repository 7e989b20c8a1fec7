//! Drivers that die, end as they should, or want what another one has; clocks that leap.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use super::checks::Check;
use crate::command::{Command, Refusal};
use crate::engine::Engine;
use crate::id::{FencingToken, OwnerId};
use crate::lease::{HELD, Owner};
use crate::time::{ClockReading, SLEPT_MAX, Timestamp, WallTime, millis};

/// The clocks of the machine that the driver is on.
#[derive(Debug, Clone, Default)]
pub(super) struct Clocks {
    /// How often the machine started.
    boot: u32,
    /// Engine time, and what the boot clock showed, when the present driver began.
    since: (u64, u64),
    /// How far the wall clock is ahead of engine time.
    wall_ahead: u64,
}

impl World {
    pub(super) fn owner(&self) -> Owner {
        let name = if self.is_held { "supervisor".to_owned() } else { format!("sim/{}", self.pid) };
        let id = OwnerId::parse(&name).expect("a valid id");
        let (host, boot_id) = ("sim".to_owned(), format!("boot{}", self.clocks.boot));
        Owner { id, host, boot_id, pid: self.pid, start_time: 0 }
    }

    fn reading(&self) -> ClockReading {
        let Clocks { boot, since: (began, boot_ms), wall_ahead } = self.clocks;
        ClockReading {
            boot_id: format!("boot{boot}"),
            boot_ms: boot_ms + self.now.saturating_sub(began),
            wall: WallTime(self.now.saturating_add(wall_ahead)),
        }
    }

    pub(super) fn opening(&self, ended: Option<OwnerId>) -> Command {
        Command::OpenDriver {
            owner: self.owner(),
            reading: self.reading(),
            ttl: if self.is_held { HELD } else { Duration::from_secs(3_600) },
            token_floor: self.token_floor,
            ended,
        }
    }

    /// A second process wants to drive while the first one lives; then that one ends as it should.
    pub(super) fn another_driver(&mut self) -> Check {
        let former = self.pid;
        self.pid += 1;
        let mut opening = self.opening(None);
        if let Command::OpenDriver { owner, .. } = &mut opening {
            owner.id = OwnerId::parse(&format!("sim/{}", self.pid)).map_err(|e| e.to_string())?;
        }
        let answer = self.commit(&opening);
        if !matches!(answer, Err(Refusal::DriverRunning(_))) {
            return Err(format!("P1: a second driver was answered {answer:?}"));
        }
        self.pid = former;
        let owner = self.owner().id;
        self.must(&Command::CloseDriver { owner: owner.clone() })?;
        match self.commit(&Command::Claim { owner }) {
            Err(Refusal::NotDriver(_)) => {}
            other => return Err(format!("P1: who drives no longer was answered {other:?}")),
        }
        self.pid += 1;
        let opening = self.opening(None);
        self.must(&opening)
    }

    /// The driver dies with what it had decided and not committed, and another one takes over.
    pub(super) fn driver_dies(&mut self) -> Check {
        self.note(|| "the driver dies".to_owned());
        let restored = self.restored()?;
        self.batch_of_anything();
        self.take_over(restored)
    }

    /// What the next driver knows.
    pub(super) fn restored(&self) -> Result<Engine, String> {
        let snapshot = match &self.disk {
            Some(disk) => disk.load(&self.engine)?,
            None => self.engine.snapshot().ok_or("no snapshot")?,
        };
        let restored = Engine::restore(&snapshot).map_err(|err| format!("P5: {err}"))?;
        let restored = restored.with_policy(Arc::clone(&self.policy));
        if super::checks::same(&restored, &self.engine, self.time()) {
            Ok(restored)
        } else {
            Err("P5: a restored engine is another one".to_owned())
        }
    }

    pub(super) fn take_over(&mut self, restored: Engine) -> Check {
        self.engine = restored;
        let former = self.owner().id;
        self.pid += 1;
        let opening = self.opening(Some(former));
        self.must(&opening)
    }

    /// The machine starts anew, and its wall clock shows anything.
    pub(super) fn reboot(&mut self, wall_ahead: u64) -> Check {
        self.note(|| format!("the machine starts anew, its wall clock {wall_ahead} ms ahead"));
        let restored = self.restored()?;
        let before = self.leap(wall_ahead);
        self.clocks.boot += 1;
        self.clocks.since = (self.now, 0);
        // Other witnesses may have seen tokens that a restored store has not.
        self.token_floor = FencingToken(self.greatest_token.0 + u64::from(self.pid % 3));
        self.take_over(restored)?;
        let at = self.last_at();
        if at < before || at > before.after(SLEPT_MAX) {
            return Err(format!("P14: a start of the machine took the run from {before} to {at}"));
        }
        self.now = at.0;
        self.clocks.since = (at.0, 0);
        Ok(())
    }

    /// The wall clock is set while the machine runs: that is nothing to the run.
    pub(super) fn wall_clock_leaps(&mut self, wall_ahead: u64) -> Check {
        self.note(|| format!("the wall clock is {wall_ahead} ms ahead"));
        let restored = self.restored()?;
        let before = self.leap(wall_ahead);
        self.take_over(restored)?;
        let at = self.last_at();
        if at == before {
            return Ok(());
        }
        Err(format!("P14: a leap of the wall clock took the run from {before} to {at}"))
    }

    fn leap(&mut self, wall_ahead: u64) -> Timestamp {
        self.now = self.now.max(self.last_at().0);
        self.clocks.wall_ahead = wall_ahead;
        self.time()
    }

    pub(super) fn last_at(&self) -> Timestamp {
        self.engine.run().map(|run| run.last_at).unwrap_or_default()
    }

    /// Where the wall clock may stand: right, an hour off, years ahead.
    pub(super) fn any_leap(&mut self) -> u64 {
        let hour = 3_600_000;
        [0, hour, millis(SLEPT_MAX) / 2, 100 * millis(SLEPT_MAX), u64::MAX][self.one_of(5)]
    }

    pub(super) fn clock_jumps_back(&mut self) -> Check {
        let now = self.now;
        self.now /= 2;
        self.note(|| "the clock jumps back".to_owned());
        let lived = self.must(&Command::Tick).and_then(|()| self.claim());
        self.now = now;
        lived
    }
}
