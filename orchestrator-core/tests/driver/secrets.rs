//! What must not be stored or shown.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use orchestrator_core::port::{Activity, ActivityKind, Observer, Progress};
use orchestrator_core::testing::{Scripted, VirtualHost};
use orchestrator_core::{
    EventKind, Interruption, Mask, Outcome, Phase, RunEnd, StageEnd, StageKind, StoredEvent,
};
use tokio_util::sync::CancellationToken;

use super::{World, id, plan, start};

const KEY: &str = "sk-ant-api03-0123456789abcdefghij";
const VALUE: &str = "open sesame";

/// Keeps what observers are shown.
#[derive(Debug, Default)]
struct Shown(Mutex<String>);

impl Observer for Shown {
    fn committed(&self, events: &[StoredEvent], _: &Progress) {
        let events = format!("{events:?}");
        self.0.lock().unwrap().push_str(&events);
    }

    fn activity(&self, activity: &Activity) {
        if let ActivityKind::Said(words) = &activity.kind {
            self.0.lock().unwrap().push_str(words);
        }
    }
}

#[tokio::test]
async fn secrets_reach_neither_feedback_nor_questions_nor_observers() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let world = World::new(move |cx| {
        seen.lock().unwrap().extend(cx.feedback.clone());
        cx.activity.say(ActivityKind::Said(format!("tries {KEY} and {VALUE}")));
        if cx.stage.kind == StageKind::Run && cx.attempt == 1 {
            return StageEnd::rejected(format!("401 for {KEY}"));
        }
        StageEnd::free(Outcome::Question { text: format!("is {VALUE} right, or {KEY}?") })
    });
    let shown = Arc::new(Shown::default());
    let observer = Arc::<Shown>::clone(&shown);
    let orchestrator = world.orchestrator_masking(Mask::keys().with_value(VALUE), |ports| {
        ports.observer = observer;
    });
    let end = orchestrator.drive(Some(plan(&[("a", &[])])), CancellationToken::new()).await;
    assert_eq!(end.unwrap(), RunEnd::Failed);
    assert_eq!(told.lock().unwrap()[..], ["401 for [masked]"]);
    let Phase::Escalated(escalation) = world.phase("a").await else { panic!() };
    let text = world.store.blob(&super::run(), &escalation.text.unwrap()).await.unwrap().unwrap();
    assert_eq!(text, b"is [masked] right, or [masked]?");
    let shown = shown.0.lock().unwrap();
    assert!(shown.contains("tries [masked] and [masked]"), "{shown}");
    assert!(!shown.contains(KEY) && !shown.contains(VALUE), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn secrets_are_taken_out_of_the_logs_of_a_stage_whose_driver_was_killed_before_it_is_shown() {
    let world = World::new(|_| StageEnd::interrupted(Interruption::Silence));
    let first = world.clone().alone();
    let (_stop, driving) = start(first.orchestrator(), plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Granted { .. })).await;
    driving.abort();
    driving.await.unwrap_err();
    first.host.die();
    let shown = Arc::new(Masked { host: world.host.clone(), at_first: Mutex::default() });
    let (host, observer) = (world.host.clone(), Arc::<Masked>::clone(&shown));
    let orchestrator = World { script: Scripted::passing(), ..world }
        .orchestrator_with(|ports| ports.observer = observer);
    let (_stop, driving) = start(orchestrator, plan(&[("a", &[])]));
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
    let dir = std::path::absolute("stages").unwrap().join(id("a").slug()).join("01-run");
    assert_eq!(*shown.at_first.lock().unwrap(), Some(vec![dir.clone()]));
    // Once more when nothing writes to them any more.
    assert_eq!(host.masked(), [dir.clone(), dir]);
}

/// Notes what was masked when anything is shown for the first time.
struct Masked {
    host: VirtualHost,
    at_first: Mutex<Option<Vec<PathBuf>>>,
}

impl Observer for Masked {
    fn committed(&self, _: &[StoredEvent], _: &Progress) {
        self.at_first.lock().unwrap().get_or_insert_with(|| self.host.masked());
    }
}
