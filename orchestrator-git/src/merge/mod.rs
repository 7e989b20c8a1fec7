//! From a change to the branch: a proposal on top of it or of the last merge under way (`queue`), the
//! feedback where there is a `conflict`, and the move ([`Merger`](merger::Merger)).

pub(crate) mod conflict;
pub(crate) mod merger;
pub(crate) mod queue;
