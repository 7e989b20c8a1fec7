//! The store from outside: what it promises, and what the world does to it.

mod child;
mod conformance;
mod crash;
mod damage;
mod driver;
mod file;
mod full;
mod processes;
mod support;
