//! What runs next.

use std::cmp::Reverse;
use std::time::Duration;

use super::Engine;
use super::draft::{Draft, Granted, What};
use super::index::Class;
use super::kind::Kind;
use crate::command::{Answer, Command, Grant, Refusal};
use crate::id::{CommandId, OwnerId, TaskId, TaskNo};
use crate::mutant::{Mutant, is_on};
use crate::outcome::Restart;
use crate::pipeline::StageSpec;
use crate::record::{RunRecord, RunState};
use crate::time::Timestamp;

/// How long after its timeout a stage is ended whatever its holder does.
const HARD_STOP_GRACE: Duration = Duration::from_secs(60);

/// The order of what is ready in different classes: later stages, then the key, then the number.
type Turn = (Reverse<u8>, u64, u32);

impl Engine {
    pub(super) fn decide_claim(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        owner: &OwnerId,
        only: Option<TaskNo>,
    ) -> Result<Answer, Refusal> {
        let is_driver = run.driver.as_ref() == Some(owner) || is_on(Mutant::AnyoneClaims);
        let Some(owner) = self.owners.find(owner).filter(|_| is_driver) else {
            return Err(Refusal::NotDriver(owner.clone()));
        };
        let next = match only {
            Some(task) => self.grant_of(draft.now, run, task.0),
            None => self.next_grant(draft.now, run),
        };
        let Some((number, stage)) = next else { return Ok(Answer::Nothing) };
        let task = self.table.view(number);
        let last = run.last_token;
        let mut token = last.next().ok_or(Refusal::TokensUsedUp { last })?;
        if is_on(Mutant::TokenUsedAgain) && task.hot().is_under_way() {
            token = task.last_token();
        }
        let early = is_on(Mutant::HardStopBeforeTimeout);
        let timeout = if early { Duration::ZERO } else { stage.timeout };
        let (stage_no, attempt) = (task.hot().stage(), task.attempt_of_grant());
        let number = TaskNo(number);
        draft.happens(What::Granted(Granted {
            task: number,
            stage: stage_no,
            attempt,
            token,
            owner,
            hard_stop: draft.now.after(timeout).after(HARD_STOP_GRACE),
            // There is one, or the stage would not have been admitted.
            reserved: self
                .class(number.0)
                .and_then(|class| self.reservation(run, class, number.0))
                .unwrap_or_default(),
        }));
        Ok(Answer::Granted { task: number, stage: stage_no, attempt, token })
    }

    /// The stage that a claim would be given: the first in order that fits.
    ///
    /// What does not fit is passed over, so that nothing waits behind it. Tasks whose wait is over
    /// count, whether or not a tick has said so.
    pub(super) fn next_grant(&self, now: Timestamp, run: &RunRecord) -> Option<(u32, &StageSpec)> {
        let goes_on =
            is_on(Mutant::PausedRunGrants) && matches!(run.state, RunState::Paused { .. });
        if run.state != RunState::Active && !goes_on {
            return None;
        }
        let kept_for = self.kept_for(now, run);
        if let Some(task) = kept_for.filter(|task| self.could_run(now, run, *task)) {
            let profile = self.specs.profile(task);
            return Some((task, profile.pipeline.stage(self.table.hot(task).stage())?));
        }
        let mut first: Option<Turn> = None;
        for (number, class) in (0_u32..).zip(&self.index.classes) {
            if is_on(Mutant::FirstThatDoesNotFitStopsAll)
                && !class.ready.is_empty()
                && !self.has_capacity(now, run, class)
            {
                return None;
            }
            let is_idle = class.ready.is_empty() && kept_for.is_none();
            if !is_idle && self.has_capacity(now, run, class) {
                let task = self.first_of(number, class, kept_for);
                first = earlier(first, task.map(|(key, task)| (Reverse(class.stage), key, task)));
            }
        }
        for number in self.due(now) {
            first = earlier(first, self.due_turn(now, run, number, kept_for));
        }
        let (_, _, number) = first?;
        let stage = self.specs.profile(number).pipeline.stage(self.table.hot(number).stage())?;
        Some((number, stage))
    }

    /// The stage of this task, if it can run now.
    fn grant_of(&self, now: Timestamp, run: &RunRecord, task: u32) -> Option<(u32, &StageSpec)> {
        let hot = self.table.hot(task);
        let waits = self.table.view(task).detail().deferred.is_some_and(|(until, _)| until > now);
        let is_open = matches!(hot.kind(), Kind::Open | Kind::Deferred) && !waits;
        if run.state != RunState::Active || !is_open {
            return None;
        }
        let kept_for = self.kept_for(now, run);
        self.due_turn(now, run, task, kept_for.filter(|other| *other != task))?;
        Some((task, self.specs.profile(task).pipeline.stage(hot.stage())?))
    }

    /// What claims would take now, one after the other, until nothing more can run or there are so
    /// many. Looks at every task.
    #[must_use]
    pub fn dispatchable(&self, now: Timestamp, at_most: usize) -> Vec<TaskId> {
        let mut ahead = self.clone();
        ahead.undo();
        let Some(owner) = ahead.run.as_ref().and_then(|run| run.driver.clone()) else {
            return Vec::new();
        };
        let Ok(id) = CommandId::parse("dispatchable") else { return Vec::new() };
        let claim = Command::Claim { owner };
        let mut tasks = Vec::new();
        while tasks.len() < at_most
            && let Ok(Answer::Granted { task, .. }) = ahead.submit(now, &id, &claim)
        {
            tasks.extend(ahead.name(task).cloned());
        }
        tasks
    }

    /// The first task of a class that nothing keeps from its scope.
    fn first_of(&self, number: u32, class: &Class, kept_for: Option<u32>) -> Option<(u64, u32)> {
        let Some(other) = kept_for else {
            let first = class.ready.first()?;
            if self.has_scope(first.1) {
                return Some(first);
            }
            return class.ready.in_order().find(|(_, task)| self.has_scope(*task));
        };
        if self.has_scope(other) && self.takes_permits(class, other) {
            // None fits, but perhaps that one, which comes first of all then.
            return None;
        }
        // One that stands for others may be kept waiting where those behind it are not.
        let fits = |task: u32| self.has_scope(task) && !self.is_kept_from(task, class, other);
        let parked = self.index.locks.parked(number);
        let queues = parked.chain([&class.ready]);
        queues.filter_map(|queue| queue.in_order().find(|(_, task)| fits(*task))).min()
    }

    /// Whether the task is ready and has all that it needs.
    fn could_run(&self, now: Timestamp, run: &RunRecord, number: u32) -> bool {
        let fits = |class| self.has_capacity(now, run, class) && self.has_scope(number);
        self.table.hot(number).is_ready() && self.class(number).is_some_and(fits)
    }

    /// Moves aside what something keeps from its scope, so that no claim looks at it again before
    /// that is gone. This changes nothing that is decided.
    pub(super) fn park(&mut self, now: Timestamp) {
        let Some(run) = &self.run else { return };
        if self.index.locks.is_empty() || run.state != RunState::Active {
            return;
        }
        for number in 0..self.index.classes.len() {
            let class = &self.index.classes[number];
            if class.ready.is_empty() || !self.has_capacity(now, run, class) {
                continue;
            }
            while let Some((_, task)) = self.index.classes[number].ready.first()
                && !self.table.hot(task).holds_scope()
                && let Some(list) = self.index.locks.obstacle(task)
            {
                let class = u32::try_from(number).unwrap_or(u32::MAX);
                self.index.park_first(&mut self.table, class, list);
            }
        }
    }

    /// Deferred tasks whose wait is over.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = u32> {
        self.index.timers.range(..=(now, u32::MAX)).map(|(_, number)| *number)
    }

    fn due_turn(
        &self,
        now: Timestamp,
        run: &RunRecord,
        number: u32,
        kept_for: Option<u32>,
    ) -> Option<Turn> {
        let hot = self.table.hot(number);
        let class = self.class(number)?;
        let is_affordable = || self.reservation(run, class, number).is_some();
        let fits = hot.unmet == 0
            && is_affordable()
            && self.has_capacity(now, run, class)
            && self.has_scope(number)
            && kept_for.is_none_or(|other| !self.is_kept_from(number, class, other));
        fits.then(|| (Reverse(class.stage), self.index.key(&self.table, number), number))
    }

    pub(super) fn class(&self, number: u32) -> Option<&Class> {
        let class = self.specs.class(number, self.table.hot(number))?;
        self.index.classes.get(class as usize)
    }

    /// Whether every pool has the permits, and is open, the budgets cover the stage, and it is not
    /// held back.
    fn has_capacity(&self, now: Timestamp, run: &RunRecord, class: &Class) -> bool {
        let has_permits = class.needs.iter().all(|(number, permits)| {
            self.pools.get(*number).is_some_and(|pool| {
                let used = self.index.in_use(*number);
                let open = pool.closed_until.is_none_or(|until| until <= now)
                    || is_on(Mutant::ClosedPoolGrants);
                open && used.checked_add(*permits).is_some_and(|sum| sum <= pool.limit)
            })
        });
        has_permits && !self.is_held_back(run, class) && self.allowance(run, class).is_some()
    }

    /// Whether the task has its scope, or could have it.
    pub(super) fn has_scope(&self, number: u32) -> bool {
        let own = self.table.hot(number).holds_scope() && !is_on(Mutant::BlockedByItself);
        own || self.index.locks.obstacle(number).is_none()
    }

    /// The tasks that hold a scope which overlaps this one's.
    pub(super) fn scope_holders(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let holders = self.index.locks.holders();
        holders.filter(move |other| *other != number && self.index.locks.overlap(number, *other))
    }

    /// What the holder of a live lease needs to know; `None` when the task has none.
    #[must_use]
    pub fn grant(&self, task: TaskNo) -> Option<Grant> {
        if task.0 as usize >= self.table.len() || self.table.hot(task.0).kind() != Kind::Leased {
            return None;
        }
        let view = self.table.view(task.0);
        let (hold, detail, hot) = (*view.hold()?, view.detail(), view.hot());
        let restart = if detail.candidate.is_some() { hot.restart() } else { Restart::OnTarget };
        Some(Grant {
            number: task,
            task: self.specs.id(task.0).clone(),
            stage: hot.stage(),
            attempt: hot.attempt(),
            dispatch: hot.dispatches(),
            token: hold.token,
            cap: hold.reserved,
            feedback: detail.feedback.clone(),
            restart,
            workspace: view.workspace(),
            session: detail.session.clone(),
            candidate: detail.candidate.clone(),
            intent: detail.intent.clone().filter(|_| !is_on(Mutant::IntentForgotten)),
        })
    }
}

fn earlier(one: Option<Turn>, other: Option<Turn>) -> Option<Turn> {
    match (one, other) {
        (Some(one), Some(other)) if is_on(Mutant::NewestFirst) => Some(one.max(other)),
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
