//! What a change may not hold. The rules look at the list of what differs and
//! at what the change has there, and at nothing else.

use std::path::Component;

use orchestrator_core::Scope;

use crate::config::GitConfig;
use crate::git::diff::{Content, Entry, GITLINK, SYMLINK, is_file};
use crate::git::preflight::QUESTION_FILE;
use crate::names::{listed, path_of, shown};

/// The rules that hold for one task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) scope: Option<&'a Scope>,
    pub(crate) protected: Option<&'a Scope>,
    pub(crate) forbidden: &'a Scope,
    pub(crate) allow_mode_changes: bool,
    pub(crate) files_max: usize,
    pub(crate) file_bytes_max: u64,
}

impl<'a> Rules<'a> {
    /// Those of a run, for a task with this scope.
    pub(crate) const fn of(config: &'a GitConfig, scope: Option<&'a Scope>) -> Self {
        Self {
            scope,
            protected: config.protected.as_ref(),
            forbidden: &config.forbidden,
            allow_mode_changes: config.allow_mode_changes,
            files_max: config.files_max,
            file_bytes_max: config.file_bytes_max,
        }
    }

    /// The rules about paths that these entries break, in words.
    pub(crate) fn broken_by_paths(&self, entries: &[Entry]) -> Vec<String> {
        let mut broken = Vec::new();
        let outside = |path: &str| self.scope.is_some_and(|scope| !scope.allows(path));
        if let Some(paths) = paths_where(entries, |entry| outside(&as_text(entry))) {
            let scope: Vec<&str> = self.scope.iter().flat_map(|scope| scope.patterns()).collect();
            broken.push(format!(
                "These paths are outside what the task may change ({}): {paths}",
                scope.join(", ")
            ));
        }
        let protected = |path: &str| self.protected.is_some_and(|paths| paths.allows(path));
        if let Some(paths) = paths_where(entries, |entry| protected(&as_text(entry))) {
            broken.push(format!("These paths are protected, no task may change them: {paths}"));
        }
        let is_submodule = |entry: &Entry| {
            entry.old_mode == GITLINK || entry.new_mode == GITLINK || entry.path == b".gitmodules"
        };
        if let Some(paths) = paths_where(entries, is_submodule) {
            broken.push(format!(
                "Submodules may not change, and no repository may lie in the workspace (remove \
                 its `.git`, or the whole of it): {paths}"
            ));
        }
        let asks = |entry: &Entry| entry.new_mode != 0 && entry.path == QUESTION_FILE;
        if entries.iter().any(asks) {
            broken.push(
                "`BLOCKED.md` at the root is how a question is asked, and cannot be part of a change"
                    .to_owned(),
            );
        }
        let unwanted = |entry: &Entry| is_new(entry) && self.forbidden.allows(&as_text(entry));
        if let Some(paths) = paths_where(entries, unwanted) {
            broken.push(format!(
                "These files look like secrets or build outputs, which do not belong into a change \
                 (remove them, or add them to `.gitignore`): {paths}"
            ));
        }
        let changes_mode = |entry: &Entry| {
            is_file(entry.old_mode) && is_file(entry.new_mode) && entry.old_mode != entry.new_mode
        };
        if !self.allow_mode_changes
            && let Some(paths) = paths_where(entries, changes_mode)
        {
            broken.push(format!(
                "These files were made executable, or no longer so (`chmod` them back): {paths}"
            ));
        }
        broken
    }

    /// The rules that what is at these paths breaks, in words.
    pub(crate) fn broken_by_contents(
        &self,
        entries: &[Entry],
        contents: &[Content],
    ) -> Vec<String> {
        let mut broken: Vec<String> = links_that_leave(entries, contents).into_iter().collect();
        if entries.len() > self.files_max {
            broken.push(format!(
                "{} files differ, and {} are allowed: build outputs belong into `.gitignore`",
                entries.len(),
                self.files_max
            ));
        }
        let is_large = |content: &Content| content.bytes > self.file_bytes_max;
        if let Some(paths) = paths_with(entries, contents, |_, content| is_large(content)) {
            let max = self.file_bytes_max;
            broken.push(format!("These files are larger than {max} bytes: {paths}"));
        }
        broken
    }
}

const fn is_new(entry: &Entry) -> bool {
    entry.old_mode == 0
}

fn as_text(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.path).into_owned()
}

fn paths_where(entries: &[Entry], is_meant: impl Fn(&Entry) -> bool) -> Option<String> {
    let paths: Vec<String> =
        entries.iter().filter(|entry| is_meant(entry)).map(|entry| shown(&entry.path)).collect();
    (!paths.is_empty()).then(|| listed(paths.iter().map(String::as_str)))
}

fn paths_with(
    entries: &[Entry],
    contents: &[Content],
    is_meant: impl Fn(&Entry, &Content) -> bool,
) -> Option<String> {
    let found = entries.iter().zip(contents).filter(|(entry, content)| is_meant(entry, content));
    let paths: Vec<String> = found.map(|(entry, _)| shown(&entry.path)).collect();
    (!paths.is_empty()).then(|| listed(paths.iter().map(String::as_str)))
}

/// The links that lead out of the tree, in words.
pub(crate) fn links_that_leave(entries: &[Entry], contents: &[Content]) -> Option<String> {
    let leaves = |entry: &Entry, content: &Content| {
        let stays = |target| stays_inside(&entry.path, target);
        entry.new_mode == SYMLINK && !content.target.as_deref().is_some_and(stays)
    };
    let paths = paths_with(entries, contents, leaves)?;
    Some(format!("These symbolic links lead out of the repository: {paths}"))
}

/// Whether a link leads to somewhere in the tree, whatever other links are in it.
///
/// `..` is counted only at the beginning of the target: after a name it may be a link that leads
/// elsewhere.
fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    let (link, target) = (path_of(path), path_of(target));
    let mut depth = link.components().count().saturating_sub(1);
    let mut has_name = false;
    for part in target.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if depth > 0 && !has_name => depth -= 1,
            Component::Normal(name) if !name.eq_ignore_ascii_case(".git") => has_name = true,
            Component::ParentDir
            | Component::Normal(_)
            | Component::RootDir
            | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_may_lead_anywhere_inside_and_nowhere_else() {
        for (target, inside) in [
            ("b", true),
            ("../c/d", true),
            ("./x", true),
            ("../../e", false),
            ("/etc/passwd", false),
            ("x/../../..", false),
            ("../.git/config", false),
        ] {
            assert_eq!(stays_inside(b"a/link", target.as_bytes()), inside, "{target}");
        }
    }

    #[test]
    fn p18_each_broken_rule_is_said_with_its_paths() {
        let entry = |mode, path: &str| Entry {
            old_mode: 0,
            new_mode: mode,
            new: None,
            path: path.as_bytes().to_vec(),
        };
        let scope = Scope::parse(["src"]).unwrap();
        let protected = Scope::parse(["src/tests"]).unwrap();
        let forbidden = GitConfig::unwanted_files();
        let rules = Rules {
            scope: Some(&scope),
            protected: Some(&protected),
            forbidden: &forbidden,
            allow_mode_changes: false,
            files_max: 9,
            file_bytes_max: 1,
        };
        let fine = [entry(0o100_644, "src/a.rs"), entry(0o100_755, "src/run.sh")];
        assert!(rules.broken_by_paths(&fine).is_empty());
        let bad =
            [entry(0o100_644, "b\n"), entry(0o100_644, "src/tests/t"), entry(GITLINK, "src/s")];
        let broken = rules.broken_by_paths(&bad).join("\n");
        assert!(broken.contains("`b\\n`") && broken.contains("`src/tests/t`"), "{broken}");
        assert!(broken.contains("Submodules") && broken.contains("`src/s`"), "{broken}");
        let unwanted = [entry(0o100_644, "src/.env"), entry(0o100_644, "src/node_modules/x/y")];
        let broken = rules.broken_by_paths(&unwanted).join("\n");
        assert!(broken.contains("`src/.env`, `src/node_modules/x/y`"), "{broken}");
        let asks = rules.broken_by_paths(&[entry(0o100_644, "BLOCKED.md")]).join("");
        assert!(asks.contains("how a question is asked"), "{asks}");
        let was_there = Entry { old_mode: 0o100_644, ..entry(0o100_644, "src/.env") };
        assert!(rules.broken_by_paths(&[was_there]).is_empty());
        let made = Entry { old_mode: 0o100_644, ..entry(0o100_755, "src/a.rs") };
        assert!(rules.broken_by_paths(&[made]).join("").contains("executable"));
    }
}
