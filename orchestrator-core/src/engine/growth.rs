//! How the tasks of plans come and go, the pools that they need, and the order in which the policy
//! wants them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::batch::Undo;
use crate::id::{BlobHash, PoolName};
use crate::pipeline::{AGENTS, GATES, VERIFY};
use crate::plan::{Links, Plan};
use crate::policy::TaskGraph;
use crate::record::PoolBounds;
use crate::time::Timestamp;

/// Agents, verify commands, and gates asked, at once where nobody says how many.
const AT_ONCE_DEFAULT: u32 = 4;
/// Permits of any other pool that nobody limited: merges follow one another, and what a plan names
/// without a limit is taken for a thing that exists once.
const LIMIT_DEFAULT: u32 = 1;

impl Engine {
    /// Adds the tasks of a checked plan behind those that are there.
    pub(super) fn add_tasks(&mut self, plan: &Arc<Plan>, at: Timestamp) {
        self.batch.changed(Undo::Tasks(self.table.len()));
        let links = self.batch.links.take();
        let mentioned = self.add_specs(plan, None, links, at);
        for (pool, limit) in &plan.pools {
            self.change_pool(pool, |record| record.limit = *limit);
        }
        self.know_pools(mentioned.iter().chain(plan.pool_bounds.keys()));
        for (pool, bounds) in &plan.pool_bounds {
            self.change_pool(pool, |record| {
                let known = record.bounds;
                record.bounds = PoolBounds {
                    budget: known.budget.or(bounds.budget),
                    in_flight_max: bounds.in_flight_max.or(known.in_flight_max),
                };
            });
        }
        if plan.budget.is_some() {
            self.change_run(|run| run.budget = plan.budget);
        }
        self.rank();
    }

    /// Makes pools that nobody limited with the limits that they have then.
    pub(super) fn know_pools<'a>(&mut self, pools: impl IntoIterator<Item = &'a PoolName>) {
        for pool in pools {
            if self.pools.by_name(pool).is_none() {
                self.change_pool(pool, |_| {});
            }
        }
    }

    /// Adds the tasks of a plan, or of what is left of the `pruned` one, as if they were never granted;
    /// gives the pools that they need.
    pub(super) fn add_specs(
        &mut self,
        plan: &Arc<Plan>,
        pruned: Option<&BlobHash>,
        links: Option<Box<Links>>,
        at: Timestamp,
    ) -> BTreeSet<PoolName> {
        let mut mentioned = BTreeSet::new();
        let first = self.specs.len();
        let Self { specs, index, pools, table, .. } = self;
        let profiles = specs.add(plan, pruned, links, |pipeline, stage, needs| {
            let spec = stage.and_then(|stage| pipeline.stage(stage));
            mentioned.extend(spec.map(|stage| stage.pool.clone()));
            mentioned.extend(needs.keys().cloned());
            index.class(pools, pipeline, stage, needs)
        });
        table.add(&profiles, at);
        if specs.has_scopes() {
            for number in (0_u32..).take(specs.len()).skip(first) {
                index.locks.add(number, specs.spec(number).scope.as_ref());
            }
        }
        mentioned
    }

    /// Takes out the tasks from this one on, which are those of the last plan.
    pub(super) fn remove_tasks(&mut self, first: usize) {
        self.table.truncate(first);
        self.specs.remove_last();
        self.index.locks.truncate(first);
        self.rank();
    }

    /// Asks the policy for the ranks, and sorts what is ready by them.
    pub(super) fn rank(&mut self) {
        let graph = TaskGraph::new(&self.specs);
        let ranks = self.policy.ranks(&graph);
        let rank = |task: u32| ranks.get(task as usize).copied().unwrap_or(0);
        // Greater ones go first, and `!` turns the order around.
        let turn = |task: u32| (!self.specs.priority(task), !rank(task));
        let mut tasks: Vec<u32> = (0_u32..).take(self.specs.len()).collect();
        tasks.sort_by_key(|task| turn(*task));
        let (mut place, mut last) = (0_u32, None);
        for task in tasks {
            let turn = turn(task);
            if last.is_some_and(|last| last != turn) {
                place += 1;
            }
            last = Some(turn);
            self.table.set_order(task, place);
        }
        self.reindex();
    }
}

/// The limit of a pool that nobody limited.
pub(super) fn limit_default(pool: &PoolName) -> u32 {
    match pool.as_str() {
        AGENTS | VERIFY | GATES => AT_ONCE_DEFAULT,
        _ => LIMIT_DEFAULT,
    }
}
