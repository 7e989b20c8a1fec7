//! Identifiers: one type for each, checked once at the edge.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;

/// Longest identifier, in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// A text that cannot be an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{}` {}", shown(.text), fault(.text))]
pub struct InvalidId {
    /// Which kind of identifier was asked for.
    pub what: &'static str,
    /// The text as it was given.
    pub text: String,
}

/// Whether a text has no control character; most have none but printable ASCII, which is seen faster:
/// many bytes are looked at at once where no one of them ends the search.
fn is_printable(text: &str) -> bool {
    let is_plain = |all, byte| all & (b' '..=b'~').contains(&byte);
    text.bytes().fold(true, is_plain) || !text.chars().any(char::is_control)
}

/// A form of a refused text that is safe to print: short, and without control characters.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// What is wrong with a refused text.
fn fault(text: &str) -> String {
    let control = text.char_indices().find(|(_, char)| char.is_control());
    match control {
        _ if text.is_empty() => "is empty".to_owned(),
        _ if text.len() > ID_BYTES_MAX => {
            format!("has {} bytes: at most {ID_BYTES_MAX} are allowed", text.len())
        }
        Some((at, char)) => {
            format!("has a control character (U+{:04X}) at byte {}", u32::from(char), at + 1)
        }
        None => "is not allowed".to_owned(),
    }
}

/// Reads a text and takes it as an identifier, without a copy between.
struct IdText<T>(fn(&str) -> Result<T, InvalidId>);

impl<T> Visitor<'_> for IdText<T> {
    type Value = Result<T, InvalidId>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0(text))
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// Checks a text and takes it as an identifier.
            ///
            /// # Errors
            /// [`InvalidId`] when the text is empty, longer than [`ID_BYTES_MAX`] bytes, or holds a
            /// control character.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let fits = !text.is_empty() && text.len() <= ID_BYTES_MAX;
                if fits && is_printable(text) {
                    Ok(Self(SmolStr::new(text)))
                } else {
                    Err(InvalidId { what: $what, text: text.to_owned() })
                }
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = deserializer.deserialize_str(IdText(Self::parse))?;
                text.map_err(D::Error::custom)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

text_id! {
    /// Names one task within a run: `port-http-types`, `#123`, `http/types`.
    TaskId, "task id"
}
text_id! {
    /// Names one run: one queue, of one or more plans.
    RunId, "run id"
}
text_id! {
    /// Names one process that holds leases, for all time: host, boot, pid and start time in one.
    OwnerId, "owner id"
}
text_id! {
    /// Names one command, so that a command sent twice takes effect once.
    CommandId, "command id"
}
text_id! {
    /// Names a pool of permits.
    PoolName, "pool name"
}
text_id! {
    /// Names a stage of a pipeline.
    StageName, "stage name"
}
text_id! {
    /// Names a pipeline of a plan.
    PipelineName, "pipeline name"
}
text_id! {
    /// Names an agent's conversation, so that it can be taken up again.
    SessionId, "session id"
}
text_id! {
    /// Names a change as the integrator knows it (for git, a commit).
    ChangeId, "change id"
}

impl TaskId {
    /// A name for files and refs, different for different tasks also where case is ignored.
    ///
    /// An id of lower-case letters, digits, `.`, `_` and `-` stands for itself; any other becomes a
    /// readable prefix, a `+` and a hash.
    ///
    /// ```
    /// use orchestrator_core::TaskId;
    /// assert_eq!(TaskId::parse("port-http.types").unwrap().slug(), "port-http.types");
    /// assert!(TaskId::parse("HTTP/types").unwrap().slug().starts_with("http-types+"));
    /// ```
    #[must_use]
    pub fn slug(&self) -> String {
        slug(&self.0)
    }
}

impl RunId {
    /// A name for files and refs; see [`TaskId::slug`].
    #[must_use]
    pub fn slug(&self) -> String {
        slug(&self.0)
    }
}

const SLUG_PLAIN_MAX: usize = 80;

fn slug(id: &str) -> String {
    let safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let plain = id.len() <= SLUG_PLAIN_MAX
        && id.chars().all(safe)
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !id.contains("..")
        && !is_reserved(id);
    if plain {
        return id.to_owned();
    }
    let readable: String = id
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(40)
        .collect();
    let readable = readable.trim_matches('-');
    let head = if readable.is_empty() { "task" } else { readable };
    let digest = Sha256::digest(id.as_bytes());
    let hash: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{head}+{hash}")
}

/// Names that some file system or git keeps for itself.
fn is_reserved(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let device = matches!(stem, "con" | "prn" | "aux" | "nul" | "head")
        || (stem.len() == 4 && (stem.starts_with("com") || stem.starts_with("lpt")));
    device || name.ends_with(".lock")
}

/// A task's number in its run: that of its record, counted from 0.
///
/// The tasks of a plan are numbered when it is added: each after those it depends on, and among
/// those that could be next the one with the longest path behind it first. The number stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskNo(pub u32);

impl fmt::Display for TaskNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no. {}", self.0)
    }
}

/// Number of a lease: it grows with each grant of a run and is never used again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

/// Tokens up to this one may be told to a run from outside: what is left is more than can be granted.
const FLOOR_MAX: u64 = u64::MAX / 2;

impl FencingToken {
    /// The number after this one, if there is one.
    pub(crate) fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// Whether enough numbers come after this one for whatever a run may grant.
    pub(crate) const fn leaves_enough(self) -> bool {
        self.0 <= FLOOR_MAX
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position in a run's log; the first event has 1, a run without events is at 0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    #[must_use]
    pub const fn plus(self, events: u64) -> Self {
        Self(self.0.saturating_add(events))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Content address of a blob: SHA-256 in 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlobHash(Arc<str>);

impl BlobHash {
    /// The address of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_digest(&Sha256::digest(bytes))
    }

    /// The address of what has this SHA-256.
    pub(crate) fn from_digest(digest: &[u8]) -> Self {
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(Arc::from(hex))
    }

    /// The address as text, for a store that keeps it in a column.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes an address back from a store's column; an address that nobody made finds no blob.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_with_a_control_character_is_refused_and_printed_safely() {
        let err = TaskId::parse("a\u{1b}[31m").unwrap_err();
        assert!(err.to_string().contains("\\u{1b}"), "{err}");
    }

    #[test]
    fn a_text_that_is_no_id_is_told_what_is_wrong_with_it() {
        let said = |text: &str| TaskId::parse(text).unwrap_err().to_string();
        assert_eq!(said(""), "task id `` is empty");
        let long = "x".repeat(80);
        for bytes in [257, 64 * 1024, 1 << 20] {
            let expected = format!("task id `{long}` has {bytes} bytes: at most 256 are allowed");
            assert_eq!(said(&"x".repeat(bytes)), expected);
        }
        let nul = "task id `a\\0b` has a control character (U+0000) at byte 2";
        assert_eq!(said("a\0b"), nul);
        assert_eq!(
            said("é\u{9f}"),
            "task id `é\\u{9f}` has a control character (U+009F) at byte 3"
        );
        TaskId::parse(&"x".repeat(256)).unwrap();
    }

    #[test]
    fn slugs_of_different_ids_differ_even_without_case() {
        let ids = ["a", "A", "a/b", "a-b", "a.b", "con", "é", "日本", "..", ".", "a.lock", "-a"];
        let slugs: std::collections::BTreeSet<String> =
            ids.iter().map(|id| TaskId::parse(id).unwrap().slug().to_lowercase()).collect();
        assert_eq!(slugs.len(), ids.len(), "{slugs:?}");
    }
}
