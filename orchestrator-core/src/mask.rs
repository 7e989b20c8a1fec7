//! Keeping secrets out of what is stored and shown.
//!
//! A [`Mask`] knows values that must not be shown, and knows keys and tokens of common services by
//! their looks. What an agent or a command printed goes through it before it becomes feedback, a
//! question, an error, an event or a report. It is a net, not a wall: a secret that was encoded, cut
//! or spelled out passes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// What is shown in place of a secret.
const MASKED: &str = "[masked]";
/// A value that is shorter is no secret, and masking it would make texts unreadable.
const VALUE_BYTES_MIN: usize = 6;
/// The longest token that is taken for a key.
const TOKEN_BYTES_MAX: usize = 4096;

/// Begins of keys and tokens of common services, each with the least length of the whole.
const KEYS: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_live_", 20),
    ("sk_test_", 20),
    ("rk_live_", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxa-", 20),
    ("xapp-", 20),
    ("AIza", 35),
    ("npm_", 30),
    ("hf_", 30),
    ("pypi-", 40),
];
/// More than names the kind of a private key and ends the line.
const NAME_BYTES_MAX: usize = 64;
const PRIVATE_KEY: (&[u8], &[u8]) = (b"-----BEGIN ", b"PRIVATE KEY-----");

/// Values that must not be shown, and all that looks like a key.
///
/// ```
/// let mask = orchestrator_core::Mask::keys().with_value("correct horse");
/// let text = "the pass phrase is correct horse, the key sk-ant-0123456789abcdefghij";
/// assert_eq!(mask.text(text), "the pass phrase is [masked], the key [masked]");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Mask {
    values: Vec<String>,
}

impl Default for Mask {
    /// All that looks like a key.
    fn default() -> Self {
        Self::keys()
    }
}

impl Mask {
    /// All that looks like a key, and no value beside it.
    #[must_use]
    pub const fn keys() -> Self {
        Self { values: Vec::new() }
    }

    /// With this value, also as it stands within a JSON text; one of less than 6 bytes is left out.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<String>) -> Self {
        let value = value.into();
        if value.len() >= VALUE_BYTES_MIN {
            for form in [in_json(&value), value] {
                if !self.values.contains(&form) {
                    self.values.push(form);
                }
            }
        }
        self
    }

    /// The text without its secrets.
    #[must_use]
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let secrets = self.find(text.as_bytes());
        if secrets.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        let mut at = 0;
        for secret in secrets {
            shown.push_str(text.get(at..secret.start).unwrap_or_default());
            shown.push_str(MASKED);
            at = secret.end;
        }
        shown.push_str(text.get(at..).unwrap_or_default());
        Cow::Owned(shown)
    }

    /// Takes the secrets out of a text.
    pub fn apply(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.text(text) {
            *text = masked;
        }
    }

    /// Where there are secrets, in order and apart from each other. Each begins and ends at a
    /// character, where the bytes are UTF-8.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for value in &self.values {
            let mut at = 0;
            while let Some(begin) = position(bytes, value.as_bytes(), at) {
                at = begin + value.len();
                found.push(begin..at);
            }
        }
        keys(bytes, &mut found);
        private_keys(bytes, &mut found);
        found.sort_unstable_by_key(|secret| (secret.start, secret.end));
        let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for secret in found {
            match apart.last_mut() {
                Some(last) if secret.start <= last.end => last.end = last.end.max(secret.end),
                _ => apart.push(secret),
            }
        }
        apart
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask of {} values", self.values.len())
    }
}

/// A text with the escapes that it has within a JSON text.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

/// Where the needle is, from a place on.
fn position(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let first = *needle.first()?;
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.iter().position(|byte| *byte == first)?;
        if bytes.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
}

const fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Tokens that look like keys.
fn keys(bytes: &[u8], found: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let skipped = rest.iter().take_while(|byte| !is_of_token(**byte)).count();
        let token = rest.get(skipped..).unwrap_or_default();
        let len = token.iter().take_while(|byte| is_of_token(**byte)).count();
        let token = token.get(..len).unwrap_or_default();
        let begin = at + skipped;
        if len <= TOKEN_BYTES_MAX && (is_key(token) || is_bearer(bytes, begin, token)) {
            found.push(begin..begin + len);
        }
        at = begin + len;
    }
}

fn is_key(token: &[u8]) -> bool {
    let begins = |(begin, least): &(&str, usize)| {
        token.len() >= *least && token.starts_with(begin.as_bytes())
    };
    KEYS.iter().any(begins) || is_access_key(token) || is_web_token(token)
}

/// Of the shape `AKIA` and 16 capitals or digits.
fn is_access_key(token: &[u8]) -> bool {
    let is_of_key = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    token.len() == 20
        && (token.starts_with(b"AKIA") || token.starts_with(b"ASIA"))
        && token.iter().all(is_of_key)
}

/// Three parts, of which the first is JSON that begins with a quotation mark.
fn is_web_token(token: &[u8]) -> bool {
    token.len() >= 40
        && token.starts_with(b"eyJ")
        && token.iter().filter(|byte| **byte == b'.').count() == 2
}

/// Whether the word before says that this is what somebody signs in with.
fn is_bearer(bytes: &[u8], begin: usize, token: &[u8]) -> bool {
    let before = bytes.get(..begin).unwrap_or_default();
    token.len() >= 20 && (before.ends_with(b"Bearer ") || before.ends_with(b"bearer "))
}

/// Private keys in their armour, from its begin to its end or that of the text.
fn private_keys(bytes: &[u8], found: &mut Vec<Range<usize>>) {
    let (begin, kind) = PRIVATE_KEY;
    let mut at = 0;
    while let Some(start) = position(bytes, begin, at) {
        at = start + begin.len();
        let rest = bytes.get(at..).unwrap_or_default();
        let line = rest.get(..NAME_BYTES_MAX).unwrap_or(rest);
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if position(line, kind, 0).is_none() {
            continue;
        }
        let end = position(bytes, b"-----END ", at);
        let end = end.and_then(|end| Some(position(bytes, kind, end)? + kind.len()));
        at = end.unwrap_or(bytes.len());
        found.push(start..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_common_services_are_known_by_their_looks() {
        let long = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
        for key in [
            format!("sk-ant-api03-{long}"),
            format!("ghp_{long}"),
            format!("github_pat_{long}"),
            format!("xoxb-1-2-{long}"),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            format!("AIza{long}"),
            format!("eyJhbGciOi.{long}.{long}"),
        ] {
            let text = format!("key=\"{key}\"\nnext");
            assert_eq!(Mask::keys().text(&text), "key=\"[masked]\"\nnext", "{key}");
        }
        let bearer = format!("Authorization: Bearer {long}!");
        assert_eq!(Mask::keys().text(&bearer), "Authorization: Bearer [masked]!");
        let armoured =
            "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- b";
        assert_eq!(Mask::keys().text(armoured), "a [masked] b");
        let cut = "a -----BEGIN PRIVATE KEY-----\nMIIE";
        assert_eq!(Mask::keys().text(cut), "a [masked]");
    }

    #[test]
    fn words_that_only_begin_like_a_key_stay() {
        let text =
            "sk-short, task-sk-0123456789abcdefghij0123, AKIA, eyJ.a.b, -----BEGIN CERTIFICATE-----
            ghp_x npm_config_registry the risk-free-and-very-long-compound-word";
        assert!(matches!(Mask::keys().text(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn a_value_is_masked_as_it_stands_in_json_too() {
        let value = "A: \"b\"\nC: \\d";
        let mask = Mask::keys().with_value(value);
        let text = serde_json::json!({ "said": format!("it is {value}!") }).to_string();
        assert_eq!(mask.text(&text), r#"{"said":"it is [masked]!"}"#);
        assert_eq!(mask.text(value), "[masked]");
    }

    #[test]
    fn p16_begins_of_keys_without_an_end_are_looked_at_in_bounded_time() {
        // Each of them to the end of the line, again and again, would take hours.
        let text = "-----BEGIN ".repeat(1_000_000);
        assert!(Mask::keys().find(text.as_bytes()).is_empty());
    }

    #[test]
    fn values_are_masked_wherever_they_stand_and_are_not_shown_by_debug() {
        let mask = Mask::keys().with_value("pässword").with_value("word-and-more").with_value("x");
        assert_eq!(mask.text("xpässword-and-more pässwordé"), "x[masked] [masked]é");
        assert_eq!(format!("{mask:?}"), "Mask of 2 values");
        let mut text = "pässword".to_owned();
        mask.apply(&mut text);
        assert_eq!(text, "[masked]");
    }
}
