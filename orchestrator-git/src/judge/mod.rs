//! What a failed verification is worth ([`Judge`](verifier::Judge)), by the `failures` in its output.

pub(crate) mod failures;
pub(crate) mod verifier;
