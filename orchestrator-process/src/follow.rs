//! Following a file while it grows, line by line and in bounded memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::command::check_kind;

/// A line that a program wrote, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line, or as much of its beginning as the limits keep; not always valid UTF-8.
    pub bytes: &'a [u8],
    /// How many bytes it has in all.
    pub bytes_in_all: u64,
    /// Whether it was ended by a line feed; the last line of a program that died may not be.
    pub is_whole: bool,
}

impl Line<'_> {
    /// Whether some of it was left out.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.bytes.len() as u64 != self.bytes_in_all
    }
}

/// Puts lines together out of what is read.
#[derive(Debug)]
pub(crate) struct Lines {
    begun: Vec<u8>,
    in_all: u64,
    bytes_max: usize,
}

/// What a long line leaves allocated for the next one.
const KEPT_ALLOCATED: usize = 4 * 1024;

impl Lines {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { begun: Vec::new(), in_all: 0, bytes_max }
    }

    /// Takes what was read, and hands on each line that it completes.
    pub(crate) fn take(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(Line<'_>)) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(at);
            self.add(head);
            self.hand_on(true, line);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.add(bytes);
    }

    /// Hands on what was begun and never ended.
    pub(crate) fn finish(&mut self, line: &mut dyn FnMut(Line<'_>)) {
        if self.in_all > 0 {
            self.hand_on(false, line);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = self.bytes_max.saturating_sub(self.begun.len());
        self.begun.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.in_all += bytes.len() as u64;
    }

    fn hand_on(&mut self, is_whole: bool, line: &mut dyn FnMut(Line<'_>)) {
        line(Line { bytes: &self.begun, bytes_in_all: self.in_all, is_whole });
        self.begun.clear();
        self.begun.shrink_to(KEPT_ALLOCATED);
        self.in_all = 0;
    }
}

/// A file that a program appends to. One that opens `/dev/stdout` anew empties it, as shells do for
/// `echo … > /dev/stdout`; what comes after that is followed from the beginning.
#[derive(Debug)]
pub(crate) struct Growing {
    file: File,
    /// Where the program's own output begins.
    from: u64,
    /// What was read up to.
    at: u64,
    /// How long it was when it was last looked at.
    len: u64,
    /// How much the program wrote that it emptied.
    emptied: u64,
}

impl Growing {
    /// Opens a file; what is in it already is not followed. It is made when it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        check_kind(&file)?;
        let from = file.metadata()?.len();
        Ok(Self { file, from, at: from, len: from, emptied: 0 })
    }

    /// How much the program has written, also of what is not there any more.
    pub(crate) const fn bytes(&self) -> u64 {
        self.emptied + self.len.saturating_sub(self.from)
    }

    /// Looks how long it is; whether it was emptied since it was last looked at.
    pub(crate) fn look(&mut self) -> bool {
        let len = self.file.metadata().map_or(self.len, |meta| meta.len());
        let is_emptied = len < self.len;
        if is_emptied {
            (self.emptied, self.from, self.at) = (self.bytes(), 0, 0);
        }
        self.len = len;
        is_emptied
    }

    /// Reads the next piece; `None` when there is nothing new.
    ///
    /// It comes from the page cache, where the program has just put it, so it is read in place.
    pub(crate) fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let read = self.file.read_at(buffer, self.at).ok().filter(|read| *read > 0)?;
        self.at += read as u64;
        buffer.get(..read)
    }

    /// The last bytes of what the program has written.
    pub(crate) fn tail(&self, bytes_max: usize) -> Vec<u8> {
        let begin = self.len.saturating_sub(bytes_max as u64).max(self.from);
        let is_there = usize::try_from(self.len.saturating_sub(begin)).unwrap_or(bytes_max);
        let mut tail = vec![0; is_there];
        let mut read = 0;
        while let Some(room) = tail.get_mut(read..).filter(|room| !room.is_empty()) {
            match self.file.read_at(room, begin + read as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        tail.truncate(read);
        tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]], bytes_max: usize) -> Vec<(Vec<u8>, u64, bool)> {
        let mut got = Vec::new();
        let mut lines = Lines::new(bytes_max);
        let mut take = |it: Line<'_>| got.push((it.bytes.to_vec(), it.bytes_in_all, it.is_whole));
        for piece in pieces {
            lines.take(piece, &mut take);
        }
        lines.finish(&mut take);
        got
    }

    #[test]
    fn lines_come_whole_however_they_were_torn_and_the_last_one_says_that_it_is_not() {
        let whole = |text: &[u8]| (text.to_vec(), text.len() as u64, true);
        assert_eq!(
            lines(&[b"on", b"e\ntw", b"o\n", b"\n\xff\xfe\nthr"], 100),
            [
                whole(b"one"),
                whole(b"two"),
                whole(b""),
                whole(b"\xff\xfe"),
                (b"thr".to_vec(), 3, false)
            ]
        );
        assert!(lines(&[b"", b""], 100).is_empty());
    }

    #[test]
    fn a_file_that_its_program_empties_is_followed_from_its_new_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, "not its own").unwrap();
        let mut growing = Growing::open(&path).unwrap();
        let mut buffer = [0; 100];
        std::fs::write(&path, "not its own, but this").unwrap();
        assert!(!growing.look());
        assert_eq!(growing.read(&mut buffer).unwrap(), b", but this");
        std::fs::write(&path, "anew").unwrap();
        assert!(growing.look() && !growing.look());
        assert_eq!(growing.read(&mut buffer).unwrap(), b"anew");
        assert_eq!((growing.bytes(), growing.tail(100)), (14, b"anew".to_vec()));
    }

    #[test]
    fn a_line_past_the_limit_keeps_its_beginning_and_its_length() {
        let got = lines(&[b"abcdef", b"ghi\nxy\n"], 4);
        assert_eq!(got, [(b"abcd".to_vec(), 9, true), (b"xy".to_vec(), 2, true)]);
    }
}
