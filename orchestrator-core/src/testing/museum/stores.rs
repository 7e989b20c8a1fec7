//! The suite of stores, on the reference store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use crate::id::Seq;
use crate::memory::MemoryStore;
use crate::port::Store as _;
use crate::testing::conformance::samples::{first_commit, run_id};
use crate::testing::conformance::{self, StoreFixture};

pub(super) fn check() -> Result<(), String> {
    // One thread: a fault is put in on this one only.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|err| err.to_string())?;
    runtime.block_on(async {
        let fresh = MemoryStore::new;
        woken(&fresh()).await?;
        let fixture = |store: MemoryStore| -> Box<dyn StoreFixture> { Box::new(store) };
        conformance::records_come_back_as_they_were_committed(&*fixture(fresh())).await;
        conformance::plans_are_loaded_in_their_order(&*fixture(fresh())).await;
        conformance::a_touch_never_goes_back(&*fixture(fresh())).await;
        conformance::blobs_are_addressed_by_content_and_kept_once(&*fixture(fresh())).await;
        conformance::events_are_read_in_order_and_without_gaps_in_pages_of_any_size(&*fixture(
            fresh(),
        ))
        .await;
        conformance::a_stale_commit_is_refused_and_writes_nothing(&*fixture(fresh())).await;
        conformance::a_repeated_command_is_refused_and_keeps_its_first_answer(&*fixture(fresh()))
            .await;
        conformance::a_command_twice_in_one_commit_is_refused(&*fixture(fresh())).await;
        conformance::prune_forgets_answers_and_nothing_else(&*fixture(fresh())).await;
        Ok(())
    })
}

/// How often somebody was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The suite's own check of this would wait for a minute.
async fn woken(store: &MemoryStore) -> Result<(), String> {
    let run = run_id("r");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut changed = store.changed(&run, Seq(0));
    if changed.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
        return Err("a change is told that never was".to_owned());
    }
    let commit = store.commit(&run, &first_commit("r", "create")).await;
    commit.map_err(|err| err.to_string())?;
    if woken.0.load(Ordering::Relaxed) == 0 {
        return Err("P15: who waits for a change is not woken".to_owned());
    }
    Ok(())
}
