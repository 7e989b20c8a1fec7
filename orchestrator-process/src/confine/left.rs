//! The cgroups that earlier starts left, wherever they were made: the process that is started next may
//! stand in another cgroup than the one before, after another log-in say.

use std::fs;
use std::path::{Path, PathBuf};

use super::dirs::{BASE, SEPARATOR, below};
use crate::marks::StartMark;
use crate::process::{Process, ProcessId};

/// The cgroups in this hierarchy that programs were put into under a name that begins like this.
pub(super) fn of(top: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        if dir.file_name().is_none_or(|name| name != BASE) {
            todo.extend(below(&dir));
            continue;
        }
        let is_meant = |one: &PathBuf| name(one).is_some_and(|name| name.starts_with(prefix));
        found.extend(below(&dir).into_iter().filter(is_meant));
    }
    found
}

/// Removes what starts of processes left that are gone; one that holds somebody cannot be removed.
pub(super) fn remove_empty(base: &Path) {
    for dir in below(base) {
        let starter = name(&dir).and_then(starter);
        if starter.is_some_and(|starter| {
            Process::read(starter.pid).is_none_or(|process| process.id != starter)
        }) {
            fs::remove_dir(&dir).ok();
        }
    }
}

fn name(dir: &Path) -> Option<&str> {
    dir.file_name()?.to_str()
}

/// The process that a cgroup was made by.
fn starter(name: &str) -> Option<ProcessId> {
    let (_, start) = name.rsplit_once(SEPARATOR)?;
    StartMark::starter(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lease_left_is_found_in_whatever_cgroup_its_driver_stood() {
        let top = tempfile::tempdir().unwrap();
        for dir in
            ["orchestrator/r@7@1.2.3", "a/b/orchestrator/r@7@4.5.6", "a/orchestrator/r@77@1.2.3"]
        {
            fs::create_dir_all(top.path().join(dir)).unwrap();
        }
        let mut found = of(top.path(), "r@7@");
        found.sort();
        let names = ["a/b/orchestrator/r@7@4.5.6", "orchestrator/r@7@1.2.3"];
        assert_eq!(found, names.map(|name| top.path().join(name)));
    }

    #[test]
    fn only_what_is_empty_and_of_a_process_that_is_gone_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let own = Process::read(std::process::id()).unwrap().id;
        let alive = format!("start@{}.{}.1", own.pid, own.start_time);
        let reused = format!("r@7@{}.{}.1", own.pid, own.start_time + 1);
        let held = format!("r@8@{}.1.1/somebody", u32::MAX);
        for name in [alive.as_str(), &reused, &held, "probe@7", "of somebody else"] {
            fs::create_dir_all(base.path().join(name)).unwrap();
        }
        remove_empty(base.path());
        let mut left: Vec<String> =
            below(base.path()).iter().map(|dir| name(dir).unwrap().to_owned()).collect();
        left.sort();
        let mut expected =
            [alive, format!("r@8@{}.1.1", u32::MAX), "probe@7".into(), "of somebody else".into()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
