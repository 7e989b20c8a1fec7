//! Cutting a stream of bytes into lines.

/// Longest line that is looked at; a longer one counts as torn.
pub(super) const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Cuts what arrives in pieces into lines, within a limit of memory.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    skips: bool,
}

impl Lines {
    /// Takes the next piece, and gives each line that is complete with it.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.keep(line);
            self.give(&mut take);
            rest = after.get(1..).unwrap_or_default();
        }
        self.keep(rest);
    }

    /// Gives what came after the last line feed, once nothing more will come.
    pub fn finish(&mut self, mut take: impl FnMut(&[u8])) {
        if !self.partial.is_empty() || self.skips {
            self.give(&mut take);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.skips || self.partial.len().saturating_add(piece.len()) > LINE_BYTES_MAX {
            self.partial = Vec::new();
            self.skips = true;
        } else {
            self.partial.extend_from_slice(piece);
        }
    }

    fn give(&mut self, take: &mut impl FnMut(&[u8])) {
        // An oversized line is given as something that cannot be read, so that it is counted.
        take(if self.skips { b"\0" } else { &self.partial });
        self.partial.clear();
        self.skips = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&str]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        let mut take = |line: &[u8]| all.push(String::from_utf8_lossy(line).into_owned());
        for piece in pieces {
            lines.push(piece.as_bytes(), &mut take);
        }
        lines.finish(&mut take);
        all
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        for pieces in [&["ab\ncd\n\nef"][..], &["a", "b\nc", "d", "\n", "\nef"]] {
            assert_eq!(cut(pieces), ["ab", "cd", "", "ef"]);
        }
        assert_eq!(cut(&["ab\n"]), ["ab"]);
        assert!(cut(&[]).is_empty());
    }

    #[test]
    fn p16_an_oversized_line_is_dropped_and_the_next_one_is_read() {
        let piece = "x".repeat(LINE_BYTES_MAX / 2 + 1);
        let lines = cut(&[&piece, &piece, "\nnext\n"]);
        assert_eq!(lines, ["\0", "next"]);
    }
}
