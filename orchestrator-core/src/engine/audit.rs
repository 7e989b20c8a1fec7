//! Checks the engine against itself: everything computed must equal its computation from scratch.

use super::index::{Index, is_dead_end, lease};
use super::{Engine, canonical};
use crate::id::Seq;
use crate::money::Usd;
use crate::record::{Phase, Snapshot};

impl Engine {
    /// What does not add up; empty when all is well. Looks at every task.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let Some(run) = &self.run else { return faults };
        let mut index = Index::default();
        for (number, (entry, record)) in (0_u32..).zip(self.entries.iter().zip(&self.tasks)) {
            index.link(number, entry, record);
        }
        if index != self.index {
            faults.push(format!("the index is {:?}, computed anew {index:?}", self.index));
        }
        if run.counts != self.index.counts {
            faults.push(format!("the run counts {:?}, its index {:?}", run.counts, index.counts));
        }
        let held = self.tasks.iter().filter_map(|task| lease(&task.phase));
        let reserved: Usd = held.clone().map(|lease| lease.reserved).sum();
        if reserved != run.reserved {
            faults.push(format!("{} is reserved, the leases hold {reserved}", run.reserved));
        }
        let spent: Usd = self.tasks.iter().map(|task| task.spent).sum();
        if spent != run.spent {
            faults.push(format!("the run spent {}, its tasks {spent}", run.spent));
        }
        if let Some(token) = held.map(|lease| lease.token).find(|token| *token > run.last_token) {
            faults.push(format!("token {token} lives, and {} is the greatest", run.last_token));
        }
        self.audit_graph(&mut faults);
        self.audit_scopes(&mut faults);
        faults
    }

    /// Dependencies and cascade, by definition.
    fn audit_graph(&self, faults: &mut Vec<String>) {
        let mut dead = vec![false; self.tasks.len()];
        // A pass for each link of the longest chain reaches the least fixed point.
        loop {
            let mut changed = false;
            for (place, entry) in self.entries.iter().enumerate() {
                let phase = &self.tasks[place].phase;
                let blocked = entry.depends_on.iter().any(|from| dead[*from as usize]);
                let now = is_dead_end(phase) || (blocked && !matches!(phase, Phase::Done(_)));
                changed |= now != dead[place];
                dead[place] = now;
            }
            if !changed {
                break;
            }
        }
        for (place, entry) in self.entries.iter().enumerate() {
            let task = &self.tasks[place].id;
            let count = |test: &dyn Fn(usize) -> bool| {
                entry.depends_on.iter().filter(|from| test(**from as usize)).count()
            };
            let unmet = count(&|from| !matches!(self.tasks[from].phase, Phase::Done(_)));
            if unmet != entry.unmet as usize {
                faults.push(format!("`{task}` waits for {unmet} tasks, counted {}", entry.unmet));
            }
            let blocking = count(&|from| dead[from]);
            if blocking != entry.dead as usize {
                faults.push(format!("{blocking} tasks block `{task}`, counted {}", entry.dead));
            }
            let begun = lease(&self.tasks[place].phase).is_some();
            if begun && unmet > 0 {
                faults.push(format!("`{task}` runs before what it depends on is done"));
            }
        }
    }

    fn audit_scopes(&self, faults: &mut Vec<String>) {
        for holder in &self.index.scopes {
            let place = *holder as usize;
            if let Some(other) = self.scope_holder(*holder, &self.entries[place]) {
                let (one, two) = (&self.tasks[place].id, &self.tasks[other as usize].id);
                faults.push(format!("`{one}` and `{two}` hold overlapping scopes"));
            }
        }
    }

    /// The whole state as records; what [`Engine::restore`] takes.
    ///
    /// `None` before the run is created.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let run = self.run.clone()?;
        let body = |plan: &crate::record::PlanRef| {
            self.plans.get(&plan.blob).map(|plan| canonical(plan)).unwrap_or_default()
        };
        Some(Snapshot {
            seq: Seq(self.seq.0),
            plans: run.plans.iter().map(body).collect(),
            run,
            tasks: self.tasks.clone(),
            pools: self.pools.values().cloned().collect(),
            owners: self.owners.values().cloned().collect(),
        })
    }
}
