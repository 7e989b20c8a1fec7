//! Where tasks are worked on.
//!
//! A workspace is a `place` with a `marker`; its `worktree` is made, reset, and removed or left to the
//! next task (`pool`), set up (`setup`) where there is `room`; `submodules`, files that git converts
//! (`convert`) and what the repository would run (`programs`) are looked after by themselves. `keep`
//! puts work under a ref before it goes. [`Spaces`](spaces::Spaces) is all of it, for the leases of
//! a run.

pub(crate) mod convert;
pub(crate) mod keep;
pub(crate) mod marker;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod programs;
pub(crate) mod room;
pub(crate) mod setup;
pub(crate) mod spaces;
pub(crate) mod submodules;
pub(crate) mod worktree;
