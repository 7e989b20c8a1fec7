//! Drives a copy of the engine to its end in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Assumptions;
use crate::command::{Answer, Command, StageReport};
use crate::engine::Engine;
use crate::id::{BlobHash, CommandId, FencingToken, OwnerId, TaskNo};
use crate::lease::Owner;
use crate::money::{Cost, Usd};
use crate::outcome::{Outcome, Restart};
use crate::pipeline::{Pipeline, StageKind, StageSpec};
use crate::record::{Phase, RunState, TaskRecord};
use crate::time::{ClockReading, Timestamp, WallTime, millis};

/// A stage under way in a run that is drawn.
struct Live {
    task: TaskNo,
    stage: u8,
    attempt: u32,
    cap: Usd,
    /// What was handed out, where its holder said so: a result has to name it.
    content: Option<BlobHash>,
}

/// One run that is drawn.
pub(super) struct Drawn<'a> {
    pub(super) engine: Engine,
    assumed: &'a Assumptions,
    pub(super) now: Timestamp,
    owner: OwnerId,
    live: BTreeMap<(Timestamp, FencingToken), Live>,
    state: u64,
}

impl<'a> Drawn<'a> {
    pub(super) fn new(
        of: &Engine,
        now: Timestamp,
        assumed: &'a Assumptions,
        sample: u32,
    ) -> Option<Self> {
        let state = assumed.seed ^ u64::from(sample).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let (engine, owner) = (of.clone(), owner());
        let driver = engine.run()?.driver.clone();
        let mut drawn =
            Self { engine, assumed, now, owner: owner.id.clone(), live: BTreeMap::new(), state };
        match driver {
            Some(driver) => drawn.owner = driver,
            None => {
                let opening = opening(&drawn.engine, owner);
                drawn.tell(&opening);
            }
        }
        drawn.tell(&Command::SetPilot { tasks: None });
        drawn.tell(&Command::Resume { actor: "forecast".to_owned() });
        let held: Vec<TaskRecord> = drawn.engine.held().collect();
        for record in held {
            drawn.take_up(&record);
        }
        Some(drawn)
    }

    /// What runs now goes on, and what is being stopped is gone.
    fn take_up(&mut self, record: &TaskRecord) {
        let Some(task) = self.engine.number(&record.id) else { return };
        match &record.phase {
            Phase::Leased(lease) => {
                let (stage, attempt, cap) = (record.stage, record.attempt, lease.reserved);
                let ends = lease.granted_at.after(self.duration(task, stage)).max(self.now);
                let content = record.content.clone();
                self.live.insert((ends, lease.token), Live { task, stage, attempt, cap, content });
            }
            Phase::Stopping { lease, .. } => {
                self.tell(&Command::Stopped { task, token: lease.token });
            }
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => {}
        }
    }

    fn tell(&mut self, command: &Command) -> Option<Answer> {
        let id = CommandId::parse("forecast").expect("a valid name");
        let answer = self.engine.submit(self.now, &id, command).ok();
        self.engine.accept();
        answer
    }

    /// Drives the run until nothing more can happen, or so many stages ended and waits were over.
    pub(super) fn run_out(&mut self, at_most: usize) {
        let claim = Command::Claim { owner: self.owner.clone() };
        for _ in 0..at_most {
            while let Some(Answer::Granted { task, stage, attempt, token }) = self.tell(&claim) {
                let cap = self.engine.grant(task).map(|grant| grant.cap).unwrap_or_default();
                let ends = self.now.after(self.duration(task, stage));
                let content = None;
                self.live.insert((ends, token), Live { task, stage, attempt, cap, content });
            }
            let is_active = self.engine.run().is_some_and(|run| run.state == RunState::Active);
            let wake = self.engine.next_wake().filter(|_| is_active || !self.live.is_empty());
            let ends = self.live.first_key_value().map(|((at, _), _)| *at);
            match (ends, wake) {
                (Some(ends), wake) if wake.is_none_or(|wake| ends <= wake) => self.end_first(),
                (_, Some(wake)) => {
                    self.now = self.now.max(wake);
                    self.tell(&Command::Tick);
                }
                (_, None) => break,
            }
        }
    }

    /// The stage that is over first is over.
    fn end_first(&mut self) {
        let Some(((ends, token), live)) = self.live.pop_first() else { return };
        self.now = self.now.max(ends);
        let kind = self.stage(live.task, live.stage).map(|stage| stage.kind);
        let is_judged = matches!(kind, Some(StageKind::Verify | StageKind::Review));
        let mut outcome = Outcome::Passed;
        if is_judged && self.roll() % 1_000 < u64::from(self.assumed.rejected_per_mille) {
            // Never the same words twice, or else the task would be taken for stuck.
            let letters =
                (0..12).map(|_| char::from(b'a' + u8::try_from(self.roll() % 26).unwrap_or(0)));
            let feedback = letters.collect();
            outcome = Outcome::Rejected { feedback, restart: Restart::OnCandidate };
        }
        let share = u64::from(self.assumed.spent_per_mille);
        let cost = self.about(live.cap.0.saturating_mul(share) / 1_000).min(live.cap.0);
        let report = StageReport {
            run: self.engine.id().clone(),
            task: live.task,
            stage: live.stage,
            attempt: live.attempt,
            token,
            content: live.content,
            outcome,
            cost: Cost::Known(Usd(cost)),
            session: None,
            candidate: None,
            merged: None,
            kept: None,
            retry_at: None,
        };
        self.tell(&Command::Report(Box::new(report)));
    }

    fn stage(&self, task: TaskNo, stage: u8) -> Option<&StageSpec> {
        let name = self.engine.name(task)?;
        self.engine.pipeline(name).and_then(|pipeline: &Pipeline| pipeline.stage(stage))
    }

    fn duration(&mut self, task: TaskNo, stage: u8) -> Duration {
        let Some(spec) = self.stage(task, stage) else { return Duration::ZERO };
        let (kind, timeout) = (spec.kind, spec.timeout);
        let estimate = self.engine.name(task).and_then(|name| self.engine.spec(name)?.estimate);
        let about = match kind {
            StageKind::Run => estimate.map_or(self.assumed.run, |estimate| {
                let estimate = millis(estimate) / 1_000;
                let scaled = estimate.saturating_mul(u64::from(self.assumed.estimate_per_mille));
                Duration::from_millis(scaled)
            }),
            StageKind::Verify | StageKind::Gate => self.assumed.verify,
            StageKind::Review => self.assumed.review,
            StageKind::Integrate => self.assumed.integrate,
        };
        Duration::from_millis(self.about(millis(about))).min(timeout)
    }

    /// Between half and one and a half of an amount.
    fn about(&mut self, amount: u64) -> u64 {
        (amount / 2).saturating_add(self.roll() % amount.saturating_add(1))
    }

    /// The next number that looks like chance; after the seed, always the same one.
    const fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The process that drives runs which are drawn.
pub(super) fn owner() -> Owner {
    let id = OwnerId::parse("forecast").expect("a valid name");
    Owner { id, host: String::new(), boot_id: String::new(), pid: 0, start_time: 0 }
}

pub(super) fn opening(engine: &Engine, owner: Owner) -> Command {
    let anchor = engine.run().and_then(|run| run.anchor.as_ref());
    let none = ClockReading { boot_id: String::new(), boot_ms: 0, wall: WallTime(0) };
    Command::OpenDriver {
        owner,
        reading: anchor.map_or(none, |anchor| anchor.reading.clone()),
        ttl: Duration::from_secs(3600),
        token_floor: FencingToken(0),
        ended: None,
    }
}
