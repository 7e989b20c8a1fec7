//! Files of the orchestrator near which an agent works.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Puts a text there, whatever is in its place; whether that was something else. No link is followed,
/// neither the file nor the directory that it is in being one.
pub(crate) fn put(path: &Path, text: impl AsRef<[u8]>) -> io::Result<bool> {
    let text = text.as_ref();
    if is_there(path, text) {
        return Ok(false);
    }
    let was_other = clear(path)?;
    fs::File::create_new(path)?.write_all(text)?;
    Ok(was_other)
}

/// Makes room for a file: nothing is in its place then, and what it is in is a directory and no link.
/// Says whether something had to go.
pub(crate) fn clear(path: &Path) -> io::Result<bool> {
    let mut was_other = false;
    if let Some(dir) = path.parent() {
        if fs::symlink_metadata(dir).is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(dir)?;
            was_other = true;
        }
        fs::create_dir_all(dir)?;
    }
    if let Ok(meta) = fs::symlink_metadata(path) {
        if meta.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
        was_other = true;
    }
    Ok(was_other)
}

/// Whether a file with this text is there, and no link.
pub(crate) fn is_there(path: &Path, text: impl AsRef<[u8]>) -> bool {
    let text = text.as_ref();
    let has_len = fs::symlink_metadata(path).is_ok_and(|meta| meta.len() == text.len() as u64);
    has_len && read(path, text.len() as u64).is_ok_and(|found| found == text)
}

/// What a file holds, of which no more is read than so many bytes and one. No link is followed, and a
/// pipe is not waited for.
///
/// # Errors
/// What is there is no file, or cannot be read, or the directory that it is in is a link.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let is_dir =
        path.parent().is_none_or(|dir| fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir()));
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !is_dir || !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file of ours"));
    }
    let mut found = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut found)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_somebody_put_in_the_place_of_a_file_is_replaced_and_what_it_leads_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (home, theirs) = (dir.path().join("home"), dir.path().join("theirs"));
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("settings.json"), "theirs").unwrap();
        let file = home.join(".config/settings.json");
        assert!(!put(&file, "ours").unwrap() && is_there(&file, "ours"));
        assert!(!put(&file, "ours").unwrap());
        let others: [&dyn Fn(); 6] = [
            &|| fs::write(&file, "else").unwrap(),
            &|| fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).unwrap(),
            &|| {
                fs::remove_dir_all(&file).or_else(|_| fs::remove_file(&file)).unwrap();
                assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
            },
            &|| fs::remove_file(&file).and_then(|()| symlink("nowhere", &file)).unwrap(),
            &|| {
                fs::remove_file(&file).unwrap();
                symlink(theirs.join("settings.json"), &file).unwrap();
            },
            &|| {
                fs::remove_dir_all(home.join(".config")).unwrap();
                symlink(&theirs, home.join(".config")).unwrap();
            },
        ];
        for change in others {
            change();
            assert!(!is_there(&file, "ours"));
            assert_ne!(read(&file, 64).ok().as_deref(), Some(&b"ours"[..]));
            assert!(put(&file, "ours").unwrap() && is_there(&file, "ours"));
        }
        assert_eq!(fs::read_to_string(theirs.join("settings.json")).unwrap(), "theirs");
        assert_eq!(
            read(&file, 1).unwrap(),
            b"ou",
            "one byte more, so that it is seen to be longer"
        );
    }
}
