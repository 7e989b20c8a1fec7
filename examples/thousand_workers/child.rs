//! The programs that are driven: this one, started with another argument.

use std::io::{self, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The first argument that makes this program one of those.
pub(crate) const ARGUMENT: &str = "be-a-child";

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Prints a line each second, beside a child that has left its session.
    Chatty,
    /// Sleeps.
    Sleeping,
    /// Prints a line and ends after about a second.
    Short,
}

impl Kind {
    pub(crate) const fn argument(self) -> &'static str {
        match self {
            Self::Chatty => "chatty",
            Self::Sleeping => "sleeping",
            Self::Short => "short",
        }
    }
}

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    match arguments.first().map(String::as_str) {
        Some("chatty") => chat(),
        Some("stranger") => {
            // A session of its own is what the group of its parent does not reach.
            rustix::process::setsid().ok();
            sleep(Duration::from_secs(3600));
        }
        Some("short") => {
            // Half a second to one and a half, so that they do not all end at once, and so that the
            // processors have time for the starts.
            sleep(Duration::from_millis(500 + u64::from(std::process::id()) * 37 % 1_000));
            drop(writeln!(io::stdout(), "done"));
        }
        _ => sleep(Duration::from_secs(3600)),
    }
    ExitCode::SUCCESS
}

fn chat() {
    let stranger = std::env::current_exe().and_then(|exe| {
        let mut command = Command::new(exe);
        // By the last one it is told from those that another measurement started.
        let starter = std::os::unix::process::parent_id().to_string();
        command
            .args([ARGUMENT, "stranger", &starter])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
    });
    if stranger.is_err() {
        return;
    }
    sleep(Duration::from_millis(u64::from(std::process::id()) % 1_000));
    for line in 0.. {
        if writeln!(io::stdout(), "line {line} of a program that has something to say").is_err() {
            return;
        }
        sleep(Duration::from_secs(1));
    }
}
