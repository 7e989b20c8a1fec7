//! Nothing survives: trees that do not want to end.

use std::time::Duration;

use orchestrator_core::{FencingToken, RunId};
use orchestrator_process::{End, Limits, Marker, capture, run};
use tempfile::tempdir;
use tokio_util::sync::CancellationToken;

use super::{
    LONG, TOO_MUCH, ended, is_alive, pid_in, read, sh, talkative, until, with_and_without_cgroups,
};

fn marker(token: u64) -> Marker {
    let run = format!("it-{}", std::process::id());
    Marker::of(&RunId::parse(&run).unwrap(), FencingToken(token))
}

/// When a process began, by its line in `/proc`.
fn begun_at(stat: &str) -> Option<&str> {
    stat.rsplit(')').next()?.split(' ').nth(20)
}

/// Starts a process in a session of its own, whose parent is gone; its pid is in `$1`.
const DAEMON: &str = r#"daemon() {
    (setsid sh -c 'trap "" TERM HUP; echo $$ > '"$1"'; while :; do sleep 1; done' &) ;
    while ! [ -s "$1" ]; do sleep 0.01; done; }"#;

#[tokio::test]
async fn p20_a_program_that_ignores_the_request_to_end_is_killed_after_the_grace() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let script = format!("trap '' TERM; echo $$ > pid; {TOO_MUCH}; while :; do sleep 1; done");
        let limits = talkative(Duration::from_millis(300));
        let ended = ended(&sh(dir.path(), &script).limits(limits), &mut ()).await.unwrap();
        assert_eq!((ended.how, ended.left.as_slice()), (End::OutputLimit, &[][..]));
        assert!(ended.wall >= Duration::from_millis(300), "{ended:?}");
        assert!(!is_alive(pid_in(dir.path().join("pid")).await));
    })
    .await;
}

#[tokio::test]
async fn p20_a_program_that_cleans_up_when_asked_has_its_grace_for_it() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let script = format!(
            "trap 'sleep 0.3; echo clean; exit 0' TERM; echo ready; {TOO_MUCH}; \
             while :; do sleep 0.05; done"
        );
        let limits = talkative(LONG);
        let ended = ended(&sh(dir.path(), &script).limits(limits), &mut ()).await.unwrap();
        assert_eq!((ended.how, ended.stdout_tail.as_str()), (End::OutputLimit, "ready\nclean\n"));
        assert!(ended.wall < LONG, "it is not waited for beyond its end");
    })
    .await;
}

#[tokio::test]
async fn p20_a_daemon_is_gone_after_a_limit_and_after_a_normal_end() {
    with_and_without_cgroups(async || {
        for (token, rest, how) in [
            (1, &*format!("{TOO_MUCH}; sleep 600"), End::OutputLimit),
            (2, "exit 0", End::Exited(0)),
            (3, "exit 4", End::Exited(4)),
        ] {
            let dir = tempdir().unwrap();
            let limits = talkative(Duration::from_millis(100));
            let script = format!("{DAEMON}\ndaemon one; daemon two; sleep 700 & {rest}");
            let program = sh(dir.path(), &script).marker(marker(token)).limits(limits);
            let ended = ended(&program, &mut ()).await.unwrap();
            assert_eq!(ended.how, how);
            assert!(ended.leftovers >= 3 && ended.left.is_empty(), "{ended:?}");
            for name in ["one", "two"] {
                assert!(!is_alive(pid_in(dir.path().join(name)).await), "{name}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn p20_a_short_program_with_a_marker_leaves_no_daemon_either() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let script = format!("{DAEMON}\ndaemon one; echo done");
        let program = sh(dir.path(), &script).marker(marker(4));
        let captured = capture(&program, &CancellationToken::new(), 100).await.unwrap();
        assert_eq!((captured.how, captured.stdout.as_slice()), (End::Exited(0), &b"done\n"[..]));
        assert!(!is_alive(pid_in(dir.path().join("one")).await));
    })
    .await;
}

#[tokio::test]
async fn p20_a_child_that_holds_the_pipes_holds_nobody_up() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let program = sh(dir.path(), "sleep 600 & echo $!; exit 0");
        let captured = capture(&program, &CancellationToken::new(), 100).await.unwrap();
        assert!(captured.is_success(), "{captured:?}");
        let pid = String::from_utf8(captured.stdout).unwrap().trim().parse().unwrap();
        until("the end of the child", || !is_alive(pid)).await;
    })
    .await;
}

#[tokio::test]
async fn p20_processes_that_multiply_while_they_are_ended_are_all_ended() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        // Each one starts its successor in a new session and ends; none is there for long.
        let script = format!(
            r#"cat > hop <<'X'
trap '' TERM
read -r stat < /proc/$$/stat
echo "$stat" >> hops
sleep 0.01
setsid sh hop &
X
for i in 1 2 3; do setsid sh hop & done
until [ "$(grep -c . hops)" -gt 30 ]; do sleep 0.01; done
{TOO_MUCH}; sleep 600"#
        );
        let limits = talkative(Duration::from_millis(100));
        let program = sh(dir.path(), &script).marker(marker(5)).limits(limits);
        let ended = ended(&program, &mut ()).await.unwrap();
        assert_eq!((ended.how, ended.left.as_slice()), (End::OutputLimit, &[][..]));
        let hops = read(dir.path().join("hops"));
        assert!(hops.lines().count() > 30);
        for stat in hops.lines() {
            // Many pids, some of which may be those of others by now.
            let pid = stat.split(' ').next().unwrap();
            let now = read(format!("/proc/{pid}/stat"));
            assert!(!is_alive(pid.parse().unwrap()) || begun_at(&now) != begun_at(stat), "{stat}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(read(dir.path().join("hops")).len(), hops.len());
    })
    .await;
}

#[tokio::test]
async fn p20_a_program_that_nobody_waits_for_any_more_is_ended() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let script = format!("{DAEMON}\ndaemon one; echo $$ > root; sleep 600");
        let program = sh(dir.path(), &script).marker(marker(6));
        let none = CancellationToken::new();
        let (one, root) = {
            let mut nothing = ();
            let running = run(&program, &none, &mut nothing);
            tokio::select! {
                ended = running => panic!("ended: {ended:?}"),
                pid = pid_in(dir.path().join("root")) => (pid_in(dir.path().join("one")).await, pid),
            }
        };
        until("the end of both", || !is_alive(one) && !is_alive(root)).await;
    })
    .await;
}

#[tokio::test]
async fn p20_a_stopped_program_is_ended_all_the_same() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let limits = Limits::new(LONG)
            .with_silence(Duration::from_millis(300))
            .with_grace(Duration::from_millis(100));
        let program = sh(dir.path(), "trap '' TERM; kill -STOP $$; sleep 600").limits(limits);
        let ended = ended(&program, &mut ()).await.unwrap();
        assert_eq!((ended.how, ended.left.as_slice()), (End::SilenceLimit, &[][..]));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_one_program_does_not_end_another_one_of_the_same_lease() {
    let dir = tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    let waits = sh(&one, "echo $$ > ready; while ! [ -e go ]; do sleep 0.01; done; exit 5");
    let waits = waits.marker(marker(8));
    let mut nothing = ();
    let (waited, ()) = tokio::join!(ended(&waits, &mut nothing), async {
        pid_in(one.join("ready")).await;
        let script = format!("{DAEMON}\ndaemon left");
        let other = ended(&sh(&two, &script).marker(marker(8)), &mut ()).await.unwrap();
        assert!(other.how == End::Exited(0) && other.leftovers >= 1, "{other:?}");
        std::fs::write(one.join("go"), "").unwrap();
    });
    assert_eq!(waited.unwrap().how, End::Exited(5));
}

#[tokio::test]
async fn p20_a_process_with_an_emptied_environment_is_found_by_descent_or_session() {
    with_and_without_cgroups(async || {
        let same = "env -i sh -c 'echo $$ > same; trap \"\" TERM; sleep 600; :' & \
                    while ! [ -s same ]; do sleep 0.01; done;";
        let other = format!(
            "(setsid env -i sh -c 'echo $$ > other; trap \"\" TERM; sleep 600; :') & \
             while ! [ -s other ]; do sleep 0.01; done; {TOO_MUCH}; sleep 600"
        );
        for (rest, how, names) in [
            (&*other, End::OutputLimit, &["same", "other"][..]),
            ("exit 0", End::Exited(0), &["same"]),
        ] {
            let dir = tempdir().unwrap();
            let limits = talkative(Duration::from_millis(100));
            let program = sh(dir.path(), &format!("{same} {rest}")).limits(limits);
            assert_eq!(ended(&program, &mut ()).await.unwrap().how, how);
            for name in names {
                assert!(!is_alive(pid_in(dir.path().join(name)).await), "{name}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_started_for_a_stage_that_is_cancelled_already_and_no_limit_is_too_long() {
    let dir = tempdir().unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let program = sh(dir.path(), "echo > ran");
    assert_eq!(run(&program, &cancel, &mut ()).await.unwrap().how, End::Cancelled);
    assert_eq!(capture(&program, &cancel, 100).await.unwrap().how, End::Cancelled);
    assert!(!dir.path().join("ran").exists());
    let for_ever = Limits::new(Duration::MAX).with_silence(Duration::MAX).with_grace(Duration::MAX);
    let program = sh(dir.path(), "sleep 0.1 & exit 0").marker(marker(9)).limits(for_ever);
    assert_eq!(ended(&program, &mut ()).await.unwrap().how, End::Exited(0));
}

#[tokio::test]
async fn p20_many_programs_that_are_abandoned_at_once_are_all_ended() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let mut all = tokio::task::JoinSet::new();
        for number in 0..30_u32 {
            let dir = dir.path().join(number.to_string());
            std::fs::create_dir(&dir).unwrap();
            let script = format!("{DAEMON}\ndaemon one; echo $$ > root; sleep 600");
            all.spawn(async move { ended(&sh(&dir, &script), &mut ()).await.map(|_| ()) });
        }
        let mut pids = Vec::new();
        for number in 0..30_u32 {
            for name in ["root", "one"] {
                pids.push(pid_in(dir.path().join(number.to_string()).join(name)).await);
            }
        }
        all.abort_all();
        while all.join_next().await.is_some() {}
        until("the end of all", || pids.iter().all(|pid| !is_alive(*pid))).await;
    })
    .await;
}
