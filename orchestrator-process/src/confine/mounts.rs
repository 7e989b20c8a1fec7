//! Where this process stands in the cgroup hierarchies of the machine.

use std::path::{Path, PathBuf};

/// The hierarchies that matter here, each with the directory of this process's own cgroup.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// The one of version 2.
    pub(crate) unified: Option<PathBuf>,
    /// Those of version 1.
    pub(crate) memory: Option<PathBuf>,
    pub(crate) pids: Option<PathBuf>,
    pub(crate) cpu: Option<PathBuf>,
    pub(crate) freezer: Option<PathBuf>,
    /// Where all that can be seen of the hierarchies begins that hold trees: of version 2, and the
    /// freezer of version 1.
    pub(crate) tops: Tops,
}

/// The tops of hierarchies.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tops {
    pub(crate) unified: Option<PathBuf>,
    pub(crate) freezer: Option<PathBuf>,
}

impl Mounts {
    /// Where this process stands; nothing where the system does not say.
    pub(crate) fn of_this_process() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// What `/proc/self/mountinfo` and `/proc/self/cgroup` say together.
    pub(crate) fn parse(mountinfo: &str, own: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            mounts.take(line, own);
        }
        mounts
    }

    fn take(&mut self, line: &str, own: &str) {
        // Fields up to the separator: id, parent, device, root, mount point, options, …; after it:
        // type, source, options.
        let Some((head, tail)) = line.split_once(" - ") else { return };
        let mut head = head.split(' ').skip(3);
        let (Some(root), Some(point)) = (head.next(), head.next()) else { return };
        let (root, point) = (unescape(root), unescape(point));
        let mut tail = tail.split(' ');
        let (kind, options) = (tail.next(), tail.nth(1).unwrap_or_default());
        let has = |name: &str| options.split(',').any(|option| option == name);
        let at = |name| place(own, name).map(|path| under(&root, &point, path));
        match kind {
            Some("cgroup2") => {
                self.unified = self.unified.take().or_else(|| at(""));
                self.tops.unified.get_or_insert_with(|| PathBuf::from(&point));
            }
            Some("cgroup") => {
                let slots = [
                    ("memory", &mut self.memory),
                    ("pids", &mut self.pids),
                    ("cpu", &mut self.cpu),
                    ("freezer", &mut self.freezer),
                ];
                if has("freezer") {
                    self.tops.freezer.get_or_insert_with(|| PathBuf::from(&point));
                }
                for (name, slot) in slots {
                    if slot.is_none() && has(name) {
                        *slot = at(name);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The path of the cgroup in the hierarchy that has this controller; that of version 2 has no name.
fn place<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (fields.next()?, fields.next()?);
        names.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Where a cgroup is seen, of a hierarchy of which `root` and what is below is mounted.
fn under(root: &str, point: &str, path: &str) -> PathBuf {
    let below = Path::new(path).strip_prefix(root).unwrap_or_else(|_| Path::new(""));
    let below = below.strip_prefix("/").unwrap_or(below);
    Path::new(point).join(below)
}

/// Blanks and the like are written as three octal digits.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_found_where_it_is_mounted_and_this_process_in_it() {
        let v2 = "26 22 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let mounts = Mounts::parse(v2, "0::/user.slice/a b.scope\n");
        assert_eq!(mounts.unified.unwrap(), Path::new("/sys/fs/cgroup/user.slice/a b.scope"));
        assert_eq!(mounts.memory, None);
        let mixed = "\
            30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            32 25 0:28 /docker/x /sys/fs/cgroup/my\\040memory ro - cgroup cgroup rw,memory\n\
            33 25 0:29 / /tmp rw - tmpfs tmpfs rw\ntorn line\n";
        let own = "9:name=systemd:/s\n4:memory:/docker/x/y\n3:cpu,cpuacct:/c\n0::/\n";
        let mounts = Mounts::parse(mixed, own);
        assert_eq!(mounts.unified.unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mounts.cpu.unwrap(), Path::new("/sys/fs/cgroup/cpu,cpuacct/c"));
        assert_eq!(mounts.memory.unwrap(), Path::new("/sys/fs/cgroup/my memory/y"));
        assert_eq!((mounts.pids, mounts.freezer), (None, None));
        let unified = Some(PathBuf::from("/sys/fs/cgroup/unified"));
        assert_eq!(mounts.tops, Tops { unified, freezer: None });
        assert_eq!(Mounts::parse("", ""), Mounts::default());
    }
}
