//! Checks the engine against itself: everything computed must equal its computation from scratch.

use std::collections::BTreeSet;

use super::Engine;
use super::body::Body;
use super::index::{Used, key_of};
use super::kind::Kind;
use super::leases::Stop;
use super::slab::NONE;
use crate::money::Usd;
use crate::record::{Counts, PlanRef, Snapshot};

impl Engine {
    /// What does not add up; empty when all is well. Looks at every task.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let Some(run) = &self.run else { return faults };
        let mut counts = Counts::default();
        for hot in self.table.all_hot() {
            *hot.kind().counter(&mut counts) += 1;
        }
        if counts != run.counts {
            faults.push(format!("phases are {counts:?}, counted {:?}", run.counts));
        }
        for (number, hot) in (0_u32..).zip(self.table.all_hot()) {
            if self.specs.profile_by_spec(number) != Some(hot.profile()) {
                faults.push(format!("task {number} has profile {}", hot.profile()));
            }
        }
        let tasks = || (0_u32..).take(self.table.len()).map(|number| self.table.view(number));
        let holds = || tasks().filter_map(|task| task.hold().copied());
        let reserved: Usd = holds().map(|hold| hold.reserved).sum();
        if reserved != run.reserved {
            faults.push(format!("{} is reserved, the leases hold {reserved}", run.reserved));
        }
        let spent: Usd = tasks().map(|task| task.spent()).sum();
        if spent != run.spent {
            faults.push(format!("the run spent {}, its tasks {spent}", run.spent));
        }
        if let Some(token) = holds().map(|hold| hold.token).find(|token| *token > run.last_token) {
            faults.push(format!("token {token} lives, and {} is the greatest", run.last_token));
        }
        let driver = run.driver.as_ref().and_then(|driver| self.owners.find(driver));
        if driver != self.index.driver {
            faults.push(format!("owner {driver:?} drives, noted {:?}", self.index.driver));
        }
        let has_budget = self.pools.values().any(|pool| pool.bounds.budget.is_some());
        if (has_budget || run.budget.is_some()) && !self.index.has_budgets {
            faults.push("there is a budget, and it is not noted".to_owned());
        }
        self.audit_graph(&mut faults);
        self.audit_queues(&mut faults);
        self.audit_leases(&mut faults);
        self.audit_scopes(&mut faults);
        faults
    }

    /// Dependencies and cascade, by definition.
    fn audit_graph(&self, faults: &mut Vec<String>) {
        let hot = self.table.all_hot();
        let dependencies: Vec<Vec<u32>> =
            (0_u32..).take(hot.len()).map(|task| self.specs.dependencies(task).collect()).collect();
        let mut dead = vec![false; hot.len()];
        // A pass for each link of the longest chain reaches the least fixed point.
        loop {
            let mut changed = false;
            for (place, from) in dependencies.iter().enumerate() {
                let kind = hot[place].kind();
                let blocked = from.iter().any(|from| dead[*from as usize]);
                let now = kind.is_dead_end() || (blocked && kind != Kind::Done);
                changed |= now != dead[place];
                dead[place] = now;
            }
            if !changed {
                break;
            }
        }
        let mut blocked = 0;
        for ((number, from), hot) in (0_u32..).zip(&dependencies).zip(hot) {
            let task = self.specs.id(number);
            let count = |test: &dyn Fn(usize) -> bool| {
                from.iter().filter(|from| test(**from as usize)).count()
            };
            let unmet = count(&|from| self.table.all_hot()[from].kind() != Kind::Done);
            let counted = self.table.unmet(number);
            if unmet != counted as usize {
                faults.push(format!("`{task}` waits for {unmet} tasks, counted {counted}"));
            }
            let blocking = count(&|from| dead[from]);
            let counted = self.table.dead(number);
            if blocking != counted as usize {
                faults.push(format!("{blocking} tasks block `{task}`, counted {counted}"));
            }
            blocked += u32::from(blocking > 0 && !hot.kind().is_settled());
            if matches!(hot.kind(), Kind::Leased | Kind::Stopping) && unmet > 0 {
                faults.push(format!("`{task}` runs before what it depends on is done"));
            }
        }
        if blocked != self.index.blocked {
            faults.push(format!("{blocked} tasks are blocked, counted {}", self.index.blocked));
        }
    }

    /// Each ready task is in one place, where it says, under its key; each timer is there.
    fn audit_queues(&self, faults: &mut Vec<String>) {
        self.index.audit_turns(faults);
        let mut queued = vec![NONE; self.table.len()];
        for (number, class) in (0_u32..).zip(&self.index.classes) {
            for (place, (key, task)) in class.ready.entries() {
                let fits = self.class_of(task) == Some(number)
                    && self.table.places.of(task) == place
                    && key == key_of(self.table.hot(task))
                    && self.index.locks.waits_in(task).is_none();
                if !fits || queued[task as usize] != NONE {
                    faults.push(format!("task {task} is not as class {number} has it"));
                }
                queued[task as usize] = number;
            }
        }
        let wide = (0_u32..).zip(self.table.all_hot()).filter(|(number, hot)| {
            let class = hot.class(self.specs.profile(hot.profile()));
            let of_class = class.and_then(|class| self.index.wide.get(&class));
            let is_there = of_class.is_some_and(|wide| wide.contains(&(hot.since(), *number)));
            self.table.is_ready(*number) && is_there
        });
        if wide.count() != self.index.wide.values().map(BTreeSet::len).sum::<usize>() {
            faults.push(format!("{:?} need much and are not all ready", self.index.wide));
        }
        let mut timers = 0;
        for (number, hot) in (0_u32..).zip(self.table.all_hot()) {
            let is_queued = queued[number as usize] != NONE;
            let is_parked = self.index.locks.waits_in(number).is_some();
            let class = hot.class(self.specs.profile(hot.profile()));
            let is_ready = self.table.is_ready(number);
            let budget = self.specs.budget(number);
            let is_overdrawn = is_ready
                && class.is_some_and(|class| self.index.is_overdrawn(hot.spent(), class, budget));
            if is_overdrawn != self.index.overdrawn.contains(&number) {
                faults.push(format!("task {number} can pay, or cannot, and is taken otherwise"));
            }
            let is_due = is_ready && !is_overdrawn;
            if is_due != (is_queued || is_parked) || (is_queued && is_parked) {
                faults.push(format!("task {number} is ready or not, but queued otherwise"));
            }
            if hot.kind() == Kind::Deferred {
                let deferred = self.table.view(number).detail().deferred;
                let is_there = |(until, _)| self.index.timers.contains(&(until, number));
                timers += usize::from(deferred.is_some_and(is_there));
            }
        }
        let deferred = self.run.as_ref().map_or(0, |run| run.counts.deferred as usize);
        if timers != deferred || timers != self.index.timers.len() {
            let counted = self.index.timers.len();
            faults.push(format!("{deferred} tasks wait for a time, {timers} of {counted} timers"));
        }
    }

    /// Permits in use are those of the live leases, and each of these has its hard stop.
    fn audit_leases(&self, faults: &mut Vec<String>) {
        let mut used = vec![Used::default(); self.index.used.len()];
        let mut begun = 0;
        let (mut live, mut stopping) = (Vec::new(), Vec::new());
        for (number, hot) in (0_u32..).zip(self.table.all_hot()) {
            begun += u32::from(hot.attempt() > 0);
            if hot.stage() > 0 && !hot.kind().is_settled() {
                let first = self.profile(number).fresh;
                for (pool, _) in &self.index.classes[first as usize].needs {
                    used[*pool as usize].in_flight += 1;
                }
            }
            match hot.kind() {
                Kind::Leased => live.push(number),
                Kind::Stopping => stopping.push(number),
                Kind::Open | Kind::Deferred | Kind::Done | Kind::Escalated | Kind::Cancelled => {
                    continue;
                }
            }
            let reserved = self.table.view(number).hold().map(|hold| hold.reserved);
            for (pool, permits) in self.class(number).iter().flat_map(|class| &class.needs) {
                let used = &mut used[*pool as usize];
                used.permits = used.permits.saturating_add(*permits);
                used.reserved = used.reserved.plus(reserved.unwrap_or_default());
            }
        }
        if used != self.index.used || begun != self.index.begun {
            let index = (&self.index.used, self.index.begun);
            faults.push(format!("{used:?} is held, {begun} are begun, counted {index:?}"));
        }
        let stops = self.index.hard_stops.entries();
        let mut placed: Vec<u32> = Vec::new();
        for (place, (stop, lease)) in stops {
            match self.table.lease(lease) {
                Some(lease) if lease.place == place && Stop::of(&lease.hold) == stop => {
                    placed.push(lease.task);
                }
                _ => faults.push(format!("hard stop {place} is of no lease")),
            }
        }
        placed.sort_unstable();
        if placed != live || !self.index.stopping.iter().eq(&stopping) {
            let index = &self.index.stopping;
            faults.push(format!("live {live:?} as {placed:?}, stopping {stopping:?} as {index:?}"));
        }
    }

    fn audit_scopes(&self, faults: &mut Vec<String>) {
        let all = (0_u32..).zip(self.table.all_hot());
        let holders: Vec<u32> =
            all.filter(|(_, hot)| hot.holds_scope()).map(|(number, _)| number).collect();
        for holder in &holders {
            for other in self.scope_holders(*holder) {
                let (one, two) = (self.specs.id(*holder), self.specs.id(other));
                faults.push(format!("`{one}` and `{two}` hold overlapping scopes"));
            }
        }
        self.index.locks.audit(holders.into_iter(), faults);
    }

    /// The whole state as records; what [`Engine::restore`] takes.
    ///
    /// `None` before the run is created.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let run = self.run.clone()?;
        let body = |entry: &PlanRef| self.bodies.get(&entry.blob).map(Body::canonical);
        Some(Snapshot {
            seq: self.seq,
            plans: run.plans.iter().map(|entry| body(entry).unwrap_or_default()).collect(),
            run,
            tasks: self.tasks().collect(),
            pools: self.pools.values().cloned().collect(),
            owners: self.owners.values().cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::{Event, EventKind};
    use crate::id::{BlobHash, RunId};
    use crate::plan::Plan;
    use crate::retry::RetryRules;
    use crate::time::Timestamp;

    /// An engine with two tasks that are ready, each of a kind of its own.
    fn with_tasks() -> Engine {
        const TASKS: &str = r#"{"defaults": {"verify": "true"},
            "tasks": [{"id": "a"}, {"id": "b", "model": "m"}]}"#;
        let run = RunId::parse("run").unwrap();
        let mut engine = Engine::new(run.clone());
        let plan = Plan::parse(TASKS).unwrap();
        let blob = BlobHash::of(&serde_json::to_vec(&plan).unwrap());
        engine.offer(Arc::new(plan));
        let created = EventKind::RunCreated { run, rules: RetryRules::default() };
        for kind in [created, EventKind::PlanAdded { plan: blob, tasks: 2 }] {
            engine.evolve(&Event { at: Timestamp(1), kind });
        }
        assert_eq!(engine.audit(), [""; 0]);
        engine
    }

    #[test]
    fn what_is_counted_or_noted_beside_the_records_is_looked_at() {
        let spoil: [fn(&mut Engine); 4] = [
            |engine| engine.index.in_turn.iter_mut().for_each(|turn| turn.ready ^= 1),
            |engine| engine.index.in_turn.reverse(),
            |engine| engine.table.set_order(0, 7),
            |engine| engine.table.set_profile(0, 1 - engine.table.hot(0).profile()),
        ];
        for (at, spoil) in spoil.into_iter().enumerate() {
            let mut engine = with_tasks();
            spoil(&mut engine);
            assert_ne!(engine.audit(), [""; 0], "what {at} spoils");
        }
    }
}
