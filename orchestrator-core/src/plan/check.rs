//! Checks a plan as a whole: names, dependencies, permits.

use std::collections::BTreeSet;
use std::hash::RandomState;

use super::cycle::shortest_cycles;
use super::links::Links;
use super::nearest::Nearest;
use super::{Plan, PlanFault};
use crate::id::{PoolName, TaskId};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::pipeline::{Pipeline, StageKind, StageSpec};
use crate::task::{TaskSpec, VerifyCommand};

/// Where in a plan a fault is: a task by its place in the list, and a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) task: usize,
    pub(crate) part: Part,
}

/// A part of a task, in the order in which faults are told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Id,
    Dependency(usize),
    Pipeline,
    Needs(PoolName),
    Budget,
    Verify,
}

/// All faults of the plan with their places, ordered by those; and its dependencies, which are sound
/// when there are none. `known` gives the number of a task of the run, and `also` gets all tasks,
/// some at a time.
pub(crate) fn check(
    plan: &Plan,
    hasher: &RandomState,
    known: &dyn Fn(&TaskId) -> Option<u32>,
    also: &mut dyn FnMut(&[TaskSpec]),
) -> (Links, Vec<(Place, PlanFault)>) {
    let look_up = |also: &mut dyn FnMut(&[TaskSpec])| Links::new(plan, hasher, known, also);
    let (links, faults) = with_stages(plan, also, look_up);
    let mut check = Check { plan, known, links, faults };
    if !check.links.are_sound() {
        check.names();
        check.dependencies();
        check.cycles();
    }
    check.faults.sort_by(|(one, _), (two, _)| one.cmp(two));
    (check.links, check.faults)
}

/// All faults of the plan with their places, ordered by those.
pub(crate) fn faults(plan: &Plan, known: &dyn Fn(&TaskId) -> bool) -> Vec<(Place, PlanFault)> {
    check(plan, &RandomState::new(), &|id| known(id).then_some(0), &mut |_| {}).1
}

/// Whether there is no fault in the plan.
pub(crate) fn is_sound(plan: &Plan, known: &dyn Fn(&TaskId) -> bool) -> bool {
    let known = |id: &TaskId| known(id).then_some(0);
    let look_up = |also: &mut dyn FnMut(&[TaskSpec])| {
        Links::are_sound_of(plan, &RandomState::new(), &known, also)
    };
    let (is_sound, faults) = with_stages(plan, &mut |_| {}, look_up);
    is_sound && faults.is_empty()
}

/// Looks up the names of the plan; what is wrong with the stages of its tasks is found on the way.
fn with_stages<T>(
    plan: &Plan,
    also: &mut dyn FnMut(&[TaskSpec]),
    look_up: impl FnOnce(&mut dyn FnMut(&[TaskSpec])) -> T,
) -> (T, Vec<(Place, PlanFault)>) {
    let built_in = Pipeline::default();
    let default = plan.default_pipeline().unwrap_or(&built_in);
    let mut stages = Stages { plan, default, at: 0, faults: Vec::new() };
    let found = look_up(&mut |tasks| {
        tasks.iter().for_each(|spec| stages.check(spec));
        also(tasks);
    });
    (found, stages.faults)
}

/// Dependencies up to which each is held against those before it.
const FEW: usize = 16;

/// Whether the entry of this place says what an earlier one says; `seen` are the earlier ones, where
/// there are many.
fn is_repeated<'a>(list: &'a [TaskId], entry: usize, seen: &mut BTreeSet<&'a TaskId>) -> bool {
    if list.len() <= FEW {
        list[..entry].contains(&list[entry])
    } else {
        !seen.insert(&list[entry])
    }
}

struct Check<'a> {
    plan: &'a Plan,
    known: &'a dyn Fn(&TaskId) -> Option<u32>,
    links: Links,
    faults: Vec<(Place, PlanFault)>,
}

impl Check<'_> {
    fn fault(&mut self, task: usize, part: Part, fault: PlanFault) {
        self.faults.push((Place { task, part }, fault));
    }

    /// Where in the list a task of this id stands first.
    fn place(&self, id: &TaskId) -> Option<usize> {
        self.links.place(&self.plan.tasks, id).map(|place| place as usize)
    }

    fn names(&mut self) {
        for (at, task) in self.plan.tasks.iter().enumerate() {
            if self.place(&task.id) != Some(at) {
                self.fault(at, Part::Id, PlanFault::DuplicateTask { task: task.id.clone() });
            } else if (self.known)(&task.id).is_some() {
                self.fault(at, Part::Id, PlanFault::KnownTask { task: task.id.clone() });
            }
        }
    }

    fn dependencies(&mut self) {
        let mut nearest = Nearest::default();
        for (at, spec) in self.plan.tasks.iter().enumerate() {
            let mut seen = BTreeSet::new();
            for (entry, dependency) in spec.depends_on.iter().enumerate() {
                let named = || (spec.id.clone(), dependency.clone());
                let fault = if is_repeated(&spec.depends_on, entry, &mut seen) {
                    let (task, dependency) = named();
                    PlanFault::RepeatedDependency { task, dependency }
                } else if *dependency == spec.id {
                    PlanFault::SelfDependency { task: spec.id.clone() }
                } else if self.place(dependency).is_none() && (self.known)(dependency).is_none() {
                    let all = self.plan.tasks.iter().map(|other| &other.id);
                    let others = all.filter(|id| **id != spec.id);
                    let nearest = nearest
                        .find(dependency.as_str(), others.map(TaskId::as_str))
                        .and_then(|id| TaskId::parse(id).ok());
                    let (task, dependency) = named();
                    PlanFault::UnknownDependency { task, dependency, nearest }
                } else {
                    continue;
                };
                if !is_unseen(&fault) {
                    self.fault(at, Part::Dependency(entry), fault);
                }
            }
        }
    }

    /// Tasks of the run exist already and so depend on none of these: a circle is within the plan.
    fn cycles(&mut self) {
        let tasks = &self.plan.tasks;
        let place = |id: &TaskId| self.links.place(tasks, id).map(|place| place as usize);
        let edges: Vec<Vec<usize>> =
            tasks.iter().map(|task| task.depends_on.iter().filter_map(place).collect()).collect();
        for cycle in shortest_cycles(&edges) {
            if is_on(Mutant::LongCycleUnseen) && cycle.len() > 2 {
                continue;
            }
            let (Some(at), Some(next)) = (cycle.first(), cycle.get(1)) else { continue };
            let entry = tasks[*at].depends_on.iter().position(|id| place(id) == Some(*next));
            let ids = cycle.iter().map(|at| tasks[*at].id.clone()).collect();
            let part = Part::Dependency(entry.unwrap_or(0));
            self.faults.push((Place { task: *at, part }, PlanFault::Cycle { tasks: ids }));
        }
    }
}

/// Checks what the tasks, one after the other, say of their stages.
struct Stages<'a> {
    plan: &'a Plan,
    default: &'a Pipeline,
    /// The place of the next task.
    at: usize,
    faults: Vec<(Place, PlanFault)>,
}

impl Stages<'_> {
    fn fault(&mut self, part: Part, fault: PlanFault) {
        self.faults.push((Place { task: self.at, part }, fault));
    }

    /// Checks the next task.
    fn check(&mut self, spec: &TaskSpec) {
        if let Some(pipeline) = self.plan.named_pipeline(spec, self.default) {
            self.check_with(spec, pipeline);
        } else if let Some(pipeline) = spec.pipeline.clone()
            && !is_on(Mutant::UnknownPipelineIsDefault)
        {
            let task = spec.id.clone();
            self.fault(Part::Pipeline, PlanFault::UnknownPipeline { task, pipeline });
        }
        self.at += 1;
    }

    fn check_with(&mut self, spec: &TaskSpec, pipeline: &Pipeline) {
        for (pool, own) in &spec.needs {
            let Some(limit) = self.plan.pools.get(pool).copied() else { continue };
            if own.get() > limit && !is_on(Mutant::NeedsBeyondLimitTaken) {
                let (task, pool) = (spec.id.clone(), pool.clone());
                let (part, needs) = (Part::Needs(pool.clone()), own.get());
                self.fault(part, PlanFault::NeedsTooMuch { task, pool, needs, limit });
            }
        }
        let has = |is_it: fn(&StageSpec) -> bool| pipeline.stages().iter().any(is_it);
        if spec.budget == Some(Usd::ZERO) && has(|stage| stage.cap > Usd::ZERO) {
            self.fault(Part::Budget, PlanFault::NoBudget { task: spec.id.clone() });
        }
        let verifies =
            |stage: &StageSpec| stage.kind == StageKind::Verify && stage.command.is_none();
        if spec.verify.as_ref().is_none_or(VerifyCommand::is_empty) && has(verifies) {
            self.fault(Part::Verify, PlanFault::NoVerifyCommand { task: spec.id.clone() });
        }
    }
}

fn is_unseen(fault: &PlanFault) -> bool {
    (is_on(Mutant::UnknownDependencyIsMet) && matches!(fault, PlanFault::UnknownDependency { .. }))
        || (is_on(Mutant::SelfDependencyUnseen)
            && matches!(fault, PlanFault::SelfDependency { .. }))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::id::PipelineName;

    fn id(text: &str) -> TaskId {
        TaskId::parse(text).unwrap()
    }

    fn task(name: &str, depends_on: &[&str]) -> TaskSpec {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec
    }

    fn plan(tasks: Vec<TaskSpec>) -> Plan {
        Plan { tasks, ..Plan::default() }
    }

    fn messages(plan: &Plan, known: &[&str]) -> Vec<String> {
        let known = |id: &TaskId| known.contains(&id.as_str());
        plan.check(&known).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plan_that_may_depend_on_tasks_of_the_run_is_clean() {
        let plan = plan(vec![task("b", &["a"]), task("c", &["b", "a"])]);
        assert_eq!(messages(&plan, &["a"]), [""; 0]);
    }

    #[test]
    fn p3_all_faults_of_names_and_dependencies_are_told_in_order() {
        let plan = plan(vec![
            task("a", &["a", "http-typs"]),
            task("http-types", &["z", "z"]),
            task("a", &[]),
            task("old", &[]),
        ]);
        assert_eq!(
            messages(&plan, &["old", "z"]),
            [
                "task `a` depends on itself",
                "task `a` depends on `http-typs`, which does not exist; is `http-types` meant?",
                "task `http-types` depends on `z` twice",
                "task `a` is there twice",
                "task `old` is in the run already",
            ]
        );
    }

    #[test]
    fn p3_the_shortest_circle_of_each_knot_is_told() {
        let plan = plan(vec![
            task("x", &["y"]),
            task("a", &["b"]),
            task("b", &["c"]),
            task("c", &["a", "b"]),
            task("y", &["x"]),
        ]);
        assert_eq!(
            messages(&plan, &[]),
            [
                "tasks depend on each other in a circle: x → y → x",
                "tasks depend on each other in a circle: b → c → b",
            ]
        );
    }

    #[test]
    fn a_long_circle_is_told_in_part() {
        let name = |at: usize| format!("t{at}");
        let tasks = (0..100_000).map(|at| task(&name(at), &[&name((at + 1) % 100_000)])).collect();
        let told = messages(&plan(tasks), &[]);
        assert_eq!(told.len(), 1);
        assert!(told[0].ends_with("t19 → … (99980 more) → t0"), "{}", told[0]);
    }

    #[test]
    fn a_chain_of_100_000_tasks_and_as_many_wrong_names_are_checked_in_bounded_time() {
        let name = |at: usize| format!("t{at}");
        let mut tasks: Vec<TaskSpec> =
            (0..100_000).map(|at| task(&name(at), &[&name(at + 1)])).collect();
        assert_eq!(messages(&plan(tasks.clone()), &["t100000"]), [""; 0]);
        for spec in &mut tasks {
            spec.depends_on = vec![id("nothing-like-it")];
        }
        assert_eq!(messages(&plan(tasks), &[]).len(), 100_000);
    }

    #[test]
    fn pipelines_permits_and_verify_commands_are_checked() {
        let mut tasks: Vec<TaskSpec> =
            ["a", "b", "c", "d", "e", "f"].iter().map(|name| task(name, &[])).collect();
        let gpu = PoolName::parse("gpu").unwrap();
        let agents = PoolName::parse("agents").unwrap();
        tasks[0].pipeline = PipelineName::parse("missing").ok();
        tasks[1].needs = [(gpu.clone(), NonZeroU32::new(3).unwrap())].into();
        tasks[1].verify = Some(VerifyCommand::Argv(vec![]));
        tasks[2].needs = [(agents.clone(), NonZeroU32::new(2).unwrap())].into();
        tasks[3].pipeline = PipelineName::parse("default").ok();
        tasks[4].pipeline = PipelineName::parse("bare").ok();
        tasks[4].verify = None;
        tasks[5].verify = Some(VerifyCommand::Shell(" ".to_owned()));
        let mut plan = plan(tasks);
        plan.pools = [(gpu, 2), (agents, 2)].into();
        let bare = Pipeline::new(vec![StageSpec::of(StageKind::Run)]).unwrap();
        plan.pipelines = [(PipelineName::parse("bare").unwrap(), bare)].into();
        assert_eq!(
            messages(&plan, &[]),
            [
                "task `a` names pipeline `missing`, which the plan does not have",
                "task `b` needs 3 permits of pool `gpu`, which has 2",
                "task `b` has no `verify` command, but its pipeline verifies",
                "task `f` has no `verify` command, but its pipeline verifies",
            ]
        );
    }
}
