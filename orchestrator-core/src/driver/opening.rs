//! Taking over a run: nobody else drives it, and nothing of an earlier driver is left running.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::warn;

use super::ledger::{Aim, Ledger};
use super::shield::{INTEGRATOR, WORKSPACES, caught};
use super::stage_logs::StageLogs;
use super::{DriverConfig, Ports, RunError};
use crate::command::{Command, Refusal};
use crate::engine::Engine;
use crate::id::{OwnerId, RunId, Seq, TaskId};
use crate::mutant::{Mutant, is_on};
use crate::plan::Plan;
use crate::port::{Liveness, PortError};
use crate::record::{OwnerRecord, Phase};
use crate::time::Timestamp;

/// The runs that this process drives. The store has the same, but not when a drive had to give up
/// without writing.
static DRIVEN: Mutex<Vec<(OwnerId, RunId)>> = Mutex::new(Vec::new());

/// That this process drives a run, as long as this lives.
pub(super) struct Driving(OwnerId, RunId);

impl Driving {
    pub(super) fn new(ports: &Ports, config: &DriverConfig) -> Self {
        let (owner, run) = (ports.host.this_process().id, config.run.clone());
        driven(|all| all.push((owner.clone(), run.clone())));
        Self(owner, run)
    }

    fn is_of(&self, (owner, run): &(OwnerId, RunId)) -> bool {
        (owner, run) == (&self.0, &self.1)
    }

    /// Whether nothing else in this process drives the run.
    fn is_only(&self) -> bool {
        driven(|all| all.iter().filter(|one| self.is_of(one)).count() == 1)
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        driven(|all| {
            if let Some(at) = all.iter().position(|one| self.is_of(one)) {
                all.swap_remove(at);
            }
        });
    }
}

fn driven<T>(with: impl FnOnce(&mut Vec<(OwnerId, RunId)>) -> T) -> T {
    with(&mut DRIVEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads the run; whether the store has it.
pub(super) async fn load(ports: &Ports, config: &DriverConfig) -> Result<(Ledger, bool), RunError> {
    let snapshot = ports.store.load(&config.run).await?;
    let engine = match &snapshot {
        Some(snapshot) => Engine::restore(snapshot)?,
        None => Engine::new(config.run.clone()),
    };
    let ledger = Ledger {
        engine: engine.with_policy(Arc::clone(&config.policy)),
        owner: ports.host.this_process().id,
        store: Arc::clone(&ports.store),
        host: Arc::clone(&ports.host),
        policy: Arc::clone(&config.policy),
        missed: Vec::new(),
    };
    Ok((ledger, snapshot.is_some()))
}

/// Loads or creates the run, and makes this process its driver.
pub(super) async fn open(
    ports: &Ports,
    config: &DriverConfig,
    plan: Option<Arc<Plan>>,
    driving: &Driving,
) -> Result<Ledger, RunError> {
    let (mut ledger, exists) = load(ports, config).await?;
    let ended = former_driver(ports, &ledger, config, driving)?;
    let asking = async { ports.integrator.greatest_fence(&config.run).await };
    let token_floor = caught(INTEGRATOR, asking).await.map_err(PortError::from)??;
    let mut commands = Vec::new();
    if !exists {
        commands.push(Command::CreateRun { rules: config.rules.clone() });
    }
    commands.push(Command::OpenDriver {
        owner: ports.host.this_process(),
        reading: ports.host.reading(),
        ttl: config.lease_ttl,
        token_floor,
        ended,
    });
    commands.extend(plan.map(|plan| Command::AddPlan { plan }));
    let limits = config.limits.iter();
    commands.extend(
        limits.map(|(pool, limit)| Command::LimitPool { pool: pool.clone(), limit: *limit }),
    );
    if let Some(budget) = config.budget {
        commands.push(Command::SetBudget { budget: Some(budget) });
    }
    if let Some(pilot) = config.pilot.as_ref().filter(|_| !exists) {
        commands.push(Command::SetPilot { tasks: Some(pilot.tasks) });
    }
    if config.resume {
        commands.push(Command::Resume { actor: "driver".to_owned() });
    }
    // Before anything that was under way is shown, and once more when nothing writes to it any more.
    StageLogs::of(ports, config).mask_left(&ledger.engine).await;
    begin(ports, config, &mut ledger, &commands).await?;
    prune(ports, config, &ledger).await;
    let live = with_workspace(&ledger.engine);
    let retaining = async { ports.workspaces.retain(&config.run, &live).await };
    caught(WORKSPACES, retaining).await.map_err(PortError::from)??;
    Ok(ledger)
}

/// How many events back a command's answer is kept across a change of driver, for processes that
/// wait for one.
const ANSWERS_KEPT: u64 = 10_000;

/// Forgets answers that nobody can be waiting for any more.
async fn prune(ports: &Ports, config: &DriverConfig, ledger: &Ledger) {
    let up_to = Seq(ledger.engine.seq().0.saturating_sub(ANSWERS_KEPT));
    if up_to > Seq(0)
        && let Err(err) = ports.store.prune(&config.run, up_to).await
    {
        warn!(error = %err, "old answers could not be forgotten");
    }
}

/// Commits what the run begins with. When one command is refused, nothing is written, and this
/// process does not drive the run.
async fn begin(
    ports: &Ports,
    config: &DriverConfig,
    ledger: &mut Ledger,
    commands: &[Command],
) -> Result<(), RunError> {
    let turn = ledger.turn(commands, Aim::Commands).await?;
    if let Some(err) = turn.answers.into_iter().find_map(Result::err) {
        return Err(named(config, err));
    }
    super::view::show(&*ports.observer, &turn.events, ledger);
    Ok(())
}

fn named(config: &DriverConfig, err: Refusal) -> RunError {
    if let Refusal::DriverRunning(owner) = err {
        RunError::DriverRunning { run: config.run.clone(), owner }
    } else {
        RunError::Refused(err)
    }
}

/// The driver before this one, when it is known to have ended without saying so.
fn former_driver(
    ports: &Ports,
    ledger: &Ledger,
    config: &DriverConfig,
    driving: &Driving,
) -> Result<Option<OwnerId>, RunError> {
    let Some(driver) = ledger.engine.run().and_then(|run| run.driver.clone()) else {
        return Ok(None);
    };
    let Some(record) = ledger.engine.owners().find(|record| record.owner.id == driver) else {
        return Ok(Some(driver));
    };
    let lives = match ports.host.liveness(&record.owner) {
        // This process: a drive that goes on, or one that gave up without being able to say so.
        Liveness::Alive if driver == ledger.owner => {
            !driving.is_only() && !is_on(Mutant::DriverTakesItselfForDead)
        }
        Liveness::Alive => true,
        Liveness::Dead | Liveness::Gone => false,
        Liveness::Unknown => {
            !has_lapsed(record, ledger.now()) && !is_on(Mutant::UnseenDriverIsDead)
        }
    };
    if lives {
        let owner = Box::new(record.owner.clone());
        return Err(RunError::DriverRunning { run: config.run.clone(), owner });
    }
    Ok(Some(driver))
}

/// Whether an owner that nobody can look at has been silent for longer than its leases live.
fn has_lapsed(record: &OwnerRecord, now: Timestamp) -> bool {
    record.renew_by() < now
}

/// Tasks whose workspaces are still needed.
fn with_workspace(engine: &Engine) -> Vec<TaskId> {
    let needed = |phase: &Phase| match phase {
        Phase::Open | Phase::Deferred { .. } | Phase::Leased(_) | Phase::Stopping { .. } => true,
        Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled => false,
    };
    if is_on(Mutant::RestartClearsWorkspaces) {
        return Vec::new();
    }
    let tasks = engine.tasks().filter(|task| task.attempt > 0);
    tasks.filter(|task| needed(&task.phase)).map(|task| task.id.clone()).collect()
}
