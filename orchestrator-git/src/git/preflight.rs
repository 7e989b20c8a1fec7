//! What a tree may hold that no run could work with, found before anything starts.

use crate::error::GitError;
use crate::files::read_plain;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::{bytes_of, path_of, shown};

/// The file at the root of a workspace by which an agent asks.
pub(crate) const QUESTION_FILE: &[u8] = b"BLOCKED.md";

/// Filters whose files are something else in the repository than in a checkout.
const STORED_OTHERWISE: &[&str] = &["lfs", "git-crypt"];

/// Most bytes of paths that are looked through: some millions of files.
const LISTED_BYTES_MAX: usize = 256 << 20;

/// Most bytes that are read of one file of attributes.
const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;

impl Git {
    /// Refuses a tree that cannot be worked with.
    pub(crate) async fn check_tree(
        &self,
        branch: &str,
        commit: &Oid,
        takes_stored: bool,
    ) -> Result<(), GitError> {
        let borrows = self.dir.join("objects/info/alternates").exists();
        if borrows || self.shield().await?.is_partial {
            self.check_complete(branch, commit).await?;
        }
        let call = self.plumbing(["ls-tree", "-r", "-z", "--name-only", commit.as_str()]);
        let listed = self.run(call.bytes_max(LISTED_BYTES_MAX)).await?;
        for path in listed.records() {
            if path == QUESTION_FILE {
                let (branch, file) = (branch.to_owned(), shown(path));
                return Err(GitError::QuestionFile { branch, file });
            }
            if is_attributes(path) && !takes_stored {
                self.check_attributes(commit, path).await?;
            }
        }
        if takes_stored { Ok(()) } else { self.check_own_attributes() }
    }

    /// The same for the attributes that are in no commit.
    fn check_own_attributes(&self) -> Result<(), GitError> {
        let file = self.dir.join("info/attributes");
        let text = read_plain(&file, ATTRIBUTES_BYTES_MAX as u64).unwrap_or_default();
        match stored_filter(&String::from_utf8_lossy(&text)) {
            Some(filter) => Err(GitError::StoredOtherwise { file: shown(bytes_of(&file)), filter }),
            None => Ok(()),
        }
    }

    async fn check_attributes(&self, commit: &Oid, path: &[u8]) -> Result<(), GitError> {
        let name = [commit.as_str().as_bytes(), b":", path].concat();
        let call = self.plumbing(["cat-file", "blob"]).arg(path_of(&name));
        let text = self.run(call.bytes_max(ATTRIBUTES_BYTES_MAX)).await?.text();
        match stored_filter(&text) {
            Some(filter) => Err(GitError::StoredOtherwise { file: shown(path), filter }),
            None => Ok(()),
        }
    }

    /// Refuses a repository that lacks files of the commit: nothing is fetched meanwhile.
    async fn check_complete(&self, branch: &str, commit: &Oid) -> Result<(), GitError> {
        let args = ["rev-list", "--objects", "--no-walk", "--missing=print", commit.as_str()];
        let listed = self.run(self.plumbing(args)).await?;
        let missing = listed.text().lines().filter(|line| line.starts_with('?')).count();
        if missing > 0 {
            return Err(GitError::Incomplete { branch: branch.to_owned(), missing });
        }
        Ok(())
    }
}

/// Whether a path is that of a file of attributes.
pub(crate) fn is_attributes(path: &[u8]) -> bool {
    path == b".gitattributes" || path.ends_with(b"/.gitattributes")
}

/// Lines of a file of attributes that store files otherwise, and that an earlier state of it has
/// not.
pub(crate) fn stores_anew(before: &str, now: &str) -> bool {
    now.lines().any(|line| stored_filter(line).is_some() && !before.lines().any(|it| it == line))
}

/// The first filter in a file of attributes that stores files otherwise.
pub(crate) fn stored_filter(text: &str) -> Option<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut filters = lines.flat_map(str::split_whitespace).filter_map(|word| {
        let name = word.strip_prefix("filter=")?;
        STORED_OTHERWISE.contains(&name).then(|| name.to_owned())
    });
    filters.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_store_files_otherwise_are_found_where_they_are_set() {
        for (text, found) in [
            ("*.bin filter=lfs diff=lfs merge=lfs -text\n", Some("lfs")),
            ("*.txt text\nsecrets/** filter=git-crypt diff=git-crypt", Some("git-crypt")),
            ("# *.bin filter=lfs\n*.c filter=indent\n*.d -filter\n", None),
        ] {
            assert_eq!(stored_filter(text).as_deref(), found, "{text}");
        }
    }
}
