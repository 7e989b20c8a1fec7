//! Files that git writes otherwise than it stores them: line endings, encodings.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::time::UNIX_EPOCH;

use crate::error::GitError;
use crate::files::read_plain;
use crate::git::apart::Apart;
use crate::git::diff::{Entry, GITLINK, SYMLINK};
use crate::git::oid::Oid;
use crate::names::path_of;
use crate::worktrees::place::Place;

/// Attributes by which git converts a file.
const CONVERTING: &[&str] = &["text", "crlf", "eol", "ident", "working-tree-encoding", "filter"];

/// The longest file that is compared byte for byte with what a checkout writes.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

impl Apart {
    /// Lets the next checkout write the files of a sealed change anew where what an agent wrote may
    /// not be what a checkout writes: who judges the change must see it as everybody else will.
    pub(crate) async fn rewrite_converted(
        &self,
        place: &Place,
        entries: &[Entry],
    ) -> Result<(), GitError> {
        let is_file = |entry: &&Entry| !matches!(entry.new_mode, 0 | GITLINK | SYMLINK);
        let files: Vec<&[u8]> =
            entries.iter().filter(is_file).map(|entry| entry.path.as_slice()).collect();
        if files.is_empty() {
            return Ok(());
        }
        let converted = if self.git.shield().await?.converts_all {
            files.iter().map(|path| path.to_vec()).collect()
        } else {
            self.with_attributes(place, &files).await?
        };
        for path in converted {
            let path = place.tree.join(path_of(&path));
            // Git looks at a file again whose time is not the one that it noted, in seconds.
            let touched = File::open(&path).and_then(|file| file.set_modified(UNIX_EPOCH));
            touched.map_err(GitError::io(&path, "touched"))?;
        }
        Ok(())
    }

    async fn with_attributes(
        &self,
        place: &Place,
        files: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let mut call = self.in_tree(place, ["check-attr", "-z", "--stdin"]).await?;
        call = call.args(CONVERTING);
        let answer = self.git.run(call.stdin(files.join(&0))).await?;
        let mut fields = answer.stdout.split(|byte| *byte == 0);
        let mut found: Vec<Vec<u8>> = Vec::new();
        while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next())
        {
            let is_converted = value != b"unspecified" && value != b"unset";
            if is_converted && found.last().is_none_or(|last| last != path) {
                found.push(path.to_vec());
            }
        }
        Ok(found)
    }

    /// Whether a file that git takes for changed is byte for byte what a checkout writes.
    pub(crate) async fn is_as_checked_out(
        &self,
        place: &Place,
        commit: &Oid,
        entry: &Entry,
    ) -> Result<bool, GitError> {
        let is_file = !matches!(entry.new_mode, 0 | GITLINK | SYMLINK);
        if entry.old_mode != entry.new_mode || !is_file {
            return Ok(false);
        }
        let path = path_of(&entry.path);
        let Some(bytes) = read_plain(&place.tree.join(&path), COMPARED_BYTES_MAX) else {
            return Ok(false);
        };
        let mut name = format!("{commit}:").into_bytes();
        name.extend_from_slice(path.as_os_str().as_bytes());
        let call = self.in_tree(place, ["cat-file", "--filters"]).await?;
        let call = call.arg(path_of(&name)).bytes_max(bytes.len() + 1);
        let answer = self.git.ask(call).await?;
        Ok(answer.code == 0 && !answer.is_cut && answer.stdout == bytes)
    }
}
