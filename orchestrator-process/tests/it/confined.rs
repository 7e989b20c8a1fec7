//! What a program may use and where it may reach.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use orchestrator_core::{FencingToken, RunId};
use orchestrator_process::{
    Confinement, Confiner as _, End, LocalConfiner, Marker, Program, Sandbox, SandboxMode,
    SpawnError, TreeEnds, end_leftovers,
};
use tempfile::tempdir;

use super::{
    TOO_MUCH, ended, is_alive, pid_in, read, sh, talkative, until, with_and_without_cgroups,
};

fn confined(dir: &Path, script: &str, confinement: Confinement) -> Program {
    sh(dir, script).confinement(confinement)
}

#[tokio::test]
async fn a_tree_that_needs_too_much_memory_ends_at_its_memory_limit() {
    let dir = tempdir().unwrap();
    let limit = Confinement::none().with_memory_bytes_max(48 << 20);
    // A line without an end, which `tail` must keep whole.
    let script = "echo begun; head -c 400000000 /dev/zero | tail -n 1 | wc -c; exit 3";
    let ended = ended(&confined(dir.path(), script, limit), &mut ()).await.unwrap();
    match &LocalConfiner::detected().abilities().memory {
        Ok(_) => assert_eq!((ended.how, ended.left.as_slice()), (End::MemoryLimit, &[][..])),
        Err(_) => assert_eq!(ended.how, End::Exited(3)),
    }
    assert!(ended.stdout_tail.starts_with("begun\n"), "{ended:?}");
}

#[tokio::test]
async fn a_program_within_its_memory_limit_ends_as_it_does() {
    let dir = tempdir().unwrap();
    let limit = Confinement::none().with_memory_bytes_max(256 << 20);
    let ended = ended(&confined(dir.path(), "exit 5", limit), &mut ()).await.unwrap();
    assert_eq!(ended.how, End::Exited(5));
}

#[tokio::test]
async fn a_program_cannot_have_more_processes_than_it_may() {
    if LocalConfiner::detected().abilities().processes.is_err() {
        return;
    }
    let dir = tempdir().unwrap();
    let limit = Confinement::none().with_processes_max(8);
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 600 & echo $i; done";
    let ended = ended(&confined(dir.path(), script, limit), &mut ()).await.unwrap();
    assert_ne!(ended.how, End::Exited(0));
    assert!(ended.stdout_tail.lines().count() < 9, "{ended:?}");
}

#[tokio::test]
async fn a_program_gets_no_more_processor_time_than_it_may_have() {
    if LocalConfiner::detected().abilities().cpu.is_err() {
        return;
    }
    let dir = tempdir().unwrap();
    let limit = Confinement::none().with_cpu_percent_max(10);
    // A fixed piece of work, since a busy machine is late for whatever ends after a time.
    let work = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";
    let script = format!("sh -c '{work}'; cat /proc/$$/stat");
    let ended = ended(&confined(dir.path(), &script, limit), &mut ()).await.unwrap();
    // Fields 16 and 17: the time of children in user mode and in the kernel, in hundredths.
    let ticks: u32 = ended
        .stdout_tail
        .split_ascii_whitespace()
        .skip(15)
        .take(2)
        .map(|field| field.parse::<u32>().unwrap())
        .sum();
    assert!(ticks > 0 && ended.wall >= 3 * Duration::from_millis(10) * ticks, "{ticks}: {ended:?}");
}

#[tokio::test]
async fn in_a_sandbox_a_program_writes_only_where_it_may() {
    if LocalConfiner::detected().abilities().write.is_err() {
        return;
    }
    let (dir, outside) = (tempdir().unwrap(), tempdir().unwrap());
    let kept = outside.path().join("kept");
    fs::write(&kept, "as it was").unwrap();
    let place = outside.path().display();
    let script = format!(
        "echo in > inside; echo > /dev/null; cat {place}/kept
         echo x > {place}/new; echo x > {place}/kept; rm {place}/kept; mkdir {place}/dir
         ln -s x {place}/link; mv inside {place}/moved; kill -0 {} && echo signalled; exit 0",
        std::process::id()
    );
    let sandbox = Sandbox::new(SandboxMode::Require).with_write(dir.path());
    let confinement = Confinement::none().with_sandbox(sandbox);
    let ended = ended(&confined(dir.path(), &script, confinement), &mut ()).await.unwrap();
    assert_eq!((ended.how, ended.stdout_tail.as_str()), (End::Exited(0), "as it was"));
    assert_eq!(read(dir.path().join("inside")), "in\n");
    assert_eq!(read(&kept), "as it was");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn in_a_sandbox_a_program_connects_only_to_the_ports_that_it_may() {
    if LocalConfiner::detected().abilities().tcp.is_err() {
        return;
    }
    let dir = tempdir().unwrap();
    let (allowed, forbidden) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let script = format!(
        "for port in {} {}; do bash -c \"exec 3<>/dev/tcp/127.0.0.1/$port\" && echo $port; done; exit 0",
        port(&allowed),
        port(&forbidden)
    );
    let sandbox = Sandbox::new(SandboxMode::Require).with_tcp_only([port(&allowed)]);
    let boxed = confined(dir.path(), &script, Confinement::none().with_sandbox(sandbox));
    assert_eq!(ended(&boxed, &mut ()).await.unwrap().stdout_tail, format!("{}\n", port(&allowed)));
    let free = dir.path().join("free");
    fs::create_dir(&free).unwrap();
    let ended = ended(&sh(&free, &script), &mut ()).await.unwrap();
    assert_eq!(ended.stdout_tail.lines().count(), 2, "{ended:?}");
}

#[tokio::test]
async fn a_sandbox_that_is_required_and_names_what_is_not_there_starts_nothing() {
    let dir = tempdir().unwrap();
    let sandbox = Sandbox::new(SandboxMode::Require).with_write(dir.path().join("gone"));
    let program = confined(dir.path(), "echo > ran", Confinement::none().with_sandbox(sandbox));
    let err = ended(&program, &mut ()).await.unwrap_err();
    assert!(matches!(err, SpawnError::Confine { .. }) && !err.is_transient(), "{err:?}");
    assert!(err.chain().contains("gone"), "{}", err.chain());
    assert!(!dir.path().join("ran").exists());
}

/// Leaves a process with no session, environment or parent in common with the program.
const STRANGER: &str = "(setsid env -i sh -c 'echo $$ > stranger; trap \"\" TERM HUP; \
                        while :; do sleep 1; done' &); while ! [ -s stranger ]; do sleep 0.01; done";

#[tokio::test]
async fn p20_not_even_a_process_that_left_everything_behind_survives() {
    println!("{}", LocalConfiner::detected().abilities());
    with_and_without_cgroups(async || {
        for (rest, how) in [
            ("exit 0", End::Exited(0)),
            ("exit 4", End::Exited(4)),
            ("kill -9 $$", End::Signalled(9)),
            (&*format!("{TOO_MUCH}; sleep 600"), End::OutputLimit),
        ] {
            let dir = tempdir().unwrap();
            let script = format!("{STRANGER}; {rest}");
            let program = sh(dir.path(), &script).limits(talkative(Duration::from_millis(100)));
            let ended = ended(&program, &mut ()).await.unwrap();
            assert_eq!((ended.how, ended.left.as_slice()), (how, &[][..]));
            assert!(ended.leftovers >= 1, "{ended:?}");
            assert!(!is_alive(pid_in(dir.path().join("stranger")).await));
        }
    })
    .await;
}

#[tokio::test]
async fn p20_a_stranger_of_a_program_that_nobody_waits_for_is_ended_too() {
    with_and_without_cgroups(async || {
        let dir = tempdir().unwrap();
        let program = sh(dir.path(), &format!("{STRANGER}; sleep 600"));
        let mut nothing = ();
        let stranger = tokio::select! {
            ended = ended(&program, &mut nothing) => panic!("ended: {ended:?}"),
            pid = pid_in(dir.path().join("stranger")) => pid,
        };
        until("the end of one that nobody waits for", || !is_alive(stranger)).await;
    })
    .await;
}

#[tokio::test]
async fn p20_a_stranger_of_a_lost_lease_is_ended_too() {
    if !matches!(
        LocalConfiner::detected().abilities().tree,
        TreeEnds::CgroupKill | TreeEnds::CgroupFreeze
    ) {
        return;
    }
    let run = RunId::parse(&format!("confined.{}", std::process::id())).unwrap();
    let dir = tempdir().unwrap();
    let program =
        sh(dir.path(), &format!("{STRANGER}; sleep 600")).marker(Marker::of(&run, FencingToken(3)));
    let mut nothing = ();
    let (ended, count) = tokio::join!(ended(&program, &mut nothing), async {
        pid_in(dir.path().join("stranger")).await;
        // Another lease, whose number begins alike.
        assert_eq!(end_leftovers(&run, FencingToken(33), Duration::ZERO).await.unwrap(), 0);
        end_leftovers(&run, FencingToken(3), Duration::from_millis(50)).await.unwrap()
    });
    let ended = ended.unwrap();
    assert!(count >= 2 && matches!(ended.how, End::Signalled(_)), "{count}: {ended:?}");
    assert!(!is_alive(pid_in(dir.path().join("stranger")).await));
}

#[tokio::test]
async fn p20_what_a_program_puts_into_cgroups_of_its_own_is_ended_too() {
    if !matches!(LocalConfiner::detected().abilities().tree, TreeEnds::CgroupFreeze) {
        return;
    }
    let dir = tempdir().unwrap();
    // A child in a cgroup that the program makes within its own, by the hierarchy that holds it.
    let script = "own=$(sed -n 's/.*:freezer://p' /proc/self/cgroup)
        for root in /sys/fs/cgroup/freezer; do
            [ -d \"$root$own\" ] && mkdir \"$root$own/inner\" || exit 0
            (setsid env -i sh -c 'trap \"\" TERM; echo $$ > inner; while :; do sleep 1; done' &)
            while ! [ -s inner ]; do sleep 0.01; done
            cat inner > \"$root$own/inner/cgroup.procs\"; echo moved
        done";
    let ended = ended(&sh(dir.path(), script), &mut ()).await.unwrap();
    assert_eq!((ended.how, ended.left.as_slice()), (End::Exited(0), &[][..]));
    if ended.stdout_tail.contains("moved") {
        assert!(!is_alive(pid_in(dir.path().join("inner")).await));
    }
}
