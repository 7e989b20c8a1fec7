//! What a new worktree is set up with before anybody works in it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orchestrator_core::{Mask, head_and_tail};
use orchestrator_process::{End, Environment, Limits, Program, mask_file, run};
use tokio_util::sync::CancellationToken;

use crate::config::{GitConfig, SetUp};
use crate::error::GitError;
use crate::files::remove_if_there;
use crate::worktrees::place::Place;

/// Most bytes of a command's output that an error shows.
const SHOWN_BYTES: usize = 4 << 10;

/// How the worktrees of a run are set up.
#[derive(Debug)]
pub(crate) struct Fittings {
    config: Arc<GitConfig>,
    /// Where the workspaces are.
    root: PathBuf,
    /// Ports are given to one worktree after the other.
    giving_ports: Mutex<()>,
}

impl Fittings {
    pub(crate) fn new(config: Arc<GitConfig>, root: PathBuf) -> Self {
        Self { config, root, giving_ports: Mutex::default() }
    }

    /// Sets a worktree up: its own directories, and the configured steps.
    pub(crate) async fn set_up(&self, place: &Place) -> Result<(), GitError> {
        place.make_scratch()?;
        self.write_variables(place)?;
        for log in place.set_up_logs() {
            remove_if_there(&log)?;
        }
        for step in &self.config.set_up {
            match step {
                SetUp::Copy { from, to } => {
                    let to = inside(place, to)?;
                    remove_if_there(&to)?;
                    copy(from, &to).map_err(GitError::io(from, "copied"))?;
                }
                SetUp::Link { from, to } => {
                    let to = inside(place, to)?;
                    let found = fs::canonicalize(from).map_err(GitError::io(from, "found"))?;
                    remove_if_there(&to)?;
                    symlink(found, &to).map_err(GitError::io(&to, "made"))?;
                }
                SetUp::Run { command, timeout } => {
                    self.run_step(place, command, *timeout).await?;
                }
            }
        }
        Ok(())
    }

    async fn run_step(
        &self,
        place: &Place,
        command: &[String],
        timeout: Duration,
    ) -> Result<(), GitError> {
        let Some((program, args)) = command.split_first() else { return Ok(()) };
        let mut environment = Environment::empty().passing(["PATH", "HOME"]);
        for (name, value) in self.variables(place)? {
            environment.set(name, value);
        }
        let [out, err] = place.set_up_logs();
        let program = Program::new(program)
            .args(args)
            .cwd(&place.tree)
            .environment(environment)
            .stdout_file(&out)
            .stderr_file(&err)
            .limits(Limits::new(timeout));
        let ended = run(&program, &CancellationToken::new(), &mut ()).await;
        let mask = Mask::keys();
        for log in [&out, &err] {
            mask_file(log, &mask).map_err(GitError::io(log, "cleared of keys"))?;
        }
        let ended = ended.map_err(GitError::Start)?;
        if ended.how == End::Exited(0) {
            return Ok(());
        }
        let said = format!("{}\n{}", ended.stdout_tail, ended.stderr_tail);
        Err(GitError::SetUp {
            command: command.join(" "),
            how: format!("{:?}", ended.how),
            said: head_and_tail(mask.text(said.trim()).as_ref(), SHOWN_BYTES),
        })
    }

    /// The variables that belong to a worktree: they are in a file beside it too.
    pub(crate) fn variables(&self, place: &Place) -> Result<Vec<(String, OsString)>, GitError> {
        let mut known = vec![
            ("{tree}", place.tree.clone().into_os_string()),
            ("{scratch}", place.scratch().into_os_string()),
        ];
        let mut variables = vec![
            ("ORCHESTRATOR_SCRATCH".to_owned(), place.scratch().into_os_string()),
            ("TMPDIR".to_owned(), place.scratch().into_os_string()),
        ];
        if let Some(ports) = self.config.ports {
            let first = ports.of(self.block_of(place, ports.blocks())?);
            let last = first + (ports.each.max(1) - 1);
            for (name, port) in [("ORCHESTRATOR_PORT", first), ("ORCHESTRATOR_PORT_LAST", last)] {
                variables.push((name.to_owned(), port.to_string().into()));
            }
            known.push(("{port}", first.to_string().into()));
            known.push(("{port_last}", last.to_string().into()));
        }
        for (name, value) in &self.config.variables {
            variables.push((name.clone(), filled_in(value, &known)));
        }
        Ok(variables)
    }

    fn write_variables(&self, place: &Place) -> Result<(), GitError> {
        let mut lines = Vec::new();
        for (name, value) in self.variables(place)? {
            lines.extend_from_slice(format!("export {name}='").as_bytes());
            for byte in value.as_bytes() {
                match byte {
                    b'\'' => lines.extend_from_slice(br"'\''"),
                    other => lines.push(*other),
                }
            }
            lines.extend_from_slice(b"'\n");
        }
        let file = place.variables();
        fs::write(&file, lines).map_err(GitError::io(&file, "written"))
    }

    /// The block of ports of a worktree: the one that it has, or the first that no other has.
    fn block_of(&self, place: &Place, blocks: u16) -> Result<u16, GitError> {
        let _turn = self.giving_ports.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = self.root.join(".ports");
        fs::create_dir_all(&dir).map_err(GitError::io(&dir, "made"))?;
        let mut free = None;
        for block in 0..blocks {
            let path = dir.join(block.to_string());
            match fs::read_to_string(&path) {
                Ok(slug) if slug == place.slug => return Ok(block),
                Ok(slug) if self.root.join(&slug).exists() => {}
                // Its workspace is gone, or nobody had it yet.
                Ok(_) | Err(_) => free = free.or(Some(block)),
            }
            if free.is_some() && !path.exists() {
                break;
            }
        }
        let block = free.ok_or(GitError::NoPorts { blocks })?;
        let path = dir.join(block.to_string());
        fs::write(&path, &place.slug).map_err(GitError::io(&path, "written"))?;
        Ok(block)
    }
}

/// A value with what is known of a worktree in the place of its names.
fn filled_in(value: &str, known: &[(&str, OsString)]) -> OsString {
    let mut text = OsString::new();
    let mut rest = value;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        text.push(before);
        let meant = known.iter().find(|(name, _)| from.starts_with(name));
        match meant {
            Some((_, value)) => text.push(value),
            None => text.push("{"),
        }
        let name = meant.map_or("{", |(name, _)| name);
        rest = from.strip_prefix(name).unwrap_or_default();
    }
    text.push(rest);
    text
}

/// A path in the worktree, whose directories are there and are no links.
fn inside(place: &Place, path: &Path) -> Result<PathBuf, GitError> {
    let refused = || GitError::SetUpPath { path: path.to_owned() };
    let mut at = place.tree.clone();
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(refused()) };
        if name.eq_ignore_ascii_case(".git") {
            return Err(refused());
        }
        at.push(name);
        if parts.peek().is_some() {
            match fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => return Err(refused()),
                Err(_) => fs::create_dir(&at).map_err(GitError::io(&at, "made"))?,
            }
        }
    }
    if at == place.tree { Err(refused()) } else { Ok(at) }
}

/// Copies a file, a link or a directory with all that is in it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    if meta.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if !meta.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
