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
    PlansLoadedBackwards, "P5", "hyperqueue#742, hyperqueue#879",
        "what is rebuilt after a restart has other dependencies than before";
    LogSkipsSilently, "P5", "hyperqueue#1059",
        "a reader of the log misses an event in the middle and is not told";
    PruneForgetsTooMuch, "P4", "procrastinate#1518",
        "cleaning up takes answers away that are still needed";
    ChangeWakesNobody, "P15", "river#1358",
        "who waits for a change is not woken by it";
    BlobWrittenOver, "P4", "gastown#2028",
        "a text that is committed again under its address is lost";
}

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
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
