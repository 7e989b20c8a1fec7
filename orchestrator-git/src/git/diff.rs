//! Differences between trees: what git lists, and what a reviewer gets of it.

use orchestrator_core::Candidate;
use orchestrator_core::port::Change;

use crate::error::GitError;
use crate::git::apart::Apart;
use crate::git::oid::Oid;
use crate::names::{listed, shown};

/// The mode of a submodule.
pub(crate) const GITLINK: u32 = 0o160_000;
/// The mode of a symbolic link.
pub(crate) const SYMLINK: u32 = 0o120_000;

/// Whether this is the mode of a plain file.
pub(crate) const fn is_file(mode: u32) -> bool {
    mode & 0o170_000 == 0o100_000
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) old_mode: u32,
    pub(crate) new_mode: u32,
    /// What is there now, where that is an object.
    pub(crate) new: Option<Oid>,
    pub(crate) path: Vec<u8>,
}

/// Reads what `--raw -z` writes.
pub(crate) fn entries(raw: &[u8]) -> Vec<Entry> {
    let mut fields = raw.split(|byte| *byte == 0);
    let mut entries = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next(), fields.next()) {
        let meta = String::from_utf8_lossy(meta);
        let mut words = meta.trim_start_matches(':').split(' ');
        let mut mode = || words.next().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        if let (Some(old_mode), Some(new_mode)) = (mode(), mode()) {
            let new = words.nth(1).and_then(Oid::parse);
            entries.push(Entry { old_mode, new_mode, new, path: path.to_vec() });
        }
    }
    entries
}

/// What is at a path now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content {
    pub(crate) bytes: u64,
    /// Where it leads to, if it is a link.
    pub(crate) target: Option<Vec<u8>>,
}

impl Apart {
    /// What is at each of these paths, as the tree has it: files of a worktree may be written
    /// otherwise, and may have changed since.
    pub(crate) async fn contents(&self, entries: &[Entry]) -> Result<Vec<Content>, GitError> {
        let is_object = |entry: &Entry| is_file(entry.new_mode) || entry.new_mode == SYMLINK;
        let named = entries.iter().filter(|entry| is_object(entry));
        let names: String =
            named.filter_map(|entry| Some(format!("{}\n", entry.new.as_ref()?))).collect();
        let sizes = if names.is_empty() {
            String::new()
        } else {
            let call = self.call(["cat-file", "--batch-check=%(objectsize)"]);
            self.git.run(call.stdin(names)).await?.text()
        };
        let mut sizes = sizes.lines().map(str::parse::<u64>);
        let mut contents = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut content = Content::default();
            if let Some(name) = entry.new.as_ref().filter(|_| is_object(entry)) {
                let size = sizes.next().and_then(Result::ok);
                content.bytes =
                    size.ok_or_else(|| GitError::NoChange { text: name.to_string() })?;
                if entry.new_mode == SYMLINK {
                    content.target = self.git.object("blob", name).await?;
                }
            }
            contents.push(content);
        }
        Ok(contents)
    }

    /// The paths that differ between two trees.
    pub(crate) async fn changed(&self, from: &str, to: &str) -> Result<Vec<Entry>, GitError> {
        let call = self.call(["diff-tree", "-r", "--raw", "-z", "--no-renames"]);
        // Whatever `.gitmodules` says is to be ignored.
        let call = call.args(["--no-ext-diff", "--ignore-submodules=none", from, to]);
        Ok(entries(&self.git.run(call).await?.stdout))
    }

    /// The change as a reviewer gets it.
    pub(crate) async fn change_of(
        &self,
        candidate: &Candidate,
        bytes_max: usize,
    ) -> Result<Change, GitError> {
        let (base, change) = (Oid::of(&candidate.base)?, Oid::of(&candidate.change)?);
        let entries = self.changed(base.as_str(), change.as_str()).await?;
        let files = entries.iter().map(|entry| shown(&entry.path)).collect();
        let args = ["diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv"];
        // Read on beyond the limit, to say how much there is and to leave out whole files.
        let call = self.without_attributes(args).args(["--ignore-submodules=none"]);
        let call = call.args([base.as_str(), change.as_str()]);
        let answer =
            self.git.run(call.bytes_max(bytes_max.saturating_mul(16).max(1 << 20))).await?;
        let text = String::from_utf8_lossy(&answer.stdout);
        let (diff, cut) = within(&text, bytes_max, answer.is_cut);
        Ok(Change { candidate: candidate.clone(), files, diff, cut })
    }
}

/// The parts of a difference that fit, file by file, and what was left out.
fn within(text: &str, room: usize, is_cut: bool) -> (String, Option<String>) {
    if text.len() <= room && !is_cut {
        return (text.to_owned(), None);
    }
    let mut diff = String::new();
    let mut left_out = Vec::new();
    for part in parts(text) {
        if diff.len() + part.len() <= room {
            diff.push_str(part);
            continue;
        }
        let title = part.lines().next().unwrap_or_default();
        let name = title.strip_prefix("diff --git ").unwrap_or(title);
        left_out.push(format!("{name} ({} bytes)", part.len()));
        if diff.is_empty() {
            // Even the first file is too long: its beginning is better than nothing.
            let end = part.char_indices().map(|(at, _)| at).take_while(|at| *at <= room).last();
            diff.push_str(&part[..end.unwrap_or(0)]);
        }
    }
    let more = if is_cut { ", and what comes after it" } else { "" };
    let names = listed(left_out.iter().map(String::as_str));
    let cut = format!("left out or cut short, since the difference is too long: {names}{more}");
    (diff, Some(cut))
}

/// The text of each file of a difference.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find("\ndiff --git ").map_or(rest.len(), |at| at + 1);
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_difference_keeps_whole_files_and_names_what_it_leaves_out() {
        let long = format!("diff --git a/long b/long\n{}\n", "+x\n".repeat(100));
        let text = format!("diff --git a/a b/a\n+1\n{long}diff --git a/z b/z\n+2\n");
        let (diff, cut) = within(&text, 100, false);
        assert_eq!(diff, "diff --git a/a b/a\n+1\ndiff --git a/z b/z\n+2\n");
        assert!(cut.unwrap().contains("a/long b/long"));
        assert_eq!(within("short", 100, false), ("short".to_owned(), None));
    }

    #[test]
    fn raw_entries_keep_paths_as_bytes() {
        let oid = "1".repeat(40);
        let mut raw = format!(":000000 100644 0 {oid} A\0").into_bytes();
        raw.extend_from_slice(b"a\nb \xff\0:160000 000000 1 0 D\0sub\0");
        let read = entries(&raw);
        assert_eq!(read[0].new, Oid::parse(&oid));
        assert_eq!(read[0].path, b"a\nb \xff");
        assert_eq!((read[1].old_mode, read[1].new_mode), (GITLINK, 0));
    }
}
