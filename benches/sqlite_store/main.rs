//! What the SQLite store costs, beside SQLite itself on the same disk.
//!
//! `cargo bench -p benches --bench sqlite_store` prints `name: value` a line. Rates are medians;
//! ratios are medians of what was measured turn by turn in one process, so that they hold on a noisy
//! machine. `-- --up-to 1000 --rounds 3` is a short form (runs of up to a million tasks otherwise),
//! and `--only NAME` prints the figures of one group: `commits`, `claims`, `load`.
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run has nothing to say")]

mod claims;
mod commits;
mod load;
mod memory;
mod naive;
mod shapes;

use std::path::Path;

use rusqlite::Connection;

/// What is asked for on the command line.
#[derive(Debug)]
struct Options {
    up_to: u32,
    rounds: usize,
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
            up_to: after("--up-to").map_or(1_000_000, |text| text.parse().unwrap()),
            rounds: after("--rounds").map_or(7, |text| text.parse().unwrap()),
            only: after("--only").unwrap_or_default(),
        }
    }

    fn sizes(&self) -> impl Iterator<Item = u32> {
        let up_to = self.up_to;
        [100, 1_000, 10_000, 100_000, 1_000_000].into_iter().filter(move |size| *size <= up_to)
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let options = Options::read();
    if "commits".starts_with(&options.only) {
        commits::measure(&options).await;
    }
    if "claims".starts_with(&options.only) {
        claims::measure(&options).await;
    }
    if "load".starts_with(&options.only) {
        load::measure(&options).await;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of what one costs to what the other costs in the same turn: a disk may be ten times
/// as fast a minute later.
fn in_turns(these: &[f64], those: &[f64]) -> f64 {
    median(these.iter().zip(those).map(|(this, that)| this / that).collect())
}

/// A size in few letters.
fn short(size: u32) -> String {
    match size {
        1_000_000.. => format!("{}m", size / 1_000_000),
        1_000.. => format!("{}k", size / 1_000),
        _ => size.to_string(),
    }
}

/// SQLite without the store, as durable as the store is.
fn raw(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    conn.pragma_update(None, "synchronous", "FULL").unwrap();
    conn
}
