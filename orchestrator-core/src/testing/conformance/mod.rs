//! The suite that every [`Store`] passes: what it does not check is not promised.
//!
//! ```
//! use orchestrator_core::{MemoryStore, store_conformance};
//! # fn main() {}
//! store_conformance!(MemoryStore::new());
//! ```
//!
//! Some checks need trouble that only the fixture can make, a full disk say: a fixture that says how
//! ([`StoreFixture::trouble`]) has them made, one that does not is told what was not tried.
//!
//! A store that outlives its process runs the second part too, in which real processes write, race
//! and are killed: see [`store_process_conformance!`](crate::store_process_conformance).
//!
//! The macros need `tokio` with the features `macros` and `rt-multi-thread` among the dev
//! dependencies. Each check is a plain function too, which panics when the store does not conform.

mod clocks;
mod commits;
mod faults;
mod processes;
mod reads;
pub mod samples;
pub mod stamped;
mod troubles;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::{clocks::*, commits::*, faults::*, processes::*, reads::*, troubles::*};
use crate::memory::MemoryStore;
use crate::port::{Cause, Store};

/// A store to be checked, fresh and without runs; dropping it cleans up.
#[async_trait]
pub trait StoreFixture: Send + Sync {
    /// Opens one more handle on the same store.
    async fn open(&self) -> Arc<dyn Store>;

    /// Opens one more handle, or gives the reason why that is refused in a trouble.
    async fn try_open(&self) -> Result<Arc<dyn Store>, Cause> {
        Ok(self.open().await)
    }

    /// Begins a trouble or ends it; `false` when this fixture has no way to make it, and the check
    /// of it prints that it was not tried.
    async fn trouble(&self, _trouble: Trouble, _is_on: bool) -> bool {
        false
    }
}

#[async_trait]
impl StoreFixture for MemoryStore {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}

/// Makes a `#[tokio::test]` of each check of the suite; the expression makes a fresh
/// [`StoreFixture`](crate::testing::StoreFixture) for each.
#[macro_export]
macro_rules! store_conformance {
    ($fixture:expr) => {
        $crate::store_conformance! {
            @checks $fixture;
            nothing_is_known_of_a_run_that_was_never_committed,
            records_come_back_as_they_were_committed,
            every_run_state_comes_back,
            the_greatest_numbers_come_back,
            every_event_comes_back,
            every_answer_comes_back,
            a_record_replaces_the_one_of_its_name_and_no_other,
            header_and_task_agree_with_load,
            events_are_read_in_order_and_without_gaps_in_pages_of_any_size,
            blobs_are_addressed_by_content_and_kept_once,
            plans_are_loaded_in_their_order,
            a_touch_never_goes_back,
            runs_are_listed_by_name,
            odd_ids_are_kept_apart,
            two_runs_in_one_store_do_not_mix,
            what_one_handle_commits_another_reads,
            a_large_commit_comes_back_whole,
            racing_commits_have_one_winner_for_each_position,
            a_command_sent_by_many_is_committed_once,
            a_stale_commit_is_refused_and_writes_nothing,
            a_repeated_command_is_refused_and_keeps_its_first_answer,
            a_command_twice_in_one_commit_is_refused,
            the_first_commit_brings_the_record_of_the_run,
            a_commit_without_events_keeps_the_position,
            prune_forgets_answers_and_nothing_else,
            a_change_wakes_who_waits_for_it,
            loading_is_consistent_while_commits_go_on,
            texts_of_any_characters_come_back,
            a_tail_sees_every_event_once_and_in_order,
            a_run_of_many_tasks_is_kept_and_read_in_parts,
            a_commit_whose_answer_is_lost_is_settled_by_its_command,
            faults_at_many_calls_leave_each_commit_there_once,
            a_commit_that_nobody_waits_for_any_more_is_whole_or_not_there,
            of_many_touches_the_latest_stands,
            clocks_that_go_back_take_no_run_back,
            a_store_that_may_only_be_read_is_not_written,
            a_full_store_loses_nothing_and_goes_on_when_there_is_room,
            a_commit_that_fails_in_its_middle_leaves_nothing,
            an_older_format_is_brought_to_the_present_one_with_all_that_is_in_it,
            a_newer_format_is_refused_unharmed,
        }
    };
    (@checks $fixture:expr; $($check:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $check() {
                let fixture = $fixture;
                $crate::testing::conformance::$check(&fixture).await;
            }
        )+
    };
}

/// Makes a `#[tokio::test]` of each check with processes of their own.
///
/// The first expression makes a fresh [`SharedFixture`](crate::testing::conformance::SharedFixture)
/// for each; the second is a function that opens the store of an address in another process. The
/// environment variable `STORE_CONFORMANCE_KILLS` says how many writers are killed (12).
///
/// ```no_run
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use orchestrator_core::port::Store;
/// use orchestrator_core::store_process_conformance;
/// use orchestrator_core::testing::StoreFixture;
/// use orchestrator_core::testing::conformance::SharedFixture;
/// # use orchestrator_core::MemoryStore;
///
/// /// A database of its own, removed when this is dropped.
/// struct Fixture {
///     url: String,
/// }
///
/// impl Fixture {
///     fn new() -> Self {
///         Self { url: "my-database://fresh".to_owned() }
///     }
/// }
///
/// async fn open(url: String) -> Arc<dyn Store> {
///     # drop(url);
///     Arc::new(MemoryStore::new()) // your store, connected to the URL
/// }
///
/// #[async_trait]
/// impl StoreFixture for Fixture {
///     async fn open(&self) -> Arc<dyn Store> {
///         open(self.url.clone()).await
///     }
/// }
///
/// impl SharedFixture for Fixture {
///     fn address(&self) -> String {
///         self.url.clone()
///     }
/// }
///
/// store_process_conformance!(Fixture::new(), open);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! store_process_conformance {
    ($fixture:expr, $open:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "is started by other tests as a process of its own"]
        async fn conformance_process() {
            $crate::testing::conformance::carry_out($open).await;
        }

        $crate::store_process_conformance! {
            @checks $fixture;
            killed_writers_leave_whole_commits_and_every_acknowledged_one,
            processes_that_race_each_win_their_own_positions,
            a_commit_of_another_process_is_noticed,
        }
    };
    (@checks $fixture:expr; $($check:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let (module, test) = (module_path!(), "conformance_process");
                let program = $crate::testing::conformance::Program { module, test };
                let fixture = $fixture;
                $crate::testing::conformance::$check(&fixture, program).await;
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    store_conformance!(MemoryStore::new());
}

/// Faults that a caller must not notice.
#[cfg(test)]
mod harmless_faults {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Fault, FaultStore};

    struct Faulty(MemoryStore);

    #[async_trait]
    impl StoreFixture for Faulty {
        async fn open(&self) -> Arc<dyn Store> {
            let faults = [Fault::Delay(Duration::from_millis(1)), Fault::Duplicate];
            Arc::new(FaultStore::seeded(Arc::new(self.0.clone()), 7, 300, &faults))
        }
    }

    store_conformance!(Faulty(MemoryStore::new()));
}
