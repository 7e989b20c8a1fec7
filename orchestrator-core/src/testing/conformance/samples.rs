//! Ids, records, events and commits to feed a store with.
#![expect(
    clippy::missing_panics_doc,
    reason = "only a name that is no id panics, and only in a test"
)]

use std::time::Duration;

use crate::command::Answer;
use crate::event::{Event, EventKind, Resolution, Stale};
use crate::id::{
    BlobHash, ChangeId, CommandId, FencingToken, OwnerId, PoolName, RunId, Seq, SessionId, TaskId,
    TaskNo,
};
use crate::lease::{Lease, Owner};
use crate::money::Usd;
use crate::outcome::{Candidate, Interruption, MergeIntent, Restart};
use crate::port::Commit;
use crate::record::{
    Cause, Completion, Counts, Delay, Escalation, Extra, OwnerRecord, ParkReason, PassedOver,
    Phase, PoolBounds, PoolRecord, Records, RunRecord, RunState, TaskRecord, Unheard, Wait,
};
use crate::retry::RetryRules;
use crate::time::{Anchor, ClockReading, Timestamp, WallTime};

/// The run of this name.
#[must_use]
pub fn run_id(name: &str) -> RunId {
    RunId::parse(name).expect("samples have valid names")
}

/// The task of this name.
#[must_use]
pub fn task_id(name: &str) -> TaskId {
    TaskId::parse(name).expect("samples have valid names")
}

/// The command of this name.
#[must_use]
pub fn command_id(name: &str) -> CommandId {
    CommandId::parse(name).expect("samples have valid names")
}

/// The owner of this name.
#[must_use]
pub fn owner_id(name: &str) -> OwnerId {
    OwnerId::parse(name).expect("samples have valid names")
}

/// The change of this name.
#[must_use]
pub fn change_id(name: &str) -> ChangeId {
    ChangeId::parse(name).expect("samples have valid names")
}

fn pool_name(name: &str) -> PoolName {
    PoolName::parse(name).expect("samples have valid names")
}

fn session_id(name: &str) -> SessionId {
    SessionId::parse(name).expect("samples have valid names")
}

/// An event at this time that changes no record by itself.
#[must_use]
pub fn event(at: u64) -> Event {
    let kind = EventKind::BudgetSet { budget: Some(Usd(at)) };
    Event { at: Timestamp(at), kind }
}

/// The record of a run of this name as it begins.
#[must_use]
pub fn run_record(name: &str) -> RunRecord {
    RunRecord {
        id: run_id(name),
        state: RunState::Active,
        rules: RetryRules::default(),
        last_at: Timestamp(0),
        last_token: FencingToken(0),
        budget: None,
        spent: Usd::ZERO,
        reserved: Usd::ZERO,
        driver: None,
        anchor: None,
        plans: Vec::new(),
        first_stage_failures: 0,
        passed_over: None,
        pilot: None,
        counts: Counts::default(),
    }
}

/// A run's record with every field filled.
#[must_use]
pub fn full_run_record(name: &str) -> RunRecord {
    let mut run = run_record(name);
    run.last_at = Timestamp(77);
    run.last_token = FencingToken(12);
    run.budget = Some(Usd::dollars(50));
    run.spent = Usd(1_234_567);
    run.reserved = Usd::dollars(7);
    run.driver = Some(owner_id("host/boot/1/2"));
    run.first_stage_failures = 2;
    run.passed_over = Some(PassedOver { task: TaskNo(6), times: 31, aside: Some((TaskNo(3), 8)) });
    run.pilot = Some(5);
    run.anchor = Some(anchor());
    run.counts = Counts {
        open: 1,
        deferred: 2,
        leased: 3,
        stopping: 4,
        done: 5,
        escalated: 6,
        cancelled: 7,
    };
    run
}

fn anchor() -> Anchor {
    let reading =
        ClockReading { boot_id: "boot".to_owned(), boot_ms: 5, wall: WallTime(1_790_000_000_000) };
    Anchor { reading, at: Timestamp(3) }
}

/// Every state that a run can be in.
#[must_use]
pub fn run_states() -> Vec<RunState> {
    use ParkReason::{Asked, Auth, Billing, Breaker, Budget, Pilot};
    let mut states = vec![
        RunState::Active,
        RunState::Paused { reason: "a 'quoted' reason\nof two lines".to_owned() },
        RunState::Completed,
        RunState::Failed,
    ];
    for reason in [Budget, Auth, Billing, Breaker, Asked, Pilot] {
        states.extend([RunState::Draining { reason }, RunState::Parked { reason }]);
    }
    states
}

/// The record of a task of this name that waits for its first stage.
#[must_use]
pub fn task_record(name: &str) -> TaskRecord {
    TaskRecord {
        id: task_id(name),
        phase: Phase::Open,
        stage: 0,
        attempt: 0,
        under_way: false,
        rejections: 0,
        rounds: Vec::new(),
        interruptions: 0,
        deferrals: 0,
        dispatches: 0,
        extra: Extra::default(),
        feedback: Vec::new(),
        signature: None,
        restart: Restart::OnTarget,
        holds_scope: false,
        workspace: None,
        session: None,
        candidate: None,
        intent: None,
        last_token: FencingToken(0),
        content: None,
        settled: Usd::ZERO,
        unheard: Vec::new(),
        refused: None,
        spent: Usd::ZERO,
        since: Timestamp(0),
    }
}

/// A task's record with every field filled.
#[must_use]
pub fn full_task_record(name: &str) -> TaskRecord {
    TaskRecord {
        id: task_id(name),
        phase: Phase::Leased(lease()),
        stage: 3,
        attempt: 4,
        under_way: true,
        rejections: 3,
        rounds: vec![1, 0, 2],
        interruptions: 2,
        deferrals: 5,
        dispatches: 19,
        extra: Extra { retries: 1, dispatches: 30, deferrals: 4 },
        feedback: vec![BlobHash::of(b"first"), BlobHash::of(b"second")],
        signature: Some(u64::MAX - 3),
        restart: Restart::OnCandidate,
        holds_scope: true,
        workspace: Some(FencingToken(9)),
        session: Some(session_id("a session")),
        candidate: Some(Candidate { change: change_id("c1"), base: change_id("b1") }),
        intent: Some(MergeIntent { onto: change_id("o1"), merged: change_id("m1") }),
        last_token: FencingToken(12),
        content: Some(BlobHash::of(b"handed out")),
        settled: Usd(5),
        unheard: vec![
            Unheard { token: FencingToken(2), booked: Usd(1) },
            Unheard { token: FencingToken(u64::MAX), booked: Usd(u64::MAX) },
        ],
        refused: Some(FencingToken(8)),
        spent: Usd(420_000),
        since: Timestamp(76),
    }
}

fn lease() -> Lease {
    Lease {
        token: FencingToken(12),
        owner: owner_id("host/boot/1/2"),
        granted_at: Timestamp(70),
        hard_stop: Timestamp(9_000_000),
        reserved: Usd::dollars(5),
    }
}

const INTERRUPTIONS: [Interruption; 14] = [
    Interruption::Silence,
    Interruption::Killed,
    Interruption::Crashed,
    Interruption::Overload,
    Interruption::RateLimited,
    Interruption::UsageLimit,
    Interruption::Network,
    Interruption::Auth,
    Interruption::Billing,
    Interruption::OwnerLost,
    Interruption::Expired,
    Interruption::Superseded,
    Interruption::Shutdown,
    Interruption::Cancelled,
];

/// Every phase that a task can be in, with every reason for it.
#[must_use]
pub fn phases() -> Vec<Phase> {
    let mut phases = vec![Phase::Open, Phase::Leased(lease()), Phase::Cancelled];
    for why in INTERRUPTIONS {
        let until = Timestamp(u64::MAX);
        phases.push(Phase::Deferred { until, why: Wait::Interrupted(why) });
        phases.push(Phase::Stopping { lease: lease(), why });
    }
    for why in [Delay::GateClosed, Delay::Rejected] {
        phases.push(Phase::Deferred { until: Timestamp(8), why: Wait::Other(why) });
    }
    phases.extend(
        [
            Completion::Merged(change_id("m1")),
            Completion::Verified,
            Completion::ByHand,
            Completion::Skipped,
        ]
        .map(Phase::Done),
    );
    let causes = [
        Cause::RetriesUsed,
        Cause::SameFailure,
        Cause::Question,
        Cause::Fatal,
        Cause::InterruptionsUsed,
        Cause::DispatchesUsed,
        Cause::RoundsUsed,
        Cause::DeferralsUsed,
        Cause::BudgetUsed,
    ];
    for cause in causes {
        let text = Some(BlobHash::of(b"why?"));
        let kept = Some("refs/kept/ü".to_owned());
        phases.push(Phase::Escalated(Escalation { cause, text, kept }));
        phases.push(Phase::Escalated(Escalation { cause, text: None, kept: None }));
    }
    phases
}

/// A pool that is open, and one that is closed.
#[must_use]
pub fn pool_records() -> Vec<PoolRecord> {
    vec![
        PoolRecord {
            bounds: PoolBounds { budget: Some(Usd::dollars(3)), in_flight_max: Some(u32::MAX) },
            spent: Usd(17),
            ..PoolRecord::new(pool_name("agents"), 24)
        },
        PoolRecord { closed_until: Some(Timestamp(99)), ..PoolRecord::new(pool_name("verify"), 0) },
    ]
}

/// The process that the owners of the samples are.
#[must_use]
pub fn owner(name: &str) -> Owner {
    Owner {
        id: owner_id(name),
        host: "host".to_owned(),
        boot_id: "boot".to_owned(),
        pid: 4_000_000_000,
        start_time: 1 << 40,
    }
}

/// The record of an owner that showed at this time that it lives.
#[must_use]
pub fn owner_record(name: &str, touched_at: u64) -> OwnerRecord {
    OwnerRecord {
        owner: owner(name),
        touched_at: Timestamp(touched_at),
        ttl: Duration::from_millis(30_500),
        ended: false,
    }
}

/// An event of every kind.
#[must_use]
pub fn events() -> Vec<Event> {
    let kinds = [run_events(), stage_events(), person_events()].into_iter().flatten();
    kinds.zip(1..).map(|(kind, at)| Event { at: Timestamp(at), kind }).collect()
}

fn stage_events() -> Vec<EventKind> {
    let task = || task_id("t");
    let token = FencingToken(12);
    let cost = Usd(17);
    vec![
        EventKind::Granted {
            task: task(),
            stage: 1,
            attempt: 2,
            token,
            owner: owner_id("o"),
            hard_stop: Timestamp(u64::MAX),
            reserved: Usd::dollars(5),
        },
        EventKind::Passed {
            task: task(),
            token,
            cost,
            candidate: Some(Candidate { change: change_id("c1"), base: change_id("b1") }),
            merged: Some(change_id("m1")),
            session: Some(session_id("s")),
        },
        EventKind::Rejected {
            task: task(),
            token,
            cost,
            feedback: BlobHash::of(b"no"),
            signature: u64::MAX,
            restart: Restart::OnTarget,
            candidate: None,
            session: None,
            until: Timestamp(6),
        },
        EventKind::Suspended { task: task(), token, cost, until: Timestamp(7) },
        EventKind::Interrupted {
            task: task(),
            token,
            cost,
            reason: Interruption::UsageLimit,
            until: Timestamp(5),
            session: None,
        },
        EventKind::Stopping { task: task(), token, reason: Interruption::OwnerLost },
        EventKind::Escalated {
            task: task(),
            token: Some(token),
            cost,
            cause: Cause::Question,
            text: Some(BlobHash::of(b"which?")),
            kept: None,
        },
        EventKind::ResultRefused {
            task: task(),
            token,
            stage: 1,
            reason: Stale::OtherToken { current: FencingToken(13) },
            cost,
        },
        EventKind::Dispatched { task: task(), token, content: BlobHash::of(b"handed out") },
        EventKind::MergeIntended {
            task: task(),
            token,
            intent: MergeIntent { onto: change_id("o1"), merged: change_id("m1") },
        },
        EventKind::Due { task: task() },
    ]
}

fn person_events() -> Vec<EventKind> {
    let task = || task_id("t");
    let (actor, reason) = (|| "ana".to_owned(), || "be\"cause".to_owned());
    vec![
        EventKind::Retried { task: task(), actor: actor(), reason: reason() },
        EventKind::Resolved {
            task: task(),
            how: Resolution::Skip,
            actor: actor(),
            reason: reason(),
        },
        EventKind::Edited {
            task: task(),
            spec: BlobHash::of(b"{}"),
            actor: actor(),
            reason: reason(),
        },
        EventKind::Cancelling {
            task: task(),
            token: FencingToken(12),
            actor: actor(),
            reason: reason(),
        },
        EventKind::Cancelled { task: task(), actor: actor(), reason: reason() },
        EventKind::Paused { actor: actor(), reason: reason() },
        EventKind::Resumed { actor: actor() },
    ]
}

fn run_events() -> Vec<EventKind> {
    vec![
        EventKind::RunCreated { run: run_id("r"), rules: RetryRules::default() },
        EventKind::PlanAdded { plan: BlobHash::of(b"{}"), tasks: 3 },
        EventKind::PlanPruned { plan: BlobHash::of(b"{}"), left: BlobHash::of(b"[]") },
        EventKind::PoolLimited { pool: pool_name("agents"), limit: 4 },
        EventKind::PoolClosed { pool: pool_name("agents"), until: Timestamp(9) },
        EventKind::PoolOpened { pool: pool_name("agents") },
        EventKind::PoolBounded {
            pool: pool_name("agents"),
            bounds: PoolBounds { budget: Some(Usd(7)), in_flight_max: None },
        },
        EventKind::PilotSet { tasks: Some(5) },
        EventKind::BudgetSet { budget: None },
        EventKind::DriverOpened {
            owner: Box::new(owner("o")),
            anchor: anchor(),
            ttl_ms: 30_000,
            token_floor: FencingToken(3),
        },
        EventKind::DriverEnded { owner: owner_id("o") },
        EventKind::Draining { reason: ParkReason::Asked },
        EventKind::Parked { reason: ParkReason::Budget },
        EventKind::Completed,
        EventKind::Failed,
    ]
}

/// Every answer that a command can get.
#[must_use]
pub fn answers() -> Vec<Answer> {
    vec![
        Answer::Done,
        Answer::Nothing,
        Answer::Granted { task: TaskNo(7), stage: 1, attempt: 2, token: FencingToken(12) },
        Answer::Refused(Stale::OtherToken { current: FencingToken(13) }),
        Answer::Refused(Stale::NoLease),
    ]
}

/// The first commit of a run: one event, its record, and one command that is answered.
#[must_use]
pub fn first_commit(run: &str, command: &str) -> Commit {
    let kind = EventKind::RunCreated { run: run_id(run), rules: RetryRules::default() };
    Commit {
        expected: Seq(0),
        commands: vec![(command_id(command), Answer::Done)],
        events: vec![Event { at: Timestamp(0), kind }],
        records: Records { run: Some(run_record(run)), ..Records::default() },
        blobs: Vec::new(),
    }
}

/// A commit of one event that names no command and changes no record.
#[must_use]
pub fn next_commit(expected: Seq) -> Commit {
    Commit { expected, events: vec![event(expected.0)], ..Commit::default() }
}
