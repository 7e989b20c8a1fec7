//! The paths that a task may change.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

/// Most patterns in one scope.
pub const SCOPE_PATTERNS_MAX: usize = 256;

/// A set of paths, written as paths and globs relative to the repository's root.
///
/// A path without a wildcard stands for itself and for all that is below it; `**` stands for
/// everything.
///
/// ```
/// use orchestrator_core::Scope;
/// let src = Scope::parse(["src"]).unwrap();
/// let file = Scope::parse(["src/a.rs"]).unwrap();
/// assert!(src.overlaps(&file) && src.allows("src/a.rs") && !src.allows("srcs/a.rs"));
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Scope {
    patterns: Vec<Pattern>,
}

#[derive(Clone)]
struct Pattern {
    /// As written, without `./` and a slash at the end.
    text: String,
    /// The components before the first wildcard, in lower case.
    literal: Vec<String>,
    /// `None` when the text has no wildcard.
    glob: Option<GlobMatcher>,
}

/// A text that is no pattern of a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidScope {
    /// It leaves the repository.
    #[error("scope `{0}` leaves the repository: give a path below its root, without `..`")]
    Outside(String),
    /// It names nothing.
    #[error("a scope pattern is empty: name a path, or `**` for everything")]
    Empty,
    /// It holds a character that no path here may have.
    #[error("scope `{0}` holds a backslash or control character: write paths with `/`")]
    Character(String),
    /// It is no glob.
    #[error("scope `{pattern}` is no valid glob: {why}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// There are too many of them.
    #[error("a scope has at most {SCOPE_PATTERNS_MAX} patterns, this one has {0}")]
    TooMany(usize),
}

impl Scope {
    /// Takes these patterns as a scope; an empty list allows nothing.
    ///
    /// # Errors
    /// [`InvalidScope`] names the pattern and what is wrong with it.
    pub fn parse<S: AsRef<str>>(
        patterns: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidScope> {
        let patterns: Vec<Pattern> = patterns
            .into_iter()
            .map(|text| Pattern::parse(text.as_ref()))
            .collect::<Result<_, _>>()?;
        if patterns.len() > SCOPE_PATTERNS_MAX {
            return Err(InvalidScope::TooMany(patterns.len()));
        }
        Ok(Self { patterns })
    }

    /// The patterns as written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }

    /// Whether two tasks with these scopes must not work at the same time.
    ///
    /// They must not when the part of a pattern before its first wildcard is a prefix, by whole
    /// components and without regard to case, of the same part of a pattern of the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.patterns.iter().any(|ours| other.patterns.iter().any(|theirs| ours.overlaps(theirs)))
    }

    /// Whether the path, relative to the repository's root and with `/`, may be changed.
    #[must_use]
    pub fn allows(&self, path: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.allows(path))
    }
}

impl Pattern {
    fn parse(written: &str) -> Result<Self, InvalidScope> {
        if written.contains(|c: char| c == '\\' || c.is_control()) {
            return Err(InvalidScope::Character(written.escape_debug().to_string()));
        }
        if written.starts_with('/') || written.split('/').any(|part| part == "..") {
            return Err(InvalidScope::Outside(written.to_owned()));
        }
        let parts: Vec<&str> =
            written.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.is_empty() {
            return Err(InvalidScope::Empty);
        }
        let text = parts.join("/");
        let is_wild = |part: &&str| part.contains(['*', '?', '[', '{']);
        let literal = parts
            .iter()
            .take_while(|part| !is_wild(part))
            .map(|part| part.to_lowercase())
            .collect();
        let glob = if parts.iter().any(is_wild) {
            let glob = GlobBuilder::new(&text).literal_separator(true).build().map_err(|err| {
                InvalidScope::Glob { pattern: text.clone(), why: err.kind().to_string() }
            })?;
            Some(glob.compile_matcher())
        } else {
            None
        };
        Ok(Self { text, literal, glob })
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.literal.iter().zip(&other.literal).all(|(ours, theirs)| ours == theirs)
    }

    fn allows(&self, path: &str) -> bool {
        match &self.glob {
            Some(glob) => glob.is_match(path),
            None => path
                .strip_prefix(self.text.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns()).finish()
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        self.patterns().eq(other.patterns())
    }
}

impl Eq for Scope {}

impl TryFrom<Vec<String>> for Scope {
    type Error = InvalidScope;
    fn try_from(patterns: Vec<String>) -> Result<Self, InvalidScope> {
        Self::parse(patterns)
    }
}

impl From<Scope> for Vec<String> {
    fn from(scope: Scope) -> Self {
        scope.patterns.into_iter().map(|pattern| pattern.text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(patterns: &[&str]) -> Scope {
        Scope::parse(patterns).unwrap()
    }

    #[test]
    fn p9_scopes_overlap_by_whole_components_of_their_literal_prefix() {
        for (one, two, overlap) in [
            ("src", "src/a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src/a", "src/ab", false),
            ("SRC", "src/a.rs", true),
            ("src/*.rs", "src/deep/x.py", true),
            ("src/*.rs", "docs/**", false),
            ("**", "anything", true),
            ("./src//a.rs", "src/a.rs", true),
        ] {
            assert_eq!(scope(&[one]).overlaps(&scope(&[two])), overlap, "{one} {two}");
            assert_eq!(scope(&[two]).overlaps(&scope(&[one])), overlap, "{two} {one}");
        }
    }

    #[test]
    fn p18_a_path_is_allowed_by_a_file_a_directory_or_a_glob() {
        let scope = scope(&["src/http", "docs/*.md", "tests/**/data"]);
        for path in ["src/http", "src/http/a/b.rs", "docs/a.md", "tests/x/y/data"] {
            assert!(scope.allows(path), "{path}");
        }
        for path in ["src/httpx", "docs/a/b.md", "tests/data2", "README.md"] {
            assert!(!scope.allows(path), "{path}");
        }
    }

    #[test]
    fn patterns_that_leave_the_repository_are_refused() {
        for bad in ["../x", "a/../../x", "/etc", "", ".", "a\\b", "a[", "a\nb"] {
            assert!(Scope::parse([bad]).is_err(), "{bad}");
        }
    }
}
