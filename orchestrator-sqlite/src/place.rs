//! Where a file is: on which sort of disk, and whether it is still there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// File systems of other hosts, on which the log's shared memory does not work.
const NETWORK: [&str; 20] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "davfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.glusterfs",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "glusterfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
    "webdav",
];

/// The kind of the network file system that a folder is on; `None` when it is on none, or when this
/// system does not tell.
pub(crate) fn network_disk(folder: &Path) -> Option<String> {
    let folder = fs::canonicalize(folder).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let kind = kind_of(&mounts, &folder)?;
    NETWORK.contains(&kind).then(|| kind.to_owned())
}

/// The kind of file system that is mounted nearest above a folder; of several on one place the last
/// one counts.
fn kind_of<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mount = |line: &'a str| {
        let mut fields = line.split(' ').skip(1);
        Some((unescaped(fields.next()?), fields.next()?))
    };
    let above = mounts.lines().filter_map(mount).filter(|(at, _)| folder.starts_with(at));
    above.max_by_key(|(at, _)| Path::new(at).components().count()).map(|(_, kind)| kind)
}

/// Blanks and backslashes of a path stand in the table as octal numbers.
fn unescaped(path: &str) -> String {
    [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")]
        .iter()
        .fold(path.to_owned(), |path, (code, plain)| path.replace(code, plain))
}

/// A file as it was opened, with those beside it that belong to it.
#[derive(Debug, Clone)]
pub(crate) struct FilePlace {
    path: PathBuf,
    identity: (u64, u64),
    beside: Vec<Self>,
}

/// The file is not at its path any more: what is written to it would be lost with its last user, and
/// others would not see it.
#[derive(Debug, thiserror::Error)]
#[error("`{}` was removed or replaced while it was in use", .path.display())]
pub(crate) struct Displaced {
    path: PathBuf,
    #[source]
    source: Option<io::Error>,
}

impl FilePlace {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)?, beside: Vec::new() })
    }

    /// The place of a file and of these beside it.
    pub(crate) fn with(path: &Path, beside: &[PathBuf]) -> io::Result<Self> {
        let beside = beside.iter().map(|path| Self::of(path)).collect::<io::Result<_>>()?;
        Ok(Self { beside, ..Self::of(path)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of an open file, unless it is not at its path any more.
    pub(crate) fn of_open(path: &Path, file: &fs::File) -> io::Result<Option<Self>> {
        let opened = identity_of(&file.metadata()?);
        match identity(path) {
            Ok(found) if found == opened => {
                Ok(Some(Self { path: path.to_owned(), identity: found, beside: Vec::new() }))
            }
            Ok(_) => Ok(None),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Displaced> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => self.beside.iter().try_for_each(Self::check),
            Ok(_) => Err(Displaced { path: self.path.clone(), source: None }),
            Err(err) => Err(Displaced { path: self.path.clone(), source: Some(err) }),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| identity_of(&found))
}

#[cfg(unix)]
fn identity_of(found: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
const fn identity_of(_: &fs::Metadata) -> (u64, u64) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_the_disk_that_is_mounted_nearest_above_it() {
        let mounts = "\
/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/ana/local\\040disk xfs rw 0 0
tmpfs /twice tmpfs rw 0 0
//host/share /twice cifs rw 0 0
";
        for (folder, kind) in [
            ("/var/lib", "ext4"),
            ("/home", "nfs4"),
            ("/home/ana", "nfs4"),
            ("/homes", "ext4"),
            ("/home/ana/local disk/runs", "xfs"),
            ("/twice/a", "cifs"),
        ] {
            assert_eq!(kind_of(mounts, Path::new(folder)), Some(kind), "{folder}");
        }
        assert_eq!(kind_of("", Path::new("/")), None);
        assert_eq!(kind_of("nonsense", Path::new("/")), None);
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "one").unwrap();
        let place = FilePlace::of(&path).unwrap();
        fs::write(&path, "changed in place").unwrap();
        place.check().unwrap();
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &path).unwrap();
        place.check().unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(place.check().unwrap_err().source.is_some());
        fs::write(&path, "three").unwrap();
        fs::write(&other, "beside").unwrap();
        let place = FilePlace::with(&path, std::slice::from_ref(&other)).unwrap();
        place.check().unwrap();
        fs::remove_file(&other).unwrap();
        assert_eq!(place.check().unwrap_err().path, other);
    }
}
