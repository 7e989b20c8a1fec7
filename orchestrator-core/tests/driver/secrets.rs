//! What must not be stored or shown.

use std::sync::{Arc, Mutex};

use orchestrator_core::port::{Activity, ActivityKind, Observer, Progress};
use orchestrator_core::{Mask, Outcome, Phase, RunEnd, StageEnd, StageKind, StoredEvent};
use tokio_util::sync::CancellationToken;

use super::{World, plan};

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
