//! The figures besides the cost of a completed task.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{Plan, TaskSpec};
use serde::Deserialize;

use crate::clock::Stopwatch;
use crate::graphs::{self, AT_ONCE, Graph, id, pool, scope};
use crate::memory;
use crate::subject::{Granted, Subject};

/// Longest that one measurement goes on; it counts what was done until then.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is under way, first come first: as lean as can be, since it is measured with the engine.
struct Live {
    ring: [Granted; AT_ONCE as usize],
    first: usize,
    len: usize,
}

impl Live {
    fn new() -> Self {
        Self { ring: [Granted::NONE; AT_ONCE as usize], first: 0, len: 0 }
    }

    fn has_room(&self) -> bool {
        self.len < self.ring.len()
    }

    fn push(&mut self, grant: Granted) {
        self.ring[(self.first + self.len) % AT_ONCE as usize] = grant;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Granted> {
        self.len = self.len.checked_sub(1)?;
        let grant = self.ring[self.first % AT_ONCE as usize];
        self.first += 1;
        Some(grant)
    }
}

/// Completes all tasks as one does who has room for [`AT_ONCE`] stages, and asks for another one when
/// there is room: a result and the next grant, again and again; the time of each task.
pub(crate) fn drain(mut subject: Subject, stages: u32, tasks: u32) -> f64 {
    let mut live = Live::new();
    let begun = Stopwatch::start();
    let mut ended = 0_u32;
    loop {
        while live.has_room()
            && let Some(grant) = subject.claim()
        {
            live.push(grant);
        }
        let Some(grant) = live.pop() else {
            assert_eq!(ended, stages * tasks, "the engine did not finish");
            break;
        };
        subject.pass(grant);
        subject.accept();
        ended += 1;
        if ended.is_multiple_of(1_024) && begun.elapsed() > PATIENCE * 4 {
            break;
        }
    }
    per(begun.elapsed(), ended) * f64::from(stages)
}

/// Nanoseconds for each of so many.
pub(crate) fn per(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e9 / f64::from(count.max(1))
}

/// Bytes for each task beyond its specification, when half of them are done.
pub(crate) fn bytes_per_task(graph: &Graph) -> f64 {
    let tasks = u32::try_from(graph.len()).expect("fewer than 2^32 tasks");
    let before = memory::in_use();
    let plan = Arc::new(graphs::plan(graph, false));
    let of_plan = memory::in_use() - before;
    let mut subject = Subject::with(plan);
    let mut live: VecDeque<Granted> = VecDeque::new();
    for _ in 0..tasks / 2 {
        while let Some(grant) = subject.claim() {
            live.push_back(grant);
        }
        if let Some(grant) = live.pop_front() {
            subject.pass(grant);
        }
        subject.accept();
    }
    drop(live);
    let state = (memory::in_use() - before).saturating_sub(of_plan);
    #[expect(clippy::cast_precision_loss, reason = "a figure to be read")]
    let state = state as f64;
    state / f64::from(tasks)
}

/// A task as a program reads it that only wants the data.
#[derive(Deserialize)]
struct PlainTask {
    id: String,
    depends_on: Vec<String>,
    verify: String,
}

/// What the plain parse of a plan's text takes, and adding the plan to a run. The plan is made by a
/// program: the text of a million tasks is over the limits of a text.
pub(crate) fn adding(graph: &Graph) -> [Duration; 2] {
    let plain = plain_parse(&text(graph));
    let plan = Arc::new(graphs::plan(graph, true));
    let mut subject = Subject::new();
    let begun = Stopwatch::start();
    subject.add(plan);
    [plain, begun.elapsed()]
}

/// What the plain parse of a plan's text takes, and its parse as a plan.
pub(crate) fn parsing(graph: &Graph) -> [Duration; 2] {
    let text = text(graph);
    let plain = plain_parse(&text);
    let begun = Stopwatch::start();
    let plan = Plan::parse(&text);
    let parse = begun.elapsed();
    assert_eq!(plan.map(|plan| plan.tasks.len()), Ok(graph.len()));
    [plain, parse]
}

fn text(graph: &Graph) -> String {
    let tasks = graph.iter().enumerate().map(|(task, dependencies)| {
        let names: Vec<String> =
            dependencies.iter().map(|from| format!("\"task-{from}\"")).collect();
        let names = names.join(",");
        format!("{{\"id\":\"task-{task}\",\"depends_on\":[{names}],\"verify\":\"true\"}}")
    });
    format!("[{}]", tasks.collect::<Vec<_>>().join(",\n"))
}

fn plain_parse(text: &str) -> Duration {
    let begun = Stopwatch::start();
    let plain: Vec<PlainTask> = serde_json::from_str(text).expect("valid JSON");
    let time = begun.elapsed();
    let read = plain.iter().map(|task| task.id.len() + task.depends_on.len() + task.verify.len());
    assert!(read.sum::<usize>() > plain.len());
    time
}

/// What it costs each task below one that escalates, and below one that is tried again.
pub(crate) fn cascade(tasks: u32) -> [f64; 2] {
    let mut subject = Subject::with(Arc::new(graphs::plan(&graphs::tree(tasks), false)));
    let root = subject.claim().expect("the root can run");
    subject.accept();
    let begun = Stopwatch::start();
    subject.ask(root);
    let there = begun.elapsed();
    assert_eq!(subject.blocked(), tasks - 1, "all below the root are blocked");
    subject.accept();
    let begun = Stopwatch::start();
    subject.retry(id(0));
    let back = begun.elapsed();
    assert_eq!(subject.blocked(), 0);
    [per(there, tasks), per(back, tasks)]
}

fn independent(tasks: u32, change: impl Fn(u32, &mut TaskSpec)) -> Plan {
    let mut plan = graphs::plan(&vec![Vec::new(); tasks as usize], false);
    for (task, spec) in (0_u32..).zip(&mut plan.tasks) {
        change(task, spec);
    }
    plan
}

/// A completion with its next claim, once every task that cannot run has been looked at.
fn completions(subject: &mut Subject, mut live: VecDeque<Granted>) -> f64 {
    while let Some(grant) = subject.claim() {
        live.push_back(grant);
    }
    subject.accept();
    let begun = Stopwatch::start();
    let mut pairs = 0;
    while pairs < 2_000 && begun.elapsed() < PATIENCE {
        let Some(grant) = live.pop_front() else { break };
        subject.pass(grant);
        live.extend(subject.claim());
        subject.accept();
        pairs += 1;
    }
    assert!(pairs > 0, "nothing could run");
    per(begun.elapsed(), pairs)
}

/// A claim that nothing can be granted for: the room for stages is taken, and tasks are ready.
pub(crate) fn nothing_granted(tasks: u32) -> f64 {
    const POLLS: u32 = 10_000;
    let mut subject = Subject::with(Arc::new(independent(tasks, |_, _| {})));
    while subject.claim().is_some() {}
    subject.accept();
    let begun = Stopwatch::start();
    for _ in 0..POLLS {
        assert!(subject.claim().is_none(), "there was room");
    }
    per(begun.elapsed(), POLLS)
}

/// Ready tasks of which nine in ten, and the first in order, wait for scopes that 16 others hold.
pub(crate) fn held_scopes(tasks: u32) -> f64 {
    let plan = independent(tasks, |task, spec| {
        let (folder, is_holder) = (task % 16, task < 16);
        if is_holder || !task.is_multiple_of(10) {
            spec.scope = scope(&format!("folder-{folder}"));
            spec.priority = if is_holder { 2 } else { 1 };
        }
    });
    let mut subject = Subject::with(Arc::new(plan));
    // Their holders never end.
    for _ in 0..16 {
        assert!(subject.claim().is_some(), "a holder cannot run");
    }
    completions(&mut subject, VecDeque::new())
}

/// Tasks that share 16 scopes.
pub(crate) fn shared_scopes(tasks: u32) -> f64 {
    let plan =
        independent(tasks, |task, spec| spec.scope = scope(&format!("folder-{}", task % 16)));
    drain(Subject::with(Arc::new(plan)), 1, tasks)
}

/// Ready tasks, the first in order, that need a pool which one of them has used up.
pub(crate) fn full_pool(tasks: u32) -> f64 {
    let mut plan = independent(tasks + tasks / 10, |task, spec| {
        if task < tasks {
            spec.needs.insert(pool("gpu"), NonZeroU32::MIN);
            spec.priority = 1;
        }
    });
    plan.pools.insert(pool("gpu"), 1);
    plan.pools.insert(pool("agents"), AT_ONCE);
    let mut subject = Subject::with(Arc::new(plan));
    assert!(subject.claim().is_some(), "the first cannot run");
    completions(&mut subject, VecDeque::new())
}
