//! A pure scheduling engine for unattended coding agents, behind traits, with a tokio driver.
//!
//! The engine decides and someone else acts: [`Engine::decide`] turns a command and a time into
//! events, [`Engine::evolve`] applies an event, and neither reads a clock or touches the world.
//! A [`Store`](port::Store) keeps what was decided. The driver (feature `driver`) carries it out
//! through the other [ports](port).

mod budget;
mod capacity;
mod command;
#[cfg(feature = "driver")]
mod driver;
mod engine;
mod event;
mod forecast;
mod graph;
mod id;
mod lease;
mod mask;
mod memory;
mod money;
#[cfg(feature = "mutants")]
pub mod mutant;
#[cfg(not(feature = "mutants"))]
mod mutant;
mod outcome;
mod pipeline;
mod plan;
mod policy;
pub mod port;
mod record;
mod retry;
mod scope;
mod signature;
mod specs;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod verdict;

#[cfg(feature = "driver")]
pub use self::driver::{
    DriverConfig, Orchestrator, PilotRule, Ports, RunEnd, RunError, SharedCapacity, Tried,
};
pub use self::{
    capacity::{Adaptive, Capacity, CapacitySource, Fixed, Sign, UsageWindow},
    command::{Answer, Command, Decision, Grant, Refusal, StageReport},
    engine::{Engine, InvalidSnapshot, Mover, Reason, Settlement},
    event::{EVENT_BYTES_MAX, Event, EventKind, Resolution, Stale, StoredEvent},
    forecast::{Assumptions, Bounds, FORECAST_SAMPLES_MAX, Forecast, Projection, Spread},
    graph::{Graph, PathLength},
    id::{
        BlobHash, ChangeId, CommandId, FencingToken, ID_BYTES_MAX, InvalidId, OwnerId,
        PipelineName, PoolName, RunId, Seq, SessionId, StageName, TaskId, TaskNo,
    },
    lease::{HELD, Lease, Owner},
    mask::Mask,
    memory::MemoryStore,
    money::{Cost, Usd},
    outcome::{
        Candidate, Interruption, MergeIntent, Outcome, Restart, StageEnd, TEXT_BYTES_MAX,
        head_and_tail,
    },
    pipeline::{
        AGENTS, GATES, INTEGRATE, InvalidPipeline, Pipeline, STAGES_MAX, StageKind, StageSpec,
        VERIFY,
    },
    plan::{
        ESTIMATE_MAX, PLAN_BYTES_MAX, PLAN_DEPTH_MAX, PLAN_ERRORS_MAX, PLAN_VALUES_MAX, Plan,
        PlanError, PlanErrors, PlanFault, PlanWarning, Position, TaskRef, TextFault,
    },
    policy::{Fifo, RemainingPath, SchedulingPolicy, TaskGraph},
    record::{
        Cause, Completion, Counts, Delay, Escalation, Extra, OwnerRecord, ParkReason, PassedOver,
        Phase, PlanRef, PoolBounds, PoolRecord, Records, RunRecord, RunState, Snapshot, TaskRecord,
        Unheard, Wait,
    },
    retry::RetryRules,
    scope::{InvalidScope, SCOPE_PATTERN_BYTES_MAX, SCOPE_PATTERNS_MAX, Scope, ScopeMatcher},
    signature::{failed_tests, signature},
    task::{TaskSpec, VerifyCommand},
    time::{Anchor, ClockReading, SLEPT_MAX, Timestamp, WallTime, millis},
    verdict::{Finding, Judgement, Severity, Verdict},
};
