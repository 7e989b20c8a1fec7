//! Where a run is kept: its directory, who holds it, and the repository that the example makes.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use orchestrator_cli::write_whole;
use orchestrator_core::BlobHash;

use super::content::{PLAN, REPOSITORY};

/// The branch of the example's own repository.
const MAIN: &str = "main";

/// How the name of a repository begins that is not yet whole.
const HALF: &str = "repo.new-";

/// What a run makes in its directory, beside `run.db`.
const OURS: &[&str] = &["ESCALATED.md", "repo", "report.json", "stages", "tasks.json", "worktrees"];

/// The directory of a run, held by this process.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory.
    pub(crate) dir: PathBuf,
    /// Held until this process ends, however it does.
    _lock: File,
}

impl Place {
    /// Makes the directory where it is missing, and takes hold of it. What else is in it stays as it
    /// is, but what a run would make there must not be somebody's.
    pub(crate) fn take(dir: Option<&Path>, own_repository: bool) -> anyhow::Result<Self> {
        let dir = match dir {
            Some(dir) => {
                fs::create_dir_all(dir)
                    .with_context(|| format!("cannot make {}", dir.display()))?;
                dir.to_owned()
            }
            None => tempfile::Builder::new().prefix("full-pipeline-").tempdir()?.keep(),
        };
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        if !dir.join("run.db").exists()
            && let Some(name) = OURS.iter().find(|name| taken(&dir, name, own_repository))
        {
            bail!(
                "{} holds `{name}`, which is of no run: name an empty or a new directory",
                dir.display()
            );
        }
        let lock = hold(&dir)?;
        Ok(Self { dir, _lock: lock })
    }

    /// A file or directory in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The name of the run, which its branch bears too: like that of no other run on this host,
    /// and the same whenever this directory is asked.
    pub(crate) fn run_name(&self) -> anyhow::Result<String> {
        let file = self.join("name");
        if let Ok(name) = fs::read_to_string(&file) {
            return Ok(name.trim().to_owned());
        }
        let base = self.dir.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let base: String = base.chars().map(plain).take(40).collect();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let seed = format!("{} {} {}", self.dir.display(), std::process::id(), now.as_nanos());
        let hash = BlobHash::of(seed.as_bytes());
        let (base, hash) = (base.trim_matches('-'), hash.as_str().get(..6).unwrap_or_default());
        let name = if base.is_empty() { format!("run-{hash}") } else { format!("{base}-{hash}") };
        write_whole(&file, name.as_bytes())?;
        Ok(name)
    }

    /// Makes the example's repository and its plan, each whole or not at all, unless they are there.
    pub(crate) fn make_repository(&self) -> anyhow::Result<PathBuf> {
        let repo = self.join("repo");
        if repo.is_dir() {
            return Ok(repo);
        }
        // Each try has a place of its own: a git that outlives a killed one still writes there.
        let new = tempfile::Builder::new().prefix(HALF).tempdir_in(&self.dir)?;
        let new = new.keep();
        for (path, text) in REPOSITORY {
            let file = new.join(path);
            fs::create_dir_all(file.parent().context("a file is in a directory")?)?;
            fs::write(&file, text)?;
        }
        fs::set_permissions(new.join("bin/tk"), fs::Permissions::from_mode(0o755))?;
        git(&new, &["init", "--quiet", "--initial-branch", MAIN])?;
        git(&new, &["add", "--all"])?;
        git(
            &new,
            &["commit", "--quiet", "--message", "The toolkit in awk, and tests for its port"],
        )?;
        write_whole(&self.join("tasks.json"), PLAN.as_bytes())?;
        fs::rename(&new, &repo)?;
        for entry in fs::read_dir(&self.dir)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(HALF) {
                // What is still written to stays, and does no harm.
                drop(fs::remove_dir_all(entry.path()));
            }
        }
        Ok(repo)
    }
}

/// Whether the directory holds something of this name that a run would take for its own.
fn taken(dir: &Path, name: &str, own_repository: bool) -> bool {
    let is_made = own_repository || !matches!(name, "repo" | "tasks.json");
    is_made && dir.join(name).exists()
}

/// How long a lock outlives the process that is named in it: a program that it was just starting
/// when it was killed has the file for another moment, which is long where the disk is slow.
const LINGERS: Duration = Duration::from_secs(60);

/// Holds the directory for this process; a file lock ends with its process, whatever ends that.
fn hold(dir: &Path) -> anyhow::Result<File> {
    let path = dir.join("lock");
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(err)) => {
                return Err(err).with_context(|| format!("{} cannot be locked", path.display()));
            }
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path)?;
                let holder = holder.trim();
                let lives = !holder.is_empty() && Path::new("/proc").join(holder).exists();
                ensure!(
                    !lives && began.elapsed() < LINGERS,
                    "{} is held by process {holder}: wait for it, or end it first",
                    dir.join("run.db").display()
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Runs git on the example's own repository, with nothing of the person's configuration.
fn git(at: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("git")
        .args(["-c", "user.name=example", "-c", "user.email=example@localhost"])
        .args(["-c", "commit.gpgSign=false"])
        .args(arguments)
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stdin(Stdio::null())
        .output()
        .context("git cannot be started: is it installed?")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {} failed: {}", arguments.join(" "), words.trim());
    Ok(())
}
