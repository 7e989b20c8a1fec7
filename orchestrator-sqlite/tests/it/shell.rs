//! A person who looks at a run while it goes on, with the `sqlite3` shell and docs/SCHEMA.md.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::Store as _;
use orchestrator_core::testing::conformance::samples::task_id;
use orchestrator_core::testing::{MemoryTarget, Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    DriverConfig, EventKind, Interruption, Orchestrator, Outcome, Plan, Ports, StageEnd, StageKind,
    TaskSpec, VerifyCommand,
};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use tokio_util::sync::CancellationToken;

use crate::mending::whole_run;
use crate::support::{TempStore, lacks, run};

const PAGE: &str = include_str!("../../../docs/SCHEMA.md");

const PATIENCE: Duration = Duration::from_secs(300);

/// What a command of a person prints, in the folder of the file; `None` without a shell.
fn shell(fixture: &TempStore, command: &str) -> Option<String> {
    let has_shell = Command::new("sqlite3").arg("--version").output().is_ok();
    if !has_shell {
        lacks("sqlite3");
        return None;
    }
    let done = Command::new("sh").args(["-c", command]).current_dir(fixture.dir()).output();
    let done = done.expect("a shell starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{command}: {said}");
    Some(String::from_utf8(done.stdout).expect("the shell prints text"))
}

/// Two tasks: one fails its first verification and hangs in its second attempt, one asks a question.
pub(crate) async fn while_a_run_goes_on(store: Arc<SqliteStore>, look: impl FnOnce()) {
    let script = Arc::new(Scripted::new(|cx| match (cx.stage.kind, cx.last_error()) {
        _ if cx.task.id.as_str() == "asks" => {
            StageEnd::free(Outcome::Question { text: "which?".to_owned() })
        }
        (StageKind::Verify, _) => StageEnd::rejected("a test failed".to_owned()),
        (_, Some(_)) => StageEnd::interrupted(Interruption::Silence),
        _ => StageEnd::passed(),
    }));
    let (target, recorder) = (MemoryTarget::default(), Recorder::default());
    let ports = Ports {
        store,
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target),
        host: Arc::new(VirtualHost::new()),
        observer: Arc::new(recorder.clone()),
    };
    let task = |name| {
        let mut spec = TaskSpec::new(task_id(name));
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec
    };
    let plan = Plan { tasks: vec![task("asks"), task("hangs")], ..Plan::default() };
    let stop = CancellationToken::new();
    let driver = Orchestrator::new(ports, DriverConfig::new(run(), "stages".into()));
    let hangs = |kind: &EventKind| matches!(kind, EventKind::Granted { attempt: 2, .. });
    let looking = async {
        let has_begun = async {
            while !recorder.events().iter().any(|stored| hangs(&stored.event.kind)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, has_begun).await.expect("the second attempt begins");
        tokio::task::block_in_place(look);
        stop.cancel();
    };
    let (end, ()) = tokio::join!(driver.drive(Some(Arc::new(plan)), stop.clone()), looking);
    end.expect("the run is stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_attempts_and_all_else_can_be_read_with_the_shell_during_a_run() {
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    let ask = |sql: &str| shell(&fixture, &format!("sqlite3 -readonly run.db \"{sql}\""));
    let mut answers = Vec::new();
    while_a_run_goes_on(Arc::clone(&store), || {
        for sql in [
            "SELECT state, open, leased, escalated FROM runs",
            "SELECT id, phase, attempt, rejections, cause FROM tasks",
            "SELECT task, stage, attempt, phase, owner, granted_at_ms, renew_by_ms FROM leases",
            "SELECT token, hard_stop_ms, reserved_micros FROM leases",
            "SELECT task, attempt, dispatches, stage, last_event, why, owner FROM attempts",
            "SELECT event, task FROM events WHERE event IN ('escalated', 'rejected') ORDER BY task",
            "SELECT done, total, running, escalated FROM v_progress",
            "SELECT task, phase, detail FROM v_tasks",
        ] {
            answers.push(ask(sql));
        }
    })
    .await;
    let Some(answers) = answers.into_iter().collect::<Option<Vec<_>>>() else { return };
    let expected = [
        "active|0|1|1\n",
        "asks|escalated|1|0|question\nhangs|leased|2|1|\n",
        "hangs|0|2|leased|host/boot-1/1|0|60000\n",
        "4|2760000|5000000\n",
        "asks|1|1|0|escalated|question|host/boot-1/1\n\
         hangs|1|2|1|rejected||host/boot-1/1\n\
         hangs|2|1|0|granted||host/boot-1/1\n",
        "escalated|asks\nrejected|hangs\n",
        "0|2|1|1\n",
        "asks|escalated|question\nhangs|leased|\n",
    ];
    assert_eq!(answers, expected);

    // Stopped, nothing holds a lease, and the attempt says so.
    let after = ask("SELECT count(*) FROM leases").expect("there is a shell");
    assert_eq!(after, "0\n");
    let after = ask("SELECT last_event, why FROM attempts WHERE task = 'hangs' AND attempt = 2");
    assert_eq!(after.as_deref(), Some("interrupted|shutdown\n"));
    assert!(store.doctor().await.unwrap().faults.is_empty());
}

/// Whatever the version of the shell: what it says of a sound file, and what it saves of one.
#[tokio::test(flavor = "multi_thread")]
async fn the_shell_finds_a_file_sound_and_restores_all_of_it() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.unwrap();
    let Some(said) = shell(&fixture, "sqlite3 run.db 'PRAGMA integrity_check'") else { return };
    assert_eq!(said.trim(), "ok");
    // A dump leaves out whose file it was.
    let whose = "PRAGMA application_id = 1332896616; PRAGMA user_version = 8";
    let command = format!("sqlite3 run.db .dump | sqlite3 copy.db && sqlite3 copy.db '{whose}'");
    shell(&fixture, &command);
    let copy =
        SqliteStore::open(fixture.dir().join("copy.db"), SqliteOptions::new()).await.unwrap();
    assert_eq!(copy.load(&run()).await.unwrap(), before);
    assert!(copy.doctor().await.unwrap().faults.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_work_during_a_run() {
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    let mut tried = 0;
    while_a_run_goes_on(store, || {
        for command in PAGE.lines().filter_map(|line| line.strip_prefix("    sqlite3 ")) {
            let said = shell(&fixture, &format!("sqlite3 {command}"));
            if let Some(said) = said {
                assert!(!said.is_empty() || command.contains('>'), "{command} shows nothing");
            }
            tried += 1;
        }
    })
    .await;
    assert!(tried >= 4, "{tried} commands were found");
}

/// Whoever adds a column says on the page what it means.
#[tokio::test]
async fn the_page_names_every_table_view_and_column() {
    let fixture = TempStore::new();
    drop(fixture.sqlite().await);
    let shell = fixture.shell();
    let columns = "SELECT tables.name, columns.name FROM sqlite_schema tables, \
                   pragma_table_xinfo(tables.name) columns WHERE tables.type IN ('table', 'view')";
    let mut statement = shell.prepare(columns).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let names: Vec<(String, String)> = rows.collect::<Result<_, _>>().unwrap();
    assert!(names.len() > 100, "{names:?}");
    // `open` … `cancelled`
    const COUNTS: [&str; 5] = ["deferred", "leased", "stopping", "done", "escalated"];
    for (table, column) in names {
        assert!(PAGE.contains(&table), "`{table}`");
        let is_told = PAGE.contains(&format!("`{column}`"))
            || (table == "file" && column == "one")
            || (table == "runs" && COUNTS.contains(&column.as_str()));
        assert!(is_told, "`{table}.{column}`");
    }
}
