//! The simulated worlds over the real store.

use std::env;
use std::sync::Arc;

use orchestrator_core::testing::{Fault, FaultStore, Simulation};

use crate::support::TempStore;

/// How many worlds; each takes some hundred commits.
fn worlds() -> u64 {
    let asked = env::var("STORE_TEST_WORLDS").ok();
    asked.map_or(5, |worlds| worlds.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_worlds_go_over_this_store_as_over_none_and_leave_a_sound_file() {
    for seed in 0..worlds() {
        for world in [Simulation::new(seed), Simulation::new(seed).safety()] {
            let fixture = TempStore::new();
            let store = Arc::new(fixture.sqlite().await);
            let ended =
                world.run_over(Arc::<_>::clone(&store) as _).unwrap_or_else(|v| panic!("{v}"));
            assert_eq!(ended, world.run().unwrap(), "seed {seed}: a store changes nothing");
            let health = store.doctor().await.unwrap();
            assert!(health.faults.is_empty(), "seed {seed}: {:?}", health.faults);
            assert_eq!(health.events, u64::try_from(ended.events).unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_the_store_change_nothing_in_a_simulated_world() {
    const FAULTS: [Fault; 4] = [Fault::Before, Fault::After, Fault::Lost, Fault::Duplicate];
    for seed in 100..100 + worlds() {
        let (fixture, world) = (TempStore::new(), Simulation::new(seed));
        let store = Arc::new(fixture.sqlite().await);
        let faulty = FaultStore::seeded(Arc::clone(&store), seed, 200, &FAULTS);
        let ended = world.run_over(Arc::new(faulty)).unwrap_or_else(|v| panic!("{v}"));
        assert_eq!(ended, world.run().unwrap(), "seed {seed}");
        let health = store.doctor().await.unwrap();
        assert!(health.faults.is_empty(), "seed {seed}: {:?}", health.faults);
    }
}
