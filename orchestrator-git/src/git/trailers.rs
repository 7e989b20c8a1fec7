//! Messages of commits, and the trailers by which a commit says whose work it is.

use crate::git::oid::Oid;

/// The trailer that names a task in the target's history.
pub(crate) const TASK_TRAILER: &str = "Orchestrator-Task";
pub(crate) const RUN_TRAILER: &str = "Orchestrator-Run";
pub(crate) const ATTEMPT_TRAILER: &str = "Orchestrator-Attempt";
pub(crate) const TOKEN_TRAILER: &str = "Orchestrator-Token";
pub(crate) const COST_TRAILER: &str = "Orchestrator-Cost";
/// The trailer that names the commit whose change was merged.
pub(crate) const CANDIDATE_TRAILER: &str = "Orchestrator-Candidate";

/// A value as it stands in a trailer: what git would take away or read otherwise is written as
/// `%` and two hex digits, and so is a `%` that could be taken for such.
pub(crate) fn trailer_value(text: &str) -> String {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let start = text.len() - text.trim_start().len();
    let end = text.trim_end().len();
    let mut value = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let is_edge = at < start || at >= end;
        let is_code = c == '%' && is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2));
        if is_edge || is_code || c.is_control() {
            let mut buffer = [0; 4];
            let encoded = c.encode_utf8(&mut buffer).bytes();
            value.extend(encoded.map(|byte| format!("%{byte:02X}")));
        } else {
            value.push(c);
        }
    }
    value
}

/// A message of a commit: a subject, text, and trailers as its last paragraph.
pub(crate) fn message(subject: &str, trailers: &[(&str, &str)]) -> String {
    let mut text = format!("{}\n", trailer_value(subject));
    text.push('\n');
    for (key, value) in trailers {
        text.extend([key, ": ", &trailer_value(value), "\n"]);
    }
    text
}

/// What a commit says.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) tree: Oid,
    pub(crate) message: String,
}

impl Commit {
    /// The value of a trailer, as it is written.
    pub(crate) fn trailer(&self, key: &str) -> Option<&str> {
        let mut lines = self.message.lines().rev().take_while(|line| !line.is_empty());
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_tells_ids_apart_that_git_would_confuse() {
        for (id, value) in [
            ("port-http-types", "port-http-types"),
            ("#12: a, 50% of it", "#12: a, 50% of it"),
            (" a ", "%20a%20"),
            ("%20a", "%2520a"),
            ("日本\u{3000}", "日本%E3%80%80"),
        ] {
            assert_eq!(trailer_value(id), value);
        }
    }
}
