//! The tables that records are kept in, and the statements that follow from their columns.

use std::sync::LazyLock;

/// A table and its columns, in the order in which rows are read and written.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// What a record replaces the one before it by.
    key: &'static [&'static str],
    /// What a record that replaces another has in common with it besides: as long as no index sees a
    /// new value, SQLite leaves the indexes alone.
    stays: &'static [&'static str],
    columns: &'static [&'static str],
}

impl Table {
    /// Writes a record; no row where what stays is not the same.
    fn upsert(&self) -> String {
        let Self { name, key, stays, columns } = self;
        let places: Vec<String> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
        let changes = columns.iter().filter(|name| !key.contains(name) && !stays.contains(name));
        let sets: Vec<String> = changes.map(|name| format!("{name} = excluded.{name}")).collect();
        let same: Vec<String> =
            stays.iter().map(|column| format!("{name}.{column} = excluded.{column}")).collect();
        let only =
            if same.is_empty() { String::new() } else { format!(" WHERE {}", same.join(" AND ")) };
        format!(
            "INSERT INTO {name} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}{only}",
            columns.join(", "),
            places.join(", "),
            key.join(", "),
            sets.join(", "),
        )
    }

    /// Writes a record that is new, with a number of its own as the last value.
    fn insert(&self, number: &str) -> String {
        let places: Vec<String> =
            (0..=self.columns.len()).map(|at| format!("?{}", at + 1)).collect();
        let columns = self.columns.join(", ");
        format!("INSERT INTO {} ({columns}, {number}) VALUES ({})", self.name, places.join(", "))
    }

    /// How many columns of a record are read.
    pub(crate) const fn columns_read(&self) -> usize {
        self.columns.len() - 1
    }

    /// Selects all columns of a record, its name first and without its run's number.
    fn select(&self, which: &str) -> String {
        let columns: Vec<&str> =
            self.columns.iter().copied().filter(|name| *name != "run").collect();
        format!("SELECT {} FROM {} WHERE {which}", columns.join(", "), self.name)
    }
}

pub(crate) const RUNS: Table = Table {
    name: "runs",
    key: &["id"],
    stays: &[],
    columns: &[
        "id",
        "seq",
        "state",
        "state_reason",
        "budget_micros",
        "spent_micros",
        "reserved_micros",
        "last_at_ms",
        "last_token",
        "driver",
        "open",
        "deferred",
        "leased",
        "stopping",
        "done",
        "escalated",
        "cancelled",
        "first_stage_failures",
        "rules",
        "anchor",
        "passed_over",
        "pilot",
    ],
};

pub(crate) const PLANS: Table = Table {
    name: "plans",
    key: &["run", "position"],
    stays: &[],
    columns: &["position", "run", "hash", "tasks"],
};

pub(crate) const TASKS: Table = Table {
    name: "tasks",
    key: &["run", "place"],
    stays: &["id"],
    columns: &[
        "id",
        "run",
        "place",
        "stage",
        "attempt",
        "under_way",
        "rejections",
        "rounds",
        "interruptions",
        "deferrals",
        "dispatches",
        "extra_retries",
        "extra_dispatches",
        "extra_deferrals",
        "feedback",
        "signature",
        "restart",
        "holds_scope",
        "workspace_token",
        "session",
        "candidate_change",
        "candidate_base",
        "intent_onto",
        "intent_merged",
        "last_token",
        "content",
        "settled_micros",
        "unheard",
        "refused_token",
        "spent_micros",
        "since_ms",
        "phase",
        "deferred_until_ms",
        "why",
        "lease_token",
        "lease_owner",
        "lease_granted_at_ms",
        "lease_hard_stop_ms",
        "lease_reserved_micros",
        "completion",
        "merged_change",
        "cause",
        "cause_text",
        "kept",
    ],
};

pub(crate) const POOLS: Table = Table {
    name: "pools",
    key: &["run", "name"],
    stays: &[],
    columns: &[
        "name",
        "run",
        "permits",
        "closed_until_ms",
        "budget_micros",
        "spent_micros",
        "in_flight_max",
    ],
};

pub(crate) const OWNERS: Table = Table {
    name: "owners",
    key: &["run", "id"],
    stays: &[],
    columns: &[
        "id",
        "run",
        "host",
        "boot_id",
        "pid",
        "start_time",
        "touched_at_ms",
        "ttl_ms",
        "ended",
    ],
};

/// Statements made once.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) run: String,
    pub(crate) plans: String,
    pub(crate) tasks: String,
    pub(crate) task: String,
    pub(crate) task_at: String,
    pub(crate) pools: String,
    pub(crate) owners: String,
    pub(crate) new_run: String,
    pub(crate) put_run: String,
    pub(crate) put_plan: String,
    pub(crate) put_task: String,
    pub(crate) put_pool: String,
    pub(crate) put_owner: String,
}

pub(crate) static SQL: LazyLock<Statements> = LazyLock::new(|| Statements {
    run: RUNS.select("id = ?1"),
    plans: PLANS.select("run = ?1 ORDER BY position"),
    tasks: TASKS.select("run = ?1 ORDER BY place"),
    task: TASKS.select("run = ?1 AND id = ?2"),
    task_at: TASKS.select("run = ?1 AND place = ?2"),
    pools: POOLS.select("run = ?1 ORDER BY name"),
    owners: OWNERS.select("run = ?1 ORDER BY id"),
    new_run: RUNS.insert("run"),
    put_run: RUNS.upsert(),
    put_plan: PLANS.upsert(),
    put_task: TASKS.upsert(),
    put_pool: POOLS.upsert(),
    put_owner: OWNERS.upsert(),
});
