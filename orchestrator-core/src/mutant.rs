//! Faults that tests put in on purpose, each after one that did harm in a system of this kind.
//!
//! Without the feature `mutants`, `is_on` is a constant, so that none of them is in the program; CI
//! holds that no package but the tests' turns the feature on. `testing::museum` shows that the tests
//! notice each.
#![cfg_attr(
    not(feature = "mutants"),
    expect(unreachable_pub, reason = "the list can be reached with the feature `mutants` only")
)]

/// Declares the faults in the order in which they are shown.
macro_rules! mutants {
    ($($name:ident, $promise:literal, $seen:literal, $fault:literal;)+) => {
        /// A fault that can be put in.
        #[cfg_attr(
            not(feature = "driver"),
            expect(dead_code, reason = "some are faults of the driver")
        )]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $fault] $name,)+
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The promise that it breaks.
            #[must_use]
            pub const fn promise(self) -> &'static str {
                match self { $(Self::$name => $promise,)+ }
            }

            /// Where something like it was reported: repository and number.
            #[must_use]
            pub const fn seen(self) -> &'static str {
                match self { $(Self::$name => $seen,)+ }
            }

            /// What goes wrong.
            #[must_use]
            pub const fn fault(self) -> &'static str {
                match self { $(Self::$name => $fault,)+ }
            }
        }
    };
}

mutants! {
    UnknownDependencyIsMet, "P3", "spirali/tako, by reading",
        "a dependency on a task that does not exist counts as met";
    SelfDependencyUnseen, "P3", "ninja#148",
        "a task that depends on itself is taken, and waits for ever";
    LongCycleUnseen, "P3", "ninja#934",
        "only circles of two are found, and tasks on a longer one wait for ever";
    UnknownPipelineIsDefault, "P16", "river#1105",
        "a kind of work that nobody knows is treated as one that is known";
    NeedsBeyondLimitTaken, "P15", "airflow#13542",
        "a task that needs more permits than its pool has is queued for ever";
    BackoffWithoutCap, "P6", "oban#245, oban#476, river#730",
        "waits double without end, until a task waits for days";
    DispatchesWithoutBound, "P6", "claude-code#60921, prathamdby/pr-agent#617",
        "a task that ends in no counted way is started for ever";
    SameFailureUnrecognized, "P6", "claude-code#57719",
        "a failure at another line or time counts as another failure, so that the breaker never trips";
    ScopesOverlapByEqualPathsOnly, "P9", "majiayu000/harness#460",
        "a folder and a file in it count as apart";
    ScopesMindCase, "P9", "openai/codex#36719",
        "two names of one file, where case does not count, count as apart";
    ScopeLetsDotsOut, "P18", "benchpress#243",
        "a path that leaves the scope by `..` is allowed";
    UnknownCostIsWhatWasSeen, "P10", "fullsend#6588",
        "a program that ends without saying its cost is booked as cheap";
    WallClockWithinBoot, "P14", "db-scheduler#433, mlflow#25199",
        "two clocks decide: somebody sets the wall clock, and leases end or live on";
    SleepWithoutBound, "P14", "MailFathom#1989",
        "a wall clock that leapt during a restart ends all waits of a year";
    CommitAnywhere, "P4", "river and oban, by reading",
        "a commit decided on an old state is written over a newer one";
    RepeatedCommandTaken, "P4", "noetl#244",
        "a command that is sent again takes effect again";
    RepeatWithinCommitTaken, "P4", "poco-claw#38",
        "a command that stands twice in one batch takes effect twice";
    TouchUndoneByCommit, "P14", "orca#18368",
        "a commit puts an old sign of life over a newer one, and a healthy owner counts as dead";
    TouchGoesBack, "P14", "orca#18368",
        "a renewal that arrives late puts an earlier time in the place of a later one";
    PlansLoadedBackwards, "P5", "hyperqueue#742, hyperqueue#873, hyperqueue#879",
        "what is rebuilt after a restart has other dependencies than before";
    LogSkipsSilently, "P5", "hyperqueue#1059",
        "a reader of the log misses an event in the middle and is not told";
    PruneForgetsTooMuch, "P4", "procrastinate#1518",
        "cleaning up takes answers away that are still needed";
    ChangeWakesNobody, "P15", "river#1358",
        "who waits for a change is not woken by it";
    BlobWrittenOver, "P4", "gastown#2028",
        "a text that is committed again under its address is lost";
    AnyoneClaims, "P1", "dbos-transact-py#742",
        "work is taken by a process that was told that it drives no longer";
    SecondDriverOpens, "P1", "underway, by reading",
        "a second driver takes over from one that lives";
    TokenUsedAgain, "P1", "restate#4945",
        "a stage that is granted again has the token of the one before, whose effects then count";
    StaleTokenCounts, "P2", "oban#532, graphile/worker, by reading",
        "a result under an old token ends the present attempt";
    StoppedResultCounts, "P2", "hatchet#1022, restate#4949",
        "a result of a lease that has ended counts while it is being stopped";
    OtherAttemptCounts, "P2", "river and oban, by reading",
        "a result is taken without a look at the stage and attempt that it names";
    AnyoneMerges, "P2", "gascity-packs#172",
        "a merge may be announced under an old token";
    RenewedLeaseTakenBack, "P1", "dbos-transact-py#742",
        "a lease whose holder lives and renews it is given to somebody else";
    LostLeaseIsFreeAtOnce, "P1", "oban#1141, dbos-transact-java#491, dbos-transact-java#514",
        "a lease that is lost is free while what ran under it still runs";
    LeaseOfLostOwnerLives, "P5", "dask#6263, dask#6198, procrastinate#1518, temporal#459",
        "a task is carried out for ever by a process that is gone";
    ClosingLeavesLeases, "P5", "elizaOS#13771, Invoker#8401",
        "a process that ends leaves tasks behind that nobody owns";
    HardStopBeforeTimeout, "P5", "hexpm#1825",
        "a rescuer comes before the longest stage can be over";
    StopOutlivesLease, "P5", "river#1302, airflow#12396",
        "the timer of a lease goes on after its result, and hits whoever comes next";
    ExpiryLooksAtFirstOnly, "P5", "river#1318",
        "of several leases that ran out only the first is noticed";
    CleaningUpTwice, "P4", "airflow#32289",
        "what was cleaned up is cleaned up again with each tick";
    PlanConflictsWithItself, "P4", "river#619",
        "a plan that is sent again conflicts with itself";
    RestartForgetsInterruptions, "P5", "hyperqueue, by reading",
        "a restart sets back how often a task was interrupted";
    RefusedCommitLeavesIndex, "P5", "airflow#18401, airflow#18628",
        "what a refused commit had decided stays in a part of the memory";
    CountsDrift, "P5", "Data2Evidence#3370",
        "a counter and what it counts are two truths";
    IntentForgotten, "P17", "bors-ng#48",
        "a merge that may have happened is not asked about after a restart";
    TimeGoesBack, "P14", "db-scheduler#433",
        "a clock that jumps back takes the run's time with it";
    RetryHitsOthers, "P21", "effectum, by reading",
        "retrying one task changes another one";
    NothingLeftStillReady, "P6", "oban#652, oban#901",
        "a task that has used up its grants is ready again";
    RegrantIsNoDispatch, "P6", "pr-agent#617",
        "taking a lost stage again counts as nothing, so that a crash loop never ends";
    OneRetryTooMany, "P6", "elizaOS#14104",
        "two places count one task's retries, and it gets one more";
    ReviewRejectionIsFree, "P6", "AscendyProject/redteam#87",
        "a round of review and repair spends no retry";
    GateAskedForEver, "P6", "claude-code#60921",
        "what waits for something outside waits for ever, and nobody is told";
    PollSpendsDispatch, "P6", "oban#245",
        "a task that only waits uses up its starts";
    RejectionGoesToFirst, "P5", "bors-ng#206",
        "a rejection throws away what the stages before the one to blame had come to";
    InterruptionSpendsAttempt, "P6", "oban#245, openbot#95",
        "what is not the task's fault spends one of its attempts";
    UsageLimitBurnsInterruptions, "P6", "agenc#29",
        "a usage window that is closed counts against the task";
    InterruptionStartsAnew, "P5", "bors-ng#206",
        "a crash throws away what the stages before it had come to";
    WaitBlocksDependents, "P7", "airflow#458",
        "dependents are given up before it is decided what they wait for";
    RetryLeavesBlocked, "P7", "airflow#15697, airflow#12485, airflow#31510, airflow#52640",
        "what depends on a task stays blocked when that is tried again";
    DoneDependencyWaitedFor, "P7", "dask#8702",
        "a new task waits for ever for one that is done";
    RemovedDependencyStillHeld, "P7", "dask#8702",
        "a task goes on waiting for one that it does not depend on any more";
    CancelledIsNeverRetried, "P7", "dagster#19490, dagster#30077",
        "what was cancelled is left out when what failed is tried again";
    StopGivesBackTwice, "P8", "solid_queue#761, ninja#962",
        "permits of a lease that was stopped are given back twice";
    StopLeaksPermits, "P8", "prefect#8251, prefect#8566, dagster#28456, dagster#14614",
        "permits of a lease that was stopped are never given back";
    WaitingKeepsPermits, "P8", "dagu#1792, dagster#17502",
        "a task that waits to be tried again keeps its permits";
    ClosedPoolGrants, "P8", "solid_queue, by reading",
        "a pool that nobody may use counts as free";
    CancelledKeepsScope, "P9", "dagster#33643",
        "what was cancelled holds its scope for ever";
    EscalatedKeepsScope, "P9", "graphile/worker#254, graphile/worker#204",
        "what failed holds its scope, and blocks all that wait for it";
    BlockedByItself, "P11", "dagster#31243",
        "a task waits for a scope that it holds itself";
    FirstThatDoesNotFitStopsAll, "P11", "oban#1498, hyperqueue#848",
        "one task that does not fit keeps all others from running";
    FreedScopeWakesNobody, "P11", "dask#7223, solid_queue#456, solid_queue#689",
        "what waits for a scope is not looked at when that becomes free";
    NewestFirst, "P12", "buildbuddy#10109, taskcluster#9131",
        "what came last goes first, and the old ones starve";
    PoolOpensUnannounced, "P11", "temporal#11869",
        "nobody wakes when a closed pool opens again";
    WaitWithoutTimer, "P11", "temporal#11869",
        "a task waits for a time that no timer is set for";
    PausedRunGrants, "P15", "claude-code#95803",
        "a run that a person paused goes on by itself";
    FailureIsSilent, "P15", "ninja#148",
        "a run in which nothing can happen any more does not say so";
    BudgetForgetsReservations, "P10", "claude-code#60921",
        "what running stages may spend is not taken from the budget";
    OverdrawnTaskGoesOn, "P10", "claude-code#57719",
        "one task spends without end, as long as the whole has money";
    PoolSpendUnbooked, "P10", "claude-code#73438",
        "what one kind of work costs is not counted, and its budget never ends";
    OlderLeaseUnheard, "P10", "vincent#97",
        "what a stopped stage spent is not booked once its task was started again";
    LaterPlanReplacesBudget, "P10", "by reasoning",
        "a plan that comes later raises the budget of the run without a word";
    PrunedPlanIsNew, "P4", "by reasoning",
        "a plan that was pruned and is sent again conflicts with what is left of it";
    PrunedUnderOpenTasks, "P15", "by reasoning",
        "a cancelled task is pruned though others wait for it, and nobody can take it up again";
    EscalatedIsPruned, "P15", "by reasoning",
        "a plan is pruned though a task of it waits for a person";
    PrunedIsTakenUp, "P16", "by reasoning",
        "a task whose plan was pruned is tried again without its prompt";
    FlightNeverEnds, "P11", "by reasoning",
        "what is finished still counts as waiting, until nothing new is begun";
    PilotNeverEnds, "P15", "by reasoning",
        "a pilot goes on with all tasks before anybody looks at what it came to";
    ReservationLeaks, "P10", "prefect#17415, prefect#9895",
        "what was set aside for a stage is never given back";
    LateSpendUnbooked, "P10", "vincent#97",
        "money that a stopped stage spent appears in no book";
    LateResultBookedAgain, "P10", "multica#5838",
        "a result that comes again is booked again";
    OneDependencyIsEnough, "P3", "cline/kanban#473",
        "a task runs as soon as one of those that it depends on is done";
    WideStarves, "P12", "cctools#4124",
        "a task that needs much at once is overtaken for ever by those that need little";
    FloorIgnored, "P1", "our own inside",
        "a backup that is restored grants tokens that its original granted";
    JitterIsADie, "P13", "our own inside",
        "waits are spread by chance, so that no history can be had twice";
    HeapLosesOrder, "P11", "our own inside",
        "what takes the place of something taken out of a heap stays there";
    CascadeStopsShort, "P7", "our own inside",
        "only direct dependents of what failed are blocked";
    WorkspaceOfAnother, "P5", "our own inside",
        "a lease takes up the workspace of a lease of another task";
    UndoneForwards, "P4", "our own inside",
        "what changed twice in a refused commit is what it was after the first change";
    SumsNotUndone, "P10", "our own inside",
        "a refused commit leaves what it set aside";
    PoolsNotUndone, "P4", "our own inside",
        "a refused commit leaves pools closed";
    EditNotUndone, "P4", "our own inside",
        "a refused commit leaves what it edited";
    CommittedIsUndone, "P4", "our own inside",
        "a refused commit takes the one before it back";
    PoolsNotKept, "P5", "our own inside",
        "a restart forgets that a pool is closed";
    OddMessagePanics, "P16", "hyperqueue#629, hyperqueue#1107",
        "one message that does not fit ends the process";
    AdapterPanicEndsRun, "P5", "hyperqueue#629, hyperqueue#1107",
        "one adapter that panics ends the run of all others";
    BusyStoreEndsRun, "P5", "jentic-one#529, profilarr#519",
        "a store that is busy for a moment ends the run";
    DriverTakesItselfForDead, "P1", "dbos-transact-java#491, dbos-transact-java#514",
        "a process that drives a run takes it over from itself";
    UnseenDriverIsDead, "P1", "orca#18368, noetl#244",
        "a driver that cannot be looked at counts as dead, though it renews its leases";
    LeasesNotRenewed, "P1", "hexpm#1825, openbot#95",
        "a driver whose stages take long gives no sign of life, and counts as dead";
    LapsedStagesRunOn, "P1", "solid_queue#761, oban#1141",
        "a driver that cannot renew its leases lets its stages run until others have the same ones";
    DrivesOnAfterTakeover, "P1", "dbos-transact-py#742",
        "a driver that was told to have ended goes on as if nothing had happened";
    LeftoversForgotten, "P5", "temporal#459, elizaOS#13771",
        "what a driver left behind when it died is looked after by nobody";
    CrashedStageIsFreeAtOnce, "P20", "oban#1141",
        "a stage whose adapter broke is granted again while its program still runs";
    StopNotTold, "P15", "hatchet#1022",
        "a stage whose time is over is not told, and runs on";
    DeafStageWaitedFor, "P15", "gastown#3584, compozy#616",
        "a stage that does not listen is waited for for ever";
    OthersUnheard, "P15", "river#1358",
        "what another process asks for is heard only when something else happens";
    TimerNotSet, "P15", "temporal#11869",
        "a task waits for a time at which nobody wakes";
    ResultGrantsNothing, "P11", "dask#7223",
        "a result frees its place, and nobody looks what could run there";
    OneGrantATurn, "P11", "hyperqueue#848",
        "of all places that are free only one is filled";
    MergedIsNotAsked, "P17", "bors-ng#48",
        "a change that was merged just before the driver died is merged again";
    MergesUnannounced, "P17", "bors-ng#48",
        "a merge happens of which the log does not know that it may have";
    RestartClearsWorkspaces, "P19", "bors-ng#206, gastown#2028",
        "a driver that comes after a crash throws away what was under way";
}

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
    static DIE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Whether this fault is put in.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is_on(_: Mutant) -> bool {
    false
}

/// Whether this fault is put in on this thread.
#[cfg(feature = "mutants")]
pub(crate) fn is_on(mutant: Mutant) -> bool {
    ON.get() == Some(mutant)
}

/// What a fault that needs chance has; nothing is left to chance otherwise.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn die() -> u64 {
    0
}

/// What a fault that needs chance has: another number each time.
#[cfg(feature = "mutants")]
pub(crate) fn die() -> u64 {
    DIE.set(DIE.get() + 1);
    DIE.get()
}

/// Does something on this thread with a fault put in, or with none.
#[cfg(feature = "mutants")]
pub fn with<T>(mutant: Option<Mutant>, act: impl FnOnce() -> T) -> T {
    /// Takes the fault out again, also after a panic.
    struct Out(Option<Mutant>);
    impl Drop for Out {
        fn drop(&mut self) {
            ON.set(self.0);
        }
    }
    let _out = Out(ON.replace(mutant));
    act()
}
