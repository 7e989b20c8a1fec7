//! The paths that a task may change.

use std::fmt;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;

use crate::mutant::{Mutant, is_on};

/// Most patterns in one scope.
pub const SCOPE_PATTERNS_MAX: usize = 256;
/// Longest pattern of a scope, in bytes.
pub const SCOPE_PATTERN_BYTES_MAX: usize = 1_024;

/// A set of paths, written as paths and globs relative to the repository's root.
///
/// A path without a wildcard stands for itself and for all that is below it. In a glob `*` and `?`
/// do not pass a `/`, `**` as a whole component does, `{a,b}` is either, and `[ab]` is one of these
/// characters (so a folder called `[id]` is written `[[]id]`); it stands for the files that it
/// matches and no others: `crates/*/src/**` is what is below each `src`. `**` stands for everything.
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
    /// The components before the first wildcard, without case.
    literal: Vec<String>,
    has_wildcard: bool,
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
    /// It is too long.
    #[error("a scope pattern has at most {SCOPE_PATTERN_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// There are too many of them.
    #[error("a scope has at most {SCOPE_PATTERNS_MAX} patterns")]
    TooMany,
}

impl Scope {
    /// Takes these patterns as a scope; an empty list allows nothing.
    ///
    /// # Errors
    /// [`InvalidScope`] names the pattern and what is wrong with it.
    pub fn parse<S: AsRef<str>>(
        patterns: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidScope> {
        let parsed = patterns.into_iter().map(|text| Pattern::parse(text.as_ref()));
        let patterns: Vec<Pattern> =
            parsed.take(SCOPE_PATTERNS_MAX + 1).collect::<Result<_, _>>()?;
        if patterns.len() > SCOPE_PATTERNS_MAX {
            return Err(InvalidScope::TooMany);
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
    /// components and without regard to case or to how accents are encoded, of the same part of a
    /// pattern of the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.patterns.iter().any(|ours| other.patterns.iter().any(|theirs| ours.overlaps(theirs)))
    }

    /// For each pattern the components before its first wildcard, without case: what decides
    /// whether scopes overlap.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &[String]> {
        self.patterns.iter().map(|pattern| pattern.literal.as_slice())
    }

    /// The first pattern that begins with a wildcard, so that the scope overlaps every other one
    /// that is not empty.
    #[must_use]
    pub fn exclusive_pattern(&self) -> Option<&str> {
        let exclusive = self.patterns.iter().find(|pattern| pattern.literal.is_empty());
        exclusive.map(|pattern| pattern.text.as_str())
    }

    /// Whether the path, relative to the repository's root and with `/`, may be changed; for many
    /// paths make a [`matcher`](Self::matcher) once.
    #[must_use]
    pub fn allows(&self, path: &str) -> bool {
        self.matcher().allows(path)
    }

    /// The scope made ready to judge paths.
    #[must_use]
    pub fn matcher(&self) -> ScopeMatcher {
        let (globs, plain): (Vec<&Pattern>, Vec<&Pattern>) =
            self.patterns.iter().partition(|pattern| pattern.has_wildcard);
        let mut set = GlobSetBuilder::new();
        for glob in globs.iter().filter_map(|pattern| glob(&pattern.text).ok()) {
            set.add(glob);
        }
        ScopeMatcher {
            plain: plain.iter().map(|pattern| pattern.text.clone()).collect(),
            // Patterns are short, so this does not fail; if it did, nothing would be allowed.
            globs: set.build().unwrap_or_else(|_| GlobSet::empty()),
        }
    }
}

/// A scope made ready to judge paths. Apart from [`Scope`], because it takes a hundred times the
/// memory, and a run holds the scopes of all its tasks.
#[derive(Debug, Clone)]
pub struct ScopeMatcher {
    plain: Vec<String>,
    globs: GlobSet,
}

impl ScopeMatcher {
    /// Whether the path, relative to the repository's root and with `/`, may be changed.
    ///
    /// A path that is not in its plain form (with `..`, say) is not allowed by any scope.
    #[must_use]
    pub fn allows(&self, path: &str) -> bool {
        let dots_pass = is_on(Mutant::ScopeLetsDotsOut);
        let is_plain = dots_pass || path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let is_below = |plain: &String| {
            path.strip_prefix(plain.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        is_plain && (self.plain.iter().any(is_below) || self.globs.is_match(path))
    }
}

fn glob(text: &str) -> Result<Glob, InvalidScope> {
    let glob = GlobBuilder::new(text).literal_separator(true).build();
    glob.map_err(|err| InvalidScope::Glob { pattern: text.to_owned(), why: err.kind().to_string() })
}

/// A form that is the same for names that a file system without case takes for the same: also for
/// an `é` that is one character, or two.
fn folded(part: &str) -> String {
    if is_on(Mutant::ScopesMindCase) {
        return part.to_owned();
    }
    if part.is_ascii() {
        return part.to_ascii_lowercase();
    }
    part.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfd().collect()
}

impl Pattern {
    fn parse(written: &str) -> Result<Self, InvalidScope> {
        if written.len() > SCOPE_PATTERN_BYTES_MAX {
            return Err(InvalidScope::TooLong(written.len()));
        }
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
        let has_wildcard = parts.iter().any(is_wild);
        if has_wildcard {
            glob(&text)?;
        }
        let literal = parts.iter().take_while(|part| !is_wild(part)).map(|part| folded(part));
        Ok(Self { literal: literal.collect(), text, has_wildcard })
    }

    fn overlaps(&self, other: &Self) -> bool {
        if is_on(Mutant::ScopesOverlapByEqualPathsOnly) {
            return self.literal == other.literal;
        }
        self.literal.iter().zip(&other.literal).all(|(ours, theirs)| ours == theirs)
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
    use proptest::prelude::*;

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
            ("straße", "STRASSE/a.rs", true),
            ("caf\u{e9}", "cafe\u{301}/a.rs", true),
            ("CAF\u{c9}/a.rs", "cafe\u{301}", true),
            ("\u{c5}ngstr\u{f6}m", "\u{212b}ngstro\u{308}m", true),
            ("cafe", "caf\u{e9}", false),
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

    #[test]
    fn p18_a_path_that_leaves_the_scope_by_dots_is_not_allowed() {
        let scope = scope(&["src", "docs/**", "**"]);
        for path in ["src/../x", "docs/../x", "../x", "/src/a", "src//a", "src/", "./src", ""] {
            assert!(!scope.allows(path), "{path}");
        }
    }

    #[test]
    fn patterns_are_bounded_in_length_and_number() {
        let long = "a".repeat(SCOPE_PATTERN_BYTES_MAX + 1);
        assert_eq!(Scope::parse([&long]), Err(InvalidScope::TooLong(1_025)));
        let endless = std::iter::repeat("a");
        assert_eq!(Scope::parse(endless), Err(InvalidScope::TooMany));
        let nested = format!("{}a{}", "{".repeat(500), "}".repeat(500));
        assert!(matches!(Scope::parse([nested]), Err(InvalidScope::Glob { .. })));
        let wide = "{*a*,?b,[!c]}*".repeat(73);
        assert!(!scope(&[&wide]).allows("x"));
        assert_eq!(scope(&[&wide]).matcher().globs.len(), 1);
    }

    #[test]
    fn a_folder_with_brackets_in_its_name_is_written_as_a_class() {
        let scope = scope(&["app/[[]id]/page.tsx"]);
        assert!(scope.allows("app/[id]/page.tsx"));
        assert!(!scope.allows("app/i/page.tsx"));
    }

    /// Paths and patterns of few names, so that they often meet.
    fn patterns() -> impl Strategy<Value = Vec<String>> {
        let part = prop::sample::select(vec![
            "a",
            "A",
            "b",
            "ab",
            "é",
            "É",
            "e\u{301}",
            "*",
            "**",
            "?",
            "[ab]",
            "[!a]",
            "{a,b}",
            "{a/b,b}",
            "a*",
            ".",
            "b?",
            "{A,{b,a/*}}",
            "ß",
            "SS",
        ]);
        let pattern = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
        prop::collection::vec(pattern, 0..4)
    }

    fn paths() -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec!["a", "A", "b", "ab", "é", "e\u{301}", "ß", "b."]);
        prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

        #[test]
        fn p9_scopes_that_allow_one_path_overlap_and_overlap_is_symmetric(
            one in patterns(),
            two in patterns(),
            path in paths(),
        ) {
            let (Ok(one), Ok(two)) = (Scope::parse(one), Scope::parse(two)) else { return Ok(()) };
            prop_assert_eq!(one.overlaps(&two), two.overlaps(&one));
            prop_assert_eq!(one.overlaps(&one), one.patterns().count() > 0);
            if one.allows(&path) && two.allows(&path) {
                prop_assert!(one.overlaps(&two));
            }
            // Without case, and however accents are encoded: on some file systems both are one file.
            let others = [path.to_uppercase(), path.nfd().collect(), path.nfc().collect()];
            if one.allows(&path) && others.iter().any(|other| two.allows(other)) {
                prop_assert!(one.overlaps(&two));
            }
            if one.exclusive_pattern().is_some() && two.patterns().count() > 0 {
                prop_assert!(one.overlaps(&two));
            }
        }

        #[test]
        fn p16_any_text_is_a_scope_or_refused_and_a_scope_judges_any_path(
            texts in prop::collection::vec("[ab*?{}\\[\\]!,/.é-]{0,12}|.{0,8}", 0..4),
            path in "[ab/.]{0,8}|.{0,8}",
        ) {
            let Ok(scope) = Scope::parse(&texts) else { return Ok(()) };
            let json = serde_json::to_string(&scope).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Scope>(&json).unwrap(), &scope);
            let matcher = scope.matcher();
            let wild = scope.patterns.iter().filter(|pattern| pattern.has_wildcard).count();
            prop_assert_eq!(matcher.globs.len(), wild);
            if matcher.allows(&path) {
                prop_assert!(path.split('/').all(|part| part != ".." && !part.is_empty()));
            }
        }
    }
}
