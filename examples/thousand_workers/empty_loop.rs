//! The same shapes with nothing in between: what no orchestrator can do without.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::PLACES;
use super::child::{ARGUMENT, Kind};
use super::figures::{Begun, percent, quantile, say};

/// Short programs that are enough for a quantile.
const SHORT: usize = 500;

pub(crate) fn measure(dir: &Path, workers: u32, window: Duration) -> anyhow::Result<()> {
    let mut children = Vec::new();
    let mut outputs = Vec::new();
    for number in 0..workers {
        let path = dir.join(format!("empty-{number}"));
        children.push(child(Kind::Chatty)?.stdout(File::create(&path)?).spawn()?);
        outputs.push((File::open(path)?, 0));
    }
    sleep(Duration::from_secs(3));
    let begun = Begun::now();
    let until = Instant::now() + window;
    while Instant::now() < until {
        look(&mut outputs)?;
        sleep(Duration::from_secs(1));
    }
    say("empty_loop_chatty_cpu_percent_of_a_core", percent(begun.load()));
    let begun = Begun::now();
    sleep(window);
    say("empty_loop_idle_cpu_percent_of_a_core", percent(begun.load()));
    let begun = Instant::now();
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    say("empty_loop_ending_seconds", format_args!("{:.2}", begun.elapsed().as_secs_f64()));
    // What these had started goes on: a bare loop ends programs, not trees.
    for stranger in strangers()? {
        let pid = rustix::process::Pid::from_raw(stranger);
        pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
    }
    dispatch()
}

fn child(kind: Kind) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ARGUMENT, kind.argument()]).stdin(Stdio::null());
    Ok(command)
}

fn look(outputs: &mut [(File, u64)]) -> anyhow::Result<()> {
    let mut buffer = [0; 4096];
    for (file, at) in outputs {
        if file.metadata()?.len() > *at {
            *at += file.read_at(&mut buffer, *at)? as u64;
        }
    }
    Ok(())
}

/// The processes that the programs of this process left.
fn strangers() -> anyhow::Result<Vec<i32>> {
    let mut found = Vec::new();
    let ours = format!("\0{ARGUMENT}\0stranger\0{}\0", std::process::id());
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if let Some(pid) = pid
            && line.ends_with(ours.as_bytes())
        {
            found.push(pid);
        }
    }
    Ok(found)
}

/// As many short programs at once as there are places; each one that ends makes room for another.
fn dispatch() -> anyhow::Result<()> {
    let start =
        || -> anyhow::Result<Child> { Ok(child(Kind::Short)?.stdout(Stdio::null()).spawn()?) };
    let mut running: BTreeMap<u32, Child> = BTreeMap::new();
    for _ in 0..PLACES {
        let child = start()?;
        running.insert(child.id(), child);
    }
    let mut latencies = Vec::new();
    while latencies.len() < SHORT {
        for pid in running.keys().copied().collect::<Vec<_>>() {
            let Some(child) = running.get_mut(&pid) else { continue };
            if child.try_wait()?.is_none() {
                continue;
            }
            let known = Instant::now();
            running.remove(&pid);
            let child = start()?;
            latencies.push(known.elapsed());
            running.insert(child.id(), child);
        }
        sleep(Duration::from_millis(1));
    }
    for child in running.values_mut() {
        child.wait()?;
    }
    say("empty_loop_dispatch_latency_p50_ms", quantile(&latencies, 50));
    say("empty_loop_dispatch_latency_p99_ms", quantile(&latencies, 99));
    Ok(())
}
