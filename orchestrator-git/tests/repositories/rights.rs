//! Files and directories that an agent closed to their owner.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use orchestrator_core::port::{Start, Workspaces as _};

use crate::world::{World, candidate, task, write};

fn close(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether rights hold for this process. Where they do not, as for root, the test is carried out by
/// a process without that privilege.
fn rights_hold(test: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "closed", "x");
    close(&dir.path().join("closed"), 0);
    if fs::read(dir.path().join("closed")).is_err() {
        return true;
    }
    let mut child = Command::new("setpriv");
    child.arg("--bounding-set=-dac_override,-dac_read_search");
    child.arg(std::env::current_exe().unwrap()).args(["--exact", &format!("rights::{test}")]);
    // Where there is no such program there is nothing to see.
    if let Ok(output) = child.output() {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    false
}

#[tokio::test]
async fn p19_work_behind_closed_doors_is_sealed_and_kept() {
    if !rights_hold("p19_work_behind_closed_doors_is_sealed_and_kept") {
        return;
    }
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "new/inside/x", "work\n");
    close(&workspace.path.join("new/inside"), 0o400);
    close(&workspace.path.join("new"), 0);
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(world.show(sealed.change.as_str()).contains("new/inside/x"));
    for (token, closed) in [(2, "src"), (4, "src/a.rs"), (6, "."), (8, "..")] {
        let (_, workspace) = world.open(&task("u"), token).await;
        write(&workspace.path, "src/a.rs", format!("work {token}\n"));
        write(&workspace.path, "src/new.rs", format!("work {token}\n"));
        close(&workspace.path.join(closed), 0);
        let ask = world.ask(&task("u"), token + 1, Start::OnTarget);
        let workspace = world.run.open(&ask).await.unwrap();
        assert_eq!(fs::read_to_string(workspace.path.join("src/a.rs")).unwrap(), "fn a() {}\n");
        assert!(!workspace.path.join("src/new.rs").exists(), "{closed}");
        let kept = world.run.kept().await.unwrap();
        let kept = kept.iter().find(|kept| kept.name.ends_with(&format!("/1-{token}"))).unwrap();
        for file in ["src/a.rs", "src/new.rs"] {
            let text = world.show(&format!("{}:{file}", kept.name));
            assert_eq!(text, format!("work {token}"), "{closed}");
        }
    }
    assert!(world.run.set_aside().is_empty());
}

#[tokio::test]
async fn what_may_not_be_written_in_a_workspace_is_removed_with_it() {
    if !rights_hold("what_may_not_be_written_in_a_workspace_is_removed_with_it") {
        return;
    }
    for spares_max in [0, 1] {
        let world = World::with(|_| {}, |config| config.spares_max = spares_max).await;
        let (_, workspace) = world.open(&task("t"), 1).await;
        // As a cache of modules is.
        let scratch = workspace.scratch.clone().unwrap();
        for dir in [&scratch, &workspace.path.join("target")] {
            write(dir, "mod/cache/x", "x");
            close(&dir.join("mod/cache/x"), 0o444);
            close(&dir.join("mod/cache"), 0o555);
            close(&dir.join("mod"), 0o555);
        }
        close(&workspace.path, 0o555);
        close(workspace.path.parent().unwrap(), 0o555);
        world.run.release(&world.run_id(), &task("t").id).await.unwrap();
        let (_, workspace) = world.open(&task("u"), 2).await;
        assert!(!workspace.path.join("target").exists());
        assert_eq!(fs::read_dir(workspace.scratch.unwrap()).unwrap().count(), 0);
        world.run.release(&world.run_id(), &task("u").id).await.unwrap();
        world.run.clear_spares().await.unwrap();
    }
}
