//! Text from outside, made safe to show.

use std::fmt::Arguments;

/// The text on one line of at most `chars_max` characters, with every character escaped that could
/// move a terminal's cursor, hide something or turn the direction of writing.
///
/// ```
/// assert_eq!(orchestrator_cli::harmless("a\u{1b}[31m\nb", 80), "a\\u{1b}[31m b");
/// ```
#[must_use]
pub fn harmless(text: &str, chars_max: usize) -> String {
    let mut shown = String::new();
    let mut left = chars_max;
    for c in text.chars() {
        if left == 0 {
            shown.pop();
            shown.push('…');
            return shown;
        }
        left -= 1;
        match c {
            '\n' | '\r' | '\t' => shown.push(' '),
            _ => push(&mut shown, c),
        }
    }
    shown
}

/// The text with its lines and tabs kept, and everything else as in [`harmless`].
pub(crate) fn harmless_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' => {}
            _ => push(&mut shown, c),
        }
    }
    shown
}

fn push(shown: &mut String, c: char) {
    if is_harmful(c) {
        shown.extend(c.escape_unicode());
    } else {
        shown.push(c);
    }
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Adds to the text.
pub(crate) fn add(text: &mut String, more: Arguments<'_>) {
    text.push_str(&more.to_string());
}

/// Adds to the text and ends the line.
pub(crate) fn add_line(text: &mut String, more: Arguments<'_>) {
    add(text, more);
    text.push('\n');
}

/// The text as a block of Markdown that nothing in it can end.
pub(crate) fn fenced(text: &str) -> String {
    let text = harmless_lines(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end())
}

/// The text as a piece of Markdown code within a line.
pub(crate) fn code(text: &str) -> String {
    let text = harmless(text, 400);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let tick = "`".repeat(longest + 1);
    let pad = if longest > 0 { " " } else { "" };
    format!("{tick}{pad}{text}{pad}{tick}")
}

/// The text as one word of a POSIX shell.
///
/// ```
/// assert_eq!(orchestrator_cli::shell_word("plain-1.txt"), "plain-1.txt");
/// assert_eq!(orchestrator_cli::shell_word("it's"), r"'it'\''s'");
/// ```
#[must_use]
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A span in words: `42 s`, `3 min 07 s`, `2 h 05 min`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, millis % 1_000 / 100),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_an_agent_says_can_steer_the_terminal() {
        let text = "\u{1b}]0;x\u{7}\u{9b}2J\r\u{202e}abc\u{0}";
        let shown = harmless(text, 200);
        assert!(!shown.chars().any(is_harmful), "{shown:?}");
        assert!(shown.contains("abc"));
        assert_eq!(harmless("abcdef", 3), "ab…");
    }

    #[test]
    fn a_block_cannot_be_ended_from_within() {
        let block = fenced("a\n````\n# heading");
        assert!(block.starts_with("`````text\n") && block.ends_with("\n`````\n"), "{block}");
        assert_eq!(code("a`b"), "`` a`b ``");
    }
}
