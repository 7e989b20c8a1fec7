//! Input that cannot be used: a clear message that names the place, exit code 2, nothing changed.

use std::fs;

use crate::program::Bench;
use crate::repository::{Photo, user_repository};

fn plan_of(tasks: &str) -> String {
    format!("{{\"defaults\": {{\"verify\": \"sh tests/chars.sh\"}},\n\"tasks\": [\n{tasks}\n]}}")
}

/// Starts a run on a repository of a user, which must be refused with these words.
fn refused(plan: &str, arguments: &[&str], words: &[&str]) {
    let bench = Bench::new();
    user_repository(&bench);
    let before = Photo::of(&bench);
    fs::write(bench.path("plan.json"), plan).unwrap();
    let mut all = vec!["--repo", "user", "--plan", "plan.json"];
    all.extend(arguments);
    let ended = bench.run(&all);
    ended.assert_code(2);
    for word in words {
        assert!(ended.stderr.contains(word), "`{word}` is not in:\n{}", ended.stderr);
    }
    assert_eq!(before.changes(&Photo::of(&bench)), [] as [String; 0]);
    assert!(!bench.dir().join("stages").exists(), "something was started");
    assert!(!bench.dir().join("report.json").exists());
}

#[test]
fn a_plan_with_faults_is_refused_with_all_their_places() {
    refused(
        &plan_of(
            "{\"id\": \"a\", \"depends_on\": [\"b\", \"nowhere\"]},\n\
             {\"id\": \"b\", \"depends_on\": [\"a\"]},\n\
             {\"id\": \"b\"},\n\
             {\"id\": \"c\", \"verfiy\": \"true\"}",
        ),
        &[],
        &[
            "plan.json",
            "line 3",
            "`nowhere`",
            "a → b → a",
            "line 5",
            "twice",
            "line 6",
            "`verfiy`",
            "`verify`",
        ],
    );
}

#[test]
fn a_plan_that_is_no_plan_or_not_there_is_refused() {
    refused("[{\"id\": \"a\"", &[], &["plan.json", "line 1"]);
    refused("[]", &["--plan", "missing.json"], &["cannot be used multiple times"]);
}

#[test]
fn a_missing_template_is_refused() {
    let task = "{\"id\": \"port-chars\", \"prompt_template\": \"prot\", \"scope\": [\"sh\"]}";
    refused(&plan_of(task), &[], &["`prot`", "`port`"]);
    refused(&plan_of("{\"id\": \"a\"}"), &["--templates", "nowhere"], &["nowhere"]);
}

#[test]
fn an_input_that_the_template_needs_and_the_task_lacks_is_refused() {
    let task = "{\"id\": \"port-chars\", \"prompt_template\": \"port\", \"scope\": [\"sh\"]}";
    refused(&plan_of(task), &[], &["port-chars", "inputs.source"]);
}

#[test]
fn a_missing_document_is_refused() {
    let task = "{\"id\": \"port-chars\", \"scope\": [\"sh\"]}";
    refused(&plan_of(task), &["--document", "docs/RULES.md"], &["docs/RULES.md"]);
}

#[test]
fn a_verify_command_that_cannot_run_is_refused_before_anything_is_spent() {
    let task =
        "{\"id\": \"port-chars\", \"scope\": [\"sh\"], \"verify\": \"no-such-checker --all\"}";
    refused(&plan_of(task), &[], &["no-such-checker", "port-chars"]);
}

#[test]
fn a_program_of_the_agent_that_is_not_there_is_refused() {
    let task = "{\"id\": \"port-chars\", \"scope\": [\"sh\"]}";
    let arguments = ["--agent", "claude", "--model", "m", "--claude-bin", "no-such-claude"];
    refused(&plan_of(task), &arguments, &["no-such-claude"]);
}

#[test]
fn more_agents_than_there_may_be_open_files_for_are_refused_and_nothing_is_made() {
    let bench = Bench::new();
    let ended = bench.run_with_files(400, &["--max-concurrent", "500"]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("open files") && said.contains("ulimit -Hn"), "{said}");
    assert!(!bench.dir().exists());
}

#[test]
fn a_directory_that_is_no_repository_is_refused() {
    let bench = Bench::new();
    fs::create_dir(bench.path("plain")).unwrap();
    fs::write(bench.path("plan.json"), plan_of("{\"id\": \"a\"}")).unwrap();
    let ended = bench.run(&["--repo", "plain", "--plan", "plan.json"]);
    ended.assert_code(2);
    assert!(ended.stderr.contains("plain"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(bench.path("plain")).unwrap().count(), 0);
}

#[test]
fn a_directory_with_a_run_needs_resume_and_one_with_other_things_is_left_alone() {
    let bench = Bench::new();
    bench.run(&["--budget-usd", "0.5"]).assert_code(1);
    let report = fs::read(bench.dir().join("report.json")).unwrap();
    let again = bench.run(&[]);
    again.assert_code(2);
    assert!(again.stderr.contains("--resume"), "{}", again.stderr);
    assert_eq!(fs::read(bench.dir().join("report.json")).unwrap(), report);

    let bench = Bench::new();
    fs::create_dir(bench.dir()).unwrap();
    fs::create_dir(bench.dir().join("repo")).unwrap();
    fs::write(bench.dir().join("repo/letter.txt"), "mine").unwrap();
    let ended = bench.run(&[]);
    ended.assert_code(2);
    assert!(ended.stderr.contains("`repo`"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(bench.dir().join("repo")).unwrap().count(), 1);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let bench = Bench::new();
    for (arguments, words) in [
        (&["--agent", "claude"] as &[&str], "--model"),
        (&["--repo", "."], "--plan"),
        (&["--max-concurrent", "0"], "--max-concurrent"),
        (&["--budget-usd", "-1"], "--budget-usd"),
        (&["--typo"], "--typo"),
    ] {
        let ended = bench.run(arguments);
        ended.assert_code(2);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    assert!(!bench.dir().exists());
}

#[test]
fn the_built_in_templates_are_written_out_to_be_edited() {
    let bench = Bench::new();
    bench.run(&["--write-templates", "templates"]).assert_code(0);
    let review = bench.path("templates/review.hbs");
    assert!(fs::read_to_string(&review).unwrap().contains("{{change.diff}}"));
    // What a person made of one stays as it is.
    fs::write(&review, "mine").unwrap();
    bench.run(&["--write-templates", "templates"]).assert_code(0);
    assert_eq!(fs::read_to_string(&review).unwrap(), "mine");
}

#[test]
fn a_pace_that_lacks_what_it_goes_by_is_refused() {
    let words: [(&[&str], &str); 3] = [
        (&["--capacity", "account"], "--account"),
        (&["--go-on-under", "3"], "--pilot"),
        (&["--pilot", "0"], "--pilot"),
    ];
    for (arguments, word) in words {
        refused(&plan_of("{\"id\": \"a\"}"), arguments, &[word]);
    }
}
