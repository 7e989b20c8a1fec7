//! Faults that the bug museum puts into this store, each after one that did harm elsewhere.
//!
//! Without the feature `mutants`, `is_on` is a constant, so that none of them is in the program; CI
//! holds that no product turns the feature on.
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
    ExpectedUnseen, "P4", "river and oban, by reading",
        "a transaction writes without a look at where the run stands";
    RepeatUnseen, "P4", "noetl#244",
        "a transaction writes without a look at what it was asked before";
    RowsOfOthersWritten, "P21", "effectum, by reading",
        "an UPDATE without its WHERE moves all runs of the file";
    OwnersOfOthersTouched, "P21", "effectum, by reading",
        "an UPDATE with half of its WHERE takes one owner's sign of life for all";
    RowsOfOthersDeleted, "P21", "graphile/worker, by reading",
        "a DELETE without its run takes the answers of all runs away";
    TouchRolledBack, "P1", "orca#18368",
        "a sign of life is written and never committed, and a healthy owner counts as dead";
    LateTouchWritten, "P14", "orca#18368",
        "a sign of life that arrives late is written over a later one";
    RecordOverTouch, "P14", "orca#18368",
        "an owner's record is written with the old time over a newer sign of life";
    BadRowSkipped, "P5", "hyperqueue#1059",
        "a row of the log that cannot be read is passed over, and nobody is told";
    SecondOwnerLetIn, "P1", "underway, by reading",
        "a file that somebody has for himself is opened by another one";
    BeginsAsReader, "P5", "jentic-one#529, profilarr#519, ouroboros-consensus#2233",
        "a transaction begins as a reader, and fails at once when another one writes";
    OtherProcessUnheard, "P15", "river#1358",
        "what another process commits is noticed only when this one commits too";
}

/// Whether this fault is put in.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is_on(_: Mutant) -> bool {
    false
}

/// What is put in on this thread: nothing.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn now() -> Option<Mutant> {
    None
}

/// Does something.
#[cfg(not(feature = "mutants"))]
pub(crate) fn with<T>(_: Option<Mutant>, act: impl FnOnce() -> T) -> T {
    act()
}

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this fault is put in on this thread.
#[cfg(feature = "mutants")]
pub(crate) fn is_on(mutant: Mutant) -> bool {
    ON.get() == Some(mutant)
}

/// What is put in on this thread, for another one that works for it.
#[cfg(feature = "mutants")]
pub(crate) fn now() -> Option<Mutant> {
    ON.get()
}

/// Does something on this thread, and on those of the stores that it calls, with a fault put in, or
/// with none.
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
