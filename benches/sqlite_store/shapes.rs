//! The graphs in which tasks are claimed: for each task the tasks that it depends on.

pub(crate) type Graph = Vec<Vec<u32>>;

/// A way to make a graph of so many tasks.
pub(crate) type Shape = fn(u32) -> Graph;

pub(crate) const SHAPES: [(&str, Shape); 4] =
    [("chain", chain), ("fan_out", fan_out), ("layered_shuffled", layered), ("diamonds", diamonds)];

/// Each task depends on the one before it.
fn chain(tasks: u32) -> Graph {
    (0..tasks).map(|task| task.checked_sub(1).into_iter().collect()).collect()
}

/// All others depend on the first.
fn fan_out(tasks: u32) -> Graph {
    (0..tasks).map(|task| (task > 0).then_some(0).into_iter().collect()).collect()
}

/// Layers of a hundred; each task depends on three of the layer before. They stand in an order of
/// chance.
fn layered(tasks: u32) -> Graph {
    const WIDTH: u32 = 100;
    let mut state = 1_u64;
    let mut below = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        u32::try_from((state >> 33) % u64::from(limit)).unwrap()
    };
    let mut place: Vec<u32> = (0..tasks).collect();
    for at in (1..tasks).rev() {
        place.swap(at as usize, below(at + 1) as usize);
    }
    let mut graph = vec![Vec::new(); tasks as usize];
    for task in WIDTH.min(tasks)..tasks {
        let layer = task / WIDTH - 1;
        let mut on: Vec<u32> =
            (0..3).map(|_| place[(layer * WIDTH + below(WIDTH)) as usize]).collect();
        on.sort_unstable();
        on.dedup();
        graph[place[task as usize] as usize] = on;
    }
    graph
}

/// One task, two that depend on it, one that depends on both, and so on.
fn diamonds(tasks: u32) -> Graph {
    let on = |task: u32| match task % 3 {
        0 if task == 0 => vec![],
        0 => vec![task - 2, task - 1],
        1 => vec![task - 1],
        _ => vec![task - 2],
    };
    (0..tasks).map(on).collect()
}

/// An order in which the tasks can be done.
pub(crate) fn in_order(graph: &Graph) -> Vec<u32> {
    let mut waits: Vec<usize> = graph.iter().map(Vec::len).collect();
    let mut dependents = vec![Vec::new(); graph.len()];
    for (task, on) in (0_u32..).zip(graph) {
        for dependency in on {
            dependents[*dependency as usize].push(task);
        }
    }
    let mut order: Vec<u32> =
        (0_u32..).zip(&waits).filter(|(_, waits)| **waits == 0).map(|(task, _)| task).collect();
    let mut at = 0;
    while let Some(task) = order.get(at).copied() {
        at += 1;
        for dependent in &dependents[task as usize] {
            waits[*dependent as usize] -= 1;
            if waits[*dependent as usize] == 0 {
                order.push(*dependent);
            }
        }
    }
    order
}
