//! What the run of the example comes to, whatever happens on the way.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Signal;

use crate::program::{Bench, kept};

const DONE: [&str; 13] = [
    "port-box",
    "port-chars",
    "port-columns",
    "port-count",
    "port-csv",
    "port-indent",
    "port-num",
    "port-stats",
    "port-table",
    "port-tk",
    "port-trim",
    "port-uniq",
    "port-wrap",
];

/// The one outcome: 13 tasks merged once each, one escalated, two blocked by it.
pub(crate) fn assert_outcome(bench: &Bench) {
    let mut expected: BTreeMap<String, String> =
        DONE.iter().map(|id| ((*id).to_owned(), "done".to_owned())).collect();
    for (id, state) in
        [("port-agenda", "blocked"), ("port-calendar", "blocked"), ("port-dates", "escalated")]
    {
        expected.insert(id.to_owned(), state.to_owned());
    }
    assert_eq!(bench.states(), expected);
    assert_eq!(merged(bench, "main"), DONE);
    assert_eq!(bench.git("run/repo", &["status", "--porcelain"]), "");
    for id in DONE {
        // The program does what the plan asked for: each test passes on what was merged.
        let module = id.strip_prefix("port-").unwrap();
        let test = std::process::Command::new("sh")
            .arg(format!("tests/{module}.sh"))
            .current_dir(bench.path("run/repo"))
            .output()
            .unwrap();
        assert!(test.status.success(), "{}", String::from_utf8_lossy(&test.stdout));
    }
    let page = fs::read_to_string(bench.dir().join("ESCALATED.md")).unwrap();
    for part in
        ["port-dates", "the day or the month", "`port-calendar`", "`port-agenda`", "--retry"]
    {
        assert!(page.contains(part), "{part} is not in:\n{page}");
    }
    assert_eq!(bench.processes(), Vec::<String>::new());
}

fn report_run(bench: &Bench) -> String {
    bench.report()["run"].as_str().unwrap().to_owned()
}

/// What the task left that asked is listed, restored, and goes by no rule but that of its age.
fn assert_kept(bench: &Bench) {
    let (repo, into) = (bench.path("run/repo"), bench.path("restored"));
    let with = |words: &[&str], more: &[&std::path::Path]| {
        let words = words.iter().map(std::ffi::OsStr::new);
        let all: Vec<_> = words.chain(more.iter().map(|path| path.as_os_str())).collect();
        let output = kept(&all);
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), text)
    };
    let (code, [listed, _]) = with(&["list", "--repo"], &[&repo]);
    assert_eq!(code, Some(0));
    let former: Vec<&str> = listed.lines().filter(|line| line.contains("port-csv")).collect();
    let [line] = former.as_slice() else { panic!("{listed}") };
    assert!(line.contains("change that was replaced") && line.contains("task merged"), "{line}");
    let name = line.split('\t').next().unwrap();
    let (code, [_, said]) = with(&["restore", name], &[&into, "--repo".as_ref(), &repo]);
    assert_eq!(code, Some(0), "{said}");
    assert!(into.join("README.md").is_file());
    let (code, [_, said]) = with(&["prune", "--repo"], &[&repo]);
    assert!(code == Some(1) && said.contains("no rule"), "{said}");
    let (_, [would_go, _]) = with(&["prune", "--merged", "--dry-run", "--repo"], &[&repo]);
    assert!(would_go.contains(name) && would_go.lines().all(|line| line.contains("task merged")));
    with(&["prune", "--merged", "--repo"], &[&repo]);
    let (_, [left, _]) = with(&["list", "--repo"], &[&repo]);
    assert!(!left.contains("task merged"), "{left}");
    // What git cannot keep is in a directory that a ref of the run names.
    let aside = bench.path("set aside");
    fs::create_dir_all(aside.join("some-task/1/tree/nested")).unwrap();
    fs::write(bench.path("aside"), aside.to_str().unwrap()).unwrap();
    let blob = bench.git("run/repo", &["hash-object", "-w", bench.path("aside").to_str().unwrap()]);
    let name = format!("refs/orchestrator/{}/aside", report_run(bench));
    bench.git("run/repo", &["update-ref", &name, blob.trim()]);
    let (_, [listed, _]) = with(&["list", "--repo"], &[&repo]);
    let one = aside.join("some-task/1");
    assert!(listed.lines().any(|line| line.starts_with(one.to_str().unwrap())), "{listed}");
}

/// The tasks in the trailers of a branch's commits, sorted.
pub(crate) fn merged(bench: &Bench, branch: &str) -> Vec<String> {
    let format = "--format=%(trailers:key=Orchestrator-Task,valueonly)";
    let log = bench.git("run/repo", &["log", format, branch]);
    let mut ids: Vec<String> =
        log.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    ids.sort();
    ids
}

#[test]
fn p17_a_plan_ends_in_one_commit_for_each_task_a_question_and_what_it_blocks() {
    let bench = Bench::new();
    let ended = bench.run(&[]);
    ended.assert_code(1);
    assert!(ended.stderr.contains("stand-in"), "{}", ended.stderr);
    assert_outcome(&bench);

    assert_kept(&bench);
    let spare = bench.dir().join("worktrees").join(report_run(&bench)).join(".pool");
    assert_eq!(fs::read_dir(spare).map_or(0, Iterator::count), 0, "no task is left to get them");

    let report = bench.report();
    let number = |name: &str| report[name].as_u64().unwrap();
    let counts = ["done", "escalated", "blocked", "cancelled", "open"].map(number);
    assert_eq!((report["state"].as_str(), counts), (Some("failed"), [13, 1, 2, 0, 0]));
    // 13 tasks and two second attempts, each with a run; a review of each but the one that failed
    // its verification; and the run that ended in a question.
    assert_eq!((number("attempts"), number("agent_runs")), (16, 16 + 14));
    assert!(report["cost_usd"].as_f64().unwrap() > 0.1);
    for task in report["tasks"].as_array().unwrap() {
        let commit = task["merge_commit"].as_str();
        assert_eq!(commit.is_some(), task["state"] == "done", "{task}");
        if let Some(commit) = commit {
            bench.git("run/repo", &["merge-base", "--is-ancestor", commit, "main"]);
        }
    }
}

#[test]
fn the_second_attempt_passes_because_it_is_told_why_the_first_one_did_not() {
    let bench = Bench::new();
    bench.run(&[]).assert_code(1);
    // The verify command's output is what the next prompt has as last_error, and the reviewer's
    // findings are.
    for (task, words) in [("port-csv", "FAIL: doubled quotes"), ("port-columns", "Rule 2 of CONV")]
    {
        let stages = bench.dir().join("stages").join(task);
        let prompts: Vec<String> = sorted(&stages)
            .iter()
            .filter(|stage| stage.ends_with("-run"))
            .map(|stage| fs::read_to_string(stages.join(stage).join("prompt.md")).unwrap())
            .collect();
        assert_eq!(prompts.len(), 2, "{task}");
        assert!(!prompts[0].contains("<last_error>"), "{}", prompts[0]);
        let (_, error) = prompts[1].split_once("<last_error>").unwrap();
        assert!(error.contains(words), "{error}");
    }
}

fn sorted(dir: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_answer_lets_what_was_blocked_go_on() {
    let bench = Bench::new();
    bench.run(&[]).assert_code(1);
    let branch = format!("orchestrator/{}", bench.report()["run"].as_str().unwrap());
    let answer = bench.path("answer");
    bench.git("run/repo", &["worktree", "add", answer.to_str().unwrap(), &branch]);
    let file = answer.join("DECISIONS.md");
    let decisions = fs::read_to_string(&file).unwrap() + "- 4: in a date, the day comes first.\n";
    fs::write(&file, decisions).unwrap();
    bench.git("answer", &["commit", "--quiet", "--all", "--message", "The day comes first"]);
    bench.git("run/repo", &["worktree", "remove", answer.to_str().unwrap()]);

    bench.run(&["--resume", "--retry", "port-dates"]).assert_code(0);
    assert_eq!(merged(&bench, "main").len(), 16);
    assert!(bench.states().values().all(|state| state == "done"));
    let page = fs::read_to_string(bench.dir().join("ESCALATED.md")).unwrap();
    assert!(page.contains("Nothing is escalated"), "{page}");
}

#[test]
fn a_person_resolves_what_is_escalated_by_the_commands_that_the_page_names() {
    let bench = Bench::new();
    bench.run(&[]).assert_code(1);
    let page = fs::read_to_string(bench.dir().join("ESCALATED.md")).unwrap();
    for flag in ["retry", "retry-dependents", "more-retries", "by-hand", "skip", "cancel"] {
        assert!(page.contains(&format!("--resume --{flag}=port-dates")), "{flag}:\n{page}");
    }
    let state = |task: &str| bench.states()[task].clone();

    bench.run(&["--resume", "--cancel=port-dates"]).assert_code(1);
    assert_eq!((state("port-dates"), state("port-agenda")), ("cancelled".into(), "blocked".into()));
    let attempts = || bench.report()["attempts"].as_u64().unwrap();
    let before = attempts();
    for again in ["--retry-dependents=port-dates", "--more-retries=port-dates=2"] {
        bench.run(&["--resume", again]).assert_code(1);
        assert_eq!(state("port-dates"), "escalated", "{again}");
    }
    assert_eq!(attempts(), before + 2);

    let rest = ["--resume", "--by-hand=port-dates", "--skip=port-calendar", "--cancel=port-agenda"];
    bench.run(&rest).assert_code(0);
    assert_eq!(state("port-agenda"), "cancelled");
    let why = |task: &str| {
        let report = bench.report();
        let mut tasks = report["tasks"].as_array().unwrap().iter();
        tasks.find(|row| row["id"] == task).unwrap()["why"].as_str().unwrap().to_owned()
    };
    let how = (why("port-dates"), why("port-calendar"));
    assert_eq!(how, ("done by hand".into(), "skipped by a person".into()));
    let unknown = bench.run(&["--resume", "--skip=nothing"]);
    assert!(unknown.assert_code(2).stderr.contains("nothing"), "{}", unknown.stderr);
}

#[test]
fn in_a_sandbox_all_goes_as_without_and_whoever_watches_is_told() {
    let bench = Bench::new();
    let (told, lines) = (bench.path("told"), bench.path("lines"));
    let notify = format!("echo $ORCHESTRATOR_EVENT $ORCHESTRATOR_TASK >> '{}'", told.display());
    let arguments =
        ["--sandbox", "prefer", "--notify", &notify, "--events", lines.to_str().unwrap()];
    let mut running = bench.start(&arguments);
    // The report is there while the run goes on, for whoever asks; it stands still meanwhile, so that
    // nobody who is slow comes too late.
    assert!(running.until(|shown| shown.contains("port-trim")), "it ended early");
    running.signal(Signal::STOP);
    let asked = bench.run(&["--report", "json"]);
    let asked: serde_json::Value = serde_json::from_str(&asked.assert_code(0).stdout).unwrap();
    assert_eq!((&asked["state"], asked["tasks"].as_array().unwrap().len()), (&"active".into(), 16));
    running.signal(Signal::CONT);
    running.wait().assert_code(1);
    assert_outcome(&bench);
    assert_eq!(fs::read_to_string(told).unwrap(), "escalated port-dates\nfailed\n");
    let lines = fs::read_to_string(lines).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["activity"] == "started"));
    assert!(lines.iter().any(|line| line["progress"] == "failed"), "{:?}", lines.last());
    let summary = bench.run(&["--report"]);
    let summary = &summary.assert_code(0).stdout;
    for part in ["13/16 done", "busy", "lower bound", "slowest chain", "tasks waited"] {
        assert!(summary.contains(part), "{part} is not in:\n{summary}");
    }
}

#[test]
fn a_run_that_has_ended_is_looked_at_again_without_changing() {
    let bench = Bench::new();
    bench.run(&[]).assert_code(1);
    let head = bench.git("run/repo", &["rev-parse", "main"]);
    bench.run(&["--resume"]).assert_code(1);
    assert_outcome(&bench);
    assert_eq!(bench.git("run/repo", &["rev-parse", "main"]), head);
}

#[test]
fn p10_a_budget_that_is_used_up_parks_the_run_and_says_how_to_go_on() {
    let bench = Bench::new();
    let ended = bench.run(&["--budget-usd", "0.05"]);
    ended.assert_code(1);
    for part in ["budget", "--resume --budget-usd"] {
        assert!(ended.stdout.contains(part), "{part} is not in:\n{}", ended.stdout);
    }
    let report = bench.report();
    assert_eq!((report["state"].as_str(), report["escalated"].as_u64()), (Some("parked"), Some(0)));
    // The stand-in minds no cap: the last run that was begun may cost more than what was left.
    assert!(report["cost_usd"].as_f64().unwrap() < 0.05 + 0.0186, "{}", report["cost_usd"]);
    bench.run(&["--resume", "--budget-usd", "100"]).assert_code(1);
    assert_outcome(&bench);
}

#[test]
fn a_pilot_parks_with_a_projection_and_goes_on_by_itself_within_its_bounds() {
    let bench = Bench::new();
    let account = bench.path("account.json");
    let account = ["--capacity", "account", "--account", account.to_str().unwrap()];
    let ended = bench.run(&[&["--pilot", "2"], &account[..]].concat());
    ended.assert_code(1);
    let said = &ended.stdout;
    assert!(said.contains("Parked: ") && said.contains("By what the pilot took"), "{said}");
    assert!(said.contains("--capacity account") && said.contains("--pilot 2"), "{said}");
    let begun = bench.states().values().filter(|state| *state != "open").count();
    assert!((1..=2).contains(&begun), "{:?}", bench.states());
    bench.run(&[&["--resume"], &account[..]].concat()).assert_code(1);
    assert_outcome(&bench);
    let bench = Bench::new();
    let bounds = ["--pilot", "2", "--go-on-within", "600", "--go-on-under", "1000"];
    bench.run(&[&bounds[..], &["--capacity", "adaptive"]].concat()).assert_code(1);
    assert_outcome(&bench);
}

#[test]
fn a_run_ends_the_same_when_nobody_reads_what_it_says() {
    let bench = Bench::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    bench.run_saying(full).assert_code(1);
    assert_outcome(&bench);
}
