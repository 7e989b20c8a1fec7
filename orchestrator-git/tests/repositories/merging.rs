//! The merge queue: each change once, and only what was tested.

use std::path::Path;

use orchestrator_core::port::{Applied, Integrator as _, Proposal, Start, Workspaces as _};
use orchestrator_core::{ChangeId, Cost, FencingToken, Usd};
use orchestrator_git::{GitConfig, GitError, GitRun, Strategy};

use crate::world::{World, candidate, clean, conflict, git, scoped, task, write};

#[tokio::test]
async fn p17_candidates_are_merged_in_sequence_as_one_commit_each() {
    let world = World::new().await;
    let odd = "#1: a/B é 100%20  ";
    let one = world.work(&task("one"), 1, &[("src/a.rs", "one\n")]).await;
    let two = world.work(&task(odd), 2, &[("src/b.rs", "two\n")]).await;
    world.fence(&task("one"), 1).await;
    let (intent, is_judged) = clean(world.propose(&task("one"), 1, &one).await);
    assert!(is_judged);
    assert!(!world.run.is_merged(&intent.merged).await.unwrap());
    assert_eq!(world.apply(&task("one"), 1, &intent).await, Applied::Merged);
    assert!(world.run.is_merged(&intent.merged).await.unwrap());
    world.fence(&task(odd), 2).await;
    let (intent, is_judged) = clean(world.propose(&task(odd), 2, &two).await);
    assert!(!is_judged, "the target moved");
    assert_eq!(world.apply(&task(odd), 2, &intent).await, Applied::Merged);
    assert_eq!(world.show("orchestrator/r:src/a.rs"), "one");
    assert_eq!(world.show("orchestrator/r:src/b.rs"), "two");
    let shape = git(&world.repo, ["log", "--format=%p", "orchestrator/r"]);
    assert!(shape.lines().all(|parents| !parents.contains(' ')), "{shape}");
    assert_eq!(git(&world.repo, ["rev-list", "--count", "orchestrator/r"]), "3");
    assert_eq!((world.merges_of("one"), world.merges_of("#1: a/B é 100%2520%20%20")), (1, 1));
    assert_eq!(git(&world.repo, ["rev-parse", "main"]), one.base.as_str(), "the target stays");
    assert!(matches!(world.propose(&task(odd), 3, &two).await, Proposal::AlreadyThere));
    assert!(matches!(world.propose(&task("one"), 3, &one).await, Proposal::AlreadyThere));
}

#[tokio::test]
async fn the_same_change_by_another_task_is_there_already() {
    let world = World::new().await;
    let one = world.work(&task("one"), 1, &[("src/a.rs", "same\n")]).await;
    let two = world.work(&task("two"), 2, &[("src/a.rs", "same\n")]).await;
    world.merge(&task("one"), 1, &one).await;
    assert!(matches!(world.propose(&task("two"), 2, &two).await, Proposal::AlreadyThere));
}

#[tokio::test]
async fn a_conflict_names_the_file_the_lines_and_whose_work_it_is() {
    let world = World::new().await;
    let one = world.work(&task("one"), 1, &[("README.md", "one\nTWO by one\nthree\n")]).await;
    let two = world.work(&task("two"), 2, &[("README.md", "one\nTWO by two\nthree\n")]).await;
    world.merge(&task("one"), 1, &one).await;
    let before = git(&world.repo, ["rev-parse", "orchestrator/r"]);
    let feedback = conflict(world.propose(&task("two"), 2, &two).await);
    let change = &two.change.as_str()[..12];
    for part in [
        change,
        "`README.md`",
        "TWO by one",
        "TWO by two",
        "(task one)",
        "line 2",
        "git show ",
        "/task/two",
    ] {
        assert!(feedback.contains(part), "{part} is not in:\n{feedback}");
    }
    assert_eq!(git(&world.repo, ["rev-parse", "orchestrator/r"]), before);
    // The next attempt starts on the present target, and the old candidate stays.
    let (ask, workspace) = world.open(&task("two"), 3).await;
    write(&workspace.path, "README.md", "one\nTWO by both\nthree\n");
    let again = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    world.merge(&task("two"), 3, &again).await;
    assert_eq!((world.merges_of("one"), world.merges_of("two")), (1, 1));
    let kept = format!("refs/orchestrator/r/kept/two/candidate-{}", &two.change.as_str()[..12]);
    assert_eq!(git(&world.repo, ["rev-parse", &kept]), two.change.as_str());
}

#[tokio::test]
async fn a_conflict_shows_its_lines_however_long_its_marks_are_and_stays_short_however_many_there_are()
 {
    let prepare = |repo: &Path| {
        write(repo, ".gitattributes", "*.md conflict-marker-size=20\n");
        (0..500).for_each(|n| write(repo, format!("many/{n}"), "old\n"));
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "many"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let [one, two] = ["one", "two"].map(|name| {
        let long = format!("by {name}\n{}", "x\n".repeat(3000));
        let many = (0..500).map(|n| (format!("many/{n}"), long.clone()));
        many.chain([("README.md".to_owned(), long.clone())]).collect::<Vec<_>>()
    });
    let mut sealed = Vec::new();
    for (token, all) in [(1, one), (2, two)] {
        let all: Vec<_> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        sealed.push(world.work(&task(&format!("t{token}")), token, &all).await);
    }
    world.merge(&task("t1"), 3, &sealed[0]).await;
    let feedback = conflict(world.propose(&task("t2"), 4, &sealed[1]).await);
    for part in ["README.md:\n@ line 1\n<<<<<<< the target\nby one\n", "and 461 more"] {
        assert!(feedback.contains(part), "{part} is not in:\n{feedback}");
    }
    assert!(feedback.len() < 60_000, "{}", feedback.len());
}

#[tokio::test]
async fn a_conflict_of_any_kind_is_feedback() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("one"), 1).await;
    std::fs::remove_file(workspace.path.join("src/a.rs")).unwrap();
    write(&workspace.path, "bin", b"\0\x01");
    write(&workspace.path, "ñ\nx", "one\n");
    let one = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    let (ask, workspace) = world.open(&task("two"), 2).await;
    write(&workspace.path, "src/a.rs", "changed\n");
    write(&workspace.path, "bin", b"\0\x02");
    write(&workspace.path, "ñ\nx", "two\n");
    let two = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    world.merge(&task("one"), 1, &one).await;
    let feedback = conflict(world.propose(&task("two"), 2, &two).await);
    for part in ["`src/a.rs`", "`bin`", "`ñ\\nx`", "modify/delete"] {
        assert!(feedback.contains(part), "{part} is not in:\n{feedback}");
    }
}

#[tokio::test]
async fn files_and_directories_in_each_others_way_are_named_as_they_are_and_by_whom() {
    let prepare = |repo: &Path| {
        for number in 0..4 {
            write(repo, format!("lib/{number}"), format!("line {number}\n").repeat(40));
        }
        write(repo, "long", "line\n".repeat(60));
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "more"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let (ask, workspace) = world.open(&task("one"), 1).await;
    write(&workspace.path, "x/y", "1");
    git(&workspace.path, ["mv", "lib", "library"]);
    git(&workspace.path, ["mv", "long", "other"]);
    let one = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    let way = world.work(&task("way"), 2, &[("x", "2")]).await;
    let inside = world.work(&task("inside"), 3, &[("lib/new", "x\n")]).await;
    let (ask, workspace) = world.open(&task("gone"), 4).await;
    std::fs::remove_file(workspace.path.join("long")).unwrap();
    let gone = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    world.merge(&task("one"), 5, &one).await;
    for (name, sealed, files) in [
        ("way", &way, "Files: `x`\n"),
        ("inside", &inside, "`library/new`"),
        ("gone", &gone, "Files: `long`, `other`\n"),
    ] {
        world.fence(&task(name), 6).await;
        let feedback = conflict(world.propose(&task(name), 6, sealed).await);
        assert!(feedback.contains(files), "{files} is not in:\n{feedback}");
        assert!(feedback.contains("(task one)"), "{feedback}");
        assert!(!feedback.contains(sealed.change.as_str()), "{feedback}");
        assert!(feedback.contains("your change"), "{feedback}");
    }
}

#[tokio::test]
async fn what_the_target_says_of_merging_a_file_is_heeded_and_what_a_change_says_is_not() {
    let numbers = |other: usize| {
        let line = |at: usize| if at == other { "x\n".to_owned() } else { format!("{at}\n") };
        (0..40).map(line).collect::<String>()
    };
    let prepare = |repo: &Path| {
        write(repo, ".gitattributes", "lock -merge\nnews merge=union\n");
        write(repo, "lock", numbers(40));
        write(repo, "plain", numbers(40));
        write(repo, "news", "old\n");
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "more"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let (at_3, at_33) = (numbers(3), numbers(33));
    let files = [("lock", &*at_3), ("news", "one\nold\n"), ("plain", &at_3)];
    let one = world.work(&task("one"), 1, &files).await;
    let lock = world.work(&task("lock"), 2, &[("lock", &*at_33)]).await;
    let news = world.work(&task("news"), 3, &[("news", "two\nold\n")]).await;
    let files = [("plain", &*at_33), (".gitattributes", "plain -merge\n")];
    let plain = world.work(&task("plain"), 4, &files).await;
    world.merge(&task("one"), 5, &one).await;
    world.fence(&task("lock"), 6).await;
    let feedback = conflict(world.propose(&task("lock"), 6, &lock).await);
    assert!(feedback.contains("`lock`"), "{feedback}");
    world.merge(&task("plain"), 7, &plain).await;
    world.fence(&task("news"), 8).await;
    conflict(world.propose(&task("news"), 8, &news).await);
}

#[tokio::test]
async fn p18_a_rename_on_the_target_cannot_lead_a_change_out_of_its_scope() {
    let world = World::new().await;
    let body = "line\n".repeat(50);
    let zero = world.work(&task("zero"), 1, &[("src/long.rs", &body)]).await;
    world.merge(&task("zero"), 1, &zero).await;
    let spec = scoped("two", &["src"]);
    let two = world.work(&spec, 2, &[("src/long.rs", &format!("{body}more\n"))]).await;
    let (ask, workspace) = world.open(&task("one"), 3).await;
    git(&workspace.path, ["mv", "src/long.rs", "README.rs"]);
    let one = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    world.merge(&task("one"), 3, &one).await;
    let feedback = conflict(world.propose(&spec, 2, &two).await);
    assert!(feedback.contains("`README.rs`"), "{feedback}");
}

#[tokio::test]
async fn p18_a_rename_on_the_target_cannot_have_a_link_lead_out_of_the_tree() {
    let link = |target: &str, at: &Path| {
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        drop(std::fs::remove_file(at));
        std::os::unix::fs::symlink(target, at).unwrap();
    };
    let prepare = |repo: &Path| {
        write(repo, "a/b/stays", "x");
        link("stays", &repo.join("a/b/link"));
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "a link"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let (ask, workspace) = world.open(&task("two"), 1).await;
    link("../../src", &workspace.path.join("a/b/link"));
    let two = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    let (ask, workspace) = world.open(&task("one"), 2).await;
    git(&workspace.path, ["mv", "a/b/link", "link"]);
    let one = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    world.merge(&task("one"), 3, &one).await;
    let feedback = conflict(world.propose(&task("two"), 4, &two).await);
    assert!(feedback.contains("lead out") && feedback.contains("`link`"), "{feedback}");
}

#[tokio::test]
async fn p17_an_old_merger_that_wakes_up_late_changes_nothing() {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
    world.fence(&task("t"), 1).await;
    let (old, _) = clean(world.propose(&task("t"), 1, &sealed).await);
    let successor = world.again().await;
    successor.fence(&world.run_id(), &task("t").id, FencingToken(2)).await.unwrap();
    let before = git(&world.repo, ["rev-parse", "orchestrator/r"]);
    assert_eq!(world.apply(&task("t"), 1, &old).await, Applied::Fenced);
    assert_eq!(git(&world.repo, ["rev-parse", "orchestrator/r"]), before);
    // A fence never goes back, and is known to whoever opens the run.
    world.fence(&task("t"), 1).await;
    assert_eq!(world.apply(&task("t"), 1, &old).await, Applied::Fenced);
    assert_eq!(successor.greatest_fence(&world.run_id()).await.unwrap(), FencingToken(2));
    let intent = world.merge(&task("t"), 2, &sealed).await;
    assert_eq!(world.apply(&task("t"), 1, &old).await, Applied::Fenced);
    assert_eq!(world.apply(&task("t"), 2, &intent).await, Applied::Merged, "sent twice");
    assert_eq!(world.merges_of("t"), 1);
}

#[tokio::test]
async fn a_target_that_moved_is_told_from_a_fence() {
    let world = World::new().await;
    let one = world.work(&task("one"), 1, &[("src/a.rs", "x\n")]).await;
    let two = world.work(&task("two"), 2, &[("src/b.rs", "y\n")]).await;
    world.fence(&task("one"), 1).await;
    let (intent, _) = clean(world.propose(&task("one"), 1, &one).await);
    world.merge(&task("two"), 2, &two).await;
    assert_eq!(world.apply(&task("one"), 1, &intent).await, Applied::Moved);
    assert_eq!(world.apply(&task("none"), 1, &intent).await, Applied::Fenced, "never fenced");
    world.merge(&task("one"), 1, &one).await;
    assert_eq!((world.merges_of("one"), world.merges_of("two")), (1, 1));
}

#[tokio::test]
async fn p17_a_crash_between_any_two_steps_merges_exactly_once() {
    for crash_after in 0..4 {
        let world = World::new().await;
        let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
        let mut announced = None;
        if crash_after > 0 {
            world.fence(&task("t"), 1).await;
        }
        if crash_after > 1 {
            announced = Some(clean(world.propose(&task("t"), 1, &sealed).await).0);
        }
        if crash_after > 2 {
            world.apply(&task("t"), 1, announced.as_ref().unwrap()).await;
        }
        // A new process, under a new lease, knows of the old one only what was recorded.
        let run = world.again().await;
        run.fence(&world.run_id(), &task("t").id, FencingToken(2)).await.unwrap();
        let is_merged = match &announced {
            Some(intent) => run.is_merged(&intent.merged).await.unwrap(),
            None => false,
        };
        assert_eq!(is_merged, crash_after == 3);
        if !is_merged {
            world.merge(&task("t"), 2, &sealed).await;
        }
        assert_eq!(world.merges_of("t"), 1, "after step {crash_after}");
    }
}

#[tokio::test]
async fn merges_that_race_are_all_merged_once() {
    let world = World::new().await;
    let mut candidates = Vec::new();
    for number in 0..6_u64 {
        let name = format!("t{number}");
        let file = format!("src/{name}");
        candidates.push(world.work(&task(&name), number + 1, &[(&file, "x\n")]).await);
        world.fence(&task(&name), number + 1).await;
    }
    let merges = candidates.into_iter().zip(0_u64..).map(|(candidate, number)| {
        let (run, id) = (world.run.clone(), world.run_id());
        tokio::spawn(async move {
            let (spec, token) = (task(&format!("t{number}")), FencingToken(number + 1));
            loop {
                let proposal = run.propose(&id, &spec, token, &candidate).await.unwrap();
                let (intent, _) = clean(proposal);
                if run.apply(&id, &spec.id, token, &intent).await.unwrap() == Applied::Merged {
                    break;
                }
            }
        })
    });
    let merges: Vec<_> = merges.collect();
    for merge in merges {
        merge.await.unwrap();
    }
    for number in 0..6 {
        assert_eq!(world.merges_of(&format!("t{number}")), 1);
    }
}

#[tokio::test]
async fn a_branch_that_somebody_checks_out_meanwhile_is_not_moved() {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
    world.fence(&task("t"), 1).await;
    let (intent, _) = clean(world.propose(&task("t"), 1, &sealed).await);
    git(&world.repo, ["switch", "-q", "orchestrator/r"]);
    let applied = world.run.apply(&world.run_id(), &task("t").id, FencingToken(1), &intent).await;
    let err = applied.unwrap_err().chain();
    assert!(err.contains("checked out") && err.contains("the repo"), "{err}");
    git(&world.repo, ["switch", "-q", "main"]);
    assert_eq!(world.apply(&task("t"), 1, &intent).await, Applied::Merged);
}

#[tokio::test]
async fn a_branch_that_somebody_made_another_name_of_one_does_not_move_that_one() {
    let world = World::new().await;
    let one = world.work(&task("one"), 1, &[("src/a.rs", "one\n")]).await;
    world.fence(&task("one"), 2).await;
    let (intent, _) = clean(world.propose(&task("one"), 2, &one).await);
    let main = git(&world.repo, ["rev-parse", "main"]);
    git(&world.repo, ["symbolic-ref", "refs/heads/orchestrator/r", "refs/heads/main"]);
    let applied = world.run.apply(&world.run_id(), &task("one").id, FencingToken(2), &intent).await;
    assert!(applied.is_err(), "{applied:?}");
    let opened = GitRun::open(World::config(&world.repo, world.dir.path())).await;
    assert!(matches!(&opened, Err(GitError::BranchSymbolic { other, .. }) if other == "main"));
    assert_eq!(git(&world.repo, ["rev-parse", "main"]), main);
    // Neither does any other ref that is written.
    git(&world.repo, ["symbolic-ref", "-d", "refs/heads/orchestrator/r"]);
    git(&world.repo, ["branch", "orchestrator/r", "main"]);
    git(&world.repo, ["symbolic-ref", "refs/orchestrator/r/task/two", "refs/heads/main"]);
    world.work(&task("two"), 3, &[("src/b.rs", "two\n")]).await;
    assert_eq!(git(&world.repo, ["rev-parse", "main"]), main);
}

#[tokio::test]
async fn a_change_that_is_nowhere_is_not_merged() {
    let world = World::new().await;
    let nowhere = ChangeId::parse(&"0".repeat(39)).unwrap();
    assert!(world.run.is_merged(&nowhere).await.is_err());
    let nowhere = ChangeId::parse(&"1".repeat(40)).unwrap();
    assert!(!world.run.is_merged(&nowhere).await.unwrap());
    let wrong = orchestrator_core::RunId::parse("other").unwrap();
    assert!(world.run.greatest_fence(&wrong).await.is_err());
    let mut ask = world.ask(&task("t"), 1, Start::OnTarget);
    ask.run = wrong;
    assert!(world.run.open(&ask).await.is_err());
}

#[tokio::test]
async fn p17_a_merge_that_is_killed_at_any_moment_happens_once() {
    let world = World::new().await;
    for number in 0..12_u64 {
        let spec = task(&format!("t{number}"));
        let token = number * 2 + 1;
        let sealed = world.work(&spec, token, &[(&format!("src/{number}"), "x\n")]).await;
        world.fence(&spec, token).await;
        let (intent, _) = clean(world.propose(&spec, token, &sealed).await);
        let (id, limit) = (world.run_id(), std::time::Duration::from_millis(number * 2));
        let applying = world.run.apply(&id, &spec.id, FencingToken(token), &intent);
        drop(tokio::time::timeout(limit, applying).await);
        world.fence(&spec, token + 1).await;
        if !world.run.is_merged(&intent.merged).await.unwrap() {
            world.merge(&spec, token + 1, &sealed).await;
        }
        assert_eq!(world.merges_of(spec.id.as_str()), 1, "killed after {limit:?}");
    }
}

#[tokio::test]
async fn a_branch_that_somebody_deleted_is_not_quietly_begun_anew() {
    let world = World::new().await;
    let one = world.work(&task("one"), 1, &[("src/a.rs", "x\n")]).await;
    let intent = world.merge(&task("one"), 1, &one).await;
    git(&world.repo, ["branch", "-q", "-D", "orchestrator/r"]);
    let ask = world.ask(&task("two"), 2, Start::OnTarget);
    assert!(world.run.open(&ask).await.is_err());
    assert!(world.run.is_merged(&intent.merged).await.is_err());
    let config = World::config(&world.repo, world.dir.path());
    let err = GitRun::open(config).await.unwrap_err().to_string();
    let remedy = format!("git branch orchestrator/r {}", intent.merged);
    assert!(err.contains(&remedy), "{err}");
    git(&world.repo, remedy.split(' ').skip(1));
    let workspace = world.again().await.open(&ask).await.unwrap();
    assert_eq!(workspace.base, intent.merged);
}

#[tokio::test]
async fn a_branch_that_somebody_moved_back_is_not_quietly_gone_on_with() {
    let world = World::new().await;
    let one = world.work(&task("one"), 1, &[("src/a.rs", "x\n")]).await;
    let two = world.work(&task("two"), 2, &[("src/b.rs", "x\n")]).await;
    let intent = world.merge(&task("one"), 3, &one).await;
    git(&world.repo, ["branch", "-f", "orchestrator/r", "main"]);
    world.fence(&task("two"), 4).await;
    let (run, id) = (&world.run, world.run_id());
    let err = run.propose(&id, &task("two"), FencingToken(4), &two).await.unwrap_err();
    assert!(err.chain().contains("has not all that the run merged"), "{}", err.chain());
    let config = World::config(&world.repo, world.dir.path());
    let err = GitRun::open(config).await.unwrap_err().to_string();
    let remedy = format!("git branch -f orchestrator/r {}", intent.merged);
    assert!(err.contains(&remedy), "{err}");
    git(&world.repo, remedy.split(' ').skip(1));
    // Commits of others on top are welcome.
    let tree = format!("{}^{{tree}}", intent.merged);
    let onto = intent.merged.as_str();
    let person = git(&world.repo, ["commit-tree", &tree, "-p", onto, "-m", "by a person"]);
    git(&world.repo, ["branch", "-f", "orchestrator/r", &person]);
    let world = World { run: world.again().await, ..world };
    assert_eq!(world.merge(&task("two"), 5, &two).await.onto.as_str(), person);
    // A person who means it says so.
    git(&world.repo, ["branch", "-f", "orchestrator/r", "main"]);
    git(&world.repo, ["update-ref", "-d", "refs/orchestrator/r/merged"]);
    drop(world.again().await);
}

#[tokio::test]
async fn a_merge_commit_has_the_candidate_as_its_second_parent() {
    let configure = |config: &mut GitConfig| {
        config.strategy = Strategy::MergeCommit;
        config.subject = "{run}: {task} ({attempt}) {x}".to_owned();
    };
    let world = World::with(|_| {}, configure).await;
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    let two = world.work(&task("two"), 2, &[("two", "2\n")]).await;
    for (name, token, sealed) in [("one", 3, &one), ("two", 4, &two)] {
        let intent = world.merge(&task(name), token, sealed).await;
        assert!(world.run.is_merged(&sealed.change).await.unwrap());
        let parents = git(&world.repo, ["show", "-s", "--format=%P", intent.merged.as_str()]);
        assert_eq!(parents, format!("{} {}", intent.onto, sealed.change));
    }
    let log = git(&world.repo, ["log", "--first-parent", "--format=%s", "orchestrator/r"]);
    assert_eq!(log, "r: two (1) {x}\nr: one (1) {x}\nbegin");
    assert_eq!(world.show("orchestrator/r:one"), "1");
    assert_eq!(world.show("orchestrator/r:two"), "2");
}

#[tokio::test]
async fn a_merged_commit_says_run_task_attempt_token_and_cost() {
    let world = World::new().await;
    let mut sealed = Vec::new();
    for (name, token) in [("one", 1), ("two", 2)] {
        let mut ask = world.ask(&task(name), token, Start::OnTarget);
        ask.attempt = 3;
        let workspace = world.run.open(&ask).await.unwrap();
        write(&workspace.path, name, "x\n");
        ask.cost = Cost::Known(Usd::dollars(2));
        sealed.push(candidate(world.run.seal(&ask, &workspace).await.unwrap()));
    }
    world.merge(&task("one"), 7, &sealed[0]).await;
    // The second one is made anew on top of the first, also by a process that did not seal it.
    let world = World { run: world.again().await, ..world };
    world.merge(&task("two"), 8, &sealed[1]).await;
    let format = "--format=%(trailers:only,unfold)";
    let log = git(&world.repo, ["log", "-n2", format, "orchestrator/r"]);
    let expected = format!(
        "Orchestrator-Task: two\nOrchestrator-Run: r\nOrchestrator-Attempt: 3\n\
         Orchestrator-Token: 8\nOrchestrator-Cost: $2.0000\nOrchestrator-Candidate: {}\n\n\
         Orchestrator-Task: one\nOrchestrator-Run: r\nOrchestrator-Attempt: 3\n\
         Orchestrator-Token: 1\nOrchestrator-Cost: $2.0000",
        sealed[1].change
    );
    assert_eq!(log, expected);
}

#[tokio::test]
async fn a_long_history_is_no_obstacle() {
    let long = |repo: &Path| {
        let mut input = String::new();
        for number in 1..=4_000 {
            let from = if number == 1 { "from refs/heads/main^0\n" } else { "" };
            let text = format!(
                "commit refs/heads/main\ncommitter a <a@example.org> {number} +0000\ndata 1\nx\n\
                 {from}M 644 inline old/{}\ndata <<E\n{number}\nE\n\n",
                number % 300
            );
            input.push_str(&text);
        }
        write(repo, ".git/import", input);
        let made = std::process::Command::new("git")
            .args(["fast-import", "--quiet"])
            .current_dir(repo)
            .stdin(std::fs::File::open(repo.join(".git/import")).unwrap())
            .status();
        assert!(made.unwrap().success());
        git(repo, ["reset", "-q", "--hard"]);
    };
    let world = World::with(long, |_| {}).await;
    assert_eq!(git(&world.repo, ["rev-list", "--count", "main"]), "4001");
    let one = world.work(&task("one"), 1, &[("old/7", "by one\n")]).await;
    let two = world.work(&task("two"), 2, &[("old/8", "by two\n")]).await;
    let three = world.work(&task("three"), 3, &[("old/7", "by three\n")]).await;
    world.merge(&task("one"), 4, &one).await;
    world.merge(&task("two"), 5, &two).await;
    world.fence(&task("three"), 6).await;
    let feedback = conflict(world.propose(&task("three"), 6, &three).await);
    assert!(feedback.contains("(task one)") && !feedback.contains("(task two)"), "{feedback}");
    assert_eq!((world.merges_of("one"), world.merges_of("two")), (1, 1));
}
