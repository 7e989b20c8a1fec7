//! The branch that is merged into ([`Branch`](integration::Branch)), on the other side too where there
//! is a remote ([`Remote`](remote::Remote)), and the fences that every move of it checks
//! ([`Fences`](fence::Fences)).

pub(crate) mod fence;
pub(crate) mod integration;
pub(crate) mod remote;
