//! A run on a user's own repository: the checkout, dirty or not, is as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use orchestrator_core::BlobHash;

use crate::program::{Bench, git};

/// A repository of a user with everything that a checkout can have: staged and unstaged changes,
/// untracked and ignored files, a stash, a hook.
pub(crate) fn user_repository(bench: &Bench) {
    let at = bench.path("user");
    let content = Path::new(env!("CARGO_MANIFEST_DIR")).join("full_pipeline/repo");
    copy(&content, &at);
    let call = |arguments: &[&str]| git(&at, arguments);
    call(&["init", "--quiet", "--initial-branch", "trunk"]);
    fs::write(at.join(".gitignore"), "*.log\n").unwrap();
    call(&["add", "--all"]);
    call(&["commit", "--quiet", "--message", "begin"]);
    fs::write(at.join("README.md"), "put away\n").unwrap();
    call(&["stash", "--quiet"]);
    fs::write(at.join("awk/num.awk"), "# staged\n").unwrap();
    call(&["add", "awk/num.awk"]);
    fs::write(at.join("awk/num.awk"), "# and changed again\n").unwrap();
    fs::remove_file(at.join("awk/uniq.awk")).unwrap();
    fs::write(at.join("untracked.txt"), "mine\n").unwrap();
    fs::write(at.join("build.log"), "ignored\n").unwrap();
    let hook = at.join(".git/hooks/post-commit");
    fs::write(&hook, "#!/bin/sh\ntouch \"$(git rev-parse --show-toplevel)/hook-ran\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&hook, mode).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Every file of the checkout with its content and mode, the index, HEAD, the stash, all refs and
/// worktrees.
pub(crate) struct Photo(BTreeMap<String, String>);

impl Photo {
    pub(crate) fn of(bench: &Bench) -> Self {
        let at = bench.path("user");
        let mut all = BTreeMap::new();
        walk(&at, &at, &mut all);
        for name in [".git/index", ".git/HEAD"] {
            all.insert(name.to_owned(), hash(&at.join(name)));
        }
        for line in git(&at, &["for-each-ref"]).lines() {
            let (object, name) = line.split_once('\t').unwrap();
            all.insert(name.to_owned(), object.to_owned());
        }
        all.insert("worktrees".to_owned(), git(&at, &["worktree", "list"]));
        Self(all)
    }

    /// What differs in another one.
    pub(crate) fn changes(&self, after: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(after.0.keys()).collect();
        let changed = names.into_iter().filter(|name| self.0.get(*name) != after.0.get(*name));
        changed.map(|name| format!("{name}: {:?}", after.0.get(name))).collect()
    }
}

fn walk(root: &Path, dir: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        // Of git's own files the index, the refs and the configuration belong to the user.
        let is_git = name.starts_with(".git/") && name != ".git/config" && !name.contains("hooks");
        if path.is_dir() {
            walk(root, &path, files);
        } else if !is_git {
            let mode = path.metadata().unwrap().mode();
            files.insert(name, format!("{mode:o} {}", hash(&path)));
        }
    }
}

fn hash(path: &Path) -> String {
    BlobHash::of(&fs::read(path).unwrap()).to_string()
}

#[test]
fn a_dirty_checkout_and_its_index_are_byte_identical_afterwards() {
    let bench = Bench::new();
    user_repository(&bench);
    let before = Photo::of(&bench);
    let plan = r#"[
        { "id": "port-chars", "verify": "sh tests/chars.sh", "scope": ["sh/chars.sh"] },
        { "id": "port-indent", "verify": "sh tests/indent.sh", "scope": ["sh/indent.sh"], "depends_on": ["port-chars"] },
    ]"#;
    fs::write(bench.path("plan.json"), plan).unwrap();
    let ended = bench.run(&["--repo", "user", "--plan", "plan.json", "--protect", "tests"]);
    ended.assert_code(0);
    let mut changes = before.changes(&Photo::of(&bench));
    // The run has a branch and refs of its own.
    changes.retain(|change| !change.contains("orchestrator/"));
    assert_eq!(changes, [] as [String; 0]);

    // The command that is told takes the work over.
    let branch = format!("orchestrator/{}", bench.report()["run"].as_str().unwrap());
    assert!(ended.stdout.contains(&format!("merge '{branch}'")), "{}", ended.stdout);
    let format = "--format=%(trailers:key=Orchestrator-Task,valueonly)";
    let log = git(&bench.path("user"), &["log", "--reverse", format, &branch]);
    let merged: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(merged, ["port-chars", "port-indent"]);
    assert_eq!(bench.processes(), Vec::<String>::new());
}

#[test]
fn a_verify_command_that_passes_already_is_a_warning() {
    let bench = Bench::new();
    user_repository(&bench);
    let plan = r#"[{ "id": "port-chars", "verify": "true", "scope": ["sh/chars.sh"] }]"#;
    fs::write(bench.path("plan.json"), plan).unwrap();
    let ended = bench.run(&["--repo", "user", "--plan", "plan.json"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("warning: verify command `true`"), "{}", ended.stderr);
}

#[test]
fn failures_of_the_target_do_not_count_with_baseline_and_a_task_brings_a_test_with_prove() {
    // One test of the repository fails whatever anybody does.
    let verify =
        "sh tests/chars.sh || echo 'test chars ... FAILED'; echo 'test old ... FAILED'; exit 1";
    let plan = format!(
        r#"[{{ "id": "port-chars", "verify": "{verify}", "scope": ["sh/chars.sh"], "max_retries": 0 }}]"#
    );
    let ends: [(&[&str], _, _); 3] = [
        (&["--baseline"], 0, None),
        (&[], 1, Some("test old ... FAILED")),
        (&["--baseline", "--prove", "tests"], 1, Some("changes none (tests)")),
    ];
    for (flags, code, said) in ends {
        let bench = Bench::new();
        user_repository(&bench);
        fs::write(bench.path("plan.json"), &plan).unwrap();
        let ended = bench.run(&[&["--repo", "user", "--plan", "plan.json"], flags].concat());
        ended.assert_code(code);
        if let Some(said) = said {
            let page = fs::read_to_string(bench.dir().join("ESCALATED.md")).unwrap();
            assert!(page.contains(said), "{flags:?}: {page}");
        }
    }
}
