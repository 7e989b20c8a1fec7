//! What people ask of a run.

use std::sync::Arc;

use serde::Serialize;

use super::ends::hear_again;
use super::leases::held;
use super::{Given, Model};
use crate::command::{Answer, Command, Refusal};
use crate::event::Resolution;
use crate::id::{BlobHash, TaskId};
use crate::outcome::Interruption;
use crate::pipeline::StageKind;
use crate::plan::Plan;
use crate::record::{Cause, Completion, ParkReason, Phase, PlanRef, RunState, TaskRecord};
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// What the run keeps of an edit.
#[derive(Serialize)]
struct Amendment<'a> {
    amends: &'a TaskSpec,
}

impl Model {
    pub(super) fn person(&mut self, now: Timestamp, command: &Command) -> Given {
        match command {
            Command::Retry { task, dependents, .. } => {
                let others = if *dependents { self.given_up_behind(task) } else { Vec::new() };
                self.retry(now, task)?;
                for task in others {
                    self.retry(now, &task)?;
                }
                Ok(Answer::Done)
            }
            Command::Resolve { task, how, .. } => self.resolve(now, task, *how),
            Command::Cancel { task, .. } => self.cancel(now, task),
            Command::Pause { reason, .. } => {
                let run = self.run_mut();
                match run.state {
                    RunState::Active => run.state = RunState::Paused { reason: reason.clone() },
                    RunState::Paused { .. } => {}
                    RunState::Draining { .. }
                    | RunState::Parked { .. }
                    | RunState::Completed
                    | RunState::Failed => return Err(self.wrong_state()),
                }
                Ok(Answer::Done)
            }
            Command::Drain { reason } => {
                let run = self.run_mut();
                match run.state {
                    RunState::Active | RunState::Paused { .. } => {
                        run.state = RunState::Draining { reason: *reason };
                    }
                    RunState::Draining { .. } | RunState::Parked { .. } => {}
                    RunState::Completed | RunState::Failed => return Err(self.wrong_state()),
                }
                Ok(Answer::Done)
            }
            Command::Resume { .. } => {
                let run = self.run_mut();
                let stands = matches!(
                    run.state,
                    RunState::Paused { .. } | RunState::Draining { .. } | RunState::Parked { .. }
                );
                if stands {
                    let after_pilot = RunState::Parked { reason: ParkReason::Pilot };
                    run.pilot = run.pilot.filter(|_| run.state != after_pilot);
                    run.state = RunState::Active;
                    run.first_stage_failures = 0;
                }
                Ok(Answer::Done)
            }
            Command::CreateRun { .. }
            | Command::AddPlan { .. }
            | Command::LimitPool { .. }
            | Command::BoundPool { .. }
            | Command::ClosePool { .. }
            | Command::OpenPool { .. }
            | Command::SetPilot { .. }
            | Command::SetBudget { .. }
            | Command::OpenDriver { .. }
            | Command::CloseDriver { .. }
            | Command::Claim { .. }
            | Command::ClaimTask { .. }
            | Command::Report(_)
            | Command::IntendMerge { .. }
            | Command::Dispatch { .. }
            | Command::Supersede { .. }
            | Command::Stopped { .. }
            | Command::Edit { .. }
            | Command::Tick
            | Command::Prune
            | Command::Settle => Ok(Answer::Done),
        }
    }

    fn resolve(&mut self, now: Timestamp, task: &TaskId, how: Resolution) -> Given {
        let place = self.idle(task)?;
        if matches!(self.tasks[place].phase, Phase::Done(_)) {
            return Err(self.wrong_phase(place));
        }
        let done = match how {
            Resolution::ByHand => Completion::ByHand,
            Resolution::Skip => Completion::Skipped,
            Resolution::Approve => return self.approve(now, place),
        };
        self.settled_by_hand(now, place, Phase::Done(done));
        Ok(Answer::Done)
    }

    /// A person judges in the place of a verify command, a reviewer or a gate.
    fn approve(&mut self, now: Timestamp, place: usize) -> Given {
        let stages = self.specs[place].1.stages();
        let kind = stages.get(usize::from(self.tasks[place].stage)).map(|stage| stage.kind);
        let judges = [StageKind::Verify, StageKind::Review, StageKind::Gate];
        let is_cancelled = matches!(self.tasks[place].phase, Phase::Cancelled);
        if is_cancelled || !kind.is_some_and(|kind| judges.contains(&kind)) {
            return Err(self.wrong_phase(place));
        }
        let is_last = usize::from(self.tasks[place].stage) + 1 == stages.len();
        let task = &mut self.tasks[place];
        task.stage += 1;
        allow_anew(task);
        if is_last {
            self.settled_by_hand(now, place, Phase::Done(Completion::Verified));
            return Ok(Answer::Done);
        }
        task.under_way = true;
        task.phase = Phase::Open;
        task.since = now;
        self.reopen();
        Ok(Answer::Done)
    }

    /// What was escalated or cancelled begins again, with as many retries and grants as a new task.
    fn retry(&mut self, now: Timestamp, task: &TaskId) -> Given {
        let place = self.place(task).ok_or_else(|| Refusal::UnknownTask(task.clone()))?;
        let record = &mut self.tasks[place];
        if !matches!(record.phase, Phase::Escalated(_) | Phase::Cancelled) {
            return Err(self.wrong_phase(place));
        }
        let is_at_gate = matches!(
            &record.phase,
            Phase::Escalated(escalation) if escalation.cause == Cause::DeferralsUsed
        );
        if record.intent.is_none() && !is_at_gate {
            record.stage = 0;
        }
        allow_anew(record);
        record.phase = Phase::Open;
        record.since = now;
        self.reopen();
        Ok(Answer::Done)
    }

    /// Tasks behind this one that somebody gave up, or that nobody can go on with.
    fn given_up_behind(&self, task: &TaskId) -> Vec<TaskId> {
        let is_behind = |other: &TaskId| self.depends_on(other, task);
        let given_up = self.tasks.iter().filter(|other| {
            matches!(other.phase, Phase::Escalated(_) | Phase::Cancelled) && is_behind(&other.id)
        });
        given_up.map(|other| other.id.clone()).collect()
    }

    fn depends_on(&self, task: &TaskId, on: &TaskId) -> bool {
        let place = self.place(task);
        place.is_some_and(|place| {
            let direct = &self.specs[place].0.depends_on;
            direct.contains(on) || direct.iter().any(|from| self.depends_on(from, on))
        })
    }

    /// The task is another one from its next grant on; it takes nothing else with it.
    pub(super) fn edit(&mut self, spec: &Arc<TaskSpec>) -> Given {
        let place = self.place(&spec.id).ok_or_else(|| Refusal::UnknownTask(spec.id.clone()))?;
        let (record, old) = (&self.tasks[place], &self.specs[place].0);
        if record.intent.is_some() {
            return Err(Refusal::MergeInDoubt(spec.id.clone()));
        }
        let is_rewired = old.depends_on != spec.depends_on;
        let stays = (!is_rewired || record.dispatches == 0)
            && old.pipeline == spec.pipeline
            && (!record.holds_scope || old.scope == spec.scope);
        if matches!(record.phase, Phase::Done(_)) || held(record) || !stays {
            return Err(Refusal::NotEditable { task: spec.id.clone(), why: "" });
        }
        let is_in = |plan: &&Arc<Plan>| plan.tasks.iter().any(|task| task.id == spec.id);
        let plan = self.plans.iter().find(is_in).cloned().unwrap_or_default();
        let alone = Plan { tasks: vec![TaskSpec::clone(spec)], budget: None, ..Plan::clone(&plan) };
        let faults = alone.check(&|id| *id != spec.id && self.place(id).is_some());
        let comes_back = |on: &TaskId| *on == spec.id || self.depends_on(on, &spec.id);
        if !faults.is_empty() || (is_rewired && spec.depends_on.iter().any(comes_back)) {
            return Err(Refusal::Plan(faults));
        }
        if *old != **spec {
            let amendment = Amendment { amends: spec };
            let blob = BlobHash::of(&serde_json::to_vec(&amendment).unwrap_or_default());
            let pipeline = plan.pipeline_of(spec).unwrap_or_default();
            for pool in spec.needs.keys() {
                let _known = self.pool(pool);
            }
            self.specs[place] = Arc::new((TaskSpec::clone(spec), pipeline));
            self.edits.push(Arc::clone(spec));
            self.run_mut().plans.push(PlanRef { blob, tasks: 0 });
            if is_rewired {
                self.reopen();
            }
        }
        Ok(Answer::Done)
    }

    /// A task that runs is stopped first.
    fn cancel(&mut self, now: Timestamp, task: &TaskId) -> Given {
        let place = self.place(task).ok_or_else(|| Refusal::UnknownTask(task.clone()))?;
        if self.tasks[place].intent.is_some() {
            return Err(Refusal::MergeInDoubt(task.clone()));
        }
        match self.tasks[place].phase.clone() {
            Phase::Done(_) | Phase::Cancelled => return Err(self.wrong_phase(place)),
            Phase::Stopping { why: Interruption::Cancelled, .. } => {}
            Phase::Leased(lease) | Phase::Stopping { lease, .. } => {
                let why = Interruption::Cancelled;
                hear_again(&mut self.tasks[place]);
                self.tasks[place].phase = Phase::Stopping { lease, why };
                self.tasks[place].since = now;
            }
            Phase::Open | Phase::Deferred { .. } | Phase::Escalated(_) => {
                self.settled_by_hand(now, place, Phase::Cancelled);
            }
        }
        Ok(Answer::Done)
    }

    fn settled_by_hand(&mut self, now: Timestamp, place: usize, phase: Phase) {
        let record = &mut self.tasks[place];
        record.holds_scope = false;
        record.under_way = false;
        record.phase = phase;
        record.since = now;
        self.reopen();
    }

    /// The task, if it has no lease and no merge of it may have happened.
    fn idle(&self, task: &TaskId) -> Result<usize, Refusal> {
        let place = self.place(task).ok_or_else(|| Refusal::UnknownTask(task.clone()))?;
        if held(&self.tasks[place]) {
            Err(self.wrong_phase(place))
        } else if self.tasks[place].intent.is_some() {
            Err(Refusal::MergeInDoubt(task.clone()))
        } else {
            Ok(place)
        }
    }

    fn wrong_phase(&self, place: usize) -> Refusal {
        let record = &self.tasks[place];
        let (task, phase) = (record.id.clone(), record.phase.as_str());
        Refusal::WrongPhase { task, phase, remedy: "" }
    }

    fn wrong_state(&self) -> Refusal {
        let state = self.run.as_ref().map_or("", |run| run.state.as_str());
        Refusal::WrongState { state, remedy: "" }
    }
}

/// Who goes on by a person's word may use as much as a new task.
fn allow_anew(task: &mut TaskRecord) {
    task.extra.retries = task.rejections;
    task.extra.deferrals = task.deferrals;
    task.extra.dispatches = task.dispatches - task.deferrals;
    task.rounds.clear();
    task.interruptions = 0;
    task.signature = None;
}
