//! Reading refs without starting git, where they lie in files.
//!
//! What is read here decides what to ask for; whether it still holds is checked by the transaction
//! that git carries out.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::GitError;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::{path_of, short};

/// What a file says of a ref.
enum Found {
    Oid(Oid),
    Missing,
    /// Git knows more of such a thing.
    Odd,
}

impl Git {
    /// Where a ref stands.
    pub(crate) async fn tip(&self, name: &str) -> Result<Option<Oid>, GitError> {
        match self.read_ref(name) {
            Found::Oid(oid) => Ok(Some(oid)),
            Found::Missing => Ok(None),
            Found::Odd => Ok(self.find_ref(name).await?.map(|found| found.oid)),
        }
    }

    fn read_ref(&self, name: &str) -> Found {
        if self.has_ref_table() {
            return Found::Odd;
        }
        match fs::read_to_string(self.dir.join(name)) {
            Ok(text) => Oid::parse(text.trim_end()).map_or(Found::Odd, Found::Oid),
            Err(err) if is_missing(&err) => self.read_packed(name),
            Err(_) => Found::Odd,
        }
    }

    fn read_packed(&self, name: &str) -> Found {
        let packed = match fs::read(self.dir.join("packed-refs")) {
            Ok(packed) => packed,
            Err(err) if is_missing(&err) => return Found::Missing,
            Err(_) => return Found::Odd,
        };
        let lines = packed.split(|byte| *byte == b'\n');
        let mut found = lines.filter_map(|line| {
            let (oid, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            (rest == name).then(|| Oid::parse(oid)).flatten()
        });
        found.next().map_or(Found::Missing, Found::Oid)
    }

    /// The branch that a branch is only another name of.
    pub(crate) async fn stands_for(&self, branch: &str) -> Result<Option<String>, GitError> {
        let is_plain = |path: PathBuf| {
            let is_link = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink());
            !is_link && !fs::read(&path).is_ok_and(|text| text.starts_with(b"ref:"))
        };
        if !self.has_ref_table() && is_plain(self.dir.join(branch)) {
            return Ok(None);
        }
        let asked = self.ask(self.plumbing(["symbolic-ref", "-q", branch])).await?;
        Ok((asked.code == 0).then(|| asked.text()))
    }

    /// Refuses a branch that is checked out somewhere, or another name of one that may be: moving it
    /// would pull the rug from under a person.
    pub(crate) async fn refuse_taken(&self, name: &str) -> Result<(), GitError> {
        if let Some(other) = self.stands_for(name).await? {
            let (branch, other) = (short(name).to_owned(), short(&other).to_owned());
            return Err(GitError::BranchSymbolic { branch, other, repository: self.path.clone() });
        }
        match self.checked_out(name).await? {
            Some(worktree) => {
                Err(GitError::BranchCheckedOut { branch: short(name).to_owned(), worktree })
            }
            None => Ok(()),
        }
    }

    /// Whether refs lie in tables that git alone reads.
    pub(crate) fn has_ref_table(&self) -> bool {
        self.dir.join("reftable").exists()
    }

    /// The repository's main checkout. Git's directory may lie elsewhere.
    fn main(&self) -> PathBuf {
        let own = self.checkout.as_deref().filter(|_| self.checkout_dir == self.dir);
        own.or_else(|| self.dir.parent()).unwrap_or(&self.dir).to_owned()
    }

    /// The checkouts beside the main one.
    pub(crate) fn linked_checkouts(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.join("worktrees")).into_iter().flatten().flatten();
        let links = entries.filter_map(|admin| fs::read(admin.path().join("gitdir")).ok());
        links.filter_map(|link| Some(path_of(link.trim_ascii()).parent()?.to_owned())).collect()
    }

    /// The worktree in which a branch is checked out.
    pub(crate) async fn checked_out(&self, branch: &str) -> Result<Option<PathBuf>, GitError> {
        if self.has_ref_table() {
            let found = self.find_ref(branch).await?.and_then(|found| found.worktree);
            // A bare repository has a HEAD, and no files that it stands for.
            let found = found.filter(|dir| !self.is_bare || *dir != self.dir);
            return Ok(found.map(|dir| if dir == self.dir { self.main() } else { dir }));
        }
        let is_on = |head: PathBuf| {
            let head = fs::read(head).unwrap_or_default();
            let on = head.strip_prefix(b"ref:").map(<[u8]>::trim_ascii);
            on == Some(branch.as_bytes())
        };
        if !self.is_bare && is_on(self.dir.join("HEAD")) {
            return Ok(Some(self.main()));
        }
        for admin in fs::read_dir(self.dir.join("worktrees")).into_iter().flatten().flatten() {
            if is_on(admin.path().join("HEAD")) {
                let gitdir = fs::read(admin.path().join("gitdir")).unwrap_or_default();
                let link = path_of(gitdir.trim_ascii());
                return Ok(Some(link.parent().unwrap_or(&link).to_owned()));
            }
        }
        Ok(None)
    }
}

fn is_missing(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
    )
}
