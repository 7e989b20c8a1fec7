//! What a person or an agent needs of a long output: its beginning and its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use orchestrator_core::head_and_tail;

use crate::run::End;

/// Longest feedback that is made of an output.
pub(crate) const FEEDBACK_BYTES_MAX: usize = 16 * 1024;
/// Longest command that is shown in it.
const COMMAND_BYTES_MAX: usize = 1024;

/// The text in a log, or its head and tail within about `bytes_max`; reads no more than that. What
/// the program put in the place of its log is not read: then it is what is known of it by heart.
pub(crate) fn excerpt(path: &Path, bytes_max: usize, last: &str) -> String {
    read(path, bytes_max).unwrap_or_else(|err| {
        let said = format!("[its log cannot be read ({err}); it ended with:]\n{last}");
        head_and_tail(&said, bytes_max)
    })
}

fn read(path: &Path, bytes_max: usize) -> io::Result<String> {
    // No link is followed, and no named pipe waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file any more"));
    }
    let len = meta.len();
    if len <= bytes_max as u64 {
        return Ok(head_and_tail(&piece(&file, 0, bytes_max)?, bytes_max));
    }
    let head = bytes_max / 3;
    let tail = bytes_max - head;
    let cut = len - head as u64 - tail as u64;
    let (first, last) = (piece(&file, 0, head)?, piece(&file, len - tail as u64, tail)?);
    Ok(format!("{first}\n[… {cut} bytes left out …]\n{last}"))
}

fn piece(file: &File, from: u64, bytes_max: usize) -> io::Result<String> {
    let mut bytes = vec![0; bytes_max];
    let mut read = 0;
    while let Some(room) = bytes.get_mut(read..).filter(|room| !room.is_empty()) {
        match file.read_at(room, from + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Feedback on a program that did not do what it is there for.
pub(crate) fn feedback(what: &str, command: &str, how: &str, output: &str) -> String {
    let command = head_and_tail(command, COMMAND_BYTES_MAX);
    let output = if output.trim().is_empty() { "(none)" } else { output.trim_end() };
    let text = format!("{what} {how}.\n\n$ {command}\n\nOutput:\n{output}\n");
    head_and_tail(&text, FEEDBACK_BYTES_MAX)
}

/// How a program ended, as the end of a sentence.
pub(crate) fn how(end: End, wall: Duration) -> String {
    match end {
        End::Exited(code) => format!("ended with exit code {code}"),
        End::Signalled(signal) => format!("was ended by signal {signal}"),
        End::WallLimit => format!("did not end within its time limit of {wall:?} and was stopped"),
        End::SilenceLimit => "gave no output for too long and was stopped".to_owned(),
        End::OutputLimit => "gave too much output and was stopped".to_owned(),
        End::MemoryLimit => "needed more memory than it may have and was stopped".to_owned(),
        End::Cancelled => "was stopped on request".to_owned(),
        End::Lingered => "did not end after its answer and was stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_head_and_tail_and_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let long = [b"first\n".as_slice(), &[0xff; 1_000_000], b"\nlast"].concat();
        std::fs::write(&path, long).unwrap();
        let text = excerpt(&path, 3_000, "");
        assert!(text.starts_with("first") && text.ends_with("last"), "{text}");
        assert!(text.contains("[… 997011 bytes left out …]"), "{text}");
        let feedback = feedback("It", "cmd", "failed", &excerpt(&path, FEEDBACK_BYTES_MAX, ""));
        assert!(feedback.len() <= FEEDBACK_BYTES_MAX && feedback.ends_with("last\n"));
        let gone = excerpt(&dir.path().join("gone"), 1_000, "its last words");
        assert!(gone.contains("cannot be read") && gone.ends_with("its last words"), "{gone}");
    }
}
