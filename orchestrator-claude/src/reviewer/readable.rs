//! What a reviewer may have read, and an answer in text may quote a verdict from.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use orchestrator_core::port::Change;

use crate::tree::Tree;

/// Longest file that is looked at, in bytes: a reviewer's tools show no more than a part of one.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How much text is kept, in bytes. Files of the change come first.
const ALL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The change, and of the files in the workspace those that a verdict may stand in: what was cut from
/// the change is there, and what stood there before the change.
pub(super) async fn readable(root: &Path, change: &Change) -> Vec<String> {
    let (root, changed) = (root.to_owned(), change.files.clone());
    let files = tokio::task::spawn_blocking(move || files(&root, &changed)).await;
    // Whatever broke there, the change is known.
    [change.diff.clone()].into_iter().chain(files.unwrap_or_default()).collect()
}

fn files(root: &Path, changed: &[String]) -> Vec<String> {
    let changed: BTreeSet<PathBuf> = changed.iter().map(PathBuf::from).collect();
    let all = Tree::of(root).into_iter().flat_map(Tree::into_paths);
    let others: Vec<PathBuf> = all.filter(|path| !changed.contains(path)).collect();
    let mut room = ALL_BYTES_MAX;
    let mut texts = Vec::new();
    for path in changed.into_iter().chain(others) {
        let Some(text) = suspect(&root.join(path)) else { continue };
        let Some(left) = room.checked_sub(text.len()) else { break };
        room = left;
        texts.push(text);
    }
    texts
}

/// The text of a file, if a verdict may stand in it.
fn suspect(path: &Path) -> Option<String> {
    // No link is followed: it may lead anywhere, and so its target is not the reviewer's to read.
    let meta = path.symlink_metadata().ok().filter(Metadata::is_file)?;
    if meta.len() > FILE_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8_lossy(&fs::read(path).ok()?).into_owned();
    // Letters can be spelled by their number.
    let marks = ["APPROVE", "REJECT", "\\u"];
    marks.iter().any(|mark| text.contains(mark)).then_some(text)
}
