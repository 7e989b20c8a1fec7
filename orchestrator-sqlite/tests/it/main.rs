//! The store from outside: what it promises, and what the world does to it.

mod child;
mod conformance;
mod copies;
mod crash;
mod damage;
mod driver;
mod file;
mod formats;
mod full;
mod growth;
mod logs;
mod mending;
mod owners;
mod processes;
mod pruned;
mod shell;
mod simulation;
mod support;
mod tampering;
