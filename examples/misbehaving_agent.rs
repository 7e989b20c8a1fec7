//! An agent that does what agents should not do, on demand: for tests of whatever starts agents.
//!
//! `misbehaving_agent BEHAVIOUR [--once FILE] [--outside FILE] [anything else]` does its work, which
//! is to write `work.txt` into the directory that it is started in, and says so in the protocol of
//! `claude -p`. Before, after or in place of that it misbehaves as the first argument says, one of
//! [`BEHAVIOURS`]. With `--once FILE` it does so only while that file is not there, and makes it: so
//! that the next start of it behaves. `--outside FILE` names a file that is none of its business.
//! `tests/misbehaving` states what becomes of each.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, setsid};

/// What it can do, each in a few words.
const BEHAVIOURS: &[(&str, &str)] = &[
    ("behave", "does its work and ends"),
    ("hang", "says one line and nothing more, for ever"),
    ("flood", "writes as fast as it can, for ever"),
    ("half-a-line", "begins its answer and dies in the middle of it"),
    ("orphans", "leaves processes in sessions of their own, with nothing in their environment"),
    ("ignore-term", "does not end when it is asked to"),
    ("no-answer", "ends with 0, without work or answer"),
    ("answer-twice", "answers, and answers again"),
    ("linger", "answers and stays"),
    ("outside", "writes to files that are none of its business"),
    ("commit", "commits its work by itself, and asks git to move the branch"),
    ("move-branch", "removes the branch behind git's back"),
    ("eat-memory", "takes memory until there is none"),
];

/// Longer than anybody waits for it.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(behaviour) = arguments.first() else { return usage() };
    if behaviour == "stay" {
        return stay(arguments.get(1).map(Path::new));
    }
    if !BEHAVIOURS.iter().any(|(name, _)| name == behaviour) {
        return usage();
    }
    let value = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.get(at + 1).map(PathBuf::from)
    };
    let once = value("--once");
    let has_misbehaved = once.as_deref().is_some_and(Path::exists);
    let behaviour = if has_misbehaved { "behave" } else { behaviour };
    if let Some(once) = &once
        && fs::write(once, "").is_err()
    {
        return ExitCode::FAILURE;
    }
    match act(behaviour, value("--outside").as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            drop(writeln!(io::stderr(), "error: {err}"));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let mut text = "misbehaving_agent BEHAVIOUR [--once FILE] [--outside FILE]\n".to_owned();
    for (name, what) in BEHAVIOURS {
        text.extend(["  ", name, ": ", what, "\n"]);
    }
    drop(io::stderr().write_all(text.as_bytes()));
    ExitCode::FAILURE
}

fn act(behaviour: &str, outside: Option<&Path>) -> io::Result<()> {
    match behaviour {
        "hang" => {
            begin()?;
            sleep(FOR_EVER);
        }
        "flood" => flood()?,
        "half-a-line" => {
            work()?;
            write!(io::stdout(), "{{\"type\":\"result\",\"subtype\":\"succ")?;
            io::stdout().flush()?;
            kill_process(getpid(), Signal::KILL)?;
        }
        "orphans" => {
            work()?;
            (0..3).try_for_each(|number| orphan(outside, number))?;
            answer("done")?;
        }
        "ignore-term" => {
            // The shell ignores it, and so does what it starts; its pid goes to the file outside.
            begin()?;
            let mut deaf = Command::new("sh");
            deaf.args(["-c", "trap '' TERM; echo $$ > \"$0\"; while :; do sleep 1; done"]);
            deaf.arg(outside.unwrap_or_else(|| Path::new("/dev/null"))).status()?;
        }
        "no-answer" => {}
        "answer-twice" => {
            work()?;
            answer("done")?;
            answer("done once more")?;
        }
        "linger" => {
            work()?;
            answer("done")?;
            sleep(FOR_EVER);
        }
        "outside" => {
            work()?;
            fs::write("README.md", "mine now\n")?;
            if let Some(outside) = outside {
                // Kept from it, it says so and goes on.
                fs::write(outside, "mine now\n")
                    .unwrap_or_else(|err| drop(writeln!(io::stderr(), "outside: {err}")));
            }
            answer("done")?;
        }
        "commit" => {
            work()?;
            git(&["add", "-A"])?;
            git(&["-c", "user.name=agent", "-c", "user.email=a@b", "commit", "-q", "-m", "mine"])?;
            git(&["branch", "-f", "main", "HEAD"])?;
            answer("done")?;
        }
        "move-branch" => {
            work()?;
            git(&["update-ref", "-d", "refs/heads/main"])?;
            answer("done")?;
        }
        "eat-memory" => {
            begin()?;
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            while eaten.len() < 4_096 {
                eaten.push(vec![1; 1 << 20]);
            }
        }
        _ => {
            work()?;
            answer("done")?;
        }
    }
    Ok(())
}

fn git(arguments: &[&str]) -> io::Result<()> {
    Command::new("git").args(arguments).stdout(Stdio::null()).status().map(drop)
}

/// The work that it is there for.
fn work() -> io::Result<()> {
    begin()?;
    fs::write("work.txt", "work\n")
}

fn begin() -> io::Result<()> {
    writeln!(io::stdout(), r#"{{"type":"system","subtype":"init","session_id":"s-1"}}"#)?;
    io::stdout().flush()
}

fn answer(text: &str) -> io::Result<()> {
    writeln!(
        io::stdout(),
        r#"{{"type":"result","subtype":"success","is_error":false,"result":"{text}","session_id":"s-1","total_cost_usd":0.25}}"#
    )?;
    io::stdout().flush()
}

fn flood() -> io::Result<()> {
    let line = [b'x'; 1 << 16];
    loop {
        io::stdout().write_all(&line)?;
        writeln!(io::stdout())?;
    }
}

/// Starts a process that nothing leads back from, and writes its pid to a line of a file.
fn orphan(pids: Option<&Path>, number: u32) -> io::Result<()> {
    let Some(pids) = pids else { return Err(io::Error::other("`orphans` needs --outside")) };
    // The one in between ends at once, so that its child has no parent here.
    let mut between = Command::new(std::env::current_exe()?);
    between.args(["stay", &pids.to_string_lossy()]).env_clear();
    between.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let counted = || fs::read_to_string(pids).unwrap_or_default().lines().count();
    while counted() <= number as usize {
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Stays, whatever it is asked: leaves session and parent, then waits.
fn stay(pids: Option<&Path>) -> ExitCode {
    let is_inner = std::env::args().nth(2).as_deref() == Some("inner");
    if !is_inner {
        let pids = pids.map_or_else(String::new, |path| path.to_string_lossy().into_owned());
        let exe = std::env::current_exe();
        let inner = exe.and_then(|exe| {
            let mut inner = Command::new(exe);
            inner.args(["stay", "inner", &pids]).env_clear().spawn()
        });
        return if inner.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    setsid().ok();
    let file = std::env::args().nth(3).unwrap_or_default();
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file) {
        drop(writeln!(file, "{}", std::process::id()));
    }
    sleep(FOR_EVER);
    ExitCode::SUCCESS
}
