//! `BLOCKED.md`: what an agent writes instead of asking.
//!
//! It is looked for once the agent's processes are gone. It counts when it was made or changed in
//! this attempt, links are not followed, and one that cannot be read counts too: losing a question
//! is worse than asking a person for nothing. It never stays in the workspace, where it would become
//! part of the change; a copy goes to the logs of the stage.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The name of the file, at the root of the workspace.
pub const FILE_NAME: &str = "BLOCKED.md";
/// How much of it is read, in bytes.
pub const QUESTION_BYTES_MAX: u64 = 16 * 1024;

/// Where the state before an attempt is noted, in the directory beside the workspace.
const NOTE_NAME: &str = "blocked-before.json";

/// The file as it was before an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    file: PathBuf,
    note: PathBuf,
    before: Before,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    attempt: u32,
    stamp: Option<Stamp>,
    /// What it said, so that a file of the repository is put back.
    text: Option<Vec<u8>>,
}

/// What tells one state of a file from another; the kernel keeps the time of change, and no program
/// sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            inode: meta.ino(),
            bytes: meta.len(),
            changed_s: meta.ctime(),
            changed_ns: meta.ctime_nsec(),
        }
    }
}

impl Watch {
    /// Notes how the file is before an attempt. When the attempt goes on after an interruption, the
    /// note of its beginning holds.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn begin(workspace: &Path, aside: &Path, attempt: u32) -> io::Result<Self> {
        let file = workspace.join(FILE_NAME);
        let note = aside.join(NOTE_NAME);
        let noted = fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(before) = noted.filter(|before: &Before| before.attempt == attempt) {
            return Ok(Self { file, note, before });
        }
        let meta = fs::symlink_metadata(&file).ok();
        let text = meta.as_ref().and_then(|meta| read(&file, meta).ok());
        let text = text.filter(|text| text.len() as u64 <= QUESTION_BYTES_MAX);
        let before = Before { attempt, stamp: meta.as_ref().map(Stamp::of), text };
        fs::create_dir_all(aside)?;
        fs::write(&note, serde_json::to_vec(&before)?)?;
        Ok(Self { file, note, before })
    }

    /// The question, if the attempt left one; takes the file out of the workspace, and puts a copy
    /// into `keep`.
    #[must_use]
    pub fn take(&self, keep: &Path) -> Option<String> {
        let meta = match fs::symlink_metadata(&self.file) {
            Ok(meta) if Some(Stamp::of(&meta)) == self.before.stamp => return None,
            Ok(meta) => meta,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return None,
            Err(err) => return Some(unreadable(&err)),
        };
        let text = read(&self.file, &meta);
        let put_away = self.put_away(&meta, text.as_deref().unwrap_or_default(), keep);
        let mut question = match text {
            Ok(text) => worded(&text),
            Err(err) => unreadable(&err),
        };
        if let Err(err) = put_away {
            question.push_str("\n\n(The file could not be taken out of the workspace: ");
            question.push_str(&err.to_string());
            question.push_str(".)");
        }
        Some(question)
    }

    fn put_away(&self, meta: &Metadata, text: &[u8], keep: &Path) -> io::Result<()> {
        let copy = keep.join(FILE_NAME);
        if meta.is_dir() {
            return fs::rename(&self.file, copy);
        }
        if meta.is_file() && meta.len() > QUESTION_BYTES_MAX {
            // Moved where that is possible: a copy of a very long one might fill the disk.
            if fs::rename(&self.file, &copy).is_ok() {
                return self.put_back();
            }
            fs::copy(&self.file, copy)?;
        } else if meta.is_file() {
            fs::write(copy, text)?;
        }
        fs::remove_file(&self.file)?;
        self.put_back()
    }

    /// Puts back a file of the repository.
    fn put_back(&self) -> io::Result<()> {
        let Some(text) = &self.before.text else { return Ok(()) };
        fs::write(&self.file, text)?;
        // What is put back is no change of the attempt.
        let stamp = Some(Stamp::of(&fs::symlink_metadata(&self.file)?));
        fs::write(&self.note, serde_json::to_vec(&Before { stamp, ..self.before.clone() })?)
    }
}

/// Reads a regular file, one byte further than the limit.
fn read(path: &Path, meta: &Metadata) -> io::Result<Vec<u8>> {
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let file = fs::File::open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (meta.dev(), meta.ino()) {
        return Err(io::Error::other("it is another file by now"));
    }
    let mut text = Vec::new();
    file.take(QUESTION_BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn worded(text: &[u8]) -> String {
    let limit = usize::try_from(QUESTION_BYTES_MAX).unwrap_or(usize::MAX);
    let is_cut = text.len() > limit;
    let kept = String::from_utf8_lossy(text.get(..limit).unwrap_or(text));
    let kept = kept.trim();
    if kept.is_empty() {
        return format!(
            "The agent left an empty {FILE_NAME}: it lacks something, and did not say what."
        );
    }
    let note = if is_cut { "\n\n(The file is longer; this is its beginning.)" } else { "" };
    format!("{kept}{note}")
}

fn unreadable(err: &io::Error) -> String {
    format!("The agent left a {FILE_NAME} that cannot be read ({err}): it lacks something.")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        workspace: PathBuf,
        aside: PathBuf,
        keep: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let [workspace, aside, keep] = ["workspace", "aside", "keep"].map(|name| {
                let path = dir.path().join(name);
                fs::create_dir(&path).unwrap();
                path
            });
            Self { _dir: dir, workspace, aside, keep }
        }

        fn begin(&self, attempt: u32) -> Watch {
            Watch::begin(&self.workspace, &self.aside, attempt).unwrap()
        }

        fn file(&self) -> PathBuf {
            self.workspace.join(FILE_NAME)
        }
    }

    #[test]
    fn a_question_is_taken_out_of_the_workspace_and_kept() {
        let place = Place::new();
        let watch = place.begin(1);
        assert_eq!(watch.take(&place.keep), None);
        fs::write(place.file(), "Which port?\n").unwrap();
        assert_eq!(watch.take(&place.keep).as_deref(), Some("Which port?"));
        assert!(!place.file().exists());
        assert_eq!(fs::read_to_string(place.keep.join(FILE_NAME)).unwrap(), "Which port?\n");
        assert_eq!(watch.take(&place.keep), None);
    }

    #[test]
    fn a_file_of_the_repository_counts_only_when_it_was_changed_and_is_put_back() {
        let place = Place::new();
        fs::write(place.file(), "of the repository").unwrap();
        let watch = place.begin(1);
        assert_eq!(watch.take(&place.keep), None);
        assert!(place.file().exists());
        fs::write(place.file(), "a question").unwrap();
        assert_eq!(watch.take(&place.keep).as_deref(), Some("a question"));
        assert_eq!(fs::read_to_string(place.file()).unwrap(), "of the repository");
        assert_eq!(place.begin(1).take(&place.keep), None);
    }

    #[test]
    fn a_question_from_before_an_interruption_counts_in_the_same_attempt_only() {
        let place = Place::new();
        let _interrupted = place.begin(1);
        fs::write(place.file(), "Which?").unwrap();
        assert!(place.begin(2).take(&place.keep).is_none());
        let place = Place::new();
        let _interrupted = place.begin(1);
        fs::write(place.file(), "Which?").unwrap();
        assert_eq!(place.begin(1).take(&place.keep).as_deref(), Some("Which?"));
    }

    #[test]
    fn no_link_is_followed_and_what_cannot_be_read_is_a_question_too() {
        let place = Place::new();
        let secret = place.aside.join("secret");
        fs::write(&secret, "secret").unwrap();
        let watch = place.begin(1);
        symlink(&secret, place.file()).unwrap();
        let question = watch.take(&place.keep).unwrap();
        assert!(question.contains("no regular file") && !question.contains("secret"), "{question}");
        assert!(secret.exists() && fs::symlink_metadata(place.file()).is_err());

        fs::create_dir(place.file()).unwrap();
        fs::write(place.file().join("inside"), "x").unwrap();
        assert!(watch.take(&place.keep).is_some());
        assert!(!place.file().exists() && place.keep.join(FILE_NAME).join("inside").exists());

        let place = Place::new();
        let watch = place.begin(1);
        fs::write(place.file(), " \n").unwrap();
        assert!(watch.take(&place.keep).unwrap().contains("empty"));
        fs::write(place.file(), b"caf\xff").unwrap();
        assert_eq!(watch.take(&place.keep).as_deref(), Some("caf\u{fffd}"));
    }

    #[test]
    fn p16_a_long_question_is_cut_and_kept_whole() {
        let place = Place::new();
        let watch = place.begin(1);
        fs::write(place.file(), "x".repeat(1_000_000)).unwrap();
        let question = watch.take(&place.keep).unwrap();
        assert!(question.len() < 17_000 && question.ends_with("its beginning.)"));
        assert_eq!(fs::metadata(place.keep.join(FILE_NAME)).unwrap().len(), 1_000_000);
    }
}
