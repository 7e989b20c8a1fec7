//! A run with every kind of end, as a person and a program get to see it.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use orchestrator_cli::{
    Advice, History, Remedy, Report, TaskState, Terminal, escalated_md, shell_word,
};
use orchestrator_core::port::{Observer, StageContext, Store};
use orchestrator_core::testing::{MemoryTarget, Scripted, VirtualHost};
use orchestrator_core::{
    AGENTS, Command, Cost, DriverConfig, MemoryStore, Orchestrator, Outcome, Plan, PoolName, Ports,
    RunEnd, RunId, StageEnd, StageKind, TaskId, TaskSpec, Usd, VerifyCommand,
};
use tokio_util::sync::CancellationToken;

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn plan() -> Plan {
    let edges: [(&str, &[&str]); 7] = [
        ("lexer", &[]),
        ("parser", &["lexer"]),
        ("print#er", &["parser", "dates"]),
        ("dates", &[]),
        ("clock", &["dates"]),
        ("flaky", &[]),
        ("given-up", &[]),
    ];
    let tasks = edges.iter().map(|(name, depends_on)| {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec.max_retries = 1;
        spec
    });
    Plan { tasks: tasks.collect(), ..Plan::default() }
}

fn script(cx: &StageContext) -> StageEnd {
    let cost = Cost::Known(Usd(12_500));
    let mut end = match (cx.task.id.as_str(), cx.stage.kind, cx.attempt) {
        ("parser", StageKind::Verify, 1) => StageEnd::rejected("FAIL: parser: 2".to_owned()),
        ("dates", StageKind::Run, _) => StageEnd::free(Outcome::Question {
            text: "Which calendar?\n\u{1b}[2J```\n# not a heading\n".to_owned(),
        }),
        ("flaky", StageKind::Review, attempt) => StageEnd::rejected(format!(
            "finding {}",
            ["none", "one", "two and three"][attempt as usize]
        )),
        _ => StageEnd::passed(),
    };
    if matches!(cx.stage.kind, StageKind::Run | StageKind::Review) {
        end.cost = cost;
    }
    end
}

/// What was written, shared with whoever looks.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The run, driven to its end, and what the terminal showed of it.
async fn driven(plan: Plan, script: fn(&StageContext) -> StageEnd) -> (History, String) {
    let page = Page::default();
    let terminal = Arc::new(Terminal::plain(page.clone()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let script = Arc::new(Scripted::new(script));
    let target = MemoryTarget::default();
    let ports = Ports {
        store: Arc::clone(&store),
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target),
        host: Arc::new(VirtualHost::new()),
        observer: Arc::<Terminal>::clone(&terminal) as Arc<dyn Observer>,
    };
    let run = RunId::parse("port").unwrap();
    let mut config = DriverConfig::new(run.clone(), "stages".into());
    config.limits = [(PoolName::parse(AGENTS).unwrap(), 1)].into();
    config.budget = Some(Usd::dollars(100));
    let orchestrator = Orchestrator::new(ports, config);
    let has_given_up = plan.tasks.iter().any(|task| task.id.as_str() == "given-up");
    if has_given_up {
        // The run must exist before a person can give one of its tasks up.
        let stop = CancellationToken::new();
        stop.cancel();
        let end = orchestrator.drive(Some(Arc::new(plan.clone())), stop).await.unwrap();
        assert_eq!(end, RunEnd::Stopped);
        let (actor, reason) = ("ann".to_owned(), "not needed".to_owned());
        let cancel = Command::Cancel { task: id("given-up"), actor, reason };
        orchestrator.ask(&cancel).await.unwrap();
    }
    orchestrator.drive(Some(Arc::new(plan)), CancellationToken::new()).await.unwrap();
    terminal.close();
    let shown = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    (History::read(store.as_ref(), &run).await.unwrap().unwrap(), shown)
}

fn advice() -> Advice<'static> {
    Advice {
        repository: Path::new("/home/ann/the project"),
        branch: "orchestrator/port",
        answer: "in `DECISIONS.md`",
        command: &|task, remedy| {
            let flag = match remedy {
                Remedy::Retry => "--retry",
                Remedy::RetryDependents => "--retry-dependents",
                Remedy::Approve => "--approve",
                Remedy::ByHand => "--by-hand",
                Remedy::Skip => "--skip",
                Remedy::Cancel => "--cancel",
                Remedy::MoreRetries => return None,
            };
            Some(format!("the-program --resume {flag} {}", shell_word(task.as_str())))
        },
    }
}

#[tokio::test]
async fn the_report_tells_what_became_of_each_task() {
    let (history, _) = driven(plan(), script).await;
    let report = Report::of(&history).unwrap();
    let states: Vec<(&str, TaskState)> =
        report.tasks.iter().map(|task| (task.id.as_str(), task.state)).collect();
    let expected = [
        ("lexer", TaskState::Done),
        ("parser", TaskState::Done),
        ("print#er", TaskState::Blocked),
        ("dates", TaskState::Escalated),
        ("clock", TaskState::Blocked),
        ("flaky", TaskState::Escalated),
        ("given-up", TaskState::Cancelled),
    ];
    assert_eq!(states, expected);
    let counts = (report.done, report.escalated, report.blocked, report.cancelled, report.open);
    assert_eq!(counts, (2, 2, 2, 1, 0));
    // lexer: run and review; parser: run, run and review; dates: run; flaky: run and review, twice.
    assert_eq!((report.agent_runs, report.attempts), (10, 6));
    assert!((report.cost_usd - 0.075).abs() < 1e-9, "{}", report.cost_usd);
    insta::assert_snapshot!("report_json", report.to_json());
    insta::assert_snapshot!("summary", report.summary(false));
}

#[tokio::test]
async fn the_report_is_read_back_as_it_was_written() {
    let (history, _) = driven(plan(), script).await;
    let report = Report::of(&history).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[tokio::test]
async fn what_is_escalated_is_told_with_all_that_is_needed_to_decide() {
    let (history, _) = driven(plan(), script).await;
    insta::assert_snapshot!("escalated", escalated_md(&history, &advice()).unwrap());
}

#[tokio::test]
async fn that_nothing_is_escalated_is_said() {
    let mut plan = plan();
    plan.tasks.truncate(2);
    let (history, _) = driven(plan, script).await;
    insta::assert_snapshot!("nothing_escalated", escalated_md(&history, &advice()).unwrap());
}

#[tokio::test]
async fn without_a_terminal_each_event_that_matters_is_a_line() {
    let (_, shown) = driven(plan(), script).await;
    insta::assert_snapshot!("plain_lines", shown);
}
