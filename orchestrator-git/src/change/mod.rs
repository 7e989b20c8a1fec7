//! From work to a change: one commit of the orchestrator's ([`Sealer`](seal::Sealer)), if it keeps the
//! `rules` and brings no `secrets`.

pub(crate) mod rules;
pub(crate) mod seal;
pub(crate) mod secrets;
