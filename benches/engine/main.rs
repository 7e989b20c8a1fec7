//! What the engine costs, beside the leanest loop that could do the same and beside one of maps.
//!
//! `cargo bench -p benches --bench engine` prints `name: value` a line: medians of interleaved runs
//! in one process, in time on the processor, so that the figures hold on a noisy machine. A completed task is a result and the
//! next grant; graphs have about three dependencies a task. `-- --up-to 10000 --runs 3` is a short
//! form; `--only NAME` prints figures whose group begins with that.
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::expect_used, reason = "a bench that cannot run has nothing to say")]

mod baseline;
mod clock;
mod figures;
mod graphs;
mod memory;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use self::baseline::{Csr, Maps};
use self::figures::per;
use self::graphs::Graph;
use self::subject::Subject;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

struct Options {
    up_to: u32,
    runs: usize,
    only: String,
}

impl Options {
    fn read() -> Self {
        let args: Vec<String> = std::env::args().collect();
        let after = |name: &str| {
            let at = args.iter().position(|arg| arg == name)?;
            args.get(at + 1).cloned()
        };
        Self {
            up_to: after("--up-to").and_then(|text| text.parse().ok()).unwrap_or(1_000_000),
            runs: after("--runs").and_then(|text| text.parse().ok()).unwrap_or(5),
            only: after("--only").unwrap_or_default(),
        }
    }

    fn asks_for(&self, group: &str) -> bool {
        group.starts_with(&self.only)
    }

    /// The size of a figure that is named for one, or the greatest that is asked for.
    fn size(&self, size: u32) -> u32 {
        size.min(self.up_to)
    }

    fn median_of<const N: usize>(&self, run: impl FnMut() -> [f64; N]) -> [f64; N] {
        self.median_of_times(1, run)
    }

    /// The medians of so many times the runs: what takes a few milliseconds is disturbed as a whole by
    /// what else goes on for as long.
    fn median_of_times<const N: usize>(
        &self,
        times: usize,
        mut run: impl FnMut() -> [f64; N],
    ) -> [f64; N] {
        let all: Vec<[f64; N]> = (0..self.runs * times).map(|_| run()).collect();
        std::array::from_fn(|at| median(all.iter().map(|one| one[at]).collect()))
    }
}

const SIZES: [u32; 3] = [10_000, 100_000, 1_000_000];

fn main() {
    let options = Options::read();
    for (order, graph) in
        [("ordered", graphs::ordered as fn(u32) -> Graph), ("shuffled", graphs::shuffled)]
    {
        completed(&options, &format!("one_stage_{order}"), graph, false);
    }
    completed(&options, "four_stages_ordered", graphs::ordered, true);
    root(&options);
    memory_and_adding(&options);
    capacity(&options);
}

fn completed(options: &Options, group: &str, graph: fn(u32) -> Graph, four_stages: bool) {
    if !options.asks_for(group) {
        return;
    }
    let mut engines = Vec::new();
    for size in SIZES.into_iter().filter(|size| *size <= options.up_to) {
        let graph = graph(size);
        let (csr, maps) = (Csr::new(&graph), (!four_stages).then(|| Maps::new(&graph)));
        let subject = Subject::with(Arc::new(graphs::plan(&graph, four_stages)));
        let stages = if four_stages { 4 } else { 1 };
        let times = if size > 100_000 { 1 } else { if size > 10_000 { 3 } else { 10 } };
        let [engine, lean, named] = options.median_of_times(times, || {
            let engine = figures::drain(subject.clone(), stages, size);
            let named = maps.as_ref().map_or(0.0, |maps| per(maps.run(), size));
            [engine, per(csr.run(), size), named]
        });
        let name = format!("{group}_{}", short(size));
        println!("{name}_engine_ns: {engine:.0}");
        println!("{name}_lean_ns: {lean:.0}");
        println!("{name}_ratio: {:.2}", engine / lean);
        if !four_stages {
            println!("{name}_maps_ns: {named:.0}");
            println!("{name}_maps_ratio: {:.2}", engine / named);
        }
        engines.push((size, engine));
    }
    if let (Some((least, first)), Some((most, last))) = (engines.first(), engines.last())
        && least < most
    {
        println!("{group}_growth_{}_to_{}: {:.2}", short(*least), short(*most), last / first);
    }
}

fn root(options: &Options) {
    if !options.asks_for("root") {
        return;
    }
    let size = options.size(1_000_000);
    let graph = graphs::star(size);
    let (csr, subject) = (Csr::new(&graph), Subject::with(Arc::new(graphs::plan(&graph, false))));
    let [engine, lean] = options
        .median_of(|| [figures::drain(subject.clone(), 1, size + 1), per(csr.run(), size + 1)]);
    let name = format!("root_{}", short(size));
    println!("{name}_engine_ns: {engine:.0}");
    println!("{name}_lean_ns: {lean:.0}");
    println!("{name}_ratio: {:.2}", engine / lean);
}

fn memory_and_adding(options: &Options) {
    if options.asks_for("state") {
        let size = options.size(100_000);
        let bytes = figures::bytes_per_task(&graphs::ordered(size));
        println!("state_bytes_per_task_{}: {bytes:.0}", short(size));
    }
    if options.asks_for("add") {
        let size = options.size(1_000_000);
        let graph = graphs::ordered(size);
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let [plain, add] = options.median_of(|| figures::adding(&graph).map(millis));
        let name = format!("add_{}", short(size));
        println!("{name}_plain_parse_ms: {plain:.0}");
        println!("{name}_ms: {add:.0}");
        println!("{name}_ratio: {:.2}", add / plain);
        let graph = graphs::ordered(options.size(100_000));
        let [plain, parse] = options.median_of(|| figures::parsing(&graph).map(millis));
        println!("plan_text_{}_ratio: {:.2}", short(options.size(100_000)), parse / plain);
    }
    if options.asks_for("cascade") {
        let size = options.size(1_000_000);
        let [there, back] = options.median_of(|| figures::cascade(size));
        println!("cascade_{}_ns_per_task: {there:.0}", short(size));
        println!("cascade_back_{}_ns_per_task: {back:.0}", short(size));
    }
}

fn capacity(options: &Options) {
    let size = options.size(100_000);
    let of = [
        ("scopes_held", figures::held_scopes as fn(u32) -> f64),
        ("scopes_shared", figures::shared_scopes),
        ("pool_full", figures::full_pool),
        ("nothing_granted", figures::nothing_granted),
    ];
    for (group, figure) in of.into_iter().filter(|(group, _)| options.asks_for(group)) {
        let [time] = options.median_of(|| [figure(size)]);
        println!("{group}_{}_ns: {time:.0}", short(size));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn short(size: u32) -> String {
    match size {
        1_000_000.. if size.is_multiple_of(1_000_000) => format!("{}m", size / 1_000_000),
        1_000.. if size.is_multiple_of(1_000) => format!("{}k", size / 1_000),
        _ => size.to_string(),
    }
}
