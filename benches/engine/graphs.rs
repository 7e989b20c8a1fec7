//! The plans that are measured.

use orchestrator_core::{
    Pipeline, Plan, PoolName, Scope, StageKind, StageSpec, TaskId, TaskSpec, VerifyCommand,
};

/// Stages under way at once.
pub(crate) const AT_ONCE: u32 = 64;

/// For each task the tasks that it depends on.
pub(crate) type Graph = Vec<Vec<u32>>;

/// Numbers from a seed, the same everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        u32::try_from((self.0 >> 33) % u64::from(limit.max(1))).unwrap_or(0)
    }
}

/// About three dependencies a task, each on one of the thousand tasks before it.
pub(crate) fn ordered(tasks: u32) -> Graph {
    let mut dice = Dice::new(1);
    let mut graph = vec![Vec::new()];
    for task in 1..tasks {
        let mut earlier: Vec<u32> =
            (0..3).map(|_| task - 1 - dice.below(task.min(1_000))).collect();
        earlier.sort_unstable();
        earlier.dedup();
        graph.push(earlier);
    }
    graph
}

/// The same graph with its tasks in an order of chance.
pub(crate) fn shuffled(tasks: u32) -> Graph {
    let mut dice = Dice::new(2);
    let mut place: Vec<u32> = (0..tasks).collect();
    for at in (1..tasks).rev() {
        place.swap(at as usize, dice.below(at + 1) as usize);
    }
    let mut graph = vec![Vec::new(); tasks as usize];
    for (task, dependencies) in ordered(tasks).into_iter().enumerate() {
        let renamed = dependencies.into_iter().map(|from| place[from as usize]);
        graph[place[task] as usize] = renamed.collect();
    }
    graph
}

/// One task that all others wait for.
pub(crate) fn star(dependents: u32) -> Graph {
    (0..=dependents).map(|task| if task == 0 { vec![] } else { vec![0] }).collect()
}

/// A tree below one task, in which each has two that wait for it.
pub(crate) fn tree(tasks: u32) -> Graph {
    (0..tasks).map(|task| if task == 0 { vec![] } else { vec![(task - 1) / 2] }).collect()
}

pub(crate) fn id(task: u32) -> TaskId {
    TaskId::parse(&format!("task-{task}")).expect("a valid id")
}

pub(crate) fn pool(name: &str) -> PoolName {
    PoolName::parse(name).expect("a valid name")
}

pub(crate) fn scope(path: &str) -> Option<Scope> {
    Scope::parse([path]).ok()
}

/// A plan of this graph in which each task goes through a `run` stage, or through all four.
pub(crate) fn plan(graph: &Graph, four_stages: bool) -> Plan {
    let mut plan = Plan::default();
    for (task, dependencies) in (0_u32..).zip(graph) {
        let mut spec = TaskSpec::new(id(task));
        spec.depends_on = dependencies.iter().copied().map(id).collect();
        if four_stages {
            spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        }
        plan.tasks.push(spec);
    }
    if four_stages {
        plan.pools.insert(pool("verify"), AT_ONCE);
        plan.pools.insert(pool("integrate"), AT_ONCE);
    } else {
        let run = Pipeline::new(vec![StageSpec::of(StageKind::Run)]).expect("a valid pipeline");
        plan.pipelines.insert("default".parse().expect("a valid name"), run);
    }
    plan.pools.insert(pool("agents"), AT_ONCE);
    plan
}
