//! Calling git on one repository: everything that the other modules know of git goes through here.
//!
//! `exec` starts the program, with nothing of the environment and configuration that overrules the
//! repository's (`shield`); `server` lets two commands stay for the next question; `locks` clears
//! what a killed git left. `repository` is the handle ([`Git`](repository::Git)), with `refs`,
//! `objects` and `preflight`; `apart` ([`Apart`](apart::Apart)) is for calls about files and trees,
//! with `diff`. `oid` and `trailers` are what objects are called and what commits say.

pub(crate) mod apart;
pub(crate) mod diff;
pub(crate) mod exec;
pub(crate) mod locks;
pub(crate) mod objects;
pub(crate) mod oid;
pub(crate) mod preflight;
pub(crate) mod refs;
pub(crate) mod repository;
pub(crate) mod server;
pub(crate) mod shield;
pub(crate) mod trailers;
