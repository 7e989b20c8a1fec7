//! Checks that time only goes on in a run that is kept by a store, whatever the clocks do.
#![expect(clippy::missing_panics_doc, reason = "a check panics when the store does not conform")]

use std::time::Duration;

use super::StoreFixture;
use super::samples::{command_id, first_commit, next_commit, owner_id, owner_record, run_id};
use crate::command::Command;
use crate::engine::Engine;
use crate::id::{FencingToken, Seq};
use crate::lease::Owner;
use crate::retry::RetryRules;
use crate::time::{ClockReading, Timestamp, WallTime};

/// Touches by many handles at once, late ones among them, and commits between them: the latest sign
/// of life stands.
pub async fn of_many_touches_the_latest_stands(fixture: &dyn StoreFixture) {
    const TOUCHES: u64 = 15;
    const HANDLES: u64 = 4;
    let run = run_id("r");
    let store = fixture.open().await;
    let mut commit = first_commit("r", "create");
    commit.records.owners = vec![owner_record("o", 1)];
    let mut at = store.commit(&run, &commit).await.expect("commit");
    let mut touching = Vec::new();
    for handle in 0..HANDLES {
        let (store, run) = (fixture.open().await, run.clone());
        touching.push(tokio::spawn(async move {
            for touch in (0..TOUCHES).rev() {
                let now = Timestamp(100 + touch * HANDLES + handle);
                store.touch(&run, &owner_id("o"), now).await.expect("touch");
            }
        }));
    }
    for _ in 0..10 {
        let mut commit = next_commit(at);
        commit.records.owners = vec![owner_record("o", 2)];
        at = store.commit(&run, &commit).await.expect("commit");
    }
    for touching in touching {
        touching.await.expect("a handle panicked");
    }
    let loaded = fixture.open().await.load(&run).await.expect("load").expect("the run is there");
    let latest = Timestamp(100 + TOUCHES * HANDLES - 1);
    assert_eq!(loaded.owners.first().map(|owner| owner.touched_at), Some(latest));
}

/// Process after process drives the run, each with clocks that are behind those of the one before:
/// the run's time and all that is dated by it only goes on.
pub async fn clocks_that_go_back_take_no_run_back(fixture: &dyn StoreFixture) {
    let run = run_id("r");
    let mut last = Timestamp(0);
    for process in 0..4_u32 {
        let store = fixture.open().await;
        let mut engine = match store.load(&run).await.expect("load") {
            Some(snapshot) => Engine::restore(&snapshot).expect("what was committed is there"),
            None => Engine::new(run.clone()),
        };
        // Two on each boot, the wall clock an hour back each time.
        let wall = WallTime(100_000_000 - u64::from(process) * 3_600_000);
        let boot_ms = if process.is_multiple_of(2) { 90_000 } else { 1_000 };
        let boot_id = format!("boot {}", process / 2);
        let mut reading = ClockReading { boot_id: boot_id.clone(), boot_ms, wall };
        let time = |engine: &Engine, reading: &ClockReading| {
            let anchor = engine.run().and_then(|run| run.anchor.as_ref());
            anchor.map_or(Timestamp(0), |anchor| anchor.now(reading))
        };
        let mut commands = Vec::new();
        if process == 0 {
            commands.push(Command::CreateRun { rules: RetryRules::default() });
        }
        let owner = |process: u32| {
            let id = owner_id(&format!("host/{process}"));
            let host = "host".to_owned();
            Owner { id, host, boot_id: boot_id.clone(), pid: process, start_time: 1 }
        };
        commands.push(Command::OpenDriver {
            owner: owner(process),
            reading: reading.clone(),
            ttl: Duration::from_secs(60),
            token_floor: FencingToken(0),
            ended: process.checked_sub(1).map(|former| owner(former).id),
        });
        let actor = || "a person".to_owned();
        commands.push(Command::Pause { actor: actor(), reason: "clocks".to_owned() });
        commands.push(Command::Resume { actor: actor() });
        for (command, number) in commands.iter().zip(0..) {
            let id = command_id(&format!("{process}/{number}"));
            let now = time(&engine, &reading);
            engine.submit(now, &id, command).expect("the command makes sense");
            reading.boot_ms += 5_000;
        }
        let commit = engine.batch().expect("something happened");
        store.commit(&run, &commit).await.expect("commit");
        engine.accept();
        let id = owner(process).id;
        store.touch(&run, &id, time(&engine, &reading)).await.expect("touch");
        store.touch(&run, &id, Timestamp(0)).await.expect("touch");

        let loaded = store.load(&run).await.expect("load").expect("the run is there");
        assert!(loaded.run.last_at >= last, "from {last} back to {}", loaded.run.last_at);
        last = loaded.run.last_at;
        let touched = loaded.owners.iter().find(|record| record.owner.id == id);
        assert!(touched.is_some_and(|record| record.touched_at >= last), "{touched:?}");
    }
    let log = fixture.open().await.events(&run, Seq(0), usize::MAX).await.expect("events");
    assert!(log.is_sorted_by_key(|stored| stored.event.at), "{log:?}");
    assert!(last > Timestamp(0));
}
