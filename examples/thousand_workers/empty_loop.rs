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
use super::figures::{Begun, Own, open_files, percent, quantile, quotient, say, threads};

/// Short programs that are enough for a quantile.
const SHORT: usize = 500;

pub(crate) fn measure(dir: &Path, workers: u32, window: Duration) -> anyhow::Result<()> {
    let (memory, files) = (Own::now()?.rss_bytes, open_files()?);
    let mut children = Vec::with_capacity(workers as usize);
    let mut outputs = Vec::with_capacity(workers as usize);
    let begun = Instant::now();
    for number in 0..workers {
        let path = dir.join(format!("empty-{number}"));
        children.push(child(Kind::Chatty)?.stdout(File::create(&path)?).spawn()?);
        outputs.push((File::open(path)?, 0));
    }
    say("empty_loop_starting_seconds", format_args!("{:.2}", begun.elapsed().as_secs_f64()));
    sleep(Duration::from_secs(3));
    let begun = Begun::now();
    let until = Instant::now() + window;
    while Instant::now() < until {
        look(&mut outputs)?;
        sleep(Duration::from_secs(1));
    }
    say("empty_loop_chatty_cpu_percent_of_a_core", percent(begun.load()));
    let more = Own::now()?.rss_bytes.saturating_sub(memory);
    say("empty_loop_memory_bytes_per_child", more / u64::from(workers.max(1)));
    let more = open_files()?.saturating_sub(files);
    say("empty_loop_open_files_per_child", quotient(more, u64::from(workers)));
    say("empty_loop_threads", threads()?);
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
    let (mut latencies, begun) = (Vec::new(), Instant::now());
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
    let a_second = f64::from(u32::try_from(latencies.len())?) / begun.elapsed().as_secs_f64();
    for child in running.values_mut() {
        child.wait()?;
    }
    say("empty_loop_short_programs_a_second", format_args!("{a_second:.0}"));
    say("empty_loop_dispatch_latency_p50_ms", quantile(&latencies, 50));
    say("empty_loop_dispatch_latency_p99_ms", quantile(&latencies, 99));
    Ok(())
}
