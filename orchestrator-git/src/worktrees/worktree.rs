//! Worktrees: making, resetting and removing them, in whatever state they are found.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orchestrator_core::FencingToken;
use tracing::warn;

use crate::config::GitConfig;
use crate::error::GitError;
use crate::files::{
    allow, make_accessible, make_readable, read_plain, remove_if_there, renew, unique,
};
use crate::git::apart::Apart;
use crate::git::locks;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::{Refs, bytes_of, path_of};
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;
use crate::worktrees::setup::Fittings;

/// Most bytes that are read of the file that ties a worktree to its repository.
const LINK_BYTES_MAX: u64 = 64 << 10;

/// The name of the files of a worktree while git learns of it again.
const FILES: &str = "files";

/// How often it is tried to add a worktree that others are in the way of.
const ADDS_MAX: u32 = 100;

/// What operations under way leave in the directory of a worktree.
const UNDER_WAY: &[&str] = &[
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_AUTOSTASH",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "SQUASH_MSG",
    "REBASE_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_NAMES",
    "BISECT_TERMS",
    "BISECT_EXPECTED_REV",
    "config.worktree",
];

/// What is to be checked out in a workspace, and for whom.
pub(crate) struct Checkout {
    pub(crate) token: FencingToken,
    pub(crate) attempt: u32,
    pub(crate) base: Oid,
    pub(crate) start: Oid,
    pub(crate) sealed: Option<(Oid, u32)>,
    /// Whether ignored files are somebody else's, so that they are removed too.
    pub(crate) is_anew: bool,
    /// Whether something that the set-up made is missing now.
    pub(crate) is_emptied: bool,
}

/// The worktrees of a run.
#[derive(Debug)]
pub(crate) struct Worktrees {
    pub(crate) git: Arc<Git>,
    /// What git is called with about files.
    pub(crate) apart: Apart,
    refs: Refs,
    /// Where they are.
    pub(crate) root: PathBuf,
    /// Ignored files that stay when a worktree goes from one task to another.
    caches: Vec<String>,
    fittings: Fittings,
    /// Git's list of worktrees is added to by one call at a time.
    pub(crate) adding: tokio::sync::Mutex<()>,
}

impl Worktrees {
    pub(crate) fn new(config: &Arc<GitConfig>, apart: Apart, refs: Refs, root: PathBuf) -> Self {
        Self {
            git: Arc::clone(&apart.git),
            apart,
            refs,
            caches: config.caches.clone(),
            fittings: Fittings::new(Arc::clone(config), root.clone()),
            root,
            adding: tokio::sync::Mutex::default(),
        }
    }

    /// The place of this name.
    pub(crate) fn place(&self, slug: &str) -> Place {
        Place::new(&self.root, slug)
    }

    /// The variables that belong to a workspace.
    pub(crate) fn variables(&self, place: &Place) -> Result<Vec<(String, OsString)>, GitError> {
        self.fittings.variables(place)
    }

    /// Git's own directory of a worktree of this name.
    pub(crate) fn admin(&self, name: &str) -> PathBuf {
        self.git.dir.join("worktrees").join(name)
    }

    /// Whether git still knows the workspace's worktree under this name.
    pub(crate) fn is_registered(&self, place: &Place, name: &str) -> bool {
        let gitdir = fs::read(self.admin(name).join("gitdir")).unwrap_or_default();
        !name.is_empty()
            && place.is_real()
            && path_of(gitdir.trim_ascii()) == place.tree.join(".git")
    }

    /// Checks out what is asked for. What was in the workspace has been kept before.
    pub(crate) async fn check_out(
        &self,
        place: &Place,
        old: Option<&Marker>,
        what: Checkout,
    ) -> Result<(), GitError> {
        fs::create_dir_all(&place.dir).map_err(GitError::io(&place.dir, "made"))?;
        let known = old.map(|old| old.name.clone()).unwrap_or_default();
        let is_known = self.is_registered(place, &known);
        let is_anew = what.is_anew || old.is_none_or(|old| !old.is_ready);
        let mut is_set_up = !is_anew && !what.is_emptied;
        let mut marker = Marker {
            token: what.token,
            attempt: what.attempt,
            base: what.base,
            start: what.start,
            name: if is_known { known } else { String::new() },
            is_ready: false,
            sealed: what.sealed,
        };
        marker.write(&place.marker)?;
        if is_known {
            self.link(place, &marker.name).await?;
            is_set_up &= !self.reset(place, &marker.start, is_anew).await?;
            self.detach(&marker.name, &marker.start).await?;
        } else {
            marker.name = self.add(place, &marker.start).await?;
            marker.note(&place.marker)?;
            self.read_tree(place, &marker.start).await?;
        }
        self.tidy(&marker.name).await?;
        // Before the set-up, whose steps may call git.
        let theirs = self.admin(&marker.name).join("index");
        let ours = fs::read(&place.index).map_err(GitError::io(&place.index, "read"))?;
        renew(&theirs, &ours)?;
        if !is_known || !is_set_up {
            self.fittings.set_up(place).await?;
        }
        self.check_turn(place, marker.token)?;
        marker.is_ready = true;
        marker.write(&place.marker)
    }

    /// Refuses a lease whose workspace a later one has opened.
    pub(crate) fn check_turn(&self, place: &Place, token: FencingToken) -> Result<(), GitError> {
        match Marker::read(&place.marker) {
            Some(marker) if marker.token > token => {
                Err(GitError::WorkspaceLost { slug: place.slug.clone(), token })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Adds a worktree without files; returns git's name for it.
    async fn add(&self, place: &Place, start: &Oid) -> Result<String, GitError> {
        if fs::symlink_metadata(&place.tree).is_ok() {
            self.discard(&place.tree).await?;
        }
        remove_if_there(&place.index)?;
        remove_if_there(&place.dir.join(FILES))?;
        self.register(place, start).await
    }

    /// Has git know a worktree whose files and index are there; returns git's name for it.
    pub(crate) async fn add_again(&self, place: &Place, start: &Oid) -> Result<String, GitError> {
        let (tree, files) = (&place.tree, place.dir.join(FILES));
        allow(tree, 0o700);
        fs::rename(tree, &files).map_err(GitError::io(tree, "moved"))?;
        let name = self.register(place, start).await?;
        remove_if_there(tree)?;
        fs::rename(&files, tree).map_err(GitError::io(&files, "moved"))?;
        self.link(place, &name).await?;
        Ok(name)
    }

    async fn register(&self, place: &Place, start: &Oid) -> Result<String, GitError> {
        let _turn = self.adding.lock().await;
        let add = ["worktree", "add", "-f", "-f", "--detach", "--no-checkout", "--"];
        let call = self.git.plumbing(add).arg(&place.tree).arg(start.as_str());
        let mut tries = 0;
        loop {
            let added = self.git.ask(call.clone()).await?;
            if added.code == 0 {
                break;
            }
            // Whoever gives the last worktree of a repository back, and git, removes the directory of
            // them when it is empty, also just before this one is made in it.
            let is_gone = added.stderr.contains("could not create");
            tries += 1;
            if !is_gone || tries > ADDS_MAX {
                return Err(added.failed("worktree"));
            }
        }
        let link = place.tree.join(".git");
        let written = fs::read(&link).map_err(GitError::io(&link, "read"))?;
        let admin = written.strip_prefix(b"gitdir: ").map(|path| path_of(path.trim_ascii()));
        let name = admin.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        name.map(str::to_owned).ok_or_else(|| GitError::Unexpected {
            command: "worktree add".to_owned(),
            answer: String::from_utf8_lossy(&written).into_owned(),
        })
    }

    /// Puts back the file that ties the worktree to the repository, if it is not as it was.
    pub(crate) async fn link(&self, place: &Place, name: &str) -> Result<(), GitError> {
        let link = place.tree.join(".git");
        let mut text = b"gitdir: ".to_vec();
        text.extend_from_slice(bytes_of(&self.admin(name)));
        text.push(b'\n');
        if read_plain(&link, LINK_BYTES_MAX).is_some_and(|found| found == text) {
            return Ok(());
        }
        if fs::symlink_metadata(&link).is_ok_and(|meta| meta.is_dir()) {
            self.set_aside(place, &link).await?;
        }
        // What is there may be a link to a file elsewhere, which must not be written to.
        remove_if_there(&link)?;
        let made = OpenOptions::new().write(true).create_new(true).open(&link);
        made.and_then(|mut file| file.write_all(&text)).map_err(GitError::io(&link, "written"))
    }

    /// Makes the files those of the commit: others are removed, ignored ones only where the workspace
    /// is made anew, and then all but the caches. Says whether submodules were emptied, so that it has
    /// to be set up again.
    pub(crate) async fn reset(
        &self,
        place: &Place,
        start: &Oid,
        is_anew: bool,
    ) -> Result<bool, GitError> {
        make_readable(&place.tree).await?;
        let is_emptied = self.empty_submodules(place, start, is_anew).await?;
        if self.read_tree(place, start).await.is_err() {
            // Most likely the index is damaged, or a directory is read-only.
            remove_if_there(&place.index)?;
            make_accessible(&place.tree);
            self.read_tree(place, start).await?;
        }
        let clean = self.apart.in_tree(place, ["clean", "-f", "-f", "-d", "-q"]).await?;
        let clean = if is_anew {
            let caches = self.caches.iter().map(|cache| format!("--exclude={cache}"));
            clean.arg("-x").args(caches)
        } else {
            clean
        };
        if self.git.ask(clean.clone()).await?.code != 0 {
            make_accessible(&place.tree);
            self.git.run(clean).await?;
        }
        Ok(is_emptied)
    }

    async fn read_tree(&self, place: &Place, start: &Oid) -> Result<(), GitError> {
        let call =
            self.apart.in_tree(place, ["read-tree", "--reset", "-u", start.as_str()]).await?;
        self.git.run(call).await.map(drop)
    }

    /// Where the worktree's own HEAD stands; `None` when that is no commit.
    pub(crate) async fn head_of(&self, name: &str) -> Result<Option<Oid>, GitError> {
        let call = self.git.plumbing(["rev-parse", "--verify", "-q", "HEAD^{commit}"]);
        let call = call.env("GIT_DIR", self.admin(name)).env("GIT_COMMON_DIR", &self.git.dir);
        Ok(Oid::parse(&self.git.ask(call).await?.text()))
    }

    /// Makes the workspace again what was checked out in it.
    pub(crate) async fn make_clean(&self, place: &Place) -> Result<(), GitError> {
        let marker = Marker::read(&place.marker);
        let marker =
            marker.ok_or_else(|| GitError::NoChange { text: place.tree.display().to_string() })?;
        if self.reset(place, &marker.start, false).await? {
            self.fittings.set_up(place).await?;
        }
        Ok(())
    }

    /// Sets the worktree's own HEAD, whatever branch an agent has put it on.
    async fn detach(&self, name: &str, start: &Oid) -> Result<(), GitError> {
        if !self.git.has_ref_table() {
            return renew(&self.admin(name).join("HEAD"), format!("{start}\n").as_bytes());
        }
        let args = ["update-ref", "--no-deref", "HEAD", start.as_str()];
        let call = self.git.plumbing(args).env("GIT_DIR", self.admin(name));
        self.git.run(call.env("GIT_COMMON_DIR", &self.git.dir)).await.map(drop)
    }

    /// Ends what was under way in the worktree.
    pub(crate) async fn tidy(&self, name: &str) -> Result<(), GitError> {
        let admin = self.admin(name);
        for left in UNDER_WAY {
            remove_if_there(&admin.join(left))?;
        }
        self.clear_locks(name).await
    }

    /// Removes locks that a killed git left in the worktree's own directory.
    pub(crate) async fn clear_locks(&self, name: &str) -> Result<(), GitError> {
        let admin = self.admin(name);
        for lock in ["index.lock", "HEAD.lock"] {
            let lock = admin.join(lock);
            if lock.exists() {
                locks::clear_stale(&self.git.caller.lock_roots, &lock).await?;
            }
        }
        Ok(())
    }

    /// Removes a workspace. What was in it has been kept before.
    pub(crate) async fn remove(&self, place: &Place) -> Result<(), GitError> {
        let admins = self.admins_of(place);
        self.discard(&place.dir).await?;
        self.forget(admins)
    }

    /// Git's own directories of worktrees at this place, also of those that were never finished.
    fn admins_of(&self, place: &Place) -> Vec<PathBuf> {
        let link = place.tree.join(".git");
        self.admins_where(|found| found == link)
    }

    /// Git's own directories of the worktrees whose link file this says yes to.
    fn admins_where(&self, is_meant: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.git.dir.join("worktrees")).into_iter().flatten().flatten();
        let is_of = |dir: &PathBuf| {
            let gitdir = fs::read(dir.join("gitdir")).unwrap_or_default();
            is_meant(&path_of(gitdir.trim_ascii()))
        };
        entries.map(|entry| entry.path()).filter(is_of).collect()
    }

    /// Lets git forget worktrees of this run whose files are gone: a removal broke off there.
    pub(crate) async fn forget_missing(&self) -> Result<(), GitError> {
        let _turn = self.adding.lock().await;
        let is_missing = |link: &Path| {
            link.starts_with(&self.root) && link.parent().is_none_or(|tree| !tree.exists())
        };
        self.forget(self.admins_where(is_missing))
    }

    fn forget(&self, admins: Vec<PathBuf>) -> Result<(), GitError> {
        for admin in admins {
            // Another call may be at the same one.
            remove_if_there(&admin)?;
        }
        self.drop_empty();
        Ok(())
    }

    /// Removes the directory of worktrees when there is none, as git itself does.
    pub(crate) fn drop_empty(&self) {
        if let Ok(()) = fs::remove_dir(self.git.dir.join("worktrees")) {}
    }

    /// Moves a directory out of the way at once, and removes it then.
    pub(crate) async fn discard(&self, dir: &Path) -> Result<(), GitError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trash = self.root.join(format!("{TRASH}{name}-{}", unique()));
        // Whoever may not write in a directory cannot move it either.
        allow(dir, 0o700);
        fs::rename(dir, &trash).map_err(GitError::io(dir, "moved"))?;
        self.empty_trash(trash).await
    }

    pub(crate) async fn empty_trash(&self, trash: PathBuf) -> Result<(), GitError> {
        let removing = tokio::task::spawn_blocking(move || remove_if_there(&trash));
        removing
            .await
            .unwrap_or_else(|err| Err(GitError::io(&self.root, "cleared")(io::Error::other(err))))
    }

    /// Moves something that git cannot keep to where a person finds it.
    pub(crate) async fn set_aside(&self, place: &Place, what: &Path) -> Result<PathBuf, GitError> {
        let inside = what.strip_prefix(&place.dir).unwrap_or(what);
        let aside = self.root.join(SET_ASIDE);
        // Before anything is there, so that whoever has nothing but the repository finds it.
        self.note_aside(&aside).await?;
        let to = aside.join(&place.slug).join(unique()).join(inside);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).map_err(GitError::io(dir, "made"))?;
        }
        allow(what, 0o600);
        fs::rename(what, &to).map_err(GitError::io(what, "moved"))?;
        warn!(from = %what.display(), to = %to.display(), "set aside what git cannot keep");
        Ok(to)
    }

    /// Has the repository say where things are set aside.
    async fn note_aside(&self, aside: &Path) -> Result<(), GitError> {
        let (name, path) = (self.refs.aside(), bytes_of(aside).to_vec());
        let blob = self.git.write_object("blob", path).await?;
        if self.git.tip(&name).await?.as_ref() == Some(&blob) {
            return Ok(());
        }
        let noted = self.git.transact(&format!("update {name} {blob}\n")).await?;
        if noted.code == 0 { Ok(()) } else { Err(noted.failed("update-ref")) }
    }
}

/// The directory of a run in which what git cannot keep is set aside, by task and time.
pub(crate) const SET_ASIDE: &str = ".kept";

/// How the names of directories begin that are being removed.
pub(crate) const TRASH: &str = ".trash-";
