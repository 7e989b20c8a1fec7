//! Which files of a workspace a run changed, without asking git.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::placed;

/// Most files that are looked at; in a larger tree it is not known what changed.
const FILES_MAX: usize = 200_000;
/// Directories that hold what tools make, wherever they are.
const NOT_SOURCES: &[&str] =
    &[".git", "node_modules", "target", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"];
/// How much of a `.gitignore` is read, in bytes.
const GITIGNORE_BYTES_MAX: u64 = 1 << 20;
/// What says of itself that it is a cache.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// The files of a tree, each with what tells one state of it from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    files: BTreeMap<PathBuf, Stamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    inode: u64,
}

impl Tree {
    /// Looks at the tree below a root; `None` when it is too large or cannot be read.
    ///
    /// Directories that tools fill, and those that the `.gitignore` at the root names in full, are
    /// passed over: what a build leaves is no work.
    pub(crate) fn of(root: &Path) -> Option<Self> {
        let ignored = ignored(root);
        let mut files = BTreeMap::new();
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(root.join(&directory)).ok()?;
            for entry in entries {
                let entry = entry.ok()?;
                let path = directory.join(entry.file_name());
                let Ok(meta) = entry.metadata() else { continue };
                if !meta.is_dir() {
                    files.insert(path, Stamp::of(&meta));
                } else if !is_made_by_tools(root, &path) && !ignored.contains(&path) {
                    directories.push(path);
                }
                if files.len() + directories.len() > FILES_MAX {
                    return None;
                }
            }
        }
        Some(Self { files })
    }

    /// The files that differ, are new or are gone in `after`, in order.
    pub(crate) fn changed(&self, after: &Self) -> Vec<PathBuf> {
        let new_or_other =
            after.files.iter().filter(|(path, stamp)| self.files.get(*path) != Some(stamp));
        let gone = self.files.keys().filter(|path| !after.files.contains_key(*path));
        let mut changed: Vec<PathBuf> =
            new_or_other.map(|(path, _)| path).chain(gone).cloned().collect();
        changed.sort();
        changed
    }

    /// The files, in order.
    pub(crate) fn into_paths(self) -> impl Iterator<Item = PathBuf> {
        self.files.into_keys()
    }

    /// Whether the tree had this file, from the root or from one of its directories.
    pub(crate) fn has_ending(&self, path: &Path) -> bool {
        self.files.keys().any(|file| file.ends_with(path))
    }
}

impl Stamp {
    fn of(meta: &fs::Metadata) -> Self {
        Self {
            bytes: meta.len(),
            mode: meta.mode(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            inode: meta.ino(),
        }
    }
}

fn is_made_by_tools(root: &Path, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    NOT_SOURCES.contains(&name) || root.join(path).join(CACHE_TAG).exists()
}

/// The directories that the `.gitignore` at the root names without a pattern.
fn ignored(root: &Path) -> Vec<PathBuf> {
    // As git has it, one that is a link says nothing; a pipe would be waited for without an end.
    let text = placed::read(&root.join(".gitignore"), GITIGNORE_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let plain = |line: &&str| !line.is_empty() && !line.contains(['*', '?', '[', '!', '#', '\\']);
    let lines = text.lines().map(|line| line.trim().trim_matches('/')).filter(plain);
    lines.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p16_a_gitignore_that_is_a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".gitignore");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(Tree::of(dir.path()).is_some()).unwrap());
        assert_eq!(end.recv_timeout(std::time::Duration::from_secs(30)), Ok(true));
    }

    #[test]
    fn what_was_made_changed_or_removed_is_found_and_builds_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        write("src/a.rs", "a");
        write("src/b.rs", "b");
        write("src/gone.rs", "g");
        write(".gitignore", "/out/\n*.log\n");
        let before = Tree::of(root).unwrap();
        write("src/a.rs", "aa");
        write("src/new/c.rs", "c");
        write("target/debug/x", "x");
        write("out/y", "y");
        write("cache/CACHEDIR.TAG", "");
        write(".git/index", "i");
        fs::remove_file(root.join("src/gone.rs")).unwrap();
        let after = Tree::of(root).unwrap();
        let changed: Vec<String> =
            before.changed(&after).iter().map(|path| path.display().to_string()).collect();
        assert_eq!(changed, ["src/a.rs", "src/gone.rs", "src/new/c.rs"]);
        let has = |path: &str| after.has_ending(Path::new(path));
        assert!(has("src/b.rs") && has("c.rs") && !has("src/gone.rs") && !has("rs"));
        assert_eq!(Tree::of(&root.join("no such")), None);
    }
}
