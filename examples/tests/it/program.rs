//! Starting the example, and looking at what it leaves.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, also where the machine has twenty times as much to do; a test that
/// reaches it fails.
const PATIENCE: Duration = Duration::from_secs(900);

/// A directory for a run, with what belongs to the test beside it.
pub(crate) struct Bench {
    pub(crate) root: TempDir,
}

/// A start of the example.
pub(crate) struct Start {
    child: Child,
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    pub(crate) began: Instant,
}

/// How a start ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Drop for Bench {
    /// What a failed test leaves is there to be looked at.
    fn drop(&mut self) {
        self.root.disable_cleanup(std::thread::panicking());
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::Builder::new().prefix("pipeline-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    /// The directory of the run.
    pub(crate) fn dir(&self) -> PathBuf {
        self.path("run")
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Start {
        self.start_with(arguments, &[])
    }

    /// Starts it with these variables beside those of the test.
    fn start_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Start {
        let number = fs::read_dir(self.root.path()).unwrap().count();
        let [stdout, stderr] = ["out", "err"].map(|kind| self.path(&format!("{number}.{kind}")));
        let child = Command::new(example())
            .arg("--dir")
            .arg(self.dir())
            .args(arguments)
            .envs(environment.iter().copied())
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Start { child, stdout, stderr, began: Instant::now() }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
        self.start_with(arguments, environment).wait()
    }

    /// Runs it with this as its standard output.
    pub(crate) fn run_saying(&self, stdout: File) -> Ended {
        let began = Instant::now();
        let [out, stderr] = ["unheard.out", "unheard.err"].map(|name| self.path(name));
        File::create(&out).unwrap();
        let child = Command::new(example())
            .arg("--dir")
            .arg(self.dir())
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Start { child, stdout: out, stderr, began }.wait()
    }

    /// Starts it where at most so many files may be open at a time.
    pub(crate) fn run_with_files(&self, files: u32, arguments: &[&str]) -> Output {
        Command::new("sh")
            .args(["-c", "ulimit -n \"$0\"; exec \"$@\"", &files.to_string()])
            .arg(example())
            .arg("--dir")
            .arg(self.dir())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The states of all tasks, from the report.
    pub(crate) fn states(&self) -> BTreeMap<String, String> {
        let report = self.report();
        let tasks = report["tasks"].as_array().unwrap().iter();
        tasks.map(|task| (text(&task["id"]), text(&task["state"]))).collect()
    }

    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.dir().join("report.json")).unwrap()).unwrap()
    }

    /// Processes that the run started and that still live.
    pub(crate) fn processes(&self) -> Vec<String> {
        let dir = self.dir();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            // Processes end while they are looked at.
            let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_ours =
                |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&*dir.to_string_lossy());
            if cwd.starts_with(&dir) || is_ours(&environ) || is_ours(&command) {
                found.push(String::from_utf8_lossy(&command).replace('\0', " "));
            }
        }
        found
    }

    /// Git, at a place below the root.
    pub(crate) fn git(&self, at: &str, arguments: &[&str]) -> String {
        git(&self.path(at), arguments)
    }
}

impl Start {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has printed what is asked for, or has ended; whether it still runs.
    pub(crate) fn until(&mut self, holds: impl Fn(&str) -> bool) -> bool {
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if holds(&fs::read_to_string(&self.stderr).unwrap_or_default()) {
                return true;
            }
            assert!(self.began.elapsed() < PATIENCE, "it never came to that");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn wait(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.began.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                panic!("it does not end:\n{}", fs::read_to_string(&self.stderr).unwrap());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Ended {
            status,
            stdout: fs::read_to_string(&self.stdout).unwrap(),
            stderr: fs::read_to_string(&self.stderr).unwrap(),
        }
    }
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Fails with what it said when it did not end so.
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code(), Some(code), "{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// The examples, built as this test was; cargo builds them with all tests of the package, but not
/// with a single one.
fn examples() -> &'static Path {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "examples"]);
        build.args(["--example", "full_pipeline", "--example", "kept"]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        profile.join("examples")
    })
}

fn example() -> PathBuf {
    examples().join("full_pipeline")
}

/// Runs the program that lists and restores kept work.
pub(crate) fn kept(arguments: &[&OsStr]) -> Output {
    Command::new(examples().join("kept")).args(arguments).output().unwrap()
}

pub(crate) fn git(at: &Path, arguments: &[impl AsRef<OsStr>]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=test", "-c", "user.email=test@localhost"])
        .args(arguments)
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git: {words}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
