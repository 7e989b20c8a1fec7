//! What can be said of a plan's text before it is parsed, and places in it.

use crate::plan::error::{PLAN_BYTES_MAX, PLAN_VALUES_MAX, Position, TextFault};

/// The text without a byte order mark.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Counts the values, and finds what would make the parser fail without a clear word or use too
/// much memory: the offset and the fault.
///
/// The parser would take a line break within quotes, and so tell an open quote where the next one
/// stands; and it takes some fifty bytes of memory for each value, however short.
pub(super) fn scan(text: &str) -> Result<usize, (usize, TextFault)> {
    if text.len() > PLAN_BYTES_MAX {
        return Err((0, TextFault::TooLong(text.len())));
    }
    if let Some(offset) = text.bytes().position(|byte| byte == 0) {
        return Err((offset, TextFault::Nul));
    }
    let mut values = 0_usize;
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((offset, byte)) = bytes.next() {
        match (byte, bytes.peek().map(|(_, next)| *next)) {
            (b'"', _) => skip_quoted(&mut bytes).map_err(|fault| (offset, fault))?,
            (b'/', Some(b'/')) => skip_until(&mut bytes, |_, byte| matches!(byte, b'\n' | b'\r')),
            (b'/', Some(b'*')) => {
                bytes.next();
                skip_until(&mut bytes, |before, byte| before == b'*' && byte == b'/');
            }
            (b',' | b'[' | b'{', _) => values += 1,
            _ => {}
        }
        if values > PLAN_VALUES_MAX {
            return Err((offset, TextFault::TooMany));
        }
    }
    Ok(values)
}

fn skip_quoted(bytes: &mut impl Iterator<Item = (usize, u8)>) -> Result<(), TextFault> {
    let mut is_escaped = false;
    for (_, byte) in bytes {
        match byte {
            b'\n' | b'\r' => return Err(TextFault::OpenQuote),
            b'"' if !is_escaped => return Ok(()),
            _ => is_escaped = byte == b'\\' && !is_escaped,
        }
    }
    Err(TextFault::OpenQuote)
}

fn skip_until(bytes: &mut impl Iterator<Item = (usize, u8)>, ends: impl Fn(u8, u8) -> bool) {
    let mut before = 0;
    for (_, byte) in bytes {
        if ends(before, byte) {
            return;
        }
        before = byte;
    }
}

/// Turns offsets into positions; they are to be asked for in ascending order, so that a text of one
/// long line is read once.
pub(super) struct Locator<'t> {
    text: &'t str,
    offset: usize,
    at: Position,
}

impl<'t> Locator<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, offset: 0, at: Position { line: 1, column: 1 } }
    }

    pub(super) fn position(&mut self, offset: usize) -> Position {
        let rest = self.text.get(self.offset..).unwrap_or_default();
        let passed = rest.char_indices().take_while(|(at, _)| self.offset + at < offset);
        let mut end = self.offset;
        for (at, c) in passed {
            end = self.offset + at + c.len_utf8();
            self.at = if c == '\n' {
                Position { line: self.at.line + 1, column: 1 }
            } else {
                Position { line: self.at.line, column: self.at.column + 1 }
            };
        }
        self.offset = end;
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_at_line_feeds() {
        let text = "é\r\n日本x";
        let mut locator = Locator::new(text);
        for (offset, line, column) in [(0, 1, 1), (2, 1, 2), (4, 2, 1), (10, 2, 3), (99, 2, 4)] {
            assert_eq!(locator.position(offset), Position { line, column }, "{offset}");
        }
    }

    #[test]
    fn quotes_in_comments_and_comments_in_quotes_are_no_fault() {
        assert_eq!(scan("// don't \"\n[\"/* // \\\" \\\\\", /* \" */ 1]"), Ok(2));
        assert_eq!(scan("[\n\"a,\n\"b\"]"), Err((2, TextFault::OpenQuote)));
        assert_eq!(scan("[\"a\\\""), Err((1, TextFault::OpenQuote)));
        assert_eq!(scan("[\0"), Err((1, TextFault::Nul)));
    }

    #[test]
    fn p16_a_text_with_too_many_values_is_refused_before_memory_is_used_for_them() {
        let text = "[".repeat(PLAN_VALUES_MAX + 1);
        assert_eq!(scan(&text), Err((PLAN_VALUES_MAX, TextFault::TooMany)));
        let text = " ".repeat(PLAN_BYTES_MAX + 1);
        assert_eq!(scan(&text), Err((0, TextFault::TooLong(PLAN_BYTES_MAX + 1))));
    }
}
