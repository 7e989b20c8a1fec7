//! Whoever watches a run: programs that read lines, `tracing`, and a command for people.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orchestrator_cli::{JsonLines, Notifier, Spans};
use orchestrator_core::port::{ActivityKind, Observer, Room, Store};
use orchestrator_core::testing::{MemoryTarget, Scripted, VirtualHost};
use orchestrator_core::{
    Cost, DriverConfig, MemoryStore, Orchestrator, Outcome, Plan, Ports, RunEnd, RunId, Seq,
    StageEnd, TaskId, TaskSpec, Usd, VerifyCommand,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::format::FmtSpan;

fn run() -> RunId {
    RunId::parse("watched").unwrap()
}

/// `good` is merged, `asks` is escalated.
async fn drive(store: &Arc<dyn Store>, observer: Arc<dyn Observer>) -> RunEnd {
    let script = Arc::new(Scripted::new(|cx| {
        cx.activity.say(ActivityKind::Said("thinking".to_owned()));
        if cx.task.id.as_str() == "asks" {
            return StageEnd::free(Outcome::Question { text: "which?".to_owned() });
        }
        StageEnd { cost: Cost::Known(Usd(7)), ..StageEnd::passed() }
    }));
    let target = MemoryTarget::default();
    let ports = Ports {
        store: Arc::clone(store),
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target),
        host: Arc::new(VirtualHost::new()),
        observer,
    };
    let tasks = ["good", "asks"].map(|name| {
        let mut spec = TaskSpec::new(TaskId::parse(name).unwrap());
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec
    });
    let plan = Arc::new(Plan { tasks: tasks.to_vec(), ..Plan::default() });
    let config = DriverConfig::new(run(), "stages".into());
    Orchestrator::new(ports, config).drive(Some(plan), CancellationToken::new()).await.unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// What was written, shared with whoever looks.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_event_is_a_line_of_json_with_its_place_and_signs_of_life_stand_between() {
    let (page, store) = (Page::default(), memory());
    let lines = Arc::new(JsonLines::new(page.clone()));
    let observer: Arc<dyn Observer> = Arc::<JsonLines>::clone(&lines);
    assert_eq!(drive(&store, Arc::new(vec![observer])).await, RunEnd::Failed);
    lines.room(&Room::Short { place: "disk".into(), free_bytes: 1, wanted_bytes: 2 });
    lines.room(&Room::Enough);
    lines.close();
    let text = page.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let places: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    let stored = store.events(&run(), Seq(0), 1_000).await.unwrap();
    let expected: Vec<u64> = stored.iter().map(|event| event.seq.0).collect();
    assert_eq!(places, expected);
    assert!(lines.iter().any(|line| line["event"] == "escalated" && line["task"] == "asks"));
    assert!(lines.iter().any(|line| line["activity"] == "said" && line["words"] == "thinking"));
    let rooms: Vec<&Value> = lines.iter().filter(|line| !line["room"].is_null()).collect();
    assert_eq!((&rooms[0]["room"], &rooms[0]["wanted_bytes"]), (&"short".into(), &2.into()));
    assert_eq!(rooms[1]["room"], "enough");
    let last = lines.iter().rfind(|line| !line["progress"].is_null()).unwrap();
    assert_eq!((&last["progress"], &last["counts"]["done"]), (&"failed".into(), &1.into()));
}

#[tokio::test]
async fn each_stage_is_a_span_with_how_it_ended_and_what_it_cost() {
    let page = Page::default();
    let out = page.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || out.clone())
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .finish();
    {
        let _scope = tracing::subscriber::set_default(subscriber);
        drive(&memory(), Arc::new(Spans::new(run()))).await;
    }
    let text = page.text();
    let closed: Vec<&str> = text.lines().filter(|line| line.contains("close")).collect();
    // Run, verify, review and integrate of the one, and the run of the other.
    assert_eq!(closed.len(), 5, "{text}");
    let has =
        |parts: &[&str]| closed.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["task.id=good", "stage.name=\"run\"", "outcome=\"passed\"", "cost_micro_usd=7"]));
    assert!(
        has(&["run.id=watched", "task.id=asks", "outcome=\"escalated\"", "\"ERROR\""]),
        "{text}"
    );
    assert!(text.contains("said words=\"thinking\""), "{text}");
}

/// Longer than it takes to tell anything, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

async fn notify(dir: &Path, script: &str, store: &Arc<dyn Store>) -> Notifier {
    let command = ["sh", "-c", script, "sh", dir.to_str().unwrap()].map(str::to_owned);
    Notifier::start(&command, dir.join("told"), store.as_ref(), &run()).await.unwrap()
}

const TELL: &str = r#"echo "$ORCHESTRATOR_EVENT_ID $ORCHESTRATOR_EVENT $ORCHESTRATOR_TASK" >> "$1/heard"
                      cat >> "$1/json"; echo >> "$1/json""#;

#[tokio::test]
async fn a_person_is_told_what_waits_for_one_at_least_once_with_the_same_id() {
    let (dir, store) = (tempfile::tempdir().unwrap(), memory());
    let heard = || std::fs::read_to_string(dir.path().join("heard")).unwrap_or_default();
    // The first try fails, and nothing is lost by that.
    let script = format!(r#"test -e "$1/tried" || {{ : > "$1/tried"; exit 1; }}; {TELL}"#);
    let notifier = Arc::new(notify(dir.path(), &script, &store).await);
    drive(&store, Arc::<Notifier>::clone(&notifier) as Arc<dyn Observer>).await;
    notifier.close(PATIENCE).await;
    let first = heard();
    let words: Vec<Vec<&str>> =
        first.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words.len(), 2, "{first}");
    assert_eq!(words[0][1..], ["escalated", "asks"]);
    assert_eq!(words[1][1..], ["failed"]);
    let json = std::fs::read_to_string(dir.path().join("json")).unwrap();
    let json: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&json["event"], &json["task"], &json["run"]),
        (&"escalated".into(), &"asks".into(), &"watched".into())
    );

    // The next process tells nothing again, unless it is not known what was told.
    notify(dir.path(), TELL, &store).await.close(PATIENCE).await;
    assert_eq!(heard(), first);
    std::fs::remove_file(dir.path().join("told")).unwrap();
    notify(dir.path(), TELL, &store).await.close(PATIENCE).await;
    assert_eq!(heard().lines().collect::<BTreeSet<_>>().len(), 2);
    assert_eq!(heard().lines().count(), 4);
}

#[tokio::test]
async fn what_could_not_be_told_is_told_by_the_next_process_and_a_stall_is_told_too() {
    let (dir, store) = (tempfile::tempdir().unwrap(), memory());
    let heard = || std::fs::read_to_string(dir.path().join("heard")).unwrap_or_default();
    let notifier = Arc::new(notify(dir.path(), "exit 1", &store).await);
    drive(&store, Arc::<Notifier>::clone(&notifier) as Arc<dyn Observer>).await;
    notifier.close(Duration::from_millis(100)).await;
    let next = notify(dir.path(), TELL, &store).await;
    next.ended(&RunEnd::Stalled(Vec::new()), Seq(99));
    next.close(PATIENCE).await;
    let events: Vec<String> =
        heard().lines().map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect();
    assert_eq!(events, ["escalated", "failed", "stalled"]);
    assert!(heard().contains("watched/99/stalled"));
}
