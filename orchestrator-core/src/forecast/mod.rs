//! What a run will come to: how much at most, and how long it will probably take.
//!
//! [`Plan::bounds`] is arithmetic and holds whatever happens. [`Engine::forecast`] lets copies of the
//! engine run to their end in virtual time, with stages that take about as long, cost about as much
//! and fail about as often as one assumes, and says what most of them came to.

mod drawn;
mod measure;

use std::fmt;
use std::time::Duration;

use self::drawn::Drawn;
pub use self::measure::Projection;
use crate::engine::Engine;
use crate::money::Usd;
use crate::pipeline::{StageKind, StageSpec};
use crate::plan::Plan;
use crate::retry::RetryRules;
use crate::time::Timestamp;

/// Runs that are drawn at most.
pub const FORECAST_SAMPLES_MAX: u32 = 1_000;
/// Stages, and ends of waits, that are drawn at most in one of them: so many, and so many for each task.
const DRAWN_MAX: usize = 4_096;
const DRAWN_OF_TASK_MAX: usize = 64;

/// The most that a plan can come to, whatever goes wrong, unless a person raises a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Grants of stages.
    pub dispatches: u64,
    /// Money: each grant spends at most its stage's cap. A budget binds as well, and sooner where it
    /// is less.
    pub spend: Usd,
}

impl Plan {
    /// What the plan's tasks come to at most under these rules.
    ///
    /// ```
    /// use orchestrator_core::{Plan, RetryRules, TaskId, TaskSpec};
    /// let task = TaskSpec::new(TaskId::parse("a").unwrap());
    /// let plan = Plan { tasks: vec![task], ..Plan::default() };
    /// let rules = RetryRules { dispatches_spare: 10, ..RetryRules::default() };
    /// // Four stages, once and for each of three retries, and the spare.
    /// assert_eq!(plan.bounds(&rules).dispatches, 4 * 4 + 10);
    /// ```
    #[must_use]
    pub fn bounds(&self, rules: &RetryRules) -> Bounds {
        let mut bounds = Bounds { dispatches: 0, spend: Usd::ZERO };
        for task in &self.tasks {
            let pipeline = self.pipeline_of(task).unwrap_or_default();
            let stages = pipeline.stages();
            let polls =
                u32::from(pipeline.has(StageKind::Gate)).saturating_mul(rules.deferrals_max);
            let dispatches = rules.dispatches_max(stages.len(), task.max_retries);
            // Any of them may be of the stage that costs most: one that is interrupted says nothing of
            // how often it was before. A gate that is found closed is asked beside them.
            let most = |caps: &mut dyn Iterator<Item = &StageSpec>, times: u32| {
                let cap = caps.map(|stage| stage.cap.0).max().unwrap_or(0);
                Usd(cap.saturating_mul(u64::from(times)))
            };
            let gates = &mut stages.iter().filter(|stage| stage.kind == StageKind::Gate);
            let spend = most(&mut stages.iter(), dispatches).plus(most(gates, polls));
            let spend = task.budget.map_or(spend, |budget| spend.min(budget));
            let dispatches = u64::from(dispatches).saturating_add(u64::from(polls));
            bounds.dispatches = bounds.dispatches.saturating_add(dispatches);
            bounds.spend = bounds.spend.plus(spend);
        }
        bounds
    }
}

/// What a forecast takes for given. Each time and amount is drawn anew for each stage, between half
/// and one and a half of what stands here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assumptions {
    /// How long a run stage takes, where its task has no estimate.
    pub run: Duration,
    /// How long a run stage takes in thousandths of its estimate, where its task has one.
    pub estimate_per_mille: u32,
    /// How long the verify command takes.
    pub verify: Duration,
    /// How long a review takes.
    pub review: Duration,
    /// How long a merge takes.
    pub integrate: Duration,
    /// Of a thousand changes, how many a verify command or a reviewer rejects.
    pub rejected_per_mille: u32,
    /// What a stage spends of its cap, in thousandths.
    pub spent_per_mille: u32,
    /// How many runs are drawn, at most [`FORECAST_SAMPLES_MAX`].
    pub samples: u32,
    /// The same seed gives the same forecast.
    pub seed: u64,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            run: Duration::from_secs(15 * 60),
            estimate_per_mille: 1_000,
            verify: Duration::from_secs(60),
            review: Duration::from_secs(4 * 60),
            integrate: Duration::from_secs(30),
            rejected_per_mille: 150,
            spent_per_mille: 300,
            samples: 40,
            seed: 0,
        }
    }
}

/// What runs that were drawn came to: a tenth of them to less than `low`, half to less than `middle`,
/// a tenth to more than `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread<T> {
    /// A tenth of them came to less.
    pub low: T,
    /// Half of them came to less.
    pub middle: T,
    /// A tenth of them came to more.
    pub high: T,
}

/// What the rest of a run will probably come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// How long it takes from now on.
    pub makespan: Spread<Duration>,
    /// What it spends from now on.
    pub cost: Spread<Usd>,
    /// How many tasks are not done at its end: escalated, blocked, cancelled, or out of budget.
    pub left: Spread<u32>,
}

impl Engine {
    /// Simulates the rest of the run, as if it were resumed now and without its pilot; changes
    /// nothing. `None` before the
    /// run is created, and for no samples.
    ///
    /// Costs about as much as driving the engine through the rest of the run for each sample. One in
    /// which tasks begin anew again and again is broken off when there were 64 stages for each task, and
    /// 4,096 more; what is not done by then is left.
    #[must_use]
    pub fn forecast(&self, now: Timestamp, assumed: &Assumptions) -> Option<Forecast> {
        let spent = self.run()?.spent;
        let (mut times, mut costs, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let tasks = self.run()?.counts.total() as usize;
        let at_most = tasks.saturating_mul(DRAWN_OF_TASK_MAX).saturating_add(DRAWN_MAX);
        for sample in 0..assumed.samples.min(FORECAST_SAMPLES_MAX) {
            let mut drawn = Drawn::new(self, now, assumed, sample)?;
            drawn.run_out(at_most);
            let run = drawn.engine.run()?;
            times.push(drawn.now.since(now));
            costs.push(run.spent.minus(spent));
            left.push(run.counts.total() - run.counts.done);
        }
        Some(Forecast { makespan: spread(times)?, cost: spread(costs)?, left: spread(left)? })
    }
}

impl Forecast {
    /// Whether the rest of the run will probably keep within a time and an amount: nine of ten runs
    /// that were drawn do.
    #[must_use]
    pub fn is_within(&self, makespan: Option<Duration>, cost: Option<Usd>) -> bool {
        makespan.is_none_or(|max| self.makespan.high <= max)
            && cost.is_none_or(|max| self.cost.high <= max)
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = |time: Duration| time.as_secs().div_ceil(60);
        let Self { makespan, cost, left } = self;
        write!(
            f,
            "{} minutes ({} to {}), {} ({} to {}), {} tasks left undone ({} to {})",
            minutes(makespan.middle),
            minutes(makespan.low),
            minutes(makespan.high),
            cost.middle,
            cost.low,
            cost.high,
            left.middle,
            left.low,
            left.high,
        )
    }
}

fn spread<T: Ord + Copy>(mut values: Vec<T>) -> Option<Spread<T>> {
    values.sort_unstable();
    let at = |tenths: usize| values.get((values.len().checked_sub(1)?) * tenths / 10).copied();
    Some(Spread { low: at(1)?, middle: at(5)?, high: at(9)? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::drawn::{opening, owner};
    use super::*;
    use crate::command::Command;
    use crate::id::{CommandId, PoolName, RunId, TaskId, TaskNo};
    use crate::money::Cost;
    use crate::outcome::{Outcome, Restart};
    use crate::pipeline::AGENTS;
    use crate::task::{TaskSpec, VerifyCommand};

    fn chain(tasks: u32, agents: u32, wide: bool) -> Plan {
        let id = |number: u32| TaskId::parse(&format!("t{number}")).unwrap();
        let mut plan = Plan::default();
        for number in 0..tasks {
            let mut spec = TaskSpec::new(id(number));
            spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
            spec.estimate = Some(Duration::from_secs(600));
            spec.depends_on = (number > 0 && !wide).then(|| id(number - 1)).into_iter().collect();
            plan.tasks.push(spec);
        }
        plan.pools.insert(PoolName::parse(AGENTS).unwrap(), agents);
        plan
    }

    fn engine(plan: Plan) -> Engine {
        let mut engine = Engine::new(RunId::parse("r").unwrap());
        for command in [
            Command::CreateRun { rules: RetryRules::default() },
            Command::AddPlan { plan: Arc::new(plan) },
        ] {
            engine.submit(Timestamp(0), &CommandId::parse("c").unwrap(), &command).unwrap();
        }
        engine.accept();
        engine
    }

    fn sure() -> Assumptions {
        Assumptions { rejected_per_mille: 0, ..Assumptions::default() }
    }

    #[test]
    fn a_chain_takes_about_the_sum_of_its_stages_however_many_agents_there_are() {
        let ten = Duration::from_secs(10 * (600 + 60 + 240 + 30));
        for agents in [1, 8] {
            let engine = engine(chain(10, agents, false));
            let makespan = engine.forecast(Timestamp(0), &sure()).unwrap().makespan;
            assert!(makespan.low >= ten / 2 && makespan.high <= ten * 3 / 2, "{makespan:?}");
            assert!(makespan.low <= makespan.middle && makespan.middle <= makespan.high);
        }
    }

    #[test]
    fn more_agents_shorten_what_is_wide_and_rejections_cost_time_and_money() {
        let of = |agents, assumed: &Assumptions| {
            engine(chain(40, agents, true)).forecast(Timestamp(0), assumed).unwrap()
        };
        let (few, many) = (of(1, &sure()), of(8, &sure()));
        assert!(many.makespan.high * 2 < few.makespan.low, "{many:?} {few:?}");
        let hard = of(8, &Assumptions { rejected_per_mille: 400, ..Assumptions::default() });
        assert!(hard.makespan.middle > many.makespan.middle, "{hard:?}");
        assert!(hard.cost.middle > many.cost.middle && hard.left.high > 0, "{hard:?}");
        assert_eq!(many.left.high, 0);
    }

    #[test]
    fn what_the_first_stages_came_to_is_what_the_rest_is_measured_by() {
        let mut engine = engine(chain(3, 1, false));
        let log = |engine: &mut Engine, now: u64, command: &Command| {
            let id = CommandId::parse("c").unwrap();
            engine.submit(Timestamp(now), &id, command).unwrap();
            let events = engine.batch().map(|commit| commit.events).unwrap_or_default();
            engine.accept();
            let seq = crate::id::Seq(0);
            let stored = events.into_iter().map(|event| crate::event::StoredEvent { seq, event });
            stored.collect::<Vec<_>>()
        };
        let open = opening(&engine, owner());
        let mut events = log(&mut engine, 0, &open);
        let mut now = 0;
        // The run stage takes a third of its estimate, and half of what was set aside; the verify
        // command rejects once of two times.
        let took = [(200_000, false), (10_000, true), (200_000, false), (30_000, false)];
        for (millis, is_rejected) in took {
            events.extend(log(&mut engine, now, &Command::Claim { owner: owner().id }));
            let task = TaskNo(0);
            let grant = engine.grant(task).unwrap();
            let outcome = if is_rejected {
                Outcome::Rejected { feedback: "no".to_owned(), restart: Restart::OnCandidate }
            } else {
                Outcome::Passed
            };
            let mut report = grant.report(engine.id().clone(), outcome);
            report.cost = Cost::Known(Usd(grant.cap.0 / 2));
            now += millis;
            events.extend(log(&mut engine, now, &Command::Report(Box::new(report))));
        }
        let measured = Assumptions::default().measured(&engine, &events);
        let expected = Assumptions {
            run: Duration::from_secs(200),
            estimate_per_mille: 333,
            verify: Duration::from_secs(20),
            rejected_per_mille: 500,
            spent_per_mille: 500,
            ..Assumptions::default()
        };
        assert_eq!(measured, expected);
        let before = engine.forecast(Timestamp(now), &Assumptions::default()).unwrap();
        let after = engine.forecast(Timestamp(now), &measured).unwrap();
        assert!(after.makespan.middle < before.makespan.middle, "{after} {before}");
        assert!(after.cost.middle > before.cost.middle, "{after} {before}");
        assert!(after.is_within(None, None) && after.is_within(Some(after.makespan.high), None));
        assert!(!after.is_within(None, Some(Usd(after.cost.high.0 - 1))));
    }

    #[test]
    fn p13_the_same_seed_gives_the_same_forecast_and_asking_changes_nothing() {
        let engine = engine(chain(10, 2, true));
        let before = engine.snapshot();
        let forecast = engine.forecast(Timestamp(0), &Assumptions::default());
        assert_eq!(forecast, engine.forecast(Timestamp(0), &Assumptions::default()));
        assert_eq!(engine.snapshot(), before);
        let none = Assumptions { samples: 0, ..Assumptions::default() };
        assert_eq!(engine.forecast(Timestamp(0), &none), None);
    }

    #[test]
    fn p16_a_forecast_ends_however_often_tasks_may_be_tried_and_however_many_runs_are_asked_for() {
        let mut plan = chain(3, 1, false);
        plan.tasks.iter_mut().for_each(|task| task.max_retries = u32::MAX);
        let of = |rejected_per_mille, samples| {
            let assumed = Assumptions { rejected_per_mille, samples, ..Assumptions::default() };
            engine(plan.clone()).forecast(Timestamp(0), &assumed).unwrap()
        };
        let hopeless = of(1_000, 2);
        assert_eq!(hopeless.left.low, 3);
        assert!(hopeless.cost.low > Usd::ZERO && hopeless.makespan.low > Duration::ZERO);
        assert_eq!(of(500, 20).left.high, 0, "what only takes long is not broken off");
        assert_eq!(of(150, u32::MAX), of(150, FORECAST_SAMPLES_MAX));
    }

    #[test]
    fn p6_no_drawn_run_passes_the_bounds_that_are_known_before_it_starts() {
        let plan = chain(6, 2, true);
        let bounds = plan.bounds(&RetryRules::default());
        let hopeless = Assumptions { rejected_per_mille: 1_000, ..Assumptions::default() };
        let forecast = engine(plan.clone()).forecast(Timestamp(0), &hopeless).unwrap();
        assert!(forecast.cost.high <= bounds.spend, "{forecast:?} {bounds:?}");
        assert_eq!(forecast.left.low, 6);
        // Four stages, four attempts, and 60 grants more: each may be a run stage at $5.
        assert_eq!(bounds.dispatches, 6 * (4 * 4 + 60));
        assert_eq!(bounds.spend, Usd::dollars(6 * (4 * 4 + 60) * 5));
    }
}
