//! What runs of one host share: the account, and turns to start.

use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orchestrator_claude::{Account, ClaudeReviewer, ClaudeRunner, Starts};
use orchestrator_core::port::{Reviewer as _, Runner as _};
use orchestrator_core::{Cost, Interruption, Outcome, StageKind, Usd, WallTime};

use crate::support::{TIMEOUT, change};
use crate::{BEGIN, FINAL, read, set_up};

fn in_seconds(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now + Duration::from_secs(seconds)).as_secs()
}

fn usage_limit(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: Some(at) } => at.0,
        Outcome::Passed
        | Outcome::Rejected { .. }
        | Outcome::Question { .. }
        | Outcome::Interrupted { .. }
        | Outcome::Suspended { .. }
        | Outcome::Fatal { .. } => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn a_usage_limit_that_one_run_hits_keeps_all_others_from_starting() {
    let reset = in_seconds(3_600);
    let limit = format!(
        r#"echo '{{"type":"rate_limit_event","rate_limit_info":{{"status":"rejected","resetsAt":{reset},"rateLimitType":"five_hour"}}}}'
echo '{{"type":"assistant","error":"rate_limit","message":{{"content":[]}}}}'
echo '{{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"limit"}}'"#
    );
    let (place, mut config) = set_up(StageKind::Run, "hits", &format!("{BEGIN}\n{limit}\nexit 1"));
    let account = Account::at(place.beside("host/account.json"));
    config.common.account = Some(account.clone());
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert!(usage_limit(&end.outcome) >= reset * 1_000);
    assert!(account.path().exists());

    let (other, mut config) = set_up(StageKind::Run, "other", "touch ../started");
    config.common.account = Some(account.clone());
    let end = ClaudeRunner::new(config.clone()).run(&other.cx).await;
    // Not all that wait for the window come back at the same moment.
    assert!((reset * 1_000..reset * 1_000 + 20_000).contains(&usage_limit(&end.outcome)));
    assert_eq!(end.cost, Cost::NONE);
    let review = ClaudeReviewer::new(config).review(&other.cx, &change()).await;
    usage_limit(&review.judgement.unwrap_err());
    assert!(!other.beside("started").exists());
}

#[tokio::test]
async fn a_run_that_was_served_before_a_limit_was_hit_does_not_reopen_the_account() {
    let reset = in_seconds(3_600);
    let says = |status: &str| {
        format!(
            r#"echo '{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":{reset},"rateLimitType":"five_hour"}}}}'"#
        )
    };
    // It is served, and ends only after the other one has hit the limit.
    let waits = "until [ -e ../go ]; do sleep 0.02; done";
    let body = format!("{BEGIN}\n{}\n{waits}\n{FINAL}", says("allowed"));
    let (early, mut config) = set_up(StageKind::Run, "early", &body);
    let account = Account::at(early.beside("account.json"));
    config.common.account = Some(account.clone());
    let go = early.beside("go");
    let running = tokio::spawn(async move {
        let end = ClaudeRunner::new(config).run(&early.cx).await;
        (end.outcome, early)
    });
    // What it heard is written down at once; one that does so at its end is not waited for for ever.
    let is_heard = async {
        while !account.path().exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT / 2, is_heard).await.expect("it is written down");
    let limit = r#"echo '{"type":"assistant","error":"rate_limit","message":{"content":[]}}'
echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"limit"}'"#;
    let body = format!("{BEGIN}\n{}\n{limit}\nexit 1", says("rejected"));
    let (late, mut config) = set_up(StageKind::Run, "late", &body);
    config.common.account = Some(account.clone());
    usage_limit(&ClaudeRunner::new(config).run(&late.cx).await.outcome);
    std::fs::write(go, "").unwrap();
    let (outcome, _early) = running.await.unwrap();
    assert_eq!(outcome, Outcome::Passed);
    let now = WallTime(in_seconds(0) * 1_000);
    assert_eq!(account.closed_until(now), Some(WallTime(reset * 1_000)));
}

#[tokio::test]
async fn a_share_of_the_usage_window_is_left_to_the_person() {
    let reset = in_seconds(3_600);
    let windows = format!(
        r#"echo '{{"type":"rate_limit_event","rate_limit_info":{{"status":"allowed","resetsAt":{reset},"unifiedWindows":{{"five_hour":{{"utilization":0.9,"resetsAt":{reset},"status":"allowed"}}}}}}}}'"#
    );
    let body = format!("echo x >> ../starts\n{BEGIN}\n{windows}\n{FINAL}");
    let (place, mut config) = set_up(StageKind::Run, "share", &body);
    config.common.account = Some(Account::at(place.beside("account.json")).leaving(0.2));
    let runner = ClaudeRunner::new(config);
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    usage_limit(&runner.run(&place.cx).await.outcome);
    assert_eq!(read(&place.beside("starts")), "x\n");
}

#[tokio::test]
async fn only_so_many_programs_start_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("lock");
    let starting = format!("mkdir {0} && sleep 0.05 && rmdir {0} || exit 9", lock.display());
    // What they do once they have begun goes on side by side.
    let body = format!("{starting}\n{BEGIN}\nsleep 0.2\n{FINAL}");
    let starts = Starts::at_once(NonZeroUsize::MIN);
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..6 {
        let (place, mut config) = set_up(StageKind::Run, &format!("start-{number}"), &body);
        config.common.starts = starts.clone();
        runs.spawn(async move {
            let place = place;
            ClaudeRunner::new(config).run(&place.cx).await.outcome
        });
    }
    assert!(runs.join_all().await.iter().all(|outcome| *outcome == Outcome::Passed));
}

fn rejected(reset: u64) -> String {
    format!(
        r#"echo '{{"type":"rate_limit_event","rate_limit_info":{{"status":"rejected","resetsAt":{reset},"rateLimitType":"five_hour"}}}}'"#
    )
}

const LIMIT: &str = r#"echo '{"type":"assistant","error":"rate_limit","message":{"content":[]}}'
echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"limit"}'; exit 1"#;

#[tokio::test]
async fn a_run_that_waits_for_its_turn_does_not_start_once_the_account_is_closed() {
    let starts = Starts::at_once(NonZeroUsize::MIN);
    let waits = "touch ../started; until [ -e ../go ]; do sleep 0.02; done";
    let body = format!("{waits}\n{}\n{LIMIT}", rejected(in_seconds(3_600)));
    let (first, mut config) = set_up(StageKind::Run, "first", &body);
    let account = Account::at(first.beside("account.json"));
    config.common.account = Some(account.clone());
    config.common.starts = starts.clone();
    let (started, go) = (first.beside("started"), first.beside("go"));
    let running = tokio::spawn(async move {
        let end = ClaudeRunner::new(config).run(&first.cx).await;
        (end.outcome, first)
    });
    while !started.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (second, mut config) = set_up(StageKind::Run, "second", "touch ../started");
    config.common.account = Some(account);
    config.common.starts = starts;
    let prompt = second.cx.dir.join("prompt.md");
    let runner = ClaudeRunner::new(config);
    let waiting = tokio::spawn(async move {
        let end = runner.run(&second.cx).await;
        (end, second)
    });
    // It looked at the account, and has come as far as to its turn.
    while !prompt.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(go, "").unwrap();
    let (end, second) = waiting.await.unwrap();
    usage_limit(&end.outcome);
    assert_eq!(end.cost, Cost::NONE);
    assert!(!second.beside("started").exists());
    let (outcome, _first) = running.await.unwrap();
    usage_limit(&outcome);
}

#[tokio::test]
async fn what_a_first_answer_cost_is_booked_when_the_second_question_has_to_wait() {
    let text = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"mumble","total_cost_usd":0.25}'"#;
    let body = format!("echo x >> ../starts\n{BEGIN}\n{}\n{text}", rejected(in_seconds(3_600)));
    let (place, mut config) = set_up(StageKind::Review, "mumbles", &body);
    config.common.account = Some(Account::at(place.beside("account.json")));
    let review = ClaudeReviewer::new(config).review(&place.cx, &change()).await;
    usage_limit(&review.judgement.unwrap_err());
    assert_eq!(review.cost, Cost::Known(Usd(250_000)));
    assert_eq!(read(&place.beside("starts")), "x\n");
}
