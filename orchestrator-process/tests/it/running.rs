//! Input, output, limits and errors of programs that behave.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use orchestrator_process::{
    End, Environment, Flow, Limits, Line, Program, SpawnError, Watch, capture, run,
};
use tempfile::tempdir;
use tokio_util::sync::CancellationToken;

use super::{LONG, STRETCHED, ended, pid_in, read, sh};

#[derive(Default)]
struct Seen {
    pid: u32,
    bytes: u64,
    lines: Vec<(Vec<u8>, u64, bool)>,
    /// After which line it has seen enough, and how long the program may take to end then.
    enough_at: Option<(&'static str, Duration)>,
}

impl Watch for Seen {
    fn started(&mut self, pid: u32) {
        self.pid = pid;
    }

    fn output(&mut self, bytes: u64) {
        assert!(bytes > self.bytes);
        self.bytes = bytes;
    }

    fn line(&mut self, line: Line<'_>) -> Flow {
        self.lines.push((line.bytes.to_vec(), line.bytes_in_all, line.is_whole));
        match self.enough_at {
            Some((enough, grace)) if enough.as_bytes() == line.bytes => Flow::EndAfter(grace),
            _ => Flow::Continue,
        }
    }
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    let dir = tempdir().unwrap();
    for (script, how) in [
        ("exit 0", End::Exited(0)),
        ("exit 7", End::Exited(7)),
        ("exit 255", End::Exited(255)),
        ("kill -9 $$", End::Signalled(9)),
        ("kill -15 $$", End::Signalled(15)),
        ("kill -11 $$", End::Signalled(11)),
    ] {
        let ended = ended(&sh(dir.path(), script), &mut ()).await.unwrap();
        assert_eq!(ended.how, how, "{script}");
        let none = CancellationToken::new();
        let captured = capture(&sh(dir.path(), script), &none, 100).await.unwrap();
        assert_eq!(captured.how, how, "{script}");
    }
}

#[tokio::test]
async fn a_program_past_its_wall_limit_is_ended() {
    let dir = tempdir().unwrap();
    let limits = Limits::new(Duration::from_millis(150)).with_grace(Duration::from_millis(100));
    let ended = ended(&sh(dir.path(), "sleep 600").limits(limits), &mut ()).await.unwrap();
    assert_eq!(ended.how, End::WallLimit);
    assert!(ended.wall >= Duration::from_millis(150), "{ended:?}");
}

#[tokio::test]
async fn silence_is_counted_from_the_last_byte_of_either_output() {
    let dir = tempdir().unwrap();
    let script = "for i in 1 2 3 4 5 6; do sleep 0.2; echo $i >&2; done; sleep 600";
    for stretched in STRETCHED {
        let silence = Duration::from_millis(800) * stretched;
        let limits = Limits::new(LONG).with_silence(silence);
        let errors = format!("err-{stretched}");
        let program = sh(dir.path(), script).stderr_file(dir.path().join(&errors)).limits(limits);
        let ended = ended(&program, &mut ()).await.unwrap();
        assert_eq!(ended.how, End::SilenceLimit);
        if read(dir.path().join(errors)) == "1\n2\n3\n4\n5\n6\n" {
            assert!(ended.wall >= Duration::from_millis(1_200) + silence, "{ended:?}");
            return;
        }
    }
    panic!("a program that spoke every now and then was taken for a silent one");
}

#[tokio::test]
async fn a_program_that_empties_its_own_log_is_alive_and_each_later_line_is_seen() {
    let mut seen = Seen::default();
    for stretched in STRETCHED {
        let dir = tempdir().unwrap();
        let limits = Limits::new(LONG).with_silence(Duration::from_millis(1_500) * stretched);
        // What a shell does for `> /dev/stdout`, after more than what follows.
        let script = format!(
            "printf '%09999d\\n' 0; sleep 0.3; echo anew > /dev/stdout
            for i in 1 2 3 4 5 6 7; do sleep {}; echo $i; done",
            0.4 * f64::from(stretched)
        );
        seen = Seen::default();
        let ended = ended(&sh(dir.path(), &script).limits(limits), &mut seen).await.unwrap();
        if ended.how != End::SilenceLimit {
            assert_eq!((ended.how, ended.output_bytes), (End::Exited(0), 10_019));
            break;
        }
    }
    let later = seen.lines.iter().skip(1).map(|(line, _, _)| line.as_slice());
    assert_eq!(later.collect::<Vec<_>>().join(&b' '), b"anew 1 2 3 4 5 6 7");
}

#[tokio::test]
async fn a_program_that_floods_is_ended() {
    let dir = tempdir().unwrap();
    let limits = Limits::new(LONG).with_output_bytes_max(1 << 20);
    let program = sh(dir.path(), "exec cat /dev/zero").limits(limits);
    let ended = ended(&program, &mut ()).await.unwrap();
    assert_eq!(ended.how, End::OutputLimit);
    assert!(ended.output_bytes > 1 << 20);
    let captured = capture(&program, &CancellationToken::new(), 10_000).await.unwrap();
    assert_eq!((captured.how, captured.stdout.len()), (End::OutputLimit, 10_000));
}

#[tokio::test]
async fn a_log_that_is_longer_than_anybody_can_read_holds_nobody_up() {
    let dir = tempdir().unwrap();
    let limits = Limits::new(LONG).with_output_bytes_max(1 << 20);
    let script = "echo first; truncate -s 4T /proc/self/fd/1 && echo last";
    let mut seen = Seen::default();
    let program = sh(dir.path(), script).limits(limits);
    let ended = tokio::time::timeout(LONG, ended(&program, &mut seen)).await.unwrap().unwrap();
    assert_eq!((ended.output_bytes, seen.bytes), ((4 << 40) + 5, (4 << 40) + 5));
    assert_eq!(seen.lines[0], (b"first".to_vec(), 5, true));
    assert!(ended.stdout_tail.ends_with("\0last\n"), "{:?}", ended.stdout_tail);
}

#[tokio::test]
async fn a_program_is_ended_when_that_is_asked_for() {
    let dir = tempdir().unwrap();
    let cancel = CancellationToken::new();
    let program = sh(dir.path(), "echo $$; sleep 600");
    let mut nothing = ();
    let (ended, ()) = tokio::join!(run(&program, &cancel, &mut nothing), async {
        pid_in(dir.path().join("out")).await;
        cancel.cancel();
    });
    assert_eq!(ended.unwrap().how, End::Cancelled);
    let captured = capture(&program, &cancel, 100).await.unwrap();
    assert_eq!(captured.how, End::Cancelled);
}

#[tokio::test]
async fn a_watcher_sees_each_line_once_whatever_is_in_it() {
    let dir = tempdir().unwrap();
    let script = r"printf 'one\ntw'; sleep 0.1; printf 'o\n\377\376\n\n';
        head -c 10000000 /dev/zero | tr '\0' x; printf '\ntorn'; echo oops >&2";
    let limits = Limits::new(LONG).with_line_bytes_max(1_000_000);
    let mut seen = Seen::default();
    let ended = ended(&sh(dir.path(), script).limits(limits), &mut seen).await.unwrap();
    assert_eq!(ended.how, End::Exited(0));
    let whole = |text: &[u8]| (text.to_vec(), text.len() as u64, true);
    assert_eq!(seen.lines[..4], [whole(b"one"), whole(b"two"), whole(b"\xff\xfe"), whole(b"")]);
    assert_eq!(seen.lines[4], (vec![b'x'; 1_000_000], 10_000_000, true));
    assert_eq!(seen.lines[5..], [(b"torn".to_vec(), 4, false)]);
    assert!(seen.pid > 0);
    assert!(ended.stdout_tail.ends_with("xxx\ntorn") && ended.stdout_tail.len() <= 8192);
    assert_eq!(ended.stderr_tail, "oops\n");
    assert_eq!(ended.output_bytes, 10_000_000 + 22);
}

#[tokio::test]
async fn a_program_that_lingers_after_its_answer_is_ended() {
    let dir = tempdir().unwrap();
    let short = Some(("answer", Duration::from_millis(100)));
    let mut seen = Seen { enough_at: short, ..Seen::default() };
    let lingering = sh(dir.path(), "echo answer; sleep 600");
    assert_eq!(ended(&lingering, &mut seen).await.unwrap().how, End::Lingered);
    let mut seen = Seen { enough_at: Some(("answer", LONG)), ..Seen::default() };
    let quick = sh(dir.path(), "echo answer; exit 3");
    assert_eq!(ended(&quick, &mut seen).await.unwrap().how, End::Exited(3));
}

#[tokio::test]
async fn output_is_appended_and_what_was_there_is_not_taken_for_output() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("out"), "before\n").unwrap();
    let mut seen = Seen::default();
    let program = sh(dir.path(), "echo a; echo b >&2; echo c").stderr_file(dir.path().join("out"));
    let ended = ended(&program, &mut seen).await.unwrap();
    assert_eq!(read(dir.path().join("out")), "before\na\nb\nc\n");
    assert_eq!((seen.lines.len(), ended.output_bytes, seen.bytes), (3, 6, 6));
    assert_eq!(ended.stdout_tail, "a\nb\nc\n");
}

#[tokio::test]
async fn the_environment_holds_what_was_put_there_and_nothing_else() {
    let dir = tempdir().unwrap();
    let program = sh(dir.path(), "exec env").env("GREETING", "hello world");
    ended(&program, &mut ()).await.unwrap();
    let out = read(dir.path().join("out"));
    let mut names: Vec<&str> = out.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    // `PWD` and the like are the shell's own.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    assert_eq!(names, ["GREETING", "ORCHESTRATOR_START", "PATH"]);
    assert!(out.contains("GREETING=hello world\n"));
    assert!(!format!("{program:?}").contains("hello world"));
}

#[tokio::test]
async fn input_comes_from_a_file_or_bytes_and_is_empty_otherwise() {
    let dir = tempdir().unwrap();
    let none = CancellationToken::new();
    let long = vec![b'y'; 3_000_000];
    fs::write(dir.path().join("in"), "from a file").unwrap();
    let cat = sh(dir.path(), "exec cat");
    for (program, expected) in [
        (cat.clone(), &b""[..]),
        (cat.clone().stdin_file(dir.path().join("in")), b"from a file"),
        (cat.stdin_bytes(long.clone()), &long),
    ] {
        let captured = capture(&program, &none, 4_000_000).await.unwrap();
        assert!(captured.is_success() && captured.stdout == expected);
    }
}

#[tokio::test]
async fn both_outputs_of_a_short_program_are_kept_however_they_are_mixed() {
    let dir = tempdir().unwrap();
    let script = "i=0; while [ $i -lt 3000 ]; do echo out-$i; echo error-$i >&2; i=$((i+1)); done";
    let captured = capture(&sh(dir.path(), script), &CancellationToken::new(), 1 << 20).await;
    let captured = captured.unwrap();
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!((lines(&captured.stdout), lines(&captured.stderr)), (3000, 3000));
}

#[tokio::test]
async fn a_program_has_no_other_files_and_a_session_of_its_own() {
    let dir = tempdir().unwrap();
    let leaked = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let script = "ls /proc/self/fd | tr '\n' ' '; cut -d' ' -f1,5,6 /proc/$$/stat";
    let captured = capture(&sh(dir.path(), script), &CancellationToken::new(), 1000).await.unwrap();
    let out = String::from_utf8(captured.stdout).unwrap();
    let (files, ids) =
        out.trim().rsplit_once("  ").or_else(|| out.trim().split_once("3 ")).unwrap();
    assert_eq!(files.trim(), "0 1 2", "{out}");
    let ids: Vec<&str> = ids.split(' ').collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{out}");
}

#[tokio::test]
async fn each_error_of_starting_names_the_program_and_what_would_help() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let script = |name: &str, text: &str, mode: u32| {
        fs::write(path(name), text).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        Program::new(path(name))
    };
    let here = |program: &str| Program::new(program).pass_env(["PATH"]);
    let too_long = here("true").args((0..40).map(|_| "x".repeat(120_000)));
    for (program, has, helps) in [
        (here("no-such-program"), "no-such-program", "install it"),
        (Program::new("no-such-program"), "/usr/bin", "install it"),
        (Program::new("./gone").cwd(dir.path()), "./gone", "give its path"),
        (Program::new(""), "``", "give its path"),
        (script("plain", "#!/bin/sh\n", 0o644), "plain", "chmod +x"),
        (script("lost", "#!/no/such/interpreter\n", 0o755), "lost", "interpreter"),
        (Program::new(dir.path()), "", "directory"),
        (here("true").cwd(path("nowhere")), "nowhere", "not a directory"),
        (here("true").cwd(path("plain")), "plain", "not a directory"),
        (too_long, "true", "in a file"),
        (here("true").arg("a\0b"), "true", "zero byte"),
        (here("true").stdin_file(path("missing")), "missing", "cannot be opened"),
    ] {
        let err = ended(&program, &mut ()).await.unwrap_err();
        let text = err.chain();
        assert!(text.contains(has) && text.contains(helps), "{text}");
        assert!(!err.is_transient(), "{text}");
    }
    let err = ended(&here("true").stdout_file("/proc/no/file"), &mut ()).await.unwrap_err();
    assert!(matches!(err, SpawnError::File { .. }), "{err}");
}

#[tokio::test]
async fn a_named_pipe_is_no_file_for_input_or_output_and_nobody_waits_at_it() {
    let dir = tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert_eq!(ended(&sh(dir.path(), "mkfifo pipe"), &mut ()).await.unwrap().how, End::Exited(0));
    let program = sh(dir.path(), "cat; echo out");
    for program in [program.clone().stdin_file(&pipe), program.clone().stdout_file(&pipe)] {
        let err = ended(&program, &mut ()).await.unwrap_err();
        assert!(matches!(err, SpawnError::File { .. }) && !err.is_transient(), "{err:?}");
        assert!(err.chain().contains("pipe cannot be opened") && err.chain().contains("regular"));
    }
    let nothing = ended(&program.stdin_file("/dev/null").stdout_file("/dev/zero"), &mut ()).await;
    assert_eq!(nothing.unwrap().stdout_tail, "");
}

#[tokio::test]
async fn a_relative_program_is_looked_for_where_it_is_started() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    let tool = dir.path().join("bin/tool");
    fs::write(&tool, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let none = CancellationToken::new();
    let by_path = Program::new("bin/tool").cwd(dir.path());
    let by_name = Program::new("tool")
        .cwd(dir.path())
        .environment(Environment::empty().with("PATH", "/no/such/dir:bin"));
    for program in [by_path, by_name] {
        assert_eq!(capture(&program, &none, 100).await.unwrap().stdout, b"found\n");
    }
}

#[tokio::test]
async fn a_program_that_is_still_open_to_be_written_is_started_once_it_is_closed() {
    let dir = tempdir().unwrap();
    let tool = dir.path().join("tool");
    fs::write(&tool, "#!/bin/sh\necho started\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let open = fs::File::options().append(true).open(&tool).unwrap();
    let (program, none) = (Program::new(&tool), CancellationToken::new());
    let (captured, ()) = tokio::join!(capture(&program, &none, 100), async {
        // Others start meanwhile.
        assert_eq!(ended(&sh(dir.path(), "sleep 0.5"), &mut ()).await.unwrap().how, End::Exited(0));
        drop(open);
    });
    assert_eq!(captured.unwrap().stdout, b"started\n");
}

#[tokio::test]
async fn a_program_is_found_in_a_directory_that_is_named_relative_to_this_one() {
    let here = std::env::current_dir().unwrap();
    let dir = tempfile::tempdir_in(&here).unwrap();
    let tool = dir.path().join("tool");
    fs::write(&tool, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let program = Program::new("./tool").cwd(dir.path().strip_prefix(&here).unwrap());
    let captured = capture(&program, &CancellationToken::new(), 100).await.unwrap();
    assert_eq!(captured.stdout, b"found\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_programs_run_at_once_and_keep_their_output_apart() {
    let dir = tempdir().unwrap();
    let mut all = tokio::task::JoinSet::new();
    for number in 0..50 {
        let dir = dir.path().join(number.to_string());
        fs::create_dir(&dir).unwrap();
        all.spawn(async move {
            let script = format!("echo begin; sleep 0.3; seq {number}; exit {number}");
            let ended = ended(&sh(&dir, &script), &mut ()).await.unwrap();
            (number, ended.how, read(dir.join("out")).lines().count())
        });
    }
    while let Some(one) = all.join_next().await {
        let (number, how, lines) = one.unwrap();
        assert_eq!(how, End::Exited(number));
        assert_eq!(lines, usize::try_from(number).unwrap() + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_program_wrote_is_there_also_when_its_end_is_noticed_first() {
    let dir = tempdir().unwrap();
    let mut captures = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let program = sh(dir.path(), "printf words");
        captures.spawn(async move {
            for _ in 0..40 {
                let captured = capture(&program, &CancellationToken::new(), 100).await.unwrap();
                assert!(captured.is_success() && captured.stdout == b"words", "{captured:?}");
            }
        });
    }
    while let Some(all) = captures.join_next().await {
        all.unwrap();
    }
}
