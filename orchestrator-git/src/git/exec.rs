//! Calling git: every call of this crate goes through here.
//!
//! A call gets an environment that starts empty, and configuration that overrules what the
//! repository's own would run or hide: no hooks, no fsmonitor, no filters, no signing, no network,
//! no prompts. Paths in and out are bytes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use orchestrator_process::{Captured, End, Environment, Limits, Program, SpawnError, capture};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::LOCK_WAIT;
use crate::error::GitError;
use crate::git::locks::{self, LockRoots};
use crate::git::server::{Reply, Servers, Service};

/// How long one call may take: a checkout of a large repository on a slow disk is the longest.
const CALL_MAX: Duration = Duration::from_secs(900);

/// Most that is read of one answer, unless a call says otherwise.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How often it is tried again while somebody has the lock of a table of refs: git itself waits only
/// for locks of files.
const TABLE_LOOK: Duration = Duration::from_millis(20);

/// Configuration that overrules the repository's.
const FIXED: &[(&str, &str)] = &[
    // Who owns the repository does not matter, since nothing that belongs to it runs.
    ("safe.directory", "*"),
    ("core.hooksPath", "/dev/null"),
    // Hooks that are configured instead of lying in a directory, as newer gits have them.
    ("hook.post-checkout.enabled", "false"),
    ("hook.post-index-change.enabled", "false"),
    ("hook.post-merge.enabled", "false"),
    ("hook.reference-transaction.enabled", "false"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.alternateRefsCommand", "true"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", "false"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("commit.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("merge.default", "text"),
    ("merge.renormalize", "false"),
    ("merge.verifySignatures", "false"),
    ("merge.directoryRenames", "conflict"),
    // Nothing is hidden from a comparison of a tree with its files.
    ("core.ignoreStat", "false"),
    ("core.checkStat", "default"),
    ("core.trustCtime", "true"),
    ("core.safecrlf", "false"),
    // It would stand in the place of what is wrong.
    ("advice.graftFileDeprecated", "false"),
    ("worktree.useRelativePaths", "false"),
    ("i18n.commitEncoding", "UTF-8"),
    // Written is on the disk; an index can be made anew.
    ("core.fsync", "all,-index"),
    ("core.fsyncMethod", "fsync"),
    // Refs are locked for milliseconds; who waits longer has met a lock that nobody holds.
    ("core.filesRefLockTimeout", "1500"),
    ("core.packedRefsTimeout", "5000"),
];

/// How git is called for one repository.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) program: OsString,
    pub(crate) author_name: String,
    pub(crate) author_email: String,
    pub(crate) lock_roots: LockRoots,
    pub(crate) servers: Servers,
}

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    args: Vec<OsString>,
    cwd: PathBuf,
    env: Vec<(&'static str, OsString)>,
    config: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    bytes_max: usize,
    /// Whether the beginning of an answer will do.
    may_be_cut: bool,
    service: Option<Service>,
}

/// What a call gave.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    /// Whether `stdout` is only the beginning.
    pub(crate) is_cut: bool,
}

impl Call {
    /// A call in a directory.
    pub(crate) fn new<A: AsRef<OsStr>>(cwd: &Path, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            cwd: cwd.to_owned(),
            env: Vec::new(),
            config: Vec::new(),
            stdin: Vec::new(),
            bytes_max: ANSWER_BYTES_MAX,
            may_be_cut: false,
            service: None,
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Configuration that overrules all other.
    pub(crate) fn config(mut self, pairs: &[(OsString, OsString)]) -> Self {
        self.config.extend_from_slice(pairs);
        self
    }

    pub(crate) fn cwd(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.cwd);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Lets git write only so much; what is more is cut, and said.
    pub(crate) const fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self.may_be_cut = true;
        self
    }

    /// Lets a program answer that stays for the next question; the input is one question.
    pub(crate) const fn served(mut self, service: Service) -> Self {
        self.service = Some(service);
        self
    }

    fn name(&self) -> String {
        self.args.first().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl Caller {
    /// Calls this program, in nobody's name, where no lock is ours to remove.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            author_name: String::new(),
            author_email: String::new(),
            lock_roots: LockRoots { wait: LOCK_WAIT, ..LockRoots::default() },
            servers: Servers::default(),
        }
    }

    /// Calls git and returns what it gave, whatever its exit code.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Answer, GitError> {
        let (begun, mut tries) = (Instant::now(), 0);
        loop {
            let answer = self.once(call).await?;
            if answer.code == 0 {
                return Ok(answer);
            }
            if let Some(lock) = self.table_in_the_way(&answer.stderr) {
                if begun.elapsed() > self.lock_roots.wait {
                    let why = "it stays there".to_owned();
                    return Err(GitError::Locked { lock, why });
                }
                sleep(TABLE_LOOK).await;
                continue;
            }
            let lock = lock_in_the_way(&answer.stderr);
            let Some(left) = lock.or_else(|| half_made(&answer.stderr)) else { return Ok(answer) };
            tries += 1;
            if tries > 4 {
                let why = "it came back each time".to_owned();
                return Err(GitError::Locked { lock: left, why });
            }
            // Those that wait here hold none.
            self.servers.end();
            locks::clear_stale(&self.lock_roots, &left).await?;
        }
    }

    /// The lock of a table of refs that git did not wait for, and does not name.
    fn table_in_the_way(&self, stderr: &str) -> Option<PathBuf> {
        let dir = self.lock_roots.worktrees.parent()?;
        let is_locked = stderr.contains("cannot lock references");
        is_locked.then(|| dir.join("reftable/tables.list.lock"))
    }

    /// Calls git and returns what it wrote; any exit code but 0 is an error.
    pub(crate) async fn run(&self, call: &Call) -> Result<Answer, GitError> {
        let answer = self.ask(call).await?;
        if answer.code == 0 { Ok(answer) } else { Err(answer.failed(&call.name())) }
    }

    async fn once(&self, call: &Call) -> Result<Answer, GitError> {
        if let Some(service) = call.service
            && let Some(answer) = self.served(service, call).await?
        {
            return Ok(answer);
        }
        let program = Program::new(&self.program)
            .args(&call.args)
            .cwd(&call.cwd)
            .environment(self.environment(call))
            .stdin_bytes(call.stdin.clone())
            .limits(Limits::new(CALL_MAX));
        let never = CancellationToken::new();
        let captured = capture(&program, &never, call.bytes_max).await.map_err(GitError::Start)?;
        let answer = Answer::of(captured, &call.name())?;
        if answer.is_cut && !call.may_be_cut {
            let why = format!("it wrote more than {} bytes", call.bytes_max);
            return Err(GitError::Ended { command: call.name(), why });
        }
        Ok(answer)
    }

    async fn served(&self, service: Service, call: &Call) -> Result<Option<Answer>, GitError> {
        let environment = self.environment(call);
        let start = || {
            let mut command = tokio::process::Command::new(&self.program);
            command.args(&call.args).current_dir(&call.cwd);
            command
        };
        let asking = self.servers.ask(service, &environment, &call.stdin, start);
        let ended = |why: &str| GitError::Ended { command: call.name(), why: why.to_owned() };
        let reply = match timeout(CALL_MAX, asking).await {
            Ok(reply) => reply.map_err(|source| {
                let program = self.program.to_string_lossy().into_owned();
                GitError::Start(SpawnError::Other { program, source })
            })?,
            Err(_) => return Err(ended("it took too long")),
        };
        Ok(reply.map(|reply| match reply {
            Reply::Answer(stdout) => {
                Answer { code: 0, stdout, stderr: String::new(), is_cut: false }
            }
            Reply::Ended(stdout, code, stderr) => Answer { code, stdout, stderr, is_cut: false },
        }))
    }

    fn environment(&self, call: &Call) -> Environment {
        let mut env = Environment::empty().passing(["PATH", "HOME", "TMPDIR"]);
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_GRAFT_FILE", "/dev/null"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_ASKPASS", "false"),
            ("LC_ALL", "C"),
            ("TZ", "UTC"),
        ] {
            env.set(name, value);
        }
        for role in ["AUTHOR", "COMMITTER"] {
            env.set(format!("GIT_{role}_NAME"), &self.author_name);
            env.set(format!("GIT_{role}_EMAIL"), &self.author_email);
        }
        let fixed = FIXED.iter().map(|(key, value)| (OsStr::new(key), OsStr::new(value)));
        let own = call.config.iter().map(|(key, value)| (key.as_os_str(), value.as_os_str()));
        let mut count = 0_usize;
        for (key, value) in fixed.chain(own) {
            env.set(format!("GIT_CONFIG_KEY_{count}"), key);
            env.set(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        env.set("GIT_CONFIG_COUNT", count.to_string());
        for (name, value) in &call.env {
            env.set(name, value);
        }
        env
    }
}

impl Answer {
    fn of(captured: Captured, command: &str) -> Result<Self, GitError> {
        let stderr = String::from_utf8_lossy(&captured.stderr).trim().to_owned();
        let ended =
            |why: &str| GitError::Ended { command: command.to_owned(), why: why.to_owned() };
        let (code, is_cut) = match captured.how {
            End::Exited(code) => (code, false),
            End::OutputLimit => (0, true),
            End::Signalled(signal) => return Err(ended(&format!("signal {signal}"))),
            End::WallLimit => return Err(ended("it took too long")),
            End::SilenceLimit | End::MemoryLimit | End::Cancelled | End::Lingered => {
                return Err(ended("it was stopped"));
            }
        };
        Ok(Self { code, stdout: captured.stdout, stderr, is_cut })
    }

    /// The error that this answer is.
    pub(crate) fn failed(&self, command: &str) -> GitError {
        let stderr = orchestrator_core::head_and_tail(&self.stderr, 4096);
        GitError::Failed { command: command.to_owned(), code: self.code, stderr }
    }

    /// What it wrote, as text without white space around it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// What it wrote, as records that each end with a zero byte.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.stdout.strip_suffix(&[0]).unwrap_or(&self.stdout);
        bytes.split(|byte| *byte == 0).filter(|record| !record.is_empty())
    }

    /// The error that it makes no sense.
    pub(crate) fn unexpected(&self, command: &str) -> GitError {
        let answer: String = self.text().chars().take(200).collect();
        GitError::Unexpected { command: command.to_owned(), answer }
    }
}

/// The lock that git says is in its way.
fn lock_in_the_way(stderr: &str) -> Option<PathBuf> {
    let (_, rest) = stderr.split_once("Unable to create '")?;
    let (path, _) = rest.split_once("': File exists")?;
    path.ends_with(".lock").then(|| PathBuf::from(path))
}

/// The empty file by which a worktree that was never finished keeps git from listing any.
fn half_made(stderr: &str) -> Option<PathBuf> {
    let (_, rest) = stderr.split_once("failed to read ")?;
    let (dir, _) = rest.split_once("/commondir: ")?;
    Some(PathBuf::from(dir).join("commondir"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_beginning_of_an_answer_is_one_only_where_it_will_do() {
        let caller = Caller::new("head");
        let call = Call::new(Path::new("/"), ["-c", "70000000", "/dev/zero"]);
        let cut = caller.run(&call).await;
        assert!(matches!(cut, Err(GitError::Ended { .. })), "{cut:?}");
        assert!(caller.run(&call.bytes_max(10)).await.unwrap().is_cut);
    }

    #[test]
    fn the_lock_in_the_way_is_read_from_what_git_says() {
        let said = "fatal: cannot lock ref 'x': Unable to create '/a b/x.lock': File exists.\n\nAn";
        assert_eq!(lock_in_the_way(said), Some(PathBuf::from("/a b/x.lock")));
        assert_eq!(lock_in_the_way("fatal: Unable to create '/x': Permission denied"), None);
        let said = "fatal: failed to read /a b/worktrees/tree/commondir: Success";
        assert_eq!(half_made(said), Some(PathBuf::from("/a b/worktrees/tree/commondir")));
    }
}
