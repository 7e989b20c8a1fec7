//! Proptest strategies: plans, what people and strangers ask, workers that misbehave, and whole
//! histories of them.
//!
//! A [`History`] that breaks a promise shrinks to one with few steps and tasks:
//!
//! ```
//! use std::sync::Arc;
//! use orchestrator_core::RemainingPath;
//! use orchestrator_core::testing::strategies::histories;
//! use proptest::prelude::*;
//!
//! let config = ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() };
//! proptest!(config, |(history in histories(4, 40))| {
//!     let lived = history.live(Arc::new(RemainingPath));
//!     prop_assert!(lived.is_ok(), "{}", lived.unwrap_err());
//! });
//! ```

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Act, Amiss, Change, Conduct, History, Step};
use crate::command::Command;
use crate::event::Resolution;
use crate::id::{BlobHash, ChangeId, FencingToken, OwnerId, PoolName, TaskId, TaskNo};
use crate::money::Usd;
use crate::outcome::{Interruption, MergeIntent};
use crate::pipeline::{AGENTS, Pipeline, StageKind, StageSpec};
use crate::plan::Plan;
use crate::record::{ParkReason, PoolBounds};
use crate::retry::RetryRules;
use crate::scope::Scope;
use crate::task::{TaskSpec, VerifyCommand};
use crate::time::Timestamp;

/// The pool that some tasks need permits of beyond their stage's.
const GPU: &str = "gpu";
/// Paths, of which some hold others.
const PATHS: [&str; 4] = ["src", "src/a", "src/b", "docs"];
/// Pipelines beside the built-in one.
const PIPELINES: [(&str, &[StageKind]); 4] = [
    ("alone", &[StageKind::Run]),
    ("verified", &[StageKind::Run, StageKind::Verify]),
    ("gated", &[StageKind::Run, StageKind::Gate, StageKind::Integrate]),
    ("merged", &[StageKind::Run, StageKind::Integrate]),
];

/// Plans of 1 to so many tasks, at most 255, which can be carried out: `t0` and so on, each of which
/// depends on some of those before it.
///
/// They differ in priorities, estimates, retries, scopes, needs, pipelines, limits, and in the budgets
/// of run, tasks and pools.
pub fn plans(tasks_max: u8) -> impl Strategy<Value = Plan> {
    named_plans("t", tasks_max)
}

fn named_plans(prefix: &'static str, tasks_max: u8) -> impl Strategy<Value = Plan> {
    let pools = (2_u32..5, 2_u32..5);
    let budget = option::weighted(0.3, 1_u32..40);
    let tasks = vec(drawn_task(), 1..=usize::from(tasks_max.max(1)));
    (tasks, pools, budget, option::weighted(0.2, bounds())).prop_map(
        move |(drawn, (agents, gpu), budget, bounds)| {
            let mut plan = Plan::default();
            for (number, (mut spec, before)) in drawn.into_iter().enumerate() {
                spec.id = name(prefix, number);
                let before = before.into_iter().map(usize::from).filter(|back| *back <= number);
                spec.depends_on = before
                    .map(|back| name(prefix, number - back))
                    .filter(|id| *id != spec.id)
                    .collect();
                plan.tasks.push(spec);
            }
            for (name, kinds) in PIPELINES {
                let command = Some(VerifyCommand::Shell("true".to_owned()));
                let stage = |kind: &StageKind| {
                    let command = command.clone().filter(|_| *kind == StageKind::Gate);
                    StageSpec { command, ..StageSpec::of(*kind) }
                };
                let stages = kinds.iter().map(stage).collect();
                let name = name.parse().expect("a valid name");
                plan.pipelines.insert(name, Pipeline::new(stages).expect("a valid pipeline"));
            }
            plan.pools.insert(pool(AGENTS), agents);
            plan.pools.insert(pool(GPU), gpu);
            plan.pool_bounds.extend(bounds.map(|bounds| (pool(AGENTS), bounds)));
            plan.budget = budget.map(Usd::dollars);
            plan
        },
    )
}

fn bounds() -> impl Strategy<Value = PoolBounds> {
    (option::of(1_u32..30), option::of(1_u32..4)).prop_map(|(dollars, in_flight_max)| PoolBounds {
        budget: dollars.map(Usd::dollars),
        in_flight_max,
    })
}

/// A task without a name, and how far before it those are that it depends on.
fn drawn_task() -> impl Strategy<Value = (TaskSpec, std::collections::BTreeSet<u8>)> {
    let pipeline = option::weighted(0.5, select(PIPELINES.map(|(name, _)| name).to_vec()));
    let scope = option::of(select(PATHS.to_vec()));
    let needs = (0_u32..3, option::weighted(0.1, Just(2_u32)));
    let counts = (0_u32..3, select(vec![0, 0, 0, 5, -5]), option::of(1_u64..10));
    let budget = option::weighted(0.1, 1_u32..20);
    (btree_set(1_u8..8, 0..3), pipeline, scope, needs, counts, budget).prop_map(
        |(before, pipeline, scope, (gpu, agents), (retries, priority, minutes), budget)| {
            let mut spec = TaskSpec::new(name("t", 0));
            spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
            spec.pipeline = pipeline.map(|name| name.parse().expect("a valid name"));
            spec.scope = scope.and_then(|path| Scope::parse([path]).ok());
            spec.max_retries = retries;
            spec.priority = priority;
            spec.budget = budget.map(Usd::dollars);
            spec.estimate = minutes.map(|minutes| Duration::from_secs(60 * minutes));
            let needs = [(GPU, Some(gpu)), (AGENTS, agents)].into_iter();
            let needs =
                needs.filter_map(|(name, permits)| Some((name, NonZeroU32::new(permits?)?)));
            spec.needs.extend(needs.map(|(name, permits)| (pool(name), permits)));
            (spec, before)
        },
    )
}

/// What people, other processes and strangers may ask of a run with tasks `t0` and so on, sensible
/// or not.
///
/// Not what the run's own driver asks (claims, results, its opening and closing): that depends on
/// what it was granted, and is a [`Step`].
pub fn commands(tasks_max: u8) -> impl Strategy<Value = Command> {
    prop_oneof![6 => of_people(tasks_max), 4 => of_the_run(), 2 => of_strangers(tasks_max)]
}

fn of_people(tasks_max: u8) -> impl Strategy<Value = Command> {
    let task = (0..tasks_max.max(1)).prop_map(|number| name("t", number.into()));
    (task, 0_u8..6).prop_map(|(task, what)| {
        let (actor, reason) = words();
        match what {
            0 => Command::Retry { task, dependents: false, actor, reason },
            1 => Command::Retry { task, dependents: true, actor, reason },
            2 => Command::Resolve { task, how: Resolution::Skip, actor, reason },
            3 => Command::Resolve { task, how: Resolution::ByHand, actor, reason },
            4 => Command::Resolve { task, how: Resolution::Approve, actor, reason },
            _ => Command::Cancel { task, actor, reason },
        }
    })
}

fn of_the_run() -> impl Strategy<Value = Command> {
    let named = || select(vec![AGENTS, GPU, "unheard-of"]);
    prop_oneof![
        option::of(0_u32..4).prop_map(|tasks| Command::SetPilot { tasks }),
        (named(), bounds())
            .prop_map(|(name, bounds)| Command::BoundPool { pool: pool(name), bounds }),
        (named(), 0_u64..10_000_000).prop_map(|(name, until)| Command::ClosePool {
            pool: pool(name),
            until: Timestamp(until)
        }),
        named().prop_map(|name| Command::OpenPool { pool: pool(name) }),
        Just(Command::Prune),
        Just(Command::Settle),
        Just(Command::Tick),
        Just(Command::Pause { actor: words().0, reason: words().1 }),
        Just(Command::Drain { reason: ParkReason::Asked }),
        Just(Command::Resume { actor: words().0 }),
        option::of(0_u32..60)
            .prop_map(|dollars| Command::SetBudget { budget: dollars.map(Usd::dollars) }),
        (named(), 0_u32..4)
            .prop_map(|(name, limit)| Command::LimitPool { pool: pool(name), limit }),
        named_plans("u", 3).prop_map(|plan| Command::AddPlan { plan: Arc::new(plan) }),
        named_plans("t", 1).prop_map(|plan| Command::AddPlan { plan: Arc::new(plan) }),
    ]
}

fn of_strangers(tasks_max: u8) -> impl Strategy<Value = Command> {
    let owner = || OwnerId::parse("stranger").expect("a valid id");
    let lease = (0..u32::from(tasks_max) + 2, 0_u64..40);
    prop_oneof![
        Just(Command::CreateRun { rules: RetryRules::default() }),
        Just(Command::Claim { owner: owner() }),
        Just(Command::CloseDriver { owner: owner() }),
        (lease.clone()).prop_map(|(task, token)| {
            Command::Supersede { task: TaskNo(task), token: FencingToken(token) }
        }),
        (lease.clone()).prop_map(|(task, token)| {
            let content = BlobHash::of(b"stray");
            Command::Dispatch { task: TaskNo(task), token: FencingToken(token), content }
        }),
        (lease.clone()).prop_map(|(task, token)| {
            Command::Stopped { task: TaskNo(task), token: FencingToken(token) }
        }),
        lease.prop_map(|(task, token)| {
            let change = ChangeId::parse("strange").expect("a valid id");
            let intent = MergeIntent { onto: change.clone(), merged: change };
            Command::IntendMerge { task: TaskNo(task), token: FencingToken(token), intent }
        }),
    ]
}

/// What workers do; those that do their work are the simplest.
pub fn conducts() -> impl Strategy<Value = Conduct> {
    let reasons = [
        Interruption::Crashed,
        Interruption::Overload,
        Interruption::Shutdown,
        Interruption::Auth,
        Interruption::Billing,
        Interruption::Cancelled,
    ];
    let act = prop_oneof![
        8 => Just(Act::Passes),
        3 => (0_u8..3).prop_map(|reason| Act::Rejected { reason }),
        2 => select(reasons.to_vec()).prop_map(Act::Interrupted),
        1 => option::of(-20_i16..240).prop_map(|minutes| Act::UsageLimit { minutes }),
        1 => option::of(0_u16..240).prop_map(|minutes| Act::Suspended { minutes }),
        1 => Just(Act::Asks),
        1 => Just(Act::Fatal),
        1 => Just(Act::Hangs),
        1 => Just(Act::DiesBeforeMerge),
        1 => Just(Act::DiesAfterMerge),
    ];
    (act, 0_u16..1_500, any::<bool>()).prop_map(|(act, spent, is_part)| Conduct {
        act,
        spent,
        is_part,
    })
}

/// What may happen in a run with tasks `t0` and so on.
pub fn steps(tasks_max: u8) -> impl Strategy<Value = Step> {
    let which = || 0_u8..8;
    prop_oneof![
        10 => Just(Step::Claim),
        1 => which().prop_map(|which| Step::Dispatch { which }),
        9 => (which(), conducts()).prop_map(|(which, conduct)| Step::Work { which, conduct }),
        3 => (which(), any::<bool>(), 0_u16..900)
            .prop_map(|(which, says, cents)| Step::Stop { which, says, cents }),
        1 => (which(), select(Amiss::ALL.to_vec())).prop_map(|(which, how)| Step::Amiss { which, how }),
        1 => which().prop_map(|which| Step::Again { which }),
        2 => (0_u16..1_000).prop_map(|minutes| Step::Wait { minutes }),
        1 => Just(Step::ClockBack),
        1 => vec(commands(tasks_max), 0..4).prop_map(|lost| Step::DriverDies { lost }),
        1 => (0_u32..20_000).prop_map(|minutes| Step::Reboot { minutes }),
        1 => Just(Step::NextDriver),
        1 => vec(commands(tasks_max), 1..4).prop_map(|commands| Step::Refused { commands }),
        1 => (which(), changes()).prop_map(|(which, change)| Step::Edit { which, change }),
        4 => commands(tasks_max).prop_map(Step::Ask),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<i8>().prop_map(Change::Priority),
        Just(Change::MoreRetries),
        any::<u8>().prop_map(Change::Estimate),
        select(PATHS.to_vec()).prop_map(Change::Scope),
        (0_u8..4).prop_map(Change::Needs),
        Just(Change::Timeout),
        Just(Change::NoDependencies),
        (0_u8..8).prop_map(Change::DependsOn),
    ]
}

/// Whole histories: a plan of at most so many tasks, rules, and at most so many steps.
pub fn histories(tasks_max: u8, steps_max: usize) -> impl Strategy<Value = History> {
    let steps = vec(steps(tasks_max), 0..=steps_max);
    (plans(tasks_max), rules(), steps).prop_map(|(plan, rules, steps)| History {
        plan,
        rules,
        steps,
    })
}

fn rules() -> impl Strategy<Value = RetryRules> {
    let bounds = (1_u32..31, 1_u32..61, 0_u32..4, 0_u32..4);
    (bounds, any::<bool>(), any::<u64>()).prop_map(|(bounds, same_failure_escalates, seed)| {
        let (interruptions_max, dispatches_spare, first_stage_failures_max, passed_over_max) =
            bounds;
        RetryRules {
            interruptions_max,
            dispatches_spare,
            same_failure_escalates,
            first_stage_failures_max,
            passed_over_max,
            seed,
            ..RetryRules::default()
        }
    })
}

fn name(prefix: &str, number: usize) -> TaskId {
    TaskId::parse(&format!("{prefix}{number}")).expect("a valid id")
}

fn pool(name: &str) -> PoolName {
    PoolName::parse(name).expect("a valid name")
}

fn words() -> (String, String) {
    ("ann".to_owned(), "why not".to_owned())
}
