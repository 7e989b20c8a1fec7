//! The handle of a repository: finding it, refusing what is none, and the calls that all parts use.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::GitError;
use crate::git::exec::{Answer, Call, Caller};
use crate::git::oid::{Format, Oid};
use crate::git::server::Service;
use crate::git::shield::{Shield, Stamp};
use crate::git::trailers::Commit;
use crate::names::path_of;

/// The oldest git that is supported.
const VERSION_MIN: (u32, u32) = (2, 39);

/// Most commits that are remembered.
const COMMITS_MAX: usize = 4096;

/// A repository that was found, and how git is called on it.
#[derive(Debug)]
pub(crate) struct Git {
    pub(crate) caller: Caller,
    /// The path that was given.
    pub(crate) path: PathBuf,
    /// The checkout that it is the top of; `None` for a bare repository.
    pub(crate) checkout: Option<PathBuf>,
    /// The directory with the objects and refs.
    pub(crate) dir: PathBuf,
    /// The directory with the HEAD and index of that checkout.
    pub(crate) checkout_dir: PathBuf,
    pub(crate) is_bare: bool,
    pub(crate) format: Format,
    version: (u32, u32),
    /// Commits that were made here or looked at.
    commits: Mutex<HashMap<Oid, Arc<Commit>>>,
    shield: Mutex<Option<(Stamp, Arc<Shield>)>>,
}

/// A ref as it stands.
#[derive(Debug, Clone)]
pub(crate) struct Ref {
    pub(crate) name: String,
    pub(crate) oid: Oid,
    /// Where it is checked out.
    pub(crate) worktree: Option<PathBuf>,
    /// The object itself.
    pub(crate) raw: Vec<u8>,
}

impl Git {
    /// Opens the repository whose top level is this path, and no other.
    pub(crate) async fn open(mut caller: Caller, path: &Path) -> Result<Self, GitError> {
        let no_repository =
            |why: &str| GitError::NoRepository { path: path.to_owned(), why: why.to_owned() };
        let path_real = fs::canonicalize(path).map_err(|err| no_repository(&err.to_string()))?;
        if path_real.as_os_str().as_encoded_bytes().contains(&b'\n') {
            return Err(no_repository("a path with a line break cannot be used"));
        }
        if !path_real.is_dir() {
            return Err(no_repository("it is no directory"));
        }
        let version = version(&caller, &path_real).await?;
        let ask = |what: &[&'static str]| {
            Call::new(&path_real, ["rev-parse", "--path-format=absolute"]).args(what)
        };
        let asked = ["--show-object-format", "--is-bare-repository", "--git-common-dir"];
        let found = caller.ask(&ask(&asked)).await?;
        if found.code != 0 {
            return Err(no_repository(&found.stderr));
        }
        let (format, is_bare, dir) = description(&found)?;
        let dir = real(&dir)?;
        let top = if is_bare {
            dir.clone()
        } else {
            let top = caller.ask(&ask(&["--show-toplevel"])).await?;
            if top.code != 0 {
                return Err(no_repository(&top.stderr));
            }
            let top = line(&top);
            fs::canonicalize(&top).unwrap_or(top)
        };
        if top != path_real {
            return Err(GitError::NotTopLevel { path: path.to_owned(), top });
        }
        let own = caller.run(&ask(&["--absolute-git-dir"])).await?;
        let checkout_dir = real(&line(&own))?;
        caller.lock_roots.worktrees = dir.join("worktrees");
        let checkout = (!is_bare).then_some(top);
        Ok(Self {
            caller,
            path: path_real,
            checkout,
            dir,
            checkout_dir,
            is_bare,
            format,
            version,
            commits: Mutex::default(),
            shield: Mutex::new(None),
        })
    }

    pub(crate) fn has(&self, major: u32, minor: u32) -> bool {
        self.version >= (major, minor)
    }

    /// A call about objects and refs, away from any worktree.
    pub(crate) fn plumbing<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call {
        Call::new(&self.dir, args).env("GIT_DIR", &self.dir)
    }

    pub(crate) async fn run(&self, call: Call) -> Result<Answer, GitError> {
        self.caller.run(&call.config(&self.hooks().await?)).await
    }

    pub(crate) async fn ask(&self, call: Call) -> Result<Answer, GitError> {
        self.caller.ask(&call.config(&self.hooks().await?)).await
    }

    /// What switches configured hooks off.
    async fn hooks(&self) -> Result<Vec<(OsString, OsString)>, GitError> {
        let known = self.shield.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stamp = Stamp::of(&self.config_files());
        // What included files say is looked at where more depends on it.
        let known = known.filter(|(then, _)| *then == stamp).map(|(_, shield)| shield);
        let shield = match known {
            Some(shield) => shield,
            None => self.shield().await?,
        };
        Ok(shield.hooks.clone())
    }

    fn config_files(&self) -> [PathBuf; 2] {
        ["config", "config.worktree"].map(|file| self.dir.join(file))
    }

    /// What the repository's configuration would run, read anew when it changed.
    pub(crate) async fn shield(&self) -> Result<Arc<Shield>, GitError> {
        let files = self.config_files();
        let stamp = Stamp::of(&files);
        let known = self.shield.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((then, shield)) = known
            && then == stamp
            && !shield.has_includes
        {
            return Ok(shield);
        }
        // Files that are included count as the configuration does, and are not listed by themselves.
        let list = ["config", "--list", "-z", "--local", "--includes"];
        let listed = self.caller.run(&self.plumbing(list)).await?;
        let mut listed = listed.stdout;
        if files[1].exists() {
            let call = self.plumbing(["config", "--list", "-z", "--includes", "--file"]);
            listed.extend(self.caller.run(&call.arg(&files[1])).await?.stdout);
        }
        let shield = Arc::new(Shield::read(&listed));
        let mut slot = self.shield.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some((stamp, Arc::clone(&shield)));
        Ok(shield)
    }

    /// What runs as things are, hooks included.
    pub(crate) async fn programs(&self) -> Result<Shield, GitError> {
        let shield = self.shield().await?;
        Ok(Shield::clone(&shield).with_files(&self.dir))
    }

    /// The refs of these names or below them.
    pub(crate) async fn refs(&self, names: &[&str]) -> Result<Vec<Ref>, GitError> {
        const FORMAT: &str = "--format=%(refname)%00%(objectname)%00%(worktreepath)%00%(raw)%00";
        let answer = self.run(self.plumbing(["for-each-ref", FORMAT]).args(names)).await?;
        let mut refs = Vec::new();
        let mut fields = answer.stdout.split(|byte| *byte == 0);
        while let (Some(name), Some(oid), Some(worktree), Some(raw)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        {
            let name = String::from_utf8_lossy(name).trim_start_matches('\n').to_owned();
            let oid = Oid::parse(&String::from_utf8_lossy(oid));
            let Some(oid) = oid else { return Err(answer.unexpected("for-each-ref")) };
            let worktree = (!worktree.is_empty()).then(|| path_of(worktree));
            refs.push(Ref { name, oid, worktree, raw: raw.to_vec() });
        }
        Ok(refs)
    }

    /// One ref, if it is there.
    pub(crate) async fn find_ref(&self, name: &str) -> Result<Option<Ref>, GitError> {
        Ok(self.refs(&[name]).await?.into_iter().find(|found| found.name == name))
    }

    /// The objects of these names, all of which must be there.
    pub(crate) async fn resolve<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Oid; N], GitError> {
        let answer = self.ask(self.plumbing(["rev-parse"]).args(names)).await?;
        if answer.code != 0 {
            let missing = names.iter().find(|name| answer.stderr.contains(**name));
            let text = missing.copied().unwrap_or_default().to_owned();
            return Err(GitError::NoChange { text });
        }
        let oids: Vec<Oid> = answer.text().lines().filter_map(Oid::parse).collect();
        <[Oid; N]>::try_from(oids).map_err(|_| answer.unexpected("rev-parse"))
    }

    /// Changes refs, all or none of them; the lines are those of `update-ref --stdin`.
    pub(crate) async fn transact(&self, lines: &str) -> Result<Answer, GitError> {
        self.updating(lines, "commit").await
    }

    /// Tries a transaction, and takes it back.
    pub(crate) async fn rehearse(&self, lines: &str) -> Result<Answer, GitError> {
        self.updating(lines, "abort").await
    }

    async fn updating(&self, lines: &str, end: &str) -> Result<Answer, GitError> {
        let input = format!("start\n{lines}prepare\n{end}\n");
        // A ref that somebody made a name of another one must not move that one.
        let call = self.plumbing(["update-ref", "--no-deref", "--stdin"]).stdin(input);
        self.ask(call.served(Service::Updates)).await
    }

    /// The tree of a commit.
    pub(crate) async fn tree_of(&self, commit: &Oid) -> Result<Oid, GitError> {
        Ok(self.commit_of(commit).await?.tree.clone())
    }

    /// What a commit says.
    pub(crate) async fn commit_of(&self, name: &Oid) -> Result<Arc<Commit>, GitError> {
        let commits = || self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let known = commits().get(name).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let Some(body) = self.object("commit", name).await? else {
            return Err(GitError::NoChange { text: name.to_string() });
        };
        let text = String::from_utf8_lossy(&body);
        let tree = text.lines().next().and_then(|line| line.strip_prefix("tree "));
        let tree = tree.and_then(Oid::parse).ok_or_else(|| odd_object(name, &body))?;
        let message = text.split_once("\n\n").map(|(_, message)| message.to_owned());
        let commit = Commit { tree, message: message.unwrap_or_default() };
        Ok(self.note_commit(name, commit))
    }

    /// What is in an object; `None` when there is none of this name and kind.
    pub(crate) async fn object(
        &self,
        kind: &str,
        name: &(impl fmt::Display + Sync),
    ) -> Result<Option<Vec<u8>>, GitError> {
        let call = self.plumbing(["cat-file", "--batch"]).stdin(format!("{name}\n"));
        let answer = self.run(call.served(Service::Objects)).await?;
        let end = answer.stdout.iter().position(|byte| *byte == b'\n');
        let (head, body) = answer.stdout.split_at(end.unwrap_or(answer.stdout.len()));
        let head = String::from_utf8_lossy(head);
        let is_meant = head.split(' ').nth(1) == Some(kind);
        let body = body.strip_prefix(b"\n").and_then(|body| body.strip_suffix(b"\n"));
        Ok(body.filter(|_| is_meant).map(<[u8]>::to_vec))
    }

    /// Remembers what a commit says.
    pub(crate) fn note_commit(&self, name: &Oid, commit: Commit) -> Arc<Commit> {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if commits.len() >= COMMITS_MAX {
            commits.clear();
        }
        let commit = Arc::new(commit);
        commits.insert(name.clone(), Arc::clone(&commit));
        commit
    }

    /// Whether the first commit is the second or one of those before it.
    pub(crate) async fn is_ancestor(&self, first: &str, second: &str) -> Result<bool, GitError> {
        let call = self.plumbing(["merge-base", "--is-ancestor", first, second]);
        let answer = self.ask(call).await?;
        match answer.code {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(answer.failed("merge-base")),
        }
    }
}

fn odd_object(name: &Oid, body: &[u8]) -> GitError {
    let start: String = String::from_utf8_lossy(body).chars().take(200).collect();
    GitError::Unexpected { command: "cat-file".to_owned(), answer: format!("{name}: {start}") }
}

/// What `rev-parse` says of a repository: its format, whether it is bare, and where it lies.
fn description(answer: &Answer) -> Result<(Format, bool, PathBuf), GitError> {
    let text = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
    let mut lines = text.splitn(3, |byte| *byte == b'\n');
    let format = match lines.next() {
        Some(b"sha1") => Format::Sha1,
        Some(b"sha256") => Format::Sha256,
        Some(_) | None => return Err(answer.unexpected("rev-parse")),
    };
    let is_bare = lines.next() == Some(b"true");
    let dir = lines.next().ok_or_else(|| answer.unexpected("rev-parse"))?;
    Ok((format, is_bare, path_of(dir)))
}

/// The one line of an answer, which may hold any byte but a line break.
fn line(answer: &Answer) -> PathBuf {
    path_of(answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout))
}

fn real(path: &Path) -> Result<PathBuf, GitError> {
    fs::canonicalize(path).map_err(GitError::io(path, "found"))
}

async fn version(caller: &Caller, cwd: &Path) -> Result<(u32, u32), GitError> {
    let text = caller.run(&Call::new(cwd, ["version"])).await?.text();
    let number = text.split_whitespace().nth(2).unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version < VERSION_MIN {
        return Err(GitError::TooOld { found: text });
    }
    Ok(version)
}
