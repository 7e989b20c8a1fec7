//! Taking secrets out of a file.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use orchestrator_core::Mask;

/// How much is looked at at once, and how much of it once more with what follows, for a secret may
/// lie across.
const PIECE: usize = 1 << 20;
const AGAIN: usize = 16 * 1024;

/// Overwrites the secrets in a file with asterisks, in place and byte for byte, so that whoever
/// follows it is not disturbed; says how many there were. A file that is not there has none.
///
/// # Errors
/// What the system says when it cannot be read or written; some may be left then.
pub fn mask_file(path: &Path, mask: &Mask) -> io::Result<usize> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let file = match file {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    let mut piece = vec![0; PIECE];
    let (mut at, mut count) = (0, 0);
    loop {
        let mut len = 0;
        while let Some(room) = piece.get_mut(len..).filter(|room| !room.is_empty()) {
            match file.read_at(room, at + len as u64)? {
                0 => break,
                more => len += more,
            }
        }
        for secret in mask.find(piece.get(..len).unwrap_or_default()) {
            file.write_all_at(&vec![b'*'; secret.len()], at + secret.start as u64)?;
            count += 1;
        }
        if len < PIECE {
            return Ok(count);
        }
        at += (PIECE - AGAIN) as u64;
    }
}

/// The same for a log, where what cannot be done is only told.
pub(crate) fn mask_log(path: &Path, mask: &Mask) {
    if let Err(err) = mask_file(path, mask) {
        tracing::warn!(path = %path.display(), %err, "secrets may be left in a log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_file_are_overwritten_wherever_a_look_at_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mask = Mask::keys().with_value("open sesame");
        let fill = |len: usize| "x ".repeat(len / 2);
        let before = [fill(PIECE - 6), "open sesame ".to_owned(), fill(PIECE / 2)].concat();
        std::fs::write(&path, &before).unwrap();
        assert_eq!(mask_file(&path, &mask).unwrap(), 1);
        let after = std::fs::read_to_string(&path).unwrap();
        assert!(after.len() == before.len() && !after.contains("sesame"));
        assert!(after.contains("x *********** x"));
        assert_eq!(mask_file(&path, &mask).unwrap(), 0);
        assert_eq!(mask_file(&dir.path().join("gone"), &mask).unwrap(), 0);
    }
}
