//! `BLOCKED.md`: what an agent writes instead of asking.
//!
//! It is looked for once the agent's processes are gone. It counts when it was made or says something
//! else than before this attempt, links are not followed, and one that cannot be read counts too:
//! losing a question is worse than asking a person for nothing. It never stays in the workspace,
//! where it would become part of the change; a copy goes to the logs of the stage, and what the
//! repository has in its place is put back.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::placed;

/// The name of the file, at the root of the workspace.
pub const FILE_NAME: &str = "BLOCKED.md";
/// How much of it is read, in bytes.
pub const QUESTION_BYTES_MAX: u64 = 16 * 1024;

/// Where the state before an attempt is noted, in the directory beside the workspace.
const NOTE_NAME: &str = "blocked-before.json";
/// Where a file of the repository is kept meanwhile, in the same directory.
const KEPT_NAME: &str = "blocked-before.md";
/// More than such a note has, in bytes.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// The file as it was before an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    file: PathBuf,
    kept: PathBuf,
    before: Before,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    attempt: u32,
    before: Before,
}

/// What stood there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Before {
    Nothing,
    /// A file, of which a copy is kept.
    File,
    Link {
        to: PathBuf,
    },
    /// A directory or something rarer, which is not put back.
    Other {
        inode: u64,
    },
}

impl Before {
    /// Notes what stands there, and keeps a copy of a file.
    fn of(file: &Path, kept: &Path) -> io::Result<Self> {
        let meta = match fs::symlink_metadata(file) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            meta => meta?,
        };
        if meta.is_symlink() {
            return Ok(Self::Link { to: fs::read_link(file)? });
        }
        if !meta.is_file() {
            return Ok(Self::Other { inode: meta.ino() });
        }
        placed::clear(kept)?;
        fs::copy(file, kept)?;
        Ok(Self::File)
    }
}

impl Watch {
    /// Notes how the file is before an attempt. When the attempt goes on after an interruption, the
    /// note of its beginning holds.
    ///
    /// # Errors
    /// When the note cannot be written, or a file that is there cannot be kept.
    pub fn begin(workspace: &Path, aside: &Path, attempt: u32) -> io::Result<Self> {
        let file = workspace.join(FILE_NAME);
        let [path, kept] = [NOTE_NAME, KEPT_NAME].map(|name| aside.join(name));
        let noted = placed::read(&path, NOTE_BYTES_MAX).ok();
        let noted = noted.and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(note) = noted.filter(|note: &Note| note.attempt == attempt) {
            return Ok(Self { file, kept, before: note.before });
        }
        let note = Note { attempt, before: Before::of(&file, &kept)? };
        placed::put(&path, serde_json::to_vec(&note)?)?;
        Ok(Self { file, kept, before: note.before })
    }

    /// The question, if the attempt left one; takes the file out of the workspace, and puts a copy
    /// into `keep`.
    #[must_use]
    pub fn take(&self, keep: &Path) -> Option<String> {
        let meta = match fs::symlink_metadata(&self.file) {
            Ok(meta) => meta,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return None,
            Err(err) => return Some(unreadable(&err)),
        };
        // What cannot be compared counts as changed.
        if self.is_as_before(&meta).unwrap_or(false) {
            return None;
        }
        let text = read(&self.file, &meta);
        let put_away = self
            .put_away(&meta, text.as_deref().unwrap_or_default(), keep)
            .and_then(|()| self.put_back());
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

    /// Whether it says what it said before; one that does gets its mode back.
    fn is_as_before(&self, meta: &Metadata) -> io::Result<bool> {
        match &self.before {
            Before::Nothing => Ok(false),
            Before::File if !meta.is_file() => Ok(false),
            Before::File => {
                let kept = self.kept()?;
                let is_same = meta.len() == kept.len() && is_same(&self.file, &self.kept)?;
                if is_same && meta.mode() != kept.mode() {
                    fs::set_permissions(&self.file, kept.permissions())?;
                }
                Ok(is_same)
            }
            Before::Link { to } => Ok(meta.is_symlink() && fs::read_link(&self.file)? == *to),
            Before::Other { inode } => Ok(meta.ino() == *inode),
        }
    }

    /// What is known of the copy, which an agent may have put something else in the place of.
    fn kept(&self) -> io::Result<Metadata> {
        let kept = fs::symlink_metadata(&self.kept)?;
        if kept.is_file() { Ok(kept) } else { Err(io::Error::other("the copy of it is gone")) }
    }

    fn put_away(&self, meta: &Metadata, text: &[u8], keep: &Path) -> io::Result<()> {
        let copy = keep.join(FILE_NAME);
        placed::clear(&copy)?;
        if meta.is_dir() {
            return fs::rename(&self.file, copy);
        }
        if is_linked(meta) {
            // It may be a file that is none of the agent's business, nor of the logs.
            return fs::remove_file(&self.file);
        }
        if meta.is_file() && meta.len() > QUESTION_BYTES_MAX {
            // Moved where that is possible: a copy of a very long one might fill the disk.
            if fs::rename(&self.file, &copy).is_ok() {
                return Ok(());
            }
            fs::copy(&self.file, copy)?;
        } else if meta.is_file() {
            fs::write(copy, text)?;
        }
        fs::remove_file(&self.file)
    }

    /// Puts back what the repository has there.
    fn put_back(&self) -> io::Result<()> {
        match &self.before {
            Before::File => self.kept().and_then(|_| fs::copy(&self.kept, &self.file)).map(drop),
            Before::Link { to } => symlink(to, &self.file),
            Before::Nothing | Before::Other { .. } => Ok(()),
        }
    }
}

/// Whether a file has another name, which may be anywhere.
fn is_linked(meta: &Metadata) -> bool {
    meta.is_file() && meta.nlink() > 1
}

/// Whether two files of one length hold the same.
fn is_same(one: &Path, two: &Path) -> io::Result<bool> {
    let [mut one, mut two] = [BufReader::new(File::open(one)?), BufReader::new(File::open(two)?)];
    loop {
        let (left, right) = (one.fill_buf()?, two.fill_buf()?);
        let common = left.len().min(right.len());
        if common == 0 {
            return Ok(left.len() == right.len());
        }
        if left[..common] != right[..common] {
            return Ok(false);
        }
        one.consume(common);
        two.consume(common);
    }
}

/// Reads a regular file, one byte further than the limit.
fn read(path: &Path, meta: &Metadata) -> io::Result<Vec<u8>> {
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if is_linked(meta) {
        return Err(io::Error::other("it is a link to another file"));
    }
    let file = File::open(path)?;
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
    use std::os::unix::fs::PermissionsExt as _;

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
    fn a_file_of_the_repository_that_says_the_same_is_no_question() {
        let place = Place::new();
        fs::write(place.file(), "of the repository").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let before = mode(&place.file());
        let watch = place.begin(1);
        fs::write(place.file(), "of the repository").unwrap();
        assert_eq!(watch.take(&place.keep), None);
        fs::set_permissions(place.file(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(watch.take(&place.keep), None);
        assert_eq!(mode(&place.file()), before);
        fs::remove_file(place.file()).unwrap();
        fs::write(place.file(), "of the repository").unwrap();
        assert_eq!(watch.take(&place.keep), None);
        fs::write(place.file(), "of the repositorY").unwrap();
        assert_eq!(watch.take(&place.keep).as_deref(), Some("of the repositorY"));
        assert_eq!(watch.take(&place.keep), None);
    }

    #[test]
    fn what_the_repository_has_there_is_put_back_whatever_it_is_and_was_put_in_its_place() {
        let long = "x".repeat(20_000);
        for attempt in [1, 2] {
            let place = Place::new();
            fs::write(place.file(), &long).unwrap();
            fs::set_permissions(place.file(), fs::Permissions::from_mode(0o555)).unwrap();
            let _first = place.begin(1);
            let watch = place.begin(attempt);
            fs::remove_file(place.file()).unwrap();
            fs::write(place.file(), "a question").unwrap();
            assert_eq!(watch.take(&place.keep).as_deref(), Some("a question"));
            assert_eq!(fs::read_to_string(place.file()).unwrap(), long);
            assert_eq!(fs::metadata(place.file()).unwrap().mode() & 0o777, 0o555);

            fs::remove_file(place.file()).unwrap();
            fs::remove_file(place.keep.join(FILE_NAME)).unwrap();
            fs::create_dir(place.file()).unwrap();
            assert!(watch.take(&place.keep).unwrap().contains("no regular file"));
            assert_eq!(fs::read_to_string(place.file()).unwrap(), long);
        }
        let place = Place::new();
        symlink("README", place.file()).unwrap();
        let watch = place.begin(1);
        assert_eq!(watch.take(&place.keep), None);
        fs::remove_file(place.file()).unwrap();
        fs::write(place.file(), "a question").unwrap();
        assert_eq!(watch.take(&place.keep).as_deref(), Some("a question"));
        assert_eq!(fs::read_link(place.file()).unwrap(), Path::new("README"));
    }

    #[test]
    fn another_name_of_a_file_elsewhere_is_not_read_as_a_question() {
        let place = Place::new();
        let secret = place.aside.join("secret");
        fs::write(&secret, "secret").unwrap();
        let watch = place.begin(1);
        fs::hard_link(&secret, place.file()).unwrap();
        let question = watch.take(&place.keep).unwrap();
        assert!(question.contains("link") && !question.contains("secret"), "{question}");
        assert!(secret.exists() && !place.file().exists());
        assert!(!place.keep.join(FILE_NAME).exists());
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

    /// A pipe that nobody writes to: whoever opens it as a file waits for ever.
    fn pipe_at(path: &Path) {
        placed::clear(path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    /// What is done within a while; what waits for ever fails.
    fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(work()).is_ok());
        end.recv_timeout(std::time::Duration::from_secs(30)).expect("it waits for ever")
    }

    #[test]
    fn p16_a_pipe_in_the_place_of_what_is_kept_is_neither_waited_for_nor_taken_for_it() {
        in_time(|| {
            let place = Place::new();
            let [note, kept] = [NOTE_NAME, KEPT_NAME].map(|name| place.aside.join(name));
            fs::write(place.file(), "of the repository").unwrap();
            pipe_at(&note);
            pipe_at(&kept);
            let watch = place.begin(1);
            assert_eq!(watch.take(&place.keep), None);
            pipe_at(&kept);
            pipe_at(&place.keep.join(FILE_NAME));
            fs::write(place.file(), "a question").unwrap();
            let question = watch.take(&place.keep).unwrap();
            assert!(
                question.starts_with("a question") && question.contains("is gone"),
                "{question}"
            );
            assert_eq!(fs::read_to_string(place.keep.join(FILE_NAME)).unwrap(), "a question");
        });
    }

    #[test]
    fn a_link_in_the_place_of_a_note_is_replaced_and_what_it_leads_to_stays() {
        let place = Place::new();
        let theirs = place.keep.join("theirs");
        fs::write(&theirs, "theirs").unwrap();
        symlink(&theirs, place.aside.join(NOTE_NAME)).unwrap();
        let _watch = place.begin(1);
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
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
