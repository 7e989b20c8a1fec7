//! What is noticed about a run besides how it ended.
//!
//! A signal is no verdict: the verify stage judges. It is noted in the record of the run, shown, and
//! given to the next attempt, so that an agent that went in circles, or said what is not so, is told
//! of it.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Component, Path, PathBuf};

use orchestrator_core::{Mask, TaskSpec, head_and_tail};
use serde::{Deserialize, Serialize};

use crate::agent::ToolUse;
use crate::tree::Tree;

/// From how many equal uses of a tool in a row they are noticed.
pub const REPEATS_NOTICED: u32 = 4;
/// Most files that one signal names.
const FILES_MAX: usize = 12;
/// Most names of files in a text that are looked for.
const NAMES_MAX: usize = 200;
/// Longest excerpt of what a tool was to do, in bytes.
const INPUT_BYTES_MAX: usize = 200;
/// Directories that hold tests, or what tests compare with.
const TEST_DIRECTORIES: &[&str] = &[
    "test",
    "tests",
    "__tests__",
    "spec",
    "specs",
    "e2e",
    "testdata",
    "snapshots",
    "__snapshots__",
];
/// Endings of names that are those of files even where no directory stands before them.
const FILE_ENDINGS: &[&str] = &[
    "c", "cc", "cfg", "cpp", "css", "go", "h", "hpp", "html", "ini", "java", "json", "jsx", "kt",
    "lock", "md", "py", "rb", "rs", "sh", "sql", "swift", "toml", "ts", "tsx", "txt", "xml",
    "yaml", "yml",
];

/// Something that was noticed about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "signal")]
#[non_exhaustive]
pub enum Signal {
    /// The same tool was used in the same way again and again, with nothing in between.
    Repeated {
        /// The tool.
        tool: String,
        /// What it was to do, shortened.
        input: String,
        /// How often.
        times: u32,
    },
    /// It says that it is finished, and no file is other than before.
    NothingChanged,
    /// Files were changed that look like tests, and the task does not name them.
    TestsChanged {
        /// The files, up to 12 of them.
        files: Vec<String>,
    },
    /// The final text names files that are not there.
    NotThere {
        /// The files, up to 12 of them.
        files: Vec<String>,
    },
    /// Files of the orchestrator are not as it wrote them.
    OwnFilesChanged {
        /// The files.
        files: Vec<String>,
    },
    /// Uses of tools were not allowed.
    Denied {
        /// How many.
        times: u32,
    },
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated { tool, input, times } => {
                write!(f, "the same use of {tool} was repeated {times} times in a row: {input}")
            }
            Self::NothingChanged => f.write_str("it said it was finished and had changed no file"),
            Self::TestsChanged { files } => {
                write!(f, "it changed tests that the task does not name: {}", files.join(", "))
            }
            Self::OwnFilesChanged { files } => {
                write!(f, "it changed files of the orchestrator: {}", files.join(", "))
            }
            Self::NotThere { files } => {
                write!(f, "its report names files that do not exist: {}", files.join(", "))
            }
            Self::Denied { times } => write!(f, "uses of tools that were not allowed: {times}"),
        }
    }
}

/// Watches for equal uses of a tool in a row.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    last: Option<(u64, ToolUse)>,
    times: u32,
    worst: Option<(ToolUse, u32)>,
}

impl Repeats {
    /// Takes a use of a tool; says how often in a row it was the same.
    pub(crate) fn push(&mut self, used: ToolUse) -> u32 {
        let mut hasher = DefaultHasher::new();
        (&used.name, used.input.to_string()).hash(&mut hasher);
        let hash = hasher.finish();
        let is_same = self.last.as_ref().is_some_and(|(last, _)| *last == hash);
        self.times = if is_same { self.times.saturating_add(1) } else { 1 };
        if self.times >= REPEATS_NOTICED
            && self.worst.as_ref().is_none_or(|(_, times)| self.times > *times)
        {
            self.worst = Some((used.clone(), self.times));
        }
        self.last = Some((hash, used));
        self.times
    }

    fn signal(&self, mask: &Mask) -> Option<Signal> {
        let (used, times) = self.worst.as_ref()?;
        let input = head_and_tail(&mask.text(&used.input.to_string()), INPUT_BYTES_MAX);
        Some(Signal::Repeated { tool: used.name.clone(), input, times: *times })
    }
}

/// What a run is looked at by.
pub(crate) struct Looked<'a> {
    pub(crate) task: &'a TaskSpec,
    pub(crate) root: &'a Path,
    pub(crate) repeats: &'a Repeats,
    /// What must not be shown of them.
    pub(crate) mask: &'a Mask,
    pub(crate) denied: u32,
    /// The final text, when the run says that it is finished.
    pub(crate) said: Option<&'a str>,
    /// Whether the attempt has changed anything, where that is known.
    pub(crate) has_changes: Option<bool>,
    pub(crate) before: Option<&'a Tree>,
    pub(crate) after: Option<&'a Tree>,
}

impl Looked<'_> {
    /// All that is noticed.
    pub(crate) fn signals(&self) -> Vec<Signal> {
        let mut signals: Vec<Signal> = self.repeats.signal(self.mask).into_iter().collect();
        if self.has_changes == Some(false) && self.said.is_some() {
            signals.push(Signal::NothingChanged);
        }
        if let (Some(before), Some(after)) = (self.before, self.after) {
            let changed = before.changed(after);
            let tests = changed.iter().filter(|path| is_test(path) && !self.names(path));
            let files = shown(tests.map(|path| path.display().to_string()));
            if !files.is_empty() {
                signals.push(Signal::TestsChanged { files });
            }
        }
        let named = self.said.into_iter().flat_map(|text| named_files(text, self.root));
        let named: BTreeSet<PathBuf> = named.take(NAMES_MAX).collect();
        let missing = named.iter().filter(|path| !self.is_there(path));
        let files = shown(missing.map(|path| path.display().to_string()));
        if !files.is_empty() {
            signals.push(Signal::NotThere { files });
        }
        if self.denied > 0 {
            signals.push(Signal::Denied { times: self.denied });
        }
        signals
    }

    /// Whether the task itself names the file.
    fn names(&self, path: &Path) -> bool {
        let text = path.display().to_string();
        let in_scope = self.task.scope.as_ref().is_some_and(|scope| scope.allows(&text));
        in_scope || self.task.inputs.values().any(|value| value.to_string().contains(&text))
    }

    fn is_there(&self, path: &Path) -> bool {
        // One that was there before may be named because it was removed, and one further down as its
        // own directory sees it.
        let mut trees = self.before.into_iter().chain(self.after);
        self.root.join(path).exists() || trees.any(|tree| tree.has_ending(path))
    }
}

fn shown(files: impl Iterator<Item = String>) -> Vec<String> {
    let files: BTreeSet<String> = files.collect();
    files.into_iter().take(FILES_MAX).collect()
}

/// Whether a path looks like a test, by the habits of the usual languages.
fn is_test(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let directories = path.parent().into_iter().flat_map(Path::components);
    let in_tests = directories
        .filter_map(|part| part.as_os_str().to_str())
        .any(|part| TEST_DIRECTORIES.contains(&part));
    let (stem, endings) = name.split_once('.').unwrap_or((name, ""));
    let begins = |word: &str| {
        stem.strip_prefix(word).is_some_and(|rest| rest.starts_with(char::is_uppercase))
    };
    let by_stem = matches!(stem, "test" | "tests" | "conftest" | "spec_helper")
        || ["_test", "_tests", "_spec", "Test", "Tests", "Spec"]
            .iter()
            .any(|it| stem.ends_with(it))
        || stem.starts_with("test_")
        || begins("Test");
    let by_ending = endings.split('.').any(|part| matches!(part, "test" | "spec" | "snap"));
    in_tests || by_stem || by_ending
}

/// The relative paths of files that a text names, of which those below this root may be named from
/// the top.
fn named_files(text: &str, root: &Path) -> Vec<PathBuf> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ':' | '@');
    // `src/a.rs:12` names the file.
    fn file(word: &str) -> &str {
        let word = word.trim_matches(|c| matches!(c, '.' | ':' | '-' | '@'));
        word.split(':').next().unwrap_or_default()
    }
    let words = text.split(|c: char| !is_part(c)).map(file);
    let paths = words.filter_map(|word| {
        let below = Path::new(word).strip_prefix(root).ok().and_then(Path::to_str);
        let word = below.unwrap_or(word);
        (is_path(word) || below.is_some_and(is_name)).then_some(word)
    });
    // A name alone may be any word, unless it is marked.
    let marked = text.split('`').skip(1).step_by(2).map(file).filter(|word| is_name(word));
    paths.chain(marked).map(PathBuf::from).collect()
}

/// Whether a word is plainly the path of a file below the root: a directory, and a name with an
/// ending that begins with a letter.
fn is_path(word: &str) -> bool {
    let Some((directory, name)) = word.rsplit_once('/') else { return false };
    let Some((stem, ending)) = name.rsplit_once('.') else { return false };
    let usual = Path::new(word).components().all(|part| matches!(part, Component::Normal(_)));
    // `example.com/a.html` is an address.
    let is_address = directory.split('/').next().is_some_and(|first| first.contains('.'));
    usual
        && !is_address
        && !stem.is_empty()
        && ending.len() <= 5
        && ending.starts_with(|c: char| c.is_ascii_alphabetic())
        && ending.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Whether a word is plainly the name of a file, without a directory.
fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let Some((stem, ending)) = word.rsplit_once('.') else { return false };
    !stem.is_empty() && word.chars().all(is_part) && FILE_ENDINGS.contains(&ending)
}

#[cfg(test)]
mod tests {
    use orchestrator_core::{Scope, TaskId};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn used(command: &str) -> ToolUse {
        ToolUse { name: "Bash".to_owned(), input: json!({ "command": command }) }
    }

    #[test]
    fn only_equal_uses_in_a_row_count_as_a_loop() {
        let mut repeats = Repeats::default();
        for _ in 0..5 {
            repeats.push(used("cargo test"));
            repeats.push(used("cat log"));
        }
        let mask = Mask::keys().with_value("open sesame");
        assert_eq!(repeats.signal(&mask), None);
        for times in 1..=6 {
            assert_eq!(repeats.push(used("make open sesame")), times);
        }
        repeats.push(used("ls"));
        let text = repeats.signal(&mask).unwrap().to_string();
        assert!(text.contains("6 times") && text.contains("make [masked]"), "{text}");
    }

    #[test]
    fn changed_tests_count_unless_the_task_names_them() {
        for test in [
            "tests/a.rs",
            "src/__tests__/a.js",
            "pkg/a_test.go",
            "test_a.py",
            "a.spec.ts",
            "src/parser/tests.rs",
            "app/tests.py",
            "conftest.py",
            "src/ATests.cs",
            "src/TestA.java",
            "src/snapshots/a.snap",
        ] {
            assert!(is_test(Path::new(test)), "{test}");
        }
        for source in
            ["src/a.rs", "src/testing/a.rs", "latest/a.py", "contest.py", "Testament.java"]
        {
            assert!(!is_test(Path::new(source)), "{source}");
        }
        let dir = tempfile::tempdir().unwrap();
        let before = Tree::of(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("tests")).unwrap();
        std::fs::write(dir.path().join("tests/a.rs"), "").unwrap();
        let after = Tree::of(dir.path()).unwrap();
        let mut task = TaskSpec::new(TaskId::parse("t").unwrap());
        let repeats = Repeats::default();
        let signals = |task: &TaskSpec| {
            let (before, after) = (Some(&before), Some(&after));
            let root = dir.path();
            let (said, has_changes, denied) = (Some(""), Some(true), 0);
            let (repeats, mask) = (&repeats, &Mask::keys());
            Looked { task, root, repeats, mask, denied, said, has_changes, before, after }.signals()
        };
        assert_eq!(signals(&task), [Signal::TestsChanged { files: vec!["tests/a.rs".to_owned()] }]);
        task.scope = Some(Scope::parse(["tests/**"]).unwrap());
        assert_eq!(signals(&task), []);
    }

    proptest! {
        #[test]
        fn p16_files_are_looked_for_in_any_text_and_only_below_the_root(text in any::<String>()) {
            let text = format!("{text} a/b.c {text}/c.rs `{text}`/tree/{text}");
            for path in named_files(&text, Path::new("/tree")) {
                prop_assert!(path.is_relative());
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }

    #[test]
    fn files_that_a_report_names_and_that_are_not_there_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/here.rs"), "").unwrap();
        let tree = Tree::of(dir.path()).unwrap();
        let task = TaskSpec::new(TaskId::parse("t").unwrap());
        let said = format!(
            "I wrote `src/here.rs:12`, `here.rs`, {0}/src/here.rs and **src/gone.rs**, see \
             https://example.com/a.html, 1/2.5, and/or, docs/, /etc/hosts.md, `self.len`, `Node.js`, \
             README.md and ../up.rs. Done: src/gone.rs, `NOTES.md` and {0}/top.toml.",
            dir.path().display()
        );
        let looked = Looked {
            task: &task,
            root: dir.path(),
            repeats: &Repeats::default(),
            mask: &Mask::keys(),
            denied: 2,
            said: Some(&said),
            has_changes: Some(false),
            before: Some(&tree),
            after: Some(&tree),
        };
        let files = ["NOTES.md", "src/gone.rs", "top.toml"].map(str::to_owned).to_vec();
        assert_eq!(
            looked.signals(),
            [Signal::NothingChanged, Signal::NotThere { files }, Signal::Denied { times: 2 }]
        );
    }
}
