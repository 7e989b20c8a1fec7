//! What a repository's configuration would run, and how it is kept from running.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::names::shown;

/// Keys, or ends of keys, whose values git runs as programs or reads more configuration from.
const PROGRAMS: &[&str] = &[
    "core.hookspath",
    "core.fsmonitor",
    "core.sshcommand",
    "core.editor",
    "core.pager",
    "core.askpass",
    "core.worktree",
    "core.attributesfile",
    "sequence.editor",
    "diff.external",
    "include.path",
    "gpg.program",
    ".clean",
    ".smudge",
    ".process",
    ".textconv",
    ".command",
    ".driver",
    ".cmd",
    ".helper",
    ".uploadpack",
    ".receivepack",
    ".vcs",
    ".program",
];

/// Keys that say how files are converted, and what they may be.
const TAKEN_OVER: &[&str] =
    &["core.autocrlf", "core.eol", "core.filemode", "core.symlinks", "core.sharedrepository"];

/// The configuration of a repository, as far as it runs programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shield {
    /// Pairs that overrule what would run.
    pub(crate) overrides: Vec<(OsString, OsString)>,
    /// Pairs that switch configured hooks off, for gits that know them by their names only.
    pub(crate) hooks: Vec<(OsString, OsString)>,
    /// Pairs that hold wherever files are read and written.
    pub(crate) taken_over: Vec<(OsString, OsString)>,
    /// What would run, by key.
    pub(crate) programs: BTreeMap<String, String>,
    /// Whether the configuration lies in more than one file.
    pub(crate) has_includes: bool,
    /// Whether it says that objects may be missing.
    pub(crate) is_partial: bool,
    /// Whether others must be able to write what is written.
    pub(crate) is_shared: bool,
    /// Whether it converts the line endings of any file.
    pub(crate) converts_all: bool,
}

/// Tells whether a configuration file is as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<FileStamp>>);

/// Inode, size, and times of change in seconds and nanoseconds.
type FileStamp = (u64, u64, [i64; 4]);

impl Stamp {
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| Self::one(file)).collect())
    }

    fn one(file: &Path) -> Option<FileStamp> {
        let meta = fs::metadata(file).ok()?;
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        Some((meta.ino(), meta.size(), times))
    }
}

impl Shield {
    /// Reads what `git config --list -z` writes.
    pub(crate) fn read(listed: &[u8]) -> Self {
        let mut shield = Self::default();
        for entry in listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let end = entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len());
            let (key, value) = entry.split_at(end);
            // A key by itself says yes.
            let value = value.strip_prefix(b"\n").unwrap_or(b"true");
            shield.take(key, &String::from_utf8_lossy(value));
        }
        shield
    }

    fn take(&mut self, key: &[u8], value: &str) {
        let shown_key = shown(key);
        let lower = shown_key.to_ascii_lowercase();
        let is_include = lower.starts_with("include.") || lower.starts_with("includeif.");
        self.has_includes |= is_include;
        self.is_partial |= lower.starts_with("remote.") && lower.ends_with(".promisor");
        self.is_shared |= lower == "core.sharedrepository";
        self.converts_all |= matches!(lower.as_str(), "core.autocrlf" | "core.eol");
        let (section, _) = lower.split_once('.').unwrap_or((&lower, ""));
        let last = lower.rsplit('.').next().unwrap_or_default();
        let overrule = match (section, last) {
            ("filter", "clean" | "smudge" | "process") => Some(""),
            ("filter", "required") => Some("false"),
            // A driver that fails leaves a conflict, which goes back to the task.
            ("merge", "driver") => Some("false"),
            _ => None,
        };
        if let Some(value) = overrule {
            self.overrides.push((OsString::from_vec(key.to_vec()), value.into()));
        }
        if let ("hook", "command", Some(name)) =
            (section, last, key.get(..key.len().saturating_sub("command".len())))
        {
            let enabled = [name, b"enabled"].concat();
            self.hooks.push((OsString::from_vec(enabled), "false".into()));
        }
        if TAKEN_OVER.contains(&lower.as_str()) {
            self.taken_over.push((OsString::from_vec(key.to_vec()), value.into()));
        }
        let is_alias = section == "alias" && value.trim_start().starts_with('!');
        if is_alias || is_include || PROGRAMS.iter().any(|end| lower.ends_with(end)) {
            let former = self.programs.entry(format!("config {shown_key}")).or_default();
            former.push_str(value);
            former.push('\n');
        }
    }

    /// Adds the hooks, attributes and ignored names that lie in the repository's directory.
    pub(crate) fn with_files(mut self, git_dir: &Path) -> Self {
        let hooks = fs::read_dir(git_dir.join("hooks")).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = hooks.map(|hook| hook.path()).collect();
        files.retain(|hook| hook.extension().is_none_or(|ext| ext != "sample"));
        // By the last one files go unseen.
        files.extend(["info/attributes", "info/exclude"].map(|file| git_dir.join(file)));
        for file in files {
            let Ok(meta) = fs::metadata(&file) else { continue };
            let name = file.strip_prefix(git_dir).unwrap_or(&file);
            let name = shown(crate::names::bytes_of(name));
            let state = format!("{} {}.{}", meta.size(), meta.mtime(), meta.mtime_nsec());
            self.programs.insert(name, state);
        }
        self
    }

    /// What runs now and did not before, or is another program now.
    pub(crate) fn new_since(&self, before: &BTreeMap<String, String>) -> Vec<String> {
        let changed = self.programs.iter().filter(|(name, state)| before.get(*name) != Some(state));
        changed.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_filter_or_merge_driver_is_called_it_is_overruled() {
        let listed =
            b"filter.a=b.c.clean\nevil\0filter.LFS.required\ntrue\0merge.x.driver\nevil %A\0\
            core.bare\nfalse\0alias.st\nstatus\0hook.a.B.command\nevil\0";
        let shield = Shield::read(listed);
        let pair = |key: &str, value: &str| (OsString::from(key), OsString::from(value));
        assert_eq!(
            shield.overrides,
            [
                pair("filter.a=b.c.clean", ""),
                pair("filter.LFS.required", "false"),
                pair("merge.x.driver", "false")
            ]
        );
        assert_eq!(shield.hooks, [pair("hook.a.B.enabled", "false")]);
        assert_eq!(shield.programs.len(), 3);
    }
}
