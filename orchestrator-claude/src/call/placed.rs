//! Files of the orchestrator near which an agent works.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Puts a text there, whatever is in its place; whether that was something else. No link is followed,
/// neither the file nor the directory that it is in being one.
pub(super) fn put(path: &Path, text: &str) -> io::Result<bool> {
    if is_there(path, text) {
        return Ok(false);
    }
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
    fs::File::create_new(path)?.write_all(text.as_bytes())?;
    Ok(was_other)
}

/// Whether a file with this text is there, and no link.
pub(super) fn is_there(path: &Path, text: &str) -> bool {
    let is_dir =
        path.parent().is_none_or(|dir| fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir()));
    let read = || -> io::Result<bool> {
        let meta = fs::symlink_metadata(path)?;
        if !meta.is_file() || meta.len() != text.len() as u64 {
            return Ok(false);
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let mut found = Vec::new();
        file.take(meta.len() + 1).read_to_end(&mut found)?;
        Ok(found == text.as_bytes())
    };
    is_dir && read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        let others: [&dyn Fn(); 5] = [
            &|| fs::write(&file, "else").unwrap(),
            &|| fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).unwrap(),
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
            assert!(put(&file, "ours").unwrap() && is_there(&file, "ours"));
        }
        assert_eq!(fs::read_to_string(theirs.join("settings.json")).unwrap(), "theirs");
    }
}
