//! The names of objects.

use std::fmt;

use orchestrator_core::ChangeId;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::error::GitError;

/// The id of an object: 40 or 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Oid(String);

impl Oid {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (matches!(text.len(), 40 | 64) && text.chars().all(is_hex)).then(|| Self(text.to_owned()))
    }

    pub(crate) fn of(change: &ChangeId) -> Result<Self, GitError> {
        let text = change.as_str();
        Self::parse(text).ok_or_else(|| GitError::NoChange { text: text.to_owned() })
    }

    /// The id that stands for "no object" in a transaction.
    pub(crate) fn none_like(&self) -> Self {
        Self("0".repeat(self.0.len()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }

    pub(crate) fn to_change(&self) -> ChangeId {
        ChangeId::parse(&self.0).expect("hex digits are a valid id")
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a repository names its objects by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Sha1,
    Sha256,
}

impl Format {
    /// What git calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The name that an object of this kind and content has.
    pub(crate) fn name_of(self, kind: &str, body: &[u8]) -> Oid {
        let header = format!("{kind} {}\0", body.len());
        let name = match self {
            Self::Sha1 => hex(&Sha1::new().chain_update(header).chain_update(body).finalize()),
            Self::Sha256 => hex(&Sha256::new().chain_update(header).chain_update(body).finalize()),
        };
        Oid::parse(&name).expect("a digest in hex is an object id")
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_id_is_hex_and_nothing_else() {
        assert!(Oid::parse(&"a".repeat(40)).is_some());
        for bad in ["", "--all", "HEAD", &"A".repeat(40), &"a".repeat(39)] {
            assert!(Oid::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn objects_have_the_names_that_git_gives_them() {
        let blob = |format: Format| format.name_of("blob", b"hello\n").to_string();
        assert_eq!(blob(Format::Sha1), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(
            blob(Format::Sha256),
            "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4"
        );
    }
}
