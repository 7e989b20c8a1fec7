//! Random plans.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Dice;
use crate::id::{PipelineName, PoolName, StageName, TaskId};
use crate::money::Usd;
use crate::pipeline::{AGENTS, Pipeline, StageKind, StageSpec};
use crate::plan::Plan;
use crate::record::PoolBounds;
use crate::scope::Scope;
use crate::task::{TaskSpec, VerifyCommand};

/// Where the dice stand for the tasks of a plan.
const PLAN_PLACE: u64 = 5 << 32;

/// The pool that some tasks need permits of beyond their stage's.
pub(super) const GPU: &str = "gpu";

/// A pipeline with all that the default one does not have.
const CAREFUL: &str = "careful";

fn name(text: &str) -> PipelineName {
    PipelineName::parse(text).expect("a valid name")
}

/// Two stages that work, one after the other, and judges that send back to the second.
fn careful(dice: &mut Dice) -> Pipeline {
    let polish = StageName::parse("polish").expect("a valid name");
    let rounds = dice.once_in(2).then(|| dice.below(2));
    let on_rejection = dice.once_in(2).then(|| polish.clone());
    let command = Some(VerifyCommand::Shell("true".to_owned()));
    let mut stages = vec![
        StageSpec::of(StageKind::Run),
        StageSpec { name: polish, ..StageSpec::of(StageKind::Run) },
        StageSpec { on_rejection, rounds, ..StageSpec::of(StageKind::Verify) },
        StageSpec { command, ..StageSpec::of(StageKind::Gate) },
    ];
    if dice.once_in(2) {
        stages.push(StageSpec::of(StageKind::Integrate));
    }
    Pipeline::new(stages).expect("a valid pipeline")
}

/// A random plan: each task depends on some of those before it, and on some of the `known`.
pub(super) fn plan(dice: &mut Dice, prefix: &str, tasks: u32, known: &[TaskId]) -> Plan {
    // Now and then the worst of names: as long as may be, and twice as long in JSON.
    let prefix = if dice.once_in(16) { "\"".repeat(250) + prefix } else { prefix.to_owned() };
    let id = |number: u32| TaskId::parse(&format!("{prefix}{number}")).expect("a valid id");
    let place = if known.is_empty() { PLAN_PLACE } else { 2 * PLAN_PLACE };
    let mut plan = Plan::default();
    for number in 0..tasks {
        dice.at(place + u64::from(number));
        let mut spec = TaskSpec::new(id(number));
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec.max_retries = dice.below(3);
        spec.depends_on = (0..number).filter(|_| dice.once_in(3)).map(id).collect();
        spec.depends_on.extend(known.iter().filter(|_| dice.once_in(4)).cloned());
        if dice.once_in(2) {
            let path = ["src", "src/a", "docs"][dice.below(3) as usize];
            spec.scope = Scope::parse([path]).ok();
        }
        if dice.once_in(4) {
            let gpu = PoolName::parse(GPU).expect("a valid name");
            spec.needs.extend(NonZeroU32::new(1 + dice.below(2)).map(|permits| (gpu, permits)));
        }
        if dice.once_in(8) {
            // More of the stages' own pool than the stage takes.
            let agents = PoolName::parse(AGENTS).expect("a valid name");
            spec.needs.extend(NonZeroU32::new(2).map(|permits| (agents, permits)));
        }
        spec.pipeline = dice.once_in(3).then(|| name(CAREFUL));
        spec.priority = [0, 0, 0, 5, -5][dice.below(5) as usize];
        spec.estimate =
            dice.once_in(2).then(|| Duration::from_secs(60 * u64::from(1 + dice.below(9))));
        spec.budget = dice.once_in(6).then(|| Usd::dollars(1 + dice.below(12)));
        plan.tasks.push(spec);
    }
    dice.at(place - 1);
    if plan.tasks.iter().any(|spec| spec.pipeline.is_some()) {
        plan.pipelines.insert(name(CAREFUL), careful(dice));
    }
    for pool in [AGENTS, GPU] {
        let pool = PoolName::parse(pool).expect("a valid name");
        let needs = plan.tasks.iter().filter_map(|spec| spec.needs.get(&pool));
        let least = needs.map(|permits| permits.get()).max().unwrap_or(1);
        plan.pools.insert(pool, least + dice.below(3));
    }
    if !known.is_empty() {
        // A pool that comes with the plan, and goes with it when the commit is refused.
        plan.pools.insert(PoolName::parse("late").expect("a valid name"), 1);
    }
    plan.budget = dice.once_in(3).then(|| Usd::dollars(1 + dice.below(40)));
    for pool in [AGENTS, GPU] {
        let budget = dice.once_in(5).then(|| Usd::dollars(1 + dice.below(30)));
        let in_flight_max = dice.once_in(5).then(|| 1 + dice.below(3));
        let pool = PoolName::parse(pool).expect("a valid name");
        plan.pool_bounds.insert(pool, PoolBounds { budget, in_flight_max });
    }
    plan.pool_bounds.retain(|_, bounds| *bounds != PoolBounds::default());
    plan
}
